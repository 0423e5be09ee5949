"""Fetched bytes as the rows for Spark: the size of each piece, headers, chosen columns, and records of formats v0 and
v1."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import SOURCE_ROWS_BYTES
from jesenska.pipeline.connector.columns import RowMaker
from jesenska.pipeline.connector.fetching import Chunk, whole_batches
from jesenska.pipeline.connector.options import COLUMNS, COLUMNS_WITH_HEADERS
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.records.record import RecordInput
from jesenska.wire.messages.k01_fetch import FetchResponsePartition
from tests.units.records.old_messages import OLD_CODECS, message_set

KEY = TopicPartition("t", 3)
MEGABYTE = 1024 * 1024


def _chunk(data: bytes, start: int = 0, end: int = 10**9) -> Chunk:
    _, buffers = whole_batches(memoryview(data), FetchResponsePartition(), False)
    return Chunk(KEY, start, end, buffers)


def _zeros(offset: int, megabytes: int) -> bytes:
    records: list[RecordInput] = [(1, None, bytes(MEGABYTE // 4), ()) for _ in range(4 * megabytes)]
    return bytes(encode_batch(records, Codec.ZSTD, base_offset=offset))


def test_a_few_bytes_that_hold_gigabytes_come_in_pieces() -> None:
    data = _zeros(0, 100)
    assert len(data) < MEGABYTE
    sizes, offsets = [], []
    for batch in RowMaker().rows(_chunk(data)):
        sizes.append(batch.nbytes)
        offsets += batch.column("offset").to_pylist()
    assert max(sizes) <= SOURCE_ROWS_BYTES
    assert offsets == list(range(400))


def test_no_more_than_a_few_batches_are_decompressed_at_a_time() -> None:
    data = b"".join(_zeros(40 * number, 10) for number in range(30))
    chunk = _chunk(data)
    rows = 0
    tracemalloc.start()
    for batch in RowMaker().rows(chunk):
        rows += batch.num_rows
        del batch
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == 1200
    assert peak < 100 * MEGABYTE  # of 300


def test_one_row_larger_than_a_piece_comes_by_itself() -> None:
    records: list[RecordInput] = [(1, None, bytes(size), ()) for size in (10, 2 * SOURCE_ROWS_BYTES, 10)]
    batches = list(RowMaker().rows(_chunk(bytes(encode_batch(records)))))
    assert [row for batch in batches for row in batch.column("offset").to_pylist()] == [0, 1, 2]
    assert all(batch.num_rows == 1 or batch.nbytes <= SOURCE_ROWS_BYTES for batch in batches)


def test_records_without_headers_have_an_empty_array_of_them() -> None:
    records: list[RecordInput] = [(1, None, b"x", ()), (1, None, b"x", (("a", b"1"), ("b", None))), (1, None, b"x", ())]
    (batch,) = RowMaker(COLUMNS_WITH_HEADERS).rows(_chunk(bytes(encode_batch(records))))
    headers = batch.column("headers")
    assert headers.null_count == 0
    assert headers.to_pylist() == [[], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]


@pytest.mark.parametrize("columns", [("value",), ("offset", "key"), ("headers", "timestamp", "topic")])
def test_only_the_chosen_columns_are_made_in_their_order(columns: tuple[str, ...]) -> None:
    data = bytes(encode_batch([(5, b"k", b"v", (("a", b"1"),))]))
    (some,) = RowMaker(columns).rows(_chunk(data))
    (whole,) = RowMaker(COLUMNS_WITH_HEADERS).rows(_chunk(data))
    assert tuple(some.schema.names) == columns
    assert some == whole.select(list(columns))


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_old_formats_are_rows_like_others(magic: int, codec: Codec) -> None:
    rows = [
        (1000 + number, b"k%d" % number if number % 2 else None, None if number == 3 else b"v" * number)
        for number in range(6)
    ]
    data = bytes(message_set(rows, magic, codec, first_offset=10))
    found = [row for batch in RowMaker().rows(_chunk(data, 11, 15)) for row in batch.to_pylist()]
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (10 + number, *rows[number][1:]) for number in range(1, 5)
    ]
    assert {(row["topic"], row["partition"]) for row in found} == {("t", 3)}
    times = [(round(row["timestamp"].timestamp() * 1000), row["timestampType"]) for row in found]
    assert times == [(1000 + number, 0) if magic else (-1, -1) for number in range(1, 5)]


def test_a_log_that_went_through_all_formats_is_read_through() -> None:
    old = [(1000, b"k", b"v")] * 3
    data = b"".join(
        [
            message_set(old, 0, first_offset=0),
            message_set(old, 1, Codec.GZIP, first_offset=3),
            encode_batch([(1, b"k", b"v", ())] * 3, base_offset=6),
            message_set(old, 1, first_offset=9),
            encode_batch([(1, b"k", b"v", ())] * 3, base_offset=12),
        ]
    )
    following, buffers = whole_batches(memoryview(data), FetchResponsePartition(), True)
    assert following == 15
    assert sum(map(len, buffers)) == len(data)
    maker = RowMaker(COLUMNS)
    assert [
        offset for batch in maker.rows(Chunk(KEY, 0, 99, buffers)) for offset in batch.column("offset").to_pylist()
    ] == list(range(15))
    cut: Any = whole_batches(memoryview(data)[:-1], FetchResponsePartition(), False)
    assert cut[0] == 12  # a part at the end is left for the next fetch
    old_only = message_set(old, 1, first_offset=0)
    assert whole_batches(memoryview(bytes(old_only))[:-1], FetchResponsePartition(), False)[0] == 2
