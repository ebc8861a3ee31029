"""Attacks the identity of rows by frames: types of columns, zones, units and nullable cells."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from ladderholdout.errors import InvalidArgument
from ladderholdout.identity.hashing import row_hashes
from ladderholdout.identity.matching import overlap
from tests.identity.test_fingerprint import DAY, one, same
from tests.support.beyond_plain import NEEDS_PANDAS

pd = pytest.importorskip("pandas", reason=NEEDS_PANDAS)

MIXED = pd.DataFrame(
    {
        "integer": [3, 2**60 + 1, -1],
        "real": [0.1, np.nan, 7.0],
        "truth": [True, False, True],
        "text": ["a", None, "ß"],
        "category": pd.Categorical(["x", None, "y"]),
        "number of a category": pd.Categorical([4, 5, None]),
        "nullable integer": pd.array([1, None, 2**60 + 1], dtype="Int64"),
        "nullable real": pd.array([0.1, None, 3.0], dtype="Float32"),
        "nullable truth": pd.array([True, None, False], dtype="boolean"),
        "instant": pd.to_datetime([DAY, None, dt.datetime(1900, 1, 1)]),
        "duration": pd.to_timedelta([1, None, -5], unit="ns"),
        "anything": [1, "a", 2.5],
    }
)


@pytest.mark.parametrize("column", MIXED.columns)
def test_a_column_hashes_the_same_with_its_type_and_as_objects(column: str) -> None:
    series = MIXED[column]
    for other in (series.tolist(), series.astype(object), series.to_numpy(dtype=object)):
        assert same(other, series)
    assert same(series.to_frame(), series)


def test_mixed_columns_hash_the_same_in_a_frame_an_array_and_a_list() -> None:
    objects = MIXED.to_numpy(dtype=object)
    assert same(objects, MIXED)
    assert same(objects.tolist(), MIXED)
    assert same(MIXED.set_axis(["same name"] * MIXED.shape[1], axis=1), MIXED)


def test_a_list_of_numbers_and_strings_keeps_its_numbers() -> None:
    frame = pd.DataFrame({"number": [1, 2], "text": ["a", "b"]})
    assert same([[1, "a"], [2, "b"]], frame)
    assert not same([["1", "a"], ["2", "b"]], frame)


def test_a_polars_frame_hashes_as_its_cells_do() -> None:
    pl = pytest.importorskip("polars")
    columns = {
        "integer": [3, None, 2**60 + 1],
        "real": [0.1, None, 7.0],
        "truth": [True, None, False],
        "text": ["a", None, "ß"],
        "category": pl.Series(["x", None, "y"], dtype=pl.Categorical),
        "instant": [DAY, None, dt.datetime(1900, 1, 1)],
        "duration": [dt.timedelta(1), None, dt.timedelta(0, -5)],
    }
    frame = pl.DataFrame(columns)
    assert same(frame, frame.rows())
    assert same(frame["integer"], columns["integer"])
    nested = pl.DataFrame({"a": [1, 2], "b": [[1], [2, 3]]})
    with pytest.raises(InvalidArgument, match="in column 1"):
        row_hashes(nested)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_an_instant_hashes_the_same_in_every_unit_and_zone(unit: str) -> None:
    whole = DAY.replace(microsecond=0)
    berlin = dt.timezone(dt.timedelta(hours=1))
    alike = [
        whole,
        whole.replace(tzinfo=dt.UTC),
        whole.replace(tzinfo=dt.UTC).astimezone(berlin),
        pd.Timestamp(whole),
        np.datetime64(whole, unit),
    ]
    assert len({one(value) for value in alike}) == 1
    naive = pd.Series([whole, None], dtype=f"datetime64[{unit}]")
    zoned = naive.dt.tz_localize("UTC").dt.tz_convert("Europe/Berlin")
    for other in (naive, zoned, naive.astype(object), zoned.astype(object)):
        assert row_hashes(other).tolist() == [one(whole), one(None)]


def test_times_are_told_apart_to_the_nanosecond() -> None:
    instants = pd.to_datetime([-1, 0, 1, 999, 1000, 10**18], unit="ns")
    durations = pd.to_timedelta([-1001, -1, 0, 1, 999, 1000, 10**18], unit="ns")
    for times in (instants, durations):
        hashes = row_hashes(times)
        assert len(set(hashes.tolist())) == len(times)
        assert np.array_equal(row_hashes(list(times)), hashes)
    assert len({one(dt.date(1, 1, 1)), one(dt.date(9999, 1, 1)), one(dt.timedelta(0)), one(0)}) == 4
    assert one(dt.date(2026, 3, 1)) == one(dt.datetime(2026, 3, 1))


def test_overlap_finds_training_rows_in_other_clothes() -> None:
    X = np.random.default_rng(0).standard_normal((50, 4))
    frame = pd.DataFrame(X[20:].astype(np.float32)).astype(object)
    assert overlap(row_hashes(X), row_hashes(frame)) == 30
