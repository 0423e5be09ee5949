"""DescribeUserScramCredentials (key 50), version 0: no user has credentials here (KIP-554).

`users` null or empty asks for all: the list is empty. A user by name is RESOURCE_NOT_FOUND, one that is named twice
DUPLICATE_RESOURCE. Left out: SCRAM; the credentials in a tree that Kafka has written are not read.
"""

from __future__ import annotations

from collections import Counter

from jesenska.base.errors import ErrorCode, shortened
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponseResult,
)


@handles(DescribeUserScramCredentialsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DescribeUserScramCredentialsRequest, context: Context) -> Outcome:
    response = DescribeUserScramCredentialsResponse(error_message="")
    for name, count in Counter(user.name for user in request.users or ()).items():
        if count > 1:
            error = ErrorCode.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        else:
            error, message = (
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {name}",
            )
        response.results.append(
            DescribeUserScramCredentialsResponseResult(user=name, error_code=error, error_message=shortened(message))
        )
    return response
