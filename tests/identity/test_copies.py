"""Attacks the independence of rows: copies of one row are one draw."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from ladderholdout import LadderHoldout
from ladderholdout.certificates.transcript import Transcript, certify
from ladderholdout.errors import CopiedRowsWarning
from ladderholdout.identity.hashing import row_hashes
from ladderholdout.identity.matching import copied_rows

pytestmark = pytest.mark.quick

ROWS, TIMES = 60, 4


def drawn(rows: int = ROWS, seed: int = 0) -> tuple[Any, Any]:
    """Return rows of real numbers, and labels that they say something about."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    return X, (X[:, 0] + rng.normal(size=rows) > 0).astype(int)


def copies_in(X: Any, y: Any) -> int:
    return copied_rows(row_hashes(X), y)


def repeated(times: Any) -> int:
    X, y = drawn()
    return copies_in(np.repeat(X, times, axis=0), np.repeat(y, times))


def test_copies_are_counted() -> None:
    X, y = drawn()
    assert copies_in(X, y) == 0
    assert repeated(TIMES) == TIMES * ROWS
    # A class that was oversampled before the split.
    assert repeated(np.where(y == 1, 3, 1)) == 3 * y.sum()
    drawn_again = np.random.default_rng(1).integers(0, ROWS, 3 * ROWS)
    assert repeated(np.bincount(drawn_again, minlength=ROWS)) > 2 * ROWS
    # Real numbers for labels, of which some are equal to others only in copies.
    assert copies_in(np.repeat(X.round(), 2, axis=0), np.repeat(X[:, 1], 2)) == 2 * ROWS


def test_a_pair_of_equal_rows_is_not_worth_a_warning() -> None:
    times = np.ones(ROWS, dtype=int)
    times[:2] = 2
    assert repeated(times) == 0
    times[:5] = 2
    assert repeated(times) == 10


@pytest.mark.parametrize("seed", range(20))
def test_few_categories_are_no_copies(seed: int) -> None:
    """Where the labels are not settled by them: here as many as 1 in 10 are the other one."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (500, 3))
    y = (X[:, 0] > 0) ^ (rng.random(500) < 0.1)
    assert copies_in(X, y) == 0
    assert copies_in(X, rng.normal(size=500)) == 0


@pytest.mark.parametrize("kind", [str, float, bool])
def test_copies_are_known_whatever_the_labels_are_made_of(kind: type) -> None:
    X, y = drawn()
    assert copies_in(np.tile(X, (2, 1)), [kind(label) for label in (*y, *y)]) == 2 * ROWS


def test_registration_warns_of_copies_once_and_points_to_the_caller() -> None:
    X, y = (np.concatenate([part] * TIMES) for part in drawn())
    with pytest.warns(CopiedRowsWarning, match="^240 of the 240 rows of 'crawl' equal") as caught:
        holdout = LadderHoldout(X, y, scoring="accuracy", name="crawl")
    assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LadderHoldout(X, y, scoring="accuracy", name="crawl") == holdout
        LadderHoldout(
            *drawn(), scoring="accuracy", sample_weight=np.full(ROWS, 4.0), overlap="ignore"
        )


def misses(risk: float, weighted: bool) -> float:
    """Return how often a first certificate misses where each of 60 rows came four times."""
    found, weights = 0.0, np.full(ROWS, float(TIMES)) if weighted else None
    for errors in range(ROWS + 1):
        n = ROWS if weighted else TIMES * ROWS
        one = certify(errors / ROWS, n, Transcript(0, 1, ()), weights=weights)
        if not one.low <= risk <= one.high:
            found += float(binom.pmf(errors, ROWS, risk))
    return found


@pytest.mark.parametrize("risk", [0.1, 0.2, 0.3, 0.5])
def test_four_copies_miss_three_times_too_often_and_one_of_each_does_not(risk: float) -> None:
    """Exact, at a confidence of .95."""
    assert misses(risk, weighted=False) > 0.14
    assert misses(risk, weighted=True) < 0.05
    assert any(
        "copy of another" in text for text in certify(risk, 9, Transcript(0, 1, ())).assumptions
    )
