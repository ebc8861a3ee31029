"""The API, version 1: what a request may ask for, and what it is answered.

A request has a token or learns nothing: 401 whatever it asks for. One that asks for another
holdout than its token's, or for more than its role may, gets 404, the same as for a holdout that
does not exist.
"""

# No deferred annotations here: FastAPI reads those of functions within functions.

import asyncio
import io
import json
import logging
import math
import os
import re
import socket
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from html import escape
from importlib import metadata
from typing import Annotated, Any, TypeAlias

import numpy as np

from ladderholdout.errors import (
    AccessDenied,
    DailyLimit,
    HoldoutConflict,
    InvalidArgument,
    LadderHoldoutError,
    LadderHoldoutWarning,
    LedgerBusy,
    LedgerError,
    LedgerUnreachable,
    MissingExtra,
    UnknownHoldout,
)
from ladderholdout.extras import needed
from ladderholdout.ledger import AccountRecord
from ladderholdout.ledger.records import to_bytes
from ladderholdout.remote.wire import (
    ARROW,
    CONTEXT,
    CSV,
    JSON,
    KEY,
    NPY,
    PROBLEM,
    ROWS,
    array_from,
    not_read,
    plain,
    problem_of,
)
from ladderholdout.server.bodies import MOST_IN_A_BATCH, batch_in, submission_in
from ladderholdout.server.served import MOST_ENTRIES, NotThere, Served
from ladderholdout.server.settings import STARTED_WITH, ServerSettings
from ladderholdout.vault import features_to_bytes

with needed("The server"):
    from fastapi import Depends, FastAPI, Header, HTTPException, Path, Query, Request, Response
    from fastapi.concurrency import run_in_threadpool
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Scope]]
Send: TypeAlias = Callable[[Scope], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("ladderholdout.server")

_MEGABYTE = 2**20
_SLOW = 60.0  # seconds that a request may pause while it is being sent
_LONGEST_KEY = 200
_SMALL = 2**16  # bytes of a body that is read before its token: a connection buffers as many
_STATUS: tuple[tuple[type[LadderHoldoutError], int], ...] = (
    (AccessDenied, 401),
    (DailyLimit, 429),
    (InvalidArgument, 422),
    (UnknownHoldout, 404),
    (HoldoutConflict, 409),
    (MissingExtra, 415),
    (LedgerBusy, 503),
    (LedgerUnreachable, 503),
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Body:
    """What a request sent: its bytes, and what they are."""

    data: bytes
    media: str


def create_app(settings: ServerSettings) -> FastAPI:
    """Return the application.

    Parameters
    ----------
    settings : ServerSettings

    Raises
    ------
    LedgerError
        There is no such ledger.
    """
    served = Served(settings)
    app = FastAPI(
        title="ladderholdout",
        version=metadata.version("ladderholdout"),
        summary="Submit predictions for holdouts whose labels stay on this machine.",
        docs_url=None,
        redoc_url=None,
    )
    _add_handlers(app)
    _add_pages(app)
    _add_routes(app, served, settings.max_body * _MEGABYTE)
    app.add_middleware(Watched)
    return app


def from_environment() -> FastAPI:
    """Return the application of a worker process, which is handed its settings."""
    # The clients warn where somebody sees it.
    warnings.simplefilter("ignore", LadderHoldoutWarning)
    return create_app(ServerSettings.from_json(os.environ[STARTED_WITH]))


# -- routes -------------------------------------------------------------------------------


def _add_routes(app: FastAPI, served: Served, most: int) -> None:
    def token_holder(request: Request) -> AccountRecord:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        who = served.holder(token.strip()) if kind.lower() == "bearer" else None
        if who is None:
            raise AccessDenied("A token that is valid is needed, as Authorization: Bearer TOKEN.")
        request.state.account = who
        return who

    Holder = Annotated[AccountRecord, Depends(token_holder)]

    def permitted(who: AccountRecord, name: str, *roles: str) -> AccountRecord:
        if who.holdout != name or who.role not in roles:
            raise NotThere
        return who

    def role(*roles: str) -> Any:
        async def check(who: Holder, name: Annotated[str, Path()]) -> AccountRecord:
            return permitted(who, name, *roles)

        return Depends(check)

    Anyone = Annotated[AccountRecord, role("analyst", "reader", "owner")]
    Analyst = Annotated[AccountRecord, role("analyst")]
    Owner = Annotated[AccountRecord, role("owner")]
    Account = Annotated[str | None, Query(description="Whose ladder; for readers and owners.")]
    Key = Annotated[
        str | None,
        Header(alias=KEY, max_length=_LONGEST_KEY, description="Makes a retry a repeat."),
    ]

    async def body_of_analyst(request: Request, who: Analyst) -> Body:
        return await _read(request, most)

    Sent = Annotated[Body, Depends(body_of_analyst)]

    @app.get("/v1/holdouts", tags=["holdouts"])
    def list_holdouts(who: Holder) -> Response:
        """List the holdouts of the token."""
        return _json({"holdouts": [served.listed(who)]})

    @app.get("/v1/holdouts/{name}", tags=["holdouts"])
    def describe(who: Anyone, account: Account = None) -> Response:
        """Describe a holdout: its size, features, metric, rules, and the state of a ladder."""
        return _json(served.described(who, account))

    @app.get("/v1/holdouts/{name}/rows", tags=["holdouts"])
    def rows(request: Request, who: Anyone) -> Response:
        """Send the features without labels, where the owner shares them."""
        return _rows(served.rows(who), request.headers.get("accept", ""))

    @app.post("/v1/holdouts/{name}/rows/order", tags=["holdouts"], openapi_extra=_takes(NPY))
    def order(who: Analyst, sent: Sent) -> Response:
        """Say where each row of the holdout is among somebody's own, by hashes of these."""
        return Response(to_bytes(served.order_of(who, array_from(sent.data))), media_type=NPY)

    @app.post("/v1/holdouts/{name}/overlaps", tags=["holdouts"], openapi_extra=_takes(json=_COUNT))
    def overlaps(who: Analyst, sent: Sent) -> Response:
        """Note that rows of the holdout are among the training rows: {"rows": count}."""
        try:
            count = json.loads(sent.data)["rows"]
        except (ValueError, TypeError, KeyError, RecursionError):
            count = None
        if type(count) is not int:
            raise not_read("the body", 'an object {"rows": count}')
        served.note_overlap(who, count)
        return Response(status_code=204)

    @app.post(
        "/v1/holdouts/{name}/submissions",
        tags=["submissions"],
        openapi_extra=_takes(NPY, CSV, ARROW, json=_ONE) | {"parameters": [_NAME, _KEY, _CONTEXT]},
    )
    async def submit(request: Request) -> Response:
        """Submit predictions for the rows in their registered order."""

        # What is asked for most: FastAPI takes longer to look for five arguments than all else.
        def submitted(sent: Body, who: AccountRecord) -> Response:
            key = request.headers.get(KEY)
            if key is not None and len(key) > _LONGEST_KEY:
                raise InvalidArgument(KEY, f"at most {_LONGEST_KEY} characters", "more")
            classes, context = (
                served.ladder(who).guard().holdout.classes,
                request.headers.get(CONTEXT),
            )
            asked = submission_in(sent.data, sent.media, classes, context)
            return _json(served.submit(who, asked, key))

        def analyst() -> AccountRecord:
            return permitted(token_holder(request), request.path_params["name"], "analyst")

        if _stated_size(request, _SMALL) < _SMALL:
            sent = await _read(request, most)
            return await run_in_threadpool(lambda: submitted(sent, analyst()))
        who = await run_in_threadpool(analyst)
        sent = await _read(request, most)
        return await run_in_threadpool(submitted, sent, who)

    @app.post("/v1/holdouts/{name}/batches", tags=["submissions"], openapi_extra=_takes(json=_MANY))
    def submit_batch(who: Analyst, sent: Sent, key: Key = None) -> Response:
        """Submit several sets of predictions, all fixed before feedback on any of them."""
        if sent.media not in ("", JSON):
            raise InvalidArgument("Content-Type", JSON, "another one")
        return _json({"releases": served.submit_batch(who, batch_in(sent.data), key)})

    @app.get("/v1/holdouts/{name}/submissions", tags=["submissions"])
    def history(
        who: Anyone,
        account: Account = None,
        after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 100,
        search: Annotated[str | None, Query(max_length=32)] = None,
    ) -> Response:
        """List submissions and what was released after each."""
        return _json(served.history(who, account, after, limit, search))

    @app.get("/v1/holdouts/{name}/status", tags=["results"])
    def status(who: Anyone, account: Account = None) -> Response:
        """Return the released score, its certificate, and how much was asked."""
        return _json(served.status(who, account))

    @app.get("/v1/holdouts/{name}/certificate", tags=["results"])
    def certificate(who: Anyone, account: Account = None) -> Response:
        """Return an interval for the true score of the incumbent."""
        return _json(served.certificate(who, account))

    @app.post("/v1/holdouts/{name}/estimate", tags=["results"])
    def estimate(who: Analyst) -> Response:
        """Correct the incumbent's score for its selection in a batch, where the owner allows it."""
        return _json(served.estimate(who))

    @app.post("/v1/holdouts/{name}/reveal", tags=["results"])
    def reveal(who: Analyst) -> Response:
        """Show the score of a ladder that releases none, where the owner allows it."""
        return _json(served.reveal(who))

    @app.get("/v1/holdouts/{name}/leaderboard", tags=["results"])
    def leaderboard(who: Anyone) -> Response:
        """Rank the accounts by their released scores."""
        return _json(served.standings(who))

    @app.get("/v1/holdouts/{name}/accounts", tags=["accounts"])
    def accounts(who: Owner) -> Response:
        """List the accounts on the holdout."""
        return _json(served.accounts(who))


def _add_pages(app: FastAPI) -> None:
    @app.get("/healthz", tags=["server"])
    async def health() -> dict[str, str]:
        """Tell that the server runs; the ledger is not asked."""
        return {"status": "ok"}

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """Show the operations of /openapi.json as a page, without anything of other hosts."""
        return HTMLResponse(_page(app.openapi()))


def _parameter(place: str, name: str, described: str, **schema: Any) -> dict[str, Any]:
    """Describe a parameter for OpenAPI."""
    shape = {"type": "string", **schema}
    return {
        "in": place,
        "name": name,
        "description": described,
        "required": place == "path",
        "schema": shape,
    }


_NAME = _parameter("path", "name", "Of the holdout.")
_KEY = _parameter("header", KEY, "Makes a retry a repeat.", maxLength=_LONGEST_KEY)
_CONTEXT = _parameter("header", CONTEXT, "Notes for the history, as JSON.")


_PREDICTIONS = {
    "description": "One for each row of the holdout, in the registered order.",
    "anyOf": [
        {"type": "array", "items": {}},
        {
            "type": "object",
            "properties": {"npy": {"type": "string", "contentEncoding": "base64"}},
            "required": ["npy"],
        },
    ],
}
_ONE = {
    "type": "object",
    "properties": {
        "predictions": _PREDICTIONS,
        "context": {"type": "object"},
        "search": {"type": "string", "maxLength": 32},
    },
    "required": ["predictions"],
    "additionalProperties": False,
}
_MANY = {
    "type": "object",
    "properties": {
        "submissions": {
            "type": "array",
            "items": _ONE,
            "minItems": 1,
            "maxItems": MOST_IN_A_BATCH,
        }
    },
    "required": ["submissions"],
}
_COUNT = {
    "type": "object",
    "properties": {"rows": {"type": "integer", "minimum": 1}},
    "required": ["rows"],
}


def _takes(*media: str, json: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Describe the body of a request for OpenAPI: what it has as JSON, and other forms."""
    schemas: dict[str, Any] = {one: {"schema": {}} for one in media}
    if json is not None:
        schemas = {JSON: {"schema": json}} | schemas
    return {"requestBody": {"required": True, "content": schemas}}


def _stated_size(request: Request, unstated: int) -> float:
    """Return how many bytes a request states to have; infinity where that is no number."""
    stated = request.headers.get("content-length", str(unstated))
    return int(stated) if re.fullmatch(r"[0-9]{1,18}", stated) else math.inf


async def _read(request: Request, most: int) -> Body:
    """Read a body that is not too long, from a client that goes on sending it."""
    if _stated_size(request, 0) > most:
        raise HTTPException(413, f"A request may have {most // _MEGABYTE} megabytes.")
    parts, size, stream = [], 0, aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(_SLOW):
                part = await anext(stream, None)
        except TimeoutError:
            raise HTTPException(408, "The request was not sent to its end.") from None
        if part is None:
            break
        size += len(part)
        if size > most:
            raise HTTPException(413, f"A request may have {most // _MEGABYTE} megabytes.")
        parts.append(part)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Body(b"".join(parts), media)


def _json(value: Any) -> Response:
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return Response(text, media_type=JSON)


def _rows(X: Any, accept: str) -> Response:
    """Send features in the form that is asked for: as a vault keeps them, Arrow or .npy."""
    if ARROW in accept:
        return Response(_arrow(X), media_type=ARROW)
    if NPY in accept:
        if not isinstance(X, np.ndarray) or X.dtype.hasobject:
            raise InvalidArgument("Accept", f"{ROWS} or {ARROW} for these rows", NPY)
        return Response(to_bytes(X), media_type=NPY)
    return Response(features_to_bytes(X), media_type=ROWS)


def _arrow(X: Any) -> bytes:
    with needed("An Arrow stream"):
        import pyarrow
        from pyarrow import ipc
    if hasattr(X, "to_arrow"):
        table = X.to_arrow()
    elif hasattr(X, "columns"):
        table = pyarrow.Table.from_pandas(X, preserve_index=False)
    else:
        dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
        if dense.ndim != 2:
            raise InvalidArgument("Accept", f"{ROWS} for these rows", ARROW)
        table = pyarrow.table({f"x{at}": column for at, column in enumerate(dense.T)})
    file = io.BytesIO()
    with ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def _page(api: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(method.upper())}</code></td><td><code>{escape(path)}</code></td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for path, methods in api["paths"].items()
        for method, one in methods.items()
    )
    info = api["info"]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
        "<style>body{font:16px system-ui;margin:2em;max-width:60em}td{padding:.3em .8em}"
        "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['summary'])} The whole description: <code>/openapi.json</code></p>"
        f"<table>{rows}</table></html>"
    )


# -- errors -------------------------------------------------------------------------------


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(NotThere)
    async def not_there(request: Request, error: NotThere) -> Response:
        return _not_found()

    @app.exception_handler(LadderHoldoutError)
    async def refused(request: Request, error: LadderHoldoutError) -> Response:
        return _refused(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        named = sorted({str(one["loc"][-1]) for one in error.errors()})
        return _refused(InvalidArgument(", ".join(named), "as /docs describes it", "another"))

    async def of_http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 404:
            return _not_found()
        headers = {"Connection": "close"} if error.status_code in (408, 413) else {}
        return _problem({"title": str(error.detail), "status": error.status_code}, headers)

    for status in (400, 404, 405, 408, 413):  # the routes' own are of another class
        app.exception_handler(status)(of_http)


def _not_found() -> Response:
    return _refused(UnknownHoldout("There is nothing here for this token."))


def _refused(error: LadderHoldoutError) -> Response:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, DailyLimit):
        headers["Retry-After"] = str(int(86400 - time.time() % 86400) + 1)
    if status == 503:
        # Its text may name files of this machine, which its owner reads in the log.
        LOG.error(json.dumps({"error": type(error).__name__, "text": str(error)}))
        kind = LedgerBusy if isinstance(error, LedgerBusy) else LedgerError
        error = kind("The server cannot read or write its record now. Its owner's log says why.")
        headers["Retry-After"] = "1"
    return _problem(problem_of(error, status), headers)


def _problem(problem: dict[str, Any], headers: dict[str, str]) -> Response:
    return JSONResponse(problem, problem["status"], headers, media_type=PROBLEM)


# -- the log ------------------------------------------------------------------------------


class Prompt(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """Sends each part of an answer at once, in worker processes too.

    asyncio sees to it where it opens the socket itself. What uvicorn hands to its workers held the
    second part of every answer back until the first was acknowledged: 40 ms.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin with a connection."""
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


class Watched:
    """Logs each request in a line of JSON, and lets no unexpected error out but as 500.

    A line has the method, the route, the account, the status and the time that it took: no score,
    no prediction and no token is at hand here. Of an unexpected error it names the type and the
    place, not the text, which may hold anything.

    Parameters
    ----------
    app : ASGIApp
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, fault = time.perf_counter(), 0, None
        scope.setdefault("state", {})

        async def sent(message: Scope) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [(name.lower().encode(), text.encode()) for name, text in _HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception as error:
            fault = _place_of(error)
            if not status:
                problem = {"title": "The server failed; its log says where.", "status": 500}
                await _problem(problem, {})(scope, receive, sent)
        _log(scope, status, time.perf_counter() - begun, fault)


def _place_of(error: Exception) -> str:
    """Return the kind of an error and where it was raised, and nothing of its text."""
    raised = traceback.extract_tb(error.__traceback__, limit=-1)
    return type(error).__name__ + "".join(f" in {one.name}:{one.lineno}" for one in raised)


def _log(scope: Scope, status: int, seconds: float, fault: str | None) -> None:
    route, who = scope.get("route"), scope["state"].get("account")
    line = {
        "method": scope["method"],
        "route": getattr(route, "path", None),
        "holdout": getattr(who, "holdout", None),
        "account": getattr(who, "name", None),
        "status": status,
        "milliseconds": round(1000 * seconds, 1),
    }
    if fault is not None:
        line["error"] = fault
    (LOG.info if fault is None else LOG.error)(json.dumps(line))
