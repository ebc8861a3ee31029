"""One trial: what was built of it, its batch, its submission, and the feedback to its study."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from numbers import Number
from typing import Any
from uuid import uuid4

import numpy as np
from optuna.exceptions import TrialPruned
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from ladderholdout import errors, thirdparty
from ladderholdout.arguments import as_given, choice, finite
from ladderholdout.feedback import POLICIES, check_policy, feedback_of, feedback_of_improvement
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.context import APART, describe_estimator, describe_parameters
from ladderholdout.guard.open_ladder import OpenLadder, Origin, margin_of
from ladderholdout.guard.seen import latest, new_batch
from ladderholdout.guard.views import Release
from ladderholdout.metrics.responses import is_model, predicts
from ladderholdout.thirdparty import Frame, frozen, loop_of


@dataclass(slots=True)
class Call:
    """One call of `study.optimize`, as an objective sees it from trial to trial.

    Attributes
    ----------
    token : object
        What this call has and no other.
    there : dict of int to FrozenTrial
        The trials that were there when it began, as they were then.
    batch : str or None
        Of its submissions; None from the moment on when it is in doubt.
    apart : str or None
        Why it is in doubt.
    """

    token: object
    there: dict[int, FrozenTrial]
    # Within a fit, or a trial of another study: those depend on the feedback in this one.
    batch: str | None = field(default_factory=new_batch)
    apart: str | None = None
    _own: set[int] = field(default_factory=set)
    _shown: object = field(default_factory=latest)
    _open: bool = False

    def enter(self, trial: Trial) -> None:
        """Take a trial for one of this call."""
        before = self.there.get(trial.number)
        if before is None and _was_waiting(frozen(trial)):
            # Somebody enqueued it, who may know what was released.
            self._doubt(f"trial {trial.number} was enqueued while the study ran")
        if before is not None and before.state is TrialState.RUNNING:
            self._doubt(f"trial {trial.number} ran beside the first one")
        self._own.add(trial.number)

    def spot_of(self, trial: Trial, *, quiet: bool) -> Spot:
        """Return the batch of a trial that is about to be submitted, and its place there.

        Parameters
        ----------
        trial : Trial
        quiet : bool
            Whether its study will receive its inner score, and its fit submits nothing.
        """
        if not quiet:
            self._doubt(f"trial {trial.number} had no inner score, or its model queries the guard")
        if self._open:
            self._doubt("the study did not receive the inner score of a trial that was submitted")
        if self._shown is not latest():
            self._doubt("something that was released was read while the study ran")
        if (other := self._beside(trial.study)) is not None:
            self._doubt(other)
        self._open = True
        return Spot(self.batch, len(self._own) if self.batch else None, self.apart)

    def close(self) -> None:
        """Note that the trial came to its end as usual: its study receives its inner score."""
        self._open = False

    def _doubt(self, why: str) -> None:
        self.batch, self.apart = None, self.apart or why

    def _beside(self, study: Study) -> str | None:
        """Return what somebody else did in this study since the call began, None for nothing.

        A trial that a process left behind is nothing new to the sampler, while nobody touches it.
        """
        for one in study.get_trials(deepcopy=False):
            if one.number in self._own:
                continue
            before = self.there.get(one.number)
            if before is None or not _is_untouched(before, one):
                what = "runs" if one.state is TrialState.RUNNING else "was added, or changed,"
                return f"trial {one.number} of the study {what} beside the others"
        return None


def _is_untouched(before: FrozenTrial, now: FrozenTrial) -> bool:
    """Return whether a trial that this call does not run is as it was."""
    if before.state is not now.state:
        return False
    if now.state is not TrialState.RUNNING:
        return True
    return all(
        _same(getattr(before, name), getattr(now, name))
        for name in ("params", "intermediate_values", "user_attrs", "system_attrs")
    )


def _same(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> bool:
    """Return whether two mappings hold the same; values in memory may be arrays or models."""
    return before.keys() == now.keys() and all(
        value is before[key] or (type(value) in _PLAIN and value == before[key])
        for key, value in now.items()
    )


_PLAIN = (bool, int, float, str, type(None))


def call_of(frame: Frame, objective: object, trial: Trial, known: Call | None) -> Call | None:
    """Return the call of `study.optimize` that runs a trial, None if it is another thing.

    Parameters
    ----------
    frame : Frame
        Who called the objective.
    objective : object
        It has to be what the study optimises: a function around it may report more to the study.
    trial : Trial
    known : Call or None
        The call that ran the objective's last trial.
    """
    token = loop_of(frame, objective)
    if token is None:
        return None
    if known is None or known.token is not token:
        return _begun(token, trial)
    known.enter(trial)
    return known


def _begun(token: object, trial: Trial) -> Call:
    there = {
        one.number: _copied(one) if one.state is TrialState.RUNNING else one
        for one in trial.study.get_trials(deepcopy=False)
    }
    return Call(token, there, _own={trial.number})


def _copied(trial: FrozenTrial) -> FrozenTrial:
    """Return a copy of a trial as it is now; a storage in memory hands out its own."""
    taken = copy(trial)
    taken.params, taken.distributions = dict(trial.params), dict(trial.distributions)
    taken.intermediate_values = dict(trial.intermediate_values)
    taken.user_attrs, taken.system_attrs = dict(trial.user_attrs), dict(trial.system_attrs)
    return taken


def built_again(build: Callable[[Any], Any], trial: FrozenTrial) -> Any:
    """Return what a build returns for a copy of a finished trial.

    Raises
    ------
    InvalidArgument
        It prunes the trial, or asks it for what only a running trial has.
    """
    finished = _copied(trial)
    try:
        return build(finished)
    except TrialPruned:
        came = "one that prunes the trial by itself"
        remedy = "Let it prune only where trial.should_prune() returns True."
    except AttributeError as error:
        if error.obj is not finished:
            raise
        came = f"one that asks the trial for {error.name!r}, which a finished one lacks"
        remedy = _FINISHED
    except ValueError as error:
        if thirdparty.raised_by(error) != "optuna":
            raise
        came, remedy = f"one that is refused by Optuna: {error}", _FINISHED
    raise errors.InvalidArgument(
        "build",
        f"a function that builds the model of finished trial {trial.number} again, by the "
        "parameters that the trial has",
        came,
        remedy,
    )


_FINISHED = (
    "A finished trial has no study, no storage and no further parameters. Keep what only a "
    "running one can do under: if isinstance(trial, optuna.Trial). Or give a function that "
    "builds the model and no more; the study need not run again."
)


def _was_waiting(trial: FrozenTrial) -> bool:
    """Return whether somebody made a trial before the study asked for one."""
    return bool(trial.params or trial.user_attrs or "fixed_params" in trial.system_attrs)


KEY, INNER_SCORES = "ladder_key", "inner_scores"
SUBMISSION, IMPROVED, RELEASED = "ladder_submission", "ladder_improved", "ladder_released"
BLOCK = "ladder_block"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What `build` made of a trial, spelt out.

    Attributes
    ----------
    model : object
        A fitted estimator, or predictions for the holdout's rows.
    inner_score : float, mapping of str to float, or None
        Its score on the training side, in the metric's own sign: greater is better. Of several
        metrics that of each, by name.
    others : tuple of float
        In a multi-objective study, the values of the objectives that are not guarded.

    Examples
    --------
    >>> candidate = Candidate([0, 1], inner_score=0.8)
    >>> candidate.inner_score
    0.8
    """

    model: Any
    inner_score: float | Mapping[str, float] | None = None
    others: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Spot:
    """The batch of a submission, its own place there, and why it has none."""

    batch: str | None = None
    place: int | None = None
    apart: str | None = None


_NO_BATCH = Spot()


def a_study(study: object) -> Study:
    """Validate a study."""
    if not isinstance(study, Study):
        raise errors.InvalidArgument("study", "an optuna.Study", as_given(study))
    return study


_REMEDY = "Take the training-side score of this model."


def candidate_of(built: Any, *, fits: bool = False, clones: bool = False) -> Candidate:
    """Bring what `build` returned to a candidate; refuse what is none.

    Parameters
    ----------
    built : object
    fits : bool
        Whether the library fits the model, on the training rows that it has.
    clones : bool
        Whether it fits copies of it as well, on inner folds.
    """
    if isinstance(built, tuple) and (len(built) == 2 or _holds_no_labels(built)):
        if len(built) != 2:
            raise _no_model(f"one that returns a tuple of {len(built)}", fits)
        if is_model(built[1]) and not is_model(built[0]):
            raise _no_model("one that returns the model second", fits)
        built = Candidate(*built)
    candidate = built if isinstance(built, Candidate) else Candidate(built)
    _check_model(candidate.model, fits, clones)
    if not isinstance(candidate.others, tuple | list):
        raise errors.InvalidArgument("others", "a tuple of numbers", as_given(candidate.others))
    inner_score, others = candidate.inner_score, tuple(candidate.others)
    if isinstance(inner_score, Mapping):
        inner_scores = {
            str(name): finite("inner_score", one, _REMEDY) for name, one in inner_score.items()
        }
        return replace(candidate, inner_score=inner_scores, others=others)
    inner_score = None if inner_score is None else finite("inner_score", inner_score, _REMEDY)
    return replace(candidate, inner_score=inner_score, others=others)


_RETURN = {
    False: "a function that returns a fitted estimator or predictions, alone or with an inner "
    "score, as (model, score)",
    True: "a function that returns an estimator, which is then fitted on the rows of train=, "
    "alone or with an inner score, as (model, score)",
}
_SCORE = (
    "Return the model in place of its score: inner= and train= compute the inner score, or return "
    "both, (model, score)."
)


def _no_model(came: str, fits: bool, remedy: str = "") -> errors.InvalidArgument:
    return errors.InvalidArgument("build", _RETURN[fits], came, remedy)


def _holds_no_labels(built: tuple[Any, ...]) -> bool:
    """Return whether a tuple is no row of predictions: a model or one array is in it."""
    many = {hasattr(one, "__len__") and not isinstance(one, str | bytes) for one in built}
    return len(many) == 2 or any(map(is_model, built))


def _check_model(model: Any, fits: bool, clones: bool) -> None:
    """Refuse at once what cannot be fitted, or cannot predict the holdout's rows."""
    if model is None:
        raise _no_model("one that returns None", fits, "Let it end with: return model.")
    if isinstance(model, type):
        raise _no_model("one that returns a class", fits, "Return an instance of it.")
    if isinstance(model, str | bytes | Number | np.generic):
        raise _no_model("one that returns a number or a text", fits, _SCORE)
    if fits:
        _check_unfitted(model, clones)
    elif predicts(model):
        _check_fitted(model)
    elif not _are_predictions(model):
        raise _no_model(f"one that returns {as_given(model)}", fits, _SCORE)


def _are_predictions(value: Any) -> bool:
    """Return whether something may be predictions: an array or the like, or one for each metric."""
    if isinstance(value, Mapping):
        return bool(value) and all(
            _are_predictions(one) and not is_model(one) for one in value.values()
        )
    if isinstance(value, str | bytes):
        return False
    return bool(getattr(value, "shape", hasattr(value, "__len__")))


def _check_unfitted(model: Any, clones: bool) -> None:
    """Refuse what the library cannot fit on the training rows, or cannot copy to do so."""
    if not callable(getattr(model, "fit", None)):
        remedy = _SCORE if isinstance(model, Mapping) else "Leave inner= and train= out."
        raise _no_model(f"one that returns {as_given(model)}, which has no fit", True, remedy)
    if clones and not callable(getattr(model, "get_params", None)):
        raise _no_model(
            f"one that returns {as_given(model)}, which scikit-learn cannot clone",
            True,
            "Leave inner= and train= out, fit it in build, and return (model, score).",
        )


def _check_fitted(model: Any) -> None:
    """Refuse a model that has surely not been fitted: nothing has been learnt on it."""
    if is_unfitted(model):
        raise _no_model(
            f"one that returns {as_given(model)} that is not fitted",
            False,
            "Fit it on all training rows in build, or give inner= and train=.",
        )


def is_unfitted(model: Any) -> bool:
    """Return whether a model has surely not been fitted; where that cannot be known, it has.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> is_unfitted(DecisionTreeClassifier()), is_unfitted(object())
    (True, False)
    """
    try:
        if callable(getattr(model, "is_fitted", None)):  # as CatBoost's
            return model.is_fitted() is False
        if not isinstance(model, BaseEstimator):
            return False
        check_is_fitted(model)
    except NotFittedError:
        # A class of the user's may keep what it learnt under names of its own.
        learnt = set(vars(model)) - set(model.get_params(deep=False))
        return hasattr(model, "__sklearn_is_fitted__") or not learnt
    except Exception:  # whatever its own methods raise
        return False
    return False


def inner_scores_of(holdout: OpenLadder, candidate: Candidate) -> dict[str, float | None]:
    """Return the inner score of a candidate by each metric; there are all of them, or none."""
    inner_score = candidate.inner_score
    names = list(holdout.by_metric) or [holdout.metric.name]
    if isinstance(inner_score, Mapping) and holdout.by_metric and set(inner_score) == set(names):
        return {name: inner_score[name] for name in names}
    if isinstance(inner_score, Mapping) or (inner_score is not None and holdout.by_metric):
        allowed = "a number"
        if holdout.by_metric:
            allowed = f"a mapping with a number for each of {', '.join(map(repr, names))}"
        raise errors.InvalidArgument(
            "inner_score", allowed, as_given(inner_score), "Or leave it out."
        )
    return dict.fromkeys(names, inner_score)


def policy_of(holdout: OpenLadder, feedback: str) -> str:
    """Validate the feedback that a study is to receive."""
    choice("feedback", feedback, POLICIES)
    for ladder in (*holdout.by_metric.values(), holdout):
        check_policy(feedback, shows_scores=ladder.facts.rules.shows_scores)
    return feedback


def check_feedback(
    holdout: OpenLadder, study: Study, candidate: Candidate, feedback: str, guarded: int
) -> None:
    """Refuse feedback that the study could not receive, before anything is submitted."""
    check_objectives(holdout, study, candidate, guarded)
    for inner_score in inner_scores_of(holdout, candidate).values():
        # Any released score will do: whether there is feedback depends on policy and inner score.
        feedback_of(feedback, 0.0, False, 1.0, inner_score)


def check_objectives(holdout: OpenLadder, study: Study, candidate: Candidate, guarded: int) -> None:
    """Refuse a candidate that has no value for each objective of the study."""
    metrics = len(holdout.by_metric) or 1
    if len(study.directions) < metrics:
        raise errors.InvalidArgument(
            "study",
            f"one with a direction for each of the {metrics} metrics of the holdout",
            f"one with {len(study.directions)}",
            f"optuna.create_study(directions={['maximize'] * metrics}), or take one metric, "
            f"holdout[{next(iter(holdout.by_metric))!r}].",
        )
    others = len(study.directions) - metrics
    if len(candidate.others) != others or not 0 <= guarded <= others:
        raise errors.InvalidArgument(
            "others",
            f"the values of the other {others} objectives, with guarded= from 0 to {others}",
            f"{len(candidate.others)} values with guarded={guarded!r}",
            "Return Candidate(model, inner_score, others=(...)) from build.",
        )


def receives_inner_score(feedback: str, candidate: Candidate) -> bool:
    """Return whether a study receives the inner score of this candidate, and no answer."""
    return candidate.inner_score is not None and feedback in ("auto", "inner")


def submit(
    holdout: OpenLadder,
    trial: Trial,
    candidate: Candidate,
    key: str,
    spot: Spot = _NO_BATCH,
    *,
    silent: bool = False,
) -> Release:
    """Submit what was built of a trial, and note on the trial which submission it is.

    Unless it is to be silent, with what was released.
    """
    with stopping(trial):
        origin = origin_of(candidate, context_of(trial.study, trial), key, spot)
        release = holdout.submit(predictions_of(holdout, candidate), origin)
    _note(trial, holdout, release, silent=silent)
    return release


def submit_fitted(holdout: OpenLadder, estimator: Any, trial: Trial, origin: Origin) -> Release:
    """Submit what OptunaSearchCV fitted in a trial, and note on the trial what was released."""
    described = {**origin.context, **context_of(trial.study, trial)}
    origin = replace(origin, context=described, key=key_of(holdout, trial))
    with stopping(trial):
        release = holdout.submit(holdout.predict(estimator), origin)
    _note(trial, holdout, release)
    return release


def _note(trial: Trial, holdout: OpenLadder, release: Release, *, silent: bool = False) -> None:
    trial.set_user_attr(SUBMISSION, numbered(release))
    if holdout.facts.block > 1:  # submissions are numbered anew on fresh rows
        trial.set_user_attr(BLOCK, holdout.facts.block)
    if silent:
        return
    if release.by_metric:
        each = release.by_metric.items()
        trial.set_user_attr(IMPROVED, {name: one.improved for name, one in each})
        trial.set_user_attr(RELEASED, {name: one.score for name, one in each})
        return
    trial.set_user_attr(IMPROVED, release.improved)
    if release.score is not None:
        trial.set_user_attr(RELEASED, release.score)


def numbered(release: Release) -> int | dict[str, int]:
    """Return the number of a submission as it is noted; by each of several metrics."""
    if release.by_metric:
        return {name: one.submission for name, one in release.by_metric.items()}
    return release.submission


@contextmanager
def stopping(trial: Trial) -> Iterator[None]:
    """Stop the study where the guard cannot answer; a model that is refused fails its trial."""
    try:
        yield
    except errors.InvalidArgument:
        raise
    except errors.LadderHoldoutError as error:
        # A study that catches exceptions would go on without the guard. Where the study
        # cannot be reached either, the guard's own error is the one to show.
        with suppress(Exception):
            trial.study.tell(trial, state=TrialState.FAIL)
        described = f"The guard cannot answer, so the study stops. {error}"
        # Optuna drops what the last trials of its threads raise (n_jobs > 1).
        if threading.current_thread() is not threading.main_thread():
            with suppress(errors.LadderHoldoutWarning):
                errors.warn(described, errors.LadderHoldoutWarning)
        raise errors.SearchStopped(described) from error


def predictions_of(holdout: OpenLadder, candidate: Candidate) -> Any:
    """Return what a candidate's model predicts on the holdout, or its predictions."""
    if not predicts(candidate.model):
        return candidate.model
    try:
        return holdout.predict(candidate.model)
    except errors.LadderHoldoutError:
        raise
    except Exception as error:
        raise errors.InvalidSubmission(
            "build",
            "a function whose model is fitted and predicts the holdout's rows",
            f"one whose model raises {type(error).__name__}",
            "Fit it on all training rows, or give inner= and train=.",
        ) from error


def origin_of(
    candidate: Candidate, context: Mapping[str, Any], key: str, spot: Spot = _NO_BATCH
) -> Origin:
    """Return where the submission of a candidate comes from: its trial, its model, its batch."""
    if spot.apart is not None:
        context = {**context, APART: spot.apart}
    if predicts(candidate.model):
        described = describe_estimator(candidate.model)
        parameters = described.get("parameters", {}) | context.get("parameters", {})
        context = {**context, **described} | ({"parameters": parameters} if parameters else {})
    return Origin(spot.batch, key=key, place=spot.place, context=context)


def values_of(
    holdout: OpenLadder,
    study: Study,
    candidate: Candidate,
    release: Release,
    feedback: str,
    guarded: int,
) -> float | tuple[float, ...]:
    """Return the feedback to the study, in the sign of its directions."""
    inner_scores = inner_scores_of(holdout, candidate)
    if release.by_metric:
        each = release.by_metric.items()
        own = [
            _fed_back(holdout.by_metric[name], one, feedback, inner_scores[name])
            for name, one in each
        ]
    else:
        own = [_fed_back(holdout, release, feedback, *inner_scores.values())]
    return among_others(study, own, candidate, guarded)


def among_others(
    study: Study, scores: Sequence[float], candidate: Candidate, guarded: int
) -> float | tuple[float, ...]:
    """Return scores in the sign of the study's directions, with its other objectives."""
    own = (in_direction(study, one, guarded + at) for at, one in enumerate(scores))
    values = [*candidate.others[:guarded], *own, *candidate.others[guarded:]]
    return float(values[0]) if len(values) == 1 else tuple(map(float, values))


def _fed_back(
    holdout: OpenLadder, release: Release, feedback: str, inner_score: float | None
) -> float:
    """Return the feedback on the answer of one ladder."""
    if release.score is None:
        return feedback_of_improvement(
            feedback, release.improvements, release.has_held, inner_score
        )
    margin, held = margin_of(holdout, release.score), release.improved or release.is_incumbent
    return feedback_of(feedback, release.score, held, margin, inner_score)


def in_direction(study: Study, score: float, guarded: int = 0) -> float:
    """Turn a score into a value of the study's direction, or back."""
    return score if study.directions[guarded] is StudyDirection.MAXIMIZE else -score


def key_of(holdout: OpenLadder, trial: Trial) -> str:
    """Return the trial's own key: Optuna hands it on to the trial that retries it.

    Drawn anew for each trial, for neither names nor numbers of studies in memory are unique.
    """
    key = trial.user_attrs.get(KEY)
    if isinstance(key, str):
        return key

    # A storage without row locks (SQLite) may hand a waiting trial to two workers at once:
    # whoever holds the ladder draws the key, and the other finds it.
    def draw() -> str:
        key = frozen(trial).user_attrs.get(KEY)
        if not isinstance(key, str):
            key = uuid4().hex
            trial.set_user_attr(KEY, key)
        return key

    with stopping(trial), without_frames:
        return holdout.alone(draw)


def context_of(study: Study, trial: Trial | FrozenTrial) -> dict[str, Any]:
    """Return where a submission came from, with the parameters of its trial."""
    found = {"study": study.study_name, "trial": trial.number}
    parameters = describe_parameters(trial.params)
    return found | ({"parameters": parameters} if parameters else {})
