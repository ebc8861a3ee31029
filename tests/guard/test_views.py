"""Attacks "a holdout is its rows": other features, corrected labels, ids, views in searches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.certificates.reserve_intervals import reserve_interval
from ladderholdout.errors import (
    HoldoutConflict,
    KnownHoldoutWarning,
    OverlapError,
    OverlapWarning,
    UnknownHoldout,
    VaultError,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.mechanisms import FullDisclosure
from tests.support.beyond_plain import needs_pandas, pd
from tests.support.holdouts import assert_replays, coins, guesses
from tests.support.ledgers import (
    counts,
    entries_of,
    labels_amended,
    remove,
    stored,
    tamper,
    undone,
    url_of,
)
from tests.support.processes import elsewhere

N = 60
IDS = [f"row {i}" for i in range(N)]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(ledger: Any, X: Any = None, y: Any = None, **given: Any) -> LadderHoldout:
    ours = coins(N)
    X, y = ours[0] if X is None else X, ours[1] if y is None else y
    known = {"scoring": "accuracy", "name": "first"}
    return LadderHoldout(X, y, ledger=ledger, **known | given)


def corrected(y: Any, *rows: int) -> Any:
    y = y.copy()
    for row in rows:
        y[row] = 1 - y[row]
    return y


@contextmanager
def said(match: str) -> Iterator[None]:
    """Exactly one warning, and it says this."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [one.category for one in caught] == [KnownHoldoutWarning]
    assert match in str(caught[0].message)
    assert caught[0].filename == __file__


class First:
    """A fitted classifier that reads the first column and must be given so many."""

    classes_ = np.array([0, 1])

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def predict(self, X: Any) -> Any:
        assert np.asarray(X).shape[1] == self.columns
        return (np.asarray(X)[:, 0] > 0).astype(int)


# Other features

CHANGES: dict[str, Any] = {
    "a column added": lambda X: np.column_stack([X, X[:, 0] * X[:, 1]]),
    "a column dropped": lambda X: X[:, :2],
    "reordered": lambda X: X[:, [0, 2, 1]],
    "standardised": lambda X: (X - X.mean(axis=0)) / X.std(axis=0),
    "one cell changed": lambda X: np.where(np.arange(X.size).reshape(X.shape) == 7, 9.0, X),
}
if pd is not None:
    CHANGES["names for numbers"] = lambda X: (
        pd.DataFrame(X, columns=list("abc")).round(2).astype(str)
    )
changes = pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))


@changes
def test_other_features_go_on_with_the_ladder(ledger: Path, change: Any) -> None:
    mechanism = FullDisclosure() if change in [*CHANGES.values()][::2] else None
    X, y = coins(N)
    first = opened(ledger, mechanism=mechanism)
    told = [first.submit(one) for one in guesses(0, 5)]
    with said("rows of 'first' with other features, known by their labels"):
        other = LadderHoldout(change(X), y, ledger=ledger)
    assert (other, other.name) == (first, "first")
    assert other.status().submissions == 5
    for predictions, release in zip(guesses(0, 5), told, strict=True):
        again = other.submit(predictions)
        shown = told[-1].score if mechanism is None else release.score
        assert (again.score, again.improved) == (shown, False)
        assert (again.repeat_of, again.has_held) == (release.submission, release.improved)
    new = other.submit(y)
    assert (new.score, first.submit(y).score) == (1.0, 1.0)
    # Known by now: nothing is said again, and the first view is what it was.
    assert LadderHoldout(change(X), y, ledger=ledger) == LadderHoldout(X, y, ledger=ledger)
    assert counts(ledger)["holdouts"] == 1
    assert (counts(ledger)["views"], counts(ledger)["vault"]) == (1, 2)
    assert verify_holdout(url_of(ledger), "first").findings == ()
    assert_replays(first)


@pytest.mark.processes
@pytest.mark.parametrize("vault", [None, False])
def test_models_are_given_the_features_of_their_view(ledger: Path, vault: Any) -> None:
    X, y = coins(N)
    first = opened(ledger, vault=vault)
    with pytest.warns(KnownHoldoutWarning, match="view 2"):
        second = LadderHoldout(X[:, :2], y, ledger=ledger)
    told = first.submit(First(3))
    for holdout, columns in ((first, 3), (second, 2)):
        assert holdout.submit(First(columns)).score == told.score
        assert elsewhere(LadderHoldout.submit, holdout, First(columns)).score == told.score
        assert elsewhere(LadderHoldout.submit, holdout, 1 - y).score == told.score
    if vault is None:
        assert LadderHoldout.open("first", ledger=ledger).submit(First(2)).score == told.score
        one = LadderHoldout.open("first", ledger=ledger, view=1)
        assert one.submit(First(3)).score == told.score
        with pytest.raises(UnknownHoldout, match=r"no view 3\. It has 1 to 2"):
            LadderHoldout.open("first", ledger=ledger, view=3)
    else:
        assert counts(ledger)["vault"] == 0


@pytest.mark.processes
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_on_other_features_goes_on(ledger: Path, n_jobs: int) -> None:
    """Each candidate of the second search is a query of the one ladder, on the second view."""
    X, _ = coins(N)
    X_train, y_train = coins(100, seed=9)
    grid = {"C": [0.01, 1.0, 100.0]}
    for columns, before in ((3, 0), (2, 3)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            holdout = opened(ledger, X[:, :columns])
        assert holdout.status().submissions == before
        search = GridSearchCV(
            LogisticRegression(), grid, scoring=holdout, cv=holdout.split(), refit=False,
            n_jobs=n_jobs,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            search.fit(X_train[:, :columns], y_train)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert holdout.status().submissions == 6
    assert counts(ledger)["holdouts"] == 1
    assert verify_holdout(url_of(ledger), "first").findings == ()


def test_a_study_on_other_features_goes_on(ledger: Path) -> None:
    X, y = coins(N)
    opened(ledger).submit(y)
    with pytest.warns(KnownHoldoutWarning):
        holdout = opened(ledger, X[:, :2])
    study = optuna.create_study(direction="maximize")
    X_train, y_train = coins(100, seed=9)

    def build(trial: optuna.Trial) -> Any:
        C = trial.suggest_float("C", 0.01, 100, log=True)
        return LogisticRegression(C=C).fit(X_train[:, :2], y_train)

    study.optimize(holdout.optuna.objective(build), n_trials=3)
    assert holdout.status().submissions == 4
    assert holdout.status().score == 1.0


def test_early_stopping_on_other_features_goes_on(ledger: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    from ladderholdout.integrations.lightgbm import ladder_stopping

    X, _ = coins(N)
    opened(ledger)
    with pytest.warns(KnownHoldoutWarning):
        holdout = opened(ledger, X[:, :2])
    X_train, y_train = coins(200, seed=9)
    stopping = ladder_stopping(holdout, patience=3)
    model = lightgbm.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1)
    model.fit(X_train[:, :2], y_train, callbacks=[stopping])
    assert 3 <= holdout.status().submissions <= 8


def test_training_rows_are_found_by_the_features_of_the_view(ledger: Path) -> None:
    X, y = coins(N)
    opened(ledger)
    with pytest.warns(KnownHoldoutWarning):
        holdout = opened(ledger, X[:, :2])
    with pytest.raises(OverlapError):
        list(holdout.split().split(X[:, :2], y))
    # Rows are compared as models see them.
    assert holdout(First(2), X[:, :2], y) == holdout.submit(First(2)).score


def test_labels_in_order_make_no_view(ledger: Path) -> None:
    """Sorted labels with the same counts are common: they say nothing of the rows."""
    X, y = coins(N)
    order = np.argsort(y, kind="stable")
    opened(ledger, X[order], y[order])
    other = opened(ledger, X[order][:, :2], y[order], name="second")
    assert (other.name, counts(ledger)["holdouts"]) == ("second", 2)


def test_permuted_rows_with_other_features_are_not_known_without_ids(ledger: Path) -> None:
    X, y = coins(N)
    order = np.random.default_rng(1).permutation(N)
    opened(ledger)
    assert opened(ledger, 2 * X[order] + 1, y[order], name="second").name == "second"


def test_weights_have_to_be_the_same(ledger: Path) -> None:
    X, _ = coins(N)
    weights = np.random.default_rng(1).integers(1, 4, N).astype(float)
    opened(ledger, sample_weight=weights)
    before = counts(ledger)
    for other in (None, weights[::-1].copy()):
        with pytest.raises(HoldoutConflict, match="other weights"):
            opened(ledger, X[:, :2], sample_weight=other)
    assert counts(ledger) == before
    with said("view 2"):
        opened(ledger, X[:, :2], sample_weight=weights)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.CopiedRowsWarning")
def test_equal_rows_that_differ_in_weight_are_told_apart(ledger: Path) -> None:
    X, y, weights = np.repeat(coins(30)[0], 2, axis=0), np.repeat(coins(30)[1], 2), np.ones(N)
    weights[::2] = 5
    order = np.random.default_rng(2).permutation(N)
    first = opened(ledger, X, y, sample_weight=weights)
    guess = guesses(0, 1)[0]
    told = first.submit(guess)
    with said("another order"):
        shuffled = opened(ledger, X[order], y[order], sample_weight=weights[order])
    again = shuffled.submit(guess[order])
    assert (again.score, shuffled.status().submissions) == (told.score, 2)
    assert [one.repeat_of for one in entries_of(shuffled)] == [None, 1]


# Ids


@needs_pandas
@pytest.mark.processes
@pytest.mark.parametrize("vault", [None, False])
def test_ids_know_permuted_rows_with_other_features_and_labels(ledger: Path, vault: Any) -> None:
    X, y = coins(N)
    order = np.random.default_rng(1).permutation(N)
    first = opened(ledger, ids=IDS, vault=vault)
    told = [first.submit(one) for one in guesses(0, 5)]
    ids = pd.Series(IDS)[order]
    with pytest.warns(KnownHoldoutWarning) as caught:
        other = opened(ledger, X[order][:, :2], corrected(y, 7)[order], ids=ids)
    assert ["known by their ids" in str(one.message) for one in caught] == [True, False]
    assert "1 of the 60 labels of 'first' differs" in str(caught[1].message)
    assert other.status().submissions == 5
    for predictions, release in zip(guesses(0, 5), told, strict=True):
        assert other.submit(predictions[order]).score == release.score
    assert [one.repeat_of for one in entries_of(other)[5:]] == [1, 2, 3, 4, 5]
    # The view keeps its own order, in other processes as well.
    right = corrected(y, 7)[order]
    assert elsewhere(LadderHoldout.submit, other, right).score == 1.0
    assert other.submit(First(2)).score == 1.0
    assert verify_holdout(url_of(ledger), "first").findings == ()


@needs_pandas
def test_a_column_of_ids_is_no_feature(ledger: Path) -> None:
    X, y = coins(N)
    frame = pd.DataFrame(X, columns=list("abc")).assign(key=IDS)
    first = opened(ledger, frame, ids="key")
    first.submit(First(3))
    assert opened(ledger, X, ids=IDS) == first
    assert opened(ledger, X) == first
    shuffled = frame.sample(frac=1, random_state=0)
    with said("view 2"):
        opened(ledger, shuffled[["b", "key"]], y[shuffled.index], ids="key")


def test_ids_are_learned_later(ledger: Path) -> None:
    X, y = coins(N)
    order = np.random.default_rng(1).permutation(N)
    first = opened(ledger)
    opened(ledger, ids=IDS)
    with said("known by their ids"):
        other = opened(ledger, X[order][:, :2], y[order], ids=np.array(IDS)[order])
    assert other == first
    assert verify_holdout(url_of(ledger), "first").findings == ()


@pytest.mark.parametrize(
    "ids", ["key", IDS[:-1], [*IDS[:-1], None], 3, [{}] * N], ids=lambda ids: type(ids).__name__
)
def test_bad_ids_leave_nothing_behind(ledger: Path, ids: Any) -> None:
    opened(ledger, *coins(N, seed=1), name="other")
    before = counts(ledger)
    with pytest.raises(InvalidArgument, match=r"^ids must be"):
        opened(ledger, ids=ids)
    assert counts(ledger) == before


def test_other_ids_for_known_rows_are_refused(ledger: Path) -> None:
    opened(ledger, ids=IDS)
    before = counts(ledger)
    for X in (coins(N)[0], coins(N)[0][:, :2]):
        with pytest.raises(HoldoutConflict, match="ids= names them otherwise"):
            opened(ledger, X, ids=[f"{one}!" for one in IDS])
    assert counts(ledger) == before


def test_rows_are_shared_by_their_ids_too(ledger: Path) -> None:
    X, _ = coins(N)
    opened(ledger, ids=IDS)
    other, labels = coins(N, seed=1)
    ids = [*IDS[:10], *(f"new {i}" for i in range(N - 10))]
    with pytest.warns(OverlapWarning, match="10 of these 60 rows are in the holdout 'first'"):
        opened(ledger, np.vstack([X[:10] + 1, other[10:]]), labels, ids=ids, name="second")


# Corrected labels


def test_a_corrected_label_is_an_amendment(ledger: Path) -> None:
    X, y = coins(N)
    first = opened(ledger)
    told = first.submit(y)
    before = counts(ledger)
    with said("1 of the 60 labels of 'first' differs from the record"):
        again = opened(ledger, X, corrected(y, 7), overlap="warn")
    assert again == first
    assert counts(ledger) == before
    # The predictions are the same ones, and so is the answer; new ones are scored anew.
    assert again.submit(y).score == told.score
    assert [one.repeat_of for one in entries_of(first)] == [None, 1]
    ladder = opened_second(ledger, corrected(y, 7))
    assert ladder.submit(y).score == pytest.approx(59 / 60)
    assert ladder.submit(corrected(y, 7)).score == 1.0
    assert opened(ledger, X, corrected(y, 7)) == first  # and nothing more is said
    assert verify_holdout(url_of(ledger), "first").findings == ()
    assert_replays(first)


def opened_second(ledger: Path, y: Any) -> LadderHoldout:
    with pytest.warns(KnownHoldoutWarning, match="count together"):
        return opened(ledger, None, y, ladder="second", mechanism=FullDisclosure())


@pytest.mark.processes
@pytest.mark.parametrize("in_this_process", [True, False])
def test_a_guard_of_before_the_amendment_reads_the_labels_again(
    ledger: Path, in_this_process: bool
) -> None:
    X, y = coins(N)
    first = opened(ledger, mechanism=FullDisclosure())
    assert first.submit(1 - y).score == 0.0
    new = corrected(y, 3, 4)
    amend = lambda: elsewhere(amended, str(ledger), X, new)  # noqa: E731
    if in_this_process:
        with pytest.warns(KnownHoldoutWarning, match="2 of the 60 labels"):
            opened(ledger, X[:, :], new)
    else:
        amend()
    assert first.submit(y).score == pytest.approx(58 / 60)
    assert first.submit(new).score == 1.0


def amended(ledger: str, X: Any, y: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        LadderHoldout(X, y, ledger=ledger)


@pytest.mark.processes
def test_all_views_get_the_amended_labels(ledger: Path) -> None:
    X, y = coins(N)
    first = opened(ledger, mechanism=FullDisclosure())
    with pytest.warns(KnownHoldoutWarning):
        second = opened(ledger, X[:, :2])
    new = corrected(y, 3)
    with said("1 of the 60 labels"):
        opened(ledger, X[:, :2], new)
    for holdout in (first, second):
        assert elsewhere(LadderHoldout.submit, holdout, new).score == 1.0
    assert counts(ledger)["vault"] == 2
    assert verify_holdout(url_of(ledger), "first").findings == ()


@pytest.mark.processes
def test_without_a_copy_of_the_rows_an_older_guard_says_what_to_do(ledger: Path) -> None:
    X, y = coins(N)
    first = opened(ledger, vault=False)
    elsewhere(amended, str(ledger), X, corrected(y, 3))
    before = counts(ledger)
    with pytest.raises(HoldoutConflict, match=r"amended since.*vault=False"):
        first.submit(y)
    assert counts(ledger) == before
    assert opened(ledger, X, corrected(y, 3), vault=False).submit(corrected(y, 3)).score == 1.0


def test_more_than_a_few_labels_are_no_amendment_and_not_counted(ledger: Path) -> None:
    X, y = coins(N)
    opened(ledger)
    before = counts(ledger)
    texts = set()
    for rows in (range(4), range(10), range(40)):
        with pytest.raises(OverlapError) as caught:
            opened(ledger, X, corrected(y, *rows), name="second")
        texts.add(str(caught.value))
    assert len(texts) == 1  # which would otherwise tell how many labels were right
    assert "60 of these 60 rows" in texts.pop()
    assert counts(ledger) == before


def test_many_small_amendments_are_not_few(ledger: Path) -> None:
    X, y = coins(N)
    opened(ledger)
    for rows in ((0,), (0, 1), (0, 1, 2)):
        with said("labels of 'first'"):
            opened(ledger, X, corrected(y, *rows))
    with pytest.raises(OverlapError):
        opened(ledger, X, corrected(y, 0, 1, 2, 3))
    with pytest.raises(OverlapError):
        opened(ledger, X, corrected(y, 4))
    with said("3 of the 60 labels"):
        opened(ledger, X, y)  # and back


def test_a_failed_amendment_leaves_nothing_behind(ledger: Path) -> None:
    X, y = coins(N)
    opened(ledger)
    with pytest.warns(KnownHoldoutWarning):
        opened(ledger, X[:, :2])
    (ledger.parent / "vault").chmod(0o700)
    Path(stored(ledger, "holdout", "vault")).write_bytes(b"damaged")
    before, files = counts(ledger), sorted((ledger.parent / "vault").glob("*.vault"))
    with pytest.raises(VaultError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened(ledger, X[:, :2], corrected(y, 3))
    assert counts(ledger) == before
    assert sorted((ledger.parent / "vault").glob("*.vault")) == files
    assert labels_amended(ledger) == (1, None)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_certificate_covers_the_labels_as_registered(ledger: Path, weighted: bool) -> None:
    """The ends move by what amended labels can do; before an amendment nothing moves."""
    (X, y), rng = coins(400), np.random.default_rng(3)
    weights = rng.integers(1, 4, 400).astype(float) if weighted else None
    holdout = opened(ledger, X, y, sample_weight=weights)
    holdout.submit(np.where(np.arange(400) < 300, y, 1 - y))
    before = holdout.certificate()
    rows = (1, 2, 3, 4)
    share = len(rows) / 400 if weights is None else weights[list(rows)].sum() / weights.sum()
    with pytest.warns(KnownHoldoutWarning):
        holdout = opened(ledger, X, corrected(y, *rows), sample_weight=weights)
    assert holdout.certificate() == before
    holdout.submit(np.where(np.arange(400) < 350, corrected(y, *rows), 1 - y))
    after, plain = holdout.certificate(), unamended(ledger, X, y, weights)
    assert after.log_count == pytest.approx(plain.log_count)
    assert plain.score == after.score
    assert after.low <= plain.low - 0.8 * share
    assert after.high >= plain.high + 0.5 * share
    assert any("4 labels were amended" in one for one in after.assumptions)
    assert not any("amended" in one for one in before.assumptions)


def unamended(ledger: Path, X: Any, y: Any, weights: Any) -> Any:
    fresh = opened(ledger.with_name("fresh.db"), X, y, sample_weight=weights)
    fresh.submit(np.where(np.arange(400) < 300, y, 1 - y))
    fresh.submit(np.where(np.arange(400) < 350, y, 1 - y))
    return fresh.certificate()


def test_the_reserve_allows_for_amended_labels(ledger: Path) -> None:
    X, y = coins(400)
    holdout = opened(ledger, X, y, reserve=0.5)
    holdout.submit(y)
    assert holdout.reserve_certificate().low > 0.97
    new = corrected(y, *range(20))
    with pytest.warns(KnownHoldoutWarning):
        holdout = opened(ledger, X, new)
    with pytest.warns(KnownHoldoutWarning):
        second = opened(ledger, X, new, ladder="second")
    second.submit(new)
    found = second.reserve_certificate()
    assert found.score == 1.0
    # Which rows are the reserve is secret: that none of 20 amended ones is has a chance of 1e-6.
    (said_of_it,) = (one for one in found.assumptions if "amended" in one)
    share = int(said_of_it.split()[0]) / 200
    plain = reserve_interval(share, 200, found.log_count, confidence=0.95, binary=True)
    assert share > 0
    assert found.low == pytest.approx(1 - plain.high)
    # The look of before is answered as it was.
    assert holdout.reserve_certificate().low > 0.97


# Tampering


def other_places(ledger: Path) -> int:
    return tamper(ledger, "view", "places", stored(ledger, "view", "row hashes"))


def other_labels(ledger: Path) -> int:
    return tamper(ledger, "holdout", "label digests", stored(ledger, "holdout", "ids"))


TAMPERED: tuple[tuple[Callable[[Path], int], str], ...] = (
    (other_places, "view 2 of the rows (places) was changed"),
    (
        lambda ledger: tamper(ledger, "event", "path", "x", kind="vaultset"),
        "a note on the vault was changed or moved",
    ),
    (lambda ledger: remove(ledger, "view"), "entries of the chain were removed"),
    (
        lambda ledger: tamper(ledger, "event", "detail", "{}", kind="view"),
        "a note on a view of the rows was",
    ),
    (
        lambda ledger: tamper(ledger, "event", "detail", "{}", kind="amended"),
        "an amendment of the labels was",
    ),
    (lambda ledger: remove(ledger, "event", kind="amended"), "entries of the chain were removed"),
    (other_labels, "the rows (label_digests) was changed"),
)


def test_what_is_changed_about_views_and_labels_is_found(ledger: Path) -> None:
    X, y = coins(N)
    opened(ledger, ids=IDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened(ledger, X[:, :2])
        opened(ledger, X, corrected(y, 3))
    assert verify_holdout(url_of(ledger), "first").findings == ()
    for change, found in TAMPERED:
        with undone(ledger):
            change(ledger)
            said = verify_holdout(url_of(ledger), "first").findings
        assert found in " ".join(map(str, said)), found
