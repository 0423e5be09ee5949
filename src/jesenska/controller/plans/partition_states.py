"""The states of a partition as the controller sees them, and the elections of its leader. Plain functions over values;
their results are written to the tree.

    state       means                                         becomes
    NEW         replicas are assigned, nothing is written     ONLINE (`elect_first`)
    ONLINE      a broker that is up leads it                  OFFLINE, when that broker goes
    OFFLINE     no broker that is up leads it                 ONLINE (`elect_after_loss`), when a broker can

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
from enum import Enum
from typing import Final

from jesenska.metadata.nodes import PartitionStateNode

NO_LEADER: Final = -1
FIRST_LEADER_EPOCH: Final = 0


class PartitionState(Enum):
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


def partition_state(written: PartitionStateNode | None, live: Collection[int]) -> PartitionState:
    """The state of a partition with this node in the tree while these brokers are up."""
    if written is None:
        return PartitionState.NEW
    return PartitionState.ONLINE if written.leader in live else PartitionState.OFFLINE


def elect_first(replicas: Sequence[int], live: Collection[int], controller_epoch: int) -> PartitionStateNode:
    """The first state of a NEW partition."""
    isr = tuple(broker for broker in replicas if broker in live)
    leader = isr[0] if isr else NO_LEADER
    return PartitionStateNode(leader, FIRST_LEADER_EPOCH, isr or tuple(replicas), controller_epoch)


def elect_after_loss(
    replicas: Sequence[int], written: PartitionStateNode, live: Collection[int], controller_epoch: int, *, unclean: bool
) -> PartitionStateNode | None:
    """The new state of an OFFLINE partition; None if nothing changes. `unclean` lets a replica lead that was not in
    sync."""
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
    """The new state of an ONLINE partition whose leader was not stopped in order, and was the only member of the
    ISR."""
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
    """The new state of a partition when brokers that `crashed` are up again; None if nothing changes.

    They leave an ISR that has another member: the other has every committed record, they may not."""
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
    """The new state of an ONLINE partition when members of its ISR have gone; None if none has."""
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
    """The new state of a partition with replicas on brokers that are `stopping`, and still up; None if nothing
    changes: they are not in sync, or no other replica is."""
    isr = tuple(broker for broker in written.isr if broker in live and broker not in stopping)
    if not isr or not set(written.isr) & set(stopping):
        return None
    leader = written.leader if written.leader in isr else next((broker for broker in replicas if broker in isr), None)
    return None if leader is None else PartitionStateNode(leader, written.leader_epoch + 1, isr, controller_epoch)


def elect_preferred(
    replicas: Sequence[int], written: PartitionStateNode, live: Collection[int], controller_epoch: int
) -> PartitionStateNode | None:
    """The new state when the first replica is elected; None if it is not up or not in sync."""
    if not replicas or replicas[0] not in live or replicas[0] not in written.isr:
        return None
    isr = tuple(broker for broker in written.isr if broker in live)
    return PartitionStateNode(replicas[0], written.leader_epoch + 1, isr, controller_epoch)
