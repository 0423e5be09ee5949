"""A follower's side of a fetch session (KIP-227): the partitions that the follower requests from one leader, and the
changes that the leader does not know yet. This module sends nothing itself.

  want, drop    change the partitions and offsets that the follower requests
  request       returns the content of the next request: all partitions in a new session, only changed partitions in a
                running session. A request names at most NEW_AT_ONCE partitions that are new to the leader, because the
                leader handles them without a break. If the leader keeps no session, every request names all partitions
  answered      handles an answer: the session continues, a new session begins, or the session has ended

Only one request is pending at a time. A partition is never requested and forgotten in the same request, because the
leader would only forget it. The exception is a partition that now belongs to a new topic of the same name: the request
then has it under both topic ids. A session ends when the leader does not know it, or when the connection ends. The
next request then begins a new session.

Consumers use another class for their sessions; `client.fetch_session` says why."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import Final, NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1
#: The maximum number of partitions in one request that are new to the leader.
NEW_AT_ONCE: Final = 500


class Wanted(NamedTuple):
    """A partition that a follower requests, from `offset` on. `log_start_offset` and `last_epoch` describe the
    follower's own log; `last_epoch` is the leader epoch of its last batch, or -1 if the log has no batch."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    leader_epoch: int
    offset: int
    log_start_offset: int
    last_epoch: int


class SessionRequest(NamedTuple):
    """The content of a Fetch request. `forgotten` has the partitions that the leader is to remove from the session,
    with the topic ids under which they were requested. If `has_more` is set, the next request will name further
    partitions, so the leader should answer this request at once."""

    session_id: int
    session_epoch: int
    wanted: tuple[Wanted, ...]
    forgotten: tuple[tuple[TopicPartition, uuid.UUID], ...]
    has_more: bool = False


class FollowerSession:
    """A follower's fetch session with one leader. The cost of a request depends only on the number of changed
    partitions."""

    def __init__(self) -> None:
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._wanted: dict[TopicPartition, Wanted] = {}
        #: The partitions and offsets that were sent to the leader in this session.
        self._sent: dict[TopicPartition, Wanted] = {}
        self._changed: dict[TopicPartition, None] = {}
        #: Partitions that were dropped since the last request. If a partition is wanted again, it is sent even if its
        #: offset is unchanged.
        self._dropped: set[TopicPartition] = set()
        #: True if the leader has answered without a session. Then the next request is also sent without a session.
        self._is_refused = False

    @property
    def is_empty(self) -> bool:
        """Returns True if no partition is requested."""
        return not self._wanted

    def sent(self, topic_partition: TopicPartition) -> Wanted | None:
        """Returns the values of a partition that were last sent to the leader; None if the session does not contain
        the partition."""
        return self._sent.get(topic_partition)

    def want(self, wanted: Wanted) -> None:
        """Requests a partition from this offset on, from the next request on."""
        self._wanted[wanted.topic_partition] = wanted
        self._changed[wanted.topic_partition] = None

    def drop(self, topic_partition: TopicPartition) -> None:
        """Stops requesting a partition: the next request asks the leader to forget it."""
        if self._wanted.pop(topic_partition, None) is not None:
            self._changed[topic_partition] = None
            self._dropped.add(topic_partition)

    def request(self) -> SessionRequest:
        """Returns the content of the next request, and records it as sent. If no answer to the request arrives, `lost`
        must be called."""
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
        """Handles the session part of the answer to the last request. Returns False if the answer is an error; the
        session has then ended, and the answer must be ignored."""
        if error_code != ErrorCode.NONE:
            self.lost()
            return False
        self._id = session_id
        self._is_refused = session_id == NO_SESSION
        self._epoch = FIRST_EPOCH if session_id == NO_SESSION else 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """Ends the session, because the leader may not know it any more. The next request begins a new session."""
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._is_refused = False
        self._sent = {}
