"""Plans the reassignment of partitions: the move of replicas to other brokers (KIP-455). These functions are pure:
they return the operations for the metadata tree (ZooKeeper's nodes), and do not write.

  SETTLED --- requested ---> MOVING --- complete ---> SETTLED
                             | ^  |
         another target ---- +-+  +--- cancelled ---> SETTLED

    SETTLED     the partition has its replicas, and no others
    MOVING      the topic's node has the adding and the removing replicas of the partition. The replicas are the target
                and the replicas from before the reassignment (the origin); all of them fetch from the leader
    requested   the adding replicas are the target without the origin, the removing replicas the origin without the
                target. Each change of the replicas begins a new leader epoch
    another target, cancelled
                the origin stays the same; adding replicas that are not in the new target are dropped. A cancellation
                has the origin as its target. Refused if all in-sync replicas would be dropped
    complete    the adding replicas are in the ISR, and so are the replicas of the target whose brokers are registered.
                In one write the replicas become the target, the ISR loses the removing replicas, and if the leader is
                removed, the first replica of the target that is registered and in sync becomes leader

The state of a reassignment is completely in the topic's node, so another controller continues it at any step. Source:
KIP-455. The names target and origin are those of Apache Kafka's controller in ZooKeeper mode."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from jesenska.base.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    KafkaError,
    NoReassignmentInProgressError,
    ReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from jesenska.controller.context import ControllerContext, PartitionView, TopicView
from jesenska.controller.plans.partition_states import NO_LEADER, Change, changed
from jesenska.controller.plans.topics import require_brokers
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode, TopicNode
from jesenska.metadata.tree_operations import Operation, SetData

#: The largest number of partitions in one plan, so that its operations fit into one write of the metadata tree.
PARTITIONS_AT_ONCE = 250


class Reassignment(NamedTuple):
    """The replicas of a partition, and those that are being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """Returns the replicas after the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Returns the replicas from before the reassignment."""
        return tuple(broker for broker in self.replicas if broker not in self.adding)

    def to(self, target: Sequence[int]) -> Reassignment:
        """Returns the reassignment of the same origin to another target."""
        origin = self.origin
        replicas = tuple(dict.fromkeys((*target, *origin)))
        return Reassignment(
            replicas,
            tuple(broker for broker in replicas if broker not in origin),
            tuple(broker for broker in replicas if broker not in target),
        )


class ReassignmentPlan(NamedTuple):
    """The operations to write together, the topic after these operations, the partitions that have changed, the
    replicas that are no longer assigned (partitions by broker), and the refused requests."""

    operations: tuple[Operation, ...]
    topic: TopicView
    numbers: tuple[int, ...]
    dropped: Mapping[int, tuple[int, ...]]
    errors: Mapping[int, KafkaError]


def reassignment_of(node: TopicNode, number: int) -> Reassignment:
    """Returns the replicas of a partition as the topic's node has them."""
    return Reassignment(node.replicas[number], node.adding.get(number, ()), node.removing.get(number, ()))


def moving(topic: TopicView) -> list[int]:
    """Returns the partitions of a topic that are being reassigned."""
    return sorted(
        number
        for number in topic.node.adding.keys() | topic.node.removing.keys()
        if number in topic.node.replicas and reassignment_of(topic.node, number).is_moving
    )


def check_target(
    view: ControllerContext,
    topic: TopicView,
    number: int,
    target: Sequence[int] | None,
    *,
    may_change_factor: bool,
    is_branching: bool,
) -> Reassignment:
    """Returns the reassignment that a request begins. The target None cancels a reassignment. `is_branching` is True
    if the topic is a branch or the source of a branch (`branching_topics`). Raises KafkaError with the error code and
    message for the client if the request is refused."""
    if topic.deleting:
        raise UnknownTopicOrPartitionError(f"Topic {topic.name} is being deleted.")
    if number not in topic.node.replicas or number not in topic.partitions:
        raise UnknownTopicOrPartitionError(f"Unable to find partition {topic.name}:{number}.")
    if is_branching:
        raise ReassignmentInProgressError(f"Topic {topic.name} is being branched: try again when that is done.")
    current = reassignment_of(topic.node, number)
    if target is None:
        if not current.is_moving:
            raise NoReassignmentInProgressError()
        wanted = current.to(current.origin)
    else:
        require_brokers(view, sorted(target))
        before = len(current.origin)
        if not may_change_factor and len(target) != before:
            raise InvalidReplicationFactorError(f"The replication factor is changed from {before} to {len(target)}")
        wanted = current.to(target)
    if not set(topic.partitions[number].state.isr) & set(wanted.replicas):
        raise InvalidReplicaAssignmentError(
            f"Unable to revert partition reassignment for {topic.name}-{number} because it would require an unclean "
            "leader election."
        )
    return wanted


def plan_request(
    view: ControllerContext,
    topic: TopicView,
    wanted: Mapping[int, Sequence[int] | None],
    *,
    may_change_factor: bool,
    is_branching: bool,
) -> ReassignmentPlan:
    """Plans the requested targets of partitions of a topic (`check_target`). A reassignment that has nothing to wait
    for is planned to its end. `errors` of the plan has the refused requests."""
    after: dict[int, Reassignment] = {}
    errors: dict[int, KafkaError] = {}
    for number, target in wanted.items():
        try:
            after[number] = check_target(
                view, topic, number, target, may_change_factor=may_change_factor, is_branching=is_branching
            )
        except KafkaError as error:
            errors[number] = error
    return _plan(view, topic, after)._replace(errors=errors)


def plan_completion(view: ControllerContext, topic: TopicView, numbers: Iterable[int]) -> ReassignmentPlan:
    """Plans the end of the reassignments that are complete, of these partitions of a topic."""
    after = {number: reassignment_of(topic.node, number) for number in numbers if number in topic.partitions}
    return _plan(view, topic, after)


def _plan(view: ControllerContext, topic: TopicView, wanted: Mapping[int, Reassignment]) -> ReassignmentPlan:
    replicas = dict(topic.node.replicas)
    adding, removing = dict(topic.node.adding), dict(topic.node.removing)
    partitions, states = dict(topic.partitions), list[Operation]()
    dropped: dict[int, list[int]] = {}
    numbers = []
    for number, reassignment in wanted.items():
        held = topic.partitions[number]
        live = view.live(topic.name, number)
        state = _state_after(held.state, reassignment.replicas, live, view.controller_epoch)
        if state is not None and _is_complete(reassignment, state.isr, live):
            settled = Reassignment(reassignment.target)
            state_then = _state_after(held.state, settled.replicas, live, view.controller_epoch)
            if state_then is not None and (state_then.leader != NO_LEADER or held.state.leader == NO_LEADER):
                reassignment, state = settled, state_then
        if state is None or reassignment == reassignment_of(topic.node, number):
            continue
        for broker_id in topic.node.replicas[number]:
            if broker_id not in reassignment.replicas:
                dropped.setdefault(broker_id, []).append(number)
        numbers.append(number)
        replicas[number] = reassignment.replicas
        for brokers, changed_brokers in ((adding, reassignment.adding), (removing, reassignment.removing)):
            brokers.pop(number, None)
            if changed_brokers:
                brokers[number] = changed_brokers
        changed(Change.REPLICAS, held.state, state, live)
        partitions[number] = PartitionView(state, held.version + 1)
        states.append(SetData(paths.partition_state(topic.name, number), state.encode(), held.version))
    if not states:
        return ReassignmentPlan((), topic, (), {}, {})
    node = TopicNode(replicas, topic.topic_id, adding, removing)
    return ReassignmentPlan(
        (SetData(paths.topic(topic.name), node.encode(), topic.version), *states),
        TopicView(topic.name, node, topic.version + 1, partitions, topic.deleting),
        tuple(numbers),
        {broker_id: tuple(of_broker) for broker_id, of_broker in dropped.items()},
        {},
    )


def _is_complete(reassignment: Reassignment, isr: Collection[int], live: Collection[int]) -> bool:
    """Returns True if the replicas of the target can replace the current replicas."""
    target = reassignment.target
    return (
        all(broker_id in isr for broker_id in reassignment.adding)
        and all(broker_id in isr for broker_id in target if broker_id in live)
        and any(broker_id in isr for broker_id in target)
    )


def _state_after(
    written: PartitionStateNode, replicas: Sequence[int], live: Collection[int], controller_epoch: int
) -> PartitionStateNode | None:
    """Returns the state of a partition that has only these replicas. Returns None if none of them is in sync."""
    isr = tuple(broker_id for broker_id in written.isr if broker_id in replicas)
    if not isr:
        return None
    leader = written.leader
    if leader not in isr:
        leader = next((broker_id for broker_id in replicas if broker_id in isr and broker_id in live), NO_LEADER)
    return PartitionStateNode(leader, written.leader_epoch + 1, isr, controller_epoch)
