"""Both sides of an exchange of GSSAPI against contexts that are made up, and the settings of its logins."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidConfigError
from jesenska.broker.requests.authentication import Authentication, ListenerSecurity, State
from jesenska.broker.stages.listener_mechanisms import JaasFile
from jesenska.client.client_config import client_config
from jesenska.config.settings.client_settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.table import Table
from jesenska.security.jaas import parse_login
from jesenska.security.kerberos.exchange import GssapiClient, GssapiServer
from jesenska.security.kerberos.gssapi_library import GssapiError, Library, use_configuration
from jesenska.security.kerberos.logins import server_of, service_name, ticket_login
from jesenska.security.kerberos.principal_rules import PrincipalRules
from jesenska.security.mechanisms import PlainServer
from jesenska.security.principal import Principal
from jesenska.security.sasl import SaslError

_OFFER = b"\1\0\0\0"


class MadeUp:
    """A context that takes the tokens of `answers`, and wraps by a W before a message."""

    def __init__(self, answers: Mapping[bytes | None, bytes], steps: int = 1, peer: str = "anna@SHOP") -> None:
        self._answers, self._steps = answers, steps
        self.peer: str | None = peer
        self.is_established = False

    def step(self, token: bytes | None) -> bytes:
        if token not in self._answers:
            raise GssapiError("Invalid token was supplied")
        self._steps -= 1
        self.is_established = self._steps == 0
        return self._answers[token]

    def wrap(self, message: bytes) -> bytes:
        return b"W" + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"W"):
            raise GssapiError("Invalid token was supplied")
        return token[1:]


def server(answer: bytes = b"proof", steps: int = 1, peer: str = "anna@SHOP") -> GssapiServer:
    return GssapiServer(MadeUp({b"ticket": answer}, steps, peer), PrincipalRules(["DEFAULT"], "SHOP").user_of)


def test_a_client_that_asks_for_a_proof_gets_it_and_then_the_offer() -> None:
    found = server()
    assert found.step(b"ticket") == b"proof"
    assert found.step(b"") == b"W" + _OFFER
    before = found.principal
    assert found.step(b"W" + _OFFER) is None
    assert (before, found.principal) == (None, Principal("User", "anna"))
    assert (found.is_token, found.lifetime_ms, found.failure) == (False, None, None)


def test_a_client_that_asks_for_no_proof_gets_the_offer_at_once() -> None:
    """Java's client does so."""
    found = server(answer=b"")
    assert found.step(b"ticket") == b"W" + _OFFER
    assert found.step(b"W" + _OFFER + b"anna@SHOP") is None
    assert found.principal == Principal("User", "anna")


@pytest.mark.parametrize("authorization_id", [b"", b"anna", b"anna@SHOP", b"kafka@localhost", b"zoe", b"\xff"])
def test_the_authorization_id_does_not_change_the_user(authorization_id: bytes) -> None:
    found = server(answer=b"")
    found.step(b"ticket")
    found.step(b"W\1\0\xff\xff" + authorization_id)
    assert found.principal == Principal("User", "anna")


@pytest.mark.parametrize(
    ("messages", "cause"),
    [
        ([b""], "an empty message"),
        ([b"no ticket"], "Invalid token"),
        ([b"ticket", b"more"], "where an empty one is expected"),
        ([b"ticket", b"", b""], "Invalid token"),
        ([b"ticket", b"", _OFFER], "Invalid token"),
        ([b"ticket", b"", b"W"], "a security layer"),
        ([b"ticket", b"", b"W\1\0\0"], "a security layer"),
        ([b"ticket", b"", b"W\0\0\0\0"], "a security layer"),
        ([b"ticket", b"", b"W\4\0\0\0"], "a security layer"),
        ([b"ticket", b"", b"W\3\0\0\0"], "a security layer"),
        ([b"ticket", b"", b"W" + _OFFER, b""], "after the last one"),
    ],
)
def test_a_message_that_does_not_belong_ends_the_exchange(messages: list[bytes], cause: str) -> None:
    found = server()
    *before, last = messages
    for message in before:
        found.step(message)
    with pytest.raises(SaslError, match=cause):
        found.step(last)


def test_a_context_that_goes_on_and_on_is_given_up() -> None:
    found = server(steps=-1)
    for _ in range(4):
        found.step(b"ticket")
    with pytest.raises(SaslError, match="too many tokens"):
        found.step(b"ticket")


def test_a_principal_without_a_rule_is_refused() -> None:
    found = server(answer=b"", peer="anna@OTHER")
    found.step(b"ticket")
    with pytest.raises(SaslError, match=r"no rule .* matches 'anna@OTHER'"):
        found.step(b"W" + _OFFER)
    assert found.principal is None


@given(st.lists(st.sampled_from([b"", b"ticket", b"W", b"W" + _OFFER, _OFFER, b"W\2\0\0\0", b"x"]), max_size=6))
def test_only_the_whole_exchange_gives_a_user(messages: list[bytes]) -> None:
    found = server()
    taken = []
    for message in messages:
        try:
            found.step(message)
        except SaslError:
            break
        taken.append(message)
    assert (found.principal is not None) == (taken == [b"ticket", b"", b"W" + _OFFER])


def test_our_client_talks_to_our_server() -> None:
    client, other = GssapiClient(MadeUp({None: b"ticket", b"proof": b""}, 2)), server()
    message, messages = client.step(None), 0
    while message is not None:
        message = client.step(other.step(message) or b"")
        messages += 1
    assert (messages, other.principal) == (3, Principal("User", "anna"))


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        ([b"no proof"], "Invalid token"),
        ([b""], "Invalid token"),
        ([b"proof", b"\1\0\0\0"], "Invalid token"),
        ([b"proof", b"W"], "a security layer"),
        ([b"proof", b"W\6\0\0\0"], "a security layer"),
        ([b"proof", b"W\7\0\0\0", b"x"], "after the last one"),
    ],
)
def test_a_client_does_not_go_on_with_a_server_that_it_cannot_trust(answers: list[bytes], cause: str) -> None:
    client = GssapiClient(MadeUp({None: b"ticket", b"proof": b""}, 2))
    client.step(None)
    *before, last = answers
    for answer in before:
        client.step(answer)
    with pytest.raises(SaslError, match=cause):
        client.step(last)


# --- the states of a connection ----------------------------------------------------------------------------------


def connection(**servers: Callable[[], GssapiServer | PlainServer]) -> Authentication:
    return Authentication(ListenerSecurity("SASL_PLAINTEXT", mechanisms=servers), lambda: 0.0)


def test_a_first_frame_that_is_a_token_begins_an_exchange_where_gssapi_is_served() -> None:
    for first, begins in ((b"\x60\x82", True), (b"", False), (b"\0\x12", False), (b"\x00\x60", False)):
        login = connection(GSSAPI=server)
        assert login.begins_with(memoryview(first)) is begins
        assert login.state is (State.TOKENS if begins else State.HANDSHAKE)
    other = connection(PLAIN=lambda: PlainServer(lambda *_: True))
    assert not other.begins_with(memoryview(b"\x60\x82"))
    assert other.state is State.HANDSHAKE


def test_a_token_begins_no_exchange_in_another_state() -> None:
    for begin in (0, 1):
        login = connection(GSSAPI=server)
        login.handshake("GSSAPI", begin)
        state = login.state
        assert not login.begins_with(memoryview(b"\x60\x82"))
        assert login.state is state
    with pytest.raises(SaslError):
        login.step(b"x")
    assert not login.begins_with(memoryview(b"\x60\x82"))
    assert login.state is State.FAILED


# --- settings ----------------------------------------------------------------------------------------------------

_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
_BY_KEY_TAB = f'{_MODULE} useKeyTab=true keyTab="/nowhere" principal="anna";'


@pytest.mark.parametrize("table", [ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS], ids=lambda table: table.kind)
@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({}, r"sasl\.kerberos\.service\.name"),
        ({"sasl.jaas.config": f"{_MODULE};"}, "needs tickets"),
        ({"sasl.jaas.config": f'{_MODULE} useKeyTab=true principal="anna";'}, "keyTab"),
        ({"sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;"}, "Krb5LoginModule"),
        (
            {
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": f'{_MODULE} useTicketCache=true serviceName="web";',
            },
            "differ",
        ),
    ],
)
def test_a_client_whose_login_cannot_be_used_is_told_what_to_set(
    table: Table, settings: dict[str, str], cause: str
) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "sasl.jaas.config": _BY_KEY_TAB}
    with pytest.raises(InvalidConfigError, match=cause) as caught:
        client_config(table, given | settings)
    assert "\n" not in str(caught.value)


def test_the_name_of_the_service_is_the_setting_or_the_option() -> None:
    named = parse_login(f'{_MODULE} serviceName="kafka";')
    other = parse_login(f"{_MODULE};")
    assert service_name(named, None) == "kafka"
    assert service_name(named, "kafka") == "kafka"
    assert service_name(other, "kafka") == "kafka"
    assert service_name(other, None) is None


def test_a_server_whose_principal_is_another_service_does_not_start() -> None:
    login = parse_login(f'{_MODULE} useKeyTab=true keyTab="/nowhere" principal="web/host@SHOP";')
    with pytest.raises(InvalidConfigError, match=r"sasl\.kerberos\.service\.name=kafka is not the service"):
        server_of(login, "kafka", str)


def test_without_the_library_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setattr(ctypes.util, "find_library", lambda _: None)
    with pytest.raises(InvalidConfigError, match="install the package libgssapi-krb5-2"):
        Library()


def test_another_library_of_the_same_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has one without MIT's names."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    with pytest.raises(InvalidConfigError, match="MIT's Kerberos library"):
        Library()


def test_the_library_and_its_configuration_are_asked_for_at_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Library:
        raise InvalidConfigError("asked for")

    monkeypatch.setattr(Library, "load", absent)
    with pytest.raises(InvalidConfigError, match="asked for"):
        ticket_login(parse_login(_BY_KEY_TAB), "kafka")


def test_a_brokers_kafka_opts_may_name_the_configuration_of_kerberos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    jaas = JaasFile({"KAFKA_OPTS": "-Xmx1g -Djava.security.krb5.conf=/etc/own.conf"})
    assert jaas.kerberos_configuration == "/etc/own.conf"
    assert JaasFile({}).kerberos_configuration is None
    monkeypatch.delenv("KRB5_CONFIG", raising=False)
    use_configuration("/etc/own.conf")
    use_configuration("/etc/other.conf")
    assert os.environ["KRB5_CONFIG"] == "/etc/own.conf"
    monkeypatch.delenv("KRB5_CONFIG")
