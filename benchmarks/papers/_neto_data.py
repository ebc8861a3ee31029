"""The data of the scripts on Neto et al.: stand-ins for ADNI's images, cut into three parts.

The paper predicts a test score of 628 people from 300 of 2,150 features of their images, which
cannot be had. Here are a simulation of that size, and scikit-learn's breast cancer data, whose
30 features with their squares and products make 495.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.datasets import load_breast_cancer

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
# How many of the simulated features are in the response, and what share of its variance they
# explain.
INFORMATIVE, EXPLAINED = 10, 0.3
# As in the paper: features in all experiments but those that ask for other numbers.
FEATURES = 300
DATA = ("simulated", "breast cancer")
WHAT = {"permuted": "permuted responses", "random": "random splits"}


class Part(NamedTuple):
    """Features (n, p) and response (n,), both of mean 0 and variance 1."""

    X: Floats
    y: Floats


class Parts(NamedTuple):
    """The three parts that a challenge cuts its data into."""

    train: Part
    public: Part
    final: Part


@cache
def whole(name: str) -> Part:
    """Return all rows and all features of a data set, not scaled.

    "small" has the size of the paper's own simulation, and its strong correlations.
    """
    if name == "breast cancer":
        return breast_cancer()
    return simulated(120, 1000, 0.9) if name == "small" else simulated(628, 2150, 0.5)


def simulated(n: int, p: int, correlation: float) -> Part:
    """Draw normal features, neighbours correlated, and a response to a few of them."""
    rng = np.random.default_rng(2016)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1 - correlation**2) * X[:, j]
    # Among the first ones, which most experiments use.
    signal = scaled(X[:, rng.choice(min(p, FEATURES), INFORMATIVE, replace=False)].sum(axis=1))
    noise = rng.standard_normal(n)
    return Part(X, np.sqrt(EXPLAINED) * signal + np.sqrt(1 - EXPLAINED) * noise)


def breast_cancer() -> Part:
    """Expand 30 features by squares and products; normal scores keep their tails short."""
    X, y = load_breast_cancer(return_X_y=True)
    base = ndtri((rankdata(X, axis=0) - 0.5) / len(X))
    first, second = np.triu_indices(base.shape[1])
    return Part(np.hstack([base, base[:, first] * base[:, second]]), y.astype(np.float64))


def scaled(values: Floats) -> Floats:
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0, ddof=1))


@cache
def usual_features(name: str) -> Ints:
    """Return the features of all experiments but those that draw their own."""
    p = whole(name).X.shape[1]
    if name == "breast cancer":
        return np.sort(np.random.default_rng(0).permutation(p)[:FEATURES])
    return np.arange(p if name == "small" else FEATURES)


def split(name: str, rng: np.random.Generator, features: Ints | None = None) -> Parts:
    """Cut the rows at random into three parts of about the same size, each scaled alone."""
    data = whole(name)
    X = data.X[:, usual_features(name) if features is None else features]
    thirds = np.array_split(rng.permutation(len(X)), 3)
    return Parts(*(Part(scaled(X[rows]), scaled(data.y[rows])) for rows in thirds))


@cache
def fixed_split(name: str, everything: bool = False) -> Parts:
    """Return the parts of all experiments with permuted responses."""
    features = np.arange(whole(name).X.shape[1]) if everything else usual_features(name)
    return split(name, np.random.default_rng(1), features)


def permuted(parts: Parts, rng: np.random.Generator) -> Parts:
    """Permute the response within each part: no feature has to do with it any more."""
    return Parts(*(Part(part.X, rng.permutation(part.y)) for part in parts))


def some_features(parts: Parts, count: int, rng: np.random.Generator) -> Parts:
    """Keep so many features, chosen at random and in random order."""
    kept = rng.permutation(parts.train.X.shape[1])[:count]
    return Parts(*(Part(part.X[:, kept], part.y) for part in parts))


def drawn(name: str, response: str, rng: np.random.Generator) -> Parts:
    """Return the parts of one repetition: of permuted responses or of a random split."""
    if response == "permuted":
        return permuted(fixed_split(name), rng)
    return split(name, rng)
