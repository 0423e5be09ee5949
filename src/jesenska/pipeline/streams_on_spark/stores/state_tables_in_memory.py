"""Whole tables of state files in the memory of a task's process, for lookups of many keys.

A micro-batch that needs a large part of a table reads the whole table once; later micro-batches find it in memory. A
table in a state file has a mark (`<store>/mark`): a random text that changes whenever its rows change. A table in
memory is valid only for the mark with which it was read. So a process notices, by the changed mark, that another
process has changed the table or that a micro-batch was undone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.pipeline.streams_on_spark.stores.arrow_pages import InMemory

if TYPE_CHECKING:
    import pyarrow as pa

    from jesenska.pipeline.streams_on_spark.stores.state_file import StateFile

#: For each file and store: the mark, and a table of the rows with key, value and timestamp.
_tables: InMemory[tuple[Path, str], tuple[str, pa.Table]] = InMemory(128 << 20)
#: A whole table is read only if it has at most this many times as many rows as the requested keys.
_TIMES = 3
#: If fewer keys are requested, they are looked up one by one.
_KEYS_MIN = 2_000


def whole_table(file: StateFile, store: str, asked: int) -> pa.Table | None:
    """Returns all rows of a key-value store, if reading them is the faster way to look up `asked` keys. Otherwise
    returns None."""
    if asked < _KEYS_MIN:
        return None
    mark = file.mark(store)
    if mark is None:
        return None
    known = _tables.get((file.path, store))
    if known is not None and known[0] == mark:
        return known[1] if known[1].num_rows <= 4 * _TIMES * asked else None
    read = file.table(store).at_most(_TIMES * asked)
    if read is None:
        return None
    import pyarrow as pa

    keys, values, times = zip(*read, strict=True) if read else ((), (), ())
    table = pa.table(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "at": pa.array(times, pa.int64())}
    )
    _tables.keep((file.path, store), (mark, table), table.nbytes)
    return table
