"""CreateDelegationToken (key 38), versions 0-3: makes a delegation token (KIP-48).

In version 3 a user may request a token for another user, who becomes the token's owner (KIP-373).
"""

from __future__ import annotations

from jesenska.wire.language import BYTES, INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class CreateDelegationTokenRequestRenewer(Struct):
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)


class CreateDelegationTokenRequest(Message, key=38, kind=REQUEST, versions=(0, 3), flexible=2):
    owner_principal_type: str | None = field(STRING, since=3, nullable=3)
    owner_principal_name: str | None = field(STRING, since=3, nullable=3)
    renewers: list[CreateDelegationTokenRequestRenewer] = field(Array(CreateDelegationTokenRequestRenewer))
    max_lifetime_ms: int = field(INT64)


class CreateDelegationTokenResponse(Message, key=38, kind=RESPONSE, versions=(0, 3), flexible=2):
    error_code: int = field(INT16)
    principal_type: str = field(STRING)
    principal_name: str = field(STRING)
    token_requester_principal_type: str = field(STRING, since=3)
    token_requester_principal_name: str = field(STRING, since=3)
    issue_timestamp_ms: int = field(INT64)
    expiry_timestamp_ms: int = field(INT64)
    max_timestamp_ms: int = field(INT64)
    token_id: str = field(STRING)
    hmac: memoryview | bytes = field(BYTES)
    throttle_time_ms: int = field(INT32)
