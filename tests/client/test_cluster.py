"""Connections of the client."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess


def test_connection_that_nobody_waits_for_any_more_is_closed_with_the_client(tmp_path: Path) -> None:
    """A socket that is left open is a ResourceWarning, which fails the run."""

    async def give_up(bootstrap: str, turns: int) -> None:
        cluster = Cluster(bootstrap)
        asking = asyncio.create_task(cluster.any_channel())
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        openings = list(cluster._opening.values())
        if turns % 2 and openings:
            await asyncio.wait(openings)
        await cluster.close()
        assert not cluster._opening
        assert all(opening.cancelled() or opening.result().closed for opening in openings)

    with BrokerProcess(tmp_path / "data") as broker:
        for turns in range(20):
            asyncio.run(give_up(broker.bootstrap, turns))
