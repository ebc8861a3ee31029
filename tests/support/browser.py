"""A real headless Chromium that lays out a report and says what came of it."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# The window of a headless Chromium is never narrower than 500 pixels, a frame in it may be.
HARNESS = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head>
<body style="margin:0"><iframe style="border:0" width="{width}" height="900"
srcdoc="{page}"></iframe><pre id="found"></pre>
<script>
onload = () => {{
  const inside = document.querySelector("iframe").contentDocument;
  const boxes = [...inside.querySelectorAll("figure svg")].map(one => {{
    const box = one.getBoundingClientRect();
    return [box.width, box.height, one.querySelectorAll("path, use").length];
  }});
  const texts = [...inside.querySelectorAll("figure svg text")].map(
    one => one.getBoundingClientRect().height);
  const sheet = inside.defaultView.performance.getEntriesByType("resource").map(e => e.name);
  document.querySelector("#found").textContent = JSON.stringify({{
    width: inside.defaultView.innerWidth, needed: inside.documentElement.scrollWidth,
    figures: boxes, texts: texts, fetched: sheet,
    dark: inside.defaultView.matchMedia("(prefers-color-scheme: dark)").matches,
    ink: inside.defaultView.getComputedStyle(inside.body).color,
    paper: inside.defaultView.getComputedStyle(inside.body).backgroundColor,
    rows: inside.querySelectorAll("tbody tr").length, title: inside.title}});
}};
</script></body></html>"""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a page looked like, and what the browser's console said."""

    found: dict[str, Any]
    console: list[str]


ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def browser() -> str:
    """Return the command of a Chromium; a missing one is a failure and no reason to skip."""
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found
    raise AssertionError(
        "There is no Chromium here to open the report in. Install one: "
        "apt-get install -y chromium. Looked for: " + ", ".join(NAMES)
    )


def run(folder: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the browser on a file, with a profile of its own."""
    command = [
        browser(),
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--no-first-run",
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        # Its sandbox does not start for root.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        *options,
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done


def rendered(report: Path, folder: Path, width: int, *options: str) -> Rendered:
    """Lay a report out at a width and return what can be measured."""
    harness = folder / f"harness-{width}.html"
    page = html.escape(report.read_text(encoding="utf-8"), quote=True)
    harness.write_text(HARNESS.format(width=width, page=page), encoding="utf-8")
    size = f"--window-size={max(width, 500)},1000"
    done = run(folder, harness, size, "--dump-dom", *options)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Rendered(json.loads(html.unescape(found[1])), console)


def screenshot(report: Path, folder: Path, file: Path, width: int, height: int) -> bytes:
    """Return the picture of a page as a PNG."""
    run(folder, report, f"--window-size={width},{height}", f"--screenshot={file}")
    return file.read_bytes()
