"""Clients of before 0.11 and of today read each other's records."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.records.message_set import decode_message_set
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic, ProduceResponse, ProduceResponsePartition
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse, FetchResponsePartition
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestConfig, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.raw_connection import RawConnection
from tests.records.old_messages import OLD_CODECS, Row, message_set

_NOW_MS = 1_700_000_000_000
_ROWS: list[Row] = [(_NOW_MS + index, None if index % 3 == 0 else b"k%d" % index, None if index == 4 else b"v" * index) for index in range(7)]
_CONFIGS = {"compacted": ("cleanup.policy", "compact"), "appended": ("message.timestamp.type", "LogAppendTime"), "small": ("max.message.bytes", "200")}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("old") / "data") as running:
        yield running


@pytest.fixture
def connection(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as opened:
        yield opened


def _create(connection: RawConnection, name: str) -> str:
    wanted = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    if name in _CONFIGS:
        wanted.configs = [CreateTopicsRequestConfig(name=_CONFIGS[name][0], value=_CONFIGS[name][1])]
    answer = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 4, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE
    return name


def _produce(connection: RawConnection, topic: str, version: int, records: bytes | bytearray, acks: int = 1) -> ProduceResponsePartition:
    data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=0, records=bytes(records))])
    answer = connection.ask(ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[data]), version, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def _fetch(connection: RawConnection, topic: str, version: int, offset: int = 0, max_bytes: int = 1 << 20) -> FetchResponsePartition:
    part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=[part])])
    return connection.ask(request, version, FetchResponse).responses[0].partitions[0]


def _rows(part: FetchResponsePartition, version: int) -> list[tuple[int, Row]]:
    assert part.error_code == ErrorCode.NONE
    assert isinstance(part.records, memoryview)
    records = decode_message_set(part.records) if version < 4 else list(decode_batches(part.records))
    return [(record.offset, (record.timestamp_ms, record.key, record.value)) for record in records]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("produced", [0, 1, 2])
def test_what_an_old_producer_sends_everybody_reads(connection: RawConnection, produced: int, codec: Codec) -> None:
    topic = _create(connection, f"from-{produced}-{codec.name.lower()}")
    magic = 1 if produced == 2 else 0
    for turn in range(2):
        answer = _produce(connection, topic, produced, message_set(_ROWS, magic, codec, first_offset=50))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, turn * len(_ROWS))
    wanted = [(index, (row[0] if magic else -1, *row[1:])) for index, row in enumerate([*_ROWS, *_ROWS])]
    for version in range(12):
        old = [(offset, (-1 if version < 2 else row[0], *row[1:])) for offset, row in wanted]
        assert _rows(_fetch(connection, topic, version), version) == old


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_a_new_producer_sends_old_consumers_read_without_headers(connection: RawConnection, codec: Codec) -> None:
    topic = _create(connection, f"to-{codec.name.lower()}")
    for _ in range(3):
        batch = encode_batch([(*row, (("name", b"value"),)) for row in _ROWS], codec)
        assert _produce(connection, topic, 9, batch).error_code == ErrorCode.NONE
    for version in range(4):
        wanted = [(index, (row[0] if version >= 2 else -1, *row[1:])) for index, row in enumerate(_ROWS * 3)]
        assert _rows(_fetch(connection, topic, version), version) == wanted
        # In the midst of a batch: an uncompressed one is cut, a compressed one comes whole.
        first = 7 if codec else 9
        assert _rows(_fetch(connection, topic, version, offset=9), version) == wanted[first:]
        assert _rows(_fetch(connection, topic, version, offset=0, max_bytes=1), version) == wanted[:7], "at least one batch"


def test_zstd_is_an_error_for_who_does_not_know_it(connection: RawConnection) -> None:
    topic = _create(connection, "zstd")
    assert _produce(connection, topic, 9, encode_batch([(_NOW_MS, None, b"plain", ())])).error_code == ErrorCode.NONE
    assert _produce(connection, topic, 9, encode_batch([(_NOW_MS, None, b"packed", ())], Codec.ZSTD)).error_code == ErrorCode.NONE
    assert [row[2] for _, row in _rows(_fetch(connection, topic, 3), 3)] == [b"plain"], "what comes before it is delivered"
    refused = _fetch(connection, topic, 3, offset=1)
    assert (refused.error_code, refused.records, refused.high_watermark) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"", -1)


def test_log_append_time_is_the_brokers(connection: RawConnection) -> None:
    topic = _create(connection, "appended")
    answer = _produce(connection, topic, 2, message_set([(1, None, b"x")], 1, Codec.GZIP))
    assert answer.log_append_time_ms > _NOW_MS
    for version in (2, 4):
        assert [row[0] for _, row in _rows(_fetch(connection, topic, version), version)] == [answer.log_append_time_ms]


def test_what_is_wrong_with_a_message_set_is_said_as_old_clients_know_it(connection: RawConnection) -> None:
    topic = _create(connection, "wrong")
    good = message_set(_ROWS, 1)
    broken = bytearray(good)
    broken[-1] ^= 1
    assert _produce(connection, topic, 2, broken).error_code == ErrorCode.CORRUPT_MESSAGE
    assert _produce(connection, topic, 2, message_set(_ROWS, 1, Codec.GZIP) + good).error_code == ErrorCode.INVALID_RECORD
    assert _produce(connection, topic, 3, good).error_code == ErrorCode.INVALID_RECORD
    assert _produce(connection, _create(connection, "compacted"), 2, good).error_code == ErrorCode.INVALID_RECORD
    assert _produce(connection, _create(connection, "small"), 2, message_set([(_NOW_MS, None, bytes(300))], 1)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert _produce(connection, topic, 2, b"").error_code == ErrorCode.NONE
    assert _produce(connection, topic, 2, good[:10]).base_offset == -1
    assert _produce(connection, topic, 2, good).base_offset == 0, "nothing of the others was written"


def test_a_new_batch_in_an_old_request_is_taken_as_kafka_does(connection: RawConnection) -> None:
    topic = _create(connection, "new-in-old")
    answer = _produce(connection, topic, 2, encode_batch([(_NOW_MS, None, b"x", ())]))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
