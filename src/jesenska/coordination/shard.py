"""The interface of a coordinator's shard: its methods, the events that it gets, and the effects that it returns.

A coordinator is divided into shards. A shard has the state of one partition of the coordinator's topic (for example
the groups of a partition of `__consumer_offsets`), and is a replicated state machine:

  an event comes              -> answers, orders, and writes. A write has records and the operation that waits for them
  the records are committed   -> each record is applied; state that must survive a restart changes only in this way.
                                 Then the shard gets `Committed`
  the records are not written -> the shard gets `Failed`; no state has to be undone
  the write takes too long    -> the shard gets `Late` and answers; the records may still be committed

`operations` matches the outcomes to the writes of one shard. `runtime` writes to the logs of this broker's
partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from jesenska.base.errors import ErrorCode

#: The number that is passed with an event, and returned with the answer to the event. A shard does not interpret the
#: number.
Token = int


class Now(NamedTuple):
    """The time of an event, by two clocks: `monotonic_ms` for waits, `wall_ms` (since the Unix epoch) for records."""

    monotonic_ms: int
    wall_ms: int


class KeyValue(NamedTuple):
    """A record's key and value as bytes; a null value is a tombstone."""

    key: bytes
    value: bytes | None


# --- effects of a shard ----------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """An effect: the answer to the request that came with this token."""

    token: Token
    response: Any


class OfTransaction(NamedTuple):
    """The producer of the transaction to which records belong. The records become valid when the transaction is
    committed."""

    producer_id: int
    producer_epoch: int


class Marker(NamedTuple):
    """The end of a producer's transaction in a partition: a commit or an abort."""

    of: OfTransaction
    commits: bool
    coordinator_epoch: int


class Write(NamedTuple):
    """An effect: asks to write these records. `operation` is returned to the shard with the outcome of the write.
    `name` is the group or transactional id, for log lines. With `within`, the records belong to a transaction. With
    `marker`, there are no records, and the end marker of a transaction is written."""

    name: str
    records: tuple[Any, ...]
    operation: Any
    within: OfTransaction | None = None
    marker: Marker | None = None


class Order(NamedTuple):
    """An effect: an order to the coordinator's runtime, such as to send end markers. The shard does not wait for the
    order; the outcome is a separate event."""

    order: Any


class Say(NamedTuple):
    """An effect: a line for the broker's log, at level INFO."""

    line: str


# --- events for every kind of shard ----------------------------------------------------------------------------------


class Committed(NamedTuple):
    """Event: the records of an operation are committed and applied to the shard. If `in_time` is False, the request
    has been answered already."""

    operation: Any
    in_time: bool


class Failed(NamedTuple):
    """Event: the records of an operation could not be written to the log. If `in_time` is False, the request has been
    answered already."""

    operation: Any
    error: ErrorCode
    in_time: bool


class Late(NamedTuple):
    """Event: an operation has taken too long, and its request must be answered now. `Committed` or `Failed` still
    follows."""

    operation: Any
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed, and the shard must handle the deadlines that have been reached."""


@dataclass(frozen=True, slots=True)
class Resign:
    """Event: this broker no longer runs the shard, and waiting requests must be answered NOT_COORDINATOR."""


Effect = Answer | Write | Order | Say


class Shard(Protocol):
    """The interface of one shard of a coordinator. A shard does no input or output: it gets events and returns
    effects."""

    def handle(self, event: Any, now: Now) -> Sequence[Effect]:
        """Handles an event, and returns its effects."""
        ...

    def replay(self, record: Any, now: Now) -> None:
        """Applies a record of the log: when the shard is being loaded, and when a record of the shard is committed."""
        ...

    def replay_within(self, record: Any, of: OfTransaction, now: Now, *, counts: bool = True) -> None:
        """Applies a record of an open transaction. `counts` is False if the record's key was later written outside of
        the transaction. Such a record also waits for the end of the transaction, but then changes nothing."""
        ...

    def replay_end(self, producer_id: int, commits: bool, now: Now) -> None:
        """Applies the end of a producer's transaction: its records become valid, or are dropped."""
        ...

    def finish_replay(self, now: Now) -> None:
        """Called when the log has been read: starts the timers."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next `Tick` in milliseconds of the monotonic clock, or None if there is no
        deadline."""
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
