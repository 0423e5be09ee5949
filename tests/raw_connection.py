"""A connection to a broker, byte by byte: for requests that no client of ours would send."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import TypeVar

from jesenska.wire.codec import decode, encode
from jesenska.wire.headers import read_response_head, request_head
from jesenska.wire.language import Message
from jesenska.wire.registry import APIS

Answer = TypeVar("Answer", bound=Message)


class ClosedByBrokerError(Exception):
    """The broker has closed the connection."""


class RawConnection:
    """Blocking; every wait ends after `seconds` with TimeoutError."""

    def __init__(self, bootstrap: str, seconds: float = 20.0) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), seconds)
        self._correlation_id = 0

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """These bytes and nothing else."""
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError) as error:
            raise ClosedByBrokerError from error

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                piece = self.socket.recv(size - len(found))
            except ConnectionResetError as error:
                raise ClosedByBrokerError from error
            if not piece:
                raise ClosedByBrokerError(f"after {len(found)} of {size} bytes")
            found += piece
        return bytes(found)

    def is_closed(self) -> bool:
        """Waits until the broker closes the connection; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def frame(self, request: Message, version: int) -> bytes:
        """A well-formed request, without the length in front."""
        api = APIS[request.api_key]
        self._correlation_id += 1
        return bytes(
            request_head(api.key, version, self._correlation_id, "raw", api.request_header_version(version))
        ) + encode(request, version)

    def ask(self, request: Message, version: int, response: type[Answer]) -> Answer:
        self.send_frame(self.frame(request, version))
        return self.receive(version, response)

    def receive(self, version: int, response: type[Answer]) -> Answer:
        return read_answer(self.receive_frame(), version, response)[1]


def read_answer(frame: bytes, version: int, response: type[Answer]) -> tuple[int, Answer]:
    """The correlation id and the answer that stand in a frame."""
    view = memoryview(frame)
    correlation_id, position = read_response_head(view, APIS[response.api_key].response_header_version(version))
    return correlation_id, decode(response, version, view[position:])
