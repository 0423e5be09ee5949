"""A simulated machine with a broker: its disk, its wall clock, and the broker's process. After a fault has ended the
process, the machine starts a new process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.testing.simulation.clients import BrokerProgram
from jesenska.testing.simulation.machine.disk import JOURNAL_FILES, SimulatedFiles
from jesenska.testing.simulation.machine.network import SimulatedNetwork
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.machine.world import World
from jesenska.testing.simulation.watches.history import ViolationError

Start = Callable[[Process, Coroutine[Any, Any, Any]], "asyncio.Task[Any]"]
#: A function that is called after a start that should fail, with the start's error, or with None if the broker
#: started. It returns the reason why the result is allowed, or None if it is not allowed.
Judge = Callable[[Exception | None], str | None]
#: A directory, and the disk that contains it.
Disk = tuple[Path, SimulatedFiles]


def _nothing() -> None:
    """Does nothing. It is the default of callbacks without arguments."""


def _nothing_of(program: BrokerProgram) -> None:
    """Does nothing. It is the default of callbacks that get a program."""


def _nothing_in(directory: Path) -> None:
    """Does nothing, so an empty disk stays empty."""


class BrokerHost:
    """A simulated machine with one broker. `start` runs a program in a process and reports the program's exceptions.
    `excuse` returns the reason why a broker that began to start at a given time may fail. It returns None if the
    broker must not fail."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        name: str,
        number: int,
        directory: Path,
        settings: Mapping[str, str],
        start: Start,
        excuse: Callable[[BrokerHost, float], str | None],
    ) -> None:
        self.world = world
        self.name = name
        #: The broker's id.
        self.number = number
        #: The directory with the broker's data.
        self.data = directory / f"{name}-0"
        self.files = SimulatedFiles(world.random)
        self.program: BrokerProgram
        #: The time until which the broker may be cut off from the network.
        self.is_cut_off_until = -1.0
        #: Called before a fault ends the broker's process.
        self.before_end: Callable[[], None] = _nothing
        #: Called when the broker is ready.
        self.when_ready: Callable[[BrokerProgram], None] = _nothing_of
        self._started: list[Callable[[], None]] = []
        self._network = network
        self._directory = directory
        self._settings = settings
        self._start = start
        self._excuse = excuse
        self._incarnation = 0
        self._clock_offset_ms = 0
        #: Additional settings for the next start, and the function that judges the result of this start. None for a
        #: usual start.
        self._trial: tuple[Mapping[str, str], Judge] | None = None

    @property
    def is_up(self) -> bool:
        """Returns True if the broker is ready, and was not killed or stopped since."""
        return self.program.is_ready and not self.program.process.is_dead

    def start(self) -> None:
        process = Process(self.world, self._network, f"{self.name}.{self._incarnation}", self.files)
        process.clock.offset_ms = self._clock_offset_ms
        others, judge = self._trial or ({}, None)
        self.program = BrokerProgram(process, self.data, {**self._settings, **others})
        self._start(process, self._run(self.program, judge))
        started, self._started = self._started, []
        for what in started:
            what()

    def when_started(self, what: Callable[[], None]) -> None:
        """Calls `what` once, when the next process begins to start."""
        self._started.append(what)

    def try_once(self, settings: Mapping[str, str], judge: Judge) -> None:
        """Uses additional settings in the next start, and passes the result of this start to `judge`. If a fault
        interrupts the start, the settings are used in the following start."""
        self._trial = settings, judge

    def _judged(self, judge: Judge, error: Exception | None) -> str | None:
        self._trial = None
        return judge(error)

    async def _run(self, program: BrokerProgram, judge: Judge | None) -> None:
        began = self.world.now
        try:
            await program.run()
            if judge is not None:
                self._judged(judge, None)
            self.when_ready(program)
        except (JesenskaError, OSError) as error:
            excuse = (
                "while the disk is full"
                if self.files.is_full
                else None
                if judge is None
                else self._judged(judge, error)
            )
            excuse = excuse or self._excuse(self, began)
            if excuse is None:
                raise ViolationError(f"{program.process.name} does not start: {error}") from error
            self.world.tell(program.process.name, f"cannot start {excuse}")
            if program.broker is not None:
                await program.broker.stop()
            self._incarnation += 1
            self._later(0.0, self._again)

    def end(self) -> None:
        """Ends the broker's process and closes its files."""
        self.program.end()
        self.files.leave()

    # --- faults ------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kills the broker and starts it again later. All its writes are kept."""
        self.before_end()
        self.program.end()
        target = self._next_data()
        self._come_up_later(target, self.files.after_kill(self.data, target))

    def lose_power(self, back_after: float | None = None) -> None:
        """Simulates a loss of power of the machine, and starts the broker again later. Writes that were not synced may
        be lost completely or in part."""
        self.before_end()
        self.program.end()
        target = self._next_data()
        self.files.after_crash(self.data, target, self.world.random)
        # The journal of the ZooKeeper server syncs every write itself, so it is copied whole. It is not among the
        # tracked files.
        for name in JOURNAL_FILES:
            if (self.data / name).exists():
                shutil.copyfile(self.data / name, target / name)
        files = SimulatedFiles(self.world.random)
        files.came_up_with(target)
        self._come_up_later(target, files, back_after)

    def replace_disk(self, fill: Callable[[Path], None] = _nothing_in) -> Disk:
        """Kills the broker and starts it on another disk: an empty disk, or a copy of its disk that `fill` has
        changed. Returns the old disk, which can be passed to `mount`."""
        self.before_end()
        self.program.end()
        had, other = self._next_data(), self._next_data()
        files, others = self.files.after_kill(self.data, had), SimulatedFiles(self.world.random)
        if fill is _nothing_in:
            other.mkdir()
        else:
            shutil.copytree(had, other)
            fill(other)
            others.came_up_with(other)
        self._come_up_later(other, others)
        return had, files

    def mount(self, disk: Disk) -> None:
        """Kills the broker and starts it on the given disk."""
        self.before_end()
        self.program.end()
        self._incarnation += 1
        self._come_up_later(*disk)

    def unmount(self, seconds: float) -> None:
        """Kills the broker and starts it on an empty disk. After `seconds`, kills it again and starts it on the old
        disk."""
        had = self.replace_disk()
        self.world.after(seconds, lambda: self.mount(had))

    def go_down(self) -> None:
        """Kills the broker. It does not run until `come_up` is called. All writes of the broker are kept."""
        self.before_end()
        self.program.end()
        target = self._next_data()
        files = self.files.after_kill(self.data, target)
        self.files.leave()
        self.data, self.files = target, files
        self._trial = None

    def come_up(self) -> None:
        self._later(self.world.random.uniform(0.1, 5.0), self.start)

    def stop(self, then: Callable[[], object] | None = None) -> None:
        """Stops the broker in an orderly way, then calls `then`. By default the broker is started again."""
        process, program = self.program.process, self.program
        assert program.broker is not None
        program.is_ready = False
        self._incarnation += 1
        incarnation = self._incarnation

        def stopped(task: asyncio.Task[Any]) -> None:
            if incarnation == self._incarnation and not process.is_dead:
                self._later(0.0, then or self._again)

        self._start(process, program.broker.stop()).add_done_callback(stopped)

    def pause(self, seconds: float) -> None:
        """Pauses the broker's process for `seconds`. The process does not notice the pause."""
        process = self.program.process
        process.is_paused = True
        self.world.after(seconds, lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        process.is_paused = False
        process.is_stirred = True

    def slow_down(self, times: float, seconds: float) -> None:
        """Makes the broker's disk `times` slower, for `seconds`."""
        process = self.program.process
        process.slowness = times

        def end() -> None:
            process.slowness = 1.0

        self.world.after(seconds, end)

    def set_clock(self, change_ms: int) -> None:
        self._clock_offset_ms += change_ms
        self.program.process.clock.offset_ms = self._clock_offset_ms

    def set_clock_right(self) -> None:
        self.set_clock(-self._clock_offset_ms)

    def heal(self) -> None:
        self.files.is_full = False
        self.program.process.slowness = 1.0
        self._resume(self.program.process)

    def _next_data(self) -> Path:
        self._incarnation += 1
        return self._directory / f"{self.name}-{self._incarnation}"

    def _come_up_later(self, data: Path, files: SimulatedFiles, seconds: float | None = None) -> None:
        self.files.leave()
        self.data, self.files = data, files
        self._later(self.world.random.uniform(0.1, 5.0) if seconds is None else seconds, self.start)

    def _later(self, seconds: float, what: Callable[[], object]) -> None:
        """Calls `what` after `seconds`, unless the broker has a newer process by then."""
        incarnation = self._incarnation

        def happen() -> None:
            if incarnation == self._incarnation:
                what()

        self.world.after(seconds, happen)

    def _again(self) -> None:
        """Starts the broker's next process on the same disk, after the last process has ended by itself."""
        self.before_end()
        self.program.end()
        self._come_up_later(self.data, self.files.successor())
