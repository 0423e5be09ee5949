"""`jesenska export`: writes the metadata of a broker into a ZooKeeper, so that Apache Kafka (up to 3.9, in ZooKeeper
mode) can use its data directory.

jesenska export DIR --zookeeper 127.0.0.1:2181/kafka

DIR is the first directory of log.dirs, and its broker must be stopped. The logs already have Kafka's format. After
everything is written, the file with the metadata is renamed (to jesenska-metadata.db.exported), so that a broker does
not start with outdated metadata. With --keep the file is not renamed.

    exit 0    exported          1    refused or failed: one sentence on stderr; running it again continues"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.tool import Telling, print_json, telling
from jesenska.cli.shared.zookeeper_option import access_of, add_tls_config_file, protected_by, tree_at
from jesenska.interchange import journal_file
from jesenska.interchange.handover import plan_handover
from jesenska.interchange.kafka_directories import broker_of, locked
from jesenska.interchange.nodes import FoundTree, Node, children
from jesenska.interchange.zookeeper_copy import changes, make_path, read_store, write_store
from jesenska.log.disk.files import FileLayer
from jesenska.metadata import paths
from jesenska.metadata.journal import EXPORTED_FILE
from jesenska.metadata.store import ChrootStore
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.connect_string import ConnectString


def add_export(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "directory", metavar="DIR", help="The broker's directory (the first of log.dirs); the broker is stopped."
    )
    command.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        required=True,
        help="Where Kafka's zookeeper.connect will point; a path is made where it is missing.",
    )
    command.add_argument(
        "--replace", action="store_true", help="Write over this cluster's metadata that are there already."
    )
    command.add_argument(
        "--keep", action="store_true", help="Leave the metadata in the directory, too: for a trial on a copy."
    )
    add_tls_config_file(command)
    command.add_argument("--dry-run", action="store_true", help="Say how much would be written, and change nothing.")


def export_directory(options: argparse.Namespace) -> int:
    files = FileLayer()
    path = Path(options.directory)
    with locked([path], files) as directories:
        nodes = journal_file.read_tree(path)
        broker_id = broker_of(directories, None)
        written = asyncio.run(
            write_into(
                options.zookeeper,
                nodes,
                replace=options.replace,
                dry_run=options.dry_run,
                access=access_of(options.zk_tls_config_file),
            )
        )
        if not options.keep and not options.dry_run:
            journal_file.mark_exported(path, files)
    topics = len(children(nodes, paths.TOPICS))
    settings = {"broker.id": str(broker_id), "log.dirs": options.directory, "zookeeper.connect": options.zookeeper}
    if options.output == "json":
        print_json(
            {
                "directory": options.directory,
                "topics": topics,
                "nodesChanged": written,
                "dryRun": options.dry_run,
                "settings": settings,
            }
        )
        return 0
    if options.dry_run:
        print(f"Would change {written} nodes at {options.zookeeper} for {topics} topics. Nothing was changed.")
        return 0
    print(f"Exported {topics} topics to {options.zookeeper} ({written} nodes). Kafka's server.properties needs:\n")
    print("\n".join(f"  {name}={value}" for name, value in settings.items()))
    if not options.keep:
        print(
            f"\n{path / EXPORTED_FILE} is the broker's copy of the metadata; it is not read any more.", file=sys.stderr
        )
    return 0


async def write_into(
    zookeeper: str,
    nodes: Mapping[str, Node],
    *,
    replace: bool = False,
    dry_run: bool = False,
    access: TreeAccess | None = None,
) -> int:
    """Writes a cluster's nodes into a ZooKeeper. `zookeeper` has the form of the flag --zookeeper. Returns the number
    of new, changed and deleted nodes. If `replace` is True, existing nodes of this cluster are overwritten. Raises
    JesenskaError with one sentence if the nodes may not be written."""
    access = access or access_of()
    try:
        where = ConnectString.parse(zookeeper)
    except ValueError as error:
        raise JesenskaError(str(error)) from error
    servers = zookeeper.partition("/")[0]
    progress = Telling()
    async with (
        telling("Writing to ZooKeeper"),
        tree_at(servers, any_release=True, access=access, protects=False) as root,
    ):
        store = protected_by(access, ChrootStore(root, where.chroot) if where.chroot else root)
        is_new = bool(where.chroot) and await root.exists(where.chroot) is None
        there = FoundTree({}) if is_new else await read_store(store, progress.tell)
        wanted = plan_handover(nodes, there, f"The ZooKeeper at {zookeeper}", replace=replace)
        count = len(changes(there.nodes, wanted))
        if dry_run:
            return count
        if where.chroot:
            await make_path(protected_by(access, root), where.chroot)
        await write_store(store, there.nodes, wanted, progress.tell)
        return count
