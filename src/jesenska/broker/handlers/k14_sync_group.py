"""SyncGroup (key 14), versions 0-5. Each line is what a version adds:

  3      static members
  4      compact encoding
  5      protocol type and name, which must be the group's type and name; a request without them is answered
         INCONSISTENT_GROUP_PROTOCOL before any other check

The group's leader sends the assignment of all members. All members are answered when the assignment is committed in
the offsets topic."""

from __future__ import annotations

from functools import partial

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.events import Response, Sync, SyncAnswer
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_WITH_PROTOCOL = 5


@handles(SyncGroupRequest, GroupFamily)
def handle(uses: GroupFamily, request: SyncGroupRequest, context: Context) -> Outcome:
    if context.version >= _FIRST_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def reply(response: Response) -> None:
        assert isinstance(response, SyncAnswer)
        context.answer(
            SyncGroupResponse(
                error_code=response.error,
                protocol_type=response.protocol_type,
                protocol_name=response.protocol_name,
                assignment=response.assignment,
            )
        )

    make = partial(
        Sync,
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((item.member_id, bytes(item.assignment)) for item in request.assignments),
    )
    try:
        uses.groups.submit(request.group_id, make, reply)
    except KafkaError as error:
        return SyncGroupResponse(error_code=error.code)
    return LATER
