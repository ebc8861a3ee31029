"""Attacks commit-before-release, the one order, and the replay: kill -9, races, tampering."""

from __future__ import annotations

import itertools
import os
import random
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from ladderholdout import LadderHoldout, Release
from ladderholdout.mechanisms import FullDisclosure, Mechanism, ParameterFreeLadder
from ladderholdout.metrics import get_metric
from tests.support.holdouts import EVERY, SHAKY, assert_replays, coins, guesses, repeats
from tests.support.ledgers import (
    counts,
    entries_of,
    order_of_all,
    rechain,
    record,
    replayed,
    tamper,
)
from tests.support.processes import at_once, die_at, elsewhere, killed

pytestmark = pytest.mark.processes

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="neither fork nor SIGKILL here")
ANSWER = "<qd?"  # number, score, improved

Answer = tuple[int, float, bool]


def answer(release: Release) -> Answer:
    return release.submission, release.score, release.improved


def assert_known(holdout: LadderHoldout, predictions: Any, first: Answer) -> None:
    """They are a repeat of the first: no improvement, and told what stands now."""
    number, score, _ = first
    again = holdout.submit(predictions)
    assert entries_of(holdout)[again.submission - 1].repeat_of == number
    discloses = holdout.rules.mechanism.discloses
    due = score if discloses else holdout.status().score
    assert (again.score, again.improved) == (due, False)


def opened(ledger: Path, mechanism: Mechanism, **settings: Any) -> LadderHoldout:
    X, y = coins()
    given = {"scoring": "accuracy", "name": "coins", "mechanism": mechanism} | settings
    return LadderHoldout(X, y, ledger=ledger, **given)


# Commit before release


class Constant:
    """A fitted classifier, of a sort."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> Any:
        return np.zeros(len(X), dtype=int)


def submit_until_killed(ledger: str, who: int, kills: int, longest: float) -> list[list[Answer]]:
    """Kill submitters one after the other; return what each was told before it died."""
    holdout = LadderHoldout.open("coins", ledger=ledger)
    # The forks find the rows read, so they submit at once, and inherit an open connection.
    holdout.submit(Constant())
    moment = random.Random(who)
    heard = []
    for turn in range(kills):

        def submit_on_and_on(writer: int, turn: int = turn) -> NoReturn:
            for predictions in guesses([who, turn], 10_000):
                os.write(writer, struct.pack(ANSWER, *answer(holdout.submit(predictions))))
            raise AssertionError("nobody killed it")

        # Every other one lives to say something, however busy the machine is.
        wait = moment.uniform(0.0, longest)
        said, end = killed(submit_on_and_on, wait, once_it_spoke=turn % 2 == 0)
        assert end == -signal.SIGKILL
        heard.append(list(struct.iter_unpack(ANSWER, said)))
    return heard


def check_kills(
    ledger: Path, mechanism: Mechanism, kills: int, longest: float, at_a_time: int
) -> None:
    holdout = opened(ledger, mechanism)
    heard = at_once(
        [(submit_until_killed, holdout.ledger, who, kills, longest) for who in range(at_a_time)]
    )
    history = holdout.history()
    assert [one.number for one in history] == list(range(1, len(history) + 1))
    for answers in heard:
        numbers = [number for told in answers for number, *_ in told]
        assert numbers == sorted(set(numbers))
        assert len(numbers) >= kills / 2
    told = {number: one for answers in heard for told in answers for number, *one in told}
    entries = entries_of(holdout)
    for number, (score, improved) in told.items():
        kept = history[number - 1]
        assert (kept.score.hex(), kept.improved) == (float(score).hex(), improved)
        assert entries[number - 1].repeat_of is None
    # A kill can hit between the commit and the answer, once each; the first was by hand.
    assert len(history) - len(told) <= at_a_time * (kills + 1)
    assert_replays(holdout)
    # The next process goes on where the dead left off, and knows their predictions again.
    for who, answers in enumerate(heard):
        for turn in range(0, kills, 10):
            predictions = guesses([who, turn], len(answers[turn]))
            for first, again in list(zip(answers[turn], predictions, strict=True))[-3:]:
                assert_known(holdout, again, first)
    assert holdout.submit(coins()[1]).submission == holdout.status().submissions
    assert_replays(holdout)


@posix
@pytest.mark.parametrize(
    ("mechanism", "kills"),
    [
        pytest.param(FullDisclosure(), 6, id="FullDisclosure-some"),
        pytest.param(SHAKY, 6, id="ShakyLadder-some"),
        pytest.param(FullDisclosure(), 100, id="FullDisclosure-all", marks=pytest.mark.nightly),
        pytest.param(SHAKY, 100, id="ShakyLadder-all", marks=pytest.mark.nightly),
    ],
)
def test_kill_9_loses_no_release_that_was_seen(
    tmp_path: Path, mechanism: Mechanism, kills: int
) -> None:
    check_kills(tmp_path / "ledger.db", mechanism, kills=kills, longest=0.04, at_a_time=1)


@posix
@pytest.mark.nightly
@pytest.mark.parametrize("mechanism", [FullDisclosure(), SHAKY], ids=lambda one: one.name)
def test_kill_9_among_others_loses_no_release_either(tmp_path: Path, mechanism: Mechanism) -> None:
    check_kills(tmp_path / "ledger.db", mechanism, kills=100, longest=0.3, at_a_time=3)


def submit_and_die_everywhere(ledger: str) -> list[tuple[int, bytes, int]]:
    """Kill submitters of the same predictions at each moment in turn; return what stood then."""
    holdout = LadderHoldout.open("coins", ledger=ledger)
    stood = []
    for moment in itertools.count(1):
        predictions = guesses([2, moment], 1)[0]

        def submit(writer: int, predictions: Any = predictions, moment: int = moment) -> None:
            die_at(moment)
            os.write(writer, struct.pack(ANSWER, *answer(holdout.submit(predictions))))

        said, end = killed(submit)
        stood.append((holdout.status().submissions, said, end))
        if end == 0:
            return stood
    raise AssertionError


@posix
@pytest.mark.parametrize("mechanism", [FullDisclosure(), SHAKY], ids=lambda one: one.name)
def test_a_submission_killed_anywhere_is_recorded_whole_or_not_at_all(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    holdout = opened(tmp_path / "ledger.db", mechanism)
    *deaths, (submissions, said, end) = elsewhere(submit_and_die_everywhere, holdout.ledger)
    assert [end for *_, end in deaths] == [-signal.SIGKILL] * len(deaths)
    assert [said for _, said, _ in deaths] == [b""] * len(deaths)
    # All that die before the commit leave nothing, all that die after it a whole entry.
    recorded = np.diff([0, *(count for count, *_ in deaths)]).tolist()
    early, late = recorded.count(0), recorded.count(1)
    # Who finds that the last one died before it left its mark asks a little more before.
    after_commit = [moment for moment, entries in enumerate(recorded, 1) if entries]
    assert early + late == len(recorded)
    assert recorded[-1] == 1
    assert early >= 7  # begin, read the ladder, look for a repeat, insert, update, commit
    assert late >= 1
    assert end == 0
    survivor: Answer = struct.unpack(ANSWER, said)
    assert survivor[0] == submissions == late + 1
    assert repeats(holdout) == 0
    assert_replays(holdout)
    # Whoever died after the commit asks again, and is known again.
    history = holdout.history()
    assert (history[-1].score, history[-1].improved) == survivor[1:]
    for kept, moment in zip(history[:-1], after_commit, strict=True):
        first = kept.number, kept.score, kept.improved
        assert_known(holdout, guesses([2, moment], 1)[0], first)


def register_and_die_everywhere(folder: str, moments: Iterable[int]) -> list[str]:
    """Kill those who make a ledger at each moment in turn, each in a folder of its own."""
    X, y = coins()
    places = []
    for moment in moments:
        ledger = f"{folder}/{moment}/ledger.db"

        def register(writer: int, moment: int = moment, ledger: str = ledger) -> None:
            die_at(moment)
            LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=ledger)

        if killed(register)[1] == 0:
            return places
        places.append(ledger)
    raise AssertionError


def submit_truth(ledgers: list[str]) -> list[Answer]:
    handles = [LadderHoldout.open("coins", ledger=ledger) for ledger in ledgers]
    return [answer(holdout.submit(coins()[1])) for holdout in handles]


@posix
@pytest.mark.parametrize(
    ("step", "least"), [(8, 3), pytest.param(1, 20, marks=pytest.mark.nightly)], ids=["some", "all"]
)
def test_a_registration_killed_anywhere_can_be_made_again(
    tmp_path: Path, step: int, least: int
) -> None:
    """Killed at every eighth moment; at each of them in the nightly run."""
    moments = range(1, 1000, step)
    places = elsewhere(register_and_die_everywhere, str(tmp_path), moments)
    assert len(places) >= least
    X, y = coins()
    for place in places:
        holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=place)
        assert answer(holdout.submit(y)) == (1, 1.0, True)
        found = counts(Path(place))
        # A crash may leave a copy of the rows behind, as private as the vault itself.
        assert found.pop("vault") in (1, 2)
        assert found.pop("reserve queries") == 0
        assert [found.pop(name) for name in ("views", "incumbents")] == [0, 1]
        assert found == {"holdouts": 1, "ladders": 1, "submissions": 1, "overlaps": 0}
    assert elsewhere(submit_truth, places) == [(2, 1.0, False)] * len(places)


# One order


def wait_for_all(meeting: str, who: int, turn: int) -> None:
    """Wait until four processes are here, so that what comes next is at the same time."""
    folder = Path(meeting)
    (folder / f"{turn}-{who}").touch()
    end = time.monotonic() + 100
    while len(list(folder.glob(f"{turn}-*"))) < 4:
        assert time.monotonic() < end, "the others never came"
        time.sleep(0.002)


def submit_all(ledger: str, account: str, predictions: Any, meeting: str, who: int) -> list[Answer]:
    """Submit one half when all are here, and the other one when all are done with the first."""
    holdout = LadderHoldout.open("coins", account=account, ledger=ledger)
    told = []
    for turn, half in enumerate(np.array_split(predictions, 2)):
        wait_for_all(meeting, who, turn)
        told += [answer(holdout.submit(one)) for one in half]
    return told


def all_at_once(
    holdout: LadderHoldout, accounts: Sequence[str], predictions: Sequence[Any]
) -> list[list[Answer]]:
    meeting = Path(holdout.status().ledger).parent / "meeting"
    meeting.mkdir()
    return at_once(
        [
            (submit_all, holdout.ledger, account, some, str(meeting), who)
            for who, (account, some) in enumerate(zip(accounts, predictions, strict=True))
        ]
    )


def assert_one_order(holdout: LadderHoldout, told: Sequence[list[Answer]]) -> None:
    """The answers are the entries, numbered without a gap, in an order that all agree on."""
    history = holdout.history()
    assert [one.number for one in history] == list(range(1, len(history) + 1))
    assert sorted(number for answers in told for number, *_ in answers) == [
        one.number for one in history
    ]
    for answers in told:
        numbers = [number for number, *_ in answers]
        assert numbers == sorted(numbers)
        for number, score, improved in answers:
            kept = history[number - 1]
            assert (kept.score, kept.improved) == (score, improved)
    assert repeats(holdout) == 0
    assert_replays(holdout)


@pytest.mark.parametrize("mechanism", [ParameterFreeLadder(), SHAKY], ids=lambda one: one.name)
def test_four_processes_get_one_order(tmp_path: Path, mechanism: Mechanism) -> None:
    holdout = opened(tmp_path / "ledger.db", mechanism)
    told = all_at_once(holdout, ["default"] * 4, [guesses([3, i], 20) for i in range(4)])
    assert holdout.status().submissions == 80
    assert_one_order(holdout, told)
    # Whoever ends its first half before the last one does finds others in between.
    gaps = [np.diff([number for number, *_ in answers]).max() for answers in told]
    assert sum(gap > 1 for gap in gaps) >= 3


def test_two_accounts_on_one_holdout_get_one_order(tmp_path: Path) -> None:
    ours = opened(tmp_path / "ledger.db", SHAKY, account="ours")
    with pytest.warns(match="count together"):
        theirs = opened(tmp_path / "ledger.db", SHAKY, account="theirs")
    told = all_at_once(
        ours, ["ours", "theirs", "ours", "theirs"], [guesses([4, i], 20) for i in range(4)]
    )
    assert_one_order(ours, told[0::2])
    assert_one_order(theirs, told[1::2])
    assert ours.status().ladders == (("ours", "main", 40), ("theirs", "main", 40))
    order = order_of_all(tmp_path / "ledger.db")
    # One order over both ladders, and each ladder's own within it.
    assert [place for place, *_ in order] == list(range(1, 81))
    for ladder in (1, 2):
        assert [number for _, of, number in order if of == ladder] == list(range(1, 41))


def test_processes_that_submit_the_same_share_one_answer(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db", SHAKY)
    told = all_at_once(holdout, ["default"] * 4, [guesses(5, 20)] * 4)
    assert holdout.status().submissions == 80
    assert repeats(holdout) == 60
    entries, history = entries_of(holdout), holdout.history()
    steps = [one.number for one in entries if one.improved and one.repeat_of is None]
    for answers in zip(*told, strict=True):
        first = min(number for number, *_ in answers)
        of = sorted(entries[number - 1].repeat_of or 0 for number, *_ in answers)
        assert of == [0, first, first, first]
        for number, score, improved in answers:
            # Only the first can have improved; others are told what stood when they were asked.
            assert improved == (number in steps) and (number == first or not improved)
            assert score == history[max(at for at in steps if at <= number) - 1].score
    assert_replays(holdout)


def register(ledger: str) -> list[Answer]:
    X, y = coins()
    holdout = LadderHoldout(X, y, scoring="accuracy", name="coins", ledger=ledger)
    return [answer(holdout.submit(one)) for one in guesses([6, os.getpid()], 5)]


def test_processes_that_register_at_once_share_one_ladder(tmp_path: Path) -> None:
    for turn in range(2):
        ledger = tmp_path / str(turn) / "ledger.db"
        told = at_once([(register, str(ledger))] * 4)
        holdout = LadderHoldout.open("coins", ledger=ledger)
        assert counts(ledger) == {
            "holdouts": 1,
            "ladders": 1,
            "submissions": 20,
            "overlaps": 0,
            "reserve queries": 0,
            "views": 0,
            "incumbents": sum(one.improved for one in holdout.history()),
            "vault": 1,
        }
        assert_one_order(holdout, told)


def in_threads(actions: Sequence[Callable[[], Any]]) -> None:
    """Run the actions at once; raise the first error of any."""
    errors: list[BaseException] = []

    def run(action: Callable[[], Any]) -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


@pytest.mark.parametrize(
    ("ledger", "mechanism"),
    [("file", SHAKY), ("memory", ParameterFreeLadder())],
    ids=["file", "memory"],
)
def test_eight_threads_get_one_order(tmp_path: Path, ledger: str, mechanism: Mechanism) -> None:
    place = tmp_path / "ledger.db" if ledger == "file" else ledger
    holdout = opened(place, mechanism)
    told: list[list[Answer]] = [[] for _ in range(8)]

    def submit(at: int) -> None:
        # Half of them hold the handle together, half have one of their own.
        own = LadderHoldout.open("coins", ledger=holdout.ledger) if at % 2 else holdout
        told[at] += [answer(own.submit(one)) for one in guesses([8, at], 12)]

    in_threads([lambda at=at: submit(at) for at in range(8)])  # type: ignore[misc]
    assert holdout.status().submissions == 96
    assert_one_order(holdout, told)


def test_threads_open_ledgers_of_their_own_at_once() -> None:
    def open_one() -> None:
        X, y = coins()
        holdout = LadderHoldout(X, y, scoring="accuracy", ledger="memory")
        assert holdout.submit(y).submission == 1

    in_threads([open_one] * 8)


def submit_in_turn(ledger: str, ours: Any, theirs: Any) -> None:
    """Be two processes that submit in turn: each finds the other's incumbent standing."""
    holdout = LadderHoldout.open("coins", ledger=ledger)
    told = []
    for mine, other in zip(ours, theirs, strict=True):
        told.append(holdout.submit(mine))
        assert killed(lambda _, other=other: holdout.submit(other))[1] == 0
    assert all(release.improved for release in told)


@posix
def test_each_process_compares_with_the_incumbent_that_stands(tmp_path: Path) -> None:
    """What a process remembers of the incumbent is outdated as soon as another one improves."""
    holdout = opened(tmp_path / "ledger.db", ParameterFreeLadder())
    _, y = coins()
    better = [np.where(np.arange(len(y)) < 6 * at, y, 1 - y) for at in range(1, 11)]
    elsewhere(submit_in_turn, holdout.ledger, better[::2], better[1::2])
    losses = [(predictions != y).astype(float) for predictions in better]
    entries = record(holdout)[2]
    assert [one.entry.improved for one in entries] == [True] * 10
    assert entries[0].evidence["spread"] is None
    for at in range(1, 10):
        spread = np.std(losses[at] - losses[at - 1], ddof=1) / np.sqrt(len(y))
        assert entries[at].evidence["spread"] == pytest.approx(spread)
        apart = np.mean(better[at] != better[at - 1])
        assert entries[at].entry.disagreement == pytest.approx(apart)
    assert_replays(holdout)


# Replay

Scores = dict[str, Any]
ZERO_ONE: Scores = {"scoring": "accuracy"}
LOG_LOSS: Scores = {"scoring": "neg_log_loss"}
BOUNDED_LOG_LOSS: Scores = {"scoring": "neg_log_loss", "loss_range": (0, 3)}
SQUARED: Scores = {"scoring": "neg_mean_squared_error"}
BOUNDED_SQUARED: Scores = {"scoring": "neg_mean_squared_error", "loss_range": (0, 4)}
AUC: Scores = {"scoring": "roc_auc"}


def scores_of(mechanism: Mechanism) -> list[tuple[Scores, float]]:
    """Return each kind of score that a mechanism can take, with the scale of its targets."""
    found = [(ZERO_ONE, 1.0), (BOUNDED_LOG_LOSS, 1.0)]
    if not mechanism.needs_bounded_risk:
        found.append((LOG_LOSS, 1.0))
    if not mechanism.needs_losses:
        found.append((AUC, 1.0))
    squared = BOUNDED_SQUARED if mechanism.needs_bounded_risk else SQUARED
    return [*found, *((squared, scale) for scale in (1e-9, 1.0, 1e6))]


def cases() -> Iterator[Any]:
    """All mechanisms with all scores that they can take, with and without a budget.

    The gate has each mechanism and each kind of score once or twice, every other one with a budget.
    """
    for at, mechanism in enumerate(EVERY):
        kinds = scores_of(mechanism)
        gated = {(at % len(kinds), (None, 3)[at % 2])}
        for place, (scores, scale) in enumerate(kinds):
            for budget in (None, 3):
                marks = [] if (place, budget) in gated else [pytest.mark.nightly]
                name = f"{mechanism.name}-{scores['scoring']}-{scale:g}-{budget}"
                yield pytest.param(mechanism, scores, scale, budget, id=name, marks=marks)


def test_each_kind_of_score_is_replayed_in_the_gate() -> None:
    gated = [one.values for one in cases() if not one.marks]
    assert [one[0] for one in gated] == [*EVERY]
    assert {one[1]["scoring"] for one in gated} == {
        *("accuracy", "neg_log_loss", "roc_auc", "neg_mean_squared_error")
    }
    assert {one[2] for one in gated} == {1e-9, 1.0, 1e6}
    assert {one[3] for one in gated} == {None, 3}


def submissions(scores: Scores, y: Any, scale: float) -> list[Any]:
    """Predictions that get better by and by, some of them twice."""
    rng = np.random.default_rng(9)
    noise = [rng.standard_normal(len(y)) for _ in range(25)]
    if scores["scoring"] == "accuracy":
        found = [np.where(one > 1.2 - at / 25, y, 1 - y) for at, one in enumerate(noise)]
    elif scores["scoring"].endswith("squared_error"):
        found = [y + scale * one / (1 + at / 5) for at, one in enumerate(noise)]
    else:
        found = [
            1 / (1 + np.exp(-(at / 10) * (y - 0.5) - one / (1 + at / 10)))
            for at, one in enumerate(noise)
        ]
    return [*found, found[3], found[0], *found[-2:]]


@pytest.mark.filterwarnings("ignore:The 3 releases of this ladder are used up")
@pytest.mark.filterwarnings("ignore:loss_range=.* is narrow for these targets")
@pytest.mark.parametrize(("mechanism", "scores", "scale", "budget"), [*cases()])
def test_every_release_follows_from_the_ledger(
    mechanism: Mechanism, scores: Scores, scale: float, budget: int | None
) -> None:
    X, y = coins()
    if scores["scoring"].endswith("squared_error"):
        y = scale * (y + X[:, 0])
        if "loss_range" in scores:
            scores = scores | {"loss_range": (0, 4 * scale**2)}
    holdout = LadderHoldout(
        X, y, mechanism=mechanism, budget=budget, name="replayed", ledger="memory", **scores
    )
    releases = [holdout.submit(one) for one in submissions(scores, y, scale)]
    again = [one.repeat_of is not None for one in entries_of(holdout)]
    assert again == [False] * 25 + [True] * 4 and len(releases) == 29
    assert_replays(holdout)
    for release, found in zip(releases, replayed(holdout), strict=True):
        told = holdout.metric.to_score(found.recomputed[0])
        assert release.score == told
    count = holdout.status().releases
    # Something happened: a replay of one single release would be easy. The noise of
    # ShakyLadder is 30 times smaller than what is gained here.
    assert count == budget if budget else count >= 2


def test_a_replay_needs_neither_the_vault_nor_this_process(tmp_path: Path) -> None:
    holdout = opened(tmp_path / "ledger.db", SHAKY)
    told = [answer(holdout.submit(one)) for one in guesses(10, 20)]
    for file in (tmp_path / "vault").iterdir():
        file.unlink()
    assert elsewhere(replay_scores, holdout.ledger) == [one[1:3] for one in told]


def replay_scores(url: str) -> list[tuple[float, bool]]:
    holdout = LadderHoldout.open("coins", ledger=url)
    found = replayed(holdout)
    assert all(one.agrees for one in found)
    score = get_metric(holdout.metric.name).to_score
    return [(score(risk), improved) for risk, improved in (one.recomputed for one in found)]


@pytest.mark.parametrize(
    ("mechanism", "number"),
    [pytest.param(one, (1, 7, 12)[at % 3], id=one.name) for at, one in enumerate(EVERY)],
)
def test_a_release_that_was_tampered_with_does_not_replay(
    tmp_path: Path, mechanism: Mechanism, number: int
) -> None:
    holdout = opened(tmp_path / "ledger.db", mechanism)
    for predictions in [*guesses(11, 10), *guesses(11, 2)]:
        holdout.submit(predictions)
    assert_replays(holdout)
    risk, improved = replayed(holdout)[number - 1].recorded
    for field, value in (("answer", np.nextafter(risk, 2.0)), ("improved", not improved)):
        tamper(tmp_path / "ledger.db", "submission", field, value, number=number)
        rechain(tmp_path / "ledger.db")  # a chain that is broken is not replayed
        found = replayed(holdout)
        assert [one.number for one in found if not one.agrees] == [number]
        before = risk if field != "improved" else improved
        tamper(tmp_path / "ledger.db", "submission", field, before, number=number)
        rechain(tmp_path / "ledger.db")
        assert_replays(holdout)


def test_the_noise_depends_on_a_secret_of_its_own() -> None:
    X, y = coins()
    holdouts = [
        LadderHoldout(X, y, scoring="accuracy", mechanism=SHAKY, ledger="memory") for _ in "ab"
    ]
    told = [[holdout.submit(one).score for one in guesses(12, 20)] for holdout in holdouts]
    secrets = {record(holdout)[0].secret for holdout in holdouts}
    assert {len(secret) for secret in secrets} == {32}
    assert len(secrets) == 2
    assert told[0] != told[1]
