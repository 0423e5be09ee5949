"""DescribeDelegationToken (key 41), versions 0-3: lists delegation tokens (KIP-48).

Version 3 also returns the user who requested each token (KIP-373).
"""

from __future__ import annotations

from jesenska.wire.language import BYTES, INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DescribeDelegationTokenRequestOwner(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribeDelegationTokenRequest(Message, key=41, kind=REQUEST, versions=(0, 3), flexible=2):
    owners: list[DescribeDelegationTokenRequestOwner] | None = field(
        Array(DescribeDelegationTokenRequestOwner), nullable=0
    )


class DescribeDelegationTokenResponseRenewer(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class DescribeDelegationTokenResponseToken(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3)
    token_requester_principal_name: str = field(STRING, since=3)
    issue_timestamp: int = field(INT64)
    expiry_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    token_id: str = field(STRING)
    hmac: memoryview | bytes = field(BYTES)
    renewers: list[DescribeDelegationTokenResponseRenewer] = field(Array(DescribeDelegationTokenResponseRenewer))


class DescribeDelegationTokenResponse(Message, key=41, kind=RESPONSE, versions=(0, 3), flexible=2):
    error_code: int = field(INT16)
    tokens: list[DescribeDelegationTokenResponseToken] = field(Array(DescribeDelegationTokenResponseToken))
    throttle_time_ms: int = field(INT32)
