"""ListConfigResources (key 74): returns the resources that have settings.

Versions: 0 returns client metrics only (it was called ListClientMetricsResources, KIP-1000). 1 takes resource types
(KIP-1142)."""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class ListConfigResourcesRequest(Message, key=74, kind=REQUEST, versions=(0, 1), flexible=0):
    resource_types: list[int] = field(Array(INT8), since=1)


class ListConfigResourcesResponseResource(Struct):
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(Message, key=74, kind=RESPONSE, versions=(0, 1), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    config_resources: list[ListConfigResourcesResponseResource] = field(Array(ListConfigResourcesResponseResource))
