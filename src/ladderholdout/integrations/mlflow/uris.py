"""Tracking URIs as people write them: checked before a search begins, with what works instead."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument

_ALLOWED = "a tracking URI, such as http://127.0.0.1:5000 or sqlite:///mlflow.db"
_WEB = ("http", "https")
_FILES = ("", "file")
_DATABASE = (".db", ".sqlite", ".sqlite3")
_PORT = re.compile(r"[A-Za-z0-9.-]+:\d+(/.*)?")
_SQLITE = "sqlite:///"
DATABASES = ("postgresql", "mysql", "sqlite", "mssql")
"""Schemes of the URIs that MLflow takes for databases."""


def printable_uri(uri: str) -> str:
    """Return a tracking URI as it may be printed: without a password.

    Examples
    --------
    >>> printable_uri("https://ada:secret@tracking.example/team")
    'https://...@tracking.example/team'
    >>> printable_uri("sqlite:///mlflow.db")
    'sqlite:///mlflow.db'
    """
    user, at, _ = urlsplit(uri).netloc.rpartition("@")
    return uri.replace(user + at, "...@", 1) if at else uri


def sqlite_file(uri: str) -> str | None:
    """Return the file of a SQLite store; None for one in memory, and for any other store.

    Examples
    --------
    >>> sqlite_file("sqlite:///mlflow.db"), sqlite_file("http://127.0.0.1:5000")
    ('mlflow.db', None)
    """
    file = uri.removeprefix(_SQLITE).partition("?")[0]
    return file if uri.startswith(_SQLITE) and file not in ("", ":memory:") else None


def whole(uri: str) -> str:
    """Return a tracking URI whose SQLite file has its whole path; any other as it is."""
    file = sqlite_file(uri)
    if file is None:
        return uri
    return _SQLITE + os.path.abspath(file) + uri.removeprefix(_SQLITE + file)


def is_own(uri: str) -> bool:
    """Return whether a tracking URI is that of MLflow's own settings."""
    import mlflow

    return whole(str(mlflow.get_tracking_uri())) == uri


def checked_uri(argument: str, stated: object) -> str:
    """Return a tracking URI that MLflow has a store for; None is MLflow's own setting.

    Raises
    ------
    InvalidArgument
        MLflow has none: an unknown scheme, a folder that this version of MLflow refuses, a file
        without its scheme.

    Examples
    --------
    >>> checked_uri("tracking_uri", "http://127.0.0.1:5000")
    'http://127.0.0.1:5000'
    """
    import mlflow

    given = mlflow.get_tracking_uri() if stated is None else stated
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    if not isinstance(given, str) or not given.strip():
        came = "empty" if isinstance(given, str) else as_given(given)
        raise InvalidArgument(argument, _ALLOWED, came, _instead(argument, "sqlite:///mlflow.db"))
    uri = given.strip()
    came = printable_uri(uri)
    if stated is None:
        came += ", MLflow's own setting (MLFLOW_TRACKING_URI, mlflow.set_tracking_uri)"
    scheme = urlsplit(uri).scheme
    if scheme in _WEB:
        return uri
    if _PORT.fullmatch(uri):
        raise InvalidArgument(argument, _ALLOWED, came, _instead(argument, f"http://{uri}"))
    if scheme in _FILES:
        _check_folder(argument, uri, came)
        return uri
    if scheme.partition("+")[0] in DATABASES:
        if scheme.partition("+")[0] == "sqlite" and not uri.startswith(f"{scheme}:///"):
            file = uri.partition(":")[2].lstrip("/")
            raise InvalidArgument(
                argument, _ALLOWED, came, _instead(argument, f"{_SQLITE}{file or 'mlflow.db'}")
            )
        return whole(uri)
    _check_other(argument, uri, came)
    return uri


def _check_folder(argument: str, uri: str, came: str) -> None:
    """Refuse a folder where this MLflow takes none, and a database's file as one."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    path = urlsplit(uri).path if uri.startswith("file:") else uri
    if path.endswith(_DATABASE):
        file = path if path.startswith("/") else path.removeprefix("./")
        raise InvalidArgument(argument, _ALLOWED, came, _instead(argument, _SQLITE + file))
    try:
        MlflowClient(tracking_uri=uri)
    except (MlflowException, OSError):
        beside = Path(path).with_name("mlflow.db") if path.strip("/.") else Path("mlflow.db")
        raise InvalidArgument(
            argument,
            _ALLOWED,
            f"{came}, a folder, which MLflow refuses to write to",
            f"{_instead(argument, f'{_SQLITE}{beside}')} mlflow migrate-filestore takes earlier "
            "runs along.",
        ) from None


def _check_other(argument: str, uri: str, came: str) -> None:
    """Refuse a scheme that neither MLflow nor a plugin of it knows."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        MlflowClient(tracking_uri=uri)
    except MlflowException:
        scheme, _, rest = uri.partition(":")
        near = difflib.get_close_matches(scheme, (*_WEB, *DATABASES, "file"), 1)
        better = f"{near[0]}:{rest}" if near else "sqlite:///mlflow.db"
        raise InvalidArgument(
            argument, _ALLOWED, came, _instead(argument, printable_uri(better))
        ) from None


def _instead(argument: str, uri: str) -> str:
    option = argument.replace("_", "-")
    own = " or MLFLOW_TRACKING_URI" if argument == "tracking_uri" else ""
    return f"Take {uri} ({argument}=, --{option}{own})."
