"""Commands of a leaderboard: its standings, and its finals.

Parameters
----------
ladder
    The name of the leaderboard's ladders.
table
    Write the table into this file, too.
"""

from __future__ import annotations

from pathlib import Path

from ladderholdout.cli import common, options
from ladderholdout.errors import InvalidArgument
from ladderholdout.leaderboard import Finals, Leaderboard


def leaderboard(
    name: options.Name,
    *,
    ladder: str = "leaderboard",
    confidence: float | None = None,
    table: Path | None = None,
    page: Path | None = None,
    merge: tuple[str, str] | None = None,
    leave: str | None = None,
    ledger: str | None = None,
) -> None:
    """Show a leaderboard: each account's rank and released score, with certificates.

    Before that --merge and --leave put on record who is one team, and who has left.

    Parameters
    ----------
    page
        Write a report of the board, with its finals, into this .html file, too.
    merge
        Two accounts of one team: the first is its name from now on.
    leave
        An account that leaves the board.
    """
    board = Leaderboard.open(name, ladder=ladder, ledger=ledger)
    if merge is not None:
        board.merge(*merge)
    if leave is not None:
        board.leave(leave)
    standings = board.standings(confidence)
    _write(table, standings.to_csv())
    _write(page, board.page() if page is not None else "")
    common.print_result(standings)


def close_round(
    name: options.Name,
    *,
    ladder: str = "leaderboard",
    if_due: bool = False,
    take_out: str | None = None,
    ledger: str | None = None,
) -> None:
    """Close the round of a leaderboard: what waits is answered together, as one batch.

    With --if-due a timer of the system may run it as often as it likes.

    Parameters
    ----------
    if_due
        Close it where its hours are over, and not before.
    take_out
        An account of which nothing that waits is answered, on record.
    """
    board = Leaderboard.open(name, ladder=ladder, ledger=ledger)
    if take_out is not None:
        board.take_out(take_out)
    closed = board.close_if_due() if if_due else board.close_round()
    if closed is None:
        nothing = "Nothing is answered: no submission waits, or the round is not due."
        common.print_result(None, nothing)
    else:
        shown = {"round": closed.record, "releases": closed.releases}
        common.print_result(shown, str(closed))


def finals(
    name: options.Name,
    *,
    entry: list[str] | None = None,
    best: int | None = None,
    again: bool = False,
    ladder: str = "leaderboard",
    confidence: float | None = None,
    picture: Path | None = None,
    table: Path | None = None,
    yes: bool = False,
    ledger: str | None = None,
) -> None:
    """Hold the finals of a leaderboard on its reserve, once; later on show them.

    All entries are compared with each other on rows that no submission was answered from: for each
    account its score, an interval, the ranks that it may have, and who is not separated from it.

    Parameters
    ----------
    entry
        An account that takes part, with its best released submission; or ACCOUNT=NUMBER for another
        one. Can be given several times; by default all take part.
    best
        So many of the standings take part, from the first one on.
    again
        Hold further ones, which pay for what was shown.
    picture
        Draw the sets of ranks into this .svg file, too.
    """
    board = Leaderboard.open(name, ladder=ladder, ledger=ledger)
    if entry and best is not None:
        raise InvalidArgument("--best", "left out with --entry", best)
    entries = best if entry is None else _entries(entry)
    held = board.finals_held()
    if (again or not held) and not yes:
        common.confirm(
            "This shows how the entries do on the reserve, and puts it on record. Finals that are "
            "held later pay for what it shows.",
            "Hold the finals?",
        )
    found: Finals = board.finals(entries, again=again, confidence=confidence)
    _write(table, found.to_csv())
    if picture is not None:
        _write(picture, found.picture().file())
    common.print_result(found)


def _entries(stated: list[str]) -> dict[str, list[int] | None]:
    """Read who takes part."""
    entries: dict[str, list[int] | None] = {}
    for text in stated:
        account, equals, number = text.rpartition("=")
        if not equals:
            entries.setdefault(text, None)
            continue
        if not number.isdecimal():
            raise InvalidArgument("--entry", "ACCOUNT, or ACCOUNT=NUMBER of a submission", text)
        entries[account] = [*(entries.get(account) or []), int(number)]
    return entries


def _write(file: Path | None, text: str) -> None:
    """Write a text into a file, if one is wished for."""
    if file is None:
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as fault:
        actual = f"{file}: {fault.strerror}"
        raise InvalidArgument("a file", "one that can be written", actual) from None
