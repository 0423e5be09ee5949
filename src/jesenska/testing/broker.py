"""Runs a broker as a process for tests, on the loopback address. It can be killed or stopped, and started again with
the same port and data.

with BrokerProcess(tmp_path / "data") as broker:
    ... broker.bootstrap ...
    broker.kill()       # SIGKILL, as a crash
    broker.start()      # the same port, the same data
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from jesenska.testing.process import ServerProcess
from jesenska.testing.warm import WarmProcess, template


class BrokerProcess(ServerProcess):
    """A broker process. `settings` are settings of server.properties. `environment` is added to this process's
    environment variables; variables that begin with KAFKA_ are left out. `module` is the module to run with `python
    -m`.

    If `advertised.listeners` names another address, such as that of a proxy, `address` and `bootstrap` are still the
    broker's own.

    If `warm`, the broker is forked from a template process that has imported all modules. The start of the first
    broker is as slow as without a template; later brokers are ready at once."""

    _READY = re.compile(rb"jesenska is up at \S+:(?P<port>\d+) ")
    _LISTENS = re.compile(rb".*\blistener \S+ takes connections at port (?P<port>\d+)$")

    def __init__(
        self,
        data: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        ready_seconds: float = 60.0,
        module: str = "jesenska",
        warm: bool = False,
    ) -> None:
        super().__init__(environment, ready_seconds)
        self._warm = warm
        self.data = Path(data)
        self.settings = dict(settings or {})
        self._module = module

    @property
    def bootstrap(self) -> str:
        """Returns the broker's address host:port, for bootstrap.servers of clients."""
        return self.address

    def _launch(self, environment: Mapping[str, str], parent_descriptor: int) -> subprocess.Popen[bytes] | WarmProcess:
        if self._warm:
            return template().start(self._arguments(), environment, parent_descriptor)
        return super()._launch(environment, parent_descriptor)

    def _command(self) -> list[str]:
        return [sys.executable, "-m", self._module, *self._arguments()]

    def _arguments(self) -> list[str]:
        return self._arguments_of(self.settings)

    def _arguments_of(self, settings: Mapping[str, str]) -> list[str]:
        """Returns the command's arguments for a broker with these settings."""
        command = ["up", "--log-level", "info", "--debug"]
        # A command-line flag overrides a setting. So a flag is added only if the settings do not contain its setting.
        if "listeners" not in settings:
            command += ["--port", str(self.port)]
        if "log.dirs" not in settings:
            command += ["--data", str(self.data)]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        return command
