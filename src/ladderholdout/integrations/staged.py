"""scikit-learn: early stopping of boosting through its stages, and of ``partial_fit``.

HistGradientBoosting hands a scorer binned rows in mid-fit, which no holdout can answer for. Its
public way is to fit all rounds, run their staged predictions through the ladder, and fit once
more with the best number. GradientBoosting can be stopped while it trains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from ladderholdout.arguments import whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.open_ladder import HasLadder, ladder_of
from ladderholdout.identity.copies import take
from ladderholdout.integrations import adapter
from ladderholdout.integrations.rounds import Loud
from ladderholdout.integrations.stopping import LadderStopping, Rule
from ladderholdout.integrations.training_rows import look_for_overlap

_HISTOGRAM = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
_MONITORED = (GradientBoostingClassifier, GradientBoostingRegressor)
_STAGES = {
    "labels": "staged_predict",
    "probabilities": "staged_predict_proba",
    "scores": "staged_decision_function",
    "values": "staged_predict",
}
_LARGEST_SEED = 2**31


class Stages(adapter.Adapter):
    """Fit an estimator of scikit-learn and keep its best round; also called `ladder_stopping`.

    Its `fit` is for HistGradientBoosting and GradientBoosting, its `partial_fit` for whatever
    learns in passes, and it is itself a ``monitor=`` for GradientBoosting.

    Parameters
    ----------
    holdout : LadderHoldout
    patience, **rule
        `patience`, `min_rounds` and `context` of `LadderStopping`.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> stages = ladder_stopping(holdout, patience=5)
    >>> model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    >>> model = stages.fit(model, X, y)
    >>> model.n_iter_ == stages.stopping.best_round < 60
    True
    >>> holdout.submit(model).is_incumbent  # the model kept is the incumbent
    True
    """

    _remedy_for_classes = "Fit the model on the holdout's labels: these estimators learn texts too."

    def __init__(self, holdout: HasLadder, patience: int = 10, **rule: Unpack[Rule]) -> None:
        self.stopping = LadderStopping(holdout, patience, **rule)

    def fit(self, estimator: BaseEstimator, X: Any, y: ArrayLike, **fit_params: Any) -> Any:
        """Fit a boosted estimator and keep its best round by the ladder.

        HistGradientBoosting is fitted twice: with all rounds, then with the best number of
        them and the same random state. ``early_stopping=True`` is refused, as is the
        ``n_iter_no_change`` of GradientBoosting. By default scikit-learn stops early itself on more
        than 10,000 rows, by a part of the training rows: the ladder then sees the rounds that
        are left.

        Parameters
        ----------
        estimator : HistGradientBoosting or GradientBoosting, classifier or regressor
        X : array-like, shape (n_rows, n_features)
            The training rows.
        y : array-like, shape (n_rows,)
        **fit_params
            For its ``fit``, such as ``sample_weight``.

        Returns
        -------
        object
            The same estimator, fitted; its parameters are what they were.
        """
        self._look(X, fit_params)
        if isinstance(estimator, _MONITORED):
            adapter.refuse_stoppers([], {}, n_iter_no_change=estimator.n_iter_no_change)
            self._refuse(estimator, X, y)
            estimator.fit(X, y, monitor=self, **fit_params)
            estimator.n_estimators_ = len(estimator.estimators_)
            return estimator
        if isinstance(estimator, _HISTOGRAM):
            if estimator.warm_start:
                raise InvalidArgument(
                    "warm_start",
                    "False where the model is fitted a second time with fewer rounds",
                    True,
                    "estimator.set_params(warm_start=False), and train all rounds by the ladder.",
                )
            adapter.refuse_stoppers([], {}, early_stopping=estimator.early_stopping is True)
            self._refuse(estimator, X, y)
            return self._fit_twice(estimator, X, y, fit_params)
        raise InvalidArgument(
            "estimator",
            "a HistGradientBoosting or a GradientBoosting",
            f"a {type(estimator).__name__}",
            "For what learns in passes there is partial_fit.",
        )

    def partial_fit(
        self,
        estimator: BaseEstimator,
        X: Any,
        y: ArrayLike,
        *,
        rounds: int = 100,
        **params: Any,
    ) -> Any:
        """Train an estimator pass by pass and keep its best round by the ladder.

        Parameters
        ----------
        estimator : object
            With ``partial_fit``, such as SGDClassifier or MLPRegressor.
        X : array-like, shape (n_rows, n_features)
            The training rows: each round is one pass over all of them.
        y : array-like, shape (n_rows,)
        rounds : int, default=100
            At most so many.
        **params
            For its ``partial_fit``. A classifier is given the ``classes`` of `y` unless they
            are stated here.

        Returns
        -------
        object
            A copy of the estimator as it was after its best round.

        Examples
        --------
        >>> from sklearn.linear_model import SGDClassifier
        >>> stages = ladder_stopping(holdout, patience=3)
        >>> model = stages.partial_fit(SGDClassifier(random_state=0), X, y, rounds=10)
        >>> stages.stopping.rounds <= 10
        True
        """
        self._look(X, params)
        metric = self.stopping.metric
        if metric.is_classification:
            params = {"classes": np.unique(y), **params}
        self._refuse(estimator, X, params.get("classes", y))
        self.stopping.start(library="sklearn", estimator=type(estimator).__name__)
        best = adapter.BestRound(self.stopping, deepcopy, lambda _, copied: copied)
        for _ in range(whole("rounds", rounds)):
            estimator.partial_fit(X, y, **params)
            stop = self.stopping.evaluate(estimator)
            best.snapshot(estimator)
            if stop:
                break
        return best.restore(estimator)

    def _look(self, X: Any, params: Mapping[str, Any]) -> None:
        """Look for the holdout's rows in what a fit is given."""
        with Loud():
            look_for_overlap(ladder_of(self.stopping.holdout), X, params)

    def __call__(self, stage: int, estimator: Any, variables: Mapping[str, Any]) -> bool:
        """Be the ``monitor=`` of a GradientBoosting's ``fit``.

        When training stops, the trees after the best round go; ``n_estimators_`` is still
        how many were trained. An ``n_iter_no_change`` is refused.
        """
        begin = variables["begin_at_stage"]
        with Loud():
            if stage == begin:
                adapter.refuse_stoppers([], {}, n_iter_no_change=estimator.n_iter_no_change)
                outputs = islice(self._started(estimator), begin, None)
                self._own.outputs = outputs
            stop = self.stopping.update(next(self._own.outputs))
        if stop or stage == estimator.n_estimators - 1:
            del self._own.outputs
            rounds = begin + self.stopping.best_round
            for name in ("estimators_", "train_score_", "oob_improvement_", "oob_scores_"):
                if hasattr(estimator, name):
                    setattr(estimator, name, getattr(estimator, name)[:rounds])
            return True
        return False

    def _refuse(self, estimator: Any, X: Any, y: ArrayLike) -> None:
        """Refuse rows and classes before they are trained on."""
        self._start(np.unique(y) if is_classifier(estimator) else None, library="sklearn")
        rows = self.stopping.X
        adapter.refuse_columns(rows, adapter.columns_of(X), adapter.width_of(X))

    def _fit_twice(self, estimator: Any, X: Any, y: ArrayLike, fit_params: dict[str, Any]) -> Any:
        given = {name: getattr(estimator, name) for name in ("max_iter", "random_state")}
        if given["random_state"] is None:
            # Drawn from NumPy's global generator, as scikit-learn itself would.
            estimator.set_params(random_state=np.random.randint(_LARGEST_SEED))
        try:
            state = deepcopy(estimator.random_state)
            estimator.fit(X, y, **fit_params)
            with adapter.understood("scikit-learn"):
                estimator.predict(take(self.stopping.X, np.arange(1)))
            for predictions in self._started(estimator):
                if self.stopping.update(predictions):
                    break
            if self.stopping.best_round < estimator.n_iter_:
                estimator.set_params(max_iter=self.stopping.best_round, random_state=state)
                estimator.fit(X, y, **fit_params)
        finally:
            estimator.set_params(**given)
        return estimator

    def _started(self, estimator: Any) -> Iterator[Any]:
        """Begin a fit and return what each of its stages predicts, made one at a time."""
        known = getattr(estimator, "classes_", None)
        self._start(known, library="sklearn", estimator=type(estimator).__name__)
        response = self.stopping.metric.response
        outputs = getattr(estimator, _STAGES[response])(self.stopping.X)
        return outputs if response in ("labels", "values") else map(self._answer, outputs)


ladder_stopping = Stages
