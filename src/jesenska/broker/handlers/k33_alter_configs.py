"""AlterConfigs (key 33), versions 0-2: replaces all dynamic settings of a topic (2) or a broker (4). A setting that
the request does not name gets its default value again. Old clients still send this request in place of
IncrementalAlterConfigs. A resource that is twice in a request is answered INVALID_REQUEST (Kafka gives no answer)."""

from __future__ import annotations

from jesenska.base.errors import InvalidRequestError
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_settings_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.slices import Slices
from jesenska.controller.plans.topics import duplicates
from jesenska.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResult,
)


@handles(AlterConfigsRequest, TopicFamily)
def handle(uses: TopicFamily, request: AlterConfigsRequest, context: Context) -> Outcome:
    return _alter(uses, request, context)


async def _alter(uses: TopicFamily, request: AlterConfigsRequest, context: Context) -> AlterConfigsResponse:
    response = AlterConfigsResponse()
    between = Slices(uses.clock)
    twice = duplicates((item.resource_type, item.resource_name) for item in request.resources)
    for item in request.resources:
        await between()
        answer = AlterConfigsResponseResult(
            resource_type=item.resource_type, resource_name=item.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            if (item.resource_type, item.resource_name) in twice:
                raise InvalidRequestError("Each resource must appear at most once.")
            names = [config.name for config in item.configs]
            if len(set(names)) != len(names):
                raise InvalidRequestError("Error due to duplicate config keys")
            wanted = {config.name: config.value for config in item.configs}
            await uses.controller.alter(
                item.resource_type, item.resource_name, wanted, validate_only=request.validate_only
            )
            if not request.validate_only:
                log_settings_change(context, item.resource_type, item.resource_name, wanted)
        except Exception as error:
            refused = as_kafka_error(error)
            answer.error_code, answer.error_message = refused.code, refused.message or None
    return response
