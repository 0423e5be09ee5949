"""Clients that ask and then do not read, or go away while they wait, in Fetch versions that are answered in different
ways."""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.figures import resident_mb

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.profiles import rounds
from tests.raw_connection import RawConnection
from tests.units.log.log_harness import make_batch

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory and descriptors are read from /proc"
)

#: Message sets converted for the client; batches; batches to a client that could have a session; topic ids.
VERSIONS = (2, 4, 11, 17)
PARTITIONS, BATCH_BYTES = 400, 60_000
DEAF = 40
#: How many wait.
GONE = rounds(quick=40, ci=200, everything=1000)
_WAIT_MS = 2**31 - 1


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("gone") / "data") as broker,
        RawConnection(broker.bootstrap) as connection,
    ):
        wanted = [CreateTopicsRequestTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)]
        answer = connection.ask(CreateTopicsRequest(topics=wanted, timeout_ms=20_000), 5, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE
        for start in range(0, PARTITIONS, 50):
            data = [
                ProduceRequestPartition(index=number, records=make_batch(1, value_bytes=BATCH_BYTES))
                for number in range(start, start + 50)
            ]
            connection.ask(
                ProduceRequest(
                    acks=1, timeout_ms=20_000, topic_data=[ProduceRequestTopic(name="t", partition_data=data)]
                ),
                9,
                ProduceResponse,
            )
        yield broker


def topic_id(broker: BrokerProcess) -> uuid.UUID:
    with RawConnection(broker.bootstrap) as connection:
        return (
            connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12, MetadataResponse)
            .topics[0]
            .topic_id
        )


def fetch(broker: BrokerProcess, offset: int) -> FetchRequest:
    parts = [
        FetchRequestPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in range(PARTITIONS)
    ]
    topics = [FetchRequestTopic(topic="t", topic_id=topic_id(broker), partitions=parts)]
    return FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=2**31 - 1, session_epoch=-1, topics=topics)


def descriptors(broker: BrokerProcess) -> int:
    return len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Checks a condition repeatedly. Fails if it is not true within this time."""
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it did not come to pass"
        time.sleep(0.1)


def connect(broker: BrokerProcess, receive_bytes: int = 4096) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(60)
    connection.connect((broker.host, broker.port))
    return connection


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_that_nobody_reads_take_little_memory(filled: BrokerProcess, version: int) -> None:
    before = descriptors(filled)
    with RawConnection(filled.bootstrap) as bystander:
        frame = bystander.frame(fetch(filled, 0), version)
        bystander.send_frame(frame)
        bystander.receive(version, FetchResponse)
        before_mb = resident_mb(filled.pid)
        deaf = []
        try:
            for _ in range(DEAF):
                connection = connect(filled)
                connection.sendall(struct.pack(">i", len(frame)) + frame)
                deaf.append(connection)
            for connection in deaf:
                assert connection.recv(1, socket.MSG_PEEK)  # its answer has begun to leave
            bystander.send_frame(frame)
            answer = bystander.receive(version, FetchResponse)
            assert any(part.records for topic in answer.responses for part in topic.partitions)
            grown_mb = resident_mb(filled.pid) - before_mb
            print(f"\nFetch {version}: {DEAF} deaf clients, {grown_mb:.0f} MB more")
            assert grown_mb < 120
        finally:
            for connection in deaf:
                connection.close()
        until(lambda: resident_mb(filled.pid) - before_mb < 60)
    # The next test counts them.
    until(lambda: descriptors(filled) <= before)


def test_fetches_of_clients_that_have_gone_are_given_up(filled: BrokerProcess) -> None:
    """In every version. Half of the clients have sent another request after the waiting one, so the broker cannot
    notice the end of the stream by reading."""
    before = descriptors(filled)
    with RawConnection(filled.bootstrap) as bystander:
        frames = [bystander.frame(fetch(filled, 1), version) for version in VERSIONS]
        sent = [(struct.pack(">i", len(frame)) + frame) * times for frame in frames for times in (1, 2)]
        waiting = []
        for number in range(GONE):
            connection = connect(filled)
            connection.sendall(sent[number % len(sent)])
            waiting.append(connection)
        until(lambda: descriptors(filled) >= before + GONE)
        for connection in waiting:
            connection.close()
        until(lambda: descriptors(filled) <= before + 1)


def test_an_answer_that_is_read_slowly_is_not_cut_off_as_idle(tmp_path: Path) -> None:
    with BrokerProcess(
        tmp_path / "data", settings={"connections.max.idle.ms": "1000", "socket.send.buffer.bytes": "20000"}
    ) as broker:
        with RawConnection(broker.bootstrap) as first:
            wanted = [CreateTopicsRequestTopic(name="t", num_partitions=1, replication_factor=1)]
            first.ask(CreateTopicsRequest(topics=wanted, timeout_ms=20_000), 5, CreateTopicsResponse)
            batch = make_batch(1, value_bytes=900_000)
            data = [ProduceRequestPartition(index=0, records=batch)]
            first.ask(
                ProduceRequest(
                    acks=1, timeout_ms=20_000, topic_data=[ProduceRequestTopic(name="t", partition_data=data)]
                ),
                9,
                ProduceResponse,
            )
            parts = [FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
            frame = first.frame(
                FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[FetchRequestTopic(topic="t", partitions=parts)]),
                11,
            )
        with connect(broker, 100_000) as slow:
            slow.sendall(struct.pack(">i", len(frame)) + frame)
            taken = 0
            began = time.monotonic()
            while taken < len(batch):
                taken += len(slow.recv(len(batch) // 20, socket.MSG_WAITALL))
                time.sleep(0.15)  # the test needs a slow client
            assert time.monotonic() - began > 2
