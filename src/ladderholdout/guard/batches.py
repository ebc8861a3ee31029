"""What is submitted, as it is read, and batches of it: all fixed before any is answered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import errors
from ladderholdout.arguments import as_given
from ladderholdout.guard import certificate, commands, recognition, rows, seen
from ladderholdout.guard.context import describe_estimator, jsonable
from ladderholdout.guard.open_ladder import OpenLadder, Origin, Predictions, announced
from ladderholdout.guard.views import Release, incumbent_named, overtaken
from ladderholdout.mechanisms import FINALISTS
from ladderholdout.metrics.responses import is_model

_ERRORS = 2.0


class Batch:
    """Submissions that query the holdout together, when the block ends.

    Parameters
    ----------
    ladder : OpenLadder

    Attributes
    ----------
    releases : tuple of Release
        In the order of the submissions; empty until the block has ended.

    Examples
    --------
    >>> with holdout.batch() as batch:
    ...     batch.submit(model)
    >>> [release.submission for release in batch.releases]
    [1]
    """

    def __init__(self, ladder: OpenLadder) -> None:
        self._ladder = ladder
        self._waiting: list[tuple[Predictions, Origin]] = []
        self._open = False
        self.releases: tuple[Release, ...] = ()

    def submit(
        self, predictions: Any, *, context: Mapping[str, Any] | None = None, ids: Any = None
    ) -> None:
        """Take predictions or a fitted estimator, as `LadderHoldout.submit` does.

        They are read now and answered when the block ends: what is changed later, or refused, is
        not in the batch.
        """
        self._check_open()
        read, described = read_submission(self._ladder, predictions, context, ids)
        self.add(read, Origin(context=described))

    def add(self, predictions: Any, origin: Origin) -> None:
        """Take what a caller gives, or what `OpenLadder.predict` returned."""
        self._check_open()
        # Whatever makes them when they are read must not know an answer to the batch.
        self._waiting.append((self._ladder.fix(predictions), origin))

    def _check_open(self) -> None:
        if not self._open:
            raise errors.InvalidArgument(
                "batch",
                "used inside of its block",
                "used outside",
                "Write `with holdout.batch() as batch:` and submit in the block.",
            )

    def __enter__(self) -> Self:
        """Begin: nothing is answered before the block ends."""
        if self.releases or self._open:
            raise errors.InvalidArgument("batch", "used once", "used before", "Take another one.")
        self._open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Query the holdout, unless the block failed: then nothing was submitted."""
        self._open = False
        if kind is not None:
            return
        if self._waiting:
            sets, origins = zip(*self._waiting, strict=True)
            self.releases = self._ladder.submit_all(sets, announced(seen.new_batch(), origins))


def read_submission(
    ladder: OpenLadder, predictions: Any, context: Mapping[str, Any] | None, ids: Any
) -> tuple[Any, dict[str, Any]]:
    """Return what a caller submits as `OpenLadder.submit` takes it, and its whole context."""
    if not is_model(predictions):
        read = rows.predictions_of(predictions, ids)
        return read, {} if context is None else jsonable(context)
    if ids is not None:
        raise errors.InvalidArgument(
            "ids",
            "left out with an estimator",
            as_given(ids),
            "An estimator predicts on the rows of the holdout, in their order.",
        )
    described = describe_estimator(predictions) | jsonable(context)
    recognition.look_for_groups(ladder, predictions, {})
    return ladder.predict(predictions), described


_RESPONSES = ("labels", "probabilities", "scores", "values")


def sources_of(ladder: OpenLadder, predictions: Any) -> dict[str, tuple[Any, bool]]:
    """Return what was given for each metric, and whether its second column is meant."""
    if not ladder.by_metric:
        return {certificate.ALONE: (predictions, False)}
    responses = {name: each.metric.response for name, each in ladder.by_metric.items()}

    def refusal(came: str) -> errors.InvalidSubmission:
        metrics = ", ".join(f"{name!r} takes {kind}" for name, kind in responses.items())
        kinds = dict.fromkeys(responses.values())
        if "probabilities" in kinds:  # which serve where scores are asked for
            kinds.pop("scores", None)
        wanted = ", ".join(f"{kind!r}: ..." for kind in kinds)
        return errors.InvalidSubmission(
            "predictions",
            f"given for each of the metrics ({metrics})",
            came,
            f"Submit {{{wanted}}}, or an estimator: holdout.submit(model).",
        )

    if not isinstance(predictions, Mapping):
        kinds = set(responses.values())
        if len(kinds) > 1 and kinds != {"probabilities", "scores"}:
            raise refusal("one array")
        predictions = {"probabilities" if len(kinds) > 1 else kinds.pop(): predictions}
    if set(predictions) == set(responses):
        return {name: (predictions[name], False) for name in responses}
    if not set(predictions) <= set(_RESPONSES):
        raise refusal(f"a mapping with {', '.join(map(repr, predictions))}")
    sources, unused = {}, set(predictions)
    for name, response in responses.items():
        # The score of an estimator without a decision function is the same.
        as_scores = response == "scores" and response not in predictions
        source = "probabilities" if as_scores else response
        if source not in predictions:
            lacking = source if source in responses.values() else response
            raise refusal(f"a mapping without {lacking!r}")
        sources[name] = predictions[source], as_scores
        unused.discard(source)
    if unused:
        raise refusal(f"a mapping with {', '.join(map(repr, sorted(unused)))} as well")
    return sources


def warn_of_labels(ladder: OpenLadder, predictions: Any) -> None:
    """Warn of labels where scores to rank by were wanted."""
    for name, (source, as_scores) in sources_of(ladder, predictions).items():
        metric = (ladder.by_metric.get(name) or ladder).metric
        if as_scores or (metric.response != "scores" and not metric.name.startswith("roc_auc")):
            continue
        # A fact about predictions alone.
        values = np.unique(np.asarray(rows.values_of(source), dtype=np.float64))
        if len(values) == 2 and bool((values == np.round(values)).all()):
            errors.warn(
                f"{metric.name} ranks the rows, and these predictions have two values only, like "
                "labels: submit decision_function(X) or predict_proba(X) instead of predict(X).",
                errors.PredictionWarning,
            )


def held_by(ladder: OpenLadder, releases: Sequence[Release]) -> tuple[int | None, tuple[bool, ...]]:
    """Return the number of the incumbent, and whether each of these submissions is it.

    A submission that repeats the incumbent's predictions is.
    """
    numbers = [release.submission for release in releases]
    incumbent = ladder.execute(commands.State()).incumbent
    asked = commands.History(after=min(numbers) - 1, limit=commands.ALL)
    entries = ladder.execute(asked, shown=False).submissions
    firsts = {entry.number: entry.first for entry in entries}
    return incumbent, tuple(firsts[number] == incumbent for number in numbers)


@dataclass(frozen=True, slots=True)
class Finalist:
    """A candidate that queried the holdout after a search on the training rows.

    Attributes
    ----------
    candidate : object
        An optuna trial, the index of the candidate in ``cv_results_``, or the position in the
        list that was given.
    inner_score : float or None
        Its score on the training rows, greater is better; None for one without.
    release : Release
        The answer of the ladder.
    is_incumbent : bool
        Whether it was the incumbent when all finalists had been answered.

    Examples
    --------
    >>> import optuna
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from ladderholdout import LadderHoldout
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> X, y = load_iris(return_X_y=True)
    >>> holdout = LadderHoldout(X[::3], y[::3], scoring="accuracy", ledger="memory")
    >>> def build(trial):
    ...     depth = trial.suggest_int("depth", 1, 3)
    ...     return DecisionTreeClassifier(max_depth=depth, random_state=0)
    ...
    >>> sampler = optuna.samplers.RandomSampler(seed=0)
    >>> study = optuna.create_study(direction="maximize", sampler=sampler)
    >>> objective = holdout.optuna.objective(build, inner=3, train=(X[1::3], y[1::3]))
    >>> study.optimize(objective.inner_score, n_trials=4)
    >>> finalists = holdout.optuna.finalists(study, objective, k=2)
    >>> [one.release.improved for one in finalists]
    [True, False]
    """

    candidate: Any
    inner_score: float | None
    release: Release
    is_incumbent: bool


def ranked(
    scores: ArrayLike, folds: ArrayLike | None = None, finalists: int | str = "auto"
) -> tuple[NDArray[np.intp], int]:
    """Order candidates by their inner scores; return also how many of them are finalists.

    "auto" takes all whose mean is within two standard errors of the best, at most three. A
    standard error is that of a candidate's mean difference from the best one over the folds,
    and pooled: with five folds the error of a single candidate is known too badly.

    Parameters
    ----------
    scores : array-like, shape (n_candidates,)
        Mean inner scores, greater is better; nan for a candidate that failed.
    folds : array-like, shape (n_candidates, n_folds), optional
        The scores of each fold.
    finalists : int or "auto"

    Returns
    -------
    order : ndarray of int
        The candidates that have a score, the best first; ties in the order of the search.
    count : int
        How many of them are finalists.

    Raises
    ------
    InvalidArgument
        No candidate has a score.

    Examples
    --------
    >>> scores = [0.70, 0.90, 0.88, float("nan")]
    >>> folds = [[0.6, 0.8], [0.85, 0.95], [0.87, 0.89], [float("nan"), 0.9]]
    >>> order, count = ranked(scores, folds)
    >>> order.tolist(), count
    ([1, 2, 0], 2)
    """
    means = np.asarray(scores, dtype=np.float64)
    order = np.flatnonzero(np.isfinite(means))
    if not len(order):
        raise errors.InvalidArgument(
            "search",
            "one that scored a candidate on the training rows",
            "one in which all failed",
            'Fit the search alone with error_score="raise" to see why.',
        )
    order = order[np.argsort(-means[order], kind="stable")]
    if not isinstance(finalists, str):
        return order, min(finalists, len(order))
    error = _pooled_error(None if folds is None else np.asarray(folds, dtype=np.float64), order)
    least = -math.inf if error is None else means[order[0]] - _ERRORS * error
    return order, min(FINALISTS, int((means[order] >= least).sum()))


def _pooled_error(folds: NDArray[np.float64] | None, order: NDArray[np.intp]) -> float | None:
    """Return the standard error of a mean difference from the best candidate's score."""
    if folds is None or len(order) < 2 or folds.shape[1] < 2:
        return None
    known = folds[order]
    differences = known[1:] - known[0]
    differences = differences[np.isfinite(differences).all(axis=1)]
    if not len(differences):
        return None
    return float(np.sqrt(differences.var(axis=1, ddof=1).mean() / folds.shape[1]))


def confirm(ladder: OpenLadder, models: Any) -> tuple[Finalist, ...]:
    """Query the holdout with a list of models as one batch; see `LadderHoldout.finalists`."""
    if isinstance(models, str | bytes | dict) or not hasattr(models, "__iter__"):
        raise errors.InvalidArgument(
            "models",
            "a list of fitted estimators or of predictions",
            type(models).__name__,
            "One model: holdout.submit(model). A search: holdout.guard(search). A study of Optuna: "
            "holdout.optuna.finalists(study, build).",
        )
    models = list(models)
    if not models:
        raise errors.InvalidArgument("models", "at least one model", "an empty list")
    with Batch(ladder) as batch:
        for model in models:
            batch.submit(model)
    _, held = held_by(ladder, batch.releases)
    return tuple(
        Finalist(number, None, release, is_incumbent)
        for number, (release, is_incumbent) in enumerate(zip(batch.releases, held, strict=True))
    )


def winner_of(finalists: tuple[Finalist, ...], incumbent: int | None) -> int:
    """Return the place of the finalist that is the incumbent; else of the next best, and warn."""
    for place, finalist in enumerate(finalists):
        if finalist.is_incumbent:
            return place
    if any(finalist.release.has_held for finalist in finalists):
        place = max(range(len(finalists)), key=lambda number: finalists[number].release)
        errors.warn(
            f"Picked: submission {finalists[place].release.submission}, the last of this search "
            f"that became the incumbent. {overtaken(incumbent)}",
            errors.NotIncumbentWarning,
        )
        return place
    picked = "the best by its inner score" if finalists[0].inner_score is not None else "the first"
    errors.warn(
        "No finalist of this search became the incumbent, so none is known to be better than what "
        f"you had: {incumbent_named(incumbent)}. Picked: {picked}.",
        errors.NoImprovementWarning,
    )
    return 0
