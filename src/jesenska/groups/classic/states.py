"""The states of a group of the classic protocol, and the step for each event in each of them: one table.

    state                   means                                                 goes to
    EMPTY                   no members; it may hold offsets                       PREPARING_REBALANCE, DEAD
    PREPARING_REBALANCE     waits for every member to join                        COMPLETING_REBALANCE, EMPTY, DEAD
    COMPLETING_REBALANCE    has a generation, waits for the leader's assignment   STABLE, PREPARING_REBALANCE, DEAD
    STABLE                  every member can have its assignment                  PREPARING_REBALANCE, DEAD
    DEAD                    it is being removed; nothing leads out of it          (gone, or back if that fails)

`HAPPENS` is for valid requests: the member is known, the generation is the group's. An error is the answer. `members`
and `offsets` carry out the steps.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from jesenska.base.errors import ErrorCode
from jesenska.groups.events import CommitOffsets, DeleteGroup, DeleteOffsets, Heartbeat, Join, Sync


class GroupState(Enum):
    """The values are the names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberGone:
    """A member has left, or its session is over."""


class RebalanceDue:
    """The members' time to join, as they asked for it, is over."""


class SyncDue:
    """The time of members that have joined to ask for their assignments is over."""


class ExpiryDue:
    """Offsets are checked for expiry."""


class Step(Enum):
    """The step of a group for an event."""

    #: The member waits for the answer, and all are called to join.
    REBALANCE = auto()
    #: The member waits for the other members.
    WAIT = auto()
    #: A member whose answer was lost, or that brings nothing new, gets the answer of its generation; any other calls
    #: for a rebalance.
    REPEAT_OR_REBALANCE = auto()
    #: The member waits for the assignment; the leader brings it, and it is written.
    WAIT_FOR_ASSIGNMENT = auto()
    TELL_ASSIGNMENT = auto()
    #: The member's session starts again.
    LIVE = auto()
    COMPLETE_IF_ALL_HAVE_JOINED = auto()
    #: A generation begins with the members that have joined.
    COMPLETE = auto()
    #: Members that have joined and never asked for an assignment are taken for dead (KIP-735).
    DROP_SILENT = auto()
    WRITE = auto()
    #: Removes the group with its offsets.
    REMOVE = auto()
    #: Removes unused offsets.
    FORGET = auto()
    #: Removes offsets; also the group if they were its last.
    FORGET_AND_REMOVE = auto()
    NOTHING = auto()


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = GroupState

#: The step of a group for each event in each state; an error is the answer.
HAPPENS: Final[dict[type, dict[GroupState, Step | ErrorCode]]] = {
    Join: {
        EMPTY: Step.REBALANCE,
        PREPARING_REBALANCE: Step.WAIT,
        COMPLETING_REBALANCE: Step.REPEAT_OR_REBALANCE,
        STABLE: Step.REPEAT_OR_REBALANCE,
        # The member comes again, and the group either exists then or does not.
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    Sync: {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: Step.WAIT_FOR_ASSIGNMENT,
        STABLE: Step.TELL_ASSIGNMENT,
        DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
    },
    Heartbeat: {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: Step.LIVE,
        STABLE: Step.LIVE,
        DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
    },
    MemberGone: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.COMPLETE_IF_ALL_HAVE_JOINED,
        COMPLETING_REBALANCE: Step.REBALANCE,
        STABLE: Step.REBALANCE,
        DEAD: Step.NOTHING,
    },
    RebalanceDue: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.COMPLETE,
        COMPLETING_REBALANCE: Step.NOTHING,
        STABLE: Step.NOTHING,
        DEAD: Step.NOTHING,
    },
    SyncDue: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.DROP_SILENT,
        STABLE: Step.NOTHING,
        DEAD: Step.NOTHING,
    },
    CommitOffsets: {
        EMPTY: Step.WRITE,
        PREPARING_REBALANCE: Step.WRITE,
        COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        STABLE: Step.WRITE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    DeleteOffsets: {
        EMPTY: Step.FORGET,
        PREPARING_REBALANCE: Step.FORGET,
        COMPLETING_REBALANCE: Step.FORGET,
        STABLE: Step.FORGET,
        DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
    },
    DeleteGroup: {
        EMPTY: Step.REMOVE,
        PREPARING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        COMPLETING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        STABLE: ErrorCode.NON_EMPTY_GROUP,
        DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
    },
    ExpiryDue: {
        EMPTY: Step.FORGET_AND_REMOVE,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.NOTHING,
        STABLE: Step.FORGET,
        DEAD: Step.NOTHING,
    },
}

#: The states that may come before each state.
ALLOWED_BEFORE: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING_REBALANCE}),
    PREPARING_REBALANCE: frozenset({STABLE, COMPLETING_REBALANCE, EMPTY}),
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
    STABLE: frozenset({COMPLETING_REBALANCE}),
    DEAD: frozenset(GroupState),
}
