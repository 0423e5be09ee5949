"""DeleteGroups (key 42), versions 0-2: deletes empty groups with their committed offsets. Version 2 adds the compact
encoding. Many groups are deleted in slices, between which other requests are served."""

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
    deletion = _Deletion(context, request.groups_names)
    between = Slices(uses.clock)
    for name in deletion.results:
        await between()
        try:
            uses.groups.submit(name, partial(DeleteGroup, group_id=name), partial(deletion.replied, name))
        except KafkaError as error:
            deletion.answered(name, error.code)
    if deletion.results:
        await deletion.all_answered
    return DeleteGroupsResponse(results=list(deletion.results.values()))


class _Deletion:
    """A DeleteGroups request: the results of its groups, and the number of groups that have no result yet."""

    __slots__ = ("_context", "_unanswered", "all_answered", "results")

    def __init__(self, context: Context, names: list[str]) -> None:
        self._context = context
        self.results = {name: DeleteGroupsResponseResult(group_id=name) for name in names}
        self._unanswered = len(self.results)
        self.all_answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def replied(self, name: str, response: Response) -> None:
        """Stores the answer of a group's coordinator as the group's result."""
        assert isinstance(response, ErrorAnswer)
        if response.error is ErrorCode.NONE:
            log_change(self._context, f"group {name!a} was deleted")
        self.answered(name, response.error)

    def answered(self, name: str, error: int) -> None:
        self.results[name].error_code = error
        self._unanswered -= 1
        if self._unanswered == 0 and not self.all_answered.done():
            self.all_answered.set_result(None)
