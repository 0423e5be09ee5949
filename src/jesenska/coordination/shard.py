"""What a coordinator is made of: values that go in and come out, and what it must be able to do.

A coordinator is cut into shards. Each keeps what one partition of its topic keeps (the groups of a partition of
`__consumer_offsets`), and is a replicated state machine:

    an event comes in                  -> answers, orders, and operations: records to be written, with what to do then
    the operation's records are committed  -> each is replayed, and only that changes what must survive; then the shard
                                           is told `Committed`
    they are not                       -> the shard is told `Failed`; nothing has to be undone that a restart would
                                       have kept
    it takes too long                  -> the shard is told `Late` and answers; the records may be committed all the
                                       same

`operations` runs this for one shard, without a clock or a log; `runtime` does it on this broker's partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from jesenska.base.errors import ErrorCode

#: The number that an event came with; its answer carries it. A shard only hands it on.
Token = int


class Now(NamedTuple):
    """The moment of an event, by both clocks: `monotonic_ms` for whatever waits, `wall_ms` (since the Unix epoch) for
    what is kept."""

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
    """The transaction of a producer that records are written in: they count when it is committed."""

    producer_id: int
    producer_epoch: int


class Marker(NamedTuple):
    """The end of a producer's transaction in a partition."""

    of: OfTransaction
    commits: bool
    coordinator_epoch: int


class Write(NamedTuple):
    """Write these records; `operation` comes back with what became of them. `name` says in log lines what they are
    about. With `within` they belong to a transaction; with `marker` there are none, and a transaction ends."""

    name: str
    records: tuple[Any, ...]
    operation: Any
    within: OfTransaction | None = None
    marker: Marker | None = None


class Order(NamedTuple):
    """To be done by whoever runs the coordinator. Nothing waits for it; what becomes of it is an event of its own."""

    order: Any


# --- into a shard, beside the events of its own ----------------------------------------------------------------------


class Committed(NamedTuple):
    """An operation's records are committed and replayed. Whoever waited has had an answer already if it was not
    `in_time`."""

    operation: Any
    in_time: bool


class Failed(NamedTuple):
    """An operation's records are not in the log. Whoever waited has had an answer already if it was not `in_time`."""

    operation: Any
    error: ErrorCode
    in_time: bool


class Late(NamedTuple):
    """Whoever waits for an operation is to wait no longer; `Committed` or `Failed` still follows."""

    operation: Any
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: what is due is looked at."""


@dataclass(frozen=True, slots=True)
class Resign:
    """This broker coordinates the shard no longer: whoever waits is told to look for another."""


Effect = Answer | Write | Order


class Shard(Protocol):
    """One shard of a coordinator: a decider."""

    def handle(self, event: Any, now: Now) -> Sequence[Effect]:
        """What is to be done about an event."""
        ...

    def replay(self, record: Any, now: Now) -> None:
        """Takes in a record of the log: when the shard is loaded, and whenever a record of its own is committed."""
        ...

    def replay_within(self, record: Any, of: OfTransaction, now: Now, *, counts: bool = True) -> None:
        """Takes in a record of a transaction that is open. `counts` is False for one that something newer has
        overtaken when it was loaded: it waits for the end of its transaction and changes nothing then."""
        ...

    def replay_end(self, producer_id: int, commits: bool, now: Now) -> None:
        """A producer's transaction has ended: its records count, or are forgotten."""
        ...

    def finish_replay(self, now: Now) -> None:
        """The log is read: time begins to run."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When a `Tick` is due next, by the monotonic clock; None if nothing waits for time."""
        ...


def client_error(error: ErrorCode) -> ErrorCode:
    """What a failed write of a coordinator means to whoever asked for it."""
    if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
