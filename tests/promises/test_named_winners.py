"""Whatever is picked, it is said whether that is the incumbent, and who is if not."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import optuna
import pytest
from joblib import parallel_config
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import LadderHoldout
from ladderholdout.errors import InvalidArgument, NoImprovementWarning, NotIncumbentWarning
from ladderholdout.mechanisms import Ladder

DEPTHS = {"max_depth": [1, 2, 3]}
SERIAL, LOKY, THREADS = ("loky", 1), ("loky", 2), ("threading", 2)


@pytest.fixture
def holdout(binary: Any, tmp_path: Path) -> LadderHoldout:
    return LadderHoldout(
        binary.X_holdout, binary.y_holdout, scoring="accuracy", mechanism=Ladder(step=0.001),
        ledger=tmp_path / "ledger.db", name="held",
    )  # fmt: skip


def tree(**given: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0, **given)


def fitted(search: Any, binary: Any) -> list[warnings.WarningMessage]:
    """Fit, and return what was said of the winner."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(binary.X_train, binary.y_train)
    return [one for one in caught if issubclass(one.category, NotIncumbentWarning)]


def first_columns(X: Any, count: int) -> Any:
    return X[:, :count]


def perfect(holdout: LadderHoldout, binary: Any) -> int:
    release = holdout.submit(binary.y_holdout)
    assert release.improved
    return release.submission


def incumbent(holdout: LadderHoldout) -> int:
    found = holdout.status().incumbent
    assert found is not None
    return found


def test_select_says_nothing_where_it_picks_the_incumbent(
    holdout: LadderHoldout, binary: Any
) -> None:
    search = GridSearchCV(tree(), DEPTHS, scoring=holdout, cv=holdout.split(), refit=holdout.select)
    assert fitted(search, binary) == []
    marked = search.cv_results_["is_incumbent"]
    assert marked.tolist() == [at == search.best_index_ for at in range(3)]


def test_select_names_the_incumbent_where_it_picks_an_older_models_repeat(
    holdout: LadderHoldout, binary: Any
) -> None:
    """The repeat is told that it improved, as it was at first; something better came since."""
    old = holdout.submit(tree(max_depth=2).fit(binary.X_train, binary.y_train)).submission
    best = perfect(holdout, binary)
    search = GridSearchCV(
        tree(), {"max_depth": [2]}, scoring=holdout, cv=holdout.split(), refit=holdout.select
    )
    (said,) = fitted(search, binary)
    assert said.category is NotIncumbentWarning
    assert f"Picked: the model of submission {old}" in str(said.message)
    assert f"the incumbent is submission {best} (see holdout.history(after={best - 1}" in str(
        said.message
    )
    assert search.cv_results_["is_incumbent"].tolist() == [False]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("workers", "random"), [(SERIAL, False), (THREADS, True), (LOKY, False)], ids=str
)
def test_plain_refit_says_where_nothing_improved(
    holdout: LadderHoldout, binary: Any, workers: tuple[str, int], random: bool
) -> None:
    best = perfect(holdout, binary)
    kind = RandomizedSearchCV if random else GridSearchCV
    given: dict[str, Any] = {"n_iter": 3} if random else {}
    search = kind(tree(), DEPTHS, scoring=holdout, cv=holdout.split(), **given)
    with parallel_config(workers[0], n_jobs=workers[1]):
        (said,) = fitted(search, binary)
    assert said.category is NoImprovementWarning and said.filename == __file__
    text = str(said.message)
    assert f"refits candidate {search.best_index_}, which is not the incumbent" in text
    assert f"the incumbent is submission {best} " in text and "refit=holdout.select" in text


@pytest.mark.parametrize("refit", [True, False, "by the ledger"])
def test_nothing_is_said_of_a_search_that_ends_on_the_incumbent_or_refits_none(
    holdout: LadderHoldout, binary: Any, refit: Any
) -> None:
    if refit is False:
        perfect(holdout, binary)
    search = GridSearchCV(
        tree(), DEPTHS, scoring=holdout, cv=holdout.split(),
        refit=holdout.select if isinstance(refit, str) else refit,
    )  # fmt: skip
    assert fitted(search, binary) == []


def test_nothing_is_said_of_folds_that_an_earlier_fit_left_behind(
    holdout: LadderHoldout, binary: Any
) -> None:
    """They are let go in the midst of another search, which is not theirs."""
    left: list[BaseException] = []

    class Tree(DecisionTreeClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            if len(fits) == 1 and not left:
                raise KeyboardInterrupt
            fits.append(self.max_depth)
            if len(fits) == 5:  # the refit of the second search
                left.clear()
                gc.collect()
            return super().fit(X, y)

    fits: list[int] = []
    search = GridSearchCV(Tree(random_state=0), DEPTHS, scoring=holdout, cv=holdout.split())
    with pytest.raises(KeyboardInterrupt) as stopped:
        search.fit(binary.X_train, binary.y_train)
    left.append(stopped.value)
    del stopped
    assert fits == [1]
    assert fitted(search, binary) == []
    assert fits == [1, 1, 2, 3, 2]


def test_a_named_metric_of_several_says_it_too(holdout: LadderHoldout, binary: Any) -> None:
    perfect(holdout, binary)
    search = GridSearchCV(tree(), DEPTHS, scoring={"one": holdout}, cv=holdout.split(), refit="one")
    (said,) = fitted(search, binary)
    assert "refit='one' refits candidate 0" in str(said.message)


def study_of(holdout: LadderHoldout, binary: Any, depths: list[int]) -> optuna.Study:
    def build(trial: optuna.Trial) -> Any:
        depth = trial.suggest_categorical("depth", depths)
        return tree(max_depth=depth).fit(binary.X_train, binary.y_train)

    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.GridSampler({"depth": depths})
    )
    study.optimize(holdout.optuna.objective(build), n_trials=len(depths))
    return study


def test_best_trial_says_where_it_is_not_the_incumbent(holdout: LadderHoldout, binary: Any) -> None:
    study = study_of(holdout, binary, [1, 2, 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = holdout.optuna.best_trial(study)
        assert holdout.optuna.best_params(study) == before.params
    mine, best = incumbent(holdout), perfect(holdout, binary)
    for ask in (holdout.optuna.best_trial, holdout.optuna.best_params):
        with pytest.warns(NotIncumbentWarning) as caught:
            ask(study)
        (said,) = caught
        assert f"Trial {before.number} is the last" in str(said.message)
        assert f"(submission {mine})" in str(said.message)
        assert f"the incumbent is submission {best} (see" in str(said.message)
        assert said.filename == __file__


def test_best_trial_of_an_older_models_repeat_says_so(holdout: LadderHoldout, binary: Any) -> None:
    holdout.submit(tree(max_depth=2).fit(binary.X_train, binary.y_train))
    best = perfect(holdout, binary)
    study = study_of(holdout, binary, [2])
    with pytest.warns(NotIncumbentWarning, match=f"the incumbent is submission {best} "):
        assert holdout.optuna.best_trial(study).number == 0


def test_best_trial_names_the_incumbent_where_no_trial_ever_was(
    holdout: LadderHoldout, binary: Any
) -> None:
    good = LogisticRegression(max_iter=10000).fit(binary.X_train, binary.y_train)
    assert holdout.submit(good).improved
    best = perfect(holdout, binary)
    study = study_of(holdout, binary, [1])
    with pytest.raises(InvalidArgument, match=f"the incumbent is submission {best} "):
        holdout.optuna.best_trial(study)
