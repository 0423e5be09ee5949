"""The broker is killed with SIGKILL in the middle of a load, again and again, and starts again on the same port and
data. Producers only notice that they have to retry. The profile of the tests sets the number of kills."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import threading
from pathlib import Path

import pytest

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.processes.crash.load import (
    PARTITIONS,
    TOPIC,
    Ledger,
    check,
    new_producer_id,
    produce,
    produce_with_librdkafka,
    read_everything,
)
from tests.profiles import rounds

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CRASHES = rounds(quick=1, ci=5, everything=20)


def test_nothing_acknowledged_is_lost_doubled_or_out_of_order_when_the_broker_is_killed(tmp_path: Path) -> None:
    chance = random.Random(1948)
    ledger = Ledger()
    idempotent = {"ours-once": True, "ours-again": False, "ours-gzip": True}
    codecs = {"ours-once": Codec.NONE, "ours-again": Codec.LZ4, "ours-gzip": Codec.GZIP}
    others = {"rdkafka-once": True, "rdkafka-again": False} if importlib.util.find_spec("confluent_kafka") else {}
    handed_out: list[int] = []

    # Small segments: kills meet rolls; short intervals: kills meet checkpoints.
    settings = {
        "log.segment.bytes": "1048576",
        "log.flush.offset.checkpoint.interval.ms": "300",
        "log.flush.interval.messages": "5000",
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:

        async def create() -> None:
            cluster = Cluster(broker.bootstrap)
            created = await Admin(cluster).create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
            await cluster.close()
            assert created == {TOPIC: None}

        asyncio.run(create())

        async def ours() -> None:
            await asyncio.gather(
                *(produce(broker.bootstrap, ledger, name, once, codecs[name]) for name, once in idempotent.items())
            )

        loads = [threading.Thread(target=asyncio.run, args=(ours(),))]
        loads += [
            threading.Thread(target=produce_with_librdkafka, args=(broker.bootstrap, ledger, name, once))
            for name, once in others.items()
        ]
        for load in loads:
            load.start()
        try:
            for _ in range(CRASHES):
                handed_out += [new_producer_id(broker) for _ in range(3)]
                ledger.wait_for(chance.randrange(1, 6000))
                broker.kill()
                broker.start()
                new = new_producer_id(broker)
                assert new not in handed_out
                handed_out.append(new)
            ledger.wait_for(1000)
        finally:
            ledger.stopping.set()
            for load in loads:
                load.join()
        assert ledger.failures == []
        check(ledger, read_everything(broker.bootstrap), idempotent | others)
        broker.kill()
        broker.start()  # a second recovery finds the same
        check(ledger, read_everything(broker.bootstrap), idempotent | others)
    assert len(set(handed_out)) == len(handed_out)
    assert handed_out == sorted(handed_out)
