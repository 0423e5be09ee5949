"""A topic with very many partitions is made and taken away in slices: others have the loop in between."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jesenska.broker.handlers import k03_metadata
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.topics import TopicCreation
from jesenska.net.channel import open_channel
from jesenska.net.connection import ReadBuffer
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse

_PARTITIONS = 1_000


class Watch:
    """Reads the number of logs whenever the loop is free, and keeps the largest step."""

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
            await broker.control.controller.create(TopicCreation("t", _PARTITIONS // 2, 1))
            await broker.control.controller.expand("t", _PARTITIONS, None)
            assert len(broker.directories.logs) == _PARTITIONS
            await broker.control.controller.delete("t")
            assert not broker.directories.logs
            assert watch.largest_step < _PARTITIONS // 3
        finally:
            task.cancel()
            await broker.stop()

    asyncio.run(main())


def test_everything_is_told_in_slices_and_nothing_that_went_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k03_metadata, "_PARTITIONS_AT_ONCE", 0)
    monkeypatch.setattr("jesenska.broker.slices._SLICE_SECONDS", -1)

    async def main() -> None:
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await broker.start()
        known, told, steps = k03_metadata._known, [], []

        def knows(*words: object) -> object:
            told.append(words[1].name)  # type: ignore[attr-defined]
            if "goes" in broker.view.topics and len(told) == 3:
                broker.replication.replicas._hide("goes")
            return known(*words)  # type: ignore[arg-type]

        async def others() -> None:
            while True:
                await asyncio.sleep(0)
                steps.append(len(told))

        try:
            for name in ("goes", "one", "two", "three"):
                await broker.control.controller.create(TopicCreation(name, 2, 1))
            host, port = broker.endpoint_for(broker.first_listener_name)
            channel = await open_channel(host, port, "many", ReadBuffer(), software_version="1")
            monkeypatch.setattr(k03_metadata, "_known", knows)
            task = asyncio.create_task(others())
            answer = await channel.request(MetadataRequest(topics=None), MetadataResponse)
            task.cancel()
            channel.close()
        finally:
            await broker.stop()
        assert {topic.name: len(topic.partitions) for topic in answer.topics} == {"one": 2, "two": 2, "three": 2}
        assert {1, 2} <= set(steps)

    asyncio.run(main())
