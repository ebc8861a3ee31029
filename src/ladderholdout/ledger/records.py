"""What a ledger holds, as frozen records, and how rows of the tables become such."""

from __future__ import annotations

import io
import json
import math
import re
import struct
import tokenize
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BindParameter, ColumnElement, Row, Select, and_, func, not_, or_, select

from ladderholdout.errors import HoldoutConflict
from ladderholdout.ledger.tables import (
    FAULTS,
    LargeBinary,
    candidates,
    damaged,
    holdouts,
    incumbents,
    ladders,
    read_json,
    submissions,
)


@dataclass(frozen=True, slots=True)
class HoldoutRecord:
    """A registered holdout, without its rows.

    Attributes
    ----------
    id, name : int, str
    fingerprint : str
        64 hex characters over the rows' features; labels never enter it.
    content_digest, secret : bytes
        The keyed digest of rows and labels, and its key (which also seeds the noise).
    n : int
        Number of rows.
    classes : ndarray or None
        All class labels, sorted; None where no metric has needed them.
    vault_path, vault_digest : str or None
        The private file and its SHA-256; None where no copy of the rows is kept.
    created : datetime
    retired : datetime or None
        Since when it takes no submissions.
    reserve : ndarray of bool, shape (n,), or None
        Which rows no ladder measures, in the order of the content.
    confidence : float
        Of all certificates, fixed at registration.
    labels_version : int
        One more than the number of amendments of its labels.
    estimand : {"rows", "groups"} or None
        Which mean certificates are of, where whole groups of rows were drawn; None where each row
        is a draw of its own.
    block : int
        Which block of rows of its holdout it is, from 1.
    """

    id: int
    name: str
    fingerprint: str
    content_digest: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    n: int
    classes: NDArray[Any] | None = field(repr=False, compare=False)
    vault_path: str | None
    vault_digest: str | None
    created: datetime
    retired: datetime | None
    reserve: NDArray[np.bool_] | None = field(repr=False, compare=False)
    confidence: float = 0.95
    labels_version: int = 1
    estimand: str | None = None
    block: int = 1

    @property
    def n_reserve(self) -> int:
        """Number of rows that no ladder measures."""
        return 0 if self.reserve is None else int(self.reserve.sum())

    @property
    def n_ladder(self) -> int:
        """Number of rows that the ladders measure."""
        return self.n - self.n_reserve


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KnownRows:
    """What the rows of a holdout are known by beside their features.

    Attributes
    ----------
    label_digests : ndarray of uint64, shape (n,)
        A keyed digest of each label, in the order of registration.
    places : ndarray of int, shape (n,)
        Of the rows in the order of the content, in which predictions are kept.
    ids : ndarray of uint64, shape (n,), or None
        A hash of each id; None where the user gave none.
    weight_digests : ndarray of uint64, shape (n,), or None
        Like those of the labels; None where all weights are one.
    labels_digest : bytes or None
        Of all labels in that order; None where another sequence may well be the same.
    groups : ndarray of uint64, shape (n,), or None
        A hash of each row's group; None where each row is a draw of its own.
    """

    label_digests: NDArray[np.uint64]
    places: NDArray[np.intp]
    ids: NDArray[np.uint64] | None = None
    weight_digests: NDArray[np.uint64] | None = None
    labels_digest: bytes | None = None
    groups: NDArray[np.uint64] | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ViewRecord:
    """The rows of a holdout with one set of features.

    Attributes
    ----------
    number : int
        From 1, which is what was registered.
    fingerprint : str
    row_hashes : ndarray of uint64, shape (n,)
        In the order in which the view was given first.
    places : ndarray of int, shape (n,)
        Of those rows in the order of the content.
    vault_path, vault_digest : str or None
    created : datetime
    """

    number: int
    fingerprint: str
    row_hashes: NDArray[np.uint64]
    places: NDArray[np.intp]
    vault_path: str | None
    vault_digest: str | None
    created: datetime


@dataclass(frozen=True, slots=True)
class LadderSettings:
    """What identifies a ladder on its holdout, and the rules that it always follows.

    Attributes
    ----------
    account, name : str
    metric : str
    metric_settings : Mapping
        What makes a metric of that name this one (a stated range of the loss).
    mechanism : str
    mechanism_settings : Mapping
    budget : int or None
        Releases allowed in all.
    unit : float or None
        Width of the loss range, by which risks are divided; None: adapted to the risk.
    show : str
        What answers have: "scores", or "improvements" alone.
    """

    account: str
    name: str
    metric: str
    metric_settings: Mapping[str, Any]
    mechanism: str
    mechanism_settings: Mapping[str, Any]
    budget: int | None
    unit: float | None
    show: str

    @property
    def shows_scores(self) -> bool:
        """Whether answers have the released score, and no request is needed."""
        return self.show == "scores"

    def __hash__(self) -> int:
        return hash((self.account, self.name, self.metric, self.mechanism, self.budget, self.show))


@dataclass(frozen=True, slots=True)
class Head:
    """Where a chain ends: what is anchored outside of the ledger.

    Attributes
    ----------
    length : int
        Number of links.
    hash : str
        Of the last link, 64 hex characters; it covers all of the others.

    Examples
    --------
    >>> print(Head(12, "9f3a"))
    12:9f3a
    """

    length: int
    hash: str

    def __str__(self) -> str:
        return f"{self.length}:{self.hash}"


EMPTY = Head(0, "")
"""Where a chain without links ends."""


@dataclass(slots=True)
class End:
    """What has to be known of a holdout to add to its chain."""

    name: str
    retired: datetime | None
    labels_version: int
    secret: bytes = field(repr=False)
    # They decide where the holdout's mark is.
    fingerprint: str
    vault_path: str | None
    # The last link inside this transaction, how many runs of batches had begun by then, and the
    # batch of the last submission.
    head: Head
    runs: int
    batch: str | None


@dataclass(frozen=True, slots=True)
class LadderRecord:
    """A ladder with its state.

    Attributes
    ----------
    id, holdout_id : int
    settings : LadderSettings
    created : datetime
    opened : datetime or None
        When an audit showed its raw scores.
    submissions : int
        Entries, repeats included.
    state : Mapping
        The mechanism's state in numbers (released risk, noise, releases).
    version : int
        How many incumbents there have been.
    incumbent : int or None
        The number of the incumbent's submission.
    withdrawals : int
        How many of its submissions were withdrawn.
    queries : int
        Submissions without the repeats whose answer was known to who submitted them.
    """

    id: int
    holdout_id: int
    settings: LadderSettings
    created: datetime
    opened: datetime | None
    submissions: int
    state: Mapping[str, Any] = field(repr=False)
    version: int
    incumbent: int | None
    withdrawals: int = 0
    queries: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One submission without anything raw.

    The analyst is shown it but for `digest` and `disagreement`, which depend on the holdout's
    features, and `repeat_of` unless it is `known`: then the predictions are the same on all rows,
    and who submitted them has both. `risk` is the released one; None if the ladder releases no
    values and it was not requested. `withdrawn` is the reason why the submission, or the one that
    it repeats, was withdrawn; `held` is whether these predictions have become the incumbent.
    """

    number: int
    time: datetime
    account: str
    batch: str | None
    search: str | None
    digest: str
    risk: float | None
    improved: bool
    repeat_of: int | None
    disagreement: float | None
    context: Mapping[str, Any]
    withdrawn: str | None = None
    place: int | None = None
    known: bool = False
    held: bool = False


class First(NamedTuple):
    """What repeats of a submission are answered from: the first one of its predictions or key.

    `level` is how many submissions had improved the ladder by then, where that is known.
    """

    number: int
    risk: float
    improved: bool
    repeat_of: int | None = None
    withdrawn: str | None = None
    level: int | None = None


class Asked(NamedTuple):
    """A submission that is about to be searched, by its digests and its key.

    `first` is the first submission of these predictions where a process remembers it.
    """

    digest: str
    reserve_digest: str | None
    key: str | None
    first: First | None = None


class Decided(NamedTuple):
    """What a gate decided on, for a retry under its key.

    `same` is whether these predictions, `against` the incumbent by then, `margin` the gain that was
    tested for; `candidates` and `releases` are how many there had been.
    """

    same: bool
    against: int | None
    margin: float
    candidates: int
    releases: int


class Recorded(NamedTuple):
    """What a replay needs of one submission, and what its predictions hash to; raw."""

    number: int
    repeat_of: int | None
    improved: bool
    risk: float
    evidence: Mapping[str, Any]
    digest: str
    reserve_digest: str | None
    queries: int | None = None


class AuditRow(NamedTuple):
    """What an audit needs of one submission, its context as JSON; raw."""

    number: int
    time: datetime
    batch: str | None
    repeat_of: int | None
    improved: bool
    released: float
    risk: float
    disagreement: float | None
    evidence: Mapping[str, Any]
    context: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One submission with what only an audit or a replay may see."""

    entry: Entry
    raw_risk: float
    evidence: Mapping[str, Any]
    reserve_digest: str | None

    @property
    def recorded(self) -> Recorded:
        """What a replay needs of this submission."""
        entry = self.entry
        assert entry.risk is not None  # nothing is hidden from an audit
        return Recorded(
            entry.number,
            entry.repeat_of,
            entry.improved,
            entry.risk,
            self.evidence,
            entry.digest,
            self.reserve_digest,
        )


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of a holdout that were seen elsewhere: in another holdout or in training."""

    source: str
    rows: int
    time: datetime


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """One submission that was withdrawn.

    Attributes
    ----------
    number : int
        The submission's.
    reason : str
    time : datetime
    until : int
        How many submissions the ladder had then.
    replaced : bool
        Whether it was the incumbent: the ladder went back.
    incumbent : int or None
        The submission that the ladder went back to; None where it began anew, and where the
        incumbent stayed.
    again : bool
        Whether submissions that were compared with it and did not improve are queries again
        when they are submitted once more.
    position : int
        In the holdout's chain.
    """

    number: int
    reason: str
    time: datetime
    until: int
    replaced: bool
    incumbent: int | None
    again: bool
    position: int

    def sets_aside(self, number: int) -> bool:
        """Return whether the first answer to a submission no longer counts as its answer."""
        return self.replaced and self.again and self.number < number <= self.until


Record = TypeVar("Record")

LARGEST_ARRAY = 2**32
"""In bytes, of an array that is kept compressed: one that states more was changed."""

Progress: TypeAlias = Callable[[int, int], None]
"""Is called with how many submissions were gone through, and of how many."""

AT_A_TIME = 1000
"""Rows that are held in memory where there may be millions."""

_MOST = 2**53
# Of holdouts, what is as long as their rows and asked for by itself.
_OF_EACH_ROW = (
    *("row_hashes", "ids", "labels_digest", "label_digests", "weight_digests", "places"),
    "groups",
)
NOT_IMPROVED: Mapping[str, Any] = {"answer": "not improved"}
"""The evidence of a repeat that nobody knows to be one: it is answered and counted as a query."""
KNOWN: Mapping[str, Any] = {"answer": "known"}
"""The evidence of a repeat whose answer was known to who submitted it, and which costs nothing."""
HELD: Mapping[str, Any] = {"answer": "known", "held": True}
"""The same, of what had improved its ladder when it was submitted first."""
is_known: ColumnElement[bool] = and_(
    submissions.c.repeat_of.is_not(None), submissions.c.evidence != json.dumps(NOT_IMPROVED)
)
_NOT_OF_ENTRIES = ("raw_risk", "evidence", "reserve_digest", "position", "hash")


_OF_BLOCK = re.compile(r"(.+)@([1-9][0-9]{0,8})", re.DOTALL)


def block_name(holdout: str, number: int) -> str:
    """Return the name of an earlier block of a holdout, once fresh rows took its place."""
    return f"{holdout}@{number}"


def parted_name(name: str) -> tuple[str, int | None]:
    """Return the name of the whole holdout, and which earlier block of it a name means, if one.

    >>> parted_name("coins"), parted_name("coins@2"), parted_name("ada@home")
    (('coins', None), ('coins', 2), ('ada@home', None))
    """
    parts = _OF_BLOCK.fullmatch(name)
    return (name, None) if parts is None else (parts[1], int(parts[2]))


FORGOTTEN = "\x1f"
"""Between the name of a holdout that was forgotten and its number: no other name has it."""


def is_standing() -> ColumnElement[bool]:
    """Select the holdouts that were not forgotten."""
    return not_(holdouts.c.name.contains(FORGOTTEN))


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def utc(time: datetime) -> datetime:
    """Return a stored time with its zone."""
    # SQLite keeps no time zone; all that is written is UTC.
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def to_bytes(array: NDArray[Any]) -> bytes:
    """Write an array without pickling it."""
    buffer = io.BytesIO()
    # Labels that are Python strings come as objects, which only a pickle could keep.
    np.save(buffer, array.astype(str) if array.dtype == object else array, allow_pickle=False)
    return buffer.getvalue()


def from_bytes(stored: bytes) -> NDArray[Any]:
    """Read an array that `to_bytes` wrote; ValueError where it is none.

    Its header may state no more than there is.
    """
    file = io.BytesIO(stored)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another version of the format")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    except (EOFError, KeyError, OSError, SyntaxError, tokenize.TokenError) as fault:
        raise ValueError(type(fault).__name__) from None
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError("objects, or nothing")
    if math.prod(shape) * dtype.itemsize != len(stored) - file.tell():
        raise ValueError("another length")
    flat = np.frombuffer(stored, dtype, offset=file.tell()).copy()
    return flat.reshape(shape, order="F" if by_columns else "C")


# One column of two: the first is one minus it, as probabilities of two classes are.
_SECOND = np.dtype([("second", "<f8")])
# Positions of classes: a bit for each of two, else a byte. The number of bits and of rows follow.
_CODES = b"\x93CODES"
_WIDTH_AND_LENGTH = struct.Struct("<BQ")


def packed(predictions: NDArray[Any]) -> bytes:
    """Write canonical predictions as `unpacked` reads them, in few bytes."""
    if predictions.ndim == 2 and predictions.shape[1] == 2 and predictions.dtype == np.float64:
        second = np.ascontiguousarray(predictions[:, 1])
        if np.array_equal(predictions[:, 0], 1 - second):
            return to_bytes(second.view(_SECOND))
    if predictions.ndim == 1 and predictions.dtype == np.int32 and predictions.size:
        short = predictions.astype(np.uint8)
        if np.array_equal(short, predictions):
            width = 1 if short.max() <= 1 else 8
            head = _CODES + _WIDTH_AND_LENGTH.pack(width, len(short))
            return head + (np.packbits(short) if width == 1 else short).tobytes()
    return to_bytes(predictions)


def unpacked(stored: bytes) -> NDArray[Any]:
    """Read what `packed` wrote; LedgerError where somebody changed it."""
    if stored.startswith(_CODES):
        return _codes(stored)
    array = read_array(stored)
    if array.dtype != _SECOND:
        return array
    second = array["second"]
    return np.column_stack([1 - second, second])


def _codes(stored: bytes) -> NDArray[np.int32]:
    start = len(_CODES) + _WIDTH_AND_LENGTH.size
    if len(stored) < start:
        raise damaged()
    width, n = _WIDTH_AND_LENGTH.unpack_from(stored, len(_CODES))
    codes = np.frombuffer(stored, dtype=np.uint8, offset=start)
    if width not in (1, 8) or len(codes) != -(-n * width // 8):
        raise damaged()
    if len(codes) and codes[-1] & (1 << -n * width % 8) - 1:  # bits of no row
        raise damaged()
    return (np.unpackbits(codes, count=n) if width == 1 else codes).astype(np.int32)


def compressed(predictions: NDArray[Any]) -> bytes:
    """Write canonical predictions as `decompressed` reads them; compressed where it pays."""
    stored = packed(predictions)
    # Neither real numbers nor single bits get much shorter.
    short = predictions.dtype.kind == "f" or stored.startswith(_CODES + b"\1")
    return stored if short else zlib.compress(stored, 1)


def decompressed(stored: bytes | None) -> NDArray[Any]:
    """Read what `compressed` or `packed` wrote; LedgerError where somebody changed it."""
    if stored is None:
        raise damaged()
    if stored.startswith((np.lib.format.MAGIC_PREFIX, _CODES)):
        return unpacked(stored)
    try:
        reader = zlib.decompressobj()
        plain = reader.decompress(stored, LARGEST_ARRAY)
    except zlib.error:
        raise damaged() from None
    if not reader.eof:
        raise damaged()
    return unpacked(plain)


def read_array(stored: bytes) -> NDArray[Any]:
    """Read an array that `to_bytes` wrote; LedgerError where somebody changed it."""
    try:
        return from_bytes(stored)
    except ValueError:
        raise damaged() from None


def booleans(stored: bytes, n: int) -> NDArray[np.bool_]:
    """Read n booleans that `numpy.packbits` wrote."""
    return np.unpackbits(np.frombuffer(stored, dtype=np.uint8), count=n).astype(bool)


def read_all(result: Iterable[Any], make: Callable[[Any], Record]) -> tuple[Record, ...]:
    """Read rows as records; refuse those that are not as this library writes them."""
    try:
        return tuple(map(make, result))
    except (*FAULTS, MemoryError):  # their text shows what is there
        raise damaged() from None


def select_holdouts() -> Select[Any]:
    """Select holdouts without what they have for each row."""
    return select(*(column for column in holdouts.c if column.name not in _OF_EACH_ROW))


_OF_HOLDOUT = [field.name for field in fields(HoldoutRecord)]


def holdout_record(row: Row[Any], prefix: str = "") -> HoldoutRecord:
    """Return a row, or those of its columns with this prefix, as a record."""
    values = {name: getattr(row, prefix + name) for name in _OF_HOLDOUT}
    if values["classes"] is not None:
        values["classes"] = from_bytes(values["classes"])
    if values["reserve"] is not None:
        values["reserve"] = booleans(values["reserve"], values["n"])
    values["created"] = utc(values["created"])
    values["retired"] = values["retired"] and utc(values["retired"])
    return HoldoutRecord(**values)


def ladder_record(row: Row[Any]) -> LadderRecord:
    """Return a row as a record."""
    counts = row.submissions, row.version, row.withdrawals, row.queries
    state = read_json(row.state)
    numbers = {type(state.get("standing")), type(state.get("noise"))}
    if (
        min(counts) < 0
        or max(counts) > _MOST
        or type(state.get("releases")) is not int
        or not numbers <= {int, float, type(None)}
    ):
        raise ValueError("no state of a ladder")
    return LadderRecord(
        id=row.id,
        holdout_id=row.holdout_id,
        settings=_settings(*_columns_of_settings(row)),
        created=utc(row.created),
        opened=None if row.opened is None else utc(row.opened),
        submissions=row.submissions,
        state=state,
        version=row.version,
        incumbent=row.incumbent,
        withdrawals=row.withdrawals,
        queries=row.queries,
    )


_SETTINGS = [field.name for field in fields(LadderSettings)]
_columns_of_settings = attrgetter(*_SETTINGS)


@lru_cache(256)
def _settings(*values: Any) -> LadderSettings:
    """Return the settings of a ladder, which never change, so that they are read once."""
    settings = dict(zip(_SETTINGS, values, strict=True))
    for name in ("metric_settings", "mechanism_settings"):
        settings[name] = read_json(settings[name])
    return LadderSettings(**settings)


def same_ladder(ladder: LadderRecord, since: datetime) -> LadderRecord:
    """Refuse a ladder in the place of another one: the ledger was replaced."""
    if ladder.created != since:
        raise HoldoutConflict(
            "The ledger was replaced by another one since this holdout was opened. Open the "
            "holdout again with its rows, LadderHoldout(X, y, ...), or put the old file back."
        )
    return ladder


def select_entries(ladder_id: int | BindParameter[Any], *raw: Any) -> Select[Any]:
    """Select the submissions of a ladder, with only those raw columns that are named."""
    seen = [column for column in submissions.c if column.name not in _NOT_OF_ENTRIES]
    held = or_(submissions.c.improved, submissions.c.evidence == json.dumps(HELD))
    return (
        select(*seen, is_known.label("known"), held.label("held"), ladders.c.account, *raw)
        .join(ladders, ladders.c.id == submissions.c.ladder_id)
        .where(submissions.c.ladder_id == ladder_id)
    )


def entry_record(row: Row[Any]) -> Entry:
    """Return a row as a record."""
    return Entry(
        number=row.number,
        time=utc(row.time),
        account=row.account,
        batch=row.batch,
        search=row.search,
        digest=row.digest,
        risk=row.released_risk,
        improved=row.improved,
        repeat_of=row.repeat_of,
        disagreement=row.disagreement,
        context=read_json(row.context),
        place=row.place,
        known=row.known,
        held=row.held,
    )


def select_incumbents(ladder_id: int) -> Select[Any]:
    """Select numbers and predictions of a ladder's incumbents, wherever these are."""
    kept = func.nullif(incumbents.c.predictions, b"", type_=LargeBinary())
    predictions = func.coalesce(kept, candidates.c.predictions, type_=LargeBinary())
    same = (candidates.c.ladder_id == ladder_id) & (candidates.c.number == incumbents.c.number)
    return (
        select(incumbents.c.number, predictions.label("predictions"))
        .join(ladders, ladders.c.id == incumbents.c.ladder_id)
        .outerjoin(candidates, same)
        .where(incumbents.c.ladder_id == ladder_id)
    )
