"""What can happen to a holdout: one frozen dataclass for each kind of event, and its JSON.

An event never changes once it is written. A new field has a default, so that the bytes of old
events stay as they are and still read; a new kind is refused by older versions, whose readers name
it. Defaults are left out of the JSON. Infinity is written, and nan is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, TypeAlias, dataclass_transform

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from ladderholdout.errors import LedgerError

Json: TypeAlias = dict[str, Any]
Moment = Annotated[datetime, AfterValidator(lambda time: time.astimezone(UTC))]

RAW = ("raw", "evidence")
"""Fields that hold raw scores: only replays, audits and the certificates' own work read them."""

KINDS: dict[str, Any] = {}
"""All kinds of events by the names that they have in a ledger."""


FAULTS = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What reading a value that this library did not write may raise, beside running out of memory."""


class Damaged(LedgerError):
    """An entry of the ledger was changed; its text does not show the entry."""

    def __init__(self, what: str = "an entry that was changed and cannot be read any more") -> None:
        super().__init__(
            f"The ledger holds {what}. `ladder-holdout verify NAME` names it; restore the ledger "
            "from a backup."
        )


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Event:
    """Something that happened to a holdout; each class that is made of this one is a kind."""

    def __init_subclass__(cls) -> None:
        cls.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[attr-defined]
        if Event in cls.__bases__:
            KINDS[cls.__name__.lower()] = dataclass(frozen=True, kw_only=True)(cls)


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


# -- the rows ------------------------------------------------------------------------------


class Registered(Event):
    """Rows were registered. What is as long as the rows is kept beside, under its digest."""

    name: str
    fingerprint: str
    content: str
    n: int
    row_hashes: str
    confidence: float
    estimand: str | None = None
    block: int = 1
    after: tuple[int, int, str] | None = None  # the block before: its holdout, length and head
    time: Moment


class ReserveDrawn(Event):
    """Some rows became the reserve, before anything was measured."""

    reserve: str


class RowsKnown(Event):
    """What rows are known by beside their features; `sequence` is of all labels in their order."""

    label_digests: str
    places: str
    ids: str | None = None
    weight_digests: str | None = None
    groups: str | None = None
    sequence: str | None = None


class ViewAdded(Event):
    """The same rows were given with other features."""

    fingerprint: str
    row_hashes: str
    places: str
    time: Moment


class VaultSet(Event):
    """The copy of a view of the rows is in another file, or in none."""

    view: int
    path: str | None
    digest: str | None


class Amended(Event):
    """Some labels were corrected: those of `mask`. `RowsKnown` follows."""

    count: int
    mask: str


class ClassesFixed(Event):
    """The sorted list of classes, as bytes of numpy's format in hexadecimal digits."""

    classes: str


class SharingCounted(Event):
    """How many rows of this holdout are rows of another one as well."""

    other: int
    rows: int


class Noted(Event):
    """Something was stated about a holdout: its groups, another confidence, teams, a width.

    `holder` is the account that states it, None for the owner or what the library saw itself.
    """

    what: str
    ladder: int | None = None
    holder: str | None = None
    detail: Json = field(default_factory=dict)


class Retired(Event):
    """No more submissions are accepted."""

    time: Moment


class Followed(Event):
    """Fresh rows took the place of these: they are the block of this number."""

    block: int


class Forgotten(Event):
    """The registration was taken back."""


class Restored(Event):
    """The ledger is an older copy: a longer chain than this was seen on this machine."""

    length: int


# -- ladders and their submissions ---------------------------------------------------------


class LadderStarted(Event):
    """A ladder was started on a holdout."""

    ladder: int
    settings: LadderSettings
    state: Json
    time: Moment


class BatchAnnounced(Event):
    """How many queries a batch has was stated before the first of them was answered."""

    ladder: int
    batch: str
    size: int


class Submitted(Event):
    """Predictions were submitted and answered.

    `query` is its number among the queries of its ladder; None for a repeat whose answer was known
    to who submitted it. `risk` is the released one, and `state` the ladder's state after, where
    that changed. `size` is how many queries its batch has at most, where that was known before the
    first of them and places are not. `predictions` is the digest of what is kept of them beside the
    event: those of improvements, of the first batch (`candidate`), and in rounds those that waited.
    """

    ladder: int
    number: int
    query: int | None
    time: Moment
    digest: str
    reserve_digest: str | None = None
    batch: str | None = None
    search: str | None = None
    key: str | None = None
    place: int | None = None
    size: int | None = None
    raw: float = field(repr=False)
    evidence: Json = field(repr=False)
    risk: float = field(repr=False)
    improved: bool
    repeat_of: int | None = None
    disagreement: float | None = None
    context: Json = field(default_factory=dict)
    state: Json | None = field(default=None, repr=False)
    predictions: str | None = None
    candidate: bool = False
    waited: int | None = None  # the position at which it was collected

    @property
    def is_known(self) -> bool:
        """Whether it repeats predictions whose answer was known to who submitted it."""
        return self.query is None

    @property
    def held(self) -> bool:
        """Whether these predictions have become the incumbent."""
        return self.improved or self.evidence.get("held") is True


class Revealed(Event):
    """The released score of a submission was asked for, where answers have none."""

    ladder: int
    submission: int


class Withdrawn(Event):
    """A submission was withdrawn.

    `until` is how many submissions the ladder had, `replaced` whether it was the incumbent, so that
    the ladder went back to `incumbent`, and `again` whether submissions that were compared with it
    are queries again when they are submitted once more.
    """

    ladder: int
    number: int
    reason: str
    time: Moment
    until: int
    replaced: bool
    incumbent: int | None
    again: bool

    def sets_aside(self, number: int) -> bool:
        """Return whether the first answer to a submission no longer counts as its answer."""
        return self.replaced and self.again and self.number < number <= self.until


class Opened(Event):
    """An audit showed the raw scores of a ladder."""

    ladder: int
    time: Moment


class Shown(Event):
    """An interval, an estimate or a comparison was shown; later certificates pay `log_values`.

    An end of an interval is None where it is infinite. `more` has what one kind has alone.
    """

    what: str
    ladder: int
    submission: int | None = None
    confidence: float | None = None
    low: float | None = None
    high: float | None = None
    bound: str = ""
    log_count: float = 0.0
    log_values: float
    more: Json = field(default_factory=dict)


class ReserveQueried(Event):
    """The reserve was queried about the incumbent of a ladder.

    `about` is what is asked for: metric, its settings, and the digests of the predictions.
    """

    ladder: int
    number: int
    submission: int
    about: tuple[str | None, ...]
    evidence: Json = field(repr=False)
    low: float | None
    risk: float | None
    high: float | None
    log_values: float
    time: Moment


class FinalsHeld(Event):
    """Finals of a leaderboard were held on the reserve.

    An entry is an account, a ladder, the number of a submission and its digest.
    """

    ladder: int
    number: int
    confidence: float
    bound: str
    log_count: float
    amended: int
    entries: tuple[tuple[str, int, int, str], ...]
    evidence: Json = field(repr=False)
    shown: Json
    time: Moment


# -- rounds and accounts -------------------------------------------------------------------


class RoundsBegun(Event):
    """A leaderboard answers by rounds, of so many hours or without an end of their own."""

    ladder: int
    hours: float | None
    time: Moment


class Collected(Event):
    """A submission waits for the end of a round; its predictions are kept under their digest."""

    home: int
    ladder: int
    account: str
    key: str | None = None
    context: Json = field(default_factory=dict)
    predictions: str
    time: Moment


class TakenOut(Event):
    """What waits of an account is not answered."""

    home: int
    account: str


class RoundClosed(Event):
    """A round was answered, of all that waited up to a position.

    `left_out` has the accounts of what has no value on the rows or was taken out.
    """

    home: int
    number: int
    until: int
    batch: str
    submissions: int
    accounts: int
    improved: int
    best: float | None
    left_out: tuple[str, ...] = ()
    time: Moment


class AccountChanged(Event):
    """An account of a server was added, or changed: all that holds from now on."""

    name: str
    role: str
    ladder: int | None
    token_key: str
    token_hash: str = field(repr=False)
    per_day: int | None
    created: Moment
    expires: Moment | None
    revoked: Moment | None


class AccountsMoved(Event):
    """The accounts go on with the block of fresh rows."""


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return what reads the values of a class as they were written."""
    return TypeAdapter(kind)


@cache
def _fields(kind: Any) -> list[tuple[str, Any]]:
    """Return the names of a kind's fields with what is left out of the JSON."""
    empty = {dict: {}, MISSING: MISSING}
    return [
        (one.name, empty[one.default_factory] if one.default is MISSING else one.default)
        for one in fields(kind)
    ]


def written(happened: Event) -> tuple[str, bytes]:
    """Return the kind of an event, and its JSON without defaults."""
    kind, values = type(happened), {}
    for name, default in _fields(kind):  # type: ignore[arg-type]  # a class hashes
        value = getattr(happened, name)
        if value != default:
            values[name] = value
    try:
        # pydantic's own serializers write an infinite number in a dict as null.
        body = to_json(values, inf_nan_mode="constants")
    except PydanticSerializationError:  # half a character in a text, which JSON can name
        body = json.dumps(values, default=_plain, separators=(",", ":")).encode()
    if _has_nan(body):
        raise LedgerError(
            "A number that is none (nan) was to be recorded: no ledger holds one. Nothing was "
            "recorded."
        )
    return kind.__name__.lower(), body


def _has_nan(body: bytes) -> bool:
    """Return whether JSON has a number that is none, and not only a text with its name."""
    if b"NaN" not in body:
        return False
    found: list[str] = []
    json.loads(body, parse_constant=found.append)
    return "NaN" in found


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else asdict(value)


def read(kind: str, body: bytes) -> Any:
    """Read an event.

    Raises
    ------
    Damaged
        No version of this library that is not newer wrote it.
    """
    try:
        if b"\\ud" in body:  # half a character, perhaps: only what is written so again is strict
            found = adapter(KINDS[kind]).validate_python(json.loads(body), strict=False)
            if written(found)[1] == body:
                return found
        elif not _has_nan(body):
            return adapter(KINDS[kind]).validate_json(body)
    except (LedgerError, ValidationError, *FAULTS):
        pass
    raise Damaged from None
