"""The problems of benchmarks/feedback.py: two synthetic surfaces and a real pipeline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from scipy.special import ndtri

Losses = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """One trial's model: losses on the holdout, inner score, and its true score when asked."""

    losses: Losses
    inner_score: float
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
        inner_score = 1.0 - float(self.train.losses(x, in_training, self.rng).mean())
        return Model(self.holdout.losses(x, accuracy, self.rng), inner_score, lambda: accuracy)

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
        # The folds are the same for all trials, so that their inner scores are compared in pairs.
        folds = StratifiedKFold(5, shuffle=True, random_state=self.seed)
        with config_context(assume_finite=True, skip_parameter_validation=True):
            inner_score = float(cross_val_score(pipeline, self.X, self.y, cv=folds).mean())
            pipeline.fit(self.X, self.y)
            losses = (pipeline.predict(self.X_holdout) != self.y_holdout).astype(np.float64)
        return Model(losses, inner_score, cache(lambda: pipeline.score(self.X_fresh, self.y_fresh)))


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
