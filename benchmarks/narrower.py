"""What else might make certificates narrower: tried, on the climbs of `certificates.py`.

    python benchmarks/narrower.py [--searches 10]

Climbs of 300 on the weights of linear models. Each column is the change of the mean half-width,
for losses known without rounding, against that by the library's code:

- pi(m), 1/(m(m+1)): other chances for the number of the event.
- coarse: values released in steps of .01, as soon as they fall by one; those of the library's code
  are of 1/n. The last risk is then known to half a step.
- inner: the first value by a mixture of all alike, and of a normal one around the score on 300
  training-side rows (what a search has as an inner score).
- ranks: of an announced batch of 100 on these models' first rows, the place by a mixture of all
  alike (3/4) and of the rank of the inner score (1/4, by pi).
- chain: anchored for new labels on the same rows, and the same with the anchors' own intervals
  anchored before; both against the interval of the incumbent alone.
- next: anchored by the incumbent before alone, without a choice to be paid for.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from anchored import PAIRS_SHARE, Incumbent, difference_limits
from certificates import CONFIDENCE, anchored_rules, learned
from defaults import SIGNALS, World, shaped
from scipy.stats import norm

from ladderholdout.certificates.codes import event_length, place_length
from ladderholdout.limits.intervals import exact_lower, exact_upper

TAIL = math.log((1 - CONFIDENCE) / 2)


def half(errors: float, rows: int, log_count: float, more: float = 0.0) -> float:
    """Return the half-width around a count that is known to so many errors."""
    low, high = max(math.ceil(errors - more), 0), min(math.floor(errors + more), rows)
    level = TAIL - log_count
    return (exact_upper(high, rows, level) - exact_lower(low, rows, level)) / 2


def codes(world: World, climbed: list[Incumbent]) -> list[float]:
    last, rows = climbed[-1], world.n
    transcript, errors = last.transcript, int(last.predictions.sum())
    length, event = transcript.log_count(), transcript.event
    assert event is not None
    released = length - event_length(event)
    own = transcript.ladders[0] if transcript.ladders else None
    coarse = inner = length
    if own is not None and own.values:
        shown = sorted({value * 100 // (own.n_values - 1) for value in own.values}, reverse=True)
        changed = type(own)(own.queries, own.improved, tuple(shown), 101)
        coarse += changed.length() - own.length()
        grid, guess = (
            np.arange(own.n_values) / (own.n_values - 1),
            1 - world.inner_score(world.trained()),
        )
        spread = 2 * math.sqrt(guess * (1 - guess) * (1 / 300 + 1 / rows))
        chances = norm.pdf(grid, guess, spread)
        first = chances[own.values[0]] / chances.sum()
        inner -= math.log(own.n_values) + math.log(0.5 / own.n_values + 0.5 * first)
    return [
        half(errors, rows, length),
        half(errors, rows, max(released + place_length(event), math.log(2))),
        half(errors, rows, max(released + math.log(event * (event + 1)), math.log(2))),
        half(errors, rows, coarse, 0.005 * rows),
        half(errors, rows, inner),
    ]


def ranks(world: World, size: int = 100) -> list[float]:
    """Return half-widths for the best of a batch, by its place and by the rank of its score."""
    rng = np.random.default_rng([world.seed, 7])
    models = [shaped(world.trained(rng), *rng.uniform((0, 0), (2, 0.8))) for _ in range(size)]
    errors = [int(np.count_nonzero(world.losses(one))) for one in models]
    inner = np.argsort(np.argsort([-world.inner_score(one) for one in models], kind="stable"))
    best = int(np.argmin(errors))
    mixed = 0.75 / size + 0.25 * math.exp(-place_length(int(inner[best]) + 1))
    lengths = (math.log(size), -math.log(mixed))
    return [half(errors[best], world.n, event_length(1) + one) for one in lengths]


def anchors(climbed: list[Incumbent], rows: int) -> list[float]:
    """Return half-widths of the last one: alone, anchored, by a chain, and by the one before."""
    found: list[dict[str, tuple[float, float]]] = []
    for number, one in enumerate(climbed):
        level, errors = TAIL - one.transcript.log_count(), int(one.predictions.sum())
        whole = exact_lower(errors, rows, level), exact_upper(errors, rows, level)
        if number:
            level += math.log1p(-PAIRS_SHARE)
        own = exact_lower(errors, rows, level), exact_upper(errors, rows, level)
        ends = dict.fromkeys(("anchored", "chain", "next"), own)
        for anchor in range(number):
            for way in ("anchored", "chain") + ("next",) * (anchor == number - 1):
                choices = 1 if way == "next" else number
                price = math.log(PAIRS_SHARE / choices) - one.transcript.log_count()
                differences = one.predictions - climbed[anchor].predictions
                below, above = difference_limits(
                    differences.astype(np.float64),
                    TAIL + price,
                    differing=differences != 0,
                    opposite=True,
                )
                first = found[anchor]["own" if way == "anchored" else way]
                ends[way] = (
                    max(ends[way][0], first[0] + below),
                    min(ends[way][1], first[1] + above),
                )
        found.append({"own": own, "alone": whole, **ends})
    names = ("alone", "anchored", "chain", "next")
    return [(found[-1][name][1] - found[-1][name][0]) / 2 for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description="What else might make certificates narrower.")
    parser.add_argument("--searches", type=int, default=10)
    searches = parser.parse_args().searches
    heads = ("width", "pi(m)", "1/m(m+1)", "coarse", "inner", "ranks", "anchored", "chain", "next")
    print(f"{'':18}{'rows':>6}{'signal':>8}" + "".join(f"{head:>10}" for head in heads))
    for rows in (200, 1000, 5000):
        for name, mechanism in anchored_rules(rows).items():
            for signal, least in SIGNALS.items():
                found = []
                for seed in range(searches):
                    world = World(rows, least, seed)
                    climbed = learned(mechanism, world)[2]
                    found.append([*codes(world, climbed), *ranks(world), *anchors(climbed, rows)])
                own, *means = np.mean(found, axis=0)
                bases = (own,) * 4 + (means[4],) * 2 + (means[6],) * 4
                changes = [one / base - 1 for one, base in zip(means, bases, strict=True)]
                # The two bases themselves are left out.
                shown = "".join(
                    f"{one:>+10.1%}" for i, one in enumerate(changes) if i not in (4, 6)
                )
                print(f"{name:18}{rows:>6}{signal:>8}{own:>10.4f}{shown}")


if __name__ == "__main__":
    main()
