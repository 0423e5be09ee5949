"""Many partitions are truncated at once: their recovery points are on the disk before any of them takes appends, and
written once."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.log.disk import checkpoints
from jesenska.log.disk.background import Background, DirectoryWriter, InlineBackground
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.follower_appends import append_as_follower
from jesenska.log.partition.log_start import delete_records
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.batch import iter_headers
from tests.units.log.follower_harness import leader_batch
from tests.units.log.log_harness import NOW_MS
from tests.units.log.manual_background import ManualBackground

CLUSTER = "BkqKvcOWQuuOhwNvbYx_og"


class CountingFiles(FileLayer):
    """Counts how often each checkpoint is written, and refuses to while `full`."""

    __slots__ = ("full", "replaced")

    def __init__(self) -> None:
        self.replaced: list[str] = []
        self.full = False

    def replace_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        if path.name.endswith("-offset-checkpoint"):
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.replaced.append(path.name)
        super().replace_file(path, data, sync=sync)


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def start(
    path: Path,
    files: FileLayer,
    background: Background | None = None,
    writer: Background | None = None,
    *,
    partitions: int = 0,
) -> LogDirectories:
    def writer_for(path: Path) -> DirectoryWriter:
        return DirectoryWriter(writer or InlineBackground(), InlineBackground())

    settings = DirectorySettings(flush_offset_checkpoint_interval_ms=1)
    directories = LogDirectories(
        [path], files=files, settings=settings, background=background or InlineBackground(), writer_for=writer_for
    )
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(lambda topic_partition, topic_id: LogConfig(segment_bytes=250), NOW_MS)
    for number in range(partitions):
        directories.create(partition(number), uuid.UUID(int=7), LogConfig(segment_bytes=250), NOW_MS)
    return directories


def append(log: PartitionLog, offset: int, count: int = 1) -> None:
    buffer = memoryview(bytearray(leader_batch(offset, count)))
    outcomes: list[object] = []
    append_as_follower(log, buffer, [header for _, header in iter_headers(buffer)], NOW_MS, outcomes.append)


def filled(directories: LogDirectories, count: int) -> None:
    for log in directories.logs.values():
        for offset in range(count):
            append(log, offset)
        log.flush()
        log.move_high_watermark(count)
    directories.checkpoint_recovery_points()


def on_disk(path: Path, name: str = checkpoints.RECOVERY_POINTS) -> dict[TopicPartition, int]:
    return checkpoints.OffsetCheckpoint(path / name, FileLayer()).read()


def test_recovery_points_of_many_partitions_are_written_once(tmp_path: Path) -> None:
    files = CountingFiles()
    directories = start(tmp_path, files, partitions=40)
    filled(directories, 3)
    files.replaced.clear()
    outcomes: list[dict[TopicPartition, KafkaError]] = []
    directories.truncate({partition(number): number % 5 for number in range(40)}, NOW_MS, outcomes.append)
    assert outcomes == [{}]
    assert files.replaced == [checkpoints.RECOVERY_POINTS]
    assert on_disk(tmp_path) == {partition(number): min(3, number % 5) for number in range(40)}
    assert all(log.log_end_offset == min(3, number % 5) for number, log in enumerate(directories.logs.values()))
    for log in directories.logs.values():
        append(log, log.log_end_offset)
    directories.close()


def test_nothing_is_appended_before_the_recovery_points_are_on_the_disk(tmp_path: Path) -> None:
    background, writer = ManualBackground(), ManualBackground()
    directories = start(tmp_path, FileLayer(), background, writer, partitions=3)
    filled(directories, 1)
    background.run_all()
    outcomes: list[dict[TopicPartition, KafkaError]] = []
    directories.truncate({partition(0): 0, partition(1): 0, TopicPartition("gone", 0): 4}, NOW_MS, outcomes.append)
    append(directories.logs[partition(2)], 1)
    while writer.jobs or background.jobs:
        assert outcomes == []
        for number in (0, 1):
            with pytest.raises(NotLeaderOrFollowerError):
                append(directories.logs[partition(number)], 0)
        writer.run_one() if writer.jobs else background.run_one()
    assert [list(failures) for failures in outcomes] == [[TopicPartition("gone", 0)]]
    assert on_disk(tmp_path) == {partition(0): 0, partition(1): 0, partition(2): 1}
    append(directories.logs[partition(0)], 0)
    assert directories.logs[partition(0)].log_end_offset == 1
    directories.close(clean=False)


def test_a_checkpoint_that_is_being_written_is_written_once_more(tmp_path: Path) -> None:
    background = ManualBackground()
    directories = start(tmp_path, FileLayer(), background, partitions=2)
    filled(directories, 2)
    assert background.jobs
    outcomes: list[dict[TopicPartition, KafkaError]] = []
    directories.truncate({partition(0): 1}, NOW_MS, outcomes.append)
    background.run_one()
    assert (on_disk(tmp_path)[partition(0)], outcomes) == (2, [])
    background.run_all()
    assert (on_disk(tmp_path)[partition(0)], outcomes) == (1, [{}])
    directories.close(clean=False)


def test_logs_whose_recovery_points_cannot_be_written_stay_closed_until_they_are(tmp_path: Path) -> None:
    files = CountingFiles()
    directories = start(tmp_path, files, partitions=2)
    filled(directories, 3)
    outcomes: list[dict[TopicPartition, KafkaError]] = []
    files.full = True
    directories.truncate({partition(0): 2}, NOW_MS, outcomes.append)
    assert [type(failure) for failure in outcomes[0].values()] == [KafkaStorageError]
    log = directories.logs[partition(0)]
    with pytest.raises(NotLeaderOrFollowerError):
        append(log, 2)
    files.full = False
    directories.tick(NOW_MS)
    directories.tick(NOW_MS + 10)
    append(log, 2)
    assert log.log_end_offset == 3
    directories.close()


def test_a_lowered_log_start_offset_is_on_the_disk_before_anything_is_appended(tmp_path: Path) -> None:
    files = CountingFiles()
    directories = start(tmp_path, files, partitions=1)
    filled(directories, 9)
    log = directories.logs[partition(0)]
    delete_records(log, 8)
    directories.checkpoint_log_start_offsets()
    assert on_disk(tmp_path, checkpoints.LOG_START_OFFSETS) == {partition(0): 8}
    outcomes: list[dict[TopicPartition, KafkaError]] = []
    directories.restart({partition(0): 2}, NOW_MS, outcomes.append)
    assert outcomes == [{}]
    for offset in range(2, 5):
        append(log, offset)
    log.flush()
    directories.checkpoint_recovery_points()
    directories.close(clean=False)
    again = start(tmp_path, FileLayer())
    assert (again.logs[partition(0)].log_start_offset, again.logs[partition(0)].log_end_offset) == (2, 5)
    again.close()


def test_a_checkpoint_meanwhile_does_not_open_a_log_whose_lowered_start_is_not_on_the_disk(tmp_path: Path) -> None:
    background = ManualBackground()
    directories = start(tmp_path, FileLayer(), background, partitions=1)
    filled(directories, 9)
    log = directories.logs[partition(0)]
    delete_records(log, 8)
    directories.checkpoint_log_start_offsets()
    background.run_all()
    directories.restart({partition(0): 2}, NOW_MS, lambda failures: None)
    directories.checkpoint_recovery_points()
    assert on_disk(tmp_path, checkpoints.LOG_START_OFFSETS) == {partition(0): 8}
    while on_disk(tmp_path, checkpoints.LOG_START_OFFSETS):
        with pytest.raises(NotLeaderOrFollowerError):
            append(log, 2)
        # The newest first: a pool keeps no order.
        background.jobs.reverse()
        background.run_one()
    background.run_all()
    append(log, 2)
    assert log.log_end_offset == 3
    assert on_disk(tmp_path, checkpoints.LOG_START_OFFSETS) == {}
    directories.close(clean=False)


@pytest.mark.parametrize(("checkpointed", "found"), [(0, 4), (6, 6), (50, 9)])
def test_the_high_watermark_of_the_checkpoint_stays_within_the_log(
    tmp_path: Path, checkpointed: int, found: int
) -> None:
    directories = start(tmp_path, FileLayer(), partitions=1)
    filled(directories, 9)
    delete_records(directories.logs[partition(0)], 4)
    directories.close()
    checkpoints.OffsetCheckpoint(tmp_path / checkpoints.HIGH_WATERMARKS, FileLayer()).write(
        {partition(0): checkpointed}
    )
    again = start(tmp_path, FileLayer())
    assert again.logs[partition(0)].high_watermark == found
    again.close()


def test_a_partition_that_is_deleted_while_it_is_truncated_holds_up_nobody(tmp_path: Path) -> None:
    writer = ManualBackground()
    directories = start(tmp_path, FileLayer(), writer=writer, partitions=2)
    filled(directories, 2)
    writer.run_all()
    outcomes: list[dict[TopicPartition, KafkaError]] = []
    directories.truncate({partition(0): 1, partition(1): 1}, NOW_MS, outcomes.append)
    directories.delete(partition(0), NOW_MS)
    writer.run_all()
    assert [list(failures) for failures in outcomes] == [[partition(0)]]
    append(directories.logs[partition(1)], 1)
    directories.close(clean=False)


class Cleaner:
    def __init__(self) -> None:
        self.aborted: list[TopicPartition] = []

    def abort(self, topic_partition: TopicPartition) -> None:
        self.aborted.append(topic_partition)


def test_the_cleaner_hears_of_each_partition_that_loses_segments(tmp_path: Path) -> None:
    cleaner = Cleaner()
    directories = LogDirectories([tmp_path], cleaner=cleaner)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(lambda topic_partition, topic_id: None, NOW_MS)
    for number in range(3):
        directories.create(partition(number), None, LogConfig(segment_bytes=250), NOW_MS)
    filled(directories, 9)
    directories.truncate({partition(0): 2, partition(1): 9}, NOW_MS, lambda failures: None)
    directories.restart({partition(2): 40}, NOW_MS, lambda failures: None)
    assert cleaner.aborted == [partition(0), partition(2)]
    directories.close()
