"""A connection to a broker that is a function of the test. Requests and answers are sent as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jesenska.base.errors import NetworkException
from jesenska.wire.codec import decode, encode
from jesenska.wire.language import Message
from jesenska.wire.registry import APIS

Answering = Callable[[Message, int], Awaitable[Message]]


class FakeChannel:
    """A channel without a connection. `answer` gets each request and its version. `newest` has the newest versions of
    the broker by API key (by default the versions that are known here)."""

    def __init__(self, answer: Answering, newest: Mapping[int, int] | None = None) -> None:
        self._answer = answer
        self._newest = newest or {}
        self.closed = False
        #: It takes requests and does not answer.
        self.is_silent = False
        self.sent: list[asyncio.Future[Any]] = []
        self._answering: set[asyncio.Task[None]] = set()

    def version_for(self, request: type[Message], at_most: int | None = None) -> int:
        return min(request.versions[1], self._newest.get(request.api_key, request.versions[1]))

    def send(self, request: Message, version: int) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.sent.append(future)
        if self.closed:
            self._fail(future, "closed")
        elif not self.is_silent:
            task = loop.create_task(
                self._deal_with(decode(type(request), version, encode(request, version)), version, future)
            )
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        return future

    async def _deal_with(self, request: Message, version: int, future: asyncio.Future[Any]) -> None:
        answer = await self._answer(request, version)
        if not future.done():
            future.set_result(decode(APIS[request.api_key].response, version, encode(answer, version)))

    async def request(
        self, request: Message, response: type[Message], *, timeout_seconds: float = 30.0, at_most: int | None = None
    ) -> Any:
        return await self.send(request, self.version_for(type(request)))

    def close(self, reason: str = "") -> None:
        self.closed = True
        for future in self.sent:
            if not future.done():
                self._fail(future, reason)

    @staticmethod
    def _fail(future: asyncio.Future[Any], reason: str) -> None:
        future.set_exception(NetworkException(reason))
        future.exception()  # a caller that does not await it needs no warning
