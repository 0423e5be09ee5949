"""Columns of values: the keys, or the values, of many records at once.

A column is one of these:

    pyarrow.Array    string, binary, int64, double, bool, or lists of these; type null if every value is None
    Objects          Python values of any type, one for each record: JSON, lists, values of several types
    WindowedKeys     keys of a windowed table: the keys, and the windows' starts

`from_values` makes an Arrow array if all values have the same type, so that later steps on values from JSON are fast.
An int and a float are different types here: Arrow would turn both into floats, and 1 and 1.0 are not the same text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from jesenska.pipeline.streams.records import TimeWindow, Windowed

Column: TypeAlias = "pa.Array | Objects | WindowedKeys"
Indices = np.ndarray[Any, np.dtype[np.int64]]

_KINDS: dict[type, pa.DataType] = {
    str: pa.string(),
    bytes: pa.binary(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
}
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Objects:
    """A column of Python objects."""

    values: Sequence[Any]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class WindowedKeys:
    """A column of windowed keys: the keys, and the starts of their windows. No key is None."""

    keys: Column
    starts: Indices
    size_ms: int

    def __len__(self) -> int:
        return len(self.starts)


def from_values(values: Sequence[Any]) -> pa.Array | Objects:
    """Returns a column with these values."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds:
        return pa.nulls(len(values))
    kind = _KINDS.get(next(iter(kinds))) if len(kinds) == 1 else None
    if kind is None or (
        kind == pa.int64() and not all(value is None or _LONG_MIN <= value <= _LONG_MAX for value in values)
    ):
        return Objects(values)
    return pa.array(values, kind)


def to_values(column: Column) -> Sequence[Any]:
    """Returns the values of the column as Python objects."""
    if isinstance(column, Objects):
        return column.values
    if isinstance(column, WindowedKeys):
        windows = (TimeWindow(start, min(start + column.size_ms, _LONG_MAX)) for start in column.starts.tolist())
        return [Windowed(key, window) for key, window in zip(to_values(column.keys), windows, strict=True)]
    return column.to_pylist()  # type: ignore[no-any-return]


def taken(column: Column, indices: Indices) -> Column:
    """Returns a column with the values at these positions."""
    if isinstance(column, Objects):
        values = column.values
        return Objects([values[index] for index in indices.tolist()])
    if isinstance(column, WindowedKeys):
        return WindowedKeys(taken(column.keys, indices), column.starts[indices], column.size_ms)
    return column.take(pa.array(indices))


def together(columns: Sequence[Column]) -> Column:
    """Returns one column with the values of all columns, one column after the other."""
    if len(columns) == 1:
        return columns[0]
    windowed = [column for column in columns if isinstance(column, WindowedKeys)]
    if len(windowed) == len(columns) and len({column.size_ms for column in windowed}) == 1:
        starts = np.concatenate([column.starts for column in windowed])
        return WindowedKeys(together([column.keys for column in windowed]), starts, windowed[0].size_ms)
    arrays: list[Any] = [column for column in columns if not isinstance(column, Objects | WindowedKeys)]
    kinds = {array.type for array in arrays} - {pa.null()}
    if len(kinds) <= 1 and len(arrays) == len(columns):
        kind = kinds.pop() if kinds else pa.null()
        return pa.concat_arrays([array if array.type == kind else array.cast(kind) for array in arrays])
    return Objects([value for column in columns for value in to_values(column)])


def is_null(column: Column) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns a boolean array: True for each value that is None."""
    if isinstance(column, Objects):
        return np.fromiter((value is None for value in column.values), np.bool_, len(column))
    if isinstance(column, WindowedKeys):
        return np.zeros(len(column), np.bool_)
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    return column.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
