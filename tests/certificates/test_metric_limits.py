"""Attacks the limits of single metrics: bounds that do not keep their level.

Where a space is small enough all of it is gone through, so there is no chance in the test. A
simulated one has fixed seeds and an exact binomial tail: a bound that keeps its level fails with
a probability of at most 1e-6 for each side, if the seeds were drawn again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from ladderholdout.certificates.class_averages import (
    _many_lower,
    _two_lower,
    class_mean_limits,
    f1_limits,
    fbeta_limits,
    gamma_quantile,
    mean_of,
    share_limits,
    weighted_by_shares,
)
from ladderholdout.certificates.matchings import (
    Scaling,
    _Pairs,
    _Ranks,
    auc_limits,
    kappa_limits,
    matthews_limits,
)
from ladderholdout.certificates.metric_limits import Rows, bound_of, score_limits
from ladderholdout.certificates.regression_limits import (
    Series,
    _Placed,
    concordance_limits,
    median_limits,
    r2_limits,
    summed_up_pairs,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.betting import (
    Limits,
    log_mean,
    mean_limits,
    mean_lower,
    split,
    stakes,
    summed_up,
    target_of,
)
from ladderholdout.limits.intervals import exact_lower
from ladderholdout.metrics import METRICS, Metric, get_metric

pytestmark = pytest.mark.quick

TENTH = math.log(0.1)
Draw = Callable[[np.random.Generator], Limits]


def permanent(matrix: np.ndarray) -> float:
    places = range(len(matrix))
    return sum(
        math.prod(matrix[i, j] for i, j in enumerate(order))
        for order in itertools.permutations(places)
    )


# -- bets ------------------------------------------------------------------------------


def test_the_capital_has_a_mean_of_one_at_the_mean_and_more_a_step_beyond() -> None:
    chances = {0.0: 0.5, 0.25: 0.3, 1.0: 0.2}
    mean = sum(value * chance for value, chance in chances.items())
    bets = stakes(3.0, 4)[:, None]

    def expected(null: float) -> float:
        total = 0.0
        for rows in itertools.product(chances, repeat=4):
            logs = np.log1p(bets * (np.array(rows) / null - 1.0)).sum(axis=1)
            total += math.exp(log_mean(logs)) * math.prod(chances[value] for value in rows)
        return total

    assert expected(mean) == pytest.approx(1.0, abs=1e-12)
    assert expected(mean - 0.01) > 1.02


def test_limits_of_a_mean_keep_their_level_exactly_on_all_small_samples() -> None:
    for chances in ({0.0: 0.6, 1.0: 0.4}, {0.0: 0.9, 0.5: 0.05, 1.0: 0.05}, {0.2: 0.3, 0.9: 0.7}):
        mean = sum(value * chance for value, chance in chances.items())
        missed = [0.0, 0.0]
        for rows in itertools.product(chances, repeat=6):
            chance = math.prod(chances[value] for value in rows)
            missed[0] += chance * (mean_lower(rows, TENTH) > mean)
            missed[1] += chance * (mean_limits(rows, TENTH).high < mean)
        assert max(missed) <= 0.1


def test_limits_of_a_mean_hold_for_rows_that_differ() -> None:
    # Rows that err with the chances 0 and 1 in turn, and all between: only the mean counts.
    rates, missed = np.linspace(0.0, 1.0, 8), 0.0
    for rows in itertools.product((0.0, 1.0), repeat=8):
        chance = math.prod(
            rate if row else 1.0 - rate for row, rate in zip(rows, rates, strict=True)
        )
        missed += chance * (mean_lower(rows, TENTH) > 0.5)
    assert missed <= 0.1


def test_limits_of_a_mean_scale_with_the_range_and_nest_with_the_level() -> None:
    losses = np.random.default_rng(0).beta(2, 8, 300)
    low, high = mean_lower(losses, -10.0), mean_limits(losses, -10.0).high
    wide = mean_lower(3.0 * losses - 1.0, -10.0, (-1.0, 2.0))
    assert wide == pytest.approx(3.0 * low - 1.0, abs=1e-4)
    assert mean_limits(1.0 - losses, -10.0).high == pytest.approx(1.0 - low, abs=1e-12)
    ends = [
        (mean_lower(losses, -level), mean_limits(losses, -level).high) for level in (1, 10, 80, 700)
    ]
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in itertools.pairwise(ends))
    assert 0.0 < ends[-1][0] < low < losses.mean() < high < ends[-1][1] < 1.0


def test_a_sum_over_points_never_gives_more_capital_than_the_rows() -> None:
    rng = np.random.default_rng(1)
    for values in (rng.beta(0.3, 4, 4000), np.repeat([0.0, 0.3, 1.0], [3000, 500, 500])):
        points, counts = summed_up(values, 64)
        assert counts.sum() == pytest.approx(len(values))
        assert points @ counts == pytest.approx(values.sum())
        for bet in stakes(13.0, len(values)):
            exact = np.log1p(bet * (values / 0.05 - 1.0)).sum()
            found = np.log1p(bet * (points / 0.05 - 1.0)) @ counts
            assert found <= exact + 1e-9 * len(values)
            fine = summed_up(values, 512)
            near = np.log1p(bet * (fine[0] / 0.05 - 1.0)) @ fine[1]
            assert exact - 0.01 * abs(exact) - 0.1 <= near <= exact + 1e-9 * len(values)


def test_pairs_are_summed_up_without_a_gain() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=5000) ** 2, rng.normal(size=5000) ** 2
    parts = summed_up_pairs(_Placed.of(first), _Placed.of(second))
    assert parts[2].sum() == pytest.approx(5000)
    assert [part @ parts[2] for part in parts[:2]] == pytest.approx([first.sum(), second.sum()])
    for bet in (0.001, 0.01, 0.03):
        exact = np.log1p(bet * (first - second)).sum()
        assert np.log1p(bet * (parts[0] - parts[1])) @ parts[2] <= exact + 1e-9
    assert split(np.array([2.0, 2.0]), np.array([2.0])).sum_up().tolist() == [2.0]


@pytest.mark.parametrize("level", [0.0, 1.0, -math.inf, math.nan])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(InvalidArgument, match="log_level"):
        target_of(level)


def test_losses_outside_their_range_are_refused_without_being_shown() -> None:
    with pytest.raises(InvalidArgument, match="losses") as caught:
        mean_lower([0.5, 1.25], -3.0)
    assert "1.25" not in str(caught.value)


# -- ratios of counts ------------------------------------------------------------------


def worst_miss(limit: Callable[[int], tuple[float, float]], n: int) -> tuple[float, float]:
    """Return the largest chances, over a grid of proportions, that each side misses."""
    ends = np.array([limit(hits) for hits in range(n + 1)])
    grid = np.unique(np.concatenate([np.linspace(0.001, 0.999, 199), ends[:, 0] - 1e-9]))
    grid = grid[(grid > 0.0) & (grid < 1.0)]
    chances = binom.pmf(np.arange(n + 1)[:, None], n, grid)
    too_high = (chances * (ends[:, :1] > grid)).sum(axis=0).max()
    return float(too_high), float((chances * (ends[:, 1:] < grid)).sum(axis=0).max())


def test_f1_misses_exactly_as_often_as_its_level_says() -> None:
    def share(level: float) -> Callable[[int], tuple[float, float]]:
        def ends(hits: int) -> tuple[float, float]:
            found = f1_limits(hits, 30, level).through(lambda score: score / (2.0 - score))
            return found.low, found.high

        return ends

    missed = worst_miss(share(TENTH), 30)
    assert 0.09 < missed[0] <= 0.1 + 1e-9
    assert missed[1] <= 0.1 + 1e-9
    # A level that is a tenth too large is seen.
    assert worst_miss(share(math.log(0.11)), 30)[0] > 0.1


def test_a_share_of_no_rows_may_be_anything() -> None:
    assert share_limits(0, 0, -5.0) == Limits(0.0, 1.0, "exact binomial")
    assert f1_limits(0, 0, -5.0) == Limits(0.0, 1.0, "exact binomial")


@pytest.mark.long
@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_f_beta_keeps_its_level_exactly_on_all_small_samples(beta: float) -> None:
    n, square = 12, beta * beta
    for shares in ((0.3, 0.1, 0.2, 0.4), (0.1, 0.3, 0.05, 0.55), (0.85, 0.05, 0.05, 0.05)):
        right, missing, wrong, _ = shares
        truth = (1 + square) * right / ((1 + square) * right + square * missing + wrong)
        missed = [0.0, 0.0]
        for hits, missed_rows, false in itertools.product(range(n + 1), repeat=3):
            rest = n - hits - missed_rows - false
            if rest < 0:
                continue
            counts = (hits, missed_rows, false, rest)
            ways = math.factorial(n) / math.prod(math.factorial(count) for count in counts)
            chance = ways * math.prod(
                share**count for share, count in zip(shares, counts, strict=True)
            )
            found = fbeta_limits(hits, missed_rows, false, n, TENTH, beta)
            missed[0] += chance * (found.low > truth)
            missed[1] += chance * (found.high < truth)
        assert max(missed) <= 0.1
        assert min(missed) >= 0.0


def test_f_beta_is_no_wider_than_half_again_the_exact_f1() -> None:
    found, exact = fbeta_limits(400, 60, 80, 1000, -13.7, 1.0), f1_limits(400, 540, -13.7)
    assert exact.high - exact.low <= found.high - found.low <= 1.5 * (exact.high - exact.low)
    assert fbeta_limits(0, 0, 0, 9, -5.0, 2.0) == Limits(0.0, 1.0, "bets")
    with pytest.raises(InvalidArgument, match="beta"):
        fbeta_limits(1, 1, 1, 9, -5.0, 0.0)


# -- averages over classes -------------------------------------------------------------


def joint_miss(rows: tuple[int, ...], rates: tuple[float, ...], low: Callable[..., float]) -> float:
    """Return the chance that a lower limit of the mean proportion lies above it."""
    sizes, truth, missed = np.array(rows, dtype=np.float64), sum(rates) / len(rates), 0.0
    chances = [binom.pmf(np.arange(n + 1), n, p) for n, p in zip(rows, rates, strict=True)]
    for hits in itertools.product(*(range(n + 1) for n in rows)):
        chance = math.prod(one[k] for one, k in zip(chances, hits, strict=True))
        if chance > 1e-9 and low(np.array(hits, dtype=np.float64), sizes) > truth:
            missed += chance
    return missed


@pytest.mark.long
def test_the_region_of_two_classes_keeps_its_level_exactly() -> None:
    worst = {0.1: 0.0, 0.2: 0.0}
    for rates in itertools.product((0.1, 0.5, 0.95), repeat=2):
        for level in worst:
            found = joint_miss(
                (9, 5), rates, lambda k, n, level=level: _two_lower(k, n, math.log(level))
            )
            worst[level] = max(worst[level], found)
    assert worst[0.1] <= 0.1
    # Of the rates on this grid none comes nearer to the level than by half; twice the level is
    # seen to be more than once.
    assert worst[0.2] > worst[0.1]


def test_the_region_of_two_classes_is_not_wider_than_a_search_on_a_grid_finds() -> None:
    hits, rows, level = np.array([40.0, 9.0]), np.array([50.0, 12.0]), -8.0
    budget = gamma_quantile(2, level)
    parts = np.linspace(0.0, 1.0, 2001)[1:-1] * budget
    grid = [exact_lower(40, 50, -part) + exact_lower(9, 12, part - budget) for part in parts]
    assert min(grid) / 2.0 - 2e-6 <= _two_lower(hits, rows, level) <= min(grid) / 2.0


@pytest.mark.long
@pytest.mark.parametrize("rates", [(0.5, 0.5, 0.5), (0.9, 0.7, 0.95), (0.1, 0.3, 0.2)])
def test_the_region_of_many_classes_keeps_its_level_exactly(rates: tuple[float, ...]) -> None:
    def low(hits: np.ndarray, rows: np.ndarray) -> float:
        return _many_lower(hits, rows, TENTH)

    assert joint_miss((7, 6, 5), rates, low) <= 0.1


def test_a_tail_of_a_sum_of_exponentials_is_that_of_gamma() -> None:
    from scipy.stats import gamma

    for classes, level in itertools.product((1, 2, 10, 50), (0.3, 0.01, 1e-200)):
        found = gamma_quantile(classes, math.log(level))
        assert gamma.logsf(found, classes) == pytest.approx(math.log(level), rel=1e-7)


def test_joint_regions_are_much_smaller_than_boxes() -> None:
    level = -13.7
    for count in (2, 10):
        rows = 1000 // count
        box = mean_of([share_limits(int(0.85 * rows), rows, level - math.log(count))] * count)
        joint = class_mean_limits([int(0.85 * rows)] * count, [rows] * count, level)
        assert joint.high - joint.low < (0.8 if count == 2 else 0.4) * (box.high - box.low)


def test_classes_without_rows_may_have_any_recall() -> None:
    all_seen = class_mean_limits([40, 45, 48], [50, 50, 50], -5.0)
    one_more = class_mean_limits([40, 45, 48, 0], [50, 50, 50, 0], -5.0)
    assert one_more.low == pytest.approx(0.75 * all_seen.low, abs=1e-9)
    assert one_more.high == pytest.approx(0.75 * all_seen.high + 0.25, abs=1e-9)
    with pytest.raises(InvalidArgument, match="hits"):
        class_mean_limits([6], [5], -3.0)


def test_a_mean_by_unknown_shares_holds_at_the_worst_shares() -> None:
    parts = [Limits(0.2, 0.3, ""), Limits(0.6, 0.9, ""), Limits(0.5, 0.5, "")]
    found = weighted_by_shares(parts, [20, 70, 10], TENTH)
    boxes = [share_limits(count, 100, TENTH - math.log(6.0)) for count in (20, 70, 10)]
    rng = np.random.default_rng(3)
    for shares in rng.dirichlet([20, 70, 10], 500):
        if all(box.low <= one <= box.high for box, one in zip(boxes, shares, strict=True)):
            assert found.low <= shares @ [part.low for part in parts] + 1e-12
            assert found.high >= shares @ [part.high for part in parts] - 1e-12


# -- matchings -------------------------------------------------------------------------


def test_the_bound_of_a_permanent_is_below_it_and_near() -> None:
    rng = np.random.default_rng(4)
    for n in (1, 2, 4, 6):
        for spread in (0.1, 1.0, 3.0):
            matrix = np.exp(spread * rng.normal(size=(n, n)))
            scaling = Scaling(np.ones(n), np.ones(n))
            ratio = np.array([math.log(matrix.max() / matrix.min())])
            found = scaling.log_mean(lambda z: z @ matrix.T, lambda x: x @ matrix, ratio, 1e-9)  # noqa: B023
            exact = math.log(permanent(matrix) / math.factorial(n))
            assert exact - (2.5 if spread == 3.0 else 0.6) <= found[0] <= exact + 1e-9


def test_an_unfinished_scaling_is_a_bound_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladderholdout.certificates.matchings.ROUNDS", 1)
    rng = np.random.default_rng(5)
    for _ in range(20):
        matrix = np.exp(rng.normal(size=(5, 5)))
        ratio = np.array([math.log(matrix.max() / matrix.min())])
        found = Scaling(np.ones(5), np.ones(5)).log_mean(
            lambda z: z @ matrix.T,  # noqa: B023
            lambda x: x @ matrix,  # noqa: B023
            ratio,
            1e-9,
        )
        assert found[0] <= math.log(permanent(matrix) / math.factorial(5))


def areas_capital(ups: tuple[int, ...], downs: tuple[int, ...], area: float) -> float:
    """Return the mean over all matchings of the products of bets, by brute force."""
    size = max(len(ups), len(downs))
    total = []
    for bet in (0.3, 0.9):
        matrix = np.ones((size, size))
        for i, j in itertools.product(range(len(ups)), range(len(downs))):
            won = 0.5 * (1 + np.sign(ups[i] - downs[j]))
            matrix[i, j] = 1.0 + bet * (won / area - 1.0)
        total.append(permanent(matrix) / math.factorial(size))
    return float(np.mean(total))


def test_the_mean_over_all_matchings_is_an_e_value_exactly() -> None:
    positive, negative = (0.2, 0.3, 0.5), (0.5, 0.3, 0.2)
    area = sum(
        positive[i] * negative[j] * 0.5 * (1 + np.sign(i - j))
        for i, j in itertools.product(range(3), repeat=2)
    )

    def expected(null: float) -> float:
        total = 0.0
        for ups in itertools.product(range(3), repeat=2):
            for downs in itertools.product(range(3), repeat=3):
                chance = math.prod(positive[i] for i in ups)
                chance *= math.prod(negative[j] for j in downs)
                total += chance * areas_capital(ups, downs, null)
        return total

    assert expected(area) == pytest.approx(1.0, abs=1e-12)
    assert expected(area - 0.02) > 1.01


def test_groups_of_scores_count_as_their_rows_do() -> None:
    rng = np.random.default_rng(6)
    for _ in range(30):
        up, down = rng.integers(0, 6, 5).astype(float), rng.integers(-2, 5, 4).astype(float)
        ranks = _Ranks.of(up, down)
        pairs = 0.5 * (1 + np.sign(up[:, None] - down[None, :]))
        assert ranks.area() == pytest.approx(pairs.mean())
        assert ranks.turned().area() == pytest.approx(1.0 - pairs.mean())
        low = ranks.lower(1.0)
        if low > 0.0:
            # What is rejected has that capital under the exact mean over all matchings.
            logs = []
            for bet in stakes(1.0, 2.0 * 5 * 4 / 9):
                matrix = np.ones((5, 5))
                matrix[:, :4] = 1.0 + bet * (pairs / low - 1.0)
                logs.append(math.log(permanent(matrix) / 120))
            assert log_mean(np.array(logs)) >= 1.0


def test_a_limit_is_found_of_a_capital_that_is_better_known_the_second_time() -> None:
    from ladderholdout.limits.betting import last_rejected

    asked: dict[float, int] = {}

    def capital(value: float) -> float:
        # As Sinkhorn's algorithm goes on where it stopped.
        asked[value] = asked.get(value, 0) + 1
        return 3.0 - 3.0 * value + (0.5 if asked[value] > 1 else 0.0)

    for inside in np.linspace(0.5, 1.0, 26):
        found = last_rejected(capital, 1.7, 0.0, float(inside))
        assert 0.4 <= found <= 0.62
        assert 3.5 - 3.0 * found >= 1.7


def test_many_groups_are_joined_without_a_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    up, down = rng.normal(1.0, 1.0, 300), rng.normal(0.0, 1.0, 500)
    fine = auc_limits(up, down, -10.0)
    monkeypatch.setattr("ladderholdout.certificates.matchings.GROUPS", 12)
    coarse = auc_limits(up, down, -10.0)
    assert coarse.low <= fine.low + 1e-5
    assert coarse.high >= fine.high - 1e-5
    assert coarse.high - coarse.low <= 1.1 * (fine.high - fine.low)


def test_separated_classes_come_near_the_floor() -> None:
    # No valid lower limit is above level^(1/k) for the smaller class's k rows.
    for k, n, level in ((5, 100, -3.0), (50, 50, -20.0)):
        found = auc_limits(np.arange(k) + 1000.0, np.arange(n), level)
        floor = math.exp(level / k)
        assert 0.85 * floor <= found.low <= floor
        assert found.high == 1.0


def test_an_area_does_not_depend_on_the_scale_of_the_scores() -> None:
    rng = np.random.default_rng(8)
    up, down = rng.normal(1.0, 1.0, 60), rng.normal(0.0, 1.0, 60)
    found, other = auc_limits(up, down, -6.0), auc_limits(np.exp(up), np.exp(down), -6.0)
    turned = auc_limits(down, up, -6.0)
    assert found == other
    assert turned.low == pytest.approx(1.0 - found.high, abs=1e-4)
    assert auc_limits(up, down, -700.0).low < found.low
    with pytest.raises(InvalidArgument, match="scores"):
        auc_limits(up, [], -6.0)


@pytest.mark.parametrize("classes", [2, 3])
def test_kernels_of_kappa_and_matthews_have_the_mean_that_is_claimed(classes: int) -> None:
    rng = np.random.default_rng(9)
    for _ in range(20):
        table = rng.dirichlet(np.ones(classes**2)).reshape(classes, classes)
        codes = np.indices((classes, classes)).reshape(2, -1)
        pairs = _Pairs(codes[0], codes[1], np.ones(classes**2), np.ones(classes**2))
        shares, hits, chance = table.reshape(-1), pairs.agreement(), pairs.chance()
        agree, expected = np.trace(table), float(table.sum(axis=1) @ table.sum(axis=0))
        kappa = (agree - expected) / (1 - expected)
        gains = hits - kappa - (1 - kappa) * chance
        assert shares @ gains @ shares == pytest.approx(0.0, abs=1e-12)
        for value in np.linspace(-1.0, 0.99, 9):
            assert (hits - value - (1 - value) * chance).min() >= -1.0 - 1e-12
            assert ((value - hits) / (1 - value) + chance).min() >= -1.0 - 1e-12
        spreads = [1.0 - float((side**2).sum()) for side in (table.sum(axis=1), table.sum(axis=0))]
        score = (agree - expected) / math.sqrt(spreads[0] * spreads[1])
        unlike = [(code[:, None] != code[None, :]).astype(float) for code in codes]
        joint, best = hits - chance, math.sqrt(spreads[1] / spreads[0])
        for ratio in (0.3, 1.0, best, 4.0):
            spread = ratio * unlike[0] + unlike[1] / ratio
            mean = shares @ (joint - abs(score) * spread / 2) @ shares
            assert mean <= 1e-12
            if ratio == best and score >= 0:
                assert mean == pytest.approx(0.0, abs=1e-12)
            for value in (0.0, 0.5, 1.0):
                gains = (joint - value * spread / 2) / (1 + value * (ratio + 1 / ratio) / 2)
                assert gains.min() >= -1.0 - 1e-12
        first, last = 0.8 * best, 1.1 * best
        spread = (first * last * unlike[0] + unlike[1]) / (first + last)
        assert shares @ spread @ shares <= math.sqrt(spreads[0] * spreads[1]) + 1e-12
        largest = (1 + first * last) / (first + last)
        for value in (0.0, 0.3, 0.9):
            scale = max(1 - value * largest, 1e-9)
            assert ((value * spread - joint) / scale).min() >= -1.0 - 1e-9


def test_limits_of_pairs_are_the_same_when_they_are_asked_for_again() -> None:
    rng = np.random.default_rng(10)
    y = rng.integers(0, 3, 301)
    guesses = np.where(rng.random(301) < 0.7, y, rng.integers(0, 3, 301))
    for limits in (kappa_limits, matthews_limits):
        found = [limits(y, guesses, -6.0, np.random.default_rng(0)) for _ in range(2)]
        order = np.random.default_rng(1).permutation(301)
        shuffled = limits(y[order], guesses[order], -6.0, np.random.default_rng(0))
        assert found[0] == found[1] == shuffled
        assert -1.0 <= found[0].low < found[0].high <= 1.0
        with pytest.raises(InvalidArgument):
            limits(y, guesses[1:], -6.0, rng)
        with pytest.raises(InvalidArgument):
            limits(y + 0.5, guesses, -6.0, rng)


def test_all_right_or_all_wrong_or_one_class_has_limits() -> None:
    y = np.arange(40) % 2
    perfect = kappa_limits(y, y, -5.0, np.random.default_rng(0))
    assert perfect.low > 0.25
    assert perfect.high == 1.0
    assert matthews_limits(y, y, -5.0, np.random.default_rng(0)).low > 0.1
    assert matthews_limits(y, 1 - y, -5.0, np.random.default_rng(0)).low == -1.0
    assert kappa_limits(y, 1 - y, -5.0, np.random.default_rng(0)).high < 0.0
    assert matthews_limits(y, 0 * y, -5.0, np.random.default_rng(0)) == Limits(
        -1.0, 1.0, "matchings"
    )


# -- regression ------------------------------------------------------------------------


def test_a_median_keeps_its_level_exactly() -> None:
    n = 25
    found = median_limits(np.arange(n, dtype=float), TENTH)
    below = binom.cdf(found.low, n, 0.5), binom.sf(found.low + 1, n, 0.5)
    assert binom.cdf(int(found.low), n, 0.5) <= 0.1 < binom.cdf(int(found.low) + 1, n, 0.5)
    assert below[0] <= 0.1
    assert found.low + found.high == n - 1
    assert median_limits(np.ones(5), -10.0) == Limits(0.0, math.inf, "exact binomial")


def test_r2_has_a_lower_limit_only_below_what_errors_may_hide() -> None:
    rng = np.random.default_rng(11)
    y = rng.uniform(-1, 1, 400)
    found = [
        r2_limits(
            y,
            y * 0.9,
            -5.0,
            target_range=(-1, 1),
            largest_error=largest,
            rng=np.random.default_rng(0),
        )
        for largest in (0.2, 0.5, 1.0)
    ]
    assert found[0].low > found[1].low > found[2].low
    assert found[0].high == found[1].high == found[2].high
    for wrong in ({"target_range": (0, 1)}, {"largest_error": 0.05}, {"target_range": (1, -1)}):
        settings = {"target_range": (-1, 1), "largest_error": 0.2} | wrong
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            r2_limits(y, y * 0.9, -5.0, rng=rng, **settings)  # type: ignore[arg-type]


def test_cells_are_fixed_before_the_rows_and_one_of_those_left_holds_the_mean() -> None:
    rng, met = np.random.default_rng(14), []
    for scale, middle in itertools.product((0.01, 0.3, 1.0), (-1.0, -0.5, 0.01, 1.0)):
        values = np.clip(middle + scale * rng.normal(size=300), -1.0, 1.0)
        centres, half = Series(values, -1.0, 1.0, centred=True).cells(7.0)
        # Odd multiples of a half-width that depends on n, the target and the range alone.
        assert half == 1.0 / math.ceil(25 * (300 / 7.0) ** 0.25)
        places = (centres + 1.0) / half
        assert places == pytest.approx(2 * np.round((places - 1) / 2) + 1)
        assert np.diff(centres) == pytest.approx(2 * half)
        assert np.abs(centres - values.mean()).min() <= half * (1 + 1e-9)
        met.append(len(centres))
    assert min(met) <= 3 < 6 <= max(met)


def test_a_constant_target_or_no_error_has_limits() -> None:
    settings = {"target_range": (-1.0, 1.0), "largest_error": 0.5}
    y = np.random.default_rng(12).uniform(-1, 1, 50)
    for explained in (False, True):
        exact = r2_limits(y, y, -5.0, rng=np.random.default_rng(0), explained=explained, **settings)
        assert exact.low < exact.high == 1.0
    flat = r2_limits(0 * y, 0 * y + 0.1, -5.0, rng=np.random.default_rng(0), **settings)
    assert flat.low == -math.inf
    assert concordance_limits(y, y, -5.0, rng=np.random.default_rng(0), **settings).high == 1.0


# -- by metric -------------------------------------------------------------------------


def test_every_named_metric_has_a_bound_or_a_reason() -> None:
    none = {name for name, metric in METRICS.items() if isinstance(bound_of(metric), str)}
    unbounded = {name for name, metric in METRICS.items() if metric.is_mean and not metric.bounded}
    assert none - unbounded == {"neg_max_error", "pearson", "spearman"}
    for name in unbounded:
        bound = bound_of(get_metric(name).with_range((0.0, 3.0)))
        assert not isinstance(bound, str)
        assert bound.name == "bets"
    own = Metric("own", "labels", score=lambda y, p, sample_weight: 0.5)
    assert "own is a function" in str(bound_of(own))
    with pytest.raises(InvalidArgument, match="largest error"):
        score_limits(
            get_metric("neg_max_error"), Rows(np.ones(3), np.ones(3), np.random.default_rng(0)), -3
        )


def example(name: str, n: int, rng: np.random.Generator) -> tuple[Metric, Rows]:
    metric = METRICS[name]
    if not metric.is_classification:
        guesses = rng.uniform(-1, 1, n)
        y = guesses + rng.uniform(-0.3, 0.3, n) + (2 if metric.support else 0)
        if metric.support:
            guesses = guesses + 2
        if metric.is_mean:
            metric = metric.with_range((0, 5.0))
        elif metric.takes_target_range:
            metric = metric.with_target_range((-4.0, 4.0), loss_range=(0, 0.4))
        return metric, Rows(y, guesses, rng)
    classes = 2 if metric.binary or metric.response == "scores" else 3
    y = np.arange(n) % classes
    if metric.response == "labels":
        guesses = np.where(rng.random(n) < 0.8, y, rng.integers(0, classes, n)).astype(np.int32)
    elif metric.response == "scores":
        guesses = y + rng.normal(size=n)
    else:
        table = np.exp(2 * np.eye(classes)[y] + rng.normal(size=(n, classes)))
        guesses = table / table.sum(axis=1, keepdims=True)
    return metric, Rows(y, guesses, rng, classes)


@pytest.mark.parametrize("name", [name for name in METRICS if name != "neg_max_error"])
def test_limits_of_every_metric_hold_its_value(name: str) -> None:
    if name in ("pearson", "spearman"):
        return
    metric = METRICS[name]
    if metric.is_mean and not metric.bounded:
        assert isinstance(bound_of(metric), str)
    metric, rows = example(name, 240, np.random.default_rng(13))
    if metric.is_mean and metric.loss_range is None:
        return
    evaluation = metric.evaluate(rows.targets, rows.predictions)
    score = metric.to_score(evaluation.risk)
    if name == "neg_mean_absolute_percentage_error":  # the only one with errors beyond its range
        shares = np.abs(rows.targets - rows.predictions) / np.abs(rows.targets)
        assert (shares > 5).sum() == evaluation.clipped and score == pytest.approx(-shares.mean())
        score = -float(np.minimum(shares, 5).mean())
    else:
        assert not evaluation.clipped
    widths = []
    for level in (-1.5, -8.0, -60.0, -700.0):
        again = replace(rows, rng=np.random.default_rng(0))
        found = score_limits(metric, again, level)
        assert found.low <= score <= found.high
        widths.append(found.high - found.low)
    # The ends of bets in order need not nest where these end and a fixed mixture begins.
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(widths))


def test_ranges_that_are_needed_are_asked_for() -> None:
    rows = Rows(np.arange(3.0), np.arange(3.0), np.random.default_rng(0))
    with pytest.raises(InvalidArgument, match="target_range"):
        score_limits(get_metric("r2"), rows, -3.0)
