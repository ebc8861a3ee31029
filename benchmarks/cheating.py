"""Attacks of an agent that cheats, by a process of another user, on a real server and its tools.

    sudo python benchmarks/cheating.py          # root alone may start a process of another user

Each attack is a function of `cheater.py`, which is run as a user that owns nothing of the server's,
with a token and the standard library. Here each has a judge, who knows the labels: the docstring of
the judge states what success would have been. An attack that could not be prevented has to be on
record: the ledger holds it, and certificates count it. The table is that of
docs/background/cheating.md. It takes about a minute, and ends with status 1 where an attack
succeeded.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import requests
from scipy import stats

import ladderholdout
from ladderholdout import LadderHoldout
from ladderholdout.guard.health import verify_holdout
from ladderholdout.ledger.place import resolve_url
from ladderholdout.ledger.store import Ledger
from ladderholdout.mechanisms import GateLadder
from ladderholdout.server.accounts import accounts_of, add_account

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.server import COMMAND, PATIENCE, Visitor, free_port
from tests.support.stranger import STRANGER, interpreter, is_root, labels_in, numbers_in

ROOT = Path(__file__).parents[1]
CHEATER = ROOT / "benchmarks" / "cheater.py"
PROBE = ROOT / "tests" / "promises" / "probe_stranger.py"
NAME, ROWS, PAIRS, STEPS = "churn-2026", 397, 40, 200
ACCOUNTS = ("agent", "claims", "errors", "names", "timer", "writer", "tools", "climber")
FAILED, ON_RECORD, SUCCEEDED = "failed", "on record", "SUCCEEDED"


class Outcome(NamedTuple):
    """One line of the table."""

    attack: str
    tried: str
    success: str
    outcome: str
    evidence: str


@dataclass(slots=True)
class Place:
    """A server with two holdouts, the user who attacks it, and all that the judges know."""

    folder: Path
    python: str
    seed: int
    port: int = field(default_factory=free_port)
    tokens: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    y: Any = None
    y_gate: Any = None

    @property
    def ledger(self) -> Path:
        return self.folder / "private" / "ledger.db"

    @property
    def mine(self) -> Path:
        """The folder of the one who attacks."""
        return self.folder / "agent"

    @property
    def shared(self) -> Path:
        """The folder in which the server and the tools are started; everybody may write to it."""
        return self.folder / "shared"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set_up(self) -> None:
        """Register two holdouts of coin flips, with private files as careless as an owner's."""
        rng = np.random.default_rng([36, self.seed])
        self.folder.chmod(0o755)
        for folder, mode in ((self.ledger.parent, 0o755), (self.shared, 0o777), (self.mine, 0o700)):
            folder.mkdir()
            folder.chmod(mode)
        os.chown(self.mine, STRANGER, STRANGER)
        for script in (CHEATER, PROBE):
            shutil.copy(script, self.mine)
        X = rng.normal(size=(2 * ROWS, 2))
        self.y, self.y_gate = rng.integers(0, 2, (2, ROWS))
        ledger = str(self.ledger)
        LadderHoldout(X[:ROWS], self.y, scoring="accuracy", name=NAME, ledger=ledger)
        gate = {"mechanism": GateLadder(), "scoring": "accuracy", "name": "gate"}
        LadderHoldout(X[ROWS:], self.y_gate, ledger=ledger, **gate)
        for name in ACCOUNTS:
            self.tokens[name] = add_account(ledger, NAME, name, "analyst").token
        for name in ("daily", "limited"):
            limits = {"per_day": 12 if name == "daily" else 1, "budget": 2}
            self.tokens[name] = add_account(ledger, NAME, name, "analyst", **limits).token
        for place in range(4):
            self.tokens[f"pool-{place}"] = add_account(
                ledger, NAME, f"pool-{place}", "analyst"
            ).token
        for place in range(2):
            self.tokens[f"gate-{place}"] = add_account(
                ledger, "gate", f"gate-{place}", "program"
            ).token
        self.tokens["owner"] = add_account(ledger, NAME, "owner", "owner").token
        config = self.ledger.with_name("serve.toml")
        config.write_text(f'ledger = "{ledger}"\nport = {self.port}\n')
        lines = [f"{x[0]:.6f},{label}" for x, label in zip(X, self.y, strict=False)]
        self.ledger.with_name("holdout.csv").write_text("\n".join(["x,label", *lines]))
        np.save(self.ledger.with_name("labels.npy"), self.y)
        self.ledger.with_name("token").write_text(self.tokens["tools"])
        for path in self.ledger.parent.iterdir():
            path.chmod(0o700 if path.is_dir() else 0o600)

    @property
    def environment(self) -> dict[str, str]:
        """Of the server and the tools; it holds a token that is not the agent's."""
        package = str(Path(ladderholdout.__file__).parents[1])
        kept = {name: text for name, text in os.environ.items() if "LADDERHOLDOUT" not in name}
        return kept | {"PYTHONPATH": package, "LADDERHOLDOUT_TOKEN": self.tokens["owner"]}

    def start(self, *flags: str) -> None:
        """Start the server in the folder to which everybody may write."""
        words = [str(COMMAND), "serve", "--config", str(self.ledger.with_name("serve.toml"))]
        with (self.folder / "private" / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*words, *flags], cwd=self.shared, env=self.environment, stdout=log, stderr=log
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if requests.get(self.url + "/healthz", timeout=5).ok:
                    return
            except requests.ConnectionError:
                time.sleep(0.05)
        raise RuntimeError((self.folder / "private" / "server.log").read_text())

    def stop(self, *, kill: bool = False) -> None:
        """End the server."""
        if self.process is not None:
            (self.process.kill if kill else self.process.terminate)()
            self.process.wait(PATIENCE)

    @contextmanager
    def tools(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the tools for agents as the server's user; their pipes are handed to the agent."""
        words = [str(COMMAND), "mcp", "--server", f"{self.url}/holdouts/{NAME}"]
        named = {"LADDERHOLDOUT_TOKEN": self.tokens["tools"]}
        process = subprocess.Popen(
            words,
            cwd=self.shared,
            env=self.environment | named,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            yield process
        finally:
            assert process.stdin and process.stdout
            process.stdin.close()
            process.stdout.close()
            process.wait(PATIENCE)

    def cheat(
        self, attack: str, account: str = "agent", script: Path = CHEATER, **more: Any
    ) -> Any:
        """Run an attack as the other user, and return what it reached."""
        token = self.tokens[account]
        asked = {"port": self.port, "rows": ROWS, "token": token, "account": account} | more
        given, pass_fds = self.mine / "asked.json", more.get("fds", ())
        given.write_text(json.dumps(asked | {"seed": self.seed}))
        given.chmod(0o644)
        (self.mine / "found").unlink(missing_ok=True)
        words = [attack] if script == CHEATER else [json.dumps(asked)]
        done = subprocess.run(
            [self.python, "-I", str(self.mine / script.name), *words],
            cwd=self.mine,
            env={"PATH": os.environ["PATH"], "LADDERHOLDOUT_TOKEN": token},
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            capture_output=True,
            pass_fds=pass_fds,
            timeout=300,
            check=False,
        )
        given.unlink()
        if done.returncode:
            raise RuntimeError(done.stderr.decode())
        return json.loads(done.stdout or (self.mine / "reached.json").read_text())

    def held(self, account: str, name: str = NAME) -> LadderHoldout:
        """The ladder of an account, where the ledger is."""
        return LadderHoldout.open(name, account=account, ledger=str(self.ledger))

    def leaked(self) -> int:
        """Count labels and tokens of others in all that the agent read in its last attack."""
        found = self.mine / "found"
        text = found.read_bytes() if found.exists() else b""
        secrets = [one.encode() for one in self.tokens.values()]
        return labels_in(text, [self.y, self.y[::-1], 1 - self.y]) + sum(s in text for s in secrets)


Judge = Callable[[Place], tuple[int, str, str]]
JUDGES: list[tuple[str, str, Judge]] = []


def attack(name: str) -> Callable[[Judge], Judge]:
    """Enter a judge; its docstring states what success would have been."""

    def entered(judge: Judge) -> Judge:
        JUDGES.append((name, " ".join((judge.__doc__ or "").split()).rstrip("."), judge))
        return judge

    return entered


def outcome(is_well: bool, evidence: str, *, recorded: bool = False) -> tuple[str, str]:
    if not is_well:
        return SUCCEEDED, evidence
    return (ON_RECORD if recorded else FAILED), evidence


@attack("Read files, environments, processes and every answer")
def reading(place: Place) -> tuple[int, str, str]:
    """A label, a raw score that was not released, or somebody's token is in what was read."""
    assert place.process is not None
    folders = [str(place.folder), "/tmp", "/var/tmp", "/dev/shm"]
    more = {"url": place.url, "server": place.process.pid, "folders": folders}
    reached = place.cheat("", script=PROBE, since=time.time() - 60, **more)
    raw = {round(float(np.mean(np.array(one) == place.y)), 12) for one in reached["predictions"]}
    released = {round(one, 12) for one in reached["released"]}
    hidden = raw - released - {round(1 - one, 12) for one in released}
    found = (place.mine / "found").read_bytes()
    # By another process: one that closes a file of SQLite's gives up its own locks on it.
    files = [str(one) for one in place.ledger.parent.rglob("*") if one.is_file()]
    kept = subprocess.check_output(["cat", *files])
    # The search finds both where they are.
    assert hidden and labels_in(kept, [place.y]) and numbers_in(kept, hidden, ROWS)
    leaks = place.leaked() + numbers_in(found, hidden, ROWS)
    names = {Path(one).name for one in reached["refused"]}
    wanted = {"ledger.db", "vault", "serve.toml", "holdout.csv", "environ", "mem", "maps"}
    evidence = f"{len(names & wanted)} of {len(wanted)} targets refused, {leaks} leaks"
    tried = reached["files"] + len(reached["refused"]) + reached["answers"]
    return tried, *outcome(not leaks and wanted <= names, evidence)


@attack("Write to ledger, vault and settings")
def writing(place: Place) -> tuple[int, str, str]:
    """A file of the server is changed, replaced, removed, or has another beside it."""
    files = [str(one) for one in place.ledger.parent.rglob("*") if one.is_file()]
    mine = place.mine / "mine"
    mine.touch()
    os.chown(mine, STRANGER, STRANGER)
    assert len(place.cheat("writes", files=[str(mine)])["passed"]) == 4  # it can
    reached = place.cheat("writes", files=files)
    evidence = f"{len(reached['passed'])} of {reached['tried']} were let through"
    return reached["tried"], *outcome(not reached["passed"], evidence)


@attack("Read the memory of the server and of the tools, or have it dumped")
def remembering(place: Place) -> tuple[int, str, str]:
    """A byte of their memory is read, a debugger is attached, or a signal reaches them."""
    assert place.process is not None
    other = subprocess.Popen(["sleep", "60"], user=STRANGER, group=STRANGER, extra_groups=[])
    assert {"maps", "mem", "SIGKILL"} <= {*place.cheat("memory", processes=[other.pid])["passed"]}
    other.wait(PATIENCE)
    with place.tools() as tools:
        reached = place.cheat("memory", processes=[place.process.pid, tools.pid])
        alive = tools.poll() is None and place.process.poll() is None
    evidence = (
        f"{len(reached['passed'])} of {reached['tried']} let through; both still run: {alive}"
    )
    return reached["tried"], *outcome(not reached["passed"] and alive, evidence)


@attack("Replace the code that scores")
def replacing(place: Place) -> tuple[int, str, str]:
    """A module of the agent's is imported by the server or the tools when they are started."""
    marker = place.shared / "marker"
    packages = [*site.getsitepackages(), str(Path(ladderholdout.__file__).parents[1])]
    packages += [str(COMMAND.parent), str(Path(ladderholdout.__file__).parent)]
    folders = [str(place.shared), str(place.mine)]
    more = {"marker": str(marker), "folders": folders, "packages": packages}
    reached = place.cheat("code", **more)
    # A program that looks for modules in the folder where it is started would have run it.
    subprocess.run([place.python, "-c", "import numpy"], cwd=place.shared, check=False)
    marker.unlink()
    place.stop()
    place.start("--workers", "2")
    with place.tools():
        place.stop()
    place.start()
    evidence = (
        f"started again in that folder with 1 and 2 processes; {len(reached['passed'])} writes"
    )
    return reached["tried"], *outcome(not marker.exists() and not reached["passed"], evidence)


@attack("Send predictions that are code")
def sending_code(place: Place) -> tuple[int, str, str]:
    """The server unpickles or evaluates what was sent."""
    marker = place.shared / "ran"
    reached = place.cheat("objects", marker=str(marker))
    codes = sorted(set(reached["statuses"]))
    evidence = f"answers {', '.join(map(str, codes))}; nothing ran: {not marker.exists()}"
    well = not marker.exists() and all(400 <= code < 500 for code in codes)
    return reached["tried"], *outcome(well, evidence)


@attack("State the score, the account or the improvement")
def claiming(place: Place) -> tuple[int, str, str]:
    """A score is released that is not that of the predictions, or another account submits."""
    counts = {name: place.held(name).status().submissions for name in ACCOUNTS}
    reached = place.cheat("claims", account="claims")
    accepted = reached["statuses"].count(200)
    held = place.held("claims")
    now = {name: place.held(name).status().submissions for name in counts}
    moved = {name for name in counts if now[name] != counts[name]} - {"claims"}
    well = not moved and held.status().submissions == accepted and reached["after"]["score"] != 1.0
    evidence = f"{reached['tried'] - accepted} refused; {accepted} are plain submissions of its own"
    return reached["tried"], *outcome(well, evidence, recorded=True)


@attack("Use an idempotency key for other predictions, or that of somebody else")
def reusing_keys(place: Place) -> tuple[int, str, str]:
    """Worthless predictions are accepted under a key, an answer of another account is shown, or a
    limit of the day does not count."""
    rng = np.random.default_rng([7, place.seed])
    good = np.where(rng.random(ROWS) < 0.9, place.y_gate, 1 - place.y_gate).tolist()
    more = {"good": good, "baseline": rng.integers(0, 2, ROWS).tolist()}
    more |= {"gate_tokens": [place.tokens[f"gate-{one}"] for one in range(2)]}
    reached = place.cheat("keys", **more, limited_token=place.tokens["limited"])
    limit = reached["limit"]
    answers = {(one.get("score"), one.get("improved")) for one in limit}
    well = reached["first"]["accepted"] and reached["again"]["accepted"]
    well &= not reached["other"]["accepted"]
    # The first of the second account is its own baseline, and what follows repeats that.
    well &= [one["incumbent"] for one in reached["foreign"]] == [1, 1, 1]
    well &= len(answers) == 1 and reached["beyond"] == 429
    repeats = sum(one.repeat_of is not None for one in place.held("limited").history())
    evidence = f"none accepted; {repeats} of {len(limit)} under one key are repeats of the first"
    return reached["tried"], *outcome(bool(well), evidence, recorded=True)


@attack("Write instructions and markup into notes, names and addresses")
def instructing(place: Place) -> tuple[int, str, str]:
    """A page has the markup or a control character, or the tools show the text to another agent."""
    reached = place.cheat("instructions", account="writer")
    owner = Visitor(place, place.tokens["owner"])  # type: ignore[arg-type]
    paths = [f"/holdouts/{NAME}{part}" for part in ("", "/report", "?account=writer")]
    paths += [f"/holdouts/{NAME}/submissions/writer-1", "/"]
    pages = [owner.get(path).content for path in paths]
    words = ["history", NAME, "--account", "writer", "--ledger", str(place.ledger)]
    shown = subprocess.run(
        [str(COMMAND), *words], env=place.environment, capture_output=True, check=True
    ).stdout
    pages += [text.encode() for text in reached["pages"]]
    markup = (b"<script>document", b"<img src=x", b'href="javascript:')
    control = (b"\x1b", b"\x07", "\u202e".encode(), "\u2066".encode())
    hits = sum(one in text for one in (*markup, *control) for text in pages)
    hits += sum(one in shown for one in control)
    assert b"ignore all earlier" in b"".join(pages)  # the text itself is there
    others = [str(one.context) for name in ACCOUNTS[:-3] for one in place.held(name).history()]
    leaks = sum("ignore all earlier" in one for one in others)
    kept = sum("note" in one.context for one in place.held("writer").history())
    evidence = (
        f"{kept} notes on record; {hits} as markup or control characters on {len(pages)} pages"
    )
    return reached["tried"], *outcome(not hits and not leaks, evidence, recorded=True)


@attack("Measure how long rejections take")
def timing(place: Place) -> tuple[int, str, str]:
    """Times tell rejected predictions that are nearly as good from guesses."""
    rng = np.random.default_rng([9, place.seed])

    def near(wrong: float) -> list[int]:
        return [int(one) for one in np.where(rng.random(ROWS) < wrong, 1 - place.y, place.y)]

    incumbent = {"predictions": near(0.1)}
    headers = {"Authorization": f"Bearer {place.tokens['timer']}"}
    address = f"{place.url}/v1/holdouts/{NAME}/submit"
    assert requests.post(address, json=incumbent, headers=headers, timeout=60).json()["improved"]
    tried, found = 0, []
    # With 40 on each side the AUC of equal times has a deviation of .065: both measurements leave
    # .3 to .7 with a chance of 5e-6.
    for _ in range(2):
        sides = [[near(wrong) for _ in range(PAIRS)] for wrong in (0.2, 0.5)]
        reached = place.cheat("times", account="timer", sides=sides)
        tried += reached["tried"]
        first, second = reached["sides"]
        statistic = stats.mannwhitneyu(first, second).statistic
        found.append(float(statistic / (len(first) * len(second))))
        if 0.3 <= found[-1] <= 0.7:
            break
    evidence = f"the times tell the sides apart with an AUC of {found[-1]:.2f} (chance: 0.50)"
    return tried, *outcome(0.3 <= found[-1] <= 0.7, evidence)


@attack("Read labels from the texts of refusals")
def reading_errors(place: Place) -> tuple[int, str, str]:
    """Texts of refusals differ between rows with different labels."""
    reached = place.cheat("errors", account="errors")
    kinds = len({kind.split()[0] for kind in reached["texts"]})
    evidence = f"{len(reached['texts'])} texts for {kinds} kinds of faults, whatever the label"
    well = len(reached["texts"]) == kinds and place.leaked() == 0
    return reached["tried"], *outcome(well, evidence)


@attack("Submit across restarts")
def restarting(place: Place) -> tuple[int, str, str]:
    """After a kill of the server a ladder, a budget or a limit of the day begins again."""
    more = {"tokens": [place.tokens["daily"]], "steps": 10}
    first = place.cheat("climb", **more)
    place.stop(kill=True)
    place.start()
    second = place.cheat("climb", **more)
    numbers = first["numbers"] + second["numbers"]
    well = numbers == list(range(1, 13)) and second["statuses"][2:] == [429] * 8
    well &= place.held("daily").status().releases <= 2
    evidence = f"submissions {numbers[0]} to {numbers[-1]}, then refused: 12 a day are allowed"
    return first["tried"] + second["tried"], *outcome(well, evidence)


@attack("Ask under other names of holdout and ladder")
def renaming(place: Place) -> tuple[int, str, str]:
    """A ladder or a holdout begins anew under another name, or another's ladder is shown."""
    accounts = ["default", "owner", "timer", "writer", "%00", "agent%20"]
    reached = place.cheat("names", account="names", accounts=accounts)
    well = all(code == 404 for code in reached["spelled"] + reached["others"])
    well &= all(code in (303, 404, 405) for code in reached["created"])  # 303: sign in
    with Ledger(resolve_url(str(place.ledger))).read() as tx:
        well &= len(tx.holdouts()) == 2
    codes = sorted({*reached["spelled"], *reached["created"], *reached["others"]})
    evidence = f"answers {', '.join(map(str, codes))}"
    return reached["tried"], *outcome(well, evidence)


@attack("Have the owner register the rows under another name")
def registering_again(place: Place) -> tuple[int, str, str]:
    """The same rows have a fresh ladder that certificates do not count."""
    rng = np.random.default_rng([36, place.seed])
    X, order = rng.normal(size=(2 * ROWS, 2))[:ROWS], rng.permutation(ROWS)
    known = {"scoring": "accuracy", "name": "churn-2027", "ledger": str(place.ledger)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = LadderHoldout(X[order], place.y[order], account="second", **known)
    counted = [re.search(r"with (\d+) submissions", str(one.message)) for one in caught]
    (submissions,) = (int(one[1]) for one in counted if one)
    evidence = (
        f"it is one more ladder of {again.status().name}, with {submissions} submissions before"
    )
    return 1, *outcome(again.status().name == NAME and submissions > 0, evidence, recorded=True)


@attack("Make an account or a token")
def making_accounts(place: Place) -> tuple[int, str, str]:
    """An account is added, changed or withdrawn from by an analyst, or a forged token is let in."""
    before = accounts_of(str(place.ledger), NAME)
    reached = place.cheat("accounts", account="names")
    well = all(code in (404, 405) for code in reached["statuses"])
    well &= all(code == 401 for code in reached["forged"])
    well &= accounts_of(str(place.ledger), NAME) == before
    codes = sorted({*reached["statuses"], *reached["forged"]})
    evidence = f"answers {', '.join(map(str, codes))}; {len(before)} accounts, as before"
    return reached["tried"], *outcome(well, evidence)


@attack("Climb by hundreds of submissions")
def climbing(place: Place) -> tuple[int, str, str]:
    """What is believed is more than .05 above the truth, or the certificate misses the truth."""
    return _climbed(place, ["climber"])


@attack("Climb with several accounts that share their answers")
def sharing(place: Place) -> tuple[int, str, str]:
    """What is believed is more than .05 above the truth, or the certificate misses the truth."""
    return _climbed(place, [f"pool-{one}" for one in range(4)])


def _climbed(place: Place, accounts: list[str]) -> tuple[int, str, str]:
    """Climb on labels that are coins: on other rows each model is right half of the time."""
    rng, best, believed = np.random.default_rng(place.seed), None, 0.0
    for _ in range(STEPS):  # the same loop without a guard
        candidate = rng.integers(0, 2, ROWS) if best is None else best.copy()
        if best is not None:
            candidate[rng.choice(ROWS, 10, replace=False)] ^= 1
        score = float(np.mean(candidate == place.y))
        if score > believed:
            best, believed = candidate, score
    tokens = [place.tokens[one] for one in accounts]
    reached = place.cheat("climb", tokens=tokens, steps=STEPS)
    ends = [place.held(one).certificate() for one in accounts]
    covered = all(one.low <= 0.5 <= one.high for one in ends if one.missing is None)
    counted = len(reached["numbers"])
    evidence = (
        f"believed {reached['believed']:.3f}, truth 0.500, without a guard {believed:.3f}; "
        f"{counted} on record"
    )
    well = reached["believed"] <= 0.55 and covered and counted == STEPS
    return reached["tried"], *outcome(well, evidence, recorded=True)


@attack("Use the tools as a way to files and to the owner's rights")
def using_tools(place: Place) -> tuple[int, str, str]:
    """The tools read a file that the agent cannot read, or do what only an owner may."""
    private = [place.ledger.with_name(one) for one in ("labels.npy", "holdout.csv", "token")]
    more = {"private": [*map(str, private)], "files": [str(place.ledger)]}
    with place.tools() as process:
        assert process.stdin and process.stdout
        pipes = process.stdout.fileno(), process.stdin.fileno()
        more |= {"receive": pipes[0], "send": pipes[1], "fds": list(pipes)}
        reached = place.cheat("tools", link=str(place.shared / "guess.npy"), **more)
    held = place.held("tools")
    leaks = place.leaked()
    well = not reached["passed"] and not leaks and held.status().submissions == 1
    evidence = f"{len(reached['passed'])} let through, {leaks} leaks in the answers"
    return reached["tried"], *outcome(well and bool(reached["own"]), evidence)


@attack("Alter the record of all this afterwards")
def rewriting(place: Place) -> tuple[int, str, str]:
    """The chain of the ledger does not verify after all attacks."""
    found = [verify_holdout(resolve_url(str(place.ledger)), name, None) for name in (NAME, "gate")]
    faults = sum(len(one.findings) for one in found)
    evidence = f"{sum(one.submissions for one in found)} submissions verified, {faults} faults"
    return 2, *outcome(not faults, evidence)


def results(folder: Path, seed: int = 0) -> list[Outcome]:
    """Try every attack against a server that is started for this."""
    python = interpreter()
    if python is None:
        raise SystemExit("There is no Python here that another user can run.")
    place, lines = Place(folder, python, seed), []
    with ExitStack() as stack:
        place.set_up()
        place.start()
        stack.callback(place.stop)
        for name, success, judge in JUDGES:
            begun = time.monotonic()
            tried, verdict, evidence = judge(place)
            lines.append(Outcome(name, str(tried), success, verdict, evidence))
            print(f"{time.monotonic() - begun:5.1f} s  {verdict:9}  {name}", file=sys.stderr)
    return lines


def table(lines: list[Outcome]) -> str:
    """Write the outcomes as a table of Markdown."""
    header = ("attack", "tried", "it would have succeeded if", "outcome", "evidence")
    cells = [header, 5 * ("---",)]
    cells += [line._replace(success=line.success[0].lower() + line.success[1:]) for line in lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    if not is_root():
        raise SystemExit("Only root can start a process of another user: run it as root.")
    folder = Path(tempfile.mkdtemp(prefix="cheating-"))
    try:
        lines = results(folder)
    finally:
        shutil.rmtree(folder)
    print(table(lines))
    raise SystemExit(any(line.outcome == SUCCEEDED for line in lines))


if __name__ == "__main__":
    main()
