"""XGBoost: early stopping as a callback, for ``train`` and the estimators alike."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations import adapter
from ladderholdout.integrations.rounds import Loud
from ladderholdout.integrations.stopping import LadderStopping, Rule
from ladderholdout.thirdparty import BOOSTER, BOOSTER_OF, called_from, local_of

with needed("Early stopping of XGBoost"):
    import xgboost as xgb


def ladder_stopping(
    holdout: HasLadder,
    patience: int = 10,
    *,
    classes: ArrayLike | None = None,
    dmatrix: Mapping[str, Any] | None = None,
    **rule: Unpack[Rule],
) -> Callback:
    """Return a callback that stops XGBoost by the ladder and keeps its best round.

    Give it as ``callbacks=[...]`` to ``xgboost.train`` or to an estimator; the holdout goes
    nowhere near ``evals``. The model that comes back is cut after the best round by the
    ledger, as is its ``best_iteration``. A round costs the predictions of its own
    trees alone. ``dart`` and ``gblinear`` change what they had: a round of theirs is
    predicted in full, and the best is kept as a copy.

    Parameters
    ----------
    holdout : LadderHoldout
    patience, **rule
        `patience`, `min_rounds` and `context` of `LadderStopping`.
    dmatrix : mapping, optional
        Arguments for the `xgboost.DMatrix` of the holdout's rows. The value that marks
        missing cells is taken from the training rows where it is not stated here;
        ``base_margin`` has to be stated where the training rows have one.
    classes : array-like, optional
        The holdout's classes in the order of the numbers 0 to k - 1 that XGBoost learns; they
        have to be stated where they are not these numbers.

    Returns
    -------
    Callback
        Its `stopping` is the `LadderStopping`.

    Examples
    --------
    >>> import xgboost as xgb
    >>> callback = ladder_stopping(holdout, patience=5)
    >>> model = xgb.XGBClassifier(n_estimators=300, n_jobs=1, callbacks=[callback])
    >>> model = model.fit(X, y)
    >>> model.best_iteration + 1 == callback.stopping.best_round < 300
    True
    >>> holdout.submit(model).is_incumbent  # the model kept is the incumbent
    True
    """
    stopping = LadderStopping(holdout, patience, **rule)
    return Callback(stopping, classes, dmatrix)


class Callback(adapter.Adapter, xgb.callback.TrainingCallback):
    """What XGBoost calls around each iteration; made by `ladder_stopping`."""

    def __init__(
        self,
        stopping: LadderStopping,
        classes: ArrayLike | None,
        dmatrix: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(stopping, classes)
        self._dmatrix = {"enable_categorical": True, **(dmatrix or {})}

    def before_training(self, model: Any) -> Any:
        """Begin a fit."""
        with Loud():
            adapter.refuse_folds(model, xgb.Booster, "xgboost")
            self._check_classes()
            self.stopping.start(library="xgboost")
            others = [
                callback
                for callback in _running_callbacks()
                if callback is not self and type(callback) not in _REPORTERS
            ]
            training = _Training(self.stopping, model, self._dmatrix, others)
            self._here.training = training
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Submit one iteration; return whether to stop."""
        training: _Training = self._here.training
        training.evals = evals_log
        with Loud():
            output = training.output(model)
            if not training.can_be_cut(model):
                stop = self._submit(output)
                training.best.snapshot(model)
                return stop
        training.waiting.append(output)
        return self._submit_later(training.taken)

    def after_training(self, model: Any) -> Any:
        """Keep the best round."""
        training: _Training = self._here.training
        again = adapter.again_at_the_end(self, _running_callbacks())
        if not again:
            del self._here.training
        return training.kept(model, again)


class _Training:
    """A model in training, and the holdout's rows as XGBoost wants them."""

    def __init__(
        self,
        stopping: LadderStopping,
        model: xgb.Booster,
        dmatrix: Mapping[str, Any],
        others: Sequence[Any],
    ) -> None:
        learner = json.loads(model.save_config())["learner"]
        objective, trees = learner["objective"]["name"], learner["gradient_booster"]
        booster, dropout = trees["name"], trees.get("dart_train_param", {})
        adapter.refuse_ranking(objective)
        # Under the name of an objective of regression their margins are what train() predicts.
        own = callable(local_of(BOOSTER, "obj")) and not objective.startswith(("binary:", "multi:"))
        if own or objective == "binary:logitraw":
            adapter.refuse_margins(stopping.metric, "XGBoost", "binary:logistic")
        self._codes = objective == "multi:softmax"
        self._width = int(learner["learner_model_param"]["num_class"])
        # Dropout weighs earlier trees anew. XGBoost 3.4 has it in gbtree, and turns dart into that.
        drops = any(float(dropout.get(name, 0)) for name in ("rate_drop", "one_drop"))
        self._lasting = booster == "gbtree" and not drops and not any(map(_changes_models, others))
        # For dart the estimators predict otherwise, with other last digits.
        plain = not dmatrix.keys() - {"enable_categorical", "missing"}
        self._inplace = booster == "dart" and plain and called_from(BOOSTER_OF.module)
        self._before = model.num_boosted_rounds()
        self._stopping, self._X = stopping, stopping.X
        # One for all rounds: XGBoost remembers what it has predicted on it.
        self._rows, self._missing = _rows_like(local_of(BOOSTER, "dtrain"), self._X, dmatrix)
        self.best = adapter.BestRound(
            stopping, xgb.Booster.save_raw, xgb.Booster.load_model, bool(others)
        )
        self.evals: Mapping[str, Mapping[str, Sequence[Any]]] = {}
        self.waiting: deque[NDArray[Any]] = deque()
        self._cut: bool | None = None

    def taken(self, count: int) -> Iterator[NDArray[Any]]:
        """Yield the outputs of the oldest rounds that wait."""
        for _ in range(count):
            yield self.waiting.popleft()

    def output(self, model: xgb.Booster) -> NDArray[Any]:
        """Return what the model puts out now."""
        if self._inplace:
            output = model.inplace_predict(self._X, missing=self._missing)
        else:
            output = model.predict(self._rows)
        return np.eye(self._width)[output.astype(int)] if self._codes else np.asarray(output)

    def kept(self, model: xgb.Booster, again: bool) -> xgb.Booster:
        """Return the model of the best round; `again` where others may change it after that."""
        stopping = self._stopping
        rounds, evaluated = stopping.best_round, self._evaluated(model)
        if not self._cut:
            model = self.best.restore(model, again)
        elif self._before + rounds < model.num_boosted_rounds():
            whole, model = model, model[: self._before + rounds]
            model.set_attr(**whole.attributes())
        if rounds:
            model.best_iteration = self._before + rounds - 1
        if rounds and evaluated is not None:
            model.best_score = evaluated[rounds - 1]
        return model

    def _evaluated(self, model: xgb.Booster) -> Sequence[Any] | None:
        """Return the values by which XGBoost's own early stopping went; None where there is none.

        It leaves its best round and that one's value in the model, which are no more those of the
        model once the ladder has chosen another round.
        """
        noted = model.attributes()
        if "best_score" not in noted or "best_iteration" not in noted:
            return None
        best, score = int(noted["best_iteration"]) - self._before, float(noted["best_score"])
        every = [values for data in self.evals.values() for values in data.values()]
        same = (values for values in every if 0 <= best < len(values) and values[best] == score)
        return next(same, None)

    def can_be_cut(self, model: xgb.Booster) -> bool:
        """Return whether the best round can be had back by cutting off later ones."""
        if self._cut is None:
            # The cut model of XGBoost 3.2 has lost the names of its categories: on a frame that
            # lists them in another order it would predict something else.
            categories = getattr(model, "get_categories", None)
            self._cut = self._lasting and (categories is None or categories().empty())
        return self._cut


_REPORTERS = (
    xgb.callback.EvaluationMonitor,
    xgb.callback.LearningRateScheduler,
    xgb.callback.TrainingCheckPoint,
)
"""The callbacks of XGBoost that neither end training nor cut models."""


def _running_callbacks() -> list[Any]:
    """Return the callbacks of the training that runs in this thread, as the list that it calls.

    XGBoost 2 holds them in a set, whose order is by chance. It is replaced by a list, so that one
    of them can be called last.
    """
    container = local_of(BOOSTER, "cb_container")
    if isinstance(getattr(container, "callbacks", None), set):
        container.callbacks = list(container.callbacks)
    callbacks: list[Any] = getattr(container, "callbacks", [])
    return callbacks


def _changes_models(callback: Any) -> bool:
    """Return whether a callback may hand on another model when training is over."""
    plain = xgb.callback.TrainingCallback.after_training
    if isinstance(callback, xgb.callback.EarlyStopping):
        return bool(callback.save_best)
    return type(callback).after_training is not plain


def _rows_like(
    train: xgb.DMatrix | None, X: Any, dmatrix: Mapping[str, Any]
) -> tuple[xgb.DMatrix, Any]:
    """Return the holdout's rows as the training rows were read, and what is missing there."""
    if train is None:
        with adapter.understood("XGBoost"):
            return xgb.DMatrix(X, **dmatrix), dmatrix.get("missing", np.nan)
    _refuse_base_margin(train, dmatrix)
    types = train.feature_types
    settings: dict[str, Any] = {"missing": train.missing}
    if not hasattr(X, "columns") and train.feature_names is None and types is not None:
        settings["feature_types"] = types
    settings |= dmatrix
    with adapter.understood("XGBoost"):
        rows = xgb.DMatrix(X, **settings)
    names = train.feature_names
    if names is not None and rows.feature_names is None:
        raise InvalidArgument(
            "X",
            "a table with the names of the training rows' columns",
            "an array without names",
            "Register the holdout with such a table, or name them: "
            "ladder_stopping(holdout, dmatrix={'feature_names': list(X_train.columns)}).",
        )
    adapter.refuse_columns(X, names, train.num_col(), known=rows.feature_names)
    if _categories(rows.feature_types) != _categories(types):
        raise InvalidArgument(
            "X",
            "with categories in the columns that have some in the training rows, and only there",
            "with others",
            "Give these columns the type of the training rows: "
            "X_holdout.astype(X_train.dtypes), and register the holdout with them.",
        )
    return rows, settings["missing"]


def _categories(types: Sequence[str] | None) -> list[int]:
    """Return the places of the columns that hold categories."""
    return [place for place, kind in enumerate(types or ()) if kind == "c"]


def _refuse_base_margin(train: xgb.DMatrix, dmatrix: Mapping[str, Any]) -> None:
    if len(train.get_base_margin()) and "base_margin" not in dmatrix:
        raise InvalidArgument(
            "dmatrix",
            "with the base_margin of the holdout's rows where the training rows have one",
            "without it",
            "XGBoost keeps none in its model: "
            "ladder_stopping(holdout, dmatrix={'base_margin': ...}).",
        )
