"""The turns that the processes of one machine take at writing to a file.

SQLite has whoever finds a file locked ask again after a pause: nobody may ask in the moment in
which it is free, and of many who ask one may wait for seconds. The operating system keeps a queue
of those who wait for a lock, and wakes the first one as soon as it is free.
"""

from __future__ import annotations

import threading
from contextlib import suppress

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

# SQLite neither locks nor writes it: it is in the page of its own locks, behind them.
_BYTE = 0x40000000 + 0x300


class Turns:
    """The turns of this process at one file; of its threads one at a time may take one.

    They protect nothing: SQLite's own lock does, for which whoever has a turn asks, and whoever
    waited in vain for one. So nothing is lost where there are none: on other systems, on a file
    that cannot be written to, or where another connection of this process is closed, which gives up
    all that a process has locked of a file (POSIX).

    Parameters
    ----------
    descriptor : int
        Of the file, to read and write; it is kept open.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Guards the two below.
        self._change = threading.Lock()
        # The thread that waits for the system's lock, and whether anybody waits for it.
        self._asked: threading.Thread | None = None
        self._awaited = False

    def take(self, seconds: float) -> None:
        """Wait for a turn, so long at most; `leave` has to follow, whatever comes of it."""
        if fcntl is None:
            return
        with self._change:
            asked = self._asked
            if asked is not None and not asked.is_alive():
                asked = None
            # Before a new thread starts, which may have the lock at once.
            self._awaited = asked is not None or self._is_taken()
        if not self._awaited:
            return
        try:
            (asked or self._ask()).join(seconds)
        except RuntimeError:  # where no thread can be had, there are no turns
            pass
        finally:
            self._awaited = False

    def leave(self) -> None:
        """Let the next one have its turn."""
        if fcntl is not None:
            with suppress(OSError):
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _BYTE)

    def _is_taken(self) -> bool:
        """Take the system's lock, unless somebody has it or there are no such locks."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _BYTE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _ask(self) -> threading.Thread:
        """Have a thread wait, for whoever waits for the system's lock cannot stop after a while."""
        asked = threading.Thread(target=self._wait, name="ladderholdout-turn", daemon=True)
        self._asked = asked
        asked.start()
        return asked

    def _wait(self) -> None:
        """Wait for the system's lock, and give it back where nobody waits for it any more."""
        with suppress(OSError):
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, _BYTE)
        with self._change:
            self._asked = None
            if not self._awaited:
                self.leave()
