"""Attacks the order of the rooms: who may import whom, and who may see a raw score."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import ladderholdout
from ladderholdout.extras import EXTRAS
from tests.support import tree
from tests.support.tree import Import

PACKAGE = "ladderholdout"
FRONT = "__init__"

# A module imports from its own room and from those before it.
ROOMS = (
    "errors",
    "arguments",
    "process",
    "extras",
    "pictures",
    "identity",
    "metrics",
    "limits",
    "mechanisms",
    "feedback",
    "estimates",
    "certificates",
    "planning",
    "ledger",
    "vault",
    "thirdparty",
    "guard",
    "leaderboard",
    "remote",
    "audit",
    "integrations",
    "owner",
    "holdout",
    "lab",
    "bundles",
    "server",
    "cli",
    "__main__",
    "testing",
    FRONT,
)

# Users name each of their rules, analysts and facts; the pages show all names of these fronts.
WIDE = {FRONT, "audit", "lab", "mechanisms"}
LAB_ROOMS = {"cli", "lab"}
SQL = {"psycopg", "sqlalchemy", "sqlite3"}
SQL_ROOMS = {"ledger"}

TOOLS = {
    "catboost",
    "inspect_ai",
    "keras",
    "lightgbm",
    "lightning",
    "matplotlib",
    "mlflow",
    "optuna",
    "skorch",
    "torch",
    "xgboost",
}
# PyTorch lies under two other tools, whose adapters build on its own; the plots are everybody's.
TORCH_ADAPTERS = {"integrations.lightning", "integrations.skorch", "integrations.torch"}
# The one module that reads private names of tools, inside functions.
PRIVATE = {("thirdparty", "mlflow"), ("thirdparty", "optuna")}
PLOT_ROOMS = {"pictures"}

# What people begin with, and what its methods return: to name a type, nobody looks for its module.
BEGIN = {
    "InvalidArgument",
    "LadderHoldout",
    "LadderHoldoutError",
    "LadderHoldoutWarning",
    "LadderStopping",
    "Metric",
    "SearchStopped",
    "__version__",
    "errors",
    "mechanisms",
    "metrics",
}
RETURNED = {
    "Batch",
    "Comparison",
    "Decision",
    "Estimate",
    "Finalist",
    "Health",
    "Release",
    "ScoreCertificate",
    "Status",
    "Submission",
    "Submissions",
    "Withdrawn",
}
# These import scikit-learn or MLflow, and are found in the modules that do; and what is Python's.
LATER = {"Audit", "GuardedSearch", "GuardedSplit", "Tracking", "Self", "Any", "None"}
# Exactly these: whatever a new one does belongs to one of them, to an accessor, or replaces one.
FACADE = {
    "open",
    "connect",
    "name",
    "metric",
    "metrics",
    "rules",
    "ledger",
    "submit",
    "gate",
    "batch",
    "finalists",
    "status",
    "history",
    "certificate",
    "compare",
    "price",
    "reserve_certificate",
    "reveal",
    "estimate",
    "health",
    "replenish",
    "guard",
    "split",
    "select",
    "track",
    "optuna",
    "owner",
    "set_score_request",
    "get_metadata_routing",
}


@dataclass(frozen=True, slots=True)
class Module:
    """One source file under its dotted name, without "ladderholdout." before it."""

    name: str
    text: str
    is_package: bool = False

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    @property
    def imports(self) -> tuple[Import, ...]:
        inside = [] if self.name == FRONT else self.name.split(".")
        return tree.imports(self.text, (PACKAGE, *inside[: len(inside) - (not self.is_package)]))

    def says(self, line: int, complaint: str) -> str:
        return f"{self.name}, line {line}: {complaint}"


def room_of(dotted: str) -> str:
    """Give the part after the package: "ladderholdout.ledger.store" is in "ledger"."""
    return [*dotted.split("."), FRONT][1]


def room_that(imported: Import) -> str | None:
    """Return the room that an import leads to; one of the package's front is of no room else."""
    if imported.tool != PACKAGE:
        return None
    room = room_of(imported.target)
    return room if room in ROOMS else FRONT


def read(path: Path) -> Module:
    inside = path.relative_to(tree.SOURCE).with_suffix("")
    is_package = inside.name == FRONT
    parts = inside.parts[:-1] if is_package else inside.parts
    return Module(".".join(parts) or FRONT, tree.source(path), is_package)


@cache
def modules() -> tuple[Module, ...]:
    return tuple(map(read, tree.files("src/ladderholdout")))


# The rules: each names what breaks it


def without_a_room(module: Module) -> list[str]:
    known = module.room in ROOMS
    return [] if known else [module.says(1, f"there is no room {module.room!r}")]


def downward_when_imported(module: Module) -> list[str]:
    return [
        module.says(found.line, f"{found.target} lies below {module.room}")
        for found in _downward(module)
        if not found.deferred
    ]


def downward_when_called(module: Module) -> list[str]:
    return [
        module.says(found.line, f"{module.room} may not open {found.target}")
        for found in _downward(module)
        if found.deferred
    ]


def _downward(module: Module) -> list[Import]:
    if module.room not in ROOMS:
        return []
    below = ROOMS[ROOMS.index(module.room) + 1 :]
    return [found for found in module.imports if room_that(found) in below]


def handing_on(module: Module) -> list[str]:
    """A folder's front has the dozen names that its users need, or nothing."""
    if not module.is_package or module.name in WIDE:
        return []
    names = [found for found in module.imports if found.tool == PACKAGE and not found.deferred]
    return [module.says(1, f"a front hands on {len(names)} names")] if len(names) > 12 else []


def lab_outside_the_cli(module: Module) -> list[str]:
    """What a user of the guard does not need is imported by the commands that play it alone."""
    return [
        module.says(found.line, f"{module.room} may not import {found.target}")
        for found in module.imports
        if room_that(found) == "lab" and module.room not in LAB_ROOMS
    ]


def sql_outside_the_ledger(module: Module) -> list[str]:
    return [
        module.says(found.line, f"only {', '.join(SQL_ROOMS)} may import {found.tool}")
        for found in module.imports
        if found.tool in SQL and module.room not in SQL_ROOMS
    ]


def tools_outside_their_integration(module: Module) -> list[str]:
    return [
        module.says(found.line, f"{found.tool} may not be imported here")
        for found in module.imports
        if found.tool in TOOLS and not _may_import(module, found)
    ]


def _may_import(module: Module, found: Import) -> bool:
    if (module.name, found.tool) in PRIVATE:
        return found.deferred
    if found.tool == "matplotlib":
        return module.room in PLOT_ROOMS and found.deferred
    adapters = TORCH_ADAPTERS if found.tool == "torch" else {f"integrations.{found.tool}"}
    return any(f"{module.name}.".startswith(f"{adapter}.") for adapter in adapters)


def adapters_imported_early(module: Module) -> list[str]:
    """Importing the adapter of a tool imports the tool, so it waits for a call as well."""
    return [
        module.says(found.line, f"{found.target} may only be imported inside a function")
        for found in module.imports
        if (adapter := _adapter(found.target))
        and not found.deferred
        and not f"{module.name}.".startswith(f"{adapter}.")
        and not (adapter == "integrations.torch" and module.name in TORCH_ADAPTERS)
    ]


def _adapter(target: str) -> str | None:
    parts = target.split(".")
    known = parts[:2] == [PACKAGE, "integrations"] and TOOLS.intersection(parts[2:3])
    return ".".join(parts[1:3]) if known else None


def too_long(module: Module) -> list[str]:
    # The facade is one class, and most of it is what it says of each of its methods.
    most = 1500 if module.name == "holdout" else 800  # with an example for each method
    lines = len(module.text.splitlines())
    return [] if lines < most else [module.says(lines, f"a module stays below {most} lines")]


# The rules hold


def broken(rule: Callable[[Module], list[str]]) -> str:
    """All complaints, one a line: pytest shows the whole of a text that is not empty."""
    return "\n".join(complaint for module in modules() for complaint in rule(module))


def test_the_modules_are_found() -> None:
    assert {FRONT, "errors", "metrics", "ledger"} <= {module.name for module in modules()}


def test_every_module_stands_in_a_room() -> None:
    assert broken(without_a_room) == ""


def test_modules_import_upward_only() -> None:
    assert broken(downward_when_imported) == ""


def test_only_the_facade_opens_rooms_below_and_only_when_called() -> None:
    assert broken(downward_when_called) == ""


def test_no_modules_import_each_other_not_even_within_functions_or_for_types() -> None:
    circles = runpy.run_path(str(tree.ROOT / "benchmarks" / "house.py"))["circles"]
    names = {module.name for module in modules()}
    imports = {
        module.name: {leads_to(each, names) for each in module.imports if each.tool == PACKAGE}
        - {module.name}
        for module in modules()
    }
    assert len(imports) > 200 and sum(map(len, imports.values())) > 1000
    assert circles(imports) == 0
    errors_above = imports | {"errors": {"guard.submit"}}
    assert circles(errors_above) == 1


def leads_to(imported: Import, modules: set[str]) -> str:
    """Return the module that an import names, or of which it names something."""
    inside = imported.target.partition(".")[2]
    return inside if inside in modules else inside.rpartition(".")[0] or FRONT


def test_fronts_are_narrow() -> None:
    floors = [path for path in (tree.SOURCE / "guard").iterdir() if (path / "__init__.py").exists()]
    assert floors == []
    assert broken(handing_on) == ""


def test_only_the_cli_imports_the_lab() -> None:
    assert broken(lab_outside_the_cli) == ""


def test_only_the_ledger_speaks_sql() -> None:
    assert broken(sql_outside_the_ledger) == ""


def test_a_tool_is_imported_by_its_integration_only() -> None:
    assert broken(tools_outside_their_integration) == ""


def test_the_adapter_of_a_tool_is_imported_inside_functions_only() -> None:
    assert broken(adapters_imported_early) == ""


def test_modules_stay_short() -> None:
    assert broken(too_long) == ""


@pytest.mark.processes
def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = ["alembic", "mlflow", "optuna", "rich", "sklearn", "typer", *EXTRAS]
    # SciPy imports these when they are named first, after an `import scipy`.
    heavy += ["scipy.optimize", "scipy.sparse", "scipy.special"]
    program = f"import sys, {PACKAGE}; print(*sorted(set({heavy}) & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert loaded.stdout.split() == []


def test_public_names_are_pinned() -> None:
    assert set(ladderholdout.__all__) == BEGIN | RETURNED
    assert len(BEGIN) <= 12
    assert [name for name in ladderholdout.__all__ if not hasattr(ladderholdout, name)] == []


def test_the_facade_is_pinned_and_names_what_it_returns() -> None:
    facade = ladderholdout.LadderHoldout
    public = {name for name in dir(facade) if not name.startswith("_")}
    assert public == FACADE and len(FACADE) <= 29
    returns = " ".join(
        str(function.__annotations__["return"])
        for owner in (facade, ladderholdout.owner.Owner)
        for name in dir(owner)
        if not name.startswith("_")
        and inspect.isfunction(function := inspect.getattr_static(owner, name, None))
    )
    for name in re.findall(r"[A-Z]\w+", returns):
        assert name in RETURNED | BEGIN | LATER


# The rules bite


BITES: list[tuple[Callable[[Module], list[str]], str, str]] = [
    (without_a_room, "helpers", ""),
    (without_a_room, "utils.text", ""),
    (downward_when_imported, "errors", "from ladderholdout.metrics import Metric"),
    (downward_when_imported, "errors", "import ladderholdout.metrics"),
    (downward_when_imported, "mechanisms.ladder", "from ..ledger.store import Store"),
    (downward_when_imported, "metrics", "from . import mechanisms"),
    (downward_when_imported, "metrics", "from .mechanisms.base import Mechanism"),
    (downward_when_imported, "mechanisms.base", "from ladderholdout import holdout as h"),
    (downward_when_imported, "guard", "from ladderholdout.integrations import sklearn"),
    (downward_when_imported, "holdout", "class Facade:\n    import ladderholdout.server"),
    (downward_when_imported, "ledger.store", "try:\n    from ..vault import Vault\nfinally: 0"),
    (downward_when_imported, "vault", "import importlib as i\ni.import_module('.cli', 'x')"),
    (downward_when_imported, "cli", "from ladderholdout import LadderHoldout"),
    (downward_when_imported, "cli", "import ladderholdout"),
    (downward_when_imported, "cli", "from ladderholdout import *"),
    (downward_when_imported, "vault", "if TYPE_CHECKING:\n    0\nelse:\n    from . import cli"),
    (downward_when_called, "ledger.store", "def f():\n    from ladderholdout import audit"),
    (downward_when_called, "holdout", "def f():\n    from ladderholdout import cli"),
    (downward_when_called, "guard", "async def f():\n    from .leaderboard import Board"),
    (downward_when_called, "vault", "f = lambda: __import__('ladderholdout.holdout')"),
    (downward_when_called, "vault", "if TYPE_CHECKING:\n    from .holdout import Release"),
    (
        handing_on,
        "integrations",
        f"from .sklearn import {', '.join(f'name_{number}' for number in range(13))}",
    ),
    (lab_outside_the_cli, "audit.report", "from ladderholdout.lab import simulate"),
    (lab_outside_the_cli, "audit.report", "def f():\n    from ..lab import bounds"),
    (sql_outside_the_ledger, "holdout", "import sqlite3"),
    (sql_outside_the_ledger, "vault", "from psycopg import Connection"),
    (sql_outside_the_ledger, "cli", "def made():\n    from sqlalchemy import select"),
    (sql_outside_the_ledger, "cli", "if TYPE_CHECKING:\n    import sqlalchemy.engine"),
    (tools_outside_their_integration, "holdout", "import optuna"),
    (tools_outside_their_integration, "holdout", "def f():\n    import optuna"),
    (tools_outside_their_integration, "audit.report", "def f():\n    from mlflow import log"),
    (tools_outside_their_integration, "integrations.keras", "import lightgbm"),
    (tools_outside_their_integration, "integrations.optuna_extras", "import optuna"),
    (tools_outside_their_integration, "integrations.keras", "import torch"),
    (tools_outside_their_integration, "integrations", "import xgboost"),
    (tools_outside_their_integration, "pictures", "import matplotlib.pyplot as plt"),
    (tools_outside_their_integration, "lab", "def f():\n    import matplotlib.pyplot as plt"),
    (tools_outside_their_integration, "cli", "def f():\n    import matplotlib"),
    (tools_outside_their_integration, FRONT, "import mlflow"),
    (adapters_imported_early, "integrations.keras", "from .torch import ladder_stopping"),
    (adapters_imported_early, "integrations.lightning", "from . import keras"),
    (adapters_imported_early, "audit.report", "from ladderholdout.integrations import mlflow"),
    (adapters_imported_early, "cli", "from .integrations.optuna import objective"),
    (adapters_imported_early, "integrations", "from . import optuna"),
    (adapters_imported_early, FRONT, "import ladderholdout.integrations.keras"),
    (too_long, "errors", "\n" * 800),
]


def test_the_rules_bite() -> None:
    failures = []
    for rule, name, text in BITES:
        complaints = rule(Module(name, text, is_package=name in {FRONT, "integrations"}))
        if len(complaints) != 1 or not complaints[0].startswith(f"{name}, line "):
            failures.append((rule.__name__, name, text, complaints))
    assert failures == []


ALLOWED = [
    (FRONT, "from .holdout import LadderHoldout\nfrom ladderholdout import errors"),
    ("holdout", "from . import errors\nfrom .mechanisms.base import Mechanism"),
    ("holdout", "def split():\n    from .integrations.sklearn import GuardedSplit"),
    ("holdout", "def audit():\n    from ladderholdout import audit"),
    ("guard.step", "def step(losses):\n    raw_risk = losses.mean()"),
    ("holdout", "if TYPE_CHECKING:\n    from .integrations.optuna import Objective"),
    ("cli.planning", "from ladderholdout.lab import ANALYSTS"),
    ("ledger.store", "import sqlalchemy as sa\nfrom .tables import holdouts"),
    ("integrations.optuna", "import optuna\nfrom ..guard.open_ladder import OpenLadder"),
    ("integrations.mlflow.client", "import mlflow\nfrom . import names"),
    ("integrations.skorch", "import skorch\nimport torch"),
    ("integrations.skorch", "import skorch\nfrom .torch import untouched"),
    ("pictures", "def draw():\n    import matplotlib.pyplot as plt"),
    ("audit.report", "def f(rows):\n    return rows['raw_risk']"),
    ("feedback", '"""Never raw_risk."""\n# nor raw_risk\nraw_risks = 1'),
    ("errors", "\n" * 799),
]


def test_no_rule_bites_what_is_allowed() -> None:
    rules = (
        without_a_room,
        downward_when_imported,
        downward_when_called,
        lab_outside_the_cli,
        sql_outside_the_ledger,
        tools_outside_their_integration,
        adapters_imported_early,
        too_long,
    )
    allowed = [Module(name, text, is_package=name == FRONT) for name, text in ALLOWED]
    assert [bitten for module in allowed for rule in rules for bitten in rule(module)] == []
