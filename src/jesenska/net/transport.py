"""The transport of a connection reads from its socket and writes to it.

    Transport         what each kind of transport does
    PlainTransport    a non-blocking TCP socket: gathered writes (sendmsg), pieces of files by sendfile, what does not
                      fit waits in a queue

Everything is sent in order. A small file region is read into memory and written together with its neighbours (one
system call for many partitions). A large region goes from the page cache to the socket without a copy. If the file has
become shorter than the region (the log was truncated meanwhile), the connection is closed, since the length of the
frame has already been sent.

A listener, or the client's side of a connection, chooses the kind of transport (`TransportFor`). No other code depends
on the kind.
"""

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

#: Regions up to this size are read and written together with their neighbours; for larger ones sendfile is faster.
JOIN_MAX_BYTES = 64 * 1024
#: Buffers in one gathered write; Linux and macOS both allow 1024.
_GATHER_MAX = 512
#: Largest number of bytes of one sendfile call, so that one fast reader does not occupy the loop.
_SENDFILE_MAX_BYTES = 4 * 1024 * 1024
#: Linux: the first byte of this socket option's value is the state of the connection.
_TCP_INFO = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
_TCP_ESTABLISHED = 1
_MORE = getattr(socket, "MSG_MORE", 0)

Piece = bytes | bytearray | memoryview | FileRegion


class Transport:
    """Reads bytes, and sends buffers and file regions in order, without waiting."""

    __slots__ = ("closed", "unsent_bytes")

    def __init__(self) -> None:
        #: Number of bytes that were passed to this transport and are not sent yet.
        self.unsent_bytes = 0
        self.closed = False

    def fileno(self) -> int:
        """Returns the descriptor that the loop watches; -1 once it is closed."""
        raise NotImplementedError

    def recv_into(self, buffer: memoryview) -> int:
        """Reads into a buffer and returns the number of bytes, 0 at the end of the stream. BlockingIOError if there is
        nothing to read; OSError if the connection failed."""
        raise NotImplementedError

    def pending(self) -> bool:
        """True if bytes can be read although the socket has none: the transport has read them from the socket
        already."""
        return False

    def send(self, pieces: Sequence[Piece], total_bytes: int) -> bool:
        """Sends `pieces`, or queues the rest that does not fit; True if everything has been sent. The transport then
        owns the regions in `pieces`."""
        raise NotImplementedError

    def peer_has_closed(self) -> bool:
        """True if the peer has ended its half of the connection, or the connection is gone; False where the system
        cannot tell. It does not read."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the socket and drops everything that waits to be sent; a second call does nothing."""
        raise NotImplementedError


#: Makes the transport of a connected socket, from the loop, the socket, `on_drained` and `on_broken`. If bytes could
#: not be sent at once, the transport calls `on_drained` when all are sent. It calls `on_broken` with the reason if the
#: connection fails.
TransportFor = Callable[
    [asyncio.AbstractEventLoop, socket.socket, Callable[[], None], Callable[[str], None]], Transport
]


class PlainTransport(Transport):
    """A TCP socket without encryption."""

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
        #: A simulated socket has its own `send_file` (`net.network`).
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
        """Makes one call of sendfile; False if the socket is full."""
        wanted = min(region.size_bytes, _SENDFILE_MAX_BYTES)
        if self._send_file is None:
            sent = os.sendfile(self.sock.fileno(), region.file.fileno(), region.position, wanted)
        else:
            sent = self._send_file(region.file.fileno(), region.position, wanted)
        if sent == 0:
            raise TruncatedError("the log was truncated under an answer in flight")
        self.unsent_bytes -= sent
        if sent == region.size_bytes:
            self._queue.popleft()
            region.release()
            return True
        region.position += sent
        region.size_bytes -= sent
        return sent == wanted

    def _send_gathered(self) -> bool:
        """Writes the first items of the queue with one system call; False if the socket is full."""
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
                    raise TruncatedError("the log was truncated under an answer in flight")
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


def is_gone(sock: socket.socket) -> bool:
    """True if the peer of an open socket has ended its half of the connection, or the connection is gone; False where
    the system cannot tell."""
    if _TCP_INFO is None:
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] != _TCP_ESTABLISHED
    except OSError:
        return True


def ignore() -> None:
    """Replaces `on_drained` once a transport is closed."""


def ignore_reason(reason: str) -> None:
    """Replaces `on_broken` once a transport is closed."""


class TruncatedError(Exception):
    """The file is shorter than the region."""
