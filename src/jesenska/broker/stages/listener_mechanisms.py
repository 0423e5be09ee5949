"""The SASL mechanisms of a listener, from its settings.

A listener's own settings (`listener.name.NAME.…`) take precedence over the general settings. Settings of a mechanism
(`listener.name.NAME.plain.sasl.jaas.config`) take precedence over both. A JAAS login in the settings takes precedence
over the JAAS file. As with Kafka's scripts, the environment variable KAFKA_OPTS names the JAAS file
(java.security.auth.login.config) and the configuration file of Kerberos (java.security.krb5.conf). The variable
KRB5_CONFIG takes precedence for the configuration of Kerberos.

`sasl.server.callback.handler.class` of a mechanism is one of Kafka's classes below, or the name of an entry point of
an installed package (`jesenska.sasl_server_callbacks`):

    PLAIN          an object that is called with a user and a password, and returns True if the password is right
    OAUTHBEARER    an object that is called with a token's text, and returns a `security.oauthbearer.claims.Token`, or
                   raises its TokenError
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from jesenska.base.backoff import Backoff
from jesenska.base.clock import Clock
from jesenska.base.errors import InvalidConfigError
from jesenska.base.plugins import SASL_SERVER_CALLBACKS, PluginError, plugin
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint
from jesenska.security.jaas import Login, parse_login
from jesenska.security.java_options import java_option, logins_of
from jesenska.security.mechanisms import (
    GSSAPI,
    OAUTHBEARER,
    SERVED,
    CredentialOf,
    PlainServer,
    ScramExchange,
    ServerOf,
    TokenCredentialOf,
    is_one_of,
)
from jesenska.security.tls import TlsSettings, tls_settings

#: The entries of a JAAS file that a broker's listener reads: NAME.KafkaServer first.
_SERVER_ENTRY: Final = "KafkaServer"
_CALLBACK: Final = "sasl.server.callback.handler.class"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
#: Kafka's classes that check signed tokens.
_SIGNED: Final = frozenset(
    {f"{_OAUTH}OAuthBearerValidatorCallbackHandler", f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler"}
)
#: Kafka's class that checks unsecured tokens.
UNSECURED: Final = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"


class JaasFile:
    """The logins in the JAAS file that KAFKA_OPTS names, and the configuration file of Kerberos. There are no logins
    if KAFKA_OPTS names no JAAS file."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        #: The configuration file of Kerberos; None if KAFKA_OPTS does not name this file.
        self.kerberos_configuration = java_option(environment, "java.security.krb5.conf")
        self._entries = logins_of(environment)

    def login(self, listener: str, mechanism: str) -> Login | None:
        """Returns the login of a listener for a mechanism, or None if the file has no login for the listener."""
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
        """Returns the listener's own value of a setting, else the general value."""
        return self._config.value(self._prefix + name)

    def of_mechanism(self, mechanism: str, name: str) -> object:
        """Returns the listener's value of a setting for one mechanism, else the listener's value."""
        own = f"{self._prefix}{mechanism.lower()}.{name}"
        return self._config.value(own) if self._config.is_set(own) else self.value(name)

    def is_own(self, name: str) -> bool:
        """Returns True if the listener has its own value of this setting."""
        return self._config.is_set(self._prefix + name)

    def login(self, mechanism: str, jaas: JaasFile) -> Login | None:
        """Returns the JAAS login of a mechanism, from the settings or the JAAS file. Returns None if there is no
        login. Raises InvalidConfigError if the login is malformed."""
        text = self.of_mechanism(mechanism, "sasl.jaas.config")
        if text is None:
            return jaas.login(self.endpoint.name, mechanism)
        try:
            login = parse_login(str(text))
        except InvalidConfigError as error:
            raise InvalidConfigError(f"sasl.jaas.config of listener {self.endpoint.name}: {error}") from error
        return login if login.mechanism and mechanism.startswith(login.mechanism) else None

    def tls(self) -> TlsSettings:
        """Returns the TLS settings of the listener. As in Kafka, the general ssl.client.auth is ignored for a SASL
        listener; only the listener's own value counts."""
        settings = tls_settings(self.value)
        if self.endpoint.protocol == "SASL_SSL" and not self.is_own("ssl.client.auth"):
            return settings._replace(client_auth="none")
        return settings


class Sources(NamedTuple):
    """The parts from which mechanisms are created, shared by all listeners. `secret` is used to invent SCRAM
    credentials for unknown users, so that a client cannot detect which users exist."""

    jaas: JaasFile
    credential_of: CredentialOf
    token_of: TokenCredentialOf
    random_bytes: Callable[[int], bytes]
    secret: bytes
    clock: Clock


class ListenerMechanisms:
    """The mechanisms that a listener serves (`servers`), and the functions that must be called about once a second
    (`looks`). Raises InvalidConfigError with one sentence if a setting cannot be used."""

    def __init__(self, settings: ListenerSettings, sources: Sources) -> None:
        self._settings = settings
        self._sources = sources
        self.looks: list[Callable[[], None]] = []
        enabled = settings.value("sasl.enabled.mechanisms")
        assert isinstance(enabled, tuple)
        self.servers: dict[str, ServerOf] = {}
        for name in (str(item).strip() for item in enabled):
            if name == "PLAIN":
                self.servers[name] = self._plain()
            elif name == OAUTHBEARER:
                self.servers[name] = self._oauthbearer()
            elif name == GSSAPI:
                self.servers[name] = self._gssapi()
            elif name in SERVED:
                self.servers[name] = self._scram(name)
            else:
                raise InvalidConfigError(
                    f"Listener {settings.endpoint.name} asks for the SASL mechanism {name}, which is not served: set "
                    f"sasl.enabled.mechanisms to some of {', '.join(SERVED)}."
                )

    def _plugin(self, mechanism: str, *own: str) -> Any:
        """Returns the object of an installed package that the setting sasl.server.callback.handler.class names.
        Returns None if the setting is missing, or names one of Kafka's classes in `own`."""
        name = self._settings.of_mechanism(mechanism, "sasl.server.callback.handler.class")
        if name is None or name in own:
            return None
        try:
            return plugin(SASL_SERVER_CALLBACKS, str(name))
        except PluginError as error:
            raise InvalidConfigError(
                f"{_CALLBACK} of {mechanism} at listener {self._settings.endpoint.name}: {error}"
            ) from error

    def _plain(self) -> ServerOf:
        name = self._settings.endpoint.name
        check = self._plugin("PLAIN")
        if check is not None:
            return lambda: PlainServer(check)
        login = self._settings.login("PLAIN", self._sources.jaas)
        if login is None:
            raise InvalidConfigError(
                f"Listener {name} serves PLAIN and has no users: set listener.name.{name.lower()}.plain."
                "sasl.jaas.config to a login of PlainLoginModule with user_NAME options."
            )
        passwords = login.users()
        return lambda: PlainServer(lambda user, password: is_one_of(passwords, user, password))

    def _scram(self, mechanism: str) -> ServerOf:
        sources = self._sources
        return lambda: ScramExchange(
            mechanism,
            sources.random_bytes(18).hex(),
            sources.credential_of,
            sources.token_of,
            sources.secret,
            sources.clock.now_ms,
        )

    def _gssapi(self) -> ServerOf:
        """Returns the function that makes exchanges of GSSAPI. The exchanges run on the event loop, because checking a
        ticket takes less than a millisecond and needs no other server."""
        from jesenska.security.kerberos.gssapi_library import Library, default_realm, use_configuration
        from jesenska.security.kerberos.logins import server_of
        from jesenska.security.kerberos.principal_rules import PrincipalRules

        name = self._settings.endpoint.name
        if self._sources.jaas.kerberos_configuration is not None:
            use_configuration(self._sources.jaas.kerberos_configuration)
        login = self._settings.login(GSSAPI, self._sources.jaas)
        if login is None:
            raise InvalidConfigError(
                f"Listener {name} serves GSSAPI and has no keys: set listener.name.{name.lower()}.gssapi."
                "sasl.jaas.config to a login of com.sun.security.auth.module.Krb5LoginModule with useKeyTab=true, "
                "keyTab and principal."
            )
        texts = self._settings.of_mechanism(GSSAPI, "sasl.kerberos.principal.to.local.rules")
        assert isinstance(texts, tuple)
        try:
            rules = PrincipalRules(tuple(map(str, texts)), default_realm(Library.load()))
            service = self._settings.of_mechanism(GSSAPI, "sasl.kerberos.service.name")
            return server_of(login, service, rules.user_of)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"GSSAPI of listener {name}: {error}") from error

    def _oauthbearer(self) -> ServerOf:
        # Imported here and not at the top, because few brokers serve OAUTHBEARER.
        from jesenska.security.oauthbearer.messages import OAuthBearerServer, Validate

        now_ms = self._sources.clock.now_ms
        named = self._settings.of_mechanism(OAUTHBEARER, _CALLBACK)
        check = self._plugin(OAUTHBEARER, UNSECURED, *_SIGNED)
        validate: Validate = check or (self._unsecured() if named == UNSECURED else self._signed())
        return lambda: OAuthBearerServer(validate, now_ms)

    def _unsecured(self) -> Callable[[str], Any]:
        from jesenska.security.oauthbearer.claims import Expected
        from jesenska.security.oauthbearer.validators import UnsecuredTokens

        login = self._settings.login(OAUTHBEARER, self._sources.jaas)
        options = login.options if login is not None else {}
        prefix = "unsecuredValidator"
        skew_ms = options.get(f"{prefix}AllowableClockSkewMs", "0")
        if not skew_ms.isdigit():
            raise InvalidConfigError(f"The JAAS option {prefix}AllowableClockSkewMs is not a number.")
        expected = Expected(
            clock_skew_seconds=int(skew_ms) // 1000,
            user_claim=options.get(f"{prefix}PrincipalClaimName", "sub"),
            scope_claim=options.get(f"{prefix}ScopeClaimName", "scope"),
        )
        scope = options.get(f"{prefix}RequiredScope", "").split()
        return UnsecuredTokens(expected, scope, self._sources.clock.now_ms)

    def _signed(self) -> Callable[[str], Any]:
        from jesenska.broker.requests.signing_keys import SigningKeys, in_daemon_thread
        from jesenska.security.oauthbearer.claims import Expected
        from jesenska.security.oauthbearer.documents import parse_address, read
        from jesenska.security.oauthbearer.logins import context_of
        from jesenska.security.oauthbearer.validators import SignedTokens

        url = self._setting("sasl.oauthbearer.jwks.endpoint.url")
        if not url:
            raise InvalidConfigError(
                f"Listener {self._settings.endpoint.name} serves OAUTHBEARER and has no keys to check tokens with: set "
                f"{JWKS_URL} to https://HOST/PATH or file:///PATH; for unsecured tokens in tests set listener.name."
                f"{self._settings.endpoint.name.lower()}.oauthbearer.{_CALLBACK} to {UNSECURED}."
            )
        address = parse_address(JWKS_URL, str(url))
        login = self._settings.login(OAUTHBEARER, self._sources.jaas)
        context = context_of(login.options if login is not None else {})
        clock = self._sources.clock
        keys = SigningKeys(
            address,
            lambda: read(address, context),
            in_daemon_thread,
            clock.monotonic,
            refresh_seconds=self._number("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
            backoff=Backoff(
                self._number("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
                self._number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
            ),
        )
        self.looks.append(keys.look)
        audiences, issuer = (
            self._setting("sasl.oauthbearer.expected.audience"),
            self._setting("sasl.oauthbearer.expected.issuer"),
        )
        expected = Expected(
            None if issuer is None else str(issuer),
            tuple(map(str, audiences)) if isinstance(audiences, (list, tuple)) else (),
            self._number("sasl.oauthbearer.clock.skew.seconds"),
            str(self._setting("sasl.oauthbearer.sub.claim.name")),
            str(self._setting("sasl.oauthbearer.scope.claim.name")),
        )
        return SignedTokens(keys, expected, clock.now_ms)

    def _setting(self, name: str) -> object:
        return self._settings.of_mechanism(OAUTHBEARER, name)

    def _number(self, name: str) -> int:
        return int(str(self._setting(name)))
