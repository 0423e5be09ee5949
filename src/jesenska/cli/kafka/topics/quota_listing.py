"""The quotas of users, clients and addresses, and users' SCRAM credentials, requested from a broker and written as
Kafka's kafka-configs does:

Quota configs for user-principal 'a', client-id 'c' are producer_byte_rate=1000.0 SCRAM credential configs for
user-principal 'a' are SCRAM-SHA-256=iterations=4096
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.cli.kafka.topics.config_entities import Entity
from jesenska.client.cluster import Cluster
from jesenska.config.table import value_text
from jesenska.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)
from jesenska.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
)

_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
_SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_EXACT, _DEFAULT, _ANY = 0, 1, 2
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


async def quotas_of(cluster: Cluster, entities: Sequence[Entity]) -> list[tuple[str, dict[str, Any]]]:
    """Returns a line and a document for each entity with quotas or credentials; empty if nothing is set."""
    found = await _quotas(cluster, entities)
    if len(entities) == 1 and entities[0].kind == "users" and entities[0].name != "":
        found += await _credentials(cluster, entities[0].name)
    return found


async def _quotas(cluster: Cluster, entities: Sequence[Entity]) -> list[tuple[str, dict[str, Any]]]:
    components = [
        DescribeClientQuotasRequestComponent(
            entity_type=_TYPES[item.kind],
            match_type=_ANY if item.name is None else _EXACT if item.name else _DEFAULT,
            match=item.name or None,
        )
        for item in entities
    ]
    answer = await cluster.ask_any(
        DescribeClientQuotasRequest(components=components, strict=True), DescribeClientQuotasResponse
    )
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError.of(answer.error_code, answer.error_message or "The quotas cannot be read.")
    found = []
    for entry in answer.entries or ():
        names = {item.entity_type: item.entity_name for item in entry.entity}
        values = {item.key: value_text(item.value) for item in sorted(entry.values, key=lambda item: item.key)}
        of = ", ".join(_named(kind, names[kind]) for kind in _SHOWN if kind in names)
        line = f"Quota configs for {of} are {', '.join(f'{key}={value}' for key, value in values.items())}"
        found.append((line, {"entity": names, "quotas": values}))
    return sorted(found, key=lambda item: item[0])


def _named(kind: str, name: str | None) -> str:
    return f"the default {_SHOWN[kind]}" if name is None else f"{_SHOWN[kind]} '{name}'"


async def _credentials(cluster: Cluster, user: str | None) -> list[tuple[str, dict[str, Any]]]:
    users = None if user is None else [DescribeUserScramCredentialsRequestUser(name=user)]
    answer = await cluster.ask_any(
        DescribeUserScramCredentialsRequest(users=users), DescribeUserScramCredentialsResponse
    )
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError.of(answer.error_code, answer.error_message or "The SCRAM credentials cannot be read.")
    found = []
    for result in answer.results:
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        if result.error_code != ErrorCode.NONE:
            raise KafkaError.of(
                result.error_code, result.error_message or f"The SCRAM credentials of {result.user!r} cannot be read."
            )
        values = {
            _MECHANISMS.get(item.mechanism, "UNKNOWN"): f"iterations={item.iterations}"
            for item in result.credential_infos
        }
        line = (
            f"SCRAM credential configs for user-principal '{result.user}' are "
            f"{', '.join(f'{key}={value}' for key, value in values.items())}"
        )
        found.append((line, {"entity": {"user": result.user}, "scram": values}))
    return sorted(found, key=lambda item: item[0])
