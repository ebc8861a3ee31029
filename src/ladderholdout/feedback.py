"""Feedback: the number that a search receives for a candidate, a score.

Computed from released scores and inner scores alone, so it reveals nothing of the holdout
that the releases have not revealed already.
"""

from __future__ import annotations

import math

from ladderholdout.errors import InvalidArgument, as_given, as_number

POLICIES = ("auto", "guide", "guided", "penalised", "incumbent")


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
    return _finite("released", released)


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
    released, margin = _finite("released", released), _margin(margin)
    return min(released - margin, math.nextafter(released, -math.inf))


def guided(released: float, margin: float, guide: float) -> float:
    """Return the inner score, or a little less than the released score if that is smaller.

    Parameters
    ----------
    released : float
        The released score.
    margin : float
        How far below it the result is at least; positive.
    guide : float
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
    >>> guided(0.9, 0.1, guide=0.7), guided(0.9, 0.1, guide=0.95)
    (0.7, 0.8)
    """
    return min(penalised(released, margin), _guide(guide))


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


def feedback_of_one_bit(
    policy: str, improvements: int, improved: bool, guide: float | None = None
) -> float:
    """Return the feedback on a submission to a ladder that shows no scores.

    Parameters
    ----------
    policy : {"auto", "guide"}
        With "guide" it is the submission's own inner score. "auto" is "guide" where there is
        one, else what `counted` returns. The others need a released score.
    improvements : int
        How many submissions improved up to this one.
    improved : bool
        Whether this one did.
    guide : float or None, default=None
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
    >>> feedback_of_one_bit("auto", 2, True), feedback_of_one_bit("auto", 2, True, guide=0.6)
    (2.0, 0.6)
    """
    check_policy(policy, shows_values=False)
    if policy == "auto" and guide is None:
        return counted(improvements, improved)
    return feedback_of("guide", 0.0, improved, 1.0, guide)


def check_policy(policy: str, *, shows_values: bool) -> None:
    """Refuse a policy that is unknown, or needs a released score where none is shown.

    Parameters
    ----------
    policy : str
    shows_values : bool
        Whether the ladder shows its released score.

    Raises
    ------
    InvalidArgument
        If it is refused.
    """
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InvalidArgument("feedback", f"one of {', '.join(POLICIES)}", as_given(policy))
    if not shows_values and policy not in ("auto", "guide"):
        raise InvalidArgument(
            "feedback",
            "auto or guide, for a ladder that shows no scores",
            as_given(policy),
            "The others are made from a released score.",
        )


def feedback_of(
    policy: str,
    released: float,
    improved: bool,
    margin: float,
    guide: float | None = None,
) -> float:
    """Return the feedback on one submission.

    Parameters
    ----------
    policy : {"auto", "guide", "guided", "penalised", "incumbent"}
        With "guide" it is the submission's own inner score, improved or not: inner scores
        steer the search, and the ladder only certifies. The others hold for a submission that
        did not improve. "auto" is "guide" where there is one, else
        "penalised".
    released : float
        The released score: the incumbent's, which is this submission's own if it improved.
    improved : bool
        Whether it is the incumbent now: then the feedback is its release, except by "guide".
    margin : float
        Distance from the released score; positive.
    guide : float or None, default=None
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
    >>> feedback_of("auto", 0.9, True, 0.1, guide=0.6)
    0.6
    """
    check_policy(policy, shows_values=True)
    if policy == "auto":
        policy = "penalised" if guide is None else "guide"
    if policy in ("guide", "guided") and guide is None:
        raise InvalidArgument(
            "guide", f"given for the feedback policy {policy}", None, "Take auto or penalised."
        )
    margin = _margin(margin)
    if policy == "guide":
        return _guide(guide)
    if improved or policy == "incumbent":
        return incumbent(released)
    if policy == "penalised":
        return penalised(released, margin)
    return guided(released, margin, _guide(guide))


def _guide(guide: float | None) -> float:
    # Infinite ones are fine: a model that failed in training may have one.
    number = float(guide) if isinstance(guide, float) else as_number(guide)
    if math.isnan(number):
        raise InvalidArgument(
            "guide", "a number", "not one", "Check the inner score of this model."
        )
    return number


def _finite(argument: str, value: float) -> float:
    # The value itself stays out of the message: it is a score.
    number = as_number(value)
    if not math.isfinite(number):
        raise InvalidArgument(argument, "a finite number", "not one")
    return number


def _margin(margin: float) -> float:
    number = as_number(margin)
    if not 0.0 < number < math.inf:
        raise InvalidArgument("margin", "a positive finite number", as_given(margin))
    return number
