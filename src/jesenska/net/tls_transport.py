"""The transport of a TLS connection, for servers and clients: an `ssl.SSLObject` between two buffers in memory.

  socket -> incoming -> SSLObject -> recv_into        at most one read of the socket for each call
  send -> queue -> SSLObject -> outgoing -> socket    a piece is encrypted when the previous piece has been sent

The memory of a connection is limited to one encrypted piece. A file region is also read and encrypted in pieces,
because the kernel's sendfile cannot encrypt.

  handshake --- done ---> open --- close() or failure ---> closed

Bytes that are passed to `send` during the handshake wait for the end of the handshake. If a handshake takes too long,
the connection is closed. One step of a handshake costs about a thousand times as much as a read. So one iteration of
the event loop does only a few steps (`HandshakeTurns`); the sockets that were not served are still readable in the
next iteration. A failed handshake sends only the TLS alert for the failure."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from jesenska.base.limits import TLS_HANDSHAKE_SECONDS, TLS_HANDSHAKE_STEPS_PER_TURN
from jesenska.base.regions import FileRegion
from jesenska.net.transport import (
    Piece,
    Transport,
    TransportFor,
    TruncatedError,
    ignore,
    ignore_reason,
    is_gone,
    waits_for,
)
from jesenska.security.tls import SessionSlot

#: The maximum number of bytes that are encrypted together.
_PIECE_MAX_BYTES = 256 * 1024
_READ_BYTES = 128 * 1024
#: More than a TLS record has. Of a record that has not arrived completely, OpenSSL has already taken the beginning.
_RECORD_BYTES = 20 * 1024


class HandshakeTurns:
    """Limits the number of handshake steps in one iteration of the event loop."""

    __slots__ = ("_done", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done = 0

    def take(self) -> bool:
        """Counts a handshake step. Returns False if no further step may be made in this iteration."""
        if self._done == 0:
            self._loop.call_soon(self._next_turn)
        self._done += 1
        return self._done <= TLS_HANDSHAKE_STEPS_PER_TURN

    def _next_turn(self) -> None:
        self._done = 0


class TlsTransport(Transport):
    """A TCP socket with TLS. For a client, `server_name` is the name of the server; on the server's side it is None.
    `on_secured` is called at the end of the handshake, with the peer's certificate in DER, or None if the peer has
    sent no certificate. A client resumes the session in `slot`, and puts its new session there."""

    __slots__ = (
        "_deadline",
        "_has_ended",
        "_incoming",
        "_loop",
        "_object",
        "_on_broken",
        "_on_drained",
        "_on_secured",
        "_outgoing",
        "_queue",
        "_read_buffer",
        "_slot",
        "_turns",
        "_wire",
        "_wire_plain_bytes",
        "_writing",
        "is_secured",
        "sock",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
        context: ssl.SSLContext,
        turns: HandshakeTurns,
        read_buffer: bytearray,
        server_name: str | None = None,
        on_secured: Callable[[bytes | None], None] | None = None,
        slot: SessionSlot | None = None,
    ) -> None:
        super().__init__()
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._loop = loop
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._on_secured = on_secured
        self._turns = turns
        self._read_buffer = memoryview(read_buffer)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        #: Typed as Any: the type stubs say that `read` always returns bytes, but with a buffer it returns a number.
        #: Compiled code would rely on the stubs.
        self._object: Any = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
            session=None if slot is None else slot.session,
        )
        #: The place of this client's session; None if the session was put there, or there is none.
        self._slot = slot
        self._queue: deque[Piece] = deque()
        #: The encrypted bytes that the socket has not accepted yet, and their number before encryption.
        self._wire = memoryview(b"")
        self._wire_plain_bytes = 0
        self._writing = False
        #: True if the peer has ended the stream. The next read reports it.
        self._has_ended = False
        #: True if the handshake has ended successfully.
        self.is_secured = False
        self._deadline: asyncio.TimerHandle | None = loop.call_later(TLS_HANDSHAKE_SECONDS, self._too_late)
        if server_name is not None:
            # In a TLS handshake the client sends the first message.
            self._shake()

    def fileno(self) -> int:
        return self.sock.fileno()

    # --- reading -----------------------------------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview) -> int:
        if not self.is_secured:
            return self._recv_in_handshake(buffer)
        if not self._has_bytes():
            self._receive()
        received = self._decrypted(buffer)
        if received < 0:
            # Nothing could be decrypted: the bytes that were read are only a part of a TLS record, or a record without
            # data (a session ticket).
            self._flush_control()
            raise BlockingIOError
        if self._slot is not None and received:
            # In TLS 1.3 the server sends its tickets after the handshake, before its first data.
            self._slot.session = self._object.session
            self._slot = None
        return received

    def _has_bytes(self) -> bool:
        """Returns True if a read may return something without a read of the socket."""
        return self._has_ended or self._incoming.pending > 0 or self._object.pending() > 0

    def _decrypted(self, buffer: memoryview) -> int:
        """Decrypts as many records as the buffer holds, and returns the number of bytes. Returns 0 at the end of the
        stream, and -1 if the socket must be read first."""
        read, incoming = self._object.read, self._incoming
        size, filled = len(buffer), 0
        try:
            while filled < size:
                # One read returns the bytes of one record.
                count = int(read(size - filled, buffer[filled:]))
                if not count:
                    self._has_ended = True
                    break
                filled += count
                if not incoming.pending:
                    break
        except ssl.SSLWantReadError:
            return filled or -1
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._has_ended = True
        return filled

    def _receive(self) -> None:
        """Reads encrypted bytes from the socket. Raises BlockingIOError if there is nothing to read."""
        size = self.sock.recv_into(self._read_buffer)
        if size:
            self._incoming.write(self._read_buffer[:size])
        else:
            self._incoming.write_eof()

    def _recv_in_handshake(self, buffer: memoryview) -> int:
        if not self._turns.take():
            # The bytes stay in the socket, so the event loop reports it as readable again in the next iteration.
            raise BlockingIOError
        self._receive()
        self._shake()
        if not self.is_secured:
            raise BlockingIOError
        self._flush()
        received = self._decrypted(buffer)
        if received < 0:
            raise BlockingIOError
        return received

    def pending(self) -> bool:
        return self.is_secured and not self.closed and self._has_bytes()

    def expect(self, missing_bytes: int) -> None:
        self._low_water_bytes = waits_for(self.sock, missing_bytes - _RECORD_BYTES, self._low_water_bytes)

    # --- the handshake -----------------------------------------------------------------------------------------------

    def _shake(self) -> None:
        """Does the next steps of the handshake. Raises ssl.SSLError if the handshake has failed."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._flush_control()
            return
        except ssl.SSLError:
            if self._slot is not None:
                self._slot.session = None
            # Sends the alert that OpenSSL has written for the peer.
            self._flush_control()
            raise
        self.is_secured = True
        self._cancel_deadline()
        self._flush_control()
        on_secured, self._on_secured = self._on_secured, None
        if on_secured is not None:
            on_secured(self._object.getpeercert(binary_form=True))

    def _too_late(self) -> None:
        self._deadline = None
        self._on_broken(f"no TLS handshake within {TLS_HANDSHAKE_SECONDS:g} s")

    def _cancel_deadline(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _flush_control(self) -> None:
        """Sends the bytes of the TLS protocol itself: handshake messages, alerts, session tickets."""
        if self._outgoing.pending and not len(self._wire):
            self._wire = memoryview(self._outgoing.read())
            with suppress(BlockingIOError, InterruptedError):
                self._send_wire()
            if len(self._wire):
                self._watch()

    # --- sending -----------------------------------------------------------------------------------------------------

    def send(self, pieces: Sequence[Piece], total_bytes: int) -> bool:
        if self.closed:
            for piece in pieces:
                if isinstance(piece, FileRegion):
                    piece.release()
            return True
        self._queue.extend(pieces)
        self.unsent_bytes += total_bytes
        if self.is_secured and not self._writing:
            self._flush()
        return not self.unsent_bytes

    def _watch(self) -> None:
        if not self._writing and not self.closed:
            self._writing = True
            self._loop.add_writer(self.sock.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        if not len(self._wire) and not self.closed and (not self._queue or not self.is_secured):
            self._writing = False
            self._loop.remove_writer(self.sock.fileno())
            if self.is_secured:
                self._on_drained()

    def _flush(self) -> None:
        try:
            while self._send_wire():
                if not self.is_secured or not self._queue:
                    return
                self._encrypt()
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, TruncatedError) as error:
            self._on_broken(str(error))
            return
        self._watch()

    def _send_wire(self) -> bool:
        """Sends the encrypted bytes that wait. Returns True if the socket has accepted all of them."""
        if len(self._wire):
            sent = self.sock.send(self._wire)
            self._wire = self._wire[sent:]
            if len(self._wire):
                return False
        self.unsent_bytes -= self._wire_plain_bytes
        self._wire_plain_bytes = 0
        return True

    def _encrypt(self) -> None:
        """Encrypts the next bytes of the queue, at most _PIECE_MAX_BYTES."""
        total = 0
        while self._queue and total < _PIECE_MAX_BYTES:
            head = self._queue[0]
            if isinstance(head, FileRegion):
                size = min(head.size_bytes, _PIECE_MAX_BYTES - total)
                data = os.pread(head.file.fileno(), size, head.position)
                if len(data) != size:
                    raise TruncatedError("the log was truncated while its records were being sent")
                self._object.write(data)
                head.position += size
                head.size_bytes -= size
                if not head.size_bytes:
                    self._queue.popleft()
                    head.release()
            else:
                whole = memoryview(head)
                size = min(len(whole), _PIECE_MAX_BYTES - total)
                if size:
                    self._object.write(whole[:size])
                if size == len(whole):
                    self._queue.popleft()
                else:
                    self._queue[0] = whole[size:]
            total += size
        self._wire = memoryview(self._outgoing.read())
        self._wire_plain_bytes = total

    # --- the end -----------------------------------------------------------------------------------------------------

    def peer_has_closed(self) -> bool:
        return not self.closed and is_gone(self.sock)

    def close(self) -> None:
        if self.closed:
            return
        self._say_goodbye()
        self.closed = True
        self._cancel_deadline()
        descriptor = self.sock.fileno()
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
        for piece in self._queue:
            if isinstance(piece, FileRegion):
                piece.release()
        self._queue.clear()
        self.unsent_bytes = self._wire_plain_bytes = 0
        self._wire = memoryview(b"")
        self._on_drained, self._on_broken, self._on_secured = ignore, ignore_reason, None
        self.sock.close()

    def _say_goodbye(self) -> None:
        """Sends the TLS message that ends the stream (close_notify), if the socket accepts it at once."""
        if self.is_secured and not len(self._wire):
            with suppress(ssl.SSLError, OSError):
                self._object.unwrap()
            with suppress(OSError):
                self.sock.send(self._outgoing.read())


def tls_server(
    context: Callable[[], ssl.SSLContext], turns: HandshakeTurns, on_secured: Callable[[bytes | None], None]
) -> TransportFor:
    """Returns a function that makes the transports of a listener's connections. `context` returns the current TLS
    context, which changes when the certificates change."""
    read_buffer = bytearray(_READ_BYTES)

    def made(
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> Transport:
        return TlsTransport(loop, sock, on_drained, on_broken, context(), turns, read_buffer, None, on_secured)

    return made


def tls_client(context: ssl.SSLContext, server_name: str, slot: SessionSlot | None = None) -> TransportFor:
    """Returns a function that makes the transport of a client's connection to the server with this name. `slot` is the
    place of the client's session with this server, for resumption; None for no resumption."""

    def made(
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        on_drained: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> Transport:
        turns, read_buffer = HandshakeTurns(loop), bytearray(_READ_BYTES)
        return TlsTransport(loop, sock, on_drained, on_broken, context, turns, read_buffer, server_name, None, slot)

    return made
