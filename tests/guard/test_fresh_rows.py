"""Attacks fresh rows: what goes on, what starts anew, what is refused, and what verify finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from ladderholdout import InvalidArgument, LadderHoldout, Metric, SearchStopped
from ladderholdout.errors import (
    CopiedRowsWarning,
    HoldoutConflict,
    KnownHoldoutWarning,
    OverlapError,
    OverlapWarning,
    RestoredWarning,
    TargetWarning,
    UnknownHoldout,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.mechanisms import GateLadder, Ladder
from tests.support.holdouts import assert_replays, coins, guesses
from tests.support.ledgers import copy, counts, findings, overwrite, remove, tamper, undone

N = 60


@pytest.fixture
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A file, or memory: what replenishing does itself is tested in both."""
    in_memory = getattr(request, "param", "file") == "memory"
    return f"memory:{tmp_path.name}" if in_memory else str(tmp_path / "ledger.db")


anywhere = pytest.mark.parametrize("ledger", ["memory", "file"], indirect=True)


def opened(ledger: str, **stated: Any) -> LadderHoldout:
    rows = [stated.pop(name, part) for name, part in zip("Xy", coins(N), strict=True)]
    return LadderHoldout(*rows, ledger=ledger, **{"scoring": "accuracy", "name": "coins", **stated})


def intact(holdout: LadderHoldout, name: str = "coins") -> int:
    """Return how many blocks were verified, none of which was changed."""
    verified = verify_holdout(holdout.ledger, name)
    assert verified.findings == ()
    return verified.blocks


# -- what goes on, and what starts anew ---------------------------------------------------------


@anywhere
def test_fresh_rows_take_the_place_of_those_before(ledger: str) -> None:
    first = opened(ledger)
    for predictions in guesses(0, 20):
        first.submit(predictions)
    before = first.status()
    X, y = coins(90, 1)
    holdout = first.replenish(X, y)
    status = holdout.status()
    assert (status.name, status.block, status.n) == ("coins", 2, 90)
    assert (status.submissions, status.incumbent, status.score) == (0, None, None)
    assert dict(status.lines())["block"] == "2, the rows before it are coins@1"
    assert holdout.submit(1 - y).improved  # the first submission is the first incumbent
    assert holdout.submit(y).score == 1.0
    # Nothing that was released about block 1 is paid for: as on rows that were never queried.
    unused = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
    unused.submit(1 - y), unused.submit(y)
    assert holdout.certificate().bill == unused.certificate().bill
    assert holdout.certificate().low == unused.certificate().low
    # The earlier block keeps all but its place.
    after = first.status()
    assert (first.name, after.block, after.score) == ("coins@1", 1, before.score)
    assert (after.certificate, after.latest) == (before.certificate, before.latest)
    assert after.retired is not None and "by fresh rows" in dict(after.lines())["followed"]
    assert intact(first) == 2 and intact(first, "coins@1") == 1
    assert_replays(first)
    assert_replays(holdout)


def test_any_number_of_blocks_are_one_holdout(tmp_path: Path) -> None:
    """As many as have numbers of two digits: names are no order."""
    holdout = opened(ledger := str(tmp_path / "ledger.db"))
    for number in range(1, 11):
        holdout.submit(coins(N, number - 1)[1])
        holdout = holdout.replenish(*coins(N, number))
    again = LadderHoldout.open("coins", ledger=ledger)
    assert again == holdout and again.status().block == 11
    assert LadderHoldout.open("coins@10", ledger=ledger).status().submissions == 1
    assert verify_holdout(holdout.ledger, "coins").submissions == 10
    assert intact(holdout) == 11 and intact(holdout, "coins@3") == 3
    assert "coins@1 to coins@10" in dict(again.status().lines())["block"]


def test_all_ladders_and_their_settings_go_on(ledger: str) -> None:
    X, y = coins(N)
    stated = {"name": "coins", "ledger": ledger, "reserve": 0.3, "confidence": 0.9}
    first = LadderHoldout(X, y, scoring=["accuracy", "neg_brier_score"], budget=7, **stated)
    first.submit({"labels": y, "probabilities": y / 2 + 0.25})
    other = {"scoring": "accuracy", "mechanism": Ladder(0.03), "ladder": "steps", **stated}
    with pytest.warns(KnownHoldoutWarning, match="opens ladder 'steps'"):
        LadderHoldout(X, y, **other).submit(y)
    X2, y2 = coins(100, 1)
    holdout = first.replenish(X2, y2)
    assert list(holdout.metrics) == ["accuracy", "neg_brier_score"]
    released = holdout.submit({"labels": y2, "probabilities": y2 / 2 + 0.25})
    assert released["accuracy"].score == 1.0
    assert released["accuracy"].releases_left == 6
    status = holdout.status()
    assert (status.reserve, status["neg_brier_score"].budget) == (30, 7)
    steps = LadderHoldout(X2, y2, ladder="steps", ledger=ledger)
    assert steps.rules.mechanism == Ladder(0.03) and steps.submit(y2).improved
    assert steps.certificate().confidence == 0.9
    assert intact(first) == 2


def test_what_decides_alone_begins_with_an_incumbent_on_fresh_rows() -> None:
    first = opened("memory", mechanism=GateLadder(alpha=0.05))
    first.submit(coins(N)[1])
    X, y = coins(200, 1)
    holdout = first.replenish(X, y)
    base = np.where(np.arange(200) < 140, y, 1 - y)
    assert holdout.rules.mechanism == GateLadder(alpha=0.05)
    assert [holdout.submit(p).improved for p in (base, 1 - base, y)] == [True, False, True]


def test_the_steps_of_a_default_rule_follow_the_number_of_rows() -> None:
    def steps(holdout: LadderHoldout) -> Any:
        return holdout.rules.mechanism

    roc = {"scoring": "roc_auc", "ledger": "memory"}
    X, y = coins(1000, 3)
    default = LadderHoldout(X, y, **roc)
    assert steps(opened("memory", scoring="roc_auc").replenish(X, y)) == steps(default)
    stated = opened("memory", scoring="roc_auc", mechanism=Ladder(0.05))
    assert steps(stated.replenish(X, y)) == Ladder(0.05)


def test_metrics_of_ones_own_and_ranges_go_on(tmp_path: Path) -> None:
    def cost(targets: Any, predictions: Any) -> Any:
        return np.abs(targets - predictions) / 2

    metric = Metric("neg_cost", "labels", loss=cost, loss_range=(0, 1))
    mean_squared = {"scoring": "neg_mean_squared_error", "loss_range": (0, 1)}
    for name, stated in (("own", {"scoring": metric}), ("range", mean_squared)):
        first = opened(str(tmp_path / f"{name}.db"), **stated)
        first.submit(coins(N)[1] * 0)
        X, y = coins(N, 1)
        holdout = first.replenish(X, y)
        assert holdout.metric == first.metric
        assert holdout.rules == first.rules
        half = holdout.submit(np.zeros(N, int)).score
        assert half == pytest.approx(-np.mean(y) / (2 if name == "own" else 1), abs=0.01)
        assert holdout.certificate().missing is None
        again = LadderHoldout.open("coins", scoring=stated["scoring"] if name == "own" else None,
                                   ledger=str(tmp_path / f"{name}.db"))  # fmt: skip
        assert again.submit(y).improved
        assert intact(again) == 2


def test_repeats_and_numbers_begin_anew() -> None:
    first = opened("memory", budget=3)
    predictions = guesses(0, 1)[0]
    first.submit(predictions)
    holdout = first.replenish(*coins(N, 1))
    assert holdout.submit(predictions).submission == 1
    assert holdout.history()[0].repeat_of is None
    assert holdout.status().releases_left == 2  # a budget is of each block
    assert len(first.history()) == 1


def test_a_board_goes_on(tmp_path: Path) -> None:
    place, (X, y) = tmp_path / "ledger.db", coins(N)
    board = Leaderboard(X, y, scoring="accuracy", name="cup", ledger=place)
    board.submit("ada", y)
    owner = LadderHoldout.open("cup", account="ada", ladder="leaderboard", ledger=place)
    X2, y2 = coins(N, 1)
    owner.replenish(X2, y2)
    again = Leaderboard.open("cup", ledger=place)
    again.submit("ada", y2)
    assert [row.score for row in again.standings().rows] == [1.0]


# -- who was there before -----------------------------------------------------------------------


def test_earlier_handles_are_refused_with_the_way_on(ledger: str) -> None:
    first = opened(ledger)
    first.submit(guesses(0, 1)[0])
    holdout = first.replenish(*coins(N, 1))
    with pytest.raises(HoldoutConflict, match=r"open 'coins', LadderHoldout.open\('coins'\)"):
        first.submit(guesses(1, 1)[0])
    with pytest.raises(HoldoutConflict, match="Fresh rows took the place"):
        first.replenish(*coins(N, 2))
    # The rows themselves are known for what they are, under whatever name.
    with pytest.warns(KnownHoldoutWarning, match="known as 'coins@1'"):
        again = opened(ledger)
    assert again.name == "coins@1"
    with pytest.raises(HoldoutConflict, match="Fresh rows took the place"):
        again.submit(guesses(1, 1)[0])
    assert LadderHoldout(*coins(N, 1), ledger=ledger) == holdout


def test_a_retired_holdout_can_be_given_fresh_rows() -> None:
    first = opened("memory")
    retired = first.owner.retire().retired
    holdout = first.replenish(*coins(N, 1))
    assert holdout.submit(coins(N, 1)[1]).score == 1.0
    assert first.status().retired == retired
    assert intact(holdout) == 2


def test_an_audit_of_an_earlier_block_does_not_open_the_newest() -> None:
    first = opened("memory")
    first.submit(coins(N)[1])
    holdout = first.replenish(*coins(N, 1))
    assert len(first.owner.audit().submissions) == 1
    assert first.status().opened is not None and holdout.status().opened is None
    holdout.submit(coins(N, 1)[1])
    assert holdout.certificate().missing is None


def test_a_scorer_knows_the_rows_of_earlier_blocks() -> None:
    from sklearn.dummy import DummyClassifier

    first, X, y = opened("memory"), *coins(N)
    model = DummyClassifier().fit(X, y)
    holdout = first.replenish(*coins(N, 1))
    with pytest.raises(SearchStopped, match="before fresh ones took their place"):
        holdout(model, X[::-1], y[::-1])
    assert holdout(model, *coins(N, 1)) is not None
    # Some of them may be among the training rows now.
    with pytest.warns(match="not being consulted"):
        opened("memory", name="others").replenish(*coins(N, 2))(model, X[:20], y[:20])


def test_what_was_made_with_earlier_rows_scores_no_newer_ones(ledger: str) -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.model_selection import GridSearchCV

    first, (X, y) = opened(ledger), coins(N, 2)
    model = DummyClassifier().fit(X, y)
    search = first.guard(GridSearchCV(model, {"constant": [0, 1]}, cv=2)).fit(X, y)
    right = pytest.approx((search.predict(X) == y).mean())
    assert search.score(X, y) == right  # what is known of blocks now is not kept for later
    second = first.replenish(*coins(N, 1))
    second.replenish(*coins(N, 3))
    for number in (1, 3):
        for rows in (slice(None), slice(1, None, 2)):
            newer, labels = (part[rows] for part in coins(N, number))
            with pytest.raises(SearchStopped, match="took the place of those which this object"):
                search.score(newer, labels)
            with pytest.raises(SearchStopped, match="took the place of those which this object"):
                first(model, newer, labels)
    with pytest.raises(SearchStopped, match="took the place of those which this object"):
        second(model, *coins(N, 3))
    assert search.score(X, y) == right  # rows of one's own


@pytest.mark.parametrize("named", ["ids", "groups"])
def test_ids_and_groups_of_another_kind_are_not_taken_for_fresh(named: str) -> None:
    names = np.arange(N) // (1 + (named == "groups"))
    first = opened("memory", **{named: names})
    with pytest.raises(InvalidArgument, match=f"{named} must be numbers, as the .* but is texts"):
        first.replenish(*coins(N, 1), **{named: [f"{name:03}" for name in names]})
    with pytest.raises(OverlapError, match="60 of these 60 rows"):
        first.replenish(*coins(N, 1), **{named: names.astype(float)})
    assert first.status().block == 1


def test_rows_are_known_by_ids_in_another_spelling(ledger: str) -> None:
    first = opened(ledger, ids=np.arange(N))
    X, y = coins(N, 1)
    with pytest.raises(OverlapError, match="10 of these 60 rows"):
        opened(
            ledger, name="other", X=X, y=y, ids=[f"{k:04}" for k in range(50, 110)], overlap="error"
        )
    with pytest.warns(KnownHoldoutWarning, match="known by their ids"):
        assert opened(ledger, X=X, y=coins(N)[1], ids=[f"{k}.0" for k in range(N)]) == first


def table(seed: int) -> tuple[pd.DataFrame, Any]:
    X, y = coins(N, seed)
    return pd.DataFrame(X, columns=list("abc")), y


def mixed(known: int, other: int) -> tuple[pd.DataFrame, Any]:
    """Rows of which the first 20 are known."""
    (X, y), (more, labels) = table(known), table(other)
    return pd.concat([X[:20], more[20:]], ignore_index=True), np.r_[y[:20], labels[20:]]


@pytest.mark.parametrize("known", [0, 1])
@pytest.mark.parametrize(
    "changed",
    [
        lambda X: X[["c", "a", "b"]],
        lambda X: X[["a", "c"]],
        lambda X: X.assign(d=1.5 * X["b"]),
        lambda X: X.to_numpy()[:, [2, 0]],
    ],
    ids=["moved", "dropped", "added", "without names"],
)
def test_rows_are_known_in_other_columns(tmp_path: Path, changed: Any, known: int) -> None:
    first = opened(str(tmp_path / "ledger.db"), X=table(0)[0])
    holdout = first.replenish(*table(1))
    X, y = mixed(known, 2)
    with pytest.raises(OverlapError, match=r"20 of these 60 rows \(at 0, 1, 2, 3, 4, ...\)"):
        holdout.replenish(changed(X), y)
    with pytest.raises(OverlapError, match=r"40 of these 60 rows .* are among the training rows"):
        holdout.replenish(*table(2), training=changed(X))
    assert holdout.status().retired is None


@pytest.mark.parametrize(
    "rounded",
    [lambda X: X.round(6), lambda X: X + 1e-6, lambda X: X.map(lambda v: float(f"{v:.4g}"))],
)
def test_copies_that_were_rounded_are_not_fresh(rounded: Any) -> None:
    first = opened("memory", X=table(0)[0])
    (X, y), (more, labels) = table(0), table(1)
    with pytest.raises(OverlapError, match="About 60 of these 60 rows are nearly rows of 'coins'"):
        first.replenish(rounded(X)[::-1], y[::-1])
    few = pd.concat([rounded(X)[:20], more[20:]]), np.r_[y[:20], labels[20:]]
    with pytest.warns(OverlapWarning, match="About 20 of these 60 rows"):
        assert first.replenish(*few).status().block == 2


def test_columns_are_compared_before_a_block_ends(ledger: str) -> None:
    first = opened(ledger, X=table(0)[0])
    model = LogisticRegression().fit(*table(5))
    X, y = table(1)
    for other, why in (
        (X.assign(y=y), "with 'y'"),
        (X[["a", "b"]], "without 'c'"),
        (X.rename(columns=str.upper), "without 'a', 'b', 'c' and with 'A'"),
        (X.astype(str), "texts"),
        (X.to_numpy()[:, :2], "of 2 columns"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            first.replenish(other, y)
        assert first.submit(model).submission  # the block stays
    with pytest.raises(InvalidArgument, match="y must be"):
        first.replenish(X, y.astype(str))
    holdout = first.replenish(X[["c", "b", "a"]], y.astype(bool))
    by_place = model.predict(X)
    assert holdout.submit(model).score == pytest.approx((by_place == y).mean(), abs=0.05)
    assert list(holdout.__ladder__.rows().X.columns) == ["a", "b", "c"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("places", "why"),
    [
        (np.flatnonzero(coins(N, 1)[1] == 1), "of one class alone"),
        (np.arange(5), "are 5, less than a tenth of the 60 before"),
    ],
)
def test_fresh_rows_of_one_class_or_a_tenth_are_warned_of_before_a_block_ends(
    places: Any, why: str, tmp_path: Path
) -> None:
    holdout, (X, y) = opened(str(tmp_path / "ledger.db")), coins(N, 1)
    with pytest.raises(TargetWarning, match=why):
        holdout.replenish(X[places], y[places])
    assert holdout.submit(y).submission == 1, "the block stays"
    assert holdout.replenish(X, y).status().block == 2


def test_training_rows_are_known_in_other_columns() -> None:
    """A step that chooses columns by name leaves their order, and others beside them, open."""
    from sklearn.compose import make_column_transformer
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    chosen = make_column_transformer(("passthrough", ["a", "b"]))
    model = make_pipeline(chosen, LogisticRegression())
    search = GridSearchCV(model, {"logisticregression__C": [1.0]}, cv=2)
    for change in (lambda X: X[["c", "b", "a"]], lambda X: X.assign(d=X["a"] + X["b"])):
        X, y = mixed(0, 1)
        with pytest.warns(OverlapWarning, match="20 of the 60 rows of the holdout are among"):
            opened("memory", X=table(0)[0]).guard(search).fit(change(X), y)


def test_names_of_earlier_blocks_are_taken() -> None:
    for name in ("coins@1", "a@b@22"):
        with pytest.raises(InvalidArgument, match="names an earlier block"):
            opened("memory", name=name)
    opened("memory", name="ada@home").replenish(*coins(N, 1))
    with pytest.raises(HoldoutConflict, match=r"open\('coins'\).replenish"):
        LadderHoldout(
            *coins(N, 1), scoring="accuracy", name="coins", ledger=opened("memory").ledger
        )
    with pytest.raises(UnknownHoldout):
        LadderHoldout.open("coins@1", ledger=opened("memory").ledger)


def test_rows_travel_where_no_copy_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first = opened(str(path), vault=False)
    X, y = coins(N, 1)
    holdout = first.replenish(X, y)
    assert holdout.submit(y).score == 1.0
    assert counts(path)["vault"] == 0
    kept = opened(str(tmp_path / "other.db"), vault=tmp_path / "rows")
    kept.replenish(X, y)
    assert len(list((tmp_path / "rows").iterdir())) == 4  # two copies, two marks


# -- rows that are not fresh --------------------------------------------------------------------


def with_old(count: int, seed: int = 1) -> tuple[Any, Any]:
    """Fresh rows, of which the last ones are of the first block."""
    (X, y), (X_old, y_old) = coins(N, seed), coins(N)
    return np.vstack([X[count:], X_old[:count]]), np.r_[y[count:], y_old[:count]]


def test_rows_of_any_block_are_refused_and_change_nothing(ledger: str) -> None:
    first = opened(ledger)
    first.submit(guesses(0, 1)[0])
    holdout = first.replenish(*coins(N, 1))
    status = holdout.status()
    with pytest.raises(OverlapError, match=r"1 of these 60 rows \(at 59\) are rows of 'coins@1'"):
        holdout.replenish(*with_old(1, 2))
    for rows in (coins(N), coins(N, 1)):
        with pytest.raises(OverlapError, match=r"These rows are 'coins"):
            holdout.replenish(*rows)
    with pytest.raises(OverlapError, match="are rows of 'coins@1'"):
        holdout.replenish(np.vstack([coins(N)[0], coins(N, 2)[0]]), np.r_[coins(N)[1], coins(N)[1]])
    assert holdout.status() == status and intact(holdout) == 2
    assert holdout.replenish(*coins(N, 2)).status().block == 3


def test_equal_rows_under_other_ids_are_refused() -> None:
    first = opened("memory", ids=np.arange(N))
    X, y = with_old(3)
    for ids in (np.arange(100, 160), np.r_[np.arange(100, 159), 5]):
        with pytest.raises(OverlapError, match="of 'coins' already"):
            first.replenish(X, y, ids=ids)
    with pytest.raises(OverlapError, match=r"1 of these 60 rows \(at 59\)"):  # by its id alone
        first.replenish(*coins(N, 1), ids=np.r_[np.arange(100, 159), 5])
    with pytest.raises(InvalidArgument, match="ids must be stated, as for the rows of 'coins'"):
        first.replenish(*coins(N, 1))
    with pytest.raises(InvalidArgument, match="ids must be stated"):
        first.replenish(*coins(N, 1), ids=np.zeros(N, int))
    holdout = first.replenish(*coins(N, 1), ids=np.arange(100, 160))
    order = np.random.default_rng(0).permutation(N)
    y = coins(N, 1)[1]
    assert holdout.submit(y[order], ids=(100 + np.arange(N))[order]).score == 1.0


def test_equal_rows_may_pass_and_are_counted_then(tmp_path: Path) -> None:
    plain, warned = (opened(str(tmp_path / name), overlap="warn") for name in ("one", "two"))
    for holdout in (plain, warned):
        for predictions in guesses(0, 30):
            holdout.submit(predictions)
    fresh = plain.replenish(*coins(N, 1))
    with pytest.warns(OverlapWarning, match="Certificates count it"):
        mixed = warned.replenish(*with_old(2))
    fresh.submit(coins(N, 1)[1])
    mixed.submit(with_old(2)[1])
    assert mixed.certificate().log_count > fresh.certificate().log_count
    assert [(seen.source, seen.rows) for seen in mixed.status().overlaps] == [
        ("the holdout coins@1", 2)
    ]
    assert intact(mixed) == 2


def test_rows_of_another_holdout_or_of_training_are_refused(ledger: str) -> None:
    first = opened(ledger)
    LadderHoldout(*coins(N, 5), scoring="accuracy", name="others", ledger=ledger)
    X, y = coins(N, 1)
    with pytest.raises(OverlapError, match="are rows of 'others' already"):
        first.replenish(np.vstack([X, coins(N, 5)[0][:2]]), np.r_[y, y[:2]])
    with pytest.raises(
        OverlapError, match=r"2 of these 60 rows \(at 3, 9\) are among the training"
    ):
        first.replenish(X, y, training=np.vstack([X[[9, 3]], coins(N, 7)[0]]))
    assert first.replenish(X, y, training=coins(N, 7)[0]).status().block == 2


@pytest.mark.parametrize(
    ("training", "came"),
    [
        (lambda X: X.astype(str), "one with texts"),
        (lambda X: pd.DataFrame({"q": [1, 2]}), "one with 0 of their 3"),
        (lambda X: X[:0], "empty"),
        (lambda X: X["a"].to_numpy(), "one text or number each"),
        (lambda X: X.to_numpy()[:, :2] + 1, "2 columns"),
    ],
)
def test_training_rows_that_cannot_be_compared_are_refused(training: Any, came: str) -> None:
    first, (X, y) = opened("memory", X=table(0)[0]), table(1)
    with pytest.raises(InvalidArgument, match=f"training must be .*{came}"):
        first.replenish(X, y, training=training(X))
    assert first.replenish(X, y, training=table(2)[0]).status().block == 2


def test_weights_are_asked_for_where_the_rows_so_far_have_them() -> None:
    weights = np.linspace(0.5, 2, N)
    first, (X, y) = opened("memory", sample_weight=weights), coins(N, 1)
    with pytest.raises(InvalidArgument, match="sample_weight must be stated, as for"):
        first.replenish(X, y)
    holdout = first.replenish(X, y, sample_weight=weights)
    half = np.where(np.arange(N) < N // 2, y, 1 - y)
    share = weights[: N // 2].sum() / weights.sum()
    assert holdout.submit(half).score == pytest.approx(share, abs=0.01)
    assert opened("memory").replenish(X, y, sample_weight=weights).submit(y).score == 1.0


def test_groups_travel_and_are_fresh_too() -> None:
    X, y = coins(N)
    names = np.repeat(np.arange(15), 4)
    first = LadderHoldout(X, y, scoring="accuracy", name="visits", groups=names, ledger="memory")
    fresh = coins(N, 1)
    with pytest.raises(InvalidArgument, match="groups must be stated"):
        first.replenish(*fresh)
    with pytest.raises(
        OverlapError, match=r"4 of these 60 rows \(at 56, 57, 58, 59\) are of group"
    ):
        first.replenish(*fresh, groups=np.repeat(np.r_[20:34, 3], 4))
    holdout = first.replenish(*fresh, groups=names + 100)
    holdout.submit(fresh[1])
    assert holdout.certificate().bound == "bets on groups"
    assert holdout.certificate().mean_over == "rows"
    assert intact(holdout, "visits") == 2
    with pytest.raises(InvalidArgument, match="groups must be left out"):
        opened("memory").replenish(*fresh, groups=names)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X, y: (X, y[:-1]), "y must be as long as X"),
        (lambda X, y: (X, y + 1), "y must be"),
        (lambda X, y: (X, np.full(len(y), np.nan)), "y"),
    ],
)
def test_rows_that_cannot_be_scored_leave_the_holdout_as_it_was(
    change: Callable[..., Any], match: str, ledger: str
) -> None:
    first = opened(ledger)
    first.submit(coins(N)[1])
    status = first.status()
    with pytest.raises(InvalidArgument, match=match):
        first.replenish(*change(*coins(N, 1)))
    assert first.status() == status and intact(first) == 1


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_leaves_the_holdout_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    first, before = opened(str(path)), counts(path)
    X, y = coins(N, 1)
    with pytest.raises(CopiedRowsWarning):
        first.replenish(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    assert counts(path) == before and first.name == "coins" and intact(first) == 1


# -- verify -------------------------------------------------------------------------------------


CHANGED: tuple[tuple[Callable[[Path], int], str], ...] = (
    (lambda path: remove(path, "holdout", holdout=1), "block 1 of 'coins' was removed"),
    (lambda path: remove(path, "holdout", holdout=2), "block 2 of 'coins' was removed"),
    (
        lambda path: tamper(path, "holdout", "name", "coins@7", holdout=1),
        "its name was changed: it is block 1 of 'coins'",
    ),
    (
        lambda path: tamper(path, "holdout", "block", 3, holdout=2),
        "the registration was changed or moved",
    ),
    (
        lambda path: remove(path, "submission", number=1, holdout=2),
        "in coins@2: 1 more entries of the chain were removed",
    ),
    (
        lambda path: remove(path, "event", kind="followed", holdout=1),
        "in coins@1: 1 entries at the end of the chain were removed",
    ),
)


def test_what_is_changed_of_any_block_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    holdout = opened(str(path))
    for number in (1, 2):
        holdout.submit(coins(N, number - 1)[1])
        holdout = holdout.replenish(*coins(N, number))
    for change, found in CHANGED:
        with undone(path):
            change(path)
            said = findings(path, "coins")
        assert any(found in line for line in said), (found, said)


def test_an_older_end_of_the_block_before_is_found(tmp_path: Path) -> None:
    """Whoever cuts a block at its end, and mends its chain, is found by the block after it."""
    path = tmp_path / "ledger.db"
    first = opened(str(path))
    first.submit(coins(N)[1])
    first.replenish(*coins(N, 1))
    tamper(path, "event", "hash", bytes.swapcase, kind="followed", holdout=1)
    found = findings(path, "coins")
    assert any("block 1 of 'coins' has lost the end that its chain had" in line for line in found)


def test_300_fresh_rows_after_60_nats_have_a_narrow_certificate() -> None:
    X, y = coins(300)
    holdout = LadderHoldout(X, y, scoring="accuracy", mechanism=Ladder(1 / 300), ledger="memory")
    order = np.random.default_rng(0).permutation(300)
    for right in range(230, 271):
        guess = 1 - y
        guess[order[:right]] = y[order[:right]]
        holdout.submit(guess)
    before = holdout.certificate()
    assert before.score == 0.9 and before.log_count > 60 and before.high - before.low > 0.25
    X, y = coins(300, 1)
    fresh = holdout.replenish(X, y)
    fresh.submit(np.where(np.arange(300) < 270, y, 1 - y))
    found = fresh.certificate()
    assert found.score == 0.9 and found.high - found.low <= 0.085


def test_a_ledger_of_before_the_fresh_rows_is_known_for_an_older_copy(tmp_path: Path) -> None:
    """Whoever puts the old file back cannot go on as if no fresh rows had come."""
    path, kept = tmp_path / "ledger.db", tmp_path / "kept.db"
    first = opened(str(path))
    first.submit(1 - coins(N)[1])
    copy(first, kept)
    first.replenish(*coins(N, 1)).submit(coins(N, 1)[1])
    overwrite(path, kept)
    again = LadderHoldout.open("coins", ledger=str(path))
    assert again.status().block == 1
    with pytest.warns(RestoredWarning):
        assert again.submit(coins(N)[1]).improved
    assert "older copy" in str(again.certificate().missing)
    assert any("older copy" in str(one) for one in verify_holdout(again.ledger, "coins").findings)


# -- an adversary -------------------------------------------------------------------------------


@pytest.mark.long
def test_who_knows_all_labels_of_earlier_blocks_misses_at_the_level() -> None:
    """Models that are perfect on block 1, and climb on block 2, have intervals that hold.

    The labels are coins, so the true accuracy of any model is 1/2. Each of 60 holdouts has a block
    of 100 rows whose labels the analyst knows entirely, then a fresh block of 100 rows. On that it
    submits what is best to submit to a ladder, majorities of the models that improved (30 of
    them). Certificates of 95 % miss in at most 8 of 60: more has a probability of .006 where a miss
    has exactly .05. Without a fresh block the first certificate would miss each time.
    """
    misses, runs = 0, 60
    for seed in range(runs):
        rng = np.random.default_rng([7, seed])
        (X1, y1), (X2, y2) = coins(100, 2 * seed), coins(100, 2 * seed + 1)
        first = LadderHoldout(X1, y1, scoring="accuracy", name="coins", ledger="memory")
        assert first.submit(y1).score == 1.0
        assert not first.certificate().low <= 0.5 <= first.certificate().high
        holdout = first.replenish(X2, y2)
        votes = np.zeros(100)
        holdout.submit((rng.random(100) < 0.5).astype(int))
        for _ in range(30):
            guess = np.where(votes == 0, rng.choice([-1, 1], 100), np.sign(votes))
            flipped = np.where(rng.random(100) < 0.2, -guess, guess).astype(int)
            if holdout.submit((flipped > 0).astype(int)).improved:
                votes += flipped
        found = holdout.certificate()
        misses += not found.low <= 0.5 <= found.high
    assert binom.sf(8, runs, 0.05) < 0.007
    assert misses <= 8
