"""Plans which offsets a query reads: finds the partitions of a subscription, resolves positions to offsets, and cuts
ranges of offsets into pieces for tasks.

    subscription -> partitions -> range [start, end) of each -> pieces for tasks

Without options there is one piece per partition, and small pieces share a task (packing.py). Ranges with more offsets
than the option `maxRecordsPerPartition` are cut. Then, until there are `minPartitions` pieces, the range with the
largest pieces is cut into one more piece. Empty ranges are left out.

Offsets that the log no longer contains (retention deleted them, or the topic was deleted and created again) are data
loss. This is an error that names topic, partition and offsets. With failOnDataLoss=false it is a warning, and reading
continues at the earliest offset of the log.

A stream's position is written as {"topic": {"partition": offset, "topicId": id}}. The topic id distinguishes a topic
from a later topic of the same name (KIP-516). The topic id is missing if the broker has no topic ids (before Kafka
2.8), or if the position was written without a topic id."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from jesenska.base.errors import ErrorCode, JesenskaError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition, uuid_to_text
from jesenska.base.limits import DATA_SOURCE_LOOK_UPS_MAX, DATA_SOURCE_TASKS_MAX
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.pipeline.connector.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    TOPIC_ID,
    Position,
    SourceOptions,
    Subscription,
)
from jesenska.pipeline.patterns import topic_pattern

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of one partition from `start` up to, not including, `end`. One task reads them."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from offset {self.start} to {self.end}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The earliest offset and the end offset (after the last readable record) of each partition. It also contains the
    topic ids if the broker has topic ids."""

    earliest: Offsets
    latest: Offsets
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a stream: the next offset of each partition, and the topic ids that are known."""

    offsets: Offsets
    ids: Mapping[str, str] = field(default_factory=dict)

    def is_another(self, topic: str, ids: Mapping[str, str]) -> bool:
        """Returns True if `ids` has a different id for the topic: the topic was deleted and created again."""
        return topic in self.ids and topic in ids and self.ids[topic] != ids[topic]


class Resolved(NamedTuple):
    """The offset that a position means in each partition. `moving` contains the partitions in which the position means
    the end of the log. There it means a later offset as soon as records are written."""

    offsets: Offsets
    moving: frozenset[TopicPartition]


# --- partitions ------------------------------------------------------------------------------------------------------


async def partitions_of(
    cluster: Cluster, subscription: Subscription, *, gone_is_error: bool = True
) -> list[TopicPartition]:
    """Returns all existing partitions of the subscription, sorted. A named topic or partition that does not exist is
    an error if `gone_is_error` is True. Otherwise it is left out."""
    if subscription.pattern is not None:
        pattern = topic_pattern(subscription.pattern)
        topics = await cluster.topics()
        found = [
            info
            for name, info in topics.items()
            if pattern.fullmatch(name) and (subscription.with_internal or not info.is_internal)
        ]
        return sorted(partition.topic_partition for info in found for partition in info.partitions)
    names = list(subscription.topics) or sorted({key.topic for key in subscription.assigned})
    errors = await cluster.refresh(names)
    for error in errors.values():
        if gone_is_error or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    there = {
        partition.topic_partition
        for name in names
        if name not in errors
        for partition in (await cluster.topic(name)).partitions
    }
    if not subscription.assigned:
        return sorted(there)
    missing = [key for key in subscription.assigned if key not in there]
    if missing and gone_is_error:
        raise UnknownTopicOrPartitionError(
            f"The option assign names {missing[0]}, which does not exist: the topic has fewer partitions."
        )
    return sorted(there.intersection(subscription.assigned))


async def bounds_of(cluster: Cluster, partitions: Iterable[TopicPartition], *, read_committed: bool = False) -> Bounds:
    keys = list(partitions)
    if not keys:
        return Bounds({}, {})
    isolation = 1 if read_committed else 0
    first, last = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(keys, EARLIEST), isolation),
        list_offsets(cluster, dict.fromkeys(keys, LATEST), isolation),
    )
    infos = {topic: cluster.known(topic) for topic in {key.topic for key in keys}}
    ids = {
        topic: uuid_to_text(info.topic_id) for topic, info in infos.items() if info is not None and info.topic_id.int
    }
    return Bounds(
        {key: item.offset for key, item in first.items()}, {key: item.offset for key, item in last.items()}, ids
    )


async def present(
    cluster: Cluster,
    subscription: Subscription,
    only: Collection[TopicPartition] | None = None,
    *,
    read_committed: bool = False,
) -> Bounds:
    """Returns the bounds of the subscription's existing partitions, or of those in `only` if it is given, for a
    running stream. If a topic is deleted between the two requests of this function, the partitions are looked up
    again: the deletion must not stop the stream."""
    for _ in range(DATA_SOURCE_LOOK_UPS_MAX):
        partitions = await partitions_of(cluster, subscription, gone_is_error=False)
        keys = partitions if only is None else [key for key in partitions if key in only]
        try:
            return await bounds_of(cluster, keys, read_committed=read_committed)
        except UnknownTopicOrPartitionError as error:
            unknown = error
        await asyncio.sleep(cluster.retry_backoff_seconds)
    raise unknown


# --- offsets ---------------------------------------------------------------------------------------------------------


async def resolve(
    cluster: Cluster, position: Position, partitions: Sequence[TopicPartition], bounds: Bounds, options: SourceOptions
) -> Resolved:
    """Returns the offset that a position means in each partition. If no record has a time at or after the wanted time,
    an end position means the log's end. A start position is then an error, or with the strategy latest the log's
    end."""
    if position.everywhere is not None:
        wanted = dict.fromkeys(partitions, position.everywhere)
    else:
        wanted = dict(position.by_partition)
        _refuse_other_partitions(position, partitions)
    if not position.is_time:
        words = {EARLIEST_OFFSET: bounds.earliest, LATEST_OFFSET: bounds.latest}
        moving = frozenset(key for key, offset in wanted.items() if offset == LATEST_OFFSET)
        return Resolved(
            {key: words[offset][key] if offset in words else offset for key, offset in wanted.items()}, moving
        )
    found = await list_offsets(cluster, wanted, 1 if options.read_committed else 0)
    offsets, late = {}, set()
    for key, item in found.items():
        if item.offset >= 0:
            offsets[key] = item.offset
        elif position is options.end or options.latest_if_no_record_at_time:
            offsets[key] = bounds.latest[key]
            late.add(key)
        else:
            raise JesenskaError(
                f"{key} has no record at or after the time {wanted[key]} that {position.option} names: choose an "
                f"earlier time, "
                f"or set startingOffsetsByTimestampStrategy to latest."
            )
    return Resolved(offsets, frozenset(late))


def _refuse_other_partitions(position: Position, partitions: Sequence[TopicPartition]) -> None:
    named, there = set(position.by_partition), set(partitions)
    if there - named:
        raise JesenskaError(
            f"The option {position.option} leaves out {_listed(there - named)}: it must name every partition that is "
            f"read."
        )
    if named - there:
        raise JesenskaError(
            f"The option {position.option} names {_listed(named - there)}, which the query does not read."
        )


def _listed(keys: set[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(keys)[:5])) + (" and others" if len(keys) > 5 else "")


class DataLossError(JesenskaError):
    """The error of a query that would read offsets that the log no longer contains."""


def data_loss(sentence: str, fail: bool, remedy: str = "reading goes on at the earliest offset that is there") -> None:
    """Reports data loss: raises DataLossError if `fail` (the option failOnDataLoss) is True; otherwise logs a warning
    with `remedy`."""
    if fail:
        raise DataLossError(f"{sentence} To go on without these records, set failOnDataLoss to false.")
    logger.warning("%s As failOnDataLoss is false, %s.", sentence, remedy)


def within(wanted: OffsetRange, bounds: Bounds, fail: bool) -> OffsetRange:
    """Returns the part of the range that the log still contains. If a part of the range is missing, data loss is
    reported."""
    key = TopicPartition(wanted.topic, wanted.partition)
    earliest, latest = bounds.earliest[key], bounds.latest[key]
    start, end = wanted.start, wanted.end
    if start > latest:
        data_loss(
            f"{key} ends at offset {latest}, but the query goes on at offset {start}: the records between are gone, "
            f"or the topic was deleted and created again.",
            fail,
        )
        start, end = earliest, (latest if end < start or end > latest else end)
    if end > latest:
        data_loss(
            f"{key} ends at offset {latest}, but the query reads up to offset {end}: the records from {latest} to "
            f"{end} are gone.",
            fail,
        )
        end = latest
    if start < earliest:
        data_loss(
            f"{key} begins at offset {earliest}, but the query begins at offset {start}: the records from {start} to "
            f"{earliest} are gone.",
            fail,
        )
        start = earliest
    return replace(wanted, start=start, end=max(start, end))


async def plan_batch(cluster: Cluster, options: SourceOptions) -> list[OffsetRange]:
    """Returns the range of offsets of each partition that a batch query reads."""
    partitions = await partitions_of(cluster, options.subscription)
    bounds = await bounds_of(cluster, partitions, read_committed=options.read_committed)
    start = (await resolve(cluster, options.start, partitions, bounds, options)).offsets
    end = (await resolve(cluster, options.end, partitions, bounds, options)).offsets
    ranges = []
    for key in partitions:
        if start[key] > end[key]:
            raise JesenskaError(
                f"{key} would be read from offset {start[key]} to {end[key]}: {options.start.option} is after "
                f"{options.end.option}. Choose an earlier start or a later end."
            )
        ranges.append(
            within(OffsetRange(key.topic, key.partition, start[key], end[key]), bounds, options.fail_on_data_loss)
        )
    return ranges


# --- tasks -----------------------------------------------------------------------------------------------------------


def cut(
    ranges: Iterable[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Returns the pieces into which the ranges are cut, in order. No piece is empty."""
    whole = [item for item in ranges if item.size > 0]
    counts = [1 if max_records is None else -(-item.size // max_records) for item in whole]
    wanted = (
        0 if min_partitions is None else min(min_partitions, DATA_SOURCE_TASKS_MAX, sum(item.size for item in whole))
    )
    if sum(counts) > DATA_SOURCE_TASKS_MAX:
        raise JesenskaError(
            f"maxRecordsPerPartition={max_records} would make {sum(counts)} tasks, more than "
            f"{DATA_SOURCE_TASKS_MAX}: choose a larger number."
        )
    largest = [(-item.size / count, index) for index, (item, count) in enumerate(zip(whole, counts))]
    heapq.heapify(largest)
    for _ in range(wanted - sum(counts)):
        _, index = largest[0]
        counts[index] += 1
        heapq.heapreplace(largest, (-whole[index].size / counts[index], index))
    pieces = []
    for item, count in zip(whole, counts):
        edges = [item.start + item.size * number // count for number in range(count + 1)]
        pieces += [replace(item, start=first, end=last) for first, last in pairwise(edges)]
    return pieces


def share(limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """Returns the end offsets of a micro-batch of at most `limit` records. Each partition gets a share in proportion
    to its records that are not yet read, as in Spark. It gets at least one record while the limit allows it."""
    waiting = {key: max(0, latest[key] - start[key]) for key in latest}
    total = sum(waiting.values())
    if total <= limit:
        return dict(latest)
    portions = {key: size * limit // total for key, size in waiting.items()}
    left = limit - sum(portions.values())
    # The records that rounding left over are added first to partitions with a share of 0, then to the partitions with
    # the most unread records.
    for key in sorted(waiting, key=lambda key: (portions[key] > 0, -waiting[key], key)):
        if left <= 0:
            break
        if waiting[key] > portions[key]:
            portions[key] += 1
            left -= 1
    return {key: min(latest[key], start[key] + portions[key]) if waiting[key] else latest[key] for key in latest}


# --- offsets as Spark stores them -----------------------------------------------------------------------------------


Tree = dict[str, dict[str, int | str]]


def to_tree(offsets: Mapping[TopicPartition, int], ids: Mapping[str, str] | None = None) -> Tree:
    """Returns the offsets as {topic: {partition: offset, "topicId": id}}. The order is always the same, since Spark
    compares offsets as text."""
    tree: Tree = {}
    for key in sorted(offsets):
        tree.setdefault(key.topic, {})[str(key.partition)] = offsets[key]
    for topic, partitions in tree.items():
        if ids and topic in ids:
            partitions[TOPIC_ID] = ids[topic]
    return tree


def from_tree(tree: Mapping[str, Mapping[str, int | str]]) -> Place:
    offsets = {
        TopicPartition(topic, int(name)): int(number)
        for topic, partitions in tree.items()
        for name, number in partitions.items()
        if name != TOPIC_ID
    }
    return Place(
        offsets, {topic: str(partitions[TOPIC_ID]) for topic, partitions in tree.items() if TOPIC_ID in partitions}
    )
