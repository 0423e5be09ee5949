"""A broker's registration among several: its node, its session, and its report of a crash."""

from __future__ import annotations

from typing import cast

import pytest

from jesenska.base.clock import ManualClock
from jesenska.base.errors import JesenskaError
from jesenska.broker.controlling.registration import Registration
from jesenska.broker.replicas.order_receiver import OrderReceiver
from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.config.listeners import Endpoint
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import BrokerRegistration
from jesenska.metadata.registration import ensure_paths
from jesenska.metadata.renewed_store import RenewedStore
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import ConnectionLossError
from tests.on_a_loop import on_a_loop
from tests.units.broker.test_candidacy import Candidate

_NODE = BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092),), 5)


async def _tree() -> EmbeddedTree:
    tree = EmbeddedTree.simulated(ManualClock())
    await ensure_paths(await tree.session())
    return tree


class _Broker:
    def __init__(self, broker_id: int, store: Store, node: BrokerRegistration = _NODE) -> None:
        self.store = store
        self.candidate = Candidate(broker_id, store)
        orders = OrderReceiver(cast(ReplicaManager, None))
        self.registration = Registration(store, broker_id, node, ManualClock(), 0, self.candidate.candidacy, orders)

    async def node(self) -> BrokerRegistration:
        return BrokerRegistration.decode((await self.store.get(paths.broker(self.candidate.broker_id)))[0])


@on_a_loop
async def test_a_broker_that_has_joined_is_in_the_tree_and_takes_part_in_the_election() -> None:
    tree = await _tree()
    broker = _Broker(3, await tree.session())
    await broker.registration.join()
    stat = await broker.store.exists(paths.broker(3))
    assert stat is not None
    assert broker.registration.broker_epoch == stat.czxid
    await broker.candidate.until(lambda: broker.candidate.acts_in is not None)
    await broker.candidate.candidacy.close()


@on_a_loop
async def test_an_id_that_another_broker_has_is_refused_with_a_sentence() -> None:
    tree = await _tree()
    first, second = _Broker(3, await tree.session()), _Broker(3, await tree.session())
    await first.registration.join()
    with pytest.raises(JesenskaError, match="id 3 is registered already"):
        await second.registration.join()
    assert second.registration.broker_epoch == -1
    with pytest.raises(ConnectionLossError):
        await second.registration.renew()
    await first.candidate.candidacy.close()


@on_a_loop
async def test_a_session_that_ends_is_followed_by_another_registration() -> None:
    tree = await _tree()
    store = await RenewedStore.open(tree.session)
    broker = _Broker(3, store)
    store.on_renewed(broker.registration.renew)
    await broker.registration.join()
    await broker.candidate.until(lambda: broker.candidate.acts_in == 1)
    before = broker.registration.broker_epoch
    await tree.expire(store.session_id)
    await broker.candidate.until(lambda: broker.candidate.acts_in == 2)
    assert broker.registration.broker_epoch > before
    await broker.candidate.candidacy.close()
    await store.close()


@on_a_loop
async def test_a_crash_stands_in_the_node_until_a_controller_has_dealt_with_it() -> None:
    tree = await _tree()
    store = await RenewedStore.open(tree.session)
    broker = _Broker(3, store, BrokerRegistration(_NODE.endpoints, 5, crashed=True))
    store.on_renewed(broker.registration.renew)
    await broker.registration.join()
    assert (await broker.node()).crashed
    first = broker.registration.broker_epoch
    # Its session ends before it gets the orders for its replicas.
    await tree.expire(store.session_id)
    await broker.candidate.until(lambda: broker.registration.broker_epoch > first)
    assert (await broker.node()).crashed
    await broker.registration.got_replicas(first)  # by a controller that knows the registration of before
    assert (await broker.node()).crashed
    epoch = broker.registration.broker_epoch
    await broker.registration.got_replicas(epoch)
    assert not (await broker.node()).crashed
    assert broker.registration.broker_epoch == epoch
    stat = await store.exists(paths.broker(3))
    assert stat is not None
    assert stat.czxid == epoch
    await broker.candidate.candidacy.close()
    await store.close()
