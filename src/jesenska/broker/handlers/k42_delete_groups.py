"""DeleteGroups (key 42), versions 0-2: removes empty groups with everything they committed. 2 compact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import KafkaError
from jesenska.broker.dispatch import LATER, Context, Outcome, handles
from jesenska.groups.events import DeleteGroup, ErrorAnswer, Response
from jesenska.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroupsResponseResult

if TYPE_CHECKING:
    from jesenska.broker.services import Services


@handles(DeleteGroupsRequest, 0, 2)
def handle(broker: Services, request: DeleteGroupsRequest, context: Context) -> Outcome:
    names = list(dict.fromkeys(request.groups_names))
    results = {name: DeleteGroupsResponseResult(group_id=name) for name in names}
    left = len(names)
    if not names:
        return DeleteGroupsResponse()

    def done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            context.answer(DeleteGroupsResponse(results=list(results.values())))

    for name in names:

        def reply(response: Response, name: str = name) -> None:
            assert isinstance(response, ErrorAnswer)
            results[name].error_code = response.error
            done()

        try:
            broker.groups.submit(name, DeleteGroup(reply, name))
        except KafkaError as error:
            results[name].error_code = error.code
            done()
    return LATER
