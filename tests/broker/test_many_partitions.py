"""A topic with very many partitions is made and taken away in slices: others have the loop in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.controller.topics import TopicCreation

_PARTITIONS = 1_000


class Watch:
    """Looks at the number of logs whenever it has the loop, and keeps the largest step."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.largest_step = 0

    async def run(self) -> None:
        before = len(self._broker.directories.logs)
        while True:
            await asyncio.sleep(0)
            now = len(self._broker.directories.logs)
            self.largest_step, before = max(self.largest_step, abs(now - before)), now


def test_others_are_served_while_a_thousand_logs_are_made_and_deleted(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await broker.start()
        watch = Watch(broker)
        task = asyncio.create_task(watch.run())
        try:
            await broker.topics.create(TopicCreation("t", _PARTITIONS // 2, 1))
            await broker.topics.expand("t", _PARTITIONS, None)
            assert len(broker.directories.logs) == _PARTITIONS
            await broker.topics.delete("t")
            assert not broker.directories.logs
            assert watch.largest_step < _PARTITIONS // 3
        finally:
            task.cancel()
            await broker.stop()

    asyncio.run(main())
