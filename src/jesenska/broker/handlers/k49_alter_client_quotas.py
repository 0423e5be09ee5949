"""AlterClientQuotas (key 49), versions 0-1: sets and removes quotas of users, client ids and IP addresses (KIP-546).

Quotas are settings in the metadata tree (ZooKeeper's nodes `users/<name>`, `users/<name>/clients/<name>`,
`clients/<name>`, `ips/<address>`), as in Apache Kafka 3.9. Every broker accepts the request. The checks, their order
and their messages are the same as in Apache Kafka 4.3.1. An entity that is named twice is refused. Unlike in Kafka, a
quota that is not a number (NaN) is refused, and so is a host name in place of an IP address."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import ErrorCode, InvalidRequestError, shortened
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.quota_entities import KINDS, changes_of, entity_path, require_kinds
from jesenska.wire.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntity,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntity,
    AlterClientQuotasResponseEntry,
)

_Names = tuple[tuple[str, str | None], ...]


@handles(AlterClientQuotasRequest, SecurityFamily)
async def handle(uses: SecurityFamily, request: AlterClientQuotasRequest, context: Context) -> Outcome:
    entries: dict[_Names, list[AlterClientQuotasRequestEntry]] = {}
    for entry in request.entries:
        entries.setdefault(_names(entry.entity), []).append(entry)
    response = AlterClientQuotasResponse()
    for names, asked in entries.items():
        error, message = ErrorCode.NONE, None
        try:
            await _alter(uses, names, asked, context, request.validate_only)
        except Exception as failure:
            refused = as_kafka_error(failure)
            error, message = ErrorCode(refused.code), shortened(str(refused))
        entity = [AlterClientQuotasResponseEntity(entity_type=kind, entity_name=name) for kind, name in names]
        response.entries.append(AlterClientQuotasResponseEntry(error_code=error, error_message=message, entity=entity))
    return response


def _names(entity: Sequence[AlterClientQuotasRequestEntity]) -> _Names:
    """Returns the parts of an entity (kind and name) in a fixed order. If a kind is named twice, its last name is
    used."""
    named = {part.entity_type: part.entity_name for part in entity}
    return tuple((kind, named.pop(kind)) for kind in KINDS if kind in named) + tuple(named.items())


async def _alter(
    uses: SecurityFamily,
    names: _Names,
    asked: Sequence[AlterClientQuotasRequestEntry],
    context: Context,
    validate_only: bool,
) -> None:
    entity = dict(names)
    require_kinds(entity)
    keys = [op.key for entry in asked for op in entry.ops]
    if len(asked) > 1 or len(set(keys)) != len(keys):
        shown = ", ".join(f"{kind}={name}" for kind, name in names)
        raise InvalidRequestError(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")
    path = entity_path(entity)
    changes = changes_of("ip" in entity, [(op.key, None if op.remove else op.value) for op in asked[0].ops])
    if changes and not validate_only:
        await uses.alter_client(path, changes)
        log_change(context, f"quotas of {path!a} were changed")
