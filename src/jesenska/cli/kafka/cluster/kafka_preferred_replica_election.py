"""kafka-preferred-replica-election: makes the first replica of each partition its leader again. It is the tool of the
releases 0.8 to 2.8, which kafka-leader-election has replaced.

    --zookeeper HOST:PORT          writes the request into the metadata tree (/admin/preferred_replica_election); the
                                   controller deletes the request when it is done. The output is that of 1.0's tool
    --bootstrap-server HOST:PORT   asks the controller, and prints the result of each partition. The output is that of
                                   2.8's tool

Without --path-to-json-file the tool elects leaders for all partitions. Differs from Kafka's tools: partitions are
sorted, and there is no warning that the tool is old. After a failed election the exit code is 1. Partitions that do
not exist are skipped, as in Kafka's tools, but then the exit code is also 1. Partitions whose preferred replica is
already the leader are named (2.8's tool does not name them)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.topic_names import is_legal_topic_name
from jesenska.cli.kafka.cluster.election_results import Wording, add_admin_config, elect
from jesenska.cli.shared.json_files import read_partitions
from jesenska.cli.shared.tool import Parser, add_bootstrap, add_output, print_json, run_async, telling
from jesenska.cli.shared.zookeeper_option import tree_at
from jesenska.client.administration.topic_administration import PREFERRED
from jesenska.controller.reading import in_flight
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, TopicNode, decode_partitions, encode_partitions
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NodeExistsError, NoNodeError

_WHAT = "Preferred replica election data"
_AT_ONCE = 100
_WORDING = Wording(
    elected="Successfully completed preferred leader election for partitions",
    not_needed="Preferred replica already elected for partitions",
    failed="Error completing preferred leader election for partition:",
    counted="preferred replica(s)",
)


def _parser() -> Parser:
    parser = Parser(
        "kafka-preferred-replica-election",
        "Has the preferred replica of each partition lead again (kafka-leader-election does it, too).",
    )
    add_bootstrap(parser)
    add_admin_config(parser)
    parser.add_argument(
        "--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="Ask in the tree there, as releases before 2.2 did."
    )
    parser.add_argument(
        "--path-to-json-file",
        metavar="FILE",
        help='The partitions, all without it: {"partitions": [{"topic": "t", "partition": 0}]}.',
    )
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if options.zookeeper is not None and options.bootstrap_server is not None:
        parser.error("Exactly one of --bootstrap-server and --zookeeper must be provided")
    if options.zookeeper is not None and (options.admin_config or options.command_config):
        parser.error("--admin.config and --command-config can only be used with --bootstrap-server")
    wanted = None if options.path_to_json_file is None else read_partitions(options.path_to_json_file, _WHAT)
    if options.zookeeper is None:
        return await elect(parser, options, PREFERRED, wanted, _WORDING)
    async with telling("Waiting for ZooKeeper"), tree_at(options.zookeeper) as store:
        return await _ask_in_tree(store, wanted, options.output)


async def _ask_in_tree(store: Store, wanted: list[TopicPartition] | None, output: str) -> int:
    there = await _existing(store, None if wanted is None else sorted({key.topic for key in wanted}))
    partitions = sorted(there) if wanted is None else [key for key in wanted if key in there]
    missing = [key for key in wanted or () if key not in there]
    if partitions or not missing:
        data = encode_partitions(partitions)
        await _write(store, data)
        if output == "text":
            print(f"Created preferred replica election path with {data.decode()}")
            print(
                f"Successfully started preferred replica election for partitions Set({', '.join(map(str, partitions))})"
            )
    if output == "json":
        print_json(
            [{"topic": key.topic, "partition": key.partition, "asked": key in there} for key in wanted or partitions]
        )
    else:
        for key in missing:
            print(f"Skipping preferred replica leader election for partition {key} since it doesn't exist.")
    if missing:
        raise JesenskaError(
            f"{len(missing)} of the partitions do not exist (the first is {missing[0]}): kafka-topics --describe "
            "shows those that exist."
        )
    return 0


async def _existing(store: Store, topics: list[str] | None) -> set[TopicPartition]:
    """Returns the existing partitions of these topics; None means all topics."""
    if topics is None:
        try:
            topics = (await store.children(paths.TOPICS))[0]
        except NoNodeError:
            topics = []
    nodes = await in_flight([partial(_topic, store, name) for name in topics], _AT_ONCE)
    return {
        TopicPartition(name, number)
        for name, node in zip(topics, nodes, strict=True)
        if node is not None
        for number in node.replicas
    }


async def _topic(store: Store, name: str) -> TopicNode | None:
    if not is_legal_topic_name(name):
        return None  # a file may name anything, even other nodes
    try:
        return TopicNode.decode((await store.get(paths.topic(name)))[0])
    except NoNodeError:
        return None


async def _write(store: Store, data: bytes) -> None:
    path = paths.PREFERRED_REPLICA_ELECTION
    try:
        await store.create(path, data)
    except NodeExistsError:
        raise JesenskaError(
            f"Preferred replica leader election currently in progress for {await _under_way(store)}: wait until the "
            f"controller has deleted {path}."
        ) from None
    except NoNodeError:
        raise JesenskaError(
            "There is no node /admin in this ZooKeeper: start a broker with it, or correct the path after the servers."
        ) from None


async def _under_way(store: Store) -> str:
    try:
        found = decode_partitions((await store.get(paths.PREFERRED_REPLICA_ELECTION))[0])
    except (NoNodeError, NodeFormatError):
        return "some partitions"
    return ", ".join(map(str, found)) if found else "no partition"


if __name__ == "__main__":
    sys.exit(main())
