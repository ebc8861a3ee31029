"""Pictures of plans, and where pictures go; Matplotlib is not imported before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.mechanisms.arithmetic import whole
from ladderholdout.mechanisms.defaults import FINALISTS
from ladderholdout.planning.plans import Plan
from ladderholdout.planning.widths import fixed_width, learning_width, reserve_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import LineStyleType


_PICTURES = (".png", ".svg", ".pdf")


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or those of a new figure."""
    if ax is not None:
        return ax
    with needed("A picture"):
        from matplotlib import pyplot as plt
    return plt.subplots(layout="constrained")[1]


def count_along(ax: Axes) -> None:
    """Put whole numbers alone on a horizontal axis that counts.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> _ = ax.plot([1, 2, 3], [0.5, 0.6, 0.7])
    >>> count_along(ax)
    >>> ax.get_xticks().tolist() == [round(tick) for tick in ax.get_xticks()]
    True
    """
    with needed("A picture"):
        from matplotlib.ticker import MaxNLocator
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def picture_file(file: Path) -> Path:
    """Refuse a place that cannot be, before anything is computed.

    Examples
    --------
    >>> picture_file(Path("curve.png")).name
    'curve.png'
    """
    if file.suffix.lower() not in _PICTURES:
        raise InvalidArgument("--plot", f"a file ending in {', '.join(_PICTURES)}", file.name)
    if file.is_dir() or not file.parent.is_dir():
        raise InvalidArgument("--plot", "a file in a folder that is there", file)
    return file


def save(ax: Axes, file: Path) -> None:
    """Write the figure of some axes into a file."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    try:
        figure.savefig(file)
    except OSError as fault:
        came = f"{file}: {fault.strerror}"
        raise InvalidArgument("--plot", "a file that can be written", came) from None


# From dark to light, so that the order of the budgets shows without colour as well.
LEARNING = ("#08306b", "#1d5a9b", "#4787c2", "#74a7d6", "#9fc3e4")
CONFIRMED, FIXED, RESERVED, QUIET = "#b3261e", "#c97b00", "#007a62", "#6b7280"
_POINTS = 40


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
    if not 1 <= len(budgets) <= len(LEARNING):
        raise InvalidArgument("budgets", f"1 to {len(LEARNING)} numbers", f"of {len(budgets)}")
    ax = axes_or_new(ax)
    rows = np.unique(np.geomspace(max(plan.n / 30, 20), plan.n * 30, _POINTS).astype(int))
    asked = plan.submissions, plan.risk

    def draw(
        width_at: Callable[[int], float], label: str, colour: str, style: LineStyleType
    ) -> None:
        widths = [width_at(int(n)) for n in rows]
        ax.plot(rows, widths, color=colour, ls=style, label=label)

    def learning(budget: int) -> Callable[[int], float]:
        rule = plan.learning.mechanism
        return lambda n: learning_width(n, *asked, rule, budget, plan.confidence)

    for budget, colour in zip(budgets, LEARNING, strict=False):
        draw(learning(whole("budgets", budget)), f"learning, {budget} releases", colour, "-")
    size = min(FINALISTS, plan.submissions)
    draw(
        lambda n: fixed_width(n, size, plan.risk, plan.confidence, announced=True),
        f"{size} finalists",
        CONFIRMED,
        (0, (5, 1)),
    )
    draw(lambda n: fixed_width(n, *asked, plan.confidence), "fixed in advance", FIXED, "--")
    share = plan.reserved.reserve
    draw(
        lambda n: reserve_width(max(round(n * share), 1), plan.risk, plan.confidence),
        f"reserve of {share:g}",
        RESERVED,
        "-.",
    )
    ax.axvline(plan.n, color=QUIET, lw=0.8)
    if plan.width is not None:
        ax.axhline(plan.width, color=QUIET, lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="rows of the holdout", ylabel="proved width (score)")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(fontsize="small", frameon=False)
    return ax
