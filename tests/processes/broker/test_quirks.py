"""Behaviour that clients of twelve years rely on beyond the text of the protocol. Each test covers one such habit and
names the clients. (Fetch sessions, leader epochs, old formats, groups and zstd have tests of their own.)"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.compression import compress
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.codec import decode, encode
from jesenska.wire.headers import request_head
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.registry import APIS
from tests.old_requests import create, fetch, produce
from tests.raw_connection import RawConnection

_NOW_MS = 1_700_000_000_000
_API_VERSIONS = 18
_SOFTWARE = {"client_software_name": "test", "client_software_version": "1.0"}
_NEVER_ANNOUNCED_HALF_BUILT = (68, 69, 71, 72, 76, 78)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("quirks") / "data", settings={"group.initial.rebalance.delay.ms": "0"}
    ) as running:
        yield running


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as opened:
        yield opened


def _ranges(connection: RawConnection) -> dict[int, tuple[int, int]]:
    answer = connection.ask(ApiVersionsRequest(**_SOFTWARE), 3, ApiVersionsResponse)
    return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}


def _ids(connection: RawConnection, version: int, *names: str) -> dict[str | None, uuid.UUID]:
    wanted = [MetadataRequestTopic(name=name) for name in names]
    return {
        topic.name: topic.topic_id
        for topic in connection.ask(MetadataRequest(topics=wanted), version, MetadataResponse).topics
    }


# --- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
def test_an_answer_to_api_versions_has_the_oldest_header(connection: RawConnection, version: int) -> None:
    """All clients: a client that sends ApiVersions does not know yet which versions the broker supports. There are no
    tagged fields between the correlation id and the body."""
    connection.send_frame(connection.frame(ApiVersionsRequest(**_SOFTWARE), version))
    frame = connection.receive_frame()
    assert decode(ApiVersionsResponse, version, memoryview(frame)[4:]).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_api_versions_above_ours_is_answered_in_version_0_with_our_range(
    connection: RawConnection, version: int
) -> None:
    """Java 4, librdkafka, franz-go: they repeat the request within the range of key 18, on the same connection."""
    connection.send_frame(
        bytes(request_head(_API_VERSIONS, version, 7, "new", 2)) + encode(ApiVersionsRequest(**_SOFTWARE), 4)
    )
    frame = connection.receive_frame()
    assert struct.unpack_from(">i", frame) == (7,)
    answer = decode(ApiVersionsResponse, 0, memoryview(frame)[4:])
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}[_API_VERSIONS] == (0, 4)
    assert len(_ranges(connection)) > 20


def test_any_other_version_that_is_not_served_closes_the_connection(broker: BrokerProcess) -> None:
    """Clients from before 0.10, which find out in this way which versions a broker supports."""
    for key in (0, 1, 3, 11):
        with RawConnection(broker.bootstrap) as opened:
            opened.send_frame(bytes(request_head(key, APIS[key].max_version + 1, 1, "old", 1)) + bytes(64))
            assert opened.is_closed()


def test_no_feature_that_begins_at_0_is_announced_and_a_nameless_client_is_refused(connection: RawConnection) -> None:
    """Java before 3.9 refuses such features. From version 3 on a client names its software."""
    answer = connection.ask(ApiVersionsRequest(**_SOFTWARE), 3, ApiVersionsResponse)
    assert answer.supported_features == []
    assert [item.min_version_level for item in answer.finalized_features] == [2]
    refused = connection.ask(
        ApiVersionsRequest(client_software_name="not a name!", client_software_version="1"), 3, ApiVersionsResponse
    )
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_what_clients_begin_with_is_announced_from_0_on(connection: RawConnection) -> None:
    """Without Produce 0, librdkafka up to 2.11 turns compression off. Without FindCoordinator 0 it turns lz4 and its
    groups off. Its GSSAPI needs JoinGroup 0. kafkajs ignores minimum versions."""
    ranges = _ranges(connection)
    assert {key: ranges[key][0] for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19)} == dict.fromkeys(
        (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19), 0
    )


def test_nothing_is_announced_that_is_not_built(connection: RawConnection) -> None:
    """Java's admin client and consumers use everything that is announced: telemetry at once, and the new group
    protocol. They have other ways where an API is missing."""
    assert not _ranges(connection).keys() & set(_NEVER_ANNOUNCED_HALF_BUILT)


# --- metadata --------------------------------------------------------------------------------------------------------


def test_no_topics_means_all_in_version_0_and_none_from_version_1_on(connection: RawConnection) -> None:
    """0.8 clients send an empty list for all topics. From version 1 on, null has this meaning."""
    name = create(connection, "listed")
    assert name in {topic.name for topic in connection.ask(MetadataRequest(topics=[]), 0, MetadataResponse).topics}
    for version in range(1, 14):
        assert connection.ask(MetadataRequest(topics=[]), version, MetadataResponse).topics == []
        assert name in {
            topic.name for topic in connection.ask(MetadataRequest(topics=None), version, MetadataResponse).topics
        }


def test_every_topic_has_an_id_and_keeps_it(connection: RawConnection) -> None:
    """franz-go and Java consider an answer with some ids and some zeros an error. From version 12 on a topic is found
    by its id alone."""
    names = {create(connection, "first"), create(connection, "second")}
    ids = _ids(connection, 10, *names)
    assert len({value for value in ids.values() if value.int}) == 2
    for version in (10, 11, 12, 13):
        assert _ids(connection, version, *names) == ids
    wanted = [MetadataRequestTopic(topic_id=ids["first"], name=None)]
    assert [topic.name for topic in connection.ask(MetadataRequest(topics=wanted), 12, MetadataResponse).topics] == [
        "first"
    ]


def test_a_topic_is_everywhere_once_its_creation_is_answered(broker: BrokerProcess, connection: RawConnection) -> None:
    """Clients that do not repeat a request when a topic is unknown."""
    with RawConnection(broker.bootstrap) as other:
        for number in range(20):
            name = f"at-once-{number}"
            wanted = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
            connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 2, CreateTopicsResponse)
            (found,) = other.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 1, MetadataResponse).topics
            assert (found.error_code, found.partitions[0].leader_id) == (ErrorCode.NONE, 1)
            assert produce(other, name, 3, encode_batch([(_NOW_MS, None, b"x", ())])).error_code == ErrorCode.NONE


def test_the_cluster_is_described_without_a_request_of_its_own(connection: RawConnection) -> None:
    """Java's admin client before 2.8 and every other client: brokers, controller and the cluster's id are in
    Metadata."""
    answer = connection.ask(MetadataRequest(topics=[]), 2, MetadataResponse)
    assert answer.cluster_id
    assert [node.node_id for node in answer.brokers] == [answer.controller_id]


# --- requests and answers --------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_the_requests(connection: RawConnection) -> None:
    """All clients: a fetch that waits delays the answers to later requests."""
    topic = create(connection, "ordered")
    part = FetchRequestPartition(partition=0, partition_max_bytes=1 << 20)
    waiting = FetchRequest(max_wait_ms=300, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=[part])])
    for request, version in ((waiting, 4), (MetadataRequest(topics=[]), 1), (ApiVersionsRequest(), 0)):
        connection.send_frame(connection.frame(request, version))
    assert connection.receive(4, FetchResponse).responses[0].partitions[0].high_watermark == 0
    assert connection.receive(1, MetadataResponse).brokers
    assert connection.receive(0, ApiVersionsResponse).api_keys


def test_a_produce_without_acks_has_no_answer_at_all(connection: RawConnection) -> None:
    """All clients with acks=0: the next answer belongs to the next request."""
    topic = create(connection, "unanswered")
    data = ProduceRequestTopic(
        name=topic, partition_data=[ProduceRequestPartition(index=0, records=encode_batch([(_NOW_MS, None, b"x", ())]))]
    )
    connection.send_frame(connection.frame(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[data]), 3))
    assert connection.ask(MetadataRequest(topics=[]), 1, MetadataResponse).brokers
    assert fetch(connection, topic, 4).high_watermark == 1


def test_a_fetch_inside_a_batch_gets_the_whole_batch_however_large(connection: RawConnection) -> None:
    """All clients: the client skips the records that it has, and a first batch is returned even where it exceeds the
    limit."""
    topic = create(connection, "inside")
    assert (
        produce(connection, topic, 3, encode_batch([(_NOW_MS, None, bytes(1000), ()) for _ in range(10)])).error_code
        == ErrorCode.NONE
    )
    part = fetch(connection, topic, 4, offset=7, max_bytes=1)
    assert isinstance(part.records, memoryview)
    assert [record.offset for record in decode_batches(part.records)] == list(range(10))


def test_tagged_fields_that_nobody_knows_are_skipped(connection: RawConnection) -> None:
    """Clients that are newer than this broker send such fields in the header and at the end of the body."""
    head = bytearray(request_head(3, 9, 5, "new", 2))
    assert head[-1] == 0
    unknown = bytes([1, 99, 3]) + b"abc"  # one field, tag 99, of three bytes
    body = encode(MetadataRequest(topics=[]), 9)
    assert body[-1] == 0
    connection.send_frame(bytes(head[:-1]) + unknown + body[:-1] + unknown)
    assert connection.receive(9, MetadataResponse).brokers


def test_an_epoch_that_is_not_the_leaders_is_told_apart(connection: RawConnection) -> None:
    """librdkafka and Java learn from the error that their metadata, or the broker's, are old."""
    topic = create(connection, "epochs")
    (found,) = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 7, MetadataResponse).topics
    epoch = found.partitions[0].leader_epoch
    wanted = {epoch: ErrorCode.NONE, -1: ErrorCode.NONE, epoch + 1: ErrorCode.UNKNOWN_LEADER_EPOCH}
    if epoch:
        wanted[epoch - 1] = ErrorCode.FENCED_LEADER_EPOCH
    for current, code in wanted.items():
        part = FetchRequestPartition(partition=0, partition_max_bytes=1 << 20, current_leader_epoch=current)
        request = FetchRequest(topics=[FetchRequestTopic(topic=topic, partitions=[part])])
        assert connection.ask(request, 9, FetchResponse).responses[0].partitions[0].error_code == code
        asked = [
            ListOffsetsRequestTopic(
                name=topic, partitions=[ListOffsetsRequestPartition(timestamp=-1, current_leader_epoch=current)]
            )
        ]
        assert (
            connection.ask(ListOffsetsRequest(replica_id=-1, topics=asked), 4, ListOffsetsResponse)
            .topics[0]
            .partitions[0]
            .error_code
            == code
        )


def test_our_lz4_has_independent_blocks() -> None:
    """Kafka's Java clients refuse other blocks. The flag is bit 5 of the frame's flags."""
    assert compress(Codec.LZ4, b"some text " * 20_000)[4] & 0x20


# --- groups ----------------------------------------------------------------------------------------------------------

_NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def _join(
    connection: RawConnection, version: int, group: str, member: str = "", rebalance_ms: int | None = None
) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    if rebalance_ms is not None:
        request.rebalance_timeout_ms = rebalance_ms
    deadline = time.monotonic() + 20
    while True:
        answer = connection.ask(request, version, JoinGroupResponse)
        if answer.error_code not in _NOT_YET or time.monotonic() > deadline:
            return answer
        # With the first one the topic of offsets is made.
        connection.ask(FindCoordinatorRequest(key=group), 0, FindCoordinatorResponse)


@pytest.mark.parametrize("version", range(10))
def test_a_new_member_is_named_at_once_or_told_to_come_back_with_its_name(
    connection: RawConnection, version: int
) -> None:
    """KIP-394: from version 4 on the broker first returns the member id, so that clients that give up leave no members
    in the group."""
    first = _join(connection, version, f"named-{version}")
    assert first.member_id
    assert first.error_code == (ErrorCode.NONE if version < 4 else ErrorCode.MEMBER_ID_REQUIRED)
    if version >= 4:
        assert _join(connection, version, f"named-{version}", first.member_id).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("version", "rebalance_ms"), [(0, None), (1, 0), (5, 0)])
def test_a_member_without_a_rebalance_timeout_gets_its_session_timeout(
    broker: BrokerProcess, version: int, rebalance_ms: int | None
) -> None:
    """0.9 clients have no such timeout, and some later ones send 0. The group still waits for them when another member
    joins."""
    group = f"patient-{version}"
    with RawConnection(broker.bootstrap) as one, RawConnection(broker.bootstrap) as other:
        first = _join(one, version, group, rebalance_ms=rebalance_ms)
        if first.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            first = _join(one, version, group, first.member_id, rebalance_ms)
        assert first.error_code == ErrorCode.NONE
        request = JoinGroupRequest(group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=[])
        request.protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        other.send_frame(other.frame(request, 0))
        heartbeat = HeartbeatRequest(group_id=group, generation_id=first.generation_id, member_id=first.member_id)
        while one.ask(heartbeat, 0, HeartbeatResponse).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass  # the other one's request is on its way
        again = _join(one, version, group, first.member_id, rebalance_ms)
        assert (again.error_code, again.generation_id) == (ErrorCode.NONE, first.generation_id + 1)
        joined = other.receive(0, JoinGroupResponse)
        assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, again.generation_id)
        leader = again if again.leader == again.member_id else joined
        assert len(leader.members) == 2


@pytest.mark.parametrize("version", range(6))
def test_each_member_that_leaves_is_answered(connection: RawConnection, version: int) -> None:
    """From version 3 on, librdkafka reads the first entry without a check that there is one."""
    group = f"left-{version}"
    member = _join(connection, 0, group).member_id
    request = LeaveGroupRequest(group_id=group)
    if version < 3:
        request.member_id = member
    else:
        request.members = [LeaveGroupRequestMember(member_id=member), LeaveGroupRequestMember(member_id="nobody")]
    answer = connection.ask(request, version, LeaveGroupResponse)
    assert answer.error_code == ErrorCode.NONE
    if version >= 3:
        assert [(item.member_id, item.error_code) for item in answer.members] == [
            (member, ErrorCode.NONE),
            ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ]


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_one_by_one_and_in_one_go(connection: RawConnection, version: int) -> None:
    """Java from 3.0 on asks for several at once. All older clients ask for one."""
    one = f"found-{version}"
    groups = [one, "another"] if version >= 4 else [one]
    _join(connection, 0, one)
    request = FindCoordinatorRequest(coordinator_keys=groups) if version >= 4 else FindCoordinatorRequest(key=one)
    answer = connection.ask(request, version, FindCoordinatorResponse)
    found = (
        [(item.key, item.error_code, item.node_id) for item in answer.coordinators]
        if version >= 4
        else [(one, answer.error_code, answer.node_id)]
    )
    assert found == [(group, ErrorCode.NONE, 1) for group in groups]
