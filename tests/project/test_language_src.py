"""Attacks the words of the code: docstrings, messages, command help and comments in plain English.

The words of the field are in docs/promises.md. The list below holds words that this project once
used in a sense of its own, so that a reader had to translate them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from ladderholdout.cli import app
from tests.support import tree

# Each with the plain words to take instead.
DIALECT = {
    r"\b(said|says|saying|aloud)\b": "states, lists, names, returns",
    r"^\s*Say\b|\bsay (--|that|which|why|what|so)\b": "Return, State, pass --option",
    r"\b(told|tells?|telling)\b": "received, shows, returns whether, gives",
    r"\b(stands?|stood|withstand\w*)\b": "is, remains, represents",
    r"\bstanding (score|idea|risk|model)\b": "released score, incumbent",
    r"\b(the|a|an|each|every|all|more|few|counted|no|of|its) looks?\b": "query, submission",
    r"\blook(s|ed|ing)? (at|after)\b": "query, inspect, manage",
    r"\b(house|rooms?|floors?)\b": "package, layer, space",
    r"\b(speaks?|spoke|spoken)\b": "uses, is evidence for",
    r"\b(flatter\w*|luck\w*|dear(er|est)?)\b": "too high by chance, chance, costs more",
    r"\b(way out|without a word|a word about|for good|at hand|born)\b": "leak, permanently",
    r"\bguides? (alone|says)\b": "inner scores",
}
ANY = re.compile("|".join(f"(?:{one})" for one in DIALECT), re.IGNORECASE | re.MULTILINE)
# Quotations, code and names of others: none of these words is ours there.
QUOTED = re.compile(r"``.*?``|`[^`]*`|>>> .*|\.\.\. .*|\"[^\"]*\"|ask-and-tell", re.IGNORECASE)


def files() -> list[Path]:
    return [
        *tree.files("src"),
        *(file for file in tree.files("examples") if file.parent.name == "examples"),
        *tree.files("src", ".html"),
    ]


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield what a person may read of a module: docstrings, and texts of several words."""
    for node in tree.nodes(source):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, of a text that can have a word of the list in one: tokens cost most."""
    after = (part for line in source.splitlines() for part in line.split("#")[1:])
    if not any(map(ANY.search, after)):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def texts(file: Path) -> Iterator[tuple[int, str]]:
    source = tree.source(file)
    if file.suffix == ".html":
        yield 1, re.sub(r"<[^>]*>|\{[{%#].*?[}%#]\}", "", source, flags=re.DOTALL)
        return
    yield from comments(source)
    yield from strings(source)


def found_in(text: str) -> list[str]:
    """Return the words of the dialect in a text, each with what to write instead."""
    plain = QUOTED.sub("", text)
    if not ANY.search(plain):
        return []
    return [
        f"{match.group()!r}: {instead}"
        for pattern, instead in DIALECT.items()
        for match in re.finditer(pattern, plain, re.IGNORECASE | re.MULTILINE)
    ]


def test_no_word_of_the_dialect() -> None:
    assert len(files()) > 200
    wrong = [
        f"{file.relative_to(tree.ROOT)}, line {line}: {one}"
        for file in files()
        for line, text in texts(file)
        for one in found_in(text)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_help_of_the_commands_is_plain() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        parts = [command.help, *(getattr(one, "help", None) for one in command.params)]
        wrong = [one for part in parts if part for one in found_in(part)]
        assert not wrong, (name, wrong)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("What the analyst is told about the holdout.", 1),
        ("Each epoch is a look at the holdout.", 2),
        ("The ladder stands where it stood.", 2),
        ("The targets do not look like what the metric is for; it is looked up.", 0),
        ('Their page writes "as was told", and `stands` is a name.', 0),
    ],
)
def test_the_list_finds_the_dialect_and_spares_quotations(text: str, count: int) -> None:
    assert len(found_in(text)) == count
