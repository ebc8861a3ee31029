"""What travels beside commands and answers: media types, the header of a block, problem details."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ladderholdout import errors
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, LedgerError

JSON, PROBLEM = "application/json", "application/problem+json"
NPY, CSV, ARROW = "application/x-npy", "text/csv", "application/vnd.apache.arrow.stream"
ROWS = "application/vnd.ladderholdout.rows"
"""Features as a vault keeps them: arrays, frames and sparse matrices, and nothing that runs."""

BLOCK = "Holdout-Block"
"""The header that states which block of rows a client knows: no predictions are for other rows."""

_TYPE = "urn:ladderholdout:error:"
_PARTS = ("argument", "allowed", "came", "remedy")


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


def error_of(problem: Any, status: int) -> LadderHoldoutError:
    """Return the error of problem details, as it would be raised beside the ledger."""
    stated = problem if isinstance(problem, Mapping) else {}
    if "type" not in stated:
        title = stated.get("title") or "is it one of this library?"
        return LedgerError(f"The server answered with status {status}: {title}")
    kind = getattr(errors, str(stated["type"]).removeprefix(_TYPE), None)
    if not (isinstance(kind, type) and issubclass(kind, LadderHoldoutError)):
        return LedgerError(f"The server refused: {stated.get('detail', 'it gives no reason')}")
    if issubclass(kind, InvalidArgument):
        return kind(*(str(stated.get(part, "")) for part in _PARTS))
    return kind(str(stated.get("detail", "")))
