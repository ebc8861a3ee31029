"""What other estimators did to the rows before a model, or a search, was given them.

A model inside a pipeline sees rows that the steps before it have changed, and the holdout's
rows have to be changed alike. Other estimators around a search take a part of the rows or
columns, code the labels anew or put predictions in place of features: what they did cannot
be done again from outside, so the guard refuses to answer there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ladderholdout import thirdparty
from ladderholdout.errors import InvalidArgument
from ladderholdout.guard.open_ladder import transformed
from ladderholdout.integrations.training_rows import is_a
from ladderholdout.thirdparty import Frame

_SELECTION = "sklearn.feature_selection."
_LINEAR = "RidgeCV", "RidgeClassifierCV", "LogisticRegressionCV"
_PIPELINE = "sklearn.pipeline", "Pipeline"


def as_the_model_sees(X: Any) -> Any:
    """Return rows as they reach the model that this thread is fitting.

    The pipelines in whose ``fit`` this thread is have fitted their earlier steps by now.

    Parameters
    ----------
    X : array-like, shape (n, n_features)

    Returns
    -------
    array-like

    Raises
    ------
    InvalidArgument
        The model learns a transformed target, so that what it predicts is no answer yet, or
        an estimator around it may have changed rows or labels in another way.
    """
    around = [frame for frame in thirdparty.consumers() if frame.is_fit]
    model = around[0].owner if around else None
    others = [frame for frame in around if frame.owner is not model]
    worker = thirdparty.task()
    for frame in others if worker is None else [*others, worker]:
        if is_a(frame.owner, "sklearn.compose", "TransformedTargetRegressor"):
            raise InvalidArgument(
                "regressor",
                "fitted on the target itself",
                "fitted inside a TransformedTargetRegressor",
                "Transform y before, and submit the predictions of each round transformed back: "
                "LadderStopping(holdout).update(predictions).",
            )
        is_known = frame.library == "sklearn" or is_a(frame.owner, *_PIPELINE)
        if is_known and not passes_on(frame):
            raise InvalidArgument(
                "the model",
                "alone or in pipelines, where it stops by the ladder",
                f"fitted inside {name_of([frame])}, which may have changed rows or labels",
                "Stop there by rows of the training side, and ask about the whole once: "
                "holdout.submit(whole_model).",
            )
    return transformed(X, steps_of(others))


def steps_of(frames: Iterable[Frame]) -> tuple[Any, ...]:
    """Return the fitted pipelines among these fits that changed rows, the outermost first."""
    owners = (frame.owner for frame in frames if is_a(frame.owner, *_PIPELINE))
    return tuple(it[:-1] for it in dict.fromkeys(owners) if len(it.steps) > 1)[::-1]


def passes_on(frame: Frame) -> bool:
    """Return whether rows and labels reach what is fitted within as `steps_of` knows them.

    A pipeline knows its own way to fit, and its last step alone has all steps before it.
    """
    owner = frame.owner
    if is_a(owner, *_PIPELINE):
        return type(owner).fit.__module__ == _PIPELINE[0] and frame.name == "fit"
    if owner is None:
        return frame.is_tool or frame.module == thirdparty.ONE_FIT.module
    return is_search(frame)


def is_search(frame: Frame) -> bool:
    """Return whether scikit-learn asks a scorer about each fold here, and passes rows on."""
    asks = frame.module.startswith(thirdparty.FIT.module)  # in whatever derives from its searches
    return asks or any(is_a(frame.owner, "sklearn.linear_model", name) for name in _LINEAR)


def name_of(frames: Iterable[Frame]) -> str:
    """Return the class of the innermost estimator among these, or the name of the function."""
    owners = [type(frame.owner).__name__ for frame in frames if frame.owner is not None]
    return next(iter(owners), next(iter(frames)).name)


def refuse_without_scorer(around: Sequence[Frame]) -> None:
    """Refuse what takes the folds for something else than to ask a scorer about each of them."""
    frame = next(iter(around), None)
    if frame is None or library_of(frame) != "sklearn":
        return
    if frame.name == "permutation_test_score":
        raise InvalidArgument(
            "cv",
            "folds of the training rows where labels are permuted",
            "the guarded fold",
            "Released scores do not fall, so a p-value from them means nothing: give "
            "permutation_test_score cv=5, or holdout.split(inner=5, guarded=False). An "
            "interval of the true score: holdout.certificate().",
        )
    if frame.is_tool and frame.name != "cross_val_predict":
        return
    if not is_search(frame):
        if frame.module.startswith(_SELECTION):
            raise _refusal(frame)
        name = name_of(around)
        raise InvalidArgument(
            "cv",
            f"without the guarded fold in {name}",
            "holdout.split()",
            f"{name} uses the test rows of each fold itself, and the guarded fold has none. Give "
            "it folds of the training rows, cv=5 or cv=holdout.split(inner=5, guarded=False), and "
            "query the holdout once about what was fitted: holdout.submit(model). To compare "
            "several: GridSearchCV(model, grid, scoring=holdout, cv=holdout.split()).",
        )


def steps_before(around: Sequence[Frame], known: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
    """Return the fitted pipelines that changed the user's rows before they came to a search.

    `known` are those around all of these, where they are a part of a candidate that is fitted.

    Raises
    ------
    InvalidArgument
        An estimator around the search may have changed rows or labels in another way, or
        the search runs in a worker, where what is around it cannot be seen.
    """
    check_around(around)
    if known is None and thirdparty.task() is not None:
        raise InvalidArgument(
            "n_jobs",
            "1 around a search that asks the holdout, and for folds of one's own in it",
            "larger, so that the guard cannot see what was done to the rows before",
            "A search with cv=holdout.split() itself may have as many workers as you like. What "
            "changes rows or labels belongs inside it; or ask about the whole once: "
            "holdout.submit(whole_model).",
        )
    return (*(known or ()), *steps_of(around[1:]))


def library_of(frame: Frame) -> str:
    """Return the library whose estimator is fitted here, or whose tool it is."""
    return type(frame.owner).__module__.partition(".")[0] if frame.is_fit else frame.library


def check_around(around: Sequence[Frame]) -> None:
    """Refuse what may change rows or labels on their way to what is fitted first among these."""
    for frame in around[1:]:
        # A search of another library is known by what it takes.
        asks = hasattr(frame.owner, "cv") and hasattr(frame.owner, "scoring")
        asks = asks and library_of(frame) != "sklearn" and hasattr(type(frame.owner), "predict")
        if not (frame.owner is around[0].owner or asks or passes_on(frame)):
            raise _refusal(frame)


def _refusal(frame: Frame) -> InvalidArgument:
    name = name_of([frame])
    if frame.module.startswith(_SELECTION):
        return InvalidArgument(
            "cv",
            "without the guarded fold where features are selected",
            f"holdout.split() inside {name}, which scores models on some of the columns",
            "It goes on where none improves, by scores that are all the same. Select on folds of "
            "the training rows, scoring=holdout with cv=holdout.split(inner=5, guarded=False), and "
            "query the holdout once about both: holdout.submit(make_pipeline(selector, model)).",
        )
    return InvalidArgument(
        "cv",
        "without the guarded fold in a search that gets its rows from another estimator",
        f"holdout.split() in a search inside {name}, which may have changed rows or labels",
        "Put that estimator inside the search, not around it: "
        "GridSearchCV(whole_model, grid, scoring=holdout, cv=holdout.split()). Or search there on "
        "inner folds, cv=holdout.split(inner=5, guarded=False), and ask about the whole once: "
        "holdout.submit(whole_model).",
    )
