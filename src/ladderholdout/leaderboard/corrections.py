"""Rounds of a leaderboard that are answered again, after labels were corrected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ladderholdout.arguments import segment
from ladderholdout.errors import HoldoutConflict, LedgerError, printable
from ladderholdout.leaderboard.rounds import counted
from ladderholdout.leaderboard.standings import (
    Standings,
    entrants,
    left,
    merged,
    note_left,
    note_merged,
    start,
    team_ladder,
    team_ladders,
)
from ladderholdout.ledger import Entry, LadderRecord, Transaction, digests_of
from ladderholdout.ledger.replay import rules_of, state_to
from ladderholdout.ledger.rounds import CollectedRecord
from ladderholdout.metrics import Metric

# Before the key of a submission that is answered again: its round, and its id there, follow.
_AGAIN = "again."


@dataclass(frozen=True, slots=True)
class Answer:
    """How a submission was answered, and how it is by corrected labels.

    Attributes
    ----------
    round : int
    account : str
    submission : int
        Its number on the board that was corrected.
    before, after : float
        The score released then, and now; None per rank, where an account had no place.
    improved_before, improved_after : bool
    """

    round: int
    account: str
    submission: int
    before: float | None
    after: float | None
    improved_before: bool
    improved_after: bool

    @property
    def changed(self) -> bool:
        """Whether it is another one."""
        was, now = (self.before, self.improved_before), (self.after, self.improved_after)
        return was != now

    def line(self) -> str:
        """Return it in a line."""
        was = _answer(self.before, self.improved_before)
        now = _answer(self.after, self.improved_after)
        return f"round {self.round}, {self.account}, submission {self.submission}: {was}; now {now}"

    __str__ = line


@dataclass(frozen=True, slots=True)
class ChangedRank:
    """An account whose place is another one by corrected labels.

    Attributes
    ----------
    account : str
    before, after : int or None
        Its rank; None where it had no released score.
    score_before, score_after : float or None
    """

    account: str
    before: int | None
    after: int | None
    score_before: float | None
    score_after: float | None

    def line(self) -> str:
        """Return it in a line."""
        was, now = _place(self.before, self.score_before), _place(self.after, self.score_after)
        return f"{self.account}: {was}; now {now}"

    __str__ = line


@dataclass(frozen=True, slots=True)
class Corrections:
    """What corrected labels change on a leaderboard.

    Attributes
    ----------
    name : str
        The holdout's.
    ladder : str
        The name of the board that has the corrected answers.
    of : str
        The name of the board whose rounds were answered again.
    labels : int
        How many labels were amended since the latter began.
    answers : tuple of Answer
        All that were given again, in the order of the rounds.
    ranks : tuple of ChangedRank
        Those that differ, by their rank of now.

    Examples
    --------
    >>> answers = (Answer(1, "Ada", 1, 0.75, 0.8, True, True),)
    >>> corrections = Corrections("spring", "corrected", "leaderboard", 3, answers, ())
    >>> len(corrections.lines())
    2
    >>> print(corrections)
    3 labels were amended; 1 submission in 1 round was answered again, on the board 'corrected'
      round 1, Ada, submission 1: 0.75, improved; now 0.8, improved
    """

    name: str
    ladder: str
    of: str
    labels: int
    answers: tuple[Answer, ...]
    ranks: tuple[ChangedRank, ...]

    def lines(self) -> list[str]:
        """Return what changed, a text for each line."""
        count = len(self.answers)
        labels = counted(self.labels, "label")
        rounds = counted(len({answer.round for answer in self.answers}), "round")
        submissions, were = counted(count, "submission"), "was" if count == 1 else "were"
        changed = [answer.line() for answer in self.answers if answer.changed]
        lines = [*changed, *(rank.line() for rank in self.ranks)]
        return [
            f"{labels} {'was' if self.labels == 1 else 'were'} amended; {submissions} in {rounds} "
            f"{were} answered again, on the board {self.ladder!r}",
            *(f"  {line}" for line in lines or ["no answer and no rank is another one"]),
        ]

    def __str__(self) -> str:
        return "\n".join(map(printable, self.lines()))


def check_corrected(tx: Transaction, home: LadderRecord) -> int:
    """Return how many labels were amended since a board with rounds began; or refuse a replay."""
    rounds, name = tx.rounds.of(home), home.settings.name
    if rounds is None:
        raise HoldoutConflict(
            f"The leaderboard {name!r} answers at once, and keeps no predictions but those that "
            'improved. Start another board, ladder="another name", and let the teams submit again.'
        )
    if not rounds.closed:
        raise HoldoutConflict(
            f"No round of the leaderboard {name!r} was closed yet: the first one will be answered "
            "by the labels as they are now."
        )
    tx.rounds.refuse_waiting(home)
    now, before = tx.amended(home.holdout_id), tx.amended(home.holdout_id, rounds.position)
    amended = [event.position for event in tx.events(home.holdout_id, "amended")]
    if max(amended, default=0) < rounds.position:
        raise HoldoutConflict(
            f"No label was amended since the leaderboard {name!r} began. Give the rows with the "
            f"right labels first: Leaderboard(X, y, name={tx.holdout(home.holdout_id).name!r}, "
            "...) notes which of them are others."
        )
    assert now is not None
    return int(now.sum() if before is None else (now & ~before).sum())


def begin_again(tx: Transaction, home: LadderRecord, name: str) -> LadderRecord:
    """Start the board that answers the rounds of another one again, or find it as it was left."""
    segment("ladder", name)
    rounds = tx.rounds.of(home)
    assert rounds is not None
    again = replace(home.settings, name=name)
    for ladder in tx.ladders(home.holdout_id):
        if (ladder.settings.account, ladder.settings.name) == (again.account, name):
            known = tx.rounds.of(ladder)
            if ladder.settings == again and known is not None and known.of == home.settings.name:
                return ladder
            raise HoldoutConflict(
                f"There is a ladder {name!r} already, which is no replay of this board. Choose "
                "another name, ladder=."
            )
    state = state_to(rules_of(again).start(tx.holdout(home.holdout_id).n_ladder))
    begun = tx.add_ladder(home.holdout_id, again, state)
    tx.rounds.begin(begun, rounds.hours, home.settings.name)
    return begun


def collect_again(tx: Transaction, home: LadderRecord, of: LadderRecord) -> bool:
    """Let the next round of a board wait on another one; False where that has them all.

    What was withdrawn is left out.
    """
    done = max((_source(kept)[0] for kept in _answered(tx, home)), default=0)
    holdout, rounds, entries = tx.holdout(of.holdout_id), tx.rounds.of(of), _entries(tx, of)
    for closed in () if rounds is None else rounds.closed[done:]:
        waits = [
            (kept, entry)
            for kept in tx.rounds.answered(of, closed.number)
            if (entry := entries[kept.ladder_id, kept.number]).withdrawn is None
        ]
        for kept, entry in waits:
            if entry.digest != digests_of(holdout.secret, kept.predictions, holdout.reserve)[0]:
                raise LedgerError(
                    f"What round {closed.number} kept of submission {kept.number} of "
                    f"{kept.account!r} was changed. ladder-holdout verify names all that was: "
                    "restore the ledger first."
                )
            ladder = home
            if kept.ladder_id != of.id:
                known = team_ladder(tx, home, kept.account)
                ladder = start(tx, home, kept.account) if known is None else known
            key = f"{_AGAIN}{closed.number}.{kept.id}"
            stated = kept.account, key, kept.context, kept.predictions, kept.time
            if not tx.rounds.knows(home, ladder, key):
                tx.rounds.wait(home, ladder, *stated)
        if waits:
            return True
    return False


def note_teams_again(tx: Transaction, home: LadderRecord, of: LadderRecord, per: str) -> None:
    """Note on another board which accounts are of one team, and which have left."""
    known, present = merged(tx, home), {entrant.own for entrant in entrants(tx, home, per)}
    for other, account in merged(tx, of).items():
        if other not in known and {other, account} <= present:
            note_merged(tx, home, per, account, [other])
    present = {entrant.account for entrant in entrants(tx, home, per)}
    for account in sorted((left(tx, of) - left(tx, home)) & present):
        note_left(tx, home, per, account)


def answers_of(
    tx: Transaction, home: LadderRecord, of: LadderRecord, metric: Metric
) -> tuple[Answer, ...]:
    """Return what was answered again, each with the answer before."""
    before, after, rounds = _entries(tx, of), _entries(tx, home), tx.rounds.of(of)
    originals = {
        (closed.number, kept.id): kept
        for closed in (() if rounds is None else rounds.closed)
        for kept in tx.rounds.answered(of, closed.number)
    }
    answers = []
    for kept in _answered(tx, home):
        number, identifier = _source(kept)
        original = originals[number, identifier]
        was, now = before[original.ladder_id, original.number], after[kept.ladder_id, kept.number]
        answers.append(
            Answer(
                round=number,
                account=kept.account,
                submission=was.number,
                before=None if was.risk is None else metric.to_score(was.risk),
                after=None if now.risk is None else metric.to_score(now.risk),
                improved_before=was.improved,
                improved_after=now.improved,
            )
        )
    return tuple(answers)


def changed_ranks(before: Standings, after: Standings) -> tuple[ChangedRank, ...]:
    """Return whose place is another one, by the ranks of now."""
    was, now = ({row.account: row for row in standings} for standings in (before, after))
    changes = []
    for account in dict.fromkeys((*now, *was)):
        old, new = was.get(account), now.get(account)
        if old is None or new is None or (old.rank, old.score) != (new.rank, new.score):
            places = (None if row is None else row.rank for row in (old, new))
            scores = (None if row is None else row.score for row in (old, new))
            changes.append(ChangedRank(account, *places, *scores))
    return tuple(changes)


def _answered(tx: Transaction, home: LadderRecord) -> Iterator[CollectedRecord]:
    """Yield what a board answered of the rounds of another one."""
    rounds = tx.rounds.of(home)
    for closed in () if rounds is None else rounds.closed:
        for kept in tx.rounds.answered(home, closed.number):
            if kept.key is not None and kept.key.startswith(_AGAIN):
                yield kept


def _source(kept: CollectedRecord) -> tuple[int, int]:
    """Return the round, and the id of what it collected, that a submission was taken from."""
    number, _, identifier = (kept.key or "").removeprefix(_AGAIN).partition(".")
    return int(number), int(identifier)


def _entries(tx: Transaction, home: LadderRecord) -> dict[tuple[int, int | None], Entry]:
    """Return the submissions of a board by ladder and number, without anything raw."""
    ladders = (home, *team_ladders(tx, home))
    return {
        (ladder.id, entry.number): entry for ladder in ladders for entry in tx.entries(ladder.id)
    }


def _answer(score: float | None, improved: bool) -> str:
    shown = "no score" if score is None else f"{score:.6g}"
    return f"{shown}, {'improved' if improved else 'not improved'}"


def _place(rank: int | None, score: float | None) -> str:
    return "no released score" if rank is None else f"rank {rank}, {score:.6g}"
