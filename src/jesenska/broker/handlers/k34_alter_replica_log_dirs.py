"""AlterReplicaLogDirs (key 34), versions 0-2: moves replicas to other log directories of this broker (KIP-113). Each
line is what a version adds:

    0      the partitions to move, by the absolute path of their new directory
    2      compact encoding

The answer only says if a move has begun. DescribeLogDirs shows the progress of a move (`isFuture`). Results of a
partition:

  NONE                          the move begins or has begun already. If the replica is in the directory already, a
                                move to another directory is cancelled
  INVALID_TOPIC_EXCEPTION       the name of the copy's directory would be too long
  LOG_DIR_NOT_FOUND             the directory is not in log.dirs
  KAFKA_STORAGE_ERROR           the directory or the replica's current directory is offline, or the copy cannot begin
  INVALID_REPLICA_ASSIGNMENT    the directory is cordoned (KIP-1066)
  REPLICA_NOT_AVAILABLE         this broker has no replica of the partition; if it gets a replica later, the replica is
                                created in the directory
  UNKNOWN_TOPIC_OR_PARTITION    the partition does not exist; if it is created later on this broker, its replica is
                                created in the directory

A partition that is named with several directories is moved to the last of these directories."""

from __future__ import annotations

from jesenska.base.errors import (
    ErrorCode,
    InvalidReplicaAssignmentError,
    KafkaError,
    KafkaStorageError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import LogFamily
from jesenska.broker.requests.gate import handles
from jesenska.log.copies.replica_moves import require_short_name
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)


@handles(AlterReplicaLogDirsRequest, LogFamily)
def handle(uses: LogFamily, request: AlterReplicaLogDirsRequest, context: Context) -> Outcome:
    wanted = {
        TopicPartition(topic.name, number): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    topics: dict[str, AlterReplicaLogDirsResponseTopic] = {}
    for topic_partition, path in wanted.items():
        name, number = topic_partition
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AlterReplicaLogDirsResponseTopic(topic_name=name)
        topic.partitions.append(
            AlterReplicaLogDirsResponsePartition(partition_index=number, error_code=_move(uses, topic_partition, path))
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(uses: LogFamily, topic_partition: TopicPartition, path: str) -> int:
    try:
        require_short_name(topic_partition)
        directory = next((item for item in uses.directories.directories if str(item.path.absolute()) == path), None)
        if directory is None:
            raise LogDirNotFoundError
        if directory.is_offline:
            raise KafkaStorageError
        if directory.is_cordoned:
            raise InvalidReplicaAssignmentError
        uses.directories.move(topic_partition, directory)
    except ReplicaNotAvailableError as error:
        topic = uses.view.topics.get(topic_partition.topic)
        exists = topic is not None and 0 <= topic_partition.partition < len(topic.partitions)
        return error.code if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
