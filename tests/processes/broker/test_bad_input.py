"""Bad input over raw sockets: the documented code or a closed connection; other connections go on, and nothing written
is lost."""

from __future__ import annotations

import random
import re
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.limits import DECOMPRESSED_BATCH_MAX_BYTES
from jesenska.base.regions import FileRegion
from jesenska.records.compression import compress
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.codec import encode
from jesenska.wire.headers import request_head
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from jesenska.wire.registry import APIS
from tests.bad_batches import bad_batches
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.units.records.raw_batches import raw_batch

_KEPT = "kept"
_RECORDS = bytes(encode_batch([(1_700_000_000_000, b"key", b"value %d" % number, ()) for number in range(10)]))
_INT32_MAX = 2**31 - 1


def create(connection: RawConnection, topic: str, **configs: str) -> None:
    wanted = CreateTopicsRequestTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        configs=[
            CreateTopicsRequestConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
        ],
    )
    answer = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0].error_message


def produce_request(topic: str, records: bytes, *, acks: int = -1, partition: int = 0) -> ProduceRequest:
    data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=partition, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[data])


def produce(
    connection: RawConnection, topic: str, records: bytes, *, acks: int = -1, partition: int = 0, version: int = 9
) -> int:
    answer = connection.ask(produce_request(topic, records, acks=acks, partition=partition), version, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def fetch(connection: RawConnection, topic: str, offset: int, partition: int = 0) -> tuple[int, bytes]:
    part = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchRequestTopic(topic=topic, partitions=[part])])
    found = connection.ask(request, 11, FetchResponse).responses[0].partitions[0]
    assert not isinstance(found.records, FileRegion)
    return found.error_code, bytes(found.records or b"")


@pytest.fixture(scope="module")
def kept(broker: BrokerProcess) -> Iterator[bytes]:
    """The content of a topic before all these tests."""
    with RawConnection(broker.bootstrap) as connection:
        create(connection, _KEPT, retention_ms="-1")
        assert produce(connection, _KEPT, _RECORDS) == ErrorCode.NONE
        yield fetch(connection, _KEPT, 0)[1]


@pytest.fixture(autouse=True)
def bystander(broker: BrokerProcess, kept: bytes) -> Iterator[None]:
    """Another client, connected all the time: it is served before and after, the records are there, and the broker has
    met no unexpected error."""
    said_before = len(broker.log)
    pid = broker.pid
    with RawConnection(broker.bootstrap) as connection:
        assert fetch(connection, _KEPT, 0) == (ErrorCode.NONE, kept)
        yield
        assert fetch(connection, _KEPT, 0) == (ErrorCode.NONE, kept)
    assert broker.pid == pid
    assert "Traceback" not in broker.log[said_before:]


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as opened:
        yield opened


# --- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [-1, -(2**31), 104_857_601, _INT32_MAX, 0, 1, 7])
def test_a_frame_length_that_cannot_be_closes_the_connection(connection: RawConnection, length: int) -> None:
    """Below zero, over socket.request.max.bytes, or too short for a header: the broker closes the connection as soon
    as it has the length (and the few bytes), not later."""
    connection.send(struct.pack(">i", length) + bytes(max(0, min(length, 7))))
    assert connection.is_closed()


def test_http_and_tls_hellos_close_the_connection(broker: BrokerProcess) -> None:
    for hello in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes.fromhex("16030100c8010000c40303") + bytes(100)):
        with RawConnection(broker.bootstrap) as connection:
            connection.send(hello)
            assert connection.is_closed()


def test_random_bytes_close_the_connection_or_wait_for_more(broker: BrokerProcess) -> None:
    chance = random.Random(1882)
    for _ in range(300):
        with RawConnection(broker.bootstrap) as connection:
            data = chance.randbytes(chance.randrange(1, 3000))
            if chance.random() < 0.7:
                data = struct.pack(">i", len(data)) + data  # a whole frame of nonsense
            try:
                connection.send(data)
                connection.socket.shutdown(1)
            except (ClosedByBrokerError, OSError):
                continue
            assert connection.is_closed()


def test_random_bodies_of_every_api_are_answered_or_close_the_connection(broker: BrokerProcess) -> None:
    """A good header with a random body: no handler meets an unexpected error."""
    chance = random.Random(1920)
    with RawConnection(broker.bootstrap) as asking:
        announced = asking.ask(
            ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, ApiVersionsResponse
        ).api_keys
    for item in announced:
        for version in range(item.min_version, item.max_version + 1):
            api = APIS[item.api_key]
            for size in (0, 1, 5, 40):
                with RawConnection(broker.bootstrap) as connection:
                    head = request_head(item.api_key, version, 7, "x", api.request_header_version(version))
                    connection.send_frame(bytes(head) + chance.randbytes(size))
                    connection.socket.shutdown(1)
                    try:
                        frame = connection.receive_frame()
                        assert frame[:4] == struct.pack(">i", 7)
                    except ClosedByBrokerError:
                        pass


@pytest.mark.parametrize(
    ("key", "version"), [(-1, 0), (99, 0), (9999, 3), (72, 0), (0, 99), (1, 19), (1, -1), (3, 32767)]
)
def test_an_unknown_key_or_version_closes_the_connection(connection: RawConnection, key: int, version: int) -> None:
    connection.send_frame(struct.pack(">hhihb", key, version, 1, -1, 0) + bytes(20))
    assert connection.is_closed()


def test_an_unknown_version_of_api_versions_is_answered_with_what_there_is(connection: RawConnection) -> None:
    connection.send_frame(struct.pack(">hhih", 18, 99, 5, -1) + b"\0\0")
    answer = connection.receive(0, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    # The connection stays open.
    assert connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize("count", [_INT32_MAX, 1_000_001, 1000, -2, -(2**31)])
def test_counts_that_lie_close_the_connection(connection: RawConnection, count: int) -> None:
    body = struct.pack(">i", count) + struct.pack(">h", 1) + b"x"
    connection.send_frame(struct.pack(">hhih", 3, 1, 1, -1) + body)
    assert connection.is_closed()


@pytest.mark.parametrize(
    "compact", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x01", b"\x80"]
)
def test_compact_counts_that_lie_close_the_connection(connection: RawConnection, compact: bytes) -> None:
    connection.send_frame(bytes(request_head(3, 12, 1, None, 2)) + compact + b"\0\0")
    assert connection.is_closed()


def test_strings_that_lie_or_are_not_text_close_the_connection(broker: BrokerProcess) -> None:
    for topic in (struct.pack(">h", 30_000) + b"x", struct.pack(">h", -2), struct.pack(">h", 2) + b"\xff\xfe"):
        with RawConnection(broker.bootstrap) as connection:
            connection.send_frame(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 1) + topic)
            assert connection.is_closed()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_announced_lengths_take_no_memory_before_their_bytes_arrive(broker: BrokerProcess) -> None:
    def resident() -> int:
        return int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1]) * 4096

    with RawConnection(broker.bootstrap) as last:
        last.ask(MetadataRequest(topics=[]), 1, MetadataResponse)
        before = resident()
        opened = [RawConnection(broker.bootstrap) for _ in range(100)]
        try:
            for one in opened:
                one.send(struct.pack(">i", 100_000_000) + b"x" * 100)
            last.ask(MetadataRequest(topics=[]), 1, MetadataResponse)
            assert resident() - before < 50_000_000
        finally:
            for one in opened:
                one.socket.close()


def test_a_client_that_does_not_read_is_not_read_from(broker: BrokerProcess) -> None:
    """Its answers wait up to a limit, then its requests stay in its own socket. So the broker's memory for both does
    not grow."""
    with RawConnection(broker.bootstrap, 2.0) as deaf:
        create(deaf, "deaf")
        assert produce(deaf, "deaf", bytes(encode_batch([(0, b"k", bytes(900_000), ())]))) == ErrorCode.NONE
        part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, topics=[FetchRequestTopic(topic="deaf", partitions=[part])])
        frame = bytes(request_head(1, 11, 1, "x" * 30_000, 1)) + encode(request, 11)
        before = _high_mark(broker)
        with pytest.raises(TimeoutError):
            for _ in range(3000):
                deaf.send_frame(frame)
        assert _high_mark(broker) - before < 40_000_000


# --- records ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(bad_batches()))
def test_bad_records_are_refused_and_leave_no_trace(connection: RawConnection, name: str) -> None:
    bad = bad_batches()[name]
    topic = "refused-" + re.sub(r"\W+", "-", name)
    create(connection, topic, **{key.replace(".", "_"): value for key, value in bad.configs.items()})
    good = bytes(encode_batch([(1_700_000_000_000, b"k", b"v", ())]))
    assert produce(connection, topic, good) == ErrorCode.NONE
    assert produce(connection, topic, bad.records, acks=bad.acks, partition=bad.partition) == bad.code
    assert produce(connection, topic, good) == ErrorCode.NONE
    code, records = fetch(connection, topic, 0)
    assert code == ErrorCode.NONE
    assert len(records) == 2 * len(good)


@pytest.mark.parametrize("version", [3, 7])
def test_producers_of_every_age_are_told_of_an_invalid_record(connection: RawConnection, version: int) -> None:
    topic = f"older-{version}"
    create(connection, topic)
    assert (
        produce(connection, topic, bad_batches()["count too high"].records, version=version) == ErrorCode.INVALID_RECORD
    )


def test_zstd_from_a_producer_too_old_for_it_is_refused(connection: RawConnection) -> None:
    create(connection, "too-old")
    records = bytes(encode_batch([(0, b"k", b"v", ())], Codec.ZSTD))
    assert produce(connection, "too-old", records, version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(connection, "too-old", records, version=7) == ErrorCode.NONE


def test_an_error_without_acknowledgements_closes_the_connection(connection: RawConnection) -> None:
    create(connection, "silent")
    connection.send_frame(connection.frame(produce_request("silent", bad_batches()["wrong CRC"].records, acks=0), 9))
    assert connection.is_closed()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_decompression_bomb_is_refused_in_bounded_memory(
    broker: BrokerProcess, connection: RawConnection, codec: Codec
) -> None:
    size = DECOMPRESSED_BATCH_MAX_BYTES + 10_000_000
    # The record states its true size: only the limit refuses it.
    body = b"\x00\x00\x00" + _varint(1) + b"k" + _varint(size) + bytes(size) + b"\x00"
    packed = compress(codec, _varint(len(body)) + body)
    topic = f"bomb-{codec.name.lower()}"
    create(connection, topic, max_message_bytes="100000000")
    before = _high_mark(broker)
    assert produce(connection, topic, bytes(raw_batch(packed, 1, attributes=codec))) == ErrorCode.INVALID_RECORD
    after = _high_mark(broker)
    if before and after:
        assert after - before < 2 * len(packed) + 60_000_000, "it was never in memory as a whole"
    assert fetch(connection, topic, 0) == (ErrorCode.NONE, b"")


def _high_mark(broker: BrokerProcess) -> int:
    """The most memory that the broker ever had, in bytes. 0 on systems other than Linux."""
    if sys.platform != "linux":
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def _varint(number: int) -> bytes:
    rest, encoded = number << 1, bytearray()
    while rest > 127:
        encoded.append(rest % 128 + 128)
        rest //= 128
    encoded.append(rest)
    return bytes(encoded)


# --- what cannot be served -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [11, 2**62, -3])
def test_a_fetch_outside_the_log_answers_offset_out_of_range(connection: RawConnection, offset: int) -> None:
    assert fetch(connection, _KEPT, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


@pytest.mark.parametrize(("topic", "partition"), [("never-created", 0), (_KEPT, 1), (_KEPT, -1), ("../etc", 0)])
def test_a_fetch_of_what_is_not_there_answers_so(connection: RawConnection, topic: str, partition: int) -> None:
    assert fetch(connection, topic, 0, partition) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b"")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "with space", "n\0ll", "ünlaut", "x" * 250])
def test_a_topic_name_that_is_not_allowed_is_refused(
    broker: BrokerProcess, connection: RawConnection, name: str
) -> None:
    wanted = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    created = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
    assert [item.error_code for item in created.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    asked = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9, MetadataResponse)
    assert [item.error_code for item in asked.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert produce(connection, name, _RECORDS) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not [
        path
        for path in broker.data.iterdir()
        if path.is_dir() and not re.fullmatch(r"[\w.-]+-\d+(\.[0-9a-f]{32}-delete)?", path.name)
    ]


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_counts_of_a_topic_that_cannot_be_are_refused(
    connection: RawConnection, partitions: int, replicas: int, code: ErrorCode
) -> None:
    wanted = CreateTopicsRequestTopic(name="impossible", num_partitions=partitions, replication_factor=replicas)
    created = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
    assert [item.error_code for item in created.topics] == [code]


@pytest.mark.parametrize("version", [1, 5])
def test_a_name_as_long_as_a_string_can_be_is_refused_with_a_message_that_fits(
    connection: RawConnection, version: int
) -> None:
    wanted = CreateTopicsRequestTopic(name="x" * 32_767, num_partitions=1, replication_factor=1)
    created = connection.ask(
        CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), version, CreateTopicsResponse
    ).topics[0]
    assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert created.error_message is not None
    assert len(created.error_message) < 2_100


def test_partitions_without_number_are_refused(connection: RawConnection) -> None:
    wanted = CreateTopicsRequestTopic(name="endless", num_partitions=_INT32_MAX, replication_factor=1)
    created = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
    assert created.topics[0].error_code != ErrorCode.NONE


def test_an_offset_committed_to_be_kept_beyond_the_end_of_time_is_kept(connection: RawConnection) -> None:
    deadline = time.monotonic() + 20
    while (
        connection.ask(FindCoordinatorRequest(key="for ever"), 0, FindCoordinatorResponse).error_code != ErrorCode.NONE
    ):
        assert time.monotonic() < deadline, "no coordinator"
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    request = OffsetCommitRequest(
        group_id="for ever",
        retention_time_ms=2**63 - 1,
        topics=[OffsetCommitRequestTopic(name=_KEPT, partitions=[part])],
    )
    assert connection.ask(request, 4, OffsetCommitResponse).topics[0].partitions[0].error_code == ErrorCode.NONE
    wanted = OffsetFetchRequest(
        group_id="for ever", topics=[OffsetFetchRequestTopic(name=_KEPT, partition_indexes=[0])]
    )
    assert connection.ask(wanted, 5, OffsetFetchResponse).topics[0].partitions[0].committed_offset == 5


@pytest.mark.parametrize("offset", [11, -2, 2**62])
def test_records_outside_the_log_are_not_deleted(connection: RawConnection, offset: int) -> None:
    part = DeleteRecordsRequestPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsRequestTopic(name=_KEPT, partitions=[part])], timeout_ms=20_000)
    answer = connection.ask(request, 1, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_request_sent_byte_by_byte_is_answered(connection: RawConnection) -> None:
    request: Message = MetadataRequest(topics=[MetadataRequestTopic(name=_KEPT)])
    frame = bytes(request_head(3, 1, 3, None, 1)) + encode(request, 1)
    for byte in struct.pack(">i", len(frame)) + frame:
        connection.send(bytes([byte]))
    assert connection.receive(1, MetadataResponse).topics[0].error_code == ErrorCode.NONE
