"""The broker's loop: the behaviour that it must keep of asyncio's, with its own way of calling readers."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from jesenska.net.event_loop import broker_loop


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = broker_loop()
    yield made
    made.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)
    yield one, other
    one.close()
    other.close()


Pair = tuple[socket.socket, socket.socket]


def test_a_reader_is_called_while_there_is_something_to_read(loop: asyncio.AbstractEventLoop, pair: Pair) -> None:
    one, other = pair
    seen: list[bytes] = []

    def readable(name: str) -> None:
        assert asyncio.get_running_loop() is loop
        seen.append(one.recv(1))
        if len(seen) == 3:
            loop.stop()
        assert name == "one"

    loop.add_reader(one, readable, "one")
    other.send(b"abc")
    loop.run_forever()
    assert seen == [b"a", b"b", b"c"]
    assert loop.remove_reader(one)
    assert not loop.remove_reader(one)


def test_the_last_callback_given_is_the_one_called(loop: asyncio.AbstractEventLoop, pair: Pair) -> None:
    one, other = pair
    loop.add_reader(one.fileno(), pytest.fail, "replaced")
    loop.add_reader(one.fileno(), loop.stop)
    other.send(b"x")
    loop.run_forever()
    loop.remove_reader(one.fileno())


def test_a_reader_that_was_taken_away_in_the_same_turn_is_not_called(loop: asyncio.AbstractEventLoop) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    called: list[int] = []

    def readable(index: int) -> None:
        called.append(index)
        for mine, _ in pairs:
            loop.remove_reader(mine)
        loop.call_soon(loop.stop)

    for index, (mine, theirs) in enumerate(pairs):
        loop.add_reader(mine, readable, index)
        theirs.send(b"x")
    loop.run_forever()
    assert len(called) == 1
    for sockets in pairs:
        for sock in sockets:
            sock.close()


def test_a_callback_that_fails_is_logged_and_the_others_go_on(
    loop: asyncio.AbstractEventLoop, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair

    def broken() -> None:
        loop.remove_reader(one)
        loop.call_soon(loop.stop)
        raise ValueError("broken on purpose")

    loop.add_reader(one, broken)
    other.send(b"x")
    with caplog.at_level(logging.ERROR):
        loop.run_forever()
    assert "broken on purpose" in caplog.text


def test_reader_and_writer_of_one_socket(loop: asyncio.AbstractEventLoop, pair: Pair) -> None:
    one, other = pair
    happened: list[str] = []

    def note(what: str) -> None:
        happened.append(what)
        (loop.remove_reader if what == "read" else loop.remove_writer)(one)
        if len(happened) == 2:
            loop.stop()

    loop.add_reader(one, note, "read")
    loop.add_writer(one, note, "write")
    other.send(b"x")
    loop.run_forever()
    assert sorted(happened) == ["read", "write"]


def test_timers_threads_and_streams_work_as_ever(loop: asyncio.AbstractEventLoop, pair: Pair) -> None:
    one, other = pair

    async def main() -> None:
        reader, writer = await asyncio.open_connection(sock=one)
        woken = asyncio.Event()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(woken.set,))
        thread.start()
        await woken.wait()
        thread.join()
        other.send(b"line\n")
        assert await reader.readline() == b"line\n"
        before = loop.time()
        await asyncio.sleep(0.01)
        assert loop.time() - before >= 0.0099
        writer.close()
        await writer.wait_closed()

    loop.run_until_complete(main())
