"""DescribeUserScramCredentials (key 50), version 0: answers the SCRAM mechanisms of users, with their iterations
(KIP-554). If `users` is null or empty, all users that have credentials are answered. A named user without credentials
is answered RESOURCE_NOT_FOUND, and a user that is named twice DUPLICATE_RESOURCE. No answer contains a secret."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from jesenska.base.errors import ErrorCode, shortened
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.security.scram import MECHANISM_CODES, parse_credential
from jesenska.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseCredential,
    DescribeUserScramCredentialsResponseResult,
)


@handles(DescribeUserScramCredentialsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DescribeUserScramCredentialsRequest, context: Context) -> Outcome:
    response = DescribeUserScramCredentialsResponse(error_message="")
    if not request.users:
        described = ((name, _credentials(found)) for name, found in sorted(uses.settings.users().items()))
        response.results = [
            DescribeUserScramCredentialsResponseResult(user=name, credential_infos=found)
            for name, found in described
            if found
        ]
        return response
    for name, count in Counter(user.name for user in request.users).items():
        response.results.append(_described(uses, name, count))
    return response


def _described(uses: SecurityFamily, name: str, count: int) -> DescribeUserScramCredentialsResponseResult:
    if count > 1:
        return _refused(
            name,
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    found = _credentials(uses.settings.user_settings(name))
    if not found:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    return DescribeUserScramCredentialsResponseResult(user=name, credential_infos=found)


def _refused(name: str, error: ErrorCode, message: str) -> DescribeUserScramCredentialsResponseResult:
    return DescribeUserScramCredentialsResponseResult(user=name, error_code=error, error_message=shortened(message))


def _credentials(settings: Mapping[str, str]) -> list[DescribeUserScramCredentialsResponseCredential]:
    found = []
    for code, mechanism in MECHANISM_CODES.items():
        if mechanism in settings:
            with suppress(ValueError):
                iterations = parse_credential(settings[mechanism]).iterations
                found.append(DescribeUserScramCredentialsResponseCredential(mechanism=code, iterations=iterations))
    return found
