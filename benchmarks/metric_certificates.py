"""How wide are the certificates of metrics that are no plain means, and what do they cost?

For each metric the mean half-width over some draws, at n = 200, 1,000 and 5,000 rows, at a level
of exp(-L - ln 40) for each side: L = 2, 10 and 40 nats are what a certificate of 95 % pays after a
search. Behind each in brackets: as a multiple of the asymptotic interval's at the same level (the
root of the variance of the influence function, or its simulation), and of one fresh 95 % interval.
Then milliseconds of a processor for one certificate, both sides, at n = 50,000: the least of three.

    python benchmarks/metric_certificates.py [--draws 8] [--cases RMSE R2]

With --bets the limits of means and of R2 by bets that recalculate their target, beside those of a
fixed mixture of bets, where little was released: a search fixed in advance has L = .69.

    python benchmarks/metric_certificates.py --bets
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
from scipy.special import ndtri_exp
from scipy.stats import norm

from ladderholdout.certificates import regression_limits, targeted_bets
from ladderholdout.certificates.class_averages import fbeta_limits
from ladderholdout.certificates.matchings import kappa_limits
from ladderholdout.certificates.metric_limits import Rows, score_limits
from ladderholdout.certificates.regression_limits import concordance_limits, r2_limits
from ladderholdout.certificates.targeted_bets import ordered_mean_limits
from ladderholdout.limits.betting import Limits
from ladderholdout.limits.intervals import bounded_lower, bounded_upper
from ladderholdout.metrics import METRICS
from ladderholdout.metrics.arrays import Array, FloatArray

SIZES, PRICES, MANY = (200, 1000, 5000), (2.0, 10.0, 40.0), 50_000
FEW = 0.69, 3.4, 10.0
Sample = tuple[Array, Array]
Draw = Callable[[int, np.random.Generator], Sample]
Bound = Callable[[Array, Array, float], Limits]
SPREAD = 400


def scores(prevalence: float, area: float) -> Draw:
    def draw(n: int, rng: np.random.Generator) -> Sample:
        y = (np.arange(n) < round(prevalence * n)).astype(np.intp)
        return y, rng.normal(size=n) + y * math.sqrt(2.0) * norm.ppf(area)

    return draw


def labels(shares: list[float], recalls: list[float]) -> Draw:
    """Return draws of classes with shares that are kept, and errors spread over the others."""

    def draw(n: int, rng: np.random.Generator) -> Sample:
        ends = np.round(np.cumsum(shares) * n).astype(int)
        y = np.searchsorted(ends, np.arange(n), side="right")
        other = (y + rng.integers(1, len(shares), n)) % len(shares)
        return y, np.where(rng.random(n) < np.array(recalls)[y], y, other).astype(np.int32)

    return draw


def f1_of(prevalence: float, f1: float) -> Draw:
    """Return draws of two classes with as many false positives as false negatives."""
    missed = prevalence * (1.0 - f1) / (1.0 - prevalence)

    def draw(n: int, rng: np.random.Generator) -> Sample:
        y = (rng.random(n) < prevalence).astype(np.intp)
        right = rng.random(n) < np.where(y == 1, f1, 1.0 - missed)
        return y, np.where(right, y, 1 - y).astype(np.int32)

    return draw


def tables(classes: int) -> Draw:
    def draw(n: int, rng: np.random.Generator) -> Sample:
        y = np.arange(n) % classes
        logits = np.exp(2.0 * np.eye(classes)[y] + rng.normal(size=(n, classes)))
        return y, logits / logits.sum(axis=1, keepdims=True)

    return draw


def values(r2: float) -> Draw:
    """Return targets over 6.7 of their standard deviations, errors of up to 4.5 RMSE."""

    def draw(n: int, rng: np.random.Generator) -> Sample:
        error = math.sqrt(1.0 - r2)
        guesses = rng.normal(size=n) * math.sqrt(r2)
        y = np.clip(guesses + error * rng.normal(size=n), -3.35, 3.35)
        return y, np.clip(y - np.clip(y - guesses, -4.5 * error, 4.5 * error), -3.35, 3.35)

    return draw


def errors(n: int, rng: np.random.Generator) -> Sample:
    return np.zeros(n), rng.normal(size=n)


def by_name(name: str, classes: int = 2) -> Bound:
    def bound(y: Array, guesses: Array, level: float) -> Limits:
        rows = Rows(y, guesses, np.random.default_rng(0), classes)
        return score_limits(METRICS[name], rows, level)

    return bound


def within(largest: float, *, root: bool, old: bool = False) -> Bound:
    """Return bounds of a mean of squared or absolute errors, by bets or by what was there."""

    def bound(y: Array, guesses: Array, level: float) -> Limits:
        losses = np.minimum(np.abs(y - guesses), largest) ** (2 if root else 1)
        most = largest ** (2 if root else 1)
        if not old:
            found = ordered_mean_limits(losses, level, (0, most), rng=np.random.default_rng(0))
        else:
            risk, n = float(losses.mean() / most), len(losses)
            ends = bounded_lower(risk, n, level) * most, bounded_upper(risk, n, level) * most
            found = Limits(*ends, "Chernoff and Bentkus")
        return found.through(math.sqrt if root else float)

    return bound


def ratio(r2: float, *, explained: bool) -> Bound:
    def bound(y: Array, guesses: Array, level: float) -> Limits:
        return r2_limits(
            y,
            guesses,
            level,
            target_range=(-3.35, 3.35),
            largest_error=4.5 * math.sqrt(1.0 - r2) + 1e-9,
            rng=np.random.default_rng(0),
            explained=explained,
        )

    return bound


def agreement(y: Array, guesses: Array, level: float) -> Limits:
    return concordance_limits(
        y,
        guesses,
        level,
        target_range=(-3.35, 3.35),
        largest_error=4.5 * math.sqrt(0.2) + 1e-9,
        rng=np.random.default_rng(0),
    )


def kappa(y: Array, guesses: Array, level: float) -> Limits:
    return kappa_limits(y, guesses, level, np.random.default_rng(0))


def f2(y: Array, guesses: Array, level: float) -> Limits:
    hits = int(((y == 1) & (guesses == 1)).sum())
    missed, wrong = int((y == 1).sum()) - hits, int((guesses == 1).sum()) - hits
    return fbeta_limits(hits, missed, wrong, len(y), level, 2.0)


def plain(name: str) -> Callable[[Array, Array], float]:
    metric = METRICS[name]
    return lambda y, guesses: metric.to_score(metric.evaluate(y, guesses).risk)


def kappa_score(y: Array, guesses: Array) -> float:
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(y, guesses))


def f2_score(y: Array, guesses: Array) -> float:
    from sklearn.metrics import fbeta_score

    return float(fbeta_score(y, guesses, beta=2.0))


TEN = [0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.04, 0.03, 0.025, 0.015]
CASES: dict[str, tuple[Draw, Bound, Callable[[Array, Array], float]]] = {}
for share, area in ((0.5, 0.75), (0.5, 0.9), (0.5, 0.97), (0.12, 0.75), (0.12, 0.9), (0.12, 0.97)):
    name = f"AUC {area}, share {share}"
    CASES[name] = scores(share, area), by_name("roc_auc"), plain("roc_auc")
for share, area in ((0.5, 0.75), (0.5, 0.9), (0.12, 0.9), (0.12, 0.97)):
    name = f"precision, AUC {area}, {share}"
    precision = "average_precision"
    CASES[name] = scores(share, area), by_name(precision), plain(precision)
CASES |= {
    "AUC ovr, 3 classes": (tables(3), by_name("roc_auc_ovr", 3), plain("roc_auc_ovr")),
    "AUC ovo, 3 classes": (tables(3), by_name("roc_auc_ovo", 3), plain("roc_auc_ovo")),
    "kappa .7": (labels([0.5, 0.5], [0.85, 0.85]), kappa, kappa_score),
    "MCC .7": (
        labels([0.5, 0.5], [0.85, 0.85]),
        by_name("matthews_corrcoef"),
        plain("matthews_corrcoef"),
    ),
}
for share in (0.5, 0.12):
    drawn = f1_of(share, 0.85)
    CASES[f"F1 .85, share {share}"] = drawn, by_name("f1"), plain("f1")
CASES |= {
    "F2 .85, share 0.5": (f1_of(0.5, 0.85), f2, f2_score),
    "precision .85": (f1_of(0.5, 0.85), by_name("precision"), plain("precision")),
    "recall .85": (f1_of(0.5, 0.85), by_name("recall"), plain("recall")),
    "Jaccard .74": (f1_of(0.5, 0.85), by_name("jaccard"), plain("jaccard")),
}
for told, shares in (("2 equal", [0.5, 0.5]), ("2, .12", [0.12, 0.88]), ("10", [0.1] * 10)):
    drawn = labels(shares, [0.85] * len(shares))
    name = "balanced_accuracy"
    CASES[f"balanced, {told}"] = drawn, by_name(name, len(shares)), plain(name)
drawn = labels(TEN, [0.85] * 10)
CASES["balanced, 10 skewed"] = drawn, by_name("balanced_accuracy", 10), plain("balanced_accuracy")
for classes in (3, 10):
    drawn = labels([1 / classes] * classes, [0.85] * classes)
    CASES[f"macro F1, {classes}"] = drawn, by_name("f1_macro", classes), plain("f1_macro")
    name = f"weighted F1, {classes}"
    CASES[name] = drawn, by_name("f1_weighted", classes), plain("f1_weighted")
for times in (4, 10, 30):
    rmse = plain("neg_root_mean_squared_error")
    CASES[f"RMSE, range {times}"] = errors, within(times, root=True), rmse
CASES["RMSE, range 4, by the mean"] = errors, within(4, root=True, old=True), rmse
CASES["MAE, range 4"] = errors, within(4, root=False), plain("neg_mean_absolute_error")
CASES["median error"] = (
    errors,
    by_name("neg_median_absolute_error"),
    plain("neg_median_absolute_error"),
)
for r2 in (0.8, 0.3):
    CASES[f"R2 {r2}"] = values(r2), ratio(r2, explained=False), plain("r2")
CASES["explained variance .8"] = values(0.8), ratio(0.8, explained=True), plain("r2")
CASES["concordance .9"] = values(0.8), agreement, plain("concordance")


def spread(draw: Draw, score: Callable[[Array, Array], float]) -> float:
    """Return the standard deviation of a score times the root of n, by simulation."""
    rng = np.random.default_rng(99)
    found = [score(*draw(1000, rng)) for _ in range(SPREAD)]
    return float(np.std(found)) * math.sqrt(1000)


def half_widths(
    draw: Draw, bound: Bound, n: int, draws: int, prices: tuple[float, ...] = PRICES
) -> Iterator[tuple[float, FloatArray]]:
    rng = np.random.default_rng(n)
    samples = [draw(n, rng) for _ in range(draws)]
    for price in prices:
        level = -price - math.log(40.0)
        found = [bound(*sample, level) for sample in samples]
        yield level, np.array([(one.high - one.low) / 2.0 for one in found])


def milliseconds(draw: Draw, bound: Bound) -> float:
    sample, found = draw(MANY, np.random.default_rng(0)), []
    for _ in range(3):
        start = time.process_time()
        bound(*sample, -10.0 - math.log(40.0))
        found.append(1000.0 * (time.process_time() - start))
    return min(found)


def calibrated(scale: float) -> Draw:
    """Return labels and the probabilities that they really have."""

    def draw(n: int, rng: np.random.Generator) -> Sample:
        chances = 1.0 / (1.0 + np.exp(-scale * rng.normal(size=n)))
        return (rng.random(n) < chances).astype(float), chances

    return draw


def graded(loss: Callable[[Array, Array], Array]) -> Bound:
    """Return bounds of a mean of losses in [0, 1]."""

    def bound(y: Array, guesses: Array, level: float) -> Limits:
        return ordered_mean_limits(loss(y, guesses), level, rng=np.random.default_rng(0))

    return bound


def brier(y: Array, chances: Array) -> Array:
    return (chances - y) ** 2


def log_loss(y: Array, chances: Array) -> Array:
    return np.minimum(-np.log(np.where(y == 1.0, chances, 1.0 - chances)), 4.0) / 4.0


def absolute(y: Array, guesses: Array) -> Array:
    return np.minimum(np.abs(y - guesses), 4.0) / 4.0


def squared(y: Array, guesses: Array) -> Array:
    return absolute(y, guesses) ** 2


LOSSES = {"Brier": brier, "log loss, range 4": log_loss, "MAE, range 4": absolute,
          "MSE, range 4": squared}  # fmt: skip
BETS = {
    name: (
        calibrated(1.4) if number < 2 else errors,
        graded(loss),
        lambda *both, f=loss: f(*both).mean(),
    )
    for number, (name, loss) in enumerate(LOSSES.items())
}
BETS |= {f"R2 {r2}": CASES[f"R2 {r2}"] for r2 in (0.8, 0.3)}


def show_bets(draws: int) -> None:
    """Print half-widths as multiples of the asymptotic ones, before and after."""
    print("half-widths over the asymptotic ones at the level: fixed mixture, recalculated target")
    cells = [f"L = {price:g}" for price in FEW]
    print(f"{'':20s}{'n':>6s}" + "".join(f"{cell:>22s}" for cell in cells) + "      ms")
    for name, (draw, bound, score) in BETS.items():
        scale = spread(draw, score)
        for n in (200, 1000, 5000, MANY):
            line = f"{name:20s}{n:6d}"
            both = []
            for rule in (lambda *_: False, targeted_bets.is_targeted):
                with (
                    patch.object(regression_limits, "is_targeted", rule),
                    patch.object(targeted_bets, "is_targeted", rule),
                ):
                    found = half_widths(draw, bound, n, max(draws * 1000 // n, 2), FEW)
                    both.append([(level, widths.mean()) for level, widths in found])
            for (level, before), (_, after) in zip(*both, strict=True):
                asymptotic = -ndtri_exp(level) * scale / math.sqrt(n)
                line += f"  {before / asymptotic:6.2f}{after / asymptotic:6.2f}"
                line += f" ({100 * (after / before - 1):+3.0f} %)"
            print(line + (f"{milliseconds(draw, bound):8.1f}" if n == MANY else ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--cases", nargs="*", default=[""], help="how their names begin")
    parser.add_argument("--bets", action="store_true")
    asked = parser.parse_args()
    if asked.bets:
        return show_bets(asked.draws)
    draws = asked.draws
    print("half-width (times the asymptotic one at the level, times one fresh 95 %)")
    cells = [f"L = {price:g}" for price in PRICES]
    print(f"{'':26s}{'n':>6s}" + "".join(f"{cell:>21s}" for cell in cells) + "      ms")
    for name, (draw, bound, score) in CASES.items():
        if not name.startswith(tuple(asked.cases)):
            continue
        scale = spread(draw, score)
        for n in SIZES:
            line = f"{name:26s}{n:6d}"
            for level, widths in half_widths(draw, bound, n, draws):
                one = scale / math.sqrt(n)
                times = widths.mean() / one / -ndtri_exp(level), widths.mean() / one / 1.96
                line += f"  {widths.mean():7.3f} ({times[0]:4.1f} {times[1]:4.1f})"
            print(
                line + (f"{milliseconds(draw, bound):8.1f}" if n == SIZES[-1] else ""), flush=True
            )


if __name__ == "__main__":
    main()
