"""What the controller is told, as values: what clients ask, what became of brokers, what others wrote in the tree,
what came of its effects.

Whoever asks gives a token, under which the answer comes (`effects.Answer`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.controller.config_changes import ConfigOp
from jesenska.controller.topics import TopicCreation
from jesenska.metadata.nodes import BrokerRegistration

#: What a look is at: a path, a topic's node, or everything.
TOPIC, EVERYTHING = "topic ", "everything"

# What clients ask


class CreateTopic(NamedTuple):
    """Answered with the `TopicPlan`."""

    token: int
    wanted: TopicCreation
    validate_only: bool = False


class ExpandTopic(NamedTuple):
    """`partition_count` partitions in all; `assignments` names the brokers of the new ones, where somebody chose
    them."""

    token: int
    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


class DeleteTopic(NamedTuple):
    token: int
    name: str


class AlterTopicSettings(NamedTuple):
    """Single settings (operations), or all of them (a mapping)."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


class AlterBrokerSettings(NamedTuple):
    """The same of a broker, or of every broker (the empty name)."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


class TopicsNew(NamedTuple):
    """A broker hears of topics that it did not know. Answered when it knows their settings."""

    token: int
    names: tuple[str, ...]


class ElectUncleanly(NamedTuple):
    """Let a replica lead that was not in sync, if nobody leads the partition. Answered with whether somebody leads it
    then."""

    token: int
    topic_partition: TopicPartition


class ElectPreferred(NamedTuple):
    """Let the first replica of each of these partitions lead (None: of all). Answered with a mapping: the class of the
    error of each partition for which that was not done (ElectionNotNeededError: it leads already), None for the
    others; of all partitions, those that were led already are left out."""

    token: int
    topic_partitions: tuple[TopicPartition, ...] | None


class BalanceLeaders(NamedTuple):
    """It is time to look whether brokers lead too few of the partitions whose first replica they have
    (auto.leader.rebalance.enable)."""


class StopWanted(NamedTuple):
    """A broker is about to stop, and asks that others lead what it leads. Answered with the partitions that it leads
    still though they have other replicas: none of those is in sync. BrokerNotAvailableError where it is not up."""

    token: int
    broker_id: int


class IsrProposed(NamedTuple):
    """The leader of a partition asks for another ISR (KIP-497). Answered with the `PartitionView` that stands then."""

    token: int
    broker_id: int
    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


# What became of brokers


class Started(NamedTuple):
    """This broker is controller, and its context is read. Answered when every topic has an id: those of releases
    before 2.8 have none."""

    token: int


class BrokerCame(NamedTuple):
    """A registered broker takes requests. `crashed`: it was not stopped in order, and may lack what it had. `epoch`:
    which registration it is (the number of the change that made the node). Answered when it has everything that it is
    to have."""

    token: int | None
    broker_id: int
    node: BrokerRegistration
    crashed: bool = False
    epoch: int = -1


class BrokerGone(NamedTuple):
    broker_id: int


# What others wrote in the tree


class Look(NamedTuple):
    """Something was written there: a path, `topic <name>`, or everything, which is for when the store was out of
    reach."""

    at: str


# What came of effects


class Done(NamedTuple):
    """The outcome of a `Step`, or the error that stands in its place. `is_connected`: whether the tree can be
    reached."""

    number: int
    outcome: Any = None
    error: Exception | None = None
    is_connected: bool = True


class LeaderAndIsrDone(NamedTuple):
    """`without_log`: the partitions whose log could not be made."""

    number: int
    broker_id: int
    without_log: frozenset[TopicPartition] = frozenset()


class StopReplicaDone(NamedTuple):
    """`error`: why data are still there."""

    number: int
    broker_id: int
    error: Exception | None = None


Change = (
    CreateTopic
    | ExpandTopic
    | DeleteTopic
    | AlterTopicSettings
    | AlterBrokerSettings
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
