"""DescribeConfigs (key 32): returns settings of topics (resource type 2) and brokers (4), with the source of each
value.

Versions: 0 has only the flag is_default, 1 sources and synonyms, 3 types and documentation, 4 the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DescribeConfigsRequestResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(Array(STRING), nullable=0)


class DescribeConfigsRequest(Message, key=32, kind=REQUEST, versions=(0, 4), flexible=4):
    resources: list[DescribeConfigsRequestResource] = field(Array(DescribeConfigsRequestResource))
    include_synonyms: bool = field(BOOLEAN, since=1)
    include_documentation: bool = field(BOOLEAN, since=3)


class DescribeConfigsResponseSynonym(Struct):
    name: str = field(STRING, since=1)
    value: str | None = field(STRING, since=1, nullable=0)
    source: int = field(INT8, since=1)


class DescribeConfigsResponseConfig(Struct):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable=0)
    read_only: bool = field(BOOLEAN)
    is_default: bool = field(BOOLEAN, until=0)
    config_source: int = field(INT8, since=1, default=-1, ignorable=True)
    is_sensitive: bool = field(BOOLEAN)
    synonyms: list[DescribeConfigsResponseSynonym] = field(
        Array(DescribeConfigsResponseSynonym), since=1, ignorable=True
    )
    config_type: int = field(INT8, since=3, ignorable=True)
    documentation: str | None = field(STRING, since=3, nullable=0, ignorable=True)


class DescribeConfigsResponseResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResponseConfig] = field(Array(DescribeConfigsResponseConfig))


class DescribeConfigsResponse(Message, key=32, kind=RESPONSE, versions=(0, 4), flexible=4):
    throttle_time_ms: int = field(INT32)
    results: list[DescribeConfigsResponseResult] = field(Array(DescribeConfigsResponseResult))
