"""Well-formed requests with harmful values: counts, offsets, epochs, timeouts and sizes at their limits, and names
that exist or cannot exist."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from jesenska.wire.codec import encode
from jesenska.wire.headers import request_head
from jesenska.wire.language import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Array,
    Field,
    Struct,
    Type,
)
from jesenska.wire.registry import APIS

_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64, UINT16: 16, UINT32: 32}
_NAMES = (
    "",
    ".",
    "..",
    "a",
    "a" * 249,
    "a" * 250,
    "x" * 32767,
    "no such",
    "consumer",
    "range",
    "*",
    "/",
    "\0",
    "ä€😀",
    "retention.ms",
    "cleanup.policy",
    "-1",
    "compact",
)


class WellFormed:
    """Generates requests. `names` are names that the broker knows, `batches` are records that it accepts."""

    def __init__(
        self, announced: Mapping[int, range], names: Sequence[str], ids: Sequence[uuid.UUID], batches: Sequence[bytes]
    ) -> None:
        self._announced = [(key, versions) for key, versions in sorted(announced.items())]
        self._names = (*_NAMES, *names, *names, *names)
        self._ids = ids
        self._batches = batches

    def frame(self, source: random.Random) -> bytes:
        """A frame without the length in front."""
        key, versions = source.choice(self._announced)
        version = source.choice(versions)
        api = APIS[key]
        request = self._struct(api.request, version, source, 0)
        return bytes(request_head(key, version, 7, "well-formed", api.request_header_version(version))) + encode(
            request, version
        )

    def _struct(self, kind: type[Struct], version: int, source: random.Random, depth: int) -> Any:
        values: dict[str, Any] = {}
        for item in kind.fields:
            if not item.present(version) or (item.tag is not None and source.random() < 0.7):
                continue
            if item.null_allowed(version) and source.random() < 0.2:
                values[item.name] = None
            else:
                values[item.name] = self._value(item, item.type, version, source, depth)
        return kind(**values)

    def _value(self, item: Field, kind: Any, version: int, source: random.Random, depth: int) -> Any:
        if isinstance(kind, Array):
            count = source.choice((0, 1, 1, 1, 2, 3, 30) if depth < 3 else (0, 1, 2))
            return [self._value(item, kind.element, version, source, depth + 1) for _ in range(count)]
        if isinstance(kind, type):
            return self._struct(kind, version, source, depth + 1)
        assert isinstance(kind, Type)
        return self._scalar(item, kind, source)

    def _scalar(self, item: Field, kind: Type, source: random.Random) -> Any:
        if kind in _BITS:
            return self._integer(_BITS[kind], kind in (UINT16, UINT32), source)
        if kind is BOOLEAN:
            return source.random() < 0.5
        if kind is FLOAT64:
            return source.choice((0.0, -1.0, 1e308, float("inf")))
        if kind is UUID:
            return source.choice((*self._ids, uuid.UUID(int=0), uuid.UUID(int=source.getrandbits(128))))
        if kind is STRING:
            return source.choice(self._names)
        if kind is RECORDS:
            return source.choice((*self._batches, b"", source.randbytes(70)))
        assert kind is BYTES
        return source.choice((b"", b"\0" * 10, source.randbytes(source.randrange(100)), b"\xff" * 1000))

    @staticmethod
    def _integer(bits: int, unsigned: bool, source: random.Random) -> int:
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        usual = (0, 0, 0, 1, 1, 2, 3, 10, 100)
        return (
            source.choice(usual)
            if source.random() < 0.7
            else source.choice((low, high, max(low, -1), max(low, -2), high - 1, source.randrange(low, high)))
        )
