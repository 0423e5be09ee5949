"""Faults of a server's process: kill -9, SIGSTOP and an orderly stop. Each fault can be ended.

A server is any object with `pid`, `start`, `kill` and `stop`: for example `jesenska.testing.BrokerProcess`, or a small
class of your own that runs Apache Kafka."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Protocol

_STOPPED_STATES = "Tt"
_STATE_SECONDS = 30.0
_LOOK_SECONDS = 0.001


class Server(Protocol):
    """A server that runs as a process. `start` returns when clients can connect. A later start uses the same address
    and the same data."""

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def kill(self) -> object:
        """Kills the process with SIGKILL. Returns when it has ended."""
        ...

    def stop(self) -> object:
        """Stops the process in an orderly way. Returns when it has ended."""
        ...


class ServerFaults:
    """Injects faults into one server, which must be running when this object is made."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._is_running = True
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        """Returns True if the server's process exists, even if it is paused."""
        return self._is_running

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def kill(self) -> None:
        """Kills the server with kill -9. Data that the server has written but not synced is kept, since the operating
        system's cache still has it."""
        if self._is_running:
            self._is_running = self._is_paused = False
            self.server.kill()

    def stop(self) -> None:
        """Stops the server in an orderly way. Returns when it has ended."""
        if self._is_running:
            self.resume()
            self._is_running = False
            self.server.stop()

    def start(self) -> None:
        """Starts the server if it is not running."""
        if not self._is_running:
            self.server.start()
            self._is_running = True

    def restart(self, *, orderly: bool = False) -> None:
        """Ends the server, with kill -9 or in an orderly way, and starts it again."""
        if orderly:
            self.stop()
        else:
            self.kill()
        self.start()

    def pause(self) -> None:
        """Pauses the server with SIGSTOP, as if the machine did not run the process for a while. The server's
        connections stay open, and the operating system still accepts connections and bytes. The server sends no
        response. Returns when the process is stopped."""
        if self._is_running and not self._is_paused:
            os.kill(self.server.pid, signal.SIGSTOP)
            self._is_paused = True
            wait_until_stopped(self.server.pid)

    def resume(self) -> None:
        """Continues the server with SIGCONT, if it is paused."""
        if self._is_paused:
            self._is_paused = False
            os.kill(self.server.pid, signal.SIGCONT)

    def heal(self) -> None:
        """Ends any fault. Afterwards the server is running."""
        self.resume()
        self.start()


def wait_until_stopped(pid: int) -> None:
    """Waits until the process is stopped after SIGSTOP. Raises TimeoutError if it is not stopped within 30 s."""
    deadline = time.monotonic() + _STATE_SECONDS
    while _state(pid) not in _STOPPED_STATES:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"Process {pid} does not stop on SIGSTOP within {_STATE_SECONDS:g} s: see whether it still runs."
            )
        time.sleep(_LOOK_SECONDS)


def _state(pid: int) -> str:
    """Returns the operating system's letter for the state of a process. Raises ProcessLookupError if there is no such
    process."""
    try:
        # The state follows the program's name, which is in brackets and may contain any characters.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            raise ProcessLookupError(f"There is no process {pid}.") from None
    found = subprocess.run(
        ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not found:
        raise ProcessLookupError(f"There is no process {pid}.")
    return found[0]
