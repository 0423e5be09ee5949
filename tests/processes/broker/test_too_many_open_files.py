"""Too many open files for a moment: work that is impossible at that moment is refused, and afterwards everything works
again."""

from __future__ import annotations

import re
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from tests.raw_connection import RawConnection
from tests.units.log.log_harness import make_batch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")


@contextmanager
def no_more_files(broker: BrokerProcess) -> Iterator[None]:
    """Leaves the broker eight descriptors. The limit applies to their numbers, and some lower numbers are free."""
    used = {int(path.name) for path in Path(f"/proc/{broker.pid}/fd").iterdir()}
    eighth = next(islice((number for number in count() if number not in used), 7, None))
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (eighth + 1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


def create(connection: RawConnection, topic: str, partitions: int) -> int:
    wanted = CreateTopicsRequestTopic(name=topic, num_partitions=partitions, replication_factor=1)
    return (
        connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
        .topics[0]
        .error_code
    )


def produce(connection: RawConnection, topic: str, partition: int) -> int:
    data = ProduceRequestTopic(
        name=topic, partition_data=[ProduceRequestPartition(index=partition, records=make_batch())]
    )
    answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def test_a_topic_that_gets_no_logs_is_not_created_and_can_be_created_later(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawConnection(broker.bootstrap) as connection:
        with no_more_files(broker):
            assert create(connection, "wide", 40) == ErrorCode.KAFKA_STORAGE_ERROR
        assert create(connection, "wide", 40) == ErrorCode.NONE
        assert [produce(connection, "wide", number) for number in range(40)] == [ErrorCode.NONE] * 40
        assert not [path for path in broker.data.iterdir() if path.name.startswith("wide") and not path.is_dir()]


def test_partitions_that_get_no_logs_get_them_later(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawConnection(broker.bootstrap) as connection:
        assert create(connection, "wide", 1) == ErrorCode.NONE
        with no_more_files(broker):
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsRequestTopic(name="wide", count=40, assignments=None)], timeout_ms=20_000
            )
            connection.ask(request, 3, CreatePartitionsResponse)
            assert produce(connection, "wide", 39) == ErrorCode.KAFKA_STORAGE_ERROR
        ends = time.monotonic() + 20
        while (code := produce(connection, "wide", 39)) != ErrorCode.NONE:
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert time.monotonic() < ends, "the log was not made"
            time.sleep(0.1)
        assert [produce(connection, "wide", number) for number in range(40)] == [ErrorCode.NONE] * 40


def test_writes_go_on_when_the_moment_has_passed(tmp_path: Path) -> None:
    settings = {"log.flush.interval.messages": "1"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker, RawConnection(broker.bootstrap) as connection:
        assert create(connection, "synced", 1) == ErrorCode.NONE
        with no_more_files(broker):
            produce(connection, "synced", 0)
        assert produce(connection, "synced", 0) == ErrorCode.NONE


def _first_words(descriptors: int, *words: str) -> str:
    """The output of a tool with so few descriptors, up to its end or to the line that reports that it is up."""
    limit = f"ulimit -n {descriptors} && exec " + shlex.join([sys.executable, "-m", *words])
    with subprocess.Popen(["sh", "-c", limit], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.terminate()
        process.communicate(timeout=60)
    return said


def test_whoever_has_no_descriptors_left_says_so_and_what_to_do(tmp_path: Path) -> None:
    """The number of descriptors decides how far the start gets. With fewer than six, Python itself cannot read the
    program."""
    file = tmp_path / "zookeeper.properties"
    file.write_text(f"dataDir={tmp_path}/data\nclientPort=0\nclientPortAddress=127.0.0.1\n")
    said: list[str] = []
    while not (said and " is up at " in said[-1]):
        said.append(_first_words(6 + len(said), "jesenska.cli.zookeeper.zookeeper_server_start", str(file)))
    assert len(said) > 2
    said += [_first_words(6, "jesenska.cli.kafka.topics.kafka_topics", "--bootstrap-server", "127.0.0.1:1", "--list")]
    for line in said:
        assert " is up at " in line or re.search(
            r"oo many open files\): allow this process more open files \(ulimit -n, LimitNOFILE\)\.$", line
        ), line
