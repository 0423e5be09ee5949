"""Fetch sessions (KIP-227). The broker remembers the partitions and offsets of a client that fetches repeatedly. So
each request names only the partitions that have changed, and so does each answer. This module reads no log and sends
nothing. The session id and epoch in a request mean:

  session id   epoch      the request
  any          -1         wants no session. The session with this id ends
  any          0          wants a new session. The session with this id ends. The request names all its partitions, and
                          the answer contains all of them
  s            n          continues session s. Request and answer contain only the changed partitions. Errors:
                          unknown s: FETCH_SESSION_ID_NOT_FOUND; n not the next epoch: INVALID_FETCH_SESSION_EPOCH;
                          topic ids in a session that began with names, or the reverse: FETCH_SESSION_TOPIC_ID_ERROR

After epoch 2^31-1 comes epoch 1. An answer in a session contains a partition if the partition has new records, an
error, or a nearer replica to read from. It also contains a partition if the high watermark or log start offset differs
from the last answer.

A partition of a session is in one of two states:

  ready   the next fetch reads the partition. The partition is new, or the client changed its fetch offset, or the last
          answer had records, an error or a nearer replica for it, or its log has changed
  idle    there are no records after the fetch offset, and the client knows the high watermark and log start offset.
          The `Partition` object makes it ready after the next append or change of an offset

So the cost of a fetch depends only on its ready partitions. They are read in the session's order: the order in which
they were first named, except that a partition that was answered with records moves to the end. So a small limit of
bytes cannot exclude a partition from all answers.

While a Java consumer has fetched records of a partition that the application has not read yet, the consumer removes
("forgets") the partition from the session and fetches the other partitions. If the other partitions have no new
records, this request waits for `max_wait_ms`. With Apache Kafka the consumer then pauses for half a second after the
application has read all records. Here, the wait is shorter: if the client forgot such a partition 8 ms ago, this
request waits for 8 ms at most, and the next request for 16 ms. The shortest wait is a millisecond. So there are about
ten empty answers within the default `max_wait_ms` of 500 ms. If no forgotten partition has more records, the wait is
not shortened.

The cache contains a limited number of sessions. If it is full, a new session replaces a session that was not used for
two minutes. If there is no unused session, the new session replaces the smallest session that is older than two
minutes and smaller than the new session. A follower's session may replace any consumer's session. If the new session
can replace no session, the client gets session id 0, which means no session.

Sessions are in memory only: after a restart clients get FETCH_SESSION_ID_NOT_FOUND and begin a new session. There are
limits for the number of sessions, the partitions of a session, and the partitions of all sessions (base/limits.py)."""

from __future__ import annotations

import uuid
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.limits import FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_PARTITIONS_MAX
from jesenska.base.topic_names import TOPIC_NAME_MAX_CHARS
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k01_fetch import FetchRequestForgottenTopicsData, FetchRequestTopic, FetchResponsePartition

#: The session id in requests and answers that have no session.
NO_SESSION: Final = 0
#: The epoch of a request for a new session, and the epoch of a request without a session.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
#: A time in milliseconds. A session that is older may be replaced by a larger session. A session that was not used for
#: this time may be replaced by any new session. Kafka has the same number.
EVICTION_MS: Final = 120_000

_EPOCH_MAX = 2**31 - 1
_WAIT_MIN_MS = 1
_UNKNOWN = -1
_NO_REPLICA = -1


def next_epoch(epoch: int) -> int:
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class WantedPartition:
    """One partition of a fetch, as the client requests it."""

    __slots__ = ("current_leader_epoch", "error", "fetch_offset", "has_more", "index", "max_bytes", "partition")

    def __init__(self, index: int, fetch_offset: int, current_leader_epoch: int, max_bytes: int) -> None:
        self.index = index
        self.fetch_offset = fetch_offset
        self.current_leader_epoch = current_leader_epoch
        self.max_bytes = max_bytes
        #: True if the partition had more records than the last answer contained.
        self.has_more = False
        self.partition: Partition | None = None
        #: The error to answer if `partition` is None. It is an exception class, because a raised instance would keep
        #: the stack frames of its fetch alive.
        self.error: type[KafkaError] | None = None


class SessionPartition(WantedPartition):
    """One partition of a session: the client's request, and the offsets in the last answer to the client."""

    __slots__ = ("high_watermark", "log_start_offset", "order", "session", "topic", "topic_id")

    topic: str
    topic_id: uuid.UUID
    session: FetchSession
    #: The position in the session's order: lower numbers are read first.
    order: int

    def __init__(self, index: int, fetch_offset: int, current_leader_epoch: int, max_bytes: int) -> None:
        super().__init__(index, fetch_offset, current_leader_epoch, max_bytes)
        self.high_watermark = _UNKNOWN
        self.log_start_offset = _UNKNOWN

    def changed(self) -> None:
        """Marks the partition as ready. Its `Partition` calls this after an append or a change of an offset, because
        this class is a `replication.partition.Watcher`."""
        self.session.mark(self)

    def unwatch(self) -> None:
        if self.partition is not None:
            self.partition.unwatch(self)


class _Worth(NamedTuple):
    """The sort key of sessions in the cache: the session with the smallest key is replaced first."""

    is_privileged: bool
    size: int
    session_id: int


class FetchSession:
    __slots__ = (
        "_left_ms",
        "_next_order",
        "_ready",
        "_topics",
        "closed",
        "created_ms",
        "epoch",
        "is_privileged",
        "replaceable",
        "rules_version",
        "session_id",
        "size",
        "used_ms",
        "uses_topic_ids",
        "wake",
        "worth",
    )

    def __init__(
        self,
        session_id: int,
        is_privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
        wake: Callable[[FetchSession], None],
    ) -> None:
        self.session_id = session_id
        self.is_privileged = is_privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.used_ms = now_ms
        #: The epoch that the next request must have.
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.closed = False
        self.size = 0
        #: The version of the ACLs with which all partitions were last checked.
        self.rules_version = -1
        #: Called when a partition becomes ready.
        self.wake = wake
        #: Set by the cache: the session's sort key, and which of the cache's lists (`_by_privileged`, `_by_all`)
        #: contain it.
        self.worth: _Worth | None = None
        self.replaceable = (False, False)
        self._topics: dict[str | uuid.UUID, dict[int, SessionPartition]] = {}
        self._ready: set[SessionPartition] = set()
        self._next_order = 0
        #: The last time at which the client forgot a partition that has more records; None if it never did.
        self._left_ms: int | None = None

    # --- partitions --------------------------------------------------------------------------------------------------

    def add(self, topic: str, topic_id: uuid.UUID, part: SessionPartition) -> None:
        """Adds a partition at the end of the session's order, as ready. If the session has the partition already, only
        its offset, epoch and `max_bytes` are replaced."""
        parts = self._topics.setdefault(topic_id if self.uses_topic_ids else topic, {})
        known = parts.get(part.index)
        if known is not None:
            known.fetch_offset, known.current_leader_epoch, known.max_bytes = (
                part.fetch_offset,
                part.current_leader_epoch,
                part.max_bytes,
            )
            self._ready.add(known)
            return
        part.topic, part.topic_id = topic, topic_id
        part.session, part.order = self, self._next_order
        self._next_order += 1
        self.size += 1
        parts[part.index] = part
        self._ready.add(part)

    def update(
        self, topics: Sequence[FetchRequestTopic], forgotten: Sequence[FetchRequestForgottenTopicsData], now_ms: int
    ) -> bool:
        """Adds the new partitions of a request, applies the changed partitions, and then removes the forgotten
        partitions. Returns False if the session would exceed its limits."""
        by_id = self.uses_topic_ids
        for asked in topics:
            if (
                self.size + len(asked.partitions) > FETCH_SESSION_PARTITIONS_MAX
                or len(asked.topic) > TOPIC_NAME_MAX_CHARS
            ):
                return False
            parts = self._topics.get(asked.topic_id if by_id else asked.topic)
            for item in asked.partitions:
                known = None if parts is None else parts.get(item.partition)
                if known is None:
                    part = SessionPartition(
                        item.partition, item.fetch_offset, item.current_leader_epoch, item.partition_max_bytes
                    )
                    self.add(asked.topic, asked.topic_id, part)
                else:
                    known.fetch_offset, known.current_leader_epoch, known.max_bytes = (
                        item.fetch_offset,
                        item.current_leader_epoch,
                        item.partition_max_bytes,
                    )
                    self._ready.add(known)
        for gone in forgotten:
            key = gone.topic_id if by_id else gone.topic
            parts = self._topics.get(key)
            if parts is None:
                continue
            for index in gone.partitions:
                dropped = parts.pop(index, None)
                if dropped is not None:
                    self.size -= 1
                    self._ready.discard(dropped)
                    dropped.unwatch()
                    if dropped.has_more:
                        self._left_ms = now_ms
            if not parts:
                del self._topics[key]
        return True

    def held(self, topic: str, topic_id: uuid.UUID, index: int) -> SessionPartition:
        """Returns the session's entry for a partition, which must exist. If a request names a partition twice, there
        is only one entry."""
        return self._topics[topic_id if self.uses_topic_ids else topic][index]

    def find(self, topic: str, topic_id: uuid.UUID, index: int) -> SessionPartition | None:
        """Returns the session's entry for a partition, or None if there is none."""
        return self._topics.get(topic_id if self.uses_topic_ids else topic, {}).get(index)

    def partitions(self) -> list[SessionPartition]:
        """Returns all partitions, in the session's order."""
        return sorted((part for parts in self._topics.values() for part in parts.values()), key=_order)

    def ready(self) -> list[SessionPartition]:
        """Returns the partitions that the next fetch must read, in the session's order."""
        return sorted(self._ready, key=_order) if len(self._ready) > 1 else list(self._ready)

    def look_again(self, rules_version: int) -> None:
        """Makes all partitions ready if the ACLs have changed since the session's partitions were last checked."""
        if rules_version != self.rules_version:
            self.rules_version = rules_version
            for parts in self._topics.values():
                self._ready.update(parts.values())

    def patience_ms(self, max_wait_ms: int, now_ms: int) -> int:
        """Returns the time in milliseconds that a request of this session may wait. It is `max_wait_ms`, or less if
        the client has forgotten a partition that has more records."""
        return max_wait_ms if self._left_ms is None else min(max_wait_ms, max(now_ms - self._left_ms, _WAIT_MIN_MS))

    def mark(self, part: SessionPartition) -> None:
        """Marks a partition as ready, and wakes a request of the session that waits."""
        self._ready.add(part)
        self.wake(self)

    # --- answers -----------------------------------------------------------------------------------------------------

    def note_answer(self, part: SessionPartition, answer: FetchResponsePartition) -> None:
        """Stores the offsets that the client knows after this answer. Makes the partition idle if there are no records
        after its offset."""
        if answer.error_code:
            part.high_watermark = _UNKNOWN  # so that the partition is in the answer again when the error has gone
            part.log_start_offset = answer.log_start_offset
            return
        part.high_watermark = answer.high_watermark
        part.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica != _NO_REPLICA:
            return
        if (
            not answer.records
            and not part.has_more
            and part.fetch_offset >= answer.high_watermark
            and part.partition is not None
        ):
            self._ready.discard(part)
            part.partition.watch(part)

    def must_tell(self, part: SessionPartition, answer: FetchResponsePartition) -> bool:
        """Stores the offsets of a partition's answer, as `note_answer`. Returns True if the answer must be sent
        because the client does not know its content yet."""
        news = (
            bool(answer.records)
            or answer.error_code != 0
            or answer.high_watermark != part.high_watermark
            or answer.log_start_offset != part.log_start_offset
            or answer.preferred_read_replica != _NO_REPLICA
        )
        self.note_answer(part, answer)
        if answer.records:
            part.order = self._next_order
            self._next_order += 1
        return news

    def close(self) -> None:
        """Ends the session. Its partitions no longer report changes, and a request of the session that waits is
        woken."""
        self.closed = True
        for parts in self._topics.values():
            for part in parts.values():
                part.unwatch()
        self.wake(self)


class FetchSessions:
    """The cache of fetch sessions. `new_id` returns a random number from 1 to 2^31-1. `wake` is called with a session
    when it is closed or when one of its partitions becomes ready. Times (`now_ms`) never decrease."""

    def __init__(
        self, slots: int, new_id: Callable[[], int], wake: Callable[[FetchSession], None] = lambda session: None
    ) -> None:
        self.slots = slots
        #: The number of partitions of all sessions together.
        self.partitions = 0
        self.evictions = 0
        self._new_id = new_id
        self._wake = wake
        #: The sessions by id, the least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        #: The sort keys of sessions, smallest first: in the first list of the sessions that a follower's session may
        #: replace, in the second list of the sessions that a consumer's session may replace.
        self._by_privileged: list[_Worth] = []
        self._by_all: list[_Worth] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def proceed(
        self,
        session_id: int,
        epoch: int,
        uses_topic_ids: bool,
        topics: Sequence[FetchRequestTopic],
        forgotten: Sequence[FetchRequestForgottenTopicsData],
        now_ms: int,
    ) -> FetchSession | ErrorCode:
        """Applies a request to its session, and returns the session or an error. The first and the last request of a
        session are not handled here. If the session has no partitions afterwards, it is ended, and the closed session
        is returned."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        within = session.update(topics, forgotten, now_ms)
        if not within or self.partitions - self._counted(session) + session.size > FETCH_SESSIONS_PARTITIONS_MAX:
            # The client then begins a new session; it gets session id 0, no session, if the limits do not permit one.
            self.end(session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.size == 0:
            self.end(session_id)
        else:
            self._touch(session, now_ms)
            session.epoch = next_epoch(epoch)
        return session

    def create(
        self,
        parts: Sequence[tuple[str, uuid.UUID, SessionPartition]],
        is_privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchSession | None:
        """Creates a session with these partitions. Returns None if there is no room for it."""
        size = len(parts)
        if size > FETCH_SESSION_PARTITIONS_MAX or any(len(topic) > TOPIC_NAME_MAX_CHARS for topic, _, _ in parts):
            return None
        if len(self._sessions) >= self.slots and not self._evict(is_privileged, size, now_ms):
            return None
        if self.partitions + size > FETCH_SESSIONS_PARTITIONS_MAX:
            return None
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = FetchSession(session_id, is_privileged, uses_topic_ids, now_ms, self._wake)
        for topic, topic_id, part in parts:
            session.add(topic, topic_id, part)
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session

    def end(self, session_id: int) -> None:
        """Ends a session. Does nothing if there is no session with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unlist(session)
            session.close()

    def close(self) -> None:
        """Ends all sessions."""
        for session_id in list(self._sessions):
            self.end(session_id)

    # --- replacing sessions ------------------------------------------------------------------------------------------

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.used_ms = now_ms
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        is_settled = now_ms - session.created_ms > EVICTION_MS
        replaceable = (is_settled or not session.is_privileged, is_settled)
        worth = session.worth
        if worth is not None and worth.size == session.size and replaceable == session.replaceable:
            return
        self._unlist(session)
        session.worth = worth = _Worth(session.is_privileged, session.size, session.session_id)
        session.replaceable = replaceable
        self.partitions += session.size
        for listed, worths in zip(replaceable, (self._by_privileged, self._by_all), strict=True):
            if listed:
                insort(worths, worth)

    def _unlist(self, session: FetchSession) -> None:
        worth, session.worth = session.worth, None
        if worth is None:
            return
        self.partitions -= worth.size
        for listed, worths in zip(session.replaceable, (self._by_privileged, self._by_all), strict=True):
            if listed:
                del worths[bisect_left(worths, worth)]

    def _counted(self, session: FetchSession) -> int:
        return session.worth.size if session.worth is not None else 0

    def _evict(self, is_privileged: bool, size: int, now_ms: int) -> bool:
        """Ends one session that a new session of this size may replace. Returns False if there is no such session."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.used_ms > EVICTION_MS:
            victim = oldest.session_id
        else:
            worths = self._by_privileged if is_privileged else self._by_all
            if not worths or (is_privileged, size) <= (worths[0].is_privileged, worths[0].size):
                return False
            victim = worths[0].session_id
        self.end(victim)
        self.evictions += 1
        return True


_order = attrgetter("order")
