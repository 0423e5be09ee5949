"""Runs jesenska's ZooKeeper server (zookeeper-server-start) as a process for tests, on the loopback address. The
server can be killed or stopped, and started again with the same port and directory.

with TreeProcess(tmp_path) as tree:
    ... tree.address ...
    tree.kill()         # SIGKILL, as a crash
    tree.start()        # the same port, the same data
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

from jesenska.testing.process import ServerProcess


class TreeProcess(ServerProcess):
    """A ZooKeeper server process. `settings` are settings of zookeeper.properties. `module` is the module to run with
    `python -m`."""

    _READY = re.compile(rb"jesenska's ZooKeeper server is up at \S+:(?P<port>\d+) ")

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        module: str = "jesenska.cli.zookeeper.zookeeper_server_start",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(environment, ready_seconds=60.0)
        self._directory = directory
        self._settings = {"tickTime": "200", "maxClientCnxns": "0", **(settings or {})}
        self._module = module

    def _command(self) -> list[str]:
        file = self._directory / "zookeeper.properties"
        settings = {
            "dataDir": str(self._directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": self.host,
            **self._settings,
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return [sys.executable, "-m", self._module, str(file)]
