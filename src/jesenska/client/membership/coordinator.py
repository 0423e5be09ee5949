"""A connection to the coordinator of a group. Each group has its own connection, since a JoinGroup request waits for
other members."""

from __future__ import annotations

from typing import TypeVar

from jesenska.base.errors import NetworkException, RequestTimedOutError
from jesenska.client.cluster import Cluster
from jesenska.client.coordinators import find_coordinator
from jesenska.net.channel import Channel
from jesenska.wire.language import Message

Answer = TypeVar("Answer", bound=Message)


class GroupCoordinator:
    """Sends requests to the coordinator of one group. The coordinator is looked up when it is first needed, and again
    after `forget` or a lost connection."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._broker: int | None = None
        self._purpose = f"group-{id(self):x}"

    @property
    def is_known(self) -> bool:
        return self._broker is not None

    def forget(self) -> None:
        self._broker = None

    async def ask(
        self,
        request: Message,
        response: type[Answer],
        *,
        at_most: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Sends a request to the coordinator and returns the response. The request has at most version `at_most`.
        Raises NetworkException or RequestTimedOutError if there is no response."""
        channel = await self.channel()
        try:
            return await channel.request(
                request,
                response,
                timeout_seconds=timeout_seconds or self._cluster.request_timeout_seconds,
                at_most=at_most,
            )
        except (NetworkException, RequestTimedOutError):
            self.forget()
            raise

    async def channel(self) -> Channel:
        if self._broker is None:
            self._broker = await find_coordinator(self._cluster, self._group_id)
        try:
            return await self._cluster.channel_of(self._broker, self._purpose)
        except (NetworkException, RequestTimedOutError):
            self.forget()
            raise

    def close(self) -> None:
        self._cluster.close_purpose(self._purpose)
