"""The state file: a SQLite database that contains the stores of one task. It has a version, which allows the last
micro-batch to be undone. There is one file for each partition of a sub-topology.

The version is the number of the micro-batch that made the last changes. Spark repeats a micro-batch if it does not
know that the micro-batch was completed: after a crash, or when a task failed. So the changes of one micro-batch can be
undone:

    the file's version    effect of opening it for micro-batch n
    below n               nothing is undone: the partition had no records in the micro-batches between
    n                     undoes the changes of micro-batch n, so that it can be repeated
    above n               refused with an error: the checkpoint is older than the state

All changes of a micro-batch are one transaction. After a crash before its end, the file has the previous version. Two
attempts at the same task wait for each other, and the second repeats the work of the first.

    "<store>"         a, n, m -> value, at    a: the key's bytes; n, m: numbers that identify and sort rows
    "<store>/undo"    the previous contents of rows that the last micro-batch changed (was = 0: there was no row)
    "<store>/pages"   the previous contents of rows that were changed many at once: an Arrow table in each row
    "<store>/segments"                        rows of a join of streams, stored many at once (state_segments.py)
    meta              name -> value, before   before: the value in the previous version. "<store>/mark" is a random
                                              text, replaced in each version that changes the store's rows

The file is on a disk that all tasks can access, and that can lock files.

The file contains its owner (application, state and partition) and the offsets up to which it has read (`bound`, meta
"owner" and "read"). If a micro-batch does not begin at these offsets, the file does not belong to the checkpoint: it
is an old copy, belongs to another state, or is new because the old file was lost. Then it is refused with an error.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams_on_spark.stores import state_segments
from jesenska.pipeline.streams_on_spark.stores.arrow_pages import page_of, table_in
from jesenska.pipeline.streams_on_spark.stores.state_segments import StateSegments

Row = tuple[bytes, int, int, bytes, int]
"""a, n, m, value, at"""

LOWEST, HIGHEST = -(2**63), 2**63 - 1
_WAIT_SECONDS = 60.0
_VERSION, _OWNER, _READ = "version", "owner", "read"


@dataclass(frozen=True, slots=True)
class Binding:
    """The owner of a state file, and the start and end offsets of its micro-batch, by topic. `starts` is None in a
    query's first micro-batch, which has no earlier offsets."""

    owner: str
    starts: Mapping[str, int] | None
    ends: Mapping[str, int]

    def check(self, path: Path, version: int) -> None:
        """Raises StreamsError if the file at `path` does not contain the state from which micro-batch `version` must
        begin."""
        if not path.exists():
            _check(path, None, None, self)
            return
        file = ReadOnlyStateFile(path)
        try:
            last = int(file.meta(_VERSION) or -1)
            _refuse_a_later_one(path, last, version)
            _check(path, file.meta(_OWNER), file.meta(_READ, before=last == version), self)
        except sqlite3.Error as error:
            raise _failed(path, error) from error
        finally:
            file.close()


def _refuse_a_later_one(path: Path, last: int, version: int) -> None:
    if last > version:
        raise StreamsError(
            f"the state in {path} is of micro-batch {last}, but the checkpoint is at {version}: put back the "
            "checkpoint that belongs to this state, or remove the application's directory below state.dir, so "
            "that the state is restored from the changelog topics."
        )


def _check(path: Path, owner: str | None, read: str | None, binding: Binding) -> None:
    """Raises StreamsError if the owner and the offsets in a file do not match the binding."""
    remedy = f"put the right state back, or remove {path.parents[2]}, so that it is restored from the changelog topics."
    starts, known = binding.starts or {}, json.loads(read or "null")
    if owner not in (None, binding.owner):
        raise StreamsError(f"the state in {path} belongs to another application or to another partition: {remedy}")
    if known is None and any(starts.values()):
        raise StreamsError(
            f"the state in {path} is gone, but its checkpoint says that records were already read: {remedy}"
        )
    for topic, start in starts.items():
        if known is not None and known.get(topic, start) != start:
            raise StreamsError(
                f"the state in {path} has {topic} up to offset {known[topic]}, but the next micro-batch begins at "
                f"{start}, so the state does not belong to the checkpoint: {remedy}"
            )


_bindings: dict[Path, Binding] = {}


@contextmanager
def bound(path: Path, binding: Binding | None) -> Iterator[None]:
    """Binds the StateFile that is opened at this path within the `with` block. The owner and the offsets of the file
    must match the binding's start, and at the end the file contains the binding's end offsets. If `binding` is None,
    nothing is checked."""
    if binding is None:
        yield
        return
    _bindings[path] = binding
    try:
        yield
    finally:
        del _bindings[path]


def begin_file(path: Path, version: int, binding: Binding) -> None:
    """Makes a state file without rows, for a partition that has had no records so far."""
    with bound(path, binding), StateFile(path, version):
        pass
    # The connection is closed, since only tasks use the file again.
    _open.pop(path)[2].close()


class StateFile:
    """The stores of one task while micro-batch `version` is processed. Use it in a `with` block. At the end of the
    block all changes are committed. If the block raises an error, no changes are committed."""

    def __init__(self, path: Path, version: int) -> None:
        self.path = path
        self.version = version
        self._tables: dict[str, StateTable] = {}
        self._segments: dict[str, StateSegments] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.connection = _taken(path)
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute(
                "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT, before TEXT) WITHOUT ROWID"
            )
            self._begin()
            if path in _bindings:
                self._bind(_bindings[path])
        except sqlite3.Error as error:
            raise _failed(path, error) from error
        except StreamsError:
            self.connection.close()
            raise

    def _begin(self) -> None:
        there = self.meta(_VERSION)
        last = -1 if there is None else int(there)
        _refuse_a_later_one(self.path, last, self.version)
        for (name,) in self.connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%/undo'"
        ).fetchall():
            table = name.removesuffix("/undo")
            if last == self.version:
                self.connection.execute(
                    f'DELETE FROM "{table}" WHERE (a, n, m) IN (SELECT a, n, m FROM "{name}" WHERE was = 0)'
                )
                self.connection.execute(
                    f'INSERT OR REPLACE INTO "{table}" SELECT a, n, m, value, at FROM "{name}" WHERE was = 1'
                )
            self.connection.execute(f'DELETE FROM "{name}"')
        # Single rows are undone first, then pages. If a row is in both, the page contains its older contents, since
        # the row was first changed together with many other rows.
        for (name,) in self.connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%/pages'"
        ).fetchall():
            if last == self.version:
                self._take_back_pages(name)
            self.connection.execute(f'DELETE FROM "{name}"')
        state_segments.begin(self.connection, last, self.version)
        if last == self.version:
            self.connection.execute("UPDATE meta SET value = before")
        else:
            self.connection.execute("UPDATE meta SET before = value")
        self.set_meta(_VERSION, str(self.version))

    def _bind(self, binding: Binding) -> None:
        _check(self.path, self.meta(_OWNER), self.meta(_READ), binding)
        self.set_meta(_OWNER, binding.owner)
        self.set_meta(_READ, json.dumps(binding.ends))

    def _take_back_pages(self, name: str) -> None:
        table = name.removesuffix("/pages")
        for (page,) in self.connection.execute(f'SELECT page FROM "{name}"').fetchall():
            for a, n, m, value, at in zip(*_unpacked(page), strict=True):
                if value is None:
                    self.connection.execute(f'DELETE FROM "{table}" WHERE a = ? AND n = ? AND m = ?', (a, n, m))
                else:
                    self.connection.execute(
                        f'INSERT OR REPLACE INTO "{table}" VALUES (?, ?, ?, ?, ?)', (a, n, m, value, at)
                    )

    def meta(self, name: str) -> str | None:
        """Returns the text `name`, as it is stored in the current version. Returns None if the text was never set."""
        found = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else found[0]

    def set_meta(self, name: str, value: str) -> None:
        self.connection.execute(
            "INSERT INTO meta VALUES (?, ?, NULL) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def table(self, name: str, order: str = "") -> StateTable:
        """Returns the table with the rows of a store. `order` is "n, a, m" or "n, m, a" for a store that is read in
        the order of these columns."""
        if name not in self._tables:
            key = "a BLOB, n INTEGER, m INTEGER"
            rest = "value BLOB, at INTEGER, PRIMARY KEY (a, n, m)) WITHOUT ROWID"
            self.connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({key}, {rest}')
            self.connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}/undo" ({key}, was INTEGER, {rest}')
            self.connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}/pages" (page BLOB)')
            if order:
                self.connection.execute(f'CREATE INDEX IF NOT EXISTS "{name}/order" ON "{name}" ({order})')
            self._tables[name] = StateTable(
                self.connection, name, order, lambda: self.set_meta(f"{name}/mark", secrets.token_hex(8))
            )
        return self._tables[name]

    def mark(self, name: str) -> str | None:
        """Returns a text that changes whenever the rows of the store change. Returns None if the store never had
        rows."""
        return self.meta(f"{name}/mark")

    def segments(self, name: str) -> StateSegments:
        """Returns the segments of a store: Arrow tables with many rows each (state_segments.py)."""
        if name not in self._segments:
            self._segments[name] = StateSegments(self.connection, name, self.version)
        return self._segments[name]

    def __enter__(self) -> StateFile:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.connection.execute("COMMIT" if error is None else "ROLLBACK")
        except sqlite3.Error as failed:
            self.connection.close()
            if error is None:
                raise _failed(self.path, failed) from failed
        else:
            _give_back(self.path, self.connection)


#: Files that this process keeps open between micro-batches: path -> (process, inode, connection). Closing the last
#: connection of a file would cost several writes to the disk.
_open: dict[Path, tuple[int, int, sqlite3.Connection]] = {}
_OPEN_MAX = 64
_CACHE_KIB = 16_384


def _taken(path: Path) -> sqlite3.Connection:
    process, inode, connection = _open.pop(path, (0, 0, None))
    if connection is not None:
        if process == os.getpid() and path.exists() and path.stat().st_ino == inode:
            return connection
        if process == os.getpid():
            connection.close()
    connection = sqlite3.connect(
        path, timeout=_WAIT_SECONDS, isolation_level=None, cached_statements=512, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    return connection


def _give_back(path: Path, connection: sqlite3.Connection) -> None:
    if len(_open) >= _OPEN_MAX:
        _, _, oldest = _open.pop(next(iter(_open)))
        oldest.close()
    _open[path] = os.getpid(), path.stat().st_ino, connection


class ReadOnlyStateFile:
    """The last version of a task's stores, for reading while the application runs. Call `close` at the end."""

    def __init__(self, path: Path) -> None:
        try:
            self.connection = sqlite3.connect(
                f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_WAIT_SECONDS, isolation_level=None
            )
            self.connection.execute("BEGIN")
            self._names = {
                name for (name,) in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
        except sqlite3.Error as error:
            raise _failed(path, error) from error

    def meta(self, name: str, *, before: bool = False) -> str | None:
        """Returns the text `name`, as it is stored in the current version, or in the previous version if `before` is
        True. Returns None if the text is not stored."""
        if "meta" not in self._names:
            return None
        found = self.connection.execute("SELECT value, before FROM meta WHERE name = ?", (name,)).fetchone()
        return None if found is None else found[before]

    def table(self, name: str, order: str = "") -> StateTable:
        if name not in self._names:
            raise StreamsError(
                f"the store {name} is not there yet: ask again when the first records have been processed."
            )
        return StateTable(self.connection, name, order)

    def changed(self, name: str) -> Iterator[tuple[bytes, int, int, bytes | None, int]]:
        """Yields the current contents of the rows that the last micro-batch has added, changed or removed. The value
        of a removed row is None."""
        if name not in self._names:
            return
        keys = {(a, n, m) for a, n, m in self.connection.execute(f'SELECT a, n, m FROM "{name}/undo"')}
        if f"{name}/pages" in self._names:
            for (page,) in self.connection.execute(f'SELECT page FROM "{name}/pages"').fetchall():
                rows = _unpacked(page)
                keys.update(zip(rows.a, rows.n, rows.m, strict=True))
        for key in sorted(keys):
            found = self.connection.execute(
                f'SELECT value, at FROM "{name}" WHERE a = ? AND n = ? AND m = ?', key
            ).fetchone()
            yield (*key, *(found or (None, -1)))

    def segments(self, name: str) -> StateSegments | None:
        """Returns the store's segments, each with many rows (state_segments.py). Returns None if the store has no
        segments."""
        return StateSegments(self.connection, name, None) if f"{name}/segments" in self._names else None

    def close(self) -> None:
        self.connection.close()


#: The value and the timestamp of a row that does not exist.
NO_ROW = (None, -1)


class Rows(NamedTuple):
    """Rows of a store, column by column. A value of None means that the row does not exist."""

    a: Sequence[bytes]
    n: Sequence[int]
    m: Sequence[int]
    value: Sequence[bytes | None]
    at: Sequence[int]


_AT_ONCE = 100


class StateTable:
    """The rows of one store. Before the first change of a row, its previous contents are recorded for undoing."""

    def __init__(
        self, connection: sqlite3.Connection, name: str, order: str, changed: Callable[[], None] | None = None
    ) -> None:
        self._changed = changed  # called before the first change
        self._execute = connection.execute
        self._order = order or "a, n, m"
        self._noted: set[tuple[bytes, int, int]] = set()
        self._has_page = False
        self._removed_below = LOWEST  # the last bound of `remove_below`
        self._table = name
        # fmt: off
        self._get = f'SELECT value, at FROM "{name}" WHERE a = ? AND n = ? AND m = ?'
        self._put = f'INSERT OR REPLACE INTO "{name}" VALUES (?, ?, ?, ?, ?)'
        self._put_many = f'INSERT OR REPLACE INTO "{name}" VALUES {", ".join(["(?, ?, ?, ?, ?)"] * _AT_ONCE)}'
        self._get_many = f'SELECT a, n, m, value, at FROM "{name}" WHERE n >= ? AND n <= ? AND a IN ({", ".join("?" * _AT_ONCE)})'  # noqa: E501
        self._delete = f'DELETE FROM "{name}" WHERE a = ? AND n = ? AND m = ?'
        self._note = (  # the row as it is, or its absence; the first note of a row counts
            f'INSERT OR IGNORE INTO "{name}/undo" SELECT ?1, ?2, ?3, t.a IS NOT NULL, t.value, t.at '
            f'FROM (SELECT 1) LEFT JOIN "{name}" t ON t.a = ?1 AND t.n = ?2 AND t.m = ?3'
        )
        # fmt: on

    def get(self, a: bytes, n: int = 0, m: int = 0) -> tuple[bytes, int] | None:
        found: tuple[bytes, int] | None = self._execute(self._get, (a, n, m)).fetchone()
        return found

    def before(self, a: bytes, n: int = 0, m: int = 0) -> tuple[bytes, int] | None:
        """Returns the row as it was before this micro-batch. The row must not have been changed by `put_many`."""
        noted = self._execute(
            f'SELECT was, value, at FROM "{self._table}/undo" WHERE a = ? AND n = ? AND m = ?', (a, n, m)
        ).fetchone()
        if noted is None:
            return self.get(a, n, m)
        was, value, at = noted
        return (value, at) if was else None

    def put(self, a: bytes, n: int, m: int, value: bytes, at: int) -> None:
        self._note_row(a, n, m)
        self._execute(self._put, (a, n, m, value, at))
        if n < self._removed_below:
            self._removed_below = LOWEST

    def remove(self, a: bytes, n: int = 0, m: int = 0) -> None:
        self._note_row(a, n, m)
        self._execute(self._delete, (a, n, m))

    def of_many(self, keys: Sequence[bytes], lowest: int = 0, highest: int = 0) -> list[Row]:
        """Returns the rows of these keys whose n is from `lowest` to `highest`, unsorted. Sorted keys are read
        fastest."""
        found: list[Row] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = list(keys[start : start + _AT_ONCE])
            if len(some) < _AT_ONCE:
                some += some[-1:] * (_AT_ONCE - len(some))
            found += self._execute(self._get_many, (_whole(lowest), _whole(highest), *some)).fetchall()
        return found

    def at_most(self, count: int) -> list[tuple[bytes, bytes, int]] | None:
        """Returns key, value and timestamp of all rows if the store has at most `count` rows. Returns None if it has
        more rows."""
        (there,) = self._execute(
            f'SELECT count(*) FROM (SELECT 1 FROM "{self._table}" LIMIT ?)', (count + 1,)
        ).fetchone()
        return None if there > count else self._execute(f'SELECT a, value, at FROM "{self._table}"').fetchall()

    def put_many(self, rows: Rows, before: Rows) -> None:
        """Stores the rows, and removes the rows whose value is None. `before` contains the present contents of the
        same rows. Sorted rows are written fastest."""
        if not rows.a:
            return
        self._tell()
        if self._noted or self._has_page or self._removed_below != LOWEST:  # notes are taken back in one order only
            for a, n, m, value, at in zip(*rows, strict=True):
                if value is None:
                    self.remove(a, n, m)
                else:
                    self.put(a, n, m, value, at)
            return
        self._has_page = True
        self._execute(f'INSERT INTO "{self._table}/pages" VALUES (?)', (_packed(before),))
        there = list(zip(*rows, strict=True))
        if None in rows.value:
            for row in there:
                if row[3] is None:
                    self._execute(self._delete, row[:3])
            there = [row for row in there if row[3] is not None]
        whole = len(there) - len(there) % _AT_ONCE
        for start in range(0, whole, _AT_ONCE):
            self._execute(self._put_many, tuple(chain.from_iterable(there[start : start + _AT_ONCE])))
        for row in there[whole:]:
            self._execute(self._put, row)

    def remove_below(self, n: int) -> None:
        """Removes all rows in which the column n is smaller than the argument `n`."""
        if n <= self._removed_below:
            return
        n = max(n, LOWEST)
        self._removed_below = n
        self._tell()
        self._execute(
            f'INSERT OR IGNORE INTO "{self._table}/undo" SELECT a, n, m, 1, value, at FROM "{self._table}" WHERE n < ?',
            (n,),
        )
        self._execute(f'DELETE FROM "{self._table}" WHERE n < ?', (n,))

    def keys(self, lowest: bytes | None = None, above: bytes | None = None) -> list[bytes]:
        """Returns the keys from `lowest` up to, not including, `above`, sorted."""
        where = " WHERE a >= ?" + (" AND a < ?" if above is not None else "")
        bounds = (lowest or b"",) if above is None else (lowest or b"", above)
        return [a for (a,) in self._execute(f'SELECT a FROM "{self._table}"{where} ORDER BY a', bounds)]

    def of(self, a: bytes, lowest: int = LOWEST, highest: int = HIGHEST) -> list[Row]:
        """Returns the rows of one key, sorted by n and m."""
        query = f'SELECT a, n, m, value, at FROM "{self._table}" WHERE a = ? AND n >= ? AND n <= ? ORDER BY n, m'
        return self._execute(query, (a, _whole(lowest), _whole(highest))).fetchall()

    def ordered(
        self, lowest: int = LOWEST, highest: int = HIGHEST, first: bytes | None = None, last: bytes | None = None
    ) -> list[Row]:
        """Returns the rows whose n and key are within the bounds, in the order of the store."""
        query = f'SELECT a, n, m, value, at FROM "{self._table}" WHERE n >= ? AND n <= ? AND a >= ?'
        bounds = [_whole(lowest), _whole(highest), first or b""]
        if last is not None:
            query, bounds = query + " AND a <= ?", [*bounds, last]
        return self._execute(f"{query} ORDER BY {self._order}", bounds).fetchall()

    def first(self) -> Row | None:
        """Returns the first row in the order of the store, or None if the store is empty."""
        found: Row | None = self._execute(
            f'SELECT a, n, m, value, at FROM "{self._table}" ORDER BY {self._order} LIMIT 1'
        ).fetchone()
        return found

    def __len__(self) -> int:
        count: int = self._execute(f'SELECT count(*) FROM "{self._table}"').fetchone()[0]
        return count

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Row]:
        return iter(self.ordered())

    def _tell(self) -> None:
        if self._changed is not None:
            self._changed()
            self._changed = None

    def _note_row(self, a: bytes, n: int, m: int) -> None:
        row = (a, n, m)
        if row not in self._noted:
            self._noted.add(row)
            self._tell()
            self._execute(self._note, row)


def _whole(number: int) -> int:
    return max(LOWEST, min(number, HIGHEST))


def rows_of(table: StateTable, keys: Sequence[bytes]) -> Rows:
    """Returns the rows of these keys in a key-value store. A row that does not exist has the timestamp -1."""
    found = {a: (value, at) for a, _, _, value, at in table.of_many(keys)}
    zeros = [0] * len(keys)
    if not found:
        return Rows(keys, zeros, zeros, [None] * len(keys), [-1] * len(keys))
    values, times = zip(*[found.get(key, NO_ROW) for key in keys], strict=True)
    return Rows(keys, zeros, zeros, values, times)


def _packed(rows: Rows) -> bytes:
    import pyarrow as pa

    kinds = pa.binary(), pa.int64(), pa.int64(), pa.binary(), pa.int64()
    return page_of(
        pa.table([pa.array(column, kind) for column, kind in zip(rows, kinds, strict=True)], names=Rows._fields)
    )


def _unpacked(page: bytes) -> Rows:
    return Rows(*(column.to_pylist() for column in table_in(page).columns))


def _failed(path: Path, error: sqlite3.Error) -> StreamsError:
    return StreamsError(
        f"the state in {path} cannot be used ({error}): see that the directory of state.dir can be written and has "
        f"room."
    )
