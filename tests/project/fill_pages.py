"""Run the sessions of pages, and write what they print in the place of what the pages show.

    python tests/project/fill_pages.py docs/guide/guard.md [more pages]

After a change of a message or of a default: read the difference before you commit it. Pages are run
as `tests/project/test_docs.py` runs them, each with a ledger of its own.
"""

from __future__ import annotations

# Drawn from os.urandom when it is imported, and so before the secrets are fixed.
import multiprocessing.process  # noqa: F401
import os
import re
import sys
import tempfile
import textwrap
from itertools import zip_longest
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.project.test_docs import (  # noqa: E402
    LEDGER,
    Block,
    block,
    commands,
    plain,
    run_command,
    run_python,
)
from tests.support.fixed_secrets import fixed_secrets  # noqa: E402

WIDTH = 96
MOMENTS = ((r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-03-14 15:09"), (r"\d{4}-\d\d-\d\d", "2026-03-14"))


def shown(output: str, ledger: Path) -> str:
    """Return an output as a page shows it: no path of this machine, no moment, wrapped."""
    output = output.replace(str(ledger), LEDGER)
    for moment, instead in MOMENTS:
        output = re.sub(moment, instead, output)
    lines = []
    for line in output.splitlines():
        is_sentence = len(line) > WIDTH and not line.startswith(" ")
        lines += textwrap.wrap(line, WIDTH, break_on_hyphens=False) if is_sentence else [line]
    return "\n".join(lines) + "\n"


def filled(page: Path, ledger: Path) -> str:
    """Return the text of a page with the outputs that its blocks have now."""
    text, names = page.read_text("utf-8"), {"__name__": "__main__"}
    found = list(block.finditer(text))
    pieces, end = [], 0
    for match, after in zip_longest(found, found[1:]):
        one = Block(*match.groups(), "")
        if one.language == "python":
            came = run_python(one.text, names)  # type: ignore[arg-type]
        elif one.language == "console":
            came = "".join(map(run_command, commands(one.text)))
        else:
            continue
        before = after[2] if after is not None and after[1] == "text" else ""
        if plain(came, ledger) == plain(before, ledger):
            continue
        if after is not None and after[1] == "text":
            start, stop, new = after.start(2), after.end(2), shown(came, ledger)
        else:
            start = stop = match.end()
            new = f"\n\n```text\n{shown(came, ledger)}```"
        pieces += [text[end:start], new]
        end = stop
    return "".join(pieces) + text[end:]


def main(pages: list[str]) -> None:
    for page in [Path(one).resolve() for one in pages]:
        with tempfile.TemporaryDirectory() as folder:
            ledger = Path(folder) / "ledger.db"
            os.environ |= {"LADDERHOLDOUT_LEDGER": str(ledger), "COLUMNS": "100"}
            os.chdir(folder)
            with patch.object(os, "urandom", fixed_secrets(page.stem)):
                text = filled(page, ledger)
            os.chdir(ROOT)
        if text != page.read_text("utf-8"):
            page.write_text(text, "utf-8")
            print(f"changed: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
