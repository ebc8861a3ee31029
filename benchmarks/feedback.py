"""What should a search be told? Feedback policies against the unguarded study.

For each policy and sampler this prints the true value of the study's winner, the share kept
of the unguarded study's gain over random search, and the optimism: what is believed of the
winner minus what is true. Three problems: a smooth and a rough synthetic surface, whose
models answer right or wrong on examples of their own difficulty, and a search over a
scikit-learn pipeline with a large fresh test part.

A row is what the sampler is told, and who judges the finished study: which trials are shown
to the holdout (all; challengers, whose inner score beats the incumbent's; records, whose inner
score beats all earlier ones; finalists, the best inner scores at the end), and by which mechanism
the winner is found. All of it rests on releases and training-side scores alone, but for the
unguarded study. Where every trial is told its inner score, the study does not depend on the
ladder, so that one study serves many judges.

    python benchmarks/feedback.py --quick
    python benchmarks/feedback.py --seeds 30 --jobs 2

CMA-ES needs the package cmaes and GP needs torch (greenlet makes it faster); a sampler whose
package is missing is left out, and the output says so.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from policies import AS_TOLD, JUDGES, MAIN, TELLS, Climb, Found, Judge, Seen, unguarded
from problems import Model, Pipeline, Surface

from ladderholdout.mechanisms import ParameterFreeLadder

# --- studies ------------------------------------------------------------------------------

SAMPLERS: dict[str, tuple[str, str | None]] = {
    "GP": ("GPSampler", "torch"),
    "TPE": ("TPESampler", None),
    "CMA-ES": ("CmaEsSampler", "cmaes"),
    "random": ("RandomSampler", None),
}


@dataclass(frozen=True)
class Task:
    """One study."""

    problem: str
    sampler: str
    tell: str
    seed: int
    budgets: tuple[int, ...]
    n_holdout: int
    n_train: int


@lru_cache(maxsize=2)
def problem_of(name: str, seed: int, n_holdout: int, n_train: int) -> Surface | Pipeline:
    if name == "pipeline":
        return Pipeline(seed)
    return Surface(seed, n_holdout, n_train, rough=name == "rough")


@lru_cache(maxsize=8)
def offset(*key: Any) -> float:
    """How much too well this holdout speaks of models that nobody chose; 0 in the mean.

    Taken from the optimism it leaves less chance in it, and the same expectation.
    """
    sampler = optuna.samplers.RandomSampler(seed=10_000 + key[1])
    search = optuna.create_study(direction="maximize", sampler=sampler)
    models = [problem_of(*key).ask(search.ask()) for _ in range(10)]
    return float(np.mean([model.raw - model.truth() for model in models]))


def study(task: Task) -> dict[tuple[int, str], Found]:
    """Run one study and name its winners, by number of trials and by policy."""
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    key = (task.problem, task.seed, task.n_holdout, task.n_train)
    shift, models = offset(*key), models_of(task, problem_of(*key))
    found = {}
    for budget in task.budgets:
        for policy, judge in judges(task.tell).items():
            found[budget, policy] = replace(judge(models[:budget]), offset=shift)
    return found


def judges(tell: str) -> dict[str, Judge]:
    if tell == "unguarded":
        return {tell: unguarded}
    chosen = JUDGES if tell == "inner" else AS_TOLD
    return {f"{tell}; {name}": judge for name, judge in chosen.items()}


def models_of(task: Task, problem: Surface | Pipeline) -> list[Model]:
    problem.rng = np.random.default_rng([task.seed, 1])  # the same for every policy
    sampler = getattr(optuna.samplers, SAMPLERS[task.sampler][0])(seed=task.seed)
    search = optuna.create_study(direction="maximize", sampler=sampler)
    models: list[Model] = []
    seen: list[Seen] = []
    climb: Climb | None = None
    for _ in range(max(task.budgets)):
        trial = search.ask()
        models.append(model := problem.ask(trial))
        if task.tell == "unguarded":
            search.tell(trial, model.raw)
            continue
        climb = climb or Climb(ParameterFreeLadder(), len(model.losses))
        improved = climb.show(model)
        now = Seen(model.inner_score, improved, climb.standing)
        search.tell(trial, TELLS[task.tell](now, seen))
        seen.append(now)
    return models


# --- tables -------------------------------------------------------------------------------

Results = dict[tuple[str, str], dict[int, Found]]  # by sampler and policy, then by seed


def tables(problem: str, budget: int, results: dict[Task, dict[tuple[int, str], Found]]) -> str:
    rows: Results = {}
    for task, found in results.items():
        for (trials, policy), winner in found.items():
            if (task.problem, trials) == (problem, budget):
                rows.setdefault((task.sampler, policy), {})[task.seed] = winner
    lines = [
        f"\n{problem}, {budget} trials",
        f"{'':49} {'true value':>15} {'gain kept':>12} {'optimism':>17} "
        f"{'less offset':>17} {'looks':>6} {'releases':>8}",
    ]
    for sampler in SAMPLERS:
        of_sampler = {policy: found for (s, policy), found in rows.items() if s == sampler}
        lines += [sampler] if of_sampler else []
        lines += [line(policy, sampler, of_sampler[policy], rows) for policy in of_sampler]
    return "\n".join(lines)


def line(policy: str, sampler: str, found: dict[int, Found], rows: Results) -> str:
    seeds = sorted(found)
    won = [found[seed] for seed in seeds]
    gap = column(won, lambda winner: winner.believed - winner.truth)
    return (
        f"  {policy:47} {estimate(column(won, lambda winner: winner.truth), '.4f')} "
        f"{gain_kept(sampler, seeds, found, rows):>12} {estimate(gap, '+.4f')} "
        f"{estimate(gap - column(won, lambda winner: winner.offset), '+.4f')} "
        f"{column(won, lambda winner: winner.looks).mean():6.0f} "
        f"{column(won, lambda winner: winner.releases).mean():8.1f}"
    )


def gain_kept(sampler: str, seeds: list[int], found: dict[int, Found], rows: Results) -> str:
    if sampler == "random":
        return ""
    base = column([rows["random", "unguarded"][seed] for seed in seeds], lambda w: w.truth)
    full = column([rows[sampler, "unguarded"][seed] for seed in seeds], lambda w: w.truth) - base
    part = column([found[seed] for seed in seeds], lambda w: w.truth) - base
    if full.mean() <= 2.0 * full.std(ddof=1) / math.sqrt(len(full)):
        return "no gain"  # that is clear enough to take a share of
    # Standard error of a ratio of means, by the jackknife over seeds.
    n = len(seeds)
    without = (part.sum() - part) / (full.sum() - full)
    spread = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    return f"{part.mean() / full.mean():.0%} ± {spread:.0%}"


def column(won: Sequence[Found], value: Callable[[Found], float]) -> NDArray[np.float64]:
    return np.array([value(winner) for winner in won])


def estimate(values: NDArray[np.float64], digits: str) -> str:
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{values.mean():{digits}} ± {error:.4f}"


# --- command ------------------------------------------------------------------------------


def tasks_of(args: argparse.Namespace) -> list[Task]:
    tasks = []
    for sampler in SAMPLERS:
        module = SAMPLERS[sampler][1]
        if sampler not in (*args.samplers, "random"):
            continue
        if module and not find_spec(module):
            print(f"{sampler} is left out: it needs the package {module}")
            continue
        for problem in args.problems:
            if problem == "pipeline" and sampler not in (*args.pipeline_samplers, "random"):
                continue
            for seed in range(args.gp_seeds if sampler == "GP" else args.seeds):
                for tell in tells_of(args, problem, sampler):
                    budgets = budgets_of(args, problem, sampler)
                    tasks.append(
                        Task(problem, sampler, tell, seed, budgets, args.examples, args.train_rows)
                    )
    return tasks


def tells_of(args: argparse.Namespace, problem: str, sampler: str) -> list[str]:
    if sampler == "random":
        return ["unguarded"]
    if args.tells:
        return ["unguarded", *args.tells]
    dear = sampler == "GP" or problem == "pipeline" or args.quick
    return ["unguarded", *(MAIN if dear else TELLS)]


def budgets_of(args: argparse.Namespace, problem: str, sampler: str) -> tuple[int, ...]:
    if problem == "pipeline":
        return (args.pipeline_trials,)
    if sampler == "GP":  # dear: the smallest number only
        return (min(args.trials),)
    return tuple(sorted(args.trials))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--gp-seeds", type=int, default=20, help="GP is dear")
    parser.add_argument("--trials", type=int, nargs="+", default=[60, 200])
    parser.add_argument("--pipeline-trials", type=int, default=100)
    parser.add_argument("--problems", nargs="+", default=["smooth", "rough", "pipeline"])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--pipeline-samplers", nargs="+", default=["TPE"])
    parser.add_argument("--tells", nargs="+", choices=TELLS, help="in place of the usual ones")
    parser.add_argument("--examples", type=int, default=1000, help="holdout rows, synthetic")
    parser.add_argument("--train-rows", type=int, default=2000, help="rows behind the inner score")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few and small studies")
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.gp_seeds, args.trials, args.pipeline_trials = 3, 2, [25], 12
    return args


def main() -> None:
    args = parsed()
    begun = time.perf_counter()
    tasks = tasks_of(args)
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(threads, "1")  # for the workers: the studies run in parallel
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        results = dict(zip(tasks, pool.map(study, tasks, chunksize=2), strict=True))
    for problem in args.problems:
        for budget in sorted(
            {b for task in tasks if task.problem == problem for b in task.budgets}
        ):
            print(tables(problem, budget, results))
    print(f"\n{len(tasks)} studies in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
