"""Honest searchers: models that are better or worse in truth, and no wish to cheat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ladderholdout.arguments import inside
from ladderholdout.lab import analyst
from ladderholdout.lab.analyst import Floats
from ladderholdout.lab.bits import Bits, Flags

# The effects of the features fall with this power of their number.
DECAY = 0.7


class SearchData(NamedTuple):
    """What a searcher has: the holdout's features, and a model from training rows.

    Attributes
    ----------
    features : ndarray of shape (R, n, d)
        Float32.
    weights : ndarray of shape (R, d)
        The model: the estimated effect of each feature.
    """

    features: NDArray[np.float32]
    weights: Floats


@dataclass(frozen=True, slots=True, eq=False)
class LinearWorld(analyst.Problem):
    """Rows of two classes, with normal features that each are a little informative about the class.

    A model is a vector of weights; it predicts the class by the sign of the weighted sum. Its
    true risk is known in closed form.

    Parameters
    ----------
    rows : SearchData
        What is known of R holdouts.
    labels : Bits
        Their classes.
    effects : ndarray of shape (R, d)
        Half of the distance between the means of the two classes, feature by feature.

    Examples
    --------
    >>> world = LinearWorld.drawn(500, 2, np.random.default_rng(0), features=5, least=0.2)
    >>> best = model_of(world.seen, world.effects)
    >>> world.true_risk(best).round(3).tolist()
    [0.2, 0.2]
    """

    rows: SearchData
    labels: Bits
    effects: Floats

    @property
    def seen(self) -> analyst.Seen:
        """The features, and a trained model."""
        return analyst.Seen(self.labels.n, len(self.labels.words), self.rows)

    @classmethod
    def drawn(
        cls,
        n: int,
        repetitions: int,
        rng: np.random.Generator,
        *,
        features: int,
        least: float,
        training: int = 100,
    ) -> LinearWorld:
        """Draw holdouts, and a model from training rows.

        The smallest risk of any model is `least`, in (0, 0.5).
        """
        shape = repetitions, features
        effects = rng.choice([-1.0, 1.0], shape) / np.arange(1, features + 1) ** DECAY
        effects *= -ndtri(least) / np.linalg.norm(effects, axis=1, keepdims=True)
        estimated = effects + rng.standard_normal(shape) / np.sqrt(training)
        labels = Bits.random(rng, repetitions, n)
        signs = 2.0 * labels.unpack().astype(np.float32) - 1.0
        drawn = rng.standard_normal((repetitions, n, features), dtype=np.float32)
        drawn += signs[:, :, None] * effects[:, None, :].astype(np.float32)
        return cls(SearchData(drawn, estimated), labels, effects)

    def losses(self, submission: analyst.Submissions) -> Bits:
        """Return where the predictions are wrong; see `Problem.losses`."""
        return analyst.errors_in(submission, self.labels)

    def true_risk(self, submission: analyst.Submissions) -> Floats:
        """Return the risk of the weights; where all are zero it is one half."""
        weights: Floats = submission.model
        lengths = np.linalg.norm(weights, axis=1)
        along = (weights * self.effects).sum(axis=1)
        return np.asarray(ndtr(-along / np.where(lengths > 0, lengths, 1.0)))


def model_of(seen: analyst.Seen, weights: Floats) -> analyst.Submissions:
    """Make a submission of weights."""
    rows: SearchData = seen.known
    sums = rows.features @ weights[:, :, None].astype(np.float32)
    return analyst.Submissions(Bits.pack(sums[:, :, 0] > 0), model=weights)


@dataclass(frozen=True, slots=True)
class Searcher(analyst.Analyst):
    """Base of the honest searchers: they begin with a model from 100 training rows.

    Parameters
    ----------
    submissions : int, default=300
        How many at most.
    features : int, default=20
        How many weights a model has.
    least : float, default=0.2
        The smallest risk of any model, in (0, 0.5).
    """

    submissions: int = 300
    features: int = 20
    least: float = 0.2

    def __post_init__(self) -> None:
        """Validate the settings."""
        analyst.Analyst.__post_init__(self)
        object.__setattr__(self, "least", inside("least", 2 * self.least) / 2)

    @property
    def bits_per_row(self) -> int:
        """The features, of four bytes each."""
        return 32 * self.features

    def problem(self, n: int, repetitions: int, rng: np.random.Generator) -> analyst.Problem:
        """Draw rows with true effects."""
        return LinearWorld.drawn(n, repetitions, rng, features=self.features, least=self.least)


@dataclass(frozen=True, slots=True)
class RandomSearch(Searcher):
    """Submit the trained model, and variants of it that are all drawn before any answer.

    A variant multiplies each weight by a random factor (lognormal, of standard deviation 1
    in logs).

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> course = simulate(RandomSearch(50), ParameterFreeLadder(), n=1000, repetitions=10)
    >>> bool(abs(course.bias.mean()) < 0.02)
    True
    """

    def play(self, seen: analyst.Seen, rng: np.random.Generator) -> analyst.Play:
        """Yield the model and its variants; see `Analyst.play`."""
        rows: SearchData = seen.known
        yield model_of(seen, rows.weights)
        for _ in range(self.submissions - 1):
            factors = np.exp(rng.standard_normal(rows.weights.shape))
            yield model_of(seen, rows.weights * factors)
        return None


@dataclass(frozen=True, slots=True)
class KnobClimb(Searcher):
    """Turn one knob of the model at a time, and go on from what improves.

    A knob is a weight; a turn adds a normal number to it, a fifth of the model's length on
    average.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> course = simulate(KnobClimb(), ParameterFreeLadder(), n=2000, repetitions=10)
    >>> bool(course.releases.mean() > 3), bool(course.bias.mean() > 0)
    (True, True)
    """

    def play(self, seen: analyst.Seen, rng: np.random.Generator) -> analyst.Play:
        """Yield models with a knob turned, and keep what improves; see `Analyst.play`."""
        rows: SearchData = seen.known
        best = rows.weights
        yield model_of(seen, best)
        repetitions = np.arange(seen.repetitions)
        for _ in range(self.submissions - 1):
            knobs = rng.integers(0, best.shape[1], seen.repetitions)
            size = np.linalg.norm(best, axis=1) / 4.0
            candidate = best.copy()
            candidate[repetitions, knobs] += size * rng.standard_normal(seen.repetitions)
            answers = yield model_of(seen, candidate)
            best = np.where(answers.improved[:, None], candidate, best)
        return None


@dataclass(frozen=True, slots=True)
class ForwardSelection(Searcher):
    """Add one feature at a time: in each round try all that are left, and add the last improver.

    On a ladder the last feature that improved is the best of those that did. The search ends
    when a round improves nothing.

    Examples
    --------
    >>> from ladderholdout.lab import simulate
    >>> from ladderholdout.mechanisms import ParameterFreeLadder
    >>> course = simulate(ForwardSelection(), ParameterFreeLadder(), n=1000, repetitions=5)
    >>> bool(course.true.max() < 0.4)
    True
    """

    in_step: ClassVar[bool] = False

    def play(self, seen: analyst.Seen, rng: np.random.Generator) -> analyst.Play:
        """Yield models with a feature more, and keep the last improver; see `Analyst.play`."""
        rows: SearchData = seen.known
        chosen: Flags = np.zeros(rows.weights.shape, dtype=bool)
        left = self.submissions
        while left and not chosen.all():
            last_improver = None
            for feature in rng.permutation(np.flatnonzero(~chosen[0]))[:left]:
                tried = chosen.copy()
                tried[0, feature] = True
                answers = yield model_of(seen, np.where(tried, rows.weights, 0.0))
                last_improver, left = (tried if answers.improved[0] else last_improver), left - 1
            if last_improver is None:
                break
            chosen = last_improver
        return None
