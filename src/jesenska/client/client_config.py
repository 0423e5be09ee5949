"""The configuration of a client's connections: one value made from Kafka's settings, for the client in this package,
every tool and the pipeline."""

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
    """The configuration of connections. Times that grow with each failure in a row are those of KIP-580 (retries),
    KIP-144 (connecting again) and KIP-601 (time to connect). Sizes of socket buffers are the system's if they are -1;
    a negative `connections_max_idle_seconds` keeps connections open; without `metadata_max_idle_seconds` no topic is
    forgotten; without `security` connections are plain."""

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


#: The settings for which a table's default is not this package's.
_OWN_DEFAULTS: Final = ("client.id", "send.buffer.bytes", "receive.buffer.bytes")


def client_config_of(values: Mapping[str, Any]) -> ClientConfig:
    """Returns the configuration for values by the names of settings, without security. A setting that is missing or
    None leaves the default; settings of other things are left out."""

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
    """Returns the configuration for these settings of the table, with the table's defaults; InvalidConfigError with
    one sentence for a value that is not valid. Settings of other tables are left out. An id or a size of a buffer that
    is not given is `ClientConfig`'s."""
    given: dict[str, Any] = dict(table.parse({name: text for name, text in texts.items() if name in table}))
    defaults: dict[str, Any] = {setting.name: setting.default for setting in table}
    values = {name: value for name, value in defaults.items() if name not in _OWN_DEFAULTS} | given
    return replace(client_config_of(values), security=client_security((defaults | given).get, os.urandom))
