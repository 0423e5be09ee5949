"""One program of a simulation: an event loop of its own on the world's clock, its threads, its sockets. It can be
killed between any two of its steps."""

from __future__ import annotations

import asyncio
import selectors
from asyncio import events
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor, Future
from contextvars import Context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from jesenska.broker.machine import Machine
from jesenska.log.files import FileLayer
from jesenska.testing.simulation.network import SimulatedNetwork, SimulatedSocket
from jesenska.testing.simulation.world import World

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

#: Seconds that work in a thread takes, at least and at most.
_THREAD_SECONDS = (0.00005, 0.002)


class ProcessClock:
    """The world's time; the wall clock may be set (`offset_ms`)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.offset_ms = 0

    def now_ms(self) -> int:
        return self._world.wall_ms() + self.offset_ms

    def monotonic(self) -> float:
        return 1000.0 + self._world.now


class Process:
    """A program called `name`. `start` gives it something to do."""

    def __init__(self, world: World, network: SimulatedNetwork, name: str, files: FileLayer | None = None) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        #: Something has come for it since its last step.
        self.is_stirred = False
        #: When its next timer is due; None without one.
        self.due: float | None = None
        self.sockets: dict[int, SimulatedSocket] = {}
        self.clock = ProcessClock(world)
        self.threads: list[SimulatedThreads] = []
        self.loop = SimulatedLoop(self)
        self.network = network.of(self)
        #: Work in threads takes so many times longer: a slow disk.
        self.slowness = 1.0
        self.machine = Machine(
            clock=self.clock,
            random=world.random,
            new_uuid=world.new_uuid,
            files=files or FileLayer(),
            network=self.network,
            threads=self.new_threads,
            helpers=lambda count, name: AtOnce(),
        )
        world.processes.append(self)

    def new_threads(self, count: int, name: str) -> Executor:
        made = SimulatedThreads(self, name)
        self.threads.append(made)
        return made

    def start(self, program: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs something in this process."""
        self.is_stirred = True
        task: asyncio.Task[Any] = self._within(partial(self.loop.create_task, program))
        return task

    def _within(self, work: Callable[[], Any]) -> Any:
        events._set_running_loop(self.loop)
        try:
            return work()
        finally:
            events._set_running_loop(None)

    def step(self) -> None:
        # Sockets change by what comes, which stirs the process: a step for a timer alone need not look at them.
        self.loop.looks_at_sockets, self.is_stirred = self.is_stirred, False
        self._within(self.loop.step)
        self.is_stirred = self.is_stirred or self.loop.has_work()
        self.due = self.loop.next_time()

    def end(self) -> None:
        """It is gone at once: nothing of it runs any more, and its connections end."""
        if self.is_dead:
            return
        self.is_dead = True
        self.world.processes.remove(self)
        for sock in list(self.sockets.values()):
            sock.close()
        for threads in self.threads:
            threads.waiting.clear()


class SimulatedThreads(Executor):
    """Threads that take simulated time. What each was given is done in one go, in order, between two steps of the
    loop."""

    def __init__(self, process: Process, name: str) -> None:
        self._process = process
        self.name = name
        self.waiting: list[Callable[[], None]] = []
        self._busy_until = 0.0

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if run not in self.waiting:
                return  # the process is gone, or it was done when the threads ended
            self.waiting.remove(run)
            try:
                result = work(*arguments, **named)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            process.is_stirred = True

        process = self._process
        self.waiting.append(run)
        took = process.world.random.uniform(*_THREAD_SECONDS) * process.slowness
        self._busy_until = max(self._busy_until, process.world.now) + took
        process.world.at(self._busy_until, run)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for run in list(self.waiting):
            run()


class AtOnce(Executor):
    """Threads that have done what they are given before they are asked for it."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class _Selector(selectors.BaseSelector):
    """What an event loop waits with: here it calls who reads and writes, and never waits."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.call_ready_sockets()
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        raise NotImplementedError("a simulated process has no files to wait for")

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        raise NotImplementedError("a simulated process has no files to wait for")

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class SimulatedLoop(asyncio.BaseEventLoop):
    """asyncio's own loop on the world's clock: stepped from outside, it never waits."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._selector = _Selector(self)
        self._readers: dict[int, Callable[[], Any]] = {}
        self._writers: dict[int, Callable[[], Any]] = {}
        #: Whether the next step asks which sockets are ready.
        self.looks_at_sockets = True
        #: Sockets that were ready at the last step, or are watched since: those that may be ready at the next without
        #: anything coming.
        self._candidates: list[tuple[dict[int, Callable[[], Any]], int]] = []
        self._default = process.new_threads(1, "default")
        self._clock_resolution = 1e-9
        self.set_exception_handler(self._told)
        #: What no task awaited, and callbacks raised.
        self.failures: list[dict[str, Any]] = []

    def _told(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._process.is_dead:
            self.failures.append(context)

    # --- steps -------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._process.world.now

    def has_work(self) -> bool:
        return bool(self._ready) or any(self._is_ready(watching, number) for watching, number in self._candidates)  # type: ignore[attr-defined]

    def _is_ready(self, watching: dict[int, Callable[[], Any]], number: int) -> bool:
        found = self._process.sockets.get(number) if number in watching else None
        return found is not None and (found.is_readable if watching is self._readers else found.is_writable)

    def next_time(self) -> float | None:
        scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]
        # Cancelled ones are left to the loop itself, which forgets them when they are due.
        return scheduled[0]._when if scheduled else None

    def step(self) -> None:
        """What is due now, once."""
        self._run_once()  # type: ignore[attr-defined]

    def _ready_sockets(self) -> list[tuple[dict[int, Callable[[], Any]], int]]:
        sockets = self._process.sockets
        found = [(self._readers, number) for number in self._readers if number in sockets and sockets[number].is_readable]
        return found + [(self._writers, number) for number in self._writers if number in sockets and sockets[number].is_writable]

    def call_ready_sockets(self) -> None:
        """Has this step call who waits for a socket that is ready; who has been taken back by then is not called."""
        self._candidates = self._ready_sockets() if self.looks_at_sockets else []
        for watching, number in self._candidates:
            self.call_soon(self._call_watcher, watching, number)

    def _call_watcher(self, watching: dict[int, Callable[[], Any]], number: int) -> None:
        callback = watching.get(number)
        if callback is not None:
            callback()

    # --- what asyncio leaves to each kind of loop --------------------------------------------------------------------

    def _process_events(self, event_list: list[Any]) -> None:
        """The selector has called everybody."""

    def _write_to_self(self) -> None:
        """Nobody waits who would have to be woken."""

    def call_soon_threadsafe(self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: Context | None = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Arguments], _Result], *args: *_Arguments) -> asyncio.Future[_Result]:
        return asyncio.wrap_future((executor or self._default).submit(func, *args), loop=self)

    def add_reader(self, fd: Any, callback: Callable[[*_Arguments], Any], *args: *_Arguments) -> None:
        self._readers[fd] = partial(callback, *args)
        self._candidates.append((self._readers, fd))

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[[*_Arguments], Any], *args: *_Arguments) -> None:
        self._writers[fd] = partial(callback, *args)
        self._candidates.append((self._writers, fd))

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(fd, None) is not None
