"""A log with transactions that Apache Kafka 3.9.1 has written: consumers of committed records, and of all, are
answered by our broker what they were answered by Kafka, also where a crash has left the log without its transaction
indexes."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

from jesenska.cli.kafka.records.kafka_dump_log import main as dump
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.records.batch import iter_headers
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.tools import Tools
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree

need_modules("confluent_kafka")
_client: Any = importlib.import_module("confluent_kafka")
_admin: Any = importlib.import_module("confluent_kafka.admin")

pytestmark = pytest.mark.conformance

_SECONDS = 30
_SIZES = (1, 700, 1 << 20)
_LATEST = -1


def _write(bootstrap: str, transactions: int) -> None:
    """Several producers at a time, each in a transaction of its own; the last one is left open."""
    admin = _admin.AdminClient({"bootstrap.servers": bootstrap})
    settings = {"segment.bytes": "3000", "index.interval.bytes": "300"}
    for future in admin.create_topics([_admin.NewTopic("t", 1, 1, config=settings)]).values():
        future.result(_SECONDS)
    chance = random.Random(7)
    producers = []
    for number in range(4):
        producers.append(
            _client.Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "transactional.id": f"writer-{number}",
                    "transaction.timeout.ms": 600_000,
                }
            )
        )
        producers[-1].init_transactions(_SECONDS)
    begun: list[Any] = []
    while transactions or begun:
        if transactions and len(begun) < len(producers) and chance.random() < 0.5:
            transactions -= 1
            begun.append(next(producer for producer in producers if producer not in begun))
            begun[-1].begin_transaction()
        elif begun and chance.random() < 0.4:
            producer = begun.pop(chance.randrange(len(begun)))
            (producer.abort_transaction if chance.random() < 0.5 else producer.commit_transaction)(_SECONDS)
        elif begun:
            chance.choice(begun).produce("t", chance.randbytes(chance.choice((10, 200))), partition=0)
            for producer in begun:
                producer.flush(_SECONDS)
    producers[0].begin_transaction()
    producers[0].produce("t", b"never decided", partition=0)
    producers[0].flush(_SECONDS)
    plain = _client.Producer({"bootstrap.servers": bootstrap})
    plain.produce("t", b"behind it", partition=0)
    plain.flush(_SECONDS)


def _of_records(aborted: list[FetchResponseAbortedTransaction], records: bytes) -> list[tuple[int, int]]:
    """Those that begin within the records. Both brokers tell of some that begin shortly behind them; Kafka does so
    also where the first entry of the offset index is the end of the records."""
    end = max((header.next_offset for _, header in iter_headers(records)), default=0)
    return [(item.producer_id, item.first_offset) for item in aborted if item.first_offset < end]


def _answers(bootstrap: str) -> dict[Any, Any]:
    """What consumers are told: from each offset, with both isolation levels; where the log ends for each; and what is
    known of the producers."""
    told: dict[Any, Any] = {}
    with RawConnection(bootstrap) as connection:
        for isolation in (0, 1):
            asked = ListOffsetsRequestTopic(
                name="t", partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=_LATEST)]
            )
            ends = connection.ask(
                ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked]), 5, ListOffsetsResponse
            )
            end = told["end", isolation] = ends.topics[0].partitions[0].offset
            for offset in range(end + 1):
                for size in _SIZES:
                    wanted = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=size)
                    topics = [FetchRequestTopic(topic="t", partitions=[wanted])]
                    request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=topics)
                    (answer,) = connection.ask(request, 11, FetchResponse).responses[0].partitions
                    records = bytes(answer.records or b"")  # type: ignore[arg-type]
                    aborted = answer.aborted_transactions
                    told[offset, isolation, size] = (
                        (answer.error_code, answer.high_watermark, answer.last_stable_offset, answer.log_start_offset),
                        None if aborted is None else _of_records(aborted, records),
                        records,
                    )
        producers = DescribeProducersRequest(topics=[DescribeProducersRequestTopic(name="t", partition_indexes=[0])])
        (known,) = connection.ask(producers, 0, DescribeProducersResponse).topics[0].partitions
        told["producers"] = sorted(
            (
                item.producer_id,
                item.producer_epoch,
                item.last_sequence,
                item.coordinator_epoch,
                item.current_txn_start_offset,
            )
            for item in known.active_producers
        )
    return told


def test_consumers_of_committed_records_are_told_what_kafka_tells_them(
    tmp_path: Path, tools_3: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    need("java", "mvn")
    directory = tmp_path / "kafka" / "data-0"
    with ServedTree(tmp_path / "tree.db", ServerConfig(tick_ms=1000)) as served:
        connect = f"{served.address}/kafka"
        settings = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
        with ApacheKafka(
            "3.9.1", tmp_path / "kafka", heap="400m", zookeeper_connect=connect, settings=settings
        ) as theirs:
            _write(theirs.bootstrap, 60)
            told = _answers(theirs.bootstrap)
        # There is something to compare.
        assert sum(bool(answer[1]) for key, answer in told.items() if key[1:] == (1, 1)) > 20
        assert told["end", 1] < told["end", 0]
        indexes = {path: path.read_bytes() for path in (directory / "t-0").glob("*.txnindex")}
        assert sum(map(bool, indexes.values())) > 3
        newest = str(max(path for path, content in indexes.items() if content))
        capsys.readouterr()
        assert dump(["--files", newest]) == 0
        assert capsys.readouterr().out == tools_3.run("kafka-dump-log", "--files", newest).output
        ours = {"zookeeper.connect": connect, "broker.id": "0"}
        with BrokerProcess(directory, settings=ours) as broker:
            assert _answers(broker.bootstrap) == told
            assert broker.stop() == 0
        for path in (directory / "t-0").glob("*.txnindex"):
            path.unlink()
        (directory / ".kafka_cleanshutdown").unlink()
        (directory / "recovery-point-offset-checkpoint").unlink()
        with BrokerProcess(directory, settings=ours) as broker:
            assert _answers(broker.bootstrap) == told
            assert broker.stop() == 0
        found = {path: path.read_bytes() for path in (directory / "t-0").glob("*.txnindex")}
        assert found == {path: content for path, content in indexes.items() if content}
