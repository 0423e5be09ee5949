"""A follower's side of a fetch session (KIP-227): the partitions that it wants from one leader, and the changes that
it must send. A decider: it sends nothing.

    want, drop    changes the wanted position of a partition
    request       returns the content of the next request: everything in a new session, the changes in a running one.
                  Of partitions that are new to the leader only a limited number is sent at a time, since the leader
                  does nothing else meanwhile; everything is sent if the leader keeps no session
    answered      a session goes on, is new, or is over

Only one request is pending at a time. A partition is never requested and forgotten in the same request, since a leader
would take it for forgotten. Only a partition that now belongs to another topic is both, under the two topic ids.

A session is over when the leader does not know it (any more), or when a connection ends: then the next request begins
a new one.

A consumer's session is another class (`client.fetch_session`, which says why)."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import Final, NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1
#: Largest number of partitions in one request that are new to the leader.
NEW_AT_ONCE: Final = 500


class Wanted(NamedTuple):
    """The wanted position of a partition: its records from `offset` on. `log_start_offset` and `last_epoch` (of the
    last batch, -1: none) are the follower's own."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    leader_epoch: int
    offset: int
    log_start_offset: int
    last_epoch: int


class SessionRequest(NamedTuple):
    """The content of a fetch request. `forgotten` names partitions with the topic ids under which they were requested.
    `has_more`: the next request will name others, so this one must be answered at once."""

    session_id: int
    session_epoch: int
    wanted: tuple[Wanted, ...]
    forgotten: tuple[tuple[TopicPartition, uuid.UUID], ...]
    has_more: bool = False


class FollowerSession:
    """A session with one leader. The cost of a request depends only on the number of changes."""

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._wanted: dict[TopicPartition, Wanted] = {}
        #: The positions that the leader has from earlier requests.
        self._sent: dict[TopicPartition, Wanted] = {}
        self._changed: dict[TopicPartition, None] = {}
        #: Partitions that were not wanted for a while since the last request: they are sent again, even if unchanged.
        self._dropped: set[TopicPartition] = set()
        #: True if the leader has answered without a session: the next request is sent without one.
        self._is_refused = False

    @property
    def is_empty(self) -> bool:
        """True if nothing is wanted."""
        return not self._wanted

    def sent(self, topic_partition: TopicPartition) -> Wanted | None:
        """Returns the position of a partition that was last sent to the leader; None if it has none."""
        return self._sent.get(topic_partition)

    def want(self, wanted: Wanted) -> None:
        """Sets the wanted position of a partition."""
        self._wanted[wanted.topic_partition] = wanted
        self._changed[wanted.topic_partition] = None

    def drop(self, topic_partition: TopicPartition) -> None:
        """Ends the interest in a partition."""
        if self._wanted.pop(topic_partition, None) is not None:
            self._changed[topic_partition] = None
            self._dropped.add(topic_partition)

    def request(self) -> SessionRequest:
        """Returns the content of the next request, which counts as sent: if it is not answered, `lost` must be
        called."""
        changed, self._changed = self._changed, {}
        dropped, self._dropped = self._dropped, set()
        if self._id == NO_SESSION:
            self._sent = dict(self._wanted if self._is_refused else islice(self._wanted.items(), NEW_AT_ONCE))
            self._changed = dict.fromkeys(islice(self._wanted, len(self._sent), None))
            return SessionRequest(NO_SESSION, FIRST_EPOCH, tuple(self._sent.values()), (), bool(self._changed))
        asked, forgotten = [], []
        new = 0
        for topic_partition in changed:
            wanted, sent = self._wanted.get(topic_partition), self._sent.get(topic_partition)
            if wanted == sent and (wanted is None or topic_partition not in dropped):
                continue
            if sent is not None and (wanted is None or wanted.topic_id != sent.topic_id):
                forgotten.append((topic_partition, sent.topic_id))
                del self._sent[topic_partition]
            if wanted is None:
                continue
            if sent is None:
                new += 1
                if new > NEW_AT_ONCE:
                    self._changed[topic_partition] = None
                    continue
            asked.append(wanted)
            self._sent[topic_partition] = wanted
        return SessionRequest(self._id, self._epoch, tuple(asked), tuple(forgotten), bool(self._changed))

    def answered(self, error_code: int, session_id: int) -> bool:
        """Handles the answer to the request. False if the session is over, and the answer is void."""
        if error_code != ErrorCode.NONE:
            self.lost()
            return False
        self._id = session_id
        self._is_refused = session_id == NO_SESSION
        self._epoch = FIRST_EPOCH if session_id == NO_SESSION else 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """Ends the session, which the leader may not know: the next request begins a new one."""
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._is_refused = False
        self._sent = {}
