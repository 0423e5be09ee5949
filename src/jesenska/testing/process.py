"""Runs a server as a process for tests. `start` returns when clients can connect. The server can be killed or stopped,
and started again on the same port.

No server runs longer than the process that started it. Servers that still run when the interpreter ends are stopped.
If the interpreter is killed, a pipe to the server is closed, and the server stops by itself."""

from __future__ import annotations

import atexit
import os
import re
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import ClassVar, Self

from jesenska.config.variables import without_settings
from jesenska.testing.warm import WarmProcess

#: The environment variable that `jesenska.cli.shared.ending` reads. The name is repeated here, since this module does
#: not import the command-line tools.
_PARENT_DESCRIPTOR = "JESENSKA_PARENT_DESCRIPTOR"


class ServerFailedError(RuntimeError):
    """The error that is raised if the server ended before it was ready. The message is the server's output."""


class ServerProcess(ABC):
    """A server process. `environment` is added to this process's environment variables. Variables that begin with
    KAFKA_ are left out, since a broker would read them as settings. The server ends with the `with` block."""

    #: Matches the output line after which clients can connect. Its group `port` is the port.
    _READY: ClassVar[re.Pattern[bytes]]
    #: Matches an earlier output line with the server's own port. It is needed if the port in `_READY` may be another
    #: server's. The first matching line is used.
    _LISTENS: ClassVar[re.Pattern[bytes] | None] = None

    def __init__(self, environment: Mapping[str, str] | None, ready_seconds: float) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self._environment = dict(environment or {})
        self._ready_seconds = ready_seconds
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._said: list[bytes] = []
        self._heard = threading.Condition()
        self._is_ready = False
        self._reader: threading.Thread | None = None
        #: The write end of a pipe. It stays open as long as this process lives.
        self._lifeline = -1

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @abstractmethod
    def _command(self) -> list[str]:
        """Returns the command line of the server. The server uses the port `port`, or a free port if `port` is 0."""

    @property
    def address(self) -> str:
        """Returns the server's address host:port, for clients."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Returns True if the server was started and its process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Returns the whole output of the server, over all its starts."""
        return b"".join(self._said).decode(errors="replace")

    def wait_until_said(self, text: str, seconds: float = 20.0) -> None:
        """Waits until the server's output contains this text. Raises TimeoutError if the text is missing after
        `seconds`."""
        with self._heard:
            if not self._heard.wait_for(lambda: text in self.log, seconds):
                raise TimeoutError(f"the server has not said {text!r}: {self.log[-2000:]}")

    def start(self) -> Self:
        """Starts the server, and returns when clients can connect. Later starts use the same port. Raises
        ServerFailedError if the server ends before it is ready."""
        assert self._process is None, "the server runs already"
        theirs, self._lifeline = os.pipe()
        try:
            process = self._launch(
                {**without_settings(os.environ), "PYTHONUNBUFFERED": "1", **self._environment}, theirs
            )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(theirs)
        self._process = process
        atexit.register(self.stop)
        self._is_ready = False
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(process, ready), daemon=True)
        self._reader.start()
        if not ready.wait(self._ready_seconds) or not self._is_ready:
            self.kill()
            raise ServerFailedError(self.log)
        return self

    def _launch(self, environment: Mapping[str, str], parent_descriptor: int) -> subprocess.Popen[bytes] | WarmProcess:
        """Starts the process, and reads its output through a pipe."""
        return subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, _PARENT_DESCRIPTOR: str(parent_descriptor)},
            pass_fds=[parent_descriptor],
            start_new_session=True,
        )

    def _read(self, process: subprocess.Popen[bytes] | WarmProcess, ready: threading.Event) -> None:
        assert process.stdout is not None
        listens: re.Match[bytes] | None = None
        with process.stdout as output:
            for line in output:
                with self._heard:
                    self._said.append(line)
                    self._heard.notify_all()
                if listens is None and self._LISTENS is not None:
                    listens = self._LISTENS.match(line.rstrip())
                match = self._READY.match(line)
                if match:
                    self.port = int((listens or match)["port"])
                    self._is_ready = True
                    ready.set()
        ready.set()

    def kill(self) -> None:
        """Ends the server with SIGKILL, as a crash would. Does nothing if the server is not running."""
        self._end(signal.SIGKILL)

    def stop(self, seconds: float = 30.0) -> int | None:
        """Stops the server in an orderly way, and returns its exit code. Kills it if it has not ended after
        `seconds`."""
        return self._end(signal.SIGTERM, seconds)

    def _end(self, number: signal.Signals, seconds: float = 30.0) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        atexit.unregister(self.stop)
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(self._lifeline)
        if self._reader is not None:
            self._reader.join(10)
        return process.returncode
