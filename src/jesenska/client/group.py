"""A consumer in a group. It shares the partitions with the other members (client.membership), reads its own
partitions, and commits offsets.

The caller must call `poll` regularly. `poll` joins the group if necessary, and then returns records of this member's
partitions. Heartbeats run as a separate task, so a slow consumer does not count as failed. But a member that does not
poll for `max_poll_interval_seconds` leaves the group. Then other members read again from its last commit, its own
commits are refused, and its next `poll` joins again.

With an eager protocol (range, roundrobin, sticky) a member commits and gives up all partitions before it joins again.
With cooperative-sticky it keeps its partitions while it joins, gives up the partitions that the new assignment does
not contain, and joins once more so that other members get them.

The new group protocol (KIP-848) is not implemented."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Unpack

from jesenska.base.errors import ErrorCode, InvalidRequestError, KafkaError, UnknownMemberIdError
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer, Fetched, FetchOptions
from jesenska.client.membership.membership import JOIN_AGAIN, Assignment, Membership
from jesenska.client.membership.options import MembershipOptions
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.positions import Position
from jesenska.client.retries import persistently
from jesenska.client.transactions import GroupMetadata
from jesenska.records.record import Record
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

_ONE_GROUP_PER_REQUEST = 7
#: The first version of OffsetFetch that can wait for the offsets of open transactions.
_FIRST_WITH_STABLE = 7
_NAMES_NOT_IDS = 9

_DEFAULTS = MembershipOptions()

RebalanceCallback = Callable[[Sequence[TopicPartition]], None]


class GroupConsumer:
    """Reads topics as a member of `group_id`. Offsets are committed by `commit`. With `auto_commit_seconds` they are
    also committed at that interval and before a rebalance."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topics: Collection[str],
        membership: MembershipOptions = _DEFAULTS,
        *,
        auto_commit_seconds: float | None = 5.0,
        auto_offset_reset: str = "latest",
        on_assigned: RebalanceCallback = lambda _: None,
        on_revoked: RebalanceCallback = lambda _: None,
        **fetching: Unpack[FetchOptions],
    ) -> None:
        if not group_id:
            raise InvalidRequestError("A group needs a name: give --group.")
        self.cluster = cluster
        self.group_id = group_id
        self._membership = Membership(cluster, group_id, topics, membership)
        self._auto_commit_seconds = auto_commit_seconds
        self._auto_offset_reset = auto_offset_reset
        self._on_assigned, self._on_revoked = on_assigned, on_revoked
        self._owned: set[TopicPartition] = set()
        #: The number of attempts to join that have failed in a row.
        self._failures = 0
        self._committed_at = cluster.clock.monotonic()
        self._consumer = Consumer(cluster, auto_offset_reset=auto_offset_reset, **fetching)

    async def __aenter__(self) -> GroupConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def topics(self) -> frozenset[str]:
        return self._membership.topics

    @property
    def member_id(self) -> str:
        """The member id that the coordinator has assigned; empty if there is none."""
        return self._membership.member_id

    @property
    def generation(self) -> int:
        """The generation of the group in which this consumer is a member; -1 if it is not a member."""
        return self._membership.generation

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def group_metadata(self) -> GroupMetadata:
        """Returns the membership under which the last records were read. A transaction that commits offsets needs it.
        The value is kept after the group has removed this member, until the next poll joins again. Otherwise the
        commit would have no member id, and the coordinator would accept it even if another member has the
        partitions."""
        return self._membership.metadata

    def position(self, topic_partition: TopicPartition) -> int:
        return self._consumer.position(topic_partition)

    def seek(self, topic_partition: TopicPartition, offset: int | Position) -> None:
        """Moves the position of one of this member's partitions: the record at this offset is read next. A commit
        without offsets then commits this offset."""
        self._consumer.seek(topic_partition, offset)

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscribed topics. If they are different, the next poll joins the group again."""
        self._membership.subscribe(topics)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout_seconds: float, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Returns records of this member's partitions. The result is empty if none arrived in time. Joins the group
        first if necessary, which may take as long as a rebalance of the group."""
        self._membership.poll_begins()
        try:
            left = await self._be_member(timeout_seconds)
            return {} if left is None else await self._consumer.poll(left, max_records)
        finally:
            self._membership.poll_ends()

    async def poll_raw(self, timeout_seconds: float) -> list[Fetched]:
        """Returns all batches that have arrived, undecoded. In all other respects it is like `poll`."""
        self._membership.poll_begins()
        try:
            left = await self._be_member(timeout_seconds)
            return [] if left is None else await self._consumer.poll_raw(left)
        finally:
            self._membership.poll_ends()

    async def _be_member(self, timeout_seconds: float) -> float | None:
        """Joins the group and commits offsets if that is due. Returns the time in seconds that is left for reading;
        None if there is nothing to read."""
        if self._membership.fatal is not None:
            raise self._membership.fatal
        deadline = self.cluster.clock.monotonic() + timeout_seconds
        while self._membership.is_join_due:
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
            # This member has no partitions at present. It may get some in a rebalance.
            await asyncio.sleep(min(left, self._membership.options.heartbeat_seconds / 2))
            return None
        return left

    # --- joining -----------------------------------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Makes one attempt to join the group. If it fails with an error that may pass, the next poll tries again."""
        try:
            await self._membership.stop_heartbeats()
            # A member that the group has removed has lost its partitions, with any protocol.
            if not self._membership.is_cooperative or self.generation < 0:
                await self._give_up(self._owned)
            assignment = await self._membership.join(self._owned)
            if assignment is None:
                return
            self._failures = 0
            await self._take(assignment)
        except KafkaError as error:
            # This also applies if the join succeeded and only the offsets could not be read: the member joins again,
            # since otherwise it would have no partitions.
            self._membership.is_join_due = True
            if not error.retriable and error.code not in JOIN_AGAIN:
                raise
            self._failures += 1
            await asyncio.sleep(self.cluster.retry_pause_seconds(self._failures))

    async def _take(self, assignment: Assignment) -> None:
        assigned = assignment.partitions
        lost, new = self._owned - assigned, assigned - self._owned
        if lost:
            await self._give_up(lost)
            # With a cooperative protocol the next rebalance gives these partitions to other members.
            self._membership.is_join_due = self._membership.is_join_due or assignment.is_cooperative
        positions = {key: self._consumer.position_with_epoch(key) for key in assigned & self._consumer.assignment()}
        if new:
            positions.update(await self._starting_offsets(new))
        await self._consumer.assign(positions)
        self._owned = set(assigned)
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
        """Commits the positions of these partitions, if automatic commits are on, and stops reading the partitions."""
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

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def committed(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the committed offsets of the group. Partitions without a committed offset are left out."""
        return {key: position.offset for key, position in (await self.committed_positions(keys)).items()}

    async def committed_positions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Returns the committed offsets with their leader epochs. If a transaction that is ending has offsets of these
        partitions, a read_committed consumer waits for its end (KIP-447), if the coordinator supports that (from 2.5
        on)."""
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
            request.require_stable = (await self._membership.coordinator.channel()).version_for(
                OffsetFetchRequest, _ONE_GROUP_PER_REQUEST
            ) >= _FIRST_WITH_STABLE
        answer = await self._membership.coordinator.ask(request, OffsetFetchResponse, at_most=_ONE_GROUP_PER_REQUEST)
        self._membership.require(answer.error_code)
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
        """Commits these offsets, or the positions of all partitions of this member. An offset that equals this
        member's position is committed with the leader epoch of the last record that was read. Raises the coordinator's
        errors. Raises UnknownMemberIdError if the group has removed this member, since other members have its
        partitions then."""
        held = {key: self._consumer.position_with_epoch(key) for key in self._owned & self._consumer.assignment()}
        wanted = (
            held if offsets is None else {key: _with_epoch(offset, held.get(key)) for key, offset in offsets.items()}
        )
        self._committed_at = self.cluster.clock.monotonic()
        if not wanted:
            return
        if self.generation < 0:
            raise UnknownMemberIdError(
                f"Group {self.group_id} does not have this consumer as a member at present: call poll, which "
                "joins the group again. Records that were read since the last commit are read again."
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
            group_instance_id=self._membership.options.group_instance_id,
            topics=list(topics.values()),
        )
        answer = await self._membership.coordinator.ask(request, OffsetCommitResponse, at_most=_NAMES_NOT_IDS)
        for topic_answer in answer.topics:
            for item in topic_answer.partitions:
                self._membership.require(item.error_code)

    async def _commit_quietly(self) -> None:
        """Commits the positions and ignores errors: if the commit fails, the next owner of the partitions starts from
        an older offset."""
        with suppress(KafkaError):
            await self.commit()

    async def close(self, *, leave: bool = True) -> None:
        """Commits the positions if automatic commits are on, leaves the group, and closes the connections of this
        member. A static member does not leave the group, so that it can come back."""
        await self._membership.stop_heartbeats()
        if self._auto_commit_seconds is not None and self.generation >= 0 and self._owned:
            await self._commit_quietly()
        if leave:
            await self._membership.leave()
        await self._consumer.close()
        self._membership.coordinator.close()
        self._owned = set()


def _with_epoch(offset: int | Position, held: Position | None) -> Position:
    if isinstance(offset, Position):
        return offset
    return held if held is not None and held.offset == offset else Position(offset)
