"""Attack the time of an answer over HTTP: it must not tell where a rejected raw score lies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ladderholdout import LadderHoldout
from tests.support.server import serving, token_of

pytestmark = pytest.mark.nightly
N_ROWS, EACH = 2000, 200


@pytest.fixture(scope="module", params=["accuracy", "roc_auc"])
def remote(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LadderHoldout, NDArray[Any], str]]:
    """A ladder over HTTP whose incumbent is right on four rows of five, and the labels."""
    folder, rng = tmp_path_factory.mktemp("timing"), np.random.default_rng(0)
    X, y = rng.normal(size=(N_ROWS, 2)), rng.integers(0, 2, N_ROWS)
    ledger = folder / "ledger.db"
    LadderHoldout(X, y, scoring=request.param, name="churn", ledger=ledger, reserve=0.2)
    token = token_of(ledger, "ada")
    with serving(ledger, folder) as server:
        holdout = LadderHoldout.connect(f"{server.url}/holdouts/churn", token)
        assert holdout.submit(guess(y, 0.2, rng, request.param)).improved
        yield holdout, y, request.param


def guess(y: Any, wrong: float, rng: np.random.Generator, scoring: str) -> NDArray[Any]:
    """Draw predictions of which this share is wrong, and which are as good otherwise."""
    labels = np.where(rng.random(len(y)) < wrong, 1 - y, y)
    return labels if scoring == "accuracy" else labels + rng.normal(size=len(y)) / 10


def seconds(holdout: LadderHoldout, predictions: Any) -> float:
    begun = time.perf_counter()
    release = holdout.submit(predictions)
    taken = time.perf_counter() - begun
    return np.nan if release.improved else taken


def told_by_time(holdout: LadderHoldout, sides: tuple[list[Any], list[Any]]) -> float:
    """Return the AUC with which the times of rejections tell two sides apart."""
    order, times = np.random.default_rng(1), np.empty((2, EACH))
    # In pairs, so that what else the machine does falls on both; at random, which comes first.
    for at in range(EACH):
        for side in order.permutation(2):
            times[side, at] = seconds(holdout, sides[side][at])
    first, second = (row[np.isfinite(row)] for row in times)
    assert min(len(first), len(second)) > 0.9 * EACH
    return float(stats.mannwhitneyu(first, second).statistic / (len(first) * len(second)))


def check(told: Iterator[float]) -> None:
    """Of two measurements one has to be within .4 to .6.

    With 200 on each side the AUC of equal times has a standard deviation of .029, so one leaves
    .4 to .6 with a chance of .0005, and both with one of 3e-7.
    """
    found = []
    for one in told:
        found.append(one)
        if 0.4 <= one <= 0.6:
            return
    raise AssertionError(f"time tells the side with AUCs of {found}")


def test_time_does_not_tell_how_far_below_a_rejection_is(remote: Any) -> None:
    """Raw scores about that of the incumbent, and those of guesses."""
    holdout, y, scoring = remote

    def measured() -> Iterator[float]:
        for seed in (2, 3):
            rng = np.random.default_rng(seed)
            sides = tuple(
                [guess(y, wrong, rng, scoring) for _ in range(EACH)] for wrong in (0.21, 0.5)
            )
            yield told_by_time(holdout, sides)  # type: ignore[arg-type]

    check(measured())


def test_time_does_not_tell_a_repeat(remote: Any) -> None:
    """Else it would tell, by a row that was changed, whether that is one of the reserve."""
    holdout, y, scoring = remote

    def measured() -> Iterator[float]:
        for seed in (4, 5):
            rng = np.random.default_rng(seed)
            old, new = ([guess(y, 0.3, rng, scoring) for _ in range(EACH)] for _ in range(2))
            for one in old:
                holdout.submit(one)
            yield told_by_time(holdout, (old, new))

    check(measured())
