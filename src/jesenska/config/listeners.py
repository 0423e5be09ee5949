"""Reads the addresses on which a broker listens, and the addresses that it advertises to clients. They come from the
settings `listeners`, `advertised.listeners` and the older settings with the same purpose.

    PLAINTEXT://0.0.0.0:9092,INTERNAL://[::1]:9093,LOCAL://:9094
    name        host         port        a name's protocol is in listener.security.protocol.map; no host: all
                                         interfaces

The rules are Kafka's. Names and ports differ, but two listeners may have the same port if one host is IPv4 and the
other IPv6. An advertised name is also a listener's name, and its host is never the meta-address 0.0.0.0. The listener
between brokers is advertised. Listeners named in `controller.listener.names` belong to a KRaft controller and are not
opened.

The module `config.safety` decides if a listener's protocol can be served, and the package `net` opens the
addresses."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from jesenska.base.errors import InvalidConfigError
from jesenska.config.layers import BrokerConfig

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(
    r"(?P<name>[0-9a-zA-Z_.\-]+)://(?:\[(?P<v6>[0-9a-zA-Z:.%]*)\]|(?P<host>[0-9a-zA-Z\-._%]*)):(?P<port>-?[0-9]{1,6})\Z"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a listener. An empty `host` means all interfaces; with `port` 0 the system chooses the port."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The addresses that the broker opens, the addresses that it advertises to clients (for the same listener names,
    or for some of them), and the name of the listener between brokers."""

    opened: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str

    def advertise(self, bound_ports: dict[str, int], host_name: str) -> tuple[Endpoint, ...]:
        """Returns the advertised addresses after the listeners are open: port 0 is replaced by the port that the
        system chose, an empty host by `host_name`."""
        return tuple(
            Endpoint(item.name, item.protocol, item.host or host_name, item.port or bound_ports.get(item.name, 0))
            for item in self.advertised
        )


def listeners_of(config: BrokerConfig) -> Listeners:
    """Returns the listeners of a configuration. Raises InvalidConfigError with the reason if Kafka would refuse
    them."""
    protocols = security_protocols(config)
    controller_names = {
        name.strip().upper() for name in (config.string("controller.listener.names") or "").split(",") if name.strip()
    }
    raft = bool(config.strings("process.roles"))
    everything = _parse("listeners", _listeners_text(config), protocols)
    _require_distinct("listeners", everything, ports=True)
    opened = tuple(item for item in everything if not (raft and item.name in controller_names))
    if not opened:
        raise InvalidConfigError("listeners names no address for clients; add one such as PLAINTEXT://:9092.")
    text = _advertised_text(config)
    advertised = opened if text is None else _parse("advertised.listeners", text, protocols)
    if text is not None:
        _require_distinct("advertised.listeners", advertised, ports=False)
    advertised = tuple(item for item in advertised if not (raft and item.name in controller_names))
    names = {item.name for item in opened}
    for item in advertised:
        if item.name not in names:
            raise InvalidConfigError(
                "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
                f"Found {','.join(sorted(other.name for other in advertised))}. The valid options based on the "
                f"current configuration are "
                f"{','.join(sorted(names))}"
            )
        if item.host in ("0.0.0.0", "::"):  # noqa: S104
            raise InvalidConfigError(
                f"advertised.listeners cannot use the nonroutable meta-address {item.host}. Use a routable IP "
                f"address, or set advertised.listeners "
                "to the address that clients reach this broker at."
            )
    return Listeners(opened, advertised, _inter_broker(config, opened, advertised, protocols))


def security_protocols(config: BrokerConfig) -> dict[str, str]:
    """Returns the security protocol of each listener name, from `listener.security.protocol.map`. Raises
    InvalidConfigError for an entry that is not valid."""
    protocols: dict[str, str] = {}
    for entry in (config.string("listener.security.protocol.map") or "").split(","):
        if not entry.strip():
            continue
        name, colon, protocol = entry.strip().partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in SECURITY_PROTOCOLS:
            raise InvalidConfigError(
                f"listener.security.protocol.map holds {entry.strip()!r}; write NAME:PROTOCOL with one of "
                f"{', '.join(SECURITY_PROTOCOLS)}."
            )
        if name in protocols and protocols[name] != protocol:
            raise InvalidConfigError(f"listener.security.protocol.map names {name} twice; leave one of them out.")
        protocols[name] = protocol
    return protocols


def _listeners_text(config: BrokerConfig) -> str:
    if config.is_set("listeners") or not (config.is_set("host.name") or config.is_set("port")):
        return config.string("listeners") or ""
    return f"PLAINTEXT://{_bracketed(config.string('host.name') or '')}:{config.integer('port')}"


def _advertised_text(config: BrokerConfig) -> str | None:
    text = config.string("advertised.listeners")
    if text is not None:
        return text
    if not (config.is_set("advertised.host.name") or config.is_set("advertised.port")):
        return None
    host = config.string("advertised.host.name") or config.string("host.name") or ""
    port = config.optional_integer("advertised.port") if config.is_set("advertised.port") else config.integer("port")
    return f"PLAINTEXT://{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _parse(setting: str, text: str, protocols: dict[str, str]) -> tuple[Endpoint, ...]:
    found = []
    for entry in text.split(","):
        if not entry.strip():
            continue
        matched = _ENDPOINT.match(entry.strip())
        if matched is None:
            raise InvalidConfigError(
                f"{setting} holds {entry.strip()!r}, which is not an address; write NAME://host:port, as in "
                "PLAINTEXT://127.0.0.1:9092."
            )
        name, port = matched["name"].upper(), int(matched["port"])
        if not 0 <= port <= 65535:
            raise InvalidConfigError(f"{setting} holds port {port} in {entry.strip()!r}; ports go from 0 to 65535.")
        if name not in protocols:
            raise InvalidConfigError(
                f"No security protocol defined for listener {name}; add {name}:PLAINTEXT to "
                f"listener.security.protocol.map."
            )
        found.append(
            Endpoint(name, protocols[name], matched["v6"] if matched["v6"] is not None else matched["host"], port)
        )
    if not found:
        raise InvalidConfigError(f"{setting} is empty; write NAME://host:port, as in PLAINTEXT://:9092.")
    return tuple(found)


def _require_distinct(setting: str, items: tuple[Endpoint, ...], *, ports: bool) -> None:
    names = [item.name for item in items]
    if len(set(names)) != len(names):
        raise InvalidConfigError(f"Each listener must have a different name, {setting}: {','.join(map(str, items))}")
    if not ports:
        return
    by_port: dict[int, list[Endpoint]] = {}
    for item in items:
        if item.port:
            by_port.setdefault(item.port, []).append(item)
    for sharing in by_port.values():
        versions = {_ip_version(item.host) for item in sharing}
        if len(sharing) > 1 and not (len(sharing) == 2 and versions == {4, 6}):
            raise InvalidConfigError(
                f"Each listener must have a different port, {setting}: {','.join(map(str, items))}"
            )


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return None


def _inter_broker(
    config: BrokerConfig, opened: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...], protocols: dict[str, str]
) -> str:
    name = config.string("inter.broker.listener.name")
    protocol = config.string("security.inter.broker.protocol")
    if name is not None:
        if config.is_set("security.inter.broker.protocol"):
            raise InvalidConfigError(
                "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
            )
        name = name.upper()
        if name not in protocols:
            raise InvalidConfigError(
                f"Listener with name {name} defined in inter.broker.listener.name not found in "
                f"listener.security.protocol.map."
            )
    else:
        name = str(protocol)
        if (
            name not in {item.name for item in opened}
            and len(opened) == 1
            and not config.is_set("security.inter.broker.protocol")
        ):
            name = opened[0].name  # one listener under another name: brokers reach each other only there
    if name not in {item.name for item in advertised}:
        raise InvalidConfigError(
            f"inter.broker.listener.name must be a listener name defined in advertised.listeners; {name} is none of "
            f"{','.join(sorted(item.name for item in advertised))}."
        )
    return name
