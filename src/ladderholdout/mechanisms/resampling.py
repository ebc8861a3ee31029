"""The ladders that resample: bootstrap estimates as releases, posterior odds as tests.

`LadderBoot` and `BayesBootLadderBoot` release an estimate that is drawn anew for each
submission; `BayesBootLadder` and `BayesBootLadderBoot` decide by posterior odds, for any metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.arguments import whole, within
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.arithmetic import TIE, below, round_half_up
from ladderholdout.mechanisms.base import (
    Decided,
    Evidence,
    Mechanism,
    Outcome,
    State,
    released,
    unchanged,
)
from ladderholdout.mechanisms.noiseless import PairedTestLadder, compared
from ladderholdout.metrics import Evaluation

FloatArray = NDArray[np.float64]
# Numbers in one chunk of weights: half a MB, so that a handful of such arrays stays in the cache,
# and a product with a few columns is too small for BLAS to wake up other threads.
CHUNK = 2**16
# So often a resample on which the metric has no value is replaced by another.
_ATTEMPTS = 100


def bootstrap_mean(evaluation: Evaluation, replications: int, rng: np.random.Generator) -> float:
    """Return the mean risk over bootstrap replications of the holdout.

    Neto et al. 2016, Algorithms 4 and 6, lines 12 and 13. The mean of b means of n draws is
    the mean of b n draws: for means of losses one multinomial number of draws of each loss,
    and one binomial number where there are two losses only.

    Parameters
    ----------
    evaluation : Evaluation
        A submission.
    replications : int
        How many resamples of n examples, with replacement.
    rng : numpy.random.Generator
        Source of the resamples.

    Returns
    -------
    float
        In the unit of the risk.

    Raises
    ------
    InvalidArgument
        If the metric has no value on nearly any resample.

    Examples
    --------
    >>> evaluation = Evaluation.from_losses([0, 1, 0, 0])
    >>> bootstrap_mean(evaluation, 10, np.random.default_rng(0))
    0.275
    """
    if evaluation.losses is not None:
        return _mean_of_draws(evaluation.losses, replications * evaluation.n, rng)
    total, counted = 0.0, 0
    for _ in range(_ATTEMPTS):
        for count in chunks(replications - counted, evaluation.n):
            risks = evaluation.risks_under(resamples(count, evaluation.n, rng))
            defined = risks[np.isfinite(risks)]
            total, counted = total + float(defined.sum()), counted + len(defined)
    if not counted:
        raise InvalidArgument(
            "mechanism",
            "one without a bootstrap, where the metric has no value on nearly any resample",
            "one that bootstraps",
            "Take BayesBootLadder.",
        )
    return total / counted


def resamples(count: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Return how often each of n examples occurs in resamples of the holdout.

    Examples
    --------
    >>> resamples(2, 3, np.random.default_rng(0))
    array([[0., 2., 1.],
           [3., 0., 0.]])
    """
    drawn = rng.integers(0, n, (count, n))
    # Each row counts into places of its own.
    drawn += n * np.arange(count)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=count * n)
    return counts.reshape(count, n).astype(np.float64)


def chunks(total: int, n: int) -> Iterator[int]:
    """Split a number of draws of n weights so that each part fits into the memory.

    Examples
    --------
    >>> list(chunks(5, n=2**15))
    [2, 2, 1]
    """
    size = max(1, CHUNK // n)
    for start in range(0, total, size):
        yield min(size, total - start)


def _mean_of_draws(losses: FloatArray, draws: int, rng: np.random.Generator) -> float:
    low, high = float(losses.min()), float(losses.max())
    above = losses == high
    if (losses[~above] == low).all():
        share = float(rng.binomial(draws, above.mean())) / draws
        return low + (high - low) * share
    counts = rng.multinomial(draws, np.full(len(losses), 1.0 / len(losses)))
    return float((counts * losses).sum()) / draws


@dataclass(frozen=True, slots=True)
class LadderBoot(Mechanism):
    """Release a bootstrap estimate of the best, a submission being better if a t-test rejects.

    Neto et al. 2016, Algorithm 4, with the upper quantile of the t distribution (the
    published lower one is negative for alpha below 0.5). The test compares with the
    incumbent's empirical risk, which is never released itself. Each submission is answered with a
    number that was drawn for it, improved or not: an analyst who may repeat himself
    averages the noise away, and no transcript bound holds. Each of these numbers counts as
    a release.

    Parameters
    ----------
    alpha : float
        Level of the test, in (0, 0.5].
    n_bootstrap : int, default=100
        Number b of bootstrap replications in a release: fewer are noisier. The standard
        deviation of the noise is that of a loss over sqrt(b n).
    half_life : int or None, default=None
        After so many submissions b is half of what it was, and so on down to 1, as the
        paper's Discussion proposes. None leaves it.

    Raises
    ------
    InvalidArgument
        If alpha is outside (0, 0.5], or a count is not a whole number of at least 1.

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    >>> run(LadderBoot(0.15, n_bootstrap=10), losses, np.random.default_rng(0)).tolist()
    [0.58, 0.64, 0.0]
    """

    alpha: float
    n_bootstrap: int = 100
    half_life: int | None = None
    needs_losses: ClassVar[bool] = True
    redraws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        remedy = "0.15 is close to the parameter-free ladder."
        object.__setattr__(self, "alpha", within("alpha", self.alpha, 0.5, remedy))
        object.__setattr__(self, "n_bootstrap", whole("n_bootstrap", self.n_bootstrap))
        if self.half_life is not None:
            object.__setattr__(self, "half_life", whole("half_life", self.half_life))

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Test, and draw the estimate that is released."""
        evidence = compared(self.name, state, evaluation)
        if state.incumbent is not None and evidence.spread is not None:
            rival = state.incumbent.risk
            p_null = paired_p(evidence.risk, rival, evidence.spread, state.n)
            evidence = replace(evidence, p_null=p_null)
        size = shrunk(self.n_bootstrap, self.half_life, state.releases)
        return estimated(state, evaluation, evidence, self._passes(state, evidence), size, rng)

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release the estimate that was drawn; `Mechanism.decide` has the parameters."""
        return redrawn(state, evidence, self._passes(state, evidence))

    def least_gain(self, state: State, variance: float) -> float:
        """Return the critical difference of the test."""
        return PairedTestLadder(self.alpha).least_gain(state, variance)

    def _passes(self, state: State, evidence: Evidence) -> bool:
        if math.isinf(state.standing):
            return True
        return evidence.p_null is not None and evidence.p_null < self.alpha


def paired_p(risk: float, incumbent: float, spread: float, n: int) -> float:
    """Return the p-value of a one-sided paired t-test of two mean losses.

    Small ones are evidence that ``risk`` is smaller. ``spread`` is the standard error of the
    difference of the means; without any it is 0 for a smaller risk and 1 for any other.

    Examples
    --------
    >>> round(paired_p(0.2, 0.25, spread=0.02, n=1000), 4)
    0.0063
    >>> paired_p(0.2, 0.25, spread=0.0, n=3), paired_p(0.2, 0.2, spread=0.0, n=3)
    (0.0, 1.0)
    """
    gap = 0.0 if math.isclose(risk, incumbent, rel_tol=TIE) else risk - incumbent
    if math.isinf(spread):
        return 1.0
    # Also where it is not needed: the time that it takes must reveal nothing.
    tail = float(scipy.special.stdtr(n - 1, gap / (spread or 1.0)))
    return tail if spread > 0 else float(gap >= 0)


def shrunk(n_bootstrap: int, half_life: int | None, releases: int) -> int:
    """Return the number of replications in the next release, halved every ``half_life`` releases.

    Examples
    --------
    >>> [shrunk(100, 10, releases) for releases in (0, 5, 10, 20, 1000)]
    [100, 71, 50, 25, 1]
    """
    if half_life is None:
        return n_bootstrap
    return max(1, round(n_bootstrap * math.pow(0.5, releases / half_life)))


def estimated(
    state: State,
    evaluation: Evaluation,
    evidence: Evidence,
    improved: bool,
    replications: int,
    rng: np.random.Generator,
) -> Evidence:
    """Add the bootstrap estimate of the submission, or of the incumbent where that stays."""
    best = evaluation if improved or state.incumbent is None else state.incumbent
    return replace(evidence, estimate=bootstrap_mean(best, replications, rng))


def redrawn(state: State, evidence: Evidence, improved: bool) -> Decided:
    """Release the estimate, whether or not the submission improved; each counts as a release."""
    assert evidence.estimate is not None  # `measure` always draws one
    after = replace(state, standing=evidence.estimate, releases=state.releases + 1)
    return after, Outcome(evidence.estimate, improved, evidence)


# A linear part contradicts the metric in a share of about 0.4 / sqrt(n) of the draws, and in
# 1.3 / sqrt(n) at most of what was tried. With this many / sqrt(n) of the draws the correction
# is as precise as the plain share among all of them, at odds of 17/3.
_CORRECTING = 8.0
# Nodes of the integral: their distance, and up to where, in the argument of the hyperbola.
_STEP, _LAST = 0.15, 24.0
_HALVINGS = 40
# How many factors of a product are multiplied before its size is taken out, and how many at a time.
# Ratios of losses of 1e12, the most that `_differences` leaves, do not overflow.
_FACTORS, _AT_ONCE = 8, 2**13
# A power of two beyond which a node adds nothing to the integral. Numbers that are smaller than the
# normal ones take the processor many times as long.
_SMALLEST = 900


def null_probability(
    new: Evaluation, incumbent: Evaluation, draws: int, rng: np.random.Generator
) -> float:
    """Return the posterior probability that a submission does not improve on the incumbent.

    Parameters
    ----------
    new, incumbent : Evaluation
        Of the same n examples.
    draws : int
        How many draws the probability is worth where it is not exact.
    rng : numpy.random.Generator
        Source of the draws; not touched for means of losses.

    Returns
    -------
    float
        For means of losses exact to 1e-8, else the share among the draws. Where the metric's
        influence function is known, it is the exact probability of the linear part, corrected
        by a part of the draws (`drawn`), which is about as precise as all of them. A draw on
        which the metric has no value counts against the submission.

    Examples
    --------
    >>> new, incumbent = Evaluation.from_losses([0, 0, 1, 0]), Evaluation.from_losses([1, 1, 0, 0])
    >>> null_probability(new, incumbent, 10_000, np.random.default_rng(0))
    0.25
    """
    if new.losses is not None and incumbent.losses is not None:
        differences = _differences(new.losses, incumbent.losses)
        if new.groups is not None:
            return 1.0 - probability_below_zero(new.of_draws(differences))
        if _are_hits(new.losses) and _are_hits(incumbent.losses):
            return 1.0 - _of_one_size(differences)
        return 1.0 - probability_below_zero(differences)
    linear = _linear_part(new, incumbent)
    if linear is None:
        wins = sum(int(_better(new, incumbent, w).sum()) for w in _weights(draws, new, rng))
        return 1.0 - wins / draws
    linear = new.of_draws(linear)
    return 1.0 - _corrected(new, incumbent, linear, drawn(draws, new.n_draws), rng)


def drawn(draws: int, n: int) -> int:
    """Return how many draws correct a linear part so that it is worth ``draws`` plain ones.

    Examples
    --------
    >>> drawn(1000, 50), drawn(1000, 5000), drawn(10_000, 5000)
    (1000, 114, 1132)
    """
    return min(draws, math.ceil(_CORRECTING * draws / math.sqrt(n)))


def _differences(new: FloatArray, incumbent: FloatArray) -> FloatArray:
    """Return the differences between losses, 0 where they are but rounding noise."""
    difference = new - incumbent
    scale = max(float(np.abs(new).max()), float(np.abs(incumbent).max()))
    return np.where(np.abs(difference) > TIE * scale, difference, 0.0)


def _are_hits(losses: FloatArray) -> bool:
    """Return whether all losses are 0 or 1, as predicted labels have them whatever is true."""
    return int(((losses == 0) | (losses == 1)).sum()) == len(losses)


def probability_below_zero(differences: FloatArray) -> float:
    """Return the probability that exponential weights make a weighted sum negative.

    Parameters
    ----------
    differences : ndarray of shape (m,)
        What is weighed. A sum of zeros is not negative.

    Returns
    -------
    float
        Within 1e-8; exact where all differences but zeros are of one size.

    Examples
    --------
    >>> probability_below_zero(np.array([-1.0, -1.0, 0.0, 1.0]))
    0.75
    >>> round(probability_below_zero(np.array([-2.0, 1.0])), 8)
    0.66666667
    """
    sizes = np.abs(differences)
    largest = float(sizes.max(initial=0.0))
    # Neither a mask nor `any` skips entries here: which ones there are depends on the labels.
    least = float(np.where(sizes > 0, sizes, largest).min(initial=largest))
    exact = _of_one_size(differences)
    integral = _integrated(differences / (largest or 1.0))
    gains, costs = np.count_nonzero(differences < 0), np.count_nonzero(differences > 0)
    one_sign = (gains == 0) | (costs == 0)
    return exact if one_sign or largest - least <= TIE * largest else integral


def _of_one_size(differences: FloatArray) -> float:
    """Return the same where sizes do not differ: the share of the gains is Beta distributed."""
    gains, costs = int((differences < 0).sum()), int((differences > 0).sum())
    share = float(scipy.special.betainc(max(costs, 1), max(gains, 1), 0.5))
    return share if gains and costs else float(gains > 0)


def _integrated(d: FloatArray) -> float:
    """Invert the moment generating function M(s) = prod 1 / (1 - s d), along a hyperbola.

    The tail P(sum > 0), for a sum of negative mean, is the integral of M(s) / s over 2 pi i,
    upwards through any point between 0 and the first pole (Daniels 1987). Taken through the
    saddle point and bent as the third derivative is, the integrand hardly oscillates; in the
    argument of the hyperbola it is analytic in a strip, so that the trapezoidal rule converges
    like exp(-c / step).
    """
    positive = float(d.sum()) > 0
    d = -d if positive else d
    with np.errstate(all="ignore"):  # without a difference above 0 there is no tail, nor a use
        tail = _tail(d, _saddle(d))
    probability = tail if positive else 1.0 - tail
    return min(max(probability, 0.0), 1.0)


def _saddle(d: FloatArray) -> float:
    """Return where log M(s) - log s is smallest: it is convex between 0 and the first pole."""
    low, high = 0.0, 1.0 / max(float(d.max(initial=0.0)), 1e-13)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        falls = float((d / (1.0 - middle * d)).sum()) < 1.0 / middle
        low, high = (middle, high) if falls else (low, middle)
    return (low + high) / 2


def _tail(d: FloatArray, saddle: float) -> float:
    """Integrate over s = saddle + width (i sinh t + bend (cosh t - 1))."""
    ratios = d / (1.0 - saddle * d)
    second = float((ratios * ratios).sum()) + saddle**-2
    # As products: a power takes another time where its base is negative.
    third = 2.0 * (float((ratios * ratios * ratios).sum()) - saddle**-3)
    width = second**-0.5
    bend = min(max(width * third / (3.0 * second), -1.0), 1.0)
    t = np.arange(0.0, _LAST, _STEP)
    s = saddle + width * (1j * np.sinh(t) + bend * (np.cosh(t) - 1.0))
    slope = width * (1j * np.cosh(t) + bend * np.sinh(t))
    product, exponents = _product(s, d)
    product *= s
    # In real numbers: how a complex division is done depends on its divisor.
    above = slope.imag * product.real - slope.real * product.imag
    values = above / (product.real * product.real + product.imag * product.imag)
    values = np.ldexp(values, -np.clip(exponents, -_SMALLEST, _SMALLEST))
    return float(values.sum() - values[0] / 2) * _STEP / math.pi


def _product(
    s: NDArray[np.complex128], d: FloatArray
) -> tuple[NDArray[np.complex128], NDArray[np.int64]]:
    """Return prod (1 - s d) at each s, as a number of about 1 and a power of two.

    Without a logarithm: that of a complex number near the unit circle takes several times as long
    as another one's, and how many of the factors are near it goes by the raw score.
    """
    product, exponents = np.ones(len(s), np.complex128), np.zeros(len(s), np.int64)
    width = _FACTORS * max(1, _AT_ONCE // len(s))
    for start in range(0, len(d), width):
        part = d[start : start + width]
        rows = np.pad(part, (0, -len(part) % _FACTORS)).reshape(_FACTORS, -1)
        # In real numbers: half the work of complex ones.
        real, imaginary = np.ones((len(s), rows.shape[1])), np.zeros((len(s), rows.shape[1]))
        for row in rows:
            level, angle = 1.0 - np.multiply.outer(s.real, row), np.multiply.outer(s.imag, row)
            real, imaginary = real * level + imaginary * angle, imaginary * level - real * angle
        factors, powers = _normalised(real + 1j * imaginary)
        product, more = _normalised(product * factors.prod(axis=1))
        exponents += powers.sum(axis=1) + more
    return product, exponents


def _normalised(
    values: NDArray[np.complex128],
) -> tuple[NDArray[np.complex128], NDArray[np.intc]]:
    """Return numbers of a size from 0.5 to 1.5, and the powers of two that were taken out."""
    _, powers = np.frexp(np.maximum(np.abs(values.real), np.abs(values.imag)))
    return values * np.ldexp(1.0, -powers), powers


def _linear_part(new: Evaluation, incumbent: Evaluation) -> FloatArray | None:
    """Return what each row adds to the weighted sum that is about the difference in risk."""
    of_new, of_incumbent = new.influences(), incumbent.influences()
    if of_new is None or of_incumbent is None:
        return None
    return np.asarray(of_new - of_incumbent + (new.risk - incumbent.risk))


def _corrected(
    new: Evaluation,
    incumbent: Evaluation,
    linear: FloatArray,
    draws: int,
    rng: np.random.Generator,
) -> float:
    """Return the exact probability of the linear part, corrected where draws contradict it.

    Few do, so the correction is known from few draws: a control variate.
    """
    surplus = 0
    for weights in _weights(draws, new, rng):
        better, expected = _better(new, incumbent, weights), weights @ linear < 0
        surplus += int(better.sum()) - int(expected.sum())
    return min(max(probability_below_zero(linear) + surplus / draws, 0.0), 1.0)


def _weights(total: int, new: Evaluation, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Draw weightings of the units, a chunk at a time."""
    for count in chunks(total, new.n):
        if new.needs_whole_weights:
            yield resamples(count, new.n_draws, rng)
        else:
            yield rng.standard_exponential((count, new.n_draws))


def _better(new: Evaluation, incumbent: Evaluation, weights: FloatArray) -> NDArray[np.bool_]:
    """Return under which weightings of the units the submission has the smaller risk."""
    weights = new.of_examples(weights)
    incumbent_risks, risks = incumbent.risks_under(weights), new.risks_under(weights)
    noise = TIE * np.maximum(np.abs(incumbent_risks), np.abs(risks))
    return np.asarray(risks < incumbent_risks - noise)


# Posterior probabilities are exact to 1e-8 at best.
_MOST = 1e6


@dataclass(frozen=True, slots=True)
class BayesBootLadder(Mechanism):
    """Release the rounded risk if the posterior odds favour an improvement.

    Neto et al. 2016, Algorithm 5. The posterior is that of the Bayesian bootstrap on the
    difference between the two risks, with the same weights for both, so it works for any metric
    that has a value under weights. Metrics of ranks and of extremes are resampled with whole
    rows instead. For means of losses the odds are exact and nothing is drawn
    (`probability_below_zero`); for AUC, correlations and what is counted from labels, such as
    F1, a part of the draws corrects an exact linear part (`drawn`). A decision does the same
    work whatever the risk is. Releases are rounded and fall: a submission that would repeat or
    raise the released risk does not become the incumbent, as it may in the paper.

    Parameters
    ----------
    odds : float
        Posterior odds from which on an improvement is believed, in [1, 1e6];
        (1 - alpha) / alpha corresponds to a one-sided test at level alpha.
    n_posterior : int, default=10000
        Number B of draws from the posterior.
    step : float or None, default=None
        Grid of the releases, in (0, 1]; None is 1/n, as published. A submission that has one
        row more right, and none less, is better under any weighting, whatever the odds: a
        coarser grid keeps all but a few of such steps from being released.

    Raises
    ------
    InvalidArgument
        If a setting is out of its range.

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[1, 1, 1, 1, 0], [1, 1, 1, 0, 1], [0, 0, 0, 1, 0]]
    >>> run(BayesBootLadder(odds=7), losses, np.random.default_rng(0)).tolist()
    [0.8, 0.8, 0.2]
    """

    odds: float
    n_posterior: int = 10_000
    step: float | None = None
    counted: ClassVar[Literal["falling", "any"] | None] = "falling"
    by_groups: ClassVar[bool] = True
    takes_scale: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        object.__setattr__(self, "odds", _odds_of(self.odds))
        object.__setattr__(self, "n_posterior", whole("n_posterior", self.n_posterior))
        if self.step is not None:
            object.__setattr__(self, "step", within("step", self.step, 1.0))

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Measure the risk, and the posterior probability that it is no improvement."""
        return _compared(state, evaluation, self.n_posterior, rng)

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release if the odds suffice; `Mechanism.decide` has the parameters."""
        step = self.resolution(state.n)
        risk, rounded = state.released_as(evidence, step), round_half_up(evidence.risk, step)
        # A step that was left out is a grid alone.
        lower = below(rounded, round_half_up(state.standing, step)) | (self.step is None)
        if _believed(state, evidence, self.odds) & lower & below(risk, state.standing):
            return released(state, evidence, risk)
        return unchanged(state, evidence)

    def bar(self, state: State) -> float:
        """Return the least risk that is rounded to the released one, where there is a step."""
        if self.step is None:
            return state.standing
        return round_half_up(state.standing, self.step) - self.step / 2

    def resolution(self, n: int) -> float:
        """Return the step, which is 1/n if it was left out."""
        return 1.0 / n if self.step is None else self.step

    def least_gain(self, state: State, variance: float) -> float:
        """Return the difference that has these odds, where the posterior is about normal."""
        return max(self.resolution(state.n), _margin(self.odds, state.n, variance))


@dataclass(frozen=True, slots=True)
class BayesBootLadderBoot(Mechanism):
    """Release a bootstrap estimate of the best, which the posterior odds decide on.

    Neto et al. 2016, Algorithm 6: the comparison of `BayesBootLadder` and the releases of
    `LadderBoot`, for any metric. As there, each submission is answered with a number of its own.
    Resamples on which the metric has no value (only one class, for the AUC) are replaced.

    Parameters
    ----------
    odds : float
        Posterior odds from which on an improvement is believed, in [1, 1e6].
    n_posterior : int, default=10000
        Number B of draws from the posterior.
    n_bootstrap : int, default=100
        Number b of bootstrap replications in a release.
    half_life : int or None, default=None
        After so many submissions b is half of what it was; None leaves it.

    Raises
    ------
    InvalidArgument
        If a setting is out of its range.

    Examples
    --------
    >>> from ladderholdout.mechanisms import run
    >>> losses = [[1, 1, 1, 1, 0], [1, 1, 1, 0, 1], [0, 0, 0, 0, 0]]
    >>> mechanism = BayesBootLadderBoot(odds=7, n_bootstrap=10)
    >>> run(mechanism, losses, np.random.default_rng(0)).tolist()
    [0.78, 0.84, 0.0]
    """

    odds: float
    n_posterior: int = 10_000
    n_bootstrap: int = 100
    half_life: int | None = None
    redraws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Validate the settings."""
        object.__setattr__(self, "odds", _odds_of(self.odds))
        object.__setattr__(self, "n_posterior", whole("n_posterior", self.n_posterior))
        object.__setattr__(self, "n_bootstrap", whole("n_bootstrap", self.n_bootstrap))
        if self.half_life is not None:
            object.__setattr__(self, "half_life", whole("half_life", self.half_life))

    def measure(self, state: State, evaluation: Evaluation, rng: np.random.Generator) -> Evidence:
        """Compare with the incumbent, and draw the estimate that is released."""
        evidence = _compared(state, evaluation, self.n_posterior, rng)
        improved = _believed(state, evidence, self.odds)
        size = shrunk(self.n_bootstrap, self.half_life, state.releases)
        return estimated(state, evaluation, evidence, improved, size, rng)

    def decide(self, state: State, evidence: Evidence, rng: np.random.Generator) -> Decided:
        """Release the estimate that was drawn; `Mechanism.decide` has the parameters."""
        return redrawn(state, evidence, _believed(state, evidence, self.odds))

    def least_gain(self, state: State, variance: float) -> float:
        """Return the difference that has these odds, where the posterior is about normal."""
        return _margin(self.odds, state.n, variance)


def _odds_of(value: object) -> float:
    remedy = "17 / 3 corresponds to a test at level 0.15, 99 to one at 0.01."
    return within("odds", value, _MOST, remedy, least=1.0)


def _compared(
    state: State, evaluation: Evaluation, draws: int, rng: np.random.Generator
) -> Evidence:
    if state.incumbent is None:
        return Evidence(evaluation.risk)
    # Also where nothing can be released: the time that it takes must reveal nothing.
    p_null = null_probability(evaluation, state.incumbent, draws, rng)
    return Evidence(evaluation.risk, p_null=p_null)


def _believed(state: State, evidence: Evidence, odds: float) -> bool:
    """Return whether the posterior odds of an improvement are at least those required."""
    if math.isinf(state.standing):
        return True
    return evidence.p_null is not None and not below(1.0 - evidence.p_null, odds / (1.0 + odds))


def _margin(odds: float, n: int, variance: float) -> float:
    return float(scipy.special.ndtri(odds / (1.0 + odds))) * math.sqrt(variance / n)
