"""Attacks the certificates by an anchor: differences that miss, and climbs that were too lucky."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from benchmarks.anchored import Incumbent, certify_anchored, difference_limits
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.transcript import Transcript, certify
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.intervals import exact_upper
from ladderholdout.mechanisms import Mechanism, PairedTestLadder, SimplifiedLadder
from ladderholdout.metrics import Evaluation, get_metric

pytestmark = pytest.mark.quick

ACCURACY, CONFIDENCE = get_metric("accuracy"), 0.9


# One difference


@pytest.mark.parametrize(("level", "opposite"), [(0.2, False), (0.05, True), (0.001, False)])
def test_differences_of_given_rows_are_covered(level: float, opposite: bool) -> None:
    """By convolution: rows with chances of their own to be right for one of the two, or none."""
    rng, n = np.random.default_rng(1), 40
    for rows, _ in itertools.product((1, 3, 12), range(15)):
        chances = rng.dirichlet([rng.choice([0.1, 1.0, 5.0])] * 3, rows)
        if opposite:
            chances[:, 1] = 0.0
        chances /= chances.sum(axis=1, keepdims=True)
        counts = np.ones((1, 1))  # of rows with -1, and with 1
        for less, none, more in chances:
            grown = np.zeros((len(counts) + 1, len(counts) + 1))
            grown[:-1, :-1] += none * counts
            grown[1:, :-1] += less * counts
            grown[:-1, 1:] += more * counts
            counts = grown
        truth = float((chances[:, 2] - chances[:, 0]).sum()) / n
        missed = np.zeros(2)
        differing = np.arange(n) < rows
        for (less, more), chance in np.ndenumerate(counts):
            if chance > 0.0:
                differences = np.zeros(n)
                differences[: less + more] = np.repeat([-1.0, 1.0], [less, more])
                ends = difference_limits(
                    differences, math.log(level), differing=differing, opposite=opposite
                )
                missed += chance * np.array([ends[0] > truth, ends[1] < truth])
        assert missed.max() <= level


@pytest.mark.parametrize("level", [0.2, 0.01])
def test_differences_of_new_rows_are_covered(level: float) -> None:
    rng, n = np.random.default_rng(2), 100
    for chances in ([0.05, 0.9, 0.05], [0.3, 0.7, 0.0], [0.0, 0.98, 0.02], [0.4, 0.2, 0.4]):
        missed = 0
        for _ in range(300):
            drawn = rng.choice([-1.0, 0.0, 1.0], n, p=chances)
            low, high = difference_limits(drawn, math.log(level / 2))
            missed += not low <= chances[2] - chances[0] <= high
        assert binomtest(missed, 300, level, alternative="greater").pvalue > 1e-5


def test_equal_predictions_have_no_difference() -> None:
    nothing = np.zeros(50)
    assert difference_limits(nothing, -9.0, differing=nothing > 0) == (0.0, 0.0)
    low, high = difference_limits(nothing, -9.0)
    assert low < 0.0 < high


# Climbs


def climbed(
    rule: Mechanism, n: int, steps: int, changed: int, seed: int
) -> tuple[np.ndarray, list[Incumbent]]:
    """Climb on labels that nobody can know: the true risk of every model is one half."""
    rng = np.random.default_rng(seed)
    y, best, state = rng.integers(0, 2, n), rng.integers(0, 2, n), rule.start(n)
    improved: list[int] = []
    values: list[int] = []
    found: list[Incumbent] = []
    for query in range(1, steps + 1):
        tried = best.copy()
        rows = rng.choice(n, changed, replace=False)
        tried[rows] = 1 - tried[rows]
        state, outcome = rule.advance(state, Evaluation.from_losses(tried != y), rng)
        if outcome.improved:
            shown = tuple(values) if not isinstance(rule, PairedTestLadder) else ()
            own = LadderTranscript(query - 1, tuple(improved), shown, n + 1) if improved else None
            found.append(Incumbent(tried, Transcript.alone(own)))
            best = tried
            improved.append(query)
            values.append(round(outcome.risk * n))
    return y, found


def misses(y: np.ndarray, climb: list[Incumbent], same_rows: bool) -> bool:
    """Tell whether any certificate along the way misses."""
    for last in range(len(climb)):
        one = certify_anchored(
            ACCURACY, y, climb[: last + 1], same_rows=same_rows, confidence=CONFIDENCE
        )
        if not one.low <= 0.5 <= one.high:
            return True
    return False


EXACT, PAIRED = (SimplifiedLadder(1 / 60), 2), (PairedTestLadder(0.3), 4)


@pytest.mark.parametrize(
    ("rule", "changed", "same_rows", "searches"),
    [
        (*EXACT, False, 20),
        (*PAIRED, True, 20),
        *(
            pytest.param(*climbs, same_rows, 150, marks=pytest.mark.nightly)
            for climbs in (EXACT, PAIRED)
            for same_rows in (False, True)
        ),
    ],
)
def test_climbs_are_covered_and_a_bound_that_forgets_them_is_not(
    rule: Mechanism, changed: int, same_rows: bool, searches: int
) -> None:
    """At most a tenth of the climbs may have any false certificate, up to a chance of 1e-4.

    The bound is broken by what the last incumbents pay: as if each were a first query.
    """
    missed, forgot = 0, 0
    for seed in range(searches):
        y, climb = climbed(rule, 60, 60, changed, seed)
        missed += misses(y, climb, same_rows)
        free = [Incumbent(one.predictions, Transcript.alone()) for one in climb]
        forgot += misses(y, free, same_rows)
    assert binomtest(missed, searches, 1 - CONFIDENCE, alternative="greater").pvalue > 1e-4
    assert binomtest(forgot, searches, 1 - CONFIDENCE, alternative="greater").pvalue < 1e-4


def test_differences_that_do_not_pay_for_the_climb_miss() -> None:
    """The anchors' own intervals are right, and the differences at the level of one query."""
    missed = 0
    for seed in range(150):
        y, climb = climbed(SimplifiedLadder(1 / 60), 60, 60, 2, seed)
        risks = [float(np.mean(one.predictions != y)) for one in climb]
        level = math.log((1 - CONFIDENCE) / 4)
        first = exact_upper(round(60 * risks[0]), 60, level - climb[0].transcript.log_count())
        differing = climb[-1].predictions != climb[0].predictions
        differences = (climb[-1].predictions != y).astype(float) - (climb[0].predictions != y)
        _, more = difference_limits(differences, level, differing=differing, opposite=True)
        missed += first + more < 0.5
    assert binomtest(missed, 150, 1 - CONFIDENCE, alternative="greater").pvalue < 1e-4


def test_small_changes_gain_and_large_ones_lose_next_to_nothing() -> None:
    for changed, gains in ((4, True), (200, False)):
        y, climb = climbed(PairedTestLadder(0.05), 1000, 300, changed, 3)
        assert len(climb) > 1
        found = certify_anchored(ACCURACY, y, climb, same_rows=True)
        risk = float(np.mean(climb[-1].predictions != y))
        alone = certify(risk, 1000, climb[-1].transcript)
        ratio = (found.high - found.low) / (alone.high - alone.low)
        assert ratio < 0.9 if gains else ratio < 1.03


def test_a_first_incumbent_is_certified_by_itself() -> None:
    y, climb = climbed(SimplifiedLadder(1 / 400), 400, 30, 5, 0)
    found = certify_anchored(ACCURACY, y, climb[:1])
    risk = float(np.mean(climb[0].predictions != y))
    alone = certify(risk, 400, climb[0].transcript)
    assert found.bound == "exact binomial"
    assert found.low <= 1 - alone.high <= 1 - alone.low <= found.high
    assert found.high - found.low <= alone.high - alone.low + 2 / 400


def test_graded_losses_have_anchors_too() -> None:
    """Absolute errors of up to 1: a climb that moves a few predictions towards the truth."""
    rng, metric = np.random.default_rng(5), get_metric("neg_mean_absolute_error")
    metric = metric.with_range((0.0, 1.0))
    y = rng.random(500)
    models = [np.full(500, 0.5)]
    for step in range(5):
        model = models[-1].copy()
        model[10 * step : 10 * step + 10] = y[10 * step : 10 * step + 10]
        models.append(model)
    improved = (1, 20, 40, 60, 80)
    before = [
        LadderTranscript(20 * i - 1, improved[:i], (), 501, falling=False) for i in range(1, 6)
    ]
    transcripts = [Transcript.alone(), *map(Transcript.alone, before)]
    # Before the last one much more had been shown.
    transcripts[-1] = Transcript.alone(before[-1], shown=40.0)
    climb = [Incumbent(*one) for one in zip(models, transcripts, strict=True)]
    found = certify_anchored(metric, y, climb, same_rows=True)
    alone = certify_anchored(metric, y, [Incumbent(models[-1], transcripts[-1])])
    assert found.bound == "anchored"
    assert any("range" in text for text in found.assumptions)
    assert found.high - found.low < alone.high - alone.low


def test_what_cannot_be_anchored_is_refused() -> None:
    y, climb = climbed(SimplifiedLadder(1 / 60), 60, 5, 5, 0)
    with pytest.raises(InvalidArgument, match="incumbents"):
        certify_anchored(ACCURACY, y, [])
    with pytest.raises(InvalidArgument, match="price"):
        certify_anchored(ACCURACY, y, climb, price=-1.0)
    with pytest.raises(InvalidArgument, match="metric"):
        certify_anchored(get_metric("roc_auc"), y, climb)
