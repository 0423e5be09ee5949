"""Faults of a server's process: kill -9, SIGSTOP, an orderly stop, each with its reversal.

A server is anything with `pid`, `start`, `kill` and `stop`: `jesenska.testing.BrokerProcess`, or a few lines around
another Kafka."""

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
    """A server as a process. `start` returns when clients can connect, on the address and the data of the earlier
    start."""

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def kill(self) -> object:
        """SIGKILL; returns when the process has ended."""
        ...

    def stop(self) -> object:
        """Stops in order; returns when the process has ended."""
        ...


class ServerFaults:
    """Faults of one server, which runs when this is made."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._is_running = True
        self._is_paused = False

    @property
    def is_running(self) -> bool:
        """True if there is a process, paused or not."""
        return self._is_running

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    def kill(self) -> None:
        """kill -9. Its writes stay with the system; nothing else is done."""
        if self._is_running:
            self._is_running = self._is_paused = False
            self.server.kill()

    def stop(self) -> None:
        """Asks it to stop in order, and waits until it has."""
        if self._is_running:
            self.resume()
            self._is_running = False
            self.server.stop()

    def start(self) -> None:
        """Starts it if it does not run."""
        if not self._is_running:
            self.server.start()
            self._is_running = True

    def restart(self, *, orderly: bool = False) -> None:
        """Ends it, with kill -9 or in order, and starts it again."""
        if orderly:
            self.stop()
        else:
            self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP, as for a process that a machine does not run for a while: its connections stay open, the system
        takes bytes and connections for it, and there is no answer. Returns when it has stopped."""
        if self._is_running and not self._is_paused:
            os.kill(self.server.pid, signal.SIGSTOP)
            self._is_paused = True
            wait_until_stopped(self.server.pid)

    def resume(self) -> None:
        """SIGCONT, if it is paused."""
        if self._is_paused:
            self._is_paused = False
            os.kill(self.server.pid, signal.SIGCONT)

    def heal(self) -> None:
        """Has it run, after any fault."""
        self.resume()
        self.start()


def wait_until_stopped(pid: int) -> None:
    """Returns when a process has stopped after SIGSTOP; TimeoutError if it does not."""
    deadline = time.monotonic() + _STATE_SECONDS
    while _state(pid) not in _STOPPED_STATES:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"Process {pid} does not stop on SIGSTOP within {_STATE_SECONDS:g} s: see whether it still runs."
            )
        time.sleep(_LOOK_SECONDS)


def _state(pid: int) -> str:
    """Returns the letter that the system has for a process's state; ProcessLookupError if there is no such process."""
    try:
        # After the program's name, which is in brackets and may contain anything.
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
