"""The records of starts in a log directory."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_starts import (
    FILE_NAME,
    DirectoryStarts,
    decode_directory_starts,
    encode_directory_starts,
)
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from tests.units.log.log_harness import NOW_MS

CLUSTER = "BkqKvcOWQuuOhwNvbYx_og"
ONE, OTHER, FIRST, SECOND = (uuid.UUID(int=number) for number in range(1, 5))
KEY = TopicPartition("orders", 0)


def _started(*paths: Path) -> LogDirectories:
    directories = LogDirectories(list(paths))
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(lambda key, topic_id: LogConfig(), NOW_MS)
    return directories


def test_the_file_is_read_as_it_was_written() -> None:
    starts = DirectoryStarts(ONE).then(FIRST).then(SECOND)
    assert starts == DirectoryStarts(ONE, (SECOND, FIRST))
    assert encode_directory_starts(starts) == (
        b'{"version":0,"directory":"AAAAAAAAAAAAAAAAAAAAAQ","starts":["AAAAAAAAAAAAAAAAAAAABA","AAAAAAAAAAAAAAAAAAAAAw"]}'
    )
    assert decode_directory_starts(encode_directory_starts(starts)) == starts


def test_the_last_twenty_starts_are_kept() -> None:
    starts = DirectoryStarts(ONE)
    for number in range(30):
        starts = starts.then(uuid.UUID(int=number))
    assert starts.starts == tuple(uuid.UUID(int=number) for number in range(29, 9, -1))


@given(
    st.binary()
    | st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ).map(json.dumps)
)
def test_what_is_not_of_the_format_is_a_value_error(data: bytes | str) -> None:
    with pytest.raises(ValueError):
        decode_directory_starts(data.encode() if isinstance(data, str) else data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"version":1,"directory":"AAAAAAAAAAAAAAAAAAAAAQ","starts":[]}',
        b'{"version":0,"directory":"x","starts":[]}',
    ],
)
def test_a_file_that_is_not_understood_says_nothing(
    tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _started(tmp_path).close()
    (tmp_path / FILE_NAME).write_bytes(data)
    directories = _started(tmp_path)
    assert [directory.starts for directory in directories.directories] == [None]
    assert f"{tmp_path / FILE_NAME} cannot be read" in caplog.text
    directories.close()


def test_each_directory_keeps_its_id_and_knows_the_starts_on_it(tmp_path: Path) -> None:
    directories = _started(tmp_path / "a")
    assert directories.had_before == []
    assert directories.started(FIRST, iter([ONE]).__next__) == [ONE]
    directories.close()
    directories = _started(tmp_path / "a", tmp_path / "b")
    first = directories.directories[0]
    assert directories.had_before == [first]
    assert first.starts == DirectoryStarts(ONE, (FIRST,))
    assert directories.started(SECOND, iter([OTHER]).__next__) == [ONE, OTHER]
    directories.close(clean=False)
    directories = _started(tmp_path / "a", tmp_path / "b")
    assert [directory.starts for directory in directories.had_before] == [
        DirectoryStarts(ONE, (SECOND, FIRST)),
        DirectoryStarts(OTHER, (SECOND,)),
    ]
    directories.close()


def test_a_directory_that_does_not_take_the_start_is_offline(tmp_path: Path) -> None:
    directories = _started(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a" / FILE_NAME).mkdir()
    ids = directories.started(FIRST, iter([ONE, OTHER]).__next__)
    assert [directory.is_offline for directory in directories.directories] == [True, False]
    assert ids == [OTHER]
    directories.close()


def test_logs_that_are_older_are_so_in_later_starts_too(tmp_path: Path) -> None:
    directories = _started(tmp_path)
    directories.create(KEY, None, LogConfig(), NOW_MS)
    directories.close()
    directories = _started(tmp_path)
    (directory,) = directories.directories
    directories.lose(directory, [KEY])
    assert list(directories.cut_logs) == [KEY]
    directories.close(clean=False)
    for _ in range(2):
        directories = _started(tmp_path)
        assert list(directories.cut_logs) == [KEY]
        directories.close()
    directories = _started(tmp_path)
    directories.take_as_it_is(KEY)
    directories.close()
    directories = _started(tmp_path)
    assert directories.cut_logs == {}
    directories.close()


def test_the_partitions_that_checkpoints_name_are_known_when_their_logs_are_gone(tmp_path: Path) -> None:
    directories = _started(tmp_path)
    directories.create(KEY, None, LogConfig(), NOW_MS)
    assert directories.in_checkpoints == set()
    directories.close()
    shutil.rmtree(tmp_path / str(KEY))
    directories = _started(tmp_path)
    assert (directories.in_checkpoints, directories.logs) == ({KEY}, {})
    directories.close()
