"""The regressions of Neto et al.: on the features of the training part, without an intercept."""

from __future__ import annotations

import numpy as np
from _neto_data import Floats, Ints, Parts

from ladderholdout.lab.screening import ForwardRegression

# A feature of which this share of its squares is left depends on those already in the model:
# like R's lm, which takes the square root of it for its tolerance, it gets no coefficient.
ALIASED = 1e-14


class Regression(ForwardRegression):
    """Predicts with each feature that is left beside those added, all at once."""

    def candidates(self, rows: int) -> Floats:
        """Return the predictions (p, rows, q) for the first rows, with each feature beside."""
        added = self._others[:rows].T[:, :, None] * self._coefficients[:, None]
        return np.asarray(self.fitted[:rows] + added)


def regression(parts: Parts, features: Ints | None = None) -> Regression:
    """Return what predicts the rows of the public part, and then those of the final one.

    It has no intercept, as all columns have mean 0 on the training part.
    """
    columns = slice(None) if features is None else features
    others = np.vstack([parts.public.X[:, columns], parts.final.X[:, columns]])
    return Regression(parts.train.X[:, columns], parts.train.y[:, None], others, ALIASED)


def nested(parts: Parts, features: Ints) -> Floats:
    """Return predictions (k, m) of the regressions on the first 1, ..., k of the features."""
    model, fitted = regression(parts, features), []
    for place in range(len(features)):
        model.add(place)
        fitted.append(model.fitted[:, 0])
    return np.array(fitted)


def errors(parts: Parts, fitted: Floats) -> Floats:
    """Return mean squared errors (k, 2) of predictions (k, m) on the public and final parts."""
    rows = len(parts.public.y)
    public = ((fitted[:, :rows] - parts.public.y) ** 2).mean(axis=1)
    final = ((fitted[:, rows:] - parts.final.y) ** 2).mean(axis=1)
    return np.column_stack([public, final])
