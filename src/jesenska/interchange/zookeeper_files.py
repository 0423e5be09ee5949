"""Reads a metadata tree from ZooKeeper's own data directory (`dataDir`, and `dataLogDir` if there is one), without a
running ZooKeeper. All numbers are big-endian. A string is an int32 length and UTF-8, a buffer an int32 length (-1:
null) and bytes.

    version-2/snapshot.<zxid, hex>     the tree at about this transaction
        magic int32 "ZKSN" | version int32 = 2 | database int64
        sessions   int32 count, each: id int64, timeout int32
        ACLs       int32 count, each: number int64, int32 count of (permissions int32, scheme string, id string)
        nodes      each: path string, data buffer, ACL number int64, then
                   czxid mzxid ctime mtime int64, version cversion aversion int32, owner pzxid int64
                   the path "/" ends them
        checksum   int64 Adler-32 of all bytes before it, then the string "/"; fields of newer releases are not read
    version-2/log.<zxid, hex>          the transactions from this zxid on
        magic int32 "ZKLG" | version int32 = 2 | database int64
        each       int64 Adler-32 of header and transaction | int32 length | header | transaction | 0x42
                   header: session int64, cxid int32, zxid int64, time int64, type int32
        zeros      to the end of the allocated space

The newest complete snapshot is used. ZooKeeper takes a snapshot while the tree changes, so the snapshot may include
some transactions after the zxid in its name. All transactions after this zxid are applied again; applying a
transaction twice has the same result as applying it once. An incomplete transaction is the end of its file: ZooKeeper
ended while it wrote the transaction, before it responded to the client. A transaction that is complete but has a wrong
checksum is damaged and is refused.

Compressed snapshots (`zookeeper.snapshot.compression.method`) are refused with a message. Ephemeral nodes are left
out: the files do not show if their sessions are alive."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

from jesenska.base.errors import JesenskaError
from jesenska.interchange.mapped_file import content_of
from jesenska.interchange.nodes import FoundTree, Node, below
from jesenska.metadata.tree import check_path, split
from jesenska.metadata.tree_operations import BadArgumentsError

_VERSIONED = "version-2"
_SNAPSHOT, _LOG = re.compile(r"snapshot\.([0-9a-f]{1,16})"), re.compile(r"log\.([0-9a-f]{1,16})")
_COMPRESSED = re.compile(r"snapshot\.[0-9a-f]{1,16}\.(gz|snappy)")
_SNAPSHOT_MAGIC, _LOG_MAGIC = b"ZKSN", b"ZKLG"
_FILE_HEAD = Struct(">4siq")
_FORMAT = 2
_STAT = Struct(">qqqqiiiqq")
_ENTRY_HEAD = Struct(">qi")
_TRANSACTION_HEAD = Struct(">qiqqi")
_END_OF_ENTRY = 0x42
_INT, _LONG = Struct(">i"), Struct(">q")
#: Values of a node's owner that are not session ids. They mark containers, and nodes with a time to live. Such nodes
#: are kept like ordinary nodes.
_CONTAINER, _TTL_BYTE = -(1 << 63), 0xFF
#: The largest size of a transaction in bytes. ZooKeeper accepts less in one request, including multi requests
#: (jute.maxbuffer is 1 MB by default).
_TRANSACTION_MAX_BYTES = 256 << 20
#: Transaction numbers (zxids) are below this number. A zxid consists of the leader's epoch and a 32-bit counter.
_ZXID_END = 1 << 62

_CREATE, _DELETE, _SET_DATA, _SET_ACL, _CHECK, _MULTI, _CREATE_2 = 1, 2, 5, 7, 13, 14, 15
_RECONFIG, _CREATE_CONTAINER, _DELETE_CONTAINER, _CREATE_TTL = 16, 19, 20, 21
_CREATE_SESSION, _CLOSE_SESSION, _ERROR = -10, -11, -1
#: The largest depth of multi transactions within multi transactions. ZooKeeper never nests them, but a damaged file
#: may contain anything.
_DEPTH_MAX = 2

Progress = Callable[[str], None]


class DamagedFileError(JesenskaError):
    """The error that is raised if a file of ZooKeeper cannot be read. The message is one sentence with cause and
    remedy."""


class _FormatError(ValueError):
    """The error that is raised for a fault in a file of ZooKeeper. Its text becomes a part of DamagedFileError's
    message."""


class _Reader:
    """Reads values in jute, ZooKeeper's encoding, from memory. Raises _FormatError if a value does not fit into the
    remaining bytes."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= self.left:
            raise _FormatError(f"{size} bytes are needed at position {self.at}, but only {self.left} are left")
        self.at += size
        return self._data[self.at - size : self.at]

    def int32(self) -> int:
        return int(_INT.unpack(self.take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack(self.take(8))[0])

    def flag(self) -> bool:
        return self.take(1)[0] != 0

    def buffer(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else bytes(self.take(size))

    def text(self) -> str:
        try:
            return (self.buffer() or b"").decode()
        except UnicodeDecodeError as error:
            raise _FormatError(f"a text before {self.at} is no UTF-8") from error

    def path(self) -> str:
        path = self.text()
        try:
            check_path(path)
        except BadArgumentsError as error:
            raise _FormatError(f"{path[:80]!r} is not a path") from error
        return path

    def count(self, smallest: int) -> int:
        """Reads the number of items that follow. Raises _FormatError if that many items, of at least `smallest` bytes
        each, do not fit into the remaining bytes."""
        count = self.int32()
        if count * smallest > self.left:
            raise _FormatError(f"{count} items at position {self.at} do not fit into the remaining {self.left} bytes")
        return max(count, 0)

    def pass_acl(self) -> None:
        for _ in range(self.count(12)):
            self.int32()
            self.text()
            self.text()


class _Tree:
    """The nodes to which transactions are applied, and the sessions that own ephemeral nodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._owners: dict[str, int] = {}
        self.last_zxid = 0

    def put(self, path: str, node: Node, owner: int) -> None:
        self.nodes[path] = node
        if _is_session(owner):
            self._owners[path] = owner
        else:
            self._owners.pop(path, None)

    def remove(self, path: str) -> None:
        self.nodes.pop(path, None)
        self._owners.pop(path, None)

    def persistent(self) -> dict[str, Node]:
        """Returns the nodes that are not ephemeral and have a parent. A snapshot is taken while the tree changes, so
        it may contain a node whose parent has already been deleted. The transaction that deletes such a node comes
        later in the log."""
        found: dict[str, Node] = {}
        for path in sorted(self.nodes):
            parent = split(path)[0]
            if path not in self._owners and (parent in found or parent == "/"):
                found[path] = self.nodes[path]
        return found

    def close_session(self, session: int) -> None:
        for path in [path for path, owner in self._owners.items() if owner == session]:
            self.remove(path)

    def apply(self, kind: int, reader: _Reader, session: int, depth: int = 0) -> None:
        """Applies one transaction to the nodes. `depth` is the number of multi transactions that contain it."""
        match kind:
            case _ if kind in (_CREATE, _CREATE_2, _CREATE_CONTAINER, _CREATE_TTL):
                path, data = reader.path(), reader.buffer()
                reader.pass_acl()
                ephemeral = kind in (_CREATE, _CREATE_2) and reader.flag()
                self.put(path, Node(data), session if ephemeral else 0)
            case _ if kind in (_DELETE, _DELETE_CONTAINER):
                self.remove(reader.path())
            case _ if kind in (_SET_DATA, _RECONFIG):
                path, data, version = reader.path(), reader.buffer(), reader.int32()
                if path in self.nodes:
                    self.nodes[path] = Node(data, version)
            case _ if kind == _MULTI and depth < _DEPTH_MAX:
                for _ in range(reader.count(8)):
                    inner, body = reader.int32(), reader.buffer() or b""
                    self.apply(inner, _Reader(memoryview(body)), session, depth + 1)
            case _ if kind == _CLOSE_SESSION:
                self.close_session(session)
            case _ if kind in (_CREATE_SESSION, _ERROR, _CHECK, _SET_ACL):
                pass
            case _:
                raise _FormatError(f"a transaction of the kind {kind} is not known")


def read_data_directory(
    directory: Path, log_directory: Path | None, chroot: str, progress: Progress = lambda text: None
) -> FoundTree:
    """Returns the metadata tree below the chroot in a ZooKeeper's data directory. Raises JesenskaError with one
    sentence if the directory cannot be read. `progress` is called with the name of each file that is read."""
    snapshots = _files(directory, _SNAPSHOT)
    logs = _files(log_directory if log_directory is not None else directory, _LOG)
    if not snapshots and (compressed := next(iter(_names(directory, _COMPRESSED)), None)) is not None:
        raise JesenskaError(
            f"The snapshot {compressed} is compressed, which is not read: start that ZooKeeper, and give --zookeeper "
            f"host:port in its place."
        )
    if not snapshots and not logs:
        raise JesenskaError(
            f"{directory} has no snapshot and no log of a ZooKeeper: name the directory in its dataDir."
        )
    tree = _Tree()
    begin = -1
    for zxid, path in reversed(snapshots):
        progress(f"reading {path.name}")
        if (found := _snapshot(path)) is not None:
            tree, begin = found, zxid
            break
    else:
        if snapshots:
            raise DamagedFileError(
                f"No snapshot in {directory} is whole: start that ZooKeeper, and give --zookeeper host:port, or "
                f"restore a copy."
            )
        if logs[0][0] > 1:
            raise DamagedFileError(
                f"{directory} has no snapshot, and its first log does not begin with the first transaction: name the "
                "directory in dataDir."
            )
    tree.last_zxid = max(begin, 0)
    first = max((index for index, (zxid, _) in enumerate(logs) if zxid <= begin + 1), default=0)
    for number, (_, path) in enumerate(logs[first:]):
        progress(f"reading {path.name} ({number + 1} of {len(logs) - first})")
        _replay(path, tree, begin)
    nodes = tree.persistent()
    if chroot and chroot not in nodes:
        raise JesenskaError(
            f"The ZooKeeper in {directory} has no node {chroot}: give the path that Kafka's zookeeper.connect ends "
            f"in with --chroot."
        )
    return FoundTree(below(nodes, chroot), tree.last_zxid)


def _names(directory: Path, pattern: re.Pattern[str]) -> list[Path]:
    inside = directory / _VERSIONED
    where = inside if inside.is_dir() else directory
    try:
        return sorted(path for path in where.iterdir() if pattern.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        raise JesenskaError(
            f"There is no directory {directory}: name the directory of ZooKeeper's setting dataDir."
        ) from None


def _files(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Returns the files that match the pattern, with the transaction numbers (zxids) in their names, sorted by zxid.
    Files with a zxid that no transaction can have are left out, since ZooKeeper did not make them."""
    found = [(int(path.name.rpartition(".")[2], 16), path) for path in _names(directory, pattern)]
    return sorted(item for item in found if item[0] < _ZXID_END)


def _snapshot(path: Path) -> _Tree | None:
    """Returns the tree in a snapshot file. Returns None if the file is incomplete because ZooKeeper ended while it
    wrote the file."""
    data = content_of(path)
    reader = _Reader(data)
    tree = _Tree()
    try:
        _check_head(reader, _SNAPSHOT_MAGIC)
        for _ in range(reader.count(12)):
            reader.take(12)
        for _ in range(reader.count(12)):
            reader.take(_LONG.size)
            reader.pass_acl()
        while (name := reader.text()) != "/":
            content, _ = reader.buffer(), reader.int64()
            *_, version, _, _, owner, _ = _STAT.unpack(reader.take(_STAT.size))
            if not name:
                continue  # the root
            check_path(name)
            tree.put(name, Node(content, version), owner)
        end = reader.at
        checksum = reader.int64()
        if reader.text() != "/" or zlib.adler32(data[:end]) != checksum:
            return None
    except (_FormatError, BadArgumentsError):
        return None
    return tree


def _replay(path: Path, tree: _Tree, begin: int) -> None:
    """Applies to the tree the transactions of a log file whose zxid is larger than `begin`."""
    data = content_of(path)
    if not any(data[: _FILE_HEAD.size]):
        return  # created, but nothing written yet
    reader = _Reader(data)
    try:
        _check_head(reader, _LOG_MAGIC)
        for body in _entries(reader):
            session, _, zxid, _, kind = _TRANSACTION_HEAD.unpack(body.take(_TRANSACTION_HEAD.size))
            if not 0 < zxid < _ZXID_END:
                raise _FormatError(f"a transaction has the number {zxid}")
            if zxid <= begin:
                continue
            tree.apply(kind, body, session)
            tree.last_zxid = max(tree.last_zxid, zxid)
    except _FormatError as error:
        raise DamagedFileError(
            f"The file {path} is damaged ({error}): start that ZooKeeper, and give --zookeeper host:port, or restore "
            f"a copy."
        ) from error


def _entries(reader: _Reader) -> Iterator[_Reader]:
    """Yields the transactions of a log file, up to the first incomplete transaction. Raises _FormatError for a damaged
    transaction."""
    while reader.left >= _ENTRY_HEAD.size:
        position = reader.at
        checksum, size = _ENTRY_HEAD.unpack(reader.take(_ENTRY_HEAD.size))
        if size <= 0 or size >= reader.left:
            if size < 0 or size > _TRANSACTION_MAX_BYTES:
                raise _FormatError(f"the transaction at {position} has an impossible size of {size} bytes")
            return
        body = reader.take(size)
        if reader.take(1)[0] != _END_OF_ENTRY:
            return
        if zlib.adler32(body) != checksum:
            raise _FormatError(f"the checksum of the transaction at {position} does not fit")
        yield _Reader(body)


def _check_head(reader: _Reader, magic: bytes) -> None:
    found, version, _ = _FILE_HEAD.unpack(reader.take(_FILE_HEAD.size))
    if found != magic or version != _FORMAT:
        raise _FormatError(f"it begins with {found!r} and the version {version}")


def _is_session(owner: int) -> bool:
    return owner != 0 and owner != _CONTAINER and (owner >> 56) & 0xFF != _TTL_BYTE
