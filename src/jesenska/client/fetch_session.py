"""A consumer's fetch session with one broker (KIP-227): what the broker knows already is not said again. It sends
nothing itself.

plan(wanted)        what a request has to say: everything at first (epoch 0), then what is new, moved, under another
                    leader epoch, or no longer wanted
answered(id)        the broker has taken it in; id 0 means that it keeps no session, and the next request is a first
                    one again
failed()            it is not known what the broker has taken in: the next request is a first one, and ends the session
                    that was
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
    """Where a partition is to be read, and the leader epoch that the consumer knows (-1: none)."""

    offset: int
    current_leader_epoch: int = NO_LEADER_EPOCH


class FetchPlan(NamedTuple):
    session_id: int
    epoch: int
    #: What the broker does not know.
    wanted: dict[TopicPartition, Asked]
    forgotten: list[TopicPartition]


class FetchSessionHandler:
    __slots__ = ("_epoch", "_session_id", "_told")

    def __init__(self) -> None:
        self._session_id = _NO_SESSION
        self._epoch = _FIRST_EPOCH
        #: What was asked for, as the broker has it.
        self._told: dict[TopicPartition, Asked] = {}

    def plan(self, wanted: Mapping[TopicPartition, Asked]) -> FetchPlan:
        """The next request, for these partitions. `answered` or `failed` follows."""
        told, self._told = self._told, dict(wanted)
        if self._epoch == _FIRST_EPOCH:
            return FetchPlan(self._session_id, _FIRST_EPOCH, dict(wanted), [])
        moved = {key: asked for key, asked in wanted.items() if told.get(key) != asked}
        return FetchPlan(self._session_id, self._epoch, moved, [key for key in told if key not in wanted])

    def answered(self, session_id: int) -> None:
        """The broker's answer, without an error, carries this id."""
        self._session_id = session_id
        if session_id == _NO_SESSION:
            self._epoch = _FIRST_EPOCH
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def failed(self) -> None:
        """There was an error, or no answer."""
        self._epoch = _FIRST_EPOCH
