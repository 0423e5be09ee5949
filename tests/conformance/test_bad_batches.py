"""What our broker's tests say that Apache Kafka answers to bad records, asked of Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from tests.bad_batches import bad_batches
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection

pytestmark = pytest.mark.conformance

_NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    need("java", "mvn")
    with ApacheKafka("3.9.1", tmp_path_factory.mktemp("kafka"), heap="384m") as running:
        yield running


@pytest.mark.parametrize("name", list(bad_batches()))
def test_kafka_answers_what_the_table_says(kafka: ApacheKafka, name: str) -> None:
    bad = bad_batches()[name]
    topic = "bad-" + "".join(letter if letter.isalnum() else "-" for letter in name)
    configs = [CreateTopicsRequestConfig(name=key, value=value) for key, value in bad.configs.items()]
    wanted = CreateTopicsRequestTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)
    data = ProduceRequestTopic(
        name=topic, partition_data=[ProduceRequestPartition(index=bad.partition, records=bad.records)]
    )
    expected = bad.code if bad.kafka is None else bad.kafka
    with RawConnection(kafka.bootstrap) as connection:
        created = connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.NONE, created.topics[0].error_message
        deadline = time.monotonic() + 20
        while True:
            answer = connection.ask(
                ProduceRequest(acks=bad.acks, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse
            )
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if code not in _NOT_YET or expected in _NOT_YET or time.monotonic() > deadline:
                break  # Kafka creates a topic a moment after it has said so
    assert code == expected
