"""The two runs of a ladder: found by their tags or made, and who can read them."""

from __future__ import annotations

import logging
import os
import shlex
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from ladderholdout.arguments import text
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, TrackingError
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.integrations.mlflow import service as names
from ladderholdout.integrations.mlflow.copying import Copy
from ladderholdout.integrations.mlflow.uris import is_own, printable_uri
from ladderholdout.ledger.place import is_memory, resolve_url, shown
from ladderholdout.process import PerProcess

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from ladderholdout.guard.open_ladder import OpenLadder
    from ladderholdout.integrations.mlflow.service import Places


_PARENT = "mlflow.parentRunId"


@dataclass(frozen=True, slots=True)
class RunChoice:
    """Which run of the analyst a ladder's series goes into.

    Attributes
    ----------
    run_id : str or None
        One that is there; None for a new one.
    experiment : str or None
        Where a new one goes; None for the experiment called like the holdout.
    experiment_id : str or None
        The same, by its number: what MLflow's own settings name.
    parent : str or None
        The run below which a new one goes, in the experiment of that.
    sealed : bool
        Whether raw scores stay in the ledger before an audit.
    token : str
        What a new run is known by, should the answer to its creation be lost.
    """

    run_id: str | None
    experiment: str | None
    parent: str | None
    sealed: bool
    experiment_id: str | None = None
    token: str = field(default_factory=lambda: uuid4().hex)


def analyst_run(holdout: OpenLadder, uri: str, wish: RunChoice) -> Copy:
    """Return the analyst's run, tied to the ladder from now on.

    Raises
    ------
    TrackingError
        There is no such run, or another ladder's series is in it.
    """
    client, tags = names.connect(uri), names.tags(holdout, names.ANALYST)
    tags[names.RAW] = "sealed" if wish.sealed else "live"
    with names.faults_named(uri):
        if wish.run_id is None:
            place, token = _place(client, holdout, wish), {names.TOKEN: wish.token}
            before = names.find(client, [place], token)
            run_id = (
                before[0].info.run_id if before else _made(client, place, tags | token, wish.parent)
            )
        else:
            run_id = wish.run_id
            _tie(client, run_id, tags)
    return Copy(holdout, uri, client, run_id, names.ANALYST)


def audit_run(holdout: OpenLadder, uri: str) -> Copy:
    """Return the ladder's one audit run, made if there is none."""
    client, tags = names.connect(uri), names.tags(holdout, names.AUDIT)
    with names.faults_named(uri):
        place = names.experiment_id(client, names.audit_experiment(holdout.facts.name))
        if not names.find(client, [place], _key(tags)):
            made = _made(client, place, tags)
            client.update_run(made, status="FINISHED")
            if _oldest(client, place, tags) != made:
                client.delete_run(made)  # somebody else made one at the same time
        run_id = _oldest(client, place, tags)
    return Copy(holdout, uri, client, run_id, names.AUDIT)


def known_runs(holdout: OpenLadder, uri: str, kind: str) -> list[Run]:
    """Return the runs of a server that are tied to a ladder, oldest first."""
    client = names.connect(uri)
    with names.faults_named(uri):
        places = [str(one.experiment_id) for one in names.experiments(client)]
        return names.find(client, places, _key(names.tags(holdout, kind)))


def _place(client: MlflowClient, holdout: OpenLadder, wish: RunChoice) -> str:
    if wish.parent is not None:
        return str(names.living_run(client, wish.parent).info.experiment_id)
    if wish.experiment_id is not None:
        return names.known_experiment(client, wish.experiment_id)
    return names.experiment_id(client, wish.experiment or holdout.facts.name)


def _made(client: MlflowClient, place: str, tags: dict[str, str], parent: str | None = None) -> str:
    above = {} if parent is None else {_PARENT: parent}
    name = f"{tags[names.HOLDOUT]} {tags[names.LADDER]}"
    return str(client.create_run(place, tags=tags | above, run_name=name).info.run_id)


def _tie(client: MlflowClient, run_id: str, tags: dict[str, str]) -> None:
    from mlflow.entities import RunTag

    known = names.living_run(client, run_id).data.tags.get(names.IDENTITY)
    if known not in (None, tags[names.IDENTITY]):
        raise TrackingError(
            f"The MLflow run {run_id} holds the series of another ladder. Give a run of its "
            "own: run_id=, or none for a new one."
        )
    client.log_batch(run_id, tags=[RunTag(*tag) for tag in tags.items()])


def _oldest(client: MlflowClient, place: str, tags: dict[str, str]) -> str:
    return str(names.find(client, [place], _key(tags))[0].info.run_id)


def _key(tags: dict[str, str]) -> dict[str, str]:
    return {key: tags[key] for key in (names.IDENTITY, names.KIND)}


# Which ladder writes into which run, as far as this process knows.
_claims: dict[tuple[str, str], str] = {}
_lock = PerProcess(threading.Lock)

_logger = logging.getLogger("ladderholdout.mlflow")
# The ladders and servers of which it was logged where raw scores go.
_disclosed: set[tuple[str, str, str]] = set()


def claim(
    holdout: OpenLadder, places: Places, run_id: str | None, experiment: str | None, sealed: bool
) -> RunChoice:
    """Settle the analyst's run: the stated one, the active one, or a new one.

    A run holds one ladder's series: a second ladder that is tracked beside it gets a run of
    its own below it.
    """
    stated(run_id, experiment)
    if run_id is not None or experiment is not None:
        return RunChoice(run_id, experiment, None, sealed)
    own = own_run(places.analyst)
    if own is None:
        return new_run(places.analyst, sealed)
    ladder = names.identity(holdout.facts)
    with _lock():
        taken = _claims.setdefault((places.analyst, own), ladder) != ladder
    return RunChoice(None, None, own, sealed) if taken else RunChoice(own, None, None, sealed)


def new_run(uri: str, sealed: bool) -> RunChoice:
    """Return a new run: in the experiment of MLflow's own settings, else the holdout's."""
    number, name = None, None
    if is_own(uri):
        # mlflow.set_experiment sets the number, so that subprocesses inherit it.
        number = os.environ.get("MLFLOW_EXPERIMENT_ID") or None
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or None
    return RunChoice(None, name if number is None else None, None, sealed, number)


def stated(run_id: str | None, experiment: str | None) -> None:
    """Validate how a caller names the analyst's run."""
    for name, value in (("run_id", run_id), ("experiment", experiment)):
        if value is not None:
            text(name, value)
    if run_id is not None and experiment is not None:
        raise InvalidArgument("experiment", "left out where run_id is given", "given as well")


def own_run(uri: str) -> str | None:
    """Return the run of MLflow's own settings at a server: the active one, or MLFLOW_RUN_ID."""
    import mlflow

    if not is_own(uri):
        return None
    run = mlflow.active_run()
    return os.environ.get("MLFLOW_RUN_ID") or None if run is None else str(run.info.run_id)


def remedy(holdout: OpenLadder, places: Places, wish: RunChoice, run_id: str | None) -> str:
    """Return the command that sends what was not sent."""
    if is_memory(holdout.ledger):
        return "ladderholdout.integrations.mlflow.export(holdout)"
    try:
        facts = holdout.facts
    except LadderHoldoutError:  # the ledger is gone; its next use raises that
        return "ladder-holdout export NAME"
    run_id = run_id or wish.run_id
    options = {
        "account": (facts.account, "default"),
        "ladder": (facts.ladder, "main"),
        "ledger": (holdout.ledger, resolve_url(None)),
        "run-id": (run_id, None),
        "experiment": (wish.experiment if run_id is None else None, None),
        "raw": ("sealed" if wish.sealed else "live", "live"),
    }
    words = ["ladder-holdout", "export", facts.name]
    settings = []
    if run_id is None and wish.experiment_id is not None:
        settings = [f"MLFLOW_EXPERIMENT_ID={shlex.quote(wish.experiment_id)}"]
    for name, (value, usual) in options.items():
        if value is not None and value != usual:
            words += [f"--{name}", shown(value) if name == "ledger" else value]
    return " ".join([*settings, *map(shlex.quote, words), *places.options])


def disclose(holdout: OpenLadder, places: Places) -> None:
    """Log once in this process where the raw scores of a ladder are copied to.

    As a record of level WARNING, which Python shows where nothing else is configured: it is
    meant, and no fault that a program should stop at.

    Parameters
    ----------
    holdout : OpenLadder
    places : Places
        The tracking servers.
    """
    facts = holdout.facts
    key = holdout.ledger, names.identity(facts), places.audit
    if key in _disclosed:
        return
    _disclosed.add(key)
    # Whoever configures logging disables the loggers that are there, unless that is prevented.
    _logger.disabled = False
    same = "the server of the analyst's run" if places.audit == places.analyst else "the server"
    _logger.warning(
        "The raw scores of ladder %r of account %r on %r are copied into the experiment %r on %s "
        "%s: whoever can read that server can read them, and what was chosen with them in sight "
        'has no certificate. raw="sealed" keeps them in the ledger until an audit; '
        "audit_tracking_uri= sends them to a server of the auditor's.",
        facts.ladder,
        facts.account,
        facts.name,
        names.audit_experiment(facts.name),
        same,
        printable_uri(places.audit),
    )
