"""Pictures of distributions over repetitions, a grid of panels each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from _common import COLOURS
from _neto_data import Floats
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PUBLIC, FINAL, DIFFERENCE = COLOURS[5], COLOURS[0], COLOURS[2]


def grid(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(3.0 * columns, 1.9 * rows), layout="constrained", dpi=90)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=7)
    return figure, axes.tolist()


def label(ax: Axes, title: str = "", x: str = "", y: str = "") -> None:
    ax.set_title(title, fontsize=8, loc="left")
    ax.set_xlabel(x, fontsize=7)
    ax.set_ylabel(y, fontsize=7)


def band(ax: Axes, values: Floats, colour: str, name: str, first: int = 1) -> None:
    """Draw what a row of boxplots shows of values (repetitions, k): median, quartiles, 5 to 95%."""
    x = np.arange(first, first + values.shape[1])
    low, lower, middle, upper, high = np.percentile(values, [5, 25, 50, 75, 95], axis=0)
    ax.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    ax.fill_between(x, lower, upper, color=colour, alpha=0.3, linewidth=0)
    ax.plot(x, middle, color=colour, linewidth=1.2, label=name)


def boxes(ax: Axes, values: Floats, names: Sequence[str], colour: str, shift: float = 0.0) -> None:
    """Draw a boxplot for each column of values (repetitions, k)."""
    places = np.arange(1, values.shape[1] + 1)
    ax.boxplot(
        values,
        positions=places + shift,
        widths=0.3,
        sym="",
        manage_ticks=False,
        boxprops={"color": colour},
        whiskerprops={"color": colour},
        capprops={"color": colour},
        medianprops={"color": colour, "linewidth": 2},
    )
    ax.set_xticks(places, names)


def lines(ax: Axes, *levels: float) -> None:
    for level in levels:
        ax.axhline(level, color=COLOURS[4], linewidth=0.7, linestyle=":")


def median(values: Floats) -> float:
    return float(np.median(values))


def quartiles(values: Floats) -> str:
    low, high = np.percentile(values, [25, 75])
    return f"{low:.3f} to {high:.3f}"


def repetitions(asked: argparse.Namespace, papers: int, quick: int) -> int:
    return quick if asked.quick else papers
