"""The pictures of docs/explanation, and the figures that stand beside them on its pages.

    python benchmarks/pictures.py [--quick] [--only adaptivity] [--out docs/assets]

Every picture is computed: `adaptivity` plays a list and a climb on labels that are coin flips,
`mechanisms` attacks and an honest search against each rule, `certificates` climbs on real
holdouts whose intervals it counts, and `decisions` runs of changes that are no better. Each prints
its numbers. The pictures have no background and grey text, so that they can be read on a light page
and on a dark one.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import beta

from ladderholdout import LadderHoldout
from ladderholdout.certificates.codes import LadderTranscript
from ladderholdout.certificates.transcript import Request, Transcript, certify
from ladderholdout.lab import Boosting, Enumeration, HillClimb, KnobClimb, simulate
from ladderholdout.mechanisms import (
    FullDisclosure,
    GateLadder,
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    run,
)

sys.path.insert(0, str(Path(__file__).parent))
from decisions import greedy, kept_of_null, tested_each

OUT = Path(__file__).parents[1] / "docs" / "assets"
GREY = "#7f7f7f"
COLOURS = ("#d1495b", "#2a78b5", "#3a9a5b", "#d98e2b", "#8a63b8")
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ladderholdout",
    "font.family": "sans-serif",
    "font.size": 10.0,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY
    ),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": "small",
}
ROWS = 1000
RULES: tuple[Mechanism, ...] = (
    FullDisclosure(),
    PricedLadder(),
    ParameterFreeLadder(),
    PairedTestLadder(alpha=0.01),
    Ladder(step=0.03),
)


def panels(columns: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.2 * columns, 3.3), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = [figure.add_subplot(1, columns, place + 1) for place in range(columns)]
    for ax in axes:
        ax.patch.set_alpha(0.0)
    return figure, axes


def write(figure: Figure, path: Path) -> None:
    """Write an SVG that is the same for the same numbers, without the date and the maker."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", written.getvalue(), flags=re.DOTALL)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(str.rstrip, text.splitlines())) + "\n", "utf-8")
    print(f"picture: {path.name}\n")


def name_of(rule: Mechanism) -> str:
    return "no guard" if isinstance(rule, FullDisclosure) else repr(rule)


def band(ax: Axes, scores: np.ndarray, colour: str, label: str) -> None:
    """Draw the mean over repetitions, and the middle 80 % of them; scores are (steps, R)."""
    # A few hundred points are enough for a line, and keep the file small.
    every = max(1, len(scores) // 100)
    steps, scores = np.arange(1, len(scores) + 1)[::every], scores[::every]
    ax.plot(steps, scores.mean(axis=1), color=colour, label=label)
    low, high = np.quantile(scores, (0.1, 0.9), axis=1)
    ax.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def adaptivity(quick: bool) -> Figure:
    """Believed against true accuracy over the number of queries, on labels without meaning."""
    repetitions, queries = (5, 60) if quick else (100, 600)
    rules = (FullDisclosure(), ParameterFreeLadder(), PricedLadder())
    marks = [one for one in (1, 10, 100, queries) if one <= queries]
    figure, (listed, learned) = panels(2)
    print(f"Labels are coin flips: true accuracy .500; {ROWS} rows, {repetitions} repetitions")
    heads = "".join(f"{f'after {mark}':>12}" for mark in marks)
    for ax, title, of in (
        (listed, "a list fixed in advance", _listed),
        (learned, "a search that learns from answers", _learned),
    ):
        print(f"{f'believed by {title}':<48}{heads}")
        for rule, colour in zip(rules, COLOURS, strict=False):
            scores = of(rule, queries, repetitions)
            band(ax, scores, colour, name_of(rule))
            shown = "".join(f"{scores[mark - 1].mean():>12.3f}" for mark in marks)
            print(f"{f'  {name_of(rule)}':<48}{shown}")
        ax.axhline(0.5, color=GREY, linestyle="--", linewidth=1, label="true")
        ax.set(title=title, xlabel="queries")
    listed.set(ylabel="believed accuracy")
    listed.sharey(learned)
    listed.legend(loc="upper left")
    return figure


def _listed(rule: Mechanism, queries: int, repetitions: int) -> np.ndarray:
    """Guesses that are all drawn before the first answer."""
    found = []
    for child in np.random.SeedSequence(0).spawn(repetitions):
        rng = np.random.default_rng(child)
        losses = rng.integers(0, 2, (queries, ROWS))
        found.append(1.0 - np.minimum.accumulate(run(rule, losses, rng)))
    return np.array(found).T


def _learned(rule: Mechanism, queries: int, repetitions: int) -> np.ndarray:
    """Changes of twenty predictions at a time, each kept where it improved."""
    climb = HillClimb(submissions=queries, changes=20, classes=2)
    course = simulate(climb, rule, n=ROWS, repetitions=repetitions, trace=True)
    assert course.trace is not None
    return 1.0 - np.minimum.accumulate(course.trace)


def mechanisms(quick: bool) -> Figure:
    """What each rule releases to a climb, loses to attacks and costs an honest search."""
    repetitions, queries = (3, 60) if quick else (50, 400)
    attacks = {
        "vote of guesses": Boosting(queries, improvers=True),
        "climb, 20 rows a step": HillClimb(submissions=queries, changes=20, classes=2),
        "two labels a step": Enumeration(queries),
    }
    figure, (traces, lost, honest) = panels(3)
    climb = attacks["climb, 20 rows a step"]
    print(f"{ROWS} rows, {queries} submissions, {repetitions} repetitions")
    heads = ("releases", "vote", "climb", "two labels", "true", "believed")
    print(f"{'':<30}{'bias under three attacks':>46}{'honest search':>26}")
    print(f"{'':<30}" + "".join(f"{one:>12}" for one in heads))
    for rule, colour in zip(RULES, COLOURS, strict=True):
        course = simulate(climb, rule, n=ROWS, repetitions=repetitions, trace=True)
        assert course.trace is not None
        first = 1.0 - np.minimum.accumulate(course.trace[:, 0])
        steps = np.arange(1, len(first) + 1)
        traces.step(steps, first, where="post", color=colour)
        biases = []
        for place, attack in enumerate(attacks.values()):
            # Without a guard the vote takes the guesses that scored well.
            plain = isinstance(attack, Boosting) and isinstance(rule, FullDisclosure)
            played = Boosting(queries) if plain else attack
            found = simulate(played, rule, n=ROWS, repetitions=repetitions).bias
            # Beside each other, for some are alike.
            lost.plot(found.mean(), place - 0.1 * RULES.index(rule), "o", color=colour)
            biases.append(found.mean())
        found = simulate(KnobClimb(queries), rule, n=ROWS, repetitions=repetitions)
        true, believed = (1.0 - found.true).mean(), (1.0 - found.believed).mean()
        honest.plot([true, believed], [name_of(rule)] * 2, color=colour, linewidth=1)
        honest.plot(true, name_of(rule), "o", color=colour)
        honest.plot(believed, name_of(rule), "|", color=colour, markersize=12)
        numbers = (course.releases.mean(), *biases, true, believed)
        print(f"{name_of(rule):<30}" + "".join(f"{one:>12.3f}" for one in numbers))
    traces.set(title="one climb on coin flips", xlabel="submissions", ylabel="released score")
    lost.set(title="believed too much", xlabel="believed less true accuracy")
    lost.set_yticks(np.arange(len(attacks)) - 0.2, list(attacks))
    lost.set_ylim(-0.7, len(attacks) - 0.7)
    lost.axvline(0.0, color=GREY, linestyle="--", linewidth=1)
    honest.set(title="an honest search", xlabel="true (dot) and believed (bar) accuracy")
    return figure


def certificates(quick: bool) -> Figure:
    """Intervals after climbs on coin flips, and how wide a certificate is."""
    climbs, drawn, submissions, n = (4, 4, 40, 500) if quick else (200, 30, 200, 500)
    figure, (held, widths) = panels(2)
    rules: tuple[Mechanism, ...] = (FullDisclosure(), ParameterFreeLadder(), PricedLadder())
    print(f"{climbs} climbs of {submissions} on {n} coin flips: intervals that hold .500, width")
    for rule, colour in zip(rules, COLOURS, strict=False):
        intervals = np.array(
            [_climbed(rule, np.random.default_rng(at), submissions, n) for at in range(climbs)]
        )
        places = np.arange(drawn) + 0.25 * rules.index(rule)
        plain = isinstance(rule, FullDisclosure)
        label = "raw score, usual 95 % interval" if plain else f"certificate, {rule!r}"
        held.vlines(places, *intervals[:drawn].T, color=colour, label=label)
        holds = ((intervals[:, 0] <= 0.5) & (intervals[:, 1] >= 0.5)).sum()
        wide = np.ptp(intervals, axis=1).mean()
        print(f"  {label:<44}{holds:>4} of {climbs}{wide:>10.3f}")
    held.axhline(0.5, color=GREY, linestyle="--", linewidth=1, label="true")
    held.set(title="after a climb on coin flips", xlabel="climb", ylabel="accuracy", ylim=(0, 1.35))
    held.set_yticks([0, 0.25, 0.5, 0.75, 1])
    held.legend(loc="upper left")
    _widths(widths)
    return figure


def _climbed(
    rule: Mechanism, rng: np.random.Generator, submissions: int, n: int
) -> tuple[float, float]:
    """Climb by changes of 20 predictions, and return the interval in the end."""
    y = rng.integers(0, 2, n)
    holdout = LadderHoldout(
        np.arange(n)[:, None], y, scoring="accuracy", mechanism=rule, ledger="memory"
    )
    best, score = rng.integers(0, 2, n), -1.0
    for _ in range(submissions):
        tried = best.copy()
        changed = rng.integers(0, n, 20)
        tried[changed] = 1 - tried[changed]
        release = holdout.submit(tried)
        assert release.score is not None
        # Without a guard every submission receives its own score.
        if release.score > score:
            best, score = tried, release.score
    if not isinstance(rule, FullDisclosure):
        found = holdout.certificate()
        assert found.low is not None
        assert found.high is not None
        return found.low, found.high
    right = round(score * n)
    return float(beta.ppf(0.025, right, n - right + 1)), float(
        beta.ppf(0.975, right + 1, n - right)
    )


def _widths(ax: Axes) -> None:
    """Draw the width of certificates at an error rate of .1 against the rows."""
    sizes = (200, 500, 1000, 2000, 5000, 10_000)
    cases: dict[str, Callable[[int], Transcript]] = {
        "one query": lambda n: Transcript.alone(),
        "best of 3 finalists": lambda n: Transcript(0, 3, (), size=3, event=1),
        "best of a list of 200": lambda n: Transcript(0, 200, ()),
        "learned, 10 improvements shown": lambda n: _learning(n, shows_scores=False),
        "learned, 10 scores shown": lambda n: _learning(n, shows_scores=True),
    }
    print(f"{'width of a 95 % certificate, .1 of rows in error':<52}" + "".join(
        f"{n:>8}" for n in sizes
    ))  # fmt: skip
    for (label, transcript), colour in zip(cases.items(), COLOURS[::-1], strict=True):
        found = [certify(0.1, n, transcript(n)) for n in sizes]
        wide = [one.high - one.low for one in found]
        ax.loglog(sizes, wide, "o-", color=colour, label=label, markersize=4)
        print(f"  {label:<50}" + "".join(f"{one:>8.3f}" for one in wide))
    ax.set(title="the same score, found in five ways", xlabel="rows", ylabel="width")
    ax.set_yticks([0.01, 0.03, 0.1, 0.3], ["0.01", "0.03", "0.1", "0.3"])
    ax.set_yticks([], minor=True)
    ax.legend(loc="lower left")


def _learning(n: int, *, shows_scores: bool) -> Transcript:
    """A search of 200 queries whose improvements became rarer, from .3 to .1 of the rows."""
    improved = (1, 2, 4, 7, 12, 20, 33, 55, 90, 150)
    values = tuple(round(one * n) for one in np.linspace(0.3, 0.12, len(improved)))
    own = LadderTranscript(199, improved, values if shows_scores else (), n + 1)
    found = Transcript.alone(own)
    if shows_scores:
        return found
    return replace(found, on_request=True, request=Request(1, (own.improving(),)))


def decisions(quick: bool) -> Figure:
    """False acceptances over a run of candidates that are no better, for each way to decide."""
    repetitions, candidates = (10, 60) if quick else (300, 200)
    marks = [mark for mark in (10, 50, 100, candidates) if mark <= candidates]
    figure, (counted, share) = panels(2)
    print(f"{repetitions} runs of {candidates} candidates that are no better than the baseline")
    heads = "".join(f"{f'after {mark}':>12}" for mark in marks)
    print(f"{'runs with a false acceptance':<36}{heads}")
    ways = {
        "greedy": greedy,
        "a test at .05 each": tested_each(0.05),
        "GateLadder()": GateLadder(),
    }
    steps = np.arange(1, candidates + 1)
    for (name, rule), colour in zip(ways.items(), COLOURS, strict=False):
        flags = np.array(
            [kept_of_null(rule, "accuracy", 300, candidates, seed) for seed in range(repetitions)]
        )
        kept = flags.cumsum(axis=1)
        counted.plot(steps, kept.mean(axis=0), color=colour, label=name)
        share.plot(steps, (kept > 0).mean(axis=0), color=colour, label=name)
        shown = "".join(f"{(kept[:, mark - 1] > 0).mean():>12.3f}" for mark in marks)
        print(f"{f'  {name}':<36}{shown}")
    share.axhline(0.05, color=GREY, linestyle="--", linewidth=1)
    counted.set(title="false acceptances in a run", xlabel="candidates")
    share.set(title="share of runs with any", xlabel="candidates", ylim=(-0.02, 1.02))
    counted.legend(loc="upper left")
    return figure


PICTURES = {
    "adaptivity": adaptivity,
    "mechanisms": mechanisms,
    "certificates": certificates,
    "decisions": decisions,
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions, for a first try")
    parser.add_argument("--only", choices=PICTURES, help="one of them")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="of the pictures")
    chosen = parser.parse_args(argv)
    for name, draw in PICTURES.items():
        if chosen.only in (None, name):
            with rc_context(SETTINGS):
                write(draw(chosen.quick), chosen.out / f"{name}.svg")


if __name__ == "__main__":
    main()
