"""The configuration of a client's connections, made from Kafka's settings. The clients in this package, all tools and
the Spark pipeline use it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from jesenska.config.table import Table
from jesenska.security.client_security import ClientSecurity, client_security

DEFAULT_CLIENT_ID: Final = "jesenska"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The configuration of connections. Three times grow with each failure in a row: the pause before a retry
    (KIP-580), the pause before connecting again (KIP-144), and the time limit for connecting (KIP-601).

    A socket buffer of -1 bytes means the operating system's default. With a negative `connections_max_idle_seconds`
    idle connections are not closed. With `metadata_max_idle_seconds` None the metadata of unused topics is kept. With
    `security` None, connections are neither encrypted nor authenticated."""

    client_id: str = DEFAULT_CLIENT_ID
    request_timeout_seconds: float = 30.0
    connect_timeout_seconds: float = 10.0
    connect_timeout_max_seconds: float = 30.0
    retry_backoff_seconds: float = 0.1
    retry_backoff_max_seconds: float = 1.0
    reconnect_backoff_seconds: float = 0.05
    reconnect_backoff_max_seconds: float = 1.0
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    connections_max_idle_seconds: float = -1.0
    metadata_max_age_seconds: float = 300.0
    metadata_max_idle_seconds: float | None = None
    security: ClientSecurity | None = None


#: Settings whose default in the table of settings is not used, because `ClientConfig` has a default of its own.
_OWN_DEFAULTS: Final = ("client.id", "send.buffer.bytes", "receive.buffer.bytes")


def client_config_of(values: Mapping[str, Any]) -> ClientConfig:
    """Returns the configuration, without security, for the values of settings by name. A setting that is missing or
    None keeps its default. Settings that are not about connections are ignored."""

    def seconds(name: str) -> float | None:
        milliseconds = values.get(name)
        return None if milliseconds is None else milliseconds / 1000

    fields: dict[str, Any] = {
        "client_id": values.get("client.id"),
        "request_timeout_seconds": seconds("request.timeout.ms"),
        "connect_timeout_seconds": seconds("socket.connection.setup.timeout.ms"),
        "connect_timeout_max_seconds": seconds("socket.connection.setup.timeout.max.ms"),
        "retry_backoff_seconds": seconds("retry.backoff.ms"),
        "retry_backoff_max_seconds": seconds("retry.backoff.max.ms"),
        "reconnect_backoff_seconds": seconds("reconnect.backoff.ms"),
        "reconnect_backoff_max_seconds": seconds("reconnect.backoff.max.ms"),
        "send_buffer_bytes": values.get("send.buffer.bytes"),
        "receive_buffer_bytes": values.get("receive.buffer.bytes"),
        "connections_max_idle_seconds": seconds("connections.max.idle.ms"),
        "metadata_max_age_seconds": seconds("metadata.max.age.ms"),
        "metadata_max_idle_seconds": seconds("metadata.max.idle.ms"),
    }
    return ClientConfig(**{name: value for name, value in fields.items() if value is not None})


def client_config(table: Table, texts: Mapping[str, str]) -> ClientConfig:
    """Returns the configuration for these settings, with the table's defaults for missing settings. Settings that are
    not in the table are ignored. If the client id or a buffer size is missing, the default of `ClientConfig` is used.
    Raises InvalidConfigError with one sentence for a value that is not valid."""
    given: dict[str, Any] = dict(table.parse({name: text for name, text in texts.items() if name in table}))
    defaults: dict[str, Any] = {setting.name: setting.default for setting in table}
    values = {name: value for name, value in defaults.items() if name not in _OWN_DEFAULTS} | given
    return replace(client_config_of(values), security=client_security((defaults | given).get, os.urandom))
