"""The settings of Kafka's own topics, by the broker's settings."""

from __future__ import annotations

import pytest

from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.internal_topics import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    automatic_topic,
)

_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.segment.bytes": "4000",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.replication.factor": "4",
    "transaction.state.log.min.isr": "3",
    "transaction.state.log.segment.bytes": "6000",
    "share.coordinator.state.topic.num.partitions": "7",
    "share.coordinator.state.topic.replication.factor": "5",
    "share.coordinator.state.topic.min.isr": "4",
    "share.coordinator.state.topic.segment.bytes": "8000",
}


@pytest.mark.parametrize(
    ("name", "brokers", "partitions", "factor", "least_in_sync", "segment_bytes"),
    [
        (CONSUMER_OFFSETS, 9, 3, 2, None, "4000"),
        (CONSUMER_OFFSETS, 1, 3, 1, None, "4000"),
        (TRANSACTION_STATE, 9, 5, 4, "3", "6000"),
        (TRANSACTION_STATE, 2, 5, 2, "2", "6000"),
        (SHARE_GROUP_STATE, 9, 7, 5, "4", "8000"),
        (SHARE_GROUP_STATE, 1, 7, 1, "1", "8000"),
    ],
)
def test_kafkas_own_topics_have_the_numbers_of_the_settings_as_far_as_there_are_brokers(
    name: str, brokers: int, partitions: int, factor: int, least_in_sync: str | None, segment_bytes: str
) -> None:
    topic = automatic_topic(name, BrokerConfig(_SETTINGS), brokers)
    assert (topic.partitions, topic.replication_factor) == (partitions, factor)
    assert (topic.configs.get("min.insync.replicas"), topic.configs["segment.bytes"]) == (least_in_sync, segment_bytes)
