"""The states of a topic's replicas on one broker, as the controller sees them.

  NEW                the replicas are assigned; the broker has not answered yet that it has them
                     -> ONLINE, OFFLINE, DELETION_STARTED
  ONLINE             the broker has the replicas; it may be registered or not
                     -> NEW when the broker gets more replicas, OFFLINE, DELETION_STARTED
  OFFLINE            a request must be sent to a broker that has left
                     -> NEW when the broker registers again; DELETION_STARTED if the topic is being deleted at that
                     time
  DELETION_STARTED   the broker was told to delete the replicas
                     -> DELETION_DONE, DELETION_REFUSED, OFFLINE
  DELETION_REFUSED   the broker could not delete the replicas; the data still exist
                     -> DELETION_STARTED when the broker is told again, OFFLINE
  DELETION_DONE      the data are deleted
                     -> no state, when the topic is removed from the tree

Requests to brokers are about whole topics, so a state applies to all replicas of a topic on a broker. Only states
other than ONLINE are stored, because most are ONLINE. Source: the replica state machine of Apache Kafka's controller,
which has a state for each replica."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final


class ReplicaState(Enum):
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_REFUSED = "deletion refused"
    DELETION_DONE = "deletion done"


_BECOMES: Final = {
    ReplicaState.NEW: {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED},
    ReplicaState.ONLINE: {ReplicaState.NEW, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED},
    ReplicaState.OFFLINE: {ReplicaState.NEW, ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED},
    ReplicaState.DELETION_STARTED: {ReplicaState.DELETION_DONE, ReplicaState.DELETION_REFUSED, ReplicaState.OFFLINE},
    ReplicaState.DELETION_REFUSED: {ReplicaState.DELETION_STARTED, ReplicaState.OFFLINE},
    ReplicaState.DELETION_DONE: set(),
}


class ReplicaStates:
    """The states of the replicas of all topics on all brokers."""

    def __init__(self) -> None:
        self._states: dict[str, dict[int, ReplicaState]] = {}

    def of(self, topic: str, broker_id: int) -> ReplicaState:
        return self._states.get(topic, {}).get(broker_id, ReplicaState.ONLINE)

    def move(self, topic: str, broker_id: int, state: ReplicaState) -> None:
        """Changes the state of a topic's replicas on a broker. Raises AssertionError if the table does not allow the
        change."""
        before = self.of(topic, broker_id)
        if state not in _BECOMES[before]:
            raise AssertionError(
                f"replicas of {topic} on broker {broker_id} cannot go from {before.value} to {state.value}"
            )
        states = self._states.setdefault(topic, {})
        if state is ReplicaState.ONLINE:
            states.pop(broker_id, None)
        else:
            states[broker_id] = state
        if not states:
            del self._states[topic]

    def in_state(self, topic: str, state: ReplicaState) -> Collection[int]:
        """Returns the brokers whose replicas of the topic are in this state, which must not be ONLINE."""
        return [broker_id for broker_id, found in self._states.get(topic, {}).items() if found is state]

    def forget(self, topic: str) -> None:
        """Removes all states of a topic, because the topic is deleted."""
        self._states.pop(topic, None)
