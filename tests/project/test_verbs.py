"""Attacks the record from its own folder alone: other tests know no format of a ledger."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import tree
from tests.support.ledgers import tables

# Tests of the ledger's internals, and the verbs by which all others look behind its back.
KNOW = ("ledger", "support")
# Its samples are of what the package must not hold.
SAMPLES = "project/test_rooms.py"
# Word by word, for Optuna and MLflow have tables of their own.
WORDS = "SELECT|UPDATE|DELETE|INSERT|DROP|ALTER|CREATE|PRAGMA"
VERB = re.compile(rf"^\s*(?i:{WORDS})\b|\b({WORDS})\b")
OF_A_LEDGER = re.compile(rf"\b(FROM|INTO|UPDATE|TABLE|ON|JOIN)\s+({'|'.join(tables())})\b", re.I)
pytestmark = pytest.mark.quick


def texts(text: str) -> Iterator[str]:
    """Yield the texts of a program; what a statement is filled with is an ellipsis."""
    for node in tree.nodes(text):
        if isinstance(node, ast.JoinedStr):
            parts = [
                part.value if isinstance(part, ast.Constant) else "..." for part in node.values
            ]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def of_the_format(text: str) -> list[str]:
    """Return what a test knows of the ledger's format: imports and statements on its tables."""
    imported = [
        one.target
        for one in tree.imports(text)
        if one.target.startswith("ladderholdout.ledger.") or one.target == "ladderholdout.ledger"
    ]
    statements = [one for one in texts(text) if VERB.search(one) and OF_A_LEDGER.search(one)]
    return imported + statements


@pytest.mark.parametrize(
    "text",
    [
        "from ladderholdout.ledger import Ledger",
        "import ladderholdout.ledger.fold",
        "from ladderholdout import ledger",
        "def f():\n    from ladderholdout.ledger.log import Transaction",
        "execute('UPDATE log SET x = 1')",
        "execute(f'DELETE FROM piece WHERE kind = {kind}')",
        "execute('select count(*) from snapshot')",
        "execute(f'INSERT INTO piece VALUES (1, {name})')",
        "execute('CREATE TRIGGER full BEFORE INSERT ON log BEGIN SELECT 1; END')",
    ],
)
def test_what_would_be_found(text: str) -> None:
    assert of_the_format(text) != []


def test_other_words_and_other_tables_are_none() -> None:
    for text in (
        "from tests.support.ledgers import tamper",
        "'views and submissions are selected from holdouts that others update'",
        "execute('UPDATE trial_heartbeats SET heartbeat = 1')",
    ):
        assert of_the_format(text) == []


def test_no_test_but_those_of_the_ledger_knows_its_format() -> None:
    tests = tree.ROOT / "tests"
    found: dict[Path, list[str]] = {}
    for path in tree.files("tests"):
        place = path.relative_to(tests)
        if (
            place.parts[0] in KNOW
            or place.as_posix() == SAMPLES
            or place.name == Path(__file__).name
        ):
            continue
        if known := of_the_format(tree.source(path)):
            found[place] = known
    assert found == {}
