"""AlterUserScramCredentials (key 51), version 0: sets and removes SCRAM credentials (KIP-554).

The client sends the salted password, never the password itself. The stored credential contains keys that are derived
from the salted password, but not the salted password. A user is answered with the error of its first refused change:

  DUPLICATE_RESOURCE            the request names a mechanism of the user twice
  UNSUPPORTED_SASL_MECHANISM    unknown mechanism
  UNACCEPTABLE_CREDENTIAL       iterations outside 4096 to 16384, or an empty user name
  RESOURCE_NOT_FOUND            removal of a credential that does not exist

A broker that is not the controller answers NOT_CONTROLLER for each user, as in ZooKeeper mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jesenska.base.errors import ErrorCode, KafkaError, shortened
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.metadata import paths
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
    for name, (changes, refused) in _changes(uses, request).items():
        error, message = ErrorCode.NONE, None
        try:
            if not uses.controller.is_controller:
                raise KafkaError.of(ErrorCode.NOT_CONTROLLER, "This broker is not the controller.")
            if refused is not None:
                raise refused
            await uses.alter_client(f"users/{paths.sanitize(name)}", changes)
            log_change(context, f"SCRAM credentials of user {name!a} were changed")
        except Exception as failure:
            kafka_error = as_kafka_error(failure)
            error, message = ErrorCode(kafka_error.code), shortened(str(kafka_error))
        response.results.append(
            AlterUserScramCredentialsResponseResult(user=name, error_code=error, error_message=message)
        )
    return response


class _Wanted(NamedTuple):
    """The credentials to write for a user, by mechanism, and the error of the user's first refused change. None
    instead of a credential removes the stored credential."""

    changes: dict[str, str | None]
    refused: KafkaError | None


def _changes(uses: SecurityFamily, request: AlterUserScramCredentialsRequest) -> dict[str, _Wanted]:
    """Returns the changes by user: removals first, then new credentials, in the order of the request. After a user's
    first refused change, its further changes are ignored."""
    found: dict[str, _Wanted] = {}

    def take(name: str, code: int, made: Callable[[str], str | None]) -> None:
        wanted = found.setdefault(name, _Wanted({}, None))
        if wanted.refused is not None:
            return
        try:
            mechanism = _mechanism(name, code)
            if mechanism in wanted.changes:
                raise KafkaError.of(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            wanted.changes[mechanism] = made(mechanism)
        except KafkaError as refused:
            found[name] = wanted._replace(refused=refused)

    for item in request.deletions:
        take(item.name, item.mechanism, partial(_removed, uses, item.name))
    for upsertion in request.upsertions:
        take(upsertion.name, upsertion.mechanism, partial(_credential, upsertion))
    return found


def _mechanism(name: str, code: int) -> str:
    if not name:
        raise KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISM_CODES.get(code)
    if mechanism is None:
        raise KafkaError.of(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _removed(uses: SecurityFamily, name: str, mechanism: str) -> None:
    if mechanism not in uses.settings.user_settings(name):
        raise KafkaError.of(
            ErrorCode.RESOURCE_NOT_FOUND, f"Attempt to delete a user credential that does not exist: {name}"
        )


def _credential(item: AlterUserScramCredentialsRequestUpsertion, mechanism: str) -> str:
    if item.iterations < MIN_ITERATIONS:
        raise KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if item.iterations > MAX_ITERATIONS:
        raise KafkaError.of(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return credential_of(mechanism, bytes(item.salted_password), bytes(item.salt), item.iterations).as_text()
