"""The rights that each served API key needs, and its check (source: the table of operations by API of Apache Kafka
3.9.1 and 4.3.1).

    C cluster   T each topic   G group   X transactional id        `,` all of these rights   `|` one of these rights

    0  Produce              WRITE T, WRITE X for records of a transaction
    1  Fetch                READ T (checked where it reads); followers: CLUSTER_ACTION C
    2  ListOffsets, 75 DescribeTopicPartitions                       DESCRIBE T
    3  Metadata             DESCRIBE T; to create a topic CREATE C | CREATE T
    4 to 7, 56, 67          CLUSTER_ACTION C
    8  OffsetCommit         READ G, READ T
    9  OffsetFetch          DESCRIBE G, DESCRIBE T
    10 FindCoordinator      DESCRIBE G or DESCRIBE X
    11 to 14                READ G
    15 DescribeGroups       DESCRIBE G
    16 ListGroups           DESCRIBE C | DESCRIBE G; other groups are left out
    17, 18, 36              nothing
    19 CreateTopics         CREATE C | CREATE T; settings in the answer: DESCRIBE_CONFIGS T
    20 DeleteTopics, 21 DeleteRecords                                DELETE T
    22 InitProducerId       WRITE X; without a transactional id IDEMPOTENT_WRITE C | WRITE on any topic
    23 OffsetForLeaderEpoch CLUSTER_ACTION C | DESCRIBE T
    24 AddPartitionsToTxn   WRITE X, WRITE T; from version 4 on CLUSTER_ACTION C
    25 AddOffsetsToTxn      WRITE X, READ G
    26 EndTxn               WRITE X
    27 WriteTxnMarkers      ALTER C | CLUSTER_ACTION C
    28 TxnOffsetCommit      WRITE X, READ G, READ T
    29 DescribeAcls         DESCRIBE C
    30, 31                  ALTER C
    32 DescribeConfigs, 33 and 44 AlterConfigs                       DESCRIBE_CONFIGS, ALTER_CONFIGS on T, G or C
    34, 43, 45, 51, 57      ALTER C
    35, 46, 50              DESCRIBE C
    37 CreatePartitions     ALTER T
    38 CreateDelegationToken         for another owner: CREATE_TOKENS on that user (checked by the handler)
    39, 40                  nothing here: the handlers check that the user is the owner or a renewer of the token
    41 DescribeDelegationToken       for tokens of others: DESCRIBE of the token | DESCRIBE_TOKENS on its owner
                                     (checked by the handler)
    42 DeleteGroups         DELETE G
    47 OffsetDelete         DELETE G, READ T
    48, 74                  DESCRIBE_CONFIGS C
    60 DescribeCluster      nothing; the operations of the user: DESCRIBE C
    61 DescribeProducers    READ T
    65 DescribeTransactions DESCRIBE X, DESCRIBE T; other topics are left out
    66 ListTransactions     DESCRIBE X; other transactional ids are left out

A served key without a check would be open to everyone; a test makes sure that no key lacks a check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jesenska.broker.requests.authorization.access import Access, Rule, Verdict
from jesenska.broker.requests.authorization.cluster import CLUSTER_RULES
from jesenska.broker.requests.authorization.groups import GROUP_RULES
from jesenska.broker.requests.authorization.topics import TOPIC_RULES
from jesenska.broker.requests.authorization.transactions import TRANSACTION_RULES


def _free(access: Access, request: Any, version: int) -> Verdict:
    """Allows the request for every user, including a user that is not authenticated yet."""
    return None


RULES: Final[Mapping[int, Rule]] = {
    **dict.fromkeys((17, 18, 36), _free),
    # Requests about delegation tokens are checked by their handlers, which know if the client has logged in with a
    # token.
    **dict.fromkeys((38, 39, 40, 41), _free),
    **TOPIC_RULES,
    **GROUP_RULES,
    **TRANSACTION_RULES,
    **CLUSTER_RULES,
}
