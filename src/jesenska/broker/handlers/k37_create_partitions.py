"""CreatePartitions (key 37), versions 0-3: adds partitions to topics. From version 3 on, a client above its controller
mutation quota is refused (KIP-599). If the request's timeout is 0 or less, the answer is REQUEST_TIMED_OUT, and no
partitions are added."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, InvalidRequestError
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.mutations import Mutations
from jesenska.broker.slices import Slices
from jesenska.controller.plans.topics import duplicates
from jesenska.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResponseResult,
)

_FIRST_STRICT = 3


@handles(CreatePartitionsRequest, TopicFamily)
def handle(uses: TopicFamily, request: CreatePartitionsRequest, context: Context) -> Outcome:
    return _create(uses, request, context)


async def _create(uses: TopicFamily, request: CreatePartitionsRequest, context: Context) -> CreatePartitionsResponse:
    twice = duplicates(item.name for item in request.topics)
    if request.timeout_ms <= 0 and any(item.name not in twice for item in request.topics):
        late = [
            CreatePartitionsResponseResult(name=item.name, error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None)
            for item in request.topics
        ]
        return CreatePartitionsResponse(results=late)
    response = CreatePartitionsResponse()
    answered: set[str] = set()
    between = Slices(uses.clock)
    mutations = Mutations(context, uses.clock.monotonic(), is_strict=context.version >= _FIRST_STRICT)
    for item in request.topics:
        await between()
        if item.name in answered:
            continue
        answered.add(item.name)
        answer = CreatePartitionsResponseResult(name=item.name)
        response.results.append(answer)
        try:
            if item.name in twice:
                raise InvalidRequestError("Duplicate topic name.")
            assignments = (
                None if item.assignments is None else [assignment.broker_ids for assignment in item.assignments]
            )
            mutations.check()
            known = uses.view.topics.get(item.name)
            before = 0 if known is None else len(known.partitions)
            await uses.controller.expand(item.name, item.count, assignments, validate_only=request.validate_only)
            if not request.validate_only:
                mutations.count(item.count - before)
                log_change(context, f"topic {item.name} has {item.count} partitions now")
        except Exception as error:
            refused = as_kafka_error(error)
            answer.error_code = refused.code
            answer.error_message = (
                None if refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else refused.message or None
            )
    return response
