"""A consumer's fetch session with one broker (KIP-227). In a session a Fetch request leaves out the partitions that
the broker already has. This module only computes the content of requests.

    plan(wanted)    the content of a request: first all partitions (epoch 0), later the partitions that are new, moved,
                    under another leader epoch, or to be dropped
    answered(id)    the broker accepted the request; id 0 means that the broker has no session: the next request must
                    have all partitions again
    failed()        it is unknown what the broker has accepted: the next request has all partitions again, and ends the
                    old session

A follower's session is another class (`replication.follower.fetch_session`), since the two kinds of session have
little in common. A consumer passes all of its partitions to each `plan`: it has few, and no topic ids in its session.
A follower has thousands, so it records single changes, and the cost of a request depends only on their number. It
distinguishes topics by their ids, and sends only some of the partitions that are new to the leader. After a failure a
consumer names the old session, which the broker then ends; a follower does not name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.records.header import NO_LEADER_EPOCH

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class Asked(NamedTuple):
    """The state of a partition in a fetch session: the offset from which it is fetched, and the leader epoch that the
    consumer knows (-1: none)."""

    offset: int
    current_leader_epoch: int = NO_LEADER_EPOCH


class FetchPlan(NamedTuple):
    session_id: int
    epoch: int
    #: The partitions that the request must contain, because the broker does not have them in this state.
    wanted: dict[TopicPartition, Asked]
    forgotten: list[TopicPartition]


class FetchSessionHandler:
    """The fetch session with one broker: its id, the epoch of the next request, and the partitions that the broker has
    in the session."""

    __slots__ = ("_epoch", "_sent", "_session_id")

    def __init__(self) -> None:
        self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        #: The partitions of the session, as they were last sent to the broker.
        self._sent: dict[TopicPartition, Asked] = {}

    def plan(self, wanted: Mapping[TopicPartition, Asked]) -> FetchPlan:
        """Returns the content of the next request for these partitions. After it the caller must call `answered` or
        `failed`."""
        sent, self._sent = self._sent, dict(wanted)
        if self._epoch == _FIRST_EPOCH:
            return FetchPlan(self._session_id, _FIRST_EPOCH, dict(wanted), [])
        moved = {key: asked for key, asked in wanted.items() if sent.get(key) != asked}
        return FetchPlan(self._session_id, self._epoch, moved, [key for key in sent if key not in wanted])

    def answered(self, session_id: int) -> None:
        """Records that the broker has accepted the last request, and the session id in its response."""
        self._session_id = session_id
        if session_id == _NO_SESSION:
            self._epoch = _FIRST_EPOCH
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def failed(self) -> None:
        """Records that the last request has failed: the response had an error, or there was none."""
        self._epoch = _FIRST_EPOCH
