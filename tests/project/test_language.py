"""Attacks the words of the pages: those that a person of the field would have to translate.

`DIALECT` and `dialect_in` are for other texts as well.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import tree
from tests.support.tree import source as text

ROOT = tree.ROOT
DOCS = ROOT / "docs"
LONGEST = 12_000  # bytes of a page of docs/guide
MOST_GUIDES = 25  # a newcomer reads their titles; what an expert needs is under docs/background
MOST_ENTRIES = 7  # of the navigation's first level

# What the project's texts once said, and what they say instead.
DIALECT = {
    r"(?:a|one|each|every|any|first|last|another|many|more|fewer?|\d+|two|no|per) looks?": "query",
    r"look(?:s|ed|ing)? at the (?:holdout|reserve)": "query the holdout",
    r"anybody looks|nobody looks|who looks": "query",
    r"told": "released; feedback that a search receives",
    r"tells? (?:the |a |its |your )?(?:search|sampler|study|analyst|optimi[sz]er)": "release",
    r"what stands|stands|stood|standing (?:score|risk|submission)|(?:it|they) stand": (
        "the incumbent, the released score; is"
    ),
    r"(?:is|are|was|were|be|been|being) said": "gives a warning; states; is shown",
    r"said aloud": "states",
    r"the house|rooms|a room of": "package, module",
    r"flatter\w*": "biased upwards, optimistic",
    r"(?:go|goes|going|went) by": "search on, use, rank by",
    r"ask(?:s|ed|ing)? (?:about )?(?:the|a|its|your|this|that) (?:holdout|ladder|reserve|guard)": (
        "query"
    ),
    r"be asked(?! for)": "be queried",
    r"show(?:s|n|ed|ing)? (?:to )?the holdout": "query the holdout with",
    r"(?:its|their|no|told) guides?": "inner score",
    r"dear(?:er|est)?": "costs more",
}
PATTERN = re.compile("|".join(rf"\b(?:{one})\b" for one in DIALECT), re.IGNORECASE)

fenced = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
code = re.compile(r"`[^`]+`")
quoted = re.compile(r"\"[^\"\n]*(?:\n[^\"\n]+)?\"|“[^”]*”|^>.*$", re.MULTILINE)
target = re.compile(r"\]\([^)]*\)")


def dialect_in(text: str) -> list[str]:
    """Return the words of the dialect in a plain text."""
    return [" ".join(found[0].split()) for found in PATTERN.finditer(" ".join(text.split()))]


def prose(page: str) -> str:
    """Return a page of Markdown without code, quotations and the targets of links."""
    for one in (fenced, code, target, quoted):
        page = one.sub(" ", page)
    return page


def test_the_pages_speak_the_language_of_the_field() -> None:
    assert len(tree.pages()) > 150
    wrong = {page: found for page in tree.pages() if (found := dialect_in(prose(text(page))))}
    assert wrong == {}


def test_the_dialect_is_found_where_it_is_and_not_in_code_or_quotations() -> None:
    for plain in ("What was\ntold stands.", "Of each look at the holdout it is said", "one look"):
        assert dialect_in(prose(plain))
    for fine in ('He wrote "what was told".', "`told = 1`", "```python\ntold = 1\n```\n", "> told"):
        assert dialect_in(prose(fine)) == []
    assert dialect_in("The released score of the incumbent; query the holdout.") == []


def guides() -> list[Path]:
    return [page for page in tree.pages() if page.parent == DOCS / "guide"]


def test_the_guides_are_few_and_none_is_longer_than_two_screens_may_be() -> None:
    assert 0 < len(guides()) <= MOST_GUIDES
    assert [page for page in guides() if page.stat().st_size > LONGEST] == []


# A reference of commands, and pages of several tasks.
OF_NO_TASK = {"cli", "mlflow", "several_metrics"}


def test_a_guide_begins_with_its_task_and_shows_code() -> None:
    failures = []
    for page in guides():
        title, task, rest = (*text(page).split("\n\n", 2), "", "")[:3]
        stated = title.startswith("# ") and re.match(r"\*\*Task:\*\* [^.]+[.]", task)
        if page.stem not in OF_NO_TASK and not (stated and "```" in rest):
            failures.append(page)
    assert failures == []


def navigation() -> str:
    return (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]


def test_the_navigation_shows_few_entries() -> None:
    assert 0 < len(re.findall(r"^  - ", navigation(), re.MULTILINE)) <= MOST_ENTRIES


def test_ten_questions_lead_to_pages_of_the_navigation() -> None:
    page = DOCS / "explanation" / "questions.md"
    # One click to the questions, which the navigation shows on every page, and one to the answer.
    assert "explanation/questions.md" in navigation()
    questions = re.split(r"^\d+\. ", text(page), flags=re.MULTILINE)[1:]
    assert len(questions) == 10
    for question in questions:
        assert re.match(r"\*\*[^*]+\?[^*]*\*\*", question), question
        answers = re.findall(r"\]\(([^)#]+)", question)
        assert answers, question
        for answer in answers:
            place = (page.parent / answer).resolve().relative_to(DOCS.resolve()).as_posix()
            assert f": {place}\n" in navigation(), place
