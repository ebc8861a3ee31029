"""The ladder that tells one bit of a submission: whether it improved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ladderholdout.mechanisms.ladder import PairedTestLadder


@dataclass(frozen=True, slots=True)
class OneBitLadder(PairedTestLadder):
    """Improve if a one-sided paired t-test rejects, and tell only that it did.

    The rule of `PairedTestLadder`. What a submission is told is whether it is the incumbent
    now; the standing risk is kept in the ledger, and shown when somebody asks for it
    (`LadderHoldout.reveal`). A certificate pays for what was told, and a bit costs less than
    a value. `run` and `decide` give the values all the same: they are pure functions for
    simulations, and it is the guard that keeps silent.

    Parameters
    ----------
    alpha : float
        Level of the test, in (0, 0.5].

    Raises
    ------
    InvalidArgument
        If alpha is outside (0, 0.5].

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout import LadderHoldout
    >>> X, y = np.arange(200).reshape(-1, 1), np.arange(200) % 2
    >>> holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=OneBitLadder(alpha=0.01),
    ...                         ledger="memory")
    >>> for right in (120, 124, 160):
    ...     release = holdout.submit(np.where(np.arange(200) < right, y, 1 - y))
    ...     print(release.score, release.improved)
    None True
    None False
    None True
    >>> holdout.reveal()
    0.8
    """

    tells_values: ClassVar[bool] = False
