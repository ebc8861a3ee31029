"""The certificate of a ladder: what the ledger holds is counted and brought to the bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.certificates import (
    NO_RANGES,
    Grid,
    LadderTranscript,
    Transcript,
    assumptions_of,
    bound_of,
    certify,
    grid_of,
    ladder_transcript,
    later_price,
)
from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.guard.stored_rows import Amended, amended_before
from ladderholdout.guard.submission import LedgerLadder
from ladderholdout.guard.views import AN_OLDER_COPY, INDEPENDENT, ScoreCertificate, score_of
from ladderholdout.ledger import (
    Chosen,
    ImprovementRecord,
    IntervalRecord,
    LadderQueries,
    LadderRecord,
    LadderSettings,
    Sharing,
    Transaction,
)
from ladderholdout.ledger.chain import RESTORED
from ladderholdout.ledger.replay import rules_of, stored_metric
from ladderholdout.mechanisms import MECHANISMS, Evidence, Mechanism, RankLadder
from ladderholdout.mechanisms.arithmetic import inside
from ladderholdout.mechanisms.base import counting_of
from ladderholdout.mechanisms.rules import LARGEST_EXPONENT, LEAST_EXPONENT
from ladderholdout.metrics import Metric
from ladderholdout.metrics.scales import Scale


@dataclass(frozen=True, slots=True)
class Level:
    """A confidence, and in nats what it costs that it was not the registered one."""

    confidence: float
    price: float = 0.0


def registered(tx: Transaction, ladder: LadderRecord) -> Level:
    """Return the level that the holdout of a ladder was registered with."""
    return Level(tx.holdout(ladder.holdout_id).confidence)


def level_of(ladder: LedgerLadder, confidence: float | None) -> Level:
    """Return the level of a confidence; one that is new is on record before anything is shown.

    Parameters
    ----------
    ladder : LedgerLadder
    confidence : float or None
        None for the registered one.

    Returns
    -------
    Level

    Raises
    ------
    InvalidArgument
        The confidence is refused.
    LedgerError
        The ledger cannot be written.
    """
    stated = None if confidence is None else inside("confidence", confidence)
    fixed, known = ladder.read(_confidences)
    if stated is None or stated == fixed.confidence:
        return fixed
    if stated not in known:
        known = ladder.write(partial(_note, stated=stated))
    return Level(stated, later_price(known.index(stated) + 1, stated))


def _confidences(tx: Transaction, ladder: LadderRecord) -> tuple[Level, tuple[float, ...]]:
    return registered(tx, ladder), tx.confidences(ladder.holdout_id)


def _note(tx: Transaction, ladder: LadderRecord, stated: float) -> tuple[float, ...]:
    return tx.note_confidence(ladder.holdout_id, stated)


Bars: TypeAlias = Mapping[int, Mapping[int, float]]
"""By ladder and by number of the submission; empty where a ladder is no `RankLadder`."""


def bars_on(tx: Transaction, holdout_id: int) -> Bars:
    """Return what each release had to be below, of the ladders with ranks.

    Of those on a holdout, and on the holdouts that share rows with it.
    """
    others = (one.holdout_id for one in tx.sharing(holdout_id))
    every = (ladder for one in (holdout_id, *others) for ladder in tx.ladders(one))
    return {ladder.id: bars_of(tx, ladder) for ladder in every}


def bars_of(tx: Transaction, ladder: LadderRecord) -> dict[int, float]:
    """Return which risk each release of a `RankLadder` had to be below.

    It is made of earlier releases alone.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord

    Returns
    -------
    dict of int to float
        By the number of the submission; empty for a ladder of another kind. Where a place
        was empty, any risk could have been released, and it is left out.
    """
    if ladder.settings.mechanism not in MECHANISMS:
        return {}
    rules = rules_of(ladder.settings)
    rule, unit = rules.mechanism, rules.unit
    if not isinstance(rule, RankLadder) or unit is None:
        return {}
    found = {}
    state, unused = rule.start(1), np.random.default_rng(0)
    for entry in tx.entries(ladder.id):
        if entry.improved and entry.repeat_of is None and entry.risk is not None:
            account = entry.context["account"]
            bar = rule.to_beat(state, account)
            if bar is not None:
                found[entry.number] = bar * rule.step * unit
            # A release is on the grid already: it takes the place that it took.
            state, _ = rule.decide(state, Evidence(entry.risk / unit, account=account), unused)
    return found


# Of a risk that has no largest value: a release is a number of 64 bits.
_NUMBERS = 2**64


@dataclass(frozen=True, slots=True)
class CountedLadder:
    """A ladder as its releases are counted; without its rule where this process knows none.

    `least` is the smallest risk of its metric if there is one, `asked` has the submissions whose
    value was asked for, of a ladder that releases none, by the time that counts; `bars` has the
    risks that releases of a `RankLadder` had to be below; `scale` is the grid of its releases where
    that is the metric's own; `of` names its holdout where that is another.
    """

    settings: LadderSettings
    rule: Mechanism | None
    n: int
    least: float | None
    grid: Grid | None
    asked: Set[tuple[int, int]]
    bars: Mapping[int, float]
    scale: Scale | None = None
    of: str = ""

    def transcript(self, queries: LadderQueries, chosen: int | None = None) -> LadderTranscript:
        """Return what the ladder released in these queries, which has to be countable.

        The value of a submission is left out that was chosen without a batch, given its position.
        """
        assert self.grid is not None
        grid, start = self.grid, queries.start
        if queries.releases:
            left = None if grid.budget is None else max(0, grid.budget - queries.releases)
            grid = replace(grid, first_improves=False, budget=left)
        improved = tuple(query.number - start for query in queries.improved)
        values, choices = self._values(queries), self._choices(queries) if self.bars else None
        assert self.rule is not None
        own = bool(queries.improved) and queries.improved[-1].position == chosen
        if own and self.rule.shows_values:
            values, choices = values[:-1], choices and choices[:-1]
        repeats = tuple(number - start for number in self._repeats(queries))
        found = ladder_transcript(queries.count, improved, values, grid, choices, repeats)
        return replace(found, releases=queries.releases)

    def _repeats(self, queries: LadderQueries) -> list[int]:
        """Return the repeats whose answer is not that of a submission that does not improve."""
        assert self.rule is not None
        if self.rule.needs_account or queries.releases:
            # What such a submission is answered depends on whose it is, or on what was before a
            # withdrawal: all are counted.
            return [one.number for one in queries.repeats]
        released = iter([*queries.improved, None])
        latest, coming = None, next(released)
        found: list[int] = []
        for one in queries.repeats:
            while coming is not None and coming.number < one.number:
                latest, coming = coming, next(released)
            if one.improved or (latest is not None and one.risk != latest.risk):
                found.append(one.number)
        return found

    def _values(self, queries: LadderQueries) -> tuple[int, ...]:
        """Return the numbers of the values that were released; where any will do, zeros."""
        assert self.grid is not None and self.rule is not None
        if self.grid.discloses and self.rule.shows_values:
            return (0,) * queries.count
        number = self.grid.falling or self.bars
        shown = (query for query in queries.improved if self._is_shown(query))
        return tuple(self._number(query.risk) if number else 0 for query in shown)

    def _choices(self, queries: LadderQueries) -> tuple[int, ...]:
        """Return how many values each release of a `RankLadder` could have been."""
        assert self.grid is not None
        bars = (self.bars.get(query.number) for query in queries.improved)
        return tuple(self.grid.n_values if bar is None else self._number(bar) for bar in bars)

    def _is_shown(self, query: ImprovementRecord) -> bool:
        assert self.rule is not None
        return self.rule.shows_values or (query.ladder_id, query.number) in self.asked

    @property
    def discloses(self) -> bool:
        """Whether each submission's own value is released."""
        return self.grid is not None and self.grid.discloses

    def uncounted(self) -> str:
        """Return why its releases cannot be counted."""
        where = f"(ladder {self.settings.account}/{self.settings.name}{self.of})"
        who = f"{self.settings.mechanism} {where}"
        if self.rule is None:
            return f"{who} is a rule that this process does not know; import its class first"
        if self.rule.redraws:
            return f"{who} releases a number drawn anew to each submission, which cannot be counted"
        if counting_of(self.rule) is None:
            return f"{who} does not state how its releases are counted"
        return f"{who} releases numbers without rounding, of which there is no end"

    def _number(self, risk: float) -> int:
        """Return the number of a released risk on the ladder's grid."""
        assert self.rule is not None and self.grid is not None
        if self.scale is not None:
            # Where there is no smallest risk, that of 0 is in the middle.
            middle = -(self.grid.n_values // 2)
            first = middle if self.least is None else self.scale.number(self.least, self.n)
            return self.scale.number(risk, self.n) - first
        unit = self.settings.unit or 1.0
        return round((risk - (self.least or 0.0)) / unit / self.rule.resolution(self.n))

    def rounding(self, released: float) -> float:
        """Return the distance between two values beside a released one, of a loss in [0, 1]."""
        assert self.rule is not None
        if self.scale is None:
            return self.rule.resolution(self.n)
        return self.scale.width(released, self.n) / (self.settings.unit or 1.0)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment in the one order of submissions, for what happened to other holdouts.

    Attributes
    ----------
    before : int
        The id of a submission: what happened before it counts.
    lengths : mapping of int to int
        How long the chains of holdouts were at that moment, where it is known: it decides what
        came first of two things that happened after the same submission.
    """

    before: int
    lengths: Mapping[int, int] = field(default_factory=dict)

    def follows(self, holdout_id: int, position: int, after: int) -> bool:
        """Return whether it follows this place in the chain of a holdout."""
        length = self.lengths.get(holdout_id)
        return after < self.before if length is None else position <= length


@dataclass(frozen=True, slots=True)
class Others:
    """What the holdouts that share rows with one had revealed at some moment.

    Attributes
    ----------
    holdouts : tuple of Sharing
    asked : set of (ladder id, number)
        The values that were shown on demand.
    log_values : float
        Sum of the logarithms of the numbers of values that queries of their reserves could show.
    missing : str or None
        What cannot be counted, if anything.
    """

    holdouts: tuple[Sharing, ...] = ()
    asked: Set[tuple[int, int]] = frozenset()
    log_values: float = 0.0
    missing: str | None = None


def others_of(tx: Transaction, holdout_id: int, moment: Moment) -> Others:
    """Read what the holdouts that share rows with one had revealed, but for their releases."""
    sharing = tx.sharing(holdout_id)
    asked: set[tuple[int, int]] = set()
    log_values, missing = 0.0, None
    for one in sharing:
        follows = partial(moment.follows, one.holdout_id)
        for event in tx.events(one.holdout_id, "opened", RESTORED):
            if follows(event.position, event.after):
                missing = missing or _not_counted(one, event.kind)
        asked |= {
            query
            for query, event in tx.asked(one.holdout_id).items()
            if follows(event.position, event.after)
        }
        log_values += sum(
            values
            for position, after, values in tx.shown_values(one.holdout_id)
            if follows(position, after)
        )
        log_values += sum(
            found.log_values
            for found in tx.batches.shown(one.holdout_id)
            if follows(found.position, found.after)
        )
    return Others(sharing, asked, log_values, missing)


def _not_counted(one: Sharing, kind: str) -> str:
    if kind == "opened":
        return f"an audit had shown raw scores of {_named(one)}"
    return (
        f"an older copy of the ledger was put in place, and not all is on record of {_named(one)}"
    )


def _named(one: Sharing) -> str:
    return f"the holdout {one.name!r}, which has {one.rows} of these rows,"


def counted_ladders(
    tx: Transaction,
    holdout_id: int,
    used: Iterable[int],
    until: int,
    asked: Set[tuple[int, int]],
    others: Others,
    bars: Bars,
    *,
    weighted: bool,
) -> dict[int, CountedLadder]:
    """Return some ladders of a holdout, and of those that share rows with it.

    Parameters
    ----------
    tx : Transaction
    holdout_id : int
    used : iterable of int
        The ids of the ladders.
    until : int
        The id of the last submission that counts.
    asked : set of (ladder id, number)
        The values of the holdout's own ladders that were shown on demand.
    others : Others
    bars : mapping
        As `bars_on` reads it.
    weighted : bool
        Whether the holdout's own rows have weights.

    Returns
    -------
    dict of int to CountedLadder
    """
    used, found = set(used), dict[int, CountedLadder]()
    shown = asked | others.asked
    for ladder in tx.ladders(holdout_id):
        if ladder.id in used:
            n = tx.holdout(holdout_id).n_ladder
            found[ladder.id] = _counted_ladder(ladder.settings, n, shown, weighted, bars[ladder.id])
    for one in others.holdouts:
        for ladder in tx.ladders(one.holdout_id):
            if ladder.id in used:
                n = tx.holdout(one.holdout_id).n_ladder
                # Whether its rows have weights is not in the ledger: what was released shows it.
                odd = not tx.is_on_grid(ladder.id, until, n)
                found_one = _counted_ladder(ladder.settings, n, shown, odd, bars[ladder.id])
                found[ladder.id] = replace(found_one, of=f" of {_named(one)}")
    return found


def price_of_others(tx: Transaction, holdout_id: int, moment: Moment) -> tuple[float, str | None]:
    """Return what holdouts that share rows with one revealed by a moment, in nats.

    For its reserve, whose rows may be among those that their ladders measure.

    Parameters
    ----------
    tx : Transaction
    holdout_id : int
    moment : Moment

    Returns
    -------
    tuple of (float, str or None)
        The price, and what cannot be counted, if anything.
    """
    others, until = others_of(tx, holdout_id, moment), moment.before - 1
    if not others.holdouts:
        return 0.0, None
    answered = tx.answered([one.holdout_id for one in others.holdouts], until)
    used = (one.ladder_id for one in answered)
    bars = bars_on(tx, holdout_id)
    counted = counted_ladders(
        tx, holdout_id, used, until, frozenset(), others, bars, weighted=False
    )
    uncounted = (one.uncounted() for one in counted.values() if one.grid is None)
    missing = others.missing or next(uncounted, None)
    if missing is not None:
        return 0.0, missing
    lengths = (counted[one.ladder_id].transcript(one).length() for one in answered)
    return sum(lengths) + others.log_values, None


def _counted_ladder(
    settings: LadderSettings,
    n: int,
    asked: Set[tuple[int, int]],
    weighted: bool,
    bars: Mapping[int, float],
) -> CountedLadder:
    if settings.mechanism not in MECHANISMS:
        return CountedLadder(settings, None, n, None, None, asked, bars)
    metric, rules = stored_metric(settings), rules_of(settings)
    rule, limits = rules.mechanism, metric.risk_range
    # Without weights a mean of losses of 0 and 1 is a count of errors.
    counts = metric.counts and not weighted
    grid = grid_of(rule, n, binary=counts, budget=settings.budget)
    if limits is None:
        grid = _unbounded(settings, rule, n)
    scale = None if counts or grid is None else rules.grid(n)
    if scale is not None:
        assert grid is not None
        # Of each submission's own risk the nearest number of either grid is shown.
        values = scale.values(n, limits) + (grid.n_values if grid.discloses else 0)
        grid = replace(grid, n_values=values, falling=counting_of(rule) == "falling")
    least = None if limits is None else limits[0]
    scale = None if rule.discloses else scale
    return CountedLadder(settings, rule, n, least, grid, asked, bars, scale)


def _unbounded(settings: LadderSettings, rule: Mechanism, n: int) -> Grid | None:
    """Return the grid of a ladder whose risks have no largest value."""
    step = rule.resolution(n)
    if step == 0.0 or counting_of(rule) is None:
        return None
    values = _NUMBERS
    if settings.unit is None:
        # The unit is a power of ten that follows the risk. Risks of either sign, and up to ten
        # units, since it is the smaller one that sets them.
        units = LARGEST_EXPONENT - LEAST_EXPONENT + 1
        values = 2 * units * (math.floor(10.0 / step) + 1)
    return Grid(values, falling=False, discloses=rule.discloses, budget=settings.budget)


def no_certificate(confidence: float) -> ScoreCertificate:
    """Return that of a handle that cannot compute one."""
    reason = (
        "the holdout's rows, whose weights count, or the function of a metric of your own, "
        "are missing; open it with them, LadderHoldout(X, y, scoring=...)"
    )
    return ScoreCertificate(None, None, None, confidence, None, missing=reason)


def certificate_or_why(
    ladder: LedgerLadder,
) -> Callable[[Transaction, LadderRecord], ScoreCertificate]:
    """Return what certifies for the status, which is shown whatever the vault holds."""
    try:
        weights = ladder.guard().part.weights
    except (VaultError, InvalidArgument):
        return lambda tx, one: no_certificate(registered(tx, one).confidence)
    metric = ladder.metric
    return lambda tx, one: certificate_of(tx, one, metric, weights)


def certificate_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    weights: NDArray[np.float64] | None,
    level: Level | None = None,
    bars: Bars | None = None,
) -> ScoreCertificate:
    """Certify the released score of a ladder.

    Parameters
    ----------
    tx : Transaction
    ladder : LadderRecord
    metric : Metric
    weights : ndarray, shape (n,), or None
        Of the holdout's rows.
    level : Level, optional
        A confidence, and what it costs; by default the registered one.
    bars : mapping, optional
        What `bars_on` read already, where several ladders of a holdout are certified.

    Returns
    -------
    ScoreCertificate
        Where there is none, it contains the reason.
    """
    found = selection_of(tx, ladder, metric, weights, level, bars)
    return found if isinstance(found, ScoreCertificate) else found.certificate(found.recorded(tx))


@dataclass(frozen=True, slots=True)
class Selection:
    """How an incumbent was selected, and what its certificate is made of beside its predictions.

    Attributes
    ----------
    ladder : LadderRecord
    metric : Metric
    weights : ndarray, shape (n,), or None
        Of the rows that the ladder measures.
    level : Level
    score : float
        The released score.
    transcript : Transcript
    counted : mapping of int to CountedLadder
    amended : Amended
    way : str
        Return the part of a reason about the reserve, if there is one.
    chosen : Chosen
    doubts : tuple of str
        What `doubts_about` the rows' independence is on record.
    """

    ladder: LadderRecord
    metric: Metric
    weights: NDArray[np.float64] | None
    level: Level
    score: float
    transcript: Transcript
    counted: Mapping[int, CountedLadder]
    amended: Amended
    way: str
    chosen: Chosen
    doubts: tuple[str, ...]

    def refused(self, reason: str) -> ScoreCertificate:
        """Return that there is no certificate."""
        return ScoreCertificate(
            self.score, None, None, self.level.confidence, self.ladder.incumbent, missing=reason
        )

    def recorded(self, tx: Transaction) -> IntervalRecord | None:
        """Return the certificate of this incumbent at this confidence that was shown, if any."""
        here = self.ladder.id, self.ladder.incumbent, self.level.confidence
        for one in tx.batches.intervals(self.ladder.holdout_id):
            if (one.ladder_id, one.submission, one.confidence) == here:
                return one
        return None

    def certificate(self, recorded: IntervalRecord | None) -> ScoreCertificate:
        """Return the certificate on record, else that by the score alone, or why there is none."""
        if recorded is not None:
            return self.shown(recorded)
        reason = self.not_by_score()
        return self.by_score() if reason is None else self.refused(reason)

    def shown(self, one: IntervalRecord) -> ScoreCertificate:
        """Return a certificate as it was shown before."""
        return ScoreCertificate(
            score=self.score,
            low=one.low,
            high=one.high,
            confidence=one.confidence,
            submission=one.submission,
            bound=one.bound,
            log_count=one.log_count,
            assumptions=assumptions_of(self.metric, batch=one.place > 1, clipped=one.clipped),
            price=self.level.price,
            doubts=self.doubts,
            clipping=self.metric.clipping if one.clipped else "",
            clipped_share=one.clipped,
        )

    @property
    def by_rows(self) -> bool:
        """Whether the certificate is worked out from the rows, and not the score alone."""
        exact = self.metric.counts
        return not exact and self._why_not_by_rows() is None

    def not_by_score(self) -> str | None:
        """Return why the released score alone certifies nothing; None where it does."""
        if self.metric.is_mean and self.metric.bounded:
            return None
        return self._why_not_by_rows() or (
            "it depends on more than the released score: certificate() works it out, puts it on "
            "record and shows it, and certificates of later incumbents pay for that"
        )

    def _why_not_by_rows(self) -> str | None:
        metric, bound = self.metric, bound_of(self.metric)
        if isinstance(bound, str):
            if "custom" in self.ladder.settings.metric_settings:
                bound += ", or its function was not stated again (scoring=)"
            return bound + self.way
        if bound.needs_ranges and metric.target_range is None:
            return NO_RANGES + self.way
        if self.weights is not None:
            return f"no bound of {metric.name} is known for rows with weights{self.way}"
        if self.amended.count:
            return (
                "labels were amended before the incumbent was submitted, which the bound of "
                f"{metric.name} cannot allow for{self.way}"
            )
        return None

    def by_score(self) -> ScoreCertificate:
        """Certify a bounded mean by the released score alone."""
        own, released = self.counted[self.ladder.id], self.ladder.state["standing"]
        assert own.rule is not None and own.least is not None
        metric, level, unit = self.metric, self.level, self.ladder.settings.unit or 1.0
        risks = self.amended.around((released - own.least) / unit)
        by_risk = {
            risk: certify(
                risk,
                own.n,
                self.transcript,
                confidence=level.confidence,
                rounding=own.rounding(released),
                noise=own.rule.allowance if own.rule.noisy else None,
                binary=metric.counts,
                weights=self.weights,
                price=level.price,
            )
            for risk in set(risks)
        }
        least, found, most = (by_risk[risk] for risk in risks)
        return ScoreCertificate(
            score=metric.to_score(released),
            low=metric.to_score(own.least + unit * most.high),
            high=metric.to_score(own.least + unit * least.low),
            confidence=found.confidence,
            submission=self.ladder.incumbent,
            bound=found.bound,
            log_count=found.log_count,
            assumptions=(*found.assumptions, *self.amended.assumptions()),
            price=level.price,
            doubts=self.doubts,
            # How many errors are beyond the range is not known before it was paid for.
            clipping=metric.clipping,
        )


def selection_of(
    tx: Transaction,
    ladder: LadderRecord,
    metric: Metric,
    weights: NDArray[np.float64] | None,
    level: Level | None = None,
    bars: Bars | None = None,
) -> Selection | ScoreCertificate:
    """Read how the incumbent was selected; the arguments as for `certificate_of`.

    Returns
    -------
    Selection or ScoreCertificate
        The latter states why there is no certificate whatever the predictions are.
    """
    level = registered(tx, ladder) if level is None else level
    chosen, confidence = tx.chosen(ladder), level.confidence
    if chosen is None:
        return ScoreCertificate(
            None, None, None, confidence, None, missing="the ladder has no incumbent yet"
        )
    score = score_of(tx.released(ladder), metric)
    by_then = {
        query for query, at in tx.asked(ladder.holdout_id).items() if at.position < chosen.position
    }
    bars = bars_on(tx, ladder.holdout_id) if bars is None else bars
    others = others_of(tx, ladder.holdout_id, Moment(chosen.id))
    used = (one.ladder_id for one in chosen.ladders)
    weighted = weights is not None
    counted = counted_ladders(
        tx, ladder.holdout_id, used, chosen.until, by_then, others, bars, weighted=weighted
    )
    kept = tx.holdout(ladder.holdout_id).n_reserve > 0
    way = "; certify() queries the reserve" if kept else ""
    missing = _missing(tx, ladder, chosen, others, counted, way)
    if score is None and missing is None:
        missing = "it would show the released score; reveal does, when the search is over"
    if missing is not None:
        return ScoreCertificate(score, None, None, confidence, ladder.incumbent, missing=missing)
    assert score is not None
    # Positions are those of one holdout's chain, and a ladder of another may have the same.
    own = {ladder.id: chosen.position} if chosen.batch is None else {}
    event = 1 + chosen.runs
    event += sum(
        one.submissions if counted[one.ladder_id].discloses else one.alone for one in chosen.events
    )
    transcript = Transcript(
        chosen.before,
        chosen.place,
        tuple(
            counted[one.ladder_id].transcript(one, own.get(one.ladder_id))
            for one in chosen.ladders
            if one.count
        ),
        others.log_values + _shown_before(tx, ladder.holdout_id, chosen),
        1 if chosen.batch is None else tx.batches.size(ladder.holdout_id, chosen),
        event,
    )
    amended = amended_before(tx, ladder.holdout_id, chosen.position, weights)
    doubts = doubts_about(tx, ladder.holdout_id)
    return Selection(
        ladder, metric, weights, level, score, transcript, counted, amended, way, chosen, doubts
    )


def doubts_about(tx: Transaction, holdout_id: int) -> tuple[str, ...]:
    """Return which assumptions of a certificate are in doubt by what is on record."""
    return (INDEPENDENT,) if tx.grouped(holdout_id) else ()


def _shown_before(tx: Transaction, holdout_id: int, chosen: Chosen) -> float:
    """Return what was shown on request when a submission was chosen, in nats."""
    return sum(
        one.log_values for one in tx.batches.shown(holdout_id) if one.position < chosen.position
    )


def _missing(
    tx: Transaction,
    ladder: LadderRecord,
    chosen: Chosen,
    others: Others,
    counted: Mapping[int, CountedLadder],
    way: str,
) -> str | None:
    """Return why what was released cannot be counted, if so, and what can be done about it."""
    opened = tx.events(ladder.holdout_id, "opened")
    if any(event.position < chosen.position for event in opened):
        reason = "an audit had shown raw scores of this holdout before the incumbent was submitted"
        return reason + way
    if any(found < chosen.position for found, _ in tx.restorings(ladder.holdout_id)):
        return AN_OLDER_COPY
    if others.missing is not None:
        # What was revealed of the others may be of the reserve's rows, too.
        return f"{others.missing} before the incumbent was submitted"
    uncounted = (one for one in counted.values() if one.grid is None)
    return next((one.uncounted() + ("" if one.of else way) for one in uncounted), None)
