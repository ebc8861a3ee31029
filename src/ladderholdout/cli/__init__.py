"""The command line: parse, call, print."""

from __future__ import annotations

from ladderholdout.cli import attacking as attacking
from ladderholdout.cli import auditing as auditing
from ladderholdout.cli import looking as looking
from ladderholdout.cli import planning as planning
from ladderholdout.cli import rehearsing as rehearsing
from ladderholdout.cli import tracker as tracker
from ladderholdout.cli import tracking as tracking
from ladderholdout.cli.common import app

__all__ = ["app"]
