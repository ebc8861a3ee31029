"""The picture of a ladder: its released score over submissions, and the certificate's band.

Plain SVG, with classes that a stylesheet colours, so that it follows the page's theme; by itself it
has colours of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from ladderholdout.errors import printable
from ladderholdout.guard.views import ScoreCertificate, Status, score_line, score_of
from ladderholdout.ledger import Entry
from ladderholdout.metrics import Metric

Scale: TypeAlias = Callable[[float], float]

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 18, 30, 44

STYLE = """
svg { background: #ffffff; color: #52606d; font: 12px system-ui, "Segoe UI", Roboto, sans-serif; }
.tick, .label { fill: #52606d; }
.grid { stroke: #dbe1e8; fill: none; }
.axis { stroke: #b9c4cf; fill: none; }
.band { fill: #e3f1f0; }
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
        Of the vertical axis.
    counts : bool
        Whether that counts, so that its ticks are whole numbers.
    title, description : str
        For those who do not see it.
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
            By which its title and description are named within the page.
        """
        return "".join(self._parts(width, height, name))

    def file(self, width: int, height: int) -> str:
        """Draw it as an SVG file that needs nothing else."""
        drawn = self.svg(width, height, "ladder")
        start, rest = drawn.split(">", 1)
        return (
            f'{start} xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
            f"<style>{STYLE}</style>{rest}"
        )

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

        yield (
            f'<svg class="{name}" viewBox="0 0 {width} {height}" role="img" '
            f'aria-labelledby="{name}-title {name}-text">'
            f'<title id="{name}-title">{escape(printable(self.title))}</title>'
            f'<desc id="{name}-text">{escape(printable(self.description))}</desc>'
        )
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
        missed = [x(one.number) for one in self.shots if not one.improved]
        if missed:
            marks = "".join(f"M{at:.1f} {floor}v-6" for at in missed)
            yield f'<path class="missed" d="{marks}"/>'
        yield f'<path class="line" d="{self._line(x, y, right)}"/>'
        for one in self.shots:
            if one.improved and one.value is not None:
                yield (
                    f'<circle class="dot" cx="{x(one.number):.1f}" cy="{y(one.value):.1f}" r="4.5">'
                    f"<title>{escape(printable(one.text))}</title></circle>"
                )
        yield "</svg>"

    def _line(self, x: Scale, y: Scale, right: float) -> str:
        """Return the steps of the released score, up to now."""
        parts: list[str] = []
        drawn = None
        for one in self.shots:
            if one.value is None or one.value == drawn:
                continue
            at, to = f"{x(one.number):.1f}", f"{y(one.value):.1f}"
            parts.append(f"M{at} {to}" if drawn is None else f"H{at}V{to}")
            drawn = one.value
        if drawn is None:
            return ""
        if self.now is not None and self.now != drawn:  # after a withdrawal
            parts.append(f"H{x(self.shots[-1].number):.1f}V{y(self.now):.1f}")
        return "".join([*parts, f"H{right}"])

    def _limits(self) -> tuple[float, float]:
        """Return the ends of the vertical axis."""
        values = [one.value for one in self.shots if one.value is not None]
        values += [one for one in (self.now, *(self.band or ())) if one is not None]
        finite = [one for one in values if math.isfinite(one)] or [0.0, 1.0]
        least, most = (0.0, max(finite)) if self.counts else (min(finite), max(finite))
        if least == most:
            room = 1.0 if self.counts else max(abs(least), 1e-9) * 0.05
            return (0.0, most + room) if self.counts else (least - room, most + room)
        room = 0.08 * (most - least)
        return (0.0 if self.counts else least - room), most + room


def picture_of(
    status: Status, certificate: ScoreCertificate, entries: Sequence[Entry], metric: Metric
) -> Picture:
    """Describe the picture of a ladder; of one that shows no values, how often it improved.

    Parameters
    ----------
    status : Status
    certificate : ScoreCertificate
        Whose ends are the band.
    entries : sequence of Entry
        What is drawn, in the ledger's order; at least one.
    metric : Metric

    Returns
    -------
    Picture
    """
    scores = [score_of(one.risk, metric) for one in entries]
    counts = all(score is None for score in scores)
    done, shots = 0, []
    for one, score in zip(entries, scores, strict=True):
        fresh = one.improved and one.repeat_of is None
        done += fresh
        value = float(done) if counts else score
        what = f"{done} improvements" if counts else f"released score {score_line(value)}"
        text = f"Submission {one.number}, {one.time:%Y-%m-%d %H:%M} UTC: {what}"
        shots.append(Shot(one.number, value, fresh, text))
    band = None
    low, high = certificate.low, certificate.high
    if not counts and certificate.missing is None and low is not None and high is not None:
        band = low, high
    label = "improvements so far" if counts else f"released score ({status.metric})"
    gains = sum(one.improved for one in shots)
    description = f"{gains} of {len(shots)} submissions improved."
    if status.score is not None:
        description += f" The released score is {status.score:.6g}."
    if band is not None:
        doubts = "".join(f", {one}" for one in certificate.doubts)
        description += f" The certificate goes from {band[0]:.4g} to {band[1]:.4g}{doubts}."
    return Picture(
        shots,
        None if counts else status.score,
        band,
        certificate.submission or 0,
        label,
        counts,
        f"Released score of {status.name} over submissions",
        description,
    )


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
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough * 0.999)
    begin, end = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    found = [one * step for one in range(begin, end + 1)]
    return [round(one) for one in found] if whole else found


def number(value: float) -> str:
    """Return a number of an axis or a table in few digits.

    Examples
    --------
    >>> number(0.8600000001), number(12.0), number(-1.25e-7)
    ('0.86', '12', '-1.25e-07')
    """
    return f"{0.0 if value == 0 else value:.6g}"
