"""Attacks the scoring programs as the platforms run them, against a real server."""

from __future__ import annotations

import http.server
import itertools
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray

from ladderholdout import LadderHoldout
from ladderholdout.bundles import scoring
from ladderholdout.cli import app
from ladderholdout.leaderboard import Leaderboard
from tests.support.commands import CliRunner
from tests.support.server import N, free_port, rows, serving, start, token_of

pytestmark = pytest.mark.processes

MOUNT = "9 8 0:1 /tmp/codabench/uPK-{user}_sID-{run}__ab/{kind} /app/{kind} rw - ext4 /dev/sda rw\n"


@dataclass(frozen=True, slots=True)
class Contest:
    """A board on a server, and the bundles that were made for it."""

    folder: Path
    ledger: Path
    url: str
    name: str
    y: NDArray[np.int64]

    def bundle(self, platform: str, token: str | None = None, patience: float = 30.0) -> Path:
        """Write a bundle; the organiser puts a token into it."""
        place = self.folder / f"{platform} {len(list(self.folder.iterdir()))}"
        words = [
            platform,
            self.name,
            str(place),
            "--server",
            self.url,
            "--ledger",
            str(self.ledger),
        ]
        done = CliRunner().invoke(app, ["bundle", *words])
        assert done.exit_code == 0, done.output
        (file,) = place.rglob("server.json")
        settings = json.loads(file.read_text())
        settings |= {"token": token or "", "patience": patience}
        file.write_text(json.dumps(settings))
        return place

    def board(self) -> list[tuple[str, float]]:
        known = Leaderboard.open(self.name, ledger=self.ledger).standings()
        return [(row.account, row.score) for row in known]

    def releases(self) -> int:
        return Leaderboard.open(self.name, ledger=self.ledger).standings().releases

    def fresh(self, account: str) -> int:
        """Return how many submissions of an account repeat none."""
        held = LadderHoldout.open(
            self.name, account=account, ladder="leaderboard", ledger=self.ledger
        )
        return sum(line.repeat_of is None for line in held.history())

    def token(self, name: str, role: str = "host", **limits: Any) -> str:
        return token_of(self.ledger, name, role, holdout=self.name, **limits)


def contest(folder: Path, ledger: Path, url: str, seed: int = 0, **stated: Any) -> Contest:
    """Start a board on rows that no other has."""
    X, y = rows(seed)
    Leaderboard(X, y, scoring="accuracy", name=f"churn {seed}", ledger=ledger, **stated)
    return Contest(folder, ledger, url, f"churn {seed}", y)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A server, and its ledger, for the boards of all tests."""
    folder = tmp_path_factory.mktemp("server")
    contest(folder, folder / "ledger.db", "")
    with serving(folder / "ledger.db", folder) as running:
        yield folder / "ledger.db", running.url


SEEDS = itertools.count(1)


@pytest.fixture
def served(server: tuple[Path, str], tmp_path: Path) -> Contest:
    return contest(tmp_path, *server, next(SEEDS))


def right_on(y: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    return np.where(np.arange(N) < count, y, 1 - y)


def csv(predictions: NDArray[np.int64]) -> bytes:
    return "\n".join(["label", *map(str, predictions)]).encode()


# -- Codabench ----------------------------------------------------------------------------


def run_on_codabench(
    bundle: Path, folder: Path, files: dict[str, bytes], user: int = 7, run: int = 41
) -> tuple[subprocess.CompletedProcess[str], dict[str, float] | None]:
    """Run the command of a scoring program on a submission, in the folders that a worker makes."""
    root = folder / f"run {len(list(folder.iterdir()))}" / "app"
    (root / "input" / "res").mkdir(parents=True)
    (root / "output").mkdir()
    for name, place in (("reference_data", "input/ref"), ("scoring_program", "program")):
        (root / place).mkdir(parents=True)
        for file in (bundle / name).iterdir():
            (root / place / file.name).write_bytes(file.read_bytes())
    # A worker writes this file beside the results of a submission.
    for name, data in {"metadata": b"exitCode: null\n", **files}.items():
        (root / "input" / "res" / name).write_bytes(data)
    command = yaml.safe_load((root / "program" / "metadata.yaml").read_text())["command"]
    program, *words = command.replace("/app/", f"{root}/").replace(str(root), "ROOT").split()
    assert program == "python3"
    words = [word.replace("ROOT", str(root)) for word in words]
    mounts = root.parent / "mountinfo"
    kinds = ("program", "input", "output")
    mounts.write_text("".join(MOUNT.format(user=user, run=run, kind=kind) for kind in kinds))
    done = subprocess.run(
        [sys.executable, "-I", "-S", *words, *([str(mounts)] if user else [])],
        cwd=root / "program",
        env={"PYTHONUNBUFFERED": "1", "http_proxy": "", "https_proxy": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    scores = root / "output" / "scores.json"
    return done, json.loads(scores.read_text()) if scores.exists() else None


def test_a_submission_on_codabench(served: Contest, tmp_path: Path) -> None:
    bundle = served.bundle("codabench", served.token("codabench"))
    first = {"predictions.csv": csv(right_on(served.y, 300))}
    done, scores = run_on_codabench(bundle, tmp_path, first)
    assert done.returncode == 0, done.stderr
    standings = Leaderboard.open(served.name, ledger=served.ledger).standings()
    (row,) = standings
    assert row.account == "codabench-7"
    assert scores == {
        "score": round(row.score, 10),
        "low": round(row.low or 0, 10),
        "high": round(row.high or 0, 10),
        "best_rank": 1,
        "worst_rank": 1,
        "improved": 1,
    }
    # A rerun, under whatever number, is a repeat; a column of Codabench takes numbers alone.
    assert run_on_codabench(bundle, tmp_path, first, run=42)[1] == scores
    assert served.board() == [("codabench-7", 0.75)]
    assert (served.releases(), served.fresh("codabench-7")) == (1, 1)
    assert all(isinstance(value, int | float) for value in (scores or {}).values())
    worse = {"predictions.csv": csv(right_on(served.y, 100))}
    assert (run_on_codabench(bundle, tmp_path, worse)[1] or {})["improved"] == 0
    other = run_on_codabench(bundle, tmp_path, worse, user=8)[1]
    assert other is not None and (other["score"], other["improved"]) == (0.25, 1)
    assert served.board() == [("codabench-7", 0.75), ("codabench-8", 0.25)]


def test_all_accounts_of_a_team_have_its_columns(served: Contest, tmp_path: Path) -> None:
    bundle = served.bundle("codabench", served.token("codabench"))

    def sent(user: int, hits: int) -> dict[str, float]:
        files = {"predictions.csv": csv(right_on(served.y, hits))}
        return run_on_codabench(bundle, tmp_path, files, user=user)[1] or {}

    sent(11, 280), sent(12, 300)
    board = Leaderboard.open(served.name, ledger=served.ledger)
    board.merge("codabench-11", "codabench-12")
    for user, hits in ((12, 340), (12, 300), (11, 200)):
        columns = sent(user, hits)
        (row,) = board.standings()
        assert row.score == 0.85 and row.own == "codabench-12"
        assert {name: columns[name] for name in ("score", "low", "high", "best_rank")} == {
            "score": 0.85,
            "low": round(row.low or 0, 10),
            "high": round(row.high or 0, 10),
            "best_rank": 1,
        }


def test_a_worker_that_names_nobody_takes_the_participants_own_token(
    served: Contest, tmp_path: Path
) -> None:
    bundle = served.bundle("codabench")
    files = {"predictions.csv": csv(right_on(served.y, 300))}
    done, scores = run_on_codabench(bundle, tmp_path, files, user=0)
    assert scores is None and done.returncode == 1
    assert "does not name the participant" in done.stderr
    files["token.txt"] = served.token("Ada", "analyst").encode() + b"\n"
    done, scores = run_on_codabench(bundle, tmp_path, files, user=0)
    assert scores is not None and scores["score"] == 0.75, done.stderr
    assert served.board() == [("Ada", 0.75)]


@pytest.mark.parametrize(
    ("token", "files", "reason"),
    [
        ("", {"predictions.csv": b"label\n"}, "has not put the token"),
        ("lh_wrong", {"predictions.csv": b"label\n"}, "wrong, expired or revoked"),
        ("reader", {"predictions.csv": b"label\n"}, "may not submit"),
        ("host", {"predictions.csv": b"label\n0\n"}, "predictions must be"),
        ("host", {}, "this one has 0"),
        ("host", {"predictions.csv": b"", "predictions.npy": b""}, "this one has 2"),
        ("host", {"predictions.pkl": b""}, "one of these kinds"),
    ],
)
def test_what_is_refused_fails_with_its_reason(
    served: Contest, tmp_path: Path, token: str, files: dict[str, bytes], reason: str
) -> None:
    if token in ("host", "reader"):
        token = served.token(token, token)
    done, scores = run_on_codabench(served.bundle("codabench", token), tmp_path, files)
    assert scores is None and done.returncode == 1
    assert reason in done.stderr and "Traceback" not in done.stderr
    assert not token or token not in done.stderr + done.stdout
    assert served.board() == []


def test_a_limit_of_the_day_is_an_answer_at_once(served: Contest, tmp_path: Path) -> None:
    host = served.token("host", per_day=1)
    bundle = served.bundle("codabench", host)
    files = [{"predictions.csv": csv(right_on(served.y, count))} for count in (300, 350)]
    assert run_on_codabench(bundle, tmp_path, files[0])[1] is not None
    done, scores = run_on_codabench(bundle, tmp_path, files[1])
    assert scores is None and done.returncode == 1 and "status 429" in done.stderr
    assert run_on_codabench(bundle, tmp_path, files[0])[1] is not None  # a repeat
    assert run_on_codabench(bundle, tmp_path, files[1], user=8)[1] is not None


def test_a_server_that_is_away_counts_nothing_and_a_rerun_works(tmp_path: Path) -> None:
    port = free_port()
    away = contest(tmp_path, tmp_path / "ledger.db", f"http://127.0.0.1:{port}")
    bundle = away.bundle("codabench", away.token("host"), patience=1.0)
    files = {"predictions.csv": csv(right_on(away.y, 300))}
    done, scores = run_on_codabench(bundle, tmp_path, files)
    assert scores is None and done.returncode == 1
    assert "did not answer" in done.stderr and "Run this submission again" in done.stderr
    assert away.board() == []
    server = start(away.ledger, tmp_path, port)
    try:
        assert (run_on_codabench(bundle, tmp_path, files)[1] or {})["score"] == 0.75
    finally:
        server.process.terminate()
        server.process.wait(60)
    # It goes away after it has recorded; a rerun beside a server is a repeat, as above.
    assert run_on_codabench(bundle, tmp_path, files)[1] is None
    assert away.board() == [("codabench-7", 0.75)]
    assert (away.releases(), away.fresh("codabench-7")) == (1, 1)


def test_a_token_follows_no_redirect(tmp_path: Path) -> None:
    came = []

    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {"server": f"http://127.0.0.1:{server.server_port}", "holdout": "a", "token": "lh_x"}
    (tmp_path / "predictions.csv").write_bytes(b"label\n0\n")
    try:
        with pytest.raises(scoring.NotScored, match="status 302"):
            scoring.score(settings, str(tmp_path / "predictions.csv"), "Ada")
    finally:
        server.shutdown()
        server.server_close()
    assert came == ["Bearer lh_x"]


@pytest.mark.skipif(
    not sys.platform.startswith("linux")
    or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0,
    reason="folders cannot be mounted here",
)
def test_the_kernel_names_the_folder_that_a_worker_mounted(tmp_path: Path) -> None:
    source = tmp_path / "uPK-7_sID-41__ab" / "output"
    target = tmp_path / "app"
    source.mkdir(parents=True)
    target.mkdir()
    read = (
        "import sys; sys.path.insert(0, sys.argv[1]); import scoring; print(*scoring._run_of("
        "'/proc/self/mountinfo'))"
    )
    script = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$5"'
    words = (source, target, sys.executable, read, Path(scoring.__file__).parent)
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["codabench-7", "41"], done.stderr


# -- EvalAI -------------------------------------------------------------------------------

WORKER = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
challenge = importlib.import_module("challenge_data.challenge_1")
submission = json.loads(sys.argv[4])
found = challenge.evaluate(sys.argv[2], sys.argv[3], "development", submission_metadata=submission)
print(json.dumps(found))
"""


def run_on_evalai(
    bundle: Path, folder: Path, data: bytes, team: int = 3, number: int = 9
) -> subprocess.CompletedProcess[str]:
    """Import the script as the worker does, and evaluate a submission in a process of its own."""
    place = folder / f"worker {len(list(folder.iterdir()))}"
    package = place / "challenge_data" / "challenge_1"
    package.mkdir(parents=True)
    (place / "challenge_data" / "__init__.py").touch()
    zipfile.ZipFile(bundle / "evaluation_script.zip").extractall(package)
    (file := place / "submission.csv").write_bytes(data)
    submission = {"id": number, "participant_team": team, "participant_team_name": "Adas & Bens"}
    stated = yaml.safe_load((bundle / "challenge_config.yaml").read_text())
    annotations = bundle / stated["challenge_phases"][0]["test_annotation_file"]
    words = [str(place), str(annotations), str(file), json.dumps(submission)]
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", WORKER, *words],
        env={name: os.environ[name] for name in ("PATH",)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_submission_on_evalai(served: Contest, tmp_path: Path) -> None:
    bundle = served.bundle("evalai", served.token("evalai"))
    data = csv(right_on(served.y, 300))
    done = run_on_evalai(bundle, tmp_path, data)
    found = json.loads(done.stdout)
    (row,) = Leaderboard.open(served.name, ledger=served.ledger).standings()
    (split,) = found["result"]
    assert list(split) == [scoring.SPLIT]
    labels = yaml.safe_load((bundle / "challenge_config.yaml").read_text())["leaderboard"][0]
    assert set(split[scoring.SPLIT]) == set(labels["schema"]["labels"])
    assert split[scoring.SPLIT]["score"] == round(row.score, 10)
    assert (row.account, row.submissions) == ("evalai-3", 1)
    assert json.loads(run_on_evalai(bundle, tmp_path, data, number=10).stdout) == found
    assert served.board() == [("evalai-3", 0.75)]
    assert (served.releases(), served.fresh("evalai-3")) == (1, 1)


def test_a_board_with_a_reserve_takes_all_rows(server: tuple[Path, str], tmp_path: Path) -> None:
    kept = contest(tmp_path, *server, next(SEEDS), reserve=0.5)
    bundle = kept.bundle("evalai", kept.token("evalai"))
    assert f"each of the {N} rows" in (bundle / "pages/overview.html").read_text()
    (split,) = json.loads(run_on_evalai(bundle, tmp_path, csv(kept.y)).stdout)["result"]
    assert split[scoring.SPLIT]["score"] == 1.0


def test_what_fails_on_evalai_raises(served: Contest, tmp_path: Path) -> None:
    bundle = served.bundle("evalai", served.token("evalai"))
    done = run_on_evalai(bundle, tmp_path, b"label\n0\n")
    assert done.returncode != 0 and "NotScored" in done.stderr and "400" in done.stderr
    assert served.board() == []
