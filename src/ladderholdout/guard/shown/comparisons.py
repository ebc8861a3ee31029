"""`Comparison`: by how much one model is better than another."""

from __future__ import annotations

from dataclasses import dataclass

from ladderholdout.guard.shown.score_certificate import html_table, interval


@dataclass(frozen=True, slots=True)
class Comparison:
    """An interval for the true score of one model less that of another, on record.

    Attributes
    ----------
    first, second : int or None
        The numbers of the submissions that were compared; None for predictions.
    low, high : float
        Ends of the interval, in the metric's own units; greater is better for the first.
    confidence : float
        At least this is the chance that all comparisons of the holdout hold together.
    bound : str
        The inequality behind it.
    log_count : float
        The price of what was shown before it was asked for, in nats.
    log_values : float
        What later certificates pay for it, in nats.
    assumptions : tuple of str
        What must be true; where it is not, the interval is void.
    clipping : str
        At what errors of both models were clipped, if they were: then the interval is for the
        difference of the scores with errors clipped so.

    Examples
    --------
    >>> comparison = Comparison(3, 1, 0.012, 0.048, 0.95, "trinomial", 0.22, 9.1, ())
    >>> comparison.better, comparison.line()
    ('first', 'submission 3 less submission 1: 0.0120 to 0.0480 (95 %, trinomial)')
    """

    first: int | None
    second: int | None
    low: float
    high: float
    confidence: float
    bound: str
    log_count: float
    log_values: float
    assumptions: tuple[str, ...]
    clipping: str = ""

    @property
    def better(self) -> str | None:
        """Which one is better: "first", "second", or None where the interval does not show it."""
        if self.low > 0.0:
            return "first"
        return "second" if self.high < 0.0 else None

    def line(self) -> str:
        """Return it in a line.

        Examples
        --------
        >>> Comparison(None, 1, -0.01, 0.02, 0.95, "bets", 0.0, 9.1, ()).line()
        'first less submission 1: -0.0100 to 0.0200 (95 %, bets)'
        """
        names = [
            what if number is None else f"submission {number}"
            for what, number in (("first", self.first), ("second", self.second))
        ]
        ends = interval(self.low, self.high)
        what = f"{names[0]} less {names[1]}" + (f", with {self.clipping}" if self.clipping else "")
        return f"{what}: {ends} ({100 * self.confidence:g} %, {self.bound})"

    def __str__(self) -> str:
        which = {
            "first": "The first is better.",
            "second": "The second is better.",
            None: "They are not shown to differ.",
        }[self.better]
        assumed = (f"- {assumption}" for assumption in self.assumptions)
        return "\n".join([f"{self.line()}. {which}", *assumed])

    def _repr_html_(self) -> str:
        return html_table([("comparison", self.line()), ("better", self.better or "not shown")])
