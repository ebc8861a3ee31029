"""What people see of several ladders on one holdout: the view of each metric by its name.

What there can only be one of, such as a score in a sentence, is that of the metric named first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from ladderholdout.errors import InvalidArgument, as_given, printable
from ladderholdout.guard.views import (
    Estimate,
    Release,
    ScoreCertificate,
    Status,
    Submission,
    html_table,
    score_line,
)

V = TypeVar("V")
S = TypeVar("S")


def of_metric(found: Mapping[str, V], metric: object) -> V:
    """Return what is under the name of a metric.

    Raises
    ------
    InvalidArgument
        There is no such metric.
    """
    if not isinstance(metric, str) or metric not in found:
        raise InvalidArgument("metric", f"one of {', '.join(map(repr, found))}", as_given(metric))
    return found[metric]


def _several(kind: Callable[..., S], base: type[Any], found: Mapping[str, Any]) -> S:
    """Return the view of several metrics: that of the first, with all of them."""
    first = next(iter(found.values()))
    own = {one.name: getattr(first, one.name) for one in fields(base)}
    return kind(**own, by_metric=dict(found))


def _listed(kind: str, found: Mapping[str, Any]) -> str:
    return f"{kind}({', '.join(f'{name}={one!r}' for name, one in found.items())})"


@dataclass(frozen=True, slots=True, repr=False)
class Releases(Release):
    """The answers to one submission, one for each metric.

    Attributes
    ----------
    by_metric : mapping of str to Release
        In the order in which the metrics were named. ``releases["roc_auc"]`` is one of them.

    Notes
    -----
    The other attributes, and the order of releases, are those of the metric named first.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], ledger="memory",
    ...                         scoring=["roc_auc", "neg_brier_score"])
    >>> releases = holdout.submit([0.1, 0.9, 0.6, 0.5])
    >>> releases["roc_auc"].score, releases["neg_brier_score"].improved
    (0.74, True)
    """

    by_metric: Mapping[str, Release] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, found: Mapping[str, Release]) -> Releases:
        """Bring the releases of several ladders together."""
        return _several(cls, Release, found)

    def __getitem__(self, metric: str) -> Release:
        """Return the release of a metric."""
        return of_metric(self.by_metric, metric)

    def lines(self) -> list[tuple[str, str]]:
        """Return the releases as (what, value) pairs, for printing."""
        found = []
        for name, one in self.by_metric.items():
            came = "improved" if one.improved else "not improved"
            found.append((name, f"{score_line(one.score)} (submission {one.submission}, {came})"))
            if one.releases_left is not None:
                found.append((f"{name}: releases left", str(one.releases_left)))
        if any(one.opened for one in self.by_metric.values()):
            found.append(("opened", "raw scores were shown before: only a reserve can certify it"))
        return found

    def __repr__(self) -> str:
        return _listed("Releases", self.by_metric)


@dataclass(frozen=True, slots=True, repr=False)
class ScoreCertificates(ScoreCertificate):
    """Certificates of the incumbents of several metrics, which hold together.

    Attributes
    ----------
    by_metric : mapping of str to ScoreCertificate
        Each is about the incumbent of its own metric, which may be another submission.

    Notes
    -----
    With a probability of at least `confidence` all of them hold at once: see
    `LadderHoldout.certificate`. The other attributes are those of the metric named first.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], ledger="memory",
    ...                         scoring=["roc_auc", "neg_brier_score"])
    >>> _ = holdout.submit([0.1, 0.9, 0.6, 0.5])
    >>> sorted(holdout.certificate().by_metric)
    ['neg_brier_score', 'roc_auc']
    """

    by_metric: Mapping[str, ScoreCertificate] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, found: Mapping[str, ScoreCertificate]) -> ScoreCertificates:
        """Bring the certificates of several ladders together."""
        return _several(cls, ScoreCertificate, found)

    def __getitem__(self, metric: str) -> ScoreCertificate:
        """Return the certificate of a metric."""
        return of_metric(self.by_metric, metric)

    def line(self) -> str:
        """Return them in one line."""
        return "; ".join(f"{name}: {one.line()}" for name, one in self.by_metric.items())

    def __str__(self) -> str:
        parts = [f"{name}: {one}" for name, one in self.by_metric.items()]
        parts.append(
            f"All certificates of this holdout hold together with a confidence of "
            f"{self.confidence:g}."
        )
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return _listed("ScoreCertificates", self.by_metric)

    def _repr_html_(self) -> str:
        return html_table((name, one.line()) for name, one in self.by_metric.items())


@dataclass(frozen=True, slots=True, repr=False)
class Estimates(Estimate):
    """The corrected scores of the incumbents of several metrics; no certificates.

    Attributes
    ----------
    by_metric : mapping of str to Estimate

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], ledger="memory",
    ...                         scoring=["roc_auc", "neg_brier_score"])
    >>> _ = holdout.submit([0.1, 0.9, 0.6, 0.5])
    >>> holdout.estimate()["roc_auc"].score is None
    True
    """

    by_metric: Mapping[str, Estimate] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, found: Mapping[str, Estimate]) -> Estimates:
        """Bring the corrected scores of several ladders together."""
        return _several(cls, Estimate, found)

    def __getitem__(self, metric: str) -> Estimate:
        """Return the corrected score of a metric."""
        return of_metric(self.by_metric, metric)

    def line(self) -> str:
        """Return them in a line."""
        return "; ".join(f"{name}: {one.line()}" for name, one in self.by_metric.items())

    def __repr__(self) -> str:
        return _listed("Estimates", self.by_metric)


@dataclass(frozen=True, slots=True, repr=False)
class JointSubmission(Submission):
    """One submission to several ladders, as the analyst may see it.

    Attributes
    ----------
    by_metric : mapping of str to Submission
        The entry of each metric that it was submitted to.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], ledger="memory",
    ...                         scoring=["roc_auc", "neg_brier_score"])
    >>> _ = holdout.submit([0.1, 0.9, 0.6, 0.5])
    >>> holdout.history()[0]["roc_auc"].score
    0.74
    """

    by_metric: Mapping[str, Submission] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, found: Mapping[str, Submission]) -> JointSubmission:
        """Bring the entries of one submission on several ladders together."""
        return _several(cls, Submission, found)

    def __getitem__(self, metric: str) -> Submission:
        """Return the entry of a metric."""
        return of_metric(self.by_metric, metric)

    def __repr__(self) -> str:
        return _listed("JointSubmission", self.by_metric)


@dataclass(frozen=True, slots=True, repr=False)
class Statuses(Status):
    """The state of several ladders, and what else queried their holdout.

    Attributes
    ----------
    by_metric : mapping of str to Status

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2], [3]], [0, 1, 0, 1], ledger="memory",
    ...                         scoring=["roc_auc", "neg_brier_score"])
    >>> _ = holdout.submit([0.1, 0.9, 0.6, 0.5])
    >>> holdout.status()["roc_auc"].submissions
    1
    """

    by_metric: Mapping[str, Status] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, found: Mapping[str, Status]) -> Statuses:
        """Bring the states of several ladders together."""
        return _several(cls, Status, found)

    def __getitem__(self, metric: str) -> Status:
        """Return the status of a metric."""
        return of_metric(self.by_metric, metric)

    def lines(self) -> list[tuple[str, str]]:
        """Return the status as (what, value) pairs, for printing: each metric, then the rest."""
        found = [("holdout", f"{self.name} ({self.n} rows, fingerprint {self.fingerprint[:12]})")]
        for name, one in self.by_metric.items():
            own = name if name == one.metric else f"{name} ({one.metric})"
            found.append(("metric", printable(own)))
            found += [(f"  {what}", value) for what, value in one.ladder_lines()]
        return [*found, *self.holdout_lines()]

    def __repr__(self) -> str:
        return _listed("Statuses", self.by_metric)
