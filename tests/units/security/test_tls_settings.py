"""Kafka's `ssl.*` and `sasl.*` settings: the contexts and logins made of them, for a listener and for each client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from jesenska.base.clock import ManualClock
from jesenska.base.errors import InvalidConfigError
from jesenska.broker.stages.listener_mechanisms import JaasFile, Sources
from jesenska.broker.stages.secured_listeners import secured_listeners
from jesenska.client.client_config import client_config
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import listeners_of
from jesenska.config.settings.client_settings import ADMIN_SETTINGS, CONSUMER_SETTINGS, PRODUCER_SETTINGS
from jesenska.config.table import Table
from jesenska.security.client_security import ClientSecurity
from jesenska.security.key_stores import key_and_chain
from jesenska.security.tls import client_context, tls_settings

_STORES = Path(__file__).parent / "stores"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_TABLES = pytest.mark.parametrize("table", [PRODUCER_SETTINGS, CONSUMER_SETTINGS, ADMIN_SETTINGS], ids=lambda t: t.kind)

#: Stores as files, with their passwords.
_FILES = {
    "ssl.keystore.type": "JKS",
    "ssl.keystore.location": str(_STORES / "key.jks"),
    "ssl.keystore.password": "storepass",
    "ssl.key.password": "keypass",
    "ssl.truststore.type": "PKCS12",
    "ssl.truststore.location": str(_STORES / "trust.p12"),
    "ssl.truststore.password": "storepass",
}


def security_of(table: Table, settings: dict[str, str]) -> ClientSecurity:
    security = client_config(table, settings).security
    assert security is not None
    return security


@_TABLES
def test_a_client_has_what_its_stores_have(table: Table) -> None:
    security = security_of(table, {"security.protocol": "SSL", **_FILES})
    assert security.context is not None
    assert security.context.check_hostname
    assert security.context.cert_store_stats()["x509"] == 1
    assert security.mechanism is None


@_TABLES
def test_a_client_has_pem_in_its_settings(table: Table) -> None:
    found = key_and_chain("JKS", str(_STORES / "key.jks"), "storepass", "keypass")
    security = security_of(
        table,
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": found.key,
            "ssl.keystore.certificate.chain": found.chain,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": found.chain,
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        },
    )
    context = security.context
    assert context is not None
    assert not context.check_hostname
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    older = [item["name"] for item in context.get_ciphers() if item["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


@_TABLES
def test_a_client_has_a_login_for_its_mechanism(table: Table) -> None:
    settings = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{_PLAIN} username="a" password="secret";',
    }
    security = security_of(table, settings)
    assert security.exchange("localhost").step(None) == b"\0a\0secret"
    assert "secret" not in repr(security)
    for wrong, named in (
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"sasl.mechanism": "DIGEST-MD5"}, "DIGEST-MD5"),
        ({"sasl.jaas.config": f'{_PLAIN} username="a";'}, "password"),
    ):
        with pytest.raises(InvalidConfigError, match=named):
            client_config(table, settings | wrong)


def test_a_client_without_a_protocol_is_plain() -> None:
    assert client_config(ADMIN_SETTINGS, {}).security is None


def listener(**settings: str) -> BrokerConfig:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"listeners": "SASL_SSL://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"} | _FILES | names)


def test_a_listener_takes_its_own_settings_first_and_then_the_login_file(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"KafkaServer {{ {_PLAIN} user_anna=file; }}; sasl_ssl.KafkaServer {{ {_PLAIN} user_anna=own; }};")

    async def main() -> None:
        for settings, environment, secret in (
            ({"sasl_jaas_config": f"{_PLAIN} user_anna=plain;"}, {}, b"plain"),
            (
                {
                    "sasl_jaas_config": f"{_PLAIN} user_anna=plain;",
                    "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_PLAIN} user_anna=mechanism;",
                },
                {},
                b"mechanism",
            ),
            ({}, {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={jaas}"}, b"own"),
        ):
            texts = {
                (name if name.startswith("listener.") else name.replace("_", ".")): value
                for name, value in settings.items()
            }
            config = BrokerConfig(
                {
                    "listeners": "SASL_SSL://127.0.0.1:0",
                    "sasl.enabled.mechanisms": "PLAIN",
                    "sasl.server.max.receive.size": "1000",
                    "ssl.client.auth": "required",
                    **_FILES,
                    **texts,
                }
            )
            made = secured_listeners(config, listeners_of(config).opened, sources(environment))
            security = made["SASL_SSL"]
            assert security.token_max_bytes == 1000
            assert security.mechanisms is not None
            server = security.mechanisms["PLAIN"]()
            server.step(b"\0anna\0" + secret)
            assert str(server.principal) == "User:anna"
            assert security.contexts is not None
            # Of a SASL listener, its own ssl.client.auth counts.
            assert security.contexts.current().verify_mode is ssl.CERT_NONE

    asyncio.run(main())


def sources(environment: Mapping[str, str]) -> Sources:
    return Sources(JaasFile(environment), lambda *_: None, lambda *_: None, bytes, b"secret", ManualClock())


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    ],
)
def test_a_cipher_suite_has_its_name_in_java(java: str, openssl: str) -> None:
    settings = tls_settings({"ssl.cipher.suites": [java]}.get)
    names = [item["name"] for item in client_context(settings).get_ciphers() if item["protocol"] != "TLSv1.3"]
    assert names == [openssl]


def test_a_listener_with_plain_and_without_users_says_where_they_are_set() -> None:
    async def main() -> None:
        config = listener()
        with pytest.raises(InvalidConfigError, match=r"listener\.name\.sasl_ssl\.plain\.sasl\.jaas\.config"):
            secured_listeners(config, listeners_of(config).opened, sources({}))

    asyncio.run(main())


def test_a_login_file_that_cannot_be_read_stops_the_start() -> None:
    with pytest.raises(InvalidConfigError, match=r"/nowhere\.conf"):
        JaasFile({"KAFKA_OPTS": "-Djava.security.auth.login.config=/nowhere.conf"})


def test_settings_show_no_password() -> None:
    assert "storepass" not in repr(tls_settings(_FILES.get))
