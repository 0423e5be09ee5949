"""This broker in the tree: the nodes that must exist, the cluster's id, its own id, its registration and its election as controller.

The nodes are those that Apache Kafka's brokers make in ZooKeeper mode. A registration is ephemeral: it goes with the broker's session. A second
broker with the same id is refused while the first one is registered.
"""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import random_uuid, uuid_to_text
from jesenska.config.listeners import Listener
from jesenska.metadata import nodes, paths
from jesenska.metadata.store import Store
from jesenska.metadata.transactions import Create, NodeExistsError, NoNodeError, SetData


async def prepare_tree(store: Store) -> None:
    """Makes the nodes that are missing, parents first."""
    for path in paths.PERSISTENT_PATHS:
        if await store.exists(path) is None:
            await _create_if_missing(store, path)


async def _create_if_missing(store: Store, path: str, data: bytes = b"") -> None:
    try:
        await store.create(path, data)
    except NodeExistsError:
        pass


async def settle_cluster_id(store: Store, found_in_directories: str | None) -> str:
    """The cluster's id: the tree's if it has one, else the one that the log directories name, else a new one."""
    try:
        return nodes.decode_cluster_id((await store.get(paths.CLUSTER_ID))[0])
    except NoNodeError:
        await _create_if_missing(store, paths.CLUSTER_ID, nodes.encode_cluster_id(found_in_directories or uuid_to_text(random_uuid())))
        return nodes.decode_cluster_id((await store.get(paths.CLUSTER_ID))[0])


async def generate_broker_id(store: Store, reserved_max: int) -> int:
    """An id that no broker had: above `reserved.broker.max.id`, counted by the version of a node."""
    return reserved_max + (await store.set(paths.BROKER_SEQUENCE, b"")).version


async def register_broker(store: Store, broker_id: int, endpoints: Sequence[Listener], rack: str | None, now_ms: int) -> None:
    """Registers the broker; JesenskaError if another one with its id is up."""
    node = nodes.BrokerNode(tuple(endpoints), now_ms, rack)
    try:
        await store.create(paths.broker(broker_id), node.encode(), ephemeral=True)
    except NodeExistsError as error:
        raise JesenskaError(f"A broker with the id {broker_id} is registered already: stop it, or give this one another broker.id.") from error


async def elect_controller(store: Store, broker_id: int, now_ms: int) -> int:
    """Makes this broker the controller and gives the new controller epoch. A lone broker has no rival; in a cluster NodeExistsError says that
    another one was elected."""
    try:
        data, stat = await store.get(paths.CONTROLLER_EPOCH)
        epoch, version = nodes.decode_controller_epoch(data), stat.version
    except NoNodeError:
        await _create_if_missing(store, paths.CONTROLLER_EPOCH, nodes.encode_controller_epoch(0))
        epoch, version = 0, (await store.get(paths.CONTROLLER_EPOCH))[1].version
    await store.multi(
        [
            Create(paths.CONTROLLER, nodes.ControllerNode(broker_id, now_ms).encode(), ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, nodes.encode_controller_epoch(epoch + 1), version),
        ]
    )
    return epoch + 1
