"""What the scripts of this folder share: colours for both schemes, axes, and the picture.

A script draws one figure and hands it to `show`. `python gallery/x.py` prints its figures, and
`--picture FILE` writes the picture as .svg, .png or .pdf. The site shows each picture twice, on
light and on dark paper: `dark` exchanges their colours by `DARK`.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

ROOT = Path(__file__).resolve().parents[1]
# Some scripts draw figures of the papers, which are computed there.
sys.path.append(str(ROOT / "benchmarks" / "papers"))

# Each colour on light paper, and the one that is shown in its place on dark paper. Blue, orange,
# green, purple and red are told apart without colour vision, by their lightness as well.
INK, QUIET, GRID = "#1f2933", "#5f6b76", "#d5dae0"
BLUE, ORANGE, GREEN, PURPLE, RED = "#1d5a9b", "#b45f06", "#00705a", "#7a3e9d", "#b3261e"
RAMP = ("#08306b", "#2263a5", "#3f7cba", "#5b8ebf", "#6c97bf")
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED)
DARK = {
    INK: "#e6e9ee",
    QUIET: "#a7b0bb",
    GRID: "#444c59",
    BLUE: "#7db3ec",
    ORANGE: "#f0a44b",
    GREEN: "#4fc4a4",
    PURPLE: "#c79be6",
    RED: "#f28b82",
    **dict(zip(RAMP, ("#d3e6fa", "#a9cdf3", "#86b5e6", "#6f9fd2", "#6290c3"), strict=True)),
    # What the library's own pictures, and Matplotlib's defaults, are drawn in.
    "#000000": "#e6e9ee",
    "#ffffff": "#1e2129",
    "#cccccc": "#444c59",
    "#c97b00": "#f0a44b",
    "#007a62": "#4fc4a4",
    "#6b7280": "#a7b0bb",
    "#4787c2": "#86b5e6",
    "#74a7d6": "#6f9fd2",
    "#9fc3e4": "#6290c3",
}

matplotlib.rcParams.update(
    {
        "axes.axisbelow": True,
        "axes.edgecolor": QUIET,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": INK,
        "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": "medium",
        "axes.titleweight": "bold",
        "errorbar.capsize": 2,
        "figure.facecolor": "none",
        "font.size": 11,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "legend.fontsize": "small",
        "legend.frameon": False,
        "lines.markersize": 5,
        "savefig.facecolor": "none",
        "svg.hashsalt": "ladderholdout",
        "text.color": INK,
        "xtick.color": QUIET,
        "ytick.color": QUIET,
    }
)


def panels(columns: int = 1, rows: int = 1, **named: Any) -> tuple[Figure, Any]:
    """Return a figure and its axes: one, or an array of them."""
    wide = {1: 6.4, 2: 8.4}.get(columns, 10.0)
    figure = Figure(figsize=(wide, 3.8 if rows == 1 else 2.9 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, **named)


def counts(ax: Axes, *, x: bool = True, y: bool = False) -> None:
    """Let axes that count show whole numbers alone."""
    for axis, counted in ((ax.xaxis, x), (ax.yaxis, y)):
        if counted:
            axis.set_major_locator(MaxNLocator(integer=True))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def band(ax: Axes, x: Any, runs: np.ndarray, colour: str, label: str, style: str = "-") -> None:
    """Draw the mean of repetitions, of shape (repetitions, points), and where nine of ten lie."""
    low, high = np.quantile(runs, [0.05, 0.95], axis=0)
    ax.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    ax.plot(x, runs.mean(axis=0), color=colour, ls=style, label=label, lw=2)


def truth(ax: Axes, value: float, label: str = "truth") -> None:
    """Draw a line at what is true."""
    ax.axhline(value, color=QUIET, ls="--", lw=1.2, label=label)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their heads, numbers with three digits."""
    lines = [list(map(str, heads))]
    lines += [[f"{one:.3f}" if isinstance(one, float) else str(one) for one in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        first, *others = line
        cells = [one.rjust(width) for one, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def asked() -> argparse.Namespace:
    """Read the option that every script takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=Path, metavar="FILE", help=".svg, .png or .pdf")
    return parser.parse_args()


def show(figure: Figure, described: str) -> None:
    """Write the picture where `--picture` says; `described` is for those who cannot see it."""
    file = asked().picture
    if file is None:
        print("\n--picture FILE writes the picture of this.")
    elif file.suffix == ".svg":
        file.write_text(svg(figure, described), encoding="utf-8")
    else:
        figure.savefig(file, dpi=150, facecolor="white")


def svg(figure: Figure, described: str) -> str:
    """Return a figure as SVG, the same from the same numbers."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Title": described, "Date": None})
    return drawn.getvalue()


def dark(picture: str) -> str:
    """Exchange the colours of an SVG for those that dark paper needs."""
    found = re.sub(r"#[0-9a-fA-F]{6}\b", lambda one: DARK.get(one[0].lower(), one[0]), picture)
    # What states no colour, as Matplotlib's black text does not, is drawn in the root's.
    return found.replace("<svg ", f'<svg fill="{DARK[INK]}" ', 1)
