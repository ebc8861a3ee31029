"""Mechanisms: the pure rules that turn a risk and a history into a release.

>>> mechanism_from("Ladder", {"step": 0.01})
Ladder(step=0.01)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument
from ladderholdout.mechanisms.base import Evidence, Mechanism, Outcome, State, a_mechanism
from ladderholdout.mechanisms.gate import GateLadder
from ladderholdout.mechanisms.noiseless import (
    FullDisclosure,
    Ladder,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    RankLadder,
    RoundedDisclosure,
    SimplifiedLadder,
)
from ladderholdout.mechanisms.noisy import GaussianLadder, ShakyLadder, Thresholdout
from ladderholdout.mechanisms.resampling import BayesBootLadder, BayesBootLadderBoot, LadderBoot
from ladderholdout.mechanisms.rules import LadderRules, fresh_rng, unit_of
from ladderholdout.metrics import Evaluation

__all__ = [
    "MECHANISMS",
    "BayesBootLadder",
    "BayesBootLadderBoot",
    "Evidence",
    "FullDisclosure",
    "GateLadder",
    "GaussianLadder",
    "Ladder",
    "LadderBoot",
    "LadderRules",
    "Mechanism",
    "Outcome",
    "PairedTestLadder",
    "ParameterFreeLadder",
    "PricedLadder",
    "RankLadder",
    "RoundedDisclosure",
    "ShakyLadder",
    "SimplifiedLadder",
    "State",
    "Thresholdout",
    "fresh_rng",
    "mechanism_from",
    "run",
    "unit_of",
]

MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.__name__: mechanism
    for mechanism in (
        FullDisclosure,
        RoundedDisclosure,
        Ladder,
        SimplifiedLadder,
        ParameterFreeLadder,
        PairedTestLadder,
        GateLadder,
        PricedLadder,
        ShakyLadder,
        GaussianLadder,
        LadderBoot,
        BayesBootLadder,
        BayesBootLadderBoot,
        Thresholdout,
        RankLadder,
    )
}


def mechanism_from(name: str, settings: Mapping[str, Any]) -> Mechanism:
    """Make a mechanism from its name and settings, as the ledger stores them.

    Parameters
    ----------
    name : str
        A key of `MECHANISMS`.
    settings : mapping of str to object
        What `Mechanism.settings` returned.

    Returns
    -------
    Mechanism
        An equal mechanism.

    Raises
    ------
    InvalidArgument
        If the name is not known, or a setting is not known, missing or refused.

    Examples
    --------
    >>> ladder = ShakyLadder(step=0.05, noise=0.01)
    >>> mechanism_from(ladder.name, ladder.settings()) == ladder
    True
    """
    if not isinstance(name, str) or name not in MECHANISMS:
        raise InvalidArgument("mechanism", f"one of {', '.join(MECHANISMS)}", as_given(name))
    if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
        raise InvalidArgument("settings", "a mapping from names", as_given(settings))
    parameters = fields(MECHANISMS[name])
    known = {parameter.name for parameter in parameters}
    required = {parameter.name for parameter in parameters if parameter.default is MISSING}
    if not required <= set(settings) <= known:
        allowed = f"those of {name} ({', '.join(sorted(known)) or 'none'})"
        raise InvalidArgument("settings", allowed, ", ".join(sorted(settings)) or "empty")
    return MECHANISMS[name](**settings)


def run(mechanism: Mechanism, losses: ArrayLike, rng: np.random.Generator) -> NDArray[np.float64]:
    """Give one mechanism a fixed sequence of submissions.

    Parameters
    ----------
    mechanism : Mechanism
        The rule.
    losses : array-like of shape (k, n)
        Losses of k submissions on n examples, finite, about in [0, 1].
    rng : numpy.random.Generator
        Source of the mechanism's noise.

    Returns
    -------
    ndarray of shape (k,)
        The k released risks.

    Raises
    ------
    InvalidArgument
        If the losses are no finite matrix with at least one column.

    Examples
    --------
    >>> losses = [[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    >>> run(ParameterFreeLadder(), losses, np.random.default_rng(0)).tolist()
    [0.75, 0.75, 0.0]
    """
    matrix = _loss_matrix(losses)
    a_mechanism(mechanism)
    if not isinstance(rng, np.random.Generator):
        raise InvalidArgument("rng", "a numpy.random.Generator", as_given(rng))
    state = mechanism.start(matrix.shape[1])
    risks = np.empty(matrix.shape[0])
    for t, row in enumerate(matrix):
        state, outcome = mechanism.advance(state, Evaluation.from_losses(row), rng)
        risks[t] = outcome.risk
    return risks


def _loss_matrix(losses: ArrayLike) -> NDArray[np.float64]:
    try:
        matrix = np.asarray(losses, dtype=np.float64)
    except Exception:
        # Whatever an entry raises; NumPy's own text may quote one.
        raise InvalidArgument("losses", "a matrix of numbers", "not numeric") from None
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise InvalidArgument(
            "losses", "of shape (k, n) with n of at least 1", f"of shape {matrix.shape}"
        )
    if not np.isfinite(matrix).all():
        raise InvalidArgument("losses", "finite", "partly nan or infinite")
    return matrix
