"""The pages: what people see of holdouts in a browser, and the forms that they send.

They work without JavaScript, and show what the API answers. Nothing in them is of other hosts.
"""

# No deferred annotations here: FastAPI reads those of functions within functions.

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import resources
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from ladderholdout import errors, extras
from ladderholdout.errors import printable
from ladderholdout.guard import commands, printing
from ladderholdout.leaderboard import Collected, standings
from ladderholdout.leaderboard import commands as boards
from ladderholdout.ledger.fold import parted_name
from ladderholdout.pictures import number
from ladderholdout.server import accounts as of_accounts
from ladderholdout.server import bodies, views
from ladderholdout.server.answers import Refusal, Refusals, of_forms, read_body, refused

with extras.needed("A page of the server", extra="server"):
    from fastapi import FastAPI, HTTPException, Request, Response
    from fastapi.concurrency import run_in_threadpool
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


class SignInNeeded(Exception):
    """Nobody has signed in."""


class Pages:
    """Renders the templates of the pages, and has their files.

    Parameters
    ----------
    gate : Gate
    """

    def __init__(self, gate: views.Gate) -> None:
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
            "origin": lambda context: printable(printing.origin_of(context), longest=_LONGEST_CELL),
        }

    def show(
        self, template: str, session: views.Session | None, code: int = 200, /, **content: Any
    ) -> HTMLResponse:
        """Return a page."""
        text = self._environment.get_template(template).render(session=session, **content)
        return HTMLResponse(text, code)

    def keep(self, response: Response, session: views.Session, request: Request) -> Response:
        """Set the cookie of a session."""
        response.set_cookie(
            self.gate.cookie,
            session.cookie,
            max_age=views.LIFE,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def session(self, request: Request) -> views.Session:
        """Return whose request this is."""
        return self.gate.read(request.cookies.get(self.gate.cookie, ""))

    def refused(self, request: Request, refusal: Refusal) -> Response:
        """Show an error; to somebody who has not signed in, show how to sign in alone."""
        session = self.session(request)
        if session.person is None and refusal.status in (404, 405):
            return self.sign_in_needed(request)
        return self.error(refusal, session)

    def error(self, refusal: Refusal, session: views.Session | None = None) -> Response:
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


@dataclass
class Visit:
    """A request to the pages: whose it is, and the form that was sent.

    Attributes
    ----------
    request : Request
    session : Session
    form : bodies.Form
    """

    request: Request
    session: views.Session
    form: bodies.Form = field(default_factory=lambda: bodies.Form({}))

    @property
    def person(self) -> views.Person:
        """Who has signed in; SignInNeeded if nobody has."""
        if self.session.person is None:
            raise SignInNeeded
        return self.session.person

    @cached_property
    def view(self) -> views.View:
        """The view of this person on the holdout in the address."""
        query = self.request.query_params
        chosen = {key: query[key] for key in ("account", "ladder") if key in query}
        view = self.person.view(self.request.path_params["name"], chosen)
        self.request.state.account = view.account
        return view

    def admit(self) -> views.View | views.Person:
        """Return the view or the person whose page this is; refuse where there is none."""
        return self.view if "name" in self.request.path_params else self.person

    def to(self, part: str = "") -> Response:
        """Go to a page of the holdout."""
        return RedirectResponse(address(self.view, part), 303)


Shows: TypeAlias = Callable[[Visit], Response]


def add_pages(app: FastAPI, gate: views.Gate, most: int, refusals: Refusals) -> Pages:
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

    def page(
        path: str,
        method: str = "GET",
        needs: str | None = None,
        *,
        open_to_all: bool = False,
        largest: Callable[[Visit], int] = lambda visit: bodies.MOST_OF_A_FORM,
    ) -> Callable[[Shows], Shows]:
        """Show a page at an address to those who have signed in and may do what it needs."""

        def begun(request: Request) -> tuple[Visit, int]:
            visit = Visit(request, pages.session(request))
            if not open_to_all:
                visit.admit()
            return visit, largest(visit)

        def add(show: Shows) -> Shows:
            def shown(visit: Visit) -> Response:
                if needs is not None:
                    _require(visit.view, needs)
                return show(visit)

            async def answer(request: Request) -> Response:
                visit, most_here = await run_in_threadpool(begun, request)
                if method == "POST":
                    _check_origin(request)
                    refusals.check(request)
                    body = await read_body(request, most_here, most)
                    visit.form = bodies.form_in(body.data, request.headers.get("content-type", ""))
                    if not visit.session.takes(visit.form.fields.get("form_token", "")):
                        raise HTTPException(403, _OF_ANOTHER_PAGE)
                return await run_in_threadpool(shown, visit)

            app.add_api_route(path, answer, methods=[method], include_in_schema=False)
            return show

        return add

    def of_holdout(
        template: str, content: Callable[[Visit], dict[str, Any]]
    ) -> Callable[..., Response]:
        """Return what shows a page of a holdout, with an error if there is one."""

        def show(visit: Visit, error: errors.LadderHoldoutError | None = None, **more: Any) -> Any:
            view, status = visit.view, 200 if error is None else refused(error).status
            parts = {"view": view, "may": view.may, "to": partial(address, view)}
            parts |= {"error": error and of_forms(error)} | content(visit) | more
            return pages.show(template, visit.session, status, **parts)

        return show

    holdout = of_holdout("holdout.html", _holdout)
    submission = of_holdout("submission.html", _submission)
    board = of_holdout("leaderboard.html", _board)
    managed = of_holdout("manage.html", _managed)

    @app.exception_handler(SignInNeeded)
    async def nobody(request: Request, error: SignInNeeded) -> Response:
        return pages.sign_in_needed(request)

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        if name not in pages.files:
            raise views.NotThere
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(
            pages.files[name], media_type=kind, headers={"Cache-Control": "public, max-age=86400"}
        )

    # -- signing in and out --------------------------------------------------------------

    if gate.port is None:

        @app.get("/docs", include_in_schema=False)
        def docs() -> Response:
            api = app.openapi()
            operations = [
                (method.upper(), path, described.get("description") or described.get("summary", ""))
                for path, methods in api["paths"].items()
                for method, described in methods.items()
            ]
            return pages.show("docs.html", None, info=api["info"], operations=operations)

        @page("/sign-in", open_to_all=True)
        def sign_in(visit: Visit) -> Response:
            to = _inside(visit.request.query_params.get("next", "/"))
            shown = pages.show("sign_in.html", visit.session, next=to, wrong=False)
            return pages.keep(shown, visit.session, visit.request)

        @page("/sign-in", "POST", open_to_all=True)
        def enter(visit: Visit) -> Response:
            session, fields = visit.session, visit.form.fields
            to = _inside(fields.get("next", "/"))
            entered = gate.enter(session.cookie, fields.get("token", "").strip())
            if entered is None:
                shown = pages.show("sign_in.html", session, 401, next=to, wrong=True)
                return pages.keep(shown, session, visit.request)
            return pages.keep(RedirectResponse(to, 303), entered, visit.request)

    else:

        @page("/enter", open_to_all=True)
        def enter_once(visit: Visit) -> Response:
            entered = gate.enter("", visit.request.query_params.get("token", ""))
            if entered is None:
                return pages.show("closed.html", None, 401)
            return pages.keep(pages.show("moving.html", None, to="/"), entered, visit.request)

    @page("/sign-out", "POST")
    def sign_out(visit: Visit) -> Response:
        gate.leave(visit.session.cookie)
        answer = RedirectResponse("/sign-in" if gate.port is None else "/", 303)
        answer.delete_cookie(gate.cookie, httponly=True, samesite="strict")
        return answer

    # -- what is shown -------------------------------------------------------------------

    @page("/")
    def holdouts(visit: Visit) -> Response:
        lines = [_line(view) for view in visit.person.views()]
        return pages.show("holdouts.html", visit.session, lines=lines)

    page("/holdouts/{name:path}/leaderboard", needs="leaderboard")(board)

    @page("/holdouts/{name:path}/report", needs=views.REPORT)
    def report(visit: Visit) -> Response:
        headers = {"Content-Security-Policy": _REPORT_POLICY}
        return HTMLResponse(visit.view.report(), headers=headers)

    page("/holdouts/{name:path}/submissions/{place}")(submission)
    page("/holdouts/{name:path}/manage", needs="accounts")(managed)

    # -- what is asked for ---------------------------------------------------------------

    def form(
        path: str,
        needs: str | None,
        done: str | Callable[[Visit, Any], Response],
        refused_on: Callable[..., Response],
        **limits: Any,
    ) -> Callable[[Callable[[Visit], Any]], None]:
        """Add a form: what is asked for, the page after it, and the page that shows an error."""

        def add(ask: Callable[[Visit], Any]) -> None:
            @page("/holdouts/{name:path}/" + path, "POST", needs, **limits)
            def send(visit: Visit) -> Response:
                try:
                    answer = ask(visit)
                except _SHOWN_ON_THE_PAGE as error:
                    return refused_on(visit, error)
                return visit.to(done) if isinstance(done, str) else done(visit, answer)

        return add

    def estimated(visit: Visit, answer: Any) -> Response:
        return holdout(visit, estimate=answer, estimate_asked=True)

    def changed(visit: Visit, answer: Any) -> Response:
        if not isinstance(answer, of_accounts.Token):
            return visit.to("manage")
        return of_holdout("token.html", lambda visit: {"issued": answer})(visit)

    def submitted(visit: Visit, answer: Any) -> Response:
        by_rounds = isinstance(answer, Collected)
        return visit.to("leaderboard" if by_rounds else f"submissions/{answer.submission}")

    forms: tuple[tuple[type[commands.Command[Any]], str, Any, Callable[..., Response]], ...] = (
        (commands.Certify, "certificate", "#certificate", holdout),
        (commands.Reveal, "reveal", "", holdout),
        (commands.Estimate, "estimate", estimated, holdout),
        (commands.Retire, "retirement", "", managed),
        (boards.CloseRound, "round/closing", "leaderboard", board),
        (boards.HoldFinals, "finals", "leaderboard#finals", board),
    )
    for kind, path, done, refused_on in forms:
        form(path, kind.word, done, refused_on)(partial(_executed, kind=kind))

    @form("accounts", "accounts", changed, managed)
    def change(visit: Visit) -> Any:
        kind = commands.COMMANDS.get(visit.form.fields.get("action", ""))
        if kind is None or kind.__module__ != of_accounts.__name__:
            raise errors.InvalidArgument("action", "one of the page", "another")
        return _executed(visit, kind)

    @form("withdrawals", "withdraw", lambda visit, done: submission(visit, done=done), submission)
    def withdraw(visit: Visit) -> Any:
        number, reason = _submission(visit)["line"].number, visit.form.fields.get("reason", "")
        return visit.view.execute(commands.Withdraw(submission=number, reason=reason))

    def largest(visit: Visit) -> int:
        return bodies.Space.of(visit.view.ladder).largest + bodies.MOST_OF_A_FORM

    @form("submissions", None, submitted, holdout, largest=largest)
    def submit(visit: Visit) -> Any:
        kind = boards.Collect if visit.view.by_rounds else commands.Submit
        _require(visit.view, kind.word)
        visit.view.check_block(visit.form.fields.get("block"))
        return visit.view.execute(_asked(visit.view, kind, visit.form))

    page("/holdouts/{name:path}")(holdout)
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


def _require(view: views.View, name: str) -> None:
    if name not in view.may:
        raise views.NotThere


def address(view: views.View, part: str = "") -> str:
    """Return the address of a page of a holdout, for the same ladder."""
    path, mark, fragment = part.partition("#")
    page = f"/holdouts/{quote(view.name, safe='')}" + (f"/{path}" if path else "")
    return page + (f"?{urlencode(view.chosen)}" if view.chosen else "") + mark + fragment


def _asked(view: views.View, kind: type[commands.Command[Any]], form: bodies.Form) -> Any:
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
    return bodies.command_in(kind, sent, bodies.Space.of(view.ladder), view.wanted)


def _executed(visit: Visit, kind: type[commands.Command[Any]]) -> Any:
    """Do what a form asks for by its fields; an empty text is left out."""
    stated = {name: visit.form.fields.get(name, "").strip() for name in commands.names_of(kind)}
    texts = {name: text for name, text in stated.items() if text}
    return visit.view.execute(commands.checked(kind, texts, commands.Reading(texts=True)))


# -- content ------------------------------------------------------------------------------


def _line(view: views.View) -> dict[str, Any]:
    """Return a line of the list; one that cannot be read has the reason."""
    try:
        status, why = view.execute(commands.Status()), None
    except errors.LadderHoldoutError as error:
        status, why = None, str(error)
    # The ladder that holds the rules of a leaderboard is empty: its ranks are elsewhere.
    of_board = status is not None and status.account == standings.BOARD
    to = address(view, "leaderboard" if of_board and "leaderboard" in view.may else "")
    return {"view": view, "address": to, "status": status, "why": why}


def _holdout(visit: Visit) -> dict[str, Any]:
    view = visit.view
    status = view.execute(commands.Status())
    try:
        before, total = int(visit.request.query_params.get("before", 0)), status.submissions
    except ValueError:
        raise errors.InvalidArgument("before", "of its form", "another") from None
    end = min(before - 1, total) if before > 0 else total
    start = max(0, end - _LINES)
    ladder = view.ladder
    asked = commands.History(after=max(0, total - _DRAWN), limit=_DRAWN)
    drawn = ladder.execute(asked).submissions
    shown = commands.History(after=start, limit=max(end - start, 0))
    lines = ladder.execute(shown).submissions
    certificate, possible = view.known_certificate()
    picture = printing.picture_of(status, certificate, drawn) if drawn else None
    known = ladder.facts.classes
    classes = None if known is None else [str(label) for label in known.tolist()]
    return {
        "status": status,
        "whole": parted_name(view.name)[0],
        "health": view.execute(commands.Health(more=_MORE)),
        "certificate": certificate,
        "possible": possible and "certify" in view.may,
        "lines": lines[::-1],
        "batches": any(line.batch for line in lines),
        "older": start + 1 if start else None,
        "newer": end < total,
        "wide": picture and Markup(picture.svg(680, 300, "wide")),
        "narrow": picture and Markup(picture.svg(330, 260, "narrow")),
        "gains": [line for line in drawn if line.improved][-_LINES:],
        "left_out": total - len(drawn),
        "classes": classes if classes and len(classes) <= _MOST_CLASSES else None,
        "key": uuid4().hex,
        "estimate": status.estimate,
    }


def _submission(visit: Visit) -> dict[str, Any]:
    """Return what the page of a submission shows."""
    form = visit.form.fields
    place = visit.request.path_params.get("place") or form.get("submission", "")
    if not (place.isdecimal() and 0 < len(place) < 10 and int(place) > 0):
        raise views.NotThere
    asked = commands.History(after=int(place) - 1, limit=1)
    lines = visit.view.ladder.execute(asked).submissions
    if not lines or lines[0].number != int(place):
        raise views.NotThere
    return {"line": lines[0], "status": visit.view.execute(commands.Status()), "done": None}


def _board(visit: Visit) -> dict[str, Any]:
    """Return what the page of a leaderboard shows."""
    view = visit.view
    board, finals = view.execute(boards.Leaderboard()), view.execute(boards.Finals())
    latest = finals[-1] if finals else None
    # Finals show more of the ranks than the certificates of the board do.
    picture = None if latest is None and not board.rows else (latest or board).picture()
    return {
        "board": board,
        "finals": latest,
        "earlier": len(finals) - 1,
        "rounds": view.execute(boards.Round()) if view.by_rounds else None,
        "wide": picture and Markup(picture.svg(680, "wide")),
        "narrow": picture and Markup(picture.svg(330, "narrow")),
    }


def _managed(visit: Visit) -> dict[str, Any]:
    """Return what the owner's page shows."""
    return {
        "accounts": visit.view.execute(of_accounts.Accounts()),
        "roles": of_accounts.ROLES,
        "retired": visit.view.ladder.execute(commands.State()).retired,
    }
