"""A broker with TLS and logins for tests: its certificate, its users and the settings of clients are made when a test
asks for them.

with SecuredBroker(tmp_path / "data") as broker:
    producer = confluent_kafka.Producer(broker.librdkafka("anna"))      # TLS, and the user anna, who is made here

The listener is SASL_SSL. The user `admin` logs in with PLAIN, all other users with SCRAM-SHA-512. Without an
authorizer in `settings`, every user is allowed all operations. The certificate is for 127.0.0.1 and localhost. This
class needs the package cryptography (`pip install 'jesenska[security]'`)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.user_administration import ScramPassword
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.security.authority import new_authority, write_secret
from jesenska.testing.broker import BrokerProcess

ADMIN: Final = "admin"
_MECHANISM: Final = "SCRAM-SHA-512"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_PASSWORD_BYTES: Final = 12


class SecuredBroker(BrokerProcess):
    """A broker process with one listener, SASL_SSL. Its files are below `data`'s parent directory: `ca.pem` is the
    certificate that clients trust."""

    def __init__(
        self,
        data: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        ready_seconds: float = 60.0,
        warm: bool = False,
    ) -> None:
        super().__init__(data, settings=settings, environment=environment, ready_seconds=ready_seconds, warm=warm)
        self._passwords: dict[str, str] = {ADMIN: secrets.token_hex(_PASSWORD_BYTES)}
        directory = self.data.parent
        directory.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        authority = new_authority("tests", now)
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_text(authority.pem)
        self._key_store = directory / "broker.pem"
        write_secret(self._key_store, authority.issue("broker", ["127.0.0.1", "localhost"], now))

    def password(self, user: str) -> str:
        """Returns the password of a user. At the first call, the user is created on the broker."""
        found = self._passwords.get(user)
        if found is None:
            found = self._passwords[user] = secrets.token_hex(_PASSWORD_BYTES)
            # The request runs on another thread, because the test's thread may already run an event loop.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._make_user(user, found)).result()
        return found

    def java(self, user: str = ADMIN) -> dict[str, str]:
        """Returns the settings of a Java client, of jesenska's client and of its tools, for a login as this user."""
        module = _PLAIN if user == ADMIN else _SCRAM
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": self._mechanism(user),
            "sasl.jaas.config": f'{module} username="{user}" password="{self.password(user)}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
        }

    def librdkafka(self, user: str = ADMIN) -> dict[str, str]:
        """Returns the settings of a client with librdkafka (confluent-kafka), for a login as this user."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": self._mechanism(user),
            "sasl.username": user,
            "sasl.password": self.password(user),
            "ssl.ca.location": str(self.ca_file),
        }

    def kafka_python(self, user: str = ADMIN) -> dict[str, Any]:
        """Returns the keyword arguments of a client of kafka-python, for a login as this user. aiokafka takes the same
        arguments, except that it needs an SSL context in place of `ssl_cafile`."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": self._mechanism(user),
            "sasl_plain_username": user,
            "sasl_plain_password": self.password(user),
            "ssl_cafile": str(self.ca_file),
        }

    @staticmethod
    def _mechanism(user: str) -> str:
        return "PLAIN" if user == ADMIN else _MECHANISM

    async def _make_user(self, user: str, password: str) -> None:
        given = {name: value for name, value in self.java().items() if name != "bootstrap.servers"}
        cluster = Cluster(self.bootstrap, client_config(ADMIN_SETTINGS, given))
        try:
            await Admin(cluster).alter_user_credentials(user, {_MECHANISM: ScramPassword(password)})
        finally:
            await cluster.close()

    def _arguments(self) -> list[str]:
        own = {
            "listeners": f"SASL_SSL://127.0.0.1:{self.port}",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": f"PLAIN,SCRAM-SHA-256,{_MECHANISM}",
            "sasl.jaas.config": f'{_PLAIN} username="{ADMIN}" password="{self._passwords[ADMIN]}" '
            f'user_{ADMIN}="{self._passwords[ADMIN]}";',
            "super.users": f"User:{ADMIN}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
        }
        return self._arguments_of(own | self.settings)
