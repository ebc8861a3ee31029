"""A leaderboard as HTML: standings, rounds and finals, with pictures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from ladderholdout.errors import printable
from ladderholdout.leaderboard.finals import Finals
from ladderholdout.leaderboard.standings import Standings, html_table
from ladderholdout.pictures import STYLE

_STYLE = """
body { font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } caption { text-align: left; font-weight: 600; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #dbe1e8; }
.table { overflow-x: auto; }
svg { width: 100%; max-width: 680px; height: auto; }
"""


def page_of(standings: Standings, finals: Sequence[Finals], rounds: Sequence[str]) -> str:
    """Return the page of a leaderboard, which needs nothing else and runs nothing.

    Parameters
    ----------
    standings : Standings
    finals : sequence of Finals
        Those on record, oldest first.
    rounds : sequence of str
        A line for each closed round.

    Returns
    -------
    str

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.leaderboard import Leaderboard
    >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
    >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
    >>> release = board.submit("Ada", y)
    >>> page_of(board.standings(), (), ()).count("<table>")
    1
    """
    title = escape(printable(f"Leaderboard of {standings.name}"))
    time = f"<p>{datetime.now(UTC):%Y-%m-%d %H:%M} UTC</p>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}{STYLE}</style></head><body><h1>{title}</h1>{time}"
        f"{parts_of(standings, finals, rounds)}</body></html>\n"
    )


def parts_of(
    standings: Standings,
    finals: Sequence[Finals],
    rounds: Sequence[str],
    *,
    level: int = 2,
    name: str = "",
) -> str:
    """Return finals, standings and rounds as HTML, below headings of a level.

    Parameters
    ----------
    standings, finals, rounds
        As for `page_of`.
    level : int, default=2
    name : str, optional
        Before the ids of the pictures, where a page has several boards.
    """
    parts = []
    for held in reversed(finals):
        parts += [
            f"<h{level}>Finals {held.number}</h{level}>",
            held.picture().svg(680, f"{name}finals-{held.number}"),
            html_table(f"Finals {held.number}", held.lines()),
            f"<p>{escape(printable(held.summary()))}</p>",
            "<ul>",
            *(f"<li>{escape(printable(text))}</li>" for text in held.assumptions),
            "</ul>",
        ]
    parts.append(f"<h{level}>Standings</h{level}>")
    if standings.rows:
        parts.append(standings.picture().svg(680, f"{name}standings"))
    parts += [html_table("Standings", standings.lines()), f"<p>{escape(standings.summary())}</p>"]
    if rounds:
        listed = "".join(f"<li>{escape(text)}</li>" for text in rounds)
        parts.append(f"<h{level}>Rounds</h{level}><ol>{listed}</ol>")
    return "".join(parts)
