"""ListConfigResources (key 74), versions 0-1: lists the resources that have settings. Each line is what a version
adds:

  0      client metrics only (ListClientMetricsResources, KIP-1000): the list is always empty
  1      topics (2), brokers (4), brokers' loggers (8), client metrics (16) and groups (32) (KIP-1142). A request that
         names no type asks for all types

A type that has no settings is answered UNSUPPORTED_VERSION. No group is listed, because only groups of the new
protocol have settings."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import ClusterFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseResource,
)

_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_KINDS = frozenset((_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP))
_FIRST_WITH_TYPES = 1


@handles(ListConfigResourcesRequest, ClusterFamily)
def handle(uses: ClusterFamily, request: ListConfigResourcesRequest, context: Context) -> Outcome:
    if context.version < _FIRST_WITH_TYPES:
        return ListConfigResourcesResponse()
    wanted = set(request.resource_types) or _KINDS
    if not wanted <= _KINDS:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker_id) for broker_id in uses.view.brokers]
    named = {_BROKER_LOGGER: brokers, _BROKER: brokers, _TOPIC: list(uses.view.topics)}
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponseResource(resource_name=name, resource_type=kind)
            for kind, names in named.items()
            if kind in wanted
            for name in names
        ]
    )
