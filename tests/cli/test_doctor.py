"""Attacks the doctor: faults that it does not see, healthy parts that it finds fault with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ladderholdout import LadderHoldout
from ladderholdout.cli import app
from ladderholdout.guard.health import Finding, ledger_findings
from ladderholdout.integrations.mlflow.service import mlflow_findings, server_finding
from tests.support.commands import CliRunner
from tests.support.holdouts import coins
from tests.support.ledgers import locked, url_of
from tests.support.mlflow_stores import free_port, new_store, program

DOCTOR = "from ladderholdout.cli import app; app()"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    LadderHoldout(*coins(), scoring="accuracy", name="tiny", ledger=path)
    return path


def findings(ledger: Path | str) -> dict[str, Finding]:
    return {one.what: one for one in ledger_findings(url_of(ledger))}


def faults(ledger: Path | str) -> dict[str, str]:
    found = findings(ledger).values()
    return {one.what: f"{one.found} {one.remedy}" for one in found if not one.ok}


def vault_of(ledger: Path) -> Path:
    (path,) = (ledger.parent / "vault").glob("*.vault")
    return path


def test_a_healthy_ledger_with_its_vault_has_no_fault(ledger: Path) -> None:
    assert set(findings(ledger)) == {"ledger", "vault of tiny"}
    assert faults(ledger) == {}
    assert "60 rows" in findings(ledger)["vault of tiny"].found


def test_a_ledger_that_is_not_there_yet_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none.db"
    (found,) = findings(missing).values()
    assert found.ok and "none yet" in found.found
    assert not missing.exists()


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough" * 99])
def test_a_file_that_is_no_ledger_is_a_fault(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.db"
    broken.write_bytes(content)
    broken.chmod(0o600)
    assert set(faults(broken)) == {"ledger"}


def test_a_ledger_that_another_process_holds_is_a_fault(ledger: Path) -> None:
    with locked(ledger):
        assert "locked" in faults(f"sqlite:///{ledger}?timeout=0.1")["ledger"]


def test_a_ledger_that_others_may_read_is_a_fault(ledger: Path) -> None:
    ledger.chmod(0o644)
    assert f"chmod 600 {ledger}" in faults(ledger)["ledger's privacy"]


def test_every_fault_of_a_vault_is_found(ledger: Path) -> None:
    vault, content = vault_of(ledger), vault_of(ledger).read_bytes()
    vault.chmod(0o644)
    assert "open to other users" in faults(ledger)["vault of tiny"]
    vault.chmod(0o600)
    vault.write_bytes(content[:-1])
    assert "not the file that was written" in faults(ledger)["vault of tiny"]
    vault.unlink()
    assert "LadderHoldout(X, y, ...)" in faults(ledger)["vault of tiny"]
    LadderHoldout(*coins(), scoring="accuracy", name="tiny", ledger=ledger)
    assert faults(ledger) == {}


def test_a_holdout_without_a_vault_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    LadderHoldout(*coins(), scoring="accuracy", name="bare", ledger=path, vault=False)
    assert findings(path)["vault of bare"].ok


# -- MLflow -------------------------------------------------------------------------------


def test_a_store_that_is_not_there_yet_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    assert server_finding("server", f"sqlite:///{tmp_path / 'none.db'}").ok
    assert not (tmp_path / "none.db").exists()


@pytest.mark.processes
def test_a_server_that_does_not_answer_is_a_fault_and_its_password_is_not_shown() -> None:
    found = server_finding("server", f"http://ada:secret@127.0.0.1:{free_port()}")
    assert not found.ok
    assert "does not answer" in found.found
    assert "secret" not in repr(found)


def test_a_store_that_is_damaged_is_a_fault(tmp_path: Path) -> None:
    broken = tmp_path / "mlflow.db"
    broken.write_bytes(b"no database at all, but long enough" * 99)
    found = server_finding("server", f"sqlite:///{broken}")
    assert not found.ok
    assert "refused" in found.found


@pytest.mark.processes
def test_both_servers_are_looked_at(tmp_path: Path) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    found = {one.what: one.ok for one in mlflow_findings(new_store(tmp_path / "store"), dead)}
    assert found["tracking server"]
    assert not found["tracking server of the audit"]
    assert found["mlflow"]


@pytest.mark.processes
def test_the_exit_status_says_whether_all_is_well(ledger: Path, tmp_path: Path) -> None:
    words = ["verify", "--installation", "--json", "--ledger", str(ledger)]
    words += ["--tracking-uri", f"sqlite:///{tmp_path / 'none.db'}"]
    well = CliRunner().invoke(app, words)
    assert well.exit_code == 0, well.output
    assert [one["what"] for one in json.loads(well.stdout) if not one["ok"]] == []
    words[-1] = f"http://127.0.0.1:{free_port()}"
    code, shown = program(DOCTOR, *words)
    wrong = [one["what"] for one in json.loads(shown) if not one["ok"]]
    assert (code, wrong) == (1, ["tracking server"])


@pytest.mark.processes
def test_the_command_says_what_to_do(ledger: Path) -> None:
    vault_of(ledger).unlink()
    words = [
        "verify",
        "--installation",
        "--ledger",
        str(ledger),
        "--tracking-uri",
        f"http://127.0.0.1:{free_port()}",
    ]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith("ok     ledger: ")
    assert lines[1].startswith("FAULT  vault of tiny: ")
    assert any(line.startswith("FAULT  tracking server: ") for line in lines)


def test_a_ledger_that_cannot_be_named_is_refused_without_its_password() -> None:
    words = ["verify", "--installation", "--ledger", "mysql://me:hunter2@there/db"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 1
    assert "hunter2" not in result.output
