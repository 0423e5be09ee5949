"""Quotas on a broker: a client above its quota gets its time to wait, and its next request is not taken before. Others
go on. Requests are raw, under the client id `raw`."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode, InvalidRequestError
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.quota_administration import ANY, EXACT, EntityQuotas
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.old_requests import create
from tests.processes.broker.test_edges_of_requests import batch as batch_of
from tests.raw_connection import RawConnection

_RAW = {"client-id": "raw"}
_EVERYTHING = {
    "producer_byte_rate": None,
    "consumer_byte_rate": None,
    "request_percentage": None,
    "controller_mutation_rate": None,
}


def on_cluster(bootstrap: str, work: Callable[[Admin], Awaitable[None]]) -> None:
    async def run() -> None:
        cluster = Cluster(bootstrap)
        try:
            await work(Admin(cluster))
        finally:
            await cluster.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("quotas")) as running:
        yield running


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as opened:
        yield opened
    on_cluster(broker.bootstrap, lambda admin: admin.alter_client_quotas([(_RAW, _EVERYTHING)]))


def limit(broker: BrokerProcess, **quotas: float) -> None:
    on_cluster(broker.bootstrap, lambda admin: admin.alter_client_quotas([(_RAW, quotas)]))


def produce(connection: RawConnection, topic: str, size_bytes: int, acks: int = 1) -> ProduceRequest:
    part = ProduceRequestPartition(index=0, records=batch_of(b"x" * size_bytes))
    return ProduceRequest(
        acks=acks, timeout_ms=20_000, topic_data=[ProduceRequestTopic(name=topic, partition_data=[part])]
    )


def test_a_producer_above_its_quota_is_answered_at_once_and_waits_then(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    create(connection, "produced")
    limit(broker, producer_byte_rate=10_000.0)
    began = time.monotonic()
    answer = connection.ask(produce(connection, "produced", 105_000), 8, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    throttle_ms = answer.throttle_time_ms
    # 105,000 bytes and some in ten windows of a second: a twentieth above the quota.
    assert 500 <= throttle_ms <= 600
    connection.send_frame(connection.frame(MetadataRequest(), 8))
    with RawConnection(broker.bootstrap) as other:
        # Another connection is not kept waiting, not even by the same client.
        other.ask(MetadataRequest(), 8, MetadataResponse)
    connection.receive(8, MetadataResponse)
    assert time.monotonic() - began >= throttle_ms / 1000 - 0.002


def test_a_producer_that_wants_no_answer_waits_too(broker: BrokerProcess, connection: RawConnection) -> None:
    create(connection, "unanswered")
    limit(broker, producer_byte_rate=20_000.0)
    connection.send_frame(connection.frame(produce(connection, "unanswered", 210_000, acks=0), 8))
    began = time.monotonic()
    connection.ask(MetadataRequest(), 8, MetadataResponse)
    assert time.monotonic() - began >= 0.4


def test_a_consumer_above_its_quota_gets_an_empty_answer_and_the_records_later(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    create(connection, "fetched")
    for _ in range(30):
        connection.ask(produce(connection, "fetched", 1000), 8, ProduceResponse)
    limit(broker, consumer_byte_rate=1000.0)
    part = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=9000)
    request = FetchRequest(max_wait_ms=0, topics=[FetchRequestTopic(topic="fetched", partitions=[part])])
    request.session_epoch = -1
    first = connection.ask(request, 8, FetchResponse)
    records = first.responses[0].partitions[0].records
    assert isinstance(records, memoryview | bytes)
    assert len(bytes(records)) == 9000
    assert first.throttle_time_ms == 0
    second = connection.ask(request, 8, FetchResponse)
    # Twice 9,000 bytes and some in ten windows of a second; an empty answer does not count.
    assert (second.responses, 8000 <= second.throttle_time_ms <= 8300) == ([], True)


def test_a_request_costs_time_and_waits_for_a_window_at_most(broker: BrokerProcess, connection: RawConnection) -> None:
    limit(broker, request_percentage=0.0001)
    answer = connection.ask(MetadataRequest(), 8, MetadataResponse)
    assert 0 < answer.throttle_time_ms <= 1000


def test_changes_of_partitions_are_refused_above_the_quota_to_newer_clients(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    limit(broker, controller_mutation_rate=1.0)

    def make(name: str, version: int) -> CreateTopicsResponse:
        wanted = CreateTopicsRequestTopic(name=name, num_partitions=12, replication_factor=1)
        return connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), version, CreateTopicsResponse)

    # A burst of eleven seconds is allowed, and whoever has some left may owe the rest.
    first = make("first", 6)
    assert (first.topics[0].error_code, first.throttle_time_ms) == (ErrorCode.NONE, 0)
    second = make("second", 6)
    assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.topics[0].error_message == "The throttling quota has been exceeded."
    assert 0 < second.throttle_time_ms <= 1000


def test_quotas_are_shown_changed_and_kept_over_a_restart(tmp_path: Path) -> None:
    async def change(admin: Admin) -> None:
        await admin.alter_client_quotas(
            [
                ({"user": "an na", "client-id": None}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
                ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
            ]
        )
        with pytest.raises(InvalidRequestError, match="must be greater than 0"):
            await admin.alter_client_quotas([({"user": "a"}, {"producer_byte_rate": -1.0})])
        await admin.alter_client_quotas([({"user": "a"}, {"producer_byte_rate": 1.0})], validate_only=True)

    async def look(admin: Admin) -> None:
        users = await admin.describe_client_quotas({"user": (ANY, None)})
        assert users == [
            EntityQuotas(
                {"client-id": None, "user": "an na"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
            )
        ]
        assert await admin.describe_client_quotas({"user": (ANY, None)}, strict=True) == []
        addresses = await admin.describe_client_quotas({"ip": (EXACT, "10.0.0.1")})
        assert [found.quotas for found in addresses] == [{"connection_creation_rate": 5.0}]

    for works in ((change, look), (look,)):
        with BrokerProcess(tmp_path) as running:
            for work in works:
                on_cluster(running.bootstrap, work)


def test_an_address_that_opens_too_many_connections_is_closed(broker: BrokerProcess) -> None:
    """The connections come from an address that nobody else uses here."""
    limits = {"connection_creation_rate": 1.0}
    on_cluster(broker.bootstrap, lambda admin: admin.alter_client_quotas([({"ip": "127.0.0.2"}, limits)]))
    for _ in range(10):
        with from_another_address(broker) as accepted:
            accepted.ask(MetadataRequest(), 8, MetadataResponse)
    with from_another_address(broker) as refused:
        refused.send_frame(refused.frame(MetadataRequest(), 8))
        assert refused.is_closed()
    with RawConnection(broker.bootstrap) as other:
        other.ask(MetadataRequest(), 8, MetadataResponse)


def from_another_address(broker: BrokerProcess) -> RawConnection:
    host, _, port = broker.bootstrap.rpartition(":")
    connection = RawConnection(broker.bootstrap)
    connection.socket.close()
    connection.socket = socket.create_connection((host, int(port)), 20.0, source_address=("127.0.0.2", 0))
    return connection


def test_windows_and_defaults_are_those_of_the_configuration(tmp_path: Path) -> None:
    """Two windows of two seconds are left of three: 50,000 bytes in four seconds."""
    settings = {
        "quota.window.num": "3",
        "quota.window.size.seconds": "2",
        "quota.producer.default": "10000",
        "quota.consumer.default": "20000",
        "controller.quota.window.num": "2",
        "controller.quota.window.size.seconds": "3",
    }
    with BrokerProcess(tmp_path, settings=settings) as running, RawConnection(running.bootstrap) as connection:
        create(connection, "default")
        answer = connection.ask(produce(connection, "default", 50_000), 8, ProduceResponse)
        assert 990 <= answer.throttle_time_ms <= 1100
        limit(running, controller_mutation_rate=1.0)
        # Six seconds are a burst of six: 8 partitions leave two to be paid back.
        wanted = CreateTopicsRequestTopic(name="eight", num_partitions=8, replication_factor=1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=20_000)
        older = connection.ask(request, 5, CreateTopicsResponse)
        assert older.topics[0].error_code == ErrorCode.NONE
        assert 1900 <= older.throttle_time_ms <= 2000


def test_a_listener_above_its_rate_of_new_connections_takes_the_next_later(tmp_path: Path) -> None:
    settings = {
        "max.connection.creation.rate": "1000",
        "listener.name.plaintext.max.connection.creation.rate": "2",
        "quota.window.num": "2",
    }
    with BrokerProcess(tmp_path, settings=settings) as running:
        began = time.monotonic()
        for _ in range(6):
            with RawConnection(running.bootstrap) as accepted:
                accepted.ask(MetadataRequest(), 8, MetadataResponse)
        # Some connections came before: the broker was asked if it is up.
        assert time.monotonic() - began > 0.9


def test_a_listener_may_have_a_limit_of_connections_of_its_own(tmp_path: Path) -> None:
    settings = {"listener.name.plaintext.max.connections": "1"}
    with BrokerProcess(tmp_path, settings=settings) as running, RawConnection(running.bootstrap) as first:
        first.ask(MetadataRequest(), 8, MetadataResponse)
        with RawConnection(running.bootstrap) as second:
            second.send_frame(second.frame(MetadataRequest(), 8))
            assert second.is_closed()
