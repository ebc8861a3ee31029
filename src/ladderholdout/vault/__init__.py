"""The private file with the holdout's rows.

Workers and later sessions read the rows from here and nowhere else. Two things protect
them: only the owner may read the file, and no byte of it is unpickled before all of them
have given the SHA-256 that the ledger recorded, since unpickling runs code.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import platformdirs
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.fingerprint import fingerprint as fingerprint_of
from ladderholdout.fingerprint import row_hashes
from ladderholdout.ledger import file_of
from ladderholdout.vault import remote
from ladderholdout.vault.remote import is_url

PLACE = "LADDERHOLDOUT_VAULT"
"""Environment variable: the folder or URL where a process finds the vaults, by their names."""

Place: TypeAlias = Path | str
"""A folder or a file: a path, or a URL that fsspec knows."""

_REMEDY = "Open the holdout once with its rows, LadderHoldout(X, y, ...): that writes it anew."


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows:
    """The rows of a holdout. Shown, it tells their number alone.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix of n rows
        As the user gave it.
    y : ndarray, shape (n,) or (n, n_outputs)
    sample_weight : ndarray, shape (n,), or None

    Examples
    --------
    >>> import numpy as np
    >>> Rows(np.eye(2), np.array(["secret", "labels"]), None)
    Rows(n=2)
    """

    X: Any
    y: NDArray[Any]
    sample_weight: NDArray[Any] | None

    def __repr__(self) -> str:
        return f"Rows(n={len(self.y)})"


@dataclass(frozen=True, slots=True)
class _Hashed:
    """A file that hashes what is written to it."""

    file: BinaryIO
    sha256: Any = field(default_factory=hashlib.sha256)

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        return self.file.write(data)


def folder_of(path: str) -> Place:
    """Return the folder of a vault, as a URL where the vault has one."""
    return path.rpartition("/")[0] if is_url(path) else Path(path).parent


def beside(url: str, path: str | None) -> Path:
    """Return the folder of a vault, or where that of a ledger would lie by default.

    Parameters
    ----------
    url : str
        Of the ledger.
    path : str or None
        Of the vault.

    Returns
    -------
    Path

    Examples
    --------
    >>> print(beside("sqlite:////data/ledger.db", None))
    /data/vault
    """
    if path is not None and not is_url(path):
        return Path(path).parent
    ledger = file_of(url)
    parent = ledger.parent if ledger else platformdirs.user_data_path("ladderholdout")
    return parent / "vault"


def write(folder: Place, stem: str, rows: Rows) -> tuple[Place, str]:
    """Write the rows into a private file, all of it or nothing.

    Parameters
    ----------
    folder : Path or str
        Made with mode 0700 if it is not there. What fsspec writes to a URL is as private as
        the place behind it.
    stem : str
        The file is called ``<stem>.vault``; one of that name is replaced.
    rows : Rows

    Returns
    -------
    path : Path or str
        Of the file, which has mode 0600; a URL in a folder with one.
    digest : str
        SHA-256 of its bytes, in 64 hexadecimal digits.

    Raises
    ------
    InvalidArgument
        If ``stem`` is no plain file name.
    VaultError
        If the rows cannot be pickled or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = Rows(np.eye(2), np.array([0, 1]), None)
    ...     path, digest = write(Path(folder), "churn", rows)
    ...     again = read(path, digest, fingerprint_of(row_hashes(rows.X)))
    >>> path.name, again
    ('churn.vault', Rows(n=2))
    """
    if not stem or Path(stem).name != stem:
        raise InvalidArgument("stem", "a file name without a folder", repr(stem))
    if isinstance(folder, str):
        place = f"{folder}/{stem}.vault"
        with remote.opened(place, "wb") as file:
            return place, _dump(rows, file)
    path = folder / f"{stem}.vault"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = _replace(path, rows)
        _sync(folder)
    except OSError as error:
        raise VaultError(
            f"The vault {path} cannot be written: {error.strerror}. Give another folder, "
            "vault=..., or vault=False to keep no copy of the rows."
        ) from None
    return path, digest


def read(path: Place, digest: str, fingerprint: str) -> Rows:
    """Read the rows, after checking that they are private and unchanged.

    Parameters
    ----------
    path : Path or str
        What ``write`` gave. With ``LADDERHOLDOUT_VAULT`` the file of that name is read from
        there, which may be a URL.
    digest : str
        SHA-256 of the file, from the ledger.
    fingerprint : str
        Of the holdout, from the ledger.

    Returns
    -------
    Rows

    Raises
    ------
    VaultError
        If the file is missing, open to other users or changed, does not unpickle here, or
        holds the rows of another holdout.
    """
    data = _checked(path, digest)
    try:
        rows = Rows(*pickle.loads(data))
    except Exception as error:  # unpickling may raise anything, with anything in the text
        raise VaultError(
            f"The vault {path} cannot be unpickled with the packages installed here "
            f"({type(error).__name__}). {_REMEDY}"
        ) from None
    if fingerprint_of(row_hashes(rows.X)) != fingerprint:
        raise VaultError(f"The vault {path} holds the rows of another holdout. {_REMEDY}")
    return rows


def intact(path: Place, digest: str) -> bool:
    """Tell whether the file is there, private and unchanged, without unpickling it.

    Parameters
    ----------
    path : Path
        What ``write`` gave.
    digest : str
        SHA-256 of the file, from the ledger.

    Returns
    -------
    bool

    Examples
    --------
    >>> intact(Path("nowhere.vault"), 64 * "0")
    False
    """
    try:
        _checked(path, digest)
    except VaultError:
        return False
    return True


def _replace(path: Path, rows: Rows) -> str:
    # mkstemp makes the file with mode 0600: there is no moment at which others can read it.
    descriptor, temporary = tempfile.mkstemp(".part", f"{path.stem}.", path.parent)
    try:
        with open(descriptor, "wb") as file:
            digest = _dump(rows, file)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return digest


def _dump(rows: Rows, file: BinaryIO) -> str:
    hashed = _Hashed(file)
    content = (rows.X, rows.y, rows.sample_weight)
    try:
        pickle.dump(content, hashed, protocol=5)
    except OSError:
        raise
    except Exception as error:  # its text may show the cell that does not pickle
        raise VaultError(
            f"The rows cannot be pickled ({type(error).__name__}). Give X and y as arrays or "
            "DataFrames of plain values, or vault=False to keep no copy of them."
        ) from None
    digest: str = hashed.sha256.hexdigest()
    return digest


def _sync(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a copy of the rows; one that is gone already is fine.

    Raises
    ------
    VaultError
        It is there and stays.
    """
    if is_url(path):
        remote.remove(path)
        return
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as fault:
        raise VaultError(
            f"The former vault {path} cannot be removed: {fault.strerror}. Remove it by hand."
        ) from None


def _checked(path: Place, digest: str) -> bytes:
    """Return the very bytes that were checked: the file may change after this look."""
    place = _place(path)
    if isinstance(place, str):
        with remote.opened(place, "rb") as file:
            data, mode = bytes(file.read()), 0  # who may read there is not for a file mode to say
    else:
        data, mode = _local(place)
    if os.name != "nt" and mode & 0o077:
        raise VaultError(f"The vault {place} is open to other users. {_REMEDY}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise VaultError(f"The vault {place} is not the file that was written. {_REMEDY}")
    return data


def _place(path: Place) -> Place:
    """Return where this process finds a vault: where the user says, else where it was written."""
    text, stated = str(path), os.environ.get(PLACE)
    if stated:
        text = f"{stated.rstrip('/')}/{text.rpartition('/')[2]}"
    return text if is_url(text) else Path(text)


def _local(path: Path) -> tuple[bytes, int]:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall(), os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise VaultError(f"The vault {path} cannot be read: {error.strerror}. {_REMEDY}") from None
