"""Produce requests whose batches are checked in different places (on the loop, in the pool). They are answered and
appended in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import MAGIC_OFFSET, Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from tests.raw_connection import RawConnection
from tests.units.records.old_messages import message_set

_NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("produce") / "data") as running,
        RawConnection(running.bootstrap) as connection,
    ):
        wanted = [
            CreateTopicsRequestTopic(name=name, num_partitions=4, replication_factor=1) for name in ("mixed", "ordered")
        ]
        answer = connection.ask(CreateTopicsRequest(topics=wanted, timeout_ms=20_000), 5, CreateTopicsResponse)
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.NONE] * 2
        yield running


def _values(connection: RawConnection, topic: str, partition: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = 0
    while True:
        part = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 22)
        answer = connection.ask(
            FetchRequest(max_wait_ms=0, topics=[FetchRequestTopic(topic=topic, partitions=[part])]), 11, FetchResponse
        )
        records = answer.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        if not records:
            return found
        found += [record.value for record in decode_batches(records, start_offset=offset)]
        offset = [header.last_offset for _, header in iter_headers(records)][-1] + 1


def _request(topic: str, batches: dict[int, bytes], acks: int = 1) -> ProduceRequest:
    data = [ProduceRequestPartition(index=partition, records=batch) for partition, batch in batches.items()]
    return ProduceRequest(
        acks=acks, timeout_ms=20_000, topic_data=[ProduceRequestTopic(name=topic, partition_data=data)]
    )


def test_small_large_and_compressed_batches_share_a_request(broker: BrokerProcess) -> None:
    values = {
        0: [bytes(700_000)],
        1: [b"small"] * 3,
        2: [bytes([number]) * 30_000 for number in range(5)],
        3: [b"plain"],
    }
    codecs = {0: Codec.LZ4, 1: Codec.GZIP, 2: Codec.NONE, 3: Codec.NONE}
    batches = {
        partition: bytes(encode_batch([(_NOW_MS, None, value, ()) for value in values[partition]], codecs[partition]))
        for partition in values
    }
    with RawConnection(broker.bootstrap) as connection:
        for turn in range(2):
            answer = connection.ask(_request("mixed", batches), 9, ProduceResponse)
            parts = answer.responses[0].partition_responses
            assert [(part.index, part.error_code, part.base_offset) for part in parts] == [
                (partition, ErrorCode.NONE, turn * len(values[partition])) for partition in values
            ]
        assert {partition: _values(connection, "mixed", partition) for partition in values} == {
            partition: expected * 2 for partition, expected in values.items()
        }


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_has_every_batch_in_it(broker: BrokerProcess, target: str) -> None:
    """Small batches and large ones, of every codec, and an old client's message set."""
    topic, wanted = f"in-{target}", Codec.NONE if target == "uncompressed" else Codec[target.upper()]
    values = [b"small", bytes(100_000), b"old"]
    with RawConnection(broker.bootstrap) as connection:
        configs = [CreateTopicsRequestConfig(name="compression.type", value=target)]
        made = CreateTopicsRequest(
            topics=[CreateTopicsRequestTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)],
            timeout_ms=20_000,
        )
        assert connection.ask(made, 5, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE
        for codec in Codec:
            for value in values[:2]:
                batch = bytes(encode_batch([(_NOW_MS, b"k", value, ())] * 2, codec))
                answer = connection.ask(_request(topic, {0: batch}), 9, ProduceResponse)
                assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        answer = connection.ask(
            _request(topic, {0: bytes(message_set([(_NOW_MS, b"k", values[2])], 1))}), 2, ProduceResponse
        )
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert _values(connection, topic, 0) == [value for _ in Codec for value in values[:2] for _ in range(2)] + [
            values[2]
        ]
        part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 22)
        fetched = connection.ask(
            FetchRequest(max_wait_ms=0, topics=[FetchRequestTopic(topic=topic, partitions=[part])]), 11, FetchResponse
        )
        records = fetched.responses[0].partitions[0].records
        assert isinstance(records, memoryview)
        assert {header.codec for _, header in iter_headers(records)} == {wanted}


def test_requests_of_one_connection_stay_in_order_wherever_their_batches_are_checked(broker: BrokerProcess) -> None:
    """All are sent at once, small ones after large ones that a thread of the pool checks."""
    values = [bytes([number % 256]) * (200_000 if number % 3 == 0 else 10) for number in range(60)]
    codecs = [Codec.LZ4, Codec.NONE, Codec.SNAPPY, Codec.NONE, Codec.ZSTD]
    with RawConnection(broker.bootstrap) as connection:
        for number, value in enumerate(values):
            batch = bytes(encode_batch([(_NOW_MS, None, value, ())] * 4, codecs[number % len(codecs)]))
            connection.send_frame(connection.frame(_request("ordered", {0: batch}), 9))
        for number in range(len(values)):
            part = connection.receive(9, ProduceResponse).responses[0].partition_responses[0]
            assert (part.error_code, part.base_offset) == (ErrorCode.NONE, number * 4)
        assert _values(connection, "ordered", 0) == [value for value in values for _ in range(4)]


def _record(**settings: Any) -> bytes:
    return bytes(encode_batch([(_NOW_MS, None, b"in a transaction", ())], **settings))


_IN_TRANSACTION: dict[str, Any] = {
    "producer_id": 4711,
    "producer_epoch": 0,
    "base_sequence": 0,
    "is_transactional": True,
}


@pytest.mark.parametrize("version", range(3, 13))
def test_transactional_batches_are_refused_and_hold_nobody_back(broker: BrokerProcess, version: int) -> None:
    """The producer is unknown, so its transaction could never be ended. The errors are those of Apache Kafka 3.9.1 and
    4.3.1. A batch without a producer id belongs to no transaction."""
    plain = _record()
    with RawConnection(broker.bootstrap) as connection:
        before = len(_values(connection, "mixed", 3))

        def codes(transactional_id: str | None, batches: dict[int, bytes]) -> list[int]:
            request = _request("mixed", batches)
            request.transactional_id = transactional_id
            return [
                part.error_code
                for part in connection.ask(request, version, ProduceResponse).responses[0].partition_responses
            ]

        refusal = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        while codes("t", {3: _record(**_IN_TRANSACTION)}) != [refusal]:
            # The first look-up makes the topic that keeps transactions.
            connection.ask(FindCoordinatorRequest(key="t", key_type=1), 3, FindCoordinatorResponse)
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert codes(None, {2: plain, 3: _record(**_IN_TRANSACTION)}) == [refused, refused]
        assert codes(None, {2: plain, 3: _record(is_transactional=True)}) == [refused, refused]
        assert codes("t", {2: plain, 3: _record(**_IN_TRANSACTION)}) == [ErrorCode.NONE, refusal]
        large = bytes(encode_batch([(_NOW_MS, None, bytes(100_000), ())], **_IN_TRANSACTION))
        assert codes("t", {2: plain, 3: large}) == [ErrorCode.NONE, refusal]
        assert codes(None, {3: large}) == [refused]
        assert len(_values(connection, "mixed", 3)) == before
        assert codes("t", {3: plain}) == codes("t", {3: _record(is_transactional=True)}) == [ErrorCode.NONE]
        request = FetchRequest(
            isolation_level=1,
            max_wait_ms=0,
            topics=[
                FetchRequestTopic(
                    topic="mixed",
                    partitions=[FetchRequestPartition(partition=3, fetch_offset=0, partition_max_bytes=1000)],
                )
            ],
        )
        part = connection.ask(request, 11, FetchResponse).responses[0].partitions[0]
        assert part.last_stable_offset == part.high_watermark


def test_what_of_a_request_with_transactional_batches_is_told_first(broker: BrokerProcess) -> None:
    """As in Apache Kafka 4.3.1: an error that refuses the whole request is reported first, in the order of the
    batches, with any acks."""
    transactional, unreadable = _record(**_IN_TRANSACTION), bytearray(_record())
    unreadable[MAGIC_OFFSET] = 3
    with RawConnection(broker.bootstrap) as connection:

        def codes(batches: dict[int, bytes], acks: int = -1, transactional_id: str | None = None) -> list[int]:
            request = _request("mixed", batches)
            request.acks, request.transactional_id = acks, transactional_id
            return [
                part.error_code for part in connection.ask(request, 8, ProduceResponse).responses[0].partition_responses
            ]

        refused, corrupt = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CORRUPT_MESSAGE
        assert codes({2: _record(), 3: transactional}, acks=2) == [refused, refused]
        assert codes({2: transactional, 3: bytes(unreadable)}) == [refused, refused]
        assert codes({2: bytes(unreadable), 3: transactional}) == [corrupt, corrupt]
        assert codes({2: transactional, 3: bytes(unreadable)}, transactional_id="t") == [corrupt, corrupt]
        # A truncated batch does not count as transactional.
        unknown, mistaken = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUIRED_ACKS
        assert codes({2**31 - 1: transactional[:-1], 3: _record()}, acks=2) == [unknown, mistaken]


def test_what_a_coordinator_refuses_is_told_without_a_log_start_offset(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as connection:
        request = _request("mixed", {3: _record(**_IN_TRANSACTION)})
        request.transactional_id = "t"
        (part,) = connection.ask(request, 8, ProduceResponse).responses[0].partition_responses
    assert part.error_code in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert part.log_start_offset == -1
