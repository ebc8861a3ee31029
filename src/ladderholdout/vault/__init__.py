"""The private file with the holdout's rows.

Workers and later sessions read the rows from here and nowhere else. Three things protect
them: only the owner may read the file, all of its bytes have to give the SHA-256 that the
ledger recorded before any of them is parsed, and they are data: a ledger states where its vault
is and what digest it has, so whoever can plant a ledger can plant a vault, and nothing that
one holds is ever run (`npz`, `values`, `frames`).
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, MissingExtra, VaultError
from ladderholdout.identity import fingerprint as fingerprint_of
from ladderholdout.identity import row_hashes
from ladderholdout.metrics.arrays import index_of, indexed
from ladderholdout.process import (
    is_of_another,
    is_open_to_others,
    lets_others_replace,
    make_private,
    open_to_read,
    sync,
    sync_folder,
)
from ladderholdout.vault import frames, npz, remote
from ladderholdout.vault.npz import Damaged, Node, NotData, Parts, Source
from ladderholdout.vault.remote import is_url

PLACE = "LADDERHOLDOUT_VAULT"
"""Environment variable: the folder or URL where a process finds the vaults, by their names."""

Place: TypeAlias = Path | str
"""A folder or a file: a path, or a URL that fsspec knows."""

_REMEDY = "Open the holdout once with its rows, LadderHoldout(X, y, ...): that writes it anew."
_CONVERTED = "columns with astype(str) and lists with numpy.asarray"
_SUFFIX = ".vault"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows:
    """The rows of a holdout. Its repr shows their number alone.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix of n rows
        The features as the user gave them.
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

    @property
    def labels(self) -> NDArray[Any]:
        """The labels with the index of the rows, as functions of the user's are given it."""
        return indexed(self.y, index_of(self.X))

    def __repr__(self) -> str:
        return f"Rows(n={len(self.y)})"


def folder_of(path: str) -> Place:
    """Return the folder of a vault, as a URL where the vault has one."""
    return path.rpartition("/")[0] if is_url(path) else Path(path).parent


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
        The file, which has mode 0600; a URL in a folder with one.
    digest : str
        SHA-256 of its bytes, in 64 hexadecimal digits.

    Raises
    ------
    InvalidArgument
        If ``stem`` is no plain file name, or the rows hold something else than data.
    MissingExtra
        If they need a package that is not installed.
    VaultError
        If the file cannot be written.

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
        raise InvalidArgument("stem", "a file name without a folder", as_given(stem))
    # Rows that are no data are refused before there is a file.
    parts, content = _packed({field.name: getattr(rows, field.name) for field in fields(rows)})
    if isinstance(folder, str):
        place = f"{folder}/{stem}{_SUFFIX}"
        with remote.opened(place, "wb") as file:
            return place, npz.write(file, parts, content)
    path = folder / f"{stem}{_SUFFIX}"
    try:
        make_private(folder)
        digest = _replace(path, parts, content)
        sync_folder(folder)
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
        The holdout's fingerprint, from the ledger.

    Returns
    -------
    Rows

    Raises
    ------
    VaultError
        If the file is missing, another user's, open to other users or changed, is in
        another format, needs a package that is not installed here, or holds the rows of another
        holdout.
    """
    file = _checked(path, digest)
    place = shown(path)
    try:
        rows = _rows_in(Source(file))
        fingerprint_read = fingerprint_of(row_hashes(rows.X))
    except MissingExtra as error:
        raise VaultError(
            f"The vault {place} cannot be read here. {error}, or give the rows themselves."
        ) from None
    except ImportError as error:
        raise VaultError(
            f"The vault {place} holds rows of a package that is not installed here "
            f"({error.name or 'unknown'}). Install it, or give the rows themselves."
        ) from None
    except Exception as error:  # of whatever reads the values, with anything in its text
        raise VaultError(
            f"The vault {place} cannot be read as rows ({type(error).__name__}). {_REMEDY}"
        ) from None
    if fingerprint_read != fingerprint:
        raise VaultError(f"The vault {place} holds the rows of another holdout. {_REMEDY}")
    return rows


def features_to_bytes(X: Any) -> bytes:
    """Write features alone, without labels or weights, in the format of a vault.

    Raises
    ------
    VaultError
        They hold something else than data.
    """
    try:
        parts, content = _packed({"X": X})
    except InvalidArgument as error:
        raise VaultError(
            f"These rows cannot be sent: X is {error.args[2]}. Their owner can register them "
            f"converted, {_CONVERTED}."
        ) from None
    file = io.BytesIO()
    npz.write(file, parts, content)
    return file.getvalue()


def features_from_bytes(data: bytes) -> Any:
    """Read features that `features_to_bytes` wrote.

    Raises
    ------
    VaultError
        They are damaged, or of a package that is not installed here.
    """
    try:
        source = Source(io.BytesIO(data))
        return frames.unpack(source.content["X"], "X", source)
    except MissingExtra as error:
        raise VaultError(f"The rows cannot be read here. {error}") from None
    except Exception as error:  # of whatever reads the values, with anything in its text
        raise VaultError(f"What came cannot be read as rows ({type(error).__name__}).") from None


def shown(path: Place) -> str:
    """Return the place of a vault as it may be printed: whoever wrote the ledger chose it."""
    return remote.shown(str(path)) if is_url(path) else str(path)


def _rows_in(source: Source) -> Rows:
    """Read the rows, none of which takes memory before there is known to be a label for it."""
    X, y, sample_weight = (source.content[field.name] for field in fields(Rows))
    labels = frames.unpack(y, "y", source)
    weights = frames.unpack(sample_weight, "sample_weight", source)
    arrays, n = [labels] if weights is None else [labels, weights], len(labels)
    if not all(isinstance(array, np.ndarray) and array.size >= len(array) == n for array in arrays):
        raise Damaged
    if X.get("shape", [n])[0] != n:
        raise Damaged
    rows = Rows(frames.unpack(X, "X", source), labels, weights)
    if (rows.X.shape[0] if hasattr(rows.X, "shape") else len(rows.X)) != n:
        raise Damaged
    return rows


def intact(path: Place, digest: str) -> bool:
    """Return whether a vault's file is there, private, unchanged and of this version's format.

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


def _replace(path: Path, parts: Parts, content: Mapping[str, Node]) -> str:
    # mkstemp makes the file with mode 0600: there is no moment at which others can read it.
    descriptor, temporary = tempfile.mkstemp(".part", f"{path.stem}.", path.parent)
    try:
        with open(descriptor, "wb") as file:
            digest = npz.write(file, parts, content)
            sync(file)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return digest


def _packed(values: Mapping[str, Any]) -> tuple[Parts, dict[str, Node]]:
    """Describe values by their names, all of which have to be data."""
    parts, content = Parts(), {}
    for name, value in values.items():
        try:
            content[name] = frames.pack(value, name, parts)
        except (LadderHoldoutError, MemoryError):
            raise
        except Exception as error:  # of a package's own types, and its text may show a cell
            what = str(error) if isinstance(error, NotData) else f"with {type(error).__name__}"
            raise InvalidArgument(
                name,
                "an array, a list, a sparse matrix or a DataFrame of numbers, texts and dates",
                f"a {type(value).__name__} {what}".rstrip(),
                f"Convert it, {_CONVERTED}, or give vault=False, which keeps no copy of the rows.",
            ) from None
    return parts, content


def remove(path: str) -> None:
    """Remove a copy of the rows; one that is gone already is fine.

    What is not called as `write` calls it is left alone: the path comes from the ledger.

    Raises
    ------
    VaultError
        It is there and stays.
    """
    if not path.endswith(_SUFFIX):
        return
    if is_url(path):
        remote.remove(path)
        return
    try:
        Path(path).unlink(missing_ok=True)
    except (OSError, ValueError) as fault:
        raise VaultError(
            f"The former vault {path} cannot be removed: {_why(fault)}. Remove it by hand."
        ) from None


def _checked(path: Place, digest: str) -> io.BytesIO:
    """Return the very bytes that were checked: the file may change after this."""
    place = _place(path)
    file = remote.read(place) if isinstance(place, str) else _local(place)
    if hashlib.sha256(file.getbuffer()).hexdigest() != digest:
        raise VaultError(f"The vault {shown(place)} is not the file that was written. {_REMEDY}")
    if npz.is_npz(file):
        return file
    raise VaultError(f"The vault {shown(place)} is no vault, and is not opened. {_REMEDY}")


def _place(path: Place) -> Place:
    """Return where this process finds a vault: the user's place, else where it was written."""
    text, stated = str(path), os.environ.get(PLACE)
    if stated:
        text = f"{stated.rstrip('/')}/{text.rpartition('/')[2]}"
    return text if is_url(text) else Path(text)


def _local(path: Path) -> io.BytesIO:
    try:
        # A pipe of that name must not keep us waiting for a writer.
        descriptor = open_to_read(path)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise VaultError(f"The vault {path} cannot be read: Not a file. {_REMEDY}")
            _check_owner(path, status)
            # Nothing else refers to what was read, so its memory becomes that of the BytesIO.
            return io.BytesIO(file.read(status.st_size))
    except (OSError, ValueError) as error:
        raise VaultError(f"The vault {path} cannot be read: {_why(error)}. {_REMEDY}") from None
    except MemoryError:
        raise VaultError(f"The vault {path} is larger than the free memory.") from None


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse what somebody else may have put there, or may read."""
    if is_open_to_others(status):
        raise VaultError(f"The vault {path} is open to other users. {_REMEDY}")
    if is_of_another(status):
        raise VaultError(f"The vault {path} belongs to another user. {_REMEDY}")
    if lets_others_replace(os.stat(path.parent)):
        raise VaultError(
            f"The vault {path} is in a folder that belongs to another user or that everybody "
            f"may write to. {_REMEDY[:-1]}, with vault= in a folder of your own."
        )


def _why(fault: OSError | ValueError) -> str:
    """Return why a path cannot be used; a byte of zero in one is no fault of the system."""
    return getattr(fault, "strerror", None) or "No such path"
