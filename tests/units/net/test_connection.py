from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import weakref
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.limits import FRAMES_PER_TURN, KEPT_REQUEST_BUFFERS, UNFINISHED_REQUESTS_BYTES
from jesenska.base.regions import FileRegion
from jesenska.net.connection import FramedConnection, ReadBuffer
from tests.profiles import examples


class _File:
    """An open file that counts its holders."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR)
        self.holders = 0

    def fileno(self) -> int:
        return self._fd

    def acquire(self) -> None:
        self.holders += 1

    def release(self) -> None:
        self.holders -= 1

    def close(self) -> None:
        os.close(self._fd)


class _Server:
    """One end of a socket pair as a framed connection that keeps its frames; the test has the other end."""

    def __init__(
        self, *, max_frame_bytes: int = 100_000_000, buffer: ReadBuffer | None = None, pause: bool = False
    ) -> None:
        ours, self.peer = socket.socketpair()
        self.frames: list[bytes] = []
        self.closed_with: str | None = None
        self.drained = asyncio.Event()
        self.pause = pause
        self._arrived = asyncio.Event()
        self.connection = FramedConnection(
            asyncio.get_running_loop(),
            ours,
            buffer or ReadBuffer(4096),
            max_frame_bytes,
            self._frame,
            self._closed,
            self.drained.set,
        )
        self.peer.setblocking(False)

    def _frame(self, view: memoryview) -> bool:
        self.frames.append(bytes(view))
        self._arrived.set()
        return not self.pause

    def _closed(self, reason: str) -> None:
        self.closed_with = reason
        self._arrived.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.frames) < count and self.closed_with is None:
                self._arrived.clear()
                await self._arrived.wait()

    async def until_closed(self) -> str:
        async with asyncio.timeout(10):
            while self.closed_with is None:
                self._arrived.clear()
                await self._arrived.wait()
        return self.closed_with

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.peer, data)

    async def hear(self, count: int) -> bytes:
        got = b""
        async with asyncio.timeout(10):
            while len(got) < count:
                piece = await asyncio.get_running_loop().sock_recv(self.peer, 1 << 16)
                if not piece:
                    break
                got += piece
        return got

    def end(self) -> None:
        self.connection.close()
        self.peer.close()


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


@given(
    payloads=st.lists(st.binary(max_size=9000), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 6000), max_size=12),
)
@settings(max_examples=examples(0.4))
def test_frames_arrive_whole_and_in_order_however_the_bytes_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    async def scenario() -> None:
        server = _Server(buffer=ReadBuffer(2048))
        stream = b"".join(map(_framed, payloads))
        position = 0
        for cut in cuts:
            await server.say(stream[position : position + cut])
            position += cut
            await asyncio.sleep(0)
        await server.say(stream[position:])
        await server.until(len(payloads))
        assert server.frames == payloads
        server.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("length", [-1, -(2**31), 1001])
def test_a_length_that_is_negative_or_over_the_limit_closes_the_connection(length: int) -> None:
    async def scenario() -> None:
        server = _Server(max_frame_bytes=1000)
        await server.say(struct.pack(">i", length) + b"xxxx")
        assert f"a frame of {length} bytes is not allowed" in await server.until_closed()
        assert server.frames == []
        server.end()

    asyncio.run(scenario())


def test_a_buffer_comes_back_when_the_last_view_of_it_has_gone() -> None:
    buffers = ReadBuffer(4096)
    first = buffers.take(400_000, 10)
    whole = first.obj
    kept = first[4:400_000][10:]
    buffers.give_back(first)
    del first
    second = buffers.take(400_000, 10)
    assert second.obj is not whole
    del kept
    third = buffers.take(400_000, 10)
    assert third.obj is whole
    assert len(third) == len(second) == 1024 * 1024
    assert buffers.lent_bytes == 2 * 1024 * 1024


def test_buffers_whose_views_stay_do_not_keep_free_ones_from_being_used_again() -> None:
    buffers = ReadBuffer(4096)
    viewed = [buffers.take(400_000, 10) for _ in range(KEPT_REQUEST_BUFFERS + 1)]
    for buffer in viewed:
        buffers.give_back(buffer)
    free = buffers.take(400_000, 10)
    whole = free.obj
    assert all(buffer.obj is not whole for buffer in viewed)
    for _ in range(3):
        buffers.give_back(free)
        del free
        free = buffers.take(400_000, 10)
        assert free.obj is whole


def test_only_so_many_buffers_are_kept() -> None:
    buffers = ReadBuffer(4096)
    taken = [buffers.take(400_000, 10) for _ in range(KEPT_REQUEST_BUFFERS + 2)]
    all_of_them = [buffer.obj for buffer in taken]
    while taken:
        buffers.give_back(taken.pop(0))
    assert buffers.lent_bytes == 0
    again = [buffers.take(400_000, 10).obj for _ in all_of_them]
    assert sum(any(whole is old for old in all_of_them) for whole in again) == KEPT_REQUEST_BUFFERS


def test_thousands_of_lengths_alone_allocate_next_to_nothing_and_frames_still_arrive() -> None:
    async def scenario() -> None:
        buffer = ReadBuffer(4096)
        many = [_Server(buffer=buffer) for _ in range(300)]
        for server in many:
            await server.say(struct.pack(">i", 900_000) + b"x" * 10)
        async with asyncio.timeout(10):
            while not all(server.connection._filled == 14 for server in many):
                await asyncio.sleep(0)
        assert buffer.lent_bytes <= UNFINISHED_REQUESTS_BYTES + 300 * 1024
        assert buffer.lent_bytes == sum(len(server.connection._own or b"") for server in many)
        last = many[-1]
        await last.say(b"x" * 899_990)
        await last.until(1)
        assert last.frames == [b"x" * 900_000]
        for server in many:
            server.end()
        assert buffer.lent_bytes == 0

    asyncio.run(scenario())


def test_a_length_alone_allocates_only_the_first_piece() -> None:
    async def scenario() -> None:
        server = _Server(max_frame_bytes=2**31 - 1)
        await server.say(struct.pack(">i", 2**30) + b"x" * 10)
        for _ in range(5):
            await asyncio.sleep(0)
        own = server.connection._own
        assert own is not None
        assert len(own) <= 64 * 1024
        server.end()

    asyncio.run(scenario())


def test_a_paused_connection_hands_out_nothing_until_it_is_resumed() -> None:
    async def scenario() -> None:
        server = _Server(pause=True)
        await server.say(_framed(b"one") + _framed(b"two") + _framed(b"three"))
        await server.until(1)
        await server.say(_framed(b"four"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert server.frames == [b"one"]
        server.pause = False
        server.connection.resume()
        await server.until(4)
        assert server.frames == [b"one", b"two", b"three", b"four"]
        server.end()

    asyncio.run(scenario())


def test_thousands_of_tiny_frames_in_one_read_are_handled_in_several_turns() -> None:
    async def scenario() -> None:
        server = _Server(buffer=ReadBuffer())
        count = 5 * FRAMES_PER_TURN + 7
        await server.say(_framed(b"x") * count)
        seen = [0]
        while seen[-1] < count:
            await asyncio.sleep(0)
            if len(server.frames) != seen[-1]:
                seen.append(len(server.frames))
        assert [after - before for before, after in pairwise(seen)] == [FRAMES_PER_TURN] * 5 + [7]
        server.end()

    asyncio.run(scenario())


class _Echo(_Server):
    """Answers each frame with itself, `times` times."""

    def __init__(
        self, *, times: int = 1, kind: int = socket.SOCK_STREAM, max_frame_bytes: int = 100_000, send_buffer: int = 0
    ) -> None:
        ours, self.peer = socket.socketpair(socket.AF_UNIX, kind)
        if send_buffer:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        self.frames = []
        self.closed_with = None
        self.times = times
        self.pause = False
        self._arrived = asyncio.Event()
        self.connection = FramedConnection(
            asyncio.get_running_loop(), ours, ReadBuffer(), max_frame_bytes, self._frame, self._closed, self._go_on
        )
        self.peer.setblocking(False)

    def _frame(self, view: memoryview) -> bool:
        super()._frame(view)
        answer = bytearray(_framed(bytes(view) * self.times))
        return self.connection.send([answer], len(answer))

    def _go_on(self) -> None:
        self.connection.resume()


@pytest.mark.skipif(not hasattr(socket, "SOCK_SEQPACKET"), reason="what is one write can be seen on Linux only")
def test_answers_to_the_frames_of_one_read_leave_in_one_write() -> None:
    async def scenario() -> None:
        server = _Echo(kind=socket.SOCK_SEQPACKET)
        three = b"".join(map(_framed, (b"one", b"two", b"three")))
        await server.say(three)
        await server.until(3)
        async with asyncio.timeout(10):
            assert await asyncio.get_running_loop().sock_recv(server.peer, 1000) == three
        await server.say(_framed(b"four"))
        async with asyncio.timeout(10):
            assert await asyncio.get_running_loop().sock_recv(server.peer, 1000) == _framed(b"four")
        server.end()

    asyncio.run(scenario())


def test_a_bad_frame_takes_no_answer_from_the_frames_before_it() -> None:
    async def scenario() -> None:
        server = _Echo()
        await server.say(_framed(b"one") + _framed(b"two") + struct.pack(">i", -5))
        assert "-5" in await server.until_closed()
        assert await server.hear(1000) == _framed(b"one") + _framed(b"two")
        server.end()

    asyncio.run(scenario())


def test_a_peer_that_does_not_take_its_answers_is_not_read_until_it_does() -> None:
    async def scenario() -> None:
        server = _Echo(times=100, send_buffer=8192)
        frames = [b"%06d" % number * 20 for number in range(400)]
        sending = asyncio.ensure_future(server.say(b"".join(map(_framed, frames))))
        await server.until(1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(server.frames) < 20
        assert server.connection.transport.unsent_bytes < 100_000
        expected = b"".join(_framed(frame * 100) for frame in frames)
        assert await server.hear(len(expected)) == expected
        await sending
        assert server.frames == frames
        server.end()

    asyncio.run(scenario())


def test_frames_too_large_for_the_shared_buffer_keep_their_own_while_the_handler_says_so() -> None:
    """Their buffers are used again, but not while there is a view of them."""

    async def scenario() -> None:
        server = _Server()
        kept: list[memoryview] = []

        def keep_every_second(view: memoryview) -> bool:
            server.frames.append(bytes(view))
            if len(server.frames) % 2:
                kept.append(server.connection.keep(view))
            server._arrived.set()
            return True

        server.connection._on_frame = keep_every_second
        frames = [bytes([number]) * (70_000 + 30_000 * number) for number in range(20)]
        sending = asyncio.ensure_future(server.say(b"".join(map(_framed, frames))))
        await server.until(20)
        await sending
        assert server.frames == frames
        assert [bytes(view) for view in kept] == frames[::2]
        server.end()

    asyncio.run(scenario())


def test_the_end_of_the_stream_closes_without_a_reason() -> None:
    async def scenario() -> None:
        server = _Server()
        server.peer.close()
        assert await server.until_closed() == ""
        server.end()

    asyncio.run(scenario())


@pytest.mark.parametrize("sizes", [[10], [200_000], [10, 100, 70_000, 5, 300_000], [70_000, 70_000]])
def test_buffers_and_file_regions_leave_in_order_and_regions_are_released(tmp_path: Path, sizes: list[int]) -> None:
    async def scenario() -> None:
        path = tmp_path / "log"
        content = os.urandom(sum(sizes))
        path.write_bytes(content)
        file = _File(path)
        server = _Server()
        pieces: list[bytes | FileRegion] = []
        expected = b""
        position = 0
        for size in sizes:
            pieces += [b"head", FileRegion(file, position, size)]
            expected += b"head" + content[position : position + size]
            position += size
        assert file.holders == len(sizes)
        done = server.connection.send(pieces, len(expected))
        assert await server.hear(len(expected)) == expected
        if not done:
            await asyncio.wait_for(server.drained.wait(), 10)
        assert file.holders == 0
        server.end()
        file.close()

    asyncio.run(scenario())


def test_a_file_that_was_truncated_under_an_answer_closes_the_connection(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "log"
        path.write_bytes(bytes(200_000))
        file = _File(path)
        server = _Server()
        region = FileRegion(file, 0, 200_000)
        os.truncate(path, 1000)
        server.connection.send([b"head", region], 200_004)
        assert "truncated" in await server.until_closed()
        assert file.holders == 0
        server.end()
        file.close()

    asyncio.run(scenario())


def test_a_closed_connection_leaves_nothing_for_the_collector_of_cycles() -> None:
    async def run() -> None:
        server = _Server()
        known = weakref.ref(server)
        server.connection.close()
        server.peer.close()
        del server
        assert known() is None

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


def test_closing_lets_go_of_what_has_not_been_sent(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "log"
        path.write_bytes(bytes(8_000_000))
        file = _File(path)
        server = _Server()
        assert not server.connection.send([FileRegion(file, 0, 8_000_000)], 8_000_000)
        assert file.holders == 1
        server.connection.close("enough")
        assert file.holders == 0
        assert server.connection.send([FileRegion(file, 0, 10)], 10)
        assert file.holders == 0
        server.end()
        file.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [5, 70_000, 200_000])
def test_a_frame_over_a_megabyte_arrives_whole_however_much_the_first_read_brings(first: int) -> None:
    async def scenario() -> None:
        server = _Server(buffer=ReadBuffer(256 * 1024))
        payload = os.urandom(3_000_000)
        stream = _framed(payload)
        await server.say(stream[:first])
        for _ in range(10):
            await asyncio.sleep(0)
        await server.say(stream[first:])
        await server.until(1)
        assert server.frames == [payload]
        server.end()

    asyncio.run(scenario())


class _PutsBack(_Server):
    """Accepts each frame at the second attempt."""

    def _frame(self, view: memoryview) -> bool:
        super()._frame(view)
        if self.frames.count(bytes(view)) == 1:
            return self.connection.put_back()
        return True


@pytest.mark.parametrize(
    "buffer_bytes", [4096, 16], ids=["frames in the shared buffer", "frames in buffers of their own"]
)
def test_a_frame_that_is_put_back_is_handled_again_after_the_pause(buffer_bytes: int) -> None:
    async def scenario() -> None:
        server = _PutsBack(buffer=ReadBuffer(buffer_bytes))
        frames = [b"%020d" % number for number in range(3)]
        await server.say(b"".join(map(_framed, frames)))
        for number in range(3):
            await server.until(2 * number + 1)
            assert len(server.frames) == 2 * number + 1
            server.connection.resume()
        await server.until(6)
        assert server.frames == [frame for frame in frames for _ in range(2)]
        server.end()

    asyncio.run(scenario())
