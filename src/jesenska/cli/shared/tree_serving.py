"""Serves the metadata tree in a directory to ZooKeeper's clients, in this process. The directory is locked, and the
tree is opened and served; at the end the server, the tree and the lock are closed. `zookeeper-server-start` and
`supervised_tree` use it."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.memory import Memory
from jesenska.log.directory.directory_lock import (
    DirectoryLock,
    LogDirectoryError,
    UnusableDirectoryError,
    make_directory,
)
from jesenska.log.disk.files import FileLayer
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import METADATA_FILE, JournalError
from jesenska.metadata.tree_operations import Transaction
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.metadata.zookeeper.streams import ContextOf

#: A file that exists in the directory while the tree is served. It contains the address host:port for clients on this
#: machine.
ADDRESS_FILE = "jesenska-tree.address"
#: The number of new objects before a garbage collection. A commit of many writes makes about ten objects for each
#: write.
_YOUNG_OBJECTS = 50_000


class Listening(NamedTuple):
    """The listening sockets of a tree: for clients without TLS, and for clients with TLS, together with the function
    that returns the TLS context."""

    plain: socket.socket | None
    secure: tuple[socket.socket, ContextOf] | None = None


@asynccontextmanager
async def served_tree(
    directory: Path,
    listen: Callable[[], Listening],
    config: ServerConfig,
    *,
    named: str,
    stopped_by: str = "",
    guard: Callable[[], Guard] | None = None,
) -> AsyncIterator[ZooKeeperServer]:
    """Yields a server of the metadata tree in the directory, which is created if it is missing. At the end of the
    block the server stops, and its sessions remain in the tree.

    `listen` returns the listening sockets; it is called after the tree is open. `guard` returns who may use the tree
    (default: everybody). Errors are JesenskaErrors of one
    sentence. In messages the directory is called `named`, and `stopped_by` is the tool that stops the process that has
    locked the directory."""
    memory = Memory()
    clock = SystemClock()
    try:
        make_directory(directory, FileLayer())
    except OSError as error:
        raise JesenskaError(
            f"{named} cannot be made ({error.strerror}): name a directory that can be written."
        ) from error
    lock = _locked(directory, named, f" ({stopped_by})" if stopped_by else "")
    try:
        tree = await EmbeddedTree.open(directory / METADATA_FILE, clock, served=True)
    except JournalError as error:
        lock.release()
        raise JesenskaError(str(error)) from error
    try:
        server = ZooKeeperServer(tree, clock, config, guard=guard() if guard is not None else None)
        try:
            listening = listen()
            await server.start(listening.plain, listening.secure)
            if listening.plain is not None:
                _write_address(directory, listening.plain.getsockname())
            # The tree stays in memory. After this collection, the garbage collector no longer checks its objects.
            gc.collect()
            gc.freeze()
            memory.keep_small(asyncio.get_running_loop(), _YOUNG_OBJECTS)
            yield server
        finally:
            (directory / ADDRESS_FILE).unlink(missing_ok=True)
            await server.stop()
    finally:
        await tree.close()
        lock.release()


def _write_address(directory: Path, address: tuple[str, int]) -> None:
    given = ip_address(address[0])
    host = address[0] if not given.is_unspecified else "127.0.0.1" if given.version == 4 else "::1"
    with suppress(OSError):  # a full disk: the tree is served without it
        (directory / ADDRESS_FILE).write_text(
            f"[{host}]:{address[1]}\n" if ":" in host else f"{host}:{address[1]}\n", encoding="ascii"
        )


def stops_when_the_tree_fails(server: ZooKeeperServer, stopping: asyncio.Event) -> None:
    """Sets `stopping` when the tree has failed (`server.tree.failure` is the reason). The content of the tree's file
    is then unknown. So the process must end, and its next start reads the file again. A full disk is not counted as
    such a failure."""

    def look_at_failure() -> None:
        if server.tree.failure is not None:
            stopping.set()

    server.tree.on_commit(_nothing, look_at_failure)


def _nothing(transaction: Transaction) -> None:
    """Does nothing. It is called for each change of the tree."""


def _locked(directory: Path, named: str, tool: str) -> DirectoryLock:
    try:
        return DirectoryLock(directory)
    except UnusableDirectoryError as error:
        raise JesenskaError(f"{named} cannot be used, since {error.reason}: {error.remedy}.") from error
    except LogDirectoryError as error:
        # The function is imported here because its module imports the common parts of all tools. These are several
        # times as large as this program.
        from jesenska.cli.shared.stopping import lock_holder

        if (holder := lock_holder(directory)) is None:
            raise JesenskaError(f"{named} is locked by another program: name another directory.") from error
        raise JesenskaError(
            f"{named} is in use by process {holder}: stop it{tool}, or name another directory."
        ) from error
