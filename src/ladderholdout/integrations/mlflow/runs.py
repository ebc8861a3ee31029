"""The two runs of a ladder: found by their tags or made, brought up to date, and for whose eyes."""

from __future__ import annotations

import logging
import math
import os
import shlex
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from ladderholdout.arguments import text
from ladderholdout.errors import HoldoutConflict, InvalidArgument, LadderHoldoutError, TrackingError
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.views import Submission, Unsent
from ladderholdout.integrations.mlflow import service as names
from ladderholdout.integrations.mlflow.page import describe
from ladderholdout.ledger.log import Progress
from ladderholdout.ledger.place import is_memory, resolve_url, shown
from ladderholdout.process import PerProcess
from ladderholdout.thirdparty import store_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_PARENT = "mlflow.parentRunId"
_BATCH = 400
"""Submissions in a request: MLflow takes a thousand values at most, tags included."""


# -- which run of the analyst -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunChoice:
    """Which run of the analyst a ladder's series goes into.

    Attributes
    ----------
    run_id : str or None
        One that is there; None for a new one.
    experiment : str or None
        Where a new one goes; None for the experiment called like the holdout.
    parent : str or None
        The run below which a new one goes, in the experiment of that.
    sealed : bool
        Whether raw scores stay in the ledger before an audit.
    experiment_id : str or None
        The same as `experiment`, by its number: what MLflow's own settings name.
    token : str
        What a new run is known by, should the answer to its creation be lost.
    """

    run_id: str | None
    experiment: str | None
    parent: str | None
    sealed: bool
    experiment_id: str | None = None
    token: str = field(default_factory=lambda: uuid4().hex)


# Which ladder writes into which run, as far as this process knows.
_claims: dict[tuple[str, str], str] = {}
_lock = PerProcess(threading.Lock)


def claim(
    holdout: OpenLadder,
    places: names.Places,
    run_id: str | None,
    experiment: str | None,
    sealed: bool,
) -> RunChoice:
    """Settle the analyst's run: the stated one, the active one, or a new one.

    A run holds one ladder's series: a second ladder that is tracked beside it gets a run of
    its own below it.
    """
    check_stated(run_id, experiment)
    own = own_run(places.analyst) if run_id is None and experiment is None else None
    if own is None:
        return choice_of(places.analyst, run_id, experiment, sealed)
    ladder = names.identity(holdout.facts)
    with _lock():
        taken = _claims.setdefault((places.analyst, own), ladder) != ladder
    return RunChoice(None, None, own, sealed) if taken else RunChoice(own, None, None, sealed)


def choice_of(uri: str, run_id: str | None, experiment: str | None, sealed: bool) -> RunChoice:
    """Return what is stated, else a new run: in MLflow's own experiment, or the holdout's."""
    number = None
    if run_id is None and experiment is None and names.is_own(uri):
        # mlflow.set_experiment sets the number, so that subprocesses inherit it.
        number = os.environ.get("MLFLOW_EXPERIMENT_ID") or None
        if number is None:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or None
    return RunChoice(run_id, experiment, None, sealed, number)


def check_stated(run_id: str | None, experiment: str | None) -> None:
    """Validate how a caller names the analyst's run."""
    for name, value in (("run_id", run_id), ("experiment", experiment)):
        if value is not None:
            text(name, value)
    if run_id is not None and experiment is not None:
        raise InvalidArgument("experiment", "left out where run_id is given", "given as well")


def own_run(uri: str) -> str | None:
    """Return the run of MLflow's own settings at a server: the active one, or MLFLOW_RUN_ID."""
    import mlflow

    if not names.is_own(uri):
        return None
    run = mlflow.active_run()
    return os.environ.get("MLFLOW_RUN_ID") or None if run is None else str(run.info.run_id)


# -- found or made ----------------------------------------------------------------------------


def analyst_run(holdout: OpenLadder, uri: str, wish: RunChoice) -> Copy:
    """Return the analyst's run, tied to the ladder from now on.

    Raises
    ------
    TrackingError
        There is no such run, or another ladder's series is in it.
    """
    client, tags = names.connect(uri), names.tags(holdout, names.ANALYST)
    tags[names.RAW] = "sealed" if wish.sealed else "live"
    run_id = wish.run_id
    with names.faults_named(uri):
        if run_id is None:
            place, token = _place(client, holdout, wish), {names.TOKEN: wish.token}
            before = names.find(client, token, [place])
            above = {} if wish.parent is None else {_PARENT: wish.parent}
            run_id = before[0].info.run_id if before else _made(client, place, tags | token | above)
        else:
            _tie(client, run_id, tags)
    return Copy(holdout, uri, client, run_id, names.ANALYST)


def audit_run(holdout: OpenLadder, uri: str) -> Copy:
    """Return the ladder's one audit run, made if there is none."""
    client, tags = names.connect(uri), names.tags(holdout, names.AUDIT)
    with names.faults_named(uri, quoted=False):
        place = names.experiment_id(client, audit_experiment(holdout))
        runs = names.find(client, _key(tags), [place])
        if not runs:
            made = _made(client, place, tags)
            client.update_run(made, status="FINISHED")
            runs = names.find(client, _key(tags), [place])
            if runs[0].info.run_id != made:
                client.delete_run(made)  # somebody else made one at the same time
    return Copy(holdout, uri, client, str(runs[0].info.run_id), names.AUDIT)


def audit_experiment(holdout: OpenLadder) -> str:
    """Return the name of the experiment that auditors open."""
    return f"{holdout.facts.name} (audit)"


def known_runs(holdout: OpenLadder, uri: str, kind: str) -> list[Run]:
    """Return the runs of a server that are tied to a ladder, oldest first."""
    client = names.connect(uri)
    with names.faults_named(uri, quoted=kind != names.AUDIT):
        return names.find(client, _key(names.tags(holdout, kind)))


def _place(client: MlflowClient, holdout: OpenLadder, wish: RunChoice) -> str:
    if wish.parent is not None:
        return str(names.living_run(client, wish.parent).info.experiment_id)
    if wish.experiment_id is not None:
        return names.living_experiment(client, client.get_experiment(wish.experiment_id))
    return names.experiment_id(client, wish.experiment or holdout.facts.name)


def _made(client: MlflowClient, place: str, tags: dict[str, str]) -> str:
    name = f"{tags[names.HOLDOUT]} {tags[names.LADDER]}"
    return str(client.create_run(place, tags=tags, run_name=name).info.run_id)


def _tie(client: MlflowClient, run_id: str, tags: dict[str, str]) -> None:
    from mlflow.entities import RunTag

    known = names.living_run(client, run_id).data.tags.get(names.IDENTITY)
    if known not in (None, tags[names.IDENTITY]):
        raise TrackingError(
            f"The MLflow run {run_id} holds the series of another ladder. Give a run of its "
            "own: run_id=, or none for a new one."
        )
    client.log_batch(run_id, tags=[RunTag(*tag) for tag in tags.items()])


def _key(tags: dict[str, str]) -> dict[str, str]:
    return {key: tags[key] for key in (names.IDENTITY, names.KIND)}


# -- brought up to date -----------------------------------------------------------------------


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
        names.require(self.uri)
        total = 0 if progress is None else self.holdout.execute(commands.State()).submissions
        with names.faults_named(self.uri, quoted=self.kind != names.AUDIT):
            names.living_run(self.client, self.run_id)
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
        names.require(self.uri)
        with names.faults_named(self.uri, quoted=self.kind != names.AUDIT):
            describe(self.client, self.run_id, self.holdout, self.kind)

    def end(self, status: str = "FINISHED") -> None:
        """Set the run's status; `MlflowClient.set_terminated` would print its address as well."""
        with names.faults_named(self.uri):
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


_logger = logging.getLogger("ladderholdout.mlflow")
# The ladders and servers of which it was logged where raw scores go.
_disclosed: set[tuple[str, str, str]] = set()


class Copies:
    """Both runs of a ladder, each of which is found or made when it is first brought up to date.

    Attributes
    ----------
    by_kind : dict of str to Copy
        Those that there are by now.
    at : str
        The server that the last request went to.
    """

    def __init__(self, holdout: OpenLadder, places: names.Places, wish: RunChoice) -> None:
        self.holdout, self.places, self.wish = holdout, places, wish
        self.by_kind: dict[str, Copy] = {}
        self.at = places.analyst

    def analyst(self, progress: Progress | None = None, status: str | None = "FINISHED") -> int:
        """Bring the analyst's run up to date, and end it with a status if it is ours."""
        self.at = self.places.analyst
        if names.ANALYST not in self.by_kind:
            self.by_kind[names.ANALYST] = analyst_run(self.holdout, self.at, self.wish)
        copy = self.by_kind[names.ANALYST]
        sent = copy.bring(progress)
        if status is not None and self.wish.run_id is None:
            copy.end(status)
        return sent

    def audit(self, progress: Progress | None = None) -> int:
        """Bring the audit run up to date, unless it is sealed."""
        if self.wish.sealed and self.holdout.execute(commands.State()).opened is None:
            return 0
        self.at = self.places.audit
        if names.AUDIT not in self.by_kind:
            self.disclose()
            self.by_kind[names.AUDIT] = audit_run(self.holdout, self.at)
        return self.by_kind[names.AUDIT].bring(progress)

    def describe(self) -> None:
        """Make the pages of the runs readable."""
        for copy in self.by_kind.values():
            self.at = copy.uri
            copy.describe()

    def remedy(self) -> str:
        """Return the command that sends what was not sent."""
        holdout, wish = self.holdout, self.wish
        if is_memory(holdout.ledger):
            return "ladderholdout.integrations.mlflow.export(holdout)"
        try:
            facts = holdout.facts
        except LadderHoldoutError:  # the ledger is gone; its next use raises that
            return "ladder-holdout export NAME"
        copy = self.by_kind.get(names.ANALYST)
        run_id = wish.run_id if copy is None else copy.run_id
        options = {
            "account": (facts.account, "default"),
            "ladder": (facts.ladder, "main"),
            "ledger": (shown(holdout.ledger), shown(resolve_url(None))),
            "run-id": (run_id, None),
            "experiment": (wish.experiment if run_id is None else None, None),
            "raw": ("sealed" if wish.sealed else "live", "live"),
        }
        words = ["ladder-holdout", "export", facts.name]
        if run_id is None and wish.experiment_id is not None:
            words = [f"MLFLOW_EXPERIMENT_ID={wish.experiment_id}", *words]
        for name, (value, usual) in options.items():
            if value is not None and value != usual:
                words += [f"--{name}", value]
        return " ".join([*map(shlex.quote, words), *self.places.options])

    def disclose(self) -> None:
        """Log once in this process where the raw scores of a ladder are copied to.

        As a record of level WARNING, which Python shows where nothing else is configured: it is
        meant, and no fault that a program should stop at.
        """
        facts, uri = self.holdout.facts, self.places.audit
        key = self.holdout.ledger, names.identity(facts), uri
        if key in _disclosed:
            return
        _disclosed.add(key)
        # Whoever configures logging disables the loggers that are there, unless that is prevented.
        _logger.disabled = False
        _logger.warning(
            "The raw scores of ladder %r of account %r on %r are copied into the experiment %r on "
            "%s %s: whoever can read that server can read them, and what was chosen with them in "
            'sight has no certificate. raw="sealed" keeps them in the ledger until an audit; '
            "audit_tracking_uri= sends them to a server of the auditor's.",
            facts.ladder,
            facts.account,
            facts.name,
            audit_experiment(self.holdout),
            "the server of the analyst's run" if uri == self.places.analyst else "the server",
            names.printable_uri(uri),
        )
