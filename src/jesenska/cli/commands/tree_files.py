"""`jesenska tree`: copies the metadata tree of a cluster (topics, settings, leaders, and everything else in its
ZooKeeper), restores the tree, and rebuilds it if it is lost.

    jesenska tree backup FILE --data data                  copies the tree of `jesenska up -n N`, or of the
                                                           dataDir of zookeeper-server-start; it may be running
    jesenska tree backup FILE --zookeeper HOST:PORT/PATH   copies the tree of any running ZooKeeper
    jesenska tree restore FILE --data data                 into a directory whose tree is lost
    jesenska tree restore FILE --zookeeper HOST:PORT/PATH  into a ZooKeeper without a cluster at this path
    jesenska tree inventory DIR... > broker-1.json         the contents of one broker's directories, on its machine
    jesenska tree rebuild broker-1.json ... --data data    a tree from the inventories of all brokers, or from their
                                                           directories; --backup FILE adds facts that these lack.
                                                           With --data, --chroot /kafka is the path that the brokers'
                                                           zookeeper.connect ends in

A backup is a file in the format of jesenska's trees. It contains all nodes as they are at one moment, except ephemeral
nodes (running brokers, the controller). A restored tree has the leaders and ISRs of the backup. If brokers have run
since the backup was made, use `rebuild --backup`: it finds the newest replicas from the logs. In both cases new epochs
and producer ids are far above those in the backup and the logs. Brokers must be stopped for inventory, restore and
rebuild.

    exit 0    done          1    refused, and nothing was changed: one sentence on stderr"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import random_uuid
from jesenska.cli.commands.exporting import write_into
from jesenska.cli.shared.several_directories import brokers_with_data, held_directory, tree_directory
from jesenska.cli.shared.stopping import lock_holder
from jesenska.cli.shared.tool import Command, Telling, add_output, print_json, telling
from jesenska.cli.shared.tree_login import login_file_of
from jesenska.cli.shared.tree_serving import ADDRESS_FILE
from jesenska.cli.shared.zookeeper_option import access_of, add_tls_config_file, tree_at
from jesenska.interchange import inventory as inventories
from jesenska.interchange.directory_inventory import take
from jesenska.interchange.inventory import Inventory
from jesenska.interchange.journal_file import has_tree, read_tree_file, write_tree, write_tree_file
from jesenska.interchange.kafka_directories import broker_of, locked
from jesenska.interchange.nodes import FoundTree, Node, children
from jesenska.interchange.rebuilding import Rebuilt, raised, rebuild
from jesenska.interchange.takeover import is_left_out
from jesenska.interchange.zookeeper_copy import read_store
from jesenska.log.disk.files import FileLayer
from jesenska.metadata import paths
from jesenska.metadata.journal import METADATA_FILE
from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import BadArgumentsError
from jesenska.metadata.zookeeper.client.access import TreeAccess

_INVENTORY_BYTES_MAX = 1 << 30


def add_tree(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Command)
    backup = actions.add_parser("backup", help="Copy a tree into a file, also while it is at work.", allow_abbrev=False)
    backup.add_argument("file", metavar="FILE", help="The file to make.")
    _add_place(backup, "Where the tree is")
    restore = actions.add_parser("restore", help="Put a backup where there is no tree.", allow_abbrev=False)
    restore.add_argument("file", metavar="FILE", help="A file of jesenska tree backup.")
    _add_place(restore, "Where the tree is to be")
    inventory = actions.add_parser(
        "inventory", help="Print what the directories of one broker hold, for a rebuild elsewhere.", allow_abbrev=False
    )
    inventory.add_argument(
        "directories", nargs="+", metavar="DIR", help="All directories of log.dirs; the broker is stopped."
    )
    rebuilding = actions.add_parser(
        "rebuild", help="Build a tree from what the brokers hold, where it is lost.", allow_abbrev=False
    )
    rebuilding.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="Directories of brokers, or files of jesenska tree inventory: those of all brokers.",
    )
    rebuilding.add_argument(
        "--data", metavar="DIR", required=True, help="Where the tree is to be: the --data of jesenska up, or a dataDir."
    )
    _add_chroot(rebuilding)
    rebuilding.add_argument(
        "--backup",
        metavar="FILE",
        help="A backup of the tree: settings, users, quotas and the order of replicas come from it.",
    )
    rebuilding.add_argument(
        "--allow-missing", action="store_true", help="Have partitions begin empty that no directory holds."
    )
    rebuilding.add_argument("--dry-run", action="store_true", help="Say what would be built, and write nothing.")
    for action, work in ((backup, _backup), (restore, _restore), (inventory, _inventory), (rebuilding, _rebuild)):
        action.set_defaults(act=work)
        action.add_argument("--debug", action="store_true", help="Show the stack behind an error.")
        if action is not inventory:
            add_output(action)


def _add_place(parser: argparse.ArgumentParser, what: str) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--data", metavar="DIR", help=f"{what}: the --data of jesenska up, or the dataDir of zookeeper-server-start."
    )
    place.add_argument(
        "--zookeeper",
        metavar="HOST:PORT[,...][/PATH]",
        help=f"{what}: a ZooKeeper that runs, as zookeeper.connect names it.",
    )
    add_tls_config_file(parser)
    _add_chroot(parser)


def _add_chroot(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--chroot",
        metavar="/PATH",
        default="",
        help="With --data: the path that the brokers' zookeeper.connect ends in.",
    )


def _chroot(options: argparse.Namespace) -> str:
    """Returns the path of --chroot without a slash at its end. Raises JesenskaError if it is not valid."""
    chroot = str(options.chroot).rstrip("/")
    if chroot and options.data is None:
        raise JesenskaError("--chroot belongs to --data; with --zookeeper write the path after the servers.")
    if chroot:
        try:
            check_path(chroot)
        except BadArgumentsError as error:
            raise JesenskaError(
                f"--chroot {chroot} is not a path ({error.reason}): write it as in zookeeper.connect, such as /kafka."
            ) from error
    return chroot


def tree(options: argparse.Namespace) -> int:
    act: int = options.act(options)
    return act


def _directory(data: str) -> Path:
    """Returns the directory of the metadata tree for a --data directory."""
    path = Path(data)
    return tree_directory(path) if brokers_with_data(path) or tree_directory(path).is_dir() else path


# --- backup ----------------------------------------------------------------------------------------------------------


def _backup(options: argparse.Namespace) -> int:
    target = Path(options.file)
    if target.exists():
        raise JesenskaError(f"{target} is there already: name another file, or move it away.")
    if not target.parent.is_dir():
        raise JesenskaError(
            f"There is no directory {target.parent}: make this directory, or name a file in another directory."
        )
    found, where = _found(options)
    if paths.CLUSTER_ID not in found.nodes:
        raise JesenskaError(f"{where} holds no cluster: correct the directory or the path (--chroot with --data).")
    kept = {path: node for path, node in found.nodes.items() if not is_left_out(path)}
    write_tree_file(target, kept, found.last_zxid, SystemClock().now_ms(), FileLayer())
    topics = len(children(kept, paths.TOPICS))
    if options.output == "json":
        print_json({"file": str(target), "topics": topics, "nodes": len(kept)})
    else:
        print(f"{target} has the tree of {where}: {topics} topics, {len(kept)} nodes.")
    return 0


def _found(options: argparse.Namespace) -> tuple[FoundTree, str]:
    """Returns the metadata tree to copy, and the name of the tree for messages."""
    if options.zookeeper is not None:
        _chroot(options)
        return asyncio.run(_read(options.zookeeper, access_of(options.zk_tls_config_file))), options.zookeeper
    directory = _directory(options.data)
    chroot = _chroot(options)
    if not has_tree(directory):
        raise JesenskaError(
            f"{directory} holds no tree ({METADATA_FILE}): name the --data of jesenska up, or a dataDir."
        )
    if lock_holder(directory) is not None:
        try:
            address = (directory / ADDRESS_FILE).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise JesenskaError(
                f"{directory} is in use by a broker that keeps its tree in its own process: stop the broker, or "
                "start it with --zookeeper-port and give that port with --zookeeper."
            ) from None
        access = access_of(login_file=login_file_of(directory))
        return asyncio.run(_read(address + chroot, access)), str(directory) + _shown_path(chroot)
    with held_directory(directory):
        return read_tree_file(directory / METADATA_FILE, chroot), str(directory) + _shown_path(chroot)


def _shown_path(chroot: str) -> str:
    return f" (below {chroot})" if chroot else ""


async def _read(servers: str, access: TreeAccess) -> FoundTree:
    progress = Telling()
    async with telling("Reading the tree"), tree_at(servers, any_release=True, access=access) as store:
        return await read_store(store, progress.tell)


# --- restore ---------------------------------------------------------------------------------------------------------


def _restore(options: argparse.Namespace) -> int:
    nodes = _read_backup(Path(options.file))
    kept = FoundTree(
        raised({path: node for path, node in nodes.nodes.items() if not is_left_out(path)}), nodes.last_zxid
    )
    topics = len(children(kept.nodes, paths.TOPICS))
    chroot = _chroot(options)
    if options.zookeeper is not None:
        asyncio.run(write_into(options.zookeeper, kept.nodes, access=access_of(options.zk_tls_config_file)))
        where = options.zookeeper
    else:
        directory = _directory(options.data)
        _put(directory, kept, chroot)
        where = str(directory) + _shown_path(chroot)
    if options.output == "json":
        print_json({"where": where, "topics": topics, "nodes": len(kept.nodes)})
    else:
        print(f"{where} has the tree of {options.file}: {topics} topics.")
        print(
            "Have its brokers worked since the backup was made? Then take it away again, and use jesenska tree "
            "rebuild --backup.",
            file=sys.stderr,
        )
    return 0


def _read_backup(path: Path) -> FoundTree:
    if not path.is_file():
        raise JesenskaError(f"There is no file {path}: name one that jesenska tree backup has made.")
    # A copy of the file is opened, because SQLite writes files beside the database file, and the directory of the
    # backup may be read-only.
    with tempfile.TemporaryDirectory(prefix="jesenska-backup-") as aside:
        copy = Path(aside) / path.name
        try:
            shutil.copyfile(path, copy)
            found = read_tree_file(copy)
        except OSError as error:
            raise JesenskaError(
                f"The backup {path} cannot be read ({error.strerror}): correct its permissions, or make room."
            ) from error
        except JesenskaError as error:
            raise JesenskaError(
                f"{path} is not a backup of a tree, or is damaged: name a file that jesenska tree backup has made."
            ) from error
    if paths.CLUSTER_ID not in found.nodes:
        raise JesenskaError(f"The backup {path} holds no cluster: name another one.")
    return found


def _put(directory: Path, found: FoundTree, chroot: str) -> None:
    """Writes a metadata tree into a directory that contains no tree."""
    steps = chroot.strip("/").split("/") if chroot else []
    nodes = {"/" + "/".join(steps[: count + 1]): Node(None) for count in range(len(steps))}
    nodes |= {chroot + path: node for path, node in found.nodes.items()}
    with held_directory(directory):
        if has_tree(directory) and (directory / METADATA_FILE).stat().st_size:
            raise JesenskaError(
                f"{directory} has a tree already ({METADATA_FILE}): move that file away if it is not wanted any more."
            )
        write_tree(directory, nodes, found.last_zxid, SystemClock().now_ms(), FileLayer())


# --- inventory, rebuild ----------------------------------------------------------------------------------------------


def _inventory(options: argparse.Namespace) -> int:
    print(inventories.encode(_taken([Path(name) for name in options.directories])), end="")
    return 0


def _taken(directories: Sequence[Path]) -> Inventory:
    """Locks the directories of one broker, and returns the inventory of these directories."""
    files = FileLayer()
    progress = Telling()
    with locked(directories, files) as held:
        return take(held, files, progress.tell)


def _rebuild(options: argparse.Namespace) -> int:
    chroot = _chroot(options)
    base = None if options.backup is None else _read_backup(Path(options.backup))
    sources = [Path(name) for name in options.sources]
    directories = [path for path in sources if path.is_dir()]
    files = [path for path in sources if not path.is_dir()]
    known = [_read_inventory(path) for path in files]
    known += [
        _taken([path for _, path in group])
        for _, group in groupby(sorted((_owner(path), path) for path in directories), key=lambda pair: pair[0])
    ]
    built = rebuild(
        known, random_uuid, backup=None if base is None else base.nodes, allow_missing=options.allow_missing
    )
    directory = _directory(options.data)
    if not options.dry_run:
        _put(directory, FoundTree(built.nodes, 0 if base is None else base.last_zxid), chroot)
    _tell(options, built, sorted(item.broker_id for item in known), directory)
    return 0


def _owner(directory: Path) -> int:
    """Returns the id of the broker that owns the directory. The caller uses the id to group the directories of a
    broker."""
    with locked([directory], FileLayer()) as found:
        return broker_of(found, None)


def _read_inventory(path: Path) -> Inventory:
    try:
        if path.stat().st_size > _INVENTORY_BYTES_MAX:
            raise JesenskaError(f"{path} is too long for an inventory: make one with jesenska tree inventory.")
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise JesenskaError(
            f"There is nothing at {path}: name a broker's directory, or a file of jesenska tree inventory."
        ) from error
    except OSError as error:
        raise JesenskaError(f"{path} cannot be read ({error.strerror}): correct its permissions.") from error
    return inventories.decode(text, str(path))


def _tell(options: argparse.Namespace, built: Rebuilt, brokers: Sequence[int], directory: Path) -> None:
    if options.output == "json":
        print_json(
            {
                "directory": str(directory),
                "topics": built.topics,
                "partitions": built.partitions,
                "brokers": list(brokers),
                "notes": built.notes,
                "dryRun": options.dry_run,
            }
        )
        return
    for note in built.notes:
        print(f"jesenska: {note}", file=sys.stderr)
    who = f"broker {brokers[0]}" if len(brokers) == 1 else f"brokers {', '.join(map(str, brokers))}"
    done = "Would build" if options.dry_run else "Built"
    print(
        f"{done} the tree in {directory} from what {who} {'has' if len(brokers) == 1 else 'have'}: {built.topics} "
        f"topics, {built.partitions} partitions."
    )
