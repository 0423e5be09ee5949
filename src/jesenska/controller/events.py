"""The events that the controller receives, as plain data: requests of clients, brokers that come and go, changes in
the tree, outcomes of the controller's effects.

A request has a token, with which its answer comes (`effects.Answer`)."""

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

#: The object of a look: a path, a topic's node, or everything.
TOPIC, EVERYTHING = "topic ", "everything"

# Requests of clients


class CreateTopic(NamedTuple):
    """A client creates a topic. Answered with the `TopicPlan`."""

    token: int
    wanted: TopicCreation
    validate_only: bool = False


class ExpandTopic(NamedTuple):
    """A client raises a topic to `partition_count` partitions. `assignments` names the brokers of the new partitions,
    if the request does."""

    token: int
    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


class DeleteTopic(NamedTuple):
    token: int
    name: str


class AlterTopicSettings(NamedTuple):
    """A client changes settings of a topic: single settings (operations), or all of them (a mapping)."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


class AlterBrokerSettings(NamedTuple):
    """A client changes settings of a broker, or of every broker (empty name): single settings, or all of them."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


class AlterClientSettings(NamedTuple):
    """A client changes settings of a user, a client id or an address: SCRAM credentials and quotas; None removes one.
    `entity` is `users/<name>`, `users/<name>/clients/<name>`, `clients/<name>` or `ips/<address>`; names are
    sanitized."""

    token: int
    entity: str
    changes: Mapping[str, str | None]


class ReadAcls(NamedTuple):
    """A broker starts. Answered when it knows all access rules of the tree."""

    token: int


class CreateAcls(NamedTuple):
    """A client adds access rules. Answered with a list: an error or None for each of them."""

    token: int
    bindings: tuple[AclBinding, ...]


class DeleteAcls(NamedTuple):
    """A client takes away the access rules that filters choose. Answered with a list for each filter, of the rules
    that it chose, each with an error or None. A rule that several filters choose counts for the first."""

    token: int
    filters: tuple[AclFilter, ...]


class ReadTokens(NamedTuple):
    """A broker starts. Answered when it knows all delegation tokens of the tree."""

    token: int


class CreateToken(NamedTuple):
    """A client creates a delegation token."""

    token: int
    new: DelegationToken


class ChangeToken(NamedTuple):
    """A client changes when a delegation token expires, in ms since the Unix epoch; None removes it."""

    token: int
    token_id: str
    expires_at_ms: int | None


class ExpireTokens(NamedTuple):
    """Expired delegation tokens are removed. `now_ms` is the wall clock."""

    now_ms: int


class TopicsNew(NamedTuple):
    """A broker hears of topics that it did not know. Answered when it knows their settings."""

    token: int
    names: tuple[str, ...]


class ElectUncleanly(NamedTuple):
    """Elect a leader that is not in the ISR, if the partition has no leader. Answered with True if it has a leader
    then."""

    token: int
    topic_partition: TopicPartition


class ElectPreferred(NamedTuple):
    """Elect the first replica of each of these partitions (None: of all). Answered with a mapping by partition: the
    class of the error if that was not done (ElectionNotNeededError: it leads already), else None. For all partitions,
    those that it led already are left out."""

    token: int
    topic_partitions: tuple[TopicPartition, ...] | None


class BalanceLeaders(NamedTuple):
    """It is time to check for brokers that lead too few of the partitions whose first replica they have
    (auto.leader.rebalance.enable)."""


class StopWanted(NamedTuple):
    """A broker is about to stop, and asks to move its leaderships. Answered with the partitions that it still leads
    though they have other replicas: no other replica is in sync. BrokerNotAvailableError if it is not up."""

    token: int
    broker_id: int


class IsrProposed(NamedTuple):
    """The leader of a partition asks for another ISR (KIP-497). Answered with the resulting `PartitionView`."""

    token: int
    broker_id: int
    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


# Brokers that come and go


class Started(NamedTuple):
    """This broker is controller, and its context is read. Answered when every topic has an id: topics of releases
    before 2.8 have no id."""

    token: int


class BrokerCame(NamedTuple):
    """A registered broker takes requests. `crashed`: it was not stopped in order, and may lack records. `epoch`: its
    registration (the number of the change that made the node). Answered when it has got all its orders."""

    token: int | None
    broker_id: int
    node: BrokerRegistration
    crashed: bool = False
    epoch: int = -1


class BrokerGone(NamedTuple):
    broker_id: int


# Changes in the tree


class Look(NamedTuple):
    """A part of the tree may have changed: a path, `topic <name>`, or everything, after the store was out of reach."""

    at: str


# Outcomes of effects


class Done(NamedTuple):
    """The outcome of a `Step`, or an error instead. `is_connected`: True if the tree can be reached."""

    number: int
    outcome: Any = None
    error: Exception | None = None
    is_connected: bool = True


class LeaderAndIsrDone(NamedTuple):
    """A broker has answered a LeaderAndIsr. `without_log`: the partitions whose log could not be made."""

    number: int
    broker_id: int
    without_log: frozenset[TopicPartition] = frozenset()


class StopReplicaDone(NamedTuple):
    """A broker has answered a StopReplica. `error`: why data are still there."""

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
