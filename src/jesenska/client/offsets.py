"""Looks up offsets by timestamp, for the consumer, tools and the Spark pipeline. The leader of each partition is
asked, in one request per broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError, RequestTimedOutError, error_name
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


class FoundOffset(NamedTuple):
    """The result of a look-up: an offset (-1: no record at or after the timestamp), the timestamp of its record (-1 if
    there is no record at the offset), and its leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster, times: Mapping[TopicPartition, int], isolation_level: int = 0
) -> dict[TopicPartition, FoundOffset]:
    """Returns for each partition the first offset at or after a timestamp in ms, or the offset of a special time such
    as EARLIEST or LATEST. After errors that may pass the request is repeated."""
    found: dict[TopicPartition, FoundOffset] = {}
    deadline = cluster.clock.monotonic() + cluster.request_timeout_seconds
    failure: KafkaError | None = None
    attempts = 0
    while len(found) < len(times):
        attempts += 1
        by_leader: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for key, time in times.items():
            if key not in found:
                info = await cluster.leader_of(key)
                by_leader.setdefault(info.leader, {})[key] = time, info.leader_epoch
        for leader, wanted in by_leader.items():
            try:
                await _ask(cluster, leader, wanted, isolation_level, found)
            except KafkaError as error:
                if not error.retriable:
                    raise
                failure = error
                for key in wanted:
                    cluster.forget_topic(key.topic)
        if len(found) == len(times):
            break
        if cluster.clock.monotonic() > deadline:
            raise failure or RequestTimedOutError("The brokers did not answer ListOffsets in time.")
        await asyncio.sleep(cluster.retry_pause_seconds(attempts))
    return found


async def _ask(
    cluster: Cluster,
    leader: int,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    isolation_level: int,
    found: dict[TopicPartition, FoundOffset],
) -> None:
    """Sends a ListOffsets request to one leader. Each partition has the leader epoch of the metadata, so that a broker
    with another epoch refuses it."""
    topics: dict[str, ListOffsetsRequestTopic] = {}
    for key, (time, leader_epoch) in wanted.items():
        topic = topics.setdefault(key.topic, ListOffsetsRequestTopic(name=key.topic))
        topic.partitions.append(
            ListOffsetsRequestPartition(
                partition_index=key.partition, current_leader_epoch=leader_epoch, timestamp=time
            )
        )
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=list(topics.values()), timeout_ms=30_000
    )
    answer = await cluster.ask_broker(leader, request, ListOffsetsResponse)
    for topic_answer in answer.topics:
        for item in topic_answer.partitions:
            key = TopicPartition(topic_answer.name, item.partition_index)
            if item.error_code != ErrorCode.NONE:
                raise KafkaError.of(
                    item.error_code, f"{key}: the broker answers {error_name(item.error_code)} to a look-up of offsets."
                )
            found[key] = FoundOffset(item.offset, item.timestamp, item.leader_epoch)
