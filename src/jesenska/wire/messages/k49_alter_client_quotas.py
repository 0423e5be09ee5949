"""AlterClientQuotas (key 49): sets and removes quotas of users, client ids and addresses (KIP-546).

Versions: 1 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import (
    BOOLEAN,
    FLOAT64,
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


class AlterClientQuotasRequestEntity(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class AlterClientQuotasRequestOp(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOLEAN)


class AlterClientQuotasRequestEntry(Struct):
    entity: list[AlterClientQuotasRequestEntity] = field(Array(AlterClientQuotasRequestEntity))
    ops: list[AlterClientQuotasRequestOp] = field(Array(AlterClientQuotasRequestOp))


class AlterClientQuotasRequest(Message, key=49, kind=REQUEST, versions=(0, 1), flexible=1):
    entries: list[AlterClientQuotasRequestEntry] = field(Array(AlterClientQuotasRequestEntry))
    validate_only: bool = field(BOOLEAN)


class AlterClientQuotasResponseEntity(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class AlterClientQuotasResponseEntry(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    entity: list[AlterClientQuotasResponseEntity] = field(Array(AlterClientQuotasResponseEntity))


class AlterClientQuotasResponse(Message, key=49, kind=RESPONSE, versions=(0, 1), flexible=1):
    throttle_time_ms: int = field(INT32)
    entries: list[AlterClientQuotasResponseEntry] = field(Array(AlterClientQuotasResponseEntry))
