"""Finals of a leaderboard: for each team its score, and the set of ranks that it may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

import numpy as np

import ladderholdout.leaderboard.standings as ranks
from ladderholdout.arguments import whole
from ladderholdout.certificates.finals import of_teams, rank_sets
from ladderholdout.certificates.score_intervals import assumptions_of
from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.certificate import interval
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.on_record import finals_of
from ladderholdout.ledger.events import FinalsHeld
from ladderholdout.ledger.evidence import shown_of
from ladderholdout.ledger.fold import LadderRecord, refuse_waiting
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric

_FEW = 3
"""So many ties are named in a line; of more their number is."""


Entries: TypeAlias = int | Mapping[str, int | Sequence[int] | None] | None
"""Who takes part in finals, as `Leaderboard.finals` takes it."""


@dataclass(frozen=True, slots=True)
class FinalStanding:
    """One account in finals.

    Attributes
    ----------
    rank : int
        One more than the number of accounts with a better score on the reserve.
    account : str
    submission : int
        The number of its entry; of several, that with the best score on the reserve.
    score : float or None
        That score, as it is shown; None where the metric has no value.
    low, high : float or None
        Ends of the interval for its true score, which is that of the best of its entries.
    best_rank, worst_rank : int
        Between these is its rank by the true scores of all.
    ties : tuple of str
        The accounts from which it is not separated, in the order of the ranks.
    own : str
        The account that made the entry, where a team has several.

    Examples
    --------
    >>> FinalStanding(1, "Ada", 3, 0.91, 0.88, 0.93, 1, 2, ("Ben",)).rank_set
    '1 to 2'
    """

    rank: int
    account: str
    submission: int
    score: float | None
    low: float | None
    high: float | None
    best_rank: int
    worst_rank: int
    ties: tuple[str, ...]
    own: str = ""

    @property
    def rank_set(self) -> str:
        """The ranks that it may have, in a few characters."""
        if self.best_rank == self.worst_rank:
            return str(self.best_rank)
        return f"{self.best_rank} to {self.worst_rank}"

    def _texts(self) -> tuple[str, ...]:
        """Return the cells of its line."""
        ties = ", ".join(self.ties) if len(self.ties) <= _FEW else f"{len(self.ties)} accounts"
        return (
            str(self.rank),
            self.account,
            str(self.submission)
            + (f" of {self.own}" if self.own not in ("", self.account) else ""),
            "" if self.score is None else f"{self.score:.6g}",
            "" if self.low is None or self.high is None else interval(self.low, self.high),
            self.rank_set,
            ties,
        )


@dataclass(frozen=True, slots=True)
class Finals(ranks.Ranking[FinalStanding]):
    """Finals of a leaderboard: a sequence of `FinalStanding`, the best first.

    With the stated confidence all that finals of the holdout show is true at once: each interval,
    each set of ranks, and who is better than whom. A table for pandas is
    ``pandas.DataFrame(finals)``.

    Attributes
    ----------
    name : str
        The holdout's.
    metric : str
    number : int
        Among all finals of the holdout, from 1: later ones pay for what earlier ones showed.
    time : datetime
        When they were held, in UTC.
    n : int
        The rows of the reserve, on which they were held.
    confidence : float
    bound : str
        The tests and the inequality behind it.
    log_count : float
        L: the level was divided by exp(L), for the number of the finals and what the reserve had
        shown before.
    log_values : float
        What later queries of the reserve pay for what was shown, in nats.
    assumptions : tuple of str
        What must be true; where it is not, the result is void.
    rows : tuple of FinalStanding

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.leaderboard import Leaderboard
    >>> X, y = np.arange(800).reshape(-1, 1), np.arange(800) % 2
    >>> board = Leaderboard(X, y, scoring="accuracy", reserve=0.5, ledger="memory")
    >>> for account, right in (("Ada", 760), ("Ben", 755), ("Cyd", 500)):
    ...     release = board.submit(account, np.where(np.arange(800) < right, y, 1 - y))
    >>> finals = board.finals()
    >>> [(row.account, row.rank_set, row.ties) for row in finals]
    [('Ada', '1 to 2', ('Ben',)), ('Ben', '1 to 2', ('Ada',)), ('Cyd', '3', ())]
    >>> finals.separated, finals.pairs
    (2, 3)
    >>> len(finals.lines()), "2 of 3 pairs separated" in finals.summary()
    (4, True)
    >>> [held == finals for held in board.finals_held()], finals.picture().ranks
    ([True], 3)
    """

    name: str
    metric: str
    number: int
    time: datetime
    n: int
    confidence: float
    bound: str
    log_count: float
    log_values: float
    assumptions: tuple[str, ...] = field(repr=False)
    rows: tuple[FinalStanding, ...]

    title = "Finals"
    head = (
        "rank",
        "account",
        "entry",
        "score",
        "true score",
        "true rank",
        "not separated from",
    )
    row = FinalStanding

    @property
    def pairs(self) -> int:
        """How many pairs of accounts there are."""
        return len(self.rows) * (len(self.rows) - 1) // 2

    @property
    def separated(self) -> int:
        """How many pairs of accounts are separated."""
        return self.pairs - sum(len(row.ties) for row in self.rows) // 2

    def summary(self) -> str:
        """Return in a line what the rows hold with."""
        return (
            f"finals {self.number} of {self.time:%Y-%m-%d}: {self.separated} of {self.pairs} "
            f"pairs separated on {self.n} rows of the reserve; {self.metric}, {self.bound}; "
            f"all of it holds at once, {100 * self.confidence:.4g} %"
        )


def owners_of(tx: Transaction, home: LadderRecord, record: FinalsHeld) -> list[str]:
    """Return of each entry whose submission it is: of a team with several accounts, of which."""
    ladders = {ladder.id: ladder.settings.account for ladder in ranks.team_ladders(tx, home)}
    return [
        ladders.get(ladder) or tx.submission(home.id, number).context["account"]
        for _, ladder, number, _ in record.entries
    ]


def finals_shown(
    record: FinalsHeld, name: str, metric: Metric, n: int, owners: Sequence[str]
) -> Finals:
    """Return finals as they are shown, by account; `owners` has whose each entry is."""
    shown, accounts = shown_of(record), list(dict.fromkeys(entry[0] for entry in record.entries))
    teams = [accounts.index(entry[0]) for entry in record.entries]
    better = of_teams(shown.better, teams, len(accounts))
    first, last = rank_sets(better)
    apart = better | better.T
    # A metric may have no value for an entry, whose true score is then anywhere.
    risks = [np.inf if risk is None else risk for risk in shown.risks]
    best = [
        min((place for place, team in enumerate(teams) if team == number), key=risks.__getitem__)
        for number in range(len(accounts))
    ]
    order = sorted(range(len(accounts)), key=lambda number: risks[best[number]])
    rows = []
    for number in order:
        own = [place for place, team in enumerate(teams) if team == number]
        ties = tuple(
            accounts[other] for other in order if other != number and not apart[number, other]
        )
        risk = risks[best[number]]
        rows.append(
            FinalStanding(
                rank=1 + sum(risks[place] < risk for place in best),
                account=accounts[number],
                submission=record.entries[best[number]][2],
                score=None if risk == np.inf else metric.to_score(risk),
                low=_end([shown.highs[place] for place in own], metric),
                high=_end([shown.lows[place] for place in own], metric),
                best_rank=int(first[number]),
                worst_rank=int(last[number]),
                ties=ties,
                own=owners[best[number]],
            )
        )
    amended = (
        f"{record.amended} labels of the reserve were amended before: all holds for the labels as "
        "registered, whatever they were",
    )
    return Finals(
        name=name,
        metric=metric.name,
        number=record.number,
        time=record.time,
        n=n,
        confidence=record.confidence,
        bound=record.bound,
        log_count=record.log_count,
        log_values=shown.log_values,
        assumptions=(
            *assumptions_of(metric),
            *(amended if record.amended else ()),
        ),
        rows=tuple(rows),
    )


def _end(risks: Sequence[float | None], metric: Metric) -> float | None:
    """Return an end of the interval for a team: the best of its entries' ends."""
    known = [risk for risk in risks if risk is not None]
    return metric.to_score(min(known)) if len(known) == len(risks) else None


# -- who takes part -------------------------------------------------------------------


def held_finals(
    home: LocalLadder, per: str, entries: Entries, confidence: float, *, again: bool
) -> FinalsHeld:
    """Hold the finals of a board, or return those on record; refuse those of other entries.

    `entries` are as `Leaderboard.finals` takes them.
    """

    def contestants(tx: Transaction, record: LadderRecord) -> list[tuple[str, int, int]]:
        known = tx.fold(record.holdout_id)
        rounds = known.rounds.get(record.id)
        if rounds is not None and (again or not known.finals):
            refuse_waiting(rounds, record.settings.name)
        gone, names = ranks.left(tx, record), ranks.merged(tx, record)
        everyone = [e for e in ranks.entrants(tx, record, per) if e.account not in gone]
        teams = [] if per == "rank" else ranks.team_ladders(tx, record)
        ladders = {ladder.settings.account: ladder for ladder in teams}
        return chosen(tx, record, everyone, ladders, entries, names)

    held = finals_of(home, contestants, confidence, again=again)
    if entries is not None and not again:
        wanted = {(ladder, number) for _, ladder, number in home.read(contestants)}
        if wanted != {entry[1:3] for entry in held.entries}:
            raise HoldoutConflict(
                f"Finals of other entries are on record, of {held.time:%Y-%m-%d}: read them "
                "with finals(). again=True holds further ones, which pay for what those showed."
            )
    return held


def chosen(
    tx: Transaction,
    home: LadderRecord,
    everyone: Sequence[ranks.Entrant],
    ladders: Mapping[str, LadderRecord],
    entries: Entries,
    names: Mapping[str, str],
) -> list[tuple[str, int, int]]:
    """Return who takes part: of each entry the account, the ladder and the number.

    Parameters
    ----------
    tx : Transaction
    home : LadderRecord
        That of the board.
    everyone : sequence of Entrant
    ladders : mapping of str to LadderRecord
        By account, where each has a ladder of its own.
    entries
        As `Leaderboard.finals` takes them.
    names : mapping of str to str
        Under which name the accounts of a team with several are shown.
    """
    placed = [entrant for entrant in everyone if entrant.ladder is not None]
    placed.sort(key=lambda entrant: (entrant.risk, entrant.since))
    released = {entrant.account: entrant for entrant in placed}
    if entries is None or not isinstance(entries, Mapping):
        most = len(placed) if entries is None else whole("entries", entries)
        entries = dict.fromkeys(list(released)[:most])
    known = {entrant.account for entrant in everyone}
    named: list[tuple[str, int, int]] = []
    for account, stated in entries.items():
        team, own = names.get(account, account), account
        if stated is None:
            if team not in released:
                raise InvalidArgument("entries", "accounts with a released score", account)
            stated, own = released[team].submission, released[team].own
        elif team not in known:
            what = "numbers of submissions that the account made"
            raise InvalidArgument("entries", what, f"some of {account!r}, which made none or left")
        numbers = [stated] if isinstance(stated, int | np.integer) else list(stated)
        for number in dict.fromkeys(whole("entries", number) for number in numbers):
            entry = (team, *_entry(tx, home, ladders, own, number))
            if entry not in named:
                named.append(entry)
    return named


def _entry(
    tx: Transaction,
    home: LadderRecord,
    ladders: Mapping[str, LadderRecord],
    account: str,
    number: int,
) -> tuple[int, int]:
    """Return ladder and number of an entry; of a repeat the number of the first submission."""
    ladder = ladders.get(account, home)
    entries = tx.entries(ladder.id, after=number - 1, limit=1)
    fits = bool(entries) and (ladder is not home or not ladders)
    if fits and ladder is home:  # one ladder holds the submissions of all accounts
        fits = entries[0].context.get("account") == account
    if not fits:
        what = f"submission {number} of {account!r}"
        raise InvalidArgument("entries", "numbers of submissions that the account made", what)
    return ladder.id, entries[0].repeat_of or number
