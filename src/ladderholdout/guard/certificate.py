"""A certificate as people see it: the interval, what it rests on, and how wide it is to become.

And what all that is shown shares: it is of one metric, or of several at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator

from ladderholdout.arguments import as_given
from ladderholdout.certificates.metric_limits import ONE_OF_EACH
from ladderholdout.errors import InvalidArgument, printable

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


class Later(Sequence[V]):
    """Entries that are worked out when somebody reads them; written or pickled it is what they are.

    Examples
    --------
    >>> entries = Later(lambda: print("worked out") or iter([1, 2]))
    >>> len(entries), entries[1], entries
    worked out
    (2, 2, (1, 2))
    """

    def __init__(self, work: Callable[[], Iterable[V]]) -> None:
        self._work = work

    @cached_property
    def _entries(self) -> tuple[V, ...]:
        return tuple(self._work())

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: Any) -> Any:
        return self._entries[place]

    def __repr__(self) -> str:
        return repr(self._entries)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self._entries,)


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


INDEPENDENT = "rows taken as independent, not in groups"
"""What the line of a certificate adds where it is on record that there are groups."""

BY_ONE_OF_EACH = "by one row of each group"
"""What is shown beside an interval that is not made of sums over groups."""


def interval(low: float, high: float) -> str:
    """Return an interval in three digits, rounded outwards; in more where it is very narrow.

    Examples
    --------
    >>> interval(0.86691, 0.98894), interval(0.5, 1.0), interval(0.91231, 0.91878)
    ('0.866 to 0.989', '0.500 to 1.000', '0.9123 to 0.9188')
    >>> interval(-152.34, -97.1), interval(-math.inf, -0.0123), interval(1e-9, 1.0)
    ('-153 to -97', '-inf to -0.0123', '0.000 to 1.000')
    """
    finite = [abs(end) for end in (low, high) if math.isfinite(end) and end]
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


@dataclass(frozen=True, slots=True, repr=False)
class ScoreCertificate(OfMetrics):
    """A confidence interval for the true score of the incumbent, however it was searched for.

    Attributes
    ----------
    score : float or None
        The released score, in the metric's own sign and units; None where none is shown.
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
        At what errors were clipped, and how many of them, in words; then the interval is for the
        score with errors clipped so. The released score is of the errors as they are.
    clipped : tuple of (int, float) or None
        How many rows have such errors, and by what share clipping makes the score smaller.
    bill : tuple of (str, float)
        What L is made of, in words and nats; of a certificate that was asked for.
    without_scores : float or None
        What L would have been with improvements alone; None where no score was paid for.
    instead : sequence of (str, float, float)
        Other rules, and the ends of the interval that they would have given on what was released;
        worked out when it is read, printed or sent.
    doubts : tuple of str
        Assumptions that are in doubt by what is on record, as `line` names them.
    advice : str
        What would make the interval narrower, where the stated range of the loss makes it wide;
        or why it has no lower end.
    shown_in_steps : float
        Of a query of the reserve: the score was rounded to multiples of this number, so that later
        queries pay less. 0 where it was not, as at the first query.
    mean_over : {"rows", "groups"} or None
        Of a holdout with groups: whether the true score is that of all rows of other groups, or the
        mean over other groups. None where each row was drawn by itself.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout import LadderHoldout
    >>> X, y = np.arange(400).reshape(-1, 1), np.arange(400) % 2
    >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    >>> _ = holdout.submit(np.where(np.arange(400) < 360, y, 1 - y))
    >>> print(holdout.certificate().line())
    true score in 0.864 to 0.929 (95 %, exact binomial)
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
    clipped: tuple[int, float] | None = None
    bill: tuple[tuple[str, float], ...] = field(default=(), compare=False, repr=False)
    instead: Annotated[Sequence[tuple[str, float, float]], AfterValidator(tuple)] = field(
        default=(), compare=False, repr=False
    )
    without_scores: float | None = field(default=None, compare=False, repr=False)
    doubts: tuple[str, ...] = ()
    advice: str = field(default="", compare=False, repr=False)
    shown_in_steps: float = 0.0
    mean_over: str | None = None

    def line(self) -> str:
        """Return it in one line.

        Examples
        --------
        >>> ScoreCertificate(0.9, 0.86691, 0.98894, 0.95, 3, "exact binomial").line()
        'true score in 0.866 to 0.989 (95 %, exact binomial)'
        """
        if self.by_metric:
            return in_one_line(self.by_metric)
        if self.missing is not None:
            return f"none: {self.missing}"
        share = f"{100 * self.confidence:.4g} %"
        unproved = ["no lower end above -1 is proved"] * (self.low == -math.inf)
        notes = ", ".join([share, self.bound, *unproved, *self.doubts])
        return f"{self.of_what()}{',' * (', ' in self.clipping)} in {self.ends()} ({notes})"

    @property
    def beside(self) -> tuple[str, ...]:
        """What is named beside the ends wherever they are shown.

        Examples
        --------
        >>> ScoreCertificate(0.9, 0.8, 0.95, 0.95, 3, mean_over="rows").beside
        ('the mean over rows',)
        """
        over = (f"the mean over {self.mean_over}",) if self.mean_over else ()
        drawn = (BY_ONE_OF_EACH,) if self.bound.endswith(ONE_OF_EACH) else ()
        clipped = (self.clipping,) if self.clipping else ()
        return (*over, *drawn, *clipped, *self.doubts)

    def of_what(self) -> str:
        """Return what the interval is for: the true score, or that with clipped errors.

        Examples
        --------
        >>> found = ScoreCertificate(-9.0, -9.5, -8.5, 0.95, 3, clipping="errors clipped at 20")
        >>> found.of_what()
        'true score with errors clipped at 20'
        """
        over = f" as the mean over {self.mean_over}" if self.mean_over else ""
        return f"true score{over}" + (f" with {self.clipping}" if self.clipping else "")

    def ends(self) -> str:
        """Return both ends of the interval in few digits, rounded outwards.

        Examples
        --------
        >>> ScoreCertificate(0.9, 0.86691, 0.98894, 0.95, 3).ends()
        '0.866 to 0.989'
        """
        return "" if self.low is None or self.high is None else interval(self.low, self.high)

    def __str__(self) -> str:
        if self.by_metric:
            parts = [f"{name}: {one}" for name, one in self.by_metric.items()]
            parts.append(
                f"All certificates of this holdout hold together with a confidence of "
                f"{self.confidence:g}."
            )
            return "\n\n".join(parts)
        if self.missing is not None:
            return f"No certificate: {self.missing}."
        source = f"Query {self.reserve_query} of the reserve" if self.reserve_query else "Released"
        over = f", as the mean over {self.mean_over}," if self.mean_over else ""
        if self.clipping:
            over = f"{over or ','} with {self.clipping},"
        lines = [
            f"The true score of submission {self.submission}{over} is in {self.ends()} with a "
            f"confidence of {self.confidence:g}, however it was searched for{self._doubted}.",
            f"{source}: {self.score:.6g}{self._rounded}; bound: {self.bound}; price of what was "
            f"released to the search: {self._price}.",
            *([f"{self.advice}."] if self.advice else []),
        ]
        for title, items in self._sections():
            lines += [f"{title}:", *(f"- {item}" for item in items)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the two lines that matter as a table, and the rest to be unfolded."""
        if self.by_metric:
            return html_table((name, one.line()) for name, one in self.by_metric.items())
        if self.missing is not None:
            return html_table([("certificate", self.line())])
        share = f"{100 * self.confidence:.4g} %"
        score = f"{self.score:.6g}{self._rounded} (submission {self.submission})"
        true = self.of_what(), f"{self.ends()} ({share}{self._doubted})"
        price = f"Bound: {self.bound}. Price of what was released: {self._price}"
        texts = [self.advice, price] if self.advice else [price]
        inside = "".join(f"<p>{escape(printable(text))}.</p>" for text in texts)
        for title, items in self._sections():
            listed = "".join(f"<li>{escape(printable(item))}</li>" for item in items)
            inside += f"<p>{escape(printable(title))}:</p><ul>{listed}</ul>"
        head = html_table([true, ("released", score)])
        return f"{head}<details><summary>What it rests on</summary>{inside}</details>"

    def _sections(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield each section below the interval: its title and its items."""
        note = f" ({self.without_scores or 0:.1f} with show='improvements' and one request)"
        if self.bill:
            title = "The price is made of" + note * (self.without_scores is not None)
            yield title, (f"{nats:.1f} for {what}" for what, nats in self.bill)
        if self.instead:
            title = "On what was released here, other rules would have given"
            yield title, (f"{name}: {interval(low, high)}" for name, low, high in self.instead)
        yield "It is void unless all of this is true", self.assumptions

    @property
    def _doubted(self) -> str:
        return "".join(f", {doubt}" for doubt in self.doubts)

    @property
    def _rounded(self) -> str:
        return f", in steps of {self.shown_in_steps:.3g}" if self.shown_in_steps else ""

    @property
    def _price(self) -> str:
        later = f", {self.price:.1f} of them for a confidence that was not the registered one"
        return f"{self.log_count:.1f} nats" + later * bool(self.price)


@dataclass(frozen=True, slots=True)
class Comparison:
    """An interval for the true score of one model less that of another, on record.

    Attributes
    ----------
    first, second : int or None
        The numbers of the submissions that were compared; None for predictions.
    low, high : float
        Ends of the interval, in the metric's own units; greater is better for the first.
    confidence : float
        At least this is the chance that all comparisons of the holdout hold together.
    bound : str
        The inequality behind it.
    log_count : float
        The price of what was shown before it was asked for, in nats.
    log_values : float
        What later certificates pay for it, in nats.
    assumptions : tuple of str
        What must be true; where it is not, the interval is void.
    clipping : str
        At what errors of both models were clipped, if they were: then the interval is for the
        difference of the scores with errors clipped so.

    Examples
    --------
    >>> comparison = Comparison(3, 1, 0.012, 0.048, 0.95, "trinomial", 0.22, 9.1, ())
    >>> comparison.better, comparison.line()
    ('first', 'submission 3 less submission 1: 0.0120 to 0.0480 (95 %, trinomial)')
    """

    first: int | None
    second: int | None
    low: float
    high: float
    confidence: float
    bound: str
    log_count: float
    log_values: float
    assumptions: tuple[str, ...]
    clipping: str = ""

    @property
    def better(self) -> str | None:
        """Which one is better: "first", "second", or None where the interval does not show it."""
        if self.low > 0.0:
            return "first"
        return "second" if self.high < 0.0 else None

    def line(self) -> str:
        """Return it in a line.

        Examples
        --------
        >>> Comparison(None, 1, -0.01, 0.02, 0.95, "bets", 0.0, 9.1, ()).line()
        'first less submission 1: -0.0100 to 0.0200 (95 %, bets)'
        """
        names = [
            what if number is None else f"submission {number}"
            for what, number in (("first", self.first), ("second", self.second))
        ]
        ends = interval(self.low, self.high)
        what = f"{names[0]} less {names[1]}" + (f", with {self.clipping}" if self.clipping else "")
        return f"{what}: {ends} ({100 * self.confidence:g} %, {self.bound})"

    def __str__(self) -> str:
        which = {
            "first": "The first is better.",
            "second": "The second is better.",
            None: "They are not shown to differ.",
        }[self.better]
        assumed = (f"- {assumption}" for assumption in self.assumptions)
        return "\n".join([f"{self.line()}. {which}", *assumed])

    def _repr_html_(self) -> str:
        return html_table([("comparison", self.line()), ("better", self.better or "not shown")])


def uncertified(
    missing: str, confidence: float, submission: int | None = None, score: float | None = None
) -> ScoreCertificate:
    """Return that there is no certificate of a submission, and why.

    Examples
    --------
    >>> uncertified("the ladder has no incumbent yet", 0.95).line()
    'none: the ladder has no incumbent yet'
    """
    return ScoreCertificate(score, None, None, confidence, submission, missing=missing)


def in_one_line(by_metric: Mapping[str, Any]) -> str:
    """Return what is shown of several metrics in one line."""
    return "; ".join(f"{name}: {shown.line()}" for name, shown in by_metric.items())


def html_table(lines: Iterable[tuple[str, str]]) -> str:
    """Return (what, value) pairs as a table for notebooks, with every text escaped."""
    rows = (
        f'<tr><th style="text-align:left">{escape(what)}</th>'
        f'<td style="text-align:left">{escape(printable(value))}</td></tr>'
        for what, value in lines
    )
    return f"<table>{''.join(rows)}</table>"


@dataclass(frozen=True, slots=True, repr=False)
class Health(OfMetrics):
    """How wide the certificate of a holdout is, and how wide it becomes with further use.

    It is worked out from what was released alone. Forecasts assume that what is to come is like
    what was (`planning.course`); None where there is nothing to forecast from.

    Attributes
    ----------
    name : str
    block : int
        Which block of rows of the holdout it is about.
    n, submissions, improvements : int
        Rows that the ladders measure, submissions to this ladder, and how many of them improved.
    width : float or None
        Of the certificate of now, from its lower to its upper end; None where there is none.
    price : float or None
        What that certificate pays for, in nats.
    more : int
        How many more improvements `width_after` counts.
    width_after : float or None
        The width after that many more improvements like those so far.
    spent_at : float or None
        The width from which on the owner takes the rows for used up; None where none was stated.
    spent : bool or None
        Whether the certificate is wider than that.
    queries_left : int or None
        After how many more queries like those so far it will be; None also where no end is in
        sight.
    fresh_rows : int or None
        On how many fresh rows the first certificate of such a score is no wider than `spent_at`.
    rows_for_such_use : int or None
        On how many fresh rows it would still be no wider after as much use as these rows have had.
    reason : str
        Why there is no width, or no forecast; else empty.

    Examples
    --------
    >>> Health("coins", 1, 500, 9, 3, 0.1, 12.0, 5, 0.13, 0.12, False, 6, 340, 720).lines()[:2]
    [('width now', '0.1 (12.0 nats, block 1)'), ('width then', '0.13 after 5 more improvements')]
    """

    name: str
    block: int
    n: int
    submissions: int
    improvements: int
    width: float | None
    price: float | None
    more: int
    width_after: float | None
    spent_at: float | None = None
    spent: bool | None = None
    queries_left: int | None = None
    fresh_rows: int | None = None
    rows_for_such_use: int | None = None
    reason: str = ""

    def lines(self) -> list[tuple[str, str]]:
        """Return it as (what, value) pairs, for printing."""
        if self.by_metric:
            return [
                (f"{what} ({printable(metric)})", value)
                for metric, health in self.by_metric.items()
                for what, value in health.lines()
            ]
        if self.width is None:
            return [("width now", f"none: {self.reason}")]
        lines = [("width now", f"{self.width:.3g} ({self.price:.1f} nats, block {self.block})")]
        if self.width_after is not None:
            then = f"{self.width_after:.3g} after {self.more} more improvements"
            lines.append(("width then", then))
        if self.reason:
            lines.append(("forecast", f"none: {self.reason}"))
        if self.spent_at is None:
            return lines
        state = "yes, it is wider" if self.spent else "no"
        if not self.spent and self.queries_left is not None:
            state += f", in about {self.queries_left} queries"
        elif not self.spent and not self.reason:
            state += ", and no end is in sight"
        lines.append((f"spent at {self.spent_at:g}", state))
        if self.fresh_rows is not None:
            rows = f"{self.fresh_rows} for the first certificate"
            if self.rows_for_such_use is not None:
                rows += f", {self.rows_for_such_use} for as much use as these have had"
            lines.append(("fresh rows", rows))
        return lines

    def __str__(self) -> str:
        return printable("\n".join(f"{what:<18}{value}" for what, value in self.lines()))

    def _repr_html_(self) -> str:
        return html_table(self.lines())
