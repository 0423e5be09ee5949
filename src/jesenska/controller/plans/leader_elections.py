"""Plans for elections: the writes to the metadata tree (ZooKeeper's nodes) that give a leader to every partition that
can have a leader. `partition_states` has the table of elections, and decides which replica is elected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from jesenska.controller.context import ControllerContext, PartitionView, TopicView
from jesenska.controller.plans.partition_states import (
    ELECTS,
    NO_LEADER,
    Change,
    PartitionEvent,
    changed,
    elect_after_crash,
    elect_after_loss,
    elect_before_stop,
    elect_first,
    elect_preferred,
    partition_state,
    without_gone,
)
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.metadata.tree_operations import Create, Operation, SetData

#: The events whose elections are tried, in this order. The first election that changes the partition is used.
_CHANGED: Final = (PartitionEvent.BROKERS_CHANGED,)
_CRASHED: Final = (PartitionEvent.BROKERS_CRASHED, PartitionEvent.BROKERS_CHANGED)


def plan_elections(
    view: ControllerContext, topic: TopicView, *, crashed: Collection[int] = (), unclean: bool = False
) -> tuple[dict[int, PartitionView], list[Operation]]:
    """Plans the elections that a topic needs. Returns its partitions after the elections, and the operations to write.
    Brokers in `crashed` have registered again and may lack records. A stopping broker is elected only if no other
    broker can be elected. `unclean` is unclean.leader.election.enable."""
    partitions: dict[int, PartitionView] = dict(topic.partitions)
    operations: list[Operation] = []
    for number, replicas in topic.node.replicas.items():
        held, path, live = (
            partitions.get(number),
            paths.partition_state(topic.name, number),
            view.live(topic.name, number),
        )
        written = None if held is None else held.state
        elected = _elect(view, live, replicas, written, crashed, unclean=unclean)
        if elected is None:
            continue
        if held is None:
            partitions[number] = PartitionView(elected)
            operations.append(Create(path, elected.encode()))
        else:
            partitions[number] = PartitionView(elected, held.version + 1)
            operations.append(SetData(path, elected.encode(), held.version))
    return partitions, operations


def _elect(
    view: ControllerContext,
    live: Collection[int],
    replicas: Sequence[int],
    written: PartitionStateNode | None,
    crashed: Collection[int],
    *,
    unclean: bool,
) -> PartitionStateNode | None:
    """Returns the new state of a partition after brokers have registered or left, or None if nothing changes."""
    state, epoch = partition_state(written, live), view.controller_epoch
    for event in _CRASHED if crashed else _CHANGED:
        change = ELECTS[event][state]
        if written is None:
            elected: PartitionStateNode | None = elect_first(replicas, live, epoch)
        elif change is Change.AFTER_CRASH:
            elected = elect_after_crash(replicas, written, live, crashed, epoch, unclean=unclean)
        elif change is Change.AFTER_LOSS:
            elected = _elect_after_loss(view, live, replicas, written, unclean=unclean)
        else:
            elected = without_gone(written, live, epoch)
        if elected is not None:
            return changed(change, written, elected, live)
    return None


def _elect_after_loss(
    view: ControllerContext,
    live: Collection[int],
    replicas: Sequence[int],
    written: PartitionStateNode,
    *,
    unclean: bool,
) -> PartitionStateNode | None:
    """Returns the partition's state after the election of a new leader. A live broker that is not stopping is
    preferred. Returns None if the state stays as it is."""
    if view.stopping:
        staying = [broker_id for broker_id in live if broker_id not in view.stopping]
        elected = elect_after_loss(replicas, written, staying, view.controller_epoch, unclean=False)
        if elected is not None and elected.leader != NO_LEADER:
            return elected
    return elect_after_loss(replicas, written, live, view.controller_epoch, unclean=unclean)


def plan_stop(
    view: ControllerContext, topic: TopicView, broker_id: int
) -> tuple[dict[int, PartitionView], list[Operation]]:
    """Plans the changes of a topic when a broker is about to stop. Returns the partitions that get another leader, or
    an ISR without the broker, and the operations to write."""

    def elect(number: int, written: PartitionStateNode) -> PartitionStateNode | None:
        replicas, live = topic.node.replicas[number], view.live(topic.name, number)
        return (
            elect_before_stop(replicas, written, live, view.stopping | {broker_id}, view.controller_epoch)
            if broker_id in written.isr
            else None
        )

    return _planned(view, topic, topic.partitions, PartitionEvent.BROKER_STOPS, elect)


def plan_preferred(
    view: ControllerContext, topic: TopicView, numbers: Iterable[int]
) -> tuple[dict[int, PartitionView], list[Operation]]:
    """Plans the election of preferred (first) replicas. Returns the partitions whose first replica can lead and does
    not lead yet, and the operations to write."""

    def elect(number: int, written: PartitionStateNode) -> PartitionStateNode | None:
        replicas = topic.node.replicas[number]
        staying = [broker_id for broker_id in view.live(topic.name, number) if broker_id not in view.stopping]
        return (
            None
            if replicas[:1] == (written.leader,)
            else elect_preferred(replicas, written, staying, view.controller_epoch)
        )

    return _planned(view, topic, numbers, PartitionEvent.PREFERRED_WANTED, elect)


def _planned(
    view: ControllerContext,
    topic: TopicView,
    numbers: Iterable[int],
    event: PartitionEvent,
    elect: Callable[[int, PartitionStateNode], PartitionStateNode | None],
) -> tuple[dict[int, PartitionView], list[Operation]]:
    """Returns the partitions that `elect` changes, and the operations to write."""
    partitions: dict[int, PartitionView] = {}
    operations: list[Operation] = []
    for number in numbers:
        held = topic.partitions.get(number)
        elected = elect(number, held.state) if held is not None and number in topic.node.replicas else None
        if held is not None and elected is not None:
            live = view.live(topic.name, number)
            elected = changed(ELECTS[event][partition_state(held.state, live)], held.state, elected, live)
            partitions[number] = PartitionView(elected, held.version + 1)
            operations.append(SetData(paths.partition_state(topic.name, number), elected.encode(), held.version))
    return partitions, operations


def imbalanced(view: ControllerContext, topics: Iterable[TopicView], percentage: int) -> dict[str, list[int]]:
    """Returns, by topic, the partitions that their first replica does not lead. Only brokers that lead too few of the
    partitions for which they are preferred are counted. Partitions that are being reassigned are left out.
    `percentage` is leader.imbalance.per.broker.percentage."""
    owned: dict[int, int] = {}
    missed: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for number, replicas in topic.node.replicas.items():
            if not replicas or replicas[0] not in view.live(topic.name, number):
                continue
            if number in topic.node.adding or number in topic.node.removing:
                continue
            owned[replicas[0]] = owned.get(replicas[0], 0) + 1
            held = topic.partitions.get(number)
            if held is not None and held.state.leader != replicas[0]:
                missed.setdefault(replicas[0], {}).setdefault(topic.name, []).append(number)
    found: dict[str, list[int]] = {}
    for broker_id, by_topic in missed.items():
        if 100 * sum(map(len, by_topic.values())) > percentage * owned[broker_id]:
            for name, numbers in by_topic.items():
                found.setdefault(name, []).extend(numbers)
    return found
