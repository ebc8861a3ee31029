"""What makes a run's page readable: a note, a picture of the ladder, the holdout as an input."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ladderholdout.errors import printable
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import OpenLadder
from ladderholdout.guard.printing import picture_of
from ladderholdout.guard.views import Status
from ladderholdout.integrations.mlflow import service as names
from ladderholdout.integrations.mlflow.service import SOURCE, living_run
from ladderholdout.pictures import Picture

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run

NOTE = "mlflow.note.content"
"""The tag whose text MLflow shows as a run's description."""

PICTURE = "ladder.svg"
_HEADING = "## Holdout "
_DRAWN = 1000
_LONGEST = 7500
# What MLflow takes as a parameter, and of how many in one request.
_NO_KEY = re.compile(r"[^\w\-. /]", re.ASCII)
_LONGEST_KEY, _LONGEST_VALUE, _PARAMETERS = 250, 500, 100
_SIZE = 760, 320
_SAID = {
    names.ANALYST: (
        "A search that is guarded by ladderholdout. The metric `ladder_released` is the score that "
        "was released after each submission; the run holds no raw score. "
        f"The artifact `{PICTURE}` draws it with the certificate's band."
    ),
    names.AUDIT: (
        "For auditors: `ladder_raw` is the raw score of each submission, beside the released one. "
        "Whoever can read this experiment sees what the guard hides."
    ),
}


def describe(client: MlflowClient, run_id: str, holdout: OpenLadder, kind: str) -> None:
    """Put the note, the data set and, for the analyst, the picture on a run.

    A note that somebody else wrote stays. The analyst's run has the incumbent's parameters as well.
    """
    status = holdout.execute(commands.Status(), shown=False)
    run = living_run(client, run_id)
    known = run.data.tags.get(NOTE, "")
    if not known or known.startswith(_HEADING):
        client.set_tag(run_id, NOTE, note_of(status, kind))
    client.log_inputs(run_id, [input_of(holdout)])
    if kind == names.ANALYST:
        _log_parameters(client, run, holdout, status.incumbent)
        picture = _drawn(holdout, status)
        if picture is not None:
            client.log_text(run_id, picture.file(*_SIZE), PICTURE)


def _log_parameters(
    client: MlflowClient, run: Run, holdout: OpenLadder, incumbent: int | None
) -> None:
    """Log the parameters of the incumbent, once for each submission that is one.

    MLflow keeps a parameter for ever. So those of a later incumbent have its number before their
    names; and in a run that somebody else made all have ``ladder.`` before them, so that none is
    in the way of what that person logs.
    """
    from mlflow.entities import Param, RunTag

    logged = run.data.tags.get(names.PARAMETERS, "").split()
    if incumbent is None or str(incumbent) in logged:
        return
    asked = commands.History(after=incumbent - 1, limit=1)
    found = holdout.execute(asked, shown=False).submissions
    parameters = found[0].context.get("parameters", {}) if found else {}
    before = "" if names.TOKEN in run.data.tags else "ladder."
    before += f"{incumbent}." if logged else ""
    named = {
        _NO_KEY.sub("_", f"{before}{name}")[:_LONGEST_KEY]: parameters[name] for name in parameters
    }
    given = [
        Param(key, str(value)[:_LONGEST_VALUE])
        for key, value in named.items()
        if key not in run.data.params
    ]
    for start in range(0, len(given), _PARAMETERS):
        client.log_batch(run.info.run_id, params=given[start : start + _PARAMETERS])
    if parameters:
        tag = RunTag(names.PARAMETERS, " ".join([*logged, str(incumbent)]))
        client.log_batch(run.info.run_id, tags=[tag])


def note_of(status: Status, kind: str) -> str:
    """Return the note on a run, in Markdown.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", name="tiny",
    ...                         ledger="memory")
    >>> print(note_of(holdout.status(), "audit").splitlines()[0])
    ## Holdout tiny
    """
    rows = "\n".join(f"| {what} | {_cell(value)} |" for what, value in status.lines())
    note = f"{_HEADING}{_cell(status.name)}\n\n{_SAID[kind]}\n\n| | |\n| --- | --- |\n{rows}\n"
    return note[:_LONGEST]


def _cell(value: str) -> str:
    """Return a text as a cell of a table of Markdown, which is no markup."""
    plain = printable(value).replace("\\", "\\\\")
    for mark in "|<>[]*_`":
        plain = plain.replace(mark, f"\\{mark}")
    return plain.replace("\n", " ")


def _drawn(holdout: OpenLadder, status: Status) -> Picture | None:
    """Return the picture of a ladder's latest submissions; None where there is none.

    It is read for a copy: nobody is shown it through this process.
    """
    asked = commands.History(after=max(0, status.submissions - _DRAWN), limit=commands.ALL)
    entries = holdout.execute(asked, shown=False).submissions
    return picture_of(status, status.certificate, entries) if entries else None


def input_of(holdout: OpenLadder) -> DatasetInput:
    """Return the holdout as the input of a run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    facts = holdout.facts
    source = {"holdout": facts.name, "fingerprint": facts.fingerprint, "rows": facts.n}
    # MLflow takes at most 36 characters for a digest.
    dataset = Dataset(facts.name, facts.fingerprint[:12], SOURCE, json.dumps(source))
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "holdout")])
