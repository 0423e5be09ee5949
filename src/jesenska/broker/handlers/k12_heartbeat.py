"""Heartbeat (key 12), versions 0-4: keeps a member's session alive, and tells the member of a rebalance by an error
code. Version 3 adds static members, version 4 the compact format."""

from __future__ import annotations

from jesenska.base.errors import KafkaError
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.events import ErrorAnswer, Heartbeat, Response
from jesenska.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest, GroupFamily)
def handle(uses: GroupFamily, request: HeartbeatRequest, context: Context) -> Outcome:
    def reply(response: Response) -> None:
        assert isinstance(response, ErrorAnswer)
        context.answer(HeartbeatResponse(error_code=response.error))

    try:
        uses.groups.submit(
            request.group_id,
            lambda token: Heartbeat(
                token, request.group_id, request.generation_id, request.member_id, request.group_instance_id
            ),
            reply,
        )
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    return LATER
