"""Topics in the tree, in the view and on the disk: what the lone controller does when one is created, expanded, changed or deleted.

    create    plan (controller.topics) -> tree -> logs made -> view: a topic is visible everywhere before the answer leaves
    delete    mark in the tree -> view -> logs renamed -> everything about it goes from the tree
    settings  plan (controller.config_changes) -> tree -> view and logs
    adopt     what somebody else wrote in the tree (`tree_changes`) -> what is missing of it -> view and logs
    start     tree -> settings of each partition for the log directories -> logs loaded -> view, leader epochs raised after a crash

After a crash between two steps: a topic that is in the tree and has no directory gets one at the next start; a directory whose topic is not in
the tree is named and left alone; a deletion that was begun stands in /admin/delete_topics and is finished at the next start.

Changes are made one after another: each plan is made from the facts that the one before it left.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

from jesenska.base.errors import InvalidRequestError, JesenskaError, KafkaError, KafkaStorageError, UnknownServerError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.core import BrokerCore
from jesenska.broker.derived_settings import check_rules_of, log_config_of
from jesenska.broker.metadata_cache import INTERNAL_TOPICS, Topic
from jesenska.broker.slices import Slices
from jesenska.config.layers import BrokerConfig, TopicConfig
from jesenska.controller.config_changes import (
    ConfigOp,
    ConfigPlan,
    ToldChanges,
    plan_broker_config,
    plan_broker_config_replaced,
    plan_topic_config,
    plan_topic_config_replaced,
)
from jesenska.controller.context import ConfigView, ControllerContext, PartitionView, TopicView
from jesenska.controller.elections import plan_elections
from jesenska.controller.internal_topics import automatic_topic
from jesenska.controller.partition_states import NO_LEADER
from jesenska.controller.topics import (
    TopicCreation,
    TopicPlan,
    epoch_check,
    forget_topic,
    plan_creation,
    plan_deletion,
    plan_deletion_end,
    plan_expansion,
)
from jesenska.groups.offsets_topic import OFFSETS_TOPIC
from jesenska.log.log_config import LogConfig
from jesenska.log.partition_loading import Known
from jesenska.log.partition_log import PartitionLog
from jesenska.metadata import nodes, paths
from jesenska.metadata.store import Store, multi_in_pieces
from jesenska.metadata.tree_operations import Create, MultiError, NoNodeError, Operation, Result, TreeError
from jesenska.replication.partition import Partition
from jesenska.replication.replicas import Replicas

logger = logging.getLogger(__name__)

#: Kinds of resources in requests about settings.
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
#: Operations of one change of the tree when many partitions are touched, so that none grows without bound.
_OPERATIONS_AT_ONCE = 1000


class OffsetsKeeper(Protocol):
    """Who keeps groups and their offsets, and has to know what becomes of topics."""

    def take_over(self, topic: Topic | None = None) -> None:
        """The offsets topic is there, or has become larger."""

    def give_up(self) -> None:
        """The offsets topic is gone."""

    def topic_deleted(self, topic: str) -> None: ...


class Topics:
    """The mover of topics and settings. `facts` is what the tree holds, kept up to date by the plans that are done."""

    def __init__(self, core: BrokerCore, store: Store, facts: ControllerContext, change_max_bytes: int | None = None) -> None:
        self._core = core
        self._store = store
        self._change_max_bytes = change_max_bytes
        self.facts = facts
        #: Set by the broker, before `take_over`.
        self.offsets_keeper: OffsetsKeeper
        # One object for all partitions: a method is made anew each time it is looked up.
        self._notify, self._elapsed = core.waiting.notify, self._elapsed_ms
        self._one_at_a_time = asyncio.Lock()
        self._told = ToldChanges()
        #: Partitions of this broker that have no log, since the disk did not let one be made.
        self._lacking: set[TopicPartition] = set()
        #: The start is over: a topic that comes into the view is a new or changed one.
        self._is_running = False

    # --- at the start -------------------------------------------------------------------------------------------------------------------

    async def known(self) -> Known:
        """What the log directories ask: the settings of a partition, None for one that the tree does not know."""
        for name, topic in self.facts.topics.items():
            if topic.topic_id is None:
                await self._give_id(name, topic)
        configs = {name: log_config_of(self._topic_config(name)) for name in self.facts.topics}

        def known(topic_partition: TopicPartition, topic_id: uuid.UUID | None) -> LogConfig | None:
            topic = self.facts.topics.get(topic_partition.topic)
            if topic is None or topic_partition.partition not in topic.node.replicas or topic_id not in (None, topic.topic_id):
                return None
            return configs[topic_partition.topic]

        return known

    async def _give_id(self, name: str, topic: TopicView) -> None:
        """Topics of releases before 2.8 have no id."""
        node = nodes.TopicNode(topic.node.replicas, self._core.machine.new_uuid(), topic.node.adding, topic.node.removing)
        stat = await self._store.set(paths.topic(name), node.encode(), topic.version)
        self.facts.topics[name] = TopicView(name, node, stat.version, topic.partitions, topic.deleting)

    def _topic_config(self, name: str) -> TopicConfig:
        return TopicConfig(self.facts.topic_settings(name), self._core.config)

    async def take_over(self, *, clean: bool) -> None:
        """Every partition gets the leader that it can have; what this broker leads begins a new leader epoch after a crash. Ends the deletions that were
        begun."""
        for child in (await self._store.children(paths.CONFIG_CHANGES))[0]:
            self._told.add(f"{paths.CONFIG_CHANGES}/{child}", self._elapsed_ms())
        for name in [name for name, topic in self.facts.topics.items() if topic.deleting]:
            await self.end_deletion(name)
        operations: list[Operation] = []
        for name, topic in self.facts.topics.items():
            partitions, changes = await self._led(topic, clean=clean)
            operations += changes
            self.facts.topics[name] = TopicView(name, topic.node, topic.version, partitions)
        for start in range(0, len(operations), _OPERATIONS_AT_ONCE):
            await self._store.multi(operations[start : start + _OPERATIONS_AT_ONCE])
        for name in self.facts.topics:
            self._show(name)
        self.offsets_keeper.take_over()
        self._is_running = True

    async def _led(self, topic: TopicView, *, clean: bool) -> tuple[dict[int, PartitionView], list[Operation]]:
        """A topic's partitions once each has the leader that it can have, and the changes that make it so. Not `clean`: this broker has crashed."""
        parents = await self._parents(topic.name, [number for number in topic.node.replicas if number not in topic.partitions])
        unclean = self._topic_config(topic.name).boolean("unclean.leader.election.enable")
        partitions, changes = plan_elections(self.facts, topic, crashed=() if clean else (self._core.broker_id,), unclean=unclean)
        self._tell_of_leaderless(topic, partitions)
        return partitions, parents + changes

    def _tell_of_leaderless(self, topic: TopicView, partitions: Mapping[int, PartitionView]) -> None:
        """Says which partitions have a replica here and nobody who may lead them."""
        broker_id = self._core.broker_id
        lost = [number for number, replicas in topic.node.replicas.items() if broker_id in replicas and partitions[number].state.leader == NO_LEADER]
        if lost:
            logger.error(
                "topic %s has partitions that nobody leads (%s%s): no replica that was in sync is up. Start a broker that has one. If none will come back, set "
                "unclean.leader.election.enable=true for the topic: then broker %d leads with what it has, and what only the others had is lost.",
                topic.name, ", ".join(map(str, lost[:10])), ", …" if len(lost) > 10 else "", broker_id,
            )  # fmt: skip

    async def elect_uncleanly(self, name: str, number: int) -> bool:
        """Lets a replica lead that was not in sync, if nobody leads the partition and one is up. False where that does not help."""
        async with self._one_at_a_time:
            topic = self.facts.topics[name]
            only = TopicView(name, nodes.TopicNode({number: topic.node.replicas[number]}, topic.topic_id), topic.version, {number: topic.partitions[number]})
            await self._elect(only, unclean=True)
            return self.facts.topics[name].partitions[number].state.leader != NO_LEADER

    async def _elect_where_allowed(self) -> None:
        """Settings have changed: perhaps somebody may lead now what nobody does."""
        for name, topic in list(self.facts.topics.items()):
            if any(partition.state.leader == NO_LEADER for partition in topic.partitions.values()):
                await self._elect(topic, unclean=self._topic_config(name).boolean("unclean.leader.election.enable"))

    async def _elect(self, topic: TopicView, *, unclean: bool) -> None:
        """Elects leaders of those partitions of `topic` that have none."""
        name, known = topic.name, self.facts.topics[topic.name]
        partitions, operations = plan_elections(self.facts, topic, unclean=unclean)
        if not operations:
            return
        await self._do((*epoch_check(self.facts), *operations))
        self.facts.topics[name] = TopicView(name, known.node, known.version, {**known.partitions, **partitions}, known.deleting)
        shown = self._core.view.topics[name].partitions
        for number, partition in partitions.items():
            shown[number].led_by(partition.state.leader, partition.state.leader_epoch, partition.state.isr, partition.version)
        if name == OFFSETS_TOPIC:
            self.offsets_keeper.take_over()

    async def _parents(self, name: str, numbers: Sequence[int]) -> list[Operation]:
        """Makes the nodes above the states of partitions, where they are missing."""
        if not numbers:
            return []
        operations: list[Operation] = []
        try:
            there = set((await self._store.children(paths.partitions(name)))[0])
        except NoNodeError:
            there = set()
            operations.append(Create(paths.partitions(name)))
        return operations + [Create(paths.partition(name, number)) for number in numbers if str(number) not in there]

    # --- the view -----------------------------------------------------------------------------------------------------------------------

    async def _new_logs(self, name: str) -> dict[int, PartitionLog | None]:
        """Makes the logs that a topic lacks, by number of the partition. Ten thousand take seconds: others are served in between."""
        facts, config = self.facts.topics[name], self._topic_config(name)
        shown = self._core.view.topics.get(name)
        first = len(shown.partitions) if shown is not None else 0
        made: dict[int, PartitionLog | None] = {}
        slices = Slices(self._core.clock)
        for number, replicas in facts.node.replicas.items():
            if number >= first and self._core.broker_id in replicas:
                made[number] = self._log(TopicPartition(name, number), facts.topic_id, config)
                await slices()
        return made

    def _show(self, name: str, made: Mapping[int, PartitionLog | None] | None = None) -> Topic:
        """Puts the topic as the facts have it into the view; logs that are missing, and not among those that were `made` for it, are made."""
        facts = self.facts.topics[name]
        config = self._topic_config(name)
        before = self._core.view.topics.get(name)
        partitions = []
        for number in sorted(facts.node.replicas):
            if before is not None and number < len(before.partitions):
                partitions.append(before.partitions[number])
                continue
            topic_partition, replicas = TopicPartition(name, number), facts.node.replicas[number]
            state = facts.partitions[number].state
            if made is not None and number in made:
                log = made[number]
            else:
                log = self._log(topic_partition, facts.topic_id, config) if self._core.broker_id in replicas else None
            partition = self._partition(topic_partition, facts.topic_id or self._core.machine.new_uuid(), replicas, config)
            if log is not None:
                partition.found_log(log)
            partition.led_by(state.leader, state.leader_epoch, state.isr, facts.partitions[number].version)
            partitions.append(partition)
        log_config = log_config_of(config)
        rules = check_rules_of(config, log_config)
        topic = Topic(name, facts.topic_id or self._core.machine.new_uuid(), partitions, config, log_config, rules, name in INTERNAL_TOPICS)
        for partition in partitions:
            partition.configure(log_config, config.integer("min.insync.replicas"))
        self._core.view.add(topic)
        if name == OFFSETS_TOPIC and self._is_running:
            self.offsets_keeper.take_over(topic)
        return topic

    def _partition(self, topic_partition: TopicPartition, topic_id: uuid.UUID, assigned: Sequence[int], config: TopicConfig) -> Partition:
        core = self._core
        max_lag_ms = core.config.integer("replica.lag.time.max.ms")
        replicas = Replicas(topic_partition, core.broker_id, assigned, config.integer("min.insync.replicas"), max_lag_ms)
        return Partition(topic_partition, topic_id, replicas, self._notify, self._elapsed)

    def _log(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None, config: TopicConfig) -> PartitionLog | None:
        """The partition's log, made if it is not there; None if the disk does not let it, which is logged."""
        try:
            log = self._core.directories.create(topic_partition, topic_id, log_config_of(config), self._core.clock.now_ms())
        except (JesenskaError, OSError) as error:
            logger.error(
                "%s has no log: %s It is tried again every second.", topic_partition, error, extra={"once_a_minute": (topic_partition.topic, "no log")}
            )
            self._lacking.add(topic_partition)
            return None
        self._lacking.discard(topic_partition)
        return log

    # --- changes ------------------------------------------------------------------------------------------------------------------------

    async def _do(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """Carries out a plan; KafkaStorageError if the tree cannot take it."""
        if not operations:
            return ()
        try:
            return await multi_in_pieces(self._store, operations, self._change_max_bytes)
        except TreeError as error:
            logger.error("the metadata could not be changed: %s", error)
            raise KafkaStorageError(f"The metadata could not be changed: {error}") from error

    async def create(self, request: TopicCreation, *, validate_only: bool = False) -> tuple[TopicPlan, Topic | None]:
        """Creates a topic; its plan, and the topic unless it was only validated. KafkaError where it is refused."""
        async with self._one_at_a_time:
            brokers = max(1, len(self.facts.brokers))
            chance = self._core.random.randrange
            plan = plan_creation(
                self.facts, request, self._core.config, topic_id=self._core.machine.new_uuid(), start_index=chance(brokers), shift=chance(brokers)
            )
            if validate_only:
                return plan, None
            await self._do(plan.operations)
            plan.apply(self.facts)
            made = await self._new_logs(request.name)
            if None in made.values():
                await self._take_back(request.name)
                raise KafkaStorageError(
                    f"Topic '{request.name}' was not created, since the disk takes no new files: make room or mend it, then create it again."
                )
            for setting in plan.config.unused():
                logger.warning("topic %s: %s is stored, but has no effect yet: %s", request.name, setting.name, setting.reason)
            return plan, self._show(request.name, made)

    async def _take_back(self, name: str) -> None:
        """A topic that was never shown to anybody goes again, with those of its logs that could be made."""
        for number in self.facts.topics[name].node.replicas:
            topic_partition = TopicPartition(name, number)
            self._lacking.discard(topic_partition)
            try:
                self._core.directories.delete(topic_partition, self._core.clock.now_ms())
            except OSError as error:
                logger.error("%s, whose topic could not be created, cannot be renamed for deletion: %s", topic_partition, error)
        await self._do(plan_deletion_end(self.facts, name))
        forget_topic(self.facts, name)

    def make_missing_logs(self) -> None:
        """Tries again to make the logs that the disk did not let be made; called now and then."""
        for topic_partition in list(self._lacking):
            topic = self._core.view.topics.get(topic_partition.topic)
            if topic is None or topic_partition.partition >= len(topic.partitions):
                self._lacking.discard(topic_partition)
                continue
            log = self._log(topic_partition, topic.topic_id, topic.config)
            if log is not None:
                topic.partitions[topic_partition.partition].found_log(log)

    async def create_automatically(self, name: str) -> None:
        """Creates a topic that a client asked for, with the broker's defaults, or with those of Kafka's own topics."""
        await self.create(automatic_topic(name, self._core.config, len(self._core.view.brokers)))

    async def expand(self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool = False) -> None:
        """Raises a topic to `count` partitions; KafkaError where that is refused."""
        async with self._one_at_a_time:
            plan = plan_expansion(self.facts, name, count, assignments, self._core.config)
            if not validate_only:
                await self._do(plan.operations)
                plan.apply(self.facts)
                self._show(name, await self._new_logs(name))

    async def delete(self, name: str) -> None:
        """Deletes a topic: gone from the view at once, its files after file.delete.delay.ms. KafkaError where that is refused."""
        async with self._one_at_a_time:
            operations = plan_deletion(self.facts, name, self._core.config)
            await self._do(operations)
            await self.end_deletion(name)

    async def end_deletion(self, name: str) -> None:
        """What a mark in /admin/delete_topics asks for."""
        topic = self.facts.topics[name]
        self.facts.topics[name] = TopicView(name, topic.node, topic.version, topic.partitions, deleting=True)
        self._hide(name)
        slices = Slices(self._core.clock)
        for number in self.facts.topics[name].node.replicas:
            await slices()
            topic_partition = TopicPartition(name, number)
            try:
                self._core.directories.delete(topic_partition, self._core.clock.now_ms())
            except OSError as error:
                logger.error("%s could not be renamed for deletion: %s; it is tried again at the next start", topic_partition, error)
                raise KafkaStorageError(f"{topic_partition} could not be deleted: {error.strerror}") from error
        try:
            # Before the tree forgets the topic: else a crash of the machine could leave directories that nobody knows.
            await asyncio.get_running_loop().run_in_executor(self._core.pool.executor, self._core.directories.sync_names)
        except OSError as error:
            logger.error("the names of deleted partitions could not be synced: %s", error)
        # Before the mark goes: after a crash in between the deletion is ended again, with this.
        self.offsets_keeper.topic_deleted(name)
        await self._do(plan_deletion_end(self.facts, name))
        forget_topic(self.facts, name)

    def _hide(self, name: str) -> None:
        """Takes a topic out of the view."""
        removed = self._core.view.remove(name)
        for partition in removed.partitions if removed is not None else ():
            partition.vanish()
        if name == OFFSETS_TOPIC:
            self.offsets_keeper.give_up()

    # --- what others wrote (the caller has `changing`) -----------------------------------------------------------------------------------

    def changing(self) -> asyncio.Lock:
        """To be held while something is read from the tree and acted on."""
        return self._one_at_a_time

    async def adopt(self, written: TopicView) -> None:
        """A topic as somebody else wrote it: new, with more partitions, or with other replicas. It gets what it lacks: an id, states, logs."""
        name, node, version = written.name, written.node, written.version
        known = self.facts.topics.get(name)
        if node.topic_id is None:
            topic_id = known.topic_id if known is not None else None
            node = nodes.TopicNode(node.replicas, topic_id or self._core.machine.new_uuid(), node.adding, node.removing)
            version = (await self._store.set(paths.topic(name), node.encode(), version)).version
        partitions, operations = await self._led(TopicView(name, node, version, written.partitions), clean=True)
        if operations:
            await self._do((*epoch_check(self.facts), *operations))
        self.facts.topics[name] = TopicView(name, node, version, partitions)
        topic = self._show(name, await self._new_logs(name))
        for partition in topic.partitions:
            number = partition.topic_partition.partition
            state, state_version = partitions[number].state, partitions[number].version
            partition.assign(node.replicas[number])
            partition.led_by(state.leader, state.leader_epoch, state.isr, state_version)
        logger.info("topic %s was written in the tree: it has %d partitions", name, len(topic.partitions))

    async def vanished(self, name: str) -> None:
        """A topic's node was taken away, not by a deletion: its data stay where they are."""
        logger.error("topic %s was taken away from the tree: clients do not see it any more, its data stay in the log directories", name)
        self._hide(name)
        forget_topic(self.facts, name)

    def settings_written(self, entity: str, found: ConfigView) -> None:
        """Somebody changed the settings of `topics/<name>` or `brokers/<id>`."""
        self.facts.configs[entity] = found
        kind, _, name = entity.partition("/")
        if kind == "topics" and name in self._core.view.topics:
            for setting, refusal in self._show(name).config.refused:
                logger.error("topic %s: %s in the tree has no effect: %s", name, setting, refusal)
        elif kind == "brokers" and name in (paths.DEFAULT_ENTITY, str(self._core.broker_id)):
            self._reconfigured()

    def told(self, path: str) -> None:
        """Somebody left a node under /config/changes: it is taken away with the old ones."""
        self._told.add(path, self._elapsed_ms())

    def _elapsed_ms(self) -> int:
        """The monotonic clock: how long a node has been there does not depend on how the wall clock is set."""
        return int(self._core.clock.monotonic() * 1000)

    def controller_since(self, epoch: int, version: int) -> None:
        """This broker is controller of another epoch."""
        self.facts.controller_epoch, self.facts.controller_epoch_version = epoch, version

    # --- settings -----------------------------------------------------------------------------------------------------------------------

    async def alter(self, resource_type: int, name: str, change: Sequence[ConfigOp] | Mapping[str, str | None], *, validate_only: bool) -> None:
        """Changes single settings (operations) or all of them (a mapping) of a topic or a broker; KafkaError where that is refused."""
        if resource_type == TOPIC_RESOURCE:
            await self.alter_topic(name, change, validate_only=validate_only)
        elif resource_type == BROKER_RESOURCE:
            await self.alter_broker(name, change, validate_only=validate_only)
        else:
            raise InvalidRequestError(f"Settings of resource type {resource_type} cannot be changed here; those of topics (2) and brokers (4) can.")

    async def alter_topic(self, name: str, change: Sequence[ConfigOp] | Mapping[str, str | None], *, validate_only: bool) -> None:
        """Changes single settings of a topic (operations) or all of them (a mapping); KafkaError where that is refused."""
        async with self._one_at_a_time:
            config = self._core.config
            plan = (
                plan_topic_config_replaced(self.facts, name, change, config)
                if isinstance(change, Mapping)
                else plan_topic_config(self.facts, name, change, config)
            )
            if not validate_only:
                await self._done(plan)
                self._show(name)
                await self._elect_where_allowed()

    async def alter_broker(self, resource: str, change: Sequence[ConfigOp] | Mapping[str, str | None], *, validate_only: bool) -> None:
        """The same for this broker, or for every broker (the empty name)."""
        async with self._one_at_a_time:
            config, broker_id = self._core.config, self._core.broker_id
            plan = (
                plan_broker_config_replaced(self.facts, resource, change, broker_id, config)
                if isinstance(change, Mapping)
                else plan_broker_config(self.facts, resource, change, broker_id, config)
            )
            if not validate_only:
                await self._done(plan)
                self._reconfigured()
                await self._elect_where_allowed()

    def _reconfigured(self) -> None:
        self._core.reconfigure(self.with_dynamic(self._core.config))
        for name in list(self._core.view.topics):
            self._show(name)

    def with_dynamic(self, config: BrokerConfig) -> BrokerConfig:
        """The broker's settings with what the tree says of it."""
        return config.with_dynamic(dynamic_default=self.facts.broker_settings(None), dynamic_broker=self.facts.broker_settings(self._core.broker_id))

    async def _done(self, plan: ConfigPlan) -> None:
        results = await self._do(plan.operations)
        plan.apply(self.facts)
        now_ms = self._elapsed_ms()
        self._told.add(results[-1].path, now_ms)
        old = self._told.due(now_ms)
        for start in range(0, len(old), _OPERATIONS_AT_ONCE):
            try:
                await self._store.multi(old[start : start + _OPERATIONS_AT_ONCE])
            except (MultiError, TreeError) as error:
                logger.warning("old nodes under %s could not be deleted: %s; they do no harm", paths.CONFIG_CHANGES, error)


def as_kafka_error(error: Exception) -> KafkaError:
    """What a request's answer says of an error that has no code."""
    if isinstance(error, KafkaError):
        return error
    logger.error("an administrative request failed", exc_info=error)
    return UnknownServerError("The broker failed to do this; its log says why.")
