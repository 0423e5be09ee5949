"""A sensible request of every API and version that a broker announces, as a client would send it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from jesenska.base.errors import ErrorCode
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k12_heartbeat import HeartbeatRequest
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from jesenska.wire.messages.k15_describe_groups import DescribeGroupsRequest
from jesenska.wire.messages.k16_list_groups import ListGroupsRequest
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
)
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
)
from jesenska.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from jesenska.wire.messages.k26_end_txn import EndTxnRequest
from jesenska.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from jesenska.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from jesenska.wire.messages.k29_describe_acls import DescribeAclsRequest
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation
from jesenska.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter
from jesenska.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from jesenska.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from jesenska.wire.messages.k34_alter_replica_log_dirs import AlterReplicaLogDirsRequest
from jesenska.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsRequestTopic
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from jesenska.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from jesenska.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenRequestRenewer,
)
from jesenska.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from jesenska.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from jesenska.wire.messages.k41_describe_delegation_token import DescribeDelegationTokenRequest
from jesenska.wire.messages.k42_delete_groups import DeleteGroupsRequest
from jesenska.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from jesenska.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
)
from jesenska.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from jesenska.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
)
from jesenska.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasRequestOp,
)
from jesenska.wire.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from jesenska.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestUpsertion,
)
from jesenska.wire.messages.k57_update_features import UpdateFeaturesRequest, UpdateFeaturesRequestFeatureUpdate
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest
from jesenska.wire.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from jesenska.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from jesenska.wire.messages.k66_list_transactions import ListTransactionsRequest
from jesenska.wire.messages.k74_list_config_resources import ListConfigResourcesRequest
from jesenska.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestTopic,
)
from tests.raw_connection import RawConnection

_TOPIC = 2
#: Of access rules.
_ANY, _READ_OPERATION, _ALLOW = 1, 3, 3
#: Of filters of quotas.
_SPECIFIED = 2


def wait_for_coordinator(bootstrap: str) -> None:
    """The first who asks for a coordinator of its kind sets off the creation of its topic."""
    deadline = time.monotonic() + 20
    with RawConnection(bootstrap) as connection:
        for kind in (0, 1):
            while (
                connection.ask(FindCoordinatorRequest(key="any", key_type=kind), 1, FindCoordinatorResponse).error_code
                != ErrorCode.NONE
            ):
                assert time.monotonic() < deadline, "no coordinator"


#: LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown, AlterPartition, AllocateProducerIds.
BETWEEN_BROKERS = (4, 5, 6, 7, 56, 67)


class Served:
    """A broker with topics to ask about. Random requests may change anything in it, so nobody else uses it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._count = 0
        with RawConnection(broker.bootstrap) as connection:
            answer = connection.ask(
                ApiVersionsRequest(client_software_name="judge", client_software_version="1"), 4, ApiVersionsResponse
            )
            self.broker_id = connection.ask(MetadataRequest(topics=[]), 4, MetadataResponse).controller_id
        #: What brokers send each other is left out: it would take this one away from its controller.
        self.announced = {
            item.api_key: range(item.min_version, item.max_version + 1)
            for item in answer.api_keys
            if item.api_key not in BETWEEN_BROKERS
        }
        self.name, self.id = self.new_topic()
        wait_for_coordinator(broker.bootstrap)

    def new_name(self) -> str:
        self._count += 1
        return f"topic-{self._count}"

    def new_topic(self) -> tuple[str, uuid.UUID]:
        name = self.new_name()
        with RawConnection(self.broker.bootstrap) as connection:
            request = CreateTopicsRequest(
                topics=[CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=10_000
            )
            created = connection.ask(request, 5, CreateTopicsResponse)
            assert [item.error_code for item in created.topics] == [ErrorCode.NONE]
            metadata = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12, MetadataResponse)
        return name, metadata.topics[0].topic_id

    def new_member(self) -> tuple[str, str]:
        """A group with one member in its first generation: the names of both."""
        group = f"group-{self.new_name()}"
        with RawConnection(self.broker.bootstrap) as connection:
            joined = connection.ask(join(group), 2, JoinGroupResponse)
            assert joined.error_code == ErrorCode.NONE
            assert joined.generation_id == 1
            assert connection.ask(sync(group, joined.member_id), 2, SyncGroupResponse).error_code == ErrorCode.NONE
        return group, joined.member_id

    def new_transaction(self, group: str = "", *, is_open: bool = True) -> tuple[str, int]:
        """A transactional id whose producer has epoch 0, and the producer's id. If it is open, a partition or a group
        is in its transaction."""
        name = f"transaction-{self.new_name()}"
        with RawConnection(self.broker.bootstrap) as connection:
            begun = connection.ask(
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4, InitProducerIdResponse
            )
            assert begun.error_code == ErrorCode.NONE
            if is_open and group:
                offsets = AddOffsetsToTxnRequest(
                    transactional_id=name, producer_id=begun.producer_id, producer_epoch=0, group_id=group
                )
                assert connection.ask(offsets, 3, AddOffsetsToTxnResponse).error_code == ErrorCode.NONE
            elif is_open:
                connection.ask(_adding(self, name, begun.producer_id), 3, AddPartitionsToTxnResponse)
        return name, begun.producer_id


def join(group: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=bytes(10))]
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )


def sync(group: str, member: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=member,
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"")],
    )


def _produce(served: Served, version: int) -> Message:
    batch = encode_batch([(1_700_000_000_000, b"key", b"value", ())])
    partition = ProduceRequestPartition(index=0, records=bytes(batch))
    return ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            ProduceRequestTopic(
                name=served.name, topic_id=served.id if version >= 13 else _NO_ID, partition_data=[partition]
            )
        ],
    )


def _fetch(served: Served, version: int) -> Message:
    partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequestTopic(
        topic=served.name, topic_id=served.id if version >= 13 else _NO_ID, partitions=[partition]
    )
    return FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def _list_offsets(served: Served, version: int) -> Message:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsRequestTopic(
                name=served.name, partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=-1)]
            )
        ],
        timeout_ms=1000,
    )


def _find_coordinator(served: Served, version: int) -> Message:
    return (
        FindCoordinatorRequest(coordinator_keys=["a group", "another"])
        if version >= 4
        else FindCoordinatorRequest(key="a group")
    )


def _create_topics(served: Served, version: int) -> Message:
    return CreateTopicsRequest(
        topics=[CreateTopicsRequestTopic(name=served.new_name(), num_partitions=2, replication_factor=1)],
        timeout_ms=10_000,
    )


def _delete_topics(served: Served, version: int) -> Message:
    (one, _), (two, two_id) = served.new_topic(), served.new_topic()
    if version < 6:
        return DeleteTopicsRequest(topic_names=[one, two], timeout_ms=10_000)
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequestTopic(name=one), DeleteTopicsRequestTopic(name=None, topic_id=two_id)],
        timeout_ms=10_000,
    )


def _delete_records(served: Served, version: int) -> Message:
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsRequestTopic(
                name=served.new_topic()[0], partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=-1)]
            )
        ],
        timeout_ms=10_000,
    )


def _epoch(served: Served, version: int) -> Message:
    partition = OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2,
        topics=[OffsetForLeaderEpochRequestTopic(topic=served.name, partitions=[partition])],
    )


def _alter_configs(served: Served, version: int) -> Message:
    change = AlterConfigsRequestConfig(name="retention.ms", value="1000000")
    return AlterConfigsRequest(
        resources=[AlterConfigsRequestResource(resource_type=_TOPIC, resource_name=served.name, configs=[change])]
    )


def _incremental(served: Served, version: int) -> Message:
    change = IncrementalAlterConfigsRequestConfig(name="retention.ms", config_operation=0, value="2000000")
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequestResource(resource_type=_TOPIC, resource_name=served.name, configs=[change])
        ]
    )


def _offset_commit(served: Served, version: int) -> Message:
    group, member = served.new_member()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="five")
    topic = OffsetCommitRequestTopic(
        name=served.name, topic_id=served.id if version >= 10 else _NO_ID, partitions=[partition]
    )
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=1, member_id=member, topics=[topic])


def _adding(served: Served, name: str, producer_id: int) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name=served.name, partitions=[0])],
    )


def _add_partitions(served: Served, version: int) -> Message:
    name, producer_id = served.new_transaction(is_open=version >= 4)
    if version < 4:
        return _adding(served, name, producer_id)
    topics = [AddPartitionsToTxnRequestTopic(name=served.name, partitions=[0])]
    wanted = AddPartitionsToTxnRequestTransaction(
        transactional_id=name, producer_id=producer_id, producer_epoch=0, verify_only=True, topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[wanted])


def _add_offsets(served: Served, version: int) -> Message:
    name, producer_id = served.new_transaction(is_open=False)
    return AddOffsetsToTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=0, group_id="nobody")


def _end(served: Served, version: int) -> Message:
    name, producer_id = served.new_transaction()
    return EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=0, committed=True)


def _write_markers(served: Served, version: int) -> Message:
    topics = [WriteTxnMarkersRequestTopic(name=served.name, partition_indexes=[0])]
    marker = WriteTxnMarkersRequestMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
    )
    return WriteTxnMarkersRequest(markers=[marker])


def _txn_offset_commit(served: Served, version: int) -> Message:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="five")
    topic = TxnOffsetCommitRequestTopic(name=served.name, partitions=[partition])
    name, producer_id = served.new_transaction("in transactions", is_open=version < 5)
    return TxnOffsetCommitRequest(
        transactional_id=name, group_id="in transactions", producer_id=producer_id, producer_epoch=0, topics=[topic]
    )


def _offset_fetch(served: Served, version: int) -> Message:
    if version >= 8:
        return OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="nobody", topics=None),
                OffsetFetchRequestGroup(group_id="nobody else", topics=[]),
            ]
        )
    return OffsetFetchRequest(
        group_id="nobody", topics=[OffsetFetchRequestTopic(name=served.name, partition_indexes=[0])]
    )


def _leave(served: Served, version: int) -> Message:
    group, member = served.new_member()
    if version >= 3:
        return LeaveGroupRequest(group_id=group, members=[LeaveGroupRequestMember(member_id=member)])
    return LeaveGroupRequest(group_id=group, member_id=member)


def _heartbeat(served: Served, version: int) -> Message:
    group, member = served.new_member()
    return HeartbeatRequest(group_id=group, generation_id=1, member_id=member)


def _offset_delete(served: Served, version: int) -> Message:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    return OffsetDeleteRequest(
        group_id=served.new_member()[0], topics=[OffsetDeleteRequestTopic(name=served.name, partitions=[partition])]
    )


def _elect_leaders(served: Served, version: int) -> Message:
    return ElectLeadersRequest(topic_partitions=[ElectLeadersRequestTopic(topic=served.name, partitions=[0])])


def _sync(served: Served, version: int) -> Message:
    request = sync(*served.new_member())
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def _reassign(served: Served, version: int) -> Message:
    partition = AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=[served.broker_id])
    return AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequestTopic(name=served.name, partitions=[partition])]
    )


def _create_acls(served: Served, version: int) -> Message:
    rule = CreateAclsRequestCreation(
        resource_type=_TOPIC,
        resource_name=served.name,
        principal="User:a",
        host="*",
        operation=_READ_OPERATION,
        permission_type=_ALLOW,
    )
    return CreateAclsRequest(creations=[rule])


def _any_acl() -> dict[str, Any]:
    nobody: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    return nobody | {"resource_type_filter": _ANY, "operation": _ANY, "permission_type": _ANY}


_NO_ID = uuid.UUID(int=0)

#: By key: a request as a client would send it, which must succeed.
SENSIBLE: dict[int, Callable[[Served, int], Message]] = {
    0: _produce,
    1: _fetch,
    2: _list_offsets,
    3: lambda served, version: MetadataRequest(topics=[MetadataRequestTopic(name=served.name)]),
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: lambda served, version: join(served.new_name()),
    12: _heartbeat,
    13: _leave,
    14: _sync,
    15: lambda served, version: DescribeGroupsRequest(groups=[served.new_member()[0]]),
    16: lambda served, version: ListGroupsRequest(),
    17: lambda served, version: SaslHandshakeRequest(mechanism="PLAIN"),
    18: lambda served, version: ApiVersionsRequest(
        client_software_name="apache-kafka-java", client_software_version="4.3.1"
    ),
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    22: lambda served, version: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
    23: _epoch,
    24: _add_partitions,
    25: _add_offsets,
    26: _end,
    27: _write_markers,
    28: _txn_offset_commit,
    29: lambda served, version: DescribeAclsRequest(**_any_acl()),
    30: _create_acls,
    31: lambda served, version: DeleteAclsRequest(filters=[DeleteAclsRequestFilter(**_any_acl())]),
    32: lambda served, version: DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(resource_type=_TOPIC, resource_name=served.name, configuration_keys=None)
        ]
    ),
    33: _alter_configs,
    34: lambda served, version: AlterReplicaLogDirsRequest(),
    35: lambda served, version: DescribeLogDirsRequest(
        topics=[DescribeLogDirsRequestTopic(topic=served.name, partitions=[0])]
    ),
    37: lambda served, version: CreatePartitionsRequest(
        topics=[CreatePartitionsRequestTopic(name=served.new_topic()[0], count=3, assignments=None)], timeout_ms=10_000
    ),
    42: lambda served, version: DeleteGroupsRequest(groups_names=["nobody"]),
    43: _elect_leaders,
    44: _incremental,
    45: _reassign,
    46: lambda served, version: ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsRequestTopic(name=served.name, partition_indexes=[0])]
    ),
    47: _offset_delete,
    48: lambda served, version: DescribeClientQuotasRequest(
        components=[DescribeClientQuotasRequestComponent(entity_type="user", match_type=_SPECIFIED, match=None)]
    ),
    49: lambda served, version: AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntry(
                entity=[AlterClientQuotasRequestEntity(entity_type="user", entity_name=served.new_name())],
                ops=[AlterClientQuotasRequestOp(key="producer_byte_rate", value=1e9)],
            )
        ]
    ),
    # It is refused: the listener has no SASL.
    36: lambda served, version: SaslAuthenticateRequest(auth_bytes=b"token"),
    51: lambda served, version: AlterUserScramCredentialsRequest(
        upsertions=[
            AlterUserScramCredentialsRequestUpsertion(
                name=served.new_name(), mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
            )
        ]
    ),
    38: lambda served, version: CreateDelegationTokenRequest(
        renewers=[CreateDelegationTokenRequestRenewer(principal_type="User", principal_name="ben")], max_lifetime_ms=-1
    ),
    39: lambda served, version: RenewDelegationTokenRequest(hmac=bytes(64), renew_period_ms=-1),
    40: lambda served, version: ExpireDelegationTokenRequest(hmac=bytes(64), expiry_time_period_ms=-1),
    41: lambda served, version: DescribeDelegationTokenRequest(owners=None),
    50: lambda served, version: DescribeUserScramCredentialsRequest(users=None),
    # The level that is in force already.
    57: lambda served, version: UpdateFeaturesRequest(
        feature_updates=[UpdateFeaturesRequestFeatureUpdate(feature="transaction.version", max_version_level=2)]
    ),
    60: lambda served, version: DescribeClusterRequest(),
    61: lambda served, version: DescribeProducersRequest(
        topics=[DescribeProducersRequestTopic(name=served.name, partition_indexes=[0])]
    ),
    65: lambda served, version: DescribeTransactionsRequest(transactional_ids=[served.new_transaction()[0]]),
    66: lambda served, version: ListTransactionsRequest(state_filters=["Ongoing"]),
    74: lambda served, version: ListConfigResourcesRequest(),
    75: lambda served, version: DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequestTopic(name=served.name)]
    ),
}
