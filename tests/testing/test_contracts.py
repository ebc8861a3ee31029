"""Attacks every ledger and every mechanism through its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladderholdout.mechanisms import MECHANISMS, GateLadder, Mechanism, RankLadder
from ladderholdout.testing import MechanismContract
from tests.support.contract_ledgers import LedgerContract
from tests.support.holdouts import EVERY

# Not in EVERY: a rule for leaderboards has to be told who submits, and a gate shows no scores.
ALL = (*EVERY, RankLadder(step=0.01, places=3), GateLadder(alpha=0.5))


@pytest.mark.quick
class TestMemory(LedgerContract):
    processes = False

    @pytest.fixture
    def url(self) -> str:
        return "memory"


@pytest.mark.processes
class TestSqlite(LedgerContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return str(tmp_path / "ledger.db")


@pytest.mark.processes
class TestPostgres(LedgerContract):
    @pytest.fixture
    def url(self, database: str) -> str:
        return database


@pytest.mark.quick
class TestMechanisms(MechanismContract):
    @pytest.fixture(params=ALL, ids=lambda one: one.name)
    def mechanism(self, request: pytest.FixtureRequest) -> Mechanism:
        found: Mechanism = request.param
        return found


def test_every_mechanism_without_an_inner_score_keeps_the_contract() -> None:
    kept = {type(mechanism) for mechanism in ALL}
    assert {one for one in MECHANISMS.values() if not one.needs_inner_score} == kept
