"""Winners: the trial that holds the ladder, and a gate before the holdout."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from ladderholdout.errors import InvalidArgument, LadderHoldoutWarning
from ladderholdout.holdout.views import Release
from ladderholdout.integrations.optuna.trials import (
    SUBMISSION,
    candidate_of,
    context_of,
    guarded,
)
from ladderholdout.ledger import Ledger

if TYPE_CHECKING:
    from ladderholdout.holdout.studies import StudyHandle


class Gate:
    """A study callback that consults the holdout when the study's own best improves.

    For people who optimise a cross-validation score: the holdout is asked about few models,
    and says when progress on the training side is no longer confirmed.

    Parameters
    ----------
    holdout : LadderHoldout
    build : callable
        From a finished trial (``FrozenTrial`` has the ``suggest_`` methods too) to a fitted
        estimator or predictions.
    patience : int
        After so many improvements in a row that the holdout did not confirm, warn.
    stop : bool
        And stop the study.
    """

    def __init__(
        self,
        holdout: StudyHandle,
        build: Callable[[FrozenTrial], Any],
        *,
        patience: int,
        stop: bool,
    ) -> None:
        self._holdout, self._build, self._patience, self._stop = holdout, build, patience, stop
        self.releases: list[Release] = []

    def __call__(self, study: Study, trial: FrozenTrial) -> None:
        """Ask the holdout if this trial is the study's best so far."""
        if trial.state is not TrialState.COMPLETE or _best_number(study) != trial.number:
            return
        candidate = candidate_of(self._build(trial))
        release = guarded(self._holdout, candidate, context_of(study, trial), None)
        self.releases.append(release)
        unconfirmed = 0
        for earlier in reversed(self.releases):
            if earlier.improved and not earlier.repeat:
                break
            unconfirmed += 1
        if unconfirmed >= self._patience:
            warnings.warn(
                f"The study's own score improved {unconfirmed} times in a row and the holdout "
                "confirmed none of it: further progress on the training side is probably noise.",
                LadderHoldoutWarning,
                stacklevel=2,
            )
            if self._stop:
                study.stop()


def best_trial(holdout: StudyHandle, study: Study) -> FrozenTrial:
    """Return the trial that holds the ladder; see `LadderHoldout.best_trial`."""
    with Ledger(holdout.ledger).read() as tx:
        known = {entry.number: entry for entry in tx.entries(holdout._ladder_id)}
    found = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        entry = known.get(trial.user_attrs.get(SUBMISSION, 0))
        if entry is not None and entry.improved and _feasible(trial):
            found.append((entry.number, -trial.number, trial))
    if not found:
        raise InvalidArgument(
            "study",
            "one with a feasible trial that improved the standing release",
            "one without",
            "What stands is from elsewhere: see holdout.status().",
        )
    return max(found, key=lambda it: it[:2])[2]


def _feasible(trial: FrozenTrial) -> bool:
    return all(value <= 0.0 for value in trial.constraints.values())


def _best_number(study: Study) -> int | None:
    try:
        return study.best_trial.number
    except ValueError:
        return None
