"""Between rows as people keep them and members of an .npz: arrays, lists, sparse matrices.

What comes back is of the same type as what was given, cell for cell. Cells of object arrays and
of lists are texts, booleans, integers, floats and None. DataFrames are in `frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.vault.npz import PLAIN, Node, NotData, Parts, Source

_SPARSE = tuple(
    f"{form}_{kind}"
    for form in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    for kind in ("array", "matrix")
)
_COMPRESSED = ("bsr", "csc", "csr")
_CELLS = (str, bool, int, float, type(None))
_DEEPEST = 32  # lists within lists; NumPy has no more dimensions in its former versions


def pack(value: Any, name: str, parts: Parts) -> Node:
    """Describe an array, a list, a sparse matrix or None, and keep what it holds.

    Raises
    ------
    NotData
        It, or a cell of it, is of a type that cannot be kept as data.
    """
    if value is None:
        return {"is": "none"}
    kind = type(value)
    if kind in (np.ndarray, np.memmap):
        return _pack_array(np.asarray(value), name, parts)
    if kind in (list, tuple):
        return _pack_list(value, name, parts)
    if scipy.sparse.issparse(value):
        return _pack_sparse(value, name, parts)
    raise NotData


def unpack(node: Node, name: str, source: Source) -> Any:
    """Read a value back; anything may be raised where it was not written by `pack`."""
    return _READERS[node["is"]](node, name, source)


def check_cells(cells: Iterable[Any], where: str = "") -> None:
    """Refuse cells that JSON does not give back as they are."""
    for kind in set(map(type, cells)):
        if kind not in _CELLS:
            raise NotData(f"with cells of type {kind.__name__}{where}")


# Arrays


def _pack_array(array: NDArray[Any], name: str, parts: Parts) -> Node:
    kind = array.dtype.kind
    if kind == "O":
        cells = array.ravel().tolist()
        check_cells(cells)
        parts.add_json(name, cells)
        return {"is": "objects", "shape": array.shape}
    if kind not in PLAIN:
        raise NotData(f"of dtype {array.dtype.name}")
    parts.add_array(name, array if array.dtype.itemsize else array.astype(f"{kind}1"))
    return {"is": "array"}


def _objects(node: Node, name: str, source: Source) -> NDArray[Any]:
    cells = source.json(name)
    return np.fromiter(cells, dtype=object, count=len(cells)).reshape(node["shape"])


# Lists


def _pack_list(rows: list[Any] | tuple[Any, ...], name: str, parts: Parts) -> Node:
    # JSON has no tuples, so rows are all of them tuples, or none is.
    tuples = bool(rows) and set(map(type, rows)) == {tuple}
    _check_rows(map(list, rows) if tuples else rows)
    parts.add_json(name, rows)
    return {"is": type(rows).__name__, "tuples": tuples}


def _check_rows(rows: Iterable[Any]) -> None:
    level = list(rows)
    for _ in range(_DEEPEST):
        check_cells(row for row in level if type(row) is not list)
        level = [cell for row in level if type(row) is list for cell in row]
    if level:
        raise NotData(f"with lists within lists, more than {_DEEPEST} deep")


def _list(node: Node, name: str, source: Source) -> Any:
    rows = source.json(name)
    return _LISTS[node["is"]](map(tuple, rows) if node["tuples"] else rows)


# Sparse matrices


def _pack_sparse(value: Any, name: str, parts: Parts) -> Node:
    kind = type(value)
    if kind.__name__ not in _SPARSE or kind is not getattr(scipy.sparse, kind.__name__, None):
        raise NotData
    if value.format in _COMPRESSED:
        arrays = {part: getattr(value, part) for part in ("data", "indices", "indptr")}
    elif value.format == "dia":
        arrays = {"data": value.data, "offsets": value.offsets}
    else:
        loose = value.tocoo()
        places = {f"at{axis}": along for axis, along in enumerate(loose.coords)}
        arrays = {"data": loose.data} | places
    for part, array in arrays.items():
        if array.dtype.kind not in PLAIN:
            raise NotData(f"with cells of dtype {array.dtype.name}")
        parts.add_array(f"{name}.{part}", array)
    return {"is": kind.__name__, "shape": value.shape}


def _sparse(node: Node, name: str, source: Source) -> Any:
    shape = tuple(node["shape"])
    form, _, kind = node["is"].partition("_")
    make, data = getattr(scipy.sparse, node["is"]), source.array(f"{name}.data")
    if form in _COMPRESSED:
        places = source.array(f"{name}.indices"), source.array(f"{name}.indptr")
        matrix = make((data, *places), shape=shape)
        # In full: places outside of it would be read as memory of something else.
        matrix.check_format(full_check=True)
        return matrix
    if form == "dia":
        return make((data, source.array(f"{name}.offsets")), shape=shape)
    coords = tuple(source.array(f"{name}.at{axis}") for axis in range(len(shape)))
    loose = getattr(scipy.sparse, f"coo_{kind}")((data, coords), shape=shape)
    return loose if form == "coo" else loose.asformat(form)


_LISTS: dict[str, type] = {"list": list, "tuple": tuple}
_READERS: dict[str, Callable[[Node, str, Source], Any]] = {
    "none": lambda node, name, source: None,
    "array": lambda node, name, source: source.array(name),
    "objects": _objects,
    "list": _list,
    "tuple": _list,
    **dict.fromkeys(_SPARSE, _sparse),
}
