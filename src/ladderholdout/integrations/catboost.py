"""CatBoost: early stopping after the fit, through its stages.

CatBoost's callbacks are shown numbers in mid-training, never the model, so no round can be
predicted on before the last. What works is to train all iterations, run their stages through
the ladder up to where the rule stops, and cut the model after the best: `Stages.fit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import signature
from itertools import islice
from typing import Any, NoReturn

import numpy as np

from ladderholdout.arguments import as_given, whole
from ladderholdout.errors import InvalidArgument
from ladderholdout.extras import needed
from ladderholdout.identity.copies import take
from ladderholdout.integrations import adapter

with needed("Early stopping of CatBoost"):
    from catboost import CatBoost, CatBoostClassifier, Pool


class Stages(adapter.Adapter):
    """Fit a CatBoost model and cut it after its best round; also called `ladder_stopping`.

    Parameters
    ----------
    holdout : LadderHoldout
    patience, **rule
        `patience`, `min_rounds` and `context` of `LadderStopping`.
    classes : array-like, optional
        The holdout's classes in the order of the model's. By default those of the model itself;
        they have to be stated where it learns others, such as numbers for texts.

    Examples
    --------
    >>> from catboost import CatBoostClassifier
    >>> stages = ladder_stopping(holdout, patience=5)
    >>> model = CatBoostClassifier(
    ...     iterations=100, thread_count=1, verbose=False, allow_writing_files=False
    ... )
    >>> model = stages.fit(model, X, y)
    >>> model.tree_count_ == stages.stopping.best_round
    True
    >>> holdout.submit(model).is_incumbent  # the model kept is the incumbent
    True
    """

    def fit(self, model: CatBoost, *args: Any, **kwargs: Any) -> CatBoost:
        """Train all iterations of a model, then keep the best round by the ladder.

        Its overfitting detector is refused. Given an ``eval_set`` it keeps its own best iteration
        unless ``use_best_model=False``: the ladder then sees the rounds that are left.

        Parameters
        ----------
        model : catboost.CatBoost
            Unfitted.
        *args, **kwargs
            For its ``fit``: the training rows and what else it takes. The trees of an
            ``init_model`` are no rounds, and are kept.

        Returns
        -------
        catboost.CatBoost
            The same model, fitted and cut.
        """
        given, settings = signature(model.fit).bind(*args, **kwargs).arguments, model.get_params()
        _refuse_uncut(settings)
        stoppers = {name: given.get(name) or settings.get(name) for name in _STOPPERS}
        adapter.refuse_stoppers([], {}, **stoppers)
        before = _trees_of(given.get("init_model"))
        X, y = given.get("X"), given.get("y")
        pooled = isinstance(X, Pool) and X.get_baseline().size > 0
        if pooled or given.get("baseline") is not None:
            raise InvalidArgument(
                "baseline",
                "left out where a ladder stops training",
                "given",
                "CatBoost keeps none in its model, and the holdout's rows have none. Fit the "
                "model by itself, and submit what it predicts with their baseline: "
                "LadderStopping.update.",
            )
        # Rows and classes, as far as they are known before they are trained on.
        if X is not None and not isinstance(X, Pool | str):
            rows = self.stopping.start(library="catboost").X
            adapter.refuse_columns(rows, adapter.columns_of(X), adapter.width_of(X), any_order=True)
        coded = {"class_names", "classes_count", "target_border"} & settings.keys()
        shares = settings.get("loss_function") == "CrossEntropy"
        if y is not None and isinstance(model, CatBoostClassifier) and not coded and not shares:
            labels = np.asarray(y)
            text = labels.dtype.kind == "O"
            self._check_classes(np.unique(labels.astype(str) if text else labels))
        return self.cut(model.fit(*args, **kwargs), before=before)

    def cut(self, model: CatBoost, *, before: int = 0) -> CatBoost:
        """Run the stages of a fitted model through the ladder and cut it after the best.

        Parameters
        ----------
        model : catboost.CatBoost
            Fitted, with all its trees.
        before : int, default=0
            How many of its trees are those of the model that it continued: they are no rounds.

        Returns
        -------
        catboost.CatBoost
            The same model, cut.

        Examples
        --------
        >>> from catboost import CatBoostClassifier
        >>> stages = ladder_stopping(holdout, patience=3)
        >>> model = CatBoostClassifier(
        ...     iterations=20, thread_count=1, verbose=False, allow_writing_files=False
        ... )
        >>> stages.cut(model.fit(X, y)).tree_count_ <= 20
        True
        """
        _refuse_uncut(model.get_all_params())
        adapter.refuse_ranking(_loss(model))
        before = whole("before", before, least=0)
        classifies = self.stopping.metric.is_classification
        known = model.classes_ if classifies and len(model.classes_) else None
        self._start(known, library="catboost", estimator=type(model).__name__)
        with adapter.understood("CatBoost"):
            model.predict(take(self.stopping.X, np.arange(1)))
        outputs = islice(_outputs(model, self.stopping.X, classifies), before, None)
        for _ in range(before, model.tree_count_):
            if self._round(lambda: next(outputs), model):
                break
        if before + self.stopping.best_round < model.tree_count_:
            model.shrink(before + self.stopping.best_round)
        return model

    def after_iteration(self, info: object) -> NoReturn:
        """Refuse to be CatBoost's own callback: it is shown no model.

        Raises
        ------
        InvalidArgument
            Always.
        """
        raise InvalidArgument(
            "callbacks",
            "left out: CatBoost shows a callback no model before training is over",
            "this object",
            "Let it fit: ladder_stopping(holdout).fit(model, X, y).",
        )


ladder_stopping = Stages

_STOPPERS = ("early_stopping_rounds", "od_type", "od_wait", "od_pval")


def _outputs(model: CatBoost, X: Any, classifies: bool) -> Iterator[Any]:
    """Yield what the model cut after each round puts out, bit for bit."""
    loss = _loss(model)
    kind = "Exponent" if loss.startswith(("Poisson", "Tweedie")) else "RawFormulaVal"
    kind = "Probability" if classifies else kind
    scale, bias = model.get_scale_and_bias()
    if not np.any(bias):
        yield from model.staged_predict(X, prediction_type=kind)
    elif kind == "RawFormulaVal":
        # The stages add the trees to the bias, `predict` the bias to the trees.
        bare = model.copy()
        bare.set_scale_and_bias(1.0, np.zeros_like(np.atleast_1d(bias)).tolist())
        for trees in bare.staged_predict(X, prediction_type=kind):
            yield trees * scale + bias
    else:
        for end in range(1, model.tree_count_ + 1):
            yield model.predict(X, prediction_type=kind, ntree_end=end)


def _loss(model: CatBoost) -> str:
    return str(model.get_all_params().get("loss_function", ""))


def _trees_of(model: Any) -> int:
    """Return how many trees a model has that another one continues."""
    if model is None:
        return 0
    if not isinstance(model, CatBoost):
        model = CatBoost().load_model(str(model))
    return int(model.tree_count_)


def _refuse_uncut(params: Mapping[str, Any]) -> None:
    policy = params.get("grow_policy") or "SymmetricTree"
    if policy != "SymmetricTree":
        raise InvalidArgument(
            "grow_policy",
            "'SymmetricTree', CatBoost's default",
            as_given(policy),
            "CatBoost cannot cut a model of other trees.",
        )
