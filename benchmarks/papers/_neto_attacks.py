"""Freedman's attack and its step-forward variant, as Neto et al. run them on a leaderboard."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from _neto_data import Floats, Parts
from _neto_ladders import Rule, Standing, change_points, climb
from _neto_models import Regression, errors, nested

from ladderholdout.mechanisms import FullDisclosure, LadderBoot

# The largest regression of Freedman's attack.
TOP = 30


def univariate_losses(parts: Parts) -> Floats:
    """Return the losses (p, n) of the regressions on one feature each, on the public part."""
    return _losses(Regression(parts), parts)


def _losses(model: Regression, parts: Parts) -> Floats:
    y = parts.public.y
    return np.asarray((model.candidates(len(y)) - y) ** 2)


def best_first(releases: Floats, top: int = TOP) -> np.ndarray:
    """Rank features by released risks; of tied ones the first come first, as in the paper."""
    return np.argsort(releases, kind="stable")[:top]


def freedman(parts: Parts, releases: Floats, top: int = TOP) -> Floats:
    """Return the errors (k, 2) of regressions on the top 1, ..., k features, public and final.

    The public error is the model's own, not what the ladder would release of it: the paper
    compares models.
    """
    return errors(parts, nested(parts, best_first(releases, top)))


class Course(NamedTuple):
    """A step-forward attack: the releases of each round, its jumps, and what it chose.

    A position is one within the round. An attack whose round brings no jump has nothing to
    choose and ends; its model, and the errors, stay as they are.
    """

    releases: list[Floats]
    jumps: list[list[int]]
    chosen: list[int]
    errors: Floats


def step_forward(parts: Parts, rule: Rule, rounds: int, rng: np.random.Generator) -> Course:
    """Run Algorithm 7 with one ladder that goes on from round to round.

    Its line 5 (univariate models once more) is left out: the numbers of submissions that the
    paper gives (199 for 2 rounds of 100 features) are those without it.
    """
    model, remaining = Regression(parts), np.arange(parts.train.X.shape[1])
    standing, course = Standing(), Course([], [], [], np.zeros((0, 2)))
    table = []
    for _ in range(rounds):
        losses = _losses(model, parts)[remaining]
        releases, jumps, standing = climb(rule, standing, losses, rng)
        course.releases.append(releases)
        course.jumps.append(jumps)
        place = last_jump(rule, releases, jumps)
        if place is None:
            break
        model.add(remaining[place])
        remaining = np.delete(remaining, place)
        course.chosen.append(place)
        table.append(errors(parts, model.fitted[None])[0])
    # No jump in the first round cannot be: the first submission is one.
    table += [table[-1]] * (rounds - len(table))
    return course._replace(errors=np.array(table))


def last_jump(rule: Rule, releases: Floats, jumps: list[int]) -> int | None:
    """Return where the attacker sees the last jump of a round.

    Full disclosure has no jumps: there the attacker takes the best. Of noisy releases he is
    told how many jumps there were, as in the paper, and finds the places by himself; the first
    release of a round has none before it that it could be seen to differ from.
    """
    if isinstance(rule, FullDisclosure):
        return int(np.argmin(releases))
    if not jumps:
        return None
    if not isinstance(rule, LadderBoot):
        return jumps[-1]
    return max(change_points(releases, sum(jump > 0 for jump in jumps)), default=0)
