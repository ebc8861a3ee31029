"""How what the ladders of a holdout told is counted, for its certificates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass

from ladderholdout.certificates import Grid, LadderTranscript, grid_of, ladder_transcript
from ladderholdout.holdout.choices import stored_metric
from ladderholdout.holdout.ranks import Bars
from ladderholdout.ledger import (
    Chosen,
    LadderLooks,
    LadderRecord,
    LadderSettings,
    LookRecord,
    Transaction,
)
from ladderholdout.ledger.replay import rules_of
from ladderholdout.mechanisms import Mechanism
from ladderholdout.mechanisms.base import counting_of
from ladderholdout.mechanisms.rules import LARGEST_EXPONENT, LEAST_EXPONENT
from ladderholdout.metrics.losses import zero_one

# Of a risk that has no largest value: a release is a number of 64 bits.
_NUMBERS = 2**64


@dataclass(frozen=True, slots=True)
class Teller:
    """A ladder as what it tells is counted.

    `least` is the smallest risk of its metric, `asked` has the looks whose value was asked
    for, of a ladder that does not tell it, by the time that counts; `bars` has the risks
    that releases of a `RankLadder` had to be below.
    """

    settings: LadderSettings
    rule: Mechanism
    n: int
    least: float
    grid: Grid | None
    asked: Set[tuple[int, int]]
    bars: Mapping[int, float]

    def transcript(self, looks: LadderLooks) -> LadderTranscript:
        """Return what the ladder told in these looks; it has to be one that can be counted."""
        assert self.grid is not None
        improved = tuple(look.place for look in looks.improved)
        values, choices = self._values(looks), self._choices(looks) if self.bars else None
        return ladder_transcript(looks.count, improved, values, self.grid, choices)

    def _values(self, looks: LadderLooks) -> tuple[int, ...]:
        """Return the numbers of the values that were told; where any will do, zeros."""
        assert self.grid is not None
        if self.grid.discloses and self.rule.tells_values:
            return (0,) * looks.count
        number = self.grid.falling or self.bars
        told = (look for look in looks.improved if self._told(look))
        return tuple(self._number(look.risk) if number else 0 for look in told)

    def _choices(self, looks: LadderLooks) -> tuple[int, ...]:
        """Return how many values each release of a `RankLadder` could have been."""
        assert self.grid is not None
        bars = (self.bars.get(look.number) for look in looks.improved)
        return tuple(self.grid.n_values if bar is None else self._number(bar) for bar in bars)

    def _told(self, look: LookRecord) -> bool:
        return self.rule.tells_values or (look.ladder_id, look.number) in self.asked

    def uncounted(self) -> str:
        """Say why what it tells can not be counted."""
        who = f"{self.rule.name} (ladder {self.settings.account}/{self.settings.name})"
        if self.rule.redraws:
            return f"{who} tells each submission a number drawn anew, which can not be counted"
        if counting_of(self.rule) is None:
            return f"{who} does not say how its releases are counted"
        return f"{who} tells numbers without rounding, of which there is no end"

    def _number(self, risk: float) -> int:
        """Return the number of a released risk on the ladder's grid."""
        unit = self.settings.unit or 1.0
        return round((risk - self.least) / unit / self.rule.resolution(self.n))


def tellers_of(
    tx: Transaction,
    ladder: LadderRecord,
    chosen: Chosen,
    asked: Set[tuple[int, int]],
    bars: Bars,
    *,
    weighted: bool,
) -> dict[int, Teller]:
    """Return the ladders that were looked at when a submission was chosen."""
    n, used = tx.holdout(ladder.holdout_id).n_ladder, {one.ladder_id for one in chosen.ladders}
    ladders = tx.ladders(ladder.holdout_id)
    return {
        one.id: _teller(one.settings, n, asked, weighted, bars[one.id])
        for one in ladders
        if one.id in used
    }


def _teller(
    settings: LadderSettings,
    n: int,
    asked: Set[tuple[int, int]],
    weighted: bool,
    bars: Mapping[int, float],
) -> Teller:
    metric, rule = stored_metric(settings), rules_of(settings).mechanism
    least = metric.loss_range[0] if metric.loss_range else 0.0
    # Without weights a mean of losses of 0 and 1 is a count of errors.
    counts = metric.loss is zero_one and not weighted
    grid = grid_of(rule, n, binary=counts, budget=settings.budget)
    if metric.loss_range is None:
        grid = _unbounded(settings, rule, n)
    return Teller(settings, rule, n, least, grid, asked, bars)


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
