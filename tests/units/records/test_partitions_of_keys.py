"""Partitions of keys, by both twins: the ones that Kafka's Java client chooses."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.records.arrow import partitions_of_keys
from jesenska.records.murmur2 import murmur2
from tests.units.records.twins import BUILT, using


@pytest.mark.parametrize(
    ("key", "hash_of_java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_the_java_client(twin: str, key: bytes, hash_of_java: int) -> None:
    assert murmur2(key) == hash_of_java & 0xFFFFFFFF
    assert partitions_of_keys(pa.array([key]), 2**31 - 1, -1).to_pylist() == [(hash_of_java & 0x7FFFFFFF) % (2**31 - 1)]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_every_type_of_key_column_is_taken(twin: str, kind: pa.DataType) -> None:
    keys = pa.array([None, b"", b"k", b"key"], pa.binary()).cast(kind).slice(1)
    assert partitions_of_keys(keys, 5, 9).to_pylist() == [
        (murmur2(key) & 0x7FFFFFFF) % 5 for key in (b"", b"k", b"key")
    ]


def test_rows_without_a_key_get_the_number_given(twin: str) -> None:
    assert partitions_of_keys(pa.array([None, "a", None]), 1, -1).to_pylist() == [-1, 0, -1]
    assert partitions_of_keys(pa.nulls(2), 4, 7).to_pylist() == [7, 7]
    assert partitions_of_keys(pa.array([], pa.binary()), 4, 7).to_pylist() == []


def test_no_partitions_and_broken_arrays_are_refused(twin: str) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partitions_of_keys(pa.array([b"k"]), 0, -1)
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 9, 3))
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(b"abc")])
    with pytest.raises(ValueError, match="lead out of its data"):
        partitions_of_keys(broken, 3, -1)


@given(st.lists(st.none() | st.binary(max_size=40), max_size=40), st.integers(1, 1000))
def test_both_twins_choose_the_same(keys: list[bytes | None], count: int) -> None:
    column = pa.array(keys, pa.binary())
    found = []
    for name in BUILT:
        with using(name):
            found.append(partitions_of_keys(column, count, -1).to_pylist())
    expected = [-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in keys]
    assert all(item == expected for item in found)
