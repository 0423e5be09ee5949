"""Sends frames to a broker over many connections at once, as a hostile client would. It ignores the answers, sends
before they arrive, disconnects without warning, and connects again."""

from __future__ import annotations

import random
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator

_AT_ONCE = 64
_FRAMES_EACH = 20
_PATIENCE_SECONDS = 0.25
_RESET = struct.pack("ii", 1, 0)  # closing sends RST: no port of ours waits for a minute


class _One:
    """A connection that sends frames as answers arrive. It ends when the broker closes it, when it is silent too long,
    or when it has sent enough."""

    __slots__ = ("left", "since", "sock", "unsent")

    def __init__(self, address: tuple[str, int], left: int, opening: bytes) -> None:
        self.sock = socket.create_connection(address, 20)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.left = left
        self.since = time.monotonic()
        self.unsent = opening


def send_all(
    bootstrap: str,
    frames: Iterator[bytes],
    source: random.Random,
    opening: Callable[[random.Random], bytes] = lambda _: b"",
) -> Counter[str]:
    """Sends all frames. Returns the number of connections by the way that they ended, and the number of answers.
    `opening` makes the first bytes of a connection."""
    host, _, port = bootstrap.rpartition(":")
    address = (host, int(port))
    ended: Counter[str] = Counter()
    poll = select.epoll()
    ones: dict[int, _One] = {}
    more = True

    def send(one: _One) -> None:
        nonlocal more
        data = one.unsent
        pieces = [data] if data else []
        if not data:
            for _ in range(source.choice((1, 1, 1, 2, 5))):
                frame = next(frames, None)
                if frame is None:
                    more = False
                    break
                one.left -= 1
                pieces.append(frame)
        data = b"".join(pieces)
        if len(data) > 1 and source.random() < 0.05:
            cut = source.randrange(1, len(data))
            one.unsent = data[cut:] + one.unsent
            data = data[:cut]
        else:
            one.unsent = b""
        try:
            sent = one.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            end(one, "closed by the broker")
            return
        one.unsent = data[sent:] + one.unsent
        poll.modify(one.sock.fileno(), select.EPOLLIN | (select.EPOLLOUT if one.unsent else 0))

    def end(one: _One, how: str) -> None:
        ended[how] += 1
        number = one.sock.fileno()
        if number in ones:
            poll.unregister(number)
            del ones[number]
        one.sock.close()

    try:
        while more or ones:
            while more and len(ones) < _AT_ONCE:
                one = _One(address, source.randrange(1, _FRAMES_EACH), opening(source))
                ones[one.sock.fileno()] = one
                poll.register(one.sock.fileno(), select.EPOLLIN)
                send(one)
            for number, events in poll.poll(0.05):
                found = ones.get(number)
                if found is None:
                    continue
                if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                    try:
                        data = found.sock.recv(1 << 16)
                    except BlockingIOError:
                        continue
                    except OSError:
                        data = b""
                    if not data:
                        end(found, "closed by the broker")
                        continue
                    ended["answers read"] += 1
                    found.since = time.monotonic()
                    if found.left <= 0 or not more:
                        end(found, "left by us")
                        continue
                send(found)
            now = time.monotonic()
            for one in [one for one in ones.values() if now - one.since > _PATIENCE_SECONDS]:
                end(one, "no answer in time")
    finally:
        for one in list(ones.values()):
            one.sock.close()
        poll.close()
    return ended
