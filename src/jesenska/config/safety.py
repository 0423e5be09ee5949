"""Finds settings that must prevent the broker's start: they ask for a protection, or a placement of data, that
jesenska does not have. A broker that ignored them would have an unprotected listener, no access rules, or records in
the wrong places.

Each refusal is one sentence: the setting, the feature that it requires, and the remedy. Settings that merely have no
effect cause a warning instead (`BrokerConfig.unused`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jesenska.base.errors import InvalidConfigError
from jesenska.config.layers import BrokerConfig, retention_policy_fault
from jesenska.config.listeners import security_protocols
from jesenska.config.replica_selectors import REPLICA_SELECTORS

#: The value of cordoned.log.dirs that means all directories.
EVERY_DIRECTORY = "*"


class StartRefused(Exception):
    """Raised if the broker must not start, because a setting requires a feature that jesenska does not have. The
    message is one sentence for the operator; `setting` is the name of the setting."""

    def __init__(self, setting: str, sentence: str) -> None:
        super().__init__(sentence)
        self.setting = setting


def refuse_unsafe(config: BrokerConfig) -> None:
    """Raises StartRefused for the first setting that requires a feature that jesenska does not have; returns if there
    is no such setting."""
    for refusal in refusals(config):
        raise refusal


def refusals(config: BrokerConfig) -> Iterator[StartRefused]:
    """Yields a StartRefused for every setting that requires a feature that jesenska does not have."""
    for rule in _RULES:
        yield from rule(config)


def _zookeeper(config: BrokerConfig) -> Iterator[StartRefused]:
    for name, what in (
        ("zookeeper.metadata.migration.enable", "moving metadata to KRaft"),
        ("zookeeper.ssl.crl.enable", "checking certificates against revocation lists"),
        ("zookeeper.ssl.ocsp.enable", "checking the revocation of certificates over OCSP"),
    ):
        if config.boolean(name):
            yield StartRefused(name, f"{name}=true requests {what}, which is not implemented yet: remove the setting.")
    if config.boolean("zookeeper.set.acl") and not (config.string("zookeeper.connect") or "").strip():
        yield StartRefused(
            "zookeeper.set.acl",
            "zookeeper.set.acl=true protects nodes on a ZooKeeper, but zookeeper.connect is not set: set it, or remove "
            "zookeeper.set.acl.",
        )


def _listener_protocols(config: BrokerConfig) -> Iterator[StartRefused]:
    """Yields a refusal for each listener name without a valid security protocol. Only names and protocols are read, so
    that this fault is reported even if the address is broken as well."""
    try:
        protocols = security_protocols(config)
    except InvalidConfigError as error:
        yield StartRefused("listener.security.protocol.map", str(error))
        return
    for setting in ("listeners", "advertised.listeners"):
        for entry in (config.string(setting) or "").split(","):
            name, has_name, _ = entry.strip().partition("://")
            name = name.upper()
            if not has_name:
                # `listeners_of` reports an entry without an address, so it is skipped here.
                continue
            protocol = protocols.get(name)
            if protocol is None:
                yield StartRefused(
                    setting,
                    f"No security protocol is known for listener {name} in {setting}: add {name}:PLAINTEXT to "
                    f"listener.security.protocol.map.",
                )


#: Kafka's own authorizer classes. jesenska has one authorizer, which any of these names turns on.
AUTHORIZERS = (
    "kafka.security.auth.SimpleAclAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)


def _authorizer(config: BrokerConfig) -> Iterator[StartRefused]:
    name = (config.string("authorizer.class.name") or "").strip()
    if name and name not in AUTHORIZERS:
        yield StartRefused(
            "authorizer.class.name",
            f"authorizer.class.name={name} names a Java class, which jesenska cannot load: use {AUTHORIZERS[-1]}, or "
            f"remove the setting so that all users may do all operations.",
        )


def _policies(config: BrokerConfig) -> Iterator[StartRefused]:
    for name in ("create.topic.policy.class.name", "alter.config.policy.class.name"):
        if config.string(name):
            yield StartRefused(
                name,
                f"{name} names a Java class, which jesenska cannot load, so its rules would not be applied: remove the "
                f"setting.",
            )
    selector = config.string("replica.selector.class")
    if selector and selector not in REPLICA_SELECTORS:
        yield StartRefused(
            "replica.selector.class",
            f"replica.selector.class={selector} names a Java class, which jesenska cannot load: use "
            f"{' or '.join(REPLICA_SELECTORS)}, "
            "or remove the setting.",
        )
    retention = config.string("jesenska.log.retention.policy") or ""
    if (reason := retention_policy_fault(retention)) is not None:
        yield StartRefused("jesenska.log.retention.policy", f"jesenska.log.retention.policy={retention}: {reason}")
    if config.strings("config.providers"):
        yield StartRefused(
            "config.providers",
            "config.providers names Java classes, which jesenska cannot load: write the values directly into the file.",
        )


def _roles(config: BrokerConfig) -> Iterator[StartRefused]:
    roles = config.strings("process.roles")
    if not roles:
        return
    if "broker" not in roles:
        yield StartRefused(
            "process.roles",
            "process.roles=controller requests a controller without a broker: set process.roles=broker,controller.",
        )
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        voters = [item for item in config.strings(name) if item]
        if len(voters) > 1:
            yield StartRefused(
                name,
                f"{name} names {len(voters)} controllers, but jesenska has no KRaft quorum: for one broker name only "
                f"this node; for several brokers start zookeeper-server-start, and each broker with zookeeper.connect "
                f"instead of this setting.",
            )
        elif (
            name.endswith("voters") and voters and voters[0].partition("@")[0].strip() != str(config.integer("node.id"))
        ):
            yield StartRefused(
                name,
                f"{name} names controller {voters[0]}, which is not this node: name only this node, or remove the "
                f"setting.",
            )


def _placement(config: BrokerConfig) -> Iterator[StartRefused]:
    if config.boolean("remote.log.storage.system.enable"):
        yield StartRefused(
            "remote.log.storage.system.enable",
            "remote.log.storage.system.enable=true requests remote storage, which is not implemented yet: "
            "remove the setting.",
        )


def _cordons(config: BrokerConfig) -> Iterator[StartRefused]:
    name = "cordoned.log.dirs"
    cordoned = [item for item in config.strings(name) if item != EVERY_DIRECTORY]
    if cordoned:
        directories = {
            item.strip() for item in (config.string("log.dirs") or config.string("log.dir") or "").split(",")
        }
        missing = [item for item in cordoned if item not in directories]
        if missing:
            yield StartRefused(
                name,
                f"All entries in {name} must be present in log.dirs or log.dir. Missing entries : "
                f"{', '.join(missing)}.",
            )


_RULES: tuple[Callable[[BrokerConfig], Iterator[StartRefused]], ...] = (
    _zookeeper,
    _listener_protocols,
    _authorizer,
    _policies,
    _roles,
    _placement,
    _cordons,
)
