"""Transactions in a cluster of two brokers of jesenska and one of Apache Kafka 3.9.1: each coordinates some of them,
leads a partition of each, and marks their ends where another one says so."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.feature_administration import SAFE_DOWNGRADE, UPGRADE
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.coordination.placement import partition_for
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k57_update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)
from tests.cluster.view import view_of
from tests.conformance.conftest import need, need_modules
from tests.conformance.test_kafka_in_our_cluster import Mixed
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

need_modules("confluent_kafka")
_client: Any = importlib.import_module("confluent_kafka")

_SECONDS = 60
_STATE = "__transaction_state"


def _level(address: str) -> dict[str, int]:
    with RawConnection(address) as connection:
        answer = connection.ask(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, ApiVersionsResponse
        )
    return {item.name: item.max_version_level for item in answer.finalized_features}


def _update(address: str, level: int, way: int) -> UpdateFeaturesResponse:
    update = UpdateFeaturesRequestFeatureUpdate(
        feature="transaction.version", max_version_level=level, upgrade_type=way
    )
    with RawConnection(address) as connection:
        return connection.ask(UpdateFeaturesRequest(feature_updates=[update]), 2, UpdateFeaturesResponse)


async def _create(bootstrap: str, topic: str) -> None:
    """A topic of three partitions, each with one broker."""
    cluster = Cluster(bootstrap)
    try:
        assert await Admin(cluster).create_topics([NewTopic(topic, assignment=[(1,), (2,), (3,)])]) == {topic: None}
    finally:
        await cluster.close()


def _read(bootstrap: str, topic: str) -> list[bytes]:
    consumer = _client.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "read",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([_client.TopicPartition(topic, number, 0) for number in range(3)])
    found, ended = [], 0
    while ended < 3:
        message = consumer.poll(_SECONDS)
        assert message is not None, "nothing in time"
        if message.error() is None:
            found.append(message.value())
        else:
            ended += 1
    consumer.close()
    return sorted(found)


@pytest.mark.parametrize("first", ("jesenska", "kafka"))
def test_each_coordinates_and_each_leads(tmp_path: Path, first: str) -> None:
    need("java", "mvn")
    with Mixed(tmp_path, first) as mixed:
        # What Apache Kafka 3.9.1 does not know is not used by the others.
        mixed.until(
            lambda: all(_level(mixed.address(number)) == {} for number in (1, 2, 3)),
            "features that not everybody has are announced",
        )
        refused = _update(mixed.address(1), 1, UPGRADE)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert str(refused.error_message).endswith("Broker 3 does not support this feature.")
        # Apache Kafka hears of this, and is not ended by a feature that it does not know.
        assert _update(mixed.address(1), 0, SAFE_DOWNGRADE).error_code == ErrorCode.NONE
        topic = "mixed-transactions"
        asyncio.run(_create(mixed.bootstrap, topic))
        mixed.until(lambda: topic in view_of(mixed.address(1)).topics, "the topic is not there")
        coordinators: set[int] = set()
        expected = []
        for number in range(60):
            if coordinators == {1, 2, 3} and number >= 6:
                break
            name = f"mixed-{number}"
            producer = _client.Producer({"bootstrap.servers": mixed.bootstrap, "transactional.id": name})
            producer.init_transactions(_SECONDS)
            consumer = _client.Consumer({"bootstrap.servers": mixed.bootstrap, "group.id": name})
            for end in ("abort", "commit"):
                producer.begin_transaction()
                for partition in range(3):
                    value = f"{end} {number} {partition}".encode()
                    producer.produce(topic, value, partition=partition)
                    if end == "commit":
                        expected.append(value)
                offsets = [_client.TopicPartition(topic, 0, 10 if end == "commit" else 99)]
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _SECONDS)
                (producer.commit_transaction if end == "commit" else producer.abort_transaction)(_SECONDS)
            (committed,) = consumer.committed([_client.TopicPartition(topic, 0)], _SECONDS)
            assert committed.offset == 10
            consumer.close()
            partitions = view_of(mixed.address(1)).topics[_STATE]
            coordinators.add(partitions[partition_for(name, len(partitions))].leader)
        assert coordinators == {1, 2, 3}
        mixed.until(lambda: _read(mixed.bootstrap, topic) == sorted(expected), "what was committed is not what is read")
        assert mixed.kafka.brokers[0].poll() is None
