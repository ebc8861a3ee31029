"""Tables in files and requests, CSV and Arrow: one reader for all, which guesses nothing.

The fields of CSV are counted line by line, and its cells stay texts.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from ladderholdout.identity.spelling import any_number
from ladderholdout.metrics.arrays import refusal

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
    """

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    index: Sequence[Any] | None = None
    index_name: str = ""
    starts: Sequence[int] | None = None

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Csv:
    """CSV whose lines were counted.

    Attributes
    ----------
    text : str
        All of it from the header on.
    delimiter : str
    table : Table
        The columns that were asked for.
    names : tuple of str
        All columns that the header names, but that of an index.
    places : tuple of int
        Places of these columns in each row.
    """

    text: str
    delimiter: str
    table: Table
    names: tuple[str, ...]
    places: tuple[int, ...]


def read_csv(
    data: bytes,
    argument: str,
    *,
    header: bool = True,
    wanted: Callable[[str], bool] = lambda name: True,
) -> Csv:
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
    assert begin is not None
    names = tuple(begin[1]) if header else ("",) * len(begin[1])
    collected = _collected(begin, rows, names, delimiter, argument, header, wanted)
    return Csv(text, delimiter, *collected)


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
            raise refusal(argument, "CSV", actual, remedy) from None
        if row is None:
            return
        yield start, row, raw[0]
        start = first + reader.line_num


def _collected(
    begin: tuple[int, list[str], str],
    rows: Iterator[tuple[int, list[str], str]],
    names: tuple[str, ...],
    delimiter: str,
    argument: str,
    header: bool,
    wanted: Callable[[str], bool],
) -> tuple[Table, tuple[str, ...], tuple[int, ...]]:
    """Count the fields of each row, and collect the columns that are wanted."""
    count = _Count(argument, names, delimiter, begin[0])
    indexed = header and len(names) > 1 and names[0] in UNNAMED
    every = list(range(int(indexed), len(names)))
    kept = [place for place in every if wanted(names[place])]
    cells: list[list[str]] = [[] for _ in kept]
    starts: list[int] = []
    labels: list[str] = []
    if not header:
        rows = chain([begin], rows)
    for start, row, raw in rows:
        if not count.takes(start, row, raw):
            continue
        starts.append(start)
        shift = count.shift
        if shift or indexed:
            labels.append(row[0])
        for column, place in zip(cells, kept, strict=True):
            column.append(row[place + shift])
    if count.shift:
        count.check_row_names(labels)
    if not starts:
        _refuse_form(argument, "a header alone" if header else "nothing")
    if header and every and not names[-1] and not count.last:  # a delimiter ends all lines
        every.pop()
        if kept and kept[-1] == len(names) - 1:
            kept.pop()
            cells.pop()
    table = Table(
        tuple(names[place] for place in kept),
        tuple(cells),
        labels if count.shift or indexed else None,
        "",
        starts,
    )
    shifted = tuple(place + count.shift for place in every)
    return table, tuple(names[place] for place in every), shifted


@dataclass(slots=True)
class _Count:
    """Counts the fields of each row, and names the likely cause where they are another number."""

    argument: str
    names: tuple[str, ...]
    delimiter: str
    line: int
    blank: int = 0
    # Whether all rows have one field more than the header, as with row names of R.
    shift: int = 0
    begun: bool = False
    quoted: bool = True
    last: bool = False
    first: tuple[int, list[str]] = (0, [])

    def takes(self, start: int, row: list[str], raw: str) -> bool:
        """Return whether this is a row, or a blank line that may be at the end."""
        if not row or (len(row) == 1 and not row[0].strip() and '"' not in raw):
            self.blank = self.blank or start
            return False
        if self.blank:
            actual = f"with a blank line: line {self.blank}"
            remedy = (
                "It may mean a missing value: give the cell its value, or remove the line "
                "where no row is meant."
            )
            raise refusal(self.argument, "CSV with a row in each line", actual, remedy)
        if not self.begun:
            self.begun, self.first = True, (start, row)
            self.shift = int(len(row) == len(self.names) + 1)
        if len(row) != len(self.names) + self.shift:
            self._refuse(*(self.first if len(row) == len(self.names) else (start, row)))
        if self.shift:
            self.quoted = self.quoted and raw.startswith('"')
        self.last = self.last or bool(row[-1].strip())
        return True

    def check_row_names(self, labels: list[str]) -> None:
        """Refuse a first column without a header that does not look like names of rows."""
        distinct = len(set(labels)) == len(labels)
        counted = any(
            labels == [str(first + row) for row in range(len(labels))] for first in (0, 1)
        )
        texts = all(any_number(label) is None for label in labels)
        if not (distinct and self.last and (counted or self.quoted or texts)):
            self._refuse(*self.first)

    def _refuse(self, start: int, row: list[str]) -> NoReturn:
        fields = len(self.names)
        cause, remedy = self._cause(row)
        allowed = f"CSV with as many fields in each line as line {self.line} has, {fields}"
        raise refusal(self.argument, allowed, f"with {len(row)} in line {start}: {cause}", remedy)

    def _cause(self, row: list[str]) -> tuple[str, str]:
        if len(row) > len(self.names) and not row[-1].strip():
            return (
                "it ends with one more delimiter",
                "Remove the delimiter at the end of the lines, or end the header with one too.",
            )
        digits = [bool(_DIGITS.fullmatch(cell.strip())) for cell in row]
        pairs = any(first and second for first, second in pairwise(digits))
        if self.delimiter == "," and len(row) > len(self.names) and pairs:
            return (
                "numbers seem to have decimal commas, or commas between thousands",
                "Write numbers with a decimal point and nothing between thousands: 1234.5.",
            )
        if len(row) > len(self.names):
            return (
                f"the header lacks a name, or a cell with {_NAMES.get(self.delimiter, 'it')} in "
                "it has no quotes",
                "Name every column in the header, and put such cells into double quotes.",
            )
        return (
            "a field is missing, or a line break in a cell has no quotes around it",
            "Give each line as many fields as the header has, and put such cells into double "
            "quotes.",
        )


def _refuse_form(argument: str, actual: str) -> NoReturn:
    raise refusal(
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
        return (
            "a decimal comma, or a comma between thousands",
            "Write numbers with a decimal point and nothing between thousands: 1234.5.",
        )
    if text.endswith("%"):
        return "a percent sign", "Write percentages as numbers, without the sign."
    if text.endswith((";", "\t", "|")):
        return "a delimiter at its end", "Remove the delimiter at the end of the lines."
    if text.lower() in _MISSING:
        return "a missing value", "Give each row its value, or leave rows without one out."
    if any_number(text.strip("$€£ ")) is not None:
        return "a sign of a currency", "Write numbers without it."
    return "another text", "Write each number as programs do: 12, 0.5 or 1e-05."
