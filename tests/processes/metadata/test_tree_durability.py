"""The tree's server as its clients see it: writes are on the disk before they are answered, and many waiting writes
share one fsync."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jesenska.metadata.store import Store
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing.tree import TreeProcess
from tests.fsyncs import Fsyncs, can_trace

pytestmark = pytest.mark.skipif(not can_trace(), reason="needs strace")

_WRITES = 40


def test_each_write_that_is_waited_for_has_an_fsync_before_its_answer(tmp_path: Path) -> None:
    async def main() -> None:
        store = await connect(tree.address)
        await store.create("/n")
        with Fsyncs(tree.pid, tmp_path / "trace") as fsyncs:
            for number in range(_WRITES):
                await store.set("/n", b"%d" % number)
                # strace reports the call before it resumes the process.
                assert fsyncs.count() >= number + 1
            for _ in range(_WRITES):
                await store.get("/n")
            # The write-ahead log, and now and then the file that it is folded into.
            assert _WRITES <= fsyncs.stop() <= _WRITES + 4
        await store.close()

    with TreeProcess(tmp_path) as tree:
        asyncio.run(main())


def test_writes_of_many_clients_share_an_fsync(tmp_path: Path) -> None:
    async def write(store: Store, own: int) -> None:
        for number in range(_WRITES):
            await store.create(f"/{own:02d}-{number}", b"x" * 100)

    async def main() -> None:
        stores = [await connect(tree.address) for _ in range(16)]
        with Fsyncs(tree.pid, tmp_path / "trace") as fsyncs:
            await asyncio.gather(*(write(store, own) for own, store in enumerate(stores)))
            assert _WRITES <= fsyncs.stop() < len(stores) * _WRITES / 2
        for store in stores:
            await store.close()

    with TreeProcess(tmp_path) as tree:
        asyncio.run(main())
