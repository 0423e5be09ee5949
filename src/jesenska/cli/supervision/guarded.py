"""Ends guarded processes: processes that must end when their parent process has ended. The guarding process is another
child of the same parent.

If a parent is killed with SIGKILL, its children do not end with it. Children that watch PARENT_DESCRIPTOR (`ending`)
end by themselves; this module ends those that do not, or that hang. A process is identified by a descriptor (pidfd),
which still refers to the same process if its id is used again. This works only on Linux; on other systems no process
is guarded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

#: The seconds for which `end` waits for the end of a process after SIGKILL.
_KILLED_SECONDS = 10.0


class NotGuardedError(Exception):
    """The error that is raised if a process cannot be guarded. The message is one sentence."""


class Guarded:
    """The guarded processes, which are other children of this process's parent. The object is used on a running event
    loop. When a guarded process ends, its descriptor is closed."""

    def __init__(self) -> None:
        self._by_process: dict[int, _Process] = {}

    def add(self, process: int, grace_seconds: float) -> None:
        """Guards a process from now on, so that `end` ends it. Raises NotGuardedError if the process is not another
        child of this process's parent, or if it cannot be guarded."""
        if sys.platform != "linux":
            raise NotGuardedError("Processes are guarded on Linux only.")
        try:
            descriptor = os.pidfd_open(process)
        except OSError as error:
            raise NotGuardedError(f"Process {process} cannot be guarded ({error.strerror}).") from error
        if process == os.getpid() or _parent_of(process) != os.getppid():
            os.close(descriptor)
            raise NotGuardedError(
                f"Process {process} cannot be guarded, because it is not another child of this process's parent."
            )
        if process in self._by_process:
            self._forget(process)
        self._by_process[process] = _Process(descriptor, grace_seconds)
        asyncio.get_running_loop().add_reader(descriptor, self._forget, process)

    async def end(self) -> None:
        """Ends all guarded processes. Sends SIGTERM to each process, and SIGKILL if the process has not ended within
        its grace time. Returns when all processes have ended. Also returns if a process does not end after SIGKILL,
        for example because it waits for a disk."""
        await asyncio.gather(*(guarded.end() for guarded in self._by_process.values()))

    def close(self) -> None:
        """Stops guarding all processes."""
        for process in list(self._by_process):
            self._forget(process)

    def _forget(self, process: int) -> None:
        """Stops guarding one process, which may have ended."""
        guarded = self._by_process.pop(process)
        asyncio.get_running_loop().remove_reader(guarded.descriptor)
        guarded.close()


class _Process:
    def __init__(self, descriptor: int, grace_seconds: float) -> None:
        self.descriptor = descriptor
        self._grace_seconds = grace_seconds
        self._ended = asyncio.Event()

    def close(self) -> None:
        os.close(self.descriptor)
        self.descriptor = -1
        self._ended.set()

    async def end(self) -> None:
        for number, seconds in ((signal.SIGTERM, self._grace_seconds), (signal.SIGKILL, _KILLED_SECONDS)):
            self._send(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
                return

    def _send(self, number: signal.Signals) -> None:
        if sys.platform == "linux" and self.descriptor >= 0:
            with suppress(OSError):
                signal.pidfd_send_signal(self.descriptor, number)


def _parent_of(process: int) -> int | None:
    """Returns the id of a process's parent. Returns None if the process has ended, or if the operating system does not
    report the parent."""
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return None
    # The name of the process is in parentheses and may contain parentheses. The state and the parent follow the last
    # parenthesis.
    return int(status.rpartition(b")")[2].split()[1])
