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
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, SearchStopped
from ladderholdout.guard.containment import strip
from ladderholdout.guard.open_ladder import OpenLadder, Place
from ladderholdout.guard.seen import new_batch, on_answer
from ladderholdout.thirdparty import CANDIDATES, Frame

_REMEMBERED = 1000

_consulted: set[Place] = set()
# Whether this process ever held a guarded fold: without one there is no round to be in.
_folded = False


@dataclass(slots=True)
class SearchFit:
    """One fit of a search: the names of its rounds, and how many candidates they have together.

    `size` is None where that is not known. The fit is known again as long as it runs
    (`thirdparty.fit_around`).
    """

    running: Callable[[], Any] | None
    searches: list[str] = field(default_factory=list)
    size: int | None = 0


class _Here(threading.local):
    """The fits in which this thread opened rounds, oldest first."""

    def __init__(self) -> None:
        self.fits: deque[SearchFit] = deque(maxlen=_REMEMBERED)


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
            if isinstance(error, LadderHoldoutError):
                reason = str(error)
            message = f"The guard cannot answer, so the search stops. {reason}"
            raise SearchStopped(message) from error


def open_round(
    consumer: Frame,
    steps: tuple[Any, ...] = (),
    rows: str | None = None,
    ended: Callable[[Callable[[], Any] | None, list[str]], None] | None = None,
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
        Called with the fit that is running (`thirdparty.fit_around`) and the names of its rounds
        when the consumer lets the fold go.
    """
    # A search within a candidate's fit: that candidate depends on the answers to this one.
    token = new_batch()
    fit = SearchFit(thirdparty.fit_around(consumer))
    running = None if fit.running is None else fit.running()
    for known in _here.fits:
        if running is not None and known.running is not None and known.running() is running:
            fit = known
            break
    else:
        _here.fits.append(fit)
    offset = fit.size or 0
    candidates = consumer.local("candidate_params") if consumer.place == CANDIDATES.place else None
    fit.size = None if fit.size is None or candidates is None else offset + len(candidates)
    fit.searches.append(token)
    batch = token if consumer.takes_one_round else None
    fold = GuardedFold(Round(token, batch, steps, rows, own_rows, offset))
    if ended is not None and consumer.is_search:
        weakref.finalize(fold, ended, fit.running, fit.searches).atexit = False
    return fold


def fits_here() -> Iterator[SearchFit]:
    """Yield the fits in which this thread opened rounds, newest first."""
    return reversed(_here.fits)


def current() -> Round | None:
    """Return the round of the candidate that this thread is scoring."""
    scoring = thirdparty.scoring()
    fold = None if scoring is None else fold_of(scoring.test)
    if scoring is None or fold is None or fold.of is None:
        return None  # by hand, or from within a fit
    # A scoring function of the user's own may submit several times, each after feedback. Workers
    # come in any order, so a candidate without a place of its own has none.
    binds = scoring.by_sklearn and (scoring.place is not None or scoring.in_order)
    return replace(
        fold.of,
        batch=fold.of.batch if binds else None,
        own_rows=fold.of.own_rows and scoring.by_sklearn,
        place=scoring.place if binds else None,
        candidate=None if scoring.candidate is None else fold.of.offset + scoring.candidate,
        parameters=scoring.parameters,
        call=scoring.call,
        intact=fold.intact,
    )


def trial() -> Any:
    """Return the trial of OptunaSearchCV whose guarded fold this thread is scoring, or None.

    Raises
    ------
    InvalidArgument
        The trial asks after each epoch, for its pruner.
    """
    running = thirdparty.running_trial()
    if running is not None and running.epochs:
        raise InvalidArgument(
            "enable_pruning",
            "False where the holdout is asked",
            True,
            "A pruner that asked it after each epoch would use up its releases, and the "
            "released score is flat between them: prune by scores of the training side.",
        )
    return running.trial if running is not None and running.own else None


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
