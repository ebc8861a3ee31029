"""What certificates count: all that had been shown of a holdout's rows at some moment."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ladderholdout.certificates import transcript as released
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.guard.views import AN_OLDER_COPY
from ladderholdout.ledger.events import LadderSettings
from ladderholdout.ledger.fold import Holdout, Improvement, LadderRecord
from ladderholdout.ledger.log import Chosen, LadderQueries
from ladderholdout.ledger.rules import rules_of, stored_metric
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms import MECHANISMS, Evidence, Mechanism, RankLadder
from ladderholdout.mechanisms.arithmetic import HALFWAY
from ladderholdout.mechanisms.base import counting_of
from ladderholdout.mechanisms.rules import LARGEST_EXPONENT, LEAST_EXPONENT
from ladderholdout.metrics.scales import Scale

Bars: TypeAlias = Mapping[int, Mapping[int, float]]
"""By ladder and by number of the submission; empty where a ladder is no `RankLadder`."""


def bars_on(tx: Transaction, holdout_id: int) -> Bars:
    """Return what each release had to be below, of the ladders with ranks.

    Of those on a holdout, and on the holdouts that share rows with it.
    """
    holdouts = holdout_id, *tx.fold(holdout_id).sharing
    return {ladder.id: _bars_of(tx, ladder) for number in holdouts for ladder in tx.ladders(number)}


def _bars_of(tx: Transaction, ladder: LadderRecord) -> dict[int, float]:
    """Return which risk each release of a `RankLadder` had to be below, by submission.

    It is made of earlier releases alone. Where a place was empty, any risk could have been
    released, and it is left out.
    """
    if ladder.settings.mechanism not in MECHANISMS:
        return {}
    rules = rules_of(ladder.settings)
    rule, unit = rules.mechanism, rules.unit
    if not isinstance(rule, RankLadder) or unit is None:
        return {}
    bars = {}
    state, unused = rule.start(1), np.random.default_rng(0)
    for entry in tx.entries(ladder.id):
        if entry.improved and entry.repeat_of is None:
            account = entry.context["account"]
            bar = rule.to_beat(state, account)
            if bar is not None:
                bars[entry.number] = bar * rule.step * unit
            # A release is on the grid already: it takes the place that it took.
            state, _ = rule.decide(state, Evidence(entry.risk / unit, account=account), unused)
    return bars


# Of a risk that has no largest value: a release is a number of 64 bits.
_NUMBERS = 2**64


@dataclass(frozen=True, slots=True)
class CountedLadder:
    """A ladder as its releases are counted; without its rule where this process knows none.

    `counts` states whether each loss is 0 or 1, without weights; `least` is the smallest risk of
    its metric if there is one, `asked` has the submissions whose value was asked for, of a ladder
    that releases none, by the time that counts; `bars` has the risks that releases of a
    `RankLadder` had to be below; `scale` is the grid of its releases where that is the metric's
    own; `of` names its holdout where that is another; `beyond` is how many values there are with
    those beyond a stated range, which have half of the chance.
    """

    settings: LadderSettings
    rule: Mechanism | None
    n: int
    least: float | None
    grid: released.Grid | None
    asked: Set[tuple[int, int]]
    bars: Mapping[int, float]
    scale: Scale | None = None
    counts: bool = False
    of: str = ""
    beyond: int | None = None

    def transcript(
        self, queries: LadderQueries, chosen: Improvement | None = None
    ) -> LadderTranscript:
        """Return what the ladder released in these queries, which has to be countable.

        The value of a submission is left out that was `chosen` without a batch.
        """
        assert self.grid is not None and self.rule is not None
        grid, start = self.grid, queries.start
        if queries.releases:
            left = None if grid.budget is None else max(0, grid.budget - queries.releases)
            grid = replace(grid, first_improves=False, budget=left)
        improved = tuple(query.query - start for query in queries.improved)
        # The improvements whose value was shown, and how many there were up to each.
        shown = [
            (releases, query)
            for releases, query in enumerate(queries.improved, queries.releases + 1)
            if self.settings.shows_scores or (query.ladder_id, query.number) in self.asked
        ]
        # The numbers of the values that were released; where any will do, zeros.
        numbered = not grid.discloses and (grid.falling or bool(self.bars))
        values: tuple[int, ...] = (0,) * queries.count
        if not grid.discloses:
            values = tuple(self._number(query.risk) if numbered else 0 for _, query in shown)
        if self.beyond is not None:
            # Those that no code numbers may be anywhere.
            is_within = numbered and max(values, default=0) < grid.n_values
            grid = replace(grid, n_values=2 * (grid.n_values if is_within else self.beyond))
        choices = self._choices(queries, shown, grid.n_values)
        if self.settings.shows_scores and chosen in queries.improved[-1:]:
            values, choices = values[:-1], choices and choices[:-1]
        return released.ladder_transcript(queries.count, improved, values, grid, choices)

    def _choices(
        self, queries: LadderQueries, shown: Sequence[tuple[int, Improvement]], n_values: int
    ) -> tuple[int, ...] | None:
        """Return how many values each could have been, where what was released before shows it."""
        assert self.grid is not None and self.rule is not None
        if self.bars:
            bars = (self.bars.get(query.number) for query in queries.improved)
            return tuple(n_values if bar is None else self._number(bar) for bar in bars)
        unit = self.settings.unit
        if not self.grid.falling or self.rule.noisy or unit is None:
            return None
        highest = [
            released.highest_release(
                self.rule, self.n, query.risk / unit, releases, counts=self.counts
            )
            for releases, query in shown
        ]
        choices = (self._number(risk * unit) + 1 for risk in highest)
        # What could follow the last one is of no interest.
        return (n_values, *choices)[: len(highest)]

    def uncounted(self) -> str:
        """Return why its releases cannot be counted."""
        where = f"(ladder {self.settings.account}/{self.settings.name}{self.of})"
        who = f"{self.settings.mechanism} {where}"
        if self.rule is None:
            return f"{who} is a rule that this process does not know; import its class first"
        if self.rule.redraws:
            return f"{who} releases a number drawn anew to each submission, which cannot be counted"
        if counting_of(self.rule) is None:
            return f"{who} does not state how its releases are counted"
        return f"{who} releases numbers without rounding, of which there is no end"

    def _number(self, risk: float) -> int:
        """Return the number of a released risk on the ladder's grid."""
        assert self.rule is not None and self.grid is not None
        if self.scale is not None:
            # Where there is no smallest risk, that of 0 is in the middle.
            middle = -(self.grid.n_values // 2)
            first = middle if self.least is None else self.scale.number(self.least, self.n)
            return self.scale.number(risk, self.n) - first
        unit = self.settings.unit or 1.0
        steps = (risk - (self.least or 0.0)) / unit / self.rule.resolution(self.n)
        return math.floor(steps + 0.5 + HALFWAY)

    def rounding(self, released: float) -> float:
        """Return the distance between two values beside a released one, of a loss in [0, 1]."""
        assert self.rule is not None
        if self.scale is None:
            return self.rule.resolution(self.n)
        return self.scale.width(released, self.n) / (self.settings.unit or 1.0)


def _counted_ladder(
    settings: LadderSettings,
    n: int,
    asked: Set[tuple[int, int]],
    bars: Mapping[int, float],
    plain: bool,
    of: str,
) -> CountedLadder:
    if settings.mechanism not in MECHANISMS:
        return CountedLadder(settings, None, n, None, None, asked, bars, of=of)
    metric, rules = stored_metric(settings), rules_of(settings)
    rule, limits = rules.mechanism, metric.risk_range
    if metric.clip and "custom" in settings.metric_settings:
        limits = None  # its losses may be beyond either end
    # Without weights a mean of losses of 0 and 1 is a count of errors.
    counts = metric.counts and plain
    if limits is None:
        grid = _unbounded(settings, rule, n)
    else:
        grid = released.grid_of(rule, n, binary=counts, budget=settings.budget)
    if grid is not None and not settings.shows_scores:
        grid = replace(grid, discloses=False)
    scale = None if counts or grid is None else rules.grid(n)
    beyond = _NUMBERS if metric.clip and limits is not None else None
    if scale is not None:
        assert grid is not None
        # Of each submission's own risk the nearest number of either grid is shown.
        values = scale.values(n, limits) + (grid.n_values if grid.discloses else 0)
        grid = replace(grid, n_values=values, falling=counting_of(rule) == "falling")
        if beyond is not None and limits is not None and not grid.discloses:
            beyond = scale.values(n, (limits[0], sys.float_info.max))
    least = None if limits is None else limits[0]
    scale = None if rule.discloses and settings.shows_scores else scale
    counts = counts and not of
    return CountedLadder(settings, rule, n, least, grid, asked, bars, scale, counts, of, beyond)


def _unbounded(settings: LadderSettings, rule: Mechanism, n: int) -> released.Grid | None:
    """Return the grid of a ladder whose risks have no largest value."""
    step = rule.resolution(n)
    if step == 0.0 or counting_of(rule) is None:
        return None
    values = _NUMBERS
    if settings.unit is None:
        # The unit is a power of ten that follows the risk. Risks of either sign, and up to ten
        # units, since it is the smaller one that sets them.
        units = LARGEST_EXPONENT - LEAST_EXPONENT + 1
        values = 2 * units * (math.floor(10.0 / step) + 1)
    return released.Grid(values, falling=False, discloses=rule.discloses, budget=settings.budget)


@dataclass(frozen=True, slots=True)
class Moment:
    """All that had been shown of a holdout's rows at some moment.

    Attributes
    ----------
    queries : tuple of LadderQueries
        What is counted of each ladder of the holdout, and of those that share rows with it.
    ladders : mapping of int to CountedLadder
        By id, with those whose queries all came since.
    shown : float
        What queries of reserves, estimates, intervals and comparisons of holdouts that share rows
        had shown, and what estimates, intervals and comparisons of this one had, in nats.
    members : mapping
        How many queries of an announced batch went to a ladder, by ladder and batch.
    missing : str or None
        Why it cannot be counted, if so, and what can be done about it.
    """

    queries: tuple[LadderQueries, ...]
    ladders: Mapping[int, CountedLadder]
    shown: float
    members: Mapping[tuple[int, str], int]
    missing: str | None

    def transcripts(self, chosen: Improvement | None = None) -> tuple[LadderTranscript, ...]:
        """Return what each ladder released; `chosen` is as in `CountedLadder.transcript`."""
        return tuple(
            self.ladders[queries.ladder_id].transcript(queries, chosen) for queries in self.queries
        )

    def orders(self, is_counted: Callable[[Improvement], bool] = lambda _: True) -> float:
        """Return what was shown by which members of announced batches were judged first."""
        improved = (one for queries in self.queries for one in queries.improved)
        return sum(
            math.log(self.members.get((one.ladder_id, one.batch), 1))
            for one in improved
            if one.batch is not None and is_counted(one)
        )


def moment(
    tx: Transaction,
    holdout_id: int,
    position: float = math.inf,
    *,
    chosen: Chosen | None = None,
    bars: Bars | None = None,
    weighted: bool = False,
    way: str = "",
    own: bool = True,
) -> Moment:
    """Read what had been shown of a holdout's rows before a position of its chain, or by now.

    Parameters
    ----------
    tx : Transaction
    holdout_id : int
    position : float, optional
    chosen : Chosen, optional
        The incumbent that was chosen then, whose batch is not counted.
    bars : mapping, optional
        What `bars_on` read already.
    weighted : bool, default=False
        Whether the holdout's own rows have weights.
    way : str, optional
        What a reason adds that is about these rows alone.
    own : bool, default=True
        Whether to count what this holdout itself had shown.

    Returns
    -------
    Moment
    """
    known, shown, unknown, missing = tx.fold(holdout_id), 0.0, None, None
    lengths = tx.lengths(holdout_id, int(position) if position < math.inf else None)
    asked, named, before = known.revealed(position), dict[int, str](), ""
    if own:
        named, before = {holdout_id: ""}, " before the incumbent was submitted"
        missing = _spoilt(known, position, f"this holdout{before}{way}", AN_OLDER_COPY)
    for other, rows in tx.sharing(holdout_id):
        until = lengths[other.id] + 1
        name = f"the holdout {other.name!r}, which has {rows} of these rows,"
        copy = f"an older copy of the ledger was put in place, and not all is on record of {name}"
        named[other.id] = f" of {name}"
        unknown = unknown or _spoilt(other, until, name, copy)
        asked |= other.revealed(until)
        for nats in (*other.reserve_prices(until), *other.prices(until)):
            shown += nats
    if unknown is not None:
        # What was revealed of the others may be of the reserve's rows, too.
        missing = missing or unknown + before
    lengths = lengths if chosen is None else dict(chosen.lengths)
    queries = tx.answered(lengths) if chosen is None else chosen.ladders
    ladders, used = {}, {one.ladder_id for one in queries}
    for number, of in named.items():
        n = tx.holdout(number).n_ladder
        for ladder in tx.ladders(number):
            if ladder.id in used:
                # Whether rows of another holdout have weights is not in the ledger: what was
                # released shows it.
                plain = not weighted
                if of:
                    plain = tx.is_on_grid(ladder.id, lengths[number], n, released.COUNT_NOISE)
                to_beat = _bars_of(tx, ladder) if bars is None else bars[ladder.id]
                counted = _counted_ladder(ladder.settings, n, asked, to_beat, plain, of)
                if counted.grid is None:
                    missing = missing or counted.uncounted() + ("" if of else way)
                ladders[ladder.id] = counted
    return Moment(
        queries=tuple(one for one in queries if one.count and one.ladder_id in ladders),
        ladders=ladders,
        shown=shown + sum(known.prices(position)) if own else shown,
        members=tx.members(lengths),
        missing=missing,
    )


def _spoilt(known: Holdout, before: float, name: str, copy: str) -> str | None:
    """Return why not all that a holdout had shown is known, if so; `copy` if by an older copy."""
    opened = (ladder.opened_at for ladder in known.ladders.values())
    if any(at is not None and at < before for at in opened):
        return f"an audit had shown raw scores of {name}"
    return copy if any(position < before for position, _ in known.restored) else None


def shown_of_others(tx: Transaction, holdout_id: int, position: float = math.inf) -> float | str:
    """Return what holdouts that share rows had revealed before a position, in nats.

    Or why it cannot be counted.
    """
    if not tx.fold(holdout_id).sharing:
        return 0.0
    then = moment(tx, holdout_id, position, own=False)
    return then.missing or sum(one.length() for one in then.transcripts()) + then.shown


def shown_by_now(
    tx: Transaction, ladder: LadderRecord, *, but_decisions: bool = False
) -> float | str:
    """Return what was shown of a ladder's rows by now, in nats, or why that cannot be counted."""
    now, own = moment(tx, ladder.holdout_id), ladder.id if but_decisions else None
    if now.missing is not None:
        return now.missing
    length = now.shown
    for queries, counted in zip(now.queries, now.transcripts(), strict=True):
        flags, values = counted.lengths
        length += values if queries.ladder_id == own else flags + values
    return length + now.orders(lambda one: one.ladder_id != own)


def shown_beside(tx: Transaction, ladder: LadderRecord) -> float:
    """Return what was shown of the rows beside the decisions of a gate, in nats."""
    length = shown_by_now(tx, ladder, but_decisions=True)
    return math.inf if isinstance(length, str) else length
