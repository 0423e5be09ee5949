"""The controller's effects: plain data that describe what must be done. `broker.controlling.controller_runtime`
carries out the effects, and returns the outcomes as events.

    Step            a read or a write of the metadata tree: answered by `Done` with the number of the step
    LeaderAndIsr    to one broker          answered by `LeaderAndIsrDone`
    StopReplica     to one broker          answered by `StopReplicaDone`
    UpdateMetadata  to one broker          not answered
    SettingsChanged, OffsetsForgotten      to this broker, not answered
    Answer          to the client; sent when this broker has carried out the earlier effects
    Wake            returns an event after a pause
    Say             a line in the broker's log

The effects for brokers are named after Kafka's requests (API keys 4 to 6)."""

from __future__ import annotations

from typing import Any, NamedTuple

from jesenska.controller.context import TopicView
from jesenska.metadata.tree_operations import Operation


class Children(NamedTuple):
    """Asks for the names of a node's children; the answer is None if there is no such node. If `look` is given, the
    node is watched, and a change causes this `events.Look`."""

    path: str
    look: str | None = None


class Get(NamedTuple):
    """Asks for a node's data and version; the answer is None if there is no such node. `look` as in `Children`."""

    path: str
    look: str | None = None


class Exists(NamedTuple):
    """Asks for a node's version; the answer is None if there is no such node. `look` as in `Children`; the node's
    creation counts as a change."""

    path: str
    look: str | None = None


class GetMade(NamedTuple):
    """Asks for a node's data, and the zxid of the change that created it (czxid); the answer is None if there is no
    such node."""

    path: str


class Read(NamedTuple):
    """Reads of the metadata tree. The outcome is a tuple of their answers, in order."""

    asked: tuple[Children | Get | Exists | GetMade, ...]


class Write(NamedTuple):
    """Operations on the metadata tree in one transaction: all are done, or no operation is done. The outcome is a
    tuple of the tree's results. If there are more operations than the tree accepts at once, they are written in
    several pieces. Each piece begins with the `Check` operations at the beginning of the list. After an error, earlier
    pieces remain written."""

    operations: tuple[Operation, ...]


class Step(NamedTuple):
    """A `Read` or a `Write` of the metadata tree. The current change continues when the outcome of the step is
    known."""

    number: int
    what: Read | Write


class TopicPartitions(NamedTuple):
    """Some partitions of a topic, with the topic (its node and the states of all its partitions)."""

    topic: TopicView
    numbers: tuple[int, ...]


class LeaderAndIsr(NamedTuple):
    """The request LeaderAndIsr to a broker: the broker must have replicas of these partitions. The broker creates
    missing logs, and becomes leader or follower as the partitions' states say."""

    number: int
    broker_id: int
    topics: tuple[TopicPartitions, ...]


class StopReplica(NamedTuple):
    """The request StopReplica to a broker. With `delete`, the broker must delete its replicas: the topic is being
    deleted, or, if there are leader epochs (`epochs`, one for each partition), the partitions have other replicas.
    Without `delete`, the broker is about to stop: it must stop following these partitions, and does not delete the
    data."""

    number: int
    broker_id: int
    topic: str
    numbers: tuple[int, ...]
    delete: bool = True
    epochs: tuple[int, ...] = ()


class UpdateMetadata(NamedTuple):
    """The request UpdateMetadata to a broker, for the broker's clients. `topics` exist, `gone` have been deleted. With
    `is_first`, `topics` are all topics, sent to a newly registered broker before its first LeaderAndIsr."""

    broker_id: int
    topics: tuple[TopicPartitions, ...] = ()
    gone: tuple[TopicPartitions, ...] = ()
    is_first: bool = False


class SettingsChanged(NamedTuple):
    """Reports that the settings of `topics/<name>` or `brokers/<id>` have changed."""

    entity: str


class OffsetsForgotten(NamedTuple):
    """Asks to delete the offsets that groups have committed for a topic, because the topic is deleted."""

    topic: str


class Answer(NamedTuple):
    """The answer to the request with this token: a value, or an error."""

    token: int
    value: Any = None
    error: Exception | None = None


class Wake(NamedTuple):
    """Asks to pass this event to the controller after a pause of `after_ms` milliseconds."""

    after_ms: int
    event: Any


class Say(NamedTuple):
    """A line for the broker's log. `level` is info, warning or error."""

    level: str
    text: str


Effect = Step | LeaderAndIsr | StopReplica | UpdateMetadata | SettingsChanged | OffsetsForgotten | Answer | Wake | Say
