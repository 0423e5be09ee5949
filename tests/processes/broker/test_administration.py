"""The requests of administrators' programs to a broker that is alone and has no authorizer. The expected answers are
those of Apache Kafka 4.3.1, and of 3.9.1 in ZooKeeper mode where it agrees or where 4.3.1 has dropped the version."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.language import Message
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation, CreateAclsResponse
from jesenska.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter, DeleteAclsResponse
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseResult,
)
from jesenska.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsRequestTopic,
    DescribeLogDirsResponse,
)
from jesenska.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic, ElectLeadersResponse
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from jesenska.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from jesenska.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)
from jesenska.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
)
from jesenska.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from jesenska.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from jesenska.wire.messages.k74_list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from tests.old_requests import create, produce
from tests.raw_connection import ClosedByBrokerError, RawConnection

_NOW_MS = 1_700_000_000_000
_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_SET, _DELETE, _APPEND = 0, 1, 2
_BROKER_ID = 3
_Filter = TypeVar("_Filter", DescribeAclsRequest, DeleteAclsRequestFilter)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("administration")
    with BrokerProcess(
        directory / "one",
        settings={"broker.id": str(_BROKER_ID), "log.dirs": f"{directory / 'one'},{directory / 'two'}"},
    ) as running:
        yield running


@pytest.fixture
def connection(own: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(own.bootstrap) as opened:
        yield opened


# --- listeners and versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_sasl_handshake_on_a_plain_listener_is_refused_and_the_connection_goes_on(
    connection: RawConnection, version: int
) -> None:
    answer = connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), version, SaslHandshakeResponse)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == ErrorCode.NONE


def test_the_features_of_the_cluster_are_said_with_an_epoch(connection: RawConnection) -> None:
    answer = connection.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4, ApiVersionsResponse
    )
    assert [(item.name, item.min_version, item.max_version) for item in answer.supported_features] == [
        ("transaction.version", 0, 2)
    ]
    assert [(item.name, item.min_version_level, item.max_version_level) for item in answer.finalized_features] == [
        ("transaction.version", 2, 2)
    ]
    assert answer.finalized_features_epoch > 0


def test_a_quorum_is_described_as_in_zookeeper_mode_by_closing_the_connection(connection: RawConnection) -> None:
    announced = {item.api_key for item in connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys}
    assert 55 not in announced
    connection.send_frame(struct.pack(">hhih", 55, 0, 1, -1) + b"\0\x01\0")
    assert connection.is_closed()


def test_what_is_not_served_is_told_once_for_each_client(own: BrokerProcess) -> None:
    def ask(client_id: bytes, key: int, version: int) -> None:
        with RawConnection(own.bootstrap) as connection:
            connection.send_frame(struct.pack(">hhih", key, version, 1, len(client_id)) + client_id)
            assert connection.is_closed()

    for _ in range(3):
        ask(b"curious", 68, 1)
    ask(b"curious", 72, 0)
    ask(b"another", 68, 1)
    ask(b"another", 3, 99)
    ask(b"curious", 999, 0)
    own.wait_until_said("API key 999")
    told = [line for line in own.log.splitlines() if "client 'curious'" in line or "client 'another'" in line]
    expected = [
        "INFO client 'curious' at 127.0.0.1 asked for ConsumerGroupHeartbeat (API key 68, version 1)",
        "INFO client 'curious' at 127.0.0.1 asked for PushTelemetry (API key 72, version 0)",
        "INFO client 'another' at 127.0.0.1 asked for ConsumerGroupHeartbeat (API key 68, version 1)",
        "INFO client 'another' at 127.0.0.1 asked for Metadata (API key 3, version 99)",
        "INFO client 'curious' at 127.0.0.1 asked for an unknown API (API key 999, version 0)",
    ]
    assert len(told) == len(expected)
    assert all(sentence in line for sentence, line in zip(expected, told, strict=True))


# --- access rules ----------------------------------------------------------------------------------------------------


def _filter(kind: Callable[..., _Filter], **fields: int) -> _Filter:
    given = {"resource_type_filter": 1, "pattern_type_filter": 3, "operation": 1, "permission_type": 1} | fields
    return kind(resource_name_filter=None, principal_filter=None, host_filter=None, **given)


def _rule(**fields: int) -> CreateAclsRequestCreation:
    given = {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3} | fields
    return CreateAclsRequestCreation(resource_name="a", principal="User:a", host="*", **given)


@pytest.mark.parametrize("version", range(4))
def test_access_rules_are_security_disabled_one_answer_for_each(connection: RawConnection, version: int) -> None:
    described = connection.ask(_filter(DescribeAclsRequest), version, DescribeAclsResponse)
    assert (described.error_code, described.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
    )
    created = connection.ask(CreateAclsRequest(creations=[_rule(), _rule()]), version, CreateAclsResponse)
    told = [(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")] * 2
    assert [(item.error_code, item.error_message) for item in created.results] == told
    filters = [_filter(DeleteAclsRequestFilter), _filter(DeleteAclsRequestFilter)]
    deleted = connection.ask(DeleteAclsRequest(filters=filters), version, DeleteAclsResponse)
    assert [(item.error_code, item.error_message) for item in deleted.filter_results] == told
    assert connection.ask(CreateAclsRequest(), version, CreateAclsResponse).results == []
    assert connection.ask(DeleteAclsRequest(), version, DeleteAclsResponse).filter_results == []


@pytest.mark.parametrize("unknown", ["resource_type", "pattern_type", "operation", "permission_type"])
def test_an_unknown_element_of_an_access_rule_closes_the_connection(own: BrokerProcess, unknown: str) -> None:
    filter_name = {"resource_type": "resource_type_filter", "pattern_type": "pattern_type_filter"}.get(unknown, unknown)
    rule_name = "resource_pattern_type" if unknown == "pattern_type" else unknown
    requests: list[tuple[Message, type[Message]]] = [
        (_filter(DescribeAclsRequest, **{filter_name: 0}), DescribeAclsResponse),
        (CreateAclsRequest(creations=[_rule(), _rule(**{rule_name: 0})]), CreateAclsResponse),
        (DeleteAclsRequest(filters=[_filter(DeleteAclsRequestFilter, **{filter_name: 0})]), DeleteAclsResponse),
    ]
    for request, response in requests:
        with RawConnection(own.bootstrap) as connection, pytest.raises(ClosedByBrokerError):
            connection.ask(request, 3, response)


# --- log directories -------------------------------------------------------------------------------------------------


def _sizes(answer: DescribeLogDirsResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", range(6))
def test_log_directories_are_described_with_what_their_partitions_take(
    own: BrokerProcess, connection: RawConnection, version: int
) -> None:
    name = create(connection, f"sized-{version}")
    batch = encode_batch([(_NOW_MS, b"key", b"value" * 100, ())])
    for _ in range(3):
        produce(connection, name, 7, batch)
    asked = DescribeLogDirsRequest(
        topics=[
            DescribeLogDirsRequestTopic(topic=name, partitions=[0, 0, 1, -1]),
            DescribeLogDirsRequestTopic(topic="no such"),
        ]
    )
    answer = connection.ask(asked, version, DescribeLogDirsResponse)
    assert _sizes(answer) == {(name, 0): 3 * len(batch)}
    assert [result.error_code for result in answer.results] == [ErrorCode.NONE] * 2
    assert {Path(result.log_dir).name for result in answer.results} == {"one", "two"}
    assert _sizes(connection.ask(DescribeLogDirsRequest(topics=None), version, DescribeLogDirsResponse)).items() >= {
        ((name, 0), 3 * len(batch))
    }
    assert _sizes(connection.ask(DescribeLogDirsRequest(topics=[]), version, DescribeLogDirsResponse)) == {}
    volume = shutil.disk_usage(answer.results[0].log_dir)
    assert {result.total_bytes for result in answer.results} == ({volume.total} if version >= 4 else {-1})
    assert all(
        0 < result.usable_bytes <= volume.total if version >= 4 else result.usable_bytes == -1
        for result in answer.results
    )
    assert answer.error_code == ErrorCode.NONE


# --- elections and moves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(connection: RawConnection, version: int) -> None:
    name = create(connection, f"elected-{version}")
    topics = [
        ElectLeadersRequestTopic(topic=name, partitions=[0, 1]),
        ElectLeadersRequestTopic(topic="no such", partitions=[0]),
    ]
    answer = connection.ask(ElectLeadersRequest(topic_partitions=topics), version, ElectLeadersResponse)
    assert answer.error_code == ErrorCode.NONE
    assert [
        [(item.partition_id, item.error_code, item.error_message) for item in topic.partition_result]
        for topic in answer.replica_election_results
    ] == [
        [
            (0, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
            (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-1"),
        ],
        [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as no such")],
    ]
    every = connection.ask(ElectLeadersRequest(topic_partitions=None), version, ElectLeadersResponse)
    assert (
        every.error_code,
        {topic.topic: topic.partition_result for topic in every.replica_election_results}[name],
    ) == (ErrorCode.NONE, [])
    assert (
        connection.ask(ElectLeadersRequest(topic_partitions=[], timeout_ms=0), version, ElectLeadersResponse).error_code
        == ErrorCode.NONE
    )


@pytest.mark.parametrize("version", range(3))
def test_a_name_of_any_length_is_answered(connection: RawConnection, version: int) -> None:
    topics = [ElectLeadersRequestTopic(topic="x" * 32767, partitions=[0])]
    answer = connection.ask(ElectLeadersRequest(topic_partitions=topics), version, ElectLeadersResponse)
    assert answer.replica_election_results[0].partition_result[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_election_of_an_unknown_kind_or_without_time_is_refused_as_a_whole(connection: RawConnection) -> None:
    topics = [ElectLeadersRequestTopic(topic="any", partitions=[0])]
    for fields, code, message in (
        ({"election_type": 2}, ErrorCode.INVALID_REQUEST, "Unknown election type 2"),
        ({"timeout_ms": 0}, ErrorCode.REQUEST_TIMED_OUT, None),
    ):
        for version in (1, 2):
            answer = connection.ask(
                ElectLeadersRequest(topic_partitions=topics, **fields), version, ElectLeadersResponse
            )
            result = answer.replica_election_results[0].partition_result[0]
            assert (answer.error_code, result.error_code, result.error_message) == (code, code, message)
            assert (
                connection.ask(
                    ElectLeadersRequest(topic_partitions=None, **fields), version, ElectLeadersResponse
                ).error_code
                == code
            )
    old = connection.ask(ElectLeadersRequest(topic_partitions=topics, timeout_ms=-1), 0, ElectLeadersResponse)
    assert old.replica_election_results[0].partition_result[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_partition_may_be_moved_where_it_is_and_nowhere_else(connection: RawConnection) -> None:
    name = create(connection, "moved")

    def moved(topic: str, partition: int, replicas: list[int] | None, **fields: int) -> tuple[int, str | None]:
        asked = AlterPartitionReassignmentsRequestPartition(partition_index=partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequestTopic(name=topic, partitions=[asked])], **fields
        )
        answer = connection.ask(request, 1, AlterPartitionReassignmentsResponse)
        assert answer.error_code == (ErrorCode.NONE if not fields else ErrorCode.REQUEST_TIMED_OUT)
        item = answer.responses[0].partitions[0]
        return item.error_code, item.error_message

    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert moved(name, 0, [_BROKER_ID]) == (ErrorCode.NONE, None)
    assert moved(name, 0, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    assert moved(name, 0, []) == (refused, "The manual partition assignment includes an empty replica list.")
    assert moved(name, 0, [_BROKER_ID] * 2) == (
        refused,
        f"The manual partition assignment includes the broker {_BROKER_ID} more than once.",
    )
    assert moved(name, 0, [_BROKER_ID, 7]) == (
        refused,
        "The manual partition assignment includes broker 7, but no such broker is registered.",
    )
    assert moved(name, 5, [_BROKER_ID]) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:5.")
    assert moved("no such", 0, None) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named no such.")
    assert moved(name, 0, [_BROKER_ID], timeout_ms=0) == (ErrorCode.REQUEST_TIMED_OUT, None)
    listed = connection.ask(ListPartitionReassignmentsRequest(topics=None), 0, ListPartitionReassignmentsResponse)
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


# --- quotas, users, producers, transactions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([], ErrorCode.NONE, ""),
        ([("user", 0, "a"), ("client-id", 2, None)], ErrorCode.NONE, ""),
        ([("ip", 1, None)], ErrorCode.NONE, ""),
        ([("", 9, None)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 9, None)],
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("bogus", 9, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type bogus"),
        (
            [("user", 0, None)],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", 1, "")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", 2, "a")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        (
            [("ip", 2, None), ("user", 2, None)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        ),
    ],
)
def test_filters_of_quotas_are_checked_and_match_nothing(
    connection: RawConnection, components: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    asked = [
        DescribeClientQuotasRequestComponent(entity_type=kind, match_type=how, match=match)
        for kind, how, match in components
    ]
    for version in (0, 1):
        answer = connection.ask(DescribeClientQuotasRequest(components=asked), version, DescribeClientQuotasResponse)
        assert (answer.error_code, answer.error_message) == (code, message)
        assert answer.entries == ([] if code == ErrorCode.NONE else None)


def test_no_user_has_credentials(connection: RawConnection) -> None:
    for everybody in (DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsRequest(users=[])):
        answer = connection.ask(everybody, 0, DescribeUserScramCredentialsResponse)
        assert (answer.error_code, answer.results) == (ErrorCode.NONE, [])
    named = [DescribeUserScramCredentialsRequestUser(name=name) for name in ("a", "b", "a")]
    answer = connection.ask(DescribeUserScramCredentialsRequest(users=named), 0, DescribeUserScramCredentialsResponse)
    assert [(item.user, item.error_code) for item in answer.results] == [
        ("a", ErrorCode.DUPLICATE_RESOURCE),
        ("b", ErrorCode.RESOURCE_NOT_FOUND),
    ]


def test_producers_are_described_as_the_log_knows_them(connection: RawConnection) -> None:
    name = create(connection, "produced")
    for producer, epoch, sequence, count in ((5000, 0, 0, 3), (5000, 0, 3, 2), (5001, 2, 0, 1)):
        records = [(_NOW_MS + number, b"key", b"value", ()) for number in range(count)]
        batch = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        assert produce(connection, name, 7, batch, acks=-1).error_code == ErrorCode.NONE
    topics = [
        DescribeProducersRequestTopic(name=asked, partition_indexes=numbers)
        for asked, numbers in ((name, [0, 1]), ("nowhere", [0]), ("b d", [0]))
    ]
    known, unknown, illegal = connection.ask(
        DescribeProducersRequest(topics=topics), 0, DescribeProducersResponse
    ).topics
    assert [
        (item.producer_id, item.producer_epoch, item.last_sequence, item.last_timestamp)
        for item in known.partitions[0].active_producers
    ] == [
        (5000, 0, 4, _NOW_MS + 1),
        (5001, 2, 0, _NOW_MS),
    ]
    assert {
        (item.coordinator_epoch, item.current_txn_start_offset) for item in known.partitions[0].active_producers
    } == {(-1, -1)}
    assert [(item.error_code, item.error_message) for item in known.partitions] == [
        (ErrorCode.NONE, None),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown.partitions[0].error_message == "This server does not host this topic-partition."
    assert illegal.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_no_transactions_are_listed_where_there_are_none_and_states_that_nobody_knows_are_named(
    connection: RawConnection,
) -> None:
    for version in range(2):
        answer = connection.ask(
            ListTransactionsRequest(state_filters=["Ongoing", "ongoing", "Dead", ""]), version, ListTransactionsResponse
        )
        assert (answer.error_code, answer.unknown_state_filters, answer.transaction_states) == (
            ErrorCode.NONE,
            ["ongoing", ""],
            [],
        )


# --- resources with settings -----------------------------------------------------------------------------------------


def test_resources_with_settings_are_listed_by_type(connection: RawConnection) -> None:
    name = create(connection, "listed")

    def listed(*kinds: int) -> set[tuple[str, int]] | int:
        answer = connection.ask(ListConfigResourcesRequest(resource_types=list(kinds)), 1, ListConfigResourcesResponse)
        return answer.error_code or {(item.resource_name, item.resource_type) for item in answer.config_resources}

    broker = str(_BROKER_ID)
    assert {(name, _TOPIC), (broker, _BROKER), (broker, _LOGGER)} <= set(listed())  # type: ignore[arg-type]
    assert listed(_BROKER, _BROKER) == {(broker, _BROKER)}
    assert listed(_LOGGER) == {(broker, _LOGGER)}
    assert listed(_CLIENT_METRICS, _GROUP) == set()
    for kind in (0, 1, 3, 64, -1):
        assert listed(_TOPIC, kind) == ErrorCode.UNSUPPORTED_VERSION
    old = connection.ask(ListConfigResourcesRequest(), 0, ListConfigResourcesResponse)
    assert (old.error_code, old.config_resources) == (ErrorCode.NONE, [])


def _described(
    connection: RawConnection, kind: int, name: str, keys: list[str] | None = None
) -> DescribeConfigsResponseResult:
    resource = DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return connection.ask(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results[0]


def _altered(
    connection: RawConnection, *changes: tuple[str, int, str | None], name: str = str(_BROKER_ID), only: bool = False
) -> tuple[int, str | None]:
    configs = [
        IncrementalAlterConfigsRequestConfig(name=logger, config_operation=operation, value=value)
        for logger, operation, value in changes
    ]
    resource = IncrementalAlterConfigsRequestResource(resource_type=_LOGGER, resource_name=name, configs=configs)
    result = connection.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=only), 1, IncrementalAlterConfigsResponse
    ).responses[0]
    return result.error_code, result.error_message


def _levels(connection: RawConnection, *names: str) -> dict[str, str | None]:
    result = _described(connection, _LOGGER, str(_BROKER_ID), list(names))
    assert result.error_code == ErrorCode.NONE
    assert {(config.config_source, config.read_only, config.is_sensitive) for config in result.configs} <= {
        (6, False, False)
    }
    return {config.name: config.value for config in result.configs}


def test_levels_of_loggers_are_described_changed_and_given_back(own: BrokerProcess, connection: RawConnection) -> None:
    logger, above = "jesenska.broker.requests.dispatch", "jesenska"
    assert _levels(connection, "root", above, logger) == {"root": "INFO", above: "INFO", logger: "INFO"}
    assert {"root", above, logger} <= _levels(connection).keys()
    assert _altered(connection, (logger, _SET, "DEBUG")) == (ErrorCode.NONE, None)
    assert _levels(connection, logger, above) == {logger: "DEBUG", above: "INFO"}
    assert "DEBUG connection from 127.0.0.1 closed" not in own.log
    with RawConnection(own.bootstrap) as broken:
        broken.send_frame(b"short")
        assert broken.is_closed()
    own.wait_until_said("DEBUG connection from 127.0.0.1 closed")
    assert _altered(connection, (above, _SET, "ERROR"), (logger, _DELETE, None)) == (ErrorCode.NONE, None)
    assert _levels(connection, logger, "jesenska.broker.coordinators.coordinated_topic") == {
        logger: "ERROR",
        "jesenska.broker.coordinators.coordinated_topic": "ERROR",
    }
    assert _altered(connection, (above, _SET, "FATAL"), only=True) == (ErrorCode.NONE, None)
    assert _levels(connection, above) == {above: "ERROR"}
    assert _altered(connection, (above, _DELETE, None)) == (ErrorCode.NONE, None)
    assert _levels(connection, above) == {above: "INFO"}


def test_mistakes_in_levels_of_loggers_are_refused_and_change_nothing(connection: RawConnection) -> None:
    logger = "jesenska.broker.controlling.controller_client"
    invalid, refused = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
    levels = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
    assert _altered(connection, (logger, _SET, "ERROR"), ("nowhere", _SET, "INFO")) == (
        invalid,
        "Logger nowhere does not exist!",
    )
    assert _altered(connection, (logger, _SET, "info")) == (
        invalid,
        f"Cannot set the log level of {logger} to info as it is not a supported log level. {levels}",
    )
    assert _altered(connection, ("nowhere", _APPEND, "INFO")) == (
        refused,
        "APPEND operation is not allowed for the BROKER_LOGGER resource",
    )
    assert _altered(connection, ("root", _DELETE, None)) == (
        refused,
        "Removing the log level of the root logger is not allowed",
    )
    assert _altered(connection, (logger, _SET, None)) == (refused, f"Null value not supported for : {logger}")
    assert _altered(connection, (logger, _SET, "INFO"), (logger, _DELETE, None)) == (
        refused,
        "Error due to duplicate config keys",
    )
    assert _altered(connection, (logger, 9, "INFO")) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    assert _altered(connection, name="7") == (refused, f"Unexpected node id. Expected {_BROKER_ID}, but received 7")
    for name in ("", "x", f" {_BROKER_ID}", "9" * 30):
        assert _altered(connection, name=name) == (refused, f"Node id must be an integer, but it is: {name}")
    assert _levels(connection, logger) == {logger: "INFO"}
    for name, message in (
        ("", "Broker id must not be empty"),
        ("7", f"Unexpected broker id, expected {_BROKER_ID} but received 7"),
    ):
        result = _described(connection, _LOGGER, name)
        assert (result.error_code, result.error_message) == (refused, message)


def test_subscriptions_to_clients_metrics_have_their_defaults(connection: RawConnection) -> None:
    result = _described(connection, _CLIENT_METRICS, "any")
    assert result.error_code == ErrorCode.NONE
    assert {(config.name, config.value, config.config_type, config.config_source) for config in result.configs} == {
        ("interval.ms", "300000", 3, 5),
        ("match", "", 7, 5),
        ("metrics", "", 7, 5),
    }
    assert [config.name for config in _described(connection, _CLIENT_METRICS, "any", ["match", "none"]).configs] == [
        "match"
    ]
    unnamed = _described(connection, _CLIENT_METRICS, "")
    assert (unnamed.error_code, unnamed.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Client metrics subscription name must not be empty",
    )
