"""The messages of ZooKeeper's client protocol: values, and their encoding as bytes (jute).

A frame is four bytes of length, then one message. The first message on a connection is a ConnectRequest, which the
server answers with a ConnectResponse. All later messages have these forms:

    request     RequestHeader  body of its type
    answer      ReplyHeader    body, if the error is 0 and the type has one
    event       ReplyHeader with xid -1, WatcherEvent

Types of jute: BOOL is one byte. INT and LONG are big-endian and signed. BUFFER and STRING (UTF-8) are a length (INT)
and that many bytes. A vector is a count (INT) and its elements. A length or count of -1 means null, and is read as
empty. A node's data (DATA) may be null, which clients distinguish from zero bytes. `LAYOUT` lists the fields of every
message in order.

    multi       (MultiHeader(type, False, -1)  body of its type)*  MultiHeader(-1, True, -1)
    its answer  (MultiHeader(type, False, 0)   body)*              MultiHeader(-1, True, -1)          all were done
                (MultiHeader(-1, False, code)  INT code)*          MultiHeader(-1, True, -1)          none was

multiRead has the form of multi, but each of its reads succeeds or fails by itself.

A length or a count that does not fit into its frame is refused before memory is allocated. Reading raises only
MessageError. Not supported: reconfig, containers, nodes with a time to live, persistent watches. Their request
types are known, so that the server can answer them UNIMPLEMENTED.

Sources: ZooKeeper's zookeeper.jute and its Programmer's Guide; where they do not define something, the behaviour of
ZooKeeper 3.8.4."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from typing import Any, Final, NamedTuple, TypeVar

from jesenska.metadata.tree_operations import ACL_ALL, OPEN_ACL, Acl, Stat

PASSWORD_BYTES = 16


class MessageError(Exception):
    """Raised for bytes that are not a valid message."""


class OpCode(IntEnum):
    """ZooKeeper's types of requests, with the numbers of its protocol."""

    ERROR = -1
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE_SESSION = -11


class Xid(IntEnum):
    """The fixed xids (request numbers) of notifications, pings, AUTH and SET_WATCHES. The xids of all other requests
    count up from 1."""

    NOTIFICATION = -1
    PING = -2
    AUTH = -4
    SET_WATCHES = -8


class CreateFlag(IntFlag):
    """The values of the field `flags` of a CREATE request that this server supports."""

    PERSISTENT = 0
    EPHEMERAL = 1
    SEQUENTIAL = 2


class WatcherKind(IntEnum):
    """The kinds of watches that CHECK_WATCHES and REMOVE_WATCHES can name."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


#: The connection state in every event that a server sends: ZooKeeper's KeeperState.SyncConnected.
SYNC_CONNECTED = 3


# Reading and writing values


class Reader:
    """Reads values from a frame, one after the other. Raises MessageError if the frame is too short."""

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = data if type(data) is bytes else bytes(data)
        self._position = 0
        self._end = len(self._data)

    @property
    def left(self) -> int:
        return self._end - self._position

    def take(self, size: int) -> bytes:
        begin = self._position
        if not 0 <= size <= self._end - begin:
            raise MessageError(f"{size} bytes are wanted where {self.left} are left")
        self._position = end = begin + size
        return self._data[begin:end]

    def fixed(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Reads the values of a struct of fixed size."""
        begin = self._position
        if layout.size > self._end - begin:
            raise MessageError(f"{layout.size} bytes are wanted where {self.left} are left")
        self._position = begin + layout.size
        return layout.unpack_from(self._data, begin)

    def skip(self, expected: bytes) -> bool:
        """Skips the expected bytes if they are next in the frame. Returns False, and skips nothing, if other bytes are
        next."""
        if not self._data.startswith(expected, self._position):
            return False
        self._position += len(expected)
        return True

    def boolean(self) -> bool:
        value = self.take(1)[0]
        if value > 1:
            raise MessageError(f"{value} is neither true nor false")
        return value == 1

    def int32(self) -> int:
        value: int = self.fixed(_INT)[0]
        return value

    def int64(self) -> int:
        value: int = self.fixed(_LONG)[0]
        return value

    def buffer(self) -> bytes:
        return self.data() or b""

    def data(self) -> bytes | None:
        size: int = self.fixed(_INT)[0]
        return None if size == -1 else self.take(size)

    def string(self) -> str:
        try:
            return str(self.buffer(), "utf-8")
        except UnicodeDecodeError as error:
            raise MessageError(f"a string is not UTF-8: {error.reason}") from None

    def count(self, element_min_bytes: int) -> int:
        """Reads the number of elements of a vector. Raises MessageError if the rest of the frame is too short for
        them: each element takes at least `element_min_bytes`."""
        count = self.int32()
        if count == -1:
            return 0
        if not 0 <= count <= self.left // element_min_bytes:
            raise MessageError(f"{count} elements are announced where {self.left} bytes are left")
        return count

    def end(self) -> None:
        """Raises MessageError if bytes remain after the message."""
        if self.left:
            raise MessageError(f"{self.left} bytes are left after the message")


_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_STAT = struct.Struct(">qqqqiiiqiiq")
_REPLY = struct.Struct(">iiqi")


def _write_bool(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def _write_int(out: bytearray, value: int) -> None:
    out += _INT.pack(value)


def _write_long(out: bytearray, value: int) -> None:
    out += _LONG.pack(value)


def _write_buffer(out: bytearray, value: bytes) -> None:
    out += _INT.pack(len(value))
    out += value


def _write_data(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += _INT.pack(-1)
    else:
        _write_buffer(out, value)


def _write_string(out: bytearray, value: str) -> None:
    _write_buffer(out, value.encode())


def _read_strings(reader: Reader) -> tuple[str, ...]:
    return tuple([reader.string() for _ in range(reader.count(4))])


def _write_strings(out: bytearray, values: Sequence[str]) -> None:
    out += _INT.pack(len(values))
    for value in values:
        _write_string(out, value)


def _read_pairs(reader: Reader) -> tuple[tuple[str, str], ...]:
    return tuple([(reader.string(), reader.string()) for _ in range(reader.count(8))])


def _write_pairs(out: bytearray, values: Sequence[tuple[str, str]]) -> None:
    out += _INT.pack(len(values))
    for first, second in values:
        _write_string(out, first)
        _write_string(out, second)


def _read_acls(reader: Reader) -> tuple[Acl, ...]:
    if reader.skip(_OPEN_ACL_BYTES):
        return OPEN_ACL
    return tuple([Acl(reader.int32(), reader.string(), reader.string()) for _ in range(reader.count(12))])


def _write_acls(out: bytearray, values: Sequence[Acl]) -> None:
    out += _INT.pack(len(values))
    for permissions, scheme, who in values:
        out += _INT.pack(permissions)
        _write_string(out, scheme)
        _write_string(out, who)


_OPEN_ACL_BYTES = b"".join((_INT.pack(1), _INT.pack(ACL_ALL), _INT.pack(5), b"world", _INT.pack(6), b"anyone"))


def _read_stat(reader: Reader) -> Stat:
    return Stat(*reader.fixed(_STAT))


def _write_stat(out: bytearray, value: Stat) -> None:
    out += _STAT.pack(*value)


class _Type(NamedTuple):
    read: Callable[[Reader], Any]
    write: Callable[[bytearray, Any], None]


_BOOL = _Type(Reader.boolean, _write_bool)
_INT32 = _Type(Reader.int32, _write_int)
_INT64 = _Type(Reader.int64, _write_long)
_BUFFER = _Type(Reader.buffer, _write_buffer)
_DATA = _Type(Reader.data, _write_data)
_STRING = _Type(Reader.string, _write_string)
_STRINGS = _Type(_read_strings, _write_strings)
_PAIRS = _Type(_read_pairs, _write_pairs)
_ACLS = _Type(_read_acls, _write_acls)
_STAT_FIELDS = _Type(_read_stat, _write_stat)


# Messages


class ConnectRequest(NamedTuple):
    """The first message on a connection, from the client. Newer clients append a boolean: True if they accept a
    read-only server."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes


class ConnectResponse(NamedTuple):
    """The server's answer to a ConnectRequest. A timeout of 0 means that the session has expired."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes


class RequestHeader(NamedTuple):
    xid: int
    type: int


class ReplyHeader(NamedTuple):
    xid: int
    zxid: int
    error: int


class MultiHeader(NamedTuple):
    type: int
    done: bool
    error: int


class PathRequest(NamedTuple):
    """The body of the requests SYNC, GET_ACL, GET_EPHEMERALS and GET_ALL_CHILDREN_NUMBER."""

    path: str


class WatchableRequest(NamedTuple):
    """The body of the requests EXISTS, GET_DATA, GET_CHILDREN and GET_CHILDREN2."""

    path: str
    watch: bool


class CreateRequest(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int


class VersionRequest(NamedTuple):
    """The body of the requests DELETE and CHECK: a path, and the version that the node must have."""

    path: str
    version: int


class SetDataRequest(NamedTuple):
    path: str
    data: bytes | None
    version: int


class SetAclRequest(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    version: int


class AuthPacket(NamedTuple):
    type: int
    scheme: str
    auth: bytes


class SaslToken(NamedTuple):
    """The body of a SASL request and of its answer: a message of the mechanism. The token of an answer is null if the
    login has failed, or if the server has no logins."""

    token: bytes | None


class WatchesRequest(NamedTuple):
    """The body of the requests CHECK_WATCHES and REMOVE_WATCHES. `kind` is a WatcherKind."""

    path: str
    kind: int


class SetWatches(NamedTuple):
    """The watches of a client, sent on a new connection. The client has seen all changes up to the zxid
    `relative_zxid`."""

    relative_zxid: int
    data_watches: tuple[str, ...]
    exist_watches: tuple[str, ...]
    child_watches: tuple[str, ...]


class SetWatches2(NamedTuple):
    relative_zxid: int
    data_watches: tuple[str, ...]
    exist_watches: tuple[str, ...]
    child_watches: tuple[str, ...]
    persistent_watches: tuple[str, ...]
    persistent_recursive_watches: tuple[str, ...]


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str


class PathResponse(NamedTuple):
    """The answer to CREATE and SYNC."""

    path: str


class PathAndStatResponse(NamedTuple):
    """The answer to CREATE2."""

    path: str
    stat: Stat


class StatResponse(NamedTuple):
    """The answer to EXISTS, SET_DATA and SET_ACL."""

    stat: Stat


class GetDataResponse(NamedTuple):
    data: bytes | None
    stat: Stat


class GetAclResponse(NamedTuple):
    acl: tuple[Acl, ...]
    stat: Stat


class NamesResponse(NamedTuple):
    """The answer to GET_CHILDREN and GET_EPHEMERALS."""

    names: tuple[str, ...]


class GetChildren2Response(NamedTuple):
    children: tuple[str, ...]
    stat: Stat


class NumberResponse(NamedTuple):
    """The answer to GET_ALL_CHILDREN_NUMBER. It is also the form of an error code for one operation in the answer to a
    multi."""

    number: int


class WhoAmIResponse(NamedTuple):
    """The answer to WHO_AM_I: the scheme and name of each identity of the connection."""

    identities: tuple[tuple[str, str], ...]


class EmptyResponse(NamedTuple):
    """An answer without content, to DELETE and CHECK."""


Message = tuple[Any, ...]
M = TypeVar("M", bound=Message)

LAYOUT: Final[dict[type[Message], tuple[_Type, ...]]] = {
    ConnectRequest: (_INT32, _INT64, _INT32, _INT64, _BUFFER),
    ConnectResponse: (_INT32, _INT32, _INT64, _BUFFER),
    RequestHeader: (_INT32, _INT32),
    ReplyHeader: (_INT32, _INT64, _INT32),
    MultiHeader: (_INT32, _BOOL, _INT32),
    PathRequest: (_STRING,),
    WatchableRequest: (_STRING, _BOOL),
    CreateRequest: (_STRING, _DATA, _ACLS, _INT32),
    VersionRequest: (_STRING, _INT32),
    SetDataRequest: (_STRING, _DATA, _INT32),
    SetAclRequest: (_STRING, _ACLS, _INT32),
    AuthPacket: (_INT32, _STRING, _BUFFER),
    SaslToken: (_DATA,),
    WatchesRequest: (_STRING, _INT32),
    WhoAmIResponse: (_PAIRS,),
    SetWatches: (_INT64, _STRINGS, _STRINGS, _STRINGS),
    SetWatches2: (_INT64, _STRINGS, _STRINGS, _STRINGS, _STRINGS, _STRINGS),
    WatcherEvent: (_INT32, _INT32, _STRING),
    PathResponse: (_STRING,),
    PathAndStatResponse: (_STRING, _STAT_FIELDS),
    StatResponse: (_STAT_FIELDS,),
    GetDataResponse: (_DATA, _STAT_FIELDS),
    GetAclResponse: (_ACLS, _STAT_FIELDS),
    NamesResponse: (_STRINGS,),
    GetChildren2Response: (_STRINGS, _STAT_FIELDS),
    NumberResponse: (_INT32,),
    EmptyResponse: (),
}

_TAKES = {kind: tuple(field.read for field in fields) for kind, fields in LAYOUT.items()}
_PUTS = {kind: tuple(field.write for field in fields) for kind, fields in LAYOUT.items()}
#: Precompiled structs for the messages that consist of numbers only: one call reads all fields.
_FIXED = {
    kind: struct.Struct(">" + "".join("i" if field is _INT32 else "q" for field in fields))
    for kind, fields in LAYOUT.items()
    if fields and all(field in (_INT32, _INT64) for field in fields)
}
_REPLY_BYTES = _REPLY.size - _INT.size

#: The body of each type of request. A type that is missing here has no body, is a multi, or is not supported.
REQUESTS: Final[dict[OpCode, type[Message]]] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.DELETE: VersionRequest,
    OpCode.EXISTS: WatchableRequest,
    OpCode.GET_DATA: WatchableRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.GET_ACL: PathRequest,
    OpCode.SET_ACL: SetAclRequest,
    OpCode.GET_CHILDREN: WatchableRequest,
    OpCode.GET_CHILDREN2: WatchableRequest,
    OpCode.SYNC: PathRequest,
    OpCode.CHECK: VersionRequest,
    OpCode.CHECK_WATCHES: WatchesRequest,
    OpCode.REMOVE_WATCHES: WatchesRequest,
    OpCode.AUTH: AuthPacket,
    OpCode.SET_WATCHES: SetWatches,
    OpCode.SET_WATCHES2: SetWatches2,
    OpCode.GET_EPHEMERALS: PathRequest,
    OpCode.GET_ALL_CHILDREN_NUMBER: PathRequest,
}

#: The body of the answer to each type of request.
RESPONSES: Final[dict[OpCode, type[Message]]] = {
    OpCode.CREATE: PathResponse,
    OpCode.CREATE2: PathAndStatResponse,
    OpCode.DELETE: EmptyResponse,
    OpCode.EXISTS: StatResponse,
    OpCode.GET_DATA: GetDataResponse,
    OpCode.SET_DATA: StatResponse,
    OpCode.GET_ACL: GetAclResponse,
    OpCode.SET_ACL: StatResponse,
    OpCode.GET_CHILDREN: NamesResponse,
    OpCode.GET_CHILDREN2: GetChildren2Response,
    OpCode.SYNC: PathResponse,
    OpCode.CHECK: EmptyResponse,
    OpCode.GET_EPHEMERALS: NamesResponse,
    OpCode.GET_ALL_CHILDREN_NUMBER: NumberResponse,
}

#: The operations allowed in a multi and in a multiRead.
MULTI_TYPES: Final = frozenset({OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA, OpCode.CHECK})
MULTI_READ_TYPES: Final = frozenset({OpCode.GET_DATA, OpCode.GET_CHILDREN})


def read(kind: type[M], reader: Reader) -> M:
    """Reads the next message, of the type `kind`."""
    layout = _FIXED.get(kind)
    return tuple.__new__(kind, reader.fixed(layout) if layout is not None else [take(reader) for take in _TAKES[kind]])


def write(out: bytearray, *messages: Message) -> bytearray:
    """Appends the bytes of the messages to `out`, and returns `out`."""
    for message in messages:
        for put, value in zip(_PUTS[type(message)], message, strict=True):
            put(out, value)
    return out


def reply(xid: int, zxid: int, error: int, body: bytes | bytearray = b"") -> bytes:
    """Returns the frame of an answer: length, ReplyHeader, body."""
    return _REPLY.pack(_REPLY_BYTES + len(body), xid, zxid, error) + body


def read_connect(data: bytes | bytearray | memoryview) -> tuple[ConnectRequest, bool | None]:
    """Reads the ConnectRequest. The second value says if the client accepts a read-only server; it is None if the
    client did not send that byte."""
    reader = Reader(data)
    request = read(ConnectRequest, reader)
    read_only = reader.boolean() if reader.left else None
    reader.end()
    return request, read_only


def read_connected(data: bytes | bytearray | memoryview) -> ConnectResponse:
    """Reads a ConnectResponse. The byte about a read-only server that may follow it is ignored."""
    reader = Reader(data)
    response = read(ConnectResponse, reader)
    if reader.left:
        reader.boolean()
    reader.end()
    return response


class SubRequest(NamedTuple):
    """One operation of a MULTI request, which does all its operations or none."""

    type: OpCode
    body: Message


def read_multi(reader: Reader, allowed: frozenset[OpCode]) -> tuple[SubRequest, ...]:
    """Reads the operations of a MULTI request. Raises MessageError if the type of an operation is not in `allowed`."""
    found: list[SubRequest] = []
    while True:
        header = read(MultiHeader, reader)
        if header.done:
            return tuple(found)
        if header.type not in allowed:
            raise MessageError(f"an operation of type {header.type} does not belong here")
        kind = OpCode(header.type)
        found.append(SubRequest(kind, read(REQUESTS[kind], reader)))


def write_multi(out: bytearray, operations: Sequence[SubRequest]) -> bytearray:
    for kind, body in operations:
        write(out, MultiHeader(kind, False, -1), body)
    return write(out, _MULTI_END)


class SubResponse(NamedTuple):
    """The answer to one operation of a multi: its body, or an error code if the operation was refused or not tried."""

    type: OpCode
    error: int
    body: Message | None


def read_multi_response(reader: Reader) -> tuple[SubResponse, ...]:
    found: list[SubResponse] = []
    while True:
        header = read(MultiHeader, reader)
        if header.done:
            return tuple(found)
        if header.type == OpCode.ERROR:
            found.append(SubResponse(OpCode.ERROR, read(NumberResponse, reader).number, None))
        elif header.type in MULTI_TYPES or header.type in MULTI_READ_TYPES:
            kind = OpCode(header.type)
            found.append(SubResponse(kind, 0, read(RESPONSES[kind], reader)))
        else:
            raise MessageError(f"an answer of type {header.type} does not belong here")


def write_multi_response(out: bytearray, responses: Sequence[SubResponse]) -> bytearray:
    for kind, error, body in responses:
        if body is None:
            write(out, MultiHeader(OpCode.ERROR, False, error), NumberResponse(error))
        else:
            write(out, MultiHeader(kind, False, 0), body)
    return write(out, _MULTI_END)


_MULTI_END = MultiHeader(-1, True, -1)
