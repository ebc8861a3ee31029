"""What travels between a server and its clients: JSON, arrays without objects, problem details.

Both sides import this module, so that what one writes the other reads.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from ladderholdout import errors
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, LedgerError
from ladderholdout.extras import needed
from ladderholdout.guard import (
    Comparison,
    Decision,
    Estimate,
    Release,
    ScoreCertificate,
    State,
    Status,
    Submission,
)
from ladderholdout.ledger.arrays import from_bytes, to_bytes
from ladderholdout.ledger.fold import Overlap
from ladderholdout.mechanisms import Mechanism

if TYPE_CHECKING:
    import pyarrow

JSON, PROBLEM = "application/json", "application/problem+json"
NPY, CSV, ARROW = "application/x-npy", "text/csv", "application/vnd.apache.arrow.stream"
ROWS = "application/vnd.ladderholdout.rows"
"""Features as a vault keeps them: arrays, frames and sparse matrices, and nothing that runs."""

KEY, CONTEXT, BLOCK = "Idempotency-Key", "Ladder-Context", "Holdout-Block"
"""Headers: what names an attempt, so that a retry is a repeat; notes for the history, as JSON; and
which block of rows the client knows, so that no predictions are taken for those of other rows."""

_TYPE = "urn:ladderholdout:error:"
_PARTS = ("argument", "allowed", "came", "remedy")

T = TypeVar("T")


def plain(value: Any) -> Any:
    """Bring dataclasses, rules, times and numbers to what JSON knows; nan and infinity to texts."""
    if isinstance(value, Mechanism):
        return repr(value)  # as it is typed
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        # What is shown of one metric has no others to name.
        named = (item for item in value.items() if item != ("by_metric", {}))
        return {str(name): plain(entry) for name, entry in named}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def arrow_table(data: bytes, what: str) -> pyarrow.Table:
    """Read either of Arrow's formats, that of files and that of streams."""
    with needed(what):
        from pyarrow import ipc
    opened = ipc.open_file if data.startswith(b"ARROW1") else ipc.open_stream
    return opened(data).read_all()


# -- results ----------------------------------------------------------------------------


def release_from(body: Mapping[str, Any]) -> Release:
    """Read a release."""
    return Release(**{**body, "score": optional(float, body["score"])})


def decision_from(body: Mapping[str, Any]) -> Decision:
    """Read a decision."""
    return Decision(**body)


def comparison_from(body: Mapping[str, Any]) -> Comparison:
    """Read a comparison."""
    numbers = {name: float(body[name]) for name in ("low", "high")}
    return Comparison(**{**body, **numbers, "assumptions": tuple(body["assumptions"])})


def submission_from(body: Mapping[str, Any]) -> Submission:
    """Read a line of the history."""
    known = {field.name: body[field.name] for field in fields(Submission) if field.name in body}
    return Submission(
        **known | {"time": moment(body["time"]), "score": optional(float, body["score"])}
    )


def state_from(body: Mapping[str, Any]) -> State:
    """Read the state of a ladder."""
    times = {name: optional(moment, body[name]) for name in ("opened", "retired")}
    return State(**{**body, **times, "released": optional(float, body["released"])})


def certificate_from(body: Mapping[str, Any]) -> ScoreCertificate:
    """Read a certificate."""
    numbers = {name: optional(float, body[name]) for name in ("score", "low", "high", "log_count")}
    lists = {name: tuple(body[name]) for name in ("assumptions", "doubts")}
    lists |= {name: tuple(map(tuple, body[name])) for name in ("bill", "instead")}
    lists["clipped"] = body["clipped"] and tuple(body["clipped"])
    return ScoreCertificate(**{**body, **numbers, **lists})


def estimate_from(body: Mapping[str, Any]) -> Estimate:
    """Read a corrected score."""
    return Estimate(**{**body, "score": optional(float, body["score"])})


def status_from(body: Mapping[str, Any], place: str) -> Status:
    """Read a status, with the place of the ledger as the client knows it."""
    changed = {
        "score": optional(float, body["score"]),
        "reserve_score": optional(float, body["reserve_score"]),
        "ladders": tuple(map(tuple, body["ladders"])),
        "sharing": tuple(map(tuple, body["sharing"])),
        "restored": tuple(body["restored"]),
        "opened": optional(moment, body["opened"]),
        "retired": optional(moment, body["retired"]),
        "overlaps": tuple(
            Overlap(overlap["source"], overlap["rows"], moment(overlap["time"]))
            for overlap in body["overlaps"]
        ),
        "latest": tuple(map(submission_from, body["latest"])),
        "certificate": certificate_from(body["certificate"]),
        "estimate": optional(estimate_from, body["estimate"]),
        "ledger": place,
    }
    return Status(**{**body, **changed})


def optional(read: Callable[[Any], T], value: Any) -> T | None:
    """Read what may be missing."""
    return None if value is None else read(value)


def moment(text: str) -> datetime:
    """Read a time."""
    return datetime.fromisoformat(text)


# -- arrays -----------------------------------------------------------------------------


def packed(array: NDArray[Any]) -> dict[str, str]:
    """Write an array as JSON holds it."""
    return {"npy": base64.b64encode(to_bytes(array)).decode()}


def unpacked(value: Any) -> Any:
    """Return an array that `packed` wrote; a list of predictions as it is."""
    if not isinstance(value, Mapping):
        return value
    try:
        data = base64.b64decode(value["npy"], validate=True)
    except (KeyError, TypeError, ValueError):  # ValueError: of other characters, or of no base64
        raise not_read("predictions", 'a list, or {"npy": an array in base64}') from None
    return array_from(data)


def array_from(data: bytes) -> NDArray[Any]:
    """Read the bytes of a .npy file without objects."""
    try:
        return from_bytes(data)
    except ValueError:
        allowed = "an array as numpy.save writes it, without objects"
        raise not_read("predictions", allowed) from None


def not_read(argument: str, allowed: str) -> errors.InvalidSubmission:
    """Return the error for a body, or a part of one, that is in no known form."""
    return errors.InvalidSubmission(argument, allowed, "in another form")


# -- errors -----------------------------------------------------------------------------


def problem_of(error: LadderHoldoutError, status: int) -> dict[str, Any]:
    """Return an error as problem details (RFC 9457), with the library's own text."""
    kind = type(error).__name__
    problem: dict[str, Any] = {
        "type": _TYPE + kind,
        "title": kind,
        "status": status,
        "detail": str(error),
    }
    if isinstance(error, InvalidArgument):
        problem |= zip(_PARTS, map(str, error.args), strict=False)
    return problem


def error_of(problem: Mapping[str, Any]) -> LadderHoldoutError:
    """Return the error of problem details, as it would be raised beside the ledger."""
    kind = getattr(errors, str(problem.get("type", "")).removeprefix(_TYPE), None)
    if not (isinstance(kind, type) and issubclass(kind, LadderHoldoutError)):
        return LedgerError(f"The server refused: {problem.get('detail', 'it gives no reason')}")
    if issubclass(kind, InvalidArgument):
        return kind(*(str(problem.get(part, "")) for part in _PARTS))
    return kind(str(problem.get("detail", "")))
