"""Clients of before 0.11 that cost next to nothing: requests encoded beforehand, over bare sockets, answers parsed no
further than necessary.

Values are random letters of one size, as Kafka's perf tools send them, without keys. So every message of a set is as
long as the others and a drain finds the last one without walking over all; compressed, it walks over the outer
messages only.
"""

from __future__ import annotations

import random
import select
import socket
import string
import struct
import time
from collections.abc import Sequence

from tests.units.records.old_messages import message_set

from bench.raw_clients import connect, frame, receive
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic

#: The default sizes of a Java producer's batch, and of an old consumer's fetch of a partition.
BATCH_BYTES, FETCH_BYTES = 16_384, 1 << 20
#: Fetch 1 to 3 begin their answers with the throttle time; there is nothing else between the correlation id and the
#: topics.
_THROTTLE_BYTES = (0, 4, 4, 4)
_MESSAGE_BYTES = (26, 34)
_LETTERS = string.ascii_uppercase.encode()
_SEED, _DIFFERENT_BATCHES = 8, 24
BATCHES_VERSION = 7


def records_in_a_batch(size: int) -> int:
    return max(1, BATCH_BYTES // (size + 20))


def produce_frames(topic: str, partitions: int, size: int, codec: Codec, version: int) -> list[bytes]:
    """Requests with one batch each (message sets below version 3), partitions in turn."""
    chance, now, count = random.Random(_SEED), int(time.time() * 1000), records_in_a_batch(size)
    frames = []
    for number in range(_DIFFERENT_BATCHES):
        values = [bytes(chance.choices(_LETTERS, k=size)) for _ in range(count)]
        if version < 3:
            records: bytes | bytearray = message_set([(now, None, value) for value in values], int(version == 2), codec)
        else:
            records = encode_batch([(now, None, value, ()) for value in values], codec)
        data = ProduceRequestTopic(
            name=topic, partition_data=[ProduceRequestPartition(index=number % partitions, records=bytes(records))]
        )
        frames.append(frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]), version))
    return frames


def produce(bootstrap: str, topic: str, frames: Sequence[bytes], connections: int, requests: int) -> float:
    """Sends `requests` frames in turn, one in flight on each connection; returns the seconds."""
    at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    sockets = [connect(bootstrap) for _ in range(connections)]
    by_number = {connection.fileno(): connection for connection in sockets}
    poll = select.epoll()
    try:
        for connection in sockets:
            poll.register(connection, select.EPOLLIN)
        sent = done = 0
        begun = time.perf_counter()
        for connection in sockets[:requests]:
            connection.sendall(frames[sent % len(frames)])
            sent += 1
        while done < requests:
            for number, _ in poll.poll(60):
                connection = by_number[number]
                answer = receive(connection)
                (code,) = struct.unpack_from(">h", answer, at)
                if code:
                    raise SystemExit(f"the broker answers {code} to a message set for {topic}")
                done += 1
                if sent < requests:
                    connection.sendall(frames[sent % len(frames)])
                    sent += 1
        return time.perf_counter() - begun
    finally:
        poll.close()
        for connection in sockets:
            connection.close()


def _fetch_parts(topic: str, partition: int, version: int) -> tuple[bytes, bytes]:
    """The bytes before and after the offset in a fetch of one partition: the request is encoded once."""
    marker = 0x0123456789ABCDEF
    part = FetchRequestPartition(partition=partition, fetch_offset=marker, partition_max_bytes=FETCH_BYTES)
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[FetchRequestTopic(topic=topic, partitions=[part])]
    )
    before, _, behind = frame(request, version).partition(marker.to_bytes(8, "big"))
    return before, behind


def _next_offset(answer: memoryview, message_bytes: int, codec: Codec) -> int | None:
    """The offset after the last whole message of a set; None without one."""
    found = None
    end = len(answer)
    if not codec:
        # From the end: Apache Kafka cuts the last one, or fills the answer with a message that never ends.
        for last in range(end // message_bytes - 1, -1, -1):
            offset, size = struct.unpack_from(">qi", answer, last * message_bytes)
            if size == message_bytes - 12:
                return int(offset) + 1
        return None
    position = 0
    while end - position >= 12:
        offset, size = struct.unpack_from(">qi", answer, position)
        position += 12 + size
        if position > end:
            break
        found = int(offset) + 1
    return found


class _Reader:
    """Reads one partition over its own connection, one fetch at a time."""

    def __init__(self, bootstrap: str, topic: str, partition: int, version: int, size: int, codec: Codec) -> None:
        self.connection: socket.socket = connect(bootstrap)
        self.offset = 0
        self._parts = _fetch_parts(topic, partition, version)
        self._records_at = 4 + 4 + _THROTTLE_BYTES[version] + 4 + 2 + len(topic) + 4 + 4
        self._message_bytes = _MESSAGE_BYTES[version >= 2] + size
        self._codec = codec
        self._buffer = bytearray(FETCH_BYTES * 2)

    def ask(self) -> None:
        before, behind = self._parts
        self.connection.sendall(before + self.offset.to_bytes(8, "big") + behind)

    def _receive(self, begin: int, end: int) -> None:
        with memoryview(self._buffer) as view:
            while begin < end:
                count = self.connection.recv_into(view[begin:end])
                if not count:
                    raise SystemExit("the broker has closed a connection in mid-row")
                begin += count

    def take(self) -> None:
        """Receives an answer and moves to the offset after it."""
        self._receive(0, 4)
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        if end > len(self._buffer):
            self._buffer += bytes(end - len(self._buffer))
        self._receive(4, end)
        view = memoryview(self._buffer)
        code, _, size = struct.unpack_from(">hqi", view, self._records_at)
        if code:
            raise SystemExit(f"the broker answers {code} to a fetch")
        start = self._records_at + 14
        found = _next_offset(view[start : start + max(0, size)], self._message_bytes, self._codec)
        view.release()
        if found is None:
            raise SystemExit(f"a fetch from {self.offset} on gave no message")
        self.offset = found


def drain(bootstrap: str, topic: str, partitions: int, version: int, size: int, codec: Codec, end: int) -> float:
    """Reads each partition up to `end`, all at once, over its own connection; returns the seconds."""
    readers = {
        reader.connection.fileno(): reader
        for reader in (_Reader(bootstrap, topic, index, version, size, codec) for index in range(partitions))
    }
    poll = select.epoll()
    try:
        for number in readers:
            poll.register(number, select.EPOLLIN)
        waiting = len(readers)
        begun = time.perf_counter()
        for reader in readers.values():
            reader.ask()
        while waiting:
            for number, _ in poll.poll(60):
                reader = readers[number]
                reader.take()
                if reader.offset < end:
                    reader.ask()
                else:
                    waiting -= 1
        return time.perf_counter() - begun
    finally:
        poll.close()
        for reader in readers.values():
            reader.connection.close()
