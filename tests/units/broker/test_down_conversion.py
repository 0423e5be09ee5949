"""Conversion of records to old formats: the results, and the use of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.regions import FileRegion
from jesenska.broker.fetching import down_conversion
from jesenska.broker.fetching.down_conversion import DownConversion
from jesenska.records.encode import encode_batch
from jesenska.records.message_set import decode_message_set
from jesenska.wire.messages.k01_fetch import FetchResponsePartition

_RECORDS, _VALUE_BYTES = 40, 10_000


class File:
    """An open file that does not count its users."""

    def __init__(self, path: Path) -> None:
        self._number = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self._number

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None:
        os.close(self._number)


def batches(letter: bytes) -> bytes:
    """400 KB in four batches."""
    return b"".join(
        bytes(
            encode_batch([(0, None, letter * _VALUE_BYTES, ())] * (_RECORDS // 4), base_offset=_RECORDS // 4 * number)
        )
        for number in range(4)
    )


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[bytes, File]]:
    found = {}
    for letter in (b"a", b"b", b"c"):
        (tmp_path / letter.decode()).write_bytes(batches(letter))
        found[letter] = File(tmp_path / letter.decode())
    yield found
    for file in found.values():
        file.close()


def convert(files: dict[bytes, File], letter: bytes) -> memoryview:
    answer = FetchResponsePartition()
    DownConversion(answer, FileRegion(files[letter], 0, len(batches(letter))), 0, 1).run()
    assert isinstance(answer.records, memoryview)
    return answer.records


def values(records: memoryview) -> set[bytes | None]:
    found = decode_message_set(records)
    assert len(found) == _RECORDS
    return {record.value for record in found}


def test_memory_of_an_answer_is_used_again_when_it_has_left_and_not_before(
    files: dict[bytes, File], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "_answers", down_conversion._Answers())
    first, second = convert(files, b"a"), convert(files, b"b")
    assert first.obj is not second.obj
    assert (values(first), values(second)) == ({b"a" * _VALUE_BYTES}, {b"b" * _VALUE_BYTES})
    part = second[100:200]  # of an answer that is still being sent
    memory = id(first.obj)
    first.release()
    third = convert(files, b"c")
    assert id(third.obj) == memory
    assert third.obj is not part.obj
    assert (values(third), values(second)) == ({b"c" * _VALUE_BYTES}, {b"b" * _VALUE_BYTES})


def test_a_small_answer_leaves_the_memory_to_large_ones(
    files: dict[bytes, File], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down_conversion, "_answers", down_conversion._Answers())
    large = convert(files, b"a")
    memory = id(large.obj)
    large.release()
    small = FetchResponsePartition()
    DownConversion(small, FileRegion(files[b"b"], 0, len(batches(b"b")) // 4), 0, 1).run()
    assert isinstance(small.records, memoryview)
    assert id(small.records.obj) != memory
    assert id(convert(files, b"c").obj) == memory
