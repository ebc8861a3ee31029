"""The API, version 1: what a request may ask for, and what it is answered.

A request has a token or learns nothing: 401 whatever it asks for. One that asks for another
holdout than its token's, or for more than its role may, gets 404, the same as for a holdout that
does not exist.
"""

# No deferred annotations here: FastAPI reads those of functions within functions.

import io
import json
import os
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from inspect import signature
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ladderholdout.errors import (
    AccessDenied,
    InvalidArgument,
    LadderHoldoutError,
    LadderHoldoutWarning,
)
from ladderholdout.extras import needed
from ladderholdout.ledger.arrays import to_bytes
from ladderholdout.planning import MOST_MORE
from ladderholdout.remote.wire import (
    ARROW,
    BLOCK,
    CONTEXT,
    JSON,
    KEY,
    NPY,
    PROBLEM,
    ROWS,
    array_from,
    plain,
)
from ladderholdout.server.accounts import AccountRecord
from ladderholdout.server.answers import (
    HEADERS,
    LOG,
    MEGABYTE,
    Body,
    Refusal,
    not_found,
    read_body,
    refused,
    refused_by_http,
    responses_of,
    stated_size,
)
from ladderholdout.server.bodies import (
    SEARCH,
    baseline_in,
    batch_in,
    comparison_in,
    is_search,
    margin_in,
    object_in,
    submission_in,
)
from ladderholdout.server.grid import ASGIApp, OnGrid, Receive, Scope, Send
from ladderholdout.server.operations import (
    LONGEST_KEY,
    OPERATIONS,
    Operation,
)
from ladderholdout.server.pages import Pages, add_docs, add_pages
from ladderholdout.server.refusals import Refusals
from ladderholdout.server.sessions import AccountGate, Gate, LocalGate
from ladderholdout.server.settings import STARTED_WITH, ServerSettings
from ladderholdout.server.space import Space
from ladderholdout.server.views import NotThere, Served, View
from ladderholdout.vault import features_to_bytes

with needed("The server", extra="server"):
    from fastapi import Depends, FastAPI, Header, HTTPException, Path, Query, Request, Response
    from fastapi.concurrency import run_in_threadpool
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse

_HEADERS = {name.lower().encode(): text.encode() for name, text in HEADERS.items()}
_GONE = 499  # in the log alone: who asked went away before the end of the request
_MOST_ENTRIES = 1000  # lines of the history in one answer
_SMALL = 2**16  # bytes of a body that is read before its token: a connection buffers as many


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
    served, most = Served(settings), settings.max_body * MEGABYTE
    app = FastAPI(
        title="ladderholdout",
        version=metadata.version("ladderholdout"),
        summary="Submit predictions for holdouts whose labels stay on this machine.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would send people to whatever host a request names
    )
    refusals = Refusals(settings.max_refusals)
    pages = _furnished(app, AccountGate(served), most, refusals)
    add_docs(app, pages)
    _add_routes(app, served, most, refusals)
    # Around all others: refusals and failures depend on the labels, too.
    app.add_middleware(OnGrid, milliseconds=settings.time_grid)
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
    most = ServerSettings(url).max_body * MEGABYTE
    _furnished(app, LocalGate(url, port, token), most, Refusals(None))
    app.add_middleware(OwnHost, port=port)
    return app


def _furnished(app: FastAPI, gate: Gate, most: int, refusals: Refusals) -> Pages:
    """Add the pages, and how errors are answered and requests are logged."""
    pages = add_pages(app, gate, most, refusals)
    _add_handlers(app, pages)
    app.add_middleware(Watched, pages=pages, refusals=refusals)

    @app.get("/healthz", tags=["server"])
    async def health() -> dict[str, str]:
        """Answer that the server runs; the ledger is not asked."""
        return {"status": "ok"}

    return pages


def from_environment() -> FastAPI:
    """Return the application of a worker process, which is handed its settings."""
    # The clients warn where somebody sees it.
    warnings.simplefilter("ignore", LadderHoldoutWarning)
    return create_app(ServerSettings.from_json(os.environ[STARTED_WITH]))


# -- routes -------------------------------------------------------------------------------


def _add_routes(app: FastAPI, served: Served, most: int, refusals: Refusals) -> None:
    def holder_of(request: Request) -> AccountRecord:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        account = served.holder(token.strip()) if kind.lower() == "bearer" else None
        if account is None:
            raise AccessDenied("A token that is valid is needed, as Authorization: Bearer TOKEN.")
        request.state.account = account
        refusals.check(request)
        return account

    def view_for(request: Request, asked: Operation, whose: str | None = None) -> View:
        account, name = holder_of(request), request.path_params["name"]
        if account.holdout != name or account.role not in asked.roles:
            raise NotThere
        view = served.view(account, whose, starts=asked.name in ("submit", "collect"))
        view.check_block(request.headers.get(BLOCK))
        return view

    def view_of(asked: Operation) -> Any:
        """Return what FastAPI calls for the view of who asks for an operation."""

        def own(request: Request, name: Annotated[str, Path()]) -> View:
            return view_for(request, asked)

        def chosen(
            request: Request,
            name: Annotated[str, Path()],
            account: Annotated[
                str | None, Query(description="Whose ladder; for readers and owners.")
            ] = None,
        ) -> View:
            return view_for(request, asked, account)

        return Depends(chosen if asked.any_ladder else own)

    def answer_to(asked: Operation, seen: Any) -> Callable[..., Response]:
        async def fields_of(request: Request, view: Annotated[View, seen]) -> dict[str, Any]:
            if asked.model is None:
                return {}
            body = await read_body(request, _SMALL, most)
            return dict(object_in(body.data, asked.model))

        def answer(
            view: Annotated[View, seen], fields: Annotated[dict[str, Any], Depends(fields_of)]
        ) -> Response:
            if asked.name == "withdraw":  # its body names the ladder
                assert view.account is not None
                view = served.view(view.account, fields.pop("account"))
            done = asked.does(view, **fields)
            return Response(status_code=204) if done is None else _json(done)

        return answer

    views = {name: view_of(known) for name, known in OPERATIONS.items()}

    def rows(request: Request, view: Annotated[View, views["rows"]]) -> Response:
        return _rows(view.rows(), request.headers.get("accept", ""))

    def number_of_rows(view: Annotated[View, views["order"]]) -> int:
        return view.ladder.facts.n

    async def hashes_of_rows(
        request: Request, n: Annotated[int, Depends(number_of_rows)]
    ) -> NDArray[Any]:
        return array_from((await read_body(request, min(most, _SMALL + 8 * n), most)).data)

    def order(
        view: Annotated[View, views["order"]],
        hashes: Annotated[NDArray[Any], Depends(hashes_of_rows)],
    ) -> Response:
        return Response(to_bytes(view.order(hashes)), media_type=NPY)

    def group_names(view: Annotated[View, views["group_names"]]) -> Response:
        return Response(to_bytes(view.group_names()), media_type=NPY)

    async def query(request: Request, asked_for: Operation) -> Response:
        # What is asked for most: FastAPI takes longer to find five arguments than all else.
        def submitted(sent: Body, view: View) -> Response:
            key = request.headers.get(KEY)
            if key is not None and len(key) > LONGEST_KEY:
                raise InvalidArgument(KEY, f"at most {LONGEST_KEY} characters", "more")
            context, ids = request.headers.get(CONTEXT), request.query_params.get("ids")
            space = Space.of(view.ladder)
            asked = submission_in(sent.data, sent.media, view.wanted, context, space, ids)
            if asked_for.name == "decide":
                margin = margin_in(request.query_params.get("margin"))
                baseline = baseline_in(request.query_params.get("baseline"))
                return _json(view.decide(replace(asked, margin=margin, baseline=baseline), key))
            return _json(asked_for.does(view, asked, key))

        def analyst() -> View:
            return view_for(request, asked_for, request.query_params.get("account"))

        def expected() -> tuple[View, int]:
            view = analyst()
            return view, min(most, Space.of(view.ladder).largest)

        if stated_size(request, _SMALL) < _SMALL:
            sent = await read_body(request, most)
            return await run_in_threadpool(lambda: submitted(sent, analyst()))
        view, largest = await run_in_threadpool(expected)
        sent = await read_body(request, largest, most)
        return await run_in_threadpool(submitted, sent, view)

    async def submit(request: Request) -> Response:
        return await query(request, OPERATIONS["submit"])

    async def collect(request: Request) -> Response:
        return await query(request, OPERATIONS["collect"])

    async def decide(request: Request) -> Response:
        return await query(request, OPERATIONS["decide"])

    async def batch_of_analyst(
        request: Request, view: Annotated[View, views["submit_batch"]]
    ) -> Body:
        return await read_body(request, most)

    def submit_batch(
        view: Annotated[View, views["submit_batch"]],
        sent: Annotated[Body, Depends(batch_of_analyst)],
        key: Annotated[
            str | None,
            Header(alias=KEY, max_length=LONGEST_KEY, description="Makes a retry a repeat."),
        ] = None,
    ) -> Response:
        if sent.media not in ("", JSON):
            raise InvalidArgument("Content-Type", JSON, "another one")
        return _json(view.submit_batch(batch_in(sent.data, Space.of(view.ladder)), key))

    async def compared(request: Request, view: Annotated[View, views["compare"]]) -> Body:
        return await read_body(request, min(most, 2 * Space.of(view.ladder).largest), most)

    def compare(
        view: Annotated[View, views["compare"]], sent: Annotated[Body, Depends(compared)]
    ) -> Response:
        if sent.media not in ("", JSON):
            raise InvalidArgument("Content-Type", JSON, "another one")
        return _json(view.compare(*comparison_in(sent.data, Space.of(view.ladder))))

    def history(
        view: Annotated[View, views["history"]],
        after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=_MOST_ENTRIES)] = 100,
        search: Annotated[str | None, Query(max_length=32)] = None,
    ) -> Response:
        if search is not None and not is_search(search):
            raise InvalidArgument("search", SEARCH, "another")
        return _json(view.history(after, limit, search))

    def health(
        view: Annotated[View, views["health"]],
        more: Annotated[int, Query(ge=1, le=MOST_MORE)] = 5,
        spent_at: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
    ) -> Response:
        return _json(view.health(more, spent_at))

    @app.get("/v1/holdouts", tags=["holdouts"], responses=responses_of("GET"))
    def list_holdouts(account: Annotated[AccountRecord, Depends(holder_of)]) -> Response:
        """List the holdouts of the token."""
        return _json({"holdouts": [served.view(account).listed()]})

    results = (compare, history, health)
    of_their_own_form = (rows, group_names, order, submit, collect, decide, submit_batch, *results)
    answers = {answer.__name__: answer for answer in of_their_own_form}
    for name, known in OPERATIONS.items():
        app.add_api_route(
            "/v1/holdouts/{name:path}" + known.path,
            answers.get(name) or answer_to(known, views[name]),
            methods=[known.method],
            tags=[known.tag],
            name=name,
            description=known.described,
            openapi_extra=dict(known.openapi),
            status_code=204 if signature(known.does).return_annotation == "None" else 200,
            responses=responses_of(known.method),
        )


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
        table = pyarrow.table({f"x{place}": column for place, column in enumerate(dense.T)})
    file = io.BytesIO()
    with ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


# -- errors -------------------------------------------------------------------------------


def _add_handlers(app: FastAPI, pages: Pages) -> None:
    async def answered(request: Request, refusal: Refusal) -> Response:
        if is_api(request.url.path):
            return _problem(refusal)
        return await run_in_threadpool(pages.refused, request, refusal)

    @app.exception_handler(NotThere)
    async def not_there(request: Request, error: NotThere) -> Response:
        return await answered(request, not_found())

    @app.exception_handler(LadderHoldoutError)
    async def of_library(request: Request, error: LadderHoldoutError) -> Response:
        return await answered(request, refused(error, whole=pages.gate.port is not None))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        named = ", ".join(sorted({str(fault["loc"][-1]) for fault in error.errors()}))
        return await answered(request, refused(InvalidArgument(named, "of its form", "another")))

    async def of_http(request: Request, error: HTTPException) -> Response:
        return await answered(request, refused_by_http(error))

    for status in (400, 403, 404, 405, 408, 413, 429):  # the routes' own are of another class
        app.exception_handler(status)(of_http)


def is_api(path: str) -> bool:
    """Return whether a path is answered for programs, and not as a page."""
    return path.startswith("/v1") or path in ("/healthz", "/openapi.json")


def _problem(refusal: Refusal) -> Response:
    return JSONResponse(refusal.problem, refusal.status, refusal.headers, media_type=PROBLEM)


# -- the log ------------------------------------------------------------------------------


class OwnHost:
    """Refuses requests under another name than this machine's own, such as one that was rebound.

    Parameters
    ----------
    app : ASGIApp
    port : int
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and dict(scope["headers"]).get(b"host") not in self._hosts:
            problem = {"title": "These pages are at 127.0.0.1 alone.", "status": 421}
            await _problem(Refusal(problem, {}))(scope, receive, send)
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
    refusals : Refusals
        Count bodies that were not taken.
    """

    def __init__(self, app: ASGIApp, pages: Pages, refusals: Refusals) -> None:
        self._app, self._pages, self._refusals = app, pages, refusals

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
                failed = Refusal(problem, {})
                show = _problem if is_api(scope["path"]) else self._pages.error
                await show(failed)(scope, receive, sent)
        self._refusals.note(Request(scope), status)
        _log(scope, status, time.perf_counter() - begun, fault)


def _place_of(error: Exception) -> str:
    """Return the kind of an error and where it was raised, and nothing of its text."""
    raised = traceback.extract_tb(error.__traceback__, limit=-1)
    return type(error).__name__ + "".join(f" in {line.name}:{line.lineno}" for line in raised)


def _log(scope: Scope, status: int, seconds: float, fault: str | None) -> None:
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
    (LOG.info if fault is None else LOG.error)(json.dumps(line))
