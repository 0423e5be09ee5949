"""Every message and version of the wire room against Apache Kafka's own classes, both ways."""

from __future__ import annotations

import base64
import random
import uuid
from typing import Any

import pytest

from jesenska.base.identifiers import uuid_to_text
from jesenska.wire.codec import decode, encode
from jesenska.wire.language import (
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
    Message,
    Struct,
    Type,
)
from jesenska.wire.registry import APIS, Api
from tests.peers.judge import Judge
from tests.profiles import rounds

pytestmark = pytest.mark.conformance

#: Random messages for each kind, key and version and in each direction.
CASES = rounds(quick=1, ci=3, everything=10)
_NULLABLE_STRUCT_NOT_WRITABLE = ("3.9.1", 75)
_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
#: Fields that 3.9.1 calls otherwise than 4.3.1, by key: their name there and here.
_OLDER_NAMES = {74: {"clientMetricsResources": "configResources", "name": "resourceName"}}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _json(value: Any, kind: Any) -> Any:
    """A value as Kafka's converters write it."""
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_json(item, kind.element) for item in value]
    if isinstance(kind, type):
        return None
    if kind in (BYTES, RECORDS):
        return base64.b64encode(bytes(value)).decode()
    if kind is UUID:
        return uuid_to_text(value)
    return value


def _renamed(judge: Judge, key: int, theirs: Any) -> Any:
    """What a judge says, with the names of fields that 4.3.1 has for them."""
    names = _OLDER_NAMES.get(key, {}) if judge.release == "3.9.1" else {}
    if not names:
        return theirs
    if isinstance(theirs, list):
        return [_renamed(judge, key, item) for item in theirs]
    return (
        {names.get(name, name): _renamed(judge, key, value) for name, value in theirs.items()}
        if isinstance(theirs, dict)
        else theirs
    )


def _differences(ours: Struct, theirs: dict[str, Any], version: int, path: str = "") -> list[str]:
    """Where our fields say something else than Kafka's JSON. RECORDS are told there by their size only."""
    found = []
    for item in ours.fields:
        if not item.present(version):
            continue
        name, value = _camel(item.name), getattr(ours, item.name)
        where = f"{path}.{name}"
        if item.type is RECORDS:
            size = theirs.get(name + "SizeInBytes")
            if value is not None and size is not None and len(value) != int(size):
                found.append(f"{where}: {len(value)} bytes, theirs {size}")
            continue
        if name not in theirs:
            if item.tag is None:
                found.append(f"{where}: missing in theirs")
            continue
        other = theirs[name]
        if isinstance(item.type, type):
            if value is None or other is None:
                found += [] if value is other else [f"{where}: {value!r}, theirs {other!r}"]
            else:
                found += _differences(value, other, version, where)
        elif isinstance(item.type, Array) and isinstance(item.type.element, type) and value is not None:
            if len(value) != len(other or ()):
                found.append(f"{where}: {len(value)} elements, theirs {other!r}")
            else:
                for index, (mine, its) in enumerate(zip(value, other, strict=True)):
                    found += _differences(mine, its, version, f"{where}[{index}]")
        elif _json(value, item.type) != other:
            found.append(f"{where}: {_json(value, item.type)!r}, theirs {other!r}")
    return found


def random_value(item: Field, kind: Any, version: int, source: random.Random, depth: int) -> Any:
    if isinstance(kind, Array):
        return [
            random_value(item, kind.element, version, source, depth + 1)
            for _ in range(source.randrange(4 if depth < 4 else 2))
        ]
    if isinstance(kind, type):
        return random_struct(kind, version, source, depth + 1)
    assert isinstance(kind, Type)
    if kind in _BITS:
        return source.randrange(-(2 ** (_BITS[kind] - 1)), 2 ** (_BITS[kind] - 1))
    if kind in (UINT16, UINT32):
        return source.randrange(2**16 if kind is UINT16 else 2**32)
    if kind is FLOAT64:
        return source.random()
    if kind is UUID:
        return uuid.UUID(int=source.getrandbits(128))
    if kind is STRING:
        return "".join(source.choice("abc äß€ .-_") for _ in range(source.randrange(10)))
    if kind in (BYTES, RECORDS):
        return source.randbytes(source.randrange(30))
    return source.random() < 0.5


def random_struct(kind: type[Struct], version: int, source: random.Random, depth: int = 0) -> Any:
    values: dict[str, Any] = {}
    for item in kind.fields:
        if not item.present(version) or (item.tag is not None and source.random() < 0.5):
            continue
        if item.null_allowed(version) and source.random() < 0.25:
            values[item.name] = None
        else:
            values[item.name] = random_value(item, item.type, version, source, depth)
    return kind(**values)


def _pairs(api: Api) -> list[tuple[str, type[Message]]]:
    return [("request", api.request), ("response", api.response)]


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in APIS.values()])
def test_kafkas_messages_are_read_and_written_byte_for_byte(judge: Judge, api: Api) -> None:
    if (judge.release, api.key) == _NULLABLE_STRUCT_NOT_WRITABLE:
        pytest.skip("3.9.1's schema of this message cannot write its nullable struct; 4.3.1 judges the same version")
    low, high = judge.apis().get(api.key, (0, -1))
    for version in range(max(low, api.min_version), min(high, api.max_version) + 1):
        for kind, message in _pairs(api):
            for seed in range(CASES):
                data, theirs = judge.random(kind, api.key, version, seed)
                ours = decode(message, version, data)
                assert _differences(ours, _renamed(judge, api.key, theirs), version) == [], (
                    f"{message.__name__} {version} seed {seed}"
                )
                assert encode(ours, version) == data, f"{message.__name__} {version} seed {seed}"


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in APIS.values()])
def test_our_messages_are_read_and_written_byte_for_byte_by_kafka(judge: Judge, api: Api) -> None:
    low, high = judge.apis().get(api.key, (0, -1))
    for version in range(max(low, api.min_version), min(high, api.max_version) + 1):
        for kind, message in _pairs(api):
            for seed in range(CASES):
                ours = random_struct(message, version, random.Random(f"{seed}-{version}"))
                data = encode(ours, version)
                assert judge.again(kind, api.key, version, data) == data, f"{message.__name__} {version} seed {seed}"
                assert (
                    _differences(ours, _renamed(judge, api.key, judge.as_json(kind, api.key, version, data)), version)
                    == []
                )


def test_every_version_of_the_wire_room_has_been_judged(judge_3: Judge, judge_4: Judge) -> None:
    older, newer = judge_3.apis(), judge_4.apis()
    for api in APIS.values():
        covered = {
            version
            for table in (older, newer)
            if api.key in table
            for version in range(table[api.key][0], table[api.key][1] + 1)
        }
        assert set(range(api.min_version, api.max_version + 1)) <= covered, api.name
