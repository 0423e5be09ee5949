"""The place of a broker's metadata tree (its "home"): in the broker's own process (`EmbeddedHome`), or on a ZooKeeper
server, jesenska's or Apache ZooKeeper's (`zookeeper_home.ZooKeeperHome`).

A home opens the broker's store, reads the content of the tree, and knows if other processes can write to the tree. If
they can, the broker watches their changes (`controller.changes.tree_looks`). The embedded tree serves ZooKeeper's
clients if `jesenska.zookeeper.listener` is set.

Most brokers do not use ZooKeeper's protocol, so its client and server are imported only if they are needed."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from jesenska.base.errors import JesenskaError
from jesenska.broker.machine import Machine
from jesenska.config.layers import BrokerConfig
from jesenska.controller.context import ControllerContext, view_of
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import METADATA_FILE
from jesenska.metadata.store import Store

if TYPE_CHECKING:
    from jesenska.metadata.zookeeper.server.guard import Guard
    from jesenska.metadata.zookeeper.server.server import ZooKeeperServer

logger = logging.getLogger(__name__)


class TreeHome(Protocol):
    """The place of a broker's metadata tree. `open_home` opens it."""

    #: The store, through which the tree is read and written. It outlives its sessions: see `on_renewed`.
    store: Store
    #: True if other processes can write to the tree.
    is_shared: bool
    #: The timeout of the broker's session in milliseconds, after which the tree deletes the nodes of a crashed broker.
    session_timeout_ms: int
    #: The largest change, in bytes, that the tree accepts in one transaction; None if there is no limit.
    change_max_bytes: int | None
    #: How long, in seconds, the start of the broker waits until a lost connection to the tree is restored.
    patience_seconds: float

    @property
    def served_at(self) -> tuple[str, int] | None:
        """Returns the host and port at which this process serves ZooKeeper's clients, or None if this process does not
        serve them."""
        ...

    #: The tree's name in messages.
    name: str

    async def prepare(self) -> None:
        """Creates the nodes that must exist before anything else can be written to the metadata tree."""
        ...

    async def facts(self) -> ControllerContext:
        """Reads the current state of the cluster from the metadata tree."""
        ...

    async def serve(self) -> None:
        """Allows other clients to connect to the metadata tree. Called when the broker is registered."""
        ...

    def on_renewed(self, work: Callable[[], Awaitable[None]]) -> None:
        """Sets the function that runs each time the broker has a new session."""
        ...

    async def close(self) -> None:
        """Ends the session, which deletes the broker's ephemeral nodes."""
        ...


#: The maximum number of connections of ZooKeeper clients that wait to be accepted.
_BACKLOG = 100


async def open_home(config: BrokerConfig, log_dir: Path, machine: Machine) -> TreeHome:
    """Opens the metadata tree at the place that the settings name. Raises TreeError or JournalError, or JesenskaError
    with a message of one sentence, if it is not available."""
    servers = (config.string("zookeeper.connect") or "").strip()
    if servers:
        from jesenska.broker.tree.zookeeper_home import ZooKeeperHome

        return await ZooKeeperHome.open(servers, config, machine)
    return await EmbeddedHome.open(log_dir / METADATA_FILE, config, machine)


class EmbeddedHome:
    """A metadata tree in this process, stored in a file in the first log directory."""

    change_max_bytes: int | None = None
    session_timeout_ms = 0
    #: Zero, because there is no connection that could be lost.
    patience_seconds = 0.0

    def __init__(
        self,
        tree: EmbeddedTree,
        store: Store,
        machine: Machine,
        listener: tuple[str, int] | None,
        connections_per_host: int,
        guard: Guard | None = None,
    ) -> None:
        self._tree = tree
        self._machine = machine
        self._listener = listener
        self._connections_per_host = connections_per_host
        self._guard = guard
        self.name = f"the metadata file {METADATA_FILE} of the first of them"
        self.store = store
        self.is_shared = listener is not None
        self.server: ZooKeeperServer | None = None

    @staticmethod
    async def open(path: Path, config: BrokerConfig, machine: Machine) -> EmbeddedHome:
        listener = _address(config.string("jesenska.zookeeper.listener"))
        guard = None if listener is None else _guard()
        tree = await EmbeddedTree.open(
            path, machine.clock, served=listener is not None, executor=machine.threads(1, "metadata")
        )
        try:
            per_host = config.integer("max.connections.per.ip")
            return EmbeddedHome(tree, await tree.session(), machine, listener, per_host, guard)
        except BaseException:
            await tree.close()
            raise

    @property
    def served_at(self) -> tuple[str, int] | None:
        return (self._listener[0], self.server.port) if self.server is not None and self._listener is not None else None

    async def prepare(self) -> None:
        """Does nothing, because the metadata tree's file is opened, and created if it is missing, by `open`."""

    async def facts(self) -> ControllerContext:
        return view_of(self._tree.tree)

    async def serve(self) -> None:
        if self._listener is None:
            return
        from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
        from jesenska.metadata.zookeeper.server.serving import ServerConfig

        server = ZooKeeperServer(
            self._tree,
            self._machine.clock,
            ServerConfig(max_client_connections=self._connections_per_host),
            self._machine.streams,
            self._guard,
        )
        host, port = self._listener
        await server.start(self._machine.network.listening_socket(host, port, _BACKLOG))
        self.server = server
        logger.info("ZooKeeper's clients are served at %s:%d", host or "*", server.port)

    def on_renewed(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does nothing, because a session in this process lasts as long as the process."""

    async def close(self) -> None:
        if self.server is not None:
            await self.server.stop()
        await self._tree.close()


def _guard() -> Guard | None:
    """Returns who may use the broker's tree over the network, by the JAAS file and the options in KAFKA_OPTS. Returns
    None for everybody. Raises InvalidConfigError with one sentence if the file or an option cannot be used."""
    if "-D" not in os.environ.get("KAFKA_OPTS", ""):
        return None
    from jesenska.metadata.zookeeper.server.guard_settings import guard_of

    return guard_of({}, os.environ)


def _address(text: str | None) -> tuple[str, int] | None:
    """Parses `host:port`; an empty host means every address. Returns None if nothing is set. Raises JesenskaError if
    the text is not an address."""
    if not text or not text.strip():
        return None
    host, colon, port = text.strip().rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise JesenskaError(
            f"jesenska.zookeeper.listener={text} is not an address: write host:port, such as 127.0.0.1:2181."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
