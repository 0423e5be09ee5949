"""The API keys that the broker serves, each with its first and last version. ApiVersions announces exactly this table,
and the gate accepts nothing else. The handler of a key is the file `handlers/kNN_….py` with its number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VERSIONS: Final[Mapping[int, tuple[int, int]]] = {
    0: (0, 13),  # Produce
    1: (0, 18),  # Fetch
    2: (0, 11),  # ListOffsets
    3: (0, 13),  # Metadata
    4: (0, 7),  # LeaderAndIsr
    5: (0, 4),  # StopReplica
    6: (0, 8),  # UpdateMetadata
    7: (0, 3),  # ControlledShutdown
    8: (0, 10),  # OffsetCommit
    9: (0, 10),  # OffsetFetch
    10: (0, 6),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    17: (0, 1),  # SaslHandshake
    18: (0, 4),  # ApiVersions
    19: (0, 7),  # CreateTopics
    20: (0, 6),  # DeleteTopics
    21: (0, 2),  # DeleteRecords
    22: (0, 5),  # InitProducerId
    23: (0, 4),  # OffsetForLeaderEpoch
    24: (0, 5),  # AddPartitionsToTxn
    25: (0, 4),  # AddOffsetsToTxn
    26: (0, 5),  # EndTxn
    27: (0, 2),  # WriteTxnMarkers
    28: (0, 5),  # TxnOffsetCommit
    29: (0, 3),  # DescribeAcls
    30: (0, 3),  # CreateAcls
    31: (0, 3),  # DeleteAcls
    32: (0, 4),  # DescribeConfigs
    33: (0, 2),  # AlterConfigs
    34: (0, 2),  # AlterReplicaLogDirs
    35: (0, 5),  # DescribeLogDirs
    36: (0, 2),  # SaslAuthenticate
    37: (0, 3),  # CreatePartitions
    38: (0, 3),  # CreateDelegationToken
    39: (0, 2),  # RenewDelegationToken
    40: (0, 2),  # ExpireDelegationToken
    41: (0, 3),  # DescribeDelegationToken
    42: (0, 2),  # DeleteGroups
    43: (0, 2),  # ElectLeaders
    44: (0, 1),  # IncrementalAlterConfigs
    45: (0, 1),  # AlterPartitionReassignments
    46: (0, 0),  # ListPartitionReassignments
    47: (0, 0),  # OffsetDelete
    48: (0, 1),  # DescribeClientQuotas
    49: (0, 1),  # AlterClientQuotas
    50: (0, 0),  # DescribeUserScramCredentials
    51: (0, 0),  # AlterUserScramCredentials
    56: (0, 3),  # AlterPartition
    57: (0, 2),  # UpdateFeatures
    60: (0, 2),  # DescribeCluster
    61: (0, 0),  # DescribeProducers
    65: (0, 0),  # DescribeTransactions
    66: (0, 2),  # ListTransactions
    67: (0, 0),  # AllocateProducerIds
    74: (0, 1),  # ListConfigResources
    75: (0, 0),  # DescribeTopicPartitions
}

#: Requests between brokers. Quotas do not apply to them.
BETWEEN_BROKERS: Final = frozenset({4, 5, 6, 7, 27, 56, 67})
