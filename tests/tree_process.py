"""The tree's server as a process (zookeeper-server-start), for tests and benchmarks: started on loopback, killed or stopped, started again on the same port
and directory.

with TreeProcess(tmp_path) as tree:
    ... tree.address ...
    tree.kill()         # SIGKILL, as a crash
    tree.start()        # the same port, the same data
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

_READY = re.compile(rb"jesenska's ZooKeeper server is up at \S+:(\d+) ")
_PATIENCE_SECONDS = 60


class TreeProcess:
    """One server; `settings` are those of zookeeper.properties, `module` is what `python -m` runs. Ends with the `with` block."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        module: str = "jesenska.cli.zookeeper_server_start",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory
        self._settings = {"tickTime": "200", "maxClientCnxns": "0", **(settings or {})}
        self._module = module
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._said: list[bytes] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything that it has said, over all its starts."""
        return b"".join(self._said).decode(errors="replace")

    def start(self) -> TreeProcess:
        """Returns when clients can connect. A second start keeps the port."""
        assert self._process is None, "the server runs already"
        file = self._directory / "zookeeper.properties"
        settings = {"dataDir": str(self._directory / "data"), "clientPort": str(self.port), "clientPortAddress": "127.0.0.1", **self._settings}
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        process = subprocess.Popen(
            [sys.executable, "-m", self._module, str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
        )
        self._process = process
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(_PATIENCE_SECONDS) or process.poll() is not None:
            self.kill()
            raise RuntimeError(f"the server did not start:\n{self.log}")
        return self

    def _read(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._said.append(line)
                if match := _READY.match(line):
                    self.port = int(match[1])
                    ready.set()
        ready.set()

    def kill(self) -> None:
        """Ends it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """Asks it to stop in order and gives its exit code; kills it if it has not within the time."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(10)
        return process.returncode

    def __enter__(self) -> TreeProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
