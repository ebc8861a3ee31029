"""A vault behind a URL: whatever fsspec knows to open, imported when there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ladderholdout.errors import VaultError


def is_url(place: object) -> bool:
    """Tell a URL from a path.

    Parameters
    ----------
    place : object

    Returns
    -------
    bool

    Examples
    --------
    >>> is_url("s3://bucket/vault"), is_url("/data/vault")
    (True, False)
    """
    return isinstance(place, str) and "://" in place


@contextmanager
def opened(url: str, mode: str) -> Iterator[Any]:
    """Open what lies behind a URL, "rb" or "wb".

    Raises
    ------
    VaultError
        It cannot be reached, read or written, or fsspec is not installed.
    """
    with _said(url, "written" if "w" in mode else "read"):
        system, place = _system(url)
        with system.open(place, mode) as file:
            yield file


def remove(url: str) -> None:
    """Remove what lies behind a URL; what is gone already is fine.

    Raises
    ------
    VaultError
        It is there and stays, or cannot be reached.
    """
    with _said(url, "removed"):
        system, place = _system(url)
        if system.exists(place):
            system.rm_file(place)


def _system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise VaultError(
            f"The vault {_shown(url)} has a URL, and fsspec is not installed: "
            "pip install 'ladderholdout[remote]'."
        ) from None
    system, place = url_to_fs(url, auto_mkdir=True) if url.startswith("file:") else url_to_fs(url)
    return system, place


@contextmanager
def _said(url: str, what: str) -> Iterator[None]:
    try:
        yield
    except VaultError:
        raise
    except Exception as error:  # of whatever service, with anything in its text
        raise VaultError(
            f"The vault {_shown(url)} cannot be {what} ({type(error).__name__}). Check the URL "
            "and what it asks for, or name another place with LADDERHOLDOUT_VAULT."
        ) from None


def _shown(url: str) -> str:
    """Show a URL without a user's name, password or key."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
