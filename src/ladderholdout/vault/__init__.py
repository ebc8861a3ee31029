"""The private file with the holdout's rows.

Workers and later sessions read the rows from here and nowhere else. Three things protect
them: only the owner may read the file, all of its bytes have to give the SHA-256 that the
ledger recorded before any of them is parsed, and they are data: a ledger states where its vault
is and what digest it has, so whoever can plant a ledger can plant a vault, and nothing that
one holds is ever run (`values`).
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ladderholdout import process
from ladderholdout.arguments import as_given
from ladderholdout.errors import InvalidArgument, LadderHoldoutError, VaultError
from ladderholdout.extras import needed
from ladderholdout.identity import hashing
from ladderholdout.metrics.arrays import index_of, indexed
from ladderholdout.vault import arrow, values

PLACE = "LADDERHOLDOUT_VAULT"
"""Environment variable: the folder or URL where a process finds the vaults, by their names."""

Place: TypeAlias = Path | str
"""A folder or a file: a path, or a URL that fsspec knows."""

_REMEDY = "Open the holdout once with its rows, LadderHoldout(X, y, ...): that writes it anew."
_DATA = "an array, a list, a sparse matrix or a DataFrame of numbers, texts and dates"
_CONVERTED = "with numpy.asarray or astype(object), its columns with astype(str)"
_SUFFIX = ".vault"
# What holds files as they are. fsspec knows more, and a ledger may name any: filesystems that
# are made of other files (chained by "::", zip, reference) have run commands in such a file.
_KNOWN = {
    *("abfs", "abfss", "adl", "az", "file", "ftp", "gcs", "gs", "hdfs", "hf", "http", "https"),
    *("memory", "oci", "oss", "s3", "s3a", "sftp", "smb", "ssh", "webdav", "webdavs", "webhdfs"),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rows:
    """The rows of a holdout. Its repr shows their number alone.

    Parameters
    ----------
    X : array-like, DataFrame or sparse matrix of n rows
        The features as the user gave them.
    y : ndarray, shape (n,) or (n, n_outputs)
    sample_weight : ndarray, shape (n,), or None
    index_of_y : pandas.Index, optional
        That of the labels as they were given, if the features have none; a vault does not keep it.

    Examples
    --------
    >>> import numpy as np
    >>> Rows(np.eye(2), np.array(["secret", "labels"]), None)
    Rows(n=2)
    """

    X: Any
    y: NDArray[Any]
    sample_weight: NDArray[Any] | None
    index_of_y: Any = None

    @property
    def index(self) -> Any:
        """The index of pandas by which predictions are brought into the order of the rows."""
        return self.index_of_y if index_of(self.X) is None else index_of(self.X)

    @property
    def labels(self) -> NDArray[Any]:
        """The labels with the index of the rows, as functions of the user's are given it."""
        return indexed(self.y, index_of(self.X))

    def __repr__(self) -> str:
        return f"Rows(n={len(self.y)})"


def is_url(place: object) -> bool:
    """Return whether a place is a URL and no path.

    Examples
    --------
    >>> is_url("s3://bucket/vault"), is_url("/data/vault")
    (True, False)
    """
    return isinstance(place, str) and "://" in place


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
    VaultError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = Rows(np.eye(2), np.array([0, 1]), None)
    ...     path, digest = write(Path(folder), "churn", rows)
    ...     known = hashing.fingerprint(hashing.row_hashes(rows.X))
    ...     again = read(path, digest, known)
    >>> path.name, again
    ('churn.vault', Rows(n=2))
    """
    if not stem or Path(stem).name != stem:
        raise InvalidArgument("stem", "a file name without a folder", as_given(stem))
    # Rows that are no data are refused before there is a file.
    packed = _packed(X=rows.X, y=rows.y, sample_weight=rows.sample_weight)
    if isinstance(folder, str):
        place = f"{folder}/{stem}{_SUFFIX}"
        with _behind(place, "written") as (system, inside), system.open(inside, "wb") as file:
            return place, packed.write(file)
    path = folder / f"{stem}{_SUFFIX}"
    try:
        process.make_private(folder)
        # The file has mode 0600 when it is made: there is no moment at which others can read it.
        descriptor, temporary = tempfile.mkstemp(".part", f"{stem}.", folder)
        try:
            with open(descriptor, "wb") as file:
                digest = packed.write(file)
                process.sync(file)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        process.sync_folder(folder)
    except OSError as error:
        remedy = "Give another folder, vault=..., or vault=False to keep no copy of the rows."
        raise _fault(path, f"cannot be written: {error.strerror}", remedy) from None
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
    with _reading(f"The vault {shown(path)}", f" {_REMEDY}"):
        rows = _rows_in(file)
        same = hashing.fingerprint(hashing.row_hashes(rows.X)) == fingerprint
    if not same:
        raise _fault(path, "holds the rows of another holdout")
    return rows


def features_to_bytes(X: Any) -> bytes:
    """Write features alone, without labels or weights, in the format of a vault.

    Raises
    ------
    VaultError
        They hold something else than data.
    """
    try:
        packed = _packed(X=X)
    except InvalidArgument as error:
        fault = f"X is {error.args[2]}. Their owner can register them converted {_CONVERTED}."
        raise VaultError(f"These rows cannot be sent: {fault}") from None
    file = io.BytesIO()
    packed.write(file)
    return file.getvalue()


def features_from_bytes(data: bytes) -> Any:
    """Read features that `features_to_bytes` wrote.

    Raises
    ------
    VaultError
        They are damaged, or of a package that is not installed here.
    """
    with _reading("The answer of the server"):
        source = values.Source(io.BytesIO(data))
        return source.value(source.content["X"])


def shown(path: Place) -> str:
    """Return the place of a vault as it may be printed: a URL without a user, password or key."""
    if not is_url(path):
        return str(path)
    scheme, _, rest = str(path).partition("://")
    host, slash, inside = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{inside.partition('?')[0]}"


@contextmanager
def _reading(what: str, remedy: str = "") -> Iterator[None]:
    """Report any fault of reading values; its own text may have anything in it."""
    try:
        yield
    except ImportError as fault:
        cause = f"here. {fault}, or give the rows themselves."
        raise VaultError(f"{what} cannot be read {cause}") from None
    except Exception as fault:
        cause = f"as rows ({type(fault).__name__}).{remedy}"
        raise VaultError(f"{what} cannot be read {cause}") from None


def _rows_in(file: io.BytesIO) -> Rows:
    # There are labels, so no vault has more rows than bytes.
    source = values.Source(file, most=file.getbuffer().nbytes)
    X, y, weights = (source.value(source.content[name]) for name in ("X", "y", "sample_weight"))
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    for array in (y,) if weights is None else (y, weights):
        if not isinstance(array, np.ndarray) or not array.size >= len(array) == n:
            raise arrow.Damaged
    return Rows(X, y, weights)


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


def _packed(**named: Any) -> values.Packed:
    """Take values apart, all of which have to be data."""
    packed = values.Packed()
    for name, value in named.items():
        try:
            packed.add(name, value)
        except MemoryError:
            raise
        except Exception as error:  # of a package's own types, and its text may show a cell
            kind = type(value).__name__
            fault = error if isinstance(error, arrow.NotData) else f" with {type(error).__name__}"
            came = f"a {kind}{fault}".removesuffix(f" with cells of type {kind}")
            remedy = f"Convert it {_CONVERTED}, or give vault=False, which keeps no copy of it."
            raise InvalidArgument(name, _DATA, came, remedy) from None
    return packed


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
        with _behind(path, "removed") as (system, inside):
            if system.exists(inside):
                system.rm_file(inside)
        return
    try:
        Path(path).unlink(missing_ok=True)
    except (OSError, ValueError) as fault:
        remedy = f"cannot be removed: {_why(fault)}. Remove it by hand."
        raise VaultError(f"The former vault {path} {remedy}") from None


def _checked(path: Place, digest: str) -> io.BytesIO:
    """Return the very bytes that were checked: the file may change after this."""
    place = _place(path)
    if isinstance(place, str):
        with _behind(place, "read") as (system, inside):
            file = io.BytesIO(system.cat_file(inside))
    else:
        file = _local(place)
    if hashlib.sha256(file.getbuffer()).hexdigest() != digest:
        raise _fault(place, "is not the file that was written")
    if file.getbuffer()[: len(values.MAGIC)] != values.MAGIC:
        raise _fault(place, "is no vault, and is not opened")
    return file


def _place(path: Place) -> Place:
    """Return where this process finds a vault: the user's place, else where it was written."""
    text, stated = str(path), os.environ.get(PLACE)
    if stated:
        text = f"{stated.rstrip('/')}/{text.rpartition('/')[2]}"
    return text if is_url(text) else Path(text)


def _local(path: Path) -> io.BytesIO:
    try:
        # A pipe of that name must not keep us waiting for a writer.
        descriptor = process.open_to_read(path)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            # It may be another user's file, who reads it or has put it there.
            if not stat.S_ISREG(status.st_mode):
                raise _fault(path, "cannot be read: Not a file")
            if process.is_open_to_others(status):
                raise _fault(path, "is open to other users")
            if process.is_of_another(status):
                raise _fault(path, "belongs to another user")
            if process.lets_others_replace(os.stat(path.parent)):
                owner = "belongs to another user or that everybody may write to"
                remedy = f"{_REMEDY[:-1]}, with vault= in a folder of your own."
                raise _fault(path, f"is in a folder that {owner}", remedy)
            # Nothing else refers to what was read, so its memory becomes that of the BytesIO.
            return io.BytesIO(file.read(status.st_size))
    except (OSError, ValueError) as error:
        raise _fault(path, f"cannot be read: {_why(error)}") from None
    except MemoryError:
        raise VaultError(f"The vault {path} is larger than the free memory.") from None


@contextmanager
def _behind(url: str, what: str) -> Iterator[tuple[Any, str]]:
    """Yield the filesystem of a URL and the place in it; report whatever fails there.

    It is opened by fsspec, which is imported when there is a URL.
    """
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


def _fault(path: Place, what: str, remedy: str = _REMEDY) -> VaultError:
    return VaultError(f"The vault {shown(path)} {what}. {remedy}")


def _why(fault: OSError | ValueError) -> str:
    """Return why a path cannot be used; a byte of zero in one is no fault of the system."""
    return getattr(fault, "strerror", None) or "No such path"
