"""The quotas of users and client ids, and the choice of the quota that applies to a client.

One quota of each kind applies to a client: the quota of the first entity in this table that has a quota of this kind
(KIP-55). The table is read row by row. Each user or client id has its own rate. This is also true for a default quota:
two names with the same default quota do not share a rate.

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
#: The kinds of quota entities in requests (KIP-546), and their names in the metadata tree (ZooKeeper's nodes).
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TREE_KINDS: Final = {USER: "users", CLIENT_ID: "clients", IP: "ips"}
#: The kinds of quotas for users and client ids. An IP address has only connection_creation_rate.
CLIENT_QUOTAS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)


class Part(NamedTuple):
    """The user part or the client id part of a quota entity: absent, the default, or a name."""

    is_there: bool
    name: str | None = None


ABSENT: Final = Part(False)
DEFAULT: Final = Part(True)


class QuotaEntity(NamedTuple):
    """The user and the client id for which a quota is set; each is absent, the default, or a name."""

    user: Part
    client_id: Part


#: The quotas of each entity, by their names.
Quotas = Mapping[QuotaEntity, Mapping[str, float]]


class Found(NamedTuple):
    """A quota, and the user and client id that share its rate. If one of them is an empty string, all users or all
    client ids share the rate."""

    quota: float
    user: str
    client_id: str


def quota_for(quotas: Quotas, name: str, user: str, client_id: str) -> Found | None:
    """Returns the quota of this name that applies to a client; None if no quota applies."""
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
