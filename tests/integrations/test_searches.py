"""Searches: what their fits are given, which candidate is which, what is refused and when.

Each case with the right value by scikit-learn alone.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import catboost
import cloudpickle
import lightgbm
import numpy as np
import optuna
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import xgboost
from optuna.distributions import CategoricalDistribution
from optuna_integration import OptunaSearchCV
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import FitFailedWarning
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFECV
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    fbeta_score,
    get_scorer,
    log_loss,
    make_scorer,
    mean_absolute_error,
    mean_squared_error,
    roc_auc_score,
)
from sklearn.model_selection import (
    BaseCrossValidator,
    GridSearchCV,
    GroupKFold,
    GroupShuffleSplit,
    HalvingGridSearchCV,
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    RandomizedSearchCV,
    StratifiedGroupKFold,
    TunedThresholdClassifierCV,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from skopt import BayesSearchCV

from ladderholdout import InvalidArgument, LadderHoldout, SearchStopped
from ladderholdout.cli import app
from ladderholdout.errors import (
    GroupedRowsWarning,
    HoldoutConflict,
    InvalidSubmission,
    NoImprovementWarning,
    OverlapError,
    OverlapWarning,
)
from ladderholdout.guard import commands
from ladderholdout.integrations import staged
from ladderholdout.metrics import METRICS, Metric
from tests.support.commands import CliRunner
from tests.support.ledgers import shown_of
from tests.support.server import registered, rows, serving, token_of

# Workers of loky cannot import this file: what it defines travels whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
optuna.logging.set_verbosity(optuna.logging.ERROR)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 8))
y = (X[:, 0] + X[:, 1] + 0.5 * RNG.normal(size=400) > 0).astype(int)
X_TRAIN, y_train, X_HOLDOUT, y_holdout = X[:250], y[:250], X[250:], y[250:]
GROUPS = np.repeat(np.arange(50), 5)

Open = Callable[..., LadderHoldout]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def make(X: Any = X_HOLDOUT, y: Any = y_holdout, **wishes: Any) -> LadderHoldout:
        wishes = {"scoring": "accuracy", "ledger": tmp_path / "ledger.db", **wishes}
        return LadderHoldout(X, y, name="held", **wishes)

    return make


def true_score(model: Any) -> float:
    return float(accuracy_score(y_holdout, model.predict(X_HOLDOUT)))


def grid(**settings: Any) -> GridSearchCV:
    model = DecisionTreeClassifier(random_state=0)
    return GridSearchCV(model, {"max_depth": [1, 3]}, **{"cv": 3, **settings})


# -- groups: warned of, on record, and named in the line ------------------------------------------

SPLITTERS = [
    GroupKFold(4),
    LeaveOneGroupOut(),
    StratifiedGroupKFold(4),
    GroupShuffleSplit(3, random_state=0),
]
DOUBT = "rows taken as independent"


def line(holdout: LadderHoldout) -> str:
    """Return the line of the certificate, which is the same wherever and whoever reads it."""
    again = LadderHoldout.open("held", ledger=holdout.__ladder__.ledger)
    found = again.certificate().line()
    assert found == holdout.status().certificate.line()
    assert (DOUBT in str(again.certificate())) == (DOUBT in found)
    assert (DOUBT in str(again.status())) == (DOUBT in found)
    return found


@pytest.mark.parametrize("splitter", SPLITTERS, ids=lambda one: type(one).__name__)
def test_groups_of_a_guarded_search_are_named_in_the_line(opened: Open, splitter: Any) -> None:
    holdout = opened()
    few = GROUPS // 10
    with pytest.warns(GroupedRowsWarning, match="groups of the fit"):
        search = holdout.guard(grid(cv=splitter)).fit(X_TRAIN, y_train, groups=few)
    assert search.best_score_ == pytest.approx(true_score(search), abs=0.01)
    assert DOUBT in search.certificate_.line() and DOUBT in line(holdout)


def test_groups_for_a_step_of_a_pipeline(opened: Open) -> None:
    whole = Pipeline([("scale", StandardScaler()), ("search", grid(cv=GroupKFold(4)))])
    holdout = opened()
    with pytest.warns(GroupedRowsWarning, match="search__groups of the fit"):
        holdout.guard(whole).fit(X_TRAIN, y_train, search__groups=GROUPS)
    assert DOUBT in line(holdout)


def test_groups_that_are_routed_under_another_name(opened: Open) -> None:
    holdout = opened()
    with config_context(enable_metadata_routing=True):
        splitter = GroupKFold(4).set_split_request(groups="patient")
        with pytest.warns(GroupedRowsWarning, match="GroupKFold"):
            holdout.guard(grid(cv=splitter)).fit(X_TRAIN, y_train, patient=GROUPS)
    assert DOUBT in line(holdout)


class Blocks(BaseCrossValidator):
    """A splitter of somebody's own that takes groups."""

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return 2

    def _iter_test_masks(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Any]:
        yield groups < 25
        yield groups >= 25


def test_groups_of_a_splitter_of_ones_own(opened: Open) -> None:
    holdout = opened()
    with pytest.warns(GroupedRowsWarning):
        holdout.guard(grid(cv=Blocks())).fit(X_TRAIN, y_train, groups=GROUPS)
    assert DOUBT in line(holdout)


@pytest.mark.parametrize("inner", [GroupKFold(4), 0], ids=["inner folds", "the guarded fold"])
def test_groups_of_a_split(opened: Open, inner: Any) -> None:
    holdout = opened()
    search = grid(scoring=holdout, cv=holdout.split(inner=inner), refit=holdout.select)
    with pytest.warns(GroupedRowsWarning):
        search.fit(X_TRAIN, y_train, groups=GROUPS)
    assert DOUBT in line(holdout)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore:.optuna.terminator. module:FutureWarning")
def test_groups_of_optunas_and_skopts_searches(opened: Open) -> None:
    model, space = DecisionTreeClassifier(random_state=0), [1, 2]
    for search in (
        OptunaSearchCV(
            model, {"max_depth": CategoricalDistribution(space)}, n_trials=2, cv=GroupKFold(3)
        ),
        BayesSearchCV(model, {"max_depth": (1, 2)}, n_iter=2, cv=GroupKFold(3), random_state=0),
    ):
        holdout = opened(X_HOLDOUT[: 100 + len(type(search).__name__)],
                         y_holdout[: 100 + len(type(search).__name__)],
                         ledger="memory")  # fmt: skip
        with pytest.warns(GroupedRowsWarning):
            found = holdout.guard(search).fit(X_TRAIN, y_train, groups=GROUPS)
        assert DOUBT in found.certificate_.line()


def test_groups_of_a_study(opened: Open) -> None:
    holdout = opened()

    def build(trial: Any) -> Any:
        return DecisionTreeClassifier(max_depth=trial.suggest_int("depth", 1, 3), random_state=0)

    with pytest.raises(InvalidArgument, match=r"train must be \(X_train, y_train, groups\)"):
        holdout.optuna.objective(build, inner=GroupKFold(4), train=(X_TRAIN, y_train))
    with pytest.warns(GroupedRowsWarning):
        objective = holdout.optuna.objective(
            build, inner=GroupKFold(4), train=(X_TRAIN, y_train, GROUPS)
        )
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective.inner_score, n_trials=2)
    plain = clone(build(study.best_trial))
    right = cross_validate(plain, X_TRAIN, y_train, groups=GROUPS, cv=GroupKFold(4))["test_score"]
    assert study.best_value == pytest.approx(right.mean())
    holdout.optuna.finalists(study, objective, k=1)
    assert DOUBT in line(holdout)


def test_groups_of_a_fitted_search_that_is_shown_later(opened: Open) -> None:
    search = grid(cv=GroupKFold(4)).fit(X_TRAIN, y_train, groups=GROUPS)
    holdout = opened()
    with pytest.warns(GroupedRowsWarning, match="GroupKFold"):
        holdout.finalists([search])
    assert DOUBT in line(holdout)
    other = opened(X_HOLDOUT[:90], y_holdout[:90], ledger="memory")
    with pytest.warns(GroupedRowsWarning, match="GroupKFold"):
        other.submit(search)
    assert DOUBT in other.certificate().line()


def test_ids_that_repeat_name_groups(opened: Open) -> None:
    patient = np.arange(150) // 3
    with pytest.warns(GroupedRowsWarning, match="ids that repeat"):
        holdout = opened(ids=patient)
    holdout.submit(y_holdout)
    assert DOUBT in line(holdout)
    with pytest.raises(InvalidArgument, match="ids must be distinct"):
        holdout.submit(y_holdout, ids=patient)
    several = pd.DataFrame(X_HOLDOUT).assign(patient=patient)
    with pytest.warns(GroupedRowsWarning, match="ids that repeat"):
        other = LadderHoldout(several, 1 - y_holdout, scoring=["accuracy", "roc_auc"],
                              ids="patient", ledger="memory")  # fmt: skip
    other.submit({"accuracy": y_holdout, "roc_auc": y_holdout / 2})
    assert other.certificate().line().count(DOUBT) == 2


def test_a_reserves_certificate_names_groups_too(opened: Open) -> None:
    holdout = opened(reserve=0.4)
    with pytest.warns(GroupedRowsWarning):
        holdout.guard(grid(cv=GroupKFold(4))).fit(X_TRAIN, y_train, groups=GROUPS)
    assert DOUBT in holdout.reserve_certificate().line()


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc", "f1"])
def test_certificates_from_the_rows_name_groups_too(opened: Open, scoring: str) -> None:
    holdout = opened(scoring=scoring, **({"loss_range": (0, 40)} if "loss" in scoring else {}))
    with pytest.warns(GroupedRowsWarning):
        search = holdout.guard(grid(cv=GroupKFold(4))).fit(X_TRAIN, y_train, groups=GROUPS)
    assert DOUBT in search.certificate_.line() and DOUBT in holdout.certificate().line()


@pytest.mark.processes
def test_groups_reach_a_server_its_pages_and_the_command_line(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token, viewer = token_of(ledger, "Ada"), token_of(ledger, "Bob", "analyst")
    X_train, y_train = rows(seed=7)
    with serving(ledger, tmp_path, "--share-rows", "churn") as server:
        url = f"{server.url}/holdouts/churn"
        remote = LadderHoldout.connect(url, token, timeout=30)
        with pytest.warns(GroupedRowsWarning):
            search = remote.guard(grid(cv=GroupKFold(3))).fit(
                X_train, y_train, groups=np.arange(len(y_train)) // 4
            )
        assert DOUBT in search.certificate_.line() and DOUBT in remote.status().certificate.line()
        with pytest.raises(InvalidArgument, match="1 to 100 characters"):
            remote.__ladder__.execute(commands.NoteGroups(by="x" * 101))
        for place in (1, 2, 3, 4, 4):
            remote.__ladder__.execute(commands.NoteGroups(by=f"sign {place}"))
        with pytest.raises(HoldoutConflict, match="5 notes of groups"):
            remote.__ladder__.execute(commands.NoteGroups(by="sign 5"))
        noted = shown_of(LadderHoldout.open("churn", ledger=ledger), "groups")
        assert len(noted) == 5 and all(one.endswith(", stated by Ada") for one in noted)
        other = LadderHoldout.connect(url, viewer, timeout=30)
        other.submit(rows()[1])
        assert DOUBT in other.certificate().line()
    shown = CliRunner().invoke(
        app, ["certificate", "churn", "--account", "Ada", "--ledger", str(ledger)]
    )
    assert shown.exit_code == 0 and DOUBT in shown.output
    checked = CliRunner().invoke(app, ["verify", "churn", "--ledger", str(ledger)])
    assert checked.exit_code == 0, checked.output


def test_ids_that_repeat_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    table = pd.DataFrame(X_HOLDOUT, columns=NAMES).assign(y=y_holdout, patient=np.arange(150) // 3)
    table.to_csv(file, index=False)
    ledger = str(tmp_path / "ledger.db")
    asked = ["register", str(file), "--target", "y", "--ids", "patient", "--scoring", "accuracy"]
    done = CliRunner().invoke(app, [*asked, "--name", "held", "--ledger", ledger])
    assert done.exit_code == 0 and "The rows come in groups" in done.output, done.output
    LadderHoldout.open("held", ledger=ledger).submit(y_holdout)
    shown = CliRunner().invoke(app, ["status", "held", "--ledger", ledger])
    assert DOUBT in shown.output


@pytest.mark.parametrize("splitter", [KFold(3), PredefinedSplit(np.arange(250) % 3), 3], ids=str)
def test_what_is_no_sign_of_groups(opened: Open, splitter: Any) -> None:
    holdout = opened(ids=np.arange(150))
    holdout.guard(grid(cv=splitter)).fit(X_TRAIN, y_train)
    assert DOUBT not in line(holdout)


# -- candidates: their place in the search is the key ---------------------------------------------


class Chosen(ClassifierMixin, BaseEstimator):
    """A stump whose column depends on the type of its parameter, or on which object it is."""

    def __init__(self, how: Any = 1) -> None:
        self.how = how

    def fit(self, X: Any, y: Any) -> Chosen:
        self.classes_ = np.unique(y)
        how = self.how
        if callable(how):
            self.column_ = how()
        elif hasattr(how, "get_params"):
            self.column_ = how.random_state
        elif isinstance(how, np.ndarray):
            self.column_ = {"f": 0, "i": 5, "b": 6}[how.dtype.kind]
        elif isinstance(how, list | tuple):
            self.column_ = 0 if isinstance(how[0], float) else 5
        elif isinstance(how, str):
            self.column_ = 6
        elif isinstance(how, float) and how != how:
            self.column_ = 0
        else:
            self.column_ = {bool: 6, int: 5, float: 0}.get(type(how), 7)
        return self

    def predict(self, X: Any) -> Any:
        return (np.asarray(X)[:, self.column_] > 0).astype(int)


ALIKE: dict[str, list[Any]] = {
    "numbers": [True, 1, 1.0],
    "numbers, the best first": [1.0, 1, True],
    "lambdas": [lambda: 5, lambda: 6, lambda: 0],
    "nan and its name": ["nan", float("nan")],
    "arrays": [np.array([1, 2]), np.array([1.0, 2.0]), np.array([True, False])],
    "lists": [[1, 2], [1.0, 2.0]],
    "partials": [partial(int, 5), partial(int, 0)],
    "models": [DummyClassifier(random_state=5), DummyClassifier(random_state=0)],
}


def best_of(values: list[Any]) -> tuple[list[float], int]:
    """Return the true scores of each value's model, and the place of the best, by NumPy alone."""
    columns = [Chosen(one).fit(X_TRAIN, y_train).column_ for one in values]
    scores = [float(((X_HOLDOUT[:, at] > 0) == y_holdout).mean()) for at in columns]
    return scores, int(np.argmax(scores))


@pytest.mark.parametrize(
    ("name", "inner", "feedback"),
    [
        (name, *way)
        for name, way in zip(
            ALIKE,
            cycle([(0, "auto"), (3, "incumbent"), (0, "incumbent"), (3, "auto")]),
            strict=False,
        )
    ],
)
def test_the_winner_of_candidates_that_look_alike(
    opened: Open, name: str, inner: int, feedback: str
) -> None:
    values = ALIKE[name]
    scores, best = best_of(values)
    holdout = opened(feedback=feedback)
    search = GridSearchCV(
        Chosen(), {"how": values}, scoring=holdout, cv=holdout.split(inner=inner),
        refit=holdout.select,
    ).fit(X_TRAIN, y_train)  # fmt: skip
    assert search.best_index_ == best and search.best_params_["how"] is values[best]
    assert search.cv_results_["is_incumbent"].tolist() == [one == scores[best] for one in scores]
    assert true_score(search) == scores[best] == pytest.approx(holdout.status().score, abs=0.01)
    # And by hand, from the results.
    assert holdout.select(dict(search.cv_results_)) == best


@pytest.mark.parametrize("name", ALIKE)
def test_the_guard_drops_no_candidate_that_looks_like_another(opened: Open, name: str) -> None:
    values = ALIKE[name]
    scores, best = best_of(values)
    holdout = opened()
    search = holdout.guard(GridSearchCV(Chosen(), {"how": values}, cv=3), finalists=3)
    search.fit(X_TRAIN, y_train)
    assert len(search.finalists_) == len(values)
    assert search.best_index_ == best and true_score(search) == scores[best]
    assert np.flatnonzero(search.cv_results_["is_incumbent"]).tolist() == [best]


@pytest.mark.parametrize("feedback", ["auto", "incumbent"])
def test_a_second_search_on_the_same_holdout(opened: Open, feedback: str) -> None:
    holdout = opened(feedback=feedback)
    for values, best in (([1.0], 0), ([1, 1.0], 1), ([1.0, True], 0)):
        search = GridSearchCV(
            Chosen(), {"how": values}, scoring=holdout, cv=holdout.split(), refit=holdout.select
        ).fit(X_TRAIN, y_train)
        assert search.best_index_ == best
        held = [at == best for at in range(len(values))]
        assert search.cv_results_["is_incumbent"].tolist() == held


@pytest.mark.parametrize("kind", ["random", "bayes"])
def test_searches_that_draw_their_candidates(opened: Open, kind: str) -> None:
    holdout = opened()
    wishes: dict[str, Any] = dict(scoring=holdout, cv=holdout.split(), refit=holdout.select)
    search: Any = RandomizedSearchCV(
        Chosen(), {"how": [1, 1.0, True]}, n_iter=3, random_state=1, **wishes
    )
    if kind == "bayes":
        search = BayesSearchCV(
            DecisionTreeClassifier(random_state=0, max_features=3),
            {"max_depth": (1, 6), "splitter": ["best", "random"]}, n_iter=6, n_points=2,
            random_state=1, **{**wishes, "refit": True},
        )  # fmt: skip
    search.fit(X_TRAIN, y_train)
    own = [clone(search.estimator).set_params(**one).fit(X_TRAIN, y_train)
           for one in search.cv_results_["params"]]  # fmt: skip
    scores = [true_score(one) for one in own]
    assert true_score(search) == pytest.approx(holdout.status().score, abs=0.01)
    holdout.select(search.cv_results_)  # skopt takes no function at refit
    held = np.flatnonzero(search.cv_results_["is_incumbent"])
    assert search.best_index_ in held
    assert {scores[at] for at in held} == {scores[search.best_index_]}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore:.optuna.terminator. module:FutureWarning")
@pytest.mark.filterwarnings("ignore:Choices for a categorical distribution")
def test_choices_that_optuna_takes_for_one_are_refused(opened: Open) -> None:
    """A trial of Optuna that tried 1.0 is on record as one that tried 1."""
    holdout = opened()
    for choices, alike in (([1, 1.0], True), ([True, 1], True), ([1, 2.5], False)):
        space = {"how": CategoricalDistribution(choices)}
        search = OptunaSearchCV(Chosen(), space, n_trials=2, cv=2, random_state=0)
        asking = clone(search).set_params(scoring=holdout, cv=holdout.split())
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
        study.optimize(lambda trial, of=choices: trial.suggest_categorical("how", of) * 1.0,
                       n_trials=4)  # fmt: skip

        def build(trial: Any) -> Any:
            return Chosen(trial.params["how"]).fit(X_TRAIN, y_train)

        if not alike:
            continue
        with pytest.raises(InvalidArgument, match="choices of 'how' are equal"):
            holdout.guard(search)
        with pytest.raises(InvalidArgument, match="choices of 'how' are equal"):
            holdout.optuna.finalists(study, build)
        with pytest.raises(SearchStopped, match="choices of 'how' are equal"):
            asking.fit(X_TRAIN, y_train)
    assert holdout.status().submissions == 0
    holdout.guard(search).fit(X_TRAIN, y_train)


@pytest.mark.parametrize("kind", [HalvingGridSearchCV, GridSearchCV])
def test_rungs_of_a_halving_search_are_one_candidate(opened: Open, kind: Any) -> None:
    search = opened().guard(kind(Chosen(), {"how": [1, 1.0, True]}, cv=3), finalists=3)
    search.fit(X_TRAIN, y_train)
    shown = [search.cv_results_["params"][one.candidate]["how"] for one in search.finalists_]
    assert sorted(map(repr, shown)) == ["1", "1.0", "True"]
    assert search.best_params_["how"] == 1.0 and type(search.best_params_["how"]) is float


def test_several_metrics_pick_by_place(opened: Open) -> None:
    holdout = opened(scoring=["accuracy", "f1"])
    values = [True, 1, 1.0]
    search = GridSearchCV(
        Chosen(), {"how": values}, scoring=holdout, cv=holdout.split(), refit=holdout["f1"].select
    ).fit(X_TRAIN, y_train)
    right = [f1_score(y_holdout, Chosen(one).fit(X_TRAIN, y_train).predict(X_HOLDOUT))
             for one in values]  # fmt: skip
    assert search.best_index_ == int(np.argmax(right)) == 2


@pytest.mark.processes
@pytest.mark.parametrize("name", ["numbers", "lambdas"])
def test_candidates_in_workers(opened: Open, name: str) -> None:
    values = ALIKE[name]
    holdout = opened()
    search = GridSearchCV(
        Chosen(), {"how": values}, scoring=holdout, cv=holdout.split(), refit=holdout.select,
        n_jobs=2,
    ).fit(X_TRAIN, y_train)  # fmt: skip
    held = search.cv_results_["is_incumbent"].tolist()
    assert true_score(search) == pytest.approx(holdout.status().score, abs=0.01)
    assert [at for at, one in enumerate(held) if one] == [search.best_index_]


# -- the holdout in the parameters of a fit -------------------------------------------------------


class Told(ClassifierMixin, BaseEstimator):
    """Takes whatever its fit is given."""

    def __init__(self, a: int = 1, kept: Any = None) -> None:
        self.a, self.kept = a, kept

    def fit(self, X: Any, y: Any, **given: Any) -> Told:
        self.model_ = DecisionTreeClassifier(max_depth=self.a).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(np.asarray(X))


class TensorDataset:
    """As PyTorch has it."""

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tensors


NAN = np.where(RNG.random(X_HOLDOUT.shape) < 0.1, np.nan, X_HOLDOUT)
PAIR = X_HOLDOUT, y_holdout
GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "eval_set": lambda: {"eval_set": [(X_TRAIN, y_train), PAIR]},
    "a pair": lambda: {"eval_set": PAIR},
    "validation_data": lambda: {"validation_data": PAIR},
    "validation_data with weights": lambda: {"validation_data": (*PAIR, np.ones(150))},
    "X_val": lambda: {"X_val": X_HOLDOUT, "y_val": y_holdout},
    "eval_X": lambda: {"eval_X": [X_TRAIN, X_HOLDOUT], "eval_y": [y_train, y_holdout]},
    "a frame": lambda: {"eval_set": [(pd.DataFrame(X_HOLDOUT), pd.Series(y_holdout))]},
    "polars": lambda: {"X_val": pl.DataFrame(X_HOLDOUT)},
    "lists of rows": lambda: {"validation_data": (X_HOLDOUT.tolist(), y_holdout.tolist())},
    "sparse": lambda: {"eval_set": [(scipy.sparse.csr_array(X_HOLDOUT), y_holdout)]},
    "single precision": lambda: {"eval_set": [(X_HOLDOUT.astype(np.float32), y_holdout)]},
    "another order": lambda: {"X_val": X_HOLDOUT[::-1]},
    "a mapping of pairs": lambda: {"eval_sets": {"valid": {"x": X_HOLDOUT, "y": y_holdout}}},
    "LightGBM": lambda: {"eval_dataset": lightgbm.Dataset(*PAIR)},
    "XGBoost": lambda: {"evals": [(xgboost.DMatrix(*PAIR), "valid")]},
    "CatBoost": lambda: {"eval_set": catboost.Pool(*PAIR)},
    "PyTorch": lambda: {"valid": TensorDataset(X_HOLDOUT, y_holdout)},
    "a partial": lambda: {"valid": partial(print, valid_ds=PAIR)},
}


def test_the_holdout_among_the_parameters_of_a_guarded_fit(opened: Open) -> None:
    holdout, missed = opened(), []
    for name, given in GIVEN.items():
        search = holdout.guard(GridSearchCV(Told(), {"a": [1, 2]}, cv=2))
        try:
            search.fit(X_TRAIN, y_train, **given())
        except OverlapError as refused:
            said = "150 of the 150 rows of the holdout are in" in str(refused)
            noted = [one.rows for one in holdout.status().overlaps]
            if said and not hasattr(search, "search_") and noted == [150]:
                continue
        missed.append(name)
    assert missed == []
    assert holdout.status().submissions == 0


def test_missing_values_in_a_matrix_of_xgboost(opened: Open) -> None:
    search = opened(NAN).guard(GridSearchCV(Told(), {"a": [1]}, cv=2))
    with pytest.raises(OverlapError, match="150 of the 150"):
        search.fit(X_TRAIN, y_train, evals=[(xgboost.DMatrix(NAN), "valid")])


def test_a_few_rows_warn_and_the_policy_decides(opened: Open, tmp_path: Path) -> None:
    few = {"eval_set": [(X_HOLDOUT[:10], y_holdout[:10])]}
    grid = GridSearchCV(Told(), {"a": [1]}, cv=2)
    with pytest.warns(OverlapWarning, match="10 of the 150 rows of the holdout are in eval_set"):
        opened().guard(grid).fit(X_TRAIN, y_train, **few)
    strict = opened(overlap="error", ledger=tmp_path / "strict.db")
    with pytest.raises(OverlapError, match="eval_set"):
        strict.guard(grid).fit(X_TRAIN, y_train, **few)
    with pytest.warns(OverlapWarning, match="150 of the 150"):
        opened(overlap="warn", ledger=tmp_path / "warn.db").guard(grid).fit(
            X_TRAIN, y_train, eval_set=PAIR
        )
    opened(overlap="ignore", ledger=tmp_path / "ignore.db").guard(grid).fit(
        X_TRAIN, y_train, eval_set=PAIR
    )


@pytest.mark.parametrize("way", ["guard", "split"])
def test_for_a_step_of_a_pipeline_and_in_both_ways(opened: Open, way: str) -> None:
    holdout = opened()
    model = Pipeline([("scale", StandardScaler()), ("model", Told())])
    wishes: dict[str, Any] = {"cv": 2}
    if way == "split":
        wishes = {"scoring": holdout, "cv": holdout.split(), "refit": holdout.select}
    search: Any = GridSearchCV(model, {"model__a": [1, 2]}, **wishes)
    search = holdout.guard(search) if way == "guard" else search
    with pytest.raises(OverlapError, match="model__eval_set"):
        search.fit(X_TRAIN, y_train, model__eval_set=[PAIR])
    assert holdout.status().submissions == 0


def test_in_what_derives_from_scikit_learns_searches(opened: Open) -> None:
    holdout = opened()
    wishes: dict[str, Any] = {"scoring": holdout, "cv": holdout.split(), "n_iter": 1}
    search = BayesSearchCV(Told(), {"a": (1, 3)}, refit=False, **wishes)
    with pytest.raises(OverlapError, match="eval_set"):
        search.fit(X_TRAIN, y_train, eval_set=[PAIR])
    assert holdout.status().submissions == 0


def test_in_cross_validate_and_in_a_models_own_parameters(opened: Open) -> None:
    holdout = opened()
    with pytest.raises(OverlapError, match="eval_set"):
        cross_validate(Told(), X_TRAIN, y_train, scoring=holdout, cv=holdout.split(),
                       params={"eval_set": [PAIR]})  # fmt: skip
    for kept in (PAIR, [PAIR], {"valid": X_HOLDOUT}):
        search = holdout.guard(GridSearchCV(Told(kept=kept), {"a": [1]}, cv=2))
        with pytest.raises(OverlapError, match="estimator__kept"):
            search.fit(X_TRAIN, y_train)
    with pytest.raises(OverlapError, match="param_grid"):
        holdout.guard(GridSearchCV(Told(), {"kept": [PAIR]}, cv=2)).fit(X_TRAIN, y_train)


def test_texts_and_images(opened: Open, tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(150)]
    fitted = partial(opened, ledger=tmp_path / "texts.db")
    model = make_pipeline(FunctionTransformer(lambda X: [[len(one)] for one in X]), Told())
    search = fitted(texts).guard(GridSearchCV(model, {"told__a": [1]}, cv=2))
    others = [f"another text {i}" for i in range(250)]
    with pytest.raises(OverlapError, match="told__X_val"):
        search.fit(others, y_train, told__X_val=texts, told__y_val=y_holdout)
    pictures = RNG.normal(size=(150, 4, 4))
    search = opened(pictures).guard(GridSearchCV(Told(), {"a": [1]}, cv=2))
    with pytest.raises(OverlapError, match="eval_set"):
        search.fit(RNG.normal(size=(250, 4, 4)), y_train, eval_set=[(pictures, y_holdout)])


def test_rows_of_ones_own_and_settings_are_none_of_the_holdouts(opened: Open) -> None:
    holdout = opened(X_HOLDOUT[:, :1].round())
    search = GridSearchCV(Told(kept=[[1.0], [0.0]]), {"a": [1, 2]}, cv=2)
    given = {"eval_set": [(X_TRAIN[:50, :1], y_train[:50, None])], "y_val": y_holdout[:, None]}
    holdout.guard(search).fit(X_TRAIN[:, :1], y_train, **given)
    assert holdout.status().overlaps == ()


def test_early_stopping_by_stages_looks_at_what_its_fit_is_given(opened: Open) -> None:
    stages = staged.ladder_stopping(opened(scoring="neg_log_loss"), patience=2)
    model = HistGradientBoostingClassifier(max_iter=5)
    with pytest.raises(OverlapError, match="X_val"):
        stages.fit(model, X_TRAIN, y_train, X_val=X_HOLDOUT, y_val=y_holdout)
    with pytest.raises(OverlapError, match="among the training rows"):
        stages.fit(model, X, y)


# -- what does not fit is refused before the first fit --------------------------------------------


class Counted(DecisionTreeClassifier):
    fits = 0

    def fit(self, *rows: Any, **given: Any) -> Any:
        Counted.fits += 1
        return super().fit(*rows, **given)


NAMES = list("abcdefgh")


def frame(X: Any, names: Any = NAMES) -> pd.DataFrame:
    return pd.DataFrame(X, columns=list(names))


LATE: dict[str, tuple[Any, Any, Any, Any, str]] = {
    # What is trained on, its labels, the holdout and its labels, and what the refusal says.
    "fewer columns": (X_TRAIN[:, :7], y_train, X_HOLDOUT, y_holdout, "of 8 columns.*of 7 columns"),
    "more columns": (np.hstack([X_TRAIN, X_TRAIN]), y_train, X_HOLDOUT, y_holdout, "16 columns"),
    "lists": (X_TRAIN[:, :7].tolist(), y_train, X_HOLDOUT, y_holdout, "of 7 columns"),
    "sparse": (scipy.sparse.csr_array(X_TRAIN[:, :7]), y_train, X_HOLDOUT, y_holdout, "7 columns"),
    "names": (frame(X_TRAIN), y_train, frame(X_HOLDOUT, "abcdefgx"), y_holdout,
              "without 'x' and with 'h'"),
    "a column more": (frame(X_TRAIN), y_train, frame(X_HOLDOUT[:, :7], "abcdefg"), y_holdout,
                      "with 'h'"),
    "order": (frame(X_TRAIN), y_train, frame(X_HOLDOUT)[NAMES[::-1]], y_holdout, "another order"),
    "order, polars": (pl.DataFrame(X_TRAIN, NAMES), y_train, frame(X_HOLDOUT)[NAMES[::-1]],
                      y_holdout, "another order"),
    "names and none": (frame(X_TRAIN[:, :7], NAMES[:7]), y_train, X_HOLDOUT, y_holdout,
                       "7 columns"),
    "texts for numbers": (frame(X_TRAIN).assign(c="5"), y_train, frame(X_HOLDOUT), y_holdout,
                          "numbers in column 'c'.*one with texts"),
    "numbers for texts": (frame(X_TRAIN), y_train, frame(X_HOLDOUT).assign(c="red"), y_holdout,
                          "texts in column 'c'.*one with numbers"),
    "dates": (frame(X_TRAIN).assign(c=pd.Timestamp("2026-01-01")), y_train, frame(X_HOLDOUT),
              y_holdout, "one with dates"),
    "a category": (frame(X_TRAIN).assign(c=pd.Categorical(["a"] * 250)), y_train, frame(X_HOLDOUT),
                   y_holdout, "one with texts"),
    "a class more": (X_TRAIN, np.where(np.arange(250) % 9 == 0, 2, y_train), X_HOLDOUT, y_holdout,
                     "labels of 1 more"),
    "text labels": (X_TRAIN, y_train.astype(str), X_HOLDOUT, y_holdout, "which are numbers"),
    "number labels": (X_TRAIN, y_train, X_HOLDOUT, y_holdout.astype(str), "which are text"),
    "text labels in a Series": (X_TRAIN, pd.Series(y_train).map({0: "a", 1: "b"}), X_HOLDOUT,
                                y_holdout, "which are numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_rows_that_do_not_fit_are_refused_before_the_first_fit(opened: Open, name: str) -> None:
    X_train, y_train, X_holdout, y_holdout, says = LATE[name]
    holdout = opened(X_holdout, y_holdout, ledger="memory")
    Counted.fits = 0
    search = holdout.guard(GridSearchCV(Counted(), {"max_depth": range(1, 6)}, cv=3))
    with pytest.raises(InvalidArgument, match=says) as refused:
        search.fit(X_train, y_train)
    assert Counted.fits == 0 and holdout.status().submissions == 0
    assert not re.search(r"\bred\b|'a'", str(refused.value)), "no content of a cell, no class"


def test_the_remedies_of_columns_work(opened: Open) -> None:
    X_holdout = frame(X_HOLDOUT)[NAMES[::-1]]
    search = opened(X_holdout).guard(grid())
    with pytest.raises(InvalidArgument) as refused:
        search.fit(frame(X_TRAIN), y_train)
    remedy = re.search(r"X_train\[list\(X_holdout.columns\)\]", str(refused.value))
    assert remedy is not None
    brought = eval(remedy[0], {"X_train": frame(X_TRAIN), "X_holdout": X_holdout})
    search.fit(brought, y_train)
    assert search.best_score_ == pytest.approx(
        accuracy_score(y_holdout, search.predict(X_holdout)), abs=0.01
    )


def chosen(names: Any) -> Any:
    return make_pipeline(
        ColumnTransformer([("some", StandardScaler(), names)]), DecisionTreeClassifier()
    )


def test_columns_by_name_may_come_in_any_order(opened: Open) -> None:
    """A ColumnTransformer takes the columns that it names, whatever their order."""
    X_holdout = frame(X_HOLDOUT)[NAMES[::-1]].assign(more=1)
    holdout = opened(X_holdout)
    model = chosen(["a", "b"])
    search = holdout.guard(GridSearchCV(model, {"decisiontreeclassifier__max_depth": [2]}, cv=2))
    search.fit(frame(X_TRAIN), y_train)
    right = clone(search.best_estimator_).fit(frame(X_TRAIN), y_train)
    assert search.best_score_ == pytest.approx(right.score(X_holdout, y_holdout), abs=0.02)
    for lacking, says in ((frame(X_HOLDOUT).drop(columns="b"), "takes 'b'"), (X_HOLDOUT, "names")):
        other = LadderHoldout(lacking, y_holdout, scoring="accuracy", ledger="memory")
        search = other.guard(GridSearchCV(model, {"decisiontreeclassifier__max_depth": [2]}))
        with pytest.raises(InvalidArgument, match=says):
            search.fit(frame(X_TRAIN), y_train)
    shown = frame(X_HOLDOUT).assign(b="red")
    search = LadderHoldout(shown, y_holdout, scoring="accuracy", ledger="memory").guard(
        GridSearchCV(model, {"decisiontreeclassifier__max_depth": [2]})
    )
    with pytest.raises(InvalidArgument, match="texts in column 'b'"):
        search.fit(frame(X_TRAIN), y_train)


def test_what_fits_is_fitted(opened: Open, tmp_path: Path) -> None:
    """Whole numbers for fractions, True for 1, a category for texts, an empty column, -1."""
    places = iter(range(9))

    def fit(X_train: Any, y_train: Any, X_holdout: Any, y_holdout: Any, model: Any = None) -> None:
        model = DecisionTreeClassifier() if model is None else model
        place = tmp_path / f"{next(places)}.db"
        holdout = LadderHoldout(
            X_holdout, y_holdout, scoring="accuracy", ledger=place, overlap="ignore"
        )
        search = holdout.guard(GridSearchCV(model, {}, cv=2)).fit(X_train, y_train)
        assert search.is_incumbent_

    fit(frame(X_TRAIN), y_train, frame(X_HOLDOUT.round().astype(int)), y_holdout)
    fit(frame(X_TRAIN > 0), y_train == 1, frame(1 * (X_HOLDOUT > 0)), y_holdout)
    fit(X_TRAIN, y_train.astype(float), X_HOLDOUT, y_holdout)
    fit(frame(X_TRAIN).to_numpy(), y_train, X_HOLDOUT.tolist(), y_holdout)
    encoder = OneHotEncoder(handle_unknown="ignore")
    texts = pd.DataFrame({"c": np.where(X[:, 0] > 0, "up", "down")})
    as_category = texts[250:].astype("category")
    fit(texts[:250], y_train, as_category, y_holdout, make_pipeline(encoder, LogisticRegression()))
    fit(frame(X_TRAIN).assign(c=np.nan), y_train, frame(X_HOLDOUT), y_holdout)
    marked = np.where(np.arange(250) % 5 == 0, -1, y_train)
    semi = SelfTrainingClassifier(LogisticRegression())
    fit(X_TRAIN, marked, X_HOLDOUT, y_holdout, semi)


NO_SEARCHES = [
    DecisionTreeClassifier(),
    LogisticRegressionCV(),
    CalibratedClassifierCV(DecisionTreeClassifier()),
    TunedThresholdClassifierCV(DecisionTreeClassifier()),
    RFECV(DecisionTreeClassifier()),
    make_pipeline(StandardScaler(), DecisionTreeClassifier()),
    GridSearchCV,
    None,
]


def test_what_is_no_search_is_refused_at_guard(opened: Open) -> None:
    holdout, taken = opened(), []
    for wrong in NO_SEARCHES:
        try:
            holdout.guard(wrong)
        except InvalidArgument as refused:
            if "search must be" in str(refused):
                continue
        taken.append(wrong)
    assert taken == []
    with pytest.raises(InvalidArgument, match="finalists must be"):
        holdout.guard(grid(), finalists=0)
    with pytest.raises(InvalidArgument, match="training rows alone"):
        holdout.guard(grid(scoring=holdout, cv=holdout.split()))


class Shy(DecisionTreeClassifier):
    """Predicts for its training rows alone."""

    def predict(self, X: Any, *args: Any) -> Any:
        if len(X) == len(X_HOLDOUT):
            raise ValueError("not these rows")
        return super().predict(X, *args)


def test_a_late_refusal_names_what_is_kept(opened: Open) -> None:
    holdout = opened()
    search = holdout.guard(GridSearchCV(Shy(), {"max_depth": [1, 2]}, cv=2))
    with (
        pytest.warns(FitFailedWarning, match="not these rows"),
        pytest.raises(InvalidArgument, match=r"not these rows.*as search_ of this object"),
    ):
        search.fit(X_TRAIN, y_train)
    best = search.search_.cv_results_["params"][0]
    model = DecisionTreeClassifier(**best).fit(X_TRAIN, y_train)  # the remedy, followed
    assert holdout.submit(model).score == pytest.approx(true_score(model), abs=0.01)


# -- scoring=holdout, and candidates that fail ----------------------------------------------------


@pytest.mark.parametrize("scoring", ["accuracy", ["accuracy", "f1"]])
def test_a_guarded_search_that_scores_by_the_holdouts_metric(opened: Open, scoring: Any) -> None:
    holdout = opened(scoring=scoring)
    refit = True if isinstance(scoring, str) else "f1"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = holdout.guard(grid(scoring=holdout, refit=refit)).fit(X_TRAIN, y_train)
    plain = grid(scoring=scoring, refit=refit).fit(X_TRAIN, y_train)
    name = "mean_test_score" if refit is True else "mean_test_f1"
    assert search.cv_results_[name] == pytest.approx(plain.cv_results_[name])


class Fails(RegressorMixin, BaseEstimator):
    """Fails to be fitted, to predict, or predicts nan, by its parameter."""

    def __init__(self, a: float = 1.0, how: str = "fit", rows: int = 0) -> None:
        self.a, self.how, self.rows = a, how, rows

    def fit(self, X: Any, y: Any) -> Fails:
        if self.a < 0 and self.how == "fit" and len(X) > self.rows:
            raise ValueError("diverged")
        self.model_ = Ridge(alpha=abs(self.a)).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        if self.a < 0 and self.how == "predict":
            raise ValueError("diverged")
        return self.model_.predict(X) * (np.nan if self.a < 0 and self.how == "nan" else 1.0)


REAL = X[:, 0] * 5 + RNG.normal(size=400)
RIDGES = {"a": [-1.0, 1.0, 100.0]}


def right_ridge() -> float:
    """Return which of the two that do not fail is better by its folds, by scikit-learn alone."""
    plain = GridSearchCV(Ridge(), {"alpha": RIDGES["a"][1:]}, cv=3,
                         scoring="neg_mean_squared_error")  # fmt: skip
    return float(plain.fit(X_TRAIN, REAL[:250]).best_params_["alpha"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore:Scoring failed", "ignore:One or more of the test scores")
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.RangeWarning")  # twenty times the error
@pytest.mark.parametrize(
    ("how", "error_score", "finalists"),
    [("fit", 0, "auto"), ("predict", -1e9, 1), ("nan", np.nan, "auto"), ("nan", 0, 1)],
)
def test_a_candidate_that_failed_is_no_finalist_whatever_its_score(
    opened: Open, how: str, error_score: float, finalists: Any
) -> None:
    holdout = opened(y=REAL[250:], scoring="neg_mean_squared_error", loss_range=(0, 400))
    inner = GridSearchCV(Fails(how=how), RIDGES, scoring="neg_mean_squared_error", cv=3,
                         error_score=error_score)  # fmt: skip
    search = holdout.guard(inner, finalists=finalists).fit(X_TRAIN, REAL[:250])
    assert search.best_params_["a"] == right_ridge()
    assert 0 not in [one.candidate for one in search.finalists_]
    shown = [search.cv_results_[name][0] for name in ("split0_test_score", "mean_test_score")]
    assert np.array_equal(shown, [error_score, error_score], equal_nan=True)
    assert np.array_equal(search.search_.cv_results_["mean_test_score"],
                          search.cv_results_["mean_test_score"], equal_nan=True)  # fmt: skip
    assert inner.error_score is error_score


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore::ladderholdout.errors.RangeWarning")  # twenty times the error
def test_a_candidate_that_failed_on_one_fold(opened: Open) -> None:
    """On the fold with most training rows; its other folds and 0 would have the best mean."""
    sizes = [np.arange(0, 200), np.arange(0, 150)]
    folds = [(train, np.setdiff1d(np.arange(250), train)) for train in sizes]
    holdout = opened(y=REAL[250:], scoring="neg_mean_squared_error", loss_range=(0, 400))
    inner = GridSearchCV(Fails(rows=180), RIDGES, scoring="neg_mean_squared_error", cv=folds,
                         error_score=0)  # fmt: skip
    search = holdout.guard(inner, finalists=2).fit(X_TRAIN, REAL[:250])
    assert [one.candidate for one in search.finalists_] == [1, 2]
    # Where all of them failed on one, the others decide.
    inner = inner.set_params(param_grid={"a": [-100.0, -1.0]}, estimator__rows=180)
    with pytest.warns(FitFailedWarning), pytest.raises(InvalidArgument, match="search_"):
        holdout.guard(inner, finalists=2).fit(X_TRAIN, REAL[:250])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_failed_candidates_of_other_searches(opened: Open, tmp_path: Path) -> None:
    wishes: dict[str, Any] = dict(scoring="neg_mean_squared_error", cv=3, error_score=0)
    searches = [
        RandomizedSearchCV(Fails(), RIDGES, n_iter=3, random_state=0, **wishes),
        BayesSearchCV(
            Fails(how="predict"), {"a": [-1.0, 1.0, 100.0]}, n_iter=4, random_state=2, **wishes
        ),
        HalvingGridSearchCV(Fails(), RIDGES, random_state=0, min_resources=80, **wishes),
        make_pipeline(StandardScaler(), GridSearchCV(Fails(), RIDGES, **wishes)),
    ]
    for place, search in enumerate(searches):
        holdout = opened(y=REAL[250:], scoring="neg_mean_squared_error", loss_range=(0, 400),
                         ledger=tmp_path / f"{place}.db")  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = holdout.guard(search).fit(X_TRAIN, REAL[:250])
        assert found.best_params_["a"] > 0
        right = mean_squared_error(REAL[250:], found.predict(X_HOLDOUT))
        assert found.best_score_ == pytest.approx(-right, abs=2.0)


# -- remedies, each followed ----------------------------------------------------------------------

CALLED = {
    "f1_score": "f1", "F1": "f1", "f1-score": "f1", "accuracy_score": "accuracy",
    "roc_auc_score": "roc_auc", "roc-auc": "roc_auc", "AUC": "roc_auc",
    "mse": "neg_mean_squared_error", "RMSE": "neg_root_mean_squared_error",
    "mae": "neg_mean_absolute_error",
    "mean_absolute_error": "neg_mean_absolute_error", "r2_score": "r2", "log_loss": "neg_log_loss",
    "brier_score_loss": "neg_brier_score", "mcc": "matthews_corrcoef",
    "balanced_accuracy_score": "balanced_accuracy", "average_precision_score": "average_precision",
    "neg_mse": "neg_mean_squared_error", "acuracy": "accuracy",
}  # fmt: skip


def test_a_name_of_elsewhere_leads_to_the_metric(opened: Open) -> None:
    found = {}
    for name in CALLED:
        with pytest.raises(InvalidArgument) as refused:
            opened(scoring=name)
        meant = re.search(r"Did you mean '(.+?)'", str(refused.value))
        found[name] = meant[1] if meant else None
    assert found == CALLED
    for metric in set(CALLED.values()):  # the remedy, followed
        targets = y_holdout if METRICS[metric].is_classification else REAL[250:]
        opened(y=targets, scoring=metric, ledger="memory")


@pytest.mark.parametrize(
    ("scorer", "meant"),
    [
        (f1_score, "f1"),
        (make_scorer(roc_auc_score), "roc_auc"),
        (make_scorer(f1_score, average="macro"), "f1_macro"),
        (get_scorer("neg_log_loss"), "neg_log_loss"),
        (partial(fbeta_score, beta=2), "f2"),
    ],
)
def test_a_function_or_a_scorer_leads_to_the_name(opened: Open, scorer: Any, meant: str) -> None:
    with pytest.raises(InvalidArgument, match=f"scoring='{meant}'"):
        opened(scoring=scorer)
    opened(scoring=meant)


def test_a_score_without_weights_is_refused_with_a_remedy_that_works(opened: Open) -> None:
    with pytest.raises(InvalidArgument, match="Add the parameter, sample_weight=None"):
        Metric("f1_of_0", "labels", score=lambda t, p: f1_score(t, p, pos_label=0))

    def mended(t: Any, p: Any, sample_weight: Any = None) -> float:
        return float(f1_score(t, p, pos_label=0, sample_weight=sample_weight))

    model = DecisionTreeClassifier(max_depth=2).fit(X_TRAIN, y_train)
    holdout = opened(scoring=Metric("f1_of_0", "labels", score=mended))
    right = f1_score(y_holdout, model.predict(X_HOLDOUT), pos_label=0)
    assert holdout.submit(model).score == pytest.approx(right, abs=0.02)


# Models as the libraries train them without classes of scikit-learn's kind.
BOOSTERS: dict[str, Callable[[], Any]] = {
    "lightgbm": lambda: lightgbm.train(
        {"objective": "binary", "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(X_TRAIN, y_train), 5,
    ),
    "xgboost": lambda: xgboost.train(
        {"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(X_TRAIN, y_train), 5
    ),
    "catboost": lambda: catboost.train(
        catboost.Pool(X_TRAIN, y_train),
        {"loss_function": "Logloss", "verbose": 0, "iterations": 5, "thread_count": 1,
         "allow_writing_files": False},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("library", "scoring"),
    [
        # The remedy differs by library, and by what the metric asks for.
        ("lightgbm", "accuracy"),
        ("lightgbm", "neg_log_loss"),
        ("xgboost", "accuracy"),
        ("xgboost", "roc_auc"),
        ("catboost", "accuracy"),
        ("catboost", "neg_log_loss"),
    ],
)
def test_a_booster_is_refused_with_a_remedy_that_works(
    opened: Open, library: str, scoring: str
) -> None:
    booster = BOOSTERS[library]()
    holdout = opened(scoring=scoring)
    with pytest.raises(InvalidSubmission, match="Submit what it predicts") as refused:
        holdout.submit(booster)
    followed = re.search(r"holdout\.submit\(.*?\)(?= for two|\.$)", str(refused.value))
    assert followed is not None
    known = {"holdout": holdout, "model": booster, "X": X_HOLDOUT, "xgboost": xgboost,
             "np": np, "classes": [0, 1]}  # fmt: skip
    release = eval(followed[0], known)
    second = {
        "lightgbm": lambda: booster.predict(X_HOLDOUT),
        "xgboost": lambda: booster.predict(xgboost.DMatrix(X_HOLDOUT)),
        "catboost": lambda: booster.predict(X_HOLDOUT, prediction_type="Probability")[:, 1],
    }[library]()
    right = {
        "accuracy": lambda: accuracy_score(y_holdout, second > 0.5),
        "roc_auc": lambda: roc_auc_score(y_holdout, second),
        "neg_log_loss": lambda: -log_loss(y_holdout, second),
    }[scoring]()
    assert release.score == pytest.approx(right, abs=0.03)


def test_a_booster_of_numbers(opened: Open) -> None:
    holdout = opened(y=REAL[250:], scoring="r2")
    model = lightgbm.train(
        {"verbose": -1, "num_threads": 1}, lightgbm.Dataset(X_TRAIN, REAL[:250]), 5
    )
    assert holdout.submit(model).improved  # LightGBM's predicts on rows as they are
    other = xgboost.train({"nthread": 1}, xgboost.DMatrix(X_TRAIN, REAL[:250]), 5)
    with pytest.raises(InvalidSubmission, match=r"xgboost\.DMatrix"):
        holdout.submit(other)


def swallowing(metric: Any, *given: Any, **named: Any) -> float:
    """Score a forecast as tools do that take whatever a metric raises for nan."""
    try:
        return float(metric(*given, **named))
    except Exception:
        return float("nan")


TRUTH, FORECAST = pd.Series(REAL[:20]), pd.Series(REAL[:20] + 0.5)


ASKED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "Series": ((TRUTH, FORECAST), {}),
    "arrays": ((TRUTH.to_numpy(), FORECAST.to_numpy()), {}),
    "lists": ((TRUTH.tolist(), FORECAST.tolist()), {}),
    "frames": ((TRUTH.to_frame(), FORECAST.to_frame()), {}),
    "by name": ((), {"y_true": TRUTH, "y_pred": FORECAST}),
    "with training rows": ((TRUTH, FORECAST), {"y_train": TRUTH}),
}


def test_a_holdout_is_no_metric_of_a_forecasting_tool(opened: Open) -> None:
    holdout, answered = opened(y=REAL[250:], scoring="neg_mean_absolute_error"), []
    for name, (given, named) in ASKED.items():
        try:
            swallowing(holdout, *given, **named)
        except SearchStopped as refused:
            if "holdout.submit(predictions)" in str(refused):
                continue
        answered.append(name)
    assert answered == []
    assert holdout.status().submissions == 0
    assert swallowing(mean_absolute_error, TRUTH, FORECAST) == pytest.approx(0.5)
    predictions = DecisionTreeRegressor(max_depth=3).fit(X_TRAIN, REAL[:250]).predict(X_HOLDOUT)
    right = -mean_absolute_error(REAL[250:], predictions)
    assert holdout.submit(predictions).score == pytest.approx(right, abs=0.5)  # as it says


def test_the_score_of_a_search_with_several_metrics(opened: Open) -> None:
    holdout = opened(scoring=["accuracy", "roc_auc"])
    fresh = X_TRAIN[:60] + 0.01, y_train[:60]
    for refit, right in (
        (holdout.select, accuracy_score),
        (holdout["accuracy"].select, accuracy_score),
        (holdout["roc_auc"].select, roc_auc_score),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoImprovementWarning)
            search = grid(scoring=holdout, cv=holdout.split(), refit=refit).fit(X_TRAIN, y_train)
        model = search.best_estimator_
        answer = model.predict_proba(fresh[0])[:, 1] if right is roc_auc_score else None
        answer = model.predict(fresh[0]) if answer is None else answer
        assert search.score(*fresh) == pytest.approx(right(fresh[1], answer))
    search = grid(scoring=holdout, cv=holdout.split(), refit=lambda results: 0)
    with pytest.warns(NoImprovementWarning, match="refits candidate 0, which is not the incumbent"):
        search.fit(X_TRAIN, y_train)
    with pytest.raises(InvalidArgument, match="refit must be") as refused:
        search.score(*fresh)
    remedy = re.search(r"holdout\['accuracy'\]\(search.best_estimator_, X, y\)", str(refused.value))
    assert remedy is not None
    known = {"holdout": holdout, "search": search, "X": fresh[0], "y": fresh[1]}
    right_score = accuracy_score(fresh[1], search.predict(fresh[0]))
    assert eval(remedy[0], known) == pytest.approx(right_score)
