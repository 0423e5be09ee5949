"""Topics and groups in several states, made alike on a broker. Names begin with a prefix that no other world has, so
that answers about everything can be cut down to this world."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.records.encode import encode_batch
from jesenska.wire.consumer_protocol import encode_assignment, encode_subscription
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
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
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from jesenska.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tests.raw_connection import RawConnection

#: Timestamp of the first record of everything, ms.
BASE_MS = 1_700_000_000_000
PRODUCER_ID = 5000
_WITHIN_SECONDS = 20.0
#: Between two attempts, so that the broker gets on with what it is asked about.
_PAUSE_SECONDS = 0.005
_HALF_HOUR_MS = 1_800_000
_MOMENT_MS = 200


@dataclass(frozen=True)
class Group:
    """A group with one of its members, where it has one."""

    name: str
    generation: int = -1
    member: str = ""
    instance: str | None = None


@dataclass
class World:
    prefix: str
    topics: list[str]
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    @property
    def unknown(self) -> str:
        """A legal name that nothing has."""
        return f"{self.prefix}unknown"


#: What each topic is: partitions and settings.
_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "empty": (1, {}),
    "three": (3, {}),
    "trimmed": (1, {"retention.ms": "-1"}),
    "compact": (1, {"cleanup.policy": "compact", "max.message.bytes": "2000"}),
}


def build(connection: RawConnection, prefix: str) -> World:
    """Makes a world on the broker; the connection waits as long as a join may take."""
    world = World(prefix, [prefix + name for name in _TOPICS])
    _create(connection, world)
    _until_all_are_led(connection, world)
    _fill(connection, world)
    world.groups = [
        _with_offsets(connection, world),
        _stable(connection, world),
        _static(connection, world),
        _joined(connection, world),
        Group(world.unknown),
    ]
    # The group without a name belongs to no world: one may have been left by another.
    connection.ask(DeleteGroupsRequest(groups_names=[""]), 1, DeleteGroupsResponse)
    return world


def forget(connection: RawConnection, world: World) -> None:
    """Deletes its topics, so that they do not pile up; what is gone already is no matter."""
    connection.ask(DeleteTopicsRequest(topic_names=world.topics, timeout_ms=10_000), 4, DeleteTopicsResponse)


def _until(deadline: float, what: str) -> None:
    assert time.monotonic() < deadline, f"{what} did not come about within {_WITHIN_SECONDS} s"
    time.sleep(_PAUSE_SECONDS)


def _create(connection: RawConnection, world: World) -> None:
    topics = []
    for name, (partitions, settings) in _TOPICS.items():
        configs = [CreateTopicsRequestConfig(name=key, value=value) for key, value in settings.items()]
        topics.append(
            CreateTopicsRequestTopic(
                name=world.prefix + name, num_partitions=partitions, replication_factor=1, configs=configs
            )
        )
    deadline = time.monotonic() + _WITHIN_SECONDS
    while topics:
        answer = connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5, CreateTopicsResponse)
        failed = {
            item.name
            for item in answer.topics
            if item.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
        topics = [topic for topic in topics if topic.name in failed]
        _until(deadline, f"{failed}")
    while len(world.ids) < len(world.topics):
        wanted = [MetadataRequestTopic(name=name) for name in world.topics]
        answered = connection.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12, MetadataResponse)
        world.ids = {
            str(topic.name): topic.topic_id
            for topic in answered.topics
            if topic.error_code == ErrorCode.NONE and topic.partitions
        }
        _until(deadline, "metadata")


def _until_all_are_led(connection: RawConnection, world: World) -> None:
    """A broker tells of a topic before it leads the last of its partitions."""
    topics = []
    for name, (count, _) in _TOPICS.items():
        partitions = [ListOffsetsRequestPartition(partition_index=number, timestamp=-1) for number in range(count)]
        topics.append(ListOffsetsRequestTopic(name=world.prefix + name, partitions=partitions))
    deadline = time.monotonic() + _WITHIN_SECONDS
    while True:
        answer = connection.ask(ListOffsetsRequest(replica_id=-1, topics=topics), 5, ListOffsetsResponse)
        if all(item.error_code == ErrorCode.NONE for topic in answer.topics for item in topic.partitions):
            return
        _until(deadline, "leaders")


def _fill(connection: RawConnection, world: World) -> None:
    plain = [
        encode_batch([(BASE_MS + first + number, b"key", b"value %d" % (first + number), ()) for number in range(3)])
        for first in (0, 3, 6)
    ]
    idempotent = [
        encode_batch([(BASE_MS, b"key", b"value", ())], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=number)
        for number in range(2)
    ]
    for topic, partition, batches in (
        ("three", 0, plain),
        ("three", 1, idempotent),
        ("trimmed", 0, plain),
        ("compact", 0, plain[:1]),
    ):
        for batch in batches:
            _produce(connection, world.prefix + topic, partition, bytes(batch))
    trimmed = DeleteRecordsRequestTopic(
        name=world.prefix + "trimmed", partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=4)]
    )
    answer = connection.ask(DeleteRecordsRequest(topics=[trimmed], timeout_ms=10_000), 2, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def _produce(connection: RawConnection, topic: str, partition: int, records: bytes) -> None:
    data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=partition, records=records)])
    deadline = time.monotonic() + _WITHIN_SECONDS
    while (
        connection.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 7, ProduceResponse)
        .responses[0]
        .partition_responses[0]
        .error_code
    ):
        _until(deadline, f"{topic}-{partition}")


def _ready(connection: RawConnection, group: str) -> None:
    deadline = time.monotonic() + _WITHIN_SECONDS
    while connection.ask(FindCoordinatorRequest(key=group), 2, FindCoordinatorResponse).error_code != ErrorCode.NONE:
        _until(deadline, "a coordinator")


def _commit(connection: RawConnection, world: World, group: Group) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=number + 2, committed_metadata="kept")
        for number in range(2)
    ]
    topic = OffsetCommitRequestTopic(name=world.prefix + "three", partitions=partitions)
    request = OffsetCommitRequest(
        group_id=group.name,
        generation_id_or_member_epoch=group.generation,
        member_id=group.member,
        group_instance_id=group.instance,
        topics=[topic],
    )
    deadline = time.monotonic() + _WITHIN_SECONDS
    while connection.ask(request, 7, OffsetCommitResponse).topics[0].partitions[0].error_code != ErrorCode.NONE:
        _until(deadline, f"a commit of {group.name}")


def _with_offsets(connection: RawConnection, world: World) -> Group:
    group = Group(f"{world.prefix}offsets")
    _ready(connection, group.name)
    _commit(connection, world, group)
    return group


def _join(connection: RawConnection, world: World, name: str, instance: str | None, rebalance_timeout_ms: int) -> Group:
    subscription = encode_subscription([world.prefix + "three"], [], -1)
    request = JoinGroupRequest(
        group_id=name,
        session_timeout_ms=_HALF_HOUR_MS,
        rebalance_timeout_ms=rebalance_timeout_ms,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    deadline = time.monotonic() + _WITHIN_SECONDS
    while True:
        answer = connection.ask(request, 5, JoinGroupResponse)
        if answer.error_code == ErrorCode.NONE:
            return Group(name, answer.generation_id, answer.member_id, instance)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            request.member_id = ""
        _until(deadline, f"joining {name}, which was refused with {ErrorCode(answer.error_code).name},")


def _sync(connection: RawConnection, world: World, group: Group) -> ErrorCode:
    assignment = encode_assignment([TopicPartition(world.prefix + "three", number) for number in range(3)])
    request = SyncGroupRequest(
        group_id=group.name,
        generation_id=group.generation,
        member_id=group.member,
        group_instance_id=group.instance,
        assignments=[SyncGroupRequestAssignment(member_id=group.member, assignment=assignment)],
    )
    return ErrorCode(connection.ask(request, 3, SyncGroupResponse).error_code)


def _synced(connection: RawConnection, world: World, name: str, instance: str | None) -> Group:
    """A member that has joined and has its assignment. One that takes longer than the rebalance time-out to ask for it
    is out again, and joins anew."""
    deadline = time.monotonic() + _WITHIN_SECONDS
    while True:
        group = _join(connection, world, name, instance, _MOMENT_MS)
        error = _sync(connection, world, group)
        if error == ErrorCode.NONE:
            return group
        _until(deadline, f"an assignment of {name}, which was refused with {error.name},")


def _stable(connection: RawConnection, world: World) -> Group:
    group = _synced(connection, world, f"{world.prefix}stable", None)
    _commit(connection, world, group)
    return group


def _static(connection: RawConnection, world: World) -> Group:
    return _synced(connection, world, f"{world.prefix}static", "instance")


def _joined(connection: RawConnection, world: World) -> Group:
    """A member that has joined and owes its leader's assignment."""
    return _join(connection, world, f"{world.prefix}joined", None, _HALF_HOUR_MS)
