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
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import metadata
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import BaseModel

from ladderholdout.errors import (
    AccessDenied,
    InvalidArgument,
    LadderHoldoutError,
    LadderHoldoutWarning,
)
from ladderholdout.extras import needed
from ladderholdout.ledger import AccountRecord
from ladderholdout.ledger.records import to_bytes
from ladderholdout.remote.wire import (
    ARROW,
    CONTEXT,
    JSON,
    KEY,
    NPY,
    PROBLEM,
    ROWS,
    array_from,
    plain,
)
from ladderholdout.server.accounts import Issued, accounts_of
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
    stated_size,
)
from ladderholdout.server.bodies import SEARCH, batch_in, is_search, object_in, submission_in
from ladderholdout.server.grid import OnGrid
from ladderholdout.server.operations import (
    A_BATCH,
    A_SUBMISSION,
    ACTIONS,
    LONGEST_KEY,
    AccountName,
    Action,
    Confirmed,
    FoundRows,
    Sign,
    Withdrawal,
    takes,
)
from ladderholdout.server.pages import Pages, add_docs, add_pages
from ladderholdout.server.refusals import Refusals
from ladderholdout.server.served import MOST_ENTRIES, NotThere, Served, account_shown
from ladderholdout.server.sessions import AccountGate, Gate, LocalGate
from ladderholdout.server.settings import STARTED_WITH, ServerSettings
from ladderholdout.server.space import Space
from ladderholdout.vault import features_to_bytes

with needed("The server", extra="server"):
    from fastapi import Depends, FastAPI, Header, HTTPException, Path, Query, Request, Response
    from fastapi.concurrency import run_in_threadpool
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Scope]]
Send: TypeAlias = Callable[[Scope], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_GONE = 499  # in the log alone: who asked went away before the end of the request
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
    def token_holder(request: Request) -> AccountRecord:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        who = served.holder(token.strip()) if kind.lower() == "bearer" else None
        if who is None:
            raise AccessDenied("A token that is valid is needed, as Authorization: Bearer TOKEN.")
        request.state.account = who
        refusals.check(request)
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
    Asking = Annotated[AccountRecord, role("analyst", "owner")]
    Account = Annotated[str | None, Query(description="Whose ladder; for readers and owners.")]
    Key = Annotated[
        str | None,
        Header(alias=KEY, max_length=LONGEST_KEY, description="Makes a retry a repeat."),
    ]

    def space_of(who: Analyst) -> Space:
        return Space.of(served.ladder(who))

    def of_analyst(model: type[BaseModel]) -> Any:
        async def read(request: Request, who: Analyst) -> BaseModel:
            return object_in((await read_body(request, _SMALL, most)).data, model)

        return Depends(read)

    def of_owner(model: type[BaseModel]) -> Any:
        async def read(request: Request, who: Owner) -> BaseModel:
            return object_in((await read_body(request, _SMALL, most)).data, model)

        return Depends(read)

    async def hashes_of_rows(request: Request, space: Annotated[Space, Depends(space_of)]) -> Body:
        return await read_body(request, min(most, _SMALL + 8 * space.rows), most)

    async def batch_of_analyst(request: Request, who: Analyst) -> Body:
        return await read_body(request, most)

    Hashes = Annotated[Body, Depends(hashes_of_rows)]
    SentBatch = Annotated[Body, Depends(batch_of_analyst)]

    @app.get("/v1/holdouts", tags=["holdouts"])
    def list_holdouts(who: Holder) -> Response:
        """List the holdouts of the token."""
        return _json({"holdouts": [served.listed(who)]})

    @app.get("/v1/holdouts/{name:path}/rows", tags=["holdouts"])
    def rows(request: Request, who: Anyone) -> Response:
        """Send the features without labels, where the owner shares them."""
        return _rows(served.rows(who), request.headers.get("accept", ""))

    @app.post("/v1/holdouts/{name:path}/rows/order", tags=["holdouts"], openapi_extra=takes(NPY))
    def order(who: Analyst, sent: Hashes) -> Response:
        """Return where each row of the holdout is among somebody's own, by hashes of these."""
        return Response(to_bytes(served.order_of(who, array_from(sent.data))), media_type=NPY)

    @app.post(
        "/v1/holdouts/{name:path}/overlaps", tags=["holdouts"], openapi_extra=takes(model=FoundRows)
    )
    def overlaps(who: Analyst, found: Annotated[FoundRows, of_analyst(FoundRows)]) -> Response:
        """Note that rows of the holdout are among the training rows: {"rows": count}."""
        served.note_overlap(who, found.rows)
        return Response(status_code=204)

    @app.post("/v1/holdouts/{name}/groups", tags=["holdouts"], openapi_extra=takes(model=Sign))
    def groups(who: Analyst, sign: Annotated[Sign, of_analyst(Sign)]) -> Response:
        """Note what showed that the rows come in groups: {"by": text}."""
        served.note_groups(who, sign.by)
        return Response(status_code=204)

    @app.post(
        "/v1/holdouts/{name:path}/submissions",
        tags=["submissions"],
        openapi_extra=A_SUBMISSION,
    )
    async def submit(request: Request) -> Response:
        """Submit predictions for the rows: in the order of the first registration, or with ids."""

        # What is asked for most: FastAPI takes longer to find five arguments than all else.
        def submitted(sent: Body, who: AccountRecord) -> Response:
            key = request.headers.get(KEY)
            if key is not None and len(key) > LONGEST_KEY:
                raise InvalidArgument(KEY, f"at most {LONGEST_KEY} characters", "more")
            context, ids = request.headers.get(CONTEXT), request.query_params.get("ids")
            space = Space.of(served.ladder(who))
            asked = submission_in(sent.data, sent.media, served.wanted(who), context, space, ids)
            return _json(served.submit(who, asked, key))

        def analyst() -> AccountRecord:
            return permitted(token_holder(request), request.path_params["name"], "analyst")

        def expected() -> tuple[AccountRecord, int]:
            who = analyst()
            return who, min(most, space_of(who).largest)

        if stated_size(request, _SMALL) < _SMALL:
            sent = await read_body(request, most)
            return await run_in_threadpool(lambda: submitted(sent, analyst()))
        who, largest = await run_in_threadpool(expected)
        sent = await read_body(request, largest, most)
        return await run_in_threadpool(submitted, sent, who)

    @app.post("/v1/holdouts/{name:path}/batches", tags=["submissions"], openapi_extra=A_BATCH)
    def submit_batch(who: Analyst, sent: SentBatch, key: Key = None) -> Response:
        """Submit several sets of predictions, all fixed before feedback on any of them."""
        if sent.media not in ("", JSON):
            raise InvalidArgument("Content-Type", JSON, "another one")
        batch = batch_in(sent.data, space_of(who))
        return _json({"releases": served.submit_batch(who, batch, key)})

    @app.get("/v1/holdouts/{name:path}/submissions", tags=["submissions"])
    def history(
        who: Anyone,
        account: Account = None,
        after: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 100,
        search: Annotated[str | None, Query(max_length=32)] = None,
    ) -> Response:
        """List submissions and what was released after each."""
        if search is not None and not is_search(search):
            raise InvalidArgument("search", SEARCH, "another")
        return _json(served.history(who, account, after, limit, search))

    @app.get("/v1/holdouts/{name:path}/status", tags=["results"])
    def status(who: Anyone, account: Account = None) -> Response:
        """Return the released score, its certificate, and how much was asked."""
        return _json(served.status(who, account))

    @app.get("/v1/holdouts/{name:path}/certificate", tags=["results"])
    def certificate(who: Anyone, account: Account = None) -> Response:
        """Return the interval for the true score of the incumbent that is on record."""
        return _json(served.certificate(who, account)[0])

    @app.post("/v1/holdouts/{name:path}/certificate", tags=["results"])
    def work_out(who: Asking, account: Account = None) -> Response:
        """Work out that interval, put it on record where it has a price, and return it."""
        return _json(served.work_out(who, account))

    @app.post("/v1/holdouts/{name:path}/estimate", tags=["results"])
    def estimate(who: Analyst) -> Response:
        """Correct the incumbent's score for its selection in a batch, where the owner allows it."""
        return _json(served.estimate(who))

    @app.post("/v1/holdouts/{name:path}/reveal", tags=["results"])
    def reveal(who: Analyst) -> Response:
        """Show the score of a ladder that releases none, where the owner allows it."""
        return _json({"score": served.reveal(who)})

    @app.get("/v1/holdouts/{name:path}/leaderboard", tags=["results"])
    def leaderboard(who: Anyone) -> Response:
        """Rank the accounts by their released scores."""
        return _json(served.standings(who))

    @app.get("/v1/holdouts/{name:path}/accounts", tags=["accounts"])
    def accounts(who: Owner) -> Response:
        """List the accounts on the holdout."""
        return _json({"accounts": [*map(account_shown, accounts_of(served.url, who.holdout))]})

    def add_action(name: str, action: Action) -> None:
        def act(who: Owner, asked: Annotated[AccountName, of_owner(action.model)]) -> Response:
            done = action.does(served.url, who.holdout, asked)
            if isinstance(done, Issued):
                return _json(account_shown(done.account) | {"token": done.token})
            return _json(account_shown(done))

        app.post(
            "/v1/holdouts/{name:path}/accounts" + ("" if name == "add" else f"/{name}"),
            tags=["accounts"],
            name=name,
            description=action.described,
            openapi_extra=takes(model=action.model),
        )(act)

    for action_name, action in ACTIONS.items():
        add_action(action_name, action)

    @app.post(
        "/v1/holdouts/{name:path}/withdrawals",
        tags=["holdouts"],
        openapi_extra=takes(model=Withdrawal),
    )
    def withdraw(who: Owner, asked: Annotated[Withdrawal, of_owner(Withdrawal)]) -> Response:
        """Withdraw a submission, on record: {"account", "submission", "reason"}."""
        return _json(served.withdraw(who, asked.account, asked.submission, asked.reason))

    @app.post(
        "/v1/holdouts/{name:path}/retirement",
        tags=["holdouts"],
        openapi_extra=takes(model=Confirmed),
    )
    def retire(who: Owner, asked: Annotated[Confirmed, of_owner(Confirmed)]) -> Response:
        """Take no more submissions: {"name"}, the holdout's, to confirm it."""
        return _json({"retired": served.retire(who, asked.name)})

    # Last: a name of an older ledger may have slashes.
    @app.get("/v1/holdouts/{name:path}", tags=["holdouts"])
    def describe(who: Anyone, account: Account = None) -> Response:
        """Describe a holdout: its size, features, metric, rules, and the state of a ladder."""
        return _json(served.described(who, account))


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
        named = ", ".join(sorted({str(one["loc"][-1]) for one in error.errors()}))
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
                names = {name for name, _ in stated}
                added = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
                message["headers"] = stated + [one for one in added if one[0] not in names]
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
    return type(error).__name__ + "".join(f" in {one.name}:{one.lineno}" for one in raised)


def _log(scope: Scope, status: int, seconds: float, fault: str | None) -> None:
    route, who = scope.get("route"), scope["state"].get("account")
    line = {
        "method": scope["method"],
        "route": getattr(route, "path_format", None),
        "holdout": getattr(who, "holdout", None),
        "account": getattr(who, "name", None),
        "status": status,
        "milliseconds": round(1000 * seconds, 1),
    }
    if fault is not None:
        line["error"] = fault
    (LOG.info if fault is None else LOG.error)(json.dumps(line))
