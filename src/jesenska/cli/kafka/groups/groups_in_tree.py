"""kafka-consumer-groups with --zookeeper: groups that store their offsets in ZooKeeper's nodes, as the consumers of
0.8 do. The output is that of 1.0's tool.

    /consumers/GROUP/ids/MEMBER                        ephemeral: a member
    /consumers/GROUP/owners/TOPIC/PARTITION            ephemeral: `MEMBER-<thread>`, the partition's reader
    /consumers/GROUP/offsets/TOPIC/PARTITION           the offset as text

Members and owners may change while the tool runs: nodes that are deleted before they are read are left out.

Differs from 1.0's tool: partitions without an owner are shown if they have an offset. A group that does not exist, or
cannot be deleted, is an error with exit code 1."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NamedTuple

from jesenska.base.errors import JesenskaError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.groups.group_tables import NOTHING, Column, table
from jesenska.cli.shared.tool import print_json
from jesenska.cli.shared.zookeeper_option import brokers_in, tree_at
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.metadata import paths
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import NoNodeError, NotEmptyError

_NOTE = (
    "Note: This will only show information about consumers that use ZooKeeper (not those using the Java consumer API)."
)
_COLUMNS = [
    Column("TOPIC", 30),
    Column("PARTITION", 10),
    Column("CURRENT-OFFSET", 15),
    Column("LOG-END-OFFSET", 15),
    Column("LAG", 10),
    Column("CONSUMER-ID", 50),
]


class _Row(NamedTuple):
    key: TopicPartition
    offset: int | None
    end: int | None
    owner: str | None

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end is None else self.end - self.offset


async def work(options: argparse.Namespace, action: str) -> int:
    """Runs one action of the tool and returns the exit code. Raises JesenskaError with one sentence if the action is
    not possible."""
    if action not in ("list", "describe", "delete"):
        raise JesenskaError(
            f"--{action} cannot be used with --zookeeper: name a broker with --bootstrap-server, which works for "
            "the groups that brokers coordinate."
        )
    async with tree_at(options.zookeeper) as store:
        groups = await _names(store, paths.CONSUMERS)
        if action == "list":
            return _list(groups, options)
        wanted = groups if options.all_groups else list(dict.fromkeys(options.group or ()))
        if action == "delete":
            return await _delete(store, groups, wanted, options)
        return await _describe(store, groups, wanted, options)


def _list(groups: Sequence[str], options: argparse.Namespace) -> int:
    if options.output == "json":
        print_json([{"group": name} for name in groups])
        return 0
    print(_NOTE + "\n", file=sys.stderr, flush=True)
    for name in groups:
        print(name)
    return 0


def _missing(group: str) -> None:
    print(f"\nError: Consumer group '{group}' does not exist in ZooKeeper.", file=sys.stderr)


async def _describe(store: Store, groups: Sequence[str], wanted: Sequence[str], options: argparse.Namespace) -> int:
    code = 0
    documents = []
    if options.output == "text":
        print(_NOTE + "\n", file=sys.stderr, flush=True)
    for group in wanted:
        if group not in groups:
            _missing(group)
            code = 1
            continue
        rows = await _rows(store, group, options.zookeeper)
        members = await _names(store, f"{paths.CONSUMERS}/{group}/ids")
        if options.output == "json":
            offsets = [
                {
                    "topic": row.key.topic,
                    "partition": row.key.partition,
                    "currentOffset": row.offset,
                    "logEndOffset": row.end,
                    "lag": row.lag,
                    "consumerId": row.owner,
                }
                for row in rows
            ]
            documents.append({"group": group, "members": members, "offsets": offsets})
            continue
        if not members:
            print(f"Consumer group '{group}' has no active members.", file=sys.stderr, flush=True)
        values = [
            [
                row.key.topic,
                row.key.partition,
                *(NOTHING if value is None else value for value in (row.offset, row.end, row.lag, row.owner)),
            ]
            for row in rows
        ]
        print("\n" + table(_COLUMNS, values), flush=True)
    if options.output == "json":
        print_json(documents)
    return code


async def _rows(store: Store, group: str, servers: str) -> list[_Row]:
    owners = await _leaves(store, f"{paths.CONSUMERS}/{group}/owners")
    offsets: dict[TopicPartition, int] = {}
    for key, text in (await _leaves(store, f"{paths.CONSUMERS}/{group}/offsets")).items():
        if text.isascii() and text.lstrip("-").isdigit():
            offsets[key] = int(text)
    keys = sorted(owners.keys() | offsets.keys())
    ends = await _ends(servers, keys) if keys else {}
    # A member has a thread for each of its streams. The owner's name in the node consists of the member's name and the
    # number of the thread.
    return [
        _Row(key, offsets.get(key), ends.get(key), owners[key].rpartition("-")[0] if key in owners else None)
        for key in keys
    ]


async def _ends(servers: str, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the log end offsets of the partitions that have a leader. Returns an empty dict if no broker is
    running."""
    try:
        cluster = Cluster(await brokers_in(servers))
    except JesenskaError as error:
        print(f"The ends of the logs are not known: {error}", file=sys.stderr)
        return {}
    try:
        led = []
        for name in sorted({key.topic for key in keys}):
            try:
                led += [item.topic_partition for item in (await cluster.topic(name)).partitions if item.leader >= 0]
            except UnknownTopicOrPartitionError:
                continue
        found = await list_offsets(cluster, dict.fromkeys(sorted(set(keys) & set(led)), LATEST))
        return {key: item.offset for key, item in found.items()}
    finally:
        await cluster.close()


async def _delete(store: Store, groups: Sequence[str], wanted: Sequence[str], options: argparse.Namespace) -> int:
    code = 0
    documents = []
    topics = options.topic or ()
    if topics and not wanted:
        wanted = groups
    for group in wanted:
        error = None
        if group not in groups:
            error = "group does not exist"
        elif await _names(store, f"{paths.CONSUMERS}/{group}/ids"):
            error = "its consumers are still active"
        elif topics:
            for topic in topics:
                for kind in ("owners", "offsets"):
                    await _delete_below(store, f"{paths.CONSUMERS}/{group}/{kind}/{topic}")
        else:
            await _delete_below(store, f"{paths.CONSUMERS}/{group}")
        documents.append({"group": group, "error": error})
        if error is not None:
            code = 1
            print(f"Delete for group '{group}' failed because {error}.", file=sys.stderr)
        elif options.output == "text":
            if topics:
                for topic in topics:
                    print(f"Deleted consumer group information for group '{group}' topic '{topic}' in zookeeper.")
            else:
                print(f"Deleted all consumer group information for group '{group}' in zookeeper.")
    if options.output == "json":
        print_json(documents)
    return code


async def _delete_below(store: Store, path: str) -> None:
    """Deletes a node and all nodes below it. Nodes that are created there during the deletion are also deleted."""
    while True:
        for name in await _names(store, path):
            await _delete_below(store, f"{path}/{name}")
        try:
            await store.delete(path)
        except NotEmptyError:
            continue
        except NoNodeError:
            pass
        return


async def _leaves(store: Store, directory: str) -> dict[TopicPartition, str]:
    """Returns the contents of the nodes TOPIC/PARTITION below the node `directory`."""
    found = {}
    for topic in await _names(store, directory):
        for name in await _names(store, f"{directory}/{topic}"):
            try:
                text = (await store.get(f"{directory}/{topic}/{name}"))[0].decode(errors="replace")
            except NoNodeError:
                continue
            if name.isascii() and name.isdigit():
                found[TopicPartition(topic, int(name))] = text
    return found


async def _names(store: Store, path: str) -> list[str]:
    try:
        return sorted((await store.children(path))[0])
    except NoNodeError:
        return []
