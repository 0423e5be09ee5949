"""Decides which nodes of a broker's own metadata tree (in place of ZooKeeper) are written into a ZooKeeper for Apache
Kafka, and if they may be written. The functions do no input or output.

The nodes already have Kafka's format. Registrations of running brokers and notifications to brokers are left out, as
in `takeover`. A ZooKeeper with another cluster, or with running brokers, is refused. Older nodes of the same cluster
are overwritten only on request."""

from __future__ import annotations

from collections.abc import Mapping

from jesenska.base.errors import JesenskaError
from jesenska.interchange.nodes import FoundTree, Node, children
from jesenska.interchange.takeover import MIGRATION, is_left_out
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, decode_cluster_id


def plan_handover(own: Mapping[str, Node], there: FoundTree, where: str, *, replace: bool) -> dict[str, Node]:
    """Returns the nodes to write into the ZooKeeper. `there` is the present content of the ZooKeeper, and `where` is
    its name in messages. `replace` allows overwriting of older nodes. Raises JesenskaError with one sentence if the
    nodes may not be written."""
    cluster_id = _cluster_id(own.get(paths.CLUSTER_ID))
    if cluster_id is None:
        raise JesenskaError(
            "The metadata have no cluster id, so no broker has ever used them: start Kafka on an empty directory "
            "instead."
        )
    if there.brokers_up:
        raise JesenskaError(
            f"Brokers are registered in {where} ({', '.join(map(str, sorted(there.brokers_up)))}): stop them, or "
            "give another path."
        )
    other = _cluster_id(there.nodes.get(paths.CLUSTER_ID))
    if other not in (None, cluster_id):
        raise JesenskaError(
            f"{where} has cluster {other}, but these are the metadata of cluster {cluster_id}: give another path "
            "after the servers, as in HOST:PORT/PATH."
        )
    if (other is not None or children(there.nodes, paths.TOPICS)) and not replace:
        raise JesenskaError(
            f"{where} already has metadata of Kafka: overwrite them with --replace, or give another path after the "
            "servers, as in HOST:PORT/PATH."
        )
    wanted = {path: node for path, node in own.items() if not is_left_out(path)}
    for path in paths.PERSISTENT_PATHS:
        wanted.setdefault(path, Node(None))
    wanted.pop(MIGRATION, None)
    return wanted


def _cluster_id(node: Node | None) -> str | None:
    if node is None or not node.data:
        return None
    try:
        return decode_cluster_id(node.data)
    except NodeFormatError as error:
        raise JesenskaError(
            f"The node {paths.CLUSTER_ID} cannot be read ({error}): correct it, or restore a copy."
        ) from error
