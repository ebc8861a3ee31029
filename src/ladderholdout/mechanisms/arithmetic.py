"""Rounding and comparing risks as the papers mean it."""

from __future__ import annotations

import math

# A difference below this counts as a tie: 0.8 - 0.1 is not 0.7 in binary, and rounding
# noise of the last digit must never decide whether a release is given.
TIE = 1e-12
# So close to halfway between two multiples of the step, a quotient is meant to be halfway:
# 0.15 / 0.1 is 1.4999999999999998.
HALFWAY = 1e-9
# From here on neighbouring floats are whole steps apart, and there is nothing to round.
EXACT = 2.0**52


def below(risk: float, bound: float) -> bool:
    """Compare strictly, taking differences of rounding noise for a tie.

    Examples
    --------
    >>> 0.7 < 0.8 - 0.1, below(0.7, 0.8 - 0.1)
    (True, False)
    """
    # Not cut short: how long a comparison takes must not reveal how it ends.
    return (risk < bound) & (not math.isclose(risk, bound, rel_tol=TIE, abs_tol=TIE))


def round_half_up(x: float, step: float) -> float:
    """Round to the nearest multiple of a step, halves towards the larger number.

    A release is never better than the risk by a half step. Within 1e-9 of a half counts as a half,
    and the result carries no rounding noise of the product. Risks in [0, 1] are rounded beyond 1
    where 1 is no multiple of the step.

    Parameters
    ----------
    x : float
        A number in any range.
    step : float
        Positive.

    Returns
    -------
    float
        The multiple; ``k / m`` exactly, where the step is one m-th.

    Examples
    --------
    >>> round_half_up(0.15, 0.1), round_half_up(0.25, 0.1), round_half_up(0.3, 0.1)
    (0.2, 0.3, 0.3)
    >>> round_half_up(1.1, 0.3)
    1.2
    """
    if not abs(x / step) < EXACT:
        return x
    multiple = math.floor(x / step + 0.5 + HALFWAY)
    parts = round(min(1.0 / step, EXACT))
    if math.isclose(parts * step, 1.0, rel_tol=TIE):
        return multiple / parts
    return float(f"{multiple * step:.15g}")
