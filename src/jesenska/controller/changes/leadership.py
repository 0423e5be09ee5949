"""Elects leaders, and carries out ISR changes that leaders request. The results are written to the metadata tree
(ZooKeeper's nodes) first, then sent to the brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from jesenska.base.errors import (
    BrokerNotAvailableError,
    ElectionNotNeededError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.controller.changes.change_state import Asking, ControllerState, Steps, first_of, refusal, write
from jesenska.controller.changes.many_elections import ManyElections, read_again
from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.effects import Children, LeaderAndIsr, Read, StopReplica, TopicPartitions
from jesenska.controller.events import (
    BalanceLeaders,
    ElectPreferred,
    ElectUncleanly,
    IsrProposed,
    LeaderAndIsrDone,
    StopWanted,
)
from jesenska.controller.plans.leader_elections import imbalanced, plan_elections, plan_preferred, plan_stop
from jesenska.controller.plans.partition_states import NO_LEADER, Change, changed
from jesenska.controller.plans.topics import epoch_check
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode, TopicNode
from jesenska.metadata.tree_operations import BadVersionError, Create, MultiError, Operation, SetData, TreeError


class Leadership:
    """Carries out the leader elections and ISR changes of one controller."""

    def __init__(self, shared: ControllerState) -> None:
        self._shared = shared
        self._context = shared.context
        #: LeaderAndIsr requests whose answers show which replicas of a broker have no log, by number.
        self._asked: dict[int, tuple[TopicPartitions, ...]] = {}

    # --- elections ---------------------------------------------------------------------------------------------------

    def elected(self, topic: TopicView, *, crashed: Collection[int] = ()) -> Asking:
        """Returns the topic's partitions after the possible elections, and the operations that write them; nothing is
        written yet. Brokers in `crashed` have registered again and may lack records."""
        above = yield from self._missing_nodes(
            topic.name, [number for number in topic.node.replicas if number not in topic.partitions]
        )
        unclean = self._shared.topic_config(topic.name).boolean("unclean.leader.election.enable")
        partitions, operations = plan_elections(self._context, topic, crashed=crashed, unclean=unclean)
        self._tell_of_leaderless(topic, partitions)
        return partitions, [*above, *operations]

    def elect_where_allowed(self) -> Steps:
        """Elects leaders for partitions without a leader, because changed settings may allow it now."""
        for name, topic in list(self._context.topics.items()):
            if not topic.deleting and any(
                partition.state.leader == NO_LEADER for partition in topic.partitions.values()
            ):
                yield from self.elect(
                    name, unclean=self._shared.topic_config(name).boolean("unclean.leader.election.enable")
                )

    def elect_uncleanly(self, event: ElectUncleanly) -> Steps:
        name, number = event.topic_partition
        topic = self._context.topics.get(name)
        if topic is None or topic.deleting or number not in topic.partitions:
            raise UnknownTopicOrPartitionError(f"There is no partition {event.topic_partition}.")
        yield from self.elect(name, (number,), unclean=True)
        self._shared.answer(event.token, self._context.topics[name].partitions[number].state.leader != NO_LEADER)

    def elect(self, name: str, numbers: Sequence[int] | None = None, *, unclean: bool) -> Steps:
        """Elects leaders for the partitions of a topic that have no leader; `numbers` limits the election to some
        partitions."""

        def plan(topic: TopicView) -> Asking:
            yield from ()
            if numbers is not None:
                node = TopicNode({number: topic.node.replicas[number] for number in numbers}, topic.topic_id)
                topic = TopicView(name, node, topic.version, {number: topic.partitions[number] for number in numbers})
            partitions, operations = plan_elections(self._context, topic, unclean=unclean)
            return changed_from(topic, partitions), operations

        yield from ManyElections(self._context, plan, self.written).hold([name])

    def written(self, name: str, partitions: Mapping[int, PartitionView], but: Collection[int] = ()) -> None:
        """Stores partition states that were written to the metadata tree in the context, and sends them to the
        brokers, except the brokers in `but`."""
        known = self._context.topics[name]
        topic = TopicView(name, known.node, known.version, {**known.partitions, **partitions}, known.deleting)
        self._context.topics[name] = topic
        changed = TopicPartitions(topic, tuple(partitions))
        for broker_id in self._context.brokers:
            held = held_by(broker_id, changed)
            if held.numbers and broker_id not in but:
                order = self._shared.number()
                if any(
                    broker_id in self._context.offline.get(TopicPartition(name, number), ()) for number in held.numbers
                ):
                    # The answer to this request shows if the broker has a log now. A broker without a log may be
                    # unable to create a log before another broker leads.
                    self._asked[order] = (held,)
                self._shared.put(LeaderAndIsr(order, broker_id, (held,)))
        self._shared.tell_everybody([changed], but=but)
        self._shared.moves_may_end(topic)

    def read_again(self, name: str, numbers: Iterable[int]) -> Steps:
        """Reads the states of these partitions that leaders have written themselves, and sends them to the brokers."""
        numbers = list(numbers)
        yield from read_again(self._context, name, numbers, self.written)
        # A broker that left before the controller read its ISR must be removed from that ISR.
        partitions, live = self._context.topics[name].partitions, self._context.live
        left = [
            number
            for number in numbers
            if number in partitions and not set(partitions[number].state.isr) <= set(live(name, number))
        ]
        if left:
            yield from self.elect(
                name, left, unclean=self._shared.topic_config(name).boolean("unclean.leader.election.enable")
            )

    # --- offline replicas --------------------------------------------------------------------------------------------

    def ask_for_replicas(self, broker_id: int) -> None:
        """Sends a broker LeaderAndIsr for all its replicas, because its log directories have failed or were repaired.
        Its answer shows which replicas are offline."""
        topics = (
            TopicPartitions(topic, tuple(sorted(topic.partitions)))
            for topic in self._context.topics.values()
            if not topic.deleting
        )
        held = tuple(part for part in (held_by(broker_id, part) for part in topics) if part.numbers)
        if held and broker_id in self._context.brokers:
            number = self._shared.number()
            self._asked[number] = held
            self._shared.put(LeaderAndIsr(number, broker_id, held))

    def leader_and_isr_done(self, event: LeaderAndIsrDone) -> Asking:
        """Handles a broker's answer to LeaderAndIsr. If the request was sent by `ask_for_replicas`, updates the
        offline replicas and returns the replicas that the request named. Otherwise, or if the broker has left, returns
        no replicas."""
        held = self._asked.pop(event.number, ())
        if event.broker_id not in self._context.brokers:
            return ()
        if held:
            yield from self.replicas_found(event.broker_id, held, event.without_log)
        return held

    def replicas_found(
        self, broker_id: int, held: Sequence[TopicPartitions], without_log: Collection[TopicPartition]
    ) -> Steps:
        """Stores which replicas in `held` are offline on a broker (`without_log`). Elects other leaders where
        necessary, and sends the new metadata."""
        news: dict[str, list[int]] = {}
        for part in held:
            for number in part.numbers:
                topic_partition = TopicPartition(part.topic.name, number)
                if self._context.set_offline(topic_partition, broker_id, is_offline=topic_partition in without_log):
                    news.setdefault(part.topic.name, []).append(number)
        for name, numbers in news.items():
            topic = self._context.topics.get(name)
            if topic is None or topic.deleting:
                continue
            numbers = [number for number in numbers if number in topic.partitions]
            lost = [number for number in numbers if broker_id not in self._context.live(name, number)]
            if lost:
                self._shared.say(
                    "warning",
                    f"broker {broker_id} cannot read its replicas of topic {name} ({first_of(lost)}): other "
                    "brokers lead these partitions where they can",
                )
            before = topic.partitions
            yield from self.elect(
                name, numbers, unclean=self._shared.topic_config(name).boolean("unclean.leader.election.enable")
            )
            topic = self._context.topics[name]
            unchanged = tuple(number for number in numbers if topic.partitions[number] is before[number])
            if unchanged:
                self._shared.tell_everybody([TopicPartitions(topic, unchanged)])

    # --- preferred replicas, and brokers that stop -------------------------------------------------------------------

    def elect_preferred(self, event: ElectPreferred) -> Steps:
        """Elects the preferred (first) replicas that a client requests."""
        wanted: dict[str, list[int]] = {}
        errors: dict[TopicPartition, type[KafkaError] | None] = {}
        if event.topic_partitions is None:
            wanted = {
                name: sorted(topic.partitions) for name, topic in self._context.topics.items() if not topic.deleting
            }
        else:
            for topic_partition in event.topic_partitions:
                topic = self._context.topics.get(topic_partition.topic)
                if topic is None or topic.deleting or topic_partition.partition not in topic.partitions:
                    errors[topic_partition] = UnknownTopicOrPartitionError
                else:
                    wanted.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        due: dict[str, list[int]] = {}
        for name, number in [(name, number) for name, numbers in wanted.items() for number in numbers]:
            if not _is_led_by_first(self._context.topics[name], number):
                due.setdefault(name, []).append(number)
                errors[TopicPartition(name, number)] = PreferredLeaderNotAvailableError
            elif event.topic_partitions is not None:
                errors[TopicPartition(name, number)] = ElectionNotNeededError
        changed = yield from self._let_first_replicas_lead(due)
        self._shared.answer(event.token, errors | dict.fromkeys(changed))

    def balance(self, event: BalanceLeaders) -> Steps:
        """Elects preferred (first) replicas as leaders, if their brokers lead too few of the partitions for which they
        are the preferred leader."""
        topics = [topic for topic in self._context.topics.values() if not topic.deleting]
        found = imbalanced(self._context, topics, self._shared.config.integer("leader.imbalance.per.broker.percentage"))
        changed = yield from self._let_first_replicas_lead(found)
        if changed:
            self._shared.say("info", f"{len(changed)} partitions are led by their first replica again")

    def _let_first_replicas_lead(self, wanted: Mapping[str, Sequence[int]]) -> Asking:
        """Elects preferred (first) replicas, and returns the partitions whose leader was not the preferred replica
        before. The states are read first, because leaders may have written ISRs that the controller does not know
        yet."""
        led: list[TopicPartition] = []
        for name, numbers in wanted.items():
            yield from self.read_again(name, numbers)

        def plan(topic: TopicView) -> Asking:
            yield from ()
            return plan_preferred(self._context, topic, wanted[topic.name])

        def written(name: str, partitions: Mapping[int, PartitionView]) -> None:
            self.written(name, partitions)
            led.extend(
                TopicPartition(name, number)
                for number in partitions
                if _is_led_by_first(self._context.topics[name], number)
            )

        yield from ManyElections(self._context, plan, written).hold(wanted)
        return led

    def stop_wanted(self, event: StopWanted) -> Steps:
        """Elects other leaders for the partitions of a broker that is about to stop, and removes the broker from every
        ISR that has another member."""
        context, broker_id = self._context, event.broker_id
        if broker_id not in context.brokers:
            raise BrokerNotAvailableError(f"Broker {broker_id} is not up.")
        context.stopping.add(broker_id)

        def plan(topic: TopicView) -> Asking:
            yield from ()
            return plan_stop(context, topic, broker_id)

        yield from ManyElections(context, plan, self.written).hold(list(context.topics))
        stays = self._led_with_others(broker_id)
        if stays:
            # The leader may have written an ISR that the controller does not know yet.
            for name, numbers in stays.items():
                yield from self.read_again(name, numbers)
            yield from ManyElections(context, plan, self.written).hold(list(stays))
            stays = self._led_with_others(broker_id)
        for topic in context.topics.values():
            given_up = tuple(
                number
                for number, replicas in topic.node.replicas.items()
                if not topic.deleting
                and broker_id in replicas
                and len(replicas) > 1
                and number not in stays.get(topic.name, ())
            )
            if given_up:
                self._shared.put(StopReplica(self._shared.number(), broker_id, topic.name, given_up, delete=False))
        self._shared.answer(
            event.token, tuple(TopicPartition(name, number) for name, numbers in stays.items() for number in numbers)
        )

    def _led_with_others(self, broker_id: int) -> dict[str, list[int]]:
        """Returns the partitions that a broker leads and that have other replicas, by topic."""
        found: dict[str, list[int]] = {}
        for name, topic in self._context.topics.items():
            for number, partition in () if topic.deleting else topic.partitions.items():
                if partition.state.leader == broker_id and len(topic.node.replicas.get(number, ())) > 1:
                    found.setdefault(name, []).append(number)
        return found

    # --- in the tree -------------------------------------------------------------------------------------------------

    def _missing_nodes(self, name: str, numbers: Sequence[int]) -> Asking:
        """Returns the operations that create the parent nodes of partition states, where they are missing."""
        if not numbers:
            return []
        (found,) = yield Read((Children(paths.partitions(name)),))
        operations: list[Operation] = [] if found is not None else [Create(paths.partitions(name))]
        return operations + [
            Create(paths.partition(name, number)) for number in numbers if str(number) not in (found or ())
        ]

    def _tell_of_leaderless(self, topic: TopicView, partitions: Mapping[int, PartitionView]) -> None:
        """Logs the partitions that have no leader although a broker with a replica is registered."""
        lost: dict[int, list[int]] = {}
        for number, replicas in topic.node.replicas.items():
            live = self._context.live(topic.name, number)
            up = next((broker_id for broker_id in replicas if broker_id in live), None)
            if up is not None and partitions[number].state.leader == NO_LEADER:
                lost.setdefault(up, []).append(number)
        for broker_id, numbers in lost.items():
            some = first_of(numbers)
            self._shared.say(
                "error",
                f"topic {topic.name} has partitions that nobody leads ({some}): no in-sync replica is online. "
                f"Start a broker that has an in-sync replica. If no such broker can be started again, set "
                f"unclean.leader.election.enable=true for the topic: then broker {broker_id} leads with the records "
                "that it has, and records that only other brokers had are lost.",
            )

    # --- ISRs --------------------------------------------------------------------------------------------------------

    def isr_proposed(self, event: IsrProposed) -> Steps:
        """Writes the ISR that a leader requests, if the leader knows the current state of the partition. Otherwise the
        error is answered."""
        name, number = event.topic_partition
        topic = self._context.topics.get(name)
        known = topic.partitions.get(number) if topic is not None else None
        if topic is None or topic.deleting or known is None:
            raise UnknownTopicOrPartitionError(f"There is no partition {event.topic_partition}.")
        state = known.state
        if event.leader_epoch > state.leader_epoch or event.partition_epoch > known.version:
            raise NotControllerError(f"Another controller has written a later state of {event.topic_partition}.")
        if event.leader_epoch < state.leader_epoch:
            raise FencedLeaderEpochError(
                f"The leader epoch of {event.topic_partition} is {state.leader_epoch}, not {event.leader_epoch}."
            )
        if (event.leader_epoch, event.broker_id, set(event.isr)) == (state.leader_epoch, state.leader, set(state.isr)):
            # The request is for the current ISR. It may be a repeated request, because the answer to the first request
            # was lost.
            self._shared.answer(event.token, known)
            return
        if event.partition_epoch < known.version:
            raise InvalidUpdateVersionError(
                f"The partition epoch of {event.topic_partition} is {known.version}, not {event.partition_epoch}."
            )
        if (
            state.leader != event.broker_id
            or event.broker_id not in event.isr
            or not set(event.isr) <= set(topic.node.replicas[number])
        ):
            raise InvalidRequestError(
                f"Broker {event.broker_id} cannot make {list(event.isr)} the ISR of {event.topic_partition}."
            )
        if (
            not set(event.isr) <= self._context.brokers.keys()
            or set(event.isr) - set(state.isr) & self._context.stopping
        ):
            raise IneligibleReplicaError(f"Of the brokers {list(event.isr)} some are not up, or are about to stop.")
        for broker_id in event.isr:
            # A replica that has caught up has a log, so it is not offline.
            self._context.set_offline(event.topic_partition, broker_id, is_offline=False)
        if event.isr != state.isr:
            taken = PartitionStateNode(state.leader, state.leader_epoch, event.isr, self._context.controller_epoch)
            changed(Change.ISR, state, taken, self._context.live(name, number))
            operation = SetData(paths.partition_state(name, number), taken.encode(), known.version)
            try:
                yield from write((*epoch_check(self._context), operation))
            except (MultiError, TreeError) as error:
                refused = refusal(error)
                if not isinstance(refused, BadVersionError) or refused.path != operation.path:
                    raise
                raise InvalidUpdateVersionError(
                    f"The state of {event.topic_partition} was written by somebody else."
                ) from error
            known = PartitionView(taken, known.version + 1)
            partitions = {**self._context.topics[name].partitions, number: known}
            self._context.topics[name] = TopicView(name, topic.node, topic.version, partitions, topic.deleting)
            self._shared.tell_everybody([TopicPartitions(self._context.topics[name], (number,))])
            self._shared.moves_may_end(topic)
        self._shared.answer(event.token, known)


def _is_led_by_first(topic: TopicView, number: int) -> bool:
    """Returns True if a partition's first replica is its leader."""
    return topic.node.replicas.get(number, ())[:1] == (topic.partitions[number].state.leader,)


def changed_from(topic: TopicView, partitions: Mapping[int, PartitionView]) -> dict[int, PartitionView]:
    """Returns the partitions whose states differ from the states in `topic`."""
    return {number: partition for number, partition in partitions.items() if topic.partitions.get(number) != partition}


def held_by(broker_id: int, part: TopicPartitions) -> TopicPartitions:
    """Returns the partitions of the topic of which the broker has replicas."""
    replicas = part.topic.node.replicas
    return TopicPartitions(part.topic, tuple(number for number in part.numbers if broker_id in replicas[number]))
