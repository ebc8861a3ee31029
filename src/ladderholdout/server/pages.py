"""The pages: what people see of holdouts in a browser, and the forms that they send.

They work without JavaScript, and show what the API answers. Nothing in them is of other hosts.
"""

# No deferred annotations here: FastAPI reads those of functions within functions.

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from ladderholdout import errors
from ladderholdout.errors import printable
from ladderholdout.extras import needed
from ladderholdout.guard import Status, Submission, commands, origin_of, picture_of
from ladderholdout.leaderboard import commands as boards
from ladderholdout.leaderboard.standings import BOARD
from ladderholdout.ledger.fold import parted_name
from ladderholdout.pictures import number
from ladderholdout.server import accounts as of_accounts
from ladderholdout.server import bodies
from ladderholdout.server.answers import Refusal, Refusals, of_forms, read_body, refused
from ladderholdout.server.sessions import LIFE, Gate, Session
from ladderholdout.server.space import Space
from ladderholdout.server.views import REPORT, NotThere, View

with needed("A page of the server", extra="server"):
    from fastapi import Depends, FastAPI, HTTPException, Request, Response
    from fastapi.responses import HTMLResponse, RedirectResponse
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

_LINES = 50
_DRAWN = 1000
_MORE = 5
"""After so many more improvements the width of a certificate is forecast."""
_LONGEST_NOTE, _LONGEST_CELL = 500, 300
_MOST_CLASSES = 20
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# A report is one file with styles of its own, and runs nothing.
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
_SHOWN_ON_THE_PAGE = (errors.InvalidArgument, errors.HoldoutConflict, errors.UnknownHoldout)


Route: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class SignInNeeded(Exception):
    """Nobody has signed in."""


class Pages:
    """Renders the templates of the pages, and has their files.

    Parameters
    ----------
    gate : Gate
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        folder = resources.files("ladderholdout.server") / "static"
        self.files = {file.name: file.read_bytes() for file in folder.iterdir()}
        self._environment = Environment(
            loader=PackageLoader("ladderholdout.server"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=lambda value: printable(value) if type(value) is str else value,
        )
        content = b"".join(self.files[name] for name in sorted(self.files))
        self._environment.globals |= {
            "version": hashlib.sha256(content).hexdigest()[:12],
            "local": gate.port is not None,
        }
        self._environment.filters |= {
            "number": number,
            "moment": lambda time: f"{time:%Y-%m-%d %H:%M}",
            "part": lambda text: quote(text, safe=""),
        }

    def show(
        self, template: str, session: Session | None, code: int = 200, /, **content: Any
    ) -> HTMLResponse:
        """Return a page."""
        text = self._environment.get_template(template).render(session=session, **content)
        return HTMLResponse(text, code)

    def keep(self, response: Response, session: Session, request: Request) -> Response:
        """Set the cookie of a session."""
        secure = request.url.scheme == "https"
        response.set_cookie(
            self.gate.cookie,
            session.cookie,
            max_age=LIFE,
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return response

    def session(self, request: Request) -> Session:
        """Return whose request this is."""
        return self.gate.read(request.cookies.get(self.gate.cookie, ""))

    def refused(self, request: Request, refusal: Refusal) -> Response:
        """Show an error; to somebody who has not signed in, show how to sign in alone."""
        session = self.session(request)
        if session.person is None and refusal.status in (404, 405):
            return self.sign_in_needed(request)
        return self.error(refusal, session)

    def error(self, refusal: Refusal, session: Session | None = None) -> Response:
        """Show an error."""
        problem, person = refusal.problem, session if session and session.person else None
        title = _TITLES.get(refusal.status, "That was refused")
        text = problem.get("detail") or problem["title"]
        if refusal.status == 404:
            text = "There is no such page, or it is not for you."
        page = self.show("error.html", person, refusal.status, title=title, text=text)
        page.headers.update({k: v for k, v in refusal.headers.items() if k != "WWW-Authenticate"})
        return page

    def sign_in_needed(self, request: Request) -> Response:
        """Send somebody to where one signs in."""
        if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
            # A link from elsewhere brings no cookie; one from here does.
            return self.show("moving.html", None, to=_here(request))
        if self.gate.port is not None:
            return self.show("closed.html", None, 401)
        back = urlencode({"next": _here(request)}) if request.method == "GET" else ""
        return RedirectResponse(f"/sign-in?{back}" if back else "/sign-in", 303)


_TITLES = {
    403: "That form was not taken",
    404: "Nothing here",
    409: "That is not possible",
    413: "That is too large",
    422: "That was not understood",
    429: "That is enough for now",
    500: "The server failed",
    503: "The record cannot be reached",
}


def add_docs(app: FastAPI, pages: Pages) -> None:
    """Add the page that lists the operations of the API."""

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        api = app.openapi()
        operations = [
            (method.upper(), path, described.get("description") or described.get("summary", ""))
            for path, methods in api["paths"].items()
            for method, described in methods.items()
        ]
        return pages.show("docs.html", None, info=api["info"], operations=operations)


def add_pages(app: FastAPI, gate: Gate, most: int, refusals: Refusals) -> Pages:
    """Add the pages to an application.

    Parameters
    ----------
    app : FastAPI
    gate : Gate
    most : int
        How many bytes a request may have.
    refusals : Refusals
        Counts bodies that were not taken.
    """
    pages = Pages(gate)

    def visit(request: Request) -> Session:
        return pages.session(request)

    Visit = Annotated[Session, Depends(visit)]

    def signed_in(session: Visit) -> Session:
        if session.person is None:
            raise SignInNeeded
        return session

    Signed = Annotated[Session, Depends(signed_in)]

    def view_of(request: Request, session: Signed, name: str) -> View:
        assert session.person is not None
        chosen = {key: request.query_params.get(key) for key in ("account", "ladder")}
        stated = {key: value for key, value in chosen.items() if value is not None}
        view = session.person.view(name, stated)
        request.state.account = view.account
        return view

    Seen = Annotated[View, Depends(view_of)]

    async def sent(
        request: Request, session: Session, largest: int = bodies.MOST_OF_A_FORM
    ) -> bodies.Form:
        _check_origin(request)
        refusals.check(request)
        body = await read_body(request, min(most, largest), most)
        form = bodies.form_in(body.data, request.headers.get("content-type", ""))
        if not session.takes(form.fields.get("form_token", "")):
            raise HTTPException(403, _OF_ANOTHER_PAGE)
        return form

    async def form_of_visitor(request: Request, session: Visit) -> bodies.Form:
        return await sent(request, session)

    async def form_of_person(request: Request, session: Signed) -> bodies.Form:
        return await sent(request, session)

    def space_of(view: Seen) -> Space:
        return Space.of(view.ladder)

    async def form_with_file(
        request: Request, session: Signed, space: Annotated[Space, Depends(space_of)]
    ) -> bodies.Form:
        return await sent(request, session, space.largest + bodies.MOST_OF_A_FORM)

    Filled = Annotated[bodies.Form, Depends(form_of_person)]
    Upload = Annotated[bodies.Form, Depends(form_with_file)]

    def page(path: str, method: str = "GET") -> Route:
        return app.api_route(path, methods=[method], include_in_schema=False)

    @app.exception_handler(SignInNeeded)
    async def nobody(request: Request, error: SignInNeeded) -> Response:
        return pages.sign_in_needed(request)

    @page("/static/{name}")
    async def static(name: str) -> Response:
        if name not in pages.files:
            raise NotThere
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(
            pages.files[name], media_type=kind, headers={"Cache-Control": "public, max-age=86400"}
        )

    # -- signing in and out --------------------------------------------------------------

    if gate.port is None:

        @page("/sign-in")
        def sign_in(request: Request, session: Visit, next: str = "/") -> Response:
            shown = pages.show("sign_in.html", session, next=_inside(next), wrong=False)
            return pages.keep(shown, session, request)

        @page("/sign-in", "POST")
        def enter(
            request: Request,
            session: Visit,
            form: Annotated[bodies.Form, Depends(form_of_visitor)],
        ) -> Response:
            to = _inside(form.fields.get("next", "/"))
            entered = gate.enter(session.cookie, form.fields.get("token", "").strip())
            if entered is None:
                shown = pages.show("sign_in.html", session, 401, next=to, wrong=True)
                return pages.keep(shown, session, request)
            return pages.keep(RedirectResponse(to, 303), entered, request)

    else:

        @page("/enter")
        def enter_once(request: Request, token: str = "") -> Response:
            entered = gate.enter("", token)
            if entered is None:
                return pages.show("closed.html", None, 401)
            return pages.keep(pages.show("moving.html", None, to="/"), entered, request)

    @page("/sign-out", "POST")
    def sign_out(session: Signed, form: Filled) -> Response:
        gate.leave(session.cookie)
        answer = RedirectResponse("/sign-in" if gate.port is None else "/", 303)
        answer.delete_cookie(gate.cookie, httponly=True, samesite="strict")
        return answer

    # -- what is shown -------------------------------------------------------------------

    @page("/")
    def holdouts(session: Signed) -> Response:
        assert session.person is not None
        lines = [_line(view) for view in session.person.views()]
        return pages.show("holdouts.html", session, lines=lines)

    @page("/holdouts/{name:path}/leaderboard")
    def leaderboard(session: Signed, view: Seen) -> Response:
        _require(view, "leaderboard")
        return board(session, view)

    @page("/holdouts/{name:path}/report")
    def report(view: Seen) -> Response:
        _require(view, REPORT)
        return HTMLResponse(view.report(), headers={"Content-Security-Policy": _REPORT_POLICY})

    @page("/holdouts/{name:path}/submissions/{place}")
    def submission(session: Signed, view: Seen, place: str) -> Response:
        return pages.show("submission.html", session, **_submission(view, place))

    @page("/holdouts/{name:path}/manage")
    def manage(session: Signed, view: Seen) -> Response:
        _require(view, "accounts")
        return managed(session, view)

    # -- what is asked for ---------------------------------------------------------------

    def board(
        session: Session, view: View, error: errors.LadderHoldoutError | None = None
    ) -> Response:
        return pages.show("leaderboard.html", session, _status(error), **_board(view, error))

    def managed(
        session: Session, view: View, error: errors.LadderHoldoutError | None = None
    ) -> Response:
        return pages.show("manage.html", session, _status(error), **_managed(view, error))

    def shown(session: Session, view: View, before: int = 0, **notice: Any) -> Response:
        content = _holdout(view, before) | notice
        return pages.show("holdout.html", session, _status(content["error"]), **content)

    def form(
        kind: type[commands.Command[Any]],
        path: str,
        done: Callable[[Session, View, Any], Response],
        refused_on: Callable[..., Response] = shown,
    ) -> None:
        """Add the form of a command, with the page after it and the page that shows an error."""

        def send(session: Signed, view: Seen, sent: Filled) -> Response:
            _require(view, kind.word)
            try:
                answer = view.execute(_filled(kind, sent.fields))
            except _SHOWN_ON_THE_PAGE as error:
                return refused_on(session, view, error=error)
            return done(session, view, answer)

        page("/holdouts/{name:path}/" + path, "POST")(send)

    form(commands.Certify, "certificate", lambda session, view, answer: _to(view, "#certificate"))
    form(commands.Reveal, "reveal", lambda session, view, answer: _to(view))
    form(commands.Retire, "retirement", lambda session, view, answer: _to(view), managed)
    after_round: Any = lambda session, view, answer: _to(view, "leaderboard")  # noqa: E731
    form(boards.CloseRound, "round/closing", after_round, board)
    after_finals: Any = lambda session, view, answer: _to(view, "leaderboard#finals")  # noqa: E731
    form(boards.HoldFinals, "finals", after_finals, board)
    form(
        commands.Estimate,
        "estimate",
        lambda session, view, answer: shown(session, view, estimate=answer, estimate_asked=True),
    )

    @page("/holdouts/{name:path}/accounts", "POST")
    def accounts(session: Signed, view: Seen, form: Filled) -> Response:
        _require(view, "accounts")
        try:
            kind = commands.COMMANDS.get(form.fields.get("action", ""))
            if kind is None or kind.__module__ != of_accounts.__name__:
                raise errors.InvalidArgument("action", "one of the page", "another")
            answer = view.execute(_filled(kind, form.fields))
        except _SHOWN_ON_THE_PAGE as error:
            return managed(session, view, error)
        if not isinstance(answer, of_accounts.Token):
            return _to(view, "manage")
        return pages.show("token.html", session, issued=answer, **_of(view))

    @page("/holdouts/{name:path}/withdrawals", "POST")
    def withdraw(session: Signed, view: Seen, form: Filled) -> Response:
        _require(view, "withdraw")
        place = form.fields.get("submission", "")
        content = _submission(view, place)
        try:
            number, reason = content["line"]["number"], form.fields.get("reason", "")
            done = view.execute(commands.Withdraw(submission=number, reason=reason))
        except _SHOWN_ON_THE_PAGE as error:
            content |= {"error": error}
            return pages.show("submission.html", session, _status(error), **content)
        return pages.show("submission.html", session, **_submission(view, place) | {"done": done})

    @page("/holdouts/{name:path}/submissions", "POST")
    def submit(session: Signed, view: Seen, form: Upload) -> Response:
        kind = boards.Collect if view.by_rounds else commands.Submit
        _require(view, kind.word)
        try:
            view.check_block(form.fields.get("block"))
            answer = view.execute(_asked(view, kind, form))
        except _SHOWN_ON_THE_PAGE as error:
            return shown(session, view, error=error)
        if view.by_rounds:
            return _to(view, "leaderboard")
        return _to(view, f"submissions/{answer.submission}")

    @page("/holdouts/{name:path}")
    def holdout(session: Signed, view: Seen, before: int = 0) -> Response:
        return shown(session, view, before)

    return pages


# -- requests -----------------------------------------------------------------------------

_OF_ANOTHER_PAGE = (
    "It came from another page or session. Go back, load the page again, and send it once more."
)


def _check_origin(request: Request) -> None:
    """Refuse a form that a page of another site sent."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        fine = site in ("same-origin", "none")
    else:
        fine = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not fine:
        raise HTTPException(403, _OF_ANOTHER_PAGE)


def _here(request: Request) -> str:
    """Return the address of a request within the server."""
    query = f"?{request.url.query}" if request.url.query else ""
    return _inside(request.url.path + query)


def _inside(to: str) -> str:
    """Return an address within the server; return that of its first page for any other."""
    fine = to.startswith("/") and not to.startswith("//") and "\\" not in to and to.isprintable()
    return quote(to, safe="/?=&%#+:,;@") if fine else "/"


def _require(view: View, name: str) -> None:
    if name not in view.may:
        raise NotThere


def _status(error: errors.LadderHoldoutError | None) -> int:
    """Return the status of a page that shows an error, or none."""
    return 200 if error is None else refused(error).status


def _to(view: View, part: str = "") -> Response:
    """Go to a page of a holdout."""
    return RedirectResponse(address(view, part), 303)


def address(view: View, part: str = "") -> str:
    """Return the address of a page of a holdout, for the same ladder."""
    path, mark, fragment = part.partition("#")
    page = f"/holdouts/{quote(view.name, safe='')}" + (f"/{path}" if path else "")
    return page + (f"?{urlencode(view.chosen)}" if view.chosen else "") + mark + fragment


def _asked(view: View, kind: type[commands.Command[Any]], form: bodies.Form) -> Any:
    """Read the predictions of a form."""
    if not form.file:
        raise errors.InvalidArgument("predictions", "a .csv, .npy or .arrow file", "no file")
    note = form.fields.get("note", "").strip()
    if len(note) > _LONGEST_NOTE:
        raise errors.InvalidArgument("note", f"at most {_LONGEST_NOTE} characters", "more")
    context = {"file": printable(form.file_name, longest=_LONGEST_CELL)} if form.file_name else {}
    context |= {"note": note} if note else {}
    stated = {"context": json.dumps(context), "key": form.fields.get("key") or uuid4().hex}
    if ids := form.fields.get("ids", "").strip():
        stated["ids"] = ids
    sent = bodies.Sent(form.file, bodies.upload_media(form.file), stated)
    return bodies.command_in(kind, sent, lambda: Space.of(view.ladder), view.wanted)


def _filled(kind: type[commands.Command[Any]], texts: Mapping[str, str]) -> Any:
    """Return the command of a form; an empty text is left out."""
    stated = {name: texts.get(name, "").strip() for name in commands.names_of(kind)}
    texts = {name: text for name, text in stated.items() if text}
    return commands.checked(kind, texts, commands.Reading(texts=True))


# -- content ------------------------------------------------------------------------------


def _of(view: View) -> dict[str, Any]:
    """Return what all pages of a holdout show."""
    return {"view": view, "may": view.may, "to": lambda part="": address(view, part)}


def _line(view: View) -> dict[str, Any]:
    """Return a line of the list; one that cannot be read has the reason."""
    try:
        status, why = view.execute(commands.Status()), None
    except errors.LadderHoldoutError as error:
        status, why = None, str(error)
    # The ladder that holds the rules of a leaderboard is empty: its ranks are elsewhere.
    of_board = status is not None and status.account == BOARD
    to = address(view, "leaderboard" if of_board and "leaderboard" in view.may else "")
    return {"view": view, "address": to, "status": status, "why": why}


def _holdout(view: View, before: int) -> dict[str, Any]:
    status = view.execute(commands.Status())
    total = status.submissions
    end = min(before - 1, total) if before > 0 else total
    start = max(0, end - _LINES)
    ladder = view.ladder
    drawn = ladder.history(max(0, total - _DRAWN), _DRAWN)
    lines = ladder.history(start, end - start) if end > start else ()
    certificate, possible = view.known_certificate()
    picture = picture_of(status, certificate, drawn) if drawn else None
    known = ladder.facts.classes
    classes = None if known is None else [str(label) for label in known.tolist()]
    return _of(view) | {
        "status": status,
        "whole": parted_name(view.name)[0],
        "health": view.execute(commands.Health(more=_MORE)),
        "certificate": certificate,
        "possible": possible and "certify" in view.may,
        "lines": list(map(_shown, reversed(lines))),
        "older": start + 1 if start else None,
        "newer": end < total,
        "total": total,
        "wide": picture and Markup(picture.svg(680, 300, "wide")),
        "narrow": picture and Markup(picture.svg(330, 260, "narrow")),
        "gains": [_shown(line) for line in drawn if line.improved][-_LINES:],
        "left_out": total - len(drawn),
        "response": ladder.metric.response,
        "classes": classes if classes and len(classes) <= _MOST_CLASSES else None,
        "key": uuid4().hex,
        "error": None,
        "estimate": status.estimate,
    }


def _shown(line: Submission) -> dict[str, Any]:
    """Return a line of the history."""
    return {
        "number": line.number,
        "time": line.time,
        "score": line.score,
        "improved": line.improved,
        "withdrawn": line.withdrawn,
        "repeat_of": line.repeat_of,
        "batch": (line.batch or "")[:8],
        "origin": printable(origin_of(line.context), longest=_LONGEST_CELL),
    }


def _submission(view: View, place: str) -> dict[str, Any]:
    """Return what the page of a submission shows."""
    if not (place.isdecimal() and 0 < len(place) < 10 and int(place) > 0):
        raise NotThere
    entries = view.ladder.history(int(place) - 1, 1)
    if not entries or entries[0].number != int(place):
        raise NotThere
    status, line = view.execute(commands.Status()), _shown(entries[0])
    return _of(view) | {
        "line": line,
        "status": status,
        "meaning": _meaning(line, status),
        "error": None,
        "done": None,
    }


def _meaning(line: Mapping[str, Any], status: Status) -> str:
    """Return in a sentence or two what a release means."""
    if line["withdrawn"]:
        return "It was withdrawn. What its release revealed stays counted in all certificates."
    score = None if line["score"] is None else f"{line['score']:.6g}"
    if line["repeat_of"]:
        meaning = (
            f"The same predictions were submitted before, as submission {line['repeat_of']}. A "
            "repeat improves nothing and costs nothing."
        )
        is_kept = status.incumbent == line["repeat_of"]
        return f"{meaning} They are the incumbent now." if is_kept else meaning
    if not line["improved"]:
        stays = "stays as it was" if score is None else f"stayed at {score}"
        return (
            "These predictions did not improve on the incumbent by as much as the rule asks for, "
            f"so the released score {stays}. Nothing else of their own score is shown: it may be "
            "lower, equal, or a little higher."
        )
    meaning = "These predictions improved on all before them"
    meaning += "." if score is None else f": the released score became {score}."
    if status.incumbent == line["number"]:
        return meaning + " They are the incumbent now."
    now = "there is none" if status.incumbent is None else f"submission {status.incumbent} is"
    return f"{meaning} They are not the incumbent any more: {now}."


def _board(view: View, error: errors.LadderHoldoutError | None) -> dict[str, Any]:
    """Return what the page of a leaderboard shows."""
    board, finals = view.execute(boards.Leaderboard()), view.execute(boards.Finals())
    latest = finals[-1] if finals else None
    # Finals show more of the ranks than the certificates of the board do.
    picture = None if latest is None and not board.rows else (latest or board).picture()
    return _of(view) | {
        "board": board,
        "finals": latest,
        "earlier": len(finals) - 1,
        "rounds": view.execute(boards.Round()) if view.by_rounds else None,
        "error": error and of_forms(error),
        "wide": picture and Markup(picture.svg(680, "wide")),
        "narrow": picture and Markup(picture.svg(330, "narrow")),
        "reserve": view.ladder.facts.n_reserve,
    }


def _managed(view: View, error: errors.LadderHoldoutError | None = None) -> dict[str, Any]:
    """Return what the owner's page shows."""
    return _of(view) | {
        "accounts": view.execute(of_accounts.Accounts()),
        "roles": of_accounts.ROLES,
        "retired": view.ladder.state().retired,
        "error": error and of_forms(error),
    }
