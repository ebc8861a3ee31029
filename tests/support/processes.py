"""Other processes for the tests: each call runs in a new one that has inherited nothing.

They are forked from a server that has imported the package and opened nothing, so that one
costs some milliseconds.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import cloudpickle

from ladderholdout.process import clean_context

T = TypeVar("T")
PATIENCE = 120.0

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
