"""A report: an audit, or a ladder that stays closed, as one HTML file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from ladderholdout.audit import plots as drawing
from ladderholdout.audit.records import Audit, Record, facts_of, mark_of
from ladderholdout.audit.submissions import SHOWN, AuditedSubmission, History, collected
from ladderholdout.errors import InvalidArgument, printable
from ladderholdout.extras import needed
from ladderholdout.guard import commands
from ladderholdout.guard.open_ladder import HasLadder, ladder_of
from ladderholdout.guard.printing import cells, number, varied
from ladderholdout.guard.views import Status, Submission
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.leaderboard.standings import BOARD
from ladderholdout.ledger.log import Progress
from ladderholdout.pictures import STYLE
from ladderholdout.process import sync

LONGEST_TABLE = 1000
"""Rows of a report's table: browsers show no more without a pause."""
_LONGEST_CELL = 2000


# The columns of a report's table; those of text are to the left.
_TEXTS = frozenset({"time (UTC)", "", "batch", "from"})
_SEEN = ("number", "time (UTC)", "released", "", "batch", "from")
_OPENED = (*_SEEN[:2], "raw", "released", "fresh", "p", "", "distance", "batch", "from")

_PAGE = 5_000
"""Submissions that are held as objects while a history is read."""


def record_of(holdout: HasLadder, progress: Progress | None = None) -> Record:
    """Return what may be shown of a ladder without opening it.

    Parameters
    ----------
    holdout : LadderHoldout
    progress : callable, optional
        Called with how many submissions were read, and of how many.

    Returns
    -------
    Record

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> len(record_of(holdout).history)
    2
    """
    ladder = ladder_of(holdout)
    status = ladder.execute(commands.Status())

    def pages() -> Iterator[tuple[Submission, ...]]:
        last = 0
        while page := ladder.execute(commands.History(after=last, limit=_PAGE)).submissions:
            yield page
            last = page[-1].number

    columns = collected(pages(), status.submissions, status.account, SHOWN, progress)
    return Record(status, History(*columns))


def write_report(
    shown: Audit | Record, path: str | os.PathLike[str], *, boards: Sequence[Leaderboard] = ()
) -> Path:
    """Write a report into one HTML file that needs nothing else.

    Parameters
    ----------
    shown : Audit or Record
        What to report; a `Record` (see `record_of`) has nothing raw.
    path : path
        A file there is replaced, by all of the report or by nothing.
    boards : sequence of Leaderboard, optional
        Of the same rows, as `Leaderboard.on` returns them: their standings, rounds and finals are
        part of the report.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    InvalidArgument
        The file cannot be written.
    MissingExtra
        Jinja2 or matplotlib is missing.

    Examples
    --------
    >>> import tempfile
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> release = holdout.submit([0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_report(record_of(holdout), Path(folder, "report.html"))
    ...     "<svg" in file.read_text(encoding="utf-8")
    True
    """
    if not isinstance(shown, Audit | Record):
        allowed = "an Audit, or the Record of a holdout that stays closed"
        raise InvalidArgument("shown", allowed, f"a {type(shown).__name__}")
    page, file = page_of(shown, boards).encode(), Path(path)
    try:
        _replace(file, page)
    except (OSError, ValueError) as fault:
        why = getattr(fault, "strerror", None) or "no such path"
        raise InvalidArgument("path", "a file that can be written", f"{file}: {why}") from None
    return file


def _replace(file: Path, page: bytes) -> None:
    """Write a file whole or not at all: half a report could be taken for a whole one."""
    file = file.resolve()
    if file.exists() and not file.is_file():
        file.write_bytes(page)  # a device or a pipe, of which nothing can be taken the place
        return
    temporary = file.with_name(f".{uuid4().hex}.part")
    try:
        with open(temporary, "xb") as part:
            part.write(page)
            sync(part)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def page_of(shown: Audit | Record, boards: Sequence[Leaderboard] = ()) -> str:
    """Return a report as HTML, as `write_report` writes it."""
    with needed("The report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    environment = Environment(
        loader=PackageLoader("ladderholdout.audit"),
        autoescape=True,
        undefined=StrictUndefined,
        # Of names and contexts; what Matplotlib drew is markup, and stays.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    status, opened = shown.status, isinstance(shown, Audit)
    if isinstance(shown, Audit):
        verdict = shown.verdict
        said = verdict.headline, verdict.sentences, [*facts_of(shown)]
        rows = [_opened_row(submission) for submission in shown.submissions[-LONGEST_TABLE:]]
    else:
        of_board = any(board.ladder == status.ladder for board in boards)
        listed = shown.history[-LONGEST_TABLE:]
        differing = varied(listed)
        # Where the ledger is concerns nobody who reads what was found.
        facts = [(what, value) for what, value in status.lines() if what != "ledger"]
        said = _headline(status, of_board), _sentences(shown, differing), facts
        rows = [_cells_of(submission, differing) for submission in listed]
    return environment.get_template("report.html.j2").render(
        title=f"{status.name}: {'audit' if opened else 'what was released'}",
        subtitle=f"ladderholdout, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        **dict(zip(("headline", "sentences", "facts"), said, strict=True)),
        columns=_OPENED if opened else _SEEN,
        texts=_TEXTS,
        rows=rows,
        left_out=len(shown.history) - len(rows),
        # Matplotlib has escaped the texts inside its pictures.
        figures=[(*texts, Markup(svg)) for *texts, svg in drawing.figures_of(shown)],
        boards=[
            (f"Leaderboard, ladders {it.ladder!r}", Markup(it.section(level=3))) for it in boards
        ],
        colours=drawing.COLOURS,
        style=Markup(STYLE) if boards else "",
    )


def _headline(status: Status, of_board: bool) -> str:
    if of_board and status.account == BOARD and status.incumbent is None:
        return "This is the ladder with the rules of a leaderboard, whose standings are below."
    if status.incumbent is None:
        return "Nothing was released yet."
    found = status.certificate
    if found.missing is not None:
        return f"There is no range for the true {status.metric} yet: {found.missing}."
    what = found.of_what() + "," * (", " in found.clipping)
    doubts = f" But: {', '.join(found.doubts)}." if found.doubts else ""
    return (
        f"With a confidence of {100 * found.confidence:.4g} %, the {what} ({status.metric}) of "
        f"submission {status.incumbent} is in {found.ends()}, however it was searched for.{doubts}"
    )


def _sentences(shown: Record, differing: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Return in words which model that is, and what was tried."""
    status, closed = shown.status, "This report holds no raw score. An audit would open them."
    if status.incumbent is None:
        return (closed,)
    winner = shown.history[status.incumbent - 1]
    estimator = str(winner.context.get("estimator", "by hand"))
    # If nothing differs, all of its parameters are named.
    names = differing.get(estimator) or winner.context.get("parameters", {})
    score = status.score
    released = "its score was not asked for" if score is None else f"released score {score:.6g}"
    return (
        f"The model: {_cells_of(winner, {estimator: names})['from']} ({released}).",
        f"Tried: {status.submissions} submissions on {status.n} rows; {status.releases} improved.",
        closed,
    )


def _cells_of(submission: Submission, differing: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Return a line of the table, by the heads of its columns."""
    texts = cells(submission, differing)
    texts["from"] = printable(texts["from"], longest=_LONGEST_CELL)
    return texts | {"release": submission.improved}


def _opened_row(audited: AuditedSubmission) -> dict[str, Any]:
    return _cells_of(audited.submission, {}) | {
        "raw": number(audited.raw),
        "fresh": number(audited.fresh),
        "p": number(audited.p_value, digits=2),
        "": mark_of(audited.repeat_of, audited.is_release),
        "distance": number(audited.disagreement, digits=3),
        "release": audited.is_release,
    }
