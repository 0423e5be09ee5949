"""The consumer groups that this broker coordinates. The group coordinator (`groups.coordinator`) has a shard for each
partition of `__consumer_offsets` that this broker leads.

When a topic is deleted, the groups delete the offsets of this topic. A group that is being loaded deletes them after
it is loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from jesenska.base.errors import ErrorCode
from jesenska.broker.coordinators.coordinated_topic import CoordinatedTopic
from jesenska.broker.shared_parts import SharedParts
from jesenska.config.layers import BrokerConfig
from jesenska.coordination.runtime import Tenant
from jesenska.coordination.shard import Marker
from jesenska.groups.coordinator import GroupCoordinator
from jesenska.groups.events import EndOffsets, ErrorAnswer, Response, TopicDeleted
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.groups.records import encode_record, read_record
from jesenska.groups.settings import GroupSettings
from jesenska.metadata.store import Store


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


class Groups(CoordinatedTopic[GroupCoordinator]):
    """The group coordinator of this broker, with all its shards."""

    def __init__(self, core: SharedParts, store: Store, create_topic: Callable[[str], Awaitable[None]]) -> None:
        settings, acks = group_settings_of(core.config), core.config.integer("offsets.commit.required.acks")
        tenant = Tenant(
            name="groups",
            lost="Groups whose records are lost go back to what they committed before.",
            new_shard=lambda: GroupCoordinator(settings, lambda: str(core.machine.new_uuid())),
            encode=encode_record,
            read=read_record,
            timeout_ms=settings.offsets_commit_timeout_ms,
            # Any number except 0 and 1 means the whole ISR: only Kafka 0.8 counted replicas.
            acks=acks if acks in (0, 1) else -1,
        )
        super().__init__(OFFSETS_TOPIC, tenant, core, store, create_topic)
        #: Topics that were deleted before this broker had its first shards; None afterwards.
        self._deleted_early: list[str] | None = []

    def coordinator_of(self, group_id: str) -> GroupCoordinator:
        """Returns the shard that coordinates a group. Raises the same errors as `shard_of`."""
        return self.shard_of(group_id)

    def coordinators(self) -> list[GroupCoordinator]:
        """Returns all shards of the group coordinator that are ready. Raises the same errors as `shards`."""
        return self.shards()

    @property
    def record_max_bytes(self) -> int:
        """Returns the size limit in bytes of a group's record: `max.message.bytes` of the offsets topic."""
        topic = self._core.view.topics.get(OFFSETS_TOPIC)
        return (
            topic.log_config.max_message_bytes if topic is not None else self._core.config.integer("message.max.bytes")
        )

    def keeps(self, number: int) -> bool:
        """Returns True if groups are assigned to this partition of the offsets topic. Returns False for a partition
        that was added to the topic after this broker first heard of the topic."""
        return self._partition_count is not None and number < self._partition_count

    def end(self, number: int, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        """Writes the end marker of a transaction to a partition of the offsets topic. When the marker is committed,
        the offsets of the transaction become valid or are dropped, and `done` is called. Raises KafkaError if this
        broker does not coordinate the partition's groups."""

        def reply(response: Response) -> None:
            assert isinstance(response, ErrorAnswer)
            done(response.error)

        self._runtime.submit(number, partial(EndOffsets, marker=marker), reply)

    def _events_for_new(self) -> Iterable[TopicDeleted]:
        deleted, self._deleted_early = self._deleted_early, None
        return [TopicDeleted(name) for name in deleted or ()]

    def topic_deleted(self, topic: str) -> None:
        """Deletes the offsets of a deleted topic from all groups. A group that is being loaded deletes them after it
        is loaded."""
        if self._deleted_early is not None:
            self._deleted_early.append(topic)
        self._runtime.tell(TopicDeleted(topic))
