"""ElectLeaders (key 43): starts leader elections of partitions (KIP-183).

Versions: 1 adds unclean elections (KIP-460) and an error for the whole response, 2 the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class ElectLeadersRequestTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class ElectLeadersRequest(Message, key=43, kind=REQUEST, versions=(0, 2), flexible=2):
    election_type: int = field(INT8, since=1)
    topic_partitions: list[ElectLeadersRequestTopic] | None = field(Array(ElectLeadersRequestTopic), nullable=0)
    timeout_ms: int = field(INT32, default=60000)


class ElectLeadersResponsePartition(Struct):
    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class ElectLeadersResponseTopic(Struct):
    topic: str = field(STRING)
    partition_result: list[ElectLeadersResponsePartition] = field(Array(ElectLeadersResponsePartition))


class ElectLeadersResponse(Message, key=43, kind=RESPONSE, versions=(0, 2), flexible=2):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=1)
    replica_election_results: list[ElectLeadersResponseTopic] = field(Array(ElectLeadersResponseTopic))
