"""Logins by GSSAPI with a Kerberos server on loopback: which clients are admitted, under which principal, and what the
others learn."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from jesenska.base.errors import InvalidConfigError, SaslAuthenticationFailedError
from jesenska.broker.server import Broker
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.producer import Producer
from jesenska.config.layers import BrokerConfig
from jesenska.security.kerberos.gssapi_library import Initiator, Library, import_service, initiating
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.processes.broker.kdc import HOST, REALM, SERVICE, Kdc, need_kdc
from tests.processes.broker.secured import address, cluster_at, secured_broker
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.served_tree import served

_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
_LISTENER = "SASL_PLAINTEXT"
_REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


@dataclass(frozen=True)
class Realm:
    """The Kerberos server, and the key tabs of the broker and of users."""

    kdc: Kdc
    broker: Path
    anna: Path
    #: A principal with an instance: ben/admin.
    ben: Path


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    need_kdc()
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        yield Realm(kdc, kdc.key_tab(f"{SERVICE}/{HOST}"), kdc.key_tab("anna"), kdc.key_tab("ben/admin"))


def by_key_tab(key_tab: Path, principal: str) -> str:
    return f'{_MODULE} useKeyTab=true storeKey=true keyTab="{key_tab}" principal="{principal}";'


def by_cache(cache: Path | None = None) -> str:
    return f"{_MODULE} useTicketCache=true" + (f' ticketCache="{cache}";' if cache else ";")


def client(login: str, **more: str) -> dict[str, str]:
    """The settings of a client."""
    return {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "sasl.jaas.config": login,
    } | {name.replace("_", "."): value for name, value in more.items()}


def broker_settings(realm: Realm, directory: Path, settings: Mapping[str, str]) -> dict[str, str]:
    return {
        "log.dirs": str(directory / "data"),
        "listeners": f"{_LISTENER}://{HOST}:0",
        "security.inter.broker.protocol": _LISTENER,
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "sasl.jaas.config": by_key_tab(realm.broker, f"{SERVICE}/{HOST}@{REALM}"),
        "connection.failed.authentication.delay.ms": "1",
        "offsets.topic.num.partitions": "1",
    } | dict(settings)


def on_a_broker(
    realm: Realm, directory: Path, work: Callable[[Broker], Awaitable[None]], settings: Mapping[str, str] | None = None
) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60),
            secured_broker(broker_settings(realm, directory, settings or {})) as broker,
        ):
            await work(broker)

    asyncio.run(main())


def users(broker: Broker) -> set[str]:
    return {str(connection.principal) for connection in broker.dispatcher.connections}


async def user_of(broker: Broker, settings: Mapping[str, str]) -> str:
    """The user as which the broker knows a client with these settings, after the client has made a topic."""
    before = set(broker.dispatcher.connections)
    async with cluster_at(broker, _LISTENER, settings) as cluster:
        await Admin(cluster).create_topics([NewTopic(f"t{random.getrandbits(32)}", 1, 1)])
        (user,) = {str(item.principal) for item in set(broker.dispatcher.connections) - before}
    return user


@pytest.mark.parametrize(
    ("rules", "anna", "ben"),
    [
        ("DEFAULT", "User:anna", "User:ben"),
        ("RULE:[2:$1-$2](.*-admin)s/-.*/-The-Admin/L,DEFAULT", "User:anna", "User:ben-the-admin"),
    ],
)
def test_the_broker_knows_the_user_of_a_principal_by_its_rules(
    tmp_path: Path, realm: Realm, rules: str, anna: str, ben: str
) -> None:
    async def work(broker: Broker) -> None:
        assert await user_of(broker, client(by_key_tab(realm.anna, "anna"))) == anna
        assert await user_of(broker, client(by_key_tab(realm.ben, f"ben/admin@{REALM}"))) == ben

    on_a_broker(realm, tmp_path, work, {"sasl.kerberos.principal.to.local.rules": rules})


def test_rules_and_logins_of_a_listener_take_precedence(tmp_path: Path, realm: Realm) -> None:
    prefix = f"listener.name.{_LISTENER.lower()}"

    async def work(broker: Broker) -> None:
        assert await user_of(broker, client(by_key_tab(realm.anna, "anna"))) == "User:ANNA"

    on_a_broker(
        realm,
        tmp_path,
        work,
        {
            "sasl.jaas.config": by_key_tab(tmp_path / "none", f"{SERVICE}/{HOST}"),
            f"{prefix}.gssapi.sasl.jaas.config": by_key_tab(realm.broker, f"{SERVICE}/{HOST}"),
            f"{prefix}.sasl.kerberos.principal.to.local.rules": "RULE:[1:$1]/U,DEFAULT",
        },
    )


def test_a_client_logs_in_with_the_tickets_of_kinit(
    tmp_path: Path, realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = realm.kdc.cache("anna", realm.anna)

    async def work(broker: Broker) -> None:
        assert await user_of(broker, client(by_cache(cache))) == "User:anna"
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
        assert await user_of(broker, client(by_cache())) == "User:anna"
        both = by_cache(tmp_path / "no tickets").rstrip(";") + by_key_tab(realm.ben, "ben/admin").removeprefix(_MODULE)
        assert await user_of(broker, client(both)) == "User:ben"

    on_a_broker(realm, tmp_path, work)


def test_the_name_of_the_service_may_be_an_option_of_the_login(tmp_path: Path, realm: Realm) -> None:
    async def work(broker: Broker) -> None:
        login = by_key_tab(realm.anna, "anna").rstrip(";") + f' serviceName="{SERVICE}";'
        settings = client(login)
        del settings["sasl.kerberos.service.name"]
        assert await user_of(broker, settings) == "User:anna"

    on_a_broker(realm, tmp_path, work)


def test_brokers_log_in_with_each_other_by_their_key_tab(tmp_path: Path, realm: Realm) -> None:
    """A topic with two replicas takes a record that both have."""

    async def main() -> None:
        async with asyncio.timeout(60), served() as server, AsyncExitStack() as stack:
            brokers = [
                await stack.enter_async_context(
                    secured_broker(
                        broker_settings(
                            realm,
                            tmp_path / str(number),
                            {"broker.id": str(number), "zookeeper.connect": f"127.0.0.1:{server.port}"},
                        )
                    )
                )
                for number in (1, 2)
            ]
            anna = client(by_key_tab(realm.anna, "anna"))
            cluster = await stack.enter_async_context(cluster_at(brokers[0], _LISTENER, anna))
            await Admin(cluster).create_topics([NewTopic("t", 1, 2, {"min.insync.replicas": "2"})])
            async with Producer(cluster) as producer:
                await (await producer.send("t", b"to both"))
            assert f"User:{SERVICE}" in users(brokers[0]) | users(brokers[1])

    asyncio.run(main())


@pytest.fixture
def refusals(realm: Realm) -> dict[str, tuple[dict[str, str], str]]:
    """Clients that do not get in, and a part of the sentence that each one gets."""
    return {
        "another's key tab": (client(by_key_tab(realm.ben, "anna")), "no tickets of anna by the key tab"),
        "an old key": (client(by_key_tab(_outdated(realm.kdc), "carl")), "no tickets of carl by the key tab"),
        "no key tab": (client(by_key_tab(Path("/nowhere.keytab"), "anna")), "/nowhere.keytab"),
        "no tickets": (client(by_cache(Path("/nowhere.tickets"))), "No credentials cache found"),
        "another service": (client(by_key_tab(realm.anna, "anna"), sasl_kerberos_service_name="web"), "not found"),
    }


def _outdated(kdc: Kdc) -> Path:
    """A key tab whose keys are no longer those of its principal, carl."""
    old = kdc.key_tab("carl")
    kdc.key_tab("carl")
    return old


@pytest.mark.parametrize("case", ["another's key tab", "an old key", "no key tab", "no tickets", "another service"])
def test_a_client_without_a_ticket_is_told_why_in_one_sentence(
    tmp_path: Path, realm: Realm, refusals: dict[str, tuple[dict[str, str], str]], case: str
) -> None:
    settings, part = refusals[case]

    async def work(broker: Broker) -> None:
        async with cluster_at(broker, _LISTENER, settings) as cluster:
            with pytest.raises(SaslAuthenticationFailedError) as caught:
                await cluster.topics()
        assert part in str(caught.value)
        assert str(caught.value).startswith("The login to the broker at localhost:")
        assert "\n" not in str(caught.value)

    on_a_broker(realm, tmp_path, work)


def test_an_expired_ticket_is_told_as_such_unless_there_is_a_key_tab(tmp_path: Path, realm: Realm) -> None:
    """The ticket ends a second after it is made."""
    cache = realm.kdc.cache("anna", realm.anna, "1s")

    async def work(broker: Broker) -> None:
        async with asyncio.timeout(30):
            while True:
                async with cluster_at(broker, _LISTENER, client(by_cache(cache))) as cluster:
                    try:
                        await cluster.topics()
                    except SaslAuthenticationFailedError as error:
                        assert "expired" in str(error)
                        break
        both = by_cache(cache).rstrip(";") + by_key_tab(realm.anna, "anna").removeprefix(_MODULE)
        assert await user_of(broker, client(both)) == "User:anna"

    on_a_broker(realm, tmp_path, work)


def test_a_principal_without_a_rule_is_told_one_sentence_and_the_log_has_the_reason(
    tmp_path: Path, realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: Broker) -> None:
        async with cluster_at(broker, _LISTENER, client(by_key_tab(realm.ben, "ben/admin"))) as cluster:
            with pytest.raises(SaslAuthenticationFailedError) as caught:
                await cluster.topics()
        assert str(caught.value) == _REFUSED

    rules = "RULE:[1:$1],RULE:[2:$1](kafka)"
    with caplog.at_level(logging.INFO):
        on_a_broker(realm, tmp_path, work, {"sasl.kerberos.principal.to.local.rules": rules})
    assert "no rule of sasl.kerberos.principal.to.local.rules matches 'ben/admin@SHOP.EXAMPLE'" in caplog.text


def test_a_ticket_for_a_key_that_the_broker_has_not_is_refused(tmp_path: Path, realm: Realm) -> None:
    """The broker's principal got new keys, and its key tab did not: the broker still starts. Put into the key tab, the
    new keys serve at once."""
    key_tab = realm.kdc.key_tab("kafka2/localhost")
    later = realm.kdc.key_tab("kafka2/localhost")

    async def work(broker: Broker) -> None:
        settings = client(by_key_tab(realm.anna, "anna"), sasl_kerberos_service_name="kafka2")
        async with cluster_at(broker, _LISTENER, settings) as cluster:
            with pytest.raises(SaslAuthenticationFailedError) as caught:
                await cluster.topics()
        assert str(caught.value) == _REFUSED
        later.replace(key_tab)
        assert await user_of(broker, settings) == "User:anna"

    own = {
        "sasl.kerberos.service.name": "kafka2",
        "sasl.jaas.config": by_key_tab(key_tab, f"kafka2/{HOST}"),
        "inter.broker.listener.name": "PLAINTEXT",
        "listeners": f"PLAINTEXT://{HOST}:0,{_LISTENER}://{HOST}:0",
    }

    async def main() -> None:
        settings = broker_settings(realm, tmp_path, own)
        del settings["security.inter.broker.protocol"]
        async with asyncio.timeout(60), secured_broker(settings) as broker:
            await work(broker)

    asyncio.run(main())


def _initiator(realm: Realm) -> Initiator:
    library = Library.load()
    store = {"client_keytab": f"FILE:{realm.anna}", "ccache": "MEMORY:of-raw-clients"}
    return Initiator(library, initiating(library, "anna", store), import_service(library, SERVICE, HOST))


def _hostile_tokens(realm: Realm) -> list[bytes]:
    token = _initiator(realm).step(None)
    chance = random.Random(1)
    changed = []
    for _ in range(200):
        copy = bytearray(token)
        for _ in range(chance.randint(1, 4)):
            copy[chance.randrange(len(copy))] ^= 1 << chance.randrange(8)
        changed.append(bytes(copy))
    cut = [token[:length] for length in range(0, len(token), 29)]
    return [b"", b"\x60", b"\x60\x84\xff\xff\xff\xff", chance.randbytes(5000), *cut, *changed]


def test_hostile_tokens_are_refused_and_the_broker_serves_others(
    tmp_path: Path, realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = _hostile_tokens(realm)

    def attack(bootstrap: str) -> None:
        for token in tokens:
            with RawConnection(bootstrap) as connection:
                hello = connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1, SaslHandshakeResponse)
                assert hello.error_code == 0
                answer = connection.ask(
                    SaslAuthenticateRequest(auth_bytes=memoryview(token)), 1, SaslAuthenticateResponse
                )
                # A change of a byte that is not read leaves the token a good one: a name's type, for instance.
                if answer.error_code:
                    assert answer.error_message == _REFUSED
                    assert not answer.auth_bytes
                else:
                    # It is no login yet: without the rest of the exchange no request is served.
                    with pytest.raises(ClosedByBrokerError):
                        connection.ask(MetadataRequest(topics=None), 1, MetadataResponse)
            with RawConnection(bootstrap) as connection:
                connection.send_frame(token)
                if token[:1] != b"\x60" or answer.error_code:
                    assert connection.is_closed()

    async def work(broker: Broker) -> None:
        await asyncio.to_thread(attack, address(broker, _LISTENER))
        assert await user_of(broker, client(by_key_tab(realm.anna, "anna"))) == "User:anna"

    with caplog.at_level(logging.INFO):
        on_a_broker(realm, tmp_path, work)
    assert "Traceback" not in caplog.text


def test_a_token_that_was_sent_before_is_refused(tmp_path: Path, realm: Realm) -> None:
    token = _initiator(realm).step(None)

    def twice(bootstrap: str) -> None:
        with RawConnection(bootstrap) as first, RawConnection(bootstrap) as second:
            first.send_frame(token)
            assert first.receive_frame()
            second.send_frame(token)
            assert second.is_closed()

    async def work(broker: Broker) -> None:
        await asyncio.to_thread(twice, address(broker, _LISTENER))

    on_a_broker(realm, tmp_path, work)


@pytest.mark.parametrize("begins_with_a_handshake", [True, False])
def test_a_client_whose_messages_have_no_headers_logs_in(
    tmp_path: Path, realm: Realm, begins_with_a_handshake: bool
) -> None:
    """So do clients before 1.0; those of 0.9 begin with the first token. The last message has no answer."""

    def talk(bootstrap: str) -> None:
        context = _initiator(realm)
        with RawConnection(bootstrap) as connection:
            if begins_with_a_handshake:
                connection.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 0, SaslHandshakeResponse)
            connection.send_frame(context.step(None))
            assert context.step(connection.receive_frame()) == b""
            connection.send_frame(b"")
            assert context.unwrap(connection.receive_frame()) == b"\1\0\0\0"
            connection.send_frame(context.wrap(b"\1\0\0\0kafka@localhost"))
            answer = connection.ask(MetadataRequest(topics=None), 1, MetadataResponse)
            assert answer.brokers[0].host == HOST

    async def work(broker: Broker) -> None:
        await asyncio.to_thread(talk, address(broker, _LISTENER))

    on_a_broker(realm, tmp_path, work)


def test_a_listener_without_gssapi_does_not_take_a_first_token(tmp_path: Path, realm: Realm) -> None:
    token = _initiator(realm).step(None)
    plain = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";'

    async def work(broker: Broker) -> None:
        def talk(bootstrap: str) -> None:
            with RawConnection(bootstrap) as connection:
                connection.send_frame(token)
                assert connection.is_closed()

        await asyncio.to_thread(talk, address(broker, _LISTENER))

    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": plain,
    }
    on_a_broker(realm, tmp_path, work, settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"sasl.jaas.config": f'{_MODULE} useKeyTab=true keyTab="/nowhere" principal="kafka/localhost";'}, "/nowhere"),
        ({"sasl.jaas.config": f"{_MODULE} useTicketCache=true;"}, "useKeyTab"),
        ({"sasl.kerberos.service.name": "web"}, "sasl.kerberos.service.name=web"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](*)"}, "not a regular expression"),
        ({"sasl.kerberos.principal.to.local.rules": "RULES"}, "not a rule"),
    ],
)
def test_settings_that_cannot_be_used_stop_the_start(
    tmp_path: Path, realm: Realm, settings: dict[str, str], named: str
) -> None:
    async def main() -> None:
        with pytest.raises(InvalidConfigError, match=named) as caught:
            Broker(BrokerConfig(broker_settings(realm, tmp_path, settings)))
        assert "\n" not in str(caught.value)

    asyncio.run(main())


def test_nothing_of_the_library_stays_after_logins(tmp_path: Path, realm: Realm) -> None:
    """Neither after those that succeed, nor after those that a client or the broker ends half way."""
    library = Library.load()

    def half(bootstrap: str) -> None:
        for last in (b"", b"no wrapped message"):
            with RawConnection(bootstrap) as connection:
                connection.send_frame(_initiator(realm).step(None) or b"")
                assert connection.receive_frame()
                connection.send_frame(last)
                assert connection.is_closed() is (last != b"")

    async def work(broker: Broker) -> None:
        await user_of(broker, client(by_key_tab(realm.anna, "anna")))
        before = len(library.live)
        for _ in range(10):
            await user_of(broker, client(by_key_tab(realm.anna, "anna")))
            await asyncio.to_thread(half, address(broker, _LISTENER))
        # A thread drops the exchange a moment after it has given back its result.
        async with asyncio.timeout(10):
            while len(library.live) > before:
                await asyncio.sleep(0)

    on_a_broker(realm, tmp_path, work)
