"""Attacks accounts on the command line, and the settings of a server: none of it starts one."""

from __future__ import annotations

import json
import math
import re
import traceback
import warnings
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ladderholdout import LadderHoldout, errors
from ladderholdout.cli import app
from ladderholdout.errors import (
    BudgetWarning,
    DailyLimit,
    HoldoutConflict,
    InvalidArgument,
    InvalidSubmission,
    KnownHoldoutWarning,
    LadderHoldoutError,
    LedgerError,
)
from ladderholdout.guard import commands
from ladderholdout.guard.health import verify_holdout
from ladderholdout.guard.views import Release
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.mechanisms import RankLadder
from ladderholdout.metrics import get_metric
from ladderholdout.pictures import Picture, Shot
from ladderholdout.remote.tables import Form
from ladderholdout.remote.wire import error_of, problem_of
from ladderholdout.server.accounts import (
    AddAccount,
    LimitAccount,
    accounts_of,
    add_account,
    revoke_token,
    rotate_token,
)
from ladderholdout.server.bodies import Space, form_in, upload_media
from ladderholdout.server.settings import ServerSettings, settings_from
from ladderholdout.server.views import Served
from tests.support.commands import CliRunner
from tests.support.ledgers import dump, expire, holder, url_of
from tests.support.server import submission_in

X, Y = np.arange(80.0).reshape(40, 2), np.arange(40) % 2


@pytest.fixture
def ledger(default_ledger: Path) -> str:
    LadderHoldout(X, Y, scoring="accuracy", name="churn")
    return url_of(default_ledger)


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["account", *words], catch_exceptions=False)


def test_an_account_is_added_listed_rotated_and_revoked(ledger: str) -> None:
    printed = call("add", "ada", "--holdout", "churn", "--role", "analyst", "--per-day", "5")
    assert printed.exit_code == 0
    (token,) = re.findall(r"token, shown this once: (lh_\S+)", printed.stdout)
    held = holder(ledger, token)
    assert held is not None and (held.name, held.role, held.per_day) == ("ada", "analyst", 5)
    listed = call("list", "--holdout", "churn").stdout
    assert listed == "churn: ada, analyst, 5 submissions a day\n"
    rotated = json.loads(call("rotate", "ada", "--holdout", "churn", "--json").stdout)
    assert holder(ledger, token) is None
    assert holder(ledger, rotated["token"]) is not None
    assert "revoked on" in call("revoke", "ada", "--holdout", "churn").stdout
    assert holder(ledger, rotated["token"]) is None
    (shown,) = json.loads(call("list", "--json").stdout)["accounts"]
    assert (shown["name"], shown["valid"]) == ("ada", False)
    again = json.loads(call("rotate", "ada", "--holdout", "churn", "--json").stdout)
    assert holder(ledger, again["token"]) is not None


def test_the_limit_of_a_day_can_be_changed(ledger: str) -> None:
    token = add_account(None, "churn", "ada", "analyst", per_day=1).token
    add_account(None, "churn", "rita", "reader")
    for words, limit in ((("--per-day", "7"), 7), ((), None)):
        assert call("limit", "ada", "--holdout", "churn", *words).exit_code == 0
        held = holder(ledger, token)
        assert held is not None and held.per_day == limit
    for who, value in (("ada", "0"), ("rita", "3"), ("nobody", "3")):
        assert call("limit", who, "--holdout", "churn", "--per-day", value).exit_code == 1


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["add", "ada"], "--holdout must be stated"),
        (["add", "--holdout", "churn", "--role", "owner"], "NAME must be stated"),
        (["add", "ada", "--holdout", "churn"], "--role must be"),
        (["add", "ada", "--holdout", "churn", "--role", "king"], "--role must be one of"),
        (["add", "ada", "--holdout", "nobody", "--role", "owner"], "nobody"),
        (["add", "board", "--holdout", "churn", "--role", "owner"], "It is taken"),
        (["add", " ", "--holdout", "churn", "--role", "owner"], "printable text"),
        (["add", "a", "--holdout", "churn", "--role", "reader", "--per-day", "3"], "left out"),
        (["add", "a", "--holdout", "churn", "--role", "analyst", "--per-day", "0"], "per-day"),
        (["add", "a", "--holdout", "churn", "--role", "analyst", "--budget", "-1"], "budget"),
        (["add", "a", "--holdout", "churn", "--role", "owner", "--expires", "soon"], "a date"),
        (["add", "a", "--holdout", "churn", "--role", "owner", "--expires", "2020-01-01"], "come"),
        (["rotate", "ada", "--holdout", "churn"], "no account 'ada'"),
        (["revoke", "ada", "--holdout", "churn"], "no account 'ada'"),
    ],
)
def test_what_makes_no_account_is_said_in_a_line(
    ledger: str, words: list[str], printed: str
) -> None:
    found = call(*words)
    assert (found.exit_code, found.stdout) == (1, "")
    assert printed in found.stderr and found.stderr.count("\n") == 1
    assert accounts_of(None, None) == ()


def test_an_account_may_be_shown_improvements_alone_while_others_have_scores(
    ledger: str,
) -> None:
    call("add", "ada", "--holdout", "churn", "--role", "analyst", "--show", "improvements")
    add_account(None, "churn", "ben", "analyst")
    ada, ben = (LadderHoldout.open("churn", account=name) for name in ("ada", "ben"))
    assert (ada.rules.show, ben.rules.show) == ("improvements", "scores")
    assert ada.submit(Y).score is None and ada.reveal() == 1.0
    assert ben.submit(Y).score == 1.0
    for role, show, said in (
        ("analyst", "bits", "--show must be one of"),
        ("reader", "scores", "submits nothing"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            add_account(None, "churn", "cyd", role, show=show)


def test_a_server_answers_each_account_by_its_own_rules(default_ledger: Path) -> None:
    """All ladders of a holdout share its rows, and none the budget or what is shown of another."""
    LadderHoldout(X, Y, scoring="accuracy", name="churn")
    served = Served(ServerSettings(ledger=str(default_ledger)))
    stated: dict[str, dict[str, Any]] = {
        "ada": {},
        "ben": {"budget": 1},
        "cy": {"show": "improvements"},
    }
    half, most = np.where(np.arange(40) < 20, Y, 1 - Y), np.where(np.arange(40) < 38, Y, 1 - Y)
    found: dict[str, list[tuple[float | None, bool]]] = {}
    for name, limits in stated.items():
        account = served.holder(add_account(None, "churn", name, "analyst", **limits).token)
        assert account is not None
        view = served.view(account)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BudgetWarning)
            releases = [
                view.execute(commands.Submit(predictions=predictions))
                for predictions in (half, most)
            ]
        found[name] = [(release.score, release.improved) for release in releases]
    assert found == {
        "ada": [(0.5, True), (0.95, True)],
        "ben": [(0.5, True), (0.5, False)],
        "cy": [(None, True), (None, True)],
    }


def test_the_ledger_holds_no_token(ledger: str, default_ledger: Path) -> None:
    issued = add_account(None, "churn", "ada", "analyst", budget=3)
    dumped = dump(default_ledger)
    assert issued.token not in dumped and issued.token[20:] not in dumped
    assert issued.token not in repr(issued)
    held = LadderHoldout.open("churn", account="ada")
    assert held.rules.budget == 3
    assert held.rules.mechanism == LadderHoldout.open("churn").rules.mechanism


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=80))
def test_no_other_text_is_a_token(ledger: str, text: str) -> None:
    assert holder(ledger, text) is None


def test_a_token_is_known_by_all_of_its_characters(ledger: str) -> None:
    token = add_account(None, "churn", "ada", "reader").token
    assert holder(ledger, token) is not None
    for at in range(len(token)):
        other = token[:at] + ("a" if token[at] != "a" else "b") + token[at + 1 :]
        assert holder(ledger, other) is None
    assert holder(ledger, token + "\n") is None


def test_a_token_expires(ledger: str) -> None:
    add_account(None, "churn", "ada", "reader")
    issued = rotate_token(None, "churn", "ada", expires=datetime.now(UTC) + timedelta(seconds=60))
    assert issued.valid and holder(ledger, issued.token) is not None
    expire(ledger, "ada")
    assert holder(ledger, issued.token) is None
    with pytest.raises(InvalidArgument, match="moment to come"):
        rotate_token(None, "churn", "ada", expires=datetime.now(UTC))


def test_names_are_of_one_holdout(ledger: str) -> None:
    add_account(None, "churn", "ada", "analyst")
    with pytest.raises(HoldoutConflict, match="rotate"):
        add_account(None, "churn", "ada", "owner")
    LadderHoldout(X + 500, Y, scoring="accuracy", name="other")
    add_account(None, "other", "ada", "analyst")
    revoke_token(None, "churn", "ada")
    assert [one.revoked is None for one in accounts_of(None, None)] == [False, True]


def test_ladders_follow_the_leaderboard_and_one_per_rank_is_refused(default_ledger: Path) -> None:
    Leaderboard(X, Y, scoring="accuracy", name="churn")
    add_account(None, "churn", "ada", "analyst")
    Leaderboard.open("churn").submit("ada", Y)
    assert len(Leaderboard.open("churn").standings()) == 1
    with pytest.raises(InvalidArgument, match="leaderboard, which has its own"):
        add_account(None, "churn", "ben", "analyst", budget=3)
    Leaderboard(
        X + 500, Y, scoring="accuracy", name="ranks", per="rank", mechanism=RankLadder(0.1, 3)
    )
    with pytest.raises(HoldoutConflict, match="per rank"):
        add_account(None, "ranks", "ada", "analyst")


def test_an_accounts_name_with_other_rules_is_refused(ledger: str) -> None:
    with pytest.warns(KnownHoldoutWarning):
        LadderHoldout(X, Y, scoring="accuracy", name="churn", account="ada", budget=7)
    with pytest.raises(HoldoutConflict, match="other rules"):
        add_account(None, "churn", "ada", "analyst")


def test_accounts_leave_the_chain_whole(ledger: str) -> None:
    add_account(None, "churn", "ada", "analyst")
    printed = CliRunner().invoke(app, ["verify", "churn"])
    assert (printed.exit_code, "all as written" in printed.stdout) == (0, True)


# -- settings -----------------------------------------------------------------------------


def test_flags_come_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('host = "h"\nport = 1\nworkers = 2\nshare_rows = ["a"]\n')
    environment = {"LADDERHOLDOUT_SERVE_PORT": "3", "LADDERHOLDOUT_SERVE_WORKERS": "4"}
    environment |= {"LADDERHOLDOUT_SERVE_ALLOW_REVEALS": "a, b"}
    found = settings_from({"workers": 5, "host": None, "share_rows": []}, environment, file)
    assert (found.host, found.port, found.workers) == ("h", 3, 5)
    assert (found.share_rows, found.allow_reveals) == (("a",), ("a", "b"))
    assert found.allows("share_rows", "a") and not found.allows("share_rows", "b")
    assert ServerSettings(share_rows=("*",)).allows("share_rows", "b")
    again = ServerSettings.from_json(found.to_json())
    assert again.url == found.url and again.workers == 5


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("port = 70000", "port"),
        ("port = 'many'", "port"),
        ("workers = 0", "workers"),
        ("max_body = 0", "max-body"),
        ("host = 3", "host"),
        ("share_rows = 3", "share-rows must be a list of names"),
        ("token = 'x'", "one of ledger"),
        ("ledger = 'memory'", "ledger"),
        ("tls_cert = 'a.pem'", "tls-key"),
        ("tls_cert = 'a.pem'\ntls_key = 'b.pem'", "a file"),
        ("port =", "TOML"),
    ],
)
def test_settings_that_are_none_are_refused(tmp_path: Path, text: str, printed: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgument, match=printed):
        settings_from({}, {}, file)


def test_an_error_names_where_a_setting_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("port = 70000\n")
    environment = {"LADDERHOLDOUT_SERVE_WORKERS": "many"}
    with pytest.raises(InvalidArgument, match=r"^workers must be .* in the environment\.$"):
        settings_from({"port": 1}, environment, file)
    with pytest.raises(InvalidArgument, match=r"^port must be .* 70000 in .*server\.toml\.$"):
        settings_from({}, {}, file)


@pytest.mark.parametrize(
    ("text", "model", "printed"),
    [
        ('{"account": "ada", "per_day": "HIDDEN"}', LimitAccount, "per_day must be a whole number"),
        ('{"account": "ada", "per_day": 1.5}', LimitAccount, "per_day must be a whole number"),
        ('{"account": "ada", "per_day": true}', LimitAccount, "per_day must be a whole number"),
        ('{"account": ["HIDDEN"], "role": "analyst"}', AddAccount, "account must be the name"),
        ('{"account": "HIDDEN"}', AddAccount, "role must be analyst"),
        ('{"rows": 1, "HIDDEN": "HIDDEN"}', commands.NoteRows, "an object with rows"),
        ('["HIDDEN"]', commands.NoteRows, "an object with rows"),
        ('{"rows": "\\ud800 HIDDEN"}', commands.NoteRows, "an object with rows"),
        ('{"account": "HIDDEN\\u0000"}', LimitAccount, "an object with account, per_day"),
    ],
)
def test_an_error_of_a_body_shows_nothing_of_it(text: str, model: Any, printed: str) -> None:
    with pytest.raises(InvalidArgument, match=printed) as refused:
        submission_in(text.encode(), "", None, None, kind=model)
    shown = "".join(traceback.format_exception(refused.value))
    assert "HIDDEN" not in shown and "HIDDEN" not in repr(refused.value)


def test_a_number_is_a_text_in_a_form_alone() -> None:
    stated = {"account": "ada", "per_day": "5"}
    assert commands.checked(LimitAccount, stated, commands.Reading(texts=True)).per_day == 5
    with pytest.raises(InvalidArgument, match="per_day"):
        commands.checked(LimitAccount, stated, commands.Reading())


# -- what travels ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgument("a", "b", 3, "d"),
        InvalidSubmission("predictions", "some", "none"),
        *(
            kind("why")
            for kind in vars(errors).values()
            if isinstance(kind, type)
            and issubclass(kind, LadderHoldoutError)
            and not issubclass(kind, InvalidArgument | ImportError)
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_travels(error: LadderHoldoutError) -> None:
    sent = json.loads(json.dumps(problem_of(error, 400)))
    found = error_of(sent, 400)
    assert (type(found), str(found)) == (type(error), str(error))


def test_a_problem_of_somebody_else_is_an_error_of_ours() -> None:
    for kind in ("about:blank", "urn:ladderholdout:error:warn", "urn:ladderholdout:error:os", 3):
        assert type(error_of({"type": kind, "detail": "why"}, 400)) is LedgerError


@pytest.mark.parametrize("value", [np.arange(3), np.array(["a", "ä"]), np.eye(2), [1, 2], "x"])
def test_predictions_travel(value: Any) -> None:
    sent = commands.written(commands.Submit(predictions=value))
    found = commands.read_as(commands.Submit, sent).predictions
    assert np.array_equal(found, value) and type(found) is type(value)


def test_numbers_that_json_lacks_travel_as_texts() -> None:
    value = {"a": [float("inf"), (float("nan"), 1.5)]}
    assert commands.written(value) == b'{"a":["inf",["nan",1.5]]}'
    release = Release(-math.inf, False, 1, None)
    read = commands.read_as(Release, commands.written(release))
    assert read == release and json.loads(json.dumps(commands.plain(release)))["score"] == "-inf"


@given(st.binary(max_size=200), st.sampled_from(["", "application/x-npy", "text/csv", "text/x"]))
def test_any_bytes_are_read_or_refused(data: bytes, media: str) -> None:
    with suppress(InvalidArgument):
        form = Form(get_metric("accuracy"), 2, np.array(["a", "b"]))
        submission_in(data, media, lambda: form, Space(2, 2, 1))
    with suppress(InvalidArgument):
        submission_in(data, media, None, Space(2, 2, 1), kind=commands.SubmitBatch)


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "multipart/form-data", "multipart/form-data; boundary=a", "text/x"]),
    st.booleans(),
)
def test_any_form_is_read_or_refused(data: bytes, media: str, begun: bool) -> None:
    head = b'--a\r\nContent-Disposition: form-data; name="x"; filename="y"\r\n'
    with suppress(InvalidArgument):
        form_in(head * begun + data, media)
    with suppress(InvalidArgument):
        form = Form(get_metric("accuracy"), 2, np.array([0, 1]))
        submission_in(data, upload_media(data), lambda: form, Space(2, 2, 1))


def test_a_form_has_fields_and_a_file() -> None:
    body = (
        b'--a\r\nContent-Disposition: form-data; name="note"\r\n\r\n\xc3\xa9\r\n'
        b'--a\r\nContent-Disposition: form-data; name="file"; filename="p.csv"\r\n'
        b"Content-Type: text/csv\r\n\r\nlabel\r\n1\r\n--a--\r\n"
    )
    found = form_in(body, "multipart/form-data; boundary=a")
    assert (found.fields, found.file, found.file_name) == ({"note": "é"}, b"label\r\n1", "p.csv")
    assert form_in(b"a=%C3%A9&b=", "application/x-www-form-urlencoded").fields == {
        "a": "é",
        "b": "",
    }


@pytest.mark.parametrize(
    ("classes", "kind"), [(np.array([0, 1]), "i"), (np.array(["0", "1"]), "U")]
)
def test_labels_in_csv_are_numbers_where_the_classes_are(classes: Any, kind: str) -> None:
    form = Form(get_metric("accuracy"), 2, classes)
    asked = submission_in(b"label\n0\n1\n", "text/csv", lambda: form, Space(2, 2, 1))
    assert asked.predictions.dtype.kind == kind


VALUES = st.none() | st.floats(-1e9, 1e9) | st.floats(0, 1)


@given(
    values=st.lists(st.tuples(VALUES, st.booleans()), min_size=1, max_size=30),
    first=st.integers(1, 10**6),
    now=VALUES,
    counts=st.booleans(),
    text=st.text(max_size=20),
)
def test_a_picture_is_well_formed_whatever_is_in_it(
    values: list[tuple[float | None, bool]],
    first: int,
    now: float | None,
    counts: bool,
    text: str,
) -> None:
    shots = [Shot(at, value, on, text) for at, (value, on) in enumerate(values, first)]
    if counts:
        shots, now = [replace(one, value=float(one.number - first)) for one in shots], None
    band = None if now is None else (now - 1.0, now + 1.0)
    picture = Picture(shots, now, band, first, text, counts, text, text)
    found = ElementTree.fromstring(picture.svg(680, 300, "wide"))
    assert found.get("role") == "img"
    ticks = [one.text for one in found if one.get("class") == "tick"]
    assert ticks
    for one in found.iter():
        numbers = " ".join(one.get(name, "") for name in ("d", "x", "y", "cx", "cy", "height"))
        assert "nan" not in numbers and "inf" not in numbers


def test_comparisons_count_among_the_submissions_of_a_day(ledger: str) -> None:
    token = add_account(ledger, "churn", "ada", "analyst", per_day=3).token
    served = Served(ServerSettings(ledger=ledger, allow_comparisons=("churn",)))
    account = served.holder(token)
    assert account is not None
    view, none, all_ = served.view(account), np.zeros(40, int), np.ones(40, int)
    view.execute(commands.Submit(predictions=none))

    def compared(first: Any, second: Any) -> Any:
        sides = [commands.Candidate(predictions=values) for values in (first, second)]
        return view.execute(commands.Compare(first=sides[0], second=sides[1]))

    first = compared(Y, none)
    compared(Y, all_)
    assert compared(none, Y).high == -first.low, "what was shown is shown again"
    with pytest.raises(DailyLimit, match="comparisons are counted"):
        compared(none, all_)
    with pytest.raises(DailyLimit):
        view.execute(commands.Submit(predictions=all_))
    assert LadderHoldout.open("churn").compare(none, all_).better is None, "its owner has no limit"


def test_notes_are_their_accounts_and_the_owner_withdraws_them(ledger: str) -> None:
    served, views = Served(ServerSettings(ledger=ledger)), {}
    for name in ("ada", "ben"):
        account = served.holder(add_account(ledger, "churn", name, "analyst").token)
        assert account is not None
        views[name] = served.view(account)
        views[name].execute(commands.Submit(predictions=Y))
    doubt = "not in groups (which an account states)"
    views["ada"].execute(commands.NoteGroups(by="KFold"))
    views["ada"].execute(commands.NoteRows(rows=40))
    views["ada"].execute(commands.NoteRows(rows=3))
    owned, note = LadderHoldout.open("churn"), "KFold, stated by ada"
    assert all(
        doubt in view.execute(commands.Status()).certificate.line() for view in views.values()
    )
    seen_by = [view.execute(commands.Status()) for view in views.values()]
    overlaps = [status.overlaps for status in (*seen_by, owned.status())]
    hers = [("training rows, stated by ada", 40)]
    assert [[(one.source, one.rows) for one in seen] for seen in overlaps] == [hers, [], hers]
    with pytest.raises(InvalidArgument, match=rf"notes of groups on record, \('{note}',\)"):
        owned.owner.withdraw_note("KFold", reason="no groups")
    owned.owner.withdraw_note(note, reason="no groups")
    views["ada"].execute(commands.NoteGroups(by="KFold"))  # and nobody states it again
    assert views["ben"].execute(commands.Status()).certificate.doubts == ()
    assert verify_holdout(ledger, "churn").findings == ()
    views["ada"].execute(commands.NoteGroups(by="GroupKFold"))
    assert doubt in views["ben"].execute(commands.Status()).certificate.line()
