"""A vault behind a URL, opened by fsspec, which is imported when there is one."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ladderholdout.errors import LadderHoldoutError, VaultError
from ladderholdout.extras import needed

# What holds files as they are. fsspec knows more, and a ledger may name any: filesystems that
# are made of other files (chained by "::", zip, reference) have run commands in such a file.
_KNOWN = {
    *("abfs", "abfss", "adl", "az", "file", "ftp", "gcs", "gs", "hdfs", "hf", "http", "https"),
    *("memory", "oci", "oss", "s3", "s3a", "sftp", "smb", "ssh", "webdav", "webdavs", "webhdfs"),
}
_PIECE = 2**24


def is_url(place: object) -> bool:
    """Return whether a place is a URL and no path.

    Examples
    --------
    >>> is_url("s3://bucket/vault"), is_url("/data/vault")
    (True, False)
    """
    return isinstance(place, str) and "://" in place


@contextmanager
def opened(url: str, mode: str) -> Iterator[Any]:
    """Open the object of a URL, "rb" or "wb".

    Raises
    ------
    VaultError
        It cannot be reached, read or written, or fsspec is not installed.
    """
    what = "written" if "w" in mode else "read"
    with _store(url, what) as (system, place), system.open(place, mode) as file:
        yield file


def read(url: str) -> io.BytesIO:
    """Return all bytes behind a URL.

    Raises
    ------
    VaultError
        They cannot be reached or read.
    """
    data = io.BytesIO()
    with opened(url, "rb") as file:
        shutil.copyfileobj(file, data, _PIECE)
    return data


def remove(url: str) -> None:
    """Remove the object of a URL; what is gone already is fine.

    Raises
    ------
    VaultError
        It is there and stays, or cannot be reached.
    """
    with _store(url, "removed") as (system, place):
        if system.exists(place):
            system.rm_file(place)


@contextmanager
def _store(url: str, what: str) -> Iterator[tuple[Any, str]]:
    """Yield the filesystem of a URL and the place in it; report whatever fails there."""
    scheme, vault = url.partition("://")[0], f"The vault {shown(url)}"
    if scheme not in _KNOWN or "::" in url:
        kinds = f"{', '.join(sorted(_KNOWN))}, none of them chained with '::'."
        raise VaultError(f"{vault} has a URL of a kind that is not opened. Known are {kinds}")
    try:
        with needed(f"{vault} has a URL, which", VaultError):
            from fsspec.core import url_to_fs
        yield url_to_fs(url, **({"auto_mkdir": True} if scheme == "file" else {}))
    except LadderHoldoutError:
        raise
    except Exception as error:  # of whatever service, with anything in its text
        raise VaultError(
            f"{vault} cannot be {what} ({type(error).__name__}). Check the URL and what it asks "
            "for, or name another place with LADDERHOLDOUT_VAULT."
        ) from None


def shown(url: str) -> str:
    """Return a URL without a user's name, password or key."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
