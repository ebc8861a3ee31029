"""How many submissions are safe: an attack, rehearsed on rows whose labels mean nothing.

Neto et al. 2016, Supplementary Text S3. Where labels do not depend on the features, all that a
model seems to know of the holdout is overfitting. So the step-forward attack is run on more
and more features, hence submissions, until what it gains exceeds what one can accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms import LadderRules, Mechanism
from ladderholdout.mechanisms.arithmetic import inside, whole
from ladderholdout.metrics import Metric, get_metric
from ladderholdout.planning.rehearsal import Rehearsal

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
        Of each attack.
    attacks : tuple of Attack
        By their number of submissions.
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
        found = (one.submissions for one in self.attacks if one.median > self.threshold)
        return next(found, None)

    @property
    def safe(self) -> int:
        """The most submissions below `unsafe` that were tried; 0 where all were too many."""
        bound = self.unsafe
        tried = [one.submissions for one in self.attacks]
        return max((many for many in tried if bound is None or many < bound), default=0)

    def __str__(self) -> str:
        """Say in a few lines what was tried and what follows."""
        lines = [
            f"{self.mechanism!r} on {self.n} rows, {self.metric}, {self.n_train} rows to train on;",
            f"labels without meaning, {self.repetitions} repetitions",
            "",
            f"{'features':>8}{'selected':>10}{'submissions':>13}{'optimism: median':>19}{'quartiles':>17}",
        ]
        for one in self.attacks:
            low, middle, high = one.optimism
            lines.append(
                f"{one.features:>8}{one.iterations:>10}{one.submissions:>13}"
                f"{middle:>19.3f}{f'{low:.3f} to {high:.3f}':>17}"
            )
        return "\n".join([*lines, "", self._conclusion()])

    def _conclusion(self) -> str:
        accepted = f"an optimism of {self.threshold:g}"
        if self.unsafe is None:
            return f"No attack came to {accepted}: {self.safe} submissions are safe."
        return f"{self.unsafe} submissions came to more than {accepted}; {self.safe} did not."
