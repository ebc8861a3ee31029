"""Which round of a search a submission belongs to.

scikit-learn calls a splitter's ``split`` once for each round of candidates, all of them
chosen before any feedback on any of them: one batch. The round travels with the fold
itself, the empty array of test indices that scikit-learn hands to every fit, in whatever
thread or process. A submission takes its round from the fold that is being scored, so it
never takes another search's. A batch claimed wrongly would make a certificate false, so where
anything is unclear (folds listed by hand, a submission from within a fit) there is none.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ladderholdout import thirdparty
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.open_ladder import OpenLadder, Place
from ladderholdout.guard.shown import new_batch, on_answer
from ladderholdout.thirdparty import Frame

_REMEMBERED = 1000

_consulted: set[Place] = set()
# Whether this process ever held a guarded fold: without one there is no round to be in.
_folded = False


@dataclass(frozen=True, slots=True)
class _Opened:
    """A round that was opened: its name, that of the first one of its fit, and its candidates.

    The fit is known as long as it runs (`thirdparty.fit_around`).
    """

    search: str
    first: str
    size: int | None
    fit: Callable[[], Any] | None


class _Here(threading.local):
    """The searches that this thread opened, oldest first."""

    def __init__(self) -> None:
        self.searches: deque[_Opened] = deque(maxlen=_REMEMBERED)


_here = _Here()


@dataclass(frozen=True, slots=True)
class Round:
    """One call of a splitter: `search` finds its submissions again, `batch` binds them.

    `steps` are the fitted pipelines between the user's rows and the search, and `rows` is a
    digest of the rows that the search was given (see `pipelines`). With `own_rows` scikit-learn
    itself fits the candidates on the rows that the splitter was given, and what is around the
    search was inspected then: no scorer has to do so again. `offset` is how many candidates of the
    same fit came before the round. The last four are those of the candidate that is being scored,
    once there is one (see `thirdparty.Scoring`), with its row in ``cv_results_``.
    """

    search: str
    batch: str | None
    steps: tuple[Any, ...] = field(default=(), compare=False)
    rows: str | None = None
    own_rows: bool = False
    offset: int = 0
    place: int | None = None
    candidate: int | None = None
    parameters: Mapping[str, Any] | None = field(default=None, compare=False)
    call: Any = field(default=None, compare=False)
    # Whether the training rows are as they were, in the process whose rows they are.
    intact: Callable[[], bool] | None = field(default=None, compare=False)


class GuardedFold(np.ndarray[Any, np.dtype[np.intp]]):
    """The empty test indices of a guarded fold, with the round that they belong to."""

    of: Round | None
    # Whether the training rows are as they were, in the process whose rows they are.
    intact: Callable[[], bool] | None = None

    def __new__(cls, of: Round) -> GuardedFold:
        """Make the fold of a round."""
        global _folded
        _folded = True
        fold = super().__new__(cls, 0, dtype=np.intp)
        fold.of = of
        return fold

    def __array_finalize__(self, source: object) -> None:
        self.of = getattr(source, "of", None)
        self.intact = getattr(source, "intact", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return GuardedFold, (self.of,)


def mark_consulted(ladder: OpenLadder) -> None:
    """Remember that somebody has a search ask this holdout, or did so before."""
    _consulted.add(ladder.place)


def is_consulted(ladder: OpenLadder) -> bool:
    """Return whether somebody does, as far as this process knows."""
    return bool(_consulted) and ladder.place in _consulted


def open_round(
    consumer: Frame,
    steps: tuple[Any, ...] = (),
    rows: str | None = None,
    ended: Callable[[str], None] | None = None,
    *,
    own_rows: bool = False,
) -> GuardedFold:
    """Open a round for the frame that takes the folds.

    Parameters
    ----------
    consumer : Frame
    steps, rows, own_rows
        As in `Round`.
    ended : callable, optional
        Called with the name of the search when the consumer lets the fold go.
    """
    # A search within a candidate's fit: that candidate depends on the answers to this one.
    token = new_batch()
    offset = _remember(token, consumer)
    batch = token if consumer.takes_one_round else None
    fold = GuardedFold(Round(token, batch, steps, rows, own_rows, offset))
    if ended is not None and consumer.is_search:
        weakref.finalize(fold, ended, token).atexit = False
    return fold


def _remember(token: str, consumer: Frame) -> int:
    """Remember a round, and return how many candidates came before it in the same fit."""
    fit, size = thirdparty.fit_around(consumer), thirdparty.candidates_of(consumer)
    running = None if fit is None else fit()
    same = [
        one
        for one in _here.searches
        if running is not None and one.fit is not None and one.fit() is running
    ]
    _here.searches.append(_Opened(token, same[0].first if same else token, size, fit))
    return sum(one.size or 0 for one in same)


def opened_here() -> list[str]:
    """Return the searches that this thread opened, newest first."""
    return [one.search for one in reversed(_here.searches)]


def fits_here() -> Iterator[tuple[list[str], int | None]]:
    """Yield the rounds of each fit that this thread opened some in, newest fit first.

    With how many candidates they have together, None where that is not known.
    """
    fits: dict[str, list[_Opened]] = {}
    for one in _here.searches:
        fits.setdefault(one.first, []).append(one)
    for opened in reversed(fits.values()):
        sizes = [one.size for one in opened]
        known = None if None in sizes else sum(one or 0 for one in sizes)
        yield [one.search for one in opened], known


def fit_of(search: str) -> list[str]:
    """Return all rounds of the fit that one round of this thread belongs to."""
    return next((found for found, _ in fits_here() if search in found), [search])


def current() -> Round | None:
    """Return the round of the candidate that this thread is scoring."""
    found = thirdparty.scoring()
    fold = None if found is None else fold_of(found.test)
    if found is None or fold is None or fold.of is None:
        return None  # by hand, or from within a fit
    # A scoring function of the user's own may submit several times, each after feedback. Workers
    # come in any order, so a candidate without a place of its own has none.
    binds = found.by_sklearn and (found.place is not None or found.in_order)
    return replace(
        fold.of,
        batch=fold.of.batch if binds else None,
        own_rows=fold.of.own_rows and found.by_sklearn,
        place=found.place if binds else None,
        candidate=None if found.candidate is None else fold.of.offset + found.candidate,
        parameters=found.parameters,
        call=found.call,
        intact=fold.intact,
    )


def trial() -> Any:
    """Return the trial of OptunaSearchCV whose guarded fold this thread is scoring, or None.

    Raises
    ------
    InvalidArgument
        The trial asks after each epoch, for its pruner.
    """
    found = thirdparty.running_trial()
    if found is not None and found.epochs:
        raise InvalidArgument(
            "enable_pruning",
            "False where the holdout is asked",
            True,
            "A pruner that asked it after each epoch would use up its releases, and the "
            "released score is flat between them: prune by scores of the training side.",
        )
    return found.trial if found is not None and found.own else None


def _unbind() -> None:
    """Take the batch from the rounds in whose midst this thread is shown an answer."""
    if not _folded:
        return
    for fold in map(fold_of, thirdparty.tests_around()):
        if fold is not None and fold.of is not None:
            fold.of = replace(fold.of, batch=None)


on_answer(_unbind)


def fold_of(test: Any) -> GuardedFold | None:
    """Return the guarded fold behind the test indices that scikit-learn holds."""
    # It views the indices as a plain array, whose base is what it was given.
    given = test if isinstance(test, GuardedFold) else getattr(test, "base", None)
    return given if isinstance(given, GuardedFold) else None
