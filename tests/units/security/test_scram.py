"""SCRAM: the exchange of RFC 7677, and the refusals of each side."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from jesenska.base.clock import ManualClock
from jesenska.security.mechanisms import PlainServer, ScramExchange, is_one_of
from jesenska.security.principal import Principal
from jesenska.security.sasl import SaslError, plain_message
from jesenska.security.scram import (
    MECHANISMS,
    ScramClient,
    ScramCredential,
    ScramServer,
    make_credential,
    parse_credential,
)

_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def test_the_exchange_of_rfc_7677() -> None:
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    server = ScramServer("SCRAM-SHA-256", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert server.first(client.first()) == "user"
    challenge = server.challenge(make_credential("SCRAM-SHA-256", "pencil", _SALT, 4096))
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.final(challenge)
    assert final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    signature = server.final(final)
    assert signature == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.finished(signature)


def exchange(mechanism: str, users: dict[str, ScramCredential]) -> ScramExchange:
    return ScramExchange(
        mechanism, "server", lambda _, user: users.get(user), lambda *_: None, b"secret", ManualClock().now_ms
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["anna", "an,na=b", "Änna"])
def test_a_user_with_the_password_is_known(mechanism: str, user: str) -> None:
    server = exchange(mechanism, {user: make_credential(mechanism, "pä ss", _SALT, 4096)})
    client = ScramClient(mechanism, user, "pä ss", "client")
    final = client.final(server.step(client.first()))
    assert server.principal is None
    client.finished(server.step(final))
    assert server.principal == Principal("User", user)


@pytest.mark.parametrize(("user", "password"), [("anna", "wrong"), ("ben", "right"), ("", "right")])
def test_a_wrong_user_and_a_wrong_password_are_refused_at_the_same_step(user: str, password: str) -> None:
    server = exchange("SCRAM-SHA-256", {"anna": make_credential("SCRAM-SHA-256", "right", _SALT, 4096)})
    client = ScramClient("SCRAM-SHA-256", user, password, "client")
    if not user:
        with pytest.raises(SaslError):
            server.step(client.first())
        return
    final = client.final(server.step(client.first()))
    with pytest.raises(SaslError):
        server.step(final)
    assert server.principal is None


def test_a_user_that_is_not_known_has_the_same_salt_each_time() -> None:
    first = ScramClient("SCRAM-SHA-256", "ben", "x", "client").first()
    challenges = {exchange("SCRAM-SHA-256", {}).step(first) for _ in range(2)}
    assert len(challenges) == 1


def test_a_server_without_the_password_is_not_trusted() -> None:
    client = ScramClient("SCRAM-SHA-256", "anna", "right", "client")
    server = ScramServer("SCRAM-SHA-256", "server")
    server.first(client.first())
    client.final(server.challenge(make_credential("SCRAM-SHA-256", "right", _SALT, 4096)))
    for answer in (b"v=AAAA", b"e=other-error", b"", b"v=%"):
        with pytest.raises(SaslError):
            client.finished(answer)


@pytest.mark.parametrize(
    "message",
    [
        b"r=other,s=AAAA,i=4096",
        b"r=client,s=AAAA,i=4096",
        b"r=clientserver,s=AAAA,i=1",
        b"r=clientserver,s=AAAA,i=999999999",
        b"r=clientserver,s=%,i=4096",
        b"",
        b"\xff",
    ],
)
def test_a_client_refuses_a_first_message_that_is_not_for_it(message: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "anna", "right", "client")
    with pytest.raises(SaslError):
        client.final(message)


def _without_nonce(final: bytes) -> bytes:
    return final.replace(b"r=client", b"r=other1")


def _other_channel(final: bytes) -> bytes:
    return final.replace(b"c=biws", b"c=eSws")


def _short_proof(final: bytes) -> bytes:
    return final[:-8] + b"="


@pytest.mark.parametrize(
    "change", [_without_nonce, _other_channel, _short_proof, lambda final: b"", lambda final: b"p"]
)
def test_a_changed_final_message_is_refused(change: Callable[[bytes], bytes]) -> None:
    server = exchange("SCRAM-SHA-256", {"anna": make_credential("SCRAM-SHA-256", "right", _SALT, 4096)})
    client = ScramClient("SCRAM-SHA-256", "anna", "right", "client")
    final = client.final(server.step(client.first()))
    with pytest.raises(SaslError):
        server.step(change(final))


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"p=tls-unique,,n=a,r=b", b"n,a=other,n=anna,r=x", b"n,,n=a", b"\xff\xfe", b"n" * 5000]
)
def test_a_first_message_that_is_malformed_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        exchange("SCRAM-SHA-256", {}).step(message)


def test_a_credential_is_kept_as_kafka_keeps_it_and_shows_no_secret() -> None:
    credential = make_credential("SCRAM-SHA-512", "right", _SALT, 8192)
    text = credential.as_text()
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert text.endswith(",iterations=8192")
    assert parse_credential(text) == credential
    assert repr(credential) == "ScramCredential(iterations=8192)"
    for damaged in ("", "salt=x", text.replace("iterations=8192", "iterations=many"), text.replace("salt=W", "salt=%")):
        with pytest.raises(ValueError):
            parse_credential(damaged)


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (plain_message("anna", "right"), "anna"),
        (b"anna\0anna\0right", "anna"),
        (plain_message("anna", "wrong"), None),
        (plain_message("ben", "right"), None),
        (b"ben\0anna\0right", None),
        (b"anna\0right", None),
        (b"\0anna\0", None),
        (b"\0\0right", None),
        (b"\0anna\0right\0", None),
        (b"\xff\0a\0b", None),
        (b"", None),
    ],
)
def test_plain_knows_a_user_by_the_password(message: bytes, user: str | None) -> None:
    server = PlainServer(lambda user, password: is_one_of({"anna": "right"}, user, password))
    if user is None:
        with pytest.raises(SaslError):
            server.step(message)
        assert server.principal is None
    else:
        assert server.step(message) == b""
        assert server.principal == Principal("User", user)
