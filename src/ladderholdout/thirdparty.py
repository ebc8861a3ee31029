"""What this library relies on beyond documented interfaces.

scikit-learn hands a splitter neither its search nor what is around it, and Optuna hands an
objective neither its loop nor its storage. Of scikit-learn three things are read: which fold a
candidate is fitted on (the variable ``test``), whose fits and which functions are running around
it, with the arguments that they were given (`consumers`), and the results of a search that is about
to end. Of Optuna, frames and private attributes by the names in `RELIANCES`; no other module reads
any. The tests find each name up in the installed versions, and a run with the oldest versions does
so there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
    "xgboost": ("2.1.0", "3.4.1"),
}
"""The oldest and the newest version of each library that the tests ran with."""

_LOOP, _STUDIES = "optuna.study._optimize", "optuna_integration.sklearn.sklearn"


def _sklearn(module: str, name: str, use: str, *variables: str) -> Reliance:
    return Reliance("scikit-learn", f"sklearn.{module}", name, use, variables)


def _mlflow(module: str, name: str, use: str) -> Reliance:
    return Reliance("mlflow-skinny", f"mlflow.{module}", name, use)


_BOOSTING = "ensemble._hist_gradient_boosting.gradient_boosting"

FIT = _sklearn("model_selection._search", "BaseSearchCV.fit", "what it is about to pick", "results")
ONE_FIT = _sklearn("model_selection._validation", "_fit_and_score", "its fold", "test")
ONE_PATH = _sklearn("linear_model._logistic", "_log_reg_scoring_path", "its fold", "test")
TASK = _sklearn("utils.parallel", "_FuncWrapper.__call__", "runs a task, in a worker")
IN_FIT = _sklearn(_BOOSTING, "BaseHistGradientBoosting._in_fit", "scores rows that it has binned")
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
BOOSTER = Reliance(
    "xgboost",
    "xgboost.training",
    "train",
    "the training rows, an objective of one's own, and what else ends training",
    ("dtrain", "obj", "callbacks", "early_stopping_rounds"),
)
CLASSIFIER = Reliance(
    "lightgbm", "lightgbm.sklearn", "LGBMClassifier.fit", "the labels that it learns", ("y",)
)
MODEL_CALLBACKS = Reliance(
    "lightgbm", "lightgbm.engine", "train", "what else ends training", ("callbacks_after_iter",)
)
EPOCH_CALLBACKS = Reliance(
    "keras",
    "keras.src.callbacks.callback_list",
    "CallbackList.on_train_begin",
    "what else ends training",
    ("self",),
)

RELIANCES = tuple(one for one in [*globals().values()] if isinstance(one, Reliance))
"""All of them."""

_TOOLS = ("sklearn.model_selection.", "sklearn.inspection.")


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
    def is_fit(self) -> bool:
        """Whether an estimator is being fitted here, or what an estimator does with folds."""
        fits = self.name.lstrip("_").startswith(("fit", "partial_fit"))
        return fits and hasattr(self.owner, "get_params")

    @property
    def is_tool(self) -> bool:
        """Whether it is a function of scikit-learn's that scores models, such as a curve."""
        module, name = self.place
        return module.startswith(_TOOLS) and name.isidentifier() and not name.startswith("_")

    @property
    def whose(self) -> Any:
        """The estimator that is fitted here, or the name of the tool."""
        return self.owner if self.is_fit else self.name

    def asked(self, name: str) -> Any:
        """Return a parameter of the estimator that is fitted here, or an argument of the tool."""
        return getattr(self.owner, name, None) if self.is_fit else self.local(name)


def caller(depth: int = 1) -> Frame:
    """Return the function that called the one that calls this; with `depth`, one further out."""
    return Frame(sys._getframe(depth + 1))


def outside() -> Iterator[Frame]:
    """Yield the functions of others in whose midst this thread is, outward."""
    return (frame for frame in caller().outward() if frame.library != "ladderholdout")


def consumers() -> Iterator[Frame]:
    """Yield the fits and the tools of scikit-learn in whose midst this thread is, outward.

    Of what fits itself by several methods, the innermost is the first.
    """
    return (frame for frame in outside() if frame.is_fit or frame.is_tool)


def is_searching() -> bool:
    """Return whether scikit-learn's model selection, or its inspection, runs in this thread."""
    return any(frame.module.startswith(_TOOLS) for frame in caller().outward())


def task() -> Frame | None:
    """Return the function of scikit-learn's that this thread runs as a worker; None outside of one.

    Nothing shows what began it.
    """
    frames = [frame for frame in caller().outward() if frame.library == "sklearn"]
    return frames[-2] if len(frames) > 1 and frames[-1].place == TASK.place else None


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


# -- scikit-learn ---------------------------------------------------------------------


def results_of(search: Any) -> Mapping[str, Any] | None:
    """Return the results of a search that is about to end in this thread; None where it is not."""
    frames = (frame for frame in consumers() if frame.place == FIT.place)
    frame = next(frames, None)
    found = frame.local("results") if frame is not None and frame.owner is search else None
    return found if isinstance(found, Mapping) and "params" in found else None


def is_in_fit(estimator: Any) -> bool:
    """Return whether HistGradientBoosting is fitting, and scores rows that it has binned."""
    return bool(getattr(estimator, "_in_fit", False))


# -- Optuna ---------------------------------------------------------------------------


def running_trial() -> Trial | None:
    """Return the trial of OptunaSearchCV in whose midst this thread is, or None."""
    trial: Trial | None = local_of(ONE_TRIAL, "trial")
    return trial


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
