"""Requests the settings of many topics or brokers in few requests, and formats them as lines of Kafka's tools, with
the source of each value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from jesenska.base.errors import ErrorCode, InvalidConfigError, KafkaError, UnsupportedVersionError
from jesenska.cli.shared.tool import meant
from jesenska.client.administration.config_administration import BROKER, TOPIC
from jesenska.client.cluster import Cluster
from jesenska.config.table import Table
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
)
from jesenska.wire.messages.k74_list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

_RESOURCES_PER_REQUEST = 500


class ShownSource(IntEnum):
    """The source of a setting's value. The names are those that Kafka's tools print, and the numbers are those of the
    DescribeConfigs response."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ShownSetting:
    """A setting with the value in force, the source of this value, and the setting's synonyms. Synonyms are the values
    from all sources in order, each with name, value and source."""

    name: str
    value: str | None
    source: ShownSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[tuple[str, str | None, ShownSource], ...]

    @property
    def is_default(self) -> bool:
        return self.source == ShownSource.DEFAULT_CONFIG

    def line(self) -> str:
        """Returns the line that kafka-configs prints for the setting. A secret is printed without its value."""
        synonyms = ", ".join(f"{source.name}:{name}={_text(value)}" for name, value, source in self.synonyms)
        return f"  {self.name}={_text(self.value)} sensitive={str(self.is_sensitive).lower()} synonyms={{{synonyms}}}"

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "source": self.source.name,
            "sensitive": self.is_sensitive,
            "readOnly": self.is_read_only,
            "synonyms": [
                {"name": name, "value": value, "source": source.name} for name, value, source in self.synonyms
            ],
        }


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _source(number: int) -> ShownSource:
    return ShownSource(number) if number in set(ShownSource) else ShownSource.UNKNOWN


def _setting(item: DescribeConfigsResponseConfig) -> ShownSetting:
    source = _source(item.config_source)
    if item.config_source < 0:
        # A response of DescribeConfigs version 0 only reports if the value is the default value.
        source = ShownSource.DEFAULT_CONFIG if item.is_default else ShownSource.DYNAMIC_TOPIC_CONFIG
    synonyms = tuple((synonym.name, synonym.value, _source(synonym.source)) for synonym in item.synonyms)
    return ShownSetting(item.name, item.value, source, item.is_sensitive, item.read_only, synonyms)


async def _ask(
    cluster: Cluster, kind: int, names: Sequence[str], broker_id: int | None
) -> dict[str, list[ShownSetting]]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in names
        ],
        include_synonyms=True,
    )
    if broker_id is None:
        answer = await cluster.ask_any(request, DescribeConfigsResponse)
    else:
        answer = await cluster.ask_broker(broker_id, request, DescribeConfigsResponse)
    found = {}
    for result in answer.results:
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and len(names) > 1:
            continue  # deleted since it was listed
        if result.error_code != ErrorCode.NONE:
            raise KafkaError.of(
                result.error_code, result.error_message or f"The settings of {result.resource_name!r} cannot be read."
            )
        found[result.resource_name] = [_setting(item) for item in result.configs]
    return found


async def settings_of_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, list[ShownSetting]]:
    """Returns all settings of each topic, in the broker's order. Topics that were deleted are left out."""
    wanted = list(names)
    found: dict[str, list[ShownSetting]] = {}
    for start in range(0, len(wanted), _RESOURCES_PER_REQUEST):
        found.update(await _ask(cluster, TOPIC, wanted[start : start + _RESOURCES_PER_REQUEST], None))
    return found


async def settings_of_broker(cluster: Cluster, broker_id: int | None) -> list[ShownSetting]:
    """Returns all settings of a broker. Without a broker id, returns the dynamic settings for all brokers."""
    name = "" if broker_id is None else str(broker_id)
    return (await _ask(cluster, BROKER, [name], broker_id))[name]


async def settings_of_resource(
    cluster: Cluster, kind: int, name: str, broker_id: int | None = None
) -> list[ShownSetting]:
    """Returns all settings of a resource of any type. `broker_id` must be given if only this broker knows the
    settings."""
    return (await _ask(cluster, kind, [name], broker_id)).get(name, [])


async def resources_with_settings(cluster: Cluster, kind: int) -> list[str]:
    """Returns the names of the resources of this type that have settings. Brokers that support only version 0 list
    client metrics; for other types the result is then empty."""
    try:
        answer = await cluster.ask_any(ListConfigResourcesRequest(resource_types=[kind]), ListConfigResourcesResponse)
    except UnsupportedVersionError:
        return []
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError.of(answer.error_code, "The resources that have settings cannot be listed.")
    return sorted(item.resource_name for item in answer.config_resources if item.resource_type == kind)


def with_near_miss(error: InvalidConfigError, names: Iterable[str], table: Table) -> InvalidConfigError:
    """Returns the broker's error. If the error is about an unknown setting, the most similar known name is added to
    its text."""
    message = str(error)
    wrong = next((name for name in names if name not in table and name in message), None)
    return (
        error
        if wrong is None
        else InvalidConfigError(f"{message.rstrip('.')}{meant(wrong, (item.name for item in table))}.")
    )
