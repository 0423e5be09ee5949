"""The metadata tree on disk: one SQLite file, `jesenska-metadata.db`, directly in the first log directory.

    nodes     path data acl czxid mzxid pzxid ctime mtime version creates aversion owner  one row per node, current
    sessions  id timeout_ms                                                               one row per session
    meta      key value                                                                   last_zxid, session_secret
    PRAGMA application_id = "jsnk", PRAGMA user_version = 1                               the format of this file

A commit writes the rows that its transactions change, and the last zxid, in one SQLite transaction with one fsync
(write-ahead log, synchronous=FULL). A row that changes several times is written once, in its last state. After a crash
SQLite drops uncommitted changes. The file then contains every transaction that was answered. The passwords of sessions
are not stored: they are computed from `session_secret` (32 random bytes, created if missing). The files `-wal` and
`-shm` belong to the journal; they exist while it is open and after a crash.

The file is opened with an exclusive lock; before that, the broker's lock on the directory already excludes a second
broker. All functions here block, so they run on the writer thread."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from jesenska.base.system_errors import MORE_DESCRIPTORS, has_descriptors
from jesenska.metadata.tree import Tree, TreeNode, split
from jesenska.metadata.tree_operations import (
    OPEN_ACL,
    Acl,
    AclSet,
    DataSet,
    NodeCreated,
    NodeDeleted,
    SessionOpened,
    Transaction,
)

METADATA_FILE = "jesenska-metadata.db"
#: Name of the file after its directory was exported to Apache Kafka (`interchange.journal_file`).
EXPORTED_FILE = METADATA_FILE + ".exported"
FORMAT = 1
#: The stored form of null data: an empty text. Other data is stored as a blob.
_NULL = ""
_SECRET_BYTES = 32
#: When the write-ahead log has this many pages, SQLite copies them into the file and overwrites the log from its
#: beginning.
_LOG_PAGES = 1000
_LOG_BYTES = 32 + _LOG_PAGES * (24 + 4096)
_APPLICATION_ID = int.from_bytes(b"jsnk", "big")

_SCHEMA = """
CREATE TABLE nodes (
  path TEXT PRIMARY KEY, data BLOB NOT NULL, acl TEXT, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
  ctime INTEGER NOT NULL, mtime INTEGER NOT NULL, version INTEGER NOT NULL, creates INTEGER NOT NULL, aversion INTEGER NOT NULL,
  owner INTEGER NOT NULL
);
CREATE TABLE sessions (id INTEGER PRIMARY KEY, timeout_ms INTEGER NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""  # noqa: E501


class _Statement(NamedTuple):
    """An SQL statement over several rows: the text `before` the rows, the placeholders of each `row`, and the text
    `after` the rows."""

    before: str
    row: str
    after: str


_DELETE = _Statement("DELETE FROM nodes WHERE path IN (", "?", ")")
_INSERT = _Statement("INSERT INTO nodes VALUES ", "(?,?,?,?,?,?,?,?,?,?,?,?)", "")
# These three statements are upserts, but their rows always exist: they only update.
_SET_DATA = _Statement(
    "INSERT INTO nodes VALUES ",
    "(?,?,NULL,0,?,0,0,?,?,0,0,0)",
    " ON CONFLICT (path) DO UPDATE SET data = excluded.data, mzxid = excluded.mzxid, mtime = excluded.mtime, version "
    "= excluded.version",
)
_SET_ACL = _Statement(
    "INSERT INTO nodes VALUES ",
    "(?,'',?,0,0,0,0,0,0,0,?,0)",
    " ON CONFLICT (path) DO UPDATE SET acl = excluded.acl, aversion = excluded.aversion",
)
_COUNT_CHILDREN = _Statement(
    "INSERT INTO nodes VALUES ",
    "(?,'',NULL,0,0,?,0,0,0,?,0,0)",
    " ON CONFLICT (path) DO UPDATE SET pzxid = excluded.pzxid, creates = creates + excluded.creates",
)
_OPEN_SESSION = _Statement("INSERT INTO sessions VALUES ", "(?,?)", "")
_CLOSE_SESSION = _Statement("DELETE FROM sessions WHERE id IN (", "?", ")")
#: Largest number of rows in one statement. SQLite caches a prepared statement for each number of rows up to this.
_ROWS_AT_ONCE = 64
#: File descriptors that SQLite needs: the file, its write-ahead log, the index of that log, and the directory.
_DESCRIPTORS = 4
_PREPARED_STATEMENTS = 512


@cache
def _sql(statement: _Statement, rows: int) -> str:
    return statement.before + ",".join([statement.row] * rows) + statement.after


class _Effect:
    """The rows that several transactions change, each row once with its last values."""

    __slots__ = ("_acl", "_children", "_closed", "_created", "_data", "_deleted", "_opened")

    def __init__(self) -> None:
        self._created: dict[str, TreeNode] = {}
        # Changes of nodes that existed before these transactions:
        self._deleted: dict[str, None] = {}
        self._data: dict[str, tuple[object, ...]] = {}
        self._acl: dict[str, tuple[object, ...]] = {}
        self._children: dict[str, tuple[int, int]] = {}  # pzxid, children created
        self._opened: dict[int, int] = {}
        self._closed: dict[int, None] = {}

    def add(self, transaction: Transaction) -> None:
        zxid, time_ms = transaction.zxid, transaction.time_ms
        for change in transaction.changes:
            if isinstance(change, DataSet):
                path = change.path
                if (node := self._created.get(path)) is not None:
                    node.data, node.version, node.mzxid, node.mtime = change.data, change.version, zxid, time_ms
                else:
                    self._data[path] = (path, _blob(change.data), zxid, time_ms, change.version)
            elif isinstance(change, NodeCreated):
                path = change.path
                self._created[path] = TreeNode(
                    change.data, change.acl, zxid, zxid, zxid, time_ms, time_ms, 0, 0, 0, change.owner
                )
                self._changes_children(split(path)[0], zxid, 1)
            elif isinstance(change, NodeDeleted):
                path = change.path
                if self._created.pop(path, None) is None:
                    self._deleted[path] = None
                    self._data.pop(path, None)
                    self._acl.pop(path, None)
                    self._children.pop(path, None)
                self._changes_children(split(path)[0], zxid, 0)
            elif isinstance(change, AclSet):
                path = change.path
                if (node := self._created.get(path)) is not None:
                    node.acl, node.aversion = change.acl, change.version
                else:
                    self._acl[path] = (path, _acl_text(change.acl), change.version)
            elif isinstance(change, SessionOpened):
                self._opened[change.session_id] = change.timeout_ms
            elif self._opened.pop(change.session_id, None) is None:
                self._closed[change.session_id] = None

    def _changes_children(self, path: str, zxid: int, creates: int) -> None:
        if (node := self._created.get(path)) is not None:
            node.pzxid = zxid
            node.creates += creates
        else:
            self._children[path] = (zxid, self._children.get(path, (0, 0))[1] + creates)

    def statements(self) -> list[tuple[_Statement, list[tuple[object, ...]]]]:
        return [
            (_DELETE, [(path,) for path in self._deleted]),
            (_INSERT, [_row(path, node) for path, node in self._created.items()]),
            (_SET_DATA, list(self._data.values())),
            (_SET_ACL, list(self._acl.values())),
            (_COUNT_CHILDREN, [(path, pzxid, creates) for path, (pzxid, creates) in self._children.items()]),
            (_CLOSE_SESSION, [(session_id,) for session_id in self._closed]),
            (_OPEN_SESSION, list(self._opened.items())),
        ]


class JournalError(Exception):
    """Raised when the journal cannot be opened, read or written. The message is one sentence with the remedy."""


class JournalFullError(JournalError):
    """Raised when the disk is full. Nothing of the commit was written, and a later commit may succeed."""


class Journal(Protocol):
    """The interface of a journal: it makes transactions durable."""

    def commit(self, transactions: Sequence[Transaction]) -> None:
        """Makes transactions durable. Raises JournalError if that fails; then no transaction is written."""
        ...

    def close(self) -> None: ...


class SqliteJournal:
    """The journal in an SQLite file. `open` creates it."""

    __slots__ = ("_connection", "_path", "secret")

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        #: The secret from which the passwords of sessions are computed. It is the same as long as the file exists.
        self.secret = b""

    @staticmethod
    def open(path: Path, *, many_writes: bool = False) -> tuple[SqliteJournal, Tree]:
        """Opens the journal in a file, and returns it with the tree that it contains. A missing file is created.
        Raises JournalError, with a message of one sentence, if that fails.

        `many_writes`: the write-ahead log is extended to its full 4 MB at once, so that commits take less time."""
        is_new = not path.exists()
        try:
            connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=0, cached_statements=_PREPARED_STATEMENTS
            )
        except sqlite3.Error as error:
            if not has_descriptors(_DESCRIPTORS):
                raise _sentence(path, error) from error
            raise JournalError(
                f"The metadata file {path} cannot be opened ({error}): check the directory and its permissions."
            ) from error
        try:
            journal = SqliteJournal(path, connection)
            for pragma in (
                "page_size=4096",
                f"wal_autocheckpoint={_LOG_PAGES}",
                "locking_mode=EXCLUSIVE",
                "journal_mode=WAL",
                "synchronous=FULL",
                "fullfsync=ON",
                "checkpoint_fullfsync=ON",
            ):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            journal._prepare()
            tree = journal._load()
            journal.secret = journal._find_secret()
            if many_writes:
                journal._lengthen_log()
        except (sqlite3.Error, ValueError) as error:
            connection.close()
            raise _sentence(path, error) from error
        except JournalError:
            connection.close()
            raise
        if is_new:
            _sync_directory(path.parent)
        return journal, tree

    def _prepare(self) -> None:
        """Creates the tables in a new file. Raises JournalError if an existing file belongs to another program, has a
        newer format, or is damaged."""
        connection = self._connection
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == 0 and application == 0:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.executemany(
                "INSERT INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", [_row(path, node) for path, node in Tree().walk()]
            )
            connection.execute("INSERT INTO meta VALUES ('last_zxid', 0)")
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
            connection.execute("COMMIT")
            return
        if application != _APPLICATION_ID:
            raise JournalError(
                f"The file {self._path} is a database of another program: move it away, or give another directory in "
                f"log.dirs."
            )
        if version > FORMAT:
            raise JournalError(
                f"The metadata file {self._path} has format {version}, and this release reads up to {FORMAT}: start "
                f"the release that wrote it."
            )
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise JournalError(f"The metadata file {self._path} is damaged ({verdict}): restore it from a copy.")

    def _load(self) -> Tree:
        connection = self._connection
        nodes = [_node(row) for row in connection.execute("SELECT * FROM nodes")]
        sessions = {
            int(session): int(timeout) for session, timeout in connection.execute("SELECT id, timeout_ms FROM sessions")
        }
        found = connection.execute("SELECT value FROM meta WHERE key = 'last_zxid'").fetchone()
        if found is None:
            raise ValueError("the number of the last transaction is missing")
        return Tree.restored(nodes, sessions, int(found[0]))

    def _lengthen_log(self) -> None:
        """Extends the write-ahead log to its full length, so that later commits overwrite bytes: their fsync takes a
        fraction of the time of an fsync that also extends the file. SQLite recognizes its own frames and ignores the
        zeros after them."""
        log = self._path.with_name(self._path.name + "-wal")
        with suppress(OSError), log.open("r+b") as file:  # a full disk is reported by the commit that needs the room
            missing = _LOG_BYTES - file.seek(0, os.SEEK_END)
            if missing > 0:
                file.write(bytes(missing))
                file.flush()
                os.fsync(file.fileno())

    def _find_secret(self) -> bytes:
        found = self._connection.execute("SELECT value FROM meta WHERE key = 'session_secret'").fetchone()
        if found is None:
            secret = os.urandom(_SECRET_BYTES)
            self._connection.execute("INSERT INTO meta VALUES ('session_secret', ?)", (secret,))
            return secret
        (value,) = found
        if not isinstance(value, bytes) or len(value) != _SECRET_BYTES:
            raise ValueError("the secret of the sessions is damaged")
        return value

    def commit(self, transactions: Sequence[Transaction]) -> None:
        """Makes all transactions durable or, after an error, none. Raises JournalFullError if the disk is full,
        JournalError for any other failure."""
        if not transactions:
            return
        effect = _Effect()
        for transaction in transactions:
            effect.add(transaction)
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement, rows in effect.statements():
                self._execute(statement, rows)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'last_zxid'", (transactions[-1].zxid,))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                try:
                    connection.execute("ROLLBACK")
                except sqlite3.Error as second:
                    raise _sentence(self._path, second) from error
            raise _sentence(self._path, error) from error

    def _execute(self, statement: _Statement, rows: list[tuple[object, ...]]) -> None:
        """Executes a statement for many rows at a time, because Python's global lock is released and taken again once
        per statement."""
        for begin in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[begin : begin + _ROWS_AT_ONCE]
            values: list[object] = []
            for row in some:
                values += row
            self._connection.execute(_sql(statement, len(some)), values)

    def close(self) -> None:
        """Closes the file; SQLite first copies the write-ahead log into it."""
        self._connection.close()


def _row(path: str, node: TreeNode) -> tuple[object, ...]:
    return (
        path,
        _blob(node.data),
        _acl_text(node.acl),
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime,
        node.mtime,
        node.version,
        node.creates,
        node.aversion,
        node.ephemeral_owner,
    )


def _node(row: Sequence[object]) -> tuple[str, TreeNode]:
    path, data, acl, *numbers = row
    if data == _NULL:
        data = None
    if (
        not isinstance(path, str)
        or not isinstance(data, bytes | None)
        or not all(isinstance(number, int) for number in numbers)
    ):
        raise ValueError(f"the row of node {path!r} has values of the wrong kind")
    czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, owner = (int(str(number)) for number in numbers)
    return path, TreeNode(data, _acl(acl), czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, owner)


def _blob(data: bytes | None) -> bytes | str:
    return _NULL if data is None else data


def _acl_text(acl: tuple[Acl, ...]) -> str | None:
    """Returns the rules as text. Returns None for an ACL that permits everything to everyone, which nearly every node
    has."""
    return None if acl == OPEN_ACL else json.dumps([list(rule) for rule in acl])


def _acl(text: object) -> tuple[Acl, ...]:
    if text is None:
        return OPEN_ACL
    return tuple(Acl(int(permissions), str(scheme), str(who)) for permissions, scheme, who in json.loads(str(text)))


def _sentence(path: Path, error: Exception) -> JournalError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL"):
        return JournalFullError(
            f"The disk is full, so the metadata file {path} cannot be written: make room; the change was not made."
        )
    if name.startswith("SQLITE_CANTOPEN") and not has_descriptors(_DESCRIPTORS):
        return JournalError(f"The metadata file {path} cannot be opened (too many open files): {MORE_DESCRIPTORS}.")
    if name.startswith("SQLITE_BUSY"):
        return JournalError(
            f"The metadata file {path} is in use by another process: stop that process, or give another directory in "
            f"log.dirs."
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return JournalError(
            f"The metadata file {path} cannot be written ({error}): check the permissions of the directory."
        )
    if name.startswith("SQLITE_IOERR"):
        return JournalError(
            f"The metadata file {path} could not be read or written ({error}): check the disk, then start the broker "
            f"again."
        )
    return JournalError(f"The metadata file {path} is damaged ({error}): restore it from a copy.")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
