"""Creates the security of each listener (TLS and SASL) from the settings. This is done before a listener is bound, so
that a missing certificate is reported before anything else is done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from jesenska.base.errors import InvalidConfigError
from jesenska.broker.requests.authentication import PLAINTEXT, ListenerSecurity
from jesenska.broker.stages.listener_mechanisms import JaasFile, ListenerMechanisms, ListenerSettings, Sources
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint, Listeners
from jesenska.net.tls_transport import HandshakeTurns
from jesenska.security.client_security import ClientSecurity, client_security
from jesenska.security.mechanisms import ServerOf
from jesenska.security.principal import parse_mapping_rules
from jesenska.security.tls import TlsContexts

logger = logging.getLogger(__name__)


def secured_listeners(
    config: BrokerConfig, endpoints: tuple[Endpoint, ...], sources: Sources
) -> dict[str, ListenerSecurity]:
    """Returns the security of each listener by name. Raises InvalidConfigError with one sentence if a setting cannot
    be used."""
    turns = HandshakeTurns(asyncio.get_running_loop())
    return {endpoint.name: _secured(ListenerSettings(config, endpoint), turns, sources) for endpoint in endpoints}


def reconfigure(
    config: BrokerConfig, endpoints: tuple[Endpoint, ...], security: Mapping[str, ListenerSecurity]
) -> None:
    """Applies TLS settings that were changed while the broker runs. If the new settings cannot be used, an error is
    logged, and the listener keeps its old settings."""
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


def _secured(settings: ListenerSettings, turns: HandshakeTurns, sources: Sources) -> ListenerSecurity:
    protocol, name = settings.endpoint.protocol, settings.endpoint.name
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    contexts = None
    if protocol in ("SSL", "SASL_SSL"):
        try:
            contexts = TlsContexts(settings.tls(), lambda sentence: logger.error("listener %s: %s", name, sentence))
        except InvalidConfigError as error:
            raise InvalidConfigError(f"Listener {name} ({protocol}) cannot be opened: {error}") from error
    mechanisms: Mapping[str, ServerOf] | None = None
    looks: tuple[Callable[[], None], ...] = ()
    if protocol.startswith("SASL_"):
        found = ListenerMechanisms(settings, sources)
        mechanisms, looks = found.servers, tuple(found.looks)
    rules = parse_mapping_rules(str(settings.value("ssl.principal.mapping.rules") or "DEFAULT"))
    return ListenerSecurity(
        protocol,
        contexts,
        turns,
        rules,
        mechanisms,
        {item: int(str(settings.of_mechanism(item, "connections.max.reauth.ms"))) for item in mechanisms or ()},
        _number(settings, "sasl.server.max.receive.size"),
        _number(settings, "connection.failed.authentication.delay.ms"),
        looks,
    )


def _number(settings: ListenerSettings, name: str) -> int:
    value = settings.value(name)
    assert isinstance(value, int)
    return value
