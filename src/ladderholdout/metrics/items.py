"""Items judged one by one: references for labels, texts or objects for predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ladderholdout.arguments import as_given, function
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.identity import copy_of
from ladderholdout.metrics import measuring, responses
from ladderholdout.metrics.arrays import Array, FloatArray, refusal
from ladderholdout.metrics.evaluation import Evaluation, checked_weights
from ladderholdout.metrics.metric import Metric
from ladderholdout.metrics.scores import zero_one

_LARGEST = 1 << 28
_ALLOWED = "a text, or an object that JSON can hold, for each item"


def _shortfall(targets: Array, verdicts: Array) -> FloatArray:
    """Return how far graded verdicts fall short of 1."""
    return np.asarray(targets - verdicts, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ItemMetric(Metric):
    """The mean verdict of a function that judges each item; `metric_of_items` makes it.

    Targets and predictions in canonical form are rows of bytes, the JSON of each item.

    Examples
    --------
    >>> exact = metric_of_items("exact_match", lambda reference, text: reference in text)
    >>> type(exact).__name__, exact.name
    ('ItemMetric', 'exact_match')
    """

    judge: Callable[[Any, Any], Any] | None = None

    def targets(self, y: Any, classes: Array | None) -> Array:
        """Return the references in canonical form.

        Parameters
        ----------
        y : sequence
            A text, or an object that JSON can hold, for each item.
        classes : None

        Returns
        -------
        ndarray of uint8, shape (n, bytes of the longest)
        """
        return _encoded(y, "y")

    def _readable(self, y: Any, classes: Array | None) -> Array:
        """Return the references, of which any is readable."""
        return self.targets(y, classes)

    def respond(
        self, estimator: Any, X: Any, classes: Array | None, answers: dict[str, Any] | None = None
    ) -> Any:
        """Return what ``estimator.predict(X)`` returns, as a list."""
        return list(responses.answer_of(responses.method_of(estimator, "predict"), copy_of(X)))

    def canonical(self, predictions: Any, n: int, classes: Array | None) -> Array:
        """Return predictions in canonical form: equal predictions have equal bytes.

        Parameters
        ----------
        predictions : sequence
            A text, or an object that JSON can hold, for each item.
        n : int
            Number of items.
        classes : None

        Returns
        -------
        ndarray of uint8, shape (n, bytes of the longest)

        Raises
        ------
        InvalidSubmission
            They are no n such texts or objects.
        """
        encoded = _encoded(predictions, "predictions")
        if len(encoded) != n:
            raise InvalidSubmission("predictions", f"of {n} items", f"of {len(encoded)}")
        return encoded

    def as_submitted(self, canonical: Array, classes: Array | None) -> list[Any]:
        """Return the texts and objects of predictions in canonical form."""
        return list(map(_decoded, canonical))

    def evaluate(
        self, targets: Array, predictions: Array, weights: ArrayLike | None = None
    ) -> Evaluation:
        """Judge each item of one submission.

        Parameters
        ----------
        targets, predictions : ndarray
            In canonical form.
        weights : array-like of shape (n,), optional
            The holdout's own weights.

        Returns
        -------
        Evaluation

        Raises
        ------
        InvalidArgument
            A verdict is not 0 or 1, or not between them where verdicts are graded.
        MetricError
            The function failed.
        """
        verdicts = measuring.called(self, lambda: self._verdicts(targets, predictions))
        graded = self.loss is not zero_one
        fine = (verdicts >= 0) & (verdicts <= 1) if graded else np.isin(verdicts, (0.0, 1.0))
        if not fine.all():
            allowed = "a function that returns " + ("0 to 1" if graded else "True, False, 0 or 1")
            raise InvalidArgument(
                "judge", allowed, "another", "State graded=True for verdicts in between."
            )
        row_weights = None if weights is None else checked_weights(weights, len(targets), "weights")
        return measuring.measure(self, np.ones(len(targets)), verdicts, row_weights)

    def _verdicts(self, targets: Array, predictions: Array) -> FloatArray:
        assert self.judge is not None
        pairs = zip(map(_decoded, targets), map(_decoded, predictions), strict=True)
        # One after the other, each alone: a verdict must not depend on other items.
        return np.array([float(self.judge(*pair)) for pair in pairs], dtype=np.float64)


def metric_of_items(
    name: str, judge: Callable[[Any, Any], Any], *, graded: bool = False
) -> ItemMetric:
    """Return a metric that judges each item by itself: its score is the mean verdict.

    Parameters
    ----------
    name : str
        What it is called; a ladder is known by it.
    judge : callable
        ``judge(reference, prediction)``: True or 1 where the prediction is right, False or 0
        where it is not; with `graded` a number from 0 to 1. It has to be the same at each call for
        the same two. Texts and objects of JSON arrive as they were given; a tuple as a list.
    graded : bool, default=False
        Whether there are verdicts between 0 and 1.

    Returns
    -------
    ItemMetric

    Raises
    ------
    InvalidArgument
        `judge` is no function.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> exact = metric_of_items("exact_match", lambda reference, text: reference in text)
    >>> questions = ["2 + 2?", "3 + 4?", "5 - 1?"]
    >>> holdout = LadderHoldout(questions, ["4", "7", "4"], scoring=exact, ledger="memory")
    >>> round(holdout.submit(["It is 4.", "It is 8.", "It is 4."]).score, 4)
    0.6667
    """
    function("judge", judge, "a function of reference and prediction")
    return ItemMetric(
        name,
        "values",
        loss=_shortfall if graded else zero_one,
        loss_range=(0.0, 1.0),
        offset=1.0,
        judge=judge,
    )


def _encoded(values: Any, argument: str) -> Array:
    """Return the JSON of each value as a row of bytes, padded with zeros, which no JSON has."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise refusal(argument, _ALLOWED, as_given(values))
    try:
        texts = [_json(value) for value in values]
    except Exception:  # its text may quote an entry
        texts = []
    if not texts:
        remedy = "Pick the answer out of each object: [item.answer for item in predictions]."
        raise refusal(argument, _ALLOWED, "something else, or nothing", remedy)
    longest = max(map(len, texts))
    if longest * len(texts) > _LARGEST:
        came = f"one of {longest} bytes among {len(texts)}"
        raise refusal(argument, "texts of a moderate length", came, "Cut them to a length.")
    rows = np.array(texts, dtype=f"S{longest}")
    return rows.view(np.uint8).reshape(len(texts), longest)


def _json(value: Any) -> bytes:
    if isinstance(value, np.generic):
        value = value.item()
    stated = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return stated.encode("utf-8")


def _decoded(row: Array) -> Any:
    return json.loads(row.tobytes().rstrip(b"\0"))
