"""A broker process with every kind of login, for attacks: its users, certificates and delegation tokens."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.administration.user_administration import ScramPassword
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.security.authority import Authority, new_authority
from jesenska.testing import BrokerProcess
from tests.peers.apache_kafka import free_port
from tests.processes.broker.token_scenario import create, logged_in, user_login
from tests.processes.fuzz.logins.bystanders import TOPIC
from tests.processes.fuzz.logins.secrets import ADMIN_PASSWORD, PASSWORDS, Target, Token
from tests.units.security.test_oauthbearer import KEYS

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_SASL: Final = "listener.name.sasl_plaintext."


class SecuredTarget:
    """The broker, and what attackers and bystanders know of it."""

    def __init__(self, broker: BrokerProcess, directory: Path, ports: dict[str, int]) -> None:
        self.broker = broker
        self._directory = directory
        self.ports = ports

    def bystander_settings(self) -> dict[str, str]:
        """The settings of a client that is logged in."""
        return self._login("anna", PASSWORDS["anna"], "SCRAM-SHA-512")

    @property
    def secured(self) -> str:
        return f"127.0.0.1:{self.ports['SASL_SSL']}"

    def _login(self, user: str, password: str, mechanism: str) -> dict[str, str]:
        module = _PLAIN if mechanism == "PLAIN" else _SCRAM
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / "ca.pem"),
        }

    async def prepare(self) -> None:
        """Makes the users and the topic of the bystanders."""
        cluster = Cluster(self.secured, client_config(ADMIN_SETTINGS, self._login("admin", ADMIN_PASSWORD, "PLAIN")))
        try:
            admin = Admin(cluster)
            await admin.create_topics([NewTopic(TOPIC, 1, 1)])
            for user, password in PASSWORDS.items():
                for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                    await admin.alter_user_credentials(user, {mechanism: ScramPassword(password)})
        finally:
            await cluster.close()

    def target(self, authority: Authority) -> Target:
        """What an attacker aims at. Makes delegation tokens."""
        now = datetime.now(UTC)
        plain = f"127.0.0.1:{self.ports['SASL_PLAINTEXT']}"
        tokens = []
        for life_ms in (-1, 1, -1):
            with logged_in(plain, user_login("dora"), "PLAIN") as (connection, error, _):
                assert error == 0
                made = create(connection, life_ms=life_ms)
                assert made.error_code == 0, made
                tokens.append(Token(made.token_id, bytes(made.hmac)))
        strangers = new_authority("strangers", now)
        known, strange = (_context(self._directory) for _ in range(2))
        for context, pem, name in (
            (known, authority.issue("ben", [], now), "ben.pem"),
            (strange, strangers.issue("eva", [], now), "eva.pem"),
        ):
            (self._directory / name).write_text(pem)
            context.load_cert_chain(self._directory / name)
        return Target(
            ("127.0.0.1", self.ports["SASL_PLAINTEXT"]),
            ("127.0.0.1", self.ports["SASL_SSL"]),
            ("127.0.0.1", self.ports["SSL"]),
            tokens[0],
            tokens[1],
            tokens[2],
            _context(self._directory),
            known,
            strange,
        )


def _context(directory: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(directory / "ca.pem"))


def _settings(directory: Path, ports: dict[str, int]) -> dict[str, str]:
    users = " ".join(f'user_{name}="{password}"' for name, password in (PASSWORDS | {"dora": "dora"}).items())
    plain = f'{_PLAIN} username="admin" password="{ADMIN_PASSWORD}" user_admin="{ADMIN_PASSWORD}" {users};'
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
        "connections.max.reauth.ms": "3600000",
        "connection.failed.authentication.delay.ms": "1",
        "delegation.token.secret.key": "token-sEcret",
        "offsets.topic.num.partitions": "1",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        settings |= {
            f"listener.name.{listener}.plain.sasl.jaas.config": plain,
            f"listener.name.{listener}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (
                directory / "keys.json"
            ).as_uri(),
        }
    return settings


@contextmanager
def secured_target(directory: Path, module: str = "jesenska") -> Iterator[tuple[SecuredTarget, Target]]:
    """A broker process that is ready to be attacked. `module` is run as the broker."""
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    authority = new_authority("fuzz", now)
    (directory / "ca.pem").write_text(authority.pem)
    (directory / "broker.pem").write_text(authority.issue("broker", ["localhost", "127.0.0.1"], now))
    (directory / "keys.json").write_bytes(KEYS)
    ports = {name: free_port() for name in ("SASL_SSL", "SASL_PLAINTEXT", "SSL")}
    with BrokerProcess(directory / "data", settings=_settings(directory, ports), module=module) as broker:
        found = SecuredTarget(broker, directory, ports)
        asyncio.run(found.prepare())
        yield found, found.target(authority)
