"""An agent against a server.

A program changes ten predictions at a time and goes on from whatever scores better, 300 times. The
labels are coin flips, so that on other rows it is right half of the time. First it reads its
scores from a function in its own process. Then the labels are on a server, and the agent has a
token, three tools and no label: the server answers through a ladder, and its certificate is what
may be believed. The agent and the server are those of `examples/agent.py`.

    python gallery/agent.py [--picture FILE]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import _style as style
import numpy as np

from ladderholdout import LadderHoldout

sys.path.insert(0, str(style.ROOT / "examples"))
import agent as example

STEPS = 300


def main() -> None:
    example.STEPS = STEPS
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(example.ROWS, 3)), rng.integers(0, 2, example.ROWS)
    courses: dict[str, list[float]] = {"unguarded": [], "through the server": []}

    def unguarded(predictions: np.ndarray) -> float:
        score = float(np.mean(predictions == y))
        courses["unguarded"].append(max([score, *courses["unguarded"][-1:]]))
        return score

    example.climb(unguarded)
    with tempfile.TemporaryDirectory() as name, example.served(X, y, Path(name)) as (url, token):
        holdout = LadderHoldout.connect(f"{url}/holdouts/coins", token)

        def guarded(predictions: np.ndarray) -> float:
            score = holdout.submit(predictions).score
            courses["through the server"].append(score)
            return score

        example.climb(guarded)
        certificate = holdout.certificate()

    style.table(("", "believed", "true"), [(way, each[-1], 0.5) for way, each in courses.items()])
    print(f"certificate of the server: {certificate.low:.3f} to {certificate.high:.3f}")
    figure, ax = style.panels()
    ax.axhspan(
        certificate.low,
        certificate.high,
        color=style.BLUE,
        alpha=0.12,
        lw=0,
        label="certificate, 95 %",
    )
    for (way, each), colour in zip(courses.items(), (style.ORANGE, style.BLUE), strict=True):
        ax.plot(np.arange(1, len(each) + 1), each, color=colour, lw=2, label=way)
    style.truth(ax, 0.5, "on other rows")
    ax.set(xlabel="submissions of the agent", ylabel="accuracy that it believes in")
    style.counts(ax)
    ax.legend(loc="upper left")
    style.show(
        figure,
        "What an agent believes over 300 submissions: with raw scores it climbs far above one "
        "half, through the server it stays there, inside the certificate.",
    )


if __name__ == "__main__":
    main()
