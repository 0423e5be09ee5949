"""Requests of administrators that name something twice, nothing, or by two names: the answers of Apache Kafka
4.3.1."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID
from jesenska.base.limits import DESCRIBED_AGAIN_MAX
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic, DeleteTopicsResponse
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from jesenska.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResponse,
)
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.raw_connection import RawConnection

_TOPIC, _BROKER = 2, 4
Said = tuple[str | None, ErrorCode, str | None]


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap) as connection:
        yield connection


def create(connection: RawConnection, *names: str) -> dict[str, uuid.UUID]:
    wanted = [CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    answer = connection.ask(CreateTopicsRequest(topics=wanted, timeout_ms=10_000), 7, CreateTopicsResponse)
    assert {item.error_code for item in answer.topics} == {ErrorCode.NONE}
    return {item.name: item.topic_id for item in answer.topics}


def there(connection: RawConnection, *names: str) -> set[str]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    return {
        item.name or ""
        for item in connection.ask(request, 9, MetadataResponse).topics
        if item.error_code == ErrorCode.NONE
    }


def delete(connection: RawConnection, *items: str | uuid.UUID | tuple[str | None, uuid.UUID]) -> list[Said]:
    """Deletes topics by name, by id, or by both."""
    topics = []
    for item in items:
        name, topic_id = (
            item if isinstance(item, tuple) else (None, item) if isinstance(item, uuid.UUID) else (item, NO_UUID)
        )
        topics.append(DeleteTopicsRequestTopic(name=name, topic_id=topic_id))
    answer = connection.ask(DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6, DeleteTopicsResponse)
    return [(item.name, ErrorCode(item.error_code), item.error_message) for item in answer.responses]


def refused(name: str | None, message: str) -> Said:
    return name, ErrorCode.INVALID_REQUEST, message


@pytest.mark.parametrize("version", [1, 5, 6])
def test_a_topic_that_a_deletion_names_twice_stays(connection: RawConnection, version: int) -> None:
    names = [f"twice-{version}", f"once-{version}"]
    create(connection, *names)
    listed = [names[0], names[1], names[0]]
    request = DeleteTopicsRequest(timeout_ms=10_000)
    if version < 6:
        request.topic_names = listed
    else:
        request.topics = [DeleteTopicsRequestTopic(name=name) for name in listed]
    answer = connection.ask(request, version, DeleteTopicsResponse)
    assert [(item.name, item.error_code) for item in answer.responses] == [
        (names[0], ErrorCode.INVALID_REQUEST),
        (names[1], ErrorCode.NONE),
    ]
    assert there(connection, *names) == {names[0]}


def test_a_deletion_by_id_twice_or_by_id_and_name_is_refused(connection: RawConnection) -> None:
    topic_id = create(connection, "twice-by-id")["twice-by-id"]
    unknown = uuid.UUID(int=77)
    assert delete(connection, topic_id, topic_id) == [refused(None, "Duplicate topic id.")]
    assert delete(connection, unknown, unknown) == [refused(None, "Duplicate topic id.")]
    assert delete(connection, topic_id, "twice-by-id") == [
        refused("twice-by-id", "The provided topic name maps to an ID that was already supplied.")
    ]
    assert delete(connection, ("twice-by-id", topic_id)) == [
        refused("twice-by-id", "You may not specify both topic name and topic id.")
    ]
    assert delete(connection, (None, NO_UUID)) == [refused(None, "Neither topic name nor id were specified.")]
    assert there(connection, "twice-by-id") == {"twice-by-id"}
    assert delete(connection, topic_id, "nobody") == [
        ("twice-by-id", ErrorCode.NONE, None),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
    ]
    assert there(connection, "twice-by-id") == set()


def test_a_resource_whose_settings_a_request_changes_twice_keeps_them(connection: RawConnection) -> None:
    create(connection, "set-twice", "set-once")
    message = "Each resource must appear at most once."
    expected = [(name, ErrorCode.INVALID_REQUEST, message) for name in ("set-twice", "set-twice")] + [
        ("set-once", ErrorCode.NONE, None)
    ]
    names = ("set-twice", "set-twice", "set-once")
    config = IncrementalAlterConfigsRequestConfig(name="retention.ms", config_operation=0, value="1234567")
    resources = [
        IncrementalAlterConfigsRequestResource(resource_type=_TOPIC, resource_name=name, configs=[config])
        for name in names
    ]
    changed = connection.ask(IncrementalAlterConfigsRequest(resources=resources), 1, IncrementalAlterConfigsResponse)
    assert [(item.resource_name, item.error_code, item.error_message) for item in changed.responses] == expected
    old_config = AlterConfigsRequestConfig(name="segment.ms", value="1234567")
    old = [
        AlterConfigsRequestResource(resource_type=_TOPIC, resource_name=name, configs=[old_config]) for name in names
    ]
    replaced = connection.ask(AlterConfigsRequest(resources=old), 2, AlterConfigsResponse)
    assert [(item.resource_name, item.error_code, item.error_message) for item in replaced.responses] == expected
    for name, setting, value in (
        ("set-twice", "retention.ms", "604800000"),
        ("set-twice", "segment.ms", "604800000"),
        ("set-once", "segment.ms", "1234567"),
    ):
        assert described(connection, _TOPIC, name, [setting]) == {setting: value}


def described(connection: RawConnection, kind: int, name: str, keys: list[str] | None) -> dict[str, str | None]:
    resource = DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (found,) = connection.ask(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results
    assert found.error_code == ErrorCode.NONE
    return {item.name: item.value for item in found.configs}


def test_a_description_of_no_settings_is_one_of_all(connection: RawConnection) -> None:
    create(connection, "described")
    broker_id = str(connection.ask(MetadataRequest(topics=[]), 9, MetadataResponse).controller_id)
    for kind, name in ((_TOPIC, "described"), (_BROKER, broker_id)):
        everything = described(connection, kind, name, None)
        assert len(everything) > 20
        assert described(connection, kind, name, []) == everything


def test_a_creation_that_went_well_has_no_message(connection: RawConnection) -> None:
    wanted = [CreateTopicsRequestTopic(name="without-a-message", num_partitions=1, replication_factor=1)]
    for validate_only in (True, False):
        request = CreateTopicsRequest(topics=wanted, timeout_ms=10_000, validate_only=validate_only)
        (answer,) = connection.ask(request, 7, CreateTopicsResponse).topics
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)


def test_a_resource_that_is_described_again_and_again_is_refused_in_the_end_and_others_are_not(
    connection: RawConnection,
) -> None:
    create(connection, "often", "once-behind-it")
    settings = described(connection, _TOPIC, "often", None)
    often = DescribeConfigsRequestResource(resource_type=_TOPIC, resource_name="often", configuration_keys=None)
    once = DescribeConfigsRequestResource(
        resource_type=_TOPIC, resource_name="once-behind-it", configuration_keys=["retention.ms"]
    )
    answer = connection.ask(DescribeConfigsRequest(resources=[often] * 2_000 + [once]), 4, DescribeConfigsResponse)
    *repeated, other = answer.results
    answered = [item for item in repeated if item.error_code == ErrorCode.NONE]
    assert all({config.name: config.value for config in item.configs} == settings for item in answered)
    assert sum(len(item.configs) for item in answered) in range(
        DESCRIBED_AGAIN_MAX, DESCRIBED_AGAIN_MAX + 3 * len(settings)
    )
    assert {item.error_code for item in repeated[len(answered) :]} == {ErrorCode.INVALID_REQUEST}
    assert (other.error_code, [config.name for config in other.configs]) == (ErrorCode.NONE, ["retention.ms"])
