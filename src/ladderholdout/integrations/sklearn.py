"""scikit-learn: the guarded splitter and the scorer rule."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

from ladderholdout import fingerprint as fp
from ladderholdout.errors import (
    InvalidArgument,
    LadderHoldoutError,
    NotConsultedWarning,
    SearchStopped,
)
from ladderholdout.feedback import told, told_of_one_bit
from ladderholdout.holdout.choices import count_rows
from ladderholdout.holdout.context import describe_estimator
from ladderholdout.holdout.guard import Origin
from ladderholdout.holdout.handle import Handle
from ladderholdout.holdout.marks import same_ladder
from ladderholdout.holdout.registration import judge_overlap
from ladderholdout.integrations import rounds
from ladderholdout.ledger import Transaction

if TYPE_CHECKING:
    from ladderholdout.holdout.scorer import SearchHandle

_SAMPLE = 64
_warned: set[rounds.Key] = set()


class GuardedSplit:
    """A splitter whose last fold is the look at the holdout.

    Parameters
    ----------
    holdout : LadderHoldout
    inner : int or splitter, default=0
        Folds of the training rows that come first.
    guarded : bool, default=True
        Whether the guarded fold follows: all rows to train on, none to test on, which
        `LadderHoldout` takes as the wish to be asked.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1]], [0, 1], scoring="accuracy", ledger="memory")
    >>> for train, test in holdout.split(inner=2).split([[5], [6], [7], [8]], [0, 1, 0, 1]):
    ...     print(train, test)
    [2 3] [0 1]
    [0 1] [2 3]
    [0 1 2 3] []
    """

    def __init__(self, holdout: SearchHandle, inner: Any = 0, *, guarded: bool = True) -> None:
        if not (_makes_folds(inner) or (guarded and _is_zero(inner))):
            raise InvalidArgument(
                "inner",
                "at least 2 folds or a splitter, or 0 for the guarded fold alone",
                repr(inner),
            )
        if not isinstance(inner, int | np.integer) and not hasattr(inner, "split"):
            inner = list(inner)  # a generator would serve one search alone
        self._holdout, self._inner, self._guarded = holdout, inner, guarded
        rounds.mark_opened(holdout._place)

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield the inner folds, then the guarded one.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            The training rows; rows of the holdout among them are counted and said.
        y, groups : array-like, optional

        Yields
        ------
        train, test : ndarray of int
            For the guarded fold: all rows, and none.

        Raises
        ------
        OverlapError
            Half of the holdout or more stands among the training rows.
        """
        X, y, groups = indexable(X, y, groups)
        look_for_overlap(self._holdout, X)
        if not _is_zero(self._inner):
            yield from check_cv(self._inner, y, classifier=self._classifies).split(X, y, groups)
        if self._guarded:
            yield np.arange(count_rows(X)), rounds.open_round(sys._getframe(1))

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds, the guarded one included."""
        inner = 0
        if not _is_zero(self._inner):
            cv = check_cv(self._inner, y, classifier=self._classifies)
            inner = int(cv.get_n_splits(X, y, groups))
        return inner + int(self._guarded)

    def get_metadata_routing(self) -> Any:
        """Return what the inner splitter asks of metadata routing, such as groups."""
        return get_routing_for_object(self._inner)

    @property
    def random_state(self) -> Any:
        """Whether folds are the same at each call; the Halving searches alone ask.

        Raises
        ------
        InvalidArgument
            For the guarded fold, which they cannot use.
        """
        if self._guarded:
            raise InvalidArgument(
                "cv",
                "without the guarded fold in a Halving search",
                "a split that ends on it",
                "Halving keeps the last of tied candidates, looks at its last rung alone and "
                "ignores refit=holdout.select. Search on inner folds, "
                "cv=holdout.split(inner=5, guarded=False), then ask once: "
                "holdout.evaluate(search).",
            )
        return getattr(self._inner, "random_state", 0)

    @property
    def shuffle(self) -> Any:
        """Whether the inner folds are shuffled, as their splitter says."""
        return getattr(self._inner, "shuffle", False)

    @property
    def _classifies(self) -> bool:
        return self._holdout.metric.is_classification

    def __repr__(self) -> str:
        return f"{self._holdout!r}.split(inner={self._inner!r}, guarded={self._guarded})"


def _is_zero(inner: Any) -> bool:
    return isinstance(inner, int | np.integer) and not isinstance(inner, bool) and inner == 0


def _makes_folds(inner: Any) -> bool:
    """Tell whether scikit-learn can make folds of it: a number, a splitter or a list."""
    if isinstance(inner, int | np.integer) and not isinstance(inner, bool):
        return bool(inner >= 2)
    return not isinstance(inner, str) and (hasattr(inner, "split") or isinstance(inner, Iterable))


# -- the scorer rule ------------------------------------------------------------------


def score(
    holdout: SearchHandle, estimator: Any, X: Any, y: Any, sample_weight: Any = None
) -> float:
    """Score an estimator by the scorer rule; see `LadderHoldout.__call__`."""
    try:
        _refuse_in_mid_fit(estimator)
        if count_rows(X) == 0 or _is_holdout(holdout, X):
            return _guarded(holdout, estimator)
    except SearchStopped:
        raise
    except Exception as error:
        # Whatever it is, a search must not take it for a model that failed to score.
        reason = str(error) if isinstance(error, LadderHoldoutError) else _named(error)
        raise SearchStopped(f"The guard cannot answer, so the search stops. {reason}") from error
    _remind(holdout)
    return holdout.metric.score_of(estimator, X, y, sample_weight)


def _refuse_in_mid_fit(estimator: Any) -> None:
    """Refuse the early stopping of HistGradientBoosting, which scores rows that it has binned.

    They pass for rows of a holdout of small whole numbers, and are none.
    """
    if getattr(estimator, "_in_fit", False):
        raise InvalidArgument(
            "scoring",
            "left to scikit-learn for its own early stopping",
            "this holdout, while the estimator is being fitted",
            "Early stopping by the ladder: ladderholdout.integrations.staged.ladder_stopping"
            "(holdout, patience=10).fit(estimator, X, y).",
        )


def _guarded(holdout: SearchHandle, estimator: Any) -> float:
    found, said = rounds.current(), describe_estimator(estimator)
    search = None if found is None else found.search
    batch = None if found is None or asks(estimator) else found.batch
    origin = Origin(batch=batch, search=search, context=said)
    trial = rounds.trial()
    if trial is None:
        release = holdout._evaluate(estimator, origin)
    else:
        from ladderholdout.integrations.optuna.trials import evaluate

        release = evaluate(holdout, estimator, trial, origin)
    guard = holdout._guard()
    if release.score is None:
        return told_of_one_bit(holdout._feedback, release.improvements, release.improved)
    if guard.rules.mechanism.discloses:
        return release.score
    margin = guard.step_at(release.score)
    return told(holdout._feedback, release.score, release.improved, release.score, margin)


def asks(estimator: Any) -> bool:
    """Tell whether a part of it, such as a search, has the guard to ask while it is fitted."""
    parts = estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ()
    return any(isinstance(part, Handle | GuardedSplit) for part in parts)


def _is_holdout(holdout: SearchHandle, X: Any) -> bool:
    """Tell whether these rows are the holdout's; refuse a part of them."""
    known = holdout._guard().hashes
    rows = count_rows(X)
    # A few rows cost nothing beside a prediction. So many of them meet half of the holdout for
    # certain where it lies in one block, and with probability .9997 where it is scattered.
    few = min(rows, max(_SAMPLE, 16 * rows // len(known)))
    some = np.unique(np.linspace(0, rows - 1, few).astype(np.intp))
    try:
        if not fp.overlap(fp.row_hashes(_take(X, some)), known):
            return False
        hashes = fp.row_hashes(X)
    except InvalidArgument:
        return False  # rows of another kind than any holdout's
    if rows == len(known) and np.array_equal(np.sort(hashes), known):
        return True
    if holdout._overlap in ("warn", "ignore"):
        return False  # rows that look alike are common in this data: its owner says so
    inside, seen = fp.overlap(hashes, known), fp.overlap(known, np.unique(hashes))
    if 2 * inside >= rows or 2 * seen >= len(known):
        raise InvalidArgument(
            "X",
            "rows of your own, or all of the holdout's",
            f"{rows} rows of which {inside} are the holdout's",
            "Give all of its rows, or the empty fold of holdout.split(), to ask the guard. Where "
            'rows of your own look like them, say overlap="warn".',
        )
    return False


def _take(X: Any, rows: NDArray[np.intp]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]


def _remind(holdout: SearchHandle) -> None:
    key = holdout._place
    if holdout._was_opened() or key in _warned:
        return
    _warned.add(key)
    warnings.warn(
        "This scores plain rows; the holdout is not being consulted. Give the search "
        "cv=holdout.split() to ask it about every candidate, or ask by hand: "
        "holdout.evaluate(estimator).",
        NotConsultedWarning,
        stacklevel=4,
    )


def _named(error: Exception) -> str:
    return f"The estimator failed on the holdout's rows ({type(error).__name__}); see above."


# -- what else a search asks -----------------------------------------------------------


def routing(request: bool | str | None) -> MetadataRequest:
    """Return the scorer's metadata request."""
    asked = MetadataRequest(owner="LadderHoldout")
    asked.score.add_request(param="sample_weight", alias=request)
    return asked


def look_for_overlap(holdout: SearchHandle, X: Any) -> None:
    """Say, and record, how many rows of the holdout stand among the training rows."""
    guard = holdout._guard()
    try:
        hashes = fp.row_hashes(X)
    except InvalidArgument:
        return  # rows of another kind than any holdout's
    shared = fp.overlap(guard.hashes, np.unique(hashes))
    if not shared:
        return

    def note(tx: Transaction) -> None:
        same_ladder(tx.ladder(guard.ladder_id), guard.since)
        tx.note_overlap(guard.holdout.id, "training rows", shared)

    guard.ledger.transact(note)
    judge_overlap(
        holdout._overlap,
        shared,
        guard.holdout.n,
        f"{shared} of the {guard.holdout.n} rows of the holdout stand among the training rows: "
        "scores on them are not scores on unseen data.",
    )
