"""`Health`: how used up a holdout is, and what would restore it, as people are shown it."""

from __future__ import annotations

from dataclasses import dataclass

from ladderholdout.errors import printable
from ladderholdout.guard.shown.of_metrics import OfMetrics
from ladderholdout.guard.shown.score_certificate import html_table


@dataclass(frozen=True, slots=True, repr=False)
class Health(OfMetrics):
    """How wide the certificate of a holdout is, and how wide it becomes with further use.

    It is worked out from what was released alone. Forecasts assume that what is to come is like
    what was (`planning.course`); None where there is nothing to forecast from.

    Attributes
    ----------
    name : str
    block : int
        Which block of rows of the holdout it is about.
    n, submissions, improvements : int
        Rows that the ladders measure, submissions to this ladder, and how many of them improved.
    width : float or None
        Of the certificate of now, from its lower to its upper end; None where there is none.
    price : float or None
        What that certificate pays for, in nats.
    more : int
        How many more improvements `width_after` counts.
    width_after : float or None
        The width after that many more improvements like those so far.
    spent_at : float or None
        The width from which on the owner takes the rows for used up; None where none was stated.
    spent : bool or None
        Whether the certificate is wider than that.
    queries_left : int or None
        After how many more queries like those so far it will be; None also where no end is in
        sight.
    fresh_rows : int or None
        On how many fresh rows the first certificate of such a score is no wider than `spent_at`.
    rows_for_such_use : int or None
        On how many fresh rows it would still be no wider after as much use as these rows have had.
    reason : str
        Why there is no width, or no forecast; else empty.

    Examples
    --------
    >>> Health("coins", 1, 500, 9, 3, 0.1, 12.0, 5, 0.13, 0.12, False, 6, 340, 720).lines()[:2]
    [('width now', '0.1 (12.0 nats, block 1)'), ('width then', '0.13 after 5 more improvements')]
    """

    name: str
    block: int
    n: int
    submissions: int
    improvements: int
    width: float | None
    price: float | None
    more: int
    width_after: float | None
    spent_at: float | None = None
    spent: bool | None = None
    queries_left: int | None = None
    fresh_rows: int | None = None
    rows_for_such_use: int | None = None
    reason: str = ""

    def lines(self) -> list[tuple[str, str]]:
        """Return it as (what, value) pairs, for printing."""
        if self.by_metric:
            return [
                (f"{what} ({printable(metric)})", value)
                for metric, health in self.by_metric.items()
                for what, value in health.lines()
            ]
        if self.width is None:
            return [("width now", f"none: {self.reason}")]
        lines = [("width now", f"{self.width:.3g} ({self.price:.1f} nats, block {self.block})")]
        if self.width_after is not None:
            then = f"{self.width_after:.3g} after {self.more} more improvements"
            lines.append(("width then", then))
        if self.reason:
            lines.append(("forecast", f"none: {self.reason}"))
        if self.spent_at is not None:
            lines += self._lines_of_rule()
        return lines

    def _lines_of_rule(self) -> list[tuple[str, str]]:
        """Return the lines about the width from which on the rows are used up."""
        state = "yes, it is wider" if self.spent else "no"
        if not self.spent and self.queries_left is not None:
            state += f", in about {self.queries_left} queries"
        elif not self.spent and not self.reason:
            state += ", and no end is in sight"
        lines = [(f"spent at {self.spent_at:g}", state)]
        if self.fresh_rows is not None:
            rows = f"{self.fresh_rows} for the first certificate"
            if self.rows_for_such_use is not None:
                rows += f", {self.rows_for_such_use} for as much use as these have had"
            lines.append(("fresh rows", rows))
        return lines

    def __str__(self) -> str:
        return printable("\n".join(f"{what:<18}{value}" for what, value in self.lines()))

    def _repr_html_(self) -> str:
        return html_table(self.lines())
