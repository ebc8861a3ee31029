"""What people see of a ladder: frozen views, built from releases alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ladderholdout.errors import printable
from ladderholdout.guard.certificate import OfMetrics, ScoreCertificate, html_table, in_one_line
from ladderholdout.ledger.fold import Head, Overlap, block_name, parted_name
from ladderholdout.metrics import Metric

RAW_POLICIES = ("live", "sealed")
"""When raw scores may leave the ledger: as they come, or not before an audit."""

TOGETHER = "together"
"""In the context of a submission: its number on each of the ladders that it was submitted to."""
NOT_ASKED = "not asked for; reveal shows it, and later certificates pay for that"
"""What is shown in place of a score that a ladder shows on demand alone."""

AN_OLDER_COPY = (
    "an older copy of the ledger was put in place: not all that was released is on record"
)
"""Why nothing that was chosen after that is certified."""


def score_of(risk: float | None, metric: Metric) -> float | None:
    """Show a released risk in the metric's own sign, if it may be shown.

    Parameters
    ----------
    risk : float or None
        None where it was not requested.
    metric : Metric

    Returns
    -------
    float or None

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> score_of(0.25, get_metric("accuracy")), score_of(None, get_metric("accuracy"))
    (0.75, None)
    """
    return None if risk is None else metric.to_score(risk)


def overtaken(incumbent: int | None) -> str:
    """Return the sentences on a submission that was the incumbent, where another one is.

    Examples
    --------
    >>> print(overtaken(7))
    It is not any more: the incumbent is submission 7 (see holdout.history(after=6, limit=1)). The \
released score and its certificate are that model's.
    """
    return (
        f"It is not any more: {incumbent_named(incumbent)}. The released score and its certificate "
        "are that model's."
    )


def score_line(score: float | None) -> str:
    """Return a released score as text, or how to see it.

    Examples
    --------
    >>> score_line(0.91234567)
    '0.912346'
    """
    return NOT_ASKED if score is None else f"{score:.6g}"


def incumbent_named(incumbent: int | None) -> str:
    """Name the incumbent in a sentence, and where more is to be seen of it.

    Examples
    --------
    >>> incumbent_named(7)
    'the incumbent is submission 7 (see holdout.history(after=6, limit=1))'
    """
    if incumbent is None:
        return "the ladder has no incumbent yet"
    shown = f"see holdout.history(after={incumbent - 1}, limit=1)"
    return f"the incumbent is submission {incumbent} ({shown})"


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(OfMetrics):
    """The incumbent's score corrected for its selection within a batch; no certificate.

    Attributes
    ----------
    score : float or None
        In the metric's own sign and units, rounded; None where there is none.
    method : str
    n_bootstrap : int
        Draws of the rows.
    batch : str or None
        The batch in which it was selected; None for a single query.
    submissions : int
        How many distinct submissions the batch has.
    reason : str or None
        Why there is no estimate, and what gives a score instead.

    Examples
    --------
    >>> print(Estimate(0.91, "bootstrap", 300, None, 5).line())
    0.91 (corrected for the choice among 5; no certificate)
    """

    score: float | None
    method: str
    n_bootstrap: int
    batch: str | None
    submissions: int
    reason: str | None = None

    def line(self) -> str:
        """Return it in a line.

        Examples
        --------
        >>> Estimate(0.91, "bootstrap", 300, None, 5).line()
        '0.91 (corrected for the choice among 5; no certificate)'
        """
        if self.by_metric:
            return in_one_line(self.by_metric)
        if self.reason is not None:
            return f"none: {self.reason}"
        return (
            f"{self.score:.4g} (corrected for the choice among {self.submissions}; no certificate)"
        )

    def __str__(self) -> str:
        return f"Estimate: {self.line()}."

    def _repr_html_(self) -> str:
        return html_table([("estimate", self.line())])


@dataclass(frozen=True, slots=True, repr=False)
class Release(OfMetrics):
    """The answer to one submission.

    Attributes
    ----------
    score : float or None
        The released score after it, in the metric's own sign and units; None where the ladder
        shows improvements alone: `LadderHoldout.reveal` shows it.
    improved : bool
        Whether this submission improved it.
    submission : int
        The number under which the ledger keeps the submission.
    releases_left : int or None
        What is left of the ladder's budget; None without one.
    opened : bool
        Whether an audit had shown raw scores of the ladder before: then the submission is
        on record, and can be certified by a reserve alone.
    improvements : int
        How many submissions had improved the ladder by then; for predictions that improved it
        when they were submitted first, by that time.
    repeat_of : int or None
        The first submission of the same predictions. A repeat improves nothing and costs nothing:
        no certificate, gate or forecast counts it.
    is_incumbent : bool
        Whether these predictions are the incumbent's now: keep the model.
    has_held : bool
        Whether these predictions have ever become the incumbent.

    Notes
    -----
    Releases of one ladder are ordered: a later incumbent above an earlier
    one, and both above all that were none, which are equal. So ``max`` finds the
    incumbent if it is among them: see that its ``is_incumbent`` is true. Do not compare by
    ``score``, which a submission that did not improve shares with the incumbent.

    Examples
    --------
    >>> Release(score=0.91, improved=True, submission=1, releases_left=None)
    Release(score=0.91, improved=True, submission=1, releases_left=None)
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit([0, 1]), holdout.submit([1, 0])]
    >>> max(reversed(releases)).improved
    True
    """

    score: float | None
    improved: bool
    submission: int
    releases_left: int | None
    opened: bool = field(default=False, repr=False)
    improvements: int = field(default=0, repr=False, compare=False)
    repeat_of: int | None = field(default=None, repr=False)
    is_incumbent: bool = field(default=False, repr=False)
    has_held: bool = field(default=False, repr=False, compare=False)

    def __lt__(self, other: Release) -> bool:
        return self._rank < other._rank if isinstance(other, Release) else NotImplemented

    def __le__(self, other: Release) -> bool:
        return self._rank <= other._rank if isinstance(other, Release) else NotImplemented

    def __gt__(self, other: Release) -> bool:
        return self._rank > other._rank if isinstance(other, Release) else NotImplemented

    def __ge__(self, other: Release) -> bool:
        return self._rank >= other._rank if isinstance(other, Release) else NotImplemented

    @property
    def _rank(self) -> int:
        """The number of the improvement that it is or repeats, 0 for none."""
        return self.improvements if self.improved or self.has_held else 0

    def lines(self) -> list[tuple[str, str]]:
        """Return the release as (what, value) pairs, for printing.

        Examples
        --------
        >>> Release(score=0.91, improved=True, submission=1, releases_left=None).lines()
        [('released score', '0.91'), ('submission', '1, improved')]
        """
        lines = []
        for name, release in self.by_metric.items():
            shown = f"{score_line(release.score)} (submission {release.submission}"
            lines.append((name, f"{shown}, {release._outcome()})"))
            if release.releases_left is not None:
                lines.append((f"{name}: releases left", str(release.releases_left)))
        if not self.by_metric:
            lines.append(("released score", score_line(self.score)))
            lines.append(("submission", f"{self.submission}, {self._outcome()}"))
            if self.releases_left is not None:
                lines.append(("releases left", str(self.releases_left)))
        if any(one.opened for one in self.by_metric.values() or [self]):
            lines.append(("opened", "raw scores were shown before: only a reserve can certify it"))
        return lines

    def _outcome(self) -> str:
        if self.repeat_of is None or self.improved:
            return "improved" if self.improved else "not improved"
        what = ", the incumbent" if self.is_incumbent else ""
        return f"a repeat of submission {self.repeat_of}{what}"

    def _repr_html_(self) -> str:
        return html_table(self.lines())


@dataclass(frozen=True, slots=True, repr=False)
class Submission(OfMetrics):
    """One line of the history, as the analyst may see it.

    Attributes
    ----------
    number : int
    time : datetime
        In UTC.
    account : str
    batch : str or None
        Shared by submissions that were all chosen before any feedback on any of them.
    score : float or None
        The released score after it, which is the incumbent's (see `own_score`); None where
        the ladder releases no values and this one was not asked for.
    improved : bool
        Whether it became the incumbent.
    context : Mapping
        Where it came from: estimator, parameters, search.
    withdrawn : str or None
        Why it, or what it repeats, was withdrawn; None where it was not.
    repeat_of : int or None
        The first submission of the same predictions.
    has_held : bool
        Whether these predictions became the incumbent, and were not withdrawn since.
    search : str or None
        Of a search of scikit-learn: shared by the submissions of one round of it.
    place : int or None
        Its place in its batch, from 1, where it has one of its own.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit([0, 1], context={"idea": "all right"})
    >>> holdout.history()[0].context["idea"]
    'all right'
    """

    number: int
    time: datetime
    account: str
    batch: str | None
    score: float | None
    improved: bool
    context: Mapping[str, Any]
    withdrawn: str | None = None
    repeat_of: int | None = None
    search: str | None = None
    place: int | None = None
    has_held: bool = field(default=False, repr=False)

    @property
    def own_score(self) -> float | None:
        """Its own score, which is known only if it became the incumbent.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> _ = holdout.submit([0, 1]), holdout.submit([0, 0])
        >>> [(one.own_score, one.score) for one in holdout.history()]
        [(1.0, 1.0), (None, 1.0)]
        """
        return self.score if self.improved else None

    @property
    def first(self) -> int:
        """The number of the submission that it repeats; its own where it repeats none."""
        return self.repeat_of or self.number


@dataclass(frozen=True, slots=True)
class Unsent:
    """The submissions that a copy of a ladder lacks, and the end of the holdout's chain.

    The ledger is the truth and a tracker's record a copy: raw scores are here only where the caller
    asked for them, and nobody but the writer of an audit experiment has reason to.

    Attributes
    ----------
    submissions : tuple of Submission
        For an auditor's eyes with every released score.
    head : Head or None
        None where the ledger is behind a server, which does not show it.
    later : tuple of int
        Changes whenever something was shown of a submission after it was made: its score, on demand
        or by an audit, a query of the reserve, or its corrected score.
    reserve : mapping
        Scores on the reserve's rows, by the numbers of the submissions that queries were spent on.
    estimates : mapping
        Corrected scores (`LadderHoldout.estimate`) that were asked for.
    raw : mapping
        Empirical scores, for an auditor's eyes.
    """

    submissions: tuple[Submission, ...]
    head: Head | None
    later: tuple[int, int, int]
    reserve: Mapping[int | None, float | None]
    estimates: Mapping[int | None, float | None]
    raw: Mapping[int, float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Status(OfMetrics):
    """The state of a ladder, and what else queried its holdout.

    Attributes
    ----------
    name, fingerprint : str
    n : int
        Rows of the holdout, with those of its reserve.
    account, ladder, metric, mechanism : str
    submissions, releases : int
    budget : int or None
        Releases allowed in all.
    score : float or None
        The released score; None before the first, and where the ladder releases no
        values and it was not asked for.
    incumbent : int or None
        The submission behind it.
    ladders : tuple of (account, ladder, submissions)
        All ladders on this holdout: they count together.
    overlaps : tuple of Overlap
        Other places where rows of this holdout were seen.
    opened : datetime or None
        When an audit showed the raw scores.
    retired : datetime or None
        Since when the holdout takes no submissions.
    latest : tuple of Submission
        The last three submissions to this ladder, oldest first.
    certificate : ScoreCertificate
        What may be believed of the released score, with 95 %.
    ledger : str
        Where the record is kept.
    reserve : int
        Rows among the n that no ladder measures; 0 without a reserve.
    reserve_queries : int
        How often `reserve_certificate` queried them, for all ladders.
    reserve_score : float or None
        What a query of them showed of the incumbent; None before there is one.
    sharing : tuple of (name, rows, queries)
        The holdouts that share rows with this one, how many of its rows they have, and how often
        they were queried: it counts in the certificates of this one.
    restored : tuple of int
        For each time that an older copy of the ledger was found in place, how many links of
        the holdout's chain had been known before.
    estimate : Estimate or None
        The corrected score of the incumbent, once `LadderHoldout.estimate` was asked for it.
    next_release : str
        What a submission has to gain to improve, from the rule and the releases alone; empty
        where nothing was released yet, or nothing will be.
    block : int
        Which block of rows of its holdout this is, from 1 (`LadderHoldout.replenish`).
    spent_at : float or None
        From which width of the certificate on the owner takes the rows for used up, if that was
        stated (`holdout.owner.spent_at`).
    queries : int
        The submissions that certificates count: all but repeats.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit([0, 1])
    >>> for what, value in holdout.status().lines()[4:6]:
    ...     print(what, "|", value)
    ...
    released score | 1 (submission 1)
    certificate | true score in 0.141 to 1.000 (95 %, exact binomial)
    >>> holdout.status().n_ladder, holdout.status().releases_left
    (2, None)
    """

    name: str
    fingerprint: str
    n: int
    account: str
    ladder: str
    metric: str
    mechanism: str
    submissions: int
    releases: int
    budget: int | None
    score: float | None
    incumbent: int | None
    ladders: tuple[tuple[str, str, int], ...]
    overlaps: tuple[Overlap, ...]
    opened: datetime | None
    retired: datetime | None
    latest: tuple[Submission, ...]
    certificate: ScoreCertificate
    ledger: str
    reserve: int
    reserve_queries: int
    reserve_score: float | None
    restored: tuple[int, ...] = ()
    sharing: tuple[tuple[str, int, int], ...] = ()
    estimate: Estimate | None = None
    next_release: str = ""
    block: int = 1
    spent_at: float | None = None
    queries: int = 0

    @property
    def n_ladder(self) -> int:
        """Rows that the ladders measure."""
        return self.n - self.reserve

    @property
    def releases_left(self) -> int | None:
        """What is left of the budget; None without one."""
        return None if self.budget is None else max(0, self.budget - self.releases)

    def lines(self) -> list[tuple[str, str]]:
        """Return the status as (what, value) pairs, for printing.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> holdout.status().lines()[1]
        ('ladder', 'main of account default')
        """
        lines = [("holdout", f"{self.name} ({self.n} rows, fingerprint {self.fingerprint[:12]})")]
        for name, status in self.by_metric.items():
            own = name if name == status.metric else f"{name} ({status.metric})"
            lines.append(("metric", printable(own)))
            lines += [(f"  {what}", value) for what, value in status.ladder_lines()]
        if not self.by_metric:
            lines.append(("ladder", f"{self.ladder} of account {self.account}"))
            lines += [("metric", self.metric), *self.ladder_lines()]
        return lines + self.holdout_lines()

    def ladder_lines(self) -> list[tuple[str, str]]:
        """Return the lines about the ladder alone."""
        releases = str(self.releases)
        if self.budget is not None:
            left = f", {self.releases_left} left"
            releases += f" of {self.budget}"
            releases += left if self.releases_left else ": used up, the released score stays"
        lines = [("mechanism", self.mechanism)]
        if self.incumbent is None:
            lines.append(("released score", "none yet"))
        else:
            shown = f"{score_line(self.score)} (submission {self.incumbent})"
            lines += [("released score", shown), ("certificate", self.certificate.line())]
        if self.estimate is not None:
            lines.append(("estimate", self.estimate.line()))
        lines += [("submissions", str(self.submissions)), ("releases", releases)]
        if self.next_release:
            lines.append(("to improve", self.next_release))
        if self.latest:
            each = ", ".join(f"{one.number} {outcome(one)}" for one in self.latest)
            lines.append(("last answers", f"{each} ({self.latest[-1].time:%Y-%m-%d %H:%M} UTC)"))
        return lines

    def holdout_lines(self) -> list[tuple[str, str]]:
        """Return the lines about the holdout, which all of its ladders share."""
        lines = []
        if self.block > 1:
            whole, last = parted_name(self.name)[0], self.block - 1
            earlier = block_name(whole, 1) + (f" to {block_name(whole, last)}" if last > 1 else "")
            lines.append(("block", f"{self.block}, the rows before it are {earlier}"))
        if self.sharing:
            each = (f"{name} ({rows} rows): {queries}" for name, rows, queries in self.sharing)
            lines.append(("counted with it", f"queries of {', '.join(each)}"))
        if len(self.ladders) > 1:
            others = ", ".join(f"{a}/{name}: {count}" for a, name, count in self.ladders)
            lines.append(("all ladders on it", others))
        lines += self.reserve_lines()
        lines += [("overlap", f"{o.rows} rows with {o.source}") for o in self.overlaps]
        if self.opened is not None:
            lines.append(("opened", f"raw scores were shown on {self.opened:%Y-%m-%d %H:%M} UTC"))
        for length in self.restored:
            line = f"an older copy of the ledger was put in place; link {length} had been known"
            lines.append(("restored", line))
        if parted_name(self.name)[1] is not None:
            line = f"by fresh rows, block {self.block + 1}: it takes no more submissions"
            lines.append(("followed", line))
        elif self.retired is not None:
            line = f"on {self.retired:%Y-%m-%d %H:%M} UTC: it takes no more submissions"
            lines.append(("retired", line))
        return [*lines, ("ledger", self.ledger)]

    def reserve_lines(self) -> list[tuple[str, str]]:
        """Return the line about the reserve, if there is one.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> holdout.status().reserve_lines()
        []
        """
        if not self.reserve:
            return []
        queries = f"{self.reserve_queries} quer{'y' if self.reserve_queries == 1 else 'ies'}"
        seen = "" if self.reserve_score is None else f", {self.reserve_score:.6g} for the incumbent"
        return [("reserve", f"{self.reserve} rows, {queries}{seen}")]

    def __str__(self) -> str:
        return printable("\n".join(f"{what:<18}{value}" for what, value in self.lines()))

    def _repr_html_(self) -> str:
        return html_table(self.lines())


def outcome(submission: Submission) -> str:
    """Return what became of a submission, in a word or three.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit([0, 1]), holdout.submit([0, 0]), holdout.submit([0, 1])
    >>> [outcome(one) for one in holdout.history()]
    ['improved', 'not improved', 'repeat of 1']
    """
    if submission.repeat_of is not None:
        return f"repeat of {submission.repeat_of}"
    if submission.withdrawn is not None:
        return "withdrawn"
    return "improved" if submission.improved else "not improved"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a candidate may replace the incumbent of a `GateLadder`.

    It depends on the rows through decisions alone: two sets of labels under which all decisions
    are equal give the same reasons. ``if decision:`` asks whether it was accepted.

    Attributes
    ----------
    accepted : bool
        Whether the candidate was shown to be better than the incumbent, or is the baseline by
        request. A retry under a key gets the same decision, as long as no other has replaced it.
    submission : int
        The number under which the ledger keeps it.
    spent : bool
        Whether the ladder could accept nothing any more, whatever was submitted.
    reason : str
        Why, in a sentence.
    incumbent : int
        The submission that is to be kept now.
    unchanged : bool
        Whether the predictions are those of the incumbent on all rows: nothing was tested.
    baseline : bool
        Whether there was no incumbent: it is one now, and was compared with nothing.

    Examples
    --------
    >>> decision = Decision(True, 3, False, "It is better than submission 1.", 3)
    >>> bool(decision), decision.line()
    (True, 'accepted (submission 3): It is better than submission 1.')
    """

    accepted: bool
    submission: int
    spent: bool
    reason: str
    incumbent: int
    unchanged: bool = False
    baseline: bool = False

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def verdict(self) -> str:
        """The decision in a word or two: accepted, not accepted, unchanged, baseline."""
        if self.accepted:
            return "accepted"
        if self.baseline:
            return "baseline"
        return "unchanged" if self.unchanged else "not accepted"

    def line(self) -> str:
        """Return it in a line.

        Examples
        --------
        >>> Decision(False, 4, False, "It is not shown to be better.", 3).line()
        'not accepted (submission 4): It is not shown to be better.'
        """
        return f"{self.verdict} (submission {self.submission}): {self.reason}"

    def __str__(self) -> str:
        return f"Decision: {self.line()}"

    def _repr_html_(self) -> str:
        return html_table(
            [
                ("decision", self.verdict),
                ("submission", str(self.submission)),
                ("reason", self.reason),
                ("incumbent", str(self.incumbent)),
            ]
        )
