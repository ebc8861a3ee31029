"""How certificates become wider while a holdout is used, forecast from what was released."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ladderholdout.certificates.codes import event_length
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.planning.widths import rows_needed

MOST_MORE = 1000
"""So many more improvements are forecast at most."""


@dataclass(frozen=True, slots=True)
class Course:
    """What was released of the rows of a holdout so far, as far as the width depends on it.

    The forecast (docs/background/fresh_rows.md, what is forecast) takes for granted that what is to
    come is like what was: each improvement costs what the mean one has cost, divides the risk by
    what the mean one has divided it by, and takes as many queries.

    Parameters
    ----------
    width : float
        Of the certificate of now, from its lower to its upper end.
    price : float
        What that certificate pays for, in nats.
    confidence : float
    n : int
        Rows that are measured.
    queries, improvements : int
        Submissions so far, and how many of them improved; 1 at least.
    risk, first_risk : float or None
        Share of errors that was released last, and first, where each loss is 0 or 1; None for
        other metrics, whose widths follow the price and the number of rows alone.

    Examples
    --------
    Seven improvements in 100 queries of 1,000 rows, from 300 errors to 200:

    >>> course = Course(0.225, 40.0, 0.95, 1000, 100, 7, 0.2, 0.3)
    >>> round(course.width_after(5), 3), course.queries_until(0.25)
    (0.264, 43)
    >>> course.fresh_rows(0.05), course.rows_for_such_use(0.25)
    (1115, 805)
    """

    width: float
    price: float
    confidence: float
    n: int
    queries: int
    improvements: int
    risk: float | None = None
    first_risk: float | None = None

    def width_after(self, more: int) -> float | None:
        """Return the width after more improvements; None after fewer than two, which show none."""
        if self.improvements < 2:
            return None
        steps = self.improvements - 1
        price = self.price + more * max(0.0, self.price - event_length(1)) / steps
        risk = self.risk
        if risk is not None and self.first_risk is not None and 0.0 < risk < self.first_risk:
            risk *= (risk / self.first_risk) ** (more / steps)
        return self._width_with(price, self.n, risk)

    def queries_until(self, width: float) -> int | None:
        """Return after how many more queries certificates are wider than this; 0 where they are.

        None where `MOST_MORE` improvements more do not make them so, or nothing is known of them.
        """
        if self.width > width:
            return 0
        for more in range(1, MOST_MORE + 1):
            after = self.width_after(more)
            if after is None:
                return None
            if after > width:
                return math.ceil(more * self.queries / self.improvements)
        return None

    def fresh_rows(self, width: float) -> int | None:
        """Return on how many fresh rows the first certificate of such a score is no wider."""
        return self._rows(event_length(1), width)

    def rows_for_such_use(self, width: float) -> int | None:
        """Return on how many fresh rows it is no wider after as much use as these have had."""
        return self._rows(self.price, width)

    def _rows(self, price: float, width: float) -> int | None:
        """Return from how many rows on a width is no larger; both as shares of twice that."""
        scale = 2.0 * width
        return rows_needed(lambda n: self._width_with(price, n, self.risk) / scale, 0.5)

    def _width_with(self, price: float, n: int, risk: float | None) -> float:
        """Return the width at another price, number of rows and risk, by its ratio to that now."""
        here = self._model(self.price, self.n, self.risk)
        return self.width * self._model(price, n, risk) / here

    def _model(self, price: float, n: int, risk: float | None) -> float:
        """Return a width up to a factor: exact limits of counts, else by the square root."""
        log_level = math.log((1.0 - self.confidence) / 2.0) - price
        if risk is None:
            return math.sqrt(-log_level / n)
        errors = min(max(round(risk * n), 0), n)
        return exact_upper(errors, n, log_level) - exact_lower(errors, n, log_level)
