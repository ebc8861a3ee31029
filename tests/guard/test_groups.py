"""Attacks groups of rows: what is registered, known again, refused, compared and certified."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold

from ladderholdout import LadderHoldout
from ladderholdout.audit.statistics import paired, score_interval
from ladderholdout.certificates.group_limits import Groups, share_of_groups
from ladderholdout.cli import app
from ladderholdout.errors import (
    CopiedRowsWarning,
    GroupedRowsWarning,
    HoldoutConflict,
    InvalidArgument,
    KnownHoldoutWarning,
    OverlapError,
    OverlapWarning,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.rows import Part
from ladderholdout.identity.labels import id_hashes
from ladderholdout.limits.intervals import exact_lower, exact_upper
from ladderholdout.mechanisms import (
    BayesBootLadder,
    FullDisclosure,
    GateLadder,
    Ladder,
    LadderBoot,
    PairedTestLadder,
    ParameterFreeLadder,
    State,
)
from ladderholdout.mechanisms.resampling import null_probability
from ladderholdout.metrics import Evaluation, get_metric
from tests.support.commands import CliRunner
from tests.support.ledgers import reserve_of, row_places
from tests.support.server import registered, rows, serving, token_of

N_GROUPS = 40
rng = np.random.default_rng(0)
SIZES = rng.integers(1, 12, N_GROUPS)
NAMES = np.repeat([f"p{number}" for number in range(N_GROUPS)], SIZES)
N = len(NAMES)
X = rng.normal(size=(N, 3))
y = (X[:, 0] + rng.normal(size=N) > 0).astype(int)
GUESSES = np.where(rng.random(N) < 0.8, y, 1 - y)


def opened(features: Any = X, labels: Any = y, **stated: Any) -> LadderHoldout:
    """Register the rows in their groups, on a ledger of this test alone."""
    settings = {"scoring": "accuracy", "ledger": "memory", "groups": NAMES, **stated}
    return LadderHoldout(features, labels, **settings)


# -- registration ---------------------------------------------------------------------------------


def test_the_line_names_what_the_mean_is_over() -> None:
    for estimand in ("rows", "groups"):
        holdout = opened(estimand=estimand)
        assert holdout.submit(GUESSES).score == pytest.approx(np.mean(y == GUESSES))
        assert "certificate() works it out" in str(holdout.status().certificate.missing)
        found = holdout.certificate()
        assert found.line().startswith(f"true score as the mean over {estimand} in ")
        assert f"as the mean over {estimand}," in str(found)
        assert found.bound == "bets on groups" and found.mean_over == estimand
        assert ("largest one here" in str(found)) == (estimand == "rows")
        assert holdout.status().certificate == found == holdout.certificate()
        assert holdout.certificate(0.9).price > 0 and holdout.certificate(0.9).mean_over == estimand


def test_a_second_opening_knows_the_groups(tmp_path: Path) -> None:
    ledger, order = tmp_path / "ledger.db", np.random.default_rng(1).permutation(N)
    first = opened(ledger=ledger, name="visits")
    first.submit(GUESSES)
    line = first.certificate().line()
    again = LadderHoldout(X, y, scoring="accuracy", ledger=ledger)
    assert again.certificate().line() == line
    with pytest.warns(KnownHoldoutWarning):
        shuffled = opened(X[order], y[order], groups=NAMES[order], ledger=ledger)
    assert shuffled.certificate().line() == line
    assert LadderHoldout.open("visits", ledger=ledger).certificate().line() == line
    with pytest.warns(KnownHoldoutWarning, match="with other features"):
        view = opened(np.column_stack([X, X[:, 0] ** 2]), ledger=ledger)
    assert view.certificate().line() == line
    assert CliRunner().invoke(app, ["verify", "visits", "--ledger", str(ledger)]).exit_code == 0


def test_equal_rows_of_several_groups_stay_in_theirs(tmp_path: Path) -> None:
    features, labels = np.zeros((30, 1)), np.repeat([0, 1], 15)
    names = np.tile(np.arange(10), 3)
    given = {"scoring": "accuracy", "ledger": tmp_path / "ledger.db"}
    with pytest.warns(CopiedRowsWarning, match="equal one of another group"):
        LadderHoldout(features, labels, groups=names, **given)
    order = np.random.default_rng(2).permutation(30)
    with pytest.warns(KnownHoldoutWarning, match="in another order"):
        LadderHoldout(features[order], labels[order], groups=names[order], **given)


@pytest.mark.filterwarnings("error")
def test_trials_of_one_item_are_no_copies() -> None:
    items = np.repeat(np.arange(100), 5)
    LadderHoldout(
        items.reshape(-1, 1), np.ones(500), groups=items, scoring="neg_mean_absolute_error",
        loss_range=(0, 1), ledger="memory",
    )  # fmt: skip


def test_other_groups_are_refused(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    opened(ledger=ledger)
    others = NAMES.copy()
    others[0] = "p39"
    with pytest.raises(HoldoutConflict, match="puts them into other groups"):
        opened(ledger=ledger, groups=others)
    with pytest.raises(HoldoutConflict, match="estimand='rows'"):
        opened(ledger=ledger, estimand="groups")
    opened(ledger=ledger, estimand="rows")
    single = tmp_path / "single.db"
    opened(ledger=single, groups=None)
    with pytest.raises(HoldoutConflict, match="registered without groups"):
        opened(ledger=single)


def test_a_column_names_the_groups_and_is_no_feature() -> None:
    frame = pd.DataFrame(X, columns=list("abc")).assign(patient=NAMES, visit=np.arange(N))
    holdout = opened(frame, groups="patient", ids="visit")
    model = LogisticRegression().fit(frame[list("abc")], y)
    assert holdout.submit(model).score is not None
    assert holdout.certificate().mean_over == "rows"
    with pytest.raises(InvalidArgument, match="groups must be the name of a column of X"):
        opened(frame, groups="doctor")


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ({"groups": NAMES[:-1]}, "groups must be as long as X"),
        ({"groups": ["one"] * N}, "groups must be of two groups or more"),
        ({"groups": [*NAMES[:-1], None]}, "groups must be there for each row"),
        ({"groups": 7}, "groups must be a list of values"),
        ({"estimand": "patients"}, "estimand must be"),
        ({"groups": None, "estimand": "rows"}, "estimand must be left out"),
        ({"sample_weight": np.ones(N)}, "sample_weight must be left out"),
        ({"reserve": 0.01}, "the ladders and the reserve a group each, of 40"),
        ({"mechanism": PairedTestLadder(0.1)}, "compares or resamples single rows"),
        ({"mechanism": LadderBoot(0.1)}, "Take ParameterFreeLadder"),
    ],
)
def test_what_does_not_go_together_is_refused(stated: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        opened(**stated)


def test_a_later_ladder_is_held_to_the_same(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    opened(ledger=ledger)
    for groups in (None, NAMES):
        with pytest.raises(InvalidArgument, match="compares or resamples single rows"):
            opened(ledger=ledger, groups=groups, ladder="b", mechanism=PairedTestLadder(0.1))
    with pytest.warns(KnownHoldoutWarning):
        opened(ledger=ledger, groups=None, ladder="b", mechanism=Ladder(0.05))


# -- training rows --------------------------------------------------------------------------------


def grid() -> GridSearchCV:
    """Return a search that keeps groups together."""
    return GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=GroupKFold(3))


@pytest.mark.filterwarnings(f"error::{GroupedRowsWarning.__module__}.GroupedRowsWarning")
def test_groups_of_training_rows_are_not_those_of_the_holdout() -> None:
    train = np.random.default_rng(4).normal(size=(90, 3))
    labels = (train[:, 0] > 0).astype(int)
    names = np.repeat([f"t{number}" for number in range(30)], 3)
    search = opened().guard(grid()).fit(train, labels, groups=names)
    assert "the mean over rows" in search.certificate_.line()
    names[5:8] = "p3"
    with pytest.raises(OverlapError, match="Group 'p3' of the training rows is in the holdout"):
        opened().guard(grid()).fit(train, labels, groups=names)
    names[0] = "p7"
    with pytest.raises(OverlapError, match="Group 'p7' and 1 more of the training rows are"):
        opened().guard(grid()).fit(train, labels, groups=pd.Series(names))
    with pytest.warns(OverlapWarning, match="Group 'p7'"):
        opened(overlap="warn").guard(grid()).fit(train, labels, groups=names)
    with pytest.raises(OverlapError, match="Group 'p7' and 1 more"):
        opened().guard(grid()).fit(train, labels, groups=pd.DataFrame({"patient": names}))
    with pytest.raises(InvalidArgument, match="groups must be texts, as the holdout's are, but is"):
        opened().guard(grid()).fit(train, labels, groups=np.arange(90) // 3)
    holdout = opened()
    by_fold = GridSearchCV(
        LogisticRegression(), {"C": [1.0]}, scoring=holdout, refit=holdout.select,
        cv=holdout.split(inner=GroupKFold(3)),
    )  # fmt: skip
    with pytest.raises(OverlapError, match="Group 'p7'"):
        by_fold.fit(train, labels, groups=names)


# -- comparisons ----------------------------------------------------------------------------------


def test_a_paired_comparison_takes_groups_for_its_units() -> None:
    names, losses = np.repeat(np.arange(50), 20), np.random.default_rng(5).random((2, 50))
    first, second = (Evaluation.from_losses(np.repeat(one, 20)) for one in losses)
    first, second = first.in_groups(names), second.in_groups(names)
    state = State(1000, second.risk, incumbent=second)
    found = ParameterFreeLadder().measure(state, first, np.random.default_rng(0)).spread
    difference = losses[0] - losses[1]
    # All rows of a group are alike, and all groups of one size: as one row of each.
    assert found == pytest.approx(difference.std(ddof=1) / math.sqrt(50))


def test_the_odds_are_those_of_weights_of_groups() -> None:
    generator = np.random.default_rng(6)
    names = np.repeat(np.arange(20), generator.integers(1, 9, 20))
    first, second = generator.random((2, len(names))) < 0.3
    pair = [Evaluation.from_losses(one * 1.0).in_groups(names) for one in (first, second)]
    found = null_probability(*pair, 1000, generator)
    weights = generator.standard_exponential((20_000, 20))[:, names]
    worse = (weights @ (first * 1.0 - second * 1.0) >= 0).mean()
    # Within 5 standard errors of 20,000 draws.
    assert abs(found - worse) < 5 * math.sqrt(0.25 / 20_000)
    scores = [Evaluation.in_groups(_auc(names, one, generator), names) for one in (first, second)]
    draws = null_probability(*scores, 20_000, generator)
    auc = [one.risks_under(weights[:2000]) for one in scores]
    assert abs(draws - (auc[0] >= auc[1]).mean()) < 5 * math.sqrt(0.25 / 2000)


def _auc(names: np.ndarray, wrong: np.ndarray, generator: np.random.Generator) -> Evaluation:
    targets = (names % 2).astype(int)
    noise = generator.random(len(names)) * 0.1
    return get_metric("roc_auc").evaluate(targets, targets - 1.2 * wrong + noise)


@pytest.mark.parametrize(("margin", "alike"), [(0.0, False), (0.02, False), (0.0, True)])
def test_a_gate_takes_groups_for_its_units(margin: float, alike: bool) -> None:
    # Candidates as good as the baseline, with errors that all rows of a group share: of 150 first
    # candidates at most 5 % times a half may be accepted; 11 and more have a chance of 1.5e-3.
    gate, accepted, taken_apart, better = GateLadder(margin=margin), 0, 0, 0
    for seed in range(150):
        generator = np.random.default_rng(seed)
        names = np.repeat(np.arange(60), generator.integers(1, 21, 60))
        baseline, candidate = generator.random((2, 60)) < 0.3
        candidate = candidate & (generator.random(60) < 1 - margin / 0.3)
        pair = [Evaluation.from_losses(one[names] * 1.0) for one in (baseline, candidate)]
        taken_apart += _accepts(gate, *pair)
        pair = [one.in_groups(names, alike=alike) for one in pair]
        accepted += _accepts(gate, *pair)
        good = Evaluation.from_losses(0.0 * names).in_groups(names, alike=alike)
        better += _accepts(gate, pair[0], good)
    assert accepted < 11 < taken_apart and better > 100


def _accepts(gate: GateLadder, baseline: Evaluation, candidate: Evaluation) -> bool:
    generator = np.random.default_rng(0)
    state, _ = gate.advance(gate.start(baseline.n), baseline, generator)
    return gate.advance(state, candidate, generator)[1].improved


def test_the_default_rules_take_groups() -> None:
    probabilities = 0.5 + 0.4 * (2 * GUESSES - 1)
    for scoring, rule in (("roc_auc", BayesBootLadder), ("neg_brier_score", ParameterFreeLadder)):
        holdout = opened(scoring=scoring)
        assert isinstance(holdout.rules.mechanism, rule)
        assert holdout.submit(probabilities).improved
        assert not holdout.submit(1 - probabilities).improved
        assert "the mean over rows" in holdout.certificate().line()
    drawn = opened(scoring="roc_auc")
    drawn.submit(probabilities)
    assert "one row of each group, drawn by the rows' content" in drawn.certificate().line()
    assert "by one row of each group" in drawn.certificate().beside


def test_an_audit_weighs_groups() -> None:
    # Ten rows of each group that are all alike: as one row of each, and not as ten.
    wrong = np.random.default_rng(9).random(80) < 0.3
    metric = get_metric("accuracy")
    once = Evaluation.from_losses(wrong * 1.0)
    many = Evaluation.from_losses(np.repeat(wrong, 10) * 1.0)
    grouped = many.in_groups(np.repeat(np.arange(80), 10))
    right = Evaluation.from_losses(np.zeros(800)).in_groups(np.repeat(np.arange(80), 10))
    generator = np.random.default_rng(0)
    alone, all_rows, by_groups = (
        score_interval(metric, one, 0.95, generator) for one in (once, many, grouped)
    )
    width = alone.high - alone.low
    assert by_groups.high - by_groups.low == pytest.approx(width, rel=0.1)
    assert all_rows.high - all_rows.low < 0.4 * width
    difference = paired(metric, right, grouped, 0.95, generator)
    assert difference.high - difference.low == pytest.approx(width, rel=0.1)


@pytest.mark.long
def test_an_estimate_draws_groups() -> None:
    # Fifteen models of one true score, .8, whose errors come in groups: the best is chance alone.
    away = {True: [], False: []}
    for seed in range(6):
        generator = np.random.default_rng(seed)
        sizes = generator.integers(1, 41, 60)
        names = np.repeat(np.arange(60), sizes)
        labels = generator.integers(0, 2, len(names))
        wrong = generator.random((15, len(names))) < np.repeat(
            generator.beta(0.8, 3.2, (15, 60)), sizes, axis=1
        )
        for grouped in away:
            holdout = opened(
                generator.normal(size=(len(names), 2)), labels, groups=names if grouped else None
            )
            with holdout.batch() as batch:
                for one in wrong:
                    batch.submit(np.where(one, 1 - labels, labels))
            away[grouped].append(holdout.estimate().score - 0.8)
    assert abs(np.mean(away[True])) < 0.02 < 0.03 < np.mean(away[False])


# -- the reserve ----------------------------------------------------------------------------------


def kept(holdout: LadderHoldout) -> np.ndarray:
    """Tell which rows, in the order of the test, are the reserve: only the ledger knows."""
    return reserve_of(holdout)[row_places(holdout)]


def test_a_reserve_has_whole_groups(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout = opened(ledger=ledger, reserve=0.3)
    reserve = kept(holdout)
    assert len(set(NAMES[reserve])) == 12
    assert not set(NAMES[reserve]) & set(NAMES[~reserve])
    # Errors among its rows are in no answer, and all others are.
    worst = np.where(reserve, 1 - y, y)
    assert holdout.submit(worst).score == 1.0
    order = np.random.default_rng(1).permutation(N)
    with pytest.warns(KnownHoldoutWarning, match="in another order"):
        again = LadderHoldout(X[order], y[order], scoring="accuracy", ledger=ledger, reserve=0.3)
    assert again.reserve_certificate().score == 0.0
    with pytest.raises(HoldoutConflict, match="a reserve of 12 groups out of 40, and you ask for"):
        opened(ledger=ledger, reserve=0.5)
    assert verify_holdout(holdout.ledger, holdout.name).findings == ()


@pytest.mark.parametrize("estimand", ["rows", "groups"])
def test_the_reserve_is_certified_by_its_groups(estimand: str) -> None:
    holdout = opened(reserve=0.5, estimand=estimand, confidence=0.9)
    reserve = kept(holdout)
    holdout.submit(GUESSES)
    found = holdout.reserve_certificate()
    hits = (y == GUESSES)[reserve]
    assert found.score == pytest.approx(hits.mean()) and found.mean_over == estimand
    # What the bound gives for these groups alone, at the level of the first query, rounded outward.
    # The groups are in an order of their targets', and named by hashes of their names.
    names = id_hashes(NAMES, may_repeat=True, argument="groups")[reserve]
    order = np.argsort(content_order(holdout)[reserve])
    limits = share_of_groups(
        *(hits[order].astype(float), np.ones(len(hits)), Groups.of(names[order], estimand)),
        math.log(0.1) - 2 * math.log(2),
        rng=Part(None, y[reserve][order], None).order_rng(),
    )
    assert found.score - 1.0501 * (found.score - limits.low) <= found.low <= limits.low
    assert limits.high <= found.high <= found.score + 1.0501 * (limits.high - found.score)
    assert found.bound == "bets on groups"
    assert any("groups are independent draws" in line for line in found.assumptions)


def content_order(holdout: LadderHoldout) -> np.ndarray:
    """Return the place of each row in the order of the content, in which the ledger keeps them."""
    return row_places(holdout)


@pytest.mark.parametrize(
    ("scoring", "bound"),
    [
        ("accuracy", "bets on groups"),
        ("f1_macro", "bets on groups"),
        ("roc_auc", "one row of each group"),
        ("matthews_corrcoef", "one row of each group"),
    ],
)
def test_each_metric_has_its_bound_on_the_reserve(scoring: str, bound: str) -> None:
    holdout = opened(scoring=scoring, reserve=0.5)
    guesses = GUESSES + np.random.default_rng(3).random(N) if scoring == "roc_auc" else GUESSES
    holdout.submit(guesses)
    found = holdout.reserve_certificate()
    assert bound in found.bound and found.low < found.score < found.high
    assert holdout.reserve_certificate() == found


def test_errors_in_groups_have_a_reserve() -> None:
    target = X[:, 0] * 2.0
    holdout = opened(
        labels=target, scoring="r2", target_range=(-10, 10), loss_range=(0, 6), reserve=0.5
    )
    holdout.submit(target + np.random.default_rng(2).normal(0, 0.3, N))
    found = holdout.reserve_certificate()
    assert found.bound == "bets on groups" and found.low < found.score < found.high
    assert verify_holdout(holdout.ledger, holdout.name).findings == ()


def test_a_bootstrap_of_a_reserve_in_groups_draws_groups() -> None:
    """It has no bound where errors have no range, and ten rows of a group are worth about one."""
    generator = np.random.default_rng(4)
    names = np.repeat(np.arange(200), 10)
    target = generator.normal(size=2000)
    guess = target + np.repeat(generator.normal(size=200), 10)
    features = generator.normal(size=(2000, 2))
    widths = []
    for groups in (names, None):
        holdout = opened(
            features, target, scoring="neg_mean_absolute_error", groups=groups, reserve=0.5
        )
        holdout.submit(guess)
        found = holdout.reserve_certificate()
        assert "approximate" in found.bound
        assert any("groups are independent draws" in one for one in found.assumptions) is (
            groups is not None
        )
        widths.append(found.high - found.low)
    assert 2.0 < widths[0] / widths[1] < 4.5


def test_fresh_groups_have_a_reserve_of_the_same_share() -> None:
    holdout = opened(reserve=0.25)
    generator = np.random.default_rng(5)
    names = np.repeat([f"q{number}" for number in range(60)], 4)
    rows, labels = generator.normal(size=(240, 3)), generator.integers(0, 2, 240)
    reserve = kept(holdout.replenish(rows, labels, groups=names))
    assert len(set(names[reserve])) == 15 and not set(names[reserve]) & set(names[~reserve])


def test_amended_labels_leave_a_reserve_in_groups_no_interval(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    holdout = opened(ledger=ledger, reserve=0.5)
    holdout.submit(GUESSES)
    before = holdout.reserve_certificate()
    amended = np.where(np.arange(N) == np.flatnonzero(kept(holdout))[0], 1 - y, y)
    with pytest.warns(UserWarning, match="differ"):
        later = opened(labels=amended, ledger=ledger)
    assert later.reserve_certificate() == before
    later.submit(y)
    assert "labels of the reserve were amended before, and its rows are in groups" in str(
        later.reserve_certificate()
    )


# -- coverage end to end --------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("estimand", [pytest.param("rows", marks=pytest.mark.nightly), "groups"])
def test_queries_of_a_reserve_in_groups_hold_together(estimand: str) -> None:
    # Labels of which each group has one, at a true accuracy of a half; the best of 30 guesses of
    # whole groups is queried, then the best of those that the answer speaks for, three times.
    # 40 holdouts: all queries hold at once in all but 5 % of them. A right certificate fails this
    # with a chance of at most 1e-4; limits that take each row for a draw of its own do.
    misses = ignored = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        names = np.repeat(np.arange(60), generator.integers(1, 20, 60))
        labels = generator.integers(0, 2, 60)[names]
        holdout = opened(
            *(generator.normal(size=(len(names), 2)), labels),
            **{"groups": names, "estimand": estimand, "reserve": 0.5},
            mechanism=FullDisclosure(),
        )
        wrong = plain = False
        for _ in range(3):
            holdout.submit(generator.integers(0, 2, 60)[names])
            found = holdout.reserve_certificate()
            wrong |= not found.low <= 0.5 <= found.high
            reserve = kept(holdout)
            hits, n = round(found.score * reserve.sum()), int(reserve.sum())
            level = math.log(0.05) - (found.log_count or 0.0) - math.log(2)
            plain |= (
                not 1 - exact_upper(n - hits, n, level)
                <= 0.5
                <= 1 - exact_lower(n - hits, n, level)
            )
        misses += wrong
        ignored += plain
    assert misses <= binom.isf(1e-4, 40, 0.05) < ignored


@pytest.mark.long
@pytest.mark.parametrize("estimand", ["rows", pytest.param("groups", marks=pytest.mark.nightly)])
def test_a_climb_in_groups_is_certified(estimand: str) -> None:
    # Improvements of a random climb, on labels of which each group has one: at a true accuracy of
    # a half, 25 holdouts. A right certificate fails this with a chance of at most 1e-4.
    misses = ignored = 0
    for seed in range(25):
        generator = np.random.default_rng(seed)
        names = np.repeat(np.arange(60), generator.integers(1, 20, 60))
        labels = generator.integers(0, 2, 60)[names]
        holdout = opened(
            generator.normal(size=(len(names), 2)), labels, groups=names, estimand=estimand
        )
        single = opened(generator.normal(size=(len(names), 2)), labels, groups=None)
        best = generator.integers(0, 2, 60)
        for _ in range(25):
            tried = np.where(generator.random(60) < 0.1, 1 - best, best)
            release = holdout.submit(tried[names])
            single.submit(tried[names])
            best = tried if release.improved else best
        misses += not holdout.certificate().low <= 0.5 <= holdout.certificate().high
        ignored += not single.certificate().low <= 0.5 <= single.certificate().high
    assert misses <= binom.isf(1e-4, 25, 0.05) < ignored


# -- command line and server ----------------------------------------------------------------------


def test_groups_on_the_command_line(tmp_path: Path) -> None:
    file, ledger = tmp_path / "rows.csv", str(tmp_path / "ledger.db")
    pd.DataFrame(X, columns=list("abc")).assign(patient=NAMES, label=y).to_csv(file, index=False)
    said = CliRunner().invoke(
        app,
        ["register", str(file), "--target", "label", "--scoring", "accuracy", "--name", "visits",
         "--groups", "patient", "--estimand", "groups", "--ledger", ledger],
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    guesses = tmp_path / "guesses.csv"
    pd.DataFrame({"label": GUESSES}).to_csv(guesses, index=False)
    for command in (["submit", "visits", str(guesses)], ["certificate", "visits"]):
        said = CliRunner().invoke(app, [*command, "--ledger", ledger])
        assert said.exit_code == 0, said.output
    assert "the mean over groups" in said.output
    frame = pd.DataFrame(X, columns=list("abc")).assign(patient=NAMES)
    again = LadderHoldout(frame, y, groups="patient", scoring="accuracy", ledger=ledger)
    assert again.certificate().mean_over == "groups"


@pytest.mark.processes
def test_groups_behind_a_server(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    n = len(rows()[1])
    registered(ledger, groups=np.arange(n) // 4)
    token = token_of(ledger, "Ada")
    train, labels = rows(seed=7)
    names = 1000 + np.arange(len(labels)) // 3
    with serving(ledger, tmp_path, "--share-rows", "churn") as server:
        remote = LadderHoldout.connect(f"{server.url}/holdouts/churn", token, timeout=30)
        search = remote.guard(grid()).fit(train, labels, groups=names)
        assert "the mean over rows" in search.certificate_.line()
        assert "the mean over rows" in remote.certificate().line()
        names[0] = 3
        with pytest.raises(OverlapError, match="Group '3' of the training rows"):
            remote.guard(grid()).fit(train, labels, groups=names)
