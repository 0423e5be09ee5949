from __future__ import annotations

import json
import logging
import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from jesenska.base.errors import JesenskaError, KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_lock import LogDirectoryError, owner_pid
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.log.directory.partition_loading import LoadProgress
from jesenska.log.disk.checkpoints import HIGH_WATERMARKS, CleanShutdownMarker, OffsetCheckpoint
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.meta_properties import ForeignDataError, read_meta_properties
from jesenska.log.disk.partition_metadata import read_topic_id
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.log_start import delete_records
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.segments.offset_index import OffsetIndex
from jesenska.log.segments.time_index import TimeIndex
from jesenska.records.batch import iter_headers
from tests.units.log.log_harness import NOW_MS, make_batch
from tests.units.log.manual_background import ManualBackground

CLUSTER = "BkqKvcOWQuuOhwNvbYx_og"
TOPIC_ID = uuid.UUID("f6d6d71e-006f-4733-b42b-eeb7454cb91d")


def known(config: LogConfig, *names: str) -> Callable[[TopicPartition, uuid.UUID | None], LogConfig | None]:
    return lambda topic_partition, topic_id: config if str(topic_partition) in names else None


def start(
    *paths: Path,
    names: tuple[str, ...] = (),
    config: LogConfig | None = None,
    settings: DirectorySettings | None = None,
) -> LogDirectories:
    directories = LogDirectories(list(paths), settings=settings)
    try:
        directories.lock()
        directories.claim(CLUSTER, 0)
        directories.load(known(config or LogConfig(), *names), NOW_MS)
    except JesenskaError:
        directories.close(clean=False)
        raise
    return directories


def append(log: PartitionLog, count: int = 1, timestamp: int = NOW_MS) -> None:
    buffer = memoryview(make_batch(count, timestamp=timestamp))
    append_at_once(log, buffer, [header for _, header in iter_headers(buffer)], 0, NOW_MS)
    log.move_high_watermark(log.log_end_offset)


def test_fresh_directory_gets_what_a_broker_of_the_zookeeper_mode_writes(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    directories = start(path)
    properties = read_meta_properties(path, FileLayer())
    assert properties is not None
    assert (properties.version, properties.cluster_id, properties.broker_id) == (0, CLUSTER, 0)
    assert not (path / ".kafka_cleanshutdown").exists()
    directories.close()
    assert (path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    assert not any(entry.is_dir() for entry in path.iterdir())


def test_directories_say_whose_they_are_before_they_are_claimed(tmp_path: Path) -> None:
    start(tmp_path / "a").close()
    directories = LogDirectories([tmp_path / "a", tmp_path / "b"])
    first, second = directories.lock()
    assert first is not None
    assert (first.cluster_id, first.broker_id) == (CLUSTER, 0)
    assert second is None
    assert not (tmp_path / "b" / "meta.properties").exists()
    directories.claim(CLUSTER, 0)
    assert (tmp_path / "b" / "meta.properties").exists()
    directories.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_its_checkpoints_after_an_orderly_stop_has_lost_something(
    tmp_path: Path, clean: bool
) -> None:
    key, path = TopicPartition("orders", 0), tmp_path / "data"
    directories = start(path)
    log = directories.create(key, TOPIC_ID, LogConfig(), NOW_MS)
    append(log, 5)
    append(log, 3)
    directories.checkpoint_high_watermarks()
    directories.close(clean=clean)
    (segment,) = (path / str(key)).glob("*.log")
    for name in (path / str(key)).iterdir():
        if name.suffix in (".index", ".timeindex", ".snapshot"):
            name.unlink()
    segment.write_bytes(segment.read_bytes()[: len(make_batch(5))])
    # After a crash of the machine that may be: it was not synced.
    told = {key: 8} if clean else {}
    for ends_clean in (True, False, True):
        directories = start(path, names=(str(key),))
        assert directories.logs[key].log_end_offset == 5
        assert directories.cut_logs == told, "a later start knows it still, also after a crash"
        directories.close(clean=ends_clean)
        assert not clean or OffsetCheckpoint(path / HIGH_WATERMARKS, FileLayer()).read()[key] <= 5, (
            "nobody has said that more was committed"
        )
    directories = start(path, names=(str(key),))
    directories.take_as_it_is(key)
    directories.close()
    for ends_clean in (False, True):
        directories = start(path, names=(str(key),))
        assert directories.cut_logs == {}
        directories.close(clean=ends_clean)


def test_partition_survives_an_orderly_stop_without_recovery(tmp_path: Path) -> None:
    directories = start(tmp_path / "data")
    log = directories.create(TopicPartition("orders", 0), TOPIC_ID, LogConfig(), NOW_MS)
    append(log, 5)
    directories.close()
    partition = tmp_path / "data" / "orders-0"
    assert read_topic_id(partition, FileLayer()) == TOPIC_ID
    assert (tmp_path / "data" / "recovery-point-offset-checkpoint").read_bytes() == b"0\n1\norders 0 5\n"
    assert (tmp_path / "data" / "replication-offset-checkpoint").read_bytes() == b"0\n1\norders 0 5\n"
    again = start(tmp_path / "data", names=("orders-0",))
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    reopened = again.get(TopicPartition("orders", 0))
    assert reopened is not None
    assert (reopened.log_end_offset, reopened.high_watermark, reopened.topic_id) == (5, 5, TOPIC_ID)
    again.close()


def test_crash_is_recovered_and_reports_progress(tmp_path: Path) -> None:
    directories = start(tmp_path / "data")
    log = directories.create(TopicPartition("orders", 0), TOPIC_ID, LogConfig(), NOW_MS)
    append(log, 5)
    append(log, 5)
    directories.checkpoint_high_watermarks()
    size_bytes = log.size_bytes
    path = log.active_segment.file.path
    directories.close(clean=False)
    with path.open("ab") as file:
        file.write(b"torn")
    again = LogDirectories([tmp_path / "data"])
    again.lock()
    again.claim(CLUSTER, 0)
    seen: list[LoadProgress] = []
    again.load(known(LogConfig(), "orders-0"), NOW_MS, seen.append)
    assert seen[-1] == LoadProgress(1, 1, size_bytes)
    reopened = again.get(TopicPartition("orders", 0))
    assert reopened is not None
    assert (reopened.log_end_offset, reopened.high_watermark) == (10, 10)
    again.close()


def test_unknown_partitions_are_named_and_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("gone-0", "moving-0.0123456789abcdef0123456789abcdef-future", "notes"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "keep").write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        directories = start(tmp_path / "data")
    assert directories.logs == {}
    for name in ("gone-0", "-future", "notes"):
        assert name in caplog.text
    with pytest.raises(KafkaStorageError, match="gone-0"):
        directories.create(TopicPartition("gone", 0), TOPIC_ID, LogConfig(), NOW_MS)
    directories.close()
    assert (tmp_path / "data" / "gone-0" / "keep").exists()
    assert (tmp_path / "data" / "notes" / "keep").exists()


def test_directory_is_offered_to_the_metadata_with_its_topic_id(tmp_path: Path) -> None:
    directories = start(tmp_path / "data")
    directories.create(TopicPartition("a-b", 3), TOPIC_ID, LogConfig(), NOW_MS)
    directories.close()
    asked: list[tuple[TopicPartition, uuid.UUID | None]] = []
    again = LogDirectories([tmp_path / "data"])
    again.lock()
    again.claim(CLUSTER, 0)

    def ask(topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> LogConfig | None:
        asked.append((topic_partition, topic_id))
        return None

    again.load(ask, NOW_MS)
    again.close()
    assert asked == [(TopicPartition("a-b", 3), TOPIC_ID)]


def test_deleted_partition_is_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    directories = start(tmp_path / "data")
    log = directories.create(TopicPartition("orders", 0), TOPIC_ID, LogConfig(file_delete_delay_ms=1000), NOW_MS)
    append(log)
    directories.delete(TopicPartition("orders", 0), NOW_MS)
    assert directories.get(TopicPartition("orders", 0)) is None
    (renamed,) = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    name, _, rest = renamed.name.partition(".")
    assert name == "orders-0"
    assert rest.endswith("-delete")
    assert len(rest) == 32 + len("-delete")
    # The name is free again at once.
    append(directories.create(TopicPartition("orders", 0), uuid.uuid4(), LogConfig(), NOW_MS))
    directories.tick(NOW_MS + 999)
    assert renamed.exists()
    directories.tick(NOW_MS + 1000)
    assert not renamed.exists()
    assert (tmp_path / "data" / "orders-0").exists()
    directories.close()


def test_a_partition_whose_directory_cannot_be_renamed_is_deleted_when_it_is_tried_again(tmp_path: Path) -> None:
    class StuckFiles(FileLayer):
        __slots__ = ("stuck",)

        def __init__(self) -> None:
            self.stuck = False

        def rename(self, source: Path, target: Path) -> None:
            if self.stuck:
                raise OSError(5, "Input/output error")
            super().rename(source, target)

    files = StuckFiles()
    directories = LogDirectories([tmp_path], files=files)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(file_delete_delay_ms=0), NOW_MS)
    files.stuck = True
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="t-0 cannot be renamed for deletion: Input/output error"):
            directories.delete(TopicPartition("t", 0), NOW_MS)
    assert directories.get(TopicPartition("t", 0)) is None
    files.stuck = False
    directories.tick(NOW_MS + 1)
    directories.delete(TopicPartition("t", 0), NOW_MS)
    directories.tick(NOW_MS + 1)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    directories.close()


def test_left_over_delete_directories_are_removed_after_the_start(tmp_path: Path) -> None:
    doomed = tmp_path / "data" / "orders-0.0123456789abcdef0123456789abcdef-delete"
    doomed.mkdir(parents=True)
    (doomed / "00000000000000000000.log").write_bytes(b"x")
    directories = start(tmp_path / "data")
    directories.tick(NOW_MS)
    assert not doomed.exists()
    directories.close()


def test_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    directories = start(tmp_path / "data")
    topic_partition = TopicPartition("x" * 249, 0)
    directories.create(topic_partition, TOPIC_ID, LogConfig(), NOW_MS)
    directories.delete(topic_partition, NOW_MS)
    (renamed,) = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert len(renamed.name) <= 255
    assert renamed.name.endswith("-delete")
    directories.close()


def test_new_partitions_go_where_the_fewest_are(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    directories = start(*paths)
    for number in range(7):
        directories.create(TopicPartition("t", number), TOPIC_ID, LogConfig(), NOW_MS)
    assert sorted(len(directory.logs) for directory in directories.directories) == [2, 2, 3]
    directories.close()
    again = start(*paths, names=tuple(f"t-{number}" for number in range(7)))
    assert len(again.logs) == 7
    again.close()


def test_partition_in_two_directories_stops_the_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir(parents=True)
    directories = LogDirectories([tmp_path / "a", tmp_path / "b"])
    directories.lock()
    directories.claim(CLUSTER, 0)
    with pytest.raises(LogDirectoryError, match="t-0 is in both"):
        directories.load(known(LogConfig(), "t-0"), NOW_MS)
    directories.close(clean=False)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("version=0\nbroker.id=0\ncluster.id=another\n", "belongs to cluster another"),
        (f"version=0\nbroker.id=3\ncluster.id={CLUSTER}\n", "belongs to broker 3"),
        (f"version=1\nnode.id=0\ncluster.id={CLUSTER}\n", "KRaft"),
        ("version=zero\n", "cannot be read"),
    ],
)
def test_data_of_somebody_else_stop_the_start_untouched(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(ForeignDataError, match=words):
        start(tmp_path)
    assert (tmp_path / "meta.properties").read_text() == content
    # The lock is free.
    assert owner_pid(tmp_path) is None


def test_directory_with_a_kraft_metadata_log_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(ForeignDataError, match="KRaft"):
        start(tmp_path)


def test_lock_file_names_our_process_while_we_run(tmp_path: Path) -> None:
    directories = start(tmp_path)
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    directories.close()
    assert (tmp_path / ".lock").read_text() == ""


def test_directory_that_cannot_be_made_or_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LogDirectoryError, match=r"file/data cannot be created .* log\.dirs"):
        start(tmp_path / "file" / "data")
    (tmp_path / "data" / ".lock").mkdir(parents=True)
    with pytest.raises(LogDirectoryError, match=r"data cannot be written .* log\.dirs"):
        start(tmp_path / "data")


def test_tick_writes_checkpoints_at_their_intervals(tmp_path: Path) -> None:
    settings = DirectorySettings(high_watermark_checkpoint_interval_ms=100, flush_offset_checkpoint_interval_ms=200)
    directories = start(tmp_path, settings=settings)
    batch_bytes = len(make_batch())
    log = directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(segment_bytes=2 * batch_bytes), NOW_MS)
    directories.tick(NOW_MS)
    for _ in range(5):
        append(log)
    directories.tick(NOW_MS + 99)
    assert not (tmp_path / "replication-offset-checkpoint").exists()
    directories.tick(NOW_MS + 100)
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    directories.tick(NOW_MS + 200)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"
    directories.close()


def test_tick_goes_on_in_steps_while_partitions_come_and_go(tmp_path: Path) -> None:
    directories = LogDirectories(
        [tmp_path],
        settings=DirectorySettings(high_watermark_checkpoint_interval_ms=100, retention_check_interval_ms=100),
    )
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    keys = [TopicPartition("t", number) for number in range(70)]
    for key in keys:
        append(
            directories.create(
                key, None, LogConfig(segment_bytes=200, retention_ms=1000, index_interval_bytes=0), NOW_MS
            ),
            timestamp=NOW_MS,
        )
    directories.tick(NOW_MS)
    steps = 0
    for _ in directories.tick_in_steps(NOW_MS + 5000):
        if steps < len(keys) - 1:
            directories.delete(keys[steps], NOW_MS)
        directories.create(TopicPartition("u", steps), None, LogConfig(), NOW_MS)
        steps += 1
    assert steps > 5
    assert set(directories.logs) == {*keys[steps:], *(TopicPartition("u", number) for number in range(steps))}
    assert all(
        log.log_start_offset == 1 for key, log in directories.logs.items() if key.topic == "t" and key.partition < 40
    )
    directories.close()


def test_tick_brings_the_index_entries_of_active_segments_to_their_files_off_the_owners_thread(tmp_path: Path) -> None:
    background = ManualBackground()
    directories = LogDirectories([tmp_path], background=background)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    log = directories.create(TopicPartition("t", 0), None, LogConfig(index_interval_bytes=0), NOW_MS)
    index, times = log.active_segment.offset_index, log.active_segment.time_index
    directories.tick(NOW_MS)
    for number in range(5):
        append(log, timestamp=NOW_MS + number)
    directories.tick(NOW_MS + 5_000)
    append(log, timestamp=NOW_MS + 5)
    directories.tick(NOW_MS + 10_000)
    assert index.path.read_bytes() == b""
    background.run_all()
    # Changes after the job was made wait for the next one.
    assert OffsetIndex(index.path, 0, 800, FileLayer()).entries() == index.entries()[:-1]
    assert TimeIndex(times.path, 0, 1200, FileLayer()).entries() == times.entries()[:-1]
    directories.tick(NOW_MS + 15_000)
    background.run_all()
    assert OffsetIndex(index.path, 0, 800, FileLayer()).entries() == index.entries()
    directories.tick(NOW_MS + 20_000)
    assert background.jobs == []
    directories.close()


def test_tick_deletes_old_segments_and_their_files_after_the_delay(tmp_path: Path) -> None:
    settings = DirectorySettings(retention_check_interval_ms=1000)
    directories = start(tmp_path, settings=settings)
    config = LogConfig(segment_bytes=2 * len(make_batch()), retention_bytes=0, file_delete_delay_ms=500)
    log = directories.create(TopicPartition("t", 0), TOPIC_ID, config, NOW_MS)
    for _ in range(6):
        append(log)
    directories.tick(NOW_MS)
    directories.tick(NOW_MS + 1000)
    assert log.log_start_offset == 6
    deleted = sorted((tmp_path / "t-0").glob("*.deleted"))
    assert deleted
    directories.tick(NOW_MS + 1499)
    assert all(path.exists() for path in deleted)
    directories.tick(NOW_MS + 1500)
    assert not any(path.exists() for path in deleted)
    directories.close()


def test_log_start_offset_within_a_segment_survives_a_restart(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(), NOW_MS)
    append(log, 10)
    delete_records(log, 4)
    directories.close()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 4\n"
    again = start(tmp_path, names=("t-0",))
    assert again.logs[TopicPartition("t", 0)].log_start_offset == 4
    again.close()


def test_truncation_lowers_the_recovery_point_on_disk_at_once(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(), NOW_MS)
    for _ in range(5):
        append(log)
    log.flush()
    directories.checkpoint_recovery_points()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 5\n"
    outcomes: list[dict[TopicPartition, KafkaError]] = []
    directories.truncate({TopicPartition("t", 0): 2}, NOW_MS, outcomes.append)
    assert outcomes == [{}]
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
    directories.close(clean=False)


def test_partition_without_a_topic_id_gets_one(tmp_path: Path) -> None:
    directories = start(tmp_path)
    directories.create(TopicPartition("t", 0), None, LogConfig(), NOW_MS)
    directories.assign_topic_id(TopicPartition("t", 0), TOPIC_ID)
    assert read_topic_id(tmp_path / "t-0", FileLayer()) == TOPIC_ID
    directories.close()


def test_partition_that_cannot_be_created_leaves_nothing_behind(tmp_path: Path) -> None:
    class FullFiles(FileLayer):
        __slots__ = ("full",)

        def __init__(self) -> None:
            self.full = False

        def truncate(self, descriptor: int, size_bytes: int) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            super().truncate(descriptor, size_bytes)

    files = FullFiles()
    directories = LogDirectories([tmp_path], files=files)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    files.full = True
    with pytest.raises(KafkaStorageError, match="No space left"):
        directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(), NOW_MS)
    assert not (tmp_path / "t-0").exists()
    files.full = False
    append(directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(), NOW_MS))
    directories.close()


def test_flush_by_time(tmp_path: Path) -> None:
    directories = start(tmp_path)
    log = directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(flush_ms=100), NOW_MS)
    append(log, 3)
    directories.tick(NOW_MS + 99)
    assert log.recovery_point == 0
    directories.tick(NOW_MS + 100)
    assert log.recovery_point == 3
    directories.close()


def test_damaged_checkpoint_makes_recovery_longer_and_loses_nothing(tmp_path: Path) -> None:
    directories = start(tmp_path)
    append(directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(), NOW_MS), 3)
    directories.close(clean=False)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n5\nt 0 3\n")
    (tmp_path / "replication-offset-checkpoint").write_text("nonsense")
    again = start(tmp_path, names=("t-0",))
    assert again.logs[TopicPartition("t", 0)].log_end_offset == 3
    again.close()


def test_checkpoint_survives_a_process_that_dies_while_writing(tmp_path: Path) -> None:
    class DyingFiles(FileLayer):
        __slots__ = ()

        def rename(self, source: Path, target: Path) -> None:
            raise OSError("the process dies here")

    checkpoint = OffsetCheckpoint(tmp_path / "recovery-point-offset-checkpoint", FileLayer())
    checkpoint.write({TopicPartition("t", 0): 7, TopicPartition("t.with-dashes", 12): 8})
    with pytest.raises(OSError, match="dies here"):
        OffsetCheckpoint(checkpoint.path, DyingFiles()).write({TopicPartition("t", 0): 9})
    assert checkpoint.read() == {TopicPartition("t", 0): 7, TopicPartition("t.with-dashes", 12): 8}


def test_checkpoint_is_synced_before_and_after_it_takes_the_name(tmp_path: Path) -> None:
    calls: list[str] = []

    class RecordingFiles(FileLayer):
        __slots__ = ()

        def fsync(self, descriptor: int) -> None:
            calls.append("sync file")

        def rename(self, source: Path, target: Path) -> None:
            calls.append("rename")
            super().rename(source, target)

        def fsync_directory(self, path: Path) -> None:
            calls.append("sync directory")

    OffsetCheckpoint(tmp_path / "x", RecordingFiles()).write({})
    assert calls == ["sync file", "rename", "sync directory"]


def test_clean_shutdown_marker_keeps_the_broker_epoch(tmp_path: Path) -> None:
    marker = CleanShutdownMarker(tmp_path, FileLayer())
    assert not marker.exists()
    marker.write(17)
    assert json.loads(marker.path.read_text()) == {"version": 0, "brokerEpoch": 17}
    assert marker.broker_epoch() == 17
    marker.path.write_bytes(b"")
    assert marker.exists()
    assert marker.broker_epoch() == -1
    marker.remove()
    assert not marker.exists()


def test_partition_metadata_is_as_kafka_writes_it_and_nonsense_is_refused(tmp_path: Path) -> None:
    directories = start(tmp_path)
    directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(), NOW_MS)
    directories.close()
    path = tmp_path / "t-0" / "partition.metadata"
    assert path.read_bytes() == b"version: 0\ntopic_id: 9tbXHgBvRzO0K-63RUy5HQ"
    path.write_text("version: 3\ntopic_id: 9tbXHgBvRzO0K-63RUy5HQ")
    with pytest.raises(KafkaStorageError, match=r"partition\.metadata"):
        read_topic_id(path.parent, FileLayer())
    path.write_bytes(b"")
    assert read_topic_id(path.parent, FileLayer()) is None


def test_log_whose_sync_failed_is_recovered_at_the_next_start(tmp_path: Path) -> None:
    class FailingFiles(FileLayer):
        __slots__ = ("failing",)

        def __init__(self) -> None:
            self.failing = False

        def fsync(self, descriptor: int) -> None:
            if self.failing:
                raise OSError(5, "Input/output error")

    files = FailingFiles()
    directories = LogDirectories([tmp_path], files=files)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    log = directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(), NOW_MS)
    append(log, 2)
    files.failing = True
    log.flush()
    files.failing = False
    directories.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = start(tmp_path, names=("t-0",))
    assert again.logs[TopicPartition("t", 0)].log_end_offset == 2
    again.close()


class CountedSyncs(FileLayer):
    """Counts syncs by any thread; names ending in `refused` cannot be synced."""

    __slots__ = ("refused", "synced")

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.refused = "none"

    def fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.refused in path:
            raise OSError(5, "Input/output error", path)
        self.synced.append(path)
        super().fsync(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="names of descriptors are Linux's")
def test_an_orderly_stop_syncs_what_was_written_and_nothing_twice(tmp_path: Path) -> None:
    files = CountedSyncs()
    directories = LogDirectories([tmp_path / "data"], files=files)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    for number in range(300):
        append(directories.create(TopicPartition("many", number), TOPIC_ID, LogConfig(), NOW_MS))
    directories.close()
    assert {path for path in files.synced if path.endswith("0.log")} == {
        str(tmp_path / "data" / f"many-{number}" / f"{0:020d}.log") for number in range(300)
    }
    files.synced.clear()
    again = LogDirectories([tmp_path / "data"], files=files)
    again.lock()
    again.claim(CLUSTER, 0)
    again.load(known(LogConfig(), *(f"many-{number}" for number in range(300))), NOW_MS)
    log = again.get(TopicPartition("many", 7))
    assert log is not None
    append(log)
    again.close()
    assert {Path(path).parent.name for path in files.synced if "many" in path} == {"many-7"}


@pytest.mark.skipif(sys.platform != "linux", reason="names of descriptors are Linux's")
def test_a_stop_that_cannot_sync_one_log_leaves_no_marker_and_closes_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = CountedSyncs()
    directories = LogDirectories([tmp_path / "data"], files=files)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    for number in range(3):
        append(directories.create(TopicPartition("some", number), TOPIC_ID, LogConfig(), NOW_MS))
    files.refused = "some-1/00000000000000000000.log"
    with caplog.at_level(logging.ERROR):
        directories.close()
    assert ["some-1" in record.message for record in caplog.records] == [True]
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    checkpoint = OffsetCheckpoint(tmp_path / "data" / "recovery-point-offset-checkpoint", FileLayer()).read()
    assert checkpoint == {TopicPartition("some", 0): 1, TopicPartition("some", 1): 0, TopicPartition("some", 2): 1}


@pytest.mark.parametrize("set_ms", [-3_600_000, 3_600_000])
def test_flushes_checkpoints_and_removals_come_in_their_time_when_the_wall_clock_is_set(
    tmp_path: Path, set_ms: int
) -> None:
    elapsed_ms = 5_000
    settings = DirectorySettings(high_watermark_checkpoint_interval_ms=100)
    directories = LogDirectories([tmp_path], settings=settings, monotonic_ms=lambda: elapsed_ms)
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(known(LogConfig()), NOW_MS)
    log = directories.create(TopicPartition("t", 0), TOPIC_ID, LogConfig(flush_ms=100), NOW_MS)
    append(log, 3)
    directories.create(TopicPartition("gone", 0), None, LogConfig(file_delete_delay_ms=100), NOW_MS)
    directories.delete(TopicPartition("gone", 0), NOW_MS)
    directories.tick(NOW_MS)
    elapsed_ms += 99
    directories.tick(NOW_MS + 99 + set_ms)
    marks = tmp_path / "replication-offset-checkpoint"
    assert (log.recovery_point, marks.exists(), len(list(tmp_path.glob("gone-*")))) == (0, False, 1)
    elapsed_ms += 1
    directories.tick(NOW_MS + 100 + set_ms)
    assert (log.recovery_point, marks.exists(), len(list(tmp_path.glob("gone-*")))) == (3, True, 0)
    directories.close()


@pytest.mark.parametrize(
    "content",
    [b"garbage\n", b"\x00\xff\xfe\x01binary", b"version=0\n", b"broker.id=one\n", b"broker.id=-1\ncluster.id=x\n", b"version=zero\nbroker.id=0\n",  # noqa: E501
     b"broker.id=0\ncluster.id=\n", b"broker.id=\\u12\n"],
)  # fmt: skip
def test_a_file_of_properties_that_says_nothing_sensible_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(ForeignDataError, match=r"meta\.properties cannot be read \(.*\); restore it"):
        read_meta_properties(tmp_path, FileLayer())


@pytest.mark.parametrize("content", ["broker.id=3\nversion=0\n", "broker.id: 3\nversion 0\n", "#\n\nbroker.id = 3 \n"])
def test_a_file_of_properties_is_read_as_java_reads_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    found = read_meta_properties(tmp_path, FileLayer())
    assert found is not None
    assert (found.version, found.broker_id, found.cluster_id) == (0, 3, None)
