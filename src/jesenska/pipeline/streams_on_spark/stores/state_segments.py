"""Segments of a state file: each segment stores many rows at once. Segments are used for the records of a join of
streams, which are added and expire, but never change.

    "<store>/segments"    id, made, gone, lowest, highest, rows, page

A segment is an Arrow table with the columns of a store's rows (state_file.py): a, n, m, value, at. It is never
changed. `lowest` and `highest` are the bounds of n. `made` is the micro-batch that wrote the segment. `gone` is the
micro-batch that removed it, or NULL. So a micro-batch is undone by deleting the segments that it made, and by setting
`gone` back to NULL in those that it removed. When the next micro-batch begins, removed segments are deleted. `id` is
random, so that a reader can cache a segment in memory under this number.

Micro-batches may be small. So a new segment is merged with earlier segments if they are not much larger, and if the
times of all rows are within a fifth of the store's retention. So there are few segments, and each row is copied only a
few times. A segment is removed when its last row has expired.

The engine stores the rows of the same store one by one in its table. Rows of the table and of segments are read
together.
"""

from __future__ import annotations

import secrets
import sqlite3
from typing import TYPE_CHECKING

from jesenska.pipeline.streams_on_spark.stores.arrow_pages import InMemory, page_of, table_in

if TYPE_CHECKING:
    import pyarrow as pa

#: Segments that this process has read, by id.
_read: InMemory[int, pa.Table] = InMemory(128 << 20)
_ROWS_MAX = 200_000
#: If rows have more bytes than this, they are cut into several segments.
_BYTES_MAX = 64 << 20
_NEVER = 2**63 - 1
#: An earlier segment is merged into a new segment if it has at most this many times as many rows.
_TAKEN_IN = 4


def begin(connection: sqlite3.Connection, last: int, version: int) -> None:
    """Prepares all segments of a file for micro-batch `version`. `last` is the file's version; if it equals `version`,
    the changes of that micro-batch are undone."""
    for (name,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%/segments'"
    ).fetchall():
        if last == version:
            connection.execute(f'DELETE FROM "{name}" WHERE made = ?', (version,))
            connection.execute(f'UPDATE "{name}" SET gone = NULL WHERE gone = ?', (version,))
        else:
            connection.execute(f'DELETE FROM "{name}" WHERE gone IS NOT NULL')


class StateSegments:
    """The segments of one store. `version` is the running micro-batch, or None if the file is only read."""

    def __init__(self, connection: sqlite3.Connection, store: str, version: int | None) -> None:
        self._execute = connection.execute
        self._name = f"{store}/segments"
        self._version = version
        self._first_to_expire: int | None = None  # the smallest `highest` of a segment; None: not known
        columns = (
            "id INTEGER PRIMARY KEY, made INTEGER, gone INTEGER, lowest INTEGER, highest INTEGER, rows INTEGER, page "
            "BLOB"
        )
        if version is not None:
            self._execute(f'CREATE TABLE IF NOT EXISTS "{self._name}" ({columns})')

    def tables(self, lowest: int, highest: int) -> list[pa.Table]:
        """Returns the segments that may have rows whose n is within the bounds, the oldest first."""
        query = (
            f'SELECT id FROM "{self._name}" WHERE gone IS NULL AND highest >= ? AND lowest <= ? ORDER BY made, lowest'
        )
        return [self._table(id_) for (id_,) in self._execute(query, (lowest, highest)).fetchall()]

    def add(self, rows: pa.Table, retention_ms: int) -> None:
        """Stores the rows in a new segment, which may be merged with earlier segments."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not rows.num_rows:
            return
        if rows.nbytes > _BYTES_MAX and rows.num_rows > 1:
            half = rows.num_rows // 2
            self.add(rows.slice(0, half), retention_ms)
            self.add(rows.slice(half), retention_ms)
            return
        rows_max = min(_ROWS_MAX, _BYTES_MAX * rows.num_rows // max(1, rows.nbytes))
        bounds = pc.min_max(rows.column("n")).as_py()
        lowest, highest = bounds["min"], bounds["max"]
        taken_in = [rows]
        size = rows.num_rows
        query = (
            f'SELECT id, lowest, highest, rows FROM "{self._name}" WHERE gone IS NULL ORDER BY made DESC, highest DESC'
        )
        for id_, first, last, count in self._execute(query).fetchall():
            wide = max(last, highest) - min(first, lowest) > retention_ms // 5
            if wide or count > _TAKEN_IN * size or count + size > rows_max:
                break
            taken_in.append(self._table(id_))
            lowest, highest, size = min(first, lowest), max(last, highest), size + count
            self._remove("id = ?", id_)
        self._first_to_expire = None
        whole = pa.concat_tables(taken_in[::-1]).combine_chunks() if len(taken_in) > 1 else rows
        id_ = secrets.randbits(62)
        page = page_of(whole, "lz4")
        self._execute(
            f'INSERT INTO "{self._name}" VALUES (?, ?, NULL, ?, ?, ?, ?)',
            (id_, self._version, lowest, highest, size, page),
        )
        self._kept(id_, page)  # and not the rows: they may be a view of all that the micro-batch has read

    def remove_below(self, n: int) -> None:
        """Removes the segments in which every n is smaller than `n`."""
        if self._first_to_expire is None:
            (found,) = self._execute(f'SELECT min(highest) FROM "{self._name}" WHERE gone IS NULL').fetchone()
            self._first_to_expire = _NEVER if found is None else found
        if n > self._first_to_expire:
            self._first_to_expire = None
            self._remove("highest < ?", n)

    def _remove(self, which: str, value: int) -> None:
        self._execute(f'DELETE FROM "{self._name}" WHERE made = ? AND {which}', (self._version, value))
        self._execute(f'UPDATE "{self._name}" SET gone = ? WHERE gone IS NULL AND {which}', (self._version, value))

    def _table(self, id_: int) -> pa.Table:
        known = _read.get(id_)
        if known is not None:
            return known
        (page,) = self._execute(f'SELECT page FROM "{self._name}" WHERE id = ?', (id_,)).fetchone()
        return self._kept(id_, page)

    def _kept(self, id_: int, page: bytes) -> pa.Table:
        table = table_in(page)
        _read.keep(id_, table, table.nbytes)
        return table
