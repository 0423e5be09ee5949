"""What real Apache Kafka answers to the raw requests of clients of before 0.11, beside what we answer.

1.0.2 knows no error code for invalid records, so errors are compared with 3.9.1's; topics in old formats with 1.0.2,
the last release of the documents that keeps them (3.9 gives every topic the newest format). Where we differ on
purpose:

- A down-converted answer of Kafka is as long as the batches it stands for, cut in mid-message or filled with one that
  never ends; ours comes whole and ends there. Up to where the shorter ends they are the same.
- Below Fetch 3 Kafka answers nothing where the first batch exceeds the limit, and such a consumer never gets past it;
  ours gives it.
- A codec that does not exist is an invalid record here, and UNKNOWN_SERVER_ERROR in Kafka.
- A partition that is refused has null records in Kafka's answer, which no consumer of that age can read; ours has
  empty ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records import codec as records_codec
from jesenska.records.compression import compress
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import Buffer, Codec
from jesenska.records.message_set import decode_message_set
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import FetchResponsePartition
from tests.conformance.conftest import need
from tests.old_requests import create, fetch, list_offsets, produce
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection
from tests.units.records.old_messages import OLD_CODECS, Row, message_set

pytestmark = pytest.mark.conformance

_NOW_MS = 1_700_000_000_000
_ROWS: list[Row] = [
    (_NOW_MS + index, None if index % 3 == 0 else b"k%d" % index, None if index == 4 else b"v" * index)
    for index in range(7)
]
_INPUTS = [(*row, ()) for row in _ROWS]
_OLDEST_JUDGE, _NEWEST_JUDGE = "1.0.2", "3.9.1"


@pytest.fixture(scope="module")
def ours(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as opened:
        yield opened


def _peer(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawConnection]:
    need("java", "mvn")
    with (
        ApacheKafka(release, tmp_path_factory.mktemp("kafka"), heap="384m") as running,
        RawConnection(running.bootstrap) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def kafka_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawConnection]:
    yield from _peer(_OLDEST_JUDGE, tmp_path_factory)


@pytest.fixture(scope="module")
def kafka_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawConnection]:
    yield from _peer(_NEWEST_JUDGE, tmp_path_factory)


@pytest.fixture(params=[_OLDEST_JUDGE, _NEWEST_JUDGE])
def kafka(request: pytest.FixtureRequest) -> RawConnection:
    """Each release in turn."""
    opened: RawConnection = request.getfixturevalue("kafka_1" if request.param == _OLDEST_JUDGE else "kafka_3")
    return opened


def _bytes(part: FetchResponsePartition) -> bytes:
    assert part.error_code == ErrorCode.NONE
    assert part.records is None or isinstance(part.records, memoryview)
    return b"" if part.records is None else bytes(part.records)


def _rows(records: bytes) -> list[tuple[int, Row]]:
    """Offset, time, key, value of each record, whatever the format."""
    if not records:
        return []
    found = decode_message_set(records) if records[16] < 2 else list(decode_batches(records))
    return [(record.offset, (record.timestamp_ms, record.key, record.value)) for record in found]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_a_producer_of_any_age_writes_old_consumers_get_as_from_kafka(
    ours: RawConnection, kafka: RawConnection, version: int, codec: Codec, request: pytest.FixtureRequest
) -> None:
    topic = f"written-{request.node.callspec.id}"
    batch = (
        encode_batch([(*row, [("name", b"header")]) for row in _ROWS], codec)
        if version == 3
        else message_set(_ROWS, int(version == 2), codec)
    )
    for connection in (ours, kafka):
        create(connection, topic)
        for turn in range(3):
            answer = produce(connection, topic, version, batch)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, turn * len(_ROWS))
    for asked in range(4):
        for offset in (0, 3, 14, 16, 21):
            mine, theirs = fetch(ours, topic, asked, offset), fetch(kafka, topic, asked, offset)
            assert mine.high_watermark == theirs.high_watermark == 21
            whole, cut = _bytes(mine), _bytes(theirs)
            rows, shorter = _rows(cut), min(len(whole), len(cut))
            assert _rows(whole)[: len(rows)] == rows
            assert codec or whole[:shorter] == cut[:shorter]
            assert bool(whole) == bool(cut) == (offset < 21)
            assert [number for number, _ in _rows(whole)][-1:] == [20][: 21 - offset]


def _one_message(attributes: int, value: Buffer | None) -> bytearray:
    whole = bytearray()
    records_codec.append_message(whole, 0, 1, attributes, _NOW_MS, None, value)
    return whole


def _sets() -> dict[str, tuple[int, bytes | bytearray]]:
    """What is wrong, and not quite wrong, with a set: version of Produce and records by name."""
    good = message_set(_ROWS, 1)
    broken, third = bytearray(good), bytearray(good)
    broken[-1] ^= 1
    third[16] = 3
    batch = encode_batch([(_NOW_MS, None, b"x", ())])
    return {
        "a wrong CRC": (2, broken),
        "a compressed message with another behind it": (2, message_set(_ROWS, 1, Codec.GZIP) + good),
        "a set in Produce 3": (3, good),
        "nothing": (2, b""),
        "a part of a message": (2, good[:10]),
        "a message and a part of one": (2, good + good[:30]),
        "a batch in Produce 2": (2, batch),
        "a batch and messages": (2, bytes(batch) + bytes(good)),
        "format v1 in Produce 0": (0, good),
        "format v0 in Produce 2": (2, message_set(_ROWS, 0)),
        "zstd": (2, _one_message(4, b"abc")),
        "a codec that does not exist": (2, _one_message(5, b"abc")),
        "format v0 inside v1": (2, _one_message(Codec.GZIP, compress(Codec.GZIP, message_set(_ROWS, 0)))),
        "compressed twice": (2, _one_message(Codec.GZIP, compress(Codec.GZIP, message_set(_ROWS, 1, Codec.GZIP)))),
        "compressed nothing": (2, _one_message(Codec.GZIP, compress(Codec.GZIP, b""))),
        "compressed null": (2, _one_message(Codec.GZIP, None)),
        "log append time set by the client": (2, _one_message(8, b"x")),
        "log append time set by the client on a compressed message": (
            2,
            _one_message(8 | Codec.GZIP, compress(Codec.GZIP, good)),
        ),
        "format 3": (2, third),
    }


@pytest.mark.parametrize("name", list(_sets()))
def test_wrong_message_sets_are_answered_as_by_kafka(ours: RawConnection, kafka_3: RawConnection, name: str) -> None:
    version, records = _sets()[name]
    answers = []
    for connection in (ours, kafka_3):
        topic = create(connection, "".join(letter if letter.isalnum() else "-" for letter in name))
        answer = produce(connection, topic, version, records)
        answers.append((ErrorCode(answer.error_code), answer.base_offset, _rows(_bytes(fetch(connection, topic, 4)))))
    if name == "a codec that does not exist":
        assert answers == [(ErrorCode.INVALID_RECORD, -1, []), (ErrorCode.UNKNOWN_SERVER_ERROR, -1, [])]
    else:
        assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("configs", "records"),
    [
        ({"cleanup_policy": "compact"}, message_set(_ROWS, 1)),
        ({"max_message_bytes": "200"}, message_set([(_NOW_MS, None, bytes(300))], 1)),
        ({"max_message_bytes": "200"}, message_set([(_NOW_MS, None, bytes(30_000))], 1, Codec.GZIP)),
        ({"message_timestamp_type": "LogAppendTime"}, message_set([(1, None, b"x")], 1, Codec.GZIP)),
        ({"message_timestamp_type": "LogAppendTime"}, message_set([(-1, None, b"x")], 0)),
        (
            {"message_timestamp_type": "LogAppendTime"},
            _one_message(8 | Codec.GZIP, compress(Codec.GZIP, message_set(_ROWS, 1))),
        ),
    ],
    ids=[
        "no key on a compacted topic",
        "too large",
        "too large when unpacked",
        "log append time compressed",
        "log append time in format v0",
        "log append time from the client",
    ],
)
def test_a_topics_rules_hold_for_message_sets_as_in_kafka(
    ours: RawConnection,
    kafka_3: RawConnection,
    configs: dict[str, str],
    records: bytearray,
    request: pytest.FixtureRequest,
) -> None:
    answers = []
    for connection in (ours, kafka_3):
        topic = create(connection, "rules-" + request.node.callspec.id.replace(" ", "-"), **configs)
        answer = produce(connection, topic, 2, records)
        answers.append((ErrorCode(answer.error_code), answer.base_offset, answer.log_append_time_ms > 0))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_zstd_is_refused_to_old_consumers_as_by_kafka(
    ours: RawConnection, kafka_3: RawConnection, version: int
) -> None:
    answers = []
    for connection in (ours, kafka_3):
        topic = create(connection, f"zstd-{version}")
        assert produce(connection, topic, 7, encode_batch(_INPUTS, Codec.ZSTD)).error_code == ErrorCode.NONE
        answer = fetch(connection, topic, version)
        answers.append((ErrorCode(answer.error_code), answer.high_watermark, bool(answer.records)))
    assert answers[0] == answers[1] == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1, False)


@pytest.mark.parametrize(("release", "magic"), [("0.9.0", 0), ("0.10.2-IV0", 1), ("0.11.0", 2)])
def test_a_topic_in_an_old_format_is_as_in_kafka(
    ours: RawConnection, kafka_1: RawConnection, release: str, magic: int
) -> None:
    answers: list[list[object]] = []
    for connection in (ours, kafka_1):
        topic = create(connection, f"format-{release}", message_format_version=release)
        seen: list[object] = []
        answers.append(seen)
        sets: list[tuple[int, bytes | bytearray]] = [
            (3, encode_batch(_INPUTS)), (2, message_set(_ROWS, 1, Codec.GZIP)), (0, message_set(_ROWS, 0)),
            (3, encode_batch(_INPUTS, producer_id=1, producer_epoch=0, base_sequence=0)),
        ]  # fmt: skip
        for version, records in sets:
            answer = produce(connection, topic, version, records)
            seen.append((ErrorCode(answer.error_code), answer.base_offset))
        for version in range(7):
            found = _bytes(fetch(connection, topic, version))
            lowest = min(magic, 0 if version < 2 else 1 if version < 4 else 2)
            seen.append((version, found[16], _rows(found)[: 2 * len(_ROWS)]))
            assert found[16] == lowest
        for version in (0, 1, 2):
            for timestamp in (_NOW_MS, _NOW_MS + 3, -1, -2):
                part = list_offsets(connection, topic, version, timestamp)
                if version or timestamp < 0:  # version 0 goes by the times of the segments' files
                    seen.append(
                        (
                            version,
                            timestamp,
                            ErrorCode(part.error_code),
                            part.offset,
                            part.timestamp,
                            part.old_style_offsets,
                        )
                    )
    assert answers[0] == answers[1]


def test_consumers_are_refused_where_down_conversion_is_off_as_in_kafka(
    ours: RawConnection, kafka_3: RawConnection
) -> None:
    answers: list[list[object]] = []
    for connection in (ours, kafka_3):
        topic = create(connection, "as-they-are", message_downconversion_enable="false")
        seen: list[object] = []
        answers.append(seen)
        for records in (None, encode_batch(_INPUTS)):
            if records is not None:
                seen.append(produce(connection, topic, 3, records).error_code)
            for version in range(6):
                part = fetch(connection, topic, version)
                seen.append((version, ErrorCode(part.error_code), part.high_watermark, bool(part.records)))
    assert answers[0] == answers[1]
