"""Arrow tables as bytes for state files, and a cache of values in the memory of a task's process."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

Key = TypeVar("Key")
Value = TypeVar("Value")


def page_of(table: pa.Table, compression: str | None = None) -> bytes:
    """Returns the table as bytes in Arrow's stream format."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def table_in(page: bytes) -> pa.Table:
    """Returns the table from the bytes that `page_of` has made."""
    import pyarrow as pa

    with pa.ipc.open_stream(page) as stream:
        return stream.read_all()


class InMemory(Generic[Key, Value]):
    """A cache of the most recently used values, up to `max_bytes` in total. A larger value is not stored."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: Key, value: Value, size_bytes: int) -> None:
        if size_bytes > self._max_bytes:
            return
        self._kept[key] = value, size_bytes
        whole = sum(size for _, size in self._kept.values())
        while whole > self._max_bytes and len(self._kept) > 1:
            whole -= self._kept.popitem(last=False)[1][1]
