"""The protection of a client's connections to the tree, from Kafka's settings and the JAAS file."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jesenska.base.errors import InvalidConfigError
from jesenska.broker.machine import Machine
from jesenska.broker.tree.zookeeper_home import access_of_broker
from jesenska.config.layers import BrokerConfig
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.access_settings import tree_access
from jesenska.security.authority import new_authority, write_secret
from jesenska.security.java_options import java_option

_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"


def nothing(name: str) -> None:
    """The value of every setting that is not given."""


def _jaas(directory: Path, text: str) -> dict[str, str]:
    file = directory / "jaas.conf"
    file.write_text(text)
    return {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={file}"}


def test_nothing_is_protected_without_settings() -> None:
    access = tree_access(nothing, {})
    assert access == TreeAccess()
    assert not access.is_identified


def test_tls_has_the_defaults_of_kafka(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority("tests", now)
    (tmp_path / "ca.pem").write_text(authority.pem)
    write_secret(tmp_path / "client.pem", authority.issue("client", [], now))
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    access = tree_access(settings.get, {})
    assert access.tls is not None
    assert (access.tls.minimum_version, access.tls.maximum_version) == (ssl.TLSVersion.TLSv1_2,) * 2
    assert access.tls.check_hostname
    assert access.tls.verify_mode is ssl.CERT_REQUIRED
    assert not access.is_identified
    settings |= {
        "zookeeper.ssl.keystore.location": str(tmp_path / "client.pem"),
        "zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    access = tree_access(settings.get, {})
    assert access.tls is not None
    assert access.tls.maximum_version is ssl.TLSVersion.TLSv1_3
    assert not access.tls.check_hostname
    assert access.is_identified


def test_stores_with_passwords_and_cipher_suites_are_used() -> None:
    stores = Path(__file__).parents[1] / "security" / "stores"
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(stores / "key.p12"),
        "zookeeper.ssl.keystore.type": "PKCS12",
        "zookeeper.ssl.keystore.password": "storepass",
        "zookeeper.ssl.truststore.location": str(stores / "trust.jks"),
        "zookeeper.ssl.truststore.type": "JKS",
        "zookeeper.ssl.truststore.password": "storepass",
        "zookeeper.ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    }
    access = tree_access(settings.get, {})
    assert access.tls is not None
    assert access.has_certificate
    of_tls_12 = [item["name"] for item in access.tls.get_ciphers() if item["protocol"] == "TLSv1.2"]
    assert of_tls_12 == ["ECDHE-RSA-AES256-GCM-SHA384"]
    with pytest.raises(InvalidConfigError, match="TLS to ZooKeeper"):
        tree_access({**settings, "zookeeper.ssl.keystore.password": "wrong!"}.get, {})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"zookeeper.ssl.truststore.location": "trust"}, "set zookeeper.ssl.truststore.type"),
        ({"zookeeper.ssl.keystore.location": "missing.pem"}, "TLS to ZooKeeper"),
        ({"zookeeper.ssl.protocol": "TLSv1"}, "TLS to ZooKeeper"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidConfigError, match=sentence):
        tree_access({"zookeeper.ssl.client.enable": "true", **settings}.get, {})


def test_the_login_is_the_entry_client_of_the_jaas_file(tmp_path: Path) -> None:
    text = (
        f'Client {{ {_MODULE} username="kafka" password="secret"; }}; Two {{ {_MODULE} username="b" password="c"; }};'
    )
    environment = _jaas(tmp_path, text)
    login = tree_access(nothing, environment).login
    assert login is not None
    assert login.user == "kafka"
    assert "secret" not in repr(login)
    environment["KAFKA_OPTS"] += " -Dzookeeper.sasl.clientconfig=Two"
    login = tree_access(nothing, environment).login
    assert login is not None
    assert login.user == "b"
    environment["KAFKA_OPTS"] += " -Dzookeeper.sasl.clientconfig=Other"
    assert tree_access(nothing, environment).login is None
    own = tree_access(nothing, {}, login_file=str(tmp_path / "jaas.conf")).login
    assert own is not None
    assert own.user == "kafka"


def test_a_login_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    environment = _jaas(tmp_path, f'Client {{ {_MODULE} username="kafka"; }};')
    with pytest.raises(InvalidConfigError, match="has no option password"):
        tree_access(nothing, environment)
    environment = _jaas(tmp_path, "Client { com.sun.security.auth.module.Krb5LoginModule required; };")
    with pytest.raises(InvalidConfigError, match="DigestLoginModule"):
        tree_access(nothing, environment)
    with pytest.raises(InvalidConfigError, match=r"zookeeper\.sasl\.client=false"):
        tree_access(nothing, {"KAFKA_OPTS": environment["KAFKA_OPTS"] + " -Dzookeeper.sasl.client=false"})
    with pytest.raises(InvalidConfigError, match="has no entry Client"):
        tree_access(nothing, {}, login_file=_jaas(tmp_path, "")["KAFKA_OPTS"].partition("config=")[2])
    with pytest.raises(InvalidConfigError, match="cannot be read"):
        tree_access(nothing, {}, login_file=str(tmp_path / "none"))


def test_the_last_of_several_options_counts() -> None:
    assert java_option({"KAFKA_OPTS": "-Da.b=1 -Da.b=2 -Da-b=3"}, "a.b") == "2"
    assert java_option({"KAFKA_OPTS": "-Da.bc=1 x-Da.b=2"}, "a.b") is None
    assert java_option({}, "a.b") is None


def test_a_broker_takes_the_login_of_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.conf"
    file.write_text(f'Client {{ {_MODULE} username="kafka" password="secret"; }};')
    config = BrokerConfig({"jesenska.zookeeper.login.file": str(file)})
    monkeypatch.setenv(
        "KAFKA_OPTS", _jaas(tmp_path, f'Client {{ {_MODULE} username="b" password="c"; }};')["KAFKA_OPTS"]
    )
    login = access_of_broker(config, Machine()).login
    assert login is not None
    assert login.user == "kafka"
    login = access_of_broker(BrokerConfig({}), Machine()).login
    assert login is not None
    assert login.user == "b"
