"""A lone broker that takes its orders from the tests: they hold /controller, in an epoch that is newer than the
broker's own, and tell it of topics that nobody else knows."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from jesenska.base.errors import ErrorCode
from jesenska.config.listeners import SECURITY_PROTOCOLS, Endpoint
from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    BrokerRegistration,
    ControllerNode,
    PartitionStateNode,
    TopicNode,
    decode_controller_epoch,
    encode_controller_epoch,
)
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import Create, Delete, Operation, SetData
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.testing import BrokerProcess
from jesenska.wire.codec import decode, encode
from jesenska.wire.headers import FIXED, read_client_id, skip_header_tags
from jesenska.wire.language import Message
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from jesenska.wire.messages.k04_leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestLiveLeader,
    LeaderAndIsrRequestPartitionState,
    LeaderAndIsrRequestTopicState,
    LeaderAndIsrRequestUngroupedPartitionState,
    LeaderAndIsrResponse,
)
from jesenska.wire.messages.k05_stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestPartitionState,
    StopReplicaRequestTopic,
    StopReplicaRequestTopicState,
    StopReplicaRequestUngroupedPartition,
    StopReplicaResponse,
)
from jesenska.wire.messages.k06_update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
    UpdateMetadataRequestPartitionState,
    UpdateMetadataRequestTopicState,
    UpdateMetadataRequestUngroupedPartitionState,
    UpdateMetadataResponse,
)
from jesenska.wire.messages.k07_controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse, ApiVersionsResponseApiKey
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)
from jesenska.wire.registry import APIS
from tests.conformance.conftest import need
from tests.old_requests import list_offsets, produce
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree
from tests.units.log.log_harness import make_batch

#: The broker's id, the tests' as its controller, and that of a broker which is registered and does not listen.
BROKER, CONTROLLER, OTHER = 0, 7, 9
NOBODY, DELETED = -1, -2
#: The first version that has them.
LEADER_AND_ISR_IDS, LEADER_AND_ISR_BROKER_EPOCHS = 5, 2
STOP_REPLICA_STATES, STOP_REPLICA_BROKER_EPOCHS = 3, 1
UPDATE_METADATA_IDS, UPDATE_METADATA_BROKER_EPOCHS = 7, 5
_WITHIN_SECONDS: Final = 60.0
_OBEYED: Final = (4, 5, 6, 18)
_UNGROUPED_LEADER_AND_ISR_UNTIL, _UNGROUPED_STOP_REPLICA_UNTIL, _UNGROUPED_UPDATE_METADATA_UNTIL = 1, 0, 4
#: Of Metadata. Before it whoever asks cannot say that no topic is to be created.
_CREATION_FLAG: Final = 4
#: Both brokers. No topic comes by itself, and groups have one partition.
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}

Value = TypeVar("Value")
Order = TypeVar("Order", LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest)


class Topic(NamedTuple):
    name: str
    topic_id: uuid.UUID


class State(NamedTuple):
    """What a controller tells of a partition: the broker leads it alone, unless it says otherwise."""

    number: int = 0
    leader: int = BROKER
    leader_epoch: int = 0
    isr: tuple[int, ...] = (BROKER,)
    replicas: tuple[int, ...] = (BROKER,)
    partition_epoch: int = 0
    offline: tuple[int, ...] = ()


class Stop(NamedTuple):
    """A replica to be given up."""

    number: int = 0
    leader_epoch: int = -1
    delete: bool = False


class Live(NamedTuple):
    """A broker that is up: host and port by listener's name and protocol."""

    broker_id: int
    endpoints: Mapping[tuple[str, str], tuple[str, int]]
    rack: str | None = None


class Told(NamedTuple):
    """The answer to an order: its own error, and those of the partitions that it names."""

    error: ErrorCode
    partitions: dict[int, ErrorCode]


class Clients(NamedTuple):
    """What a partition's clients are told."""

    produce: ErrorCode
    fetch: ErrorCode
    list_offsets: ErrorCode
    leader_epoch: ErrorCode


class Shown(NamedTuple):
    """A partition in Metadata."""

    error: ErrorCode
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


class Ordered:
    """The broker. `data` is its log directory."""

    def __init__(self, name: str, bootstrap: str, tree: ServedTree, data: Path) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.data = data
        self._tree = tree
        #: Opened anew for each test: a broker may close it.
        self.connection: RawConnection
        host, _, port = bootstrap.rpartition(":")
        self.port = int(port)
        self.live = Live(BROKER, {("PLAINTEXT", "PLAINTEXT"): (host, self.port)})
        #: Some broker that is up for all that this one knows, though nobody listens there.
        self.other = Live(OTHER, {("PLAINTEXT", "PLAINTEXT"): ("127.0.0.1", 1)})
        self.controller_epoch = 0
        self._topics = self._epochs = 0
        found = tree.server.tree.tree.exists(paths.broker(BROKER))
        assert found is not None
        #: The number of the broker's registration.
        self.broker_epoch = found.czxid

    def in_tree(self, work: Callable[[Store], Awaitable[Value]]) -> Value:
        """The outcome of some work in the broker's tree."""

        async def main() -> Value:
            store = await connect(self._tree.address)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(main())

    def new_topic(self) -> Topic:
        """A name and an id that the broker has not heard of."""
        self._topics += 1
        return Topic(f"topic-{self._topics}", uuid.uuid4())

    def newer_epoch(self) -> int:
        """A leader epoch that is newer than those before, for a topic that several tests tell of."""
        self._epochs += 1
        return self._epochs

    def directory(self, topic: Topic, number: int = 0) -> Path:
        return self.data / f"{topic.name}-{number}"

    def doomed(self, topic: Topic, number: int = 0) -> list[Path]:
        """Directories of the partition that are about to be deleted."""
        return sorted(self.data.glob(f"{topic.name}-{number}.*-delete"))

    # --- who is controller -------------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """The tests are controller; returns when the broker knows that it is not."""

        async def work(store: Store) -> None:
            data, stat = await store.get(paths.CONTROLLER_EPOCH)
            self.controller_epoch = max(self.controller_epoch, decode_controller_epoch(data)) + 1
            operations: list[Operation] = (
                [Delete(paths.CONTROLLER)] if await store.exists(paths.CONTROLLER) is not None else []
            )
            operations.append(Create(paths.CONTROLLER, ControllerNode(CONTROLLER, 1).encode()))
            operations.append(
                SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(self.controller_epoch), stat.version)
            )
            await store.multi(operations)

        self.in_tree(work)
        until(lambda: not self._is_controller(), "the broker does not give up being controller")
        # From its first order on a newer controller is known.
        assert self.update(8, {}) == ErrorCode.NONE

    def give_back(self) -> None:
        """The broker is controller again; returns when it knows."""

        async def work(store: Store) -> None:
            _, stat = await store.get(paths.CONTROLLER_EPOCH)
            epoch = SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(self.controller_epoch), stat.version)
            await store.multi([epoch, Delete(paths.CONTROLLER)])

        self.in_tree(work)
        until(self._is_controller, "the broker does not become controller")

    def is_ordered_by_tests(self) -> bool:
        """False where the broker is controller itself."""
        data, _ = self._tree.server.tree.tree.get(paths.CONTROLLER)
        return ControllerNode.decode(data or b"").broker_id == CONTROLLER

    def _is_controller(self) -> bool:
        """A broker that nobody knows cannot be shut down; only a controller says so."""
        return self.shut_down(3, broker_id=1234, broker_epoch=-1)[0] == ErrorCode.BROKER_NOT_AVAILABLE

    # --- orders ------------------------------------------------------------------------------------------------------

    def lead(
        self,
        version: int,
        topic: Topic,
        *states: State,
        controller_epoch: int | None = None,
        broker_epoch: int | None = None,
        new: bool = True,
    ) -> Told:
        """LeaderAndIsr. Epochs are those of the controller and of the broker, where they are not given."""
        request = LeaderAndIsrRequest(
            controller_id=CONTROLLER,
            controller_epoch=self.controller_epoch if controller_epoch is None else controller_epoch,
        )
        request.broker_epoch = self.broker_epoch if broker_epoch is None else broker_epoch
        request.live_leaders = [
            LeaderAndIsrRequestLiveLeader(broker_id=live.broker_id, host_name=host, port=port)
            for live in (self.live, self.other)
            for host, port in live.endpoints.values()
            if live.broker_id in {state.leader for state in states}
        ]
        if version <= _UNGROUPED_LEADER_AND_ISR_UNTIL:
            request.ungrouped_partition_states = [
                _ordered(LeaderAndIsrRequestUngroupedPartitionState, topic, state, new) for state in states
            ]
        elif states:
            ordered = [_ordered(LeaderAndIsrRequestPartitionState, topic, state, new) for state in states]
            request.topic_states = [
                LeaderAndIsrRequestTopicState(topic_name=topic.name, topic_id=topic.topic_id, partition_states=ordered)
            ]
        answer = self.connection.ask(request, version, LeaderAndIsrResponse)
        if version < LEADER_AND_ISR_IDS:
            assert {item.topic_name for item in answer.partition_errors} <= {topic.name}
            return _told(
                answer.error_code, [(item.partition_index, item.error_code) for item in answer.partition_errors]
            )
        assert [found.topic_id for found in answer.topics] in ([], [topic.topic_id])
        return _told(
            answer.error_code,
            [(item.partition_index, item.error_code) for found in answer.topics for item in found.partition_errors],
        )

    def stop(
        self,
        version: int,
        topic: Topic,
        *stops: Stop,
        controller_epoch: int | None = None,
        broker_epoch: int | None = None,
    ) -> Told:
        """StopReplica. Before version 3 all are deleted, or none."""
        request = StopReplicaRequest(
            controller_id=CONTROLLER,
            controller_epoch=self.controller_epoch if controller_epoch is None else controller_epoch,
        )
        request.broker_epoch = self.broker_epoch if broker_epoch is None else broker_epoch
        if version >= STOP_REPLICA_STATES:
            states = [
                StopReplicaRequestPartitionState(
                    partition_index=item.number, leader_epoch=item.leader_epoch, delete_partition=item.delete
                )
                for item in stops
            ]
            request.topic_states = [StopReplicaRequestTopicState(topic_name=topic.name, partition_states=states)]
        else:
            (request.delete_partitions,) = {item.delete for item in stops}
            if version <= _UNGROUPED_STOP_REPLICA_UNTIL:
                request.ungrouped_partitions = [
                    StopReplicaRequestUngroupedPartition(topic_name=topic.name, partition_index=item.number)
                    for item in stops
                ]
            else:
                request.topics = [
                    StopReplicaRequestTopic(name=topic.name, partition_indexes=[item.number for item in stops])
                ]
        answer = self.connection.ask(request, version, StopReplicaResponse)
        assert {item.topic_name for item in answer.partition_errors} <= {topic.name}
        return _told(answer.error_code, [(item.partition_index, item.error_code) for item in answer.partition_errors])

    def update(
        self,
        version: int,
        topics: Mapping[Topic, Sequence[State]],
        brokers: Sequence[Live] | None = None,
        *,
        controller_id: int = CONTROLLER,
        controller_epoch: int | None = None,
        broker_epoch: int | None = None,
    ) -> ErrorCode:
        """UpdateMetadata. Without `brokers` the broker is alone."""
        request = UpdateMetadataRequest(
            controller_id=controller_id,
            controller_epoch=self.controller_epoch if controller_epoch is None else controller_epoch,
        )
        request.broker_epoch = self.broker_epoch if broker_epoch is None else broker_epoch
        for topic, states in topics.items():
            if version <= _UNGROUPED_UPDATE_METADATA_UNTIL:
                request.ungrouped_partition_states += [
                    _told_state(UpdateMetadataRequestUngroupedPartitionState, topic, state) for state in states
                ]
                continue
            told = [_told_state(UpdateMetadataRequestPartitionState, topic, state) for state in states]
            request.topic_states.append(
                UpdateMetadataRequestTopicState(topic_name=topic.name, topic_id=topic.topic_id, partition_states=told)
            )
        for live in (self.live,) if brokers is None else brokers:
            made = UpdateMetadataRequestLiveBroker(id=live.broker_id, rack=live.rack)
            if version == 0:
                ((made.v0_host, made.v0_port),) = live.endpoints.values()
            else:
                made.endpoints = [
                    UpdateMetadataRequestEndpoint(
                        host=host, port=port, listener=listener, security_protocol=SECURITY_PROTOCOLS.index(protocol)
                    )
                    for (listener, protocol), (host, port) in live.endpoints.items()
                ]
            request.live_brokers.append(made)
        return ErrorCode(self.connection.ask(request, version, UpdateMetadataResponse).error_code)

    def shut_down(
        self, version: int, *, broker_id: int = OTHER, broker_epoch: int = -1
    ) -> tuple[ErrorCode, list[tuple[str, int]]]:
        """ControlledShutdown: the error, and the partitions that remain."""
        request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        answer = self.connection.ask(request, version, ControlledShutdownResponse)
        return ErrorCode(answer.error_code), sorted(
            (item.topic_name, item.partition_index) for item in answer.remaining_partitions
        )

    # --- what clients are told ---------------------------------------------------------------------------------------

    def clients(self, topic: Topic) -> Clients:
        """Of partition 0. A record is written where that can be done."""
        return Clients(
            ErrorCode(produce(self.connection, topic.name, 8, make_batch()).error_code),
            self.fetch(topic)[0],
            ErrorCode(list_offsets(self.connection, topic.name, 5, -1).error_code),
            self.epoch_end(topic, 0)[0],
        )

    def fetch(self, topic: Topic, version: int = 10) -> tuple[ErrorCode, int, int]:
        """Error, high watermark and the number of bytes that come from the beginning of partition 0."""
        found = fetched(self.connection.ask(fetch_request(topic, version), version, FetchResponse))
        assert found.records is None or isinstance(found.records, memoryview)
        return ErrorCode(found.error_code), found.high_watermark, len(found.records or b"")

    def epoch_end(self, topic: Topic, epoch: int, current_leader_epoch: int = -1) -> tuple[ErrorCode, int, int]:
        """Error, epoch, and where that epoch ends in partition 0."""
        asked = OffsetForLeaderEpochRequestPartition(
            partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderEpochRequestTopic(topic=topic.name, partitions=[asked])]
        )
        found = self.connection.ask(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0]
        return ErrorCode(found.error_code), found.leader_epoch, found.end_offset

    def end_offset(self, topic: Topic) -> tuple[ErrorCode, int, int]:
        """Error, offset and leader epoch of the end of partition 0."""
        found = list_offsets(self.connection, topic.name, 5, -1)
        return ErrorCode(found.error_code), found.offset, found.leader_epoch

    def metadata(self, version: int, *names: str) -> MetadataResponse:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=version < _CREATION_FLAG,
        )
        return self.connection.ask(request, version, MetadataResponse)

    def topic_shown(self, topic: Topic, version: int = 12) -> MetadataResponseTopic:
        (found,) = self.metadata(version, topic.name).topics
        return found

    def shown(self, topic: Topic, version: int = 12) -> dict[int, Shown]:
        """The topic's partitions by number."""
        return {
            item.partition_index: Shown(
                ErrorCode(item.error_code),
                item.leader_id,
                item.leader_epoch,
                item.replica_nodes,
                item.isr_nodes,
                item.offline_replicas,
            )
            for item in self.topic_shown(topic, version).partitions
        }

    # --- a broker as controller --------------------------------------------------------------------------------------

    def register_other(self, port: int = 1) -> int:
        """Another broker registers (anew, if it has before): its epoch. Nobody listens at port 1."""
        node = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", port),), 1).encode()

        async def work(store: Store) -> int:
            path = paths.broker(OTHER)
            operations: list[Operation] = [Delete(path)] if await store.exists(path) is not None else []
            made = (await store.multi([*operations, Create(path, node)]))[-1].stat
            assert made is not None
            return made.czxid

        return self.in_tree(work)

    def write_topic(self, *replicas: tuple[int, ...]) -> Topic:
        """A topic with these replicas, by partition; returns when each has a leader, and the controller knows."""
        topic = self.new_topic()

        async def work(store: Store) -> None:
            await store.create(paths.topic(topic.name), TopicNode(dict(enumerate(replicas)), topic.topic_id).encode())

        self.in_tree(work)
        until(
            lambda: all(self.written(topic, number) is not None for number in range(len(replicas))),
            "nobody leads the topic",
        )
        until(lambda: self._is_taken(topic), "the controller does not know the topic")
        return topic

    def _is_taken(self, topic: Topic) -> bool:
        """Whether the controller refuses another topic of that name."""
        wanted = CreateTopicsRequestTopic(name=topic.name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=20_000, validate_only=True)
        return (
            self.connection.ask(request, 4, CreateTopicsResponse).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        )

    def delete_topic(self, topic: Topic) -> None:
        """Asks the controller for that, through the tree."""

        async def work(store: Store) -> None:
            await store.create(paths.delete_topic(topic.name))

        self.in_tree(work)

    def written(self, topic: Topic, number: int = 0) -> tuple[PartitionStateNode, int] | None:
        """A partition's state in the tree, and its version."""
        tree, path = self._tree.server.tree.tree, paths.partition_state(topic.name, number)
        if tree.exists(path) is None:
            return None
        data, stat = tree.get(path)
        return PartitionStateNode.decode(data or b""), stat.version


class Obedient:
    """A broker that does nothing: it takes the orders of a controller, keeps them, and answers that they are carried
    out. `orders` are the requests, in their order, with their versions. Whoever asks for something else finds the
    connection closed."""

    def __init__(self) -> None:
        self.orders: list[tuple[int, Message]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._taken: list[socket.socket] = []

    def __enter__(self) -> Obedient:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join(_WITHIN_SECONDS)
        for taken in self._taken:
            with contextlib.suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)
            taken.close()

    def first(self, kind: type[Order], is_so: Callable[[Order], bool] = lambda _: True) -> tuple[int, Order]:
        """The place and the content of the first such order; waits for it."""

        def found() -> list[tuple[int, Order]]:
            return [
                (place, order)
                for place, (_, order) in enumerate(list(self.orders))
                if isinstance(order, kind) and is_so(order)
            ]

        until(lambda: bool(found()), f"no such {kind.__name__} comes")
        return found()[0]

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._listening.accept()
            except OSError:
                return
            self._taken.append(taken)
            threading.Thread(target=self._serve, args=(taken,), daemon=True).start()

    def _serve(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError), taken.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                answer = self._answer(memoryview(stream.read(int.from_bytes(head, "big"))))
                if answer is None:
                    taken.shutdown(socket.SHUT_RDWR)
                    return
                taken.sendall(answer)

    def _answer(self, frame: memoryview) -> bytes | None:
        key, version, correlation_id = FIXED.unpack_from(frame, 0)
        if key not in _OBEYED:
            return None
        api = APIS[key]
        _, position = read_client_id(frame, FIXED.size, len(frame))
        if api.request_header_version(version) == 2:
            position = skip_header_tags(frame, position, len(frame))
        asked: Any = decode(api.request, version, frame[position:])
        answer: Message
        if isinstance(asked, ApiVersionsRequest):
            ranges = [
                ApiVersionsResponseApiKey(api_key=number, min_version=0, max_version=APIS[number].max_version)
                for number in _OBEYED
            ]
            answer = ApiVersionsResponse(api_keys=ranges)
        else:
            self.orders.append((version, asked))
            answer = api.response()
        body: bytes = (
            correlation_id.to_bytes(4, "big") + b"\0" * api.response_header_version(version) + encode(answer, version)
        )
        return len(body).to_bytes(4, "big") + body


def _told(error: int, partitions: Sequence[tuple[int, int]]) -> Told:
    assert len(dict(partitions)) == len(partitions), "a partition is answered twice"
    return Told(ErrorCode(error), {number: ErrorCode(code) for number, code in partitions})


_OrderedState = TypeVar("_OrderedState", LeaderAndIsrRequestUngroupedPartitionState, LeaderAndIsrRequestPartitionState)


def _ordered(kind: type[_OrderedState], topic: Topic, state: State, new: bool) -> _OrderedState:
    return kind(
        topic_name=topic.name,
        partition_index=state.number,
        controller_epoch=1,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(state.replicas),
        is_new=new,
    )


_ToldState = TypeVar("_ToldState", UpdateMetadataRequestUngroupedPartitionState, UpdateMetadataRequestPartitionState)


def _told_state(kind: type[_ToldState], topic: Topic, state: State) -> _ToldState:
    return kind(
        topic_name=topic.name,
        partition_index=state.number,
        controller_epoch=1,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.partition_epoch,
        replicas=list(state.replicas),
        offline_replicas=list(state.offline),
    )


def fetch_request(topic: Topic, version: int, max_wait_ms: int = 0) -> FetchRequest:
    """A consumer's, of partition 0 from its beginning."""
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    named = FetchRequestTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[part])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=-1, topics=[named])


def fetched(answer: FetchResponse) -> FetchResponsePartition:
    """The only partition of an answer."""
    assert answer.error_code == ErrorCode.NONE
    ((found,),) = (topic.partitions for topic in answer.responses)
    return found


def until(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _WITHIN_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def ordered_broker(kind: str, directory: Path) -> Iterator[Ordered]:
    """Apache Kafka 3.9.1 or jesenska, each on a tree of its own."""
    with ExitStack() as stack:
        tree = stack.enter_context(ServedTree(config=ServerConfig(tick_ms=1000)))
        if kind == "jesenska":
            ours = BrokerProcess(
                directory / "data", settings={"broker.id": str(BROKER), "zookeeper.connect": tree.address, **_SETTINGS}
            )
            made = Ordered(kind, stack.enter_context(ours).bootstrap, tree, directory / "data")
        else:
            need("java", "mvn")
            kafka = ApacheKafka(kind, directory, heap="384m", zookeeper_connect=tree.address, settings=_SETTINGS)
            made = Ordered(kind, stack.enter_context(kafka).bootstrap, tree, directory / "data-0")
        yield made
