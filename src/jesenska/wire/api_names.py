"""Kafka's names of its APIs by key, including APIs that jesenska does not implement. The names are those of Apache
Kafka 4.3.1; keys that 4.3.1 has removed have the names of 3.9.1."""

from __future__ import annotations

_NAMES = """
0 Produce, Fetch, ListOffsets, Metadata, LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown
8 OffsetCommit, OffsetFetch, FindCoordinator, JoinGroup, Heartbeat, LeaveGroup, SyncGroup, DescribeGroups, ListGroups
17 SaslHandshake, ApiVersions, CreateTopics, DeleteTopics, DeleteRecords, InitProducerId, OffsetForLeaderEpoch
24 AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit, DescribeAcls, CreateAcls, DeleteAcls
32 DescribeConfigs, AlterConfigs, AlterReplicaLogDirs, DescribeLogDirs, SaslAuthenticate, CreatePartitions
38 CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken, DeleteGroups, ElectLeaders
44 IncrementalAlterConfigs, AlterPartitionReassignments, ListPartitionReassignments, OffsetDelete, DescribeClientQuotas, AlterClientQuotas
50 DescribeUserScramCredentials, AlterUserScramCredentials, Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum, AlterPartition, UpdateFeatures
58 Envelope, FetchSnapshot, DescribeCluster, DescribeProducers, BrokerRegistration, BrokerHeartbeat, UnregisterBroker
65 DescribeTransactions, ListTransactions, AllocateProducerIds, ConsumerGroupHeartbeat, ConsumerGroupDescribe, ControllerRegistration
71 GetTelemetrySubscriptions, PushTelemetry, AssignReplicasToDirs, ListConfigResources, DescribeTopicPartitions
76 ShareGroupHeartbeat, ShareGroupDescribe, ShareFetch, ShareAcknowledge, AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter
83 InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState, ReadShareGroupStateSummary
88 StreamsGroupHeartbeat, StreamsGroupDescribe, DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets
"""


def _parsed() -> dict[int, str]:
    names: dict[int, str] = {}
    for line in _NAMES.split("\n"):
        if line:
            first, _, rest = line.partition(" ")
            names |= dict(enumerate(rest.split(", "), int(first)))
    return names


API_NAMES = _parsed()

_BETWEEN_BROKERS = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82}
#: The keys of the APIs that ordinary clients use. Keys of APIs that only brokers send are left out.
CLIENT_API_KEYS = sorted(API_NAMES.keys() - _BETWEEN_BROKERS)
