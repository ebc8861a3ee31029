"""How wide certificates are: beside the published bounds, and after real climbs.

    python benchmarks/certificates.py [--searches 10]

First the table of the bounds, for 5,000 rows and 1,000 submissions. Then climbs on labels
that nobody can know: each row has one of five classes, all alike, and a prediction names the
class that it rules out, so that its true risk is .200 whatever it is. A climb changes some of
the rows and goes on from what improves; "anew" draws every candidate independently. Each line is
the mean over the searches of the upper 95% limit of the last incumbent:

- naive: an exact interval that forgets the search. It ought to be above .200.
- counted: what DESIGN.md counts, ln(t(t+1)) + ln((J+1)(J+2)) + ln C(s, J) + ln C(n+1, J).
- coded: the codes of `ladderholdout.certificates`, which charge early and small steps less.
- one bit: the same decisions, had the values not been released. The last one is asked for, and
  is paid for by the next certificate.

Then what it changes that a holdout's events are numbered, and not its submissions: by length is
the code of earlier versions, pi(s + 1) pi(j) Q with the number s of the submissions before, and by
event that of today. Climbs are of 300 steps which change a fiftieth of the rows.

Then what it changes that a released value is coded by how far it is below the bar of the rule, and
not by its fall alone: lists of models each of which is better than the last, eleven and fifty of
them, climbs of 300 on weights, and with --history the published models. L and widths of the last
incumbent are by the library's own ladders and bounds; "falls" has the code of earlier versions.
Then queries of a reserve, which are coded around what the ladder has released.

Then anchored certificates, `certify_anchored`: after climbs on coins, where each prediction has a
true risk of .5, and on the weights of linear models; and with a file of published models
(--history) after these, weakest first.

Beside them stand the figures of the prototype that this library was planned by. What its climb
changed is not known; with a hundred rows ours has its plain count. Then a climb of which
improvements alone are shown, whose score is requested at the end, or before every hundredth
submission as well: what was requested before the last incumbent is paid for. Then the same for
lists and climbs through `LadderHoldout`, by what `show` states (`--only shown` prints this part
alone). The last part is how long one interval takes to compute, and how it compares with mpmath.
"""

from __future__ import annotations

import argparse
import math
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import mpmath as mp
import numpy as np
from anchored import Incumbent, certify_anchored
from defaults import SIGNALS, World
from external.histories import load
from papers._bounds import compare
from scipy.special import expit

from ladderholdout import LadderHoldout
from ladderholdout.certificates.codes import (
    LadderTranscript,
    _falls_length,
    event_length,
    place_length,
)
from ladderholdout.certificates.metric_limits import Rows, score_limits
from ladderholdout.certificates.reserve_intervals import (
    ReserveGrid,
    reserve_interval,
    reserve_log_count,
)
from ladderholdout.certificates.transcript import Transcript, certify, grid_of
from ladderholdout.guard.certify import selection_of
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.mechanisms import (
    Mechanism,
    PairedTestLadder,
    ParameterFreeLadder,
    PricedLadder,
    SimplifiedLadder,
)
from ladderholdout.mechanisms.arithmetic import round_half_up
from ladderholdout.mechanisms.rules import SHOWN
from ladderholdout.metrics import Evaluation, get_metric

ROWS, QUERIES, CLASSES, CONFIDENCE = 5000, 1000, 5, 0.95
RULES = {
    "priced": PricedLadder(),
    "parameter-free": ParameterFreeLadder(),
    "paired test, .01": PairedTestLadder(alpha=0.01),
}
CHANGED = (2, 10, 50, 100, 500, None)
# How a line is named whose climb shows improvements alone.
BITS = "improvements, .05"
# Upper limits of the prototype: a plain count, fitted codes, one bit.
PROTOTYPE = {
    ("parameter-free", 100): (0.303, 0.290, 0.242),
    ("paired test, .01", 100): (0.269, 0.265, 0.242),
    ("parameter-free", None): (0.248, 0.244, 0.228),
}
# Of `PairedTestLadder`; the first is about the parameter-free rule.
LEVELS = (0.15, 0.05, 0.01, 0.001)
CLIMB = 100
STEPS = 300
# Improvements that thin out, and falls that shrink: 8 releases among 999 submissions.
THINNING = (1, 2, 5, 12, 30, 80, 200, 500)
WHOLE_PERCENTS = (50, 24, 16, 12, 10, 8, 6, 5)
# The same about, in steps of one over the root of n: 72 values.
ROOT = 1 / math.sqrt(ROWS)
ROOTS = (35, 17, 11, 8, 7, 6, 5, 4)
COUNTS = (2500, 1200, 800, 600, 500, 400, 300, 270)


@dataclass(frozen=True, slots=True)
class Climb:
    """What was released in one search: the submissions that improved, and their errors."""

    improved: tuple[int, ...]
    errors: tuple[int, ...]
    rows: int = ROWS

    def before_last(self, shown: tuple[int, ...]) -> Transcript:
        """Return what was known when the last incumbent was chosen, these values shown."""
        submissions = self.improved[-1] - 1
        ladder = LadderTranscript(submissions, self.improved[:-1], shown, self.rows + 1)
        return Transcript.alone(ladder if submissions else None)

    def asked(self, every: int) -> tuple[int, ...]:
        """Return the errors released by every so many submissions, before the last incumbent."""
        times = range(every, self.improved[-1] + 1, every)
        incumbents = sorted({bisect_left(self.improved, time) - 1 for time in times})
        return tuple(self.errors[i] for i in incumbents)

    def upper(self, shown: tuple[int, ...]) -> float:
        """Return the certificate's upper limit, had these values been released."""
        price = self.before_last(shown).log_count()
        return exact_upper(self.errors[-1], self.rows, math.log((1 - CONFIDENCE) / 2) - price)

    def prices(self, shows_scores: bool) -> tuple[float, float, float]:
        """Return the number of releases, and L by the length of the transcript and by event."""
        shown = self.errors[:-1] if shows_scores else ()
        transcript, before = self.before_last(shown), self.improved[-1] - 1
        ladder = LadderTranscript(before, self.improved[:-1], shown, self.rows + 1)
        length = place_length(before + 1) + place_length(1) + ladder.length()
        return len(self.improved), length, transcript.log_count()

    def counted(self) -> float:
        t, releases = self.improved[-1], len(self.improved) - 1
        named = math.log(t * (t + 1)) + math.log((releases + 1) * (releases + 2))
        chosen = math.comb(t - 1, releases) * math.comb(ROWS + 1, releases)
        return named + math.log(chosen)

    def limits(self) -> tuple[float, ...]:
        """Return released risk and upper limits: naive, counted, coded, one bit."""
        errors, log_level = self.errors[-1], math.log((1 - CONFIDENCE) / 2)
        plain = (exact_upper(errors, ROWS, log_level - price) for price in (0.0, self.counted()))
        return errors / ROWS, *plain, self.upper(self.errors[:-1]), self.upper(())


def climb(
    mechanism: Mechanism,
    changed: int | None,
    seed: int,
    rows: int = ROWS,
    queries: int = QUERIES,
) -> Climb:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, rows)
    best = rng.integers(0, CLASSES, rows)
    state = mechanism.start(rows)
    improved, errors = [], []
    for number in range(1, queries + 1):
        candidate = best if number == 1 else neighbour(best, changed, rng)
        state, outcome = mechanism.advance(state, Evaluation.from_losses(candidate == labels), rng)
        if outcome.improved:
            best = candidate
            improved.append(number)
            errors.append(round(outcome.risk * rows))
    return Climb(tuple(improved), tuple(errors), rows)


def neighbour(best: np.ndarray, changed: int | None, rng: np.random.Generator) -> np.ndarray:
    if changed is None:
        return rng.integers(0, CLASSES, len(best))
    rows = rng.choice(len(best), changed, replace=False)
    candidate = best.copy()
    candidate[rows] = (candidate[rows] + rng.integers(1, CLASSES, changed)) % CLASSES
    return candidate


def show_bounds() -> None:
    print(f"Upper half-widths, n = {ROWS}, k = {QUERIES}, J = 8, risk .05, confidence {CONFIDENCE}")
    print(f"{'':32}{'width':>8}{'ratio':>8}{'L':>8}  source")
    table = compare(ROWS, QUERIES, 8, 0.05, confidence=CONFIDENCE)
    rooted = compare(ROWS, QUERIES, 8, 0.05, step=ROOT, confidence=CONFIDENCE)[3]
    for row in (
        *table[:3],
        replace(rooted, name=f"{QUERIES} adaptive, step 1/sqrt n"),
        *table[3:],
    ):
        count = "" if row.log_count is None else f"{row.log_count:.1f}"
        width = f"{row.width:.3f}" if row.width < 1 else "vacuous"
        print(f"{row.name:32}{width:>8}{row.ratio:>8.1f}{count:>8}  {row.source}")
    for name, values, n_values, step in (
        ("thinning out, one bit", (), 1, 0.0),
        ("thinning out, step 1/sqrt n", ROOTS, 72, ROOT),
        ("thinning out, step 0.01", WHOLE_PERCENTS, 101, 0.01),
        ("thinning out, step 1/n", COUNTS, ROWS + 1, 0.0),
    ):
        ladder = LadderTranscript(QUERIES - 1, THINNING, values, n_values)
        transcript = Transcript.alone(ladder)
        certificate = certify(0.05, ROWS, transcript, confidence=CONFIDENCE, rounding=step)
        width, fresh = certificate.high - 0.05, table[0].width
        print(f"{name:32}{width:>8.3f}{width / fresh:>8.1f}{certificate.log_count:>8.1f}")


def show_climbs(searches: int) -> None:
    print(f"Upper {CONFIDENCE:.0%} limits of a true risk of .200, {searches} searches each")
    heads = ("releases", "released", "naive", "counted", "coded", "one bit")
    print(f"{'':18}{'changes':>8}" + "".join(f"{head:>10}" for head in heads))
    for name, mechanism in RULES.items():
        for changed in CHANGED:
            climbs = [climb(mechanism, changed, seed) for seed in range(searches)]
            releases = np.mean([len(one.improved) for one in climbs])
            means = np.mean([one.limits() for one in climbs], axis=0)
            shown = "".join(f"{mean:>10.3f}" for mean in means)
            print(f"{name:18}{changed or 'anew':>8}{releases:>10.1f}{shown}")


def show_events(searches: int) -> None:
    print(f"By length and by event: widths of a risk of .2, {searches} climbs of {STEPS} each")
    heads = ("releases", "L, length", "L, event", "by length", "by event", "change")
    print(f"{'':24}{'rows':>6}" + "".join(f"{head:>11}" for head in heads))
    climbed = LadderTranscript(STEPS, (1, 3, 9, 40, 150), (40, 34, 30, 27, 25), 101)
    for rows in (200, 1000, 5000):
        for name, mechanism in {**RULES, BITS: PairedTestLadder(0.05)}.items():
            climbs = [climb(mechanism, rows // 50, i, rows, STEPS) for i in range(searches)]
            found = [one.prices(name != BITS) for one in climbs]
            _show_event(name, rows, *np.mean(found, axis=0))
        _show_event("one query", rows, 1, 2 * place_length(1), Transcript.alone().log_count())
        for size in (3, 20, 100):
            place = math.log(size)
            first = place_length(1) + place, event_length(1) + place
            _show_event(f"batch of {size}, announced", rows, 1, *first)
            released = climbed.length() + place
            last = place_length(STEPS + 1) + released, event_length(6) + released
            _show_event(f"batch of {size}, climbed", rows, 6, *last)
        own = place_length(144)
        _show_event("a list of 144", rows, 1, place_length(1) + own, event_length(1) + own)


def _show_event(name: str, rows: int, releases: float, before: float, now: float) -> None:
    tail = math.log((1 - CONFIDENCE) / 2)
    ends = [exact_upper(rows // 5, rows, tail - price) - 0.2 for price in (before, now)]
    shown = "".join(f"{one:>11.1f}" for one in (releases, before, now))
    shown += "".join(f"{one:>11.4f}" for one in ends)
    print(f"{name:24}{rows:>6}{shown}{ends[1] / ends[0] - 1:>+11.1%}")


@dataclass(frozen=True, slots=True)
class Listed:
    """A holdout after submissions, with the last one that improved its ladder."""

    holdout: LadderHoldout
    last: np.ndarray

    def prices(self) -> tuple[int, float, float]:
        """Return how many releases there were, and L with falls alone and with bars."""
        ladder = self.holdout.__ladder__
        guard = ladder.guard()
        selection = ladder.read(lambda tx, record: selection_of(tx, record, ladder.metric, guard))
        transcript = selection.transcript
        now = transcript.log_count()
        before = now
        for own in transcript.ladders:
            if own.values:
                values = np.array(own.values, dtype=float)
                falls = _falls_length(values[:-1], values[:-1] - values[1:])
                before += math.log(own.n_values) + falls - own.lengths[1]
        return self.holdout.status().releases, before, now

    def width(self, labels: np.ndarray, log_count: float) -> float:
        metric, classes = self.holdout.metric, np.array([0, 1])
        classes = classes if metric.is_classification else None
        targets = metric.targets(labels, classes)
        predictions = metric.canonical(self.last, len(labels), classes)
        level = math.log((1 - CONFIDENCE) / 2) - log_count
        if metric.counts:
            errors, n = round(float(np.mean(predictions != targets)) * len(labels)), len(labels)
            return exact_upper(errors, n, level) - exact_lower(errors, n, level)
        rows = Rows(targets, predictions, np.random.default_rng(0))
        found = score_limits(metric, rows, level)
        return found.high - found.low


LISTED: dict[str, tuple[float, float] | None] = {
    "accuracy": None,
    "roc_auc": None,
    "neg_brier_score": None,
    "neg_mean_absolute_error": (0, 4),
    "neg_root_mean_squared_error": (0, 4),
}


def show_values(searches: int, history: str | None) -> None:
    print("Values by falls alone and below the bar of the rule: L and widths of the last incumbent")
    heads = ("releases", "L, falls", "L, bars", "falls", "bars", "change")
    print(f"{'':50}" + "".join(f"{head:>10}" for head in heads))
    for metric, limits in LISTED.items():
        for models in (11, 50):
            found = [improving(metric, limits, models, seed) for seed in range(searches)]
            _show_values(f"{metric}, {models} models", found)
        if metric != "roc_auc":
            found = [reweighted(metric, limits, seed) for seed in range(searches)]
            _show_values(f"{metric}, climb of {STEPS}", found)
    if history is not None:
        found = [published(history, seed) for seed in range(searches)]
        _show_values("accuracy, published models, weakest first", found)


def _show_values(name: str, found: list[tuple[float, ...]]) -> None:
    releases, before, now, *both = np.mean(found, axis=0)
    shown = "".join(f"{one:>10.1f}" for one in (releases, before, now))
    shown += "".join(f"{one:>10.4f}" for one in both)
    print(f"{name:50}{shown}{both[1] / both[0] - 1:>+10.1%}")


Models: TypeAlias = Sequence[Callable[[np.ndarray | None], np.ndarray]]
Measured: TypeAlias = Callable[
    [str, tuple[float, float] | None, np.ndarray, Models], tuple[float, ...]
]


def _listed(
    metric: str,
    limits: tuple[float, float] | None,
    labels: np.ndarray,
    models: Models,
) -> tuple[float, ...]:
    rows = np.arange(len(labels), dtype=float)[:, None]
    settings = {"loss_range": limits} if limits else {}
    holdout = LadderHoldout(
        rows, labels, scoring=metric, ledger="memory", name=uuid.uuid4().hex, **settings
    )
    last = None
    for model in models:
        tried = model(last)
        if holdout.submit(tried).improved:
            last = tried
    assert last is not None
    listed = Listed(holdout, last)
    releases, before, now = listed.prices()
    return releases, before, now, listed.width(labels, before), listed.width(labels, now)


def improving(
    metric: str,
    limits: tuple[float, float] | None,
    models: int,
    seed: int,
    n: int = 1000,
    measured: Measured = _listed,
) -> tuple[float, ...]:
    rng = np.random.default_rng(seed)
    labels, noise = rng.integers(0, 2, n), rng.normal(size=n)
    values = np.clip(rng.normal(size=n), -3.9, 3.9)

    def tried(better: float) -> np.ndarray:
        if limits is not None:
            return np.clip(values + noise * (1.4 - 0.08 * better), -4, 4)
        scores = labels * (0.4 + 0.14 * better) + noise
        over = scores - 0.2 - 0.07 * better
        if metric == "roc_auc":
            return scores
        return expit(over * (0.4 + 0.14 * better)) if "brier" in metric else (over > 0).astype(int)

    targets = labels if limits is None else values
    steps = [10 * i / (models - 1) for i in range(models)]
    return measured(metric, limits, targets, [lambda _, i=i: tried(i) for i in steps])


def reweighted(
    metric: str,
    limits: tuple[float, float] | None,
    seed: int,
    n: int = 1000,
    measured: Measured = _listed,
) -> tuple[float, ...]:
    """Climb on the weights of a linear model of twenty features."""
    rng = np.random.default_rng([seed, 6])
    true = rng.normal(size=20) / math.sqrt(20)
    features = rng.normal(size=(n, 20))
    signal = features @ true
    labels = (2.2 * signal + rng.logistic(size=n) > 0).astype(int)
    if limits is not None:
        labels = np.clip(signal + 0.6 * rng.normal(size=n), -4, 4)
    best = tried = 0.6 * true + 0.15 * rng.normal(size=20)
    shown: np.ndarray | None = None

    def model(incumbent: np.ndarray | None) -> np.ndarray:
        nonlocal best, tried, shown
        if incumbent is not None:
            best = tried if incumbent is shown else best
            size = np.linalg.norm(best) / math.sqrt(20) * 10 ** rng.uniform(-1.3, -0.1)
            tried = best + size * rng.normal(size=20)
        over = features @ tried
        shown = np.clip(over, -4, 4)
        if limits is None:
            shown = expit(2 * over) if "brier" in metric else (over > 0).astype(int)
        return shown

    return measured(metric, limits, labels, [model] * STEPS)


def published(file: str, seed: int) -> tuple[float, ...]:
    right = _right(file)
    rows = np.random.default_rng(seed).choice(10000, 1000, replace=False)
    # The first class is a fixed one of ten rows, so that there are two.
    labels = (np.arange(1000) % 10 > 0).astype(int)
    models = [lambda _, one=one: np.where(one, labels, 1 - labels) for one in right[:, rows]]
    return _listed("accuracy", None, labels, models)


def _right(file: str) -> np.ndarray:
    """Return which rows published models get right, the weakest model first."""
    with np.load(file) as stored:
        right = np.unpackbits(stored["correct"], axis=1)[:, :10000]
    return right[np.argsort(right.mean(axis=1), kind="stable")]


def show_reserve(searches: int, risk: float = 0.2) -> None:
    """Queries of a reserve of as many rows as the ladder's, each about another model."""
    print(f"Widths of the c-th query of a reserve, true risk {risk}: coded alike, and by `price`")
    print(f"{'rows':>6}{'too good':>10}" + "".join(f"{f'c = {c}':>18}" for c in (1, 2, 3, 4, 8)))
    for rows in (100, 500, 2500):
        for optimism in (0.0, 0.03):
            found = [_queried(rows, risk, optimism, seed) for seed in range(20 * searches)]
            means = np.mean(found, axis=0)
            shown = "".join(
                f"{means[c - 1, 0]:>9.3f}{means[c - 1, 1]:>9.3f}" for c in (1, 2, 3, 4, 8)
            )
            print(f"{rows:>6}{optimism:>10.2f}{shown}   {means[7, 2] / 7:.1f} nats each")


def _queried(rows: int, risk: float, optimism: float, seed: int) -> list[tuple[float, ...]]:
    rng, told, found = np.random.default_rng(seed), 0.0, []
    for query in range(1, 9):
        raw, alike = rng.binomial(rows, risk) / rows, ReserveGrid(rows, (0.0, 1.0))
        released = max(rng.binomial(rows, risk) / rows - optimism, 0.0)
        grid = ReserveGrid(rows, (0.0, 1.0), released=released, ladder_rows=rows, query=query)
        both = []
        for one, price in ((alike, (query - 1) * alike.log_values), (grid, told)):
            shown, log_count = one.nearest(raw), reserve_log_count(query, price)
            rounding = one.rounding(shown)
            limits = reserve_interval(shown, rows, log_count, rounding=rounding)
            both.append(limits.high - limits.low)
        found.append((*both, told))
        told += grid.price(grid.nearest(raw))
    return found


def show_anchors(searches: int) -> None:
    print(f"Anchored certificates: half-widths after climbs of {STEPS} on coins, {searches} each")
    heads = ("changes", "releases", "L", "alone", "new rows", "change", "same rows", "change")
    print(f"{'':18}{'rows':>6}" + "".join(f"{head:>10}" for head in heads))
    for rows in (200, 1000, 5000):
        for name, mechanism in anchored_rules(rows).items():
            for changed in (rows // 100, rows // 20):
                climbs = [
                    coins(mechanism, rows, changed, seed, shows_scores=name != BITS)
                    for seed in range(searches)
                ]
                _show_anchored(name, rows, changed, [widths(*one) for one in climbs])


def anchored_rules(rows: int) -> dict[str, Mechanism]:
    return {
        "priced": PricedLadder(),
        "parameter-free": ParameterFreeLadder(),
        "simplified, .01": SimplifiedLadder(max(0.01, 1 / rows)),
        BITS: PairedTestLadder(0.05),
    }


def coins(
    mechanism: Mechanism, rows: int, changed: int, seed: int, *, shows_scores: bool
) -> tuple[Mechanism, np.ndarray, list[Incumbent]]:
    """Climb on labels of two classes that nobody can know."""
    rng = np.random.default_rng(seed)
    labels, start = rng.integers(0, 2, rows), rng.integers(0, 2, rows)

    def tried(best: np.ndarray | None) -> np.ndarray:
        if best is None:
            return start
        chosen = rng.choice(rows, changed, replace=False)
        candidate = best.copy()
        candidate[chosen] = 1 - candidate[chosen]
        return candidate

    climbed = incumbents(mechanism, labels, [tried] * STEPS, shows_scores=shows_scores)
    return mechanism, labels, climbed


def incumbents(
    mechanism: Mechanism,
    labels: np.ndarray,
    models: Sequence[Callable[[np.ndarray | None], np.ndarray]],
    *,
    shows_scores: bool = True,
) -> list[Incumbent]:
    """Submit models, each made from the incumbent's predictions; return the incumbents."""
    n, rng = len(labels), np.random.default_rng(0)
    state, found, improved, values = mechanism.start(n), [], [], []
    step, grid = mechanism.resolution(n), grid_of(mechanism, n, binary=True)
    assert grid is not None
    for query, model in enumerate(models, 1):
        one = model(found[-1].predictions if found else None)
        state, outcome = mechanism.advance(state, Evaluation.from_losses(one != labels), rng)
        if outcome.improved:
            shown = tuple(values) if shows_scores else ()
            own = LadderTranscript(query - 1, tuple(improved), shown, grid.n_values)
            found.append(Incumbent(one, Transcript.alone(own if improved else None)))
            improved.append(query)
            values.append(round(outcome.risk / step))
    return found


def widths(
    mechanism: Mechanism, labels: np.ndarray, climbed: list[Incumbent]
) -> tuple[float, float, float, float, float]:
    """Return releases, L and half-widths: by the released risk, and anchored in two readings."""
    n, metric, last = len(labels), get_metric("accuracy"), climbed[-1]
    step = mechanism.resolution(n)
    released = round_half_up(float(np.mean(last.predictions != labels)), step)
    alone = certify(released, n, last.transcript, confidence=CONFIDENCE, rounding=step)
    ends = (
        certify_anchored(metric, labels, climbed, same_rows=same, confidence=CONFIDENCE)
        for same in (False, True)
    )
    anchored = ((one.high - one.low) / 2 for one in ends)
    return len(climbed), alone.log_count, (alone.high - alone.low) / 2, *anchored


def _show_anchored(name: str, rows: int, changed: int, found: list[tuple[float, ...]]) -> None:
    releases, log_count, alone, new, same = np.mean(found, axis=0)
    shown = f"{name:18}{rows:>6}{changed:>10}{releases:>10.1f}{log_count:>10.1f}{alone:>10.4f}"
    print(f"{shown}{new:>10.4f}{new / alone - 1:>+10.1%}{same:>10.4f}{same / alone - 1:>+10.1%}")


def show_learned(searches: int) -> None:
    print(f"Climbs of {STEPS} on the weights of a linear model, as benchmarks/defaults.py has them")
    heads = ("releases", "by length", "by event", "change", "new rows", "change", "same rows")
    print(
        f"{'':18}{'rows':>6}{'signal':>8}" + "".join(f"{head:>10}" for head in (*heads, "change"))
    )
    for rows in (200, 1000, 5000):
        for name, mechanism in anchored_rules(rows).items():
            for signal, least in SIGNALS.items():
                climbs = [learned(mechanism, World(rows, least, i)) for i in range(searches)]
                found = [widths(*one) for one in climbs]
                before = np.mean([by_length(*one) for one in climbs])
                releases, _, *now = np.mean(found, axis=0)
                shown = "".join(f"{one:>10.4f}{one / before - 1:>+10.1%}" for one in now)
                print(f"{name:18}{rows:>6}{signal:>8}{releases:>10.1f}{before:>10.4f}{shown}")


def learned(mechanism: Mechanism, world: World) -> tuple[Mechanism, np.ndarray, list[Incumbent]]:
    """Change the weights of the incumbent; whether it errs on a row stands for the prediction."""
    rng = np.random.default_rng([world.seed, 5])
    best = tried = world.trained()
    shown: np.ndarray | None = None

    def changed(incumbent: np.ndarray | None) -> np.ndarray:
        nonlocal best, tried, shown
        if incumbent is not None:
            best = tried if incumbent is shown else best
            size = math.exp(rng.uniform(math.log(0.05), math.log(0.5)))
            change = rng.standard_normal(len(best)) * np.linalg.norm(best) / math.sqrt(len(best))
            tried = best + size * change
        shown = world.losses(tried).astype(np.int64)
        return shown

    labels = np.zeros(world.n, dtype=np.int64)
    return mechanism, labels, incumbents(mechanism, labels, [changed] * STEPS)


def by_length(mechanism: Mechanism, labels: np.ndarray, climbed: list[Incumbent]) -> float:
    """Return the half-width by the code of earlier versions."""
    n, step, transcript = len(labels), mechanism.resolution(len(labels)), climbed[-1].transcript
    own = next(iter(transcript.ladders), None)
    released = 0.0
    if own is not None:
        assert own.improved is not None
        released = replace(
            own,
            queries=own.queries - 1,
            submissions=own.queries - 1,
            improved=own.improved[:-1],
        ).length()
    price = place_length(transcript.before + 1) + place_length(1) + released
    risk = round_half_up(float(np.mean(climbed[-1].predictions != labels)), step)
    least = Transcript.alone()
    found = certify(
        risk,
        n,
        least,
        confidence=CONFIDENCE,
        rounding=step,
        price=price - least.log_count(),
    )
    return (found.high - found.low) / 2


def show_history(file: str, draws: int = 20) -> None:
    """Published models in their order, on 1,000 rows: which they get right is all that is known."""
    right = _right(file)
    print(f"{len(right)} published models, weakest first, {draws} holdouts of 1,000 rows")
    print(
        f"{'':18}{'releases':>10}{'L':>10}{'alone':>10}{'new rows':>10}{'change':>10}{'misses':>10}"
    )
    for name, mechanism in {
        "priced": PricedLadder(),
        "paired, .05": PairedTestLadder(0.05),
        "parameter-free": ParameterFreeLadder(),
        "simplified, .01": SimplifiedLadder(0.01),
        "simplified, .03": SimplifiedLadder(0.03),
    }.items():
        found, missed = [], 0
        for seed in range(draws):
            rows = np.random.default_rng(seed).choice(10000, 1000, replace=False)
            ones = np.ones(1000, dtype=np.int64)
            models = [lambda _, one=one: one.astype(np.int64) for one in right[:, rows]]
            climbed = incumbents(mechanism, ones, models)
            found.append(widths(mechanism, ones, climbed))
            one = certify_anchored(get_metric("accuracy"), ones, climbed)
            (number,) = {
                i for i, one in enumerate(right) if (one[rows] == climbed[-1].predictions).all()
            }
            missed += not one.low <= right[number].mean() <= one.high
        releases, log_count, alone, new, _ = np.mean(found, axis=0)
        shown = f"{name:18}{releases:>10.1f}{log_count:>10.1f}{alone:>10.4f}{new:>10.4f}"
        print(f"{shown}{new / alone - 1:>+10.1%}{missed:>10}")


def show_prototype(searches: int) -> None:
    print("The prototype's figures, and ours")
    print(f"{'':18}{'changes':>8}{'counted':>17}{'coded':>17}{'one bit':>17}")
    for (name, changed), theirs in PROTOTYPE.items():
        climbs = [climb(RULES[name], changed, seed) for seed in range(searches)]
        ours = np.mean([one.limits()[2:] for one in climbs], axis=0)
        shown = "".join(f"{a:>11.3f}{b:>6.3f}" for a, b in zip(theirs, ours, strict=True))
        print(f"{name:18}{changed or 'anew':>8}{shown}")


def show_improvements(searches: int) -> None:
    print(f"Improvements alone, {CLIMB} changes, {searches} searches each: upper limits")
    print(f"{'level':8}{'releases':>10}{'revealed':>10}{'at the end':>12}{'and every 100':>15}")
    for level in LEVELS:
        climbs = [climb(PairedTestLadder(level), CLIMB, seed) for seed in range(searches)]
        found = [
            (len(one.improved), one.errors[-1] / ROWS, one.upper(()), one.upper(one.asked(100)))
            for one in climbs
        ]
        releases, risk, end, often = np.mean(found, axis=0)
        print(f"{level:<8}{releases:>10.1f}{risk:>10.3f}{end:>12.3f}{often:>15.3f}")


def show_shown(searches: int) -> None:
    print(f"What is shown: L and widths of the last incumbent, n = 1,000, {searches} searches each")
    heads = ("releases", "L, scores", "L, bits", "scores", "bits", "change")
    print(f"{'':50}" + "".join(f"{head:>11}" for head in heads))
    for metric, limits in LISTED.items():
        _show_both(f"{metric}, 11 models", partial(improving, metric, limits, 11), searches)
    for metric in ("accuracy", "neg_brier_score"):
        _show_both(f"{metric}, climb of {STEPS}", partial(reweighted, metric, None), searches)
    cifar = _cifar()
    _show_both("accuracy, CIFAR-10's history, weakest first", cifar, searches)
    both = [partial(cifar, measured=partial(_shown, show=one)) for one in SHOWN]
    ends = [[search(seed) for search in both] for seed in range(20)]
    lost = np.mean([aloud[3] - silent[3] for aloud, silent in ends])
    missed = sum(not silent[4] <= silent[3] <= silent[5] for _, silent in ends)
    print(f"truth lost there {lost:.4f}, certificates that miss {missed} of {len(ends)}")


def _cifar() -> Callable[..., tuple[float, ...]]:
    """Return 30 published models, weakest first, on 1,000 of the rows; the last is the truth."""
    (history,) = load("cifar10")
    truths = np.sort(history.correct.mean(axis=1), kind="stable")
    right = history.correct[np.argsort(history.correct.mean(axis=1), kind="stable")]
    # The first class is a fixed one of ten rows, so that there are two.
    labels = (np.arange(1000) % 10 > 0).astype(int)

    def models(seed: int, measured: Measured) -> tuple[float, ...]:
        rows = np.random.default_rng(seed).choice(right.shape[1], 1000, replace=False)
        listed = [lambda _, one=one: np.where(one, labels, 1 - labels) for one in right[:, rows]]
        *found, winner = measured("accuracy", None, labels, listed)
        return (*found[:3], truths[int(winner) - 1], *found[3:])

    return models


def _show_both(name: str, search: Callable[..., tuple[float, ...]], searches: int) -> None:
    """Print a line about searches that are the same but for what is shown."""
    aloud, silent = (
        np.mean([search(i, measured=partial(_shown, show=one)) for i in range(searches)], axis=0)
        for one in SHOWN
    )
    shown = "".join(f"{one:>11.1f}" for one in (silent[0], aloud[1], silent[1]))
    shown += f"{aloud[2]:>11.4f}{silent[2]:>11.4f}{silent[2] / aloud[2] - 1:>+11.1%}"
    print(f"{name:50}{shown}", flush=True)


def _shown(
    metric: str,
    limits: tuple[float, float] | None,
    labels: np.ndarray,
    models: Models,
    show: str,
) -> tuple[float, ...]:
    """Submit models, request the score at the end, and return releases, L, width, ends, winner."""
    rows = np.arange(len(labels), dtype=float)[:, None]
    settings = {"loss_range": limits} if limits else {}
    name = uuid.uuid4().hex
    holdout = LadderHoldout(
        rows, labels, scoring=metric, ledger="memory", name=name, show=show, **settings
    )
    last = None
    for model in models:
        tried = model(last)
        if holdout.submit(tried).improved:
            last = tried
    holdout.reveal()
    found, status = holdout.certificate(), holdout.status()
    width = found.high - found.low
    return status.releases, found.log_count, width, found.low, found.high, status.incumbent


def show_times(repetitions: int = 200) -> None:
    print("Milliseconds for one exact interval, and its error against mpmath (relative)")
    for n, errors, log_level in (
        (5000, 0, math.log(0.025)),
        (5000, 250, math.log(0.025)),
        (5000, 250, -690.0),
        (5000, 5000, -690.0),
        (10**7, 0, -690.0),
        (10**7, 5 * 10**5, math.log(0.025)),
        (10**7, 5 * 10**5, -690.0),
        (10**7, 10**7, -690.0),
    ):
        started = time.perf_counter()
        for _ in range(repetitions):
            low, high = exact_lower(errors, n, log_level), exact_upper(errors, n, log_level)
        each = (time.perf_counter() - started) / repetitions * 1e3
        # The lower limit is the upper one of what was right.
        tails = ((errors, high), (n - errors, 1 - mp.mpf(low)))
        off = max(abs(log_tail(k, n, p) / log_level - 1) for k, p in tails if k < n)
        shown = f"n = {n:>8}, {errors:>8} errors, level {math.exp(log_level):<8.2g}"
        print(f"{shown}{each:>9.3f}{off:>10.1e}")


def log_tail(errors: int, n: int, limit: float) -> float:
    """Return the logarithm of P(Bin(n, limit) <= errors), term by term with fifty digits."""
    with mp.workdps(50):
        p = mp.mpf(limit)
        odds = (1 - p) / p
        term = total = mp.mpf(1)
        for i in range(errors):
            term *= (errors - i) * odds / (n - errors + 1 + i)
            total += term
            if term < total * mp.mpf(10) ** -40:
                break
        ways = mp.loggamma(n + 1) - mp.loggamma(errors + 1) - mp.loggamma(n - errors + 1)
        logs = errors * mp.log(p) + (n - errors) * mp.log(1 - p)
        return float(ways + logs + mp.log(total))


def main() -> None:
    parser = argparse.ArgumentParser(description="How wide certificates are.")
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--history", help="a file of published models' right predictions")
    parser.add_argument("--only", choices=["shown"], help="print this part alone")
    asked = parser.parse_args()
    searches = asked.searches
    if asked.only is not None:
        show_shown(searches)
        return
    show_bounds()
    print()
    show_climbs(searches)
    print()
    show_events(searches)
    print()
    show_values(searches, asked.history)
    print()
    show_reserve(searches)
    print()
    show_anchors(searches)
    print()
    show_learned(searches)
    print()
    if asked.history is not None:
        show_history(asked.history)
        print()
    show_prototype(searches)
    print()
    show_improvements(searches)
    print()
    show_shown(searches)
    print()
    show_times()


if __name__ == "__main__":
    main()
