"""Limits of paired differences: coverage by enumeration, a second transcription, widths, errors."""

from __future__ import annotations

import math
import time
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, norm

from ladderholdout.errors import InvalidArgument
from ladderholdout.limits import trinomial
from ladderholdout.limits.trinomial import exceeds, paired_limits

pytestmark = pytest.mark.quick


@cache
def table(n: int, level: float) -> dict[tuple[int, int], tuple[float, float]]:
    """Return the limits of all data with n rows."""
    found = {}
    for first in range(n + 1):
        for second in range(n + 1 - first):
            limits = paired_limits(first, second, n, level)
            found[first, second] = limits.low, limits.high
    return found


def chances(n: int, up: float, down: float) -> dict[tuple[int, int], float]:
    """Return the chance of each pair of counts, from factorials."""
    rest = max(1.0 - up - down, 0.0)
    return {
        (b, c): math.comb(n, b) * math.comb(n - b, c) * up**b * down**c * rest ** (n - b - c)
        for b in range(n + 1)
        for c in range(n + 1 - b)
    }


def misses(n: int, level: float, parts: int) -> tuple[float, float]:
    """Return the largest chances that an end is wrong, over a grid of both chances."""
    limits, low, high = table(n, level), 0.0, 0.0
    for i in range(parts + 1):
        for j in range(parts + 1 - i):
            true, each = (i - j) / parts, chances(n, i / parts, j / parts)
            low = max(low, math.fsum(p for k, p in each.items() if limits[k][0] > true))
            high = max(high, math.fsum(p for k, p in each.items() if limits[k][1] < true))
    return low, high


@pytest.mark.parametrize(("n", "level"), [(1, 0.05), (3, 0.3), (6, 0.025), (7, 0.1)])
def test_no_end_is_wrong_more_often_than_at_its_level(n: int, level: float) -> None:
    """The chances are exact, so there is no false alarm; a tenth of the level is used at least."""
    for chance in misses(n, level, 20):
        assert (0.1 * level if n > 1 else 0.0) <= chance <= level


@pytest.mark.nightly
@pytest.mark.parametrize(("n", "level"), [(14, 0.025), (20, 0.001), (20, 0.1)])
def test_no_end_is_wrong_more_often_with_more_rows(n: int, level: float) -> None:
    for chance in misses(n, level, 48):
        assert 0.3 * level <= chance <= level


def place_of(b: int, c: int, n: int, z: float) -> float:
    """Return t where b - c - n t is z roots of the variance b + c - n t^2 + z^2, from this form."""
    low, high = -3.0 - z * z, 1.0
    for _ in range(80):
        t = (low + high) / 2
        gain, spread = b - c - n * t, b + c - n * t * t + z * z
        if gain >= 0 and (spread <= 0 or gain * gain >= z * z * spread):
            low = t
        else:
            high = t
    return low


def as_extreme(b: int, c: int, n: int, z: float) -> list[tuple[int, int]]:
    """Return the data that are as extreme as (b, c), each compared with it on its own."""
    least = place_of(b, c, n, z) - 1e-9
    pairs = ((i, j) for i in range(n + 1) for j in range(n + 1 - i))
    return [pair for pair in pairs if place_of(*pair, n, z) >= least]


def plain_lower(b: int, c: int, n: int, level: float) -> float:
    """Return the lower limit with all values of the nuisance on a fine grid, and no range of it."""
    extreme = as_extreme(b, c, n, -norm.ppf(level))

    def largest(difference: float) -> float:
        downs = np.linspace(max(0.0, -difference), (1 - difference) / 2, 200)
        total = np.zeros(200)
        for i, j in extreme:
            ways = math.comb(n, i) * math.comb(n - i, j)
            rest = np.maximum(1 - 2 * downs - difference, 0.0)
            ups = np.maximum(downs + difference, 0.0)
            total += ways * ups**i * downs**j * rest ** (n - i - j)
        return float(total.max())

    low, high = -1.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if largest(middle) <= level else (low, middle)
    return low


@pytest.mark.parametrize(("b", "c"), [(6, 0), (5, 2), (2, 5), (1, 1)])
def test_limits_are_those_of_a_plain_transcription(b: int, c: int) -> None:
    """A range for the nuisance takes a 32nd of the level, and gives some away or wins some."""
    n, level = 12, 0.025
    low, plain = paired_limits(b, c, n, level).low, plain_lower(b, c, n, level)
    assert -0.04 < low - plain < 0.04
    assert paired_limits(c, b, n, level).high == -low


def test_the_chance_at_a_tiny_level_is_below_it() -> None:
    """At the limit no value of the nuisance in its range gives such data a larger chance."""
    n, b, c, level = 400, 60, 15, 1e-20
    low, z = paired_limits(b, c, n, level).low, -norm.ppf(level)
    least, counts = place_of(b, c, n, z), np.arange(n + 1)
    # place_of rises with b, so that the smallest b for each c is looked for by halves.
    needed = []
    for j in counts:
        first, last = 0, n + 1
        while first < last:
            middle = (first + last) // 2
            first, last = (first, middle) if place_of(middle, j, n, z) >= least - 1e-9 else (
                middle + 1, last
            )  # fmt: skip
        needed.append(first)
    largest = 0.0
    for down in np.linspace(max(0.0, -low), beta.isf(level / 64, c + 1, n - c), 150):
        tails = binom.sf(np.array(needed) - 1, n - counts, (down + low) / (1 - down))
        largest = max(largest, float(binom.pmf(counts, n, down) @ tails))
    assert 0.3 * level < largest <= level


# The table of docs/background/paired_limits.md: n, b, c, and the widths at these levels.
LEVELS = (0.025, 1e-6, 1e-20)
WIDTHS = [
    (5000, 450, 300, (1.02, 1.01, 1.02)),
    (5000, 300, 450, (1.03, 1.04, 1.08)),
    (5000, 2500, 1000, (1.02, 1.02, 1.03)),
    (1000, 90, 60, (1.02, 1.03, 1.08)),
    (1000, 60, 90, (1.05, 1.10, 1.15)),
    (300, 30, 20, (1.04, 1.07, 1.18)),
]


@pytest.mark.parametrize(("n", "b", "c", "stated"), WIDTHS)
def test_widths_are_as_stated(n: int, b: int, c: int, stated: tuple[float, ...]) -> None:
    """The distance of the lower limit in asymptotic ones; `pytest -s` prints the time of both."""
    row = []
    for level in LEVELS:
        start = time.perf_counter()
        low = paired_limits(b, c, n, level).low
        print(f"{n} rows at {level:g}: {500 * (time.perf_counter() - start):.0f} ms for a limit")
        width = -norm.ppf(level) * math.sqrt(b + c - (b - c) ** 2 / n) / n
        row.append(((b - c) / n - low) / width)
    assert row == pytest.approx(stated, abs=0.006)


def test_equal_models_have_a_narrow_interval_around_0() -> None:
    limits = paired_limits(0, 0, 1000, 0.025)
    assert limits.low == -limits.high
    # No chance of a discordant row above 1 - level^(1/n) is believable, and little more is lost.
    assert 0.0036 < limits.high < 0.0042


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((3, 2, 4, 0.1), "second"), ((5, 0, 4, 0.1), "first"), ((1, 1, 4, 0.6), "level"),
     ((1, 1, 4, 1e-300), "level"), ((0, 0, 0, 0.1), "n")],
)  # fmt: skip
def test_wrong_arguments_are_named(arguments: tuple[int, int, int, float], name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        paired_limits(*arguments)


@pytest.mark.parametrize(("n", "discordant"), [(100, 12), (1000, 100), (3000, 900)])
def test_a_refusal_takes_the_same_work_whichever_side_the_rows_favour(
    n: int, discordant: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No early answer, and as many chances of as many counts: time must not reveal the data."""
    sizes: list[int] = []
    work = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(scipy.special, name)

        def betainc(self, first: Any, second: Any, share: float) -> Any:
            sizes.append(len(first))
            return scipy.special.betainc(first, second, share)

    monkeypatch.setattr(trinomial, "scipy", SimpleNamespace(special=Counting()))
    for gain in (-discordant // 2, -2, 0, 2, discordant // 12):
        first = (discordant + gain) // 2
        assert not exceeds(first, discordant - first, n, 0.01, 0.001)
        work.append(list(sizes))
        sizes.clear()
    assert all(work) and work == [work[0]] * len(work)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from([30, 300, 1000]), st.floats(0.3, 8))
def test_a_limit_is_above_what_it_exceeds(seed: int, n: int, nats: float) -> None:
    """One step of the search decides as the limit does, but within the width of its search."""
    rng = np.random.default_rng(seed)
    better, worse, _ = (int(part) for part in rng.multinomial(n, [0.15, 0.08, 0.77]))
    level = 0.5 * math.exp(-nats)
    limits = paired_limits(better, worse, n, level)
    slack = 0.02 * (limits.high - limits.low)
    for difference, expected in ((limits.low - slack, True), (limits.low + slack, False)):
        if difference > 0.0:
            assert exceeds(better, worse, n, difference, level) is expected
    assert not exceeds(better, worse, n, 0.999, level)
    assert not exceeds(better, worse, n, 0.0, 1e-290)
