"""Manages the process of the metadata tree (`supervised_tree`) for the supervisor: starts it, starts it again when it
has died, and gives it orders.

The socket for clients belongs to the supervisor, and the tree's process inherits it. So no other process gets the port
during a restart, and clients that connect during a restart wait in the socket's queue. If the process dies before it
has answered an order, the order is given to the next process. So an order may be carried out twice."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.cli.supervision.child_process import ChildProcess, how_it_ended
from jesenska.cli.supervision.prefixed_output import PrefixedOutput
from jesenska.cli.supervision.restarts import Restarts
from jesenska.cli.supervision.tree_orders import TREE_HOST, line_of
from jesenska.net.listener import listening_socket

NAME = "tree"
#: The number of seconds for which the last output of a process is read after the process has ended.
LAST_WORDS_SECONDS = 1.0


class TreeStoppedError(Exception):
    """The error that is raised if the tree's process was stopped and accepts no more orders."""


class _Asked:
    """An order that has not been answered yet."""

    __slots__ = ("answer", "line")

    def __init__(self, line: bytes, answer: asyncio.Future[dict[str, Any]]) -> None:
        self.line, self.answer = line, answer


class TreeChild:
    """The process of one metadata tree. Call `start`, then `stop`. The log of the process is passed on."""

    def __init__(
        self,
        directory: Path,
        passed_on: PrefixedOutput,
        on_ready: Callable[[], None],
        listens_at: tuple[str, int],
        *,
        has_login: bool = False,
    ) -> None:
        """Opens the listening socket. `on_ready` is called each time that the process has started, before the process
        gets any order. `listens_at` is the host ("": every address) and the port (0: any). `has_login`: only
        clients with the directory's login may use the tree. Raises JesenskaError if the socket cannot listen there."""
        self._has_login = has_login
        self._directory = directory
        self._passed_on = passed_on
        self._on_ready = on_ready
        self._listening = listening_socket(*listens_at)
        self._host = listens_at[0] or TREE_HOST
        #: The port for clients. It does not change.
        self.port: int = self._listening.getsockname()[1]
        self._process: ChildProcess | None = None
        self._ready = asyncio.Event()
        self._was_ready = False
        self._failure = ""  # the reason why its last process failed, in its own words
        self._stopping = asyncio.Event()
        self._grace_seconds = 0.0
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Returns the address host:port of the tree, for clients on this machine."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Returns the id of the tree's process. Returns None while the process is not running."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Starts the process, and returns when clients can connect. If the process ends before that, raises
        JesenskaError with the reason that the process gave."""
        self._task = asyncio.get_running_loop().create_task(self._keep())
        ready = asyncio.get_running_loop().create_task(self._ready.wait())
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            self._listening.close()
            self._task.result()

    def order(self, **what: Any) -> asyncio.Future[dict[str, Any]]:
        """Gives an order to the process: immediately, or as soon as the process runs. The returned future gets the
        answer. It gets TreeStoppedError if the process was stopped. If the future is cancelled, the order is
        dropped."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._stopping.is_set():
            answer.set_exception(TreeStoppedError())
            return answer
        asked = self._asked[number] = _Asked(line_of(number=number, **what), answer)
        answer.add_done_callback(lambda _: self._asked.pop(number, None))
        if self._process is not None and self._ready.is_set():
            self._process.order(asked.line)
        return answer

    def guard(self, process: int, grace_seconds: float) -> None:
        """Orders the tree's process to end a child of the supervisor when the supervisor has ended. The order is valid
        only while the present process of the tree runs. If the child cannot be guarded, nothing happens."""
        if self._process is not None and self._ready.is_set():
            self._number += 1
            self._process.order(
                line_of(number=self._number, order="guard", process=process, grace_seconds=grace_seconds)
            )

    def kill(self) -> None:
        """Sends SIGKILL to the process, which is not started again."""
        self._stopping.set()
        if self._process is not None:
            self._process.send(signal.SIGKILL)

    async def stop(self, grace_seconds: float) -> None:
        """Stops the process cleanly. Kills it with SIGKILL if the stop takes longer than `grace_seconds`. The futures
        of unanswered orders get TreeStoppedError."""
        self._grace_seconds = grace_seconds
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        for asked in list(self._asked.values()):
            if not asked.answer.done():
                asked.answer.set_exception(TreeStoppedError())
        self._listening.close()

    # Its process

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        restarts = Restarts()
        while not self._stopping.is_set():
            begun = loop.time()
            ended = await self._run()
            if self._stopping.is_set():
                return
            if not self._was_ready:
                raise JesenskaError(
                    self._failure
                    or f"The tree's process {ended} before clients could connect: read what it has logged."
                )
            pause_seconds = restarts.pause_seconds(loop.time() - begun)
            message = (
                f"The tree's process has failed ({self._failure.rstrip('.')})"
                if self._failure
                else f"The tree's process {ended}"
            )
            self._passed_on.say(f"{message}; it starts again {after(pause_seconds)}.")
            await unless_set(self._stopping, pause_seconds)

    async def _run(self) -> str:
        """Runs one process of the tree from its start to its end. Returns a text that describes the end."""
        self._failure = ""
        descriptor = self._listening.fileno()
        command = [
            sys.executable,
            "-m",
            "jesenska.cli.supervision.supervised_tree",
            *(["--login"] if self._has_login else []),
            str(self._directory),
            str(descriptor),
        ]
        try:
            process = await ChildProcess.start(command, os.environ, descriptors=[descriptor], takes_orders=True)
        except OSError as error:
            return f"cannot be started ({error.strerror})"
        self._process = process
        hearing = asyncio.get_running_loop().create_task(self._hear(process))
        self._passed_on.follow(
            NAME, [(process.err, self._passed_on.err)], lambda: hearing.add_done_callback(lambda _: process.close())
        )
        if not await ended_or_set(process, self._stopping) and await process.stop(self._grace_seconds):
            self._passed_on.say(
                f"The tree's process has not stopped within {self._grace_seconds:g} s and was ended by SIGKILL."
            )
        self._process = None
        self._ready.clear()
        await asyncio.wait({hearing}, timeout=LAST_WORDS_SECONDS)
        hearing.cancel()
        return how_it_ended(process.ended.result())

    async def _hear(self, process: ChildProcess) -> None:
        """Handles the lines that the process writes, until the end of its output."""
        async for said in process.words():
            if "ready" in said:
                self._was_ready = True
                self._ready.set()
                self._on_ready()
                for asked in self._asked.values():
                    process.order(asked.line)
            elif "failed" in said:
                self._failure = str(said["failed"])
            elif (
                isinstance(number := said.get("number"), int)
                and (asked_for := self._asked.get(number)) is not None
                and not asked_for.answer.done()
            ):
                asked_for.answer.set_result(said)


def after(seconds: float) -> str:
    """Returns a pause in words, for messages."""
    return f"in {seconds:g} s" if seconds else "at once"


async def unless_set(stopping: asyncio.Event, seconds: float) -> None:
    """Waits for this many seconds, or until the event is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()


async def ended_or_set(process: ChildProcess, stopping: asyncio.Event) -> bool:
    """Waits until the process has ended or the event is set. Returns true if the process has ended."""
    waiting = asyncio.get_running_loop().create_task(stopping.wait())
    either: set[asyncio.Future[Any]] = {process.ended, waiting}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return process.ended.done()
