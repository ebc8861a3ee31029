"""Attacks a server in use, by its page: behind nginx, as a service, restored from a copy."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.cli import serving as serving_command
from ladderholdout.errors import AccessDenied, LedgerUnreachable
from ladderholdout.server.accounts import revoke_token
from tests.support.commands import CliRunner
from tests.support.ledgers import copy
from tests.support.processes import elsewhere
from tests.support.server import (
    COMMAND,
    PATIENCE,
    N,
    Running,
    free_port,
    registered,
    rows,
    serving,
    token_of,
)

pytestmark = pytest.mark.processes

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "server_deploy.md").read_text("utf-8")
# Around the page's part: all in one process of the user who runs the tests, in one folder.
NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {server}
}}
"""


def shown(language: str, holding: str) -> str:
    """Return the page's block in a language that holds some words."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (one,) = [text for text in found if holding in text]
    return str(one)


def certified(folder: Path) -> tuple[Path, Path, Path]:
    """Make an authority, and a certificate of it for this machine."""

    def openssl(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=folder)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=Ours",
            "-keyout", "ca.key", "-out", "ca.pem")  # fmt: skip
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "key.pem",
            "-out", "asked.pem")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    openssl("x509", "-req", "-in", "asked.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
            "-CAcreateserial", "-out", "cert.pem", "-extfile", "names")  # fmt: skip
    return folder / "ca.pem", folder / "cert.pem", folder / "key.pem"


def nginx() -> str:
    """Return the command of nginx; a missing one is a failure and no reason to skip."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    assert found, "There is no nginx here. Install one: apt-get install -y nginx-light"
    return found


@contextmanager
def proxied(folder: Path, port: int, cert: Path, key: Path) -> Iterator[str]:
    """Run nginx with the page's configuration before a server."""
    outside = free_port()
    block = shown("nginx", "proxy_pass")
    for written, here in (
        ("443", str(outside)),
        ("/etc/ssl/holdouts/cert.pem", str(cert)),
        ("/etc/ssl/holdouts/key.pem", str(key)),
        ("8765", str(port)),
    ):
        assert written in block
        block = block.replace(written, here)
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, server=block))
    process = subprocess.Popen(
        [nginx(), "-p", str(folder), "-c", str(config)], stderr=subprocess.DEVNULL
    )
    url = f"https://localhost:{outside}"
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert process.poll() is None, (folder / "error.log").read_text()
            try:
                requests.get(url, timeout=5, verify=False)
                break
            except requests.ConnectionError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_behind_nginx_with_an_authority_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "ledger.db"
    registered(ledger)
    token = token_of(ledger, "ada")
    authority, cert, key = certified(tmp_path)
    warnings.filterwarnings("ignore", "Unverified HTTPS")
    with serving(ledger, tmp_path) as server:
        inside = int(server.url.rpartition(":")[2])
        with proxied(tmp_path, inside, cert, key) as url:
            with pytest.raises(LedgerUnreachable, match="REQUESTS_CA_BUNDLE"):
                LadderHoldout.connect(url, token)
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
            holdout = LadderHoldout.connect(f"{url}/holdouts/churn", token, timeout=2)
            assert holdout.submit([0] * N).improved
            path, bearer = "/v1/holdouts/churn", {"Authorization": f"Bearer {token}"}
            # More than nginx takes by default.
            large = json.dumps({"predictions": [1] * N}) + " " * 2**20
            posted = {**bearer, "Content-Type": "application/json"}
            sent = requests.post(f"{url}{path}/submit", large, headers=posted, timeout=60)
            assert sent.status_code == 200 and sent.json()["submission"] == 2
            too_large = requests.post(
                f"{url}{path}/submit", " " * 70 * 2**20, headers=posted, timeout=60
            )
            assert too_large.status_code == 413
            # No answer leads to the host that a request names.
            named = {"Host": "elsewhere.example"}
            for there in ("/docs/", "/docs"):
                led = requests.get(url + there, headers=named, allow_redirects=False, timeout=60)
                assert "elsewhere" not in led.headers.get("Location", "")
                assert "https://" not in led.headers.get("Location", "")
            strict = requests.post(f"{url}{path}/describe", headers=bearer, timeout=60).headers
            assert strict["Content-Security-Policy"] and strict["Cache-Control"] == "no-store"
            with pytest.raises(AccessDenied):
                LadderHoldout.connect(url, token[:-1] + "!")
            server.kill()
            with pytest.raises(LedgerUnreachable, match="status 502"):
                holdout.submit([1, 0] * (N // 2))
    assert token not in (tmp_path / "access.log").read_text()
    assert token not in server.log.read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_the_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    unit = tmp_path / "ladderholdout.service"
    command = "/opt/ladderholdout/bin/ladder-holdout"
    text = shown("ini", "[Service]")
    assert text.count(command) == 1
    unit.write_text(text.replace(command, shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("caddy") is None, reason="there is no Caddy")
def test_the_configuration_of_caddy_is_valid(tmp_path: Path) -> None:
    file = tmp_path / "Caddyfile"
    file.write_text(shown("text", "reverse_proxy"))
    words = ["caddy", "validate", "--adapter", "caddyfile", "--config", str(file)]
    home = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=home)
    assert done.returncode == 0, done.stderr


# -- copies ------------------------------------------------------------------------------


class Home:
    """The folders of the page's commands, in a test's own."""

    def __init__(self, folder: Path) -> None:
        self.place, self.copies = folder / "var", folder / "copies"
        for one in (self.place, self.copies):
            one.mkdir(mode=0o700)
        self.ledger = self.place / "ledger.db"

    def run(self, holding: str) -> dict[str, int]:
        """Run a block of the page, but for the service manager; return each command's status."""
        found = {}
        for line in shown("sh", holding).splitlines():
            if line.startswith("systemctl"):
                continue
            words = line.replace("/var/lib/ladderholdout", str(self.place))
            words = words.replace("/backup", str(self.copies)).replace("churn-2026", "churn")
            known = {"LADDERHOLDOUT_LEDGER": str(self.ledger)}
            path = {"PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"}
            done = subprocess.run(["bash", "-c", words], env={**os.environ, **known, **path})
            found[line.split()[0]] = done.returncode
        return found


def guess(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, N)


def sharp(share: float) -> np.ndarray:
    """Predictions of which a share is right."""
    y = rows()[1]
    return np.where(np.arange(N) < share * N, y, 1 - y)


def prepared(ledger: Path) -> tuple[str, str]:
    """Register a holdout with two accounts, and return their tokens."""
    registered(ledger)
    return token_of(ledger, "ada"), token_of(ledger, "ben")


def revoked(ledger: Path) -> None:
    revoke_token(str(ledger), "churn", "ben")


def facts(server: Running, token: str) -> dict[str, Any]:
    answer = server.ask("POST", "/v1/holdouts/churn/status", token)
    assert answer.status_code == 200
    return dict(answer.json())


# The ledger is opened in other processes alone: one that has it open must not see it replaced.


def test_a_copy_is_restored_and_an_older_one_ends_certificates(tmp_path: Path) -> None:
    """Nothing is lost of the ledger as it was copied; later, the same copy is an older one."""
    home = Home(tmp_path)
    ada, ben = elsewhere(prepared, home.ledger)
    with serving(home.ledger, tmp_path) as server:
        LadderHoldout.connect(server.url, ada).submit(sharp(0.6))
        assert set(home.run("ladder-holdout backup").values()) == {0}
        modes = [stat.S_IMODE(one.stat().st_mode) for one in home.copies.iterdir()]
        assert modes == [0o600, 0o600]
        before = facts(server, ada)
    home.ledger.write_bytes(b"nothing" * 1000)
    assert set(home.run("systemctl stop").values()) == {0}
    with serving(home.ledger, tmp_path) as server:
        assert facts(server, ada) == before
        again = LadderHoldout.connect(server.url, ada)
        assert again.submit(sharp(0.8)).improved
        assert again.certificate().missing is None and again.certificate().low > 0.6
        elsewhere(revoked, home.ledger)
        assert server.ask("POST", "/v1/holdouts/churn/status", ben).status_code == 401
    assert home.run("systemctl stop")["ladder-holdout"] == 1  # verify finds it
    with serving(home.ledger, tmp_path) as server:
        assert facts(server, ben)["submissions"] == 0
        holdout = LadderHoldout.connect(server.url, ada)
        assert holdout.submit(sharp(0.9)).improved
        status = holdout.status()
        assert status.score == pytest.approx(0.9) and status.restored
        assert "older copy" in str(holdout.certificate().missing)


# -- what others of the machine may read ----------------------------------------------------


def test_files_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        place = tmp_path / "srv" / "holdouts" / "ledger.db"
        holdout = registered(place)
        token_of(place, "ada")
        holdout.submit(guess(0))
        copy(place, tmp_path / "copy.db")
        beside = {one.name for one in place.parent.iterdir()}
        modes = {
            one: stat.S_IMODE(one.stat().st_mode)
            for one in [place.parent, *place.parent.rglob("*"), tmp_path / "copy.db"]
        }
    finally:
        os.umask(before)
    assert {"ledger.db", "ledger.db-wal", "ledger.db-shm", "vault"} <= beside
    assert {f"{mode:o}" for one, mode in modes.items() if one.is_dir()} == {"700"}
    assert {f"{mode:o}" for one, mode in modes.items() if not one.is_dir()} == {"600"}


def test_a_password_on_the_command_line_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_command, "run", lambda settings: None)
    secret = "postgresql+psycopg://ada:hidden@db.example/team"
    text = "Other users of this machine can read the password"
    done = CliRunner().invoke(app, ["serve", "--ledger", secret])
    assert done.exit_code == 0 and text in done.stderr and "hidden" not in done.output
    for words, known in (
        (["--ledger", "postgresql+psycopg://ada@db.example/team"], None),
        ([], secret),  # the environment is the process's own
    ):
        done = CliRunner().invoke(app, ["serve", *words], env={"LADDERHOLDOUT_LEDGER": known})
        assert done.exit_code == 0 and done.stderr == ""
