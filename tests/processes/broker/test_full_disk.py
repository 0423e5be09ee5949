"""A disk without room. Writes are answered with KAFKA_STORAGE_ERROR, no half-written data are shown, and reads go on.
Writes resume when there is room, without a restart.

There are two ways to have no room: a limit on the size of the running broker's files (Linux), and a file system of a
few megabytes (where the machine lets tests mount one)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.batch import iter_headers
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.testing.faults import NoSmallDiskError, SmallDisk, limit_file_size
from jesenska.testing.process import ServerFailedError
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.raw_connection import RawConnection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit and tmpfs are Linux's")

_BATCH = bytes(encode_batch([(1_700_000_000_000, b"key", bytes(100_000), ())]))


def create(broker: BrokerProcess, topic: str) -> None:
    with RawConnection(broker.bootstrap) as connection:
        wanted = CreateTopicsRequestTopic(name=topic, num_partitions=1, replication_factor=1)
        answer = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE


def produce(connection: RawConnection, topic: str) -> tuple[int, int]:
    """Produces a batch. Returns the error code and the base offset."""
    data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=0, records=_BATCH)])
    answer = connection.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse)
    item = answer.responses[0].partition_responses[0]
    return item.error_code, item.base_offset


def offsets(connection: RawConnection, topic: str) -> list[int]:
    """The offsets of all records that a consumer sees."""
    found: list[int] = []
    while True:
        part = FetchRequestPartition(partition=0, fetch_offset=len(found), partition_max_bytes=1 << 20)
        request = FetchRequest(max_wait_ms=0, topics=[FetchRequestTopic(topic=topic, partitions=[part])])
        answer = connection.ask(request, 11, FetchResponse).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.NONE
        assert isinstance(answer.records, (bytes, memoryview))
        if not answer.records:
            return found
        found += [header.base_offset for _, header in iter_headers(bytes(answer.records))]


def fill(connection: RawConnection, topic: str, at_most: int) -> int:
    """Writes until there is no room. Returns the number of accepted batches."""
    for count in range(at_most):
        code, offset = produce(connection, topic)
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            return count
        assert (code, offset) == (ErrorCode.NONE, count)
    raise AssertionError("there was room for everything")


def test_writes_fail_reads_go_on_and_writes_resume_with_room(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, RawConnection(broker.bootstrap) as connection:
        create(broker, "filled")
        create(broker, "small")
        assert produce(connection, "small") == (ErrorCode.NONE, 0)
        limit_file_size(broker.pid, 1_050_000)
        taken = fill(connection, "filled", 20)
        assert taken == 10
        for _ in range(3):
            assert produce(connection, "filled")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets(connection, "filled") == list(range(taken))
        log = broker.data / "filled-0" / "00000000000000000000.log"
        assert log.stat().st_size == taken * len(_BATCH), "the torn tail is cut off"
        assert produce(connection, "small") == (ErrorCode.NONE, 1)  # which has room
        limit_file_size(broker.pid, None)
        assert produce(connection, "filled") == (ErrorCode.NONE, taken)
        broker.kill()
        broker.start()
        with RawConnection(broker.bootstrap) as again:
            assert offsets(again, "filled") == list(range(taken + 1))
            assert offsets(again, "small") == [0, 1]


def test_a_killed_broker_with_a_full_disk_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create(broker, "filled")
        with RawConnection(broker.bootstrap) as connection:
            limit_file_size(broker.pid, 1_050_000)
            taken = fill(connection, "filled", 20)
        broker.kill()
        broker.start()
        with RawConnection(broker.bootstrap) as connection:
            assert offsets(connection, "filled") == list(range(taken))
            assert produce(connection, "filled") == (ErrorCode.NONE, taken)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A separate file system of six megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    with ExitStack() as opened:
        try:
            disk = opened.enter_context(SmallDisk(path, 6 * 1024 * 1024))
        except NoSmallDiskError as error:
            pytest.skip(str(error))
        yield disk


def test_a_full_file_system_refuses_writes_until_there_is_room(small_disk: SmallDisk) -> None:
    held = small_disk.path / "held"
    held.write_bytes(bytes(1_500_000))
    reserve = small_disk.path / "reserve"
    reserve.write_bytes(bytes(300_000))
    with BrokerProcess(small_disk.path / "data") as broker, RawConnection(broker.bootstrap) as connection:
        create(broker, "filled")
        taken = fill(connection, "filled", 60)
        assert taken > 10
        assert offsets(connection, "filled") == list(range(taken))
        held.unlink()
        assert produce(connection, "filled") == (ErrorCode.NONE, taken)
        assert offsets(connection, "filled") == list(range(taken + 1))
        rest = fill_more(connection, "filled", taken + 1)
        broker.kill()
        small_disk.fill()
        with pytest.raises(ServerFailedError, match="The disk is full"):
            broker.start()
        reserve.unlink()
        broker.start()
        with RawConnection(broker.bootstrap) as again:
            assert offsets(again, "filled") == list(range(rest))


def fill_more(connection: RawConnection, topic: str, count: int) -> int:
    while True:
        code, offset = produce(connection, topic)
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            return count
        assert (code, offset) == (ErrorCode.NONE, count)
        count += 1


def test_a_start_on_a_full_file_system_is_refused_in_one_sentence(small_disk: SmallDisk) -> None:
    small_disk.fill()
    done = subprocess.run(
        [sys.executable, "-m", "jesenska", "up", "--port", "0", "--data", str(small_disk.path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "record codec" not in line]
    assert "No space left" in line or "full" in line
    small_disk.free()
    with BrokerProcess(small_disk.path / "data") as broker:
        assert broker.stop() == 0


def test_topics_are_not_created_half_when_there_is_no_room(small_disk: SmallDisk) -> None:
    """A topic that cannot be created is answered with an error. When there is room, the broker goes on without a
    restart."""
    with BrokerProcess(small_disk.path / "data") as broker, RawConnection(broker.bootstrap) as connection:
        small_disk.fill()
        wanted = CreateTopicsRequestTopic(name="late", num_partitions=3, replication_factor=1)
        answer = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
        assert answer.topics[0].error_code != ErrorCode.NONE
        small_disk.free()
        again = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
        assert again.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert produce(connection, "late") == (ErrorCode.NONE, 0)
