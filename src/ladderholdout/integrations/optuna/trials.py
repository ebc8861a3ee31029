"""One trial: what was built of it, its batch, its submission, and the feedback to its study."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from ladderholdout.errors import (
    InvalidArgument,
    InvalidSubmission,
    LadderHoldoutError,
    LadderHoldoutWarning,
    SearchStopped,
    as_given,
    warn,
)
from ladderholdout.feedback import feedback_of, feedback_of_one_bit
from ladderholdout.guard import rounds
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.context import describe_estimator
from ladderholdout.guard.metric_views import Releases
from ladderholdout.guard.submission import Origin
from ladderholdout.guard.views import Release
from ladderholdout.metrics.responses import predicts
from ladderholdout.thirdparty import Frame, frozen, loop_of

if TYPE_CHECKING:
    from ladderholdout.guard.open_ladder import OpenLadder


@dataclass(slots=True)
class Call:
    """One call of `study.optimize`, as an objective sees it from trial to trial.

    Attributes
    ----------
    token : object
        What this call has and no other.
    there : dict of int to TrialState
        The trials that were there when it began.
    batch : str or None
        Of its submissions; None from the moment on when it is in doubt.
    """

    token: object
    there: dict[int, TrialState]
    batch: str | None = field(default_factory=lambda: uuid4().hex)
    _own: set[int] = field(default_factory=set)
    _shown: object = field(default_factory=rounds.latest)
    _open: bool = False

    def enter(self, trial: Trial) -> None:
        """Take a trial for one of this call."""
        if trial.number not in self.there and _was_waiting(frozen(trial)):
            self.batch = None  # somebody enqueued it, who may know what was released
        self._own.add(trial.number)

    def spot_of(self, trial: Trial, *, quiet: bool) -> Spot:
        """Return the batch of a trial that is about to be submitted, and its place there.

        Parameters
        ----------
        trial : Trial
        quiet : bool
            Whether its study will receive its guide, and its fit submits nothing.
        """
        undisturbed = not self._open and self._shown is rounds.latest()
        if not (quiet and undisturbed and self._is_alone(trial.study)):
            self.batch = None
        self._open = True
        return Spot(self.batch, len(self._own) if self.batch else None)

    def close(self) -> None:
        """Note that the trial came to its end as usual: its study receives its guide."""
        self._open = False

    def _is_alone(self, study: Study) -> bool:
        """Return whether nobody else runs, adds or finishes trials of this study."""
        return all(
            one.number in self._own
            or (one.state is not TrialState.RUNNING and self.there.get(one.number) is one.state)
            for one in study.get_trials(deepcopy=False)
        )


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
    # Within a fit, or within a trial of another study: those depend on the feedback in this one.
    rounds.loosen()
    there = {one.number: one.state for one in trial.study.get_trials(deepcopy=False)}
    return Call(token, there, _own={trial.number})


def _was_waiting(trial: FrozenTrial) -> bool:
    """Return whether somebody made a trial before the study asked for one."""
    return bool(trial.params or trial.user_attrs or "fixed_params" in trial.system_attrs)


KEY, INNER_SCORES = "ladder_key", "inner_scores"
SUBMISSION, IMPROVED, RELEASED = "ladder_submission", "ladder_improved", "ladder_released"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What `build` made of a trial, spelt out.

    Attributes
    ----------
    model : object
        A fitted estimator, or predictions for the holdout's rows.
    guide : float, mapping of str to float, or None
        Its score on the training side, in the metric's own sign: greater is better. Of several
        metrics that of each, by name.
    others : tuple of float
        In a multi-objective study, the values of the objectives that are not guarded.

    Examples
    --------
    >>> candidate = Candidate([0, 1], guide=0.8)
    >>> candidate.guide
    0.8
    """

    model: Any
    guide: float | Mapping[str, float] | None = None
    others: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Spot:
    """The batch of a submission, and its own place there."""

    batch: str | None = None
    place: int | None = None


_NO_BATCH = Spot()


def a_study(study: object) -> Study:
    """Validate a study."""
    if not isinstance(study, Study):
        raise InvalidArgument("study", "an optuna.Study", as_given(study))
    return study


def candidate_of(built: Any) -> Candidate:
    """Bring what `build` returned to a candidate."""
    if isinstance(built, tuple) and len(built) == 2:
        built = Candidate(*built)
    candidate = built if isinstance(built, Candidate) else Candidate(built)
    if candidate.model is None:
        raise InvalidArgument(
            "build",
            "a function that returns a fitted estimator or predictions, alone or with a guide",
            "one that returns None",
        )
    if isinstance(candidate.guide, Mapping):
        guides = {str(name): _a_guide(one) for name, one in candidate.guide.items()}
        return replace(candidate, guide=guides)
    return replace(candidate, guide=None if candidate.guide is None else _a_guide(candidate.guide))


def _a_guide(guide: object) -> float:
    if not (isinstance(guide, Real) and math.isfinite(guide)):
        raise InvalidArgument(
            "guide", "a finite number", "not one", "Take the training-side score of this model."
        )
    return float(guide)


def guides_of(holdout: OpenLadder, candidate: Candidate) -> dict[str, float | None]:
    """Return the inner score of a candidate by each metric; there are all of them, or none."""
    guide = candidate.guide
    names = list(holdout.by_metric) or [holdout.metric.name]
    if isinstance(guide, Mapping) and holdout.by_metric and set(guide) == set(names):
        return {name: guide[name] for name in names}
    if isinstance(guide, Mapping) or (guide is not None and holdout.by_metric):
        allowed = "a number"
        if holdout.by_metric:
            allowed = f"a mapping with a number for each of {', '.join(map(repr, names))}"
        raise InvalidArgument("guide", allowed, as_given(guide), "Or leave it out.")
    return dict.fromkeys(names, guide)


def check_feedback(
    holdout: OpenLadder, study: Study, candidate: Candidate, feedback: str, guarded: int
) -> None:
    """Refuse feedback that the study could not receive, before anything is submitted."""
    metrics = len(holdout.by_metric) or 1
    if len(study.directions) < metrics:
        raise InvalidArgument(
            "study",
            f"one with a direction for each of the {metrics} metrics of the holdout",
            f"one with {len(study.directions)}",
            f"optuna.create_study(directions={['maximize'] * metrics}), or take one metric, "
            f"holdout[{next(iter(holdout.by_metric))!r}].",
        )
    others = len(study.directions) - metrics
    if len(candidate.others) != others or not 0 <= guarded <= others:
        raise InvalidArgument(
            "others",
            f"the values of the other {others} objectives, with guarded= from 0 to {others}",
            f"{len(candidate.others)} values with guarded={guarded!r}",
            "Return Candidate(model, guide, others=(...)) from build.",
        )
    for guide in guides_of(holdout, candidate).values():
        # Any released score will do: whether there is feedback depends on policy and guide.
        feedback_of(feedback, 0.0, False, 1.0, guide)


def receives_guide(feedback: str, candidate: Candidate) -> bool:
    """Return whether a study receives the guide of this candidate, and nothing of the holdout."""
    return candidate.guide is not None and feedback in ("auto", "guide")


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
        release = guarded(holdout, candidate, context_of(trial.study, trial), key, spot)
    if silent:
        trial.set_user_attr(SUBMISSION, numbered(release))
    else:
        _note(trial, release)
    return release


def evaluate(holdout: OpenLadder, estimator: Any, trial: Trial, origin: Origin) -> Release:
    """Submit what OptunaSearchCV fitted in a trial, and note on the trial what was released."""
    described = {**origin.context, **context_of(trial.study, trial)}
    origin = replace(origin, context=described, key=key_of(holdout, trial))
    with stopping(trial):
        release = holdout.evaluate(estimator, origin)
    _note(trial, release)
    return release


def _note(trial: Trial, release: Release) -> None:
    trial.set_user_attr(SUBMISSION, numbered(release))
    if isinstance(release, Releases):
        each = release.by_metric.items()
        trial.set_user_attr(IMPROVED, {name: one.improved for name, one in each})
        trial.set_user_attr(RELEASED, {name: one.score for name, one in each})
        return
    trial.set_user_attr(IMPROVED, release.improved)
    if release.score is not None:
        trial.set_user_attr(RELEASED, release.score)


def numbered(release: Release) -> int | dict[str, int]:
    """Return the number of a submission as it is noted; by each of several metrics."""
    if isinstance(release, Releases):
        return {name: one.submission for name, one in release.by_metric.items()}
    return release.submission


@contextmanager
def stopping(trial: Trial) -> Iterator[None]:
    """Stop the study where the guard cannot answer; a model that is refused fails its trial."""
    try:
        yield
    except InvalidArgument:
        raise
    except LadderHoldoutError as error:
        # A study that catches exceptions would go on without the guard. Where the study
        # cannot be reached either, the guard's own error is the one to show.
        with suppress(Exception):
            trial.study.tell(trial, state=TrialState.FAIL)
        described = f"The guard cannot answer, so the study stops. {error}"
        # Optuna drops what the last trials of its threads raise (n_jobs > 1).
        if threading.current_thread() is not threading.main_thread():
            with suppress(LadderHoldoutWarning):
                warn(described, LadderHoldoutWarning)
        raise SearchStopped(described) from error


def guarded(
    holdout: OpenLadder,
    candidate: Candidate,
    context: dict[str, Any],
    key: str,
    spot: Spot = _NO_BATCH,
) -> Release:
    """Submit a candidate: its model with what is known of it, or its predictions."""
    if predicts(candidate.model):
        described = context | describe_estimator(candidate.model)
        try:
            origin = Origin(spot.batch, key=key, place=spot.place, context=described)
            return holdout.evaluate(candidate.model, origin)
        except LadderHoldoutError:
            raise
        except Exception as error:
            raise InvalidSubmission(
                "build",
                "a function whose model is fitted and predicts the holdout's rows",
                f"one whose model raises {type(error).__name__}",
                "Fit it on all training rows, or give inner= and train=.",
            ) from error
    origin = Origin(spot.batch, key=key, place=spot.place, context=context)
    return holdout.submit(candidate.model, origin)


def values_of(
    holdout: OpenLadder,
    study: Study,
    candidate: Candidate,
    release: Release,
    feedback: str,
    guarded: int,
) -> float | tuple[float, ...]:
    """Return the feedback to the study, in the sign of its directions."""
    guides = guides_of(holdout, candidate)
    if isinstance(release, Releases):
        each = release.by_metric.items()
        own = [
            _fed_back(holdout.by_metric[name], one, feedback, guides[name]) for name, one in each
        ]
    else:
        own = [_fed_back(holdout, release, feedback, *guides.values())]
    return among_others(study, own, candidate, guarded)


def among_others(
    study: Study, scores: Sequence[float], candidate: Candidate, guarded: int
) -> float | tuple[float, ...]:
    """Return scores in the sign of the study's directions, with its other objectives."""
    own = (in_direction(study, one, guarded + at) for at, one in enumerate(scores))
    values = [*candidate.others[:guarded], *own, *candidate.others[guarded:]]
    return float(values[0]) if len(values) == 1 else tuple(map(float, values))


def _fed_back(holdout: OpenLadder, release: Release, feedback: str, guide: float | None) -> float:
    """Return the feedback on the answer of one ladder."""
    if release.score is None:
        return feedback_of_one_bit(feedback, release.improvements, release.improved, guide)
    margin = holdout.guard().step_at(release.score)
    return feedback_of(feedback, release.score, release.improved, margin, guide)


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
    """Return where a submission came from."""
    return {"study": study.study_name, "trial": trial.number}
