"""Commands of a holdout: a frozen dataclass for each, with its answer, its roles and its setting.

A server has one route for them, and its client, its pages and the tools for agents send them.
`COMMANDS` lists them by their words; `leaderboard.commands` and `server.accounts` add theirs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, dataclass_transform, get_args

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema

from ladderholdout.errors import InvalidArgument, InvalidSubmission, LadderHoldoutError
from ladderholdout.guard import certificate, context, open_ladder, views
from ladderholdout.guard.open_ladder import Command as Command
from ladderholdout.guard.rows import NamedPredictions
from ladderholdout.ledger import arrays, events, fold
from ladderholdout.mechanisms import Mechanism
from ladderholdout.planning.course import MOST_MORE

ANALYST, OWNER = frozenset({"analyst"}), frozenset({"owner"})
SUBMITTING = ANALYST | {"host"}
ANYONE = SUBMITTING | OWNER | {"reader"}

MOST_IN_A_BATCH = 1000
LONGEST_ID = 1000
"""Characters of an id: an array of texts takes for each of them what the longest one needs."""

K = TypeVar("K", bound="Command[Any]")


COMMANDS: dict[str, type[Command[Any]]] = {}
"""All commands by their words."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def command(
    roles: frozenset[str],
    setting: str | None = None,
    *,
    reads: bool = False,
    shows: bool = False,
    sets: int = 0,
) -> Callable[[type[K]], type[K]]:
    """Make a class a command, and enter it into `COMMANDS`."""

    def made(cls: type[K]) -> type[K]:
        kind: Any = dataclass(frozen=True, slots=True, kw_only=True)(cls)
        kind.word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()
        (kind.answer,) = get_args(kind.__orig_bases__[0])
        kind.roles, kind.setting, kind.sets = roles, setting, sets
        kind.reads, kind.shows = reads, shows
        COMMANDS[kind.word] = kind
        return kind  # type: ignore[no-any-return]

    return made


adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""Return what reads and describes a command or an answer."""


class _Described(GenerateJsonSchema):
    """Describes answers as they are written: all of their parts, and numbers that may be texts."""

    # What is shown of several metrics is within what is shown of one, and by default nothing.
    ignored_warning_kinds: ClassVar[set[Any]] = {  # type: ignore[misc]
        "skipped-choice",
        "non-serializable-default",
    }

    def float_schema(self, schema: Any) -> dict[str, Any]:
        """Describe a number: nan and infinity are texts."""
        is_answer = self.mode == "serialization"
        return {"type": ["number", "string"]} if is_answer else super().float_schema(schema)

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Return whether a part is always there."""
        return self.mode == "serialization" or super().field_is_required(field, total)


def schema_of(kind: Any, mode: Any = "serialization") -> dict[str, Any]:
    """Return the JSON schema of an answer, or of what is asked for."""
    schema = adapter(kind).json_schema(mode=mode, schema_generator=_Described)
    place = schema.pop("$ref", None)  # of an answer that has others of its kind within it
    return schema if place is None else schema | schema["$defs"][place.rpartition("/")[2]]


def schemas_of(known: Any, places: str) -> Any:
    """Return the JSON schemas of commands and answers together; the shared ones are at places."""
    return TypeAdapter.json_schemas(known, ref_template=places, schema_generator=_Described)


def names_of(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a command."""
    return tuple(known.name for known in fields(kind))


def checked(kind: Any, stated: Mapping[str, Any], reading: Reading | None = None) -> Any:
    """Make a command of its fields; an error names the one that is none, and shows nothing of it.

    Raises
    ------
    InvalidArgument
        A field is missing, or none that it may be.
    """
    try:
        return adapter(kind).validate_python(stated, context=reading)
    except pydantic.ValidationError as fault:
        first = fault.errors(include_url=False)[0]
    if isinstance(error := first.get("ctx", {}).get("error"), LadderHoldoutError):
        raise error
    properties = schema_of(kind, "validation").get("properties", {})
    name = str(first["loc"][0]) if first["loc"] else ""
    if name not in properties:
        listed = f"an object with {', '.join(properties)}" if properties else "left out"
        raise not_read("the body", listed)
    parts = (properties[name], *properties[name].get("anyOf", ()))
    allowed = next((part["description"] for part in parts if "description" in part), "of its form")
    raise InvalidArgument(name, allowed, "missing" if first["type"] == "missing" else "another")


def written(value: Any) -> bytes:
    """Write a command or an answer as JSON: nan and infinity as texts, arrays as `packed`."""
    try:
        return _ENCODE(value).encode()
    except ValueError:  # to check each number before takes as long as to write it
        return _ENCODE(plain(value)).encode()


def plain(value: Any) -> Any:
    """Bring a value to what JSON knows, as `written` does."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    return plain(_parts(value))


def _parts(value: Any) -> Any:
    """Return what a value is made of: dataclasses, rules, arrays, times and numbers of NumPy."""
    if isinstance(value, Mechanism):
        return repr(value)  # as it is typed
    if is_dataclass(value):
        return {name: getattr(value, name) for name in names_of(value)}
    if isinstance(value, np.ndarray):
        return packed(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Sequence):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value.item()


def read_as(kind: Any, data: bytes) -> Any:
    """Read an answer that `written` wrote; texts may have half a character, which JSON allows."""
    return adapter(kind).validate_python(json.loads(data))


_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_parts).encode


# -- what fields hold -----------------------------------------------------------------


def packed(array: NDArray[Any]) -> dict[str, str]:
    """Write an array as JSON holds it: four bytes of text for three of a .npy file."""
    return {"npy": base64.b64encode(arrays.to_bytes(array)).decode()}


def unpacked(value: Mapping[str, Any]) -> NDArray[Any]:
    """Return an array that `packed` wrote."""
    try:
        data = base64.b64decode(value["npy"], validate=True)
    except (KeyError, TypeError, ValueError):  # ValueError: of other characters, or of no base64
        raise not_read("predictions", 'a list, or {"npy": an array in base64}') from None
    return array_from(data)


def array_from(data: bytes) -> NDArray[Any]:
    """Read the bytes of a .npy file without objects."""
    try:
        return arrays.from_bytes(data)
    except ValueError:
        allowed = "an array as numpy.save writes it, without objects"
        raise not_read("predictions", allowed) from None


def not_read(argument: str, allowed: str) -> InvalidSubmission:
    """Return the error for a body, or a part of one, that is in no known form."""
    return InvalidSubmission(argument, allowed, "in another form")


def _flag(value: Any, info: pydantic.ValidationInfo) -> Any:
    if info.context and info.context.texts:
        value = {"true": True, "false": False}.get(value)
    if not isinstance(value, bool):
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Reading:
    """Context of validation: the space for predictions, and whether numbers are texts."""

    space: Any = None
    texts: bool = False


class Notes(str):
    """A context as JSON: those of a batch are here at once, and values take ten times as much."""


def _array(value: Any) -> Any:
    return unpacked(value) if isinstance(value, Mapping) else value


def _predictions(value: Any, info: pydantic.ValidationInfo) -> Any:
    """Read predictions; a server checks what it has space for before their values are made."""
    space = info.context and info.context.space
    return space.read(value) if space else _array(value)


def _context(value: Any) -> Any:
    if isinstance(value, str) and not isinstance(value, Notes):
        value = json.loads(value)
    if not isinstance(value, Mapping | Notes):
        raise ValueError
    return value


def _number(value: Any, info: pydantic.ValidationInfo) -> Any:
    is_text = isinstance(value, str) and not (info.context and info.context.texts)
    if isinstance(value, bool) or is_text:
        raise ValueError
    return value


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError
    return text


_PACKED = {
    "type": "object",
    "properties": {"npy": {"type": "string", "contentEncoding": "base64"}},
    "required": ["npy"],
}
_LISTED: dict[str, Any] = {"anyOf": [{"type": "array", "items": {}}, _PACKED]}

Array = Annotated[
    Any, BeforeValidator(_array), PlainSerializer(packed, when_used="json"), WithJsonSchema(_PACKED)
]
Values = Annotated[
    Any,
    BeforeValidator(_predictions),
    WithJsonSchema(_LISTED),
    Field(
        description="a list, or an array in base64: one for each row, in the order of the first "
        "registration or in that of ids"
    ),
]
Context = Annotated[
    Any,
    BeforeValidator(_context),
    WithJsonSchema({"type": "object"}),
    Field(description="an object of notes for the history"),
]
Whole = Annotated[int, BeforeValidator(_number)]
Real = Annotated[float, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Number = Annotated[Whole, Field(ge=1, lt=2**31, description="the number of a submission")]
Id: TypeAlias = int | float | Annotated[str, Field(max_length=LONGEST_ID)]
Ids = Annotated[list[Id], Field(description="a list with one for each prediction")]
Search = Annotated[
    str,
    pydantic.AfterValidator(_printable),
    Field(max_length=32, description="a printable text of at most 32 characters"),
]
Key = Annotated[
    str, Field(max_length=200, description="a text of at most 200 characters: a retry has the same")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Predictions for all rows of a holdout, and where they come from.

    Attributes
    ----------
    predictions : array-like
    ids : list or None
        The ids of the rows, if these are not in the order of the first registration.
    context : mapping
        Notes for the history.
    search : str or None
        The id by which a search finds its submissions.
    """

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(extra="forbid")

    predictions: Values
    ids: Ids | None = None
    context: Context = field(default_factory=dict)
    search: Search | None = None

    @property
    def given(self) -> Any:
        """The predictions as `OpenLadder.submit` accepts them."""
        if self.ids is None:
            return self.predictions
        if len(self.ids) != len(self.predictions):
            raise not_read("ids", "a list with one for each prediction")
        return NamedPredictions(self.predictions, self.ids)

    def origin(self, key: str | None, per_day: int | None, **more: Any) -> open_ladder.Origin:
        """Return where the submission comes from; a key of any length is brought to one that fits.

        Parameters
        ----------
        key : str or None
        per_day : int or None
            How many submissions the account may have in a day.
        **more
            Other fields of `Origin`.
        """
        if key is not None:
            key = hashlib.sha256(f"http {key}".encode(errors="surrogateescape")).hexdigest()
        notes = json.loads(self.context) if isinstance(self.context, str) else self.context
        told = context.jsonable(notes)
        return open_ladder.Origin(
            search=self.search, key=key, context=told, per_day=per_day, **more
        )


# -- answers that are of several parts -------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """Some submissions of a ladder, how many it has, and its incumbent."""

    submissions: tuple[views.Submission, ...]
    total: int
    incumbent: int | None


@dataclass(frozen=True, slots=True)
class Description:
    """A holdout as an account knows it: the names of its classes, never how many rows have them.

    Attributes
    ----------
    name, fingerprint : str
    n, n_reserve : int
    features : mapping
        Their number, and the names and types of a table.
    classes : list or None
    confidence : float
    estimand : str or None
    block : int
    account, role : str
        Those of the token.
    per_day : int or None
        How much the account may submit a day.
    allows : mapping of str to bool
        Which commands that need a setting of the server are allowed.
    settings : LadderSettings
        The rules of the ladder.
    shown : str
        The rule in words.
    created : datetime
        When the ladder was started.
    state : State
    """

    name: str
    fingerprint: str
    n: int
    n_reserve: int
    features: Mapping[str, Any]
    classes: list[Any] | None
    confidence: float
    estimand: str | None
    block: int
    account: str
    role: str
    per_day: int | None
    allows: Mapping[str, bool]
    settings: events.LadderSettings
    shown: str
    created: datetime
    state: open_ladder.State


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What became of a ladder by the withdrawal of a submission.

    Attributes
    ----------
    submission : int
        The one that was withdrawn.
    reason : str
    incumbent : int or None
        The submission behind the released score now; None where the ladder has none.
    score : float or None
        The released score now; None without an incumbent, and where the ladder releases no
        values.
    again : tuple of int
        Submissions that were compared with the withdrawn one and did not improve on it. Submit
        them once more: each is a query again.

    Examples
    --------
    >>> Withdrawn(7, "trained on the holdout", 3, 0.91, (8, 9))
    Withdrawn(submission=7, reason='trained on the holdout', incumbent=3, score=0.91, again=(8, 9))
    """

    submission: int
    reason: str
    incumbent: int | None
    score: float | None
    again: tuple[int, ...]

    def lines(self) -> list[tuple[str, str]]:
        """Return it as (what, value) pairs, for printing."""
        now = "none" if self.incumbent is None else f"submission {self.incumbent}"
        lines = [
            ("withdrawn", f"submission {self.submission}: {self.reason}"),
            ("incumbent", now),
            ("released score", views.score_line(self.score)),
        ]
        if self.again:
            lines.append(("submit again", ", ".join(map(str, self.again))))
        return lines


# -- commands --------------------------------------------------------------------------


@command(ANYONE, reads=True)
class Describe(Command[Description]):
    """Describe a holdout: its size, features, metric, rules, and the state of a ladder."""


@command(ANYONE, "share_rows", reads=True)
class Rows(Command[bytes]):
    """Send the features without labels: as a vault keeps them, as Arrow, or as .npy."""


@command(ANALYST, "share_rows", reads=True)
class RowGroups(Command[Array]):
    """Send a hash of each group of the rows."""


@command(ANALYST, sets=1)
class RowOrder(Command[Array]):
    """Return where each row of the holdout is among somebody's own, by hashes of these."""

    hashes: Array


@command(ANALYST)
class NoteRows(Command[None]):
    """Note that rows of the holdout are among the training rows."""

    rows: Annotated[Whole, Field(ge=1, description="a whole number, at least 1")]


@command(ANALYST)
class NoteGroups(Command[None]):
    """Note what showed that the rows come in groups."""

    by: Annotated[
        str, Field(min_length=1, max_length=100, description="a text of 1 to 100 characters")
    ]


@command(SUBMITTING, sets=1)
class Submit(Command[views.Release], Candidate):
    """Submit predictions for the rows: in the order of the first registration, or with ids."""

    key: Key | None = None


@command(ANALYST, sets=1)
class Decide(Command[views.Decision], Candidate):
    """Submit predictions to a gate, and return whether they may replace the incumbent."""

    key: Key | None = None
    margin: Annotated[
        Real | None, Field(description="a number: the gain to exceed, else that of the ladder")
    ] = None
    baseline: Annotated[
        Flag, Field(description="true or false: accept the ladder's first submission")
    ] = False


@command(ANALYST, sets=MOST_IN_A_BATCH)
class SubmitBatch(Command[tuple[views.Release, ...]]):
    """Submit several sets of predictions, all fixed before feedback on any of them."""

    submissions: Annotated[
        list[Candidate],
        Field(
            min_length=1,
            max_length=MOST_IN_A_BATCH,
            description=f"a list of 1 to {MOST_IN_A_BATCH} submissions",
        ),
    ]
    key: Key | None = None


@command(ANYONE, reads=True)
class State(Command[open_ladder.State]):
    """Return what changes of a ladder and its holdout."""


@command(ANYONE, reads=True, shows=True)
class Status(Command[views.Status]):
    """Return the released score, its certificate, and how much was asked."""


@command(ANYONE, reads=True, shows=True)
class History(Command[Page]):
    """List submissions and what was released after each."""

    after: Annotated[Whole, Field(ge=0, lt=2**31, description="a submission's number, or 0")] = 0
    limit: Annotated[Whole, Field(ge=1, le=1000, description="a whole number from 1 to 1000")] = 100
    search: Search | None = None


@command(ANYONE, reads=True, shows=True)
class Health(Command[certificate.Health]):
    """Return how used up the holdout is: the width of the certificate, now and later."""

    more: Annotated[
        Whole, Field(ge=1, le=MOST_MORE, description=f"a whole number from 1 to {MOST_MORE}")
    ] = 5
    spent_at: Annotated[
        Real | None, Field(gt=0, allow_inf_nan=False, description="a number above 0")
    ] = None


@command(ANYONE, reads=True)
class Certificate(Command[certificate.ScoreCertificate]):
    """Return the interval for the true score of the incumbent that is on record."""


@command(ANALYST | OWNER, shows=True)
class Certify(Command[certificate.ScoreCertificate]):
    """Work out that interval, put it on record where it has a price, and return it."""


@command(ANALYST, "allow_estimates", shows=True)
class Estimate(Command[views.Estimate]):
    """Correct the incumbent's score for its selection in a batch, where the owner allows it."""


@command(ANALYST, "allow_reveals", shows=True)
class Reveal(Command[float | None]):
    """Show the score of a ladder that releases none, where the owner allows it."""


Side = Annotated[
    Number | Candidate, Field(description="the number of a submission, or predictions")
]


@command(ANALYST, "allow_comparisons", shows=True, sets=2)
class Compare(Command[certificate.Comparison]):
    """Compare two models, each the number of a submission or predictions."""

    first: Side
    second: Side


@command(OWNER, shows=True)
class Withdraw(Command[Withdrawn]):
    """Withdraw a submission, on record."""

    submission: Number
    reason: Annotated[str, Field(description="a text")]


Confirmation = Annotated[str, Field(description="the name of the holdout, to confirm it")]


@command(OWNER)
class Retire(Command[datetime]):
    """Take no more submissions; the name of the holdout confirms it."""

    name: Confirmation


ALL = 2**31 - 1
"""The limit of a `History` of all submissions, in this process."""


def check_open(ladder: open_ladder.OpenLadder) -> None:
    """Refuse a holdout that takes no more submissions; HoldoutConflict."""
    retired = ladder.execute(State()).retired
    if retired is not None:  # by the name of now, which shows whether fresh rows came
        fold.refuse_retired(ladder.verified().name, retired)
