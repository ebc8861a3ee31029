"""Rounds of a leaderboard, as people see them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from ladderholdout.arguments import inside
from ladderholdout.errors import HoldoutConflict
from ladderholdout.guard.views import Release
from ladderholdout.ledger.events import RoundClosed, RoundsBegun
from ladderholdout.ledger.fold import LadderRecord, Rounds
from ladderholdout.ledger.log import now
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric


@dataclass(frozen=True, slots=True)
class Collected:
    """A submission that waits for its round to be closed.

    Attributes
    ----------
    round : int
        The number of the round.
    account : str
    waiting : int
        How many submissions of the account wait, this one included.
    due : datetime or None
        When the round will be closed, in UTC; None where the owner closes it alone.

    Examples
    --------
    >>> Collected(3, "Ada", 2, None).line()
    'round 3: 2 submissions of Ada wait until the round is closed'
    """

    round: int
    account: str
    waiting: int
    due: datetime | None

    def line(self) -> str:
        """Return it in a line."""
        if not self.waiting:  # sent again under its key
            return f"{self.account} was answered in a round before round {self.round}"
        verb = "waits" if self.waiting == 1 else "wait"
        end = "is closed" if self.due is None else f"ends at {self.due:%Y-%m-%d %H:%M} UTC"
        what = f"{counted(self.waiting, 'submission')} of {self.account} {verb}"
        return f"round {self.round}: {what} until the round {end}"

    __str__ = line


@dataclass(frozen=True, slots=True)
class Round:
    """A round that was closed, with its answers.

    Attributes
    ----------
    record : RoundClosed
        Its number, when it was closed, and how many submissions it had.
    releases : tuple of (str, Release)
        By account, in the order in which the submissions came.
    metric : Metric

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.leaderboard import Leaderboard
    >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
    >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory", rounds=True)
    >>> waiting = board.submit("Ada", y)
    >>> closed = board.close_round()
    >>> (closed.record.submissions, closed.record.improved, closed.best)
    (1, 1, 1.0)
    """

    record: RoundClosed
    releases: tuple[tuple[str, Release], ...]
    metric: Metric

    @property
    def best(self) -> float | None:
        """The best released score of the board after it."""
        return None if self.record.best is None else self.metric.to_score(self.record.best)

    def __str__(self) -> str:
        lines = [round_line(self.record, self.metric)]
        for account, release in self.releases:
            became = "improved" if release.improved else "not improved"
            score = "" if release.score is None else f"{release.score:.6g}, "
            lines.append(f"  {account}, submission {release.submission}: {score}{became}")
        return "\n".join(lines)


def round_line(record: RoundClosed, metric: Metric) -> str:
    """Return a round in a line."""
    best = "" if record.best is None else f"; best released {metric.to_score(record.best):.6g}"
    if record.left_out:
        best += f"; left out, not answered: {', '.join(record.left_out)}"
    return (
        f"round {record.number}, closed {record.time:%Y-%m-%d %H:%M}: "
        f"{counted(record.submissions, 'submission')} of {counted(record.accounts, 'account')}, "
        f"{record.improved} improved{best}"
    )


def counted(count: int, what: str) -> str:
    """Return a number of something, in words."""
    return f"{count} {what}{'s' * (count != 1)}"


def checked_hours(rounds: bool | float) -> float | None:
    """Return after how many hours a round is due; None for none, or without rounds."""
    if isinstance(rounds, bool):
        return None
    return inside("rounds", rounds, high=math.inf, what="True, False or a number of hours")


def due_of(rounds: Rounds) -> datetime | None:
    """Return when the open round is due to be closed; None where its owner closes it alone."""
    if rounds.hours is None:
        return None
    return rounds.since + timedelta(hours=rounds.hours)


def begin_rounds(tx: Transaction, home: LadderRecord, hours: float | None) -> None:
    """Let a new board answer by rounds; refuse one that did not from its start."""
    known = tx.hold(home.holdout_id).rounds.get(home.id)
    if known is not None:
        if known.hours != hours:
            had = "True" if known.hours is None else f"{known.hours:g}"
            raise HoldoutConflict(
                f"This leaderboard is in the ledger with rounds={had}. State that, or start "
                'another board, ladder="another name".'
            )
        return
    alike = [one for one in tx.ladders(home.holdout_id) if one.settings.name == home.settings.name]
    if any(ladder.submissions for ladder in alike):
        raise HoldoutConflict(
            "This leaderboard has answered at once before, and goes on so. Start another board, "
            'ladder="another name", to answer by rounds.'
        )
    tx.add(home.holdout_id, RoundsBegun(ladder=home.id, hours=hours, time=now()))
