"""Exact limits and limits by bets of one fixed model, at any level. Pure functions.

Mechanisms and certificates rest on them: what a search does to a level is not known here.

>>> from ladderholdout.limits import paired_limits
>>> round(paired_limits(90, 60, 1000, 0.025).low, 3)
0.006
"""

from __future__ import annotations

from ladderholdout.limits.betting import Limits
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.limits.trinomial import exceeds, paired_limits

__all__ = ["Limits", "exact_lower", "exact_upper", "exceeds", "paired_limits"]
