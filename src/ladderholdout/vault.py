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
from typing import Any, BinaryIO

import platformdirs
from numpy.typing import NDArray

from ladderholdout.errors import InvalidArgument, VaultError
from ladderholdout.fingerprint import fingerprint as fingerprint_of
from ladderholdout.fingerprint import row_hashes
from ladderholdout.ledger import file_of

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
    if path is not None:
        return Path(path).parent
    ledger = file_of(url)
    parent = ledger.parent if ledger else platformdirs.user_data_path("ladderholdout")
    return parent / "vault"


def write(folder: Path, stem: str, rows: Rows) -> tuple[Path, str]:
    """Write the rows into a private file, all of it or nothing.

    Parameters
    ----------
    folder : Path
        Made with mode 0700 if it is not there.
    stem : str
        The file is called ``<stem>.vault``; one of that name is replaced.
    rows : Rows

    Returns
    -------
    path : Path
        Of the file, which has mode 0600.
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
    path = folder / f"{stem}.vault"
    if not stem or path.parent != folder:
        raise InvalidArgument("stem", "a file name without a folder", repr(stem))
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


def read(path: Path, digest: str, fingerprint: str) -> Rows:
    """Read the rows, after checking that they are private and unchanged.

    Parameters
    ----------
    path : Path
        What ``write`` gave.
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


def intact(path: Path, digest: str) -> bool:
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


def _checked(path: Path, digest: str) -> bytes:
    """Return the very bytes that were checked: the file may change after this look."""
    try:
        with open(path, "rb", buffering=0) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.readall()
    except OSError as error:
        raise VaultError(f"The vault {path} cannot be read: {error.strerror}. {_REMEDY}") from None
    if os.name != "nt" and mode & 0o077:
        raise VaultError(f"The vault {path} is open to other users. {_REMEDY}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise VaultError(f"The vault {path} is not the file that was written. {_REMEDY}")
    return data
