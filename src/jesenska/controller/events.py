"""The events that the controller gets, as plain data: requests of clients, brokers that register or leave, changes of
the metadata tree, and outcomes of the controller's effects.

A request has a token; its answer has the same token (`effects.Answer`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.controller.plans.config_changes import ConfigOp
from jesenska.controller.plans.topics import TopicCreation
from jesenska.metadata.nodes import BrokerRegistration

if TYPE_CHECKING:
    from jesenska.security.acls import AclBinding, AclFilter
    from jesenska.security.delegation_tokens import DelegationToken

#: Values of `Look.at` that are not a path: one topic's node (`topic <name>`), or everything.
TOPIC, EVERYTHING = "topic ", "everything"

# Requests of clients


class CreateTopic(NamedTuple):
    """A client creates a topic. The answer is the `TopicPlan`."""

    token: int
    wanted: TopicCreation
    validate_only: bool = False


class ExpandTopic(NamedTuple):
    """A client adds partitions to a topic, so that the topic has `partition_count` partitions. `assignments` names the
    brokers of the new partitions; None means that the controller chooses the brokers."""

    token: int
    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


class DeleteTopic(NamedTuple):
    token: int
    name: str


class AlterTopicSettings(NamedTuple):
    """A client changes settings of a topic: single settings (a sequence of operations), or all settings (a
    mapping)."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


class AlterBrokerSettings(NamedTuple):
    """A client changes settings of a broker, or of every broker (empty name): single settings (a sequence of
    operations), or all settings (a mapping)."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


class AlterClientSettings(NamedTuple):
    """A client changes settings of a user, a client id or an IP address: SCRAM credentials and quotas. The value None
    removes a setting. `entity` is `users/<name>`, `users/<name>/clients/<name>`, `clients/<name>` or `ips/<address>`,
    with sanitized names."""

    token: int
    entity: str
    changes: Mapping[str, str | None]


class ReadAcls(NamedTuple):
    """A broker starts, and needs all ACLs. Answered when they have been read."""

    token: int


class CreateAcls(NamedTuple):
    """A client adds ACLs. The answer is a list with an error or None for each ACL."""

    token: int
    bindings: tuple[AclBinding, ...]


class DeleteAcls(NamedTuple):
    """A client deletes the ACLs that match filters. The answer is a list for each filter: the ACLs that match the
    filter, each with an error or None. An ACL that matches several filters is only in the list of the first of these
    filters."""

    token: int
    filters: tuple[AclFilter, ...]


class ReadTokens(NamedTuple):
    """A broker starts, and needs all delegation tokens. Answered when the tokens have been read from the metadata
    tree."""

    token: int


class CreateToken(NamedTuple):
    """A client creates a delegation token."""

    token: int
    new: DelegationToken


class ChangeToken(NamedTuple):
    """A client changes the time at which a delegation token expires, in ms since the Unix epoch. None removes the
    token."""

    token: int
    token_id: str
    expires_at_ms: int | None


class ExpireTokens(NamedTuple):
    """Asks to remove expired delegation tokens. `now_ms` is the current time in ms since the Unix epoch."""

    now_ms: int


class TopicsNew(NamedTuple):
    """A broker has got topics that it did not know. Answered when their settings have been read."""

    token: int
    names: tuple[str, ...]


class ElectUncleanly(NamedTuple):
    """A client requests an unclean election for a partition without a leader. The answer is True if the partition has
    a leader afterwards."""

    token: int
    topic_partition: TopicPartition


class ElectPreferred(NamedTuple):
    """A client requests the election of the first replica of each of these partitions; None means all partitions. The
    answer has an error class for each partition, or None if the replica was elected (ElectionNotNeededError: it leads
    already). With None as argument, partitions that their first replica leads already are left out."""

    token: int
    topic_partitions: tuple[TopicPartition, ...] | None


class AlterReassignments(NamedTuple):
    """A client requests other replicas for partitions; None cancels a reassignment (KIP-455). Without
    `may_change_factor`, a target with another number of replicas is refused. The answer is a list with an error or
    None for each request. If several requests for one partition are accepted, the last of them counts."""

    token: int
    wanted: Sequence[tuple[TopicPartition, Sequence[int] | None]]
    may_change_factor: bool = True


class BalanceLeaders(NamedTuple):
    """It is time to check for brokers that lead too few of the partitions for which they are the preferred leader
    (auto.leader.rebalance.enable)."""


class StopWanted(NamedTuple):
    """A broker is about to stop, and asks for the election of other leaders. The answer contains the partitions that
    the broker still leads because no other replica is in sync. If the broker is not registered, the error is
    BrokerNotAvailableError."""

    token: int
    broker_id: int


class IsrProposed(NamedTuple):
    """The leader of a partition requests another ISR (KIP-497). The answer is the resulting `PartitionView`."""

    token: int
    broker_id: int
    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


# Brokers that register or leave


class Started(NamedTuple):
    """This broker is controller, and has read the metadata tree into its context. Answered when every topic has an id.
    Topics of Kafka releases before 2.8 have no id and get a new id."""

    token: int


class BrokerCame(NamedTuple):
    """A broker has registered and accepts requests. `crashed` is True if it was not stopped cleanly, and may lack
    records. `epoch` is its broker epoch. Answered when all requests that the registration causes have been sent to the
    broker."""

    token: int | None
    broker_id: int
    node: BrokerRegistration
    crashed: bool = False
    epoch: int = -1


class BrokerGone(NamedTuple):
    broker_id: int


# Changes of the tree


class Look(NamedTuple):
    """A part of the metadata tree may have changed. `at` is a path, `topic <name>`, or everything (after a lost
    connection to the store)."""

    at: str


# Outcomes of effects


class Done(NamedTuple):
    """The outcome of a `Step`, or its error. `is_connected` is True if the metadata tree can be reached."""

    number: int
    outcome: Any = None
    error: Exception | None = None
    is_connected: bool = True


class LeaderAndIsrDone(NamedTuple):
    """A broker has answered LeaderAndIsr. `without_log` has the partitions for which the broker has no log."""

    number: int
    broker_id: int
    without_log: frozenset[TopicPartition] = frozenset()


class StopReplicaDone(NamedTuple):
    """A broker has answered StopReplica. `error` is the reason why data were not deleted, or None."""

    number: int
    broker_id: int
    error: Exception | None = None


Change = (
    CreateTopic
    | ExpandTopic
    | DeleteTopic
    | AlterTopicSettings
    | AlterBrokerSettings
    | AlterClientSettings
    | ReadAcls
    | CreateAcls
    | DeleteAcls
    | ReadTokens
    | CreateToken
    | ChangeToken
    | ExpireTokens
    | ElectUncleanly
    | ElectPreferred
    | AlterReassignments
    | BalanceLeaders
    | StopWanted
    | IsrProposed
    | Started
    | BrokerCame
    | BrokerGone
    | Look
    | TopicsNew
)
Event = Change | Done | LeaderAndIsrDone | StopReplicaDone
