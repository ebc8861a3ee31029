"""Commands of a leaderboard, beside those of any holdout."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from ladderholdout import leaderboard as boards
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard import commands
from ladderholdout.leaderboard.rounds import due_of
from ladderholdout.ledger.events import RoundClosed
from ladderholdout.metrics import Metric


@dataclass(frozen=True, slots=True)
class ClosedRound:
    """A round that was answered, as the accounts of the board may see it."""

    round: int
    time: datetime
    submissions: int
    accounts: int
    improved: int
    best: float | None
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenRound:
    """The open round of a leaderboard, how many submissions wait in it, and the rounds before."""

    round: int
    since: datetime
    due: datetime | None
    waiting: int
    of_account: int
    closed: tuple[ClosedRound, ...]


@commands.command(commands.ANYONE, reads=True)
class Leaderboard(commands.Command[boards.Standings]):
    """Rank the accounts of a leaderboard by their released scores."""


@commands.command(commands.ANYONE, reads=True)
class Round(commands.Command[OpenRound]):
    """Describe the open round of a leaderboard, and those before."""


@commands.command(commands.SUBMITTING, sets=1)
class Collect(commands.Command[boards.Collected], commands.Candidate):
    """Submit predictions to the open round of a leaderboard, whose end brings the answer."""

    key: commands.Key | None = None


@commands.command(commands.OWNER)
class CloseRound(commands.Command[ClosedRound | None]):
    """Answer what waits as one batch; the name of the holdout confirms it."""

    name: commands.Confirmation


@commands.command(commands.ANYONE, reads=True)
class Finals(commands.Command[tuple[boards.Finals, ...]]):
    """Return the finals that were held, oldest first: scores, sets of ranks and ties."""


@commands.command(commands.OWNER)
class HoldFinals(commands.Command[boards.Finals]):
    """Show how entries do on the reserve, once; the name of the holdout confirms it."""

    name: commands.Confirmation
    best: Annotated[
        commands.Whole | None, Field(description="a whole number, or none for all accounts")
    ] = None
    entries: Annotated[
        dict[str, int | list[int] | None] | None,
        Field(description="by account numbers of submissions, or none"),
    ] = None
    again: Annotated[commands.Flag, Field(description="true or false")] = False


def execute(
    board: boards.Leaderboard, account: str, command: commands.Command[Any], per_day: int | None
) -> Any:
    """Do what a command asks of a leaderboard, as one of its accounts."""
    match command:
        case Leaderboard():
            return board.standings()
        case Round():
            return _open_round(board, account)
        case Collect():
            return board.collect(account, command.given, command.origin(command.key, per_day))
        case CloseRound():
            closed = board.close_round()
            return None if closed is None else _shown(closed.record, board.metric)
        case Finals():
            return board.finals_held()
        case HoldFinals():
            if command.best is not None and command.entries is not None:
                raise InvalidArgument("best", "left out with entries", command.best)
            entries = command.best if command.entries is None else command.entries
            return board.finals(entries, again=command.again)
    raise TypeError(f"{command.word} is no command of a leaderboard")


def _open_round(board: boards.Leaderboard, account: str) -> OpenRound:
    waiting, rounds = board.waiting(), board.rounds()
    if rounds is None:
        raise HoldoutConflict("This leaderboard answers at once, and has no rounds.")
    return OpenRound(
        rounds.number,
        rounds.since,
        due_of(rounds),
        sum(waiting.values()),
        waiting.get(account, 0),
        tuple(_shown(record, board.metric) for record in rounds.closed),
    )


def _shown(record: RoundClosed, metric: Metric) -> ClosedRound:
    best = None if record.best is None else metric.to_score(record.best)
    counts = record.submissions, record.accounts, record.improved
    return ClosedRound(record.number, record.time, *counts, best, tuple(record.left_out))
