"""The step-forward attack on drawn rows whose labels do not depend on their features.

Neto et al. 2016, Algorithm 7, for any metric. In each round every remaining feature is added to
the selected ones, a linear model is fitted by least squares, and submitted; the feature of the
last improvement stays. Line 5 of the algorithm (univariate models once more) is left out: the
paper's own numbers of submissions are those without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ladderholdout.mechanisms import LadderRules
from ladderholdout.metrics import Evaluation, FloatArray, Metric
from ladderholdout.metrics.evaluation import Array

# On at least so many fresh rows the final model is scored once more.
FRESH = 10_000
# A column with less than this share of its variance left is a mixture of the selected ones.
DEPENDENT = 1e-9


class Rows(NamedTuple):
    """Features, and labels that were drawn without regard to them."""

    X: FloatArray
    y: Array


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where rows are drawn from: the user's features, and his labels, apart.

    Parameters
    ----------
    X : ndarray of shape (m, p)
        Features.
    y : ndarray of shape (m,) or (m, k)
        Labels.
    metric : Metric
        How submissions are measured.
    classes : ndarray or None
        What `Metric.classes_of` returned for all labels.
    """

    X: FloatArray
    y: Array
    metric: Metric
    classes: Array | None

    def check(self) -> None:
        """Refuse labels that the metric cannot be about."""
        self.metric.targets(self.y, self.classes)

    def draw(self, n: int, features: Array, rng: np.random.Generator) -> Rows:
        """Draw rows and labels, each by itself and with replacement.

        A permutation of the responses that is not bound to the number of rows there are.
        """
        of_rows, of_labels = rng.integers(0, len(self.X), (2, n))
        return Rows(self.X[of_rows][:, features], self.y[of_labels])

    def responses(self, y: Array) -> FloatArray:
        """Return what least squares fits: the values, or a column of 0 and 1 for each class."""
        if self.classes is None:
            return np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        return np.asarray(y[:, None] == self.classes[None], dtype=np.float64)

    def evaluate(self, targets: Array, fitted: FloatArray) -> Evaluation:
        """Turn fitted responses into predictions as the metric asks for them, and measure."""
        predictions = self.metric.canonical(self._predictions(fitted), len(fitted), self.classes)
        return self.metric.evaluate(targets, predictions)

    def _predictions(self, fitted: FloatArray) -> Array:
        if self.metric.response == "labels":
            assert self.classes is not None
            return np.asarray(self.classes[fitted.argmax(axis=1)])
        if self.metric.response == "scores":
            return fitted[:, 1]
        if self.metric.response == "probabilities":
            # Least squares leaves [0, 1], where a logarithm would be infinite.
            shares = np.clip(fitted, 0.01, None)
            return np.asarray(shares / shares.sum(axis=1, keepdims=True))
        return fitted[:, 0] if self.y.ndim == 1 else fitted


class _Selection:
    """Least squares on the selected features, and on each other one beside them.

    Columns are kept orthogonal to the selected ones, so that a candidate's coefficient is a
    quotient of two inner products.
    """

    def __init__(self, train: FloatArray, responses: FloatArray, rows: FloatArray) -> None:
        middle, level = train.mean(axis=0), responses.mean(axis=0)
        self.columns, self.others = train - middle, rows - middle
        self.left = responses - level
        self.fitted = np.tile(level, (len(rows), 1))
        self.least = DEPENDENT * np.square(self.columns).sum(axis=0)

    def candidate(self, feature: int) -> FloatArray:
        """Return the responses fitted to the other rows with one feature more."""
        added = np.outer(self.others[:, feature], self._coefficients(feature))
        return np.asarray(self.fitted + added)

    def add(self, feature: int) -> None:
        """Select a feature."""
        self.fitted = self.candidate(feature)
        column = self.columns[:, feature].copy()
        self.left = self.left - np.outer(column, self._coefficients(feature))
        size = float(column @ column)
        if size > self.least[feature]:
            shares = column @ self.columns / size
            self.others = self.others - np.outer(self.others[:, feature], shares)
            self.columns = self.columns - np.outer(column, shares)

    def _coefficients(self, feature: int) -> FloatArray:
        column = self.columns[:, feature]
        size = float(column @ column)
        if size <= self.least[feature]:
            return np.zeros(self.left.shape[1])
        return np.asarray(column @ self.left / size)


def optimism(
    source: Source,
    rules: LadderRules,
    n: int,
    n_train: int,
    features: int,
    iterations: int,
    rng: np.random.Generator,
) -> float:
    """Run the attack once, and return what its final model seems to know of the holdout.

    Parameters
    ----------
    source : Source
        Where all rows come from.
    rules : LadderRules
        The ladder that answers.
    n, n_train : int
        Rows of the holdout and to train on.
    features, iterations : int
        So many are drawn at random, and so many of them selected at most.
    rng : numpy.random.Generator
        Of the rows and of the ladder's noise.

    Returns
    -------
    float
        The final model's score on the holdout minus its score on fresh rows; 0.0 where
        nothing was ever released.
    """
    chosen = rng.choice(source.X.shape[1], features, replace=False)
    train, holdout = (source.draw(size, chosen, rng) for size in (n_train, n))
    responses = source.responses(train.y)
    model = _Selection(train.X, responses, holdout.X)
    targets = source.metric.targets(holdout.y, source.classes)
    selected = _attack(model, source, rules, targets, iterations, rng)
    if not selected:
        return 0.0
    # The holdout's own labels, again and again: labels and features have nothing to do with
    # each other, and a holdout with easy labels does not count as overfitted.
    labels = np.concatenate([holdout.y] * math.ceil(FRESH / n))
    fresh = source.draw(len(labels), chosen[selected], rng).X
    fitted = _least_squares(train.X[:, selected], responses, fresh)
    there = source.evaluate(source.metric.targets(labels, source.classes), fitted)
    here = source.evaluate(targets, model.fitted)
    return source.metric.to_score(here.risk) - source.metric.to_score(there.risk)


def _attack(
    model: _Selection,
    source: Source,
    rules: LadderRules,
    targets: Array,
    iterations: int,
    rng: np.random.Generator,
) -> list[int]:
    """Select features round by round; a round without an improvement ends the attack."""
    state, selected = rules.start(len(targets)), []
    remaining = list(range(model.columns.shape[1]))
    for _ in range(iterations):
        told = []
        for feature in remaining:
            evaluation = source.evaluate(targets, model.candidate(feature))
            state, outcome = rules.step(state, evaluation, rng)
            told.append(outcome)
        improved = [place for place, outcome in enumerate(told) if outcome.improved]
        if rules.mechanism.discloses:  # the best of the round shows itself
            improved = [int(np.argmin([outcome.risk for outcome in told]))]
        if not improved:
            break
        selected.append(remaining.pop(improved[-1]))
        model.add(selected[-1])
    return selected


def _least_squares(train: FloatArray, responses: FloatArray, rows: FloatArray) -> FloatArray:
    design, other = (np.column_stack([np.ones(len(part)), part]) for part in (train, rows))
    return np.asarray(other @ np.linalg.lstsq(design, responses, rcond=None)[0])
