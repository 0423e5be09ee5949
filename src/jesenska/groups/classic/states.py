"""The states of a group of the classic protocol, and the step for each event in each state.

    state                   meaning
    EMPTY                   no members; the group may have offsets. A group begins in this state
    PREPARING_REBALANCE     waits for every member to send JoinGroup
    COMPLETING_REBALANCE    has a new generation, and waits for the leader's assignment
    STABLE                  every member can get its assignment. A group that is read from the log with members begins
                            in this state
    DEAD                    the group is being removed

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

No other event changes the state. `HAPPENS` contains these rows, and the rows of events that do not change the state.
`LEADS_TO` has the state after a step. An error code in `HAPPENS` is the answer to a request. A group in DEAD is
dropped when its removal is in the log.

A request that names an unknown member or another generation is refused before its row is used. So only members are
answered REBALANCE_IN_PROGRESS. In EMPTY and DEAD there are no members, and the row of the table has the answer.

`Group.take` changes the state. `members` and `offsets` carry out the steps."""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import Final

from jesenska.base.errors import ErrorCode


class GroupState(Enum):
    """The states of a group. Their values are the names in DescribeGroups and ListGroups."""

    #: Enum's own hash is slower, and states are looked up for each heartbeat.
    __hash__ = object.__hash__

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(IntEnum):
    """The requests to a group, and other events that a group handles. They are integers because they are looked up for
    each heartbeat."""

    # --- members ---
    #: A client that is not a member sends JoinGroup.
    JOIN = auto()
    #: A client that is a member sends JoinGroup again.
    MEMBER_AGAIN = auto()
    #: A static member sends JoinGroup without its member id, because it was restarted.
    STATIC_MEMBER_BACK = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    #: A member has left, or its session has expired.
    MEMBER_GONE = auto()

    # --- a rebalance ---
    #: A member waits in JoinGroup, or the assignment could not be stored.
    REBALANCE_NEEDED = auto()
    #: The wait for members may be complete: a member has joined or left, or a new member id was not used in time.
    JOINS_COUNTED = auto()
    #: The rebalance timeout of the members has passed.
    REBALANCE_DUE = auto()
    #: The wait for members has ended, and at least one member has joined.
    GENERATION_BEGINS = auto()
    #: The wait for members has ended, and no member is left.
    NOBODY_JOINED = auto()
    #: The group's record of this generation is in the log.
    ASSIGNMENT_LOGGED = auto()
    #: The write of the leader's assignment has succeeded.
    ASSIGNMENT_WRITTEN = auto()
    #: The time has passed in which members that have joined must send SyncGroup.
    SYNC_DUE = auto()

    # --- offsets ---
    #: A commit outside of a transaction that names a member or a generation.
    COMMIT = auto()
    #: A commit in a transaction. The epoch of the producer fences it, not the member's generation.
    COMMIT_WITHIN = auto()
    #: A commit outside of a transaction that names no member.
    COMMIT_FROM_OUTSIDE = auto()
    #: A commit outside of a transaction that names no member, for partitions of a branch (a topic that began as a copy
    #: of another topic).
    COMMIT_OF_BRANCH = auto()
    DELETE_OFFSETS = auto()
    #: Offsets are checked for expiry.
    EXPIRY_DUE = auto()
    #: The topics to which members subscribe are needed.
    SUBSCRIPTIONS = auto()

    # --- the group ---
    #: A client reads the group's description or its offsets, or lists the group.
    READ = auto()
    DELETE_GROUP = auto()
    #: The group must be removed.
    REMOVAL = auto()
    #: The tombstones that remove the group could not be written to the log.
    REMOVAL_FAILED = auto()


class Step(Enum):
    """The steps: the reaction of a group to an event."""

    NOTHING = auto()
    #: The event is impossible in this state.
    CANNOT_HAPPEN = auto()

    # --- members ---
    ADMIT = auto()
    #: Admits the members that join first, up to group.max.size. So a group that is too large loses the members that
    #: join last.
    ADMIT_FIRST_JOINED = auto()
    #: Admits current members, and new members up to group.max.size.
    ADMIT_MEMBERS_FIRST = auto()
    #: The member waits for the other members.
    WAIT = auto()
    #: A member whose protocols are unchanged gets the answer of its generation again, because the answer may have been
    #: lost. Any other member causes a rebalance.
    REPEAT_OR_REBALANCE = auto()
    #: A member that is not the group's leader is treated as in REPEAT_OR_REBALANCE. A JoinGroup of the group's leader
    #: always causes a rebalance.
    REPEAT_TO_FOLLOWER_OR_REBALANCE = auto()
    #: If the group's protocol is unchanged, the generation continues. Otherwise the member causes a rebalance.
    REPLACE_OR_REBALANCE = auto()
    #: The member waits for the assignment. If it is the leader, it sends the assignment, which is written.
    WAIT_FOR_ASSIGNMENT = auto()
    #: The member gets its assignment.
    TELL_ASSIGNMENT = auto()
    #: The member's session timeout starts again.
    LIVE = auto()

    # --- a rebalance ---
    #: A rebalance begins: every member must join.
    CALL = auto()
    #: A rebalance begins with the first member, and waits for more members (group.initial.rebalance.delay.ms).
    CALL_WITH_DELAY = auto()
    #: A rebalance begins, and members that wait for the assignment are answered REBALANCE_IN_PROGRESS.
    CALL_AND_REFUSE_SYNCS = auto()
    COMPLETE_IF_ALL_HAVE_JOINED = auto()
    #: Ends the wait for members.
    COMPLETE = auto()
    BEGIN_GENERATION = auto()
    BECOME_EMPTY = auto()
    #: The members get the assignments in the group's record, and the group becomes STABLE.
    BECOME_STABLE = auto()
    #: The members get the assignments in the group's record; the generation continues.
    TAKE_ASSIGNMENTS = auto()
    #: Every member that waits in SyncGroup gets its assignment.
    TELL_ASSIGNMENTS = auto()
    #: Removes members that have joined but never sent SyncGroup (KIP-735).
    DROP_SILENT = auto()

    # --- offsets ---
    WRITE = auto()
    #: Writes offsets, provided that the client names no generation, because the group has no members.
    WRITE_WITHOUT_GENERATION = auto()
    #: Writes offsets, provided that the partitions have no committed offsets and no member subscribes to their topics.
    WRITE_UNREAD = auto()
    #: Deletes offsets of topics to which no member subscribes.
    FORGET = auto()
    #: Deletes expired offsets, and also the group if these were its last offsets.
    FORGET_AND_REMOVE = auto()
    #: There are no subscriptions, because there are no members.
    NO_TOPICS = auto()
    #: The topics are taken from the members' subscriptions.
    TOPICS_OF_MEMBERS = auto()

    # --- the group ---
    SHOW = auto()
    #: Shows the group, with the members' assignments.
    SHOW_ASSIGNMENTS = auto()
    #: Removes the group, if no client has got a member id with which it can join.
    REMOVE_IF_UNUSED = auto()
    #: Removes the group with its offsets.
    REMOVE = auto()
    BRING_BACK = auto()


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = GroupState

#: For each event in each state: the step, or the error that is answered.
HAPPENS: Final[dict[GroupEvent, dict[GroupState, Step | ErrorCode]]] = {
    GroupEvent.JOIN: {
        EMPTY: Step.ADMIT,
        PREPARING_REBALANCE: Step.ADMIT_FIRST_JOINED,
        COMPLETING_REBALANCE: Step.ADMIT_MEMBERS_FIRST,
        STABLE: Step.ADMIT_MEMBERS_FIRST,
        # The client retries. When it does, the group either exists again or is removed.
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
        # The client must retry later, because the members' subscriptions are known only after the rebalance.
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

#: The state after each step that changes the state.
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
