"""Creates the security of each listener (TLS and SASL) from the settings. This is done before a listener is bound, so
that a missing certificate is reported first.

A listener's own settings (`listener.name.NAME.…`) take precedence over the general ones. A mechanism's own JAAS login
(`listener.name.NAME.plain.sasl.jaas.config`) takes precedence over both. The JAAS file that
java.security.auth.login.config names (in the variable KAFKA_OPTS, as with Kafka's scripts) is used if no setting has a
login."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jesenska.base.errors import InvalidConfigError
from jesenska.broker.requests.authentication import PLAINTEXT, ListenerSecurity
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint, Listeners
from jesenska.net.tls_transport import HandshakeTurns
from jesenska.security.client_security import ClientSecurity, client_security
from jesenska.security.jaas import Login, parse_login, parse_login_file
from jesenska.security.mechanisms import SERVED, CredentialOf, PlainServer, ScramExchange, ServerOf
from jesenska.security.principal import parse_mapping_rules
from jesenska.security.tls import TlsContexts, TlsSettings, tls_settings

logger = logging.getLogger(__name__)

#: The section of a JAAS file that a broker's listener reads. NAME.KafkaServer takes precedence.
_SERVER_ENTRY: Final = "KafkaServer"
_LOGIN_FILE = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")


class JaasFile:
    """The logins in the JAAS file that KAFKA_OPTS names. There are none if KAFKA_OPTS names no file."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        found = _LOGIN_FILE.search(environment.get("KAFKA_OPTS", ""))
        self._entries: dict[str, list[Login]] = {}
        if found is not None:
            try:
                self._entries = parse_login_file(Path(found[1]).read_text())
            except OSError as error:
                raise InvalidConfigError(f"The JAAS file {found[1]} cannot be read: {error.strerror}.") from error

    def login(self, listener: str, mechanism: str) -> Login | None:
        """Returns the login of a listener for a mechanism, or None if the file has none."""
        for name in (f"{listener.lower()}.{_SERVER_ENTRY}", _SERVER_ENTRY):
            for login in self._entries.get(name, ()):
                if login.mechanism and mechanism.startswith(login.mechanism):
                    return login
        return None


class ListenerSettings:
    """The settings of one listener."""

    def __init__(self, config: BrokerConfig, endpoint: Endpoint) -> None:
        self._config = config
        self.endpoint = endpoint
        self._prefix = f"listener.name.{endpoint.name.lower()}."

    def value(self, name: str) -> object:
        """Returns the listener's own value of a setting, or else the general value."""
        return self._config.value(self._prefix + name)

    def is_own(self, name: str) -> bool:
        """Returns True if the listener has its own value of the setting."""
        return self._config.is_set(self._prefix + name)

    def login(self, mechanism: str, jaas: JaasFile) -> Login | None:
        """Returns the JAAS login of a mechanism, from the settings or else from the JAAS file; None if there is none.
        Raises InvalidConfigError if the login is malformed."""
        own = f"{self._prefix}{mechanism.lower()}.sasl.jaas.config"
        text = self._config.value(own) if self._config.is_set(own) else self.value("sasl.jaas.config")
        if text is None:
            return jaas.login(self.endpoint.name, mechanism)
        try:
            login = parse_login(str(text))
        except InvalidConfigError as error:
            raise InvalidConfigError(f"sasl.jaas.config of listener {self.endpoint.name}: {error}") from error
        return login if login.mechanism and mechanism.startswith(login.mechanism) else None

    def tls(self) -> TlsSettings:
        """Returns the listener's TLS settings. For a SASL listener a general ssl.client.auth is ignored, as in
        Kafka."""
        settings = tls_settings(self.value)
        if self.endpoint.protocol == "SASL_SSL" and not self.is_own("ssl.client.auth"):
            return settings._replace(client_auth="none")
        return settings


def secured_listeners(
    config: BrokerConfig,
    endpoints: tuple[Endpoint, ...],
    jaas: JaasFile,
    credential_of: CredentialOf,
    random_bytes: Callable[[int], bytes],
) -> dict[str, ListenerSecurity]:
    """Returns the security of each listener by name. Raises InvalidConfigError, with a message of one sentence, if a
    setting cannot be used."""
    secret = random_bytes(32)
    turns = HandshakeTurns(asyncio.get_running_loop())
    return {
        endpoint.name: _secured(ListenerSettings(config, endpoint), jaas, turns, credential_of, random_bytes, secret)
        for endpoint in endpoints
    }


def reconfigure(
    config: BrokerConfig, endpoints: tuple[Endpoint, ...], security: Mapping[str, ListenerSecurity]
) -> None:
    """Applies TLS settings that were changed while the broker runs. If they cannot be used, an error is logged, and
    the listener keeps its old settings."""
    for endpoint in endpoints:
        contexts = security[endpoint.name].contexts
        if contexts is not None:
            settings = ListenerSettings(config, endpoint).tls()
            if settings != contexts.settings:
                contexts.use(settings)


def peer_security(
    config: BrokerConfig, listeners: Listeners, jaas: JaasFile, secret_bytes: Callable[[int], bytes]
) -> ClientSecurity | None:
    """Returns the security of connections to other brokers, or None if they use neither TLS nor SASL. The user name
    and password come from the JAAS login of the listener between brokers, for sasl.mechanism.inter.broker.protocol
    (options username and password). Raises InvalidConfigError, with a message of one sentence, if a setting cannot be
    used."""
    endpoint = next(item for item in listeners.opened if item.name == listeners.inter_broker)
    settings = ListenerSettings(config, endpoint)
    mechanism = str(settings.value("sasl.mechanism.inter.broker.protocol"))
    own = {"security.protocol": endpoint.protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": None}
    login = settings.login(mechanism, jaas) if endpoint.protocol.startswith("SASL_") else None
    return client_security(lambda name: own[name] if name in own else settings.value(name), secret_bytes, login=login)


def _secured(
    settings: ListenerSettings,
    jaas: JaasFile,
    turns: HandshakeTurns,
    credential_of: CredentialOf,
    random_bytes: Callable[[int], bytes],
    secret: bytes,
) -> ListenerSecurity:
    protocol, name = settings.endpoint.protocol, settings.endpoint.name
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    contexts = None
    if protocol in ("SSL", "SASL_SSL"):
        try:
            contexts = TlsContexts(settings.tls(), lambda sentence: logger.error("listener %s: %s", name, sentence))
        except InvalidConfigError as error:
            raise InvalidConfigError(f"Listener {name} ({protocol}) cannot be opened: {error}") from error
    mechanisms = None
    if protocol.startswith("SASL_"):
        mechanisms = _mechanisms(settings, jaas, credential_of, random_bytes, secret)
    rules = parse_mapping_rules(str(settings.value("ssl.principal.mapping.rules") or "DEFAULT"))
    return ListenerSecurity(
        protocol,
        contexts,
        turns,
        rules,
        mechanisms,
        _number(settings, "connections.max.reauth.ms"),
        _number(settings, "sasl.server.max.receive.size"),
        _number(settings, "connection.failed.authentication.delay.ms"),
    )


def _number(settings: ListenerSettings, name: str) -> int:
    value = settings.value(name)
    assert isinstance(value, int)
    return value


def _mechanisms(
    settings: ListenerSettings,
    jaas: JaasFile,
    credential_of: CredentialOf,
    random_bytes: Callable[[int], bytes],
    secret: bytes,
) -> dict[str, ServerOf]:
    enabled = settings.value("sasl.enabled.mechanisms")
    assert isinstance(enabled, tuple)
    found: dict[str, ServerOf] = {}
    for name in (str(item).strip() for item in enabled):
        if name == "PLAIN":
            found[name] = _plain(settings, jaas)
        elif name in SERVED:
            found[name] = _scram(name, credential_of, random_bytes, secret)
        else:
            raise InvalidConfigError(
                f"Listener {settings.endpoint.name} asks for the SASL mechanism {name}, which is not served: set "
                f"sasl.enabled.mechanisms to some of {', '.join(SERVED)}."
            )
    return found


def _plain(settings: ListenerSettings, jaas: JaasFile) -> ServerOf:
    login = settings.login("PLAIN", jaas)
    if login is None:
        raise InvalidConfigError(
            f"Listener {settings.endpoint.name} serves PLAIN and has no users: set listener.name."
            f"{settings.endpoint.name.lower()}.plain.sasl.jaas.config to a login of PlainLoginModule with user_NAME "
            "options."
        )
    passwords = login.users()
    return lambda: PlainServer(passwords)


def _scram(
    mechanism: str, credential_of: CredentialOf, random_bytes: Callable[[int], bytes], secret: bytes
) -> ServerOf:
    return lambda: ScramExchange(mechanism, random_bytes(18).hex(), credential_of, secret)
