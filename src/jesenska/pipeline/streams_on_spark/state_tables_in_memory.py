"""Whole tables of state files in the memory of a task's process, for lookups of many keys.

A micro-batch that asks for a large part of a table reads all of it, once, and the next micro-batches find it here. A
table in a state file has a mark, a random text in its meta that is another one after each change of its rows
(`<store>/mark`). What is in memory counts only for the mark that it was read with, so a process need not know what
other ones, or a micro-batch that was taken back, have done to the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.pipeline.streams_on_spark.arrow_pages import InMemory

if TYPE_CHECKING:
    import pyarrow as pa

    from jesenska.pipeline.streams_on_spark.state_file import StateFile

#: (file, store) -> the mark, and the rows: key, value, at.
_tables: InMemory[tuple[Path, str], tuple[str, pa.Table]] = InMemory(128 << 20)
#: A table is read as a whole when it has at most so many times the rows that are asked for.
_TIMES = 3
#: Fewer keys are looked for one by one.
_KEYS_MIN = 2_000


def whole_table(file: StateFile, store: str, asked: int) -> pa.Table | None:
    """The rows of a key-value store, where that is the faster way to `asked` of its keys."""
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
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "at": pa.array(times, pa.int64())})
    _tables.keep((file.path, store), (mark, table), table.nbytes)
    return table
