"""Bringing MLflow up to date on demand, and what its runs record about the ledger."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ladderholdout.arguments import choice
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.open_ladder import HasLadder, ladder_of
from ladderholdout.guard.views import RAW_POLICIES
from ladderholdout.integrations.mlflow import runs
from ladderholdout.integrations.mlflow import service as names
from ladderholdout.ledger.fold import Head
from ladderholdout.ledger.log import Progress

# The tags of a run that was brought up to date: its last submission, and the chain's end.
_ANCHOR = re.compile(r"(\d+) (\d+) ([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did to one run.

    Attributes
    ----------
    kind : {"analyst", "audit"}
    run_id : str
    sent : int
        Submissions that the run lacked.
    entries : int
        The number of the last submission that it holds now.
    store : str
        The tracking URI of the store that it is in, without a password.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> _ = holdout.submit([0, 1, 1, 1])
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"sqlite:///{folder.name}/mlflow.db"
    >>> [one.kind for one in export(holdout, tracking_uri=uri)]
    ['analyst', 'audit']
    >>> folder.cleanup()
    """

    kind: str
    run_id: str
    sent: int
    entries: int
    store: str = ""


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a run's tags state of the ledger, stored where the ledger's owner is not alone.

    Attributes
    ----------
    kind : {"analyst", "audit"}
    run_id : str
    entries : int
        Up to which submission the run was brought up to date.
    head : Head
        Where the chain of the holdout ended then.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> _ = holdout.submit([0, 1, 1, 1])
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"sqlite:///{folder.name}/mlflow.db"
    >>> _ = export(holdout, tracking_uri=uri)
    >>> [(one.kind, one.entries) for one in anchors(holdout, tracking_uri=uri)]
    [('analyst', 1), ('audit', 1)]
    >>> folder.cleanup()
    """

    kind: str
    run_id: str
    entries: int
    head: Head


def export(
    holdout: HasLadder,
    *,
    run_id: str | None = None,
    experiment: str | None = None,
    tracking_uri: str | os.PathLike[str] | None = None,
    audit_tracking_uri: str | os.PathLike[str] | None = None,
    raw: str | None = None,
    progress: Progress | None = None,
) -> tuple[Exported, ...]:
    """Bring both runs of a ladder up to date; done twice, the second time adds nothing.

    Parameters
    ----------
    holdout : LadderHoldout
    run_id : str, optional
        The analyst's run; by default the active one or that of ``MLFLOW_RUN_ID``, else the newest
        one that is tied to the ladder, and a new one where there is none.
    experiment : str, optional
        Where a new run goes, by default that of ``mlflow.set_experiment`` or its environment
        variables, else the experiment called like the holdout.
    tracking_uri, audit_tracking_uri : str, optional
        As for `LadderHoldout.track`.
    raw : {"live", "sealed"}, optional
        Whether raw scores go into the audit experiment before an audit; by default what was
        stated when the analyst's run was tracked, else ``"live"``.
    progress : callable, optional
        Called with how many submissions a run holds, and of how many.

    Returns
    -------
    tuple of Exported
        The analyst's run, and the audit's unless it is sealed.

    Raises
    ------
    TrackingError
        MLflow does not answer or refuses.
    HoldoutConflict
        A run holds another series than the ledger.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> holdout.submit([0, 1, 1, 1]).score
    0.75
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"sqlite:///{folder.name}/mlflow.db"
    >>> [(one.kind, one.sent, one.entries) for one in export(holdout, tracking_uri=uri)]
    [('analyst', 1, 1), ('audit', 1, 1)]
    >>> [(one.kind, one.sent, one.entries) for one in export(holdout, tracking_uri=uri)]
    [('analyst', 0, 1), ('audit', 0, 1)]
    >>> folder.cleanup()
    """
    ladder = ladder_of(holdout)
    runs.check_stated(run_id, experiment)
    if raw is not None:
        choice("raw", raw, RAW_POLICIES)
    where = names.places(tracking_uri, audit_tracking_uri)
    with without_frames, names.hushed():  # frames hold what was to be sent
        known = runs.known_runs(ladder, where.analyst, names.ANALYST)
        if known and raw is None:
            raw = known[-1].data.tags.get(names.RAW)
        if run_id is None and experiment is None:
            run_id = runs.own_run(where.analyst)
        if run_id is None and known:
            run_id = str(known[-1].info.run_id)
        wish = runs.choice_of(where.analyst, run_id, experiment, raw == "sealed")
        copies = runs.Copies(ladder, where, wish)
        done = []
        for kind, bring in ((names.ANALYST, copies.analyst), (names.AUDIT, copies.audit)):
            sent = bring(progress)
            if kind in copies.by_kind:  # else it is sealed
                copy = copies.by_kind[kind]
                copy.describe()
                store = names.printable_uri(copy.uri)
                done.append(Exported(kind, copy.run_id, sent, copy.last, store))
    return tuple(done)


def anchors(
    holdout: HasLadder,
    *,
    tracking_uri: str | os.PathLike[str] | None = None,
    audit_tracking_uri: str | os.PathLike[str] | None = None,
) -> tuple[Anchor, ...]:
    """Return what MLflow's runs state of the ledger, oldest first, the analyst's before.

    Parameters
    ----------
    holdout : LadderHoldout
    tracking_uri, audit_tracking_uri : str, optional
        As for `LadderHoldout.track`.

    Returns
    -------
    tuple of Anchor
        Of every run that is tied to the ladder and was brought up to date at least once.

    Raises
    ------
    TrackingError
        MLflow does not answer or refuses.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> _ = holdout.submit([0, 1, 1, 1])
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"sqlite:///{folder.name}/mlflow.db"
    >>> _ = export(holdout, tracking_uri=uri)
    >>> len(anchors(holdout, tracking_uri=uri))
    2
    >>> folder.cleanup()
    """
    ladder = ladder_of(holdout)
    where = names.places(tracking_uri, audit_tracking_uri)
    with names.hushed():
        return tuple(
            Anchor(kind, run.info.run_id, int(found[1]), Head(int(found[2]), found[3]))
            for kind, uri in ((names.ANALYST, where.analyst), (names.AUDIT, where.audit))
            for run in runs.known_runs(ladder, uri, kind)
            for tags in (run.data.tags,)
            if (found := _ANCHOR.fullmatch(f"{tags.get(names.ENTRIES)} {tags.get(names.HEAD)}"))
        )


def attach(
    holdout: HasLadder,
    path: str | os.PathLike[str],
    *,
    audit_tracking_uri: str | os.PathLike[str] | None = None,
) -> str:
    """Attach a file to the ladder's audit run as an artifact.

    Parameters
    ----------
    holdout : LadderHoldout
    path : path
        Of the file.
    audit_tracking_uri : str, optional
        As for `LadderHoldout.track`.

    Returns
    -------
    str
        The id of the audit run.

    Raises
    ------
    TrackingError
        MLflow does not answer or refuses.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], scoring="accuracy",
    ...                         ledger="memory", name="tiny")
    >>> _ = holdout.submit([0, 1, 1, 1])
    >>> folder = tempfile.TemporaryDirectory()
    >>> uri = f"sqlite:///{folder.name}/mlflow.db"
    >>> from pathlib import Path
    >>> from mlflow import MlflowClient
    >>> client = MlflowClient(uri)
    >>> artifacts = f"file://{folder.name}/artifacts"
    >>> _ = client.create_experiment("tiny (audit)", artifact_location=artifacts)
    >>> report = Path(folder.name) / "report.txt"
    >>> _ = report.write_text("a report")
    >>> run = attach(holdout, report, audit_tracking_uri=uri)
    >>> [one.path for one in client.list_artifacts(run)]
    ['report.txt']
    >>> folder.cleanup()
    """
    ladder = ladder_of(holdout)
    uri = names.places(None, audit_tracking_uri).audit
    with names.hushed():
        copy = runs.audit_run(ladder, uri)
        with names.faults_named(uri, quoted=False):
            copy.client.log_artifact(copy.run_id, os.fspath(path))
    return copy.run_id
