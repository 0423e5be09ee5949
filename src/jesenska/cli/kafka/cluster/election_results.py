"""The output of the two tools for leader elections: kafka-leader-election and its predecessor
kafka-preferred-replica-election. The lines are Kafka's, sorted by partition; Kafka's tools print them in no order."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from jesenska.base.errors import ElectionNotNeededError, JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.shared.java_names import java_name, java_text
from jesenska.cli.shared.tool import Parser, cluster_of, print_json, sentence, telling
from jesenska.client.administration.admin import Admin


class Wording(NamedTuple):
    """The beginnings of a tool's output lines. In a line, a partition or several partitions separated by commas
    follow."""

    elected: str
    not_needed: str
    failed: str
    #: The noun for replicas that could not be elected. The number of these replicas is printed before it.
    counted: str


def add_admin_config(parser: Parser) -> None:
    """Adds `--admin.config`, the older name of `--command-config` in these tools."""
    parser.add_argument("--admin.config", dest="admin_config", metavar="FILE", help="Older name of --command-config.")


async def elect(
    parser: Parser,
    options: argparse.Namespace,
    election_type: int,
    partitions: list[TopicPartition] | None,
    wording: Wording,
) -> int:
    """Elects the leaders of the partitions (None: of all partitions) and prints the result for each partition. Raises
    JesenskaError if a leader could not be elected."""
    if options.admin_config is not None:
        if options.command_config is not None:
            parser.error("--admin.config can't be used with --command-config")
        options.command_config = options.admin_config
    async with cluster_of(options) as cluster, telling("Waiting for the election"):
        results = await Admin(cluster).elect_leaders(election_type, partitions)
    _tell(dict(sorted(results.items())), wording, options.output)
    failed = {
        key: error
        for key, error in results.items()
        if error is not None and not isinstance(error, ElectionNotNeededError)
    }
    if failed:
        first = min(failed)
        raise JesenskaError(
            f"{len(failed)} {wording.counted} could not be elected ({first}: "
            f"{sentence(failed[first]).removesuffix('.')})."
        )
    return 0


def _tell(results: Mapping[TopicPartition, KafkaError | None], wording: Wording, output: str) -> None:
    if output == "json":
        print_json([_document(key, error) for key, error in results.items()])
        return
    elected = [str(key) for key, error in results.items() if error is None]
    not_needed = [str(key) for key, error in results.items() if isinstance(error, ElectionNotNeededError)]
    if elected:
        print(f"{wording.elected} {', '.join(elected)}")
    if not_needed:
        print(f"{wording.not_needed} {', '.join(not_needed)}")
    for key, error in results.items():
        if error is not None and not isinstance(error, ElectionNotNeededError):
            print(f"{wording.failed} {key}: {java_text(error)}")


def _document(key: TopicPartition, error: KafkaError | None) -> dict[str, Any]:
    document: dict[str, Any] = {"topic": key.topic, "partition": key.partition, "elected": error is None}
    if error is None or isinstance(error, ElectionNotNeededError):
        return document | {"needed": error is None}
    return document | {"needed": True, "error": java_name(error), "message": sentence(error)}
