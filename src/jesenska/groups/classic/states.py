"""The states of a group of the classic protocol, and the step for each event in each of them: one table.

    state                   means
    EMPTY                   no members; it may hold offsets. A group begins here
    PREPARING_REBALANCE     waits for every member to join
    COMPLETING_REBALANCE    has a generation, waits for the leader's assignment
    STABLE                  every member can have its assignment. A group that is read from the log with members
                            begins here
    DEAD                    it is being removed

    state                   event                 step                    goes to
    EMPTY                   REBALANCE_NEEDED      CALL_WITH_DELAY         PREPARING_REBALANCE
                            REMOVAL               REMOVE                  DEAD
    PREPARING_REBALANCE     GENERATION_BEGINS     BEGIN_GENERATION        COMPLETING_REBALANCE
                            NOBODY_JOINED         BECOME_EMPTY            EMPTY
    COMPLETING_REBALANCE    ASSIGNMENT_LOGGED     BECOME_STABLE           STABLE
                            REBALANCE_NEEDED      CALL_AND_REFUSE_SYNCS   PREPARING_REBALANCE
                            MEMBER_GONE           CALL_AND_REFUSE_SYNCS   PREPARING_REBALANCE
    STABLE                  REBALANCE_NEEDED      CALL                    PREPARING_REBALANCE
                            MEMBER_GONE           CALL                    PREPARING_REBALANCE
    DEAD                    REMOVAL_FAILED        BRING_BACK              EMPTY

Nothing else changes the state. `HAPPENS` has these rows and those of events that leave the state as it is, `LEADS_TO`
the state after a step. An error is the answer to a request. A group in DEAD is forgotten when its removal is in the
log.

A request that names an unknown member or another generation is refused before its row counts. So only members are told
REBALANCE_IN_PROGRESS. In EMPTY and DEAD there is no member that could be named, and the row has the answer.

`Group.take` changes the state. `members` and `offsets` carry out the steps.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final

from jesenska.base.errors import ErrorCode


class GroupState(Enum):
    """The states of a group. Their values are the names in DescribeGroups and ListGroups."""

    #: Enum's own hash is a call, and states are looked up for each heartbeat.
    __hash__ = object.__hash__

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(IntEnum):
    """The requests to a group, and the other events that it handles. They are integers because they are looked up for
    each heartbeat."""

    # --- members ---
    #: A client joins: is it admitted?
    JOIN = auto()
    #: A client that is a member joins again.
    MEMBER_AGAIN = auto()
    #: A static member joins without its member id: it was started again.
    STATIC_MEMBER_BACK = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    #: A member has left, or its session is over.
    MEMBER_GONE = auto()

    # --- a rebalance ---
    #: A member waits for the answer to its join, or the assignment cannot be stored.
    REBALANCE_NEEDED = auto()
    #: The wait for members may be over: a member has joined or gone, or an id that was given out was not used in time.
    JOINS_COUNTED = auto()
    #: The members' time to join, as they asked for it, is over.
    REBALANCE_DUE = auto()
    #: The wait for members has ended, and some have joined.
    GENERATION_BEGINS = auto()
    #: The wait for members has ended, and none is left.
    NOBODY_JOINED = auto()
    #: The group's record of this generation is in the log.
    ASSIGNMENT_LOGGED = auto()
    #: The write of the leader's assignment has succeeded.
    ASSIGNMENT_WRITTEN = auto()
    #: The time of members that have joined to ask for their assignments is over.
    SYNC_DUE = auto()

    # --- offsets ---
    #: A commit outside of a transaction that names a member or a generation.
    COMMIT = auto()
    #: A commit in a transaction. It is fenced by its producer.
    COMMIT_WITHIN = auto()
    #: A commit outside of a transaction that names no member.
    COMMIT_FROM_OUTSIDE = auto()
    #: The same, for partitions of a branch.
    COMMIT_OF_BRANCH = auto()
    DELETE_OFFSETS = auto()
    #: Offsets are checked for expiry.
    EXPIRY_DUE = auto()
    #: The topics that members subscribe to are needed.
    SUBSCRIPTIONS = auto()

    # --- the group ---
    #: A client reads the group's description or its offsets, or lists it.
    READ = auto()
    DELETE_GROUP = auto()
    #: The group is to be removed.
    REMOVAL = auto()
    #: The removal could not be written.
    REMOVAL_FAILED = auto()


class Step(Enum):
    """The step of a group for an event."""

    NOTHING = auto()
    #: No such event comes in this state.
    CANNOT_HAPPEN = auto()

    # --- members ---
    ADMIT = auto()
    #: Admits those that join first, up to the group's maximum, so that a group that is too large loses its last ones.
    ADMIT_FIRST_JOINED = auto()
    #: Admits members, and others up to the group's maximum.
    ADMIT_MEMBERS_FIRST = auto()
    #: The member waits for the other members.
    WAIT = auto()
    #: A member whose answer was lost, or that brings nothing new, gets the answer of its generation; any other calls
    #: for a rebalance.
    REPEAT_OR_REBALANCE = auto()
    #: The same, but the leader's join always leads to a new assignment.
    REPEAT_TO_FOLLOWER_OR_REBALANCE = auto()
    #: The generation goes on if the group's protocol stays the same; else the member calls for a rebalance.
    REPLACE_OR_REBALANCE = auto()
    #: The member waits for the assignment; the leader brings it, and it is written.
    WAIT_FOR_ASSIGNMENT = auto()
    #: The member gets its assignment.
    TELL_ASSIGNMENT = auto()
    #: The member's session starts again.
    LIVE = auto()

    # --- a rebalance ---
    #: Every member is called to join.
    CALL = auto()
    #: The same for the first member. The rebalance waits for more of them (group.initial.rebalance.delay.ms).
    CALL_WITH_DELAY = auto()
    #: The same. Members that wait for the assignment are told.
    CALL_AND_REFUSE_SYNCS = auto()
    COMPLETE_IF_ALL_HAVE_JOINED = auto()
    #: Ends the wait for members.
    COMPLETE = auto()
    BEGIN_GENERATION = auto()
    BECOME_EMPTY = auto()
    #: The members have the assignments of the record.
    BECOME_STABLE = auto()
    #: The same, in the generation that goes on.
    TAKE_ASSIGNMENTS = auto()
    #: Every member that waits gets its assignment.
    TELL_ASSIGNMENTS = auto()
    #: Members that have joined and never asked for an assignment are taken for dead (KIP-735).
    DROP_SILENT = auto()

    # --- offsets ---
    WRITE = auto()
    #: Writes for a client that names no generation. There are no members.
    WRITE_WITHOUT_GENERATION = auto()
    #: Writes offsets of partitions that have none, of topics to which no member subscribes.
    WRITE_UNREAD = auto()
    #: Removes unused offsets.
    FORGET = auto()
    #: Removes offsets; also the group if they were its last.
    FORGET_AND_REMOVE = auto()
    #: Nobody subscribes.
    NO_TOPICS = auto()
    #: The members' subscriptions say it.
    TOPICS_OF_MEMBERS = auto()

    # --- the group ---
    SHOW = auto()
    #: The same, with the members' assignments.
    SHOW_ASSIGNMENTS = auto()
    #: Removes the group unless a client was given a member id to join with.
    REMOVE_IF_UNUSED = auto()
    #: Removes the group with its offsets.
    REMOVE = auto()
    BRING_BACK = auto()


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = GroupState

#: The step of a group for each event in each state; an error is the answer.
HAPPENS: Final[dict[GroupEvent, dict[GroupState, Step | ErrorCode]]] = {
    GroupEvent.JOIN: {
        EMPTY: Step.ADMIT,
        PREPARING_REBALANCE: Step.ADMIT_FIRST_JOINED,
        COMPLETING_REBALANCE: Step.ADMIT_MEMBERS_FIRST,
        STABLE: Step.ADMIT_MEMBERS_FIRST,
        # The member comes again, and the group either exists then or does not.
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    GroupEvent.MEMBER_AGAIN: {
        EMPTY: Step.CANNOT_HAPPEN,
        PREPARING_REBALANCE: Step.WAIT,
        COMPLETING_REBALANCE: Step.REPEAT_OR_REBALANCE,
        STABLE: Step.REPEAT_TO_FOLLOWER_OR_REBALANCE,
        DEAD: Step.CANNOT_HAPPEN,
    },
    GroupEvent.STATIC_MEMBER_BACK: {
        EMPTY: Step.CANNOT_HAPPEN,
        PREPARING_REBALANCE: Step.WAIT,
        COMPLETING_REBALANCE: Step.WAIT,
        STABLE: Step.REPLACE_OR_REBALANCE,
        DEAD: Step.CANNOT_HAPPEN,
    },
    GroupEvent.SYNC: {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: Step.WAIT_FOR_ASSIGNMENT,
        STABLE: Step.TELL_ASSIGNMENT,
        DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
    },
    GroupEvent.HEARTBEAT: {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: Step.LIVE,
        STABLE: Step.LIVE,
        DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
    },
    GroupEvent.MEMBER_GONE: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.CALL_AND_REFUSE_SYNCS,
        STABLE: Step.CALL,
        DEAD: Step.NOTHING,
    },
    GroupEvent.REBALANCE_NEEDED: {
        EMPTY: Step.CALL_WITH_DELAY,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.CALL_AND_REFUSE_SYNCS,
        STABLE: Step.CALL,
        DEAD: Step.CANNOT_HAPPEN,
    },
    GroupEvent.JOINS_COUNTED: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.COMPLETE_IF_ALL_HAVE_JOINED,
        COMPLETING_REBALANCE: Step.NOTHING,
        STABLE: Step.NOTHING,
        DEAD: Step.NOTHING,
    },
    GroupEvent.REBALANCE_DUE: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.COMPLETE,
        COMPLETING_REBALANCE: Step.NOTHING,
        STABLE: Step.NOTHING,
        DEAD: Step.NOTHING,
    },
    GroupEvent.GENERATION_BEGINS: {
        EMPTY: Step.CANNOT_HAPPEN,
        PREPARING_REBALANCE: Step.BEGIN_GENERATION,
        COMPLETING_REBALANCE: Step.CANNOT_HAPPEN,
        STABLE: Step.CANNOT_HAPPEN,
        DEAD: Step.CANNOT_HAPPEN,
    },
    GroupEvent.NOBODY_JOINED: {
        EMPTY: Step.CANNOT_HAPPEN,
        PREPARING_REBALANCE: Step.BECOME_EMPTY,
        COMPLETING_REBALANCE: Step.CANNOT_HAPPEN,
        STABLE: Step.CANNOT_HAPPEN,
        DEAD: Step.CANNOT_HAPPEN,
    },
    GroupEvent.ASSIGNMENT_LOGGED: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.BECOME_STABLE,
        STABLE: Step.TAKE_ASSIGNMENTS,
        DEAD: Step.NOTHING,
    },
    GroupEvent.ASSIGNMENT_WRITTEN: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.NOTHING,
        STABLE: Step.TELL_ASSIGNMENTS,
        DEAD: Step.NOTHING,
    },
    GroupEvent.SYNC_DUE: {
        EMPTY: Step.NOTHING,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.DROP_SILENT,
        STABLE: Step.NOTHING,
        DEAD: Step.NOTHING,
    },
    GroupEvent.COMMIT: {
        EMPTY: Step.WRITE_WITHOUT_GENERATION,
        PREPARING_REBALANCE: Step.WRITE,
        COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        STABLE: Step.WRITE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    GroupEvent.COMMIT_WITHIN: {
        EMPTY: Step.WRITE_WITHOUT_GENERATION,
        PREPARING_REBALANCE: Step.WRITE,
        COMPLETING_REBALANCE: Step.WRITE,
        STABLE: Step.WRITE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    GroupEvent.COMMIT_FROM_OUTSIDE: {
        EMPTY: Step.WRITE,
        # A client that is not a member may not change the offsets of a group with members.
        PREPARING_REBALANCE: ErrorCode.UNKNOWN_MEMBER_ID,
        COMPLETING_REBALANCE: ErrorCode.UNKNOWN_MEMBER_ID,
        STABLE: ErrorCode.UNKNOWN_MEMBER_ID,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    GroupEvent.COMMIT_OF_BRANCH: {
        EMPTY: Step.WRITE,
        # The client comes again when the members' subscriptions are known.
        PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        STABLE: Step.WRITE_UNREAD,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    GroupEvent.DELETE_OFFSETS: {
        EMPTY: Step.FORGET,
        PREPARING_REBALANCE: Step.FORGET,
        COMPLETING_REBALANCE: Step.FORGET,
        STABLE: Step.FORGET,
        DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
    },
    GroupEvent.EXPIRY_DUE: {
        EMPTY: Step.FORGET_AND_REMOVE,
        PREPARING_REBALANCE: Step.NOTHING,
        COMPLETING_REBALANCE: Step.NOTHING,
        STABLE: Step.FORGET,
        DEAD: Step.NOTHING,
    },
    GroupEvent.SUBSCRIPTIONS: {
        EMPTY: Step.NO_TOPICS,
        PREPARING_REBALANCE: Step.TOPICS_OF_MEMBERS,
        COMPLETING_REBALANCE: Step.TOPICS_OF_MEMBERS,
        STABLE: Step.TOPICS_OF_MEMBERS,
        DEAD: Step.CANNOT_HAPPEN,
    },
    GroupEvent.READ: {
        EMPTY: Step.SHOW,
        PREPARING_REBALANCE: Step.SHOW,
        COMPLETING_REBALANCE: Step.SHOW,
        STABLE: Step.SHOW_ASSIGNMENTS,
        DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
    },
    GroupEvent.DELETE_GROUP: {
        EMPTY: Step.REMOVE_IF_UNUSED,
        PREPARING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        COMPLETING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        STABLE: ErrorCode.NON_EMPTY_GROUP,
        DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
    },
    GroupEvent.REMOVAL: {
        EMPTY: Step.REMOVE,
        PREPARING_REBALANCE: Step.CANNOT_HAPPEN,
        COMPLETING_REBALANCE: Step.CANNOT_HAPPEN,
        STABLE: Step.CANNOT_HAPPEN,
        DEAD: Step.CANNOT_HAPPEN,
    },
    GroupEvent.REMOVAL_FAILED: {
        EMPTY: Step.CANNOT_HAPPEN,
        PREPARING_REBALANCE: Step.CANNOT_HAPPEN,
        COMPLETING_REBALANCE: Step.CANNOT_HAPPEN,
        STABLE: Step.CANNOT_HAPPEN,
        DEAD: Step.BRING_BACK,
    },
}

#: The state after each step that changes it.
LEADS_TO: Final[dict[Step, GroupState]] = {
    Step.CALL: PREPARING_REBALANCE,
    Step.CALL_WITH_DELAY: PREPARING_REBALANCE,
    Step.CALL_AND_REFUSE_SYNCS: PREPARING_REBALANCE,
    Step.BEGIN_GENERATION: COMPLETING_REBALANCE,
    Step.BECOME_EMPTY: EMPTY,
    Step.BECOME_STABLE: STABLE,
    Step.REMOVE: DEAD,
    Step.BRING_BACK: EMPTY,
}
