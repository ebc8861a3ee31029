"""What an audit finds: frozen records, what follows from them by counting, and its verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ladderholdout.audit.statistics import Interval, plain
from ladderholdout.audit.submissions import NONE, AuditedSubmission, AuditedSubmissions, History
from ladderholdout.errors import printable
from ladderholdout.extras import needed
from ladderholdout.guard.views import Status

if TYPE_CHECKING:
    import pandas as pd


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


_FOUND: dict[Finding, str] = {
    "signal": "Something was found.",
    "nothing": "Nothing was found.",
    "undecided": "Whether anything was found is open.",
}


def _headline(audit: Audit, finding: Finding, holds: bool | None) -> str:
    if audit.released is None:
        return "Nothing was released."
    if holds is None or (holds and finding == "nothing"):
        return _FOUND[finding]
    return f"{_FOUND[finding]} The released score {'holds' if holds else 'is too good'}."


def _reasons(audit: Audit) -> Iterator[str]:
    """Yield the sentences behind a verdict."""
    yield from _about_the_finding(audit)
    fresh, pick, optimism = audit.fresh, audit.picked, audit.optimism
    if fresh is not None and audit.released is not None:
        yield (
            f"The released score is {audit.released:.4g}, the fresh one {fresh.released}: the "
            f"difference is {fresh.gap}, from two samples."
        )
        if fresh.refitted:
            numbers = ", ".join(map(str, fresh.refitted))
            yield (
                f"The model given for {numbers} does not predict on the holdout what was "
                "submitted: it was fitted again, or is another one."
            )
    if pick is not None and optimism is not None:
        same = pick.number == audit.status.incumbent
        sentence = "A search that saw raw scores would have picked "
        sentence += "the released one as well, " if same else ""
        sentence += f"submission {pick.number}{',' if same else ''} and believed {pick.raw:.4g}"
        sentence += f", {optimism:.4g} more than was released." if optimism > 0 else "."
        if fresh is not None and fresh.picked is not None and fresh.over_picked is not None:
            sentence += f" On the fresh rows its pick scores {fresh.picked}, and the released model"
            sentence += f" minus that {fresh.over_picked}, paired."
        yield sentence
    alone, corrected = audit.improvements(corrected=False), audit.improvements()
    if audit.compared_releases and (alone is None or corrected is None):
        yield "The ledger holds too little to test which releases were improvements."
    elif audit.compared_releases:
        compared = int((~np.isnan(audit.submissions["gain"])).sum())
        level = f"{100 * (1 - audit.confidence):.4g} %"
        yield (
            f"Releases after the first: {len(audit.compared_releases)}. A paired test at {level} "
            f"finds an improvement in {alone} of them, and in {corrected} when it is corrected for "
            f"all {compared} comparisons; the others may be noise."
        )
    if audit.after_opening:
        yield (
            f"{audit.after_opening} submissions came after raw scores had been shown: they can "
            "not be certified."
        )
    used = [use.submissions for use in audit.ladders if use.submissions]
    if len(used) > 1:
        yield f"This holdout got {sum(used)} submissions, through {len(used)} ladders."


def _about_the_finding(audit: Audit) -> Iterator[str]:
    fresh, test = audit.fresh, audit.on_holdout
    if fresh is not None and fresh.gain is None:
        none = "The metric has no value for a constant prediction, so nothing is compared "
        yield none + "with one."
    elif fresh is not None and fresh.gain is not None:
        beats = "beats" if fresh.gain.low > 0 else "is not shown to beat"
        yield (
            f"On {fresh.n} fresh rows the released model {beats} a constant prediction: the "
            f"difference is {fresh.gain}, paired."
        )
    elif test is not None:
        beats = "beats" if test.gain.low > 0 else "does not beat"
        yield (
            f"On the holdout the released model {beats} a constant prediction by more than chance "
            f"gives the best of {test.compared}: the difference is {test.gain}, paired. Fresh rows "
            "would show whether the released score holds."
        )
    elif audit.released is not None:
        yield (
            "The rows of the holdout, or the function of its metric, are missing: open it with "
            "them, or give fresh rows."
        )


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
        return self.submissions.best

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
        within = self.submissions[np.not_equal(self.submissions["batch"], NONE)]
        codes, firsts, places, counts = np.unique(
            within["batch"], return_index=True, return_inverse=True, return_counts=True
        )
        numbers, lasts = within["number"], np.zeros(len(codes), np.int64)
        np.maximum.at(lasts, places, numbers)
        releases = np.bincount(places, within.is_release, minlength=len(codes))
        columns = numbers[firsts], lasts, counts, releases
        return tuple(
            AuditedBatch(within.texts[codes[at]], *(int(column[at]) for column in columns))
            for at in np.argsort(firsts)
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
        test, holds = self.fresh or self.on_holdout, None
        finding: Finding = "undecided"
        if test is not None and test.gain is not None:
            finding = "signal" if test.gain.low > 0 else "nothing"
        if self.fresh is not None:
            holds = self.fresh.gap.low <= 0
        return Verdict(finding, holds, _headline(self, finding, holds), tuple(_reasons(self)))

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


def plain_value(value: Any) -> Any:
    """Bring moments to texts, and what is no finite number to None, at any depth."""
    if isinstance(value, float):  # most of what there is
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain_value(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(entry) for entry in value]
    return value.isoformat() if isinstance(value, datetime) else value


def facts_of(audit: Audit) -> Iterator[tuple[str, str]]:
    """Yield what was counted and measured as (what, value) pairs, for printing."""
    status, batches, said = audit.status, audit.batches, dict(audit.status.lines())
    yield "holdout", f"{status.name} ({status.n} rows)"
    of_ladder = "reserve", "ladder", "metric", "mechanism"
    yield from ((what, said[what]) for what in of_ladder if what in said)
    yield "opened", f"{audit.opened:%Y-%m-%d %H:%M} UTC, {audit.after_opening} submissions since"
    if audit.picked is None or audit.released is None:
        yield "released score", "none yet"
    else:
        of_score = "released score", "certificate", "estimate"
        yield from ((what, said[what]) for what in of_score if what in said)
        yield "best raw score", f"{audit.believed:.6g} (submission {audit.picked.number})"
        yield "raw minus released", f"{audit.optimism:.6g}"
        if audit.on_holdout is not None:
            yield "constant prediction", f"{audit.on_holdout.constant:.6g}"
            yield "raw minus constant", audit.on_holdout.gain.line()
    if audit.fresh is not None:
        yield from _fresh_facts(audit.fresh)
    yield "submissions", str(len(audit.submissions))
    yield "repeats", str(len(audit.repeats))
    yield "near-duplicates", str(len(audit.near_duplicates))
    in_batches = sum(batch.submissions for batch in batches)
    yield "batches", f"{len(batches)} with {in_batches} submissions" if batches else "none"
    yield "releases", _releases(audit)
    if (audit.submissions["clipped"] != NONE).any():
        yield "clipped losses", _clipped(audit)
    uses = (f"{use.account}/{use.ladder}: {use.submissions}" for use in audit.ladders)
    yield "submissions by ladder", ", ".join(uses)


def _fresh_facts(test: FreshTest) -> Iterator[tuple[str, str]]:
    yield "fresh score", test.released.line(f" on {test.n} rows")
    yield "released minus fresh", test.gap.line()
    if test.gain is not None:
        yield "fresh minus constant", test.gain.line()
    if test.over_picked is not None:
        yield "fresh minus raw pick", test.over_picked.line()
    if test.leaderboard_error is not None:
        raw = f"{test.raw_leaderboard_error:.4g} of the best raw score"
        yield "leaderboard error", f"{test.leaderboard_error:.4g} as released, {raw}"


def mark_of(repeat_of: int | None, improved: bool) -> str:
    """Return in a few words what became of a submission."""
    if repeat_of is not None:
        return f"repeat of {repeat_of}"
    return "improved" if improved else ""


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


# The columns of the table as text: the head, the column, its width and how its values are written.
_COLUMNS = (
    ("number", "number", 6, "d"),
    ("raw", "raw", 10, ".6g"),
    ("released", "released", 10, ".6g"),
    ("fresh", "fresh", 10, ".4g"),
    ("p", "p_value", 8, ".4g"),
    ("clipped", "clipped", 7, "d"),
)


def _table(submissions: AuditedSubmissions) -> Iterator[str]:
    counted = bool((submissions["clipped"] != NONE).any())
    heads, names, widths, forms = zip(*(_COLUMNS if counted else _COLUMNS[:-1]), strict=True)
    yield "  ".join(map(str.rjust, heads, widths))
    for row in submissions.rows_of((*names, "repeat_of", "improved")):
        values = zip(names, forms, strict=True)
        texts = ("" if row[name] is None else format(row[name], form) for name, form in values)
        line = "  ".join(map(str.rjust, texts, widths))
        yield f"{line}  {mark_of(row['repeat_of'], row['improved'])}".rstrip()
