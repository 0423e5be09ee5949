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
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from tests.old_requests import create, fetch, list_offsets, produce
from tests.raw_connection import RawConnection
from tests.units.records.old_messages import OLD_CODECS, Row, message_set

_NOW_MS = 1_700_000_000_000
_ROWS: list[Row] = [
    (_NOW_MS + index, None if index % 3 == 0 else b"k%d" % index, None if index == 4 else b"v" * index)
    for index in range(7)
]
_INPUTS = [(*row, ()) for row in _ROWS]
_CONFIGS = {
    "compacted": {"cleanup_policy": "compact"},
    "appended": {"message_timestamp_type": "LogAppendTime"},
    "small": {"max_message_bytes": "200"},
    "as-they-are": {"message_downconversion_enable": "false"},
    "of-0.8": {"message_format_version": "0.8.2"},
    "of-0.9": {"message_format_version": "0.9.0"},
    "of-0.10": {"message_format_version": "0.10.2-IV0"},
    "of-0.11": {"message_format_version": "0.11.0"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("old") / "data") as running:
        yield running


@pytest.fixture
def connection(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as opened:
        yield opened


def _create(connection: RawConnection, name: str) -> str:
    return create(connection, name, **_CONFIGS.get(name, {}))


def _rows(part: FetchResponsePartition, version: int) -> list[tuple[int, Row]]:
    assert part.error_code == ErrorCode.NONE
    assert isinstance(part.records, memoryview)
    records = decode_message_set(part.records) if version < 4 else list(decode_batches(part.records))
    return [(record.offset, (record.timestamp_ms, record.key, record.value)) for record in records]


def test_sets_of_one_request_are_taken_whether_they_are_converted_at_once_or_in_the_pool(
    connection: RawConnection,
) -> None:
    large: list[Row] = [(_NOW_MS, b"large", bytes(200_000))]
    sets: dict[str, tuple[list[Row], Codec]] = {
        "at-once": (_ROWS, Codec.NONE),
        "at-once-lz4": (_ROWS, Codec.LZ4),
        "slow-codec": (_ROWS, Codec.GZIP),
        "large": (large, Codec.NONE),
        "large-once-unpacked": (large, Codec.SNAPPY),
    }
    topics = []
    for name, (rows, codec) in sets.items():
        _create(connection, name)
        part = ProduceRequestPartition(index=0, records=bytes(message_set(rows, 1, codec)))
        topics.append(ProduceRequestTopic(name=name, partition_data=[part]))
    answer = connection.ask(ProduceRequest(acks=1, timeout_ms=20_000, topic_data=topics), 2, ProduceResponse)
    assert [
        (topic.name, topic.partition_responses[0].error_code, topic.partition_responses[0].base_offset)
        for topic in answer.responses
    ] == [(name, ErrorCode.NONE, 0) for name in sets]
    for name, (rows, _) in sets.items():
        assert _rows(fetch(connection, name, 4), 4) == list(enumerate(rows))


def test_an_answer_has_its_own_records_whatever_was_converted_before(connection: RawConnection) -> None:
    sizes = {"most": 900_000, "more": 500_000, "less": 300_000, "least": 10}
    for index, (name, size) in enumerate(sizes.items()):
        _create(connection, name)
        codec = Codec.NONE if index < 2 else Codec.LZ4
        assert (
            produce(connection, name, 3, encode_batch([(_NOW_MS, name.encode(), bytes(size), ())], codec)).error_code
            == ErrorCode.NONE
        )
    for name in [*sizes, *reversed(sizes), *sizes]:
        for version in (0, 2):
            ((offset, (_, key, value)),) = _rows(fetch(connection, name, version, max_bytes=4_000_000), version)
            assert (offset, key, len(value or b"")) == (0, name.encode(), sizes[name])


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("produced", [0, 1, 2])
def test_what_an_old_producer_sends_everybody_reads(connection: RawConnection, produced: int, codec: Codec) -> None:
    topic = _create(connection, f"from-{produced}-{codec.name.lower()}")
    magic = 1 if produced == 2 else 0
    for turn in range(2):
        answer = produce(connection, topic, produced, message_set(_ROWS, magic, codec, first_offset=50))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, turn * len(_ROWS))
    wanted = [(index, (row[0] if magic else -1, *row[1:])) for index, row in enumerate([*_ROWS, *_ROWS])]
    for version in range(12):
        old = [(offset, (-1 if version < 2 else row[0], *row[1:])) for offset, row in wanted]
        assert _rows(fetch(connection, topic, version), version) == old


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_a_new_producer_sends_old_consumers_read_without_headers(connection: RawConnection, codec: Codec) -> None:
    topic = _create(connection, f"to-{codec.name.lower()}")
    for _ in range(3):
        batch = encode_batch([(*row, (("name", b"value"),)) for row in _ROWS], codec)
        assert produce(connection, topic, 9, batch).error_code == ErrorCode.NONE
    for version in range(4):
        wanted = [(index, (row[0] if version >= 2 else -1, *row[1:])) for index, row in enumerate(_ROWS * 3)]
        assert _rows(fetch(connection, topic, version), version) == wanted
        # The offset is inside a batch: an uncompressed batch is cut there, a compressed one is returned whole.
        first = 7 if codec else 9
        assert _rows(fetch(connection, topic, version, offset=9), version) == wanted[first:]
        assert _rows(fetch(connection, topic, version, offset=0, max_bytes=1), version) == wanted[:7], (
            "at least one batch"
        )


def test_zstd_is_an_error_for_who_does_not_know_it(connection: RawConnection) -> None:
    topic = _create(connection, "zstd")
    assert produce(connection, topic, 9, encode_batch([(_NOW_MS, None, b"plain", ())])).error_code == ErrorCode.NONE
    assert (
        produce(connection, topic, 9, encode_batch([(_NOW_MS, None, b"packed", ())], Codec.ZSTD)).error_code
        == ErrorCode.NONE
    )
    assert [row[2] for _, row in _rows(fetch(connection, topic, 3), 3)] == [b"plain"], (
        "what comes before it is delivered"
    )
    refused = fetch(connection, topic, 3, offset=1)
    assert (refused.error_code, refused.records, refused.high_watermark) == (
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        b"",
        -1,
    )


def test_log_append_time_is_the_brokers(connection: RawConnection) -> None:
    topic = _create(connection, "appended")
    answer = produce(connection, topic, 2, message_set([(1, None, b"x")], 1, Codec.GZIP))
    assert answer.log_append_time_ms > _NOW_MS
    for version in (2, 4):
        assert [row[0] for _, row in _rows(fetch(connection, topic, version), version)] == [answer.log_append_time_ms]


def test_what_is_wrong_with_a_message_set_is_said_as_old_clients_know_it(connection: RawConnection) -> None:
    topic = _create(connection, "wrong")
    good = message_set(_ROWS, 1)
    broken = bytearray(good)
    broken[-1] ^= 1
    assert produce(connection, topic, 2, broken).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (
        produce(connection, topic, 2, message_set(_ROWS, 1, Codec.GZIP) + good).error_code == ErrorCode.INVALID_RECORD
    )
    assert produce(connection, topic, 3, good).error_code == ErrorCode.INVALID_RECORD
    assert produce(connection, _create(connection, "compacted"), 2, good).error_code == ErrorCode.INVALID_RECORD
    assert (
        produce(connection, _create(connection, "small"), 2, message_set([(_NOW_MS, None, bytes(300))], 1)).error_code
        == ErrorCode.MESSAGE_TOO_LARGE
    )
    assert produce(connection, topic, 2, b"").error_code == ErrorCode.NONE
    assert produce(connection, topic, 2, good[:10]).base_offset == -1
    assert produce(connection, topic, 2, good).base_offset == 0, "nothing of the others was written"


def test_a_new_batch_in_an_old_request_is_taken_as_kafka_does(connection: RawConnection) -> None:
    topic = _create(connection, "new-in-old")
    answer = produce(connection, topic, 2, encode_batch([(_NOW_MS, None, b"x", ())]))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(("release", "magic"), [("0.8", 0), ("0.9", 0), ("0.10", 1), ("0.11", 2)])
def test_a_topic_in_an_old_format_gives_every_consumer_that_format(
    connection: RawConnection, release: str, magic: int
) -> None:
    topic = _create(connection, f"of-{release}")
    assert (
        produce(connection, topic, 3, encode_batch([(*row, [("name", b"header")]) for row in _ROWS])).error_code
        == ErrorCode.NONE
    )
    assert produce(connection, topic, 2, message_set(_ROWS, 1, Codec.GZIP)).error_code == ErrorCode.NONE
    other = _create(connection, f"beside-{release}")
    assert produce(connection, other, 3, encode_batch(_INPUTS)).error_code == ErrorCode.NONE
    for version in range(13):
        expected = min(magic, 0 if version < 2 else 1 if version < 4 else 2)
        parts = [
            FetchRequestTopic(topic=name, partitions=[FetchRequestPartition(partition=0, partition_max_bytes=1 << 20)])
            for name in (topic, other)
        ]
        answer = connection.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=parts), version, FetchResponse)
        part, beside = (answered.partitions[0] for answered in answer.responses)
        assert isinstance(part.records, memoryview)
        assert part.records[16] == expected
        rows = [(index, (row[0] if expected else -1, *row[1:])) for index, row in enumerate([*_ROWS, *_ROWS])]
        assert _rows(part, 4 if expected == 2 else 0) == rows
        assert [value for _, (_, _, value) in _rows(beside, version)] == [row[2] for row in _ROWS]


def test_a_topic_in_an_old_format_takes_nothing_that_does_not_fit_it(connection: RawConnection) -> None:
    topic = _create(connection, "of-0.10")
    answer = produce(connection, topic, 7, encode_batch(_INPUTS, Codec.ZSTD))
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    answer = produce(connection, topic, 7, encode_batch(_INPUTS, producer_id=1, producer_epoch=0, base_sequence=0))
    assert answer.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    large = encode_batch([(_NOW_MS, None, b"x" * 100_000, ())], producer_id=1, producer_epoch=0, base_sequence=0)
    assert produce(connection, topic, 7, large).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(
    ("release", "error"), [("0.9", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), ("0.10", ErrorCode.NONE)]
)
def test_a_topic_without_times_finds_no_offset_by_time(
    connection: RawConnection, release: str, error: ErrorCode
) -> None:
    topic = _create(connection, f"of-{release}")
    answers = [list_offsets(connection, topic, 1, time).error_code for time in (_NOW_MS, -1, -2)]
    assert answers == [error, ErrorCode.NONE, ErrorCode.NONE]


def test_without_down_conversion_old_consumers_are_told_that_their_version_is_unsupported(
    connection: RawConnection,
) -> None:
    topic = _create(connection, "as-they-are")
    for _ in range(2):  # an empty partition, and one with records
        for version in range(4):
            assert fetch(connection, topic, version).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert fetch(connection, topic, 4).error_code == ErrorCode.NONE
        assert produce(connection, topic, 0, message_set(_ROWS, 0, Codec.NONE)).error_code == ErrorCode.NONE
