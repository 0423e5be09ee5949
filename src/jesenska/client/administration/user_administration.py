"""Administers the SCRAM credentials of users (KIP-554). Requests go to the controller. The client salts and hashes
each password first, so the controller never receives a plain password."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.client.administration.administration import Administration
from jesenska.security.scram import MECHANISM_CODES, MIN_ITERATIONS, salted_password
from jesenska.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
)

#: The numbers of SCRAM mechanisms in requests, by their names.
MECHANISM_NUMBERS: Final = {name: code for code, name in MECHANISM_CODES.items()}
_SALT_BYTES: Final = 18


class ScramPassword(NamedTuple):
    """A password, and the number of rounds in which it is salted: 4096 to 16384."""

    password: str
    iterations: int = MIN_ITERATIONS

    def __repr__(self) -> str:
        return f"ScramPassword(iterations={self.iterations})"


class UserAdministration(Administration):
    """Methods for SCRAM credentials of users, of the class `Admin`."""

    async def alter_user_credentials(self, user: str, passwords: Mapping[str, ScramPassword | None]) -> None:
        """Sets the passwords of a user, by SCRAM mechanism. The value None removes the user's credential of that
        mechanism. Raises KafkaError if the controller refuses the changes."""
        request = AlterUserScramCredentialsRequest()
        for mechanism, given in passwords.items():
            code = MECHANISM_NUMBERS[mechanism]
            if given is None:
                request.deletions.append(AlterUserScramCredentialsRequestDeletion(name=user, mechanism=code))
                continue
            salt = os.urandom(_SALT_BYTES)
            request.upsertions.append(
                AlterUserScramCredentialsRequestUpsertion(
                    name=user,
                    mechanism=code,
                    iterations=given.iterations,
                    salt=salt,
                    salted_password=salted_password(mechanism, given.password, salt, given.iterations),
                )
            )
        answer = await self.cluster.ask_controller(request, AlterUserScramCredentialsResponse)
        for result in answer.results:
            if result.error_code != ErrorCode.NONE:
                raise KafkaError.of(
                    result.error_code, result.error_message or f"The credentials of {user!r} are not changed."
                )
