"""scikit-learn: the guarded splitter and the scorer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, ParameterGrid, RandomizedSearchCV, check_cv
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

from ladderholdout import errors, thirdparty
from ladderholdout.arguments import as_given, flag
from ladderholdout.feedback import feedback_of, feedback_of_improvement
from ladderholdout.guard import open_ladder
from ladderholdout.guard.context import describe_estimator
from ladderholdout.guard.recognition import look_for_groups
from ladderholdout.guard.settings import LARGEST_NUMBER, count_rows
from ladderholdout.guard.views import Release
from ladderholdout.identity import hashing, matching
from ladderholdout.identity.copies import held_digest, take
from ladderholdout.integrations import pipelines, rounds
from ladderholdout.integrations.refit import check_choices, check_refit
from ladderholdout.integrations.training_rows import look_for_overlap
from ladderholdout.ledger.fold import parted_name
from ladderholdout.ledger.place import is_memory
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import refuse_masked
from ladderholdout.metrics.responses import is_model
from ladderholdout.thirdparty import Frame

_SAMPLE = 64
_CURVES = ("learning_curve", "validation_curve")
_warned: set[open_ladder.Place] = set()


class GuardedSplit:
    """A splitter whose last fold is the query of the holdout.

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

    def __init__(
        self, holdout: open_ladder.HasLadder, inner: Any = 0, *, guarded: bool = True
    ) -> None:
        whole = isinstance(inner, int | np.integer) and not isinstance(inner, bool)
        alone = flag("guarded", guarded) and whole and inner == 0
        self._inner: Any = None if alone else checked_folds(inner)
        self._holdout, self._guarded = open_ladder.ladder_of(holdout, several=True), guarded
        rounds.mark_consulted(self._holdout.facts.place)

    @property
    def guarded(self) -> bool:
        """Whether the last fold queries the holdout."""
        return self._guarded

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield the inner folds, then the guarded one.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            The training rows; rows of the holdout among them are counted and reported.
        y, groups : array-like, optional

        Yields
        ------
        train, test : ndarray of int
            For the guarded fold: all rows, and none.

        Raises
        ------
        OverlapError
            Half of the holdout or more is among the training rows.
        SearchStopped
            The guarded fold would be of no use, or answer wrongly: the search does not ask
            the holdout, or another estimator around it may have changed rows or labels.
        """
        around, outer = rounds.around()
        opened = self._look(around, outer) if self._guarded and around else None
        X, y, groups = indexable(X, y, groups)
        look_for_overlap(self._holdout, X, _given_to_fits(around))
        look_for_groups(self._holdout, self, {"groups": groups})
        return self._folds(X, y, groups, opened)

    def _folds(
        self, X: Any, y: Any, groups: Any, opened: Callable[..., NDArray[np.intp]] | None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        if self._inner is not None:
            yield from check_cv(self._inner, y, classifier=self._classifies).split(X, y, groups)
        if self._guarded:
            fold = np.empty(0, dtype=np.intp)
            if opened is not None:
                digest = held_digest(X) if hasattr(X, "iloc") else None
                # All rows of a DataFrame are handed to each candidate without a copy.
                fold = opened(intact=lambda: digest is None or held_digest(X) == digest)
            yield np.arange(count_rows(X)), fold

    def _look(
        self, around: Sequence[Frame], outer: rounds.Round | None
    ) -> Callable[..., NDArray[np.intp]]:
        """Inspect what takes the folds and what is around it; return what opens a round.

        Raises
        ------
        SearchStopped
            The guarded fold would be of no use there, or the answers wrong.
        """
        consumer = around[0]
        try:
            pipelines.refuse_without_scorer(around)
            steps = pipelines.steps_before(around, None if outer is None else outer.steps)
            _check_consumer(self._holdout, consumer, alone=self._inner is None)
        except errors.InvalidArgument as error:
            raise _stopped(error) from error
        _refuse_processes(self._holdout, consumer)
        binds, size = _batch_of(consumer)
        ended = partial(check_refit, self._holdout)
        return partial(
            rounds.open_round, consumer, binds=binds, size=size, steps=steps, ended=ended
        )

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds, the guarded one included."""
        around, outer = rounds.around() if self._guarded else ([], None)
        if around and pipelines.library_of(around[0]) != "sklearn":
            # What follows may be in threads, where it cannot be seen.
            self._look(around, outer)
            if pipelines.steps_of(around):
                raise errors.SearchStopped(
                    "The guard cannot answer, so the search stops. A search of another library "
                    "must not be a step of a pipeline where it asks the holdout. Put the pipeline "
                    f"inside it: {pipelines.name_of(around)}(make_pipeline(...), ...)."
                )
        inner = 0
        if self._inner is not None:
            cv = check_cv(self._inner, y, classifier=self._classifies)
            inner = int(cv.get_n_splits(X, y, groups))
        return inner + int(self._guarded)

    def get_metadata_routing(self) -> Any:
        """Return what the inner splitter asks of metadata routing, such as groups."""
        return get_routing_for_object(self._inner)

    @property
    def random_state(self) -> Any:
        """Whether folds are the same at each call, as Halving searches and stacking ask.

        Raises
        ------
        InvalidArgument
            For the guarded fold, which they cannot use.
        """
        if self._guarded:
            around = [*thirdparty.consumers()]
            try:
                pipelines.refuse_without_scorer(around)
            except errors.InvalidArgument as error:
                raise _stopped(error) from error
            raise errors.InvalidArgument(
                "cv",
                "without the guarded fold in a Halving search",
                "a split that ends on it",
                "Halving keeps the last of tied candidates, considers its last rung alone and "
                "ignores refit=holdout.select. Search on inner folds, "
                "cv=holdout.split(inner=5, guarded=False), then ask once: "
                "holdout.submit(search).",
            )
        return getattr(self._inner, "random_state", 0)

    @random_state.setter
    def random_state(self, seed: Any) -> None:
        # Stacking gives shuffled folds one, so that all its estimators get the same folds.
        self._inner.random_state = seed

    @property
    def shuffle(self) -> Any:
        """Whether the inner folds are shuffled, as their splitter states."""
        return getattr(self._inner, "shuffle", False)

    @property
    def _classifies(self) -> bool:
        return self._holdout.metric.is_classification

    def __repr__(self) -> str:
        inner = 0 if self._inner is None else self._inner
        return f"{self._holdout!r}.split(inner={inner!r}, guarded={self._guarded})"


def _stopped(error: errors.InvalidArgument) -> errors.SearchStopped:
    """Return a refusal that a search around this one does not take for a failed fit."""
    return errors.SearchStopped(f"The guard cannot answer, so the search stops. {error}")


def _refuse_processes(holdout: open_ladder.OpenLadder, consumer: Frame) -> None:
    """Refuse a search that would score in other processes, which cannot see a memory ledger."""
    if not is_memory(holdout.ledger):
        return
    n_jobs = consumer.asked("n_jobs")
    backend, active = get_active_backend()
    workers = effective_n_jobs(active if n_jobs is None else n_jobs)
    if workers > 1 and not getattr(backend, "uses_threads", False):
        raise errors.InvalidArgument(
            "n_jobs",
            "1 (or threads) where the ledger is in memory, which no other process sees",
            workers,
            'Give the holdout ledger= a path, or search under joblib.parallel_config("threading").',
        )


def checked_folds(inner: Any) -> Any:
    """Return what scikit-learn makes folds of: a number, a splitter, or a list of pairs.

    Raises
    ------
    InvalidArgument
        It is something else.
    """
    with suppress(Exception):  # whatever its own methods raise
        if isinstance(inner, int | np.integer) and not isinstance(inner, bool):
            if 2 <= inner <= LARGEST_NUMBER:
                return int(inner)
        elif not isinstance(inner, str | type):
            if all(callable(getattr(inner, name, None)) for name in ("split", "get_n_splits")):
                return inner
            pairs = list(inner)  # a generator would serve one search alone
            if pairs and all(map(_is_pair, pairs)):
                return pairs
    raise errors.InvalidArgument(
        "inner",
        "at least 2 folds, a splitter or a list of (train, test) indices, or 0 for the guarded "
        "fold alone",
        as_given(inner),
    )


def _is_pair(fold: Any) -> bool:
    """Return whether a fold is two lists of positions."""
    arrays = [np.asarray(part) for part in fold]
    return len(arrays) == 2 and all(rows.ndim == 1 and rows.dtype.kind in "iub" for rows in arrays)


def _batch_of(consumer: Frame) -> tuple[bool, int | None]:
    """Return whether the candidates of a search are one batch, and its queries where known.

    A scoring function of the user's own may submit several times, each after feedback.
    """
    scoring, search = consumer.asked("scoring"), consumer.owner
    scorers = [*scoring.values()] if isinstance(scoring, Mapping) else [scoring]
    held = [one for one in scorers if isinstance(one, open_ladder.HasLadder)]
    if any(_may_ask(one) for one in scorers if one not in held):
        return False, None
    queries = sum(len(one.__ladder__.by_metric) or 1 for one in held)
    # What derives from them may choose candidates as it likes.
    if type(search) is GridSearchCV:
        return True, queries * len(ParameterGrid(search.param_grid))
    if type(search) is RandomizedSearchCV:
        return True, queries * int(search.n_iter)
    return consumer.place == thirdparty.FIT.place or consumer.name in _CURVES, None


def _given_to_fits(around: Sequence[Frame]) -> dict[str, Any]:
    """Return what the fits of a search are given beside the rows, and its own parameters."""
    for frame in around:
        if frame.place == thirdparty.FIT.place:
            own = frame.owner.get_params(deep=True)
        elif frame.name == "cross_validate":
            model = frame.asked("estimator")
            own = model.get_params(deep=True) if hasattr(model, "get_params") else {}
        else:
            continue
        return {**own, **(frame.local("params") or {})}
    return {}


def _check_consumer(holdout: open_ladder.OpenLadder, consumer: Frame, *, alone: bool) -> None:
    """Refuse a search that would not ask the guard, or not go by its answer."""
    if pipelines.library_of(consumer) == "dask_ml":
        raise _refused_to_dask()
    if pipelines.library_of(consumer) != "sklearn":
        check_choices("search", getattr(consumer.owner, "param_distributions", None))
        if getattr(consumer.owner, "enable_pruning", False):
            raise errors.InvalidArgument(
                "enable_pruning",
                "False where the holdout is asked",
                True,
                "A pruner that asked it after each epoch would use up its releases, and the "
                "released score is flat between them: prune by scores of the training side.",
            )
        if consumer.library != "sklearn":
            return  # it may pick as it likes, and asks in a function of scikit-learn's
    scoring, refit = consumer.asked("scoring"), consumer.asked("refit")
    if not _asks_for(scoring, holdout):
        raise errors.InvalidArgument(
            "scoring",
            "this holdout, alone or among others, where cv=holdout.split()",
            "another scorer, or none",
            "Only the holdout can answer for the guarded fold, which holds no rows: give "
            "scoring=holdout.",
        )
    scorers = scoring.values() if isinstance(scoring, Mapping) else ()
    for one in scorers:
        if isinstance(one, open_ladder.HasLadder) and (several := one.__ladder__.by_metric):
            # One of several scorers returns one number.
            raise errors.InvalidArgument(
                "scoring",
                "a holdout of several metrics itself, where the caller takes several",
                "one among several scorers, or asked for one number",
                "Give scoring=holdout to a search or to cross_validate; where one metric is meant, "
                f"holdout[{next(iter(several))!r}].",
            )
    if not alone and (refit is True or isinstance(refit, str)):
        raise errors.InvalidArgument(
            "refit",
            "holdout.select or False where inner folds come before the guarded one",
            repr(refit),
            "The mean over inner folds and the guarded one would pick, and it is no score of "
            "anything: give refit=holdout.select. What takes no such refit, as RidgeCV, is given "
            "cv=holdout.split().",
        )


def _refused_to_dask() -> errors.InvalidArgument:
    return errors.InvalidArgument(
        "cv",
        "without the guarded fold in a search of dask-ml",
        "holdout.split()",
        "dask-ml weighs folds by their test rows, and the guarded one has none: search on the "
        "training rows, holdout.guard(GridSearchCV(model, grid, cv=5)), or take scikit-learn's "
        "search on dask's workers, joblib.parallel_config('dask').",
    )


def _asks_for(scoring: Any, holdout: open_ladder.OpenLadder) -> bool:
    """Return whether a search may ask the holdout; functions of the user's own may."""
    if isinstance(scoring, open_ladder.HasLadder):
        return scoring.__ladder__.facts.place == holdout.facts.place
    if isinstance(scoring, Mapping):
        return any(_asks_for(scorer, holdout) for scorer in scoring.values())
    return _may_ask(scoring)


def _may_ask(scorer: Any) -> bool:
    """Return whether a scorer is a function of the user's own, or a holdout."""
    return callable(scorer) and not type(scorer).__module__.startswith("sklearn.")


# -- the scorer rule ------------------------------------------------------------------


def score(
    holdout: open_ladder.OpenLadder, estimator: Any, X: Any, y: Any, sample_weight: Any = None
) -> float | dict[str, float]:
    """Score an estimator by the scorer rule; see `LadderHoldout.__call__`."""
    with rounds.Loud():
        for argument, values in (("X", X), ("y", y), ("sample_weight", sample_weight)):
            refuse_masked(argument, values)
    try:
        _check_scoring(holdout, estimator)
        if count_rows(X) == 0:
            return _guarded(holdout, estimator)
        hashes = _hashes_if_holdout(holdout, X)
        if hashes is not None:
            _refuse_permutations()
            if y is not None and not holdout.rows().have_labels(hashes, y):
                raise _other_labels()
            origin = open_ladder.Origin(context=describe_estimator(estimator))
            return _submitted(holdout, estimator, origin)
    except errors.SearchStopped:
        raise
    except Exception as error:
        # Whatever it is, a search must not take it for a model that failed to score.
        reason = str(error)
        if not isinstance(error, errors.LadderHoldoutError):
            kind = type(error).__name__
            reason = f"The estimator failed on the holdout's rows ({kind}); see above."
        raise errors.SearchStopped(
            f"The guard cannot answer, so the search stops. {reason}"
        ) from error
    _remind(holdout)
    return plain_score(holdout, estimator, X, y, sample_weight)


def plain_score(
    holdout: open_ladder.OpenLadder, estimator: Any, X: Any, y: Any, sample_weight: Any = None
) -> float | dict[str, float]:
    """Score an estimator on rows of one's own; by each of several metrics."""
    if not holdout.by_metric:
        return holdout.metric.score_of(estimator, X, y, sample_weight)
    answers: dict[Any, Any] = {}
    return ByMetric(
        (name, ladder.metric.score_of(estimator, X, y, sample_weight, answers))
        for name, ladder in holdout.by_metric.items()
    )


class ByMetric(dict[str, float]):
    """The scores of a model by several metrics, of which ``refit=`` of a search names one.

    A fitted search's ``score`` looks it up, whatever it is. `LadderHoldout.select` of one metric
    means that one.
    """

    def __missing__(self, key: Any) -> float:
        holdout = getattr(key, "__self__", None)
        if isinstance(holdout, open_ladder.HasLadder) and holdout.__ladder__.metric.name in self:
            return self[holdout.__ladder__.metric.name]
        name = next(iter(self))
        raise errors.InvalidArgument(
            "refit",
            f"holdout.select or one of {', '.join(map(repr, self))}, where search.score is called",
            as_given(key),
            f"Score by one of them: holdout[{name!r}](search.best_estimator_, X, y).",
        )


def _check_scoring(holdout: open_ladder.OpenLadder, estimator: Any) -> None:
    """Refuse what a holdout cannot score, whatever the rows are."""
    if not is_model(estimator):
        # Predictions, as tools hand them to a function of a metric.
        raise errors.InvalidArgument(
            "estimator",
            "a fitted model, to be scored on rows with their targets",
            as_given(estimator),
            "A tool that calls metric(y_true, y_pred) cannot ask the holdout. Give it a metric of "
            "its own by name, and show the holdout what the best of its models predict: "
            "holdout.submit(predictions), or for several holdout.finalists([predictions, others]).",
        )
    if thirdparty.is_in_fit(estimator):
        # Its binned rows pass for rows of a holdout of small whole numbers, and are none.
        raise errors.InvalidArgument(
            "scoring",
            "left to scikit-learn for its own early stopping",
            "this holdout, while the estimator is being fitted",
            "Early stopping by the ladder: ladderholdout.integrations.staged.ladder_stopping"
            "(holdout, patience=10).fit(estimator, X, y).",
        )


def _rows_changed() -> errors.InvalidArgument:
    """Return the refusal of a candidate after which the next would be fitted on other rows."""
    return errors.InvalidArgument(
        "estimator",
        "one whose steps leave the DataFrame that they are fitted on as it is",
        "one that wrote into X, so that the next candidate would be fitted on other rows",
        "Give copy=True to its transformers, or fit the search on X.to_numpy(), whose rows "
        "scikit-learn copies for each candidate. Load X again first: it was changed.",
    )


def _guarded(holdout: open_ladder.OpenLadder, estimator: Any) -> float | dict[str, float]:
    """Submit a candidate of a search, or what somebody asks about by hand or within a fit."""
    within, current = rounds.around()
    if current is None and any(frame.library == "dask_ml" for frame in thirdparty.outside()):
        raise _refused_to_dask()
    if current is None or within:
        steps = pipelines.steps_before(within, None if current is None else current.steps)
        origin = _after(steps, describe_estimator(estimator))
        return _submitted(holdout, estimator, origin, steps)
    if not current.intact():
        raise _rows_changed()
    origin = _after(current.steps, describe_estimator(estimator))
    batch = None if asks(estimator) else rounds.batch_of(current)
    size = None if batch is None else current.size
    origin = replace(origin, search=current.search, batch=batch, size=size)
    trial = thirdparty.running_trial() if current.consumer() == "cross_validate" else None
    return _submitted(holdout, estimator, origin, current.steps, trial)


def _after(steps: tuple[Any, ...], described: dict[str, Any]) -> open_ladder.Origin:
    """Return where a submission comes from, with the names of the steps before its model."""
    if steps:
        described |= {"after": [type(part).__name__ for step in steps for _, part in step.steps]}
    return open_ladder.Origin(context=described)


def _submitted(
    holdout: open_ladder.OpenLadder,
    estimator: Any,
    origin: open_ladder.Origin,
    steps: tuple[Any, ...] = (),
    trial: Any = None,
) -> float | dict[str, float]:
    """Submit what an estimator predicts on the holdout, and return the feedback to the search."""
    if trial is None:
        release = holdout.submit(holdout.predict(estimator, steps), origin)
    else:
        from ladderholdout.integrations.optuna.trials import submit_fitted

        release = submit_fitted(open_ladder.of_one_metric(holdout), estimator, trial, origin)
    if not holdout.by_metric:
        return _fed_back(holdout, release)
    ladders = holdout.by_metric.items()
    return ByMetric((name, _fed_back(ladder, release[name])) for name, ladder in ladders)


def _fed_back(holdout: open_ladder.OpenLadder, release: Release) -> float:
    """Return the feedback to a search on the answer of one ladder."""
    if release.score is None:
        return feedback_of_improvement(holdout.feedback, release.improvements, release.has_held)
    if holdout.facts.rules.mechanism.discloses:
        return release.score
    margin = open_ladder.margin_of(holdout, release.score)
    # A search that is run again finds the incumbent by it.
    held = release.improved or release.is_incumbent
    return feedback_of(holdout.feedback, release.score, held, margin)


def asks(estimator: Any) -> bool:
    """Return whether a part of it, such as a search, has the guard to ask while it is fitted."""
    parts = estimator.get_params(deep=True) if hasattr(estimator, "get_params") else {}
    return any(map(_is_asking, parts.values()))


def _is_asking(part: Any) -> bool:
    plain = part is None or isinstance(part, str | int | float)  # most are, and it is slow to ask
    return not plain and isinstance(part, open_ladder.HasLadder | GuardedSplit)


def _refuse_permutations() -> None:
    """Refuse what asks about the same model on the holdout's rows again and again, permuted."""
    for frame in thirdparty.consumers():
        if frame.name == "permutation_test_score":
            pipelines.refuse_without_scorer([frame])
        if frame.name == "permutation_importance":
            raise errors.InvalidArgument(
                "X",
                "rows of your own where features are permuted",
                "the holdout's",
                "The guard answers for the holdout, permuted rows are scored plainly, and the two "
                "cannot be compared: give permutation_importance rows of the training side, or "
                "others that you keep for it.",
            )


def _other_labels() -> errors.InvalidArgument:
    """Return the refusal of labels that are not the holdout's: the answer would be about others.

    Whether all of them are the same, registering the rows with them would show as well.
    """
    return errors.InvalidArgument(
        "y",
        "the holdout's labels, in the order of X, where X are the holdout's rows",
        "others",
        "The guard answers for the registered labels alone. Leave y out, give both in one "
        "order, or register other labels as a holdout of their own.",
    )


def _hashes_if_holdout(holdout: open_ladder.OpenLadder, X: Any) -> NDArray[np.uint64] | None:
    """Return the hashes of these rows if they are the holdout's; refuse a part of them.

    All rows of an earlier block are refused as well, for their score is none of the holdout's any
    more; and half of those of a later one, of which only queries of its own may learn.
    """
    held, rows = holdout.rows(), count_rows(X)
    known = held.hashes
    if not len(known):
        return None  # of a holdout behind a server that does not share its rows
    # A few rows cost nothing beside a prediction. So many of them meet half of the holdout for
    # certain where it is in one block, and with probability .9997 where it is scattered.
    few = min(rows, max(_SAMPLE, 16 * rows // len(known)))
    sample = np.unique(np.linspace(0, rows - 1, few).astype(np.intp))
    try:
        earlier, later = held.other_blocks()
        of_size = [block for block in earlier if len(block) == rows]
        of_sample = hashing.row_hashes(take(X, sample))
        if not any(matching.overlap(of_sample, block) for block in (known, *of_size, *later)):
            return None
        hashes = hashing.row_hashes(X)
    except errors.InvalidArgument:
        return None  # rows of another kind than any holdout's
    if rows == len(known) and np.array_equal(np.sort(hashes), known):
        return hashes
    if any(np.array_equal(np.sort(hashes), block) for block in of_size):
        raise errors.HoldoutConflict(
            f"These are rows that {holdout.facts.name!r} had before fresh ones took their place: "
            "their score is no score of the holdout any more. Give the rows of now, or the empty "
            "fold of holdout.split()."
        )
    if holdout.overlap in ("warn", "ignore"):
        return None  # rows that look alike are common in this data: its owner states so
    for block in later:
        if _are_most(hashes, block):
            name, _ = parted_name(holdout.facts.name)
            raise errors.HoldoutConflict(
                f"These are rows of {name!r} that took the place of those which this object was "
                "made with: a plain score of them would show more than the guard does. Open it "
                f"anew, LadderHoldout.open({name!r}), and submit the model."
            )
    if _are_most(hashes, known):
        inside = matching.overlap(hashes, known)
        raise errors.InvalidArgument(
            "X",
            "rows of your own, or all of the holdout's",
            f"{rows} rows of which {inside} are the holdout's",
            "Give all of its rows, or the empty fold of holdout.split(), to ask the guard. Where "
            'rows of your own look like them, pass overlap="warn".',
        )
    return None


def _are_most(hashes: NDArray[np.uint64], known: NDArray[np.uint64]) -> bool:
    """Return whether half of some rows are known ones, or the other way round."""
    inside, seen = matching.overlap(hashes, known), matching.overlap(known, hashes)
    return 2 * inside >= len(hashes) or 2 * seen >= len(known)


def _remind(holdout: open_ladder.OpenLadder) -> None:
    place = holdout.facts.place
    if rounds.is_consulted(holdout) or place in _warned:
        return
    _warned.add(place)
    errors.warn(
        "This scores plain rows; the holdout is not being consulted. Give the search "
        "cv=holdout.split() to ask it about every candidate, or ask by hand: "
        "holdout.submit(estimator).",
        errors.NotConsultedWarning,
    )


# -- what else a search asks -----------------------------------------------------------


class PlainScore:
    """A metric as the score function of a scorer of scikit-learn's, on rows of one's own.

    Parameters
    ----------
    metric : Metric
    """

    def __init__(self, metric: Metric) -> None:
        self._metric, self.__name__ = metric, metric.name

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None, pos_label: Any = None
    ) -> float:
        """Return the score, greater is better; scikit-learn takes scores of the positive class."""
        return self._metric.score_from(y_true, y_pred, sample_weight)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainScore) and self._metric == other._metric

    def __hash__(self) -> int:
        return hash(self._metric.name)

    def __repr__(self) -> str:
        return f"PlainScore({self._metric.name!r})"


_RESPONSES = {"probabilities": "predict_proba", "scores": ("decision_function", "predict_proba")}


def plain_scorer(metric: Metric) -> Any:
    """Return what `make_scorer` makes of a metric: it never queries a holdout."""
    response = _RESPONSES.get(metric.response, "predict")
    label = {} if metric.pos_label is None else {"pos_label": metric.pos_label}
    scorer = make_scorer(PlainScore(metric), response_method=response, **label)
    scorer.__name__ = metric.name
    return scorer


def check_routing_enabled() -> None:
    """Refuse a request of metadata where scikit-learn routes none, as its own scorers do."""
    if not get_config()["enable_metadata_routing"]:
        raise errors.RoutingDisabled(
            "This method is only available when metadata routing is enabled. You can enable it "
            "using sklearn.set_config(enable_metadata_routing=True). Without it, weights that a "
            "search is given reach plain scores by themselves."
        )


def routing(request: bool | str | None, owner: str) -> MetadataRequest:
    """Return a scorer's metadata request; messages call it by its repr."""
    asked = MetadataRequest(owner=owner)
    asked.score.add_request(param="sample_weight", alias=request)
    return asked
