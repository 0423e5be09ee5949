"""Disasters of brokers and of their metadata tree (ZooKeeper's nodes), as operators and broken disks cause them. Every
seventh seed has disasters, one at a time, in addition to the other faults.

disk replaced     a broker is stopped or killed, and starts on an empty disk, or on a copy of its old disk.
                  The old disk may be mounted again later
log cut           a broker is stopped in an orderly way, and the end of one of its logs is missing when it starts
last one's disk   a broker that is the only in-sync replica starts on an empty disk, or with the end of a log missing.
                  It must not lead then; some time later it is started with all its data
wrong chroot      a broker is started with another path in zookeeper.connect, where there is no tree: it must refuse to
                  start, and must not create anything there
empty metadata    a lone broker is started with an empty metadata file: it must refuse to start. Then it gets its file
                  back
tree rebuilt      all brokers are stopped or killed, and the tree is lost. It is rebuilt from the brokers' directories,
                  with or without an older backup. Topics that were created since must exist, and no acknowledged
                  record may be lost
older tree        as in "tree rebuilt", but first an older copy of the tree's files is used. If the logs of all
                  brokers have newer leader epochs, each broker must refuse this tree

A disk is replaced permanently, or a log cut, only while all replicas are in sync and another broker stays in sync.
Otherwise records that exist on one broker only would be lost. Disasters have their own random number generator, so
that the events of seeds without disasters stay the same."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Protocol

from jesenska.interchange.directory_inventory import take
from jesenska.interchange.inventory import Inventory
from jesenska.interchange.journal_file import read_tree_file, write_tree
from jesenska.interchange.kafka_directories import locked
from jesenska.interchange.rebuilding import rebuild
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.meta_properties import FILE_NAME as META_PROPERTIES
from jesenska.metadata import paths
from jesenska.metadata.journal import METADATA_FILE
from jesenska.metadata.nodes import PartitionStateNode, TopicNode
from jesenska.testing.simulation.machine.host import BrokerHost, Disk
from jesenska.testing.simulation.machine.tree import TREE_HOST, TREE_PORT, TreeProgram
from jesenska.testing.simulation.machine.world import World
from jesenska.testing.simulation.watches.cluster_watch import ClusterWatch
from jesenska.testing.simulation.watches.history import ViolationError

#: One of this many seeds has disasters.
_DISASTROUS: Final = 7
_WRONG_CHROOT: Final = "/kafka-of-others"
#: The name of the topic that is created when the backup is made.
MADE_SINCE: Final = "made-since"
#: The seconds for which a disaster waits for a condition, and the seconds between two checks.
_PATIENCE_SECONDS, _LOOK_SECONDS = 25.0, 0.05
#: A broker that has not stopped after this many seconds is killed.
_STOP_SECONDS = 20.0
#: The seconds for which all other brokers are paused, so that one broker becomes the only in-sync replica.
_STILL_SECONDS = 9.0
#: The seconds within which brokers are stopped one after the other, so that the last broker is the only in-sync
#: replica.
_ONE_BY_ONE_SECONDS = 8.0
#: The seconds within which all brokers must have refused an older tree.
_REFUSE_SECONDS = 60.0


class Striking(Protocol):
    """The simulation as disasters use it: its brokers, and the methods that apply faults."""

    world: World
    watch: ClusterWatch

    @property
    def hosts(self) -> Sequence[BrokerHost]: ...

    @property
    def has_tree_apart(self) -> bool: ...

    @property
    def tree(self) -> TreeProgram | None: ...

    @property
    def directory(self) -> Path: ...

    @property
    def churns(self) -> bool: ...

    @property
    def compacts(self) -> bool: ...

    def later(self, seconds: float, what: Callable[[], object]) -> None: ...

    def is_calm(self) -> bool: ...

    def may_be_hit(self, host: BrokerHost) -> bool: ...

    def spare(self, host: BrokerHost) -> None: ...

    def pause(self, host: BrokerHost, seconds: float) -> bool: ...

    def met(self, host: BrokerHost, fault: str) -> None: ...

    def replace_tree(self, data: Path) -> None: ...

    def make_topic(self, name: str) -> asyncio.Task[None]: ...


class Disasters:
    """The disasters of one simulation. `first` is the lowest seed with disasters."""

    def __init__(self, simulation: Striking, seed: int, first: int) -> None:
        self._simulation = simulation
        self._chance = Random(f"disasters of {seed}")  # noqa: S311
        self._are_there = seed % _DISASTROUS == first
        #: True while all brokers are down, or are about to go down. Then no other fault may start a broker.
        self.holds_all = False
        #: True while a broker waits to get its disk or its log back.
        self._is_busy = False
        #: The directory with an older copy of the tree's files; None before the backup.
        self._backup: Path | None = None
        #: The task that creates a topic when the backup is made.
        self._making: asyncio.Task[None] | None = None
        #: The number of directories that were made for disks and trees.
        self._directories = 0
        #: The disks that were replaced.
        self._kept: list[Disk] = []

    def begin(self, seconds: float) -> None:
        """Plans the disasters. It is called when the clients have begun; the simulation then runs for `seconds`."""
        if not self._are_there:
            return
        simulation, uniform = self._simulation, self._chance.uniform
        if simulation.tree is not None:
            simulation.world.after(uniform(0.0, seconds / 4), self._back_up)
        for _ in range(self._chance.choice((1, 1, 2))):
            simulation.world.after(uniform(2.0, seconds - 5.0), self._strike)

    def _strike(self) -> None:
        simulation = self._simulation
        if self.is_under_way:
            return
        if len(simulation.hosts) == 1:
            if not simulation.has_tree_apart:
                self._empty_metadata()
            return
        kinds: list[Callable[[], None]] = [self._disk_replaced, self._log_cut, self._wrong_chroot]
        # An older disk may contain a topic that was deleted and created again since. A broker would rightly not use
        # that data, so this disaster is left out.
        if not simulation.churns:
            kinds += [self._last_ones_disk]
        # A rebuilt tree would contain the topic of `churn` although it was deleted. Without a backup, the settings of
        # the compacted topic would be lost.
        if not (simulation.churns or (simulation.compacts and self._backup is None)):
            kinds += [self._tree_lost, self._tree_lost]
        self._chance.choice(kinds)()

    def close(self) -> None:
        """Closes the files of replaced disks."""
        for _, files in self._kept:
            files.leave()

    @property
    def is_under_way(self) -> bool:
        """Returns True while a disaster has not ended."""
        return self.holds_all or self._is_busy

    def judge(self) -> None:
        """Raises ViolationError if a broker does not know the topic that was created when the backup was made. It is
        called after all faults, when all brokers are in sync."""
        for host in self._simulation.hosts if self._making is not None and self._making.done() else ():
            broker = host.program.broker
            if broker is None or MADE_SINCE not in broker.view.topics:
                raise ViolationError(f"{host.name} does not know the topic {MADE_SINCE}, which was made")

    def _tell(self, what: str) -> None:
        self._simulation.world.tell("fault", what)

    def _when(self, is_so: Callable[[], bool], what: Callable[[], object]) -> None:
        """Calls `what` as soon as `is_so` returns True. If this takes longer than 25 s, `what` is not called."""
        simulation = self._simulation
        until = simulation.world.now + _PATIENCE_SECONDS

        def look() -> None:
            if is_so():
                what()
            elif simulation.world.now < until:
                simulation.later(_LOOK_SECONDS, look)

        look()

    # --- disks -------------------------------------------------------------------------------------------------------

    def _others_stay(self, host: BrokerHost) -> bool:
        """Returns True if the broker may lose its data now, since the other brokers have all records. Then it also
        protects one of the other brokers from faults for a while."""
        simulation = self._simulation
        if not (
            simulation.is_calm() and host.is_up and not host.program.process.is_paused and simulation.may_be_hit(host)
        ):
            return False
        simulation.spare(self._chance.choice([other for other in simulation.hosts if other is not host]))
        return True

    def _has_company(self, host: BrokerHost) -> bool:
        """Returns True if the broker is not the only in-sync replica of any partition."""
        return all(
            host.number not in state.isr or len(state.isr) > 1 for state in self._simulation.watch.states.values()
        )

    def _disk_replaced(self) -> None:
        simulation, host = self._simulation, self._chance.choice(self._simulation.hosts)
        is_stopped, is_back = self._chance.random() < 0.5, self._chance.random() < 0.4 and not simulation.churns
        is_copied = is_back and self._chance.random() < 0.5

        def replace() -> None:
            if not self._has_company(host):
                self._tell(f"{host.name} keeps its disk, as nobody else is in sync")
                host.mount((host.data, host.files.successor()))
                return
            self._tell(f"{host.name} comes up on {'a copy of its disk' if is_copied else 'an empty disk'}")
            had = host.replace_disk(_as_it_is) if is_copied else host.replace_disk()
            self._kept.append(had)
            if is_back:
                self._mount_later(host, had)

        def strike() -> None:
            if is_stopped:
                simulation.met(host, "stopped")
                self._tell(f"{host.name} is stopped in order, and its disk is replaced")
                host.stop(replace)
            else:
                simulation.met(host, "killed")
                replace()

        self._when(lambda: self._others_stay(host), strike)

    def _mount_later(self, host: BrokerHost, had: Disk) -> None:
        program = host.program

        def mount() -> None:
            self._tell(f"{host.name} is killed, and comes up on the disk that it had")
            host.mount(had)

        def look() -> None:
            self._when(lambda: host.program is not program and self._others_stay(host), mount)

        self._simulation.later(self._chance.uniform(1.0, 10.0), look)

    def _log_cut(self) -> None:
        simulation, host = self._simulation, self._chance.choice(self._simulation.hosts)

        def cut() -> None:
            if self._has_company(host):
                self._cut_a_log(host, host.data)
            host.mount((host.data, host.files.successor()))

        def strike() -> None:
            simulation.met(host, "stopped")
            self._tell(f"{host.name} is stopped in order")
            host.stop(cut)

        self._when(lambda: self._others_stay(host), strike)

    def _cut_a_log(self, host: BrokerHost, data: Path) -> str | None:
        """Truncates a log of the broker. Returns the partition of this log, or None if all logs are empty."""
        logs = sorted(path for path in data.glob("*-*/*.log") if path.stat().st_size)
        if not logs:
            return None
        chosen = self._chance.choice(logs).parent
        log = max(path for path in logs if path.parent == chosen)
        self._tell(f"{host.name} has lost the end of {chosen.name}")
        with log.open("r+b") as file:
            file.truncate(self._chance.choice((0, log.stat().st_size // 2)))
        return chosen.name

    def _last_ones_disk(self) -> None:
        simulation, chance = self._simulation, self._chance
        host, loses_all = chance.choice(simulation.hosts), chance.random() < 0.5

        def strike() -> None:
            if self.is_under_way:
                return
            if loses_all:
                simulation.met(host, "killed")
                self._replace_last_disk(host, True)
            else:
                simulation.met(host, "stopped")
                host.stop(lambda: self._replace_last_disk(host, False))

        def begin() -> None:
            for other in simulation.hosts:
                if other is not host:
                    simulation.pause(other, _STILL_SECONDS)
            self._when(is_alone, strike)

        def is_alone() -> bool:
            states = simulation.watch.states.values()
            return (
                host.is_up
                and not host.program.process.is_paused
                and all(state.isr == (host.number,) for state in states)
            )

        self._when(lambda: simulation.is_calm() and simulation.tree is not None, begin)

    def _replace_last_disk(self, host: BrokerHost, loses_all: bool) -> None:
        """Starts the broker with an empty disk, or with one log truncated. Later it gets its old data back."""
        if self.is_under_way:
            # Another disaster began while the broker was stopping, so this disaster is not continued.
            host.mount((host.data, host.files.successor()))
            return
        self._is_busy = True
        if loses_all:
            self._tell(f"{host.name}, alone in sync, comes up on an empty disk")
            emptied = host.replace_disk()
            self._simulation.world.after(self._chance.uniform(8.0, 15.0), lambda: self._mount_again(host, emptied))
            return
        names: list[str | None] = []
        had = host.replace_disk(lambda data: names.append(self._cut_a_log(host, data)))
        self._simulation.world.after(self._chance.uniform(8.0, 15.0), lambda: self._put_back(host, had, names[0]))

    def _mount_again(self, host: BrokerHost, had: Disk) -> None:
        self._tell(f"{host.name} is killed, and comes up on the disk that it had")
        host.mount(had)
        self._is_busy = False

    def _put_back(self, host: BrokerHost, had: Disk, name: str | None) -> None:
        """Starts the broker with the complete log of the partition `name`. The logs of the broker's other partitions
        have got new records since then, so they are kept as they are."""

        def fill(data: Path) -> None:
            if name is not None:
                shutil.rmtree(data / name)
                shutil.copytree(had[0] / name, data / name)

        self._tell(f"{host.name} is killed, and comes up with the whole of {name}")
        self._kept += [had, host.replace_disk(fill)]
        self._is_busy = False

    # --- starts that must fail ---------------------------------------------------------------------------------------

    def _wrong_chroot(self) -> None:
        simulation, host = self._simulation, self._chance.choice(self._simulation.hosts)

        def judge(error: Exception | None) -> str | None:
            if error is None:
                raise ViolationError(f"{host.name} starts with a tree that knows no cluster, and its directory has one")
            tree = simulation.tree
            if tree is not None and tree.tree is not None and tree.tree.tree.find(_WRONG_CHROOT) is not None:
                raise ViolationError(f"{host.name} has made {_WRONG_CHROOT}, and its cluster is elsewhere")
            return "with a wrong chroot" if "knows no cluster" in str(error) else None

        def strike() -> None:
            simulation.met(host, "killed")
            self._tell(f"{host.name} is killed, and started with the chroot {_WRONG_CHROOT}")
            host.try_once({"zookeeper.connect": f"{TREE_HOST}:{TREE_PORT}{_WRONG_CHROOT}"}, judge)
            host.kill()

        self._when(
            lambda: host.is_up and simulation.may_be_hit(host) and (host.data / META_PROPERTIES).exists(), strike
        )

    def _empty_metadata(self) -> None:
        """Starts a lone broker with an empty metadata file; the broker must refuse to start. Then the broker gets its
        file back."""
        host = self._simulation.hosts[0]

        def strike() -> None:
            self._tell("the broker is killed, and its metadata file has no bytes when it starts")
            host.go_down()
            path = host.data / METADATA_FILE
            aside = self._new_directory()
            kept = [file.rename(aside / file.name) for file in sorted(host.data.glob(f"{METADATA_FILE}*"))]
            path.touch()

            def judge(error: Exception | None) -> str | None:
                if error is None:
                    raise ViolationError(
                        "the broker starts with a metadata file of no bytes, and its directory holds partitions"
                    )
                for file in host.data.glob(f"{METADATA_FILE}*"):
                    file.unlink()
                for file in kept:
                    file.rename(host.data / file.name)
                return "with a metadata file of no bytes"

            host.try_once({}, judge)
            host.come_up()

        self._when(lambda: host.is_up and (host.data / META_PROPERTIES).exists(), strike)

    # --- the tree ----------------------------------------------------------------------------------------------------

    def _back_up(self) -> None:
        simulation = self._simulation

        def copy() -> None:
            assert simulation.tree is not None
            self._backup = simulation.directory / "tree-backup"
            simulation.tree.copy(self._backup)
            self._making = simulation.make_topic(MADE_SINCE)

        self._when(lambda: simulation.tree is not None, copy)

    def _tree_lost(self) -> None:
        simulation, chance = self._simulation, self._chance
        is_at_once = chance.random() < 0.5
        moments = [0.0 if is_at_once else chance.uniform(0.0, _ONE_BY_ONE_SECONDS) for _ in simulation.hosts]

        def go_down(host: BrokerHost) -> None:
            if host.is_up and not host.program.process.is_paused and chance.random() < 0.5:
                self._tell(f"{host.name} is stopped in order, and stays down")
                host.stop(host.go_down)
            else:
                self._tell(f"{host.name} is killed, and stays down")
                host.go_down()

        def strike() -> None:
            self.holds_all = True
            for host, moment in zip(simulation.hosts, moments, strict=True):
                simulation.world.after(moment, partial(go_down, host))
            simulation.world.after(max(moments), lambda: self._when_all_are_down(simulation.world.now + _STOP_SECONDS))

        # A rebuilt tree contains only replicas that exist on a disk. So all replicas must exist before the tree is
        # rebuilt.
        self._when(lambda: simulation.tree is not None and self._all_have_logs(), strike)

    def _all_have_logs(self) -> bool:
        names = {f"{topic}-{number}" for topic, number in self._simulation.watch.states}
        return all((host.data / name).is_dir() for host in self._simulation.hosts for name in names)

    def _when_all_are_down(self, until: float) -> None:
        simulation = self._simulation
        up = [host for host in simulation.hosts if not host.program.process.is_dead]
        if up and simulation.world.now < until:
            simulation.world.after(_LOOK_SECONDS, lambda: self._when_all_are_down(until))
            return
        for host in up:
            host.go_down()
        simulation.world.after(0.0, self._put_tree)

    def _put_tree(self) -> None:
        backup = self._backup
        if (
            backup is not None
            and self._chance.random() < 0.5
            and all(_is_ahead(inventory, backup) for inventory in self._inventories())
        ):
            self._put_older_tree(backup)
        else:
            self._build_tree()

    def _put_older_tree(self, backup: Path) -> None:
        simulation, refused = self._simulation, set[str]()
        self._tell("the tree's files are put back as they were when the backup was made")
        self._begin_tree_of(backup)

        def try_it(host: BrokerHost) -> None:
            def judge(error: Exception | None) -> str | None:
                if error is None:
                    raise ViolationError(f"{host.name} starts with a tree that is older than its logs")
                if "is newer than the tree" not in str(error):
                    return None
                refused.add(host.name)
                try_it(host)
                return "with a tree that is older than its logs"

            host.try_once({}, judge)

        for host in simulation.hosts:
            try_it(host)
            host.come_up()
        self._when_all_have_refused(refused, simulation.world.now + _REFUSE_SECONDS)

    def _when_all_have_refused(self, refused: set[str], until: float) -> None:
        simulation = self._simulation
        if len(refused) < len(simulation.hosts):
            if simulation.world.now >= until:
                raise ViolationError(f"of the brokers with an older tree only {sorted(refused)} have refused it")
            simulation.world.after(_LOOK_SECONDS, lambda: self._when_all_have_refused(refused, until))
            return
        for host in simulation.hosts:
            host.go_down()
        self._build_tree()

    def _build_tree(self) -> None:
        simulation = self._simulation
        target = self._new_directory()
        self._rebuild(target)
        simulation.watch.tree_was_replaced()
        simulation.replace_tree(target)
        self.holds_all = False
        for host in simulation.hosts:
            host.come_up()

    def _begin_tree_of(self, backup: Path) -> None:
        target = self._new_directory()
        for file in sorted(backup.iterdir()):
            shutil.copyfile(file, target / file.name)
        self._simulation.watch.tree_was_replaced(is_older=True)
        self._simulation.replace_tree(target)

    def _new_directory(self) -> Path:
        """Returns a new, empty directory."""
        self._directories += 1
        target = self._simulation.directory / f"of-disaster-{self._directories}"
        target.mkdir()
        return target

    def _rebuild(self, target: Path) -> None:
        """Rebuilds the tree as `jesenska tree rebuild` does, into the directory `target`."""
        backup = None if self._backup is None else read_tree_file(self._backup / METADATA_FILE)
        built = rebuild(
            self._inventories(), self._simulation.world.new_uuid, backup=None if backup is None else backup.nodes
        )
        write_tree(
            target,
            built.nodes,
            0 if backup is None else backup.last_zxid,
            self._simulation.world.wall_ms(),
            FileLayer(),
        )
        of_a_backup = "nothing else" if backup is None else "a backup"
        self._tell(
            f"the tree is built anew from all directories and {of_a_backup}: {built.topics} topics, "
            f"{built.partitions} partitions"
        )

    def _inventories(self) -> list[Inventory]:
        """Returns the inventories of all brokers' directories. All brokers must have ended."""
        files, found = FileLayer(), []
        for host in self._simulation.hosts:
            with locked([host.data], files) as held:
                found.append(take(held, files))
        return found


def _as_it_is(data: Path) -> None:
    """Does nothing, so that the copy of a disk stays unchanged."""


def _is_ahead(inventory: Inventory, backup: Path) -> bool:
    """Returns True if a broker has records of a newer leader epoch than the backup contains, in a topic that is both
    on the broker and in the backup."""
    nodes = read_tree_file(backup / METADATA_FILE).nodes
    for (topic, number), replica in inventory.replicas.items():
        state = nodes.get(paths.partition_state(topic, number))
        is_same = (
            state is not None and TopicNode.decode(nodes[paths.topic(topic)].data or b"").topic_id == replica.topic_id
        )
        if (
            state is not None
            and is_same
            and replica.last_epoch > PartitionStateNode.decode(state.data or b"").leader_epoch
        ):
            return True
    return False
