"""Offsets that Apache Kafka 3.9.1 holds for transactions (committed, aborted, open) mean the same when its directory
and its tree are taken over."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import ApacheKafka
from tests.processes.cli.groups import committed, fill, until_committed
from tests.served_tree import ServedTree

need_modules("confluent_kafka")
_client: Any = importlib.import_module("confluent_kafka")

pytestmark = pytest.mark.conformance

_GROUPS = ("aborted", "committed", "open", "overtaken")
_SECONDS = 30


def _commit(bootstrap: str, group: str, offset: int) -> None:
    consumer = _client.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[_client.TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()


def _begin(bootstrap: str, group: str, offset: int) -> Any:
    """A producer with a transaction that holds this offset of the group."""
    consumer = _client.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = _client.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": group, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(_SECONDS)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [_client.TopicPartition("t", 0, offset)], consumer.consumer_group_metadata(), _SECONDS
    )
    consumer.close()
    return producer


def test_what_transactions_have_committed_is_the_same_before_and_after_a_take_over(tmp_path: Path) -> None:
    need("java", "mvn")
    with ServedTree(tmp_path / "tree.db", ServerConfig(tick_ms=1000)) as served:
        connect = f"{served.address}/kafka"
        settings = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
        with ApacheKafka(
            "3.9.1", tmp_path / "kafka", heap="400m", zookeeper_connect=connect, settings=settings
        ) as theirs:
            fill(theirs, "t", 1, 1)
            for group in _GROUPS:
                _commit(theirs.bootstrap, group, 5)
            open_ones = {group: _begin(theirs.bootstrap, group, 100) for group in _GROUPS}
            _commit(theirs.bootstrap, "overtaken", 7)
            open_ones["aborted"].abort_transaction(_SECONDS)
            open_ones["committed"].commit_transaction(_SECONDS)
            open_ones["overtaken"].commit_transaction(_SECONDS)
            # A transaction's end is answered before its marker stands everywhere.
            until_committed(theirs, "committed", {TopicPartition("t", 0): 100})
            told = {group: committed(theirs, group)[TopicPartition("t", 0)] for group in _GROUPS}
        assert told == {"aborted": 5, "committed": 100, "open": 5, "overtaken": 7}
        with BrokerProcess(
            tmp_path / "kafka" / "data-0", settings={"zookeeper.connect": connect, "broker.id": "0"}
        ) as ours:
            assert {group: committed(ours, group)[TopicPartition("t", 0)] for group in _GROUPS} == told
