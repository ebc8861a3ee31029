"""Tables in files and requests, CSV and Arrow, and the predictions in them.

One reader for all, which guesses nothing: the fields of CSV are counted line by line, and its cells
stay texts until the types with which the holdout was registered are known.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, InvalidSubmission
from ladderholdout.guard import commands
from ladderholdout.guard.rows import NamedPredictions
from ladderholdout.identity.spelling import any_number, plain_number
from ladderholdout.metrics import Metric, arrays

if TYPE_CHECKING:
    import pyarrow

# What pandas and others call the column of an index that has no name.
UNNAMED = ("", "Unnamed: 0", "__index_level_0__")

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DELIMITERS = (",", ";", "\t")
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs"}
_DIGITS = re.compile(r"[+-]?[0-9]+")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_GROUPS = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")
_POINTS = "Write numbers with a decimal point and nothing between thousands: 1234.5."
_MISSING = {"", "na", "n/a", "nan", "null", "none", "#n/a", "-"}

# A cell may be a whole document; by default the module of CSV takes 131,072 characters.
csv.field_size_limit(max(csv.field_size_limit(), 2**30))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """Columns as they were read.

    Attributes
    ----------
    names : tuple of str
        Names of the columns; empty texts where no line names them.
    columns : tuple of sequences
        Texts of CSV, else values of the types that the file has.
    index : sequence or None
        What the file has as names of the rows, where it has any, and `index_name` their name.
    starts : sequence of int or None
        Of CSV: the line in which each row begins.
    text, delimiter : str
        Of CSV: all of it from the header on, and what is between its fields.
    named : mapping of int to str
        Of CSV: all columns that the header names but that of an index, by their places in a row.
    """

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    index: Sequence[Any] | None = None
    index_name: str = ""
    starts: Sequence[int] | None = None
    text: str = ""
    delimiter: str = ","
    named: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        some = self.columns or (() if self.index is None else (self.index,))
        return len(some[0]) if some else 0

    def where(self, place: int) -> str:
        """Name the place of a row: its line in CSV."""
        return f"row {place + 1}" if self.starts is None else f"line {self.starts[place]}"

    def place_of(self, name: str) -> int | None:
        """Return the place of a column by its name, around which there may be spaces; or None."""
        for known in (self.names, [name.strip() for name in self.names]):
            for wanted in (name, name.strip()):
                if wanted in known:
                    return list(known).index(wanted)
        return None


def read_csv(
    data: bytes,
    argument: str,
    *,
    header: bool = True,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Table:
    """Read CSV: commas between the fields, or semicolons or tabs where the header has no comma.

    Parameters
    ----------
    data : bytes
        In UTF-8, or in UTF-16 with a mark. A first line ``sep=;`` states what is between fields.
    argument : str
        What the caller calls it, for errors.
    header : bool, default=True
        Whether the first line names the columns.
    wanted : callable
        Which columns are kept, by their names.

    Raises
    ------
    InvalidArgument
        A line has another number of fields than the header, is blank, or cannot be read;
        `InvalidSubmission` of predictions.
    """
    text, delimiter, first = _begun(data, argument, header)
    rows = _rows(text, delimiter, first, argument)
    begin = next(rows, None)
    if begin is None:
        _refuse_form(argument, "nothing")
    names = tuple(begin[1]) if header else ("",) * len(begin[1])
    refuse = partial(_refuse_fields, argument, names, delimiter, begin[0])
    indexed = header and len(names) > 1 and names[0] in UNNAMED
    every = list(range(int(indexed), len(names)))
    kept = [place for place in every if wanted(names[place])]
    cells: list[list[str]] = [[] for _ in kept]
    starts: list[int] = []
    labels: list[str] = []
    first_row: list[str] = []
    # Rows have one field more than the header where R wrote the names of rows.
    blank, shift, quoted, last = 0, 0, True, False
    for start, row, raw in rows if header else chain([begin], rows):
        if not row or (len(row) == 1 and not row[0].strip() and '"' not in raw):
            blank = blank or start  # blank lines may be at the end
            continue
        if blank:
            _refuse_blank(argument, blank)
        if not starts:
            first_row, shift = row, int(len(row) == len(names) + 1)
        if len(row) != len(names) + shift:
            refuse(*((starts[0], first_row) if len(row) == len(names) else (start, row)))
        quoted = quoted and raw.startswith('"')
        last = last or bool(row[-1].strip())
        starts.append(start)
        if shift or indexed:
            labels.append(row[0])
        for column, place in zip(cells, kept, strict=True):
            column.append(row[place + shift])
    if shift and not (last and _name_rows(labels, quoted)):
        refuse(starts[0], first_row)
    if not starts:
        _refuse_form(argument, "a header alone" if header else "nothing")
    if header and every and not names[-1] and not last:  # a delimiter ends all lines
        every.pop()
        if kept and kept[-1] == len(names) - 1:
            kept.pop()
            cells.pop()
    return Table(
        tuple(names[place] for place in kept),
        tuple(cells),
        labels if shift or indexed else None,
        starts=starts,
        text=text,
        delimiter=delimiter,
        named={place + shift: names[place] for place in every},
    )


def _begun(data: bytes, argument: str, header: bool) -> tuple[str, str, int]:
    """Return the text from its header on, what is between its fields, and the header's line."""
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        _refuse_form(argument, "in another encoding")
    doubled = text.count("\r\r\n")
    if doubled and doubled == text.count("\n"):  # CSV that was translated to Windows twice
        text = text.replace("\r\r\n", "\r\n")
    line, delimiter = 1, ""
    lines = io.StringIO(text, newline="")
    for begun in lines:
        stated = begun.strip().strip('"')
        if line == 1 and stated.lower().startswith("sep=") and len(stated) <= 5:
            delimiter = stated[4:] or "\t"
        elif stated or not header:
            delimiter = delimiter or _delimiter(begun)
            return begun + lines.read(), delimiter, line
        line += 1
    return "", ",", line


def _delimiter(header: str) -> str:
    for delimiter in _DELIMITERS:
        if len(next(csv.reader([header], delimiter=delimiter), [])) > 1:
            return delimiter
    return ","


def _rows(
    text: str, delimiter: str, first: int, argument: str
) -> Iterator[tuple[int, list[str], str]]:
    """Yield each row with the line in which it begins, and the last of its lines as it is."""
    raw = [""]

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            raw[0] = line
            yield line

    reader, start = csv.reader(lines(), delimiter=delimiter, strict=True), first
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            actual = f"with a quote in the row of line {start} that is not closed as CSV closes it"
            remedy = 'Write a quote inside of a cell twice, and close each cell: "a ""b"" c".'
            raise arrays.refusal(argument, "CSV", actual, remedy) from None
        if row is None:
            return
        yield start, row, raw[0]
        start = first + reader.line_num


def _name_rows(labels: list[str], quoted: bool) -> bool:
    """Return whether a first column without a header looks like names of rows."""
    counted = any(labels == [str(first + row) for row in range(len(labels))] for first in (0, 1))
    texts = all(any_number(label) is None for label in labels)
    return len(set(labels)) == len(labels) and (counted or quoted or texts)


def _refuse_blank(argument: str, line: int) -> NoReturn:
    remedy = (
        "It may mean a missing value: give the cell its value, or remove the line where no row is "
        "meant."
    )
    actual = f"with a blank line: line {line}"
    raise arrays.refusal(argument, "CSV with a row in each line", actual, remedy)


def _refuse_fields(
    argument: str, names: Sequence[str], delimiter: str, line: int, start: int, row: list[str]
) -> NoReturn:
    """Refuse a row of another number of fields than the header in a line; name the likely cause."""
    digits = [bool(_DIGITS.fullmatch(cell.strip())) for cell in row]
    pairs = any(first and second for first, second in pairwise(digits))
    if len(row) < len(names):
        cause = "a field is missing, or a line break in a cell has no quotes around it"
        remedy = (
            "Give each line as many fields as the header has, and put such cells into double "
            "quotes."
        )
    elif not row[-1].strip():
        cause = "it ends with one more delimiter"
        remedy = "Remove the delimiter at the end of the lines, or end the header with one too."
    elif delimiter == "," and pairs:
        cause = "numbers seem to have decimal commas, or commas between thousands"
        remedy = _POINTS
    else:
        cause = (
            f"the header lacks a name, or a cell with {_NAMES.get(delimiter, 'it')} in it has no "
            "quotes"
        )
        remedy = "Name every column in the header, and put such cells into double quotes."
    allowed = f"CSV with as many fields in each line as line {line} has, {len(names)}"
    raise arrays.refusal(argument, allowed, f"with {len(row)} in line {start}: {cause}", remedy)


def _refuse_form(argument: str, actual: str) -> NoReturn:
    raise arrays.refusal(
        argument,
        "CSV with a header, and a line for each row below it, in UTF-8 or UTF-16",
        actual,
        'Write it in Python with frame.to_csv("file.csv", index=False), or from a spreadsheet as '
        '"CSV UTF-8".',
    )


def cells_of(column: pyarrow.ChunkedArray) -> Sequence[Any]:
    """Return the values of a column, numbers of less than double precision as they are."""
    if str(column.type) in ("halffloat", "float") and not column.null_count:
        cells: Sequence[Any] = column.to_numpy()
        return cells
    values: list[Any] = column.to_pylist()
    return values


def table_of(
    arrow: pyarrow.Table,
    read: Callable[[pyarrow.ChunkedArray], Sequence[Any]] | None = None,
) -> Table:
    """Return an Arrow table with the index that pandas wrote beside its columns."""
    read = read or cells_of
    stated = (arrow.schema.pandas_metadata or {}).get("index_columns", [])
    indexed = [name for name in stated if isinstance(name, str) and name in arrow.column_names]
    if not indexed:
        indexed = [name for name in arrow.column_names[:1] if name in UNNAMED[1:]]
    index: Sequence[Any] | None = None
    name = ""
    if indexed:
        labels = [read(arrow.column(column)) for column in indexed]
        index = labels[0] if len(labels) == 1 else list(zip(*labels, strict=True))
        name = indexed[0] if len(labels) == 1 and indexed[0] not in UNNAMED else ""
    for column in stated:
        if isinstance(column, dict) and column.get("kind") == "range":
            counted = range(column["start"], column["stop"], column["step"])
            if len(counted) == len(arrow):
                index, name = counted, str(column["name"] or "")
    places = [place for place, other in enumerate(arrow.column_names) if other not in indexed]
    return Table(
        tuple(arrow.column_names[place] for place in places),
        tuple(read(arrow.column(place)) for place in places),
        index,
        name,
    )


def why_no_number(text: str) -> tuple[str, str]:
    """Return why a text is no number as programs write them, and what to do about it.

    Examples
    --------
    >>> why_no_number("5,327")[0]
    'a decimal comma, or a comma between thousands'
    """
    text = text.strip()
    if _COMMA.fullmatch(text) or _GROUPS.fullmatch(text):
        return "a decimal comma, or a comma between thousands", _POINTS
    if text.endswith("%"):
        return "a percent sign", "Write percentages as numbers, without the sign."
    if text.endswith((";", "\t", "|")):
        return "a delimiter at its end", "Remove the delimiter at the end of the lines."
    if text.lower() in _MISSING:
        return "a missing value", "Give each row its value, or leave rows without one out."
    if any_number(text.strip("$€£ ")) is not None:
        return "a sign of a currency", "Write numbers without it."
    return "another text", "Write each number as programs do: 12, 0.5 or 1e-05."


# -- predictions ------------------------------------------------------------------------

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


def _without_ids(table: Table, ids: str) -> tuple[Table, Sequence[Any]]:
    """Part the ids from the other columns; refuse ids that are missing or repeated."""
    place = table.place_of(ids)
    if place is not None:
        names = table.columns[place]
        rest = [other for other in range(len(table.names)) if other != place]
        columns = tuple(table.columns[other] for other in rest)
        left = Table(tuple(table.names[other] for other in rest), columns, starts=table.starts)
    elif table.index is not None and ids == table.index_name:
        names, left = table.index, table
    else:
        actual = f"{ids!r}, which names none of them"
        raise InvalidArgument("ids", f"one of the {len(table.names)} columns", actual)
    check_ids(names, table)
    return left, names


def check_ids(
    names: Sequence[Any], table: Table, argument: str = "ids", *, distinct: bool = True
) -> None:
    """Refuse ids that are missing, or come twice where each names a row, with the line."""
    longest = max((len(name) for name in names if isinstance(name, str)), default=0)
    if longest > commands.LONGEST_ID:  # whole texts, and no names of rows
        allowed = f"of at most {commands.LONGEST_ID} characters each"
        raise InvalidArgument(argument, allowed, f"one of {longest}")
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
        and (classes is None or -1 in arrays.class_codes(table.names, classes))
    ):
        raise _too_many(table, form, "one column of scores")
    if several and classes is not None:
        order = _order(table, form, classes)
    if several and response == "values" and table.names[0].strip().lower() in _IDS:
        raise _too_many(table, form, "columns of values alone")
    numbers = [_numbers(table.columns[column], table) for column in order]
    if response == "scores" and several:
        return numbers[1]
    if classes is not None and arrays.is_of_first(table.names, classes):
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
    codes = arrays.class_codes(table.names, classes)
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
        raise arrays.refusal(argument, what, f"{actual}{table.where(wrong[0])}: {cause}", remedy)
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
    raise arrays.refusal(argument, f"{kind}, like the holdout's labels", actual, remedy)


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
