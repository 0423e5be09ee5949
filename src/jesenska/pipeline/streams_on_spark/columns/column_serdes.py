"""Applies serdes to whole columns: reads values from bytes, and writes values as bytes. The results are the same as if
the serde were called for each value.

String, bytes, int, long and double are read and written without a Python call for each value. The same is true for
keys of time windows whose inner key has one of these types. Any other serde, such as JSON, is called for each value.
Data that does not fit raises an error; then the direct path or the engine processes the micro-batch and reports the
cause."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams.errors import SerializationError
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.serdes import Serdes
from jesenska.pipeline.streams.serdes.windowed_keys import TimeWindowedSerde
from jesenska.pipeline.streams_on_spark.columns.value_columns import (
    Column,
    Objects,
    WindowedKeys,
    from_values,
    to_values,
)

_STRING, _BYTES, _INT, _LONG, _DOUBLE = Serdes.string(), Serdes.bytes(), Serdes.int(), Serdes.long(), Serdes.double()


def kind_of(serde: Serde) -> pa.DataType | None:
    """Returns the Arrow type of the serde's values. Returns None if the serde must be called for each value."""
    return {
        "string": pa.string(),
        "bytes": pa.binary(),
        "int": pa.int64(),
        "long": pa.int64(),
        "double": pa.float64(),
    }.get(_native(serde) or "")


def _native(serde: Serde) -> str | None:
    """Returns the name of the serde if it can be applied to whole columns, else None. The serde's type is compared and
    not the object, since a serde that was pickled is a different object."""
    for known in (_STRING, _BYTES, _INT, _LONG, _DOUBLE):
        if type(serde) is type(known) and serde.name == known.name:
            return known.name
    return None


def read(serde: Serde, topic: str, data: pa.Array) -> Column:
    """Returns the values of `data`, an array of bytes."""
    match _native(serde):
        case "string":
            return data.cast(pa.string())
        case "bytes":
            return data
        case "int":
            return _numbers(data, ">i4", pa.int64())
        case "long":
            return _numbers(data, ">i8", pa.int64())
        case "double":
            return _numbers(data, ">f8", pa.float64())
    return from_values([serde.deserialize(topic, value) for value in data.to_pylist()])


def write(serde: Serde, topic: str, column: Column) -> pa.Array:
    """Returns the values as an array of bytes."""
    if isinstance(column, WindowedKeys):
        return _windowed(serde, topic, column)
    made = None if isinstance(column, Objects) else _written(_native(serde), column)
    if made is not None:
        return made
    return pa.array([serde.serialize(topic, value) for value in to_values(column)], pa.binary())


def _written(name: str | None, column: pa.Array) -> pa.Array | None:
    """Returns the column as an array of bytes. Returns None if the serde does not accept values of the column's
    type."""
    kind = column.type
    if kind == pa.null():
        return pa.nulls(len(column), pa.binary())
    match name:
        case "string" if kind == pa.string():
            return column.cast(pa.binary())
        case "bytes" if kind == pa.binary():
            return column
        case "long" if kind == pa.int64():
            return _big_endian(column, ">i8")
        case "int" if kind == pa.int64():
            bounds = pc.min_max(column).as_py()
            if bounds["min"] is not None and (bounds["min"] < -(2**31) or bounds["max"] >= 2**31):
                raise SerializationError("a number does not fit into 4 bytes.")
            return _big_endian(column, ">i4")
        case "double" if kind in (pa.int64(), pa.float64()):
            return _big_endian(column.cast(pa.float64(), safe=False), ">f8")
    return None


def _windowed(serde: Serde, topic: str, column: WindowedKeys) -> pa.Array:
    if not isinstance(serde, TimeWindowedSerde):
        return pa.array([serde.serialize(topic, value) for value in to_values(column)], pa.binary())
    starts = _big_endian(pa.array(column.starts), ">i8")
    return pc.binary_join_element_wise(write(serde.inner, topic, column.keys), starts, pa.scalar(b"", pa.binary()))


def _numbers(data: pa.Array, layout: str, kind: pa.DataType) -> pa.Array:
    """Reads numbers of fixed length from bytes."""
    size = np.dtype(layout).itemsize
    lengths = pc.binary_length(data)
    if pc.any(pc.not_equal(lengths, size)).as_py():
        raise SerializationError(f"there are bytes that are not {size} long.")
    there = data.drop_null() if data.null_count else data
    offsets = np.frombuffer(there.buffers()[1], np.int32)[there.offset : there.offset + len(there) + 1]
    packed = there.buffers()[2]
    if packed is None or not len(there):
        return pa.nulls(len(data), kind)
    numbers = (
        np.frombuffer(packed, np.uint8)[offsets[0] : offsets[-1]]
        .view(layout)
        .astype(np.dtype(layout).newbyteorder("="))
    )
    made = pa.array(numbers, kind) if numbers.dtype.kind == "f" else pa.array(numbers.astype(np.int64), kind)
    if not data.null_count:
        return made
    places = np.cumsum(data.is_valid().to_numpy(zero_copy_only=False)) - 1
    return pc.if_else(data.is_valid(), made.take(pa.array(np.maximum(places, 0))), pa.scalar(None, kind))


def _big_endian(column: pa.Array, layout: str) -> pa.Array:
    """Returns the numbers as bytes of fixed length, big-endian."""
    size = np.dtype(layout).itemsize
    numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    data = pa.py_buffer(np.ascontiguousarray(numbers.astype(layout)))
    offsets = pa.py_buffer(np.arange(0, (len(column) + 1) * size, size, dtype=np.int32))
    made = pa.Array.from_buffers(pa.binary(), len(column), [None, offsets, data])
    return pc.if_else(column.is_valid(), made, pa.scalar(None, pa.binary())) if column.null_count else made
