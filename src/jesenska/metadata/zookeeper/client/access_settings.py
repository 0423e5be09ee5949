"""Reads how a client of the tree protects its connections: TLS, and the login by SASL.

    zookeeper.ssl.client.enable=true        TLS, with the settings zookeeper.ssl.* of Apache Kafka 3.9
    Client { …DigestLoginModule … };        the login, in the JAAS file that -Djava.security.auth.login.config names in
                                            KAFKA_OPTS
    -Dzookeeper.sasl.clientconfig=NAME      another entry of this file
    -Dzookeeper.sasl.client=false           no login; an error if the file has the entry

These differ from Apache Kafka: TLS does not depend on `zookeeper.clientCnxnSocket`, and a store without a type and
without a known ending is an error before a connection is made. Of the login modules only ZooKeeper's DigestLoginModule
(DIGEST-MD5) is supported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from jesenska.base.errors import InvalidConfigError
from jesenska.metadata.zookeeper.client.access import TreeAccess, TreeLogin
from jesenska.metadata.zookeeper.shared_settings import DIGEST_MODULE, enabled_protocols, store_type
from jesenska.security.jaas import Login
from jesenska.security.java_options import java_option, logins_in, logins_of
from jesenska.security.tls import TlsSettings, client_context


def tree_access(
    get: Callable[[str], object],
    environment: Mapping[str, str],
    *,
    login_file: str | None = None,
    secret_bytes: Callable[[int], bytes] = os.urandom,
) -> TreeAccess:
    """Returns the protection that the settings require. `get` returns the value of a setting, or None. `login_file` is
    a JAAS file that is used in place of the file in KAFKA_OPTS. Raises InvalidConfigError with one sentence if a
    setting, a store or the JAAS file cannot be used."""
    login = _login(environment, login_file, secret_bytes)
    if not _is_true(get("zookeeper.ssl.client.enable")):
        return TreeAccess(None, login)
    settings = _tls_settings(get)
    try:
        context = client_context(settings)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"TLS to ZooKeeper (zookeeper.ssl.*): {error}") from error
    return TreeAccess(context, login, settings.keystore_location is not None)


def _is_true(value: object) -> bool:
    return value is True or str(value).strip().lower() == "true"


def _tls_settings(get: Callable[[str], object]) -> TlsSettings:
    """Returns the TLS settings of ZooKeeper's connections. Each store is a file with one password."""
    keystore, truststore = (
        _text(get("zookeeper.ssl.keystore.location")),
        _text(get("zookeeper.ssl.truststore.location")),
    )
    algorithm = get("zookeeper.ssl.endpoint.identification.algorithm")
    return TlsSettings(
        keystore_type=_store_type("zookeeper.ssl.keystore.type", get, keystore),
        keystore_location=keystore,
        keystore_password=_text(get("zookeeper.ssl.keystore.password")),
        truststore_type=_store_type("zookeeper.ssl.truststore.type", get, truststore),
        truststore_location=truststore,
        truststore_password=_text(get("zookeeper.ssl.truststore.password")),
        enabled_protocols=enabled_protocols(
            _texts(get("zookeeper.ssl.enabled.protocols")), _text(get("zookeeper.ssl.protocol"))
        ),
        cipher_suites=_texts(get("zookeeper.ssl.cipher.suites")),
        endpoint_identification="https" if algorithm is None else str(algorithm),
    )


def _store_type(setting: str, get: Callable[[str], object], location: str | None) -> str:
    return store_type(setting, _text(get(setting)), location)


def _text(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(item.strip() for item in value.split(",") if item.strip())
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def _login(
    environment: Mapping[str, str], login_file: str | None, secret_bytes: Callable[[int], bytes]
) -> TreeLogin | None:
    name = "Client" if login_file is not None else java_option(environment, "zookeeper.sasl.clientconfig") or "Client"
    entries = logins_of(environment) if login_file is None else logins_in(login_file)
    found = entries.get(name)
    if not found:
        if login_file is not None:
            raise InvalidConfigError(f"The JAAS file {login_file} has no entry {name}.")
        return None
    if (java_option(environment, "zookeeper.sasl.client") or "true").lower() != "true" and login_file is None:
        raise InvalidConfigError(
            f"The JAAS file has an entry {name}, but KAFKA_OPTS has -Dzookeeper.sasl.client=false: remove one of them."
        )
    return _digest_login(found[0], secret_bytes)


def _digest_login(login: Login, secret_bytes: Callable[[int], bytes]) -> TreeLogin:
    if login.module != DIGEST_MODULE:
        raise InvalidConfigError(
            f"The login to ZooKeeper has the module {login.module}, which is not supported: use {DIGEST_MODULE}."
        )
    return TreeLogin(login.required("username"), login.required("password"), secret_bytes)
