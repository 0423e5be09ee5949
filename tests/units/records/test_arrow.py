"""Batches as Arrow columns and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import CorruptMessageError, InvalidRecordError
from jesenska.records import codec as records_codec
from jesenska.records.arrow import batches_to_columns, columns_to_batches
from jesenska.records.batch import Codec, read_header, stamp_append_time, stamp_offsets
from jesenska.records.decode import ControlMarker, ControlType, decode_batch, marker_record
from jesenska.records.encode import encode_batch
from jesenska.records.record import RecordInput
from tests.units.records.raw_batches import inputs, raw_batch, raw_record
from tests.units.records.twins import BUILT, using

pa: Any = pytest.importorskip("pyarrow")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows_of(records: list[RecordInput], first_offset: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": value,
            "offset": first_offset + index,
            "timestamp": timestamp,
            "timestamp_type": 0,
            "headers": [{"key": name, "value": data} for name, data in headers] or None,
        }
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]


def arrays_of(records: list[RecordInput], large: bool = False) -> tuple[Any, Any, Any, Any]:
    rows = rows_of(records)
    binary = pa.large_binary() if large else pa.binary()
    return (
        pa.array([row["key"] for row in rows], binary),
        pa.array([row["value"] for row in rows], binary),
        pa.array([row["headers"] for row in rows], pa.large_list(HEADERS.value_type) if large else HEADERS),
        pa.array([row["timestamp"] for row in rows], pa.int64()),
    )


def numbered(batches: list[bytearray]) -> list[bytearray]:
    offset = 0
    for batch in batches:
        stamp_offsets(batch, 0, offset, 0)
        offset = read_header(batch).next_offset
    return batches


@pytest.mark.parametrize("twin_name", BUILT)
@given(st.lists(inputs, max_size=4), st.sampled_from(Codec))
def test_columns_hold_what_the_batches_hold(twin_name: str, groups: list[list[RecordInput]], codec: Codec) -> None:
    with using(twin_name):
        batches = numbered([encode_batch(group, codec) for group in groups])
        table = batches_to_columns([b"".join(batches[:2]), *batches[2:]], with_headers=True)
    table.validate(full=True)
    assert table.to_pylist() == rows_of([record for group in groups for record in group])


@pytest.mark.parametrize("twin_name", BUILT)
@given(inputs, st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(70, 300), st.sampled_from(Codec))
def test_batches_hold_what_the_columns_hold(
    twin_name: str, records: list[RecordInput], large: bool, before: int, after: int, max_bytes: int, codec: Codec
) -> None:
    end = max(before, len(records) - after)
    arrays = [array[before:end] for array in arrays_of(records, large)]
    with using(twin_name):
        batches = numbered(columns_to_batches(*arrays, default_timestamp=0, codec=codec, max_batch_bytes=max_bytes))
    kept = records[before:end]
    read = [record for batch in batches for record in decode_batch(batch)]
    assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in read] == kept
    if codec == Codec.NONE:
        assert all(len(batch) <= max_bytes or read_header(batch).record_count == 1 for batch in batches)
        if kept and len(batches) == 1:
            assert batches[0] == encode_batch(kept, leader_epoch=0)


def test_twins_make_the_same_batches() -> None:
    records: list[RecordInput] = [
        (1000 + i, b"k%d" % i, None if i % 3 else b"v" * i, (("h", b"x"),) * (i % 4)) for i in range(50)
    ]
    made = []
    for twin in BUILT:
        with using(twin):
            made.append(columns_to_batches(*arrays_of(records), default_timestamp=0, max_batch_bytes=500))
    assert len(made[0]) > 1
    assert all(batches == made[0] for batches in made)


def test_rows_are_cut_to_the_offsets_asked_for(twin: str) -> None:
    records: list[RecordInput] = [(index, b"k", b"v", ()) for index in range(4)]
    buffer = b"".join(numbered([encode_batch(records), encode_batch(records, Codec.ZSTD), encode_batch(records)]))
    assert batches_to_columns([buffer], 2, 9)["offset"].to_pylist() == [2, 3, 4, 5, 6, 7, 8]
    assert batches_to_columns([buffer], 12).num_rows == 0
    assert batches_to_columns([buffer + buffer[:70]])["offset"].to_pylist() == list(range(12))


def test_columns_without_rows_have_the_same_types(twin: str) -> None:
    table = batches_to_columns([], with_headers=True)
    table.validate(full=True)
    assert table.schema == batches_to_columns([encode_batch([(1, b"k", None, ())])], with_headers=True).schema
    assert table.schema.names == ["key", "value", "offset", "timestamp", "timestamp_type", "headers"]
    assert batches_to_columns([]).schema.names == table.schema.names[:-1]


def test_log_append_time_and_control_batches_are_honoured(twin: str) -> None:
    stamped = encode_batch([(1, b"k", b"v", ()), (2, b"k", b"v", ())])
    stamp_append_time(stamped, 0, 99)
    control = encode_batch([marker_record(ControlMarker(ControlType.ABORT, 0), 5)], is_control=True)
    table = batches_to_columns(numbered([stamped, control, encode_batch([(3, None, None, ())])]))
    assert table["offset"].to_pylist() == [0, 1, 3]
    assert table["timestamp"].to_pylist() == [99, 99, 3]
    assert table["timestamp_type"].to_pylist() == [1, 1, 0]


def test_damaged_batches_are_refused(twin: str) -> None:
    with pytest.raises(CorruptMessageError):
        batches_to_columns([raw_batch(raw_record(0), 1, crc=1)])
    with pytest.raises(InvalidRecordError):
        batches_to_columns([raw_batch(raw_record(0, key_length=99), 1)])
    with pytest.raises(InvalidRecordError):
        batches_to_columns([raw_batch(raw_record(0), 2)])


def test_missing_columns_are_null_and_missing_times_the_default(twin: str) -> None:
    (batch,) = columns_to_batches(
        None, pa.array([b"a", None]), None, pa.array([None, 7], pa.int64()), default_timestamp=55
    )
    assert [(r.timestamp_ms, r.key, r.value) for r in decode_batch(batch)] == [(55, None, b"a"), (7, None, None)]
    (batch,) = columns_to_batches(pa.array(["é"]), pa.nulls(1), pa.nulls(1), pa.nulls(1), default_timestamp=1)
    assert [(r.timestamp_ms, r.key, r.value) for r in decode_batch(batch)] == [(1, "é".encode(), None)]
    assert columns_to_batches(None, pa.array([], pa.binary()), default_timestamp=1) == []


def test_timestamps_of_any_unit_become_milliseconds(twin: str) -> None:
    for unit, value in (("s", 2), ("ms", 2000), ("us", 2_000_999), ("ns", 2_000_999_999)):
        times = pa.array([value], pa.timestamp(unit, tz="UTC"))
        (batch,) = columns_to_batches(None, pa.array([b"v"]), None, times, default_timestamp=0)
        assert decode_batch(batch)[0].timestamp_ms == 2000


def test_chunked_columns_are_taken(twin: str) -> None:
    values = pa.chunked_array([pa.array([b"a"]), pa.array([b"b", None])])
    (batch,) = columns_to_batches(values, values, default_timestamp=0)
    assert [r.value for r in decode_batch(batch)] == [b"a", b"b", None]


def test_sequence_numbers_go_on_from_batch_to_batch_and_wrap(twin: str) -> None:
    values = pa.array([b"x" * 30] * 6)
    batches = columns_to_batches(
        None,
        values,
        default_timestamp=0,
        max_batch_bytes=150,
        producer_id=4,
        producer_epoch=0,
        base_sequence=(1 << 31) - 3,
    )
    assert [(h.base_sequence, h.record_count) for h in map(read_header, batches)] == [
        ((1 << 31) - 3, 2),
        ((1 << 31) - 1, 2),
        (1, 2),
    ]


def test_columns_that_do_not_fit_together_are_refused(twin: str) -> None:
    with pytest.raises(ValueError, match="one length"):
        columns_to_batches(pa.array([b"a"]), pa.array([b"a", b"b"]), default_timestamp=0)
    with pytest.raises(ValueError, match="at least one column"):
        columns_to_batches(None, None, default_timestamp=0)
    with pytest.raises(ValueError, match="list<struct"):
        columns_to_batches(pa.array([b"a"]), None, pa.array([[1]]), default_timestamp=0)


def test_a_header_without_key_is_refused(twin: str) -> None:
    for header in ({"key": None, "value": b"x"}, None):
        with pytest.raises(ValueError, match="no key"):
            columns_to_batches(pa.array([b"a"]), None, pa.array([[header]], HEADERS), default_timestamp=0)


@pytest.mark.parametrize("offsets", [[0, 99], [3, 1], [-1, 2], [0, 4]])
def test_arrays_whose_offsets_lead_out_of_their_data_are_refused(twin: str, offsets: list[int]) -> None:
    data = pa.array(offsets, pa.int32()).buffers()[1]
    source = records_codec.Source(None, data, b"abc", 0, 1, False)
    with pytest.raises(ValueError, match="lead out"):
        records_codec.ColumnWriter(1, source, None, None, None, None, None, None).encode(bytearray(), 0, 0, 1000)


def test_buffers_shorter_than_the_array_are_refused(twin: str) -> None:
    for arguments in (
        (b"", bytes(8), b"", 0, 1, False),
        (None, bytes(4), b"", 0, 1, False),
        (None, bytes(8), b"", 1, 1, False),
        (None, bytes(8), b"", 0, 1, True),
        (None, None, bytes(7), 0, 1, False),
        (None, bytes(8), b"", -1, 1, False),
    ):
        with pytest.raises(ValueError, match=r"shorter|fewer|no such"):
            records_codec.Source(*arguments)
    flags = records_codec.Source(None, None, None, 0, 1, False)
    with pytest.raises(ValueError, match="needs offsets"):
        records_codec.ColumnWriter(1, flags, None, None, None, None, None, None)
    with pytest.raises(ValueError, match="needs numbers"):
        records_codec.ColumnWriter(1, None, None, None, None, None, None, flags)
