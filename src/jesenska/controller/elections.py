"""Plans for who leads: what must be written to the tree so that every partition that can be led is led."""

from __future__ import annotations

from collections.abc import Collection

from jesenska.controller.context import ControllerContext, PartitionView, TopicView
from jesenska.controller.partition_states import PartitionState, elect_after_loss, elect_again, elect_first, partition_state
from jesenska.metadata import paths
from jesenska.metadata.tree_operations import Create, Operation, SetData


def plan_elections(
    view: ControllerContext, topic: TopicView, *, crashed: Collection[int] = (), unclean: bool = False
) -> tuple[dict[int, PartitionView], list[Operation]]:
    """The topic's partitions once those that need it have had an election, and the operations that make it so. The
    brokers that are up are the view's; those that `crashed` are up again, and what they lead begins a new epoch.
    `unclean` is unclean.leader.election.enable."""
    live, epoch = view.brokers, view.controller_epoch
    partitions: dict[int, PartitionView] = dict(topic.partitions)
    operations: list[Operation] = []
    for number, replicas in topic.node.replicas.items():
        held, path = partitions.get(number), paths.partition_state(topic.name, number)
        if held is None:
            partitions[number] = PartitionView(elect_first(replicas, live, epoch))
            operations.append(Create(path, partitions[number].state.encode()))
            continue
        if partition_state(held.state, live) is PartitionState.OFFLINE:
            elected = elect_after_loss(replicas, held.state, live, epoch, unclean=unclean)
        else:
            elected = elect_again(held.state, live, epoch) if held.state.leader in crashed else None
        if elected is not None:
            partitions[number] = PartitionView(elected, held.version + 1)
            operations.append(SetData(path, elected.encode(), held.version))
    return partitions, operations
