"""An application's requests to the brokers. The functions list topics, create internal topics, list the end offsets of
topics, commit offsets of the consumer group, and delete records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jesenska.base.errors import TopicAlreadyExistsError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.group_administration import GroupDescription, OffsetAndMetadata
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.streams.errors import StreamsError

#: The settings of internal topics, as in Kafka Streams. Retention deletes no records: the application itself deletes
#: records after it has read them.
_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800"}


def partitions_of_topics(connection: ClusterThread) -> dict[str, int]:
    """Returns the number of partitions of every topic."""

    async def ask() -> dict[str, int]:
        return {name: len(info.partitions) for name, info in (await connection.cluster.topics()).items()}

    return connection.persist(ask)


def make_internal_topics(
    connection: ClusterThread,
    wanted: Mapping[str, int],
    there: Mapping[str, int],
    replication_factor: int,
    configs: Mapping[str, str],
) -> None:
    """Creates the internal topics that do not exist, with `configs` in addition to the usual settings. Raises
    StreamsError if a topic exists with another number of partitions."""
    for topic, count in wanted.items():
        if topic in there and there[topic] != count:
            raise StreamsError(
                f"the internal topic {topic} has {there[topic]} partitions and needs {count}, since another topic "
                f"has changed: "
                "delete the internal topics and the state of the application, and start it again."
            )
    missing = [
        NewTopic(topic, count, replication_factor, {**_CONFIGS, **configs})
        for topic, count in wanted.items()
        if topic not in there
    ]
    if not missing:
        return

    async def make() -> None:
        for name, error in (await Admin(connection.cluster).create_topics(missing)).items():
            if error is not None and not isinstance(error, TopicAlreadyExistsError):
                raise StreamsError(f"the internal topic {name} could not be created: {error}") from error
        for new in missing:
            await connection.cluster.topic(new.name, create=True)

    connection.persist(make)


def make_changelog_topics(
    connection: ClusterThread,
    wanted: Mapping[str, dict[str, str]],
    count: int,
    there: Mapping[str, int],
    replication_factor: int,
    configs: Mapping[str, str],
) -> None:
    """Creates the changelog topics of one sub-topology that do not exist, each with its own settings."""
    for topic, own in wanted.items():
        make_internal_topics(
            connection, {topic: count}, there, replication_factor, {"retention.ms": "-1", **own, **configs}
        )


def bounds(
    connection: ClusterThread, topics: Iterable[str], counts: Mapping[str, int]
) -> tuple[tuple[str, int, int, int], ...]:
    """Returns (topic, partition, first offset, end offset) for every partition of the topics."""
    keys = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]

    async def ask() -> tuple[tuple[str, int, int, int], ...]:
        first = await list_offsets(connection.cluster, dict.fromkeys(keys, EARLIEST))
        last = await list_offsets(connection.cluster, dict.fromkeys(keys, LATEST))
        return tuple((key.topic, key.partition, first[key].offset, last[key].offset) for key in keys)

    return connection.persist(ask)


def has_members(connection: ClusterThread, group_id: str) -> bool:
    """Returns True if the consumer group has members."""

    async def ask() -> bool:
        found = (await Admin(connection.cluster).describe_groups([group_id]))[group_id]
        return isinstance(found, GroupDescription) and bool(found.members)

    return connection.persist(ask)


def tell_group(connection: ClusterThread, group_id: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
    """Commits to the consumer group the offsets that a query has read. `metadata` is stored with each offset. Raises
    KafkaError if the commit fails."""
    committed = {key: OffsetAndMetadata(offset, -1, metadata) for key, offset in offsets.items()}

    async def commit() -> None:
        for error in (await Admin(connection.cluster).alter_group_offsets(group_id, committed)).values():
            if error is not None:
                raise error

    if committed:
        connection.persist(commit)


def delete_records(connection: ClusterThread, before: Mapping[TopicPartition, int]) -> None:
    """Deletes the records before these offsets. If this fails for a partition, the records stay until a later call
    deletes them."""

    async def delete() -> None:
        await Admin(connection.cluster).delete_records(dict(before))

    if before:
        connection.persist(delete)
