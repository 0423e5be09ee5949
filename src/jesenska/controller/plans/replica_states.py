"""The states of a topic's replicas on one broker, as the controller sees them.

    NEW                assigned; the broker has not said that it has them
                       -> ONLINE, OFFLINE, DELETION_STARTED
    ONLINE             the broker has them, be it up or not
                       -> NEW when it gets more, OFFLINE, DELETION_STARTED
    OFFLINE            an order is due for a broker that is gone
                       -> NEW when it is back, DELETION_STARTED when it is back too late
    DELETION_STARTED   the broker was ordered to delete them
                       -> DELETION_DONE, DELETION_REFUSED, OFFLINE
    DELETION_REFUSED   it could not; the data are still there
                       -> DELETION_STARTED when it is tried again, OFFLINE
    DELETION_DONE      the data are gone
                       -> nothing, when the tree has forgotten the topic

Orders are about whole topics, so a state is that of all replicas of a topic on a broker. Only states other than
ONLINE are kept: most are ONLINE. Source: the replica state machine of Apache Kafka's controller, which is by
replica."""

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
    """The states of all topics on all brokers."""

    def __init__(self) -> None:
        self._states: dict[str, dict[int, ReplicaState]] = {}

    def of(self, topic: str, broker_id: int) -> ReplicaState:
        return self._states.get(topic, {}).get(broker_id, ReplicaState.ONLINE)

    def move(self, topic: str, broker_id: int, state: ReplicaState) -> None:
        """Moves replicas to a state that the table allows. Raises AssertionError for any other state."""
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
        """Returns the brokers whose replicas of the topic are in a state other than ONLINE."""
        return [broker_id for broker_id, found in self._states.get(topic, {}).items() if found is state]

    def forget(self, topic: str) -> None:
        """Forgets a topic that is gone."""
        self._states.pop(topic, None)
