"""Processes that are to end when their parent has ended, watched by another child of that parent.

A parent that is killed with SIGKILL takes nobody along. Children that look at PARENT_DESCRIPTOR (`ending`) end by
themselves; this ends those that do not, or that hang. A process is held by a descriptor (pidfd), which is of that
process alone, whoever gets its number afterwards. Linux only: elsewhere nothing is guarded."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

#: How long to wait for one that was sent SIGKILL.
_KILLED_SECONDS = 10.0


class NotGuardedError(Exception):
    """The process cannot be guarded: one sentence."""


class Guarded:
    """Children of this process's parent. Used on a running loop; descriptors of those that end are closed."""

    def __init__(self) -> None:
        self._by_process: dict[int, _Process] = {}

    def add(self, process: int, grace_seconds: float) -> None:
        """From now on, `end` ends it; NotGuardedError where it is no other child of this process's parent."""
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
        """Ends all of them: SIGTERM, SIGKILL for those that have not ended within their grace. Returns when they have
        ended, or when one does not heed SIGKILL either (a disk may hold it)."""
        await asyncio.gather(*(guarded.end() for guarded in self._by_process.values()))

    def close(self) -> None:
        """Guards nobody any more."""
        for process in list(self._by_process):
            self._forget(process)

    def _forget(self, process: int) -> None:
        """It has ended, or is guarded no more."""
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
    """The id of its parent; None where it has ended, or the system does not say."""
    try:
        status = Path(f"/proc/{process}/stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses and may hold any; the state and the parent follow it.
    return int(status.rpartition(b")")[2].split()[1])
