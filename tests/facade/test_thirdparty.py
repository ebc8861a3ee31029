"""Attacks what the library relies on in others: names that are gone, and names read elsewhere."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import mlflow  # noqa: F401  # here, for what it asks the system on import starts a process
import pytest

from ladderholdout import thirdparty
from ladderholdout.thirdparty import RELIANCES, Reliance
from tests.support import tree

# Reading frames, in whatever way. Tracebacks are read where exceptions lose the guard's frames.
FRAMES = {"_getframe", "_current_frames", "currentframe", "f_back", "f_code", "f_globals"}
FRAMES |= {"f_locals", "f_lineno", "co_qualname", "getinnerframes", "getouterframes", "tb_frame"}
# A warning names the user's line, which is found by the names of the modules in between.
READERS = {
    "thirdparty.py": FRAMES,
    "guard/containment.py": {"f_code", "co_qualname", "tb_frame"},
    "errors.py": {"_getframe", "f_back", "f_globals"},
}
# Documented, with an underscore so that it meets no column's name.
NAMED_TUPLES = {"_asdict", "_fields", "_make", "_mapping", "_replace"}


# The names are there


def installed(one: Reliance) -> ModuleType | None:
    """The module of a name; None if nobody has it here."""
    name = one.module.rstrip(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as fault:
        missing = fault.name or ""
    # The library is not there, or this version has no such module and none is needed.
    assert missing == name.partition(".")[0] or not one.always, f"no {missing}"
    return None


def found(module: ModuleType, name: str) -> Any:
    """A function's code, or whatever else has a qualified name."""
    value: Any = module
    for part in name.split("."):
        if part == "<locals>":
            continue
        if isinstance(value, FunctionType | CodeType):
            value = inner(value, part)
        elif isinstance(value, type) and part not in {n for c in value.__mro__ for n in vars(c)}:
            assert part in stored(value), f"no method of {value} sets {part}"
            return part
        else:
            value = getattr(value, part)
    return value


def inner(function: FunctionType | CodeType, name: str) -> CodeType:
    """The code of a function within a function; comprehensions lie in one another."""
    todo = [function if isinstance(function, CodeType) else unwrapped(function).__code__]
    while todo:
        code = todo.pop()
        parts = [one for one in code.co_consts if isinstance(one, CodeType)]
        for part in parts:
            if part.co_name == name:
                return part
        todo += parts
    raise AssertionError(f"no {name} in {function}")


def stored(owner: type) -> set[str]:
    """All names that the methods of a class use: attributes of its objects among them."""
    methods = (one for above in owner.__mro__ for one in vars(above).values())
    plain = (unwrapped(one) for one in methods if isinstance(one, FunctionType))
    return {name for one in plain for name in one.__code__.co_names}


# MLflow's store uses what SQLAlchemy 2.1 has deprecated.
@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")
def test_every_name_is_in_the_installed_version() -> None:
    failures, libraries = [], set()
    for one in RELIANCES:
        try:
            if look_up(one):
                libraries.add(one.library)
        except (AssertionError, AttributeError) as fault:
            failures.append(f"{one.module}:{one.name}: {fault!r}")
    assert failures == []
    assert libraries >= {"mlflow-skinny", "optuna", "scikit-learn"}


def look_up(one: Reliance) -> bool:
    """Return whether the library is installed; fail if it is and lacks the name."""
    module = installed(one)
    if module is None:
        return False
    if not one.name:
        assert not one.variables
        return True
    value = found(module, one.name)
    if one.variables:
        code = value if isinstance(value, CodeType) else unwrapped(value).__code__
        names = code.co_varnames + code.co_cellvars + code.co_freevars
        assert set(one.variables) <= set(names)
        assert one.place == (module.__name__, code.co_qualname)
    return True


def unwrapped(function: Any) -> FunctionType:
    """The function whose frame is seen: decorators have their own."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    assert isinstance(function, FunctionType)
    return function


@pytest.mark.parametrize("name", ["Pipeline.fitted", "Pipeline._no_such_attribute", "no_function"])
def test_a_name_that_is_gone_is_found_out(name: str) -> None:
    gone = Reliance("scikit-learn", "sklearn.pipeline", name, "")
    with pytest.raises((AssertionError, AttributeError)):
        look_up(gone)


def test_a_variable_that_is_gone_is_found_out() -> None:
    gone = Reliance("scikit-learn", "sklearn.pipeline", "Pipeline.fit", "", ("rows",))
    with pytest.raises(AssertionError):
        look_up(gone)


def test_the_table_holds_every_name_of_the_module_once() -> None:
    stated = [one for one in vars(thirdparty).values() if isinstance(one, Reliance)]
    assert sorted(map(repr, stated)) == sorted(map(repr, RELIANCES))
    assert len(set(RELIANCES)) == len(RELIANCES)


def test_each_library_of_the_table_has_its_tested_versions() -> None:
    assert {one.library for one in RELIANCES} == set(thirdparty.TESTED)


# Nothing else reads any


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLES


@cache
def own_names() -> set[str]:
    """All names that the modules of this library define or set."""
    names: set[str] = set()
    for path in tree.files("src/ladderholdout"):
        for node in tree.nodes(tree.source(path)):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    names.add(name)
                case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name("self")):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    names.add(name)
    return names


def foreign(text: str) -> Iterator[str]:
    """What a module reads of frames and of the private names of others."""
    for node in tree.nodes(text):
        match node:
            case ast.Attribute(attr=name) if name in FRAMES:
                yield name
            case ast.Attribute(attr=name, value=value) if private(name) and is_foreign(name, value):
                yield name
            case ast.Call(func=ast.Name("getattr" | "hasattr" | "setattr"), args=[_, name, *_]):
                if (
                    isinstance(name, ast.Constant)
                    and private(name.value)
                    and name.value not in own_names()
                ):
                    yield name.value
            case ast.ImportFrom(module=str(module), names=names) if module != "__future__":
                parts = [*module.split("."), *(one.name for one in names)]
                yield from filter(private, parts)
            case ast.Import(names=names):
                yield from (part for one in names for part in one.name.split(".") if private(part))


def is_foreign(name: str, value: ast.expr) -> bool:
    # An own name on an object of an own kind; `net` and `trial` are what adapters are handed.
    strangers = {"net", "trial", "study", "client", "search", "estimator", "model", "booster"}
    last = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
    return name not in own_names() or last in strangers


def test_no_other_module_reads_frames_or_private_names_of_others() -> None:
    failures = {}
    for path in tree.files("src/ladderholdout"):
        name = path.relative_to(tree.SOURCE).as_posix()
        read = set(foreign(tree.source(path))) - READERS.get(name, set())
        if read and name != "thirdparty.py":
            failures[name] = read
    assert failures == {}


@pytest.mark.parametrize(
    "text",
    [
        "import sys\nsys._getframe(1)",
        "frame.f_locals['self']",
        "inspect.currentframe()",
        "trial.study._storage",
        "net._modules",
        "getattr(estimator, '_in_fit', False)",
        "from sklearn.metrics._scorer import _MultimetricScorer",
        "from mlflow.tracking.context.registry import _run_context_provider_registry as one",
        "import sklearn.utils._tags",
    ],
)
def test_reading_one_is_found_out(text: str) -> None:
    assert list(foreign(text))


def test_it_reads_nothing_that_is_documented() -> None:
    assert not list(foreign("row._asdict()\nself._here.best\nfrom sklearn.base import clone"))


# Reading


def test_variables_are_read_by_name_alone() -> None:
    def here(of: int) -> thirdparty.Frame:
        return thirdparty.caller(0)

    frame = here(3)
    assert (frame.local("of"), frame.local("self"), frame.name) == (3, None, "here")
    assert frame.place[1].endswith("<locals>.here")
    assert not (frame.is_fit or frame.is_tool or frame.library == "sklearn")


def test_the_module_imports_the_standard_library_alone() -> None:
    body = tree.parsed(tree.source(Path(thirdparty.__file__))).body
    imported = [node.module for node in body if isinstance(node, ast.ImportFrom)]
    for node in body:
        imported += [one.name for one in node.names] if isinstance(node, ast.Import) else []
    assert {str(name).partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)
