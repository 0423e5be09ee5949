"""`jesenska import`: turns a data directory of Apache Kafka into a data directory of a broker of jesenska, in place.

    jesenska import DIR --zookeeper 127.0.0.1:2181/kafka          the metadata from Kafka's ZooKeeper
    jesenska import DIR --zookeeper-data /var/lib/zookeeper       the metadata from the files of that ZooKeeper
    jesenska import DIR                                           KRaft mode: the metadata from the metadata log in DIR
    jesenska import DIR DIR2 ...                                  every directory of log.dirs, in their order

Kafka and jesenska use the same log files, so no data is copied and no second disk is needed. The import adds one file
with the metadata to the first directory; the file is written under another name and renamed. Segments with formats
from before Kafka 0.11 are rewritten. Kafka from 0.11 on can also read the rewritten segments. ZooKeeper is only read.
Until the broker is started, Kafka can still use the directory. After that `jesenska export` gives it back to Kafka.
The metadata log of a directory of KRaft mode is removed; an archive of it is stored (`interchange.raft.retirement`).

    exit 0    imported          1    refused, and nothing was changed: one sentence on stderr"""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial
from pathlib import Path

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.tool import Telling, id_of_broker, print_json, telling
from jesenska.interchange import journal_file
from jesenska.interchange.kafka_directories import KafkaDirectory, all_partitions, broker_of, cluster_of, locked
from jesenska.interchange.nodes import FoundTree
from jesenska.interchange.old_segments import convert_partition, has_old_formats
from jesenska.interchange.raft.retirement import ARCHIVE, remove_log, retire
from jesenska.interchange.takeover import Source, Takeover, Wishes, plan_takeover
from jesenska.interchange.zookeeper_files import read_data_directory
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.meta_properties import KRAFT_LOG
from jesenska.metadata.journal import METADATA_FILE
from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import BadArgumentsError


def add_import(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "directories",
        nargs="+",
        metavar="DIR",
        help="The directories of Kafka's log.dirs, in their order. Stop Kafka first.",
    )
    command.add_argument(
        "--zookeeper", metavar="HOST:PORT[,...][/PATH]", help="Kafka's ZooKeeper, as its zookeeper.connect names it."
    )
    command.add_argument(
        "--zookeeper-data",
        metavar="DIR",
        help="dataDir of Kafka's ZooKeeper, to read its files instead of asking it (--zookeeper). "
        "Stop ZooKeeper first.",
    )
    command.add_argument(
        "--zk-tls-config-file", metavar="FILE", help="Settings of TLS to ZooKeeper (zookeeper.ssl.*), with --zookeeper."
    )
    command.add_argument("--zookeeper-logs", metavar="DIR", help="Its dataLogDir, where it has one.")
    command.add_argument(
        "--chroot", metavar="/PATH", default="", help="With --zookeeper-data: the path that zookeeper.connect ends in."
    )
    command.add_argument(
        "--metadata", metavar="DIR", help="KRaft mode: the metadata.log.dir, where that is none of the others."
    )
    command.add_argument(
        "--broker-id",
        type=id_of_broker,
        metavar="N",
        help="The broker's id, where the directory does not say it (before 0.9).",
    )
    command.add_argument(
        "--only-this-broker",
        action="store_true",
        help="Of several brokers take this one alone: replicas on the others are dropped.",
    )
    command.add_argument(
        "--allow-missing", action="store_true", help="Have partitions begin empty that the directories do not hold."
    )
    command.add_argument("--dry-run", action="store_true", help="Say what would be imported, and change nothing.")


def import_directories(options: argparse.Namespace) -> int:
    files = FileLayer()
    telling_of = Telling()
    with locked([Path(name) for name in options.directories], files) as directories:
        raft = [item for item in directories if _is_raft(item)]
        if not raft:
            if (left := _unfinished(directories)) and not options.dry_run:
                for path in left:
                    remove_log(path, files)
                _tell_finished(options, left)
                return 0
            _refuse_imported(directories)
        broker_id = broker_of(directories, options.broker_id)
        tree, source, notes = _found(options, directories, broker_id, telling_of)
        plan = plan_takeover(tree, source, Wishes(options.only_this_broker, options.allow_missing))
        plan.notes.extend(notes)
        old = _partitions_of_old_formats(directories, telling_of)
        converted = 0
        if not options.dry_run:
            converted = sum(convert_partition(path, files, Counter(telling_of, path.name)) for path in old)
            journal_file.write_tree(directories[0].path, plan.nodes, plan.last_zxid, SystemClock().now_ms(), files)
            # The metadata log is removed last: until then the import can be repeated.
            for item in sorted(raft, key=lambda item: (item.path / KRAFT_LOG).exists()):
                retire(item.path, plan.cluster_id or "", broker_id, files)
    says_whose = directories[0].properties is not None and directories[0].properties.broker_id is not None
    start = _how_to_start(options.directories, None if says_whose else broker_id)
    _tell(options, plan, broker_id, converted, len(old), start)
    return 0


def _is_raft(directory: KafkaDirectory) -> bool:
    return directory.properties is not None and directory.properties.version != 0


def _unfinished(directories: list[KafkaDirectory]) -> list[Path]:
    """Returns the directories in which an earlier import of a KRaft node was interrupted after everything was done
    except the removal of the metadata log."""
    return [item.path for item in directories if (item.path / KRAFT_LOG).exists() and (item.path / ARCHIVE).exists()]


def _tell_finished(options: argparse.Namespace, left: list[Path]) -> None:
    if options.output == "json":
        print_json({"directories": options.directories, "finished": [str(path) for path in left]})
    else:
        print(f"The import that was interrupted in {', '.join(map(str, left))} is finished now.")


def _refuse_imported(directories: list[KafkaDirectory]) -> None:
    for directory in directories:
        if journal_file.has_tree(directory.path):
            raise JesenskaError(
                f"{directory.path} already has the metadata of a broker of jesenska ({METADATA_FILE}): start that "
                "broker, or move the file away to import again."
            )


def _found(
    options: argparse.Namespace, directories: list[KafkaDirectory], broker_id: int, telling_of: Telling
) -> tuple[FoundTree, Source, list[str]]:
    """Returns three values: the cluster's metadata tree (ZooKeeper's nodes), a description of the data that will be
    taken over, and notes about the metadata for the operator."""
    cluster_id, partitions = cluster_of(directories), all_partitions(directories)
    if any(_is_raft(item) for item in directories):
        if options.zookeeper or options.zookeeper_data:
            raise JesenskaError(
                f"{directories[0].path} is of KRaft mode, so its metadata are not in ZooKeeper: leave --zookeeper "
                "and --zookeeper-data out."
            )
        tree, where, notes = _from_raft(options, directories, cluster_id or "", telling_of)
        return (
            tree,
            Source(where, broker_id, cluster_id, partitions, beside_others="move the partitions to one broker first"),
            notes,
        )
    if options.metadata:
        raise JesenskaError(
            f"--metadata is only for KRaft mode, but {directories[0].path} is of ZooKeeper mode: give --zookeeper "
            "in place of --metadata."
        )
    tree, where = _tree(options, telling_of)
    return tree, Source(where, broker_id, cluster_id, partitions), []


def _from_raft(
    options: argparse.Namespace, directories: list[KafkaDirectory], cluster_id: str, telling_of: Telling
) -> tuple[FoundTree, str, list[str]]:
    from jesenska.interchange.raft.image import RaftImage
    from jesenska.interchange.raft.log import RaftLog

    places = [Path(options.metadata)] if options.metadata else [item.path for item in directories]
    logs = [path / KRAFT_LOG for path in places if (path / KRAFT_LOG).is_dir()]
    if len(logs) != 1:
        what = "No directory holds" if not logs else "Several directories hold"
        raise JesenskaError(
            f"{what} {KRAFT_LOG}, the metadata log: name the directory of Kafka's setting metadata.log.dir with "
            "--metadata."
        )
    log = RaftLog(logs[0], telling_of.tell)
    image = RaftImage().take_all(log.records())
    nodes = image.nodes(cluster_id, max(log.epoch, 1))
    notes = list(image.notes)
    if log.voters > 1:
        notes.append(
            f"{log.voters} controllers vote: the last records of this metadata log may not be in the logs of the "
            "others."
        )
    return FoundTree(nodes, log.end_offset), f"The metadata log in {logs[0].parent}", notes


def _tree(options: argparse.Namespace, telling_of: Telling) -> tuple[FoundTree, str]:
    """Returns the metadata tree of a ZooKeeper, and the name of this ZooKeeper for messages."""
    if options.zookeeper and options.zookeeper_data:
        raise JesenskaError("--zookeeper and --zookeeper-data were both given: give only one of them.")
    if options.zookeeper_data:
        chroot = str(options.chroot).rstrip("/")
        if chroot:
            try:
                check_path(chroot)
            except BadArgumentsError as error:
                raise JesenskaError(
                    f"--chroot {chroot} is not a path ({error.reason}): write it as in zookeeper.connect, such as "
                    "/kafka."
                ) from error
        logs = Path(options.zookeeper_logs) if options.zookeeper_logs else None
        tree = read_data_directory(Path(options.zookeeper_data), logs, chroot, telling_of.tell)
        return tree, f"The ZooKeeper in {options.zookeeper_data}{f' ({chroot})' if chroot else ''}"
    if options.chroot or options.zookeeper_logs:
        raise JesenskaError(
            "--chroot and --zookeeper-logs belong to --zookeeper-data; with --zookeeper write the path after the "
            "servers."
        )
    if not options.zookeeper:
        raise JesenskaError(
            "It is not known where the metadata are: give Kafka's ZooKeeper with --zookeeper host:port, or its "
            "files with --zookeeper-data."
        )
    return asyncio.run(
        _from_zookeeper(options.zookeeper, telling_of, options.zk_tls_config_file)
    ), f"The ZooKeeper at {options.zookeeper}"


async def _from_zookeeper(servers: str, telling_of: Telling, tls_config_file: str | None) -> FoundTree:
    from jesenska.cli.shared.zookeeper_option import access_of, tree_at
    from jesenska.interchange.zookeeper_copy import read_store

    async with telling("Reading from ZooKeeper"), tree_at(servers, access=access_of(tls_config_file)) as store:
        return await read_store(store, telling_of.tell)


def _partitions_of_old_formats(directories: list[KafkaDirectory], telling_of: Telling) -> list[Path]:
    found = []
    for directory in directories:
        for number, at in enumerate(sorted(directory.partitions)):
            print_progress = partial(
                telling_of.tell, f"{directory.path}: {number} of {len(directory.partitions)} partitions looked at"
            )
            path = directory.path / str(at)
            if has_old_formats(path, print_progress):
                found.append(path)
        if found and found[-1].parent == directory.path and not directory.was_clean:
            raise JesenskaError(
                f"{directory.path} was not shut down cleanly, and {found[-1].name} has a format from before 0.11, "
                "which must be rewritten: start Kafka with it once more, stop Kafka, then import."
            )
    return found


def _tell(options: argparse.Namespace, plan: Takeover, broker_id: int, converted: int, old: int, start: str) -> None:
    if options.output == "json":
        print_json(
            {
                "directories": options.directories,
                "brokerId": broker_id,
                "clusterId": plan.cluster_id,
                "topics": plan.topics,
                "partitions": plan.partitions,
                "segmentsConverted": converted,
                "notes": plan.notes,
                "dryRun": options.dry_run,
                "start": start,
            }
        )
        return
    for note in plan.notes:
        print(note, file=sys.stderr)
    what = (
        f"broker {broker_id} of cluster {plan.cluster_id or 'without an id'}: {plan.topics} topics with "
        f"{plan.partitions} partitions"
    )
    if options.dry_run:
        print(f"Would import {what}; {old} partitions have segments of a format from before 0.11. Nothing was changed.")
        return
    print(
        f"Imported {what}."
        + (f" {converted} segments of a format from before 0.11 were written anew." if converted else "")
    )
    print(f"\n  {start}")


def _how_to_start(directories: list[str], broker_id: int | None) -> str:
    """Returns the command that starts the broker. The command contains the broker's id if the directory does not
    contain it."""
    where = f"--data {directories[0]}" if len(directories) == 1 else f"--override log.dirs={','.join(directories)}"
    return f"jesenska up {where}" + ("" if broker_id is None else f" --override broker.id={broker_id}")


class Counter:
    """Adds up the number of bytes of one partition that have been processed."""

    def __init__(self, telling_of: Telling, name: str) -> None:
        self._telling, self._name, self._bytes = telling_of, name, 0

    def __call__(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._telling.tell(f"{self._name}: {self._bytes} bytes written anew")
