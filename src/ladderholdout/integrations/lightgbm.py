"""LightGBM: early stopping as a callback, for ``train`` and the estimators alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ladderholdout import thirdparty
from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.guard.open_ladder import HasLadder
from ladderholdout.integrations import adapter
from ladderholdout.integrations.rounds import Loud
from ladderholdout.integrations.stopping import LadderStopping, Rule

with needed("Early stopping of LightGBM"):
    from lightgbm import Booster, LGBMClassifier
    from lightgbm.callback import CallbackEnv, EarlyStopException


def ladder_stopping(
    holdout: HasLadder,
    patience: int = 10,
    *,
    classes: ArrayLike | None = None,
    init_score: ArrayLike | None = None,
    **rule: Unpack[Rule],
) -> Callback:
    """Return a callback that stops LightGBM by the ladder and keeps its best round.

    Give it as ``callbacks=[...]`` to ``lightgbm.train`` or to an estimator's ``fit``; the
    holdout goes nowhere near ``valid_sets``. After training ``best_iteration`` is the best
    round by the ledger, which LightGBM's own ``predict`` uses. A round costs the predictions
    of its own trees alone; DART, which changes earlier trees, is predicted in full.

    Parameters
    ----------
    holdout : LadderHoldout
    patience, **rule
        `patience`, `min_rounds` and `context` of `LadderStopping`.
    init_score : array-like, shape (n,) or (n, C), optional
        That of the holdout's rows, where the training rows have one: LightGBM keeps none in
        its model.
    classes : array-like, optional
        The holdout's classes in the order of the model's columns. An estimator knows its own;
        ``lightgbm.train`` learns the numbers 0 to k - 1, so that others have to be stated.

    Returns
    -------
    Callback
        Its `stopping` is the `LadderStopping`.

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
    stopping = LadderStopping(holdout, patience, **rule)
    return Callback(stopping, classes, init_score)


class Callback(adapter.Adapter):
    """What LightGBM calls after each iteration; made by `ladder_stopping`."""

    def __init__(
        self,
        stopping: LadderStopping,
        classes: ArrayLike | None,
        init_score: ArrayLike | None,
    ) -> None:
        super().__init__(stopping, classes)
        # After those that record and print. LightGBM reads it from the object itself.
        self.order, self.before_iteration = 40, False
        self._init_score = None if init_score is None else np.asarray(init_score, np.float64)

    def __call__(self, env: CallbackEnv) -> None:
        """Submit one iteration; at the end, keep the best round."""
        with Loud():
            if env.iteration == env.begin_iteration:
                self._begin(env)
            training: _Training = self._here.training
            training.results.append(env.evaluation_result_list or [])
            if training.dart:
                stop = self._submit(training.output(env.iteration))
                training.best.snapshot(env.model)
        if not training.dart:
            stop = self._submit_later(training.outputs)
        if stop or training.ended or env.iteration == env.end_iteration - 1:
            self._end(env, training)

    def _begin(self, env: CallbackEnv) -> None:
        adapter.refuse_folds(env.model, Booster, "lightgbm")
        if self._init_score is None and env.begin_iteration == 0:
            _refuse_init_score(env.model)
        self._check_classes(thirdparty.classes_of_model())
        self.stopping.start(library="lightgbm")
        # The estimators answer a metric of ranks with their margins.
        ranks = self.stopping.metric.response == "scores"
        margins = hasattr(LGBMClassifier, "decision_function") and thirdparty.called_from(
            thirdparty.MODEL_OF.module
        )
        self._here.training = _Training(
            self.stopping, env.model, env.begin_iteration, ranks and margins, self._init_score
        )
        self._here.training.hold(
            self, thirdparty.local_of(thirdparty.MODEL_CALLBACKS, "callbacks_after_iter")
        )

    def _end(self, env: CallbackEnv, training: _Training) -> None:
        del self._here.training
        training.best.restore(env.model)
        rounds = self.stopping.best_round
        raise EarlyStopException(env.begin_iteration + rounds - 1, training.results[rounds - 1])


class _Training:
    """A model in training on the holdout's rows: its margin so far, and what that means."""

    def __init__(
        self,
        stopping: LadderStopping,
        booster: Booster,
        begin: int,
        raw: bool,
        init_score: NDArray[np.float64] | None,
    ) -> None:
        text = booster.model_to_string(num_iteration=1)
        self._booster, self._begin, self._raw, self._init = booster, begin, raw, init_score
        # The iteration after the last one that `outputs` has yielded, or is about to.
        self._next = begin
        self._X = np.asarray(stopping.X) if isinstance(stopping.X, list) else stopping.X
        self._objective = _found(r"^objective=(.*)$", text)
        adapter.refuse_ranking(self._objective)
        if not self._objective:  # one of the user's own
            adapter.refuse_margins(stopping.metric, "LightGBM", "binary")
        _refuse_columns(booster, self._X)
        # LightGBM counts its threads for the whole process: with more of them than the
        # training has, the next iteration of linear trees would crash.
        self._threads = int(_found(r"^\[num_threads: (\d+)\]$", text) or 0)
        self.dart = _found(r"^\[boosting: (.*)\]$", text) == "dart"
        # The leaves of linear trees have no value of their own.
        self._linear = bool(_found(r"^\[linear_tree: (1)\]$", text))
        self._leaves: dict[int, NDArray[np.intp]] = {}
        self._averages = bool(_found(r"^(average_output)$", text))
        self._margin: NDArray[np.float64] | None = None
        self._exact = True
        # Later rounds of DART change the trees of the best; of other models LightGBM predicts by
        # `best_iteration`.
        self.best = adapter.BestRound(stopping, self._text_of, self._read)
        self.results: list[Any] = []
        # Whether another callback has ended training.
        self.ended = False
        with adapter.understood("LightGBM"):
            self._predict(begin, 1)

    def hold(self, ladder: Callback, callbacks: list[Any] | None) -> None:
        """Let no other callback choose the round of the model, as `early_stopping` would.

        It ends training by an exception that carries its own best round, and no callback is
        called after that. So it is noted here, and the ladder's callback ends training.
        """
        for place, callback in enumerate(callbacks or ()):
            if callback is not ladder and callbacks is not None:
                callbacks[place] = _Held(self, callback)

    def outputs(self, count: int) -> Iterator[NDArray[Any]]:
        """Yield what the model puts out after each of the next iterations."""
        first, self._next = self._next, self._next + count
        for iteration in range(first, self._next):
            yield self.output(iteration)

    def output(self, iteration: int) -> NDArray[Any]:
        """Return what the model puts out after this iteration, bit for bit."""
        if not self._exact:
            return self._predict(0, iteration + 1, raw=False)
        self._margin = self._margin_after(iteration)
        converted = self._converted(self._margin, iteration + 1)
        if iteration == self._begin and not self._raw and self._init is None:
            whole = self._predict(0, iteration + 1, raw=False)
            self._exact = np.array_equal(converted, whole)
            return whole
        return converted

    def _text_of(self, booster: Booster) -> str | None:
        return booster.model_to_string(num_iteration=-1) if self.dart else None

    def _read(self, booster: Booster, text: str | None) -> None:
        if text is not None:
            booster.model_from_string(text)

    def _margin_after(self, iteration: int) -> NDArray[np.float64]:
        if self.dart or self._margin is None:
            return self._predict(0, iteration + 1)
        if iteration >= self._booster.current_iteration():
            return self._margin  # nothing was left to split
        return self._margin + self._added(iteration)

    def _added(self, iteration: int) -> NDArray[np.float64]:
        """Return what the trees of one iteration add."""
        if self._linear or self.dart:
            return self._predict(iteration, 1)
        width = self._booster.num_model_per_iteration()
        if iteration not in self._leaves:
            # To bring the rows to LightGBM takes several times as long as one of its trees.
            rounds = min(self._next, self._booster.current_iteration()) - iteration
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

    def _converted(self, margin: NDArray[np.float64], rounds: int) -> NDArray[np.float64]:
        if self._averages:
            margin = margin / rounds
        if self._init is not None:
            margin = margin + self._init
        return margin if self._raw else _convert(self._objective, margin)

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


class _Held:
    """Another callback of the same training, which may end it and no more."""

    def __init__(self, training: _Training, callback: Any) -> None:
        self._training, self._callback = training, callback

    def __call__(self, env: CallbackEnv) -> None:
        try:
            self._callback(env)
        except EarlyStopException:
            self._training.ended = True


def _convert(objective: str, margin: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what LightGBM makes of margins; `objective` as in its model text."""
    name, *settings = objective.split() or [""]
    if name in ("binary", "multiclassova", "cross_entropy"):
        slope = _found(r"sigmoid:(\S+)", objective) or "1"
        return adapter.logistic(float(slope) * margin)
    if name == "multiclass":
        return adapter.softmax(margin)
    if name in ("poisson", "gamma", "tweedie"):
        return adapter.exponential(margin)
    if "sqrt" in settings:
        return np.sign(margin) * margin * margin
    return margin


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


def _refuse_init_score(booster: Booster) -> None:
    if booster.train_set.get_init_score() is not None:
        raise InvalidArgument(
            "init_score",
            "given for the holdout's rows where the training rows have one",
            "missing",
            "LightGBM keeps none in its model: ladder_stopping(holdout, init_score=...).",
        )
