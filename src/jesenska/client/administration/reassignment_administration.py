"""Administers reassignments: moves of partitions to other replicas (KIP-455)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from jesenska.base.errors import KafkaError, UnsupportedVersionError
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.client.administration.administration import Administration, error_of, require
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from jesenska.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
    ListPartitionReassignmentsResponse,
)

_FLAG_OF_FACTOR_SINCE = 1


class OngoingReassignment(NamedTuple):
    """A reassignment that is not complete: the current replicas of the partition (broker ids), and those that are
    being added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReassignmentAdministration(Administration):
    """Methods for reassignments, of the class `Admin`."""

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begins to move partitions to the replicas in `targets` (broker ids); None cancels the move of a partition.
        Returns an error for each partition whose request was refused, and None for the others; their moves go on after
        this returns. Without `may_change_factor`, a target with another number of replicas is refused; raises
        UnsupportedVersionError if the brokers do not know this flag."""
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self.timeout_ms,
            allow_replication_factor_change=may_change_factor,
            topics=[
                AlterPartitionReassignmentsRequestTopic(
                    name=name,
                    partitions=[
                        AlterPartitionReassignmentsRequestPartition(
                            partition_index=number,
                            replicas=None if (target := targets[TopicPartition(name, number)]) is None else [*target],
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in numbers_by_topic(targets).items()
            ],
        )
        if not may_change_factor:
            version = (await self.cluster.any_channel()).version_for(AlterPartitionReassignmentsRequest)
            if version < _FLAG_OF_FACTOR_SINCE:
                raise UnsupportedVersionError("The brokers cannot refuse a change of the replication factor.")
        answer = await self.cluster.ask_controller(request, AlterPartitionReassignmentsResponse)
        require(answer.error_code, answer.error_message)
        return {
            TopicPartition(topic.name, item.partition_index): error_of(item.error_code, item.error_message)
            for topic in answer.responses
            for item in topic.partitions
        }

    async def list_reassignments(
        self, topic_partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Returns the reassignments that are not complete, of these partitions or of all partitions."""
        topics = None
        if topic_partitions is not None:
            topics = [
                ListPartitionReassignmentsRequestTopic(name=name, partition_indexes=numbers)
                for name, numbers in numbers_by_topic(topic_partitions).items()
            ]
        request = ListPartitionReassignmentsRequest(timeout_ms=self.timeout_ms, topics=topics)
        answer = await self.cluster.ask_controller(request, ListPartitionReassignmentsResponse)
        require(answer.error_code, answer.error_message)
        return {
            TopicPartition(topic.name, item.partition_index): OngoingReassignment(
                tuple(item.replicas), tuple(item.adding_replicas), tuple(item.removing_replicas)
            )
            for topic in answer.topics
            for item in topic.partitions
        }
