"""CreateTopics (key 19), versions 0-7. Each line is what a version adds:

  1      validate_only, error messages
  4      partitions and replication factor may be -1, which means the broker's defaults
  5      answers partitions, replication factor and settings
  6      a client above its controller mutation quota is refused (KIP-599)
  7      answers topic ids

When a topic is answered as created, every broker accepts writes and reads of the topic. A topic that is named twice in
a request is answered INVALID_REQUEST. If the request's timeout is 0 or less, the answer is REQUEST_TIMED_OUT, and no
topic is created; up to version 1 the topic is created in spite of this answer. If a topic has several mistakes,
versions 0 and 1 answer the mistake that Kafka in ZooKeeper mode finds first."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, InvalidRequestError
from jesenska.base.identifiers import NO_UUID
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.mutations import Mutations
from jesenska.broker.slices import Slices
from jesenska.controller.plans.topics import TopicCreation, TopicPlan, duplicates
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)

#: The first version in which no topic is created if the timeout is 0. In older versions the topic is created, and the
#: timeout only limits how long the client waits for the answer.
_FIRST_WITH_DEADLINE = 2
_FIRST_WITH_DETAILS = 5
_FIRST_STRICT = 6


@handles(CreateTopicsRequest, TopicFamily)
def handle(uses: TopicFamily, request: CreateTopicsRequest, context: Context) -> Outcome:
    return _create(uses, request, context)


async def _create(uses: TopicFamily, request: CreateTopicsRequest, context: Context) -> CreateTopicsResponse:
    twice = duplicates(item.name for item in request.topics)
    if (
        request.timeout_ms <= 0
        and context.version >= _FIRST_WITH_DEADLINE
        and any(item.name not in twice for item in request.topics)
    ):
        return CreateTopicsResponse(
            topics=[
                CreateTopicsResponseTopic(
                    name=item.name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None, configs=[]
                )
                for item in request.topics
            ]
        )
    response = CreateTopicsResponse()
    answered: set[str] = set()
    between = Slices(uses.clock)
    mutations = Mutations(context, uses.clock.monotonic(), is_strict=context.version >= _FIRST_STRICT)
    for item in request.topics:
        await between()
        if item.name in answered:
            continue
        answered.add(item.name)
        answer = CreateTopicsResponseTopic(name=item.name, error_message=None, configs=[])
        response.topics.append(answer)
        try:
            if item.name in twice:
                raise InvalidRequestError("Duplicate topic name.")
            mutations.check()
            plan, topic = await uses.controller.create(
                _wanted(item, context.version), validate_only=request.validate_only
            )
        except Exception as error:
            refused = as_kafka_error(error)
            answer.error_code, answer.error_message = refused.code, refused.message or None
            continue
        if not request.validate_only:
            replicas = plan.topic.node.replicas
            mutations.count(len(replicas))
            log_change(
                context,
                f"topic {item.name} was created with {len(replicas)} partitions of "
                f"{len(replicas[0]) if replicas else 0} replicas",
            )
        if request.timeout_ms <= 0 and not request.validate_only:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT  # the topic is created, but the client does not wait
        if context.version >= _FIRST_WITH_DETAILS:
            _describe(plan, answer)
            answer.topic_id = NO_UUID if topic is None else topic.topic_id
    return response


def _wanted(item: CreateTopicsRequestTopic, version: int) -> TopicCreation:
    numbers = [assignment.partition_index for assignment in item.assignments]
    return TopicCreation(
        item.name,
        item.num_partitions,
        item.replication_factor,
        {assignment.partition_index: assignment.broker_ids for assignment in item.assignments},
        {config.name: config.value for config in item.configs},
        assigned_twice=len(set(numbers)) != len(numbers),
        checked_as_in_zookeeper_mode=version < _FIRST_WITH_DEADLINE,
    )


def _describe(plan: TopicPlan, answer: CreateTopicsResponseTopic) -> None:
    replicas = plan.topic.node.replicas
    answer.num_partitions = len(replicas)
    answer.replication_factor = len(replicas[0]) if replicas else -1
    answer.topic_config_error_code = ErrorCode.NONE
    answer.configs = [
        CreateTopicsResponseConfig(
            name=item.name,
            value=item.value,
            read_only=item.read_only,
            config_source=item.source,
            is_sensitive=item.sensitive,
        )
        for item in plan.config.describe()
    ]
