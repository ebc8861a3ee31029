"""The API, version 1: what a request may ask for, and what it is answered.

A request has a token or learns nothing: 401 whatever it asks for. One that asks for another
holdout than its token's, or for more than its role may, gets 404, the same as for a holdout that
does not exist.
"""

# No deferred annotations here: FastAPI reads those of functions within functions.

import inspect
import os
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np

from ladderholdout import errors, extras
from ladderholdout.guard import commands
from ladderholdout.ledger.arrays import to_bytes
from ladderholdout.remote.wire import ARROW, BLOCK, CSV, JSON, NPY, PROBLEM, ROWS
from ladderholdout.server import accounts, answers, bodies, grid, views
from ladderholdout.server.pages import Pages, add_pages
from ladderholdout.server.settings import STARTED_WITH, ServerSettings
from ladderholdout.vault import arrow, features_to_bytes

with extras.needed("The server", extra="server"):
    from fastapi import FastAPI, Request, Response
    from fastapi.concurrency import run_in_threadpool
    from fastapi.responses import JSONResponse

_HEADERS = {name.lower().encode(): text.encode() for name, text in answers.HEADERS.items()}
_GONE = 499  # in the log alone: who asked went away before the end of the request
_SMALL = 2**16  # bytes that the body of any command may have


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
    served, most = views.Served(settings), settings.max_body * answers.MEGABYTE
    # Redirects of slashes would send people to whatever host a request names.
    app = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False)
    refusals = answers.Refusals(settings.max_refusals)
    _furnish(app, views.AccountGate(served), most, refusals)
    _add_routes(app, served, most, refusals)
    # Around all others: refusals and failures depend on the labels, too.
    app.add_middleware(grid.OnGrid, milliseconds=settings.time_grid)
    return app


def create_ui(url: str, port: int, token: str) -> FastAPI:
    """Return the application of the pages for one person, the owner of a ledger.

    Parameters
    ----------
    url : str
        Of the ledger.
    port : int
        Of 127.0.0.1, where it is served: requests for other hosts are refused.
    token : str
        Taken once, for a session.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    most = ServerSettings(url).max_body * answers.MEGABYTE
    _furnish(app, views.LocalGate(url, port, token), most, answers.Refusals(None))
    app.add_middleware(OwnHost, port=port)
    return app


def _furnish(app: FastAPI, gate: views.Gate, most: int, refusals: answers.Refusals) -> None:
    """Add the pages, and how errors are answered and requests are logged."""
    pages = add_pages(app, gate, most, refusals)
    app.add_middleware(Watched, pages=pages, refusals=refusals)

    async def failed(request: Request, error: Exception) -> Response:
        refusal = answers.refused(error, whole=gate.port is not None)
        if is_api(request.url.path):
            return _problem(refusal)
        return await run_in_threadpool(pages.refused, request, refusal)

    # Those of HTTP by their status: the routes' own are of another class.
    for kind in (views.NotThere, errors.LadderHoldoutError, 400, 403, 404, 405, 408, 413, 429):
        app.exception_handler(kind)(failed)

    @app.get("/healthz", include_in_schema=False)
    async def health() -> dict[str, str]:
        """Answer that the server runs; the ledger is not asked."""
        return {"status": "ok"}


def from_environment() -> FastAPI:
    """Return the application of a worker process, which is handed its settings."""
    # The clients warn where somebody sees it.
    warnings.simplefilter("ignore", errors.LadderHoldoutWarning)
    return create_app(ServerSettings.from_json(os.environ[STARTED_WITH]))


# -- routes -------------------------------------------------------------------------------


def _add_routes(app: FastAPI, served: views.Served, most: int, refusals: answers.Refusals) -> None:
    """Add the one route of all commands, under the word of each, and the list of holdouts."""

    def holder_of(request: Request) -> accounts.AccountRecord:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        account = served.holder(token.strip()) if kind.lower() == "bearer" else None
        if account is None:
            raise errors.AccessDenied(
                "A token that is valid is needed, as Authorization: Bearer TOKEN."
            )
        request.state.account = account
        return account

    def expected(
        request: Request, kind: type[commands.Command[Any]]
    ) -> tuple[views.View, bodies.Space | None]:
        account = holder_of(request)
        if not kind.reads:
            refusals.check(request)
        if account.holdout != request.path_params["name"]:
            raise views.NotThere
        starts = issubclass(kind, commands.Candidate)
        view = served.view(account, request.query_params.get("account"), starts=starts)
        view.check_role(kind)
        view.check_block(request.headers.get(BLOCK))
        return view, bodies.Space.of(view.ladder) if kind.sets else None

    def route_of(kind: type[commands.Command[Any]]) -> Callable[[Request], Awaitable[Response]]:
        def answered(
            request: Request, sent: bodies.Sent, view: views.View, space: bodies.Space | None
        ) -> Response:
            answer = view.execute(bodies.command_in(kind, sent, space, view.wanted))
            if kind.answer is bytes:
                return _rows(answer, request.headers.get("accept", ""))
            return Response(commands.written(answer), media_type=JSON)

        async def operate(request: Request) -> Response:
            view, space = await run_in_threadpool(expected, request, kind)
            largest = 0 if space is None else kind.sets * space.largest
            sent = await answers.read_body(request, max(largest, _SMALL), most)
            return await run_in_threadpool(answered, request, sent, view, space)

        return operate

    @app.get("/v1/holdouts", include_in_schema=False)
    def list_holdouts(request: Request) -> Response:
        described = served.view(holder_of(request)).execute(commands.Describe())
        return Response(commands.written({"holdouts": [described]}), media_type=JSON)

    for word, kind in commands.COMMANDS.items():
        # A name of an older ledger may have slashes.
        path, post = "/v1/holdouts/{name:path}/" + word, ["POST"]
        app.add_api_route(path, route_of(kind), methods=post, name=word, include_in_schema=False)
    app.openapi = openapi  # type: ignore[method-assign]


def _rows(X: Any, accept: str) -> Response:
    """Send features in the form that is asked for: as a vault keeps them, Arrow or .npy."""
    if ARROW in accept:
        return Response(_arrow(X), media_type=ARROW)
    if NPY in accept:
        if not isinstance(X, np.ndarray) or X.dtype.hasobject:
            raise errors.InvalidArgument("Accept", f"{ROWS} or {ARROW} for these rows", NPY)
        return Response(to_bytes(X), media_type=NPY)
    return Response(features_to_bytes(X), media_type=ROWS)


def _arrow(X: Any) -> bytes:
    with extras.needed("An Arrow stream"):
        import pyarrow
    if hasattr(X, "to_arrow"):
        table = X.to_arrow()
    elif hasattr(X, "columns"):
        table = pyarrow.Table.from_pandas(X, preserve_index=False)
    else:
        dense = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
        if dense.ndim != 2:
            raise errors.InvalidArgument("Accept", f"{ROWS} for these rows", ARROW)
        table = pyarrow.table({f"x{place}": column for place, column in enumerate(dense.T)})
    data: bytes = arrow.written(table).to_pybytes()
    return data


# -- errors -------------------------------------------------------------------------------


def is_api(path: str) -> bool:
    """Return whether a path is answered for programs, and not as a page."""
    return path.startswith("/v1") or path in ("/healthz", "/openapi.json")


def _problem(refusal: answers.Refusal) -> Response:
    return JSONResponse(refusal.problem, refusal.status, refusal.headers, media_type=PROBLEM)


# -- the log ------------------------------------------------------------------------------


class OwnHost:
    """Refuses requests under another name than this machine's own, such as one that was rebound.

    Parameters
    ----------
    app : ASGIApp
    port : int
    """

    def __init__(self, app: grid.ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: grid.Scope, receive: grid.Receive, send: grid.Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and dict(scope["headers"]).get(b"host") not in self._hosts:
            problem = {"title": "These pages are at 127.0.0.1 alone.", "status": 421}
            await _problem(answers.Refusal(problem, {}))(scope, receive, send)
            return
        await self._app(scope, receive, send)


class Watched:
    """Logs each request in a line of JSON, and lets no unexpected error out but as 500.

    A line has the method, the route, the account, the status and the time that it took: no score,
    no prediction and no token is available here. Of an unexpected error it names the type and the
    place, not the text, which may hold anything.

    Parameters
    ----------
    app : ASGIApp
    pages : Pages
        Show an error where a page was asked for.
    refusals : answers.Refusals
        Count bodies that were not taken.
    """

    def __init__(self, app: grid.ASGIApp, pages: Pages, refusals: answers.Refusals) -> None:
        self._app, self._pages, self._refusals = app, pages, refusals

    async def __call__(self, scope: grid.Scope, receive: grid.Receive, send: grid.Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, fault = time.perf_counter(), 0, None
        scope.setdefault("state", {})

        async def sent(message: grid.Scope) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                stated = list(message.get("headers", ()))
                missing = _HEADERS.keys() - {name for name, _ in stated}
                message["headers"] = stated + [(name, _HEADERS[name]) for name in sorted(missing)]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except Exception as error:
            if type(error).__name__ == "ClientDisconnect":  # Starlette's, which FastAPI hands on
                status = _GONE
            else:
                fault = _place_of(error)
            if not status:
                problem = {"title": "The server failed; its log has the details.", "status": 500}
                failed = answers.Refusal(problem, {})
                show = _problem if is_api(scope["path"]) else self._pages.error
                await show(failed)(scope, receive, sent)
        self._refusals.note(Request(scope), status)
        _log(scope, status, time.perf_counter() - begun, fault)


def _place_of(error: Exception) -> str:
    """Return the kind of an error and where it was raised, and nothing of its text."""
    raised = traceback.extract_tb(error.__traceback__, limit=-1)
    return type(error).__name__ + "".join(f" in {line.name}:{line.lineno}" for line in raised)


def _log(scope: grid.Scope, status: int, seconds: float, fault: str | None) -> None:
    route, account = scope.get("route"), scope["state"].get("account")
    line = {
        "method": scope["method"],
        "route": getattr(route, "path_format", None),
        "holdout": getattr(account, "holdout", None),
        "account": getattr(account, "name", None),
        "status": status,
        "milliseconds": round(1000 * seconds, 1),
    }
    if fault is not None:
        line["error"] = fault
    (answers.LOG.info if fault is None else answers.LOG.error)(line)


# -- OpenAPI: the commands as their schemas describe them -------------------------------

_MEANINGS = {
    401: "There is no valid token.",
    404: "It is not there, or not for this token.",
    408: "The request was not sent to its end.",
    409: "The state of the holdout does not allow it.",
    413: "The request is too large.",
    415: "The server cannot read or write this form.",
    422: "What was sent is refused, and the problem names it.",
    429: "A limit is reached; Retry-After has the seconds.",
    500: "The server failed; its log has the details.",
    503: "The server cannot read or write its record now.",
}
_PROBLEM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "status": {"type": "integer"}},
    "required": ["title", "status"],
}
_REFUSED = {
    str(status): {"description": said, "content": {PROBLEM: {"schema": _PROBLEM}}}
    for status, said in _MEANINGS.items()
}


@cache
def openapi() -> dict[str, Any]:
    """Describe the API."""
    known = commands.COMMANDS
    read = [(kind, "validation", commands.adapter(kind)) for kind in known.values()]
    told = [kind for kind in known.values() if kind.answer is not bytes]
    sent = [(kind, "serialization", commands.adapter(kind.answer)) for kind in told]
    schemas, shared = commands.schemas_of(read + sent, "#/components/schemas/{model}")
    paths = {
        f"/v1/holdouts/{{name}}/{word}": {"post": _operation(word, kind, schemas)}
        for word, kind in known.items()
    }
    listed = _answered("The holdouts of the token.", {JSON: {"schema": {"type": "object"}}})
    health = {"200": {"description": "The server runs."}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ladderholdout",
            "version": metadata.version("ladderholdout"),
            "summary": "Submit predictions for holdouts whose labels stay on this machine.",
        },
        "paths": {
            "/healthz": {"get": {"summary": "Health", "tags": ["server"], "responses": health}},
            "/v1/holdouts": {
                "get": {"summary": "List the holdouts of the token.", "responses": listed}
            },
            **paths,
        },
        "components": {"schemas": shared.get("$defs", {})},
    }


def _operation(word: str, kind: type[commands.Command[Any]], schemas: Any) -> dict[str, Any]:
    content = {JSON: {"schema": schemas[kind, "validation"]}}
    parameters = [
        _parameter("path", "name", "Of the holdout."),
        _parameter("header", BLOCK, "Of the rows that are meant; others are refused."),
        _parameter("query", "account", "Whose ladder; for hosts, readers and owners."),
    ]
    if "predictions" in (names := commands.names_of(kind)):
        # A table or an array is the predictions, and the other fields are in the address.
        content |= {form: {"schema": {}} for form in (NPY, CSV, ARROW)}
        parameters += [_parameter("query", name, "As in JSON.") for name in names[1:]]
    answer: dict[str, Any] = {form: {"schema": {}} for form in (ROWS, ARROW, NPY)}
    if kind.answer is not bytes:
        answer = {JSON: {"schema": schemas[kind, "serialization"]}}
    return {
        "summary": word,
        "description": inspect.getdoc(kind),
        "operationId": word,
        "tags": ["commands"],
        "parameters": parameters,
        "requestBody": {"content": content},
        "responses": _answered("What was asked for.", answer),
        "x-roles": sorted(kind.roles),
        "x-setting": kind.setting,
    }


def _answered(said: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"200": {"description": said, "content": content}} | _REFUSED


def _parameter(place: str, name: str, said: str) -> dict[str, Any]:
    shape = {"in": place, "name": name, "description": said, "schema": {"type": "string"}}
    return shape | {"required": place == "path"}
