"""What the controller wants done, as values. What runs it (`broker.controller_runtime`) does these things and says
what came of them.

    Step            a read or a write of the tree: answered by `Done` with its number
    LeaderAndIsr    to one broker          answered by `LeaderAndIsrDone`
    StopReplica     to one broker          answered by `StopReplicaDone`
    UpdateMetadata  to one broker; SettingsChanged, OffsetsForgotten to this one; not answered
    Answer          to whoever asked; leaves when this broker has done what stands before it
    Wake            an event again after a pause
    Say             to whoever reads the log

The names of what goes to brokers are those of Kafka's requests (keys 4 to 6)."""

from __future__ import annotations

from typing import Any, NamedTuple

from jesenska.controller.context import TopicView
from jesenska.metadata.tree_operations import Operation


class Children(NamedTuple):
    """The names of a node's children; None where there is no such node. `look`: what to look at when it changes (see
    `events.Look`)."""

    path: str
    look: str | None = None


class Get(NamedTuple):
    """A node's data and version; None where there is no such node."""

    path: str
    look: str | None = None


class Exists(NamedTuple):
    """A node's version; None where there is no such node, of whose creation `look` hears, too."""

    path: str
    look: str | None = None


class GetMade(NamedTuple):
    """A node's data, and the number of the change that made it (czxid); None where there is no such node."""

    path: str


class Read(NamedTuple):
    """Ask the tree these things. The outcome is a tuple of the answers, in their order."""

    asked: tuple[Children | Get | Exists | GetMade, ...]


class Write(NamedTuple):
    """Do these operations, all or none. The outcome is a tuple of the tree's results. Many are written in pieces where
    the tree takes no more at a time: then each piece begins with the checks that the whole begins with, and an error
    leaves a beginning."""

    operations: tuple[Operation, ...]


class Step(NamedTuple):
    """One of the two above. The change that is at work goes on when its outcome is there."""

    number: int
    what: Read | Write


class TopicPartitions(NamedTuple):
    """Some partitions of a topic, with everything about the topic."""

    topic: TopicView
    numbers: tuple[int, ...]


class LeaderAndIsr(NamedTuple):
    """The broker has replicas of these partitions: it makes the logs that it lacks, and leads or follows as their
    states say."""

    number: int
    broker_id: int
    topics: tuple[TopicPartitions, ...]


class StopReplica(NamedTuple):
    """The broker gives up its replicas of a topic that is being deleted, and their data. Without `delete` it is about
    to stop: it follows these partitions no longer, and keeps the data."""

    number: int
    broker_id: int
    topic: str
    numbers: tuple[int, ...]
    delete: bool = True


class UpdateMetadata(NamedTuple):
    """What the broker tells clients of these topics: they are there as they stand here, or they are gone. `is_first`:
    these are all topics that there are, told to a broker that has come, before it is told what to lead."""

    broker_id: int
    topics: tuple[TopicPartitions, ...] = ()
    gone: tuple[TopicPartitions, ...] = ()
    is_first: bool = False


class SettingsChanged(NamedTuple):
    """The settings of `topics/<name>` or `brokers/<id>` are others."""

    entity: str


class OffsetsForgotten(NamedTuple):
    """Groups forget what they have committed of a topic: it is deleted."""

    topic: str


class Answer(NamedTuple):
    """The answer to whoever asked under that token: a value, or the error that stands in its place."""

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
