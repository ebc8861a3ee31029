"""`Decision`: the answer to "may I keep this change?"."""

from __future__ import annotations

from dataclasses import dataclass

from ladderholdout.guard.shown.score_certificate import html_table
from ladderholdout.guard.shown.views import Release
from ladderholdout.mechanisms import LadderRules

UNCOUNTED = (
    "what was shown of these rows beside decisions cannot be counted, such as raw scores in an "
    "audit"
)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a candidate may replace the incumbent of a `GateLadder`.

    It depends on the rows through decisions alone: two sets of labels under which all decisions
    are equal give the same reasons. ``if decision:`` asks whether it was accepted.

    Attributes
    ----------
    accepted : bool
        Whether the candidate was shown to be better than the incumbent, or is the baseline by
        request. A retry under a key gets the same decision, as long as no other has replaced it.
    submission : int
        The number under which the ledger keeps it.
    spent : bool
        Whether the ladder could accept nothing any more, whatever was submitted.
    reason : str
        Why, in a sentence.
    incumbent : int
        The submission that is to be kept now.
    unchanged : bool
        Whether the predictions are those of the incumbent on all rows: nothing was tested.
    baseline : bool
        Whether there was no incumbent: it is one now, and was compared with nothing.

    Examples
    --------
    >>> decision = Decision(True, 3, False, "It is better than submission 1.", 3)
    >>> bool(decision), decision.line()
    (True, 'accepted (submission 3): It is better than submission 1.')
    """

    accepted: bool
    submission: int
    spent: bool
    reason: str
    incumbent: int
    unchanged: bool = False
    baseline: bool = False

    def __bool__(self) -> bool:
        return self.accepted

    @property
    def verdict(self) -> str:
        """The decision in a word or two: accepted, not accepted, unchanged, baseline."""
        if self.accepted:
            return "accepted"
        if self.baseline:
            return "baseline"
        return "unchanged" if self.unchanged else "not accepted"

    def line(self) -> str:
        """Return it in a line.

        Examples
        --------
        >>> Decision(False, 4, False, "It is not shown to be better.", 3).line()
        'not accepted (submission 4): It is not shown to be better.'
        """
        return f"{self.verdict} (submission {self.submission}): {self.reason}"

    def __str__(self) -> str:
        return f"Decision: {self.line()}"

    def _repr_html_(self) -> str:
        return html_table(
            [
                ("decision", self.verdict),
                ("submission", str(self.submission)),
                ("reason", self.reason),
                ("incumbent", str(self.incumbent)),
            ]
        )


def reason_of(
    release: Release,
    against: int | None,
    incumbent: int,
    margin: float,
    why_spent: str | None,
    clipping: str = "",
    *,
    retried: bool = False,
    withdrawn: bool = False,
) -> str:
    """Return why a candidate was accepted or not.

    Parameters
    ----------
    release : Release
    against : int or None
        The incumbent that it was compared with; None for the baseline.
    incumbent : int
        The incumbent after it.
    margin : float
        The gain that was tested for, in the metric's own units.
    why_spent : str or None
        Why nothing is accepted any more, if so.
    clipping : str
        As `Metric.clipping`, for the test was of these errors.

    Returns
    -------
    str

    Examples
    --------
    >>> reason_of(Release(None, True, 1, None, is_incumbent=True), None, 1, 0.0, None)
    'It is the baseline: there was nothing to compare it with.'
    >>> reason_of(Release(None, False, 4, None), 3, 3, 0.01, None)
    'It is not shown to be better than submission 3 by more than 0.01.'
    >>> reason_of(Release(None, False, 5, None, repeat_of=3, is_incumbent=True), 3, 3, 0.0, None)
    'It alters no prediction on these rows: they are those of submission 3, the incumbent.'
    """
    first = release.repeat_of
    if release.is_incumbent and not release.improved:
        those = f"they are those of submission {first}, the incumbent"
        return f"It alters no prediction on these rows: {those}."
    if release.has_held and not release.is_incumbent:
        replaced = f"submission {incumbent} has replaced it since, and is to be kept"
        return f"The same predictions were accepted as submission {first}; {replaced}."
    if withdrawn and first is not None:
        return f"The same predictions were withdrawn, as submission {first}."
    if why_spent is not None and not release.improved:
        return f"Nothing is accepted any more: {why_spent}. Submission {incumbent} is to be kept."
    if retried and first is None:
        return "It is not shown to be better, nor tested: its key is that of other predictions."
    if first is not None and not retried:
        same = f"submission {first} had the same predictions"
        return (
            f"It is not shown to be better than submission {incumbent}, nor tested again: {same}."
        )
    if against is None:
        return "It is the baseline: there was nothing to compare it with."
    more = f" by more than {margin:g}" if margin else ""
    more += f", with {clipping}" if clipping else ""
    if release.improved:
        return f"It is better than submission {against}{more}."
    return f"It is not shown to be better than submission {against}{more}."


def why_spent(rules: LadderRules, *, is_counted: bool) -> str:
    """Return why a ladder accepts nothing any more.

    Parameters
    ----------
    rules : LadderRules
    is_counted : bool
        Whether all that was shown of the rows can be counted.

    Returns
    -------
    str

    Examples
    --------
    >>> from ladderholdout.mechanisms import GateLadder
    >>> why_spent(LadderRules(GateLadder(horizon=200)), is_counted=True)
    'the 200 candidates that were announced as the horizon have been decided on'
    """
    if not is_counted:
        return UNCOUNTED
    horizon = getattr(rules.mechanism, "horizon", None)
    if horizon is not None:
        return f"the {horizon} candidates that were announced as the horizon have been decided on"
    return f"the budget of {rules.budget} acceptances is used up"
