"""From the size of a holdout and of a search to a plan."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ladderholdout.arguments import inside, whole
from ladderholdout.certificates import (
    LadderTranscript,
    Request,
    Transcript,
    certify,
    exact_upper,
    grid_of,
    highest_release,
    reserve_log_count,
)
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import (
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
)
from ladderholdout.mechanisms.arithmetic import HALFWAY
from ladderholdout.mechanisms.base import takes_groups
from ladderholdout.mechanisms.defaults import FINALISTS, default_mechanism
from ladderholdout.mechanisms.rules import SHOWN
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.pictures import BLUES, GREEN, GREY, ORANGE, RED, axes_or_new
from ladderholdout.planning.decisions import checked_correlation
from ladderholdout.planning.reserves import ReserveAdvice, reserve_advice
from ladderholdout.planning.simulation import SimulatedSearch, simulated_searches
from ladderholdout.planning.widths import (
    MOST_ROWS,
    fixed_width,
    learning_width,
    reserve_width,
    rows_needed,
)

if TYPE_CHECKING:
    from ladderholdout.pictures import Axes

# Numbers of rows at which `plot` draws a width.
PLOTTED_ROWS = 40
# Another rule than that of the class is recommended where it certifies so much more.
MARGIN = 0.002


@dataclass(frozen=True, slots=True)
class Way:
    """One way to search, and what it leaves to be believed.

    Attributes
    ----------
    name : str
        What the search does.
    rows : int
        How many the ladder measures: all but those of the reserve.
    mechanism : Mechanism
        The rule: that of a `LadderHoldout` to which none is stated, unless another certifies
        more by .002 or more in simulation.
    budget : int or None
        Releases in all; None is no bound.
    reserve : float
        Share of the rows that is kept for one query at the end.
    width : float
        Proved before the search: the true score is at most this far below the one that is
        released, if that is the score expected. 0/1 losses.
    rows_needed : int or None
        Rows with which the width asked for is proved; None where none was asked for, or
        `MOST_ROWS` do not do.
    true, released, certified : float
        Scores (1 - risk) of simulated searches: the winner's true one, the released one, and
        the lower end of its certificate. Means.
    releases : float
        Releases in the simulated searches, the mean.
    gain : float
        By how much the rule certifies more than the one of the class; 0 where it is that one.
    show : {"scores", "improvements"}
        What answers have.

    Examples
    --------
    >>> way = plan(n=500, submissions=50, searches=2).finalists
    >>> round(way.width, 2), way.within(0.2)
    (0.04, True)
    """

    name: str
    rows: int
    mechanism: Mechanism
    budget: int | None
    reserve: float
    width: float
    rows_needed: int | None
    true: float
    released: float
    certified: float
    releases: float
    gain: float
    show: str = SHOWN[0]

    @property
    def is_default(self) -> bool:
        """Whether `LadderHoldout` does this where neither a rule nor what is shown is stated."""
        rule = _default(self.rows, self.reserve > 0.0)
        return self.mechanism == rule and self.show == SHOWN[0]

    def within(self, width: float) -> bool:
        """Return whether a width is proved for this way.

        Examples
        --------
        >>> plan(n=500, submissions=50, searches=2).finalists.within(0.2)
        True
        """
        return self.width <= width

    def settings(self) -> str:
        """Return the arguments of `LadderHoldout` for this way, as they are typed.

        Nothing is stated that the class does by itself where losses are 0 or 1.

        Examples
        --------
        >>> plan(n=500, submissions=50, searches=2).reserved.settings()
        'mechanism=Ladder(step=0.016), reserve=0.5'
        """
        is_default = self.mechanism == _default(self.rows, self.reserve > 0.0)
        stated = [] if is_default else [f"mechanism={self.mechanism!r}"]
        stated += [f"show={self.show!r}"] * (self.show != SHOWN[0])
        stated += [f"budget={self.budget}"] * (self.budget is not None)
        stated += [f"reserve={self.reserve:g}"] * (self.reserve > 0.0)
        return ", ".join(stated)


def _default(rows: int, reserved: bool) -> Mechanism:
    """Return the rule of a `LadderHoldout` for losses of 0 and 1 to which none is stated."""
    return default_mechanism(get_metric("accuracy"), rows, reserved=reserved)


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
    searches : int
        How many searches were simulated for each figure.
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
        Each answer may steer the next submission.
    reserved : Way
        The same, and the winner is certified on rows that no answer ever came from.
    advice : ReserveAdvice or None
        The widths of a metric's certificates with a reserve and without, for as many
        improvements as the searches of `learning` had; None of a metric without a certificate.

    Examples
    --------
    >>> advice = plan(n=500, submissions=50, searches=2)
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
    searches: int
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
        """The one of the two ways to learn with the higher certified score in simulation."""
        return max((self.learning, self.reserved), key=lambda way: way.certified)

    def __str__(self) -> str:
        """Return on a page what to expect and what to type."""
        asked = "" if self.width is None else f", width asked for {self.width:g}"
        question = (
            f"A holdout of {self.n} rows for {self.submissions} submissions; the winner is expected"
            f"\nto err on {self.risk:.3g} of the rows. Confidence {self.confidence:g}{asked}."
        )
        if self.groups is not None:
            question += (
                f"\nIn {self.groups} groups they are worth {self.independent} independent rows, "
                "for which all widths are."
            )
        advice = [] if self.advice is None else [str(self.advice)]
        parts = [question], _table(self), _explained(self), _limits(self), advice, _to_type(self)
        return "\n\n".join("\n".join(part) for part in parts if part)


def _table(plan: Plan) -> list[str]:
    goal = "" if plan.width is None else f"for {plan.width:g}"
    lines = [
        f"{'':26}{'proved':>7}{goal and 'rows':>11}{'in simulation: ':>34}".rstrip(),
        f"{'':26}{'width':>7}{goal:>11}{'true':>10}{'released':>10}{'certified':>11}",
    ]
    for way in plan.ways:
        rows = "" if plan.width is None else str(way.rows_needed or f"over {MOST_ROWS:.0e}")
        lines.append(
            f"{way.name:26}{way.width:>7.3f}{rows:>11}"
            f"{way.true:>10.3f}{way.released:>10.3f}{way.certified:>11.3f}"
        )
    return lines


def _explained(plan: Plan) -> list[str]:
    lines = ["width      how far the true score may be below the released one"]
    if plan.width is not None:
        lines.append(f"rows       so many prove a width of {plan.width:g}")
    lines += [
        "true       the winner's, which nobody knows; 1 - error rate, like all scores here",
        "certified  the lower end of the certificate",
        f"simulation the mean of {plan.searches} searches: a climb, or a grid of as many models;",
        "           finalists are its best by a noisy score from the training rows",
    ]
    return lines


def _limits(plan: Plan) -> list[str]:
    """Name the limits of a search that learns, for the width asked for."""
    if plan.width is None:
        return []
    most, least = plan.most_releases, plan.least_reserve
    releases = "1 release" if most == 1 else f"{most} releases"
    by_ladder = f"a ladder that gives {releases} at most" if most else ""
    by_reserve = "" if least is None else f"a reserve of {least:.0%}"
    ways = ", or by ".join(filter(None, (by_ladder, by_reserve)))
    return [
        f"If answers may steer the search, a width of {plan.width:g} is proved",
        f"by {ways or 'nothing on so few rows'}.",
    ]


def _to_type(plan: Plan) -> list[str]:
    typed = partial(_typed, grouped=plan.groups is not None)
    first, *rest = typed(plan.finalists)
    lines = [
        "Recommended: search on the training rows, confirm the finalists on the holdout:",
        f"    holdout = {first.lstrip()}",
        *rest,
        "    holdout.guard(search).fit(X_train, y_train)",
        "    or, for a study: holdout.optuna.finalists(study, objective)",
        "If all models query the holdout, and are fixed before the first answer (a grid, a",
        "random search, a study whose feedback is inner scores alone):",
        *typed(plan.fixed),
        "If answers may steer the search:",
        *typed(plan.adaptive),
    ]
    if plan.adaptive.reserve:
        lines.append("    and holdout.reserve_certificate(), once, at the end")
    if plan.learning.show != SHOWN[0]:
        if plan.adaptive.reserve:
            lines += ["or, with all rows for the search:", *typed(plan.learning)]
        lines += [
            "    each answer is whether the model improved; holdout.reveal() shows the",
            "    score, once, at the end",
        ]
    return lines


def _typed(way: Way, *, grouped: bool) -> list[str]:
    """Return the call of `LadderHoldout`, and why another rule than its own is stated."""
    call, settings = 'LadderHoldout(X, y, scoring="accuracy"', way.settings()
    call += ", groups=groups" * grouped
    if not settings:
        lines = [f"    {call})"]
    elif len(call) + len(settings) < _LONGEST:
        lines = [f"    {call}, {settings})"]
    else:
        lines = [f"    {call},", f"        {settings})"]
    if way.gain:
        lines.append(f"    in simulation this certifies {way.gain:.3f} more than the default rule")
    return lines


# Columns of a call that is printed, without what surrounds it.
_LONGEST = 72
# A budget is so many times what the busiest of the simulated searches took: it bounds what a
# search could take at worst, and is not meant to end it.
AMPLE = 2
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
# So many submissions are simulated for one rule, over all its searches and at most in each;
# but never fewer searches than these.
MOST_SIMULATED = 100_000
FEWEST = 3


def plan(
    *,
    n: int,
    submissions: int,
    width: float | None = None,
    risk: float = 0.1,
    confidence: float = 0.95,
    scoring: str | Metric = "accuracy",
    searches: int = 20,
    seed: int = 0,
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
    searches : int, default=20
        Searches to simulate for each rule; fewer where there are many submissions, and of
        each no more than the first 100,000.
    seed : int, default=0
        Of the simulation.
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
    >>> plan(n=5000, submissions=50, searches=2, groups=250, correlation=0.2).independent
    1041
    """
    n, submissions = whole("n", n), whole("submissions", submissions)
    if n < 2:
        raise InvalidArgument("n", "a whole number of at least 2", n)
    width = None if width is None else inside("width", width)
    risk, confidence = inside("risk", risk), inside("confidence", confidence)
    searches = min(whole("searches", searches), max(FEWEST, MOST_SIMULATED // submissions))
    metric = get_metric(scoring) if isinstance(scoring, str) else scoring
    worth = 1.0 if groups is None else _worth(n, groups, correlation)
    rows = math.floor(n * worth + HALFWAY)
    asked = _Question(rows, submissions, width, risk, confidence, searches, seed, worth)
    learning = _learning(asked)
    return Plan(
        *(n, submissions, width, risk, confidence, searches, groups, asked.n),
        most_releases=_most_releases(asked, learning),
        least_reserve=_least_reserve(asked),
        finalists=_batch(asked, "finalists on the holdout", min(FINALISTS, submissions)),
        fixed=_batch(asked, "fixed in advance", None),
        learning=learning,
        reserved=_reserved(asked),
        # A holdout of fewer rows has none to set aside.
        advice=None
        if asked.n < 10
        else reserve_advice(
            n=asked.n,
            metric=metric,
            submissions=submissions,
            improvements=max(1, round(learning.releases)),
            risk=risk,
            confidence=confidence,
        ),
    )


def _worth(n: int, groups: int, correlation: float) -> float:
    """Return how many independent rows one of n rows in groups is worth."""
    if not 2 <= whole("groups", groups) <= n:
        raise InvalidArgument("groups", f"a whole number from 2 to the number of rows, {n}", groups)
    return 1.0 / (1.0 + (n / groups - 1.0) * checked_correlation(correlation))


def rules(n: int) -> tuple[Mechanism, ...]:
    """Return the rules that a plan chooses from, for n examples."""
    root = math.sqrt(n)
    return (
        PricedLadder(),
        PricedLadder(weight=1.0),
        ParameterFreeLadder(),
        PairedTestLadder(alpha=0.05),
        PairedTestLadder(alpha=0.01),
        # Steps are rounded as people type them.
        *(Ladder(min(float(f"{parts / root:.2g}"), 1.0)) for parts in (0.25, 0.5, 1.0)),
        SimplifiedLadder(1.0 / n),
    )


# What a search came to, in scores: the true one, the released one, the certified one, and the
# number of releases.
_Outcome = tuple[float, float, float, float]


class _Question(NamedTuple):
    """What `plan` was asked."""

    n: int
    submissions: int
    width: float | None
    risk: float
    confidence: float
    searches: int
    seed: int
    # How many independent rows one row is worth: less than 1 in groups.
    worth: float = 1.0

    def rules(self, n: int) -> Iterator[Mechanism]:
        """Yield the rules that are right for these rows."""
        return (rule for rule in rules(n) if self.worth == 1.0 or takes_groups(type(rule)))

    def simulated(
        self,
        mechanism: Mechanism,
        n: int,
        learns: bool = True,
        finalists: int | None = None,
    ) -> tuple[SimulatedSearch, ...]:
        return simulated_searches(
            mechanism,
            n,
            min(self.submissions, MOST_SIMULATED),
            self.risk,
            learns=learns,
            finalists=finalists,
            searches=self.searches,
            seed=self.seed,
        )

    def way(
        self,
        name: str,
        rows: int,
        mechanism: Mechanism,
        budget: int | None,
        reserve: float,
        width: float,
        outcomes: Sequence[_Outcome],
    ) -> Way:
        """Return a way with the means of its simulated searches."""
        true, released, certified, releases = np.mean(outcomes, axis=0).tolist()
        return Way(
            name,
            rows,
            mechanism,
            budget,
            reserve,
            width,
            None,
            true,
            released,
            certified,
            releases,
            0.0,
        )

    def with_rows(self, way: Way, width_at: Callable[[int], float]) -> Way:
        """Return a way with the rows that prove the width asked for, if one was."""
        if self.width is None:
            return way
        needed = rows_needed(width_at, self.width)
        return replace(way, rows_needed=needed and math.ceil(needed / self.worth - HALFWAY))


def _batch(asked: _Question, name: str, finalists: int | None) -> Way:
    """Submit models that were all fixed before: no release costs anything within the batch."""

    def width_at(n: int) -> float:
        size = asked.submissions if finalists is None else finalists
        announced = finalists is not None
        return fixed_width(n, size, asked.risk, asked.confidence, announced=announced)

    rule, outcomes = _default(asked.n, reserved=False), []
    for search in asked.simulated(rule, asked.n, learns=False, finalists=finalists):
        transcript = Transcript(0, search.improved[-1], (), size=finalists, event=1)
        outcomes.append(_certified(asked, search, transcript, rule.resolution(asked.n)))
    way = asked.way(name, asked.n, rule, None, 0.0, width_at(asked.n), outcomes)
    return asked.with_rows(way, width_at)


def _learning(asked: _Question) -> Way:
    """Climb with a bound on the releases."""

    def width_at(mechanism: Mechanism, budget: int, show: str, n: int) -> float:
        search = asked.submissions, asked.risk, mechanism, budget, asked.confidence
        return learning_width(n, *search, show)

    ways = []
    for rule in asked.rules(asked.n):
        searches = asked.simulated(rule, asked.n)
        budget = AMPLE * max(len(search.improved) for search in searches)
        for show in SHOWN:
            outcomes = [_last_certified(asked, rule, show, search) for search in searches]
            width = width_at(rule, budget, show, asked.n)
            way = asked.way("learning", asked.n, rule, budget, 0.0, width, outcomes)
            ways.append(replace(way, show=show))
    way = _preferred(ways)
    assert way.budget is not None
    return asked.with_rows(way, partial(width_at, way.mechanism, way.budget, way.show))


def _reserved(asked: _Question) -> Way:
    """Climb on some of the rows, and query the others once, at the end."""

    def width_at(share: float, n: int) -> float:
        return reserve_width(_kept(n, share), asked.risk, asked.confidence)

    name, ways = "learning, with a reserve", []
    for share in SHARES:
        rows = _kept(asked.n, share)
        left, width = asked.n - rows, width_at(share, asked.n)
        # A query of the reserve pays for nothing that the ladder released.
        for rule in asked.rules(left):
            searches = asked.simulated(rule, left)
            outcomes = [_checked(asked, search, rows) for search in searches]
            ways.append(asked.way(name, left, rule, None, share, width, outcomes))
    way = _preferred(ways)
    return asked.with_rows(way, partial(width_at, way.reserve))


def _preferred(ways: Sequence[Way]) -> Way:
    """Return the best way with the class's own rule, unless another certifies clearly more.

    Its gain states by how much more the other one certifies.
    """
    defaults = [way for way in ways if way.is_default]
    default = max(defaults, key=lambda way: way.certified)
    best = max(ways, key=lambda way: way.certified)
    gain = best.certified - default.certified
    return replace(best, gain=gain) if gain >= MARGIN else default


def _most_releases(asked: _Question, way: Way) -> int | None:
    """Return the largest budget that proves the width asked for, with this way's rule."""
    if asked.width is None:
        return None

    def proves(budget: int) -> bool:
        search = asked.submissions, asked.risk, way.mechanism, budget, asked.confidence
        return learning_width(asked.n, *search, way.show) <= goal

    goal = asked.width
    # Each release costs its part, so the first budget that fails is followed by no other.
    budgets = range(1, asked.submissions + 1)
    return bisect_left(budgets, True, key=lambda budget: not proves(budget))


def _least_reserve(asked: _Question) -> float | None:
    """Return the smallest share, in whole percents, that proves the width asked for."""
    if asked.width is None:
        return None
    shares = [percents / 100.0 for percents in range(1, 100)]
    rows = {share: _kept(asked.n, share) for share in shares}
    proving = (
        share
        for share in shares
        if rows[share] < asked.n
        and reserve_width(rows[share], asked.risk, asked.confidence) <= asked.width
    )
    return next(proving, None)


def _kept(n: int, share: float) -> int:
    """Return how many rows a reserve has, rounded as the ledger does."""
    return max(1, math.floor(share * n + 0.5))


def _last_certified(
    asked: _Question, rule: Mechanism, show: str, search: SimulatedSearch
) -> _Outcome:
    """Certify the last release by all those before it."""
    before = search.improved[-1] - 1
    grid = grid_of(rule, asked.n, binary=True)
    assert grid is not None
    step = rule.resolution(asked.n)
    shown = search.released[:-1] if show == SHOWN[0] else ()
    highest = [
        highest_release(rule, asked.n, risk, releases, counts=True)
        for releases, risk in enumerate(shown, 1)
    ]
    values = tuple(round(risk / step) for risk in shown)
    choices = (math.floor(risk / step + 0.5 + HALFWAY) + 1 for risk in highest)
    ladder = LadderTranscript(
        before,
        search.improved[:-1],
        values,
        grid.n_values,
        choices=(grid.n_values, *choices)[: len(values)],
    )
    transcript = Transcript.alone(ladder if before else None)
    if show != SHOWN[0]:
        # The score is requested once, when the search is over.
        all_queries = replace(ladder, queries=asked.submissions, improved=search.improved)
        request = Request(1, (all_queries,))
        transcript = replace(transcript, on_request=True, request=request)
    return _certified(asked, search, transcript, step)


def _certified(
    asked: _Question, search: SimulatedSearch, transcript: Transcript, step: float
) -> _Outcome:
    released, true = search.released[-1], search.true[-1]
    certificate = certify(released, asked.n, transcript, confidence=asked.confidence, rounding=step)
    return 1.0 - true, 1.0 - released, 1.0 - certificate.high, len(search.improved)


def _checked(asked: _Question, search: SimulatedSearch, rows: int) -> _Outcome:
    """Query the reserve once, where the winner errs as often as it truly does."""
    true = search.true[-1]
    errors = math.floor(true * rows + 0.5)
    log_level = math.log((1.0 - asked.confidence) / 2.0) - reserve_log_count(1)
    high = exact_upper(errors, rows, log_level)
    return 1.0 - true, 1.0 - errors / rows, 1.0 - high, len(search.improved)


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
    if not 1 <= len(budgets) <= len(BLUES):
        raise InvalidArgument("budgets", f"1 to {len(BLUES)} numbers", f"of {len(budgets)}")
    ax = axes_or_new(ax)
    n = plan.independent
    rows = np.unique(np.geomspace(max(n / 30, 20), n * 30, PLOTTED_ROWS).astype(int))
    asked = plan.submissions, plan.risk

    def draw(width_at: Callable[[int], float], label: str, colour: str, style: Any) -> None:
        widths = [width_at(int(n)) for n in rows]
        ax.plot(rows, widths, color=colour, ls=style, label=label)

    def learning(budget: int) -> Callable[[int], float]:
        rule, show = plan.learning.mechanism, plan.learning.show
        return lambda n: learning_width(n, *asked, rule, budget, plan.confidence, show)

    for budget, colour in zip(budgets, BLUES, strict=False):
        draw(learning(whole("budgets", budget)), f"learning, {budget} releases", colour, "-")
    size = min(FINALISTS, plan.submissions)
    draw(
        lambda n: fixed_width(n, size, plan.risk, plan.confidence, announced=True),
        f"{size} finalists",
        RED,
        (0, (5, 1)),
    )
    draw(lambda n: fixed_width(n, *asked, plan.confidence), "fixed in advance", ORANGE, "--")
    share = plan.reserved.reserve
    draw(
        lambda n: reserve_width(max(round(n * share), 1), plan.risk, plan.confidence),
        f"reserve of {share:g}",
        GREEN,
        "-.",
    )
    ax.axvline(n, color=GREY, lw=0.8)
    if plan.width is not None:
        ax.axhline(plan.width, color=GREY, lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="rows of the holdout", ylabel="proved width (score)")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(fontsize="small", frameon=False)
    return ax
