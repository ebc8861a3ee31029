"""Packages that the plain installation leaves out, and the extras that bring them.

Each import of such a package is inside ``with needed(...)``, where it fails with the command
that installs it. The import statements stay as they are, so that whatever reads the code, a type
checker or a test of who imports what, still sees them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ladderholdout.errors import LadderHoldoutError, MissingExtra

# By the name that Python imports; pyproject.toml has the versions.
EXTRAS = {
    "catboost": "boosting",
    "fastapi": "server",
    "fsspec": "remote",
    "gepa": "gepa",
    "inspect_ai": "inspect",
    "jinja2": "report",
    "keras": "deep",
    "lightgbm": "boosting",
    "lightning": "deep",
    "markupsafe": "report",
    "matplotlib": "report",
    "mcp": "mcp",
    "pandas": "tables",
    "polars": "tables",
    "psycopg": "postgres",
    "pyarrow": "tables",
    "python_multipart": "server",
    "skorch": "deep",
    "torch": "deep",
    "uvicorn": "server",
    "xgboost": "boosting",
}


def missing(what: str, package: str, extra: str | None = None) -> MissingExtra:
    """Return the error that names the extra of a package.

    Parameters
    ----------
    what : str
        What needs the package, as the beginning of a sentence.
    package : str
        One of `EXTRAS`.
    extra : str, optional
        Another extra that brings the package, with all else that is needed.

    Returns
    -------
    MissingExtra

    Examples
    --------
    >>> print(missing("A file ending in .csv", "pandas"))
    A file ending in .csv needs pandas, which is not installed: pip install 'ladderholdout[tables]'
    """
    return MissingExtra(what, package, extra or EXTRAS[package])


@contextmanager
def needed(
    what: str, error: type[LadderHoldoutError] = MissingExtra, *, extra: str | None = None
) -> Iterator[None]:
    """Name the extra where an import inside the block finds no such package.

    Only a package of `EXTRAS` that is not there at all is named. One that is there and does not
    load, or misses something of its own, keeps its error, for which the extra is no remedy.

    Parameters
    ----------
    what : str
        What needs the package, as the beginning of a sentence.
    error : type, default=MissingExtra
        What is raised with the same text, for those who catch every fault of a ledger or vault.
    extra : str, optional
        As for `missing`: a package that several extras bring is named with the one that brings
        the rest too.

    Raises
    ------
    MissingExtra
        A package of `EXTRAS` is not installed; as `error`, where that is stated.

    Examples
    --------
    >>> with needed("Sums"):
    ...     from math import fsum
    """
    try:
        yield
    except ModuleNotFoundError as fault:
        package = (fault.name or "").partition(".")[0]
        # Where the package itself is loaded, it only lacks a module that was asked of it.
        if package not in EXTRAS or sys.modules.get(package) is not None:
            raise
        absent = missing(what, package, extra)
        raise (absent if error is MissingExtra else error(str(absent))) from None
