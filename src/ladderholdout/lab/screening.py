"""Attacks that choose among features that have nothing to do with the response."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import flag, inside
from ladderholdout.lab.analyst import Analyst, Answers, Floats, Play, Problem, Seen, Submissions
from ladderholdout.lab.bits import Flags

Places = NDArray[np.intp]
# Its square, a quarter, is the risk of whoever knows nothing: as for coin flips.
DEVIATION = 0.5


class Linear(NamedTuple):
    """A linear model without intercept, in each repetition.

    Attributes
    ----------
    features : ndarray of int of shape (R, k)
        What goes into it; a feature that is named twice counts once.
    coefficients : ndarray of shape (R, k)
    """

    features: Places
    coefficients: Floats


@dataclass(frozen=True)
class Known:
    """What an analyst knows: features, and the training rows' responses, both of mean 0.

    Parameters
    ----------
    train : ndarray of shape (m, p)
        Features of the training rows.
    responses : ndarray of shape (R, m)
        Responses of the training rows, in each repetition.
    holdout : ndarray of shape (n, p)
        Features of the holdout.
    """

    train: Floats
    responses: Floats
    holdout: Floats

    @cached_property
    def _products(self) -> tuple[Floats, Floats]:
        return self.train.T @ self.train, self.responses @ self.train

    def fit(self, features: Places) -> Linear:
        """Fit least squares on a few features, (R, k).

        Examples
        --------
        >>> train, responses = np.array([[1.0, 0.0], [-1.0, 1.0]]), np.array([[3.0, -3.0]])
        >>> known = Known(train, responses, train)
        >>> linear = known.fit(np.array([[0]]))
        >>> linear.coefficients.tolist(), known.predict(linear).tolist()
        ([[3.0]], [[3.0, -3.0]])
        """
        squares, products = self._products
        among = squares[features[:, :, None], features[:, None, :]]
        chosen_products = np.take_along_axis(products, features, axis=1)
        inverses = np.linalg.pinv(among, rcond=1e-10, hermitian=True)
        return Linear(features, np.einsum("rij,rj->ri", inverses, chosen_products))

    def predict(self, linear: Linear) -> Floats:
        """Return predictions (R, n) for the holdout."""
        columns = self.holdout.T[linear.features]
        return np.asarray(np.einsum("rk,rkn->rn", linear.coefficients, columns))


@dataclass(frozen=True, slots=True, eq=False)
class PureNoise(Problem):
    """A regression in which no feature helps: normal responses, independent of the features.

    The features are the same in all repetitions, the responses are not. The loss is the
    squared error.

    Parameters
    ----------
    known : Known
        The side that the analyst sees.
    responses : ndarray of shape (R, n)
        Responses of the holdout.
    correlation : float
        Correlation of neighbouring features, all of variance 1; that of others is a power of it.

    Examples
    --------
    >>> problem = PureNoise.drawn(n=50, repetitions=3, p=20, correlation=0.5,
    ...                           rng=np.random.default_rng(0))
    >>> problem.seen.known.holdout.shape
    (50, 20)
    >>> nothing = Linear(np.zeros((3, 1), dtype=np.intp), np.zeros((3, 1)))
    >>> problem.true_risk(Submissions(np.zeros((3, 50)), model=nothing)).tolist()
    [0.25, 0.25, 0.25]
    """

    known: Known
    responses: Floats
    correlation: float

    @property
    def seen(self) -> Seen:
        """The features, and the training rows."""
        repetitions, n = self.responses.shape
        return Seen(n, repetitions, self.known)

    @classmethod
    def drawn(
        cls, n: int, repetitions: int, p: int, correlation: float, rng: np.random.Generator
    ) -> PureNoise:
        """Draw a problem with p features, and as many training rows as the holdout has."""
        features = rng.standard_normal((2 * n, p))
        for j in range(1, p):
            fresh = np.sqrt(1.0 - correlation**2) * features[:, j]
            features[:, j] = correlation * features[:, j - 1] + fresh
        responses = DEVIATION * rng.standard_normal((repetitions, 2 * n))
        known = Known(features[:n], responses[:, :n], features[n:])
        return cls(known, responses[:, n:], correlation)

    def losses(self, submission: Submissions) -> Floats:
        """Return squared errors; see `Problem.losses`."""
        return np.asarray((submission.predictions - self.responses) ** 2)

    def true_risk(self, submission: Submissions) -> Floats:
        """Return the variance of the response, and of what the model adds to it."""
        features, coefficients = submission.model
        distances = np.abs(features[:, :, None] - features[:, None, :])
        covariances = float(self.correlation) ** distances
        added = np.einsum("ri,rij,rj->r", coefficients, covariances, coefficients)
        return np.asarray(DEVIATION**2 + added)


@dataclass(frozen=True, slots=True)
class _Screening(Analyst):
    """What both attacks are made for: features, neighbours correlated, that are pure noise."""

    metric: ClassVar[str] = "neg_mean_squared_error"

    features: int = 300
    correlation: float = 0.5

    def __post_init__(self) -> None:
        """Validate the settings."""
        # Slotted classes are made anew, so that super() without arguments finds another one.
        Analyst.__post_init__(self)
        object.__setattr__(self, "correlation", inside("correlation", self.correlation))

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> PureNoise:
        """Draw features, and responses that have nothing to do with them."""
        return PureNoise.drawn(n, repetitions, self.features, self.correlation, rng)


@dataclass(frozen=True, slots=True)
class Freedman(_Screening):
    """Submit a regression on each feature, and then the one on those that were released as best.

    Neto et al. 2016, after Freedman (1983). Of tied features the first ones are taken: against
    a ladder those from its last jump on. Where no values are released, later improvers count for
    better.

    Parameters
    ----------
    features : int, default=300
        How many the problem has that he is made for.
    correlation : float, default=0.5
        Of neighbouring ones, in (0, 1).
    top : int, default=30
        Features in the last submission.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import FullDisclosure, PairedTestLadder
    >>> attack = Freedman(features=100, top=10)
    >>> for mechanism in FullDisclosure(), PairedTestLadder(alpha=0.01):
    ...     course = simulate(attack, mechanism, n=100, repetitions=20)
    ...     print(round(float(course.bias.mean()), 2))
    0.07
    0.01
    """

    top: int = 30

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield a regression on each feature, then on the best; see `Analyst.play`."""
        everything = np.arange(seen.known.train.shape[1])
        nothing = np.empty((seen.repetitions, 0), dtype=np.intp)
        candidates = np.broadcast_to(everything, (seen.repetitions, len(everything)))
        answers = yield from _round(seen.known, nothing, candidates)
        best = np.argsort(_order(answers), axis=0, kind="stable")[: self.top].T
        yield _regression(seen.known, best)
        return None


@dataclass(frozen=True, slots=True)
class StepForward(_Screening):
    """Choose features one after another, each time the one behind the ladder's last jump.

    Neto et al. 2016, Algorithm 7, without its line 5 (univariate models once more), which the
    numbers of submissions that the paper gives leave out. A round submits a regression on
    the chosen features and one more, for each of the others. A round without a jump ends the
    attack; where others of the repetitions go on, it submits its model again. The last
    submission is the model that was chosen.

    Parameters
    ----------
    features : int, default=300
        How many the problem has that he is made for.
    correlation : float, default=0.5
        Of neighbouring ones, in (0, 1).
    rounds : int, default=5
        How many features are chosen at most.
    change_points : bool, default=False
        Where the last jump is: False is where the releases have it. True is where the released
        values have their last change of level by binary segmentation, the number of changes
        being known, as in the paper: for mechanisms whose noise hides the places. Where no
        values are released, it is as False.
    best : bool, default=False
        Whether to choose the feature with the smallest released risk of the round instead: for
        mechanisms that release each submission's own risk.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import LadderBoot, PairedTestLadder
    >>> for mechanism in PairedTestLadder(alpha=0.15), LadderBoot(0.15, n_bootstrap=10):
    ...     attack = StepForward(100, rounds=3, change_points=mechanism.redraws)
    ...     course = simulate(attack, mechanism, n=100, repetitions=5)
    ...     print(course.submissions, bool(course.bias.mean() > 0.01))
    298 True
    200 False
    """

    rounds: int = 5
    change_points: bool = False
    best: bool = False

    def __post_init__(self) -> None:
        """Validate the settings."""
        _Screening.__post_init__(self)
        for name in ("change_points", "best"):
            flag(name, getattr(self, name))

    def play(self, seen: Seen, rng: np.random.Generator) -> Play:
        """Yield the regressions of each round, then the chosen one; see `Analyst.play`."""
        selection = Selection(seen.known.train.shape[1], seen.repetitions)
        for _ in range(min(self.rounds, seen.known.train.shape[1])):
            answers = yield from _round(seen.known, selection.chosen, selection.candidates)
            risks = np.array([answer.risk for answer in answers])
            improved = np.array([answer.improved for answer in answers])
            if not selection.choose(self.places(risks, improved)):
                break
        yield _regression(seen.known, selection.chosen)
        return None

    def places(self, risks: Floats, improved: Flags) -> Places:
        """Return which submission of a round has the feature to choose.

        Parameters
        ----------
        risks : ndarray of shape (m, R)
            The released risks of the round, nan where none are released.
        improved : ndarray of bool of shape (m, R)
            Which of its submissions improved.

        Returns
        -------
        ndarray of int of shape (R,)
            The place of the last jump by default; -1 where there is none.
        """
        if self.best:
            return np.asarray(risks.argmin(axis=0))
        last = len(improved) - 1 - improved[::-1].argmax(axis=0)
        places = np.where(improved.any(axis=0), last, -1)
        if self.change_points:
            # Where no value is released, there is nothing to see but whether it improved.
            seen = improved[1:].any(axis=0) & np.isfinite(risks).all(axis=0)
            for r in np.flatnonzero(seen):
                places[r] = change_points(risks[:, r], int(improved[1:, r].sum()))[-1]
            # The first release of a round has none before it to differ from.
            places[improved[0] & ~improved[1:].any(axis=0)] = 0
        return np.asarray(places)


class Selection:
    """The features that a step-forward attack has chosen so far, in each repetition.

    Attributes
    ----------
    chosen : ndarray of int of shape (R, k)
        The chosen features, in their order.

    Examples
    --------
    >>> selection = Selection(4)
    >>> selection.choose(np.array([2])), selection.candidates.tolist()
    (True, [[0, 1, 3]])
    >>> selection.choose(np.array([-1])), selection.chosen.tolist()
    (False, [[2]])
    """

    def __init__(self, features: int, repetitions: int = 1) -> None:
        self.chosen: Places = np.empty((repetitions, 0), dtype=np.intp)
        self._left = np.tile(np.arange(features), (repetitions, 1))
        self._going = np.ones(repetitions, dtype=bool)

    @property
    def candidates(self) -> Places:
        """The features to try next, of shape (R, m); the last chosen one where a search ended."""
        if self._going.all():
            return self._left
        return np.where(self._going[:, None], self._left, self.chosen[:, -1:])

    def choose(self, places: Places) -> bool:
        """Choose a candidate in each repetition by its place; return whether any search goes on.

        A place of -1 ends the search of a repetition.
        """
        self._going = self._going & (places >= 0)
        if not self._going.any():
            return False
        places = np.maximum(places, 0)
        taken = np.take_along_axis(self._left, places[:, None], axis=1)
        if self.chosen.size:
            taken = np.where(self._going[:, None], taken, self.chosen[:, -1:])
        else:
            taken = np.where(self._going[:, None], taken, 0)
        self.chosen = np.column_stack([self.chosen, taken])
        # One column less for all, whatever a search that has ended leaves out.
        keep = np.arange(self._left.shape[1]) != places[:, None]
        self._left = self._left[keep].reshape(len(places), -1)
        return True


class ForwardRegression:
    """Least squares on the features added so far, and on each other one beside them.

    By Gram and Schmidt: of each feature what the added ones do not explain is left, on the
    training rows, and the same coefficients are applied to the other rows. So the coefficient
    of a candidate is a quotient of two inner products.

    Parameters
    ----------
    train : ndarray of shape (m, p)
        Features of the training rows.
    responses : ndarray of shape (m, q)
        What is fitted there.
    rows : ndarray of shape (n, p)
        Features of the rows to predict.
    dependent : float, default=1e-9
        A feature with less than this share of its variance left is a mixture of those added,
        and gets no coefficient.

    Attributes
    ----------
    fitted : ndarray of shape (n, q)
        The predictions.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [-1.0, 1.0], [0.0, 2.0]])
    >>> model = ForwardRegression(rows, np.array([[3.0], [-3.0], [0.0]]), rows)
    >>> model.add(0)
    >>> model.fitted.ravel().tolist()
    [3.0, -3.0, 0.0]
    """

    def __init__(
        self, train: Floats, responses: Floats, rows: Floats, dependent: float = 1e-9
    ) -> None:
        middle, level = train.mean(axis=0), responses.mean(axis=0)
        self._columns, self._others = train - middle, rows - middle
        self._responses = responses - level
        self._least = dependent * np.square(self._columns).sum(axis=0)
        self.fitted = np.tile(level, (len(rows), 1))
        self._solve()

    def candidate(self, feature: int) -> Floats:
        """Return the predictions (n, q) with one feature more."""
        return np.asarray(
            self.fitted + np.outer(self._others[:, feature], self._coefficients[feature])
        )

    def add(self, feature: int) -> None:
        """Add a feature permanently."""
        self.fitted = self.candidate(feature)
        column, size = self._columns[:, feature].copy(), self._sizes[feature]
        if size > self._least[feature]:
            shares = column @ self._columns / size
            self._others = self._others - np.outer(self._others[:, feature], shares)
            self._columns = self._columns - np.outer(column, shares)
            self._solve()

    def _solve(self) -> None:
        """Compute the coefficient that each feature would get, of shape (p, q)."""
        self._sizes = np.square(self._columns).sum(axis=0)
        live = (self._sizes > self._least)[:, None]
        products = self._columns.T @ self._responses
        self._coefficients = np.divide(
            products, self._sizes[:, None], out=np.zeros_like(products), where=live
        )


def _round(
    known: Known, chosen: Places, candidates: Places
) -> Generator[Submissions, Answers, list[Answers]]:
    """Submit regressions on the chosen features and each of the candidates."""
    answers = []
    for features in candidates.T:
        answers.append((yield _regression(known, np.column_stack([chosen, features]))))
    return answers


def _regression(known: Known, features: Places) -> Submissions:
    linear = known.fit(features)
    return Submissions(known.predict(linear), model=linear)


def _order(answers: list[Answers]) -> Floats:
    """Return what to rank by: the risks, or how many improvements there had been."""
    risks = np.array([answer.risk for answer in answers])
    improvements = np.cumsum([answer.improved for answer in answers], axis=0)
    return np.where(np.isnan(risks), 0 - improvements, risks)


def change_points(signal: Floats, count: int) -> list[int]:
    """Find so many changes of the mean by binary segmentation: where new levels begin.

    Of more changes than m - 1 the others are left out.

    Examples
    --------
    >>> change_points(np.array([0.0, 0.1, 0.0, 5.0, 5.1, 2.0, 2.1]), 2)
    [3, 5]
    """
    borders, cuts = [0, len(signal)], []
    pieces = [_best_cut(signal, 0, len(signal))]
    for _ in range(min(count, len(signal) - 1)):
        place = int(np.argmax([gain for gain, _ in pieces]))
        cut = pieces[place][1]
        cuts.append(cut)
        start, end = borders[place], borders[place + 1]
        borders.insert(place + 1, cut)
        pieces[place : place + 1] = [_best_cut(signal, start, cut), _best_cut(signal, cut, end)]
    return sorted(cuts)


def _best_cut(signal: Floats, start: int, end: int) -> tuple[float, int]:
    """Return by how much a cut lowers the sum of squares at most, and the cut."""
    if end - start < 2:
        return -math.inf, end
    centred = signal[start:end] - signal[start:end].mean()
    before = np.arange(1, end - start)
    gains = np.cumsum(centred)[:-1] ** 2 * (1 / before + 1 / before[::-1])
    best = int(np.argmax(gains))
    return float(gains[best]), start + best + 1
