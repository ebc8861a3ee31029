"""What systems do in ways of their own: forks, the rights of files, locks, writes that last.

Each function states what it does where the system lacks the call. No other module asks which system
it is on: `tests/project/test_platforms.py` looks for the calls elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Generic, TypeVar

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")


def after_fork(function: Callable[[], None]) -> None:
    """Call a function in each process that is forked from this one, where there are forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def around_fork(before: Callable[[], None], after: Callable[[], None]) -> None:
    """Call a function before each fork of this process, and one in it after that."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after)


class PerProcess(Generic[T]):
    """A value that each process makes for itself: a forked one has a new one, not its parent's.

    A lock that another thread held during the fork would stay locked in the child.

    Parameters
    ----------
    make : callable
        Returns a new value.
    drop : callable, optional
        Is given the parent's value in the child.

    Examples
    --------
    >>> lock = PerProcess(threading.Lock)
    >>> with lock():
    ...     lock().locked()
    True
    """

    def __init__(self, make: Callable[[], T], drop: Callable[[T], object] | None = None) -> None:
        self._make, self._drop, self._value = make, drop, make()
        after_fork(self._renew)

    def __call__(self) -> T:
        """Return the value of this process."""
        return self._value

    def _renew(self) -> None:
        parents, self._value = self._value, self._make()
        if self._drop is not None:
            self._drop(parents)


HAS_MODES: bool = hasattr(os, "geteuid")
"""Whether a file's mode states who may use it. Elsewhere the rights of its folder do."""

FILES_ARE_SHARED: bool = os.name != "nt"
"""Whether several servers may use one SQLite file. On Windows they take no turns at it."""

_BINARY: int = getattr(os, "O_BINARY", 0)  # Windows turns the ends of lines into others without it


def open_private(
    path: Path, *, create: bool = True, new: bool = False, append: bool = False
) -> int:
    """Open a file to read and write, and return its descriptor.

    A file that this makes is its user's alone, from its first moment. Where there are no modes, the
    rights of its folder decide.

    Parameters
    ----------
    path : Path
        The file.
    create : bool
        Make it if it is not there.
    new : bool
        Refuse a file that is there with `FileExistsError`.
    append : bool
        Write at the end alone, wherever others have moved it.
    """
    wish = os.O_CREAT | (os.O_EXCL if new else 0) if create or new else 0
    wish |= os.O_APPEND if append else 0
    return os.open(path, os.O_RDWR | _BINARY | wish, 0o600)


def open_to_read(path: Path) -> int:
    """Open a file to read and return its descriptor; a pipe does not make the caller wait."""
    return os.open(path, os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0))


def open_inside(folder: Path, path: Path) -> int:
    """Open a file of a folder to read, and return its descriptor; no link leads out of the folder.

    A link that is put there while this runs is not followed, where the system opens names relative
    to an open folder.

    Raises
    ------
    OSError
        The file cannot be opened, or is elsewhere (`PermissionError`).
    """
    home = folder.resolve()
    try:
        names = (home / path).resolve().relative_to(home).parts
    except (ValueError, RuntimeError):  # elsewhere, or links in a circle
        raise PermissionError(errno.EACCES, f"it is not in {home}") from None
    if os.open not in os.supports_dir_fd:
        return open_to_read(home.joinpath(*names))
    opened = os.open(home, os.O_RDONLY)
    for name in names:
        outer = opened
        try:
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=outer)
        finally:
            os.close(outer)
    return opened


def make_private(folder: Path) -> None:
    """Make a folder that is its user's alone, where there are modes; one that is there stays."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def is_open_to_others(status: os.stat_result) -> bool:
    """Return whether a file's mode lets others use it; False where there are no modes."""
    return HAS_MODES and bool(stat.S_IMODE(status.st_mode) & 0o077)


def is_writable_to_others(status: os.stat_result) -> bool:
    """Return whether others than this user and root may write a file; False without modes."""
    loose = bool(stat.S_IMODE(status.st_mode) & 0o022)
    return HAS_MODES and (loose or status.st_uid not in (os.geteuid(), 0))


def is_of_another(status: os.stat_result) -> bool:
    """Return whether a file belongs to another user; False where owners are not numbered."""
    return HAS_MODES and status.st_uid != os.geteuid()


def lets_others_replace(status: os.stat_result) -> bool:
    """Return whether others may replace the files of a folder; False where there are no modes."""
    loose = bool(status.st_mode & stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
    return HAS_MODES and (status.st_uid not in (os.geteuid(), 0) or loose)


def sync(file: IO[bytes]) -> None:
    """Wait until what was written to a file is on the disk. Windows wants it open for writing."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; Windows has no call for that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        if HAS_MODES:
            raise
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


HAS_QUEUES: bool = fcntl is not None
"""Whether the system keeps those who wait for a byte of a file in a queue: POSIX alone."""


def lock_byte(descriptor: int, byte: int, *, wait: bool) -> bool:
    """Lock a byte of an open file; return False if another process has it and `wait` is off.

    Where there are no queues, or the file has no locks, nothing is locked and True is returned: no
    more than an order may rest on it.
    """
    if HAS_QUEUES:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True


def unlock_byte(descriptor: int, byte: int) -> None:
    """Unlock a byte of an open file, if this process has locked it."""
    if HAS_QUEUES:
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, byte)


_reading = PerProcess(threading.Lock)


def read_start(descriptor: int, size: int) -> bytes:
    """Read the first bytes of an open file, whatever other threads read of it."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, 0)
    with _reading():
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.read(descriptor, size)


def write_start(descriptor: int, data: bytes) -> None:
    """Write the first bytes of an open file, whatever other threads do with it."""
    if hasattr(os, "pwrite"):
        os.pwrite(descriptor, data, 0)
        return
    with _reading():
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, data)
