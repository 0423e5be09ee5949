"""Unusual requests get the answers of Apache Kafka 4.3.1 (of 3.9.1 for versions that 4.x dropped)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID
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
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.raw_connection import RawConnection
from tests.units.records.raw_batches import raw_batch, raw_record

_NOW_MS = 1_700_000_000_000
_NONE = ErrorCode.NONE


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def create(connection: RawConnection, name: str, version: int = 5, timeout_ms: int = 10_000) -> int:
    topic = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    return (
        connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms), version, CreateTopicsResponse)
        .topics[0]
        .error_code
    )


def delete(connection: RawConnection, name: str, version: int, timeout_ms: int) -> int:
    return (
        connection.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms), version, DeleteTopicsResponse)
        .responses[0]
        .error_code
    )


def is_there(connection: RawConnection, name: str) -> bool:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return connection.ask(request, 9, MetadataResponse).topics[0].error_code == _NONE


def end_of(connection: RawConnection, name: str) -> int:
    topic = ListOffsetsRequestTopic(
        name=name, partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=-1)]
    )
    return (
        connection.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 1, ListOffsetsResponse)
        .topics[0]
        .partitions[0]
        .offset
    )


def batch(*values: bytes, codec: Codec = Codec.NONE) -> bytes:
    return bytes(encode_batch([(_NOW_MS, None, value, ()) for value in values], codec))


def produce(
    connection: RawConnection, *items: tuple[str, int, bytes | None], acks: int = 1, version: int = 9
) -> list[tuple[str, int, int]]:
    """Produces these records to partitions of topics. Returns the name, the partition and the error of each answer."""
    topics = [
        ProduceRequestTopic(name=name, partition_data=[ProduceRequestPartition(index=number, records=records)])
        for name, number, records in items
    ]
    answer = connection.ask(ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics), version, ProduceResponse)
    return [
        (topic.name, item.index, item.error_code) for topic in answer.responses for item in topic.partition_responses
    ]


def test_a_creation_whose_time_is_over_on_arrival_is_not_done(connection: RawConnection) -> None:
    assert create(connection, "too-late", timeout_ms=0) == ErrorCode.REQUEST_TIMED_OUT
    assert not is_there(connection, "too-late")
    assert create(connection, "not-waited-for", version=1, timeout_ms=0) == ErrorCode.REQUEST_TIMED_OUT
    assert is_there(connection, "not-waited-for")


def test_a_deletion_whose_time_is_over_on_arrival_is_not_done(connection: RawConnection) -> None:
    create(connection, "stays")
    assert delete(connection, "stays", 5, -1) == ErrorCode.REQUEST_TIMED_OUT
    assert is_there(connection, "stays")
    assert delete(connection, "stays", 0, -1) == ErrorCode.REQUEST_TIMED_OUT
    assert not is_there(connection, "stays")


def test_a_partition_that_a_produce_names_twice_is_written_once(connection: RawConnection) -> None:
    create(connection, "written-once")
    assert produce(connection, ("written-once", 0, batch(b"a")), ("written-once", 0, batch(b"b", b"c"))) == [
        ("written-once", 0, _NONE)
    ]
    assert end_of(connection, "written-once") == 2


@pytest.mark.parametrize("order", [1, -1])
def test_a_partition_that_a_produce_names_twice_is_refused_where_one_of_its_records_are_ill_formed(
    connection: RawConnection, order: int
) -> None:
    name = f"once-ill-formed{order}"
    create(connection, name)
    given = [(name, 0, batch(b"a")), (name, 0, batch(b"b") + batch(b"c"))][::order]
    assert produce(connection, *given) == [(name, 0, ErrorCode.INVALID_RECORD)]
    zstd = [(name, 0, batch(b"a")), (name, 0, batch(b"b", codec=Codec.ZSTD))][::order]
    assert produce(connection, *zstd, version=6) == [(name, 0, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)]
    unreadable = bytearray(batch(b"a"))
    unreadable[MAGIC_OFFSET] = 3
    assert produce(connection, *[(name, 0, bytes(unreadable)), (name, 0, batch(b"b"))][::order]) == [
        (name, 0, ErrorCode.CORRUPT_MESSAGE)
    ]
    assert end_of(connection, name) == 0
    assert produce(connection, (name, 0, None), (name, 0, batch(b"a", b"b"))) == [(name, 0, _NONE)]
    assert end_of(connection, name) == 2


def test_the_log_start_offset_is_told_with_what_is_wrong_inside_a_batch(connection: RawConnection) -> None:
    create(connection, "wrong-inside")
    wrong = bytes(raw_batch(raw_record(0) + raw_record(1), 3))
    for records, told in ((wrong, 0), (wrong + wrong, -1)):
        topic = ProduceRequestTopic(
            name="wrong-inside", partition_data=[ProduceRequestPartition(index=0, records=records)]
        )
        (answer,) = (
            connection.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic]), 9, ProduceResponse)
            .responses[0]
            .partition_responses
        )
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_RECORD, told)


def test_a_batch_of_an_unknown_magic_refuses_the_whole_produce(connection: RawConnection) -> None:
    create(connection, "unreadable")
    odd = bytearray(batch(b"a"))
    odd[MAGIC_OFFSET] = 3
    answered = produce(connection, ("unreadable", 0, batch(b"a")), ("no-such-topic", 0, bytes(odd)))
    assert answered == [("unreadable", 0, ErrorCode.CORRUPT_MESSAGE), ("no-such-topic", 0, ErrorCode.CORRUPT_MESSAGE)]
    assert end_of(connection, "unreadable") == 0


def test_acks_that_mean_nothing_are_told_after_what_is_not_there(connection: RawConnection) -> None:
    create(connection, "odd-acks")
    items = [("odd-acks", 0, batch(b"a")), ("no-such-topic", 0, batch(b"a"))]
    assert [error for _, _, error in produce(connection, *items, acks=2)] == [
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert produce(connection, ("odd-acks", 0, b""), acks=2) == [("odd-acks", 0, ErrorCode.INVALID_RECORD)]
    assert end_of(connection, "odd-acks") == 0


@pytest.mark.parametrize(
    ("version", "error"), [(2, ErrorCode.NONE), (3, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)]
)
def test_zstd_is_refused_from_the_first_batches_to_version_6(
    connection: RawConnection, version: int, error: ErrorCode
) -> None:
    create(connection, f"zstd-{version}")
    assert produce(connection, (f"zstd-{version}", 0, batch(b"a", codec=Codec.ZSTD)), version=version) == [
        (f"zstd-{version}", 0, error)
    ]


def test_a_time_that_the_version_lacks_is_unsupported_wherever_it_is_asked(connection: RawConnection) -> None:
    asked = [ListOffsetsRequestPartition(partition_index=0, timestamp=time) for time in (-3, -7)]
    for version, partition, error in ((6, asked[0], 35), (7, asked[0], 3), (11, asked[1], 35)):
        topic = ListOffsetsRequestTopic(name="no-such-topic", partitions=[partition])
        answer = connection.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), version, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].error_code == error


def test_list_offsets_answers_a_topic_once(connection: RawConnection) -> None:
    create(connection, "listed")
    topic = ListOffsetsRequestTopic(
        name="listed", partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=-1)]
    )
    empty = ListOffsetsRequestTopic(name="without", partitions=[])
    answer = connection.ask(ListOffsetsRequest(replica_id=-1, topics=[topic, empty, topic]), 5, ListOffsetsResponse)
    assert [(item.name, [part.error_code for part in item.partitions]) for item in answer.topics] == [
        ("listed", [ErrorCode.INVALID_REQUEST])
    ]


def test_an_epoch_below_minus_one_is_fenced_but_not_in_a_fetch(connection: RawConnection) -> None:
    create(connection, "epochs")
    listed = ListOffsetsRequestTopic(
        name="epochs",
        partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=-1, current_leader_epoch=-2)],
    )
    offsets = connection.ask(ListOffsetsRequest(replica_id=-1, topics=[listed]), 5, ListOffsetsResponse)
    assert offsets.topics[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
    ended = OffsetForLeaderEpochRequestPartition(partition=0, current_leader_epoch=-2, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequestTopic(topic="epochs", partitions=[ended])])
    assert (
        connection.ask(asked, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0].error_code
        == ErrorCode.FENCED_LEADER_EPOCH
    )
    part = FetchRequestPartition(partition=0, current_leader_epoch=-2, fetch_offset=0, partition_max_bytes=100)
    fetch = FetchRequest(max_wait_ms=0, topics=[FetchRequestTopic(topic="epochs", partitions=[part])], session_epoch=-1)
    assert connection.ask(fetch, 11, FetchResponse).responses[0].partitions[0].error_code == _NONE


def test_one_topic_id_makes_it_metadata_by_id(connection: RawConnection) -> None:
    create(connection, "by-id")
    create(connection, "by-name")
    known = connection.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name="by-id")], allow_auto_topic_creation=False),
        12,
        MetadataResponse,
    ).topics[0]
    assert known.topic_id != NO_UUID
    asked = [
        MetadataRequestTopic(topic_id=known.topic_id, name="whatever"),
        MetadataRequestTopic(name="by-name"),
        MetadataRequestTopic(topic_id=known.topic_id),
    ]
    answer = connection.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12, MetadataResponse)
    assert [item.name for item in answer.topics] == ["by-id"]


def test_operations_of_a_topic_that_is_not_there_are_told(connection: RawConnection) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="nowhere")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    topic = connection.ask(request, 8, MetadataResponse).topics[0]
    assert (topic.error_code, topic.topic_authorized_operations > 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_members_commit_for_a_group_that_is_not_there(
    connection: RawConnection, version: int, error: ErrorCode
) -> None:
    create(connection, "committed")
    assert connection.ask(FindCoordinatorRequest(key="no-group"), 2, FindCoordinatorResponse).error_code == _NONE
    topic = OffsetCommitRequestTopic(
        name="committed", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    )
    empty = OffsetCommitRequestTopic(name="committed", partitions=[])
    request = OffsetCommitRequest(
        group_id="no-group", generation_id_or_member_epoch=3, member_id="someone", topics=[topic, empty]
    )
    answer = connection.ask(request, version, OffsetCommitResponse)
    assert [[item.error_code for item in topic.partitions] for topic in answer.topics] == [[error]]


@pytest.mark.parametrize("version", [0, 8])
def test_each_offset_of_a_partition_that_stands_twice_is_judged_by_its_own_metadata(
    connection: RawConnection, version: int
) -> None:
    create(connection, "committed-twice")
    group, too_long = f"twice-{version}", "x" * 4097
    assert connection.ask(FindCoordinatorRequest(key=group), 2, FindCoordinatorResponse).error_code == _NONE
    offsets = [(1, ""), (2, ""), (3, too_long)]
    items = [
        OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=text)
        for offset, text in offsets
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="committed-twice", partitions=items)]
    )
    (answer,) = connection.ask(request, version, OffsetCommitResponse).topics
    assert [item.error_code for item in answer.partitions] == [_NONE, _NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    asked = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name="committed-twice", partition_indexes=[0])]
    )
    (found,) = connection.ask(asked, min(version, 5), OffsetFetchResponse).topics
    assert [item.committed_offset for item in found.partitions] == [2]


def test_the_oldest_commit_to_the_log_takes_the_last_of_a_partition_that_stands_twice(
    connection: RawConnection,
) -> None:
    create(connection, "committed-last")
    assert connection.ask(FindCoordinatorRequest(key="last"), 2, FindCoordinatorResponse).error_code == _NONE
    for offsets, error, committed in (
        (((1, ""), (2, "x" * 4097)), ErrorCode.OFFSET_METADATA_TOO_LARGE, -1),
        (((2, "x" * 4097), (1, "")), _NONE, 1),
    ):
        items = [
            OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=text)
            for offset, text in offsets
        ]
        items += [OffsetCommitRequestPartition(partition_index=7)] * 2
        request = OffsetCommitRequest(
            group_id="last", topics=[OffsetCommitRequestTopic(name="committed-last", partitions=items)]
        )
        (answer,) = connection.ask(request, 1, OffsetCommitResponse).topics
        unknown = (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert [(item.partition_index, item.error_code) for item in answer.partitions] == [(0, error), unknown, unknown]
        asked = OffsetFetchRequest(
            group_id="last", topics=[OffsetFetchRequestTopic(name="committed-last", partition_indexes=[0])]
        )
        (found,) = connection.ask(asked, 5, OffsetFetchResponse).topics
        assert [item.committed_offset for item in found.partitions] == [committed]


def test_offsets_are_answered_as_they_are_asked_for(connection: RawConnection) -> None:
    assert connection.ask(FindCoordinatorRequest(key="no-group"), 2, FindCoordinatorResponse).error_code == _NONE
    topics = [
        OffsetFetchRequestTopic(name="a", partition_indexes=[1, 1]),
        OffsetFetchRequestTopic(name="b"),
        OffsetFetchRequestTopic(name="a"),
    ]
    answer = connection.ask(OffsetFetchRequest(group_id="no-group", topics=topics), 5, OffsetFetchResponse)
    assert [(topic.name, [item.partition_index for item in topic.partitions]) for topic in answer.topics] == [
        ("a", [1, 1]),
        ("b", []),
        ("a", []),
    ]


def test_a_sync_without_a_protocol_is_inconsistent(connection: RawConnection) -> None:
    for kind, name in ((None, "range"), ("consumer", None)):
        request = SyncGroupRequest(
            group_id="no-group", generation_id=1, member_id="someone", protocol_type=kind, protocol_name=name
        )
        assert connection.ask(request, 5, SyncGroupResponse).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_resource_of_an_unknown_type_refuses_the_whole_description(connection: RawConnection) -> None:
    resources = [
        DescribeConfigsRequestResource(resource_type=kind, resource_name="", configuration_keys=None) for kind in (4, 3)
    ]
    answer = connection.ask(DescribeConfigsRequest(resources=resources), 1, DescribeConfigsResponse)
    assert [item.error_code for item in answer.results] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_wrong_value_is_told_before_the_topic_is_looked_up(connection: RawConnection) -> None:
    def altered(value: str) -> int:
        config = IncrementalAlterConfigsRequestConfig(name="retention.ms", config_operation=0, value=value)
        resource = IncrementalAlterConfigsRequestResource(resource_type=2, resource_name="nowhere", configs=[config])
        return (
            connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 0, IncrementalAlterConfigsResponse)
            .responses[0]
            .error_code
        )

    assert (altered("abc"), altered("1000")) == (ErrorCode.INVALID_CONFIG, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
