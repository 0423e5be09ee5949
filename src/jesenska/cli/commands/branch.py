"""`jesenska branch SOURCE TARGET`: makes a branch: a new topic TARGET with the partitions, settings and records of the
topic SOURCE. The two topics share the files of closed segments, so no data is copied. Afterwards they are independent.

    jesenska branch orders trial                               the records
    jesenska branch orders trial --groups                      the records, and the committed offsets of each group
    jesenska branch orders trial --config retention.ms=-1      the records, with settings that override the source's

    exit 0    the branch exists, and with --groups every group has its committed offsets for it
         1    the branch was refused, or the offsets of a group could not be set: one sentence on stderr"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from jesenska.base.errors import KafkaError, TopicAlreadyExistsError, UnknownMemberIdError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.shared.tool import FAILED, add_bootstrap, cluster_of, print_json, properties_of, sentence, telling
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.branched_offsets import GroupsInBranch, branch_offsets
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets

Range = tuple[int, int]


def add_branch(branch: argparse.ArgumentParser) -> None:
    branch.add_argument("source", metavar="SOURCE", help="The topic to branch; it stays as it is.")
    branch.add_argument("target", metavar="TARGET", help="The new topic.")
    branch.add_argument(
        "--groups",
        action="store_true",
        help="Give each group the offsets in the branch that it has committed of the source.",
    )
    branch.add_argument(
        "--config",
        action="append",
        metavar="NAME=VALUE",
        help="A setting of the new topic, over that of the source; may stand several times.",
    )
    add_bootstrap(branch)
    branch.set_defaults(bootstrap_server="127.0.0.1:9092")


def branch(options: argparse.Namespace) -> int:
    """Makes the branch, prints the offsets of its partitions, and returns the exit code."""
    return asyncio.run(_branch(options))


async def _branch(options: argparse.Namespace) -> int:
    source, target = options.source, options.target
    groups: GroupsInBranch = {}
    async with cluster_of(options) as cluster, telling("Waiting for the brokers"):
        try:
            await Admin(cluster).branch_topic(source, target, properties_of(options.config))
        except UnknownTopicOrPartitionError as error:
            raise UnknownTopicOrPartitionError(
                f"There is no topic {source!r}: kafka-topics --list shows the topics that exist."
            ) from error
        except TopicAlreadyExistsError as error:
            raise TopicAlreadyExistsError(
                f"The topic {target!r} already exists: give the branch another name, or delete that topic."
            ) from error
        ranges = await _ranges(cluster, target)
        if options.groups:
            groups = await branch_offsets(cluster, source, target)
    failed = {
        group: _explained(group, target, error) for group, error in groups.items() if isinstance(error, KafkaError)
    }
    if options.output == "json":
        print_json(_document(source, target, ranges, groups if options.groups else None))
    else:
        records = sum(end - start for start, end in ranges.values())
        print(f"{target} is a branch of {source}: {len(ranges)} partition(s), {records} offset(s).")
        for group, offsets in groups.items():
            if not isinstance(offsets, KafkaError):
                print(f"Group {group} has its offsets of {len(offsets)} partition(s) in it.")
    for message in failed.values():
        print(f"jesenska branch: {message}", file=sys.stderr)
    return FAILED if failed else 0


async def _ranges(cluster: Cluster, target: str) -> dict[int, Range]:
    """Returns the first and the end offset of each partition of the topic."""
    info = (await cluster.topics())[target]
    keys = [TopicPartition(target, number) for number in range(len(info.partitions))]
    starts = await list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
    return {key.partition: (starts[key].offset, ends[key].offset) for key in keys}


def _explained(group: str, target: str, error: KafkaError) -> str:
    if isinstance(error, UnknownMemberIdError):
        return (
            f"Group {group} was given no offsets in {target}: it has members that may read it, or offsets in it "
            f"already; stop them, and set its offsets."
        )
    return f"Group {group} was given no offsets in {target}: {sentence(error)}"


def _document(source: str, target: str, ranges: Mapping[int, Range], groups: GroupsInBranch | None) -> dict[str, Any]:
    partitions = [
        {"partition": number, "startOffset": start, "endOffset": end} for number, (start, end) in ranges.items()
    ]
    document: dict[str, Any] = {"source": source, "topic": target, "partitions": partitions}
    if groups is not None:
        document["groups"] = [
            {"group": group, "error": type(offsets).__name__, "message": sentence(offsets)}
            if isinstance(offsets, KafkaError)
            else {"group": group, "offsets": {str(key.partition): offset for key, offset in offsets.items()}}
            for group, offsets in groups.items()
        ]
    return document
