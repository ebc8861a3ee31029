"""Rows as a description in JSON and arrays in NumPy's own format, one after the other.

Each kind of value is taken apart into simpler ones until arrays, texts and numbers remain, and put
together again by public constructors. `KINDS` lists all kinds; nothing else is written, and no
other name is looked up when a file is read. pyarrow and polars write their own tables, as Arrow.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.arguments import as_given
from ladderholdout.extras import needed
from ladderholdout.vault import arrow

MAGIC = b"\x93NUMPY\x01\x00"
"""The first bytes of a file."""

_PLAIN = "biufcmMSU"  # kinds of dtypes whose bytes are the values
_CELLS = frozenset({str, bool, int, float, type(None)})  # JSON gives them back as they are
_HEADER = 2**14  # bytes that hold any header that NumPy reads
_ALIGNMENT = 64
_LAST_CHARACTER = 0x10FFFF
# Attributes that place the entries of a sparse matrix; other forms go by their coordinates.
_PLACES = dict.fromkeys(("bsr", "csc", "csr"), ("indices", "indptr")) | {"dia": ("offsets",)}
_TEXTS = ("str", "string[python]", "string[pyarrow]")
# A zone is a name, and no path to a file of zones.
_ZONE = re.compile(r"(?!dateutil/)[A-Za-z][A-Za-z0-9_+\-/:]{0,63}")


@dataclass(slots=True)
class Hashed:
    """A file that is hashed while it is written."""

    file: BinaryIO
    sha256: Any = field(default_factory=hashlib.sha256)

    def write(self, data: Any) -> int:
        """Write some bytes."""
        self.sha256.update(data)
        return self.file.write(data)


class Packed:
    """Values that can be written: each was found to be data when it was added."""

    def __init__(self) -> None:
        self._arrays: list[NDArray[Any]] = []
        self._content: dict[str, Any] = {}

    def add(self, name: str, value: Any) -> None:
        """Add an array, a list, a sparse matrix, a table or None.

        Raises
        ------
        NotData
            It, or a cell of it, is of a type that cannot be kept as data.
        """
        self._content[name] = self._apart(value)

    def write(self, file: BinaryIO) -> str:
        """Write the description and the arrays; return their SHA-256 in hexadecimal."""
        # With the widest numbers first, each array begins at a place that its numbers can be read
        # from, so that none is copied when the file is read.
        widest = sorted(range(len(self._arrays)), key=lambda at: -self._arrays[at].dtype.alignment)
        content = self._content | {"order": widest}
        # A text may have surrogates without a partner.
        text = json.dumps(content, ensure_ascii=False, check_circular=False, separators=(",", ":"))
        data = text.encode("utf-8", "surrogatepass")
        first = np.frombuffer(data + b" " * (-len(data) % _ALIGNMENT), dtype=np.uint8)
        hashed: Any = Hashed(file)
        for array in (first, *(self._arrays[at] for at in widest)):
            np.lib.format.write_array(hashed, array, version=(1, 0), allow_pickle=False)
        digest: str = hashed.sha256.hexdigest()
        return digest

    def _apart(self, value: Any) -> Any:
        kind = type(value)
        if kind in _CELLS:
            return value
        if kind is list:
            plain = _CELLS.issuperset(map(type, value))
            return value if plain else [self._apart(cell) for cell in value]
        if kind in (np.ndarray, np.memmap):
            return self._array(value)
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        if name not in KINDS:
            kept = hasattr(value, "dtype") and not isinstance(value, np.generic)
            raise arrow.NotData(
                f" of dtype {value.dtype}" if kept else f" with cells of type {kind.__name__}"
            )
        node = {"is": name}
        for key, part in KINDS[name][0](value).items():
            try:
                node[key] = self._apart(part)
            except arrow.NotData as fault:
                raise arrow.NotData(f"{fault}{_where(value, key)}") from None
        return node

    def _array(self, array: NDArray[Any]) -> Any:
        kind = array.dtype.kind
        if kind == "O":
            cells = self._apart(array.ravel().tolist())
            return {"is": "objects", "shape": array.shape, "cells": cells}
        if kind not in _PLAIN:
            raise arrow.NotData(f" of dtype {array.dtype.name}")
        self._arrays.append(array if array.dtype.itemsize else array.astype(f"{kind}1"))
        return {"is": "array", "at": len(self._arrays) - 1}


def _where(value: Any, part: str) -> str:
    """Name the place of a part, for an error."""
    if part.isdigit():
        return f" in the column {as_given(value.columns[int(part)])}"
    return {"index": " in its index", "columns": " in the names of its columns"}.get(part, "")


class Source:
    """What a file describes. Arrays share its memory.

    Parameters
    ----------
    file : BytesIO
        The whole file.
    most : int or float
        Rows that all values together may state to have: a range or a sparse matrix of any number
        of rows is described in a few bytes.

    Raises
    ------
    Damaged
        It is no such file.
    """

    def __init__(self, file: io.BytesIO, most: float = math.inf) -> None:
        data, place = np.frombuffer(file.getbuffer(), dtype=np.uint8), 0
        arrays = []
        while place < len(data):
            array, place = _array_at(data, place)
            arrays.append(array)
        self.content = json.loads(arrays[0].tobytes().decode("utf-8", "surrogatepass"))
        self._arrays = dict(zip(self.content["order"], arrays[1:], strict=True))
        self._most = most

    def value(self, node: Any) -> Any:
        """Put a value together; anything may be raised if it was not written by `Packed`."""
        if isinstance(node, list):
            return node if _CELLS.issuperset(map(type, node)) else [*map(self.value, node)]
        if not isinstance(node, dict):
            return node
        if node["is"] == "array":
            return self._arrays.pop(node["at"])  # used once: to repeat one takes few bytes
        if "shape" in node:
            self._most -= abs(node["shape"][0])
            if self._most < 0:
                raise arrow.Damaged
        parts = {name: self.value(part) for name, part in node.items() if name != "is"}
        return _objects(**parts) if node["is"] == "objects" else KINDS[node["is"]][1](**parts)


def _array_at(data: NDArray[np.uint8], place: int) -> tuple[NDArray[Any], int]:
    """Return the array that begins at a place, and where it ends."""
    header = io.BytesIO(data[place : place + _HEADER].tobytes())
    if np.lib.format.read_magic(header) != (1, 0):
        raise arrow.Damaged
    shape, turned, dtype = np.lib.format.read_array_header_1_0(header)
    place += header.tell()
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind not in _PLAIN or dtype.subdtype or not 0 <= size <= len(data) - place:
        raise arrow.Damaged
    values = data[place : place + size]
    # What no array of Python's own holds would end some later step in an error of its own.
    if dtype.kind == "b" and size and values.max() > 1:
        raise arrow.Damaged
    number = np.dtype("u4").newbyteorder(dtype.byteorder)
    if dtype.kind == "U" and size and values.view(number).max() > _LAST_CHARACTER:
        raise arrow.Damaged
    flat = values.view(dtype)
    return flat.reshape(shape[::-1]).T if turned else flat.reshape(shape), place + size


def _objects(shape: list[int], cells: list[Any]) -> NDArray[Any]:
    return np.fromiter(cells, dtype=object, count=len(cells)).reshape(shape)


# Sparse matrices


def _sparse_parts(matrix: Any) -> dict[str, Any]:
    shape, names = [int(length) for length in matrix.shape], _PLACES.get(matrix.format)
    matrix = matrix if names else matrix.tocoo()
    places = [getattr(matrix, name) for name in names] if names else list(matrix.coords)
    return {"shape": shape, "data": matrix.data, "places": places}


def _sparse(name: str, shape: list[int], data: Any, places: list[Any]) -> Any:
    form, _, kind = name.partition("_")
    made_of = (data, *places) if form in _PLACES else (data, tuple(places))
    make = getattr(scipy.sparse, name if form in _PLACES else f"coo_{kind}")
    matrix = make(made_of, shape=tuple(shape))
    if form in _PLACES and form != "dia":
        # In full: places outside of it would be read as memory of something else.
        matrix.check_format(full_check=True)
    return matrix.asformat(form)


# pandas


def _pandas() -> Any:
    """Import pandas, for who has a table of it; as Any, since what is read may be anything."""
    with needed("A DataFrame"):
        import pandas

    return pandas


def _frame_parts(frame: Any) -> dict[str, Any]:
    """Return the columns of each dtype of NumPy together, by their first place, and all others."""
    groups: dict[Any, list[int]] = {}
    for place, dtype in enumerate(frame.dtypes):
        together = isinstance(dtype, np.dtype) and dtype.kind in _PLAIN
        groups.setdefault(dtype if together else place, []).append(place)
    parts = {"index": frame.index, "columns": frame.columns}
    for key, places in groups.items():
        table = frame if len(groups) == 1 else frame.iloc[:, places]
        values = _column(frame.iloc[:, key]) if isinstance(key, int) else table.to_numpy()
        parts[str(places[0])] = [places, values]
    return parts


def _frame(index: Any, columns: Any, **blocks: tuple[list[int], Any]) -> Any:
    pd = _pandas()
    tables = [pd.DataFrame(index=range(len(index)))]
    for places, values in blocks.values():
        make = partial(pd.DataFrame, columns=places) if values.ndim == 2 else pd.Series
        tables.append(make(values, dtype=values.dtype, copy=False))
    frame = pd.concat(tables, axis=1)
    frame.columns = [place for places, _ in blocks.values() for place in places]
    frame = frame.sort_index(axis=1)
    frame.index, frame.columns = index, columns
    return frame


def _column(values: Any) -> Any:
    """Return the values of a Series or an Index as an array, of NumPy if their dtype is."""
    return values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array


def _series_parts(series: Any) -> dict[str, Any]:
    name = _pandas().Index([series.name])
    return {"values": _column(series), "index": series.index, "name": name}


def _series(values: Any, index: Any, name: Any) -> Any:
    return _pandas().Series(values, index, dtype=values.dtype, name=name[0], copy=False)


def _index_parts(index: Any) -> dict[str, Any]:
    freq = getattr(index, "freqstr", None)
    return {"values": _column(index), "names": list(index.names), "freq": freq}


def _index(values: Any, names: Sequence[Any] = (None,), freq: str | None = None) -> Any:
    index = _pandas().Index(values, dtype=values.dtype, name=names[0], tupleize_cols=False)
    if freq is not None:
        index.freq = freq
    return index


def _range_parts(index: Any) -> dict[str, Any]:
    names = list(index.names)
    return {"shape": [len(index)], "start": index.start, "step": index.step, "names": names}


def _range(shape: list[int], start: int, step: int, names: list[Any]) -> Any:
    return _pandas().RangeIndex(start, start + step * shape[0], step, name=names[0])


def _levels_parts(index: Any) -> dict[str, Any]:
    unnamed = index.set_names([None] * index.nlevels)  # a name may be a number as well
    levels = [_column(unnamed.get_level_values(level)) for level in range(index.nlevels)]
    return {"levels": levels, "names": list(index.names)}


def _levels(levels: list[Any], names: list[Any]) -> Any:
    return _pandas().MultiIndex.from_arrays(list(map(_index, levels)), names=names)


def _category_parts(values: Any) -> dict[str, Any]:
    categories = _column(values.categories)
    return {"codes": values.codes, "categories": categories, "ordered": bool(values.ordered)}


def _category(codes: Any, categories: Any, ordered: bool) -> Any:
    return _pandas().Categorical.from_codes(codes, _index(categories), ordered)


def _masked_parts(values: Any) -> dict[str, Any]:
    numbers = values.to_numpy(dtype=values.dtype.numpy_dtype, na_value=0)
    return {"values": numbers, "mask": values.isna()}


def _masked(kind: str, values: Any, mask: Any) -> Any:
    return getattr(_pandas().arrays, kind)(values, mask)


def _text_parts(values: Any) -> dict[str, Any]:
    name = str(values.dtype)
    # The text of a dtype of text is the same for both ways in which it is stored.
    name = f"string[{values.dtype.storage}]" if name == "string" else name
    if name not in _TEXTS or _pandas().api.types.pandas_dtype(name) != values.dtype:
        raise arrow.NotData(f" of dtype {values.dtype!r}")
    cells: Any = np.where(values.isna(), None, values.astype(object))
    return {"cells": cells.tolist(), "dtype": name}


def _text(cells: list[Any], dtype: str) -> Any:
    if dtype not in _TEXTS:
        raise arrow.Damaged
    if "pyarrow" in dtype:
        arrow.package()
    return _pandas().array(cells, dtype=dtype)


def _zoned_parts(values: Any) -> dict[str, Any]:
    zone = str(values.tz)
    if not _ZONE.fullmatch(zone) or _pandas().DatetimeTZDtype(values.unit, zone) != values.dtype:
        raise arrow.NotData(f" of dtype {values.dtype}")
    return {"utc": values.tz_convert(None).to_numpy(), "zone": zone}


def _zoned(utc: Any, zone: str) -> Any:
    if not _ZONE.fullmatch(zone):
        raise arrow.Damaged
    return _pandas().DatetimeIndex(utc).tz_localize("UTC").tz_convert(zone).array


def _of_arrow_parts(values: Any) -> dict[str, Any]:
    return _stream_parts(arrow.package().table({"": values}))


def _of_arrow(stream: Any) -> Any:
    return _pandas().arrays.ArrowExtensionArray(arrow.table_of(stream).column(0))


# Arrow and polars


def _stream_parts(table: Any) -> dict[str, Any]:
    return {"stream": arrow.stream_of(table)}


def _polars() -> Any:
    with needed("A DataFrame of polars"):
        import polars

    return polars


def _polars_parts(value: Any) -> dict[str, Any]:
    frame = _polars().DataFrame(value)
    for column in frame:
        if column.dtype.base_type() == _polars().Object:
            raise arrow.NotData(f" of dtype Object in the column {as_given(column.name)}")
    stream = io.BytesIO()
    frame.write_ipc_stream(stream)
    return {"stream": np.frombuffer(stream.getbuffer(), dtype="<u8")}


def _polars_frame(stream: Any) -> Any:
    try:
        frame = _polars().read_ipc_stream(io.BytesIO(arrow.checked(stream).tobytes()))
    except _polars().exceptions.PanicException:  # not derived from Exception
        raise arrow.Damaged from None
    if _polars().Object in frame.dtypes:
        raise arrow.Damaged
    return frame


KINDS: dict[str, tuple[Callable[[Any], dict[str, Any]], Callable[..., Any]]] = {
    "builtins.tuple": (lambda value: {"cells": list(value)}, lambda cells: tuple(cells)),
    **{
        f"scipy.{form}_{kind}": (_sparse_parts, partial(_sparse, f"{form}_{kind}"))
        for form in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
        for kind in ("array", "matrix")
    },
    "pandas.DataFrame": (_frame_parts, _frame),
    "pandas.Series": (_series_parts, _series),
    **{
        f"pandas.{kind}Index": (_index_parts, _index)
        for kind in ("", "Categorical", "Datetime", "Timedelta")
    },
    "pandas.RangeIndex": (_range_parts, _range),
    "pandas.MultiIndex": (_levels_parts, _levels),
    "pandas.Categorical": (_category_parts, _category),
    **{
        f"pandas.{kind}Array": (_masked_parts, partial(_masked, f"{kind}Array"))
        for kind in ("Boolean", "Floating", "Integer")
    },
    **{f"pandas.{kind}Array": (_text_parts, _text) for kind in ("String", "ArrowString")},
    "pandas.DatetimeArray": (_zoned_parts, _zoned),
    "pandas.ArrowExtensionArray": (_of_arrow_parts, _of_arrow),
    "polars.DataFrame": (_polars_parts, _polars_frame),
    "polars.Series": (_polars_parts, lambda stream: _polars_frame(stream).to_series()),
    "pyarrow.Table": (_stream_parts, arrow.table_of),
}
"""How each kind of value is taken apart, and put together."""
