"""Handlers of requests, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jesenska.base.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    NotCoordinatorError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.families import PeerFamily
from jesenska.config.layers import BrokerConfig
from jesenska.groups.events import ErrorAnswer, LeaveAnswer, Leaving
from jesenska.metadata.tree_operations import ConnectionLossError
from jesenska.transactions.events import AddPartitions, EndTransaction, Producer, ProducerAnswer
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from jesenska.wire.messages.k12_heartbeat import HeartbeatRequest
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
)
from jesenska.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from jesenska.wire.messages.k26_end_txn import EndTxnRequest
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest
from jesenska.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from jesenska.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from tests.units.broker.handling import LISTENER, Coordinator, answer_of, view_of

FENCED, INVALID_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


class _Kept(Coordinator):
    """Groups or transactions whose partition is led by a broker."""

    def __init__(self, leader: int, refusal: KafkaError | None = None) -> None:
        super().__init__(None)
        self._leader, self._refusal = leader, refusal

    async def ensure_topic(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def leader_for(self, key: str) -> int:
        return self._leader


# --- groups ----------------------------------------------------------------------------------------------------------


def test_a_heartbeat_is_its_groups_and_has_the_answer_of_its_coordinator() -> None:
    groups = Coordinator(ErrorAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
    answer = answer_of(
        HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i"), 4, groups=groups
    )
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    ((key, event),) = groups.asked
    assert (key, event.group_id, event.generation_id, event.member_id, event.group_instance_id) == (
        "g",
        "g",
        3,
        "m",
        "i",
    )


def test_a_heartbeat_at_another_broker_is_not_for_this_coordinator() -> None:
    answer = answer_of(HeartbeatRequest(group_id="g"), 0, groups=Coordinator(NotCoordinatorError()))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", (2, 3))
def test_the_errors_of_leaving_members_are_told_as_the_version_has_them(version: int) -> None:
    left = Leaving("m", "i" if version >= 3 else None)
    groups = Coordinator(LeaveAnswer(ErrorCode.NONE, ((left, ErrorCode.UNKNOWN_MEMBER_ID),)))
    request = LeaveGroupRequest(
        group_id="g", member_id="m", members=[LeaveGroupRequestMember(member_id="m", group_instance_id="i")]
    )
    answer = answer_of(request, version, groups=groups)
    assert groups.asked[0][1].members == (left,)
    if version < 3:
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert answer.error_code == ErrorCode.NONE
        assert [(item.member_id, item.group_instance_id, item.error_code) for item in answer.members] == [
            ("m", "i", ErrorCode.UNKNOWN_MEMBER_ID)
        ]
    assert (
        answer_of(request, version, groups=Coordinator(LeaveAnswer(ErrorCode.FENCED_INSTANCE_ID))).error_code
        == ErrorCode.FENCED_INSTANCE_ID
    )
    assert (
        answer_of(request, version, groups=Coordinator(NotCoordinatorError())).error_code == ErrorCode.NOT_COORDINATOR
    )


@pytest.mark.parametrize("key_type", (0, 1))
def test_a_coordinator_is_the_broker_that_leads_the_keys_partition(key_type: int) -> None:
    parts = {"groups": _Kept(1), "transactions": _Kept(2), "view": view_of((1, LISTENER, None), (2, LISTENER, None))}
    old = answer_of(FindCoordinatorRequest(key="k", key_type=key_type), 3, **parts)
    assert (old.error_code, old.error_message, old.node_id, old.host, old.port) == (
        0,
        "NONE",
        1 + key_type,
        f"host-{1 + key_type}",
        9001 + key_type,
    )
    new = answer_of(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a", "b"]), 4, **parts)
    assert [(item.key, item.node_id, item.error_message) for item in new.coordinators] == [
        ("a", 1 + key_type, ""),
        ("b", 1 + key_type, ""),
    ]


def test_a_coordinator_that_is_not_up_or_has_no_such_listener_is_not_available() -> None:
    for view in (view_of(), view_of((1, "OTHER", None))):
        answer = answer_of(FindCoordinatorRequest(key="k"), 0, groups=_Kept(1), transactions=_Kept(1), view=view)
        assert (answer.error_code, answer.node_id, answer.host, answer.port) == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            -1,
            "",
            -1,
        )
        assert answer.error_message is None


def test_a_coordinators_topic_that_cannot_be_made_is_the_answer_for_every_key() -> None:
    kept = _Kept(1, CoordinatorNotAvailableError("no room"))
    answer = answer_of(
        FindCoordinatorRequest(coordinator_keys=["a", "b"]),
        4,
        groups=kept,
        transactions=kept,
        view=view_of((1, LISTENER, None)),
    )
    assert [(item.error_code, item.error_message) for item in answer.coordinators] == [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "no room")
    ] * 2
    assert [(item.node_id, item.host, item.port) for item in answer.coordinators] == [(-1, "", -1)] * 2


def test_share_groups_have_no_coordinator() -> None:
    answer = answer_of(FindCoordinatorRequest(key_type=2, coordinator_keys=["a"]), 6)
    (refused,) = answer.coordinators
    assert (refused.error_code, refused.node_id, refused.host, refused.port) == (ErrorCode.INVALID_REQUEST, -1, "", -1)


# --- transactions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "error"), [(1, INVALID_EPOCH), (2, FENCED), (5, FENCED)])
def test_the_end_of_a_transaction_by_a_fenced_producer_has_the_error_of_its_version(
    version: int, error: ErrorCode
) -> None:
    transactions = Coordinator(ProducerAnswer(FENCED, Producer(4, 5)))
    request = EndTxnRequest(transactional_id="id", producer_id=4, producer_epoch=5, committed=True)
    answer = answer_of(request, version, transactions=transactions, producer_ids=None)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, 4, 5)
    ((key, event),) = transactions.asked
    assert key == "id"
    assert isinstance(event, EndTransaction)
    assert (event.producer, event.commits, event.client_version) == (Producer(4, 5), True, 2 if version == 5 else 0)


def test_the_end_of_a_transaction_that_has_to_wait_for_producer_ids_has_them_claimed() -> None:
    claims: list[None] = []
    ids = SimpleNamespace(claim_soon=lambda: claims.append(None))
    for error, claimed in ((ErrorCode.NONE, 0), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1)):
        answer = answer_of(
            EndTxnRequest(transactional_id="id"), 5, transactions=Coordinator(ProducerAnswer(error)), producer_ids=ids
        )
        assert (answer.error_code, len(claims)) == (error, claimed)


def test_no_transaction_ends_without_an_id_or_at_another_broker() -> None:
    transactions = Coordinator(NotCoordinatorError())
    assert (
        answer_of(EndTxnRequest(transactional_id=""), 3, transactions=transactions).error_code
        == ErrorCode.INVALID_REQUEST
    )
    assert (
        answer_of(EndTxnRequest(transactional_id="id"), 3, transactions=transactions).error_code
        == ErrorCode.NOT_COORDINATOR
    )


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": None, "producer_id": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "id", "transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactional_id": "id", "transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_producer_that_asks_for_what_cannot_be_gets_no_id(fields: dict[str, Any], error: ErrorCode) -> None:
    answer = answer_of(InitProducerIdRequest(**fields), 4, in_force=SimpleNamespace(config=BrokerConfig()))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


class _ProducerIds:
    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure

    async def claim(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def new(self) -> int:
        await self.claim()
        return 17


def test_a_producer_without_transactions_gets_a_new_id_or_is_to_try_again() -> None:
    answer = answer_of(InitProducerIdRequest(transactional_id=None), 0, producer_ids=_ProducerIds())
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 17, 0)
    answer = answer_of(
        InitProducerIdRequest(transactional_id=None), 0, producer_ids=_ProducerIds(ConnectionLossError("/"))
    )
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)


@pytest.mark.parametrize(("version", "error"), [(3, INVALID_EPOCH), (4, FENCED)])
def test_a_fenced_producer_that_begins_has_the_error_of_its_version(version: int, error: ErrorCode) -> None:
    parts = {
        "in_force": SimpleNamespace(config=BrokerConfig()),
        "features": SimpleNamespace(transaction_version=2),
        "producer_ids": _ProducerIds(),
        "transactions": Coordinator(ProducerAnswer(FENCED)),
    }
    request = InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1000)
    assert answer_of(request, version, **parts).error_code == error
    ((_, event),) = parts["transactions"].asked  # type: ignore[attr-defined]
    assert (event.transactional_id, event.timeout_ms, event.expected) == ("id", 1000, None)


@pytest.mark.parametrize(("version", "error"), [(1, INVALID_EPOCH), (2, FENCED)])
def test_offsets_are_added_to_a_transaction_as_the_partition_of_their_group(version: int, error: ErrorCode) -> None:
    transactions = Coordinator(ProducerAnswer(FENCED))
    groups = SimpleNamespace(partition_for=lambda group_id: {"g": 11}[group_id])
    request = AddOffsetsToTxnRequest(transactional_id="id", producer_id=4, producer_epoch=5, group_id="g")
    assert answer_of(request, version, transactions=transactions, groups=groups).error_code == error
    ((_, event),) = transactions.asked
    assert isinstance(event, AddPartitions)
    assert event.partitions == {TopicPartition("__consumer_offsets", 11)}
    refused = answer_of(request, version, transactions=Coordinator(CoordinatorLoadInProgressError()), groups=groups)
    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answer_of(AddOffsetsToTxnRequest(transactional_id=""), version).error_code == ErrorCode.INVALID_REQUEST


def _added(answer: Any) -> dict[str, dict[int, int]]:
    return {
        topic.name: {item.partition_index: item.partition_error_code for item in topic.results_by_partition}
        for topic in answer
    }


def test_where_one_partition_is_not_there_none_is_added() -> None:
    view = SimpleNamespace(has=lambda key: key.partition < 2)
    topics = [AddPartitionsToTxnRequestTopic(name="t", partitions=[0, 2])]
    transactions = Coordinator(ProducerAnswer(ErrorCode.NONE))
    expected = {"t": {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}
    old = AddPartitionsToTxnRequest(v3_and_below_transactional_id="id", v3_and_below_topics=topics)
    assert _added(answer_of(old, 3, view=view, transactions=transactions).results_by_topic_v3_and_below) == expected
    new = AddPartitionsToTxnRequest(
        transactions=[AddPartitionsToTxnRequestTransaction(transactional_id="id", topics=topics)]
    )
    (result,) = answer_of(new, 5, view=view, transactions=transactions).results_by_transaction
    assert (result.transactional_id, _added(result.topic_results)) == ("id", expected)
    assert transactions.asked == []


# --- the cluster -----------------------------------------------------------------------------------------------------


def test_the_brokers_of_a_cluster_are_those_with_the_clients_listener() -> None:
    view = view_of((1, LISTENER, "r"), (2, "OTHER", None), (3, LISTENER, None), controller_id=3)
    answer = answer_of(DescribeClusterRequest(), 1, view=view)
    assert (answer.cluster_id, answer.controller_id) == ("a-cluster", 3)
    assert [(item.broker_id, item.host, item.port, item.rack) for item in answer.brokers] == [
        (1, "host-1", 9001, "r"),
        (3, "host-3", 9003, None),
    ]


def test_a_controller_that_is_gone_is_not_told() -> None:
    assert (
        answer_of(DescribeClusterRequest(), 0, view=view_of((1, LISTENER, None), controller_id=3)).controller_id == -1
    )


@pytest.mark.parametrize(
    ("endpoint_type", "error", "message"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of type BROKER."),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 3"),
    ],
)
def test_the_controllers_of_a_cluster_are_not_asked_for_here(
    endpoint_type: int, error: ErrorCode, message: str
) -> None:
    answer = answer_of(DescribeClusterRequest(endpoint_type=endpoint_type), 1, view=view_of())
    assert (answer.error_code, answer.endpoint_type, answer.error_message) == (error, 1, message)


def test_the_operations_on_a_cluster_are_told_where_they_are_asked_for() -> None:
    for is_asked in (False, True):
        answer = answer_of(DescribeClusterRequest(include_cluster_authorized_operations=is_asked), 1, view=view_of())
        assert (answer.cluster_authorized_operations != -(2**31)) == is_asked


def test_resources_with_settings_are_listed_by_their_kinds() -> None:
    view = view_of((1, LISTENER, None))
    view.topics = {"t": None}  # type: ignore[dict-item]
    listed = answer_of(ListConfigResourcesRequest(resource_types=[2, 4]), 1, view=view).config_resources
    assert [(item.resource_type, item.resource_name) for item in listed] == [(4, "1"), (2, "t")]
    assert [item.resource_type for item in answer_of(ListConfigResourcesRequest(), 1, view=view).config_resources] == [
        8,
        4,
        2,
    ]
    for kind in (16, 32):
        nothing = answer_of(ListConfigResourcesRequest(resource_types=[kind]), 1, view=view)
        assert (nothing.error_code, nothing.config_resources) == (ErrorCode.NONE, [])
    assert answer_of(ListConfigResourcesRequest(), 0, view=view).config_resources == []
    assert (
        answer_of(ListConfigResourcesRequest(resource_types=[3]), 1, view=view).error_code
        == ErrorCode.UNSUPPORTED_VERSION
    )


@pytest.mark.parametrize(
    ("name", "error"), [("java-client.2", 0), ("", ErrorCode.INVALID_REQUEST), ("-x", ErrorCode.INVALID_REQUEST)]
)
def test_a_client_names_its_software_from_version_3_on(name: str, error: int) -> None:
    features = SimpleNamespace(epoch=5, transaction_version=2)
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert answer_of(request, 3, features=features).error_code == error
    assert answer_of(request, 2, features=features).error_code == 0


def test_a_feature_without_a_level_is_not_finalized() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for level, finalized in ((0, []), (2, [("transaction.version", 2)])):
        answer = answer_of(request, 4, features=SimpleNamespace(epoch=5, transaction_version=level))
        assert [(item.name, item.max_version_level) for item in answer.finalized_features] == finalized
        assert [item.name for item in answer.supported_features] == ["transaction.version"]
    assert answer_of(request, 3, features=SimpleNamespace(epoch=5, transaction_version=0)).supported_features == []


def test_requests_of_brokers_are_for_a_broker_that_may_have_peers_and_from_one_that_is_registered() -> None:
    none: Any = None
    controller: Any = SimpleNamespace(facts=SimpleNamespace(broker_epochs={1: 40}))
    for may_have_peers, broker_id, epoch, error in (
        (False, 1, 40, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (True, 2, 40, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (True, 1, 39, ErrorCode.STALE_BROKER_EPOCH),
    ):
        uses = PeerFamily(
            clock=none,
            marker_writer=none,
            may_have_peers=may_have_peers,
            orders=none,
            producer_ids=none,
            controller=controller,
        )
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
        assert answer_of(request, 0, require_peers=uses.require_peers, controller=controller).error_code == error
