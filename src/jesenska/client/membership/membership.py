"""The membership in a consumer group, with the classic protocol: joining, assigning the partitions, heartbeats,
leaving.

    find the coordinator -> JoinGroup -> (leader: assign) -> SyncGroup; then heartbeats
         ^                                                                     |
         +------------- REBALANCE_IN_PROGRESS, lost coordinator, expiry -------+

`join` makes one attempt. After it heartbeats run as a task, until the member must join again (`is_join_due`). The
owner of this object reports each poll: a member that is not polled for `max_poll_interval_seconds` leaves. The leader
of the group checks the topics each time the metadata expires. If a topic's number of partitions has changed, it has
all members join again.

The partitions that are read, and their offsets, are in client.group. The new protocol (KIP-848) is not implemented."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError, error_name
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.coordinators import COORDINATOR_PASSES
from jesenska.client.membership.assignors import ASSIGNORS, COOPERATIVE, MemberView
from jesenska.client.membership.coordinator import GroupCoordinator
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.transactions import GroupMetadata
from jesenska.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    owned_of,
)
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

logger = logging.getLogger(__name__)

#: Errors after which the member must join again.
JOIN_AGAIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
)
_FORGET_ID = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class Assignment(NamedTuple):
    """The partitions that this member has in a generation of the group. `is_cooperative` is true if partitions that
    members give up are assigned to others only in the next rebalance."""

    partitions: frozenset[TopicPartition]
    is_cooperative: bool


class Membership:
    """One member of one group. `generation` is -1 while the member is not in the group. `is_join_due` is true if the
    member must join (again). `fatal` is an error after which the member cannot continue, or None. `metadata` is
    described in `GroupConsumer.group_metadata`."""

    def __init__(self, cluster: Cluster, group_id: str, topics: Collection[str], options: MembershipOptions) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.topics = frozenset(topics)
        self.member_id = ""
        self.generation = -1
        self.is_join_due = True
        self.fatal: KafkaError | None = None
        self.coordinator = GroupCoordinator(cluster, group_id)
        self.options = options
        self.metadata = GroupMetadata(group_id, group_instance_id=options.group_instance_id)
        self._session_ms = int(options.session_timeout_seconds * 1000)
        # As in Kafka's consumers, max.poll.interval.ms is also the rebalance timeout.
        self._rebalance_ms = int(options.max_poll_interval_seconds * 1000)
        self._heart: asyncio.Task[None] | None = None
        #: The time when the last poll ended; None while a poll is running.
        self._polled_at: float | None = cluster.clock.monotonic()
        #: If this member is the leader: the number of partitions of each topic (0: no such topic) at its last
        #: assignment, and the time when it last checked these numbers.
        self._shared: dict[str, int] = {}
        self._looked_at = 0.0

    @property
    def is_cooperative(self) -> bool:
        """True if the member keeps its partitions while it joins again."""
        return all(name in COOPERATIVE for name in self.options.assignors)

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscribed topics. If they are different, the member must join again."""
        if frozenset(topics) != self.topics:
            self.topics = frozenset(topics)
            self.is_join_due = True

    def poll_begins(self) -> None:
        self._polled_at = None

    def poll_ends(self) -> None:
        self._polled_at = self.cluster.clock.monotonic()

    def note(self, code: int) -> KafkaError | None:
        """Updates the member after an error code in a coordinator's response, and returns the error; None for the code
        NONE."""
        if code == ErrorCode.NONE:
            return None
        if code in COORDINATOR_PASSES:
            self.coordinator.forget()
        if code in JOIN_AGAIN:
            self.is_join_due = True
        if code in _FORGET_ID:
            self.generation = -1
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        error = KafkaError.of(code, f"Group {self.group_id}: the coordinator answers {error_name(code)}.")
        if code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            self.fatal = error
        return error

    def require(self, code: int) -> None:
        """Updates the member as `note` does, and raises the error if there is one."""
        error = self.note(code)
        if error is not None:
            raise error

    # --- joining -----------------------------------------------------------------------------------------------------

    async def join(self, owned: Collection[TopicPartition]) -> Assignment | None:
        """Makes one attempt to join the group, as the owner of the partitions `owned`. Returns the new assignment.
        Returns None if the coordinator has only assigned a member id, with which the member must join again. Raises
        the error if the attempt failed."""
        joined = await self._join(owned)
        return None if joined is None else await self._sync(joined)

    async def _join(self, owned: Collection[TopicPartition]) -> JoinGroupResponse | None:
        metadata = encode_subscription(sorted(self.topics), sorted(owned), self.generation)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.options.group_instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self.options.assignors],
        )
        answer = await self.coordinator.ask(request, JoinGroupResponse, timeout_seconds=self._rebalance_ms / 1000 + 5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return None
        self.require(answer.error_code)
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    async def _sync(self, joined: JoinGroupResponse) -> Assignment:
        shares: dict[str, list[TopicPartition]] = {}
        self._shared = {}
        if joined.leader == joined.member_id:
            members = _members(joined)
            self._shared = await self._partition_counts(
                sorted({topic for member in members for topic in member.topics}), {}
            )
            self._looked_at = self.cluster.clock.monotonic()
            # A static leader that comes back finds the assignment unchanged (KIP-814). It makes no new assignment, but
            # still checks the topics.
            if not joined.skip_assignment:
                shares = self._share_out(joined.protocol_name or "", members)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self.options.group_instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(keys))
                for member, keys in shares.items()
            ],
        )
        answer = await self.coordinator.ask(request, SyncGroupResponse, timeout_seconds=self._rebalance_ms / 1000 + 5)
        self.require(answer.error_code)
        self.is_join_due = False
        self.metadata = GroupMetadata(self.group_id, self.generation, self.member_id, self.options.group_instance_id)
        self._heart = asyncio.get_running_loop().create_task(self._beat())
        return Assignment(
            frozenset(decode_assignment(bytes(answer.assignment))), (joined.protocol_name or "") in COOPERATIVE
        )

    def _share_out(self, protocol: str, members: list[MemberView]) -> dict[str, list[TopicPartition]]:
        return ASSIGNORS[protocol](members, {topic: count for topic, count in self._shared.items() if count})

    async def _partition_counts(self, topics: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
        """Returns the number of partitions of each topic as the brokers report it now: 0 for a topic that does not
        exist, and the number in `before` for a topic that they do not report."""
        errors = await self.cluster.refresh(topics)
        counts = {}
        for topic in topics:
            info = self.cluster.known(topic)
            gone = isinstance(errors.get(topic), UnknownTopicOrPartitionError)
            counts[topic] = len(info.partitions) if info is not None else 0 if gone else before.get(topic, 0)
        return counts

    async def _look_at_topics(self) -> None:
        """Checks the topics if this member is the group's leader. If the number of partitions of a topic has changed
        since its last assignment, the member must join again."""
        now = self.cluster.clock.monotonic()
        if not self._shared or now - self._looked_at < self.cluster.metadata_max_age_seconds:
            return
        self._looked_at = now
        if await self._partition_counts(list(self._shared), self._shared) != self._shared:
            self.is_join_due = True

    # --- heartbeats --------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        wait = self.options.heartbeat_seconds
        while not self.is_join_due:
            polled_at = self._polled_at
            unpolled = self.cluster.clock.monotonic() - polled_at if polled_at is not None else 0.0
            await asyncio.sleep(min(wait, max(0.0, self._rebalance_ms / 1000 - unpolled) + 0.001))
            wait = self.options.heartbeat_seconds
            if (
                self._polled_at is not None
                and self.cluster.clock.monotonic() - self._polled_at >= self._rebalance_ms / 1000
            ):
                await self._leave_unpolled()
                return
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.options.group_instance_id,
            )
            try:
                answer = await self.coordinator.ask(request, HeartbeatResponse)
                self.note(answer.error_code)
                await self._look_at_topics()
            except KafkaError:
                # A broker that restarts still knows its members. Only the coordinator decides that a member must join
                # again.
                wait = self.cluster.retry_backoff_seconds

    async def stop_heartbeats(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait({self._heart})
            self._heart = None

    # --- leaving -----------------------------------------------------------------------------------------------------

    async def _leave_unpolled(self) -> None:
        """Leaves the group without a commit, because it is unknown if the records that were read have been processed.
        A static member does not leave; its session expires."""
        logger.warning(
            "Member %s of group %s was not polled for %.1f s and leaves: poll more often, take fewer records at a "
            "time, or raise max.poll.interval.ms.",
            self.member_id, self.group_id, self._rebalance_ms / 1000,
        )  # fmt: skip
        member_id, self.generation, self.is_join_due = self.member_id, -1, True
        if self.options.group_instance_id is None:
            self.member_id = ""
            await self._ask_to_leave(member_id)

    async def leave(self) -> None:
        """Leaves the group. A static member stays in the group, so that it can come back."""
        if self.member_id and self.options.group_instance_id is None:
            await self._ask_to_leave(self.member_id)

    async def _ask_to_leave(self, member_id: str) -> None:
        """Asks the coordinator to remove the member. Errors are ignored, because the member's session expires
        anyway."""
        if not self.coordinator.is_known:
            return
        request = LeaveGroupRequest(
            group_id=self.group_id, member_id=member_id, members=[LeaveGroupRequestMember(member_id=member_id)]
        )
        with suppress(KafkaError):
            if (await self.coordinator.channel()).version_for(LeaveGroupRequest) < 3:
                request.members = []
            else:
                request.member_id = ""
            await self.coordinator.ask(request, LeaveGroupResponse)


def _members(joined: JoinGroupResponse) -> list[MemberView]:
    """Returns the members of a JoinGroup response, for the assignor."""
    found = []
    for item in joined.members:
        said = decode_subscription(bytes(item.metadata))
        found.append(
            MemberView(
                item.member_id,
                frozenset(said.topics),
                frozenset(owned_of(said)),
                said.generation_id,
                item.group_instance_id,
            )
        )
    return found
