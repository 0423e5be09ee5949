"""What the controller is told, as values: what clients ask, what became of brokers, what others wrote in the tree,
what came of its effects.

Whoever asks gives a token, under which the answer comes (`effects.Answer`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jesenska.base.identifiers import TopicPartition
from jesenska.controller.config_changes import ConfigOp
from jesenska.controller.topics import TopicCreation
from jesenska.metadata.nodes import BrokerRegistration

#: What a look is at: a path, a topic's node, or everything.
TOPIC, EVERYTHING = "topic ", "everything"

# What clients ask


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Answered with the `TopicPlan`."""

    token: int
    wanted: TopicCreation
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ExpandTopic:
    """`count` partitions; `assignments` names the brokers of the new ones, where somebody chose them."""

    token: int
    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    token: int
    name: str


@dataclass(frozen=True, slots=True)
class AlterTopicSettings:
    """Single settings (operations), or all of them (a mapping)."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterBrokerSettings:
    """The same of a broker, or of every broker (the empty name)."""

    token: int
    name: str
    change: Sequence[ConfigOp] | Mapping[str, str | None]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ElectUncleanly:
    """Let a replica lead that was not in sync, if nobody leads the partition. Answered with whether somebody leads it
    then."""

    token: int
    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class IsrProposed:
    """The leader of a partition asks for another ISR (KIP-497). Answered with the `PartitionView` that stands then."""

    token: int
    broker_id: int
    topic_partition: TopicPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


# What became of brokers


@dataclass(frozen=True, slots=True)
class Started:
    """This broker is controller, and its context is read. Answered when every topic has an id: those of releases
    before 2.8 have none."""

    token: int


@dataclass(frozen=True, slots=True)
class BrokerCame:
    """A registered broker takes requests. `crashed`: it was not stopped in order, and may lack what it had. Answered
    when it has everything that it is to have."""

    token: int
    broker_id: int
    node: BrokerRegistration
    crashed: bool = False


@dataclass(frozen=True, slots=True)
class BrokerGone:
    broker_id: int


# What others wrote in the tree


@dataclass(frozen=True, slots=True)
class Look:
    """Something was written there: a path, `topic <name>`, or everything, which is for when the store was out of
    reach."""

    at: str


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker is controller, in this epoch; the version is that of the epoch's node."""

    epoch: int
    epoch_version: int


# What came of effects


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a `Step`, or the error that stands in its place. `is_connected`: whether the tree can be
    reached."""

    number: int
    outcome: Any = None
    error: Exception | None = None
    is_connected: bool = True


@dataclass(frozen=True, slots=True)
class LeaderAndIsrDone:
    """`without_log`: the partitions whose log could not be made."""

    number: int
    broker_id: int
    without_log: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class StopReplicaDone:
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
    | IsrProposed
    | Started
    | BrokerCame
    | BrokerGone
    | Look
    | Elected
)
Event = Change | Done | LeaderAndIsrDone | StopReplicaDone
