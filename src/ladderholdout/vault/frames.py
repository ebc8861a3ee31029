"""DataFrames and Series as members of an .npz.

Columns of NumPy's dtypes are arrays, and those of pandas' own dtypes are an Arrow stream. polars
writes and reads Arrow by itself. Each of the three packages is imported for who has something of
its own.
"""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from ladderholdout.arguments import as_given
from ladderholdout.extras import needed
from ladderholdout.vault import arrow, values
from ladderholdout.vault.npz import Damaged, Node, NotData, Parts, Source

# The dtypes of pandas that are found again by their text, and the types of Arrow that hold them.
# A zone is a name, and no path to a file of zones.
_ZONE = r"(?!dateutil/)[A-Za-z][A-Za-z0-9_+\-/:]{0,63}"
_UNIT = r"\[(s|ms|us|ns)\]"
_DTYPE = re.compile(
    r"U?Int(8|16|32|64)|Float(32|64)|boolean|str|string\[python\]|category|"
    rf"datetime64\[(s|ms|us|ns), {_ZONE}\]|[a-z0-9_]{{1,32}}(\[day\]|{_UNIT})?\[pyarrow\]"
)
_ARROW = re.compile(
    r"u?int(8|16|32|64)|float|double|bool|(large_)?string|date32\[day\]|"
    rf"(duration|timestamp){_UNIT}"
)


def pack(value: Any, name: str, parts: Parts) -> Node:
    """Describe a DataFrame, a Series, or what `values.pack` takes."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if package == "polars":
        return _pack_polars(value, name, parts)
    if package != "pandas":
        return values.pack(value, name, parts)
    pd = _pandas()
    if kind not in (pd.DataFrame, pd.Series):
        raise NotData
    node = {"is": "frame", "index": _pack_index(value.index, f"{name}.index", parts, "its index")}
    if kind is pd.Series:
        label = _pack_index(pd.Index([value.name]), f"{name}.name", parts, "its name")
        node |= {"is": "series", "name": label}
        value = value.to_frame()
    else:
        names = _pack_index(value.columns, f"{name}.columns", parts, "the names of its columns")
        node |= {"columns": names}
    return node | {"blocks": _pack_columns(value, name, parts)}


def unpack(node: Node, name: str, source: Source) -> Any:
    """Read back what `pack` described.

    Raises
    ------
    MissingExtra
        The package that it belongs to is not installed.
    """
    if node["is"].startswith("polars"):
        return _polars(node, name, source)
    if node["is"] not in ("frame", "series"):
        return values.unpack(node, name, source)
    pd, index = _pandas(), _index(node["index"], f"{name}.index", source)
    if node["is"] == "series":
        column = _columns(node["blocks"], name, source)[0]
        column.index, (column.name,) = index, _index(node["name"], f"{name}.name", source)
        return column
    names = _index(node["columns"], f"{name}.columns", source)
    if not node["blocks"]:
        return pd.DataFrame(index=index, columns=names)
    frame = _columns(node["blocks"], name, source)
    frame.index, frame.columns = index, names
    return frame


# pandas


def _pack_index(index: Any, name: str, parts: Parts, where: str) -> Node:
    pd = _pandas()
    node: Node = {"names": list(index.names)}
    if getattr(index, "freqstr", None) is not None:
        node["freq"] = index.freqstr
    values.check_cells(node["names"], f" in the names of {where}")
    if isinstance(index, pd.RangeIndex):
        return node | {"range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.MultiIndex):
        levels = [index.get_level_values(level) for level in range(index.nlevels)]
        return node | {
            "levels": [
                _pack_index(level, f"{name}.{number}", parts, where)
                for number, level in enumerate(levels)
            ]
        }
    if index.dtype == object or isinstance(index.dtype, pd.StringDtype):
        cells = index.astype(object)
        if index.dtype != object:
            cells = cells.where(~index.isna(), None)
        values.check_cells(cells, f" in {where}")
        parts.add_json(name, cells.tolist())
        return node | {"dtype": str(index.dtype)}
    return node | {"blocks": _pack_columns(index.to_frame(index=False), name, parts, where)}


def _index(node: Node, name: str, source: Source) -> Any:
    pd, names = _pandas(), node["names"]
    if "range" in node:
        return pd.RangeIndex(*node["range"], name=names[0])
    if "levels" in node:
        levels = [
            _index(level, f"{name}.{number}", source) for number, level in enumerate(node["levels"])
        ]
        return pd.MultiIndex.from_arrays(levels, names=names)
    if "dtype" in node:
        cells, dtype = source.json(name), node["dtype"]
        if dtype not in ("object", "str", "string"):
            raise Damaged
    else:
        cells = _columns(node["blocks"], name, source)[0]
        dtype = cells.dtype
    # Of the values alone: an index without a name would take that of a Series.
    values_alone = getattr(cells, "array", cells)
    index = pd.Index(values_alone, dtype=dtype, name=names[0], tupleize_cols=False)
    if "freq" in node:
        index.freq = node["freq"]
    return index


def _pack_columns(frame: Any, name: str, parts: Parts, where: str | None = None) -> list[Node]:
    """Keep the columns of each dtype of NumPy together, and those of all others."""
    groups: dict[Any, list[int]] = {}
    for place, dtype in enumerate(frame.dtypes):
        groups.setdefault(dtype if isinstance(dtype, np.dtype) else None, []).append(place)
    blocks = []
    for dtype, places in groups.items():
        table = frame if len(groups) == 1 else frame.iloc[:, places]
        inside = f"{name}.{places[0]}"
        if dtype is None:
            node = _pack_arrow(table, inside, parts, where)
        else:
            for place in range(len(places)) if dtype.kind == "O" else ():
                values.check_cells(table.iloc[:, place], _in(table, place, where))
            node = values.pack(table.to_numpy(), inside, parts)
        blocks.append(node | {"places": places})
    return blocks


def _columns(blocks: list[Node], name: str, source: Source) -> Any:
    """Read such columns into a frame whose columns are numbered."""
    pd = _pandas()
    tables = []
    for node in blocks:
        inside = f"{name}.{node['places'][0]}"
        if node["is"] == "arrow":
            table = _arrow(node, inside, source)
        else:
            array = values.unpack(node, inside, source)
            table = pd.DataFrame(array, dtype=array.dtype, copy=False)
        table.columns = node["places"]
        tables.append(table)
    frame = tables[0] if len(tables) == 1 else pd.concat(tables, axis=1)
    places = sorted(frame.columns)
    if places != list(range(len(places))):
        raise Damaged
    return frame if places == list(frame.columns) else frame[places]


def _in(table: Any, place: int, where: str | None) -> str:
    return f" in {where or f'the column {as_given(table.columns[place])}'}"


def _pack_arrow(table: Any, name: str, parts: Parts, where: str | None) -> Node:
    """Keep columns of pandas' own dtypes; one that would come back as another is refused."""
    first = table.dtypes.iloc[0]
    with needed(f"The vault of a DataFrame with dtype {first} (vault=False writes none)"):
        import pyarrow as pa
    columns, dtypes = {}, []
    for place, dtype in enumerate(table.dtypes):
        # The text of a dtype of text is the same for both ways in which it is stored.
        dtypes.append(f"string[{dtype.storage}]" if str(dtype) == "string" else str(dtype))
        try:
            column = table.iloc[:, place]
            # Instants are kept in UTC: their zone is stated by the dtype alone.
            cells = column.dt.tz_convert(None).to_numpy() if hasattr(dtype, "tz") else column.array
            part = pa.table({"": pa.array(cells, from_pandas=True)})
            same = _column(dtypes[-1], part.slice(0, 0).column(0)).dtype == dtype
        except (Damaged, pa.ArrowException, TypeError, ValueError):
            same = False
        if not same:
            raise NotData(f"of dtype {dtype}{_in(table, place, where)}")
        columns[str(place)] = part.column(0)
    whole = pa.table(columns)

    def put(file: Any) -> None:
        with pa.ipc.new_stream(file, whole.schema) as writer:
            writer.write_table(whole, max_chunksize=2**20)

    parts[f"{name}.arrow"] = put
    return {"is": "arrow", "dtypes": dtypes}


def _arrow(node: Node, name: str, source: Source) -> Any:
    with needed(f"A DataFrame with dtype {node['dtypes'][0]}"):
        import pyarrow as pa
    data = arrow.checked(source.member(f"{name}.arrow"))
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        table = reader.read_all()
    table.validate(full=True)  # else a place outside of the file could be read
    columns = zip(node["dtypes"], table.columns, strict=True)
    return _pandas().DataFrame({place: _column(*parts) for place, parts in enumerate(columns)})


def _column(dtype: str, column: Any) -> Any:
    """Return a column of Arrow as a Series of a dtype of pandas, by its text."""
    pd = _pandas()
    kind = getattr(column.type, "value_type", column.type)
    if not _DTYPE.fullmatch(dtype) or not _ARROW.fullmatch(str(kind)):
        raise Damaged
    if dtype == "category":
        return column.to_pandas()
    return pd.Series(pd.api.types.pandas_dtype(dtype).__from_arrow__(column))


def _pandas() -> Any:
    """Import pandas, for who gave a DataFrame of it; as Any, since what is read may be anything."""
    with needed("A DataFrame"):
        import pandas

    return pandas


# polars


def _pack_polars(value: Any, name: str, parts: Parts) -> Node:
    with needed("A DataFrame of polars"):
        import polars as pl

    if type(value) not in (pl.DataFrame, pl.Series):
        raise NotData
    series = type(value) is pl.Series
    frame = value.to_frame() if series else value
    for column in frame:
        if column.dtype.base_type() == pl.Object:
            raise NotData(f"of dtype Object in the column {as_given(column.name)}")
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer)
    parts[f"{name}.arrow"] = lambda file: file.write(buffer.getbuffer())
    return {"is": "polars_series" if series else "polars"}


def _polars(node: Node, name: str, source: Source) -> Any:
    with needed("A DataFrame of polars"):
        import polars as pl

    data = io.BytesIO(arrow.checked(source.member(f"{name}.arrow")).tobytes())
    try:
        frame = pl.read_ipc_stream(data)
    except pl.exceptions.PanicException:  # not derived from Exception
        raise Damaged from None
    if any(dtype.base_type() == pl.Object for dtype in frame.dtypes):
        raise Damaged
    return frame.to_series() if node["is"] == "polars_series" else frame
