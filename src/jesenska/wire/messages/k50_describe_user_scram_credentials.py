"""DescribeUserScramCredentials (key 50), version 0: returns the SCRAM mechanisms and iterations of users, never their
secrets (KIP-554)."""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DescribeUserScramCredentialsRequestUser(Struct):
    name: str = field(STRING)


class DescribeUserScramCredentialsRequest(Message, key=50, kind=REQUEST, versions=(0, 0), flexible=0):
    users: list[DescribeUserScramCredentialsRequestUser] | None = field(
        Array(DescribeUserScramCredentialsRequestUser), nullable=0
    )


class DescribeUserScramCredentialsResponseCredential(Struct):
    mechanism: int = field(INT8)
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResponseResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    credential_infos: list[DescribeUserScramCredentialsResponseCredential] = field(
        Array(DescribeUserScramCredentialsResponseCredential)
    )


class DescribeUserScramCredentialsResponse(Message, key=50, kind=RESPONSE, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    results: list[DescribeUserScramCredentialsResponseResult] = field(Array(DescribeUserScramCredentialsResponseResult))
