"""Features that have nothing to do with the response, and regressions on a few of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout.analysts.base import Floats, Problem, Seen, Submission

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
        Of the training rows, in each repetition.
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
        """Fit least squares on a few features.

        Parameters
        ----------
        features : ndarray of int of shape (R, k)

        Returns
        -------
        Linear

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
        theirs = np.take_along_axis(products, features, axis=1)
        inverses = np.linalg.pinv(among, rcond=1e-10, hermitian=True)
        return Linear(features, np.einsum("rij,rj->ri", inverses, theirs))

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
        Of the holdout.
    correlation : float
        Of neighbouring features, all of variance 1; of others a power of it.

    Examples
    --------
    >>> problem = PureNoise.drawn(n=50, repetitions=3, p=20, correlation=0.5,
    ...                           rng=np.random.default_rng(0))
    >>> problem.seen.known.holdout.shape
    (50, 20)
    >>> nothing = Linear(np.zeros((3, 1), dtype=np.intp), np.zeros((3, 1)))
    >>> problem.true_risk(Submission(np.zeros((3, 50)), model=nothing)).tolist()
    [0.25, 0.25, 0.25]
    """

    known: Known
    responses: Floats
    correlation: float
    seen: Seen = field(init=False)

    def __post_init__(self) -> None:
        """Show the features."""
        repetitions, n = self.responses.shape
        object.__setattr__(self, "seen", Seen(n, repetitions, self.known))

    @classmethod
    def drawn(
        cls, n: int, repetitions: int, p: int, correlation: float, rng: np.random.Generator
    ) -> PureNoise:
        """Draw a problem with as many training rows as the holdout has.

        Parameters
        ----------
        n, repetitions, p : int
            Numbers of rows, of repetitions and of features.
        correlation : float
            In [0, 1).
        rng : numpy.random.Generator

        Returns
        -------
        PureNoise
        """
        features = rng.standard_normal((2 * n, p))
        for j in range(1, p):
            fresh = np.sqrt(1.0 - correlation**2) * features[:, j]
            features[:, j] = correlation * features[:, j - 1] + fresh
        responses = DEVIATION * rng.standard_normal((repetitions, 2 * n))
        known = Known(features[:n], responses[:, :n], features[n:])
        return cls(known, responses[:, n:], correlation)

    def losses(self, submission: Submission) -> Floats:
        """Return squared errors; see `Problem.losses`."""
        return np.asarray((submission.predictions - self.responses) ** 2)

    def true_risk(self, submission: Submission) -> Floats:
        """Return the variance of the response, and of what the model adds to it."""
        features, coefficients = submission.model
        distances = np.abs(features[:, :, None] - features[:, None, :])
        covariances = float(self.correlation) ** distances
        added = np.einsum("ri,rij,rj->r", coefficients, covariances, coefficients)
        return np.asarray(DEVIATION**2 + added)
