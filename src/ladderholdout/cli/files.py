"""Tables in files, CSV, Parquet and Arrow: a holdout to register, predictions to submit."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ladderholdout import extras, process
from ladderholdout.errors import InvalidArgument, did_you_mean
from ladderholdout.guard import commands
from ladderholdout.identity.spelling import plain_numbers
from ladderholdout.remote import tables

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow

T = TypeVar("T")

_FILES = "A file of rows or predictions"
_TRUTH = ({"True", "False"}, {"TRUE", "FALSE"}, {"true", "false"})
_COMMAS = re.compile(r"[+-]?[0-9]+(,[0-9]+)?")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RowsFile:
    """A file of rows: its features as pandas reads them, and columns apart that nobody guesses."""

    features: pd.DataFrame
    apart: tables.Table

    def column(self, argument: str, name: str) -> Any:
        """Return a column that was taken apart."""
        place = self.apart.place_of(name)
        assert place is not None
        return self.apart.columns[place]


def read_rows(path: Path, apart: dict[str, Sequence[str]]) -> RowsFile:
    """Read a file of rows.

    Parameters
    ----------
    path : Path
        Ending in .csv, .parquet or .arrow.
    apart : dict
        The columns that are no features, by the options that name them.

    Raises
    ------
    InvalidArgument
        It is no such file, lacks a column, or a line of it has another number of fields.
    MissingExtra
        What reads it is not installed.
    """
    with extras.needed(_FILES):
        import pandas  # noqa: F401
    wanted = {name.strip() for names in apart.values() for name in names}
    if _kind(path) == ".csv":
        file = tables.read_csv(_bytes(path), "the file", wanted=lambda name: name.strip() in wanted)
        _check_named([*file.named.values()], apart)
        return RowsFile(_features(file, wanted), replace(file, text=""))
    arrow = _arrow(path, _bytes(path))
    frame = _read(path, arrow.to_pandas)
    names = [*map(str, frame.columns)]
    if frame.index.name in wanted and frame.index.name not in names:
        frame = frame.reset_index()
        names = [*map(str, frame.columns)]
    _check_named(names, apart)
    places = [place for place, name in enumerate(names) if name.strip() in wanted]
    columns = [frame.iloc[:, place] for place in places]
    table = tables.Table(tuple(names[place] for place in places), tuple(columns))
    left = [place for place in range(len(names)) if place not in places]
    features = frame.iloc[:, left]
    if left and names[left[0]] in tables.UNNAMED:
        features = _indexed(features.iloc[:, 1:], features.iloc[:, 0].tolist())
    return RowsFile(features, table)


def _check_named(names: Sequence[str], apart: dict[str, Sequence[str]]) -> None:
    """Refuse options that name no column, or two."""
    bare = [name.strip() for name in names]
    for argument, wanted in apart.items():
        for name in wanted:
            count = bare.count(name.strip())
            if count == 1:
                continue
            if count > 1:
                actual = f"a name that {count} columns have"
                raise InvalidArgument(argument, "the name of one column", actual)
            # Not all names: where the header is missing, the first row and its label would be
            # shown.
            close = did_you_mean(name, names)
            remedy = close or "The first line has to name the columns."
            raise InvalidArgument(argument, f"one of the {len(names)} columns", repr(name), remedy)


def _features(file: tables.Table, wanted: set[str]) -> pd.DataFrame:
    """Read the features as pandas does by default, each column as a whole."""
    with extras.needed(_FILES):
        import pandas

    features = {place: n for place, n in file.named.items() if n.strip() not in wanted}
    places, rows = [*features], len(file)
    if places:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own: what it makes of the cells is tested
            frame = pandas.read_csv(
                io.StringIO(file.text, newline=""),
                sep=file.delimiter,
                header=None,
                skiprows=1,
                index_col=False,
                usecols=places,
                low_memory=False,
            )
        frame.columns = pandas.Index(_distinct([*features.values()]))
    else:
        frame = pandas.DataFrame(index=range(rows))
    if len(frame) != rows:
        actual = f"in another form: {rows} rows by one count, {len(frame)} by another"
        raise InvalidArgument("the file", "CSV with a row in each line", actual)
    if file.delimiter != ",":
        _check_commas(frame, file)
    return frame if file.index is None else _indexed(frame, list(file.index))


def _distinct(names: Sequence[str]) -> list[str]:
    """Return names as pandas makes them distinct: a second "a" is "a.1"."""
    seen: dict[str, int] = {}
    distinct = []
    for place, name in enumerate(names):
        name = name or f"Unnamed: {place}"
        count = seen.get(name, 0)
        seen[name] = count + 1
        distinct.append(f"{name}.{count}" if count else name)
    return distinct


def _check_commas(frame: pd.DataFrame, table: tables.Table) -> None:
    """Refuse features that were read as texts because of their decimal commas."""
    for column in range(frame.shape[1]):
        cells = frame.iloc[:, column].dropna().tolist()
        if not cells or not all(isinstance(cell, str) for cell in cells):
            continue
        if not all(_COMMAS.fullmatch(cell) for cell in cells):
            continue
        place = next(place for place, cell in enumerate(cells) if "," in cell)
        cause, remedy = tables.why_no_number(cells[place])
        actual = f"with {cause} in {table.where(place)}"
        raise InvalidArgument("the file", "CSV whose numbers have decimal points", actual, remedy)


def _indexed(frame: pd.DataFrame, labels: list[Any]) -> pd.DataFrame:
    """Take what a file has as names of the rows for their index, unless it only counts them."""
    with extras.needed(_FILES):
        import pandas

    if len(set(labels)) < len(labels):
        actual = "with a first column that has no name and is no index, for it repeats itself"
        raise InvalidArgument("the file", "CSV with a name for each column", actual)
    if all(isinstance(label, str) for label in labels):
        labels = plain_numbers(labels) or labels
    if labels in (list(range(len(labels))), list(range(1, len(labels) + 1))):
        return frame
    return frame.set_axis(pandas.Index(labels), axis=0)


def target_of(
    file: RowsFile,
    argument: str,
    name: str,
    *,
    numbers: bool,
    missing_texts: Sequence[str] = (),
    texts: bool = False,
) -> NDArray[Any]:
    """Return a column of labels, targets, weights or ids in the type that its texts have.

    Parameters
    ----------
    file : RowsFile
    argument, name : str
        The option, and the column that it names.
    numbers : bool
        Whether it has to hold numbers, as the targets of a regression do. Else they are texts,
        unless each is the plain spelling of its number.
    missing_texts : sequence of str
        Texts that mean a missing value.
    texts : bool, default=False
        Whether they stay texts, though all of them may be numbers.

    Raises
    ------
    InvalidArgument
        A cell is missing, or no number where numbers are needed.
    """
    column, table = file.column(argument, name), file.apart
    if table.starts is None:
        gone = np.asarray(column.isna()) | np.asarray(column.isin([*missing_texts]))
        _check_there(argument, table, np.flatnonzero(gone).tolist())
        return np.asarray(column)
    wrong = [row for row, text in enumerate(column) if not text.strip() or text in missing_texts]
    _check_there(argument, table, wrong)
    if numbers:
        return tables.numbers_of(column, table, argument, "a column of numbers")
    bare = {text: text.strip() for text in dict.fromkeys(column)}
    if len(set(bare.values())) == len(bare):  # else the spaces distinguish some
        column = [bare[text] for text in column]
    if texts:
        return np.array(column, dtype=object)
    for pair in _TRUTH:
        if set(column) <= pair:
            return np.array([text.lower() == "true" for text in column])
    plain = plain_numbers(column)
    return np.array(plain) if plain is not None else np.array(column, dtype=object)


def _check_there(argument: str, table: tables.Table, wrong: Sequence[int]) -> None:
    if len(wrong):
        actual = f"missing in {len(wrong)} rows, the first in {table.where(wrong[0])}"
        remedy = "Give each row its value, or leave rows without one out."
        raise InvalidArgument(argument, "there for each row", actual, remedy)


def ids_of(file: RowsFile, name: str, argument: str = "--ids", *, texts: bool = False) -> list[Any]:
    """Return the column of ids, or of groups, in the type that its texts have, or as texts."""
    column = file.column(argument, name)
    names = list(column)
    # Those that repeat name groups of rows, of which a registration warns.
    tables.check_ids(names, file.apart, argument, distinct=False)
    if file.apart.starts is None:
        return names
    return names if texts else plain_numbers(names) or names


def predictions_from(
    path: Path, form: tables.Form, *, ids: str | None = None, folder: Path | None = None
) -> Any:
    """Read predictions from a file, in the types that the holdout was registered with.

    The file has one column, or one for each class that is named after it; CSV cells are read as
    text. Or it is a .npy file, with the array. With a `folder` it has to be inside of it.

    Raises
    ------
    InvalidArgument, InvalidSubmission
        The file cannot be read as predictions for this metric.
    """
    if path.suffix.lower() == ".npy":
        if ids is not None:
            raise InvalidArgument("ids", "left out for a .npy file, which names no column", "given")
        return commands.array_from(_bytes(path, folder))
    kind, data = _kind(path), _bytes(path, folder)
    if kind == ".csv":
        table = tables.read_csv(data, "predictions", header=form.header)
    else:
        table = tables.table_of(_arrow(path, data))
    return tables.predictions_in(table, form, ids)


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet", ".arrow"):
        allowed = "a .csv or .parquet one, or one in Arrow's format (.arrow)"
        raise InvalidArgument("the file", allowed, path.name or repr(str(path)))
    return kind


def _bytes(path: Path, folder: Path | None = None) -> bytes:
    try:
        if folder is None:
            return path.read_bytes()
        with open(process.open_inside(folder, path), "rb") as file:
            return file.read()
    except OSError as fault:
        actual = f"{path}: {fault.strerror or 'it is none'}"
        raise InvalidArgument("the file", "one that can be read", actual) from None


def _arrow(path: Path, data: bytes) -> pyarrow.Table:
    with extras.needed(_FILES):
        from pyarrow import ipc, parquet
    if path.suffix.lower() == ".arrow":
        opened = ipc.open_file if data.startswith(b"ARROW1") else ipc.open_stream
        return _read(path, lambda: opened(data).read_all())
    return _read(path, lambda: parquet.read_table(io.BytesIO(data)))


def _read(path: Path, read: Callable[[], T]) -> T:
    kind = path.suffix.lower()
    try:
        return read()
    except ImportError:
        raise extras.missing(f"A {kind} file", "pyarrow") from None
    except Exception as fault:  # its text may show cells
        actual = f"{path}, which cannot ({type(fault).__name__})"
        raise InvalidArgument("the file", f"one that reads as {kind[1:]}", actual) from None
