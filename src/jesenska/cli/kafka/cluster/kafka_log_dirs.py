"""kafka-log-dirs: prints the log directories of brokers, with the size of each replica in them. Flags and output are
those of Apache Kafka 4.3.1's tool: two lines, then one of JSON.

    Querying brokers for log directories information
    Received log directory information from brokers 1,2
    {"brokers":[{"broker":1,"logDirs":[{"partitions":[{"partition":"t-0","size":0,"offsetLag":0,"isFuture":false}],
     "error":null,"logDir":"/data"}]}],"version":1}

`--output json` prints only the JSON, with `totalBytes` and `usableBytes` of the volume in each directory (-1: the
broker does not report them). Differs from Kafka's tool: brokers, directories and partitions are sorted."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.java_names import java_name
from jesenska.cli.shared.tool import Parser, add_bootstrap, add_output, cluster_of, print_json, run_async, telling
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.log_directory_administration import LogDirectory
from jesenska.client.cluster import Cluster


def _parser() -> Parser:
    parser = Parser("kafka-log-dirs", "Shows the log directories of brokers and the sizes of the replicas in them.")
    add_bootstrap(parser)
    parser.add_argument("--describe", action="store_true", help="REQUIRED: Describe the log directories.")
    parser.add_argument(
        "--topic-list", default="", metavar="TOPIC,TOPIC", help="Only replicas of these topics (default: all)."
    )
    parser.add_argument("--broker-list", default="", metavar="ID,ID", help="Only these brokers (default: all).")
    add_output(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    return run_async(parser, arguments, lambda options: _work(parser, options))


async def _work(parser: Parser, options: argparse.Namespace) -> int:
    if not options.describe:
        parser.error("Missing required argument --describe")
    pieces = [piece for piece in options.broker_list.split(",") if piece]
    if not all(re.fullmatch(r"\d{1,9}", piece) for piece in pieces):
        raise JesenskaError(
            f"--broker-list expects numbers of brokers apart by commas, but received: {options.broker_list}."
        )
    topics = {piece for piece in options.topic_list.split(",") if piece}
    text = options.output == "text"
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        brokers = await _brokers(cluster, set(map(int, pieces)))
        if text:
            print("Querying brokers for log directories information", flush=True)
        found = await asyncio.gather(*(Admin(cluster).describe_log_dirs(broker) for broker in brokers))
    if text:
        print(f"Received log directory information from brokers {_ids(brokers)}")
    listed = [
        {
            "broker": broker,
            "logDirs": [
                _document(item, topics, with_room=not text) for item in sorted(directories, key=lambda item: item.path)
            ],
        }
        for broker, directories in zip(brokers, found, strict=True)
    ]
    print_json({"brokers": listed, "version": 1})
    return 0


async def _brokers(cluster: Cluster, wanted: set[int]) -> list[int]:
    await cluster.refresh([])
    missing = wanted - cluster.nodes.keys()
    if missing:
        raise JesenskaError(
            f"The given brokers do not exist from --broker-list: {_ids(missing)}. Current existent brokers: "
            f"{_ids(cluster.nodes)}."
        )
    return sorted(wanted or cluster.nodes)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers)))


def _document(directory: LogDirectory, topics: set[str], *, with_room: bool) -> dict[str, Any]:
    """Returns a log directory as a JSON object. The fields are those of Kafka's tool, in the same order."""
    replicas = [
        {
            "partition": str(key),
            "size": replica.size_bytes,
            "offsetLag": replica.offset_lag,
            "isFuture": replica.is_future,
        }
        for key, replica in sorted(directory.replicas.items())
        if not topics or key.topic in topics
    ]
    room = {"totalBytes": directory.total_bytes, "usableBytes": directory.usable_bytes} if with_room else {}
    return {
        "partitions": replicas,
        "error": None if directory.error is None else java_name(directory.error),
        "logDir": directory.path,
    } | room


if __name__ == "__main__":
    sys.exit(main())
