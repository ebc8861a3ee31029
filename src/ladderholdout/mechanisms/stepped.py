"""What the mechanisms with a step share: one setting, and the grid it makes."""

from __future__ import annotations

from dataclasses import dataclass

from ladderholdout.mechanisms.arithmetic import within
from ladderholdout.mechanisms.base import Mechanism


@dataclass(frozen=True, slots=True)
class Stepped(Mechanism):
    """A mechanism whose releases are multiples of a step in (0, 1]."""

    step: float

    def __post_init__(self) -> None:
        """Validate the step."""
        object.__setattr__(self, "step", within("step", self.step, 1.0))

    def resolution(self, n: int) -> float:
        """Return the step, whatever the holdout's size."""
        return self.step
