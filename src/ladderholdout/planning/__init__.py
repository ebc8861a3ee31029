"""Planning: how to use a holdout, before any submission. Pure functions.

>>> from ladderholdout.planning import plan
>>> advice = plan(n=5000, submissions=1000, width=0.03)
>>> advice.fixed.within(0.03), advice.learning.within(0.03)
(True, False)
"""

from __future__ import annotations

from ladderholdout.planning.course import MOST_MORE, Course
from ladderholdout.planning.decisions import DecisionPlan, plan_decisions
from ladderholdout.planning.plans import Plan, Way, plan, plot
from ladderholdout.planning.reserves import (
    FEWEST_ROWS,
    ReserveAdvice,
    Widths,
    reserve_advice,
)
from ladderholdout.planning.simulation import SimulatedSearch, simulated_searches
from ladderholdout.planning.widths import (
    MOST_ROWS,
    fixed_width,
    learning_width,
    reserve_width,
    rows_needed,
)

__all__ = [
    "FEWEST_ROWS",
    "MOST_MORE",
    "MOST_ROWS",
    "Course",
    "DecisionPlan",
    "Plan",
    "ReserveAdvice",
    "SimulatedSearch",
    "Way",
    "Widths",
    "fixed_width",
    "learning_width",
    "plan",
    "plan_decisions",
    "plot",
    "reserve_advice",
    "reserve_width",
    "rows_needed",
    "simulated_searches",
]
