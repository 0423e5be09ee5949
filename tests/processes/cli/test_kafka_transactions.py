"""kafka-transactions against a broker of ours."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.groups import kafka_transactions
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from tests.processes.cli.conftest import Result, Tool
from tests.raw_connection import RawConnection

_HOUR_MS = 3_600_000
_HANGING_ID, _HANGING_EPOCH = 4711, 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a topic `t` of two partitions, a transaction that is open in both, and one that is committed in
    the first. In a topic `hanging` there is an open transaction that no coordinator knows."""
    # Writers are not checked, as before KIP-890, so a transaction can hang.
    settings = {"transaction.state.log.num.partitions": "2", "transaction.partition.verification.enable": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("transactions") / "data", settings=settings) as running:
        asyncio.run(_prepare(running.bootstrap))
        _hang(running.bootstrap)
        yield running


async def _prepare(bootstrap: str) -> None:
    cluster = Cluster(bootstrap)
    await Admin(cluster).create_topics([NewTopic("t", 2, 1), NewTopic("hanging", 1, 1)])
    async with Producer(cluster, transactional_id="committed") as committed:
        await committed.init_transactions()
        async with committed.transaction():
            await committed.send("t", b"1", partition=0)
    left = Producer(cluster, transactional_id="left open")
    await left.init_transactions()
    left.begin_transaction()
    for number in range(2):
        await (await left.send("t", b"2", partition=number))
    await left.close()
    await cluster.close()


def _hang(bootstrap: str) -> None:
    batch = encode_batch(
        [(int(time.time() * 1000) - _HOUR_MS, b"k", b"v", ())],
        producer_id=_HANGING_ID,
        producer_epoch=_HANGING_EPOCH,
        base_sequence=0,
        is_transactional=True,
    )
    partition = ProduceRequestPartition(index=0, records=batch)
    request = ProduceRequest(
        transactional_id="hangs",
        acks=-1,
        timeout_ms=5000,
        topic_data=[ProduceRequestTopic(name="hanging", partition_data=[partition])],
    )
    with RawConnection(bootstrap, 10.0) as connection:
        answer = connection.ask(request, 11, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def rows(result: Result) -> list[list[str]]:
    """The cells of a table, without its head."""
    assert (result.code, result.err) == (0, "")
    return [[cell.strip() for cell in line.split("\t")[:-1]] for line in result.lines[1:]]


def test_transactions_are_listed_with_their_coordinators(at: Tool) -> None:
    result = at(kafka_transactions.main, "list")
    assert result.lines[0] == "TransactionalId\tCoordinator\tProducerId\tTransactionState\t"
    committed, left = rows(result)
    assert (committed[0], committed[1], committed[3]) == ("committed", "1", "CompleteCommit")
    assert (left[0], left[1], left[3]) == ("left open", "1", "Ongoing")
    assert rows(at(kafka_transactions.main, "list", "--transactional-id-pattern", "comm.*")) == [committed]
    assert rows(at(kafka_transactions.main, "list", "--transactional-id-pattern", "(?i)COMMITTED|nobody's")) == [
        committed
    ]
    assert rows(at(kafka_transactions.main, "list", "--transactional-id-pattern", "comm")) == []
    assert rows(at(kafka_transactions.main, "list", "--duration-filter", "86400000")) == []
    assert left in rows(at(kafka_transactions.main, "list", "--duration-filter", "0"))


def test_as_json_a_table_is_a_list_of_objects(tool: Tool, broker: BrokerProcess) -> None:
    result = tool(kafka_transactions.main, "--bootstrap-server", broker.bootstrap, "--output", "json", "list")
    names = [item["TransactionalId"] for item in json.loads(result.out)]
    assert names == ["committed", "left open"]


def test_a_transaction_is_described(at: Tool) -> None:
    (left,) = rows(at(kafka_transactions.main, "describe", "--transactional-id", "left open"))
    assert (left[0], left[1], left[4], left[5], left[8]) == ("1", "left open", "Ongoing", "60000", "t-0,t-1")
    assert int(left[7]) >= 0
    (committed,) = rows(at(kafka_transactions.main, "describe", "--transactional-id", "committed"))
    assert (committed[4], committed[8]) == ("CompleteCommit", "")


def test_producers_of_a_partition_are_described(at: Tool) -> None:
    arguments = ["describe-producers", "--topic", "t", "--partition", "0"]
    found = rows(at(kafka_transactions.main, *arguments))
    assert [row[5] for row in found] == ["None", "2"]
    assert rows(at(kafka_transactions.main, *arguments, "--broker-id", "1")) == found


def test_a_hanging_transaction_is_found_and_ended(at: Tool, broker: BrokerProcess) -> None:
    arguments = ["find-hanging", "--broker-id", "1"]
    (found,) = rows(at(kafka_transactions.main, *arguments))
    assert found[:6] == ["hanging", "0", str(_HANGING_ID), str(_HANGING_EPOCH), "-1", "0"]
    assert found[7] == "60"
    assert rows(at(kafka_transactions.main, "find-hanging", "--topic", "hanging", "--partition", "0")) == [found]
    assert rows(at(kafka_transactions.main, "find-hanging", "--topic", "t")) == []
    assert rows(at(kafka_transactions.main, *arguments, "--max-transaction-timeout", "100")) == []
    result = at(kafka_transactions.main, "abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert rows(at(kafka_transactions.main, *arguments)) == []


def test_a_transaction_is_terminated_by_force(at: Tool, broker: BrokerProcess) -> None:
    async def left_open() -> None:
        cluster = Cluster(broker.bootstrap)
        async with Producer(cluster, transactional_id="stuck") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await (await producer.send("t", b"3", partition=1))
        await cluster.close()

    async def open_at() -> list[int]:
        cluster = Cluster(broker.bootstrap)
        admin, key = Admin(cluster), TopicPartition("t", 1)
        description = await admin.describe_transaction("stuck")
        found = (await admin.describe_producers([key]))[key]
        await cluster.close()
        assert not isinstance(found, Exception)
        return [item.transaction_start_offset for item in found if item.producer_id == description.producer_id]

    asyncio.run(left_open())
    assert asyncio.run(open_at()) == [1]
    result = at(kafka_transactions.main, "forceTerminateTransaction", "--transactionalId", "stuck")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert asyncio.run(open_at()) == [-1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "required: COMMAND"),
        (["describe", "--transactional-id", "nobody's"], "There is no transactional id nobody's"),
        (["describe-producers", "--topic", "never-was", "--partition", "0"], "Topic never-was does not exist"),
        (["find-hanging"], "requires either --topic or --broker-id"),
        (["find-hanging", "--broker-id", "1", "--partition", "0"], "requires --topic"),
        (["abort", "--topic", "t", "--partition", "0"], "must be identified either with --start-offset"),
        (
            ["abort", "--topic", "t", "--partition", "0", "--start-offset", "99"],
            "Could not find any open transactions starting at offset 99 on partition t-0",
        ),
        (
            ["list", "--transactional-id-pattern", "("],
            "Broker 1 does not take '(' as a regular expression: write it in RE2's syntax.",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(at: Tool, arguments: list[str], says: str) -> None:
    result = at(kafka_transactions.main, *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err


def test_without_a_server_it_says_so(tool: Tool, tmp_path: Path) -> None:
    result = tool(kafka_transactions.main, "list")
    assert result.code == 1
    assert "--bootstrap-server" in result.err
