"""Checks the log directories of a broker that stores the metadata tree (ZooKeeper's nodes) itself. The broker is not
started if a directory contains partitions but no tree. Such a directory belongs to Apache Kafka and was not imported,
or it was exported to Kafka. The broker would begin with an empty tree, and treat all partitions as unknown."""

from __future__ import annotations

from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.cli.shared.several_directories import refuse_directory_beside_several
from jesenska.config.layers import BrokerConfig
from jesenska.log.disk.meta_properties import FILE_NAME, partition_in
from jesenska.metadata.journal import EXPORTED_FILE, METADATA_FILE


def refuse_data_without_metadata(config: BrokerConfig) -> None:
    """Raises JesenskaError with one sentence if a log directory has partitions that are not in the broker's own
    metadata tree. Directories that cannot be read are ignored here, because the start reports them."""
    if (config.string("zookeeper.connect") or "").strip():
        return
    text = config.string("log.dirs") or config.string("log.dir") or ""
    directories = [Path(item.strip()) for item in text.split(",") if item.strip()]
    try:
        for directory in directories:
            refuse_directory_beside_several(directory)
        if not directories or _has_metadata(directories[0]):
            return
        was_exported = (directories[0] / EXPORTED_FILE).exists()
    except OSError:
        return
    for directory in directories:
        partition = partition_in(directory) if (directory / FILE_NAME).exists() else None
        if partition is None:
            continue
        if was_exported:
            raise JesenskaError(
                f"{directories[0]} was exported to Apache Kafka: start Kafka with it. To use it with jesenska again, "
                f"import it, or rename {EXPORTED_FILE} to {METADATA_FILE} if Kafka has not used it."
            )
        raise JesenskaError(
            f"{directory} has partitions (such as {partition}), but {directories[0]} has no metadata about them "
            f"({METADATA_FILE}): if the data are Apache Kafka's, run jesenska import first; otherwise put the "
            "file back, or correct the order of log.dirs."
        )


def _has_metadata(directory: Path) -> bool:
    """Returns True if the directory contains a file with a metadata tree. An empty file is not counted: it remains
    after a full disk or a failed copy, and SQLite would open it as an empty tree."""
    file = directory / METADATA_FILE
    return file.exists() and file.stat().st_size > 0
