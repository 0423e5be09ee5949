"""AlterReplicaLogDirs (key 34): moves replicas of a broker to other log directories of that broker (KIP-113).

Versions: 2 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class AlterReplicaLogDirsRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class AlterReplicaLogDirsRequestDir(Struct):
    path: str = field(STRING)
    topics: list[AlterReplicaLogDirsRequestTopic] = field(Array(AlterReplicaLogDirsRequestTopic))


class AlterReplicaLogDirsRequest(Message, key=34, kind=REQUEST, versions=(0, 2), flexible=2):
    dirs: list[AlterReplicaLogDirsRequestDir] = field(Array(AlterReplicaLogDirsRequestDir))


class AlterReplicaLogDirsResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class AlterReplicaLogDirsResponseTopic(Struct):
    topic_name: str = field(STRING)
    partitions: list[AlterReplicaLogDirsResponsePartition] = field(Array(AlterReplicaLogDirsResponsePartition))


class AlterReplicaLogDirsResponse(Message, key=34, kind=RESPONSE, versions=(0, 2), flexible=2):
    throttle_time_ms: int = field(INT32)
    results: list[AlterReplicaLogDirsResponseTopic] = field(Array(AlterReplicaLogDirsResponseTopic))
