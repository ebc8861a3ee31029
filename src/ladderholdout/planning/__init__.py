"""Planning: how to use a holdout, before any submission. Pure functions.

>>> from ladderholdout.planning import plan
>>> found = plan(n=5000, submissions=1000, width=0.03)
>>> found.fixed.within(0.03), found.learning.within(0.03)
(True, False)
"""

from __future__ import annotations

from ladderholdout.planning.plans import Plan, Way, plan, plot
from ladderholdout.planning.simulation import SimulatedSearch, simulated_searches
from ladderholdout.planning.widths import (
    MOST_ROWS,
    fixed_width,
    learning_width,
    reserve_width,
    rows_needed,
)

__all__ = [
    "MOST_ROWS",
    "Plan",
    "SimulatedSearch",
    "Way",
    "fixed_width",
    "learning_width",
    "plan",
    "plot",
    "reserve_width",
    "rows_needed",
    "simulated_searches",
]
