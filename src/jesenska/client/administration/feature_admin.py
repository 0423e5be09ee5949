"""Administration of the cluster's features (KIP-584): what brokers can do, what is in force, and changes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jesenska import __version__
from jesenska.base.errors import ErrorCode, KafkaError, error_name
from jesenska.client.cluster import Cluster
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k57_update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Feature:
    """`level` is what is in force, 0 where nothing is."""

    name: str
    lowest: int
    highest: int
    level: int


@dataclass(frozen=True, slots=True)
class Features:
    """`epoch` is -1 where the broker does not tell it; a larger one is newer."""

    features: tuple[Feature, ...]
    epoch: int


class FeatureAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def describe(self, broker: int | None = None) -> Features:
        """What one broker says, any where none is named; features in the order of their names. KafkaError where it
        does not answer."""
        await self.cluster.refresh([])
        asked = min(self.cluster.nodes) if broker is None else broker
        request = ApiVersionsRequest(client_software_name="jesenska", client_software_version=__version__)
        answer = await self.cluster.ask_broker(asked, request, ApiVersionsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError.of(
                answer.error_code, f"Broker {asked} does not tell its features: {error_name(answer.error_code)}."
            )
        levels = {item.name: item.max_version_level for item in answer.finalized_features}
        found = [
            Feature(item.name, item.min_version, item.max_version, levels.get(item.name, 0))
            for item in answer.supported_features
        ]
        return Features(tuple(sorted(found, key=lambda item: item.name)), answer.finalized_features_epoch)

    async def update(self, levels: Mapping[str, int], way: int, *, validate_only: bool = False) -> None:
        """Sets the levels of features, all or none; `way` is UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE. KafkaError
        with the reason where that is refused, UnsupportedVersionError where the cluster cannot be asked for it."""
        updates = [
            UpdateFeaturesRequestFeatureUpdate(feature=name, max_version_level=level, upgrade_type=way)
            for name, level in levels.items()
        ]
        answer = await self.cluster.ask_controller(
            UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only), UpdateFeaturesResponse
        )
        refused = [
            (answer.error_code, answer.error_message),
            *((item.error_code, item.error_message) for item in answer.results),
        ]
        for code, message in refused:
            if code != ErrorCode.NONE:
                raise KafkaError.of(code, message or f"The controller does not change features: {error_name(code)}.")
