"""Attacks the limits of grouped rows: level at every likeness of rows, widths, and a transcription.

Draws have fixed seeds. A limit that keeps its level fails a test of levels with other seeds with a
chance of at most 1e-4 for each case and side.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom

from ladderholdout.certificates.group_limits import Groups, ratio_of_groups, share_of_groups
from ladderholdout.certificates.group_variances import r2_of_groups
from ladderholdout.certificates.metric_limits import Rows, bound_of, score_limits
from ladderholdout.certificates.regression_limits import r2_limits
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import target_of
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.metrics import METRICS, Metric, RatioOfMeans, get_metric

LEVEL = math.log(0.05)
RISK = 0.2
SIZES = {"equal": (20, 21), "unequal": (1, 41)}


def chances(rng: np.random.Generator, n: int, icc: float, mean: float = RISK) -> np.ndarray:
    """Return the chance of an error in each group, by which errors of a group are alike."""
    if icc == 0.0:
        return np.full(n, mean)
    if icc == 1.0:
        return (rng.random(n) < mean) * 1.0
    return rng.beta(mean * (1 - icc) / icc, (1 - mean) * (1 - icc) / icc, n)


def drawn(seed: int, n: int, icc: float, sizes: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors of the rows of n groups, and the group of each."""
    rng = np.random.default_rng(seed)
    members = rng.integers(*SIZES[sizes], n)
    errors = rng.random(members.sum()) < np.repeat(chances(rng, n, icc), members)
    return errors * 1.0, np.repeat(np.arange(n), members)


def most_misses(draws: int, level: float) -> int:
    """Return the number of misses that a right limit exceeds with a chance of 1e-4."""
    return int(binom.isf(1e-4, draws, level))


# All of them with each other: benchmarks/groups.py.
@pytest.mark.parametrize(
    ("estimand", "icc", "sizes"),
    [
        ("rows", 0.0, "equal"),
        ("groups", 0.2, "unequal"),
        ("rows", 0.5, "unequal"),
        ("groups", 0.8, "equal"),
        ("rows", 1.0, "unequal"),
    ],
)
def test_limits_of_a_mean_keep_their_level(estimand: str, icc: float, sizes: str) -> None:
    low = high = 0
    draws = 150  # a miss rate of .16 is seen in 5 of 6 runs
    for seed in range(draws):
        errors, names = drawn(seed, 60, icc, sizes)
        groups = Groups.of(names, estimand)
        rng = np.random.default_rng(seed + 10**6)
        found = share_of_groups(errors, np.ones(len(errors)), groups, LEVEL, rng=rng)
        low, high = low + (found.low > RISK), high + (found.high < RISK)
    assert max(low, high) <= most_misses(draws, 0.05)


def test_rows_that_are_taken_as_independent_miss() -> None:
    # What the test above would show if groups were ignored: 16 % and more on one side.
    misses = 0
    for seed in range(250):
        errors, _ = drawn(seed, 60, 0.2, "equal")
        misses += exact_upper(int(errors.sum()), len(errors), LEVEL) < RISK
    assert misses > 2 * most_misses(250, 0.05)


def of_large_groups(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return errors that are likelier in larger groups, and the groups."""
    rng = np.random.default_rng(seed)
    members = np.where(rng.random(100) < 0.5, 2, 18)
    return (rng.random(members.sum()) < np.repeat(members / 60, members)) * 1.0, np.repeat(
        np.arange(100), members
    )


@pytest.mark.parametrize(("estimand", "mean"), [("rows", 0.2733), ("groups", 1 / 6)])
def test_each_estimand_is_its_own_where_size_and_score_go_together(
    estimand: str, mean: float
) -> None:
    # Rows: (2/60 2 + 18/60 18)/20 = .2733; groups: (2/60 + 18/60)/2.
    misses, other = 0, {"rows": 1 / 6, "groups": 0.2733}[estimand]
    holds_other = 0
    for seed in range(150):
        errors, names = of_large_groups(seed)
        rng = np.random.default_rng(seed + 10**6)
        groups = Groups.of(names, estimand)
        found = share_of_groups(errors, np.ones(len(errors)), groups, LEVEL, rng=rng)
        misses += not found.low <= mean <= found.high
        holds_other += found.low <= other <= found.high
    assert misses <= most_misses(150, 0.1) and holds_other < 25


def test_one_row_of_each_is_a_draw_of_the_rows_that_are_meant() -> None:
    for estimand, mean in (("rows", 0.2733), ("groups", 1 / 6)):
        hits = rows = 0
        for seed in range(300):
            errors, names = of_large_groups(seed)
            groups = Groups.of(names, estimand)
            kept = groups.one_of_each(np.random.default_rng(seed))
            assert len(np.unique(names[kept])) == len(kept)
            hits, rows = hits + int(errors[kept].sum()), rows + len(kept)
        # Within 4.5 standard errors: a chance of 7e-6.
        assert abs(hits / rows - mean) < 4.5 * math.sqrt(mean * (1 - mean) / rows)


def test_twenty_rows_of_each_group_are_worth_more_than_one() -> None:
    widths = np.zeros(2)
    level = LEVEL - math.log(2.0)  # as after one improvement, of which nothing else is known
    for seed in range(40):
        errors, names = drawn(seed, 150, 0.2, "equal")
        groups, rng = Groups.of(names, "rows"), np.random.default_rng(seed)
        found = share_of_groups(errors, np.ones(len(errors)), groups, level, rng=rng)
        alone = int(errors[groups.one_of_each(rng)].sum())
        widths += (
            found.high - found.low,
            exact_upper(alone, 150, level) - exact_lower(alone, 150, level),
        )
    assert widths[0] < 0.8 * widths[1]


# -- an independent transcription ---------------------------------------------------------------


def rejects(gains: Sequence[float], costs: Sequence[float], null: float, target: float) -> bool:
    """Bet as Propositions B2 and R6 of the guide have it, row by row."""
    n, left, first = len(gains), target + 1e-12 * len(gains), 0
    while first < n:
        last = first + max((n - first) // 32, 1)
        a, b = gains[:first], costs[:first]
        seen, top, bottom = float(first), math.fsum(a), math.fsum(b)
        varied = 0.0
        if top > 0 and bottom > 0:
            ratio = top / bottom
            varied = math.fsum((x - ratio * y) ** 2 for x, y in zip(a, b, strict=True)) / ratio
        spread = (n - first) / (0.25 + seen) * (0.25 * null**2 + varied * null)
        bet = min(math.sqrt(2 * left / spread), 0.98 / null)
        pairs = zip(gains[first:last], costs[first:last], strict=True)
        left -= math.fsum(math.log1p(bet * (x - null * y)) for x, y in pairs)
        if left <= 0:
            return True
        first = last
    return False


@pytest.mark.parametrize("estimand", ["rows", "groups"])
def test_the_limits_of_a_precision_are_those_of_the_page(estimand: str) -> None:
    rng = np.random.default_rng(3)
    members = rng.integers(1, 9, 120)
    names = np.repeat(np.arange(120), members)
    true, guessed = rng.random((2, len(names))) < np.repeat(rng.beta(2, 2, 120), members)
    groups = Groups.of(names, estimand)
    found = share_of_groups(
        *((true & guessed) * 1.0, guessed * 1.0, groups, LEVEL), rng=np.random.default_rng(5)
    )
    tops, bottoms = defaultdict(float), defaultdict(float)
    for name, hit, positive in zip(names.tolist(), true & guessed, guessed, strict=True):
        weight = 1 / max(members) if estimand == "rows" else 1 / members[name]
        tops[name] += hit * weight
        bottoms[name] += positive * weight
    order = np.random.default_rng(5).permutation(120).tolist()
    a, b = [tops[name] for name in order], [bottoms[name] for name in order]
    rest = [y - x for x, y in zip(a, b, strict=True)]
    target = target_of(LEVEL)
    for gains, limit in ((a, found.low), (rest, 1 - found.high)):
        assert rejects(gains, b, limit - 1e-9, target)
        estimate = sum(gains) / sum(b)
        assert not rejects(gains, b, limit + 2e-3 * (estimate - limit), target)


# -- every metric -------------------------------------------------------------------------------


def certified(metric: Metric, seed: int, estimand: str) -> tuple[Rows, Rows]:
    """Return rows of a metric in groups, and the same rows without."""
    rng = np.random.default_rng(seed)
    members = rng.integers(1, 13, 80)
    names = np.repeat(np.arange(80), members)
    n, shift = len(names), np.repeat(rng.normal(size=80), members)
    values = shift + rng.normal(size=n)
    y = (values > 0).astype(int) if metric.is_classification else np.clip(values, -4, 4)
    noisy = values + rng.normal(size=n)
    if metric.response == "labels":
        guesses = (noisy > 0).astype(np.int32)
    elif metric.response == "probabilities":
        second = 1 / (1 + np.exp(-noisy))
        guesses = np.column_stack([1 - second, second])
    elif metric.is_classification:
        guesses = noisy
    else:
        guesses = np.clip(noisy, -4, 4)
    groups = Groups.of(names, estimand)
    plain = Rows(y, guesses, np.random.default_rng(seed))
    return Rows(y, guesses, np.random.default_rng(seed), groups=groups), plain


@pytest.mark.parametrize("name", sorted(METRICS))
def test_every_metric_with_a_bound_has_one_by_groups(name: str) -> None:
    metric = get_metric(name)
    if metric.takes_target_range:
        metric = metric.with_target_range((-4.0, 4.0))
    elif metric.is_mean and not metric.bounded:
        metric = metric.with_range((0.0, 5.0))
    metric = metric.for_classes(np.array([0, 1]) if metric.is_classification else None)
    if metric.support is not None and not metric.is_classification:
        pytest.skip("of positive numbers alone")
    assert isinstance(bound_of(metric), str) == isinstance(bound_of(metric, grouped=True), str)
    if isinstance(bound_of(metric), str):
        return
    for estimand in ("rows", "groups"):
        rows, _ = certified(metric, 1, estimand)
        found = score_limits(metric, rows, LEVEL)
        assert found.low <= found.high and "group" in found.bound
        evaluation = metric.evaluate(rows.targets, rows.predictions)
        score = metric.to_score(evaluation.risk)
        if evaluation.clipped:  # the limits are of the errors clipped at 5
            assert evaluation.losses is not None and metric.loss_range == (0, 5)
            score = -float(np.minimum(evaluation.losses, 5).mean())
        assert found.low - 0.2 <= score <= found.high + 0.2


@pytest.mark.parametrize("name", ["accuracy", "f1", "roc_auc", "balanced_accuracy"])
def test_groups_of_one_row_each_are_rows(name: str) -> None:
    metric = get_metric(name).for_classes(np.array([0, 1]))
    _, plain = certified(metric, 2, "rows")
    alone = Groups.of(np.arange(len(plain.targets)), "groups")
    rows = Rows(plain.targets, plain.predictions, np.random.default_rng(2), groups=alone)
    plain = Rows(plain.targets, plain.predictions, np.random.default_rng(2))
    assert score_limits(metric, rows, LEVEL) == score_limits(metric, plain, LEVEL)


def precision_of(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return classes, guesses and groups with a precision of .7, a recall of .6, F1 of .646."""
    rng = np.random.default_rng(seed)
    members = rng.integers(1, 25, 80)
    names = np.repeat(np.arange(80), members)
    # Each group is of one class and of one guess: rows of a group are as alike as can be.
    kinds = rng.choice(4, 80, p=[0.42, 0.18, 0.28, 0.12])  # hits, false alarms, missed, others
    kinds = np.repeat(kinds, members)
    return (
        np.isin(kinds, (0, 2)).astype(int),
        np.isin(kinds, (0, 1)).astype(np.int32),
        names,
    )


@pytest.mark.parametrize(
    ("name", "true", "estimand"),
    [
        ("precision", 0.7, "rows"),
        ("recall", 0.6, "groups"),
        ("f1", 84 / 130, "rows"),
        ("balanced_accuracy", 0.5, "groups"),
    ],
)
def test_ratios_and_averages_keep_their_level(name: str, true: float, estimand: str) -> None:
    metric, misses, draws = get_metric(name).for_classes(np.array([0, 1])), 0, 80
    for seed in range(draws):
        y, guesses, names = precision_of(seed)
        groups = Groups.of(names, estimand)
        found = score_limits(
            metric, Rows(y, guesses, np.random.default_rng(seed), groups=groups), LEVEL
        )
        misses += not found.low <= true <= found.high
    assert misses <= most_misses(draws, 0.1)


def of_measured(seed: int, n_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return targets, predictions with an R2 of .75, and groups that differ in both."""
    rng = np.random.default_rng(seed)
    members = rng.integers(1, 25, n_groups)
    names, n = np.repeat(np.arange(n_groups), members), members.sum()
    y = 0.7 * rng.normal(size=n_groups)[names] + math.sqrt(0.51) * rng.normal(size=n)
    errors = 0.3 * rng.normal(size=n_groups)[names] + 0.4 * rng.normal(size=n)
    y = np.clip(y, -5, 5)
    return y, y + np.clip(errors, -3, 3), names


@pytest.mark.parametrize(("name", "estimand"), [("r2", "rows"), ("explained_variance", "groups")])
def test_r2_keeps_its_level_and_is_narrower_than_one_row_of_each(name: str, estimand: str) -> None:
    metric = get_metric(name).with_target_range((-5.0, 5.0), (0.0, 3.0))
    misses, widths = 0, np.zeros(2)
    for seed in range(15):
        y, guesses, names = of_measured(seed, 150)
        groups, rng = Groups.of(names, estimand), np.random.default_rng(seed)
        rows = Rows(y, guesses, rng, groups=groups)
        found = score_limits(metric, rows, LEVEL)
        alone = score_limits(metric, rows.take(groups.one_of_each(rng)), LEVEL)
        misses += not found.low <= 0.75 <= found.high
        widths += [one.high - max(one.low, -1.0) for one in (found, alone)]
    assert misses <= most_misses(15, 0.1) and widths[0] < widths[1]


def test_r2_of_groups_of_one_row_is_that_of_rows() -> None:
    y, guesses, _ = of_measured(3, 40)
    ranges = {"target_range": (-5.0, 5.0), "largest_error": 3.0}
    plain = r2_limits(y, guesses, LEVEL, rng=np.random.default_rng(1), **ranges)
    alone = Groups.of(np.arange(len(y)), "groups")
    found = r2_of_groups(y, guesses, LEVEL, rng=np.random.default_rng(1), groups=alone, **ranges)
    # No centre is unknown in the upper limit; in the lower one cells are by another order.
    assert found.high == pytest.approx(plain.high, abs=1e-9)
    assert found.low == pytest.approx(plain.low, abs=0.02)


def test_errors_and_targets_beyond_their_ranges_are_refused() -> None:
    y, guesses, names = of_measured(3, 10)
    groups, rng = Groups.of(names, "rows"), np.random.default_rng(0)
    for ranges, match in (((-0.1, 0.1), "target_range"), ((-5.0, 5.0), "largest_error")):
        with pytest.raises(InvalidArgument, match=match):
            r2_of_groups(
                *(y, guesses, LEVEL),
                target_range=ranges,
                largest_error=0.01,
                rng=rng,
                groups=groups,
            )


def test_a_ratio_of_ones_own() -> None:
    share = RatioOfMeans(lambda y, p: y * (p > 0.5), lambda y, p: y, largest=(4.0, 4.0))
    metric = Metric("share", "values", score=share, loss_range=(0, 1), offset=1)
    misses = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        members = rng.integers(1, 13, 80)
        n, names = int(members.sum()), np.repeat(np.arange(80), members)
        p = (rng.random(n) < np.repeat(rng.beta(3, 2, 80), members)) * 1.0
        rows = Rows(rng.uniform(0, 4, n), p, rng, groups=Groups.of(names, "rows"))
        found = score_limits(metric, rows, LEVEL)
        misses += not found.low <= 0.6 <= found.high
    assert misses <= most_misses(100, 0.1)
    with pytest.raises(InvalidArgument, match="largest must be"):
        ratio_of_groups(p, 2 * p, rows.groups, LEVEL, largest=(1, 1), rng=rng)  # type: ignore[arg-type]


def test_tops_above_bottoms_are_refused() -> None:
    groups = Groups.of(["a", "b"], "rows")
    for tops, bottoms in itertools.pairwise(([2.0, 0.0], [1.0, 1.0], [0.5, 0.5])):
        with pytest.raises(InvalidArgument, match="tops must be"):
            share_of_groups(
                *(np.array(tops), np.array(bottoms)), groups, LEVEL, rng=np.random.default_rng(0)
            )
    with pytest.raises(InvalidArgument, match="estimand must be"):
        Groups.of(["a", "b"], "patients")
