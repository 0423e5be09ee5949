"""A task that sends messages to one other broker, over a separate connection. A mover."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from jesenska.net.channel import Channel


class PeerTask(ABC):
    """`connect` gives a connection; it is opened when it is needed and kept. `_news` is set when there is something to
    send, and `_run` waits for that."""

    def __init__(self, connect: Callable[[], Awaitable[Channel]]) -> None:
        self._connect = connect
        self._news = asyncio.Event()
        self._channel: Channel | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @abstractmethod
    async def _run(self) -> None:
        """Sends messages, one after the other, until it is cancelled."""

    async def _connected(self) -> Channel:
        """The connection that is kept, or a new one."""
        if self._channel is None or self._channel.closed:
            self._channel = await self._connect()
        return self._channel

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def close(self) -> None:
        """Sends nothing more; unanswered requests stay unanswered."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._disconnect()
