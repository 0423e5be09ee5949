"""Checks requests about the cluster as a whole, and requests between brokers. Each request needs the right to one
operation on the cluster. Without this right the whole request is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.acl_requests import require_known_types
from jesenska.broker.requests.authorization.access import CLUSTER, Access, Rule, Verdict
from jesenska.security.acls import CLUSTER_NAME, AclOperation
from jesenska.wire.language import Message
from jesenska.wire.messages.k04_leader_and_isr import LeaderAndIsrResponse
from jesenska.wire.messages.k05_stop_replica import StopReplicaResponse
from jesenska.wire.messages.k06_update_metadata import UpdateMetadataResponse
from jesenska.wire.messages.k07_controlled_shutdown import ControlledShutdownResponse
from jesenska.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)
from jesenska.wire.messages.k29_describe_acls import DescribeAclsResponse
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsResponse, CreateAclsResponseResult
from jesenska.wire.messages.k31_delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
)
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)
from jesenska.wire.messages.k35_describe_log_dirs import DescribeLogDirsResponse
from jesenska.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)
from jesenska.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
)
from jesenska.wire.messages.k48_describe_client_quotas import DescribeClientQuotasResponse
from jesenska.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntity,
    AlterClientQuotasResponseEntry,
)
from jesenska.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseResult,
)
from jesenska.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseResult,
)
from jesenska.wire.messages.k56_alter_partition import AlterPartitionResponse
from jesenska.wire.messages.k57_update_features import UpdateFeaturesResponse
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from jesenska.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsResponse
from jesenska.wire.messages.k74_list_config_resources import ListConfigResourcesResponse

REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def needs(operation: AclOperation, refusal: Callable[[Any, int], Message]) -> Rule:
    """Returns the check of a request that needs this operation on the cluster. `refusal` returns the answer to a
    refused request, from the request and its version."""

    def rule(access: Access, request: Any, version: int) -> Verdict:
        return None if access.cluster(operation) else refusal(request, version)

    return rule


def answers(response: type[Message], **fields: Any) -> Callable[[Any, int], Message]:
    """Returns a function that makes the answer to a refused request: `response` with these fields and an error code
    for the whole answer."""
    return lambda request, version: response(error_code=REFUSED, **fields)


def markers(access: Access, request: WriteTxnMarkersRequest, version: int) -> Verdict:
    if access.may(AclOperation.ALTER, CLUSTER, CLUSTER_NAME) or access.cluster(AclOperation.CLUSTER_ACTION):
        return None
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponseMarker(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponseTopic(
                        name=topic.name,
                        partitions=[
                            WriteTxnMarkersResponsePartition(partition_index=number, error_code=REFUSED)
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def described_cluster(access: Access, request: DescribeClusterRequest, version: int) -> Verdict:
    """Checks DescribeCluster. Every user may see the brokers. The answer contains the operations that the user may do;
    without DESCRIBE on the cluster this field is 0."""
    if not request.include_cluster_authorized_operations:
        return None

    def amend(response: DescribeClusterResponse) -> None:
        if not response.error_code:
            response.cluster_authorized_operations = cluster_operations(access)

    return amend


def cluster_operations(access: Access) -> int:
    """Returns the operations that the user may do on the cluster, as a bit set; 0 without DESCRIBE on the cluster."""
    return access.operations(CLUSTER, CLUSTER_NAME) if access.cluster(AclOperation.DESCRIBE) else 0


def listed_reassignments(request: ListPartitionReassignmentsRequest, version: int) -> Message:
    return ListPartitionReassignmentsResponse(
        error_code=REFUSED,
        error_message=None,
        topics=[
            ListPartitionReassignmentsResponseTopic(
                name=topic.name,
                partitions=[
                    ListPartitionReassignmentsResponsePartition(partition_index=number)
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def described_credentials(request: DescribeUserScramCredentialsRequest, version: int) -> Message:
    """Returns the answer to a refused DescribeUserScramCredentials. As in Kafka, the answer does not repeat the names
    of users."""
    return DescribeUserScramCredentialsResponse(
        error_code=REFUSED,
        error_message=None,
        results=[
            DescribeUserScramCredentialsResponseResult(error_code=REFUSED, error_message=None)
            for _ in request.users or ()
        ],
    )


def only_known(rule: Rule) -> Rule:
    """Returns a check for a request about ACLs: if a type in the request is UNKNOWN, the check closes the connection,
    else `rule` is applied. As in Kafka, the types are checked before the user's rights."""

    def checked(access: Access, request: Any, version: int) -> Verdict:
        require_known_types(request)
        return rule(access, request, version)

    return checked


def created_acls(request: CreateAclsRequest, version: int) -> Message:
    return CreateAclsResponse(
        results=[CreateAclsResponseResult(error_code=REFUSED, error_message=None) for _ in request.creations]
    )


def deleted_acls(request: DeleteAclsRequest, version: int) -> Message:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsResponseFilterResult(error_code=REFUSED, error_message=None) for _ in request.filters]
    )


def moved_replicas(request: AlterReplicaLogDirsRequest, version: int) -> Message:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseTopic(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponsePartition(partition_index=number, error_code=REFUSED)
                    for number in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def elected(request: ElectLeadersRequest, version: int) -> Message:
    response = ElectLeadersResponse(
        replica_election_results=[
            ElectLeadersResponseTopic(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponsePartition(partition_id=number, error_code=REFUSED, error_message=None)
                    for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ]
    )
    if version:
        response.error_code = REFUSED
    return response


def reassigned(request: AlterPartitionReassignmentsRequest, version: int) -> Message:
    return AlterPartitionReassignmentsResponse(
        error_code=REFUSED,
        error_message=None,
        responses=[
            AlterPartitionReassignmentsResponseTopic(
                name=topic.name,
                partitions=[
                    AlterPartitionReassignmentsResponsePartition(
                        partition_index=part.partition_index, error_code=REFUSED, error_message=None
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def altered_credentials(request: AlterUserScramCredentialsRequest, version: int) -> Message:
    users = [item.name for item in request.deletions] + [item.name for item in request.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponseResult(user=name, error_code=REFUSED, error_message=None)
            for name in dict.fromkeys(users)
        ]
    )


def altered_quotas(request: AlterClientQuotasRequest, version: int) -> Message:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponseEntry(
                error_code=REFUSED,
                error_message=None,
                entity=[
                    AlterClientQuotasResponseEntity(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def described_log_dirs(request: Any, version: int) -> Message:
    response = DescribeLogDirsResponse()
    if version >= _FIRST_WITH_ERROR_OF_LOG_DIRS:
        response.error_code = REFUSED
    return response


_FIRST_WITH_ERROR_OF_LOG_DIRS: Final = 3
_ACTION: Final = AclOperation.CLUSTER_ACTION
_ALTER, _DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE

CLUSTER_RULES: Final[dict[int, Rule]] = {
    4: needs(_ACTION, answers(LeaderAndIsrResponse)),
    5: needs(_ACTION, answers(StopReplicaResponse)),
    6: needs(_ACTION, answers(UpdateMetadataResponse)),
    7: needs(_ACTION, answers(ControlledShutdownResponse)),
    27: markers,
    29: only_known(needs(_DESCRIBE, answers(DescribeAclsResponse, error_message=None))),
    30: only_known(needs(_ALTER, created_acls)),
    31: only_known(needs(_ALTER, deleted_acls)),
    34: needs(_ALTER, moved_replicas),
    35: needs(_DESCRIBE, described_log_dirs),
    43: needs(_ALTER, elected),
    45: needs(_ALTER, reassigned),
    46: needs(_DESCRIBE, listed_reassignments),
    48: needs(AclOperation.DESCRIBE_CONFIGS, answers(DescribeClientQuotasResponse, error_message=None, entries=None)),
    49: needs(AclOperation.ALTER_CONFIGS, altered_quotas),
    50: needs(_DESCRIBE, described_credentials),
    51: needs(_ALTER, altered_credentials),
    56: needs(_ACTION, answers(AlterPartitionResponse)),
    57: needs(_ALTER, answers(UpdateFeaturesResponse, error_message="Cluster authorization failed.")),
    60: described_cluster,
    67: needs(_ACTION, answers(AllocateProducerIdsResponse)),
    74: needs(AclOperation.DESCRIBE_CONFIGS, answers(ListConfigResourcesResponse)),
}
