"""From the ledger to who stands on a leaderboard; and an account's ladder, started if need be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from ladderholdout.errors import HoldoutConflict
from ladderholdout.ledger import LadderRecord, Transaction
from ladderholdout.ledger.replay import rules_of, state_to

BOARD = "board"
"""The account that holds the settings of a leaderboard, and the ladder of its ranks."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """An account that has submitted.

    Attributes
    ----------
    account : str
    submissions : int
        Repeats included.
    ladder : LadderRecord or None
        The ladder as it was when the submission behind the account's score came to stand;
        None where nothing stands for it.
    since : datetime
        When that submission was made, or the account's first where nothing stands for it.
    """

    account: str
    submissions: int
    ladder: LadderRecord | None
    since: datetime

    @property
    def risk(self) -> float:
        """The released risk that stands."""
        assert self.ladder is not None
        return float(self.ladder.state["standing"])

    @property
    def submission(self) -> int:
        """The number of the submission behind it."""
        assert self.ladder is not None and self.ladder.incumbent is not None
        return self.ladder.incumbent


def team_ladders(tx: Transaction, home: LadderRecord) -> list[LadderRecord]:
    """Return the ladders of a board's teams, oldest first."""
    return [
        ladder
        for ladder in tx.ladders(home.holdout_id)
        if ladder.id != home.id
        and ladder.settings == replace(home.settings, account=ladder.settings.account)
    ]


def teams(tx: Transaction, home: LadderRecord) -> Iterator[Entrant]:
    """Yield the accounts of a board with a ladder for each team.

    Parameters
    ----------
    tx : Transaction
    home : LadderRecord
        The ladder of the account `BOARD`, which holds the settings.

    Yields
    ------
    Entrant
    """
    for ladder in team_ladders(tx, home):
        if ladder.incumbent is not None:
            (won,) = tx.entries(ladder.id, after=ladder.incumbent - 1, limit=1)
            yield Entrant(ladder.settings.account, ladder.submissions, ladder, won.time)


def entrants(tx: Transaction, home: LadderRecord, per: str) -> Iterator[Entrant]:
    """Yield who submitted to a board, and what stands for each."""
    return places(tx, home) if per == "rank" else teams(tx, home)


def places(tx: Transaction, home: LadderRecord) -> Iterator[Entrant]:
    """Yield the accounts of a board with a ladder for each rank.

    Parameters
    ----------
    tx : Transaction
    home : LadderRecord
        The ladder of the account `BOARD`, with the state of all ranks.

    Yields
    ------
    Entrant
    """
    entries = tx.entries(home.id)
    placed = {account for _, account in home.state.get("places", ())}
    first = {entry.context["account"]: entry.time for entry in reversed(entries)}
    # The last release of an account that has a place is the one that stands there.
    last = {
        entry.context["account"]: entry
        for entry in entries
        if entry.improved and entry.repeat_of is None
    }
    for account, count in Counter(entry.context["account"] for entry in entries).items():
        ladder, since = None, first[account]
        if account in placed:
            won = last[account]
            state = {**home.state, "standing": won.risk}
            ladder = replace(home, incumbent=won.number, state=state)
            since = won.time
        yield Entrant(account, count, ladder, since)


def ladder_of(tx: Transaction, home: LadderRecord, account: str) -> LadderRecord | None:
    """Return the ladder of a team, if it has one.

    Raises
    ------
    HoldoutConflict
        It has other settings than the board.
    """
    wanted = replace(home.settings, account=account)
    for ladder in tx.ladders(home.holdout_id):
        if (ladder.settings.account, ladder.settings.name) == (account, wanted.name):
            if ladder.settings != wanted:
                raise HoldoutConflict(
                    f"The ladder {wanted.name!r} of account {account!r} was started by hand, with "
                    "other settings than those of the leaderboard. Submit under another account."
                )
            return ladder
    return None


def start(tx: Transaction, home: LadderRecord, account: str) -> LadderRecord:
    """Start the ladder of a team, with the settings of the board."""
    settings = replace(home.settings, account=account)
    state = state_to(rules_of(settings).start(tx.holdout(home.holdout_id).n_ladder))
    return tx.add_ladder(home.holdout_id, settings, state)
