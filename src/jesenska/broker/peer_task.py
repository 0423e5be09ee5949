"""A task that sends messages to one other broker, over its own connection. Subclasses decide the content of the
messages."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from jesenska.net.channel import Channel


class PeerTask(ABC):
    """The task that sends messages to one other broker. `connect` opens the connection when it is first needed.
    Subclasses set `_news` when there is a message to send, and `_run` waits for `_news`."""

    def __init__(self, connect: Callable[[], Awaitable[Channel]]) -> None:
        self._connect = connect
        self._news = asyncio.Event()
        self._channel: Channel | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @abstractmethod
    async def _run(self) -> None:
        """Sends messages, one after the other, until the task is cancelled."""

    async def _connected(self) -> Channel:
        """Returns the open connection, or opens a new connection if there is no open connection."""
        if self._channel is None or self._channel.closed:
            self._channel = await self._connect()
        return self._channel

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def close(self) -> None:
        """Ends the task and closes the connection. Requests in flight get no answer."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._disconnect()
