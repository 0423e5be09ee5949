"""Reads who may use a served tree, and its TLS, from the settings of ZooKeeper's servers.

    Server { …DigestLoginModule required user_NAME="PASSWORD" …; };      the users, in the JAAS file that KAFKA_OPTS
                                                                         names (java.security.auth.login.config);
                                                                         zookeeper.sasl.serverconfig: another entry
    sessionRequireClientSASLAuth=true                                    only users may use the tree
    enforce.auth.enabled=true, enforce.auth.schemes=sasl,x509            only clients with such an identity
    superUser, X509AuthenticationProvider.superUser                      a user, and a subject of certificates, that
    DigestAuthenticationProvider.superDigest=USER:HASH                   may do everything
    ssl.keyStore.location, .password, .type, ssl.trustStore.…            TLS of the port secureClientPort
    ssl.clientAuth=need, want or none                                    the certificates of clients (default: need)
    ssl.protocol, ssl.enabledProtocols, ssl.ciphersuites

A setting may also be given as -Dzookeeper.NAME=VALUE in KAFKA_OPTS; the file has precedence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jesenska.base.errors import InvalidConfigError
from jesenska.metadata.acl import Identity
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.metadata.zookeeper.shared_settings import DIGEST_MODULE, enabled_protocols, store_type
from jesenska.security.jaas import Login
from jesenska.security.java_options import java_option, logins_of
from jesenska.security.tls import TlsSettings

#: The settings that this module reads.
GUARD_SETTINGS: Final = frozenset(
    {
        "sessionRequireClientSASLAuth",
        "enforce.auth.enabled",
        "enforce.auth.schemes",
        "superUser",
        "X509AuthenticationProvider.superUser",
        "DigestAuthenticationProvider.superDigest",
        "ssl.keyStore.location",
        "ssl.keyStore.password",
        "ssl.keyStore.type",
        "ssl.trustStore.location",
        "ssl.trustStore.password",
        "ssl.trustStore.type",
        "ssl.clientAuth",
        "ssl.protocol",
        "ssl.enabledProtocols",
        "ssl.ciphersuites",
    }
)
_SCHEMES: Final = frozenset({"sasl", "x509", "digest", "ip"})
_CLIENT_AUTH: Final = {"need": "required", "want": "requested", "none": "none"}


class _Settings:
    """The settings of a file and of KAFKA_OPTS."""

    def __init__(self, file: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._file, self._environment = file, environment

    def text(self, name: str) -> str | None:
        found = self._file.get(name)
        if found is None:
            found = java_option(self._environment, f"zookeeper.{name}")
        return found.strip() if found is not None and found.strip() else None

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(item.strip() for item in (self.text(name) or "").split(",") if item.strip())

    def is_true(self, name: str) -> bool:
        return (self.text(name) or "").lower() == "true"


def guard_of(file: Mapping[str, str], environment: Mapping[str, str]) -> Guard:
    """Returns who may use a tree that is served with these settings. Raises InvalidConfigError with one sentence if
    the settings or the JAAS file cannot be used, or if no client could use the tree."""
    settings = _Settings(file, environment)
    entry = java_option(environment, "zookeeper.sasl.serverconfig") or "Server"
    logins = logins_of(environment).get(entry)
    users = _users(entry, logins[0]) if logins else {}
    required: set[str] = set()
    if settings.is_true("enforce.auth.enabled"):
        required |= set(settings.texts("enforce.auth.schemes"))
        if not required or not required <= _SCHEMES:
            raise InvalidConfigError(
                f"enforce.auth.enabled=true needs schemes of identities: set enforce.auth.schemes to one or more of "
                f"{', '.join(sorted(_SCHEMES))}."
            )
    if settings.is_true("sessionRequireClientSASLAuth"):
        required.add("sasl")
    if required == {"sasl"} and not users:
        raise InvalidConfigError(
            "Only clients that log in may use the tree, but there are no users: name a JAAS file with an entry Server, "
            'KAFKA_OPTS="-Djava.security.auth.login.config=FILE".'
        )
    superusers = {
        Identity(scheme, name)
        for scheme, setting in (
            ("sasl", "superUser"),
            ("x509", "X509AuthenticationProvider.superUser"),
            ("digest", "DigestAuthenticationProvider.superDigest"),
        )
        if (name := settings.text(setting)) is not None
    }
    return Guard(users, required=frozenset(required), superusers=frozenset(superusers))


def users_in(logins: Mapping[str, list[Login]]) -> dict[str, str]:
    """Returns the users of the entry Server of a JAAS file, with their passwords."""
    found = logins.get("Server")
    if not found:
        raise InvalidConfigError("The JAAS file has no entry Server.")
    return _users("Server", found[0])


def _users(entry: str, login: Login) -> dict[str, str]:
    if login.module != DIGEST_MODULE:
        raise InvalidConfigError(
            f"The entry {entry} of the JAAS file has the module {login.module}, which is not supported: use "
            f"{DIGEST_MODULE}."
        )
    users = login.users()
    if not users:
        raise InvalidConfigError(
            f'The entry {entry} of the JAAS file has no users: add options user_NAME="PASSWORD" to it.'
        )
    return users


def tls_of(file: Mapping[str, str], environment: Mapping[str, str]) -> TlsSettings:
    """Returns the TLS settings of the port secureClientPort. Raises InvalidConfigError with one sentence if a setting
    is wrong."""
    settings = _Settings(file, environment)
    client_auth = (settings.text("ssl.clientAuth") or "need").lower()
    if client_auth not in _CLIENT_AUTH:
        raise InvalidConfigError(
            f"ssl.clientAuth={client_auth} is not known: set it to one of {', '.join(_CLIENT_AUTH)}."
        )
    keystore, truststore = settings.text("ssl.keyStore.location"), settings.text("ssl.trustStore.location")
    return TlsSettings(
        keystore_type=store_type("ssl.keyStore.type", settings.text("ssl.keyStore.type"), keystore),
        keystore_location=keystore,
        keystore_password=settings.text("ssl.keyStore.password"),
        truststore_type=store_type("ssl.trustStore.type", settings.text("ssl.trustStore.type"), truststore),
        truststore_location=truststore,
        truststore_password=settings.text("ssl.trustStore.password"),
        enabled_protocols=enabled_protocols(settings.texts("ssl.enabledProtocols"), settings.text("ssl.protocol")),
        cipher_suites=settings.texts("ssl.ciphersuites"),
        client_auth=_CLIENT_AUTH[client_auth],
    )
