"""Headers of requests and responses.

    request v1:   api_key INT16, api_version INT16, correlation_id INT32, client_id NULLABLE_STRING
    request v2:   the same (client_id keeps its two-byte length), then tagged fields
    response v0:  correlation_id INT32
    response v1:  correlation_id INT32, then tagged fields

The frame's length, an INT32, comes before the header and does not include its own four bytes. The header's version
follows from the message's version (`registry.Api`). Only ControlledShutdown version 0 has request header v0, which has
no client_id."""

from __future__ import annotations

import struct

from jesenska.wire.codec import MalformedMessageError, read_uvarint, skip_tags

FIXED = struct.Struct(">hhi")
_LENGTH = struct.Struct(">h")


def read_client_id(view: memoryview, position: int, limit: int) -> tuple[str | None, int]:
    """Reads the client id at `position`. Returns the client id and the position after it."""
    if position + 2 > limit:
        raise MalformedMessageError("a request ends inside its header")
    (size,) = _LENGTH.unpack_from(view, position)
    position += 2
    if size < 0:
        if size != -1:
            raise MalformedMessageError(f"client_id has the length {size}")
        return None, position
    if position + size > limit:
        raise MalformedMessageError("client_id ends outside the request")
    try:
        return str(view[position : position + size], "utf-8"), position + size
    except UnicodeDecodeError as error:
        raise MalformedMessageError("client_id is not UTF-8") from error


def skip_header_tags(view: memoryview, position: int, limit: int) -> int:
    """Returns the position after the tagged fields of a flexible header (KIP-482)."""
    if position < limit and view[position] == 0:
        return position + 1
    return skip_tags(view, position, limit)


def request_head(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, header_version: int
) -> bytearray:
    """Returns an encoded request header, without the frame's length before it."""
    out = bytearray(FIXED.pack(api_key, api_version, correlation_id))
    if header_version == 0:
        return out
    if client_id is None:
        out += b"\xff\xff"
    else:
        encoded = client_id.encode()
        out += _LENGTH.pack(len(encoded)) + encoded
    if header_version >= 2:
        out.append(0)
    return out


def read_response_head(view: memoryview, header_version: int) -> tuple[int, int]:
    """Returns the correlation id of a response, and the position at which its body begins."""
    if len(view) < 4:
        raise MalformedMessageError("a response ends inside its header")
    correlation_id = int.from_bytes(view[:4], "big", signed=True)
    return correlation_id, skip_header_tags(view, 4, len(view)) if header_version else 4


__all__ = ["FIXED", "read_client_id", "read_response_head", "read_uvarint", "request_head", "skip_header_tags"]
