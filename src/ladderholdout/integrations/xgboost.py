"""XGBoost: early stopping as a callback, for ``train`` and the estimators alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations import adapter
from ladderholdout.integrations.rounds import Loud
from ladderholdout.integrations.stopping import LadderStopping
from ladderholdout.thirdparty import BOOSTER, BOOSTER_OF, called_from, local_of

with needed("Early stopping of XGBoost"):
    import xgboost as xgb


class LadderStoppingCallback(adapter.Adapter, xgb.callback.TrainingCallback):
    """Stop XGBoost by the ladder and keep its best round; also called `ladder_stopping`.

    Give it as ``callbacks=[...]`` to ``xgboost.train`` or to an estimator; the holdout goes
    nowhere near ``evals``. The model that comes back is cut after the best round by the
    ledger, as is its ``best_iteration``. A round costs the predictions of its own
    trees alone. ``dart`` and ``gblinear`` change what they had: a round of theirs is
    predicted in full, and the best is kept as a copy.

    Parameters
    ----------
    holdout : LadderHoldout
    patience : int, default=10
        As that of `LadderStopping`.
    dmatrix : mapping, optional
        Arguments for the `xgboost.DMatrix` of the holdout's rows. The value that marks
        missing cells is taken from the training rows where it is not stated here;
        ``base_margin`` has to be stated where the training rows have one.
    **settings
        `min_rounds` and `context` of `LadderStopping`, and ``classes``, an array-like: the
        holdout's classes in the order of the numbers 0 to k - 1 that XGBoost learns; they have to
        be stated where they are not these numbers.

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

    def __init__(
        self,
        holdout: HasLadder,
        patience: int = 10,
        *,
        dmatrix: Mapping[str, Any] | None = None,
        **settings: Unpack[adapter.Settings],
    ) -> None:
        super().__init__(holdout, patience, **settings)
        self._dmatrix = {"enable_categorical": True, **(dmatrix or {})}

    def before_training(self, model: Any) -> Any:
        """Begin a fit."""
        with Loud():
            adapter.refuse_folds(model, xgb.Booster, "xgboost")
            adapter.refuse_stoppers(
                local_of(BOOSTER, "callbacks") or (),
                {"EarlyStopping": xgb.callback.EarlyStopping},
                early_stopping_rounds=local_of(BOOSTER, "early_stopping_rounds"),
            )
            self._start(library="xgboost")
            training = _Training(self.stopping, model, self._dmatrix)
            self._own.training = training
            if not training.lasting:
                save, load = xgb.Booster.save_raw, xgb.Booster.load_model
                self._own.best = adapter.BestRound(self.stopping, save, load)
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Submit one iteration; return whether to stop."""
        with Loud():
            output = self._own.training.output(model)
        return self._round(lambda: output, model)

    def after_training(self, model: Any) -> Any:
        """Keep the best round."""
        training, self._own.training = self._own.training, None
        rounds = training.before + self.stopping.best_round
        if not training.lasting:
            model = self._own.best.restore(model)
        elif rounds < model.num_boosted_rounds():
            whole, model = model, model[:rounds]
            model.set_attr(**whole.attributes())
        if rounds > training.before:
            model.best_iteration = rounds - 1
        return model


ladder_stopping = LadderStoppingCallback


class _Training:
    """A model in training, and the holdout's rows as XGBoost wants them."""

    def __init__(
        self, stopping: LadderStopping, model: xgb.Booster, dmatrix: Mapping[str, Any]
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
        # For dart the estimators predict otherwise, with other last digits.
        plain = not dmatrix.keys() - {"enable_categorical", "missing"}
        self._inplace = booster == "dart" and plain and called_from(BOOSTER_OF.module)
        self.before, self._X = model.num_boosted_rounds(), stopping.X
        # One for all rounds: XGBoost remembers what it has predicted on it.
        self._rows, self._missing = _rows_like(local_of(BOOSTER, "dtrain"), self._X, dmatrix)
        # Dropout weighs earlier trees anew. XGBoost 3.4 has it in gbtree, and turns dart into that.
        drops = any(float(dropout.get(name, 0)) for name in ("rate_drop", "one_drop"))
        # The cut model of XGBoost 3.2 has lost the names of its categories: on a frame that lists
        # them in another order it would predict something else.
        kept = not drops and not _categories(self._rows.feature_types)
        # Whether the best round can be had back by cutting off later ones.
        self.lasting = booster == "gbtree" and kept

    def output(self, model: xgb.Booster) -> NDArray[Any]:
        """Return what the model puts out now."""
        if self._inplace:
            output = model.inplace_predict(self._X, missing=self._missing)
        else:
            output = model.predict(self._rows)
        return np.eye(self._width)[output.astype(int)] if self._codes else np.asarray(output)


def _rows_like(train: xgb.DMatrix, X: Any, dmatrix: Mapping[str, Any]) -> tuple[xgb.DMatrix, Any]:
    """Return the holdout's rows as the training rows were read, and what is missing there."""
    if len(train.get_base_margin()) and "base_margin" not in dmatrix:
        raise InvalidArgument(
            "dmatrix",
            "with the base_margin of the holdout's rows where the training rows have one",
            "without it",
            "XGBoost keeps none in its model: "
            "ladder_stopping(holdout, dmatrix={'base_margin': ...}).",
        )
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
