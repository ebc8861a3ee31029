"""The files of this checkout, each read and parsed once in a process, for checks of structure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "ladderholdout"
SOURCE = ROOT / "src" / PACKAGE


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, in full; deferred if importing the module does not import it."""

    target: str
    line: int
    deferred: bool
    typing: bool = False
    """Whether it is for the reader of types alone."""
    guarded: bool = False
    """Whether it is inside `with needed(...)`."""

    @property
    def tool(self) -> str:
        return self.target.partition(".")[0]


@cache
def files(folder: str, kind: str = ".py") -> tuple[Path, ...]:
    """Return the files of one kind in a folder of the checkout and below it."""
    return tuple(sorted((ROOT / folder).rglob(f"*{kind}")))


@cache
def pages() -> tuple[Path, ...]:
    """Return the pages of the documentation, and the two at the root."""
    return (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files("docs", ".md"))


@cache
def source(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(text)))


@cache
def imports(text: str, package: tuple[str, ...] = (PACKAGE,)) -> tuple[Import, ...]:
    """Return what a text imports, at its top and inside functions; `package` is what it is in."""
    return tuple(_imports(parsed(text), package, False, False, False))


def _imports(
    node: ast.AST, package: tuple[str, ...], deferred: bool, typing: bool, guarded: bool
) -> Iterator[Import]:
    waiting = [(node, deferred, typing, guarded)]
    while waiting:
        node, deferred, typing, guarded = waiting.pop()
        for target in _targets(node, package):
            yield Import(target, getattr(node, "lineno", 0), deferred, typing, guarded)
        deferred = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guarded = guarded or _names_the_extra(node)
        asks = _asks_for_typing(node)
        for child in ast.iter_child_nodes(node):
            inside = asks and child in node.body  # type: ignore[attr-defined]
            waiting.append((child, deferred or inside, typing or inside, guarded))


def _asks_for_typing(node: ast.AST) -> bool:
    asked = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
    return isinstance(node, ast.If) and ast.unparse(node.test) in asked


def _names_the_extra(node: ast.AST) -> bool:
    match node:
        case ast.With(
            items=[
                ast.withitem(
                    context_expr=ast.Call(func=ast.Name(id="needed") | ast.Attribute(attr="needed"))
                )
            ]
        ):
            return True
    return False


def _targets(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(names=names):
            return [f"{_origin(node, package)}.{alias.name}" for alias in names]
        # importlib.import_module("mlflow") is an import in other clothes.
        case ast.Call(
            func=ast.Name(id=called) | ast.Attribute(attr=called),
            args=[ast.Constant(value=str(name)), *_],
        ) if called in ("import_module", "__import__"):
            return [PACKAGE + name if name.startswith(".") else name]
    return []


def _origin(node: ast.ImportFrom, package: tuple[str, ...]) -> str:
    if node.level == 0:
        return node.module or ""
    up = len(package) + 1 - node.level
    return ".".join((*package[:up], *([node.module] if node.module else [])))
