"""The times when a broker reads the features of the brokers from the tree."""

from __future__ import annotations

import asyncio

from jesenska.base.clock import ManualClock
from jesenska.broker.controlling.features import Features
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.registration import ensure_paths
from tests.on_a_loop import on_a_loop

_OFFERS_TWO = b'{"features": {"transaction.version": {"min_version": 0, "max_version": 2}}}'


@on_a_loop
async def test_a_broker_that_stops_looks_no_more_when_others_come_or_go() -> None:
    tree = EmbeddedTree.simulated(ManualClock())
    other = await tree.session()
    await ensure_paths(other)
    features = Features(await tree.session())
    await features.begin()
    await other.create(f"{paths.BROKER_IDS}/1", _OFFERS_TWO)
    async with asyncio.timeout(10):
        while features.transaction_version != 2:
            await asyncio.sleep(0)
    seen = features.epoch
    await features.close()
    await other.delete(f"{paths.BROKER_IDS}/1")
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others
    assert (features.transaction_version, features.epoch) == (2, seen)
