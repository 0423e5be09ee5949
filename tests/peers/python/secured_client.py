"""A client of others that writes one record to a broker with TLS and a login:

    python -m tests.peers.python.secured_client CLIENT ADDRESS PROTOCOL CA_FILE MECHANISM USER PASSWORD TOPIC

It prints "written", or the client's error. MECHANISM, USER and PASSWORD are empty without SASL. For OAUTHBEARER the
password is the token."""

from __future__ import annotations

import asyncio
import logging
import ssl
import sys
import time
from typing import NamedTuple


class Case(NamedTuple):
    """What the command's line says."""

    client: str
    address: str
    protocol: str
    trusted: str
    mechanism: str
    user: str
    password: str
    topic: str

    def plain_login(self) -> dict[str, str]:
        """The login as kafka-python and aiokafka take it."""
        if not self.mechanism:
            return {}
        return {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }


def confluent_kafka(case: Case) -> bool:
    from confluent_kafka import Producer

    refused: list[str] = []
    settings: dict[str, object] = {
        "bootstrap.servers": case.address,
        "security.protocol": case.protocol,
        "ssl.ca.location": case.trusted,
        "error_cb": lambda error: refused.append(str(error)),
    }
    if case.mechanism:
        settings |= {"sasl.mechanism": case.mechanism}
        if case.mechanism == "OAUTHBEARER":
            settings["oauth_cb"] = lambda _: (case.password, time.time() + 3000)
        else:
            settings |= {"sasl.username": case.user, "sasl.password": case.password}
    producer = Producer(settings)
    written: list[bool] = []
    producer.produce(case.topic, b"x", on_delivery=lambda error, _: written.append(error is None))
    for _ in range(200):
        producer.poll(0.1)
        if written or any("uthentication" in text for text in refused):
            break
    print(*refused)
    producer.purge()
    producer.flush(1.0)
    return written[:1] == [True]


def kafka(case: Case) -> bool:
    from kafka import KafkaProducer

    login: dict[str, object] = dict(case.plain_login())
    if case.mechanism == "OAUTHBEARER":
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Tokens(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return case.password

        login = {"sasl_mechanism": case.mechanism, "sasl_oauth_token_provider": Tokens()}
    producer = KafkaProducer(
        bootstrap_servers=case.address,
        security_protocol=case.protocol,
        ssl_cafile=case.trusted,
        bootstrap_timeout_ms=5000,
        max_block_ms=5000,
        **login,
    )
    producer.send(case.topic, b"x").get(timeout=20)
    return True


def aiokafka(case: Case) -> bool:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return case.password

    login: dict[str, object] = dict(case.plain_login())
    if case.mechanism == "OAUTHBEARER":
        login = {"sasl_mechanism": case.mechanism, "sasl_oauth_token_provider": Tokens()}

    async def main() -> None:
        context = ssl.create_default_context(cafile=case.trusted) if "SSL" in case.protocol else None
        producer = AIOKafkaProducer(
            bootstrap_servers=case.address,
            security_protocol=case.protocol,
            ssl_context=context,
            **login,
        )
        try:
            await asyncio.wait_for(producer.start(), 20)
            await producer.send_and_wait(case.topic, b"x")
        finally:
            await producer.stop()

    asyncio.run(main())
    return True


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    wanted = Case(*sys.argv[1:])
    clients = {"confluent_kafka": confluent_kafka, "kafka": kafka, "aiokafka": aiokafka}
    if clients[wanted.client](wanted):
        print("written")
