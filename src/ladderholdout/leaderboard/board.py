"""`Leaderboard`: many accounts on one holdout, each with the feedback of a ladder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from numpy.typing import ArrayLike

import ladderholdout.leaderboard.rounds as rounds_of
import ladderholdout.leaderboard.standings as ranks_of
from ladderholdout.arguments import choice, text
from ladderholdout.errors import HoldoutConflict, InvalidArgument, MetricError, UnknownHoldout
from ladderholdout.guard.answering import close_round, collect
from ladderholdout.guard.certificate import ScoreCertificate
from ladderholdout.guard.certify import level_of
from ladderholdout.guard.context import jsonable
from ladderholdout.guard.ladder import LocalLadder
from ladderholdout.guard.on_record import finals_on_record
from ladderholdout.guard.open_ladder import HasLadder, Origin, ladder_of
from ladderholdout.guard.opening import register, reopen_ladder, replenish
from ladderholdout.guard.seen import new_batch
from ladderholdout.guard.settings import HoldoutSettings, stated_in
from ladderholdout.guard.views import Release
from ladderholdout.leaderboard.finals import Finals, finals_shown, held_finals, owners_of
from ladderholdout.leaderboard.page import page_of, parts_of
from ladderholdout.leaderboard.rounds import Collected, Round
from ladderholdout.leaderboard.rules import DEFAULTS, RULES, check_rule, kind_of
from ladderholdout.leaderboard.standings import BOARD, Standings
from ladderholdout.ledger.events import FinalsHeld, TakenOut
from ladderholdout.ledger.fold import LadderRecord, Rounds
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms import Mechanism
from ladderholdout.metrics import Metric, get_metric


def _stated(variables: Mapping[str, Any], **others: Any) -> HoldoutSettings:
    """Return the settings among the variables of a function, of one metric and the board."""
    stated = stated_in(variables) | {"account": BOARD} | others
    scoring = stated["scoring"]
    return HoldoutSettings(**stated | {"scoring": None if scoring is None else get_metric(scoring)})


class Leaderboard:
    """A leaderboard on a holdout: accounts submit predictions, and are ranked.

    Per team, each account climbs a ladder of its own. Per rank, each place of the board has
    one, and a submission climbs from place to place (see `RankLadder`): a new account gets no
    score of its own until it takes one. Either way all accounts count together.

    Parameters
    ----------
    X, y : array-like
        The holdout's rows and their labels, as for `LadderHoldout`. They are registered, or
        found again.
    scoring : str or Metric, optional
        Needed for a new leaderboard.
    name : str, optional
        What to call the holdout.
    per : {"team", "rank"}, default="team"
        What has a ladder of its own (Blum & Hardt 2015, Section 2.1).
    mechanism : SimplifiedLadder, Ladder or RankLadder, optional
        The last one per rank, the others per team. By default `SimplifiedLadder` or
        `RankLadder` with 10 places, and a step of one over the root of n.
    budget : int, optional
        How many releases each team may get; there is none per rank.
    ladder : str, default="leaderboard"
        What the ladders of this board are called in the ledger.
    rounds : bool or float, default=False
        Whether submissions are collected and answered together when their round is closed: by
        `close_round` alone, or, with a number, also after so many hours. Fixed with the board.
    sample_weight, classes, loss_range, target_range, pos_label, overlap, ledger, vault, \
    reserve, confidence, ids
        Settings of `LadderHoldout`.

    Raises
    ------
    InvalidArgument
        An argument is outside of what is allowed.
    HoldoutConflict
        The ledger knows this leaderboard under other settings.
    OverlapError
        Half of the rows or more are in another holdout.
    LedgerError, VaultError
        The record or the rows cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
    >>> board = Leaderboard(X, y, scoring="accuracy", name="spring-2026", ledger="memory")
    >>> for account, right in (("Ada", 300), ("Ben", 310), ("Cyd", 301), ("Ada", 305)):
    ...     release = board.submit(account, np.where(np.arange(400) < right, y, 1 - y))
    ...     print(account, release.score, release.improved)
    Ada 0.75 True
    Ben 0.75 True
    Cyd 0.75 True
    Ada 0.75 False
    >>> [(row.rank, row.account, row.ties) for row in board.standings()]
    [(1, 'Ada', 2), (1, 'Ben', 2), (1, 'Cyd', 2)]
    """

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        *,
        scoring: str | Metric | None = None,
        name: str | None = None,
        per: str = "team",
        mechanism: Mechanism | None = None,
        budget: int | None = None,
        ladder: str = "leaderboard",
        rounds: bool | float = False,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        loss_range: tuple[float, float] | None = None,
        target_range: tuple[float, float] | None = None,
        pos_label: Any = None,
        overlap: str = "auto",
        ledger: str | os.PathLike[str] | None = None,
        vault: str | os.PathLike[str] | bool | None = None,
        reserve: float | None = None,
        confidence: float | None = None,
        ids: Any = None,
    ) -> None:
        per = choice("per", per, tuple(RULES))
        if mechanism is not None:
            check_rule(per, mechanism)
        if budget is not None and per == "rank":
            raise InvalidArgument("budget", 'left out with per="rank"', budget)
        hours = rounds_of.checked_hours(rounds)
        home = register(X, y, _stated(locals(), default=DEFAULTS[per]))
        assert not home.by_metric
        self._hold(home)
        if rounds is not False:
            home.write(lambda tx, record: rounds_of.begin_rounds(tx, record, hours))
        if self.per != per:
            raise HoldoutConflict(
                f"This leaderboard is in the ledger with per={self.per!r}, and you ask for "
                f'{per!r}. State the former, or start another board, ladder="another name", '
                "which counts against the same holdout."
            )

    @classmethod
    def open(
        cls,
        name: str,
        *,
        scoring: str | Metric | None = None,
        ladder: str = "leaderboard",
        ledger: str | os.PathLike[str] | None = None,
    ) -> Leaderboard:
        """Go on with a leaderboard by its holdout's name alone.

        Parameters
        ----------
        name : str
            As it was registered.
        scoring : Metric, optional
            Only needed for a metric of your own.
        ladder, ledger
            As for the class.

        Returns
        -------
        Leaderboard

        Raises
        ------
        UnknownHoldout
            The ledger holds no such holdout or leaderboard.
        LedgerError
            The ledger cannot be read.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", name="autumn", ledger="memory:autumn")
        >>> Leaderboard.open("autumn", ledger="memory:autumn").submit("Ada", y).score
        1.0
        """
        try:
            home = reopen_ladder(_stated(locals()))
        except UnknownHoldout as error:
            raise UnknownHoldout(
                f"{error} A leaderboard is started with its rows: Leaderboard(X, y, ...)."
            ) from None
        return cls._of(home)

    @classmethod
    def on(cls, holdout: HasLadder) -> tuple[Leaderboard, ...]:
        """Return the leaderboards on the rows of a holdout, oldest first.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout import LadderHoldout
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", name="summer", ledger="memory:summer")
        >>> [each.name for each in Leaderboard.on(LadderHoldout.open("summer", account="board",
        ...     ladder="leaderboard", ledger="memory:summer"))]
        ['summer']
        """
        ladder = ladder_of(holdout)
        if not isinstance(ladder, LocalLadder):
            return ()
        homes = ladder.read(lambda tx, record: ranks_of.homes_on(tx, record.holdout_id))
        return tuple(cls._of(ladder.beside(home)) for home in homes)

    @classmethod
    def _of(cls, home: LocalLadder) -> Leaderboard:
        board = cls.__new__(cls)
        board._hold(home)
        return board

    def _hold(self, home: LocalLadder) -> None:
        self._home, self.per = home, kind_of(home.facts.rules.mechanism)
        self._by_rounds: bool | None = None
        # Handles of accounts that have a ladder; what they hold never changes.
        self._teams: dict[str, LocalLadder] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_teams": {}}

    @property
    def name(self) -> str:
        """The holdout's name."""
        return self._home.verified().name

    @property
    def metric(self) -> Metric:
        """What is measured."""
        return self._home.metric

    @property
    def mechanism(self) -> Mechanism:
        """The rule of the ladders."""
        return self._home.facts.rules.mechanism

    @property
    def ladder(self) -> str:
        """What the ladders of the board are called."""
        return self._home.facts.ladder

    @property
    def ledger(self) -> str:
        """The URL of the ledger."""
        return self._home.ledger

    def __repr__(self) -> str:
        return f"Leaderboard(per={self.per!r}, {self._home!r})"

    def submit(
        self, account: str, predictions: Any, *, context: Mapping[str, Any] | None = None
    ) -> Release | Collected:
        """Submit the predictions of an account; its first ones bring it onto the record.

        With rounds they are read and wait until the round is closed.

        Parameters
        ----------
        account : str
            Who submits.
        predictions : array-like
            Predictions for the holdout's rows, as `LadderHoldout.submit` takes them.
        context : mapping, optional
            Anything JSON can hold that you want to find in the history.

        Returns
        -------
        Release
            Its score is the account's released score. Per rank it is, for an account without
            a place, that of the last place: the one to beat. With rounds it is `Collected`.

        Raises
        ------
        InvalidSubmission
            The predictions are refused; nothing was written.
        LedgerError
            The ledger cannot be written; nothing was released.
        """
        account = text("account", account)
        if account == BOARD:
            raise InvalidArgument("account", f"another name than {BOARD!r}", "that", "It is taken.")
        stated = jsonable(context)
        if self.by_rounds:
            return self.collect(account, predictions, Origin(context=stated))
        if self.per == "rank":
            origin = Origin(context={**stated, "account": account}, account=account)
            return self._home.submit(predictions, origin)
        return self._team(account, predictions).submit(predictions, Origin(context=stated))

    # -- rounds -----------------------------------------------------------------------

    @property
    def by_rounds(self) -> bool:
        """Whether the board answers by rounds, which never changes."""
        if self._by_rounds is None:
            self._by_rounds = self.rounds() is not None
        return self._by_rounds

    def rounds(self) -> Rounds | None:
        """Return the rounds of the board; None where it answers at once.

        Returns
        -------
        Rounds or None
            Its `number` is that of the open round, `closed` has the others, oldest first.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory", rounds=True)
        >>> board.rounds().number
        1
        """
        return self._home.read(lambda tx, home: tx.fold(home.holdout_id).rounds.get(home.id))

    def collect(self, account: str, predictions: Any, origin: Origin) -> Collected:
        """Let predictions wait for their round; `submit` does so where the board has rounds.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout.guard.open_ladder import Origin
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory", rounds=24)
        >>> collected = [board.collect("Ada", y, Origin(key=key)) for key in ("1", "2", "2")]
        >>> board.waiting(), board.close_if_due()  # what has a key waits once
        ({'Ada': 2}, None)
        """
        self._close_where_due()
        ladder = self._home if self.per == "rank" else self._team(account, predictions)
        if self.per == "rank":
            origin = replace(origin, context={**origin.context, "account": account})
        placed = self._home.placed(predictions)
        rounds, waiting = collect(self._home, ladder.guard(), account, placed, origin)
        return Collected(rounds.number, account, waiting, rounds_of.due_of(rounds))

    def waiting(self) -> dict[str, int]:
        """Return by account how many submissions wait for the open round to be closed.

        Returns
        -------
        dict of str to int

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory", rounds=True)
        >>> collected = board.submit("Ada", y)
        >>> board.waiting()
        {'Ada': 1}
        """
        self._close_where_due()
        rounds = self.rounds()
        return {} if rounds is None else rounds.counts

    def close_round(self) -> Round | None:
        """Answer all submissions that wait, together as one announced batch.

        They were all fixed before any of them is answered, so each pays for its place in the
        batch and for what was released in rounds before, and not for each other.

        Returns
        -------
        Round or None
            The round with its releases; None where nothing waits, and the round goes on.

        Raises
        ------
        HoldoutConflict
            The board has no rounds.
        MetricError
            The metric failed on all that waits; nothing was released.
        LedgerError
            The ledger cannot be written; nothing was released.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory", rounds=True)
        >>> for account, right in (("Ada", 300), ("Ben", 360)):
        ...     print(board.submit(account, np.where(np.arange(400) < right, y, 1 - y)).line())
        round 1: 1 submission of Ada waits until the round is closed
        round 1: 1 submission of Ben waits until the round is closed
        >>> len(board.standings())
        0
        >>> closed = board.close_round()
        >>> [(account, release.score) for account, release in closed.releases]
        [('Ada', 0.75), ('Ben', 0.9)]
        >>> board.rounds().number
        2
        """
        if not self.by_rounds:
            raise HoldoutConflict(
                "This leaderboard answers at once. Rounds are fixed when a board is started: "
                "Leaderboard(X, y, ..., rounds=True)."
            )
        closed = close_round(
            self._home,
            lambda ladder: self._home.beside(ladder).guard(),
            new_batch(),
            lambda tx, home: ranks_of.best_risk(tx, home, self.per),
            ranked=self.per == "rank",
        )
        return None if closed is None else Round(*closed, self.metric)

    def take_out(self, account: str) -> int:
        """Take what an account has waiting out of the open round; the owner may.

        Its round names the account as left out, and answers nothing of it.

        Parameters
        ----------
        account : str

        Returns
        -------
        int
            How many submissions there were.

        Raises
        ------
        InvalidArgument
            Nothing of the account waits.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory", rounds=True)
        >>> collected = [board.submit(account, y) for account in ("Ada", "Ben")]
        >>> board.take_out("Ben"), board.close_round().record.left_out
        (1, ('Ben',))
        """
        text("account", account)

        def take(tx: Transaction, home: LadderRecord) -> int:
            rounds = tx.hold(home.holdout_id).rounds.get(home.id)
            counts = {} if rounds is None else rounds.counts
            if count := counts.get(account):
                tx.add(home.holdout_id, TakenOut(home=home.id, account=account))
                return count
            waiting = ", ".join(counts) or "none"
            raise InvalidArgument("account", f"one that waits ({waiting})", account)

        return self._home.write(take)

    def close_if_due(self) -> Round | None:
        """Close the round where its hours are over and something waits.

        Whoever submits to the board or reads it does so first, so that no timer is needed.

        Returns
        -------
        Round or None

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory", rounds=24)
        >>> board.close_if_due() is None
        True
        """
        due = rounds_of.due_of(rounds) if self.by_rounds and (rounds := self.rounds()) else None
        return self.close_round() if due is not None and due <= datetime.now(UTC) else None

    def _close_where_due(self) -> None:
        """Close the round if it is due; if the metric fails, whoever asks is not refused for it."""
        with suppress(MetricError):
            self.close_if_due()

    def _team(self, account: str, predictions: Any) -> LocalLadder:
        """Return the ladder of an account, started if these predictions are fine."""
        if account not in self._teams:
            self._teams[account] = ranks_of.started_team(self._home, account, predictions)
        return self._teams[account]

    def standings(self, confidence: float | None = None) -> Standings:
        """Return the ranks of all accounts, from releases alone; this costs no query.

        Parameters
        ----------
        confidence : float, optional
            Confidence of all certificates together, in (0, 1). By default it is the registered one;
            another has a price, as in `LadderHoldout.certificate`.

        Returns
        -------
        Standings
        """
        self._close_where_due()
        stated = level_of(self._home, confidence)
        return self._home.read(
            lambda tx, home: ranks_of.standings_of(self._home, tx, home, stated), shown=True
        )

    def replenish(self, X: Any, y: ArrayLike, **fresh: Any) -> Leaderboard:
        """Let fresh rows take the place of these, for new rounds or for finals on fresh rows.

        Everything is as `LadderHoldout.replenish` has it. Rules, rounds, teams and accounts go on.

        Returns
        -------
        Leaderboard
            On the fresh rows. With ``reserve=`` its finals have so many of them.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(900).reshape(-1, 1), np.arange(900) % 2
        >>> board = Leaderboard(X[:400], y[:400], scoring="accuracy", ledger="memory")
        >>> last = board.replenish(X[400:], y[400:], reserve=0.8)
        >>> releases = [last.submit("Ada", y[400:]), last.submit("Ben", 1 - y[400:])]
        >>> [(row.account, row.rank_set) for row in last.finals()]
        [('Ada', '1'), ('Ben', '2')]
        """
        return self._of(replenish(self._home, X, y, **fresh))

    # -- accounts ---------------------------------------------------------------------

    def merge(self, account: str, *others: str) -> None:
        """Take several accounts for those of one team from the start, on record.

        In the standings and in finals they are one account, with the best of what was released to
        any of them and all of their submissions. What they submit later is under its own name
        and counts for the team. Certificates do not change: they count all accounts together.

        Parameters
        ----------
        account : str
            The name under which the team is shown.
        *others : str
            Its other accounts.

        Raises
        ------
        InvalidArgument
            An account has not submitted, or is of another team already.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
        >>> releases = [board.submit("Ada", 1 - y), board.submit("Ada too", y)]
        >>> board.merge("Ada", "Ada too")
        >>> [(row.account, row.score, row.submissions) for row in board.standings()]
        [('Ada', 1.0, 2)]
        """
        self._home.write(lambda tx, home: ranks_of.note_merged(tx, home, self.per, account, others))

    def leave(self, account: str) -> None:
        """Take an account off the board, on record; what was released to it stays counted.

        Its submissions are in no standings and no finals that are held later.

        Parameters
        ----------
        account : str

        Raises
        ------
        InvalidArgument
            The account has not submitted.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
        >>> releases = [board.submit("Ada", 1 - y), board.submit("Ben", y)]
        >>> board.leave("Ben")
        >>> [row.account for row in board.standings()], board.standings().submissions
        (['Ada'], 2)
        """
        self._home.write(lambda tx, home: ranks_of.note_left(tx, home, self.per, account))

    def certificate(
        self, account: str | None = None, confidence: float | None = None
    ) -> ScoreCertificate:
        """Return an interval for the true score of an account's incumbent.

        It pays for all that was released to any account before that submission was made: it
        holds whoever talked with whom, and for the winner of the board as well.

        Parameters
        ----------
        account : str, optional
            The account; by default that of the first row of the standings.
        confidence : float, optional
            Confidence of all certificates of this holdout together, as `standings` takes it.

        Returns
        -------
        ScoreCertificate
            The interval; where none can be given, its `missing` is the reason.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
        >>> release = board.submit("Ada", np.where(np.arange(400) < 300, y, 1 - y))
        >>> print(board.certificate("Ada").line())
        true score in 0.676 to 0.817 (95 %, exact binomial)
        """
        stated = level_of(self._home, confidence)
        if account is not None:
            text("account", account)
        return self._home.read(
            lambda tx, home: ranks_of.certificate_of_team(self._home, tx, home, account, stated),
            shown=True,
        )

    def finals(
        self,
        entries: int | Mapping[str, int | Sequence[int] | None] | None = None,
        *,
        again: bool = False,
        confidence: float | None = None,
    ) -> Finals:
        """Hold the finals on the reserve, or return them as they are on record.

        The entries are submissions that were made before. Each is compared with each on the rows
        of the reserve, from which no submission was answered: losses of 0 and 1 by exact sign
        tests, other means of losses by bets on differences, both simultaneously (Holm 1979), other
        metrics by their intervals. The sets of ranks follow (Mogstad, Romano, Shaikh & Wilhelm
        2024). Once finals are on record, this returns the latest ones and shows nothing new.

        Parameters
        ----------
        entries : int or mapping of str to int, list of int or None, optional
            By account the number of a submission, or of several, whose predictions the ledger
            keeps: those that improved, and those of rounds. None is the account's best released
            one. An int takes the first accounts of the standings. By default all take part, each
            with its best one.
        again : bool, default=False
            Whether to hold finals although there are some: they pay for what these showed.
        confidence : float, optional
            That all that all finals of the holdout show holds at once. By default the registered
            one; another has a price.

        Returns
        -------
        Finals

        Raises
        ------
        HoldoutConflict
            There is no reserve, nothing is known for the metric or rows with weights, or finals of
            other entries are on record.
        InvalidArgument
            An entry is refused, or there are less than 2 or more than 1,000.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(800).reshape(-1, 1), np.arange(800) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", reserve=0.5, ledger="memory")
        >>> for account, right in (("Ada", 700), ("Ben", 500), ("Ben", 720)):
        ...     release = board.submit(account, np.where(np.arange(800) < right, y, 1 - y))
        >>> finals = board.finals({"Ada": 1, "Ben": [1, 2]})
        >>> [(row.account, row.submission, row.rank_set) for row in finals]
        [('Ben', 2, '1'), ('Ada', 1, '2')]
        >>> board.finals() == finals
        True
        """
        stated = level_of(self._home, confidence)
        return self._shown(held_finals(self._home, self.per, entries, stated, again=again))

    def finals_held(self) -> tuple[Finals, ...]:
        """Return the finals of this board that are on record, oldest first.

        Returns
        -------
        tuple of Finals

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(800).reshape(-1, 1), np.arange(800) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", reserve=0.5, ledger="memory")
        >>> releases = [board.submit("Ada", y), board.submit("Ben", 1 - y)]
        >>> len(board.finals_held()), board.finals().number, len(board.finals_held())
        (0, 1, 1)
        """
        return tuple(map(self._shown, self._home.read(finals_on_record, shown=True)))

    def page(self) -> str:
        """Return the board as one HTML page: standings, rounds and finals, with pictures.

        Returns
        -------
        str

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
        >>> release = board.submit("Ada", y)
        >>> "<h1>Leaderboard of" in board.page()
        True
        """
        return page_of(*self._parts())

    def section(self, *, level: int = 2) -> str:
        """Return what `page` has as a part of another page, below headings of this level.

        Examples
        --------
        >>> import numpy as np
        >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
        >>> board = Leaderboard(X, y, scoring="accuracy", ledger="memory")
        >>> "<h3>Standings</h3>" in board.section(level=3)
        True
        """
        return parts_of(*self._parts(), level=level, name=f"{self._home.id}-")

    def _parts(self) -> tuple[Standings, tuple[Finals, ...], list[str]]:
        rounds = self.rounds()
        closed = () if rounds is None else rounds.closed
        lines = [rounds_of.round_line(record, self.metric) for record in closed]
        return self.standings(), self.finals_held(), lines

    def _shown(self, record: FinalsHeld) -> Finals:
        owners = self._home.read(lambda tx, home: owners_of(tx, home, record))
        return finals_shown(record, self.name, self.metric, self._home.facts.n_reserve, owners)
