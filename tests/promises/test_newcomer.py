"""Attacks the first steps: the commands of the page, as a newcomer types them, and as a stranger.

The stranger is another user of the machine, who has a token and owns no file of the server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests

from tests.support.server import COMMAND, PATIENCE, free_port
from tests.support.stranger import STRANGER, interpreter, is_root, labels_in, numbers_in

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "server.md"
HEADING = "## From nothing to the first submission"
AT_MOST = 6
# A prime, so that the scores of no other test are among the fractions of it.
ROWS = 397
PROBE = Path(__file__).with_name("probe_stranger.py")


def commands() -> list[str]:
    """The commands of the page, in the order in which they are typed."""
    section = PAGE.read_text("utf-8").split(HEADING)[1].split("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [line for one in blocks for line in one.replace("\\\n", " ").splitlines()]


@dataclass(frozen=True, slots=True)
class Desk:
    """A folder with the files that the page speaks of, and a port for its server."""

    folder: Path
    port: int
    y: np.ndarray

    def words(self, command: str) -> str:
        return command.replace("8765", str(self.port))

    @property
    def environment(self) -> dict[str, str]:
        place = {"HOME": str(self.folder), "LADDERHOLDOUT_SERVE_PORT": str(self.port)}
        path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
        dropped = ("LADDERHOLDOUT_LEDGER", "LADDERHOLDOUT_TOKEN", "XDG_DATA_HOME")
        kept = {name: text for name, text in os.environ.items() if name not in dropped}
        return kept | place | {"PATH": path}

    def run(self, command: str, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self.words(command)],
            cwd=self.folder,
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def serving(self, command: str) -> Iterator[int]:
        """Run the command of the page that stays; it ends as Ctrl-C ends it."""
        with (self.folder / "server.log").open("w") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.words(command)}"],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        try:
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                try:
                    assert requests.get(f"http://127.0.0.1:{self.port}/healthz", timeout=5).ok
                    break
                except requests.ConnectionError:
                    assert process.poll() is None, (self.folder / "server.log").read_text()
                    time.sleep(0.1)
            yield process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk in a folder that everybody may enter, unlike pytest's own."""
    rng = np.random.default_rng()  # labels that no other run has
    y = rng.integers(0, 2, ROWS)
    folder = Path(tempfile.mkdtemp(prefix="newcomer-"))
    folder.chmod(0o755)
    lines = [f"{x:.6f},{label}" for x, label in zip(rng.normal(size=ROWS), y, strict=True)]
    holdout = folder / "holdout.csv"
    holdout.write_text("\n".join(["x,label", *lines]))
    holdout.chmod(0o600)
    guess = np.where(rng.random(ROWS) < 0.8, y, 1 - y)
    (folder / "predictions.csv").write_text("\n".join(["label", *map(str, guess)]))
    yield Desk(folder, free_port(), y)
    shutil.rmtree(folder)


def test_the_page_leads_to_a_first_remote_submission_in_six_commands(desk: Desk) -> None:
    install, register, account, serve, export, submit = commands()
    assert len(commands()) <= AT_MOST
    assert install.startswith("pip install ") and "[server,tables]" in install  # is done here
    assert "397 rows" in desk.run(register)
    (token,) = re.findall(r"token, shown this once: (lh_\S+)", desk.run(account))
    assert export == "export LADDERHOLDOUT_TOKEN=lh_..."
    with desk.serving(serve):
        shown = desk.run(submit, LADDERHOLDOUT_TOKEN=token)
        assert re.search(r"released score +0\.\d+ *\nsubmission +1, improved", shown)
        # The holdout's own URL is as good.
        whole = submit.replace("8765", "8765/holdouts/churn-2026/") + " --json"
        found = json.loads(desk.run(whole, LADDERHOLDOUT_TOKEN=token))
        assert (found["submission"], found["improved"]) == (2, False)
        assert (found["repeat_of"], found["is_incumbent"]) == (1, True)
    assert token not in (desk.folder / "server.log").read_text()


@pytest.mark.skipif(not is_root(), reason="only root can start another user")
def test_another_user_finds_no_label_and_no_raw_score_in_all_that_is_readable(desk: Desk) -> None:
    python = interpreter()
    if python is None:
        pytest.skip("no Python here that another user can run")
    _, register, account, serve, _, _ = commands()
    # In a folder that everybody may read, so that the files' own modes are what protects them.
    ledger = desk.folder / "open" / "ledger.db"
    ledger.parent.mkdir(mode=0o755)
    named = f" --ledger {ledger}"
    desk.run(register + named)
    (token,) = re.findall(r"(lh_\S+)", desk.run(account + named))
    mine = desk.folder / "stranger"
    mine.mkdir()
    os.chown(mine, STRANGER, STRANGER)
    shutil.copy(PROBE, mine)
    begun = time.time() - 1
    with desk.serving(serve.replace(" --share-rows churn-2026", "") + named) as server:
        asked = {"url": f"http://127.0.0.1:{desk.port}", "rows": ROWS, "server": server}
        asked |= {"folders": [str(desk.folder), "/tmp", "/var/tmp", "/dev/shm"], "since": begun}
        done = subprocess.run(
            [python, "-I", str(mine / PROBE.name), json.dumps(asked)],
            cwd=mine,
            env={"LADDERHOLDOUT_TOKEN": token, "PATH": os.environ["PATH"]},
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            capture_output=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        # Tokens are on the command line of no process.
        lines = [one.read_bytes() for one in Path("/proc").glob("[0-9]*/cmdline") if one.exists()]
        assert not any(token.encode() in line for line in lines)
    reached = json.loads((mine / "reached.json").read_text())
    found = (mine / "found").read_bytes()

    # It did search: in the files, at the processes, and at every path.
    assert reached["submissions"] >= 30 and reached["answers"] >= 40
    assert reached["files"] and reached["refused"]
    refused = {Path(one).name for one in reached["refused"]}
    assert {"ledger.db", "holdout.csv", "vault", "environ", "mem", "maps", "fd"} <= refused
    assert {"ledger.db-wal", "ledger.db-shm"} <= refused
    modes = {one: stat.S_IMODE(one.stat().st_mode) for one in ledger.parent.rglob("*")}
    assert all(mode in (0o600, 0o700) for mode in modes.values()), modes

    predictions = np.array(reached["predictions"])
    raw = {round(float(np.mean(one == desk.y)), 12) for one in predictions}
    released = {round(one, 12) for one in reached["released"]}
    # What was released may be known, and with it the score of which that is the risk.
    hidden = raw - released - {round(1 - one, 12) for one in released}
    assert len(hidden) > 10
    # The search finds both where they are: it would have found them in what the stranger read.
    kept = b"".join(one.read_bytes() for one in ledger.parent.rglob("*") if one.is_file())
    assert labels_in(kept, [desk.y]) and numbers_in(kept, hidden, ROWS)
    assert labels_in(found, [desk.y, desk.y[::-1], 1 - desk.y]) == 0
    assert numbers_in(found, hidden, ROWS) == 0
