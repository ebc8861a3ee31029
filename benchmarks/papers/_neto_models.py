"""Least squares for all features at once, one model for each feature that may come next."""

from __future__ import annotations

import numpy as np
from _neto_data import Floats, Ints, Parts

# A feature of which this share of its squares is left depends on those already in the model:
# like R's lm, which takes the square root of it for its tolerance, it gets no coefficient.
ALIASED = 1e-14


class Regression:
    """Multiple regression that features are added to one by one, fitted on the training part.

    By Gram and Schmidt: of each feature what those in the model do not explain is kept, and
    the same coefficients are applied to the rows of the other two parts. There is no
    intercept, as all columns have mean 0 on the training part.

    Attributes
    ----------
    fitted : ndarray of shape (m,)
        Predictions of the model for the rows of the public part, and then of the final one.
    """

    def __init__(self, parts: Parts, features: Ints | None = None) -> None:
        columns = slice(None) if features is None else features
        self._left = parts.train.X[:, columns].copy()
        self._others = np.vstack([parts.public.X[:, columns], parts.final.X[:, columns]])
        self._y = parts.train.y
        self._squares = (self._left**2).sum(axis=0)
        self.fitted = np.zeros(len(self._others))

    def coefficients(self) -> Floats:
        """Return for each feature its coefficient if it came next, on what is left of it."""
        squares = (self._left**2).sum(axis=0)
        live = squares > ALIASED * self._squares
        products = self._y @ self._left
        return np.divide(products, squares, out=np.zeros(len(squares)), where=live)

    def candidates(self, rows: int) -> Floats:
        """Return predictions (p, rows) for the first rows if each feature came next."""
        added = self.coefficients()[:, None] * self._others[:rows].T
        return np.asarray(self.fitted[:rows] + added)

    def add(self, feature: int) -> None:
        """Add a feature to the model."""
        mine, theirs = self._left[:, feature].copy(), self._others[:, feature].copy()
        square = mine @ mine
        if square <= ALIASED * self._squares[feature]:
            return
        shares = mine @ self._left / square
        self.fitted = self.fitted + (mine @ self._y / square) * theirs
        self._left -= np.outer(mine, shares)
        self._others -= np.outer(theirs, shares)


def nested(parts: Parts, features: Ints) -> Floats:
    """Return predictions (k, m) of the regressions on the first 1, ..., k of the features."""
    model, fitted = Regression(parts, features), []
    for place in range(len(features)):
        model.add(place)
        fitted.append(model.fitted)
    return np.array(fitted)


def errors(parts: Parts, fitted: Floats) -> Floats:
    """Return mean squared errors (k, 2) of predictions (k, m) on the public and final parts."""
    rows = len(parts.public.y)
    public = ((fitted[:, :rows] - parts.public.y) ** 2).mean(axis=1)
    final = ((fitted[:, rows:] - parts.final.y) ** 2).mean(axis=1)
    return np.column_stack([public, final])
