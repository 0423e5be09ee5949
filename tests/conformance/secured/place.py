"""A broker with a listener for each kind of login, this one or Apache Kafka 3.9.1, and the files of its clients."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from cryptography.x509 import load_pem_x509_certificates

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.token_administration import TokenWithHmac
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.administration.user_administration import ScramPassword
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.security.authority import new_authority
from jesenska.testing import BrokerProcess
from tests.conformance.secured.cells import Cell
from tests.peers.apache_kafka import ApacheKafka, free_port
from tests.processes.broker.kdc import HOST, REALM, SERVICE, Kdc
from tests.processes.broker.secured import PLAIN, SCRAM, login
from tests.processes.broker.test_kerberos import by_key_tab
from tests.units.security.test_oauthbearer import KEYS, OTHER_RSA_KEY, signed

Answer = TypeVar("Answer")
KAFKA: Final = "3.9.1"
ADMIN_SECRET, PLAIN_SECRET, SCRAM_SECRET, WRONG_SECRET = "admin-sEcret", "anna-sEcret", "eva-sEcret", "wrong-sEcret"
STORE_SECRET: Final = "store-sEcret"
#: The user of each login.
USERS: Final = {
    "TLS": "ANONYMOUS",
    "mTLS": "client",
    "PLAIN": "anna",
    "SCRAM-SHA-256": "eva",
    "SCRAM-SHA-512": "eva",
    "OAUTHBEARER": "tom",
    "GSSAPI": "gus",
}
#: The protocol of each listener. OLD has a certificate that has expired. LOGIN, CLEAR and SHORT have the same
#: mechanisms; sessions of SHORT end after a moment.
PROTOCOLS: Final = {
    "PLAINTEXT": "PLAINTEXT",
    "INTERNAL": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "OLD": "SSL",
    "MTLS": "SSL",
    "LOGIN": "SASL_SSL",
    "CLEAR": "SASL_PLAINTEXT",
    "SHORT": "SASL_SSL",
    "KERBEROS": "SASL_PLAINTEXT",
}
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_EXPIRED_DAYS: Final = 900
#: The lifetime of a session at the listener SHORT. The shortest that Kafka's clients renew in time.
LIFETIME_MS: Final = 2000
_SECONDS: Final = 30.0


def user_of(cell: Cell) -> str:
    """A cell's user. One that is removed is of that cell alone."""
    return cell.topic if cell.condition == "removed" else USERS[cell.login]


@dataclass
class Files:
    """Certificates, stores, keys, tokens and tickets, made once for both brokers. `kdc` is None without Kerberos."""

    directory: Path
    kdc: Kdc | None = None
    key_tabs: dict[str, Path] = field(default_factory=dict)
    old_tickets: Path | None = None

    def __post_init__(self) -> None:
        now = datetime.now(UTC)
        earlier = now - timedelta(days=_EXPIRED_DAYS)
        trusted, other = new_authority("tests", now), new_authority("others", now)
        hosts = ["127.0.0.1", "localhost"]
        for name, text in {
            "ca": trusted.pem,
            "other-ca": other.pem,
            "broker": trusted.issue("broker", hosts, now),
            "old-broker": trusted.issue("broker", hosts, earlier),
            "client": trusted.issue("client", [], now),
            "other-client": other.issue("client", [], now),
            "old-client": trusted.issue("client", [], earlier),
        }.items():
            self._write(name, text)
        (self.directory / "keys.json").write_bytes(KEYS)
        for name, key, ends in (("right", None, 3600), ("wrong", OTHER_RSA_KEY, 3600), ("expired", None, -600)):
            claims = {"sub": USERS["OAUTHBEARER"], "iat": time.time() - 900, "exp": time.time() + ends}
            token = signed(claims) if key is None else signed(claims, key)
            (self.directory / f"{name}.token").write_text(token)
        if self.kdc is not None:
            names = (f"{SERVICE}/{HOST}", f"web/{HOST}", USERS["GSSAPI"])
            self.key_tabs = {name: self.kdc.key_tab(name) for name in names}
            self.old_tickets = self.kdc.cache(USERS["GSSAPI"], self.key_tabs[USERS["GSSAPI"]], "1s")

    def _write(self, name: str, text: str) -> None:
        """As PEM, and as PKCS12 for Java clients that are too old for PEM."""
        self.pem(name).write_text(text)
        encryption = BestAvailableEncryption(STORE_SECRET.encode())
        certificates = load_pem_x509_certificates(text.encode())
        if "PRIVATE KEY" in text:
            key = load_pem_private_key(text.encode(), None)
            stored = serialize_key_and_certificates(
                name.encode(),
                key,  # type: ignore[arg-type]
                certificates[0],
                certificates[1:],
                encryption,
            )
        else:
            stored = serialize_java_truststore([PKCS12Certificate(certificates[0], name.encode())], encryption)
        self.store(name).write_bytes(stored)

    def pem(self, name: str) -> Path:
        return self.directory / f"{name}.pem"

    def store(self, name: str) -> Path:
        return self.directory / f"{name}.p12"

    def token(self, name: str) -> Path:
        return self.directory / f"{name}.token"


@dataclass
class Place:
    """A running broker. `tokens` has the delegation tokens by the condition of their cells."""

    files: Files
    release: str
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in PROTOCOLS})
    tokens: dict[str, TokenWithHmac] = field(default_factory=dict)

    def address(self, listener: str) -> str:
        return f"localhost:{self.ports[listener]}"

    @property
    def _listeners(self) -> list[str]:
        return [name for name in PROTOCOLS if name != "KERBEROS" or self.files.kdc is not None]

    def settings(self) -> dict[str, str]:
        opened = ",".join(f"{name}://{self.address(name)}" for name in self._listeners)
        plain = f'{PLAIN} username="admin" password="{ADMIN_SECRET}" user_admin="{ADMIN_SECRET}"'
        found = {
            "listeners": opened,
            "advertised.listeners": opened,
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
            "inter.broker.listener.name": "INTERNAL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.internal.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.internal.plain.sasl.jaas.config": f"{plain};",
            **_logins("login", plain),
            **_logins("clear", plain),
            **_logins("short", plain),
            **{
                f"listener.name.short.{name.lower()}.connections.max.reauth.ms": str(LIFETIME_MS)
                for name in _MECHANISMS
            },
            "sasl.oauthbearer.jwks.endpoint.url": (self.files.directory / "keys.json").as_uri(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files.pem("broker")),
            "listener.name.old.ssl.keystore.location": str(self.files.pem("old-broker")),
            "listener.name.old.ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files.pem("ca")),
            "listener.name.mtls.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/,DEFAULT",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
            "delegation.token.secret.key": "token-sEcret",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "auto.create.topics.enable": "false",
        }
        if self.files.kdc is not None:
            found |= {
                "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": SERVICE,
                "listener.name.kerberos.gssapi.sasl.jaas.config": by_key_tab(
                    self.files.key_tabs[f"{SERVICE}/{HOST}"], f"{SERVICE}/{HOST}@{REALM}"
                ),
            }
        return found

    def ask(
        self, work: Callable[[Admin], Awaitable[Answer]], listener: str = "INTERNAL", user: dict[str, str] | None = None
    ) -> Answer:
        """The outcome of work with an administrator's client, or with one of these login settings."""
        settings = user or {"security.protocol": "SASL_PLAINTEXT", **login("admin", ADMIN_SECRET)}

        async def main() -> Answer:
            cluster = Cluster(self.address(listener), client_config(ADMIN_SETTINGS, settings))
            try:
                return await asyncio.wait_for(_done(work, cluster), _SECONDS)
            finally:
                await cluster.close()

        return asyncio.run(main())

    def prepare(self, cells: Iterable[Cell]) -> None:
        """Makes the users, the topics with a record each, the ACLs and the delegation tokens."""
        wanted = list(cells)
        own = {cell.topic: user_of(cell) for cell in wanted if cell.is_held}
        removed = [user_of(cell) for cell in wanted if cell.condition == "removed"]
        bindings = [
            *(binding for user in set(USERS.values()) for binding in _rights("open", user)),
            *(binding for topic, user in own.items() for binding in _rights(topic, user)),
            _allowed(ResourcePattern(ResourceType.GROUP, "open-", PatternType.PREFIXED), "*", AclOperation.READ),
        ]

        async def work(admin: Admin) -> None:
            failed = await admin.create_topics([NewTopic(topic, 1, 1) for topic in ("open", "forbidden", *own)])
            assert not any(failed.values()), failed
            passwords = dict.fromkeys(("SCRAM-SHA-256", "SCRAM-SHA-512"), ScramPassword(SCRAM_SECRET))
            for user in (USERS["SCRAM-SHA-256"], *removed):
                await admin.alter_user_credentials(user, passwords)
            assert not any(await admin.create_acls(bindings))
            async with Producer(admin.cluster) as producer:
                for topic in ("open", *own):
                    await (await producer.send(topic, b"x", partition=0))

        self.ask(work)
        if any(cell.is_token for cell in wanted):
            self._make_tokens()

    def _make_tokens(self) -> None:
        user = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files.pem("ca")),
            **login(USERS["SCRAM-SHA-256"], SCRAM_SECRET, "SCRAM-SHA-256"),
        }

        async def work(admin: Admin) -> dict[str, TokenWithHmac]:
            return {
                "token": await admin.create_delegation_token(),
                "expired": await admin.create_delegation_token(max_lifetime_ms=1),
            }

        self.tokens = self.ask(work, "LOGIN", user)

    def change(self, cell: Cell) -> None:
        """Does what happens to a cell that is held."""

        async def work(admin: Admin) -> None:
            if cell.condition == "revoked":
                wanted = AclFilter(ResourceType.TOPIC, cell.topic, PatternType.LITERAL)
                assert len(await admin.delete_acls([wanted])) == 2
            elif cell.condition == "removed":
                none = dict.fromkeys(("SCRAM-SHA-256", "SCRAM-SHA-512"))
                await admin.alter_user_credentials(user_of(cell), none)
            if cell.is_short:
                await asyncio.sleep(LIFETIME_MS / 1000)

        self.ask(work)


def _logins(listener: str, plain: str) -> dict[str, str]:
    """The mechanisms of a listener but for GSSAPI. `plain` is the broker's JAAS login for PLAIN."""
    prefix = f"listener.name.{listener}"
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f'{plain} user_anna="{PLAIN_SECRET}";',
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.secured."
        "OAuthBearerValidatorCallbackHandler",
    }


async def _done(work: Callable[[Admin], Awaitable[Answer]], cluster: Cluster) -> Answer:
    return await work(Admin(cluster))


def _allowed(pattern: ResourcePattern, user: str, operation: AclOperation) -> AclBinding:
    return AclBinding(pattern, AclEntry(f"User:{user}", "*", operation, Permission.ALLOW))


def _rights(topic: str, user: str) -> list[AclBinding]:
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    return [_allowed(pattern, user, operation) for operation in (AclOperation.READ, AclOperation.WRITE)]


@contextmanager
def running(release: str, files: Files) -> Iterator[Place]:
    """A broker: "ours", or Apache Kafka."""
    place = Place(files, release)
    if release == "ours":
        with BrokerProcess(files.directory / release, settings=place.settings()):
            yield place
        return
    keys = (files.directory / "keys.json").as_uri()
    options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"]
    if files.kdc is not None:
        options.append(f"-Djava.security.krb5.conf={files.kdc.configuration}")
    kafka = ApacheKafka(
        release,
        files.directory / release,
        zookeeper=True,
        heap="512m",
        settings=place.settings(),
        java_options=options,
    )
    kafka.ports = [place.ports["PLAINTEXT"]]
    try:
        kafka.start()
        yield place
    finally:
        kafka.stop()


def environment(files: Files) -> dict[str, str]:
    """The environment of brokers and clients."""
    return dict(os.environ) | (files.kdc.environment if files.kdc is not None else {})
