"""Attacks the one way out of a server: what each role is shown by each command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import LadderHoldout
from ladderholdout.errors import LadderHoldoutError
from ladderholdout.guard import commands
from ladderholdout.guard.certificate import Health, ScoreCertificate
from ladderholdout.guard.commands import Command
from ladderholdout.guard.views import Estimate
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.leaderboard import commands as boards
from ladderholdout.server import accounts
from ladderholdout.server.accounts import add_account
from ladderholdout.server.redaction import Reader
from ladderholdout.server.settings import ServerSettings
from ladderholdout.server.views import NotThere, Served, View

ROLES = ("analyst", "host", "owner", "reader")
OTHER, HIDDEN = "otheraccount", "hiddenholdout"
N = 60
Y = np.arange(N) % 2
GUESS = np.where(np.arange(N) % 5, Y, 1 - Y)

ASKED: dict[str, Callable[[], Command[Any]]] = {
    "describe": commands.Describe,
    "rows": commands.Rows,
    "row_groups": commands.RowGroups,
    "row_order": lambda: commands.RowOrder(hashes=np.zeros(N, np.uint64)),
    "note_rows": lambda: commands.NoteRows(rows=1),
    "note_groups": lambda: commands.NoteGroups(by="KFold"),
    "submit": lambda: commands.Submit(predictions=GUESS),
    "decide": lambda: commands.Decide(predictions=GUESS),
    "submit_batch": lambda: commands.SubmitBatch(
        submissions=[commands.Candidate(predictions=values) for values in (Y, 1 - Y)]
    ),
    "state": commands.State,
    "status": commands.Status,
    "history": commands.History,
    "health": commands.Health,
    "certificate": commands.Certificate,
    "certify": commands.Certify,
    "estimate": commands.Estimate,
    "reveal": commands.Reveal,
    "compare": lambda: commands.Compare(first=1, second=commands.Candidate(predictions=1 - Y)),
    "withdraw": lambda: commands.Withdraw(submission=1, reason="an accident"),
    "leaderboard": boards.Leaderboard,
    "round": boards.Round,
    "collect": lambda: boards.Collect(predictions=GUESS),
    "close_round": lambda: boards.CloseRound(name="served"),
    "finals": boards.Finals,
    "hold_finals": lambda: boards.HoldFinals(name="served"),
    "accounts": accounts.Accounts,
    "add_account": lambda: accounts.AddAccount(account="new", role="reader"),
    "rotate_token": lambda: accounts.RotateToken(account="new"),
    "limit_account": lambda: accounts.LimitAccount(account="analyst", per_day=99),
    "revoke_token": lambda: accounts.RevokeToken(account="new"),
    "retire": lambda: commands.Retire(name="served"),  # last: it ends the others
}
# Which commands name another account to whom; no command names another holdout.
NAMED = {("status", role) for role in ("host", "owner", "reader")}
NAMED |= {("leaderboard", role) for role in ROLES} | {("finals", role) for role in ROLES}
NAMED |= {("hold_finals", "owner"), ("accounts", "owner")}


@dataclass(frozen=True, slots=True)
class Place:
    """A holdout whose rows another one has too, with accounts of all roles and another one."""

    served: Served
    views: dict[str, View]


def placed(folder: Path, *, board: bool) -> Place:
    ledger = str(folder / "ledger.db")
    X = np.arange(2.0 * N).reshape(N, 2)
    LadderHoldout(X[: N // 2], Y[: N // 2], scoring="accuracy", name=HIDDEN, ledger=ledger)
    given = {"scoring": "accuracy", "name": "served", "overlap": "ignore", "ledger": ledger}
    if board:
        Leaderboard(X, Y, reserve=0.5, **given)
    else:
        LadderHoldout(X, Y, **given)
    settings = ServerSettings(
        ledger=ledger,
        share_rows=("*",),
        allow_estimates=("*",),
        allow_reveals=("*",),
        allow_comparisons=("*",),
    )
    served, views = Served(settings), {}
    for role in (*ROLES, OTHER):
        if role == "host" and not board:
            continue
        kind = "analyst" if role == OTHER else role
        account = served.holder(add_account(ledger, "served", role, kind).token)
        assert account is not None
        whose = "analyst" if role == "host" else None
        views[role] = served.view(account, whose, starts=role == "host")
    for name in (OTHER, "analyst"):
        views[name].execute(commands.Submit(predictions=GUESS))
    views[OTHER].execute(commands.NoteRows(rows=2))
    return Place(served, views)


def test_every_command_is_asked() -> None:
    assert set(ASKED) == set(commands.COMMANDS)


@pytest.mark.filterwarnings("ignore::ladderholdout.errors.LadderHoldoutWarning")
@pytest.mark.parametrize("board", [False, True], ids=["a holdout", "a leaderboard"])
def test_each_role_is_shown_its_part_of_each_command(tmp_path: Path, board: bool) -> None:
    place, answered = placed(tmp_path, board=board), set()
    for word, ask in ASKED.items():
        asked, kind = ask(), commands.COMMANDS[word]
        assert asked.word == word
        for role in ROLES:
            view = place.views.get(role)
            if view is None:
                continue
            if role not in kind.roles:
                with pytest.raises(NotThere):
                    view.execute(asked)
                continue
            try:
                text = commands.written(view.execute(asked)).decode()
            except LadderHoldoutError as refused:
                text = str(refused)
            else:
                answered.add(word)
            assert HIDDEN not in text, (word, role)
            assert OTHER not in text or (word, role) in NAMED, (word, role)
    # Gates and rounds have holdouts of their own; all else was answered by one or the other.
    expected = {"leaderboard", "finals", "hold_finals"} if board else {"certificate", "retire"}
    assert expected <= answered and len(answered) > 15


def test_an_answer_without_a_rule_does_not_leave() -> None:
    reader = Reader("owner", "olga", tuple)
    for answer in ("text", {"score": 0.5}, [1], b"labels", object()):
        with pytest.raises(TypeError, match="no rule states"):
            reader.shown(answer)
    with pytest.raises(TypeError, match="no rule states"):
        reader.shown((0.5, "text"))


def test_names_of_other_holdouts_are_taken_out_of_reasons() -> None:
    reader = Reader("reader", "rita", lambda: (HIDDEN,))
    why = f"an audit opened the holdout {HIDDEN!r}, which shares rows"
    shown = "an audit opened another holdout, which shares rows"
    bill = (("own", 1.0), (f"what others were shown: {OTHER}", 2.0))
    certificate = ScoreCertificate(None, None, None, 0.95, 1, missing=why, bill=bill)
    told = reader.shown(certificate)
    assert told.missing == shown and OTHER not in repr(told.bill)
    assert reader.shown(Estimate(None, "", 1, None, 1, why)).reason == shown
    health = Health.__new__(Health)
    for name in commands.names_of(Health):
        object.__setattr__(health, name, why if name == "reason" else None)
    assert reader.shown(health).reason == shown
