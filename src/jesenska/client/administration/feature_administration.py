"""Administers the cluster's features (KIP-584): reads the levels that brokers support, and reads and changes the level
in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jesenska import __version__
from jesenska.base.errors import ErrorCode, KafkaError, error_name
from jesenska.client.administration.administration import Administration
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k57_update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeatureUpdate,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of the cluster, such as transaction.version. `level` is the level in force, 0 if there is none."""

    name: str
    lowest: int
    highest: int
    level: int


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster. `epoch` is the version of the set of features, which each change increases. It is -1
    if the broker does not report it."""

    features: tuple[Feature, ...]
    epoch: int


class FeatureAdministration(Administration):
    """Methods for features, of the class `Admin`."""

    async def describe_features(self, broker: int | None = None) -> Features:
        """Returns the features that one broker reports, sorted by name. If `broker` is None, the broker with the
        lowest id is asked. Raises KafkaError if the broker does not answer."""
        await self.cluster.refresh([])
        asked = min(self.cluster.nodes) if broker is None else broker
        request = ApiVersionsRequest(client_software_name="jesenska", client_software_version=__version__)
        answer = await self.cluster.ask_broker(asked, request, ApiVersionsResponse)
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError.of(
                answer.error_code, f"Broker {asked} does not report its features: {error_name(answer.error_code)}."
            )
        levels = {item.name: item.max_version_level for item in answer.finalized_features}
        found = [
            Feature(item.name, item.min_version, item.max_version, levels.get(item.name, 0))
            for item in answer.supported_features
        ]
        return Features(tuple(sorted(found, key=lambda item: item.name)), answer.finalized_features_epoch)

    async def update_features(self, levels: Mapping[str, int], way: int, *, validate_only: bool = False) -> None:
        """Sets the levels of all given features, or of none. `way` is UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE.
        Raises KafkaError with the reason if the change is refused, UnsupportedVersionError if the cluster does not
        support changes of features."""
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
