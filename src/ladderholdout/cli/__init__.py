"""The command line: parse, call, print."""

from __future__ import annotations

from ladderholdout.cli import looking as looking
from ladderholdout.cli.common import app

__all__ = ["app"]
