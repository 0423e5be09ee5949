"""kafka-topics: creates, lists, describes, alters and deletes topics. Flags and output are those of Apache Kafka
4.3.1's tool.

    --create     --topic NAME [--partitions N] [--replication-factor N | --replica-assignment 1:2,2:3] [--config
                 a=b]...
    --list       [--topic PATTERN] [--exclude-internal]
    --describe   [--topic PATTERN | --topic-id ID] and one of the filters of partitions
    --alter      --topic PATTERN --partitions N [--replica-assignment ...]
    --delete     --topic PATTERN

A pattern is a Java regular expression that matches the whole name; several patterns are separated by commas. Names are
sorted (Kafka's tool prints them in no order). With `--zookeeper HOST:PORT` instead of --bootstrap-server the tool
reads and writes ZooKeeper's nodes, as the tools before 3.0 did (`topics_in_tree`). Then --alter accepts --config and
--delete-config, and --create must name partitions and replicas."""

from __future__ import annotations

import argparse
import re
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jesenska.base.errors import (
    ClusterAuthorizationFailedError,
    InvalidConfigError,
    JesenskaError,
    KafkaError,
    TopicAlreadyExistsError,
    UnsupportedVersionError,
)
from jesenska.base.identifiers import NO_UUID, TopicPartition, uuid_from_text, uuid_to_text
from jesenska.cli.kafka.topics import topics_in_tree
from jesenska.cli.kafka.topics.config_listing import ShownSetting, settings_of_topics, with_near_miss
from jesenska.cli.shared.tool import (
    Parser,
    add_bootstrap,
    add_output,
    cluster_of,
    print_json,
    properties_of,
    run_async,
    telling,
)
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.reassignment_administration import OngoingReassignment
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster, PartitionInfo, TopicInfo
from jesenska.config.settings.topic_settings import TOPIC_SETTINGS
from jesenska.pipeline.patterns import topic_pattern
from jesenska.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)

_ACTIONS = ("create", "list", "describe", "alter", "delete")
#: The flags that each action accepts, in addition to the flags that all actions accept.
_TAKES = {
    "create": {"topic", "partitions", "replication_factor", "replica_assignment", "config", "if_not_exists"},
    "list": {"topic", "exclude_internal"},
    "describe": {
        "topic",
        "topic_id",
        "under_replicated_partitions",
        "unavailable_partitions",
        "under_min_isr_partitions",
        "at_min_isr_partitions",
        "topics_with_overrides",
        "exclude_internal",
        "if_exists",
        "partition_size_limit_per_response",
    },
    "alter": {"topic", "partitions", "replica_assignment", "if_exists"},
    "delete": {"topic", "if_exists"},
}
_FILTERS = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
    "topics_with_overrides",
)


def _parser() -> Parser:
    parser = Parser("kafka-topics", "Creates, lists, describes, alters and deletes topics.")
    _add_actions(parser)
    add_bootstrap(parser)
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="Work on the tree there, as releases before 3.0 did."
    )
    _add_changes(parser)
    _add_choices(parser)
    parser.add_argument(
        "--disable-rack-aware", action="store_true", help="Place replicas without looking at racks (with --zookeeper)."
    )
    parser.add_argument("--force", action="store_true", help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def _add_actions(parser: Parser) -> None:
    actions = parser.add_argument_group("actions (exactly one)")
    actions.add_argument("--create", action="store_true", help="Create a topic.")
    actions.add_argument("--list", action="store_true", help="Print the names of the topics.")
    actions.add_argument(
        "--describe", action="store_true", help="Show partitions, leaders, replicas and changed settings."
    )
    actions.add_argument(
        "--alter", action="store_true", help="Raise the number of partitions (settings are changed with kafka-configs)."
    )
    actions.add_argument("--delete", action="store_true", help="Delete topics with all their records.")


def _add_changes(parser: Parser) -> None:
    """Adds the options that name a topic, create it or change it."""
    parser.add_argument(
        "--topic", metavar="TOPIC", help="The topic; for all actions but --create a regular expression."
    )
    parser.add_argument("--topic-id", metavar="ID", help="The id of the topic to describe, instead of --topic.")
    parser.add_argument(
        "--partitions", type=int, metavar="N", help="Number of partitions (without it, the broker's num.partitions)."
    )
    parser.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        help="Replicas of each partition (without it, default.replication.factor).",
    )
    parser.add_argument(
        "--replica-assignment", metavar="IDS", help="Broker ids, replicas joined by ':', partitions by ',': 1:2,2:3."
    )
    parser.add_argument(
        "--config", action="append", metavar="NAME=VALUE", help="A setting of the topic to create; may be repeated."
    )
    parser.add_argument(
        "--delete-config", action="append", metavar="NAME", help="A setting to take away (--alter with --zookeeper)."
    )
    parser.add_argument(
        "--if-exists", action="store_true", help="Do nothing, without an error, where the topic does not exist."
    )
    parser.add_argument(
        "--if-not-exists", action="store_true", help="Do nothing, without an error, where the topic exists."
    )


def _add_choices(parser: Parser) -> None:
    """Adds the options that select topics and partitions to show."""
    parser.add_argument("--exclude-internal", action="store_true", help="Leave Kafka's own topics out.")
    parser.add_argument(
        "--under-replicated-partitions", action="store_true", help="Only partitions with a replica out of sync."
    )
    parser.add_argument("--unavailable-partitions", action="store_true", help="Only partitions without a leader.")
    parser.add_argument(
        "--under-min-isr-partitions",
        action="store_true",
        help="Only partitions with fewer replicas in sync than min.insync.replicas.",
    )
    parser.add_argument(
        "--at-min-isr-partitions", action="store_true", help="Only partitions with exactly min.insync.replicas in sync."
    )
    parser.add_argument(
        "--topics-with-overrides", action="store_true", help="Only topics that have settings of their own."
    )
    parser.add_argument(
        "--partition-size-limit-per-response",
        type=int,
        default=None,
        metavar="N",
        help="Most partitions in one answer of the broker (2000).",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    given = [action for action in _ACTIONS if getattr(options, action)]
    if len(given) != 1:
        parser.error("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    action = given[0]
    _check(parser, options, action)
    if options.zookeeper:
        async with telling("Waiting for ZooKeeper"):
            return await topics_in_tree.work(
                options, action, _assignment(options.replica_assignment) if options.replica_assignment else None
            )
    async with cluster_of(options) as cluster, telling("Waiting for the broker"):
        if action == "create":
            return await _create(cluster, options)
        if action == "list":
            return await _list(cluster, options)
        if action == "describe":
            return await _describe(cluster, options)
        if action == "alter":
            return await _alter(cluster, options)
        return await _delete(cluster, options)


def _check(parser: Parser, options: argparse.Namespace, action: str) -> None:
    if options.zookeeper and options.bootstrap_server:
        parser.error("only one of --bootstrap-server and --zookeeper can be used")
    takes = _TAKES[action] | ({"config"} if options.zookeeper and action == "alter" else set())
    for name in set().union(*_TAKES.values()):
        if getattr(options, name) not in (None, False) and name not in takes:
            more = ": settings are changed with kafka-configs" if action == "alter" and name == "config" else ""
            parser.error(f"--{name.replace('_', '-')} can't be used with --{action}{more}")
    if options.disable_rack_aware and not options.zookeeper:
        parser.error(
            "--disable-rack-aware can only be used with --zookeeper: a broker that is asked places replicas as it does"
        )
    if options.delete_config and not (options.zookeeper and action == "alter"):
        parser.error(f"--delete-config can't be used with --{action}: settings are changed with kafka-configs")
    if action in ("create", "alter", "delete") and options.topic is None:
        parser.error("Missing required argument --topic")
    if (
        action == "alter"
        and options.partitions is None
        and not (options.zookeeper and (options.config or options.delete_config))
    ):
        parser.error("Missing required argument --partitions")
    if (
        action == "create"
        and options.replica_assignment
        and (options.partitions is not None or options.replication_factor is not None)
    ):
        parser.error("--replica-assignment can't be used with --partitions or --replication-factor")
    if sum(getattr(options, name) for name in _FILTERS) > 1:
        parser.error(
            "only one of " + ", ".join(f"--{name.replace('_', '-')}" for name in _FILTERS) + " can be used at a time"
        )
    if options.partitions is not None and options.partitions < 1:
        parser.error("The partitions must be greater than 0")
    if options.replication_factor is not None and not 1 <= options.replication_factor <= 32767:
        parser.error("The replication factor must be between 1 and 32767 inclusive")
    if options.partition_size_limit_per_response is not None and options.partition_size_limit_per_response < 1:
        parser.error("--partition-size-limit-per-response must be greater than 0")


# --- actions ---------------------------------------------------------------------------------------------------------


async def _create(cluster: Cluster, options: argparse.Namespace) -> int:
    name = options.topic
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. "
            "To avoid issues it is best to use either, but not both.",
            file=sys.stderr if options.output == "json" else sys.stdout,
        )
    topic = NewTopic(
        name,
        -1 if options.partitions is None else options.partitions,
        -1 if options.replication_factor is None else options.replication_factor,
        {key: value.strip() for key, value in properties_of(options.config).items()},
        _assignment(options.replica_assignment) if options.replica_assignment else (),
    )
    error = (await Admin(cluster).create_topics([topic]))[name]
    exists = isinstance(error, TopicAlreadyExistsError)
    if error is not None and not (exists and options.if_not_exists):
        raise with_near_miss(error, topic.configs, TOPIC_SETTINGS) if isinstance(error, InvalidConfigError) else error
    if options.output == "json":
        print_json({"topic": name, "created": not exists})
    elif not exists:
        print(f"Created topic {name}.")
    return 0


def _assignment(text: str) -> list[list[int]]:
    partitions: list[list[int]] = []
    for number, piece in enumerate(text.split(",")):
        brokers = piece.split(":")
        if not all(re.fullmatch(r"\s*\d{1,9}\s*", broker) for broker in brokers):
            raise JesenskaError(
                f"{piece!r} is not a list of broker ids: write the replicas of a partition as 1:2, and partitions "
                f"apart by a comma."
            )
        ids = [int(broker) for broker in brokers]
        if len(set(ids)) < len(ids):
            raise JesenskaError(
                f"Partition replica lists may not contain duplicate entries: {piece} (partition {number})."
            )
        if partitions and len(partitions[0]) != len(ids):
            raise JesenskaError(f"Partition {number} has different replication factor: {ids}.")
        partitions.append(ids)
    return partitions


async def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    names = [topic.name for topic in await _matching(cluster, options)]
    if options.output == "json":
        print_json(names)
    else:
        print("\n".join(names))
    return 0


async def _alter(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = await _existing(cluster, options)
    assignment = _assignment(options.replica_assignment) if options.replica_assignment else None
    assignments = (
        {topic.name: assignment[len(topic.partitions) :] for topic in topics} if assignment is not None else None
    )
    if topics:
        _raise_first(
            await Admin(cluster).create_partitions({topic.name: options.partitions for topic in topics}, assignments)
        )
    if options.output == "json":
        print_json([{"topic": topic.name, "partitions": options.partitions} for topic in topics])
    return 0


async def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = await _existing(cluster, options)
    if topics:
        _raise_first(await Admin(cluster).delete_topics([topic.name for topic in topics]))
    if options.output == "json":
        print_json([{"topic": topic.name, "deleted": True} for topic in topics])
    return 0


def _raise_first(results: dict[str, KafkaError | None]) -> None:
    """Prints all errors except the last error, which is raised."""
    errors = [error for error in results.values() if error is not None]
    for error in errors[:-1]:
        print(f"kafka-topics: {error}", file=sys.stderr)
    if errors:
        raise errors[-1]


async def _matching(cluster: Cluster, options: argparse.Namespace) -> list[TopicInfo]:
    topics = await cluster.topics()
    pattern = topic_pattern(options.topic) if options.topic is not None else None
    return [
        topic
        for name, topic in sorted(topics.items())
        if (pattern is None or pattern.fullmatch(name))
        and not (getattr(options, "exclude_internal", False) and topic.is_internal)
    ]


async def _existing(cluster: Cluster, options: argparse.Namespace) -> list[TopicInfo]:
    """Returns the existing topics that the flags select. Raises JesenskaError if no such topic exists, except with
    --if-exists."""
    topics = await _matching(cluster, options)
    if not topics and options.topic is not None and not options.if_exists:
        raise JesenskaError(
            f"Topic '{options.topic}' does not exist as expected: kafka-topics --list shows those that do."
        )
    return topics


# --- describe --------------------------------------------------------------------------------------------------------


#: The reassignments that are not complete.
_Moves = Mapping[TopicPartition, OngoingReassignment]


@dataclass(frozen=True, slots=True)
class _Eligible:
    """The eligible leader replicas of a partition (KIP-966), and the last known eligible leader replicas. Both are
    None if the broker does not report them."""

    replicas: list[int] | None = None
    last_known: list[int] | None = None


async def _described(cluster: Cluster, options: argparse.Namespace) -> list[TopicInfo]:
    if options.topic_id is None:
        return await _existing(cluster, options)
    try:
        wanted = uuid_from_text(options.topic_id)
    except ValueError:
        raise JesenskaError(
            f"'{options.topic_id}' is not the id of a topic: write the 22 characters that --describe shows as TopicId."
        ) from None
    if wanted == NO_UUID:
        return await _existing(cluster, options)
    found = [topic for topic in (await cluster.topics()).values() if topic.topic_id == wanted]
    if not found and not options.if_exists:
        raise JesenskaError(
            f"TopicId '{options.topic_id}' does not exist as expected: kafka-topics --describe shows those that do."
        )
    return found


async def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = await _described(cluster, options)
    settings = await settings_of_topics(cluster, [topic.name for topic in topics])
    eligible = await _eligible(
        cluster, [topic.name for topic in topics], options.partition_size_limit_per_response or 2000
    )
    moves = await _reassignments(cluster, topics)
    documents: list[dict[str, Any]] = []
    filtering = any(getattr(options, name) for name in _FILTERS)
    for topic in topics:
        all_settings = settings.get(topic.name, [])
        changed = [item for item in all_settings if not item.is_default]
        if options.topics_with_overrides:
            if changed and options.output == "text":
                print(_topic_line(topic, changed, moves))
            if changed:
                documents.append(_document(topic, (), changed, eligible, moves))
            continue
        partitions = [item for item in topic.partitions if _wanted(item, options, all_settings, cluster, moves)]
        if options.output == "json":
            if partitions or not filtering:
                documents.append(_document(topic, partitions, changed, eligible, moves))
            continue
        if not filtering:
            print(_topic_line(topic, changed, moves))
        for partition in partitions:
            extra = eligible.get((topic.name, partition.topic_partition.partition), _Eligible())
            print(_partition_line(partition, extra, moves.get(partition.topic_partition), cluster))
    if options.output == "json":
        print_json(documents)
    return 0


async def _reassignments(cluster: Cluster, topics: Sequence[TopicInfo]) -> _Moves:
    """Returns the reassignments of these topics that are not complete. Returns none, as Kafka's tool, if the brokers
    do not support the request, or if the user may not describe the cluster."""
    keys = [partition.topic_partition for topic in topics for partition in topic.partitions]
    if not keys:
        return {}
    try:
        return await Admin(cluster).list_reassignments(keys)
    except (UnsupportedVersionError, ClusterAuthorizationFailedError):
        return {}


def _factor(partition: PartitionInfo, moves: _Moves) -> int:
    """Returns the number of replicas without those that a reassignment is adding."""
    move = moves.get(partition.topic_partition)
    return len(partition.replicas) - (0 if move is None else len(move.adding))


def _wanted(
    partition: PartitionInfo,
    options: argparse.Namespace,
    settings: Iterable[ShownSetting],
    cluster: Cluster,
    moves: _Moves,
) -> bool:
    in_sync = len(partition.in_sync_replicas)
    if options.under_replicated_partitions:
        return in_sync < _factor(partition, moves)
    if options.unavailable_partitions:
        return partition.leader not in cluster.nodes
    if options.under_min_isr_partitions or options.at_min_isr_partitions:
        minimum = next((int(item.value) for item in settings if item.name == "min.insync.replicas" and item.value), 1)
        return in_sync < minimum if options.under_min_isr_partitions else in_sync == minimum
    return True


def _topic_line(topic: TopicInfo, changed: Iterable[ShownSetting], moves: _Moves) -> str:
    configs = ",".join(f"{item.name}={item.value}" for item in changed)
    factor = _factor(topic.partitions[0], moves) if topic.partitions else 0
    identifier = f"\tTopicId: {uuid_to_text(topic.topic_id)}" if topic.topic_id != NO_UUID else ""
    return (
        f"Topic: {topic.name}{identifier}\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: "
        f"{factor}\tConfigs: {configs}"
    )


def _partition_line(
    partition: PartitionInfo, eligible: _Eligible, move: OngoingReassignment | None, cluster: Cluster
) -> str:
    moving = "" if move is None else f"\tAdding Replicas: {_ids(move.adding)}\tRemoving Replicas: {_ids(move.removing)}"
    leader = str(partition.leader) if partition.leader in cluster.nodes else "none"
    return (
        f"\tTopic: {partition.topic_partition.topic}\tPartition: {partition.topic_partition.partition}\tLeader: "
        f"{leader}"
        f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.in_sync_replicas)}{moving}"
        f"\tElr: {_ids(eligible.replicas)}\tLastKnownElr: {_ids(eligible.last_known)}"
    )


def _ids(brokers: Iterable[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _document(
    topic: TopicInfo,
    partitions: Iterable[PartitionInfo],
    changed: Iterable[ShownSetting],
    eligible: dict[tuple[str, int], _Eligible],
    moves: _Moves,
) -> dict[str, Any]:
    found = []
    for item in partitions:
        extra = eligible.get((topic.name, item.topic_partition.partition), _Eligible())
        move = moves.get(item.topic_partition)
        moving = {} if move is None else {"addingReplicas": list(move.adding), "removingReplicas": list(move.removing)}
        found.append(
            {
                "partition": item.topic_partition.partition,
                "leader": item.leader if item.leader >= 0 else None,
                "replicas": list(item.replicas),
                "isr": list(item.in_sync_replicas),
                "elr": extra.replicas,
                "lastKnownElr": extra.last_known,
                **moving,
            }
        )
    return {
        "topic": topic.name,
        "topicId": None if topic.topic_id == uuid.UUID(int=0) else uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitionCount": len(topic.partitions),
        "replicationFactor": _factor(topic.partitions[0], moves) if topic.partitions else 0,
        "configs": {item.name: item.value for item in changed},
        "partitions": found,
    }


async def _eligible(cluster: Cluster, names: list[str], limit: int) -> dict[tuple[str, int], _Eligible]:
    """Returns the eligible leader replicas by topic and partition. They are requested page by page. Returns an empty
    dict if the broker does not support the request."""
    found: dict[tuple[str, int], _Eligible] = {}
    cursor: DescribeTopicPartitionsRequestCursor | None = None
    if not names:
        return found
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequestTopic(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        try:
            answer = await cluster.ask_any(request, DescribeTopicPartitionsResponse)
        except UnsupportedVersionError:
            return found
        before = len(found)
        for topic in answer.topics:
            for item in topic.partitions:
                found[topic.name or "", item.partition_index] = _Eligible(
                    item.eligible_leader_replicas, item.last_known_elr
                )
        following = answer.next_cursor
        if following is None or len(found) == before:
            return found
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=following.topic_name, partition_index=following.partition_index
        )
        names = [name for name in names if name >= following.topic_name]


if __name__ == "__main__":
    sys.exit(main())
