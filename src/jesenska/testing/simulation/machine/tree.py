"""The simulated ZooKeeper server of a cluster, as a separate program. It serves ZooKeeper's protocol and stores the
nodes in a journal file, as zookeeper-server-start does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import METADATA_FILE
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.testing.simulation.machine.disk import JOURNAL_FILES
from jesenska.testing.simulation.machine.process import Process

TREE_HOST, TREE_PORT = "tree", 2181
#: The tick time in milliseconds. A session lasts at least two ticks.
_CONFIG = ServerConfig(tick_ms=500)
_BACKLOG = 100


class TreeProgram:
    """A ZooKeeper server whose journal is in the directory `data`. `begun` is called with the tree of nodes before any
    client is served."""

    def __init__(self, process: Process, data: Path, begun: Callable[[EmbeddedTree], None] | None) -> None:
        self.process = process
        self.data = data
        self.is_ready = False
        #: The tree of nodes that the server serves; None before the server has opened its journal.
        self.tree: EmbeddedTree | None = None
        self._begun = begun

    async def run(self) -> None:
        process = self.process
        self.data.mkdir(parents=True, exist_ok=True)
        self.tree = tree = await EmbeddedTree.open(
            self.data / METADATA_FILE, process.clock, served=True, executor=process.new_threads(1, "metadata")
        )
        if self._begun is not None:
            self._begun(tree)
        server = ZooKeeperServer(tree, process.clock, _CONFIG, process.machine.streams)
        await server.start(process.network.listening_socket(TREE_HOST, TREE_PORT, _BACKLOG))
        self.is_ready = True
        process.world.tell(process.name, "is ready")

    def killed(self, target: Path) -> None:
        """Handles a kill of the server: ends the server's process, and copies its journal to `target`. The journal
        syncs every write itself, so nothing is lost."""
        self.process.end()
        self.is_ready = False
        self.copy(target)

    def copy(self, target: Path) -> None:
        """Copies the present journal to a new directory."""
        target.mkdir(parents=True)
        for name in JOURNAL_FILES:
            if (self.data / name).exists():
                shutil.copyfile(self.data / name, target / name)
