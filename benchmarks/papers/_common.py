"""What the scripts of this folder share: options, repetitions, tables, pictures.

A script prints its numbers, writes its picture and has ``main(argv=None)``. Run one alone, or
all of them with ``python benchmarks/papers``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

OUT = Path(__file__).with_name("out")
# Blue, orange, green, purple, grey: told apart without colour vision as well.
COLOURS = ("#1d5a9b", "#c97b00", "#007a62", "#7a3e9d", "#6b7280", "#b3261e", "#4787c2")
Task = TypeVar("Task")
Result = TypeVar("Result")


def options(description: str | None, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options that every script takes."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions, for a first look")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the pictures")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    return parser.parse_args(argv)


def repeated(
    once: Callable[[np.random.SeedSequence], Result],
    repetitions: int,
    asked: argparse.Namespace,
) -> list[Result]:
    """Call a function of the module's top level with one seed for each repetition.

    The results depend on the seed alone, not on the number of processes.
    """
    return _spread_out(asked.jobs, once, np.random.SeedSequence(asked.seed).spawn(repetitions))


def mapped(
    once: Callable[[Task, np.random.SeedSequence], Result],
    tasks: Sequence[Task],
    asked: argparse.Namespace,
) -> list[Result]:
    """Call a function with each task and a seed of its own; see `repeated`."""
    seeds = np.random.SeedSequence(asked.seed).spawn(len(tasks))
    return _spread_out(asked.jobs, once, tasks, seeds)


def _spread_out(jobs: int, once: Callable[..., Result], *each: Sequence[Any]) -> list[Result]:
    if jobs == 1:
        return list(map(once, *each))
    # Started from a clean process: the parent may hold threads of a numerical library.
    with ProcessPoolExecutor(jobs, get_context("forkserver")) as pool:
        return list(pool.map(once, *each))


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under their heads: text to the left, numbers to the right."""
    shown = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *shown, strict=True)]
    left = [isinstance(value, str) for value in rows[0]]
    for line in (list(heads), *shown):
        cells = (
            f"{text:<{width}}" if at_left else f"{text:>{width}}"
            for text, width, at_left in zip(line, widths, left, strict=True)
        )
        print("  ".join(cells).rstrip())


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "-" if math.isnan(value) else f"{value:.3f}"
    return str(value)


def spread(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation over the repetitions, the first axis."""
    array = np.asarray(values, dtype=float)
    deviation = array.std(axis=0, ddof=1) if len(array) > 1 else np.zeros_like(array[0])
    return array.mean(axis=0), deviation


def panels(columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many panels side by side."""
    figure = Figure(figsize=(4.6 * columns, 3.4), layout="constrained", dpi=100)
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, columns, place + 1) for place in range(columns)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def write(figure: Figure, asked: argparse.Namespace, name: str) -> Path:
    """Write a picture into the folder that was asked for, and say where."""
    asked.out.mkdir(parents=True, exist_ok=True)
    path: Path = asked.out / f"{name}.png"
    figure.savefig(path)
    print(f"picture: {path}")
    return path
