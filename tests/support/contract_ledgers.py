"""The promises of every place for a ledger, whatever its URL leads to."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import numpy as np
import pytest

from ladderholdout.errors import HoldoutConflict, LedgerError, UnknownHoldout
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.open_ladder import Origin, ladder_of
from ladderholdout.holdout import LadderHoldout
from ladderholdout.ledger import Ledger, resolve_url
from ladderholdout.ledger.place import Access
from ladderholdout.ledger.transaction import Transaction
from ladderholdout.mechanisms import FullDisclosure
from tests.support.holdouts import SHAKY, assert_replays, repeats
from tests.support.ledgers import chained, head, record
from tests.support.records import START, registered, settings_of, submitted
from tests.support.workers import (
    NAME,
    PATIENCE,
    answer,
    answers_before_a_kill,
    assert_one_order,
    at_once,
    guesses,
    register,
    rows,
    submit_all,
)

WORKERS, EACH = 3, 20


class LedgerContract:
    """The promises of a ledger as tests. Derive a class whose name begins with ``Test``.

    It overrides the fixture `url`, which gives a new, empty place for each test.

    Attributes
    ----------
    processes : bool
        Whether several processes can share it; threads take their places where not.

    Examples
    --------
    >>> class TestFile(LedgerContract):
    ...     @pytest.fixture
    ...     def url(self, tmp_path):
    ...         return str(tmp_path / "ledger.db")
    """

    processes: ClassVar[bool] = True

    @pytest.fixture
    def url(self) -> str:
        """Return the URL of an empty ledger."""
        raise NotImplementedError("override the fixture url")

    @pytest.fixture
    def make(self, url: str, tmp_path: Path) -> Callable[..., LadderHoldout]:
        """Return what opens the holdout: with a mechanism, an account, a reserve and so on."""
        place = resolve_url(url)

        def opened(**given: Any) -> LadderHoldout:
            vault = tmp_path / "vault"
            chosen: dict[str, Any] = {"scoring": "accuracy", "name": NAME, "vault": vault} | given
            return LadderHoldout(*rows(), ledger=place, **chosen)

        return opened

    # -- what is written ---------------------------------------------------------------

    def test_what_is_written_is_read_to_the_last_bit(self, url: str) -> None:
        """Floats, bytes, texts, times and arrays come back as they were."""
        ledger = Ledger(resolve_url(url), create=True)
        state = {"standing": float("inf"), "noise": 1e-300 / 3, "releases": 0}
        predictions = np.array([1, 0, 1], dtype=np.int32)
        evidence = {"risk": 0.1 + 0.2, "spread": float("inf")}
        with ledger.write() as tx:
            number = registered(tx, "äöü")
            ladder = tx.add_ladder(number, settings_of("main"), state)
            more = {"improved": True, "state": state, "raw": 1 / 3, "evidence": evidence}
            tx.append(ladder, submitted(ladder, "one", **more), predictions)
        with ledger.read() as tx:
            holdout, ladder = tx.holdout(number), tx.ladder(ladder.id)
            one = tx.submission(ladder.id, 1)
            stored, hashes = tx.incumbent_predictions(ladder.id), tx.view(number).row_hashes
        assert (holdout.name, holdout.n, holdout.secret) == ("äöü", 3, b"\0secret\xff")
        assert hashes.tolist() == [0, 1, 2]
        assert (ladder.settings, ladder.state) == (settings_of("main"), state)
        assert (ladder.submissions, ladder.version, ladder.incumbent) == (1, 1, 1)
        assert (one.raw, one.evidence) == (1 / 3, evidence)
        assert (one.context, one.time.tzinfo) == ({"note": "ü\0"}, UTC)
        assert stored is not None and stored.dtype == np.int32
        np.testing.assert_array_equal(stored, predictions)

    def test_a_block_that_fails_writes_nothing(self, url: str) -> None:
        """An exception undoes all that was done before it."""
        ledger = Ledger(resolve_url(url), create=True)
        with pytest.raises(ZeroDivisionError), ledger.write() as tx:
            registered(tx, "coins")
            raise ZeroDivisionError
        with ledger.read() as tx:
            assert tx.holdouts() == ()

    def test_what_is_refused_is_not_quoted(self, url: str) -> None:
        """The error of a row that the database refuses holds nothing of the row."""
        ledger = Ledger(resolve_url(url), create=True)
        with pytest.raises(LedgerError) as caught, ledger.write() as tx:
            for _ in range(2):  # its name is taken
                registered(tx, "canary")
        assert "canary" not in str(caught.value)
        assert caught.value.__context__ is None is caught.value.__cause__

    def test_a_reader_sees_one_state_and_blocks_nobody(self, url: str) -> None:
        """What is written meanwhile is there for the next reader."""
        ledger = Ledger(resolve_url(url), create=True)
        if not self.processes:
            pytest.skip("in memory, there is one connection")
        with ledger.write() as tx:
            number = registered(tx, "coins")
        with ledger.read() as reader:
            assert reader.ladders(number) == ()
            with ThreadPoolExecutor(1) as other:
                other.submit(add_ladder, ledger, number).result(PATIENCE)
            assert reader.ladders(number) == ()
        with ledger.read() as reader:
            assert len(reader.ladders(number)) == 1

    def test_what_is_done_in_a_transaction_is_done_once(self, url: str) -> None:
        """`transact` commits, returns what was made, and knows its own link again."""
        ledger = Ledger(resolve_url(url), create=True)
        with ledger.write() as tx:
            number = registered(tx, "coins")
        written: list[Any] = []

        def start(tx: Transaction) -> int:
            ladder = tx.add_ladder(number, settings_of("main"), START)
            written.append(tx.last)
            return ladder.id

        assert ledger.transact(start) == 1
        ((holdout_id, head),) = written
        with ledger.read() as tx:
            assert (holdout_id, tx.fold(number).end) == (number, head)
            assert tx.has(number, head)
            assert not tx.has(number, type(head)(head.length, "0" * 64))
            assert not tx.has(number, type(head)(head.length + 1, head.hash))

    # -- one order --------------------------------------------------------------------

    @pytest.mark.parametrize("access", [Access.LADDER, Access.ALL], ids=lambda access: access.name)
    def test_a_writer_waits_for_the_one_who_holds_the_ladder(
        self, make: Callable[..., LadderHoldout], access: Access
    ) -> None:
        """Who holds a ladder is alone with it until the end."""
        holdout = make(mechanism=FullDisclosure())
        started = Event()

        def submit() -> int:
            started.set()
            return holdout.submit(guesses([1], 1)[0]).submission

        with ThreadPoolExecutor(1) as other:
            number = record(holdout)[1].id
            with Ledger(holdout.ledger).write(access) as tx:
                ladder = tx.locked_ladder(number)
                waiting = other.submit(submit)
                started.wait(PATIENCE)
                with pytest.raises(TimeoutError):
                    waiting.result(0.2)
                tx.append(ladder, submitted(ladder, "ours"))
            assert waiting.result(PATIENCE) == 2

    def test_submitters_at_once_get_one_order(self, make: Callable[..., LadderHoldout]) -> None:
        """Each answer is in the ledger once, and the whole replays, noise included."""
        holdout = make(mechanism=SHAKY)
        calls = [(submit_all, holdout.ledger, "default", [2, i], EACH) for i in range(WORKERS)]
        answers = at_once(calls, processes=self.processes)
        assert holdout.status().submissions == WORKERS * EACH
        assert_one_order(holdout, answers)
        assert verify_holdout(holdout.ledger, NAME).findings == ()

    @pytest.mark.filterwarnings("ignore::ladderholdout.errors.KnownHoldoutWarning")
    def test_ladders_of_one_holdout_get_one_order(self, make: Callable[..., LadderHoldout]) -> None:
        """The submissions to all ladders are one sequence, without a gap or a tie."""
        first, second = make(account="ours"), make(account="theirs")
        calls = [
            (submit_all, first.ledger, account, [3, i], EACH)
            for i, account in enumerate(["ours", "theirs"] * 2)
        ]
        answers = at_once(calls, processes=self.processes)
        assert_one_order(first, answers[0::2])
        assert_one_order(second, answers[1::2])
        assert chained(first).count("submitted") == 4 * EACH

    def test_those_who_register_at_once_share_one_ladder(self, url: str, tmp_path: Path) -> None:
        """The ledger and the holdout in it are made once, whoever comes first."""
        place = resolve_url(url)
        calls = [(register, place, str(tmp_path / "vault"), [4, i], 5) for i in range(WORKERS)]
        answers = at_once(calls, processes=self.processes)
        holdout = LadderHoldout.open(NAME, ledger=place)
        assert holdout.status().submissions == WORKERS * 5
        assert_one_order(holdout, answers)

    # -- once -------------------------------------------------------------------------

    def test_the_same_predictions_are_answered_once(
        self, make: Callable[..., LadderHoldout]
    ) -> None:
        """Again, they improve nothing and show the present released score; no step is taken."""
        holdout = make(mechanism=SHAKY)
        calls = [(submit_all, holdout.ledger, "default", [5], EACH)] * WORKERS
        answers = at_once(calls, processes=self.processes)
        entries, history = [row.entry for row in record(holdout)[2]], holdout.history()
        steps = [entry.number for entry in entries if entry.improved and entry.repeat_of is None]
        for equal in zip(*answers, strict=True):
            first, *_ = sorted(equal)
            for number, score, improved in equal:
                incumbent = max(step for step in steps if step <= number)
                assert score == history[incumbent - 1].score
                assert improved == (incumbent == number) and (number == first[0] or not improved)
        assert repeats(holdout) == EACH * (WORKERS - 1)
        assert_replays(holdout)

    def test_a_key_is_answered_once(self, make: Callable[..., LadderHoldout]) -> None:
        """A trial that is run again, with other predictions, gets the answer of the first."""
        holdout = make(mechanism=SHAKY)
        first, second = guesses([6], 2)
        answers = ladder_of(holdout).submit(first, Origin(key="trial"))
        again = ladder_of(holdout).submit(second, Origin(key="trial"))
        assert answer(again)[1:] == answer(answers)[1:]
        assert repeats(holdout) == 1
        ladder_of(holdout).submit(second, Origin(key="another"))
        assert repeats(holdout) == 1
        assert_replays(holdout)

    # -- durable ----------------------------------------------------------------------

    def test_a_release_that_was_seen_survives_kill_9(
        self, make: Callable[..., LadderHoldout]
    ) -> None:
        """Commit before release: what a dead process released is there."""
        if not self.processes:
            pytest.skip("it dies with its process")
        holdout = make(mechanism=SHAKY)
        answers = [answers_before_a_kill(holdout.ledger, [7, turn], 3 + turn) for turn in range(3)]
        assert_one_order(holdout, answers)
        # A kill can hit between the commit and the answer, once each.
        surplus = holdout.status().submissions - sum(map(len, answers))
        assert 0 <= surplus <= len(answers)
        before = repeats(holdout)
        holdout.submit(guesses([8], 1)[0])
        assert repeats(holdout) == before

    def test_a_handle_goes_on_in_another_process(self, make: Callable[..., LadderHoldout]) -> None:
        """It pickles small, and finds ledger and rows by itself."""
        holdout = make(mechanism=SHAKY)
        if not self.processes:
            with pytest.raises(LedgerError, match="cannot be pickled"):
                pickle.dumps(holdout)
            return
        first, second = guesses([9], 2)
        holdout.submit(first)
        sent = pickle.dumps(holdout)
        assert len(sent) < 1000
        (submission,) = at_once([(_submit_pickled, sent, second)], processes=True)
        holdout.submit(second)
        assert (submission, repeats(holdout)) == (2, 1)

    # -- the chain, the reserve, what is shown on demand -------------------------------

    def test_the_head_of_every_moment_can_be_recomputed(
        self, make: Callable[..., LadderHoldout]
    ) -> None:
        """What was anchored outside of the ledger is found in it again."""
        holdout, heads = make(mechanism=SHAKY), []
        for guess in guesses([10], 5):
            holdout.submit(guess)
            heads.append(head(holdout))
        assert [head(holdout, one.length) for one in heads] == heads
        assert head(holdout, heads[-1].length + 1) is head(holdout, 0) is None
        assert verify_holdout(holdout.ledger, NAME).findings == ()

    def test_a_query_of_the_reserve_is_counted_once(
        self, make: Callable[..., LadderHoldout]
    ) -> None:
        """Asking again is free; another incumbent is another query."""
        holdout, (_, y) = make(reserve=0.5, mechanism=FullDisclosure()), rows()
        worse = np.where(np.arange(len(y)) < 30, y, 1 - y)
        holdout.submit(worse)
        first = holdout.reserve_certificate()
        assert (first, first.reserve_query) == (holdout.reserve_certificate(), 1)
        assert LadderHoldout.open(NAME, ledger=holdout.ledger).reserve_certificate() == first
        assert holdout.submit(y).improved
        assert holdout.reserve_certificate().reserve_query == 2
        assert verify_holdout(holdout.ledger, NAME).findings == ()

    def test_what_is_shown_on_demand_stays_shown(self, make: Callable[..., LadderHoldout]) -> None:
        """A ladder that shows improvements shows its score to those who ask, and notes that."""
        holdout, (_, y) = make(show="improvements"), rows()
        assert holdout.submit(y).score is None
        again = LadderHoldout.open(NAME, ledger=holdout.ledger)
        assert again.status().score is None
        assert holdout.reveal() == 1.0 == holdout.reveal()
        assert again.status().score == 1.0
        assert chained(holdout).count("revealed") == 1
        assert verify_holdout(holdout.ledger, NAME).findings == ()

    def test_an_opening_and_a_retirement_are_final(
        self, make: Callable[..., LadderHoldout]
    ) -> None:
        """The first time counts, for every handle."""
        holdout = make(mechanism=FullDisclosure())
        holdout.submit(guesses([11], 1)[0])
        opened = holdout.owner.audit().status.opened
        again = LadderHoldout.open(NAME, ledger=holdout.ledger)
        assert opened is not None
        assert again.owner.audit().status.opened == opened
        retired = again.owner.retire().retired
        assert holdout.owner.retire().retired == retired
        with pytest.raises(HoldoutConflict, match="was retired"):
            holdout.submit(guesses([12], 1)[0])
        assert verify_holdout(holdout.ledger, NAME).findings == ()

    def test_a_holdout_under_another_name_is_the_same(
        self, make: Callable[..., LadderHoldout]
    ) -> None:
        """Its content is what is known."""
        make().submit(guesses([13], 1)[0])
        with pytest.warns(match="known as 'contract'"):
            assert make(name="another").status().submissions == 1

    def test_what_is_not_there_is_refused(self, make: Callable[..., LadderHoldout]) -> None:
        """Unknown names and numbers are refused, and make nothing."""
        holdout = make()
        with pytest.raises(UnknownHoldout, match="nobody"):
            LadderHoldout.open("nobody", ledger=holdout.ledger)
        with Ledger(holdout.ledger).read() as tx:
            for read in (tx.holdout, tx.ladder):
                with pytest.raises(UnknownHoldout, match="number 7"):
                    read(7)
        assert len(record(holdout)[2]) == 0


def _submit_pickled(sent: bytes, predictions: Any) -> int:
    number: int = pickle.loads(sent).submit(predictions).submission
    return number


def add_ladder(ledger: Ledger, holdout_id: int) -> None:
    """Start a ladder in a transaction of its own."""
    with ledger.write() as tx:
        tx.add_ladder(holdout_id, settings_of("main"), START)
