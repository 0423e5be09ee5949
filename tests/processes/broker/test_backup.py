"""The two ways to back up a broker that docs/operations.md names: its directories copied while it is stopped, and in
one instant while it runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess
from tests.values_and_offset import values_and_offset

_KEY = TopicPartition("kept", 0)


async def _write(bootstrap: str, numbers: range) -> None:
    cluster = Cluster(bootstrap)
    async with Producer(cluster) as producer:
        sent = [await producer.send("kept", b"%d" % number) for number in numbers]
        await asyncio.gather(*sent)
    await Admin(cluster).alter_group_offsets("readers", {_KEY: numbers.stop})
    await cluster.close()


@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
def test_a_broker_on_a_copy_has_everything_that_was_acknowledged(tmp_path: Path, running: bool) -> None:
    with BrokerProcess(tmp_path / "data", settings={"log.segment.bytes": "20000"}) as broker:

        async def create() -> None:
            cluster = Cluster(broker.bootstrap)
            await Admin(cluster).create_topics([NewTopic("kept", 1, 1, {"retention.ms": "-1"})])
            await cluster.close()

        asyncio.run(create())
        asyncio.run(_write(broker.bootstrap, range(2000)))
        if running:
            # Nothing moves while it is held, as in a snapshot of the file system.
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                shutil.copytree(tmp_path / "data", tmp_path / "copy")
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        else:
            broker.stop()
            shutil.copytree(tmp_path / "data", tmp_path / "copy")
            broker.start()
        asyncio.run(_write(broker.bootstrap, range(2000, 2100)))
        with BrokerProcess(tmp_path / "copy") as restored:
            values, committed = asyncio.run(values_and_offset(restored.bootstrap, _KEY, "readers", 2000))
            assert values == [b"%d" % number for number in range(2000)]
            assert committed == 2000
