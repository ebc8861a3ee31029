"""Predictions out of a table that was read, in the types that the holdout was registered with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.guard import NamedPredictions, commands
from ladderholdout.identity.spelling import any_number, plain_number
from ladderholdout.metrics import Metric
from ladderholdout.metrics.arrays import class_codes, is_of_first, refusal
from ladderholdout.remote.tables import Table, why_no_number

_LONG = 100  # characters of a text that is no class, and that is kept whole
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_PLAIN = "Write each label as the holdout's labels are written: 1, not 01, 1e0 or +1."
# The first column of a table is taken for ids by these names, and by no others.
_IDS = {"id", "ids", "index", "row", "rows", "row_id", "rowid", "key", "uid", "uuid", "identifier"}


@dataclass(frozen=True, slots=True)
class Form:
    """What predictions have to be for a ladder: its metric, and what is known of the rows."""

    metric: Metric
    n: int
    classes: NDArray[Any] | None
    # Whether the holdout was registered with ids.
    has_ids: bool = False
    header: bool = True


def predictions_in(table: Table, form: Form, ids: str | None = None) -> Any:
    """Return the predictions of a table, as `LadderHoldout.submit` takes them.

    The table has one column, or one for each class that is named after it; `ids` is the column
    that has the ids of the rows. Predictions are in the order of the table, which its ids or its
    index name.

    Raises
    ------
    InvalidArgument, InvalidSubmission
        The table cannot be read as predictions for this metric.
    """
    names: Any = table.index
    if ids is not None:
        table, names = _without_ids(table, ids)
    _check_rows(table, form)
    values = _values(table, form)
    if names is None:
        return values
    return NamedPredictions(values, list(names), by_ids=ids is not None, lines=table.starts)


def _without_ids(table: Table, ids: str) -> tuple[Table, list[Any]]:
    """Part the ids from the other columns; refuse ids that are missing or repeated."""
    place = table.place_of(ids)
    if place is None and not (ids == table.index_name and table.index is not None):
        actual = f"{ids!r}, which names none of them"
        raise InvalidArgument("ids", f"one of the {len(table.names)} columns", actual)
    left = table
    if place is None:
        assert table.index is not None
        names = list(table.index)
    else:
        names = list(table.columns[place])
        others = [other for other in range(len(table.names)) if other != place]
        left = Table(
            tuple(table.names[other] for other in others),
            tuple(table.columns[other] for other in others),
            starts=table.starts,
        )
    check_ids(names, table)
    return left, names


def check_lengths(names: Sequence[Any], argument: str = "ids") -> None:
    """Refuse ids that are no names of rows, but whole texts."""
    longest = max((len(name) for name in names if isinstance(name, str)), default=0)
    if longest > commands.LONGEST_ID:
        allowed = f"of at most {commands.LONGEST_ID} characters each"
        raise InvalidArgument(argument, allowed, f"one of {longest}")


def check_ids(
    names: Sequence[Any], table: Table, argument: str = "ids", *, distinct: bool = True
) -> None:
    """Refuse ids that are missing, or come twice where each names a row, with the line."""
    check_lengths(names, argument)
    known: dict[Any, int] = {}
    for place, name in enumerate(names):
        if name is None or name == "" or name != name:
            actual = f"missing in {table.where(place)}"
            raise InvalidArgument(argument, "there for each row", actual)
        if distinct and name in known:
            actual = f"the same in {table.where(known[name])} and {table.where(place)}"
            raise InvalidArgument(argument, "distinct", actual, "Give each row an id of its own.")
        known[name] = place


def _check_rows(table: Table, form: Form) -> None:
    if not table.columns:
        raise InvalidSubmission("predictions", "a column at least", "without one")
    count = len(table)
    if count == form.n:
        return
    allowed, remedy = f"{form.n} rows" + " below a header" * form.header, ""
    if form.header and count == form.n - 1 and _may_predict(table, form):
        remedy = (
            "The first line has to name the columns: add such a line, or pass --no-header on the "
            "command line."
        )
    elif not form.header and count == form.n + 1:
        remedy = "If the first line names the columns, leave out --no-header."
    raise InvalidSubmission("predictions", allowed, f"of {count}", remedy)


def _may_predict(table: Table, form: Form) -> bool:
    """Return whether the names of the columns may be predictions themselves."""
    if table.starts is None:
        return False
    if form.metric.response != "labels" or form.classes is None:
        return all(any_number(name) is not None for name in table.names)
    try:
        read = labels_like(form.classes, table.names)
    except InvalidSubmission:
        return False
    return bool(np.isin(read, form.classes).all())


def _values(table: Table, form: Form) -> NDArray[Any]:
    response = form.metric.response
    several = len(table.columns) > 1
    if response == "labels":
        if several:
            raise _too_many(table, form, "one column of labels")
        column = table.columns[0]
        _check_missing(column, table)
        if form.classes is not None and all(isinstance(cell, str) for cell in column):
            return labels_like(form.classes, column, table=table)
        return _plain_array(column)
    classes = form.classes if response in ("probabilities", "scores") and form.header else None
    if classes is not None and response == "scores":
        classes = form.metric.positive_last(classes)
    order: Sequence[int] = range(len(table.columns))
    if (
        several
        and response == "scores"
        and (classes is None or -1 in class_codes(table.names, classes))
    ):
        raise _too_many(table, form, "one column of scores")
    if several and classes is not None:
        order = _order(table, form, classes)
    if several and response == "values" and table.names[0].strip().lower() in _IDS:
        raise _too_many(table, form, "columns of values alone")
    numbers = [_numbers(table.columns[column], table) for column in order]
    if response == "scores" and several:
        return numbers[1]
    if classes is not None and is_of_first(table.names, classes):
        return (
            -numbers[0] if response == "scores" else np.column_stack([numbers[0], 1 - numbers[0]])
        )
    return np.column_stack(numbers) if several else numbers[0]


def _check_missing(column: Sequence[Any], table: Table) -> None:
    place = next((row for row, cell in enumerate(column) if cell is None or cell == ""), None)
    if place is not None:
        actual = f"missing in {table.where(place)}"
        raise InvalidSubmission("predictions", "there for each row", actual)


def _plain_array(column: Sequence[Any]) -> NDArray[Any]:
    """Return values of one type as an array, and others as objects, which are refused later."""
    array = np.asarray(column)
    if array.dtype.kind in "US" and not all(isinstance(cell, str) for cell in column):
        array = np.empty(len(column), dtype=object)
        array[:] = column
    return array


def _too_many(table: Table, form: Form, allowed: str) -> InvalidSubmission:
    """Return the refusal of a table with more columns, which may be one with ids."""
    first = table.columns[0]
    remedy = "Leave out what is no prediction."
    if len(table.columns) == 2 and len(set(first)) == len(first):
        remedy = (
            f"If {table.names[0]!r} names the rows, state it: --ids on the command line, ids= over "
            "HTTP, ids of the tool, the field for it on the page."
            if form.has_ids
            else "The holdout was registered without ids: leave that column out, and give the "
            "predictions in the order in which the rows were first registered."
        )
    elif form.metric.response == "labels":
        remedy = "Probabilities and scores need another metric."
    return InvalidSubmission("predictions", allowed, f"{len(table.columns)} columns", remedy)


def _order(table: Table, form: Form, classes: NDArray[Any]) -> list[int]:
    """Return the columns in the order of the classes, which they are named after."""
    codes = class_codes(table.names, classes)
    if sorted(codes) == list(range(len(classes))):
        return [codes.index(place) for place in range(len(classes))]
    refused = _too_many(table, form, f"{len(classes)} columns, named after the classes")
    if len(table.columns) == 2 and table.names[0].strip().lower() in _IDS:
        raise refused
    raise InvalidSubmission(
        "predictions",
        f"{len(classes)} columns, each named after one of the holdout's classes",
        f"a table of {len(table.columns)} columns with other names",
        "Write pandas.DataFrame(model.predict_proba(X), columns=model.classes_); the command line "
        "takes columns in the order of the sorted classes with --no-header.",
    )


def _numbers(column: Sequence[Any], table: Table) -> NDArray[Any]:
    _check_missing(column, table)
    if all(isinstance(cell, str) for cell in column):
        return numbers_of(column, table)
    if any(isinstance(cell, str) for cell in column):
        raise InvalidSubmission("predictions", "numbers", "a mix of numbers and texts")
    numbers = np.asarray(column)
    return numbers if numbers.dtype.char in "ef" else numbers.astype(np.float64)


def numbers_of(
    texts: Sequence[str], table: Table, argument: str = "predictions", what: str = "numbers"
) -> NDArray[Any]:
    """Read numbers in any of their spellings; refuse other texts with the first of their lines."""
    numbers = [any_number(text) for text in texts]
    wrong = [place for place, number in enumerate(numbers) if number is None]
    if wrong:
        cause, remedy = why_no_number(texts[wrong[0]])
        actual = f"something else in {len(wrong)} of {len(texts)} rows, the first in "
        raise refusal(argument, what, f"{actual}{table.where(wrong[0])}: {cause}", remedy)
    whole = all(isinstance(number, int) and abs(number) < 2**63 for number in numbers)
    return np.array(numbers, dtype=np.int64 if whole else np.float64)


def labels_like(
    classes: NDArray[Any],
    texts: Sequence[str],
    argument: str = "predictions",
    table: Table | None = None,
) -> NDArray[Any]:
    """Bring labels that were read as text to the type of the holdout's labels.

    The table is the one they were read from, for the line in a refusal.

    Raises
    ------
    InvalidSubmission
        The labels are numbers, and a text is not the plain spelling of one.

    Examples
    --------
    >>> labels_like(np.array([0, 1]), ["1", "0.0"]).tolist()
    [1, 0]
    >>> labels_like(np.array(["0", "1"]), ["1", "0"]).tolist()
    ['1', '0']
    >>> labels_like(np.array([False, True]), ["True", "false"]).tolist()
    [True, False]
    """
    where = (table or Table((), ())).where
    if classes.dtype.kind not in "biuf":
        return _texts_like(classes, texts)
    read = _boolean if classes.dtype.kind == "b" else _label
    known = {text: read(text) for text in dict.fromkeys(texts)}
    labels = [known[text] for text in texts]
    wrong = [place for place, label in enumerate(labels) if label is None]
    if not wrong:
        return np.array(labels)
    kind = "true or false" if classes.dtype.kind == "b" else "numbers"
    cause, remedy = why_no_number(texts[wrong[0]])
    if any_number(texts[wrong[0]]) is not None:
        cause, remedy = "another spelling of a number", _PLAIN
    actual = f"{len(wrong)} of {len(labels)} others, the first in {where(wrong[0])}: {cause}"
    raise refusal(argument, f"{kind}, like the holdout's labels", actual, remedy)


def _texts_like(classes: NDArray[Any], texts: Sequence[str]) -> NDArray[Any]:
    """Return texts as they are; those that are no class, without the spaces around them."""
    known = set(classes.tolist())
    bare = {text: text.strip() for text in dict.fromkeys(texts) if text not in known}
    # An array of texts takes for each of them what the longest one needs.
    longest = max((len(name) for name in known if isinstance(name, str)), default=0) + 1
    cut = {text: text if len(text) <= _LONG else text[:longest] for text in bare}
    brought = [bare[text] if bare.get(text) in known else cut.get(text, text) for text in texts]
    return np.array(brought, dtype=str)


def _label(text: str) -> int | float | None:
    number = plain_number(text.strip())
    return int(number) if number is not None and number == int(number) else number


def _boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.strip().lower())
