"""The replicas of this broker, and its metadata for clients: carries out the controller's orders, on the disk and in
the view.

    lead_and_follow     missing logs are made, those of a branch from its source (controller.branches) and after it;
                        partitions lead or follow by their states
    stop                replicas are given up. Data of a topic that is being deleted are renamed, and deleted after
                        file.delete.delay.ms
    update_metadata     brokers and topics come into the view, change in it, go from it
    settings_changed    settings take effect

A partition whose log directory has failed has no log until the broker is started again (`lost`): it answers
KAFKA_STORAGE_ERROR, to clients and to the controller. So does one whose data are lost (`replication.lost_data`), until
another broker leads it.

After a crash between two steps: a topic that is in the tree and has no directory gets one at the next start; a
directory whose topic is not in the tree is reported and left alone; a deletion that was begun is in
/admin/delete_topics and is finished at the next start."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Protocol

from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError, KafkaStorageError
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.broker.metadata_cache import INTERNAL_TOPICS, BrokerNode, Topic
from jesenska.broker.settings.derived_settings import check_rules_of, log_config_of
from jesenska.broker.settings.settings_runtime import SettingsRuntime
from jesenska.broker.shared_parts import SharedParts
from jesenska.broker.slices import Slices
from jesenska.config.layers import TopicConfig
from jesenska.controller.context import ControllerContext, TopicView
from jesenska.controller.effects import TopicPartitions
from jesenska.controller.orders.requests import Metadata, Stop
from jesenska.controller.plans.branches import BranchPoint, branch_point
from jesenska.controller.plans.partition_states import NO_LEADER
from jesenska.log.copies.branching import BranchWanted
from jesenska.log.directory.partition_loading import Known
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.metadata import paths
from jesenska.metadata.tree_operations import TreeError
from jesenska.replication.follower.links import FollowerLinks
from jesenska.replication.follower.replica_log import settle
from jesenska.replication.partition import Partition
from jesenska.replication.replicas import Replicas

logger = logging.getLogger(__name__)

#: How long one order waits at most until this broker knows what was committed of sources that it leads: after an
#: election their followers are to fetch first. No other order is carried out meanwhile.
_SOURCES_SECONDS, _LOOK_SECONDS = 2.0, 0.01
#: Partitions added to the view because one UpdateMetadata names only partitions with higher numbers.
_UNTOLD_PARTITIONS_MAX = 10_000


class Keeper(Protocol):
    """The coordinator of an internal topic, which has to know of changes to topics."""

    topic_name: str

    async def count_partitions(self) -> None:
        """The topic is about to come."""

    def take_over(self, topic: Topic | None = None) -> None:
        """The topic is there, has more partitions, or has other leaders."""

    def give_up(self) -> None:
        """The topic is gone."""

    def topic_deleted(self, topic: str) -> None:
        """Another topic is gone."""


class ReplicaManager:
    """The replicas of one broker. `settings` has its topics' settings; `links` are to the leaders that it follows. It
    has more than 500 lines, since an order touches logs, links and the view together, and the next order that names
    the same partition must meet all of them changed."""

    def __init__(self, core: SharedParts, settings: SettingsRuntime, links: FollowerLinks) -> None:
        self._core = core
        self._settings = settings
        self._settings_of = settings.topic_config
        self._links = links
        #: By the name of their topic; set by the broker, before the first order.
        self._keepers: dict[str, Keeper] = {}
        #: Partitions of topics that are not in the view yet, by topic.
        self._new: dict[str, dict[int, Partition]] = {}
        #: Partitions of this broker without a log, since the disk prevented it.
        self._lacking: set[TopicPartition] = set()
        #: Those of them that are branches being made.
        self._branching: set[TopicPartition] = set()
        #: Where the logs of their sources ended when they were to be made.
        self._source_ends: dict[TopicPartition, int] = {}
        #: One of them was made since `make_missing_logs` was called last.
        self._has_branched = False
        #: Replicas that have lost data, and are not led here.
        self._without_data: set[TopicPartition] = set()
        self._found: Callable[[Collection[TopicPartition]], Awaitable[None]] | None = None
        self._looks_for_lag_at_ms = 0
        # One object for all partitions: each look-up of a method makes a new object.
        self._notify, self._elapsed = core.waiting.notify, self._elapsed_ms

    def keep(self, *keepers: Keeper) -> None:
        """Registers the keepers, which are called for changes to topics."""
        self._keepers |= {keeper.topic_name: keeper for keeper in keepers}

    def refuse_to_lead(
        self,
        topic_partitions: Iterable[TopicPartition],
        found: Callable[[Collection[TopicPartition]], Awaitable[None]] | None = None,
    ) -> None:
        """These replicas have lost data: they are not led here before another broker has led them. `found` is awaited
        before this broker gets the data from other brokers; TreeError if that cannot be written down."""
        self._without_data.update(topic_partitions)
        self._found = found

    # --- orders ------------------------------------------------------------------------------------------------------

    async def lead_and_follow(self, topics: Sequence[TopicPartitions]) -> dict[TopicPartition, ErrorCode]:
        """Takes the replicas of these partitions, in the ordered state; returns the errors of those that failed. Ten
        thousand take seconds: requests are served in between."""
        slices = Slices(self._core.clock)
        errors: dict[TopicPartition, ErrorCode] = {}
        await self._read_settings(topics)
        await self._find_data(topics)
        branches: list[tuple[TopicPartitions, TopicConfig]] = []
        for part in topics:
            config = self._settings_of(part.topic.name)
            if branch_point(config.overrides) is None:
                errors |= await self._take(part, config, slices)
            else:
                branches.append((part, config))
        # Their sources are led or followed by now.
        until = asyncio.get_running_loop().time() + _SOURCES_SECONDS
        for part, config in branches:
            errors |= await self._take(part, config, slices, until)
        return errors

    async def _take(
        self, part: TopicPartitions, config: TopicConfig, slices: Slices, until: float = 0.0
    ) -> dict[TopicPartition, ErrorCode]:
        """Takes the replicas of one topic. A branch that is being made waits for its source no longer than `until`."""
        topic = part.topic
        errors: dict[TopicPartition, ErrorCode] = {}
        log_config, point = log_config_of(config), branch_point(config.overrides)
        for number in part.numbers:
            await slices()
            if topic.partitions[number].state.leader == self._core.broker_id:
                await self._let_cut_end(TopicPartition(topic.name, number))
            if point is not None and self._core.broker_id in topic.node.replicas[number]:
                await self._branch(topic, number, log_config, point, until)
            error = self._lead_or_follow(topic, number, config, log_config)
            if error != ErrorCode.NONE:
                errors[TopicPartition(topic.name, number)] = error
        if topic.name in self._keepers and topic.name in self._core.view.topics:
            self._keepers[topic.name].take_over()
        return errors

    def _lead_or_follow(self, topic: TopicView, number: int, config: TopicConfig, log_config: LogConfig) -> ErrorCode:
        topic_partition = TopicPartition(topic.name, number)
        if self._core.broker_id not in topic.node.replicas[number]:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self._holds_another(topic_partition, topic.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        partition = self._known(topic_partition)
        if partition is not None and topic.topic_id is not None and partition.topic_id not in (NO_UUID, topic.topic_id):
            self._hide(topic.name)  # its deletion was missed
            partition = None
        if partition is None:
            partition = self._new.setdefault(topic.name, {})[number] = self._partition(topic, number, config)
        elif topic.partitions[number].state.leader_epoch < partition.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self._has_lost_data(topic_partition, topic.partitions[number].state.leader, config):
            partition.lose_log()
            self._apply_state(partition, topic)
            self._links.leave(topic_partition)
            return ErrorCode.KAFKA_STORAGE_ERROR
        error = ErrorCode.NONE
        if partition.has_log:
            if topic.topic_id is not None and partition.topic_id == NO_UUID:
                partition.topic_id = topic.topic_id
                self._core.directories.assign_topic_id(topic_partition, topic.topic_id)
            elif topic.partitions[number].state.leader_epoch == partition.leader_epoch:
                # A newer ISR is taken nevertheless.
                error = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            state = topic.partitions[number].state
            log = self._log(
                topic_partition,
                topic.topic_id,
                log_config,
                config,
                is_whole=self._begins_whole(state.leader, state.isr),
            )
            if log is None:
                error = ErrorCode.KAFKA_STORAGE_ERROR
                if topic_partition in self._core.directories.offline:
                    partition.lose_log()
            else:
                partition.found_log(log)
        partition.take_part()
        self._apply_state(partition, topic)
        self._follow(partition)
        return error

    def _holds_another(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        """True if this broker has data of an earlier topic of that name, which is logged: there was no order to delete
        them, so they stay."""
        log = self._core.directories.get(topic_partition)
        if log is None or topic_id is None or log.topic_id in (None, topic_id):
            return False
        logger.error(
            "%s has no replica here: %s holds data of an earlier topic of that name. Stop this broker, move that "
            "directory away, and start it again.",
            topic_partition,
            log.directory,
            extra={"once_a_minute": (topic_partition.topic, "another topic")},
        )
        return True

    async def _find_data(self, topics: Sequence[TopicPartitions]) -> None:
        """Replicas that have lost data get them from their leaders, if there are any: writes that down.
        KafkaStorageError if the tree cannot be reached."""
        if self._found is None or not self._without_data:
            return
        found = [
            TopicPartition(topic.name, number)
            for topic, numbers in topics
            for number in numbers
            if TopicPartition(topic.name, number) in self._without_data
            and not self._waits_for_data(
                TopicPartition(topic.name, number), topic.partitions[number].state.leader, self._settings_of(topic.name)
            )
        ]
        try:
            await self._found(found)
        except TreeError as error:
            raise KafkaStorageError(f"The metadata cannot be reached: {error}") from error

    def _waits_for_data(self, topic_partition: TopicPartition, leader: int, config: TopicConfig) -> bool:
        """True if this replica has lost data, no other broker leads, and unclean election is off."""
        is_led = leader not in (NO_LEADER, self._core.broker_id)
        return (
            topic_partition in self._without_data
            and not is_led
            and not config.boolean("unclean.leader.election.enable")
        )

    def _has_lost_data(self, topic_partition: TopicPartition, leader: int, config: TopicConfig) -> bool:
        """True if this replica has to wait for a broker that has its lost data, which is logged. Else it is taken as
        it is."""
        if self._waits_for_data(topic_partition, leader, config):
            logger.error(
                "%s is not led here: this broker was in sync, and its log is gone, is an older one, or ends before "
                "what it had. Start a broker that has the "
                "data, or mount the right disk and start this one again. If nobody will have them, let another "
                "broker lead with what it has: "
                "kafka-leader-election --election-type unclean.",
                topic_partition,
                extra={"once_a_minute": (topic_partition.topic, "no data")},
            )
            return True
        self._without_data.discard(topic_partition)
        self._core.directories.take_as_it_is(topic_partition)
        return False

    async def _read_settings(self, topics: Sequence[TopicPartitions]) -> None:
        """Reads the settings of new topics, and the number of partitions of coordinators' topics. KafkaStorageError if
        the tree cannot be reached: then nothing of the order is done, and it comes again."""
        shown = self._core.view.topics
        try:
            for topic, _ in topics:
                if topic.name in self._keepers:
                    await self._keepers[topic.name].count_partitions()
            await self._settings.read(
                [topic.name for topic, _ in topics if topic.name not in shown and topic.name not in self._new]
            )
        except TreeError as error:
            raise KafkaStorageError(f"The metadata cannot be reached: {error}") from error

    def _follow(self, partition: Partition) -> None:
        """Follows the partition's leader, if that is another broker."""
        log = partition.follower_log
        if log is None:
            self._links.leave(partition.topic_partition)
        else:
            self._links.follow(
                partition.topic_partition, log, partition.topic_id, partition.leader, partition.leader_epoch
            )

    async def _let_cut_end(self, topic_partition: TopicPartition) -> None:
        """A log that is to be led may still be being truncated for its former leader. Waits for that: only then is it
        known from which offset it is led."""
        partition = self._known(topic_partition)
        log = None if partition is None else partition.follower_log
        if log is None or not log.is_being_cut:
            return
        self._links.leave(topic_partition)
        settled = asyncio.get_running_loop().create_future()
        settle(log, self._core.clock.now_ms(), settled.set_result)
        await settled

    async def stop(self, stops: Sequence[Stop]) -> dict[TopicPartition, ErrorCode]:
        """Gives up replicas, some with their data; returns the errors of those that failed."""
        slices = Slices(self._core.clock)
        errors: dict[TopicPartition, ErrorCode] = {}
        deletes = False
        for topic_partition, leader_epoch, delete in stops:
            await slices()
            partition = self._known(topic_partition)
            if partition is not None and 0 <= leader_epoch < partition.leader_epoch:
                errors[topic_partition] = ErrorCode.FENCED_LEADER_EPOCH
                continue
            self._links.leave(topic_partition)
            if partition is not None and not delete:
                partition.withdraw()
            if delete and not self._delete(topic_partition, partition):
                errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
            deletes = deletes or delete
        if deletes and not errors:
            try:
                # Before the tree forgets the topic: else a crash of the machine could leave unknown directories.
                await asyncio.get_running_loop().run_in_executor(
                    self._core.pool.executor, self._core.directories.sync_names
                )
            except OSError as error:
                logger.error("the names of deleted partitions could not be synced: %s", error)
        return errors

    def _delete(self, topic_partition: TopicPartition, partition: Partition | None) -> bool:
        """Deletes a replica's data. True if they are gone, or are about to be."""
        self._lacking.discard(topic_partition)
        self._source_ends.pop(topic_partition, None)
        made = self._new.get(topic_partition.topic)
        if made is not None:
            made.pop(topic_partition.partition, None)
            if not made:
                del self._new[topic_partition.topic]
        if partition is not None:
            partition.give_up()
        try:
            self._core.directories.delete(topic_partition, self._core.clock.now_ms())
        except KafkaStorageError as error:
            logger.error("%s", error)
            return False
        return True

    async def update_metadata(self, metadata: Metadata, controller_id: int) -> None:
        """Takes the metadata of topics and brokers for clients, and the controller's id."""
        await self._read_settings(metadata.topics)
        view = self._core.view
        view.controller_id = controller_id
        view.brokers = {
            broker_id: BrokerNode(broker_id, {item.name: (item.host, item.port) for item in node.endpoints}, node.rack)
            for broker_id, node in metadata.brokers.items()
        }
        for name in metadata.gone:
            self._hide(name)
        view.tell_offline(metadata)
        gaps_left = _UNTOLD_PARTITIONS_MAX
        for topic, numbers in metadata.topics:
            if not numbers:
                continue
            shown = view.topics.get(topic.name)
            if shown is not None and topic.topic_id is not None and shown.topic_id != topic.topic_id:
                if shown.topic_id == NO_UUID:
                    view.identify(shown, topic.topic_id)
                else:
                    self._hide(topic.name)  # its deletion was missed
                    shown = None
            count, known = max(numbers) + 1, 0 if shown is None else len(shown.partitions)
            gaps_left -= max(0, count - known - len(numbers))
            if gaps_left < 0:
                logger.error(
                    "what a controller tells of topic %s is left out: it names partition %d, and not those before it",
                    topic.name,
                    count - 1,
                )
                gaps_left = 0
                continue
            if known < count:
                self._show(topic, count)
            for number in numbers:
                partition = view.topics[topic.name].partitions[number]
                state = topic.partitions[number].state
                # Replicas of this broker know their leaders already, except those that it cannot read.
                is_ours = self._core.broker_id in topic.node.replicas[number] and not partition.is_offline
                if not is_ours or state.leader_epoch == partition.leader_epoch:
                    self._apply_state(partition, topic)

    def settings_changed(self, entity: str) -> None:
        """The settings of an entity have changed: `topics/<name>`, `brokers/<id>`, or of clients, which have no effect
        here."""
        kind, _, name = entity.partition("/")
        if kind == "topics":
            self._configure(name)
        elif kind == "brokers" and name in (paths.DEFAULT_ENTITY, str(self._core.broker_id)):
            self._core.in_force.change(self._settings.config)
            if self._links.divide(self._core.config.integer("num.replica.fetchers")):
                for topic in self._core.view.topics.values():
                    for partition in topic.partitions:
                        self._follow(partition)
            for known in list(self._core.view.topics):
                self._configure(known)

    def forget_offsets(self, topic: str) -> None:
        """Groups forget what they committed of the topic."""
        for keeper in self._keepers.values():
            keeper.topic_deleted(topic)

    # --- partitions and the view -------------------------------------------------------------------------------------

    @property
    def known_topics(self) -> Collection[str]:
        """The names of the topics that clients see."""
        return self._core.view.topics.keys()

    def _known(self, topic_partition: TopicPartition) -> Partition | None:
        shown = self._core.view.topics.get(topic_partition.topic)
        if shown is not None and 0 <= topic_partition.partition < len(shown.partitions):
            return shown.partitions[topic_partition.partition]
        return self._new.get(topic_partition.topic, {}).get(topic_partition.partition)

    def _partition(self, topic: TopicView, number: int, config: TopicConfig) -> Partition:
        core, topic_partition = self._core, TopicPartition(topic.name, number)
        max_lag_ms = core.config.integer("replica.lag.time.max.ms")
        replicas = Replicas(
            topic_partition,
            core.broker_id,
            topic.node.replicas.get(number, ()),
            config.integer("min.insync.replicas"),
            max_lag_ms,
        )
        return Partition(topic_partition, topic.topic_id or NO_UUID, replicas, self._notify, self._elapsed)

    def _apply_state(self, partition: Partition, topic: TopicView) -> None:
        """Applies the controller's state of a partition."""
        number = partition.topic_partition.partition
        state, version = topic.partitions[number].state, topic.partitions[number].version
        if partition.replicas != topic.node.replicas[number]:
            partition.assign(topic.node.replicas[number])
        partition.led_by(state.leader, state.leader_epoch, state.isr, version)
        if partition.is_to_be_synced:
            self._core.isr_syncs.ask(partition)

    def _begins_whole(self, leader: int, isr: Collection[int]) -> bool:
        """True if this broker leads a branch with this state, or would be elected. Then its log has all that was
        committed of the source, or is not made. Else its log may be short or empty: this broker is not in sync before
        it has fetched the rest."""
        return leader in (NO_LEADER, self._core.broker_id) and self._core.broker_id in isr

    def _has_all_committed(self, topic_partition: TopicPartition, source: TopicPartition) -> bool:
        """True if this broker's high watermark of the source is certainly no lower than it was where the source was
        led when the branch was asked for. A leader knows that when its followers have fetched. Another broker may know
        an older one, or lack records, for example after a crash. It has to be in sync, and all that it had then has to
        be committed."""
        partition, log = self._known(source), self._core.directories.get(source)
        if partition is None or log is None or not partition.has_log:
            return False
        if partition.leads:
            return partition.knows_high_watermark
        if self._core.broker_id not in partition.isr:
            return False
        # What comes meanwhile is not waited for: under load there is always more.
        end_offset = self._source_ends.setdefault(topic_partition, log.next_offset)
        return log.high_watermark >= min(end_offset, log.next_offset)

    async def _branch(
        self, topic: TopicView, number: int, log_config: LogConfig, point: BranchPoint, until: float
    ) -> None:
        """Makes the log of a partition of a branch from that of its source, if there is none and the source allows it.
        Where this broker leads the source it waits until it knows what was committed, but not longer than `until`."""
        topic_partition, state = TopicPartition(topic.name, number), topic.partitions[number].state
        if self._core.directories.get(topic_partition) is not None or topic_partition in self._branching:
            return
        if self._begins_whole(state.leader, state.isr):
            source = TopicPartition(point.source, number)
            self._source_ends.pop(topic_partition, None)
            while not self._has_all_committed(topic_partition, source):
                partition = self._known(source)
                if partition is None or not partition.is_served or asyncio.get_running_loop().time() >= until:
                    return
                await asyncio.sleep(_LOOK_SECONDS)
        made = asyncio.get_running_loop().create_future()
        self._begin_branch(
            topic_partition,
            topic.topic_id,
            log_config,
            point,
            lambda log: None if made.done() else made.set_result(None),
        )
        await made

    def _begin_branch(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        log_config: LogConfig,
        point: BranchPoint,
        done: Callable[[PartitionLog | None], None],
    ) -> None:
        """`done` is called with the log, or with None if it could not be made: a follower then begins an empty log,
        and fetches from its leader."""
        source = TopicPartition(point.source, topic_partition.partition)
        origin = self._core.directories.get(source)
        if origin is None or origin.topic_id not in (None, point.topic_id):
            done(None)
            return
        self._branching.add(topic_partition)

        def made(outcome: PartitionLog | KafkaError) -> None:
            self._branching.discard(topic_partition)
            self._source_ends.pop(topic_partition, None)
            if isinstance(outcome, KafkaError):
                logger.error(
                    "%s has no log: %s",
                    topic_partition,
                    outcome,
                    extra={"once_a_minute": (topic_partition.topic, "no branch")},
                )
            done(outcome if isinstance(outcome, PartitionLog) else None)

        wanted = BranchWanted(topic_partition, topic_id, log_config, point.first_epoch)
        self._core.directories.branch(source, wanted, self._core.clock.now_ms(), made)

    def _log(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        log_config: LogConfig,
        config: TopicConfig,
        *,
        is_whole: bool,
    ) -> PartitionLog | None:
        """The partition's log, made if it does not exist; None, which is logged, if the disk prevents it, or if it is
        to be a whole branch and there is no log."""
        if topic_partition in self._core.directories.offline:
            logger.error(
                "%s has no log here while a log directory is offline",
                topic_partition,
                extra={"once_a_minute": ("", "offline")},
            )
            return None
        point = branch_point(config.overrides)
        if point is not None and is_whole and self._core.directories.get(topic_partition) is None:
            logger.error(
                "%s has no log: it is to be a branch of %s, and this broker cannot make one, or does not know yet "
                "that it has all that was committed. It is tried again every second. If that goes on, delete topic "
                "%s, and branch again.",
                topic_partition,
                point.source,
                topic_partition.topic,
                extra={"once_a_minute": (topic_partition.topic, "no source")},
            )
            self._lacking.add(topic_partition)
            return None
        try:
            log = self._core.directories.create(topic_partition, topic_id, log_config, self._core.clock.now_ms())
        except (JesenskaError, OSError) as error:
            logger.error(
                "%s has no log: %s It is tried again every second.",
                topic_partition,
                error,
                extra={"once_a_minute": (topic_partition.topic, "no log")},
            )
            self._lacking.add(topic_partition)
            return None
        self._lacking.discard(topic_partition)
        return log

    def lost(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """The logs of these partitions are gone: their directory has failed."""
        for topic_partition in topic_partitions:
            self._links.leave(topic_partition)
            partition = self._known(topic_partition)
            if partition is not None:
                partition.lose_log()

    def make_missing_logs(self) -> bool:
        """Tries again to make logs that the disk prevented. True if one was made. Called now and then."""
        made, self._has_branched = self._has_branched, False
        for topic_partition in list(self._lacking):
            topic = self._core.view.topics.get(topic_partition.topic)
            if topic is None or topic_partition.partition >= len(topic.partitions):
                continue
            partition = topic.partitions[topic_partition.partition]
            config = self._settings_of(topic_partition.topic)
            log_config, point = log_config_of(config), branch_point(config.overrides)
            make = partial(self._make_missing_log, partition, log_config, config)
            if point is None:
                make(None)
                made = made or partition.has_log
            elif topic_partition not in self._branching and self._may_branch(partition, point):
                self._begin_branch(topic_partition, topic.topic_id, log_config, point, make)
        return made

    def _may_branch(self, partition: Partition, point: BranchPoint) -> bool:
        source = TopicPartition(point.source, partition.topic_partition.partition)
        return not self._begins_whole(partition.leader, partition.isr) or self._has_all_committed(
            partition.topic_partition, source
        )

    def _make_missing_log(
        self, partition: Partition, log_config: LogConfig, config: TopicConfig, branched: PartitionLog | None
    ) -> None:
        """`branched`: the log that was made as a branch meanwhile."""
        topic_partition = partition.topic_partition
        if topic_partition not in self._lacking:
            if branched is not None and not partition.has_log:
                self._core.directories.delete(topic_partition, self._core.clock.now_ms())  # its topic is gone
            return
        log = branched or self._log(
            topic_partition,
            partition.topic_id,
            log_config,
            config,
            is_whole=self._begins_whole(partition.leader, partition.isr),
        )
        if log is not None:
            self._lacking.discard(topic_partition)
            partition.found_log(log)
            self._follow(partition)
            self._has_branched = self._has_branched or branched is not None

    async def propose_isrs(self, propose: Callable[[Partition], None]) -> None:
        """Has ISRs proposed without lagging followers, and with followers that have caught up; called now and then.
        Lag is checked twice within replica.lag.time.max.ms. Requests are served in between."""
        slices = Slices(self._core.clock)
        now_ms = self._elapsed_ms()
        looks_for_lag = now_ms >= self._looks_for_lag_at_ms
        if looks_for_lag:
            self._looks_for_lag_at_ms = now_ms + self._core.config.integer("replica.lag.time.max.ms") // 2
        for topic in list(self._core.view.topics.values()):
            await slices()
            up = self._core.view.brokers.keys()
            for partition in topic.partitions:
                if not partition.is_served or len(partition.replicas) <= 1:
                    continue
                if looks_for_lag and partition.drop_lagging():
                    propose(partition)
                elif partition.look_for_candidates(up):
                    self._core.joining.add(partition)

    def _show(self, topic: TopicView, count: int) -> None:
        """Puts a topic with so many partitions into the view, or replaces a smaller one. Replicas that clients do not
        see yet are kept for later."""
        name, config = topic.name, self._settings_of(topic.name)
        before = self._core.view.topics.get(name)
        partitions = list(before.partitions) if before is not None else []
        made = self._new.get(name, {})
        for number in range(len(partitions), count):
            partitions.append(made.pop(number) if number in made else self._partition(topic, number, config))
        if not made:
            self._new.pop(name, None)
        self._put(name, partitions, config)
        if name in self._keepers:
            self._keepers[name].take_over(self._core.view.topics[name])

    def _configure(self, name: str) -> None:
        """Gives a topic its settings."""
        shown = self._core.view.topics.get(name)
        if shown is not None:
            self._put(name, shown.partitions, self._settings_of(name))

    def _put(self, name: str, partitions: list[Partition], config: TopicConfig) -> None:
        log_config = log_config_of(config)
        rules = check_rules_of(config, log_config)
        self._core.view.add(
            Topic(name, partitions[0].topic_id, partitions, config, log_config, rules, name in INTERNAL_TOPICS)
        )
        for partition in partitions:
            partition.configure(log_config, config.integer("min.insync.replicas"))

    def _hide(self, name: str) -> None:
        """Takes a topic out of the view; its data stay."""
        removed = self._core.view.remove(name)
        for partition in (*(removed.partitions if removed is not None else ()), *self._new.pop(name, {}).values()):
            self._links.leave(partition.topic_partition)
            partition.vanish()
        if name in self._keepers:
            self._keepers[name].give_up()
        for other, keeper in self._keepers.items():
            if other != name:
                keeper.topic_deleted(name)

    def _elapsed_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return int(self._core.clock.monotonic() * 1000)


def known_to(context: ControllerContext, settings_of: Callable[[str], TopicConfig]) -> Known:
    """The function for the log directories: gives the settings of a partition, None for one that the tree does not
    know."""
    configs = {name: log_config_of(settings_of(name)) for name in context.topics}

    def known(topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> LogConfig | None:
        topic = context.topics.get(topic_partition.topic)
        if (
            topic is None
            or topic_partition.partition not in topic.node.replicas
            or topic_id not in (None, topic.topic_id)
        ):
            return None
        return configs[topic_partition.topic]

    return known
