"""The submissions of a ladder in columns: as objects, a million of them take gigabytes.

`History` and `AuditedSubmissions` are sequences that make each submission when it is asked for.
By a name they give a column, and by an array of truth values or of places a part of themselves.
"""

from __future__ import annotations

import json
import math
import zlib
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC
from itertools import chain
from typing import Any, Generic, Self, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ladderholdout.guard.views import Submission
from ladderholdout.ledger.events import FAULTS, Damaged
from ladderholdout.ledger.log import AT_A_TIME, Progress

T = TypeVar("T")
Array = NDArray[Any]

NONE = -1
"""What a column of whole numbers has for none; one of real numbers has nan."""


@dataclass(frozen=True, slots=True)
class AuditedSubmission:
    """One submission with its raw score beside what was released.

    All scores are in the metric's own sign, greater is better.

    Attributes
    ----------
    submission : Submission
        The submission as the history shows it.
    raw : float
        The empirical score on the holdout.
    incumbent_score : float
        The released score after it: that of the incumbent.
    gain : float or None
        Its raw score minus that of the incumbent before it; None for the first, for
        repeats, and before there was an incumbent.
    p_value : float or None
        The one-sided paired test's, that it is no better than that incumbent; None where
        the ledger does not hold what the test needs.
    corrected : float or None
        The same, corrected for all submissions that were compared (Holm).
    near_duplicate : bool
        Whether its predictions hardly differ from the incumbent's (see `Audit.near_duplicates`).
    after_opening : bool
        Whether it came after raw scores had been shown: it can not be certified.
    fresh : float or None
        Its score on the fresh rows, where its model was given.
    repeat_of : int or None
        The submission that had the same predictions first.
    disagreement : float or None
        How far its predictions were from the incumbent's: the share of examples that
        differ (class labels), else the mean absolute difference. None without an incumbent.
    clipped : int or None
        How many of its losses are outside of the stated range, to which intervals clip them. None
        where none can be, and for repeats.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> one = holdout.owner.audit().submissions[0]
    >>> one.number, one.is_repeat, one.is_release
    (1, False, True)
    """

    submission: Submission
    raw: float
    incumbent_score: float
    gain: float | None
    p_value: float | None
    corrected: float | None
    near_duplicate: bool
    after_opening: bool
    fresh: float | None = None
    repeat_of: int | None = None
    disagreement: float | None = None
    clipped: int | None = None

    @property
    def number(self) -> int:
        """The number of the submission."""
        return self.submission.number

    @property
    def is_repeat(self) -> bool:
        """Whether the same predictions had been submitted before."""
        return self.repeat_of is not None

    @property
    def is_release(self) -> bool:
        """Whether it became the incumbent."""
        return self.submission.improved and not self.is_repeat


class Contexts:
    """A column of contexts, compressed some at a time."""

    __slots__ = ("_blocks", "_ends", "_read")

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._ends = [0]
        self._read: tuple[int, list[dict[str, Any]]] = (NONE, [])

    def add(self, contexts: Sequence[Mapping[str, Any]]) -> None:
        """Add those of the next submissions."""
        self._blocks.append(zlib.compress(json.dumps(contexts).encode(), 1))
        self._ends.append(self._ends[-1] + len(contexts))

    def __getitem__(self, rows: slice | Array) -> Array:
        places = range(self._ends[-1])[rows] if isinstance(rows, slice) else rows.tolist()
        return np.fromiter(map(self._at, places), object, len(places))

    def _at(self, place: int) -> dict[str, Any]:
        block = bisect_right(self._ends, place) - 1
        if self._read[0] != block:
            self._read = block, json.loads(zlib.decompress(self._blocks[block]))
        return self._read[1][place - self._ends[block]]


class GrowingColumns:
    """Columns that are filled a block at a time, without a copy of them at the end.

    Parameters
    ----------
    total : int
        How many rows are expected.
    """

    __slots__ = ("_columns", "_length", "_total")

    def __init__(self, total: int) -> None:
        self._columns: dict[str, Array] = {}
        self._length, self._total = 0, total

    def __len__(self) -> int:
        return self._length

    def add(self, block: Mapping[str, Array]) -> None:
        """Add the next rows."""
        end = self._length + len(block["number"])
        for name, values in block.items():
            column = self._columns.get(name)
            if column is None:
                column = np.empty(max(self._total, end), values.dtype)
            elif end > len(column):
                column = np.concatenate([column, np.empty_like(column, shape=end)])
            column[self._length : end] = values
            self._columns[name] = column
        self._length = end

    def columns(self) -> dict[str, Array]:
        """Return the columns up to their last row; an entry that was not found was changed."""
        if self._length < self._total:
            raise Damaged
        return {name: column[: self._length] for name, column in self._columns.items()}


Readers: TypeAlias = Mapping[str, tuple[Any, Callable[[Any], Any]]]
"""For each column the type of its values, and what reads a value of a submission.

Texts are stored as their places among all of them.
"""

OF_ALL: Readers = {
    "number": (np.int32, lambda row: row.number),
    "time": ("datetime64[us]", lambda row: row.time.astimezone(UTC).replace(tzinfo=None)),
    "batch": (str, lambda row: row.batch),
}
"""The columns that are read of every record in the same way."""


# Those of what may be shown to everybody.
SHOWN: Readers = {
    "score": (np.float64, lambda row: row.score),
    "improved": (np.bool_, lambda row: row.improved),
    "withdrawn": (str, lambda row: row.withdrawn),
    "known_repeat_of": (np.int32, lambda row: row.repeat_of),
    "has_held": (np.bool_, lambda row: row.has_held),
}


def collected(
    pages: Iterable[Sequence[Any]],
    total: int,
    account: str,
    readers: Readers,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], Array]:
    """Collect submissions, which come a page at a time, in columns.

    Parameters
    ----------
    pages : iterable of sequences
        Their records, each of which has a context.
    total : int
        How many there are in all.
    account : str
        That of all of them.
    readers : mapping of str to (type, callable)
        The columns beside those that all records have.
    progress : callable, optional

    Returns
    -------
    tuple of (columns, texts)
        As `InColumns` takes them.
    """
    growing, contexts = GrowingColumns(total), Contexts()
    texts: dict[str | None, int] = {None: NONE}
    for page in chain(pages, [()]):  # the last one gives empty columns their type
        block = {}
        try:
            for name, (kind, read) in {**OF_ALL, **readers}.items():
                values: Iterable[Any] = map(read, page)
                if kind is str:
                    kind, values = np.int32, (texts.setdefault(x, len(texts) - 1) for x in values)
                none = math.nan if kind is np.float64 else NONE
                block[name] = np.array([none if x is None else x for x in values], kind)
        except FAULTS:  # in evidence that was changed; their text shows it
            raise Damaged from None
        growing.add(block)
        contexts.add([row.context for row in page])
        if progress is not None:
            progress(len(growing), total)
    one = np.broadcast_to(np.array(account, object), len(growing))
    columns = growing.columns() | {"account": one, "context": contexts}
    return columns, np.array([*[*texts][1:], None], object)


class InColumns(Sequence[T], Generic[T]):
    """A sequence that is held in columns.

    Parameters
    ----------
    columns : mapping of str to ndarray of shape (n,)
        Those that `collected` returns, and others: time is in UTC; batch and withdrawn are places
        in `texts`.
    texts : ndarray of object
        None is the last of them.
    places : ndarray of int or None
        Which of all rows of the columns these are; None for all.
    """

    __slots__ = ("_columns", "_places", "texts")

    def __init__(
        self, columns: Mapping[str, Any], texts: Array, places: Array | None = None
    ) -> None:
        self._columns, self.texts, self._places = columns, texts, places

    def __len__(self) -> int:
        return len(self._columns["number"] if self._places is None else self._places)

    @overload
    def __getitem__(self, asked: str) -> Array: ...
    @overload
    def __getitem__(self, asked: int) -> T: ...
    @overload
    def __getitem__(self, asked: slice | Array) -> Self: ...

    def __getitem__(self, asked: Any) -> Any:
        if isinstance(asked, str):
            column = self._columns[asked]
            return column if self._places is None else column[self._places]
        if isinstance(asked, slice | np.ndarray):
            every = self._places
            if every is None:
                every = np.arange(len(self), dtype=np.int32)  # half the bytes, and enough
            return type(self)(self._columns, self.texts, every[asked])
        place = range(len(self))[asked]
        return next(iter(self[place : place + 1]))

    def __iter__(self) -> Iterator[T]:
        return map(self._made, self.rows_of([*self._columns]))

    def rows_of(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the values of some columns, as those of Python; None where there is none."""
        for start in range(0, len(self), AT_A_TIME):
            rows: Any = slice(start, start + AT_A_TIME)
            rows = rows if self._places is None else self._places[rows]
            parts = {name: self._columns[name][rows] for name in names}
            parts |= {name: self.texts[parts[name]] for name in _TEXTS & parts.keys()}
            for values in zip(*map(_values_of, parts.values()), strict=True):
                yield dict(zip(names, values, strict=True))

    @abstractmethod
    def _made(self, row: Mapping[str, Any]) -> T:
        """Make what is in one row."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InColumns | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # contexts are no keys

    def __repr__(self) -> str:
        return f"<{len(self)} submissions>"


_TEXTS = frozenset({"batch", "withdrawn"})


def _values_of(column: Array) -> list[Any]:
    """Return a column as a list: values of Python's own are quicker than those of an array."""
    values: list[Any] = column.tolist()
    match column.dtype.kind:
        case "M":
            return [value.replace(tzinfo=UTC) for value in values]
        case "f" if np.isnan(column).any():
            return [None if math.isnan(value) else value for value in values]
        case "i":
            return [None if value == NONE else value for value in values]
    return values


class History(InColumns[Submission]):
    """The submissions as the history shows them.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> holdout.owner.audit().history["number"].tolist()
    [1, 2]
    """

    __slots__ = ()

    def _made(self, row: Mapping[str, Any]) -> Submission:
        return _submission(row)


def _submission(row: Mapping[str, Any]) -> Submission:
    shown = {name: row[name] for name in _SHOWN}
    return Submission(**shown, repeat_of=row["known_repeat_of"])


_SHOWN = (
    *("number", "time", "account", "batch", "score", "improved", "context", "withdrawn"),
    "has_held",
)


class AuditedSubmissions(InColumns[AuditedSubmission]):
    """The submissions with their raw scores, beside what was released.

    Examples
    --------
    >>> from ladderholdout import LadderHoldout
    >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
    >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
    >>> submissions = holdout.owner.audit().submissions
    >>> submissions["number"].tolist(), submissions.is_release.tolist()
    ([1, 2], [True, True])
    >>> [(row["number"], round(row["raw"], 3)) for row in submissions.rows()]
    [(1, 0.333), (2, 0.667)]
    """

    __slots__ = ()

    @property
    def history(self) -> History:
        """The submissions without anything raw."""
        return History(self._columns, self.texts, self._places)

    @property
    def is_repeat(self) -> Array:
        """Which had the same predictions as an earlier one."""
        return np.not_equal(self["repeat_of"], NONE)

    @property
    def is_release(self) -> Array:
        """Which became the incumbent; no repeat did."""
        return self["improved"]

    @property
    def best(self) -> AuditedSubmission | None:
        """What a search on raw scores would pick: the first of the best, if there is one."""
        return self[int(np.argmax(self["raw"]))] if len(self) else None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the submissions as flat rows, for tables of any kind.

        Yields
        ------
        dict
            One submission: its number, time (UTC), context, released score, raw score and what
            the audit found of it.
        """
        return self.rows_of(_OF_ROWS)

    def _made(self, row: Mapping[str, Any]) -> AuditedSubmission:
        return AuditedSubmission(_submission(row), *(row[name] for name in _AUDITED))


_AUDITED = tuple(field.name for field in fields(AuditedSubmission))[1:]
_OF_ROWS = (
    *("number", "time", "account", "batch", "raw", "released", "incumbent_score", "improved"),
    *("repeat_of", "disagreement", "near_duplicate", "gain", "p_value", "corrected", "fresh"),
    *("clipped", "after_opening", "context"),
)
