"""How the ladders of a holdout are counted: what each released, as a code knows it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ladderholdout.certificates import (
    COUNT_NOISE,
    Grid,
    LadderTranscript,
    grid_of,
    highest_release,
    ladder_transcript,
)
from ladderholdout.guard.certify.others import Others, named_as
from ladderholdout.ledger.counts import LadderQueries
from ladderholdout.ledger.events import LadderSettings
from ladderholdout.ledger.fold import Improvement, LadderRecord
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
    bars = {ladder.id: bars_of(tx, ladder) for ladder in tx.ladders(holdout_id)}
    for sharing in tx.sharing(holdout_id):
        bars |= {ladder.id: bars_of(tx, ladder) for ladder in tx.ladders(sharing.holdout_id)}
    return bars


def bars_of(tx: Transaction, ladder: LadderRecord) -> dict[int, float]:
    """Return which risk each release of a `RankLadder` had to be below.

    It is made of earlier releases alone.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord

    Returns
    -------
    dict of int to float
        By the number of the submission; empty for a ladder of another kind. Where a place
        was empty, any risk could have been released, and it is left out.
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
    grid: Grid | None
    asked: Set[tuple[int, int]]
    bars: Mapping[int, float]
    scale: Scale | None = None
    counts: bool = False
    of: str = ""
    beyond: int | None = None

    def transcript(self, queries: LadderQueries, chosen: int | None = None) -> LadderTranscript:
        """Return what the ladder released in these queries, which has to be countable.

        The value of a submission is left out that was chosen without a batch, given its position.
        """
        assert self.grid is not None
        grid, start = self.grid, queries.start
        if queries.releases:
            left = None if grid.budget is None else max(0, grid.budget - queries.releases)
            grid = replace(grid, first_improves=False, budget=left)
        improved = tuple(query.query - start for query in queries.improved)
        values = self._values(queries)
        if self.beyond is not None:
            # Those that no code numbers may be anywhere.
            numbered = not grid.discloses and (grid.falling or self.bars)
            is_within = numbered and max(values, default=0) < grid.n_values
            grid = replace(grid, n_values=2 * (grid.n_values if is_within else self.beyond))
        choices = self._choices(queries, grid.n_values)
        assert self.rule is not None
        is_chosen = bool(queries.improved) and queries.improved[-1].position == chosen
        if is_chosen and self.settings.shows_scores:
            values, choices = values[:-1], choices and choices[:-1]
        return ladder_transcript(queries.count, improved, values, grid, choices)

    def _values(self, queries: LadderQueries) -> tuple[int, ...]:
        """Return the numbers of the values that were released; where any will do, zeros."""
        assert self.grid is not None
        if self.grid.discloses:
            return (0,) * queries.count
        numbered = self.grid.falling or self.bars
        return tuple(
            self._number(query.risk) if numbered else 0 for _, query in self._shown(queries)
        )

    def _shown(self, queries: LadderQueries) -> list[tuple[int, Improvement]]:
        """Return the improvements whose value was shown, and how many there were up to each."""
        return [
            (releases, query)
            for releases, query in enumerate(queries.improved, queries.releases + 1)
            if self.settings.shows_scores or (query.ladder_id, query.number) in self.asked
        ]

    def _choices(self, queries: LadderQueries, n_values: int) -> tuple[int, ...] | None:
        """Return how many values each could have been, where what was released before shows it."""
        assert self.grid is not None and self.rule is not None
        if self.bars:
            bars = (self.bars.get(query.number) for query in queries.improved)
            return tuple(n_values if bar is None else self._number(bar) for bar in bars)
        unit = self.settings.unit
        if not self.grid.falling or self.rule.noisy or unit is None:
            return None
        highest = [
            highest_release(self.rule, self.n, query.risk / unit, releases, counts=self.counts)
            for releases, query in self._shown(queries)
        ]
        choices = (self._number(risk * unit) + 1 for risk in highest)
        # What could follow the last one is of no interest.
        return (n_values, *choices)[: len(highest)]

    @property
    def discloses(self) -> bool:
        """Whether each submission's own value is released."""
        return self.grid is not None and self.grid.discloses

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


def counted_ladders(
    tx: Transaction,
    holdout_id: int,
    used: Iterable[int],
    lengths: Mapping[int, int],
    asked: Set[tuple[int, int]],
    others: Others,
    bars: Bars,
    *,
    weighted: bool,
) -> dict[int, CountedLadder]:
    """Return some ladders of a holdout, and of those that share rows with it.

    Parameters
    ----------
    tx : Transaction
    holdout_id : int
    used : iterable of int
        The ids of the ladders.
    lengths : mapping
        How long the chains of these holdouts were.
    asked : set of (ladder id, number)
        The values of the holdout's own ladders that were shown on demand.
    others : Others
    bars : mapping
        As `bars_on` reads it.
    weighted : bool
        Whether the holdout's own rows have weights.

    Returns
    -------
    dict of int to CountedLadder
    """
    used, counted = set(used), dict[int, CountedLadder]()
    shown = asked | others.asked
    holdouts = {holdout_id: "", **{other.holdout_id: named_as(other) for other in others.holdouts}}
    for holdout, named in holdouts.items():
        n = tx.holdout(holdout).n_ladder
        for ladder in tx.ladders(holdout):
            if ladder.id in used:
                # Whether rows of another holdout have weights is not in the ledger: what was
                # released shows it.
                plain = not weighted
                if named:
                    plain = tx.is_on_grid(ladder.id, lengths[holdout], n, COUNT_NOISE)
                entry = _counted_ladder(ladder.settings, n, shown, not plain, bars[ladder.id])
                if named:
                    entry = replace(entry, of=f" of {named}", counts=False)
                counted[ladder.id] = entry
    return counted


def _counted_ladder(
    settings: LadderSettings,
    n: int,
    asked: Set[tuple[int, int]],
    weighted: bool,
    bars: Mapping[int, float],
) -> CountedLadder:
    if settings.mechanism not in MECHANISMS:
        return CountedLadder(settings, None, n, None, None, asked, bars)
    metric, rules = stored_metric(settings), rules_of(settings)
    rule, limits = rules.mechanism, metric.risk_range
    if metric.clip and "custom" in settings.metric_settings:
        limits = None  # its losses may be beyond either end
    # Without weights a mean of losses of 0 and 1 is a count of errors.
    counts = metric.counts and not weighted
    grid = grid_of(rule, n, binary=counts, budget=settings.budget)
    if limits is None:
        grid = _unbounded(settings, rule, n)
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
    return CountedLadder(settings, rule, n, least, grid, asked, bars, scale, counts, beyond=beyond)


def _unbounded(settings: LadderSettings, rule: Mechanism, n: int) -> Grid | None:
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
    return Grid(values, falling=False, discloses=rule.discloses, budget=settings.budget)
