"""Repeats a request after errors that may pass."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from jesenska.base.errors import KafkaError
from jesenska.client.cluster import Cluster

T = TypeVar("T")


async def persistently(cluster: Cluster, passing: Collection[int], attempt: Callable[[], Awaitable[T]]) -> T:
    """Calls `attempt` and returns its result. If the call fails with one of the error codes in `passing`, `attempt` is
    called again after a pause, until the request timeout has passed. Then the last error is raised."""
    deadline = cluster.clock.monotonic() + cluster.request_timeout_seconds
    failures = 0
    while True:
        try:
            return await attempt()
        except KafkaError as error:
            if error.code not in passing or cluster.clock.monotonic() > deadline:
                raise
        failures += 1
        await asyncio.sleep(cluster.retry_pause_seconds(failures))
