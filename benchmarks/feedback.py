"""What should a search be told? Feedback policies against the unguarded study.

For each policy and sampler this prints the true value of the study's winner, the share kept
of the unguarded study's gain over random search, and the optimism: what is believed of the
winner minus what is true. Three problems: a smooth and a rough synthetic surface, whose
models answer right or wrong on examples of their own difficulty, and a search over a
scikit-learn pipeline with a large fresh test part.

A row is what the sampler is told, and who judges the finished study: which trials are shown
to the holdout (all; challengers, whose guide beats the incumbent's; records, whose guide
beats all earlier ones; finalists, the best guides at the end), and by which mechanism the
winner is found. All of it rests on releases and training-side scores alone, but for the
unguarded study. Where every trial is told its guide, the study does not depend on the ladder,
so that one study serves many judges.

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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from scipy.special import ndtri

from ladderholdout.feedback import told
from ladderholdout.mechanisms import (
    Ladder,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    SimplifiedLadder,
)
from ladderholdout.metrics import Evaluation

Losses = NDArray[np.float64]


# --- problems -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """One trial's model: losses on the holdout, guide, and its true score when asked."""

    losses: Losses
    guide: float
    truth: Callable[[], float]

    @property
    def raw(self) -> float:
        return 1.0 - float(self.losses.mean())


@dataclass(frozen=True)
class Examples:
    """Latent difficulties: a model of accuracy p errs on example i if z_i > quantile(p).

    z_i has a part shared by all models, one that varies smoothly with the parameters (random
    Fourier features of unit norm, so exactly normal), and one of its own for each training.
    Two near models of accuracy .93 so disagree on about 4 % of the examples, far ones on 7 %.
    """

    shared: Losses
    smooth: Losses
    frequencies: Losses

    SHARED = 0.7
    SMOOTH = 0.2

    @classmethod
    def drawn(cls, n: int, dimension: int, rng: np.random.Generator) -> Examples:
        features = 24
        return cls(
            rng.normal(size=n),
            rng.normal(size=(n, 2 * features)) / math.sqrt(features),
            rng.normal(size=(features, dimension)) * 2.0,
        )

    def losses(self, x: Losses, accuracy: float, rng: np.random.Generator) -> Losses:
        angle = self.frequencies @ x
        smooth = self.smooth @ np.concatenate([np.cos(angle), np.sin(angle)])
        z = math.sqrt(self.SHARED) * self.shared + math.sqrt(self.SMOOTH) * smooth
        own = math.sqrt(1.0 - self.SHARED - self.SMOOTH)
        z += own * rng.normal(size=len(z))
        return np.asarray(z > ndtri(accuracy), dtype=np.float64)


@dataclass
class Surface:
    """A synthetic problem: a true accuracy for each point, holdout and training rows."""

    seed: int
    n_holdout: int
    n_train: int
    rough: bool
    dimension: int = 5
    rng: np.random.Generator = field(init=False)  # of each training's own part

    def __post_init__(self) -> None:
        self.rng = rng = np.random.default_rng([self.seed, 0])
        self.holdout = Examples.drawn(self.n_holdout, self.dimension, rng)
        self.train = Examples.drawn(self.n_train, self.dimension, rng)
        self.optimum = rng.uniform(0.2, 0.8, size=(4 if self.rough else 1, self.dimension))
        self.loss_of_kind = rng.permutation([0.0, 0.004, 0.012, 0.03])
        self.tilt = rng.normal(size=self.dimension)
        self.tilt *= 0.008 / np.linalg.norm(self.tilt)

    def ask(self, trial: optuna.Trial) -> Model:
        if self.rough:
            x = np.array([trial.suggest_float(f"x{i}", 0, 1) for i in range(self.dimension - 1)])
            kind = trial.suggest_categorical("kind", (0, 1, 2, 3))
            x = np.append(x, kind / 3.0)
            accuracy = self._rough(x, kind)
        else:
            x = np.array([trial.suggest_float(f"x{i}", 0, 1) for i in range(self.dimension)])
            accuracy = 0.95 - 0.2 * float(((x - self.optimum[0]) ** 2).sum())
        # Cross-validation trains on fewer rows: pessimistic, and not everywhere by as much.
        in_training = accuracy - 0.01 + float(self.tilt @ (x - 0.5))
        guide = 1.0 - float(self.train.losses(x, in_training, self.rng).mean())
        return Model(self.holdout.losses(x, accuracy, self.rng), guide, lambda: accuracy)

    def _rough(self, x: Losses, kind: int) -> float:
        away = (x - self.optimum[kind])[:-1]
        ripple = float((1.0 - np.cos(6.0 * math.pi * away)).mean()) / 2.0
        interaction = abs(away[0] * away[1]) + abs(away[2] * away[3])
        loss = 0.25 * float((away**2).sum()) + 0.2 * interaction + 0.03 * ripple
        return float(0.95 - self.loss_of_kind[kind] - loss)


@dataclass
class Pipeline:
    """A real search: 800 rows to train on, 400 held out, 20,000 fresh ones."""

    seed: int
    rng: np.random.Generator | None = None  # these models have no chance of their own

    def __post_init__(self) -> None:
        self.X, self.y, self.X_holdout, self.y_holdout, self.X_fresh, self.y_fresh = _rows(
            self.seed
        )

    def ask(self, trial: optuna.Trial) -> Model:
        from sklearn import config_context
        from sklearn.model_selection import StratifiedKFold, cross_val_score

        pipeline = _pipeline(trial, self.seed)
        # The folds are the same for all trials, so that their guides are compared in pairs.
        folds = StratifiedKFold(5, shuffle=True, random_state=self.seed)
        with config_context(assume_finite=True, skip_parameter_validation=True):
            guide = float(cross_val_score(pipeline, self.X, self.y, cv=folds).mean())
            pipeline.fit(self.X, self.y)
            losses = (pipeline.predict(self.X_holdout) != self.y_holdout).astype(np.float64)
        return Model(losses, guide, cache(lambda: pipeline.score(self.X_fresh, self.y_fresh)))


def _rows(seed: int) -> tuple[NDArray[Any], ...]:
    from sklearn.datasets import make_classification

    X, y = make_classification(
        21_200, n_features=20, n_informative=6, n_redundant=4, n_clusters_per_class=4,
        class_sep=1.0, flip_y=0.05, random_state=seed,
    )  # fmt: skip
    X = X.astype(np.float32)
    return X[:800], y[:800], X[800:1200], y[800:1200], X[1200:], y[1200:]


def _pipeline(trial: optuna.Trial, seed: int) -> Any:
    from sklearn.feature_selection import SelectKBest
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(),
        SelectKBest(k=trial.suggest_int("k", 2, 20)),
        Nystroem(
            gamma=trial.suggest_float("gamma", 1e-3, 3.0, log=True),
            n_components=trial.suggest_int("n_components", 10, 60),
            random_state=seed,
        ),
        RidgeClassifier(
            alpha=trial.suggest_float("alpha", 1e-4, 1e2, log=True),
            class_weight=trial.suggest_categorical("class_weight", (None, "balanced")),
        ),
    )


# --- what a search is told ----------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What may be known of one trial: its guide, whether it improved, what stands after it."""

    guide: float
    improved: bool
    standing: float


Tell = Callable[[Seen, Sequence[Seen]], float]


def by_library(policy: str, margin: float) -> Tell:
    def tell(now: Seen, past: Sequence[Seen]) -> float:
        return told(policy, now.standing, now.improved, now.standing, margin, now.guide)

    return tell


def guide_only(now: Seen, past: Sequence[Seen]) -> float:
    return now.guide


def guide_but_improvers(now: Seen, past: Sequence[Seen]) -> float:
    return now.standing if now.improved else now.guide


def bias(past: Iterable[Seen]) -> float:
    """Mean of release - guide over past improvers, shrunk as if by one more of 0."""
    gaps = [seen.standing - seen.guide for seen in past if seen.improved]
    return sum(gaps) / (len(gaps) + 1)


def corrected(now: Seen, past: Sequence[Seen]) -> float:
    return now.standing if now.improved else now.guide + bias(past)


def corrected_capped(margin: float) -> Tell:
    def tell(now: Seen, past: Sequence[Seen]) -> float:
        return now.standing if now.improved else min(now.standing - margin, corrected(now, past))

    return tell


def softly_capped(margin: float) -> Tell:
    """Below the standing score, yet in the order of the guides: a smooth minimum."""

    def tell(now: Seen, past: Sequence[Seen]) -> float:
        if now.improved:
            return now.standing
        below = (now.standing - now.guide - bias(past)) / margin
        return now.standing - margin * float(np.logaddexp(0.0, below))

    return tell


TELLS: dict[str, Tell] = {
    "incumbent": by_library("incumbent", 0.01),
    **{f"penalised {m}": by_library("penalised", m) for m in (0.001, 0.01, 0.05)},
    **{f"guided {m}": by_library("guided", m) for m in (0.0001, 0.001, 0.01, 0.05)},
    "guide, improvers release": guide_but_improvers,
    "corrected": corrected,
    **{f"corrected capped {m}": corrected_capped(m) for m in (0.001, 0.01)},
    "softly capped 0.01": softly_capped(0.01),
    "guide": guide_only,
}
MAIN = ("incumbent", "guided 0.001", "guide")  # where studies are dear


# --- who judges a finished study -------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """One winner: what is true of it, what is believed, and what it cost the holdout."""

    truth: float
    believed: float
    looks: int
    releases: int
    offset: float = 0.0


Judge = Callable[[Sequence[Model]], Found]
Gate = Callable[[float, float, float], bool]  # of guide, best guide so far, incumbent's guide

GATES: dict[str, Gate] = {
    "all": lambda guide, best, incumbent: True,
    "challengers": lambda guide, best, incumbent: guide > incumbent,
    "records": lambda guide, best, incumbent: guide > best,
}
MECHANISMS: dict[str, Callable[[int], Mechanism]] = {
    "parameter-free": lambda n: ParameterFreeLadder(),
    "paired .05": lambda n: PairedTestLadder(alpha=0.05),
    "paired .15": lambda n: PairedTestLadder(alpha=0.15),
    "paired .30": lambda n: PairedTestLadder(alpha=0.30),
    "ladder .01": lambda n: Ladder(step=0.01),
    "ladder .002": lambda n: Ladder(step=0.002),
    "simplified 1/n": lambda n: SimplifiedLadder(step=1.0 / n),
}


class Climb:
    """A ladder climbed by models one after the other."""

    def __init__(self, mechanism: Mechanism, n: int) -> None:
        self.mechanism = mechanism
        self.state = mechanism.start(n)
        self.incumbent: Model | None = None
        self.looks = 0
        self.rng = np.random.default_rng(0)  # none of these mechanisms draws

    def show(self, model: Model, rows: slice = slice(None)) -> bool:
        evaluation = Evaluation.from_losses(model.losses[rows])
        self.state, outcome = self.mechanism.advance(self.state, evaluation, self.rng)
        self.looks += 1
        if outcome.improved:
            self.incumbent = model
        return outcome.improved

    @property
    def standing(self) -> float:
        return 1.0 - self.state.standing

    def found(self, believed: float | None = None) -> Found:
        assert self.incumbent is not None
        believed = self.standing if believed is None else believed
        return Found(self.incumbent.truth(), believed, self.looks, self.state.releases)


def unguarded(models: Sequence[Model]) -> Found:
    best = max(models, key=lambda model: model.raw)
    return Found(best.truth(), best.raw, len(models), len(models))


def ladder(gate: str, mechanism: str, reserve: float = 0.0) -> Judge:
    """Show a ladder what passes the gate; with a reserve, believe what those rows say."""

    def judge(models: Sequence[Model]) -> Found:
        n = len(models[0].losses)
        kept = n - round(reserve * n)
        climb = Climb(MECHANISMS[mechanism](kept), kept)
        best = -math.inf
        for model in models:
            incumbent = climb.incumbent.guide if climb.incumbent else -math.inf
            if GATES[gate](model.guide, best, incumbent):
                climb.show(model, slice(kept))
            best = max(best, model.guide)
        if not reserve or climb.incumbent is None:
            return climb.found()
        return climb.found(1.0 - float(climb.incumbent.losses[kept:].mean()))

    return judge


def finalists(k: int, mechanism: str) -> Judge:
    """Show the k best guides at the end, the best first, as one batch."""

    def judge(models: Sequence[Model]) -> Found:
        climb = Climb(MECHANISMS[mechanism](len(models[0].losses)), len(models[0].losses))
        for model in sorted(models, key=lambda model: -model.guide)[:k]:
            climb.show(model)
        return climb.found()

    return judge


def veto(gate: str, factor: float) -> Judge:
    """Let what passes the gate take over unless it is clearly worse: no rule of the library.

    The risk may rise by ``factor`` standard errors of the paired difference, so that what
    stands may get worse.
    """

    def judge(models: Sequence[Model]) -> Found:
        incumbent, best, looks, releases = models[0], models[0].guide, 1, 1
        for model in models[1:]:
            if GATES[gate](model.guide, best, incumbent.guide):
                looks += 1
                worse = model.losses - incumbent.losses
                if worse.mean() <= factor * worse.std(ddof=1) / math.sqrt(len(worse)):
                    incumbent, releases = model, releases + 1
            best = max(best, model.guide)
        return Found(incumbent.truth(), incumbent.raw, looks, releases)

    return judge


def best_guide(models: Sequence[Model]) -> Found:
    """Pick the best guide of all; what is believed is the release that stands for another."""
    best = max(models, key=lambda model: model.guide)
    return replace(ladder("all", "parameter-free")(models), truth=best.truth())


AS_TOLD: dict[str, Judge] = {
    "all, parameter-free": ladder("all", "parameter-free"),
    "pick best guide": best_guide,
}
JUDGES: dict[str, Judge] = {
    **{f"{gate}, {name}": ladder(gate, name) for gate in GATES for name in MECHANISMS},
    **{
        f"{gate}, {name}, reserve .3": ladder(gate, name, reserve=0.3)
        for gate in GATES
        for name in ("parameter-free", "simplified 1/n")
    },
    "finalist 1": finalists(1, "parameter-free"),
    **{
        f"finalists {k}, {name}": finalists(k, name)
        for k in (3, 5, 10)
        for name in ("parameter-free", "simplified 1/n")
    },
    **{f"{g}, veto {f}": veto(g, f) for g in ("challengers", "records") for f in (0.5, 1.0)},
    "pick best guide": best_guide,
}


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
    chosen = JUDGES if tell == "guide" else AS_TOLD
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
        now = Seen(model.guide, improved, climb.standing)
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
    parser.add_argument("--train-rows", type=int, default=2000, help="rows behind the guide")
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
