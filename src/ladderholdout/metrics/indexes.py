"""Values with an index of pandas, brought to the order of the rows or refused."""

from __future__ import annotations

from typing import Any

from ladderholdout.metrics.arrays import refusal


def by_index(predictions: Any, X: Any) -> Any:
    """Return predictions in the order of the rows, where both have the same index of their own.

    Raises
    ------
    InvalidSubmission
        The two contradict each other, and nobody can know what is meant.
    """
    theirs, own = index_of(predictions), index_of(X)
    if theirs is not None and own is not None and _is_reordered(theirs, own):
        return predictions.iloc[theirs.get_indexer(own)]
    check_index("predictions", predictions, X)
    return predictions


def _is_reordered(theirs: Any, own: Any) -> bool:
    """Return whether an index has the entries of another one, each once, in another order."""
    if len(theirs) != len(own) or own.equals(theirs):
        return False
    if not (theirs.is_unique and own.is_unique) or (theirs.get_indexer(own) < 0).any():
        return False
    # Positions that somebody counted name no rows.
    return not any(list(index) == list(range(len(own))) for index in (own, theirs))


def check_index(argument: str, values: Any, X: Any) -> None:
    """Refuse a pandas index that contradicts that of the rows.

    Values are taken by position, as scikit-learn takes them. Where the index has the rows in
    another order, or other rows, that is not what is meant, or nobody can know.
    """
    theirs, own = index_of(values), index_of(X)
    if theirs is None or own is None or len(own) != len(theirs):
        return
    if own.equals(theirs):
        return
    same = own.sort_values().equals(theirs.sort_values()) if _sortable(own, theirs) else False
    counted = range(len(own))
    if not same and any(list(index) == list(counted) for index in (own, theirs)):
        return  # one of the two was never given an index, and holds its rows by position
    raise refusal(
        argument,
        "in the order of the rows by its index too",
        "indexed like the rows, in another order" if same else "indexed by other rows",
        f"Bring it to their order, {argument}.loc[X.index], or give {argument}.to_numpy() to take "
        "it by position.",
    )


def index_of(values: Any) -> Any:
    """Return the index of a pandas object; None of all else."""
    try:
        index = getattr(values, "index", None)
        return index if hasattr(index, "equals") and hasattr(index, "sort_values") else None
    except Exception:  # of an object of any kind
        return None


def _sortable(*indexes: Any) -> bool:
    try:
        return all(index.sort_values() is not None for index in indexes)
    except TypeError:  # entries of several types
        return False
