"""IncrementalAlterConfigs (key 44), versions 0-1: changes single settings (KIP-339). The operations are set (0),
delete (1), append (2) and subtract (3). The resources are a topic (2), a broker (4; the empty name means every
broker), and this broker's loggers (8). The changes are in effect when the answer is sent. A resource that is named
twice is answered INVALID_REQUEST each time."""

from __future__ import annotations

from jesenska.base.errors import InvalidRequestError
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_settings_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.settings.logger_settings import BROKER_LOGGER_RESOURCE, alter_loggers
from jesenska.broker.slices import Slices
from jesenska.controller.plans.config_changes import ConfigOp
from jesenska.controller.plans.topics import duplicates
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResult,
)


@handles(IncrementalAlterConfigsRequest, TopicFamily)
def handle(uses: TopicFamily, request: IncrementalAlterConfigsRequest, context: Context) -> Outcome:
    return _alter(uses, request, context)


async def _alter(
    uses: TopicFamily, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    response = IncrementalAlterConfigsResponse()
    between = Slices(uses.clock)
    twice = duplicates((item.resource_type, item.resource_name) for item in request.resources)
    for item in request.resources:
        await between()
        answer = IncrementalAlterConfigsResponseResult(
            resource_type=item.resource_type, resource_name=item.resource_name, error_message=None
        )
        response.responses.append(answer)
        try:
            if (item.resource_type, item.resource_name) in twice:
                raise InvalidRequestError("Each resource must appear at most once.")
            changes = [ConfigOp(config.name, config.config_operation, config.value) for config in item.configs]
            if item.resource_type == BROKER_LOGGER_RESOURCE:
                alter_loggers(item.resource_name, changes, uses.broker_id, validate_only=request.validate_only)
                continue
            await uses.controller.alter(
                item.resource_type, item.resource_name, changes, validate_only=request.validate_only
            )
            if not request.validate_only:
                log_settings_change(
                    context, item.resource_type, item.resource_name, (change.name for change in changes)
                )
        except Exception as error:
            refused = as_kafka_error(error)
            answer.error_code, answer.error_message = refused.code, refused.message or None
    return response
