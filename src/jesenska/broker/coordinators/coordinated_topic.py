"""An internal topic that stores the state of a coordinator: `__consumer_offsets` for groups, `__transaction_state` for
transactions. The leader of a partition coordinates all keys (group ids or transactional ids) of the partition. This
module starts and ends the shards of the coordinator on this broker, and finds the shard of a key.

A shard is the part of the coordinator for one partition; `coordination.runtime` runs it. There is one shard for each
partition that this broker leads. The topic is created when the first client asks for a coordinator.

The partition of a key is computed from the number of partitions that the topic had in the metadata tree when this
broker first heard of the topic. The controller's first requests may name only some of the partitions, so they are not
counted. Partitions that are added later are not used until the next start, as in Kafka. When the topic is deleted, its
shards end, and waiting requests are answered NOT_COORDINATOR."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

from jesenska.base.errors import CoordinatorNotAvailableError, KafkaError, TopicAlreadyExistsError
from jesenska.broker.metadata_cache import Topic
from jesenska.broker.shared_parts import SharedParts
from jesenska.coordination.loader import Reading
from jesenska.coordination.placement import partition_for
from jesenska.coordination.runtime import Runtime, Tenant
from jesenska.coordination.shard import Shard, Token
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NoNodeError

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)


class CoordinatedTopic(Generic[S]):
    """The coordinator of groups, or of transactions, on this broker. `S` is the type of its shards."""

    def __init__(
        self,
        name: str,
        tenant: Tenant[S],
        core: SharedParts,
        store: Store,
        create_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        self.topic_name = name
        self._core = core
        self._store = store
        self._create_topic = create_topic
        self._runtime = Runtime(tenant, Reading(core.pool.executor, core.read_region), core.clock)
        #: The topic's number of partitions when this broker first heard of the topic; None if there is no topic.
        self._partition_count: int | None = None

    # --- starting and ending shards ----------------------------------------------------------------------------------

    async def ensure_topic(self) -> Topic:
        """Returns the internal topic, and creates it if it does not exist. Raises CoordinatorNotAvailableError if the
        topic cannot be created."""
        name = self.topic_name
        topic = self._core.view.topics.get(name)
        if topic is None:
            try:
                await self._create_topic(name)
            except TopicAlreadyExistsError:
                pass
            except KafkaError as error:
                logger.error("the topic %s could not be created: %s", name, error)
                raise CoordinatorNotAvailableError(f"{name} could not be created") from error
            topic = self._core.view.topics.get(name)
            if topic is None:
                raise CoordinatorNotAvailableError(f"{name} is not known here yet")
        self.take_over(topic)
        return topic

    async def count_partitions(self) -> None:
        """Reads the topic's number of partitions from the metadata tree (ZooKeeper's nodes), if it is not known yet.
        Raises TreeError if the tree cannot be reached."""
        if self._partition_count is not None:
            return
        try:
            data, _ = await self._store.get(paths.topic(self.topic_name))
        except NoNodeError:
            return
        self._partition_count = len(TopicNode.decode(data).replicas)

    def take_over(self, topic: Topic | None = None) -> None:
        """Runs a shard for every partition of the topic that this broker leads, and ends the shards of all other
        partitions."""
        topic = topic or self._core.view.topics.get(self.topic_name)
        events = list(self._events_for_new())
        if topic is None:
            return
        if self._partition_count is None:
            self._partition_count = len(topic.partitions)
        for partition in topic.partitions[: self._partition_count]:
            number = partition.topic_partition.partition
            if partition.is_served:
                self._runtime.lead(number, partition, events)
            else:
                self._resign(number)

    def give_up(self) -> None:
        """Ends all shards, because the topic is deleted. Waiting requests are answered NOT_COORDINATOR."""
        count, self._partition_count = self._partition_count, None
        for number in range(count or 0):
            self._resign(number)

    def _resign(self, number: int) -> None:
        self._runtime.resign(number)

    def _events_for_new(self) -> Iterable[Any]:
        """Returns the events that each new shard gets first. By default there are no events; subclasses may override
        this method."""
        return ()

    def topic_deleted(self, topic: str) -> None:
        """Called when another topic has been deleted. Does nothing by default; subclasses may override this."""

    # --- looking up and using shards ---------------------------------------------------------------------------------

    def shard_of(self, key: str) -> S:
        """Returns the shard of a key (group id or transactional id), for reading. Raises NOT_COORDINATOR,
        COORDINATOR_NOT_AVAILABLE or COORDINATOR_LOAD_IN_PROGRESS if the shard is not ready."""
        return self._runtime.shard(self.partition_for(key))

    def leader_for(self, key: str) -> int:
        """Returns the broker id of the leader of a key's partition; -1 if the partition has no leader."""
        topic = self._core.view.topics.get(self.topic_name)
        if topic is None or self._partition_count is None:
            return -1
        number = partition_for(key, self._partition_count)
        return topic.partitions[number].leader if number < len(topic.partitions) else -1

    def shards(self) -> list[S]:
        """Returns all shards that are ready. Raises COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded. A
        shard whose log cannot be read is left out."""
        return self._runtime.shards()

    def submit(self, key: str, make: Callable[[Token], Any], reply: Callable[[Any], None]) -> None:
        """Passes an event to the shard of a key: the event that `make` returns for a token. `reply` is called with the
        answer. Raises KafkaError if this broker has no shard for the key."""
        self._runtime.submit(self.partition_for(key), make, reply)

    def partition_for(self, key: str) -> int:
        """Returns the number of a key's partition. Raises CoordinatorNotAvailableError if the coordinator's topic does
        not exist yet."""
        if self._partition_count is None:
            raise CoordinatorNotAvailableError
        return partition_for(key, self._partition_count)

    async def close(self) -> None:
        """Stops loading shards, and stops the timers of all shards. Waiting requests get no answer, because their
        connections are closed."""
        await self._runtime.close()
