"""The states of a partition as the controller sees them, the allowed changes of its node in the tree, and the
elections of its leader. Pure functions: their results are written to the tree.

    state     means
    NEW       replicas are assigned, nothing is written
    ONLINE    a broker that is up leads it
    OFFLINE   no broker that is up leads it

    state     change          becomes
    NEW       FIRST           ONLINE, OFFLINE
              BRANCH          ONLINE
    ONLINE    AFTER_CRASH     ONLINE, OFFLINE
              BEFORE_STOP     ONLINE
              PREFERRED       ONLINE
              WITHOUT_GONE    ONLINE
              ISR             ONLINE
              MORE_REPLICAS   ONLINE
    OFFLINE   AFTER_LOSS      ONLINE, OFFLINE
              AFTER_CRASH     ONLINE, OFFLINE
              BEFORE_STOP     ONLINE
              PREFERRED       ONLINE
              MORE_REPLICAS   OFFLINE

`BECOMES` has these rows. Code that changes a node passes it through `changed`, which refuses any other change.
`ELECTS` has the change that an event asks for in each state. Without a change of its node, a partition is OFFLINE when
its leader goes, and ONLINE again when that broker is back.

    election    the leader                                              the ISR then
    first       the first replica that is up                            every replica that is up: there are no records
                                                                        to lack
    after loss  the first replica that is up and in sync                those in sync that are up
    unclean     the first replica that is up, if none is in sync:       it alone
                records that only other replicas had are lost, so
                only if unclean.leader.election.enable allows it
    after a     as after loss, without those that crashed, which may    those in sync that are up and did not crash
    crash       lack records. If no other was in sync, the current
                leader, in a new epoch
    before a    the first replica that is up, in sync and stays; if     those in sync that are up and stay
    stop        there is none, the leader stays until it has stopped
    preferred   the first replica, if it is up and in sync              those in sync that are up
    none        the leader stays; other members of the ISR have gone,   those in sync that are up
                and writes must not wait for them

Each election begins a new leader epoch. If no broker can lead, the leader is -1, and the last ISR is kept: one of its
members has every committed record. Sources: the chapter "Replication" of the documents, KIP-106, KIP-460, KIP-966; the
orders are Apache Kafka's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum, auto
from typing import Final

from jesenska.metadata.nodes import PartitionStateNode

NO_LEADER: Final = -1
FIRST_LEADER_EPOCH: Final = 0


class PartitionState(IntEnum):
    """The states of a partition. They are integers because they are looked up for each partition when brokers come or
    go."""

    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()


class Change(IntEnum):
    """The changes of a partition's node."""

    #: Elections.
    FIRST = auto()
    AFTER_LOSS = auto()
    AFTER_CRASH = auto()
    BEFORE_STOP = auto()
    PREFERRED = auto()
    #: The leader stays; other members of the ISR have gone.
    WITHOUT_GONE = auto()
    #: The leader is that of the topic that it is a branch of.
    BRANCH = auto()
    #: The leader has proposed another ISR.
    ISR = auto()
    #: The partition gets more replicas. The leader stays, in a new epoch.
    MORE_REPLICAS = auto()


class PartitionEvent(IntEnum):
    """The events after which elections may be needed."""

    #: Brokers have come or gone, or can read other replicas than before.
    BROKERS_CHANGED = auto()
    #: Brokers that crashed are up again. If a partition needs no election for that, BROKERS_CHANGED is tried.
    BROKERS_CRASHED = auto()
    BROKER_STOPS = auto()
    #: The first replica is to lead.
    PREFERRED_WANTED = auto()


NEW: Final = PartitionState.NEW
ONLINE: Final = PartitionState.ONLINE
OFFLINE: Final = PartitionState.OFFLINE
_NONE: Final[frozenset[PartitionState]] = frozenset()
_EITHER: Final = frozenset({ONLINE, OFFLINE})

#: The states after each change in each state; none where the change is not allowed.
BECOMES: Final[dict[Change, dict[PartitionState, frozenset[PartitionState]]]] = {
    Change.FIRST: {NEW: _EITHER, ONLINE: _NONE, OFFLINE: _NONE},
    Change.AFTER_LOSS: {NEW: _NONE, ONLINE: _NONE, OFFLINE: _EITHER},
    Change.AFTER_CRASH: {NEW: _NONE, ONLINE: _EITHER, OFFLINE: _EITHER},
    Change.BEFORE_STOP: {NEW: _NONE, ONLINE: frozenset({ONLINE}), OFFLINE: frozenset({ONLINE})},
    Change.PREFERRED: {NEW: _NONE, ONLINE: frozenset({ONLINE}), OFFLINE: frozenset({ONLINE})},
    Change.WITHOUT_GONE: {NEW: _NONE, ONLINE: frozenset({ONLINE}), OFFLINE: _NONE},
    Change.BRANCH: {NEW: frozenset({ONLINE}), ONLINE: _NONE, OFFLINE: _NONE},
    Change.ISR: {NEW: _NONE, ONLINE: frozenset({ONLINE}), OFFLINE: _NONE},
    Change.MORE_REPLICAS: {NEW: _NONE, ONLINE: frozenset({ONLINE}), OFFLINE: frozenset({OFFLINE})},
}

#: The change that an event asks for in each state; None for no change.
ELECTS: Final[dict[PartitionEvent, dict[PartitionState, Change | None]]] = {
    PartitionEvent.BROKERS_CHANGED: {NEW: Change.FIRST, ONLINE: Change.WITHOUT_GONE, OFFLINE: Change.AFTER_LOSS},
    PartitionEvent.BROKERS_CRASHED: {NEW: Change.FIRST, ONLINE: Change.AFTER_CRASH, OFFLINE: Change.AFTER_CRASH},
    PartitionEvent.BROKER_STOPS: {NEW: None, ONLINE: Change.BEFORE_STOP, OFFLINE: Change.BEFORE_STOP},
    PartitionEvent.PREFERRED_WANTED: {NEW: None, ONLINE: Change.PREFERRED, OFFLINE: Change.PREFERRED},
}


def partition_state(written: PartitionStateNode | None, live: Collection[int]) -> PartitionState:
    """Returns the state of a partition from its node in the tree (None: there is no node) and the brokers that are
    up."""
    if written is None:
        return NEW
    return ONLINE if written.leader in live else OFFLINE


def changed(
    change: Change | None, before: PartitionStateNode | None, after: PartitionStateNode, live: Collection[int]
) -> PartitionStateNode:
    """Returns `after`, if the table allows the change. Any other change, or None, is a mistake of the controller and
    raises AssertionError."""
    was, becomes = partition_state(before, live), partition_state(after, live)
    if change is None or becomes not in BECOMES[change][was]:
        raise AssertionError(f"a partition cannot go from {was.name} to {becomes.name} by {change!r}: {after}")
    return after


def elect_first(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionStateNode:
    """Returns the first state of a NEW partition."""
    isr = tuple(broker for broker in replicas if broker in live)
    leader = isr[0] if isr else NO_LEADER
    return PartitionStateNode(leader, FIRST_LEADER_EPOCH, isr or tuple(replicas), controller_epoch)


def elect_after_loss(
    replicas: Sequence[int], written: PartitionStateNode, live: Collection[int], controller_epoch: int, *, unclean: bool
) -> PartitionStateNode | None:
    """Returns the new state of an OFFLINE partition; None if nothing changes. `unclean` lets a replica lead that was
    not in sync."""
    up = [broker for broker in replicas if broker in live]
    leader = next((broker for broker in up if broker in written.isr), None)
    if leader is not None:
        isr = tuple(broker for broker in written.isr if broker in live)
    elif unclean and up:
        leader, isr = up[0], (up[0],)
    elif written.leader == NO_LEADER:
        return None
    else:
        leader, isr = NO_LEADER, written.isr
    return PartitionStateNode(leader, written.leader_epoch + 1, isr, controller_epoch)


def elect_again(written: PartitionStateNode, live: Collection[int], controller_epoch: int) -> PartitionStateNode:
    """Returns the new state of an ONLINE partition whose leader has crashed and was the only member of the ISR."""
    isr = tuple(broker for broker in written.isr if broker in live)
    return PartitionStateNode(written.leader, written.leader_epoch + 1, isr or (written.leader,), controller_epoch)


def elect_after_crash(
    replicas: Sequence[int],
    written: PartitionStateNode,
    live: Collection[int],
    crashed: Collection[int],
    controller_epoch: int,
    *,
    unclean: bool,
) -> PartitionStateNode | None:
    """Returns the new state of a partition when brokers that `crashed` are up again; None if nothing changes.

    These brokers leave an ISR that has another member: that member has every committed record, they may lack some."""
    rest = tuple(broker for broker in written.isr if broker not in crashed)
    if rest == written.isr:
        return None
    if not rest:
        return elect_again(written, live, controller_epoch) if written.leader in crashed else None
    if written.leader in live and written.leader in rest:
        return PartitionStateNode(
            written.leader,
            written.leader_epoch + 1,
            tuple(broker for broker in rest if broker in live),
            controller_epoch,
        )
    before = PartitionStateNode(written.leader, written.leader_epoch, rest, written.controller_epoch)
    elected = elect_after_loss(replicas, before, live, controller_epoch, unclean=unclean)
    return elected or PartitionStateNode(NO_LEADER, written.leader_epoch + 1, rest, controller_epoch)


def without_gone(
    written: PartitionStateNode, live: Collection[int], controller_epoch: int
) -> PartitionStateNode | None:
    """Returns the new state of an ONLINE partition when members of its ISR have gone; None if none has."""
    isr = tuple(broker for broker in written.isr if broker in live)
    if isr == written.isr or written.leader not in isr:
        return None
    return PartitionStateNode(written.leader, written.leader_epoch + 1, isr, controller_epoch)


def elect_before_stop(
    replicas: Sequence[int],
    written: PartitionStateNode,
    live: Collection[int],
    stopping: Collection[int],
    controller_epoch: int,
) -> PartitionStateNode | None:
    """Returns the new state of a partition with replicas on brokers that are `stopping` and still up. Returns None if
    nothing changes: these brokers are not in sync, or no other replica is."""
    isr = tuple(broker for broker in written.isr if broker in live and broker not in stopping)
    if not isr or not set(written.isr) & set(stopping):
        return None
    leader = written.leader if written.leader in isr else next((broker for broker in replicas if broker in isr), None)
    return None if leader is None else PartitionStateNode(leader, written.leader_epoch + 1, isr, controller_epoch)


def elect_preferred(
    replicas: Sequence[int], written: PartitionStateNode, live: Collection[int], controller_epoch: int
) -> PartitionStateNode | None:
    """Returns the new state with the first replica elected as leader; None if it is not up or not in sync."""
    if not replicas or replicas[0] not in live or replicas[0] not in written.isr:
        return None
    isr = tuple(broker for broker in written.isr if broker in live)
    return PartitionStateNode(replicas[0], written.leader_epoch + 1, isr, controller_epoch)
