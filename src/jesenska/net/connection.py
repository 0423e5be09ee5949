"""A connection that carries frames: four bytes of length (INT32, big-endian), then that many bytes, in both
directions.

All connections of an event loop read into one shared buffer. A frame that has arrived completely in this buffer is
passed to the handler as a view and parsed without a copy. A frame that has not arrived completely gets its own buffer,
which grows as its bytes arrive. So a peer that sends large lengths without data makes the broker allocate almost no
memory. A view is valid until the handler returns; a handler that needs the frame for longer calls `keep()`.

    open --- handler says "wait" ---> paused --- resume() ---> open
      \\--- end of stream, bad length, failed socket ---> closed

A paused connection reads no more bytes, so TCP stops the peer. In this way the requests of one connection are handled
in order, and a peer that does not read its answers is not served any more.

One read may return several frames. The answers to these frames are held back, and written together after the last
frame: a producer with five requests in flight then costs one system call and is woken once. The number of bytes that
are held back is limited. They are always sent before a later, larger answer."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence

from jesenska.base.limits import (
    FRAMES_PER_TURN,
    HELD_ANSWER_BYTES,
    KEPT_REQUEST_BUFFERS,
    READ_BUFFER_BYTES,
    REQUEST_BUFFER_FIRST_BYTES,
    UNFINISHED_REQUESTS_BYTES,
)
from jesenska.net.transport import Piece, PlainTransport, Transport, TransportFor

_LENGTH = struct.Struct(">i")
#: Frames up to this size in bytes get their whole buffer at once. The buffer of a larger frame starts with
#: REQUEST_BUFFER_FIRST_BYTES and is doubled as bytes arrive.
_ONE_PIECE_BYTES = 1024 * 1024
#: If a frame misses fewer bytes than this, the transport reads them as they come.
_EXPECTED_MIN_BYTES = 16 * 1024
#: The size in bytes of the first buffer of a frame, while the buffers of unfinished frames use much memory.
_FRUGAL_FIRST_BYTES = 1024


class ReadBuffer:
    """The buffer into which all connections of one event loop read, and the separate buffers for unfinished frames.

    A few of the separate buffers are used again, because the kernel must fill each page of a new buffer with zeros. A
    buffer is used again only when no view of its last frame exists any more. A frame gets its whole buffer in advance
    only while the separate buffers are small in total. Above that limit a buffer is at most twice as large as the
    bytes that have arrived, so thousands of lengths without data take almost no memory."""

    __slots__ = ("_kept", "lent_bytes", "view")

    def __init__(self, size_bytes: int = READ_BUFFER_BYTES) -> None:
        self.view = memoryview(bytearray(size_bytes))
        #: The buffers that were given back last. Views of them may still exist.
        self._kept: list[bytearray] = []
        #: Number of bytes in the buffers of unfinished frames.
        self.lent_bytes = 0

    def take(self, wanted_bytes: int, arrived_bytes: int) -> memoryview:
        """Returns a buffer for a frame of `wanted_bytes`, of which `arrived_bytes` have arrived. The buffer is larger
        than `arrived_bytes`. A new buffer is at most as large as the frame; a reused buffer may be larger."""
        if self.lent_bytes + min(wanted_bytes, _ONE_PIECE_BYTES) > UNFINISHED_REQUESTS_BYTES:
            buffer = memoryview(bytearray(min(wanted_bytes, max(2 * arrived_bytes, _FRUGAL_FIRST_BYTES))))
        else:
            size = (
                wanted_bytes
                if wanted_bytes <= _ONE_PIECE_BYTES
                else min(wanted_bytes, max(2 * arrived_bytes, REQUEST_BUFFER_FIRST_BYTES))
            )
            is_whole = REQUEST_BUFFER_FIRST_BYTES < size <= _ONE_PIECE_BYTES
            buffer = memoryview(self._one_piece() if is_whole else bytearray(size))
        self.lent_bytes += len(buffer)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """Takes back a buffer into which no more bytes of a frame will arrive. Views of the buffer may still exist."""
        self.lent_bytes -= len(buffer)
        if len(buffer) == _ONE_PIECE_BYTES:
            whole = buffer.obj
            assert isinstance(whole, bytearray)
            self._kept.append(whole)
            if len(self._kept) > KEPT_REQUEST_BUFFERS:
                del self._kept[0]

    def _one_piece(self) -> bytearray:
        # The buffer that was given back last is most likely still in the processor's cache.
        for place in range(len(self._kept) - 1, -1, -1):
            if _has_no_views(self._kept[place]):
                return self._kept.pop(place)
        return bytearray(_ONE_PIECE_BYTES)


class FramedConnection:
    """Cuts the bytes of a socket into frames and calls `on_frame(view)` for each frame. The handler returns False to
    pause the connection. If the handler has called `put_back()`, it gets the same frame again after the pause.

    `on_closed(reason)` is called once; the reason is empty if the peer closed the connection without an error. A frame
    above `max_frame_bytes` closes the connection. `transport_for` makes the transport; None means a transport without
    encryption.

    With `reads_in_parts`, a large frame is read in large parts, even if its bytes arrive in small pieces. The owner
    must then call `read_on` about once a second if there is no progress."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        buffer: ReadBuffer,
        max_frame_bytes: int,
        on_frame: Callable[[memoryview], bool],
        on_closed: Callable[[str], None],
        on_drained: Callable[[], None] | None = None,
        transport_for: TransportFor | None = None,
        *,
        reads_in_parts: bool = False,
    ) -> None:
        self._loop = loop
        self._buffers = buffer
        self._shared = buffer.view
        self._max_frame_bytes = max_frame_bytes
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._on_drained = on_drained
        make = transport_for or PlainTransport
        self.transport: Transport = make(loop, sock, self._drained, self.close)
        # The bytes of this connection outside of the shared buffer: the beginning of an unfinished frame.
        self._own: memoryview | None = None
        self._filled = 0
        self._wanted = 0  # the frame's size with its length, 0 while that is not known
        self._reads_in_parts = reads_in_parts
        self._expects = False  # the transport was told that many bytes are missing
        self._waiting: memoryview | None = None  # frames that arrived after the one that paused us
        self._paused = False
        self._reads = True  # true while the loop watches the socket for us
        self._is_put_back = False  # the frame being handled is to be handled after the pause
        self._holding = False  # several frames are being handled: what is sent waits for the last of them
        self._held: list[bytearray] = []
        self._held_bytes = 0
        self.closed = False
        loop.add_reader(sock.fileno(), self._readable)

    def limit_frames(self, max_frame_bytes: int) -> None:
        """Sets the largest size of the next frames. A larger frame closes the connection."""
        self._max_frame_bytes = max_frame_bytes

    # --- reading -----------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        if self._paused:
            self._reads = False
            self._loop.remove_reader(self.transport.fileno())
            return
        own = self._own
        try:
            if own is not None:
                received = self.transport.recv_into(own[self._filled : self._wanted or 4])
            else:
                received = self.transport.recv_into(self._shared)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error))
            return
        if received == 0:
            self.close("")
        elif own is not None:
            self._filled += received
            self._grow_or_finish(own)
        else:
            self._frames(self._shared, received)
        if self.transport.pending():
            # The transport has bytes, but the socket may have no more, so the event loop would not report it as
            # readable.
            self._loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        if not self._paused and not self.closed:
            self._readable()

    def _grow_or_finish(self, own: memoryview) -> None:
        if not self._wanted and self._filled >= 4 and not self._learn_size(own):
            return
        if self._wanted and self._filled >= self._wanted:
            size = self._wanted
            self._own, self._filled, self._wanted = None, 0, 0
            proceed = self._on_frame(own[4:size])
            self._buffers.give_back(own)
            if self._is_put_back:
                self._is_put_back = False
                self._keep_waiting(own, 0, size)
            elif not proceed:
                self._pause()
            self.read_on()
        else:
            if self._filled == len(own):
                self._own = self._larger(own, self._filled)
            self._expect()

    def _expect(self) -> None:
        """Tells the transport how many bytes of the unfinished frame are missing, if that is worth a call."""
        missing = self._wanted - self._filled
        if missing >= _EXPECTED_MIN_BYTES and self._reads_in_parts:
            self._expects = True
            self.transport.expect(missing)
        elif self._expects:
            self.read_on()

    def read_on(self) -> None:
        """Reads what has arrived of a large frame, even if it is little."""
        if self._expects and not self.closed:
            self._expects = False
            self.transport.expect(0)

    def _learn_size(self, own: memoryview) -> bool:
        size = int.from_bytes(own[:4], "big", signed=True)
        if not self._acceptable(size):
            return False
        self._wanted = size + 4
        if self._wanted > len(own):
            self._own = self._larger(own, self._filled)
        return True

    def _larger(self, own: memoryview, filled: int) -> memoryview:
        larger = self._buffers.take(self._wanted, filled)
        larger[:filled] = own[:filled]
        self._buffers.give_back(own)
        return larger

    def _acceptable(self, size: int) -> bool:
        if size < 0 or size > self._max_frame_bytes:
            self.close(f"a frame of {size} bytes is not allowed (limit {self._max_frame_bytes})")
            return False
        return True

    def _frames(self, view: memoryview, end: int) -> None:
        """Handles every complete frame in view[:end], and copies the beginning of an unfinished frame into a separate
        buffer."""
        position = 0
        handled = 0
        on_frame = self._on_frame
        while end - position >= 4:
            if handled == FRAMES_PER_TURN:
                self._keep_waiting(view, position, end)
                self._loop.call_soon(self._next_turn)
                self._let_go()
                return
            handled += 1
            (size,) = _LENGTH.unpack_from(view, position)
            if not self._acceptable(size):
                return
            following = position + 4 + size
            if following > end:
                break
            if following < end:
                self._holding = True
            proceed = on_frame(view[position + 4 : following])
            if self.closed:
                return
            if self._is_put_back:
                self._is_put_back = False
            else:
                position = following
            if not proceed:
                self._keep_waiting(view, position, end)
                self._let_go()
                return
        if position < end:
            self._keep_beginning(view[position:end])
        if self._holding:
            self._let_go()

    def _next_turn(self) -> None:
        """Handles the next frames after the other connections had their turn. If earlier answers are not sent yet, the
        frames wait until these answers are sent."""
        if not self.transport.unsent_bytes:
            self.resume()

    def _keep_waiting(self, view: memoryview, position: int, end: int) -> None:
        """Pauses the connection, and stores the bytes of view[position:end], which are handled after the pause."""
        if position < end:
            rest = view[position:end]
            self._waiting = memoryview(bytearray(rest)) if view is self._shared else rest
        self._pause()

    def _keep_beginning(self, rest: memoryview) -> None:
        filled = len(rest)
        if filled >= 4:
            self._wanted = int.from_bytes(rest[:4], "big", signed=True) + 4
        else:
            self._wanted = 0
        # The buffer must be longer than the bytes that have arrived. Otherwise the next read would have no room, would
        # return 0 bytes, and would look like the end of the stream.
        own = self._buffers.take(self._wanted or 4, filled)
        own[:filled] = rest
        self._own, self._filled = own, filled
        self._expect()

    def keep(self, view: memoryview) -> memoryview:
        """Returns a view of the frame's bytes that stays valid after the handler has returned. Must be called inside
        the handler. Copies the bytes only if they are in the shared buffer."""
        return view if view.obj is not self._shared.obj else memoryview(bytearray(view))

    @property
    def progress(self) -> tuple[int, int]:
        """Returns two numbers that change while the connection makes progress: the bytes of the unfinished frame that
        have arrived, and the bytes of answers that are not sent yet."""
        return self._filled, self.transport.unsent_bytes

    def peer_has_closed(self) -> bool:
        """Returns True if the peer has closed the connection, as far as the system can report this without a read."""
        return self.transport.peer_has_closed()

    # --- pausing -----------------------------------------------------------------------------------------------------

    def put_back(self) -> bool:
        """Pauses the connection. The current frame is passed to the handler again after the pause. Returns False, so
        that the handler can return this value."""
        self._is_put_back = True
        return False

    def _pause(self) -> None:
        # The event loop watches the socket until it is readable again. Most pauses end before new bytes arrive, so
        # this saves two system calls (removing the socket and adding it again).
        if not self.closed:
            self._paused = True

    def resume(self) -> None:
        """Ends a pause: handles the frames that have already arrived, then reads from the socket again."""
        if not self._paused or self.closed:
            return
        self._paused = False
        if not self._reads:
            self._reads = True
            self._loop.add_reader(self.transport.fileno(), self._readable)
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._frames(waiting, len(waiting))
        if self.transport.pending():
            self._loop.call_soon(self._read_pending)

    # --- sending and closing -----------------------------------------------------------------------------------------

    def send(self, pieces: Sequence[Piece], total_bytes: int) -> bool:
        """Sends an answer. Returns True if all its bytes were sent, or are held back and will be sent with the next
        answers. Otherwise returns False, and `on_drained` is called when all bytes are sent."""
        if self._holding:
            if (
                len(pieces) == 1
                and isinstance(pieces[0], bytearray)
                and self._held_bytes + total_bytes <= HELD_ANSWER_BYTES
            ):
                self._held.append(pieces[0])
                self._held_bytes += total_bytes
                return True
            pieces = [*self._held, *pieces]
            total_bytes += self._held_bytes
            self._held, self._held_bytes = [], 0
        return self.transport.send(pieces, total_bytes)

    def _let_go(self) -> None:
        """Sends the answers that were held back. If the socket does not accept all bytes, the connection is paused
        until they are sent."""
        self._holding = False
        if self._held:
            held, total_bytes = self._held, self._held_bytes
            self._held, self._held_bytes = [], 0
            if not self.transport.send([b"".join(held) if len(held) > 1 else held[0]], total_bytes):
                self._pause()

    def _drained(self) -> None:
        if self._on_drained is not None:
            self._on_drained()
        else:
            self.resume()

    def close(self, reason: str = "") -> None:
        if self.closed:
            return
        self.closed = True
        if self._held:
            # Sends the answers to the requests before the request that caused the close.
            self._let_go()
        self.transport.close()
        if self._own is not None:
            self._buffers.give_back(self._own)
        self._own = self._waiting = None
        on_closed = self._on_closed
        # None of these functions is called after the close. Without the references the objects around a connection are
        # freed at once, and not later by the garbage collector.
        self._on_frame, self._on_closed, self._on_drained = _no_frame, _no_reason, None
        on_closed(reason)


def _has_no_views(buffer: bytearray) -> bool:
    """Returns True if no view of the buffer exists. Python refuses to change the size of a bytearray while a view of
    it exists."""
    try:
        buffer.pop()
    except BufferError:
        return False
    buffer.append(0)
    return True


def _no_frame(view: memoryview) -> bool:
    return True


def _no_reason(reason: str) -> None:
    """Replaces `on_closed` once the connection is closed, and does nothing."""
