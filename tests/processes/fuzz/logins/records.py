"""Records of TLS as a client sends them, and their mutations: bits, versions, lengths, order, repetition, cuts."""

from __future__ import annotations

import random
import ssl
from collections.abc import Generator, Sequence
from typing import Final

from tests.processes.fuzz.logins.wires import PROBE, Step, Wants

_HEAD_BYTES: Final = 5
_TYPES: Final = (0, 20, 21, 22, 23, 24, 255)
_VERSIONS: Final = (0x0000, 0x0200, 0x0300, 0x0301, 0x0302, 0x0303, 0x0304, 0x7F1C, 0xFEFF, 0xFFFF)
_LENGTHS: Final = (0, 1, 2, 16_384, 16_385, 16_640, 18_432, 18_433, 0xFFFF)


def hellos() -> list[list[bytes]]:
    """First flights of clients of several kinds, each as its records."""
    found = []
    for version in (None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        for name in ("localhost", "127.0.0.1", "x" * 60 + ".example"):
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
            if version is not None:
                made.minimum_version = made.maximum_version = version
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = made.wrap_bio(incoming, outgoing, server_hostname=name)
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                found.append(split(outgoing.read()))
    return found


def split(flight: bytes) -> list[bytes]:
    """The records of a flight."""
    found = []
    while len(flight) >= _HEAD_BYTES:
        size = _HEAD_BYTES + int.from_bytes(flight[3:5], "big")
        found.append(flight[:size])
        flight = flight[size:]
    return found


def mutated(flight: Sequence[bytes], source: random.Random) -> bytes:
    """The flight with at least one change that a receiver must notice before the end of the handshake."""
    made = [bytearray(record) for record in flight]
    for _ in range(source.choice((1, 1, 2, 4))):
        record = source.choice(made)
        if len(record) <= _HEAD_BYTES:
            continue
        _change(made, record, source)
    found = b"".join(made)
    if found == b"".join(flight):
        # The changes have undone each other, or hit a record without room.
        found = found[:-1] + bytes((found[-1] ^ 1,))
    return found


def _change(made: list[bytearray], record: bytearray, source: random.Random) -> None:
    kind = source.randrange(10)
    at = source.randrange(_HEAD_BYTES, len(record))
    if kind <= 2:
        for _ in range(source.choice((1, 1, 3, 30))):
            record[source.randrange(_HEAD_BYTES, len(record))] ^= 1 << source.randrange(8)
    elif kind == 3:
        record[0] = source.choice(_TYPES)
        record[at] ^= 0xFF
    elif kind == 4:
        record[1:3] = source.choice(_VERSIONS).to_bytes(2, "big")
        record[at] ^= 0xFF
    elif kind == 5:
        record[3:5] = source.choice(_LENGTHS).to_bytes(2, "big")
    elif kind == 6:
        del record[at:]
    elif kind == 7:
        made[len(made) :] = [bytearray(record)] * source.choice((1, 2, 50))
        record[at] ^= 0xFF
    elif kind == 8:
        # A length inside of the handshake message: of the message, or of a field.
        place = source.choice((6, 7, 8, at))
        size = min(source.choice((1, 2, 3)), len(record) - place)
        if size > 0:
            record[place : place + size] = b"\xff" * size
    else:
        made.insert(0, bytearray(source.randbytes(source.randrange(1, 40))))


def mutated_handshake(context: ssl.SSLContext, source: random.Random) -> Generator[Step, bytes | None, bool]:
    """A handshake whose second flight is mutated, or that is complete, after which the records of a request are
    mutated. Returns True if the broker answers the request."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    is_late = source.random() < 0.5
    flights = 0
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            flights += 1
            flight = outgoing.read()
            if flights > 1 and not is_late:
                return (yield from _last(client, incoming, mutated(split(flight), source)))
            came = yield Step(flight, Wants.BYTES)
            if came is None:
                return False
            incoming.write(came)
        except ssl.SSLError:
            return False
    flight = outgoing.read()
    if is_late and flight:
        if (yield Step(flight, Wants.NOTHING)) is None:
            return False
        flight = b""
    client.write(PROBE)
    flight += outgoing.read()
    return (yield from _last(client, incoming, mutated(split(flight), source)))


def _last(client: ssl.SSLObject, incoming: ssl.MemoryBIO, data: bytes) -> Generator[Step, bytes | None, bool]:
    """Sends bytes, and returns True if an answer comes that can be decrypted."""
    step = Step(data, Wants.BYTES, ends=True)
    while True:
        came = yield step
        if came is None:
            return False
        step = Step(b"", Wants.BYTES)
        incoming.write(came)
        try:
            return bool(client.read(1 << 16))
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            return False
