"""Mechanisms: the pure rules that turn a risk and a history into a release.

>>> mechanism_from("Ladder", {"step": 0.01})
Ladder(step=0.01)
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, did_you_mean
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
from ladderholdout.metrics import Evaluation, Metric
from ladderholdout.metrics.scores import zero_one
from ladderholdout.metrics.table import is_named

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

T = TypeVar("T")

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


# Areas for each class or each pair of classes: a hundredth of a second and more on many rows.
_SLOW = "roc_auc_ov"


FINALISTS = 3
"""How many candidates `LadderHoldout.guard` shows to the holdout at most, by default."""


def default_mechanism(metric: Metric, n: int, *, reserved: bool = False) -> Mechanism:
    """Return the rule for a metric on n rows, as decision 17 has it.

    Parameters
    ----------
    metric : Metric
    n : int
        Rows that the ladder measures.
    reserved : bool, default=False
        Whether others are kept in reserve, which certify whatever the ladder releases.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> from ladderholdout.metrics import get_metric
    >>> default_mechanism(get_metric("accuracy"), 400)
    PricedLadder(weight=0.7)
    >>> default_mechanism(get_metric("accuracy"), 400, reserved=True)
    SimplifiedLadder(step=0.0025)
    >>> default_mechanism(get_metric("neg_brier_score"), 400)
    ParameterFreeLadder()
    >>> default_mechanism(get_metric("roc_auc"), 400).step
    0.025
    """
    if metric.is_mean and metric.bounded and reserved and not metric.clip:
        return SimplifiedLadder(step=1 / n)
    # A stated range may be much wider than the losses, so no share of it is a margin.
    if metric.is_mean:
        # Losses between 0 and 1 vary less than its price takes for granted.
        return PricedLadder() if metric.loss is zero_one else ParameterFreeLadder()
    if not is_named(metric) or metric.name.startswith(_SLOW):
        # It would be measured up to a thousand times for one decision, whatever that takes.
        return Ladder(step=1 / math.sqrt(n))
    half_a_root = float(f"{0.5 / math.sqrt(n):.2g}")
    return BayesBootLadder(odds=17 / 3, n_posterior=1000, step=half_a_root)


def mechanism_of(text: str) -> Mechanism:
    """Read a mechanism as it is written in Python and as `status` prints it.

    Parameters
    ----------
    text : str
        A name, with settings in brackets or without: numbers, texts, True, False, None.

    Returns
    -------
    Mechanism

    Raises
    ------
    InvalidArgument
        It is something else, or a setting is refused.

    Examples
    --------
    >>> mechanism_of("Ladder(step=0.01)"), mechanism_of("Ladder(0.01)")
    (Ladder(step=0.01), Ladder(step=0.01))
    >>> mechanism_of("ParameterFreeLadder")
    ParameterFreeLadder()
    """
    allowed = 'a mechanism with its settings, such as "Ladder(step=0.01)"'
    return typed(text, "--mechanism", allowed, MECHANISMS, mechanism_from)


def typed(
    text: str,
    argument: str,
    allowed: str,
    kinds: Mapping[str, type],
    make: Callable[[str, dict[str, Any]], T],
) -> T:
    """Read a call of one of several dataclasses.

    Examples
    --------
    >>> typed("Ladder(0.01)", "--rule", "a rule", MECHANISMS, lambda name, settings: settings)
    {'step': 0.01}
    """
    refused = InvalidArgument(argument, allowed, repr(text))
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise refused from None
    if isinstance(call, ast.Name):
        call = ast.Call(call, [], [])
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise refused
    name = call.func.id
    if name not in kinds:
        remedy = did_you_mean(name, kinds)
        raise InvalidArgument(argument, f"one of {', '.join(kinds)}", repr(name), remedy)
    try:
        return make(name, _settings(kinds[name], call))
    except InvalidArgument:
        raise
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise refused from None


def _settings(kind: type, call: ast.Call) -> dict[str, Any]:
    names = [setting.name for setting in fields(kind)][: len(call.args)]
    names += [str(keyword.arg) for keyword in call.keywords]
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    if len(set(names)) != len(values):
        raise ValueError
    return dict(zip(names, map(ast.literal_eval, values), strict=True))
