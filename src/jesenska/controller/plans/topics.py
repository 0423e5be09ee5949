"""Plans for topics: the writes to the metadata tree that create, expand or delete a topic, or the error that the
request gets.

The operations of a plan are one `multi` of ZooKeeper: all operations are done, or no operation is done. They are
refused if the controller epoch has changed since the plan was made. So there is no topic without its partitions'
states, and a controller that was replaced without knowing it changes nothing.

    creation   /config/topics/T, /brokers/topics/T with replicas and id, .../partitions/N/state with the first live
               replica as leader
    expansion  /brokers/topics/T with more replicas, the new .../partitions/N/state
    deletion   first /admin/delete_topics/T, which survives a crash; then, when the brokers have deleted the data, the
               deletion of all nodes of T

Error codes and messages are the same as in Kafka 4.3.1. If the two releases 3.9.1 and 4.3.1 answer errors with
different meanings, the error of 3.9.1 is used. A plan of many thousands of partitions is larger than ZooKeeper accepts
in one request; the code that writes it divides it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from jesenska.base.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicException,
    PolicyViolationError,
    ReassignmentInProgressError,
    TopicAlreadyExistsError,
    TopicDeletionDisabledError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.limits import PARTITIONS_PER_REQUEST_MAX
from jesenska.base.topic_names import colliding_topic, require_topic_name
from jesenska.config.layers import BrokerConfig, TopicConfig, check_topic_values
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS
from jesenska.controller.context import ConfigView, ControllerContext, PartitionView, TopicView
from jesenska.controller.plans.assignment import Assignment, assign_replicas
from jesenska.controller.plans.branches import BRANCH_OF, source_of
from jesenska.controller.plans.partition_states import Change, changed, elect_first
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode, TopicNode, encode_config
from jesenska.metadata.tree_operations import Check, Create, Delete, Operation, SetData

#: The log of a KRaft controller. No topic may have this name.
CLUSTER_METADATA = "__cluster_metadata"
Name = TypeVar("Name", bound=Hashable)
DEFAULT_COUNT = -1


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A request to create a topic: numbers of partitions and replicas (-1: the broker's default) or an assignment, and
    settings."""

    name: str
    partitions: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)
    #: True if the request assigns replicas to a partition more than once.
    assigned_twice: bool = False
    #: Selects the error to answer if the request has several mistakes. True: the mistake that Kafka in ZooKeeper mode
    #: finds first. False: the mistake that a KRaft controller finds first.
    checked_as_in_zookeeper_mode: bool = False


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The operations to write together to the metadata tree, and the topic after these operations."""

    operations: tuple[Operation, ...]
    topic: TopicView
    config: TopicConfig
    #: True if the operations write the topic's settings. A creation does this, an expansion does not.
    writes_config: bool

    def apply(self, view: ControllerContext) -> None:
        """Updates the controller's copy of the metadata tree after the operations were written."""
        view.topics[self.topic.name] = self.topic
        if self.writes_config:
            view.configs[f"topics/{self.topic.name}"] = ConfigView(
                dict(self.config.overrides), _next_version(view, self.topic.name)
            )


def duplicates(names: Iterable[Name]) -> set[Name]:
    """Returns the names (or other keys) that are more than once in a request. They are answered INVALID_REQUEST."""
    return {name for name, count in Counter(names).items() if count > 1}


def require_count(requests: Iterable[int]) -> None:
    """Raises PolicyViolationError if a request asks for more partitions than may be created at once."""
    if sum(max(count, 0) for count in requests) > PARTITIONS_PER_REQUEST_MAX:
        raise PolicyViolationError("Excessively large number of partitions per request.")


def plan_creation(
    view: ControllerContext,
    request: TopicCreation,
    broker_config: BrokerConfig,
    *,
    topic_id: uuid.UUID,
    start_index: int,
    shift: int,
    source_settings: Mapping[str, str] | None = None,
) -> TopicPlan:
    """Plans a new topic. Raises KafkaError, with the error code and message for the client, if the request is refused.
    For a branch, `source_settings` are the settings of its source, if the view may not know them.

    `start_index` and `shift` determine the first broker that gets replicas. They are random numbers from 0 to below
    the number of brokers."""
    if request.checked_as_in_zookeeper_mode:
        _require_as_in_zookeeper_mode(view, request, broker_config)
    require_topic_name(request.name)
    if request.name == CLUSTER_METADATA:
        raise InvalidRequestError(f"Creation of internal topic {CLUSTER_METADATA} is prohibited.")
    _require_new(view, request.name)
    overrides = _checked_configs(request.configs, broker_config)
    if BRANCH_OF in overrides:
        replicas, states, overrides = _of_source(view, request, overrides, broker_config, source_settings)
    else:
        replicas = _replicas_of(view, request, broker_config, start_index, shift)
        states = _first_states(view, replicas)
    node = TopicNode(replicas, topic_id)
    operations: list[Operation] = [*epoch_check(view), _config_write(view, request.name, overrides)]
    operations.append(Create(paths.topic(request.name), node.encode()))
    operations.append(Create(paths.partitions(request.name)))
    operations += _partition_creates(request.name, states)
    partitions = {number: PartitionView(state) for number, state in states.items()}
    return TopicPlan(
        tuple(operations),
        TopicView(request.name, node, 0, partitions),
        TopicConfig(overrides, broker_config),
        writes_config=True,
    )


def _of_source(
    view: ControllerContext,
    request: TopicCreation,
    overrides: Mapping[str, str],
    broker_config: BrokerConfig,
    source_settings: Mapping[str, str] | None,
) -> tuple[dict[int, tuple[int, ...]], dict[int, PartitionStateNode], dict[str, str]]:
    """Returns the replicas, states and settings of a branch (a topic that begins as a copy of a source topic).
    Settings of the request override the settings of the source."""
    source = overrides[BRANCH_OF]
    if request.assigned_twice:
        raise InvalidRequestError("The manual partition assignment names a partition twice.")
    taken = source_of(
        view,
        request.name,
        source,
        partitions=request.partitions,
        replication_factor=request.replication_factor,
        assignment=request.assignment,
    )
    require_count((len(taken.replicas),))
    cloned = view.topic_settings(source) if source_settings is None else source_settings
    settings = {**cloned, **overrides, BRANCH_OF: taken.point.text()}
    check_topic_values(TopicConfig(settings, broker_config))
    return taken.replicas, taken.states, settings


def plan_expansion(
    view: ControllerContext,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    broker_config: BrokerConfig,
) -> TopicPlan:
    """Plans the expansion of a topic to `count` partitions. `assignments` names the replicas of the new partitions.
    None means that the request names no replicas.

    New partitions are placed as if they had been created together with the existing partitions, beginning at the
    leader of partition 0."""
    topic = require_topic(view, name)
    existing = topic.node.replicas
    if topic.node.adding or topic.node.removing:
        raise ReassignmentInProgressError(f"A partition reassignment is in progress for the topic '{name}'.")
    if count == len(existing):
        raise InvalidPartitionsError(f"Topic already has {count} partition(s).")
    if count < len(existing):
        raise InvalidPartitionsError(
            f"The topic {name} currently has {len(existing)} partition(s); {count} would not be an increase."
        )
    added = count - len(existing)
    require_count((added,))
    first_replicas = existing.get(0, ())
    replication_factor = len(first_replicas) or 1
    new: Assignment
    if assignments is not None:
        if len(assignments) != added:
            raise InvalidReplicaAssignmentError(
                f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) were "
                f"specified."
            )
        new = {len(existing) + index: tuple(brokers) for index, brokers in enumerate(assignments)}
        _require_assignment(view, new, replication_factor)
    else:
        ids = [place.broker_id for place in view.places()]
        start = next(
            (index for index, broker_id in enumerate(ids) if first_replicas and broker_id >= first_replicas[0]), 0
        )
        new = assign_replicas(
            view.places(), added, replication_factor, start_index=start, shift=start, first_partition=len(existing)
        )
    node = TopicNode({**existing, **new}, topic.node.topic_id)
    states = _first_states(view, new)
    operations = (
        *epoch_check(view),
        SetData(paths.topic(name), node.encode(), topic.version),
        *_partition_creates(name, states),
    )
    partitions = {**topic.partitions, **{number: PartitionView(state) for number, state in states.items()}}
    expanded = TopicView(name, node, topic.version + 1, partitions)
    return TopicPlan(operations, expanded, TopicConfig(view.topic_settings(name), broker_config), writes_config=False)


def plan_deletion(view: ControllerContext, name: str, broker_config: BrokerConfig) -> tuple[Operation, ...]:
    """Plans the first step of a deletion: writes the node /admin/delete_topics/NAME (the mark), which survives a
    crash. There are no operations if the node exists already."""
    if not broker_config.boolean("delete.topic.enable"):
        raise TopicDeletionDisabledError("Topic deletion is disabled.")
    topic = require_topic(view, name)
    if topic.deleting:
        return ()
    return (*epoch_check(view), Create(paths.delete_topic(name)))


def plan_deletion_end(view: ControllerContext, name: str, *, marked: bool = True) -> tuple[Operation, ...]:
    """Plans the last step of a deletion, when the brokers have deleted the data: deletes all nodes of the topic from
    the metadata tree. With `marked`, also deletes the node /admin/delete_topics/NAME, which does not exist for a topic
    that no client has seen."""
    operations: list[Operation] = list(epoch_check(view))
    topic = view.topics.get(name)
    if topic is not None:
        for number in topic.partitions:
            operations += [Delete(paths.partition_state(name, number)), Delete(paths.partition(name, number))]
        operations += [Delete(paths.partitions(name)), Delete(paths.topic(name))]
    if f"topics/{name}" in view.configs:
        operations.append(Delete(paths.topic_config(name)))
    if marked and (topic is None or topic.deleting):
        operations.append(Delete(paths.delete_topic(name)))
    return tuple(operations)


def forget_topic(view: ControllerContext, name: str) -> None:
    """Updates the controller's copy of the metadata tree after the operations of `plan_deletion_end` were written."""
    view.topics.pop(name, None)
    view.configs.pop(f"topics/{name}", None)


def require_topic(view: ControllerContext, name: str) -> TopicView:
    """Returns the topic. Raises UnknownTopicOrPartitionError if it does not exist."""
    topic = view.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    return topic


def epoch_check(view: ControllerContext) -> tuple[Operation, ...]:
    """Returns the operation that checks the controller epoch, so that the metadata tree refuses the writes of a
    replaced controller. Returns no operation if no controller was ever elected."""
    if view.controller_epoch_version is None:
        return ()
    return (Check(paths.CONTROLLER_EPOCH, view.controller_epoch_version),)


def _require_new(view: ControllerContext, name: str) -> None:
    topic = view.topics.get(name)
    if topic is not None:
        if topic.deleting:
            raise TopicAlreadyExistsError(f"Topic '{name}' is marked for deletion.")
        raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
    other = colliding_topic(name, view.topics)
    if other is not None:
        raise InvalidTopicException(f"Topic '{name}' collides with existing topic: {other}")


def _require_as_in_zookeeper_mode(view: ControllerContext, request: TopicCreation, broker_config: BrokerConfig) -> None:
    """Raises the error that Kafka in ZooKeeper mode finds first. It checks the numbers of partitions and replicas
    before the name, and the values of settings last."""
    if request.name in view.topics:
        _require_new(view, request.name)
    _require_no_nulls(request.configs)
    if BRANCH_OF in request.configs:
        return
    if request.assignment:
        _require_no_numbers(request)
    else:
        _replicas_of(view, request, broker_config, 0, 0)
    require_topic_name(request.name)
    _require_new(view, request.name)
    _replicas_of(view, request, broker_config, 0, 0)


def _checked_configs(configs: Mapping[str, str | None], broker_config: BrokerConfig) -> dict[str, str]:
    overrides: dict[str, str] = {}
    _require_no_nulls(configs)
    for name, value in configs.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfigError(f"Unknown topic config name: {name}")
        assert value is not None
        setting.parse(value)
        overrides[name] = value
    check_topic_values(TopicConfig(overrides, broker_config))
    return overrides


def _require_no_nulls(configs: Mapping[str, str | None]) -> None:
    empty = [name for name, value in configs.items() if value is None]
    if empty:
        raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(empty)}")


def _require_no_numbers(request: TopicCreation) -> None:
    if request.partitions != DEFAULT_COUNT:
        raise InvalidRequestError("A manual partition assignment was specified, but numPartitions was not set to -1.")
    if request.replication_factor != DEFAULT_COUNT:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )


def _replicas_of(
    view: ControllerContext, request: TopicCreation, broker_config: BrokerConfig, start_index: int, shift: int
) -> dict[int, tuple[int, ...]]:
    if request.assignment:
        _require_no_numbers(request)
        if request.assigned_twice:
            raise InvalidRequestError("The manual partition assignment names a partition twice.")
        require_count((len(request.assignment),))
        replicas = {number: tuple(request.assignment[number]) for number in sorted(request.assignment)}
        if list(replicas) != list(range(len(replicas))):
            raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
        _require_assignment(view, replicas, None)
        return replicas
    partitions, replication_factor = request.partitions, request.replication_factor
    if partitions == 0 or partitions < DEFAULT_COUNT:
        raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    if replication_factor == 0 or replication_factor < DEFAULT_COUNT:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0, or -1 to use the default value.")
    if partitions == DEFAULT_COUNT:
        partitions = broker_config.integer("num.partitions")
    if replication_factor == DEFAULT_COUNT:
        replication_factor = broker_config.integer("default.replication.factor")
    require_count((partitions,))
    return assign_replicas(view.places(), partitions, replication_factor, start_index=start_index, shift=shift)


def _require_assignment(view: ControllerContext, assignment: Assignment, replication_factor: int | None) -> None:
    for brokers in assignment.values():
        require_brokers(view, brokers)
        if replication_factor is not None and len(brokers) != replication_factor:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes a partition with {len(brokers)} replica(s), but this is "
                f"not consistent with previous "
                f"partitions, which have {replication_factor} replica(s)."
            )
        replication_factor = len(brokers)


def require_brokers(view: ControllerContext, brokers: Iterable[int]) -> None:
    """Raises InvalidReplicaAssignmentError if a client assigns a partition to no broker, to a broker that is not
    registered, or to a broker twice."""
    seen: set[int] = set()
    for broker_id in brokers:
        if broker_id not in view.brokers:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id in seen:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        seen.add(broker_id)
    if not seen:
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")


def _config_write(view: ControllerContext, name: str, overrides: Mapping[str, str]) -> Operation:
    """Returns the operation that writes a topic's settings. Settings of an earlier topic with the same name are
    replaced, if they are still in the metadata tree."""
    known = view.configs.get(f"topics/{name}")
    path, data = paths.topic_config(name), encode_config(overrides)
    return Create(path, data) if known is None else SetData(path, data, known.version)


def _first_states(view: ControllerContext, replicas: Mapping[int, tuple[int, ...]]) -> dict[int, PartitionStateNode]:
    """Returns the first states of new partitions."""
    live, epoch = view.brokers, view.controller_epoch
    return {
        number: changed(Change.FIRST, None, elect_first(brokers, live, epoch), live)
        for number, brokers in replicas.items()
    }


def _partition_creates(name: str, states: Mapping[int, PartitionStateNode]) -> list[Operation]:
    operations: list[Operation] = []
    for number, state in states.items():
        operations += [
            Create(paths.partition(name, number)),
            Create(paths.partition_state(name, number), state.encode()),
        ]
    return operations


def _next_version(view: ControllerContext, name: str) -> int:
    known = view.configs.get(f"topics/{name}")
    return 0 if known is None else known.version + 1
