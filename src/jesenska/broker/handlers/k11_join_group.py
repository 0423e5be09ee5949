"""JoinGroup (key 11), versions 0-9. Each line is what a version adds:

  0      no rebalance timeout: the session timeout is used
  1      rebalance timeout
  4      a new member first gets a member id with MEMBER_ID_REQUIRED, and sends the request again (KIP-394)
  5      static members
  6      compact encoding
  7      protocol type in the answer
  9      the answer can tell a static member that rejoins as the group's leader to skip the assignment

The answer is sent when every member has joined the rebalance, or when the rebalance timeout has passed.

A member whose metadata is too large for a record of the group is refused (MESSAGE_TOO_LARGE). Apache Kafka lets the
member join and stores its metadata, and then answers each SyncGroup with UNKNOWN_SERVER_ERROR."""

from __future__ import annotations

from functools import partial

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.limits import MEMBER_METADATA_RECORDS_MAX
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.events import Join, JoinAnswer, Response
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_KNOWN_MEMBERS = 4
_FIRST_WITH_PROTOCOL_TYPE = 7
_FIRST_WITH_SKIPPING = 9


@handles(JoinGroupRequest, GroupFamily)
def handle(uses: GroupFamily, request: JoinGroupRequest, context: Context) -> Outcome:
    version = context.version
    if _is_too_large(request, uses.groups.record_max_bytes):
        return _answer(JoinAnswer(ErrorCode.MESSAGE_TOO_LARGE, request.member_id), version)

    def reply(response: Response) -> None:
        assert isinstance(response, JoinAnswer)
        context.answer(_answer(response, version))

    make = partial(
        Join,
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.connection.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        # Some clients send 0, which means that the session timeout is used.
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if version >= _FIRST_WITH_REBALANCE_TIMEOUT and request.rebalance_timeout_ms > 0
        else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((item.name, bytes(item.metadata)) for item in request.protocols),
        needs_known_member=version >= _FIRST_WITH_KNOWN_MEMBERS,
        can_skip_assignment=version >= _FIRST_WITH_SKIPPING,
    )
    try:
        uses.groups.submit(request.group_id, make, reply)
    except KafkaError as error:
        return _answer(JoinAnswer(error.code, request.member_id), version)
    return LATER


def _is_too_large(request: JoinGroupRequest, record_max_bytes: int) -> bool:
    sizes = [len(item.metadata) for item in request.protocols]
    return max(sizes, default=0) > record_max_bytes or sum(sizes) > MEMBER_METADATA_RECORDS_MAX * record_max_bytes


def _answer(response: JoinAnswer, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=response.error,
        generation_id=response.generation_id,
        protocol_type=response.protocol_type if version >= _FIRST_WITH_PROTOCOL_TYPE else None,
        protocol_name=response.protocol_name or None
        if version >= _FIRST_WITH_PROTOCOL_TYPE
        else response.protocol_name or "",
        leader=response.leader,
        skip_assignment=response.skip_assignment and version >= _FIRST_WITH_SKIPPING,
        member_id=response.member_id,
        members=[]
        if response.error is not ErrorCode.NONE
        else [
            JoinGroupResponseMember(
                member_id=item.member_id, group_instance_id=item.group_instance_id, metadata=item.metadata
            )
            for item in response.members
        ],
    )
