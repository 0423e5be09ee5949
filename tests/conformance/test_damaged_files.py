"""Files of Apache Kafka 3.9.1 that a disk has damaged after an orderly stop, opened by Kafka again and by our broker:
what each of the two does with the same bytes."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jesenska.base.errors import CorruptMessageError, ErrorCode
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.records.batch import iter_headers, verify_crc
from jesenska.records.decode import decode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree

need_modules("confluent_kafka")
_client: Any = importlib.import_module("confluent_kafka")
_admin: Any = importlib.import_module("confluent_kafka.admin")

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

_SECONDS = 30
_RECORDS = 40
#: The record that is damaged, in a segment that is not the last.
_HURT = 7


class Served(NamedTuple):
    """What a broker gives of a topic: offsets of records as they were written, of others, and errors by offset."""

    right: list[int]
    wrong: list[int]
    errors: dict[int, int]
    end: int


def _value(number: int) -> bytes:
    return b"value %d " % number * 10


def _flip(at: int) -> Callable[[Path], None]:
    """Changes a byte of the record's batch: below 0 counted from its end."""

    def work(directory: Path) -> None:
        path, position, size = _place_of(directory, _HURT)
        content = bytearray(path.read_bytes())
        content[position + (at if at >= 0 else size + at)] ^= 0x10
        path.write_bytes(content)

    return work


def _place_of(directory: Path, offset: int) -> tuple[Path, int, int]:
    """File, position and size of the batch with an offset."""
    for path in sorted(directory.glob("*.log")):
        for position, header in iter_headers(path.read_bytes()):
            if header.base_offset == offset:
                return path, position, header.size_bytes
    raise AssertionError(f"{directory} has no batch {offset}")


def _wrong_index(directory: Path) -> None:
    """The positions of the first segment's index entries lie in the middle of batches."""
    path = min(directory.glob("*.index"))
    content = bytearray(path.read_bytes())
    assert any(content[:16])
    for at in range(0, 16, 8):
        position = int.from_bytes(content[at + 4 : at + 8], "big")
        content[at + 4 : at + 8] = (position + 5).to_bytes(4, "big")
    path.write_bytes(content)


def _garbage(directory: Path) -> None:
    with max(directory.glob("*.log")).open("ab") as file:
        file.write(b"garbage" * 20)


def _cut(directory: Path) -> None:
    path = max(path for path in directory.glob("*.log") if path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-5])


def _remove(pattern: str) -> Callable[[Path], None]:
    def work(directory: Path) -> None:
        for path in directory.glob(pattern):
            path.unlink()

    return work


_DAMAGE: dict[str, Callable[[Path], None]] = {
    "record": _flip(-1),
    "length": _flip(10),
    "base-offset": _flip(7),
    "index": _wrong_index,
    "garbage": _garbage,
    "cut": _cut,
    "no-indexes": _remove("*index"),
    "no-snapshots": _remove("*.snapshot"),
    "no-epochs": _remove("leader-epoch-checkpoint"),
}


def _write(bootstrap: str) -> None:
    admin = _admin.AdminClient({"bootstrap.servers": bootstrap})
    settings = {"segment.bytes": "2000", "index.interval.bytes": "300"}
    for future in admin.create_topics([_admin.NewTopic(name, 1, 1, config=settings) for name in _DAMAGE]).values():
        future.result(_SECONDS)
    producer = _client.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(_RECORDS):
        for name in _DAMAGE:
            producer.produce(name, _value(number), partition=0)
        producer.flush(_SECONDS)


def _served(bootstrap: str, topic: str) -> Served:
    right: list[int] = []
    wrong: list[int] = []
    errors: dict[int, int] = {}
    with RawConnection(bootstrap) as connection:
        asked = ListOffsetsRequestTopic(
            name=topic, partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=-1)]
        )
        end = (
            connection.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 5, ListOffsetsResponse)
            .topics[0]
            .partitions[0]
            .offset
        )
        for offset in range(_RECORDS):
            wanted = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
            request = FetchRequest(
                max_wait_ms=0, min_bytes=0, topics=[FetchRequestTopic(topic=topic, partitions=[wanted])]
            )
            (answer,) = connection.ask(request, 11, FetchResponse).responses[0].partitions
            if answer.error_code:
                errors[offset] = answer.error_code
                continue
            value = _first_value(bytes(answer.records or b""), offset)  # type: ignore[arg-type]
            if value is not None:
                (right if value == _value(offset) else wrong).append(offset)
    return Served(right, wrong, errors, end)


def _first_value(records: bytes, offset: int) -> bytes | None:
    """The value of the record with an offset, if it is there; something else where the batch is damaged, or is another
    one."""
    try:
        for position, header in iter_headers(records):
            verify_crc(records, position, header)
            for record in decode_batch(records, position, header=header):
                return bytes(record.value or b"") if record.offset == offset else b"another record"
    except CorruptMessageError:
        return b"damaged"
    return b"nothing whole" if records else None


def test_what_kafka_serves_damaged_or_not_at_all_is_refused_or_served_right(tmp_path: Path) -> None:
    need("java", "mvn")
    directory, copy = tmp_path / "kafka" / "data-0", tmp_path / "copy"
    with ServedTree(tmp_path / "tree.db", ServerConfig(tick_ms=1000)) as served:
        connect = f"{served.address}/kafka"
        with ApacheKafka("3.9.1", tmp_path / "kafka", heap="400m", zookeeper_connect=connect) as theirs:
            _write(theirs.bootstrap)
        for name, damage in _DAMAGE.items():
            damage(directory / f"{name}-0")
        shutil.copytree(directory, copy)
        with BrokerProcess(copy, settings={"zookeeper.connect": connect, "broker.id": "0"}) as broker:
            ours = {name: _served(broker.bootstrap, name) for name in _DAMAGE}
            assert broker.stop() == 0
        with ApacheKafka("3.9.1", tmp_path / "kafka", heap="400m", zookeeper_connect=connect) as theirs:
            kafkas = {name: _served(theirs.bootstrap, name) for name in _DAMAGE}
    everything = list(range(_RECORDS))
    others = [offset for offset in everything if offset != _HURT]
    for name, found in ours.items():
        assert found.wrong == [], name
        if name in ("record", "length", "base-offset"):
            assert (found.right, found.errors, found.end) == (others, {_HURT: ErrorCode.CORRUPT_MESSAGE}, _RECORDS), (
                name
            )
        elif name == "cut":
            assert (found.right, found.end) == (everything[:-1], _RECORDS - 1)
        else:
            assert (found.right, found.end) == (everything, _RECORDS), name
    # Apache Kafka does not look at what it sends, and believes its index.
    assert all(_HURT not in kafkas[name].right for name in ("record", "length", "base-offset", "index")), kafkas
    for name, found in kafkas.items():
        assert set(found.right) <= set(ours[name].right), name
