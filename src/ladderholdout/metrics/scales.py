"""The grid on which scores of a metric are released: fixed by public facts, finer than chance."""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from ladderholdout.metrics import scores as of
from ladderholdout.metrics.metric import Metric
from ladderholdout.metrics.table import is_named

# From here on neighbouring floats are whole steps apart.
EXACT = 2.0**52
# So close to halfway between two numbers of the grid, a risk is meant to be halfway.
_HALFWAY = 1e-9
# Steps are these, times powers of ten up to the largest one.
_DIGITS, _LARGEST_EXPONENT, _LEAST_EXPONENT = (1, 2, 5), 305, -300
# Of one row in so many parts: a share of rows is on the grid to the bit, and a share of
# their weights is less than a quarter of a standard error away from it.
_PARTS = 8
# How many steps a risk has below it, in units of sqrt(n). A quarter of a standard error is as wide
# as one where losses vary by a quarter of their mean: log loss and Brier score of a weak model;
# errors vary by more (those of a uniform distribution by .58), and their squares by .9.
_FINE, _OF_ERRORS, _OF_SQUARES, _FINER = 16.0, 10.0, 6.0, 64.0
# What share of a stated range, or of 1, is still shown with all its digits; and of what can be of
# any size.
_LEAST, _LEAST_OF_ANY = 1e-6, 1e-30

Kind = Literal["counts", "shares", "sizes", "extremes"]


@dataclass(frozen=True, slots=True)
class Scale:
    """The numbers that a released score can be, on a holdout of a given size.

    They depend on the metric, the number of rows and the stated range alone, never on a label.
    Beside a risk r the distance between two of them is at most

    - 1/(8n) for means of losses of 0 and 1, so that shares of n rows are shown to the bit;
    - sqrt(r/n)/5 for what is counted from labels or ranks (F1, AUC);
    - r/(16 sqrt(n)) for all other losses and scores, in the unit that the metric shows (the root of
      the risk for RMSE), r/(10 sqrt(n)) for errors, r/(6 sqrt(n)) for squared ones and R2, and
      r/(64 sqrt(n)) where r is negative, a score of the caller's own that has no largest value;
    - r/(16n) for the largest error.

    Steps are 1, 2 or 5 times a power of ten, so that a released score has few digits.

    Parameters
    ----------
    kind : {"counts", "shares", "sizes", "extremes"}
        Which of these it is.
    root : bool, default=False
        Whether the score is the root of the risk.
    fineness : float, default=16.0
        For sizes: 16 in the third line above.
    least : float, default=1e-6
        Below this number, in the unit that the metric shows, steps do not become finer.

    Examples
    --------
    >>> auc, rmse = Scale("shares"), Scale("sizes", root=True)
    >>> auc.nearest(0.153217, 1000)
    0.154
    >>> rmse.nearest(55.4321**2, 1000) ** 0.5
    55.4
    >>> Scale("counts").nearest(7 / 30, 30) == 7 / 30
    True
    """

    kind: Kind
    root: bool = False
    fineness: float = _FINE
    least: float = _LEAST

    def nearest(self, risk: float, n: int) -> float:
        """Return the number nearest to a risk on n rows, halves towards the larger one.

        Parameters
        ----------
        risk : float
        n : int

        Returns
        -------
        float
            A risk, as `risk` is.
        """
        shown, _ = self._place(risk, n)
        return shown * abs(shown) if self.root else shown

    def number(self, risk: float, n: int) -> int:
        """Return the number of the nearest value, counted from that of a risk of 0.

        Examples
        --------
        >>> [Scale("shares").number(risk, 1000) for risk in (0.0, 0.153, 0.152, -0.152)]
        [0, 190, 189, -189]
        """
        return self._place(risk, n)[1]

    def width(self, risk: float, n: int) -> float:
        """Return the distance between the values beside a risk, the larger one, as a risk.

        Examples
        --------
        >>> Scale("shares").width(0.153, 1000), Scale("sizes").width(0.153, 1000)
        (0.002, 0.0002)
        """
        if self.kind == "counts":
            return 1.0 / (_PARTS * n)
        shown = math.sqrt(abs(risk)) if self.root else abs(risk)
        segments = self._segments(n, risk < 0)
        step = segments.steps[max(bisect_right(segments.starts, shown) - 1, 0)]
        return (shown + step) ** 2 - shown**2 if self.root else step

    def values(self, n: int, limits: tuple[float, float] | None) -> int:
        """Return how many values there are, in the range of the risk or in all.

        Examples
        --------
        >>> Scale("shares").values(1000, (0.0, 1.0)), Scale("counts").values(1000, (0.0, 1.0))
        (503, 8001)
        """
        if limits is not None:
            return self.number(limits[1], n) - self.number(limits[0], n) + 1
        most = max(self.number(end * sys.float_info.max, n) * end for end in (1, -1))
        return 2 * most + 1

    def _place(self, risk: float, n: int) -> tuple[float, int]:
        """Return the nearest value as the metric shows it, but for sign and offset; its number."""
        shown = math.copysign(math.sqrt(abs(risk)), risk) if self.root else risk
        if self.kind == "counts":
            parts = _PARTS * n
            count = math.floor(shown * parts + 0.5 + _HALFWAY)
            return count / parts, count
        if not math.isfinite(shown):
            return shown, 0
        segments, size = self._segments(n, shown < 0), abs(shown)
        segment = max(bisect_right(segments.starts, size) - 1, 0)
        digit, exponent = segments.named[segment]
        # Halves go towards the larger risk, whatever its sign.
        half = 0.5 + _HALFWAY if shown >= 0 else 0.5 - _HALFWAY
        count = math.floor(size / segments.steps[segment] + half)
        number = segments.numbers[segment] + count - segments.firsts[segment]
        value = float(f"{count * digit}e{exponent}")
        return (value, number) if shown >= 0 else (-value, -number)

    def _segments(self, n: int, negative: bool) -> _Segments:
        fineness = max(self.fineness, _FINER) if negative else self.fineness
        return _segments(self.kind, fineness, self.least, n)


@dataclass(frozen=True, slots=True)
class _Segments:
    """Stretches of the grid with one step each, up to infinity."""

    starts: tuple[float, ...]
    steps: tuple[float, ...]
    # The step as a digit and an exponent, how many steps the start is from 0, and its number.
    named: tuple[tuple[int, int], ...]
    firsts: tuple[int, ...]
    numbers: tuple[int, ...]


@lru_cache(maxsize=256)
def _segments(kind: Kind, fineness: float, least: float, n: int) -> _Segments:
    """Return the stretches: a step begins where the grid of that kind may be so wide."""

    def begins(step: float) -> float:
        if kind == "shares":
            return 25.0 * n * step * step
        return step * (fineness * math.sqrt(n) if kind == "sizes" else 16.0 * n)

    last = 0 if kind == "shares" else _LARGEST_EXPONENT  # no such risk is above 2
    exponent = last
    while exponent > _LEAST_EXPONENT and begins(float(f"1e{exponent}")) > least:
        exponent -= 1
    named, starts, firsts, numbers = [(1, exponent)], [0.0], [0], [0]
    while True:
        digit, exponent = named[-1]
        following = _DIGITS[(_DIGITS.index(digit) + 1) % len(_DIGITS)]
        after = exponent + (following == 1)
        # A multiple of both steps: 2 does not divide 5.
        common, ten = (10 if following == 5 else following), 10 ** (after - exponent)
        start = begins(float(f"{following}e{after}")) / float(f"{common}e{after}")
        many = max(math.ceil(start), 1) * common * ten if start < EXACT else 0
        begin = float(f"{many}e{exponent}")
        if after > last or not many or math.isinf(begin):
            break
        numbers.append(numbers[-1] + many // digit - firsts[-1])
        firsts.append(many // (following * ten))
        starts.append(begin)
        named.append((following, after))
    steps = tuple(float(f"{digit}e{exponent}") for digit, exponent in named)
    return _Segments(tuple(starts), steps, tuple(named), tuple(firsts), tuple(numbers))


def scale_of(metric: Metric) -> Scale:
    """Return the grid of a metric, from its name, its sign and its stated range alone.

    Parameters
    ----------
    metric : Metric

    Returns
    -------
    Scale

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> scale_of(get_metric("accuracy")).kind, scale_of(get_metric("roc_auc")).kind
    ('counts', 'shares')
    >>> scale_of(get_metric("neg_root_mean_squared_error").with_range((0, 500)))
    Scale(kind='sizes', root=True, fineness=10.0, least=0.0005)
    """
    if metric.counts:
        return Scale("counts")
    if not is_named(metric):
        return Scale("sizes", metric.root, _FINE, _LEAST_OF_ANY)
    if metric.is_classification and not metric.is_mean:
        return Scale("shares")
    high = 1.0
    if metric.in_units_of_y or metric.clip:
        high = _LEAST_OF_ANY / _LEAST if metric.risk_range is None else metric.risk_range[1]
    least = _LEAST * (math.sqrt(high) if metric.root and metric.bounded else high)
    if metric.loss is of.squared and not metric.root:
        least *= _LEAST  # that share of the largest error, squared
    prepare = metric.prepare
    squares = metric.loss in (of.squared, of.squared_log) or prepare in (
        of.r2,
        of.explained_variance,
    )
    fineness = _FINE
    if squares and not metric.root:
        fineness = _OF_SQUARES
    elif not metric.is_classification:
        fineness = _OF_ERRORS
    kind: Kind = "extremes" if prepare is of.max_error else "sizes"
    return Scale(kind, metric.root, fineness, least)
