"""Between rows as people keep them and nodes of a manifest: arrays, lists, sparse matrices, cells.

What comes back is of the same type as what was given, cell for cell. DataFrames are in `frames`;
pandas is imported only for who has cells of its types.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import re
import zoneinfo
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from ladderholdout.extras import needed
from ladderholdout.vault.container import Damaged, Node, NotData, Parts, Source, shape_of, total

# As pandas shows the zones that it finds again by name; no path to a file of zones.
ZONE = re.compile(r"(?!dateutil/)[A-Za-z][A-Za-z0-9_+\-/:]{0,63}")
_PLAIN = "biufcmMSU"
_SPARSE = tuple(
    f"{form}_{kind}"
    for form in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    for kind in ("array", "matrix")
)
_COMPRESSED = ("bsr", "csc", "csr")
_LAST_CHARACTER = 0x10FFFF
_BY_TEXT: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    # Hexadecimal: Python reads no more than some thousand decimal digits.
    "integers": (int, hex, lambda text: int(text, 16)),
    "dates": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    "decimals": (decimal.Decimal, str, decimal.Decimal),
    "fractions": (fractions.Fraction, str, fractions.Fraction),
}


def pack(value: Any, parts: Parts) -> Node:
    """Describe a value, and keep its bytes.

    Parameters
    ----------
    value : object
        An array, a list, a sparse matrix, or None.
    parts : Parts

    Returns
    -------
    Node

    Raises
    ------
    NotData
        It, or a cell of it, is of a type that cannot be kept as data.
    """
    if value is None:
        return {"is": "none"}
    kind = type(value)
    if kind in (np.ndarray, np.memmap):
        return _pack_array(np.asarray(value), parts)
    if kind in (list, tuple):
        return {"is": kind.__name__, "cells": pack_cells(value, parts)}
    if scipy.sparse.issparse(value):
        return _pack_sparse(value, parts)
    raise NotData(f"a {kind.__name__}")


def unpack(node: Node, source: Source) -> Any:
    """Read a value back; anything may be raised where it was not written by `pack`."""
    return _READERS[node["is"]](node, source)


# Arrays


def _pack_array(array: NDArray[Any], parts: Parts) -> Node:
    flags = array.flags
    turned = bool(flags.f_contiguous and not flags.c_contiguous)
    inside = array.T if turned else array
    node: Node = {"is": "array", "shape": list(array.shape), "turned": turned}
    if array.dtype.kind == "O":
        return node | {"is": "objects", "cells": pack_cells(inside.ravel().tolist(), parts)}
    if isinstance(array.dtype, np.dtypes.StringDType):
        return node | _pack_strings(inside, parts)
    if array.dtype.kind not in _PLAIN:
        raise NotData(f"an array of dtype {array.dtype.name}")
    if not array.dtype.itemsize:
        inside = inside.astype(f"{array.dtype.kind}1")
    return node | {"dtype": inside.dtype.str, "part": parts.add(inside)}


def _pack_strings(array: NDArray[Any], parts: Parts) -> Node:
    dtype: Any = array.dtype
    missing = [dtype.na_object] if hasattr(dtype, "na_object") else []
    return {
        "is": "strings",
        "coerce": bool(dtype.coerce),
        "missing": pack_cells(missing, parts),
        "cells": pack_cells(array.astype(object).ravel().tolist(), parts),
    }


def _array(node: Node, source: Source) -> NDArray[Any]:
    stated = node["dtype"]
    if not isinstance(stated, str) or stated.lstrip("<>|=")[:1] not in _PLAIN:
        raise Damaged
    dtype, part = np.dtype(stated), source.part(node["part"])
    if dtype.kind not in _PLAIN or dtype.fields or dtype.subdtype or not dtype.itemsize:
        raise Damaged
    flat = part.view(dtype)
    # What no array of Python's own holds would end some later step in an error of its own.
    if dtype.kind == "b" and flat.size and part.max() > 1:
        raise Damaged
    if dtype.kind == "U" and flat.size:
        characters = part.view(np.dtype("u4").newbyteorder(dtype.byteorder))
        if characters.max() > _LAST_CHARACTER:
            raise Damaged
    return _shaped(flat, node)


def _objects(node: Node, source: Source) -> NDArray[Any]:
    return _shaped(_object_array(unpack_cells(node["cells"], source)), node)


def _strings(node: Node, source: Source) -> NDArray[Any]:
    missing = unpack_cells(node["missing"], source)
    stated = {"na_object": missing[0]} if missing else {}
    dtype: Any = np.dtypes.StringDType(coerce=node["coerce"], **stated)
    cells = _object_array(unpack_cells(node["cells"], source))
    return _shaped(cells.astype(dtype), node)


def _shaped(flat: NDArray[Any], node: Node) -> NDArray[Any]:
    shape = shape_of(node["shape"])
    if math.prod(shape) != flat.size:
        raise Damaged
    return flat.reshape(shape[::-1]).T if node["turned"] else flat.reshape(shape)


def _object_array(cells: Sequence[Any]) -> NDArray[Any]:
    # Not np.array: it would make more dimensions of cells that are lists.
    found = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        found[place] = cell
    return found


# Sparse matrices


def _pack_sparse(value: Any, parts: Parts) -> Node:
    kind = type(value)
    if kind.__name__ not in _SPARSE or kind is not getattr(scipy.sparse, kind.__name__, None):
        raise NotData(f"a {kind.__name__}")
    form = value.format
    if form in _COMPRESSED:
        inside = {name: getattr(value, name) for name in ("data", "indices", "indptr")}
    elif form == "dia":
        inside = {"data": value.data, "offsets": value.offsets}
    else:
        loose = value.tocoo()
        inside = {"data": loose.data, **{f"at{axis}": at for axis, at in enumerate(loose.coords)}}
    arrays = {name: _pack_array(np.asarray(one), parts) for name, one in inside.items()}
    return {"is": kind.__name__, "shape": list(value.shape), "arrays": arrays}


def _sparse(node: Node, source: Source) -> Any:
    name, shape = node["is"], shape_of(node["shape"])
    form, _, kind = name.partition("_")
    make = getattr(scipy.sparse, name)
    arrays = {key: _array(one, source) for key, one in node["arrays"].items()}
    if form in _COMPRESSED:
        found = make((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
        # In full: places outside of it would be read as memory of something else.
        found.check_format(full_check=True)
        return found
    if form == "dia":
        return make((arrays["data"], arrays["offsets"]), shape=shape)
    coords = tuple(arrays[f"at{axis}"] for axis in range(len(shape)))
    loose = getattr(scipy.sparse, f"coo_{kind}")((arrays["data"], coords), shape=shape)
    return loose if form == "coo" else loose.asformat(form)


# Cells: Python's own values, of several types at will


def pack_cells(values: Sequence[Any], parts: Parts) -> Node:
    """Describe cells by their types, and keep those of each type together."""
    types = list(map(type, values))
    kinds = {kind: code for code, kind in enumerate(dict.fromkeys(types))}
    if len(kinds) > 255:
        raise NotData("one with cells of more than 255 types")
    node: Node = {"n": len(types), "kinds": []}
    for kind in kinds:
        same = len(kinds) == 1
        these = values if same else [v for v, t in zip(values, types, strict=True) if t is kind]
        node["kinds"].append(_pack_kind(kind, these, parts))
    if len(kinds) > 1:
        codes = np.fromiter(map(kinds.__getitem__, types), dtype=np.uint8, count=len(types))
        node["codes"] = parts.add(codes)
    return node


def unpack_cells(node: Node, source: Source) -> list[Any]:
    """Read cells back."""
    kinds = [_CELLS[one["is"]](one, source) for one in node["kinds"]]
    if not kinds:
        return []
    if len(kinds) == 1:
        return list(kinds[0])
    codes = source.part(node["codes"]).tolist()
    each = [iter(one) for one in kinds]
    found = [next(each[code]) for code in codes]
    if len(found) != node["n"] or len(found) != sum(map(len, kinds)):
        raise Damaged
    return found


def _pack_kind(kind: type, these: Sequence[Any], parts: Parts) -> Node:
    if kind is type(None):
        return {"is": "none", "n": len(these)}
    if kind in (bool, float) or (kind is int and _fit(these)):
        return {"is": kind.__name__, "values": _pack_array(np.array(these, dtype=kind), parts)}
    if kind in (str, bytes, np.str_, np.bytes_):
        places = {text: code for code, text in enumerate(dict.fromkeys(these))}
        if 2 * len(places) <= len(these):
            codes = np.fromiter(map(places.__getitem__, these), dtype=np.int64, count=len(these))
            node = {"is": "repeated", "codes": _pack_array(codes, parts)}
            return node | {"cells": pack_cells(list(places), parts)}
        return {"is": "texts", "type": kind.__name__} | _pack_texts(these, parts)
    if issubclass(kind, np.generic) and (array := np.array(these)).dtype.kind in "biufcmM":
        return {"is": "scalars", "values": _pack_array(array, parts)}
    if kind in (list, tuple):
        inside = [cell for one in these for cell in one]
        lengths = np.array([len(one) for one in these], dtype=np.int64)
        node = {"is": "rows", "type": kind.__name__, "lengths": _pack_array(lengths, parts)}
        return node | {"cells": pack_cells(inside, parts)}
    if kind is np.ndarray:
        return _pack_arrays(these, parts)
    for name, (known, write, _) in _BY_TEXT.items():
        if kind is known:
            return {"is": name} | _pack_texts([write(one) for one in these], parts)
    if kind is datetime.datetime:
        texts = [one.replace(tzinfo=None, fold=0).isoformat() for one in these]
        zones = _pack_texts([_zone_text(one.tzinfo) for one in these], parts)
        folds = _pack_array(np.array([one.fold for one in these], dtype=np.uint8), parts)
        return {"is": "datetimes", "zones": zones, "folds": folds} | _pack_texts(texts, parts)
    if kind is datetime.timedelta:
        counts = np.array([(one.days, one.seconds, one.microseconds) for one in these])
        return {"is": "timedeltas", "values": _pack_array(counts.astype(np.int64), parts)}
    if kind.__module__.partition(".")[0] == "pandas":
        return _pack_pandas(kind, these, parts)
    raise NotData(f"one with cells of type {kind.__name__}")


def _fit(integers: Sequence[int]) -> bool:
    return min(integers) >= -(2**63) and max(integers) < 2**63


def _pack_texts(texts: Sequence[Any], parts: Parts) -> Node:
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    if texts and isinstance(texts[0], bytes):
        data = b"".join(texts)
    else:
        data = "".join(texts).encode("utf-8", "surrogatepass")
    return {"lengths": _pack_array(lengths, parts), "part": parts.add(data)}


def _pack_arrays(these: Sequence[Any], parts: Parts) -> Node:
    first = these[0]
    alike = all(one.dtype == first.dtype and one.shape == first.shape for one in these)
    if alike and first.dtype.kind in _PLAIN:
        return {"is": "stack", "values": _pack_array(np.stack(these), parts)}
    return {"is": "arrays", "values": [_pack_array(one, parts) for one in these]}


def _texts(node: Node, source: Source) -> list[Any]:
    lengths = _array(node["lengths"], source).tolist()
    data: Any = source.part(node["part"]).tobytes()
    kind = node.get("type", "str")
    if kind in ("str", "str_"):
        data = data.decode("utf-8", "surrogatepass")
    if total(lengths) != len(data):
        raise Damaged
    found = [data[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]
    return found if kind in ("str", "bytes") else list(map(_NUMPY_TEXTS[kind], found))


def _repeated(node: Node, source: Source) -> list[Any]:
    codes, known = _array(node["codes"], source), unpack_cells(node["cells"], source)
    if codes.size and not 0 <= codes.min() <= codes.max() < len(known):
        raise Damaged
    return [known[code] for code in codes.tolist()]


def _rows(node: Node, source: Source) -> list[Any]:
    lengths = _array(node["lengths"], source).tolist()
    cells = unpack_cells(node["cells"], source)
    if total(lengths) != len(cells):
        raise Damaged
    kind = _LISTS[node["type"]]
    return [kind(cells[start:end]) for start, end in pairwise(accumulate(lengths, initial=0))]


def _nones(node: Node, source: Source) -> list[None]:
    # As many as stated take memory: no file of a few bytes states billions.
    if not 0 <= node["n"] <= 2**31:
        raise Damaged
    return [None] * node["n"]


def _datetimes(node: Node, source: Source) -> list[datetime.datetime]:
    zones = {text: _zone(text) for text in set(_texts(node["zones"], source))}
    return [
        datetime.datetime.fromisoformat(text).replace(tzinfo=zones[zone], fold=fold)
        for text, zone, fold in zip(
            _texts(node, source),
            _texts(node["zones"], source),
            _array(node["folds"], source).tolist(),
            strict=True,
        )
    ]


def _zone_text(zone: Any) -> str:
    if zone is None:
        return ""
    if type(zone) is datetime.timezone:
        offset = zone.utcoffset(None)
        return f"+{offset // datetime.timedelta(microseconds=1)}"
    if type(zone) is zoneinfo.ZoneInfo and zone.key:
        return zone.key
    raise NotData(f"one with dates in a zone of type {type(zone).__name__}")


def _zone(text: str) -> datetime.tzinfo | None:
    if not text:
        return None
    if text.startswith("+"):
        return datetime.timezone(datetime.timedelta(microseconds=int(text[1:])))
    return zoneinfo.ZoneInfo(text)


def _by_text(name: str) -> Callable[[Node, Source], list[Any]]:
    return lambda node, source: list(map(_BY_TEXT[name][2], _texts(node, source)))


# Cells of pandas' own types


def _pack_pandas(kind: type, these: Sequence[Any], parts: Parts) -> Node:
    """Describe cells of one of pandas' own types."""
    pd = pandas_here()

    for name, missing in (("NA", pd.NA), ("NaT", pd.NaT)):
        if kind is type(missing):
            return {"is": "missing", "which": name, "n": len(these)}
    if kind in (pd.Timestamp, pd.Timedelta):
        count = np.array([one.asm8.view("i8") for one in these], dtype=np.int64)
        units = pack_cells([one.unit for one in these], parts)
        node = {"values": pack(count, parts), "units": units}
        if kind is pd.Timedelta:
            return {"is": "durations"} | node
        zones = [one.tz and checked_zone(pd.DatetimeTZDtype(one.unit, one.tz)) for one in these]
        return {"is": "timestamps", "zones": pack_cells(zones, parts)} | node
    raise NotData(f"one with cells of type {kind.__name__}")


def _unpack_pandas(node: Node, source: Source) -> list[Any]:
    """Read such cells back."""
    pd = pandas_here()

    if node["is"] == "missing":
        if not 0 <= node["n"] <= 2**31:
            raise Damaged
        return [{"NA": pd.NA, "NaT": pd.NaT}[node["which"]]] * node["n"]
    counts = unpack(node["values"], source).tolist()
    units = unpack_cells(node["units"], source)
    if not set(units) <= {"s", "ms", "us", "ns"}:
        raise Damaged
    if node["is"] == "durations":
        both = zip(counts, units, strict=True)
        return [pd.Timedelta(np.timedelta64(count, unit)) for count, unit in both]
    zones = unpack_cells(node["zones"], source)
    if not all(zone is None or ZONE.fullmatch(zone) for zone in set(zones)):
        raise Damaged
    return [
        _timestamp(count, unit, zone)
        for count, unit, zone in zip(counts, units, zones, strict=True)
    ]


def _timestamp(count: int, unit: str, zone: str | None) -> Any:
    pd = pandas_here()

    naive = pd.Timestamp(np.int64(count).view(f"M8[{unit}]"))
    return naive if zone is None else naive.tz_localize("UTC").tz_convert(zone)


def pandas_here() -> Any:
    """Import pandas, for who gave a DataFrame of it; as Any, since what is read may be anything."""
    with needed("A DataFrame"):
        import pandas

    return pandas


def checked_zone(dtype: Any) -> str:
    """Return the name of a zone that pandas finds again by it."""
    pd = pandas_here()

    zone = str(dtype.tz)
    try:
        found = pd.DatetimeTZDtype(dtype.unit, zone)
    except Exception:
        found = None
    if not ZONE.fullmatch(zone) or found != dtype:
        raise NotData(f"one with dates in a zone of type {type(dtype.tz).__name__}")
    return zone


_LISTS = {"list": list, "tuple": tuple}
_NUMPY_TEXTS = {"str_": np.str_, "bytes_": np.bytes_}
_READERS: dict[str, Callable[[Node, Source], Any]] = {
    "none": lambda node, source: None,
    "array": _array,
    "objects": _objects,
    "strings": _strings,
    "list": lambda node, source: unpack_cells(node["cells"], source),
    "tuple": lambda node, source: tuple(unpack_cells(node["cells"], source)),
    **dict.fromkeys(_SPARSE, _sparse),
}
_CELLS: dict[str, Callable[[Node, Source], list[Any]]] = {
    "none": _nones,
    **dict.fromkeys(
        ("bool", "float", "int"), lambda node, source: _array(node["values"], source).tolist()
    ),
    "texts": _texts,
    "repeated": _repeated,
    "scalars": lambda node, source: list(_array(node["values"], source)),
    "rows": _rows,
    "stack": lambda node, source: list(_array(node["values"], source)),
    "arrays": lambda node, source: [_READERS[one["is"]](one, source) for one in node["values"]],
    **{name: _by_text(name) for name in _BY_TEXT},
    "datetimes": _datetimes,
    "timedeltas": lambda node, source: [
        datetime.timedelta(*counts) for counts in _array(node["values"], source).tolist()
    ],
    **dict.fromkeys(("missing", "timestamps", "durations"), _unpack_pandas),
}
