"""The two readers of kafka-console-consumer. `Assigned` reads partitions without a group, `ReadingMember` is a member
of a group.

    Assigned          every partition of the topics, or the partition of --partition; nothing is committed
    ReadingMember     the partitions that the group assigns to this member; positions are committed every few seconds,
                      before a rebalance and at the end. The member leaves the group when it ends, also on Ctrl-C,
                      SIGTERM and SIGHUP. After kill -9 the group assigns its partitions to other members when its
                      session expires, and they read again from the last commit.

Both repeatedly look for new topics that match a pattern. Only `Assigned` looks for new partitions of a topic that it
already reads."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jesenska.base.errors import (
    InvalidRequestError,
    JesenskaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster, TopicInfo
from jesenska.client.consumer import Consumer, Fetched
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.assignors import ASSIGNORS
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.offsets import EARLIEST

#: The names of assignors in the protocol, by the names of Kafka's classes in `partition.assignment.strategy`.
_ASSIGNOR_CLASSES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


class RecordReader(Protocol):
    async def look(self) -> None:
        """Looks for new topics and partitions, and adds them. The first call starts reading."""

    def idle(self) -> bool:
        """Returns True if no record can be read: there is no record now, and no partition that could get records."""

    async def poll_raw(self, timeout_seconds: float) -> list[Fetched]: ...

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """Notes that `poll` has returned the records of the partition from `offset` on, but that they were not used.
        So they must not be committed."""

    async def close(self) -> None: ...


class ReadTopics:
    """The topics of `--topic` or `--include`. They are requested again at each call of `now`. If `waits`, a named
    topic need not exist yet. If `creates`, the request lets brokers create the topic (`auto.create.topics.enable`)."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str | None,
        pattern: re.Pattern[str] | None,
        *,
        internal: bool,
        waits: bool = False,
        creates: bool = False,
    ) -> None:
        self._cluster, self._topic, self._pattern, self._internal, self._waits, self._creates = (
            cluster,
            topic,
            pattern,
            internal,
            waits,
            creates,
        )
        self._is_printed = False

    async def now(self) -> list[TopicInfo]:
        """Returns the existing topics. Raises UnknownTopicOrPartitionError if a named topic does not exist, unless
        `waits` is set."""
        if self._pattern is not None:
            topics = (await self._cluster.topics()).values()
            return [
                topic
                for topic in topics
                if self._pattern.fullmatch(topic.name) and (self._internal or not topic.is_internal)
            ]
        assert self._topic is not None
        if self._waits:
            error = (await self._cluster.refresh([self._topic], create=self._creates)).get(self._topic)
            if isinstance(error, UnknownTopicOrPartitionError | LeaderNotAvailableError):
                self._tell()
                return []
        return [await self._cluster.topic(self._topic)]

    def _tell(self) -> None:
        if not self._is_printed:
            self._is_printed = True
            print(
                f"The topic {self._topic} does not exist yet: waiting for it (Ctrl-C ends that).",
                file=sys.stderr,
                flush=True,
            )


class Assigned:
    """Reads assigned partitions, without a group. Partitions that appear later are read from their beginning, since
    all their records are new."""

    def __init__(self, consumer: Consumer, topics: ReadTopics, partition: int | None, start: int) -> None:
        self._consumer, self._topics, self._partition, self._start = consumer, topics, partition, start

    async def look(self) -> None:
        wanted: set[TopicPartition] = set()
        for topic in await self._topics.now():
            keys = [item.topic_partition for item in topic.partitions]
            if self._partition is not None and self._partition >= len(keys):
                raise JesenskaError(
                    f"Topic {topic.name} has {len(keys)} partitions, none with the number {self._partition}."
                )
            wanted |= set(keys) if self._partition is None else {keys[self._partition]}
        assigned = self._consumer.assignment()
        if wanted - assigned:
            positions = {key: self._consumer.position(key) for key in assigned}
            await self._consumer.assign(positions | dict.fromkeys(wanted - assigned, self._start))
        self._start = EARLIEST

    def idle(self) -> bool:
        return not self._consumer.assignment()

    async def poll_raw(self, timeout_seconds: float) -> list[Fetched]:
        return await self._consumer.poll_raw(timeout_seconds)

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """Does nothing, because a reader without a group commits no offsets."""

    async def close(self) -> None:
        await self._consumer.close()


class ReadingMember:
    """Reads the partitions that a group assigns to this member, and commits its positions."""

    def __init__(self, consumer: GroupConsumer, topics: ReadTopics) -> None:
        self._consumer, self._topics = consumer, topics

    async def look(self) -> None:
        self._consumer.subscribe([topic.name for topic in await self._topics.now()])

    def idle(self) -> bool:
        return not self._consumer.topics

    async def poll_raw(self, timeout_seconds: float) -> list[Fetched]:
        return await self._consumer.poll_raw(timeout_seconds)

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        if partition in self._consumer.assignment():
            self._consumer.seek(partition, offset)

    async def close(self) -> None:
        await self._consumer.close()


def fetch_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a consumer's keyword arguments for fetching, made from its settings. They are the same with and without
    a group."""
    reset = settings["auto.offset.reset"]
    return {
        "max_wait_seconds": settings["fetch.max.wait.ms"] / 1000,
        "min_bytes": settings["fetch.min.bytes"],
        "max_bytes": settings["fetch.max.bytes"],
        "max_partition_bytes": settings["max.partition.fetch.bytes"],
        "auto_offset_reset": {"largest": "latest", "smallest": "earliest"}.get(reset, reset),
        "isolation_level": 1 if settings["isolation.level"] == "read_committed" else 0,
        "check_crcs": settings["check.crcs"],
        "max_poll_records": settings["max.poll.records"],
        "rack": settings["client.rack"],
    }


def group_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the additional keyword arguments of a consumer with a group, made from its settings."""
    if settings["heartbeat.interval.ms"] >= settings["session.timeout.ms"]:
        raise InvalidRequestError("heartbeat.interval.ms must be smaller than session.timeout.ms, best a third of it.")
    return {
        "membership": MembershipOptions(
            assignors=tuple(assignor_of(name) for name in settings["partition.assignment.strategy"]),
            group_instance_id=settings["group.instance.id"],
            session_timeout_seconds=settings["session.timeout.ms"] / 1000,
            max_poll_interval_seconds=settings["max.poll.interval.ms"] / 1000,
            heartbeat_seconds=settings["heartbeat.interval.ms"] / 1000,
        ),
        "auto_commit_seconds": settings["auto.commit.interval.ms"] / 1000 if settings["enable.auto.commit"] else None,
    }


def assignor_of(name: str) -> str:
    """Returns an assignor's name in the protocol. `name` is this name, or the name of Kafka's class."""
    found = _ASSIGNOR_CLASSES.get(name.rpartition(".")[2], name)
    if found not in ASSIGNORS:
        raise InvalidRequestError(f"partition.assignment.strategy names {name}: use {', '.join(ASSIGNORS)}.")
    return found


def group_of(options: argparse.Namespace, sources: Sequence[Mapping[str, str]]) -> str | None:
    """Returns the group of `--group`, or of `group.id` in the settings. Returns None if neither is given. Raises
    JesenskaError if different groups are given."""
    given = [options.group, *(source.get("group.id") for source in sources)]
    names = list(dict.fromkeys(name.strip() for name in given if name is not None))
    if len(names) > 1:
        quoted = ", ".join(f"'{name}'" for name in names)
        raise JesenskaError(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            "'--command-config') "
            f"do not match. Detected group ids: {quoted}."
        )
    if names == [""]:
        raise JesenskaError("The group's name is empty: give --group a name, or leave it out.")
    return names[0] if names else None
