"""`OfMetrics`: what is shown of several metrics is a mapping in what is shown of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Self, TypeVar

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, InvalidSubmission

ALONE = ""
"""The name of the metric of a holdout that has one."""


@dataclass(frozen=True, slots=True, repr=False)
class OfMetrics:
    """What is shown of a ladder, and of several ladders for the metrics of one holdout.

    Attributes
    ----------
    by_metric : mapping of str to the same kind
        What is shown of each metric, where a holdout has several, in the order in which they were
        named: ``releases["roc_auc"]`` is one of them. All other attributes are those of the
        metric named first. Empty where the holdout has one metric.

    Notes
    -----
    Releases of several metrics are ordered as those of the metric named first. Certificates of
    several metrics hold all at once, with a probability of at least their `confidence`; each is
    about the incumbent of its own metric, which may be another submission.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], ledger="memory",
    ...                         scoring=["roc_auc", "neg_brier_score"])
    >>> releases = holdout.submit([0.1, 0.9, 0.6, 0.5])
    >>> releases["roc_auc"].score, releases["neg_brier_score"].improved
    (0.74, True)
    >>> holdout.history()[0]["roc_auc"].score, holdout.status()["roc_auc"].submissions
    (0.74, 1)
    >>> sorted(holdout.certificate().by_metric)
    ['neg_brier_score', 'roc_auc']
    """

    by_metric: Mapping[str, Self] = field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )

    def __getitem__(self, metric: str) -> Self:
        """Return what is shown of one of several metrics."""
        if not self.by_metric:
            raise InvalidArgument(
                "metric",
                "left out on a holdout of one metric",
                as_given(metric),
                "Of several metrics, scoring=[...], each has its own answers.",
            )
        return of_metric(self.by_metric, metric)

    def __repr__(self) -> str:
        shown = self.by_metric or {
            one.name: getattr(self, one.name) for one in fields(self) if one.repr
        }
        values = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({values})"


V = TypeVar("V")
S = TypeVar("S", bound=OfMetrics)


def together(by_metric: Mapping[str, S]) -> S:
    """Return what is shown of several metrics, or of one `ALONE`, by what is shown of each.

    Examples
    --------
    >>> from ladderholdout.guard.views import Estimate
    >>> both = together({"a": Estimate(0.9, "", 1, None, 1), "b": Estimate(0.8, "", 1, None, 1)})
    >>> both.score, both["b"].score
    (0.9, 0.8)
    """
    first = next(iter(by_metric.values()))
    return first if ALONE in by_metric else replace(first, by_metric=dict(by_metric))


def of_metric(by_metric: Mapping[str, V], metric: object) -> V:
    """Return what is under the name of a metric.

    Raises
    ------
    InvalidArgument
        There is no such metric.
    """
    if not isinstance(metric, str) or metric not in by_metric:
        allowed = f"one of {', '.join(map(repr, by_metric))}"
        raise InvalidArgument("metric", allowed, as_given(metric))
    return by_metric[metric]


@contextmanager
def naming(metric: str) -> Iterator[None]:
    """Name one of several metrics in a refusal of predictions."""
    try:
        yield
        return
    except InvalidSubmission as refused:
        if metric == ALONE:
            raise
        argument, *rest = refused.args
        error = InvalidSubmission(f"{argument} for {metric!r}", *rest)
    raise error
