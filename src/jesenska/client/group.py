"""A consumer in a group: it shares the partitions with the other members (client.membership), reads its partitions,
and commits offsets.

The caller must call `poll` regularly: it joins the group if that is due, and then returns records of this member's
partitions. Heartbeats run as a task meanwhile, so a slow consumer does not count as dead. But a member that does not
poll for `max_poll_interval_seconds` leaves the group. Then other members read again from its last commit, its own
commits are refused, and its next `poll` joins again.

With an eager protocol (range, roundrobin, sticky) a member commits and gives up everything before it joins again; with
cooperative-sticky it keeps its partitions while it joins, gives up those that the new assignment does not name, and
joins once more so that other members get them.

Left out: the new group protocol (KIP-848); the public API comes later.
"""

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
#: First version of OffsetFetch that can wait for the offsets of open transactions.
_FIRST_WITH_STABLE = 7
_NAMES_NOT_IDS = 9

_DEFAULTS = MembershipOptions()

RebalanceCallback = Callable[[Sequence[TopicPartition]], None]


class GroupConsumer:
    """Reads topics as a member of `group_id`. Offsets are committed on `commit`, and, with `auto_commit_seconds`,
    before a rebalance and at that interval."""

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
        #: Attempts to join that failed in a row.
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
        """Returns the id that the coordinator has given this member; empty while it has none."""
        return self._membership.member_id

    @property
    def generation(self) -> int:
        """Returns the generation of the group that this member is in; -1 if it is in none."""
        return self._membership.generation

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def group_metadata(self) -> GroupMetadata:
        """Returns the membership in which the last records were read. A transaction that commits offsets needs it. It
        is kept after the group has removed this member, until the next poll joins again: a commit without a member id
        would be accepted by the coordinator, even if another member had the partitions by then."""
        return self._membership.metadata

    def position(self, topic_partition: TopicPartition) -> int:
        return self._consumer.position(topic_partition)

    def seek(self, topic_partition: TopicPartition, offset: int | Position) -> None:
        """Sets the next record that is read of one of this member's partitions. A commit without offsets then commits
        this offset."""
        self._consumer.seek(topic_partition, offset)

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the topics; the next poll joins again if they are different."""
        self._membership.subscribe(topics)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def poll(self, timeout_seconds: float, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Returns records of this member's partitions; empty if none arrived in time. Joins first if that is due,
        which may take as long as the group's rebalance."""
        self._membership.poll_begins()
        try:
            left = await self._be_member(timeout_seconds)
            return {} if left is None else await self._consumer.poll(left, max_records)
        finally:
            self._membership.poll_ends()

    async def poll_raw(self, timeout_seconds: float) -> list[Fetched]:
        """Returns everything that has arrived, undecoded; otherwise like `poll`."""
        self._membership.poll_begins()
        try:
            left = await self._be_member(timeout_seconds)
            return [] if left is None else await self._consumer.poll_raw(left)
        finally:
            self._membership.poll_ends()

    async def _be_member(self, timeout_seconds: float) -> float | None:
        """Joins and commits if that is due. Returns the time in seconds that is left for reading; None if there is
        nothing to read."""
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
            # This member has no partitions: it may get some in a rebalance.
            await asyncio.sleep(min(left, self._membership.options.heartbeat_seconds / 2))
            return None
        return left

    # --- joining -----------------------------------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Makes one attempt to join the group's current generation; after errors that pass, the caller tries again."""
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
            # This also holds if the member was accepted and only the offsets could not be read: it joins again, since
            # otherwise it would have no partitions.
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

    # --- offsets -----------------------------------------------------------------------------------------------------

    async def committed(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the committed offsets of the group; partitions without an offset are left out."""
        return {key: position.offset for key, position in (await self.committed_positions(keys)).items()}

    async def committed_positions(self, keys: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """Returns the committed offsets with their leader epochs. A read_committed consumer waits while a transaction
        that is ending holds offsets of the partitions (KIP-447), if the coordinator supports that (from 2.5 on)."""
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
        """Commits these offsets, or the positions of all partitions of this member. Raises the coordinator's errors,
        and UnknownMemberIdError if the group has removed this member, since other members have its partitions then. An
        offset that equals this member's position is committed with the leader epoch of the last record that was
        read."""
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
            group_instance_id=self._membership.options.group_instance_id,
            topics=list(topics.values()),
        )
        answer = await self._membership.coordinator.ask(request, OffsetCommitResponse, at_most=_NAMES_NOT_IDS)
        for topic_answer in answer.topics:
            for item in topic_answer.partitions:
                self._membership.require(item.error_code)

    async def _commit_quietly(self) -> None:
        """Commits and ignores errors: if the commit fails, the next owner of the partitions starts from an older
        offset."""
        with suppress(KafkaError):
            await self.commit()

    async def close(self, *, leave: bool = True) -> None:
        """Commits, leaves the group (a static member stays in it, to come back), and closes the connections and
        fetches that this member opened."""
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
