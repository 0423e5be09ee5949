"""The Kafka client of a Spark process. It has an event loop in its own thread, and one cluster connection per set of
options, which lives as long as the process.

Spark calls a data source from an ordinary thread, and reuses its Python workers from task to task. The loop's thread
receives bytes while Spark's thread converts the bytes received before. An open connection serves the next task without
a new handshake. A forked process starts a loop of its own.

A request that fails with a retriable error, for example while a broker restarts, is repeated until
`default.api.timeout.ms` has passed, or as often as the caller says. The error of an unknown topic or partition is
raised at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from jesenska.base.clock import Clock, SystemClock
from jesenska.base.errors import KafkaError, UnknownTopicOrPartitionError
from jesenska.client.cluster import Cluster
from jesenska.pipeline.connector.options import ClientOptions
from jesenska.security.client_security import client_security

T = TypeVar("T")

_connections: dict[tuple[int, ClientOptions], ClusterThread] = {}
_lock = threading.Lock()


class ClusterThread:
    """A thread with an event loop, and a connection to the Kafka cluster that the options name. Other threads submit
    coroutines, which run on the event loop."""

    def __init__(self, options: ClientOptions, clock: Clock | None = None) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="jesenska client", daemon=True)
        self._thread.start()
        self.cluster = self.run(self._open())

    async def _open(self) -> Cluster:
        options = self.options
        return Cluster(
            options.bootstrap,
            replace(options.connections, security=client_security(dict(options.security).get, os.urandom)),
            clock=self.clock,
        )

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Starts the coroutine on the thread of the event loop. Returns a future, so the caller can wait for the
        result later."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result()

    def persist(
        self,
        work: Callable[[], Awaitable[T]],
        timeout_ms: int | None = None,
        *,
        retries: int | None = None,
        interval_ms: int | None = None,
    ) -> T:
        """Returns the result of `work`. Calls `work` again after retriable errors: for `timeout_ms` milliseconds, or
        at most `retries` times if `retries` is given. Between two calls it waits `interval_ms` milliseconds."""
        return self.run(self.persistently(work, timeout_ms, retries=retries, interval_ms=interval_ms))

    async def persistently(
        self,
        work: Callable[[], Awaitable[T]],
        timeout_ms: int | None = None,
        *,
        retries: int | None = None,
        interval_ms: int | None = None,
    ) -> T:
        limit = self.options.api_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self.clock.monotonic() + limit / 1000
        pause = max(self.options.connections.retry_backoff_seconds, 0.02) if interval_ms is None else interval_ms / 1000
        attempts = 0
        while True:
            attempts += 1
            try:
                return await work()
            except KafkaError as error:
                enough = self.clock.monotonic() > deadline if retries is None else attempts > retries
                if not error.retriable or isinstance(error, UnknownTopicOrPartitionError) or enough:
                    raise
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Closes the cluster connection, then ends the event loop and its thread. Only tests and short programs call
        this method."""
        self.run(self.cluster.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        with _lock:
            for key, connection in list(_connections.items()):
                if connection is self:
                    del _connections[key]


def connect(options: ClientOptions) -> ClusterThread:
    """Returns the ClusterThread of this process for these options. It is made at the first call and reused by later
    calls."""
    with _lock:
        key = (os.getpid(), options)
        found = _connections.get(key)
        if found is None:
            for stale in [other for other in _connections if other[0] != key[0]]:
                del _connections[stale]
            found = _connections[key] = ClusterThread(options)
        return found
