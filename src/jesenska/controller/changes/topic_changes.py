"""Creates, expands and adopts topics, from the plan until the brokers have answered that they have the logs.

  create    plan -> write to the tree -> brokers create logs -> all brokers get the metadata -> answer
  branch    as create, for a topic that begins as a copy of a source topic: brokers create the logs from the source's
            logs. Before the answer, the tree records that the branch is complete
  expand    as create, for the new partitions of a topic
  adopt     for a topic that a tool has written to the tree: missing id, states and leaders are written to the tree,
            then as create

If no broker could create the log of a partition, the topic is deleted again before a client sees it. A branch is also
deleted again if a leader has no log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jesenska.base.errors import KafkaStorageError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.config.layers import TopicConfig
from jesenska.controller.changes.change_state import Asking, ControllerState, Steps, refusal, whole, write
from jesenska.controller.changes.config_looks import config_in
from jesenska.controller.changes.deletions import Deletions
from jesenska.controller.changes.leadership import Leadership, held_by
from jesenska.controller.context import ConfigView, TopicView
from jesenska.controller.effects import Get, LeaderAndIsr, Read, StopReplica, TopicPartitions, UpdateMetadata
from jesenska.controller.events import CreateTopic, ExpandTopic, LeaderAndIsrDone
from jesenska.controller.plans.branches import BRANCH_OF, branch_point, once_made
from jesenska.controller.plans.internal_topics import INTERNAL_TOPICS, plan_raised
from jesenska.controller.plans.replica_states import ReplicaState
from jesenska.controller.plans.topics import epoch_check, plan_creation, plan_expansion
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, TopicNode, encode_config, encode_config_change
from jesenska.metadata.tree_operations import BadVersionError, Create, MultiError, SetData, TreeError

#: The maximum number of attempts to write that a branch is complete. An attempt fails if another broker writes the
#: topic's settings at the same time.
_ATTEMPTS_MAX = 5


@dataclass(slots=True)
class _Beginning:
    """Partitions for which brokers were sent LeaderAndIsr, and the token of the request that waits for the answers."""

    topics: Sequence[TopicPartitions]
    token: int | None
    value: Any
    is_creation: bool
    #: The newly registered broker to which LeaderAndIsr was sent; None if it was sent to all brokers.
    comer: int | None = None
    awaited: int = 0
    without_log: dict[TopicPartition, set[int]] = field(default_factory=dict)
    #: The topics that the newly registered broker was sent before, by name.
    sent: Mapping[str, TopicView] = field(default_factory=dict)


class TopicChanges:
    """Creates, expands and adopts topics for one controller."""

    def __init__(self, shared: ControllerState, leadership: Leadership, deletions: Deletions) -> None:
        self._shared = shared
        self._context = shared.context
        self._leadership = leadership
        self._deletions = deletions
        #: By the number of a LeaderAndIsr: its broker, the partitions that it begins, and True if the answer is
        #: awaited.
        self._beginnings: dict[int, tuple[int, _Beginning, bool]] = {}
        #: Partitions of incomplete branches, with the brokers that have answered that they have the log.
        self._branched: dict[TopicPartition, set[int]] = {}

    def create(self, event: CreateTopic) -> Steps:
        shared, brokers = self._shared, max(1, len(self._context.brokers))
        start_index, shift = shared.chance(brokers), shared.chance(brokers)
        settings = yield from self._settings_of_source(event.wanted.configs.get(BRANCH_OF))
        plan = plan_creation(
            self._context,
            event.wanted,
            shared.config,
            topic_id=shared.new_uuid(),
            start_index=start_index,
            shift=shift,
            source_settings=settings,
        )
        answer = replace(plan, config=TopicConfig(once_made(plan.config.overrides), shared.config))
        if event.validate_only:
            shared.answer(event.token, answer)
            return
        yield from write(plan.operations)
        plan.apply(self._context)
        for setting in plan.config.unused():
            shared.say(
                "warning", f"topic {plan.topic.name}: {setting.name} is stored, but has no effect yet: {setting.reason}"
            )
        yield from self.begin([whole(plan.topic)], event.token, answer, is_creation=True)

    def _settings_of_source(self, source: str | None) -> Asking:
        """Returns the settings of a branch's source topic, as they are in the metadata tree. Returns None if there is
        no source, or if the source has no settings."""
        if source is None or source not in self._context.topics:
            return None
        (node,) = yield Read((Get(paths.topic_config(source)),))
        try:
            return None if node is None else config_in(node).settings
        except NodeFormatError as error:
            raise KafkaStorageError(
                f"The settings of topic {source} in the tree cannot be read ({error}): mend or delete that node."
            ) from error

    def expand(self, event: ExpandTopic) -> Steps:
        known = self._context.topics.get(event.name)
        if known is not None and known.deleting:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        plan = plan_expansion(self._context, event.name, event.partition_count, event.assignments, self._shared.config)
        if not event.validate_only:
            yield from write(plan.operations)
            plan.apply(self._context)
            before = len(known.node.replicas) if known is not None else 0
            yield from self.begin(
                [TopicPartitions(plan.topic, tuple(range(before, event.partition_count)))], event.token
            )
        else:
            self._shared.answer(event.token)

    def adopt(self, written: TopicView) -> Steps:
        """Adopts a topic that another process has written to the metadata tree: a new topic, or a topic with more
        partitions or other replicas. Writes the topic's id, partition states and leaders if they are missing."""
        name, node, version = written.name, written.node, written.version
        known = self._context.topics.get(name)
        if known is not None and known.deleting:
            return
        if node.topic_id is None:
            node = TopicNode(
                node.replicas,
                (known.topic_id if known is not None else None) or self._shared.new_uuid(),
                node.adding,
                node.removing,
            )
            (result,) = yield from write([SetData(paths.topic(name), node.encode(), version)])
            assert result.stat is not None
            version = result.stat.version
        partitions, operations = yield from self._leadership.elected(TopicView(name, node, version, written.partitions))
        if operations:
            yield from write((*epoch_check(self._context), *operations))
        topic = self._context.topics[name] = TopicView(name, node, version, partitions)
        self._shared.say("info", f"topic {name} was written in the tree: it has {len(node.replicas)} partitions")
        yield from self.begin([whole(topic)])
        if known is not None and known.topic_id in (None, node.topic_id):
            self.stop_moved(known, topic)

    def stop_moved(self, before: TopicView, topic: TopicView) -> None:
        """Requests the deletion of replicas that an adopted topic has no more. They were removed by a write of this
        controller whose outcome it has not heard. The replica of a leader, or of a broker in the ISR, is not deleted,
        because then another program has written the topic."""
        stopped: dict[int, list[int]] = {}
        for number, replicas in before.node.replicas.items():
            held = topic.partitions.get(number)
            if held is None or held.state.leader not in self._context.brokers:
                continue
            for broker_id in replicas:
                if broker_id not in (*topic.node.replicas[number], held.state.leader, *held.state.isr):
                    stopped.setdefault(broker_id, []).append(number)
        for broker_id, numbers in stopped.items():
            self.stop_replicas(topic, broker_id, numbers)

    def stop_replicas(self, topic: TopicView, broker_id: int, numbers: Sequence[int]) -> None:
        """Requests that a broker deletes its replicas of partitions that are not assigned to it any more."""
        for number in numbers:
            self._context.set_offline(TopicPartition(topic.name, number), broker_id, is_offline=False)
        if broker_id in self._context.brokers:
            epochs = tuple(topic.partitions[number].state.leader_epoch for number in numbers)
            self._shared.put(StopReplica(self._shared.number(), broker_id, topic.name, tuple(numbers), epochs=epochs))

    def raise_internal(self) -> Steps:
        """Adds replicas to internal topics that have too few, if enough brokers are registered now."""
        for name in INTERNAL_TOPICS:
            topic = self._context.topics.get(name)
            plan = None if topic is None or topic.deleting else plan_raised(self._context, topic, self._shared.config)
            if plan is None:
                continue
            yield from write((*epoch_check(self._context), *plan.operations))
            self._context.topics[name] = plan.topic
            self._shared.say("info", f"topic {name} gets more replicas, since more brokers are up")
            yield from self.begin([TopicPartitions(plan.topic, plan.numbers)])

    # --- LeaderAndIsr requests and their answers ---------------------------------------------------------------------

    def begin(
        self, topics: list[TopicPartitions], token: int | None = None, value: Any = None, *, is_creation: bool = False
    ) -> Steps:
        """Sends LeaderAndIsr to the brokers that have replicas. When the leaders have answered, all brokers get the
        metadata, and the request with the token is answered."""
        beginning = _Beginning(topics, token, value, is_creation)
        for broker_id in self._context.brokers:
            held = tuple(part for part in (held_by(broker_id, part) for part in topics) if part.numbers)
            if held:
                leads = any(
                    part.topic.partitions[number].state.leader == broker_id for part in held for number in part.numbers
                )
                # A broker creates its replica of a branch from its replica of the source. A broker that cannot do so
                # must fetch all records later. So the answers of followers are awaited, too.
                self._tell(
                    broker_id,
                    held,
                    beginning,
                    is_awaited=leads or any(self._is_being_branched(part.topic.name) for part in held),
                )
        if not beginning.awaited:
            yield from self._end(beginning)

    def begin_on(
        self, broker_id: int, topics: Sequence[TopicPartitions], token: int | None, sent: Collection[TopicPartitions]
    ) -> None:
        """Sends LeaderAndIsr about these topics to a newly registered broker; the other brokers know the topics
        already. Afterwards the broker is sent the topics that have changed since `sent` was sent to it."""
        beginning = _Beginning(
            topics, token, None, is_creation=False, comer=broker_id, sent={part.topic.name: part.topic for part in sent}
        )
        held = tuple(part for part in (held_by(broker_id, part) for part in topics) if part.numbers)
        self._tell(broker_id, held, beginning, is_awaited=True)

    def _tell(
        self, broker_id: int, held: tuple[TopicPartitions, ...], beginning: _Beginning, *, is_awaited: bool
    ) -> None:
        number = self._shared.number()
        self._beginnings[number] = broker_id, beginning, is_awaited
        beginning.awaited += is_awaited
        for part in held:
            self._shared.replicas.move(part.topic.name, broker_id, ReplicaState.NEW)
        self._shared.put(LeaderAndIsr(number, broker_id, held))

    def leader_and_isr_done(self, event: LeaderAndIsrDone) -> Steps:
        """Handles a broker's answer to LeaderAndIsr: the broker now has the replicas, except the replicas without a
        log that the answer names."""
        held: Sequence[TopicPartitions] = yield from self._leadership.leader_and_isr_done(event)
        if event.number in self._beginnings:
            _, beginning, _ = self._beginnings[event.number]
            held = [held_by(event.broker_id, part) for part in beginning.topics]
        branches = [part for part in held if self._is_being_branched(part.topic.name)]
        for part in branches:
            for number in part.numbers:
                if TopicPartition(part.topic.name, number) not in event.without_log:
                    self._branched.setdefault(TopicPartition(part.topic.name, number), set()).add(event.broker_id)
        if event.number in self._beginnings:
            yield from self._answered(event.number, event.without_log)
            return
        for name in [part.topic.name for part in branches if self._leaders_have_branched(part.topic.name)]:
            # A leader had no log when it answered the first request, and has created it since.
            yield from self._branch_is_made(name)

    def broker_gone(self, broker_id: int) -> Steps:
        """Stops waiting for the answers of a broker that has left."""
        for number in [number for number, (waited_for, _, _) in self._beginnings.items() if waited_for == broker_id]:
            yield from self._answered(number, frozenset())

    def _answered(self, number: int, without_log: frozenset[TopicPartition]) -> Steps:
        broker_id, beginning, is_awaited = self._beginnings.pop(number)
        states = self._shared.replicas
        state = ReplicaState.ONLINE if broker_id in self._context.brokers else ReplicaState.OFFLINE
        for part in beginning.topics:
            if states.of(part.topic.name, broker_id) is ReplicaState.NEW:
                states.move(part.topic.name, broker_id, state)
        for topic_partition in without_log:
            beginning.without_log.setdefault(topic_partition, set()).add(broker_id)
        beginning.awaited -= is_awaited
        if beginning.comer is not None and beginning.comer in self._context.brokers:
            held = [held_by(broker_id, part) for part in beginning.topics]
            yield from self._leadership.replicas_found(broker_id, held, without_log)
        if is_awaited and not beginning.awaited:
            yield from self._end(beginning)

    def _end(self, beginning: _Beginning) -> Steps:
        if beginning.is_creation and self._is_nowhere(beginning):
            name = beginning.topics[0].topic.name
            error = KafkaStorageError(
                f"Topic '{name}' was not created, since a broker's disk takes no new files: its log says why. Mend "
                f"that, then create it again."
            )
            yield from self._deletions.begin(name, beginning.token, reason=error)
            return
        for name in [part.topic.name for part in beginning.topics if self._is_being_branched(part.topic.name)]:
            if self._leaders_have_branched(name):
                yield from self._branch_is_made(name)
            elif beginning.is_creation:
                reason = KafkaStorageError(
                    f"Topic '{name}' was not created: a broker could not make its part of the branch. See the log of "
                    "the brokers that lead its source. After an election there, try again."
                )
                self._forget_branched(name)
                yield from self._deletions.begin(name, beginning.token, reason=reason)
                return
        known = ((self._context.topics.get(part.topic.name), part.numbers) for part in beginning.topics)
        shown = [
            TopicPartitions(topic, numbers) for topic, numbers in known if topic is not None and not topic.deleting
        ]
        if beginning.comer is None:
            self._shared.tell_everybody(shown)
        elif beginning.comer in self._context.brokers:
            # Sent even without topics: the broker is ready when an UpdateMetadata follows its LeaderAndIsr.
            changed = tuple(part for part in shown if part.topic is not beginning.sent.get(part.topic.name))
            self._shared.put(UpdateMetadata(beginning.comer, changed))
        self._shared.answer(beginning.token, beginning.value)

    # --- branches ----------------------------------------------------------------------------------------------------

    def _is_being_branched(self, name: str) -> bool:
        return branch_point(self._context.topic_settings(name)) is not None

    def _leaders_have_branched(self, name: str) -> bool:
        topic = self._context.topics.get(name)
        return topic is not None and all(
            partition.state.leader in self._branched.get(TopicPartition(name, number), ())
            for number, partition in topic.partitions.items()
        )

    def _forget_branched(self, name: str) -> None:
        for topic_partition in [known for known in self._branched if known.topic == name]:
            del self._branched[topic_partition]

    def _branch_is_made(self, name: str) -> Steps:
        """Writes to the metadata tree that a branch is complete. From now on a broker that has lost its replica
        fetches it from the leader, and not from the source."""
        self._forget_branched(name)
        entity, path = f"topics/{name}", paths.topic_config(name)
        for _ in range(_ATTEMPTS_MAX):
            (node,) = yield Read((Get(path),))
            if node is None:
                return
            try:
                known = config_in(node)
                settings: Mapping[str, str] = once_made(known.settings)
                tell = Create(paths.CONFIG_CHANGE_PREFIX, encode_config_change(entity), sequential=True)
                yield from write(
                    (*epoch_check(self._context), SetData(path, encode_config(settings), known.version), tell)
                )
            except (MultiError, TreeError, NodeFormatError) as error:
                refused = error if isinstance(error, NodeFormatError) else refusal(error)
                if isinstance(refused, BadVersionError) and refused.path == path:
                    continue
                self._shared.say(
                    "warning",
                    f"the branch {name} is complete, but this could not be written to the tree: {error}; the next "
                    "controller writes it",
                )
                return
            self._context.configs[entity] = ConfigView(settings, known.version + 1)
            return

    def _is_nowhere(self, beginning: _Beginning) -> bool:
        """Returns True if there is a partition for which no broker could create a log."""
        (part,) = beginning.topics
        replicas = part.topic.node.replicas
        return any(
            set(replicas[number]) <= beginning.without_log.get(TopicPartition(part.topic.name, number), set())
            for number in part.numbers
        )
