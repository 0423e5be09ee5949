"""AlterConfigs (key 33): replaces all settings of a resource. IncrementalAlterConfigs is its successor.

Versions: 2 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class AlterConfigsRequestConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)


class AlterConfigsRequestResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterConfigsRequestConfig] = field(Array(AlterConfigsRequestConfig))


class AlterConfigsRequest(Message, key=33, kind=REQUEST, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsRequestResource] = field(Array(AlterConfigsRequestResource))
    validate_only: bool = field(BOOLEAN)


class AlterConfigsResponseResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class AlterConfigsResponse(Message, key=33, kind=RESPONSE, versions=(0, 2), flexible=2):
    throttle_time_ms: int = field(INT32)
    responses: list[AlterConfigsResponseResult] = field(Array(AlterConfigsResponseResult))
