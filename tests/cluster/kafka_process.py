"""A broker of Apache Kafka in ZooKeeper mode, in the place of one of ours (JESENSKA_CLUSTER_OF in `cluster`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from jesenska.testing.process import ServerProcess
from tests.peers.apache_kafka import free_port, java_command

#: It looks for old segments soon after its start, and fits into a small heap.
_MORE = {"log.initial.task.delay.ms": "100", "log.cleaner.dedupe.buffer.size": "8000000"}


class KafkaProcess(ServerProcess):
    """Started, killed and stopped as `BrokerProcess`; `settings` are those of server.properties."""

    _READY = re.compile(rb".*\[KafkaServer id=\d+\] started ")
    _LISTENS = re.compile(rb".*Awaiting socket connections on \S+:(?P<port>\d+)\. ")
    #: How Java ends on SIGTERM.
    stopped_code = 143

    def __init__(self, release: str, data: Path, settings: Mapping[str, str]) -> None:
        super().__init__({}, ready_seconds=120.0)
        self._release = release
        self.data = data
        self.settings = {**_MORE, **settings}
        self.port = free_port()

    def _command(self) -> list[str]:
        file = self.data.with_suffix(".properties")
        settings = {"listeners": f"PLAINTEXT://{self.host}:{self.port}", "log.dirs": str(self.data), **self.settings}
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return java_command(self._release, "kafka.Kafka", str(file), heap="256m", log_level="INFO")
