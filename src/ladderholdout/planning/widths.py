"""How wide certificates can be at most, before any search, and how many rows make them so."""

from __future__ import annotations

import math
from collections.abc import Callable

from ladderholdout.arguments import choice, function, inside, whole
from ladderholdout.certificates.codes import event_length, worst_log_count
from ladderholdout.certificates.reserve_intervals import reserve_log_count
from ladderholdout.certificates.transcript import Transcript, grid_of
from ladderholdout.errors import InvalidArgument
from ladderholdout.limits.intervals import exact_upper
from ladderholdout.mechanisms import Mechanism
from ladderholdout.mechanisms.base import a_mechanism
from ladderholdout.mechanisms.rules import SHOWN

# No plan is made for more rows.
MOST_ROWS = 10**8
# A count of errors within this of a whole number is that number.
_NOISE = 1e-6


def fixed_width(
    n: int, submissions: int, risk: float, confidence: float = 0.95, *, announced: bool = False
) -> float:
    """Return the width for submissions that were all fixed before the first answer.

    Parameters
    ----------
    n, submissions : int
        Numbers of examples, and of submissions in the batch.
    risk : float
        The released risk, in (0, 1).
    confidence : float, default=0.95
        In (0, 1).
    announced : bool, default=False
        Whether the ledger has the size of the batch from before its first query, as
        `LadderHoldout.guard`, `finalists` and `batch` have it recorded; a search that
        scikit-learn drives announces none.

    Returns
    -------
    float
        Distance from the released risk to the upper end of the certificate, for 0/1 losses
        and the last of the batch.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(fixed_width(5000, 1000, 0.05), 3)
    0.017
    >>> round(fixed_width(5000, 20, 0.05, announced=True), 3)
    0.01
    """
    submissions = whole("submissions", submissions)
    place, size = (1, submissions) if announced else (submissions, None)
    price = Transcript(0, place, (), size=size, event=1).log_count()
    return _width(n, risk, price, confidence)


def learning_width(
    n: int,
    submissions: int,
    risk: float,
    mechanism: Mechanism,
    budget: int,
    confidence: float = 0.95,
    show: str = SHOWN[0],
) -> float:
    """Return the largest width where each answer may steer the next submission.

    It holds whichever submissions improve and whatever values are released, where there are
    ``budget`` releases; fewer cost less as long as those are few beside the submissions and the
    values of the grid. Where improvements alone are shown, one score is requested, the last.

    Parameters
    ----------
    n, submissions : int
        Numbers of examples and of submissions.
    risk : float
        The released risk, in (0, 1).
    mechanism : Mechanism
        A ladder without noise.
    budget : int
        Releases in all. The last one pays for those before it.
    confidence : float, default=0.95
        In (0, 1).
    show : {"scores", "improvements"}, default="scores"
        What answers have, as for `LadderHoldout`.

    Returns
    -------
    float
        Distance from the released risk to the upper end of the certificate, for 0/1 losses.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> [round(learning_width(5000, 1000, 0.05, ParameterFreeLadder(), j), 3) for j in (1, 2, 9)]
    [0.007, 0.024, 0.064]
    """
    n, submissions = whole("n", n), whole("submissions", submissions)
    before = min(whole("budget", budget), submissions) - 1
    grid = grid_of(a_mechanism(mechanism), n, binary=True)
    if grid is None or not grid.falling:
        raise InvalidArgument("mechanism", "a ladder without noise", mechanism.name)
    # With nothing released before it, the incumbent is the first submission.
    shows_scores = choice("show", show, SHOWN) == SHOWN[0]
    n_values = grid.n_values if shows_scores else None
    price = worst_log_count(submissions - 1 if before else 0, before, n_values)
    if not shows_scores:
        # The first request, and not the event, whatever its number; each code has half of the
        # chance.
        flags = price - event_length(before + 1) if before else 0.0
        price = flags + event_length(1) + math.log(2.0)
    step = mechanism.resolution(n)
    # Releases that are whole errors are not rounded.
    return _width(n, risk, price, confidence, step if step * n > 1.0 + _NOISE else 0.0)


def reserve_width(rows: int, risk: float, confidence: float = 0.95) -> float:
    """Return the width of the first query of a reserve.

    Parameters
    ----------
    rows : int
        Rows of the reserve.
    risk : float
        The risk found there, in (0, 1).
    confidence : float, default=0.95
        In (0, 1).

    Returns
    -------
    float
        Distance from the risk to the upper end of the interval, for 0/1 losses.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> round(reserve_width(1000, 0.05), 3)
    0.018
    """
    rows = whole("rows", rows)
    return _width(rows, risk, reserve_log_count(1), confidence)


def rows_needed(width_at: Callable[[int], float], width: float) -> int | None:
    """Return from how many rows on a width is proved.

    Parameters
    ----------
    width_at : callable
        Returns the width at a number of rows; it falls with them, up to the grain of whole
        errors.
    width : float
        The width asked for, in (0, 1).

    Returns
    -------
    int or None
        By bisection; None where `MOST_ROWS` do not do.

    Raises
    ------
    InvalidArgument
        If the width is outside (0, 1).

    Examples
    --------
    >>> rows_needed(lambda n: fixed_width(n, 1000, 0.05), 0.03)
    1813
    """
    width = inside("width", width)
    function("width_at", width_at, "a function of a number of rows")
    few, enough = 0, 1
    while width_at(enough) > width:
        if enough >= MOST_ROWS:
            return None
        few, enough = enough, min(2 * enough, MOST_ROWS)
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if width_at(middle) <= width else (middle, enough)
    return enough


def _width(n: int, risk: float, price: float, confidence: float, rounding: float = 0.0) -> float:
    n, risk = whole("n", n), inside("risk", risk)
    errors = min(math.floor((risk + rounding / 2.0) * n + _NOISE), n)
    log_level = math.log((1.0 - inside("confidence", confidence)) / 2.0) - price
    # What is not rounded to a step is a whole number of errors, so the risk itself may not be.
    released = risk if rounding else errors / n
    return exact_upper(errors, n, log_level) - released
