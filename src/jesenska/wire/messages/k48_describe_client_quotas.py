"""DescribeClientQuotas (key 48): returns the quotas of users, client ids and addresses that match a filter (KIP-546).

Versions: 1 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    REQUEST,
    RESPONSE,
    STRING,
    Array,
    Message,
    Struct,
    field,
)


class DescribeClientQuotasRequestComponent(Struct):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable=0)


class DescribeClientQuotasRequest(Message, key=48, kind=REQUEST, versions=(0, 1), flexible=1):
    components: list[DescribeClientQuotasRequestComponent] = field(Array(DescribeClientQuotasRequestComponent))
    strict: bool = field(BOOLEAN)


class DescribeClientQuotasResponseEntity(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class DescribeClientQuotasResponseValue(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)


class DescribeClientQuotasResponseEntry(Struct):
    entity: list[DescribeClientQuotasResponseEntity] = field(Array(DescribeClientQuotasResponseEntity))
    values: list[DescribeClientQuotasResponseValue] = field(Array(DescribeClientQuotasResponseValue))


class DescribeClientQuotasResponse(Message, key=48, kind=RESPONSE, versions=(0, 1), flexible=1):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    entries: list[DescribeClientQuotasResponseEntry] | None = field(
        Array(DescribeClientQuotasResponseEntry), nullable=0
    )
