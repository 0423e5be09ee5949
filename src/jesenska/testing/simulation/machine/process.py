"""One program of a simulation. A program has its own event loop with the simulated clock, its threads and its sockets.
One step runs the program until it waits. Between two steps the program can be killed."""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

from jesenska.broker.machine import Machine
from jesenska.log.disk.files import FileLayer
from jesenska.testing.simulation.machine.network import SimulatedNetwork, SimulatedSocket
from jesenska.testing.simulation.machine.world import NEVER, StuckError, World
from jesenska.testing.simulation.streams import StreamsOfProcess

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")

#: The shortest and the longest time in seconds that a piece of work in a thread takes.
_THREAD_SECONDS = (0.00005, 0.002)
#: If threads have more than this many seconds of unfinished work, they got the work while the disk was slow.
_LATE_SECONDS = 0.05
#: If a step takes more than this many rounds of the event loop, the program is in an endless loop.
_ROUNDS_MAX = 100_000
#: Up to this many cancelled timers stay in the heap until they are due. If there are more, cancelled timers are
#: removed as soon as they are the majority.
_CANCELLED_TIMERS_MAX = 100


class ProcessClock:
    """A clock with the simulated time. `offset_ms` is added to the wall clock: the error of the machine's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.offset_ms = 0

    def now_ms(self) -> int:
        return self._world.wall_ms() + self.offset_ms

    def monotonic(self) -> float:
        return 1000.0 + self._world.now


class Process:
    """A simulated process. `start` runs a coroutine in it."""

    def __init__(self, world: World, network: SimulatedNetwork, name: str, files: FileLayer | None = None) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        #: True while the process is paused. It does not notice the pause.
        self.is_paused = False
        #: True if an event since the last step has given the process something to do.
        self.is_stirred = False
        #: The time at which the process's next timer is due; `NEVER` if it has no timer.
        self.due = NEVER
        self.sockets: dict[int, SimulatedSocket] = {}
        #: Sockets that may have become ready since the last check, by number. They are in the order in which they
        #: changed.
        self.changed_sockets: dict[int, SimulatedSocket] = {}
        self.clock = ProcessClock(world)
        self.threads: list[SimulatedThreads] = []
        self.loop = SimulatedLoop(self)
        self.network = network.of(self)
        #: The factor by which work in threads takes longer. A larger factor simulates a slow disk.
        self.slowness = 1.0
        self.machine = Machine(
            clock=self.clock,
            random=world.random,
            new_uuid=world.new_uuid,
            files=files or FileLayer(),
            network=self.network,
            streams=StreamsOfProcess(self.network),
            threads=self.new_threads,
            helpers=lambda count, name: AtOnce(),
            loop_may_be_late=False,
        )
        world.processes.append(self)

    @property
    def is_slow(self) -> bool:
        """Returns True while the disk is slow, or while threads still do work that they got while the disk was
        slow."""
        return self.slowness > 1.0 or any(threads.is_late for threads in self.threads)

    def new_threads(self, count: int, name: str) -> Executor:
        made = SimulatedThreads(self, name)
        self.threads.append(made)
        return made

    def start(self, program: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs a coroutine in this process."""
        self.is_stirred = True
        task: asyncio.Task[Any] = self._within(partial(self.loop.create_task, program))
        return task

    def _within(self, work: Callable[[], Any]) -> Any:
        events._set_running_loop(self.loop)
        try:
            return work()
        finally:
            events._set_running_loop(None)

    def stir(self, sock: SimulatedSocket) -> None:
        """Marks a socket to be checked in the next step."""
        self.changed_sockets[sock.number] = sock
        self.is_stirred = True

    def step(self) -> None:
        """Runs the process until it waits for time, for a thread or for input."""
        loop = self.loop
        events._set_running_loop(loop)
        try:
            loop.step()
        finally:
            events._set_running_loop(None)
        # Events during the step were caused by the process itself, and the step has done the work for them.
        self.is_stirred = False
        self.due = loop.next_time()

    def end(self) -> None:
        """Ends the process at once: no more code of the process runs, and its connections are closed."""
        if self.is_dead:
            return
        self.is_dead = True
        self.world.processes.remove(self)
        for sock in list(self.sockets.values()):
            sock.close()
        for threads in self.threads:
            threads.waiting.clear()


class SimulatedThreads(Executor):
    """Threads whose work takes simulated time. When the time of a piece of work has passed, the work is done at once,
    in order, between two steps of the event loop."""

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
            if not future.set_running_or_notify_cancel():
                return  # it was cancelled
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

    @property
    def is_late(self) -> bool:
        """Returns True while the threads do work that they got while the disk was slow."""
        return self._busy_until > self._process.world.now + _LATE_SECONDS

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for run in list(self.waiting):
            run()


class AtOnce(Executor):
    """An executor that does work at once, in the caller's thread."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except Exception as error:
            future.set_exception(error)
        return future


def _ignore() -> None:
    """Does nothing. It replaces the callback of a call that was cancelled."""


class _Call:
    """A callback that is called once, or repeatedly for a socket. It has only the methods of asyncio's Handle that are
    needed here, and is faster than a Handle."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<call of {self._callback!r}>"

    def cancel(self) -> None:
        self._cancelled = True
        # A cancelled call keeps no references, as in asyncio.
        self._callback, self._args = _ignore, ()

    def cancelled(self) -> bool:
        return self._cancelled


class _TimedCall(_Call):
    """A callback that is called at a given time."""

    __slots__ = ("_loop", "_when")

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: SimulatedLoop, context: Context
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._when = when
        #: The event loop. It is None when the call is no longer in the event loop's heap of timers.
        self._loop: SimulatedLoop | None = loop

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = _ignore, ()
            if self._loop is not None:
                self._loop._timer_cancelled()


class SimulatedLoop(asyncio.BaseEventLoop):
    """An asyncio event loop with the simulated clock. A simulation runs it step by step, and it never waits. Frequent
    operations (callbacks, timers, sockets) are implemented here. All other operations are inherited from asyncio."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._world = process.world
        self._ready: deque[_Call] = deque()
        #: The timers, sorted by time. Timers of the same time are in the order in which they were made.
        self._timers: list[tuple[float, int, _TimedCall]] = []
        self._timer_count = 0
        self._cancelled_timers = 0
        self._readers: dict[int, _Call] = {}
        self._writers: dict[int, _Call] = {}
        self._default = process.new_threads(1, "default")
        self.set_exception_handler(self._failed)
        #: Exceptions of callbacks, and of tasks that were not awaited.
        self.failures: list[dict[str, Any]] = []

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._process.is_dead:
            self.failures.append(context)

    # --- steps -------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._world.now

    def next_time(self) -> float:
        """Returns the time of the next timer that was not cancelled, or `NEVER`."""
        timers = self._timers
        while timers:
            when, _, timer = timers[0]
            if not timer._cancelled:
                return when
            self._forget_first()
        return NEVER

    def step(self) -> None:
        """Runs all calls that are due now, and the calls that they cause, round by round. A round runs the calls for
        ready sockets, the calls of timers that are due, and the calls that the previous round has scheduled."""
        ready, timers, process, now = self._ready, self._timers, self._process, self._world.now
        for _ in range(_ROUNDS_MAX):
            if process.changed_sockets:
                self._find_ready_sockets()
            while timers and timers[0][0] <= now:
                ready.append(self._forget_first())
            if not ready:
                return
            for _ in range(len(ready)):
                call: Any = ready.popleft()
                if not call._cancelled:
                    # This does the same as Handle._run, without a function call.
                    try:
                        call._context.run(call._callback, *call._args)
                    except BaseException as error:
                        self._callback_raised(call, error)
            call = None
        raise StuckError(f"{process.name} turns in circles")

    def _callback_raised(self, handle: _Call, error: BaseException) -> None:
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
        self.call_exception_handler(
            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
        )

    def _find_ready_sockets(self) -> None:
        """Adds the callbacks of ready sockets to the current round, and marks these sockets for a check in the next
        round. A callback that is cancelled before its turn is not called."""
        process, readers, writers = self._process, self._readers, self._writers
        changed, process.changed_sockets = process.changed_sockets, {}
        for number, sock in changed.items():
            if sock.closed:
                continue
            reader = readers.get(number)
            # This does the same as is_readable, without a function call.
            if reader is not None and (sock.arrived or sock.backlog or sock.at_end or sock.is_reset):
                self._ready.append(reader)
                process.changed_sockets[number] = sock
            if writers and (writer := writers.get(number)) is not None and sock.is_writable:
                self._ready.append(writer)
                process.changed_sockets[number] = sock

    # --- callbacks and timers ----------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        call = _Call(callback, args, copy_context() if context is None else context)
        self._ready.append(call)
        return call  # type: ignore[return-value]

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Arguments], object],
        *args: *_Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Arguments], object], *args: *_Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _TimedCall(when, callback, args, self, copy_context() if context is None else context)
        self._timer_count = count = self._timer_count + 1
        heapq.heappush(self._timers, (when, count, timer))
        return timer  # type: ignore[return-value]

    def _forget_first(self) -> _TimedCall:
        timer = heapq.heappop(self._timers)[2]
        timer._loop = None
        if timer._cancelled:
            self._cancelled_timers -= 1
        return timer

    def _timer_cancelled(self) -> None:
        """Counts a timer that was cancelled before it was due. If most timers are cancelled, removes them."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_TIMERS_MAX and 2 * self._cancelled_timers > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    # --- sockets -----------------------------------------------------------------------------------------------------

    def add_reader(self, fd: Any, callback: Callable[[*_Arguments], Any], *args: *_Arguments) -> None:
        self._watch(self._readers, fd, _Call(callback, args, copy_context()))

    def remove_reader(self, fd: Any) -> bool:
        return self._unwatch(self._readers, fd)

    def add_writer(self, fd: Any, callback: Callable[[*_Arguments], Any], *args: *_Arguments) -> None:
        self._watch(self._writers, fd, _Call(callback, args, copy_context()))

    def remove_writer(self, fd: Any) -> bool:
        return self._unwatch(self._writers, fd)

    def _watch(self, watching: dict[int, _Call], number: int, handle: _Call) -> None:
        self._unwatch(watching, number)
        watching[number] = handle
        sock = self._process.sockets.get(number)
        if sock is not None:
            self._process.stir(sock)

    def _unwatch(self, watching: dict[int, _Call], number: int) -> bool:
        handle = watching.pop(number, None)
        if handle is None:
            return False
        handle.cancel()
        return True

    # --- threads -----------------------------------------------------------------------------------------------------

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Arguments], _Result], *args: *_Arguments
    ) -> asyncio.Future[_Result]:
        return asyncio.wrap_future((executor or self._default).submit(func, *args), loop=self)
