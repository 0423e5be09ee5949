"""The interface of a coordinator's shard: its methods, the events that it receives, and the effects that it returns.

A coordinator is divided into shards. Each keeps the state of one partition of its topic (the groups of a partition of
`__consumer_offsets`), and is a replicated state machine:

    an event comes in                  -> answers, orders, and operations: records to be written, with what to do then
    the operation's records are committed  -> each is replayed, and only that changes state that must survive; then the
                                           shard gets `Committed`
    they are not                       -> the shard gets `Failed`; no state that a restart would have kept has to be
                                       undone
    it takes too long                  -> the shard gets `Late` and answers; the records may still be committed

`operations` runs this for one shard, without a clock or a log; `runtime` does it on this broker's partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from jesenska.base.errors import ErrorCode

#: The number that an event came with; its answer carries it. A shard only passes it on.
Token = int


class Now(NamedTuple):
    """The time of an event, by two clocks: `monotonic_ms` for waits, `wall_ms` (since the Unix epoch) for records."""

    monotonic_ms: int
    wall_ms: int


class KeyValue(NamedTuple):
    """A record's key and value as bytes; a null value is a tombstone."""

    key: bytes
    value: bytes | None


# --- out of a shard --------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """Answer the request that came with this token."""

    token: Token
    response: Any


class OfTransaction(NamedTuple):
    """The producer of the transaction to which records belong. They take effect when it is committed."""

    producer_id: int
    producer_epoch: int


class Marker(NamedTuple):
    """The end of a producer's transaction in a partition."""

    of: OfTransaction
    commits: bool
    coordinator_epoch: int


class Write(NamedTuple):
    """An effect: write these records. `operation` comes back with their outcome. `name` is their subject in log lines.
    With `within`, the records belong to a transaction. With `marker`, there are no records, and a transaction ends."""

    name: str
    records: tuple[Any, ...]
    operation: Any
    within: OfTransaction | None = None
    marker: Marker | None = None


class Order(NamedTuple):
    """An order to the runtime of the coordinator. Nothing waits for it; its outcome is a separate event."""

    order: Any


class Say(NamedTuple):
    """Write this line to the broker's log, at INFO."""

    line: str


# --- into a shard, beside the events of its own ----------------------------------------------------------------------


class Committed(NamedTuple):
    """An operation's records are committed and replayed. If it was not `in_time`, the request has been answered
    already."""

    operation: Any
    in_time: bool


class Failed(NamedTuple):
    """An operation's records are not in the log. If it was not `in_time`, the request has been answered already."""

    operation: Any
    error: ErrorCode
    in_time: bool


class Late(NamedTuple):
    """An operation has taken too long: its request is answered now. `Committed` or `Failed` still follows."""

    operation: Any
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: the shard handles the deadlines that are due."""


@dataclass(frozen=True, slots=True)
class Resign:
    """This broker does not run the shard any more: waiting requests are answered NOT_COORDINATOR."""


Effect = Answer | Write | Order | Say


class Shard(Protocol):
    """One shard of a coordinator: a decider."""

    def handle(self, event: Any, now: Now) -> Sequence[Effect]:
        """Handles an event; returns its effects."""
        ...

    def replay(self, record: Any, now: Now) -> None:
        """Applies a record of the log: when the shard is loaded, and when a record of its own is committed."""
        ...

    def replay_within(self, record: Any, of: OfTransaction, now: Now, *, counts: bool = True) -> None:
        """Applies a record of an open transaction. `counts` is False for a record that a newer one has replaced when
        it was loaded: it waits for the end of its transaction and changes nothing then."""
        ...

    def replay_end(self, producer_id: int, commits: bool, now: Now) -> None:
        """Applies the end of a producer's transaction: its records take effect, or are forgotten."""
        ...

    def finish_replay(self, now: Now) -> None:
        """Called when the log is read: starts the timers."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next `Tick` in ms of the monotonic clock; None if nothing waits for a time."""
        ...


def client_error(error: ErrorCode) -> ErrorCode:
    """Returns the error that a client gets for a coordinator's failed write."""
    if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ):
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
