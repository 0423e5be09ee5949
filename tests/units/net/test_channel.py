"""Requests on an outgoing connection."""

from __future__ import annotations

import asyncio
import socket

import pytest

from jesenska.net.channel import Channel
from jesenska.net.connection import ReadBuffer
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse


def test_cancellation_that_comes_together_with_the_answer_is_not_swallowed() -> None:
    async def work() -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        channel = Channel(asyncio.get_running_loop(), near, ReadBuffer(), "test", "localhost", 1)
        with far:
            channel._ranges = {ApiVersionsRequest.api_key: (0, 0)}
            asking = asyncio.create_task(channel.request(ApiVersionsRequest(), ApiVersionsResponse))
            while not channel._waiting:
                await asyncio.sleep(0)
            channel._waiting[0].future.set_result(ApiVersionsResponse())
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            channel.close()

    asyncio.run(work())
