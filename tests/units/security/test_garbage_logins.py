"""Garbage and almost right messages for each login: it is refused by the error that a login's failure has, or, where
nothing that counts was changed, its user is let in."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.clock import ManualClock
from jesenska.base.errors import InvalidConfigError
from jesenska.net.connection import FramedConnection, ReadBuffer
from jesenska.net.tls_transport import HandshakeTurns, tls_server
from jesenska.security.authority import new_authority
from jesenska.security.jaas import parse_login, parse_login_file
from jesenska.security.mechanisms import PlainServer, ScramExchange, is_one_of
from jesenska.security.oauthbearer.claims import TokenError
from jesenska.security.sasl import SaslError, parse_plain, plain_message
from jesenska.security.scram import MECHANISMS, ScramClient, make_credential
from jesenska.security.tls import TlsSettings, server_context
from tests.profiles import examples
from tests.units.security.test_oauthbearer import CLAIMS, signed, validator

_KNOWN = {mechanism: make_credential(mechanism, "right", b"salt" * 4, 4096) for mechanism in MECHANISMS}
_TOKEN = signed(CLAIMS)


def _edited(data: bytes, place: int, kind: int, inserted: bytes) -> bytes:
    at = place % (len(data) + 1)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + inserted + data[at:]
    if kind == 2:
        return data[:at] + data[at + len(inserted) :]
    return data[:at] + inserted + data[at + len(inserted) :]


_EDITS = st.tuples(st.integers(0, 4000), st.integers(0, 3), st.binary(min_size=1, max_size=12))


def _exchange(mechanism: str) -> ScramExchange:
    return ScramExchange(
        mechanism,
        "server",
        lambda name, user: _KNOWN[name] if user == "anna" else None,
        lambda *_: None,
        b"secret",
        ManualClock().now_ms,
    )


@given(mechanism=st.sampled_from(sorted(MECHANISMS)), first=_EDITS, final=_EDITS, which=st.integers(0, 2))
def test_a_changed_message_of_scram_lets_nobody_in(
    mechanism: str, first: tuple[int, int, bytes], final: tuple[int, int, bytes], which: int
) -> None:
    server, client = _exchange(mechanism), ScramClient(mechanism, "anna", "right", "client")
    hello = client.first() if which == 1 else _edited(client.first(), *first)
    proof = b""
    with suppress(SaslError):
        challenge = server.step(hello)
        proof = client.final(challenge)
        server.step(proof if which == 0 else _edited(proof, *final))
    if server.principal is not None:
        # Either nothing was changed, or the bits of base64 that stand for nothing.
        assert hello == client.first()
        assert server.principal.name == "anna"
        sent = proof if which == 0 else _edited(proof, *final)
        assert _proof_in(sent) == _proof_in(proof)


def _proof_in(message: bytes) -> bytes:
    return base64.b64decode(message.rpartition(b"p=")[2])


@given(messages=st.lists(st.binary(max_size=300), max_size=4))
def test_garbage_is_no_login_of_scram(messages: list[bytes]) -> None:
    server = _exchange("SCRAM-SHA-256")
    for message in messages:
        with suppress(SaslError):
            server.step(message)
    assert server.principal is None


@given(edit=_EDITS)
def test_a_changed_message_of_plain_lets_nobody_in(edit: tuple[int, int, bytes]) -> None:
    server = PlainServer(lambda user, password: is_one_of({"anna": "right"}, user, password))
    message = _edited(plain_message("anna", "right"), *edit)
    try:
        server.step(message)
    except SaslError:
        assert server.principal is None
    else:
        login = parse_plain(message)
        assert (login.user, login.password) == ("anna", "right")


@given(edit=_EDITS)
def test_a_changed_token_is_refused(edit: tuple[int, int, bytes]) -> None:
    changed = _edited(_TOKEN.encode(), *edit).decode("latin-1")
    with suppress(TokenError):
        assert validator()(changed).user == "anna"
        assert _bytes_of(changed) == _bytes_of(_TOKEN)


def _bytes_of(token: str) -> list[bytes]:
    return [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.split(".")]


@given(st.one_of(st.text(max_size=200), st.text(alphabet='a= ;"{}\\/*#\n', max_size=200)))
def test_any_text_is_a_login_of_jaas_or_is_refused(text: str) -> None:
    for parse in (parse_login, parse_login_file):
        with suppress(InvalidConfigError):
            parse(text)


_AUTHORITY = new_authority("garbage", datetime.now(UTC))
_CONTEXT = server_context(
    TlsSettings(
        keystore_type="PEM",
        keystore_key=_AUTHORITY.issue("broker", ["localhost"], datetime.now(UTC)),
        truststore_certificates=_AUTHORITY.pem,
        client_auth="required",
    )
)


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@settings(max_examples=examples(times=0.5))
@given(edits=st.lists(_EDITS, max_size=3), garbage=st.binary(max_size=100))
def test_changed_records_of_tls_end_the_connection_without_a_frame(
    edits: list[tuple[int, int, bytes]], garbage: bytes
) -> None:
    data = _hello()
    for edit in edits:
        data = _edited(data, *edit)

    async def serve() -> tuple[list[bytes], bool]:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        frames: list[bytes] = []
        ended = asyncio.Event()

        def taken(view: memoryview) -> bool:
            frames.append(bytes(view))
            return True

        transport_for = tls_server(lambda: _CONTEXT, HandshakeTurns(loop), lambda _: None)
        connection = FramedConnection(loop, ours, ReadBuffer(), 1000, taken, lambda _: ended.set(), None, transport_for)
        with theirs:
            theirs.sendall(data + garbage)
            theirs.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(20):
                await ended.wait()
        return frames, connection.closed

    assert asyncio.run(serve()) == ([], True)
