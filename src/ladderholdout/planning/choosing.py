"""From the size of a holdout and of a search to a plan."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ladderholdout.certificates import (
    LadderTranscript,
    Transcript,
    certify,
    exact_upper,
    grid_of,
    reserve_log_count,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
)
from ladderholdout.mechanisms.arithmetic import inside, whole
from ladderholdout.planning.plans import Plan, Way
from ladderholdout.planning.simulation import Course, simulate
from ladderholdout.planning.widths import (
    fixed_width,
    learning_width,
    reserve_width,
    rows_needed,
)

# A budget is so many times what the busiest of the simulated searches took: it bounds what a
# search could take at worst, and is not meant to end it.
AMPLE = 2
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
# So many submissions are simulated for one rule, over all its searches and at most in each;
# but never fewer searches than these.
MOST_SIMULATED = 100_000
FEWEST = 3


def plan(
    *,
    n: int,
    submissions: int,
    width: float | None = None,
    risk: float = 0.1,
    confidence: float = 0.95,
    searches: int = 20,
    seed: int = 0,
) -> Plan:
    """Plan how a holdout is to be looked at, before anybody does.

    Parameters
    ----------
    n : int
        Number of examples in the holdout.
    submissions : int
        Number of models that will be submitted.
    width : float or None, default=None
        How far the true score may lie below the one that is shown, in (0, 1): the plan says
        which ways prove it, and how many rows the others need.
    risk : float, default=0.1
        The error rate expected of the winner, in (0, 1): certificates are narrower where
        models err less.
    confidence : float, default=0.95
        In (0, 1).
    searches : int, default=20
        Searches to simulate for each rule; fewer where there are many submissions, and of
        each no more than the first 100,000.
    seed : int, default=0
        Of the simulation.

    Returns
    -------
    Plan
        For submissions fixed in advance, for a search that learns, and for one with a
        reserve.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> found = plan(n=5000, submissions=1000, width=0.03)
    >>> found.fixed.rows_needed, found.most_releases, found.least_reserve
    (3088, 1, 0.13)
    >>> found.adaptive.settings()
    'mechanism=SimplifiedLadder(step=0.0004), reserve=0.5'
    """
    n, submissions = whole("n", n), whole("submissions", submissions)
    if n < 2:
        raise InvalidArgument("n", "a whole number of at least 2", n)
    width = None if width is None else inside("width", width)
    risk, confidence = inside("risk", risk), inside("confidence", confidence)
    searches = min(whole("searches", searches), max(FEWEST, MOST_SIMULATED // submissions))
    asked = _Question(n, submissions, width, risk, confidence, searches, seed)
    ways = _fixed(asked), _learning(asked), _reserved(asked)
    limits = _most_releases(asked, ways[1]), _least_reserve(asked)
    return Plan(n, submissions, width, risk, confidence, searches, *limits, *ways)


def rules(n: int) -> tuple[Mechanism, ...]:
    """Return the rules that a plan chooses from, for n examples."""
    root = math.sqrt(n)
    return (
        PricedLadder(),
        PricedLadder(weight=1.0),
        ParameterFreeLadder(),
        PairedTestLadder(alpha=0.05),
        PairedTestLadder(alpha=0.01),
        *(Ladder(_step(parts / root)) for parts in (0.25, 0.5, 1.0)),
        SimplifiedLadder(_step(1.0 / n)),
    )


def _step(step: float) -> float:
    """Return a step as people type it, in (0, 1]."""
    return min(float(f"{step:.2g}"), 1.0)


class _Means(NamedTuple):
    """What searches came to in the mean; scores."""

    true: float
    released: float
    certified: float
    releases: float


class _Option(NamedTuple):
    """Settings, the width that they prove, and what was simulated with them."""

    mechanism: Mechanism
    budget: int | None
    reserve: float
    width: float
    means: _Means


class _Question(NamedTuple):
    """What `plan` was asked."""

    n: int
    submissions: int
    width: float | None
    risk: float
    confidence: float
    searches: int
    seed: int

    def simulated(self, mechanism: Mechanism, n: int, learns: bool = True) -> tuple[Course, ...]:
        return simulate(
            mechanism,
            n,
            min(self.submissions, MOST_SIMULATED),
            self.risk,
            learns=learns,
            searches=self.searches,
            seed=self.seed,
        )

    def way(self, name: str, chosen: _Option, width_at: Callable[[int], float]) -> Way:
        needed = None if self.width is None else rows_needed(width_at, self.width)
        mechanism, budget, reserve, width, means = chosen
        return Way(name, mechanism, budget, reserve, width, needed, *means)


def _fixed(asked: _Question) -> Way:
    """Look at a grid: what is told during a batch is not paid for, so all is told."""

    def width_at(n: int) -> float:
        return fixed_width(n, asked.submissions, asked.risk, asked.confidence)

    rule = SimplifiedLadder(_step(1.0 / asked.n))
    ends: list[_Means] = []
    for course in asked.simulated(rule, asked.n, learns=False):
        transcript = Transcript(before=0, place=course.looks[-1], ladders=())
        ends.append(_end(asked, course, transcript, rule.step))
    chosen = _Option(rule, None, 0.0, width_at(asked.n), _mean(ends))
    return asked.way("fixed in advance", chosen, width_at)


def _learning(asked: _Question) -> Way:
    """Climb with a bound on the releases."""

    def width_at(mechanism: Mechanism, budget: int, n: int) -> float:
        return learning_width(n, asked.submissions, asked.risk, mechanism, budget, asked.confidence)

    options = []
    for rule in rules(asked.n):
        courses = asked.simulated(rule, asked.n)
        budget = AMPLE * max(len(course.looks) for course in courses)
        means = _mean([_certified(asked, rule, course) for course in courses])
        options.append(_Option(rule, budget, 0.0, width_at(rule, budget, asked.n), means))
    chosen = _best(options)
    assert chosen.budget is not None
    return asked.way("learning", chosen, partial(width_at, chosen.mechanism, chosen.budget))


def _reserved(asked: _Question) -> Way:
    """Climb on some of the rows, and look at the others once, at the end."""

    def width_at(share: float, n: int) -> float:
        return reserve_width(_kept(n, share), asked.risk, asked.confidence)

    options = []
    for share in SHARES:
        rows = _kept(asked.n, share)
        for rule in rules(asked.n - rows):
            courses = asked.simulated(rule, asked.n - rows)
            ends = [_checked(asked, course, rows) for course in courses]
            options.append(_Option(rule, None, share, width_at(share, asked.n), _mean(ends)))
    chosen = _best(options)
    return asked.way("learning, with a reserve", chosen, partial(width_at, chosen.reserve))


def _best(options: Sequence[_Option]) -> _Option:
    return max(options, key=lambda option: option.means.certified)


def _most_releases(asked: _Question, way: Way) -> int | None:
    """Return the largest budget that proves the width asked for, with this way's rule."""
    if asked.width is None:
        return None

    def proves(budget: int) -> bool:
        width = learning_width(
            asked.n, asked.submissions, asked.risk, way.mechanism, budget, asked.confidence
        )
        return width <= goal

    goal = asked.width
    # Each release costs its part, so the first budget that fails is followed by no other.
    budgets = range(1, asked.submissions + 1)
    return bisect_left(budgets, True, key=lambda budget: not proves(budget))


def _least_reserve(asked: _Question) -> float | None:
    """Return the smallest share, in whole percents, that proves the width asked for."""
    if asked.width is None:
        return None
    shares = [percents / 100.0 for percents in range(1, 100)]
    rows = {share: _kept(asked.n, share) for share in shares}
    proving = (
        share
        for share in shares
        if rows[share] < asked.n
        and reserve_width(rows[share], asked.risk, asked.confidence) <= asked.width
    )
    return next(proving, None)


def _kept(n: int, share: float) -> int:
    return max(1, round(share * n))


def _certified(asked: _Question, mechanism: Mechanism, course: Course) -> _Means:
    """Certify the last release by all that was told before it."""
    before = course.looks[-1] - 1
    grid = grid_of(mechanism, asked.n, binary=True)
    assert grid is not None
    step = mechanism.resolution(asked.n)
    values = tuple(round(risk / step) for risk in course.released[:-1])
    ladder = LadderTranscript(before, course.looks[:-1], values, grid.n_values)
    return _end(asked, course, Transcript(before, 1, (ladder,) if before else ()), step)


def _end(asked: _Question, course: Course, transcript: Transcript, step: float) -> _Means:
    released, true = course.released[-1], course.true[-1]
    certificate = certify(released, asked.n, transcript, confidence=asked.confidence, rounding=step)
    return _Means(1.0 - true, 1.0 - released, 1.0 - certificate.high, len(course.looks))


def _checked(asked: _Question, course: Course, rows: int) -> _Means:
    """Look at the reserve once, where the winner errs as often as it truly does."""
    true = course.true[-1]
    errors = math.floor(true * rows + 0.5)
    log_level = math.log((1.0 - asked.confidence) / 2.0) - reserve_log_count(1, rows + 1)
    high = exact_upper(errors, rows, log_level)
    return _Means(1.0 - true, 1.0 - errors / rows, 1.0 - high, len(course.looks))


def _mean(ends: Sequence[_Means]) -> _Means:
    return _Means(*np.mean(ends, axis=0).tolist())
