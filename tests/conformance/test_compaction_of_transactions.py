"""The same logs with transactions, written by Apache Kafka 4.3.1, compacted by it and by our cleaner: the same
batches, records, markers and entries of the transaction index stay."""

from __future__ import annotations

import importlib
import random
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from jesenska.log.log_config import LogConfig
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batch
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import ApacheKafka
from tests.profiles import rounds
from tests.units.log.compaction_model import CompactedLog

need_modules("confluent_kafka")
_client: Any = importlib.import_module("confluent_kafka")
_admin: Any = importlib.import_module("confluent_kafka.admin")

pytestmark = pytest.mark.conformance

_LOGS = rounds(quick=1, ci=6, everything=20)
_SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "8000000",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
_SECONDS = 60
_SEGMENT_MS = 1000
_CHECKPOINT = "cleaner-offset-checkpoint"


class Writer:
    """Fills topics of one partition with transactions of several producers, and with records outside of any."""

    def __init__(self, bootstrap: str) -> None:
        self.plain = _client.Producer({"bootstrap.servers": bootstrap})
        self.producers = []
        for number in range(3):
            settings = {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"writer-{number}",
                "compression.type": ("none", "lz4", "gzip")[number],
            }
            self.producers.append(_client.Producer(settings))
            self.producers[-1].init_transactions(_SECONDS)
        self.time_ms = int(time.time() * 1000)

    def fill(self, topic: str, chance: random.Random, steps: int) -> None:
        """Every transaction is ended. The last record begins a segment of its own."""
        keys = [b"key-%d" % index for index in range(chance.choice((1, 3, 12)))]
        begun: list[Any] = []
        for _ in range(steps):
            self.time_ms += chance.choice((0, 100, 700))
            free = [producer for producer in self.producers if producer not in begun]
            if free and chance.random() < 0.3:
                begun.append(chance.choice(free))
                begun[-1].begin_transaction()
            elif begun and chance.random() < 0.4:
                _end(begun.pop(chance.randrange(len(begun))), chance)
            else:
                producer = chance.choice((*begun, self.plain))
                for _ in range(chance.choice((1, 1, 3))):
                    value = None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 5, 60)))
                    producer.produce(topic, value, chance.choice(keys), partition=0, timestamp=self.time_ms)
                producer.flush(_SECONDS)
        for producer in begun:
            _end(producer, chance)
        self.time_ms += 10 * _SEGMENT_MS
        self.plain.produce(topic, b"the last one", keys[0], partition=0, timestamp=self.time_ms)
        self.plain.flush(_SECONDS)


def _end(producer: Any, chance: random.Random) -> None:
    (producer.abort_transaction if chance.random() < 0.5 else producer.commit_transaction)(_SECONDS)


def _set_ratio(admin: Any, topics: list[str], ratio: str) -> None:
    for topic in topics:
        entry = _admin.ConfigEntry(
            "min.cleanable.dirty.ratio", ratio, incremental_operation=_admin.AlterConfigOpType.SET
        )
        resource = _admin.ConfigResource(_admin.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(_SECONDS)


def _wait_until_compacted(data: Path, topics: list[str]) -> None:
    """Until everything is compacted but the segment that is written to."""
    wanted = {f"{topic} 0 {max(int(path.stem) for path in (data / f'{topic}-0').glob('*.log'))}" for topic in topics}
    deadline = time.monotonic() + _SECONDS
    while not wanted <= set((data / _CHECKPOINT).read_text().splitlines()):
        assert time.monotonic() < deadline, wanted - set((data / _CHECKPOINT).read_text().splitlines())
        time.sleep(0.05)


def _batches(directory: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        for position, header in iter_headers(content):
            if header.batch_length == 0:
                break
            records = [
                (record.offset, record.timestamp_ms, record.key, record.value)
                for record in decode_batch(content, position)
            ]
            flags = (header.is_transactional, header.is_control, header.has_delete_horizon)
            found.append(
                (
                    header.base_offset,
                    header.last_offset,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    flags,
                    records,
                )
            )
    return found


def _aborted(directory: Path) -> list[tuple[int, ...]]:
    """What the transaction indexes of the sealed segments say."""
    files = sorted(directory.glob("*.txnindex"))
    return [entry for path in files for entry in struct.iter_unpack(">hqqqq", path.read_bytes())]


def test_what_a_compaction_leaves_of_transactions_is_what_kafkas_leaves(tmp_path: Path) -> None:
    need("java", "mvn")
    with ApacheKafka("4.3.1", tmp_path / "kafka", heap="384m", settings=_SETTINGS) as theirs:
        (data,) = {path.parent for path in (tmp_path / "kafka").rglob("meta.properties") if "data" in str(path)}
        admin, writer = _admin.AdminClient({"bootstrap.servers": theirs.bootstrap}), Writer(theirs.bootstrap)
        chances = {f"log-{number}": random.Random(number) for number in range(_LOGS)}
        topics = list(chances)
        retention = {topic: chance.choice((0, 1 << 40)) for topic, chance in chances.items()}
        made = [
            _admin.NewTopic(
                topic,
                1,
                1,
                config={
                    "cleanup.policy": "compact",
                    "segment.ms": str(_SEGMENT_MS),
                    "min.cleanable.dirty.ratio": "1.0",
                    "delete.retention.ms": str(retention[topic]),
                    "file.delete.delay.ms": "0",
                },
            )
            for topic in topics
        ]
        for future in admin.create_topics(made).values():
            future.result(_SECONDS)
        for round_number in range(3):
            for topic, chance in chances.items():
                writer.fill(topic, chance, chance.choice((10, 40)))
            left: dict[str, Any] = {}
            for topic in topics:
                copied = tmp_path / f"ours-{round_number}-{topic}"
                shutil.copytree(data / f"{topic}-0", copied / "compacted-0")
                # Taken at its word, as after an orderly stop.
                (copied / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":0}')
                checkpoint = data / _CHECKPOINT
                if checkpoint.exists():
                    lines = [line for line in checkpoint.read_text().splitlines() if line.startswith(f"{topic} ")]
                    (copied / _CHECKPOINT).write_text(
                        "\n".join(["0", str(len(lines)), *lines]).replace(topic, "compacted") + "\n"
                    )
                config = LogConfig(
                    delete=False,
                    compact=True,
                    min_cleanable_dirty_ratio=0.0,
                    segment_ms=_SEGMENT_MS,
                    delete_retention_ms=retention[topic],
                    file_delete_delay_ms=0,
                )
                log = CompactedLog(copied, config)
                log.now_ms = int(time.time() * 1000)
                log.compact()
                log.close()
                left[topic] = (_batches(copied / "compacted-0"), _aborted(copied / "compacted-0"))
            _set_ratio(admin, topics, "0.0")
            _wait_until_compacted(data, topics)
            for topic in topics:
                batches, aborted = left[topic]
                assert batches == _batches(data / f"{topic}-0"), f"round {round_number}, {topic}"
                assert aborted == _aborted(data / f"{topic}-0"), f"round {round_number}, {topic}"
            _set_ratio(admin, topics, "1.0")
