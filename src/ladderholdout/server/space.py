"""How much a body may hold, which is counted before any of its values is made.

A few bytes can state a million values: in Arrow a column of nothing, in JSON a list of empty lists.
What a submission needs is known from the holdout, so that whatever states more is refused at the
cost of counting it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import InvalidSubmission
from ladderholdout.guard import NamedPredictions, OpenLadder, commands
from ladderholdout.metrics import ItemMetric

_SMALL = 2**20  # bytes of a body that are taken whatever the holdout is
_OF_A_ROW, _OF_A_CELL = 1024, 64
_OF_AN_ANSWER = 4096  # characters of a text that a judge reads
_NOTES = 2**14  # marks beside predictions: a context may have as many characters
_LIST = re.compile(rb'"predictions"\s*:\s*\[')
_NUMBERS = {bool, int, float}


@dataclass(frozen=True, slots=True)
class Space:
    """What predictions for a holdout may hold.

    Attributes
    ----------
    rows, columns : int
        The shape of an array of predictions, in which a class or an output has a column.
    longest : int
        The characters of the longest name of a class.
    marks : int
        The most commas and the like in the name of a class.
    items : bool
        Whether a prediction is a text that a judge reads, of which `longest` characters are fine.
    """

    rows: int
    columns: int
    longest: int = 0
    marks: int = 0
    items: bool = False

    @classmethod
    def of(cls, ladder: OpenLadder) -> Space:
        """Return what the holdout of a ladder has space for."""
        n, classes = ladder.facts.n, ladder.facts.classes
        if isinstance(ladder.metric, ItemMetric):
            return cls(n, 1, _OF_AN_ANSWER, _OF_AN_ANSWER, items=True)
        if classes is None:
            return cls(n, ladder.rows().n_outputs)
        columns = max(len(classes), 2)
        if classes.dtype.kind not in "UO":
            return cls(n, columns)
        names = [str(label) for label in classes.tolist()]
        marks = max(sum(name.encode().count(mark) for mark in b",:[{;\t\r\n") for name in names)
        return cls(n, columns, max(map(len, names)), marks)

    @property
    def largest(self) -> int:
        """How many bytes a body of one submission may have."""
        return _SMALL + self.rows * (_OF_A_ROW + _OF_A_CELL * self.columns + 12 * self.longest)

    def read(self, value: Any) -> Any:
        """Read the predictions of a command; refuse others than there is space for."""
        if isinstance(value, Mapping):
            return self.check_array(commands.unpacked(self.check_packed(value)))
        if isinstance(value, list):
            return self.check_list(value)
        if not isinstance(value, np.ndarray | NamedPredictions):
            raise commands.not_read("predictions", "a list")
        return value

    def check_json(self, data: bytes, *, large: bool | None = None) -> None:
        """Refuse JSON of more values than one submission and its notes have.

        Parameters
        ----------
        data : bytes
        large : bool, optional
            Whether too short a list is refused unread: others are worth their own message.
        """
        large = len(data) > _SMALL if large is None else large
        values = data.count(b",") + data.count(b":")
        lists = data.count(b"[") + data.count(b"{")
        of_names = 1 + self.marks
        # Beside its numbers each row may have a text that names it.
        if values > 4 * self.rows * (self.columns + 1) * of_names + _NOTES:
            raise self._refused("more values")
        if lists > self.rows * of_names + _NOTES:
            raise self._refused("more lists")
        if data.count(b"\\") > self.rows * (2 * self.longest + 2) + _NOTES:
            raise self._refused("more characters that are written as numbers")
        if large and data.count(b",") < self.rows - 1 and _LIST.search(data):
            raise self._refused("fewer values")

    def check_batch(self, data: bytes, most: int) -> None:
        """Refuse JSON of more submissions, or of more values in any of them.

        Parameters
        ----------
        data : bytes
        most : int
            Submissions.
        """
        name, start = b'"predictions"', 0
        # Notes may have the name too.
        if data.count(name) > 4 * most:
            raise InvalidSubmission("the body", f"a batch of at most {most}", "of more")
        view = data[: data.find(name)] if name in data else data
        while view:
            self.check_json(view, large=len(data) > _SMALL)
            start += len(view)
            end = data.find(name, start + len(name))
            view = data[start : len(data) if end < 0 else end]

    def check_csv(self, data: bytes) -> None:
        """Refuse CSV of more lines or cells than predictions have."""
        lines = max(data.count(b"\n"), data.count(b"\r"))
        if lines > 2 * (self.rows + 2) * (1 + self.marks):
            raise self._refused("more lines")
        cells = sum(data.count(mark) for mark in (b",", b";", b"\t"))
        if cells > (self.rows + 1) * (self.columns + 4) * (1 + self.marks):
            raise self._refused("more cells")

    def check_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Refuse an array of another shape; cut texts, as `cut` does."""
        if self.items:
            raise self._no_texts()
        if (
            array.shape[:1] != (self.rows,)
            or not self.rows <= array.size <= self.rows * self.columns
        ):
            shape = f"an array of shape {array.shape}"
            raise InvalidSubmission("predictions", self._allowed(), shape)
        if array.dtype.kind == "U" and array.dtype.itemsize > 4 * (self.longest + 1):
            array = array.astype(f"U{self.longest + 1}")
        return array

    def check_packed(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Refuse an array in base64 of more bytes than a body may have."""
        text = value.get("npy")
        if isinstance(text, str) and len(text) > self.largest * 4 // 3:
            raise self._refused("more bytes")
        return value

    def check_list(self, values: list[Any]) -> list[Any] | NDArray[Any]:
        """Refuse a list of another length or depth; return numbers in few bytes, and cut texts."""
        if len(values) != self.rows:
            raise InvalidSubmission("predictions", self._allowed(), f"a list of {len(values)}")
        if self.items:
            # None is cut: another text would be judged than was sent.
            if any(not isinstance(text, str) or len(text) > self.longest for text in values):
                raise self._no_texts()
            return values
        inner = [value for row in values if isinstance(row, list) for value in row]
        if any(isinstance(value, list | dict) for value in inner):
            raise InvalidSubmission("predictions", self._allowed(), "lists within lists")
        # Of texts NumPy would make an array before it could be seen how long they are.
        if set(map(type, [row for row in values if not isinstance(row, list)] + inner)) <= _NUMBERS:
            numbers = _array(values)
            if numbers is not None:
                return self.check_array(numbers)
        return [self._cut_in(row) for row in values]

    def _cut_in(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.cut(text) if isinstance(text, str) else text for text in value]
        return self.cut(value) if isinstance(value, str) else value

    def cut(self, text: str, least: int = 0) -> str:
        """Return a text that is no name of a class with one character more than all of these.

        An array of texts takes for each of them what the longest one needs.
        """
        return text[: max(self.longest, least) + 1]

    def check_rows(self, rows: int) -> None:
        """Refuse another number of rows."""
        if rows != self.rows:
            raise InvalidSubmission("predictions", self._allowed(), f"a table of {rows} rows")

    def check_columns(self, columns: int) -> None:
        """Refuse more columns than there may be."""
        if not 1 <= columns <= self.columns + 1:
            width = f"a table of {columns} columns"
            raise InvalidSubmission("predictions", self._allowed(), width)

    def _allowed(self) -> str:
        return f"one for each of the {self.rows} rows" + (
            f", or up to {self.columns} columns" if self.columns > 1 else ""
        )

    def _no_texts(self) -> InvalidSubmission:
        allowed = f"a list of texts of at most {self.longest} characters, one for each row"
        remedy = "Send an object as its JSON, which the judge reads."
        return InvalidSubmission("predictions", allowed, "something else", remedy)

    def _refused(self, what: str) -> InvalidSubmission:
        return InvalidSubmission("predictions", self._allowed(), f"a body with {what}")


def _array(values: list[Any]) -> NDArray[Any] | None:
    """Return numbers as an array, in few bytes where they are whole; None for anything else."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        return None
    if array.dtype == np.int64:
        small = array.astype(np.int32)
        return small if np.array_equal(small, array) else array
    return array if array.dtype.kind in "bf" else None
