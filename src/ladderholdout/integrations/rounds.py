"""Which round of a search a look belongs to.

scikit-learn calls a splitter's ``split`` once for each round of candidates, all of them
chosen before any feedback on any of them: one batch. The round travels with the fold
itself, the empty array of test indices that scikit-learn hands to every fit, in whatever
thread or process. A look takes its round from the fold that is being scored, so it never
takes another search's. A batch claimed wrongly would make a certificate false, so where
anything is unclear (folds listed by hand, a look from within a fit) there is none.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any
from uuid import uuid4

import numpy as np

from ladderholdout.errors import InvalidArgument

Key = tuple[str, int]
"""A holdout: the ledger's URL and the holdout's id."""

_REMEMBERED = 1000
_SEARCHES = "sklearn.model_selection."
_TRIALS = "optuna_integration."
# Who takes the folds, uses them for one round of candidates and lets them go.
_ONE_ROUND = {
    "BaseSearchCV.fit.<locals>.evaluate_candidates",
    "learning_curve",
    "validation_curve.<locals>.<genexpr>",
}
_ONE_TRIAL = "_Objective.__call__"

_asked: set[Key] = set()
# What somebody was shown last, in whatever thread: an object of its own each time.
_latest = object()


class _Here(threading.local):
    """The searches that this thread opened, oldest first."""

    def __init__(self) -> None:
        self.searches: deque[str] = deque(maxlen=_REMEMBERED)


_here = _Here()


@dataclass(frozen=True, slots=True)
class Round:
    """One call of a splitter: `search` finds its submissions again, `batch` binds them."""

    search: str
    batch: str | None


class GuardedFold(np.ndarray[Any, np.dtype[np.intp]]):
    """The empty test indices of a guarded fold, with the round that they belong to."""

    of: Round | None

    def __new__(cls, of: Round) -> GuardedFold:
        """Make the fold of a round."""
        fold = super().__new__(cls, 0, dtype=np.intp)
        fold.of = of
        return fold

    def __array_finalize__(self, source: object) -> None:
        self.of = getattr(source, "of", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return GuardedFold, (self.of,)


def mark_opened(key: Key) -> None:
    """Remember that somebody opened a split on a holdout."""
    _asked.add(key)


def was_opened(key: Key) -> bool:
    """Tell whether somebody did, in this process."""
    return key in _asked


def open_round(consumer: FrameType) -> GuardedFold:
    """Open a round for the frame that takes the folds."""
    # A search within a candidate's fit: that candidate depends on what this one is told.
    loosen()
    token = uuid4().hex
    _here.searches.append(token)
    one_round = _is_search(consumer) and consumer.f_code.co_qualname in _ONE_ROUND
    return GuardedFold(Round(token, token if one_round else None))


def opened_here() -> list[str]:
    """Return the searches that this thread opened, newest first."""
    return list(reversed(_here.searches))


def current() -> Round | None:
    """Return the round of the candidate that this thread is scoring."""
    caller = _caller()
    searching = list(_search_frames(caller))
    if not searching or searching[0].f_code.co_name != "_score":
        return None  # by hand, or from within a fit
    fold = next(_folds(searching), None)
    if fold is None or fold.of is None:
        return None
    # A scoring function of the user's own may look several times, each after feedback.
    direct = _module(caller).startswith("sklearn.")
    return fold.of if direct else replace(fold.of, batch=None)


def searching() -> bool:
    """Tell whether this thread is in the midst of a search of scikit-learn."""
    return any(True for _ in _search_frames(_caller()))


def trial() -> Any:
    """Return the trial of OptunaSearchCV whose guarded fold this thread is scoring, or None.

    Raises
    ------
    InvalidArgument
        The trial asks after each epoch, for its pruner.
    """
    within: list[str] = []
    for frame in _frames(_caller()):
        if _module(frame).startswith(_TRIALS) and frame.f_code.co_qualname == _ONE_TRIAL:
            break
        if _is_search(frame):
            within.append(frame.f_code.co_name)
    else:
        return None
    if not within:
        raise InvalidArgument(
            "enable_pruning",
            "False where the holdout is asked",
            True,
            "A pruner that asked it after each epoch would use up its releases, and the "
            "standing score is flat between them: prune by scores of the training side.",
        )
    # From within a fit, such as that of a candidate that is a search, it is another look.
    own = within[0] == "_score" and within.count("_fit_and_score") == 1
    return frame.f_locals["trial"] if own else None


def loosen() -> None:
    """Take the batch from the rounds in whose midst this thread is.

    For a look by hand, a search, or a glance at what stands, within a fit: its candidate may
    depend on the answer. Studies find out by `latest`.
    """
    global _latest
    _latest = object()
    for fold in _folds(_search_frames(_caller())):
        if fold is not None and fold.of is not None:
            fold.of = replace(fold.of, batch=None)


def latest() -> object:
    """Return what is another object whenever somebody in this process was shown an answer.

    Answers within a batch are told to nobody who could act on them, and do not count.
    """
    return _latest


def _folds(frames: Iterable[FrameType]) -> Iterator[GuardedFold | None]:
    """Yield what each of these frames tests on, None for a fold of others."""
    for frame in frames:
        test = frame.f_locals.get("test")
        # scikit-learn views the indices as a plain array, whose base is what it was given.
        given = test if isinstance(test, GuardedFold) else getattr(test, "base", None)
        if test is not None:
            yield given if isinstance(given, GuardedFold) else None


def _caller() -> FrameType | None:
    """Return the frame that called this library."""
    frame: FrameType | None = sys._getframe(1)
    while _module(frame).startswith("ladderholdout."):
        assert frame is not None
        frame = frame.f_back
    return frame


def _search_frames(frame: FrameType | None) -> Iterator[FrameType]:
    # Only these: to read the locals of others could keep alive what they let go.
    return filter(_is_search, _frames(frame))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_search(frame: FrameType) -> bool:
    return _module(frame).startswith(_SEARCHES)


def _module(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__"))
