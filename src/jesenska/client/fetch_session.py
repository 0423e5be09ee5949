"""A consumer's fetch session with one broker (KIP-227): a request leaves out what the broker already knows. This
module sends nothing itself.

plan(wanted)        the contents of a request: everything at first (epoch 0), then what is new, moved, under another
                    leader epoch, or to be dropped
answered(id)        the broker has accepted it; id 0 means that it keeps no session, and the next request is a first
                    one again
failed()            it is not known what the broker has accepted: the next request is a first one, and ends the old
                    session

A follower's session is another class (`replication.follower.fetch_session`), since the two share only the count of
the epoch. A consumer gives all of its partitions to each plan: it has few, and keeps no topic ids in its session. A
follower has thousands, so it notes single changes, and the cost of a request depends on these alone; it keeps topics
apart by their ids, and sends only some of the partitions that are new to the leader. After a failure a consumer names
the old session, which the broker then ends; a follower begins one without a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jesenska.base.identifiers import TopicPartition
from jesenska.records.header import NO_LEADER_EPOCH

_NO_SESSION = 0
_FIRST_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class Asked(NamedTuple):
    """The offset from which a partition is to be read, and the leader epoch that the consumer knows (-1: none)."""

    offset: int
    current_leader_epoch: int = NO_LEADER_EPOCH


class FetchPlan(NamedTuple):
    session_id: int
    epoch: int
    #: The partitions that the broker does not know yet.
    wanted: dict[TopicPartition, Asked]
    forgotten: list[TopicPartition]


class FetchSessionHandler:
    """The session with one broker: its id, the epoch of the next request, and the partitions that the broker has."""

    __slots__ = ("_epoch", "_sent", "_session_id")

    def __init__(self) -> None:
        self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        #: The partitions of the session, as the broker has them.
        self._sent: dict[TopicPartition, Asked] = {}

    def plan(self, wanted: Mapping[TopicPartition, Asked]) -> FetchPlan:
        """Returns the next request for these partitions. The caller then calls `answered` or `failed`."""
        sent, self._sent = self._sent, dict(wanted)
        if self._epoch == _FIRST_EPOCH:
            return FetchPlan(self._session_id, _FIRST_EPOCH, dict(wanted), [])
        moved = {key: asked for key, asked in wanted.items() if sent.get(key) != asked}
        return FetchPlan(self._session_id, self._epoch, moved, [key for key in sent if key not in wanted])

    def answered(self, session_id: int) -> None:
        """Records that the broker has answered without an error, with this session id."""
        self._session_id = session_id
        if session_id == _NO_SESSION:
            self._epoch = _FIRST_EPOCH
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def failed(self) -> None:
        """Records that the broker has answered an error, or nothing."""
        self._epoch = _FIRST_EPOCH
