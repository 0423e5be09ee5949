"""`jesenska init`: makes a directory in the layout of Kafka's releases, with `bin/` and `config/`, so that commands
from Kafka's documents work unchanged.

    bin/       each tool under the name of Kafka's script (kafka-topics.sh); a shell script of two lines that calls
               this Python
    config/    server.properties, zookeeper.properties, producer.properties, consumer.properties
    data/      the data directory of those configurations

Existing files are left unchanged."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

from jesenska.base.errors import JesenskaError

_ZOOKEEPER = """\
# A server of ZooKeeper's nodes, the metadata tree:
#   bin/zookeeper-server-start.sh config/zookeeper.properties

# The directory of the tree, which is stored in one file.
dataDir={data}/zookeeper
# The address for clients. Remove clientPortAddress to allow clients on other machines; there are no logins.
clientPort=2181
clientPortAddress=127.0.0.1
# No limit of connections from one address.
maxClientCnxns=0
"""

_SERVER = """\
# A broker: bin/kafka-server-start.sh config/server.properties
# All settings and their effects: docs/settings.md.

# The broker's id; each broker of a cluster has its own.
broker.id=0

# The address for clients. Remove host.name to allow clients on other machines; there are no logins.
host.name=localhost
port=9092

# The directories for records. Separate several directories (on several disks) by commas.
log.dirs={data}/kafka-logs

# The number of partitions of a topic that is created without a number.
num.partitions=1

# The time for which records are kept, the size of a segment file, and the interval between deletions.
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000

# An empty group does not wait for more members before it assigns partitions.
group.initial.rebalance.delay.ms=0

# A cluster with a single broker can only have one replica of each partition.
offsets.topic.replication.factor=1

# The address of the metadata tree. Without this line the broker stores the tree itself and needs no other process.
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=6000
"""

_PRODUCER = """\
# For bin/kafka-console-producer.sh --producer.config config/producer.properties
bootstrap.servers=localhost:9092
# none, gzip, snappy, lz4 or zstd
compression.type=none
"""

_CONSUMER = """\
# For bin/kafka-console-consumer.sh --consumer.config config/consumer.properties
bootstrap.servers=localhost:9092
group.id=test-consumer-group
# The offset at which a group without committed offsets begins: earliest or latest
auto.offset.reset=latest
"""

_CONFIGURATIONS = {
    "zookeeper.properties": _ZOOKEEPER,
    "server.properties": _SERVER,
    "producer.properties": _PRODUCER,
    "consumer.properties": _CONSUMER,
}


def lay_out(directory: Path) -> Iterator[tuple[Path, bool]]:
    """Creates the files that are missing. Yields each file of the layout, and True if this call has created it. Raises
    JesenskaError with one sentence if a file cannot be written."""
    data = directory.absolute() / "data"
    try:
        for folder in ("bin", "config"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        for entry in sorted(entry_points(group="console_scripts"), key=lambda entry: entry.name):
            if entry.module.startswith("jesenska.cli."):
                name = entry.name if entry.name == "jesenska" else f"{entry.name}.sh"
                yield _made(
                    directory / "bin" / name,
                    f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {entry.module} "$@"\n',
                    0o755,
                )
        for name, text in _CONFIGURATIONS.items():
            yield _made(directory / "config" / name, text.replace("{data}", str(data)), 0o644)
    except OSError as error:
        raise JesenskaError(
            f"{error.filename or directory} cannot be written ({error.strerror}): name another directory."
        ) from error


def _made(path: Path, text: str, mode: int) -> tuple[Path, bool]:
    if path.exists():
        return path, False
    path.write_text(text)
    path.chmod(mode)
    return path, True
