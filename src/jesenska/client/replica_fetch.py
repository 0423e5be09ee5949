"""Fetches from one replica of a partition, which may be the leader or a follower.

A consumer gets committed records from the leader. A follower returns committed records to a debugging consumer
(replica id -2), and since Kafka 2.4 (Fetch version 11) to every consumer. A follower learns the high watermark a
little later than the leader. The request here has the replica id -2, and the highest version of Fetch in which topics
have names and not ids. Every release of Kafka accepts such a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jesenska.base.errors import ErrorCode, KafkaError, error_name
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse

_DEBUGGING_CONSUMER = -2
_NAMES_NOT_IDS = 12


@dataclass(frozen=True, slots=True)
class FetchedReplica:
    """Batches of one replica from an offset on. The last batch may be incomplete. If `error` is set, there are no
    batches, and the high watermark is -1."""

    error: KafkaError | None
    high_watermark: int
    data: memoryview


async def fetch_replicas(
    cluster: Cluster,
    broker_id: int,
    offsets: Mapping[TopicPartition, int],
    *,
    max_wait_ms: int,
    max_partition_bytes: int,
    purpose: str,
) -> dict[TopicPartition, FetchedReplica]:
    """Returns the batches that one broker has of these partitions, from the given offsets on. Waits up to
    `max_wait_ms` for new batches. The first partition gets a complete batch even if it is larger than the limit.
    Raises KafkaError if the whole request fails."""
    topics: dict[str, FetchRequestTopic] = {}
    for key, offset in offsets.items():
        topic = topics.setdefault(key.topic, FetchRequestTopic(topic=key.topic))
        topic.partitions.append(
            FetchRequestPartition(partition=key.partition, fetch_offset=offset, partition_max_bytes=max_partition_bytes)
        )
    request = FetchRequest(
        replica_id=_DEBUGGING_CONSUMER, max_wait_ms=max_wait_ms, min_bytes=1, topics=list(topics.values())
    )
    channel = await cluster.channel_of(broker_id, purpose)
    timeout_seconds = max_wait_ms / 1000 + cluster.request_timeout_seconds
    answer = await channel.request(request, FetchResponse, timeout_seconds=timeout_seconds, at_most=_NAMES_NOT_IDS)
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError.of(
            answer.error_code, f"Broker {broker_id} answers {error_name(answer.error_code)} to a fetch."
        )
    found: dict[TopicPartition, FetchedReplica] = {}
    for topic_answer in answer.responses:
        for item in topic_answer.partitions:
            error = (
                None
                if item.error_code == ErrorCode.NONE
                else KafkaError.of(item.error_code, error_name(item.error_code))
            )
            data = item.records if error is None and isinstance(item.records, memoryview) else memoryview(b"")
            found[TopicPartition(topic_answer.topic, item.partition_index)] = FetchedReplica(
                error, item.high_watermark if error is None else -1, data
            )
    return found
