"""UpdateFeatures (key 57): changes the finalised levels of the cluster's features (KIP-584).

Versions: 1 has the type of a downgrade, and validate_only. 2 returns no result for single features: either all
features of the request are changed, or none."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class UpdateFeaturesRequestFeatureUpdate(Struct):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOLEAN, until=0)
    upgrade_type: int = field(INT8, since=1, default=1)


class UpdateFeaturesRequest(Message, key=57, kind=REQUEST, versions=(0, 2), flexible=0):
    timeout_ms: int = field(INT32, default=60000)
    feature_updates: list[UpdateFeaturesRequestFeatureUpdate] = field(Array(UpdateFeaturesRequestFeatureUpdate))
    validate_only: bool = field(BOOLEAN, since=1)


class UpdateFeaturesResponseResult(Struct):
    feature: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class UpdateFeaturesResponse(Message, key=57, kind=RESPONSE, versions=(0, 2), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    results: list[UpdateFeaturesResponseResult] = field(Array(UpdateFeaturesResponseResult), until=1, ignorable=True)
