"""Simulated searches on planned holdouts: what a ladder would release, and what is true.

A candidate is known by its distance from the optimum of a bowl in five dimensions, from which
its true risk follows. It differs from another model by mending some of that one's errors and
making new ones, on rows of its own. So counts of rows are all that is drawn, and a search on
a million rows is as quick as one on a hundred. The rules that decide are the real ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import flag, inside, seed_sequence, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import Evidence, Mechanism
from ladderholdout.mechanisms.base import a_mechanism

# The bowl: the first model's risk and that of the optimum, in units of the risk expected.
START, OPTIMUM = 1.5, 0.75
DIMENSION = 5
# How far a climb's proposals go; the first model is one away from the optimum.
NEAREST, FARTHEST = 0.03, 0.5
# Rows on which two models differ, beyond those that make up their difference, over the
# errors of one: near models, and those that are one apart.
LEAST_CHANGE, MORE_CHANGE = 0.3, 0.4
# Candidates that are drawn at a time.
BLOCK = 256

Floats = NDArray[np.float64]


class SimulatedSearch(NamedTuple):
    """The releases of one simulated search.

    Attributes
    ----------
    improved : tuple of int
        Which submissions improved, from 1.
    released : tuple of float
        The risk that was released for each of them.
    true : tuple of float
        The true risk of each.

    Examples
    --------
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> search = simulated_searches(ParameterFreeLadder(), 5000, 100, 0.05, searches=1)[0]
    >>> search.improved[0], len(search.released)
    (1, 9)
    """

    improved: tuple[int, ...]
    released: tuple[float, ...]
    true: tuple[float, ...]


def simulated_searches(
    mechanism: Mechanism,
    n: int,
    submissions: int,
    risk: float,
    *,
    learns: bool = True,
    finalists: int | None = None,
    searches: int = 20,
    seed: int = 0,
) -> tuple[SimulatedSearch, ...]:
    """Simulate searches for a model with 0/1 losses.

    Parameters
    ----------
    mechanism : Mechanism
        A rule which releases what is below the released risk, without noise.
    n, submissions : int
        Numbers of examples and of submissions.
    risk : float
        About where a good search ends, in (0, 1).
    learns : bool, default=True
        Whether each candidate is a change to the incumbent (a climb), or all are drawn
        independently before the first answer (a grid).
    finalists : int, optional
        Of a grid, so many models query the holdout, those with the best inner scores, the best
        first. The inner score of a model counts its errors on n rows that are drawn for it
        alone: as on a training set as large as the holdout, but with models that do not share
        their noise, so that the order is more doubtful than that of a cross-validation on as
        many rows. By default all query it, in the order in which they are drawn.
    searches : int, default=20
        How many.
    seed : int, default=0
        Of the random numbers; the same seed gives the same searches.

    Returns
    -------
    tuple of SimulatedSearch
        One for each search.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> search = simulated_searches(ParameterFreeLadder(), 5000, 1000, 0.05, searches=1)[0]
    >>> search.improved[0], search.released[-1] < search.true[-1] < search.true[0]
    (1, True)
    """
    n, submissions = whole("n", n), whole("submissions", submissions)
    flag("learns", learns)
    if a_mechanism(mechanism).discloses or mechanism.redraws or mechanism.resolution(n) == 0.0:
        raise InvalidArgument("mechanism", "a ladder without noise", mechanism.name)
    risk = inside("risk", risk)
    if finalists is not None:
        finalists = min(whole("finalists", finalists), submissions)
        if learns:
            raise InvalidArgument("finalists", "left out for a search that learns", finalists)
    simulated = []
    for child in seed_sequence(seed).spawn(whole("searches", searches)):
        field = _Field(n, risk, learns, np.random.default_rng(child))
        if finalists is not None:
            field.choose(submissions, finalists)
        simulated.append(_search(field, mechanism, finalists or submissions))
    return tuple(simulated)


class _Candidates(NamedTuple):
    """Models drawn together; against the incumbent each mends some rows and breaks some."""

    radius: Floats
    true: Floats
    errors: Floats
    differing: Floats
    mended: NDArray[np.int64]
    broken: NDArray[np.int64]


@dataclass
class _Field:
    """A holdout, a model that candidates are changes of, and the incumbent."""

    n: int
    risk: float
    learns: bool
    rng: np.random.Generator
    radius: float = 1.0  # squared distance of the base from the optimum
    base: float = field(init=False)  # its true risk
    errors: int = field(init=False)  # its errors on the holdout
    # Of the incumbent, against the base.
    mended: int = 0
    broken: int = 0
    # Squared distances of the finalists from the optimum, where there are some.
    finalists: Floats | None = None

    def __post_init__(self) -> None:
        # Of a large risk no multiple is taken, so that the first model is not always wrong.
        self.base = min(START * self.risk, (1.0 + self.risk) / 2.0)
        self.height = self.base - OPTIMUM * self.risk
        self.errors = int(self.rng.binomial(self.n, self.base))

    def choose(self, submissions: int, finalists: int) -> None:
        """Draw a grid, and make the models with the best inner scores the only candidates."""
        radius, distance = self._anywhere(submissions)
        inner = self.rng.binomial(self.n, self._true(*self._changes(radius, distance)))
        self.finalists = radius[np.argsort(inner, kind="stable")[:finalists]]

    def _changes(self, radius: Floats, distance: Floats) -> tuple[Floats, Floats]:
        """Return the chances that a candidate mends an error of the base, and makes a new one."""
        gain = self.height * (self.radius - radius)
        changed = np.abs(gain) + self.base * (LEAST_CHANGE + MORE_CHANGE * np.minimum(distance, 1))
        mends = np.clip((changed + gain) / (2.0 * self.base), 0.0, 1.0)
        return mends, np.clip((changed - gain) / (2.0 * (1.0 - self.base)), 0.0, 1.0)

    def _true(self, mends: Floats, breaks: Floats) -> Floats:
        return self.base * (1.0 - mends) + (1.0 - self.base) * breaks

    def draw(self, done: int, count: int) -> _Candidates:
        """Draw the next candidates, after so many that were rejected or taken."""
        radius, distance = self._near(count) if self.learns else self._anywhere(count, done)
        mends, breaks = self._changes(radius, distance)
        # Rows on which the incumbent differs from the base are drawn apart from the others: it
        # shows on how many rows the candidate differs from the incumbent.
        binomial, right = self.rng.binomial, self.n - self.errors
        as_mended = binomial(self.mended, mends)
        else_mended = binomial(self.errors - self.mended, mends)
        as_broken = binomial(self.broken, breaks)
        else_broken = binomial(right - self.broken, breaks)
        mended, broken = as_mended + else_mended, as_broken + else_broken
        differing = self.mended - as_mended + else_mended + self.broken - as_broken + else_broken
        true = self._true(mends, breaks)
        errors = self.errors - mended + broken
        return _Candidates(
            radius, true, errors.astype(np.float64), differing.astype(np.float64), mended, broken
        )

    def take(self, drawn: _Candidates, i: int) -> None:
        """Make a candidate the incumbent; who learns goes on from there."""
        self.mended, self.broken = int(drawn.mended[i]), int(drawn.broken[i])
        if self.learns:
            self.radius, self.base = float(drawn.radius[i]), float(drawn.true[i])
            self.errors, self.mended, self.broken = int(drawn.errors[i]), 0, 0

    def _near(self, count: int) -> tuple[Floats, Floats]:
        step = np.exp(self.rng.uniform(math.log(NEAREST), math.log(FARTHEST), count))
        along = self.rng.standard_normal(count)
        length = along**2 + self.rng.chisquare(DIMENSION - 1, count)
        radius = self.radius + 2.0 * step * along * math.sqrt(self.radius) + step**2 * length
        return radius, step * np.sqrt(length)

    def _anywhere(self, count: int, done: int = 0) -> tuple[Floats, Floats]:
        if self.finalists is not None:
            return self.finalists[done : done + count], np.ones(count)
        return self.rng.chisquare(DIMENSION, count) / DIMENSION, np.ones(count)


def _search(field: _Field, mechanism: Mechanism, submissions: int) -> SimulatedSearch:
    state = mechanism.start(field.n)
    releases: list[tuple[int, float, float]] = []
    incumbent = math.inf
    done = 0
    while done < submissions:
        drawn = field.draw(done, min(BLOCK, submissions - done))
        # No rule that is simulated here releases a risk that is not below the last one.
        for i in np.flatnonzero(drawn.errors < state.standing * field.n + 0.5).tolist():
            evidence = _evidence(field.n, drawn, i, incumbent)
            state, outcome = mechanism.decide(state, evidence, field.rng)
            if outcome.improved:
                incumbent = float(drawn.errors[i])
                releases.append((done + i + 1, outcome.risk, float(drawn.true[i])))
                field.take(drawn, i)
                done += i + 1
                break
        else:
            done += len(drawn.errors)
    return SimulatedSearch(*zip(*releases, strict=True))


def _evidence(n: int, drawn: _Candidates, i: int, incumbent: float) -> Evidence:
    risk = float(drawn.errors[i]) / n
    if math.isinf(incumbent):
        return Evidence(risk)
    if n == 1:
        return Evidence(risk, spread=math.inf)
    # The losses' differences are -1, 0 and 1.
    mean = risk - incumbent / n
    variance = max(float(drawn.differing[i]) / n - mean * mean, 0.0) * n / (n - 1)
    return Evidence(risk, math.sqrt(variance / n))
