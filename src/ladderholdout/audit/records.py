"""What an audit finds: frozen records, what follows from them by counting, and its verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ladderholdout.audit.statistics import Interval, plain
from ladderholdout.audit.submissions import NONE, AuditedSubmission, AuditedSubmissions, History
from ladderholdout.errors import printable
from ladderholdout.extras import needed
from ladderholdout.guard.views import Status

if TYPE_CHECKING:
    import pandas as pd


def best_raw(submissions: AuditedSubmissions) -> AuditedSubmission | None:
    """Return what a search on raw scores would pick: the first of the best, if there is one."""
    return submissions[int(np.argmax(submissions["raw"]))] if len(submissions) else None


@dataclass(frozen=True, slots=True)
class AuditedBatch:
    """Submissions that were all chosen before any feedback on any of them.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> holdout.owner.audit().batches
    ()
    """

    name: str
    first: int
    last: int
    submissions: int
    releases: int


@dataclass(frozen=True, slots=True)
class LadderUse:
    """One ladder on the audited holdout; they all count together.

    Attributes
    ----------
    account, ladder, metric : str
    submissions, repeats, releases : int
        Repeats are among the submissions.
    opened : datetime or None

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> [(one.account, one.ladder, one.submissions) for one in holdout.owner.audit().ladders]
    [('default', 'main', 2)]
    """

    account: str
    ladder: str
    metric: str
    submissions: int
    repeats: int
    releases: int
    opened: datetime | None


@dataclass(frozen=True, slots=True)
class HoldoutTest:
    """The released model against the best constant prediction, on the holdout itself.

    The holdout chose the model, so the interval has a confidence that is corrected for all
    the submissions it could have been chosen from (Bonferroni).

    Attributes
    ----------
    constant : float
        Score of the same prediction for every row.
    gain : Interval
        Raw score of the released model minus that, paired.
    compared : int
        Submissions on all ladders of the holdout, repeats left out.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> holdout.owner.audit().on_holdout.compared
    2
    """

    constant: float
    gain: Interval
    compared: int


@dataclass(frozen=True, slots=True)
class FreshTest:
    """What rows show that steered no choice.

    Attributes
    ----------
    n : int
        Number of fresh rows.
    released : Interval
        Score of the released model on them.
    gap : Interval
        The released score minus that. Two different samples: nothing is paired.
    constant : float or None
        Score of the constant prediction that was best on the holdout; None where the
        metric has no value for any.
    gain : Interval or None
        Score of the released model minus that of the constant, paired.
    picked : Interval or None
        Score of the model that the best raw score picks; None where it was not given, or is
        the released one.
    over_picked : Interval or None
        Score of the released model minus that of the picked one, paired.
    leaderboard_error, raw_leaderboard_error : float or None
        How far the released score, and the best raw score, ever were from the best score on
        the fresh rows (Blum & Hardt 2015); None unless all models were given.
    refitted : tuple of int
        Submissions whose given model does not predict what was submitted on the holdout.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from ladderholdout import LadderHoldout
    >>> X = np.arange(120)[:, None]
    >>> y = (X[:, 0] > 50).astype(int)
    >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
    >>> tree = DecisionTreeClassifier(random_state=0).fit(X[1::3], y[1::3])
    >>> release = holdout.submit(tree)
    >>> audit = holdout.owner.audit(fresh=(X[2::3], y[2::3]), model=tree)
    >>> audit.fresh.n
    40
    """

    n: int
    released: Interval
    gap: Interval
    constant: float | None
    gain: Interval | None
    picked: Interval | None = None
    over_picked: Interval | None = None
    leaderboard_error: float | None = None
    raw_leaderboard_error: float | None = None
    refitted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What may be shown of a ladder without opening it.

    Attributes
    ----------
    status : Status
    history : sequence of Submission

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> from ladderholdout.audit import record_of
    >>> record_of(holdout).status.submissions
    2
    """

    status: Status
    history: History


Finding = Literal["signal", "nothing", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an audit finds anything better than a constant, and whether the score holds.

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


def _verdict_on(audit: Audit) -> Verdict:
    fresh, test = audit.fresh, audit.fresh or audit.on_holdout
    finding: Finding = "undecided"
    if test is not None and test.gain is not None:
        finding = "signal" if test.gain.low > 0 else "nothing"
    holds = None if fresh is None else fresh.gap.low <= 0
    reasons = [
        *_about_the_finding(audit),
        *_about_the_gap(audit),
        *_about_the_pick(audit),
        *_about_the_releases(audit),
        *_about_the_limits(audit),
    ]
    return Verdict(finding, holds, _headline(audit, finding, holds), tuple(reasons))


def _headline(audit: Audit, finding: Finding, holds: bool | None) -> str:
    if audit.released is None:
        return "Nothing was released."
    score = {
        None: "",
        True: " The released score holds.",
        False: " The released score is too good.",
    }
    if finding == "undecided":
        return f"Whether anything was found is open.{score[holds]}"
    if finding == "nothing":
        return f"Nothing was found.{'' if holds else score[holds]}"
    return f"Something was found.{score[holds]}"


def _about_the_finding(audit: Audit) -> list[str]:
    fresh, test = audit.fresh, audit.on_holdout
    if fresh is not None:
        if fresh.gain is None:
            none = "The metric has no value for a constant prediction, so nothing is compared "
            return [none + "with one."]
        beats = "beats" if fresh.gain.low > 0 else "is not shown to beat"
        return [
            f"On {fresh.n} fresh rows the released model {beats} a constant prediction: the "
            f"difference is {fresh.gain}, paired."
        ]
    if test is not None:
        beats = "beats" if test.gain.low > 0 else "does not beat"
        return [
            f"On the holdout the released model {beats} a constant prediction by more than chance "
            f"gives the best of {test.compared}: the difference is {test.gain}, paired. Fresh rows "
            "would show whether the released score holds."
        ]
    if audit.released is None:
        return []
    return [
        "The rows of the holdout, or the function of its metric, are missing: open it with "
        "them, or give fresh rows."
    ]


def _about_the_gap(audit: Audit) -> list[str]:
    fresh = audit.fresh
    if fresh is None or audit.released is None:
        return []
    sentences = [
        f"The released score is {audit.released:.4g}, the fresh one {fresh.released}: the "
        f"difference is {fresh.gap}, from two samples."
    ]
    if fresh.refitted:
        numbers = ", ".join(map(str, fresh.refitted))
        sentences.append(
            f"The model given for {numbers} does not predict on the holdout what was submitted: "
            "it was fitted again, or is another one."
        )
    return sentences


def _about_the_pick(audit: Audit) -> list[str]:
    pick, optimism = audit.picked, audit.optimism
    if pick is None or optimism is None:
        return []
    if pick.number == audit.status.incumbent:
        which = f"the released one as well, submission {pick.number},"
    else:
        which = f"submission {pick.number}"
    sentence = f"A search that saw raw scores would have picked {which} and believed {pick.raw:.4g}"
    sentence += f", {optimism:.4g} more than was released." if optimism > 0 else "."
    fresh = audit.fresh
    if fresh is not None and fresh.picked is not None and fresh.over_picked is not None:
        sentence += f" On the fresh rows its pick scores {fresh.picked}, and the released model "
        sentence += f"minus that {fresh.over_picked}, paired."
    return [sentence]


def _about_the_releases(audit: Audit) -> list[str]:
    releases = audit.compared_releases
    if not releases:
        return []
    alone, corrected = audit.improvements(corrected=False), audit.improvements()
    if alone is None or corrected is None:
        return ["The ledger holds too little to test which releases were improvements."]
    compared = int((~np.isnan(audit.submissions["gain"])).sum())
    level = f"{100 * (1 - audit.confidence):.4g} %"
    return [
        f"Releases after the first: {len(releases)}. A paired test at {level} finds an "
        f"improvement in {alone} of them, and in {corrected} when it is corrected for all "
        f"{compared} comparisons; the others may be noise."
    ]


def _about_the_limits(audit: Audit) -> list[str]:
    sentences = []
    if audit.after_opening:
        sentences.append(
            f"{audit.after_opening} submissions came after raw scores had been shown: they can "
            "not be certified."
        )
    used = [use.submissions for use in audit.ladders if use.submissions]
    if len(used) > 1:
        sentences.append(f"This holdout got {sum(used)} submissions, through {len(used)} ladders.")
    return sentences


@dataclass(frozen=True, slots=True)
class Audit:
    """The opened record of one ladder.

    Attributes
    ----------
    status : Status
        The ladder's status when it was read.
    submissions : sequence of AuditedSubmission
    ladders : tuple of LadderUse
        All ladders on the holdout, oldest first.
    confidence : float
        Confidence of all intervals, and one minus the level of the tests.
    on_holdout : HoldoutTest or None
        None where the holdout's rows are missing, or nothing was released.
    fresh : FreshTest or None
        None where no fresh rows were given.

    Examples
    --------
    >>> import numpy as np
    >>> from ladderholdout import LadderHoldout
    >>> X, y = np.arange(60)[:, None], np.tile([0, 1], 30)
    >>> holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    >>> for wrong in (29, 28):
    ...     release = holdout.submit(np.where(np.arange(60) < wrong, 1 - y, y))
    >>> audit = holdout.owner.audit()
    >>> audit.believed, audit.released, audit.optimism, audit.picked.number
    (0.533333333333333, 0.516666666666667, 0.0166666666667, 2)
    >>> audit.verdict.finding
    'nothing'
    >>> audit.improvements(), len(audit.to_frame()), len(list(audit.plain_rows()))
    (0, 2, 2)
    >>> next(iter(audit.lines())), sorted(audit.to_dict())[0]
    ('Nothing was found.', 'account')
    >>> type(audit.rows()).__name__, type(audit.summary()).__name__
    ('generator', 'dict')
    """

    status: Status
    submissions: AuditedSubmissions
    ladders: tuple[LadderUse, ...]
    confidence: float
    on_holdout: HoldoutTest | None
    fresh: FreshTest | None

    @property
    def holdout(self) -> str:
        """The holdout's name."""
        return self.status.name

    @property
    def metric(self) -> str:
        """The metric's name."""
        return self.status.metric

    @property
    def opened(self) -> datetime:
        """Since when raw scores are known; later submissions can not be certified."""
        assert self.status.opened is not None
        return self.status.opened

    @property
    def history(self) -> History:
        """The submissions without anything raw."""
        return self.submissions.history

    @property
    def distinct(self) -> AuditedSubmissions:
        """The submissions without the repeats."""
        return self.submissions[~self.submissions.is_repeat]

    @property
    def releases(self) -> AuditedSubmissions:
        """The submissions that became the incumbent."""
        return self.submissions[self.submissions.is_release]

    @property
    def released(self) -> float | None:
        """The released score, that of the incumbent; None before the first release."""
        return self.status.score

    @property
    def picked(self) -> AuditedSubmission | None:
        """The submission that a search on raw scores would have picked: the first of the best."""
        return best_raw(self.submissions)

    @property
    def believed(self) -> float | None:
        """The score that such a search would have believed."""
        return None if self.picked is None else self.picked.raw

    @property
    def optimism(self) -> float | None:
        """The best raw score minus the released score."""
        if self.believed is None or self.released is None:
            return None
        return plain(self.believed - self.released)

    @property
    def repeats(self) -> AuditedSubmissions:
        """The submissions of predictions that had been submitted before."""
        return self.submissions[self.submissions.is_repeat]

    @property
    def near_duplicates(self) -> AuditedSubmissions:
        """New predictions that hardly differ from those of the incumbent before them.

        Labels: in at most one row of a hundred; probabilities: by 0.01 on average; scores
        and values: by one hundredth of the median difference among the submissions.
        """
        return self.submissions[self.submissions["near_duplicate"]]

    @property
    def after_opening(self) -> int:
        """How many submissions came after raw scores had been shown."""
        return int(self.submissions["after_opening"].sum())

    @property
    def batches(self) -> tuple[AuditedBatch, ...]:
        """The batches, in the order of their first submissions."""
        codes, numbers = self.submissions["batch"], self.submissions["number"]
        inside, releases = codes != NONE, self.submissions.is_release
        codes, numbers, releases = codes[inside], numbers[inside], releases[inside]
        batches, firsts, counts = np.unique(codes, return_index=True, return_counts=True)
        lasts = len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1]
        better = np.bincount(codes, releases, minlength=batches.max(initial=-1) + 1)[batches]
        columns = (batches, numbers[firsts], numbers[lasts], counts, better)
        rows = zip(*(column.astype(int).tolist() for column in (*columns, firsts)), strict=True)
        return tuple(
            AuditedBatch(self.submissions.batches[code], *counted)
            for code, *counted, _ in sorted(rows, key=itemgetter(-1))
        )

    @property
    def compared_releases(self) -> AuditedSubmissions:
        """The releases after the first: each was an improvement on an incumbent."""
        compared = ~np.isnan(self.submissions["gain"])
        return self.submissions[self.submissions.is_release & compared]

    def improvements(self, *, corrected: bool = True) -> int | None:
        """Count the releases whose paired test finds an improvement; the rest may be noise.

        Parameters
        ----------
        corrected : bool, default=True
            Correct for all submissions that were compared with an incumbent.

        Returns
        -------
        int or None
            None where not all releases can be tested from the ledger.
        """
        p_values = self.compared_releases["corrected" if corrected else "p_value"]
        return None if np.isnan(p_values).any() else int((p_values < 1 - self.confidence).sum())

    @property
    def verdict(self) -> Verdict:
        """Whether anything was found, and whether the released score holds, in words."""
        return _verdict_on(self)

    def rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield the submissions as flat rows, for tables of any kind."""
        return self.submissions.rows()

    def to_frame(self) -> pd.DataFrame:
        """Return the submissions as a pandas DataFrame, indexed by their number."""
        with needed("A table of the audit"):
            import pandas as pd

        columns = list(next(self.rows(), {"number": 0}))
        return pd.DataFrame(list(self.rows()), columns=columns).set_index("number")

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain dictionaries and lists that JSON can hold."""
        return self.summary() | {"submissions": list(self.plain_rows())}

    def plain_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of `rows` as JSON can hold them."""
        return (plain_value(row) for row in self.rows())

    def summary(self) -> dict[str, Any]:
        """Return what `to_dict` does, without the submissions."""
        verdict = self.verdict
        parts = {
            "holdout": self.holdout,
            "fingerprint": self.status.fingerprint,
            "account": self.status.account,
            "ladder": self.status.ladder,
            "metric": self.metric,
            "mechanism": self.status.mechanism,
            "opened": self.opened,
            "confidence": self.confidence,
            "verdict": asdict(verdict) | {"text": str(verdict)},
            "released": self.released,
            "incumbent": self.status.incumbent,
            "believed": self.believed,
            "picked": None if self.picked is None else self.picked.number,
            "optimism": self.optimism,
            "repeats": len(self.repeats),
            "near_duplicates": self.near_duplicates["number"].tolist(),
            "after_opening": self.after_opening,
            "improvements": self.improvements(corrected=False),
            "improvements_corrected": self.improvements(),
            "on_holdout": None if self.on_holdout is None else asdict(self.on_holdout),
            "fresh": None if self.fresh is None else asdict(self.fresh),
            "ladders": [asdict(use) for use in self.ladders],
            "batches": [asdict(batch) for batch in self.batches],
        }
        return {name: plain_value(value) for name, value in parts.items()}

    def lines(self) -> Iterator[str]:
        """Yield the text of all of it, a line at a time."""
        verdict = self.verdict
        facts = [f"{what:<22}{value}" for what, value in facts_of(self)]
        words = [verdict.headline, *verdict.sentences, "", *facts, ""]
        return map(printable, chain(words, _table(self.submissions)))

    def __str__(self) -> str:
        return "\n".join(self.lines())


_PLAIN = frozenset((str, int, bool, type(None)))


def plain_value(value: Any) -> Any:
    """Bring moments to texts, and what is no finite number to None, at any depth."""
    if isinstance(value, float):  # most of what there is
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            str(name): entry if type(entry) in _PLAIN else plain_value(entry)
            for name, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    return value.isoformat() if isinstance(value, datetime) else value


def facts_of(audit: Audit) -> list[tuple[str, str]]:
    """Return what was counted and measured as (what, value) pairs, for printing."""
    status, batches = audit.status, audit.batches
    in_batches = sum(batch.submissions for batch in batches)
    facts = [
        ("holdout", f"{status.name} ({status.n} rows)"),
        *status.reserve_lines(),
        ("ladder", f"{status.ladder} of account {status.account}"),
        ("metric", status.metric),
        ("mechanism", status.mechanism),
        ("opened", f"{audit.opened:%Y-%m-%d %H:%M} UTC, {audit.after_opening} submissions since"),
        *_scores(audit),
        *_fresh(audit),
        ("submissions", str(len(audit.submissions))),
        ("repeats", str(len(audit.repeats))),
        ("near-duplicates", str(len(audit.near_duplicates))),
        ("batches", f"{len(batches)} with {in_batches} submissions" if batches else "none"),
        ("releases", _releases(audit)),
    ]
    if (audit.submissions["clipped"] != NONE).any():
        facts.append(("clipped losses", _clipped(audit)))
    uses = (f"{use.account}/{use.ladder}: {use.submissions}" for use in audit.ladders)
    return [*facts, ("submissions by ladder", ", ".join(uses))]


def mark_of(submission: AuditedSubmission) -> str:
    """Return in a few words what became of a submission."""
    if submission.is_repeat:
        return f"repeat of {submission.repeat_of}"
    return "improved" if submission.is_release else ""


def _scores(audit: Audit) -> list[tuple[str, str]]:
    if audit.released is None or audit.picked is None:
        return [("released score", "none yet")]
    facts = [
        ("released score", f"{audit.released:.6g} (submission {audit.status.incumbent})"),
        ("certificate", audit.status.certificate.line()),
        *([("estimate", audit.status.estimate.line())] if audit.status.estimate else []),
        ("best raw score", f"{audit.believed:.6g} (submission {audit.picked.number})"),
        ("raw minus released", f"{audit.optimism:.6g}"),
    ]
    if audit.on_holdout is not None:
        test = audit.on_holdout
        facts += [
            ("constant prediction", f"{test.constant:.6g}"),
            ("raw minus constant", f"{test.gain}, {test.gain.method}"),
        ]
    return facts


def _fresh(audit: Audit) -> list[tuple[str, str]]:
    test = audit.fresh
    if test is None:
        return []
    facts = [
        ("fresh score", f"{test.released} on {test.n} rows, {test.released.method}"),
        ("released minus fresh", f"{test.gap}, {test.gap.method}"),
    ]
    if test.gain is not None:
        facts.append(("fresh minus constant", f"{test.gain}, {test.gain.method}"))
    if test.over_picked is not None:
        facts.append(("fresh minus raw pick", f"{test.over_picked}, {test.over_picked.method}"))
    if test.leaderboard_error is not None:
        raw = f"{test.raw_leaderboard_error:.4g} of the best raw score"
        facts.append(("leaderboard error", f"{test.leaderboard_error:.4g} as released, {raw}"))
    return facts


def _releases(audit: Audit) -> str:
    corrected, alone = audit.improvements(), audit.improvements(corrected=False)
    text = str(audit.status.releases)
    if audit.compared_releases and corrected is not None:
        text += f"; of the {len(audit.compared_releases)} after the first {alone} pass a paired"
        text += f" test, {corrected} a corrected one"
    return text


def _clipped(audit: Audit) -> str:
    """Return in how many submissions losses left the stated range, and how many at most."""
    counts = audit.distinct["clipped"]
    counts = counts[counts != NONE]
    some = int((counts > 0).sum())
    if not some:
        return f"none in {len(counts)} submissions"
    text = f"in {some} of {len(counts)} submissions, up to {counts.max()} of "
    text += f"{audit.status.n_ladder} rows"
    incumbent = audit.submissions["clipped"][audit.submissions["number"] == audit.status.incumbent]
    if len(incumbent) and incumbent[0] != NONE:
        text += f"; in the incumbent {incumbent[0]}"
    return text


def _table(submissions: AuditedSubmissions) -> Iterator[str]:
    counted = bool((submissions["clipped"] != NONE).any())
    head = f"{'number':>6}  {'raw':>10}  {'released':>10}  {'fresh':>10}  {'p':>8}"
    head += f"  {'clipped':>7}" if counted else ""
    yield head
    for audited in submissions:
        numbers = (audited.fresh, 10), (audited.p_value, 8)
        line = f"{audited.number:>6}  {audited.raw:>10.6g}  {audited.submission.score:>10.6g}"
        line += "".join(f"  {'':>{w}}" if x is None else f"  {x:>{w}.4g}" for x, w in numbers)
        if counted:
            line += f"  {'' if audited.clipped is None else audited.clipped:>7}"
        yield f"{line}  {mark_of(audited)}".rstrip()
