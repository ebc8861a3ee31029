"""What all pictures are drawn with: colours, axes of Matplotlib, and SVG without it.

Matplotlib is not imported before something is drawn on axes. `Picture` needs none: it is plain SVG,
with classes that a stylesheet colours, so that it follows the page's theme; by itself it has
colours of its own.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, printable
from ladderholdout.extras import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes

Array = NDArray[Any]

# They are distinguished by their lightness as well.
RED, ORANGE, GREEN, PURPLE, GREY = "#b3261e", "#c97b00", "#007a62", "#6b4ea0", "#6b7280"
# From dark to light, so that an order shows without colour as well.
BLUES = ("#08306b", "#1d5a9b", "#4787c2", "#74a7d6", "#9fc3e4")
BLUE = BLUES[0]
# Of lines that are compared.
COLOURS = (RED, BLUES[0], ORANGE, GREEN, PURPLE, BLUES[2], GREY)

PICTURE_FILES = (".png", ".svg", ".pdf")
_SIZE = (4.4, 3.3)  # inches: so small that its text can be read on a phone
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "ladderholdout", "font.size": 10.0}

# Axes of Matplotlib


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
    if file.suffix.lower() not in PICTURE_FILES:
        raise InvalidArgument("--plot", f"a file ending in {', '.join(PICTURE_FILES)}", file.name)
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
        actual = f"{file}: {fault.strerror}"
        raise InvalidArgument("--plot", "a file that can be written", actual) from None


def banded(ax: Axes, x: Any, low: Any, high: Any, **look: Any) -> None:
    """Draw a band of confidence: by default, a certificate from each place on."""
    look = {"color": BLUE, "label": "certificate", "step": "post"} | look
    ax.fill_between(x, low, high, alpha=0.15, lw=0, **look)


def inline_svg(draw: Callable[..., Axes], prefix: str, colours: Mapping[str, str]) -> str:
    """Return what is drawn on axes as SVG that is a part of a report.

    Parameters
    ----------
    draw : callable
        Draws on the axes that it is given as ``ax=``.
    prefix : str
        Goes before the names of its parts, each of which a page may use once.
    colours : mapping of str to str
        The colours that the page's stylesheet sets, by the names of its variables.
    """
    with needed("The report"):
        from matplotlib import style
        from matplotlib.figure import Figure
    # The user's own style may have white text or a grid of its own.
    with style.context(["default", _SETTINGS]), io.StringIO() as written:
        figure = Figure(figsize=_SIZE, layout="constrained")
        ax = draw(ax=figure.subplots())
        figure.patch.set_visible(False)
        ax.patch.set_visible(False)
        figure.savefig(written, format="svg", metadata={"Date": None})
        return _inline(written.getvalue(), prefix, colours)


def _inline(svg: str, prefix: str, colours: Mapping[str, str]) -> str:
    """Bring a file of matplotlib's into a page: its size, colours and names."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The page sets its width; the viewBox keeps its shape.
    svg = re.sub(r' (?:width|height)="[^"]*"', "", svg, count=2)
    # Every picture names its parts alike, and a page may use a name once.
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{prefix}", svg)
    for name, colour in {**colours, "ink": "#000000"}.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.strip()


# Many points


MOST_POINTS = 5000
"""A picture of more points has those that show: all that are not behind others, or extreme."""
# Places for points, each narrower than a mark; numbers of 16 bits are sorted quickly.
_ACROSS, _UP = 240, 80


def thinned(x: Array, y: Array) -> Array:
    """Return the places of the points that a picture needs, in their order.

    Parameters
    ----------
    x, y : ndarray of shape (n,)

    Returns
    -------
    ndarray of int
        All of them up to `MOST_POINTS`. Of more, one for each cell of a grid over the picture,
        and for each of its columns the first, the last, the lowest and the highest: so no point
        is farther from a drawn one than a mark is wide, and no extreme is left out.

    Examples
    --------
    >>> x = np.arange(1e5)
    >>> y = np.where(x == 777, 9.0, np.sin(x))
    >>> kept = thinned(x, y)
    >>> len(kept) < 5000, 777 in kept, kept[[0, -1]].tolist()
    (True, True, [0, 99999])
    """
    if len(x) <= MOST_POINTS:
        return np.arange(len(x))
    column = _cells(x, _ACROSS)
    by_column = np.lexsort((y, column))
    highest = np.flatnonzero(np.diff(column[by_column], append=_ACROSS))
    lowest = np.append(0, highest[:-1] + 1)
    last = len(x) - 1 - np.unique(column[::-1], return_index=True)[1]
    cell = column * _UP + _cells(y, _UP)
    first = np.unique(cell, return_index=True)[1]
    return np.unique(np.concatenate([first, last, by_column[lowest], by_column[highest]]))


def _cells(values: Array, count: int) -> Array:
    """Return in which of so many equal parts of their range finite values are."""
    scaled = np.array(values, dtype=np.float64)
    finite = np.isfinite(scaled)
    low = scaled.min(initial=np.inf, where=finite)
    width = (scaled.max(initial=-np.inf, where=finite) - low) / count
    if not finite.any() or width == 0:
        return np.zeros(len(scaled), dtype=np.int16)
    scaled -= low
    scaled /= width
    scaled[~finite] = 0.0
    cells = scaled.astype(np.int16)
    return np.minimum(cells, count - 1, out=cells)


# SVG without Matplotlib


_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 18, 30, 44

STYLE = """
svg { background: #ffffff; color: #52606d; font: 12px system-ui, "Segoe UI", Roboto, sans-serif; }
.tick, .label { fill: #52606d; }
.grid { stroke: #dbe1e8; fill: none; }
.axis { stroke: #b9c4cf; fill: none; }
.band { fill: #e3f1f0; }
.bar { fill: #9cd0cb; }
.edge { stroke: #0b6b6b; stroke-dasharray: 3 4; fill: none; }
.missed { stroke: #b9c4cf; stroke-width: 1.5; fill: none; }
.line { stroke: #0b6b6b; stroke-width: 2.25; fill: none; }
.dot { fill: #0b6b6b; stroke: #ffffff; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  svg { background: #171e25; }
  .tick, .label { fill: #a2afbb; }
  .grid { stroke: #2b353f; }
  .axis, .missed { stroke: #46535f; }
  .band { fill: #17302f; }
  .bar { fill: #2c5a58; }
  .edge, .line { stroke: #62cdc4; }
  .dot { fill: #62cdc4; stroke: #171e25; }
}
"""
"""Colours of a picture that is a file of its own."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One submission in the picture.

    Attributes
    ----------
    number : int
    value : float or None
        The released score after it; where a ladder shows none, how many improved so far.
    improved : bool
    text : str
        What is read of it.
    """

    number: int
    value: float | None
    improved: bool
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn.

    Attributes
    ----------
    shots : sequence of Shot
    now : float or None
        The released score now, which a withdrawal may have changed since.
    band : tuple of (float, float) or None
        Ends of the certificate.
    since : int
        The incumbent's number, from which on the band is drawn.
    label : str
        The label of the vertical axis.
    counts : bool
        Whether that counts, so that its ticks are whole numbers.
    title, description : str
        Texts for those who do not see it.
    """

    shots: Sequence[Shot]
    now: float | None
    band: tuple[float, float] | None
    since: int
    label: str
    counts: bool
    title: str
    description: str

    def svg(self, width: int, height: int, name: str) -> str:
        """Draw it.

        Parameters
        ----------
        width, height : int
            In units of which the text is 12 high.
        name : str
            The name that its title and description have within the page.
        """
        return _svg(self, width, height, name, self._parts(width, height))

    def file(self, width: int, height: int) -> str:
        """Draw it as an SVG file that needs nothing else."""
        return standing_alone(self.svg(width, height, "ladder"), width, height)

    def _parts(self, width: int, height: int) -> Iterator[str]:
        first, last = self.shots[0].number, self.shots[-1].number
        least, most = self._limits()
        right, floor = width - _RIGHT, height - _BOTTOM

        # Space at the end, for what is true now.
        room = max(1.0, 0.08 * (last - first + 1))

        def x(number: float) -> float:
            return _LEFT + (number - first + 0.5) / (last - first + 1 + room) * (right - _LEFT)

        def y(value: float) -> float:
            return floor - (value - least) / (most - least) * (floor - _TOP)

        for tick in ticks(least, most, max(3, height // 45), whole=self.counts):
            yield _tag("path", "grid", d=f"M{_LEFT} {y(tick):.1f}H{right}")
            yield _tag("text", "tick", number(tick), x=_LEFT - 8, y=y(tick) + 4, text_anchor="end")
        for tick in ticks(first, last, max(2, width // 110), whole=True):
            yield _below(tick, x(tick), floor)
        yield _tag("path", "axis", d=f"M{_LEFT} {floor}H{right}")
        yield _tag("text", "label", _plain(self.label), x=_LEFT, y=14)
        yield _tag("text", "label", "submission", x=right, y=height - 6, text_anchor="end")
        if self.band is not None:
            low, high = map(y, self.band)
            start = x(max(self.since, first))
            yield _tag("rect", "band", x=start, y=high, width=right - start, height=low - high)
            ends = f"M{start:.1f} {high:.1f}H{right}M{start:.1f} {low:.1f}H{right}"
            yield _tag("path", "edge", d=ends)
        missed = (f"M{x(shot.number):.1f} {floor}v-6" for shot in self.shots if not shot.improved)
        if marks := "".join(missed):
            yield _tag("path", "missed", d=marks)
        steps = [f"{x(number):.1f} {y(value):.1f}" for number, value in self._steps()]
        line = "".join(f"H{step.replace(' ', 'V')}" for step in steps[1:])
        yield _tag("path", "line", d=f"M{steps[0]}{line}H{right}" if steps else "")
        for shot in self.shots:
            if shot.improved and shot.value is not None:
                place = {"cx": x(shot.number), "cy": y(shot.value), "r": 4.5}
                yield _tag("circle", "dot", f"<title>{_plain(shot.text)}</title>", **place)

    def _steps(self) -> list[tuple[int, float]]:
        """Return at which submissions the released score changed, and to what, up to now."""
        steps = [(shot.number, shot.value) for shot in self.shots if shot.value is not None]
        if steps and self.now is not None:  # another one after a withdrawal
            steps.append((self.shots[-1].number, self.now))
        before = [None, *(value for _, value in steps)]
        return [step for step, value in zip(steps, before, strict=False) if step[1] != value]

    def _limits(self) -> tuple[float, float]:
        """Return the ends of the vertical axis."""
        shown = *(shot.value for shot in self.shots), self.now, *(self.band or ())
        values = [value for value in shown if value is not None and math.isfinite(value)]
        values = values or [0.0, 1.0]
        least, most = 0.0 if self.counts else min(values), max(values)
        room = 0.08 * (most - least)
        if least == most:
            room = 1.0 if self.counts else max(abs(least), 1e-9) * 0.05
        return 0.0 if self.counts else least - room, most + room


def ticks(least: float, most: float, about: int, *, whole: bool) -> list[float]:
    """Return about so many round numbers in an interval.

    Examples
    --------
    >>> ticks(1, 40, 5, whole=True)
    [10, 20, 30, 40]
    >>> [round(one, 2) for one in ticks(0.81, 0.9, 5, whole=False)]
    [0.82, 0.84, 0.86, 0.88, 0.9]
    >>> ticks(1, 3, 8, whole=True)
    [1, 2, 3]
    """
    rough = max((most - least) / max(about, 1), 1.0 if whole else 1e-300)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    begin, end = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    rounds = [multiple * step for multiple in range(begin, end + 1)]
    return [round(tick) for tick in rounds] if whole else rounds


def number(value: float) -> str:
    """Return a number of an axis or a table in few digits.

    Examples
    --------
    >>> number(0.8600000001), number(12.0), number(-1.25e-7)
    ('0.86', '12', '-1.25e-07')
    """
    return f"{0.0 if value == 0 else value:.6g}"


class Bar(NamedTuple):
    """Somebody's ranks in a picture of them.

    Attributes
    ----------
    name : str
    rank, first, last : int
        The rank by the shown score, and the ends of those that are possible.
    text : str
        What is read of it.
    """

    name: str
    rank: int
    first: int
    last: int
    text: str


_BAR_LEFT, _BAR_LINE, _LONGEST_NAME = 132, 20, 18


@dataclass(frozen=True, slots=True)
class RankPicture:
    """A picture of ranks: for each a bar over those that are possible, and a dot at that shown.

    Attributes
    ----------
    bars : sequence of Bar
    ranks : int
        How many ranks there are.
    title, description : str
        Texts for those who do not see it.

    Examples
    --------
    >>> bars = [Bar("Ada", 1, 1, 2, "Ada: 1 to 2"), Bar("Ben", 2, 1, 2, "Ben: 1 to 2")]
    >>> RankPicture(bars, 2, "Ranks", "Two accounts.").svg(400, "ranks").count("<rect")
    2
    """

    bars: Sequence[Bar]
    ranks: int
    title: str
    description: str

    def svg(self, width: int, name: str) -> str:
        """Draw it; see `Picture.svg`. Its height is that of its bars."""
        return _svg(self, width, self._height, name, self._parts(width))

    def file(self, width: int = 680) -> str:
        """Draw it as an SVG file that needs nothing else."""
        return standing_alone(self.svg(width, "ranks"), width, self._height)

    @property
    def _height(self) -> int:
        return _TOP + _BAR_LINE * len(self.bars) + _BOTTOM

    def _parts(self, width: int) -> Iterator[str]:
        right, floor = width - _RIGHT, self._height - _BOTTOM

        def x(rank: float) -> float:
            return _BAR_LEFT + (rank - 0.5) / self.ranks * (right - _BAR_LEFT)

        for tick in ticks(1, max(self.ranks, 2), max(2, width // 110), whole=True):
            yield _tag("path", "grid", d=f"M{x(tick):.1f} {_TOP}V{floor}")
            yield _below(tick, x(tick), floor)
        yield _tag("text", "label", "rank", x=right, y=self._height - 6, text_anchor="end")
        for line, bar in enumerate(self.bars):
            middle, name = (
                _TOP + _BAR_LINE * (line + 0.5),
                printable(bar.name, longest=_LONGEST_NAME),
            )
            start, end = x(bar.first) - 5.0, x(bar.last) + 5.0
            yield f"<g><title>{_plain(bar.text)}</title>"
            yield _tag(
                "text", "tick", escape(name), x=_BAR_LEFT - 12, y=middle + 4, text_anchor="end"
            )
            yield _tag(
                "rect", "band bar", x=start, y=middle - 6, rx=3, width=end - start, height=12
            )
            yield _tag("circle", "dot on", cx=x(bar.rank), cy=middle, r=4) + "</g>"


def _svg(
    picture: Picture | RankPicture, width: int, height: int, name: str, parts: Iterable[str]
) -> str:
    """Return the parts of a picture as SVG, with its texts."""
    return (
        f'<svg class="{name}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{_plain(picture.title)}</title>'
        f'<desc id="{name}-text">{_plain(picture.description)}</desc>{"".join(parts)}</svg>'
    )


def _tag(element: str, kind: str, inside: str | None = None, **stated: Any) -> str:
    """Return an element of a class, with what is inside; real numbers have one decimal."""
    texts = {k: f"{v:.1f}" if isinstance(v, float) else v for k, v in stated.items()}
    shown = "".join(f' {name.replace("_", "-")}="{text}"' for name, text in texts.items())
    begun = f'<{element} class="{kind}"{shown}'
    return f"{begun}/>" if inside is None else f"{begun}>{inside}</{element}>"


def _below(tick: float, x: float, floor: int) -> str:
    """Return a whole number below the horizontal axis."""
    return _tag("text", "tick", f"{tick:.0f}", x=x, y=floor + 22, text_anchor="middle")


def _plain(text: str) -> str:
    return escape(printable(text))


def standing_alone(drawn: str, width: int, height: int) -> str:
    """Return a drawn picture as an SVG file with colours of its own."""
    start, rest = drawn.split(">", 1)
    return (
        f'{start} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        f"<style>{STYLE}</style>{rest}"
    )
