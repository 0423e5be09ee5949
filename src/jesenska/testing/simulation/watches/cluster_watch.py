"""Checks invariants of a cluster's brokers that must be true under any fault. The brokers share a metadata tree
(ZooKeeper's nodes). The checks are made regularly while the brokers run, before a broker's process ends, and very
often just after a write to the tree.

one leader        all brokers that know a leader epoch of a partition know the same leader for it
epochs go up      a broker accepts no older leader epoch or controller epoch than before. Only the newest controller
                  writes a new leader epoch to the tree, and the new leader was in sync
in order          a broker learns of controllers in the order in which brokers were the controller
this life         a registered broker does not learn of a leader epoch that had ended before its registration
one controller    a broker that runs as the controller knows itself as the controller
in sync           a broker in the tree's ISR that knows the leader epoch has all records up to the high watermark
high watermark    no replica's high watermark goes back while its broker runs, or is above the highest high watermark
                  of a leader
known             a leader does not report to clients a lower high watermark than a leader has reported before
counted           a leader counts only fetches of followers that know its leader epoch
the same logs     offsets below all high watermarks have the same leader epochs on all brokers
acknowledged      an acknowledged record is below a leader's high watermark, and on min.insync.replicas brokers
groups            a broker coordinates only the groups of partitions that it leads

The checks read the brokers' memory and send no requests. They use no random numbers, so they do not change a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC, partition_for
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import ControllerNode, PartitionStateNode, decode_controller_epoch
from jesenska.metadata.tree_operations import DataSet, NodeCreated, NodeDeleted, Transaction
from jesenska.testing.simulation.churn import CHURNED
from jesenska.testing.simulation.clients import GROUP
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.machine.world import World
from jesenska.testing.simulation.watches.history import ViolationError

#: The seconds between two checks after a write to the tree: the first number at first, the second number later.
_CLOSE_SECONDS, _LATER_SECONDS = 0.0005, 0.003
#: The times in seconds for which checks are frequent: the first phase, the shortest time, and the longest time. The
#: checks stay frequent for the longest time if not all followers have fetched in the new leader epoch.
_FIRST_AGE, _LEAST_AGE, _MOST_AGE = 0.005, 0.03, 0.6
#: The seconds that a broker may need to stop coordinating groups, for example while its log is being truncated.
_GIVE_UP_SECONDS = 8.0
_TOPICS, _STATE, _BROKER = paths.TOPICS + "/", "/state", paths.BROKER_IDS + "/"


class _Seen:
    """The facts that earlier checks have recorded about one broker process."""

    __slots__ = ("controller", "controller_epoch", "program", "replicas", "strange")

    def __init__(self, program: object) -> None:
        self.program = program
        #: The replicas at the last check.
        self.replicas: dict[TopicPartition, _Found] = {}
        self.controller_epoch = -1
        #: The position, in the list of all controllers, of the controller that the broker reports to clients.
        self.controller = 0
        #: The time since which the broker has coordinated the groups of a partition that it does not lead. The key is
        #: the partition's number.
        self.strange: dict[int, float] = {}


class _Found(NamedTuple):
    """A replica of a partition on one broker, with the facts that are checked."""

    number: int
    partition: Any
    log: Any
    leader_epoch: int
    serves: bool
    high_watermark: int
    end: int
    broker_epoch: int


#: The running brokers: the number of each broker, the broker, and the facts that were recorded about it.
_Running = list[tuple[int, Broker, _Seen]]


class ClusterWatch:
    """Checks the cluster of one simulation."""

    def __init__(self, world: World, hosts: Sequence[BrokerHost]) -> None:
        self.world = world
        self._hosts = hosts
        #: The setting min.insync.replicas of all topics.
        self.min_in_sync = 1
        #: True if topics are compacted. Compaction may remove the first records of a leader epoch. A replica that then
        #: fetches the remaining records of the epoch records a later start offset of the epoch.
        self.compacts = False
        #: True if partitions move to other brokers. A broker then deletes its log, and may get the partition again.
        self.has_moves = False
        #: The partition states in the tree.
        self.states: dict[TopicPartition, PartitionStateNode] = {}
        #: Partitions whose leader has removed all other replicas from the ISR itself.
        self.shrunk_by_leader: set[TopicPartition] = set()
        self.controller_id = -1
        #: True if the next metadata tree is an older copy.
        self._is_older = False
        self._controller_epoch = 0
        #: All controllers so far, in order.
        self._controllers: list[int] = []
        #: For each partition, the zxids (ZooKeeper's transaction ids) of the writes of new leader epochs.
        self._began: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        #: The highest high watermark that a leader has had.
        self._committed: dict[TopicPartition, int] = {}
        #: For each partition and broker: the largest log end offset of the replica, and the newest leader epoch that
        #: the broker has known.
        self._ends: dict[TopicPartition, dict[int, int]] = {}
        self._known: dict[tuple[TopicPartition, int], int] = {}
        self._seen: dict[int, _Seen] = {}
        #: The partition states in the tree at the last check.
        self._looked_at: dict[TopicPartition, PartitionStateNode] = {}
        #: The partitions that are checked often, each with the time since which it is checked often.
        self._close: dict[TopicPartition, float] = {}
        self._looks_closely = False
        self._violation: ViolationError | None = None
        self._waiting_for_end: dict[str, list[Callable[[], None]]] = {}
        self._waiting_for_leader: dict[TopicPartition, list[Callable[[int], None]]] = {}

    # --- the tree ----------------------------------------------------------------------------------------------------

    def tree_is(self, tree: EmbeddedTree) -> None:
        """Records the state in a metadata tree that is about to be served. No client has used this tree yet."""
        for path, node in tree.tree.walk():
            if node.data is None:
                continue
            if path.startswith(_TOPICS) and path.endswith(_STATE):
                self._note_state(path, node.data, node.mzxid, is_first=True)
            elif path == paths.CONTROLLER_EPOCH:
                self._controller_epoch = decode_controller_epoch(node.data)
        controller = tree.tree.find(paths.CONTROLLER)
        if controller is None or controller.data is None:
            self.controller_id = -1
        else:
            self._note_controller(controller.data)
        tree.on_commit(self._committed_to_tree)

    def tree_was_replaced(self, *, is_older: bool = False) -> None:
        """Forgets the state of the metadata tree. All brokers must have ended. The next tree may differ from the last
        tree, except that leader epochs must not go back. If `is_older`, leader epochs may go back."""
        self._is_older = is_older
        self.states.clear()
        self.shrunk_by_leader.clear()
        self._looked_at.clear()
        self._close.clear()
        self._began.clear()
        self._controllers.clear()
        self._waiting_for_end.clear()
        self._waiting_for_leader.clear()

    def _committed_to_tree(self, transaction: Transaction) -> None:
        try:
            for change in transaction.changes:
                if isinstance(change, NodeCreated | DataSet):
                    self._written(change.path, change.data, transaction.zxid, isinstance(change, NodeCreated))
                elif isinstance(change, NodeDeleted):
                    if change.path == paths.CONTROLLER:
                        self.controller_id = -1
                    for what in self._waiting_for_end.pop(change.path, ()):
                        what()
        except ViolationError as error:
            self._violation = self._violation or error

    def _written(self, path: str, data: bytes | None, zxid: int, is_new: bool) -> None:
        if data is None:
            return
        if path.startswith(_TOPICS):
            if path.endswith(_STATE):
                self._note_state(path, data, zxid)
        elif path == paths.CONTROLLER_EPOCH:
            self._controller_epoch = decode_controller_epoch(data)
        elif path == paths.CONTROLLER:
            self._note_controller(data)
        elif is_new and path.startswith(_BROKER):
            for topic_partition in self.states:
                self._look_often(topic_partition)

    def _note_controller(self, data: bytes) -> None:
        self.controller_id = ControllerNode.decode(data).broker_id
        self._controllers.append(self.controller_id)

    def _note_state(self, path: str, data: bytes, zxid: int, *, is_first: bool = False) -> None:
        """Checks and records a partition's state that was written to the tree. If `is_first`, other states may have
        been written between the recorded state and this state."""
        topic, _, number = path[len(_TOPICS) : -len(_STATE)].partition("/partitions/")
        if topic == CHURNED:
            return
        topic_partition = TopicPartition(topic, int(number))
        state, before = PartitionStateNode.decode(data), self.states.get(topic_partition)
        if is_first and not self._is_older:
            known = max(self._known.get((topic_partition, host.number), -1) for host in self._hosts)
            if state.leader_epoch < known:
                raise ViolationError(
                    f"a tree begins with leader epoch {state.leader_epoch} of {topic_partition}, and a broker has "
                    f"known {known}"
                )
        self.states[topic_partition] = state
        if before is None or state.leader_epoch != before.leader_epoch:
            self._began.setdefault(topic_partition, []).append((zxid, state.leader_epoch))
        if before is not None and before != state and not is_first:
            if state.leader_epoch < before.leader_epoch:
                raise ViolationError(
                    f"the leader epoch of {topic_partition} goes back from {before.leader_epoch} to "
                    f"{state.leader_epoch} in the tree"
                )
            if state.leader_epoch > before.leader_epoch and state.controller_epoch < self._controller_epoch:
                raise ViolationError(
                    f"the controller of epoch {state.controller_epoch} elects a leader of {topic_partition}, and "
                    f"there is one of epoch {self._controller_epoch}"
                )
            if state.leader >= 0 and state.leader not in before.isr:
                raise ViolationError(
                    f"broker {state.leader} is elected leader of {topic_partition}, and was not in sync"
                )
        if before is not None and before.leader_epoch == state.leader_epoch and state.isr == (state.leader,):
            self.shrunk_by_leader.add(topic_partition)
        else:
            self.shrunk_by_leader.discard(topic_partition)
        self._look_at(topic_partition, self._running())
        self._look_often(topic_partition)
        if state.leader >= 0 and (before is None or before.leader != state.leader):
            for what in self._waiting_for_leader.pop(topic_partition, ()):
                what(state.leader)

    def when_gone(self, broker_id: int, what: Callable[[], None]) -> None:
        """Calls `what` once, when the broker's node disappears from the tree."""
        self._waiting_for_end.setdefault(paths.broker(broker_id), []).append(what)

    def when_led(self, topic_partition: TopicPartition, what: Callable[[int], None]) -> None:
        """Calls `what` once, with the next broker that is elected leader of the partition."""
        self._waiting_for_leader.setdefault(topic_partition, []).append(what)

    @property
    def offsets_partition(self) -> TopicPartition | None:
        """Returns the partition of __consumer_offsets that contains the simulation's group. Returns None if the topic
        does not exist yet."""
        count = sum(1 for topic_partition in self.states if topic_partition.topic == OFFSETS_TOPIC)
        return TopicPartition(OFFSETS_TOPIC, partition_for(GROUP, count)) if count else None

    def leader_of(self, topic_partition: TopicPartition | None) -> int:
        """Returns the partition's leader according to the tree. Returns -1 if the partition has no leader."""
        state = None if topic_partition is None else self.states.get(topic_partition)
        return -1 if state is None else state.leader

    def knows_state(self, host: BrokerHost, topic_partition: TopicPartition, state: PartitionStateNode) -> bool:
        """Returns True if a broker knows the leader, the leader epoch and the ISR that `state` contains."""
        broker = _running(host)
        topic = None if broker is None else broker.view.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            return False
        partition = topic.partitions[topic_partition.partition]
        return (partition.leader, partition.leader_epoch, partition.isr) == (
            state.leader,
            state.leader_epoch,
            state.isr,
        )

    def heir_of(self, topic_partition: TopicPartition) -> int:
        """Returns the heir: the broker that becomes the partition's leader if the present leader ends. Returns -1 if
        there is no leader, or if not all replicas are in sync."""
        state = self.states.get(topic_partition)
        if state is None or state.leader < 0 or len(state.isr) < len(self._hosts):
            return -1
        broker = _running(self._hosts[state.leader])
        partition = None if broker is None else broker.replication.replicas._known(topic_partition)
        return (
            -1 if partition is None else next((number for number in partition.replicas if number != state.leader), -1)
        )

    def is_ahead_of_heir(self, topic_partition: TopicPartition) -> bool:
        """Returns True if a follower has more records than the heir, and does not have the newest high watermark."""
        heir, logs = self.heir_of(topic_partition), {}
        for host in self._hosts:
            broker = _running(host)
            log = None if broker is None else broker.directories.logs.get(topic_partition)
            if log is None:
                return False
            logs[host.number] = log
        newest = max(log.high_watermark for log in logs.values())
        return heir >= 0 and any(
            log.log_end_offset > logs[heir].log_end_offset and log.high_watermark < newest for log in logs.values()
        )

    def states_of(self, host: BrokerHost) -> list[str]:
        """Returns the present states of a broker, with the names of `coverage.STATES`. Returns an empty list while the
        broker is down."""
        if not host.is_up:
            return [] if host.program.process.is_dead else ["starting"]
        number = host.number
        states = ["controller"] if self.controller_id == number else []
        if self.leader_of(self.offsets_partition) == number:
            states.append("coordinator")
        written = [state for topic_partition, state in self.states.items() if topic_partition.topic != OFFSETS_TOPIC]
        if any(state.leader == number for state in written):
            states.append("leader")
        if any(state.leader != number and number in state.isr for state in written):
            states.append("follower in sync")
        if any(number not in state.isr for state in written):
            states.append("follower out of sync")
        return states

    # --- state of brokers --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Checks all invariants. Raises ViolationError if an invariant is violated."""
        if self._violation is not None:
            raise self._violation
        running = self._running()
        for topic_partition in self.states:
            self._look_at_logs(topic_partition, self._look_at(topic_partition, running))
        for number, broker, seen in running:
            self._look_at_broker(number, self._hosts[number], broker, seen)

    def _look_often(self, topic_partition: TopicPartition) -> None:
        self._close[topic_partition] = self.world.now
        if not self._looks_closely:
            self._looks_closely = True
            self.world.after(_CLOSE_SECONDS, self._look_closely)

    def look_often(self) -> None:
        """Begins frequent checks of all partitions. It is called before a fault hits a broker."""
        for topic_partition in self.states:
            self._look_often(topic_partition)

    def _look_closely(self) -> None:
        now, running = self.world.now, self._running()
        wait = _LATER_SECONDS
        for topic_partition, since in list(self._close.items()):
            self._look_at(topic_partition, running)
            age = now - since
            if age < _FIRST_AGE:
                wait = _CLOSE_SECONDS
            elif age > _MOST_AGE or (age > _LEAST_AGE and self._have_all_fetched(topic_partition)):
                del self._close[topic_partition]
        self._looks_closely = bool(self._close)
        if self._looks_closely:
            self.world.after(wait, self._look_closely)

    def _have_all_fetched(self, topic_partition: TopicPartition) -> bool:
        """Returns True if each follower in the ISR has fetched from the leader in the tree's leader epoch. Also
        returns True if the leader is not up."""
        state = self.states[topic_partition]
        broker = _running(self._hosts[state.leader]) if state.leader >= 0 else None
        if broker is None:
            return True
        partition = broker.replication.replicas._known(topic_partition)
        if partition is None or partition.leader_epoch != state.leader_epoch:
            return False
        followers = partition._replicas._followers
        return all(
            number in followers and followers[number].fetched_at_ms >= 0
            for number in state.isr
            if number != state.leader
        )

    def _running(self) -> _Running:
        running: _Running = []
        for number, host in enumerate(self._hosts):
            broker = _running(host)
            if broker is not None:
                seen = self._seen.get(number)
                if seen is None or seen.program is not host.program:
                    seen = self._seen[number] = _Seen(host.program)
                running.append((number, broker, seen))
        return running

    def _look_at(self, topic_partition: TopicPartition, running: _Running) -> list[_Found]:
        found: list[_Found] = []
        state, committed = self.states[topic_partition], self._committed.get(topic_partition, 0)
        is_changed = self._looked_at.get(topic_partition) is not state
        for number, broker, seen in running:
            log = broker.directories.logs.get(topic_partition)
            known = seen.replicas.get(topic_partition) if self.has_moves else None
            if known is not None and known.log is not log:
                # The log was deleted. A leader may have advanced the high watermark after the last check.
                if known.serves:
                    committed = max(committed, known.log.high_watermark)
                    is_changed = True
                del seen.replicas[topic_partition]
            if log is None:
                continue
            partition = broker.replication.replicas._known(topic_partition)
            leader_epoch, serves = (-1, False) if partition is None else (partition.leader_epoch, partition.is_served)
            looks = (
                number,
                partition,
                log,
                leader_epoch,
                serves,
                log.high_watermark,
                log.log_end_offset,
                broker.control.registration.broker_epoch,
            )
            before = seen.replicas.get(topic_partition)
            if before != looks:
                is_changed = True
                one = seen.replicas[topic_partition] = _Found(*looks)
                committed = self._look_at_changed(topic_partition, one, before, committed)
            found.append(seen.replicas[topic_partition])
        if is_changed:
            self._committed[topic_partition] = committed
            self._looked_at[topic_partition] = state
            for one in found:
                _judge(topic_partition, one, state, committed)
        for one in found:
            if one.serves:
                self._look_at_leader(topic_partition, one, state, committed)
        return found

    def _look_at_changed(
        self, topic_partition: TopicPartition, one: _Found, before: _Found | None, committed: int
    ) -> int:
        """Checks a replica that has changed since the last check. Returns the present committed offset of the
        partition."""
        number, high_watermark = one.number, one.high_watermark
        # If compaction has removed leader epochs from the leader's log, a follower may truncate its log below the
        # committed offset. It then fetches the records again before it is in sync.
        if (
            before is not None
            and high_watermark < before.high_watermark
            and not (self.compacts and one.log.config.compact)
        ):
            raise ViolationError(
                f"the high watermark of {topic_partition} goes back from {before.high_watermark} to {high_watermark} "
                f"on broker {number}"
            )
        # A broker that was the leader at the last check may have advanced the high watermark after that check.
        if high_watermark > committed and (one.serves or (before is not None and before.serves)):
            committed = high_watermark
        ends = self._ends.setdefault(topic_partition, {})
        if one.end > ends.get(number, 0):
            ends[number] = one.end
        if one.leader_epoch > self._known.get((topic_partition, number), -1):
            self._known[topic_partition, number] = one.leader_epoch
        self._look_at_epoch(topic_partition, one, before)
        return committed

    def _look_at_logs(self, topic_partition: TopicPartition, found: Sequence[_Found]) -> None:
        """Checks that the records below all replicas' high watermarks have the same leader epochs on all replicas."""
        if len(found) < 2 or (self.compacts and found[0].log.config.compact):
            return
        of_first = found[0].log.leader_epochs
        if all(of_first.agrees_with(one.log.leader_epochs) for one in found):
            return  # then they are the same below any offset
        tables = [one.log.leader_epochs.entries() for one in found]
        lowest = min(one.high_watermark for one in found)
        first: list[tuple[int, int]] | None = None
        for one, table in zip(found, tables, strict=True):
            written = [entry for entry in table if entry[1] < lowest]
            if first is None:
                first = written
            elif written != first:
                raise ViolationError(
                    f"the brokers {found[0].number} and {one.number} differ in {topic_partition} below {lowest}: "
                    f"epochs begin at {first}, and at {written}"
                )

    def _look_at_epoch(self, topic_partition: TopicPartition, one: _Found, before: _Found | None) -> None:
        number, partition, leader_epoch, broker_epoch = one.number, one.partition, one.leader_epoch, one.broker_epoch
        if partition is None or (
            before is not None and (before.leader_epoch, before.broker_epoch) == (leader_epoch, broker_epoch)
        ):
            return
        known = self._leaders.setdefault((topic_partition, leader_epoch), partition.leader)
        if known != partition.leader:
            raise ViolationError(
                f"broker {number} holds {partition.leader} for the leader of {topic_partition} in epoch "
                f"{leader_epoch}, another {known}"
            )
        if before is None:
            return
        if leader_epoch < before.leader_epoch:
            raise ViolationError(
                f"the leader epoch of {topic_partition} goes back from {before.leader_epoch} to {leader_epoch} on "
                f"broker {number}"
            )
        if leader_epoch > before.leader_epoch and broker_epoch == before.broker_epoch >= 0:
            over = [
                epoch for zxid, epoch in self._began[topic_partition] if zxid < broker_epoch and epoch > leader_epoch
            ]
            if over:
                raise ViolationError(
                    f"broker {number} is told of leader epoch {leader_epoch} of {topic_partition}, which was over "
                    f"when it registered: there was {over[-1]}"
                )

    def _look_at_leader(
        self, topic_partition: TopicPartition, one: _Found, state: PartitionStateNode, committed: int
    ) -> None:
        partition = one.partition
        if (
            (state.leader, state.leader_epoch) == (one.number, one.leader_epoch)
            and one.high_watermark < committed
            and partition.knows_high_watermark
        ):
            raise ViolationError(
                f"broker {one.number} leads {topic_partition} and tells {one.high_watermark} for its high watermark: "
                f"{committed} was told"
            )
        for number, follower in partition._replicas._followers.items():
            if follower.fetched_at_ms >= 0 and self._known.get((topic_partition, number), -1) < one.leader_epoch:
                raise ViolationError(
                    f"the leader of {topic_partition} in epoch {one.leader_epoch} counts a fetch of broker {number}, "
                    f"which has not heard of that epoch"
                )

    def _look_at_broker(self, number: int, host: BrokerHost, broker: Broker, seen: _Seen) -> None:
        controllership, fence, view = broker.control.controllership, broker.control.orders.fence, broker.view
        if controllership.is_controller and controllership.controller_id != number:
            raise ViolationError(
                f"broker {number} is controller still, and holds {controllership.controller_id} for the controller"
            )
        if fence.controller_epoch < seen.controller_epoch:
            raise ViolationError(
                f"broker {number} obeys the controller of epoch {fence.controller_epoch}, after that of epoch "
                f"{seen.controller_epoch}"
            )
        seen.controller_epoch = fence.controller_epoch
        shown = view.controller_id
        if shown >= 0 and self._controllers and shown != self._controllers[seen.controller]:
            later = (
                place for place in range(seen.controller, len(self._controllers)) if self._controllers[place] == shown
            )
            place = next(later, None)
            if place is None:
                raise ViolationError(
                    f"broker {number} tells clients that {shown} is controller, and that one was replaced by another "
                    f"whom it has told of"
                )
            seen.controller = place
        self._look_at_groups(number, host, broker, seen)

    def _look_at_groups(self, number: int, host: BrokerHost, broker: Broker, seen: _Seen) -> None:
        now = self.world.now
        for place, hosted in broker.coordinators.groups._runtime._hosted.items():
            if hosted.partition.is_served or not host.is_up or host.program.process.is_paused:
                seen.strange.pop(place, None)
            elif now - seen.strange.setdefault(place, now) > _GIVE_UP_SECONDS:
                raise ViolationError(
                    f"broker {number} coordinates the groups of {hosted.partition.topic_partition}, which it does "
                    f"not lead"
                )

    # --- answers to clients ------------------------------------------------------------------------------------------

    def acknowledged(self, topic_partition: TopicPartition, offset: int) -> None:
        """Checks that a producer's record, which was acknowledged at this offset, is committed and on enough
        replicas."""
        ends = self._ends.setdefault(topic_partition, {})
        if (
            offset < self._committed.get(topic_partition, 0)
            and sum(end > offset for end in ends.values()) >= self.min_in_sync
        ):
            return
        self._look_at(topic_partition, self._running())
        committed = self._committed.get(topic_partition, 0)
        if offset >= committed:
            raise ViolationError(
                f"offset {offset} of {topic_partition} is acknowledged, and no leader has a high watermark above "
                f"{committed}"
            )
        have = [number for number, end in ends.items() if end > offset]
        if len(have) < self.min_in_sync:
            raise ViolationError(
                f"offset {offset} of {topic_partition} is acknowledged, and the brokers {have} have it: "
                f"{self.min_in_sync} are asked for"
            )

    # --- the end -----------------------------------------------------------------------------------------------------

    def is_agreed(self) -> bool:
        """Returns True if every broker reports to clients the controller of the tree and all brokers of the
        cluster."""
        brokers = [_running(host) for host in self._hosts]
        return self.controller_id >= 0 and all(
            broker is not None
            and broker.view.controller_id == self.controller_id
            and len(broker.view.brokers) == len(self._hosts)
            and broker.control.controllership.is_controller == (number == self.controller_id)
            for number, broker in enumerate(brokers)
        )


def _running(host: BrokerHost) -> Broker | None:
    """Returns the broker on this host, if its process is running and its logs are loaded. Otherwise returns None."""
    program = getattr(host, "program", None)
    if program is None or program.process.is_dead:
        return None
    broker: Broker | None = program.broker
    return broker if broker is not None and broker.is_loaded else None


def _judge(topic_partition: TopicPartition, one: _Found, state: PartitionStateNode, committed: int) -> None:
    """Checks a replica against the committed offset and the partition's state in the tree."""
    if one.high_watermark > committed:
        raise ViolationError(
            f"broker {one.number} has {one.high_watermark} for the high watermark of {topic_partition}, no leader "
            f"has said more than {committed}"
        )
    # A broker that has lost data, and has reported the loss, stays in the tree's ISR until another broker leads.
    if (
        one.leader_epoch == state.leader_epoch
        and one.number in state.isr
        and one.end < committed
        and one.partition.has_log
    ):
        raise ViolationError(
            f"broker {one.number} is in sync in {topic_partition}, and its log ends at {one.end}: {committed} is "
            f"committed"
        )
