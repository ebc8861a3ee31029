"""Per-example losses: plain NumPy, so that no warning and no autologging sees them.

Each takes canonical targets and predictions and returns the (n,) losses, smaller is
better. With several outputs the loss of a row is the mean over its outputs.
"""

from __future__ import annotations

import numpy as np

from ladderholdout.metrics.evaluation import Array, FloatArray

_EPSILON = float(np.finfo(np.float64).eps)


def zero_one(targets: Array, predictions: Array) -> FloatArray:
    """Return 1 for each wrong label."""
    return np.asarray(targets != predictions, dtype=np.float64)


def log_loss(targets: Array, predictions: Array) -> FloatArray:
    """Return minus the log of the probability given to the true class, clipped to epsilon."""
    given = predictions[np.arange(len(targets)), targets]
    return np.asarray(-np.log(np.clip(given, _EPSILON, 1 - _EPSILON)))


def brier(targets: Array, predictions: Array) -> FloatArray:
    """Return the squared distance from the true corner of the simplex; halved for two classes.

    Source: Brier (1950), with the customary half for binary problems.
    """
    if predictions.shape[1] == 2:
        return np.asarray((targets - predictions[:, 1]) ** 2)
    given = predictions[np.arange(len(targets)), targets]
    squares = (predictions**2).sum(axis=1) - 2 * given + 1
    # Rows may sum to 1.001, and the range of the loss is a promise.
    return np.asarray(np.clip(squares, 0.0, 2.0))


def squared(targets: Array, predictions: Array) -> FloatArray:
    """Return squared errors."""
    return _over_outputs((targets - predictions) ** 2)


def squared_log(targets: Array, predictions: Array) -> FloatArray:
    """Return squared differences of log(1 + value)."""
    return squared(np.log1p(targets), np.log1p(predictions))


def absolute(targets: Array, predictions: Array) -> FloatArray:
    """Return absolute errors."""
    return _over_outputs(np.abs(targets - predictions))


def absolute_percentage(targets: Array, predictions: Array) -> FloatArray:
    """Return absolute errors relative to the target (1 is 100 %)."""
    scale = np.maximum(np.abs(targets), _EPSILON)
    return _over_outputs(np.abs(targets - predictions) / scale)


def poisson_deviance(targets: Array, predictions: Array) -> FloatArray:
    """Return unit deviances of the Poisson distribution."""
    # y log(y / p) goes to 0 with y.
    logs = np.log(np.where(targets > 0, targets / predictions, 1.0))
    return np.asarray(2 * (targets * logs - targets + predictions))


def gamma_deviance(targets: Array, predictions: Array) -> FloatArray:
    """Return unit deviances of the gamma distribution."""
    return np.asarray(2 * (np.log(predictions / targets) + targets / predictions - 1))


def _over_outputs(losses: Array) -> FloatArray:
    return losses if losses.ndim == 1 else np.asarray(losses.mean(axis=1))
