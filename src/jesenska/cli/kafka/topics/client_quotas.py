"""Shows and changes the quotas of users, clients and addresses, and shows users' SCRAM credentials, for kafka-configs.
The output is that of Kafka's tool:

    Quota configs for user-principal 'a', client-id 'c' are producer_byte_rate=1000.0
    SCRAM credential configs for user-principal 'a' are SCRAM-SHA-256=iterations=4096"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError
from jesenska.cli.kafka.topics.config_entities import Entity
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import DELETE, ConfigChange
from jesenska.client.administration.quota_administration import ANY, DEFAULT, EXACT
from jesenska.client.cluster import Cluster
from jesenska.config.table import value_text
from jesenska.quotas.entities import CLIENT_ID, IP, TREE_KINDS, USER
from jesenska.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUser,
    DescribeUserScramCredentialsResponse,
)

_TYPES = {in_tree: kind for kind, in_tree in TREE_KINDS.items()}
_SHOWN = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


async def quotas_of(cluster: Cluster, entities: Sequence[Entity]) -> list[tuple[str, dict[str, Any]]]:
    """Returns an output line and a JSON document for each entity that has quotas or credentials."""
    found = await _quotas(cluster, entities)
    if len(entities) == 1 and entities[0].kind == "users" and entities[0].name != "":
        found += await _credentials(cluster, entities[0].name)
    return found


async def _quotas(cluster: Cluster, entities: Sequence[Entity]) -> list[tuple[str, dict[str, Any]]]:
    wanted = {
        _TYPES[item.kind]: (ANY if item.name is None else EXACT if item.name else DEFAULT, item.name or None)
        for item in entities
    }
    found = []
    for entry in await Admin(cluster).describe_client_quotas(wanted, strict=True):
        names = dict(entry.entity)
        values = {key: value_text(value) for key, value in sorted(entry.quotas.items())}
        of = ", ".join(_named(kind, names[kind]) for kind in _SHOWN if kind in names)
        line = f"Quota configs for {of} are {', '.join(f'{key}={value}' for key, value in values.items())}"
        found.append((line, {"entity": names, "quotas": values}))
    return sorted(found, key=lambda item: item[0])


async def alter_quotas(cluster: Cluster, entities: Sequence[Entity], changes: Sequence[ConfigChange]) -> None:
    """Sets and removes quotas of one entity: a user, a client id, both, or an address. Raises JesenskaError for a
    value that is not a number, or for the removal of a quota that is not set."""
    admin, entity = Admin(cluster), {_TYPES[item.kind]: item.name or None for item in entities}
    removed = [item.name for item in changes if item.operation == DELETE]
    if removed:
        wanted = {kind: (DEFAULT if name is None else EXACT, name) for kind, name in entity.items()}
        there = {key for found in await admin.describe_client_quotas(wanted, strict=True) for key in found.quotas}
        if missing := [name for name in removed if name not in there]:
            raise JesenskaError(f"Invalid config(s): {','.join(missing)}: this entity has no such quota.")
    quotas: dict[str, float | None] = {}
    for item in changes:
        quotas[item.name] = None if item.operation == DELETE else _number(item)
    await admin.alter_client_quotas([(entity, quotas)])


def _number(change: ConfigChange) -> float:
    try:
        return float(change.value or "")
    except ValueError:
        raise JesenskaError(f"Cannot parse quota configuration value for {change.name}: {change.value}") from None


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
