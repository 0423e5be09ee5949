"""Random messages of any declared kind, limited to the fields of a version."""

from __future__ import annotations

import uuid
from functools import cache
from typing import Any

from hypothesis import strategies as st

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
    Message,
    Struct,
    Type,
)

_INTEGERS = {
    INT8: (8, True),
    INT16: (16, True),
    UINT16: (16, False),
    INT32: (32, True),
    UINT32: (32, False),
    INT64: (64, True),
}


@cache
def _primitive(kind: Type) -> st.SearchStrategy[Any]:
    if kind is BOOLEAN:
        return st.booleans()
    if kind in _INTEGERS:
        bits, signed = _INTEGERS[kind]
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)
    if kind is FLOAT64:
        return st.floats(allow_nan=False)
    if kind is UUID:
        return st.one_of(st.just(uuid.UUID(int=0)), st.uuids())
    if kind is STRING:
        return st.text(max_size=20)
    assert kind in (BYTES, RECORDS)
    return st.binary(max_size=50)


def _value(item: Field, version: int) -> st.SearchStrategy[Any]:
    if not item.present(version):
        return st.nothing()
    if isinstance(item.type, Array):
        element = item.type.element
        found: st.SearchStrategy[Any] = st.lists(
            _primitive(element) if isinstance(element, Type) else structs(element, version), max_size=3
        )
    elif isinstance(item.type, Type):
        found = _primitive(item.type)
    else:
        found = structs(item.type, version)
    return st.one_of(st.none(), found) if item.null_allowed(version) else found


@cache
def structs(kind: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Structs with every field that the version has. The other fields keep their defaults."""
    fields = {item.name: _value(item, version) for item in kind.fields if item.present(version)}
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


def messages(kind: type[Message], version: int) -> st.SearchStrategy[Any]:
    return structs(kind, version)
