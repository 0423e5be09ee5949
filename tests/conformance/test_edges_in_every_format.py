"""Ten thousand records with every edge, written in each format and codec, read in each format and by clients of today:
keys, values, times, order and headers are those that were given, as far as the format has them.

Real Apache Kafka 3.9.1 gets the same requests. It converts no record with a negative time (other than -1, which means
none): it answers UNKNOWN_SERVER_ERROR, to the producer of format v1 and to the consumer of v0 and v1. Here they are
times like others, so that part is compared without them.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.records.message_set import decode_message_set
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import FetchResponsePartition
from tests.conformance.conftest import need, need_modules
from tests.old_requests import create, fetch, produce
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection
from tests.units.records.old_messages import OLD_CODECS, message_set

pytestmark = pytest.mark.conformance

need_modules("confluent_kafka", "kafka", "snappy")

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 advises against.
    warnings.simplefilter("ignore", DeprecationWarning)
    import confluent_kafka
    from kafka import KafkaConsumer, TopicPartition
    from kafka.record import MemoryRecords

Header = tuple[str, bytes | None]


class Edge(NamedTuple):
    """One record."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


SIXTEEN_MB = 16 * 1024 * 1024
_COUNT, _MEGABYTE, _LARGE = 10_000, 1024 * 1024, (0, 4_999, 9_999)
_NOW_MS, _NONE = 1_700_000_000_000, -1
_KEYS: list[bytes | None] = [None, b"", b"key", b"\xff\0\x80"]
_VALUES: list[bytes | None] = [b"value", None, b"", b"\0" * 40, b"x" * 127, b"x" * 128]
_TIMES = [_NOW_MS, _NONE, _NOW_MS - 1, 0, -2, -62_135_596_800_000, 253_402_300_799_999]
_HEADERS: list[tuple[Header, ...]] = [(), (("name", b"value"),), (("twice", b"1"), ("twice", None), ("", b""))]


def _edges() -> list[Edge]:
    """Each kind of key, value, time and headers with each other: the numbers of kinds have no common divisor but for
    keys and values."""
    chance = random.Random(6)
    found = []
    for index in range(_COUNT):
        value = chance.randbytes(_MEGABYTE) if index in _LARGE else _VALUES[index // len(_KEYS) % len(_VALUES)]
        found.append(
            Edge(_TIMES[index % len(_TIMES)], _KEYS[index % len(_KEYS)], value, _HEADERS[index % len(_HEADERS)])
        )
    return found


EDGES = _edges()
WITHOUT_NEGATIVES = [edge._replace(timestamp_ms=max(edge.timestamp_ms, _NONE)) for edge in EDGES]
#: Produce version by format.
_PRODUCE = {0: 0, 1: 2, 2: 7}
FORMS = [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS] + [(2, codec) for codec in Codec]
#: Fetch versions by the format in which they give records.
_FETCH = {0: (0, 1), 1: (2, 3), 2: (4, 11)}


def _records(edges: Sequence[Edge], magic: int, codec: Codec) -> bytes | bytearray:
    if magic == 2:
        return encode_batch(edges, codec)
    return message_set([(edge.timestamp_ms, edge.key, edge.value) for edge in edges], magic, codec)


def _in_format(edges: Sequence[Edge], *magics: int) -> list[Edge]:
    """What is left of them once they have been in each of these formats."""
    timed, headed = 0 not in magics, min(magics) == 2
    return [
        Edge(edge.timestamp_ms if timed else _NONE, edge.key, edge.value, edge.headers if headed else ())
        for edge in edges
    ]


def _bytes(part: FetchResponsePartition) -> bytes:
    assert part.error_code == ErrorCode.NONE
    assert isinstance(part.records, memoryview)
    return bytes(part.records)


def _decoded(records: bytes) -> tuple[set[int], list[tuple[int, Edge]]]:
    """The formats in which they came, and the records with their offsets: by kafka-python's decoder, but for lz4 in
    format v0, for which it wants a package more."""
    if records and records[16] == 0 and records[17] & 7 == Codec.LZ4:
        return {0}, [
            (record.offset, Edge(record.timestamp_ms, record.key, record.value))
            for record in decode_message_set(records)
        ]
    magics, found = set(), []
    batches = MemoryRecords(records)
    while (batch := batches.next_batch()) is not None:
        magics.add(batch.magic)
        for record in batch:
            time = _NONE if record.timestamp is None else record.timestamp
            found.append((record.offset, Edge(time, record.key, record.value, tuple(record.headers))))
    return magics, found


def _write(connection: RawConnection, topic: str, edges: Sequence[Edge], magic: int, codec: Codec) -> None:
    create(connection, topic, max_message_bytes=str(SIXTEEN_MB))
    answer = produce(connection, topic, _PRODUCE[magic], _records(edges, magic, codec))
    assert (ErrorCode(answer.error_code), answer.base_offset) == (ErrorCode.NONE, 0)


@pytest.fixture(scope="module")
def ours(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap, 60) as opened:
        yield opened


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that takes records of any time, also of times that have not come."""
    settings = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}
    with BrokerProcess(tmp_path_factory.mktemp("edges") / "data", settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def written(ours: RawConnection) -> dict[tuple[int, Codec], str]:
    """Topics by format and codec in which the edges were written to them."""
    topics = {form: f"edges-v{form[0]}-{form[1].name.lower()}" for form in FORMS}
    for (magic, codec), topic in topics.items():
        _write(ours, topic, EDGES, magic, codec)
    return topics


def _name(form: tuple[int, Codec]) -> str:
    return f"v{form[0]}-{form[1].name.lower()}"


@pytest.mark.parametrize("form", FORMS, ids=_name)
def test_every_edge_goes_round_from_each_format_to_each(
    ours: RawConnection, written: dict[tuple[int, Codec], str], form: tuple[int, Codec]
) -> None:
    topic = written[form]
    for magic, versions in _FETCH.items():
        answers = [fetch(ours, topic, version, max_bytes=SIXTEEN_MB) for version in versions]
        if form[1] is Codec.ZSTD and magic < 2:
            assert {answer.error_code for answer in answers} == {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
            continue
        first, second = map(_bytes, answers)
        assert first == second
        magics, found = _decoded(first)
        assert magics == {magic}
        assert found == list(enumerate(_in_format(EDGES, form[0], magic)))


@pytest.mark.parametrize("kept", [("0.9.0", 0), ("0.10.2", 1)], ids=["v0", "v1"])
def test_every_edge_goes_round_in_a_topic_that_keeps_an_old_format(ours: RawConnection, kept: tuple[str, int]) -> None:
    release, magic = kept
    topic = create(ours, f"edges-kept-in-v{magic}", max_message_bytes=str(SIXTEEN_MB), message_format_version=release)
    assert produce(ours, topic, 7, _records(EDGES, 2, Codec.LZ4)).error_code == ErrorCode.NONE
    magics, found = _decoded(_bytes(fetch(ours, topic, 11, max_bytes=SIXTEEN_MB)))
    assert magics == {magic}
    assert found == list(enumerate(_in_format(EDGES, 2, magic)))


@pytest.mark.parametrize("form", FORMS, ids=_name)
def test_confluent_kafka_reads_every_edge_of_each_format(
    broker: BrokerProcess, written: dict[tuple[int, Codec], str], form: tuple[int, Codec]
) -> None:
    found = _read_by_confluent(broker, written[form])
    assert found == _in_format(EDGES, form[0])


def _read_by_confluent(broker: BrokerProcess, topic: str) -> list[Edge]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "edges",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.message.max.bytes": SIXTEEN_MB,
            "receive.message.max.bytes": 100_000_000,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Edge] = []
        while len(found) < _COUNT:
            messages: list[Any] = consumer.consume(_COUNT, 20)
            assert messages, f"no more than {len(found)} records came"
            for message in messages:
                assert message.error() is None, message.error()
                assert message.offset() == len(found)
                kind, time = message.timestamp()
                headers = tuple((name, value) for name, value in message.headers() or ())
                found.append(
                    Edge(
                        _NONE if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else time,
                        message.key(),
                        message.value(),
                        headers,
                    )
                )
        return found
    finally:
        consumer.close()


def test_a_producer_and_consumer_of_today_with_limits_of_16_mb_pass_every_edge_that_they_take(
    ours: RawConnection, broker: BrokerProcess
) -> None:
    topic = create(ours, "edges-of-a-client", max_message_bytes=str(SIXTEEN_MB))
    # Its producer takes no time of 0 (which means now) and none before.
    edges = [edge._replace(timestamp_ms=edge.timestamp_ms if edge.timestamp_ms > 0 else _NOW_MS) for edge in EDGES]
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "message.max.bytes": SIXTEEN_MB,
            "batch.size": 8 * _MEGABYTE,
            "linger.ms": 200,
            "compression.type": "lz4",
        }
    )
    for edge in edges:
        producer.produce(topic, edge.value, edge.key, 0, timestamp=edge.timestamp_ms, headers=list(edge.headers))
    assert producer.flush(60) == 0
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=None,
        consumer_timeout_ms=20_000,
        fetch_max_bytes=SIXTEEN_MB,
        max_partition_fetch_bytes=SIXTEEN_MB,
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        found: list[Edge] = []
        for record in consumer:
            found.append(Edge(record.timestamp, record.key, record.value, tuple(record.headers)))
            if len(found) == _COUNT:
                break
    finally:
        consumer.close()
    assert found == edges
    for version in (1, 3):
        _, old = _decoded(_bytes(fetch(ours, topic, version, max_bytes=SIXTEEN_MB)))
        assert old == list(enumerate(_in_format(edges, version // 2)))[: len(old)]
        assert len(old) > 1


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawConnection]:
    need("java", "mvn")
    limits = {"message.max.bytes": str(SIXTEEN_MB), "replica.fetch.max.bytes": str(SIXTEEN_MB)}
    with (
        ApacheKafka("3.9.1", tmp_path_factory.mktemp("kafka"), heap="768m", settings=limits) as running,
        RawConnection(running.bootstrap, 60) as opened,
    ):
        yield opened


@pytest.mark.parametrize("form", [(0, Codec.NONE), (1, Codec.LZ4), (2, Codec.SNAPPY)], ids=_name)
def test_apache_kafka_gives_the_same_records_for_the_same_requests(
    ours: RawConnection, kafka: RawConnection, form: tuple[int, Codec]
) -> None:
    topic = f"compared-{_name(form)}"
    for connection in (ours, kafka):
        _write(connection, topic, WITHOUT_NEGATIVES, *form)
    for magic in _FETCH:
        found = [_all(connection, topic, _FETCH[magic][1]) for connection in (ours, kafka)]
        assert found[0] == found[1] == list(enumerate(_in_format(WITHOUT_NEGATIVES, form[0], magic)))


def _all(connection: RawConnection, topic: str, version: int) -> list[tuple[int, Edge]]:
    """Apache Kafka cuts what it has converted, so a second fetch may be needed; what of it was there before is left
    out, as a consumer does."""
    found: list[tuple[int, Edge]] = []
    while len(found) < _COUNT:
        _, more = _decoded(_bytes(fetch(connection, topic, version, len(found), SIXTEEN_MB)))
        assert more
        begun = len(found)
        found += [item for item in more if item[0] >= begun]
    return found


def test_apache_kafka_converts_no_negative_times_and_we_do(ours: RawConnection, kafka: RawConnection) -> None:
    edges = [Edge(-2, b"key", b"value")]
    seen: list[list[object]] = []
    for connection in (ours, kafka):
        answers: list[object] = []
        seen.append(answers)
        for magic in (1, 2):
            topic = create(connection, f"before-1970-v{magic}")
            answers.append(
                ErrorCode(produce(connection, topic, _PRODUCE[magic], _records(edges, magic, Codec.NONE)).error_code)
            )
            for version in (0, 2, 4):
                part = fetch(connection, topic, version)
                code = ErrorCode(part.error_code)
                answers.append(code or [edge.timestamp_ms for _, edge in _decoded(bytes(part.records or b""))[1]])  # type: ignore[arg-type]
    refused = ErrorCode.UNKNOWN_SERVER_ERROR
    assert seen == [
        [ErrorCode.NONE, [_NONE], [-2], [-2], ErrorCode.NONE, [_NONE], [-2], [-2]],
        [refused, [], [], [], ErrorCode.NONE, refused, refused, [-2]],
    ]
