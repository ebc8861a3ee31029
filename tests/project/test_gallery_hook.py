"""Attacks the hook that makes the gallery: stale figures, scripts that leave things behind."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ladderholdout import __version__

ROOT = Path(__file__).parents[2]
SCRIPT = '''"""A script.

What it shows.

    python gallery/one.py
"""
import _style as style

print({printed})
figure, ax = style.panels()
ax.plot([1, 2, 3])
style.show(figure, "Three points.")
'''


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The hook, on a gallery of its own with the real style."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "gallery" / "_pages.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    (tmp_path / "gallery").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "package.py").write_text("figures = 1")
    style = ROOT / "gallery" / "_style.py"
    (tmp_path / "gallery" / "_style.py").write_text(style.read_text("utf-8"))
    monkeypatch.setattr(made, "HERE", tmp_path / "gallery")
    monkeypatch.setattr(made, "ROOT", tmp_path)
    monkeypatch.setattr(made, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(made, "GROUPS", {"All": {"one": "One"}})
    (tmp_path / "gallery" / "one.py").write_text(SCRIPT.format(printed="'first'"))
    return made


@pytest.mark.processes
def test_a_script_runs_again_where_it_or_the_package_has_changed(hook: ModuleType) -> None:
    first = hook.shown("one")
    assert first.printed.strip() == "first" and "<svg" in first.picture
    # What is kept is what is shown: so nothing ran.
    (kept,) = hook.CACHE.glob("*.json")
    kept.write_text(kept.read_text("utf-8").replace("first", "kept"))
    assert hook.shown("one").printed.strip() == "kept"
    (hook.ROOT / "src" / "package.py").write_text("figures = 2")
    assert hook.shown("one").printed.strip() == "first"
    (hook.HERE / "one.py").write_text(SCRIPT.format(printed="'second'"))
    assert hook.shown("one").printed.strip() == "second"
    assert len(list(hook.CACHE.glob("*.json"))) == 1  # the older ones are gone


@pytest.mark.processes
@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("open('left.txt', 'w').close()", r"leaves \['left.txt'\]"),
        ("1 / 0", "ZeroDivisionError"),
        ("print('noise', file=__import__('sys').stderr)", "noise"),
    ],
    ids=["leaves a file", "fails", "writes to stderr"],
)
def test_a_script_that_fails_or_leaves_things_behind_ends_the_build(
    hook: ModuleType, printed: str, found: str
) -> None:
    (hook.HERE / "one.py").write_text(SCRIPT.format(printed=printed))
    with pytest.raises(RuntimeError, match=found):
        hook.shown("one")
    assert not hook.CACHE.exists()


def test_a_script_without_a_place_in_the_gallery_ends_the_build(hook: ModuleType) -> None:
    assert hook.names() == ["one"]
    (hook.HERE / "other.py").write_text(SCRIPT.format(printed="2"))
    with pytest.raises(ValueError, match="other"):
        hook.names()


def test_a_page_has_the_title_the_text_and_the_code_of_its_script(hook: ModuleType) -> None:
    picture = '<svg xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Dots.</dc:title></svg>'
    page = hook.page("one", hook.Shown("printed\n", picture))
    assert page.startswith("# A script\n\nWhat it shows.\n\n![Dots.](one-light.svg#only-light)")
    assert "```text\nprinted\n```" in page and "import _style" in page
    assert '"""' not in page


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["cff-version"] == "1.2.0" and cited["type"] == "software"
    assert cited["version"] == __version__
    assert cited["license"] == "MIT" and cited["authors"] and cited["message"]


def test_the_forms_for_issues_are_such_as_github_takes() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[0-9]*.yml"))
    assert len(forms) == 3
    for form in forms:
        read = yaml.safe_load(form.read_text("utf-8"))
        assert read["name"] and read["description"]
        ids = [one["id"] for one in read["body"] if one["type"] != "markdown"]
        assert ids and len(set(ids)) == len(ids)
        for one in read["body"]:
            assert one["type"] in {"markdown", "textarea", "input", "checkboxes", "dropdown"}
            assert one["attributes"].get("label") or one["attributes"].get("value")
