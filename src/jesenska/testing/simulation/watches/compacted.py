"""A topic that is compacted during the simulation: its producer, and the checks of every replica at the end.

newest      the newest acknowledged record of each key is at its offset, or the log has a record of the key that was
            sent later; a tombstone may be missing
deleted     if the newest record of a key is missing, all older records of the key are also missing
sent        every record in the log was sent, and is in the log once

Each replica is compacted independently, so their files differ. Only the newest record of each key is compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.producer import Producer, RecordMetadata
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from jesenska.testing.simulation.clients import cluster_of
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.watches.history import ViolationError

KEYED: Final = "keyed"
PARTITION: Final = TopicPartition(KEYED, 0)
#: The value of delete.retention.ms. It is longer than any replica is without a leader. A follower that misses a
#: tombstone for longer than this time may keep the deleted records.
_TOMBSTONES_MS = 20_000
TOPIC_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "8000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(_TOMBSTONES_MS),
}
BROKER_SETTINGS: Final = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.min.cleanable.ratio": "0.2",
}
#: The number of keys that are written throughout the simulation, and the number of records of every other key.
_KEYS, _KEPT_UP = 6, 10


class Sent:
    """A record that was sent. `offset` is -1 until it is acknowledged."""

    __slots__ = ("offset", "value")

    def __init__(self, value: bytes | None) -> None:
        self.value = value
        self.offset = -1


class Found(NamedTuple):
    offset: int
    value: bytes | None


class KeyedWriter:
    """A producer of records with keys, some of them tombstones. No other client writes these keys, so the records of a
    key are in the order in which they were sent."""

    def __init__(
        self, process: Process, bootstrap: str, on_acknowledged: Callable[[TopicPartition, int], None] | None
    ) -> None:
        self.process = process
        self.is_stopping = False
        #: The records that were sent for each key, in order.
        self.sent: dict[bytes, list[Sent]] = {}
        self._bootstrap = bootstrap
        self._on_acknowledged = on_acknowledged

    async def run(self) -> None:
        random = self.process.world.random
        cluster = cluster_of(self.process, self._bootstrap)
        producer = Producer(cluster, random_source=random, delivery_timeout_seconds=90.0, linger_seconds=0.01)
        number = 0
        while not self.is_stopping:
            # Some keys are written throughout the simulation, others only for a while.
            key = b"key-%d" % random.randrange(_KEYS) if random.random() < 0.5 else b"old-%d" % (number // _KEPT_UP)
            record = Sent(None if random.random() < 0.3 else b"%d" % number + b"." * random.choice((0, 100, 1000)))
            try:
                future = await producer.send(KEYED, record.value, key, PARTITION.partition)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            self.sent.setdefault(key, []).append(record)
            future.add_done_callback(partial(self._acknowledged, record))
            number += 1
            await asyncio.sleep(random.choice((0.05, 0.2, 0.5)))
        await producer.close()
        await cluster.close()

    def _acknowledged(self, record: Sent, future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled() or future.exception() is not None or self.process.is_dead:
            return
        record.offset = future.result().offset
        if self._on_acknowledged is not None:
            self._on_acknowledged(PARTITION, record.offset)

    def judge(self, where: str, log: PartitionLog, *, knows_tombstones: bool) -> int:
        """Checks a replica when every send has a result. Returns the number of the replica's records. Raises
        ViolationError if a check fails. If `knows_tombstones` is False, tombstones may have been deleted before every
        replica had them."""
        found = records_of(log)
        for key, places in found.items():
            values = [place.value for place in places if place.value is not None]
            if not set(values) <= {record.value for record in self.sent.get(key, ())} or len(values) != len(
                set(values)
            ):
                raise ViolationError(f"{where} has a record of {key.decode()} that was not sent, or one twice")
        for key, sent in self.sent.items():
            self._judge_key(where, key.decode(), sent, found.get(key, []), knows_tombstones)
        return sum(map(len, found.values()))

    def _judge_key(self, where: str, key: str, sent: list[Sent], places: list[Found], knows_tombstones: bool) -> None:
        acknowledged = [index for index, record in enumerate(sent) if record.offset >= 0]
        if not acknowledged:
            return
        newest, later = sent[acknowledged[-1]], sent[acknowledged[-1] + 1 :]
        at = [place for place in places if place.offset >= newest.offset]
        if at and at[0].offset == newest.offset and at[0].value != newest.value:
            raise ViolationError(f"{where} has another record of {key} at offset {newest.offset} than was acknowledged")
        if at:
            return
        if newest.value is not None and all(record.value is not None for record in later):
            raise ViolationError(f"{where} has lost the newest acknowledged record of {key}, at offset {newest.offset}")
        if places and knows_tombstones:
            raise ViolationError(
                f"{where} has a record of {key} at offset {places[-1].offset}, which was deleted at {newest.offset} "
                f"or later"
            )


def records_of(log: PartitionLog) -> dict[bytes, list[Found]]:
    """Returns the records of a log, by key. Raises ViolationError if the log is damaged, or if offsets do not
    increase."""
    found: dict[bytes, list[Found]] = {}
    last = -1
    for segment in log.segments:
        data = segment.file.path.read_bytes()[: segment.size_bytes]
        try:
            records = [
                record
                for position, header in iter_headers(data)
                if not header.is_control
                for record in decode_batch(data, position, header=header)
            ]
        except KafkaError as error:
            raise ViolationError(f"the log of {log.topic_partition} is damaged: {error}") from error
        for record in records:
            if record.offset <= last:
                raise ViolationError(f"offset {record.offset} of {log.topic_partition} stands behind offset {last}")
            last = record.offset
            found.setdefault(record.key or b"", []).append(Found(record.offset, record.value))
    return found


def newest_of(log: PartitionLog) -> dict[bytes, Found]:
    """Returns the newest record of each key that is not deleted."""
    return {key: places[-1] for key, places in records_of(log).items() if places[-1].value is not None}
