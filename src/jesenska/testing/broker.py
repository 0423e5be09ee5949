"""A broker as a process for tests: started on loopback, killed or stopped, started again on the same port and data.

with BrokerProcess(tmp_path / "data") as broker:
    ... broker.bootstrap ...
    broker.kill()       # SIGKILL, as a crash
    broker.start()      # the same port, the same data
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
from types import TracebackType

_READY = re.compile(rb"jesenska is up at (\S+):(\d+) ")


class BrokerFailedError(RuntimeError):
    """The broker ended before it was ready; the text is what it said."""


class BrokerProcess:
    """One broker. `settings` are those of server.properties; `environment` is added to the process's own; `module` is what `python -m` runs."""

    def __init__(
        self,
        data: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        ready_seconds: float = 60.0,
        module: str = "jesenska",
    ) -> None:
        self.data = Path(data)
        self.settings = dict(settings or {})
        self.host = "127.0.0.1"
        self.port = 0
        self._environment = dict(environment or {})
        self._ready_seconds = ready_seconds
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._said: list[bytes] = []
        self._is_ready = False
        self._reader: threading.Thread | None = None

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything that the broker has said, over all its starts."""
        return b"".join(self._said).decode(errors="replace")

    def start(self) -> BrokerProcess:
        """Starts it and returns when clients can connect; BrokerFailedError if it ends before. A second start keeps the port."""
        assert self._process is None, "the broker runs already"
        command = [sys.executable, "-m", self._module, "up", "--port", str(self.port), "--data", str(self.data), "--log-level", "info", "--debug"]
        for name, value in self.settings.items():
            command += ["--override", f"{name}={value}"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self._environment},
            start_new_session=True,
        )
        self._process = process
        self._is_ready = False
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(self._ready_seconds) or not self._is_ready:
            self.kill()
            raise BrokerFailedError(self.log)
        return self

    def _read(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._said.append(line)
                match = _READY.match(line)
                if match:
                    self.port = int(match[2])
                    self._is_ready = True
                    ready.set()
        ready.set()

    def kill(self) -> None:
        """Ends it with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self, seconds: float = 30.0) -> int | None:
        """Asks it to stop in order and gives its exit code; kills it if it has not within the time."""
        return self._end(signal.SIGTERM, seconds)

    def _end(self, number: signal.Signals, seconds: float = 30.0) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(10)
        return process.returncode
