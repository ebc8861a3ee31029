"""What people see of a ladder: frozen views, built from releases alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import Any

from ladderholdout.errors import InvalidArgument, as_given, printable
from ladderholdout.ledger import (
    Overlap,
)
from ladderholdout.metrics import Metric

TOGETHER = "together"
"""In the context of a submission: its number on each of the ladders that it was submitted to."""
NOT_ASKED = "not asked for; reveal shows it, and later certificates pay for that"
"""What is shown in place of a score that a ladder shows on demand alone."""

INDEPENDENT = "rows taken as independent, not in groups"
"""What the line of a certificate adds where it is on record that there are groups."""

AN_OLDER_COPY = (
    "an older copy of the ledger was put in place: not all that was released is on record"
)
"""Why nothing that was chosen after that is certified."""


def one_metric(metric: object) -> InvalidArgument:
    """Return the refusal to show by name what there is one of."""
    return InvalidArgument(
        "metric",
        "left out on a holdout of one metric",
        as_given(metric),
        "Of several metrics, scoring=[...], each has its own answers.",
    )


def score_of(risk: float | None, metric: Metric) -> float | None:
    """Show a released risk in the metric's own sign, if it may be shown.

    Parameters
    ----------
    risk : float or None
        None where the ladder releases no values and it was not asked for.
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


def interval(low: float, high: float) -> str:
    """Return an interval in three digits, rounded outwards; in more where it is very narrow.

    Examples
    --------
    >>> interval(0.86691, 0.98894), interval(0.5, 1.0), interval(0.91231, 0.91878)
    ('0.866 to 0.989', '0.500 to 1.000', '0.9123 to 0.9188')
    >>> interval(-152.34, -97.1), interval(-math.inf, -0.0123), interval(1e-9, 1.0)
    ('-153 to -97', '-inf to -0.0123', '0.000 to 1.000')
    """
    finite = [abs(one) for one in (low, high) if math.isfinite(one) and one]
    digits = 3 - math.ceil(math.log10(max(finite))) if finite else 3
    if math.isfinite(high - low) and high > low:
        digits = max(digits, 1 - math.floor(math.log10(high - low)))
    return f"{_rounded(low, digits, math.floor)} to {_rounded(high, digits, math.ceil)}"


def _rounded(end: float, digits: int, outwards: Callable[[float], int]) -> str:
    """Round an end to so many decimals; what floats add to its last digit does not count."""
    if not math.isfinite(end):
        return f"{end:g}"
    scaled = float(f"{end:.12g}") * 10.0**digits
    near = round(scaled)
    whole = near if math.isclose(scaled, near, rel_tol=1e-9, abs_tol=1e-9) else outwards(scaled)
    return f"{whole / 10.0**digits:.{max(digits, 0)}f}"


def incumbent_line(score: float | None, incumbent: int | None) -> str:
    """Name the incumbent, with its score where the ladder releases it.

    Examples
    --------
    >>> incumbent_line(0.75, 3), incumbent_line(None, None)
    ('0.75 (submission 3)', 'none yet')
    """
    return "none yet" if incumbent is None else f"{score_line(score)} (submission {incumbent})"


@dataclass(frozen=True, slots=True)
class ScoreCertificate:
    """A confidence interval for the true score of the incumbent, however it was searched for.

    Attributes
    ----------
    score : float or None
        The released score, in the metric's own sign and units; None before the first, and
        where the ladder releases no values and it was not asked for.
    low, high : float or None
        Ends of the interval for the true score; None where there is no certificate.
    confidence : float
        At least this is the chance that all certificates of this holdout with this confidence
        hold together: the registered one, or another at a `price`.
    submission : int or None
        The incumbent's number.
    bound : str
        The inequality behind the interval.
    log_count : float or None
        L: the level was divided by exp(L), in nats. It grows with what was released to the search.
    assumptions : tuple of str
        What must be true; where it is not, the certificate is void.
    missing : str or None
        Why there is none.
    reserve_query : int or None
        By which query of the reserve; None for a certificate of the ladder.
    price : float
        What of L is paid for a confidence that was not the registered one.
    clipping : str
        At what errors of these predictions were clipped, where some were or that is not known;
        then the interval is for the score with errors clipped so, and so is the released score.
    clipped_share : float
        At most this share of the rows has such errors; 0 where that is not known.
    bill : tuple of (str, float)
        What L is made of, in words and nats; of a certificate that was asked for.
    instead : tuple of (str, float, float)
        Other rules, and the ends of the interval that they would have given on what was released.
    doubts : tuple of str
        Assumptions that are in doubt by what is on record, as `line` names them.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout import LadderHoldout
    >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
    >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit(np.where(np.arange(400) < 360, y, 1 - y))
    >>> print(holdout.certificate().line())
    true score in 0.861 to 0.932 (95 %, exact binomial)
    """

    score: float | None
    low: float | None
    high: float | None
    confidence: float
    submission: int | None
    bound: str = ""
    log_count: float | None = None
    assumptions: tuple[str, ...] = ()
    missing: str | None = None
    reserve_query: int | None = None
    price: float = 0.0
    clipping: str = ""
    clipped_share: float = 0.0
    bill: tuple[tuple[str, float], ...] = field(default=(), compare=False, repr=False)
    instead: tuple[tuple[str, float, float], ...] = field(default=(), compare=False, repr=False)
    doubts: tuple[str, ...] = ()

    def __getitem__(self, metric: str) -> ScoreCertificate:
        """Refuse: this is of one metric; of several, ``[name]`` is that by one."""
        raise one_metric(metric)

    def line(self) -> str:
        """Return it in one line.

        Examples
        --------
        >>> ScoreCertificate(0.9, 0.86691, 0.98894, 0.95, 3, "exact binomial").line()
        'true score in 0.866 to 0.989 (95 %, exact binomial)'
        """
        if self.missing is not None:
            return f"none: {self.missing}"
        share = f"{100 * self.confidence:.4g} %"
        notes = ", ".join([share, self.bound, *self.doubts])
        return f"{self.of_what()} in {self.ends()} ({notes})"

    def of_what(self) -> str:
        """Return what the interval is for: the true score, or that with clipped errors.

        Examples
        --------
        >>> found = ScoreCertificate(-9.0, -9.5, -8.5, 0.95, 3, clipping="errors clipped at 20")
        >>> found.of_what()
        'true score with errors clipped at 20'
        """
        return "true score" + (f" with {self.clipping}" if self.clipping else "")

    def ends(self) -> str:
        """Return both ends of the interval in few digits, rounded outwards.

        Examples
        --------
        >>> ScoreCertificate(0.9, 0.86691, 0.98894, 0.95, 3).ends()
        '0.866 to 0.989'
        """
        return "" if self.low is None or self.high is None else interval(self.low, self.high)

    def __str__(self) -> str:
        if self.missing is not None:
            return f"No certificate: {self.missing}."
        source = "Released"
        if self.reserve_query is not None:
            source = f"Query {self.reserve_query} of the reserve"
        lines = [
            f"The true score of submission {self.submission}{self._with()} is in {self.ends()} "
            f"with a confidence of {self.confidence:g}, however it was searched for"
            f"{self._doubted()}.",
            f"{source}: {self.score:.6g}; bound: {self.bound}; price of what was "
            f"released to the search: {self.log_count:.1f} nats{self._later()}.",
        ]
        if self.bill:
            lines.append("The price is made of:")
            lines += [f"- {nats:.1f} for {what}" for what, nats in self.bill]
        if self.instead:
            lines.append("On what was released here, other rules would have given:")
            lines += [f"- {name}: {interval(low, high)}" for name, low, high in self.instead]
        lines.append("It is void unless all of this is true:")
        return "\n".join([*lines, *(f"- {one}" for one in self.assumptions)])

    def _repr_html_(self) -> str:
        """Return the two lines that matter as a table, and the rest to be unfolded."""
        if self.missing is not None:
            return html_table([("certificate", self.line())])
        head = html_table(
            [
                (
                    self.of_what(),
                    f"{self.ends()} ({100 * self.confidence:.4g} %{self._doubted()})",
                ),
                ("released", f"{self.score:.6g} (submission {self.submission})"),
            ]
        )
        price = f"{self.log_count:.1f} nats{self._later()}"
        parts = [
            _listing(f"Bound: {self.bound}. Price of what was released: {price}", []),
            _listing(
                "The price is made of", [f"{nats:.1f} for {what}" for what, nats in self.bill]
            ),
            _listing(
                "On what was released here, other rules would have given",
                [f"{name}: {interval(low, high)}" for name, low, high in self.instead],
            ),
            _listing("It is void unless all of this is true", self.assumptions),
        ]
        inside = "".join(parts)
        return f"{head}<details><summary>What it rests on</summary>{inside}</details>"

    def _doubted(self) -> str:
        return "".join(f", {one}" for one in self.doubts)

    def _with(self) -> str:
        return f", with {self.clipping}," if self.clipping else ""

    def _later(self) -> str:
        if not self.price:
            return ""
        return f", {self.price:.1f} of them for a confidence that was not the registered one"


@dataclass(frozen=True, slots=True)
class Estimate:
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

    def __getitem__(self, metric: str) -> Estimate:
        """Refuse: this is of one metric; of several, ``[name]`` is that by one."""
        raise one_metric(metric)

    def line(self) -> str:
        """Return it in a line.

        Examples
        --------
        >>> Estimate(0.91, "bootstrap", 300, None, 5).line()
        '0.91 (corrected for the choice among 5; no certificate)'
        """
        if self.reason is not None:
            return f"none: {self.reason}"
        return (
            f"{self.score:.4g} (corrected for the choice among {self.submissions}; no certificate)"
        )

    def __str__(self) -> str:
        return f"Estimate: {self.line()}."

    def _repr_html_(self) -> str:
        return html_table([("estimate", self.line())])


@dataclass(frozen=True, slots=True)
class Release:
    """The answer to one submission.

    Attributes
    ----------
    score : float or None
        The released score after it, in the metric's own sign and units; None where the ladder
        releases no values (`OneBitLadder`): `LadderHoldout.reveal` shows it.
    improved : bool
        Whether this submission improved it.
    submission : int
        The number under which the ledger keeps the submission. Predictions that improved
        when they were submitted before get that answer again, under a number of their own.
    releases_left : int or None
        What is left of the ladder's budget; None without one.
    opened : bool
        Whether an audit had shown raw scores of the ladder before: then the submission is
        on record, and can be certified by a reserve alone.
    improvements : int
        How many submissions had improved the ladder when these predictions were answered
        first.

    Notes
    -----
    Releases of one ladder are ordered: a later improvement above an earlier
    one, and both above all that did not improve, which are equal. So ``max`` finds the
    incumbent where it is among them. Where none improved, it is not, and ``max`` returns the
    first: see that its ``improved`` is true. Do not compare by ``score``, which a submission
    that did not improve shares with the incumbent.

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

    def __getitem__(self, metric: str) -> Release:
        """Refuse: this is of one metric; of several, ``[name]`` is that by one."""
        raise one_metric(metric)

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
        """The number of the improvement that it is, 0 for none."""
        return self.improvements if self.improved else 0

    def lines(self) -> list[tuple[str, str]]:
        """Return the release as (what, value) pairs, for printing.

        Examples
        --------
        >>> Release(score=0.91, improved=True, submission=1, releases_left=None).lines()
        [('released score', '0.91'), ('submission', '1, improved')]
        """
        came = "improved" if self.improved else "not improved"
        found = [
            ("released score", score_line(self.score)),
            ("submission", f"{self.submission}, {came}"),
        ]
        if self.releases_left is not None:
            found.append(("releases left", str(self.releases_left)))
        if self.opened:
            found.append(("opened", "raw scores were shown before: only a reserve can certify it"))
        return found

    def _repr_html_(self) -> str:
        return html_table(self.lines())


@dataclass(frozen=True, slots=True)
class Submission:
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
        The submission of the same predictions whose answer it was given again, that it improved
        and its score. Repeats of what did not improve are answered like any other, and cannot be
        distinguished.
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

    def __getitem__(self, metric: str) -> Submission:
        """Refuse: this is of one metric; of several, ``[name]`` is the entry of one."""
        raise one_metric(metric)

    @property
    def own_score(self) -> float | None:
        """Its own score, which is known only where it became the incumbent, or repeats one.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
        >>> _ = holdout.submit([0, 1]), holdout.submit([0, 0])
        >>> [(one.own_score, one.score) for one in holdout.history()]
        [(1.0, 1.0), (None, 1.0)]
        """
        return self.score if self.improved or self.repeat_of is not None else None

    @property
    def first(self) -> int:
        """The number of the submission that it repeats; its own where it repeats none."""
        return self.repeat_of or self.number

    @property
    def has_held(self) -> bool:
        """Whether it, or what it repeats, became the incumbent and was not withdrawn since."""
        return (self.improved or self.repeat_of is not None) and self.withdrawn is None


@dataclass(frozen=True, slots=True)
class Status:
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
        How often `certify` queried them, for all ladders.
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

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit([0, 1])
    >>> for what, value in holdout.status().lines()[4:6]:
    ...     print(what, "|", value)
    ...
    released score | 1 (submission 1)
    certificate | true score in 0.111 to 1.000 (95 %, exact binomial)
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

    def __getitem__(self, metric: str) -> Status:
        """Refuse: this is of one metric; of several, ``[name]`` is that by one."""
        raise one_metric(metric)

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
        return [
            ("holdout", f"{self.name} ({self.n} rows, fingerprint {self.fingerprint[:12]})"),
            ("ladder", f"{self.ladder} of account {self.account}"),
            ("metric", self.metric),
            *self.ladder_lines(),
            *self.holdout_lines(),
        ]

    def ladder_lines(self) -> list[tuple[str, str]]:
        """Return the lines about the ladder alone."""
        releases = str(self.releases)
        if self.budget is not None:
            left = f", {self.releases_left} left"
            releases += f" of {self.budget}"
            releases += left if self.releases_left else ": used up, the released score stays"
        found = [
            ("mechanism", self.mechanism),
            ("released score", incumbent_line(self.score, self.incumbent)),
            *([] if self.incumbent is None else [("certificate", self.certificate.line())]),
            *([] if self.estimate is None else [("estimate", self.estimate.line())]),
            ("submissions", str(self.submissions)),
            ("releases", releases),
        ]
        if self.next_release:
            found.append(("to improve", self.next_release))
        return [*found, ("last answers", _answers(self.latest))] if self.latest else found

    def holdout_lines(self) -> list[tuple[str, str]]:
        """Return the lines about the holdout, which all of its ladders share."""
        found = []
        if self.sharing:
            each = (f"{name} ({rows} rows): {queries}" for name, rows, queries in self.sharing)
            found.append(("counted with it", f"queries of {', '.join(each)}"))
        if len(self.ladders) > 1:
            others = ", ".join(f"{a}/{name}: {count}" for a, name, count in self.ladders)
            found.append(("all ladders on it", others))
        found += self.reserve_lines()
        found += [("overlap", f"{o.rows} rows with {o.source}") for o in self.overlaps]
        if self.opened is not None:
            found.append(("opened", f"raw scores were shown on {self.opened:%Y-%m-%d %H:%M} UTC"))
        for length in self.restored:
            line = f"an older copy of the ledger was put in place; link {length} had been known"
            found.append(("restored", line))
        if self.retired is not None:
            line = f"on {self.retired:%Y-%m-%d %H:%M} UTC: it takes no more submissions"
            found.append(("retired", line))
        return [*found, ("ledger", self.ledger)]

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


def html_table(lines: Iterable[tuple[str, str]]) -> str:
    """Return (what, value) pairs as a table for notebooks, with every text escaped."""
    rows = (
        f'<tr><th style="text-align:left">{escape(what)}</th>'
        f'<td style="text-align:left">{escape(printable(value))}</td></tr>'
        for what, value in lines
    )
    return f"<table>{''.join(rows)}</table>"


def _listing(title: str, items: Sequence[str]) -> str:
    """Return a title and a list for notebooks; nothing where a list is empty."""
    if not items:
        return f"<p>{escape(printable(title))}.</p>" if title.startswith("Bound") else ""
    inside = "".join(f"<li>{escape(printable(one))}</li>" for one in items)
    return f"<p>{escape(printable(title))}:</p><ul>{inside}</ul>"


def _answers(latest: tuple[Submission, ...]) -> str:
    """Return in one line what the last answers were, and when the last one was."""
    came = ", ".join(f"{one.number} {outcome(one)}" for one in latest)
    return f"{came} ({latest[-1].time:%Y-%m-%d %H:%M} UTC)"


def outcome(one: Submission) -> str:
    """Return what became of a submission, in a word or three.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit([0, 1]), holdout.submit([0, 0]), holdout.submit([0, 1])
    >>> [outcome(one) for one in holdout.history()]
    ['improved', 'not improved', 'repeat of 1']
    """
    if one.repeat_of is not None:
        return f"repeat of {one.repeat_of}"
    if one.withdrawn is not None:
        return "withdrawn"
    return "improved" if one.improved else "not improved"
