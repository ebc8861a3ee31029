"""What does `guard` buy? Nine real data sets, three searches, many splits, against raw scores.

For each data set and search (a grid, a random list, TPE) the same candidates are searched twice:
on the raw scores of the holdout, as people do, and on the training rows alone with the finalists
confirmed on the holdout. What is left of the data says what each winner is worth. Printed are
the means over the splits, with standard errors in brackets: what is believed less what is true,
the truth of the guarded winner less that of the unguarded one, the error of the corrected score
(`estimate`), and the certificate's coverage and width, as a multiple of that of one fresh query
on the same rows. Scores are accuracies, and one less the mean absolute error of targets that are
brought to [0, 1]. A single query is one of the guarded winner on a fresh ladder.

    python benchmarks/selection.py --quick
    python benchmarks/selection.py --splits 20 --jobs 2
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import statsmodels.api as sm
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.model_selection import (
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    RandomizedSearchCV,
    train_test_split,
)
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from ladderholdout import LadderHoldout

LIST = 40
FINALISTS: tuple[int | str, ...] = (3, "auto")
GRID = {
    "max_depth": [2, 4, 8, None],
    "max_features": [0.3, 0.6, 1.0],
    "min_samples_leaf": [1, 3, 8],
    "random_state": [0],
}


@dataclass(frozen=True)
class Data:
    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    n_train: int
    n_holdout: int

    @property
    def classifies(self) -> bool:
        return self.y.dtype.kind in "iu"


def data_sets() -> list[Data]:
    def unit(y: Any) -> NDArray[Any]:
        y = np.asarray(y, dtype=float)
        return (y - y.min()) / (y.max() - y.min())

    stats = sm.datasets
    fair, anes = stats.fair.load_pandas().data, stats.anes96.load_pandas().data
    rand, star = stats.randhie.load_pandas().data[::5], stats.star98.load_pandas().data
    share = star["NABOVE"] / (star["NABOVE"] + star["NBELOW"])
    return [
        Data("digits", *load_digits(return_X_y=True), 400, 150),
        Data("breast cancer", *load_breast_cancer(return_X_y=True), 150, 120),
        Data("wine", *load_wine(return_X_y=True), 60, 50),
        Data("fair", fair.iloc[:, :-1].to_numpy(), (fair["affairs"] > 0).to_numpy(int), 400, 200),
        Data(
            "anes96",
            anes.drop(columns=["vote", "PID"]).to_numpy(),
            anes["vote"].to_numpy(int),
            *(300, 200),
        ),
        Data("randhie", rand.iloc[:, 1:].to_numpy(), (rand["mdvis"] > 2).to_numpy(int), 400, 200),
        Data("diabetes", load_diabetes().data, unit(load_diabetes().target), 150, 100),
        Data("star98", star.iloc[:, 2:].to_numpy(), unit(share), 100, 80),
        Data(
            "anes96 income",
            anes.drop(columns=["income"]).to_numpy(),
            unit(anes["income"]),
            *(300, 200),
        ),
    ]


def tree(data: Data) -> Any:
    return DecisionTreeClassifier() if data.classifies else DecisionTreeRegressor()


def neighbours(data: Data) -> Any:
    return KNeighborsClassifier if data.classifies else KNeighborsRegressor


def random_list(data: Data) -> tuple[Any, dict[str, Any]]:
    """Return a pipeline of neighbours and what is drawn of it."""
    space = {
        "kneighbors__n_neighbors": list(range(1, 40)),
        "kneighbors__weights": ["uniform", "distance"],
        "kneighbors__p": [1, 2],
    }
    model = make_pipeline(StandardScaler(), neighbours(data)())
    model.steps[1] = ("kneighbors", model.steps[1][1])
    return model, space


def suggested(data: Data, trial: Any) -> Any:
    """Build the tree that TPE suggests."""
    return tree(data).set_params(
        max_depth=trial.suggest_int("max_depth", 2, 14),
        min_samples_leaf=trial.suggest_int("min_samples_leaf", 1, 12),
        max_features=trial.suggest_float("max_features", 0.2, 1.0),
        ccp_alpha=trial.suggest_float("ccp_alpha", 1e-5, 0.02, log=True),
        random_state=0,
    )


@dataclass(frozen=True)
class Found:
    """One split: what is believed and true of both winners, the estimate, the certificate."""

    asked: int | str
    task: str
    raw: float
    raw_true: float
    released: float
    true: float
    estimate: float
    covered: bool
    width: float
    finalists: int


class Known(BaseEstimator):
    """A search that was run before: its results, to be guarded more than once."""

    def __init__(self, estimator: Any, results: Any, refit: Any = True) -> None:
        self.estimator, self.results, self.refit = estimator, results, refit

    def fit(self, X: Any, y: Any) -> Known:
        self.cv_results_ = self.results
        return self


@dataclass(frozen=True)
class Split:
    """The rows of one split of a data set, with what scores a model on some of them."""

    data: Data
    X: Any
    y: Any
    X_held: Any
    y_held: Any
    X_fresh: Any
    y_fresh: Any

    @classmethod
    def of(cls, data: Data, seed: int) -> Split:
        strata = data.y if data.classifies else None
        X, X_rest, y, y_rest = train_test_split(
            data.X, data.y, train_size=data.n_train, stratify=strata, random_state=seed
        )
        X_held, X_fresh, y_held, y_fresh = train_test_split(
            *(X_rest, y_rest),
            train_size=data.n_holdout,
            stratify=y_rest if data.classifies else None,
            random_state=seed,
        )
        return cls(data, X, y, X_held, y_held, X_fresh, y_fresh)

    def score(self, model: Any, X: Any, y: Any) -> float:
        if self.data.classifies:
            return float((model.predict(X) == y).mean())
        return 1.0 - float(np.abs(model.predict(X) - y).mean())

    def held(self, model: Any) -> float:
        return self.score(model, self.X_held, self.y_held)

    def true(self, model: Any) -> float:
        return self.score(model, self.X_fresh, self.y_fresh)

    @property
    def scoring(self) -> str:
        return "accuracy" if self.data.classifies else "neg_mean_absolute_error"

    def holdout(self) -> LadderHoldout:
        limits: dict[str, Any] = {} if self.data.classifies else {"loss_range": (0, 1)}
        return LadderHoldout(
            *(self.X_held, self.y_held),
            scoring=self.scoring,
            ledger="memory",
            vault=False,
            **limits,
        )


def listed(split: Split, search: str, seed: int) -> tuple[float, float, Any]:
    """Search a grid or a random list both ways; return raw, its truth, and the inner search."""
    data = split.data
    if search == "grid":
        inner: Any = GridSearchCV(tree(data), GRID, scoring=split.scoring, cv=5, refit=False)
        candidates = [clone(tree(data)).set_params(**one) for one in ParameterGrid(GRID)]
    else:
        base, space = random_list(data)
        inner = RandomizedSearchCV(
            base, space, n_iter=LIST, scoring=split.scoring, cv=5, random_state=seed, refit=False
        )
        drawn = ParameterSampler(space, LIST, random_state=seed)
        candidates = [clone(base).set_params(**one) for one in drawn]
    fitted = [model.fit(split.X, split.y) for model in candidates]
    best = max(fitted, key=split.held)
    inner.fit(split.X, split.y)
    return split.held(best), split.true(best), Known(inner.estimator, inner.cv_results_)


def studied(split: Split, seed: int) -> tuple[float, float, Any, Callable[[Any], Any]]:
    """Let TPE search both ways; return raw, its truth, the study by inner scores, its models."""

    def build(trial: Any) -> Any:
        return suggested(split.data, trial)

    def fitted(trial: Any) -> Any:
        return build(trial).fit(split.X, split.y)

    def study_of(objective: Callable[[Any], float]) -> Any:
        sampler = optuna.samplers.TPESampler(seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, n_trials=LIST)
        return study

    raw = study_of(lambda trial: split.held(fitted(trial)))
    objective = split.holdout().optuna.objective(build, inner=5, train=(split.X, split.y))
    best = fitted(raw.best_trial)
    return float(raw.best_value), split.true(best), study_of(objective.inner_score), fitted


def one(data: Data, search: str, seed: int) -> list[Found]:
    """Search one split, and confirm with each number of finalists."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    split, found = Split.of(data, seed), []
    if search == "TPE":
        raw, raw_true, study, fitted = studied(split, seed)
    else:
        raw, raw_true, known = listed(split, search, seed)
    for finalists in FINALISTS:
        holdout = split.holdout()
        if search == "TPE":
            final = holdout.optuna.finalists(study, fitted, k=finalists)
            model = fitted(next(one.candidate for one in final if one.is_incumbent))
            count = len(final)
        else:
            guarded = holdout.guard(known, finalists=finalists).fit(split.X, split.y)
            model, count = guarded.best_estimator_, len(guarded.finalists_)
        certificate, estimate, fresh = holdout.certificate(), holdout.estimate(), split.holdout()
        fresh.submit(model)
        single, true = fresh.certificate(), split.true(model)
        shift = 0.0 if data.classifies else 1.0
        assert estimate.score is not None, estimate.reason
        found.append(
            Found(
                finalists,
                f"{data.name}, {search}",
                raw,
                raw_true,
                certificate.score + shift,
                true,
                estimate.score + shift,
                certificate.low + shift <= true <= certificate.high + shift,
                (certificate.high - certificate.low) / (single.high - single.low),
                count,
            )
        )
    return found


def mean(values: list[float]) -> str:
    array = np.asarray(values)
    error = array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else np.nan
    return f"{array.mean():+.4f} ({error:.4f})"


def row(name: str, found: list[Found]) -> str:
    columns = (
        mean([one.raw - one.raw_true for one in found]),
        mean([one.released - one.true for one in found]),
        mean([one.estimate - one.true for one in found]),
        f"{np.sqrt(np.mean([(one.raw - one.raw_true) ** 2 for one in found])):.4f}",
        f"{np.sqrt(np.mean([(one.estimate - one.true) ** 2 for one in found])):.4f}",
        mean([one.true - one.raw_true for one in found]),
        f"{np.mean([one.covered for one in found]):.2f}",
        f"{np.mean([one.width for one in found]):.2f}",
        f"{np.mean([one.finalists for one in found]):.1f}",
    )
    return f"| {name} | " + " | ".join(columns) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="two data sets, three splits")
    asked = parser.parse_args()
    sets = data_sets()[:2] if asked.quick else data_sets()
    splits = 3 if asked.quick else asked.splits
    started = time.perf_counter()
    tasks = [(data, search) for data in sets for search in ("grid", "random", "TPE")]
    runs = (delayed(one)(data, search, seed) for data, search in tasks for seed in range(splits))
    found = [each for few in Parallel(n_jobs=asked.jobs)(runs) for each in few]
    for finalists in FINALISTS:
        mine = [one for one in found if one.asked == finalists]
        print(f"\nfinalists={finalists!r}, {splits} splits\n")
        print(
            "| task | raw: believed - true | released - true | estimate - true | raw RMSE | "
            "estimate RMSE | truth gained on raw winner | covered | width / single | finalists |"
        )
        print("| --- " * 10 + "|")
        for name in dict.fromkeys(one.task for one in mine):
            print(row(name, [one for one in mine if one.task == name]))
        print(row("all", mine))
    print(f"\nTook {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
