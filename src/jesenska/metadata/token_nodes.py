"""Delegation tokens in the metadata tree (ZooKeeper's nodes): the content of the tokens' nodes, and the nodes that
announce a change. They have the form in which Kafka 3.9.1 writes them.

    /delegation_token/tokens/ID                     {"issueTimestamp":1,"renewers":["User%3Aben"],"tokenRequester":
                                                    "User%3Aanna","tokenId":"ID","owner":"User%3Aanna",
                                                    "expiryTimestamp":2,"maxTimestamp":3,"version":3}
    /delegation_token/token_changes/token_change_N  ID

Versions 1 and 2 have no field `tokenRequester`, because only the owner of a token could request it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jesenska.base.errors import InvalidConfigError
from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, dump_json, load_json
from jesenska.security.delegation_tokens import DelegationToken
from jesenska.security.principal import Principal, parse_principal

_VERSION: Final = 3
#: The path, without its number, of the sequential node that announces a change.
CHANGE_PREFIX: Final = f"{paths.TOKEN_CHANGES}/token_change_"


def token_path(token_id: str) -> str:
    """Returns the path of a token's node."""
    return f"{paths.TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    return dump_json(
        {
            "issueTimestamp": token.issued_at_ms,
            "renewers": [_text(renewer) for renewer in token.renewers],
            "tokenRequester": _text(token.requester),
            "tokenId": token.token_id,
            "owner": _text(token.owner),
            "expiryTimestamp": token.expires_at_ms,
            "maxTimestamp": token.max_at_ms,
            "version": _VERSION,
        }
    )


def decode_token(data: bytes) -> DelegationToken:
    """Returns the token in the content of a token's node. Raises NodeFormatError if the content cannot be read."""
    value = load_json(data)
    if value.get("version") not in (1, 2, _VERSION):
        raise NodeFormatError(f"delegation tokens of version {value.get('version')} are not known")
    token_id, renewers = value.get("tokenId"), value.get("renewers")
    if not isinstance(token_id, str) or not token_id or not isinstance(renewers, list):
        raise NodeFormatError("tokenId or renewers is missing")
    owner = _principal(value.get("owner"))
    requester = value.get("tokenRequester")
    return DelegationToken(
        token_id,
        owner,
        owner if requester is None else _principal(requester),
        tuple(_principal(renewer) for renewer in renewers),
        _time(value, "issueTimestamp"),
        _time(value, "expiryTimestamp"),
        _time(value, "maxTimestamp"),
    )


def _text(principal: Principal) -> str:
    return paths.sanitize(str(principal))


def _principal(value: Any) -> Principal:
    if not isinstance(value, str):
        raise NodeFormatError("a principal is missing")
    try:
        return parse_principal(paths.desanitize(value))
    except InvalidConfigError as error:
        raise NodeFormatError(str(error)) from error


def _time(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int):
        raise NodeFormatError(f"{name} is missing or not a number")
    return found
