"""Translates a client's operations into requests of the ZooKeeper protocol, and the answers into results or errors.
`server.operations` is the counterpart on the server's side."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.metadata.tree import check_path, require_size
from jesenska.metadata.tree_operations import (
    BadArgumentsError,
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    InvalidAclError,
    MultiError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SetAcl,
    SetData,
    TreeCode,
    TreeError,
    UnimplementedError,
)
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.messages import (
    RESPONSES,
    CreateFlag,
    CreateRequest,
    Message,
    MessageError,
    OpCode,
    Reader,
    SetDataRequest,
    SubRequest,
    SubResponse,
    VersionRequest,
)

LOGIN_REQUIRED = "the server accepts only clients that log in"

_ERRORS: dict[int, type[TreeError]] = {
    error.code: error
    for error in (
        NoNodeError,
        NodeExistsError,
        BadVersionError,
        NotEmptyError,
        NoChildrenForEphemeralsError,
        SessionExpiredError,
        BadArgumentsError,
        InvalidAclError,
        NoAuthError,
        ConnectionLossError,
        UnimplementedError,
    )
}


def _error(code: int, path: str) -> TreeError:
    known = _ERRORS.get(code)
    if code == TreeCode.SESSION_CLOSED_REQUIRE_SASL_AUTH:
        return NoAuthError(path, LOGIN_REQUIRED)
    if code == TreeCode.CONNECTION_LOSS:
        # The connection still works: a server of jesenska sends this code when it cannot write to its disk.
        return ConnectionLossError(path, "the ZooKeeper server cannot write it, and its log says why")
    return known(path) if known is not None else TreeError(path, f"ZooKeeper's error {code}")


def require_ok(code: int, path: str) -> None:
    """Raises the exception that belongs to an answer's error code. Does nothing if the code is OK."""
    if code != TreeCode.OK:
        raise _error(code, path)


def sub_request(operation: Operation, create: OpCode = OpCode.CREATE2) -> SubRequest:
    """Returns the request for an operation, to be sent by itself or as part of a multi. Raises an error for an
    operation that every server would refuse. `create` is CREATE for a server before 3.5, which does not return the
    stat of a new node."""
    match operation:
        case Create(path, data, ephemeral, sequential, acl):
            check_path(path + "1" if sequential else path)
            require_size(path, data)
            flags = (CreateFlag.EPHEMERAL if ephemeral else 0) | (CreateFlag.SEQUENTIAL if sequential else 0)
            return SubRequest(create, CreateRequest(path, data, acl, flags))
        case SetData(path, data, version):
            check_path(path)
            require_size(path, data)
            return SubRequest(OpCode.SET_DATA, SetDataRequest(path, data, version))
        case Delete(path, version):
            check_path(path)
            return SubRequest(OpCode.DELETE, VersionRequest(path, version))
        case Check(path, version):
            check_path(path)
            return SubRequest(OpCode.CHECK, VersionRequest(path, version))
        case SetAcl(path):
            raise BadArgumentsError(path, "ZooKeeper changes ACLs one at a time")


def read_result(kind: OpCode, path: str, code: int, reader: Reader) -> Result:
    """Returns the result of a single write, read from the server's answer. Raises the exception of the answer's error
    code."""
    require_ok(code, path)
    return _result_of(path, messages.read(RESPONSES[kind], reader))


def _result_of(path: str, body: Message | None) -> Result:
    match body:
        case messages.PathAndStatResponse(full_path, stat):
            return Result(full_path, stat)
        case messages.PathResponse(full_path):
            return Result(full_path, None)
        case messages.StatResponse(stat):
            return Result(path, stat)
    return Result(path, None)


def results_of(operations: Sequence[Operation], answers: Sequence[SubResponse]) -> tuple[Result, ...]:
    """Returns the results of the operations of a multi, read from the server's answer. Raises MultiError, with the
    operation that failed, if the server refused the multi."""
    if len(answers) != len(operations):
        raise MessageError(f"{len(answers)} answers to {len(operations)} operations")
    for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
        if answer.error not in (TreeCode.OK, TreeCode.RUNTIME_INCONSISTENCY):
            raise MultiError(index, len(operations), _error(answer.error, operation.path))
    return tuple(_result_of(operation.path, answer.body) for operation, answer in zip(operations, answers, strict=True))
