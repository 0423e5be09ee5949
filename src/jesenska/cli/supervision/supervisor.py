"""The supervisor of a cluster on one machine. It runs the process of the metadata tree (ZooKeeper's nodes), and child
processes such as brokers. When a child ends, the child's session in the tree's server is also ended.

    async with Supervisor(directory) as supervisor:
        supervisor.add(Child("broker 1", [...supervisor.address...], node="/brokers/ids/1"))
        await stopping.wait()

ZooKeeper ends a session when its client has sent nothing for the session's timeout. The supervisor has started the
client, so it notices immediately when the client's process ends. It then orders the tree's process to end the client's
session (`session_ends`), without waiting for the timeout.

    before a child starts     the session that owns the child's node is ended: it may be of an earlier supervisor
    a child has died          its session is ended; a child with `restarts` is started again after a pause
    the tree's process died   it starts again, at the same port with the same data; sessions stay, orders wait
    `stop`                    stops the children one after the other, the last added child first, so that each broker
                              can hand over its partitions. A child gets SIGTERM, and SIGKILL after the grace
                              time, and its session is ended. Then the tree's process is stopped
    `kill`                    ends all processes at once, by SIGKILL
    this process is killed    children find PARENT_DESCRIPTOR closed (`ending`) and stop; the tree's process ends the
                              children that do not watch it (`guarded`), and then itself

Children have an empty stdin, their own session (no Ctrl-C from the terminal) and PARENT_DESCRIPTOR in their
environment. The output of children is passed on, with the child's name in front of each line. A child with `on_word`
writes one JSON object per line to stdout. Processes that a child has started itself are not supervised. The supervisor
runs on one event loop, which never waits for a terminal (`prefixed_output`)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jesenska.cli.shared.ending import PARENT_DESCRIPTOR
from jesenska.cli.supervision.child_process import ChildProcess, how_it_ended
from jesenska.cli.supervision.prefixed_output import PrefixedOutput
from jesenska.cli.supervision.restarts import Restarts
from jesenska.cli.supervision.tree_child import (
    LAST_WORDS_SECONDS,
    TreeChild,
    TreeStoppedError,
    after,
    ended_or_set,
    unless_set,
)
from jesenska.cli.supervision.tree_orders import TREE_HOST
from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import BadArgumentsError

GRACE_SECONDS = 30.0
#: The number of seconds for which the stop of one child may delay the stop of the next child.
_STOPS_ALONE_SECONDS = 5.0
#: The number of seconds for which a stop waits until the tree's process has ended a child's session.
_LAST_ORDER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Child:
    """A process that the supervisor starts and watches."""

    name: str
    command: Sequence[str]
    #: The path of the child's ephemeral node. The session that owns this node is the child's session.
    node: str
    #: True if the child is started again whenever it has ended.
    restarts: bool = True
    #: Environment variables of the child in addition to those of this process.
    environment: Mapping[str, str] = field(default_factory=dict)
    #: A function that is called with each object that the child writes to stdout. An object {"failed": sentence}
    #: contains the reason why the child ends.
    on_word: Callable[[dict[str, Any]], None] | None = None
    #: A function that is called when a process of the child has ended, before the child starts again. Its argument
    #: describes the end (how_it_ended, or "has failed (why)"). It is not called for processes that a stop has ended.
    on_end: Callable[[str], None] | None = None


class Supervisor:
    """The supervisor of the metadata tree in a directory, and of children. Use `start` and `stop`, or a `with`
    block."""

    def __init__(
        self,
        directory: Path,
        *,
        passed_on: PrefixedOutput | None = None,
        grace_seconds: float = GRACE_SECONDS,
        listens_at: tuple[str, int] = (TREE_HOST, 0),
        has_login: bool = False,
    ) -> None:
        """Prepares the supervisor. `grace_seconds` is the time that a process may take to stop cleanly. `listens_at`
        is the host ("": every address of this machine) and the port (0: any) of the tree. `has_login`: only clients
        with the login in the directory (`tree_login`) may use the tree. Raises JesenskaError if the tree cannot listen
        there."""
        self._directory = directory
        self._passed_on = passed_on or PrefixedOutput()
        self._grace_seconds = grace_seconds
        self._stopping = asyncio.Event()
        self._tree = TreeChild(directory, self._passed_on, self._guard_all, listens_at, has_login=has_login)
        self._looking_after: dict[str, asyncio.Task[None]] = {}
        #: For each child, an event that is set when the child must stop.
        self._leaving: dict[str, asyncio.Event] = {}
        self._running: dict[str, ChildProcess] = {}
        #: A pipe. Every child has its reading end, and only this process has its writing end. The writing end is
        #: closed when this process ends.
        self._lifeline: tuple[int, int] | None = None
        self._stop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """Returns the address host:port of the metadata tree, for ZooKeeper's clients on this machine. The address
        does not change."""
        return self._tree.address

    @property
    def port(self) -> int:
        """Returns the port of the metadata tree."""
        return self._tree.port

    @property
    def tree_process(self) -> int | None:
        """Returns the id of the metadata tree's process. Returns None while the process is not running."""
        return self._tree.pid

    def process_of(self, name: str) -> int | None:
        """Returns the id of a child's process. Returns None while the child has no process."""
        child = self._running.get(name)
        return child.pid if child is not None else None

    def send(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a child, if it has a process."""
        if (child := self._running.get(name)) is not None:
            child.send(number)

    async def start(self) -> None:
        """Starts the metadata tree, and returns when clients can connect to it. Raises JesenskaError if it cannot
        start."""
        self._lifeline = os.pipe()
        try:
            await self._tree.start()
        except BaseException:
            await self.stop()
            raise

    def add(self, child: Child) -> None:
        """Starts a child and supervises it from now on. Raises ValueError if the child can never be started: another
        child has the same name, the path `node` is not valid, or the command is empty."""
        if self._stopping.is_set() or self._lifeline is None:
            raise ValueError(f"{child.name} cannot be added: the supervisor does not run")
        if child.name in self._looking_after:
            raise ValueError(f"there is a child {child.name} already")
        if not child.command or any("\0" in word for word in child.command):
            raise ValueError(f"{child.name} has no command that can be run")
        try:
            check_path(child.node)
        except BadArgumentsError as error:
            raise ValueError(f"{child.node} is not the path of a node: {error.reason}") from error
        environment = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            **child.environment,
            PARENT_DESCRIPTOR: str(self._lifeline[0]),
        }
        self._leaving[child.name] = asyncio.Event()
        task = asyncio.get_running_loop().create_task(self._look_after(child, environment), name=child.name)
        self._looking_after[child.name] = task
        task.add_done_callback(self._looked_after)

    def begin_stop(self) -> None:
        """Begins a stop: no process is started again. `stop` waits until all processes have stopped."""
        if self._stop is None:
            self._stopping.set()
            self._stop = asyncio.get_running_loop().create_task(self._stop_all())

    async def stop(self) -> None:
        """Stops the children, then the metadata tree. Returns when no process is left. This method may be called
        several times."""
        self.begin_stop()
        assert self._stop is not None
        # If the caller is cancelled while it waits, the stop must continue.
        await asyncio.shield(self._stop)

    def kill(self) -> None:
        """Sends SIGKILL to all processes, without waiting for their end."""
        self._stopping.set()
        for process in self._running.values():
            process.send(signal.SIGKILL)
        self._tree.kill()

    async def _stop_all(self) -> None:
        for name, task in reversed(self._looking_after.items()):
            self._leaving[name].set()
            await asyncio.wait({task}, timeout=_STOPS_ALONE_SECONDS)
        if self._looking_after:
            await asyncio.wait(self._looking_after.values())
        await self._tree.stop(self._grace_seconds)
        if self._lifeline is not None:
            for descriptor in self._lifeline:
                os.close(descriptor)
            self._lifeline = None
        await self._passed_on.close()

    # One child

    async def _look_after(self, child: Child, environment: Mapping[str, str]) -> None:
        loop = asyncio.get_running_loop()
        restarts = Restarts()
        await self._end_session(child)
        while not self._stopping.is_set():
            begun = loop.time()
            ended, session_ends = await self._run(child, environment)
            if child.on_end is not None and not self._stopping.is_set():
                child.on_end(ended)
            is_last, pause_seconds = (
                not child.restarts or self._stopping.is_set(),
                restarts.pause_seconds(loop.time() - begun),
            )
            if not self._stopping.is_set():
                self._passed_on.say(
                    f"{child.name} {ended}; it "
                    f"{'is not started again' if is_last else f'starts again {after(pause_seconds)}'}."
                )
            if session_ends is not None:
                await session_ends
            if is_last:
                return
            await unless_set(self._stopping, pause_seconds)

    async def _run(self, child: Child, environment: Mapping[str, str]) -> tuple[str, asyncio.Task[None] | None]:
        """Runs one process of a child from its start to its end. Returns a text that describes the end, and the task
        that ends the child's session."""
        assert self._lifeline is not None
        loop = asyncio.get_running_loop()
        try:
            process = await ChildProcess.start(child.command, environment, descriptors=[self._lifeline[0]])
        except OSError as error:
            return f"cannot be started ({error.strerror}: {error.filename or child.command[0]})", None
        self._running[child.name] = process
        self._tree.guard(process.pid, self._grace_seconds)
        hearing = loop.create_task(self._hear(child, process))
        out = [(process.out, self._passed_on.out)] if child.on_word is None else []
        self._passed_on.follow(
            child.name,
            [*out, (process.err, self._passed_on.err)],
            lambda: hearing.add_done_callback(lambda _: process.close()),
        )
        if not await ended_or_set(process, self._leaving[child.name]) and await process.stop(self._grace_seconds):
            self._passed_on.say(
                f"{child.name} has not stopped within {self._grace_seconds:g} s and was ended by SIGKILL."
            )
        del self._running[child.name]
        session_ends = loop.create_task(self._end_session(child))
        await asyncio.wait({hearing}, timeout=LAST_WORDS_SECONDS)
        failure = hearing.result() if hearing.done() else ""
        hearing.cancel()
        return f"has failed ({failure.rstrip('.')})" if failure else how_it_ended(process.ended.result()), session_ends

    async def _hear(self, child: Child, process: ChildProcess) -> str:
        """Calls the child's `on_word` with each object that the child writes, until the end of the child's output.
        Returns the reason that the child gave for its failure, or an empty text."""
        failure = ""
        if child.on_word is not None:
            async for said in process.words():
                failure = str(said.get("failed", failure))
                child.on_word(said)
        return failure

    async def _end_session(self, child: Child) -> None:
        """Waits until the tree's process has ended the session that owns the child's node. During a stop it waits only
        for a limited time."""
        loop = asyncio.get_running_loop()
        ending, stopping = loop.create_task(self._end_session_whenever(child)), loop.create_task(self._stopping.wait())
        await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await asyncio.wait({ending}, timeout=_LAST_ORDER_SECONDS)
        stopping.cancel()
        if not ending.cancel():
            ending.result()

    async def _end_session_whenever(self, child: Child) -> None:
        restarts = Restarts()
        while True:
            try:
                answer = await self._tree.order(order="end-session", path=child.node)
            except TreeStoppedError:
                return
            if "refused" in answer:
                self._passed_on.say(f"The session of {child.name} is not ended: {answer['refused']}")
            if "later" not in answer:
                return
            pause_seconds = restarts.pause_seconds(0)
            self._passed_on.say(
                f"The session of {child.name} is not ended yet: {str(answer['later']).rstrip('.')}; the next try is "
                f"{after(pause_seconds)}."
            )
            await asyncio.sleep(pause_seconds)

    def _guard_all(self) -> None:
        for process in self._running.values():
            self._tree.guard(process.pid, self._grace_seconds)

    def _looked_after(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"{task.get_name()} is no longer looked after", "exception": error, "task": task}
            )
