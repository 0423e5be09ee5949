"""The current quotas of one broker. They come from the settings of users, client ids and IP addresses in the metadata
tree, and from quota.producer.default and quota.consumer.default."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from typing import Final

from jesenska.base.clock import Clock
from jesenska.broker.settings.settings_runtime import SettingsRuntime
from jesenska.config.layers import BrokerConfig
from jesenska.metadata import paths
from jesenska.quotas.client_quotas import ClientQuotas
from jesenska.quotas.connection_rates import ConnectionRates
from jesenska.quotas.entities import (
    ABSENT,
    CLIENT_QUOTAS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    Part,
    QuotaEntity,
)
from jesenska.quotas.rate import Windows

logger = logging.getLogger(__name__)

#: If quota.producer.default or quota.consumer.default has this value, there is no default quota.
_UNLIMITED: Final = 2**63 - 1


class QuotasRuntime:
    """Keeps the quotas of one broker up to date. `clients` has the quotas of users and client ids, `connections` the
    limits of new connections by IP address."""

    def __init__(self, settings: SettingsRuntime, config: BrokerConfig, clock: Clock) -> None:
        self._settings = settings
        windows = Windows(config.integer("quota.window.num"), config.integer("quota.window.size.seconds") * 1000)
        mutation_windows = Windows(
            config.integer("controller.quota.window.num"), config.integer("controller.quota.window.size.seconds") * 1000
        )
        defaults = {
            PRODUCER_BYTE_RATE: float(config.integer("quota.producer.default")),
            CONSUMER_BYTE_RATE: float(config.integer("quota.consumer.default")),
        }

        def now_ms() -> int:
            return int(clock.monotonic() * 1000)

        self.clients = ClientQuotas(
            now_ms, windows, mutation_windows, {name: value for name, value in defaults.items() if value < _UNLIMITED}
        )
        self.connections = ConnectionRates(now_ms, windows)
        self._apply()
        settings.on_change(self._changed)

    def _changed(self, entity: str) -> None:
        if entity.partition("/")[0] in paths.CLIENT_KINDS:
            self._apply()

    def _apply(self) -> None:
        clients: dict[QuotaEntity, dict[str, float]] = {}
        addresses: dict[str | None, float] = {}
        for entity, settings in self._settings.client_settings().items():
            names = paths.names_of_client_entity(entity)
            if "ips" in names:
                rates = _in_force(entity, settings, (CONNECTION_CREATION_RATE,))
                if rates:
                    addresses[names["ips"]] = rates[CONNECTION_CREATION_RATE]
            else:
                clients[QuotaEntity(_part(names, "users"), _part(names, "clients"))] = _in_force(
                    entity, settings, CLIENT_QUOTAS
                )
        self.clients.replace(clients)
        self.connections.replace(addresses)


def _part(names: Mapping[str, str | None], kind: str) -> Part:
    return Part(True, names[kind]) if kind in names else ABSENT


def quota_values(settings: Mapping[str, str], names: Collection[str]) -> dict[str, float]:
    """Returns the quotas with these names from an entity's settings. A value that is not a number becomes NaN."""
    found = {}
    for name in names:
        if name in settings:
            try:
                found[name] = float(settings[name])
            except ValueError:
                found[name] = math.nan
    return found


def _in_force(entity: str, settings: Mapping[str, str], names: Collection[str]) -> dict[str, float]:
    """Returns the valid quotas of an entity (user, client id or IP address). Logs the invalid quotas, which have no
    effect."""
    values = quota_values(settings, names)
    for name in [name for name, value in values.items() if not value > 0]:
        logger.error("/config/%s: %s is not a number above 0, and has no effect", entity, name)
        del values[name]
    return values
