"""How far off is the corrected score of a batch's winner? Candidates with known truths.

Losses are 0 or 1, with rows of their own difficulty, so that candidates err together. Printed for
each number of rows and of candidates are bias and root mean square error of the winner's raw score,
of the bootstrap bias correction alone (Tsamardinos, Greasidou & Borboudakis 2018), and of
`estimates.corrected`.

    python benchmarks/estimates.py --quick
    python benchmarks/estimates.py --repetitions 100

`--rare` prints the same errors where few rows of a hundred are positive: of AUC and F1, for twenty
candidates whose true AUC is .95 on average and spread by .03, and whose scores share most of their
noise, as those of one search do.

    python benchmarks/estimates.py --rare --repetitions 200
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import norm

from ladderholdout.estimates import corrected
from ladderholdout.mechanisms import LadderRules, SimplifiedLadder
from ladderholdout.metrics import get_metric

TRUTHS = ("equal", "spread by .02", "spread by .05 below the best")


def draw(n: int, k: int, kind: str, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return true accuracies, and who is right where."""
    truth = np.full(k, 0.75)
    if kind == TRUTHS[1]:
        truth = truth + 0.02 * rng.standard_normal(k)
    if kind == TRUTHS[2]:
        truth = truth - 0.05 * rng.exponential(size=k)
    truth = np.clip(truth, 0.1, 0.95)
    shared, own = np.sqrt(0.4) * rng.standard_normal(n), np.sqrt(0.6) * rng.standard_normal((k, n))
    return truth, shared + own < norm.ppf(truth)[:, None]


def one(n: int, k: int, kind: str, seed: int) -> tuple[float, float, float]:
    """Return the errors of the raw score, of the bootstrap alone, and of the mean of both."""
    truth, right = draw(n, k, kind, np.random.default_rng(seed))
    y = np.zeros(n, dtype=int)
    best = int(right.mean(axis=1).argmax())
    found = corrected(
        get_metric("accuracy"),
        LadderRules(SimplifiedLadder(step=1 / n)),
        y,
        [*(1 - right.astype(int))],
        winner=best,
        secret=seed.to_bytes(4, "little"),
    )
    assert found is not None
    return tuple(1 - risk - truth[best] for risk in (found.risk, found.left_out, found.corrected))


# Of 100 rows.
POSITIVES = (3, 5, 8, 10, 15, 20)
SHARED = 0.95


def one_rare(name: str, positives: int, seed: int) -> tuple[float, float]:
    """Return the errors of the winner's raw score and of its estimate."""
    n, k, rng = 100, 20, np.random.default_rng([seed, positives])
    y = (np.arange(n) < positives).astype(int)
    truth = np.clip(0.95 + 0.03 * rng.standard_normal(k), 0.55, 0.99)
    shifts, cut = np.sqrt(2) * norm.ppf(truth), norm.isf(0.02)
    noise = np.sqrt(SHARED) * rng.standard_normal(n)
    scores = noise + np.sqrt(1 - SHARED) * rng.standard_normal((k, n)) + shifts[:, None] * y
    if name == "f1":
        scores, share, hits = (scores > cut).astype(int), positives / n, norm.sf(cut - shifts)
        truth = 2 * share * hits / (share + share * hits + (1 - share) * norm.sf(cut))
    metric = get_metric(name)
    best = int(np.argmin([metric.evaluate(y, guesses).risk for guesses in scores]))
    found = corrected(
        metric,
        LadderRules(SimplifiedLadder(step=1 / n)),
        y,
        [*scores],
        winner=best,
        best_first=True,
        secret=seed.to_bytes(4, "little"),
    )
    assert found is not None
    return 1 - found.risk - truth[best], 1 - found.corrected - truth[best]


def rare(count: int, jobs: int) -> None:
    """Print the errors for few positive rows of a hundred."""
    print("| metric | positives | raw | estimate | RMSE, share of raw |")
    print("| --- " * 5 + "|")
    for name in ("roc_auc", "f1"):
        for positives in POSITIVES:
            runs = (delayed(one_rare)(name, positives, seed) for seed in range(count))
            errors = np.array(Parallel(n_jobs=jobs)(runs))
            bias, rmse = errors.mean(axis=0), np.sqrt((errors**2).mean(axis=0))
            cells = (f"{a:+.3f} / {b:.3f}" for a, b in zip(bias, rmse, strict=True))
            print(f"| {name} | {positives} | {' | '.join(cells)} | {rmse[1] / rmse[0]:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="small batches, ten repetitions")
    parser.add_argument("--rare", action="store_true", help="few rows of one class")
    asked = parser.parse_args()
    count = 10 if asked.quick else asked.repetitions
    if asked.rare:
        rare(count, asked.jobs)
        return
    started = time.perf_counter()
    print("| truths | n | k | raw | left-out rows | estimate | RMSE, share of raw |")
    print("| --- " * 7 + "|")
    for kind in TRUTHS:
        for n in (100, 200, 1000):
            for k in (20,) if asked.quick else (20, 100, 500):
                runs = (delayed(one)(n, k, kind, seed) for seed in range(count))
                errors = np.array(Parallel(n_jobs=asked.jobs)(runs))
                bias, rmse = errors.mean(axis=0), np.sqrt((errors**2).mean(axis=0))
                cells = (f"{a:+.3f} / {b:.3f}" for a, b in zip(bias, rmse, strict=True))
                print(f"| {kind} | {n} | {k} | {' | '.join(cells)} | {rmse[2] / rmse[0]:.2f} |")
    print(f"\nBias / root mean square error; took {time.perf_counter() - started:.0f} s.")


if __name__ == "__main__":
    main()
