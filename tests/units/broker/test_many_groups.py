"""A request about very many groups leaves the broker to others meanwhile."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from jesenska.base.errors import ErrorCode
from jesenska.broker.handlers.k42_delete_groups import handle
from jesenska.groups.events import DeleteGroup, ErrorAnswer
from jesenska.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


class _SlowGroups:
    """Groups that take a millisecond each, and answer at once."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def submit(self, group_id: str, make: Callable[[int], DeleteGroup], reply: Callable[[ErrorAnswer], None]) -> None:
        self.seconds += 0.001
        assert make(1).group_id == group_id
        reply(ErrorAnswer(ErrorCode.GROUP_ID_NOT_FOUND))


def test_others_have_their_turn_while_many_groups_are_deleted() -> None:
    names = [f"none-{number}" for number in range(1000)]
    groups = _SlowGroups()
    clock = SimpleNamespace(monotonic=lambda: groups.seconds)
    broker: Any = SimpleNamespace(groups=groups, clock=clock)
    context: Any = None
    turns: list[float] = []

    async def others() -> None:
        while True:
            turns.append(groups.seconds)
            await asyncio.sleep(0)

    async def main() -> DeleteGroupsResponse:
        meanwhile = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        outcome = handle(broker, DeleteGroupsRequest(groups_names=[*names, names[0]]), context)
        assert inspect.iscoroutine(outcome)
        answer = await outcome
        meanwhile.cancel()
        assert isinstance(answer, DeleteGroupsResponse)
        return answer

    results = asyncio.run(main()).results
    assert [item.group_id for item in results] == names
    assert {item.error_code for item in results} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert max(after - before for before, after in pairwise(turns)) < 0.01
    assert turns[-1] > 0.9
