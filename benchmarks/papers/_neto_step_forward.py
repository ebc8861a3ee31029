"""Figures 4, 6 and S2 to S5: the step-forward attack, over many repetitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from _common import options, repeated, table, write
from _neto_attacks import step_forward
from _neto_data import DATA, WHAT, Floats, drawn
from _neto_drawing import FINAL, PUBLIC, boxes, grid, label, lines, median, quartiles, repetitions
from _neto_ladders import ALPHAS, BOOTSTRAPS, Rule
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Rounds of the attack, and those that are shown: a difference of one round is Freedman's.
ROUNDS = 5
SHOWN = (2, 3, 4, 5)
Found = dict[str, Floats]


def once(
    seed: np.random.SeedSequence, data: str, response: str, rules: Mapping[str, Rule]
) -> list[Floats]:
    """Return the errors (rounds, 2) of the models after each round, under each of the rules."""
    ours, *theirs = [np.random.default_rng(child) for child in seed.spawn(1 + len(rules))]
    parts = drawn(data, response, ours)
    return [
        step_forward(parts, rule, ROUNDS, rng).errors
        for rule, rng in zip(rules.values(), theirs, strict=True)
    ]


def run(
    figure: str,
    description: str | None,
    response: str,
    rules: Mapping[str, Rule],
    argv: Sequence[str] | None,
    public: bool = False,
) -> None:
    """Repeat the attack on both data sets; draw the gaps, or the public errors themselves."""
    asked = options(description, argv)
    count = repetitions(asked, 100, 10)
    print(f"{count} repetitions, {WHAT[response]}: medians after 2 and 5 rounds")
    found, rows = {}, []
    for data in DATA:
        errors = np.array(
            repeated(partial(once, data=data, response=response, rules=rules), count, asked)
        )
        found[data] = {
            name: errors[:, place, :, 0] - (0.0 if public else errors[:, place, :, 1])
            for place, name in enumerate(rules)
        }
        rows += [_row(data, name, errors[:, place], public) for place, name in enumerate(rules)]
    measured = [f"{what} {rounds}" for rounds in (2, 5) for what in ("public", "final", "gap")]
    last = "public 5" if public else "gap 5"
    table(["data", "mechanism", *measured, f"quartiles of {last}"], rows)
    write(_picture(found, rules, public), asked, figure)


def _row(data: str, name: str, errors: Floats, shows_public: bool) -> list[object]:
    public, final = errors[..., 0], errors[..., 1]
    medians = [
        median(values[:, rounds - 1])
        for rounds in (2, 5)
        for values in (public, final, public - final)
    ]
    shown = public if shows_public else public - final
    return [data, name, *medians, quartiles(shown[:, -1])]


def _picture(found: Mapping[str, Found], rules: Mapping[str, Rule], public: bool) -> Figure:
    """Draw a panel for each level and bootstrap size, the Ladder beside LadderBoot."""
    sizes: Sequence[int] = BOOTSTRAPS if len(rules) > len(ALPHAS) else ()
    picture, axes = grid(max(len(sizes), 1), len(ALPHAS) * len(found))
    for place, (data, values) in enumerate(found.items()):
        for line, size in zip(axes, sizes or (None,), strict=True):
            for alpha, ax in zip(ALPHAS, line[place * len(ALPHAS) :], strict=False):
                _panel(ax, values, alpha, size)
                lines(ax, 1.0 if public else 0.0)
                title = f"{data}, {alpha}" + (f", b = {size}" if size else "")
                label(ax, title, "rounds", "public MSE" if public else "public - final")
    return picture


def _panel(ax: Axes, values: Found, alpha: float, size: int | None) -> None:
    names = [str(rounds) for rounds in SHOWN]
    chosen = slice(SHOWN[0] - 1, None)
    boxes(ax, values[f"Ladder {alpha}"][:, chosen], names, PUBLIC, -0.2 if size else 0.0)
    if size:
        boxes(ax, values[f"LadderBoot {alpha}, b = {size}"][:, chosen], names, FINAL, 0.2)
