"""What tests of rooms use beyond the plain installation, and marks for tests that need it.

With the plain installation such a test is skipped and says what to install. Where make test
runs nothing may be missing: tests/project/test_tiers.py goes through NEEDED.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

NEEDED = {"matplotlib": "report", "mpmath": "test", "pandas": "tables", "polars": "tables"}


def installed(package: str) -> Any:
    """Import a package, or return None."""
    return import_module(package) if find_spec(package) else None


def reason(package: str) -> str:
    """Say what to install."""
    return f"{package}: pip install 'ladderholdout[{NEEDED[package]}]'"


def needs(package: str) -> pytest.MarkDecorator:
    """Skip a test where the package is not installed, and say which extra brings it."""
    return pytest.mark.skipif(not find_spec(package), reason=reason(package))


mp, pd = installed("mpmath"), installed("pandas")
needs_matplotlib, needs_mpmath, needs_pandas = map(needs, ("matplotlib", "mpmath", "pandas"))
NEEDS_PANDAS = reason("pandas")
