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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ladderholdout.guard.views import Submission
from ladderholdout.ledger.events import Damaged
from ladderholdout.ledger.log import AT_A_TIME

T = TypeVar("T")
Array = NDArray[Any]

_JSON = json.JSONEncoder().encode

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
    """The contexts of many submissions, compressed some at a time.

    Parameters
    ----------
    blocks : iterable of (int, bytes)
        How many each holds, and what `packed` returned of them.
    """

    __slots__ = ("_blocks", "_ends", "_read")

    def __init__(self, blocks: Iterable[tuple[int, bytes]]) -> None:
        blocks_read = list(blocks)
        self._blocks = [packed for _, packed in blocks_read]
        self._ends = list(accumulate(count for count, _ in blocks_read))
        self._read: tuple[int, list[dict[str, Any]]] = (NONE, [])

    @staticmethod
    def packed(texts: Iterable[str]) -> bytes:
        """Compress contexts that are JSON."""
        return zlib.compress(f"[{','.join(texts)}]".encode("utf-8", "surrogateescape"), 1)

    def __getitem__(self, place: int) -> dict[str, Any]:
        block = bisect_right(self._ends, place)
        read, contexts = self._read
        if read != block:
            plain = zlib.decompress(self._blocks[block])
            contexts = json.loads(plain.decode("utf-8", "surrogateescape"))
            self._read = block, contexts
        return contexts[place - self._ends[block]]


class InColumns(Sequence[T], Generic[T]):
    """A sequence that is held in columns.

    Parameters
    ----------
    columns : mapping of str to ndarray of shape (n,)
        The columns; they include number, time (datetime64, UTC), score, improved, and the place of
        the batch in `batches`.
    batches : sequence of str
        The names of the batches.
    contexts : Contexts
    account : str
    withdrawn : mapping of int to str
        Why submissions were withdrawn, by their numbers.
    places : ndarray of int or None
        Which of all rows of the columns these are; None for all.
    """

    __slots__ = ("_places", "_shared", "batches")

    def __init__(
        self,
        columns: Mapping[str, Array],
        batches: Sequence[str],
        contexts: Contexts,
        account: str,
        withdrawn: Mapping[int, str],
        places: Array | None = None,
    ) -> None:
        self.batches = batches
        self._shared = (columns, batches, contexts, account, withdrawn)
        self._places = places

    def __len__(self) -> int:
        return len(self._shared[0]["number"] if self._places is None else self._places)

    @overload
    def __getitem__(self, asked: str) -> Array: ...
    @overload
    def __getitem__(self, asked: int) -> T: ...
    @overload
    def __getitem__(self, asked: slice | Array) -> Self: ...

    def __getitem__(self, asked: Any) -> Any:
        columns, *_ = self._shared
        if isinstance(asked, str):
            return columns[asked] if self._places is None else columns[asked][self._places]
        if isinstance(asked, slice | np.ndarray):
            every = self._places
            if every is None:
                every = np.arange(len(self), dtype=np.int32)  # half the bytes, and enough
            return type(self)(*self._shared, every[asked])
        place = range(len(self))[asked]
        return next(self._block(slice(place, place + 1)))

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(map(self._block, self._slices()))

    def _slices(self) -> Iterator[slice]:
        return (slice(start, start + AT_A_TIME) for start in range(0, len(self), AT_A_TIME))

    def _block(self, asked: slice) -> Iterator[T]:
        """Make what is in some rows."""
        plain, places = self._lists(asked)
        return (self._made(plain, row, place) for row, place in enumerate(places))

    def _lists(self, asked: slice) -> tuple[dict[str, list[Any]], Sequence[int]]:
        """Return some rows as lists, and their places among all rows of the columns.

        A value of Python's own is quicker than one of an array.
        """
        every = range(len(self))[asked]
        places = every if self._places is None else self._places[asked].tolist()
        rows = slice(every.start, every.stop) if self._places is None else places
        columns = self._shared[0]
        return {name: column[rows].tolist() for name, column in columns.items()}, places

    @abstractmethod
    def _made(self, columns: Mapping[str, Sequence[Any]], row: int, place: int) -> T:
        """Make what is in one row of columns in lists; `place` is its row among all."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InColumns | tuple):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # contexts are no keys

    def __repr__(self) -> str:
        return f"<{len(self)} submissions>"

    def _submission(self, columns: Mapping[str, Sequence[Any]], row: int, place: int) -> Submission:
        _, batches, contexts, account, withdrawn = self._shared
        number, batch = columns["number"][row], columns["batch"][row]
        return Submission(
            number=number,
            time=columns["time"][row].replace(tzinfo=UTC),
            account=account,
            batch=None if batch == NONE else batches[batch],
            score=known(columns["score"][row]),
            improved=columns["improved"][row],
            context=contexts[place],
            withdrawn=withdrawn.get(number),
            repeat_of=None if columns["repeats"][row] == NONE else columns["repeats"][row],
            has_held=columns["held"][row] and number not in withdrawn,
        )


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

    def _made(self, columns: Mapping[str, Sequence[Any]], row: int, place: int) -> Submission:
        return self._submission(columns, row, place)

    @classmethod
    def of(cls, pages: Iterable[Sequence[Submission]], total: int) -> History:
        """Collect what comes a page at a time, and is so long in all.

        Examples
        --------
        >>> from ladderholdout import LadderHoldout
        >>> holdout = LadderHoldout([[0], [1], [2]], [0, 1, 0], scoring="accuracy", ledger="memory")
        >>> releases = [holdout.submit(guess) for guess in ([0, 0, 1], [0, 1, 1])]
        >>> History.of([holdout.history()], total=2)["number"].tolist()
        [1, 2]
        """
        growing, batches = GrowingColumns(total), dict[str | None, int]()
        contexts, account = [], ""
        withdrawn: dict[int, str] = {}
        for page in chain(pages, [()]):  # the last one gives empty columns their type
            scores = (math.nan if row.score is None else row.score for row in page)
            growing.add(
                {
                    "number": np.array([row.number for row in page], np.int64),
                    "time": moments(row.time for row in page),
                    "batch": coded((row.batch for row in page), batches),
                    "score": np.fromiter(scores, np.float64),
                    "improved": np.array([row.improved for row in page], np.bool_),
                    "repeats": np.array([row.repeat_of or NONE for row in page], np.int32),
                    "held": np.array([row.has_held for row in page], np.bool_),
                }
            )
            contexts.append((len(page), Contexts.packed(_JSON(row.context) for row in page)))
            withdrawn |= {row.number: row.withdrawn for row in page if row.withdrawn is not None}
            account = page[0].account if page else account
        shared = names_of(batches), Contexts(contexts), account, withdrawn
        return cls(growing.columns(), *shared)


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
        return History(*self._shared, self._places)

    @property
    def is_repeat(self) -> Array:
        """Which had the same predictions as an earlier one."""
        return np.not_equal(self["repeat_of"], NONE)

    @property
    def is_release(self) -> Array:
        """Which became the incumbent."""
        return np.logical_and(self["improved"], ~self.is_repeat)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the submissions as flat rows, for tables of any kind.

        Yields
        ------
        dict
            One submission: its number, time (UTC), context, released score, raw score and what
            the audit found of it.
        """
        _, batches, contexts, account, _ = self._shared
        named = {NONE: None} | dict(enumerate(batches))
        for asked in self._slices():
            columns, places = self._lists(asked)
            for name in (*_KNOWN_OR_NONE, "score"):
                columns[name] = list(map(known, columns[name]))
            columns["time"] = [time.replace(tzinfo=UTC) for time in columns["time"]]
            columns["batch"] = [named[code] for code in columns["batch"]]
            for name in ("repeat_of", "clipped"):
                columns[name] = [None if value == NONE else value for value in columns[name]]
            columns |= {"account": [account] * len(places), "released": columns["score"]}
            columns["context"] = [dict(contexts[place]) for place in places]
            for values in zip(*(columns[name] for name in _OF_ROWS), strict=True):
                yield dict(zip(_OF_ROWS, values, strict=True))

    def _made(
        self, columns: Mapping[str, Sequence[Any]], row: int, place: int
    ) -> AuditedSubmission:
        repeat_of, clipped = columns["repeat_of"][row], columns["clipped"][row]
        return AuditedSubmission(
            submission=self._submission(columns, row, place),
            raw=columns["raw"][row],
            incumbent_score=columns["incumbent_score"][row],
            near_duplicate=columns["near_duplicate"][row],
            after_opening=columns["after_opening"][row],
            repeat_of=None if repeat_of == NONE else repeat_of,
            clipped=None if clipped == NONE else clipped,
            **{name: known(columns[name][row]) for name in _KNOWN_OR_NONE},
        )


_KNOWN_OR_NONE = ("gain", "p_value", "corrected", "fresh", "disagreement")
_OF_ROWS = (
    *("number", "time", "account", "batch", "raw", "released", "incumbent_score", "improved"),
    *("repeat_of", "disagreement", "near_duplicate", "gain", "p_value", "corrected", "fresh"),
    *("clipped", "after_opening", "context"),
)


def known(value: float) -> float | None:
    """Return a value of a column; None for nan."""
    return None if math.isnan(value) else value


def moments(times: Iterable[datetime]) -> Array:
    """Return times as a column."""
    plain = (time if time.tzinfo is UTC else time.astimezone(UTC) for time in times)
    return np.array([time.replace(tzinfo=None) for time in plain], "datetime64[us]")


def coded(names: Iterable[str | None], known_names: dict[str | None, int]) -> Array:
    """Return names by their places among all of them, to which new ones are added."""
    known = known_names.setdefault
    codes = (NONE if name is None else known(name, len(known_names)) for name in names)
    return np.fromiter(codes, np.int32)


def names_of(codes: Mapping[str | None, int]) -> tuple[str, ...]:
    """Return the names that `coded` has met, by their places."""
    return tuple(name for name in codes if name is not None)


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
