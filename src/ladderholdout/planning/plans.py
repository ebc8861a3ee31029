"""From the size of a holdout and of a search to a plan."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ladderholdout import pictures
from ladderholdout.arguments import inside, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import FINALISTS, Mechanism, default_mechanism
from ladderholdout.mechanisms.arithmetic import HALFWAY
from ladderholdout.mechanisms.rules import SHOWN
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.planning import widths
from ladderholdout.planning.decisions import check_groups, checked_correlation
from ladderholdout.planning.reserves import HALF, ReserveAdvice, reserve_advice

if TYPE_CHECKING:
    from ladderholdout.pictures import Axes

# Numbers of rows at which `plot` draws a width.
PLOTTED_ROWS = 40


@dataclass(frozen=True, slots=True)
class Way:
    """One way to search, and what is proved of it before it begins.

    Attributes
    ----------
    name : str
        What the search does.
    rows : int
        How many the ladder measures: all but those of the reserve.
    mechanism : Mechanism
        The rule of a `LadderHoldout` to which none is stated.
    reserve : float
        Share of the rows that is kept for one query at the end.
    width : float
        Proved before the search: the true score is at most this far below the one that is
        released, if that is the score expected. 0/1 losses.
    rows_needed : int or None
        Rows with which the width asked for is proved; None where none was asked for, or
        `MOST_ROWS` do not do.
    show : {"scores", "improvements"}
        What answers have.

    Examples
    --------
    >>> way = plan(n=500, submissions=50).finalists
    >>> round(way.width, 2), way.within(0.2)
    (0.04, True)
    """

    name: str
    rows: int
    mechanism: Mechanism
    reserve: float
    width: float
    rows_needed: int | None
    show: str = SHOWN[0]

    def within(self, width: float) -> bool:
        """Return whether a width is proved for this way.

        Examples
        --------
        >>> plan(n=500, submissions=50).finalists.within(0.2)
        True
        """
        return self.width <= width

    def settings(self) -> str:
        """Return the arguments of `LadderHoldout` for this way, as they are typed.

        Nothing is stated that the class does by itself where losses are 0 or 1.

        Examples
        --------
        >>> plan(n=500, submissions=50).reserved.settings()
        'reserve=0.5'
        """
        stated = [f"show={self.show!r}"] * (self.show != SHOWN[0])
        stated += [f"reserve={self.reserve:g}"] * (self.reserve > 0.0)
        return ", ".join(stated)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a holdout, for four ways to search, the recommended one first.

    Attributes
    ----------
    n, submissions : int
        Numbers of examples and of submissions.
    width : float or None
        The width asked for.
    risk, confidence : float
        The risk expected of the winner, and the confidence.
    improvements : int
        How many submissions improve in a search that learns.
    groups : int or None
        Of how many groups the rows are.
    independent : int
        How many independent rows they are worth, for which all is planned.
    most_releases : int or None
        The largest budget with which the way ``learning`` proves the width asked for; 0
        where none does, None where no width was asked for.
    least_reserve : float or None
        The smallest share in reserve that proves the width asked for, in whole percents;
        None where none does, or no width was asked for.
    finalists : Way
        The recommended one: the search goes by the training rows, and its finalists alone
        query the holdout, as one batch of an announced size (`LadderHoldout.guard`, and
        `LadderHoldout.finalists` for a study).
    fixed : Way
        All submissions query the holdout, and are fixed before the first answer: a grid, a
        random search, a study whose feedback is inner scores alone.
    learning : Way
        Each answer may steer the next submission, and `improvements` of them improve.
    reserved : Way
        The same, and the winner is certified on rows that no answer ever came from.
    advice : ReserveAdvice or None
        The widths of a metric's certificates with a reserve and without, for as many
        improvements; None of a metric without a certificate.

    Examples
    --------
    >>> advice = plan(n=500, submissions=50)
    >>> advice.n, advice.submissions
    (500, 50)
    >>> advice.finalists.name
    'finalists on the holdout'
    """

    n: int
    submissions: int
    width: float | None
    risk: float
    confidence: float
    improvements: int
    groups: int | None
    independent: int
    most_releases: int | None
    least_reserve: float | None
    finalists: Way
    fixed: Way
    learning: Way
    reserved: Way
    advice: ReserveAdvice | None

    @property
    def ways(self) -> tuple[Way, Way, Way, Way]:
        """All four."""
        return self.finalists, self.fixed, self.learning, self.reserved

    @property
    def adaptive(self) -> Way:
        """The one of the two ways to learn with the narrower width."""
        return min((self.learning, self.reserved), key=lambda way: way.width)

    def __str__(self) -> str:
        """Return the widths of the four ways and the advice on a reserve, as two tables."""
        asked = "" if self.width is None else f", width asked for {self.width:g}"
        lines = [
            f"A holdout of {self.n} rows for {self.submissions} submissions; the winner errs on "
            f"{self.risk:.3g} of the rows.",
            f"Confidence {self.confidence:g}{asked}.",
        ]
        if self.groups is not None:
            lines.append(
                f"In {self.groups} groups they are worth {self.independent} independent rows, "
                "for which all widths are. State groups=groups."
            )
        lines += [
            "Width: how far the true score may be below the released one; learning: "
            f"{self.improvements} improvements at most.",
            "",
            *_table(self),
        ]
        return "\n".join(lines if self.advice is None else [*lines, "", str(self.advice)])


def _table(plan: Plan) -> list[str]:
    goal = "" if plan.width is None else f"for {plan.width:g}"
    lines = [
        f"{'':26}{'proved':>7}{goal and 'rows':>11}   state, and call",
        f"{'':26}{'width':>7}{goal:>11}   of LadderHoldout",
    ]
    calls = (
        "guard(search) or optuna.finalists(study, build)",
        "",
        "reveal(), once, at the end" * (plan.learning.show != SHOWN[0]),
        "reserve_certificate(), once, at the end",
    )
    for way, call in zip(plan.ways, calls, strict=True):
        rows = "" if plan.width is None else str(way.rows_needed or f"over {widths.MOST_ROWS:.0e}")
        stated = "; ".join(filter(None, (way.settings(), call)))
        lines.append(f"{way.name:26}{way.width:>7.3f}{rows:>11}   {stated}".rstrip())
    if plan.width is not None:
        releases = f"{plan.most_releases} releases at most" if plan.most_releases else ""
        reserve = "" if plan.least_reserve is None else f"a reserve of {plan.least_reserve:.0%}"
        proved = " or ".join(filter(None, (releases, reserve))) or "nothing on so few rows"
        lines.append(f"{f'learning within {plan.width:g} by':26}  {proved}")
    return lines


def plan(
    *,
    n: int,
    submissions: int,
    width: float | None = None,
    risk: float = 0.1,
    confidence: float = 0.95,
    scoring: str | Metric = "accuracy",
    improvements: int = 5,
    groups: int | None = None,
    correlation: float = 1.0,
) -> Plan:
    """Plan how a holdout is to be used, before any submission.

    Parameters
    ----------
    n : int
        Number of examples in the holdout.
    submissions : int
        Number of models that will be submitted.
    width : float or None, default=None
        How far the true score may be below the one that is released, in (0, 1): the plan states
        which ways prove it, and how many rows the others need.
    risk : float, default=0.1
        The error rate expected of the winner, in (0, 1): certificates are narrower where
        models err less.
    confidence : float, default=0.95
        In (0, 1).
    scoring : str or Metric, default="accuracy"
        The metric of the advice on a reserve; all else is for losses of 0 and 1.
    improvements : int, default=5
        How many submissions improve where answers steer the search, at most: about so many do
        under the default rules.
    groups : int or None, default=None
        Of how many groups the rows are, such as patients with several visits each. All is then for
        as many independent rows as they are worth: n/(1 + (n/groups - 1) correlation), by the
        design effect of Kish (1965).
    correlation : float, default=1.0
        Of the errors within a group, in [0, 1]; 1 takes a group for one row, which it is worth at
        least.

    Returns
    -------
    Plan
        For the finalists of a search on the training rows, for submissions fixed in advance,
        for a search that learns, and for one with a reserve.

    Raises
    ------
    InvalidArgument
        If an argument is refused.

    Examples
    --------
    >>> advice = plan(n=5000, submissions=1000, width=0.03)
    >>> advice.fixed.rows_needed, advice.most_releases, advice.least_reserve
    (2942, 3, 0.13)
    >>> advice.adaptive.settings()
    'reserve=0.5'
    >>> advice.finalists.settings(), round(advice.finalists.width, 3)
    ('', 0.011)
    >>> plan(n=5000, submissions=50, groups=250, correlation=0.2).independent
    1041
    """
    n, submissions = whole("n", n), whole("submissions", submissions)
    if n < 2:
        raise InvalidArgument("n", "a whole number of at least 2", n)
    width = None if width is None else inside("width", width)
    risk, confidence = inside("risk", risk), inside("confidence", confidence)
    improvements = min(whole("improvements", improvements), submissions)
    metric = get_metric(scoring)
    worth = 1.0  # how many independent rows one of n rows in groups is worth
    if groups is not None:
        check_groups(n, groups)
        worth = 1.0 / (1.0 + (n / groups - 1.0) * checked_correlation(correlation))
    rows = math.floor(n * worth + HALFWAY)
    asked = _Question(rows, submissions, width, risk, confidence, worth)
    ways = [
        asked.way("learning", partial(asked.learning_width, improvements, show=show), show=show)
        for show in SHOWN
    ]
    learning = min(ways, key=lambda way: way.width)
    finalists = partial(asked.batch_width, finalists=min(FINALISTS, submissions))
    return Plan(
        *(n, submissions, width, risk, confidence, improvements, groups, asked.n),
        most_releases=_most_releases(asked, learning.show),
        least_reserve=_least_reserve(asked),
        finalists=asked.way("finalists on the holdout", finalists),
        fixed=asked.way("fixed in advance", asked.batch_width),
        learning=learning,
        reserved=asked.way("learning, with a reserve", asked.reserve_width, reserve=HALF),
        # A holdout of fewer rows has none to set aside.
        advice=None
        if asked.n < 10
        else reserve_advice(
            n=asked.n,
            metric=metric,
            submissions=submissions,
            improvements=improvements,
            risk=risk,
            confidence=confidence,
        ),
    )


class _Question(NamedTuple):
    """What `plan` was asked, and the widths that are proved on n rows."""

    n: int
    submissions: int
    width: float | None
    risk: float
    confidence: float
    # How many independent rows one row is worth: less than 1 in groups.
    worth: float = 1.0

    def way(
        self,
        name: str,
        width_at: Callable[[int], float],
        reserve: float = 0.0,
        show: str = SHOWN[0],
    ) -> Way:
        """Return a way with the rows that prove the width asked for, if one was."""
        rows = self.n - (_kept(self.n, reserve) if reserve else 0)
        needed = None if self.width is None else widths.rows_needed(width_at, self.width)
        needed = needed and math.ceil(needed / self.worth - HALFWAY)
        rule = _default(rows, reserved=reserve > 0.0)
        return Way(name, rows, rule, reserve, width_at(self.n), needed, show)

    def batch_width(self, n: int, finalists: int | None = None) -> float:
        """Of models that were all fixed before: no release costs anything within the batch."""
        size, announced = finalists or self.submissions, finalists is not None
        return widths.fixed_width(n, size, self.risk, self.confidence, announced=announced)

    def learning_width(self, budget: int, n: int, show: str) -> float:
        """Of a climb with so many releases."""
        rule = _default(self.n, reserved=False)
        search = self.submissions, self.risk, rule, budget, self.confidence
        return widths.learning_width(n, *search, show)

    def reserve_width(self, n: int, share: float = HALF) -> float:
        """Of the one query of the rows that a climb left alone."""
        return widths.reserve_width(_kept(n, share), self.risk, self.confidence)


def _default(rows: int, *, reserved: bool) -> Mechanism:
    """Return the rule of a `LadderHoldout` for losses of 0 and 1 to which none is stated."""
    return default_mechanism(get_metric("accuracy"), rows, reserved=reserved)


def _most_releases(asked: _Question, show: str) -> int | None:
    """Return the largest budget that proves the width asked for."""
    if (goal := asked.width) is None:
        return None
    # Each release costs its part, so the first budget that fails is followed by no other.
    budgets = range(1, asked.submissions + 1)
    return bisect_left(
        budgets, True, key=lambda budget: asked.learning_width(budget, asked.n, show) > goal
    )


def _least_reserve(asked: _Question) -> float | None:
    """Return the smallest share, in whole percents, that proves the width asked for."""
    if (goal := asked.width) is None:
        return None
    shares = (percents / 100.0 for percents in range(1, 100))
    left = (share for share in shares if _kept(asked.n, share) < asked.n)
    return next((share for share in left if asked.reserve_width(asked.n, share) <= goal), None)


def _kept(n: int, share: float) -> int:
    """Return how many rows a reserve has, rounded as the ledger does."""
    return max(1, math.floor(share * n + 0.5))


def plot(
    plan: Plan, *, budgets: Sequence[int] = (2, 5, 10, 20, 50), ax: Axes | None = None
) -> Axes:
    """Draw the proved width against the number of rows, for several budgets of releases.

    Parameters
    ----------
    plan : Plan
        Its submissions, risk, confidence, rule and reserve are taken.
    budgets : sequence of int, default=(2, 5, 10, 20, 50)
        Of one to five ladders for a search that learns.
    ax : matplotlib.axes.Axes, optional
        By default that of a new figure.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    InvalidArgument
        If the budgets are none or too many.
    MissingExtra
        Matplotlib is missing.

    Examples
    --------
    >>> from ladderholdout.planning import plan
    >>> from matplotlib.figure import Figure
    >>> ax = plot(plan(n=500, submissions=50), ax=Figure().subplots())
    >>> ax.get_xlabel()
    'rows of the holdout'
    """
    if not 1 <= len(budgets) <= len(pictures.BLUES):
        raise InvalidArgument(
            "budgets", f"1 to {len(pictures.BLUES)} numbers", f"of {len(budgets)}"
        )
    ax = pictures.axes_or_new(ax)
    n = plan.independent
    rows = np.unique(np.geomspace(max(n / 30, 20), n * 30, PLOTTED_ROWS).astype(int))
    asked = _Question(n, plan.submissions, plan.width, plan.risk, plan.confidence)

    def draw(width_at: Callable[[int], float], label: str, colour: str, style: Any) -> None:
        ax.plot(rows, [width_at(int(n)) for n in rows], color=colour, ls=style, label=label)

    for budget, colour in zip(budgets, pictures.BLUES, strict=False):
        learning = partial(asked.learning_width, whole("budgets", budget), show=plan.learning.show)
        draw(learning, f"learning, {budget} releases", colour, "-")
    size = min(FINALISTS, plan.submissions)
    announced = partial(asked.batch_width, finalists=size)
    draw(announced, f"{size} finalists", pictures.RED, (0, (5, 1)))
    draw(asked.batch_width, "fixed in advance", pictures.ORANGE, "--")
    draw(asked.reserve_width, f"reserve of {HALF:g}", pictures.GREEN, "-.")
    ax.axvline(n, color=pictures.GREY, lw=0.8)
    if plan.width is not None:
        ax.axhline(plan.width, color=pictures.GREY, lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="rows of the holdout", ylabel="proved width (score)")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(fontsize="small", frameon=False)
    return ax
