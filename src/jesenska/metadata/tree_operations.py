"""The values of the metadata tree: operations, changes, results and errors.

An operation (`Create`, `Delete`, `SetData`, `SetAcl`, `Check`) is part of a request. A transaction is what the request
changes, with full paths, sequence numbers, owners and new versions. Applying a transaction cannot fail, and gives the
same tree everywhere.

    Transaction  zxid, time_ms, changes                zxid: the transaction's number, one above the number before
    changes      NodeCreated  path data acl owner      owner: session id of an ephemeral node, 0 otherwise
                 NodeDeleted  path
                 DataSet      path data version
                 AclSet       path acl version
                 SessionOpened  id timeout_ms
                 SessionClosed  id                     its ephemeral nodes' NodeDeleted come before it

Error codes are ZooKeeper's."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, NamedTuple

ANY_VERSION = -1

ACL_ALL = 31
READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16


class Acl(NamedTuple):
    """One access rule of a node: permission bits, scheme and id."""

    permissions: int
    scheme: str
    id: str


OPEN_ACL: tuple[Acl, ...] = (Acl(ACL_ALL, "world", "anyone"),)


class Stat(NamedTuple):
    """The attributes of a node besides its data. Names and meanings are ZooKeeper's."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


# Operations


class Create(NamedTuple):
    """An operation that creates a node. The data None, here and below, is ZooKeeper's null, which clients such as
    Apache Kafka distinguish from zero bytes. `Store.get` returns null as zero bytes."""

    path: str
    data: bytes | None = b""
    ephemeral: bool = False
    sequential: bool = False
    acl: tuple[Acl, ...] = OPEN_ACL


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class SetData(NamedTuple):
    path: str
    data: bytes | None
    version: int = ANY_VERSION


class SetAcl(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


class Check(NamedTuple):
    """An operation that changes nothing: it makes a multi fail if the node has another version than `version`."""

    path: str
    version: int = ANY_VERSION


Operation = Create | Delete | SetData | SetAcl | Check


class Result(NamedTuple):
    """The result of one operation: the node's path (for a sequential node, with its number) and stat. The stat is None
    after Delete and Check."""

    path: str
    stat: Stat | None


# Changes


class NodeCreated(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int


class NodeDeleted(NamedTuple):
    path: str


class DataSet(NamedTuple):
    path: str
    data: bytes | None
    version: int


class AclSet(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    version: int


class SessionOpened(NamedTuple):
    session_id: int
    timeout_ms: int


class SessionClosed(NamedTuple):
    session_id: int


Change = NodeCreated | NodeDeleted | DataSet | AclSet | SessionOpened | SessionClosed


class Transaction(NamedTuple):
    zxid: int
    time_ms: int
    changes: tuple[Change, ...]


# Errors


class TreeCode(IntEnum):
    """ZooKeeper's error codes that this tree and its server use."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124


class TreeError(Exception):
    """Raised when the tree refuses a request. `path` is the node that the refusal is about."""

    code: ClassVar[TreeCode] = TreeCode.SYSTEM_ERROR

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(f"{self.code.name} for {path}" + (f": {reason}" if reason else ""))
        self.path = path
        self.reason = reason


class NoNodeError(TreeError):
    code = TreeCode.NO_NODE


class NodeExistsError(TreeError):
    code = TreeCode.NODE_EXISTS


class BadVersionError(TreeError):
    code = TreeCode.BAD_VERSION


class NotEmptyError(TreeError):
    code = TreeCode.NOT_EMPTY


class NoChildrenForEphemeralsError(TreeError):
    code = TreeCode.NO_CHILDREN_FOR_EPHEMERALS


class SessionExpiredError(TreeError):
    code = TreeCode.SESSION_EXPIRED


class BadArgumentsError(TreeError):
    code = TreeCode.BAD_ARGUMENTS


class InvalidAclError(TreeError):
    code = TreeCode.INVALID_ACL


class NoAuthError(TreeError):
    code = TreeCode.NO_AUTH


class UnimplementedError(TreeError):
    """Raised when the server does not know or does not support the request."""

    code = TreeCode.UNIMPLEMENTED


class ConnectionLossError(TreeError):
    """Raised when the store could not be reached, or could not write. The caller does not know if the change was
    made."""

    code = TreeCode.CONNECTION_LOSS


class MultiError(Exception):
    """Raised when a multi was refused: its operation number `index` (from 0) was refused with `error`, and no
    operation of the multi was done."""

    def __init__(self, index: int, count: int, error: TreeError) -> None:
        super().__init__(f"operation {index + 1} of {count} was refused: {error}")
        self.index = index
        self.error = error
        # ZooKeeper's code for each operation: OK before the refused operation, RUNTIME_INCONSISTENCY (not tried) after
        # it.
        self.codes = (TreeCode.OK,) * index + (error.code,) + (TreeCode.RUNTIME_INCONSISTENCY,) * (count - index - 1)
