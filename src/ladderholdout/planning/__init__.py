"""Planning: how to use a holdout, before any submission. Pure functions.

>>> from ladderholdout.planning import plan
>>> advice = plan(n=5000, submissions=1000, width=0.03)
>>> advice.fixed.within(0.03), advice.learning.within(0.03)
(True, False)
"""

from __future__ import annotations

from ladderholdout.planning.decisions import DecisionPlan, plan_decisions
from ladderholdout.planning.plans import Plan, Way, plan, plot
from ladderholdout.planning.reserves import ReserveAdvice, reserve_advice
from ladderholdout.planning.widths import fixed_width, learning_width, reserve_width, rows_needed

__all__ = [
    "DecisionPlan",
    "Plan",
    "ReserveAdvice",
    "Way",
    "fixed_width",
    "learning_width",
    "plan",
    "plan_decisions",
    "plot",
    "reserve_advice",
    "reserve_width",
    "rows_needed",
]
