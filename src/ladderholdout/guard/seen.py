"""What this process was shown of a ladder: models that are built from then on may depend on it.

A batch claimed wrongly would make a certificate false. So whatever shows an answer ends the batches
in whose midst it is shown: the rounds of training that wait are submitted first, and what else
binds submissions together, such as the rounds of scikit-learn's searches, has a function called
(`on_answer`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import uuid4

from ladderholdout.process import after_fork

# What somebody was shown last, in whatever thread: an object of its own each time. The second
# leaves out answers to submissions, which are on record by themselves.
_latest = object()
_shown = object()
_listeners: list[Callable[[], None]] = []


class _Here(threading.local):
    """What this thread has not submitted yet."""

    def __init__(self) -> None:
        self.waiting: dict[int, Callable[[], None]] = {}


_here = _Here()
# The parent submits what waits there.
after_fork(lambda: _here.waiting.clear())


def on_answer(listener: Callable[[], None]) -> None:
    """Have a function called whenever this process is shown an answer outside of a batch."""
    _listeners.append(listener)


def submit_later(owner: object, submit: Callable[[], None]) -> None:
    """Have `submit` called before this thread sees what was released, or submits anything else."""
    _here.waiting[id(owner)] = submit


def submitted(owner: object) -> None:
    """Take that back."""
    _here.waiting.pop(id(owner), None)


def settle() -> None:
    """Submit what waits in this thread."""
    while _here.waiting:
        _here.waiting.pop(next(iter(_here.waiting)))()


def note_answer() -> None:
    """Note that an answer outside of a batch is about to reach whoever asked.

    Such as a submission by hand, a search, or a release that is read, within the fit of a
    candidate of another search: that candidate may depend on the answer.
    """
    global _latest
    _latest = object()
    for listener in _listeners:
        listener()


def note_shown() -> None:
    """Note that somebody sees what was released: what is being built may depend on it."""
    global _shown
    settle()
    _shown = object()
    note_answer()


def new_batch() -> str:
    """Return the name of a new batch; what it is begun within may depend on its answers."""
    note_answer()
    return uuid4().hex


def shown_last() -> object:
    """Return what is another object whenever somebody in this process saw what was released.

    The answer to a submission does not count: it is in the ledger's order.
    """
    return _shown


def latest() -> object:
    """Return what is another object whenever somebody in this process was shown an answer.

    Answers within a batch reach nobody who could act on them, and do not count.
    """
    return _latest
