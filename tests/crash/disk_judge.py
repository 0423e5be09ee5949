"""Starts a broker, in this process, on what a machine found after a crash, and compares what it serves with what had
been acknowledged by then."""

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
from jesenska.cli.configuration import broker_config
from jesenska.config.layers import BrokerConfig
from jesenska.log.checkpoints import RECOVERY_POINTS, OffsetCheckpoint
from jesenska.log.files import FileLayer
from jesenska.log.leader_appends import append_at_once
from jesenska.log.partition_log import PartitionLog
from jesenska.log.reading import read_log
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from jesenska.records.header import read_header
from tests.crash.disk_workload import (
    KEPT,
    OLD,
    SETTINGS,
    TRIMMED,
    Acknowledged,
    Committed,
    LimitSet,
    Produced,
    ProducerIdGiven,
    Told,
    TopicGone,
    TopicMade,
)
from tests.crash.traced_disk import KILLED, Op

_READ_BYTES = 1024 * 1024


class Answers:
    """Finds, operation by operation, what had been answered before it."""

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
        """Answers that the trace has not sent."""
        return sum(map(len, self._waiting.values()))


class LogStart(NamedTuple):
    """Retention has deleted what was before."""

    topic_partition: TopicPartition
    offset: int


class Facts:
    """What must be true at one moment."""

    def __init__(self) -> None:
        self.records: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.last_batches: dict[tuple[TopicPartition, int], Produced] = {}
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.made: set[str] = set()
        self.gone: set[str] = set()
        self.producer_id = -1
        self.limit = 0
        #: Where a log may begin at the latest; retention and requests have deleted up to there.
        self.starts: dict[TopicPartition, int] = {}

    def add(self, what: object) -> None:
        match what:
            case Produced(key, base_offset, values, _, producer_id):
                self.records[key].update((base_offset + index, value) for index, value in enumerate(values))
                if producer_id >= 0:
                    self.last_batches[key, producer_id] = what
            case Committed(group, key, offset):
                self.committed[group, key] = max(offset, self.committed.get((group, key), -1))
            case TopicMade(name):
                self.made.add(name)
            case TopicGone(name):
                self.gone.add(name)
            case ProducerIdGiven(producer_id):
                self.producer_id = max(producer_id, self.producer_id)
            case LogStart(key, offset):
                self.starts[key] = max(offset, self.starts.get(key, 0))
            case LimitSet(limit):
                self.limit = max(limit, self.limit)


async def judge(root: Path, facts: Facts, told: Told, *, again: bool) -> None:
    """AssertionError, or what the broker raises, where something is missing. `again`: what recovery has made starts a
    second time."""
    known = OffsetCheckpoint(root / RECOVERY_POINTS, FileLayer()).read()
    for turn in range(1 + again):
        broker = Broker(_config(root))
        try:
            await broker.start()
            await _compare(broker, facts, told, known, write=turn == 0)
        finally:
            await broker.stop()


def _config(root: Path) -> BrokerConfig:
    defaults = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(root),
        "broker.id": "1",
        "offsets.topic.replication.factor": "1",
    }
    return broker_config(defaults=defaults, overrides=[f"{name}={value}" for name, value in SETTINGS.items()], environment={})


async def _compare(broker: Broker, facts: Facts, told: Told, known: dict[TopicPartition, int], *, write: bool) -> None:
    topics = broker.view.topics
    missing = facts.made - told.doomed - topics.keys()
    assert not missing, f"topics are lost: {sorted(missing)}"
    assert not facts.gone & topics.keys(), f"deleted topics are back: {sorted(facts.gone & topics.keys())}"
    for name in facts.made & topics.keys():
        assert all(partition.is_served for partition in topics[name].partitions), f"{name} has no log"
        if name.startswith("round"):
            assert topics[name].log_config.retention_ms == 1234567, f"{name} has lost its settings"
    if facts.limit:
        assert facts.limit <= topics[KEPT].log_config.max_message_bytes <= told.limit, "a setting is lost"
    new_id = await broker.producer_ids.new()
    assert new_id > facts.producer_id, f"producer id {new_id} was given out before"
    newest: dict[tuple[TopicPartition, int], int] = {}
    for name in (KEPT, OLD, TRIMMED):
        for partition in topics[name].partitions if name in topics else ():
            newest.update(_compare_log(partition.leader_log(), facts, told, holes=not known.get(partition.topic_partition)))
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
            assert (result.duplicate, result.base_offset) == (True, item.base_offset), f"{key}: the last batch of producer {producer_id} was taken twice"
    if write and KEPT in topics:
        # It takes more, and the next start finds it.
        log = broker.directories.logs[TopicPartition(KEPT, 0)]
        value = b"after the crash"
        told.sent.add(value)
        batch = encode_batch([(broker.clock.now_ms(), None, value, ())])
        end = log.log_end_offset
        assert append_at_once(log, memoryview(batch), [read_header(batch)], topics[KEPT].partitions[0].leader_epoch, broker.clock.now_ms()).base_offset == end


def _compare_log(log: PartitionLog, facts: Facts, told: Told, *, holes: bool) -> dict[tuple[TopicPartition, int], int]:
    """Gives where the newest batch of each producer begins. `holes`: without a recovery point records may be missing
    before others that nobody was told of."""
    newest: dict[tuple[TopicPartition, int], int] = {}
    key = log.topic_partition
    start = facts.starts.get(key, 0)
    if key.topic == TRIMMED:
        start = max(start, told.trimmed_to)
    assert log.log_start_offset <= start, f"{key} begins at {log.log_start_offset}, and nothing from {start} on may be deleted"
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while (region := read_log(log, offset, _READ_BYTES).region) is not None:
        try:
            data = os.pread(region.file.fileno(), region.size_bytes, region.position)
        finally:
            region.release()
        for position, header in iter_headers(data):
            assert holes or offset <= start or header.base_offset <= offset, f"{key}: there is a hole from {offset} to {header.base_offset}"
            for record in decode_batch(data, position, header=header):
                found[record.offset] = bytes(record.value or b"")
            newest[key, header.producer_id] = header.base_offset
            offset = header.next_offset
    assert offset == log.log_end_offset, f"{key} is read to {offset} and ends at {log.log_end_offset}: {log.segments}"
    acknowledged = facts.records.get(key, {})
    assert offset > max(acknowledged, default=-1), f"{key} ends at {offset} and had {max(acknowledged)}"
    for number, value in acknowledged.items():
        if number >= start:
            assert found.get(number) == value, f"{key}: the acknowledged record at {number} is {'lost' if number not in found else 'another'} (end {offset})"
    values = [value for value in found.values() if value != b"after the crash"]
    assert len(values) == len(set(values)), f"{key} holds a record twice"
    assert told.sent >= set(values), f"{key} holds what nobody sent"
    return newest


async def _compare_groups(broker: Broker, facts: Facts) -> None:
    if not facts.committed:
        return
    while True:
        try:
            broker.groups.coordinators()
            break
        except KafkaError as error:
            assert error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0.001)
    for (name, key), offset in facts.committed.items():
        group = broker.groups.coordinator_of(name).groups.get(name)
        held = group.offsets.get(key) if group is not None else None
        assert held is not None, f"{name} has lost its offset {offset} of {key}"
        assert held.offset >= offset, f"{name}: the offset of {key} went back from {offset} to {held.offset}"
