"""Attacks the order of rows: predictions with an index or ids are aligned, others by position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.errors import InvalidSubmission
from tests.support.holdouts import repeats

N = 80
rng = np.random.default_rng(3)
X = rng.normal(size=(N, 3))
y = (X[:, 0] > 0).astype(int)
IDS = rng.permutation(N) + 500
PREDICTED = np.where(np.arange(N) < 60, y, 1 - y)
SHUFFLE = rng.permutation(N)
FRAME = pd.DataFrame(X, index=IDS, columns=list("abc"))
Shape = Callable[[], Any]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(X: Any = X, y: Any = y, **given: Any) -> LadderHoldout:
    return LadderHoldout(X, y, **{"scoring": "accuracy", "ledger": "memory", **given})


# -- an index --------------------------------------------------------------------------------


def by_index(values: Any) -> Any:
    series = pd.Series(values, index=IDS)
    return series.iloc[SHUFFLE]


@pytest.mark.parametrize(
    "shape",
    [
        lambda: by_index(PREDICTED),
        lambda: by_index(PREDICTED).sort_index(),
        lambda: by_index(PREDICTED).to_frame(),
        lambda: pd.Series(PREDICTED, index=IDS),
    ],
    ids=["shuffled", "sorted", "a frame", "in order"],
)
def test_predictions_with_the_index_of_the_rows_are_taken_by_it(shape: Shape) -> None:
    holdout = opened(FRAME, pd.Series(y, index=IDS))
    predictions = shape()
    if predictions.ndim == 2:
        predictions = predictions[0]
    assert holdout.submit(predictions).score == 0.75
    holdout.submit(PREDICTED)
    assert repeats(holdout) == 1  # they are the very same predictions


def test_probabilities_and_batches_are_taken_by_it_too() -> None:
    holdout = opened(FRAME, pd.Series(y, index=IDS), scoring="neg_log_loss")
    second = np.clip(PREDICTED, 0.1, 0.9)
    both = pd.DataFrame({0: 1 - second, 1: second}, index=IDS)
    holdout.submit(both.iloc[SHUFFLE])
    with holdout.batch() as batch:
        batch.submit(by_index(second))
        batch.submit(second)
    assert repeats(holdout) == 2


def test_an_index_that_says_nothing_certain_is_refused() -> None:
    holdout = opened(FRAME, pd.Series(y, index=IDS))
    doubled = np.where(IDS[0] == IDS, IDS[1], IDS)
    others = {
        "other rows": pd.Series(PREDICTED, index=IDS + 1),
        "the same row twice": pd.Series(PREDICTED, index=doubled),
    }
    for other in others.values():
        with pytest.raises(InvalidSubmission, match=r"to take it by position"):
            holdout.submit(other)
    # Positions that were counted are no names of rows.
    counted = opened(FRAME.set_axis(SHUFFLE), pd.Series(y, index=SHUFFLE))
    with pytest.raises(InvalidSubmission, match="in another order"):
        counted.submit(pd.Series(PREDICTED))
    assert holdout.status().submissions == counted.status().submissions == 0


def test_what_has_no_index_is_taken_by_position() -> None:
    holdout = opened(FRAME, pd.Series(y, index=IDS))
    for predictions in (PREDICTED, PREDICTED.tolist(), pl.Series(PREDICTED), pd.Series(PREDICTED)):
        assert holdout.submit(predictions).score == 0.75
    assert repeats(holdout) == 3
    assert opened().submit(pd.Series(PREDICTED, index=IDS)).score == 0.75  # the rows have none


# -- ids -------------------------------------------------------------------------------------


TABLES: dict[str, tuple[Any, Any]] = {
    "pandas": (pd.DataFrame({"id": IDS, "label": PREDICTED}).iloc[SHUFFLE], "id"),
    "polars": (pl.DataFrame({"id": IDS, "label": PREDICTED})[SHUFFLE], "id"),
    "a list": (PREDICTED[SHUFFLE], IDS[SHUFFLE].tolist()),
    "a series": (PREDICTED[SHUFFLE], pd.Series(IDS[SHUFFLE])),
    "with an index beside": (
        pd.DataFrame({"id": IDS, "label": PREDICTED}, index=IDS[::-1]).iloc[SHUFFLE],
        "id",
    ),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("frame", ["pandas", "polars", "array"])
def test_predictions_with_ids_come_in_any_order(ledger: Path, kind: str, frame: str) -> None:
    rows: Any = X
    if frame != "array":
        rows = pd.DataFrame(X, columns=list("abc")).assign(id=IDS)
        rows = pl.from_pandas(rows) if frame == "polars" else rows
    given = {"ledger": ledger, "ids": IDS if frame == "array" else "id"}
    holdout = opened(rows, y, **given)
    predictions, ids = TABLES[kind]
    assert holdout.submit(predictions, ids=ids).score == 0.75
    holdout.submit(PREDICTED)
    assert repeats(holdout) == 1
    # Nor does it matter who asks: without rows, or with rows in another order.
    LadderHoldout.open(holdout.name, ledger=ledger).submit(predictions, ids=ids)
    assert repeats(holdout) == 2


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_also_of_other_views_and_orders(ledger: Path) -> None:
    holdout = opened(ledger=ledger, ids=IDS, name="rows")
    holdout.submit(PREDICTED)
    again = rng.permutation(N)
    for features in (X[again], X[again][:, :2] + 1):
        other = opened(features, y[again], ledger=ledger, ids=IDS[again], name="rows")
        other.submit(PREDICTED[SHUFFLE], ids=IDS[SHUFFLE])
        other.submit(PREDICTED[again])
    assert repeats(holdout) == 4


def test_ids_that_do_not_fit_are_refused() -> None:
    holdout = opened(ids=IDS)
    for ids, said in (
        (IDS + 1, r"ids must be those of all rows of the holdout, each once, but is without \d+"),
        (IDS[:-1], "as long as predictions"),
        ("id", "the name of a column of predictions"),
        (np.where(IDS[0] == IDS, IDS[1], IDS), "ids"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            holdout.submit(PREDICTED, ids=ids)
    with pytest.raises(InvalidArgument, match="registered without ids"):
        opened().submit(PREDICTED, ids=IDS)
    assert holdout.status().submissions == 0
