"""Runs exchanges of hostile clients, hundreds at once on one thread, and counts how they ended."""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.processes.fuzz.logins.exchanges import Exchange
from tests.processes.fuzz.logins.wires import Wants

_AT_ONCE = 128
#: How long an exchange waits for the broker, which may wait for more bytes; and one that must be let in.
_PATIENCE_SECONDS, _LONG_PATIENCE_SECONDS = 0.5, 20.0
_READ_BYTES = 1 << 16
_RESET = struct.pack("ii", 1, 0)


class Sent(NamedTuple):
    """How many exchanges there were by kind and outcome, and the exchanges with a wrong outcome, by number."""

    counts: Counter[str]
    wrong: list[str]


class _Running:
    """One exchange on its connection."""

    __slots__ = (
        "ends",
        "exchange",
        "is_closed",
        "number",
        "patience_seconds",
        "received",
        "since",
        "sock",
        "unsent",
        "wants",
    )

    def __init__(self, number: int, exchange: Exchange, source: random.Random) -> None:
        self.number = number
        self.exchange = exchange
        self.sock = socket.socket()
        # Many addresses of our own, since each has only so many ports.
        self.sock.bind((f"127.0.0.{source.randrange(2, 100)}", 0))
        self.sock.setblocking(False)
        if source.random() < 0.5:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect_ex(exchange.address)
        self.unsent = b""
        self.ends = False
        self.is_closed = False
        self.wants = Wants.NOTHING
        self.received = bytearray()
        self.since = time.monotonic()
        self.patience_seconds = _LONG_PATIENCE_SECONDS if exchange.may_enter else _PATIENCE_SECONDS

    def taken(self) -> bytes | None:
        """What the exchange waits for, if it has come."""
        if self.wants is Wants.NOTHING:
            return b""
        if self.wants is Wants.BYTES:
            found = bytes(self.received)
            self.received.clear()
            return found or None
        if self.wants is Wants.FRAME and len(self.received) >= 4:
            size = 4 + int.from_bytes(self.received[:4], "big")
            if len(self.received) >= size:
                found = bytes(self.received[4:size])
                del self.received[:size]
                return found
        return None


class _Sender:
    def __init__(self, make: Callable[[int], Exchange], numbers: Iterator[int], source: random.Random) -> None:
        self._make, self._numbers, self._source = make, numbers, source
        self._poll = select.epoll()
        self._running: dict[int, _Running] = {}
        self.sent = Sent(Counter(), [])

    def run(self) -> None:
        more = True
        try:
            while more or self._running:
                while more and len(self._running) < _AT_ONCE:
                    number = next(self._numbers, None)
                    if number is None:
                        more = False
                        break
                    self._begin(number)
                for descriptor, events in self._poll.poll(0.05):
                    if (one := self._running.get(descriptor)) is not None:
                        self._serve(one, events)
                now = time.monotonic()
                for one in [one for one in self._running.values() if now - one.since > one.patience_seconds]:
                    self.sent.counts["no end in time"] += 1
                    self._go_on(one, None)
        finally:
            for one in self._running.values():
                one.sock.close()
            self._poll.close()

    def _begin(self, number: int) -> None:
        one = _Running(number, self._make(number), self._source)
        self._running[one.sock.fileno()] = one
        self._poll.register(one.sock.fileno(), select.EPOLLOUT)
        self._go_on(one, b"", is_first=True)

    def _serve(self, one: _Running, events: int) -> None:
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
            try:
                data = one.sock.recv(_READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._closed(one)
                return
            one.received += data
        if events & select.EPOLLOUT and not self._write(one):
            return
        if not one.unsent and (found := one.taken()) is not None:
            self._go_on(one, found)

    def _go_on(self, one: _Running, found: bytes | None, *, is_first: bool = False) -> None:
        """Gives the exchange what it waits for, and takes its next step."""
        while True:
            try:
                step = next(one.exchange.steps) if is_first else one.exchange.steps.send(found)
            except StopIteration as end:
                self._end(one, bool(end.value))
                return
            if one.is_closed:
                # The exchange learns it each time that it asks.
                found = None
                continue
            is_first = False
            one.unsent, one.wants, one.ends = step.data, step.wants, step.ends
            one.since = time.monotonic()
            self._poll.modify(one.sock.fileno(), select.EPOLLOUT | select.EPOLLIN)
            return

    def _write(self, one: _Running) -> bool:
        try:
            if one.unsent:
                one.unsent = one.unsent[one.sock.send(one.unsent) :]
            if not one.unsent:
                if one.ends:
                    one.sock.shutdown(socket.SHUT_WR)
                    one.ends = False
                self._poll.modify(one.sock.fileno(), select.EPOLLIN)
        except BlockingIOError:
            pass
        except OSError:
            self._closed(one)
            return False
        return True

    def _closed(self, one: _Running) -> None:
        one.is_closed = True
        self._go_on(one, None)

    def _end(self, one: _Running, is_let_in: bool) -> None:
        exchange = one.exchange
        self.sent.counts[f"{exchange.kind}: {'let in' if is_let_in else 'refused'}"] += 1
        if exchange.may_enter is not None and exchange.may_enter is not is_let_in:
            self.sent.wrong.append(
                f"exchange {one.number} ({exchange.kind}) was {'let in' if is_let_in else 'refused'}"
            )
        self._poll.unregister(one.sock.fileno())
        del self._running[one.sock.fileno()]
        one.sock.close()


def send_all(make: Callable[[int], Exchange], numbers: Iterator[int], source: random.Random) -> Sent:
    """Runs the exchange of each number."""
    sender = _Sender(make, numbers, source)
    sender.run()
    return sender.sent
