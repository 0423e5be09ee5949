"""Ends processes that must end when their parent has ended. The guard is another child of the same parent.

If a parent is killed with SIGKILL, its children do not end with it. Children that watch PARENT_DESCRIPTOR (`ending`)
end by themselves; this module ends those that do not, or that hang. A process is identified by a descriptor (pidfd),
which stays that of the process even if its id is used again. It works only on Linux: elsewhere no process is
guarded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

#: Seconds to wait for the end of a process after SIGKILL.
_KILLED_SECONDS = 10.0


class NotGuardedError(Exception):
    """The process cannot be guarded. The message is one sentence."""


class Guarded:
    """The guarded processes, which are other children of this process's parent. It is used on a running event loop;
    the descriptor of a process that ends is closed."""

    def __init__(self) -> None:
        self._by_process: dict[int, _Process] = {}

    def add(self, process: int, grace_seconds: float) -> None:
        """Guards a process from now on, so that `end` ends it. Raises NotGuardedError if it is no other child of
        this process's parent."""
        if sys.platform != "linux":
            raise NotGuardedError("Processes are guarded on Linux only.")
        try:
            descriptor = os.pidfd_open(process)
        except OSError as error:
            raise NotGuardedError(f"Process {process} cannot be guarded ({error.strerror}).") from error
        if process == os.getpid() or _parent_of(process) != os.getppid():
            os.close(descriptor)
            raise NotGuardedError(f"Process {process} is no other child of this process's parent.")
        if process in self._by_process:
            self._forget(process)
        self._by_process[process] = _Process(descriptor, grace_seconds)
        asyncio.get_running_loop().add_reader(descriptor, self._forget, process)

    async def end(self) -> None:
        """Ends all guarded processes: by SIGTERM, then by SIGKILL if a process has not ended within its grace time.
        Returns when they have ended, or when one has not ended even after SIGKILL (it may wait for a disk)."""
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
    """Returns the id of a process's parent; None if the process has ended, or if the system does not report it."""
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return None
    # The name of the process is in parentheses and may contain parentheses; its state and parent follow the last one.
    return int(status.rpartition(b")")[2].split()[1])
