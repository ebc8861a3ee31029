"""From margins to probabilities, to the very bit that compiled libraries compute.

NumPy's own exponential may differ from the C library's in the last bit, and predictions that
differ in one bit are another submission: the kept model would cost a look of its own.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats: TypeAlias = NDArray[np.float64]


def exponential(margins: Floats) -> Floats:
    """Return exp of each margin as the C library has it."""
    # The complex one calls it; on the real axis it is the real one.
    powers: Floats = np.exp(margins.astype(np.complex128)).real
    return powers


def logistic(margins: Floats) -> Floats:
    """Return 1 / (1 + exp(-m)) for each margin.

    Examples
    --------
    >>> logistic(np.array([0.0, 40.0])).tolist()
    [0.5, 1.0]
    """
    probabilities: Floats = expit(margins)
    return probabilities


def softmax(margins: Floats) -> Floats:
    """Return probabilities of each row's classes, margins of shape (n, C).

    Examples
    --------
    >>> softmax(np.zeros((1, 4))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    powers = exponential(margins - margins.max(axis=1, keepdims=True))
    # Column by column, as a loop over the classes adds them.
    total = np.zeros(len(powers))
    for column in powers.T:
        total += column
    quotients: Floats = powers / total[:, None]
    return quotients
