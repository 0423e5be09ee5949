"""The controller's effects: plain data that say what the controller wants done.
`broker.controlling.controller_runtime` carries them out and reports the outcomes as events.

    Step            a read or a write of the tree: answered by `Done` with its number
    LeaderAndIsr    to one broker          answered by `LeaderAndIsrDone`
    StopReplica     to one broker          answered by `StopReplicaDone`
    UpdateMetadata  to one broker; SettingsChanged, OffsetsForgotten to this one; not answered
    Answer          to the client; leaves when this broker has done the effects before it
    Wake            an event again after a pause
    Say             a line in the broker's log

The effects for brokers are named after Kafka's requests (keys 4 to 6)."""

from __future__ import annotations

from typing import Any, NamedTuple

from jesenska.controller.context import TopicView
from jesenska.metadata.tree_operations import Operation


class Children(NamedTuple):
    """The names of a node's children; None if there is no such node. `look`: what to look at when it changes (see
    `events.Look`)."""

    path: str
    look: str | None = None


class Get(NamedTuple):
    """A node's data and version; None if there is no such node."""

    path: str
    look: str | None = None


class Exists(NamedTuple):
    """A node's version; None if there is no such node. `look` applies to its creation, too."""

    path: str
    look: str | None = None


class GetMade(NamedTuple):
    """A node's data, and the number of the change that made it (czxid); None if there is no such node."""

    path: str


class Read(NamedTuple):
    """Read these from the tree. The outcome is a tuple of the answers, in order."""

    asked: tuple[Children | Get | Exists | GetMade, ...]


class Write(NamedTuple):
    """Do these operations, all or none. The outcome is a tuple of the tree's results. If there are more than the tree
    takes at a time, they are written in pieces: each piece begins with the checks at the beginning of the whole, and
    after an error the pieces before it stay written."""

    operations: tuple[Operation, ...]


class Step(NamedTuple):
    """A `Read` or a `Write`. The current change continues when the outcome is there."""

    number: int
    what: Read | Write


class TopicPartitions(NamedTuple):
    """Some partitions of a topic, with everything about the topic."""

    topic: TopicView
    numbers: tuple[int, ...]


class LeaderAndIsr(NamedTuple):
    """Order: the broker must have replicas of these partitions. It creates missing logs, and leads or follows as the
    states say."""

    number: int
    broker_id: int
    topics: tuple[TopicPartitions, ...]


class StopReplica(NamedTuple):
    """The broker gives up its replicas of a topic that is being deleted, and their data. Without `delete` the broker
    is about to stop: it no longer follows these partitions, and keeps the data."""

    number: int
    broker_id: int
    topic: str
    numbers: tuple[int, ...]
    delete: bool = True


class UpdateMetadata(NamedTuple):
    """The metadata of these topics for the broker's clients: `topics` exist, `gone` do not. `is_first`: these are all
    topics, sent to a broker that has come, before it is told what to lead."""

    broker_id: int
    topics: tuple[TopicPartitions, ...] = ()
    gone: tuple[TopicPartitions, ...] = ()
    is_first: bool = False


class SettingsChanged(NamedTuple):
    """The settings of `topics/<name>` or `brokers/<id>` have changed."""

    entity: str


class OffsetsForgotten(NamedTuple):
    """Groups must forget the offsets that they have committed of a topic, because it is deleted."""

    topic: str


class Answer(NamedTuple):
    """The answer to the request with that token: a value, or an error instead."""

    token: int
    value: Any = None
    error: Exception | None = None


class Wake(NamedTuple):
    """Give this event back after the pause."""

    after_ms: int
    event: Any


class Say(NamedTuple):
    """A line for the log. `level` is its name: info, warning, error."""

    level: str
    text: str


Effect = Step | LeaderAndIsr | StopReplica | UpdateMetadata | SettingsChanged | OffsetsForgotten | Answer | Wake | Say
