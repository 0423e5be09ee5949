"""An archive of the classes of a release of Apache Kafka, as Java lays them out in memory (JEP 350): JVMs of the tests
start from it (`apache_kafka.further_options`).

    python3 -m tests.peers.class_archive 4.3.1

A broker of that release writes down its classes as it stops (Java 13 or newer). Tools have used it by then, so that
classes are among them that only requests need. A release from 3.3 on, as older ones do not start without a ZooKeeper.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.peers.apache_kafka import SHORT_RUN, ApacheKafka, class_archive, jars
from tests.peers.tools import Tools


def make_class_archive(release: str) -> Path:
    """Where it is; made if it is not there yet."""
    archive = class_archive(release)
    if not archive.exists():
        jars(release)
        with tempfile.TemporaryDirectory(dir=archive.parent) as made:
            new = Path(made, "classes.jsa")
            with ApacheKafka(
                release, Path(made, "broker"), heap="256m", java_options=[SHORT_RUN, f"-XX:ArchiveClassesAtExit={new}"]
            ) as kafka:
                _use(kafka)
            new.rename(archive)
    return archive


def _use(kafka: ApacheKafka) -> None:
    """A topic is created, changed and deleted; a group reads what is written."""
    at = ("--bootstrap-server", kafka.bootstrap)
    with Tools(kafka.version) as tools:
        tools.run("kafka-topics", *at, "--create", "--topic", "topic", "--partitions", 3)
        tools.run("kafka-console-producer", *at, "--topic", "topic", "--compression-codec", "zstd", given="one\ntwo\n")
        tools.run(
            "kafka-console-consumer",
            *at,
            "--topic",
            "topic",
            "--group",
            "group",
            "--from-beginning",
            "--max-messages",
            2,
        )
        tools.run("kafka-consumer-groups", *at, "--describe", "--group", "group")
        tools.run(
            "kafka-configs",
            *at,
            "--alter",
            "--entity-type",
            "topics",
            "--entity-name",
            "topic",
            "--add-config",
            "retention.ms=1000000",
        )
        tools.run("kafka-topics", *at, "--describe")
        tools.run("kafka-topics", *at, "--delete", "--topic", "topic")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(make_class_archive(name))
