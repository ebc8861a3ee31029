"""A plan: which rule, how many releases, how large a reserve, and what may then be believed."""

from __future__ import annotations

from dataclasses import dataclass

from ladderholdout.mechanisms import Mechanism
from ladderholdout.planning.widths import MOST_ROWS


@dataclass(frozen=True, slots=True)
class Way:
    """One way to search, and what it leaves to be believed.

    Attributes
    ----------
    name : str
        What the search does.
    mechanism : Mechanism
        The rule.
    budget : int or None
        Releases in all; None is no bound.
    reserve : float
        Share of the rows that is kept for one look at the end.
    width : float
        Proved before the search: the true score lies at most this far below the one that is
        shown, if that is the score expected. 0/1 losses.
    rows_needed : int or None
        Rows with which the width asked for is proved; None where none was asked for, or
        `MOST_ROWS` do not do.
    true, released, certified : float
        Scores (1 - risk) of simulated searches: the winner's true one, the one shown, and
        the lower end of its certificate. Means.
    releases : float
        Releases in the simulated searches, the mean.
    """

    name: str
    mechanism: Mechanism
    budget: int | None
    reserve: float
    width: float
    rows_needed: int | None
    true: float
    released: float
    certified: float
    releases: float

    def within(self, width: float) -> bool:
        """Return whether a width is proved for this way."""
        return self.width <= width

    def settings(self) -> str:
        """Return the arguments of `LadderHoldout` for this way, as they are typed."""
        said = [f"mechanism={self.mechanism!r}"]
        said += [f"budget={self.budget}"] * (self.budget is not None)
        said += [f"reserve={self.reserve:g}"] * (self.reserve > 0.0)
        return ", ".join(said)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a holdout, for three ways to search.

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
    most_releases : int or None
        The largest budget with which the way ``learning`` proves the width asked for; 0
        where none does, None where no width was asked for.
    least_reserve : float or None
        The smallest share in reserve that proves the width asked for, in whole percents;
        None where none does, or no width was asked for.
    fixed : Way
        All submissions are fixed before the first answer: a grid, a random search, a
        study that is told its guides alone, the finalists of a study.
    learning : Way
        Each answer may steer the next submission.
    reserved : Way
        The same, and the winner is certified on rows that no answer ever came from.
    """

    n: int
    submissions: int
    width: float | None
    risk: float
    confidence: float
    searches: int
    most_releases: int | None
    least_reserve: float | None
    fixed: Way
    learning: Way
    reserved: Way

    @property
    def ways(self) -> tuple[Way, Way, Way]:
        """All three."""
        return self.fixed, self.learning, self.reserved

    @property
    def adaptive(self) -> Way:
        """The one of the two ways to learn with the higher certified score in simulation."""
        return max((self.learning, self.reserved), key=lambda way: way.certified)

    def __str__(self) -> str:
        """Say in a page what to expect and what to type."""
        return described(self)


def described(plan: Plan) -> str:
    """Return a plan as text of at most 79 columns.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    str
        The question, a table, what its columns mean, and what to type.
    """
    asked = "" if plan.width is None else f", width asked for {plan.width:g}"
    question = [
        f"A holdout of {plan.n} rows for {plan.submissions} submissions; the winner is expected",
        f"to err on {plan.risk:.3g} of the rows. Confidence {plan.confidence:g}{asked}.",
    ]
    parts = question, _table(plan), _explained(plan), _limits(plan), _to_type(plan)
    return "\n\n".join("\n".join(part) for part in parts if part)


def _table(plan: Plan) -> list[str]:
    goal = "" if plan.width is None else f"for {plan.width:g}"
    lines = [
        f"{'':26}{'proved':>7}{goal and 'rows':>11}{'in simulation: ':>33}".rstrip(),
        f"{'':26}{'width':>7}{goal:>11}{'true':>10}{'shown':>8}{'certified':>11}",
    ]
    for way in plan.ways:
        lines.append(
            f"{way.name:26}{way.width:>7.3f}{_rows(plan, way):>11}"
            f"{way.true:>10.3f}{way.released:>8.3f}{way.certified:>11.3f}"
        )
    return lines


def _rows(plan: Plan, way: Way) -> str:
    if plan.width is None:
        return ""
    return f"over {MOST_ROWS:.0e}" if way.rows_needed is None else str(way.rows_needed)


def _explained(plan: Plan) -> list[str]:
    lines = ["width      how far the true score may lie below the one shown"]
    if plan.width is not None:
        lines.append(f"rows       so many prove a width of {plan.width:g}")
    lines += [
        "true       the winner's, which nobody knows; 1 - error rate, like all scores here",
        "certified  the lower end of the certificate",
        f"simulation the mean of {plan.searches} searches: a climb, or a grid of as many models",
    ]
    return lines


def _limits(plan: Plan) -> list[str]:
    """Say what a search that learns has to keep to, for the width asked for."""
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
    lines = [
        "If all models are fixed before the first answer (a grid, a random search, a study",
        "that is told its guides alone):",
        f"    LadderHoldout(X, y, {plan.fixed.settings()})",
        "If answers may steer the search:",
        f"    LadderHoldout(X, y, {plan.adaptive.settings()})",
    ]
    if plan.adaptive.reserve:
        lines.append("    and holdout.certify(), once, at the end")
    return lines
