"""ApiVersions (key 18): returns the APIs and versions that this broker supports. The response header is always version
0, so that every client can read it.

Versions: 3 uses the compact encoding, has the client's name, and returns features in tagged fields. In 4 the lowest
supported level of a feature may be 0 (KIP-584)."""

from __future__ import annotations

from jesenska.wire.language import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    REQUEST,
    RESPONSE,
    STRING,
    Array,
    Message,
    Struct,
    field,
)


class ApiVersionsRequest(Message, key=18, kind=REQUEST, versions=(0, 4), flexible=3):
    client_software_name: str = field(STRING, since=3, ignorable=True)
    client_software_version: str = field(STRING, since=3, ignorable=True)


class ApiVersionsResponseApiKey(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class ApiVersionsResponseSupportedFeature(Struct):
    name: str = field(STRING, since=3)
    min_version: int = field(INT16, since=3)
    max_version: int = field(INT16, since=3)


class ApiVersionsResponseFinalizedFeature(Struct):
    name: str = field(STRING, since=3)
    max_version_level: int = field(INT16, since=3)
    min_version_level: int = field(INT16, since=3)


class ApiVersionsResponse(Message, key=18, kind=RESPONSE, versions=(0, 4), flexible=3):
    error_code: int = field(INT16)
    api_keys: list[ApiVersionsResponseApiKey] = field(Array(ApiVersionsResponseApiKey))
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    supported_features: list[ApiVersionsResponseSupportedFeature] = field(
        Array(ApiVersionsResponseSupportedFeature), since=3, tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(INT64, since=3, tag=1, default=-1, ignorable=True)
    finalized_features: list[ApiVersionsResponseFinalizedFeature] = field(
        Array(ApiVersionsResponseFinalizedFeature), since=3, tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(BOOLEAN, since=3, tag=3, ignorable=True)
