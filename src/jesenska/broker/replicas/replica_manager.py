"""Carries out the controller's requests (orders): changes this broker's replicas on the disk, and its metadata cache
(the view), from which clients are answered.

  lead_and_follow     creates missing logs, and makes each replica leader or follower. The log of a branch (a topic
                      that begins as a copy of a source topic) is created from the source (`controller.plans.branches`)
  stop                stops replicas. The directories of a deleted topic are renamed, and deleted after
                      file.delete.delay.ms
  update_metadata     adds, changes and removes brokers and topics in the view
  settings_changed    applies new settings

A partition whose log directory has failed has no log until the broker is restarted (`lost`). Clients and the
controller get KAFKA_STORAGE_ERROR for such a partition. A partition that has lost data (`replication.lost_data`) is
also answered KAFKA_STORAGE_ERROR, until another broker leads it.

After a crash between two steps: if the metadata tree has a topic without a directory, the directory is created at the
next start. A directory whose topic is not in the tree is reported and not touched. A deletion that has begun is in
/admin/delete_topics, and is completed at the next start."""

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

#: How long (in seconds) an order that creates branches waits until this broker knows the high watermarks of their
#: source partitions. A new leader knows a high watermark only after its followers have fetched. No other order is
#: carried out meanwhile. The second number is the pause between two checks, in seconds.
_SOURCES_SECONDS, _LOOK_SECONDS = 2.0, 0.01
#: The maximum number of partitions, of all topics together, that one UpdateMetadata may leave out. If it names only
#: partitions of a topic with higher numbers, the missing partitions are also added to the view.
_UNTOLD_PARTITIONS_MAX = 10_000


class Keeper(Protocol):
    """The interface of a coordinator that stores its state in an internal topic. It is notified of changes to
    topics."""

    topic_name: str

    async def count_partitions(self) -> None:
        """Reads the internal topic's number of partitions from the metadata tree (ZooKeeper's nodes). Called before
        the controller's first request for this topic is carried out."""

    def take_over(self, topic: Topic | None = None) -> None:
        """Called when the internal topic was created, or has more partitions or other leaders."""

    def give_up(self) -> None:
        """Called when the internal topic was deleted."""

    def topic_deleted(self, topic: str) -> None:
        """Called when another topic was deleted."""


class ReplicaManager:
    """The replicas of one broker. `settings` has the settings of topics. `links` fetch records from the leaders of the
    partitions that this broker follows. This class has more than 500 lines because an order (a request of the
    controller) changes logs, links and the metadata cache together: all three must be changed before the next order
    for the same partition."""

    def __init__(self, core: SharedParts, settings: SettingsRuntime, links: FollowerLinks) -> None:
        self._core = core
        self._settings = settings
        self._settings_of = settings.topic_config
        self._links = links
        #: The coordinators by the name of their internal topic; set by the broker before the first order.
        self._keepers: dict[str, Keeper] = {}
        #: Partitions of topics that are not in the view yet, by topic name and partition number.
        self._new: dict[str, dict[int, Partition]] = {}
        #: Partitions of this broker that have no log yet, because the disk failed or a branch could not be created.
        self._lacking: set[TopicPartition] = set()
        #: Partitions of branches whose logs are being created.
        self._branching: set[TopicPartition] = set()
        #: The end offset that the source had when the branch was requested, by partition of the branch.
        self._source_ends: dict[TopicPartition, int] = {}
        #: True if the log of a branch was created since the last call of `make_missing_logs`.
        self._has_branched = False
        #: Replicas that have lost data, so that this broker must not lead them.
        self._without_data: set[TopicPartition] = set()
        #: Replicas of partitions that were moved to other brokers, and have no leader now; with the topics' ids.
        self._strays: dict[TopicPartition, uuid.UUID] = {}
        self._found: Callable[[Collection[TopicPartition]], Awaitable[None]] | None = None
        self._looks_for_lag_at_ms = 0
        # Stored once for all partitions: each look-up of a bound method would create a new object.
        self._notify, self._elapsed = core.waiting.notify, self._elapsed_ms

    def keep(self, *keepers: Keeper) -> None:
        """Registers the coordinators that are notified of changes to topics."""
        self._keepers |= {keeper.topic_name: keeper for keeper in keepers}

    def refuse_to_lead(
        self,
        topic_partitions: Iterable[TopicPartition],
        found: Callable[[Collection[TopicPartition]], Awaitable[None]] | None = None,
    ) -> None:
        """Marks replicas that have lost data: this broker does not lead them until another broker has led them.
        `found` is awaited with these partitions before this broker fetches their data from other brokers. `found`
        writes to the metadata tree that the replicas no longer lack data, and raises TreeError if the tree cannot be
        reached."""
        self._without_data.update(topic_partitions)
        self._found = found

    # --- the controller's requests (orders) --------------------------------------------------------------------------

    async def lead_and_follow(self, topics: Sequence[TopicPartitions]) -> dict[TopicPartition, ErrorCode]:
        """Makes this broker the leader or a follower of each of these partitions, as the controller has decided.
        Returns the errors of the partitions that failed. Ten thousand partitions take seconds, so other requests are
        served in between."""
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
        # The sources of the branches have been made leaders or followers above.
        until = asyncio.get_running_loop().time() + _SOURCES_SECONDS
        for part, config in branches:
            errors |= await self._take(part, config, slices, until)
        return errors

    async def _take(
        self, part: TopicPartitions, config: TopicConfig, slices: Slices, until: float = 0.0
    ) -> dict[TopicPartition, ErrorCode]:
        """Makes this broker leader or follower of the partitions of one topic. The creation of a branch's log waits
        for the high watermark of the source, at most until `until` (event loop's time in seconds)."""
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
                # The order's ISR is still applied, because it may be newer.
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
        """Returns True, and logs an error, if this broker has data of an earlier topic with the same name. The data
        are not deleted, because the controller has not requested their deletion."""
        log = self._core.directories.get(topic_partition)
        if log is None or topic_id is None or log.topic_id in (None, topic_id):
            return False
        logger.error(
            "%s has no replica here: %s holds data of an earlier topic of that name. Stop this broker, move that "
            "directory away, and start the broker again.",
            topic_partition,
            log.directory,
            extra={"once_a_minute": (topic_partition.topic, "another topic")},
        )
        return True

    async def _find_data(self, topics: Sequence[TopicPartitions]) -> None:
        """Removes replicas from the list of lost replicas in the metadata tree (ZooKeeper's nodes), because this
        broker will now fetch their data from the leaders. Raises KafkaStorageError if the tree cannot be reached."""
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
        """Returns True if this replica has lost data, no other broker leads it, and unclean election is disabled."""
        is_led = leader not in (NO_LEADER, self._core.broker_id)
        return (
            topic_partition in self._without_data
            and not is_led
            and not config.boolean("unclean.leader.election.enable")
        )

    def _has_lost_data(self, topic_partition: TopicPartition, leader: int, config: TopicConfig) -> bool:
        """Returns True, and logs an error, if this replica must wait until a broker that has the lost data leads it.
        Otherwise the replica's log is used as it is."""
        if self._waits_for_data(topic_partition, leader, config):
            logger.error(
                "%s is not led here: this broker's replica was in sync, but its log is missing, is an older "
                "copy, or has lost records at its end. Start a broker that has the records, or mount the right "
                "disk and start this broker again. If no broker has these records any more, let another broker "
                "lead with the records that it has: kafka-leader-election --election-type unclean.",
                topic_partition,
                extra={"once_a_minute": (topic_partition.topic, "no data")},
            )
            return True
        self._without_data.discard(topic_partition)
        self._core.directories.take_as_it_is(topic_partition)
        return False

    async def _read_settings(self, topics: Sequence[TopicPartitions]) -> None:
        """Reads the settings of new topics, and the number of partitions of coordinators' topics. Raises
        KafkaStorageError if the metadata tree cannot be reached. In this case no part of the order has been carried
        out, and the controller repeats the order."""
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
        """Fetches from the partition's leader if another broker leads. Otherwise stops fetching."""
        log = partition.follower_log
        if log is None:
            self._links.leave(partition.topic_partition)
        else:
            self._links.follow(
                partition.topic_partition, log, partition.topic_id, partition.leader, partition.leader_epoch
            )

    async def _let_cut_end(self, topic_partition: TopicPartition) -> None:
        """Waits until a log that this broker is about to lead is no longer being truncated. A truncation that began
        while the broker was a follower may still run. The start offset of the new leader epoch is known only after
        it."""
        partition = self._known(topic_partition)
        log = None if partition is None else partition.follower_log
        if log is None or not log.is_being_cut:
            return
        self._links.leave(topic_partition)
        settled = asyncio.get_running_loop().create_future()
        settle(log, self._core.clock.now_ms(), settled.set_result)
        await settled

    async def stop(self, stops: Sequence[Stop]) -> dict[TopicPartition, ErrorCode]:
        """Stops replicas, and deletes their data if the order says so. Returns the errors of the replicas that
        failed."""
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
        for name in self._keepers.keys() & {stop.topic_partition.topic for stop in stops if stop.delete}:
            if name in self._core.view.topics:
                self._keepers[name].take_over()
        if deletes and not errors:
            try:
                # The new names are synced before the topic is removed from the metadata tree. Otherwise a crash of the
                # machine could leave directories of an unknown topic.
                await asyncio.get_running_loop().run_in_executor(
                    self._core.pool.executor, self._core.directories.sync_names
                )
            except OSError as error:
                logger.error("the names of deleted partitions could not be synced: %s", error)
        return errors

    def _delete(self, topic_partition: TopicPartition, partition: Partition | None) -> bool:
        """Deletes a replica's data. Returns False if a disk error prevents it."""
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

    async def delete_strays(self) -> None:
        """Deletes the replicas of partitions that were moved to other brokers while this broker was away. Called when
        the controller has sent all topics. A replica remains while no registered broker leads its partition, because
        it may be the only copy (`delete_led_strays`)."""
        view, broker_id = self._core.view, self._core.broker_id
        self._strays.clear()
        for topic_partition, log in self._core.directories.logs.items():
            topic = view.topics.get(topic_partition.topic)
            if topic is None or topic_partition.partition >= len(topic.partitions) or log.topic_id != topic.topic_id:
                continue
            if broker_id not in topic.partitions[topic_partition.partition].replicas:
                self._strays[topic_partition] = topic.topic_id
        await self.delete_led_strays()

    async def delete_led_strays(self) -> None:
        """Deletes those replicas that `delete_strays` has left, and whose partitions are led by registered brokers
        now."""
        view, broker_id = self._core.view, self._core.broker_id
        stops = []
        for topic_partition, topic_id in list(self._strays.items()):
            topic = view.topics.get(topic_partition.topic)
            partition = topic.partitions[topic_partition.partition] if topic is not None else None
            if topic is None or partition is None or topic.topic_id != topic_id or broker_id in partition.replicas:
                del self._strays[topic_partition]  # the topic was deleted, or the partition is assigned to this broker
            elif partition.leader in view.brokers:
                del self._strays[topic_partition]
                stops.append(Stop(topic_partition, partition.leader_epoch, delete=True))
                logger.warning(
                    "%s is deleted here: the partition was moved to the brokers %s while this broker was away",
                    topic_partition,
                    ", ".join(map(str, partition.replicas)),
                )
        if stops:
            await self.stop(stops)

    async def update_metadata(self, metadata: Metadata, controller_id: int) -> None:
        """Puts the metadata of topics and brokers, and the controller's id, into the view."""
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
                    "the controller's request about topic %s is ignored: it names partition %d, but not the partitions "
                    "before it",
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
                # This broker's own replicas got their leaders by LeaderAndIsr already, except replicas that are
                # offline.
                is_ours = self._core.broker_id in topic.node.replicas[number] and not partition.is_offline
                if not is_ours or state.leader_epoch == partition.leader_epoch:
                    self._apply_state(partition, topic)

    def settings_changed(self, entity: str) -> None:
        """Applies the changed settings of an entity: `topics/<name>` or `brokers/<id>`. Does nothing for other
        entities."""
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
        """Deletes the offsets that groups have committed for a deleted topic."""
        for keeper in self._keepers.values():
            keeper.topic_deleted(topic)

    # --- partitions and the view -------------------------------------------------------------------------------------

    @property
    def known_topics(self) -> Collection[str]:
        """Returns the names of the topics that clients see."""
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
        """Applies the controller's state of a partition: its replicas, leader, leader epoch and ISR."""
        number = partition.topic_partition.partition
        state, version = topic.partitions[number].state, topic.partitions[number].version
        if partition.replicas != topic.node.replicas[number]:
            partition.assign(topic.node.replicas[number])
        partition.led_by(state.leader, state.leader_epoch, state.isr, version)
        if partition.is_to_be_synced:
            self._core.isr_syncs.ask(partition)

    def _begins_whole(self, leader: int, isr: Collection[int]) -> bool:
        """Returns True if this broker leads a branch's partition that has this leader and ISR, or could be elected as
        its leader. Then the log is created only if it contains all committed records of the source. With False the log
        may be short or empty, because this broker fetches the missing records before it joins the ISR."""
        return leader in (NO_LEADER, self._core.broker_id) and self._core.broker_id in isr

    def _has_all_committed(self, topic_partition: TopicPartition, source: TopicPartition) -> bool:
        """Returns True if this broker certainly has all records of the source that were committed when the branch was
        requested. The leader of the source knows the high watermark when its followers have fetched. A follower may
        know an older high watermark, or lack records, for example after a crash. So a follower must be in sync, and
        all records that it had when the branch was requested must be committed."""
        partition, log = self._known(source), self._core.directories.get(source)
        if partition is None or log is None or not partition.has_log:
            return False
        if partition.leads:
            return partition.knows_high_watermark
        if self._core.broker_id not in partition.isr:
            return False
        # The end offset is stored at the first call. Records that arrive later are not waited for, because a busy
        # topic always gets more records.
        end_offset = self._source_ends.setdefault(topic_partition, log.next_offset)
        return log.high_watermark >= min(end_offset, log.next_offset)

    async def _branch(
        self, topic: TopicView, number: int, log_config: LogConfig, point: BranchPoint, until: float
    ) -> None:
        """Creates the log of a branch's partition from the log of its source. Does nothing if there is a log already.
        If the log must contain all committed records (`_begins_whole`), waits until this broker has these records, at
        most until `until`. Creates no log if records are still missing."""
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
        """Begins to create the log of a branch's partition. `done` is called with the log, or with None if the log
        could not be created. A follower for which None is passed begins with an empty log, and fetches the records
        from its leader."""
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
        """Returns the partition's log, and creates it if there is none. Returns None, and logs an error, if the log
        cannot be created because of a disk error. Also returns None if the log must be a complete copy of a branch's
        source (`is_whole`) and the copy was not made."""
        if topic_partition in self._core.directories.offline:
            logger.error(
                "%s has no log here while a log directory is offline: repair the directory, and start this "
                "broker again",
                topic_partition,
                extra={"once_a_minute": ("", "offline")},
            )
            return None
        point = branch_point(config.overrides)
        if point is not None and is_whole and self._core.directories.get(topic_partition) is None:
            logger.error(
                "%s has no log: it is to be a branch of %s, but this broker cannot make the branch, or does not "
                "know yet whether its log of the source has all committed records. The broker tries again every "
                "second. If this goes on, delete topic %s, and branch again.",
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
        """Marks these partitions as offline, because their log directory has failed."""
        for topic_partition in topic_partitions:
            self._links.leave(topic_partition)
            partition = self._known(topic_partition)
            if partition is not None:
                partition.lose_log()

    def make_missing_logs(self) -> bool:
        """Tries again to create missing logs. Returns True if a log was created since the last call. Called about once
        per second."""
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
        """Creates the missing log of a partition, if possible. `branched` is the log if it has been created from a
        branch's source, else None."""
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
        """Calls `propose` for each partition whose ISR contains a lagging follower, and collects the partitions whose
        ISR a follower may join. Called about once per second. Lag is checked twice within replica.lag.time.max.ms.
        Requests are served in between."""
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
        """Puts a topic with `count` partitions into the view. It replaces the same topic with fewer partitions.
        Replicas with higher numbers are stored for later."""
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
        """Applies the current settings of a topic to its partitions in the view."""
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
        """Removes a topic from the view. Its data are not deleted."""
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
        """Returns the current time of the monotonic clock in milliseconds."""
        return int(self._core.clock.monotonic() * 1000)


def known_to(context: ControllerContext, settings_of: Callable[[str], TopicConfig]) -> Known:
    """Returns a function for the log directories. That function returns the log settings of a partition, or None if
    the metadata tree does not have the partition."""
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
