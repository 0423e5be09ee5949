"""LeaveGroup (key 13), versions 0-5. Each line is what a version adds:

0-2    one member; its error is the error of the whole answer
3      several members (static members by instance id), with an error for each; the answer never contains an empty list
       of members, because librdkafka cannot handle that
4      compact encoding
5      a reason, which is not stored
"""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.events import Leave, LeaveAnswer, Leaving, Response
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMember

_FIRST_WITH_SEVERAL = 3


@handles(LeaveGroupRequest, GroupFamily)
def handle(uses: GroupFamily, request: LeaveGroupRequest, context: Context) -> Outcome:
    several = context.version >= _FIRST_WITH_SEVERAL
    members = (
        tuple(Leaving(item.member_id, item.group_instance_id) for item in request.members)
        if several
        else (Leaving(request.member_id),)
    )

    def reply(response: Response) -> None:
        assert isinstance(response, LeaveAnswer)
        if several:
            answers = [
                LeaveGroupResponseMember(
                    member_id=item.member_id, group_instance_id=item.group_instance_id, error_code=error
                )
                for item, error in response.members
            ]
            context.answer(LeaveGroupResponse(error_code=response.error, members=answers))
        else:
            first = response.members[0][1] if response.members else ErrorCode.NONE
            context.answer(LeaveGroupResponse(error_code=response.error or first))

    try:
        uses.groups.submit(request.group_id, lambda token: Leave(token, request.group_id, members), reply)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    return LATER
