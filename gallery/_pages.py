"""A hook of mkdocs: runs the scripts of this folder and the tutorial, and makes pages of them.

What a script shows is kept in `.cache/site`, under a hash of the script, of the package's own
sources and of the libraries' versions: so a build runs what has changed, and a change of the
package runs everything. What is made of it is a part of the site and of no folder under version
control.
"""

from __future__ import annotations

import ast
import hashlib
import html
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = ROOT / ".cache" / "site"
TUTORIAL = ROOT / "docs" / "tutorial.py"
# What figures depend on beside the scripts and the package.
LIBRARIES = ("lightgbm", "matplotlib", "mlflow-skinny", "numpy", "optuna", "scikit-learn", "scipy")
# No kernel or script may use more than its share of the processors.
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

GROUPS = {
    "Searches": {
        "tuning_by_hand": "A model tuned by hand",
        "winners_curse": "The winner's curse of a grid",
        "finalists": "How many finalists",
        "estimate": "The corrected score against the truth",
        "early_stopping": "Early stopping",
    },
    "Attacks": {
        "climb_on_coins": "A climb on coin labels",
        "leaderboard_attack": "A leaderboard under attack",
        "agent": "An agent against a server",
    },
    "Rules": {
        "rules_compared": "Nine rules on one history",
        "improvements": "A holdout that shows improvements alone",
        "year": "A year of one holdout",
        "three_years": "Three years, with fresh rows each month",
        "audit": "An audit",
    },
    "Certificates": {
        "widths": "How wide a certificate is",
        "planning": "How many rows a holdout needs",
        "reserve": "A reserve",
        "auc": "Certificates of AUC",
        "imbalanced": "Certificates of imbalanced classes",
        "regression": "Certificates of a regression",
    },
    "The papers": {
        "paper_ladder": "The Ladder: Kaggle's rounding and the boosting attack",
        "paper_shaky": "Climbing a shaky ladder: three attacks on the rules",
        "paper_leaderboards": "Towards better leaderboards: enumeration",
        "paper_bootstrap": "LadderBoot under the step-forward attack",
    },
}


class Shown(NamedTuple):
    """What a script printed and drew."""

    printed: str
    picture: str


def on_config(config: Any) -> Any:
    """Enter the pages of the gallery into the navigation."""
    for entry in config.nav:
        if isinstance(entry, dict) and "Gallery" in entry:
            entry["Gallery"] = [
                "gallery/index.md",
                *(
                    {group: [{title: f"gallery/{name}.md"} for name, title in scripts.items()]}
                    for group, scripts in GROUPS.items()
                ),
            ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Run what has changed, and add the pages, the pictures and the notebook."""
    from mkdocs.structure.files import File

    made = {**gallery(), **tutorial(), "assets/social.png": social(config.site_description)}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Let the search show what teaches before what records, and say what a page is about."""
    page.meta.setdefault("description", about(markdown) or config.site_description)
    folder = page.file.src_uri.partition("/")[0]
    weight = {"decisions": 0.3, "background": 0.5, "reference": 0.7}.get(folder, 1.5)
    page.meta.setdefault("search", {}).setdefault("boost", weight)
    return markdown


def about(markdown: str) -> str:
    """Return the first sentences of a page as plain text, for search engines and posted links."""
    for part in re.split(r"\n\s*\n", markdown):
        text = " ".join(part.removeprefix("**Task:**").split())
        text = re.sub(r"!\[[^]]*\]\([^)]*\)|<[^>]+>", "", text)
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
        text = re.sub(r"[*`]", "", text).strip()
        if text and text[0].isalnum():
            short = textwrap.shorten(text, 200, placeholder=" ...")
            return html.escape(short[0].upper() + short[1:])
    return ""


def social(tagline: str) -> bytes:
    """Draw what shows where a link is posted: the name, and the certificate of the README."""
    import matplotlib.pyplot as plt

    style = _style()
    readme = (ROOT / "README.md").read_text("utf-8")
    low, high = map(float, re.findall(r"true score in ([\d.]+) to ([\d.]+)", readme)[0])
    released = float(re.findall(r"released score +([\d.]+)", readme)[0])
    figure = plt.figure(figsize=(12, 6.3), dpi=100, facecolor="white")
    figure.text(0.07, 0.74, "ladderholdout", fontsize=58, color=style.INK, weight="bold")
    figure.text(0.07, 0.60, textwrap.fill(tagline, 44), fontsize=25, color=style.QUIET, va="center")
    axes = figure.add_axes((0.07, 0.16, 0.86, 0.24))
    axes.set_axis_off()
    axes.set(xlim=(low - 0.01, high + 0.01), ylim=(-1, 1))
    axes.plot([low, high], [0, 0], color=style.GREEN, linewidth=14, solid_capstyle="round")
    axes.plot([released], [0], "o", color=style.ORANGE, markersize=22)
    for place, text in ((low, f"{low:.3f}"), (high, f"{high:.3f}")):
        axes.text(place, -0.85, text, fontsize=21, color=style.INK, ha="center")
    axes.text(released, 0.5, f"released {released:.4f}", fontsize=21, color=style.INK, ha="center")
    axes.text(
        (low + high) / 2, -0.85, "true score, 95 %", fontsize=21, color=style.QUIET, ha="center"
    )
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    plt.close(figure)
    return drawn.getvalue()


# ---------------------------------------------------------------- the gallery


def names() -> list[str]:
    """Return the scripts; each has to have its place in `GROUPS`."""
    placed = [name for scripts in GROUPS.values() for name in scripts]
    there = sorted(path.stem for path in HERE.glob("[!_]*.py"))
    if sorted(placed) != there:
        raise ValueError(f"GROUPS of {__file__} and the scripts differ: {set(placed) ^ set(there)}")
    return placed


def gallery() -> dict[str, str]:
    """Return the pages and pictures of the gallery by their paths in the site."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(names(), pool.map(shown, names()), strict=True))
    made = {"gallery/index.md": index()}
    for name, one in found.items():
        made[f"gallery/{name}.md"] = page(name, one)
        made |= both(f"gallery/{name}", one.picture)
    return made


def shown(name: str) -> Shown:
    """Run a script, or return what it showed before."""
    script = HERE / f"{name}.py"
    kept = CACHE / f"{name}-{key(script)}.json"
    if kept.exists():
        return Shown(*json.loads(kept.read_text("utf-8")))
    with tempfile.TemporaryDirectory(prefix="gallery-") as made:
        work = Path(made) / "work"
        work.mkdir()
        done = subprocess.run(
            [sys.executable, str(script), "--picture", f"{made}/picture.svg"],
            cwd=work,
            env=environment(Path(made)),
            capture_output=True,
            text=True,
        )
        if done.returncode or done.stderr:
            raise RuntimeError(f"{script}:\n{done.stdout}{done.stderr}")
        if left := [path.name for path in work.iterdir()]:
            raise RuntimeError(f"{script} leaves {left} in the working folder.")
        picture = Path(made, "picture.svg").read_text("utf-8")
        one = Shown(done.stdout, picture)
    keep(kept, name, json.dumps(one))
    return one


def environment(made: Path) -> dict[str, str]:
    """Return the environment of a script: its own ledger, and the package of this checkout."""
    ours = {"LADDERHOLDOUT_LEDGER": str(made / "ledger.db"), "PYTHONWARNINGS": "ignore"}
    found = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT / "src"), *([found] if found else [])])
    return {**os.environ, **THREADS, **ours, "PYTHONPATH": path}


def key(script: Path) -> str:
    """Return the hash of all that a script's figures depend on."""
    text = script.read_bytes()
    parts = [text, (HERE / "_style.py").read_bytes()]
    for folder in (ROOT / "benchmarks" / "papers", ROOT / "examples"):
        there = sorted(folder.glob("*.py"))
        if any(b"import %b as" % path.stem.encode() in text for path in there):
            parts += [path.read_bytes() for path in there]
    parts += [path.read_bytes() for path in sorted((ROOT / "src").rglob("*.py"))]
    parts += [f"{name} {version(name)}".encode() for name in LIBRARIES]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:20]


def keep(file: Path, name: str, text: str) -> None:
    """Write what was shown, in one piece, and drop what the same script showed before."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=CACHE, delete=False, encoding="utf-8") as written:
        written.write(text)
    os.replace(written.name, file)
    for older in CACHE.glob(f"{name}-????????????????????.json"):
        if older != file:
            older.unlink(missing_ok=True)


def page(name: str, one: Shown) -> str:
    """Return the page of one script."""
    text = (HERE / f"{name}.py").read_text("utf-8")
    title, about, code = parts_of(text)
    return (
        f"# {title}\n\n{about}\n\n{image(name, described(one.picture))}\n\n"
        f"```text\n{one.printed.rstrip()}\n```\n\n## The script\n\n"
        f"`python gallery/{name}.py --picture {name}.png` runs it in a checkout.\n\n"
        f"```python\n{code.strip()}\n```\n"
    )


def parts_of(text: str) -> tuple[str, str, str]:
    """Return the title of a script, what its docstring says, and the code after it."""
    tree = ast.parse(text)
    said = ast.get_docstring(tree)
    assert said is not None
    title, _, about = said.partition("\n\n")
    code = "".join(text.splitlines(keepends=True)[tree.body[0].end_lineno or 0 :])
    # How it is run stands below the picture.
    about = re.sub(r"\n\n    python gallery/\S+.*$", "", about, flags=re.DOTALL)
    return title.removesuffix("."), about, code


def described(picture: str) -> str:
    """Return what the title of an SVG says of it."""
    found = ElementTree.fromstring(picture).find(".//{http://purl.org/dc/elements/1.1/}title")
    assert found is not None and found.text
    return " ".join(found.text.split())


def image(name: str, alt: str, folder: str = "") -> str:
    """Return the picture for light and for dark paper."""
    return "".join(
        f"![{alt}]({folder}{name}-{scheme}.svg#only-{scheme})" for scheme in ("light", "dark")
    )


def both(path: str, picture: str) -> dict[str, str]:
    """Return an SVG on light and on dark paper."""
    style = _style()
    return {f"{path}-light.svg": picture, f"{path}-dark.svg": style.dark(picture)}


def _style() -> Any:
    sys.path.insert(0, str(HERE))
    try:
        import _style

        return _style
    finally:
        sys.path.remove(str(HERE))


def index() -> str:
    """Return the page that shows all of them."""
    parts = [
        "# Gallery\n\nScripts that run, with what they print and draw. Each of them is one file "
        "that you can run and change: `python gallery/widths.py --picture widths.png`.\n"
    ]
    for group, scripts in GROUPS.items():
        parts.append(f'\n## {group}\n\n<div class="gallery" markdown>\n')
        for name, title in scripts.items():
            parts.append(f"[{image(name, '')} {title}]({name}.md)\n")
        parts.append("</div>\n")
    return "\n".join(parts)


# ---------------------------------------------------------------- the tutorial


def tutorial() -> dict[str, str]:
    """Return the tutorial as a notebook that was run, and as a page of what it shows."""
    kept = CACHE / f"tutorial-{key(TUTORIAL)}.json"
    if kept.exists():
        notebook = kept.read_text("utf-8")
    else:
        notebook = executed(TUTORIAL.read_text("utf-8"))
        keep(kept, "tutorial", notebook)
    return {"tutorial.ipynb": notebook, **notebook_page(notebook)}


def executed(text: str) -> str:
    """Run a notebook that is written as a script, and return it with its outputs."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    notebook = jupytext.reads(text, fmt="py:percent")
    with tempfile.TemporaryDirectory(prefix="tutorial-") as made:
        work = Path(made) / "work"
        work.mkdir()
        client = NotebookClient(
            notebook,
            timeout=300,
            startup_timeout=180,
            kernel_name="python3",
            # It warns that others on this machine might listen; there is nothing to hear.
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": work}},
        )
        client.execute(env={**environment(Path(made)), "TMPDIR": made, "COLUMNS": "88"})
        if left := [path.name for path in work.iterdir()]:
            raise RuntimeError(f"{TUTORIAL} leaves {left} in the working folder.")
        done = nbformat.writes(notebook)
    # Names of folders of this machine, which are others on the next.
    return re.sub(re.escape(made) + r"/[\w-]*", "/tmp/tutorial", done)


def notebook_page(notebook: str) -> dict[str, str]:
    """Return the notebook as Markdown, and its pictures on light and on dark paper."""
    import nbformat
    from nbconvert import MarkdownExporter

    read = nbformat.reads(notebook, as_version=4)
    body, resources = MarkdownExporter().from_notebook_node(read)
    # The site has a style of its own for tables.
    body = re.sub(r"<style scoped>.*?</style>\n?", "", body, flags=re.DOTALL)
    made = {}
    for name, content in resources["outputs"].items():
        # output_CELL_PLACE.svg
        cell = int(name.split("_")[1])
        made |= both(f"tutorial/cell-{cell}", content.decode("utf-8"))
        shown = image(f"cell-{cell}", read.cells[cell].metadata["alt"], "tutorial/")
        body = re.sub(rf"!\[[^]]*\]\({re.escape(name)}\)", shown, body)
    made["tutorial.md"] = body
    return made
