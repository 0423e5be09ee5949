"""The failures that count as those of a log directory, and the work that is then not done there."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.log_directory import LogDirectory
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from tests.units.log.log_harness import NOW_MS
from tests.units.log.test_log_directories import CLUSTER, TOPIC_ID, append, known

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def two(tmp_path: Path, failed: list[LogDirectory] | None = None, files: FileLayer | None = None) -> LogDirectories:
    """Two directories with a log in each."""
    directories = LogDirectories(
        [tmp_path / "one", tmp_path / "two"], on_failure=None if failed is None else failed.append, files=files
    )
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig(), "a-0", "b-0"), NOW_MS)
    for topic_partition in (A, B):
        append(directories.create(topic_partition, TOPIC_ID, LogConfig(), NOW_MS))
    return directories


@pytest.mark.parametrize(
    ("number", "fails"),
    [
        (errno.EIO, True),
        (errno.EROFS, True),
        (errno.ESTALE, True),
        (errno.ENOSPC, False),
        (errno.EMFILE, False),
        (errno.EFBIG, False),
        (errno.ENOENT, False),
    ],
)
def test_a_broken_disk_is_a_failure_and_a_full_one_is_not(tmp_path: Path, number: int, fails: bool) -> None:
    failed: list[LogDirectory] = []
    directories = two(tmp_path, failed)
    log = directories.logs[A]
    for _ in range(2):
        log.storage_error(OSError(number, os.strerror(number)))
    assert [directory.path.name for directory in failed] == (["one"] if fails else [])
    assert directories.directories[0].is_offline is fails
    directories.close(clean=False)


def test_a_missing_file_is_a_failure_of_the_directory_only_where_that_is_missing_too(tmp_path: Path) -> None:
    directories = two(tmp_path)
    missing = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    directories.logs[A].read_error(missing)
    assert directories.directories[0].failure is None
    (tmp_path / "one").rename(tmp_path / "away")
    directories.logs[A].read_error(missing)
    assert "No such file or directory" in str(directories.directories[0].failure)
    directories.close(clean=False)


def test_nothing_is_written_into_a_directory_that_is_offline(tmp_path: Path) -> None:
    directories = two(tmp_path)
    log = directories.logs[A]
    (tmp_path / "one").rename(tmp_path / "away")
    directories.checkpoint_high_watermarks()
    directories.tick(NOW_MS)
    assert directories.offline == {A}
    assert set(directories.logs) == {B}
    assert log.is_closed
    for now_ms in range(NOW_MS, NOW_MS + 3_600_000, 100_000):
        directories.tick(now_ms)
    assert not (tmp_path / "one").exists()
    append(directories.logs[B])
    directories.close()
    assert not (tmp_path / "one").exists()
    assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()


def test_partitions_of_a_directory_that_is_offline_are_neither_made_anew_nor_deleted(tmp_path: Path) -> None:
    directories = two(tmp_path)
    directories.directories[0].fail("it burns")
    assert directories.take_offline(directories.directories[0]) == [A]
    with pytest.raises(KafkaStorageError, match="it burns"):
        directories.create(A, TOPIC_ID, LogConfig(), NOW_MS)
    with pytest.raises(KafkaStorageError, match="cannot be deleted while"):
        directories.delete(A, NOW_MS)
    assert (tmp_path / "one" / "a-0").is_dir()
    made = directories.create(TopicPartition("c", 0), TOPIC_ID, LogConfig(), NOW_MS)
    assert made.directory.parent.name == "two"
    directories.close()


def test_a_directory_fails_once_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed: list[LogDirectory] = []
    directories = two(tmp_path, failed)
    with caplog.at_level(logging.ERROR):
        for reason in ("it burns", "it is gone"):
            directories.directories[0].fail(reason)
    assert len(failed) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"The log directory {tmp_path / 'one'} is offline: it burns. Mend it and start the broker again."
    ]
    directories.close(clean=False)


def test_what_is_expected_and_not_found_is_offline_only_while_a_directory_is(tmp_path: Path) -> None:
    two(tmp_path).close()
    (tmp_path / "one").rename(tmp_path / "away")
    (tmp_path / "one").write_bytes(b"")
    directories = LogDirectories([tmp_path / "one", tmp_path / "two"])
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig(), "a-0", "b-0"), NOW_MS)
    directories.expect([A, B])
    assert directories.offline == {A}
    directories.close()
    (tmp_path / "one").unlink()
    (tmp_path / "away").rename(tmp_path / "one")
    directories = LogDirectories([tmp_path / "one", tmp_path / "two"])
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig(), "a-0", "b-0"), NOW_MS)
    directories.expect([A, B, TopicPartition("new", 0)])
    assert directories.offline == set()
    assert directories.was_clean
    directories.close()
