"""What a submission has to gain to be released now, from public numbers alone.

Only the rule, the number of rows and the released score are used: no label, and no raw score of any
submission. So a status can show it, and it reveals nothing that the releases did not.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

from ladderholdout.mechanisms.base import State
from ladderholdout.mechanisms.noiseless import Ladder, PricedLadder, SimplifiedLadder
from ladderholdout.mechanisms.rules import LadderRules, unit_of
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scores import zero_one
from ladderholdout.metrics.table import is_named

# Rules whose margin follows from the released score; those of all others depend on the submission.
_FIXED = (Ladder, PricedLadder, SimplifiedLadder)


def smallest_step(rules: LadderRules, metric: Metric, state: State) -> float:
    """Return how much better than the released score a submission has to be.

    Rules that compare in pairs need the variance of the differences of losses, which
    nobody outside the guard may see. It is bounded by what was released alone: losses in
    [0, 1] of mean r have a variance of at most r(1 - r), so that the difference of two of them
    that are not negatively correlated has at most twice that. Squared errors of a normal
    distribution, and losses that vary less, have one of at most twice r squared, which is less
    where the stated range is wide.

    Parameters
    ----------
    rules : LadderRules
    metric : Metric
    state : State
        Of the ladder, with the released risk.

    Returns
    -------
    float
        In the units of the score, not negative.

    Examples
    --------
    >>> from ladderholdout.mechanisms import Ladder, ParameterFreeLadder, State
    >>> from ladderholdout.metrics import get_metric
    >>> accuracy = get_metric("accuracy")
    >>> state = State(n=400, standing=0.2, releases=1)
    >>> smallest_step(LadderRules(Ladder(step=0.02)), accuracy, state)
    0.02
    >>> smallest_step(LadderRules(ParameterFreeLadder()), accuracy, state)
    0.028284271247
    """
    released = state.standing
    unit = rules.unit or unit_of(math.inf, released)
    share = min(max(released / unit, 0.0), 1.0)
    variance = share * (1.0 - share)
    # Of a metric of the caller's own the ledger has no function: the answer must not need it.
    if is_named(metric) and metric.is_mean and metric.loss is not zero_one:
        variance = min(variance, 2.0 * share * share)
    within = replace(state, standing=released / unit)
    margin = rules.mechanism.least_gain(within, 2.0 * variance) * unit
    # A rule with noise, or that rounds nothing, has no grid.
    rounds = rules.mechanism.resolution(state.n) > 0.0
    step = max(margin, rules.spacing(released, state.n)) if rounds else margin
    better = max(released - step, 0.0) if metric.root else released - step
    return round(metric.to_score(better) - metric.to_score(released), 12)


def next_release(rules: LadderRules, metric: Metric, n: int, risk: float, releases: int) -> str:
    """Describe the gain that a submission needs to become the incumbent.

    Parameters
    ----------
    rules : LadderRules
    metric : Metric
    n : int
        Rows that the ladder measures.
    risk : float
        The released one.
    releases : int
        How many there were.

    Returns
    -------
    str
        A number where the rule has one. Where it depends on the submission, the largest usual one.

    Examples
    --------
    >>> from ladderholdout.mechanisms import BayesBootLadder, Ladder, ParameterFreeLadder
    >>> from ladderholdout.metrics import get_metric
    >>> accuracy, area = get_metric("accuracy"), get_metric("roc_auc")
    >>> print(next_release(LadderRules(Ladder(step=0.02)), accuracy, 400, 0.2, 1))
    a score above 0.82; scores are released in steps of 0.02
    >>> print(next_release(LadderRules(ParameterFreeLadder()), accuracy, 400, 0.2, 1))
    depends on the submission: a score above about 0.8283, or less where it resembles the incumbent
    >>> print(next_release(LadderRules(BayesBootLadder(17 / 3, step=0.025)), area, 400, 0.1, 2))
    depends on the submission and on random draws: a score above about 0.925; scores are released \
in steps of 0.025
    """
    rule, state = rules.mechanism, State(n=n, standing=risk, releases=releases)
    if rules.shows_scores and (rule.discloses or rule.redraws):
        return "any: each submission's own score is released"
    if rule.needs_account or rule.needs_inner_score:
        return "depends on the submission"
    gain = smallest_step(rules, metric, state)
    if isinstance(rule, SimplifiedLadder):
        gain /= 2  # rounding does the rest
    score = metric.to_score(risk)
    above = f"a score above {'' if rules.unit else 'about '}{score + gain:.4g}"
    if not isinstance(rule, _FIXED):
        why = "the submission and on random draws" if rule.draws else "the submission"
        above = f"depends on {why}: a score above about {score + gain:.4g}"
        if rule.needs_losses:
            above += ", or less where it resembles the incumbent"
    if rule.noisy:
        return f"{above}; scores are released with noise"
    step = rule.resolution(n) * (rules.unit or 1.0)
    if rules.grid(n) is not None or not rules.unit or metric.root or step <= rules.unit / n:
        return above
    return f"{above}; scores are released in steps of {step:.3g}"


def step_at(metric: Metric, rules: LadderRules, n: int, score: float) -> float:
    """Return the score by which one grid step of risk is below a released one, on n rows."""
    risk = metric.to_risk(score)
    step = rules.spacing(risk, n)
    # Beside a score of -1e20 (a diverged model) a step is nothing, but it must be one.
    return max(score - metric.to_score(risk + step), sys.float_info.min)
