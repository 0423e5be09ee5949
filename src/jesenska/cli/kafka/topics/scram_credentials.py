"""Sets and removes the SCRAM credentials of a user, for kafka-configs:

    --alter --entity-type users --entity-name anna --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'
    --alter --entity-type users --entity-name anna --delete-config SCRAM-SHA-256

The broker receives the salted password, never the password."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError
from jesenska.client.administration.config_administration import ConfigChange
from jesenska.client.cluster import Cluster
from jesenska.security.scram import MAX_ITERATIONS, MECHANISM_CODES, MIN_ITERATIONS, salted_password
from jesenska.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
)

CODES: Final = {name: code for code, name in MECHANISM_CODES.items()}
_SALT_BYTES: Final = 18


def are_credentials(changes: Sequence[ConfigChange]) -> bool:
    """Returns true if all changes are of SCRAM credentials. Raises JesenskaError if only some of them are."""
    found = [item.name in CODES for item in changes]
    if any(found) and not all(found):
        raise JesenskaError("Quotas and SCRAM credentials cannot be changed in one command: use two.")
    return all(found) and bool(found)


async def alter_credentials(cluster: Cluster, user: str, changes: Sequence[ConfigChange]) -> None:
    """Sets and removes SCRAM credentials of a user. Raises KafkaError if the broker refuses the changes."""
    request = AlterUserScramCredentialsRequest()
    for item in changes:
        if item.value is None:
            request.deletions.append(AlterUserScramCredentialsRequestDeletion(name=user, mechanism=CODES[item.name]))
        else:
            request.upsertions.append(_upsertion(user, item.name, item.value))
    answer = await cluster.ask_controller(request, AlterUserScramCredentialsResponse)
    for result in answer.results:
        if result.error_code != ErrorCode.NONE:
            raise KafkaError.of(result.error_code, result.error_message or f"The credentials of {user!r} stay.")


def _upsertion(user: str, mechanism: str, text: str) -> AlterUserScramCredentialsRequestUpsertion:
    fields = dict(part.strip().split("=", 1) for part in text.split(",") if "=" in part)
    password, iterations = fields.pop("password", None), fields.pop("iterations", str(MIN_ITERATIONS))
    if fields or not password:
        raise JesenskaError(f"Write {mechanism}=[password=SECRET] or {mechanism}=[iterations=N,password=SECRET].")
    if not iterations.isdigit() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise JesenskaError(f"Iterations are a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}.")
    salt = os.urandom(_SALT_BYTES)
    return AlterUserScramCredentialsRequestUpsertion(
        name=user,
        mechanism=CODES[mechanism],
        iterations=int(iterations),
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, int(iterations)),
    )
