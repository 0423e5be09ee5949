"""A member of a consumer group: joins, shares partitions, reads them, commits, and leaves.

    find the coordinator -> JoinGroup -> (leader: share out) -> SyncGroup -> read; heartbeats beside it
         ^                                                                     |
         +------------- REBALANCE_IN_PROGRESS, lost coordinator, expiry -------+

`poll` drives it: it joins if that is due, then returns records of this member's partitions. Heartbeats run as a task
meanwhile, so a slow consumer is not taken for dead, but a member that does not poll for `max_poll_interval_seconds`
leaves: other members read again from its last commit, its own commits are refused, and its next `poll` joins again.
The leader of the group checks the topics each time the metadata expires. If the number of partitions of a topic has
changed, it has all members join again.

With an eager protocol (range, roundrobin, sticky) a member commits and gives up everything before it joins again; with
cooperative-sticky it keeps its partitions, gives up those that the answer does not name, and joins once more so that
others get them.

Left out: the new group protocol (KIP-848); the public API comes later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar, Unpack

from jesenska.base.errors import (
    ErrorCode,
    InvalidRequestError,
    KafkaError,
    NetworkException,
    RequestTimedOutError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    error_name,
)
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.client.assignors import ASSIGNORS, COOPERATIVE, MemberView
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer, Fetched, FetchOptions
from jesenska.client.coordinators import find_coordinator
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.positions import Position
from jesenska.client.retries import persistently
from jesenska.client.transactions import GroupMetadata
from jesenska.net.channel import Channel
from jesenska.records.record import Record
from jesenska.wire.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    owned_of,
)
from jesenska.wire.language import Message
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from jesenska.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Message)

_ONE_GROUP_PER_REQUEST = 7
#: First version of OffsetFetch that can wait for the offsets of open transactions.
_FIRST_WITH_STABLE = 7
_NAMES_NOT_IDS = 9
_COORDINATOR_MOVED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_JOIN_AGAIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
)
_FORGET_ID = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

RebalanceCallback = Callable[[Sequence[TopicPartition]], None]


class GroupConsumer:
    """Reads topics as a member of `group_id`. Offsets are committed on `commit`, and, with `auto_commit_seconds`,
    before a rebalance and at that interval."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Collection[str],
        *,
        assignors: Sequence[str] = ("range", "cooperative-sticky"),
        group_instance_id: str | None = None,
        session_timeout_seconds: float = 45.0,
        max_poll_interval_seconds: float = 300.0,
        heartbeat_seconds: float = 3.0,
        auto_commit_seconds: float | None = 5.0,
        auto_offset_reset: str = "latest",
        on_assigned: RebalanceCallback = lambda _: None,
        on_revoked: RebalanceCallback = lambda _: None,
        **fetching: Unpack[FetchOptions],
    ) -> None:
        unknown = [name for name in assignors if name not in ASSIGNORS]
        if unknown or not assignors:
            raise InvalidRequestError(f"partition.assignment.strategy names {unknown}: use {', '.join(ASSIGNORS)}.")
        if not group_id:
            raise InvalidRequestError("A group needs a name: give --group.")
        self.cluster = cluster
        self.group_id = group_id
        self.topics = frozenset(topics)
        self.member_id = ""
        self.generation = -1
        self._membership = GroupMetadata(group_id, group_instance_id=group_instance_id)
        self._assignors = tuple(assignors)
        self._instance_id = group_instance_id
        self._session_ms = int(session_timeout_seconds * 1000)
        # Kafka's consumers also use max.poll.interval.ms as the timeout of a rebalance.
        self._rebalance_ms = int(max_poll_interval_seconds * 1000)
        self._heartbeat_seconds = heartbeat_seconds
        self._auto_commit_seconds = auto_commit_seconds
        self._auto_offset_reset = auto_offset_reset
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._coordinator: int | None = None
        self._join_due = True
        self._owned: set[TopicPartition] = set()
        self._heart: asyncio.Task[None] | None = None
        #: Time when the last poll ended; None while one is running.
        self._polled_at: float | None = cluster.clock.monotonic()
        #: Partitions by topic that this member shared out as leader (0: no such topic), and the time when it last
        #: checked them.
        self._shared: dict[str, int] = {}
        self._looked_at = 0.0
        self._fatal: KafkaError | None = None
        #: Attempts to join that failed in a row.
        self._failures = 0
        self._committed_at = cluster.clock.monotonic()
        self._purpose = f"group-{id(self):x}"
        self._consumer = Consumer(cluster, auto_offset_reset=auto_offset_reset, **fetching)

    async def __aenter__(self) -> GroupConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def group_metadata(self) -> GroupMetadata:
        """Returns the membership in which records were read, for offsets that a transaction commits. It is kept after
        the group has lost this member, until the next poll joins again: without a member id the coordinator would
        accept the offsets, even if another member had the partitions by then."""
        return self._membership

    def position(self, topic_partition: TopicPartition) -> int:
        return self._consumer.position(topic_partition)

    def seek(self, topic_partition: TopicPartition, offset: int | Position) -> None:
        """Sets the next record that is read of one of this member's partitions, and so the offset that a commit
        without offsets commits."""
        self._consumer.seek(topic_partition, offset)

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the topics; the next poll joins again if they are different."""
        if frozenset(topics) != self.topics:
            self.topics = frozenset(topics)
            self._join_due = True

    # --- reading -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout_seconds: float, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Returns records of this member's partitions; empty if none arrived in time. Joins first if that is due,
        which may take as long as the group's rebalance."""
        self._polled_at = None
        try:
            left = await self._be_member(timeout_seconds)
            return {} if left is None else await self._consumer.poll(left, max_records)
        finally:
            self._polled_at = self.cluster.clock.monotonic()

    async def poll_raw(self, timeout_seconds: float) -> list[Fetched]:
        """Returns everything that has arrived, undecoded; otherwise like `poll`."""
        self._polled_at = None
        try:
            left = await self._be_member(timeout_seconds)
            return [] if left is None else await self._consumer.poll_raw(left)
        finally:
            self._polled_at = self.cluster.clock.monotonic()

    async def _be_member(self, timeout_seconds: float) -> float | None:
        """Joins and commits if that is due; returns the time that is left for reading, None if there is nothing to
        read."""
        if self._fatal is not None:
            raise self._fatal
        deadline = self.cluster.clock.monotonic() + timeout_seconds
        while self._join_due:
            await self._rejoin()
            if self.cluster.clock.monotonic() >= deadline:
                return None
        if (
            self._auto_commit_seconds is not None
            and self.cluster.clock.monotonic() - self._committed_at >= self._auto_commit_seconds
        ):
            await self._commit_quietly()
        left = max(0.0, deadline - self.cluster.clock.monotonic())
        if not self._owned:
            # This member has no partitions: it may get some in a rebalance.
            await asyncio.sleep(min(left, self._heartbeat_seconds / 2))
            return None
        return left

    # --- the coordinator ---------------------------------------------------------------------------------------------

    async def _ask(
        self,
        request: Message,
        response: type[Answer],
        *,
        at_most: int | None = None,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """Asks the coordinator on the group's own connection, because a JoinGroup waits for other members."""
        channel = await self._channel()
        try:
            return await channel.request(
                request,
                response,
                timeout_seconds=timeout_seconds or self.cluster.request_timeout_seconds,
                at_most=at_most,
            )
        except (NetworkException, RequestTimedOutError):
            self._coordinator = None
            raise

    async def _channel(self) -> Channel:
        if self._coordinator is None:
            self._coordinator = await find_coordinator(self.cluster, self.group_id)
        try:
            return await self.cluster.channel_of(self._coordinator, self._purpose)
        except (NetworkException, RequestTimedOutError):
            self._coordinator = None
            raise

    def _heard(self, code: int) -> KafkaError | None:
        """Applies an answer's error code to the member and returns the error; None if there is no error."""
        if code == ErrorCode.NONE:
            return None
        if code in _COORDINATOR_MOVED:
            self._coordinator = None
        if code in _JOIN_AGAIN:
            self._join_due = True
        if code in _FORGET_ID:
            self.generation = -1
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        error = KafkaError.of(code, f"Group {self.group_id}: the coordinator answers {error_name(code)}.")
        if code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED):
            self._fatal = error
        return error

    # --- joining -----------------------------------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Makes one attempt to join the group's current generation; after errors that pass, the caller tries again."""
        try:
            await self._stop_heart()
            # A member that the group has removed has lost its partitions, with any protocol.
            if not self._cooperative or self.generation < 0:
                await self._give_up(self._owned)
            joined = await self._join()
            if joined is None:
                return
            await self._sync(joined)
        except KafkaError as error:
            # Also if the member was accepted and only the offsets could not be read: it joins again instead of having
            # no partitions.
            self._join_due = True
            if not error.retriable and error.code not in _JOIN_AGAIN:
                raise
            self._failures += 1
            await asyncio.sleep(self.cluster.retry_pause_seconds(self._failures))

    @property
    def _cooperative(self) -> bool:
        return all(name in COOPERATIVE for name in self._assignors)

    async def _join(self) -> JoinGroupResponse | None:
        metadata = encode_subscription(sorted(self.topics), sorted(self._owned), self.generation)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self._assignors],
        )
        answer = await self._ask(request, JoinGroupResponse, timeout_seconds=self._rebalance_ms / 1000 + 5)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return None
        error = self._heard(answer.error_code)
        if error is not None:
            raise error
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    async def _sync(self, joined: JoinGroupResponse) -> None:
        shares: dict[str, list[TopicPartition]] = {}
        self._shared = {}
        if joined.leader == joined.member_id:
            members = _members(joined)
            self._shared = await self._partition_counts(
                sorted({topic for member in members for topic in member.topics}), {}
            )
            self._looked_at = self.cluster.clock.monotonic()
            # A static leader that comes back finds the assignment unchanged (KIP-814): it shares nothing out, and
            # watches the topics as before.
            if not joined.skip_assignment:
                shares = self._share_out(joined.protocol_name or "", members)
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(keys))
                for member, keys in shares.items()
            ],
        )
        answer = await self._ask(request, SyncGroupResponse, timeout_seconds=self._rebalance_ms / 1000 + 5)
        error = self._heard(answer.error_code)
        if error is not None:
            raise error
        self._join_due = False
        self._failures = 0
        self._membership = GroupMetadata(self.group_id, self.generation, self.member_id, self._instance_id)
        self._heart = asyncio.get_running_loop().create_task(self._beat())
        await self._take(set(decode_assignment(bytes(answer.assignment))), joined.protocol_name or "")

    def _share_out(self, protocol: str, members: list[MemberView]) -> dict[str, list[TopicPartition]]:
        return ASSIGNORS[protocol](members, {topic: count for topic, count in self._shared.items() if count})

    async def _partition_counts(self, topics: Iterable[str], before: Mapping[str, int]) -> dict[str, int]:
        """Returns the partitions by topic as the brokers report them now; 0 for a topic that does not exist, the count
        in `before` if they do not report it."""
        errors = await self.cluster.refresh(topics)
        counts = {}
        for topic in topics:
            info = self.cluster.known(topic)
            gone = isinstance(errors.get(topic), UnknownTopicOrPartitionError)
            counts[topic] = len(info.partitions) if info is not None else 0 if gone else before.get(topic, 0)
        return counts

    async def _look_at_topics(self) -> None:
        """Has the group's leader join again if the numbers of partitions differ from those that it shared out."""
        now = self.cluster.clock.monotonic()
        if not self._shared or now - self._looked_at < self.cluster.metadata_max_age_seconds:
            return
        self._looked_at = now
        if await self._partition_counts(list(self._shared), self._shared) != self._shared:
            self._join_due = True

    async def _take(self, assigned: set[TopicPartition], protocol: str) -> None:
        lost, new = self._owned - assigned, assigned - self._owned
        if lost:
            await self._give_up(lost)
            # With a cooperative protocol the next rebalance gives these partitions to other members.
            self._join_due = self._join_due or protocol in COOPERATIVE
        positions = {key: self._consumer.position_with_epoch(key) for key in assigned & self._consumer.assignment()}
        if new:
            positions.update(await self._starting_offsets(new))
        await self._consumer.assign(positions)
        self._owned = assigned
        if new:
            self._on_assigned(sorted(new))

    async def _starting_offsets(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        committed = await self.committed_positions(keys)
        missing = [key for key in keys if key not in committed]
        if missing and self._auto_offset_reset == "none":
            raise InvalidRequestError(
                f"Group {self.group_id} has no offset for {missing[0]}, and auto.offset.reset is none."
            )
        if missing:
            where = LATEST if self._auto_offset_reset == "latest" else EARLIEST
            found = await list_offsets(self.cluster, dict.fromkeys(missing, where))
            committed.update({key: Position(item.offset, item.leader_epoch) for key, item in found.items()})
        return committed

    async def _give_up(self, keys: Collection[TopicPartition]) -> None:
        """Commits the positions of these partitions and gives the partitions up."""
        if not keys:
            return
        if self._auto_commit_seconds is not None and self.generation >= 0:
            await self._commit_quietly()
        gone = set(keys)
        self._owned -= gone
        await self._consumer.assign(
            {key: self._consumer.position_with_epoch(key) for key in self._consumer.assignment() - gone}
        )
        self._on_revoked(sorted(gone))

    # --- heartbeats --------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        wait = self._heartbeat_seconds
        while not self._join_due:
            polled_at = self._polled_at
            unpolled = self.cluster.clock.monotonic() - polled_at if polled_at is not None else 0.0
            await asyncio.sleep(min(wait, max(0.0, self._rebalance_ms / 1000 - unpolled) + 0.001))
            wait = self._heartbeat_seconds
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
                group_instance_id=self._instance_id,
            )
            try:
                answer = await self._ask(request, HeartbeatResponse)
                self._heard(answer.error_code)
                await self._look_at_topics()
            except KafkaError:
                # A broker that restarts still knows its members: only the coordinator decides that a member has to
                # join again.
                wait = self.cluster.retry_backoff_seconds

    async def _leave_unpolled(self) -> None:
        """Leaves without a commit: it is not known whether the records that were read have been processed. A static
        member's session ends by itself."""
        logger.warning(
            "Member %s of group %s was not polled for %.1f s and leaves: poll more often, take fewer records at a "
            "time, or raise max.poll.interval.ms.",
            self.member_id, self.group_id, self._rebalance_ms / 1000,
        )  # fmt: skip
        member_id, self.generation, self._join_due = self.member_id, -1, True
        if self._instance_id is None:
            self.member_id = ""
            await self._ask_to_leave(member_id)

    async def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait({self._heart})
            self._heart = None

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def committed(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the committed offsets of the group; partitions without an offset are left out."""
        return {key: position.offset for key, position in (await self.committed_positions(keys)).items()}

    async def committed_positions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Returns the committed offsets with their leader epochs. A consumer of committed records waits until no
        transaction that is being ended holds offsets of the partitions (KIP-447), if the coordinator supports that
        (from 2.5 on)."""
        return await persistently(
            self.cluster, (ErrorCode.UNSTABLE_OFFSET_COMMIT,), lambda: self._committed_positions(keys)
        )

    async def _committed_positions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        request = OffsetFetchRequest(
            group_id=self.group_id,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in numbers_by_topic(keys).items()
            ],
        )
        if self._consumer.isolation_level:
            request.require_stable = (await self._channel()).version_for(
                OffsetFetchRequest, _ONE_GROUP_PER_REQUEST
            ) >= _FIRST_WITH_STABLE
        answer = await self._ask(request, OffsetFetchResponse, at_most=_ONE_GROUP_PER_REQUEST)
        error = self._heard(answer.error_code)
        if error is not None:
            raise error
        found = {}
        for topic in answer.topics:
            for item in topic.partitions:
                if item.error_code != ErrorCode.NONE:
                    raise KafkaError.of(
                        item.error_code,
                        f"Group {self.group_id}: {topic.name}-{item.partition_index} has no readable offset.",
                    )
                if item.committed_offset >= 0:
                    found[TopicPartition(topic.name, item.partition_index)] = Position(
                        item.committed_offset, item.committed_leader_epoch
                    )
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int | Position] | None = None) -> None:
        """Commits these offsets, or the positions of all partitions of this member. Raises the coordinator's errors,
        and UnknownMemberIdError if the group has gone on without this member: others commit the offsets of its
        partitions. An offset that equals this member's position is committed with the leader epoch of the last record
        that was read."""
        held = {key: self._consumer.position_with_epoch(key) for key in self._owned & self._consumer.assignment()}
        wanted = (
            held if offsets is None else {key: _with_epoch(offset, held.get(key)) for key, offset in offsets.items()}
        )
        self._committed_at = self.cluster.clock.monotonic()
        if not wanted:
            return
        if self.generation < 0:
            raise UnknownMemberIdError(
                f"Group {self.group_id} has no member here at present: poll first; what was read since the last "
                f"commit is read again."
            )
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for key, position in sorted(wanted.items()):
            topic = topics.setdefault(key.topic, OffsetCommitRequestTopic(name=key.topic))
            topic.partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=key.partition,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata="",
                )
            )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            topics=list(topics.values()),
        )
        answer = await self._ask(request, OffsetCommitResponse, at_most=_NAMES_NOT_IDS)
        for topic_answer in answer.topics:
            for item in topic_answer.partitions:
                error = self._heard(item.error_code)
                if error is not None:
                    raise error

    async def _commit_quietly(self) -> None:
        """Commits and ignores errors: after a failure the next commit or the next owner goes on from an older
        offset."""
        with suppress(KafkaError):
            await self.commit()

    async def close(self, *, leave: bool = True) -> None:
        """Commits, leaves the group (a static member stays in it, to come back), and closes the connections and
        fetches that this member opened."""
        await self._stop_heart()
        if self._auto_commit_seconds is not None and self.generation >= 0 and self._owned:
            await self._commit_quietly()
        if leave and self.member_id and self._instance_id is None:
            await self._ask_to_leave(self.member_id)
        await self._consumer.close()
        self.cluster.close_purpose(self._purpose)
        self._owned = set()

    async def _ask_to_leave(self, member_id: str) -> None:
        """Asks the coordinator to remove the member and ignores errors: the session would end by itself."""
        if self._coordinator is None:
            return
        request = LeaveGroupRequest(
            group_id=self.group_id, member_id=member_id, members=[LeaveGroupRequestMember(member_id=member_id)]
        )
        with suppress(KafkaError):
            channel = await self.cluster.channel_of(self._coordinator, self._purpose)
            if channel.version_for(LeaveGroupRequest) < 3:
                request.members = []
            else:
                request.member_id = ""
            await self._ask(request, LeaveGroupResponse)


def _with_epoch(offset: int | Position, held: Position | None) -> Position:
    if isinstance(offset, Position):
        return offset
    return held if held is not None and held.offset == offset else Position(offset)


def _members(joined: JoinGroupResponse) -> list[MemberView]:
    """Returns the members as their leader sees them."""
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
