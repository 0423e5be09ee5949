"""Groups of every client: two members share the partitions, commit and leave; the broker is started again; two new
members go on where those have stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need, refuse
from tests.conformance.every_client import environment
from tests.peers.apache_kafka import java_command, tool_class
from tests.peers.clients import PROJECT, MissingError, go_client, node_client, python_client
from tests.processes.cli.groups import fill, until_committed, until_shared

pytestmark = pytest.mark.conformance

_TOPIC, _GROUP = "work", "workers"
_PARTITIONS, _COUNT = 4, 80
_SECONDS = 60.0


class Kind(NamedTuple):
    """How a member is started. A talker is given a plan and commits when it is told; the others commit as they go, and
    leave by SIGTERM."""

    name: str
    command: Callable[[str], list[str]]
    is_talker: bool = True
    options: dict[str, object] = {}  # noqa: RUF012


def _kcat(bootstrap: str) -> list[str]:
    need("kcat")
    settings = ["auto.offset.reset=earliest", "heartbeat.interval.ms=300", "auto.commit.interval.ms=100"]
    return [
        "kcat",
        "-b",
        bootstrap,
        "-u",
        "-q",
        *(word for setting in settings for word in ("-X", setting)),
        "-G",
        _GROUP,
        _TOPIC,
    ]


def _console(release: str) -> Callable[[str], list[str]]:
    def command(bootstrap: str) -> list[str]:
        need("java", "mvn")
        flag = "--command-property" if release.startswith("4.") else "--consumer-property"
        settings = [f"group.id={_GROUP}", "heartbeat.interval.ms=300", "auto.commit.interval.ms=100"]
        words = [word for setting in settings for word in (flag, setting)]
        consumer = tool_class(release, "kafka-console-consumer")
        return java_command(
            release,
            consumer,
            "--bootstrap-server",
            bootstrap,
            "--topic",
            _TOPIC,
            "--from-beginning",
            *words,
            heap="128m",
        )

    return command


def _python(module: str, packages: str | None = None) -> Callable[[str], list[str]]:
    return lambda _: python_client(module, packages)


KINDS = (
    Kind("jesenska", _python("jesenska_client")),
    Kind("confluent-kafka", _python("confluent_client")),
    Kind("aiokafka", _python("aiokafka_client")),
    Kind("kafka-python", _python("kafka_python_client")),
    Kind("kafka-python-2.0", _python("kafka_python_client", "kafka-python-2.0")),
    Kind("kafka-python-1.4", _python("kafka_python_client", "kafka-python-1.4")),
    Kind(
        "kafka-python-1.4-as-0.9", _python("kafka_python_client", "kafka-python-1.4"), options={"api_version": [0, 9]}
    ),
    Kind("franz-go", lambda _: go_client()),
    Kind("kafkajs", lambda _: node_client()),
    Kind("kcat", _kcat, is_talker=False),
    *(
        Kind(f"console-{release}", _console(release), is_talker=False)
        for release in ("0.10.2.2", "1.0.2", "3.9.1", "4.3.1")
    ),
)


class Members:
    """Two processes and all that they have read."""

    def __init__(self, kind: Kind, bootstrap: str, errors: Path) -> None:
        self._kind = kind
        self._read: list[int] = []
        self._more = threading.Condition()
        self._errors = errors
        command = kind.command(bootstrap)
        with errors.open("ab") as log:
            self._processes = [
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=PROJECT, env=environment()
                )
                for _ in range(2)
            ]
        self._readers = [threading.Thread(target=self._listen, args=(process,)) for process in self._processes]
        for reader in self._readers:
            reader.start()
        self._tell({"bootstrap": bootstrap, "options": kind.options, "group": _GROUP, "topic": _TOPIC})

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            with self._more:
                self._read.append(int(line))
                self._more.notify()

    def _tell(self, what: object) -> None:
        if self._kind.is_talker:
            for process in self._processes:
                assert process.stdin is not None
                process.stdin.write(json.dumps(what).encode() + b"\n")
                process.stdin.flush()

    def read(self, count: int) -> None:
        """Waits until so many records have been read."""
        with self._more:
            assert self._more.wait_for(lambda: len(self._read) >= count, _SECONDS), (
                f"{len(self._read)} read; {self._errors.read_text()[-3000:]}"
            )

    def commit(self) -> None:
        self._tell("commit")

    def leave(self) -> list[int]:
        """In order; gives every number that was read, sorted."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
            if not self._kind.is_talker:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(_SECONDS)
        for reader in self._readers:
            reader.join()
        return sorted(self._read)

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for process, reader in zip(self._processes, self._readers, strict=True):
            reader.join()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


@contextmanager
def two_members(kind: Kind, bootstrap: str, errors: Path) -> Iterator[Members]:
    try:
        members = Members(kind, bootstrap, errors)
    except MissingError as error:
        refuse([str(error)])
        raise
    try:
        yield members
    finally:
        members.end()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_group_shares_commits_and_goes_on_after_a_restart_of_the_broker(kind: Kind, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        fill(broker, _TOPIC, _PARTITIONS, 0)
        for turn in range(2):
            with two_members(kind, broker.bootstrap, tmp_path / "errors") as members:
                until_shared(broker, _GROUP, members=2, partitions=_PARTITIONS)
                fill(broker, _TOPIC, _PARTITIONS, _COUNT, start=turn * _COUNT)
                members.read(_COUNT)
                members.commit()
                end = (turn + 1) * _COUNT // _PARTITIONS
                until_committed(
                    broker, _GROUP, {TopicPartition(_TOPIC, partition): end for partition in range(_PARTITIONS)}
                )
                assert members.leave() == list(range(turn * _COUNT, (turn + 1) * _COUNT))
            broker.stop()
            broker.start()
