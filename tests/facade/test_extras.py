"""Attacks the plain installation: every package that it leaves out, hidden in turn."""

from __future__ import annotations

import importlib
import pickle
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import optuna
import pandas as pd
import polars as pl
import pytest

from ladderholdout import LadderHoldout, vault
from ladderholdout.audit import plots, record_of, write_report
from ladderholdout.audit.plots import figures_of
from ladderholdout.cli.files import read_rows
from ladderholdout.errors import LadderHoldoutError, LedgerError, MissingExtra, VaultError
from ladderholdout.extras import EXTRAS, missing, needed
from ladderholdout.identity.hashing import fingerprint, row_hashes
from ladderholdout.integrations.optuna import plots as plots_of_studies
from ladderholdout.integrations.prompts import GuardedGepa
from ladderholdout.pictures import axes_or_new
from ladderholdout.server.bodies import form_in
from ladderholdout.server.running import run
from ladderholdout.server.settings import ServerSettings
from ladderholdout.vault import Rows
from tests.support import tree
from tests.support.ledgers import names

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
# For those who work on the library, not for those who use it.
OURS = {"docs", "lint", "package", "test"}
# By the name of the import, where it is another than the distribution's or comes with another.
DISTRIBUTIONS = {"joblib": "scikit-learn", "markupsafe": "jinja2", "pydantic_core": "pydantic"}
DISTRIBUTIONS |= {
    "sklearn": "scikit-learn",
    "inspect_ai": "inspect-ai",
    "mlflow": "mlflow-skinny",
    "python_multipart": "python-multipart",
}
COINS = np.arange(40.0).reshape(20, 2), np.arange(20) % 2


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let imports of these packages fail as if they were not installed."""
    for package in packages:
        loaded = [name for name in sys.modules if name.startswith(f"{package}.")]
        for name in [package, *loaded]:
            monkeypatch.setitem(sys.modules, name, None)


def anew(monkeypatch: pytest.MonkeyPatch, adapter: str) -> None:
    """Import an adapter as a fresh interpreter does."""
    name = f"ladderholdout.integrations.{adapter}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.import_module(name)


def audited() -> LadderHoldout:
    holdout = LadderHoldout(*COINS, scoring="accuracy", name="coins", ledger="memory")
    holdout.submit(np.zeros(20, dtype=int))
    return holdout


# What needs each package


def an_adapter(name: str) -> Callable[[pytest.MonkeyPatch, Path], object]:
    return lambda patch, folder: anew(patch, name)


def an_adapter_on_torch(name: str) -> Callable[[pytest.MonkeyPatch, Path], object]:
    def run(patch: pytest.MonkeyPatch, folder: Path) -> None:
        # PyTorch lies below and may not be installed here.
        patch.setitem(sys.modules, "torch", MagicMock())
        patch.setitem(sys.modules, "ladderholdout.integrations.torch", MagicMock())
        anew(patch, name)

    return run


def a_report(_: object, folder: Path) -> None:
    write_report(record_of(audited()), folder / "report.html")


def a_server(*_: object) -> None:
    names("postgresql+psycopg://ada@127.0.0.1:1/team")


def the_api(patch: pytest.MonkeyPatch, _: object) -> None:
    patch.delitem(sys.modules, "ladderholdout.server.app", raising=False)
    importlib.import_module("ladderholdout.server.app")


def tools_for_agents(patch: pytest.MonkeyPatch, _: object) -> None:
    patch.delitem(sys.modules, "ladderholdout.cli.agents", raising=False)
    importlib.import_module("ladderholdout.cli.agents")


def a_search_by_gepa(*_: object) -> None:
    guarded = GuardedGepa(audited(), answer=lambda *_: "0", inputs=lambda row: {"input": row})
    guarded.optimize({"prompt": "Answer."}, [])


def an_upload(*_: object) -> None:
    form_in(b"", "multipart/form-data; boundary=a")


def a_csv_file(_: object, folder: Path) -> None:
    (folder / "rows.csv").write_text("a,b\n1,2\n")
    read_rows(folder / "rows.csv", {})


def a_parquet_file(_: object, folder: Path) -> None:
    read_rows(folder / "rows.parquet", {})


NEEDS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch, Path], object]]] = {
    "CatBoost": ("catboost", an_adapter("catboost")),
    "LightGBM": ("lightgbm", an_adapter("lightgbm")),
    "XGBoost": ("xgboost", an_adapter("xgboost")),
    "Keras": ("keras", an_adapter("keras")),
    "Lightning": ("lightning", an_adapter_on_torch("lightning")),
    "skorch": ("skorch", an_adapter_on_torch("skorch")),
    "PyTorch": ("torch", an_adapter("torch")),
    "Lightning without PyTorch": ("torch", an_adapter("lightning")),
    "a report": ("jinja2", a_report),
    "a report, of which a part is missing": ("markupsafe", a_report),
    "the pictures of a report": ("matplotlib", lambda *_: list(figures_of(record_of(audited())))),
    "a picture of an audit": ("matplotlib", lambda *_: plots.scores(audited().owner.audit())),
    "a picture of a plan": ("matplotlib", lambda *_: axes_or_new(None)),
    "a table of an audit": ("pandas", lambda *_: audited().owner.audit().to_frame()),
    "the API of a server": ("fastapi", the_api),
    "an upload to a page": ("python_multipart", an_upload),
    "a server": ("uvicorn", lambda _, folder: run(ServerSettings(str(folder / "ledger.db")))),
    "tools for agents": ("mcp", tools_for_agents),
    "a search by GEPA": ("gepa", a_search_by_gepa),
    "a scorer of Inspect": ("inspect_ai", an_adapter("inspect_ai")),
    "a picture of a study": (
        "matplotlib",
        lambda *_: plots_of_studies.plot_ladder(audited(), optuna.create_study()),
    ),
    "a .csv file": ("pandas", a_csv_file),
    "a .parquet file": ("pyarrow", a_parquet_file),
}


@pytest.mark.parametrize("what", NEEDS)
def test_a_hidden_package_is_named_with_the_extra_that_brings_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, use = NEEDS[what]
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "rows.parquet")
    hide(monkeypatch, package)
    with pytest.raises(MissingExtra, match=said(package)) as caught:
        use(monkeypatch, tmp_path)
    assert caught.value.name == package


def said(package: str) -> str:
    install = re.escape(f"pip install 'ladderholdout[{EXTRAS[package]}]'")
    return f"needs {package}, which is not installed: {install}"


def test_a_ledger_on_a_server_names_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "psycopg")
    with pytest.raises(LedgerError, match="ada@127.*" + said("psycopg")):
        a_server()


def test_a_vault_behind_a_url_names_what_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "fsspec")
    with pytest.raises(VaultError, match=said("fsspec")):
        vault.read("memory://vaults/coins.vault", 64 * "0", 64 * "0")


FRAMES: dict[str, tuple[str, Callable[[], Any]]] = {
    "pandas": ("pandas", lambda: pd.DataFrame(COINS[0], columns=["a", "b"])),
    "polars": ("polars", lambda: pl.DataFrame(COINS[0], schema=["a", "b"])),
    "a column of Arrow": (
        "pyarrow",
        lambda: pd.DataFrame({"a": pd.array(range(20), dtype="int64[pyarrow]")}),
    ),
    "text of Arrow": (
        "pyarrow",
        lambda: pd.DataFrame({"a": pd.array([*"abcdefghijklmnopqrst"], dtype="string[pyarrow]")}),
    ),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_vault_names_what_its_rows_are_made_of(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, frame = FRAMES[kind]
    rows = Rows(frame(), COINS[1], None)
    place, digest = vault.write(tmp_path, "coins", rows)
    known = fingerprint(row_hashes(rows.X))
    hide(monkeypatch, package)
    with pytest.raises(VaultError, match=said(package) + ", or give the rows themselves"):
        vault.read(place, digest, known)


def test_a_frame_of_pandas_own_dtypes_needs_pandas_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = COINS
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        day=pd.date_range("2020", periods=len(X), tz="Europe/Berlin"),
        text=pd.Series(["a", None] * 10, dtype=object),
        string=pd.array(["a", None] * 10, dtype="string[python]"),
        kind=pd.Categorical(["a", None] * 10),
        whole=pd.array([1, None] * 10, dtype="Int64"),
    )
    frame.isna()  # pandas itself loads what it wants of pyarrow
    hide(monkeypatch, "pyarrow")
    place, digest = vault.write(tmp_path, "coins", Rows(frame, y, None))
    found = vault.read(place, digest, fingerprint(row_hashes(frame)))
    pd.testing.assert_frame_equal(found.X, frame)


def test_every_package_of_an_extra_is_hidden_above() -> None:
    elsewhere = {"fsspec", "psycopg", *(package for package, _ in FRAMES.values())}
    assert {package for package, _ in NEEDS.values()} | elsewhere == set(EXTRAS)


# The helper itself


@pytest.mark.parametrize(
    "fault",
    [
        ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow"),
        ModuleNotFoundError("No module named 'keras.new'", name="keras.new"),
        ImportError("cannot import name 'Callback' from 'keras'", name="keras"),
        OSError("libgomp.so.1: cannot open shared object file"),
    ],
)
def test_what_is_installed_and_fails_keeps_its_own_error(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keras", MagicMock())
    with pytest.raises(type(fault)) as caught, needed("Early stopping of Keras"):
        raise fault
    assert caught.value is fault


def test_the_error_is_an_import_error_and_travels_to_other_processes() -> None:
    error = missing("The report", "jinja2")
    assert isinstance(error, ImportError) and isinstance(error, LadderHoldoutError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.args, again.name) == (str(error), error.args, "jinja2")


# What pyproject.toml says


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", one, maxsplit=1)[0].lower() for one in requirements}


PLAIN = distributions(PROJECT["dependencies"])


def test_an_extra_brings_its_package_and_the_plain_installation_does_not() -> None:
    brings = {extra: distributions(stated) for extra, stated in OPTIONAL.items()}
    distributed = {package: DISTRIBUTIONS.get(package, package) for package in EXTRAS}
    assert [one for one, name in distributed.items() if name not in brings[EXTRAS[one]]] == []
    assert [one for one, name in distributed.items() if name in PLAIN] == []


@pytest.mark.parametrize(
    ("extra", "without"), [("all", {"all"}), ("test", {"all", "deep", "inspect"})]
)
def test_an_extra_of_extras_leaves_none_out(extra: str, without: set[str]) -> None:
    (everything,) = [one for one in OPTIONAL[extra] if one.startswith("ladderholdout")]
    named = set(re.findall(r"\w+", everything.partition("[")[2]))
    assert named == set(OPTIONAL) - OURS - without


def test_the_plain_installation_has_the_client_of_mlflow_alone() -> None:
    assert "mlflow-skinny" in PLAIN and "mlflow" not in PLAIN


# What src imports


def third_parties() -> Iterator[SimpleNamespace]:
    known = {*sys.stdlib_module_names, "ladderholdout"}
    for path in tree.files("src"):
        package = ("ladderholdout", *path.relative_to(tree.SOURCE.parent).parts[1:-1])
        for one in tree.imports(tree.source(path), package):
            if one.tool not in known and not one.typing:
                yield SimpleNamespace(
                    package=one.tool, guarded=one.guarded, file=path.name, path=path
                )


def test_every_third_party_is_installed_or_named_where_it_is_missing() -> None:
    # The contracts need pytest, and pytest itself loads the plugin.
    for_pytest = ("testing", "ladderholdout_pytest.py")
    found = [one for one in third_parties() if not set(for_pytest) & set(one.path.parts)]
    assert set(EXTRAS) <= {one.package for one in found}
    assert [
        f"{one.file} imports {one.package}"
        for one in found
        if not (one.guarded and one.package in EXTRAS)
        and DISTRIBUTIONS.get(one.package, one.package) not in PLAIN
    ] == []
    assert not any(one.guarded for one in found if one.package not in EXTRAS)
