"""The transport of a connection reads from its socket and writes to it.

  Transport         the interface of all kinds of transport
  PlainTransport    a non-blocking TCP socket. Buffers are written together (sendmsg), and large regions of files are
                    sent by sendfile. Bytes that the socket does not accept wait in a queue

Buffers and file regions are sent in order. A small file region is read into memory and written together with the
buffers before and after it (one system call for many partitions). A large region goes from the page cache to the
socket without a copy. If a log was truncated, its file may be shorter than a waiting region. Then the connection is
closed, because the length of the frame has already been sent.

A listener, or the client's side of a connection, chooses the kind of transport (`TransportFor`). No other code depends
on the kind."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from jesenska.base.limits import GATHERED_WRITE_BYTES
from jesenska.base.regions import FileRegion

#: File regions up to this size in bytes are read and written together with other buffers. For larger regions sendfile
#: is faster.
JOIN_MAX_BYTES = 64 * 1024
#: The maximum number of buffers in one call of sendmsg; Linux and macOS both allow 1024.
_GATHER_MAX = 512
#: The maximum number of bytes of one sendfile call, so that one fast client does not occupy the event loop.
_SENDFILE_MAX_BYTES = 4 * 1024 * 1024
#: On Linux, the first byte of this socket option's value is the TCP state of the connection.
_TCP_INFO = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
_TCP_ESTABLISHED = 1
_MORE = getattr(socket, "MSG_MORE", 0)
#: The option SO_RCVLOWAT, where polls obey it: a socket is readable when it has so many bytes.
_LOW_WATER = getattr(socket, "SO_RCVLOWAT", None) if sys.platform == "linux" else None
#: The largest number of bytes for which a socket waits before it is readable, and the smallest for which waiting is
#: worth a system call.
_LOW_WATER_MAX_BYTES, _LOW_WATER_MIN_BYTES = 48 * 1024, 8 * 1024
#: A socket waits at most for this part of its receive buffer. If the buffer were full before, nothing would wake the
#: reader.
_LOW_WATER_SHARE = 4

Piece = bytes | bytearray | memoryview | FileRegion


class Transport:
    """Reads bytes from a connection, and sends buffers and file regions in order. No method waits."""

    __slots__ = ("_low_water_bytes", "closed", "unsent_bytes")

    def __init__(self) -> None:
        #: Number of bytes that the socket must have before the event loop reports it as readable.
        self._low_water_bytes = 1
        #: Number of bytes that were passed to `send` and are not sent yet.
        self.unsent_bytes = 0
        self.closed = False

    def fileno(self) -> int:
        """Returns the descriptor that the event loop watches, or -1 once the socket is closed."""
        raise NotImplementedError

    def recv_into(self, buffer: memoryview) -> int:
        """Reads into a buffer and returns the number of bytes, 0 at the end of the stream. Raises BlockingIOError if
        there is nothing to read, and OSError if the connection has failed."""
        raise NotImplementedError

    def pending(self) -> bool:
        """Returns True if the transport has bytes that it has already read from the socket and not returned yet. The
        event loop does not see these bytes."""
        return False

    def expect(self, missing_bytes: int) -> None:
        """Says how many bytes of the unfinished frame are missing; 0 for no unfinished frame. The transport may let
        the event loop wait until a large part of them has arrived: a frame of hundreds of kilobytes then takes a few
        reads, and not one for each TCP segment or TLS record."""

    def send(self, pieces: Sequence[Piece], total_bytes: int) -> bool:
        """Sends `pieces`, and queues the bytes that the socket does not accept. Returns True if all bytes have been
        sent. The transport releases the file regions in `pieces` when they are sent, or when the transport is
        closed."""
        raise NotImplementedError

    def peer_has_closed(self) -> bool:
        """Returns True if the peer has closed its side of the connection, or the connection is broken. Returns False
        where the system cannot tell. Reads no bytes."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the socket and drops all bytes that wait to be sent. A second call does nothing."""
        raise NotImplementedError


#: A function that makes the transport of a connected socket. Its arguments are the event loop, the socket,
#: `on_drained` and `on_broken`. If bytes could not be sent at once, the transport calls `on_drained` when all bytes
#: are sent. It calls `on_broken` with the reason if the connection fails.
TransportFor = Callable[
    [asyncio.AbstractEventLoop, socket.socket, Callable[[], None], Callable[[str], None]], Transport
]


class PlainTransport(Transport):
    """The transport of a TCP connection without encryption."""

    __slots__ = ("_loop", "_on_broken", "_on_drained", "_queue", "_send_file", "_writing", "sock")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> None:
        super().__init__()
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        #: A simulated socket has its own `send_file` (`net.network`); for a real socket this is None, and os.sendfile
        #: is used.
        self._send_file: Callable[[int, int, int], int] | None = getattr(sock, "send_file", None)
        self._loop = loop
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._queue: deque[Piece] = deque()
        self._writing = False

    def fileno(self) -> int:
        return self.sock.fileno()

    def recv_into(self, buffer: memoryview) -> int:
        return self.sock.recv_into(buffer)

    def expect(self, missing_bytes: int) -> None:
        self._low_water_bytes = waits_for(self.sock, missing_bytes, self._low_water_bytes)

    def send(self, pieces: Sequence[Piece], total_bytes: int) -> bool:
        if self.closed:
            for piece in pieces:
                if isinstance(piece, FileRegion):
                    piece.release()
            return True
        if not self._queue and len(pieces) == 1 and not isinstance(pieces[0], FileRegion):
            try:
                sent = self.sock.send(pieces[0])
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._on_broken(str(error))
                return True
            if sent == total_bytes:
                return True
            self._queue.append(memoryview(pieces[0])[sent:])
            self.unsent_bytes += total_bytes - sent
            self._watch()
            return False
        self._queue.extend(pieces)
        self.unsent_bytes += total_bytes
        if not self._writing:
            self._flush()
        return not self._queue

    def _watch(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self.sock.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        if not self._queue and not self.closed:
            self._writing = False
            self._loop.remove_writer(self.sock.fileno())
            self._on_drained()

    def _flush(self) -> None:
        try:
            while self._queue:
                head = self._queue[0]
                if isinstance(head, FileRegion) and head.size_bytes > JOIN_MAX_BYTES:
                    if not self._send_region(head):
                        break
                elif not self._send_gathered():
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, TruncatedError) as error:
            self._on_broken(str(error))
            return
        if self._queue:
            self._watch()

    def _send_region(self, region: FileRegion) -> bool:
        """Sends a part of a file region by one call of sendfile. Returns False if the socket accepts no more bytes."""
        wanted = min(region.size_bytes, _SENDFILE_MAX_BYTES)
        if self._send_file is None:
            sent = os.sendfile(self.sock.fileno(), region.file.fileno(), region.position, wanted)
        else:
            sent = self._send_file(region.file.fileno(), region.position, wanted)
        if sent == 0:
            raise TruncatedError("the log was truncated while its records were being sent")
        self.unsent_bytes -= sent
        if sent == region.size_bytes:
            self._queue.popleft()
            region.release()
            return True
        region.position += sent
        region.size_bytes -= sent
        return sent == wanted

    def _send_gathered(self) -> bool:
        """Writes the first pieces of the queue by one system call. Returns False if the socket accepts no more
        bytes."""
        buffers: list[bytes | bytearray | memoryview] = []
        total = 0
        flags = 0
        for index, piece in enumerate(self._queue):
            if isinstance(piece, FileRegion):
                if piece.size_bytes > JOIN_MAX_BYTES:
                    flags = _MORE
                    break
                read = os.pread(piece.file.fileno(), piece.size_bytes, piece.position)
                if len(read) != piece.size_bytes:
                    raise TruncatedError("the log was truncated while its records were being sent")
                piece.release()
                self._queue[index] = piece = read
            buffers.append(piece)
            total += len(piece)
            if len(buffers) == _GATHER_MAX or total >= GATHERED_WRITE_BYTES:
                break
        sent = self.sock.sendmsg(buffers, (), flags)
        self.unsent_bytes -= sent
        if sent == total:
            for _ in buffers:
                self._queue.popleft()
            return True
        left = sent
        for buffer in buffers:
            if left < len(buffer):
                self._queue[0] = memoryview(buffer)[left:]
                return False
            left -= len(buffer)
            self._queue.popleft()
        return False

    def peer_has_closed(self) -> bool:
        return not self.closed and is_gone(self.sock)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        descriptor = self.sock.fileno()
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        for piece in self._queue:
            if isinstance(piece, FileRegion):
                piece.release()
        self._queue.clear()
        self.unsent_bytes = 0
        self._on_drained, self._on_broken = ignore, ignore_reason
        self.sock.close()


def waits_for(sock: socket.socket, certain_bytes: int, present_bytes: int) -> int:
    """Lets a socket be readable only when it has many bytes, if at least `certain_bytes` are certain to arrive.
    `present_bytes` is the number for which the socket waits now. Returns the number for which it waits from now on.
    The end of the stream makes a socket readable in any case."""
    wanted = min(certain_bytes, _LOW_WATER_MAX_BYTES)
    if wanted < _LOW_WATER_MIN_BYTES:
        wanted = 1
    if wanted == present_bytes or _LOW_WATER is None:
        return present_bytes
    try:
        if wanted > 1:
            wanted = min(wanted, sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // _LOW_WATER_SHARE)
            if wanted < _LOW_WATER_MIN_BYTES:
                wanted = 1
            if wanted == present_bytes:
                return present_bytes
        sock.setsockopt(socket.SOL_SOCKET, _LOW_WATER, wanted)
    except OSError:
        return present_bytes
    return wanted


def is_gone(sock: socket.socket) -> bool:
    """Returns True if the peer of an open socket has closed its side of the connection, or the connection is broken.
    Returns False where the system cannot tell."""
    if _TCP_INFO is None:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] != _TCP_ESTABLISHED
    except OSError:
        return True


def ignore() -> None:
    """Does nothing. Replaces `on_drained` once a transport is closed."""


def ignore_reason(reason: str) -> None:
    """Does nothing. Replaces `on_broken` once a transport is closed."""


class TruncatedError(Exception):
    """Raised when a file has become shorter than the region of the file that must be sent."""
