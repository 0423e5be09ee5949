"""Who leads: elections where a leader is missing, and the ISRs that leaders ask for. Written to the tree first, then
told to the brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jesenska.base.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    UnknownTopicOrPartitionError,
)
from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.desk import Asking, Desk, Steps, first_of, refusal, write
from jesenska.controller.effects import Children, LeaderAndIsr, Read, TopicPartitions
from jesenska.controller.elections import plan_elections
from jesenska.controller.events import ElectUncleanly, IsrProposed
from jesenska.controller.partition_states import NO_LEADER
from jesenska.controller.topics import epoch_check
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode, TopicNode
from jesenska.metadata.tree_operations import BadVersionError, Create, MultiError, Operation, SetData, TreeError


class Leadership:
    """The elections of one controller."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._context = desk.context

    # --- elections ---------------------------------------------------------------------------------------------------

    def elected(self, topic: TopicView, *, crashed: Collection[int] = ()) -> Asking:
        """The topic's partitions once each has the leader that it can have, and the operations that make it so;
        nothing is written yet. What the brokers that `crashed` lead begins a new epoch."""
        above = yield from self._missing_nodes(topic.name, [number for number in topic.node.replicas if number not in topic.partitions])
        unclean = self._desk.topic_config(topic.name).boolean("unclean.leader.election.enable")
        partitions, operations = plan_elections(self._context, topic, crashed=crashed, unclean=unclean)
        self._tell_of_leaderless(topic, partitions)
        return partitions, [*above, *operations]

    def elect_where_allowed(self) -> Steps:
        """Settings have changed: perhaps somebody may lead now what nobody does."""
        for name, topic in list(self._context.topics.items()):
            if not topic.deleting and any(partition.state.leader == NO_LEADER for partition in topic.partitions.values()):
                yield from self.elect(topic, unclean=self._desk.topic_config(name).boolean("unclean.leader.election.enable"))

    def elect_uncleanly(self, event: ElectUncleanly) -> Steps:
        name, number = event.topic_partition
        topic = self._context.topics.get(name)
        if topic is None or topic.deleting or number not in topic.partitions:
            raise UnknownTopicOrPartitionError(f"There is no partition {event.topic_partition}.")
        only = TopicView(name, TopicNode({number: topic.node.replicas[number]}, topic.topic_id), topic.version, {number: topic.partitions[number]})
        yield from self.elect(only, unclean=True)
        self._desk.answer(event.token, self._context.topics[name].partitions[number].state.leader != NO_LEADER)

    def elect(self, topic: TopicView, *, unclean: bool) -> Steps:
        """Elects leaders of those partitions of `topic` that have none; the others stay as they are."""
        partitions, operations = plan_elections(self._context, topic, unclean=unclean)
        if operations:
            yield from write((*epoch_check(self._context), *operations))
            changed = {number: partition for number, partition in partitions.items() if topic.partitions.get(number) != partition}
            self.written(topic.name, changed)

    def written(self, name: str, partitions: Mapping[int, PartitionView], but: int | None = None) -> None:
        """These states of partitions stand in the tree: they are known from now on, and told, though not to the broker
        `but`."""
        known = self._context.topics[name]
        topic = TopicView(name, known.node, known.version, {**known.partitions, **partitions}, known.deleting)
        self._context.topics[name] = topic
        changed = TopicPartitions(topic, tuple(partitions))
        for broker_id in self._context.brokers:
            held = held_by(broker_id, changed)
            if held.numbers and broker_id != but:
                self._desk.put(LeaderAndIsr(self._desk.number(), broker_id, (held,)))
        self._desk.tell_everybody([changed], but=but)

    def _missing_nodes(self, name: str, numbers: Sequence[int]) -> Asking:
        """Operations that make the nodes above the states of partitions, where they are missing."""
        if not numbers:
            return []
        (found,) = yield Read((Children(paths.partitions(name)),))
        operations: list[Operation] = [] if found is not None else [Create(paths.partitions(name))]
        return operations + [Create(paths.partition(name, number)) for number in numbers if str(number) not in (found or ())]

    def _tell_of_leaderless(self, topic: TopicView, partitions: Mapping[int, PartitionView]) -> None:
        """Says which partitions nobody leads though a broker that has a replica is up."""
        lost: dict[int, list[int]] = {}
        for number, replicas in topic.node.replicas.items():
            up = next((broker_id for broker_id in replicas if broker_id in self._context.brokers), None)
            if up is not None and partitions[number].state.leader == NO_LEADER:
                lost.setdefault(up, []).append(number)
        for broker_id, numbers in lost.items():
            some = first_of(numbers)
            self._desk.say(
                "error",
                f"topic {topic.name} has partitions that nobody leads ({some}): no replica that was in sync is up. Start a broker that has one. If none will "
                f"come back, set unclean.leader.election.enable=true for the topic: then broker {broker_id} leads with what it has, and what only the others "
                "had is lost.",
            )

    # --- ISRs --------------------------------------------------------------------------------------------------------

    def isr_proposed(self, event: IsrProposed) -> Steps:
        """Takes what a leader proposes, if it still leads on top of the state that it knows; else it is told why
        not."""
        name, number = event.topic_partition
        topic = self._context.topics.get(name)
        known = topic.partitions.get(number) if topic is not None else None
        if topic is None or topic.deleting or known is None:
            raise UnknownTopicOrPartitionError(f"There is no partition {event.topic_partition}.")
        state = known.state
        if event.leader_epoch < state.leader_epoch:
            raise FencedLeaderEpochError(f"The leader epoch of {event.topic_partition} is {state.leader_epoch}, not {event.leader_epoch}.")
        if event.leader_epoch > state.leader_epoch or event.partition_epoch > known.version:
            raise NotControllerError(f"Another controller has written a later state of {event.topic_partition}.")
        if event.partition_epoch < known.version:
            raise InvalidUpdateVersionError(f"The partition epoch of {event.topic_partition} is {known.version}, not {event.partition_epoch}.")
        if state.leader != event.broker_id or event.broker_id not in event.isr or not set(event.isr) <= set(topic.node.replicas[number]):
            raise InvalidRequestError(f"Broker {event.broker_id} cannot make {list(event.isr)} the ISR of {event.topic_partition}.")
        if not set(event.isr) <= self._context.brokers.keys():
            raise IneligibleReplicaError(f"Of the brokers {list(event.isr)} some are not up.")
        if event.isr != state.isr:
            taken = PartitionStateNode(state.leader, state.leader_epoch, event.isr, self._context.controller_epoch)
            operation = SetData(paths.partition_state(name, number), taken.encode(), known.version)
            try:
                yield from write((*epoch_check(self._context), operation))
            except (MultiError, TreeError) as error:
                refused = refusal(error)
                if not isinstance(refused, BadVersionError) or refused.path != operation.path:
                    raise
                raise InvalidUpdateVersionError(f"The state of {event.topic_partition} was written by somebody else.") from error
            known = PartitionView(taken, known.version + 1)
            partitions = {**self._context.topics[name].partitions, number: known}
            self._context.topics[name] = TopicView(name, topic.node, topic.version, partitions, topic.deleting)
            self._desk.tell_everybody([TopicPartitions(self._context.topics[name], (number,))])
        self._desk.answer(event.token, known)


def held_by(broker_id: int, part: TopicPartitions) -> TopicPartitions:
    """Those of the partitions that the broker has replicas of."""
    replicas = part.topic.node.replicas
    return TopicPartitions(part.topic, tuple(number for number in part.numbers if broker_id in replicas[number]))
