"""Readers for the crash tests: members of groups, ours and librdkafka's, that commit the offsets of their records and
note each acknowledged commit.

A group's committed offset of a partition must be at least as high as every offset that was acknowledged, or seen,
before the request. So every check first takes the highest of these as the floor, and then compares the answer with it.
Commits in flight may or may not count yet.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.client.group import GroupConsumer
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.positions import Position

_REBALANCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
_SESSION_SECONDS = 10
#: The interval between the heartbeats of a member of ours.
_HEARTBEAT_SECONDS = 0.3


class GroupLedger:
    """The offsets that the members of some groups have read and committed, over all threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: Offsets that were read, by group and partition.
        self.read: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
        #: The largest committed offset that was acknowledged or seen, by group and partition.
        self.floor: dict[tuple[str, TopicPartition], int] = {}
        #: Acknowledged commits by group.
        self.commits: dict[str, int] = defaultdict(int)
        self.failures: list[str] = []
        self.stopping = threading.Event()

    def has_read(self, group: str, key: TopicPartition, offsets: list[int]) -> None:
        with self._changed:
            self.read[group, key].update(offsets)

    def has_committed(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        with self._changed:
            self.commits[group] += 1
            for key, offset in offsets.items():
                self.floor[group, key] = max(offset, self.floor.get((group, key), 0))
            self._changed.notify_all()

    def floors(self, group: str) -> dict[TopicPartition, int]:
        with self._changed:
            return {key: offset for (name, key), offset in self.floor.items() if name == group}

    def has_seen(
        self, group: str, before: Mapping[TopicPartition, int], seen: Mapping[TopicPartition, int], who: str
    ) -> None:
        """Checks the coordinator's answer `seen` for committed offsets. `before` was the floor when it was
        requested."""
        with self._changed:
            for key, offset in before.items():
                if seen.get(key, -1) < offset:
                    self.failures.append(
                        f"{who}: {group} had {offset} committed for {key}, and now has {seen.get(key)}"
                    )
            for key, offset in seen.items():
                self.floor[group, key] = max(offset, self.floor.get((group, key), 0))
            self._changed.notify_all()

    def fail(self, what: str) -> None:
        with self._changed:
            self.failures.append(what)
            self._changed.notify_all()

    def wait_for_commits(
        self, groups: list[str], more: int, seconds: float = 90, since: Mapping[str, int] | None = None
    ) -> None:
        """Returns when each of the groups has this number of acknowledged commits more than now, or than in
        `since`."""
        with self._changed:
            before = self.commits if since is None else since
            until = {group: before.get(group, 0) + more for group in groups}
            resumed = self._changed.wait_for(
                lambda: bool(self.failures) or all(self.commits[group] >= count for group, count in until.items()),
                seconds,
            )
            assert self.failures == []
            assert resumed, f"groups stand still: {dict(self.commits)}, wanted {until}"

    def wait_for_ends(self, groups: list[str], ends: Mapping[TopicPartition, int], seconds: float = 120) -> None:
        """Returns when each of the groups has committed everything."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: (
                    bool(self.failures)
                    or all(self.floor.get((group, key), 0) >= end for group in groups for key, end in ends.items())
                ),
                seconds,
            )
            assert self.failures == []
            assert done, f"groups do not get to the ends {ends}: {self.floor}"


class WatchedMember(GroupConsumer):
    """A member of ours whose starting offsets are checked, too."""

    ledger: GroupLedger

    async def committed_positions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        wanted = set(keys)
        before = {key: offset for key, offset in self.ledger.floors(self.group_id).items() if key in wanted}
        found = await super().committed_positions(wanted)
        offsets = {key: position.offset for key, position in found.items()}
        self.ledger.has_seen(self.group_id, before, offsets, "a member of ours that joins")
        return found


async def keep_reading(member: GroupConsumer, ledger: GroupLedger, stopping: Callable[[], bool]) -> None:
    """Polls, notes and commits. Ignores errors of rebalances and of a stopped broker."""
    group, owed = member.group_id, False
    while not stopping():
        try:
            found = await member.poll(0.2, 2000)
            for key, records in found.items():
                ledger.has_read(group, key, [record.offset for record in records])
            owed = owed or bool(found)
            positions = {key: member.position(key) for key in member.assignment()}
            if owed and positions:
                await member.commit(positions)
                ledger.has_committed(group, positions)
                owed = False
        except KafkaError as error:
            if not error.retriable and error.code not in _REBALANCED:
                raise
            await asyncio.sleep(0.02)


async def read_in_group(
    bootstrap: str, ledger: GroupLedger, group: str, topic: str, assignors: tuple[str, ...] = ("range",)
) -> None:
    """Our own client: polls, notes and commits until it is stopped."""
    cluster = Cluster(bootstrap)
    try:
        member = WatchedMember(
            cluster,
            group,
            [topic],
            MembershipOptions(
                assignors=assignors, session_timeout_seconds=_SESSION_SECONDS, heartbeat_seconds=_HEARTBEAT_SECONDS
            ),
            auto_commit_seconds=None,
            auto_offset_reset="earliest",
            max_wait_seconds=0.1,
        )
        member.ledger = ledger
        async with member:
            await keep_reading(member, ledger, ledger.stopping.is_set)
    except Exception as error:
        ledger.fail(f"{group}: {error!r}")
    finally:
        await cluster.close()


def read_with_librdkafka(bootstrap: str, ledger: GroupLedger, group: str, topic: str) -> None:
    """Reads in the same way with confluent-kafka."""
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": _SESSION_SECONDS * 1000,
            "heartbeat.interval.ms": 300,
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        owed = False
        while not ledger.stopping.is_set():
            messages: list[Any] = [message for message in consumer.consume(1000, 0.2) if message.error() is None]
            for message in messages:
                ledger.has_read(group, TopicPartition(message.topic(), message.partition()), [message.offset()])
            owed = owed or bool(messages)
            if not owed:
                continue
            try:
                # Records that it got from the partitions that it owns now.
                answer = consumer.commit(asynchronous=False)
            except KafkaException:
                continue  # the broker is gone, or there is a rebalance: nothing was acknowledged
            done = [item for item in answer or [] if not item.error and item.offset >= 0]
            ledger.has_committed(group, {TopicPartition(item.topic, item.partition): item.offset for item in done})
            owed = False
    except Exception as error:
        ledger.fail(f"{group}: {error!r}")
    finally:
        consumer.close()


def look_at_offsets(bootstrap: str, ledger: GroupLedger, groups: list[str]) -> None:
    """Requests the committed offsets of each group and compares them."""

    async def work() -> None:
        cluster = Cluster(bootstrap)
        try:
            for group in groups:
                before = ledger.floors(group)
                found = await Admin(cluster).list_group_offsets(group)
                ledger.has_seen(group, before, {key: item.offset for key, item in found.items()}, "a look from outside")
        finally:
            await cluster.close()

    asyncio.run(work())
