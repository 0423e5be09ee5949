"""Fetches in sessions, over sockets: which of them wait, which are woken, and the effect of a second request of a
session on the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jesenska.base.errors import ErrorCode
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from tests.raw_connection import RawConnection

_VERSION = 12
_LONG_MS = 60_000
_RECORD = bytes(encode_batch([(1_700_000_000_000, b"key", b"value", ())]))


def create(connection: RawConnection, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
    configs = [CreateTopicsRequestConfig(name=name, value=value) for name, value in (settings or {}).items()]
    wanted = CreateTopicsRequestTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=configs)
    answer = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.NONE


def produce(connection: RawConnection, topic: str, partition: int) -> None:
    data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=partition, records=_RECORD)])
    answer = connection.ask(ProduceRequest(acks=1, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def request(
    session_id: int,
    epoch: int,
    topic: str = "",
    partitions: Sequence[int] = (),
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
) -> FetchRequest:
    asked = [
        FetchRequestPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in partitions
    ]
    topics = [FetchRequestTopic(topic=topic, partitions=asked)]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=topics if partitions else [],
    )


def begin(connection: RawConnection, topic: str, partitions: Sequence[int]) -> int:
    answer = connection.ask(request(0, 0, topic, partitions), _VERSION, FetchResponse)
    assert answer.session_id != 0
    return answer.session_id


def send(connection: RawConnection, fetch: FetchRequest) -> None:
    connection.send_frame(connection.frame(fetch, _VERSION))


def told(answer: FetchResponse) -> list[tuple[int, int, int]]:
    return [
        (part.partition_index, part.high_watermark, len(part.records or b""))
        for topic in answer.responses
        for part in topic.partitions
    ]


def test_a_fetch_that_waits_is_woken_by_one_of_its_many_idle_partitions(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as reader, RawConnection(broker.bootstrap) as writer:
        create(writer, "woken-in-session", 300)
        session_id = begin(reader, "woken-in-session", range(300))
        assert told(reader.ask(request(session_id, 1), _VERSION, FetchResponse)) == []
        read: list[int] = []
        for epoch, partition in ((2, 250), (3, 7)):
            send(reader, request(session_id, epoch, "woken-in-session", read, offset=1, max_wait_ms=_LONG_MS))
            produce(writer, "woken-in-session", partition)
            assert told(reader.receive(_VERSION, FetchResponse)) == [(partition, 1, len(_RECORD))]
            read = [partition]


def test_a_fetch_that_waits_for_more_bytes_counts_what_is_there_already(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as reader, RawConnection(broker.bootstrap) as writer:
        create(writer, "gathered", 3)
        session_id = begin(reader, "gathered", range(3))
        produce(writer, "gathered", 0)
        send(reader, request(session_id, 1, max_wait_ms=_LONG_MS, min_bytes=3 * len(_RECORD)))
        for partition in (1, 0):
            produce(writer, "gathered", partition)
        assert sorted(told(reader.receive(_VERSION, FetchResponse))) == [(0, 2, 2 * len(_RECORD)), (1, 1, len(_RECORD))]


def test_a_session_is_answered_at_once_where_one_of_its_partitions_stands_in_a_segment_that_has_ended(
    broker: BrokerProcess,
) -> None:
    size_bytes = len(_RECORD)
    with RawConnection(broker.bootstrap) as connection:
        create(connection, "segments", 2, {"segment.bytes": str(size_bytes)})
        session_id = begin(connection, "segments", range(2))
        for partition in (0, 0, 1):
            produce(connection, "segments", partition)
        fetch = request(session_id, 1, max_wait_ms=_LONG_MS, min_bytes=10 * size_bytes)
        assert told(connection.ask(fetch, _VERSION, FetchResponse)) == [(0, 2, size_bytes), (1, 1, size_bytes)]


def test_a_consumer_that_holds_records_of_a_partition_is_not_kept_by_another_that_has_none(
    broker: BrokerProcess,
) -> None:
    """Java's consumer fetches like this: it names the partition that is read to its end, and leaves out another
    partition of which it still holds records."""
    with RawConnection(broker.bootstrap) as reader, RawConnection(broker.bootstrap) as writer:
        create(writer, "held", 2)
        for _ in range(2):
            produce(writer, "held", 1)
        asked = [FetchRequestPartition(partition=number, partition_max_bytes=len(_RECORD)) for number in range(2)]
        first = FetchRequest(
            session_epoch=0, min_bytes=1, max_bytes=1 << 20, topics=[FetchRequestTopic(topic="held", partitions=asked)]
        )
        answer = reader.ask(first, _VERSION, FetchResponse)
        assert told(answer) == [(0, 0, 0), (1, 2, len(_RECORD))]
        held = request(answer.session_id, 1, max_wait_ms=2**31 - 1)
        held.forgotten_topics_data = [FetchRequestForgottenTopicsData(topic="held", partitions=[1])]
        assert told(reader.ask(held, _VERSION, FetchResponse)) == []
        rest = request(answer.session_id, 2, "held", [1], offset=1, max_wait_ms=2**31 - 1)
        assert told(reader.ask(rest, _VERSION, FetchResponse)) == [(1, 2, len(_RECORD))]


def test_a_consumer_that_has_been_given_all_waits(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as reader, RawConnection(broker.bootstrap) as writer:
        create(writer, "all-given", 2)
        produce(writer, "all-given", 1)
        session_id = begin(reader, "all-given", range(2))
        only_first = request(session_id, 1, max_wait_ms=_LONG_MS)
        only_first.forgotten_topics_data = [FetchRequestForgottenTopicsData(topic="all-given", partitions=[1])]
        send(reader, only_first)
        assert writer.ask(request(0, -1, "all-given", [0]), _VERSION, FetchResponse).error_code == ErrorCode.NONE
        produce(writer, "all-given", 0)
        assert told(reader.receive(_VERSION, FetchResponse)) == [(0, 1, len(_RECORD))]


def test_a_second_request_of_a_session_takes_it_over_from_the_first(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as first, RawConnection(broker.bootstrap) as second:
        create(second, "taken-over", 2)
        session_id = begin(first, "taken-over", range(2))
        send(first, request(session_id, 1, max_wait_ms=_LONG_MS))
        assert (
            second.ask(request(session_id, 1), _VERSION, FetchResponse).error_code
            == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        )
        assert second.ask(request(session_id, 2), _VERSION, FetchResponse).error_code == ErrorCode.NONE
        produce(second, "taken-over", 1)
        assert first.receive(_VERSION, FetchResponse).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert told(second.ask(request(session_id, 3), _VERSION, FetchResponse)) == [(1, 1, len(_RECORD))]


def test_a_fetch_that_waits_is_answered_when_its_session_ends(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as reader, RawConnection(broker.bootstrap) as other:
        create(other, "ended", 1)
        session_id = begin(reader, "ended", [0])
        send(reader, request(session_id, 1, max_wait_ms=_LONG_MS))
        assert (
            other.ask(request(session_id, 1), _VERSION, FetchResponse).error_code
            == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        )
        assert other.ask(request(session_id, -1), _VERSION, FetchResponse).session_id == 0
        assert told(reader.receive(_VERSION, FetchResponse)) == []


def test_a_partition_that_the_first_fetch_names_twice_is_one_in_the_session(broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as reader, RawConnection(broker.bootstrap) as writer:
        create(writer, "named-twice", 1)
        session_id = begin(reader, "named-twice", [0, 0])
        produce(writer, "named-twice", 0)
        assert told(reader.ask(request(session_id, 1), _VERSION, FetchResponse)) == [(0, 1, len(_RECORD))]
        produce(writer, "named-twice", 0)


def test_a_broker_without_slots_answers_in_full(tmp_path: Path) -> None:
    settings = {"max.incremental.fetch.session.cache.slots": "0"}
    with BrokerProcess(tmp_path, settings=settings) as broker, RawConnection(broker.bootstrap) as connection:
        create(connection, "plain", 2)
        for _ in range(2):
            answer = connection.ask(request(0, 0, "plain", [0, 1]), _VERSION, FetchResponse)
            assert answer.session_id == 0
            assert told(answer) == [(0, 0, 0), (1, 0, 0)]
