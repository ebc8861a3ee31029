"""The two runs of a ladder: found by their tags, or made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from ladderholdout.errors import TrackingError
from ladderholdout.holdout.tracking import TrackedHandle
from ladderholdout.integrations.mlflow import names
from ladderholdout.integrations.mlflow.copying import Copy
from ladderholdout.integrations.mlflow.service import (
    connect,
    experiment_id,
    experiments,
    find,
    told,
)
from ladderholdout.ledger import shown

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_PARENT = "mlflow.parentRunId"


@dataclass(frozen=True, slots=True)
class Wish:
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
    token : str
        What a new run is known by, should the answer to its creation be lost.
    """

    run_id: str | None
    experiment: str | None
    parent: str | None
    sealed: bool
    token: str = field(default_factory=lambda: uuid4().hex)


def analyst_run(holdout: TrackedHandle, uri: str, wish: Wish) -> Copy:
    """Return the analyst's run, tied to the ladder from now on.

    Raises
    ------
    TrackingError
        There is no such run, or another ladder's series is in it.
    """
    client, tags = connect(uri), _tags(holdout, names.ANALYST)
    tags[names.RAW] = "sealed" if wish.sealed else "live"
    with told(uri):
        if wish.run_id is None:
            place, token = _place(client, holdout, wish), {names.TOKEN: wish.token}
            before = find(client, [place], token)
            run_id = (
                before[0].info.run_id if before else _made(client, place, tags | token, wish.parent)
            )
        else:
            run_id = wish.run_id
            _tie(client, run_id, tags)
    return Copy(holdout, uri, client, run_id, names.ANALYST)


def audit_run(holdout: TrackedHandle, uri: str) -> Copy:
    """Return the ladder's one audit run, made if there is none."""
    client, tags = connect(uri), _tags(holdout, names.AUDIT)
    with told(uri):
        place = experiment_id(client, names.audit_experiment(holdout.name))
        if not find(client, [place], _key(tags)):
            made = _made(client, place, tags)
            client.update_run(made, status="FINISHED")
            if _oldest(client, place, tags) != made:
                client.delete_run(made)  # somebody else made one at the same time
        run_id = _oldest(client, place, tags)
    return Copy(holdout, uri, client, run_id, names.AUDIT)


def known_runs(holdout: TrackedHandle, uri: str, kind: str) -> list[Run]:
    """Return the runs of a server that are tied to a ladder, oldest first."""
    client = connect(uri)
    with told(uri):
        places = [str(one.experiment_id) for one in experiments(client)]
        return find(client, places, _key(_tags(holdout, kind)))


def _place(client: MlflowClient, holdout: TrackedHandle, wish: Wish) -> str:
    if wish.parent is not None:
        return str(client.get_run(wish.parent).info.experiment_id)
    return experiment_id(client, wish.experiment or holdout.name)


def _made(client: MlflowClient, place: str, tags: dict[str, str], parent: str | None = None) -> str:
    above = {} if parent is None else {_PARENT: parent}
    name = f"{tags[names.HOLDOUT]} {tags[names.LADDER]}"
    return str(client.create_run(place, tags=tags | above, run_name=name).info.run_id)


def _tie(client: MlflowClient, run_id: str, tags: dict[str, str]) -> None:
    from mlflow.entities import RunTag

    known = client.get_run(run_id).data.tags.get(names.IDENTITY)
    if known not in (None, tags[names.IDENTITY]):
        raise TrackingError(
            f"The MLflow run {run_id} holds the series of another ladder. Give a run of its "
            "own: run_id=, or none for a new one."
        )
    client.log_batch(run_id, tags=[RunTag(*tag) for tag in tags.items()])


def _oldest(client: MlflowClient, place: str, tags: dict[str, str]) -> str:
    return str(find(client, [place], _key(tags))[0].info.run_id)


def _tags(holdout: TrackedHandle, kind: str) -> dict[str, str]:
    return names.tags(*holdout._records(), kind, shown(holdout.ledger))


def _key(tags: dict[str, str]) -> dict[str, str]:
    return {key: tags[key] for key in (names.IDENTITY, names.KIND)}
