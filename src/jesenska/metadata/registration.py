"""Writes the nodes that a broker needs in the metadata tree (ZooKeeper's nodes) at its start: the nodes that every
broker expects, the cluster's id, the broker's own node, and the claim to be controller.

  paths       missing parents are created; existing nodes remain unchanged
  cluster id  the first broker's proposal is stored and used by all
  broker      ephemeral: it is deleted with the session, so that other brokers notice the broker's end
  controller  ephemeral; created in one multi with the next controller epoch, so that two controllers never have the
              same epoch

Each of these steps can be repeated at any time: a crash between them leaves no incomplete state."""

from __future__ import annotations

from jesenska.metadata import paths
from jesenska.metadata.nodes import (
    BrokerRegistration,
    ControllerNode,
    decode_cluster_id,
    decode_controller_epoch,
    encode_cluster_id,
    encode_controller_epoch,
    encode_feature,
)
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import Create, MultiError, NodeExistsError, NoNodeError, SetData, Stat

_FIRST_CONTROLLER_EPOCH = 1


class BrokerIdTaken(Exception):
    """Raised when another broker is registered under this broker's id. The message is one sentence."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(
            f"A broker with id {broker_id} is registered already: stop it, or give this one another broker.id in its "
            f"configuration."
        )


async def ensure_paths(store: Store, *, with_acls: bool = False, with_tokens: bool = False) -> None:
    """Creates the nodes that every broker expects, if they are missing. With `with_acls` it also creates the nodes of
    access rules (ACLs), and with `with_tokens` the nodes of delegation tokens."""
    acl_paths, token_paths = paths.ACL_PATHS if with_acls else (), paths.TOKEN_PATHS if with_tokens else ()
    for path in (*paths.PERSISTENT_PATHS, *acl_paths, *token_paths):
        if await store.exists(path) is None:
            try:
                await store.create(path, None)  # null, as Kafka: its brokers distinguish it from no bytes
            except NodeExistsError:
                pass  # another broker was faster
    if await store.exists(paths.FEATURE) is None:
        try:
            await store.create(paths.FEATURE, encode_feature())
        except NodeExistsError:
            pass


async def known_cluster_id(store: Store) -> str | None:
    """Returns the cluster's id, or None if no broker has ever used this tree."""
    try:
        return decode_cluster_id((await store.get(paths.CLUSTER_ID))[0])
    except NoNodeError:
        return None


async def ensure_cluster_id(store: Store, proposal: str) -> str:
    """Returns the cluster's id. If there is none, `proposal` is written and becomes the id."""
    if (known := await known_cluster_id(store)) is not None:
        return known
    try:
        await store.create(paths.CLUSTER_ID, encode_cluster_id(proposal))
    except NodeExistsError:
        return decode_cluster_id((await store.get(paths.CLUSTER_ID))[0])
    return proposal


async def next_broker_id(store: Store, reserved_max: int) -> int:
    """Returns an unused broker id above `reserved_max`, the largest id that operators may choose themselves."""
    stat = await store.set(paths.BROKER_SEQUENCE, b"")
    return reserved_max + stat.version


async def register_broker(store: Store, broker_id: int, node: BrokerRegistration) -> int:
    """Creates the broker's node, and returns the broker's epoch. Raises BrokerIdTaken if another session has created a
    node for this id. A node that this session created before is overwritten."""
    path, data = paths.broker(broker_id), node.encode()
    try:
        stat = (await store.create(path, data, ephemeral=True)).stat
    except NodeExistsError:
        known = await store.exists(path)
        if known is None:
            return await register_broker(store, broker_id, node)
        if known.ephemeral_owner != store.session_id:
            raise BrokerIdTaken(broker_id) from None
        stat = await store.set(path, data)
    assert stat is not None
    return stat.czxid


async def become_controller(store: Store, broker_id: int, now_ms: int) -> tuple[int, Stat] | None:
    """Makes this broker the controller if there is no controller. Returns the new controller epoch and the stat of the
    epoch's node, or None if another broker is controller."""
    if await store.exists(paths.CONTROLLER_EPOCH) is None:
        try:
            await store.create(paths.CONTROLLER_EPOCH, encode_controller_epoch(_FIRST_CONTROLLER_EPOCH - 1))
        except NodeExistsError:
            pass
    data, stat = await store.get(paths.CONTROLLER_EPOCH)
    epoch = decode_controller_epoch(data) + 1
    claim = ControllerNode(broker_id, now_ms).encode()
    try:
        results = await store.multi(
            [
                Create(paths.CONTROLLER, claim, ephemeral=True),
                SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version),
            ]
        )
    except MultiError:
        return None
    written = results[1].stat
    assert written is not None
    return epoch, written


async def controller_of(store: Store) -> int | None:
    """Returns the id of the broker that is controller, or None if there is no controller."""
    try:
        return ControllerNode.decode((await store.get(paths.CONTROLLER))[0]).broker_id
    except NoNodeError:
        return None
