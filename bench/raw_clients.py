"""Clients that cost next to nothing: requests encoded beforehand, sent over bare sockets, answers parsed no further
than their error code.

Both brokers get the same bytes: Produce and Fetch by topic name, in versions that each has (9 and 12). A loop here
costs about 6 us a request.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from jesenska.records.encode import encode_batch
from jesenska.wire.codec import decode, encode
from jesenska.wire.headers import read_response_head, request_head
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from jesenska.wire.registry import APIS

Answer = TypeVar("Answer", bound=Message)
PRODUCE_VERSION, FETCH_VERSION = 9, 12
#: Apache Kafka 4.3.1 refuses more in one request (POLICY_VIOLATION from about ten thousand on).
_PARTITIONS_AT_ONCE = 5_000
_NO_ERROR = b"\0\0"


def frame(request: Message, version: int) -> bytes:
    """A request with its length prefix."""
    api = APIS[request.api_key]
    body = bytes(request_head(api.key, version, 1, "bench", api.request_header_version(version))) + encode(
        request, version
    )
    return struct.pack(">i", len(body)) + body


def connect(bootstrap: str, seconds: float | None = 120.0) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)), seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket, begun: bytes = b"") -> bytes:
    """The rest of an answer, its length included."""
    found = begun
    while len(found) < 4 or len(found) < 4 + int.from_bytes(found[:4], "big"):
        piece = connection.recv(1 << 20)
        if not piece:
            raise SystemExit("the broker has closed a connection in mid-row")
        found += piece
    return found


def ask(connection: socket.socket, request: Message, version: int, response: type[Answer]) -> Answer:
    connection.sendall(frame(request, version))
    view = memoryview(receive(connection))[4:]
    _, position = read_response_head(view, APIS[response.api_key].response_header_version(version))
    answer: Any = decode(response, version, view[position:])
    return answer  # type: ignore[no-any-return]


def produce_frame(topic: str, partition: int, acks: int, size: int = 100) -> bytes:
    """One record of `size` bytes in a batch of its own."""
    batch = encode_batch([(int(time.time() * 1000), None, bytes(size), ())])
    data = [ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=partition, records=batch)])]
    return frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data), PRODUCE_VERSION)


def fetch_frame(topic: str, partition: int, offset: int) -> bytes:
    """A fetch of up to 1 MB from `offset` on, or of the first record that comes."""
    wanted = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return frame(
        FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=[wanted])]),
        FETCH_VERSION,
    )


def error_position(topic: str) -> int:
    """The position of the error code in the answer to `produce_frame`: after length, correlation id, tags, one topic,
    its name, one partition, its index."""
    return 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4


def check(answer: bytes, topic: str) -> int:
    """The base offset; ends the run if the broker has refused the record."""
    view = memoryview(answer)[4:]
    _, position = read_response_head(view, 1)
    partition = decode(ProduceResponse, PRODUCE_VERSION, view[position:]).responses[0].partition_responses[0]
    if partition.error_code:
        raise SystemExit(f"the broker answers {partition.error_code} to a record for {topic}")
    return int(partition.base_offset)


def one_in_flight(bootstrap: str, topic: str, frames: Sequence[bytes], connections: int, requests: int) -> float:
    """Sends `requests` frames, in turn, over `connections` with one request in flight on each; returns the seconds."""
    at = error_position(topic)
    sockets = [connect(bootstrap) for _ in range(connections)]
    by_number = {connection.fileno(): connection for connection in sockets}
    poll = select.epoll()
    for connection in sockets:
        poll.register(connection, select.EPOLLIN)
    count = len(frames)
    try:
        sent = done = 0
        begun = time.perf_counter()
        for connection in sockets[:requests]:
            connection.send(frames[sent % count])
            sent += 1
        while done < requests:
            for number, _ in poll.poll(60):
                connection = by_number[number]
                data = connection.recv(4096)
                if len(data) < 4 or len(data) != 4 + int.from_bytes(data[:4], "big"):
                    data = receive(connection, data)
                if data[at : at + 2] != _NO_ERROR:
                    check(data, topic)
                done += 1
                if sent < requests:
                    connection.send(frames[sent % count])
                    sent += 1
        return time.perf_counter() - begun
    finally:
        poll.close()
        for connection in sockets:
            connection.close()


def produce_latencies(bootstrap: str, topic: str, acks: int, count: int) -> list[float]:
    """One record after the other on one connection: milliseconds from sending each to its answer."""
    sending = produce_frame(topic, 0, acks)
    found = []
    with connect(bootstrap) as connection:
        check(_exchange(connection, sending), topic)
        for _ in range(count):
            begun = time.perf_counter()
            answer = _exchange(connection, sending)
            found.append((time.perf_counter() - begun) * 1000)
            if answer[error_position(topic) :][:2] != _NO_ERROR:
                check(answer, topic)
    return found


def _exchange(connection: socket.socket, sending: bytes) -> bytes:
    connection.sendall(sending)
    return receive(connection)


def end_to_end_latencies(bootstrap: str, topic: str, acks: int, count: int) -> list[float]:
    """One record after the other, each waited for by a fetch on a second connection: milliseconds from sending it to
    the fetch's answer."""
    sending = produce_frame(topic, 0, acks)
    found = []
    with connect(bootstrap) as producer, connect(bootstrap) as consumer:
        offset = check(_exchange(producer, sending), topic) + 1
        for _ in range(count):
            consumer.sendall(fetch_frame(topic, 0, offset))
            time.sleep(0.001)  # so that the fetch waits at the broker, as a consumer's does
            begun = time.perf_counter()
            producer.sendall(sending)
            answer = receive(consumer)
            found.append((time.perf_counter() - begun) * 1000)
            offset = check(receive(producer), topic) + 1
            view = memoryview(answer)[4:]
            given = decode(FetchResponse, FETCH_VERSION, view[5:]).responses[0].partitions[0]
            if given.error_code or not given.records:
                raise SystemExit(
                    f"the broker answers {given.error_code} to a fetch that waited for a record, which should have come"
                )
    return found


class Repeated:
    """Sends a request every few milliseconds from its own thread during other work, and waits for each answer, which
    `check_answer` checks."""

    def __init__(
        self, bootstrap: str, request: bytes, every_ms: float, check_answer: Callable[[bytes], object]
    ) -> None:
        self.latencies_ms: list[float] = []
        self._connection = connect(bootstrap)
        self._request = request
        self._every_s = every_ms / 1000
        self._check_answer = check_answer
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ends.wait(self._every_s):
            begun = time.perf_counter()
            self._check_answer(_exchange(self._connection, self._request))
            self.latencies_ms.append((time.perf_counter() - begun) * 1000)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._connection.close()


class Probe(Repeated):
    """Asks for ApiVersions, to measure how long a small request waits."""

    def __init__(self, bootstrap: str, every_ms: float = 5.0) -> None:
        asking = frame(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3)
        super().__init__(bootstrap, asking, every_ms, lambda answer: None)


def create_topic(bootstrap: str, topic: str, partitions: int) -> float:
    """Seconds until every partition of a new topic has a leader."""
    begun = time.perf_counter()
    with connect(bootstrap, 600.0) as connection:
        asked = CreateTopicsRequestTopic(
            name=topic, num_partitions=min(partitions, _PARTITIONS_AT_ONCE), replication_factor=1
        )
        answer = ask(
            connection, CreateTopicsRequest(topics=[asked], timeout_ms=600_000), 5, CreateTopicsResponse
        ).topics[0]
        if answer.error_code:
            raise SystemExit(
                f"the broker answers {answer.error_code} ({answer.error_message}) to creating {topic} with "
                f"{partitions} partitions"
            )
        for count in range(2 * _PARTITIONS_AT_ONCE, partitions + _PARTITIONS_AT_ONCE, _PARTITIONS_AT_ONCE):
            more = CreatePartitionsRequestTopic(name=topic, count=min(count, partitions), assignments=None)
            added = ask(
                connection, CreatePartitionsRequest(topics=[more], timeout_ms=600_000), 1, CreatePartitionsResponse
            ).results[0]
            if added.error_code:
                raise SystemExit(
                    f"the broker answers {added.error_code} ({added.error_message}) to {count} partitions for {topic}"
                )
    wait_for_leaders(bootstrap, topic, partitions)
    return time.perf_counter() - begun


def wait_for_leaders(bootstrap: str, topic: str, partitions: int, seconds: float = 600.0) -> None:
    """Returns when each partition has a leader that takes requests: the metadata say so and the last one answers a
    fetch."""
    ends = time.monotonic() + seconds
    probe = FetchRequestTopic(
        topic=topic,
        partitions=[FetchRequestPartition(partition=index, partition_max_bytes=1) for index in range(partitions)],
    )
    with connect(bootstrap, seconds) as connection:
        while time.monotonic() < ends:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            found = ask(connection, asked, 8, MetadataResponse).topics[0]
            if len(found.partitions) == partitions and all(item.leader_id >= 0 for item in found.partitions):
                answer = ask(
                    connection, FetchRequest(max_wait_ms=0, min_bytes=0, topics=[probe]), FETCH_VERSION, FetchResponse
                )
                if not any(item.error_code for given in answer.responses for item in given.partitions):
                    return
            time.sleep(0.01)
    raise SystemExit(f"not every partition of {topic} has a leader after {seconds:g} s")
