"""Segments of formats v0 and v1 are rewritten: the same records at the same offsets, and whole at every moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.interchange.old_segments import convert_partition, has_old_formats, new_batches
from jesenska.log.disk.files import FileLayer
from jesenska.records import codec as records_codec
from jesenska.records.batch import iter_headers
from jesenska.records.compression import compress
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.records.message_set import decode_message_set
from jesenska.records.record import Record
from tests.units.records.old_messages import OLD_CODECS, Row, message_set

_NAME = f"{0:020d}"
_ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**40), st.one_of(st.none(), st.binary(max_size=5)), st.one_of(st.none(), st.binary(max_size=40))
    ),
    max_size=8,
)
#: Format (2: a batch), codec, rows.
_PIECES = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(OLD_CODECS), _ROWS.filter(bool)), max_size=8)


def _segment(pieces: list[tuple[int, Codec, list[Row]]]) -> tuple[bytes, list[Record]]:
    """Returns a segment's content, and its records."""
    content, records = bytearray(), list[Record]()
    offset = 0
    for magic, codec, rows in pieces:
        if magic == 2:
            piece = encode_batch([(*row, ()) for row in rows], codec, base_offset=offset)
            records += decode_batches(piece)
        else:
            piece = message_set(rows, magic, codec, offset)
            records += decode_message_set(piece)
        content += piece
        offset += len(rows) + 2  # as compaction leaves it
    return bytes(content), records


@given(_PIECES)
def test_every_record_is_there_once_with_all_that_it_had(pieces: list[tuple[int, Codec, list[Row]]]) -> None:
    content, records = _segment(pieces)
    converted = b"".join(new_batches(memoryview(content)))
    assert list(decode_batches(converted)) == records
    assert all(header.magic == 2 for _, header in iter_headers(converted))
    # Batches that were there are the same, byte for byte.
    assert b"".join(new_batches(memoryview(converted))) == converted


def test_messages_that_were_not_compressed_are_put_together_up_to_a_size() -> None:
    content, _ = _segment([(1, Codec.NONE, [(5, b"k", b"v" * 1000)] * 40)])
    headers = [header for _, header in iter_headers(b"".join(new_batches(memoryview(content))))]
    assert [header.record_count for header in headers] == [15, 15, 10]
    assert max(header.size_bytes for header in headers) < 17_000


def test_log_append_time_is_kept() -> None:
    messages = bytearray()
    for offset, when in enumerate((10, 10, 20)):
        records_codec.append_message(messages, offset, 1, 8, when, None, b"v")
    inside = message_set([(1, None, b"a"), (2, None, b"b")], 1)
    records_codec.append_message(messages, 4, 1, 8 | Codec.GZIP, 30, None, compress(Codec.GZIP, inside))
    found = b"".join(new_batches(memoryview(messages)))
    assert list(decode_batches(found)) == decode_message_set(messages)
    assert [record.timestamp_ms for record in decode_batches(found)] == [10, 10, 20, 30, 30]
    assert all(header.has_log_append_time for _, header in iter_headers(found))


@pytest.mark.parametrize("end", [b"", bytes(200), b"\0" * 8 + b"\0\0\0\x50" + b"abc"])
def test_what_is_no_message_at_the_end_stays(end: bytes) -> None:
    """Zeros of a preallocated file, and a message that was written in part. Recovery handles both."""
    content, records = _segment([(1, Codec.NONE, [(1, None, b"v")]), (2, Codec.NONE, [(1, None, b"w")])])
    converted = b"".join(new_batches(memoryview(content + end)))
    assert converted.endswith(end)
    assert list(decode_batches(converted[: len(converted) - len(end)])) == records


class _Stops(Exception):
    """The machine went down."""


class _StopsAt(FileLayer):
    """A disk that fails at one of its operations."""

    def __init__(self, operation: int) -> None:
        super().__init__()
        self.left = operation

    def _next(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _Stops

    def unlink(self, path: Path) -> None:
        self._next()
        super().unlink(path)

    def rename(self, source: Path, target: Path) -> None:
        self._next()
        super().rename(source, target)

    def write_all(self, descriptor: int, data: object, position: int) -> None:
        self._next()
        super().write_all(descriptor, data, position)  # type: ignore[arg-type]

    def fsync(self, descriptor: int) -> None:
        self._next()
        super().fsync(descriptor)


def _partition(directory: Path) -> tuple[Path, list[Record]]:
    partition = directory / "t-0"
    partition.mkdir(parents=True)
    content, records = _segment([(0, Codec.GZIP, [(1, None, b"v")] * 3), (1, Codec.NONE, [(1, None, b"w")] * 3)])
    (partition / f"{_NAME}.log").write_bytes(content)
    (partition / f"{_NAME}.index").write_bytes(bytes(8))
    (partition / f"{_NAME}.timeindex").write_bytes(bytes(12))
    return partition, records


def test_a_crash_at_any_moment_leaves_the_old_segment_or_the_new_one(tmp_path: Path) -> None:
    ended = False
    for operation in range(50):
        partition, records = _partition(tmp_path / str(operation))
        try:
            convert_partition(partition, _StopsAt(operation), lambda size: None)
            ended = True
        except _Stops:
            pass
        content = (partition / f"{_NAME}.log").read_bytes()
        is_new = not has_old_formats(partition)
        assert (list(decode_batches(content)) if is_new else list(_mixed(content))) == records
        if is_new:
            assert not list(partition.glob("*index")), "indexes of the old positions"
        if ended:
            assert [path.name for path in partition.iterdir()] == [f"{_NAME}.log"]
            assert operation > 5
            return
    pytest.fail("it never ended")


def _mixed(content: bytes) -> list[Record]:
    return list(decode_batches(b"".join(new_batches(memoryview(content)))))


def test_the_time_of_the_file_is_kept(tmp_path: Path) -> None:
    """Retention uses this time for records without timestamps."""
    partition, _ = _partition(tmp_path)
    path = partition / f"{_NAME}.log"
    os.utime(path, (1000, 1000))
    assert convert_partition(partition, FileLayer(), lambda size: None) == 1
    assert path.stat().st_mtime == 1000
    assert convert_partition(partition, FileLayer(), lambda size: None) == 0


def test_a_message_that_is_damaged_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    partition, _ = _partition(tmp_path)
    path = partition / f"{_NAME}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(JesenskaError, match=r"cannot be read .*: start Kafka with it once more"):
        convert_partition(partition, FileLayer(), lambda size: None)
    assert path.read_bytes() == content
    assert len(list(partition.iterdir())) == 3


def test_a_segment_is_known_by_how_it_begins_and_ends(tmp_path: Path) -> None:
    row: Row = (1, None, b"v")
    new, old = (2, Codec.NONE, [row]), (1, Codec.NONE, [row])
    for number, (pieces, indexed, shows) in enumerate(
        [
            ([new, new], 1, False),
            ([old, new], 1, True),
            ([new, new, old], 1, True),
            ([new, old], 0, True),  # without an entry everything is looked at
            ([new, old, new], -1, True),  # an entry that fits no batch
            ([], 0, False),
        ]
    ):
        partition = tmp_path / f"t-{number}"
        partition.mkdir()
        content, _ = _segment(pieces)
        (partition / f"{_NAME}.log").write_bytes(content + bytes(50))
        position = len(_segment(pieces[:indexed])[0]) if indexed >= 0 else 3
        (partition / f"{_NAME}.index").write_bytes((1).to_bytes(4, "big") + position.to_bytes(4, "big") + bytes(16))
        assert has_old_formats(partition) == shows, number
        assert convert_partition(partition, FileLayer(), lambda size: None) == shows
