"""Changes of settings do not leave nodes in the tree permanently."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans import config_changes
from jesenska.controller.plans.topics import TopicCreation
from jesenska.metadata import paths


def test_nodes_that_told_of_changes_go_when_they_are_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await broker.start()
        try:
            await broker.control.controller.create(TopicCreation("t", 1, 1))
            for number in range(3):
                await broker.control.controller.alter_topic(
                    "t", {"retention.ms": str(1000 + number)}, validate_only=False
                )
            store = broker.place.store
            assert len((await store.children(paths.CONFIG_CHANGES))[0]) == 3
            monkeypatch.setattr(config_changes, "CHANGE_EXPIRATION_MS", 0)
            await broker.control.controller.alter_topic("t", {"retention.ms": "2000"}, validate_only=False)
            assert (await store.children(paths.CONFIG_CHANGES))[0] == []
        finally:
            await broker.stop()

    asyncio.run(main())
