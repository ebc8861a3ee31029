"""What analysts came to against mechanisms: a table, plain values, a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ladderholdout import pictures
from ladderholdout.lab import ANALYSTS, Course, simulate
from ladderholdout.lab.analyst import Analyst
from ladderholdout.mechanisms import Mechanism, typed
from ladderholdout.metrics import get_metric

if TYPE_CHECKING:
    from ladderholdout.pictures import Axes

STYLES = ("-", "--", "-.", ":")


class Played(NamedTuple):
    """A mechanism, how an analyst fared against it, and the metric of the problem."""

    mechanism: Mechanism
    course: Course
    metric: str

    @property
    def believed(self) -> NDArray[np.float64]:
        """The score that is believed in the end, in each repetition; greater is better."""
        return _scores(self.metric, self.course.believed)

    @property
    def true(self) -> NDArray[np.float64]:
        """The score of the same submission on rows that nobody has seen."""
        return _scores(self.metric, self.course.true)


def _scores(metric: str, risks: NDArray[np.float64]) -> NDArray[np.float64]:
    return get_metric(metric).offset - risks


def analyst_of(text: str) -> Analyst:
    """Read an analyst as it is written in Python.

    Examples
    --------
    >>> analyst_of("Boosting(400, improvers=True)")
    Boosting(guesses=400, improvers=True, opposites=False)
    """
    allowed = 'an analyst with settings, such as "Boosting(guesses=400)"'
    made = typed(text, "ANALYST", allowed, ANALYSTS, lambda name, given: ANALYSTS[name](**given))
    return made


def matches(
    analyst: Analyst,
    mechanisms: Sequence[Mechanism],
    n: int,
    repetitions: int,
    seed: int = 0,
    *,
    trace: bool = False,
) -> tuple[Played, ...]:
    """Play an analyst against several mechanisms, on the same labels and with the same guesses."""
    return tuple(
        Played(
            mechanism,
            simulate(analyst, mechanism, n, repetitions, seed, trace=trace),
            analyst.metric,
        )
        for mechanism in mechanisms
    )


def table(played: Sequence[Played]) -> str:
    """Show means over the repetitions, with their standard errors in brackets.

    The scores are those of the metric that the header names, greater is better; the bias is the
    believed score less the true one.

    Examples
    --------
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> print(table(matches(analyst_of("Boosting(100)"), [FullDisclosure()], 1000, 100)))
    accuracy          releases         believed             true             bias
    FullDisclosure()     101.0  0.5709 (0.0013)  0.5000 (0.0000)  0.0709 (0.0013)
    """
    names = [repr(match.mechanism) for match in played]
    unit = played[0].metric
    width = max(map(len, [unit, *names]))
    lines = [f"{unit:{width}}{'releases':>10}{'believed':>17}{'true':>17}{'bias':>17}"]
    for name, match in zip(names, played, strict=True):
        releases = f"{match.course.releases.mean():.1f}"
        columns = match.believed, match.true, match.course.bias
        shown = "".join(f"{_shown(column):>17}" for column in columns)
        lines.append(f"{name:{width}}{releases:>10}{shown}")
    return "\n".join(lines)


def plain(analyst: Analyst, n: int, played: Sequence[Played]) -> dict[str, Any]:
    """Return means and standard errors as objects and lists.

    Examples
    --------
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> analyst = analyst_of("Boosting(100)")
    >>> found = plain(analyst, 1000, matches(analyst, [FullDisclosure()], 1000, repetitions=2))
    >>> found["metric"], found["matches"][0]["true_score"]
    ('accuracy', {'mean': 0.5, 'error': 0.0})
    """
    return {
        "analyst": repr(analyst),
        "metric": analyst.metric,
        "n": n,
        "repetitions": len(played[0].course.believed),
        "matches": [
            {
                "mechanism": repr(match.mechanism),
                "submissions": match.course.submissions,
                "releases": _mean(match.course.releases),
                "believed_score": _mean(match.believed),
                "true_score": _mean(match.true),
                "bias": _mean(match.course.bias),
            }
            for match in played
        ],
    }


def plot(played: Sequence[Played], *, ax: Axes | None = None) -> Axes:
    """Draw the released score after each submission: its mean, and nine tenths of all.

    The dotted line is the mean true score in the end. The matches were played with a trace.

    Examples
    --------
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> from matplotlib.figure import Figure
    >>> analyst = analyst_of("Boosting(30)")
    >>> played = matches(analyst, [FullDisclosure()], 100, repetitions=5, trace=True)
    >>> plot(played, ax=Figure().subplots()).get_ylabel()
    'accuracy'
    """
    ax = pictures.axes_or_new(ax)
    for place, match in enumerate(played):
        assert match.course.trace is not None  # drawn from nothing else
        released = _scores(match.metric, match.course.trace)
        submissions = np.arange(1, len(released) + 1)
        colour = pictures.COLOURS[place % len(pictures.COLOURS)]
        style = STYLES[place % len(STYLES)]
        low, high = np.quantile(released, [0.05, 0.95], axis=1)
        pictures.banded(ax, submissions, low, high, color=colour, label=None, step=None)
        ax.plot(
            submissions, released.mean(axis=1), color=colour, ls=style, label=repr(match.mechanism)
        )
        ax.axhline(float(match.true.mean()), color=colour, lw=0.8, ls=":")
    ax.set(xlabel="submissions", ylabel=played[0].metric)
    pictures.count_along(ax)
    ax.legend(fontsize="small", frameon=False)
    return ax


def _mean(values: NDArray[Any]) -> dict[str, float | None]:
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "error": None if error is None else float(error)}


def _shown(values: NDArray[Any]) -> str:
    mean, error = _mean(values).values()
    return f"{mean:.4f}" + ("" if error is None else f" ({error:.4f})")
