"""The consumer groups that this broker coordinates: which shard keeps a group, and when shards come and go with the
offsets topic.

Each partition of `__consumer_offsets` that this broker leads has a shard of the group coordinator
(`groups.coordinator`), which `coordination.runtime` runs. The topic is made when the first group asks for its
coordinator.

A group belongs to the partition that the number of partitions gives which the topic had when it came here, as the tree
says: orders may name some of them first. More partitions change nothing until the next start, as in Kafka. When the
topic is deleted, its shards go, and whoever waits is told to look for the coordinator anew.

Offsets of a topic that is deleted are forgotten, also while groups are being loaded: then it is done when they are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from jesenska.base.errors import CoordinatorNotAvailableError, KafkaError, TopicAlreadyExistsError
from jesenska.broker.core import BrokerCore
from jesenska.broker.metadata_cache import Topic
from jesenska.config.layers import BrokerConfig
from jesenska.coordination.loader import Reading
from jesenska.coordination.runtime import Runtime, Tenant
from jesenska.coordination.shard import Token
from jesenska.groups.coordinator import GroupCoordinator
from jesenska.groups.events import Event, Response, TopicDeleted
from jesenska.groups.offsets_topic import OFFSETS_TOPIC, partition_for
from jesenska.groups.records import encode_record, read_record
from jesenska.groups.settings import GroupSettings
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NoNodeError

logger = logging.getLogger(__name__)


def group_settings_of(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        max_size=config.integer("group.max.size"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=config.integer("offsets.retention.check.interval.ms"),
        offsets_commit_timeout_ms=config.integer("offsets.commit.timeout.ms"),
    )


class Groups:
    """All groups that this broker coordinates."""

    def __init__(self, core: BrokerCore, store: Store, create_topic: Callable[[str], Awaitable[None]]) -> None:
        self._core = core
        self._store = store
        self._create_topic = create_topic
        settings, acks = group_settings_of(core.config), core.config.integer("offsets.commit.required.acks")
        tenant = Tenant(
            name="groups",
            lost="Groups whose records are lost go back to what they committed before.",
            new_shard=lambda: GroupCoordinator(settings, lambda: str(core.machine.new_uuid())),
            encode=encode_record,
            read=read_record,
            timeout_ms=settings.offsets_commit_timeout_ms,
            # Any number but 0 and 1 asks for all in sync: counts of replicas are of 0.8's time.
            acks=acks if acks in (0, 1) else -1,
        )
        self._runtime = Runtime(tenant, Reading(core.pool.executor, core.read_region), core.clock)
        #: How many partitions the topic had when it was taken over; None while it is not here.
        self._partition_count: int | None = None
        #: Topics whose deletion ended before the first take-over; None after it.
        self._deleted_early: list[str] | None = []

    # --- coming and going --------------------------------------------------------------------------------------------

    async def ensure_topic(self) -> Topic:
        """The offsets topic, made if it is not there; CoordinatorNotAvailableError if it cannot be."""
        topic = self._core.view.topics.get(OFFSETS_TOPIC)
        if topic is None:
            try:
                await self._create_topic(OFFSETS_TOPIC)
            except TopicAlreadyExistsError:
                pass
            except KafkaError as error:
                logger.error("the topic %s could not be made: %s", OFFSETS_TOPIC, error)
                raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC} could not be made") from error
            topic = self._core.view.topics.get(OFFSETS_TOPIC)
            if topic is None:
                raise CoordinatorNotAvailableError(f"{OFFSETS_TOPIC} is not known here yet")
        self.take_over(topic)
        return topic

    async def count_partitions(self) -> None:
        """Reads in the tree how many partitions the topic has, where that is not known; TreeError where the tree
        cannot be reached."""
        if self._partition_count is not None:
            return
        try:
            data, _ = await self._store.get(paths.topic(OFFSETS_TOPIC))
        except NoNodeError:
            return
        self._partition_count = len(TopicNode.decode(data).replicas)

    def take_over(self, topic: Topic | None = None) -> None:
        """Coordinates the groups of every partition of the offsets topic that is led here, and of no other."""
        topic = topic or self._core.view.topics.get(OFFSETS_TOPIC)
        deleted, self._deleted_early = self._deleted_early, None
        if topic is None:
            return
        if self._partition_count is None:
            self._partition_count = len(topic.partitions)
        for partition in topic.partitions[: self._partition_count]:
            number = partition.topic_partition.partition
            if partition.is_served:
                self._runtime.lead(number, partition, [TopicDeleted(name) for name in deleted or ()])
            else:
                self._runtime.resign(number)

    def give_up(self) -> None:
        """The offsets topic is gone: whoever waits is told NOT_COORDINATOR, and nothing is kept."""
        self._partition_count = None
        self._runtime.resign_all()

    # --- what is asked -----------------------------------------------------------------------------------------------

    def coordinator_of(self, group_id: str) -> GroupCoordinator:
        """The coordinator of a group, for reading. NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE or
        COORDINATOR_LOAD_IN_PROGRESS otherwise."""
        return self._runtime.shard(self._partition_for(group_id))

    def leader_for(self, group_id: str) -> int:
        """The broker that leads the partition which keeps a group; -1 where nobody does."""
        topic = self._core.view.topics.get(OFFSETS_TOPIC)
        if topic is None or self._partition_count is None:
            return -1
        number = partition_for(group_id, self._partition_count)
        return topic.partitions[number].leader if number < len(topic.partitions) else -1

    def coordinators(self) -> list[GroupCoordinator]:
        """Every coordinator that is ready; COORDINATOR_LOAD_IN_PROGRESS while one is loaded. One whose log cannot be
        read does not hide the others."""
        return self._runtime.shards()

    @property
    def record_max_bytes(self) -> int:
        """How large a record of a group can be at most: `max.message.bytes` of the offsets topic."""
        topic = self._core.view.topics.get(OFFSETS_TOPIC)
        return topic.log_config.max_message_bytes if topic is not None else self._core.config.integer("message.max.bytes")

    def submit(self, group_id: str, make: Callable[[Token], Event], reply: Callable[[Response], None]) -> None:
        """Gives the coordinator of a group the event that `make` makes of a token; `reply` is called with the answer.
        KafkaError if there is none."""
        self._runtime.submit(self._partition_for(group_id), make, reply)

    def _partition_for(self, group_id: str) -> int:
        if self._partition_count is None:
            raise CoordinatorNotAvailableError
        return partition_for(group_id, self._partition_count)

    def topic_deleted(self, topic: str) -> None:
        """Groups forget the offsets of a topic that is gone, those that are being loaded as soon as they are."""
        if self._deleted_early is not None:
            self._deleted_early.append(topic)
        self._runtime.tell(TopicDeleted(topic))

    async def close(self) -> None:
        """Ends loading and timers; requests that wait are answered by their connections being closed."""
        await self._runtime.close()
