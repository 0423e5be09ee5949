"""A client in Python that logs in by GSSAPI and prints the topics that it sees.

    python -m tests.peers.python.kerberos_client confluent_kafka|kafka|aiokafka ADDRESS SERVICE

The client uses the user's cache of tickets."""

from __future__ import annotations

import asyncio
import sys


def _confluent_kafka(address: str, service: str) -> list[str]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": service,
            "sasl.kerberos.kinit.cmd": "true",
        }
    )
    return list(admin.list_topics(timeout=20).topics)


def _kafka(address: str, service: str) -> list[str]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name=service,
    )
    return sorted(consumer.topics())


async def _aiokafka(address: str, service: str) -> list[str]:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="GSSAPI",
        sasl_kerberos_service_name=service,
    )
    await consumer.start()
    try:
        return sorted(await consumer.topics())
    finally:
        await consumer.stop()


def main(name: str, address: str, service: str) -> None:
    if name == "confluent_kafka":
        topics = _confluent_kafka(address, service)
    elif name == "kafka":
        topics = _kafka(address, service)
    else:
        topics = asyncio.run(_aiokafka(address, service))
    print(*topics, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
