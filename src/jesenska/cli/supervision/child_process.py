"""Runs a child process on the event loop. The end of the process is noticed immediately, and its exit code is read.
The output of the process is read through pipes.

For asyncio's own class, a process has ended only when its pipes are also closed, and children of the process may keep
these pipes open. Here only the end of the process counts. On Linux a process descriptor (pidfd) reports the end; on
other systems a thread waits for it. No other code may wait for these processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

#: The number of bytes of output that are read ahead, for each stream.
_READ_AHEAD_BYTES = 64 * 1024


class ChildProcess:
    """A child process in a session of its own, so that signals of the terminal (Ctrl-C) do not reach the process. Use
    `start` to make it. Call `close` when the process has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._descriptor = -1
        self._transports: list[asyncio.ReadTransport] = []
        self._orders: asyncio.WriteTransport | None = None
        #: Gets the exit code of the process when the process has ended. A negative code is the signal that ended the
        #: process.
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.out = asyncio.StreamReader(_READ_AHEAD_BYTES)
        self.err = asyncio.StreamReader(_READ_AHEAD_BYTES)
        self._watch()

    @staticmethod
    async def start(
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        descriptors: Sequence[int] = (),
        takes_orders: bool = False,
    ) -> ChildProcess:
        """Starts a command with only these environment variables and descriptors. If `takes_orders` is True, the
        process's stdin is a pipe; otherwise stdin is empty. Raises OSError if the command cannot be started."""
        # Popen returns as soon as the command runs. Starting the command in a thread would take as long.
        process = subprocess.Popen(  # noqa: ASYNC220
            command,
            bufsize=0,
            stdin=subprocess.PIPE if takes_orders else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,
        )
        child = ChildProcess(process)
        try:
            await child._connect()
        except BaseException:
            child.send(signal.SIGKILL)
            child.close()
            raise
        return child

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, line: bytes) -> None:
        """Writes to the stdin of the process. A failure is ignored, because the process has then ended."""
        if self._orders is not None and not self._orders.is_closing():
            self._orders.write(line)

    async def words(self) -> AsyncIterator[dict[str, Any]]:
        """Yields the JSON objects that the process writes to stdout, one per line, until its end. Other lines are
        ignored."""
        while True:
            try:
                line = await self.out.readline()
                if not line:
                    return
                said = json.loads(line)
            except ValueError:
                continue  # too long, or not JSON: not written by jesenska's program
            if isinstance(said, dict):
                yield said

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the process, if it has not ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def stop(self, grace_seconds: float) -> bool:
        """Sends SIGTERM to the process. Sends SIGKILL if the process has not ended after `grace_seconds`. Returns when
        the process has ended: True if SIGKILL was sent, else False."""
        self.send(signal.SIGTERM)
        done, _ = await asyncio.wait({self.ended}, timeout=grace_seconds)
        if done:
            return False
        self.send(signal.SIGKILL)
        await asyncio.wait({self.ended})
        return True

    def close(self) -> None:
        """Closes the pipes of the process. Readers of its output get the end of the stream."""
        for transport in self._transports:
            transport.close()
        if self._orders is not None and not self._orders.is_closing():
            self._orders.abort()

    async def _connect(self) -> None:
        loop, process = asyncio.get_running_loop(), self._process
        for reader, pipe in ((self.out, process.stdout), (self.err, process.stderr)):
            assert pipe is not None
            transport, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            self._transports.append(transport)
        if process.stdin is not None:
            self._orders, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)

    def _watch(self) -> None:
        if sys.platform == "linux":
            with suppress(OSError):  # an old system has no pidfd
                self._descriptor = os.pidfd_open(self._process.pid)
                asyncio.get_running_loop().add_reader(self._descriptor, self._has_ended)
                return
        threading.Thread(
            target=self._wait, args=(asyncio.get_running_loop(),), name=f"wait-for-{self.pid}", daemon=True
        ).start()

    def _has_ended(self) -> None:
        code = self._process.poll()
        if code is None:
            return
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._tell(code)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self._process.wait()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._tell, code)

    def _tell(self, code: int) -> None:
        if not self.ended.done():
            self.ended.set_result(code)


def how_it_ended(code: int) -> str:
    """Returns a description of an exit code, which is written after the name of the process."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
