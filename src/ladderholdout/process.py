"""What a process has to itself, and what systems do in ways of their own: forks and files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def after_fork(function: Callable[[], None]) -> None:
    """Call a function in each process that is forked from this one, where there are forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


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


BINARY: int = getattr(os, "O_BINARY", 0)
"""For `os.open`: Windows turns the ends of lines into others without it."""

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
