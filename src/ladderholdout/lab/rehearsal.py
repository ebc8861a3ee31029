"""How many submissions are safe: an attack, rehearsed on rows whose labels mean nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import inside, seed_sequence, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.lab.screening import ForwardRegression, Selection, StepForward
from ladderholdout.mechanisms import LadderRules, Mechanism
from ladderholdout.mechanisms.base import a_mechanism
from ladderholdout.metrics import Evaluation, FloatArray, Metric, get_metric
from ladderholdout.metrics.arrays import Array

# On at least so many fresh rows the final model is scored once more.
FRESH = 10_000


class DrawnRows(NamedTuple):
    """Features, and labels that were drawn without regard to them."""

    X: FloatArray
    y: Array


@dataclass(frozen=True, slots=True, eq=False)
class RowSource:
    """The user's features (m, p) and labels, from which rows are drawn, apart."""

    X: FloatArray
    y: Array
    metric: Metric
    classes: Array | None

    def draw(self, n: int, features: Array, rng: np.random.Generator) -> DrawnRows:
        """Draw rows and labels, each by itself and with replacement.

        A permutation of the responses that is not bound to the number of rows there are.
        """
        of_rows, of_labels = rng.integers(0, len(self.X), (2, n))
        return DrawnRows(self.X[of_rows][:, features], self.y[of_labels])

    def responses(self, y: Array) -> FloatArray:
        """Return what least squares fits: the values, or a column of 0 and 1 for each class."""
        if self.classes is None:
            return np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        return np.asarray(y[:, None] == self.classes[None], dtype=np.float64)

    def evaluate(self, targets: Array, fitted: FloatArray) -> Evaluation:
        """Turn fitted responses into predictions as the metric asks for them, and measure."""
        predictions = self.metric.canonical(self._predictions(fitted), len(fitted), self.classes)
        return self.metric.evaluate(targets, predictions)

    def _predictions(self, fitted: FloatArray) -> Array:
        if self.metric.response == "labels":
            assert self.classes is not None
            return np.asarray(self.classes[fitted.argmax(axis=1)])
        if self.metric.response == "scores":
            return fitted[:, 1]
        if self.metric.response == "probabilities":
            # Least squares leaves [0, 1], where a logarithm would be infinite.
            shares = np.clip(fitted, 0.01, None)
            return np.asarray(shares / shares.sum(axis=1, keepdims=True))
        return fitted[:, 0] if self.y.ndim == 1 else fitted


def optimism(
    source: RowSource,
    rules: LadderRules,
    n: int,
    n_train: int,
    features: int,
    iterations: int,
    rng: np.random.Generator,
) -> float:
    """Run the attack once, and return what its final model seems to know of the holdout.

    That is its score on the holdout minus its score on fresh rows; 0.0 where nothing was ever
    released. So many `features` are drawn at random, and `iterations` of them selected at most.
    """
    chosen = rng.choice(source.X.shape[1], features, replace=False)
    train, holdout = (source.draw(size, chosen, rng) for size in (n_train, n))
    responses = source.responses(train.y)
    model = ForwardRegression(train.X, responses, holdout.X)
    targets = source.metric.targets(holdout.y, source.classes)
    selected = _attack(model, source, rules, targets, features, iterations, rng)
    if not selected:
        return 0.0
    # The holdout's own labels, again and again: labels and features have nothing to do with
    # each other, and a holdout with easy labels does not count as overfitted.
    labels = np.concatenate([holdout.y] * math.ceil(FRESH / n))
    fresh = source.draw(len(labels), chosen[selected], rng).X
    design, rows = (
        np.column_stack([np.ones(len(part)), part]) for part in (train.X[:, selected], fresh)
    )
    fitted = np.asarray(rows @ np.linalg.lstsq(design, responses, rcond=None)[0])
    on_fresh = source.evaluate(source.metric.targets(labels, source.classes), fitted)
    on_holdout = source.evaluate(targets, model.fitted)
    return source.metric.to_score(on_holdout.risk) - source.metric.to_score(on_fresh.risk)


def _attack(
    model: ForwardRegression,
    source: RowSource,
    rules: LadderRules,
    targets: Array,
    features: int,
    iterations: int,
    rng: np.random.Generator,
) -> list[int]:
    """Play `StepForward` on the user's rows, and return the features that it chose."""
    attack = StepForward(features, rounds=iterations, best=rules.mechanism.discloses)
    state, selection = rules.start(len(targets)), Selection(features)
    for _ in range(iterations):
        outcomes = []
        for feature in selection.candidates[0]:
            evaluation = source.evaluate(targets, model.candidate(feature))
            state, outcome = rules.step(state, evaluation, rng)
            outcomes.append((outcome.risk, outcome.improved))
        risks, improved = np.array(outcomes).T[:, :, None]
        if not selection.choose(attack.places(risks, improved.astype(bool))):
            break
        model.add(int(selection.chosen[0, -1]))
    chosen: list[int] = selection.chosen[0].tolist()
    return chosen


# The paper's grid: so many settings, up to all features or 300, whichever is less.
SETTINGS, MOST_FEATURES = 6, 300


class Attack(NamedTuple):
    """One setting of the attack, and what it gained.

    Attributes
    ----------
    features : int
        Drawn at random from all, anew in each repetition.
    iterations : int
        How many of them it selects.
    submissions : int
        How many it makes.
    optimism : tuple of float
        The quartiles, over the repetitions, of the final model's score on the holdout minus
        its score on fresh rows, in the metric's own unit.
    """

    features: int
    iterations: int
    submissions: int
    optimism: tuple[float, float, float]

    @property
    def median(self) -> float:
        """The median optimism, which the paper holds against its threshold."""
        return self.optimism[1]


@dataclass(frozen=True, slots=True)
class SafeSubmissions:
    """What `safe_submissions` found.

    Parameters
    ----------
    n, n_train : int
        Rows of the holdout, and to train on.
    metric : str
        Its name.
    mechanism : Mechanism
        The rule that answers.
    threshold : float
        The optimism that is accepted, in the metric's own unit.
    repetitions : int
        How often each attack was played.
    attacks : tuple of Attack
        The attacks in the order of their numbers of submissions.

    Examples
    --------
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> attacks = (Attack(10, 1, 10, (0.0, 0.02, 0.1)), Attack(20, 2, 39, (0.1, 0.2, 0.3)))
    >>> result = SafeSubmissions(60, 120, "r2", FullDisclosure(), 0.1, 10, attacks)
    >>> result.safe, result.unsafe
    (10, 39)
    """

    n: int
    n_train: int
    metric: str
    mechanism: Mechanism
    threshold: float
    repetitions: int
    attacks: tuple[Attack, ...]

    @property
    def unsafe(self) -> int | None:
        """The fewest submissions that exceeded the threshold; None where none did."""
        too_long = (each.submissions for each in self.attacks if each.median > self.threshold)
        return next(too_long, None)

    @property
    def safe(self) -> int:
        """The most submissions below `unsafe` that were tried; 0 where all were too many."""
        bound = self.unsafe
        tried = [attack.submissions for attack in self.attacks]
        return max((many for many in tried if bound is None or many < bound), default=0)

    def __str__(self) -> str:
        """Return in a few lines what was tried and what follows."""
        lines = [
            f"{self.mechanism!r} on {self.n} rows, {self.metric}, {self.n_train} rows to train on;",
            f"labels without meaning, {self.repetitions} repetitions",
            "",
            "features  selected  submissions   optimism: median        quartiles",
        ]
        for attack in self.attacks:
            low, middle, high = (f"{value:z.3f}" for value in attack.optimism)
            lines.append(
                f"{attack.features:>8}{attack.iterations:>10}{attack.submissions:>13}"
                f"{middle:>19}{f'{low} to {high}':>17}"
            )
        return "\n".join([*lines, "", self._conclusion()])

    def _conclusion(self) -> str:
        accepted = f"an optimism of {self.threshold:g}"
        if self.unsafe is None:
            return (
                f"No attack came to more than {accepted}; the longest made {self.safe} submissions."
            )
        return f"{self.unsafe} submissions came to more than {accepted}; {self.safe} did not."


def safe_submissions(
    X: Any,
    y: ArrayLike,
    metric: str | Metric,
    mechanism: Mechanism,
    *,
    n: int,
    threshold: float,
    n_train: int | None = None,
    share: float = 0.02,
    repetitions: int = 50,
    seed: int = 0,
) -> SafeSubmissions:
    """Find out by simulation how many submissions a holdout bears.

    Neto et al. 2016, Text S3: the step-forward attack on a sixth of the features, on two
    sixths, and so on up to all or 300, with as many iterations as 2% of them. Rows and labels
    are drawn from those given, each by itself and with replacement, so that they have
    nothing to do with each other: a permutation of the labels, for any n. Give rows to train
    on, never the holdout: its labels, even shuffled, are nobody's business.

    A rough estimate, as in the paper: another analyst may overfit less or more.

    Parameters
    ----------
    X : array-like of shape (m, p)
        Features, numbers without gaps.
    y : array-like of shape (m,) or (m, k)
        Labels.
    metric : str or Metric
        How submissions are measured.
    mechanism : Mechanism
        The rule that answers.
    n : int
        Rows of the holdout that is planned.
    threshold : float
        Optimism that is accepted, in the metric's own unit: how much the final model's score
        on the holdout may exceed its true one, in the median.
    n_train : int, optional
        Rows that the analyst trains on; by default as many as were given.
    share : float, default=0.02
        Iterations over features, in (0, 1); at least one.
    repetitions : int, default=50
        How often each attack is played; the paper takes 1,000.
    seed : int, default=0
        Seed of all random numbers.

    Returns
    -------
    SafeSubmissions
        All attacks with their quartiles, and between which two numbers of submissions the
        threshold lies.

    Raises
    ------
    InvalidArgument
        If an argument is refused, or mechanism and metric do not go together.

    Examples
    --------
    >>> from ladderholdout.mechanisms import FullDisclosure
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(120, 60)), rng.normal(size=120)
    >>> found = safe_submissions(
    ...     X, y, "r2", FullDisclosure(), n=60, threshold=0.1, share=0.1, repetitions=10
    ... )
    >>> found.safe, found.unsafe
    (39, 87)
    """
    table = _table(X)
    labels = _labels(y, len(table))
    measure = get_metric(metric)
    classes = measure.classes_of(labels)
    measure = measure.for_classes(classes)
    source = RowSource(table, labels, measure, classes)
    measure.targets(labels, classes)  # refuses labels that the metric cannot be about
    if a_mechanism(mechanism).needs_inner_score:
        allowed = "one that needs no training risk"
        raise InvalidArgument("mechanism", allowed, mechanism.name)
    rules = LadderRules(mechanism, unit=measure.unit)
    n, repetitions = whole("n", n), whole("repetitions", repetitions)
    n_train = len(table) if n_train is None else whole("n_train", n_train)
    threshold = inside("threshold", threshold, high=math.inf)
    grid = _grid(table.shape[1], inside("share", share))
    attacks, seeds = [], seed_sequence(seed).spawn(len(grid))
    for setting, child in zip(grid, seeds, strict=True):
        generators = map(np.random.default_rng, child.spawn(repetitions))
        gains = [optimism(source, rules, n, n_train, *setting, rng) for rng in generators]
        low, middle, high = np.quantile(gains, (0.25, 0.5, 0.75)).tolist()
        attacks.append(Attack(*setting, _submissions(*setting), (low, middle, high)))
    settings = n, n_train, measure.name, mechanism, threshold, repetitions
    return SafeSubmissions(*settings, tuple(attacks))


def _table(X: Any) -> NDArray[np.float64]:
    """Validate features; the errors do not show their values."""
    allowed = "a table of finite numbers with at least 2 rows"
    try:
        table = np.asarray(X, dtype=np.float64)
    except Exception:  # whatever an entry raises
        remedy = "Encode text first, for instance by pandas.get_dummies."
        raise InvalidArgument("X", allowed, "not numeric", remedy) from None
    if table.ndim != 2 or len(table) < 2 or not table.shape[1]:
        raise InvalidArgument("X", allowed, f"of shape {table.shape}")
    if not np.isfinite(table).all():
        raise InvalidArgument("X", allowed, "with gaps", "Fill or drop them first.")
    return table


def _labels(y: ArrayLike, rows: int) -> NDArray[Any]:
    try:
        labels = np.asarray(y)
    except Exception:  # its text may show labels
        labels = np.empty(())
    if labels.ndim not in (1, 2) or len(labels) != rows:
        raise InvalidArgument("y", f"one label for each of {rows} rows", f"of shape {labels.shape}")
    return labels


def _grid(features: int, share: float) -> list[tuple[int, int]]:
    """Return features and iterations of each attack; see `safe_submissions`."""
    most = min(features, MOST_FEATURES)
    sizes = {math.ceil(most * part / SETTINGS) for part in range(1, SETTINGS + 1)}
    return [(size, max(1, round(share * size))) for size in sorted(sizes)]


def _submissions(features: int, iterations: int) -> int:
    return sum(range(features - iterations + 1, features + 1))
