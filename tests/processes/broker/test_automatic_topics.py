"""Topics that a request creates automatically: the first answer, and the settings with which Kafka's own topics are
created."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from tests.raw_connection import RawConnection

_ALLOWED_FROM = 4
_TOPIC_CONFIG = 1


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("fresh") / "data", settings={"transaction.state.log.num.partitions": "7"}
    ) as running:
        yield running


def ask(broker: BrokerProcess, name: str, version: int = 9, *, allowed: bool = True) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    if version >= _ALLOWED_FROM:
        request.allow_auto_topic_creation = allowed
    with RawConnection(broker.bootstrap) as connection:
        (topic,) = connection.ask(request, version, MetadataResponse).topics
    return topic


def create(broker: BrokerProcess, name: str) -> tuple[ErrorCode, str | None]:
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=10_000
    )
    with RawConnection(broker.bootstrap) as connection:
        (topic,) = connection.ask(request, 7, CreateTopicsResponse).topics
    return ErrorCode(topic.error_code), topic.error_message


def settings(broker: BrokerProcess, name: str) -> dict[str, str | None]:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsRequestResource(resource_type=2, resource_name=name, configuration_keys=None)]
    )
    with RawConnection(broker.bootstrap) as connection:
        (found,) = connection.ask(request, 4, DescribeConfigsResponse).results
    return {item.name: item.value for item in found.configs if item.config_source == _TOPIC_CONFIG}


@pytest.mark.parametrize("version", range(14))
def test_the_answer_that_creates_a_topic_says_that_it_has_no_leader_yet_and_the_next_one_has_it(
    broker: BrokerProcess, version: int
) -> None:
    name = f"automatic-{version}"
    first = ask(broker, name, version)
    assert (first.name, first.error_code, first.partitions, first.topic_id) == (
        name,
        ErrorCode.LEADER_NOT_AVAILABLE,
        [],
        NO_UUID,
    )
    second = ask(broker, name, version)
    assert (second.error_code, [item.leader_id >= 0 for item in second.partitions]) == (ErrorCode.NONE, [True])


@pytest.mark.parametrize(
    ("name", "partitions", "own"),
    [
        (
            "__consumer_offsets",
            50,
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
        ),
        (
            "__transaction_state",
            7,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            },
        ),
        (
            "__share_group_state",
            50,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": "1",
                "retention.ms": "-1",
                "segment.bytes": "104857600",
            },
        ),
        ("ordinary", 1, {}),
    ],
)
def test_kafkas_own_topics_are_made_as_kafka_makes_them_when_metadata_ask_for_them(
    fresh: BrokerProcess, name: str, partitions: int, own: dict[str, str]
) -> None:
    first = ask(fresh, name)
    assert (first.error_code, first.is_internal) == (ErrorCode.LEADER_NOT_AVAILABLE, name.startswith("__"))
    assert len(ask(fresh, name).partitions) == partitions
    assert settings(fresh, name) == own


def test_the_controllers_log_is_no_topic(broker: BrokerProcess) -> None:
    assert create(broker, "__cluster_metadata") == (
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    )
    for _ in range(2):
        assert ask(broker, "__cluster_metadata").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
