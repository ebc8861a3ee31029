"""Marks: how long a chain was when this machine last wrote to it, so that an older copy is found.

Whoever puts an older copy of a ledger in place takes back what it has released. A mark outside of
it, in the folder of the vault, shows the difference. It is written after the commit that it names:
so it never runs ahead of an honest ledger, and a crash in between raises no false alarm.
"""

from __future__ import annotations

import hmac
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ladderholdout import process
from ladderholdout.ledger import fold, place

_PURPOSE = b"ladderholdout mark 1"
_SIZE = 256


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a holdout's chain as this machine knows it.

    Attributes
    ----------
    path : Path or None
        The mark's file; None for a ledger in memory, of which there is no copy.
    secret : bytes
        The holdout's secret. Without it nobody can set a mark; a torn mark counts as none.
    """

    path: Path | None
    secret: bytes = field(repr=False)

    def seen(self) -> fold.Head | None:
        """Return the end that was seen; None where nothing readable is kept."""
        if self.path is None:
            return None
        try:
            stored = process.read_start(_opened(self.path), _SIZE)
            text, code = stored.decode().split()
            length, _, digest = text.partition(":")
            return fold.Head(int(length), digest) if self._code(text) == code else None
        except (OSError, ValueError):
            return None

    def write(self, head: fold.Head) -> None:
        """Keep the end that was committed."""
        # Of two writers the later one may come first: then the mark lags, which does no harm. A
        # mark is a help: where it cannot be written, the ledger is written all the same.
        if self.path is None:
            return
        text = str(head)
        line = f"{text} {self._code(text)}".encode().ljust(_SIZE)
        with suppress(OSError):
            process.write_start(_opened(self.path, create=True), line)

    def _code(self, text: str) -> str:
        return hmac.digest(self.secret, _PURPOSE + text.encode(), "sha256").hex()


# The marks that this process has open. To open and close one takes as long as all else.
_descriptors: dict[Path, int] = {}
_lock = process.PerProcess(threading.Lock)


def _opened(path: Path, create: bool = False) -> int:
    """Return the descriptor of a mark; a file that was removed or replaced is opened anew."""
    with _lock():
        known = _descriptors.get(path)
        if known is not None:
            if os.fstat(known).st_nlink:
                return known
            os.close(_descriptors.pop(path))
        if create:
            process.make_private(path.parent)
        try:
            descriptor = process.open_private(path, create=create)
        except FileNotFoundError:
            raise
        except OSError:  # this user may read it, perhaps, and not write to it
            descriptor = process.open_to_read(path)
        return _descriptors.setdefault(path, descriptor)


@lru_cache(64)
def mark_of(url: str, fingerprint: str, vault_path: str | None, secret: bytes) -> Mark:
    """Return the mark of a holdout: beside its vault, else where its vault would be."""
    if place.is_memory(url):
        return Mark(None, secret)
    name = hmac.digest(secret, _PURPOSE, "sha256").hex()[:16]
    # The name alone: a ledger that was written by hand may hold a path there.
    file = Path(f"{fingerprint[:16]}-{name}.mark").name
    return Mark(place.vault_beside(url, vault_path) / file, secret)
