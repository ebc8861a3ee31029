"""Which rules a leaderboard may have, by what has a ladder of its own."""

from __future__ import annotations

import math

from ladderholdout.errors import HoldoutConflict, InvalidArgument
from ladderholdout.guard.settings import DefaultRule
from ladderholdout.mechanisms import Ladder, Mechanism, RankLadder, SimplifiedLadder
from ladderholdout.metrics import Metric

PLACES = 10
"""Places of a leaderboard per rank where none are stated."""

# By what has a ladder of its own. Rules with a grid and without noise, so that ranks are no
# finer than releases, and all ladders answer equal predictions with equal numbers.
RULES: dict[str, tuple[type[Mechanism], ...]] = {
    "team": (SimplifiedLadder, Ladder),
    "rank": (RankLadder,),
}


def board_step(n: int) -> float:
    """Return the step of a leaderboard on n rows where none is stated: 1 over the root of n.

    Examples
    --------
    >>> board_step(400), board_step(10_000)
    (0.05, 0.01)
    """
    return 1.0 / max(1, math.isqrt(n))


def _team_rule(metric: Metric, n: int, *, reserved: bool = False) -> Mechanism:
    return SimplifiedLadder(board_step(n))


def _rank_rule(metric: Metric, n: int, *, reserved: bool = False) -> Mechanism:
    return RankLadder(board_step(n), PLACES)


# The rule that a board has where none is stated.
DEFAULTS: dict[str, DefaultRule] = {"team": _team_rule, "rank": _rank_rule}


def check_rule(per: str, mechanism: object) -> None:
    """Refuse a rule that is none for a leaderboard."""
    rules = RULES[per]
    if type(mechanism) not in rules:
        raise InvalidArgument(
            "mechanism",
            " or ".join(rule.__name__ for rule in rules) + f" with per={per!r}",
            type(mechanism).__name__,
            "A leaderboard shows scores on a grid and without noise.",
        )


def is_board_rule(mechanism: Mechanism) -> bool:
    """Return whether ladders of boards may follow this rule."""
    return any(type(mechanism) in rules for rules in RULES.values())


def kind_of(mechanism: Mechanism) -> str:
    """Return what has a ladder of its own on a board that follows this rule."""
    for per, rules in RULES.items():
        if type(mechanism) in rules:
            return per
    raise HoldoutConflict(
        f"The ladder of this name follows {mechanism.name}, which is no rule for a leaderboard. "
        'Start another one, ladder="another name".'
    )
