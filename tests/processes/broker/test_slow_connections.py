"""Thousands of connections that are silent, slow, or do not read their answers. Another client is served all the time,
and memory stays within bounds."""

from __future__ import annotations

import os
import re
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.profiles import rounds
from tests.raw_connection import RawConnection

CONNECTIONS = rounds(quick=800, ci=4000, everything=15_000)
_TOPIC = "read-by-all"
_ROUNDS = 5
_EXCHANGES = 20
_AT_ONCE = 25
#: The memory that the broker may use: for all buffers of incomplete requests, and for each connection.
_MAX_KB, _MAX_KB_EACH = 64 * 1024, 12

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raises the limit of open files for the connections in this process and in the broker, which inherits the
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 1000
    if hard < wanted:
        pytest.skip(f"{CONNECTIONS} connections need {wanted} open files, the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _resident_kb(pid: int) -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1])


def _produce(connection: RawConnection, size: int) -> int:
    """Produces one record. Returns its offset."""
    batch = bytes(encode_batch([(1_700_000_000_000, None, os.urandom(size), ())]))
    data = ProduceRequestTopic(name=_TOPIC, partition_data=[ProduceRequestPartition(index=0, records=batch)])
    answer = (
        connection.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse)
        .responses[0]
        .partition_responses[0]
    )
    assert answer.error_code == ErrorCode.NONE
    return answer.base_offset


def _fetch(offset: int, max_bytes: int, max_wait_ms: int = 600_000) -> FetchRequest:
    partition = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchRequestTopic(topic=_TOPIC, partitions=[partition])],
    )


class Client(threading.Thread):
    """Writes and reads one record after the other. `wait` returns after this number of further records."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._address = bootstrap
        self._ends = threading.Event()
        self._done = threading.Condition()
        self._count = 0
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            with RawConnection(self._address, 60.0) as connection:
                while not self._ends.wait(0.002):
                    offset = _produce(connection, 100)
                    answer = connection.ask(_fetch(offset, 1), 11, FetchResponse).responses[0].partitions[0]
                    assert answer.error_code == ErrorCode.NONE
                    assert answer.records
                    with self._done:
                        self._count += 1
                        self._done.notify_all()
        except BaseException as failure:
            with self._done:
                self._failure = failure
                self._done.notify_all()

    def wait(self, more: int) -> None:
        with self._done:
            wanted = self._count + more
            assert self._done.wait_for(lambda: self._count >= wanted or self._failure is not None, 120)
            assert self._failure is None, repr(self._failure)

    def __enter__(self) -> Client:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()


def _connect(broker: BrokerProcess) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # bytes that it does not read stay at the broker
    connection.connect((broker.host, broker.port))
    connection.setblocking(False)
    return connection


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def test_thousands_of_silent_slow_and_deaf_connections_harm_nobody(many_files: None, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawConnection(broker.bootstrap) as first:
        topic = CreateTopicsRequestTopic(name=_TOPIC, num_partitions=1, replication_factor=1)
        assert (
            first.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 5, CreateTopicsResponse)
            .topics[0]
            .error_code
            == ErrorCode.NONE
        )
        for _ in range(50):
            _produce(first, 50_000)
        beginnings = [
            b"",  # sends nothing
            struct.pack(">i", 60_000),  # a small request, byte by byte
            struct.pack(">i", 900_000) + b"\0\0\0\x09",  # a larger one
            struct.pack(">i", 104_857_600) + b"\0\0\0\x09",  # the largest that is allowed
            _framed(first.frame(_fetch(0, 1 << 20), 11)) * 3,  # wants a megabyte three times and reads nothing of it
            _framed(first.frame(MetadataRequest(topics=None), 9)) * 20,  # wants many answers and reads none
            _framed(first.frame(_fetch(2**40, 1 << 20), 11)) + _framed(first.frame(_fetch(1, 100), 11)),
        ]
        slow: list[tuple[socket.socket, bool]] = []
        with Client(broker.bootstrap) as client:
            client.wait(_EXCHANGES)
            before_kb = _resident_kb(broker.pid)
            try:
                for number in range(CONNECTIONS):
                    connection = _connect(broker)
                    kind = number % len(beginnings)
                    connection.send(beginnings[kind])
                    slow.append((connection, kind in (1, 2, 3)))
                    if number % _AT_ONCE == 0:
                        # Else the queue of connections to be accepted overflows, and the system tries again a second
                        # later.
                        client.wait(1)
                for _ in range(_ROUNDS):
                    for connection, adds_bytes in slow:
                        if adds_bytes:
                            connection.send(b"\0")
                    client.wait(_EXCHANGES)
                grown_kb = _resident_kb(broker.pid) - before_kb
                print(f"\n{CONNECTIONS} connections: {grown_kb / 1024:.1f} MB, {grown_kb / CONNECTIONS:.1f} KB each")
                assert grown_kb < _MAX_KB + _MAX_KB_EACH * CONNECTIONS
            finally:
                for connection, _ in slow:
                    connection.close()
            client.wait(_EXCHANGES)
        assert "Traceback" not in broker.log
        assert broker.stop() == 0
