"""What users do with delegation tokens, request by request, and the outcome of each: the same on this broker and on
Apache Kafka 3.9.1 and 4.3.1."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.security.client_security import PlainClient, SaslClient, ScramSteps
from jesenska.security.scram import ScramClient
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from jesenska.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenRequestRenewer,
    CreateDelegationTokenResponse,
)
from jesenska.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from jesenska.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from jesenska.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenRequestOwner,
    DescribeDelegationTokenResponse,
)
from tests.raw_connection import ClosedByBrokerError, RawConnection

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = ("admin", "anna", "ben", "zoe")
#: Settings of every broker, besides its listeners. The password of a user is its name.
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "token-sEcret",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} "
    + " ".join(f'user_{name}="{name}"' for name in USERS)
    + ";",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "delegation.token.expiry.time.ms": "100000",
    "delegation.token.max.lifetime.ms": "900000",
}
#: With these settings a user needs rights; without them every user may do everything.
RIGHTS = {"super.users": "User:admin;User:ANONYMOUS"}
_WAIT_SECONDS = 20.0


class Outcome(NamedTuple):
    """The outcome of one request."""

    what: str
    answer: Any


@contextmanager
def logged_in(address: str, client: SaslClient, mechanism: str) -> Iterator[tuple[RawConnection, int, int]]:
    """A connection after a login, with the error of the login and the lifetime of the session in ms."""
    with RawConnection(address) as connection:
        connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1, SaslHandshakeResponse)
        message, error, lifetime_ms = client.step(None), 0, 0
        while message is not None and not error:
            answer = connection.ask(
                SaslAuthenticateRequest(auth_bytes=memoryview(message)), 1, SaslAuthenticateResponse
            )
            error, lifetime_ms = answer.error_code, answer.session_lifetime_ms
            message = None if error else client.step(bytes(answer.auth_bytes))
        yield connection, error, lifetime_ms


def user_login(name: str) -> PlainClient:
    return PlainClient(name, name)


def token_login(token_id: str, mac: bytes, mechanism: str = "SCRAM-SHA-256") -> ScramSteps:
    password = base64.b64encode(mac).decode()
    return ScramSteps(ScramClient(mechanism, token_id, password, "nonce", is_token=True))


def create(
    connection: RawConnection,
    *,
    renewers: tuple[tuple[str, str], ...] = (),
    life_ms: int = -1,
    owner: Any = (None, None),
) -> CreateDelegationTokenResponse:
    return connection.ask(
        CreateDelegationTokenRequest(
            owner_principal_type=owner[0],
            owner_principal_name=owner[1],
            renewers=[CreateDelegationTokenRequestRenewer(principal_type=a, principal_name=b) for a, b in renewers],
            max_lifetime_ms=life_ms,
        ),
        3,
        CreateDelegationTokenResponse,
    )


def _made(answer: CreateDelegationTokenResponse) -> dict[str, Any]:
    is_made = answer.error_code == 0
    return {
        "error": ErrorCode(answer.error_code).name,
        "owner": f"{answer.principal_type}:{answer.principal_name}",
        "requester": f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
        "expires after": answer.expiry_timestamp_ms - answer.issue_timestamp_ms,
        "lives": answer.max_timestamp_ms - answer.issue_timestamp_ms,
        "id": len(answer.token_id),
        "hmac": len(answer.hmac),
        "issued": is_made or answer.issue_timestamp_ms,
    }


def describe(connection: RawConnection, *owners: str, all_of_them: bool = False) -> DescribeDelegationTokenResponse:
    wanted = [DescribeDelegationTokenRequestOwner(principal_type="User", principal_name=name) for name in owners]
    return connection.ask(
        DescribeDelegationTokenRequest(owners=None if all_of_them else wanted), 3, DescribeDelegationTokenResponse
    )


def _seen(answer: DescribeDelegationTokenResponse) -> Any:
    found = sorted(
        (token.principal_name, token.token_requester_principal_name, [item.principal_name for item in token.renewers])
        for token in answer.tokens
    )
    return found if answer.error_code == 0 else ErrorCode(answer.error_code).name


def _renew(connection: RawConnection, mac: bytes, period_ms: int) -> RenewDelegationTokenResponse:
    return connection.ask(
        RenewDelegationTokenRequest(hmac=mac, renew_period_ms=period_ms), 2, RenewDelegationTokenResponse
    )


def _expire(connection: RawConnection, mac: bytes, period_ms: int) -> ExpireDelegationTokenResponse:
    return connection.ask(
        ExpireDelegationTokenRequest(hmac=mac, expiry_time_period_ms=period_ms), 2, ExpireDelegationTokenResponse
    )


def _moved(answer: Any, since_ms: float) -> Any:
    """The error, or the seconds until the new expiry in tens."""
    if answer.error_code:
        return ErrorCode(answer.error_code).name, answer.expiry_timestamp_ms
    return round((answer.expiry_timestamp_ms - since_ms) / 10_000) * 10


def until(holds: Callable[[], bool]) -> None:
    """Waits until a broker has learned of a change: it reaches brokers a moment after its answer."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the broker has not learned of the change")
        time.sleep(0.02)


def outcomes(plaintext: str, secured: str) -> Iterator[Outcome]:
    """The outcome of every request."""
    with RawConnection(plaintext) as stranger:
        yield Outcome("a stranger creates", _made(create(stranger)))
        yield Outcome("a stranger describes", _seen(describe(stranger, all_of_them=True)))
        yield Outcome("a stranger renews", _moved(_renew(stranger, b"x", 1), 0))
        yield Outcome("a stranger expires", _moved(_expire(stranger, b"x", 1), 0))
    with (
        logged_in(secured, user_login("anna"), "PLAIN") as (anna, _, _),
        logged_in(secured, user_login("ben"), "PLAIN") as (ben, _, _),
        logged_in(secured, user_login("zoe"), "PLAIN") as (zoe, _, _),
        logged_in(secured, user_login("admin"), "PLAIN") as (admin, _, _),
    ):
        yield Outcome("a short life", _made(create(anna, life_ms=50_000)))
        yield Outcome("a long life", _made(create(anna, life_ms=10**12)))
        yield Outcome("a life of 0", _made(create(anna, life_ms=0)))
        yield Outcome("a renewer that is no user", _made(create(anna, renewers=(("Group", "x"),))))
        yield Outcome("an owner without a name", _made(create(anna, owner=("User", ""))))
        yield Outcome("an owner that is oneself", _made(create(anna, owner=("User", "anna"))))
        yield Outcome("another owner", _made(create(anna, owner=("User", "ben"))))
        yield Outcome("another owner, by the administrator", _made(create(admin, owner=("User", "ben"))))
        shared = create(anna, renewers=(("User", "ben"), ("User", "ben")))
        yield Outcome("a token with a renewer", _made(shared))
        mac = bytes(shared.hmac)

        def is_known() -> bool:
            return any(token.token_id == shared.token_id for token in describe(admin, all_of_them=True).tokens)

        until(is_known)
        for name, connection in (("anna", anna), ("ben", ben), ("zoe", zoe), ("admin", admin)):
            yield Outcome(f"{name} describes all", _seen(describe(connection, all_of_them=True)))
            yield Outcome(f"{name} describes none", _seen(describe(connection)))
            yield Outcome(f"{name} describes ben's", _seen(describe(connection, "ben")))
            yield Outcome(f"{name} renews", _moved(_renew(connection, mac, 200_000), time.time() * 1000))
            yield Outcome(f"{name} expires later", _moved(_expire(connection, mac, 300_000), time.time() * 1000))
        yield Outcome("renewed by default", _moved(_renew(anna, mac, -1), time.time() * 1000))
        yield Outcome("renewed for ever", _moved(_renew(anna, mac, 10**15), time.time() * 1000))
        yield Outcome("expired for ever", _moved(_expire(anna, mac, 10**15), time.time() * 1000))
        yield Outcome("unknown renewed", _moved(_renew(anna, b"unknown", -1), 0))
        yield Outcome("unknown expired", _moved(_expire(anna, b"", -1), 0))
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            with logged_in(secured, token_login(shared.token_id, mac, mechanism), mechanism) as (
                own,
                error,
                lifetime_ms,
            ):
                yield Outcome(f"login by {mechanism}", (error, round(lifetime_ms / 100_000)))
                yield Outcome("a token by a token", _made(create(own)))
                yield Outcome("described by a token", _seen(describe(own, all_of_them=True)))
                yield Outcome("renewed by a token", _moved(_renew(own, mac, -1), 0))
        for name, client in (
            ("a wrong HMAC", token_login(shared.token_id, b"wrong")),
            ("an unknown id", token_login("unknown", mac)),
            ("no sign of a token", ScramSteps(ScramClient("SCRAM-SHA-256", shared.token_id, "x", "nonce"))),
        ):
            with logged_in(secured, client, "SCRAM-SHA-256") as (_, error, _):
                yield Outcome(f"login with {name}", error)
        yield Outcome("expired at once", _moved(_expire(ben, mac, -1), time.time() * 1000))
        until(lambda: not is_known())
        yield Outcome("renewed after its end", _moved(_renew(anna, mac, -1), 0))
        with logged_in(secured, token_login(shared.token_id, mac), "SCRAM-SHA-256") as (_, error, _):
            yield Outcome("login after its end", error)


def without_tokens(secured: str) -> Iterator[Outcome]:
    """The outcomes on a broker without a secret of tokens."""
    with logged_in(secured, user_login("anna"), "PLAIN") as (anna, _, _):
        yield Outcome("creates", _made(create(anna)))
        yield Outcome("describes", _seen(describe(anna, all_of_them=True)))
        yield Outcome("renews", _moved(_renew(anna, b"x", 1), 0))
        yield Outcome("expires", _moved(_expire(anna, b"x", 1), 0))
    try:
        with logged_in(secured, token_login("t", b"x"), "SCRAM-SHA-256") as (_, error, _):
            yield Outcome("login with a token", error)
    except ClosedByBrokerError:
        yield Outcome("login with a token", "closed")
