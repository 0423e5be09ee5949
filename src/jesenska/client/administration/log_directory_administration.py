"""Administers the log directories of brokers: lists the replicas in them, and moves replicas between directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jesenska.base.errors import ClusterAuthorizationFailedError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.administration import Administration, error_of
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from jesenska.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


@dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    """A replica in a log directory. For a follower, `offset_lag` is the distance from the end of its log to the high
    watermark. For a future replica (one that is moving between directories), it is the distance to the end of the
    current replica. -1 means not known."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A broker's log directory. `error` is the reason why the directory cannot be read, or None. The total and the
    usable bytes of the directory's volume are -1 if the broker does not report them. A directory that `is_cordoned`
    gets no new replicas."""

    path: str
    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaOnDisk]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool = False


class LogDirectoryAdministration(Administration):
    """Methods for log directories, of the class `Admin`."""

    async def describe_log_dirs(self, broker_id: int) -> list[LogDirectory]:
        """Returns the log directories of one broker with the replicas in them. Raises ClusterAuthorizationFailedError
        if the user may not describe the cluster."""
        answer = await self.cluster.ask_broker(broker_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        whole = error_of(answer.error_code, None)
        if whole is None and not answer.results:
            # Releases before 3.2 have no error for the whole response: a client without the right gets an empty list.
            whole = ClusterAuthorizationFailedError(
                f"Broker {broker_id} reports no log directories: connect as a user who may describe the cluster."
            )
        if whole is not None:
            raise whole
        return [
            LogDirectory(
                item.log_dir,
                error_of(item.error_code, None),
                {
                    TopicPartition(topic.name, replica.partition_index): ReplicaOnDisk(
                        replica.partition_size, replica.offset_lag, replica.is_future_key
                    )
                    for topic in item.topics
                    for replica in topic.partitions
                },
                item.total_bytes,
                item.usable_bytes,
                item.is_cordoned,
            )
            for item in answer.results
        ]

    async def alter_replica_log_dirs(
        self, broker_id: int, wanted: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Asks one broker to move replicas to other log directories of that broker. A directory is named by its
        absolute path. The result of a replica is None if its move has begun, or if it is in that directory already.
        `describe_log_dirs` shows a replica that is still being moved (`is_future`).

        The error is ReplicaNotAvailableError if the broker has no such replica; if it gets the replica later, it
        creates it in that directory. It is LogDirNotFoundError if the broker has no such directory, KafkaStorageError
        if the directory is offline."""
        by_path: dict[str, dict[str, AlterReplicaLogDirsRequestTopic]] = {}
        for key, path in wanted.items():
            topics = by_path.setdefault(path, {})
            topics.setdefault(key.topic, AlterReplicaLogDirsRequestTopic(name=key.topic)).partitions.append(
                key.partition
            )
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequestDir(path=path, topics=list(topics.values()))
                for path, topics in by_path.items()
            ]
        )
        answer = await self.cluster.ask_broker(broker_id, request, AlterReplicaLogDirsResponse)
        return {
            TopicPartition(topic.topic_name, item.partition_index): error_of(item.error_code, None)
            for topic in answer.results
            for item in topic.partitions
        }
