from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import ManualClock
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import METADATA_FILE
from jesenska.metadata.nodes import NodeFormatError, ProducerIdBlock
from jesenska.metadata.producer_ids import LAST_PRODUCER_ID, ProducerIds, ProducerIdsExhausted, next_block


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


def test_ids_begin_at_zero_and_the_block_is_written_before_the_first_is_given() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        store = await tree.session()
        ids = ProducerIds(store, 3)
        assert ids.take() is None
        assert await ids.new() == 0
        assert (await store.get(paths.PRODUCER_ID_BLOCK))[
            0
        ] == b'{"version":1,"broker":3,"block_start":"0","block_end":"999"}'
        assert [await ids.new() for _ in range(1000)] == list(range(1, 1001))

    run(body())


def test_brokers_that_claim_at_the_same_time_never_get_the_same_id() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        supplies = [ProducerIds(await tree.session(), broker) for broker in range(4)]

        async def some(supply: ProducerIds) -> list[int]:
            return [await supply.new() for _ in range(1500)]

        found = await asyncio.gather(*[some(supply) for supply in supplies for _ in range(2)])
        every = [producer_id for ids in found for producer_id in ids]
        assert len(every) == len(set(every)) == 12_000

    run(body())


def test_after_a_crash_no_id_comes_again(tmp_path: Path) -> None:
    async def body() -> None:
        seen: set[int] = set()
        for _ in range(3):
            tree = await EmbeddedTree.open(tmp_path / METADATA_FILE, ManualClock())
            ids = ProducerIds(await tree.session(), 0)
            for _ in range(5):
                producer_id = await ids.new()
                assert producer_id not in seen
                seen.add(producer_id)
            await tree.close()

    run(body())


def test_the_last_block_is_given_and_none_after_it() -> None:
    before = ProducerIdBlock(0, LAST_PRODUCER_ID - 1999, LAST_PRODUCER_ID - 1000)
    last = next_block(1, before)
    assert (last.first, last.last) == (LAST_PRODUCER_ID - 999, LAST_PRODUCER_ID)
    with pytest.raises(ProducerIdsExhausted):
        next_block(1, last)


def test_a_block_that_makes_no_sense_is_not_gone_on_from() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        store = await tree.session()
        await store.create(paths.PRODUCER_ID_BLOCK, ProducerIdBlock(0, 5, -7).encode())
        with pytest.raises(NodeFormatError):
            await ProducerIds(store, 0).new()

    run(body())
