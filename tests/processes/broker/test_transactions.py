"""Transactions of one broker: its settings, its restarts, lists of transactions, and hanging transactions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.language import Message
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic, DeleteTopicsResponse
from jesenska.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)
from jesenska.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from jesenska.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.conformance.transaction_table import GROUP, SETTINGS, TOPIC, Asked, Broker, Who
from tests.raw_connection import Answer, RawConnection

_SECONDS = 30.0


class Client(Broker):
    """A client with the requests of the table, and further ones."""

    def __init__(self, process: BrokerProcess) -> None:
        super().__init__(process.bootstrap)
        self.raw = RawConnection(process.bootstrap, _SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.socket.close()
        self.close()

    def ask(self, request: Message, version: int, response: type[Answer]) -> Answer:
        return self.raw.ask(request, version, response)

    def begin(self, name: str, timeout_ms: int = 600_000) -> Asked:
        until(lambda: self.coordinator(1, name) == ErrorCode.NONE)
        return Asked(name, self.init(name, timeout_ms))

    def fetch(self, partition: int = 0, *, committed: bool = True) -> FetchResponsePartition:
        wanted = FetchRequestPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            isolation_level=int(committed), max_wait_ms=0, topics=[FetchRequestTopic(topic=TOPIC, partitions=[wanted])]
        )
        return self.ask(request, 11, FetchResponse).responses[0].partitions[0]

    def committed(self, *, stable: bool = False) -> tuple[int, int]:
        """The error and the offset of the group's first partition, -1 if there is no offset."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)], require_stable=stable
        )
        topics = self.ask(request, 8, OffsetFetchResponse).groups[0].topics
        if not topics:
            return ErrorCode.NONE, -1
        (found,) = topics[0].partitions
        return found.error_code, found.committed_offset

    def commit(self, offset: int) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        return self.ask(request, 8, OffsetCommitResponse).topics[0].partitions[0].error_code

    def listed(self, **filters: object) -> dict[str, str]:
        answer = self.ask(ListTransactionsRequest(**filters), 1, ListTransactionsResponse)
        assert answer.error_code == ErrorCode.NONE
        return {item.transactional_id: item.transaction_state for item in answer.transaction_states}

    def marker(
        self, who: Who, *, commits: bool, coordinator_epoch: int = 0, version: int = 2, transaction_version: int = 0
    ) -> int:
        marker = WriteTxnMarkersRequestMarker(
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            transaction_result=commits,
            topics=[WriteTxnMarkersRequestTopic(name=TOPIC, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        answer = self.ask(WriteTxnMarkersRequest(markers=[marker]), version, WriteTxnMarkersResponse)
        return answer.markers[0].topics[0].partitions[0].error_code


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not ready():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS, warm=True) as running:
        with Client(running) as client:
            client.prepare()
        yield running


def started(directory: Path, **settings: str) -> BrokerProcess:
    return BrokerProcess(
        directory, settings=SETTINGS | {name.replace("_", "."): value for name, value in settings.items()}, warm=True
    )


def test_records_of_a_transaction_are_seen_when_it_is_committed_and_never_when_it_is_aborted(
    process: BrokerProcess,
) -> None:
    with Client(process) as client:
        asked = client.begin("a")
        assert client.produce(asked, asked.producer, 12) == ErrorCode.NONE
        assert client.fetch().last_stable_offset == 0
        assert client.fetch(committed=False).high_watermark == 1
        told = client.end(asked, asked.producer, 5, commits=True)
        until(lambda: client.fetch().last_stable_offset == 2)
        following = Who(told.producer_id, told.producer_epoch)
        assert client.produce(asked, following, 12) == ErrorCode.NONE
        assert client.end(asked, following, 5, commits=False).error_code == ErrorCode.NONE
        until(lambda: client.fetch().last_stable_offset == 4)
        assert [(item.producer_id, item.first_offset) for item in client.fetch().aborted_transactions or ()] == [
            (following.producer_id, 2)
        ]


def test_an_open_transaction_is_open_after_a_kill_and_ends_by_its_producer(process: BrokerProcess) -> None:
    with Client(process) as client:
        asked = client.begin("a")
        assert client.produce(asked, asked.producer, 12) == ErrorCode.NONE
    process.kill()
    process.start()
    with Client(process) as client:
        until(lambda: client.describe("a")[1] == "Ongoing")
        assert client.fetch().last_stable_offset == 0
        assert client.end(asked, asked.producer, 5, commits=True).error_code == ErrorCode.NONE
        until(lambda: client.fetch().last_stable_offset == 2)


def test_an_open_transaction_of_a_broker_that_was_killed_ends_by_its_time(process: BrokerProcess) -> None:
    with Client(process) as client:
        asked = client.begin("a", timeout_ms=500)
        assert client.produce(asked, asked.producer, 12) == ErrorCode.NONE
    process.kill()
    process.start()
    with Client(process) as client:
        until(lambda: client.describe("a")[1] == "CompleteAbort")
        until(lambda: client.fetch().last_stable_offset == 2)
        assert client.produce(asked, asked.producer, 12, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert client.end(asked, asked.producer, 4, commits=True).error_code == ErrorCode.PRODUCER_FENCED


def test_offsets_of_a_transaction_count_with_its_commit_whatever_is_killed(process: BrokerProcess) -> None:
    with Client(process) as client:
        assert client.commit(3) == ErrorCode.NONE
        asked = client.begin("a")
        assert client.offsets(asked, asked.producer, 5) == ErrorCode.NONE
        assert client.committed() == (ErrorCode.NONE, 3)
        assert client.committed(stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    process.kill()
    process.start()
    with Client(process) as client:
        until(lambda: client.describe("a")[1] == "Ongoing")
        until(lambda: client.committed() == (ErrorCode.NONE, 3))
        assert client.committed(stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        told = client.end(asked, asked.producer, 5, commits=True)
        assert told.error_code == ErrorCode.NONE
        until(lambda: client.committed(stable=True) == (ErrorCode.NONE, 5))
        following = Who(told.producer_id, told.producer_epoch)
        assert client.commit(8) == ErrorCode.NONE
        assert client.offsets(asked, following, 5) == ErrorCode.NONE
        assert client.end(asked, following, 5, commits=False).error_code == ErrorCode.NONE
        until(lambda: client.committed(stable=True) == (ErrorCode.NONE, 8))


def test_an_offset_that_is_committed_outside_of_the_transaction_later_stays(process: BrokerProcess) -> None:
    with Client(process) as client:
        asked = client.begin("a")
        assert client.offsets(asked, asked.producer, 5) == ErrorCode.NONE
        assert client.commit(7) == ErrorCode.NONE
    process.kill()
    process.start()
    with Client(process) as client:
        until(lambda: client.describe("a")[1] == "Ongoing")
        assert client.end(asked, asked.producer, 5, commits=True).error_code == ErrorCode.NONE
        client.settled("a")
        until(lambda: client.committed(stable=True) == (ErrorCode.NONE, 7))


def test_the_partition_of_a_topic_that_is_deleted_holds_up_no_transaction(process: BrokerProcess) -> None:
    with Client(process) as client:
        asked = client.begin("a")
        assert client.produce(asked, asked.producer, 12) == ErrorCode.NONE
        client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name=TOPIC)], timeout_ms=20_000),
            6,
            DeleteTopicsResponse,
        )
        assert client.end(asked, asked.producer, 5, commits=True).error_code == ErrorCode.NONE
        assert client.settled("a")[1] == "CompleteCommit"


def test_transactions_are_listed_by_state_producer_and_duration(process: BrokerProcess) -> None:
    with Client(process) as client:
        before = client.listed()
        asked, other = client.begin("listed-1"), client.begin("listed-2")
        client.add(asked, asked.producer, 3)
        found = {name: state for name, state in client.listed().items() if name not in before}
        assert found == {"listed-1": "Ongoing", "listed-2": "Empty"}
        assert client.listed(state_filters=["Ongoing"]) == {"listed-1": "Ongoing"}
        assert client.listed(producer_id_filters=[other.producer.producer_id]) == {"listed-2": "Empty"}
        # As Apache Kafka 4.3.1 answers: an id that never had a transaction has none that began too late.
        assert client.listed(duration_filter=3_600_000, state_filters=["Empty", "Ongoing"]).keys() & found.keys() == {
            "listed-2"
        }
        until(lambda: client.listed(duration_filter=20).keys() & found.keys() == {"listed-1", "listed-2"})


def test_a_transaction_that_hangs_is_found_among_the_producers_and_ended_by_a_marker(tmp_path: Path) -> None:
    """Without verification, a late batch starts a transaction that the coordinator does not know."""
    with (
        started(tmp_path / "data", transaction_partition_verification_enable="false") as process,
        Client(process) as client,
    ):
        client.prepare()
        asked = client.begin("a")
        assert client.produce(asked, asked.producer, 9) == ErrorCode.NONE
        assert client.describe("a")[1] == "Empty"
        request = DescribeProducersRequest(topics=[DescribeProducersRequestTopic(name=TOPIC, partition_indexes=[0])])
        (found,) = client.ask(request, 0, DescribeProducersResponse).topics[0].partitions[0].active_producers
        assert (found.producer_id, found.current_txn_start_offset, found.coordinator_epoch) == (
            asked.producer.producer_id,
            0,
            -1,
        )
        assert client.marker(asked.producer, commits=False) == ErrorCode.NONE
        assert client.fetch().last_stable_offset == 2


@pytest.mark.parametrize("version", (0, 1, 2))
def test_markers_are_refused_by_epochs(process: BrokerProcess, version: int) -> None:
    with Client(process) as client:
        client.begin("a")
        asked = client.begin("a")
        client.produce(asked, asked.producer, 12)
        assert client.marker(asked.producer, commits=True, coordinator_epoch=5, version=version) == ErrorCode.NONE
        assert (
            client.marker(asked.producer, commits=True, coordinator_epoch=4, version=version)
            == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        )
        older = asked.producer._replace(epoch=0)
        assert (
            client.marker(older, commits=True, coordinator_epoch=5, version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert client.marker(Who(-1, -1), commits=True, version=version) == ErrorCode.UNKNOWN_SERVER_ERROR
        if version >= 2:
            assert (
                client.marker(Who(4712, 0), commits=True, version=version, transaction_version=-1)
                == ErrorCode.UNKNOWN_SERVER_ERROR
            )
            assert (
                client.marker(Who(4712, 0), commits=True, version=version, transaction_version=-128) == ErrorCode.NONE
            )
        twice = [
            WriteTxnMarkersRequestMarker(
                producer_id=4711,
                producer_epoch=0,
                coordinator_epoch=epoch,
                topics=[WriteTxnMarkersRequestTopic(name=TOPIC, partition_indexes=numbers)],
            )
            for epoch, numbers in ((5, [0]), (4, [1, 0]))
        ]
        (answered,) = client.ask(WriteTxnMarkersRequest(markers=twice), version, WriteTxnMarkersResponse).markers
        codes = {part.partition_index: part.error_code for part in answered.topics[0].partitions}
        assert codes == {0: ErrorCode.TRANSACTION_COORDINATOR_FENCED, 1: ErrorCode.NONE}


def test_with_transaction_version_2_a_late_marker_does_not_end_the_transaction_that_is_open_now(
    process: BrokerProcess,
) -> None:
    with Client(process) as client:
        asked = client.begin("a")
        client.produce(asked, asked.producer, 12)
        told = client.end(asked, asked.producer, 5, commits=True)
        client.settled("a")
        following = Who(told.producer_id, told.producer_epoch)
        # The marker of that end has this epoch. It is sent a second time.
        assert client.marker(following, commits=True, transaction_version=2) == ErrorCode.NONE
        assert client.produce(asked, following, 12) == ErrorCode.NONE
        assert client.marker(following, commits=True, transaction_version=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_time_outs_beyond_the_setting_are_refused(tmp_path: Path) -> None:
    with started(tmp_path / "data", transaction_max_timeout_ms="5000") as process, Client(process) as client:
        client.begin("a", timeout_ms=5000)
        for timeout_ms in (5001, 0, -1):
            assert client.ask_init("b", timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_ids_that_are_not_used_are_forgotten_in_time(tmp_path: Path) -> None:
    settings = {
        "transactional.id.expiration.ms": "300",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    }
    with (
        BrokerProcess(tmp_path / "data", settings=SETTINGS | settings, warm=True) as process,
        Client(process) as client,
    ):
        client.begin("a")
        until(lambda: client.describe("a")[0] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def test_the_topic_has_the_partitions_and_settings_that_are_asked_for(tmp_path: Path) -> None:
    with started(tmp_path / "data", transaction_state_log_num_partitions="7") as process, Client(process) as client:
        client.begin("a")
        request = MetadataRequest(topics=[MetadataRequestTopic(name="__transaction_state")])
        (topic,) = client.ask(request, 5, MetadataResponse).topics
        assert (len(topic.partitions), topic.is_internal) == (7, True)


def test_without_verification_old_clients_write_unasked(tmp_path: Path) -> None:
    with (
        started(tmp_path / "data", transaction_partition_verification_enable="false") as process,
        Client(process) as client,
    ):
        client.prepare()
        asked = client.begin("a")
        assert client.produce(asked, asked.producer, 11) == ErrorCode.NONE
        # New clients leave it to the leader to add partitions, with verification or without.
        other = client.begin("b")
        assert client.produce(other, other.producer, 12, partition=1) == ErrorCode.NONE
        assert client.describe("b")[1] == "Ongoing"


@pytest.mark.parametrize("version", (9, 11, 12))
def test_a_producer_is_told_to_try_again_while_nobody_can_say_whether_its_partition_is_in_the_transaction(
    tmp_path: Path, version: int
) -> None:
    """There is no coordinator yet. Old clients repeat the request after this error, but not after the errors of
    coordinators."""
    with started(tmp_path / "data") as process, Client(process) as client:
        client.ask(
            CreateTopicsRequest(topics=[CreateTopicsRequestTopic(name=TOPIC, num_partitions=1, replication_factor=1)]),
            5,
            CreateTopicsResponse,
        )
        assert client.produce(Asked("a", Who(1, 0)), Who(1, 0), version) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_leader_asks_again_while_the_transaction_before_is_being_ended(tmp_path: Path) -> None:
    """Tests add.partitions.to.txn.retry.backoff.ms and add.partitions.to.txn.retry.backoff.max.ms."""
    settings = {"add.partitions.to.txn.retry.backoff.ms": "5", "add.partitions.to.txn.retry.backoff.max.ms": "20000"}
    with (
        BrokerProcess(tmp_path / "data", settings=SETTINGS | settings, warm=True) as process,
        Client(process) as client,
    ):
        client.prepare()
        asked = client.begin("a")
        who = asked.producer
        for number in range(40):
            assert client.produce(asked, who, 12, partition=number % 2) == ErrorCode.NONE
            told = client.end(asked, who, 5, commits=True)
            assert told.error_code == ErrorCode.NONE
            who = Who(told.producer_id, told.producer_epoch)
