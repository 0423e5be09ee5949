"""Starts a broker, in this process, on the disk of a machine after a crash, and compares its records with those that
had been acknowledged by then."""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.cli.shared.configuration import broker_config
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.branches import branch_point
from jesenska.log.compaction.log_cleaner import CleanerSettings
from jesenska.log.disk.checkpoints import RECOVERY_POINTS, OffsetCheckpoint
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import read_log
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from jesenska.records.header import read_header
from tests.processes.crash.compacted_records import wrong_with_newest
from tests.processes.crash.disk_workload import (
    BOTH,
    COMPACTED,
    DIRECTORIES,
    KEPT,
    PARTITIONS,
    SETTINGS,
    TRIMMED,
    Acknowledged,
    BranchMade,
    Committed,
    LimitSet,
    Produced,
    ProducerIdGiven,
    SentRecord,
    Told,
    TopicGone,
    TopicMade,
)
from tests.processes.crash.traced_disk import KILLED, Op

_READ_BYTES = 1024 * 1024
#: Settings that stop the background work of a broker that is judged.
_STILL = {"log.cleaner.enable": "false", "log.retention.check.interval.ms": "1000000000"}
#: The record that the judge writes.
_AFTERWARDS = SentRecord(b"the judge's", b"after the crash", "the judge", 0)


class Answers:
    """Finds, operation by operation, the answers that had been sent before it."""

    def __init__(self, acknowledged: Iterable[Acknowledged]) -> None:
        self._waiting: dict[tuple[int, int], list[Acknowledged]] = defaultdict(list)
        for item in acknowledged:
            self._waiting[item.life, item.port].append(item)
        for items in self._waiting.values():
            items.sort(key=lambda item: item.end_byte)
        self._sent: dict[tuple[int, int], int] = defaultdict(int)
        self._life = 1

    def answered_by(self, op: Op) -> list[Acknowledged]:
        if op.kind == KILLED:
            self._life += 1
        if op.kind != b"S":
            return []
        stream = self._life, op.a
        self._sent[stream] += op.b
        waiting = self._waiting.get(stream, [])
        count = bisect_right(waiting, self._sent[stream], key=lambda item: item.end_byte)
        done = waiting[:count]
        del waiting[:count]
        return done

    def left(self) -> int:
        """The answers that are not in the trace."""
        return sum(map(len, self._waiting.values()))


class LogStart(NamedTuple):
    """The log start offset after retention has deleted the records before it."""

    topic_partition: TopicPartition
    offset: int


class Facts:
    """The facts that must be true at one moment."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, dict[int, SentRecord]] = defaultdict(dict)
        #: The last record of each writer.
        self.last_numbers: dict[str, int] = {}
        self.last_batches: dict[tuple[TopicPartition, int], Produced] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.made: set[str] = set()
        self.gone: set[str] = set()
        self.producer_id = -1
        self.limit = 0
        #: The highest offset at which a log may begin. Retention and requests have deleted the records before it.
        self.starts: dict[TopicPartition, int] = {}

    def add(self, what: object) -> None:
        match what:
            case Produced(key, base_offset, records, _, producer_id):
                self.records[key].update(enumerate(records, base_offset))
                self.last_numbers[records[-1].writer] = max(
                    records[-1].number, self.last_numbers.get(records[-1].writer, -1)
                )
                if producer_id >= 0:
                    self.last_batches[key, producer_id] = what
            case Committed(group, key, offset):
                self.committed[group, key] = max(offset, self.committed.get((group, key), -1))
            case TopicMade(name):
                self.made.add(name)
            case BranchMade(name):
                self.add_branch(what)
            case TopicGone(name):
                self.gone.add(name)
            case ProducerIdGiven(producer_id):
                self.producer_id = max(producer_id, self.producer_id)
            case LogStart(key, offset):
                self.starts[key] = max(offset, self.starts.get(key, 0))
            case LimitSet(limit):
                self.limit = max(limit, self.limit)

    def add_branch(self, branch: BranchMade) -> None:
        """Adds a branch, which has the records that its source had at the time of the request."""
        self.made.add(branch.name)
        for item in branch.held:
            self.records[TopicPartition(branch.name, item.topic_partition.partition)].update(
                enumerate(item.records, item.base_offset)
            )


async def judge(root: Path, facts: Facts, told: Told, *, again: bool) -> None:
    """Raises AssertionError, or the broker's error, where something is missing. `again`: everything is compacted, and
    a broker starts a second time on the result of recovery and compaction."""
    known: dict[TopicPartition, int] = {}
    for name in DIRECTORIES:
        known.update(OffsetCheckpoint(root / name / RECOVERY_POINTS, FileLayer()).read())
    for turn in range(1 + again):
        broker = Broker(_config(root))
        try:
            await broker.start()
            await _compare(broker, facts, told, known, write=turn == 0)
            if again and turn == 0:
                await _compact(broker)
                _compare_logs(broker, facts, told, known)
        finally:
            await broker.stop()


def _config(root: Path) -> BrokerConfig:
    defaults = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(str(root / name) for name in DIRECTORIES),
        "broker.id": "1",
        "offsets.topic.replication.factor": "1",
    }
    overrides = {**SETTINGS, **_STILL}
    return broker_config(
        defaults=defaults, overrides=[f"{name}={value}" for name, value in overrides.items()], environment={}
    )


async def _compact(broker: Broker) -> None:
    """Compacts all dirty parts, up to the ends of the logs. All tombstones are old enough to be removed."""
    cleaner, now_ms = broker.directories.cleaner, broker.clock.now_ms()
    assert cleaner is not None
    for log in broker.directories.logs.values():
        if log.config.compact and log.active_segment.size_bytes:
            log.roll(now_ms)
    cleaner.reconfigure(CleanerSettings(backoff_ms=0))
    cleaner.look()
    while cleaner.is_at_work:
        await asyncio.sleep(0.001)
    assert not cleaner.uncleanable, f"logs cannot be compacted: {cleaner.uncleanable}"
    cleaner.reconfigure(CleanerSettings(enable=False))


async def _compare(broker: Broker, facts: Facts, told: Told, known: dict[TopicPartition, int], *, write: bool) -> None:
    topics = broker.view.topics
    missing = facts.made - told.doomed - topics.keys()
    assert not missing, f"topics are lost: {sorted(missing)}"
    assert not facts.gone & topics.keys(), f"deleted topics are back: {sorted(facts.gone & topics.keys())}"
    for name in facts.made & topics.keys():
        assert all(partition.is_served for partition in topics[name].partitions), f"{name} has no log"
        if name.startswith("round"):
            assert topics[name].log_config.retention_ms == 1234567, f"{name} has lost its settings"
        assert topics[name].log_config.compact == (name in (COMPACTED, BOTH) or name.endswith(COMPACTED)), (
            f"{name} has lost its policy"
        )
    if facts.limit:
        assert facts.limit <= topics[KEPT].log_config.max_message_bytes <= told.limit, "a setting is lost"
    for name in told.branches.keys() & topics.keys() - facts.made:
        # The branch was not acknowledged: it is there as a whole, or still being made.
        if branch_point(topics[name].config.overrides) is None:
            facts.add_branch(told.branches[name])
    new_id = await broker.control.producer_ids.new()
    assert new_id > facts.producer_id, f"producer id {new_id} was given out before"
    newest = _compare_logs(broker, facts, told, known)
    await _compare_groups(broker, facts)
    for (key, producer_id), item in facts.last_batches.items():
        # A producers' snapshot has Kafka's format, which keeps the newest batch of each: an older one may be
        # forgotten.
        if item.base_offset >= facts.starts.get(key, 0) and newest.get((key, producer_id)) == item.base_offset:
            log = broker.directories.logs[key]
            batch = bytearray(item.batch)
            try:
                result = append_at_once(log, memoryview(batch), [read_header(batch)], 1_000_000, broker.clock.now_ms())
            except KafkaError as error:
                raise AssertionError(f"{key}: producer {producer_id} is not remembered: {error!r}") from error
            assert (result.duplicate, result.base_offset) == (True, item.base_offset), (
                f"{key}: the last batch of producer {producer_id} was taken twice"
            )
    if write and KEPT in topics:
        # It takes more, and the next start finds it.
        log = broker.directories.logs[TopicPartition(KEPT, 0)]
        told.send(_AFTERWARDS)
        batch = encode_batch([(broker.clock.now_ms(), _AFTERWARDS.key, _AFTERWARDS.value, ())])
        end = log.log_end_offset
        assert (
            append_at_once(
                log,
                memoryview(batch),
                [read_header(batch)],
                topics[KEPT].partitions[0].leader_epoch,
                broker.clock.now_ms(),
            ).base_offset
            == end
        )


def _compare_logs(
    broker: Broker, facts: Facts, told: Told, known: dict[TopicPartition, int]
) -> dict[tuple[TopicPartition, int], int]:
    """Returns the offset at which the newest batch of each producer begins."""
    newest: dict[tuple[TopicPartition, int], int] = {}
    for name, topic in broker.view.topics.items():
        if name in PARTITIONS or name in told.branches:
            for partition in topic.partitions if all(partition.is_served for partition in topic.partitions) else ():
                newest.update(
                    _compare_log(partition.leader_log(), facts, told, holes=not known.get(partition.topic_partition))
                )
    return newest


def _compare_log(log: PartitionLog, facts: Facts, told: Told, *, holes: bool) -> dict[tuple[TopicPartition, int], int]:
    """Returns the offset at which the newest batch of each producer begins. `holes`: without a recovery point, records
    that were not acknowledged may be missing before others."""
    newest: dict[tuple[TopicPartition, int], int] = {}
    key, compact = log.topic_partition, log.config.compact
    start = facts.starts.get(key, 0)
    if key.topic == TRIMMED:
        start = max(start, told.trimmed_to)
    assert log.log_start_offset <= start, (
        f"{key} begins at {log.log_start_offset}, and nothing from {start} on may be deleted"
    )
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset, last = log.log_start_offset, -1
    while (region := read_log(log, offset, _READ_BYTES).region) is not None:
        try:
            data = os.pread(region.file.fileno(), region.size_bytes, region.position)
        finally:
            region.release()
        for position, header in iter_headers(data):
            assert holes or compact or offset <= start or header.base_offset <= offset, (
                f"{key}: there is a hole from {offset} to {header.base_offset}"
            )
            for record in decode_batch(data, position, header=header):
                assert record.offset > last, f"{key}: the offsets do not go up at {record.offset}"
                found[record.offset] = record.key, record.value
                last = record.offset
            newest[key, header.producer_id] = header.base_offset
            offset = header.next_offset
    assert offset == log.log_end_offset, f"{key} is read to {offset} and ends at {log.log_end_offset}: {log.segments}"
    acknowledged = facts.records.get(key, {})
    assert offset > max(acknowledged, default=-1), f"{key} ends at {offset} and had {max(acknowledged)}"
    for number, sent in acknowledged.items():
        if number in found or (number >= start and not compact):
            assert found.get(number) == (sent.key, sent.value), (
                f"{key}: the acknowledged record at {number} is {'lost' if number not in found else 'another'} (end "
                f"{offset})"
            )
    if compact:
        wrong = wrong_with_newest(
            found, acknowledged, start, lambda sent: told.may_be_deleted(sent, facts.last_numbers.get(sent.writer, -1))
        )
        assert wrong is None, f"{key}: {wrong}"
    afterwards = _AFTERWARDS.key, _AFTERWARDS.value
    values = [value for _, value in found.values() if value is not None and value != _AFTERWARDS.value]
    assert len(values) == len(set(values)), f"{key} holds a record twice"
    assert told.sent >= set(found.values()) - {afterwards}, f"{key} holds what nobody sent"
    return newest


async def _compare_groups(broker: Broker, facts: Facts) -> None:
    if not facts.committed:
        return
    while True:
        try:
            broker.coordinators.groups.coordinators()
            break
        except KafkaError as error:
            assert error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0.001)
    for (name, key), offset in facts.committed.items():
        group = broker.coordinators.groups.coordinator_of(name).groups.get(name)
        held = group.offsets.get(key) if group is not None else None
        assert held is not None, f"{name} has lost its offset {offset} of {key}"
        assert held.offset >= offset, f"{name}: the offset of {key} went back from {offset} to {held.offset}"
