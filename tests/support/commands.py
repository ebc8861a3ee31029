"""Runs the command line in this process, whose commands are built once and not for each call.

Typer builds all of them from their signatures whenever one is called, which takes five times as
long as most of them do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unittest import mock

import typer.testing
from typer.main import get_command

_built = lru_cache(get_command)


class CliRunner(typer.testing.CliRunner):
    """The runner of Typer, for an application that does not change any more."""

    def invoke(self, app: typer.Typer, *given: Any, **named: Any) -> Any:
        """Call a command; the runner looks up what builds it by this name."""
        with mock.patch.object(typer.testing, "_get_command", _built):
            return super().invoke(app, *given, **named)
