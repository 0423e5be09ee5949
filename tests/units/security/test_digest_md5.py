"""DIGEST-MD5: client and server agree, Java's messages are understood, and everything else is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.security.digest_md5 import MESSAGE_MAX_BYTES, DigestMd5Client, DigestMd5Server
from jesenska.security.sasl import SaslError

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def _server(nonce: str = "server-nonce") -> DigestMd5Server:
    return DigestMd5Server({"kafka": "kafkasecret"}, nonce, "nobody knows")


@given(_TEXTS, _TEXTS)
def test_a_client_with_the_right_password_logs_in_and_knows_the_server(user: str, password: str) -> None:
    client = DigestMd5Client(user, password, "c")
    server = DigestMd5Server({user: password}, "s", "nobody knows")
    first = client.step(None)
    assert first == b""
    response = client.step(server.step(first))
    assert response is not None
    assert client.step(server.step(response)) is None
    assert server.user == user


def test_the_messages_of_java_are_understood() -> None:
    """An exchange that was recorded between Apache ZooKeeper 3.8.4 and its own client."""
    nonce = "K/HbIntTomIpkad+6CCWaks8Ifxt0XNgRXoqaxZw"
    server = _server(nonce)
    assert server.step(b"") == f'realm="zk-sasl-md5",nonce="{nonce}",charset=utf-8,algorithm=md5-sess'.encode()
    response = (
        f'charset=utf-8,username="kafka",realm="zk-sasl-md5",nonce="{nonce}",nc=00000001,'
        'cnonce="p1OE7KjaqSWxEfuAs2duNEzTiAESfdrHb2deOMne",digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,'
        'response=94e7655e949f5919cb05b79ba24507c9,qop=auth,authzid="kafka"'
    )
    assert server.step(response.encode()) == b"rspauth=246b810ae7fee480ba3fe3e13052f96e"
    assert server.user == "kafka"


@pytest.mark.parametrize(("user", "password"), [("kafka", "wrong"), ("stranger", "kafkasecret")])
def test_a_wrong_login_is_refused(user: str, password: str) -> None:
    client, server = DigestMd5Client(user, password, "c"), _server()
    response = client.step(server.step(b""))
    assert response is not None
    with pytest.raises(SaslError, match="unknown user or wrong password"):
        server.step(response)
    assert server.user is None


def test_a_recorded_response_is_refused_later_and_in_another_exchange() -> None:
    client, server = DigestMd5Client("kafka", "kafkasecret", "c"), _server()
    response = client.step(server.step(b""))
    assert response is not None
    server.step(response)
    for other in (server, _server("another-nonce")):
        if other is not server:
            other.step(b"")
        with pytest.raises(SaslError):
            other.step(response)


def test_a_failed_attempt_uses_up_the_challenge() -> None:
    server = _server()
    challenge = server.step(b"")
    wrong, right = DigestMd5Client("kafka", "wrong", "c"), DigestMd5Client("kafka", "kafkasecret", "c")
    for client in (wrong, right):
        client.step(None)
        response = client.step(challenge)
        assert response is not None
        with pytest.raises(SaslError):
            server.step(response)
    assert server.user is None


@pytest.mark.parametrize(
    "change",
    [
        (b'digest-uri="zookeeper/zk-sasl-md5"', b'digest-uri="kafka/zk-sasl-md5"'),
        (b'realm="zk-sasl-md5"', b'realm="other"'),
        (b"nc=00000001", b"nc=00000002"),
        (b"qop=auth", b"qop=auth-int"),
        (b'cnonce="c"', b'cnonce=""'),
        (b"nc=00000001", b"nc=00000001,nc=00000001"),
        (b"charset=utf-8", b"charset"),
        (b"charset=utf-8", b"\xff"),
        (b"charset=utf-8", b'charset="'),
        (b"charset=utf-8", b"charset=" + b"x" * MESSAGE_MAX_BYTES),
    ],
)
def test_a_changed_response_is_refused(change: tuple[bytes, bytes]) -> None:
    client, server = DigestMd5Client("kafka", "kafkasecret", "c"), _server()
    response = client.step(server.step(b""))
    assert response is not None
    assert change[0] in response
    with pytest.raises(SaslError):
        server.step(response.replace(*change))
    assert server.user is None


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_without_another_error(message: bytes) -> None:
    server = _server()
    server.step(b"")
    with pytest.raises(SaslError):
        server.step(message)
    client = DigestMd5Client("kafka", "kafkasecret", "c")
    client.step(None)
    with pytest.raises(SaslError):
        client.step(message)


def test_a_server_without_the_password_is_not_trusted() -> None:
    client, server = DigestMd5Client("kafka", "kafkasecret", "c"), _server()
    response = client.step(server.step(b""))
    assert response is not None
    proof = server.step(response)
    forged = re.sub(rb"[0-9a-f]$", b"g", proof)
    assert forged != proof
    with pytest.raises(SaslError, match="does not know the password"):
        client.step(forged)


def test_no_secret_is_shown() -> None:
    assert "kafkasecret" not in repr(DigestMd5Client("kafka", "kafkasecret", "c"))
