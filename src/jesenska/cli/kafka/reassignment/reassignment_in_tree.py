"""kafka-reassign-partitions with --zookeeper: reads and writes ZooKeeper's nodes directly, as the tools of 0.8.2 to
2.x did. The output is that of 1.0.2's tool.

    /admin/reassign_partitions          the request: partitions with their wanted replicas. The controller removes each
                                        partition that is done, and then the node
    /config/topics/NAME                 the replicas whose moves are throttled (--throttle)
    /config/brokers/ID                  the rate of the throttle
    /config/changes/config_change_...   tells brokers that settings have changed

The request and its throttles are written in one transaction. Brokers move replicas between log directories only if
clients ask them, so a file with log_dirs other than "any" is refused: it needs --bootstrap-server.

Differs from 1.0.2's tool: a mistake ends with exit code 1, and an existing assignment too if --throttle is not given;
topics that do not exist are refused by --generate; --verify keeps throttles while another reassignment is under way,
and a partition that moves because a client has asked is still in progress."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from jesenska.base.clock import system_random
from jesenska.base.errors import JesenskaError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment.proposed_assignment import places_of, proposed, read_brokers
from jesenska.cli.kafka.reassignment.reassignment_files import ANY, as_items, read_targets, read_topics, text_of
from jesenska.cli.kafka.reassignment.reassignment_throttles import (
    FOLLOWER_RATE,
    FOLLOWERS,
    LEADER_RATE,
    LEADERS,
    brokers_in,
    moves_of,
    throttled_replicas,
)
from jesenska.cli.shared.tool import print_json
from jesenska.cli.shared.zookeeper_option import tree_at
from jesenska.config.layers import BrokerConfig
from jesenska.controller import reading
from jesenska.controller.context import ControllerContext
from jesenska.controller.plans.config_changes import ConfigOp, OpType, plan_broker_config, plan_topic_config
from jesenska.controller.plans.reassignments import moving, reassignment_of
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, decode_reassignment, encode_reassignment
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import Create, MultiError, NodeExistsError, NoNodeError, Operation

_AT_ONCE: Final = 100
_EXISTING: Final = "There is an existing assignment running."
_RUN_VERIFY: Final = (
    "Warning: You must run Verify periodically, until the reassignment completes, to ensure the throttle is removed. "
    "You can also alter the throttle by rerunning the Execute command passing a new value."
)

Replicas = Mapping[TopicPartition, Sequence[int]]


async def work(options: argparse.Namespace, action: str) -> int:
    """Runs one action of the tool and returns the exit code. Raises KafkaError or JesenskaError with one sentence if
    the action is refused."""
    actions = {"generate": _generate, "execute": _execute, "verify": _verify}
    targets: Replicas = {} if action == "generate" else _read(options.reassignment_json_file)
    async with tree_at(options.zookeeper) as store:
        view = await reading.load(store, at_once=_AT_ONCE)
        document = await actions[action](store, view, options, targets)
    if options.output == "json":
        print_json(document)
    return 0


def _say(options: argparse.Namespace, text: str) -> None:
    if options.output == "text":
        print(text)


def _read(path: str) -> Replicas:
    targets = read_targets(path)
    for key, target in targets.items():
        if set(target.log_dirs) != {ANY}:
            raise JesenskaError(
                f"The file {path} has log_dirs for {key}, which ZooKeeper does not have: give --bootstrap-server in "
                "place of --zookeeper."
            )
    return {key: target.replicas for key, target in targets.items()}


# --- actions; each returns the document of --output json -------------------------------------------------------------


async def _generate(store: Store, view: ControllerContext, options: argparse.Namespace, _: Replicas) -> dict[str, Any]:
    topics, brokers = read_topics(options.topics_to_move_json_file), read_brokers(options.broker_list)
    for name in topics:
        _require_topic(view, name, f"Topic {name} not found")
    racks = {broker_id: node.rack for broker_id, node in view.brokers.items()}
    places = places_of(brokers, racks, ignores_racks=options.disable_rack_aware)
    current = {
        TopicPartition(name, number): replicas
        for name in topics
        for number, replicas in view.topics[name].node.replicas.items()
    }
    wanted = proposed(current, places, system_random().randrange)
    _say(options, f"Current partition replica assignment\n{text_of(current)}\n")
    _say(options, f"Proposed partition reassignment configuration\n{text_of(wanted)}")
    return {"current": as_items(current), "proposed": as_items(wanted)}


async def _execute(
    store: Store, view: ControllerContext, options: argparse.Namespace, targets: Replicas
) -> dict[str, Any]:
    limit = options.throttle if options.throttle is not None and options.throttle >= 0 else None
    existing = await _requested(store)
    if existing is not None:
        return await _throttle_existing(store, view, options, existing, limit)
    current = _checked(view, targets)
    before = text_of(current)
    _say(
        options,
        f"Current partition replica assignment\n\n{before}\n\nSave this to use as the --reassignment-json-file option "
        "during rollback",
    )
    operations: list[Operation] = []
    if limit is not None:
        _say(options, _RUN_VERIFY)
        moves = moves_of(current, targets, {})
        operations += _throttled_topics(view, throttled_replicas(moves))
        operations += _throttled_brokers(view, brokers_in(moves), limit)
    await _write(store, *operations, Create(paths.REASSIGN_PARTITIONS, encode_reassignment(targets)))
    if limit is not None:
        _say(options, f"The throttle limit was set to {limit} B/s")
    _say(options, "Successfully started reassignment of partitions.")
    return {"before": as_items(current), "started": [str(key) for key in sorted(targets)]}


async def _throttle_existing(
    store: Store, view: ControllerContext, options: argparse.Namespace, existing: Replicas, limit: int | None
) -> dict[str, Any]:
    """Changes the throttle of the reassignment that is under way."""
    if limit is None:
        raise JesenskaError(
            f"{_EXISTING[:-1]} for {', '.join(map(str, sorted(existing)[:5])) or 'no partition'}: wait until --verify "
            "says that it is done, or change its throttle with --throttle."
        )
    current = {
        key: view.topics[key.topic].node.replicas.get(key.partition, ()) for key in existing if key.topic in view.topics
    }
    brokers = sorted({broker_id for replicas in (*current.values(), *existing.values()) for broker_id in replicas})
    await _write(store, *_throttled_brokers(view, brokers, limit))
    _say(options, _EXISTING)
    return {"throttled": [str(key) for key in sorted(existing)], "started": []}


async def _verify(
    store: Store, view: ControllerContext, options: argparse.Namespace, targets: Replicas
) -> dict[str, Any]:
    requested = await _requested(store)
    _say(options, "Status of partition reassignment:")
    states: dict[TopicPartition, str] = {}
    for key, wanted in sorted(targets.items()):
        topic = view.topics.get(key.topic)
        replicas = () if topic is None else topic.node.replicas.get(key.partition, ())
        moves = topic is not None and bool(replicas) and reassignment_of(topic.node, key.partition).is_moving
        if key in (requested or {}) or moves:
            states[key] = "is still in progress"
        elif replicas == tuple(wanted):
            states[key] = "completed successfully"
        else:
            states[key] = "failed"
            _say(
                options,
                f"ERROR: Assigned replicas ({_ids(replicas)}) don't match the list of replicas for reassignment "
                f"({_ids(wanted)}) for partition {key}",
            )
    for key, state in states.items():
        _say(options, f"Reassignment of partition {key} {state}")
    removed = False
    is_quiet = requested is None and not any(moving(topic) for topic in view.topics.values())
    if is_quiet and set(states.values()) == {"completed successfully"}:
        removed = await _remove_throttles(store, view, {key.topic for key in targets})
        if removed:
            _say(options, "Throttle was removed.")
    return {
        "partitions": [{"partition": str(key), "state": state} for key, state in states.items()],
        "throttlesRemoved": removed,
    }


# --- steps -----------------------------------------------------------------------------------------------------------


async def _requested(store: Store) -> Replicas | None:
    """Returns the reassignment that is under way. Returns None if there is no such node."""
    try:
        return decode_reassignment((await store.get(paths.REASSIGN_PARTITIONS))[0])
    except NoNodeError:
        return None
    except NodeFormatError:
        return {}  # the controller deletes a node that it cannot read


def _require_topic(view: ControllerContext, name: str, what: str) -> None:
    topic = view.topics.get(name)
    if topic is None or topic.deleting:
        raise UnknownTopicOrPartitionError(f"{what}: kafka-topics --list shows the topics that exist.")


def _checked(view: ControllerContext, targets: Replicas) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the present replicas of the partitions. Raises KafkaError or JesenskaError with one sentence if a
    partition or a broker does not exist."""
    current: dict[TopicPartition, tuple[int, ...]] = {}
    for key in sorted(targets):
        missing = f"The proposed assignment contains non-existent partitions: {key}"
        _require_topic(view, key.topic, missing)
        if key.partition not in view.topics[key.topic].node.replicas:
            raise UnknownTopicOrPartitionError(f"{missing}: kafka-topics --describe shows those that exist.")
        current[key] = view.topics[key.topic].node.replicas[key.partition]
    unknown = sorted({broker_id for target in targets.values() for broker_id in target} - set(view.brokers))
    if unknown:
        raise JesenskaError(
            f"The proposed assignment contains non-existent brokerIDs: {_ids(unknown)}: the brokers that are up are "
            f"{_ids(sorted(view.brokers))}."
        )
    return current


def _throttled_topics(view: ControllerContext, wanted: Mapping[str, Mapping[str, str]]) -> list[Operation]:
    return [
        operation
        for name, settings in wanted.items()
        if settings
        for operation in plan_topic_config(
            view, name, [ConfigOp(setting, OpType.SET, value) for setting, value in settings.items()], BrokerConfig({})
        ).operations
    ]


def _throttled_brokers(view: ControllerContext, brokers: Iterable[int], limit: int) -> list[Operation]:
    ops = [ConfigOp(name, OpType.SET, str(limit)) for name in (LEADER_RATE, FOLLOWER_RATE)]
    return [
        operation
        for broker_id in brokers
        for operation in plan_broker_config(view, str(broker_id), ops, broker_id, BrokerConfig({})).operations
    ]


async def _remove_throttles(store: Store, view: ControllerContext, topics: Iterable[str]) -> bool:
    """Removes the throttles of all brokers and of these topics. Returns False if there are none."""
    operations: list[Operation] = []
    for broker_id in sorted(view.brokers):
        ops = _deletions(view.broker_settings(broker_id), LEADER_RATE, FOLLOWER_RATE)
        if ops:
            operations += plan_broker_config(view, str(broker_id), ops, broker_id, BrokerConfig({})).operations
    for name in sorted(topics):
        ops = _deletions(view.topic_settings(name), LEADERS, FOLLOWERS)
        if ops:
            operations += plan_topic_config(view, name, ops, BrokerConfig({})).operations
    if operations:
        await _write(store, *operations)
    return bool(operations)


def _deletions(settings: Mapping[str, str], *names: str) -> list[ConfigOp]:
    return [ConfigOp(name, OpType.DELETE, None) for name in names if name in settings]


async def _write(store: Store, *operations: Operation) -> None:
    try:
        await store.multi(operations)
    except MultiError as error:
        if isinstance(error.error, NodeExistsError) and error.error.path == paths.REASSIGN_PARTITIONS:
            raise JesenskaError(f"{_EXISTING[:-1]}: another client has just begun it; wait until it is done.") from None
        if isinstance(error.error, NoNodeError):
            raise JesenskaError(
                f"There is no node for {error.error.path} in this ZooKeeper: start a broker with it, or correct the "
                "path after the servers."
            ) from None
        raise JesenskaError(
            f"The tree was just changed by another client ({error}): check it, then try again."
        ) from error


def _ids(items: Iterable[int]) -> str:
    return ",".join(map(str, items))
