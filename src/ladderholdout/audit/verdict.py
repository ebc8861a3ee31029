"""What an audit comes to, in words, and by which rules.

With fresh rows, at confidence c:

- *found*: the interval of the released model's gain over a constant prediction, paired on the
  fresh rows, lies above zero. Where there is nothing, it says so wrongly with probability
  (1 - c)/2, however the search was done: the fresh rows steered nothing.
- *holds*: the interval of the released score minus the fresh one does not lie above zero. Of a
  released score that nothing pushed up, it denies so wrongly with probability (1 - c)/2.

Without fresh rows the same gain is taken on the holdout, at a confidence corrected for all
submissions on it. The rate is then right for submissions that were chosen without feedback;
feedback can raise it, as far as the releases tell something. Whether the score holds is left
open. All rates are those of the intervals, which for means of losses rest on many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ladderholdout.audit.findings import Audit
    from ladderholdout.audit.records import FreshTest, HoldoutTest

Finding = Literal["signal", "nothing", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit comes to.

    Attributes
    ----------
    finding : {"signal", "nothing", "undecided"}
        Whether the released model beats a constant prediction.
    holds : bool or None
        Whether fresh rows agree with the released score; None without fresh rows.
    headline : str
    sentences : tuple of str
        The reasons, with their numbers.

    Examples
    --------
    >>> print(Verdict("nothing", None, "Nothing was found.", ("No model beats a constant.",)))
    Nothing was found. No model beats a constant.
    """

    finding: Finding
    holds: bool | None
    headline: str
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([self.headline, *self.sentences])


def verdict_on(audit: Audit) -> Verdict:
    """Judge an audit by the rules at the top of this module.

    Parameters
    ----------
    audit : Audit

    Returns
    -------
    Verdict
    """
    finding, holds = _finding(audit), _holds(audit.fresh)
    reasons = [
        *_about_the_finding(audit),
        *_about_the_gap(audit),
        *_about_the_pick(audit),
        *_about_the_releases(audit),
        *_about_the_limits(audit),
    ]
    return Verdict(finding, holds, _headline(audit, finding, holds), tuple(reasons))


def _finding(audit: Audit) -> Finding:
    test = audit.fresh or audit.on_holdout
    if test is None or test.gain is None:
        return "undecided"
    return "signal" if test.gain.low > 0 else "nothing"


def _holds(fresh: FreshTest | None) -> bool | None:
    return None if fresh is None else fresh.gap.low <= 0


def _headline(audit: Audit, finding: Finding, holds: bool | None) -> str:
    if audit.released is None:
        return "Nothing was released."
    if finding == "undecided":
        agree = {None: "", True: " The released score holds.", False: _TOO_GOOD}[holds]
        return f"Whether anything was found is open.{agree}"
    if finding == "nothing":
        return f"Nothing was found.{_TOO_GOOD if holds is False else ''}"
    if holds is None:
        return "Something was found."
    return f"Something was found.{' The released score holds.' if holds else _TOO_GOOD}"


_TOO_GOOD = " The released score is too good."


def _about_the_finding(audit: Audit) -> list[str]:
    if audit.fresh is not None:
        return [_on_fresh_rows(audit.fresh)]
    if audit.on_holdout is not None:
        return [_on_the_holdout(audit.on_holdout)]
    if audit.released is None:
        return []
    return [
        "The rows of the holdout, or the function of its metric, are not at hand: open it with "
        "them, or give fresh rows."
    ]


def _on_fresh_rows(fresh: FreshTest) -> str:
    if fresh.gain is None:
        return "The metric has no value for a constant prediction, so nothing is compared with one."
    beats = "beats" if fresh.gain.low > 0 else "is not shown to beat"
    return (
        f"On {fresh.n} fresh rows the released model {beats} a constant prediction: the "
        f"difference is {fresh.gain}, paired."
    )


def _on_the_holdout(test: HoldoutTest) -> str:
    beats = "beats" if test.gain.low > 0 else "does not beat"
    return (
        f"On the holdout the released model {beats} a constant prediction by more than chance "
        f"gives the best of {test.compared}: the difference is {test.gain}, paired. Fresh rows "
        "would tell whether the released score holds."
    )


def _about_the_gap(audit: Audit) -> list[str]:
    fresh = audit.fresh
    if fresh is None or audit.released is None:
        return []
    said = (
        f"The released score is {audit.released:.4g}, the fresh one {fresh.released}: the "
        f"difference is {fresh.gap}, from two samples."
    )
    if not fresh.refitted:
        return [said]
    numbers = ", ".join(map(str, fresh.refitted))
    return [
        said,
        f"The model given for {numbers} does not predict on the holdout what was submitted: it "
        "was fitted again, or is another one.",
    ]


def _about_the_pick(audit: Audit) -> list[str]:
    pick, optimism = audit.picked, audit.optimism
    if pick is None or optimism is None:
        return []
    if pick.number == audit.status.incumbent:
        which = f"the released one as well, submission {pick.number},"
    else:
        which = f"submission {pick.number}"
    said = f"A search that saw raw scores would have picked {which} and believed {pick.raw:.4g}"
    if optimism > 0:
        said += f", {optimism:.4g} more than was released"
    said += "."
    fresh = audit.fresh
    if fresh is None or fresh.picked is None or fresh.over_picked is None:
        return [said]
    return [
        f"{said} On the fresh rows its pick scores {fresh.picked}, and the released model minus "
        f"that {fresh.over_picked}, paired."
    ]


def _about_the_releases(audit: Audit) -> list[str]:
    releases = audit.compared_releases
    if not releases:
        return []
    alone, corrected = audit.improvements(corrected=False), audit.improvements()
    if alone is None or corrected is None:
        return ["The ledger holds too little to test which releases were improvements."]
    compared = sum(one.gain is not None for one in audit.submissions)
    level = f"{100 * (1 - audit.confidence):.4g} %"
    return [
        f"Releases after the first: {len(releases)}. A paired test at {level} finds an "
        f"improvement in {alone} of them, and in {corrected} when it is corrected for all "
        f"{compared} comparisons; the others may be noise."
    ]


def _about_the_limits(audit: Audit) -> list[str]:
    said = []
    if audit.after_opening:
        said.append(
            f"{audit.after_opening} submissions came after raw scores had been shown: they can "
            "not be certified."
        )
    others = [one for one in audit.ladders if one.submissions]
    if len(others) > 1:
        looks = sum(one.submissions for one in others)
        said.append(f"{len(others)} ladders looked at this holdout, {looks} times in all.")
    return said
