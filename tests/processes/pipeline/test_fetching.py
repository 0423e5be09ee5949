"""Ranges read from a broker that restarts, and batches of aborted transactions left out."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import KafkaError, NetworkException, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.connector import fetching
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.columns import RowMaker
from jesenska.pipeline.connector.fetching import Chunk, chunks, whole_batches
from jesenska.pipeline.connector.options import ClientOptions, source_options
from jesenska.pipeline.connector.planning import DataLossError, OffsetRange
from jesenska.records.encode import encode_batch
from jesenska.records.record import RecordInput
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import FetchResponseAbortedTransaction, FetchResponsePartition
from tests.processes.pipeline.conftest import Topics

KEY = TopicPartition("t", 0)


def _batch(offset: int, count: int, producer: int = -1, *, control: bool = False, transactional: bool = True) -> bytes:
    records: list[RecordInput] = [(1, None, b"%d" % (offset + number), ()) for number in range(count)]
    if control:
        records = [(1, b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00", ())]
    in_transaction = transactional and producer >= 0
    batch = encode_batch(
        records,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=in_transaction,
        is_control=control,
    )
    return bytes(batch)


def _offsets(data: bytes, aborted: list[tuple[int, int]] | None, read_committed: bool = True) -> tuple[int, list[int]]:
    listed = (
        None
        if aborted is None
        else [FetchResponseAbortedTransaction(producer_id=producer, first_offset=first) for producer, first in aborted]
    )
    following, buffers = whole_batches(
        memoryview(data), FetchResponsePartition(aborted_transactions=listed), read_committed
    )
    rows = [
        offset
        for batch in RowMaker().rows(Chunk(KEY, 0, 10**9, buffers))
        for offset in batch.column("offset").to_pylist()
    ]
    return following, rows


def test_records_of_aborted_transactions_are_left_out_and_others_are_not() -> None:
    data = b"".join(
        [
            _batch(0, 2),  # without a transaction
            _batch(2, 2, producer=7),  # aborted
            _batch(4, 2, producer=8),  # committed
            _batch(6, 1, producer=7, control=True),  # the marker that aborts
            _batch(7, 2, producer=7),  # the same producer's next transaction, committed
            _batch(9, 1, producer=8, control=True),
        ]
    )
    assert _offsets(data, [(7, 2)]) == (10, [0, 1, 4, 5, 7, 8])
    assert _offsets(data, [(7, 2)], read_committed=False) == (10, [0, 1, 2, 3, 4, 5, 7, 8])
    assert _offsets(data, None) == (10, [0, 1, 2, 3, 4, 5, 7, 8])


def test_a_transaction_that_was_aborted_before_the_fetch_began_is_left_out() -> None:
    data = _batch(10, 3, producer=7) + _batch(13, 1, producer=7, control=True)
    assert _offsets(data, [(7, 2)]) == (14, [])


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    data = _batch(0, 2) + _batch(2, 2)[:-1]
    assert _offsets(data, None) == (2, [0, 1])


@pytest.fixture
def restarting(tmp_path: Path) -> BrokerProcess:
    return BrokerProcess(tmp_path / "data")


@pytest.mark.crash
def test_a_range_is_read_to_its_end_over_a_restart_of_the_broker(restarting: BrokerProcess) -> None:
    with restarting as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create()
        topics.send(topic, [b"%d" % number * 50 for number in range(3000)], batch_size=2000)
        options = source_options(
            {
                "kafka.bootstrap.servers": broker.bootstrap,
                "subscribe": topic,
                "kafka.max.partition.fetch.bytes": "5000",
            },
            streaming=False,
        )
        connection = ClusterThread(options.client)
        found: list[int] = []

        def restart() -> None:
            broker.kill()
            broker.start()

        restarter = threading.Thread(target=restart)
        for chunk in chunks(connection, [OffsetRange(topic, 0, 0, 3000)], options):
            found += [offset for batch in RowMaker().rows(chunk) for offset in batch.column("offset").to_pylist()]
            if len(found) > 500 and restarter.ident is None:
                restarter.start()
        restarter.join()
        connection.close()
        topics.close()
    assert found == list(range(3000))


def test_a_broker_that_stays_away_fails_the_range_with_its_name(restarting: BrokerProcess) -> None:
    with restarting as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create()
        topics.send(topic, [b"x"])
        topics.close()
        options = source_options(
            {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "kafka.default.api.timeout.ms": "300"},
            streaming=False,
        )
        connection = ClusterThread(options.client)
        broker.kill()
        with pytest.raises(
            KafkaError, match=f"Reading {topic}-0 from offset 0 to 1 failed at offset 0: No broker answers"
        ):
            list(chunks(connection, [OffsetRange(topic, 0, 0, 1)], options))
        connection.close()


def test_offsets_that_go_while_a_range_is_read_are_data_loss(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 10)
    topics.delete_records(topic, 8)
    strict = source_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}, streaming=False)
    lenient = source_options(
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "failOnDataLoss": "false"}, streaming=False
    )
    connection = ClusterThread(strict.client)
    with pytest.raises(DataLossError, match=f"The offset 2 of {topic}-0 is not in the log, which holds 8 to 10"):
        list(chunks(connection, [OffsetRange(topic, 0, 2, 10)], strict))
    assert [(chunk.start, chunk.end) for chunk in chunks(connection, [OffsetRange(topic, 0, 2, 10)], lenient)] == [
        (8, 10)
    ]
    assert list(chunks(connection, [OffsetRange(topic, 0, 2, 7)], lenient)) == []
    with pytest.raises(
        DataLossError, match=f"{topic}-0 ends at offset 10, but {topic}-0 from offset 9 to 12 is to be read"
    ):
        list(chunks(connection, [OffsetRange(topic, 0, 9, 12)], strict))
    assert [(chunk.start, chunk.end) for chunk in chunks(connection, [OffsetRange(topic, 0, 9, 12)], lenient)] == [
        (9, 10)
    ]
    connection.close()


def test_a_topic_deleted_while_a_range_is_read_is_data_loss(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"%d" % number * 50 for number in range(100)], batch_size=500)
    found = {}
    for fail in ("true", "false"):
        texts = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": topic,
            "failOnDataLoss": fail,
            "kafka.max.partition.fetch.bytes": "500",
        }
        options = source_options(texts, streaming=False)
        connection = ClusterThread(options.client)
        reading = chunks(connection, [OffsetRange(topic, 0, 0, 100)], options)
        if fail == "true":
            next(reading)
            topics.delete(topic)
            with pytest.raises(DataLossError, match=f"{topic}-0 does not exist any more"):
                list(reading)
        else:
            found[fail] = list(reading)
        connection.close()
    assert found == {"false": []}


def test_a_broker_that_has_not_heard_of_a_topic_yet_is_asked_again(
    bootstrap: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 3)
    options = source_options(
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.retry.backoff.ms": "1"}, streaming=False
    )
    connection = ClusterThread(options.client)
    ask, refresh, answers = fetching._ask, connection.cluster.refresh, ["unknown"] * 3

    async def asked(*arguments: Any) -> FetchResponsePartition:
        if answers:
            answers.pop()
            raise UnknownTopicOrPartitionError("not heard of")
        return await ask(*arguments)

    async def refreshed(names: list[str]) -> dict[str, KafkaError]:
        return {topic: UnknownTopicOrPartitionError("not heard of")} if answers else await refresh(names)

    monkeypatch.setattr(fetching, "_ask", asked)
    monkeypatch.setattr(connection.cluster, "refresh", refreshed)
    assert [(chunk.start, chunk.end) for chunk in chunks(connection, [OffsetRange(topic, 0, 0, 3)], options)] == [
        (0, 3)
    ]
    connection.close()


def test_an_error_that_does_not_pass_is_not_tried_again() -> None:
    connection = ClusterThread(ClientOptions("127.0.0.1:1"))
    attempts = 0

    async def refused() -> None:
        nonlocal attempts
        attempts += 1
        raise KafkaError("no")

    async def gone() -> None:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise NetworkException("gone")

    with pytest.raises(KafkaError, match="no"):
        connection.persist(refused)
    assert attempts == 1
    connection.persist(gone)
    assert attempts == 5
    connection.close()


def test_a_number_of_retries_counts_instead_of_the_time() -> None:
    connection = ClusterThread(ClientOptions("127.0.0.1:1", api_timeout_ms=0))
    attempts = 0

    async def gone() -> None:
        nonlocal attempts
        attempts += 1
        raise NetworkException("gone")

    for retries in (0, 3):
        attempts = 0
        with pytest.raises(NetworkException):
            connection.persist(gone, retries=retries, interval_ms=0)
        assert attempts == retries + 1
    connection.close()


def test_records_that_do_not_come_within_the_poll_timeout_fail_the_range() -> None:
    # The address takes connections and never answers; all other limits are far away.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        texts = {
            "kafka.bootstrap.servers": servers,
            "subscribe": "t",
            "kafkaConsumer.pollTimeoutMs": "1",
            "kafka.request.timeout.ms": "300",
        }
        options = source_options({**texts, "kafka.default.api.timeout.ms": "600000"}, streaming=False)
        connection = ClusterThread(options.client)
        with pytest.raises(KafkaError, match="Reading t-0 from offset 0 to 1 failed at offset 0"):
            list(chunks(connection, [OffsetRange("t", 0, 0, 1)], options))
        connection.close()


def test_times_that_microseconds_cannot_hold_become_the_nearest_that_they_can() -> None:
    records = [(time, None, b"x", ()) for time in (-(2**62), -1, 0, 2**62)]
    data = memoryview(bytes(encode_batch(records)))
    (batch,) = RowMaker().rows(Chunk(KEY, 0, 4, (data,)))
    largest = (2**63 - 1) // 1000 * 1000
    assert batch.column("timestamp").cast("int64").to_pylist() == [-largest, -1000, 0, largest]
