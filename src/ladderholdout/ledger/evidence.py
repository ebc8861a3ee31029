"""What was measured on a reserve, and what of it is shown; `verify` works it out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ladderholdout.certificates import finals, reserve_intervals
from ladderholdout.ledger.events import FinalsHeld, Json, ReserveQueried, adapter


@dataclass(frozen=True, slots=True)
class ReserveEvidence:
    """What was measured on the reserve, which is raw, and what can be shown of it.

    Attributes
    ----------
    grid : ReserveGrid
    risk : float or None
        None where the metric has no value for these predictions there.
    low, high : float or None
        Ends of an interval that was drawn, or that its rows gave; None where one follows from the
        risk.
    bound : str
        The inequality behind ends that the rows gave, which are as they are shown; else empty.
    confidence : float or None
        At which the rows gave them.
    price_of_ends : float
        What it costs to show them, in nats.
    clipped : tuple of (int, float) or None
        How many rows they clip to the stated range, and what share of the score these are.
    """

    grid: reserve_intervals.ReserveGrid
    risk: float | None = field(repr=False)
    low: float | None = field(default=None, repr=False)
    high: float | None = field(default=None, repr=False)
    bound: str = ""
    confidence: float | None = None
    price_of_ends: float = 0.0
    clipped: tuple[int, float] | None = None

    def shown(self) -> tuple[float | None, float | None, float | None]:
        """Return low end, risk and high end as they may be shown: on the grid."""
        if self.risk is None:
            return None, None, None
        risk = self.grid.nearest(self.risk)
        if self.low is None or self.high is None:
            return None, risk, None
        low, high = self.low, self.high
        if not self.bound:
            low, high = self.grid.below(low), self.grid.above(high)
        if self.clipped is not None:
            # Of another number than the risk, which may lie beside it.
            return low, risk, high
        return min(low, risk), risk, max(high, risk)

    def price(self) -> float:
        """Return what later queries pay for what is shown, in nats."""
        return self.grid.price(self.shown()[1]) + self.price_of_ends

    @classmethod
    def of(cls, query: ReserveQueried) -> ReserveEvidence:
        """Return what a query measured."""
        found: ReserveEvidence = adapter(cls).validate_python(query.evidence)  # type: ignore[arg-type]
        return found

    def agrees(self, query: ReserveQueried, released: float | None) -> bool:
        """Return whether a query showed what follows from this, of this released risk."""
        shown = query.low, query.risk, query.high, query.log_values
        fits = self.grid.query == query.number and self.grid.released in (None, released)
        return fits and shown == (*self.shown(), self.price())


def of_finals(evidence: finals.FinalsEvidence) -> Json:
    """Return what finals measured as plain numbers: their grids differ in the released risk."""
    measured = asdict(evidence)
    released = [grid["released"] for grid in measured["grids"]]
    return {"grid": {**measured.pop("grids")[0], "released": None}, "released": released} | measured


def finals_evidence(stored: Mapping[str, Any]) -> finals.FinalsEvidence:
    """Return what finals measured."""
    measured = dict(stored)
    grid, released = measured.pop("grid"), measured.pop("released")
    measured["grids"] = [{**grid, "released": risk} for risk in released]
    evidence: finals.FinalsEvidence = adapter(finals.FinalsEvidence).validate_python(measured)
    return evidence


def finals_shown(shown: finals.FinalsShown) -> Json:
    """Return what finals showed as plain numbers."""
    return {
        "risks": list(shown.risks),
        "lows": list(shown.lows),
        "highs": list(shown.highs),
        "better": [np.flatnonzero(row).tolist() for row in shown.better],
        "log_values": shown.log_values,
    }


def shown_of(held: FinalsHeld) -> finals.FinalsShown:
    """Return what finals showed."""
    shown, count = held.shown, len(held.entries)
    better = np.zeros((count, count), dtype=bool)
    for place, beaten in enumerate(shown["better"]):
        better[place, beaten] = True
    risks, lows, highs = (tuple(shown[name]) for name in ("risks", "lows", "highs"))
    return finals.FinalsShown(risks, lows, highs, better, float(shown["log_values"]))
