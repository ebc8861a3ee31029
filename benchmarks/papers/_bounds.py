"""The bounds of the papers, with every constant, beside those of this library."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from ladderholdout.arguments import as_number, whole, within
from ladderholdout.certificates.codes import event_length, place_length, worst_log_count
from ladderholdout.certificates.transcript import COUNT_NOISE
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.intervals import exact_upper
from ladderholdout.mechanisms.noisy import shaky_settings

# The best step is sought among these.
STEPS = np.geomspace(1e-4, 1.0, 2001)


def blum_hardt(n: int, k: int, beta: float = 0.05, step: float | None = None) -> float:
    """Return the leaderboard error of `Ladder` by Blum & Hardt 2015, Theorem 3.1.

    With probability 1 - beta the released risk is within this of the least true risk among
    the first k submissions: step + epsilon, where
    exp(-2 epsilon^2 n + (1/step + 2) ln(4k/step) + 1) = beta.

    Parameters
    ----------
    n, k : int
        Numbers of examples and of submissions.
    beta : float, default=0.05
        Failure probability, in (0, 1).
    step : float or None, default=None
        The ladder's step in (0, 1]; None takes the one with the smallest error.

    Returns
    -------
    float
        Half-width.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(blum_hardt(5000, 1000), 3), round(blum_hardt(5000, 1000, step=0.01), 3)
    (0.205, 0.373)
    """
    n, k, beta = _checked(n, k, beta)
    steps = STEPS if step is None else np.array([within("step", step, 1.0)])
    nats = (1.0 / steps + 2.0) * np.log(4.0 * k / steps) + 1.0 - math.log(beta)
    return float((steps + np.sqrt(nats / (2.0 * n))).min())


def zheng(n: int, k: int, accounts: int = 1, beta: float = 0.05) -> float:
    """Return the leaderboard error of `SimplifiedLadder` by Zheng, Section 4.

    At the best step, which is also the half-width:
    exp(-step^2 n / 2 + (M/step + 1) ln(2k) + 1) = beta.

    Parameters
    ----------
    n, k : int
        Numbers of examples and of submissions.
    accounts : int, default=1
        M, the number of accounts of one analyst.
    beta : float, default=0.05
        Failure probability, in (0, 1).

    Returns
    -------
    float
        Half-width and step; 1 where no step in (0, 1] reaches beta.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(zheng(5000, 1000), 3), round(zheng(5000, 1000, accounts=5), 3)
    (0.156, 0.254)
    """
    n, k, beta = _checked(n, k, beta)
    accounts = whole("accounts", accounts)

    def missing(step: float) -> float:
        nats = (accounts / step + 1.0) * math.log(2.0 * k) + 1.0
        return step * step * n / 2.0 - nats + math.log(beta)

    if missing(1.0) <= 0.0:
        return 1.0
    return float(brentq(missing, 1e-9, 1.0))


def hardt(n: int, k: int, beta: float = 0.05) -> float:
    """Return the leaderboard error of `ShakyLadder` by Hardt 2017, Theorem 2.7.

    From the lemmas, at the settings of Equation (2): 18 epsilon sqrt(B) + lambda + 2 L with
    L = lambda/4 (Lemma 2.5) and B = 4/lambda (Lemma 2.6). The paper hides constants in
    O(delta) and O(k delta/epsilon) (Lemmas 2.1 and 2.3); they are taken as 1, in favour of
    the bound, and its conditions on epsilon and delta as met.

    Parameters
    ----------
    n, k : int
        Numbers of examples and of submissions.
    beta : float, default=0.05
        Failure probability, in (0, 1).

    Returns
    -------
    float
        Half-width.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(hardt(5000, 1000), 2), round(hardt(10_000_000, 1000), 2)
    (3.52, 0.18)
    """
    n, k, beta = _checked(n, k, beta)
    epsilon, margin, _ = shaky_settings(n, k, beta)
    return float(18.0 * epsilon * math.sqrt(4.0 / margin) + 1.5 * margin)


def lower_bound(n: int, k: int, beta: float = 0.05, risk: float = 0.5) -> float:
    """Return an error that no leaderboard avoids: Blum & Hardt 2015, Theorem 3.3.

    The paper states the order sqrt(log(k)/n). This is Le Cam's two-point bound with its
    constants: k coins show errors with a chance of ``risk``, or one of them, nobody knows which,
    with a chance of risk - epsilon only. The mixture over which one it is has a chi-square
    distance of ((1 + epsilon^2/(risk (1 - risk)))^n - 1)/k from the first, and no test separates
    the two with a chance of error below beta in both where that is at most (1 - 2 beta)/(2 beta).
    So every estimate of the least true risk is off by epsilon/2 or more with a chance of at least
    beta, in one of the two.

    Parameters
    ----------
    n, k : int
        Numbers of examples and of models, which are fixed in advance.
    beta : float, default=0.05
        That chance, in (0, 1); from 1/2 on nothing is proved.
    risk : float, default=0.5
        True risk of all models but one, in [0, 1].

    Returns
    -------
    float
        epsilon/2; at most risk/2.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(lower_bound(5000, 1000), 4), round(lower_bound(5000, 1000, risk=0.05), 4)
    (0.0107, 0.0047)
    """
    n, k, beta = _checked(n, k, beta)
    risk = checked_risk(risk)
    # What a data-processing inequality leaves of a total variation of 1 - 2 beta.
    variation = 4.0 * max(1.0 - 2.0 * beta, 0.0) ** 2 if beta > 0.25 else (0.5 - beta) / beta
    epsilon = math.sqrt(risk * (1.0 - risk) * math.expm1(math.log1p(k * variation) / n))
    return min(epsilon, risk) / 2.0


def sample_splitting(n: int, k: int, risk: float, beta: float = 0.05) -> float:
    """Return the upper half-width when each submission has rows of its own.

    Exact binomial intervals on n // k rows, one for each of k submissions, at once.

    Parameters
    ----------
    n, k : int
        Numbers of examples and of submissions.
    risk : float
        Empirical risk, in [0, 1].
    beta : float, default=0.05
        Failure probability, in (0, 1), of both sides and of all submissions together.

    Returns
    -------
    float
        Half-width; 1 where there are fewer rows than submissions.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(sample_splitting(5000, 8, 0.05), 3), round(sample_splitting(5000, 1000, 0.05), 3)
    (0.028, 0.83)
    """
    n, k, beta = _checked(n, k, beta)
    risk = checked_risk(risk)
    rows = n // k
    if rows == 0:
        return 1.0
    return exact_upper(round(risk * rows), rows, math.log(beta / (2.0 * k))) - risk


def checked_risk(risk: float) -> float:
    """Validate a risk; it stays out of the message.

    Examples
    --------
    >>> checked_risk(0.25)
    0.25
    """
    number = as_number(risk)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgument("risk", "a number in [0, 1]", "not")
    return number


def _checked(n: int, k: int, beta: float) -> tuple[int, int, float]:
    beta = within("beta", beta, math.nextafter(1.0, 0.0))
    return whole("n", n), whole("k", k), beta


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of the table.

    Attributes
    ----------
    name : str
        How the holdout is used.
    source : str
        What proves it.
    width : float
        Distance from the risk to the upper end of its interval; 1 or more is no information. In the
        last row of `compare` what no estimate can do better.
    ratio : float
        The same, over that of one query of the same rows, when fresh.
    log_count : float or None
        L, where the level is divided by exp(L).

    Examples
    --------
    >>> first = compare(5000, 1000, 8)[0]
    >>> first.name, first.width < 0.1
    ('one fresh query', True)
    """

    name: str
    source: str
    width: float
    ratio: float
    log_count: float | None


def compare(
    n: int,
    k: int,
    releases: int,
    risk: float = 0.05,
    *,
    step: float = 0.01,
    accounts: int = 1,
    confidence: float = 0.95,
) -> tuple[Comparison, ...]:
    """Compare the bounds for the last of k submissions, with 0/1 losses.

    Our rows, the first ones, are about the true risk of that submission. The papers' ladders, and
    the last row, are about the least true risk of all k. The last row is no interval: with the
    same confidence no estimate of it is closer, were all risks but one equal to ``risk``.

    Parameters
    ----------
    n, k : int
        Numbers of examples and of submissions.
    releases : int
        Releases before the last submission, in 1 to k - 1.
    risk : float, default=0.05
        The released risk, in [0, 1].
    step : float, default=0.01
        Step of a ladder that rounds to it, in (0, 1]; its interval is wider by half of it.
    accounts : int, default=1
        Accounts of the analyst, for Zheng's bound.
    confidence : float, default=0.95
        In (0, 1).

    Returns
    -------
    tuple of Comparison
        The first row is one fresh query.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> for row in compare(5000, 1000, 8)[:3]:
    ...     print(f"{row.name:28} {row.width:.3f} {row.ratio:.1f}")
    one fresh query              0.006 1.0
    a grid of 1000               0.017 2.7
    1000 adaptive, improvements  0.038 5.9
    """
    n, k, risk = whole("n", n), whole("k", k), checked_risk(risk)
    accounts, releases = whole("accounts", accounts), whole("releases", releases, least=0)
    beta = 1.0 - within("confidence", confidence, math.nextafter(1.0, 0.0))
    values = math.floor(1.0 / within("step", step, 1.0) + 0.5) + 1
    grid = event_length(1) + place_length(k)
    exact, union = "Clopper & Pearson 1934", "transcripts that happened"

    def width(log_count: float, rounding: float = 0.0) -> float:
        errors = min(math.floor((risk + rounding / 2.0) * n + COUNT_NOISE), n)
        return exact_upper(errors, n, math.log(beta / 2.0) - log_count) - risk

    fresh = width(0.0)
    ours = [("one fresh query", exact, 0.0, 0.0), (f"a grid of {k}", union, grid, 0.0)]
    # The first request, beside events: each has half of the chance.
    bits = worst_log_count(k - 1, releases, None)
    bits += event_length(1) - event_length(releases + 1) + math.log(2.0)
    scores = [worst_log_count(k - 1, releases, n_values) for n_values in (values, n + 1)]
    ours.append((f"{k} adaptive, improvements", union, bits, 0.0))
    ours.append((f"{k} adaptive, step {step:g}", union, scores[0], step))
    ours.append((f"{k} adaptive, step 1/n", union, scores[1], 0.0))
    theirs = (
        (f"{k} parts, one each", exact, sample_splitting(n, k, risk, beta)),
        ("Ladder, best step", "Blum & Hardt 2015, Theorem 3.1", blum_hardt(n, k, beta)),
        (f"{accounts} account(s), best step", "Zheng, Section 4", zheng(n, k, accounts, beta)),
        ("ShakyLadder", "Hardt 2017, Theorem 2.7", hardt(n, k, beta)),
        (
            "any estimate of the least risk",
            "Blum & Hardt 2015, Theorem 3.3",
            lower_bound(n, k, beta, risk),
        ),
    )
    rows = [
        Comparison(name, source, wide, wide / fresh, log_count)
        for name, source, log_count, rounding in ours
        for wide in (width(log_count, rounding),)
    ]
    rows += [Comparison(name, source, wide, wide / fresh, None) for name, source, wide in theirs]
    return tuple(rows)
