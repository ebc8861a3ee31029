"""How likely a submission is no better than the incumbent, by the Bayesian bootstrap.

Rubin's bootstrap (1981) weighs the n examples with Dirichlet(1, ..., 1) weights, that is
with independent exponential numbers over their sum. Of a mean of losses only the sign of
the weighted sum of their differences counts, and its probability needs no draws: it is a
Beta tail for losses of 0 and 1, and an integral in one dimension otherwise. Other metrics
are drawn, until it is settled how all draws together would decide. Where that takes long and
the metric's influence function is known, its linear part takes over from the draws: it is such
a weighted sum, and draws are needed only for how often the metric disagrees with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, rel_entr

from ladderholdout.mechanisms.arithmetic import TIE
from ladderholdout.mechanisms.resampling import chunks, resamples
from ladderholdout.metrics import Evaluation

FloatArray = NDArray[np.float64]
# Largest chance that a decision which stops early is not that of all draws.
RISK_OF_STOPPING = 1e-6
_FIRST_LOOK = 32
# From so many draws on the linear part helps: its integral takes as long as some.
_CLOSE = 128
# Beyond this many standard deviations the probability is below 3e-9: exp(1/4 - 40/2).
_CERTAIN = 40.0
# Steps of the integral in log u, and the difference at which two interleaved rules agree.
_FIRST_STEP, _LAST_STEP, _AGREED = 0.2, 1e-3, 1e-6
# How many factors of a product are multiplied before a logarithm, and how many at a time.
_FACTORS, _AT_ONCE = 32, 2**13


def null_probability(
    new: Evaluation,
    incumbent: Evaluation,
    required: float,
    draws: int,
    rng: np.random.Generator,
) -> float:
    """Return the posterior probability that a submission does not improve on the incumbent.

    Parameters
    ----------
    new, incumbent : Evaluation
        Of the same n examples.
    required : float
        The probability of an improvement from which on it will be believed; drawing stops
        once it is settled on which side of it all draws would end.
    draws : int
        How many draws there are at most.
    rng : numpy.random.Generator
        Source of the draws; not touched for means of losses.

    Returns
    -------
    float
        For means of losses exact to 1e-8, else the share among the draws that were made,
        corrected by its linear part where that is known and the decision is close. It
        decides as all draws would, but for a chance of `RISK_OF_STOPPING`; or it is as
        precise as the plain share among all draws. A draw on which the metric has no value
        counts against the submission.

    Examples
    --------
    >>> new, incumbent = Evaluation.from_losses([0, 0, 1, 0]), Evaluation.from_losses([1, 1, 0, 0])
    >>> null_probability(new, incumbent, 0.85, 10_000, np.random.default_rng(0))
    0.25
    """
    if new.losses is not None and incumbent.losses is not None:
        return 1.0 - probability_below_zero(_differences(new.losses, incumbent.losses))
    return 1.0 - _drawn(new, incumbent, required, draws, rng)[0]


def _differences(new: FloatArray, incumbent: FloatArray) -> FloatArray:
    """Return the differences between losses that are more than rounding noise."""
    difference = new - incumbent
    scale = max(float(np.abs(new).max()), float(np.abs(incumbent).max()))
    return np.asarray(difference[np.abs(difference) > TIE * scale])


def probability_below_zero(differences: FloatArray) -> float:
    """Return the probability that exponential weights make a weighted sum negative.

    Parameters
    ----------
    differences : ndarray of shape (m,)
        What is weighed; none of them zero. An empty sum is not negative.

    Returns
    -------
    float
        Within 1e-8; exact where all differences are of one size.

    Examples
    --------
    >>> probability_below_zero(np.array([-1.0, -1.0, 1.0]))
    0.75
    >>> round(probability_below_zero(np.array([-2.0, 1.0])), 8)
    0.66666667
    """
    gains, sizes = int((differences < 0).sum()), np.abs(differences)
    costs = len(differences) - gains
    if not gains or not costs:
        return float(gains > 0)
    if sizes.max() - sizes.min() <= TIE * sizes.max():
        # The share of the gains in the weight of all changes is Beta(gains, costs).
        return float(betainc(costs, gains, 0.5))
    # Without over- and underflow of the squares.
    differences = differences / sizes.max()
    scaled = differences / math.sqrt(float((differences**2).sum()))
    return _inverted(scaled)


def _inverted(d: FloatArray) -> float:
    """Invert the characteristic function prod 1 / (1 - i u d), as Gil-Pelaez (1951) does.

    P(sum < 0) = 1/2 - (1/pi) times the integral of Im phi(u) over d log u. In log u the
    integrand is analytic in a strip, so the error of the trapezoidal rule falls with the
    step like exp(-c / step) or faster. Two rules whose nodes interleave show its size by
    their difference; that of their mean, a rule of half the step, is about its square.
    """
    z = float(d.sum())
    if abs(z) > _CERTAIN:
        return float(z < 0)
    low, high, step = math.log(1e-3 / max(abs(z), 1.0)), _high(d), _FIRST_STEP
    rule = _trapezoid(low, high, step, d)
    while True:
        between = _trapezoid(low + step / 2, high, step, d)
        rule, difference, step = (rule + between) / 2, abs(rule - between), step / 2
        if difference <= _AGREED or step < _LAST_STEP:
            return min(max(0.5 - rule / math.pi, 0.0), 1.0)


def _trapezoid(low: float, high: float, step: float, d: FloatArray) -> float:
    """Return the sum over all nodes low + j step: below low, Im phi is u times that of d."""
    u = np.exp(np.arange(low, high, step))
    below = math.exp(low) * float(d.sum()) / math.expm1(step)
    return step * (float(_imaginary(u, d).sum()) + below)


def _high(d: FloatArray) -> float:
    """Return the log of an u from which on the characteristic function is below 1e-13."""
    high, squares = 1.0, d**2
    while 0.5 * float(np.log1p(math.exp(2 * high) * squares).sum()) < 30.0:
        high += 1.0
    return high


def _imaginary(u: FloatArray, d: FloatArray) -> FloatArray:
    """Return Im phi at each u: products of a few factors first, as logarithms are dear."""
    logs = np.zeros(len(u), dtype=np.complex128)
    width = _FACTORS * max(1, _AT_ONCE // len(u))
    for start in range(0, len(d), width):
        part = d[start : start + width]
        rows = np.pad(part, (0, -len(part) % _FACTORS)).reshape(_FACTORS, -1)
        # The factor 1 - i u d, in real numbers: half the work of complex ones.
        real, imaginary = np.ones((len(u), rows.shape[1])), np.zeros((len(u), rows.shape[1]))
        for row in rows:
            angle = np.multiply.outer(u, row)
            real, imaginary = real + imaginary * angle, imaginary - real * angle
        logs += np.log(real + 1j * imaginary).sum(axis=1)
    return np.asarray(np.exp(-logs).imag)


def _drawn(
    new: Evaluation,
    incumbent: Evaluation,
    required: float,
    draws: int,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """Draw until it is settled; return the share of improvements, and of how many draws."""
    needed = math.ceil(required * draws * (1.0 - TIE))
    looks = _looks(draws)
    wins = made = 0
    for look in looks:
        if made <= _CLOSE < look:
            linear = _linear_part(new, incumbent)
            if linear is not None:
                late = looks[looks.index(look) :]
                return _corrected(new, incumbent, linear, required, late, len(looks), rng)
        for weights in _weights(look - made, new, rng):
            wins += int(_better(new, incumbent, weights).sum())
        made = look
        if _settled(wins, made, needed, draws, RISK_OF_STOPPING / len(looks)):
            break
    return wins / made, made


def _linear_part(new: Evaluation, incumbent: Evaluation) -> FloatArray | None:
    """Return what each row adds to the weighted sum that is about the difference in risk."""
    ours, theirs = new.influences(), incumbent.influences()
    if ours is None or theirs is None:
        return None
    return np.asarray(ours - theirs + (new.risk - incumbent.risk))


def _corrected(
    new: Evaluation,
    incumbent: Evaluation,
    linear: FloatArray,
    required: float,
    looks: list[int],
    parts: int,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """Return the exact probability of the linear part, corrected where draws contradict it.

    Few do, so the correction is known from few draws: a control variate. It is enough
    when its variance (with two contradictions more, lest there be none) is below that of
    the plain share among all draws.
    """
    known, draws = probability_below_zero(linear[linear != 0]), looks[-1]
    gained = lost = made = 0
    probability = known
    for look in looks:
        for weights in _weights(look - made, new, rng):
            better, expected = _better(new, incumbent, weights), weights @ linear < 0
            gained += int((better & ~expected).sum())
            lost += int((expected & ~better).sum())
        made = look
        probability = known + (gained - lost) / made
        low, high = _limits(gained, lost, made, RISK_OF_STOPPING / parts)
        variance = (gained + lost + 2) / made**2
        if not known + low < required <= known + high or (
            variance <= required * (1.0 - required) / draws
        ):
            break
    return min(max(probability, 0.0), 1.0), made


def _limits(gained: int, lost: int, made: int, risk: float) -> tuple[float, float]:
    """Bound the difference of two shares among all draws, from those among some.

    Chernoff's bounds as in `_settled`, with KL(a, b) at least (a - b)^2 / (2 max(a, b)),
    each of four at a quarter of the risk.
    """
    x = math.log(4.0 / risk) / made

    def least(count: int) -> float:
        return count / made - math.sqrt(2.0 * x * count / made)

    def most(count: int) -> float:
        return count / made + x + math.sqrt(x * x + 2.0 * x * count / made)

    return least(gained) - most(lost), most(gained) - least(lost)


def _weights(total: int, new: Evaluation, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Draw weightings, a chunk at a time."""
    for count in chunks(total, new.n):
        if new.needs_whole_weights:
            yield resamples(count, new.n, rng)
        else:
            yield rng.standard_exponential((count, new.n))


def _looks(draws: int) -> list[int]:
    """Return after how many draws to look whether it is settled: few, and early ones."""
    looks = [draws]
    while looks[0] >= 2 * _FIRST_LOOK:
        looks.insert(0, looks[0] // 2)
    return looks


def _better(new: Evaluation, incumbent: Evaluation, weights: FloatArray) -> NDArray[np.bool_]:
    """Return under which weightings the submission has the smaller risk."""
    theirs, ours = incumbent.risks_under(weights), new.risks_under(weights)
    noise = TIE * np.maximum(np.abs(theirs), np.abs(ours))
    return np.asarray(ours < theirs - noise)


def _settled(wins: int, made: int, needed: int, draws: int, risk: float) -> bool:
    """Return whether all draws would decide as those that were made, but for the risk.

    Those made are a random choice among all draws, without replacement. If all together
    held at least ``needed`` wins, a share as small as theirs would have a chance of at most
    exp(-made KL(share, needed / draws)): Chernoff's bound, which holds without replacement
    too (Hoeffding 1963, Theorem 4). Likewise for a share too large for fewer than needed.
    """
    if wins >= needed or made - wins > draws - needed:
        return True
    share = wins / made
    limit = (needed if share < needed / draws else needed - 1) / draws
    divergence = float(rel_entr(share, limit) + rel_entr(1.0 - share, 1.0 - limit))
    return made * divergence >= -math.log(risk)
