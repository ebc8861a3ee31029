"""What another user of the machine reads: files, processes, and all that the server answers.

Run by `test_newcomer` under another user; the standard library is all that it has. It keeps every
byte that it was given in `found`, and what it tried in `reached.json`.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

LARGEST = 20_000_000
SUBMISSIONS = 30
MOST_PAGES = 300
OF_PROCESSES = ("environ", "cmdline", "maps", "smaps", "mem", "auxv", "stack", "syscall", "io")
NAME = "churn-2026"

asked = json.loads(sys.argv[1])
token = os.environ["LADDERHOLDOUT_TOKEN"]
found = open("found", "wb")  # noqa: SIM115
reached: dict = {
    "files": 0,
    "refused": [],
    "answers": 0,
    "submissions": 0,
    "released": [],
    "predictions": [],
}


def read(place: str) -> None:
    """Keep what can be read of a file or of the names in a folder."""
    try:
        if os.path.isdir(place):
            found.write("\n".join(os.listdir(place)).encode())
            return
        if not os.path.isfile(place) and not place.startswith("/proc/"):
            return
        with open(place, "rb") as file:
            found.write(file.read(LARGEST))
        reached["files"] += 1
    except OSError:
        reached["refused"].append(place)


def walk(folder: str) -> None:
    """Read all files of a folder that are as new as the server's, and those beside them."""
    # Of the server's owner everything, whatever its age.
    everything = folder == asked["folders"][0]
    for place, folders, files in os.walk(folder, onerror=lambda fault: read(fault.filename)):
        folders[:] = [one for one in folders if Path(place, one) != Path.cwd()]
        for name in files:
            one = os.path.join(place, name)
            try:
                status = os.lstat(one)
            except OSError:
                continue
            if everything or (status.st_mtime >= asked["since"] and status.st_size < LARGEST):
                read(one)


def processes() -> None:
    """Read what /proc shows of every process, and of the server's memory."""
    for process in [one for one in os.listdir("/proc") if one.isdecimal()]:
        if int(process) == os.getpid():
            continue
        for name in (*OF_PROCESSES, "fd", "cwd", "root", "status", "task"):
            if name != "mem" or int(process) == asked["server"]:
                read(f"/proc/{process}/{name}")
    for number in range(64):
        read(f"/proc/{asked['server']}/fd/{number}")


def ask(method: str, path: str, body: bytes | None = None, **headers: str) -> dict | list | None:
    """Keep the answer to a request, with its headers."""
    headers |= {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(asked["url"] + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            parts = answer.read(), bytes(answer.headers)
    except urllib.error.HTTPError as fault:
        parts = fault.read(), bytes(fault.headers)
    reached["answers"] += 1
    found.write(b"".join(parts))
    try:
        return json.loads(parts[0])
    except ValueError:
        return None


def submit() -> None:
    """Submit random predictions, and keep what is released."""
    for _ in range(SUBMISSIONS):
        guess = [random.randint(0, 1) for _ in range(asked["rows"])]
        body = json.dumps({"predictions": guess}).encode()
        kind = {"Content-Type": "application/json"}
        answer = ask("POST", f"/v1/holdouts/{NAME}/submit", body, **kind)
        reached["submissions"] += 1
        reached["released"].append(answer["score"])
        reached["predictions"].append(guess)


def every_path() -> None:
    """Ask for every operation that the server describes, as each account, in each form."""
    described = ask("GET", "/openapi.json")
    ask("GET", "/docs")
    for path, methods in described["paths"].items():
        for method in methods:
            if path.endswith("/submit") and method == "post":
                continue
            for query in ("", "?account=default", "?account=ada", "?limit=1000&after=0"):
                for accept in ("application/json", "application/x-npy", "*/*"):
                    body = b"{}" if method == "post" else None
                    whole = path.replace("{name}", NAME) + query
                    ask(method.upper(), whole, body, Accept=accept)
    for path in ("/ledger.db", "/vault", "/../ledger.db", "/static/../ledger.db", "/v1/audit"):
        ask("GET", path)


def pages() -> None:
    """Follow the links of all pages, from where a browser would begin."""
    known = ["/", "/docs", "/ui", "/login", f"/holdouts/{NAME}", f"/ui/holdouts/{NAME}"]
    for path in known:  # grows
        begun = found.tell()
        ask("GET", path)
        found.flush()
        with open("found", "rb") as file:
            file.seek(begun)
            text = file.read().decode(errors="replace")
        for link in re.findall(r"""(?:href|src|action)=["']?(/[^"'\s>#]*)""", text):
            if link not in known and len(known) < MOST_PAGES:
                known.append(link)


submit()
every_path()
pages()
for one in asked["folders"]:
    walk(one)
processes()
found.close()
Path("reached.json").write_text(json.dumps(reached))
