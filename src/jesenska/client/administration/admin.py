"""Administration: topics, partitions, settings, records, elections, log directories. Every call returns results by
name, with the error of each one that failed. Requests that a broker may not support use a version that both sides
speak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jesenska.base.errors import (
    ClusterAuthorizationFailedError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
    error_name,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster, TopicInfo
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
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from jesenska.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from jesenska.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from jesenska.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic, ElectLeadersResponse
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from jesenska.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
#: Kinds of elections: the first replica leads, or any replica that is up, with the records that it has.
PREFERRED, UNCLEAN = 0, 1
#: The setting that makes a new topic a branch of another one (jesenska's own).
BRANCH_OF = "jesenska.branch.of"
_NO_PARTITIONS_BELOW = 6
_NO_UNCLEAN_BELOW = 1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 leaves the number of partitions or the replication factor to the broker's defaults.
    `assignment`: broker ids by partition."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting, with the source of its value (`source`, Kafka's numbers) and the values that would apply without it
    (`synonyms`)."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: int
    documentation: str | None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    value: str | None
    operation: int = SET


@dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    """A replica in a log directory. `offset_lag` is the number of offsets from the end of a follower's log to the high
    watermark, or from the end of a future replica (on the move between directories) to the end of the current one; -1
    if it is not known."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A broker's log directory; if it has an error, it cannot be read. The sizes of its volume are -1 if the broker
    does not report them. A directory that `is_cordoned` gets no new replicas."""

    path: str
    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaOnDisk]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool = False


class Admin:
    """Administration over one cluster."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 30_000) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms

    async def topics(self) -> dict[str, TopicInfo]:
        return await self.cluster.topics()

    async def describe_cluster(self) -> DescribeClusterResponse:
        return await self.cluster.ask_any(DescribeClusterRequest(), DescribeClusterResponse)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Creates topics. The result of a topic is None if it was created (or would be)."""
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
        return {item.name: _error(item.error_code, item.error_message) for item in answer.topics}

    async def branch_topic(
        self, source: str, target: str, configs: Mapping[str, str] | None = None, *, validate_only: bool = False
    ) -> None:
        """Creates a topic that begins with the partitions, settings and records of another one, and shares its closed
        segments; `configs` override the source's settings. Returns when the whole branch exists. Raises the broker's
        error if it refuses: UnknownTopicOrPartitionError if there is no source, TopicAlreadyExistsError,
        LeaderNotAvailableError if a partition has no leader at the moment."""
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
        return {item.name or "": _error(item.error_code, item.error_message) for item in answer.responses}

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
    ) -> dict[str, KafkaError | None]:
        """Raises the number of partitions of topics to these counts."""
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
        return {item.name: _error(item.error_code, item.error_message) for item in answer.results}

    async def describe_configs(
        self, kind: int, name: str, keys: Sequence[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Returns the settings of a topic (TOPIC) or a broker (BROKER; "" for the default of all brokers)."""
        resource = DescribeConfigsRequestResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=documentation
        )
        try:
            answer = await self._describe_configs(kind, name, request)
        except UnsupportedVersionError:  # brokers before 1.1 have no synonyms
            answer = await self._describe_configs(kind, name, DescribeConfigsRequest(resources=[resource]))
        result = answer.results[0]
        error = _error(result.error_code, result.error_message)
        if error is not None:
            raise error
        return [
            ConfigEntry(
                item.name,
                item.value,
                item.read_only,
                item.config_source,
                item.is_sensitive,
                tuple(ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in item.synonyms),
                item.config_type,
                item.documentation,
            )
            for item in result.configs
        ]

    async def _describe_configs(self, kind: int, name: str, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        if kind in (BROKER, BROKER_LOGGER) and name:
            return await self.cluster.ask_broker(int(name), request, DescribeConfigsResponse)
        return await self.cluster.ask_any(request, DescribeConfigsResponse)

    async def alter_configs(
        self, kind: int, name: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Changes single settings; raises the broker's error."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequestResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterConfigsRequestConfig(
                            name=item.name, config_operation=item.operation, value=item.value
                        )
                        for item in changes
                    ],
                )
            ],
            validate_only=validate_only,
        )
        if kind in (BROKER, BROKER_LOGGER) and name:
            answer = await self.cluster.ask_broker(int(name), request, IncrementalAlterConfigsResponse)
        else:
            answer = await self.cluster.ask_controller(request, IncrementalAlterConfigsResponse)
        error = _error(answer.responses[0].error_code, answer.responses[0].error_message)
        if error is not None:
            raise error

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | KafkaError]:
        """Deletes the records before these offsets (-1: all committed records); returns the new log start offsets."""
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
                    results[key] = _error(item.error_code, None) or item.low_watermark
        return results

    async def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elects leaders. The result of a partition is None if a leader was elected, ElectionNotNeededError if the
        right replica leads already. Without partitions the broker tries all, and may report only those in which
        something happened. UnsupportedVersionError for unclean elections from brokers before 2.4."""
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
        whole = _error(answer.error_code, None)
        if whole is not None:
            raise whole
        return {
            TopicPartition(topic.topic, item.partition_id): _error(item.error_code, item.error_message)
            for topic in answer.replica_election_results
            for item in topic.partition_result
        }

    async def describe_log_dirs(self, broker_id: int) -> list[LogDirectory]:
        """Returns the log directories of one broker with the replicas in them; ClusterAuthorizationFailedError if the
        broker does not allow it."""
        answer = await self.cluster.ask_broker(broker_id, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        whole = _error(answer.error_code, None)
        if whole is None and not answer.results:
            # Releases before 3.2 have no error for the whole answer: a client without the right gets an empty list.
            whole = ClusterAuthorizationFailedError(
                f"Broker {broker_id} tells nothing of its log directories: ask as somebody who may describe the "
                f"cluster."
            )
        if whole is not None:
            raise whole
        return [
            LogDirectory(
                item.log_dir,
                _error(item.error_code, None),
                {
                    TopicPartition(topic.name, replica.partition_index): ReplicaOnDisk(
                        replica.partition_size, replica.offset_lag, replica.is_future_key
                    )
                    for topic in item.topics
                    for replica in topic.partitions
                },
                item.total_bytes,
                item.usable_bytes,
                item.is_cordoned,
            )
            for item in answer.results
        ]

    async def alter_replica_log_dirs(
        self, broker_id: int, wanted: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Has one broker move replicas to other log directories of its own, each named by its absolute path. The
        result is None if a move has begun, or the replica is there already: `describe_log_dirs` shows a replica that
        is still being moved (`is_future`). ReplicaNotAvailableError if the broker has no such replica; if it gets one
        later, that is created in this directory. LogDirNotFoundError if the broker has no such directory,
        KafkaStorageError if the directory is offline."""
        by_path: dict[str, dict[str, AlterReplicaLogDirsRequestTopic]] = {}
        for key, path in wanted.items():
            topics = by_path.setdefault(path, {})
            topics.setdefault(key.topic, AlterReplicaLogDirsRequestTopic(name=key.topic)).partitions.append(
                key.partition
            )
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequestDir(path=path, topics=list(topics.values()))
                for path, topics in by_path.items()
            ]
        )
        answer = await self.cluster.ask_broker(broker_id, request, AlterReplicaLogDirsResponse)
        return {
            TopicPartition(topic.topic_name, item.partition_index): _error(item.error_code, None)
            for topic in answer.results
            for item in topic.partitions
        }


def _error(code: int, message: str | None) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    return KafkaError.of(code, message or f"The broker answers {error_name(code)}.")
