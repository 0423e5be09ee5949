"""What a broker answers about transactions, as a table: state of the transactional id x request x who asks.

    state     how far the transactional id has come, by real requests
    request   one request of one version
    who       the producer as it is, an epoch older, an epoch newer, or with another producer id

Each cell has a transactional id of its own. It says the error, what of the producer's id and epoch is in the answer,
and what DescribeTransactions says afterwards, all relative to the producer before the request: two brokers hand out
other numbers.

PrepareCommit and PrepareAbort last as long as markers are on their way. They have a table of their own (`MARKING`),
asked of one of two brokers, while the other one, which leads a partition of each transaction, stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.records.encode import encode_batch
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponseTopic,
)
from jesenska.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from jesenska.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from jesenska.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)
from jesenska.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from jesenska.wire.messages.k65_describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tests.raw_connection import ClosedByBrokerError, RawConnection

#: What the brokers of the table are started with.
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
TOPIC, GROUP = "table", "table-group"
#: A topic whose partition the broker leads that stands still.
STILL_TOPIC = "table-still"
_SECONDS = 30.0
_TRANSIENT = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)

#: A cell: state, request, who.
Cell = tuple[str, str, str]


class Who(NamedTuple):
    producer_id: int
    epoch: int


NOBODY = Who(-1, -1)


class Asked(NamedTuple):
    """A transactional id with the producer that the coordinator knows for it."""

    name: str
    producer: Who


class Broker:
    """The requests of the table to one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._link = RawConnection(bootstrap, _SECONDS)
        served: ApiVersionsResponse = self._link.ask(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3, ApiVersionsResponse
        )
        self.versions = {item.api_key: (item.min_version, item.max_version) for item in served.api_keys}
        self._number = 0
        #: The id of this broker, where there are others.
        self.broker_id = -1

    def close(self) -> None:
        self._link.socket.close()

    def serves(self, key: int, version: int) -> bool:
        low, high = self.versions.get(key, (0, -1))
        return low <= version <= high

    def prepare(self, still: int = -1) -> None:
        """Topics, and coordinators that answer. `still` is the other broker."""
        topics = [CreateTopicsRequestTopic(name=TOPIC, num_partitions=2, replication_factor=1)]
        if still >= 0:
            topics = [_led_by(TOPIC, self.broker_id, 2), _led_by(STILL_TOPIC, still, 1)]
        with RawConnection(self._controller(), _SECONDS) as controller:
            controller.ask(CreateTopicsRequest(topics=topics, timeout_ms=20_000), 5, CreateTopicsResponse)
        _until(lambda: self.coordinator(0, GROUP) == self.coordinator(1, "warm") == ErrorCode.NONE)
        _until(lambda: all(self._leader(topic.name) for topic in topics))
        for number in range(20):
            name = f"warm-{number}"
            if self.broker_id < 0 or self.coordinator_of(name) == self.broker_id:
                self.init(name)
        _until(lambda: self.offsets(Asked("warm-0", NOBODY), NOBODY, 3) not in _TRANSIENT)

    def _controller(self) -> str:
        """Where topics are made."""
        answer = self._link.ask(MetadataRequest(topics=[]), 5, MetadataResponse)
        return next(
            (f"{item.host}:{item.port}" for item in answer.brokers if item.node_id == answer.controller_id),
            self._bootstrap,
        )

    def coordinator(self, kind: int, key: str) -> int:
        return self._link.ask(FindCoordinatorRequest(key=key, key_type=kind), 3, FindCoordinatorResponse).error_code

    def group_coordinator(self) -> int:
        """The broker that coordinates the group."""
        return self._link.ask(FindCoordinatorRequest(key=GROUP, key_type=0), 3, FindCoordinatorResponse).node_id

    def coordinator_of(self, name: str) -> int:
        """The broker that coordinates a transactional id; -1 for none now."""
        return self._link.ask(FindCoordinatorRequest(key=name, key_type=1), 3, FindCoordinatorResponse).node_id

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """Up to where read_committed consumers read."""
        asked = FetchRequestPartition(partition=partition, fetch_offset=0, partition_max_bytes=1)
        request = FetchRequest(
            isolation_level=1, max_wait_ms=0, topics=[FetchRequestTopic(topic=topic, partitions=[asked])]
        )
        return self._link.ask(request, 11, FetchResponse).responses[0].partitions[0].last_stable_offset

    def _leader(self, topic: str) -> bool:
        answer = self._link.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 5, MetadataResponse)
        return bool(answer.topics[0].partitions) and all(item.leader_id >= 0 for item in answer.topics[0].partitions)

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask_init(
        self, name: str, who: Who = NOBODY, version: int = 4, timeout_ms: int = 600_000
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        if version >= 3:
            request.producer_id, request.producer_epoch = who
        return self._link.ask(request, version, InitProducerIdResponse)

    def init(self, name: str, timeout_ms: int = 600_000) -> Who:
        """Asks until the coordinator gives an id."""
        end = time.monotonic() + _SECONDS
        while True:
            answer = self.ask_init(name, timeout_ms=timeout_ms)
            if answer.error_code == ErrorCode.NONE:
                return Who(answer.producer_id, answer.producer_epoch)
            assert answer.error_code in _TRANSIENT, ErrorCode(answer.error_code).name
            assert time.monotonic() < end, "no producer id in time"
            time.sleep(0.01)

    def add(
        self, asked: Asked, who: Who, version: int, topic: str = TOPIC, partition: int = 0, *, verify: bool = False
    ) -> int:
        topics = [AddPartitionsToTxnRequestTopic(name=topic, partitions=[partition])]
        if version >= 4:
            wanted = AddPartitionsToTxnRequestTransaction(
                transactional_id=asked.name,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                verify_only=verify,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[wanted])
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=asked.name,
                v3_and_below_producer_id=who.producer_id,
                v3_and_below_producer_epoch=who.epoch,
                v3_and_below_topics=topics,
            )
        answer = self._link.ask(request, version, AddPartitionsToTxnResponse)
        found: list[AddPartitionsToTxnResponseTopic] = (
            answer.results_by_transaction[0].topic_results if version >= 4 else answer.results_by_topic_v3_and_below
        )
        return found[0].results_by_partition[0].partition_error_code

    def add_offsets(self, asked: Asked, who: Who, version: int) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=asked.name, producer_id=who.producer_id, producer_epoch=who.epoch, group_id=GROUP
        )
        return self._link.ask(request, version, AddOffsetsToTxnResponse).error_code

    def end(self, asked: Asked, who: Who, version: int, *, commits: bool) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=asked.name, producer_id=who.producer_id, producer_epoch=who.epoch, committed=commits
        )
        return self._link.ask(request, version, EndTxnResponse)

    def offsets(self, asked: Asked, who: Who, version: int) -> int:
        partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")]
        request = TxnOffsetCommitRequest(
            transactional_id=asked.name,
            group_id=GROUP,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        return self._link.ask(request, version, TxnOffsetCommitResponse).topics[0].partitions[0].error_code

    def produce(
        self,
        asked: Asked,
        who: Who,
        version: int,
        topic: str = TOPIC,
        partition: int = 0,
        sequence: int = 0,
        value: bytes = b"value",
    ) -> int:
        batch = encode_batch(
            [(int(time.time() * 1000), b"key", value, ())],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = ProduceRequestPartition(index=partition, records=bytes(batch))
        request = ProduceRequest(
            transactional_id=asked.name,
            acks=-1,
            timeout_ms=20_000,
            topic_data=[ProduceRequestTopic(name=topic, partition_data=[data])],
        )
        return self._link.ask(request, version, ProduceResponse).responses[0].partition_responses[0].error_code

    def produce_outside(self, who: Who, sequence: int) -> int:
        """A batch of an idempotent producer, in no transaction."""
        batch = encode_batch(
            [(int(time.time() * 1000), b"key", b"value", ())],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
        )
        data = ProduceRequestPartition(index=0, records=bytes(batch))
        request = ProduceRequest(
            acks=-1, timeout_ms=20_000, topic_data=[ProduceRequestTopic(name=TOPIC, partition_data=[data])]
        )
        return self._link.ask(request, 9, ProduceResponse).responses[0].partition_responses[0].error_code

    def mark_offsets(self, who: Who) -> int:
        """Marks a transaction of a producer as aborted where the group's offsets are."""
        topic = WriteTxnMarkersRequestTopic(name=OFFSETS_TOPIC, partition_indexes=[0])
        marker = WriteTxnMarkersRequestMarker(producer_id=who.producer_id, producer_epoch=who.epoch, topics=[topic])
        answer = self._link.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
        return answer.markers[0].topics[0].partitions[0].error_code

    def describe(self, name: str) -> tuple[int, str, Who]:
        answer = self._link.ask(
            DescribeTransactionsRequest(transactional_ids=[name]), 0, DescribeTransactionsResponse
        ).transaction_states[0]
        return answer.error_code, answer.transaction_state, Who(answer.producer_id, answer.producer_epoch)

    def settled(self, name: str) -> tuple[int, str, Who]:
        """As `describe`, when no marker is under way any more."""
        end = time.monotonic() + _SECONDS
        while True:
            found = self.describe(name)
            if not found[1].startswith("Prepare"):
                return found
            assert time.monotonic() < end, f"{name} stays in {found[1]}"
            time.sleep(0.005)

    # --- states ------------------------------------------------------------------------------------------------------

    def in_state(self, state: str) -> Asked:
        """A new transactional id that has come so far."""
        self._number += 1
        name = f"{state}-{self._number}"
        while self.broker_id >= 0 and self.coordinator_of(name) != self.broker_id:
            self._number += 1
            name = f"{state}-{self._number}"
        if state == "unknown":
            return Asked(name, Who(1_000_000, 5))
        timeout_ms = 300 if state == "timed out" else 600_000
        who = self.init(name, timeout_ms)
        who = self.init(name, timeout_ms)
        asked = Asked(name, who)
        if state == "Empty":
            return asked
        if state == "aborted without partitions":
            self._fine(self.end(asked, who, 5, commits=False).error_code)
            return self._now(name)
        self._fine(self.add(asked, who, 3, STILL_TOPIC if state in MARKING else TOPIC))
        if state == "Ongoing":
            return asked
        if state == "Ongoing, written":
            self._fine(self.produce(asked, who, 9))
        elif state == "fenced":
            assert self.ask_init(name).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
            return self._now(name)
        elif state == "timed out":
            _until(lambda: self.describe(name)[1] == "CompleteAbort")
            return self._now(name)
        else:
            kind, _, how = state.partition(", ")
            self._fine(self.end(asked, who, 5 if how else 4, commits=kind.endswith("Commit")).error_code)
            return Asked(name, self.describe(name)[2]) if state in MARKING else self._now(name)
        return asked

    def _now(self, name: str) -> Asked:
        return Asked(name, self.settled(name)[2])

    def _fine(self, code: int) -> None:
        assert code == ErrorCode.NONE, ErrorCode(code).name


#: States, with the version of EndTxn that they need.
STATES = {
    "unknown": 0,
    "Empty": 0,
    "Ongoing": 0,
    "Ongoing, written": 0,
    "CompleteCommit": 0,
    "CompleteAbort": 0,
    "fenced": 0,
    "timed out": 0,
    "CompleteCommit, bumped": 5,
    "CompleteAbort, bumped": 5,
    "aborted without partitions": 5,
}

#: States in which markers are on their way.
MARKING = {
    "PrepareCommit": 0,
    "PrepareAbort": 0,
    "PrepareCommit, bumped": 5,
    "PrepareAbort, bumped": 5,
}

WHO: dict[str, Callable[[Who], Who]] = {
    "itself": lambda who: who,
    "an epoch older": lambda who: who._replace(epoch=who.epoch - 1),
    "an epoch newer": lambda who: who._replace(epoch=who.epoch + 1),
    "another id": lambda who: who._replace(producer_id=who.producer_id + 1_000_000),
}

#: What one request gives: the error, and the producer in the answer where it names one.
Outcome = tuple[int, Who | None]
Ask = Callable[[Broker, Asked, Who], Outcome]


def _init(version: int) -> Ask:
    def ask(broker: Broker, asked: Asked, who: Who) -> Outcome:
        answer = broker.ask_init(asked.name, who, version)
        return answer.error_code, Who(answer.producer_id, answer.producer_epoch)

    return ask


def _end(version: int, commits: bool) -> Ask:
    def ask(broker: Broker, asked: Asked, who: Who) -> Outcome:
        answer = broker.end(asked, who, version, commits=commits)
        return answer.error_code, Who(answer.producer_id, answer.producer_epoch) if version >= 5 else None

    return ask


def _plain(call: Callable[..., int], version: int, **more: Any) -> Ask:
    return lambda broker, asked, who: (call(broker, asked, who, version, **more), None)


def _requests() -> dict[str, tuple[int, int, Ask]]:
    """Each request's name with its key, version, and how it is made."""
    found: dict[str, tuple[int, int, Ask]] = {}
    for version in (1, 3, 4, 5):
        found[f"InitProducerId {version}"] = (22, version, _init(version))
    for version in (1, 3):
        found[f"AddPartitionsToTxn {version}"] = (24, version, _plain(Broker.add, version))
    found["AddPartitionsToTxn 3, another partition"] = (24, 3, _plain(Broker.add, 3, partition=1))
    found["AddPartitionsToTxn 3, no such partition"] = (24, 3, _plain(Broker.add, 3, partition=7))
    for version in (4, 5):
        found[f"AddPartitionsToTxn {version}"] = (24, version, _plain(Broker.add, version))
        found[f"AddPartitionsToTxn {version}, verify"] = (24, version, _plain(Broker.add, version, verify=True))
    for version in (1, 4):
        found[f"AddOffsetsToTxn {version}"] = (25, version, _plain(Broker.add_offsets, version))
    for version in (1, 4, 5):
        found[f"EndTxn {version}, commit"] = (26, version, _end(version, True))
        found[f"EndTxn {version}, abort"] = (26, version, _end(version, False))
    for version in (2, 4, 5):
        found[f"TxnOffsetCommit {version}"] = (28, version, _plain(Broker.offsets, version))
    for version in (9, 11, 12):
        found[f"Produce {version}"] = (0, version, _plain(Broker.produce, version))
    for version in (9, 12):
        found[f"Produce {version}, out of order"] = (0, version, _plain(Broker.produce, version, sequence=3))
    return found


REQUESTS = _requests()


def cells(states: Iterable[str]) -> Iterator[Cell]:
    for state in states:
        for request in REQUESTS:
            for who in WHO:
                yield state, request, who


def answer(broker: Broker, cell: Cell) -> str:
    """What the broker makes of one cell; "not served" where it lacks a version."""
    state, request, who = cell
    key, version, ask = REQUESTS[request]
    if not broker.serves(key, version) or not broker.serves(26, (STATES | MARKING)[state]):
        return "not served"
    asked = broker.in_state(state)
    try:
        code, producer = ask(broker, asked, WHO[who](asked.producer))
    except ClosedByBrokerError as closed:  # an answer, too
        return type(closed).__name__
    told = "" if producer is None else f" {relative(asked.producer, producer)}"
    error, now, known = broker.describe(asked.name) if state in MARKING else broker.settled(asked.name)
    after = ErrorCode(error).name if error else f"{now} {relative(asked.producer, known)}"
    return f"{ErrorCode(code).name}{told} -> {after}"


def relative(before: Who, found: Who) -> str:
    """`found` as seen from the producer of before."""
    if found.producer_id == before.producer_id:
        return f"epoch {found.epoch - before.epoch:+d}"
    return "no producer" if found.producer_id < 0 else f"another id, epoch {found.epoch}"


def _until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not ready():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


def _led_by(topic: str, broker_id: int, partitions: int) -> CreateTopicsRequestTopic:
    assignments = [
        CreateTopicsRequestAssignment(partition_index=number, broker_ids=[broker_id]) for number in range(partitions)
    ]
    return CreateTopicsRequestTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments)


def table(broker: Broker) -> dict[Cell, str]:
    """All cells of one broker that is prepared."""
    return {cell: answer(broker, cell) for cell in cells(STATES)}


def marking_table(addresses: Mapping[int, str], stand_still: Callable[[int], None]) -> dict[Cell, str]:
    """The cells of `MARKING`, of the one of two brokers that coordinates the group; the other one is made to stand
    still."""
    first = Broker(next(iter(addresses.values())))
    _until(lambda: first.coordinator(0, GROUP) == ErrorCode.NONE)
    asked = first.group_coordinator()
    first.close()
    (still,) = addresses.keys() - {asked}
    broker = Broker(addresses[asked])
    broker.broker_id = asked
    try:
        broker.prepare(still)
        stand_still(still)
        return {cell: answer(broker, cell) for cell in cells(MARKING)}
    finally:
        broker.close()
