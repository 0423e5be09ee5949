"""The compiled codec and the pure one have the same bytes, the same values and the same errors for every input."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.errors import KafkaError
from jesenska.records import codec
from jesenska.records.batch import Codec, read_header, stamp_offsets, verify_crc
from jesenska.records.check import CheckRules, check_batches
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from jesenska.records.faults import RecordErrors
from jesenska.records.pure import _pcolumns, _precords
from jesenska.records.record import RecordInput
from tests.profiles import examples
from tests.units.records.raw_batches import inputs, with_right_crc
from tests.units.records.twins import BUILT, COMPILED, using

both = pytest.mark.skipif(COMPILED is None, reason="the compiled codec is not built")


def outcome(function: Any, *arguments: Any) -> Any:
    """Returns the result of a call, or the visible parts of its error."""
    try:
        return function(*arguments)
    except KafkaError as error:
        return type(error), error.message, error.record_errors if isinstance(error, RecordErrors) else ()
    except (OverflowError, ValueError, TypeError, IndexError) as error:
        return type(error)


def on_each(function: Any, *arguments: Any) -> list[Any]:
    results = []
    for twin in BUILT:
        with using(twin):
            results.append(outcome(function, *arguments))
    return results


def check(batch: bytes, rules: CheckRules) -> Any:
    buffer = bytearray(batch)
    return check_batches(buffer, rules), buffer


RULES = st.builds(
    CheckRules,
    key_required=st.booleans(),
    log_append_time=st.booleans(),
    earliest_timestamp_ms=st.sampled_from([-(1 << 63), 0, 1 << 49]),
    latest_timestamp_ms=st.sampled_from([(1 << 63) - 1, 1 << 49]),
    max_message_bytes=st.sampled_from([1_000_000, 200]),
    decompressed_max_bytes=st.sampled_from([1_000_000, 100]),
)


@both
@given(inputs, st.sampled_from(Codec))
def test_they_write_the_same_bytes(records: list[RecordInput], codec: Codec) -> None:
    first, second = on_each(encode_batch, records, codec)
    assert first == second
    assert isinstance(first, bytearray)


@both
@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=4))
def test_they_write_times_alike_however_far_apart_they_are(times: list[int]) -> None:
    first, second = on_each(encode_batch, [(time, None, b"x", ()) for time in times])
    assert first == second
    for twin in BUILT:
        with using(twin):
            assert [record.timestamp_ms for record in decode_batch(first)] == times


@pytest.mark.parametrize("twin_name", BUILT)
def test_the_append_time_leaves_what_was_stamped_before_it(twin_name: str) -> None:
    with using(twin_name):
        buffer = encode_batch([(1_000, b"key", b"value", ())])
        header = read_header(buffer)
        stamp_offsets(buffer, 0, 1234, 7)
        changed = codec.set_max_timestamp(buffer, 0, header, 2_000, True)
        assert changed == read_header(buffer)
        assert (changed.base_offset, changed.partition_leader_epoch, changed.max_timestamp) == (1234, 7, 2_000)
        verify_crc(buffer)


@both
@given(inputs, st.sampled_from(Codec), RULES)
def test_they_judge_whole_batches_alike(records: list[RecordInput], codec: Codec, rules: CheckRules) -> None:
    first, second = on_each(check, encode_batch(records, codec), rules)
    assert first == second


@both
@settings(max_examples=examples(5))
@given(inputs, st.data(), RULES)
def test_they_judge_damaged_batches_alike(records: list[RecordInput], data: st.DataObject, rules: CheckRules) -> None:
    batch = encode_batch(records, data.draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.SNAPPY])))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(21 if data.draw(st.booleans()) else 0, len(batch) - 1))
        kind = data.draw(st.integers(0, 3))
        if kind == 0:
            batch[position] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == 1:
            batch[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == 2:
            del batch[max(position, 61) :]
        else:
            batch[position:position] = data.draw(st.binary(max_size=9))
    mended = with_right_crc(batch) if len(batch) >= 61 else batch
    first, second = on_each(check, mended, rules)
    assert first == second
    first, second = on_each(decode_batch, mended)
    assert first == second


@both
@settings(max_examples=examples(5))
@given(st.binary(max_size=120), st.integers(0, 4), st.booleans())
def test_they_read_nonsense_alike(body: bytes, count: int, append_time: bool) -> None:
    assert COMPILED is not None
    results = [outcome(module.decode_records, body, count, 5, 6, 7, append_time) for module in (COMPILED, _precords)]
    assert results[0] == results[1]
    walks = []
    for module in (COMPILED, _precords):
        walker = module.Walker(count, 5, True, True, append_time, 0, 1 << 40)
        walks.append((outcome(walker.feed, body), outcome(walker.finish)))
    assert walks[0][0] == walks[1][0]
    if walks[0][0] is None:
        assert walks[0] == walks[1]


@pytest.mark.parametrize("twin_name", BUILT)
@given(inputs, st.data())
def test_the_walker_does_not_care_where_pieces_are_cut(
    twin_name: str, records: list[RecordInput], data: st.DataObject
) -> None:
    body = bytes(encode_batch(records)[61:])
    if data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(body) - 1))
        body = body[:position] + data.draw(st.binary(max_size=3)) + body[position + 1 :]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    module = COMPILED if twin_name == "compiled" else _precords
    assert module is not None

    def walk(pieces: list[bytes]) -> Any:
        walker = module.Walker(len(records), records[0][0], True, True, False, 0, 1 << 49)
        for piece in pieces:
            walker.feed(piece)
        return walker.finish()

    pieces = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    whole = outcome(walk, [body])
    assert outcome(walk, pieces) == whole
    assert outcome(walk, [body[index : index + 1] for index in range(len(body))]) == whole


@both
@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 300))
def test_the_crc_is_the_same_by_instruction_by_tables_and_by_library(data: bytes, start: int, end: int) -> None:
    assert COMPILED is not None
    crc = _precords.crc32c(data[start:end])
    assert COMPILED.crc32c(data, start, end) == crc
    assert COMPILED.crc32c_by_tables(data, start, end) == crc
    assert _precords.crc32c(data, start, end) == crc


@both
@given(st.binary(max_size=300), st.integers(1, 40), st.integers(0, 20))
def test_the_crc_of_messages_is_zlibs(data: bytes, times: int, start: int) -> None:
    assert COMPILED is not None
    piece = memoryview(data * times)[start:]
    assert COMPILED.crc32(piece) == COMPILED.crc32(piece, True) == zlib.crc32(piece)


@both
@given(st.binary(min_size=1, max_size=300), st.integers(700, 20_000), st.integers(0, 9))
def test_the_crc_of_long_pieces_is_the_same_in_strides_and_byte_by_byte(pattern: bytes, size: int, start: int) -> None:
    """Around 3 x 256 and 3 x 2048 bytes the compiled one takes three strides side by side."""
    assert COMPILED is not None
    data = (pattern * (size // len(pattern) + 1))[:size]
    crc = _precords.crc32c(data[start:])
    assert COMPILED.crc32c(data, start, size) == crc
    assert COMPILED.crc32c_by_tables(data, start, size) == crc


def test_the_crc_is_castagnolis(twin: str) -> None:
    with using(twin):
        from jesenska.records import codec

        assert codec.crc32c(b"123456789") == 0xE3069283
        assert codec.crc32c(b"") == 0


COLUMNS = [
    "rows",
    "header_rows",
    "header_nulls",
    "offsets",
    "timestamps",
    "timestamp_types",
    "header_offsets",
    "header_validity",
]


def columns_of(reader: Any) -> Any:
    fields = [getattr(reader, name) for name in COLUMNS]
    for column in (reader.key, reader.value, reader.header_key, reader.header_value):
        fields += [column.offsets, column.data, column.validity, column.nulls]
    return fields


@both
@given(
    st.lists(st.tuples(inputs, st.binary(max_size=5), st.booleans()), max_size=4),
    st.booleans(),
    st.integers(0, 20),
    st.integers(0, 30),
)
def test_they_fill_the_same_columns(
    batches: list[tuple[list[RecordInput], bytes, bool]], with_headers: bool, start: int, stop: int
) -> None:
    assert COMPILED is not None
    readers = [module.ColumnReader(with_headers) for module in (COMPILED, _pcolumns)]
    offset = 0
    for records, junk, append_time in batches:
        body = bytes(encode_batch(records)[61:]) + junk
        first, second = [
            outcome(reader.add, body, len(records), offset, records[0][0], 77, append_time, start, stop)
            for reader in readers
        ]
        assert first == second
        assert columns_of(readers[0]) == columns_of(readers[1])
        offset += len(records)
