"""DataFrames and Series as nodes of a manifest; pandas and polars are imported for theirs alone."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ladderholdout.extras import needed
from ladderholdout.vault import values
from ladderholdout.vault.container import Damaged, Node, NotData, Parts, Source
from ladderholdout.vault.values import ZONE, checked_zone, pandas_here

_MASKED = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean")


def pack(value: Any, parts: Parts) -> Node:
    """Describe a DataFrame, a Series, an Index, or what `values.pack` takes."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package not in ("pandas", "polars"):
        return values.pack(value, parts)
    if package == "polars":
        return _pack_polars(value, parts)
    pd = pandas_here()

    if kind is pd.DataFrame:
        return _pack_frame(value, parts)
    if kind is pd.Series:
        index, name = _pack_index(value.index, parts), values.pack_cells([value.name], parts)
        return {"is": "series", "index": index, "name": name} | {
            "values": _pack_column(value, parts)
        }
    if isinstance(value, pd.Index):
        return {"is": "index", "index": _pack_index(value, parts)}
    if isinstance(value, pd.api.extensions.ExtensionArray):
        return {"is": "column", "values": _pack_column(pd.Series(value), parts)}
    raise NotData(f"a {kind.__name__}")


def unpack(node: Node, source: Source) -> Any:
    """Read back what `pack` described.

    Raises
    ------
    MissingExtra
        The package that it belongs to is not installed.
    """
    read = _READERS.get(node["is"], values.unpack)
    return read(node, source)


# pandas: tables


def _pack_frame(frame: Any, parts: Parts) -> Node:
    groups: dict[Any, list[int]] = {}
    for position, dtype in enumerate(frame.dtypes):
        plain = isinstance(dtype, np.dtype) and dtype.kind != "O"
        groups.setdefault(dtype if plain else position, []).append(position)
    blocks = []
    for key, positions in groups.items():
        if isinstance(key, np.dtype):
            table = frame if len(groups) == 1 else frame.iloc[:, positions]
            packed = values.pack(table.to_numpy(), parts)
        else:
            packed = _pack_column(frame.iloc[:, key], parts)
        blocks.append({"at": positions, "values": packed})
    return {
        "is": "frame",
        "index": _pack_index(frame.index, parts),
        "columns": _pack_index(frame.columns, parts),
        "blocks": blocks,
    }


def _frame(node: Node, source: Source) -> Any:
    pd = pandas_here()

    index, columns = _index(node["index"], source), _index(node["columns"], source)
    pieces = [_piece(block["at"], _column(block["values"], source)) for block in node["blocks"]]
    places = [place for block in node["blocks"] for place in block["at"]]
    if sorted(places) != list(range(len(columns))):
        raise Damaged
    if not pieces:
        return pd.DataFrame(index=index, columns=columns)
    frame = pieces[0] if len(pieces) == 1 else pd.concat(pieces, axis=1)
    if places != sorted(places):
        frame = frame[sorted(places)]
    frame.index, frame.columns = index, columns
    return frame


def _piece(places: list[int], block: Any) -> Any:
    pd = pandas_here()

    if getattr(block, "ndim", 1) == 2:
        return pd.DataFrame(block, columns=pd.Index(places), copy=False)
    (place,) = places
    return pd.DataFrame({place: pd.Series(block, dtype=getattr(block, "dtype", None), copy=False)})


def _series(node: Node, source: Source) -> Any:
    pd = pandas_here()

    (name,) = values.unpack_cells(node["name"], source)
    column = _column(node["values"], source)
    index = _index(node["index"], source)
    return pd.Series(column, index=index, name=name, dtype=column.dtype, copy=False)


def _pack_index(index: Any, parts: Parts) -> Node:
    pd = pandas_here()

    names = {"names": values.pack_cells(list(index.names), parts)}
    if isinstance(index, pd.RangeIndex):
        return names | {"is": "range", "range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.MultiIndex):
        levels = [_pack_index(level, parts) for level in index.levels]
        codes = [values.pack(np.array(code), parts) for code in index.codes]
        return names | {"is": "multi", "levels": levels, "codes": codes}
    return names | {"is": "values", "values": _pack_column(index.to_series(), parts)}


def _index(node: Node, source: Source) -> Any:
    pd = pandas_here()

    names, kind = values.unpack_cells(node["names"], source), node["is"]
    if kind == "range":
        start, stop, step = map(int, node["range"])
        return pd.RangeIndex(start, stop, step, name=names[0])
    if kind == "multi":
        levels = [_index(level, source) for level in node["levels"]]
        codes = [values.unpack(code, source) for code in node["codes"]]
        return pd.MultiIndex(levels, codes, names=names, verify_integrity=True)
    column = _column(node["values"], source)
    return pd.Index(column, name=names[0], dtype=column.dtype, tupleize_cols=False)


# pandas: columns


def _pack_column(column: Any, parts: Parts) -> Node:
    pd = pandas_here()

    array, dtype = column.array, column.dtype
    if isinstance(dtype, np.dtype):
        return values.pack(column.to_numpy(), parts)
    if isinstance(array, pd.Categorical):
        codes, known = (
            values.pack(np.asarray(array.codes), parts),
            _pack_index(array.categories, parts),
        )
        return {"is": "categorical", "codes": codes, "categories": known} | {
            "ordered": bool(array.ordered)
        }
    if isinstance(dtype, pd.DatetimeTZDtype):
        zone = checked_zone(dtype)
        instants = column.dt.tz_convert(None).to_numpy()
        return {"is": "instants", "zone": zone, "values": values.pack(instants, parts)}
    if _MASKED.fullmatch(str(dtype)):
        inside = array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.type(0))
        missing = np.asarray(column.isna())
        return {
            "is": "masked",
            "values": values.pack(np.asarray(inside), parts),
            "mask": values.pack(missing, parts),
        }
    if isinstance(dtype, pd.StringDtype):
        cells = column.astype(object).to_numpy()
        return {"is": "text", "cells": _pack_some(cells, column, parts)} | {
            "storage": dtype.storage,
            "nan": dtype.na_value is not pd.NA,
        }
    if isinstance(dtype, pd.SparseDtype):
        return _pack_sparse(array, parts)
    if isinstance(dtype, pd.PeriodDtype):
        ordinals = np.asarray(array.asi8)
        return {"is": "periods", "dtype": str(dtype), "values": values.pack(ordinals, parts)}
    if isinstance(dtype, pd.IntervalDtype):
        left, right = (_pack_column(pd.Series(one), parts) for one in (array.left, array.right))
        return {"is": "intervals", "left": left, "right": right, "closed": array.closed}
    if _is_arrow(dtype):
        cells = column.to_numpy(dtype=object, na_value=None)
        return {"is": "arrow", "dtype": str(dtype), "cells": _pack_some(cells, column, parts)}
    raise NotData(f"one with a column of dtype {type(dtype).__name__}")


def _column(node: Node, source: Source) -> Any:
    kind = node["is"]
    if kind in _COLUMNS:
        return _COLUMNS[kind](node, source)
    return values.unpack(node, source)


def _pack_some(cells: Any, column: Any, parts: Parts) -> Node:
    """Describe cells with one None for every kind of missing one."""
    known = np.array(cells, dtype=object)
    known[np.asarray(column.isna())] = None
    return values.pack_cells(known.tolist(), parts)


def _pack_sparse(array: Any, parts: Parts) -> Node:
    inside = values.pack(np.asarray(array.sp_values), parts)
    places = np.asarray(array.sp_index.indices, dtype=np.int32)
    return {
        "is": "sparse",
        "n": len(array),
        "values": inside,
        "places": values.pack(places, parts),
        "fill": values.pack_cells([array.fill_value], parts),
        "block": hasattr(array.sp_index, "blocs"),
    }


def _is_arrow(dtype: Any) -> bool:
    """Return whether pandas finds an Arrow type again by its text."""
    pd = pandas_here()

    text = str(dtype)
    try:
        return text.endswith("[pyarrow]") and bool(pd.api.types.pandas_dtype(text) == dtype)
    except Exception:
        return False


def _categorical(node: Node, source: Source) -> Any:
    pd = pandas_here()

    codes = values.unpack(node["codes"], source)
    known = _index(node["categories"], source)
    return pd.Categorical.from_codes(codes, categories=known, ordered=bool(node["ordered"]))


def _instants(node: Node, source: Source) -> Any:
    pd = pandas_here()

    if not ZONE.fullmatch(node["zone"]):
        raise Damaged
    naive = pd.Series(values.unpack(node["values"], source))
    return naive.dt.tz_localize("UTC").dt.tz_convert(node["zone"]).array


def _masked(node: Node, source: Source) -> Any:
    pd = pandas_here()

    inside, mask = values.unpack(node["values"], source), values.unpack(node["mask"], source)
    made = {"b": pd.arrays.BooleanArray, "f": pd.arrays.FloatingArray}
    return made.get(inside.dtype.kind, pd.arrays.IntegerArray)(inside, mask)


def _text(node: Node, source: Source) -> Any:
    pd = pandas_here()

    if str(node["storage"]).startswith("pyarrow"):
        _arrow_is_here()
    missing = np.nan if node["nan"] else pd.NA
    dtype = pd.StringDtype(node["storage"], na_value=missing)
    cells = np.array(values.unpack_cells(node["cells"], source), dtype=object)
    return pd.array(cells, dtype=dtype)


def _sparse(node: Node, source: Source) -> Any:
    pd = pandas_here()

    inside, (fill,) = (
        values.unpack(node["values"], source),
        values.unpack_cells(node["fill"], source),
    )
    places, kind = values.unpack(node["places"], source), "block" if node["block"] else "integer"
    made = pd.arrays.SparseArray
    if hasattr(made, "from_indices"):
        return made.from_indices(inside, places, int(node["n"]), fill_value=fill, kind=kind)
    # Before pandas 3 such an array took an index, whose class has no public name.
    index = type(made([0], kind="integer").sp_index)(int(node["n"]), places)
    index = index.to_block_index() if node["block"] else index
    return made(inside, sparse_index=index, fill_value=fill)


def _periods(node: Node, source: Source) -> Any:
    pd = pandas_here()

    dtype = pd.api.types.pandas_dtype(node["dtype"])
    if not isinstance(dtype, pd.PeriodDtype):
        raise Damaged
    return pd.arrays.PeriodArray(values.unpack(node["values"], source), dtype=dtype)


def _intervals(node: Node, source: Source) -> Any:
    pd = pandas_here()

    left, right = (pd.Index(_column(node[name], source)) for name in ("left", "right"))
    return pd.arrays.IntervalArray.from_arrays(left, right, closed=node["closed"])


def _arrow(node: Node, source: Source) -> Any:
    pd = pandas_here()

    if not str(node["dtype"]).endswith("[pyarrow]"):
        raise Damaged
    _arrow_is_here()
    return pd.array(
        values.unpack_cells(node["cells"], source),
        dtype=pd.api.types.pandas_dtype(node["dtype"]),
    )


def _arrow_is_here() -> None:
    """Name the extra where Arrow is missing: pandas would raise an error of its own."""
    with needed("A column of Arrow's"):
        import pyarrow  # noqa: F401


# polars


def _pack_polars(value: Any, parts: Parts) -> Node:
    with needed("A DataFrame of polars"):
        import polars as pl

    if type(value) not in (pl.DataFrame, pl.Series):
        raise NotData(f"a {type(value).__name__}")
    frame = value.to_frame() if isinstance(value, pl.Series) else value
    if any(one.base_type() == pl.Object for one in frame.dtypes):
        raise NotData("one with a column of Python objects")
    kind = "polars_series" if isinstance(value, pl.Series) else "polars"
    # Arrow, which polars writes and reads by itself, and which holds no objects.
    buffer = io.BytesIO()
    frame.write_ipc(buffer)
    return {"is": kind, "part": parts.add(buffer.getvalue())}


def _polars(node: Node, source: Source) -> Any:
    with needed("A DataFrame of polars"):
        import polars as pl

    data = source.part(node["part"]).tobytes()
    try:
        frame = pl.read_ipc(io.BytesIO(data))
    except pl.exceptions.PanicException:  # not derived from Exception
        raise Damaged from None
    if any(one.base_type() == pl.Object for one in frame.dtypes):
        raise Damaged
    return frame.to_series() if node["is"] == "polars_series" else frame


_READERS: dict[str, Callable[[Node, Source], Any]] = {
    "frame": _frame,
    "series": _series,
    "index": lambda node, source: _index(node["index"], source),
    "column": lambda node, source: _column(node["values"], source),
    "polars": _polars,
    "polars_series": _polars,
}
_COLUMNS: dict[str, Callable[[Node, Source], Any]] = {
    "categorical": _categorical,
    "instants": _instants,
    "masked": _masked,
    "text": _text,
    "sparse": _sparse,
    "periods": _periods,
    "intervals": _intervals,
    "arrow": _arrow,
}
