"""The metrics by name: scikit-learn's names, three correlations, kappa and two F scores."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, did_you_mean
from ladderholdout.metrics import scores as of
from ladderholdout.metrics.arrays import Support
from ladderholdout.metrics.metric import Metric
from ladderholdout.metrics.settings import Response

_UNIT, _DOUBLE = (0.0, 1.0), (0.0, 2.0)
_ABOVE_MINUS_1, _ABOVE_0, _FROM_0 = Support(-1.0), Support(0.0), Support(0.0, True)


def _score(name: str, response: Response, prepare: Callable[..., Any], **settings: Any) -> Metric:
    return Metric(name, response, score=of.WeightedScore(prepare), **settings)


_hits = partial(Metric, response="labels", loss=of.zero_one, loss_range=_UNIT, offset=1.0)
_labels = partial(_score, response="labels", loss_range=_UNIT, offset=1.0)
_binary = partial(_score, response="scores", loss_range=_UNIT, offset=1.0)
_multiclass = partial(_score, response="probabilities", loss_range=_UNIT, offset=1.0)
_errors = partial(Metric, response="values")
_values = partial(_score, response="values")
_correlation = partial(_values, loss_range=_DOUBLE, offset=1.0)

_CLASSIFICATION = [
    _hits("accuracy"),
    _labels("balanced_accuracy", prepare=of.balanced_accuracy),
    _labels("matthews_corrcoef", prepare=of.matthews, loss_range=_DOUBLE),
    _labels("cohen_kappa", prepare=of.cohen_kappa, loss_range=_DOUBLE),
    *(
        _labels(f"f{beta:g}", prepare=of.Averaged(of.FBeta(beta), "binary"), binary=True)
        for beta in (0.5, 2.0)
    ),
    Metric("neg_log_loss", "probabilities", of.log_loss),
    Metric("neg_brier_score", "probabilities", of.brier, loss_range=_DOUBLE, two_class_range=_UNIT),
    *(
        _labels(ratio.__name__, prepare=of.Averaged(ratio, "binary"), binary=True)
        for ratio in (of.f1, of.precision, of.recall, of.jaccard)
    ),
    *(
        _labels(f"{ratio.__name__}_{average}", prepare=of.Averaged(ratio, average))
        for ratio in (of.f1, of.precision, of.recall, of.jaccard)
        for average in ("macro", "weighted")
    ),
    _labels("jaccard_micro", prepare=of.Averaged(of.jaccard, "micro")),
    # With one label a row these three are the accuracy. As means of losses they get the
    # sharper mechanism and an exact certificate.
    *(_hits(name) for name in ("f1_micro", "precision_micro", "recall_micro")),
]

_RANKING = [
    _binary("roc_auc", prepare=of.roc_auc),
    _binary("average_precision", prepare=of.average_precision, binary=True),
    _multiclass("roc_auc_ovr", prepare=of.MulticlassAuc(pairs=False, by_prevalence=False)),
    _multiclass("roc_auc_ovr_weighted", prepare=of.MulticlassAuc(pairs=False, by_prevalence=True)),
    _multiclass("roc_auc_ovo", prepare=of.MulticlassAuc(pairs=True, by_prevalence=False)),
    _multiclass("roc_auc_ovo_weighted", prepare=of.MulticlassAuc(pairs=True, by_prevalence=True)),
]

_in_units = partial(_errors, in_units_of_y=True)
_REGRESSION = [
    _in_units("neg_mean_squared_error", loss=of.squared, multioutput=True),
    _in_units("neg_mean_absolute_error", loss=of.absolute, multioutput=True),
    # scikit-learn averages the roots of the outputs, which is no root of one mean: so the
    # two roots take one output.
    _in_units("neg_root_mean_squared_error", loss=of.squared, root=True),
    _errors(
        "neg_root_mean_squared_log_error", loss=of.squared_log, root=True, support=_ABOVE_MINUS_1
    ),
    _errors(
        "neg_mean_squared_log_error", loss=of.squared_log, multioutput=True, support=_ABOVE_MINUS_1
    ),
    _errors("neg_mean_absolute_percentage_error", loss=of.absolute_percentage, multioutput=True),
    _in_units("neg_mean_poisson_deviance", loss=of.poisson_deviance, support=_FROM_0),
    _errors("neg_mean_gamma_deviance", loss=of.gamma_deviance, support=_ABOVE_0),
    _values("r2", prepare=of.r2, offset=1.0, multioutput=True),
    _values("explained_variance", prepare=of.explained_variance, offset=1.0, multioutput=True),
    _values(
        "neg_median_absolute_error", prepare=of.median_error, in_units_of_y=True, multioutput=True
    ),
    _values("neg_max_error", prepare=of.max_error, in_units_of_y=True),
    _correlation("pearson", prepare=of.pearson),
    _correlation("spearman", prepare=of.spearman),
    _correlation("concordance", prepare=of.concordance),
]

METRICS: Mapping[str, Metric] = MappingProxyType(
    {metric.name: metric for metric in [*_CLASSIFICATION, *_RANKING, *_REGRESSION]}
)
"""The named metrics, read-only."""


def get_metric(scoring: str | Metric) -> Metric:
    """Return a metric by its name; a `Metric` is returned as it is.

    Parameters
    ----------
    scoring : str or Metric
        A name in `METRICS`, or a metric of your own.

    Returns
    -------
    Metric

    Raises
    ------
    InvalidArgument
        If there is no such name, or it is a scorer or a plain function.

    Examples
    --------
    >>> get_metric("roc_auc").response
    'scores'
    """
    if isinstance(scoring, Metric):
        return scoring
    if isinstance(scoring, str):
        return _named(str.__str__(scoring))
    name = _meant(_name_of(scoring))
    named = "" if name is None else f" Or its name, if that is what it is: scoring={name!r}."
    remedy = (
        "A scorer hides what the guard has to know: give Metric(name, response, score=function), "
        f"or loss=function for a mean of per-example losses.{named}"
    )
    came = f"a {type(scoring).__name__}"
    raise InvalidArgument("scoring", "the name of a metric, or a Metric", came, remedy)


def is_named(metric: Metric) -> bool:
    """Return whether a metric is one of the table, but for what a caller states of the data."""
    known = METRICS.get(metric.name)
    if known is None:
        return False
    plain = replace(
        metric,
        loss_range=known.loss_range,
        clip=known.clip,
        target_range=None,
        largest_error=None,
        alike_rows=False,
        pos_label=None,
    )
    return plain == known


def _named(name: str) -> Metric:
    if name in METRICS:
        return METRICS[name]
    meant = _meant(name)
    # Without endings that metrics of all kinds share, which would make them alike.
    core = re.sub(r"_(score|loss|error)$", "", name, flags=re.IGNORECASE)
    remedy = f"Did you mean {meant!r}?" if meant else did_you_mean(core, METRICS)
    remedy = remedy or "ladderholdout.metrics.METRICS lists them."
    raise InvalidArgument("scoring", f"one of the {len(METRICS)} names", as_given(name), remedy)


_CALLED = {
    "acc": "accuracy",
    "ap": "average_precision",
    "auc": "roc_auc",
    "auprc": "average_precision",
    "auroc": "roc_auc",
    "balanced_acc": "balanced_accuracy",
    "brier": "neg_brier_score",
    "ccc": "concordance",
    "cross_entropy": "neg_log_loss",
    "f0_5": "f0.5",
    "fbeta": "f2",
    "kappa": "cohen_kappa",
    "logloss": "neg_log_loss",
    "mae": "neg_mean_absolute_error",
    "mape": "neg_mean_absolute_percentage_error",
    "mcc": "matthews_corrcoef",
    "medae": "neg_median_absolute_error",
    "mse": "neg_mean_squared_error",
    "msle": "neg_mean_squared_log_error",
    "pearsonr": "pearson",
    "pr_auc": "average_precision",
    "r_2": "r2",
    "rmse": "neg_root_mean_squared_error",
    "rmsle": "neg_root_mean_squared_log_error",
    "spearmanr": "spearman",
    "zero_one": "accuracy",
}
"""What metrics are called elsewhere, without ``neg_``, ``_score`` and ``_loss``."""


def _meant(name: str | None) -> str | None:
    """Return the metric that another name means, such as that of a function of scikit-learn.

    >>> _meant("f1_score"), _meant("RMSE"), _meant("mean-squared-error"), _meant("dice")
    ('f1', 'neg_root_mean_squared_error', 'neg_mean_squared_error', None)
    """
    if name is None:
        return None
    plain = re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")
    short = re.sub(r"^neg(ative)?_|(_score|_loss|_error)$", "", plain)
    core = re.sub(r"^neg(ative)?_|(_score|_loss)$", "", plain)
    for known in (plain, f"neg_{plain}", core, f"neg_{core}", short):
        if known in METRICS:
            return known
    return _CALLED.get(core) or _CALLED.get(short)


def _name_of(scorer: Any) -> str | None:
    """Return what a function, or the function of a scorer, is called; None where that is hidden."""
    with suppress(Exception):  # of whatever kind it is
        function = scorer.func if isinstance(scorer, partial) else scorer
        made = re.match(r"make_scorer\((\w+)", repr(scorer))
        name = made[1] if made else getattr(function, "__name__", None)
        average = re.search(r"average='?(\w+)'?", repr(scorer)) if made else None
        if average is not None and average[1] in ("macro", "micro", "weighted"):
            name = f"{_meant(name)}_{average[1]}"
        return name if isinstance(name, str) else None
    return None
