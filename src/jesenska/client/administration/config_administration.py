"""Administers the settings of topics, brokers, loggers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jesenska.base.errors import UnsupportedVersionError
from jesenska.client.administration.administration import Administration, require
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)

#: Kafka's numbers of resource types that have settings, and of the changes to a setting.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: int


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting. `source` is Kafka's number for the source of its value. `synonyms` are the values that other
    sources have for it."""

    name: str
    value: str | None
    read_only: bool
    source: int
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: int
    documentation: str | None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    value: str | None
    operation: int = SET


class ConfigAdministration(Administration):
    """Methods for settings, of the class `Admin`."""

    async def describe_configs(
        self, kind: int, name: str, keys: Sequence[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """Returns the settings of a topic (TOPIC) or a broker (BROKER; the name "" means the default of all
        brokers)."""
        resource = DescribeConfigsRequestResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=True, include_documentation=documentation
        )
        try:
            answer = await self._describe_configs(kind, name, request)
        except UnsupportedVersionError:  # brokers before 1.1 have no synonyms
            answer = await self._describe_configs(kind, name, DescribeConfigsRequest(resources=[resource]))
        result = answer.results[0]
        require(result.error_code, result.error_message)
        return [
            ConfigEntry(
                item.name,
                item.value,
                item.read_only,
                item.config_source,
                item.is_sensitive,
                tuple(ConfigSynonym(synonym.name, synonym.value, synonym.source) for synonym in item.synonyms),
                item.config_type,
                item.documentation,
            )
            for item in result.configs
        ]

    async def _describe_configs(self, kind: int, name: str, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        if kind in (BROKER, BROKER_LOGGER) and name:
            return await self.cluster.ask_broker(int(name), request, DescribeConfigsResponse)
        return await self.cluster.ask_any(request, DescribeConfigsResponse)

    async def alter_configs(
        self, kind: int, name: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Changes single settings of a resource. Raises the broker's error if it refuses the changes."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequestResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterConfigsRequestConfig(
                            name=item.name, config_operation=item.operation, value=item.value
                        )
                        for item in changes
                    ],
                )
            ],
            validate_only=validate_only,
        )
        if kind in (BROKER, BROKER_LOGGER) and name:
            answer = await self.cluster.ask_broker(int(name), request, IncrementalAlterConfigsResponse)
        else:
            answer = await self.cluster.ask_controller(request, IncrementalAlterConfigsResponse)
        require(answer.responses[0].error_code, answer.responses[0].error_message)
