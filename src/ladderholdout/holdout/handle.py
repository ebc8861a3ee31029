"""What makes the guard a handle: small to pickle, one ladder a process, its own copy."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ladderholdout import fingerprint as fp
from ladderholdout import vault as vaults
from ladderholdout.errors import HoldoutConflict, LedgerError, VaultError
from ladderholdout.holdout.choices import choice
from ladderholdout.holdout.guard import Guard, make_guard
from ladderholdout.holdout.registration import OVERLAP_POLICIES
from ladderholdout.ledger import HoldoutRecord, LadderRecord, Ledger, is_memory, shown
from ladderholdout.mechanisms import LadderRules
from ladderholdout.metrics import Metric
from ladderholdout.vault import Rows

if TYPE_CHECKING:
    from ladderholdout.integrations.rounds import Round

# What a search may be told of a model that did not improve: there is no guide score here.
SEARCH_POLICIES = ("auto", "penalised", "incumbent")

# One guard per ladder and process: scikit-learn unpickles the handle for every task.
_guards: dict[tuple[str, int], Guard] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Handle:
    """A ladder as it can be passed around: a URL and an id, and nothing of the holdout.

    The rows travel along only where the user allowed no copy of them (``vault=False``).
    """

    def _hold(
        self, url: str, record: LadderRecord, metric: Metric, feedback: str, overlap: str
    ) -> None:
        self._url, self._ladder_id, self._holdout_id = url, record.id, record.holdout_id
        self._metric = metric
        self._feedback = choice("feedback", feedback, SEARCH_POLICIES)
        self._overlap = choice("overlap", overlap, OVERLAP_POLICIES)
        self._request: bool | str | None = None
        self._rows: Rows | None = None
        # How the rows of this caller lie; other processes know only the vault's order.
        self._order: NDArray[np.intp] | None = None
        self._foreign = False
        # What a search's worker has to know: its round, and that a split was opened.
        self._round: Round | None = None
        self._opened = False

    @property
    def name(self) -> str:
        """The holdout's name."""
        return self._guard().holdout.name

    @property
    def fingerprint(self) -> str:
        """The holdout's fingerprint: 64 hex characters over its rows, without labels."""
        return self._guard().holdout.fingerprint

    @property
    def metric(self) -> Metric:
        """What is measured."""
        return self._metric

    @property
    def rules(self) -> LadderRules:
        """The mechanism, its budget and its unit."""
        return self._guard().rules

    @property
    def ledger(self) -> str:
        """The URL of the ledger; give it to another holdout to share a memory ledger."""
        return self._url

    @property
    def _key(self) -> tuple[str, int]:
        return self._url, self._ladder_id

    def _guard(self) -> Guard:
        with _lock:
            if self._key not in _guards:
                _guards[self._key] = _load(Ledger(self._url), self)
            return _guards[self._key]

    def _keep(self, guard: Guard) -> None:
        with _lock:
            _guards[self._key] = guard

    @property
    def _place(self) -> tuple[str, int]:
        return self._url, self._holdout_id

    def _current_round(self) -> Round | None:
        from ladderholdout.integrations import rounds

        return rounds.current(self._place) or self._round

    def _was_opened(self) -> bool:
        from ladderholdout.integrations import rounds

        return self._opened or rounds.was_opened(self._place)

    def __reduce__(self) -> tuple[Any, ...]:
        if is_memory(self._url):
            raise LedgerError(
                'A holdout on a ledger in memory ("memory") cannot be pickled, nor go to other '
                "processes. Give ledger= a path."
            )
        state = {name: value for name, value in vars(self).items() if name != "_order"}
        state |= {"_order": None, "_round": self._current_round(), "_opened": self._was_opened()}
        return _restored, (type(self), state)

    def __deepcopy__(self, memo: Any) -> Self:
        # Copies of a search must go on with the same ladder, not with one of their own.
        return self

    def __copy__(self) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(ladder={self._ladder_id}, metric={self._metric.name!r}, "
            f"ledger={shown(self._url)!r})"
        )


def _restored(kind: type[Handle], state: dict[str, Any]) -> Handle:
    handle = kind.__new__(kind)
    vars(handle).update(state)
    return handle


def _load(ledger: Ledger, handle: Handle) -> Guard:
    """Bring a ladder back in a process that was not given the rows."""
    with ledger.read() as tx:
        ladder = tx.ladder(handle._ladder_id)
        holdout = tx.holdout(ladder.holdout_id)
    rows = handle._rows or _read_rows(holdout)
    hashes = fp.row_hashes(rows.X)
    contents = fp.content_hashes(hashes, rows.y, rows.sample_weight)
    if fp.content_digest(holdout.secret, contents) != holdout.content_digest:
        raise HoldoutConflict(
            f"The rows at hand are not those of {holdout.name!r}. Was the ledger replaced?"
        )
    return make_guard(ledger, holdout, ladder, handle._metric, rows, hashes)


def _read_rows(holdout: HoldoutRecord) -> Rows:
    if holdout.vault_path is None or holdout.vault_digest is None:
        raise VaultError(
            f"No copy of the rows of {holdout.name!r} is kept (vault=False). Open it with its "
            "rows: LadderHoldout(X, y, ...)."
        )
    return vaults.read(Path(holdout.vault_path), holdout.vault_digest, holdout.fingerprint)
