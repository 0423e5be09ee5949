"""Clients of a ZooKeeper server that cost nearly nothing: frames made beforehand, answers counted by their bytes, all
connections in one epoll loop.

Every answer of a row has the same length, so that nothing is parsed while it runs; afterwards each answer's error must
be 0.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from jesenska.metadata.tree_operations import OPEN_ACL
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.frames import framed
from jesenska.metadata.zookeeper.messages import (
    ConnectRequest,
    CreateRequest,
    Message,
    OpCode,
    RequestHeader,
    SetDataRequest,
    WatchableRequest,
)

_REPLY_BYTES = 4 + 16
_STAT_BYTES = 68
_ERROR_AT = 4 + 12
_RECEIVE_BYTES = 1 << 18


class Work(NamedTuple):
    """The requests of a row: `frames(connection, first, count)` are requests as bytes, `answer_bytes` is the length of
    each answer."""

    frames: Callable[[int, int, int], bytes]
    answer_bytes: int


def request(kind: OpCode, *body: Message) -> bytes:
    return framed(messages.write(bytearray(), RequestHeader(1, kind), *body))


def create(path: str, data: bytes = b"") -> bytes:
    return request(OpCode.CREATE, CreateRequest(path, data, OPEN_ACL, 0))


def creating(parent: str, data: bytes) -> Work:
    """New nodes below `parent/<connection>`."""
    mark = "0123456789"
    heads: dict[int, tuple[bytes, bytes]] = {}

    def frames(connection: int, first: int, count: int) -> bytes:
        if connection not in heads:
            before, _, behind = create(f"{parent}/{connection:02d}/{mark}", data).partition(mark.encode())
            heads[connection] = (before, behind)
        before, behind = heads[connection]
        return (b"%b%%010d%b" % (before.replace(b"%", b"%%"), behind.replace(b"%", b"%%")) * count) % tuple(
            range(first, first + count)
        )

    return Work(frames, _REPLY_BYTES + 4 + len(f"{parent}/00/{mark}"))


def _over(paths_of: Callable[[int], list[str]], one: Callable[[str], bytes], answer_bytes: int) -> Work:
    """The same request for each of some nodes in turn."""
    made: dict[int, list[bytes]] = {}

    def frames(connection: int, first: int, count: int) -> bytes:
        if connection not in made:
            made[connection] = [one(path) for path in paths_of(connection)]
        own = made[connection]
        return b"".join([own[number % len(own)] for number in range(first, first + count)])

    return Work(frames, answer_bytes)


def setting(paths_of: Callable[[int], list[str]], data: bytes) -> Work:
    return _over(
        paths_of, lambda path: request(OpCode.SET_DATA, SetDataRequest(path, data, -1)), _REPLY_BYTES + _STAT_BYTES
    )


def getting(paths_of: Callable[[int], list[str]], data: bytes) -> Work:
    return _over(
        paths_of,
        lambda path: request(OpCode.GET_DATA, WatchableRequest(path, False)),
        _REPLY_BYTES + 4 + len(data) + _STAT_BYTES,
    )


class Client:
    """One session."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 60)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(framed(messages.write(bytearray(), ConnectRequest(0, 0, 30_000, 0, bytes(16)))))
        self._answer()

    def _answer(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise SystemExit("the server closed a connection")
            data += more
        return data

    def ask(self, frames: list[bytes]) -> None:
        """Sends the frames in some rounds, and waits for an answer without error to each."""
        for start in range(0, len(frames), 100):
            some = frames[start : start + 100]
            self.sock.sendall(b"".join(some))
            for _ in some:
                if any(self._answer()[12:16]):
                    raise SystemExit("the server refused a request")

    def close(self) -> None:
        self.sock.close()


class Told(NamedTuple):
    """`answers` came in the time; `answers_in_all` has the late ones, too."""

    answers: int
    answers_in_all: int
    seconds: float
    client_cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.answers / self.seconds


def run(clients: list[Client], work: Work, window: int, seconds: float) -> Told:
    """Keeps `window` requests of each client in flight for `seconds`; then waits for the remaining answers, which do
    not count."""
    size = work.answer_bytes
    poll = select.epoll()
    numbers = {client.sock.fileno(): number for number, client in enumerate(clients)}
    sent = [0] * len(clients)
    received = [bytearray() for _ in clients]
    half = (window + 1) // 2
    answered_at_end = 0
    for client in clients:
        poll.register(client.sock.fileno(), select.EPOLLIN)
    begun, cpu_begun = time.perf_counter(), time.process_time()
    ends = begun + seconds
    ended = 0.0
    cpu_seconds = 0.0
    for number, client in enumerate(clients):
        client.sock.sendall(work.frames(number, 0, window))
        sent[number] = window
    while True:
        events = poll.poll(60)
        if not events:
            raise SystemExit("the server stands still")
        now = time.perf_counter()
        if now >= ends and not ended:
            ended, cpu_seconds = now, time.process_time() - cpu_begun
            answered_at_end = sum(len(data) // size for data in received)
        for handle, _ in events:
            number = numbers[handle]
            sock, data = clients[number].sock, received[number]
            more = sock.recv(_RECEIVE_BYTES)
            if not more:
                raise SystemExit("the server closed a connection")
            data += more
            in_flight = sent[number] - len(data) // size
            if not ended and window - in_flight >= half:
                sock.sendall(work.frames(number, sent[number], window - in_flight))
                sent[number] += window - in_flight
        if ended and all(len(data) >= sent[number] * size for number, data in enumerate(received)):
            break
    poll.close()
    for data in received:
        if len(data) % size or any(any(data[_ERROR_AT + at :: size]) for at in range(4)):
            raise SystemExit("an answer is not what it should be")
    return Told(answered_at_end, sum(sent), ended - begun, cpu_seconds)
