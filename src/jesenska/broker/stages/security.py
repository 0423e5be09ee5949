"""Creates the security settings (TLS and SASL) of a broker's listeners. The modules for TLS and SASL are imported only
if a listener needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from jesenska.broker.machine import Machine
from jesenska.broker.requests.authentication import PLAINTEXT, ListenerSecurity
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Listeners

if TYPE_CHECKING:
    from jesenska.security.client_security import ClientSecurity
    from jesenska.security.mechanisms import CredentialOf, TokenCredentialOf


class PeerListener(NamedTuple):
    """The listener that brokers use among themselves, and the security of this broker's connections to other
    brokers."""

    name: str
    security: ClientSecurity | None


class Security(NamedTuple):
    """The security of each listener by name, and of connections to other brokers. `reconfigure` applies TLS settings
    that were changed while the broker runs; it is None if no listener is secured."""

    listeners: Mapping[str, ListenerSecurity]
    peers: PeerListener
    reconfigure: Callable[[BrokerConfig], None] | None

    def look(self) -> None:
        """Loads the certificates again if their files have changed."""
        if self.reconfigure is not None:
            for listener in self.listeners.values():
                listener.look()


class Credentials(NamedTuple):
    """The functions with which SCRAM looks up credentials by mechanism and name: a function for users, and a function
    for delegation tokens."""

    of_user: CredentialOf
    of_token: TokenCredentialOf


def security_of(
    config: BrokerConfig,
    listeners: Listeners,
    environment: Mapping[str, str],
    credentials: Credentials,
    machine: Machine,
) -> Security:
    """Returns the security of the listeners and of the connections to other brokers, as the settings describe it.
    Raises InvalidConfigError, with a message of one sentence, if a setting cannot be used."""
    if all(item.protocol == "PLAINTEXT" for item in listeners.opened):
        return Security(
            {item.name: PLAINTEXT for item in listeners.opened}, PeerListener(listeners.inter_broker, None), None
        )
    from jesenska.broker.stages.listener_mechanisms import JaasFile, Sources
    from jesenska.broker.stages.secured_listeners import peer_security, reconfigure, secured_listeners

    jaas = JaasFile(environment)
    secret_bytes = machine.secret_bytes
    found = secured_listeners(
        config, listeners.opened, Sources(jaas, *credentials, secret_bytes, secret_bytes(32), machine.clock)
    )
    return Security(
        found,
        PeerListener(listeners.inter_broker, peer_security(config, listeners, jaas, secret_bytes)),
        lambda changed: reconfigure(changed, listeners.opened, found),
    )
