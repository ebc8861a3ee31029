"""How far a ledger had come when this machine last wrote to it, so that an older copy is found.

Whoever puts an older copy of a ledger in place takes back what it has released. A mark outside of
it, in the folder of the vault, shows the difference. It is written after the commit that it names:
so it never runs ahead of an honest ledger, and a crash in between raises no false alarm.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ladderholdout.errors import HoldoutConflict, RestoredWarning, warn
from ladderholdout.ledger import (
    Access,
    Asked,
    Head,
    HoldoutRecord,
    LadderRecord,
    Ledger,
    Left,
    Transaction,
    is_memory,
)
from ladderholdout.ledger.chain import RESTORED
from ladderholdout.thirdparty import BINARY, after_fork, read_start, write_start
from ladderholdout.vault import beside

T = TypeVar("T")
_PURPOSE = b"ladderholdout mark 1"
_SIZE = 256


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a holdout's chain as this machine knows it.

    Attributes
    ----------
    path : Path or None
        Of its file; None for a ledger in memory, of which there is no copy.
    secret : bytes
        The holdout's. Without it nobody can set a mark, and a torn one is none.
    """

    path: Path | None
    secret: bytes = field(repr=False)

    def seen(self) -> Head | None:
        """Return the end that was seen; None where nothing readable is kept."""
        if self.path is None:
            return None
        try:
            found = read_start(_opened(self.path), _SIZE)
            own = _written.get(self)
            if own is not None and own[0] == found:
                return own[1]
            text, code = found.decode().split()
            length, _, digest = text.partition(":")
            return Head(int(length), digest) if self._code(text) == code else None
        except (OSError, ValueError):
            return None

    def note(self, tx: Transaction, holdout_id: int) -> Head | None:
        """Put on record, inside a write, that the ledger is an older copy; return what is gone."""
        seen = self.seen()
        if seen is None or not is_gone(tx, holdout_id, tx.chains.end(holdout_id).head, seen):
            return None
        tx.chains.note(holdout_id, f"{RESTORED} {seen.length}")
        return seen

    def settle(self, head: Head, gone: Head | None) -> None:
        """Keep the end that was committed; return what was found missing before."""
        # Of two writers the later one may come first: then the mark lags, which does no harm.
        if self.path is not None:
            self._write(self.path, head)
        if gone is not None:
            warn(
                "An older copy of the ledger was put in place, or another one: link "
                f"{gone.length} of this holdout's chain was seen on this machine and is not in "
                "it. What it had released since is known and off the record, so that nothing can "
                "be certified from now on. This is on record. If you have the newer ledger, put it "
                "back.",
                RestoredWarning,
            )

    def _write(self, path: Path, head: Head) -> None:
        text = str(head)
        line = f"{text} {self._code(text)}".encode().ljust(_SIZE)
        # A mark is a help: where it cannot be written, the ledger is written all the same.
        with suppress(OSError):
            try:
                descriptor = _opened(path)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                descriptor = _opened(path, os.O_CREAT)
            write_start(descriptor, line)
            _written[self] = line, head

    def _code(self, text: str) -> str:
        return hmac.digest(self.secret, _PURPOSE + text.encode(), "sha256").hex()


# The marks that this process has open. To open and close one takes as long as the rest of it.
_descriptors: dict[Path, int] = {}
# What it wrote to each mark last: found there again, it is not checked again.
_written: dict[Mark, tuple[bytes, Head]] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


after_fork(_after_fork)


def _opened(path: Path, create: int = 0) -> int:
    """Return the descriptor of a mark; a file that was removed or replaced is opened anew."""
    with _lock:
        known = _descriptors.get(path)
        if known is not None:
            if os.fstat(known).st_nlink:
                return known
            os.close(_descriptors.pop(path))
        try:
            found = os.open(path, os.O_RDWR | BINARY | create, 0o600)
        except FileNotFoundError:
            raise
        except OSError:  # who may read it alone still sees it
            found = os.open(path, os.O_RDONLY | BINARY)
        return _descriptors.setdefault(path, found)


def is_gone(tx: Transaction, holdout_id: int, end: Head, seen: Head | None) -> bool:
    """Return whether a chain that ends here has lost an end that was seen."""
    if seen is None or seen == end:
        return False
    return seen.length >= end.length or not tx.chains.has(holdout_id, seen)


def mark_of(url: str, record: HoldoutRecord) -> Mark:
    """Return the mark of a holdout: beside its vault, else where its vault would be."""
    if is_memory(url):
        return Mark(None, record.secret)
    name = hmac.digest(record.secret, _PURPOSE, "sha256").hex()[:16]
    folder = beside(url, record.vault_path)
    # The name alone: a ledger that was written by hand may hold a path there.
    return Mark(folder / Path(f"{record.fingerprint[:16]}-{name}.mark").name, record.secret)


def watched(
    ledger: Ledger,
    mark: Mark,
    ladder_id: int,
    since: datetime,
    body: Callable[[Transaction, LadderRecord], T],
    *,
    asked: Sequence[Asked] = (),
    left: Left | None = None,
) -> T:
    """Write to a ladder, and find out whether the ledger is an older copy.

    `asked` and `left` as in `Transaction.locked_ladder`.
    """

    def write(tx: Transaction) -> tuple[T, Head, Head | None]:
        ladder = tx.locked_ladder(ladder_id, asked=asked, left=left)
        same_ladder(ladder, since)
        gone = mark.note(tx, ladder.holdout_id)
        return body(tx, ladder), tx.chains.end(ladder.holdout_id).head, gone

    result, head, gone = ledger.transact(write, Access.LADDER)
    mark.settle(head, gone)
    return result


def same_ladder(ladder: LadderRecord, since: datetime) -> LadderRecord:
    """Refuse a ladder in the place of another one: the ledger was replaced."""
    if ladder.created != since:
        raise HoldoutConflict(
            "The ledger was replaced by another one since this holdout was opened. Open the "
            "holdout again with its rows, LadderHoldout(X, y, ...), or put the old file back."
        )
    return ladder
