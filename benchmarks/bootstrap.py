"""How long one decision of BayesBootLadderBoot takes, beside the loop of the paper.

At n = 5,000 rows, 10,000 draws from the posterior and 100 bootstrap replications, odds of
17/3, for four metrics, each on two comparisons: with a submission clearly no better than the
incumbent, as most are, and with one whose odds lie at the threshold: both take the same. The
loop is the paper's Algorithm 6 written down in NumPy, one draw at a time
(tests/support/literal.py); of its 10,000 draws so many are timed as asked for, and the time is
multiplied. Of both the fastest of seven runs counts.

    python benchmarks/bootstrap.py [--rows 5000] [--draws 10000] [--timed 200]

With --default it is a decision of the default rule for metrics that are no means,
BayesBootLadder with 1,000 draws. Labels have five classes where the metric takes more than two.

    python benchmarks/bootstrap.py --default --rows 50000
"""

from __future__ import annotations

import argparse
import resource
import runpy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ladderholdout.mechanisms import BayesBootLadderBoot, fresh_rng
from ladderholdout.mechanisms.base import State
from ladderholdout.mechanisms.resampling import null_probability
from ladderholdout.metrics import Evaluation, Metric, get_metric

LITERAL = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "support" / "literal.py"))
ODDS, REPLICATIONS, REPEATS = 17 / 3, 100, 7
BY_DEFAULT = (
    *("roc_auc", "f1", "matthews_corrcoef", "f1_macro"),
    *("average_precision", "r2", "spearman"),
)
Make = Callable[[float, np.random.Generator], np.ndarray]


class Case(NamedTuple):
    """A metric, targets, and predictions of a quality between 0 and 1."""

    metric: str
    targets: np.ndarray
    predict: Make
    literal: Callable[..., Any]


def cases(n: int, rng: np.random.Generator) -> Iterator[Case]:
    labels, values = rng.integers(0, 2, n), rng.normal(size=n)

    def labelled(quality: float, rng: np.random.Generator) -> np.ndarray:
        return np.where(rng.random(n) < 0.5 + quality / 2, labels, 1 - labels)

    def scored(quality: float, rng: np.random.Generator) -> np.ndarray:
        return 2 * quality * labels + rng.normal(size=n)

    def valued(quality: float, rng: np.random.Generator) -> np.ndarray:
        return quality * values + (1 - quality) * rng.normal(size=n)

    yield Case("accuracy", labels, labelled, LITERAL["error_rate"])
    yield Case("neg_mean_squared_error", values, valued, LITERAL["mean_squared_error"])
    yield Case("roc_auc", labels, scored, LITERAL["auc_risk"])
    yield Case("concordance", values, valued, LITERAL["concordance_risk"])


def evaluate(case: Case, predictions: np.ndarray) -> Evaluation:
    return get_metric(case.metric).evaluate(case.targets, predictions)


def at_the_threshold(case: Case, incumbent: Evaluation) -> np.ndarray:
    """Search for predictions whose odds are about those required."""
    required = ODDS / (1 + ODDS)

    def probability(quality: float) -> float:
        found = evaluate(case, case.predict(quality, np.random.default_rng(2)))
        return 1 - null_probability(found, incumbent, 20_000, np.random.default_rng(3))

    low, high = 0.3, 0.7
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < required else (low, middle)
    return case.predict(high, np.random.default_rng(2))


def decision_time(mechanism: BayesBootLadderBoot, state: State, new: Evaluation) -> float:
    """Return the seconds of the fastest of a few decisions: others may use the machine too."""

    def once(number: int) -> float:
        rng = fresh_rng(b"benchmark", 1, number)
        start = time.perf_counter()
        mechanism.advance(state, new, rng)
        return time.perf_counter() - start

    return min(once(number) for number in range(REPEATS))


def loop_time(case: Case, new: np.ndarray, best: np.ndarray, draws: int, timed: int) -> float:
    """Return the seconds of the literal loop, scaled up from a part of its draws."""
    n, rng = len(case.targets), np.random.default_rng(0)
    ours, theirs = case.literal(case.targets, new), case.literal(case.targets, best)

    def once() -> float:
        start = time.perf_counter()
        LITERAL["posterior_probability"](ours, theirs, n, timed, rng)
        middle = time.perf_counter()
        LITERAL["resampled_risk"](theirs, n, REPLICATIONS, rng)
        return (middle - start) * draws / timed + time.perf_counter() - middle

    return min(once() for _ in range(REPEATS))


def report(n: int, draws: int, timed: int) -> None:
    mechanism = BayesBootLadderBoot(ODDS, n_posterior=draws, n_bootstrap=REPLICATIONS)
    for case in cases(n, np.random.default_rng(0)):
        best = case.predict(0.5, np.random.default_rng(1))
        incumbent = evaluate(case, best)
        state, _ = mechanism.advance(mechanism.start(n), incumbent, np.random.default_rng(0))
        submissions = {
            "no better": case.predict(0.45, np.random.default_rng(2)),
            "at the threshold": at_the_threshold(case, incumbent),
        }
        for name, new in submissions.items():
            ours = decision_time(mechanism, state, evaluate(case, new))
            loop = loop_time(case, new, best, draws, timed)
            shown = f"{ours * 1e3:>10.1f} ms{loop * 1e3:>12.0f} ms{loop / ours:>9.0f} x"
            print(f"{case.metric:24}{name:18}{shown}")


def by_default(n: int) -> None:
    print(f"The default rule on {n} rows: milliseconds of a decision, and of the processor")
    for name in BY_DEFAULT:
        new, old = alike(get_metric(name), n)
        each = []
        for seed in range(3):
            start, busy = time.perf_counter(), time.process_time()
            null_probability(new, old, 1000, np.random.default_rng(seed))
            each.append((time.perf_counter() - start, time.process_time() - busy))
        took, busy = map(min, zip(*each, strict=True))
        print(f"{name:24}{1e3 * took:>8.0f}{1e3 * busy:>8.0f}", flush=True)


def alike(metric: Metric, n: int) -> Iterator[Evaluation]:
    """Yield two submissions of about the same quality."""
    rng = np.random.default_rng(0)
    classes = 5 if metric.name.endswith(("macro", "ovr")) else 2
    labels, values = rng.integers(0, classes, n), rng.normal(size=n)
    noise = rng.normal(size=(n, classes))
    for seed in (1, 2):
        own = noise + 0.1 * np.random.default_rng(seed).normal(size=noise.shape)
        if not metric.is_classification:
            yield metric.evaluate(values, values + own[:, 0])
            continue
        shares = np.exp(own + np.eye(classes)[labels])
        shares /= shares.sum(axis=1, keepdims=True)
        if metric.response == "labels":
            yield metric.evaluate(labels, shares.argmax(axis=1))
        else:
            yield metric.evaluate(labels, shares if classes > 2 else shares[:, 1])


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a decision takes.")
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--timed", type=int, default=200)
    asked = parser.parse_args()
    if asked.default:
        return by_default(asked.rows)
    print(f"BayesBootLadderBoot: {asked.rows} rows, {asked.draws} posterior draws")
    print(f"{'':42}{'a decision':>13}{'the loop':>15}{'faster':>11}")
    report(asked.rows, asked.draws, asked.timed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"The process needed {peak:.0f} MB at most.")


if __name__ == "__main__":
    main()
