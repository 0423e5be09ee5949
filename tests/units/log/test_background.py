"""The same with real threads and a real event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jesenska.base.errors import KafkaError
from jesenska.log.disk.background import DirectoryWriter, ThreadBackground
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.leader_appends import AppendResult, append_or_queue
from jesenska.records.batch import iter_headers
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch


def test_every_append_is_answered_once_while_flushes_come_and_go(tmp_path: Path) -> None:
    answers: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        finished = loop.create_future()
        with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(2) as pool:
            directory = DirectoryWriter(
                ThreadBackground(writer, loop.call_soon_threadsafe), ThreadBackground(pool, loop.call_soon_threadsafe)
            )
            with LogHarness(
                tmp_path / "t-0", LogConfig(segment_bytes=5000, flush_messages=7), FileLayer(), directory
            ) as harness:

                def answered(outcome: AppendResult | KafkaError) -> None:
                    assert isinstance(outcome, AppendResult)
                    answers.append(outcome.base_offset)
                    if len(answers) == 300:
                        finished.set_result(None)

                for number in range(300):
                    buffer = memoryview(
                        make_batch(1, timestamp=NOW_MS + number, producer_id=1, producer_epoch=0, base_sequence=number)
                    )
                    result = append_or_queue(
                        harness.log, buffer, [header for _, header in iter_headers(buffer)], 0, NOW_MS, answered
                    )
                    if result is not None:
                        answered(result)
                    if number % 20 == 0:
                        await asyncio.sleep(0)
                harness.log.flush()
                await finished
                assert harness.offsets() == list(range(300))
                while harness.log.recovery_point < 300:
                    flushed = loop.create_future()
                    harness.log.flush(flushed.set_result)
                    assert await flushed is None
                harness.crash()
                assert harness.notes == []
                assert harness.offsets() == list(range(300))

    asyncio.run(run())
    assert sorted(answers) == list(range(300))


def test_what_work_raises_arrives_at_its_owner(tmp_path: Path) -> None:
    async def run() -> object:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[object] = loop.create_future()
        with ThreadPoolExecutor(1) as pool:
            ThreadBackground(pool, loop.call_soon_threadsafe).submit(
                lambda: (tmp_path / "missing").read_bytes(), outcome.set_result
            )
            return await outcome

    assert isinstance(asyncio.run(run()), FileNotFoundError)
