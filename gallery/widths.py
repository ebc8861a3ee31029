"""How wide a certificate is.

The width of a 95 % certificate for a model that errs on a tenth of the rows, by the size of the
holdout and by what was asked of it. One model fixed in advance has the narrowest interval that
there is. Twenty finalists pay little more. A grid of 1,000 candidates pays for the place of its
winner, and a search that learns from its answers for all that was released before.

    python gallery/widths.py [--picture FILE]
"""

from __future__ import annotations

import math

import _style as style
import numpy as np

from ladderholdout.certificates import LadderTranscript, Transcript, certify

ROWS = np.unique(np.geomspace(100, 100_000, 25).astype(int))
RISK = 0.1


def learning(n: int, releases: int, queries: int) -> Transcript:
    """Return a transcript of so many releases, evenly spread, falling to the risk."""
    improved = np.unique(np.linspace(1, queries - 1, releases).astype(int))
    falls = np.linspace(2 * RISK, RISK * 1.05, len(improved))
    values = tuple(int(value) for value in np.minimum.accumulate(np.round(falls * n)))
    values = tuple(value - place for place, value in enumerate(values))
    return Transcript.alone(
        LadderTranscript(
            queries=queries, improved=tuple(map(int, improved)), values=values, n_values=n + 1
        )
    )


def width(n: int, transcript: Transcript) -> float:
    """Return how wide the certificate is."""
    found = certify(round(RISK * n) / n, n, transcript)
    return found.high - found.low


WAYS = {
    "one model, fixed in advance": lambda n: Transcript(before=0, place=1, ladders=()),
    "the best of 20 finalists": lambda n: Transcript(before=0, place=20, ladders=()),
    "the best of a grid of 1,000": lambda n: Transcript(before=0, place=1000, ladders=()),
    "a search that learns: 5 releases": lambda n: learning(n, 5, 200),
    "a search that learns: 20 releases": lambda n: learning(n, 20, 1000),
}


def main() -> None:
    found = {
        name: [
            width(int(n), of(int(n))) if "20 rel" not in name or n >= 300 else math.nan
            for n in ROWS
        ]
        for name, of in WAYS.items()
    }
    shown = [int(np.argmin(abs(ROWS - n))) for n in (300, 1000, 10_000, 100_000)]
    style.table(
        ("width with rows of about", "300", "1,000", "10,000", "100,000"),
        [(name, *(float(each[i]) for i in shown)) for name, each in found.items()],
    )
    figure, ax = style.panels()
    for (name, each), colour, dash in zip(
        found.items(), style.COLOURS, ("-", "--", "-.", ":", (0, (5, 1))), strict=True
    ):
        ax.plot(ROWS, each, color=colour, ls=dash, lw=2, label=name)
    ax.set(
        xscale="log", yscale="log", xlabel="rows of the holdout", ylabel="width of the certificate"
    )
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(loc="lower left")
    style.show(
        figure,
        "Width of a certificate over 100 to 100,000 rows, for five ways to use a holdout: it falls "
        "with the root of the rows, and searches that learn pay most.",
    )


if __name__ == "__main__":
    main()
