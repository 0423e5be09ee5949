"""Quotas by user and by client id, and the one that counts for a client.

One quota counts for a client, that of the first of these levels that has one of its kind (KIP-55). Users or clients
share a level's quota only if they have the same name: a default is for each user or client id by itself.

    user and client id             user, default client id        user
    default user, client id        default user and client id     default user
    client id                      default client id"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
#: The kinds of entities in requests (KIP-546), and their names in the tree.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TREE_KINDS: Final = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
#: Quotas of users and client ids; an address has the rate of new connections alone.
CLIENT_QUOTAS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)


class Part(NamedTuple):
    """A part of an entity: absent, the default, or a name."""

    is_there: bool
    name: str | None = None


ABSENT: Final = Part(False)
DEFAULT: Final = Part(True)


class QuotaEntity(NamedTuple):
    """The users and client ids that a quota is for."""

    user: Part
    client_id: Part


#: Quotas by their names, by entity.
Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class Found(NamedTuple):
    """A quota, and the user and client id that share it; an empty one is not looked at."""

    quota: float
    user: str
    client_id: str


def quota_for(quotas: Quotas, name: str, user: str, client_id: str) -> Found | None:
    """Returns the quota of this name that counts for a client; None if it has none."""
    for entity, shared_user, shared_client in _levels(user, client_id):
        values = quotas.get(entity)
        if values is not None and name in values:
            return Found(values[name], shared_user, shared_client)
    return None


def _levels(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, str, str]]:
    named_client = Part(True, client_id)
    for part in (Part(True, user), DEFAULT):
        yield QuotaEntity(part, named_client), user, client_id
        yield QuotaEntity(part, DEFAULT), user, client_id
        yield QuotaEntity(part, ABSENT), user, ""
    yield QuotaEntity(ABSENT, named_client), "", client_id
    yield QuotaEntity(ABSENT, DEFAULT), "", client_id
