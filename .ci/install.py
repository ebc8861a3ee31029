"""Install into the environment whose Python runs this: python .ci/install.py REQUIREMENT...

It calls uv, which takes a tenth of pip's time, and pip itself if uv cannot be had or fails. uv does
not read pip's settings, so it gets their indexes under its own names.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
UV = (sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable)

# What pip separates by spaces uv separates by the second of these.
NAMES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "constraint": ("UV_CONSTRAINT", " "),
    "cert": ("SSL_CERT_FILE", " "),
}


def main(requirements: list[str]) -> int:
    """Return the status of the installation."""
    if call(*PIP, "install", "uv", silent=True) == 0 and call(*UV, *requirements, env=told()) == 0:
        return 0
    return call(*PIP, "install", "--quiet", *requirements)


def told() -> dict[str, str]:
    """Return this process's environment with pip's settings under uv's names."""
    # pip takes the best version of all indexes, and uv by default that of the first.
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False)
    # Settings by the environment come first, and win.
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        name, separator = NAMES.get(key.rpartition(".")[2], ("", ""))
        if name:
            environment.setdefault(name, separator.join(ast.literal_eval(value).split()))
    return environment | os.environ


def call(*command: str, silent: bool = False, env: dict[str, str] | None = None) -> int:
    """Run a command, and return its status."""
    output = subprocess.DEVNULL if silent else None
    return subprocess.run(command, stdout=output, stderr=output, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
