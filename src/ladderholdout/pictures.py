"""What all pictures are drawn with: colours, axes of Matplotlib, and SVG without it.

Matplotlib is not imported before something is drawn on axes. `Picture` needs none: it is plain SVG,
with classes that a stylesheet colours, so that it follows the page's theme; by itself it has
colours of its own.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

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


def inline_svg(
    draw: Callable[[Axes], Axes], prefix: str, colours: Mapping[str, str], what: str
) -> str:
    """Return what is drawn on axes as SVG that is a part of a page.

    Parameters
    ----------
    draw : callable
        Draws on the axes that it is given.
    prefix : str
        Goes before the names of its parts, each of which a page may use once.
    colours : mapping of str to str
        The colours that the page's stylesheet sets, by the names of its variables.
    what : str
        What cannot be made where Matplotlib is missing.
    """
    with needed(what):
        from matplotlib import style
        from matplotlib.figure import Figure
    # The user's own style may have white text or a grid of its own.
    with style.context(["default", _SETTINGS]), io.StringIO() as written:
        figure = Figure(figsize=_SIZE, layout="constrained")
        draw(figure.subplots())
        figure.patch.set_visible(False)
        figure.axes[0].patch.set_visible(False)
        figure.savefig(written, format="svg", metadata={"Date": None})
        return _inline(written.getvalue(), prefix, colours)


def _inline(svg: str, prefix: str, colours: Mapping[str, str]) -> str:
    """Bring a file of matplotlib's into a page: its size, colours and names."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # The page sets its width; the viewBox keeps its shape.
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    # Every picture names its parts alike, and a page may use a name once.
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{prefix}", svg)
    for name, colour in {**colours, "ink": "#000000"}.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.strip()


# Many points


MOST_POINTS = 5000
"""A picture of more points has those that show: all that are not behind others, or extreme."""
_ACROSS, _UP = 240, 80  # places for points, each narrower than a mark


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
    extremes = _extremes(column, y)
    last = len(x) - 1 - _firsts(column[::-1], _ACROSS)
    column *= _UP
    column += _cells(y, _UP)
    return np.unique(np.concatenate([_firsts(column, _ACROSS * _UP), last, *extremes]))


def _extremes(column: Array, y: Array) -> tuple[Array, Array]:
    """Return the places of the lowest and of the highest of each column."""
    by_column = np.lexsort((y, column))
    ends = np.cumsum(np.bincount(column, minlength=_ACROSS))
    begins = np.append(0, ends[:-1])
    some = ends > begins
    return by_column[begins[some]], by_column[ends[some] - 1]


def _firsts(cells: Array, count: int) -> Array:
    """Return where each cell that there is comes first."""
    firsts = np.full(count, len(cells), dtype=np.int32)
    np.minimum.at(firsts, cells, np.arange(len(cells), dtype=np.int32))
    return firsts[firsts < len(cells)]


def _cells(values: Array, count: int) -> Array:
    """Return in which of so many equal parts of their range finite values are."""
    scaled = np.array(values, dtype=np.float64)
    finite = np.isfinite(scaled)
    low = scaled.min(initial=np.inf, where=finite)
    width = (scaled.max(initial=-np.inf, where=finite) - low) / count
    if not finite.any() or width == 0:
        return np.zeros(len(scaled), dtype=np.int32)
    scaled -= low
    scaled /= width
    scaled[~finite] = 0.0
    cells = scaled.astype(np.int32)
    return np.minimum(cells, count - 1, out=cells)


# SVG without Matplotlib


Scale: TypeAlias = Callable[[float], float]

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
        return "".join(self._parts(width, height, name))

    def file(self, width: int, height: int) -> str:
        """Draw it as an SVG file that needs nothing else."""
        return standing_alone(self.svg(width, height, "ladder"), width, height)

    def _parts(self, width: int, height: int, name: str) -> Iterator[str]:
        first, last = self.shots[0].number, self.shots[-1].number
        least, most = self._limits()
        right, floor = width - _RIGHT, height - _BOTTOM

        # Space at the end, for what is true now.
        room = max(1.0, 0.08 * (last - first + 1))

        def x(number: float) -> float:
            return _LEFT + (number - first + 0.5) / (last - first + 1 + room) * (right - _LEFT)

        def y(value: float) -> float:
            return floor - (value - least) / (most - least) * (floor - _TOP)

        yield opening(width, height, name, self.title, self.description)
        for tick in ticks(least, most, max(3, height // 45), whole=self.counts):
            yield (
                f'<path class="grid" d="M{_LEFT} {y(tick):.1f}H{right}"/>'
                f'<text class="tick" x="{_LEFT - 8}" y="{y(tick) + 4:.1f}" '
                f'text-anchor="end">{number(tick)}</text>'
            )
        for tick in ticks(first, last, max(2, width // 110), whole=True):
            yield (
                f'<text class="tick" x="{x(tick):.1f}" y="{floor + 22}" '
                f'text-anchor="middle">{tick:.0f}</text>'
            )
        yield (
            f'<path class="axis" d="M{_LEFT} {floor}H{right}"/>'
            f'<text class="label" x="{_LEFT}" y="14">{escape(printable(self.label))}</text>'
            f'<text class="label" x="{right}" y="{height - 6}" text-anchor="end">submission</text>'
        )
        if self.band is not None:
            low, high = self.band
            start = x(max(self.since, first))
            yield (
                f'<rect class="band" x="{start:.1f}" y="{y(high):.1f}" '
                f'width="{right - start:.1f}" height="{y(low) - y(high):.1f}"/>'
                f'<path class="edge" d="M{start:.1f} {y(high):.1f}H{right}M{start:.1f} '
                f'{y(low):.1f}H{right}"/>'
            )
        missed = [x(shot.number) for shot in self.shots if not shot.improved]
        if missed:
            marks = "".join(f"M{place:.1f} {floor}v-6" for place in missed)
            yield f'<path class="missed" d="{marks}"/>'
        yield f'<path class="line" d="{self._line(x, y, right)}"/>'
        for shot in self.shots:
            if shot.improved and shot.value is not None:
                place = f'cx="{x(shot.number):.1f}" cy="{y(shot.value):.1f}"'
                yield (
                    f'<circle class="dot" {place} r="4.5">'
                    f"<title>{escape(printable(shot.text))}</title></circle>"
                )
        yield "</svg>"

    def _line(self, x: Scale, y: Scale, right: float) -> str:
        """Return the steps of the released score, up to now."""
        parts: list[str] = []
        drawn = None
        for shot in self.shots:
            if shot.value is None or shot.value == drawn:
                continue
            place, to = f"{x(shot.number):.1f}", f"{y(shot.value):.1f}"
            parts.append(f"M{place} {to}" if drawn is None else f"H{place}V{to}")
            drawn = shot.value
        if drawn is None:
            return ""
        if self.now is not None and self.now != drawn:  # after a withdrawal
            parts.append(f"H{x(self.shots[-1].number):.1f}V{y(self.now):.1f}")
        return "".join([*parts, f"H{right}"])

    def _limits(self) -> tuple[float, float]:
        """Return the ends of the vertical axis."""
        values = [shot.value for shot in self.shots if shot.value is not None]
        values += [value for value in (self.now, *(self.band or ())) if value is not None]
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        least, most = (0.0, max(finite)) if self.counts else (min(finite), max(finite))
        if least == most:
            room = 1.0 if self.counts else max(abs(least), 1e-9) * 0.05
            return (0.0, most + room) if self.counts else (least - room, most + room)
        room = 0.08 * (most - least)
        return (0.0 if self.counts else least - room), most + room


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


@dataclass(frozen=True, slots=True)
class Bar:
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
        return "".join(self._parts(width, name))

    def file(self, width: int = 680) -> str:
        """Draw it as an SVG file that needs nothing else."""
        return standing_alone(self.svg(width, "ranks"), width, self._height)

    @property
    def _height(self) -> int:
        return _TOP + _BAR_LINE * len(self.bars) + _BOTTOM

    def _parts(self, width: int, name: str) -> Iterator[str]:
        right, floor = width - _RIGHT, self._height - _BOTTOM

        def x(rank: float) -> float:
            return _BAR_LEFT + (rank - 0.5) / self.ranks * (right - _BAR_LEFT)

        yield opening(width, self._height, name, self.title, self.description)
        for tick in ticks(1, max(self.ranks, 2), max(2, width // 110), whole=True):
            yield (
                f'<path class="grid" d="M{x(tick):.1f} {_TOP}V{floor}"/>'
                f'<text class="tick" x="{x(tick):.1f}" y="{floor + 22}" '
                f'text-anchor="middle">{tick:.0f}</text>'
            )
        corner = f'x="{right}" y="{self._height - 6}" text-anchor="end"'
        yield f'<text class="label" {corner}>rank</text>'
        for line, bar in enumerate(self.bars):
            middle = _TOP + _BAR_LINE * (line + 0.5)
            start, end = x(bar.first) - 5.0, x(bar.last) + 5.0
            yield (
                f"<g><title>{escape(printable(bar.text))}</title>"
                f'<text class="tick" x="{_BAR_LEFT - 12}" y="{middle + 4:.1f}" text-anchor="end">'
                f"{escape(printable(bar.name, longest=_LONGEST_NAME))}</text>"
                f'<rect class="band bar" x="{start:.1f}" y="{middle - 6:.1f}" rx="3" '
                f'width="{end - start:.1f}" height="12"/>'
                f'<circle class="dot on" cx="{x(bar.rank):.1f}" cy="{middle:.1f}" r="4"/></g>'
            )
        yield "</svg>"


def opening(width: int, height: int, name: str, title: str, description: str) -> str:
    """Return the opening tag of a picture, with its texts."""
    return (
        f'<svg class="{name}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{escape(printable(title))}</title>'
        f'<desc id="{name}-text">{escape(printable(description))}</desc>'
    )


def standing_alone(drawn: str, width: int, height: int) -> str:
    """Return a drawn picture as an SVG file with colours of its own."""
    start, rest = drawn.split(">", 1)
    return (
        f'{start} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        f"<style>{STYLE}</style>{rest}"
    )
