"""The states of a partition as the controller sees them, the allowed changes of its node in the metadata tree, and the
elections of its leader. The functions compute results; other code writes them to the tree. "Live" brokers are
registered and can read their replica.

    state     meaning
    NEW       replicas are assigned, but no leader is written to the tree
    ONLINE    a live broker leads the partition
    OFFLINE   no live broker leads the partition

    state     change          becomes
    NEW       FIRST           ONLINE, OFFLINE
              BRANCH          ONLINE
    ONLINE    AFTER_CRASH     ONLINE, OFFLINE
              BEFORE_STOP     ONLINE
              PREFERRED       ONLINE
              WITHOUT_GONE    ONLINE
              ISR             ONLINE
              MORE_REPLICAS   ONLINE
              REPLICAS        ONLINE, OFFLINE
    OFFLINE   AFTER_LOSS      ONLINE, OFFLINE
              AFTER_CRASH     ONLINE, OFFLINE
              BEFORE_STOP     ONLINE
              PREFERRED       ONLINE
              MORE_REPLICAS   OFFLINE
              REPLICAS        ONLINE, OFFLINE

`BECOMES` contains the rows of this table. Code that changes a node passes the new state to `changed`, which refuses
any change that is not in the table. `ELECTS` has the change that each event causes in each state. A partition becomes
OFFLINE when its leader leaves, and ONLINE when that broker registers again, even if the node is not written.

    election    the new leader                                          the new ISR
    first       the first live replica                                  every live replica, since there are no records
    after loss  the first live in-sync replica                          the live in-sync replicas
    unclean     the first live replica, if none is in sync. Records     only the new leader
                that only other replicas have are lost, so
                unclean.leader.election.enable must permit it
    after a     as after loss, without crashed brokers, which may       the live in-sync replicas that did not crash
    crash       lack records. If no other replica was in sync, the
                current leader, in a new epoch
    before a    the first live in-sync replica that is not stopping;    the live in-sync replicas that are not stopping
    stop        if there is none, the leader remains until it stops
    preferred   the first replica, if it is live and in sync            the live in-sync replicas
    none        the leader remains; other members of the ISR have       the live in-sync replicas
                left, and writes must not wait for them

Each election begins a new leader epoch. If no broker can lead, the leader is -1, and the last ISR is kept, because one
of its members has every committed record. Sources: the chapter "Replication" of Kafka's documentation, KIP-106,
KIP-460, KIP-966. The elections are in Apache Kafka's order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum, auto
from typing import Final

from jesenska.metadata.nodes import PartitionStateNode

NO_LEADER: Final = -1
FIRST_LEADER_EPOCH: Final = 0


class PartitionState(IntEnum):
    """The states of a partition. They are integers because they are looked up for each partition when brokers register
    or leave."""

    NEW = auto()
    ONLINE = auto()
    OFFLINE = auto()


class Change(IntEnum):
    """The kinds of changes of a partition's node in the metadata tree."""

    #: Elections; the table of elections at the top of this file describes each of them.
    FIRST = auto()
    AFTER_LOSS = auto()
    AFTER_CRASH = auto()
    BEFORE_STOP = auto()
    PREFERRED = auto()
    #: The leader is unchanged; other members of the ISR have left.
    WITHOUT_GONE = auto()
    #: The partition belongs to a branch (a topic that begins as a copy): its leader is the leader of the source's
    #: partition.
    BRANCH = auto()
    #: The leader has requested another ISR.
    ISR = auto()
    #: The partition gets more replicas. The leader is unchanged, in a new leader epoch.
    MORE_REPLICAS = auto()
    #: A reassignment adds or removes replicas.
    REPLICAS = auto()


class PartitionEvent(IntEnum):
    """The events after which elections may be needed."""

    #: Brokers have registered or left, or their offline replicas have changed.
    BROKERS_CHANGED = auto()
    #: Brokers that crashed have registered again. If the crash requires no election for a partition, the event
    #: BROKERS_CHANGED is tried next.
    BROKERS_CRASHED = auto()
    BROKER_STOPS = auto()
    #: The first replica must become leader.
    PREFERRED_WANTED = auto()


NEW: Final = PartitionState.NEW
ONLINE: Final = PartitionState.ONLINE
OFFLINE: Final = PartitionState.OFFLINE
_NONE: Final[frozenset[PartitionState]] = frozenset()
_EITHER: Final = frozenset({ONLINE, OFFLINE})

#: The possible states after each change, by the state before it. A state that is missing does not allow the change.
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
    Change.REPLICAS: {NEW: _NONE, ONLINE: _EITHER, OFFLINE: _EITHER},
}

#: The change that each event causes in each state; None for no change.
ELECTS: Final[dict[PartitionEvent, dict[PartitionState, Change | None]]] = {
    PartitionEvent.BROKERS_CHANGED: {NEW: Change.FIRST, ONLINE: Change.WITHOUT_GONE, OFFLINE: Change.AFTER_LOSS},
    PartitionEvent.BROKERS_CRASHED: {NEW: Change.FIRST, ONLINE: Change.AFTER_CRASH, OFFLINE: Change.AFTER_CRASH},
    PartitionEvent.BROKER_STOPS: {NEW: None, ONLINE: Change.BEFORE_STOP, OFFLINE: Change.BEFORE_STOP},
    PartitionEvent.PREFERRED_WANTED: {NEW: None, ONLINE: Change.PREFERRED, OFFLINE: Change.PREFERRED},
}


def partition_state(written: PartitionStateNode | None, live: Collection[int]) -> PartitionState:
    """Returns the state of a partition, from its node in the metadata tree (None: there is no node) and the registered
    brokers."""
    if written is None:
        return NEW
    return ONLINE if written.leader in live else OFFLINE


def changed(
    change: Change | None, before: PartitionStateNode | None, after: PartitionStateNode, live: Collection[int]
) -> PartitionStateNode:
    """Returns `after` if the table allows the change. Any other change, or None, is a defect of the controller and
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
    """Returns the new state of an OFFLINE partition, or None if nothing changes. With `unclean`, a replica that was
    not in sync may lead."""
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
    """Returns the new state of a partition when brokers in `crashed` have registered again, or None if nothing
    changes. These brokers are removed from an ISR that has another member. The other member has every committed
    record, while the crashed brokers may lack some records."""
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
    """Returns the new state of an ONLINE partition when members of its ISR have left, or None if no member has
    left."""
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
    """Returns the new state of a partition when its brokers in `stopping` are about to stop. Returns None if nothing
    changes: these brokers are not in sync, or no other replica is in sync."""
    isr = tuple(broker for broker in written.isr if broker in live and broker not in stopping)
    if not isr or not set(written.isr) & set(stopping):
        return None
    leader = written.leader if written.leader in isr else next((broker for broker in replicas if broker in isr), None)
    return None if leader is None else PartitionStateNode(leader, written.leader_epoch + 1, isr, controller_epoch)


def elect_preferred(
    replicas: Sequence[int], written: PartitionStateNode, live: Collection[int], controller_epoch: int
) -> PartitionStateNode | None:
    """Returns the partition's state in which the first replica is leader, or None if the first replica's broker is not
    registered or not in sync."""
    if not replicas or replicas[0] not in live or replicas[0] not in written.isr:
        return None
    isr = tuple(broker for broker in written.isr if broker in live)
    return PartitionStateNode(replicas[0], written.leader_epoch + 1, isr, controller_epoch)
