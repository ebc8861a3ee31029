"""A metric: how predictions are asked for, checked and brought to a risk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, InvalidSubmission, warn
from ladderholdout.metrics import arrays as forms
from ladderholdout.metrics import measuring, responses
from ladderholdout.metrics.arrays import Array, FloatArray
from ladderholdout.metrics.evaluation import Evaluation, checked_weights
from ladderholdout.metrics.scores import average_precision, cohen_kappa, log_loss, r2, zero_one
from ladderholdout.metrics.settings import MetricSettings


@dataclass(frozen=True, slots=True)
class Metric(MetricSettings):
    """How a submission is measured.

    Exactly one of ``loss`` and ``score`` is given. Both see canonical targets (for
    classification the positions of the labels among the sorted classes, shape (n,)) and
    canonical predictions (likewise positions for "labels"; probabilities of shape (n, C);
    scores of shape (n,); values of shape (n,) or (n, m)), of which they get copies, in the
    order in which the rows were first registered; with a reserve those of either part alone.
    If the rows have an index of pandas, it is the ``index`` of both arrays. Both
    should be finite for all predictions: a refusal for some reveals something of the labels.

    Parameters
    ----------
    name : str
        What it is called; a ladder is known by it.
    response : {"labels", "probabilities", "scores", "values"}
        What is asked of an estimator: predict, predict_proba, decision_function (or the
        second column of predict_proba), or predict of a regressor.
    loss : callable, optional
        ``loss(targets, predictions)``, one loss for each example, smaller is better.
    score : callable, optional
        ``score(targets, predictions, sample_weight=...)``, one number, greater is better.
        Functions of `sklearn.metrics` fit as they are; if one reads the numbers of classes
        that are not 0 to C - 1, as ``f1_score`` does of 1 and 2, the targets are refused.
    loss_range : tuple of (float, float), optional
        Range of the loss of an example, or of the risk where there is a ``score``; in the
        unit that the metric shows, so with ``root`` of the root of a loss.
    offset : float, default=0.0
        The released score is ``offset - risk``.
    root : bool, default=False
        The released score is ``offset - sqrt(risk)``: the mean of squared losses is guarded.
    in_units_of_y : bool, default=False
        The risk carries the unit of the target, so its scale is not known in advance.
    clip : bool, default=False
        Limits of the score clip losses to ``loss_range``; the score itself does not.
    binary : bool, default=False
        It needs two classes and is about the second, or `pos_label`. As scikit-learn takes 1
        for the positive label wherever it occurs, a 1 in first place is refused without it.
    multioutput : bool, default=False
        Targets of shape (n, m) are fine.
    support : Support, optional
        The values for which it is defined, as for a logarithm.
    two_class_range : tuple of (float, float), optional
        ``loss_range`` where there are two classes; `for_classes` puts it there.
    target_range, largest_error : tuple of (float, float) and float, optional
        Range of the targets and largest absolute error; `with_target_range` puts them there.
    alike_rows : bool, default=False
        Of a mean loss of classes: whether no split drew the rows by strata (`with_alike_rows`).
    pos_label : str or number, optional
        Of a binary metric the class that it is about (`with_pos_label`): canonical targets and
        predictions are 1 for it, and scores are of it.

    Raises
    ------
    InvalidArgument
        If the settings contradict each other.

    Examples
    --------
    >>> from sklearn.metrics import cohen_kappa_score
    >>> kappa = Metric("kappa", "labels", score=cohen_kappa_score, loss_range=(0, 2), offset=1)
    >>> classes = kappa.classes_of(["no", "yes", "yes", "no"])
    >>> y = kappa.targets(["no", "yes", "yes", "no"], classes)
    >>> predictions = kappa.canonical(["no", "yes", "no", "no"], n=4, classes=classes)
    >>> kappa.to_score(kappa.evaluate(y, predictions).risk)
    0.5
    """

    def classes_of(self, y: Any, classes: Any = None) -> Array | None:
        """Return the sorted classes, None for a regression metric.

        Parameters
        ----------
        y : array-like of shape (n,)
            Labels: text or whole numbers.
        classes : array-like of shape (C,), optional
            All classes there are, if ``y`` may lack some.

        Returns
        -------
        ndarray of shape (C,) or None

        Raises
        ------
        InvalidArgument
            If the labels cannot be read, or some are not among ``classes``.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("accuracy").classes_of([2, 1, 2], classes=[1, 2, 3])
        array([1, 2, 3])
        """
        if not self.is_classification:
            return None
        return forms.sorted_classes(y, classes)

    def positive_last(self, classes: Array) -> Array:
        """Return the classes in the order in which this metric counts them.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> f1, classes = get_metric("f1"), np.array(["bad", "good"])
        >>> f1.with_pos_label("bad").positive_last(classes).tolist()
        ['good', 'bad']
        """
        if self.pos_label is None:
            return classes
        places = forms.class_codes([self.pos_label], classes)
        if places == [-1] or len(classes) != 2:
            allowed = "one of the two classes of y"
            raise InvalidArgument("pos_label", allowed, as_given(self.pos_label))
        return classes[::-1] if places == [0] else classes

    def positive_place(self, classes: Array | None) -> int:
        """Return the place of the positive one of two sorted classes.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("f1").with_pos_label(0).positive_place(np.array([0, 1]))
        0
        """
        if classes is None or self.pos_label is None:
            return 1
        return int(self.positive_last(classes)[1] == classes[1])

    def _indexed(self, targets: Array, *sides: Any) -> Array:
        """Return targets with the first index of these, for a function of the user's."""
        if measuring.is_ours(self):
            return targets
        indexes = (forms.index_of(side) for side in sides)
        return forms.indexed(targets, next((one for one in indexes if one is not None), None))

    def _relevant(self, classes: Array | None) -> Array | None:
        """Return the classes, None for regression: on a holdout of 0 and 1 both may be asked."""
        if not self.is_classification:
            return None
        if not (
            isinstance(classes, np.ndarray) and classes.ndim == 1 and classes.dtype.kind in "biufU"
        ):
            raise InvalidArgument("classes", "what classes_of returned", as_given(classes))
        return classes

    def targets(self, y: Any, classes: Array | None) -> Array:
        """Return the targets in canonical form.

        Parameters
        ----------
        y : array-like of shape (n,), or (n, m) for some regression metrics
            Labels or measured values.
        classes : ndarray of shape (C,) or None
            What `classes_of` returned.

        Returns
        -------
        ndarray
            Positions of the labels in ``classes`` (intp, shape (n,)), or float64 values.

        Raises
        ------
        InvalidArgument
            If the targets cannot be read, or the metric has no value on them even for
            perfect predictions.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("accuracy").targets(["b", "a"], np.array(["a", "b"]))
        array([1, 0])
        """
        targets = self._indexed(self._readable(y, classes), y)
        _check_defined(self, targets, self._relevant(classes))
        return targets

    def respond(
        self, estimator: Any, X: Any, classes: Array | None, answers: dict[str, Any] | None = None
    ) -> Array:
        """Return the raw predictions of a fitted estimator for this metric.

        Parameters
        ----------
        estimator : object
            Anything fitted with the method that `response` asks for.
        X : array-like of shape (n, ...)
            Rows. The estimator is given a copy of them.
        classes : ndarray of shape (C,) or None
            What `classes_of` returned. Columns of probabilities follow it; a class the
            estimator does not know gets a column of zeros.
        answers : dict, optional
            Is given what each method of the estimator returned for these rows, which other
            metrics then need not call again.

        Returns
        -------
        ndarray

        Raises
        ------
        InvalidSubmission
            If the estimator lacks the method or knows a class that ``classes`` lacks.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> from ladderholdout.metrics import get_metric
        >>> model = DummyClassifier().fit([[0], [1], [2]], [0, 1, 1])
        >>> get_metric("accuracy").respond(model, [[3]], np.array([0, 1]))
        array([1])
        """
        known = self._relevant(classes)
        return responses.respond(
            estimator, X, self.response, known, answers, self.positive_place(known)
        )

    def canonical(self, predictions: Any, n: int, classes: Array | None) -> Array:
        """Return predictions in canonical form: equal predictions have equal bytes.

        Parameters
        ----------
        predictions : array-like
            Labels, class probabilities, scores of the second class, or values, as
            `response` states. For two classes, (n,) probabilities of the second are fine.
        n : int
            Number of rows.
        classes : ndarray of shape (C,) or None
            What `classes_of` returned.

        Returns
        -------
        ndarray
            int32 positions in ``classes`` (n,), or float64 of shape (n, C), (n,) or (n, m);
            C-contiguous, without -0.0, and the caller's own.

        Raises
        ------
        InvalidSubmission
            If they have another form, length or range, or nan or infinity.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("accuracy").canonical(["b", "b", "a"], n=3, classes=np.array(["a", "b"]))
        array([1, 1, 0], dtype=int32)
        """
        classes = self._relevant(classes)
        if classes is None:
            return forms.canonical_values(predictions, n, self.multioutput, self.support)
        if self.response == "labels":
            codes = forms.canonical_labels(predictions, n, classes)
            return codes if self.positive_place(classes) else 1 - codes
        if self.response == "probabilities":
            logs = self.loss is log_loss
            return forms.canonical_probabilities(predictions, n, classes, logs=logs)
        return forms.canonical_scores(predictions, n, self.positive_last(classes))

    def as_submitted(self, canonical: Array, classes: Array | None) -> Any:
        """Return predictions in a form of which `canonical` makes the same again.

        Parameters
        ----------
        canonical : ndarray
            What `canonical` returned.
        classes : ndarray of shape (C,) or None
            What `classes_of` returned.

        Returns
        -------
        array-like

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout.metrics import get_metric
        >>> codes, classes = np.array([1, 0], dtype=np.int32), np.array(["a", "b"])
        >>> get_metric("accuracy").as_submitted(codes, classes).tolist()
        ['b', 'a']
        """
        classes = self._relevant(classes)
        if self.loss is log_loss:
            for kind in (np.float16, np.float32):  # in which it came, or might have come
                eps, short = float(np.finfo(kind).eps), canonical.astype(kind)
                inside = eps <= canonical.min() and canonical.max() <= 1 - eps
                if inside and np.array_equal(short, canonical):
                    return short
        if classes is None or self.response != "labels":
            return canonical
        return self.positive_last(classes)[canonical]

    def evaluate(
        self, targets: Array, predictions: Array, weights: ArrayLike | None = None
    ) -> Evaluation:
        """Evaluate one submission.

        Parameters
        ----------
        targets, predictions : ndarray
            In canonical form.
        weights : array-like of shape (n,), optional
            The holdout's own weights. The losses are multiplied by them, scaled to a
            mean of 1, so the mean of the losses stays the risk (and a loss may leave
            `loss_range` by that factor).

        Returns
        -------
        Evaluation

        Raises
        ------
        InvalidSubmission
            If the metric has no finite value for these predictions.
        InvalidArgument
            If a loss is outside of the stated range, or weights are unusable.
        MetricError
            If its function failed other than with a ValueError or an ArithmeticError.

        Examples
        --------
        >>> import numpy as np
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("accuracy").evaluate(np.array([0, 1, 1, 0]), np.array([0, 1, 0, 0])).risk
        0.25
        """
        for argument, array in (("targets", targets), ("predictions", predictions)):
            if (
                not isinstance(array, np.ndarray)
                or array.ndim == 0
                or array.dtype.kind not in "iuf"
            ):
                raise InvalidArgument(argument, "in canonical form", as_given(array))
        if len(predictions) != len(targets) or (
            not self.is_classification and predictions.shape != targets.shape
        ):
            allowed = f"of the shape of the targets, {targets.shape}"
            raise InvalidSubmission("predictions", allowed, f"of shape {predictions.shape}")
        row_weights = None if weights is None else checked_weights(weights, len(targets), "weights")
        return measuring.measure(self, targets, predictions, row_weights)

    def score_of(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        answers: dict[str, Any] | None = None,
    ) -> float:
        """Score a fitted estimator plainly on any rows, as scikit-learn's scorer does.

        Where the metric has no value on these rows (R2 of one row, AUC of one class) it is nan,
        with scikit-learn's UndefinedMetricWarning.

        Parameters
        ----------
        estimator : object
            A fitted estimator.
        X : array-like of shape (n, ...)
            Rows.
        y : array-like of shape (n,) or (n, m)
            Their targets.
        sample_weight : array-like of shape (n,), optional
        answers : dict, optional
            As of `respond`.

        Returns
        -------
        float
            Greater is better.

        Raises
        ------
        InvalidArgument
            If the metric is not defined here.

        Examples
        --------
        >>> from sklearn.dummy import DummyClassifier
        >>> from ladderholdout.metrics import get_metric
        >>> X, y = [[0], [1], [2]], ["no", "yes", "yes"]
        >>> round(get_metric("f1").score_of(DummyClassifier().fit(X, y), X, y), 2)
        0.8
        """
        classes = None
        if self.is_classification:
            classes = forms.union_of_classes(y, responses.known_classes(estimator))
        targets = self._indexed(self._readable(y, classes), y, X)
        known = self._relevant(classes)
        asked = estimator, X, self.response, known, answers, self.positive_place(known)
        answer = responses.respond(*asked, copies=False)
        return self._scored(targets, answer, classes, sample_weight)

    def score_from(self, y: Any, predictions: Any, sample_weight: Any = None) -> float:
        """Score predictions plainly on any rows, as scikit-learn's functions do.

        Where the metric has no value on these rows it is nan, as of `score_of`.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, m)
            The targets.
        predictions : array-like
            As `response` states.
        sample_weight : array-like of shape (n,), optional

        Returns
        -------
        float
            Greater is better.

        Raises
        ------
        InvalidArgument
            If the metric is not defined here.

        Examples
        --------
        >>> from ladderholdout.metrics import get_metric
        >>> get_metric("neg_mean_absolute_error").score_from([1.0, 2.0], [1.5, 2.0])
        -0.25
        """
        classes = None
        if self.is_classification:
            labels = forms.sorted_classes(predictions) if self.response == "labels" else None
            classes = forms.union_of_classes(y, labels)
        targets = self._indexed(self._readable(y, classes), y)
        return self._scored(targets, predictions, classes, sample_weight)

    def _scored(self, targets: Array, answer: Any, classes: Array | None, weights: Any) -> float:
        predictions = self.canonical(answer, len(targets), classes)
        prepare = self.prepare
        if prepare is average_precision and not (targets == 1).any():
            text = "No positive class found in y_true, recall is set to one for all thresholds."
            warn(text, UserWarning)
            return 0.0
        # What has a value for a ladder alone, which has to answer somehow.
        alone = prepare is r2 and len(targets) < 2
        same = prepare == cohen_kappa and len(np.unique([*targets, *predictions])) == 1
        why = _why_undefined(self, targets, classes)
        if why is None and not (alone or same):
            return self.to_score(self.evaluate(targets, predictions, weights).risk)
        from sklearn.exceptions import UndefinedMetricWarning

        text = f"{self.name} has no value on these rows: {why or 'they are of one value'}."
        warn(text, UndefinedMetricWarning)
        return math.nan

    def _readable(self, y: Any, classes: Array | None) -> Array:
        """Return the targets in canonical form, whether or not the metric has a value on them."""
        classes = self._relevant(classes)
        if classes is None:
            return _target_values(self, y)
        _check_classes(self, classes)
        codes = forms.target_codes(y, classes)
        return codes if self.positive_place(classes) else 1 - codes


def _target_values(metric: MetricSettings, y: Any) -> FloatArray:
    """Return measured targets, float64 of shape (n,) or (n, m)."""
    allowed = "one number for each row" + (" and output" if metric.multioutput else "")
    values = forms.number_array(y, "y", allowed)
    if not 1 <= values.ndim <= 1 + metric.multioutput or values.size == 0:
        raise InvalidArgument("y", allowed, forms.described(values))
    forms.check_magnitude(values, "y")
    check_range(metric.target_range, values)
    support = metric.support
    if support is None:
        return values
    outside = support.count_outside(values, support.targets_may_touch)
    if outside:
        limit = f"{'at least' if support.targets_may_touch else 'above'} {support.lower:g}"
        raise InvalidArgument("y", f"{limit} for {metric.name!r}", f"not so in {outside} places")
    return values


def check_range(target_range: tuple[float, float] | None, targets: Array) -> None:
    """Refuse a range of the target that does not contain all targets.

    Examples
    --------
    >>> check_range((0.0, 5.0), np.array([1.0, 5.0]))
    """
    if target_range is None:
        return
    low, high = target_range
    beyond = int(np.count_nonzero((targets < low) | (targets > high)))
    if beyond:
        raise InvalidArgument(
            "target_range",
            "such that it contains all targets",
            f"one that {beyond} are beyond",
            "State one that contains them; loss_range=(0, high) states the largest error alone, "
            "and larger ones are clipped.",
        )


def _check_classes(metric: MetricSettings, classes: Array) -> None:
    """Refuse a number or an order of classes that the metric cannot work with."""
    two = metric.binary or metric.response == "scores"
    least = 1 if metric.response == "labels" else 2
    if (two and len(classes) != 2) or len(classes) < least:
        allowed = f"of {'exactly' if two else 'at least'} two classes for {metric.name!r}"
        remedy = "Averages over classes, such as 'f1_macro' or 'roc_auc_ovr', take any number."
        raise InvalidArgument("y", allowed, f"of {len(classes)}", remedy if two else "")
    if metric.pos_label is not None:
        return
    if metric.binary and not forms.is_text(classes) and classes[0] == 1:
        allowed = f"labelled with the positive class second for {metric.name!r}"
        remedy = "State the positive class, pos_label=, or label the classes 0 and 1."
        raise InvalidArgument("y", allowed, "labelled with 1 for the first of two", remedy)


def _check_defined(metric: MetricSettings, targets: Array, classes: Array | None) -> None:
    """Refuse targets without a value for perfect predictions now, not at a submission."""
    came = _why_undefined(metric, targets, classes)
    if came is not None:
        remedy = "Every class has to occur; measured targets have to vary."
        raise InvalidArgument("y", f"such that {metric.name!r} has a value", came, remedy)


def _why_undefined(metric: MetricSettings, targets: Array, classes: Array | None) -> str | None:
    """Return why there is no score of these targets, even of perfect predictions, if so."""
    # Where a row has a loss of 0 or 1, there is always a mean.
    if metric.support is not None or metric.loss is zero_one:
        return None
    try:
        measuring.measure(metric, targets, _perfect(metric, targets, classes))
        return None
    except InvalidSubmission as error:
        return f"{error.args[2]}, even for perfect predictions"


def _perfect(metric: MetricSettings, targets: Array, classes: Array | None) -> Array:
    if metric.response == "labels":
        return targets.astype(np.int32)
    if metric.response == "probabilities" and classes is not None:
        return np.asarray(targets[:, None] == np.arange(len(classes)), dtype=np.float64)
    return targets.astype(np.float64)
