"""One MLflow run and what it holds of a ladder, brought up to date again and again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ladderholdout.errors import HoldoutConflict
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.views import Submission, Unsent
from ladderholdout.integrations.mlflow import service as names
from ladderholdout.integrations.mlflow.page import describe
from ladderholdout.integrations.mlflow.service import faults_named, living_run, require
from ladderholdout.ledger.log import Progress
from ladderholdout.thirdparty import store_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

_BATCH = 400
"""Submissions in a request: MLflow takes a thousand values at most, tags included."""


@dataclass(slots=True)
class Copy:
    """A run of MLflow that holds a ladder's series, from its first submission on.

    Parameters
    ----------
    holdout : OpenLadder
    uri : str
    client : MlflowClient
    run_id : str
    kind : str
        The analyst's run, or the audit's, which alone holds raw scores.

    Attributes
    ----------
    keys : tuple of str
        The metrics of the run.
    last : int
        The last submission that the run is known to hold; 0 before it was read, and where a
        request failed: it may have arrived all the same.
    """

    holdout: OpenLadder
    uri: str
    client: MlflowClient
    run_id: str
    kind: str
    keys: tuple[str, ...] = field(init=False)
    last: int = field(default=0, init=False)
    _later: tuple[int, int, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Settle the metrics: with improvements alone there is one for these."""
        raw = (names.RAW_KEY,) if self.kind == names.AUDIT else ()
        bit = () if self.holdout.facts.rules.shows_scores else (names.IMPROVED_KEY,)
        reserve = (names.RESERVE_KEY,) if self.holdout.facts.n_reserve else ()
        self.keys = (names.RELEASED_KEY, names.ESTIMATE_KEY, *raw, *bit, *reserve)

    def bring(self, progress: Progress | None = None) -> int:
        """Send what the ledger holds and the run does not; return how many submissions.

        Raises
        ------
        TrackingError
            MLflow does not answer, or refuses.
        HoldoutConflict
            The run holds another series than the ledger.
        LedgerError
            The ledger cannot be read.
        """
        seen = self._after(self.last)
        if self.last and seen.later != self._later:
            # Something was shown of what the run holds already.
            self.last = 0
            seen = self._after(0)
        if not seen.submissions:
            return 0
        require(self.uri)
        total = 0 if progress is None else self.holdout.execute(commands.State()).submissions
        with faults_named(self.uri):
            living_run(self.client, self.run_id)
            held = self._held() if self.last == 0 else {}
            self.last = last = sent = 0
            later = seen.later
            while seen.submissions:
                sent += self._log(held, seen)
                last = seen.submissions[-1].number
                seen = self._after(last)
                if progress is not None:
                    progress(last, max(last, total))
        self.last, self._later = last, later
        return sent

    def _after(self, number: int) -> Unsent:
        raw = self.kind == names.AUDIT
        return self.holdout.unsent(after=number, raw=raw, limit=_BATCH)

    def describe(self) -> None:
        """Make the run's page readable: its note, the holdout as its input, the picture.

        Raises
        ------
        TrackingError
            MLflow does not answer, or refuses; the series is complete all the same.
        """
        require(self.uri)
        with faults_named(self.uri):
            describe(self.client, self.run_id, self.holdout, self.kind)

    def end(self, status: str = "FINISHED") -> None:
        """Set the run's status; `MlflowClient.set_terminated` would print its address as well."""
        with faults_named(self.uri):
            self.client.update_run(self.run_id, status=status)

    def _held(self) -> dict[str, dict[int, float]]:
        """Return what the run holds, by key and step: no tag of its own is as reliable."""
        return {
            key: {one.step: one.value for one in self.client.get_metric_history(self.run_id, key)}
            for key in self.keys
        }

    def _lacks(
        self, held: Mapping[str, Mapping[int, float]], number: int, values: Mapping[str, float]
    ) -> bool:
        found = {key: steps[number] for key, steps in held.items() if number in steps}
        # Some databases round the last digits.
        if not all(math.isclose(values.get(key, math.nan), value) for key, value in found.items()):
            raise HoldoutConflict(
                f"The MLflow run {self.run_id} holds another value for submission "
                f"{number} than the ledger. Was one of them changed? "
                "ladder-holdout verify NAME checks whether the ledger was."
            )
        return len(found) < len(values)

    def _log(self, held: Mapping[str, Mapping[int, float]], seen: Unsent) -> int:
        """Send what the run lacks of some submissions, and how far it goes now."""
        from mlflow.entities import Metric, RunTag

        sent, metrics = 0, []
        for submission in seen.submissions:
            values = self._values(submission, seen)
            if self._lacks(held, submission.number, values):
                sent += 1
                # The ledger's own time: sent twice, it is the same row, which SQL stores keep once.
                moment = round(submission.time.timestamp() * 1000)
                for key, value in values.items():
                    metrics.append(Metric(key, value, moment, submission.number))
        tags = [RunTag(names.ENTRIES, str(seen.submissions[-1].number))]
        if seen.head is not None:  # how far the chain went then
            tags.append(RunTag(names.HEAD, f"{seen.head.length} {seen.head.hash}"))
        # Not by the client's own log_batch: it hangs every metric, raw ones too, on the model
        # that is active in the thread or the environment, for the analyst to see.
        store_of(self.client).log_batch(self.run_id, metrics=metrics, params=[], tags=tags)
        return sent

    def _values(self, submission: Submission, seen: Unsent) -> dict[str, float]:
        values = {
            names.RELEASED_KEY: submission.score,
            names.RAW_KEY: seen.raw.get(submission.number),
            names.IMPROVED_KEY: float(submission.improved),
            names.RESERVE_KEY: seen.reserve.get(submission.number),
            names.ESTIMATE_KEY: seen.estimates.get(submission.number),
        }
        # What was not asked for is not sent; it comes when it is.
        return {key: value for key in self.keys if (value := values[key]) is not None}
