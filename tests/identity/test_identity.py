"""Attacks "a holdout is its content": other names, orders, clothes, accounts, parts of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from ladderholdout import InvalidArgument, LadderHoldout, Metric, Release
from ladderholdout.errors import (
    HoldoutConflict,
    KnownHoldoutWarning,
    LadderHoldoutError,
    OverlapError,
    OverlapWarning,
    RangeWarning,
)
from ladderholdout.mechanisms import Ladder, ParameterFreeLadder, SimplifiedLadder
from tests.support.beyond_plain import pd
from tests.support.holdouts import SHAKY, assert_replays, coins, guesses, is_repeat, repeats_first
from tests.support.ledgers import counts, entries_of
from tests.support.processes import elsewhere

N = 60


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(ledger: Any, X: Any = None, y: Any = None, **given: Any) -> LadderHoldout:
    ours = coins(N)
    X, y = ours[0] if X is None else X, ours[1] if y is None else y
    return LadderHoldout(X, y, ledger=ledger, **{"scoring": "accuracy", "name": "first"} | given)


class Linear:
    """A fitted classifier whose predictions depend on the row."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> Any:
        return (np.asarray(X)[:, 0] > 0).astype(int)


# The same rows


def test_another_name_goes_on(ledger: Path) -> None:
    first = opened(ledger)
    told = first.submit(guesses(0, 1)[0])
    before = counts(ledger)
    with pytest.warns(KnownHoldoutWarning, match="known as 'first'.*going on with 'first'"):
        second = opened(ledger, name="second")
    assert counts(ledger) == before
    assert (second.name, second) == ("first", first)
    assert repeats_first(second, second.submit(guesses(0, 1)[0]), told)


def test_a_restart_without_a_name_goes_on(ledger: Path) -> None:
    first = opened(ledger)
    told = first.submit(guesses(0, 1)[0])
    again = LadderHoldout(*coins(N), ledger=ledger)
    assert again.name == "first"
    assert repeats_first(again, again.submit(guesses(0, 1)[0]), told)


def test_a_name_is_made_of_the_fingerprint_where_none_is_given(ledger: Path) -> None:
    holdout = opened(ledger, name=None)
    assert holdout.name == f"holdout-{holdout.status().fingerprint[:8]}"
    assert LadderHoldout.open(holdout.name, ledger=ledger) == holdout


CLOTHES: dict[str, Callable[[Any], Any]] = {
    "float32": lambda X: X.astype(np.float32),
    "list": lambda X: X.tolist(),
    "sparse": scipy.sparse.csr_array,
    "Fortran order": np.asfortranarray,
}
if pd is not None:
    CLOTHES |= {
        "DataFrame": pd.DataFrame,
        "named DataFrame": lambda X: pd.DataFrame(X, columns=list("abc"), index=range(3, 3 + N)),
    }


@pytest.mark.parametrize("dress", CLOTHES.values(), ids=list(CLOTHES))
def test_other_clothes_go_on(ledger: Path, dress: Callable[[Any], Any]) -> None:
    first = opened(ledger)
    told = first.submit(guesses(0, 1)[0])
    X, y = coins(N)
    before = counts(ledger)
    again = LadderHoldout(dress(X), y.tolist() if pd is None else pd.Series(y), ledger=ledger)
    assert counts(ledger) == before
    assert (again, again.name) == (first, "first")
    assert repeats_first(again, again.submit(guesses(0, 1)[0]), told)


@pytest.mark.parametrize("mechanism", [ParameterFreeLadder(), SHAKY], ids=lambda one: one.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_shuffled_rows_go_on(ledger: Path, mechanism: Any, weighted: bool) -> None:
    (X, y), rng = coins(N), np.random.default_rng(1)
    weights = rng.integers(1, 4, N).astype(float) if weighted else None
    first = opened(ledger, mechanism=mechanism, sample_weight=weights)
    told = [first.submit(one) for one in guesses(0, 10)]
    order = rng.permutation(N)
    with pytest.warns(KnownHoldoutWarning, match="rows of 'first' in another order"):
        shuffled = LadderHoldout(
            X[order], y[order], ledger=ledger, sample_weight=weights[order] if weighted else None
        )
    now = first.status().score
    for predictions, release in zip(guesses(0, 10), told, strict=True):
        again = shuffled.submit(predictions[order])
        assert (again.score, again.improved, again.repeat_of) == (now, False, release.submission)
        assert is_repeat(first, again)
    # A fresh look through the shuffled handle is a repeat through the other, and the truth
    # is found in either order.
    new = guesses(1, 1)[0]
    there = shuffled.submit(new[order])
    assert (there.submission, is_repeat(first, there)) == (21, False)
    assert first.submit(new) == Release(
        first.status().score, False, 22, None, repeat_of=21, is_incumbent=there.is_incumbent
    )
    assert first.submit(y).improved
    assert is_repeat(shuffled, shuffled.submit(y[order]))
    assert_replays(first)


@pytest.mark.processes
def test_a_model_predicts_alike_on_shuffled_rows(ledger: Path) -> None:
    (X, y), order = coins(N), np.random.default_rng(1).permutation(N)
    first = opened(ledger)
    told = first.submit(Linear())
    with pytest.warns(KnownHoldoutWarning):
        shuffled = LadderHoldout(X[order], y[order], ledger=ledger)
    for again in (
        shuffled.submit(Linear()),
        shuffled.submit(Linear().predict(X[order])),
        first.submit(Linear().predict(X)),
        elsewhere(LadderHoldout.submit, shuffled, Linear()),
    ):
        assert repeats_first(first, again, told)


@pytest.mark.processes
@pytest.mark.parametrize("vault", [None, False])
def test_a_shuffled_handle_refuses_to_submit_in_another_process(ledger: Path, vault: Any) -> None:
    (X, y), order = coins(N), np.random.default_rng(1).permutation(N)
    first = opened(ledger, vault=vault)
    with pytest.warns(KnownHoldoutWarning):
        shuffled = LadderHoldout(X[order], y[order], ledger=ledger)
    before = counts(ledger)
    with pytest.raises(InvalidArgument, match=r"another process.*submit an estimator"):
        elsewhere(LadderHoldout.submit, shuffled, y[order])
    assert counts(ledger) == before
    told = elsewhere(LadderHoldout.submit, shuffled, Linear())
    assert told.submission == 1
    assert is_repeat(first, first.submit(Linear().predict(X)))


def submit_beside(
    shuffled: LadderHoldout, first: LadderHoldout, predictions: Any
) -> tuple[Release, Release]:
    """Use the shuffled handle first, so that its rows are what this process reads first."""
    return shuffled.submit(Linear()), first.submit(predictions)


@pytest.mark.processes
@pytest.mark.parametrize("vault", [None, False])
def test_a_shuffled_handle_does_not_shuffle_the_others(ledger: Path, vault: Any) -> None:
    """The rows that were read last are those of the shuffled one; nobody else may use them."""
    (X, y), order = coins(N), np.random.default_rng(1).permutation(N)
    first = opened(ledger, vault=vault)
    told = first.submit(guesses(0, 1)[0])
    with pytest.warns(KnownHoldoutWarning):
        shuffled = LadderHoldout(X[order], y[order], ledger=ledger)
    plain = LadderHoldout.open("first", ledger=ledger).submit(guesses(0, 1)[0])
    beside = elsewhere(submit_beside, shuffled, first, guesses(0, 1)[0])[1]
    for again in (plain, beside, shuffled.submit(guesses(0, 1)[0][order])):
        assert repeats_first(first, again, told)


def test_each_handle_keeps_its_own_order(ledger: Path) -> None:
    (X, y), rng = coins(N), np.random.default_rng(1)
    first = opened(ledger)
    told = first.submit(guesses(0, 1)[0])
    orders = [rng.permutation(N) for _ in range(3)]
    with pytest.warns(KnownHoldoutWarning):
        handles = [LadderHoldout(X[order], y[order], ledger=ledger) for order in orders]
    for handle, order in zip(handles, orders, strict=True):
        again = handle.submit(guesses(0, 1)[0][order])
        assert (again.score, is_repeat(handle, again)) == (told.score, True)


def test_rows_that_occur_twice_are_shuffled_too(ledger: Path) -> None:
    X, y = coins(N)
    X, y = np.vstack([X, X[:20]]), np.concatenate([y, 1 - y[:20]])
    first = opened(ledger, X, y)
    told = [first.submit(one) for one in guesses(0, 5, len(y))]
    order = np.random.default_rng(1).permutation(len(y))
    with pytest.warns(KnownHoldoutWarning):
        shuffled = LadderHoldout(X[order], y[order], ledger=ledger)
    for predictions, release in zip(guesses(0, 5, len(y)), told, strict=True):
        again = shuffled.submit(predictions[order])
        assert entries_of(first)[again.submission - 1].repeat_of == release.submission


def test_the_digest_in_the_ledger_tells_nothing_of_the_labels() -> None:
    """Predictions are kept in the order of rows with labels, so a digest without a key tells it.

    Whoever predicts one class for all rows but one would find that one's place in the order by
    trying all N places, and with it what the row and its label hash to.
    """
    X, y = coins(N)
    predictions = [np.eye(N, dtype=int)[row] for row in range(N)]
    digests = []
    for _ in range(2):
        holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        for one in predictions:
            holdout.submit(one)
        digests.append([one.digest for one in entries_of(holdout)])
        assert len(set(digests[-1])) == N
    # Had they no key, the same rows, labels and predictions would give the same digests.
    assert not set(digests[0]) & set(digests[1])


# Second ladders


@pytest.mark.parametrize("what", [{"account": "second"}, {"ladder": "second"}])
def test_a_second_ladder_does_not_start_afresh_unseen(ledger: Path, what: dict[str, str]) -> None:
    first = opened(ledger)
    for predictions in guesses(0, 4):
        first.submit(predictions)
    with pytest.warns(
        KnownHoldoutWarning, match=r"has 1 already with 4 submissions.*count together"
    ):
        second = opened(ledger, **what)
    assert counts(ledger) == {
        "holdouts": 1,
        "ladders": 2,
        "submissions": 4,
        "overlaps": 0,
        "reserve queries": 0,
        "views": 0,
        "incumbents": 1,
        "vault": 1,
    }
    assert second != first
    assert second.submit(guesses(0, 1)[0]) != first.submit(guesses(0, 1)[0])
    for holdout in (first, second):
        status = holdout.status()
        assert [looks for *_, looks in status.ladders] == [5, 1]
        assert "all ladders on it" in dict(status.lines())
    assert second.history()[0].account == what.get("account", "default")
    # Going on with either is silent.
    opened(ledger, **what)
    opened(ledger)


def test_a_second_ladder_may_have_other_rules(ledger: Path) -> None:
    first = opened(ledger, mechanism=ParameterFreeLadder())
    with pytest.warns(KnownHoldoutWarning):
        second = opened(ledger, ladder="second", mechanism=SHAKY, budget=5, scoring="f1")
    assert (second.rules.mechanism, second.rules.budget) == (SHAKY, 5)
    assert (first.rules.mechanism, first.rules.budget) == (ParameterFreeLadder(), None)
    assert (first.metric.name, second.metric.name) == ("accuracy", "f1")


# Other rows


def test_other_rows_of_the_same_name_are_refused(ledger: Path) -> None:
    opened(ledger)
    before = counts(ledger)
    with pytest.raises(HoldoutConflict, match="'first' is in the ledger for other rows"):
        opened(ledger, *coins(N, seed=1))
    assert counts(ledger) == before


def one_row(X: Any, y: Any) -> tuple[Any, Any]:
    X, y = X.copy(), y.copy()
    X[7, 1] += 1
    y[7] = 1 - y[7]
    return X, y


def six_labels(X: Any, y: Any) -> tuple[Any, Any]:
    y = y.copy()
    y[:6] = 1 - y[:6]
    return X, y


def half(X: Any, y: Any) -> tuple[Any, Any]:
    return X[: N // 2], y[: N // 2]


def half_elsewhere(X: Any, y: Any) -> tuple[Any, Any]:
    more = coins(N, seed=1)
    return np.vstack([X[: N // 2], more[0][: N // 2]]), np.concatenate([y[: N // 2], more[1][:30]])


def superset(X: Any, y: Any) -> tuple[Any, Any]:
    more = coins(10 * N, seed=1)
    return np.vstack([more[0], X]), np.concatenate([more[1], y])


# What is given the second time, how many of its rows stand in the first, and how many of
# the first stand in it.
LARGE = {
    "one row replaced": (one_row, 59, 59),
    "a tenth of the labels changed": (six_labels, 60, 60),
    "half of the rows": (half, 30, 30),
    "half of the rows among others": (half_elsewhere, 30, 30),
    "a superset": (superset, 60, 60),
    "float32 and one row replaced": (
        lambda X, y: (one_row(X, y)[0].astype(np.float32), one_row(X, y)[1]),
        59,
        59,
    ),
}
large = pytest.mark.parametrize(("change", "inside", "covered"), LARGE.values(), ids=list(LARGE))


@large
def test_rows_that_are_mostly_known_are_refused(
    ledger: Path, change: Callable[..., Any], inside: int, covered: int
) -> None:
    opened(ledger)
    X, y = change(*coins(N))
    for policy in ("auto", "error"):
        before = counts(ledger)
        with pytest.raises(OverlapError) as caught:
            opened(ledger, X, y, name="second", overlap=policy)
        assert f"{inside} of these {len(y)} rows are in the holdout 'first'" in str(caught.value)
        assert 'overlap="warn"' in str(caught.value)
        assert counts(ledger) == before


@large
def test_rows_that_are_mostly_known_are_let_in_knowingly(
    ledger: Path, change: Callable[..., Any], inside: int, covered: int
) -> None:
    first = opened(ledger)
    X, y = change(*coins(N))
    with pytest.warns(OverlapWarning, match=f"{inside} of these {len(y)} rows"):
        second = opened(ledger, X, y, name="second", overlap="warn")
    assert second != first
    assert [(one.source, one.rows) for one in second.status().overlaps] == [
        ("the holdout first", inside)
    ]
    assert [(one.source, one.rows) for one in first.status().overlaps] == [
        ("the holdout second", covered)
    ]
    for holdout in (first, second):
        assert "rows with the holdout" in str(holdout.status())
    assert second.submit(y).score == 1.0
    # Reopening says nothing again: it is known, and stands in the status.
    assert opened(ledger, X, y, name="second") == second


def test_a_warning_points_at_the_line_that_opened_the_holdout(ledger: Path) -> None:
    opened(ledger)
    X, y = coins(N)
    with pytest.warns() as said:
        LadderHoldout(X, y, name="second", ledger=ledger)
        LadderHoldout(X[::-1], y[::-1], ledger=ledger)
        LadderHoldout(X, y, scoring="f1", ladder="second", ledger=ledger)
        LadderHoldout(*one_row(X, y), scoring="f1", name="x", overlap="warn", ledger=ledger)
    assert [one.category.__name__ for one in said] == ["KnownHoldoutWarning"] * 3 + [
        "OverlapWarning"
    ]
    assert {one.filename for one in said} == {__file__}


def test_ignored_overlap_is_recorded_all_the_same(ledger: Path) -> None:
    first = opened(ledger)
    second = opened(ledger, *one_row(*coins(N)), name="second", overlap="ignore")
    for holdout in (first, second):
        assert [one.rows for one in holdout.status().overlaps] == [59]


def test_a_few_shared_rows_are_said(ledger: Path) -> None:
    first = opened(ledger)
    (X, y), more = coins(N), coins(N, seed=1)
    X, y = np.vstack([X[:3], more[0]]), np.concatenate([y[:3], more[1]])
    with pytest.raises(OverlapError):
        opened(ledger, X, y, name="second", overlap="error")
    with pytest.warns(OverlapWarning, match="3 of these 63 rows"):
        second = opened(ledger, X, y, name="second")
    for holdout in (first, second):
        assert [one.rows for one in holdout.status().overlaps] == [3]


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.CopiedRowsWarning")
def test_one_frequent_row_is_not_half_of_a_holdout(ledger: Path) -> None:
    """Honest tables hold rows of few values: one of them, often enough, covers no holdout."""
    (X, y), more = coins(N), coins(10 * N, seed=1)
    first = opened(ledger)
    often = np.vstack([more[0], np.repeat(X[:1], N, axis=0)])
    labels = np.concatenate([more[1], np.repeat(y[:1], N)])
    with pytest.warns(OverlapWarning, match="60 of these 660 rows"):
        second = opened(ledger, often, labels, name="second")
    assert [one.rows for one in second.status().overlaps] == [60]
    assert [one.rows for one in first.status().overlaps] == [1]


def test_rows_known_from_two_holdouts_are_said_of_both_in_one_sentence(ledger: Path) -> None:
    opened(ledger)
    opened(ledger, *coins(N, seed=1), name="second")
    parts = [coins(N, seed=seed) for seed in (0, 1, 2)]
    X = np.vstack([X[:15] for X, _ in parts])
    y = np.concatenate([y[:15] for _, y in parts])
    with pytest.warns(OverlapWarning) as said:
        third = opened(ledger, X, y, name="third")
    assert len(said) == 1
    text = str(said[0].message)
    assert text.startswith("15 of these 45 rows are in the holdout 'first' (60 rows, registered ")
    assert ", 15 in 'second' (60 rows" in text
    assert {(one.source, one.rows) for one in third.status().overlaps} == {
        ("the holdout first", 15),
        ("the holdout second", 15),
    }


def test_a_long_name_fits_where_it_is_recorded(ledger: Path) -> None:
    first = opened(ledger, name="n" * 200)
    second = opened(ledger, *one_row(*coins(N)), name="m" * 200, overlap="ignore")
    assert first.status().overlaps[0].source == f"the holdout {'m' * 200}"
    assert second.status().overlaps[0].source == f"the holdout {'n' * 200}"


# Training rows that pass through split


def training_rows(shared: int) -> tuple[Any, Any]:
    (X, y), more = coins(N), coins(2 * N, seed=1)
    return np.vstack([more[0], X[:shared]]), np.concatenate([more[1], y[:shared]])


def run_split(holdout: LadderHoldout, X: Any, y: Any) -> int:
    return len(list(holdout.split(inner=2).split(X, y)))


def test_no_shared_training_rows_are_silent(ledger: Path) -> None:
    holdout = opened(ledger)
    assert run_split(holdout, *training_rows(0)) == 3
    assert holdout.status().overlaps == ()


def test_a_few_shared_training_rows_are_said(ledger: Path) -> None:
    holdout = opened(ledger)
    with pytest.warns(OverlapWarning, match="3 of the 60 rows of the holdout are among the"):
        assert run_split(holdout, *training_rows(3)) == 3
    assert [(one.source, one.rows) for one in holdout.status().overlaps] == [("training rows", 3)]
    with pytest.warns(OverlapWarning):
        run_split(holdout, *training_rows(2))
    assert [one.rows for one in holdout.status().overlaps] == [3]  # the most that was seen
    assert "3 rows with training rows" in str(holdout.status())


def test_training_rows_in_other_clothes_are_found(ledger: Path) -> None:
    holdout = opened(ledger)
    X, y = training_rows(3)
    clothes = [X.astype(np.float32), scipy.sparse.csr_array(X), X.tolist()]
    for dressed in clothes if pd is None else [pd.DataFrame(X), *clothes]:
        with pytest.warns(OverlapWarning, match="3 of the 60 rows"):
            run_split(holdout, dressed, y)


@pytest.mark.parametrize("shared", [30, 45, 60])
def test_half_of_the_holdout_among_the_training_rows_is_refused(ledger: Path, shared: int) -> None:
    holdout = opened(ledger)
    X, y = training_rows(shared)
    with pytest.raises(OverlapError, match=f"{shared} of the 60 rows"):
        run_split(holdout, X, y)
    # Refused or not, somebody had these rows: the status says so.
    assert [one.rows for one in holdout.status().overlaps] == [shared]
    with pytest.warns(OverlapWarning, match=f"{shared} of the 60 rows"):
        run_split(opened(ledger, overlap="warn"), X, y)


def test_just_below_half_is_said(ledger: Path) -> None:
    with pytest.warns(OverlapWarning, match="29 of the 60 rows"):
        run_split(opened(ledger), *training_rows(29))


@pytest.mark.processes
def test_the_overlap_policy_goes_with_the_handle(ledger: Path) -> None:
    strict, mild = opened(ledger, overlap="error"), opened(ledger, overlap="ignore")
    with pytest.raises(OverlapError, match="1 of the 60 rows"):
        run_split(strict, *training_rows(1))
    run_split(mild, *training_rows(60))
    assert [one.rows for one in mild.status().overlaps] == [60]
    with pytest.raises(OverlapError):
        elsewhere(run_split, strict, *training_rows(1))


def test_equal_rows_of_honest_data_are_counted_once_for_each_of_the_holdout(ledger: Path) -> None:
    """A training row may be equal to one of the holdout a hundred times over: it is one row."""
    X, _ = coins(N)
    holdout = opened(ledger)
    train = np.vstack([coins(N, seed=1)[0], np.repeat(X[:1], 100, axis=0)])
    with pytest.warns(OverlapWarning, match="1 of the 60 rows"):
        run_split(holdout, train, np.arange(len(train)) % 2)


def test_rows_of_another_kind_cannot_be_compared_and_are_let_through(ledger: Path) -> None:
    holdout = opened(ledger)
    texts = [f"text {i}" for i in range(20)]
    assert run_split(holdout, texts, np.arange(20) % 2) == 3
    assert holdout.status().overlaps == ()


# Reopening under other settings


def distance(targets: Any, predictions: Any) -> Any:
    return np.abs(targets - predictions)


def own(name: str = "distance", **settings: Any) -> Metric:
    return Metric(name, "values", loss=distance, **settings)


FIRST: dict[str, dict[str, Any]] = {
    "plain": {"scoring": "accuracy", "mechanism": Ladder(step=0.05), "budget": 7},
    "bounded": {"scoring": "neg_mean_squared_error", "loss_range": (0, 5)},
    "own": {"scoring": own(loss_range=(0, 3))},
}
CONTRADICTIONS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("plain", {"scoring": "roc_auc"}, "scoring", "'accuracy'", "'roc_auc'"),
    (
        "plain",
        {"mechanism": Ladder(step=0.1)},
        "mechanism",
        "Ladder(step=0.05)",
        "Ladder(step=0.1)",
    ),
    (
        "plain",
        {"mechanism": SimplifiedLadder(step=0.05)},
        "mechanism",
        "Ladder(step=0.05)",
        "SimplifiedLadder(step=0.05)",
    ),
    ("plain", {"budget": 8}, "budget", "7", "8"),
    ("bounded", {"budget": 8}, "budget", "None", "8"),
    (
        "bounded",
        {"scoring": "neg_mean_squared_error", "loss_range": (0, 6)},
        "loss_range",
        "(0.0, 5.0)",
        "(0.0, 6.0)",
    ),
    ("own", {"scoring": own("another", loss_range=(0, 3))}, "scoring", "distance", "another"),
    ("own", {"scoring": own(loss_range=(0, 4))}, "scoring", "[0.0, 3.0]", "[0.0, 4.0]"),
    ("own", {"scoring": own(loss_range=(0, 3), offset=1.0)}, "scoring", "0.0", "1.0"),
]


@pytest.mark.parametrize(("first", "asked", "argument", "there", "here"), CONTRADICTIONS)
def test_other_settings_are_refused(
    ledger: Path, first: str, asked: dict[str, Any], argument: str, there: str, here: str
) -> None:
    X, y = coins(N)
    holdout = LadderHoldout(X, y, ledger=ledger, name="first", **FIRST[first])
    holdout.submit(guesses(0, 1)[0])
    before = counts(ledger)
    with pytest.raises(HoldoutConflict) as caught:
        LadderHoldout(X, y, ledger=ledger, **asked)
    said = str(caught.value)
    assert "'main' of account 'default' on 'first' is in the ledger with" in said
    for part in (argument, there, here, f"Leave {argument} out", 'ladder="another name"'):
        assert part in said
    assert counts(ledger) == before
    # The way out that it names is one.
    with pytest.warns(KnownHoldoutWarning, match="count together"):
        second = LadderHoldout(
            X, y, ledger=ledger, ladder="another name", **{"scoring": "accuracy"} | asked
        )
    assert second.status().submissions == 0


@pytest.mark.parametrize("first", list(FIRST))
def test_left_out_settings_go_on(ledger: Path, first: str) -> None:
    X, y = coins(N)
    holdout = LadderHoldout(X, y, ledger=ledger, name="first", **FIRST[first])
    told = holdout.submit(guesses(0, 1)[0])
    before = counts(ledger)
    again = [LadderHoldout(X, y, ledger=ledger, **FIRST[first])]
    for left_out in FIRST[first]:
        rest = {name: value for name, value in FIRST[first].items() if name != left_out}
        if left_out != "scoring":
            again.append(LadderHoldout(X, y, ledger=ledger, **rest))
    if first != "own":  # the ledger keeps the name of a metric of one's own, not its function
        again.append(LadderHoldout(X, y, ledger=ledger))
        again.append(LadderHoldout.open("first", ledger=ledger))
    assert counts(ledger) == before
    for handle in again:
        assert handle.rules == holdout.rules
        assert handle.metric == holdout.metric
        repeat = handle.submit(guesses(0, 1)[0])
        assert (repeat.score, is_repeat(handle, repeat)) == (told.score, True)


def test_a_range_that_is_left_out_still_clips(ledger: Path) -> None:
    """Going on without loss_range must go on with it: else one row could move an interval."""
    X, y = coins(N)
    LadderHoldout(X, y, ledger=ledger, name="first", **FIRST["bounded"])
    again = LadderHoldout(X, y, ledger=ledger, scoring="neg_mean_squared_error")
    far = y.astype(float)
    far[0] += 1000
    assert again.submit(far).score == pytest.approx(-(1000**2) / N, rel=0.01)
    with pytest.warns(RangeWarning, match=f"clipped at 5, which are 1 of {N} rows"):
        found = again.certificate()
    assert found.line().startswith("true score with losses clipped at 5")
    assert -0.5 < found.low < -5 / N < found.high <= 0.0


def test_other_classes_are_refused(ledger: Path) -> None:
    _, y = coins(N)
    holdout = opened(ledger, classes=[0, 1, 2])
    holdout.submit(np.full(N, 2))
    before = counts(ledger)
    for classes in ([0, 1], [0, 1, 2, 3], [0, 1, 3]):
        with pytest.raises(HoldoutConflict, match=r"classes=.*Leave it out"):
            opened(ledger, classes=classes)
        with pytest.raises(HoldoutConflict, match=r"classes=.*Leave it out"):
            opened(ledger, classes=classes, ladder="another")
    assert counts(ledger) == before
    for given in ({}, {"classes": [2, 1, 0]}, {"classes": np.array([0.0, 1.0, 2.0])}):
        assert is_repeat(opened(ledger, **given), opened(ledger, **given).submit(np.full(N, 2)))
    # A second ladder counts predictions in the same classes.
    with pytest.warns(KnownHoldoutWarning):
        second = opened(ledger, ladder="second", scoring="balanced_accuracy")
    assert second.submit(np.where(np.arange(N) % 2, 2, y)).submission == 1


REFUSED: list[dict[str, Any]] = [
    {"scoring": None},
    {"scoring": "no such metric"},
    {"scoring": "neg_log_loss", "mechanism": SHAKY},
    {"scoring": "roc_auc", "mechanism": ParameterFreeLadder()},
    {"loss_range": (0, 1)},
    {"scoring": None, "loss_range": (0, 1)},
    {"scoring": "neg_mean_squared_error", "classes": [0, 1]},
    {"classes": [0, 7]},
    {"classes": [[0], [1, 2]]},
    {"budget": 0},
    {"mechanism": "Ladder"},
    {"feedback": "capped"},
    {"overlap": "never"},
    {"account": ""},
    {"ladder": "a\nb"},
    {"vault": 3},
    {"sample_weight": np.zeros(N)},
    {"y": coins(N)[1][:-1]},
    {"y": np.zeros(N), "scoring": "roc_auc"},
    {"y": coins(N)[1] + 0.5},
]


@pytest.mark.parametrize("known", [False, True])
def test_a_refused_opening_writes_nothing(ledger: Path, known: bool) -> None:
    opened(ledger, *coins(N, seed=1), name="other")
    if known:
        opened(ledger)
    before, failures = counts(ledger), []
    for given in REFUSED:
        asked = {"ladder": "second"} | given if known else given
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opened(ledger, **asked)
            failures.append(f"{given} is let in")
        except LadderHoldoutError:
            pass
        if counts(ledger) != before:
            failures.append(f"{given} wrote")
            break  # what it wrote may let the next ones in
    assert failures == []


def test_a_warning_that_is_an_error_leaves_nothing_behind(ledger: Path) -> None:
    """With warnings turned into errors the opening is refused, and so must be undone."""
    holdout = opened(ledger)
    before = counts(ledger)
    for file in (ledger.parent / "vault").iterdir():
        file.chmod(0o644)  # the vault would have to be written anew
    for given in ({"ladder": "second"}, {"account": "second", "scoring": "f1"}):
        with pytest.raises(KnownHoldoutWarning):
            opened(ledger, **given)
        assert counts(ledger) == before
    X, y = coins(N)
    with pytest.raises(OverlapWarning):
        opened(ledger, np.vstack([X[:3], coins(N, 1)[0]]), np.append(y[:3], y), name="second")
    assert counts(ledger) == before
    assert len(holdout.status().ladders) == 1
