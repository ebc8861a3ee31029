"""Attacks metrics of one's own that know more of each row than its target: rows out of order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics

from ladderholdout import InvalidArgument, LadderHoldout, Metric
from ladderholdout.guard import ladder as handles
from ladderholdout.mechanisms import FullDisclosure
from ladderholdout.metrics import metric_of_items
from tests.support.beyond_plain import needs_pandas, pd
from tests.support.fixed_secrets import secrets_of

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
AMOUNT = np.minimum(np.exp(2 * RNG.normal(size=N)), 20.0)
Y = (X[:, 0] > 0).astype(float)
GUESSES = [np.where(RNG.random(N) < right, Y, 1 - Y) for right in (0.6, 0.7, 0.8)]


def money(amounts: Any) -> Metric:
    return Metric("money", "values", loss=lambda t, q: amounts * (t != q), loss_range=(0, 20))


def true_cost(guesses: Any) -> float:
    return -float(np.mean(AMOUNT * (guesses != Y)))


def hits_of_queries(t: Any, q: Any, sample_weight: Any = None) -> float:
    """Share of the blocks of four rows that are right throughout."""
    return float(np.mean((t == q).reshape(-1, 4).all(axis=1)))


def opened(metric: Any, order: Any = slice(None), **given: Any) -> LadderHoldout:
    stated = {"ledger": "memory", "name": "own", "mechanism": FULL} | given
    return LadderHoldout(X[order], Y[order], scoring=metric, **stated)


FULL = FullDisclosure()


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
def test_a_function_is_given_the_rows_as_they_were_registered(tmp_path: Path) -> None:
    """Submitted, in a batch, in another order, by name, beside another metric: one number."""
    ledger, metric = tmp_path / "ledger.db", money(AMOUNT)
    first = opened(metric, ledger=ledger)
    assert first.submit(GUESSES[0]).score == pytest.approx(true_cost(GUESSES[0]), abs=1e-12)
    with first.batch() as batch:
        batch.submit(GUESSES[1])
    assert batch.releases[0].score == pytest.approx(true_cost(GUESSES[1]), abs=1e-12)
    turned = np.arange(N)[::-1]
    other = opened(metric, turned, ledger=ledger, ladder="turned")
    shown = other.submit(GUESSES[2][turned]).score
    assert shown == pytest.approx(true_cost(GUESSES[2]), abs=1e-12)
    handles._guards.clear()  # as in another process, which reads the vault
    again = LadderHoldout.open("own", scoring=metric, ledger=ledger)
    assert again.submit(GUESSES[2]).score == pytest.approx(true_cost(GUESSES[2]), abs=1e-12)
    several = opened(["r2", metric], ledger=ledger, ladder="both")
    both = several.submit(GUESSES[1]).by_metric
    assert both["money"].score == pytest.approx(true_cost(GUESSES[1]), abs=1e-12)
    own = Metric("queries", "values", score=hits_of_queries, loss_range=(0, 1), offset=1)
    of_queries = opened(own).submit(GUESSES[2]).score
    assert of_queries == pytest.approx(hits_of_queries(Y, GUESSES[2]), abs=1e-12)


def test_all_that_is_shown_is_as_of_a_metric_that_needs_no_closure() -> None:
    """The amounts are in the targets here, so that the order cannot matter."""
    y, shown = np.where(Y == 1, AMOUNT, -AMOUNT), []
    closure, plain = (
        Metric("money", "values", loss=loss, loss_range=(0, 20))
        for loss in (
            lambda t, q: AMOUNT * ((t > 0) != q),
            lambda t, q: np.abs(t) * ((t > 0) != q),
        )
    )
    for metric in (closure, plain):  # the same targets: these are the key of the bets' order
        with secrets_of("own"):
            holdout = LadderHoldout(X, y, scoring=metric, name="own", ledger="memory")
            with holdout.batch() as batch:
                for guesses in GUESSES:
                    batch.submit(guesses)
            compared = holdout.compare(GUESSES[2], GUESSES[0])
            certified, estimated = holdout.certificate(), holdout.estimate()
        numbers = [release.score for release in batch.releases]
        numbers += [compared.low, compared.high, certified.low, certified.high, estimated.score]
        shown.append(numbers)
    assert shown[0] == pytest.approx(shown[1], abs=1e-9)
    assert None not in shown[0]


def test_its_intervals_depend_on_no_order_of_the_rows() -> None:
    """Bets go by the order of the content, as those of a named metric do: one interval."""
    own = Metric("own", "values", loss=lambda t, q: np.abs(t - q), loss_range=(0, 5))
    y, shown, compared = 2 * X[:, 0] + X[:, 1], [], []
    orders = np.arange(N), np.argsort(y), np.random.default_rng(3).permutation(N)
    named = "neg_mean_absolute_error", orders[0], (0, 5)
    for metric, order, stated in (*((own, order, None) for order in orders), named):
        holdout = LadderHoldout(
            X[order], y[order], scoring=metric, ledger="memory", loss_range=stated
        )
        holdout.submit(y[order] + X[order, 1])
        found = holdout.certificate()
        shown.append((found.score, found.low, found.high))
        difference = holdout.compare(y[order] + X[order, 1], 0.5 * y[order])
        compared.append((difference.low, difference.high))
    assert shown[1:] == 3 * [pytest.approx(shown[0], abs=1e-12)]
    assert compared[1:3] == 2 * [pytest.approx(compared[0], abs=1e-12)]


def test_fresh_rows_have_an_order_of_their_own() -> None:
    fresh = np.random.default_rng(1).normal(size=(N, 2))
    holdout = opened(money(AMOUNT)).replenish(fresh, GUESSES[1])
    shown = holdout.submit(GUESSES[0]).score
    true = -np.mean(AMOUNT * (GUESSES[1] != GUESSES[0]))
    assert shown == pytest.approx(true, abs=1e-12)


def test_a_judge_is_asked_in_the_order_of_the_rows() -> None:
    asked: list[Any] = []
    exact = metric_of_items("exact", lambda reference, text: bool(asked.append(reference)) or True)
    items = [f"item {place}" for place in range(9)]
    LadderHoldout(items, items, scoring=exact, ledger="memory").submit(items)
    assert asked == items


@needs_pandas
@pytest.mark.parametrize("reserve", [None, 0.5])
def test_a_function_looks_rows_up_by_their_index(reserve: float | None, tmp_path: Path) -> None:
    """By the index it may know more of the rows that it is given, whichever those are."""
    names = np.random.default_rng(2).permutation(1000)[:N]
    amounts, seen = pd.Series(AMOUNT, index=names), []

    def loss(t: Any, q: Any) -> Any:
        seen.append((t.index, q.index))
        return amounts.loc[t.index].to_numpy() * (t != q)

    metric = Metric("money", "values", loss=loss, loss_range=(0, 20))
    frame = pd.DataFrame(X, index=names, columns=["a", "b"])
    holdout = LadderHoldout(
        frame, Y, scoring=metric, name="own", mechanism=FULL, reserve=reserve,
        ledger=tmp_path / "ledger.db",
    )  # fmt: skip
    shown = holdout.submit(GUESSES[0]).score
    rows = np.flatnonzero(np.isin(names, seen[-1][0]))
    assert list(names[rows]) == list(seen[-1][0]) == list(seen[-1][1])
    assert len(rows) == (N if reserve is None else N // 2)
    costs = AMOUNT * (GUESSES[0] != Y)
    assert shown == pytest.approx(-costs[rows].mean(), abs=1e-12)
    if reserve is not None:
        left = np.setdiff1d(np.arange(N), rows)
        kept = holdout.reserve_certificate()
        assert kept.low <= -costs[left].mean() <= kept.high
        assert sorted(seen[-1][0]) == sorted(names[left])
    handles._guards.clear()
    again = LadderHoldout.open("own", scoring=metric, ledger=tmp_path / "ledger.db")
    assert again.submit(GUESSES[1]).score == pytest.approx(
        -(AMOUNT * (GUESSES[1] != Y))[rows].mean(), abs=1e-12
    )


@needs_pandas
def test_plain_scores_are_given_the_index_too() -> None:
    amounts = pd.Series(AMOUNT)
    metric = Metric("money", "values", loss=lambda t, q: amounts.loc[t.index] * (t != q))
    part = np.arange(N)[::-3]
    given = pd.Series(Y).iloc[part]
    assert metric.score_from(given, GUESSES[0][part]) == pytest.approx(
        -np.mean((AMOUNT * (GUESSES[0] != Y))[part]), abs=1e-12
    )


def test_a_function_that_reads_the_numbers_of_classes_gets_them_or_none() -> None:
    rng = np.random.default_rng(0)
    X, stars = rng.normal(size=(60, 2)), np.array([1, 2, 4, 5])
    y = stars[rng.integers(0, 4, 60)]
    guesses = np.where(rng.random(60) < 0.6, y, 1)

    def apart(targets: Any, predictions: Any) -> Any:
        return np.abs(targets - predictions) * 1.0

    def looked_up(targets: Any, predictions: Any) -> Any:
        return np.abs(stars[targets] - stars[predictions]) * 1.0

    with pytest.raises(InvalidArgument, match="positions among the sorted classes"):
        LadderHoldout(X, y, scoring=Metric("apart", "labels", loss=apart, loss_range=(0, 4)))
    two = np.where(y > 2, 2, 1)
    with pytest.raises(InvalidArgument, match="of the classes 0 to 1, whose numbers 'f1' reads"):
        LadderHoldout(X, two, scoring=Metric("f1", "labels", score=sklearn.metrics.f1_score))
    # Of classes that are their positions nothing is asked: a function may draw, or cost.
    drawn = Metric("drawn", "labels", score=lambda t, q, sample_weight=None: rng.random())
    assert LadderHoldout(X, two - 1, scoring=drawn, ledger="memory:drawn").submit(two - 1).improved
    # Numbered or looked up, as the message says; a function that only compares needs neither.
    metric = Metric("apart", "labels", loss=looked_up, loss_range=(0, 4))
    exact = {"mechanism": FullDisclosure()}
    holdout = LadderHoldout(X, y, scoring=metric, ledger="memory:stars", **exact)
    assert holdout.submit(guesses).score == pytest.approx(-np.abs(y - guesses).mean())
    numbered = Metric("f1", "labels", score=sklearn.metrics.f1_score)
    holdout = LadderHoldout(X, two - 1, scoring=numbered, ledger="memory:two", **exact)
    found = holdout.submit(np.ones(60, int)).score
    assert found == pytest.approx(sklearn.metrics.f1_score(two - 1, np.ones(60, int)))
    kappa = Metric("kappa", "labels", score=sklearn.metrics.cohen_kappa_score)
    holdout = LadderHoldout(X, two, scoring=kappa, ledger="memory:kappa", **exact)
    halved = np.where(guesses > 2, 2, 1)
    assert holdout.submit(halved).score == pytest.approx(
        sklearn.metrics.cohen_kappa_score(two, halved)
    )
