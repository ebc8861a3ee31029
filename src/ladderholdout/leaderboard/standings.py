"""Who is on a leaderboard, from the ledger, and what it shows of them, with certificates."""

from __future__ import annotations

import csv
import io
import math
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from html import escape
from typing import Any, ClassVar, Protocol, TypeVar

from ladderholdout.arguments import segment
from ladderholdout.errors import HoldoutConflict, InvalidArgument, printable
from ladderholdout.guard.certificate import ScoreCertificate, uncertified
from ladderholdout.guard.certify import certificate_of, certificates_of, guard_if_here
from ladderholdout.guard.containment import without_frames
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.opening import find_ladder
from ladderholdout.guard.printing import text_table
from ladderholdout.leaderboard.rules import is_board_rule, kind_of
from ladderholdout.ledger.fold import Head, LadderRecord
from ladderholdout.ledger.rules import rules_of, state_to
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.metrics import Metric
from ladderholdout.pictures import Bar, RankPicture

R = TypeVar("R", bound="_Ranked")

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
        The ladder as it was when the account's incumbent became that; None where the account
        has no released score.
    since : datetime
        When that submission was made, or the account's first where it has no released score.
    id : int
        The place of that submission in the one order of all, where that is known; else 0.
    own : str
        The account that made it, where a team has several.
    accounts : tuple of str
        All accounts of the team.
    """

    account: str
    submissions: int
    ladder: LadderRecord | None
    since: datetime
    id: int = 0
    own: str = ""
    accounts: tuple[str, ...] = ()

    @property
    def risk(self) -> float:
        """The account's released risk."""
        assert self.ladder is not None
        return float(self.ladder.state["standing"])

    @property
    def submission(self) -> int:
        """The number of its incumbent."""
        assert self.ladder is not None and self.ladder.incumbent is not None
        return self.ladder.incumbent


def homes_on(tx: Transaction, holdout_id: int) -> list[LadderRecord]:
    """Return the ladders that hold the settings of the boards on a holdout, oldest first."""
    return [
        ladder
        for ladder in tx.ladders(holdout_id)
        if ladder.settings.account == BOARD and is_board_rule(rules_of(ladder.settings).mechanism)
    ]


def team_ladders(tx: Transaction, home: LadderRecord) -> list[LadderRecord]:
    """Return the ladders of a board's teams, oldest first."""
    return [
        ladder
        for ladder in tx.ladders(home.holdout_id)
        if ladder.id != home.id
        and ladder.settings == replace(home.settings, account=ladder.settings.account)
    ]


def entrants(tx: Transaction, home: LadderRecord, per: str) -> Iterator[Entrant]:
    """Yield who submitted to a board, whose home is the ladder of the account `BOARD`.

    That ladder holds the settings, and per rank the state of all ranks.
    """
    names, by_team = merged(tx, home), dict[str, Entrant]()
    for entrant in _alone(tx, home, per):
        team = names.get(entrant.own, entrant.own)
        known = by_team.get(team)
        best = entrant if known is None else min(known, entrant, key=_place)
        count = entrant.submissions + (0 if known is None else known.submissions)
        accounts = (*(() if known is None else known.accounts), entrant.own)
        by_team[team] = replace(best, account=team, submissions=count, accounts=accounts)
    yield from by_team.values()


def best_risk(tx: Transaction, home: LadderRecord, per: str) -> float | None:
    """Return the smallest released risk of the standings; None while there is none."""
    gone = left(tx, home)
    placed = (one for one in entrants(tx, home, per) if one.ladder is not None)
    return min((one.risk for one in placed if one.account not in gone), default=None)


def _place(entrant: Entrant) -> tuple[float, datetime]:
    """Return by what the accounts of one team are compared: the released risk, then the time."""
    return math.inf if entrant.ladder is None else entrant.risk, entrant.since


def merged(tx: Transaction, home: LadderRecord) -> dict[str, str]:
    """Return under which name the accounts of a team with several are shown."""
    names: dict[str, str] = {}
    for detail in _noted(tx, home, "merged"):
        names |= dict.fromkeys(detail["others"], detail["account"])
    return names


def left(tx: Transaction, home: LadderRecord) -> set[str]:
    """Return the accounts that left the board."""
    return {detail["account"] for detail in _noted(tx, home, "left")}


def _noted(tx: Transaction, home: LadderRecord, kind: str) -> list[dict[str, Any]]:
    noted = tx.fold(home.holdout_id).noted
    return [one.detail for _, one in noted if (one.what, one.ladder) == (kind, home.id)]


def note_merged(
    tx: Transaction, home: LadderRecord, per: str, account: str, others: Sequence[str]
) -> None:
    """Note that accounts are of one team."""
    known, names = {entrant.own: entrant for entrant in _alone(tx, home, per)}, merged(tx, home)
    if not others or account in others or len(set(others)) < len(others):
        raise InvalidArgument("others", "other accounts, each once", ", ".join(others) or "none")
    for name in (account, *others):
        if name not in known:
            raise InvalidArgument("account", "one that has submitted to the board", name)
        if name in names or (name in others and name in names.values()):
            raise InvalidArgument("account", "one that is of no other team", name)
        if name in left(tx, home):
            raise InvalidArgument("account", "one that has not left the board", name)
    tx.note(home.holdout_id, "merged", home.id, account=account, others=list(others))


def note_left(tx: Transaction, home: LadderRecord, per: str, account: str) -> None:
    """Note that an account leaves the board."""
    account = merged(tx, home).get(account, account)  # a team leaves as one
    if account not in {entrant.account for entrant in entrants(tx, home, per)}:
        remedy = "What waits for its round is taken out with take_out()."
        raise InvalidArgument("account", "one that has submitted to the board", account, remedy)
    if account not in left(tx, home):
        tx.note(home.holdout_id, "left", home.id, account=account)


def _alone(tx: Transaction, home: LadderRecord, per: str) -> Iterator[Entrant]:
    """Yield who submitted, each account by itself."""
    everyone = _by_rank(tx, home) if per == "rank" else _by_team(tx, home)
    return (replace(entrant, own=entrant.account) for entrant in everyone)


def _by_team(tx: Transaction, home: LadderRecord) -> Iterator[Entrant]:
    for ladder in team_ladders(tx, home):
        account, count = ladder.settings.account, ladder.submissions
        won = ladder.chosen
        if won is not None:
            yield Entrant(account, count, ladder, won.time, won.position)
        elif count:  # all that improved was withdrawn
            yield Entrant(account, count, None, ladder.created)


def _by_rank(tx: Transaction, home: LadderRecord) -> Iterator[Entrant]:
    entries = tx.entries(home.id)
    placed = {account for _, account in home.state.get("places", ())}
    first = {entry.context["account"]: entry.time for entry in reversed(entries)}
    # The last release of an account that has a place is the one that brought it there.
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


def started_team(home: LocalLadder, account: str, predictions: Any) -> LocalLadder:
    """Return the ladder of an account beside the board's, started if the predictions are fine."""
    ladder = home.read(lambda tx, record: team_ladder(tx, record, account))
    if ladder is None:
        guard = home.guard()
        with without_frames:
            guard.metric.canonical(predictions, guard.holdout.n, guard.holdout.classes)
        ladder = home.write(
            # Locked, so that two processes start one ladder between them.
            lambda tx, record: team_ladder(tx, record, account) or start(tx, record, account)
        )
    return home.beside(ladder)


def team_ladder(tx: Transaction, home: LadderRecord, account: str) -> LadderRecord | None:
    """Return the ladder of a team, if it has one.

    Raises
    ------
    HoldoutConflict
        It has other settings than the board.
    """
    ladder = find_ladder(tx, tx.holdout(home.holdout_id), account, home.settings.name)
    if ladder is not None and ladder.settings != replace(home.settings, account=account):
        raise HoldoutConflict(
            f"The ladder {ladder.settings.name!r} of account {account!r} was started by hand, with "
            "other settings than those of the leaderboard. Submit under another account."
        )
    return ladder


def start(tx: Transaction, home: LadderRecord, account: str) -> LadderRecord:
    """Start the ladder of a team, with the settings of the board."""
    settings = replace(home.settings, account=segment("account", account))
    state = state_to(rules_of(settings).start(tx.holdout(home.holdout_id).n_ladder))
    return tx.add_ladder(home.holdout_id, settings, state)


_DRAWN = 100
"""So many accounts are drawn."""


def html_table(caption: str, lines: Iterable[tuple[str, ...]]) -> str:
    """Return a table whose first line is its head, and whose rows are named by their accounts."""
    head, *rows = lines
    cells = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{escape(text)}</th>' if place == 1 else f"<td>{escape(text)}</td>"
            for place, text in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="table" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


class _Ranked(Protocol):
    """A row of standings or of finals."""

    @property
    def rank(self) -> int: ...
    @property
    def account(self) -> str: ...
    @property
    def best_rank(self) -> int | None: ...
    @property
    def worst_rank(self) -> int | None: ...
    def _texts(self) -> tuple[str, ...]: ...


class Ranking(Sequence[R]):
    """What standings and finals share: rows, the best first, as texts and as tables.

    Attributes
    ----------
    name : str
        The holdout's.
    rows : tuple
    title : str
        Begins that of the picture.
    head : tuple of str
        Names of the columns in `lines`.
    row : type
        The kind of a row, each of whose fields is a column of `to_csv`.
    """

    __slots__ = ()
    name: str
    rows: tuple[R, ...]
    title: ClassVar[str]
    head: ClassVar[tuple[str, ...]]
    row: ClassVar[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # as that of a tuple
        return self.rows[index]

    def __iter__(self) -> Iterator[R]:
        return iter(self.rows)

    @abstractmethod
    def summary(self) -> str:
        """Return in a line what the rows come from."""

    def lines(self) -> list[tuple[str, ...]]:
        """Return what is shown of each row, under a head, as texts."""
        return [self.head, *(tuple(map(printable, row._texts())) for row in self.rows)]

    def to_csv(self) -> str:
        """Return a table with a line for each account, as comma-separated values.

        A text that a spreadsheet would run is quoted by a mark.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout.leaderboard import Leaderboard
        >>> X, y = np.arange(800).reshape(-1, 1), np.arange(800) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", reserve=0.5, ledger="memory")
        >>> releases = [board.submit(*sent) for sent in (("Ada", y), ("Ben", 1 - y))]
        >>> board.standings().to_csv().splitlines()[0]
        'rank,account,score,ties,low,high,best_rank,worst_rank,submission,submissions,since,own,accounts'
        >>> print(board.finals().to_csv().splitlines()[1])
        1,Ada,1,1.0,0.984...,1.0,1,1,,Ada
        """
        written, names = io.StringIO(), [column.name for column in fields(self.row)]
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(names)
        for row in self.rows:
            writer.writerow([_cell(getattr(row, name)) for name in names])
        return written.getvalue()

    def picture(self) -> RankPicture:
        """Return the picture of the ranks that the true scores may have, of the first accounts."""
        bars = []
        for row in [row for row in self.rows if row.best_rank is not None][:_DRAWN]:
            first, last = row.best_rank or row.rank, row.worst_rank or row.rank
            what = f"{row.account}: rank {row.rank}, by true scores {_range(first, last)}"
            bars.append(Bar(row.account, row.rank, first, last, what))
        description = f"{self.summary()}. The table has the same in numbers."
        return RankPicture(bars, len(self.rows), f"{self.title} of {self.name}", description)

    def __str__(self) -> str:
        return f"{text_table(self.lines())}\n{self.summary()}"

    def _repr_html_(self) -> str:
        return f"{html_table(self.title, self.lines())}<p>{escape(self.summary())}</p>"


@dataclass(frozen=True, slots=True)
class Standing:
    """One account on a leaderboard.

    Attributes
    ----------
    rank : int
        One more than the number of accounts with a better released score.
    account : str
    score : float
        Its released score, in the metric's own sign and units.
    ties : int
        How many other accounts share the rank.
    low, high : float or None
        Ends of the certificate for its true score; None where there is none.
    best_rank, worst_rank : int or None
        Between these is its rank by the true scores of all, as far as the certificates
        show; None where there are none.
    submission : int
        The number of the submission behind the score.
    submissions : int
        How many the account made in all, repeats included.
    since : datetime
        When that submission was made, in UTC.
    own : str
        The account that made it.
    accounts : tuple of str
        All accounts of the team: several after `Leaderboard.merge`.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.leaderboard import Leaderboard
    >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
    >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
    >>> release = board.submit("Ada", np.where(np.arange(400) < 300, y, 1 - y))
    >>> first = board.standings()[0]
    >>> first.rank, first.account, first.score
    (1, 'Ada', 0.75)
    """

    rank: int
    account: str
    score: float
    ties: int
    low: float | None
    high: float | None
    best_rank: int | None
    worst_rank: int | None
    submission: int
    submissions: int
    since: datetime
    own: str = ""
    accounts: tuple[str, ...] = ()

    def _texts(self) -> tuple[str, ...]:
        """Return the cells of its line."""
        return (
            f"{self.rank}{'=' if self.ties else ''}",
            self.account,
            f"{self.score:.6g}",
            _range(self.low, self.high),
            _range(self.best_rank, self.worst_rank),
            str(self.submissions),
        )


@dataclass(frozen=True, slots=True)
class Standings(Ranking[Standing]):
    """A leaderboard at one moment: a sequence of `Standing`, the best first.

    A table for pandas is ``pandas.DataFrame(standings)``.

    Attributes
    ----------
    name : str
        The holdout's.
    per : {"team", "rank"}
        What has a ladder of its own.
    metric, mechanism : str
    accounts : int
        Accounts that submitted, shown or not.
    submissions, releases : int
        How many there were on all accounts.
    confidence : float
        At least this is the chance that all certificates of the holdout hold together.
    rows : tuple of Standing
    missing : str or None
        Why there are no certificates.
    withdrawn : int
        How many of the submissions were withdrawn: they count as all others do.
    left : int
        How many of the accounts left the board; their submissions count, too.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout.leaderboard import Leaderboard
    >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
    >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
    >>> release = board.submit("Ada", np.where(np.arange(400) < 300, y, 1 - y))
    >>> standings = board.standings()
    >>> list(standings.lines())[0]
    ('rank', 'account', 'score', 'true score', 'true rank', 'submissions')
    >>> len(standings.summary()) > 0, standings.picture().ranks
    (True, 1)
    """

    name: str
    per: str
    metric: str
    mechanism: str
    accounts: int
    submissions: int
    releases: int
    confidence: float
    rows: tuple[Standing, ...]
    missing: str | None = None
    withdrawn: int = 0
    left: int = 0

    title = "Ranks on the leaderboard"
    head = ("rank", "account", "score", "true score", "true rank", "submissions")
    row = Standing

    def summary(self) -> str:
        """Return in a line how many submissions and releases the rows come from."""
        parts = [f"{self.withdrawn} withdrawn"] * (self.withdrawn > 0)
        parts += [f"{self.left} accounts that left"] * (self.left > 0)
        among = f" (with {' and '.join(parts)}, which count, too)" if parts else ""
        counts = (
            f"{self.submissions} submissions of {self.accounts} accounts{among}, {self.releases} "
            f"releases; {self.metric}, {self.mechanism} per {self.per}"
        )
        if self.missing is not None:
            return f"{counts}; no certificates: {self.missing}"
        return f"{counts}; true scores and ranks: {100 * self.confidence:.4g} %, all at once"


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        value = "; ".join(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def ranked(
    entrants: Sequence[Entrant], certificates: Sequence[ScoreCertificate], metric: Metric
) -> tuple[Standing, ...]:
    """Rank the accounts that have a released score, and bound their ranks by the true ones.

    Each has a certificate. Those who share a rank are in the order in which they reached it, which
    shows nothing that was not released.
    """
    ends = list(map(_interval, certificates))
    risks = sorted(entrant.risk for entrant in entrants)
    lows, highs = (sorted(values) for values in zip(*ends, strict=True)) if ends else ([], [])
    certified = any(certificate.missing is None for certificate in certificates)

    def row(entrant: Entrant, low: float, high: float) -> Standing:
        surely_better = len(lows) - bisect_right(lows, high)
        surely_worse = bisect_left(highs, low)
        ahead = bisect_left(risks, entrant.risk)
        known = math.isfinite(low)
        return Standing(
            rank=1 + ahead,
            account=entrant.account,
            score=metric.to_score(entrant.risk),
            ties=bisect_right(risks, entrant.risk) - ahead - 1,
            low=low if known else None,
            high=high if known else None,
            best_rank=1 + surely_better if certified else None,
            worst_rank=len(risks) - surely_worse if certified else None,
            submission=entrant.submission,
            submissions=entrant.submissions,
            since=entrant.since,
            own=entrant.own,
            accounts=entrant.accounts,
        )

    pairs = sorted(zip(entrants, ends, strict=True), key=lambda pair: (pair[0].risk, pair[0].since))
    return tuple(row(entrant, *interval) for entrant, interval in pairs)


def _interval(certificate: ScoreCertificate) -> tuple[float, float]:
    if certificate.low is None or certificate.high is None:
        return -math.inf, math.inf
    return certificate.low, certificate.high


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


# -- with the certificates of the accounts ----------------------------------------------

MANY = 100
"""On boards with more accounts all standings have certificates at the price of the latest one."""

# What a board showed last in this process, by its place and confidence, with the chains' ends.
_known: dict[tuple[str, int, float], tuple[tuple[Head, ...], Standings]] = {}
_REMEMBERED = 16


def standings_of(
    home: LocalLadder, tx: Transaction, record: LadderRecord, confidence: float
) -> Standings:
    """Return the standings of a board, from what its ladders released."""
    place = home.ledger, record.id, confidence
    # What is shown follows from the chains of these rows, which have it all.
    shared = (other for other, _ in tx.sharing(record.holdout_id))
    heads = tuple(holdout.end for holdout in (tx.fold(record.holdout_id), *shared))
    known = _known.get(place)
    if known is not None and known[0] == heads:
        return known[1]
    standings = _made(home, tx, record, confidence)
    if standings.missing is None:
        if len(_known) >= _REMEMBERED:
            _known.clear()
        _known[place] = heads, standings
    return standings


def _made(home: LocalLadder, tx: Transaction, record: LadderRecord, confidence: float) -> Standings:
    per = kind_of(home.facts.rules.mechanism)
    everyone, gone = list(entrants(tx, record, per)), left(tx, record)
    scored = [e for e in everyone if e.ladder is not None and e.account not in gone]
    own = [entrant.ladder for entrant in scored if entrant.ladder is not None]
    is_by_one = per == "team" and len(scored) > MANY
    latest = max(scored, key=lambda entrant: entrant.id).ladder if is_by_one else None
    certificates = certificates_of(tx, own, home.metric, guard_if_here(home), confidence, latest)
    ladders = [record, *team_ladders(tx, record)]
    return Standings(
        name=tx.holdout(record.holdout_id).name,
        per=per,
        metric=home.metric.name,
        mechanism=repr(home.facts.rules.mechanism),
        accounts=len(everyone),
        submissions=sum(entrant.submissions for entrant in everyone),
        releases=sum(ladder.state["releases"] for ladder in ladders),
        confidence=confidence,
        rows=ranked(scored, certificates, home.metric),
        missing=next((each.missing for each in certificates if each.missing), None),
        withdrawn=sum(len(ladder.withdrawn) for ladder in ladders),
        left=len(gone & {entrant.account for entrant in everyone}),
    )


def certificate_of_team(
    home: LocalLadder, tx: Transaction, record: LadderRecord, account: str | None, confidence: float
) -> ScoreCertificate:
    """Certify what was released to the team of an account, or to the first one on the board."""
    per, gone = kind_of(home.facts.rules.mechanism), left(tx, record)
    team = merged(tx, record).get(account or "", account)
    scored = [e for e in entrants(tx, record, per) if e.ladder is not None]
    wanted = [e for e in scored if (e.account == team if team else e.account not in gone)]
    if wanted:
        best = min(wanted, key=lambda entrant: (entrant.risk, entrant.since))
        assert best.ladder is not None
        return certificate_of(tx, best.ladder, home.metric, guard_if_here(home), confidence)
    missing = f"nothing was released {'yet' if account is None else f'to {account!r}'}"
    return uncertified(missing, confidence)
