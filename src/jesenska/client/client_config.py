"""The configuration of a client's connections: one value made from Kafka's settings, for the client in this package,
every tool and the pipeline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
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


def client_config(table: Table, texts: Mapping[str, str]) -> ClientConfig:
    """Returns the configuration for these settings of the table, with its defaults; InvalidConfigError with one
    sentence for a value that is not valid. Settings of other tables are left out. Sizes of buffers that are not given
    are the system's."""
    given: dict[str, Any] = dict(table.parse({name: text for name, text in texts.items() if name in table}))
    values: dict[str, Any] = {setting.name: setting.default for setting in table} | given
    idle_ms = values.get("metadata.max.idle.ms")
    return ClientConfig(
        client_id=values["client.id"] if "client.id" in given else DEFAULT_CLIENT_ID,
        request_timeout_seconds=values["request.timeout.ms"] / 1000,
        connect_timeout_seconds=values["socket.connection.setup.timeout.ms"] / 1000,
        connect_timeout_max_seconds=values["socket.connection.setup.timeout.max.ms"] / 1000,
        retry_backoff_seconds=values["retry.backoff.ms"] / 1000,
        retry_backoff_max_seconds=values["retry.backoff.max.ms"] / 1000,
        reconnect_backoff_seconds=values["reconnect.backoff.ms"] / 1000,
        reconnect_backoff_max_seconds=values["reconnect.backoff.max.ms"] / 1000,
        send_buffer_bytes=given.get("send.buffer.bytes", -1),
        receive_buffer_bytes=given.get("receive.buffer.bytes", -1),
        connections_max_idle_seconds=values["connections.max.idle.ms"] / 1000,
        metadata_max_age_seconds=values["metadata.max.age.ms"] / 1000,
        metadata_max_idle_seconds=None if idle_ms is None else idle_ms / 1000,
        security=client_security(values.get, os.urandom),
    )
