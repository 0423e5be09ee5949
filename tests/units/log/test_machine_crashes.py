"""The machine goes down at any moment: all synced data is there again, and other data that is found is a prefix of the
written data."""

from __future__ import annotations

import uuid
from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.log_start import delete_records
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.batch import iter_headers
from jesenska.testing.simulation.machine.disk import ForgetfulFiles
from tests.profiles import examples
from tests.units.log.log_harness import NOW_MS, make_batch

CLUSTER = "BkqKvcOWQuuOhwNvbYx_og"
TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, segment_index_bytes=600, retention_ms=-1)


def batches(log: PartitionLog) -> dict[int, bytes]:
    return {
        header.base_offset: segment.read_bytes(position, header.size_bytes)
        for segment in log.segments
        for position, header in segment.headers()
    }


def offsets(log: PartitionLog) -> list[int]:
    return [header.base_offset for segment in log.segments for _, header in segment.headers()]


def start(path: Path, files: FileLayer) -> LogDirectories:
    directories = LogDirectories([path], files=files, settings=DirectorySettings(flush_offset_checkpoint_interval_ms=1))
    directories.lock()
    directories.claim(CLUSTER, 0)
    directories.load(lambda topic_partition, topic_id: CONFIG, NOW_MS)
    return directories


STEPS = st.sampled_from(
    [
        "append",
        "append",
        "append",
        "append",
        "flush",
        "checkpoint",
        "roll",
        "truncate",
        "delete_records",
        "retention",
        "recreate",
        "stop",
    ]
)

#: Retention takes segments away, and the disk keeps some of them and not others.
# fmt: off
REMOVED_IN_PART = [
    "append", "roll", "roll", "append", "flush", "roll", "append", "delete_records", "append", "append", "truncate",
    "truncate", "roll", "append", "append", "roll", "roll", "append", "append", "append", "delete_records", "roll",
    "retention", "delete_records", "append",
]
# fmt: on


@settings(max_examples=examples(1.5), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(rounds=st.lists(st.lists(STEPS, max_size=25), min_size=1, max_size=3), seed=st.integers(0, 2**32))
@example(rounds=[REMOVED_IN_PART], seed=205)
def test_synced_records_survive_a_crash_of_the_machine(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[str]], seed: int
) -> None:
    chance = Random(seed)
    path = tmp_path_factory.mktemp("disk") / "data"
    sequence = 0
    for number, steps in enumerate(rounds):
        files = ForgetfulFiles()
        if path.exists():
            files.came_up_with(path)
        directories = start(path, files)
        log = directories.create(TP, uuid.UUID(int=7), CONFIG, NOW_MS)
        safe = log.recovery_point
        for step in steps:
            if step == "append":
                buffer = memoryview(make_batch(chance.randint(1, 3), value_bytes=chance.randint(0, 150)))
                append_at_once(
                    log, buffer, [header for _, header in iter_headers(buffer)], sequence // 9, NOW_MS + sequence
                )
                sequence += 1
            elif step == "flush":
                log.flush()
            elif step == "checkpoint":
                directories.checkpoint_recovery_points()
                directories.checkpoint_log_start_offsets()
            elif step == "roll":
                log.roll(NOW_MS)
            elif step == "truncate":
                failures: list[dict[TopicPartition, KafkaError]] = []
                directories.truncate(
                    {TP: chance.randint(log.log_start_offset, log.log_end_offset)}, NOW_MS, failures.append
                )
                assert failures == [{}]
                safe = min(safe, log.log_end_offset)
            elif step == "delete_records":
                log.move_high_watermark(log.log_end_offset)
                delete_records(log, chance.randint(log.log_start_offset, log.log_end_offset))
            elif step == "retention":
                log.move_high_watermark(log.log_end_offset)
                directories.delete_old_segments(NOW_MS)
                directories.remove_doomed(NOW_MS + 100_000)
            elif step == "recreate":
                directories.delete(TP, NOW_MS)
                directories.sync_names()
                log = directories.create(TP, uuid.UUID(int=7), CONFIG, NOW_MS)
                sequence += -sequence % 9  # another leader epoch
                safe = 0
            else:
                directories.close()
                safe = log.log_end_offset
                break
            safe = max(safe, log.recovery_point)
        before, log_start = batches(log), log.log_start_offset
        directories.close(clean=False)
        after = path.with_name(f"after-{number}")
        files.after_crash(path, after, chance)
        files.forget()
        path = after
        again = start(path, FileLayer())
        found = again.create(TP, uuid.UUID(int=7), CONFIG, NOW_MS)
        assert found.log_end_offset >= safe
        kept = batches(found)
        for offset, batch in before.items():
            if log_start <= offset < safe and offset >= found.log_start_offset:
                assert kept[offset] == batch
            elif offset in kept and not {"truncate", "recreate"} & set(steps):
                # Truncated batches may reappear in the place of later ones: leader epochs distinguish them.
                assert kept[offset] == batch
        seen = offsets(found)
        assert seen == sorted(set(seen))
        again.close(clean=False)


def fill(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        buffer = memoryview(make_batch(1, value_bytes=10))
        append_at_once(log, buffer, [header for _, header in iter_headers(buffer)], 0, NOW_MS)
    log.flush()
    log.move_high_watermark(log.log_end_offset)


def test_what_checkpoints_say_of_a_deleted_partition_is_not_taken_for_the_next_one_of_its_name(tmp_path: Path) -> None:
    directories = start(tmp_path / "data", FileLayer())
    log = directories.create(TP, uuid.UUID(int=7), CONFIG, NOW_MS)
    fill(log, 50)
    delete_records(log, 40)
    directories.checkpoint_recovery_points()
    directories.checkpoint_log_start_offsets()
    directories.delete(TP, NOW_MS)
    fill(directories.create(TP, uuid.UUID(int=8), CONFIG, NOW_MS), 20)
    directories.close(clean=False)
    again = start(tmp_path / "data", FileLayer())
    log = again.create(TP, uuid.UUID(int=8), CONFIG, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 20)
    again.close(clean=False)


def test_log_directories_that_a_start_has_made_survive_a_crash_of_the_machine(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    files = ForgetfulFiles()
    files.came_up_with(disk)
    path = Path("above", "logs")
    directories = start(disk / path, files)
    log = directories.create(TopicPartition("t", 0), None, CONFIG, NOW_MS)
    batch = memoryview(make_batch(1))
    append_at_once(log, batch, [header for _, header in iter_headers(batch)], 0, NOW_MS)
    log.flush()
    for seed in range(5):
        found = tmp_path / f"found-{seed}"
        files.after_crash(disk, found, Random(seed))
        again = start(found / path, FileLayer())
        assert offsets(again.logs[TopicPartition("t", 0)]) == [0]
        again.close()
    directories.close(clean=False)
    files.forget()
