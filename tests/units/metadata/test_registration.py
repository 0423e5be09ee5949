from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from jesenska.base.clock import ManualClock
from jesenska.config.listeners import Endpoint
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import BrokerRegistration
from jesenska.metadata.registration import (
    BrokerIdTaken,
    become_controller,
    controller_of,
    ensure_cluster_id,
    ensure_paths,
    next_broker_id,
    register_broker,
)

NODE = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), 5)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


# `ls -R /` of the ZooKeeper of a broker of 3.9.1 that has just started, without the nodes that the next tests create.
KAFKAS = {
    "/",
    "/admin",
    "/admin/delete_topics",
    "/brokers",
    "/brokers/ids",
    "/brokers/seqid",
    "/brokers/topics",
    "/cluster",
    "/config",
    "/config/brokers",
    "/config/changes",
    "/config/clients",
    "/config/ips",
    "/config/topics",
    "/config/users",
    "/consumers",
    "/feature",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/zookeeper",
    "/zookeeper/config",
    "/zookeeper/quota",
}


def test_a_broker_makes_the_nodes_that_kafka_makes_and_may_do_so_again() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        one, other = await tree.session(), await tree.session()
        await asyncio.gather(ensure_paths(one), ensure_paths(other))
        await ensure_paths(one)
        assert {path for path, _ in tree.tree.walk()} == KAFKAS

    run(body())


def test_the_first_proposal_of_a_cluster_id_stands() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        one, other = await tree.session(), await tree.session()
        await ensure_paths(one)
        assert set(await asyncio.gather(ensure_cluster_id(one, "first"), ensure_cluster_id(other, "second"))) == {
            "first"
        }
        assert await ensure_cluster_id(other, "third") == "first"

    run(body())


def test_broker_ids_given_automatically_differ_and_stay_above_the_reserved_ones() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        store = await tree.session()
        await ensure_paths(store)
        assert [await next_broker_id(store, 1000) for _ in range(3)] == [1001, 1002, 1003]

    run(body())


def test_a_broker_is_registered_once_and_its_node_goes_with_its_session() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        one, other = await tree.session(), await tree.session()
        await ensure_paths(one)
        epoch = await register_broker(one, 0, NODE)
        assert await register_broker(one, 0, NODE) == epoch
        with pytest.raises(BrokerIdTaken, match="id 0 is registered already"):
            await register_broker(other, 0, NODE)
        await one.close()
        assert await other.exists(paths.broker(0)) is None
        assert await register_broker(other, 0, NODE) > epoch

    run(body())


def test_there_is_one_controller_and_every_one_has_an_epoch_of_its_own() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        stores = [await tree.session() for _ in range(3)]
        await ensure_paths(stores[0])
        assert await controller_of(stores[0]) is None
        claims = await asyncio.gather(*[become_controller(store, number, 5) for number, store in enumerate(stores)])
        (winner,) = [claim for claim in claims if claim is not None]
        assert winner[0] == 1
        assert await controller_of(stores[1]) == 0
        await stores[0].close()
        again = await become_controller(stores[1], 1, 6)
        assert again is not None
        assert again[0] == 2
        assert await controller_of(stores[2]) == 1
        assert (await stores[2].get(paths.CONTROLLER_EPOCH))[0] == b"2"

    run(body())
