"""Translates ZooKeeper's requests into operations of the metadata tree, and the tree's results into answers."""

from __future__ import annotations

from typing import Any

from jesenska.metadata.acl import Identity, completed
from jesenska.metadata.tree_operations import (
    BadArgumentsError,
    Check,
    Create,
    Delete,
    MultiError,
    Operation,
    Result,
    SetAcl,
    SetData,
    TreeCode,
    TreeError,
    UnimplementedError,
)
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.messages import (
    CreateFlag,
    EmptyResponse,
    Message,
    OpCode,
    PathAndStatResponse,
    PathResponse,
    StatResponse,
    SubResponse,
)

_EPHEMERAL, _SEQUENTIAL = int(CreateFlag.EPHEMERAL), int(CreateFlag.SEQUENTIAL)


def operation_of(kind: OpCode, body: Any, identities: frozenset[Identity]) -> Operation:
    if kind is OpCode.CREATE_CONTAINER:
        raise UnimplementedError(body.path, "containers")
    if kind in (OpCode.CREATE, OpCode.CREATE2):
        path, data, acl, flags = body
        if not 0 <= flags <= 3:
            raise (
                UnimplementedError(path, "containers and times to live")
                if 4 <= flags <= 6
                else BadArgumentsError(path, f"flags {flags}")
            )
        return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL), completed(path, acl, identities))
    if kind is OpCode.DELETE:
        return Delete(*body)
    if kind is OpCode.SET_DATA:
        return SetData(*body)
    if kind is OpCode.SET_ACL:
        path, acl, version = body
        return SetAcl(path, completed(path, acl, identities), version)
    return Check(*body)


def response_to(kind: OpCode, result: Result) -> Message:
    """Returns the body of the answer to a write that succeeded."""
    if kind is OpCode.CREATE:
        return PathResponse(result.path)
    if result.stat is None or kind in (OpCode.DELETE, OpCode.CHECK):
        return EmptyResponse()
    if kind is OpCode.CREATE2:
        return PathAndStatResponse(result.path, result.stat)
    return StatResponse(result.stat)


def refused_multi(error: Exception, count: int) -> bytearray:
    """Returns the body of the answer to a multi that was refused: an error code for each of its operations."""
    refused = (
        error
        if isinstance(error, MultiError)
        else MultiError(0, count, error if isinstance(error, TreeError) else TreeError("/"))
    )
    return messages.write_multi_response(bytearray(), [SubResponse(OpCode.ERROR, code, None) for code in refused.codes])


def code_of(error: Exception) -> TreeCode:
    return error.code if isinstance(error, TreeError) else TreeCode.SYSTEM_ERROR
