"""What this library relies on beyond documented interfaces.

scikit-learn hands a scorer neither its search nor its candidate, and Optuna hands an objective
neither its loop nor its storage. Both are read here from the frames of the running functions and
from private attributes, by the names in `RELIANCES`; no other module reads any. The tests find each
name up in the installed versions, and a run with the oldest versions does so there.
"""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from traceback import walk_tb
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial


@dataclass(frozen=True, slots=True)
class Reliance:
    """A name of another library that is no documented part of it.

    Attributes
    ----------
    library : str
        The distribution.
    module : str
    name : str
        The qualified name of a function, or of an attribute of the module or of a class in it;
        empty for the module itself, or all modules below it where `module` ends with a dot.
    use : str
        What is read from it, or concluded from its being there.
    variables : tuple of str
        Local variables of the function that are read.
    always : bool
        False where only some of the tested versions have it, and none is needed.
    """

    library: str
    module: str
    name: str
    use: str
    variables: tuple[str, ...] = ()
    always: bool = True

    @property
    def place(self) -> tuple[str, str]:
        """The module and the name, as a frame states them."""
        return self.module, self.name


TESTED = {
    "keras": ("3.15.1", "3.15.1"),
    "lightgbm": ("4.0.0", "4.7.0"),
    "mlflow-skinny": ("3.0.0", "3.17.2"),
    "optuna": ("4.0.0", "5.0.0"),
    "optuna-integration": ("4.0.0", "5.0.0"),
    "scikit-learn": ("1.7.0", "1.9.1"),
    "skorch": ("1.4.0", "1.4.0"),
    "xgboost": ("2.1.0", "3.4.1"),
}
"""The oldest and the newest version of each library that the tests ran with."""

_LOOP, _STUDIES = "optuna.study._optimize", "optuna_integration.sklearn.sklearn"


def _sklearn(module: str, name: str, use: str, *variables: str) -> Reliance:
    return Reliance("scikit-learn", f"sklearn.{module}", name, use, variables)


def _mlflow(module: str, name: str, use: str) -> Reliance:
    return Reliance("mlflow-skinny", f"mlflow.{module}", name, use)


_SEARCH, _VALIDATION = "model_selection._search", "model_selection._validation"
_SCORER, _PARALLEL, _RIDGE = "metrics._scorer", "utils.parallel", "linear_model._ridge"
_BOOSTING = "ensemble._hist_gradient_boosting.gradient_boosting"
_LOGISTIC = "linear_model._logistic"

FIT = _sklearn(
    _SEARCH, "BaseSearchCV.fit", "the search and its results", "self", "results",
    "evaluate_candidates", "params",
)  # fmt: skip
CANDIDATES = _sklearn(
    _SEARCH, "BaseSearchCV.fit.<locals>.evaluate_candidates", "takes one round of folds", "X",
    "candidate_params",
)  # fmt: skip
ONE_FIT = _sklearn(
    _VALIDATION, "_fit_and_score", "a candidate", "test", "candidate_progress", "parameters"
)
SCORE = _sklearn(_VALIDATION, "_score", "a candidate is scored")
CROSS_VALIDATE = _sklearn(
    _VALIDATION, "cross_validate", "what it asks", "scoring", "estimator", "params"
)
LEARNING = _sklearn(_VALIDATION, "learning_curve", "takes one round, in order", "scoring", "X")
VALIDATION = _sklearn(_VALIDATION, "validation_curve", "takes one round, in order", "scoring")
VALIDATION_FOLDS = _sklearn(
    _VALIDATION, "validation_curve.<locals>.<genexpr>", "takes one round", "X"
)
PERMUTATION = _sklearn(_VALIDATION, "permutation_test_score", "permutes labels")
ONE_PERMUTATION = _sklearn(_VALIDATION, "_permutation_test_score", "permutes labels", "test")
PREDICTIONS = _sklearn(_VALIDATION, "cross_val_predict", "predicts the rows of each fold")
THRESHOLDS = _sklearn(
    "model_selection._classification_threshold",
    "TunedThresholdClassifierCV._fit",
    "learns a threshold from the rows of each fold",
)
SELECTION = _sklearn("feature_selection.", "", "scores models on some of the columns")
INSPECTION = _sklearn("inspection.", "", "permutes features")
SCORERS = _sklearn(
    _SCORER,
    "_MultimetricScorer.__call__",
    "which scorer asks, and of which",
    "self",
    "name",
    "scores",
)
SCORERS_OF = _sklearn(_SCORER, "_MultimetricScorer._scorers", "the order of several scorers")
PIPELINE = _sklearn("pipeline", "Pipeline.fit", "the steps before", "self", "X", "y")
TARGET = _sklearn("compose._target", "TransformedTargetRegressor.fit", "transforms the target")
TASK = _sklearn(_PARALLEL, "_FuncWrapper.__call__", "runs a task, in a worker")
PARALLEL = _sklearn(_PARALLEL, "Parallel.__call__", "runs its tasks in this thread")
IN_FIT = _sklearn(_BOOSTING, "BaseHistGradientBoosting._in_fit", "scores rows that it has binned")
CONTEXT = replace(
    _sklearn("callback", "CallbackSupportMixin._init_callback_context", "begins a fit's tasks"),
    always=False,
)
RUN_TRIAL = Reliance("optuna", _LOOP, "_run_trial", "calls the objective", ("func",))
SEQUENTIAL = Reliance(
    "optuna", _LOOP, "_optimize_sequential", "one loop", ("time_start", "reseed_sampler_rng")
)
STORAGE = Reliance("optuna", "optuna.study.study", "Study._storage", "reads a running trial")
STUDY_ID = Reliance("optuna", "optuna.study.study", "Study._study_id", "whether studies are one")
TRIAL_ID = Reliance("optuna", "optuna.trial._trial", "Trial._trial_id", "reads a running trial")
CONSTRAINTS = Reliance(
    "optuna", "optuna.samplers._base", "_CONSTRAINTS_KEY", "the constraints of a trial of Optuna 4"
)
ONE_TRIAL = Reliance("optuna-integration", _STUDIES, "_Objective.__call__", "a trial", ("trial",))
_AUTOLOGGING = "utils.autologging_utils"
SWITCH = _mlflow(_AUTOLOGGING, "_AUTOLOGGING_GLOBALLY_DISABLED", "whether autologging is off")
DISABLE = _mlflow(_AUTOLOGGING, "disable_autologging", "switches it off")
CLIENT = _mlflow("tracking.client", "MlflowClient._tracking_client", "logs to no active model")
SQL_STORE = _mlflow("store.tracking.sqlalchemy_store", "", "is loaded in the main thread")
HTTP = _mlflow("utils.rest_utils", "http_request", "tries a server once")
CREDENTIALS = _mlflow("utils.credentials", "get_default_host_creds", "how to call a server")
BOOSTER_OF = Reliance("xgboost", "xgboost.sklearn", "", "an estimator trains, not xgboost.train")
MODEL_OF = Reliance("lightgbm", "lightgbm.sklearn", "", "an estimator trains, not lightgbm.train")
BOOSTER = Reliance(
    "xgboost",
    "xgboost.training",
    "train",
    "the training rows, an objective of one's own, and the callbacks",
    ("dtrain", "obj", "cb_container"),
)
MODEL_CLASSES = Reliance("lightgbm", MODEL_OF.module, "LGBMClassifier._classes", "their order")
MODEL_CALLBACKS = Reliance(
    "lightgbm", "lightgbm.engine", "train", "what may end a training", ("callbacks_after_iter",)
)
EPOCH_CALLBACKS = Reliance(
    "keras",
    "keras.src.callbacks.callback_list",
    "CallbackList.on_train_end",
    "the callbacks of a training, and their order",
    ("self",),
)
MODULES = Reliance("skorch", "skorch.net", "NeuralNet._modules", "names of all modules of a net")

# What passes rows and labels on as they came. Any other part of scikit-learn may change them.
UNTOUCHED = (
    *(
        _sklearn(module, "", "passes rows and labels on")
        for module in ("base", _SCORER, "model_selection._plot", _SEARCH, _VALIDATION, "utils.")
    ),
    replace(_sklearn("callback.", "", "passes rows and labels on"), always=False),
)
UNTOUCHED_BY = (
    _sklearn(_LOGISTIC, "LogisticRegressionCV.fit", "passes rows and labels on"),
    _sklearn(_LOGISTIC, "_log_reg_scoring_path", "passes rows and labels on"),
    _sklearn(_RIDGE, "RidgeCV.fit", "passes rows and labels on"),
    _sklearn(_RIDGE, "RidgeClassifierCV.fit", "passes rows and labels on"),
    _sklearn(_RIDGE, "_BaseRidgeCV.fit", "passes rows and labels on"),
)

RELIANCES = (
    *(entry for entry in [*globals().values()] if isinstance(entry, Reliance)),
    *(*UNTOUCHED, *UNTOUCHED_BY),
)
"""All of them."""

_ONE_ROUND = {one.name for one in (CANDIDATES, LEARNING, VALIDATION_FOLDS)}
# In whose own thread candidates come in their order.
_IN_ORDER = {LEARNING.name, VALIDATION.name}
PERMUTING = {PERMUTATION.place, ONE_PERMUTATION.place}
"""What asks for the same model on permuted labels."""

_PASSING_MODULES = tuple(one.module for one in UNTOUCHED)
_PASSING = {one.place for one in UNTOUCHED_BY}
# Libraries whose searches pass rows and labels on as well; the guard itself calls no fit.
_PASSING_ELSEWHERE = ("ladderholdout", "optuna", "optuna_integration")


# -- frames ---------------------------------------------------------------------------


class Frame:
    """A running function; its local variables are read by name, and only where it has them.

    To read all could keep alive what the function lets go.

    Attributes
    ----------
    module, library : str
        The name of the module, and of the package that it is in.
    place : tuple of str
        The module and the qualified name of the function.
    """

    __slots__ = ("_frame", "library", "module", "place")

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self.module = str(frame.f_globals.get("__name__"))
        self.library = self.module.partition(".")[0]
        self.place = self.module, frame.f_code.co_qualname

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._frame.f_code.co_name

    @property
    def owner(self) -> Any:
        """The object whose method this is, or None."""
        return self.local("self")

    def local(self, name: str) -> Any:
        """Return a local variable; None where there is none."""
        code = self._frame.f_code
        if name not in code.co_varnames + code.co_cellvars + code.co_freevars:
            return None
        return self._frame.f_locals.get(name)

    def outward(self) -> Iterator[Frame]:
        """Yield this function and those that called it, one after the other."""
        frame: FrameType | None = self._frame
        while frame is not None:
            yield Frame(frame)
            frame = frame.f_back

    @property
    def is_search(self) -> bool:
        """Whether it belongs to scikit-learn's model selection."""
        return self.module.startswith("sklearn.model_selection.")

    @property
    def takes_one_round(self) -> bool:
        """Whether it takes the folds, uses them for one round of candidates and lets them go."""
        return self.is_search and self.place[1] in _ONE_ROUND

    @property
    def asks_nothing(self) -> bool:
        """Whether it belongs to scikit-learn and uses folds without a scorer."""
        if self.place in (PREDICTIONS.place, THRESHOLDS.place):
            return True
        own = self.place[1].partition(".<locals>")[0]
        outside = self.library == "sklearn" and not self.is_search
        return outside and (self.module, own) not in _PASSING

    @property
    def selects_features(self) -> bool:
        """Whether it asks for models on some of the columns."""
        return self.module.startswith(SELECTION.module)

    @property
    def may_change_rows(self) -> bool:
        """Whether this part of scikit-learn may hand on other rows or labels than it got."""
        module, name = self.place
        if self.library != "sklearn" or (module, name.partition(".<locals>")[0]) in _PASSING:
            return False
        return self.place != PIPELINE.place and not module.startswith(_PASSING_MODULES)

    @property
    def passes_rows_on(self) -> bool:
        """Whether it belongs to another library whose searches pass on what they got."""
        return self.library in _PASSING_ELSEWHERE

    @property
    def earlier_steps(self) -> list[Any]:
        """The steps before the one that this pipeline is fitting, if there are some."""
        return [self.owner[:-1]] if len(self.owner.steps) > 1 else []

    @property
    def fit_arguments(self) -> tuple[str, ...]:
        """What a method that fits calls itself, the rows and the labels; else nothing."""
        code = self._frame.f_code
        fits = code.co_name.lstrip("_").startswith(("fit", "partial_fit"))
        return code.co_varnames[: min(code.co_argcount, 3)] if fits else ()

    @property
    def rebound(self) -> set[str]:
        """The variables that the function gives new values."""
        found: set[str] = set()
        for step in dis.get_instructions(self._frame.f_code):
            if not step.opname.startswith(("STORE_FAST", "STORE_DEREF", "DELETE_FAST")):
                continue
            several = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            found.update(several[:1] if step.opname.endswith("LOAD_FAST") else several)
        return found


def caller(depth: int = 1) -> Frame:
    """Return the function that called the one that calls this; with `depth`, one further out."""
    return Frame(sys._getframe(depth + 1))


def outside() -> Generator[Frame, None, None]:
    """Yield the function that called this library and those that called it, outward."""
    found = caller().outward()
    for frame in found:
        if frame.library != "ladderholdout":
            yield frame
            break
    yield from found


def raised_by(error: BaseException) -> str:
    """Return the library whose function raised an error."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return Frame(frame).library


def called_from(module: str) -> bool:
    """Return whether a function of this module is running in this thread."""
    return any(frame.module == module for frame in caller().outward())


def local_of(one: Reliance, variable: str) -> Any:
    """Return a variable of the innermost function of this name that runs in this thread.

    Parameters
    ----------
    one : Reliance
    variable : str
        One of its variables.

    Returns
    -------
    object
        None where no such function is running.
    """
    frames = (frame for frame in caller().outward() if frame.place == one.place)
    frame = next(frames, None)
    return None if frame is None else frame.local(variable)


def classes_of_model() -> Any:
    """Return the classes of the LightGBM estimator that this thread is fitting, if it has any."""
    owners = (frame.owner for frame in caller().outward() if frame.module == MODEL_OF.module)
    found = (getattr(owner, "_classes", None) for owner in owners)
    return next((classes for classes in found if classes is not None), None)


# -- scikit-learn ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """A search of scikit-learn between its last answer and the refit."""

    refit: Any
    results: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scoring:
    """The candidate that scikit-learn is scoring in this thread.

    Attributes
    ----------
    test : object
        The test indices, as scikit-learn holds them; None where it holds none.
    by_sklearn : bool
        Whether scikit-learn itself calls this library, no function in between.
    place : int or None
        The candidate's place in its round, from 1, whenever it is scored.
    in_order : bool
        Whether candidates come in their order; looked up only for one without a place.
    candidate : int or None
        The candidate's place in its round, from 0, however many scorers there are.
    parameters : mapping or None
        The candidate's point of the grid, where it has one.
    call : object
        What one call of several scorers has to itself; None for a scorer alone.
    """

    test: Any
    by_sklearn: bool
    place: int | None
    in_order: bool
    candidate: int | None
    parameters: Mapping[str, Any] | None
    call: Any


def tests_around() -> list[Any]:
    """Return the test indices of the searches in whose midst this thread is, innermost first."""
    tests = []
    for frame in outside():
        if frame.is_search and (test := frame.local("test")) is not None:
            tests.append(test)
    return tests


def is_searching() -> bool:
    """Return whether this thread is in the midst of a search of scikit-learn."""
    return any(frame.is_search for frame in outside())


def scoring() -> Scoring | None:
    """Return what scikit-learn is scoring; None by hand, or from within a fit.

    The frames beyond the candidate's own are left alone where they decide nothing.
    """
    # Closed, for one that is left in its midst holds its own frame, and with it the folds.
    with closing(outside()) as frames:
        around: list[Frame] = []
        is_scoring, test = False, None
        for frame in frames:
            around.append(frame)
            if not frame.is_search:
                continue
            if not is_scoring and frame.place != SCORE.place:
                return None
            is_scoring = True
            test = frame.local("test")
            if test is not None:
                break
        if not is_scoring:
            return None
        candidate = parameters = None
        if test is not None and around[-1].place == ONE_FIT.place:
            progress, parameters = frame.local("candidate_progress"), frame.local("parameters")
            candidate = None if progress is None else int(progress[0])
        place, call = _place(around, candidate)
        in_order = place is None and any(
            frame.is_search and frame.place[1] in _IN_ORDER for frame in (*around, *frames)
        )
        by_sklearn = around[0].library == "sklearn"
        return Scoring(test, by_sklearn, place, in_order, candidate, parameters, call)


def _place(around: list[Frame], candidate: int | None) -> tuple[int | None, Any]:
    """Return the place of a candidate, and what one call of several scorers has to itself.

    Several scorers submit it once for each, in their order.
    """
    for frame in around:
        if not frame.module.startswith("sklearn.metrics."):
            break
        if frame.place == SCORERS.place:
            names = list(frame.owner._scorers)
            if candidate is not None:
                candidate = candidate * len(names) + names.index(frame.local("name"))
            return None if candidate is None else candidate + 1, frame.local("scores")
    return None if candidate is None else candidate + 1, None


def call_of_scorers() -> Any:
    """Return what the call of several scorers around this library has to itself, or None."""
    with closing(outside()) as frames:
        frame = next(frames)
    return frame.local("scores") if frame.place == SCORERS.place else None


def wishes(consumer: Frame) -> tuple[Any, Any] | None:
    """Return the ``scoring`` and the ``refit`` of a search of scikit-learn's, if it is one."""
    if not consumer.is_search and consumer.place not in _PASSING:
        return None
    if consumer.owner is None:
        return consumer.local("scoring"), None
    return getattr(consumer.owner, "scoring", None), getattr(consumer.owner, "refit", None)


def given_to_fits(consumer: Frame) -> dict[str, Any]:
    """Return what the fits of a search are given beside the rows, and its own parameters."""
    for frame in consumer.outward():
        if frame.place in (FIT.place, CROSS_VALIDATE.place):
            owner = frame.owner if frame.owner is not None else frame.local("estimator")
            own = owner.get_params(deep=True) if hasattr(owner, "get_params") else {}
            return {**own, **(frame.local("params") or {})}
    return {}


def n_jobs_of(consumer: Frame) -> Any:
    """Return the ``n_jobs`` of a search, or of a function that searches."""
    return getattr(consumer.owner, "n_jobs", consumer.local("n_jobs"))


def fit_around(consumer: Frame) -> Callable[[], Any] | None:
    """Return a weak reference to what one fit of a search alone has; None outside of a fit."""
    fit = _innermost_fit(consumer)
    own = None if fit is None else fit.local("evaluate_candidates")
    return None if own is None else weakref.ref(own)  # not there yet: it only lists the folds


def fit_ending(fit: Callable[[], Any] | None) -> Ending | None:
    """Return the innermost search of this thread, if it is in this fit and has its results.

    Folds of a fit that ended with an error may be let go late, in the midst of another one.
    """
    frame = _innermost_fit(caller())
    if frame is None or fit is None or frame.local("evaluate_candidates") is not fit():
        return None
    results = frame.local("results")
    if isinstance(results, Mapping) and "params" in results:
        return Ending(getattr(frame.owner, "refit", None), results)
    return None  # it ends with an error


def _innermost_fit(start: Frame) -> Frame | None:
    for frame in start.outward():
        if frame.place == FIT.place:
            return frame
    return None


def is_in_fit(estimator: Any) -> bool:
    """Return whether HistGradientBoosting is fitting, and scores rows that it has binned."""
    return bool(getattr(estimator, "_in_fit", False))


# -- Optuna ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial of OptunaSearchCV in whose midst this thread is.

    Attributes
    ----------
    trial : Trial
    epochs : bool
        Whether it scores after each epoch, for its pruner, and not by scikit-learn's folds.
    own : bool
        Whether its own candidate is being scored, and not one within its fit.
    """

    trial: Trial
    epochs: bool
    own: bool


def running_trial() -> RunningTrial | None:
    """Return the trial of OptunaSearchCV in whose midst this thread is, or None."""
    within: list[str] = []
    for frame in outside():
        if frame.place == ONE_TRIAL.place:
            # A candidate that is itself a search scores others within its fit.
            of_trial = within[:1] == [SCORE.name] and within.count(ONE_FIT.name) == 1
            return RunningTrial(frame.local("trial"), not within, of_trial)
        if frame.is_search:
            within.append(frame.place[1])
    return None


def loop_of(run: Frame, objective: object) -> object | None:
    """Return what the ``study.optimize`` that calls an objective has, and no other call.

    None where several threads do, or where something else calls it, such as a function around it.

    Parameters
    ----------
    run : Frame
        Who called the objective.
    objective : object
    """
    frames = run.outward()
    run, loop = next(frames), next(frames, None)
    if run.place != RUN_TRIAL.place or loop is None or loop.place != SEQUENTIAL.place:
        return None
    # Threads reseed the sampler. Which answers come first would then decide what is tried.
    alone = loop.local("reseed_sampler_rng") is False and run.local("func") is objective
    token: object = loop.local("time_start")
    return token if alone else None


def frozen(trial: Trial) -> FrozenTrial:
    """Return a running trial as its storage knows it now."""
    found: FrozenTrial = trial.study._storage.get_trial(trial._trial_id)
    return found


def is_feasible(trial: FrozenTrial) -> bool:
    """Return whether a trial keeps its constraints."""
    found = getattr(trial, "constraints", None)
    if found is not None:
        return all(value <= 0.0 for value in found.values())
    # Optuna 4 shows them among its own attributes alone.
    return all(value <= 0.0 for value in trial.system_attrs.get("constraints") or ())


def is_same_study(one: Study, other: Study) -> bool:
    """Return whether two objects are one study."""
    return one._storage is other._storage and one._study_id == other._study_id


# -- callbacks of scikit-learn, which are there from 1.9 on ------------------------------


def fit_tasks(estimator: Any, tasks: int) -> Any:
    """Begin the tasks of a fit, of which there will be so many; None where nobody can hear."""
    begin = getattr(estimator, "_init_callback_context", None)
    return None if begin is None else begin(max_subtasks=tasks)


# -- MLflow, which is imported when one of these is called ----------------------------


def autologging_off() -> AbstractContextManager[None] | None:
    """Return the switch that turns MLflow's autologging off; None where it is off."""
    from mlflow.utils import autologging_utils as autologging

    if autologging._AUTOLOGGING_GLOBALLY_DISABLED:
        return None
    switch: AbstractContextManager[None] = autologging.disable_autologging()
    return switch


def store_of(client: MlflowClient) -> Any:
    """Return where a client writes to."""
    return client._tracking_client.store


def load_sql_store() -> None:
    """Load MLflow's store for databases."""
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def try_server(uri: str, seconds: float) -> None:
    """Call a tracking server once, and raise what MLflow raises where it does not answer."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    http_request(  # type: ignore[no-untyped-call]
        get_default_host_creds(uri),  # type: ignore[no-untyped-call]
        "/health",
        "GET",
        max_retries=0,
        timeout=seconds,
        raise_on_status=False,
    )


# -- skorch ---------------------------------------------------------------------------


def modules_of(net: Any) -> list[Any]:
    """Return all modules of a skorch net: there may be more than ``module_``."""
    return [getattr(net, f"{name}_") for name in net._modules]
