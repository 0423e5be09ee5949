"""DescribeClientQuotas (key 48), versions 0-1: the filter is checked as Kafka does, and no quota matches (KIP-546).

Left out: quotas themselves. None can be set here, and those in a tree that Kafka has written are not read.
"""

from __future__ import annotations

from jesenska.base.errors import InvalidRequestError, KafkaError, UnsupportedVersionError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasRequestComponent,
    DescribeClientQuotasResponse,
)

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_WITHOUT_NAME = {_DEFAULT: "MATCH_TYPE_DEFAULT", _SPECIFIED: "MATCH_TYPE_SPECIFIED"}


@handles(DescribeClientQuotasRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DescribeClientQuotasRequest, context: Context) -> Outcome:
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(error_message="", entries=[])


def _check(components: list[DescribeClientQuotasRequestComponent]) -> None:
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise InvalidRequestError("Invalid empty entity type.")
        if kind in seen:
            raise InvalidRequestError(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (_USER, _CLIENT_ID, _IP):
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
    if _IP in seen and len(seen) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )
