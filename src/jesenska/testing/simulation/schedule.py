"""One simulation: a broker, producers and a group for so many seconds, faults at times that the seed chooses, and the
judgement at the end.

killed              the broker's process is gone between two steps, with what it wrote left on the disk
power loss          and the disk keeps only what was synced, and any part of the rest; where the topic asks for a sync
                    before each answer
stopped             in order, and started again
cut                 connections break, some or all
slow disk           whatever threads do takes long for a while
full disk           no file grows for a while
clock               the broker's wall clock is set forward or back
member gone         a member of the group is killed, another comes
cut off             nothing reaches a client, or comes from it, for so long that its group may go on without it

Where the tree is a program of its own (`tree_apart`), these, too:

tree killed         and started again on its journal; sessions go on
tree cut off        nothing reaches the tree, or comes from it, perhaps until the broker's session has ended"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.testing.simulation.clients import BrokerProgram, SimulatedMember, Writer, create_topic, read_everything
from jesenska.testing.simulation.disk import JOURNAL_FILES, SimulatedFiles
from jesenska.testing.simulation.history import History, ViolationError
from jesenska.testing.simulation.network import SimulatedNetwork
from jesenska.testing.simulation.process import Process
from jesenska.testing.simulation.tree import TREE_HOST, TREE_PORT, TreeProgram
from jesenska.testing.simulation.world import World

TOPIC, PARTITIONS = "t", 3
HOST = "broker-0"
BOOTSTRAP = f"{HOST}:9092"
SECONDS, FAULTS = 60.0, 5
#: Seconds of the world's clock in which everybody must be done when nothing fails any more.
_REST_SECONDS = 400.0
#: Where Linux keeps files in memory: what a simulated machine syncs need not be on the real disk.
_IN_MEMORY = "/dev/shm"  # noqa: S108
_SETTINGS = {
    "broker.id": "0",
    "listeners": f"PLAINTEXT://{HOST}:9092",
    "log.segment.bytes": "20000",
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "512",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "20000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "auto.create.topics.enable": "false",
}
#: Where the tree is a program of its own.
_TREE_APART = {"zookeeper.connect": f"{TREE_HOST}:{TREE_PORT}", "zookeeper.session.timeout.ms": "3000"}
#: A broker that starts may need so long to find out that the tree is there again.
_TREE_BACK_SECONDS = 5.0


class Simulation:
    """One seed's run. `run` raises ViolationError; `world.trace` says what happened."""

    def __init__(self, seed: int, directory: Path, *, seconds: float = SECONDS, faults: int = FAULTS, tree_apart: bool = False) -> None:
        self.world = World(seed)
        self.history = History()
        self._directory = directory
        self._seconds = seconds
        self._fault_count = faults
        self._network = SimulatedNetwork(self.world)
        self._incarnation = self._tree_incarnation = 0
        self._running: BrokerProgram | None = None
        self._tree: TreeProgram | None = None
        self._tree_apart = tree_apart
        self._settings = _SETTINGS | (_TREE_APART if tree_apart else {})
        #: Until when a broker may fail to start, since the tree is out of reach.
        self._tree_gone_until = -1.0
        #: The broker's machine: its disk, where that is, and how far its wall clock is off.
        self._files = SimulatedFiles(self.world.random)
        self._data = directory / "data-0"
        self._clock_offset_ms = 0
        self._tasks: list[tuple[Process, asyncio.Task[Any]]] = []
        self._writers: list[Writer] = []
        self._members: list[SimulatedMember] = []
        self._names = 0
        #: Every answer waits for its sync: then a machine may go down at any time.
        self._synced = self.world.random.random() < 0.5

    @property
    def _broker(self) -> BrokerProgram:
        assert self._running is not None
        return self._running

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        world = self.world
        world.tell("simulation", f"seed {world.seed}, {'a sync before each answer' if self._synced else 'no sync before an answer'}")
        if self._tree_apart:
            self._start_tree(self._directory / "tree")
            self._go_on(self._tree_is_ready, 10.0, "the tree does not start")
        self._start_broker()
        settings = {"flush.messages": "1"} if self._synced else {}
        maker = Process(world, self._network, "admin")
        made = self._start(maker, create_topic(maker, BOOTSTRAP, TOPIC, PARTITIONS, settings))
        self._go_on(made.done, 60.0, "the topic is not made")
        maker.end()
        for _ in range(2):
            self._new_writer()
            self._new_member()
        self._watch()
        for _ in range(self._fault_count):
            world.at(world.random.uniform(2.0, self._seconds - 5.0), self._fault)
        world.run_until(lambda: False, self._seconds)
        self._judge_tasks()
        self._end()

    def _end(self) -> None:
        world = self.world
        world.tell("simulation", "no more faults; everybody comes to an end")
        self._heal()
        for writer in self._writers:
            writer.is_stopping = True
        writing = [task for process, task in self._tasks if process.name.startswith("writer")]
        self._go_on(lambda: all(task.done() for task in writing), _REST_SECONDS, "a producer does not come to an end")
        self._go_on(lambda: self.history.all_is_read, _REST_SECONDS, "the group does not read every acknowledged record")
        for member in self._members:
            member.is_stopping = True
        self._go_on(lambda: all(task.done() for process, task in self._tasks if not process.is_dead), _REST_SECONDS, "a member does not come to an end")
        reader = Process(world, self._network, "last-reader")
        reading = self._start(reader, read_everything(reader, self.history, BOOTSTRAP, TOPIC, PARTITIONS))
        self._go_on(reading.done, _REST_SECONDS, "the last reader does not come to an end")
        self._judge_tasks()
        ends = reading.result()
        lost = sorted(place for place in self.history.acknowledged if place.offset >= ends[place.partition])
        if lost:
            raise ViolationError(
                f"{len(lost)} acknowledged records are not there at the end, the first of them at offset {lost[0].offset} of {lost[0].partition}"
            )
        world.tell("simulation", f"{len(self.history.acknowledged)} acknowledged records are there, the logs end at {list(ends.values())}")
        stopping = self._broker.broker
        assert stopping is not None
        stopped = self._start(self._broker.process, stopping.stop())
        self._go_on(stopped.done, 60.0, "the broker does not stop")
        self._judge_tasks()
        world.tell("simulation", f"the dice stand at {world.random.getrandbits(64):016x}")

    def close(self) -> None:
        """Ends everybody and gives back what is open."""
        for process, _ in self._tasks:
            process.end()
        if self._running is not None:
            self._running.end()
        if self._tree is not None:
            self._tree.process.end()
        self._files.leave()

    def _go_on(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        if not self.world.run_until(done, self.world.now + seconds):
            self._judge_tasks()
            raise ViolationError(f"{otherwise} within {seconds:g} s")

    def _start(self, process: Process, program: Any) -> asyncio.Task[Any]:
        task = process.start(program)
        self._tasks.append((process, task))
        return task

    def _judge_tasks(self) -> None:
        """What a program raised, and what its event loop was told of, is a failure."""
        for process, task in self._tasks:
            if not process.is_dead and task.done() and not task.cancelled():
                error = task.exception()
                if error is not None:
                    raise error
            for context in process.loop.failures:
                error = context.get("exception")
                if error is not None:
                    raise error
                raise ViolationError(f"{process.name}: {context.get('message')}")

    def _watch(self) -> None:
        """Looks at what can be seen of the broker, now and then."""
        for key, offset in self._broker.high_watermarks().items():
            self.history.high_watermark(self._broker, key, offset)
        self._judge_tasks()
        self.world.after(0.05, self._watch)

    # --- programs ----------------------------------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}"

    def _new_writer(self) -> None:
        process = Process(self.world, self._network, self._name("writer"))
        writer = Writer(process, self.history, BOOTSTRAP, TOPIC, PARTITIONS)
        self._writers.append(writer)
        self._start(process, writer.run())

    def _new_member(self) -> None:
        process = Process(self.world, self._network, self._name("member"))
        member = SimulatedMember(process, self.history, BOOTSTRAP, TOPIC)
        self._members.append(member)
        self._start(process, member.run())

    def _start_broker(self) -> None:
        process = Process(self.world, self._network, f"broker.{self._incarnation}", self._files)
        process.clock.offset_ms = self._clock_offset_ms
        self._running = BrokerProgram(process, self._data, self._settings)
        self._start(process, self._run_broker(self._running))

    async def _run_broker(self, program: BrokerProgram) -> None:
        began = self.world.now
        try:
            await program.run()
        except (JesenskaError, OSError) as error:
            if not self._files.is_full and self._tree_gone_until < began:
                raise ViolationError(f"the broker does not start: {error}") from error
            self.world.tell(program.process.name, "cannot start while the disk is full" if self._files.is_full else "cannot start without the tree")
            if program.broker is not None:
                await program.broker.stop()
            self._incarnation += 1
            self._later(0.0, self._again)

    def _start_tree(self, data: Path) -> None:
        process = Process(self.world, self._network, f"tree.{self._tree_incarnation}")
        self._tree = TreeProgram(process, data)
        self._start(process, self._tree.run())

    def _tree_is_ready(self) -> bool:
        return self._tree is not None and self._tree.is_ready

    # --- faults ------------------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._stop,
            self._cut,
            self._cut,
            self._slow_disk,
            self._full_disk,
            self._set_clock,
            self._member_gone,
            self._cut_off,
        ]
        if self._synced:
            kinds += [self._power_loss] * 3
        if self._tree_apart:
            kinds += [self._tree_killed] * 3 + [self._tree_cut_off] * 3
        self.world.random.choice(kinds)()

    def _kill(self) -> None:
        self.world.tell("fault", "the broker is killed")
        self._broker.end()
        target = self._next_data()
        self._come_up_later(target, self._files.after_kill(self._data, target))

    def _power_loss(self) -> None:
        self.world.tell("fault", "the broker's machine loses its power")
        self.history.power_was_lost()
        self._broker.end()
        target = self._next_data()
        self._files.after_crash(self._data, target, self.world.random)
        # The tree's journal syncs by itself, past the files that can be watched.
        for name in JOURNAL_FILES:
            if (self._data / name).exists():
                shutil.copyfile(self._data / name, target / name)
        files = SimulatedFiles(self.world.random)
        files.came_up_with(target)
        self._come_up_later(target, files)

    def _next_data(self) -> Path:
        self._incarnation += 1
        return self._directory / f"data-{self._incarnation}"

    def _come_up_later(self, data: Path, files: SimulatedFiles) -> None:
        self._files.leave()
        self._data, self._files = data, files
        self._later(self.world.random.uniform(0.1, 5.0), self._start_broker)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        """Has something happen to the broker, unless the next one has been begun by then."""
        incarnation = self._incarnation

        def happen() -> None:
            if incarnation == self._incarnation:
                what()

        self.world.after(seconds, happen)

    def _stop(self) -> None:
        if not self._broker.is_ready or self._broker.process.is_dead:
            return
        self.world.tell("fault", "the broker is stopped in order")
        process, program = self._broker.process, self._broker
        assert program.broker is not None
        program.is_ready = False
        self._incarnation += 1
        incarnation = self._incarnation
        stopping = self._start(process, program.broker.stop())

        def stopped(task: asyncio.Task[Any]) -> None:
            if incarnation == self._incarnation and not process.is_dead:
                self._later(0.0, self._again)

        stopping.add_done_callback(stopped)

    def _again(self) -> None:
        """The broker's process has come to its end by itself; the next one begins on the same disk."""
        self._broker.end()
        self._come_up_later(self._data, self._files.successor())

    def _cut(self) -> None:
        live = self._network.live()
        chosen = live if self.world.random.random() < 0.3 else [sock for sock in live if self.world.random.random() < 0.5]
        self.world.tell("fault", f"{len(chosen)} of {len(live)} connections are cut")
        for sock in chosen:
            self._network.reset(sock)

    def _slow_disk(self) -> None:
        process = self._broker.process
        process.slowness = self.world.random.choice((100.0, 1000.0))
        self.world.tell("fault", f"the disk takes {process.slowness:g} times as long")
        self.world.after(self.world.random.uniform(1.0, 5.0), lambda: self._fast_disk(process))

    def _fast_disk(self, process: Process) -> None:
        process.slowness = 1.0

    def _full_disk(self) -> None:
        self._files.is_full = True
        self.world.tell("fault", "the disk is full")
        self.world.after(self.world.random.uniform(0.5, 4.0), self._make_room)

    def _make_room(self) -> None:
        self._files.is_full = False
        self.world.tell("fault", "there is room on the disk again")

    def _set_clock(self) -> None:
        change_ms = self.world.random.choice((-3_600_000, -1000, 1000, 60_000))
        self._clock_offset_ms += change_ms
        self._broker.process.clock.offset_ms = self._clock_offset_ms
        self.world.tell("fault", f"the broker's clock is set by {change_ms / 1000:g} s")

    def _member_gone(self) -> None:
        alive = [member for member in self._members if not member.process.is_dead]
        gone = self.world.random.choice(alive)
        self.world.tell("fault", f"{gone.process.name} is killed")
        gone.process.end()
        self._new_member()

    def _cut_off(self) -> None:
        clients = [process for process in (*(one.process for one in self._writers), *(one.process for one in self._members)) if not process.is_dead]
        chosen, seconds = self.world.random.choice(clients), self.world.random.uniform(1.0, 12.0)
        self.world.tell("fault", f"{chosen.name} is cut off for {seconds:.1f} s")
        self._network.cut_off(chosen, seconds)

    def _tree_killed(self) -> None:
        tree = self._tree
        if tree is None or not tree.is_ready:
            return
        self.world.tell("fault", "the tree is killed")
        self._tree_incarnation += 1
        target = self._directory / f"tree-{self._tree_incarnation}"
        tree.killed(target)
        seconds = self.world.random.uniform(0.1, 8.0)
        self._tree_is_gone_for(seconds)
        self.world.after(seconds, lambda: self._start_tree(target))

    def _tree_is_gone_for(self, seconds: float) -> None:
        self._tree_gone_until = max(self._tree_gone_until, self.world.now + seconds + _TREE_BACK_SECONDS)

    def _tree_cut_off(self) -> None:
        if self._tree is None or not self._tree.is_ready:
            return
        seconds = self.world.random.uniform(0.5, 12.0)
        self.world.tell("fault", f"the tree is cut off for {seconds:.1f} s")
        self._tree_is_gone_for(seconds)
        self._network.cut_off(self._tree.process, seconds)

    def _heal(self) -> None:
        self._files.is_full = False
        self._broker.process.slowness = 1.0


@contextmanager
def simulation(seed: int, *, seconds: float = SECONDS, faults: int = FAULTS, tree_apart: bool = False) -> Iterator[Simulation]:
    """A simulation in a directory of its own, which goes with it."""
    directory = Path(tempfile.mkdtemp(prefix="jesenska-simulation-", dir=_IN_MEMORY if Path(_IN_MEMORY).is_dir() else None))
    made = Simulation(seed, directory, seconds=seconds, faults=faults, tree_apart=tree_apart)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)
