"""Interrupts a program at a line that a test names, as Ctrl-C would."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeAlias

P = ParamSpec("P")
Place: TypeAlias = tuple[str, int]
"""A file and a line of it."""


def aside(test: Callable[P, None]) -> Callable[P, None]:
    """Run a test that interrupts in a thread of its own.

    After an interrupt at the way out of a block, CPython 3.11 may keep the exception that was
    handled there, and put it behind all that is raised later in the thread, also by other tests.
    """

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(test, *args, **kwargs).result()

    return run


@contextmanager
def tracing(see: Callable[[Place], None], among: Callable[[str], bool]) -> Iterator[None]:
    """Call at each line of these files below."""

    def trace(frame: Any, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if name == __file__ or not among(name):
            return None
        if event == "line":
            see((name, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def lines_of(act: Callable[[], Any], among: Callable[[str], bool]) -> list[Place]:
    """Return the lines of these files that are reached, in the order in which they are."""
    seen: dict[Place, None] = {}
    with tracing(lambda place: seen.setdefault(place), among):
        act()
    return list(seen)


def interrupted(
    act: Callable[[], Any], place: Place, among: Callable[[str], bool]
) -> BaseException | None:
    """Act, interrupted the first time that a line is reached; return what is raised."""
    armed = True

    def see(now: Place) -> None:
        nonlocal armed
        if armed and now == place:
            armed = False
            raise KeyboardInterrupt

    with tracing(see, among):
        try:
            act()
        except BaseException as error:  # what is interrupted in mid-construction may fail anew
            return error
    return None


def in_transactions(name: str) -> bool:
    """Whether a file is of what begins and ends a transaction, whatever the database."""
    own = ("store.py", "sqlite.py", "postgres.py")
    return name.endswith(("contextlib.py", *(f"ladderholdout/ledger/{one}" for one in own)))
