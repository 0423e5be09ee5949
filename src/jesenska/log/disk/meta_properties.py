"""The file `meta.properties`, which names the cluster and the broker that own the data of a log directory. A broker in
ZooKeeper mode writes version 0:

    #
    #Sat Nov 21 02:23:07 UTC 2026
    broker.id=0
    version=0
    cluster.id=BkqKvcOWQuuOhwNvbYx_og

Version 1 (`node.id`, `directory.id`) marks the data of a KRaft node, which keeps its topics in `__cluster_metadata-0`.
Such data are refused: this broker does not know the topics and would treat every partition as unknown. `jesenska
import` converts the data to version 0. The file is written once, and replaced as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.config.properties import PropertiesError, parse_properties
from jesenska.log.disk.files import FileLayer

FILE_NAME = "meta.properties"
KRAFT_LOG = "__cluster_metadata-0"
#: Fields that name the owner. A file written by any release of Kafka has at least one of them.
_SAYS_WHOSE = ("broker.id", "node.id", "cluster.id")


class ForeignDataError(JesenskaError):
    """Raised if the data in a log directory belong to another cluster, to another broker, or to a KRaft node. The
    message is one sentence."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    version: int
    cluster_id: str | None
    broker_id: int | None
    directory_id: str | None = None


def read_meta_properties(directory: Path, files: FileLayer) -> MetaProperties | None:
    """Returns the content of the directory's meta.properties; None if there is no such file. Raises ForeignDataError
    if the content is not valid."""
    path = directory / FILE_NAME
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return None
    try:
        fields = {name: value.strip() for name, value in parse_properties(data).items()}
        version = _number("version", fields.get("version", "0"))
        number = fields.get("broker.id", fields.get("node.id"))
        broker_id = None if number is None else _number("broker.id", number)
        if fields and not any(name in fields for name in _SAYS_WHOSE):
            raise ValueError(f"it has none of {', '.join(_SAYS_WHOSE)}")
        if fields.get("cluster.id") == "":
            raise ValueError("cluster.id is empty")
    except (ValueError, PropertiesError) as error:
        raise ForeignDataError(
            f"The file {path} cannot be read ({str(error).rstrip('.')}); restore it from a backup, or remove it if "
            f"the data are yours."
        ) from error
    return MetaProperties(version, fields.get("cluster.id"), broker_id, fields.get("directory.id"))


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ValueError(f"{name}={text[:40]!r} is not a number")
    return int(text)


def refuse_raft_data(directory: Path, found: MetaProperties | None) -> None:
    """Raises ForeignDataError if the directory has the data of a KRaft node."""
    if (found is not None and found.version != 0) or (directory / KRAFT_LOG).is_dir():
        raise ForeignDataError(
            f"The log directory {directory} holds data of a Kafka node in KRaft mode, which this broker cannot serve "
            f"as they are: "
            f"give it to jesenska import first, or name another directory in log.dirs."
        )


def check_meta_properties(directory: Path, found: MetaProperties | None, cluster_id: str, broker_id: int) -> None:
    """Checks that the data belong to this broker and this cluster, or have no owner yet. Raises ForeignDataError
    otherwise."""
    refuse_raft_data(directory, found)
    if found is None:
        return
    if found.cluster_id is not None and found.cluster_id != cluster_id:
        raise ForeignDataError(
            f"The log directory {directory} belongs to cluster {found.cluster_id}, but this broker is of cluster "
            f"{cluster_id}: correct zookeeper.connect if it names the wrong tree, or name another directory in "
            "log.dirs."
        )
    if found.broker_id is not None and found.broker_id != broker_id:
        raise ForeignDataError(
            f"The log directory {directory} belongs to broker {found.broker_id}, but this broker's id is {broker_id}: "
            f"name another directory in log.dirs, or set broker.id={found.broker_id}."
        )


def refuse_empty_tree(directories: Iterable[tuple[Path, MetaProperties | None]], tree: str, *, is_own: bool) -> None:
    """Checks the log directories if the metadata tree has no cluster id yet. Raises ForeignDataError if a directory
    has a cluster id, because the broker would begin a second cluster on the data of the first cluster. If the tree is
    the broker's own (`is_own`), a directory without partitions is allowed."""
    for directory, found in directories:
        if found is not None and found.cluster_id is not None and not (is_own and partition_in(directory) is None):
            raise ForeignDataError(
                f"The log directory {directory} belongs to cluster {found.cluster_id}, but {tree} knows no cluster: "
                f"correct the tree's address, "
                "rebuild a lost tree (jesenska tree rebuild), or name empty directories in log.dirs to "
                "begin another cluster."
            )


def partition_in(directory: Path) -> str | None:
    """Returns the name of a partition in a log directory. Returns None if there is no partition, or if the directory
    cannot be read."""
    try:
        return next(
            (
                path.name
                for path in sorted(directory.iterdir())
                if TopicPartition.of_directory(path.name) is not None and path.is_dir()
            ),
            None,
        )
    except OSError:
        return None


def write_meta_properties(directory: Path, cluster_id: str, broker_id: int, files: FileLayer) -> None:
    """Writes meta.properties in version 0, with the fields that a broker in ZooKeeper mode writes."""
    files.replace_file(
        directory / FILE_NAME, f"#\nbroker.id={broker_id}\nversion=0\ncluster.id={cluster_id}\n".encode("ascii")
    )
