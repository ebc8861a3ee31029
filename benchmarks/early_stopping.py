"""What early stopping by the ladder costs a round, and what a stopped model's score is worth.

The cost: a model is trained on 120,000 rows with a holdout of 30,000 rows and 30 columns, once
without any evaluation, once with the library's own (the holdout as its validation set) and once
by the ladder, with a ledger in a file. The three take turns; each
time is the least of several. Beside the time of a whole round stands what the evaluation
adds to it.

The worth: small noisy data, early stopping with LightGBM for each of many seeds, by the
library's own rule on raw scores, by the ladder under several mechanisms, and not at all. The
optimism is the score that is released of the model kept, less its score on 20,000 fresh rows, less
what the holdout flatters the true rule by (which is zero on average and the same for all). Two
problems: in one the model learns slowly, in the other it fits the noise within a few rounds.

    python benchmarks/early_stopping.py cost [--threads 1] [--patience 10] [--turns 5]
    python benchmarks/early_stopping.py worth [--seeds 60]

Behind each mean of the second part stands its standard error.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import catboost
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from scipy.special import expit
from scipy.stats import norm

from ladderholdout import LadderHoldout, LadderStopping
from ladderholdout.integrations import catboost as by_catboost
from ladderholdout.integrations import lightgbm as by_lightgbm
from ladderholdout.integrations import xgboost as by_xgboost
from ladderholdout.mechanisms import (
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    default_mechanism,
)

HELD_OUT, COLUMNS, TRAINED = 30_000, 30, 120_000
ROUNDS = 60

# -- the cost ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    X: np.ndarray
    y: np.ndarray
    X_held: np.ndarray
    y_held: np.ndarray


def large(rng: np.random.Generator) -> Data:
    X = rng.standard_normal((TRAINED + HELD_OUT, COLUMNS))
    signal = X[:, 0] + X[:, 1] * X[:, 2]
    y = (signal + rng.standard_normal(len(X)) > 0).astype(int)
    return Data(X[:TRAINED].copy(), y[:TRAINED], X[TRAINED:].copy(), y[TRAINED:])


def lightgbm_fits(
    data: Data, threads: int, patience: int
) -> dict[str, Callable[[LadderHoldout], Any]]:
    params = {
        "objective": "binary", "metric": "binary_logloss", "learning_rate": 0.02,
        "num_threads": threads, "verbose": -1,
    }  # fmt: skip
    rows = lgb.Dataset(data.X, data.y).construct()
    held = lgb.Dataset(data.X_held, data.y_held, reference=rows).construct()

    def train(**more: Any) -> Any:
        return lgb.train(params, rows, ROUNDS, **more)

    return {
        "none": lambda holdout: train(),
        "own": lambda holdout: train(valid_sets=[held]),
        "ladder": lambda holdout: train(callbacks=[by_lightgbm.ladder_stopping(holdout, patience)]),
    }


def xgboost_fits(
    data: Data, threads: int, patience: int
) -> dict[str, Callable[[LadderHoldout], Any]]:
    params = {"objective": "binary:logistic", "eta": 0.02, "nthread": threads}
    rows, held = xgb.DMatrix(data.X, data.y), xgb.DMatrix(data.X_held, data.y_held)

    def train(**more: Any) -> Any:
        return xgb.train(params, rows, ROUNDS, **more)

    return {
        "none": lambda holdout: train(),
        "own": lambda holdout: train(evals=[(held, "holdout")], verbose_eval=False),
        "ladder": lambda holdout: train(callbacks=[by_xgboost.ladder_stopping(holdout, patience)]),
    }


def catboost_fits(
    data: Data, threads: int, patience: int
) -> dict[str, Callable[[LadderHoldout], Any]]:
    def model() -> catboost.CatBoostClassifier:
        return catboost.CatBoostClassifier(
            iterations=ROUNDS, learning_rate=0.02, thread_count=threads, verbose=False,
            allow_writing_files=False, random_seed=0,
        )  # fmt: skip

    held = catboost.Pool(data.X_held, data.y_held)
    return {
        "none": lambda holdout: model().fit(data.X, data.y),
        "own": lambda holdout: model().fit(data.X, data.y, eval_set=held),
        "ladder": lambda holdout: by_catboost.ladder_stopping(holdout, patience).fit(
            model(), data.X, data.y
        ),
    }


def milliseconds_a_round(
    data: Data, fits: dict[str, Callable[..., Any]], turns: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Let the fits take turns, and return the least time of each: elapsed, and of processors."""
    clocks = time.perf_counter, time.process_time
    least = tuple(dict.fromkeys(fits, math.inf) for _ in clocks)
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(turns):
            for name, fit in fits.items():
                holdout = LadderHoldout(
                    data.X_held, data.y_held, scoring="neg_log_loss", ledger=f"{folder}/{turn}.db"
                ) if name == "ladder" else None  # fmt: skip
                began = [clock() for clock in clocks]
                fit(holdout)
                for found, clock, start in zip(least, clocks, began, strict=True):
                    found[name] = min(found[name], 1000 * (clock() - start) / ROUNDS)
    return least[0], least[1]


def cost(threads: int, patience: int, turns: int) -> None:
    data = large(np.random.default_rng(0))
    print(f"milliseconds a round, {threads} thread(s), log loss, {ROUNDS} rounds")
    print(f"{'':<24}{'none':>8}{'own':>8}{'ladder':>8}{'ratio':>8}{'added: own':>13}{'ladder':>8}")
    every = {"LightGBM": lightgbm_fits, "XGBoost": xgboost_fits, "CatBoost": catboost_fits}
    for name, fits in every.items():
        both = milliseconds_a_round(data, fits(data, threads, patience), turns)
        for clock, took in zip(("", ", processor"), both, strict=True):
            none, own, ladder = took["none"], took["own"], took["ladder"]
            print(
                f"{name + clock:<24}{none:>8.1f}{own:>8.1f}{ladder:>8.1f}{ladder / own:>8.2f}"
                f"{own - none:>13.1f}{ladder - none:>8.1f}",
                flush=True,
            )
    split(data, threads, turns)


def split(data: Data, threads: int, turns: int) -> None:
    """Print what a round of LightGBM pays for, where it is submitted alone and where ten wait."""
    params = {"objective": "binary", "learning_rate": 0.02, "verbose": -1, "num_threads": threads}
    model = lgb.train(params, lgb.Dataset(data.X, data.y), ROUNDS)
    margin, given = np.zeros(HELD_OUT), []
    took: dict[str, float] = {}

    def timed(what: str, work: Callable[[], Any]) -> None:
        began = time.process_time()
        work()
        seconds = 1000 * (time.process_time() - began) / ROUNDS
        took[what] = min(took.get(what, math.inf), seconds)

    def trees(at: int, count: int, **more: Any) -> Any:
        settings = {"start_iteration": at, "num_iteration": count, "num_threads": threads}
        return model.predict(data.X_held, **settings, **more)

    for at in range(ROUNDS):
        margin = margin + trees(at, 1, raw_score=True)
        given.append(expit(margin))
    for count in (1, 10):
        timed(
            f"trees by {count}",
            lambda count=count: [
                trees(at, count, pred_leaf=True) for at in range(0, ROUNDS, count)
            ],
        )
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(turns):
            for where, place in (("memory", "memory:"), ("a file", f"{folder}/")):
                for count in (1, 10):
                    holdout = LadderHoldout(
                        data.X_held, data.y_held, scoring="neg_log_loss", vault=False,
                        ledger=f"{place}{turn}-{count}",
                    )  # fmt: skip
                    stopping = LadderStopping(holdout, count).start()
                    timed(f"rounds by {count} to {where}", partial(train, stopping, given, count))
    print("of a round of LightGBM, milliseconds of a processor:")
    for what, least in took.items():
        print(f"  {what:<24}{least:.2f}")


def train(stopping: LadderStopping, given: list[np.ndarray], count: int) -> None:
    """Submit rounds as the adapters do: so many together."""
    left = iter(given)
    for _ in given:
        if count == 1:
            stopping.update(stopping.answer(next(left)))
        else:
            stopping._later(lambda: stopping.answer(next(left)))
    assert stopping.rounds == ROUNDS


# -- the worth -----------------------------------------------------------------------------

SMALL, SMALL_HELD, FRESH, PATIENCE, LONGEST = 400, 200, 20_000, 20, 200
NOISE = 1.5
PROBLEMS = {
    "learns slowly": {"learning_rate": 0.1},
    "fits the noise": {"learning_rate": 0.3, "bagging_fraction": 0.3, "bagging_freq": 1,
                       "feature_fraction": 0.3, "min_data_in_leaf": 5},
}  # fmt: skip


@dataclass(frozen=True)
class Draw:
    """Rows with the probability of a one, from which their labels were drawn."""

    X: np.ndarray
    y: np.ndarray
    chance: np.ndarray


def draw(rng: np.random.Generator, n: int) -> Draw:
    X = rng.standard_normal((n, 20))
    signal = X[:, 0] + 0.5 * X[:, 1] * X[:, 2]
    chance = norm.cdf(signal / NOISE)
    return Draw(X, (rng.random(n) < chance).astype(int), chance)


def score(scoring: str, y: np.ndarray, p: np.ndarray) -> float:
    if scoring == "accuracy":
        return float(((p > 0.5) == y).mean())
    q = np.clip(np.where(y == 1, p, 1 - p), 1e-15, 1)
    return float(np.log(q).mean())


def luck(scoring: str, held: Draw) -> float:
    """Return what the holdout's labels flatter the true rule by, zero on average."""
    ones = score(scoring, held.y, held.chance)
    p = held.chance
    if scoring == "accuracy":
        return ones - float(np.maximum(p, 1 - p).mean())
    return ones - float((p * np.log(p) + (1 - p) * np.log(1 - p)).mean())


def mechanisms(scoring: str) -> dict[str, Mechanism]:
    root = 1 / math.sqrt(SMALL_HELD)
    rules: list[Mechanism] = [
        *([PricedLadder()] if scoring == "accuracy" else []),
        ParameterFreeLadder(),
        PairedTestLadder(alpha=0.05),
        Ladder(step=round(root, 3)),
        Ladder(step=round(root / 4, 3)),
    ]
    return {repr(rule): rule for rule in rules}


def fits_of(scoring: str, settings: dict[str, Any], seed: int) -> dict[str, tuple[float, ...]]:
    """Return (optimism, fresh score, rounds kept) of every rule for one seed."""
    rng = np.random.default_rng(seed)
    rows, held, fresh = draw(rng, SMALL), draw(rng, SMALL_HELD), draw(rng, FRESH)
    params = {"objective": "binary", "num_leaves": 7, "num_threads": 1, "verbose": -1,
              "seed": seed, **settings}  # fmt: skip
    found = {}

    def keep(name: str, model: lgb.Booster, told: float, kept: int) -> None:
        true = score(scoring, fresh.y, model.predict(fresh.X, num_iteration=kept))
        found[name] = told - true - luck(scoring, held), true, float(kept)

    full = lgb.train(params, lgb.Dataset(rows.X, rows.y), LONGEST)
    raw = [
        score(scoring, held.y, full.predict(held.X, num_iteration=kept))
        for kept in range(1, LONGEST + 1)
    ]
    best = 0
    for at, value in enumerate(raw):  # the library's own rule, on this metric
        best = at if value > raw[best] else best
        if at - best >= PATIENCE:
            break
    keep("none", full, raw[-1], LONGEST)
    keep("own", full, raw[best], best + 1)
    for name, mechanism in mechanisms(scoring).items():
        holdout = LadderHoldout(
            held.X, held.y, scoring=scoring, mechanism=mechanism, ledger="memory"
        )
        callback = by_lightgbm.ladder_stopping(holdout, PATIENCE)
        model = lgb.train(params, lgb.Dataset(rows.X, rows.y), LONGEST, callbacks=[callback])
        keep(name, model, holdout.history()[-1].score, model.best_iteration)
        if mechanism == default_mechanism(holdout.metric, SMALL_HELD):
            estimate = holdout.estimate().score
            assert estimate is not None
            keep("  the same, by estimate()", model, estimate, model.best_iteration)
    return found


def worth(seeds: int) -> None:
    for problem, settings in PROBLEMS.items():
        for scoring in ("neg_log_loss", "accuracy"):
            print(f"\n{problem}, {scoring}, {seeds} seeds, patience {PATIENCE}")
            print(f"{'':<30}{'optimism':>19}{'fresh score':>20}{'rounds kept':>13}")
            draws = [fits_of(scoring, settings, seed) for seed in range(seeds)]
            for name in draws[0]:
                table = np.array([one[name] for one in draws])
                means, errors = table.mean(0), table.std(0, ddof=1) / math.sqrt(seeds)
                print(
                    f"{name:<30}{means[0]:>+10.4f} +- {errors[0]:.4f}"
                    f"{means[1]:>+11.4f} +- {errors[1]:.4f}{means[2]:>13.0f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["cost", "worth"], metavar="part")
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--patience", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    if "cost" in asked.parts:
        cost(asked.threads, asked.patience, asked.turns)
    if "worth" in asked.parts:
        worth(asked.seeds)


if __name__ == "__main__":
    main()
