"""A follower's side of a fetch session (KIP-227): what it wants of one leader, and what it has to say so that the
leader knows. A decider: it sends nothing.

    want, drop    what is wanted of a partition has changed
    request       what the next request says: everything in a new session, in a running one what has changed since.
                  Of partitions that the leader does not know so many at a time, since it does nothing else meanwhile;
                  everything where it keeps no session
    answered      a session goes on, is new, or is over

Only one request is under way at a time. A partition is never asked for and forgotten in the same request, which a
leader would take for forgotten; one that has become another topic's is both, under the two topic ids.

A session is over when the leader does not know it (any more), or when a connection ends: then the next request begins
a new one."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import Final, NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1
#: Partitions in one request that the leader is not told yet.
NEW_AT_ONCE: Final = 500


class Wanted(NamedTuple):
    """What is wanted of a partition: its records from `offset` on. `log_start_offset` and `last_epoch` (of the last
    batch, -1: none) are the follower's own."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    leader_epoch: int
    offset: int
    log_start_offset: int
    last_epoch: int


class SessionRequest(NamedTuple):
    """What a fetch request says. `forgotten` names partitions with the topic ids under which they were asked for.
    `has_more`: others are to be named in the next one, so nobody is to wait for the answer to this."""

    session_id: int
    session_epoch: int
    wanted: tuple[Wanted, ...]
    forgotten: tuple[tuple[TopicPartition, uuid.UUID], ...]
    has_more: bool = False


class FollowerSession:
    """With one leader. The cost of a request is that of what has changed."""

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._wanted: dict[TopicPartition, Wanted] = {}
        #: What the leader was told, and has not been told to forget.
        self._told: dict[TopicPartition, Wanted] = {}
        self._changed: dict[TopicPartition, None] = {}
        #: What was not wanted for a while since the last request: it is said again, though it may be the same.
        self._dropped: set[TopicPartition] = set()
        #: The leader has answered without a session: the next request is on its own.
        self._is_refused = False

    @property
    def is_empty(self) -> bool:
        """True if nothing is wanted."""
        return not self._wanted

    def told(self, topic_partition: TopicPartition) -> Wanted | None:
        """What the leader takes for wanted of it since the last request; None for nothing."""
        return self._told.get(topic_partition)

    def want(self, wanted: Wanted) -> None:
        """In place of what was wanted of that partition before."""
        self._wanted[wanted.topic_partition] = wanted
        self._changed[wanted.topic_partition] = None

    def drop(self, topic_partition: TopicPartition) -> None:
        """Nothing is wanted of it any more."""
        if self._wanted.pop(topic_partition, None) is not None:
            self._changed[topic_partition] = None
            self._dropped.add(topic_partition)

    def request(self) -> SessionRequest:
        """What the next request says. The leader counts as told: if the request is not answered, `lost` must be
        called."""
        changed, self._changed = self._changed, {}
        dropped, self._dropped = self._dropped, set()
        if self._id == NO_SESSION:
            self._told = dict(self._wanted if self._is_refused else islice(self._wanted.items(), NEW_AT_ONCE))
            self._changed = dict.fromkeys(islice(self._wanted, len(self._told), None))
            return SessionRequest(NO_SESSION, FIRST_EPOCH, tuple(self._told.values()), (), bool(self._changed))
        asked, forgotten = [], []
        new = 0
        for topic_partition in changed:
            wanted, told = self._wanted.get(topic_partition), self._told.get(topic_partition)
            if wanted == told and (wanted is None or topic_partition not in dropped):
                continue
            if told is not None and (wanted is None or wanted.topic_id != told.topic_id):
                forgotten.append((topic_partition, told.topic_id))
                del self._told[topic_partition]
            if wanted is None:
                continue
            if told is None:
                new += 1
                if new > NEW_AT_ONCE:
                    self._changed[topic_partition] = None
                    continue
            asked.append(wanted)
            self._told[topic_partition] = wanted
        return SessionRequest(self._id, self._epoch, tuple(asked), tuple(forgotten), bool(self._changed))

    def answered(self, error_code: int, session_id: int) -> bool:
        """The request was answered with this. False if the session is over, and with it the answer worth nothing."""
        if error_code != ErrorCode.NONE:
            self.lost()
            return False
        self._id = session_id
        self._is_refused = session_id == NO_SESSION
        self._epoch = FIRST_EPOCH if session_id == NO_SESSION else 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """The leader may not know the session: the next request begins a new one."""
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._is_refused = False
        self._told = {}
