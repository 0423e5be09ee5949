"""The replicas of this broker, and what it tells clients of topics: what the controller orders is done here, on the
disk and in the view.

    lead_and_follow     logs are made where they are lacking; partitions lead or follow as their states say
    delete              data of a topic that is being deleted are renamed, and go after file.delete.delay.ms
    update_metadata     topics come into the view, change in it, go from it
    settings_changed    settings take effect

After a crash between two steps: a topic that is in the tree and has no directory gets one at the next start; a
directory whose topic is not in the tree is named and left alone; a deletion that was begun stands in
/admin/delete_topics and is finished at the next start."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from jesenska.base.errors import JesenskaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.core import BrokerCore
from jesenska.broker.derived_settings import check_rules_of, log_config_of
from jesenska.broker.metadata_cache import INTERNAL_TOPICS, Topic
from jesenska.broker.slices import Slices
from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.context import ControllerContext, TopicView
from jesenska.controller.effects import TopicPartitions
from jesenska.groups.offsets_topic import OFFSETS_TOPIC
from jesenska.log.log_config import LogConfig
from jesenska.log.partition_loading import Known
from jesenska.log.partition_log import PartitionLog
from jesenska.metadata import paths
from jesenska.replication.partition import Partition
from jesenska.replication.replicas import Replicas

logger = logging.getLogger(__name__)


class OffsetsKeeper(Protocol):
    """Who keeps groups and their offsets, and has to know what becomes of topics."""

    def take_over(self, topic: Topic | None = None) -> None:
        """The offsets topic is there, has become larger, or is led by others."""

    def give_up(self) -> None:
        """The offsets topic is gone."""

    def topic_deleted(self, topic: str) -> None: ...


class ReplicaManager:
    """That of one broker. `settings_of` gives a topic's settings by its name."""

    def __init__(self, core: BrokerCore, settings_of: Callable[[str], TopicConfig]) -> None:
        self._core = core
        self._settings_of = settings_of
        #: Set by the broker, before the first order.
        self.offsets_keeper: OffsetsKeeper
        #: Partitions of topics that are not in the view yet, by topic.
        self._new: dict[str, dict[int, Partition]] = {}
        #: Partitions of this broker that have no log, since the disk did not let one be made.
        self._lacking: set[TopicPartition] = set()
        self._looks_for_lag_at_ms = 0
        # One object for all partitions: a method is made anew each time it is looked up.
        self._notify, self._elapsed = core.waiting.notify, self._elapsed_ms

    # --- orders ------------------------------------------------------------------------------------------------------

    async def lead_and_follow(self, topics: Sequence[TopicPartitions]) -> frozenset[TopicPartition]:
        """Has the replicas of these partitions, in the state that is told; gives those whose log could not be made.
        Ten thousand take seconds: others are served in between."""
        slices = Slices(self._core.clock)
        without_log = set()
        for topic, numbers in topics:
            config = self._settings_of(topic.name)
            for number in numbers:
                await slices()
                topic_partition = TopicPartition(topic.name, number)
                partition = self._known(topic_partition)
                if partition is None:
                    partition = self._new.setdefault(topic.name, {})[number] = self._partition(topic, number, config)
                if not partition.has_log:
                    log = self._log(topic_partition, topic.topic_id, config)
                    if log is None:
                        without_log.add(topic_partition)
                    else:
                        partition.found_log(log)
                self._told(partition, topic)
            if topic.name == OFFSETS_TOPIC and topic.name in self._core.view.topics:
                self.offsets_keeper.take_over()
        return frozenset(without_log)

    async def delete(self, name: str, numbers: Sequence[int]) -> None:
        """Gives up these replicas and their data; KafkaStorageError where the disk does not let that be done."""
        slices = Slices(self._core.clock)
        self._new.pop(name, None)
        failed: KafkaStorageError | None = None
        for number in numbers:
            await slices()
            topic_partition = TopicPartition(name, number)
            self._lacking.discard(topic_partition)
            try:
                self._core.directories.delete(topic_partition, self._core.clock.now_ms())
            except KafkaStorageError as error:
                logger.error("%s", error)
                failed = error
        if failed is not None:
            raise failed
        try:
            # Before the tree forgets the topic: else a crash of the machine could leave directories that nobody knows.
            await asyncio.get_running_loop().run_in_executor(self._core.pool.executor, self._core.directories.sync_names)
        except OSError as error:
            logger.error("the names of deleted partitions could not be synced: %s", error)

    def update_metadata(self, topics: Sequence[TopicPartitions], gone: Sequence[str]) -> None:
        """What clients are told of topics from now on."""
        for name in gone:
            self._hide(name)
        for topic, numbers in topics:
            shown = self._core.view.topics.get(topic.name)
            if shown is None or len(shown.partitions) < len(topic.node.replicas):
                self._show(topic)
            for number in numbers:
                # Replicas of this broker have been told.
                if self._core.broker_id not in topic.node.replicas[number]:
                    self._told(self._core.view.topics[topic.name].partitions[number], topic)

    def settings_changed(self, entity: str, broker_config: BrokerConfig) -> None:
        """Those of `topics/<name>` or `brokers/<id>` are others; `broker_config` is the broker's."""
        kind, _, name = entity.partition("/")
        if kind == "topics":
            self._configure(name)
        elif name in (paths.DEFAULT_ENTITY, str(self._core.broker_id)):
            self._core.reconfigure(broker_config)
            for known in list(self._core.view.topics):
                self._configure(known)

    def forget_offsets(self, topic: str) -> None:
        """Groups forget what they committed of the topic."""
        self.offsets_keeper.topic_deleted(topic)

    # --- partitions and the view -------------------------------------------------------------------------------------

    def _known(self, topic_partition: TopicPartition) -> Partition | None:
        shown = self._core.view.topics.get(topic_partition.topic)
        if shown is not None and topic_partition.partition < len(shown.partitions):
            return shown.partitions[topic_partition.partition]
        return self._new.get(topic_partition.topic, {}).get(topic_partition.partition)

    def _partition(self, topic: TopicView, number: int, config: TopicConfig) -> Partition:
        core, topic_partition = self._core, TopicPartition(topic.name, number)
        assert topic.topic_id is not None, "a controller gives every topic one"
        max_lag_ms = core.config.integer("replica.lag.time.max.ms")
        replicas = Replicas(topic_partition, core.broker_id, topic.node.replicas[number], config.integer("min.insync.replicas"), max_lag_ms)
        return Partition(topic_partition, topic.topic_id, replicas, self._notify, self._elapsed)

    def _told(self, partition: Partition, topic: TopicView) -> None:
        """What the controller says of a partition."""
        number = partition.topic_partition.partition
        state, version = topic.partitions[number].state, topic.partitions[number].version
        if partition.replicas != topic.node.replicas[number]:
            partition.assign(topic.node.replicas[number])
        partition.led_by(state.leader, state.leader_epoch, state.isr, version)

    def _log(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None, config: TopicConfig) -> PartitionLog | None:
        """The partition's log, made if it is not there; None if the disk does not let it, which is logged."""
        try:
            log = self._core.directories.create(topic_partition, topic_id, log_config_of(config), self._core.clock.now_ms())
        except (JesenskaError, OSError) as error:
            logger.error(
                "%s has no log: %s It is tried again every second.", topic_partition, error, extra={"once_a_minute": (topic_partition.topic, "no log")}
            )
            self._lacking.add(topic_partition)
            return None
        self._lacking.discard(topic_partition)
        return log

    def make_missing_logs(self) -> None:
        """Tries again to make the logs that the disk did not let be made; called now and then."""
        for topic_partition in list(self._lacking):
            topic = self._core.view.topics.get(topic_partition.topic)
            if topic is None or topic_partition.partition >= len(topic.partitions):
                continue
            log = self._log(topic_partition, topic.topic_id, topic.config)
            if log is not None:
                topic.partitions[topic_partition.partition].found_log(log)

    def propose_without_lagging(self, propose: Callable[[Partition], None]) -> None:
        """Has ISRs proposed without followers that lag behind; called now and then, and looks twice within
        replica.lag.time.max.ms."""
        now_ms = self._elapsed_ms()
        if now_ms < self._looks_for_lag_at_ms:
            return
        self._looks_for_lag_at_ms = now_ms + self._core.config.integer("replica.lag.time.max.ms") // 2
        for topic in self._core.view.topics.values():
            for partition in topic.partitions:
                if partition.drop_lagging():
                    propose(partition)

    def _show(self, topic: TopicView) -> None:
        """Puts a topic into the view, or a larger one in its place."""
        name, config = topic.name, self._settings_of(topic.name)
        before = self._core.view.topics.get(name)
        partitions = list(before.partitions) if before is not None else []
        made = self._new.pop(name, {})
        for number in range(len(partitions), len(topic.node.replicas)):
            partitions.append(made.get(number) or self._partition(topic, number, config))
        self._put(name, partitions, config)
        if name == OFFSETS_TOPIC:
            self.offsets_keeper.take_over(self._core.view.topics[name])

    def _configure(self, name: str) -> None:
        """Gives a topic its settings."""
        shown = self._core.view.topics.get(name)
        if shown is not None:
            self._put(name, shown.partitions, self._settings_of(name))

    def _put(self, name: str, partitions: list[Partition], config: TopicConfig) -> None:
        log_config = log_config_of(config)
        rules = check_rules_of(config, log_config)
        self._core.view.add(Topic(name, partitions[0].topic_id, partitions, config, log_config, rules, name in INTERNAL_TOPICS))
        for partition in partitions:
            partition.configure(log_config, config.integer("min.insync.replicas"))

    def _hide(self, name: str) -> None:
        """Takes a topic out of the view; its data stay."""
        removed = self._core.view.remove(name)
        for partition in removed.partitions if removed is not None else ():
            partition.vanish()
        for partition in self._new.pop(name, {}).values():
            partition.vanish()
        if name == OFFSETS_TOPIC:
            self.offsets_keeper.give_up()

    def _elapsed_ms(self) -> int:
        """A clock that nobody sets."""
        return int(self._core.clock.monotonic() * 1000)


def known_to(context: ControllerContext, settings_of: Callable[[str], TopicConfig]) -> Known:
    """What the log directories ask: the settings of a partition, None for one that the tree does not know."""
    configs = {name: log_config_of(settings_of(name)) for name in context.topics}

    def known(topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> LogConfig | None:
        topic = context.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.node.replicas or topic_id not in (None, topic.topic_id):
            return None
        return configs[topic_partition.topic]

    return known
