"""What each request needs, what its refusal answers, and what is left out of answers."""

from __future__ import annotations

import copy
import logging
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import NO_UUID
from jesenska.broker.metadata_cache import MetadataCache
from jesenska.broker.requests.authorization.access import Access, Authorizer, host_text
from jesenska.broker.requests.authorization.table import RULES
from jesenska.broker.requests.served import VERSIONS
from jesenska.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    Acls,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.security.principal import Principal
from jesenska.wire.codec import encode
from jesenska.wire.language import BOOLEAN, BYTES, STRING, UUID, Array, Message, Struct, Type
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from jesenska.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
)
from jesenska.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from jesenska.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic, DeleteTopicsResponse
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
)
from jesenska.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from jesenska.wire.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTopic,
    DescribeTransactionsResponseTransaction,
)
from jesenska.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
)
from jesenska.wire.registry import APIS

T, G, C, X = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
Op = AclOperation
TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, TRANSACTION_FAILED = 29, 30, 31, 53
ID = uuid.UUID(int=5)

#: The codes in the answer to somebody who may do nothing. None: the request is for everyone.
REFUSALS: dict[int, int | None] = {
    **dict.fromkeys((0, 1, 2, 3, 19, 20, 21, 23, 32, 33, 37, 44, 61, 75), TOPIC_FAILED),
    **dict.fromkeys((8, 9, 10, 11, 12, 13, 14, 15, 42, 47), GROUP_FAILED),
    **dict.fromkeys((4, 5, 6, 7, 27, 29, 30, 31, 34, 35, 43, 45, 46, 48, 49, 50, 51, 56, 57, 67, 74), CLUSTER_FAILED),
    **dict.fromkeys((22, 24, 25, 26, 28, 65), TRANSACTION_FAILED),
    # 38 to 41 are checked by their handlers (tests/processes/broker/test_delegation_tokens.py).
    **dict.fromkeys((16, 17, 18, 36, 38, 39, 40, 41, 60, 66), None),
}
EVERY_VERSION = [(key, version) for key, (low, high) in VERSIONS.items() for version in range(low, high + 1)]


def access(*rules: tuple[AclOperation, ResourceType, str], user: str = "anna", creates: bool = True) -> Access:
    """The rights of a user who may do this, in a cluster with the topics `a` and `b`."""
    acls = Acls([Principal("User", "admin")])
    found: dict[ResourcePattern, list[AclEntry]] = {}
    for operation, kind, name in rules:
        entry = AclEntry("User:anna", "*", operation, Permission.ALLOW)
        found.setdefault(ResourcePattern(kind, name), []).append(entry)
    for pattern, entries in found.items():
        acls.put(pattern, entries)
    topics = {name: SimpleNamespace(name=name) for name in ("a", "b")}
    view: Any = SimpleNamespace(topics=topics, by_id={ID: topics["b"]})
    authorizer = Authorizer(acls, view, lambda: creates, RULES)
    return authorizer.access_for(Principal("User", user), "10.0.0.1")


def check(rights: Access, request: Any, version: int) -> Any:
    return rights._authorizer.check(rights, request.api_key, version, request)


def amended(rights: Access, request: Any, version: int, response: Any) -> Any:
    """The answer after the rule had its say."""
    verdict = check(rights, request, version)
    assert callable(verdict)
    verdict(response)
    encode(response, version)
    return response


def filled(kind: type[Struct], version: int, topic_id: uuid.UUID) -> Any:
    """A struct with something in every field that the version has: `x`, true, and lists of one."""
    values: dict[str, Any] = {}
    for item in [item for item in kind.fields if item.present(version)]:
        if isinstance(item.type, Array):
            element = item.type.element
            values[item.name] = [filled(element, version, topic_id) if not isinstance(element, Type) else _one(element)]
        elif isinstance(item.type, Type):
            if item.type is UUID:
                values[item.name] = topic_id
            elif item.type in (STRING, BYTES, BOOLEAN):
                values[item.name] = _one(item.type)
        elif item.nullable is None:
            values[item.name] = filled(item.type, version, topic_id)
        if item.name == "resource_type":
            values[item.name] = 2
    return kind(**values)


def _one(kind: Type) -> Any:
    return {STRING: "x", BYTES: b"x", BOOLEAN: True}.get(kind, 1)


def request_of(key: int, version: int) -> Any:
    request = filled(APIS[key].request, version, ID if key in (0, 8, 9) else NO_UUID)
    if key == 0:
        request.acks = 1
    if key == 1:
        request.replica_id = 1
    # A type of an access rule that is 0 (UNKNOWN) closes the connection before rights are looked at.
    rules = {29: [request], 30: getattr(request, "creations", []), 31: getattr(request, "filters", [])}.get(key, [])
    for item in rules:
        for name in ("resource_type", "resource_pattern_type", "resource_type_filter", "pattern_type_filter"):
            if hasattr(item, name):
                setattr(item, name, 1)
        item.operation = item.permission_type = 1
    return request


def codes(value: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(value, list):
        for item in value:
            yield from codes(item)
    elif isinstance(value, Struct):
        for item in value.fields:
            found = getattr(value, item.name)
            if item.name.endswith("error_code") and found:
                yield int(found)
            yield from codes(found)


def test_every_served_key_has_a_rule_and_a_place_in_this_test() -> None:
    assert set(RULES) == set(VERSIONS) == set(REFUSALS)


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_who_may_do_nothing_is_refused_in_every_version(key: int, version: int) -> None:
    request, expected = request_of(key, version), REFUSALS[key]
    verdict = check(access(), request, version)
    response = verdict if isinstance(verdict, Message) else APIS[key].response()
    if verdict is not None and verdict is not response:
        verdict(response)
    encode(response, version)
    if (key, version) == (24, 4) or (key == 24 and version > 4):
        expected = CLUSTER_FAILED
    if expected is None or (key == 35 and version < 3):
        assert not set(codes(response))
    else:
        assert set(codes(response)) == {expected}


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_a_super_user_is_asked_nothing(key: int, version: int) -> None:
    request = request_of(key, version)
    before = copy.deepcopy(request)
    verdict = check(access(user="admin"), request, version)
    assert not isinstance(verdict, Message)
    assert request == before
    if verdict is not None and key != 65:
        response = APIS[key].response()
        verdict(response)
        assert not set(codes(response))


# --- topics ----------------------------------------------------------------------------------------------------------


def produce_of(*names: str, acks: int = 1, records: Any = None, transaction: str | None = None) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        transactional_id=transaction,
        topic_data=[
            ProduceRequestTopic(name=name, partition_data=[ProduceRequestPartition(index=0, records=records)])
            for name in names
        ],
    )


def test_produce_goes_on_with_the_topics_that_are_allowed() -> None:
    request = produce_of("b", "a", "c")
    written = ProduceResponse(
        responses=[ProduceResponseTopic(name="a", partition_responses=[ProduceResponsePartition(index=0)])]
    )
    response = amended(access((Op.WRITE, T, "a")), request, 9, written)
    assert [topic.name for topic in request.topic_data] == ["a"]
    assert [(topic.name, topic.partition_responses[0].error_code) for topic in response.responses] == [
        ("a", 0),
        ("b", TOPIC_FAILED),
        ("c", TOPIC_FAILED),
    ]


def test_produce_by_id_is_checked_by_the_name_and_an_unknown_id_stays() -> None:
    request = produce_of("", "")
    request.topic_data[0].topic_id = ID
    request.topic_data[1].topic_id = uuid.UUID(int=9)
    response = amended(access(), request, 13, ProduceResponse())
    assert [topic.topic_id for topic in request.topic_data] == [uuid.UUID(int=9)]
    assert set(codes(response)) == {TOPIC_FAILED}


def test_a_producer_that_wants_no_answer_loses_its_connection() -> None:
    with pytest.raises(KafkaError):
        check(access(), produce_of("a", acks=0), 9)
    assert callable(check(access((Op.WRITE, T, "a")), produce_of("a", "b", acks=0), 9))


def test_records_of_a_transaction_need_the_transactional_id() -> None:
    batch = bytearray(61)
    batch[16], batch[22] = 2, 0x10
    request = produce_of("a", records=memoryview(bytes(batch)), transaction="x")
    response = check(access((Op.WRITE, T, "a")), request, 9)
    assert set(codes(response)) == {TRANSACTION_FAILED}
    assert check(access((Op.WRITE, T, "a"), (Op.WRITE, X, "x")), request, 9) is None
    assert check(access((Op.WRITE, T, "a")), produce_of("a", transaction="x"), 9) is None


def metadata_of(*names: str | None, **more: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **more)


def test_metadata_of_all_topics_leaves_out_what_may_not_be_seen() -> None:
    everything = MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in ("a", "b")])
    for request, version in ((MetadataRequest(topics=None), 9), (MetadataRequest(topics=[]), 0)):
        response = amended(access((Op.READ, T, "a")), request, version, copy.deepcopy(everything))
        assert [topic.name for topic in response.topics] == ["a"]


@pytest.mark.parametrize("version", [0, 1, 9, 12])
def test_metadata_does_not_tell_if_a_refused_topic_exists(version: int) -> None:
    request = metadata_of("b", "nothing")
    rights = access((Op.READ, T, "a"))
    verdict = check(rights, request, version)
    # What the handler makes of what is left; an empty list would ask for all topics in version 0.
    assert [item.name for item in request.topics or []] == [""]
    response = MetadataResponse(topics=[MetadataResponseTopic(name="", error_code=17)])
    verdict(response)
    assert [(topic.name, topic.error_code, topic.topic_id) for topic in response.topics] == [
        ("b", TOPIC_FAILED, NO_UUID),
        ("nothing", TOPIC_FAILED, NO_UUID),
    ]


def test_metadata_by_id_answers_a_refused_topic_as_refused_and_without_its_name() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ID)])
    response = amended(access(), request, 12, MetadataResponse())
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [(None, ID, 29)]


def test_metadata_creates_a_topic_for_who_may_create_it() -> None:
    describe = (Op.DESCRIBE, T, "new")

    def left(rights: Access, **more: Any) -> list[str | None]:
        request = metadata_of("new", "a", **more)
        check(rights, request, 9)
        return [item.name for item in request.topics or []]

    assert left(access(describe)) == [""]
    assert left(access(describe, (Op.CREATE, T, "new"))) == ["new"]
    assert left(access(describe, (Op.CREATE, C, CLUSTER_NAME))) == ["new"]
    assert left(access(describe), allow_auto_topic_creation=False) == ["new"]
    assert left(access(describe, creates=False)) == ["new"]


def test_metadata_shows_the_operations_of_the_user() -> None:
    request = metadata_of("a", include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    made = MetadataResponse(
        topics=[MetadataResponseTopic(name="a", topic_authorized_operations=-1)], cluster_authorized_operations=-1
    )
    response = amended(access((Op.READ, T, "a")), request, 8, made)
    assert response.topics[0].topic_authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
    assert response.cluster_authorized_operations == 0
    rights = access((Op.READ, T, "a"), (Op.DESCRIBE, C, CLUSTER_NAME))
    assert amended(rights, request, 8, made).cluster_authorized_operations == 1 << Op.DESCRIBE


def test_created_topics_stay_in_order_and_hide_their_settings() -> None:
    request = CreateTopicsRequest(topics=[CreateTopicsRequestTopic(name=name) for name in ("x", "y", "z", "z")])
    config = CreateTopicsResponseConfig(name="k", value="v")
    made = CreateTopicsResponse(
        topics=[
            CreateTopicsResponseTopic(name="y", num_partitions=1, replication_factor=1, configs=[config]),
            CreateTopicsResponseTopic(name="z", error_code=42),
        ]
    )
    response = amended(access((Op.CREATE, T, "y")), request, 7, made)
    assert [item.name for item in request.topics] == ["y", "z", "z"]
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("x", 29), ("y", 0), ("z", 42)]
    hidden = response.topics[1]
    assert (hidden.configs, hidden.num_partitions, hidden.topic_config_error_code) == (None, -1, TOPIC_FAILED)
    everything = access((Op.CREATE, C, CLUSTER_NAME), (Op.DESCRIBE_CONFIGS, T, "*"))
    assert check(everything, CreateTopicsRequest(topics=[CreateTopicsRequestTopic(name="x")]), 7) is None


def test_a_topic_that_is_deleted_by_its_id_keeps_its_name_from_who_may_not_describe_it() -> None:
    def answered(rights: Access) -> str | None:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(topic_id=ID)])
        response = check(rights, request, 6)
        assert isinstance(response, DeleteTopicsResponse)
        assert response.responses[0].error_code == TOPIC_FAILED
        return response.responses[0].name

    assert answered(access()) is None
    assert answered(access((Op.DESCRIBE, T, "b"))) == "b"
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(topic_id=uuid.UUID(int=8))])
    assert check(access(), request, 6) is None


def test_settings_of_each_resource_have_their_own_error() -> None:
    resources = [
        DescribeConfigsRequestResource(resource_type=kind, resource_name="a", configuration_keys=None)
        for kind in (2, 4, 8, 16, 32)
    ]
    response = check(access(), DescribeConfigsRequest(resources=resources), 4)
    assert [item.error_code for item in response.results] == [29, 31, 31, 31, 30]


def test_pages_of_partitions_are_made_of_the_topics_that_may_be_described() -> None:
    rights = access((Op.DESCRIBE, T, "b"))
    request = DescribeTopicPartitionsRequest(cursor=DescribeTopicPartitionsRequestCursor(topic_name="a"))
    assert callable(check(rights, request, 0))
    assert [item.name for item in request.topics] == ["b"]
    assert request.cursor is None
    nothing = check(access(), DescribeTopicPartitionsRequest(), 0)
    assert nothing == DescribeTopicPartitionsResponse(topics=[], next_cursor=None)


# --- groups ----------------------------------------------------------------------------------------------------------


def test_groups_that_may_not_be_described_are_not_listed() -> None:
    def listed(rights: Access) -> list[str]:
        groups = [ListGroupsResponseGroup(group_id=name) for name in ("g", "h")]
        response = ListGroupsResponse(groups=groups)
        verdict = check(rights, ListGroupsRequest(), 5)
        if verdict is not None:
            verdict(response)
        return [group.group_id for group in response.groups]

    assert listed(access((Op.READ, G, "h"))) == ["h"]
    assert listed(access((Op.DESCRIBE, C, CLUSTER_NAME))) == ["g", "h"]


def test_coordinators_are_answered_in_the_order_of_the_request() -> None:
    request = FindCoordinatorRequest(coordinator_keys=["g", "h", "i"])
    found = FindCoordinatorResponse(coordinators=[FindCoordinatorResponseCoordinator(key="h", error_message="")])
    response = amended(access((Op.READ, G, "h")), request, 5, found)
    assert [(item.key, item.error_code) for item in response.coordinators] == [("g", 30), ("h", 0), ("i", 30)]
    transaction = FindCoordinatorRequest(key="x", key_type=1)
    assert check(access(), transaction, 2).error_code == TRANSACTION_FAILED
    assert check(access((Op.WRITE, X, "x")), transaction, 2) is None


def test_offsets_of_topics_that_may_not_be_described_are_refused_or_left_out() -> None:
    def topic(name: str) -> OffsetFetchRequestGroupTopic:
        return OffsetFetchRequestGroupTopic(name=name, partition_indexes=[0])

    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="no", topics=[topic("a")]),
            OffsetFetchRequestGroup(group_id="g", topics=[topic("a"), topic("b")]),
            OffsetFetchRequestGroup(group_id="all", topics=None),
        ]
    )
    made = OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseGroupTopic(name="a")]),
            OffsetFetchResponseGroup(
                group_id="all", topics=[OffsetFetchResponseGroupTopic(name=name) for name in ("a", "b")]
            ),
        ]
    )
    rights = access((Op.DESCRIBE, G, "g"), (Op.DESCRIBE, G, "all"), (Op.DESCRIBE, T, "a"))
    response = amended(rights, request, 8, made)
    assert [(group.group_id, group.error_code) for group in response.groups] == [("no", 30), ("g", 0), ("all", 0)]
    assert [item.name for item in response.groups[1].topics] == ["a", "b"]
    assert response.groups[1].topics[1].partitions[0].error_code == TOPIC_FAILED
    assert [item.name for item in response.groups[2].topics] == ["a"]


# --- transactions ----------------------------------------------------------------------------------------------------


def test_an_idempotent_producer_needs_the_cluster_or_any_topic() -> None:
    request = InitProducerIdRequest(transactional_id=None)
    refused = check(access((Op.READ, T, "a")), request, 4)
    assert isinstance(refused, InitProducerIdResponse)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (CLUSTER_FAILED, -1, -1)
    assert check(access((Op.WRITE, T, "a")), request, 4) is None
    assert check(access((Op.IDEMPOTENT_WRITE, C, CLUSTER_NAME)), request, 4) is None


def test_nothing_is_added_to_a_transaction_if_one_topic_is_refused() -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name=name, partitions=[0]) for name in ("a", "b")],
    )
    response = check(access((Op.WRITE, X, "x"), (Op.WRITE, T, "a")), request, 3)
    assert isinstance(response, AddPartitionsToTxnResponse)
    assert list(codes(response)) == [55, TOPIC_FAILED]


def test_topics_of_a_transaction_that_may_not_be_described_are_left_out() -> None:
    request = DescribeTransactionsRequest(transactional_ids=["no", "x"])
    topics = [DescribeTransactionsResponseTopic(topic=name) for name in ("a", "b")]
    made = DescribeTransactionsResponse(
        transaction_states=[DescribeTransactionsResponseTransaction(transactional_id="x", topics=topics)]
    )
    response = amended(access((Op.DESCRIBE, X, "x"), (Op.READ, T, "b")), request, 0, made)
    assert [(item.transactional_id, item.error_code) for item in response.transaction_states] == [("no", 53), ("x", 0)]
    assert [topic.topic for topic in response.transaction_states[1].topics] == ["b"]


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_denial_is_logged_with_who_what_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        check(access(), produce_of("a"), 9)
        check(access(), ListGroupsRequest(), 5)
    (line,) = caplog.records
    assert line.getMessage() == (
        "Principal = User:anna is Denied operation = WRITE from host = 10.0.0.1 on resource = TOPIC:LITERAL:a for "
        "request = Produce"
    )
    assert getattr(line, "once_a_minute", None) == ("User:anna", Op.WRITE, T, "a")


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("a:b", "a:b"),
    ],
)
def test_a_host_is_written_as_in_java(host: str, text: str) -> None:
    assert host_text(host) == text


def test_a_view_of_topics_is_all_that_the_rules_see_of_a_broker() -> None:
    assert {"topics", "by_id"} <= set(MetadataCache.__dataclass_fields__)
