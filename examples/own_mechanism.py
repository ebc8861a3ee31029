# Install: pip install .
"""A mechanism of your own.

Each release raises the next threshold: the first improvement has to be larger than one step, the
tenth larger than ten. examples/own_mechanism_test.py checks it with the contract that the
library's own mechanisms keep.

    python examples/own_mechanism.py
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ladderholdout import LadderHoldout, mechanisms
from ladderholdout.mechanisms.base import Evidence, Mechanism, Outcome, State, released, unchanged


@dataclass(frozen=True, slots=True)
class RisingLadder(Mechanism):
    """Release a risk that is below the released one by a step for each earlier release.

    Parameters
    ----------
    step : float, default=0.01
        Releases are multiples of it.
    """

    step: float = 0.01

    def resolution(self, n: int) -> float:
        """Return the distance between two risks that can be released."""
        return self.step

    def decide(
        self, state: State, evidence: Evidence, rng: np.random.Generator
    ) -> tuple[State, Outcome]:
        """Decide from the risk, and from how often something was released before."""
        if evidence.risk < state.standing - self.step * (1 + state.releases):
            return released(state, evidence, self.step * round(evidence.risk / self.step))
        return unchanged(state, evidence)


# The ledger keeps its name and its settings. A process that opens such a ladder has to import this
# module first; so keep the class in a module that your workers import anyway.
mechanisms.MECHANISMS["RisingLadder"] = RisingLadder


def main() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 3)), rng.integers(0, 2, 500)
    holdout = LadderHoldout(
        X, y, scoring="accuracy", name="rising", mechanism=RisingLadder(step=0.01), ledger="memory"
    )
    for share in np.linspace(0.5, 0.75, 26):
        guess = np.where(np.arange(500) < share * 500, y, 1 - y)
        release = holdout.submit(guess)
        if release.improved:
            print(f"{share:.2f} was released as {release.score:.2f}")
    print(f"{holdout.status().releases} releases in {holdout.status().submissions} submissions")


if __name__ == "__main__":
    main()
