"""Attacks the handle: pickles, forks, workers, lost vaults, budgets, and bad arguments."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression
from sklearn.metrics import matthews_corrcoef

from ladderholdout import InvalidArgument, LadderHoldout, Metric, Release, Status
from ladderholdout.errors import (
    BudgetWarning,
    HoldoutConflict,
    InvalidSubmission,
    KnownHoldoutWarning,
    LedgerError,
    RangeWarning,
    UnknownHoldout,
    VaultError,
)
from ladderholdout.guard.health import verify_holdout
from ladderholdout.mechanisms import (
    BayesBootLadder,
    FullDisclosure,
    Ladder,
    ParameterFreeLadder,
    PricedLadder,
    RoundedDisclosure,
    ShakyLadder,
    SimplifiedLadder,
)
from tests.support.beyond_plain import pd
from tests.support.holdouts import EVERY, assert_replays, coins, guesses, is_repeat, repeats_first
from tests.support.ledgers import chained, counts, entries_of, shared
from tests.support.processes import elsewhere

N = 60
# Rules without noise, with noise, and that resample; MechanismContract has each of them replayed.
KINDS = [one for one in EVERY if one.name in ("Ladder", "ShakyLadder", "BayesBootLadderBoot")]
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="no mode bits and no fork here")


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def opened(ledger: Any, **given: Any) -> LadderHoldout:
    X, y = coins(N)
    return LadderHoldout(X, y, ledger=ledger, **{"scoring": "accuracy", "name": "coins"} | given)


def vault(ledger: Path) -> list[Path]:
    return sorted((ledger.parent / "vault").glob("*.vault"))


class Linear:
    """A fitted classifier whose predictions depend on the row."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> Any:
        return (np.asarray(X)[:, 0] > 0).astype(int)


# Small, and one


@pytest.mark.parametrize(
    ("scoring", "n"),
    [
        ("accuracy", 200_000),
        ("neg_log_loss", 10),
        ("roc_auc", 10),
        ("neg_mean_squared_error", 200_000),
    ],
)
def test_a_handle_pickles_to_under_two_kilobytes(ledger: Path, n: int, scoring: str) -> None:
    X, y = coins(n)
    holdout = LadderHoldout(X, y, scoring=scoring, name="n" * 200, ledger=ledger)
    holdout.submit(y if scoring == "accuracy" else y * 0.5)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        sent = pickle.dumps(holdout, protocol)
        assert len(sent) < 2000
        assert pickle.loads(sent) == holdout
    holdout.split()
    assert len(pickle.dumps(holdout)) < 2000


def test_copies_are_the_handle_itself(ledger: Path) -> None:
    for holdout in (opened(ledger), opened("memory")):
        assert copy.deepcopy(holdout) is holdout
        assert copy.copy(holdout) is holdout
        assert copy.deepcopy({"scoring": [holdout]})["scoring"][0] is holdout


def test_handles_are_equal_by_their_ladder(ledger: Path) -> None:
    first = opened(ledger)
    with pytest.warns(KnownHoldoutWarning):
        second = opened(ledger, ladder="second")
    elsewhere_too = opened(ledger.with_name("other.db"))
    again = pickle.loads(pickle.dumps(first))
    assert again is not first
    assert (again, hash(again)) == (first, hash(first))
    assert len({first, again, second, elsewhere_too, opened(ledger)}) == 3
    assert first != "coins"


def test_a_handle_shows_its_place_alone(ledger: Path) -> None:
    holdout = opened(ledger)
    assert repr(holdout) == str(holdout)
    assert repr(holdout) == f"LadderHoldout(ladder=1, metric='accuracy', ledger='{ledger}')"
    assert repr(opened("memory")).endswith("ledger='memory')")


# Other processes


def submit_in_forks(holdout: LadderHoldout, forks: int) -> list[Release]:
    """Submit here, then in forks of this process, then here again."""
    told = [holdout.submit(guesses([1, 0], 1, N)[0])]
    for fork in range(forks):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                release = holdout.submit(guesses([1, fork + 1], 1, N)[0])
                os.write(writer, pickle.dumps(release))
                os._exit(0)
            finally:
                os._exit(1)
        os.close(writer)
        with open(reader, "rb") as pipe:
            told.append(pickle.loads(pipe.read()))
        assert os.waitpid(child, 0)[1] == 0
        told.append(holdout.submit(guesses([2, fork], 1, N)[0]))
    return told


@pytest.mark.processes
@posix
@pytest.mark.parametrize("mechanism", KINDS, ids=lambda one: one.name)
def test_a_handle_works_in_forks_and_their_parent(ledger: Path, mechanism: Any) -> None:
    holdout = opened(ledger, mechanism=mechanism)
    told = elsewhere(submit_in_forks, holdout, 5)
    assert [one.submission for one in told] == list(range(1, 12))
    history = holdout.history()
    assert [(one.score, one.improved) for one in told] == [
        (one.score, one.improved) for one in history
    ]
    assert_replays(holdout)


@pytest.mark.processes
def test_a_handle_works_in_loky(ledger: Path) -> None:
    holdout = opened(ledger, mechanism=FullDisclosure())
    given = list(guesses(3, 12, N))
    told = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(LadderHoldout.submit)(holdout, one, context={"turn": turn})
        for turn, one in enumerate([*given, *given])
    )
    assert {one.submission for one in told} == set(range(1, 25))
    for first, again, predictions in zip(told[:12], told[12:], given, strict=True):
        assert first.score == again.score
        assert first.score == pytest.approx(np.mean(predictions == coins(N)[1]))
        assert sorted([is_repeat(holdout, first), is_repeat(holdout, again)]) == [False, True]
    assert {one.context["turn"] for one in holdout.history()} == set(range(24))
    assert_replays(holdout)


def look(holdout: LadderHoldout) -> tuple[Any, ...]:
    seen = (
        holdout.name,
        holdout.status().fingerprint,
        holdout.metric,
        holdout.rules,
        holdout.ledger,
    )
    return (*seen, repr(holdout), holdout.status(), holdout.history())


MODELS: dict[str, Any] = {
    "accuracy": Linear(),
    "neg_brier_score": DummyClassifier(strategy="prior").fit([[0], [1]], [0, 1]),
    "neg_mean_squared_error": LinearRegression().fit(*coins(N, seed=1)),
}


@pytest.mark.processes
@pytest.mark.parametrize("scoring", list(MODELS))
def test_everything_is_the_same_in_another_process(ledger: Path, scoring: str) -> None:
    holdout, model = opened(ledger, scoring=scoring, budget=100), MODELS[scoring]
    told = [holdout.submit(model), holdout.submit(guesses(4, 1, N)[0])]
    assert elsewhere(look, holdout) == look(holdout)
    for release, again in (
        (told[0], elsewhere(LadderHoldout.submit, holdout, model)),
        (told[1], elsewhere(LadderHoldout.submit, holdout, guesses(4, 1, N)[0])),
    ):
        status = holdout.status()
        assert (again.score, again.improved) == (status.score, False)
        assert (again.repeat_of, again.has_held) == (release.submission, release.improved)
        assert again.is_incumbent == (status.incumbent == release.submission)
        assert is_repeat(holdout, again)


@pytest.mark.processes
def test_what_stands_is_known_without_the_rows(ledger: Path) -> None:
    holdout = opened(ledger)
    holdout.submit(guesses(0, 1, N)[0])
    for file in vault(ledger):
        file.unlink()
    seen, here = elsewhere(look, holdout), look(holdout)
    assert [without_certificate(one) for one in seen] == [without_certificate(one) for one in here]


def without_certificate(view: Any) -> Any:
    """Leave out what rests on the weights of the rows; who has no rows is told why it lacks."""
    if not isinstance(view, Status):
        return view
    assert view.certificate.low is not None or "are missing" in str(view.certificate)
    return replace(view, certificate=None)


# Opening by name


@pytest.mark.processes
def test_a_name_is_enough(ledger: Path) -> None:
    main = opened(ledger)
    with pytest.warns(KnownHoldoutWarning):
        side = opened(ledger, ladder="side", scoring="f1", budget=3)
    with pytest.warns(KnownHoldoutWarning):
        theirs = opened(ledger, account="theirs", mechanism=Ladder(step=0.1))
    assert LadderHoldout.open("coins", ledger=ledger) == main
    assert LadderHoldout.open("coins", ladder="side", ledger=ledger) == side
    found = LadderHoldout.open("coins", account="theirs", ledger=ledger)
    assert (found, found.rules.mechanism) == (theirs, Ladder(step=0.1))
    assert LadderHoldout.open("coins", scoring="f1", ladder="side", ledger=ledger) == side
    first = elsewhere(open_and_submit, str(ledger), "side")
    assert first == Release(1.0, True, 1, 2, is_incumbent=True)
    again = side.submit(coins(N)[1])
    assert again == Release(first.score, False, 2, 2, repeat_of=1, is_incumbent=True)


def open_and_submit(ledger: str, ladder: str) -> Release:
    holdout = LadderHoldout.open("coins", ladder=ladder, ledger=ledger)
    return holdout.submit(coins(N)[1])


def test_the_default_ledger_is_found_by_name_alone(default_ledger: Path) -> None:
    opened(None).submit(guesses(0, 1, N)[0])
    assert LadderHoldout.open("coins").status().ledger == str(default_ledger)


def test_an_unknown_name_is_said_with_what_there_is(ledger: Path) -> None:
    opened(ledger)
    for asked, said in (
        ({"name": "dice"}, r"no holdout 'dice'\. It holds: 'coins'"),
        (
            {"name": "coins", "ladder": "side"},
            r"no ladder 'side' of account 'default'.*default/main",
        ),
        ({"name": "coins", "account": "theirs"}, r"account 'theirs'.*default/main"),
    ):
        with pytest.raises(UnknownHoldout, match=said):
            LadderHoldout.open(**asked, ledger=ledger)
    with pytest.raises(HoldoutConflict, match=r"scoring 'accuracy', and you ask for 'f1'"):
        LadderHoldout.open("coins", scoring="f1", ledger=ledger)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("name", ""), ("name", 3), ("account", None), ("ladder", ""), ("feedback", "capped")],
)
def test_open_names_the_bad_argument(ledger: Path, argument: str, value: Any) -> None:
    opened(ledger)
    with pytest.raises(InvalidArgument, match=f"^{argument} must be"):
        LadderHoldout.open(**{"name": "coins", "ledger": ledger} | {argument: value})


# A metric of one's own


def distance(targets: Any, predictions: Any) -> Any:
    return np.abs(targets - predictions)


OWN = Metric("distance", "values", loss=distance, loss_range=(0, 2), offset=1.0)


@pytest.mark.processes
def test_a_metric_of_ones_own_needs_its_function_to_look(ledger: Path) -> None:
    holdout = opened(ledger, scoring=OWN)
    told = holdout.submit(np.full(N, 0.5))
    assert told.score == 0.5
    seen, refusal = elsewhere(look_and_evaluate, str(ledger))
    assert without_certificate(seen[0]) == without_certificate(holdout.status())
    assert seen[1] == holdout.history()
    assert "scoring must be given again for a metric of your own" in refusal
    assert "LadderHoldout.open(name, scoring=metric)" in refusal
    assert holdout.status().submissions == 1
    # With the function it goes on, also in a process that had opened it without.
    again = elsewhere(open_twice, str(ledger), OWN)
    assert repeats_first(holdout, again, told)


def look_and_evaluate(ledger: str) -> tuple[Any, str]:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    seen = holdout.status(), holdout.history()
    assert holdout.metric.to_score(0.25) == 0.75
    for action in (
        lambda: holdout.submit(np.full(N, 0.5)),
        lambda: holdout.submit(LinearRegression().fit(*coins(N))),
    ):
        with pytest.raises(InvalidArgument) as caught:
            action()
    return seen, str(caught.value)


def open_twice(ledger: str, metric: Metric) -> Release:
    assert LadderHoldout.open("coins", ledger=ledger).name == "coins"
    holdout = LadderHoldout.open("coins", scoring=metric, ledger=ledger)
    return holdout.submit(np.full(N, 0.5))


@pytest.mark.processes
def test_a_handle_carries_a_metric_of_ones_own(ledger: Path) -> None:
    holdout = opened(ledger, scoring=OWN)
    told = elsewhere(LadderHoldout.submit, holdout, np.full(N, 0.5))
    assert (told.score, told.submission) == (0.5, 1)


# Rows that may not be copied


@pytest.mark.processes
def test_rows_that_may_not_be_copied_travel_with_the_handle(ledger: Path) -> None:
    holdout = opened(ledger, vault=False)
    told = holdout.submit(guesses(0, 1, N)[0])
    assert vault(ledger) == []
    sent = pickle.dumps(holdout)
    assert len(sent) > coins(N)[0].nbytes
    again = elsewhere(LadderHoldout.submit, holdout, guesses(0, 1, N)[0])
    assert (again.score, is_repeat(holdout, again)) == (told.score, True)
    assert elsewhere(LadderHoldout.submit, holdout, Linear()).submission == 3
    # Nobody else can look; anybody can see what stands.
    with pytest.raises(VaultError, match=r"No copy of the rows of 'coins' is kept \(vault=False\)"):
        elsewhere(open_and_submit, str(ledger), "main")
    seen = elsewhere(status_of, str(ledger))
    assert without_certificate(seen) == without_certificate(holdout.status())
    # Going on without saying it again keeps no copy either.
    assert is_repeat(opened(ledger), opened(ledger).submit(guesses(0, 1, N)[0]))
    assert vault(ledger) == []


def status_of(ledger: str) -> Status:
    return LadderHoldout.open("coins", ledger=ledger).status()


def test_a_memory_ledger_keeps_no_copy_unless_it_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    opened("memory")
    assert list(tmp_path.iterdir()) == []
    opened("memory", vault=tmp_path / "told")
    assert len(list((tmp_path / "told").iterdir())) == 1


@pytest.mark.processes
def test_the_vault_can_lie_elsewhere(ledger: Path, tmp_path: Path) -> None:
    holdout = opened(ledger, vault=tmp_path / "safe" / "deep")
    assert vault(ledger) == []
    (file,) = (tmp_path / "safe" / "deep").glob("*.vault")
    assert elsewhere(LadderHoldout.submit, holdout, coins(N)[1]).score == 1.0
    # Going on without saying it again leaves it where it is.
    opened(ledger)
    opened(ledger, vault=str(tmp_path / "safe" / "deep"))
    assert list((tmp_path / "safe" / "deep").glob("*.vault")) == [file]


@pytest.mark.processes
def test_a_vault_that_moves_leaves_no_copy_behind(ledger: Path, tmp_path: Path) -> None:
    holdout = opened(ledger)
    (first,) = vault(ledger)
    opened(ledger, vault=tmp_path / "safe")
    assert not first.exists()
    assert len(list((tmp_path / "safe").glob("*.vault"))) == 1
    assert elsewhere(LadderHoldout.submit, holdout, coins(N)[1]).score == 1.0
    opened(ledger, vault=False)
    assert list((tmp_path / "safe").glob("*.vault")) == []
    with pytest.raises(VaultError, match="No copy"):
        elsewhere(LadderHoldout.submit, holdout, coins(N)[1])
    opened(ledger, vault=True)
    assert len(vault(ledger)) == 1
    assert is_repeat(holdout, elsewhere(LadderHoldout.submit, holdout, coins(N)[1]))


def lose(file: Path) -> None:
    file.unlink()


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def expose(file: Path) -> None:
    file.chmod(0o644)


@pytest.mark.processes
@posix
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lose, "cannot be read: No such file"),
        (damage, "not the file that was written"),
        (expose, "open to other users"),
    ],
)
def test_a_harmed_vault_is_refused_until_the_rows_are_given_again(
    ledger: Path, harm: Callable[[Path], None], said: str
) -> None:
    holdout = opened(ledger)
    told = holdout.submit(guesses(0, 1, N)[0])
    (file,) = vault(ledger)
    harm(file)
    before = counts(ledger)
    with pytest.raises(VaultError, match=said):
        elsewhere(LadderHoldout.submit, holdout, coins(N)[1])
    assert counts(ledger) == before
    X, y = coins(N)
    with (
        pytest.warns(KnownHoldoutWarning, match="another order"),
        pytest.raises(InvalidArgument, match="X must be in the order it was registered in"),
    ):
        LadderHoldout(X[::-1], y[::-1], ledger=ledger)
    assert is_repeat(opened(ledger), opened(ledger).submit(guesses(0, 1, N)[0]))
    (whole,) = vault(ledger)
    assert whole.stat().st_mode & 0o077 == 0
    again = elsewhere(LadderHoldout.submit, holdout, guesses(0, 1, N)[0])
    assert (again.score, is_repeat(holdout, again)) == (told.score, True)


def test_a_vault_that_cannot_be_written_registers_nothing(ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "in the way").touch()
    with pytest.raises(VaultError, match="cannot be written"):
        opened(ledger, vault=tmp_path / "in the way")
    assert counts(ledger) == {
        "holdouts": 0,
        "ladders": 0,
        "submissions": 0,
        "overlaps": 0,
        "reserve queries": 0,
        "views": 0,
        "incumbents": 0,
        "vault": 0,
    }


# A budget


@pytest.mark.processes
@pytest.mark.parametrize("mechanism", KINDS, ids=lambda one: one.name)
def test_a_budget_is_spent_once_and_said_once(ledger: Path, mechanism: Any) -> None:
    _, y = coins(N)
    better = [np.where(np.arange(N) < 20 * (at + 1), y, 1 - y) for at in range(3)]
    holdout = opened(ledger, mechanism=mechanism, budget=2)
    assert holdout.status().releases_left == 2
    first = holdout.submit(better[0])
    assert first.releases_left == 1
    with pytest.warns(BudgetWarning, match=r"The 2 releases of this ladder are used up") as said:
        second = holdout.submit(better[1])
    assert len(said) == 1
    assert (second.improved, second.releases_left) == (True, 0)
    # The truth itself does not improve on a ladder that has no release left, and is not told.
    third = holdout.submit(better[2])
    assert third == Release(second.score, False, 3, False, 0)
    status = holdout.status()
    assert (status.releases, status.budget, status.releases_left) == (2, 2, 0)
    assert (status.score, status.incumbent) == (second.score, 2)
    assert dict(status.lines())["releases"] == "2 of 2: used up, the released score stays"
    assert elsewhere(LadderHoldout.submit, holdout, 1 - y).score == second.score
    assert_replays(holdout)


def test_a_status_without_a_budget_shows_none(ledger: Path) -> None:
    holdout = opened(ledger)
    lines = dict(holdout.status().lines())
    assert (lines["releases"], lines["released score"]) == ("0", "none yet")
    holdout.submit(coins(N)[1])
    holdout.submit(coins(N)[1])
    lines = dict(holdout.status().lines())
    assert (lines["releases"], lines["released score"]) == ("1", "1 (submission 1)")
    assert lines["submissions"] == "2"
    assert lines["ledger"] == str(ledger)


# Weights, classes, ranges


@pytest.mark.processes
def test_weights_count_and_stay(ledger: Path) -> None:
    _, y = coins(N)
    weights = np.where(np.arange(N) < 10, 5.0, 1.0)
    holdout = opened(ledger, sample_weight=weights, mechanism=FullDisclosure())
    wrong = np.where(np.arange(N) < 10, 1 - y, y)
    assert holdout.submit(wrong).score == pytest.approx(0.5)
    assert elsewhere(LadderHoldout.submit, holdout, 1 - wrong).score == pytest.approx(0.5)
    # The weights are the holdout's own.
    for given in ({}, {"sample_weight": np.ones(N)}, {"sample_weight": weights[::-1].copy()}):
        with pytest.raises(HoldoutConflict, match="other weights than they were registered"):
            opened(ledger, name="other", **given)
    again = opened(ledger, sample_weight=list(weights))
    assert is_repeat(again, again.submit(wrong))


def test_weights_of_one_are_none(ledger: Path) -> None:
    holdout = opened(ledger)
    assert opened(ledger, sample_weight=np.ones(N)) == holdout


@pytest.mark.processes
def test_classes_that_the_rows_lack_can_be_predicted(ledger: Path) -> None:
    X, y = coins(N)
    texts = np.array(["no", "yes"])[y]
    with pytest.raises(InvalidSubmission, match="classes="):
        LadderHoldout(X, texts, scoring="accuracy", ledger="memory").submit(["maybe"] * N)
    holdout = LadderHoldout(
        X, texts, scoring="accuracy", ledger=ledger, classes=["maybe", "no", "yes"]
    )
    assert holdout.submit(["maybe"] * N).score == 0.0
    assert elsewhere(LadderHoldout.submit, holdout, texts).score == 1.0
    third = np.full((N, 3), [0.0, 0.5, 0.5])
    with pytest.warns(KnownHoldoutWarning):
        probabilities = LadderHoldout(
            X, texts, scoring="neg_brier_score", ledger=ledger, ladder="second"
        )
    assert probabilities.submit(third).score == pytest.approx(-0.5)


@pytest.mark.processes
def test_a_stated_range_clips_the_losses_of_the_interval_alone(ledger: Path) -> None:
    _, y = coins(N)
    holdout = opened(
        ledger, scoring="neg_mean_squared_error", loss_range=(0, 4), mechanism=FullDisclosure()
    )
    assert holdout.rules.unit == 4.0
    far = y + np.where(np.arange(N) < 30, 1.0, 1000.0)
    assert holdout.submit(far).score == pytest.approx(-500_000.5)
    assert elsewhere(LadderHoldout.submit, holdout, y + 2000.0).score == pytest.approx(-4e6)
    # On a ledger of its own: full disclosure leaves no certificate on the same rows.
    certified = opened(
        ledger.with_name("other.db"), scoring="neg_mean_squared_error", loss_range=(0, 4)
    )
    assert certified.submit(far).score == pytest.approx(-500_000.5, abs=1.0)
    found = elsewhere(LadderHoldout.certificate, certified)
    # Of the clipped losses, whose mean is 2.5, whatever was released.
    assert -3.0 < found.low < -2.5 and "30 of 60 rows" in found.clipping
    with pytest.warns(RangeWarning, match="clipped at 4, which are 30 of 60 rows"):
        assert found == certified.certificate()


@pytest.mark.processes
def test_two_classes_halve_the_range_of_the_brier_score(ledger: Path) -> None:
    holdout = opened(ledger, scoring="neg_brier_score")
    assert holdout.metric.loss_range == (0.0, 1.0)
    for again in (LadderHoldout.open("coins", ledger=ledger), opened(ledger, scoring=None)):
        assert again.metric == holdout.metric
    assert (holdout.rules.unit, elsewhere(unit_of, str(ledger))) == (1.0, (1.0, (0.0, 1.0)))


def unit_of(ledger: str) -> tuple[Any, Any]:
    holdout = LadderHoldout.open("coins", ledger=ledger)
    return holdout.rules.unit, holdout.metric.loss_range


# What a new ladder follows


AGREEMENT = Metric("agreement", "labels", score=matthews_corrcoef, loss_range=(0, 2), offset=1)


@pytest.mark.parametrize(
    ("scoring", "mechanism"),
    [
        ("accuracy", PricedLadder(weight=0.7)),
        ("f1_micro", PricedLadder(weight=0.7)),
        ("neg_brier_score", ParameterFreeLadder()),
        ("neg_log_loss", ParameterFreeLadder()),
        ("neg_mean_squared_error", ParameterFreeLadder()),
        ("roc_auc", BayesBootLadder(odds=17 / 3, n_posterior=1000, step=0.065)),
        ("r2", BayesBootLadder(odds=17 / 3, n_posterior=1000, step=0.065)),
        ("roc_auc_ovr", Ladder(step=1 / np.sqrt(N))),
        (AGREEMENT, Ladder(step=1 / np.sqrt(N))),
    ],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_the_default_mechanism_fits_the_metric(scoring: Any, mechanism: Any) -> None:
    holdout = opened("memory", scoring=scoring)
    assert holdout.rules.mechanism == mechanism
    for shift in (0, 7, 20):
        predictions = np.roll(np.linspace(0.1, 0.9, N), shift)
        labels = holdout.metric.response == "labels"
        holdout.submit((predictions > 0.5).astype(int) if labels else predictions)
    assert_replays(holdout)


@pytest.mark.parametrize("scoring", ["accuracy", "neg_brier_score", "neg_log_loss", "roc_auc"])
def test_with_a_reserve_the_default_is_another(scoring: str) -> None:
    defaults = {
        "accuracy": SimplifiedLadder(step=1 / 45),
        "neg_brier_score": SimplifiedLadder(step=1 / 45),
        "neg_log_loss": ParameterFreeLadder(),
        "roc_auc": BayesBootLadder(odds=17 / 3, n_posterior=1000, step=0.075),
    }
    reserved = opened("memory", scoring=scoring, reserve=0.25)
    assert reserved.rules.mechanism == defaults[scoring]
    # A second ladder on the same rows, which states no reserve, has one too.
    with pytest.warns(KnownHoldoutWarning):
        again = opened(reserved.ledger, scoring=scoring, account="ben")
    assert again.rules.mechanism == defaults[scoring]


@pytest.mark.parametrize("former", [ParameterFreeLadder(), Ladder(step=1 / np.sqrt(N))])
def test_a_ladder_keeps_the_default_it_was_started_under(ledger: Path, former: Any) -> None:
    scoring = "accuracy" if former == ParameterFreeLadder() else "roc_auc"
    opened(ledger, scoring=scoring, mechanism=former)
    for again in (opened(ledger, scoring=scoring), LadderHoldout.open("coins", ledger=ledger)):
        assert again.rules.mechanism == former


# Bad arguments

BAD: list[tuple[str, Any, str, str]] = [
    ("X", None, "a table of rows", "NoneType"),
    ("X", 5, "a table of rows", "int"),
    ("X", iter([1]), "a table of rows", "list_iterator"),
    ("X", np.float64(1), "a table of rows", "float64"),
    ("X", [{"a": 1}] * N, "a table of numbers", "dict"),
    ("X", [[1, 2], [3]] * (N // 2), "a table of numbers", "cells of type list"),
    ("y", None, "an array with a value for each row", r"of shape \(\)"),
    ("y", [], "an array with a value for each row", r"of shape \(0,\)"),
    ("y", [[1], [2, 3]], "an array with a value for each row", "list"),
    ("y", [0, 1], r"as long as X \(60 rows\)", "of length 2"),
    ("y", ["a", None] * (N // 2), "real numbers or an array of text", "missing values"),
    ("y", np.linspace(0, 1, N), "one label for each row", "fractions"),
    ("scoring", None, "stated for a new ladder", "missing"),
    ("scoring", "acuracy", "one of the .* names", "'acuracy'.*'accuracy'"),
    ("scoring", distance, "the name of a metric, or a Metric", "a function"),
    ("name", "", "a printable text of 1 to 200 characters", "of 0 characters"),
    ("name", "  ", "a printable text of 1 to 200 characters", "of 2 characters"),
    ("name", "n" * 201, "a printable text of 1 to 200 characters", "of 201 characters"),
    ("name", "two\nlines", "a printable text", r"U\+000A"),
    ("name", "\ud800", "a printable text", r"U\+D800"),
    ("name", 7, "a printable text", "int"),
    ("account", None, "a printable text", "NoneType"),
    ("account", "", "a printable text", "of 0 characters"),
    ("ladder", b"main", "a printable text", "bytes"),
    ("mechanism", "Ladder", "a Mechanism", "'Ladder'"),
    ("mechanism", Ladder, "a Mechanism", "ABCMeta"),
    ("budget", 0, "a whole number of at least 1", "0"),
    ("budget", -1, "a whole number of at least 1", "-1"),
    ("budget", 1.5, "a whole number of at least 1", "1.5"),
    ("budget", True, "a whole number of at least 1", "True"),
    ("budget", "many", "a whole number of at least 1", "'many'"),
    ("sample_weight", [1.0], "60 finite numbers", r"shape \(1,\)"),
    ("sample_weight", np.zeros(N), "60 finite numbers", r"shape \(60,\)"),
    ("sample_weight", -np.ones(N), "none negative", r"shape \(60,\)"),
    ("sample_weight", np.full(N, np.nan), "60 finite numbers", r"shape \(60,\)"),
    ("sample_weight", "heavy", "60 finite numbers", "shape"),
    ("classes", 5, "one label for each row", "shape"),
    ("classes", [None, "a"], "real numbers or an array of text", "missing values"),
    ("loss_range", (0, 1), "left out for this metric", "bounded already"),
    ("feedback", "capped", "one of 'auto', 'penalised', 'incumbent'", "'capped'"),
    ("feedback", None, "one of 'auto'", "None"),
    ("overlap", "never", "one of 'auto', 'warn', 'error', 'ignore'", "'never'"),
    ("ledger", 3, "a path", "int"),
    ("ledger", "mysql://host/x", "a path", "mysql://host/x"),
    ("vault", 3, "a folder, True or False", "3"),
    ("vault", "", "a folder, True or False", "''"),
    ("vault", b"vault", "a folder, True or False", "bytes"),
]


@pytest.mark.parametrize(
    ("argument", "value", "allowed", "came"),
    BAD,
    ids=[f"{argument}-{at}" for at, (argument, *_) in enumerate(BAD)],
)
def test_a_bad_argument_is_named_with_what_is_allowed_and_what_came(
    ledger: Path, argument: str, value: Any, allowed: str, came: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        X, y = coins(N)
        given = {"X": X, "y": y, "scoring": "accuracy", "name": "coins", "ledger": ledger}
        LadderHoldout(**given | {argument: value})
    assert re.match(f"{argument} must be .*{allowed}.*, but is .*{came}", str(caught.value))
    assert caught.value.args[0] == argument
    assert not ledger.exists() or sum(counts(ledger).values()) == 0


def test_classes_that_lack_a_label_of_the_rows_are_refused(ledger: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"^y must be labels of the 1 classes.*classes="):
        opened(ledger, classes=[0])
    assert sum(counts(ledger).values()) == 0


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"scoring": "neg_mean_squared_error", "loss_range": (1, 5)}, "loss_range"),
        ({"scoring": "neg_mean_squared_error", "loss_range": (0, np.inf)}, "loss_range"),
        ({"scoring": "neg_mean_squared_error", "loss_range": 5}, "loss_range"),
        ({"scoring": "r2", "loss_range": (0, 5)}, "target_range"),
        ({"scoring": None, "loss_range": (0, 5)}, "loss_range"),
        ({"scoring": "neg_mean_squared_error", "classes": [0, 1]}, "classes"),
        ({"scoring": "roc_auc", "mechanism": ParameterFreeLadder()}, "mechanism"),
        ({"scoring": "neg_log_loss", "mechanism": ShakyLadder(step=0.1, noise=0.1)}, "mechanism"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused(
    ledger: Path, given: dict[str, Any], argument: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"^{argument} must be"):
        opened(ledger, **given)
    assert not ledger.exists() or sum(counts(ledger).values()) == 0


def test_refused_predictions_write_nothing(ledger: Path) -> None:
    refused = [
        *(None, 0, [], "text", {"a": 1}, ["yes"] * N, [0] * (N - 1) + [None]),
        *(np.zeros(N - 1), np.zeros(N + 1), np.zeros((N, 2))),
        *(np.full(N, value) for value in (np.nan, 2, 0.5, 1j)),
        *([] if pd is None else [pd.Series([pd.NA] * N)]),
    ]
    holdout = opened(ledger)
    before = counts(ledger)
    for predictions in refused:
        with pytest.raises(InvalidSubmission, match=r"^predictions must be"):
            holdout.submit(predictions)
        assert counts(ledger) == before
    assert holdout.submit(coins(N)[1]).submission == 1


def test_a_context_that_json_cannot_hold_writes_nothing(ledger: Path) -> None:
    holdout = opened(ledger)
    contexts: tuple[Any, ...] = (
        *({"a": object()}, {"a": float("nan")}, {"a": "x" * 20_000}, {1: {2, 3}}, "ab"),
    )
    for context, submitted in itertools.product(contexts, (coins(N)[1], Linear())):
        with pytest.raises(InvalidArgument, match=r"^context must be"):
            holdout.submit(submitted, context=context)
    assert holdout.status().submissions == 0


def test_a_context_is_found_in_the_history(ledger: Path) -> None:
    holdout = opened(ledger)
    holdout.submit(coins(N)[1], context={"note": "ü", "list": [1, None, {"a": 0.1}]})
    holdout.submit(Linear(), context={"trial": 3})
    by_hand, by_model = holdout.history()
    assert by_hand.context == {"note": "ü", "list": [1, None, {"a": 0.1}]}
    assert by_model.context == {"estimator": "Linear", "trial": 3}


def test_the_history_can_be_read_in_parts(ledger: Path) -> None:
    holdout = opened(ledger, mechanism=RoundedDisclosure(step=0.1))
    for predictions in guesses(5, 6, N):
        holdout.submit(predictions)
    assert [one.number for one in holdout.history(after=2, limit=3)] == [3, 4, 5]
    assert holdout.history(after=6) == ()
    first, second, *_ = entries_of(holdout)
    assert first.disagreement is None
    assert second.disagreement == np.mean(guesses(5, 6, N)[0] != guesses(5, 6, N)[1])
    times = [one.time for one in holdout.history()]
    assert times == sorted(times)


@pytest.mark.processes
def test_a_ledger_that_cannot_be_found_again_is_an_error_in_a_worker(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    holdout = opened(tmp_path / "here" / "ledger.db")
    holdout.submit(coins(N)[1])
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(LedgerError, match="is not there"):
        elsewhere(LadderHoldout.submit, holdout, coins(N)[1])
    # Its new place is a ledger like any other; the rows are where the ledger says they were.
    moved = LadderHoldout.open("coins", ledger=tmp_path / "there" / "ledger.db")
    assert moved.status().submissions == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = opened(tmp_path / "there" / "ledger.db")
    assert is_repeat(again, again.submit(coins(N)[1]))


@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_registration_without_a_query_is_taken_back(tmp_path: Path, place: str) -> None:
    """With a slip, such as missing groups: its name and its rows are free again."""
    X, y = coins(60)
    ledger: Any = "memory:forget" if place == "memory" else tmp_path / "ledger.db"
    slip = LadderHoldout(X, y, scoring="accuracy", name="slip", ledger=ledger)
    other = LadderHoldout(*coins(60, 1), scoring="accuracy", name="other", ledger=ledger)
    slip.owner.spent_at(0.1)
    slip.owner.forget()
    assert not [*tmp_path.glob(f"**/{slip.status().fingerprint[:16]}*.vault")]
    for refused in (
        lambda: slip.submit(y),
        slip.owner.forget,
        lambda: slip.replenish(*coins(60, 2)),
    ):
        with pytest.raises(HoldoutConflict, match="of 'slip' was forgotten"):
            refused()
    with pytest.raises(UnknownHoldout, match="It holds: 'other'"):
        LadderHoldout.open("slip", ledger=ledger)
    groups = np.arange(60) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = LadderHoldout(
            X, y, scoring="accuracy", name="slip", ledger=ledger, groups=groups, overlap="error"
        )
    right.submit(y)
    assert right.certificate().mean_over == "rows" and right != slip
    for name in ("slip", "other", slip.status().name):
        assert verify_holdout(right.ledger, name).findings == ()
    assert chained(slip)[-1] == "forgotten"
    assert not shared(right)
    assert other.submit(coins(60, 1)[1]).submission == 1


def test_what_was_asked_is_not_forgotten() -> None:
    X, y = coins(60)

    def opened(name: str) -> LadderHoldout:
        return LadderHoldout(X, y, scoring="accuracy", name=name, ledger=f"memory:{name}")

    asked: dict[str, Any] = {
        "it has 1 submission": lambda holdout: holdout.submit(y),
        "shown": lambda holdout: holdout.compare(y, 1 - y),
        "retired": lambda holdout: holdout.owner.retire(),
        "its rows follow others": lambda holdout: holdout.replenish(*coins(60, 1)),
    }
    for place, (why, ask) in enumerate(asked.items()):
        holdout = opened(f"asked{place}")
        newest = ask(holdout)
        newest = newest if isinstance(newest, LadderHoldout) else holdout
        with pytest.raises(HoldoutConflict, match=f"cannot be forgotten.*{why}"):
            newest.owner.forget()
        assert LadderHoldout.open(newest.name, ledger=newest.ledger) == newest
