"""What keeps labels and raw scores inside the guard: exceptions without frames, no autologging.

Verbose tracebacks, debuggers and services that collect errors show the variables of every frame
below the caller's. Those of the guard, the metric, the mechanism and the database hold labels,
raw risks and the secret, whatever was raised there: an error of this library, a full memory, or
Ctrl-C. What a user's own code did, such as an estimator's ``predict``, stays to be seen.
MLflow's autologging would log what a metric fits to the labels.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, ExitStack, contextmanager, suppress
from pathlib import Path
from types import CodeType, TracebackType

from ladderholdout.errors import LadderHoldoutError, SearchStopped
from ladderholdout.metrics import responses
from ladderholdout.process import PerProcess
from ladderholdout.thirdparty import autologging_off

_PACKAGE = str(Path(__file__).parents[1])
# The functions that call code of the user; what is below them stays.
_CALLING_OUT: frozenset[CodeType] = frozenset({responses.answer_of.__code__})


class WithoutFrames(ContextDecorator):
    """Takes the frames of the block, and those below it, out of whatever leaves the block."""

    def __enter__(self) -> None:
        """Do nothing: all that counts is how the block is left."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Strip what leaves the block, and let it go on."""
        if error is not None:
            strip(error)


without_frames = WithoutFrames()
"""For ``with``, or as a decorator."""


def strip(error: BaseException) -> None:
    """Take from an exception, and from those it hangs on, all frames but the user's.

    The block that calls this is the first frame of its traceback, and goes as well. Variables of
    frames that are taken out are deleted, for a debugger climbs from one frame to its caller. An
    unexpected error has a note through which functions of this library it came.
    """
    waiting, seen = [(error, False)], set[int]()
    while waiting:
        error, users = waiting.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        users_own, ours = _split(error.__traceback__, users)
        trace: TracebackType | None = None
        for link in reversed(users_own):
            trace = TracebackType(trace, link.tb_frame, link.tb_lasti, link.tb_lineno)
        error.__traceback__ = trace
        refused = isinstance(error, LadderHoldoutError)
        if ours and isinstance(error, Exception) and not refused:
            error.add_note("It came through ladderholdout: " + ", ".join(ours))
        # What an error within the library hangs on was caught there, and its text may reveal it.
        if refused or not (users_own or isinstance(error, SearchStopped)):
            error.__cause__ = error.__context__ = None
        hangs_on = error.__context__, error.__cause__
        waiting += [(one, bool(users_own)) for one in hangs_on if one is not None]


def _split(trace: TracebackType | None, users: bool) -> tuple[list[TracebackType], list[str]]:
    """Return the links of a traceback that are the user's, and the places of those of ours."""
    users_own: list[TracebackType] = []
    ours: list[str] = []
    while trace is not None:
        frame, code = trace.tb_frame, trace.tb_frame.f_code
        own = code.co_filename.startswith(_PACKAGE)
        if users and not own:
            users_own.append(trace)
        else:
            users = own and code in _CALLING_OUT
            if own:
                ours.append(f"{Path(code.co_filename).stem}.{code.co_qualname}:{trace.tb_lineno}")
            with suppress(RuntimeError):  # the block itself still runs
                frame.clear()
        trace = trace.tb_next
    return users_own, ours


class _Off:
    """How many blocks of this process MLflow's autologging is off for, and what turns it back."""

    def __init__(self) -> None:
        self.lock, self.inside, self.switch = threading.Lock(), 0, ExitStack()


# Whoever was inside in the parent is not in the child.
_off = PerProcess(_Off, drop=lambda off: off.switch.close())


@contextmanager
def without_autologging() -> Iterator[None]:
    """Switch MLflow's autologging off for the length of a block, in all threads.

    Its own switch is one for the whole process and does not nest, so the first one in turns
    it and the last one out turns it back. Free of cost where MLflow is not imported.
    """
    if "mlflow" not in sys.modules:
        yield
        return
    off = _off()
    with off.lock:
        if off.inside == 0 and (switch := autologging_off()) is not None:
            off.switch.enter_context(switch)
        off.inside += 1  # last: where that failed, later blocks still switch it off
    try:
        yield
    finally:
        with off.lock:
            off.inside -= 1
            if off.inside == 0:
                off.switch.close()
