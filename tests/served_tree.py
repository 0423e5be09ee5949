"""The tree served over ZooKeeper's protocol, for tests: on the test's own loop, or in a thread for clients that
block."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from jesenska.base.clock import SystemClock
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.net.listener import listening_socket

#: Sessions last from 200 ms to 4 s.
QUICK = ServerConfig(tick_ms=100, max_session_timeout_ms=4000)


@contextlib.asynccontextmanager
async def served(
    path: Path | None = None,
    config: ServerConfig = QUICK,
    port: int = 0,
    guard: Guard | None = None,
) -> AsyncIterator[ZooKeeperServer]:
    """A server over the tree in that file, or in memory; both are closed at the end. `guard` says who may use it."""
    clock = SystemClock()
    tree = EmbeddedTree.simulated(clock) if path is None else await EmbeddedTree.open(path, clock, served=True)
    try:
        server = ZooKeeperServer(tree, clock, config, guard=guard)
        await server.start(listening_socket("127.0.0.1", port))
        try:
            yield server
        finally:
            await server.stop()
    finally:
        await tree.close()


class ServedTree:
    """The same in a thread; `with` ends it. `call` runs something of the server on its loop."""

    def __init__(self, path: Path | None = None, config: ServerConfig = QUICK, *, guard: Guard | None = None) -> None:
        self._path, self._config, self._guard = path, config, guard
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served-tree")
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self.server: ZooKeeperServer

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with served(self._path, self._config, guard=self._guard) as self.server:
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> ServedTree:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def call(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(30)
