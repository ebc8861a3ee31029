"""Attacks the choice of a search's winner: by the ledger, and by what the search was told."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joblib import parallel_config
from scipy.stats import loguniform
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectKBest, chi2, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import NoImprovementWarning
from ladderholdout.mechanisms import (
    FullDisclosure,
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
)
from tests.support.holdouts import repeats
from tests.support.ledgers import entries_of

# Workers of loky cannot import this file: what it defines travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SERIAL, LOKY, THREADS = ("loky", 1), ("loky", 2), ("threading", 2)
DEPTHS = {"max_depth": [1, 2, 3, 5]}
REFITS = ["by the ledger", "plain"]


class Handicapped(DecisionTreeClassifier):
    """A tree; with a ledger, a poor one that waits until another model was judged."""

    def __init__(self, ledger: str = "", max_depth: int = 4) -> None:
        super().__init__(max_depth=max_depth, random_state=0)
        self.ledger = ledger

    def fit(self, X: Any, y: Any, **params: Any) -> Handicapped:
        if not self.ledger:
            return super().fit(X, y, **params)
        until = time.monotonic() + 60
        while not LadderHoldout.open("held", ledger=self.ledger).status().submissions:
            assert time.monotonic() < until
            time.sleep(0.01)
        return super().fit(X * 0, y, **params)


class Plain:
    """A setting that has no parameters and no repr of its own."""

    def __init__(self, leaf: int) -> None:
        self.leaf = leaf


class Configured(DecisionTreeClassifier):
    """A tree that is told the size of its leaves in some unusual way."""

    def __init__(self, leaf: Any = None) -> None:
        super().__init__(random_state=0)
        self.leaf = leaf

    def fit(self, X: Any, y: Any, **params: Any) -> Configured:
        size = len(self.leaf) if isinstance(self.leaf, frozenset) else 1
        self.min_samples_leaf = getattr(self.leaf, "leaf", len(X) // size**4 + 1)
        return super().fit(X, y, **params)


@pytest.fixture
def open_holdout(binary: Any, tmp_path: Path) -> Callable[..., LadderHoldout]:
    def make(**wishes: Any) -> LadderHoldout:
        wishes = {"scoring": "accuracy", "ledger": tmp_path / "ledger.db", **wishes}
        return LadderHoldout(binary.X_holdout, binary.y_holdout, name="held", **wishes)

    return make


@pytest.fixture
def holdout(open_holdout: Callable[..., LadderHoldout]) -> LadderHoldout:
    return open_holdout()


def grid(holdout: LadderHoldout, estimator: Any, values: Any, **wishes: Any) -> Any:
    wishes = {"cv": holdout.split(), "refit": holdout.select, **wishes}
    return GridSearchCV(estimator, values, scoring=holdout, **wishes)


def tree(**wishes: Any) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(random_state=0, **wishes)


def refit_of(holdout: LadderHoldout, how: str) -> Any:
    return holdout.select if how == "by the ledger" else True


def incumbent(holdout: LadderHoldout) -> dict[str, Any]:
    """Return the parameters of the model behind the standing release."""
    number = holdout.status().incumbent
    assert number is not None
    (entry,) = holdout.history(after=number - 1, limit=1)
    return dict(entry.context["parameters"])


def ends_on_the_incumbent(search: Any, holdout: LadderHoldout) -> bool:
    stands = incumbent(holdout)
    return all(stands[name] == value for name, value in search.best_params_.items())


# -- the improver --------------------------------------------------------------------------


MECHANISMS: list[Mechanism] = [
    FullDisclosure(),
    RoundedDisclosure(step=0.01),
    Ladder(step=0.01),
    SimplifiedLadder(step=0.01),
    ParameterFreeLadder(),
    PricedLadder(),
    PairedTestLadder(alpha=0.4),
    # An improvement is of two rows at least, and releases in another order than the true
    # scores would take noise of 100 times this scale.
    ShakyLadder(step=0.01, noise=0.0001),
]
# Each rule with either way to refit, by turns in threads; one rule in workers of loky.
PICKED = [
    pytest.param(rule, jobs, how, id=f"{rule.name}-{jobs[0]}-{how}")
    for rule, jobs, how in (
        *zip(MECHANISMS, cycle([SERIAL, THREADS]), cycle([REFITS[0]]), strict=False),
        *zip(MECHANISMS, cycle([THREADS, SERIAL]), cycle([REFITS[1]]), strict=False),
    )
] + [pytest.param(ParameterFreeLadder(), LOKY, how, marks=pytest.mark.processes) for how in REFITS]


# Rounded scores tie, and which of two is first with workers differs from run to run.
@pytest.mark.filterwarnings("ignore:refit=True refits candidate")
@pytest.mark.parametrize(("mechanism", "jobs", "how"), PICKED)
def test_a_search_ends_on_the_model_that_holds_the_ladder(
    open_holdout: Any, binary: Any, mechanism: Mechanism, jobs: tuple[str, int], how: str
) -> None:
    holdout = open_holdout(mechanism=mechanism)
    with parallel_config(jobs[0], n_jobs=jobs[1]):
        search = grid(holdout, tree(), DEPTHS, refit=refit_of(holdout, how))
        search.fit(binary.X_train, binary.y_train)
    assert search.best_estimator_.get_depth() == search.best_params_["max_depth"]
    if how == "plain":
        assert search.best_score_ == holdout.status().score
    if how == "plain" and mechanism.discloses:
        return  # true scores can tie, and scikit-learn takes the first of them
    assert ends_on_the_incumbent(search, holdout)


@pytest.mark.long
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    depths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    leaves=st.lists(st.sampled_from([1, 3, 9, 27]), min_size=1, max_size=3),
    feedback=st.sampled_from(["auto", "penalised", "incumbent"]),
)
def test_whatever_the_order_of_the_candidates_and_however_often_they_come(
    binary: Any, depths: list[int], leaves: list[int], feedback: str
) -> None:
    holdout = LadderHoldout(
        binary.X_holdout,
        binary.y_holdout,
        scoring="accuracy",
        ledger="memory",
        feedback=feedback,
        mechanism=SimplifiedLadder(step=0.005),
    )
    values = {"max_depth": depths, "min_samples_leaf": leaves}
    search = grid(holdout, tree(), values).fit(binary.X_train, binary.y_train)
    assert ends_on_the_incumbent(search, holdout)
    first = next(
        at for at, one in enumerate(search.cv_results_["params"]) if one == search.best_params_
    )
    assert search.best_index_ == first


@pytest.mark.parametrize(
    ("jobs", "how"),
    [
        (THREADS, REFITS[0]),
        (THREADS, REFITS[1]),
        pytest.param(LOKY, REFITS[0], marks=pytest.mark.processes),
    ],
)
def test_a_slow_poor_candidate_listed_before_a_fast_good_one_is_not_refitted(
    holdout: LadderHoldout, binary: Any, jobs: tuple[str, int], how: str
) -> None:
    values = {"ledger": [holdout.ledger, ""]}
    with parallel_config(jobs[0], n_jobs=jobs[1]):
        search = grid(holdout, Handicapped(), values, refit=refit_of(holdout, how))
        search.fit(binary.X_train, binary.y_train)
    assert [one.improved for one in holdout.history()] == [True, False]
    assert search.best_index_ == 1
    assert search.score(binary.X_test, binary.y_test) > 0.85


@pytest.mark.processes
def test_feedback_as_in_the_papers_ties_the_candidates_but_the_ledger_knows(
    open_holdout: Any, binary: Any
) -> None:
    holdout = open_holdout(feedback="incumbent")
    values = {"ledger": [holdout.ledger, ""]}
    search = grid(holdout, Handicapped(), values, n_jobs=2).fit(binary.X_train, binary.y_train)
    told = search.cv_results_["mean_test_score"]
    assert told[0] == told[1]
    assert search.best_index_ == 1


@pytest.mark.processes
def test_a_randomized_search_ends_on_the_incumbent(holdout: LadderHoldout, binary: Any) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression())
    search = RandomizedSearchCV(
        model,
        {"logisticregression__C": loguniform(1e-6, 1e2)},
        n_iter=12,
        scoring=holdout,
        cv=holdout.split(inner=3),
        refit=holdout.select,
        random_state=0,
        n_jobs=2,
    ).fit(binary.X_train, binary.y_train)
    assert ends_on_the_incumbent(search, holdout)


def test_two_metrics_in_one_search_each_pick_by_their_own_ladder(
    holdout: LadderHoldout, open_holdout: Any, binary: Any
) -> None:
    with pytest.warns(UserWarning, match="count together"):
        loss = open_holdout(scoring="neg_log_loss", ladder="loss")
    values = {"max_depth": [1, 3, None], "min_samples_leaf": [1, 30]}
    for judge in (holdout, loss):
        search = GridSearchCV(
            tree(),
            values,
            scoring={"hits": holdout, "loss": loss},
            cv=holdout.split(),
            refit=judge.select,
        )
        assert ends_on_the_incumbent(search.fit(binary.X_train, binary.y_train), judge)


@pytest.mark.processes
def test_the_same_grid_again_gives_the_same_scores_and_the_same_pick(
    open_holdout: Any, binary: Any
) -> None:
    searches = []
    for jobs in (1, 2, 1):
        holdout = open_holdout()
        search = grid(holdout, tree(), DEPTHS, n_jobs=jobs, return_train_score=True)
        searches.append(search.fit(binary.X_train, binary.y_train))
    first, *others = searches
    for other in others:
        assert other.best_index_ == first.best_index_
        for name in ("mean_test_score", "mean_train_score"):
            assert np.array_equal(other.cv_results_[name], first.cv_results_[name])
    status = holdout.status()
    assert (status.submissions, repeats(holdout)) == (12, 8)


# -- nobody improved -----------------------------------------------------------------------


@pytest.fixture
def beaten(holdout: LadderHoldout, binary: Any) -> LadderHoldout:
    """A ladder that no tree will climb further."""
    good = make_pipeline(StandardScaler(), LogisticRegression())
    assert holdout.submit(good.fit(binary.X_train, binary.y_train)).score > 0.95
    return holdout


def test_where_nobody_improved_the_inner_folds_decide(beaten: LadderHoldout, binary: Any) -> None:
    search = grid(beaten, tree(), DEPTHS, cv=beaten.split(inner=4))
    with pytest.warns(NoImprovementWarning, match="candidate of this search became the incumbent"):
        search.fit(binary.X_train, binary.y_train)
    inner = np.mean([search.cv_results_[f"split{fold}_test_score"] for fold in range(4)], axis=0)
    assert search.best_index_ == int(np.argmax(inner))
    assert search.best_index_ != 0


@pytest.mark.parametrize("name", ["accuracy", "roc_auc"])
def test_of_several_metrics_each_goes_by_its_own_inner_folds(binary: Any, name: str) -> None:
    holdout = LadderHoldout(binary.X_holdout, binary.y_holdout, scoring=["accuracy", "roc_auc"])
    rows = np.eye(2)[binary.y_holdout]
    holdout.submit({"labels": binary.y_holdout, "probabilities": rows})
    search = GridSearchCV(
        tree(), DEPTHS, scoring=holdout, cv=holdout.split(inner=4), refit=holdout[name].select
    )
    with pytest.warns(NoImprovementWarning, match="the best by the inner folds"):
        search.fit(binary.X_train, binary.y_train)
    inner = np.mean([search.cv_results_[f"split{fold}_test_{name}"] for fold in range(4)], axis=0)
    assert search.best_index_ == int(np.argmax(inner)) != 0


def test_without_inner_folds_the_first_is_taken(beaten: LadderHoldout, binary: Any) -> None:
    search = grid(beaten, tree(), DEPTHS)
    with pytest.warns(NoImprovementWarning):
        search.fit(binary.X_train, binary.y_train)
    # That another one predicts more like the incumbent is nothing that may be told.
    away = [one.disagreement for one in entries_of(beaten)[1:]]
    assert search.best_index_ == 0 != int(np.argmin(np.array(away, dtype=float)))


def test_also_with_two_metrics_where_no_inner_fold_speaks_for_both(
    beaten: LadderHoldout, binary: Any
) -> None:
    search = GridSearchCV(
        tree(),
        DEPTHS,
        scoring={"one": beaten, "same": beaten},
        cv=beaten.split(inner=3),
        refit=beaten.select,
    )
    with pytest.warns(NoImprovementWarning):
        search.fit(binary.X_train, binary.y_train)
    assert search.best_index_ == 0


def test_a_search_that_never_asked_cannot_be_decided_by_the_ledger(
    beaten: LadderHoldout, binary: Any
) -> None:
    with pytest.raises(InvalidArgument, match=r"cv=holdout\.split\(\)"):
        grid(beaten, tree(), DEPTHS, cv=3).fit(binary.X_train, binary.y_train)


# -- unusual candidates --------------------------------------------------------------------


def test_a_candidate_whose_fit_fails_is_no_winner(holdout: LadderHoldout, binary: Any) -> None:
    values = {"max_depth": [-1, 1, 4]}
    search = grid(holdout, tree(), values)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        search.fit(binary.X_train, binary.y_train)
    assert any(issubclass(one.category, FitFailedWarning) for one in said)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [True, False, False]
    assert ends_on_the_incumbent(search, holdout)
    assert holdout.status().submissions == 2


def test_where_every_fit_fails_scikit_learn_says_so(holdout: LadderHoldout, binary: Any) -> None:
    with pytest.raises(ValueError, match="fits failed"):
        grid(holdout, tree(), {"max_depth": [-1, -2]}).fit(binary.X_train, binary.y_train)
    assert holdout.status().submissions == 0


def picked(holdout: LadderHoldout, search: Any, binary: Any) -> int:
    """Fit a search; its candidates must be told apart, whatever workers they ran in.

    The last candidate to improve was told the most, which is all that the ledger's own
    pick has to agree with here.
    """
    search.fit(binary.X_train, binary.y_train)
    told = search.cv_results_["mean_test_score"]
    # Where two are equal, the first that a worker brought is the incumbent.
    assert told[search.best_index_] == told.max() == holdout.status().score
    return int(search.best_index_)


@pytest.mark.parametrize("jobs", [1])
def test_candidates_that_are_estimators(holdout: LadderHoldout, binary: Any, jobs: int) -> None:
    values = {"clf": [SVC(C=1e-6), SVC(C=10), GaussianNB(), SVC(C=1e-5)]}
    pipe = Pipeline([("scale", StandardScaler()), ("clf", SVC())])
    assert picked(holdout, grid(holdout, pipe, values, n_jobs=jobs), binary) == 1


@pytest.mark.processes
@pytest.mark.parametrize("jobs", [2])
@pytest.mark.parametrize(
    ("estimator", "values", "best"),
    [
        (tree(), {"min_samples_leaf": np.array([284, 5])}, 1),
        (tree(), {"ccp_alpha": np.array([0.5, 0.0])}, 1),
        (tree(), {"max_depth": [None, 1], "class_weight": [None, "balanced"]}, None),
        (GaussianNB(), {"priors": [np.array([1 - 1e-9, 1e-9]), np.array([0.5, 0.5])]}, 1),
        (tree(), {"class_weight": [{0: 1, 1: 1e9}, {0: 1, 1: 1}]}, 1),
        (tree(), {"random_state": [np.random.RandomState(1), np.random.RandomState(2)]}, None),
        (Configured(), {"leaf": [Plain(284), Plain(5), Plain(200)]}, 1),
        (Configured(), {"leaf": [float("nan"), Plain(5)]}, 1),
        (Configured(), {"leaf": [frozenset("a"), frozenset("abc")]}, 1),
        (
            make_pipeline(SelectKBest(k=1), tree(max_depth=4)),
            {"selectkbest__score_func": [f_classif, chi2], "selectkbest__k": [1, 20]},
            None,
        ),
        (
            make_pipeline(FunctionTransformer(), tree(max_depth=4)),
            {"functiontransformer__func": [lambda X: X * 0, lambda X: X]},
            1,
        ),
        (
            make_pipeline(FunctionTransformer(), tree(max_depth=4)),
            {"functiontransformer__func": [partial(np.clip, a_min=0, a_max=top) for top in (0, 9)]},
            1,
        ),
        (
            make_pipeline(FunctionTransformer(), tree(max_depth=4)),
            {"functiontransformer__func": [np.sign, None, np.log1p]},
            None,
        ),
    ],
)
def test_candidates_of_every_kind_are_told_apart(
    holdout: LadderHoldout, binary: Any, estimator: Any, values: Any, best: int | None, jobs: int
) -> None:
    at = picked(holdout, grid(holdout, estimator, values, n_jobs=jobs), binary)
    assert best is None or at == best


@pytest.mark.processes
@pytest.mark.parametrize("feedback", ["auto", "incumbent"])
def test_a_candidate_is_not_mistaken_for_one_that_names_more_parameters(
    open_holdout: Any, binary: Any, feedback: str
) -> None:
    # The good one is judged first, and has all that the poor one's entry in the grid names.
    holdout = open_holdout(feedback=feedback)
    values = [{"max_depth": [4]}, {"max_depth": [4], "ledger": [""]}]
    search = grid(holdout, Handicapped(holdout.ledger), values, n_jobs=2)
    search.fit(binary.X_train, binary.y_train)
    assert [one.improved for one in holdout.history()] == [True, False]
    assert search.best_index_ == 1


def test_estimators_with_hundreds_of_parameters_are_found_again(
    holdout: LadderHoldout, binary: Any
) -> None:
    parts = [(f"part{i}", make_pipeline(StandardScaler(), tree(max_depth=1))) for i in range(20)]
    votes = VotingClassifier([*parts, ("last", make_pipeline(tree()))])
    assert len(votes.get_params()) > 300
    votes.set_params(weights=[1e-9] * 20 + [1])
    values = {"last__decisiontreeclassifier__min_samples_leaf": [284, 5]}
    assert picked(holdout, grid(holdout, votes, values), binary) == 1


def test_candidates_that_nothing_tells_apart_are_not_picked_among(
    open_holdout: Any, binary: Any
) -> None:
    """With workers, feedback that ties them and descriptions that are the same."""
    holdout = open_holdout(feedback="incumbent")
    values = {"functiontransformer__func": [lambda X: X * 0, lambda X: X, lambda X: X * 1]}
    model = make_pipeline(FunctionTransformer(), tree(max_depth=4))
    search = grid(holdout, model, values, n_jobs=2)
    with parallel_config("threading"):
        try:
            search.fit(binary.X_train, binary.y_train)
        except InvalidArgument as refused:
            assert "refit must be holdout.select where it can be known" in str(refused)
        else:  # the good one came last, so that what was told names it
            assert search.best_index_ in (1, 2)
    search.set_params(n_jobs=1).fit(binary.X_train, binary.y_train)
    assert search.best_index_ == 1


@pytest.mark.parametrize("right", [False, True])
def test_a_function_that_picks_another_than_the_incumbent_is_warned_of(
    open_holdout: Any, binary: Any, right: bool
) -> None:
    holdout = open_holdout(mechanism=FullDisclosure())
    splitter = holdout.split(inner=2)

    def simplest(results: Any) -> int:
        scores = results["split2_test_score"]
        return int(np.argmax(scores) if right else np.argmin(scores))

    search = grid(holdout, tree(), {"max_depth": [1, 4]}, cv=splitter, refit=simplest)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(binary.X_train, binary.y_train)
    said = [str(one.message) for one in caught if one.category is NoImprovementWarning]
    worse = search.best_index_
    expected = f"refit=simplest refits candidate {worse}, which is not the incumbent; that is"
    assert len(said) == (not right) and all(expected in text for text in said)
    assert all(f"that is candidate {1 - worse}." in text for text in said)
