"""What one core does with one partition's log: appends, look-ups, recovery.

    python bench/log_bench.py [--directory D] [--gigabytes 1]

The append figures include the write system call into the page cache and everything that the log does in Python; making
the batch and checking its CRC are measured elsewhere. Nothing waits for the disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.background import Background, DirectoryWriter
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import read_log
from jesenska.log.partition.recovery import LogLoader
from jesenska.log.segments.segment_file import OpenFiles
from jesenska.records.batch import iter_headers
from jesenska.records.encode import encode_batch

NOW_MS = 1_600_000_000_000
FILES = FileLayer()


class NoSync(Background):
    """Leaves out work that would wait for the disk."""

    def submit(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        done(None)


def open_log(directory: Path, config: LogConfig, *, clean: bool = True) -> PartitionLog:
    loaded = LogLoader(
        directory, config, FILES, clean=clean, recovery_point=0, log_start_offset=0, now_ms=NOW_MS
    ).load()
    writer = DirectoryWriter(NoSync(), NoSync())
    return PartitionLog(TopicPartition("bench", 0), loaded, config, FILES, OpenFiles(FILES), writer, now_ms=NOW_MS)


def small_appends(directory: Path, count: int, producer_id: int) -> float:
    log = open_log(directory, LogConfig(flush_messages=2**62))
    batch = encode_batch(
        [(NOW_MS, b"key", bytes(100), ())],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0,
    )
    buffer = memoryview(batch)
    header = next(iter_headers(buffer))[1]
    headers = [[header._replace(base_sequence=sequence if producer_id >= 0 else -1)] for sequence in range(count)]
    begin = time.perf_counter()
    for one in headers:
        append_at_once(log, buffer, one, 0, NOW_MS)
    seconds = time.perf_counter() - begin
    close_log(log, clean=False)
    return seconds / count * 1e6


def large_appends(directory: Path, total_bytes: int) -> float:
    log = open_log(directory, LogConfig())
    batch = encode_batch([(NOW_MS, b"key", bytes(1000), ()) for _ in range(100)])
    buffer = memoryview(batch)
    headers = [header for _, header in iter_headers(buffer)]
    count = total_bytes // len(batch)
    begin = time.perf_counter()
    for _ in range(count):
        append_at_once(log, buffer, headers, 0, NOW_MS)
    seconds = time.perf_counter() - begin
    close_log(log, clean=False)
    return count * len(batch) / seconds / 1e9


def plain_writes(path: Path, total_bytes: int) -> float:
    """The same bytes with only the system call: the machine's best rate."""
    batch = encode_batch([(NOW_MS, b"key", bytes(1000), ()) for _ in range(100)])
    descriptor = FILES.open(path, os.O_RDWR | os.O_CREAT)
    begin = time.perf_counter()
    position = 0
    while position < total_bytes:
        position += os.pwrite(descriptor, batch, position)
    seconds = time.perf_counter() - begin
    os.close(descriptor)
    return position / seconds / 1e9


def recovery(directory: Path) -> float:
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    begin = time.perf_counter()
    log = open_log(directory, LogConfig(), clean=False)
    seconds = time.perf_counter() - begin
    close_log(log, clean=False)
    return size / seconds / 1e9


def lookups(directory: Path, count: int) -> tuple[float, float]:
    log = open_log(directory, LogConfig())
    chance = Random(1)
    offsets = [chance.randrange(log.log_end_offset) for _ in range(count)]
    read_log(log, 0, 100_000)
    begin = time.perf_counter()
    for offset in offsets:
        region = read_log(log, offset, 100_000).region
        assert region is not None
        region.release()
    anywhere = time.perf_counter() - begin
    batch = encode_batch([(NOW_MS, b"key", bytes(100), ())])
    headers = [header for _, header in iter_headers(batch)]
    for _ in range(100):
        append_at_once(log, memoryview(batch), headers, 0, NOW_MS)
    tail = log.log_end_offset - 1
    begin = time.perf_counter()
    for _ in range(count):
        region = read_log(log, tail, 100_000).region
        assert region is not None
        region.release()
    at_tail = time.perf_counter() - begin
    close_log(log, clean=False)
    return anywhere / count * 1e6, at_tail / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--directory", type=Path, help="a directory on the disk to measure (default: the system's temporary one)"
    )
    parser.add_argument("--gigabytes", type=float, default=1.0, help="for large appends and recovery")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=options.directory))
    try:
        print(f"append, one batch of 1 record            {small_appends(base / 'a-0', 200_000, -1):8.2f} us")
        print(f"the same from an idempotent producer     {small_appends(base / 'b-0', 200_000, 7):8.2f} us")
        anywhere, tail = lookups(base / "a-0", 20_000)
        print(f"read look-up, anywhere                   {anywhere:8.2f} us")
        print(f"read look-up, at the tail                {tail:8.2f} us")
        print(f"recovery, small batches                  {recovery(base / 'a-0'):8.2f} GB/s")
        print(
            f"plain pwrite of 100 KB                   "
            f"{plain_writes(base / 'plain', int(options.gigabytes * 1e9)):8.2f} GB/s"
        )
        print(
            f"append, batches of 100 KB                "
            f"{large_appends(base / 'c-0', int(options.gigabytes * 1e9)):8.2f} GB/s"
        )
        print(f"recovery, batches of 100 KB              {recovery(base / 'c-0'):8.2f} GB/s")
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
