"""Runs a child process on the event loop. Its end is noticed and the process reaped immediately; its output is read
through pipes.

A process of asyncio counts as ended only when its pipes are also closed, which its own children may keep open. Here
only the end of the process counts. On Linux a process descriptor (pidfd) reports the end, elsewhere a thread waits for
it. No other code may wait for these processes."""

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

#: Bytes of output that are read ahead, for each stream.
_READ_AHEAD_BYTES = 64 * 1024


class ChildProcess:
    """A child process in its own session, so that signals of the terminal (Ctrl-C) do not reach it. It is made by
    `start`; `close` must be called when it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._descriptor = -1
        self._transports: list[asyncio.ReadTransport] = []
        self._orders: asyncio.WriteTransport | None = None
        #: Gets the exit code of the process when it has ended; a negative code is the signal that ended it.
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
        """Starts a command with only these environment variables and descriptors. With `takes_orders` its stdin is a
        pipe, otherwise it is empty. Raises OSError if the command cannot be started."""
        # Popen returns when the command runs. Starting it in a thread would take as long.
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
        """Sends SIGTERM, and SIGKILL if the process has not ended within the given time. Returns when it has ended,
        and returns true if SIGKILL was sent."""
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
    """Returns an exit code in words, to be written after the name of the process."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
