"""Administers topics, partitions, records and leaders. A request uses the highest version that both the client and the
broker support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jesenska.base.errors import KafkaError, UnsupportedVersionError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.administration import Administration, error_of, require
from jesenska.client.cluster import TopicInfo
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic, DeleteTopicsResponse
from jesenska.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from jesenska.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from jesenska.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic, ElectLeadersResponse
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

#: Kinds of leader elections. PREFERRED: the first replica becomes leader. UNCLEAN: any live replica becomes leader,
#: even if it lacks committed records.
PREFERRED, UNCLEAN = 0, 1
#: The setting of jesenska that makes a new topic a branch, which begins as a copy of another topic.
BRANCH_OF = "jesenska.branch.of"
_NO_PARTITIONS_BELOW = 6
_NO_UNCLEAN_BELOW = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. -1 means the broker's default for the number of partitions or the replication factor.
    `assignment` lists the broker ids of each partition."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()


class TopicAdministration(Administration):
    """Methods for topics, partitions, records and leaders, of the class `Admin`."""

    async def topics(self) -> dict[str, TopicInfo]:
        return await self.cluster.topics()

    async def describe_cluster(self) -> DescribeClusterResponse:
        return await self.cluster.ask_any(DescribeClusterRequest(), DescribeClusterResponse)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Creates topics. Returns for each topic None, or the error if it was not created. With `validate_only` the
        topics are only checked."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequestTopic(
                    name=topic.name,
                    num_partitions=-1 if topic.assignment else topic.partitions,
                    replication_factor=-1 if topic.assignment else topic.replication_factor,
                    assignments=[
                        CreateTopicsRequestAssignment(partition_index=index, broker_ids=list(brokers))
                        for index, brokers in enumerate(topic.assignment)
                    ],
                    configs=[
                        CreateTopicsRequestConfig(name=name, value=value) for name, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=self.timeout_ms,
            validate_only=validate_only,
        )
        answer = await self.cluster.ask_controller(request, CreateTopicsResponse)
        return {item.name: error_of(item.error_code, item.error_message) for item in answer.topics}

    async def branch_topic(
        self, source: str, target: str, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        """Creates a branch: a topic that begins with the partitions, settings and records of the topic `source`. Both
        topics share the files of the segments that `source` has closed. `configs` override the source's settings.
        Returns when the branch is complete. Raises the broker's error if it refuses: UnknownTopicOrPartitionError if
        the source does not exist, TopicAlreadyExistsError, LeaderNotAvailableError if a partition has no leader at
        present."""
        settings = {**(configs or {}), BRANCH_OF: source}
        refused = (await self.create_topics([NewTopic(target, configs=settings)], validate_only=validate_only))[target]
        if refused is not None:
            raise refused

    async def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        wanted = list(names)
        request = DeleteTopicsRequest(timeout_ms=self.timeout_ms)
        channel_version = (await self.cluster.any_channel()).version_for(DeleteTopicsRequest)
        if channel_version >= _NO_PARTITIONS_BELOW:
            request.topics = [DeleteTopicsRequestTopic(name=name) for name in wanted]
        else:
            request.topic_names = wanted
        answer = await self.cluster.ask_controller(request, DeleteTopicsResponse)
        for name in wanted:
            self.cluster.forget_topic(name)
        return {item.name or "": error_of(item.error_code, item.error_message) for item in answer.responses}

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Raises the number of partitions of topics to these counts. Returns for each topic None or an error."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequestTopic(
                    name=name,
                    count=count,
                    assignments=[
                        CreatePartitionsRequestAssignment(broker_ids=list(brokers)) for brokers in assignments[name]
                    ]
                    if assignments and name in assignments
                    else None,
                )
                for name, count in counts.items()
            ],
            timeout_ms=self.timeout_ms,
            validate_only=validate_only,
        )
        answer = await self.cluster.ask_controller(request, CreatePartitionsResponse)
        for name in counts:
            self.cluster.forget_topic(name)
        return {item.name: error_of(item.error_code, item.error_message) for item in answer.results}

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Deletes the records before these offsets (-1: all committed records). Returns the new log start offsets."""
        by_leader: dict[int, dict[str, DeleteRecordsRequestTopic]] = {}
        for key, offset in offsets.items():
            leader = (await self.cluster.leader_of(key)).leader
            topic = by_leader.setdefault(leader, {}).setdefault(key.topic, DeleteRecordsRequestTopic(name=key.topic))
            topic.partitions.append(DeleteRecordsRequestPartition(partition_index=key.partition, offset=offset))
        results: dict[TopicPartition, int | KafkaError] = {}
        for leader, topics in by_leader.items():
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self.timeout_ms)
            answer = await self.cluster.ask_broker(leader, request, DeleteRecordsResponse)
            for answered in answer.topics:
                for item in answered.partitions:
                    key = TopicPartition(answered.name, item.partition_index)
                    results[key] = error_of(item.error_code, None) or item.low_watermark
        return results

    async def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders. The result of a partition is None if a leader was elected, ElectionNotNeededError if the
        partition needs no election. If `partitions` is None, the broker tries all partitions, and its response may
        leave out partitions that need no election. Raises UnsupportedVersionError for unclean elections from brokers
        before 2.4."""
        by_topic: dict[str, ElectLeadersRequestTopic] | None = None
        if partitions is not None:
            by_topic = {}
            for key in partitions:
                by_topic.setdefault(key.topic, ElectLeadersRequestTopic(topic=key.topic)).partitions.append(
                    key.partition
                )
        if (
            election_type != PREFERRED
            and (await self.cluster.any_channel()).version_for(ElectLeadersRequest) < _NO_UNCLEAN_BELOW
        ):
            raise UnsupportedVersionError(
                "The brokers are of a release before 2.4, which elects preferred leaders only."
            )
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=None if by_topic is None else list(by_topic.values()),
            timeout_ms=self.timeout_ms,
        )
        answer = await self.cluster.ask_controller(request, ElectLeadersResponse)
        require(answer.error_code, None)
        return {
            TopicPartition(topic.topic, item.partition_id): error_of(item.error_code, item.error_message)
            for topic in answer.replica_election_results
            for item in topic.partition_result
        }
