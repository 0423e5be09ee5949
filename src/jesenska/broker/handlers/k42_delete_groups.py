"""DeleteGroups (key 42), versions 0-2: removes empty groups with their committed offsets. 2 compact. Many are removed
in pieces, with other requests in between."""

from __future__ import annotations

import asyncio
from functools import partial

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.slices import Slices
from jesenska.groups.events import DeleteGroup, ErrorAnswer, Response
from jesenska.wire.messages.k42_delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseResult,
)


@handles(DeleteGroupsRequest, GroupFamily)
def handle(uses: GroupFamily, request: DeleteGroupsRequest, context: Context) -> Outcome:
    return _delete(uses, request, context)


async def _delete(uses: GroupFamily, request: DeleteGroupsRequest, context: Context) -> DeleteGroupsResponse:
    results = {name: DeleteGroupsResponseResult(group_id=name) for name in request.groups_names}
    left = len(results)
    all_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not all_answered.done():
            all_answered.set_result(None)

    between = Slices(uses.clock)
    for name in list(results):
        await between()

        def reply(response: Response, name: str = name) -> None:
            assert isinstance(response, ErrorAnswer)
            results[name].error_code = response.error
            if response.error is ErrorCode.NONE:
                log_change(context, f"group {name!a} was deleted")
            done()

        try:
            uses.groups.submit(name, partial(DeleteGroup, group_id=name), reply)
        except KafkaError as error:
            results[name].error_code = error.code
            done()
    if results:
        await all_answered
    return DeleteGroupsResponse(results=list(results.values()))
