"""Which round of a search a submission belongs to.

A search of scikit-learn asks for its folds once for each round of candidates, in its own thread and
before the first fit: all of them are chosen before any feedback on any of them, and so are one
batch. The round travels with the fold itself, the empty test indices that scikit-learn hands to
every fit, in whatever thread or process; it ends when the folds are let go. A batch claimed wrongly
would make a certificate false: so a submission from within a fit has none, and what shows an answer
ends the batch of the rounds in whose midst it is shown.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ladderholdout import errors, thirdparty
from ladderholdout.guard.containment import strip
from ladderholdout.guard.open_ladder import OpenLadder, Place
from ladderholdout.guard.seen import new_batch, on_answer
from ladderholdout.thirdparty import Frame

_REMEMBERED = 1000

_consulted: set[Place] = set()


@dataclass(eq=False)
class Round:
    """One call of a splitter: `search` finds its submissions again, `batch` binds them.

    Attributes
    ----------
    search : str
    batch : str or None
    size : int or None
        How many queries the batch has at most, where that was known before the first.
    steps : tuple
        The fitted pipelines between the user's rows and the search, the outermost first.
    consumer : callable
        Returns what took the folds, as long as that is there: the object that is fitted, or the
        name of a function; None in other processes.
    intact : callable
        Whether the training rows are as they were, in the process whose rows they are.
    in_order : bool
        Whether its candidates came in their order, one after the other.
    """

    search: str
    batch: str | None
    size: int | None
    steps: tuple[Any, ...]
    consumer: Callable[[], Any] = lambda: None
    intact: Callable[[], bool] = lambda: True
    in_order: bool = True
    _thread: int = field(default_factory=threading.get_ident)

    def __getstate__(self) -> dict[str, Any]:
        self.in_order = False  # it goes to a worker
        return {name: getattr(self, name) for name in ("search", "batch", "size", "steps")}

    def __setstate__(self, sent: dict[str, Any]) -> None:
        vars(self).update(vars(Round(**sent, in_order=False)))


class GuardedFold(np.ndarray[Any, np.dtype[np.intp]]):
    """The empty test indices of a guarded fold, with the round that they belong to."""

    of: Round
    # Whether this process ever held one: without it there is no round to be in.
    made = False

    def __new__(cls, of: Round) -> GuardedFold:
        """Make the fold of a round."""
        GuardedFold.made = True
        fold = super().__new__(cls, 0, dtype=np.intp)
        fold.of = of
        return fold

    def __reduce__(self) -> tuple[Any, ...]:
        return GuardedFold, (self.of,)


class _Here(threading.local):
    """The rounds that this thread opened, oldest first."""

    def __init__(self) -> None:
        self.rounds: deque[Round] = deque(maxlen=_REMEMBERED)


_here = _Here()


def mark_consulted(place: Place) -> None:
    """Remember that somebody has a search ask the holdout of this place, or did so before."""
    _consulted.add(place)


def is_consulted(ladder: OpenLadder) -> bool:
    """Return whether somebody does, as far as this process knows."""
    return bool(_consulted) and ladder.facts.place in _consulted


class Loud:
    """Whatever fails in here ends a search of scikit-learn, which would score it as nan.

    Outside of searches errors stay what they are, without the frames of the guard.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        strip(error)
        if isinstance(error, Exception) and thirdparty.is_searching():
            reason = f"A round has none ({type(error).__name__})."
            if isinstance(error, errors.LadderHoldoutError):
                reason = str(error)
            message = f"The guard cannot answer, so the search stops. {reason}"
            raise errors.SearchStopped(message) from error


def open_round(
    consumer: Frame,
    *,
    binds: bool,
    size: int | None,
    steps: tuple[Any, ...],
    intact: Callable[[], bool],
    ended: Callable[[Round], None],
) -> GuardedFold:
    """Open a round, and return the fold that ends it when it is let go.

    Parameters
    ----------
    consumer : Frame
        What takes the folds.
    binds : bool
        Whether its candidates are one batch.
    size, steps, intact
        As in `Round`.
    ended : callable
        Called with the round when it ends.
    """
    # A search within a candidate's fit: that candidate depends on the answers to this one.
    token, whose = new_batch(), consumer.whose
    known = weakref.ref(whose) if consumer.is_fit else lambda: whose
    opened = Round(token, token if binds else None, size, steps, known, intact)
    _here.rounds.append(opened)
    fold = GuardedFold(opened)
    weakref.finalize(fold, _close, opened, ended).atexit = False
    return fold


def _close(opened: Round, ended: Callable[[Round], None]) -> None:
    opened.intact, opened.steps = Round.intact, ()  # what holds rows is let go
    ended(opened)


def opened_here() -> Iterator[Round]:
    """Yield the rounds that this thread opened, newest first."""
    return reversed(_here.rounds)


def around() -> tuple[list[Frame], Round | None]:
    """Return the round in whose midst this thread is, and the fits and tools within it, outward.

    Without a round all that are around.
    """
    within = list[Frame]()
    for frame in thirdparty.outside():
        if (fold := _fold_of(frame)) is not None:
            if fold.of._thread != threading.get_ident():
                fold.of.in_order = False
            return within, fold.of
        if frame.is_fit or frame.is_tool:
            within.append(frame)
    return within, None


def _fold_of(frame: Frame) -> GuardedFold | None:
    """Return the guarded fold whose candidate a function of scikit-learn's fits or scores."""
    test = frame.local("test") if frame.library == "sklearn" else None
    # scikit-learn views the indices as a plain array, whose base is what it was given.
    given = test if isinstance(test, GuardedFold) else getattr(test, "base", None)
    return given if isinstance(given, GuardedFold) and hasattr(given, "of") else None


def batch_of(opened: Round) -> str | None:
    """Return the batch of a candidate that is scored now, or None where that is unclear.

    Workers come in any order, so that their candidates have no place where the size is not known.
    """
    return opened.batch if opened.size is not None or opened.in_order else None


def _unbind() -> None:
    """Take the batch from the rounds in whose midst this thread is shown an answer."""
    if not GuardedFold.made:
        return
    for frame in thirdparty.outside():
        if (fold := _fold_of(frame)) is not None:
            fold.of.batch = None


on_answer(_unbind)
