"""Freedman's attack and its step-forward variant, as Neto et al. run them on a leaderboard."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from _neto_data import Floats, Parts
from _neto_ladders import Incumbent, Rule, climb
from _neto_models import Regression, errors, nested, regression

from ladderholdout.lab import StepForward
from ladderholdout.lab.screening import Selection

# The largest regression of Freedman's attack.
TOP = 30


def univariate_losses(parts: Parts) -> Floats:
    """Return the losses (p, n) of the regressions on one feature each, on the public part."""
    return _losses(regression(parts), parts)


def _losses(model: Regression, parts: Parts) -> Floats:
    y = parts.public.y
    return np.asarray((model.candidates(len(y))[:, :, 0] - y) ** 2)


def best_first(releases: Floats, top: int = TOP) -> np.ndarray:
    """Rank features by released risks; of tied ones the first come first, as in the paper."""
    return np.argsort(releases, kind="stable")[:top]


def freedman(parts: Parts, releases: Floats, top: int = TOP) -> Floats:
    """Return the errors (k, 2) of regressions on the top 1, ..., k features, public and final.

    The public error is the model's own, not what the ladder would release of it: the paper
    compares models.
    """
    return errors(parts, nested(parts, best_first(releases, top)))


class Steps(NamedTuple):
    """A step-forward attack: the releases of each round, its jumps, and what it chose.

    A position is one within the round. An attack whose round brings no jump has nothing to
    choose and ends; its model, and the errors, stay as they are.
    """

    releases: list[Floats]
    jumps: list[list[int]]
    chosen: list[int]
    errors: Floats


def step_forward(parts: Parts, rule: Rule, rounds: int, rng: np.random.Generator) -> Steps:
    """Run `StepForward` on whole rounds, with one ladder that goes on from round to round."""
    model, features = regression(parts), parts.train.X.shape[1]
    attack = StepForward(features, change_points=rule.redraws, best=rule.discloses)
    selection, incumbent, steps = Selection(features), Incumbent(), Steps([], [], [], np.zeros(0))
    table = []
    for _ in range(rounds):
        losses = _losses(model, parts)[selection.candidates[0]]
        releases, jumps, incumbent = climb(rule, incumbent, losses, rng)
        steps.releases.append(releases)
        steps.jumps.append(jumps)
        improved = np.isin(np.arange(len(losses)), jumps)
        places = attack.places(releases[:, None], improved[:, None])
        if not selection.choose(places):
            break
        model.add(int(selection.chosen[0, -1]))
        steps.chosen.append(int(places[0]))
        table.append(errors(parts, model.fitted.T)[0])
    # No jump in the first round cannot be: the first submission is one.
    table += [table[-1]] * (rounds - len(table))
    return steps._replace(errors=np.array(table))
