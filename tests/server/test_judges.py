"""Attacks a served judge: its verdicts over HTTP, by the tools, after a restart, and its file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladderholdout import InvalidArgument, LadderHoldout
from ladderholdout.cli import agents
from ladderholdout.errors import InvalidSubmission
from ladderholdout.leaderboard import Leaderboard
from ladderholdout.metrics import verdicts_of
from ladderholdout.server.settings import metrics_in
from tests.support.server import serving, token_of

pytestmark = pytest.mark.processes

N = 120
ITEMS = [f"What is {at} + {at}?" for at in range(N)]
REFERENCES = [json.dumps({"question": one, "answer": 2 * at}) for at, one in enumerate(ITEMS)]
RIGHT = [f"It is {2 * at}." for at in range(N)]
JUDGE = """
import json, os, random
from pathlib import Path
from ladderholdout.metrics import metric_of_items

HERE = Path(__file__).parent
moods = random.Random(os.getpid())  # another mood in each process


def judge(reference, answer):
    (HERE / "asked").open("a").write("x")
    right = str(json.loads(reference)["answer"]) in answer.rstrip(".").split()
    return moods.random() < (0.9 if right else 0.1)


helpful = metric_of_items("helpful", judge, verdicts=HERE / "helpful.verdicts")
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A judge in a file, and a holdout that is registered with it."""
    file = tmp_path / "judge.py"
    file.write_text(JUDGE)
    known = metrics_in([f"{file}:helpful"])
    ledger = tmp_path / "ledger.db"
    LadderHoldout(ITEMS, REFERENCES, scoring=known["helpful"], name="churn", ledger=ledger)
    return file


def asked(file: Path) -> int:
    return len(file.with_name("asked").read_text())


def test_a_noisy_judge_on_a_server_gives_one_verdict(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, flag = tmp_path / "ledger.db", ["--metric", f"{file}:helpful"]
    first, second = (token_of(ledger, name) for name in ("ada", "ben"))
    path, wrong = "/v1/holdouts/churn/submit", ["?"] * N
    with serving(ledger, tmp_path, *flag) as server:
        holdout = LadderHoldout.connect(f"{server.url}/holdouts/churn", first)
        assert not holdout.submit(wrong).improved or holdout.history()[0].score < 0.3
        release = holdout.submit(RIGHT)
        assert 0.8 < release.score < 1 and asked(file) == 2 * N
        answer = server.ask("POST", path, second, json={"predictions": RIGHT}).json()
        # Asked anew for another account, so that no time tells what others sent: the first counts.
        assert answer["score"] == release.score and asked(file) == 3 * N
        # None of these is judged, and none is shortened and judged as another text.
        bad: list[Any] = [RIGHT[:-1], [1] * N, [{"a": 1}] * N, ["x" * 5000] * N, [None] * N, "x"]
        for given in bad:
            refused = server.ask("POST", path, first, json={"predictions": given})
            assert refused.status_code == 422, given
            assert "reference" not in refused.text and "question" not in refused.text
        longest = ["é" * 4096, *RIGHT[1:]]
        assert server.ask("POST", path, first, json={"predictions": longest}).status_code == 200
        assert asked(file) == 3 * N + 1
        with pytest.raises(InvalidSubmission):
            holdout.submit(np.zeros(N)[:-1])
        monkeypatch.setenv("LADDERHOLDOUT_TOKEN", first)
        tools = agents.Tools(server.url)
        assert "text" in tools.call("status", {})["prediction"]
        told = tools.call("submit", {"predictions": RIGHT, "note": "by the tools"})
        assert told["score"] == release.score
    with serving(ledger, tmp_path, *flag) as server:  # a process in another mood
        holdout = LadderHoldout.connect(f"{server.url}/holdouts/churn", first)
        assert holdout.submit(RIGHT).score == release.score
        assert holdout.certificate().missing is None
        assert asked(file) == 3 * N + 1
    assert verdicts_of(tmp_path / "helpful.verdicts").verdicts == 2 * N + 1
    # Without the judge nothing is measured, and the way is named.
    with serving(ledger, tmp_path) as server:
        refused = server.ask("POST", path, first, json={"predictions": RIGHT})
        assert refused.status_code in (409, 422) and "your own" in refused.json()["detail"]


def test_a_board_with_a_judge_closes_its_rounds(file: Path, tmp_path: Path) -> None:
    ledger, metric = tmp_path / "board.db", metrics_in([f"{file}:helpful"])["helpful"]
    board = Leaderboard(ITEMS, REFERENCES, scoring=metric, name="board", ledger=ledger, rounds=True)
    ada = token_of(ledger, "ada", "analyst", holdout="board")
    boss, path = token_of(ledger, "boss", "owner", holdout="board"), "/v1/holdouts/board"
    with serving(ledger, tmp_path, "--metric", f"{file}:helpful") as server:
        assert (
            server.ask("POST", f"{path}/collect", ada, json={"predictions": RIGHT}).status_code
            == 200
        )
        closed = server.ask("POST", f"{path}/close_round", boss, json={"name": "board"})
        assert closed.status_code == 200, closed.text
        assert (closed.json()["submissions"], closed.json()["left_out"]) == (1, [])
    assert [row.account for row in board.standings()] == ["ada"]


def test_the_file_of_a_judge_is_the_owners(file: Path, tmp_path: Path) -> None:
    assert list(metrics_in([f"{file}:helpful"])) == ["helpful"]
    for place in (f"{file}:number", f"{file}:missing", str(file), f"{tmp_path}/none.py:helpful"):
        with pytest.raises(InvalidArgument, match=r"FILE\.py:NAME"):
            metrics_in([place])
    if os.name != "nt":
        file.chmod(0o666)
        with pytest.raises(InvalidArgument, match="nobody else may write to"):
            metrics_in([f"{file}:helpful"])
