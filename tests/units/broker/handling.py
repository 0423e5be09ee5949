"""Calls handlers of requests without a broker: each gets the parts that its family has, some of them stand-ins."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from jesenska.base.errors import KafkaError
from jesenska.broker.metadata_cache import BrokerNode, MetadataCache
from jesenska.broker.requests.connection import LATER
from jesenska.broker.requests.gate import served_by
from jesenska.wire.language import Message

LISTENER = "PLAINTEXT"


def view_of(*brokers: tuple[int, str, str | None], controller_id: int = -1) -> MetadataCache:
    """A cluster of brokers: id, name of the listener, rack. Each is at `host-<id>` and port 9000 + id."""
    view = MetadataCache("a-cluster", controller_id)
    view.brokers = {
        number: BrokerNode(number, {listener: (f"host-{number}", 9000 + number)}, rack)
        for number, listener, rack in brokers
    }
    return view


class Coordinator:
    """A stand-in for the groups, or the transactions, of a broker: takes the event for a key and answers it. `answer`
    is the answer, or the error that it raises."""

    def __init__(self, answer: object) -> None:
        self._answer = answer
        self.asked: list[tuple[str, Any]] = []

    def submit(self, key: str, make: Callable[[int], Any], reply: Callable[[Any], None]) -> None:
        if isinstance(self._answer, KafkaError):
            raise self._answer
        self.asked.append((key, make(7)))
        reply(self._answer)


def answer_of(request: Message, version: int, **parts: object) -> Any:
    """Returns the answer of the handler that serves the request. `parts`: the parts that the handler uses."""
    served = served_by(request.api_key)
    assert served is not None
    assert served.min_version <= version <= served.max_version
    later: list[Message] = []
    context: Any = SimpleNamespace(
        version=version, connection=SimpleNamespace(listener_name=LISTENER), answer=later.append
    )
    outcome = served.handler(SimpleNamespace(**parts), request, context)
    if inspect.iscoroutine(outcome):

        async def main() -> Any:
            return await outcome

        return asyncio.run(main())
    if outcome is LATER:
        (answer,) = later
        return answer
    assert later == []
    return outcome
