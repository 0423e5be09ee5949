"""The matrix of secured clients: each client with each way to log in under each condition.

A cell produces a record and reads it in a group; the outcome of each step is a class of `CLASSES`, which each client's
program finds from its own errors. In cells of the last three conditions something happens then, and the same clients
do both steps again. Passwords and tokens go through TLS, but for SCRAM-SHA-256. What is different from a cell that
succeeds:

    right       nothing
    wrong       another password, another signing key, a certificate of another authority, a service that the broker
                has no key for; for TLS alone, the client trusts another authority
    expired     the certificate, the token, the ticket, or the delegation token by which SCRAM logs in; for TLS alone,
                the broker's certificate
    token       SCRAM with a delegation token
    no ACL      the user has no rights to the topic
    no group    the user has no rights to the group
    revoked     the rights to the topic are removed while the client is connected
    renewed     the session's lifetime ends while the client is connected
    removed     the user is removed while the client is connected, and the session's lifetime ends
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

CLASSES: Final = (
    "ok",
    "authentication failed",
    "handshake failed",
    "login failed",
    "topic refused",
    "group refused",
    "cluster refused",
    "disconnected",
    "timed out",
)
LOGINS: Final = ("TLS", "mTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
CONDITIONS: Final = ("right", "wrong", "expired", "token", "no ACL", "no group", "revoked", "renewed", "removed")


@dataclass(frozen=True)
class Client:
    """A client, and what it does not have. `kind` is the program that runs it."""

    name: str
    kind: str
    without: frozenset[str] = frozenset()
    has_tokens: bool = False


CLIENTS: Final = (
    Client("java 1.0.2", "java", frozenset({"OAUTHBEARER"})),
    Client("java 3.9.1", "java", has_tokens=True),
    Client("java 4.3.1", "java", has_tokens=True),
    Client("librdkafka", "python", frozenset({"GSSAPI"})),
    Client("kafka-python", "python", frozenset({"GSSAPI"})),
    Client("aiokafka", "python", frozenset({"GSSAPI"})),
    Client("franz-go", "go", has_tokens=True),
    Client("kafkajs", "node", frozenset({"GSSAPI"})),
)


@dataclass(frozen=True)
class Cell:
    client: Client
    login: str
    condition: str

    @property
    def id(self) -> str:
        return f"{self.client.name}/{self.login}/{self.condition}"

    @property
    def topic(self) -> str:
        """The cell's topic. Each cell with more than two steps has a topic of its own."""
        if self.is_held:
            return self.id.replace("/", "-").replace(" ", "-")
        return "forbidden" if self.condition == "no ACL" else "open"

    @property
    def group(self) -> str:
        return f"{'forbidden' if self.condition == 'no group' else 'open'}-{self.id.replace('/', '-')}"

    @property
    def is_held(self) -> bool:
        """True if something happens between the first two steps and the others."""
        return self.condition in ("revoked", "renewed", "removed")

    @property
    def is_short(self) -> bool:
        """True if sessions have a short lifetime."""
        return self.condition in ("renewed", "removed")

    @property
    def is_token(self) -> bool:
        """True if the login is by a delegation token."""
        return self.condition == "token" or (self.condition == "expired" and self.login.startswith("SCRAM"))


def _is_there(client: Client, login: str, condition: str) -> bool:
    if login in client.without:
        return False
    if condition == "expired":
        return login != "PLAIN" and (not login.startswith("SCRAM") or client.has_tokens)
    if condition == "renewed":
        return login in ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")
    if condition == "removed":
        return login == "SCRAM-SHA-512"
    return condition != "token" or (login.startswith("SCRAM") and client.has_tokens)


def cells() -> Iterator[Cell]:
    """Every cell."""
    for client in CLIENTS:
        for login in LOGINS:
            for condition in CONDITIONS:
                if _is_there(client, login, condition):
                    yield Cell(client, login, condition)
