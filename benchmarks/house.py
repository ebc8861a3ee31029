"""How large the package is, how its modules hang together, and what one call runs through.

    python benchmarks/house.py                            # the checkout that this file is in
    python benchmarks/house.py --src OTHER/src --src src  # a column each: before and after

Prints a table in Markdown. Submissions a second over bare sqlite3 are printed by
`python benchmarks/guard.py commits`, which takes minutes and a machine that does nothing else.

Counted in the text of the package:

- lines of code: lines with a token that is neither a comment nor part of a docstring (a text below
  an attribute counts);
- methods of the seam: methods and properties of the protocol `OpenLadder`, wherever it is;
- forged classes: the classes of `FORGEABLE` that are called or derived from outside `guard` and
  `ledger`, or for which there is a stand-in: a class of which at least three public members, and
  more than half of them, are members of the forged one;
- floors: the most rooms above each other, each importing the next; rooms are the subpackages and
  the modules beside them, without the front; an arrow is a pair of which one imports the other;
- circles: sets of modules, or of subpackages, that import each other, directly or through others.
  Imports inside functions and for types alone count;
- climbs: pairs of modules of which the first imports the second against the order `ROOMS` in the
  `test_rooms.py` of the same checkout; its rooms are the subpackages and the modules beside them;
- private reads between subpackages: expressions `x._name`, where x is not `self`, and imports of
  `_name`, if another one defines the name and the module does not. `thirdparty` is left out: it
  is there to read private names of other libraries;
- lazy imports: statements inside functions that import the package's own modules;
- notes of answers: uses outside `SEAM` of the functions of `NOTES`, by which somebody who shows
  an answer, or submits, notes that; one that is forgotten makes a certificate wrong;
- stored names: assignments to a name of `VAGUE`, also by `for` and `with`, and not by parameters;
- functions: those with a `def`, and the median of their lines of code with the `def` itself;
- short helpers: private functions of fewer than six lines that nothing decorates and that their
  module names once.

Counted in a process of its own for each checkout: public names of the facade are attributes of a
`LadderHoldout` without an underscore (in parentheses those that scikit-learn's protocol demands).
The last rows are traced by sys.setprofile and show four figures: the distinct functions of the
package, their files, the calls of them, and the calls of all Python functions, other libraries'
included. Lambdas and generators are functions, and comprehensions are before Python 3.12. Threads
that a call starts are included. The call that is counted is the second of its kind, each on a
holdout of its own, so imports and what a process keeps are left out. `certificate()` follows two
improvements and finds no stored interval. The guarded grid is
`GridSearchCV(scoring=holdout, cv=holdout.split()).fit` with its refit; `guard(search).fit` is that
of a grid in three inner folds. A fourth candidate: the functions that four candidates call more
often than three do, and how much more often.
"""

from __future__ import annotations

import argparse
import ast
import io
import itertools
import json
import os
import runpy
import statistics
import subprocess
import sys
import threading
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

PACKAGE = "ladderholdout"
# These follow the code: where the rounds are, which modules may call them, what must not be forged,
# and by which names checkouts call the same method (the first that a holdout has is called).
PROTOCOL, ROUNDS = "OpenLadder", {"seen", "submit"}
NOTES = {"settle", "loosen", "note_shown", "note_answer"}
SEAM = ("guard", "remote.ladder")
FORGEABLE = {"Transaction", "Guard", "HoldoutRecord", "LadderRecord"}
AT_HOME = {"guard", "ledger"}
CERTIFICATE = ("certificate",)

VAGUE = ("one", "found", "there", "own", "at", "came")
SKLEARN = {"get_metadata_routing", "set_score_request"}
PUBLIC = {"_asdict", "_fields", "_mapping", "_replace"}  # of named tuples and of rows
TARGETS = {
    "lines of code": "35,000",
    "floors, arrows between rooms": "10, 60",
    "methods of the seam": "14",
    "forged classes": "0",
    "circles of modules, of subpackages": "0, 0",
    "climbs": "0",
    "private reads between subpackages": "0",
    "lazy imports of own modules": "8",
    "notes of answers outside the seam": "0",
    "public names of the facade": "28",
    "`submit` that improves": "100, 25, 130",
    "`submit` that does not": "100, 25, 130",
    "`certificate()`": "115, 20",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


# The text of the package


@dataclass(frozen=True)
class Import:
    """One imported name, and the module it comes from, or which it is."""

    module: str
    name: str
    line: int
    lazy: bool


@dataclass(frozen=True)
class Module:
    """One source file, by its name without that of the package before it."""

    name: str
    text: str
    known: frozenset[str]

    @cached_property
    def room(self) -> str:
        return room_of(self.name)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def all_of(self, kind: Any) -> list[Any]:
        return [node for node in self.nodes if isinstance(node, kind)]

    @cached_property
    def code(self) -> list[int]:
        """The numbers of the lines of code."""
        prose: set[int] = set()
        for node in self.all_of(Documented):
            if ast.get_docstring(node, clean=False) is not None:
                prose |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in NO_CODE:
                lines |= set(range(token.start[0], token.end[0] + 1))
        return sorted(lines - prose)

    def length(self, node: Any) -> int:
        return sum(node.lineno <= line <= node.end_lineno for line in self.code)

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree, lazy=False))

    def _imports(self, node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                package, _, inside = f"{origin}{alias.name}".partition(".")
                module = inside if inside in self.known else inside.rpartition(".")[0]
                if package == PACKAGE:
                    yield Import(module or "__init__", alias.name, node.lineno, lazy)
        lazy = lazy or isinstance(node, Function | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from self._imports(child, lazy)


def room_of(name: str) -> str:
    return name.partition(".")[0]


def modules_in(source: Path) -> list[Module]:
    texts = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source / PACKAGE).with_suffix("").parts
        inside = parts[:-1] if parts[-1] == "__init__" else parts
        texts[".".join(inside) or "__init__"] = path.read_text(encoding="utf-8")
    return [Module(name, text, frozenset(texts)) for name, text in texts.items()]


def circles(graph: dict[str, set[str]]) -> int:
    """Count the sets of nodes that reach each other."""
    reach: dict[str, set[str]] = {}
    for node in graph:
        reach[node], waiting = set(), [node]
        while waiting:
            new = graph.get(waiting.pop(), set()) - reach[node]
            reach[node] |= new
            waiting += new
    mutual = {node: {to for to in reach[node] if node in reach.get(to, ())} for node in graph}
    return len({frozenset(nodes) for nodes in mutual.values() if nodes})


def floors(between: dict[str, set[str]]) -> int:
    """Return the length of the longest way downward, where there is no circle."""
    heights: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in heights:
            heights[room] = 1 + max(map(height, between.get(room, ())), default=0)
        return heights[room]

    return max(map(height, between))


def members(cls: ast.ClassDef) -> set[str]:
    """Return the public methods, properties and annotated fields of a class."""
    names = {node.name for node in cls.body if isinstance(node, Function)}
    names |= {ast.unparse(node.target) for node in cls.body if isinstance(node, ast.AnnAssign)}
    return {name for name in names if not name.startswith("_")}


def forged(modules: list[Module]) -> set[str]:
    real, copied = {}, set()
    for cls in (cls for m in modules if m.room in AT_HOME for cls in m.all_of(ast.ClassDef)):
        if cls.name in FORGEABLE:
            real[cls.name] = members(cls)
    for module in (module for module in modules if module.room not in AT_HOME):
        classes = module.all_of(ast.ClassDef)
        used = [call.func for call in module.all_of(ast.Call)]
        used += [base for cls in classes for base in cls.bases]
        copied |= {ast.unparse(node).split(".")[-1] for node in used} & set(real)
        for public, (name, theirs) in itertools.product(map(members, classes), real.items()):
            if len(public & theirs) > max(2, len(public) / 2):
                copied.add(name)
    return copied


def private_reads(modules: list[Module]) -> list[str]:
    defined: dict[str, set[str]] = {}
    rooms: dict[str, set[str]] = defaultdict(set)
    for m in modules:
        nodes = [*m.all_of(ast.Name), *m.all_of(ast.Attribute)]
        stored = {name_of(node) for node in nodes if isinstance(node.ctx, ast.Store)}
        defined[m.name] = stored | {node.name for node in m.all_of(ast.ClassDef | Function)}
        for name in defined[m.name]:
            rooms[name].add(m.room)
    reads = []
    for m in (module for module in modules if module.room != "thirdparty"):
        outer = [node for node in m.all_of(ast.Attribute) if ast.unparse(node.value) != "self"]
        for name in [*(node.attr for node in outer), *(imported.name for imported in m.imports)]:
            private = name[:1] == "_" != name[1:2] and name not in PUBLIC
            if private and name not in defined[m.name] and rooms[name] - {m.room}:
                reads.append(f"{m.name}: {name}")
    return reads


def name_of(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def notes_of_answers(module: Module) -> int:
    if any(f"{module.name}.".startswith(f"{part}.") for part in SEAM):
        return 0
    imported = {name.name for name in module.imports if name.module.split(".")[-1] in ROUNDS}
    uses = [node.id for node in module.all_of(ast.Name) if node.id in imported]
    attributes = module.all_of(ast.Attribute)
    uses += [node.attr for node in attributes if ast.unparse(node.value) in ROUNDS]
    return sum(name in NOTES for name in uses)


def short_helpers(module: Module) -> int:
    uses = Counter(map(name_of, module.all_of(ast.Name | ast.Attribute)))
    private = [node for node in module.all_of(Function) if node.name[:1] == "_" != node.name[1:2]]
    alone = [node for node in private if uses[node.name] == 1 and not node.decorator_list]
    return sum(module.length(node) < 6 for node in alone)


def counted(source: Path, order: list[str]) -> dict[str, str]:
    """Return the figures of the text."""
    modules = modules_in(source)
    graph = {m.name: {to.module for to in m.imports} - {m.name} for m in modules}
    pairs = [(room_of(name), room_of(to)) for name, targets in graph.items() for to in targets]
    between: dict[str, set[str]] = defaultdict(set)
    for room, other in pairs:
        between[room] |= {other} - {room}
    below = {room: inner - {"__init__"} for room, inner in between.items() if room != "__init__"}
    classes = {cls.name: cls for module in modules for cls in module.all_of(ast.ClassDef)}
    for name in sorted({*FORGEABLE - set(classes), *set(SEAM) - set(graph)}):
        print(f"{source} has no {name}: what is counted of it is 0", file=sys.stderr)
    names = [node for module in modules for node in module.all_of(ast.Name)]
    stored = [node.id for node in names if isinstance(node.ctx, ast.Store)]
    lengths = [m.length(node) for m in modules for node in m.all_of(Function)]
    figures = {
        "lines of code": [sum(len(module.code) for module in modules)],
        "modules": [len(modules)],
        "floors, arrows between rooms": [floors(below), sum(map(len, below.values()))],
        "methods of the seam": [sum(isinstance(n, Function) for n in classes[PROTOCOL].body)],
        "forged classes": [len(forged(modules))],
        "circles of modules, of subpackages": [circles(graph), circles(between)],
        "climbs": [sum(order.index(other) > order.index(room) for room, other in pairs)],
        "private reads between subpackages": [len(private_reads(modules))],
        "lazy imports of own modules": [
            sum(len({name.line for name in m.imports if name.lazy}) for m in modules)
        ],
        "notes of answers outside the seam": [sum(map(notes_of_answers, modules))],
        f"stored names {', '.join(VAGUE)}": [sum(name in VAGUE for name in stored)],
        "functions; median of their lines": [len(lengths), int(statistics.median(lengths))],
        "short helpers": [sum(map(short_helpers, modules))],
    }
    return {what: shown(*parts) for what, parts in figures.items()}


def shown(*figures: int) -> str:
    return ", ".join(f"{figure:,}" for figure in figures)


# What calls run through, in a process that imports the package of one checkout


@dataclass(frozen=True)
class Trace:
    """How often each function of the package was called, and how often any function was."""

    own: Counter[CodeType]
    every: int

    def __sub__(self, other: Trace) -> Trace:
        return Trace(self.own - other.own, self.every - other.every)

    def __str__(self) -> str:
        files = {code.co_filename for code in self.own}
        return shown(len(self.own), len(files), self.own.total(), self.every)


def traced(run: Callable[[], object], folder: str) -> Trace:
    """Run something, and count the calls, and those of functions of a folder."""
    calls: Counter[CodeType] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    calls = Counter({code: n for code, n in calls.items() if code is not see.__code__})
    own = Counter({code: n for code, n in calls.items() if code.co_filename.startswith(folder)})
    return Trace(own, calls.total())


def run_through(folder: str) -> tuple[list[str], dict[str, str]]:
    """Return the order of the rooms, and the figures of calls."""
    import numpy as np
    from sklearn.model_selection import GridSearchCV
    from sklearn.tree import DecisionTreeClassifier

    import ladderholdout

    warnings.simplefilter("ignore")
    package = Path(ladderholdout.__file__).parent
    rng, numbers = np.random.default_rng(0), itertools.count()
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    training_rows, rows, labels = (X[200:], y[200:]), X[:200], y[:200]

    def guesses(share: float) -> Any:
        return np.where(np.arange(200) < 200 * share, labels, 1 - labels)

    def opened(*shares: float) -> Any:
        """Open a holdout of its own, and submit predictions of which these shares are right."""
        ledger, name = f"{folder}/{next(numbers)}.db", "house"
        holdout: Any = ladderholdout.LadderHoldout(
            rows, labels, scoring="accuracy", name=name, ledger=ledger
        )
        for share in shares:
            holdout.submit(guesses(share))
        return holdout

    def submit(share: float) -> Callable[[], object]:
        return partial(opened(0.6, 0.75).submit, guesses(share))

    def certificate(share: float) -> Callable[[], object]:
        holdout = opened(0.6, share)
        name = next(name for name in CERTIFICATE if hasattr(holdout, name))
        return partial(getattr(holdout, name))

    def grid(candidates: int, **settings: Any) -> Any:
        depths = {"max_depth": list(range(1, candidates + 1))}
        return GridSearchCV(DecisionTreeClassifier(random_state=0), depths, **settings)

    def guarded_grid(candidates: int) -> Callable[[], object]:
        holdout = opened()
        search = grid(candidates, scoring=holdout, cv=holdout.split())
        return partial(search.fit, *training_rows)

    def guarded_search(candidates: int) -> Callable[[], object]:
        return partial(opened().guard(grid(candidates, cv=3)).fit, *training_rows)

    def second(make: Callable[[Any], Callable[[], object]], first: float, then: float) -> Trace:
        make(first)()
        return traced(make(then), str(package))

    # In this order: a process that had guarded folds looks for them in all that it submits.
    traces = {
        "`submit` that improves": second(submit, 0.9, 0.95),
        "`submit` that does not": second(submit, 0.45, 0.5),
        "`certificate()`": second(certificate, 0.9, 0.95),
    }
    grids = {size: second(guarded_grid, size, size) for size in (1, 3, 4)}
    searches = {size: second(guarded_search, size, size) for size in (3, 4)}
    traces |= {
        "guarded grid of one candidate": grids[1],
        "guarded grid: a fourth candidate": grids[4] - grids[3],
        "`guard(search).fit` of three candidates": searches[3],
        "`guard(search).fit`: a fourth candidate": searches[4] - searches[3],
    }
    holdout = opened()
    names = {name for name in {*dir(holdout), *vars(holdout)} if name[0] != "_"}
    figures = {"public names of the facade": f"{len(names)} ({len(names & SKLEARN)})"}
    test = next((package.parents[1] / "tests").rglob("test_rooms.py"))
    sys.path.insert(0, str(package.parents[1]))  # for what the test imports of its checkout
    order = list(runpy.run_path(str(test))["ROOMS"])
    return order, figures | {what: str(trace) for what, trace in traces.items()}


def figures_of(source: Path) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, __file__, "--run-through", folder],
            check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"},
        )
    order, figures = json.loads(ran.stdout)
    return {**counted(source, order), **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--src", type=Path, action="append", help="the src of a checkout")
    parser.add_argument("--run-through", metavar="FOLDER", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run_through:
        print(json.dumps(run_through(asked.run_through)))
        return
    sources = asked.src or [Path(__file__).parents[1] / "src"]
    columns = [figures_of(source) for source in sources]
    heads = [source.resolve().parent.name for source in sources]
    lines = [["what", *heads, "target"], ["---"] * (len(heads) + 2)]
    for what in columns[0]:
        lines.append([what, *(column[what] for column in columns), TARGETS.get(what, "")])
    print(*(f"| {' | '.join(line)} |" for line in lines), sep="\n")


if __name__ == "__main__":
    main()
