"""DescribeClientQuotas (key 48), versions 0-1: answers the quotas of the entities that match a filter (KIP-546).

An entity is a user, a client id, a user with a client id, or an IP address. A component of the filter matches entities
with one name of a kind, with the default of the kind, or with any name of the kind. With `strict`, an entity matches
only if the filter has a component for each kind in the entity. A filter without components matches all entities, but
no entity if `strict` is set. Answers are sorted by entity."""

from __future__ import annotations

from jesenska.base.errors import InvalidRequestError, KafkaError, UnsupportedVersionError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.quota_entities import KINDS
from jesenska.broker.settings.quotas_runtime import quota_values
from jesenska.metadata import paths
from jesenska.quotas.entities import CLIENT_QUOTAS, CONNECTION_CREATION_RATE, IP, TREE_KINDS
from jesenska.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
    DescribeClientQuotasResponseEntity,
    DescribeClientQuotasResponseEntry,
    DescribeClientQuotasResponseValue,
)

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_WITHOUT_NAME = {_DEFAULT: "MATCH_TYPE_DEFAULT", _SPECIFIED: "MATCH_TYPE_SPECIFIED"}


@handles(DescribeClientQuotasRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DescribeClientQuotasRequest, context: Context) -> Outcome:
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for entity, settings in sorted(uses.settings.client_settings().items()):
        in_tree = paths.names_of_client_entity(entity)
        names = {kind: in_tree[TREE_KINDS[kind]] for kind in KINDS if TREE_KINDS[kind] in in_tree}
        values = quota_values(settings, (CONNECTION_CREATION_RATE,) if IP in names else CLIENT_QUOTAS)
        if values and _matches(request.components, names, request.strict):
            entries.append(_entry(names, values))
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _matches(
    components: list[DescribeClientQuotasRequestComponent], names: dict[str, str | None], strict: bool
) -> bool:
    for component in components:
        kind = component.entity_type
        if kind not in names:
            return False
        if component.match_type == _EXACT and names[kind] != component.match:
            return False
        if component.match_type == _DEFAULT and names[kind] is not None:
            return False
    return not strict or len(components) == len(names)


def _entry(names: dict[str, str | None], values: dict[str, float]) -> DescribeClientQuotasResponseEntry:
    return DescribeClientQuotasResponseEntry(
        entity=[DescribeClientQuotasResponseEntity(entity_type=kind, entity_name=name) for kind, name in names.items()],
        values=[DescribeClientQuotasResponseValue(key=key, value=value) for key, value in values.items()],
    )


def _check(components: list[DescribeClientQuotasRequestComponent]) -> None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequestError("Invalid empty entity type.")
        if kind in seen:
            raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in KINDS:
            raise UnsupportedVersionError(f"Unsupported entity type {kind}")
        if component.match_type == _EXACT:
            if component.match is None:
                raise InvalidRequestError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        elif component.match_type not in _WITHOUT_NAME:
            raise InvalidRequestError(f"Unknown match type {component.match_type}")
        elif component.match is not None:
            raise InvalidRequestError(
                f"Request specified {_WITHOUT_NAME[component.match_type]}, but also specified a match string."
            )
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
