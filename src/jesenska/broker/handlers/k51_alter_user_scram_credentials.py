"""AlterUserScramCredentials (key 51), version 0: sets and removes SCRAM credentials (KIP-554).

The client sends the salted password, never the password. What is kept is a credential that has neither. Users are
checked one by one: a user that is named twice for one mechanism is DUPLICATE_RESOURCE, an unknown mechanism
UNSUPPORTED_SASL_MECHANISM, iterations outside 4096 to 16384 and an empty name UNACCEPTABLE_CREDENTIAL, the removal of
a credential that is not there RESOURCE_NOT_FOUND. Another broker than the controller answers NOT_CONTROLLER for each
user, as in ZooKeeper mode."""

from __future__ import annotations

from collections import Counter

from jesenska.base.errors import ErrorCode, KafkaError, shortened
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.security.scram import MAX_ITERATIONS, MECHANISM_CODES, MIN_ITERATIONS, credential_of
from jesenska.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseResult,
)


@handles(AlterUserScramCredentialsRequest, SecurityFamily)
async def handle(uses: SecurityFamily, request: AlterUserScramCredentialsRequest, context: Context) -> Outcome:
    response = AlterUserScramCredentialsResponse()
    asked = Counter((item.name, item.mechanism) for item in request.deletions)
    asked.update((item.name, item.mechanism) for item in request.upsertions)
    twice = {name for (name, _), count in asked.items() if count > 1}
    for name in dict.fromkeys(name for name, _ in asked):
        error, message = ErrorCode.NONE, None
        try:
            if not uses.controller.is_controller:
                raise KafkaError.of(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
            if name in twice:
                raise KafkaError.of(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            await uses.alter_user(name, _changes(uses, request, name))
            log_change(context, f"SCRAM credentials of user {name!a} were changed")
        except Exception as failure:
            refused = as_kafka_error(failure)
            error, message = ErrorCode(refused.code), shortened(str(refused))
        response.results.append(
            AlterUserScramCredentialsResponseResult(user=name, error_code=error, error_message=message)
        )
    return response


def _changes(uses: SecurityFamily, request: AlterUserScramCredentialsRequest, name: str) -> dict[str, str | None]:
    """The settings to write for a user; KafkaError if one of the changes is refused."""
    if not name:
        raise KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    changes: dict[str, str | None] = {}
    for item in request.deletions:
        if item.name == name:
            mechanism = _mechanism(item.mechanism)
            if mechanism not in uses.settings.user_settings(name):
                raise KafkaError.of(
                    ErrorCode.RESOURCE_NOT_FOUND,
                    f"Attempt to delete a user credential that does not exist: {name}",
                )
            changes[mechanism] = None
    for wanted in request.upsertions:
        if wanted.name == name:
            changes[_mechanism(wanted.mechanism)] = _credential(wanted)
    return changes


def _mechanism(code: int) -> str:
    name = MECHANISM_CODES.get(code)
    if name is None:
        raise KafkaError.of(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return name


def _credential(item: AlterUserScramCredentialsRequestUpsertion) -> str:
    if item.iterations < MIN_ITERATIONS:
        raise KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if item.iterations > MAX_ITERATIONS:
        raise KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salt, salted = bytes(item.salt), bytes(item.salted_password)
    return credential_of(_mechanism(item.mechanism), salted, salt, item.iterations).as_text()
