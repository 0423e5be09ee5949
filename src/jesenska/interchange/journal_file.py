"""Reads and writes the file of a broker's own metadata tree as a whole. The file is written under another name and
then renamed. So after a crash the directory contains no such file, or a complete file.

    jesenska-metadata.db.new        the file while it is written; the next writer removes it
    jesenska-metadata.db            the tree (metadata.journal)
    jesenska-metadata.db.exported   the tree of a directory that was exported to Apache Kafka; not opened"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.interchange.nodes import FoundTree, Node, below
from jesenska.log.disk.files import FileLayer
from jesenska.metadata.journal import EXPORTED_FILE, METADATA_FILE, JournalError, SqliteJournal
from jesenska.metadata.tree_operations import OPEN_ACL, Change, DataSet, NodeCreated, Transaction

_NEW = ".new"
#: The highest transaction number (zxid) with which a new tree may begin. A larger number in the old tree is ignored.
_ZXID_MAX = 1 << 62


def has_tree(directory: Path) -> bool:
    """Returns true if the directory contains the file of a broker's own metadata tree."""
    return (directory / METADATA_FILE).exists()


def write_tree(directory: Path, nodes: Mapping[str, Node], last_zxid: int, now_ms: int, files: FileLayer) -> None:
    """Writes the metadata tree's file into a broker's directory. Raises JesenskaError if the file cannot be
    written."""
    write_tree_file(directory / METADATA_FILE, nodes, last_zxid, now_ms, files)


def write_tree_file(target: Path, nodes: Mapping[str, Node], last_zxid: int, now_ms: int, files: FileLayer) -> None:
    """Writes a metadata tree into the file `target`. Raises JesenskaError if the file cannot be written."""
    directory, new = target.parent, target.with_name(target.name + _NEW)
    _remove(new)
    changes: list[Change] = []
    for path in sorted(nodes):
        node = nodes[path]
        changes.append(NodeCreated(path, node.data, OPEN_ACL, 0))
        if node.version:
            changes.append(DataSet(path, node.data, node.version))
    try:
        journal, _ = SqliteJournal.open(new)
        try:
            journal.commit([Transaction(min(max(last_zxid, 1), _ZXID_MAX), now_ms, tuple(changes))])
        finally:
            journal.close()
        descriptor = files.open(new, 0)
        try:
            files.fsync(descriptor)
        finally:
            files.close(descriptor)
        files.rename(new, target)
        files.fsync_directory(directory)
    except JournalError as error:
        _remove(new)
        raise JesenskaError(str(error)) from error
    except OSError as error:
        _remove(new)
        raise JesenskaError(
            f"The metadata cannot be written in {directory} ({error.strerror}): make room, or correct its permissions."
        ) from error


def read_tree(directory: Path) -> dict[str, Node]:
    """Returns the nodes of the metadata tree in this directory, without ephemeral nodes. Raises JesenskaError if the
    directory has no tree."""
    path = directory / METADATA_FILE
    if not path.exists():
        hint = (
            "it was exported already"
            if (directory / EXPORTED_FILE).exists()
            else "name the first directory of log.dirs"
        )
        raise JesenskaError(f"{directory} holds no metadata of a broker ({METADATA_FILE}): {hint}.")
    return dict(read_tree_file(path).nodes)


def read_tree_file(path: Path, chroot: str = "") -> FoundTree:
    """Returns the metadata tree in an existing file, without ephemeral nodes. Only the nodes below `chroot` are
    returned, with paths relative to `chroot`. Raises JesenskaError if the file does not contain a tree."""
    try:
        journal, tree = SqliteJournal.open(path)
        journal.close()
    except JournalError as error:
        raise JesenskaError(str(error)) from error
    nodes = {at: Node(node.data, node.version) for at, node in tree.walk() if not node.ephemeral_owner}
    return FoundTree(below(nodes, chroot), tree.last_zxid)


def mark_exported(directory: Path, files: FileLayer) -> None:
    """Renames the metadata tree's file after an export, so that jesenska does not open it: Apache Kafka uses the
    directory from now on."""
    files.rename(directory / METADATA_FILE, directory / EXPORTED_FILE)
    files.fsync_directory(directory)


def _remove(new: Path) -> None:
    for path in (new, new.with_name(new.name + "-wal"), new.with_name(new.name + "-shm")):
        with suppress(FileNotFoundError):
            path.unlink()
