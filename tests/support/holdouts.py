"""Small holdouts, and what has to hold of the record of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout import LadderHoldout, Release
from ladderholdout.mechanisms import (
    BayesBootLadder,
    BayesBootLadderBoot,
    FullDisclosure,
    GaussianLadder,
    Ladder,
    LadderBoot,
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
)
from tests.support.ledgers import entries_of, record, replayed, returns_of

# So little noise that what has to improve does: its secret cannot be fixed by a seed.
SHAKY = ShakyLadder(step=0.02, noise=0.005)
EVERY: tuple[Mechanism, ...] = (
    FullDisclosure(),
    RoundedDisclosure(step=0.01),
    Ladder(step=0.01),
    SimplifiedLadder(step=0.01),
    ParameterFreeLadder(),
    PairedTestLadder(alpha=0.3),
    PricedLadder(),
    SHAKY,
    GaussianLadder(step=0.02, noise=0.005),
    LadderBoot(alpha=0.3, n_bootstrap=50),
    BayesBootLadder(odds=2.0, n_posterior=200),
    BayesBootLadderBoot(odds=2.0, n_posterior=200, n_bootstrap=50),
)


def coins(n: int = 60, seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows with labels that nothing predicts."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)), rng.integers(0, 2, n)


def guesses(seed: Any, k: int, n: int = 60) -> NDArray[np.int64]:
    """Predictions of k models that know nothing, the same for the same seed."""
    return np.random.default_rng(seed).integers(0, 2, (k, n))


def repeats(holdout: LadderHoldout) -> int:
    """Count the submissions that repeat an earlier one."""
    return sum(one.repeat_of is not None for one in entries_of(holdout))


def is_repeat(holdout: LadderHoldout, release: Release) -> bool:
    """Look up in the ledger whether a submission repeats an earlier one."""
    return entries_of(holdout)[release.submission - 1].repeat_of is not None


def repeats_first(holdout: LadderHoldout, again: Release, first: Release) -> bool:
    """Look up whether a submission repeats this one, and is told so."""
    repeated = entries_of(holdout)[again.submission - 1].repeat_of
    return repeated == first.submission == again.repeat_of and not again.improved


def assert_replays(holdout: LadderHoldout) -> None:
    """Every release and the state that stands follow from the ledger, to the last bit."""
    found, (_, ladder, entries) = replayed(holdout), record(holdout)
    assert [one.number for one in found] == list(range(1, len(entries) + 1))
    for one in found:
        assert one.agrees
        assert one.recomputed[0].hex() == one.recorded[0].hex()
    if found:
        assert bits(found[-1].state) == bits(ladder.state)
    returns = returns_of(holdout)
    improved = [e.entry.number for e in entries if e.entry.improved and e.entry.repeat_of is None]
    assert (ladder.submissions, ladder.version) == (len(entries), len(improved) + returns)
    if not returns:
        assert ladder.incumbent == (improved[-1] if improved else None)


def bits(state: Mapping[str, Any]) -> dict[str, str]:
    """Show a ladder's state to the last bit."""
    return {
        name: value.hex() if isinstance(value, float) else repr(value)
        for name, value in state.items()
    }
