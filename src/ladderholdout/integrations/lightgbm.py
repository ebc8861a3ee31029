"""LightGBM: early stopping as a callback, for ``train`` and the estimators alike."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, TypeAlias, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from ladderholdout import thirdparty
from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations import adapter
from ladderholdout.integrations.rounds import Loud
from ladderholdout.integrations.stopping import LadderStopping

with needed("Early stopping of LightGBM"):
    from lightgbm import Booster, LGBMClassifier, early_stopping
    from lightgbm.callback import CallbackEnv, EarlyStopException


Floats: TypeAlias = NDArray[np.float64]


class LadderStoppingCallback(adapter.Adapter):
    """Stop LightGBM by the ladder and keep its best round; also called `ladder_stopping`.

    Give it as ``callbacks=[...]`` to ``lightgbm.train`` or to an estimator's ``fit``; the
    holdout goes nowhere near ``valid_sets``. After training ``best_iteration`` is the best
    round by the ledger, which LightGBM's own ``predict`` uses. A round costs the predictions
    of its own trees alone; DART, which changes earlier trees, is predicted in full.

    Parameters
    ----------
    holdout : LadderHoldout
    patience : int, default=10
        As that of `LadderStopping`.
    init_score : array-like, shape (n,) or (n, C), optional
        That of the holdout's rows, where the training rows have one: LightGBM keeps none in
        its model.
    **settings
        `min_rounds` and `context` of `LadderStopping`, and ``classes``, an array-like: the
        holdout's classes in the order of the model's columns. An estimator knows its own;
        ``lightgbm.train`` learns the numbers 0 to k - 1, so that others have to be stated.

    Examples
    --------
    >>> import lightgbm as lgb
    >>> callback = ladder_stopping(holdout, patience=5)
    >>> model = lgb.LGBMClassifier(n_estimators=300, n_jobs=1, verbose=-1)
    >>> model = model.fit(X, y, callbacks=[callback])
    >>> model.best_iteration_ == callback.stopping.best_round < 300
    True
    >>> holdout.submit(model).is_incumbent  # the model kept is the incumbent
    True
    """

    def __init__(
        self,
        holdout: HasLadder,
        patience: int = 10,
        *,
        init_score: ArrayLike | None = None,
        **settings: Unpack[adapter.Settings],
    ) -> None:
        super().__init__(holdout, patience, **settings)
        # After those that record and print. LightGBM reads it from the object itself.
        self.order, self.before_iteration = 40, False
        self._init_score = None if init_score is None else np.asarray(init_score, np.float64)

    def __call__(self, env: CallbackEnv) -> None:
        """Submit one iteration; at the end, keep the best round."""
        with Loud():
            if env.iteration == env.begin_iteration:
                self._begin(env)
            own = self._own
            own.results.append(env.evaluation_result_list or [])
        stop = self._round(partial(own.training.output, env.iteration), env.model)
        if stop or env.iteration == env.end_iteration - 1:
            if own.training.dart:
                own.best.restore(env.model)
            rounds, own.training = self.stopping.best_round, None
            raise EarlyStopException(env.begin_iteration + rounds - 1, own.results[rounds - 1])

    def _begin(self, env: CallbackEnv) -> None:
        adapter.refuse_folds(env.model, Booster, "lightgbm")
        adapter.refuse_stoppers(
            thirdparty.local_of(thirdparty.MODEL_CALLBACKS, "callbacks_after_iter") or (),
            {"early_stopping": type(early_stopping(1))},
            early_stopping_round=env.params.get("early_stopping_round"),
        )
        asked = env.begin_iteration == 0 and env.model.train_set.get_init_score() is not None
        if self._init_score is None and asked:
            raise InvalidArgument(
                "init_score",
                "given for the holdout's rows where the training rows have one",
                "missing",
                "LightGBM keeps none in its model: ladder_stopping(holdout, init_score=...).",
            )
        labels = thirdparty.local_of(thirdparty.CLASSIFIER, "y")
        known = None if labels is None else np.unique(np.asarray(labels))
        self._start(known, library="lightgbm")
        # The classifiers answer a metric of ranks with their margins.
        margins = labels is not None and hasattr(LGBMClassifier, "decision_function")
        raw = margins and self.stopping.metric.response == "scores"
        training = _Training(self.stopping, env, raw, self._init_score)
        self._own.training, self._own.results = training, []
        if training.dart:  # later rounds change the trees of the best
            copy, put = Booster.model_to_string, Booster.model_from_string
            self._own.best = adapter.BestRound(self.stopping, copy, put)


ladder_stopping = LadderStoppingCallback


class _Training:
    """A model in training on the holdout's rows: its margin so far, and what that means."""

    def __init__(
        self, stopping: LadderStopping, env: CallbackEnv, raw: bool, init_score: Floats | None
    ) -> None:
        self._booster, self._begin = env.model, env.begin_iteration
        self._raw, self._init = raw, init_score
        text = self._booster.model_to_string(num_iteration=1)
        self._X = np.asarray(stopping.X) if isinstance(stopping.X, list) else stopping.X
        self._objective = _found(r"^objective=(.*)$", text)
        adapter.refuse_ranking(self._objective)
        if not self._objective:  # one of the user's own
            adapter.refuse_margins(stopping.metric, "LightGBM", "binary")
        _refuse_columns(self._booster, self._X)
        # LightGBM counts its threads for the whole process: with more of them than the
        # training has, the next iteration of linear trees would crash.
        self._threads = int(_found(r"^\[num_threads: (\d+)\]$", text) or 0)
        self.dart = _found(r"^\[boosting: (.*)\]$", text) == "dart"
        # The leaves of linear trees have no value of their own.
        self._linear = bool(_found(r"^\[linear_tree: (1)\]$", text))
        self._averages = bool(_found(r"^(average_output)$", text))
        self._leaves: dict[int, NDArray[np.intp]] = {}
        self._margin: Floats | None = None
        # Whether what it makes of margins is known here, to the last bit.
        self._exact = True
        with adapter.understood("LightGBM"):
            self._predict(self._begin, 1)

    def output(self, iteration: int) -> NDArray[Any]:
        """Return what the model puts out after this iteration, bit for bit."""
        if self._booster.best_iteration > 0:  # LightGBM has cut the model of the rounds that waited
            raise InvalidArgument(
                "callbacks",
                "without one that ends training beside the ladder",
                "with another that raised EarlyStopException, and chose the model",
                "Delete it, fit again, and let the ladder end training.",
            )
        if not self._exact:
            return self._predict(0, iteration + 1, raw=False)
        if self.dart or self._margin is None:
            self._margin = self._predict(0, iteration + 1)
        elif iteration < self._booster.current_iteration():  # else nothing was left to split
            self._margin = self._margin + self._added(iteration)
        margin = self._margin / (iteration + 1) if self._averages else self._margin
        if self._init is not None:
            margin = margin + self._init
        if self._raw:
            return margin
        converted = _convert(self._objective, margin)
        if iteration == self._begin and self._init is None:
            whole = self._predict(0, iteration + 1, raw=False)
            self._exact = np.array_equal(converted, whole)
            return whole
        return converted

    def _added(self, iteration: int) -> Floats:
        """Return what the trees of one iteration add."""
        if self._linear:
            return self._predict(iteration, 1)
        width = self._booster.num_model_per_iteration()
        if iteration not in self._leaves:
            # To bring the rows to LightGBM takes several times as long as one of its trees.
            rounds = self._booster.current_iteration() - iteration
            leaves = self._predict(iteration, rounds, raw=False, pred_leaf=True)
            leaves = leaves.reshape(-1, rounds, width).astype(np.intp)
            self._leaves = {iteration + after: leaves[:, after] for after in range(rounds)}
        leaves = self._leaves.pop(iteration)
        added = np.empty(leaves.shape)
        for tree, column in enumerate(leaves.T):
            number = iteration * width + tree
            values = [
                self._booster.get_leaf_output(number, leaf) for leaf in range(column.max() + 1)
            ]
            np.take(values, column, out=added[:, tree])
        return added[:, 0] if width == 1 else added

    def _predict(self, start: int, rounds: int, raw: bool = True, **kind: bool) -> NDArray[Any]:
        output = self._booster.predict(
            self._X,
            start_iteration=start,
            num_iteration=rounds,
            raw_score=raw,
            num_threads=self._threads,
            **kind,
        )
        return np.asarray(output)


def _convert(objective: str, margin: Floats) -> Floats:
    """Return what LightGBM makes of margins; `objective` as in its model text."""
    name, *settings = objective.split() or [""]
    converted = margin
    if name in ("binary", "multiclassova", "cross_entropy"):
        converted = expit(float(_found(r"sigmoid:(\S+)", objective) or "1") * margin)
    elif name == "multiclass":
        powers = _exponential(margin - margin.max(axis=1, keepdims=True))
        # Added column by column, as a loop over the classes does.
        converted = powers / np.cumsum(powers, axis=1)[:, -1:]
    elif name in ("poisson", "gamma", "tweedie"):
        converted = _exponential(margin)
    elif "sqrt" in settings:
        converted = np.sign(margin) * margin * margin
    return converted


def _exponential(margins: Floats) -> Floats:
    """Return exp of each margin as the C library has it."""
    # The complex one calls it; on the real axis it is the real one.
    powers: Floats = np.exp(margins.astype(np.complex128)).real
    return powers


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else ""


def _refuse_columns(booster: Booster, X: Any) -> None:
    """Refuse what LightGBM would take by its place, whatever its name."""
    columns = adapter.columns_of(X)
    if columns is None and booster.pandas_categorical:
        raise InvalidArgument(
            "X",
            "a table with the categories of the training rows",
            "an array, whose numbers LightGBM would take for the places of categories",
            "Register the holdout with a table: X_holdout.astype(X_train.dtypes).",
        )
    names = booster.feature_name()
    unnamed = names == [f"Column_{place}" for place in range(len(names))]
    if columns is not None:
        columns = [name.replace(" ", "_") for name in columns]  # as LightGBM writes names
    adapter.refuse_columns(X, None if unnamed else names, len(names), known=columns)
