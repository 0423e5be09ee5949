"""Checks the entities (users, client ids, IP addresses) in requests about quotas, and converts changes of their quotas
to settings in the metadata tree (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from jesenska.base.errors import InvalidRequestError
from jesenska.metadata import paths
from jesenska.quotas.entities import (
    CLIENT_ID,
    CLIENT_QUOTAS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    TREE_KINDS,
    USER,
)

#: The kinds of entities, in the order in which they are answered.
KINDS: Final = (CLIENT_ID, USER, IP)
#: The quotas that must be whole numbers, each with its largest value and the Java type that Kafka's error message
#: names.
_WHOLE: Final = {
    PRODUCER_BYTE_RATE: (2**63 - 1, "a LONG"),
    CONSUMER_BYTE_RATE: (2**63 - 1, "a LONG"),
    CONNECTION_CREATION_RATE: (2**31 - 1, "an INT"),
}


def require_kinds(entity: Mapping[str, str | None]) -> None:
    """Raises InvalidRequestError if the entity is not valid. `entity` has a name for each kind (user, client-id,
    ip)."""
    if not entity:
        raise InvalidRequestError("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in KINDS:
            raise InvalidRequestError(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequestError(f"Empty {kind} not supported")
    if IP in entity and len(entity) > 1:
        raise InvalidRequestError(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )


def entity_path(entity: Mapping[str, str | None]) -> str:
    """Returns the entity's path in the metadata tree below /config. The name None means the default entity. Raises
    InvalidRequestError if an IP address is not valid."""
    address = entity.get(IP)
    if address is not None and not _is_address(address):
        raise InvalidRequestError(f"{address} is not a valid IP address.")
    return paths.client_entity({TREE_KINDS[kind]: name for kind, name in entity.items()})


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def changes_of(of_address: bool, ops: Sequence[tuple[str, float | None]]) -> dict[str, str | None]:
    """Returns the settings that these operations write, by name; the value None removes a setting. Raises
    InvalidRequestError for an invalid value, or a quota that the entity cannot have."""
    known = (CONNECTION_CREATION_RATE,) if of_address else CLIENT_QUOTAS
    changes: dict[str, str | None] = {}
    for name, value in ops:
        if value is None:
            changes[name] = None
            continue
        if name not in known:
            raise InvalidRequestError(f"Invalid configuration key {name}")
        if math.isnan(value):
            raise InvalidRequestError(f"Quota {name} must be a number")
        if value <= 0:
            raise InvalidRequestError(f"Quota {name} must be greater than 0")
        changes[name] = _text(name, value)
    return changes


def _text(name: str, value: float) -> str:
    """Returns a quota's value as text for the metadata tree. A quota of bytes or connections must be a whole
    number."""
    if name not in _WHOLE:
        return repr(float(value))
    limit, of = _WHOLE[name]
    if value > limit:
        raise InvalidRequestError(f"Proposed value for {name} is too large for {of}.")
    if value != int(value):
        raise InvalidRequestError(f"{name} cannot be a fractional value.")
    return str(int(value))
