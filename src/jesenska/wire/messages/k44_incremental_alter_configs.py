"""IncrementalAlterConfigs (key 44): sets (0), deletes (1), appends to (2) or subtracts from (3) single settings
(KIP-339).

Versions: 1 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class IncrementalAlterConfigsRequestConfig(Struct):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    value: str | None = field(STRING, nullable=0)


class IncrementalAlterConfigsRequestResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[IncrementalAlterConfigsRequestConfig] = field(Array(IncrementalAlterConfigsRequestConfig))


class IncrementalAlterConfigsRequest(Message, key=44, kind=REQUEST, versions=(0, 1), flexible=1):
    resources: list[IncrementalAlterConfigsRequestResource] = field(Array(IncrementalAlterConfigsRequestResource))
    validate_only: bool = field(BOOLEAN)


class IncrementalAlterConfigsResponseResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)


class IncrementalAlterConfigsResponse(Message, key=44, kind=RESPONSE, versions=(0, 1), flexible=1):
    throttle_time_ms: int = field(INT32)
    responses: list[IncrementalAlterConfigsResponseResult] = field(Array(IncrementalAlterConfigsResponseResult))
