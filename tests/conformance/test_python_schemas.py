"""Every message that the wire room shares with kio and kafka-python: what we encode they decode to equal values and
encode to the same bytes, and what they encode of it we decode to what we began with. Apache Kafka's own classes judge
every version (test_messages); here two other readings of its schemas do."""

from __future__ import annotations

import datetime
import importlib
import io
import pkgutil
import random
import re
import uuid
import warnings
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from jesenska.wire.codec import decode, encode
from jesenska.wire.language import BYTES, INT16, INT32, INT64, RECORDS, UUID, Array, Message, Struct
from jesenska.wire.messages.k18_api_versions import ApiVersionsResponse
from jesenska.wire.registry import APIS, Api
from tests.conformance.conftest import need_modules
from tests.conformance.test_messages import random_struct
from tests.profiles import rounds

need_modules("kio", "kafka")

from kio.index import UnknownAPIKey, UnknownEntity, load_payload_module  # noqa: E402
from kio.schema.errors import ErrorCode as KioErrorCode  # noqa: E402
from kio.serial import entity_reader, entity_writer  # noqa: E402
from kio.static.constants import EntityType  # noqa: E402

with warnings.catch_warnings():
    # Kafka-python reads its schemas with a function that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

pytestmark = pytest.mark.conformance

#: Random messages of each kind, key and version.
CASES = rounds(quick=1, ci=3, everything=10)
_MS = datetime.timedelta(milliseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NO_ID = uuid.UUID(int=0)


# --- values ----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value of kio's or kafka-python's as ours has it: kio speaks of durations, moments and errors where the wire
    has numbers."""
    if isinstance(value, datetime.timedelta):
        return value // _MS
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MS
    if isinstance(value, Enum):
        return int(value.value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, set | frozenset):  # of bits
        bits = sum(1 << int(bit) for bit in value)
        return bits - 2**32 if bits >= 2**31 else bits
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def theirs_of(theirs: Any, name: str) -> Any:
    """Their field of our name; kio leaves out the unit, kafka-python says whose operations only where there are
    several."""
    for candidate in (name, name.removesuffix("_ms"), re.sub("^(cluster|topic)_(?=authorized)", "", name)):
        if hasattr(theirs, candidate):
            return getattr(theirs, candidate)
    raise AssertionError(f"{type(theirs).__name__} has no {name}")


def differences(ours: Struct, theirs: Any, version: int, path: str = "") -> Iterator[str]:
    for item in ours.fields:
        if not item.present(version):
            continue
        mine, other, where = getattr(ours, item.name), theirs_of(theirs, item.name), f"{path}.{item.name}"
        if isinstance(item.type, type):
            if mine is None or other is None:
                absent = item.tag is not None and other is None and mine == item.type()
                if mine is not other and not absent:
                    yield f"{where}: {mine!r}, theirs {other!r}"
            else:
                yield from differences(mine, other, version, where)
        elif isinstance(item.type, Array) and isinstance(item.type.element, type) and mine is not None:
            if other is None or len(mine) != len(other):
                yield f"{where}: {len(mine)} elements, theirs {other!r}"
            else:
                for index, (one, its) in enumerate(zip(mine, other, strict=True)):
                    yield from differences(one, its, version, f"{where}[{index}]")
        else:
            found = plain(other)
            if item.type is UUID and found is None:
                found = _NO_ID
            expected = bytes(mine) if item.type in (BYTES, RECORDS) and mine is not None else mine
            if found != expected:
                yield f"{where}: {expected!r}, theirs {found!r}"


def message(kind: type[Message], version: int, seed: int) -> Any:
    made = random_struct(kind, version, random.Random(f"{kind.__name__}-{version}-{seed}"))
    if kind is ApiVersionsResponse:
        made.error_code = 0  # kafka-python reads any answer with an error as one of version 0
    return made


# --- kafka-python ----------------------------------------------------------------------------------------------------


def _kafka_python() -> dict[tuple[int, str], Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
            if ".old" not in module.name:
                importlib.import_module(module.name)
    found = {}
    waiting = [ApiMessage]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if getattr(kind, "_json", None) is not None and kind._class_version is None:
            found[kind.API_KEY, kind.type] = kind
    return found


KAFKA_PYTHON = _kafka_python()


def _messages(api: Api) -> list[tuple[str, type[Message], int]]:
    """Kind, class and version of each message of an API."""
    kinds: list[tuple[str, type[Message]]] = [("request", api.request), ("response", api.response)]
    return [(kind, ours, version) for kind, ours in kinds for version in range(api.min_version, api.max_version + 1)]


_APIS = [pytest.param(api, id=api.name) for api in APIS.values()]


def kafka_python_class(api: Api, kind: str, version: int) -> Any:
    """Their class of a message; None where they have none, or not in that version."""
    found = KAFKA_PYTHON.get((api.key, kind))
    return found if found is not None and found.min_version <= version <= found.max_version else None


@pytest.mark.parametrize("api", _APIS)
def test_kafka_python_reads_and_writes_what_we_do(api: Api) -> None:
    for kind, ours_class, version in _messages(api):
        theirs_class = kafka_python_class(api, kind, version)
        if theirs_class is None:
            continue
        for seed in range(CASES):
            ours = message(ours_class, version, seed)
            data = encode(ours, version)
            where = f"{ours_class.__name__} {version} seed {seed}"
            theirs = theirs_class.decode(data, version=version)
            assert list(differences(ours, theirs, version)) == [], where
            theirs._header = None  # what was decoded without one cannot be encoded otherwise
            again = bytes(theirs.encode(version=version))
            assert again == data, where
            assert list(differences(decode(ours_class, version, again), theirs, version)) == [], where


# --- kio -------------------------------------------------------------------------------------------------------------


def _spoken(ours: Any, version: int, source: random.Random) -> Any:
    """The same message with what kio can say: errors that it knows, durations and moments that Python has."""
    for item in ours.fields:
        if not item.present(version):
            continue
        value = getattr(ours, item.name)
        if isinstance(value, Struct):
            _spoken(value, version, source)
        elif isinstance(value, list) and isinstance(item.type, Array) and isinstance(item.type.element, type):
            for element in value:
                _spoken(element, version, source)
        elif item.type is INT16 and item.name.endswith("error_code"):
            setattr(ours, item.name, source.choice(list(KioErrorCode)).value)
        elif item.type in (INT32, INT64) and item.name.endswith(("_ms", "_timestamp")):
            setattr(ours, item.name, source.randrange(2**31 if item.type is INT32 else 2**42))
    return ours


def kio_class(ours: type[Message], api: Api, kind: str, version: int) -> Any:
    """Their class of a message; None where they have none, or not in that version."""
    try:
        return getattr(
            load_payload_module(api.key, version, EntityType.request if kind == "request" else EntityType.response),
            ours.__name__,
        )
    except (UnknownAPIKey, UnknownEntity):
        return None


@pytest.mark.parametrize("api", _APIS)
def test_kio_reads_and_writes_what_we_do(api: Api) -> None:
    for kind, ours_class, version in _messages(api):
        theirs_class = kio_class(ours_class, api, kind, version)
        if theirs_class is None:
            continue
        for seed in range(CASES):
            ours = _spoken(message(ours_class, version, seed), version, random.Random(seed))
            data = encode(ours, version)
            where = f"{ours_class.__name__} {version} seed {seed}"
            theirs, size = entity_reader(theirs_class)(data, 0)
            assert size == len(data), where
            assert list(differences(ours, theirs, version)) == [], where
            out = io.BytesIO()
            entity_writer(theirs_class)(out, theirs)
            assert out.getvalue() == data, where
            assert list(differences(decode(ours_class, version, out.getvalue()), theirs, version)) == [], where


# --- how much they judge ---------------------------------------------------------------------------------------------


def test_most_messages_have_a_second_and_a_third_judge() -> None:
    every = [(ours, api, kind, version) for api in APIS.values() for kind, ours, version in _messages(api)]
    by_kafka_python = [one for one in every if kafka_python_class(*one[1:]) is not None]
    by_kio = [one for one in every if kio_class(*one) is not None]
    print(f"{len(every)} message-versions; kafka-python has {len(by_kafka_python)} of them, kio {len(by_kio)}")
    assert len(by_kafka_python) > 0.8 * len(every)
    assert len(by_kio) > 0.5 * len(every)
