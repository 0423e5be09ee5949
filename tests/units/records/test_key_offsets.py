"""The records that survive a compaction: the compiled table of keys and its twin have the same results, and both those
of a model in a few lines."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import CorruptMessageError, InvalidRecordError
from jesenska.records import codec
from jesenska.records.decode import decode_batches
from jesenska.records.encode import reencode_batch
from jesenska.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
    read_header,
)
from jesenska.records.record import Record
from tests.units.records.twins import BUILT, COMPILED, using

SECRET = bytes(range(16))
NOW_MS, RETENTION_MS = 1_000_000, 5_000
#: A delete horizon that has passed, and one that has not.
PASSED_MS, COMING_MS = NOW_MS, NOW_MS + 1


def record_of(
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> Record:
    return Record(offset, timestamp_ms, TimestampType.CREATE_TIME, key, value, headers)


class Made(NamedTuple):
    records: tuple[Record, ...]
    last_offset: int
    attributes: int
    horizon_ms: int | None
    producer_id: int


@st.composite
def made_batches(draw: st.DrawFn) -> list[Made]:
    batches: list[Made] = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 12))):
        base = offset
        records = []
        for _ in range(draw(st.integers(0, 4))):
            offset += draw(st.integers(0, 2))
            key = draw(st.sampled_from([None, b"", b"a", b"b", b"c" * 40, b"d"]))
            value = draw(st.sampled_from([None, b"", b"x" * 70]))
            headers = draw(st.sampled_from([(), (("h", b"1"), ("i", None))]))
            records.append(record_of(offset, draw(st.sampled_from([-1, 0, 77, NOW_MS, 2**40])), key, value, headers))
            offset += 1
        last_offset = max(offset - 1, base)
        horizon = draw(st.sampled_from([None, None, PASSED_MS, COMING_MS]))
        log_append_time = LOG_APPEND_TIME_BIT if draw(st.booleans()) else 0
        batches.append(
            Made(tuple(records), last_offset, int(log_append_time), horizon, draw(st.sampled_from([-1, 4, 5])))
        )
        offset = last_offset + 1 + draw(st.integers(0, 2))
    return batches


def bytes_of(made: Made) -> bytearray:
    base = made.records[0].offset if made.records else made.last_offset
    horizon = DELETE_HORIZON_BIT if made.horizon_ms is not None else 0
    return reencode_batch(
        made.records,
        base,
        made.last_offset - base,
        made.attributes | horizon,
        None if made.records else 55,
        base_timestamp=made.horizon_ms,
        leader_epoch=3,
        producer_id=made.producer_id,
        producer_epoch=0 if made.producer_id >= 0 else -1,
        base_sequence=7 if made.producer_id >= 0 else -1,
    )


def survivors(
    batches: list[Made], newest: dict[bytes, int], latest_offset: int, ends: list[int]
) -> list[tuple[Any, ...]]:
    """The model: returns the rest of each remaining batch: records, last offset, delete horizon, producer."""
    left: list[tuple[Any, ...]] = []
    for made in batches:
        over = made.horizon_ms is not None and made.horizon_ms <= NOW_MS
        kept = tuple(
            record
            for record in made.records
            if record.offset > latest_offset
            or (
                record.key is not None
                and record.offset >= newest.get(bytes(record.key), -1)
                and not (record.value is None and over)
            )
        )
        horizon = made.horizon_ms if kept else None
        if horizon is None and any(record.value is None for record in kept):
            horizon = NOW_MS + RETENTION_MS
        if kept or made.last_offset in ends:
            left.append((kept, made.last_offset, horizon, made.producer_id))
    return left


def told(whole: bytes | bytearray) -> list[tuple[Any, ...]]:
    result: list[tuple[Any, ...]] = []
    at = 0
    while at < len(whole):
        header = read_header(whole, at)
        records = tuple(decode_batches(bytes(whole[at : at + header.size_bytes])))
        horizon = header.base_timestamp if header.has_delete_horizon else None
        times = [record.timestamp_ms for record in records]
        assert header.partition_leader_epoch == 3
        assert header.has_log_append_time or not times or header.max_timestamp == max(-1, *times)
        result.append((records, header.last_offset, horizon, header.producer_id))
        at += header.size_bytes
    return result


def times_as_read(kept: tuple[Record, ...], log_append_time_ms: int | None) -> tuple[Record, ...]:
    if log_append_time_ms is None:
        return kept
    return tuple(
        record._replace(timestamp_ms=log_append_time_ms, timestamp_type=TimestampType.LOG_APPEND_TIME)
        for record in kept
    )


def compacted(
    twin: str, data: bytes, first_dirty: int, most: int, ends: list[int], room: int
) -> tuple[bytes, int, bool, int]:
    with using(twin):
        keys = codec.KeyOffsets(most + 3, most, SECRET)
        gone_through = keys.add_batches(data, 0, len(data), first_dirty)
        assert keys.is_full or gone_through == len(data)
        out = bytearray()
        at = 0
        target = bytearray(room)
        while at < len(data):
            taken, filled = keys.keep_batches(data, at, len(data), target, 0, NOW_MS, RETENTION_MS, array("q", ends))
            assert taken, "room for each batch alone was given"
            out += target[:filled]
            at += taken
        return bytes(out), keys.latest_offset, keys.is_full, len(keys)


@given(made_batches(), st.integers(0, 30), st.sampled_from([1, 2, 100]), st.data())
def test_what_stays_is_what_the_model_keeps(
    batches: list[Made], first_dirty: int, most: int, data: st.DataObject
) -> None:
    encoded = [bytes_of(made) for made in batches]
    whole = b"".join(encoded)
    ends = sorted(data.draw(st.sets(st.sampled_from([made.last_offset for made in batches])))) if batches else []
    room = max((len(batch) + 12 * 4 for batch in encoded), default=0) * data.draw(st.sampled_from([1, 3]))
    newest: dict[bytes, int] = {}
    latest_offset, is_full = -1, False
    for made in batches:
        if made.last_offset >= first_dirty:
            for record in made.records:
                if record.key is None or record.offset < first_dirty:
                    continue
                if bytes(record.key) not in newest and len(newest) == most:
                    is_full = True
                    break
                newest[bytes(record.key)] = record.offset
            if is_full:
                break
        latest_offset = made.last_offset
    expected = survivors(batches, newest, latest_offset, ends)
    outcomes = [compacted(twin, whole, first_dirty, most, ends, room) for twin in BUILT]
    assert all(outcome == outcomes[0] for outcome in outcomes)
    out, *facts = outcomes[0]
    assert facts == [latest_offset, is_full, len(newest)]
    by_end = {made.last_offset: read_header(batch) for made, batch in zip(batches, encoded, strict=True)}
    assert told(out) == [
        (
            times_as_read(kept, by_end[last].max_timestamp if by_end[last].has_log_append_time else None),
            last,
            horizon,
            producer,
        )
        for kept, last, horizon, producer in expected
    ]


@pytest.mark.parametrize("twin", BUILT)
def test_a_batch_of_which_all_stays_is_copied_byte_for_byte(twin: str) -> None:
    batch = bytes(reencode_batch([record_of(4, 9, b"k", b"v", ())], 4, 0, 0, leader_epoch=3))
    assert compacted(twin, batch, 0, 5, [], 1000)[0] == batch


@pytest.mark.parametrize("twin", BUILT)
@pytest.mark.parametrize("attributes", [int(Codec.LZ4), int(TRANSACTIONAL_BIT), int(CONTROL_BIT)])
def test_compressed_and_transactional_batches_are_the_callers(twin: str, attributes: int) -> None:
    plain = reencode_batch([record_of(4, 9, b"k", b"v", ())], 4, 0, 0)
    special = reencode_batch([record_of(5, 9, b"k", b"v", ())], 5, 0, attributes)
    with using(twin):
        keys = codec.KeyOffsets(5, 3, SECRET)
        assert keys.add_batches(plain + special + plain, 0, 2 * len(plain) + len(special), 0) == len(plain)
        assert (keys.latest_offset, keys.newest(b"k"), keys.newest(b"l")) == (4, 4, -1)
        assert keys.keep_batches(
            plain + special, 0, len(plain) + len(special), bytearray(500), 0, 0, 0, array("q")
        ) == (len(plain), len(plain))


@pytest.mark.parametrize("twin", BUILT)
def test_damage_is_refused_in_both_passes(twin: str) -> None:
    batch = reencode_batch([record_of(4, 9, b"k", b"v", ())], 4, 0, 0)
    flipped = bytearray(batch)
    flipped[-1] ^= 1
    short = bytearray(batch[HEADER_SIZE:-2])
    with using(twin):
        keys = codec.KeyOffsets(5, 3, SECRET)
        with pytest.raises(CorruptMessageError):
            keys.add_batches(flipped, 0, len(flipped), 0)
        with pytest.raises(CorruptMessageError):
            keys.keep_batches(flipped, 0, len(flipped), bytearray(500), 0, 0, 0, array("q"))
        with pytest.raises(InvalidRecordError):
            keys.add_records(short, 1, 0, 0)
        with pytest.raises(InvalidRecordError):
            keys.keep_records(short, 1, 0, 0, False, 0)
        with pytest.raises(InvalidRecordError):
            keys.add_records(batch[HEADER_SIZE:] * 2, 1, 0, 0)


@given(st.binary(max_size=60), st.integers(-3, 4))
def test_nonsense_ends_alike(body: bytes, count: int) -> None:
    def outcome(twin: str) -> tuple[Any, ...]:
        results: list[Any] = []
        with using(twin):
            keys = codec.KeyOffsets(9, 4, SECRET)
            for act in (
                lambda: keys.add_records(body, count, 10, 11),
                lambda: keys.keep_records(body, count, 10, 20, True, 30),
            ):
                try:
                    results.append(act())
                except InvalidRecordError as error:
                    results.append(str(error))
        return tuple(results)

    outcomes = [outcome(twin) for twin in BUILT]
    assert all(other == outcomes[0] for other in outcomes)


@pytest.mark.skipif(COMPILED is None, reason="the compiled codec is not built")
def test_the_hash_is_siphash_with_long_output() -> None:
    """The first two vectors of the authors' reference: the secret 00 01 … 0f, no input and the input 00."""
    assert COMPILED is not None
    assert COMPILED.siphash128(SECRET, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert COMPILED.siphash128(SECRET, bytes(range(1))).hex() == "da87c1d86b99af44347659119b22fc45"


@pytest.mark.parametrize("twin", BUILT)
def test_many_keys_are_told_apart(twin: str) -> None:
    records = [record_of(index, 0, b"key-%d" % (index % 7000), b"", ()) for index in range(20_000)]
    batch = reencode_batch(records, 0, len(records) - 1, 0)
    with using(twin):
        keys = codec.KeyOffsets(7778, 7000, SECRET)
        assert keys.add_batches(batch, 0, len(batch), 0) == len(batch)
        assert len(keys) == 7000
        assert all(keys.newest(b"key-%d" % index) == max(range(index, 20_000, 7000)) for index in range(0, 7000, 97))
