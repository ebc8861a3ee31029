"""What a fitted estimator answers for a metric, in the order of the holdout's classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.identity.copies import copy_of
from ladderholdout.metrics import arrays as forms
from ladderholdout.metrics.arrays import Array

_METHODS = ("predict", "predict_proba", "decision_function")


def predicts(model: object) -> bool:
    """Return whether something is a model, and not predictions.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> predicts(LogisticRegression()), predicts([0, 1, 1])
    (True, False)
    """
    return any(callable(attribute(model, name)) for name in _METHODS)


def is_model(value: object) -> bool:
    """Return whether something was meant as a model: it predicts, can be fitted, or is a class.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> is_model(LogisticRegression), is_model([0, 1, 1])
    (True, False)
    """
    return isinstance(value, type) or predicts(value) or callable(attribute(value, "fit"))


def respond(
    estimator: Any,
    X: Any,
    response: str,
    classes: Array | None,
    answers: dict[str, Any] | None = None,
    positive: int = 1,
    *,
    copies: bool = True,
) -> Array:
    """Return the raw predictions of a fitted estimator; see `Metric.respond`.

    Its methods are given a copy of the rows each, unless the rows are the caller's own: a pipeline
    may write into what it is given.
    """
    _refuse_places(estimator, X)
    _refuse_booster(estimator, response)
    known = None if classes is None else known_classes(estimator)
    if classes is not None and known is not None:
        _refuse_unknown(known, classes)
    asked = _Asked(estimator, X, {} if answers is None else answers, copies)
    if response == "probabilities":
        return _aligned(asked("predict_proba"), known, classes)
    if response == "scores":
        return _scores(asked, known, classes, positive)
    return np.asarray(asked("predict"))


_BOOSTERS = {
    ("lightgbm", "Booster"): "model.predict(X)",
    ("xgboost", "Booster"): "model.predict(xgboost.DMatrix(X))",
    ("catboost", "CatBoost"): 'model.predict(X, prediction_type="Probability")[:, 1]',
}
"""What is trained without a class of scikit-learn's kind, and what gives its probabilities."""


def _refuse_booster(estimator: Any, response: str) -> None:
    """Refuse a model that knows no classes, nor whether its numbers are probabilities."""
    kind = type(estimator)
    place = kind.__module__.partition(".")[0], kind.__name__
    predicted = _BOOSTERS.get(place)
    if predicted is None or (response == "values" and place[0] != "xgboost"):
        return
    whole = predicted.removesuffix("[:, 1]")
    ways = {
        "values": f"holdout.submit({whole})",
        "scores": f"holdout.submit({predicted})",
        "probabilities": f"holdout.submit({whole})",
        "labels": f"holdout.submit(np.asarray(classes)[({predicted} > 0.5).astype(int)]) for two "
        f"sorted classes, holdout.submit(np.asarray(classes)[{whole}.argmax(axis=1)]) for more",
    }
    raise InvalidSubmission(
        "predictions",
        "from an estimator in the manner of scikit-learn",
        f"from a {place[1]} of {place[0]} itself",
        f"Submit what it predicts, X being the holdout's rows: {ways[response]}.",
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Asked:
    """An estimator and rows, with what it answered before: each method is called once."""

    estimator: Any
    X: Any
    answers: dict[str, Any]
    copies: bool

    def __call__(self, name: str) -> Any:
        """Return what this method predicts, in the order of the rows by their index."""
        method = method_of(self.estimator, name)
        if name not in self.answers:
            answer = forms.read_once(answer_of(method, copy_of(self.X) if self.copies else self.X))
            forms.refuse_masked("predictions", answer)
            self.answers[name] = forms.by_index(answer, self.X)
        return self.answers[name]


def attribute(estimator: Any, name: str) -> Any:
    """Return an attribute, None where there is none or whatever computes it fails."""
    try:
        return getattr(estimator, name, None)
    except Exception:  # as an attribute that is not available on this model may do
        return None


def known_classes(estimator: Any) -> Array | None:
    """Return the classes an estimator was fitted on, None if it has none."""
    classes = attribute(estimator, "classes_")
    if classes is None:
        return None
    try:
        return forms.label_vector(classes, "predictions")
    except InvalidArgument:
        came = f"from a {type(estimator).__name__} with classes_ of another form"
    raise InvalidSubmission("predictions", "from a classifier with one output", came)


def answer_of(method: Callable[[Any], Any], X: Any) -> Any:
    """Call the user's code alone: what it raises has no frames of ours below this one."""
    return method(X)


def _refuse_places(estimator: Any, X: Any) -> None:
    """Refuse a model of LightGBM on a table with other columns: it takes them by their place."""
    names, columns = attribute(estimator, "feature_name_"), getattr(X, "columns", None)
    if (
        names is None
        or columns is None
        or list(names) == [f"Column_{place}" for place in range(len(names))]
    ):
        return
    if list(names) != [str(name).replace(" ", "_") for name in columns]:  # as LightGBM writes them
        raise InvalidSubmission(
            "predictions",
            "from a model that was fitted on the holdout's columns, in their order",
            "from one of LightGBM that was fitted on others, or on these in another order",
            "It takes columns by their place, whatever their names. Register the holdout with the "
            "columns of the training rows: LadderHoldout(X_holdout[list(X_train.columns)], ...).",
        )


def _refuse_unknown(known: Array, classes: Array) -> None:
    if known.dtype == classes.dtype and known.tobytes() == classes.tobytes():
        return  # as nearly always, and in a tenth of the time
    if forms.is_text(known) != forms.is_text(classes):
        kinds = ["text" if forms.is_text(array) else "numbers" for array in (classes, known)]
        raise InvalidSubmission(
            "predictions",
            f"from an estimator fitted on labels like the holdout's, which are {kinds[0]}",
            f"from one fitted on {kinds[1]}",
            "Fit it on labels of the same kind, or submit its predictions in the holdout's labels: "
            "for k sorted names and a model fitted on 0 to k - 1, "
            "holdout.submit(np.asarray(names)[model.predict(X)]).",
        )
    unknown = np.count_nonzero(forms.codes_of(known, classes) < 0)
    if unknown:
        raise InvalidSubmission(
            "predictions",
            "from an estimator fitted on classes of the holdout",
            f"from one fitted on {unknown} more",
            "Fit it on the holdout's labels. Where these rows have classes that the holdout's have "
            "not, pass classes= with all of them when registering the holdout.",
        )


def method_of(estimator: Any, *names: str) -> Callable[[Any], Any]:
    """Return the first of these methods that the estimator has."""
    wanted = " or ".join(names)
    if isinstance(estimator, type):
        came = f"the class {estimator.__name__} itself"
        raise InvalidSubmission("predictions", "from a fitted estimator", came, "Fit one of it.")
    for name in names:
        method = attribute(estimator, name)
        if callable(method):
            return method  # type: ignore[no-any-return]
    raise InvalidSubmission(
        "predictions",
        f"from an estimator with {wanted}",
        f"from a {type(estimator).__name__} without",
        "Take another estimator, or a metric that needs predict alone. Predictions themselves go "
        "to holdout.submit(predictions).",
    )


def _aligned(answer: Any, known: Array | None, classes: Array | None) -> Array:
    """Put columns that follow ``known`` in the order of ``classes``; zeros for the missing."""
    table = forms.readable(answer, "predictions")
    if known is not None:
        table = forms.by_column_names(answer, table, known, in_order=True)
    elif classes is not None:
        table = forms.by_column_names(answer, table, classes)
    if known is None or classes is None or np.array_equal(known, classes):
        return table
    if len(known) == 1:
        table = table.reshape(-1, 1)
    if table.ndim != 2 or table.shape[1] != len(known):
        allowed = f"one column for each of the estimator's {len(known)} classes"
        raise InvalidSubmission("predictions", allowed, forms.described(table))
    aligned = np.zeros((len(table), len(classes)), dtype=table.dtype)
    aligned[:, forms.codes_of(known, classes)] = table
    return aligned


def _scores(asked: _Asked, known: Array | None, classes: Array | None, positive: int) -> Array:
    method_of(asked.estimator, "decision_function", "predict_proba")  # refuses what has neither
    if attribute(asked.estimator, "decision_function") is None:
        table = _aligned(asked("predict_proba"), known, classes)
        return table[:, positive] if table.ndim == 2 and table.shape[1] == 2 else table
    if known is not None and classes is not None and not np.array_equal(known, classes):
        raise InvalidSubmission(
            "predictions",
            "from an estimator fitted on both classes, in sorted order",
            "from one fitted on other classes or in another order",
            "Its decision_function would rank the wrong class.",
        )
    decision = np.asarray(asked("decision_function"))
    return decision if positive else -decision
