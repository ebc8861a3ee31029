"""Items judged one by one: references for labels, texts or objects for predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ladderholdout.arguments import as_given, function
from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.identity.copies import copy_of
from ladderholdout.metrics import measuring, responses
from ladderholdout.metrics.arrays import Array, FloatArray, refusal
from ladderholdout.metrics.evaluation import Evaluation, checked_weights
from ladderholdout.metrics.metric import Metric
from ladderholdout.metrics.scores import zero_one
from ladderholdout.metrics.verdicts import given

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
    verdicts: Path | None = None

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
            A verdict is not 0 or 1, or not between them where verdicts are graded. Nothing counts;
            verdicts that were on record before stay there.
        MetricError
            The function failed.
        """
        if self.judge is None:  # as the ledger knows it: this refuses with the way
            return measuring.measure(self, targets, predictions)
        verdicts = measuring.called(self, lambda: self._verdicts(targets, predictions))
        row_weights = None if weights is None else checked_weights(weights, len(targets), "weights")
        return measuring.measure(self, np.ones(len(targets)), verdicts, row_weights)

    def _verdicts(self, targets: Array, predictions: Array) -> FloatArray:
        """Judge one item after the other, each alone: a verdict must not depend on other items."""
        pairs = [*zip(map(_bytes, targets), map(_bytes, predictions), strict=True)]

        def ask(place: int) -> float:
            return self._verdict(*map(json.loads, pairs[place]))

        if self.verdicts is None:
            return np.array([ask(place) for place in range(len(pairs))], dtype=np.float64)
        return np.array(given(self.verdicts, self.name, pairs, ask), dtype=np.float64)

    def _verdict(self, reference: Any, answer: Any) -> float:
        """Ask the judge, and refuse what is no verdict."""
        assert self.judge is not None
        verdict, graded = float(self.judge(reference, answer)), self.loss is not zero_one
        if not (0 <= verdict <= 1 if graded else verdict in (0.0, 1.0)):
            allowed = "a function that returns " + ("0 to 1" if graded else "True, False, 0 or 1")
            remedy = "" if graded else "State graded=True for verdicts in between."
            raise InvalidArgument("judge", allowed, "another", remedy)
        return verdict


def metric_of_items(
    name: str,
    judge: Callable[[Any, Any], Any],
    *,
    graded: bool = False,
    verdicts: str | Path | None = None,
) -> ItemMetric:
    """Return a metric that judges each item by itself: its score is the mean verdict.

    Parameters
    ----------
    name : str
        What it is called; a ladder is known by it.
    judge : callable
        ``judge(reference, prediction)``: True or 1 where the prediction is right, False or 0
        where it is not; with `graded` a number from 0 to 1. It has to be the same at each call for
        the same two, unless `verdicts` is stated. Texts and objects of JSON arrive as they were
        given; a tuple as a list.
    graded : bool, default=False
        Whether there are verdicts between 0 and 1.
    verdicts : str or Path, optional
        A private file that keeps each verdict as soon as it is given, for a judge that costs much
        or may answer otherwise the next time, such as a model. The judge is asked once for each
        row and answer of a ladder, by whatever process, and its first verdict for a reference and
        an answer counts. Put the question into the reference: items with equal ones share their
        verdicts. Its secret is in a file beside it, with ".key" after its name.

    Returns
    -------
    ItemMetric

    Raises
    ------
    InvalidArgument
        `judge` is no function, or `verdicts` no path.

    See Also
    --------
    ladderholdout.metrics.verdicts_of : What is on record.

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
    if verdicts is not None and not isinstance(verdicts, str | Path):
        raise InvalidArgument("verdicts", "the path of a file", as_given(verdicts))
    return ItemMetric(
        name,
        "values",
        loss=_shortfall if graded else zero_one,
        loss_range=(0.0, 1.0),
        offset=1.0,
        judge=judge,
        verdicts=None if verdicts is None else Path(verdicts).absolute(),
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


def _bytes(row: Array) -> bytes:
    """Return the JSON of an item, which has no zeros."""
    return row.tobytes().rstrip(b"\0")


def _decoded(row: Array) -> Any:
    return json.loads(_bytes(row))
