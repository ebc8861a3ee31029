"""Which round of a search a submission belongs to.

scikit-learn calls a splitter's ``split`` once for each round of candidates. That call opens
a `Round`: its candidates were all chosen before any feedback on any of them, so they are
one batch. A batch claimed wrongly would make a certificate false. So a round counts as one
only while the very call of scikit-learn that opened it is still running in its thread,
and where anything is unclear (folds listed by hand, a search inside a search, two searches
at once) there is none.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from dataclasses import dataclass, replace
from types import FrameType
from uuid import uuid4

Key = tuple[str, int]
"""A holdout: the ledger's URL and the holdout's id."""

_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Round:
    """One call of a splitter: `search` finds its submissions again, `batch` binds them."""

    search: str
    batch: str | None


@dataclass(slots=True, eq=False)
class _Open:
    round: Round
    key: Key
    thread: int
    frame: int | None

    def running(self) -> bool:
        """Whether the call that opened it is still on its thread's stack."""
        frame = sys._current_frames().get(self.thread)
        if self.frame is None:
            # Opened by hand: it names its submissions until the next, and binds nothing.
            return frame is not None
        while frame is not None:
            if id(frame) == self.frame:
                return True
            frame = frame.f_back
        return False


_asked: set[Key] = set()
_open: list[_Open] = []
_recent: deque[tuple[Key, int, str]] = deque(maxlen=_REMEMBERED)
_lock = threading.Lock()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def mark_opened(key: Key) -> None:
    """Remember that somebody opened a split on a holdout."""
    _asked.add(key)


def was_opened(key: Key) -> bool:
    """Tell whether somebody did, in this process."""
    return key in _asked


def open_round(key: Key, consumer: FrameType | None) -> Round:
    """Open a round for the splitter's caller.

    Parameters
    ----------
    key : Key
    consumer : frame or None
        The caller that takes the folds.
    """
    token, thread = uuid4().hex, threading.get_ident()
    within_sklearn = _is_sklearn(consumer)
    with _lock:
        _open[:] = [known for known in _open if known.frame is not None and known.running()]
        outer = [known for known in _open if known.key == key and known.thread == thread]
        for known in outer:
            # The outer candidate now depends on what the inner search is told.
            known.round = replace(known.round, batch=None)
        batch = token if within_sklearn else None
        opened = Round(token, batch)
        frame = id(consumer) if within_sklearn else None
        _open.append(_Open(opened, key, thread, frame))
        _recent.append((key, thread, token))
    return opened


def current(key: Key) -> Round | None:
    """Return the round that is running on this holdout, if it is the only one it can be."""
    with _lock:
        running = [known for known in _open if known.key == key and known.running()]
    mine = [known for known in running if known.thread == threading.get_ident()]
    if mine:
        return mine[-1].round
    # A worker's thread, or the thread that pickles tasks: whose round it serves is only
    # clear where there is one.
    return running[0].round if len(running) == 1 else None


def recent(key: Key) -> list[str]:
    """Return the searches that this thread opened on a holdout, newest first."""
    thread = threading.get_ident()
    with _lock:
        return [token for k, t, token in reversed(_recent) if (k, t) == (key, thread)]


def _is_sklearn(frame: FrameType | None) -> bool:
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(
        "sklearn.model_selection."
    )
