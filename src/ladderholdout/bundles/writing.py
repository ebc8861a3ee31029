"""Writes the directory that a platform takes: its settings, its pages, and the scoring program."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from ladderholdout.arguments import choice, whole
from ladderholdout.bundles import scoring
from ladderholdout.errors import InvalidArgument
from ladderholdout.process import open_private

PLATFORMS = ("codabench", "evalai")
SERVER = "server.json"

_SOURCES = files(__package__)
_PAGES = ("overview", "evaluation", "submission", "terms")
_LONGEST_TITLE = 100  # of a challenge on EvalAI
_LINES = {
    "labels": "the predicted class",
    "probabilities": "the predicted probability of each class, in a column that is named after it",
    "scores": "a score, which is greater for the second class",
    "values": "the predicted value",
}
_PICTURE = 256  # pixels of the logo's sides


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a bundle states of a challenge; nothing of it depends on the labels of rows.

    Attributes
    ----------
    holdout : str
        The holdout's name on the server.
    server : str
        Where `ladder-holdout serve` answers, such as ``https://host``.
    title : str
    metric, response, mechanism : str
        What is measured, what is predicted, and the rule that answers.
    n : int
        Rows that are predicted.
    classes : tuple of str
        None of them where targets are numbers.
    start, end : date
        The first and the last day, by UTC.
    per_day : int
        Submissions of a participant.
    ids : str or None
        The column of predictions that has the ids of the rows.
    """

    holdout: str
    server: str
    title: str
    metric: str
    response: str
    mechanism: str
    n: int
    classes: tuple[str, ...]
    start: date
    end: date
    per_day: int
    ids: str | None = None

    def __post_init__(self) -> None:
        if not (1 <= len(self.title) <= _LONGEST_TITLE and self.title.isprintable()):
            allowed = f"a printable text of 1 to {_LONGEST_TITLE} characters"
            raise InvalidArgument("title", allowed, f"one of {len(self.title)}")
        if self.end < self.start:
            raise InvalidArgument("until", f"a day from {self.start} on", str(self.end))
        whole("per_day", self.per_day)


def write_bundle(platform: str, challenge: Challenge, folder: Path) -> list[str]:
    r"""Write the bundle of a challenge into an empty directory.

    It has no label, and no token: the organiser puts that of a host's account into server.json.

    Parameters
    ----------
    platform : {"codabench", "evalai"}
        Codabench takes a competition bundle of version 2, EvalAI a challenge configuration.
    challenge : Challenge
    folder : Path
        A new directory, or an empty one.

    Returns
    -------
    list of str
        The files that were written, with paths from the directory.

    Raises
    ------
    InvalidArgument
        The platform is unknown, or the directory holds something.

    Examples
    --------
    >>> import tempfile
    >>> from datetime import date
    >>> challenge = Challenge(
    ...     holdout="coins", server="https://host.example", title="Coins", metric="accuracy",
    ...     response="labels", mechanism="SimplifiedLadder(step=0.1)", n=100,
    ...     classes=("heads", "tails"), start=date(2026, 12, 1), end=date(2026, 12, 31), per_day=5,
    ... )
    >>> folder = tempfile.TemporaryDirectory()
    >>> written = write_bundle("codabench", challenge, Path(folder.name))
    >>> print(*written, sep="\n")
    competition.yaml
    logo.png
    pages/evaluation.html
    pages/overview.html
    pages/submission.html
    pages/terms.html
    reference_data/server.json
    scoring_program/metadata.yaml
    scoring_program/scoring.py
    >>> folder.cleanup()
    """
    platform = choice("platform", platform, PLATFORMS)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument("DIR", "a new or an empty directory", "one that holds something")
    contents: dict[str, bytes] = {"logo.png": _logo()}
    stated = _stated(challenge)
    # A text of JSON is one of YAML, whatever is in it.
    quoted = {name: json.dumps(stated[name], ensure_ascii=False) for name in ("title", "kinds")}
    shown = {name: escape(text) for name, text in stated.items()}
    for page in _PAGES:
        contents[f"pages/{page}.html"] = _filled(f"pages/{page}.html", shown)
    settings = {
        "server": challenge.server,
        "holdout": challenge.holdout,
        "ids": challenge.ids,
        "token": "",
    }
    server = (json.dumps(settings, indent=2) + "\n").encode()
    program = _SOURCES.joinpath("scoring.py").read_bytes()
    if platform == "codabench":
        contents |= {
            "competition.yaml": _filled("codabench/competition.yaml", stated | quoted),
            "scoring_program/metadata.yaml": _filled("codabench/metadata.yaml", {}),
            "scoring_program/scoring.py": program,
            f"reference_data/{SERVER}": server,
        }
    else:
        package = {"__init__.py": b"from .main import evaluate  # noqa: F401\n", "main.py": program}
        contents |= {
            "challenge_config.yaml": _filled("evalai/challenge_config.yaml", stated | quoted),
            "evaluation_script.zip": _zipped(package),
            f"annotations/{SERVER}": server,
        }
    for name, content in contents.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.name == SERVER:  # for the token that is put into it
            os.close(open_private(file, new=True))
        file.write_bytes(content)
    return sorted(contents)


def _stated(challenge: Challenge) -> dict[str, str]:
    """Return what the templates name, as texts."""
    days = (challenge.end - challenge.start).days + 1
    line = _LINES[challenge.response]
    if challenge.classes:
        line += f" (classes: {', '.join(challenge.classes)})"
    order = "in the order of the rows that the organisers published"
    if challenge.ids:
        order = f"in any order, with the column {challenge.ids} that names the rows"
    return {
        "title": challenge.title,
        "metric": challenge.metric,
        "mechanism": challenge.mechanism,
        "n": str(challenge.n),
        "line": line,
        "order": order,
        "start": str(challenge.start),
        "end": str(challenge.end),
        "per_day": str(challenge.per_day),
        "per_month": str(31 * challenge.per_day),
        "in_all": str(days * challenge.per_day),
        "kinds": ", ".join(scoring.MEDIA),
        "split": scoring.SPLIT,
        "token": scoring.TOKEN,
    }


def _filled(name: str, stated: dict[str, str]) -> bytes:
    text = _SOURCES.joinpath("templates", name).read_text(encoding="utf-8")
    return Template(text).substitute(stated).encode()


def _zipped(contents: dict[str, bytes]) -> bytes:
    """Return a zip that is the same whenever it is made."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


def _logo() -> bytes:
    """Return a PNG of a ladder's steps: the platforms ask for a picture."""
    step = _PICTURE // 4
    lines = [
        b"\0" + b"".join(_color(x // step >= 3 - y // step) for x in range(_PICTURE))
        for y in range(_PICTURE)
    ]

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", _PICTURE, _PICTURE, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(lines), 9)
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", data), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _color(is_step: bool) -> bytes:
    return b"\x0b\x6b\x6b" if is_step else b"\xff\xff\xff"
