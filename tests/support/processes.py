"""Other processes for the tests: each call runs in a new one that has inherited nothing.

They are forked from a server that has imported the package and opened nothing, so that one
costs some milliseconds. Forks that are to be killed begin with all that their parent has.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Any, TypeVar

import cloudpickle

from ladderholdout.ledger.sqlite import FileSource

T = TypeVar("T")
PATIENCE = 120.0


def clean_context(*preload: str) -> ForkServerContext | SpawnContext:
    """Return a way to start processes that inherit nothing of this one.

    Parameters
    ----------
    *preload : str
        Modules that a server of forks imports once, where there are forks; `spawn` imports what a
        call needs in each process.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    return context


_context = clean_context("ladderholdout", "sklearn.dummy")


class Call:
    """Unpickling it makes the call: so the other process need not import any test."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments


@contextmanager
def tests_by_value() -> Iterator[None]:
    """Pickle the functions of the test modules with their code, not by their names."""
    ours = [module for name, module in sys.modules.items() if name.startswith("tests.")]
    for module in ours:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in ours:
            cloudpickle.unregister_pickle_by_value(module)


def elsewhere(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in another process and return what it returns, or raise its error."""
    return at_once([(function, *arguments)])[0]


def at_once(calls: list[tuple[Any, ...]], patience: float = PATIENCE) -> list[Any]:
    """Make several calls at the same time, each in a process of its own."""
    with tests_by_value():
        sent = [cloudpickle.dumps(Call(function, tuple(given))) for function, *given in calls]
    with ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, _context)) for _ in sent]
        running: list[Future[Any]] = [
            pool.submit(pickle.loads, call) for pool, call in zip(pools, sent, strict=True)
        ]
        return [future.result(patience) for future in running]


def killed(
    action: Callable[[int], Any], wait: float | None = None, *, once_it_spoke: bool = False
) -> tuple[bytes, int]:
    """Run an action in a fork, kill it after a while, and return what it wrote and its end."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action(writer)
            os._exit(0)
        finally:
            os._exit(1)  # whatever went wrong, the parent's code must not run twice
    os.close(writer)
    if wait is not None:
        if once_it_spoke:
            select.select([reader], [], [])
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
    with open(reader, "rb") as pipe:
        said = pipe.read()
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(moment: int) -> None:
    """Kill this process at the n-th moment of its talk with the database.

    A moment is the start of a statement (BEGIN and COMMIT are two), or the look at the files
    before the first and after the last of them.
    """
    moments = itertools.count(1)

    def passes(*_: Any) -> None:
        if next(moments) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(self: FileSource) -> Any:
        connection = connect(self)
        connection.driver.set_trace_callback(passes)
        return connection

    def checked(self: FileSource, conn: Any) -> None:
        passes()
        check(self, conn)

    connect, FileSource._connected = FileSource._connected, connected  # type: ignore[method-assign]
    check, FileSource.check = FileSource.check, checked  # type: ignore[method-assign]
