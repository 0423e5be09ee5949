"""AlterUserScramCredentials (key 51), version 0: sets and removes SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from jesenska.wire.language import BYTES, INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class AlterUserScramCredentialsRequestDeletion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class AlterUserScramCredentialsRequestUpsertion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: memoryview | bytes = field(BYTES)
    salted_password: memoryview | bytes = field(BYTES)


class AlterUserScramCredentialsRequest(Message, key=51, kind=REQUEST, versions=(0, 0), flexible=0):
    deletions: list[AlterUserScramCredentialsRequestDeletion] = field(Array(AlterUserScramCredentialsRequestDeletion))
    upsertions: list[AlterUserScramCredentialsRequestUpsertion] = field(
        Array(AlterUserScramCredentialsRequestUpsertion)
    )


class AlterUserScramCredentialsResponseResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class AlterUserScramCredentialsResponse(Message, key=51, kind=RESPONSE, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResponseResult] = field(Array(AlterUserScramCredentialsResponseResult))
