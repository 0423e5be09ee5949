"""Sets and removes the SCRAM credentials of a user, for kafka-configs:

    --alter --entity-type users --entity-name anna --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'
    --alter --entity-type users --entity-name anna --delete-config SCRAM-SHA-256

The broker receives the salted password, never the password."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import JesenskaError
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import ConfigChange
from jesenska.client.administration.user_administration import MECHANISM_NUMBERS, ScramPassword
from jesenska.client.cluster import Cluster
from jesenska.security.scram import MAX_ITERATIONS, MIN_ITERATIONS


def are_credentials(changes: Sequence[ConfigChange]) -> bool:
    """Returns True if all changes set or remove SCRAM credentials. Raises JesenskaError if only some of the changes
    do, or if a mechanism is unknown."""
    for item in changes:
        if item.name.startswith("SCRAM-") and item.name not in MECHANISM_NUMBERS:
            # The message does not have the value, which contains a password.
            raise JesenskaError(f"{item.name} is not a SCRAM mechanism: write {' or '.join(MECHANISM_NUMBERS)}.")
    found = [item.name in MECHANISM_NUMBERS for item in changes]
    if any(found) and not all(found):
        raise JesenskaError("Quotas and SCRAM credentials cannot be changed in one command: use two.")
    return all(found) and bool(found)


async def alter_credentials(cluster: Cluster, user: str, changes: Sequence[ConfigChange]) -> None:
    """Sets and removes SCRAM credentials of a user. Raises KafkaError if the broker refuses the changes."""
    passwords = {item.name: None if item.value is None else _password(item.name, item.value) for item in changes}
    await Admin(cluster).alter_user_credentials(user, passwords)


def _password(mechanism: str, text: str) -> ScramPassword:
    fields = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
    password, iterations = fields.pop("password", None), fields.pop("iterations", str(MIN_ITERATIONS))
    if fields or not password:
        raise JesenskaError(f"Write {mechanism}=[password=SECRET] or {mechanism}=[iterations=N,password=SECRET].")
    if not iterations.isdigit() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise JesenskaError(f"Iterations are a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}.")
    return ScramPassword(password, int(iterations))
