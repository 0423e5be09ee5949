"""A server for tests of faults: a process that sleeps, and the faults that happened to it."""

from __future__ import annotations

import signal
import subprocess


class Sleeper:
    def __init__(self) -> None:
        self.done: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = subprocess.Popen(["sleep", "1000"])
        self.done.append("start")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        ended_by = signal.Signals(-self._process.wait(60))
        self._process = None
        self.done.append(f"ended by {ended_by}")

    def end(self) -> None:
        """Ends the process in any state."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
