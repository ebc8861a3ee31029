"""Feedback: the number that a search receives for a candidate, a score.

Computed from released scores and inner scores alone, so it reveals nothing of the holdout
that the releases have not revealed already.
"""

from __future__ import annotations

import math

from ladderholdout.arguments import as_given, as_number, choice, finite, inside
from ladderholdout.errors import InvalidArgument

POLICIES = ("auto", "inner", "capped", "penalised", "incumbent")


def incumbent(released: float) -> float:
    """Return the released score again, as the papers do.

    Parameters
    ----------
    released : float
        The released score.

    Returns
    -------
    float
        The same.

    Raises
    ------
    InvalidArgument
        If it is not finite.

    Examples
    --------
    >>> incumbent(0.9)
    0.9
    """
    return finite("released", released)


def penalised(released: float, margin: float) -> float:
    """Return a little less than the released score, so that no tie hides the incumbent.

    Parameters
    ----------
    released : float
        The released score.
    margin : float
        How much less; positive.

    Returns
    -------
    float
        Strictly below the released score, also where the margin is below its last digit.

    Raises
    ------
    InvalidArgument
        If the released score is not finite or the margin not positive.

    Examples
    --------
    >>> penalised(0.9, 0.1)
    0.8
    """
    released, margin = finite("released", released), inside("margin", margin, high=math.inf)
    return min(released - margin, math.nextafter(released, -math.inf))


def capped(released: float, margin: float, inner_score: float) -> float:
    """Return the inner score, or a little less than the released score if that is smaller.

    Parameters
    ----------
    released : float
        The released score.
    margin : float
        How far below it the result is at least; positive.
    inner_score : float
        An inner score, such as that of a cross-validation on the training rows.

    Returns
    -------
    float
        The smaller of the inner score and of what `penalised` returns.

    Raises
    ------
    InvalidArgument
        If the inner score is nan, the released score not finite or the margin not positive.

    Examples
    --------
    >>> capped(0.9, 0.1, inner_score=0.7), capped(0.9, 0.1, inner_score=0.95)
    (0.7, 0.8)
    """
    return min(penalised(released, margin), _inner_score(inner_score))


def counted(improvements: int, improved: bool) -> float:
    """Return how many submissions improved so far, where their scores are not released.

    Parameters
    ----------
    improvements : int
        How many improved up to this one.
    improved : bool
        Whether this one did.

    Returns
    -------
    float
        The k-th that improved gets k, one that did not half less than the last that did: the
        incumbent has the largest number of all, and no tie hides it.

    Examples
    --------
    >>> counted(3, True), counted(3, False), counted(4, True)
    (3.0, 2.5, 4.0)
    """
    return float(improvements) if improved else improvements - 0.5


def feedback_of_improvement(
    policy: str, improvements: int, improved: bool, inner_score: float | None = None
) -> float:
    """Return the feedback on a submission to a ladder that shows improvements alone.

    Parameters
    ----------
    policy : {"auto", "inner"}
        With "inner" it is the submission's own inner score. "auto" is "inner" where there is
        one, else what `counted` returns. The others need a released score.
    improvements : int
        How many submissions improved up to this one.
    improved : bool
        Whether this one did.
    inner_score : float or None, default=None
        An inner score of the same model.

    Returns
    -------
    float
        The score to hand to the search.

    Raises
    ------
    InvalidArgument
        If the policy is unknown, needs a released score or lacks its inner score.

    Examples
    --------
    >>> [feedback_of_improvement("auto", 2, True, inner) for inner in (None, 0.6)]
    [2.0, 0.6]
    """
    check_policy(policy, shows_scores=False)
    if policy == "auto" and inner_score is None:
        return counted(improvements, improved)
    return feedback_of("inner", 0.0, improved, 1.0, inner_score)


def check_policy(policy: str, *, shows_scores: bool) -> None:
    """Refuse a policy that is unknown, or needs a released score where none is shown.

    Parameters
    ----------
    policy : str
    shows_scores : bool
        Whether the ladder shows its released score.

    Raises
    ------
    InvalidArgument
        If it is refused.
    """
    choice("feedback", policy, POLICIES)
    if not shows_scores and policy not in ("auto", "inner"):
        raise InvalidArgument(
            "feedback",
            "auto or inner, for a ladder that shows improvements alone",
            as_given(policy),
            "The others are made from a released score.",
        )


def feedback_of(
    policy: str,
    released: float,
    improved: bool,
    margin: float,
    inner_score: float | None = None,
) -> float:
    """Return the feedback on one submission.

    Parameters
    ----------
    policy : {"auto", "inner", "capped", "penalised", "incumbent"}
        With "inner" it is the submission's own inner score, improved or not: inner scores
        steer the search, and the ladder only certifies. The others hold for a submission that
        did not improve. "auto" is "inner" where there is one, else "penalised".
    released : float
        The released score: the incumbent's, which is this submission's own if it improved.
    improved : bool
        Whether it is the incumbent now: then the feedback is its release, except by "inner".
    margin : float
        Distance from the released score; positive.
    inner_score : float or None, default=None
        An inner score of the same model.

    Returns
    -------
    float
        The score to hand to the search.

    Raises
    ------
    InvalidArgument
        If the policy is unknown or lacks its inner score, or a number is refused.

    Examples
    --------
    >>> feedback_of("auto", 0.9, True, 0.1)
    0.9
    >>> feedback_of("auto", 0.9, True, 0.1, inner_score=0.6)
    0.6
    """
    check_policy(policy, shows_scores=True)
    if policy == "auto":
        policy = "penalised" if inner_score is None else "inner"
    if policy in ("inner", "capped") and inner_score is None:
        raise InvalidArgument(
            "inner_score",
            f"given for the feedback policy {policy}",
            None,
            "Take auto or penalised.",
        )
    inside("margin", margin, high=math.inf)
    if policy == "inner":
        return _inner_score(inner_score)
    if improved or policy == "incumbent":
        return incumbent(released)
    if policy == "penalised":
        return penalised(released, margin)
    return min(penalised(released, margin), _inner_score(inner_score))


def _inner_score(inner_score: float | None) -> float:
    # Infinite ones are fine: a model that failed in training may have one.
    number = float(inner_score) if isinstance(inner_score, float) else as_number(inner_score)
    if math.isnan(number):
        raise InvalidArgument(
            "inner_score", "a number", "not one", "Check the inner score of this model."
        )
    return number
