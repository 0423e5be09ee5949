"""DescribeConfigs (key 32), versions 0-4. Each line is what a version adds:

    0      a flag that the value is the default, where later versions have the source
    1      sources, synonyms on request
    3      types, documentation on request
    4      compact encoding

Resources: topics (2), brokers (4; the empty name means the settings for every broker), the loggers of this broker (8),
and subscriptions to clients' metrics (16, always the defaults). Sensitive values are never answered. If a resource has
an unknown type, the whole request is refused (INVALID_REQUEST), as in Apache Kafka.

Many resources are handled in slices, between which other requests are served. As in Apache Kafka, a resource that is
named again is answered again. When the repeated answers contain DESCRIBED_AGAIN_MAX settings in total, further
repeated resources are answered INVALID_REQUEST. Equal answers share their settings in memory."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, InvalidRequestError, InvalidTopicException, UnknownTopicOrPartitionError
from jesenska.base.limits import DESCRIBED_AGAIN_MAX
from jesenska.base.topic_names import topic_name_problem
from jesenska.broker.controlling.controller_client import BROKER_RESOURCE, TOPIC_RESOURCE, as_kafka_error
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import ClusterFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.settings.client_metrics_settings import CLIENT_METRICS_RESOURCE, describe_client_metrics
from jesenska.broker.settings.logger_settings import BROKER_LOGGER_RESOURCE, describe_loggers
from jesenska.broker.slices import Slices
from jesenska.config.layers import Described, Source
from jesenska.controller.plans.config_changes import require_broker
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseSynonym,
)

_GROUP_RESOURCE = 32
_KINDS = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, _GROUP_RESOURCE)

_NAMED_TOO_OFTEN = "The request names the same resources too often: name each once."


@handles(DescribeConfigsRequest, ClusterFamily)
def handle(uses: ClusterFamily, request: DescribeConfigsRequest, context: Context) -> Outcome:
    return _describe(uses, request, context)


async def _describe(uses: ClusterFamily, request: DescribeConfigsRequest, context: Context) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    unknown = next((item.resource_type for item in request.resources if item.resource_type not in _KINDS), None)
    if unknown is not None:
        message = (
            f"Settings of resource type {unknown} are not kept; ask for topics (2), brokers (4) and loggers (8) "
            f"without it."
        )
        response.results = [
            DescribeConfigsResponseResult(
                resource_type=item.resource_type,
                resource_name=item.resource_name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=message,
            )
            for item in request.resources
        ]
        return response
    room = DESCRIBED_AGAIN_MAX
    named: set[tuple[int, str]] = set()
    kept: dict[tuple[int, str, tuple[str, ...]], list[DescribeConfigsResponseConfig]] = {}
    between = Slices(uses.clock)
    for item in request.resources:
        await between()
        answer = DescribeConfigsResponseResult(
            resource_type=item.resource_type, resource_name=item.resource_name, error_message=""
        )
        response.results.append(answer)
        resource = (item.resource_type, item.resource_name)
        is_again = resource in named
        named.add(resource)
        if is_again and room < 0:
            answer.error_code, answer.error_message = ErrorCode.INVALID_REQUEST, _NAMED_TOO_OFTEN
            continue
        # An empty list of names means all settings, as null does.
        names = tuple(dict.fromkeys(item.configuration_keys or ()))
        configs = kept.get((*resource, names))
        if configs is None:
            try:
                configs = [
                    _config(setting, request, context.version) for setting in _described(uses, item, names or None)
                ]
            except Exception as error:
                refused = as_kafka_error(error)
                answer.error_code, answer.error_message = refused.code, refused.message or None
                continue
            kept[(*resource, names)] = configs
        if is_again:
            room -= len(configs)
        answer.configs = configs
    return response


def _described(
    uses: ClusterFamily, item: DescribeConfigsRequestResource, names: tuple[str, ...] | None
) -> list[Described]:
    """Returns the settings of a resource that have these names; None means all settings."""
    if item.resource_type == TOPIC_RESOURCE:
        problem = topic_name_problem(item.resource_name)
        if problem is not None:
            raise InvalidTopicException(problem)
        topic = uses.view.topics.get(item.resource_name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"The topic '{item.resource_name}' does not exist.")
        return topic.config.describe(names)
    if item.resource_type == BROKER_RESOURCE:
        if require_broker(item.resource_name, uses.broker_id) is None:
            return uses.in_force.config.describe_default(names)
        return uses.in_force.config.describe(names)
    if item.resource_type == BROKER_LOGGER_RESOURCE:
        return describe_loggers(item.resource_name, names, uses.broker_id)
    if item.resource_type == CLIENT_METRICS_RESOURCE:
        return describe_client_metrics(item.resource_name, names)
    raise InvalidRequestError(
        f"Settings of resource type {item.resource_type} are not kept here; topics (2) and brokers (4) have some."
    )


def _config(setting: Described, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponseConfig:
    answer = DescribeConfigsResponseConfig(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.sensitive,
        config_type=setting.kind,
        documentation=setting.doc
        if request.include_documentation or setting.source is Source.DYNAMIC_BROKER_LOGGER
        else None,
    )
    if version == 0:
        answer.is_default = setting.is_default
    elif request.include_synonyms:
        answer.synonyms = [
            DescribeConfigsResponseSynonym(name=item.name, value=item.value, source=item.source)
            for item in setting.synonyms
        ]
    return answer
