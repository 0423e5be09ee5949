"""kafka-topics with --zookeeper: reads and writes ZooKeeper's nodes directly, as the tool of 0.8 to 2.x did. Flags and
output are those of the tools of 0.8.2 and 1.0.

To create a topic, the tool writes its replicas into /brokers/topics and its settings into /config/topics; the
cluster's controller then elects leaders and creates the replicas. So `--describe` may show a partition without a
leader for a moment. To delete a topic, the tool only writes a node that requests the deletion from the controller.

As in 1.0's tool, and unlike in 0.8.2's, a failure ends with exit code 1."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jesenska.base.clock import system_random
from jesenska.base.errors import JesenskaError, TopicAlreadyExistsError
from jesenska.base.identifiers import random_uuid
from jesenska.cli.shared.tool import print_json, properties_of
from jesenska.cli.shared.zookeeper_option import tree_at
from jesenska.config.layers import BrokerConfig
from jesenska.controller import reading
from jesenska.controller.context import ControllerContext, TopicView
from jesenska.controller.plans.config_changes import ConfigOp, OpType, plan_topic_config
from jesenska.controller.plans.topics import TopicCreation, plan_creation, plan_expansion
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode, encode_config
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import Create, MultiError, NodeExistsError, Operation, SetData
from jesenska.pipeline.patterns import topic_pattern

_COULD_COLLIDE = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
_KEYS_MOVE = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the messages "
    "will be affected"
)


async def work(options: argparse.Namespace, action: str, assignment: Sequence[Sequence[int]] | None) -> int:
    """Runs one action of the tool and returns the exit code. Raises KafkaError or JesenskaError with one sentence if
    the action is refused."""
    async with tree_at(options.zookeeper) as store:
        view = await reading.load(store, at_once=100)
        if options.disable_rack_aware:
            view.brokers = {broker_id: replace(node, rack=None) for broker_id, node in view.brokers.items()}
        if action == "create":
            return await _create(store, view, options, assignment)
        if action == "list":
            return _list(view, options)
        if action == "describe":
            return _describe(view, options)
        if action == "alter":
            return await _alter(store, view, options, assignment)
        return await _delete(store, view, options)


def _say(options: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if options.output == "json" else sys.stdout)


async def _create(
    store: Store, view: ControllerContext, options: argparse.Namespace, assignment: Sequence[Sequence[int]] | None
) -> int:
    name = options.topic
    if assignment is None and (options.partitions is None or options.replication_factor is None):
        missing = "partitions" if options.partitions is None else "replication-factor"
        raise JesenskaError(
            f"Missing required argument --{missing}: with --zookeeper a broker's default is not available."
        )
    if "." in name or "_" in name:
        _say(options, _COULD_COLLIDE)
    request = TopicCreation(
        name,
        -1 if options.partitions is None else options.partitions,
        -1 if options.replication_factor is None else options.replication_factor,
        dict(enumerate(map(tuple, assignment or ()))),
        {key: value.strip() for key, value in properties_of(options.config).items()},
    )
    chance = system_random().randrange
    count = max(1, len(view.brokers))
    created = True
    try:
        plan = plan_creation(
            view, request, BrokerConfig({}), topic_id=random_uuid(), start_index=chance(count), shift=chance(count)
        )
        await _multi(
            store,
            # The settings node may already exist: it may be left from an earlier topic of this name, or from a tool
            # that was interrupted between the two writes.
            SetData(paths.topic_config(name), encode_config(plan.config.overrides))
            if f"topics/{name}" in view.configs
            else Create(paths.topic_config(name), encode_config(plan.config.overrides)),
            Create(paths.topic(name), TopicNode(plan.topic.node.replicas, None).encode()),
        )
    except TopicAlreadyExistsError:
        if not options.if_not_exists:
            raise
        created = False
    if options.output == "json":
        print_json({"topic": name, "created": created})
    elif created:
        print(f'Created topic "{name}".')
    return 0


async def _multi(store: Store, *operations: Operation) -> None:
    try:
        await store.multi(operations)
    except MultiError as error:
        if isinstance(error.error, NodeExistsError):
            raise TopicAlreadyExistsError(f"{error.error.path} was just created by another client.") from error
        raise JesenskaError(
            f"The tree was just changed by another client ({error}): check it, then try again."
        ) from error


def _list(view: ControllerContext, options: argparse.Namespace) -> int:
    topics = _matching(view, options)
    if options.output == "json":
        print_json([topic.name for topic in topics])
    else:
        for topic in topics:
            print(f"{topic.name} - marked for deletion" if topic.deleting else topic.name)
    return 0


def _matching(view: ControllerContext, options: argparse.Namespace) -> list[TopicView]:
    pattern = topic_pattern(options.topic) if options.topic is not None else re.compile(".*", re.DOTALL)
    internal = not getattr(options, "exclude_internal", False)
    return [
        topic
        for name, topic in sorted(view.topics.items())
        if pattern.fullmatch(name) and (internal or not name.startswith("__"))
    ]


def _existing(view: ControllerContext, options: argparse.Namespace) -> list[TopicView]:
    topics = _matching(view, options)
    if not topics and options.topic is not None and not options.if_exists:
        raise JesenskaError(
            f"Topic {options.topic} does not exist on ZK path {options.zookeeper}: kafka-topics --list shows those "
            f"that do."
        )
    return topics


def _describe(view: ControllerContext, options: argparse.Namespace) -> int:
    documents: list[dict[str, Any]] = []
    filtering = options.under_replicated_partitions or options.unavailable_partitions
    for topic in _existing(view, options):
        settings = view.topic_settings(topic.name)
        if options.topics_with_overrides and not settings:
            continue
        replicas = topic.node.replicas
        factor = len(replicas[0]) if 0 in replicas else 0
        if options.output == "text" and not filtering:
            configs = ",".join(f"{name}={value}" for name, value in settings.items())
            marked = "\tMarkedForDeletion:true" if topic.deleting else ""
            print(
                f"Topic:{topic.name}\tPartitionCount:{len(replicas)}\tReplicationFactor:{factor}\tConfigs:{configs}{marked}"
            )
        shown = []
        for number in sorted(replicas) if not options.topics_with_overrides else ():
            held = topic.partitions.get(number)
            leader = held.state.leader if held is not None else None
            in_sync = held.state.isr if held is not None else ()
            if options.under_replicated_partitions and len(in_sync) >= len(replicas[number]):
                continue
            if options.unavailable_partitions and leader in view.brokers:
                continue
            shown.append(
                {"partition": number, "leader": leader, "replicas": list(replicas[number]), "isr": list(in_sync)}
            )
            if options.output == "text":
                print(
                    f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {'none' if leader is None else leader}"
                    f"\tReplicas: {','.join(map(str, replicas[number]))}\tIsr: {','.join(map(str, in_sync))}"
                )
        if shown or not filtering:
            documents.append(
                {
                    "topic": topic.name,
                    "partitionCount": len(replicas),
                    "replicationFactor": factor,
                    "configs": dict(settings),
                    "partitions": shown,
                }
            )
    if options.output == "json":
        print_json(documents)
    return 0


async def _alter(
    store: Store, view: ControllerContext, options: argparse.Namespace, assignment: Sequence[Sequence[int]] | None
) -> int:
    topics = _existing(view, options)
    config = BrokerConfig({})
    for topic in topics:
        if options.config or options.delete_config:
            ops = [ConfigOp(name, OpType.SET, value.strip()) for name, value in properties_of(options.config).items()]
            ops += [ConfigOp(name, OpType.DELETE, None) for name in options.delete_config or ()]
            await _multi(store, *plan_topic_config(view, topic.name, ops, config).operations)
            _say(options, f'Updated config for topic "{topic.name}".')
        if options.partitions is not None:
            _say(options, _KEYS_MOVE)
            new = assignment[len(topic.node.replicas) :] if assignment is not None else None
            plan = plan_expansion(view, topic.name, options.partitions, new, config)
            await _multi(store, SetData(paths.topic(topic.name), plan.topic.node.encode(), topic.version))
            _say(options, "Adding partitions succeeded!")
    if options.output == "json":
        print_json(
            [{"topic": topic.name, "partitions": options.partitions or len(topic.node.replicas)} for topic in topics]
        )
    return 0


async def _delete(store: Store, view: ControllerContext, options: argparse.Namespace) -> int:
    topics = _existing(view, options)
    for topic in topics:
        if topic.deleting:
            _say(options, f"Topic {topic.name} is already marked for deletion.")
            continue
        await _multi(store, Create(paths.delete_topic(topic.name)))
        _say(
            options,
            f"Topic {topic.name} is marked for deletion.\nNote: This will have no impact if delete.topic.enable is "
            f"not set to true.",
        )
    if options.output == "json":
        print_json([{"topic": topic.name, "deleted": False, "marked": True} for topic in topics])
    return 0
