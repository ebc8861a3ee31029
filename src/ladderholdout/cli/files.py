"""Tables in files, CSV, Parquet and Arrow: a holdout to register, predictions to submit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission, did_you_mean
from ladderholdout.extras import missing, needed
from ladderholdout.metrics import Metric
from ladderholdout.remote.wire import array_from, arrow_table

if TYPE_CHECKING:
    import pandas as pd

_FILES = "A file of rows or predictions"
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Form:
    """What predictions have to be for a ladder: its metric, and what is known of the rows."""

    metric: Metric
    n: int
    classes: NDArray[Any] | None


def read_table(path: Path, **options: Any) -> pd.DataFrame:
    """Read a file as pandas does by default.

    Parameters
    ----------
    path : Path
        Ending in .csv, .parquet or .arrow.
    **options
        For `pandas.read_csv`.

    Raises
    ------
    InvalidArgument
        It is no such file.
    MissingExtra
        What reads it is not installed.
    """
    with needed(_FILES):
        import pandas
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".arrow"):
        allowed = "a .csv or .parquet one, or one in Arrow's format (.arrow)"
        raise InvalidArgument("the file", allowed, path.name or repr(str(path)))
    try:
        if kind == ".parquet":
            return pandas.read_parquet(path)
        if kind == ".csv":
            found: pd.DataFrame = pandas.read_csv(path, **options)
            return found
        found = arrow_table(path.read_bytes(), _FILES).to_pandas()
    except ImportError:
        raise missing(f"A {kind} file", "pyarrow") from None
    except OSError as fault:
        came = f"{path}: {fault.strerror or 'it is none'}"
        raise InvalidArgument("the file", "one that can be read", came) from None
    except Exception as fault:  # its text may show cells
        came = f"{path}, which cannot ({type(fault).__name__})"
        raise InvalidArgument("the file", f"one that reads as {kind[1:]}", came) from None
    return found


def take(frame: pd.DataFrame, argument: str, column: str) -> Any:
    """Take a column out of a table, or refuse a name that it lacks."""
    if column in frame.columns:
        return frame[column]
    # Not all names: where the header is missing, the first row and its label would be shown.
    close = did_you_mean(column, map(str, frame.columns))
    remedy = close or "The first line has to name the columns."
    raise InvalidArgument(
        argument, f"one of the {len(frame.columns)} columns", repr(column), remedy
    )


def labels_like(classes: NDArray[Any], texts: Sequence[str]) -> NDArray[Any]:
    """Bring labels that were read as text to the type of the holdout's labels.

    Parameters
    ----------
    classes : ndarray
        Labels of the type that is wanted.
    texts : sequence of str

    Returns
    -------
    ndarray

    Raises
    ------
    InvalidSubmission
        Some cannot be brought there.

    Examples
    --------
    >>> labels_like(np.array([0, 1]), ["1", "0.0"]).tolist()
    [1, 0]
    >>> labels_like(np.array(["0", "1"]), ["1", "0"]).tolist()
    ['1', '0']
    >>> labels_like(np.array([False, True]), ["True", "false"]).tolist()
    [True, False]
    """
    if classes.dtype.kind not in "biuf":
        return np.array(texts, dtype=str)
    read = _boolean if classes.dtype.kind == "b" else _number
    labels = [read(text) for text in texts]
    wrong = [place for place, label in enumerate(labels, 1) if label is None]
    if wrong:
        kind = "true or false" if classes.dtype.kind == "b" else "numbers"
        came = f"{len(wrong)} of {len(labels)} others, the first in row {wrong[0]}"
        raise InvalidSubmission("predictions", f"{kind}, like the holdout's labels", came)
    return np.array(labels)


def predictions_from(path: Path, form: Form, *, header: bool = True) -> Any:
    """Read predictions from a file, in the types that the holdout was registered with.

    Parameters
    ----------
    path : Path
        One column, or one for each class, named after it; CSV cells are read as text. Or a .npy
        file, with the array.
    form : Form
    header : bool, default=True
        Whether the first line of a CSV file names the columns.

    Returns
    -------
    ndarray or DataFrame
        As `LadderHoldout.submit` takes it.

    Raises
    ------
    InvalidArgument, InvalidSubmission
        The file cannot be read as predictions for this metric.
    """
    if path.suffix.lower() == ".npy":
        return _read_array(path)
    options = {"dtype": str, "keep_default_na": False, "header": 0 if header else None}
    frame = read_table(path, **options)
    if path.suffix.lower() == ".csv":
        _check_lines(frame, form.n, header)
    if form.metric.response == "labels":
        return _labels(frame, form.classes)
    numbers = _numbers(frame)
    if numbers.shape[1] == 1:
        return numbers[:, 0]
    if form.metric.response == "probabilities" and form.classes is not None and header:
        return _named(numbers, frame, form.classes)
    return numbers


def _read_array(path: Path) -> NDArray[Any]:
    try:
        return array_from(path.read_bytes())
    except OSError as fault:
        came = f"{path}: {fault.strerror}"
        raise InvalidArgument("the file", "one that can be read", came) from None


def _check_lines(frame: pd.DataFrame, n: int, header: bool) -> None:
    if header and len(frame) == n - 1:
        remedy = "The first line has to name the columns; pass --no-header if it does not."
        raise InvalidSubmission("predictions", f"{n} rows below a header", f"{n - 1}", remedy)
    if header and str(frame.columns[0]).startswith("Unnamed:"):
        remedy = "Write the file with index=False."
        raise InvalidSubmission("predictions", "without an index", "one with it", remedy)


def _labels(frame: pd.DataFrame, classes: NDArray[Any] | None) -> NDArray[Any]:
    if frame.shape[1] != 1:
        remedy = "Probabilities and scores need another metric."
        raise InvalidSubmission("predictions", "one column of labels", frame.shape[1], remedy)
    column = frame.iloc[:, 0].to_numpy()
    texts = all(isinstance(cell, str) for cell in column)
    return labels_like(classes, list(column)) if texts and classes is not None else column


def _numbers(frame: pd.DataFrame) -> NDArray[np.float64]:
    rows = [[_float(cell) for cell in row] for row in frame.to_numpy(dtype=object)]
    wrong = [place for place, row in enumerate(rows, 1) if None in row]
    if wrong:
        came = f"{len(wrong)} of {len(rows)} rows with something else, the first in row {wrong[0]}"
        raise InvalidSubmission("predictions", "numbers", came)
    return np.array(rows, dtype=np.float64).reshape(frame.shape)


def _named(numbers: NDArray[np.float64], frame: pd.DataFrame, classes: NDArray[Any]) -> Any:
    """Name the columns by the classes, so that their order is free."""
    with needed(_FILES):
        import pandas

    try:
        names = labels_like(classes, [str(name) for name in frame.columns])
    except InvalidSubmission:
        names = np.array([])
    if len(names) != len(classes) or not np.array_equal(np.sort(names), classes):
        raise InvalidSubmission(
            "predictions",
            f"{len(classes)} columns, each named after one of the holdout's classes",
            f"a table of {frame.shape[1]} columns with other names",
            "Write pandas.DataFrame(model.predict_proba(X), columns=model.classes_), or pass "
            "--no-header for columns in the order of the sorted classes.",
        )
    return pandas.DataFrame(numbers, columns=list(names))


def _number(text: str) -> int | float | None:
    try:
        return int(text)
    except ValueError:
        found = _float(text)
        return int(found) if found is not None and found.is_integer() else found


def _boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.strip().lower())


def _float(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
