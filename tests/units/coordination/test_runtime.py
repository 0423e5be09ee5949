"""Shards are loaded and unloaded with leadership; their writes count only in their leader's epoch."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import SystemClock
from jesenska.base.errors import CoordinatorLoadInProgressError, CorruptMessageError, ErrorCode, NotCoordinatorError
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.base.regions import FileRegion
from jesenska.coordination.loader import Reading
from jesenska.coordination.runtime import Runtime, Tenant
from jesenska.coordination.shard import KeyValue
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.replication.partition import ACKS_ALL, Partition
from jesenska.replication.replicas import Replicas
from tests.units.coordination.test_operations import Add, Sum
from tests.units.log.log_harness import LogHarness

_KEY = TopicPartition("sums", 0)


def _read(key: bytes | None, value: bytes | None) -> int:
    if value is None:
        raise CorruptMessageError("a sum is never forgotten")
    return int(value)


class Harness:
    """Broker 1 leads a partition with a follower, and has a runtime for it."""

    def __init__(self, directory: Path, executor: ThreadPoolExecutor) -> None:
        self.files = LogHarness(directory)
        self.keys = itertools.count()
        self.partition = self.partition_of(self.files.log)
        self.partition.led_by(1, 0, (1,), 0)
        self.runtime: Runtime[Sum] = Runtime(
            Tenant(
                "sums",
                "Numbers are lost.",
                Sum,
                lambda number: KeyValue(b"%d" % next(self.keys), b"%d" % number),
                _read,
                60_000,
                ACKS_ALL,
            ),
            Reading(executor, _bytes_of),
            SystemClock(),
        )

    @staticmethod
    def partition_of(log: PartitionLog) -> Partition:
        partition = Partition(_KEY, NO_UUID, Replicas(_KEY, 1, (1, 2), 1, 100), lambda key: None, lambda: 0)
        partition.found_log(log)
        return partition

    def add(self, number: int) -> asyncio.Future[Any]:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.runtime.submit(0, lambda token: Add(token, number), answered.set_result)
        return answered

    async def is_ready(self) -> Sum:
        """The shard once it is loaded."""
        while True:
            try:
                return self.runtime.shard(0)
            except CoordinatorLoadInProgressError:
                await asyncio.sleep(0)


def _bytes_of(region: FileRegion) -> bytes:
    return os.pread(region.file.fileno(), region.size_bytes, region.position)


def run(directory: Path, test: Callable[[Harness], Awaitable[None]]) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            harness = Harness(directory, executor)
            try:
                await asyncio.wait_for(test(harness), 30)
            finally:
                await harness.runtime.close()
                close_log(harness.files.log, clean=False)

    asyncio.run(main())


def test_an_answer_waits_until_every_replica_in_sync_has_the_record_and_so_does_the_state(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        harness.partition.led_by(1, 0, (1, 2), 1)
        harness.runtime.lead(0, harness.partition)
        answered = harness.add(5)
        await asyncio.sleep(0)
        assert not answered.done()
        assert harness.runtime.shard(0).total == 0
        harness.partition.follower_fetched(2, 1, 1)
        assert answered.result() == 5

    run(tmp_path, test)


def test_a_shard_is_loaded_from_what_was_written_before(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        harness.runtime.lead(0, harness.partition)
        for number in (1, 2, 3):
            await harness.add(number)
        harness.runtime.resign(0)
        with pytest.raises(NotCoordinatorError):
            harness.add(4)
        harness.runtime.lead(0, harness.partition)
        assert (await harness.is_ready()).total == 6
        assert await harness.add(4) == 10

    run(tmp_path, test)


def test_who_waits_is_told_to_look_elsewhere_when_the_shard_goes_and_what_is_committed_later_is_nobodys(
    tmp_path: Path,
) -> None:
    async def test(harness: Harness) -> None:
        harness.partition.led_by(1, 0, (1, 2), 1)
        harness.runtime.lead(0, harness.partition)
        answered, shard = harness.add(5), harness.runtime.shard(0)
        harness.runtime.resign(0)
        assert answered.result() is ErrorCode.NOT_COORDINATOR
        harness.partition.follower_fetched(2, 1, 1)
        assert shard.total == 0

    run(tmp_path, test)


def test_a_shard_writes_nothing_in_another_leaders_epoch_and_goes_on_when_it_is_told_of_it(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        harness.runtime.lead(0, harness.partition)
        assert await harness.add(1) == 1
        harness.partition.led_by(1, 1, (1,), 1)
        assert await harness.add(2) is ErrorCode.FENCED_LEADER_EPOCH
        assert harness.files.log.log_end_offset == 1
        harness.runtime.lead(0, harness.partition)
        assert await harness.add(3) == 4

    run(tmp_path, test)


def test_a_shard_that_is_led_elsewhere_fails_what_it_writes(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        harness.runtime.lead(0, harness.partition)
        harness.partition.led_by(2, 1, (2,), 1)
        assert await harness.add(2) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

    run(tmp_path, test)


def test_what_everybody_is_told_reaches_a_shard_that_is_being_loaded_once_it_is(tmp_path: Path) -> None:
    async def test(harness: Harness) -> None:
        harness.runtime.lead(0, harness.partition, ["early"])
        await harness.add(1)
        harness.runtime.resign(0)
        harness.runtime.lead(0, harness.partition, ["early"])
        harness.runtime.tell("meanwhile")
        shard = await harness.is_ready()
        assert shard.total == 1
        assert shard.told == ["early", "meanwhile"]

    run(tmp_path, test)
