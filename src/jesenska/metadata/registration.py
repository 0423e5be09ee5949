"""What a broker writes into the tree when it starts: the nodes that everyone expects, the cluster's id, its own node,
and its claim to be controller.

    paths       missing parents are made; what is there stays
    cluster id  the first broker's proposal stands
    broker      ephemeral: it goes with the session, so a broker that is dead is seen to be dead
    controller  ephemeral, made in one multi with the next controller epoch, so that two controllers never share an
                epoch

All of it can be done again at any time: a crash in between leaves nothing half made."""

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
    """Another broker is registered under this number; the text is one sentence."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(
            f"A broker with id {broker_id} is registered already: stop it, or give this one another broker.id in its "
            f"configuration."
        )


async def ensure_paths(store: Store, *, with_acls: bool = False) -> None:
    """Makes the nodes that every broker expects, where they are missing; `with_acls`: those of access rules, too."""
    for path in (*paths.PERSISTENT_PATHS, *(paths.ACL_PATHS if with_acls else ())):
        if await store.exists(path) is None:
            try:
                await store.create(path, None)  # null, as Kafka: its brokers tell that from no bytes
            except NodeExistsError:
                pass  # another broker was faster
    if await store.exists(paths.FEATURE) is None:
        try:
            await store.create(paths.FEATURE, encode_feature())
        except NodeExistsError:
            pass


async def known_cluster_id(store: Store) -> str | None:
    """The cluster's id; None where no broker has ever been in that tree."""
    try:
        return decode_cluster_id((await store.get(paths.CLUSTER_ID))[0])
    except NoNodeError:
        return None


async def ensure_cluster_id(store: Store, proposal: str) -> str:
    """The cluster's id: the one that is there, or the proposal, which then stands."""
    if (known := await known_cluster_id(store)) is not None:
        return known
    try:
        await store.create(paths.CLUSTER_ID, encode_cluster_id(proposal))
    except NodeExistsError:
        return decode_cluster_id((await store.get(paths.CLUSTER_ID))[0])
    return proposal


async def next_broker_id(store: Store, reserved_max: int) -> int:
    """A broker id that nobody has, above those that operators may choose."""
    stat = await store.set(paths.BROKER_SEQUENCE, b"")
    return reserved_max + stat.version


async def register_broker(store: Store, broker_id: int, node: BrokerRegistration) -> int:
    """Makes the broker's node, and gives the broker's epoch; BrokerIdTaken where another session has one.

    A node that this session made before is written anew."""
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
    """Makes this broker controller where there is none: its epoch, and the stat of the epoch's node. None where
    another broker is controller."""
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
    """The broker that is controller; None where there is none."""
    try:
        return ControllerNode.decode((await store.get(paths.CONTROLLER))[0]).broker_id
    except NoNodeError:
        return None
