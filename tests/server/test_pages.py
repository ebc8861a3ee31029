"""Attacks the pages of the server: foreign eyes, forged forms and cookies, and what GET may do."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import requests
from pyarrow import feather, ipc

from ladderholdout import LadderHoldout
from ladderholdout.guard import commands
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.mechanisms import PairedTestLadder
from ladderholdout.server import views
from ladderholdout.server.accounts import revoke_token, rotate_token
from ladderholdout.server.app import create_app
from ladderholdout.server.settings import ServerSettings
from ladderholdout.server.views import LIFE, AccountGate, Served
from tests.support.ledgers import dump, expire, holder, rechain, tamper
from tests.support.server import (
    N,
    Running,
    Visitor,
    in_quarters,
    local_pages,
    registered,
    rows,
    serving,
    token_of,
    trial,
)

pytestmark = pytest.mark.processes

ALL, ANALYST, OWNER, NOBODY = {"analyst", "reader", "owner"}, {"analyst"}, {"owner"}, set[str]()
HOLDOUT = "/holdouts/{name:path}"
# Which roles are shown what; with a leaderboard, and where the server allows all.
ALLOWED: dict[tuple[str, str], set[str]] = {
    ("GET", "/"): ALL,
    ("POST", "/sign-out"): ALL,
    ("GET", HOLDOUT): ALL,
    ("GET", f"{HOLDOUT}/submissions/{{place}}"): ALL,
    ("GET", f"{HOLDOUT}/leaderboard"): ALL,
    ("POST", f"{HOLDOUT}/finals"): OWNER,
    ("POST", f"{HOLDOUT}/round/closing"): NOBODY,  # where a board answers at once
    ("POST", f"{HOLDOUT}/submissions"): ANALYST,
    ("POST", f"{HOLDOUT}/certificate"): {"analyst", "owner"},
    ("POST", f"{HOLDOUT}/estimate"): ANALYST,
    ("POST", f"{HOLDOUT}/reveal"): ANALYST,
    ("GET", f"{HOLDOUT}/manage"): OWNER,
    ("POST", f"{HOLDOUT}/accounts"): OWNER,
    ("POST", f"{HOLDOUT}/withdrawals"): OWNER,
    ("POST", f"{HOLDOUT}/retirement"): OWNER,
    ("GET", f"{HOLDOUT}/report"): NOBODY,
}
OPEN = {("GET", "/sign-in"), ("POST", "/sign-in"), ("GET", "/static/{name}"), ("GET", "/docs")}
DRAWN = re.compile(r'(name="(?:form_token|key)" value=|account=)"?[0-9a-f]*"?')


@dataclass(frozen=True, slots=True)
class Team:
    """A server with two holdouts, and tokens for them."""

    server: Running
    ledger: Path
    tokens: dict[str, str]

    def visitor(self, who: str) -> Visitor:
        return Visitor(self.server, self.tokens.get(who, who))


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    ledger = folder / "ledger.db"
    Leaderboard(*rows(), scoring="accuracy", name="churn", ledger=ledger)
    registered(ledger, "other", seed=1)
    tokens = {role: token_of(ledger, role, role) for role in sorted(ALL)}
    tokens |= {f"foreign {role}": token_of(ledger, role, role, holdout="other") for role in ALL}
    for name, holdout in (("analyst", "churn"), ("analyst", "other")):
        ladder = "leaderboard" if holdout == "churn" else "main"
        held = LadderHoldout.open(holdout, account=name, ladder=ladder, ledger=ledger)
        held.submit([0] * N)
    flags = ["--allow-estimates", "*", "--allow-reveals", "*", "--max-refusals", "1000000"]
    with serving(ledger, folder, *flags) as server:
        yield Team(server, ledger, tokens)


def address(path: str, name: str = "churn") -> str:
    """Return an address for a path; all roles may name the analyst's ladder."""
    found = path.replace("{name:path}", name).replace("{place}", "1")
    return f"{found}?account=analyst" if "{name" in path else found


def asked(visitor: Visitor, method: str, path: str) -> requests.Response:
    """Ask as the form of the path does."""
    if method == "GET":
        return visitor.get(path)
    fields = {"action": "none", "account": "nobody", "submission": "1", "name": "no", "reason": ""}
    return visitor.post(path, **fields)


def seen(answer: requests.Response) -> tuple[Any, ...]:
    """What somebody can tell a page by, without what is drawn for each."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    for name in ("date", "set-cookie"):
        headers.pop(name, None)
    return answer.status_code, headers, DRAWN.sub("", answer.text)


# -- who is shown what --------------------------------------------------------------------


def test_every_page_is_in_the_matrix(team: Team) -> None:
    app = create_app(ServerSettings(str(team.ledger)))
    found = {
        (method, route.path)
        for route in app.routes
        if not getattr(route, "include_in_schema", True)
        for method in route.methods - {"HEAD"}
    }
    pages = {(method, path) for method, path in found if not path.startswith("/v1/")}
    assert pages - {("GET", "/openapi.json"), ("GET", "/healthz")} == set(ALLOWED) | OPEN


def test_without_a_session_every_page_leads_to_the_same_sign_in(team: Team) -> None:
    revoked = team.visitor(token_of(team.ledger, "gone"))
    revoke_token(str(team.ledger), "churn", "gone")
    expired = team.visitor(token_of(team.ledger, "late"))
    expire(team.ledger, "late")
    forged, nobody = Visitor(team.server), Visitor(team.server)
    forged.session.cookies.set("ladderholdout", "x" * 22 + "~1.1." + "A" * 84)
    wrong = team.visitor("lh_" + "0" * 16 + "_" + "A" * 43)
    others = (forged, wrong, revoked, expired)
    paths = [("GET", "/"), *ALLOWED, ("GET", "/nowhere"), ("POST", "/nowhere/at/all")]
    for place, (method, path) in enumerate(paths):
        for name in ("churn", "nobody"):
            where, answers = address(path, name), set()
            # The first path by all of them, each other one by nobody and one of them.
            for visitor in (nobody, *((others[place % 4],) if place else others)):
                answer = asked(visitor, method, where)
                assert answer.status_code == 303, (method, where)
                assert answer.headers["location"].partition("?")[0] == "/sign-in"
                answers.add(repr(seen(answer)))
            assert len(answers) == 1


@pytest.mark.parametrize("role", sorted(ALL))
def test_beyond_a_role_or_a_token_there_is_no_page(team: Team, role: str) -> None:
    visitor, foreign = team.visitor(role), team.visitor(f"foreign {role}")
    for one in (visitor, foreign):
        one.get("/")  # its form token
    nothing, elsewhere = (seen(one.get("/holdouts/nobody")) for one in (visitor, foreign))
    assert nothing[0] == 404 and seen(visitor.get("/nowhere")) == nothing
    for (method, path), roles in ALLOWED.items():
        if HOLDOUT not in path:
            continue
        own = asked(visitor, method, address(path))
        if role in roles:
            assert own.status_code in (200, 303, 409, 422), (method, path)
        else:
            assert seen(own) == nothing, (method, path)
        for name in ("churn", "nobody")[: 2 if len(path) % 3 == 0 else 1]:
            assert seen(asked(foreign, method, address(path, name))) == elsewhere, (method, path)
    assert visitor.get("/").text.count('<th scope="row">') == 1


def test_an_analyst_sees_no_other_account(team: Team) -> None:
    visitor = team.visitor("analyst")
    hidden = seen(visitor.get("/holdouts/nobody"))
    for account in ("board", "reader", "nobody"):
        assert seen(visitor.get(f"/holdouts/churn?account={account}")) == hidden
        assert seen(visitor.get(f"/holdouts/churn/submissions/1?account={account}")) == hidden
    assert "All ladders on it" not in visitor.get("/holdouts/churn").text
    reader = team.visitor("reader").get("/holdouts/churn?account=analyst").text
    assert "All ladders on it" in reader and "analyst/leaderboard" in reader


def test_a_person_may_have_several_tokens(team: Team) -> None:
    visitor = team.visitor("analyst")
    visitor.get("/")
    assert visitor.post("/sign-in", token=team.tokens["foreign owner"]).status_code == 303
    assert visitor.get("/holdouts/churn").status_code == 200
    assert visitor.get("/holdouts/other/manage").status_code == 200
    assert visitor.get("/holdouts/churn/manage").status_code == 404
    # Another token for the same holdout takes the place of the first.
    visitor.get("/")
    visitor.post("/sign-in", token=team.tokens["owner"])
    assert visitor.get("/holdouts/churn/manage").status_code == 200


# -- sessions -----------------------------------------------------------------------------


def test_a_cookie_is_for_this_site_alone_and_has_no_token(team: Team) -> None:
    visitor = Visitor(team.server)
    visitor.get("/sign-in")
    for scheme in ("http", "https"):
        proxied = {"headers": {"X-Forwarded-Proto": scheme}}
        answer = visitor.post("/sign-in", token=team.tokens["analyst"], request=proxied)
        stated = answer.headers["set-cookie"]
        assert "HttpOnly" in stated and "SameSite=strict" in stated and "Path=/" in stated
        assert f"Max-Age={LIFE}" in stated
        assert ("Secure" in stated) is (scheme == "https")
        secret = team.tokens["analyst"].split("_", 2)[2]
        assert secret not in stated and secret[:8] not in stated
        visitor.get("/sign-in")


def test_a_session_ends_with_its_token_and_outlives_the_process(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    with serving(ledger, tmp_path) as first:
        visitor = Visitor(first, token)
        assert visitor.get("/").status_code == 200
    with serving(ledger, tmp_path) as second:
        visitor.server = second
        assert visitor.get("/").status_code == 200
        other = rotate_token(str(ledger), "churn", "ada").token
        assert visitor.get("/").status_code == 303
        again = Visitor(second, other)
        assert again.get("/holdouts/churn").status_code == 200
        revoke_token(str(ledger), "churn", "ada")
        assert again.get("/holdouts/churn").status_code == 303
        assert again.get("/").headers["location"].startswith("/sign-in")


def test_signing_out_takes_the_cookie(team: Team) -> None:
    visitor = team.visitor("reader")
    visitor.get("/")
    assert visitor.post("/sign-out").headers["location"] == "/sign-in"
    assert visitor.get("/").status_code == 303


@pytest.fixture
def gate(team: Team) -> AccountGate:
    return AccountGate(Served(ServerSettings(str(team.ledger))))


def test_a_session_ends_after_its_time(
    team: Team, gate: AccountGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = gate.enter("", team.tokens["analyst"])
    assert entered is not None and gate.read(entered.cookie).person is not None
    begun = views.time.time()
    monkeypatch.setattr(views.time, "time", lambda: begun + LIFE + 1)
    assert gate.read(entered.cookie).person is None


def test_no_other_cookie_is_a_session(team: Team, gate: AccountGate) -> None:
    entered = gate.enter("", team.tokens["analyst"])
    assert entered is not None
    cookie = entered.cookie
    for at, one in enumerate(cookie):
        other = (
            cookie[:at] + ("B" if one == "A" else "A" if one.isalpha() else "7") + cookie[at + 1 :]
        )
        if other != cookie:
            # The last character of a token may have bits that are nobody's.
            found = gate.read(other).person
            assert found is None, at
    for other in ("", "~", cookie[:-1], cookie + "A", "x" * 5000, "~".join([cookie] * 40), "é"):
        gate.read(other)  # and none of them is an error
    name, _, entry = cookie.partition("~")
    number, since, masked = entry.split(".")
    assert gate.read(f"{name}~{number}.{int(since) + 60}.{masked}").person is None
    assert gate.read(f"{name[::-1]}~{entry}").person is None


def test_who_reads_the_ledger_makes_no_session(team: Team, gate: AccountGate) -> None:
    """The hash of a token is the key of the mask: without the token it makes none."""
    account = holder(team.ledger, team.tokens["owner"])
    assert account is not None
    since, name = int(views.time.time()), views._drawn()
    for guess in (b"\0" * 63, b"lh_" + b"0" * 60, account.token_hash.encode()[:63]):
        masked = views.base64.urlsafe_b64encode(views._masked(name, account, since, guess)).decode()
        assert gate.read(f"{name}~{account.token_key}.{since}.{masked}").person is None


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil", "x", "/\n/"])
def test_signing_in_leads_nowhere_else(team: Team, to: str) -> None:
    visitor = Visitor(team.server)
    visitor.get("/sign-in", params={"next": to})
    answer = visitor.post("/sign-in", token=team.tokens["reader"], next=to)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    visitor.get("/sign-in")
    answer = visitor.post("/sign-in", token=team.tokens["reader"], next="/holdouts/churn?a=b%20c")
    assert answer.headers["location"] == "/holdouts/churn?a=b%20c"


def test_a_link_from_elsewhere_finds_the_session(team: Team) -> None:
    """The browser sends no strict cookie with it; it does when the page asks again."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    answer = Visitor(team.server).get("/holdouts/churn?account=x", headers=headers)
    assert answer.status_code == 200
    assert 'content="0;url=/holdouts/churn?account=x"' in answer.text


# -- forms --------------------------------------------------------------------------------


def test_a_forged_form_does_nothing(team: Team) -> None:
    visitor, other = team.visitor("owner"), team.visitor("analyst")
    page = visitor.get("/holdouts/churn/manage").text
    other.get("/")
    theirs = re.search(r'name="form_token" value="(\w+)"', other.page)
    assert theirs is not None
    fields = {"action": "add_account", "account": "mallory", "role": "owner"}
    forged = [
        {"form_token": ""},
        {"form_token": theirs[1]},
        {"form_token": "é"},
        {"request": {"headers": {"Sec-Fetch-Site": "cross-site"}}},
        {"request": {"headers": {"Sec-Fetch-Site": "same-site"}}},
        {"request": {"headers": {"Origin": "https://evil.example"}}},
        {"request": {"headers": {"Origin": "null"}}},
    ]
    for one in forged:
        visitor.page = page
        answer = visitor.post("/holdouts/churn/accounts", **fields | one)
        assert answer.status_code == 403, one
        assert "another page or session" in answer.text
    assert "mallory" not in visitor.get("/holdouts/churn/manage").text
    fresh = Visitor(team.server)
    assert fresh.post("/sign-in", token=team.tokens["owner"]).status_code == 403
    headers = {"Origin": team.server.url, "Sec-Fetch-Site": "same-origin"}
    answer = visitor.post("/holdouts/churn/accounts", action="x", request={"headers": headers})
    assert answer.status_code == 422


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def arrow(array: Any, how: str) -> bytes:
    file, table = io.BytesIO(), pyarrow.table({"label": array})
    if how == "feather":
        feather.write_feather(table, file, compression="uncompressed")
    else:
        with ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()


def test_a_file_of_any_form_is_one_submission(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    guess = np.random.default_rng(3).integers(0, 2, N)
    files = {
        "a.csv": "\n".join(["label", *map(str, guess)]).encode(),
        "b.npy": npy(guess),
        "c.arrow": arrow(guess, "stream"),
        "d.feather": arrow(guess, "feather"),
    }
    with serving(ledger, tmp_path) as server:
        visitor = Visitor(server, token_of(ledger, "ada"))
        for place, (name, data) in enumerate(files.items(), 1):
            page = visitor.get("/holdouts/churn").text
            key = re.search(r'name="key" value="(\w+)"', page)
            assert key is not None
            sent = {"file": (name, data), "key": key[1], "note": f"by hand <{place}>"}
            answer = visitor.post("/holdouts/churn/submissions", **sent)
            assert answer.status_code == 303, answer.text
            assert answer.headers["location"] == f"/holdouts/churn/submissions/{place}"
            shown = visitor.get(answer.headers["location"]).text
            assert f"note=by hand &lt;{place}&gt;" in shown and f"file={name}" in shown
            assert "They are the incumbent now." in shown
            assert ("submitted before, as submission 1" in shown) is (place > 1)
        # Sent twice, as by an impatient hand: the first answer.
        again = visitor.post("/holdouts/churn/submissions", **sent)
        assert again.status_code == 303
    held = LadderHoldout.open("churn", account="ada", ledger=ledger)
    assert (held.status().releases, held.status().incumbent) == (1, 1)


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.csv", b"", "a .csv, .npy or .arrow file"),
        ("a.csv", b"label\n1\n0\n", "400 rows"),
        ("a.csv", b"\xff\xfe\x00", "CSV with a header"),
        ("a.npy", npy(np.array([object] * 3, dtype=object), allow_pickle=True), "without objects"),
        ("a.npy", npy(np.full(N, 7)), "class"),
        ("a.arrow", b"ARROW1", "Arrow stream or file"),
    ],
)
def test_a_file_that_is_refused_says_why(team: Team, name: str, data: bytes, why: str) -> None:
    visitor = team.visitor("analyst")
    visitor.get("/holdouts/churn")
    before = team.server.ask("POST", "/v1/holdouts/churn/history", team.tokens["analyst"]).json()
    answer = visitor.post("/holdouts/churn/submissions", file=(name, data))
    assert answer.status_code == 422
    assert why in answer.text and "That was refused." in answer.text
    after = team.server.ask("POST", "/v1/holdouts/churn/history", team.tokens["analyst"]).json()
    assert after["total"] == before["total"]


@pytest.mark.parametrize(
    ("media", "data"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"--b\r\n\r\n"),
        ("multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: x\r\n\r\n1\r\n--a--"),
        ("multipart/form-data; boundary=a", b"--a\r\n\r\n\r\n" * 99),
        ("application/x-www-form-urlencoded", b"\xff=%ff"),
        ("application/x-www-form-urlencoded", b"&".join(b"a%d=1" % one for one in range(99))),
        ("application/json", b"{}"),
        ("", b""),
    ],
)
def test_what_is_no_form_is_refused(team: Team, media: str, data: bytes) -> None:
    visitor = team.visitor("analyst")
    answer = visitor.session.post(
        team.server.url + "/holdouts/churn/submissions",
        data=data,
        headers={"Content-Type": media},
        timeout=60,
    )
    assert answer.status_code in (403, 422)


def test_a_file_may_be_as_large_as_a_request(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    with serving(ledger, tmp_path, "--max-body", "1") as server:
        visitor = Visitor(server, token_of(ledger, "ada", per_day=1))
        visitor.get("/holdouts/churn")
        page = visitor.page
        answer = visitor.post("/holdouts/churn/submissions", file=("a.csv", b"0" * 2**21))
        assert (answer.status_code, "1 megabytes" in answer.text) == (413, True)
        for status in (303, 429):
            visitor.page = page
            sent = ("a.npy", npy(np.full(N, status == 303, dtype=int)))
            answer = visitor.post("/holdouts/churn/submissions", file=sent)
            assert answer.status_code == status
        assert "1 submissions of today" in answer.text


# -- what an owner does -------------------------------------------------------------------


def test_an_owner_looks_after_accounts_submissions_and_the_holdout(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    with serving(ledger, tmp_path) as server:
        owner = Visitor(server, token_of(ledger, "olga", "owner"))
        path = "/holdouts/churn/accounts"
        assert "No accounts yet" not in owner.get("/holdouts/churn/manage").text
        fields = {"action": "add_account", "account": "ada", "role": "analyst", "per_day": "2"}
        shown = owner.post(path, **fields)
        (token,) = re.findall(r"lh_[0-9a-f]{16}_[\w-]{43}", shown.text)
        assert shown.status_code == 200 and shown.headers["cache-control"] == "no-store"
        assert token not in owner.get("/holdouts/churn/manage").text
        assert owner.post(path, **fields).status_code == 409  # there is one
        for wrong in (
            {"action": "add_account", "account": " ", "role": "analyst"},
            {"action": "add_account", "account": "x", "role": "king"},
            {"action": "add_account", "account": "x", "role": "analyst", "per_day": "-1"},
            {"action": "add_account", "account": "x", "role": "reader", "per_day": "3"},
            {"action": "add_account", "account": "x", "role": "analyst", "expires": "2020-01-01"},
            {"action": "limit", "account": "ada", "per_day": "0"},
            {"action": "else", "account": "ada"},
        ):
            answer = owner.post(path, **wrong)
            assert answer.status_code == 422, wrong
            assert "--" not in answer.text
        assert owner.post(path, action="revoke_token", account="nobody").status_code == 404
        ada = Visitor(server, token)
        for value, status in ((0, 303), (1, 303), (0, 429)):
            ada.get("/holdouts/churn")
            sent = ("a.npy", npy(np.full(N, value)))
            assert ada.post("/holdouts/churn/submissions", file=sent).status_code == status
        owner.get("/holdouts/churn/manage")
        assert (
            owner.post(path, action="limit_account", account="ada", per_day="").status_code == 303
        )
        ada.get("/holdouts/churn")
        answer = ada.post("/holdouts/churn/submissions", file=("a.npy", npy(np.arange(N) % 2)))
        assert answer.status_code == 303

        where = "/holdouts/churn/withdrawals?account=ada"
        assert owner.post(where, submission="1", reason=" ").status_code == 422
        assert owner.post(where, submission="99", reason="an accident").status_code == 404
        done = owner.post(where, submission="1", reason="trained on the holdout")
        assert done.status_code == 200 and "Withdrawn, and on record." in done.text
        assert owner.post(where, submission="1", reason="again").status_code == 409
        assert "trained on the holdout" in ada.get("/holdouts/churn/submissions/1").text
        (one, *_) = LadderHoldout.open("churn", account="ada", ledger=ledger).history()
        assert one.withdrawn == "trained on the holdout"

        ada.get("/holdouts/churn")
        rotated = owner.post(path, action="rotate_token", account="ada").text
        (other,) = re.findall(r"lh_[0-9a-f]{16}_[\w-]{43}", rotated)
        assert ada.get("/").status_code == 303 and other != token
        ada = Visitor(server, other)
        assert 'id="submit"' in ada.get("/holdouts/churn").text
        assert owner.post("/holdouts/churn/retirement", name="chur").status_code == 422
        assert owner.post("/holdouts/churn/retirement", name="churn").status_code == 303
        page = ada.get("/holdouts/churn").text
        assert "takes no more submissions" in page and 'id="submit"' not in page
        answer = ada.post("/holdouts/churn/submissions", file=("a.npy", npy(np.ones(N, int))))
        assert (answer.status_code, "retired" in answer.text) == (409, True)
        assert owner.post(path, action="revoke_token", account="ada").status_code == 303
        assert ada.get("/").status_code == 303


def test_an_owner_does_the_same_by_the_api(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    owner = token_of(ledger, "olga", "owner")
    with serving(ledger, tmp_path) as server:

        def ask(what: str, status: int = 200, token: str = owner, **body: Any) -> Any:
            answer = server.ask("POST", f"/v1/holdouts/churn/{what}", token, json=body)
            assert answer.status_code == status, answer.text
            return answer.json()

        added = ask("add_account", account="ada", role="analyst", per_day=1, budget=5)
        assert (added["name"], added["role"], added["per_day"]) == ("ada", "analyst", 1)
        ada = added["token"]
        ask("add_account", 409, account="ada", role="analyst")
        ask("add_account", 422, account="ben", role="analyst", token_hash="0" * 64)
        ask("add_account", 422, account="ben", role="analyst", per_day="3")
        ask("add_account", 422, account="ben", role="analyst", expires="soon")
        ask("add_account", 422, account="ben")
        ask("submit", 200, ada, predictions=[0] * N)
        ask("submit", 429, ada, predictions=[1] * N)
        assert ask("limit_account", account="ada", per_day=9)["per_day"] == 9
        assert ask("limit_account", account="ada")["per_day"] is None
        ask("submit", 200, ada, predictions=[1] * N)
        done = ask("withdraw?account=ada", submission=1, reason="an accident")
        assert (done["submission"], done["reason"]) == (1, "an accident")
        ask("withdraw?account=ada", 422, submission=0, reason="an accident")
        ask("withdraw?account=nobody", 404, submission=1, reason="an accident")
        other = ask("rotate_token", account="ada", expires="2999-12-31")
        ask("submit", 401, ada, predictions=[1] * N)
        assert other["expires"].startswith("3000-01-01")
        assert ask("revoke_token", account="ada")["revoked"] is not None
        ask("submit", 401, other["token"], predictions=[1] * N)
        ask("retire", 422, name="")
        assert ask("retire", name="churn")
        listed = server.ask("POST", "/v1/holdouts/churn/accounts", owner).json()
        assert [one["name"] for one in listed] == ["olga", "ada"]
        assert not {"token", "token_hash", "token_key"} & set(listed[0])


# -- what pages hold ----------------------------------------------------------------------


def test_what_only_reads_writes_nothing_and_certify_works_a_certificate_out(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger, scoring="roc_auc")
    token, reader = token_of(ledger, "ada"), token_of(ledger, "rita", "reader")
    scores = np.random.default_rng(0).uniform(size=N)
    with serving(ledger, tmp_path, "--share-rows", "*") as server:
        server.ask("POST", "/v1/holdouts/churn/submit", token, data=npy(scores), headers={
            "Content-Type": "application/x-npy"
        })  # fmt: skip
        before = dump(ledger)
        visitor = Visitor(server, token)
        api = server.ask("GET", "/openapi.json").json()["paths"]
        reading = [word for word, kind in commands.COMMANDS.items() if kind.reads]
        assert {f"/v1/holdouts/{{name}}/{word}" for word in reading} < set(api)
        for word in reading:
            for who in (token, reader):
                answer = server.ask("POST", f"/v1/holdouts/churn/{word}", who)
                assert answer.status_code in (200, 404, 409)
        for method, path in ALLOWED:
            if method == "GET":
                visitor.get(address(path))
        page = visitor.get("/holdouts/churn").text
        assert "Working it out puts it on record" in page
        found = server.ask("POST", "/v1/holdouts/churn/certificate", token).json()
        assert found["low"] is None and "works it out" in found["missing"]
        assert dump(ledger) == before
        assert visitor.post("/holdouts/churn/certificate").status_code == 303
        assert dump(ledger) != before
        page = visitor.get("/holdouts/churn").text
        assert "What it assumes, and its price" in page and 'class="band"' in page
        for word, who in (("certificate?account=ada", reader), ("certificate", token)):
            assert server.ask("POST", f"/v1/holdouts/churn/{word}", who).json()["low"] is not None
        assert server.ask("POST", "/v1/holdouts/churn/certify", token).json()["low"] is not None


def pages_of(visitor: Visitor) -> Iterator[requests.Response]:
    for method, path in ALLOWED:
        if method == "GET":
            yield visitor.get(address(path))
    yield visitor.get("/holdouts/churn?account=analyst")


def test_pages_run_and_style_nothing_inline(team: Team) -> None:
    files = set()
    for role in sorted(ALL):
        visitor = team.visitor(role)
        for answer in [*pages_of(visitor), visitor.get("/sign-in"), visitor.get("/docs")]:
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
            assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
            assert answer.headers["cache-control"] == "no-store"
            page = answer.text
            assert not re.search(r"\sstyle=|<style|\son\w+=|<script(?! src=\"/static/)", page)
            assert not re.search(
                r"(?:https?:)?//[a-z]", page.replace("http://www.w3.org/2000/svg", "")
            )
            assert page.startswith("<!doctype html>") and '<html lang="en">' in page
            files |= set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(files) == 4
    for one in files:
        answer = requests.get(team.server.url + one, timeout=60)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=86400"
    for other in ("/static/nothing.js", "/static/..%2Fapp.py", "/static/%2e%2e/app.py"):
        assert Visitor(team.server).get(other).status_code == 303


def shown_pages(folder: Path, y: np.ndarray) -> list[str]:
    """All pages of all roles, after the same submissions."""
    tried = trial(folder, y)
    given, found = tried.given, []
    with serving(tried.ledger, folder) as server:
        visitors = [Visitor(server, token) for token in tried.tokens]
        (analyst, *_) = visitors
        for one in (*given, np.full(N, 2), given[0][1:]):
            analyst.get("/holdouts/churn")
            answer = analyst.post("/holdouts/churn/submissions", file=("a.npy", npy(one)))
            found += [answer.text, str(answer.headers.get("location"))]
        for visitor in visitors:
            found += [one.text for one in pages_of(visitor)]
            found += [
                visitor.get(f"/holdouts/churn/submissions/{at}?account=analyst").text
                for at in range(1, 12)
            ]
    tried.check([*found, server.log.read_text()])
    return [DRAWN.sub("", re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "MOMENT", one)) for one in found]


def test_two_label_sets_with_the_same_releases_give_the_same_pages(tmp_path: Path) -> None:
    _, y = rows()
    first, second = (
        shown_pages(tmp_path / name, labels) for name, labels in (("a", y), ("b", in_quarters(y)))
    )
    assert len(first) > 50
    for one, two in zip(first, second, strict=True):
        assert one == two


def test_a_leaderboard_ranks_the_accounts(team: Team) -> None:
    page = team.visitor("reader").get("/holdouts/churn/leaderboard").text
    assert "analyst" in page and "submissions of 1 accounts" in page


def test_finals_are_held_by_the_owner_and_read_by_all(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    X, y = rows()
    board = Leaderboard(X, y, scoring="accuracy", name="churn", reserve=0.5, ledger=ledger)
    tokens = {role: token_of(ledger, role, role) for role in sorted(ALL)}
    for account, hits in (("analyst", N), ("ben", N // 4)):
        board.submit(account, np.where(np.arange(N) < hits, y, 1 - y))
    with serving(ledger, tmp_path) as server:
        visitors = {role: Visitor(server, token) for role, token in tokens.items()}
        page = {role: one.get("/holdouts/churn/leaderboard").text for role, one in visitors.items()}
        assert "Hold the finals" in page["owner"] and "Hold the finals" not in page["reader"]
        assert 'class="wide"' in page["reader"]  # the picture of the standings
        owner = visitors["owner"]
        refused = owner.post("/holdouts/churn/finals", name="wrong", best="")
        assert refused.status_code == 422 and "typed again" in refused.text
        assert board.finals_held() == ()
        held = owner.post("/holdouts/churn/finals", name="churn", best="2")
        assert held.headers["location"] == "/holdouts/churn/leaderboard#finals"
        (finals,) = board.finals_held()
        for role, token in tokens.items():
            text = visitors[role].get("/holdouts/churn/leaderboard").text
            assert 'aria-label="Finals"' in text and "1 of 1 pairs separated" in text
            answer = server.ask("POST", "/v1/holdouts/churn/finals", token).json()
            (read,) = answer
            assert [row["account"] for row in read["rows"]] == ["analyst", "ben"]
            assert read["log_values"] == finals.log_values
        asked = {"name": "churn", "entries": {"ben": [1], "analyst": 1}, "again": True}
        again = server.ask("POST", "/v1/holdouts/churn/hold_finals", tokens["owner"], json=asked)
        assert (again.status_code, again.json()["number"]) == (200, 2)
        alone = {"name": "churn", "entries": {"ben": 1}}
        refused = server.ask("POST", "/v1/holdouts/churn/hold_finals", tokens["owner"], json=alone)
        assert refused.status_code == 409


def test_a_round_is_collected_and_closed_over_http(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    X, y = rows()
    board = Leaderboard(X, y, scoring="accuracy", name="churn", rounds=True, ledger=ledger)
    tokens = {role: token_of(ledger, role, role) for role in sorted(ALL)}
    path = "/v1/holdouts/churn"
    with serving(ledger, tmp_path) as server:
        body = {"predictions": y.tolist()}
        for _ in range(2):  # a retry is the same submission
            keyed = body | {"key": "1"}
            answer = server.ask("POST", f"{path}/collect", tokens["analyst"], json=keyed)
            assert answer.json()["waiting"] == 1 and "score" not in answer.text
        visitors = {role: Visitor(server, token) for role, token in tokens.items()}
        analyst = visitors["analyst"]
        assert 'name="file"' in analyst.get("/holdouts/churn").text
        sent = analyst.post("/holdouts/churn/submissions", file=("a.npy", npy(1 - y)))
        assert sent.headers["location"] == "/holdouts/churn/leaderboard"
        page = analyst.get("/holdouts/churn/leaderboard").text
        assert "2 submissions wait, 2 of them yours" in page and "Nobody has submitted" in page
        at_once = server.ask("POST", "/v1/holdouts/churn/submit", tokens["analyst"], json=body)
        assert at_once.status_code == 409 and "POST /collect" in at_once.text
        assert board.waiting() == {"analyst": 2}
        refused = server.ask("POST", f"{path}/close_round", tokens["owner"], json={"name": "wrong"})
        assert refused.status_code == 422
        assert "to close the round" in visitors["owner"].get("/holdouts/churn/leaderboard").text
        closed = visitors["owner"].post("/holdouts/churn/round/closing", name="churn")
        assert closed.headers["location"] == "/holdouts/churn/leaderboard"
        shown = server.ask("POST", f"{path}/round", tokens["reader"]).json()
        assert (shown["round"], shown["waiting"], shown["closed"][0]["best"]) == (2, 0, 1.0)
        assert 'aria-label="Rounds"' in visitors["reader"].get("/holdouts/churn/leaderboard").text
        history = server.ask("POST", "/v1/holdouts/churn/history", tokens["analyst"]).json()
        assert [one["improved"] for one in history["submissions"]] == [True, False]


def test_a_long_history_has_pages(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    held = LadderHoldout.open("churn", account="ada", ledger=ledger)
    rng = np.random.default_rng(0)
    for _ in range(60):
        held.submit(rng.integers(0, 2, N))
    with serving(ledger, tmp_path) as server:
        visitor = Visitor(server, token)

        def numbers(query: str) -> list[int]:
            page = visitor.get(f"/holdouts/churn{query}").text
            return [int(one) for one in re.findall(r'aria-label="Submission (\d+)"', page)]

        assert numbers("") == [*range(60, 10, -1)]
        assert numbers("?before=11") == [*range(10, 0, -1)]
        assert numbers("?before=1") == [] or numbers("?before=1") == [*range(60, 10, -1)]
        assert visitor.get("/holdouts/churn?before=x").status_code == 422
        for wrong in ("0", "61", "x", "1e3", "99999999999"):
            assert visitor.get(f"/holdouts/churn/submissions/{wrong}").status_code == 404


# -- the pages of one person --------------------------------------------------------------


def test_the_printed_address_works_once_and_here_alone(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    with local_pages(ledger, tmp_path) as (server, printed):
        assert server.url.startswith("http://127.0.0.1:")
        path = printed.removeprefix(server.url)
        visitor, late = Visitor(server), Visitor(server)
        for where in ("/", "/holdouts/churn", "/nowhere", "/enter?token=x", "/enter"):
            assert visitor.get(where).status_code == 401
        host = server.url.removeprefix("http://")
        for other in ("evil.example", host.replace("127.0.0.1", "evil.example"), "127.0.0.1", ""):
            assert visitor.get(path, headers={"Host": other}).status_code in (400, 421)
        entered = visitor.get(path)
        assert entered.status_code == 200 and 'content="0;url=/"' in entered.text
        stated = entered.headers["set-cookie"]
        assert "HttpOnly" in stated and "SameSite=strict" in stated
        assert path.rpartition("=")[2] not in stated
        assert visitor.get("/").status_code == 200
        assert late.get(path).status_code == 401
        assert late.get("/").status_code == 401
        assert visitor.get("/", headers={"Host": "evil.example"}).status_code == 421
        assert visitor.get("/nowhere").status_code == 404
        assert visitor.get("/v1/holdouts").status_code == 404
        assert (
            visitor.post("/holdouts/churn/retirement", name="churn", form_token="").status_code
            == 403
        )


def test_one_person_sees_all_ladders_and_nothing_raw(tmp_path: Path) -> None:
    ledger, odd = tmp_path / "ledger.db", "a/b <i>é?#"
    _, y = rows()
    holdout = registered(ledger)
    bits = registered(ledger, "odd", seed=1, mechanism=PairedTestLadder(0.02), show="improvements")
    Leaderboard(*rows(2), scoring="accuracy", name="spring", ledger=ledger).submit("Ada", [1] * N)
    guesses = np.random.default_rng(0).integers(0, 2, (6, N))
    for one in guesses:
        holdout.submit(one)
        bits.submit(one)
    raw = {float((one == y).mean()) for one in guesses} - {one.score for one in holdout.history()}
    tamper(ledger, "holdout", "registered name", odd, holdout="odd")  # as an older version took it
    rechain(ledger)
    with local_pages(ledger, tmp_path) as (server, printed):
        visitor = Visitor(server)
        visitor.get(printed.removeprefix(server.url))
        listed = visitor.get("/").text
        assert "a/b &lt;i&gt;é?#" in listed and "<i>" not in listed.replace('<i class="', "")
        addresses = [
            one.replace("&amp;", "&") for one in re.findall(r'<a href="(/holdouts/[^"]+)"', listed)
        ]
        assert len(addresses) == 4
        found = []
        for where in addresses:
            page = visitor.get(where)
            assert page.status_code == 200, where
            found.append(page.text)
            for other in re.findall(r'href="(/holdouts/[^"#]+)"', page.text):
                answer = visitor.get(other.replace("&amp;", "&"))
                assert answer.status_code == 200, other
                found.append(answer.text)
                if "/report" in other:
                    assert "sandbox" in answer.headers["content-security-policy"]
                    assert "holds no raw score" in answer.text
        for text in found:
            for score in raw:
                assert not re.search(rf"\b{score:.4f}", text)
        (where,) = (one for one in addresses if one.startswith("/holdouts/a%2Fb"))
        page = visitor.get(where).text
        assert "improvements so far" in page and "not shown" in page
        path, _, query = where.partition("?")
        assert visitor.post(f"{path}/reveal?{query}").status_code == 303
        assert "not shown" not in visitor.get(where).text.partition('id="progress"')[0]
        sent = ("a.npy", npy(guesses[0]))
        assert visitor.post(f"{path}/submissions?{query}", file=sent).status_code == 303
        shown = visitor.post(
            f"{path}/accounts?{query}", action="add_account", account="ada", role="reader"
        )
        assert shown.status_code == 200
        assert visitor.post(f"{path}/retirement?{query}", name=odd).status_code == 303
    assert bits.status().retired is not None
    assert holdout.status().opened is None


def test_a_ladder_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    ledger, vault = tmp_path / "ledger.db", tmp_path / "vault"
    vault.mkdir()
    holdout = registered(ledger, vault=vault)
    holdout.submit([0] * N)
    for one in vault.iterdir():
        one.unlink()
    with local_pages(ledger, tmp_path) as (server, printed):
        visitor = Visitor(server)
        visitor.get(printed.removeprefix(server.url))
        assert visitor.get("/").status_code == 200
        page = visitor.get("/holdouts/churn")
        assert (page.status_code, "are missing" in page.text) == (200, True)
        answer = visitor.post("/holdouts/churn/submissions", file=("a.npy", npy(np.zeros(N, int))))
        assert answer.status_code == 503
        assert "cannot be read" in answer.text and str(vault) in answer.text
