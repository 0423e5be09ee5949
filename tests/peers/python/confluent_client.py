"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, Message, Producer, TopicPartition

from tests.peers.python.conversation import READ_SECONDS, Asked, Plan, Row, converse


def write(plan: Plan, topic: str, codec: str, rows: list[Row]) -> None:
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": plan.bootstrap,
            "compression.type": codec,
            "linger.ms": 20_000,
            "message.timeout.ms": 30_000,
        }
    )

    def delivered(error: Any, _: Message) -> None:
        failed.append(error)

    for row in rows:
        producer.produce(
            topic,
            row.value,
            row.key,
            0,
            timestamp=row.timestamp_ms or 0,
            headers=[*row.headers] if row.headers else None,
            callback=delivered,
        )
    producer.flush(30)
    if failed != [None] * len(rows):
        raise RuntimeError(f"not delivered: {failed}")


def read(plan: Plan, topic: str, count: int) -> list[Row]:
    consumer = Consumer(
        {"bootstrap.servers": plan.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        rows: list[Row] = []
        deadline = time.monotonic() + READ_SECONDS
        while len(rows) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None:
                rows.append(_row(message))
        return rows
    finally:
        consumer.close()


def _row(message: Message) -> Row:
    error = message.error()
    if error:
        raise KafkaException(error)
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or []
    return Row(message.key(), message.value(), -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms, headers)


def take_part(plan: Plan, asked: Asked) -> Iterable[bytes]:
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 300}
    consumer = Consumer({"bootstrap.servers": plan.bootstrap, "group.id": plan.group, **settings})
    consumer.subscribe([plan.topic])
    while not asked.to_leave():
        message = consumer.poll(0.2)
        if message is not None:
            value = _row(message).value
            assert value is not None
            yield value
        if asked.to_commit():
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    converse(write, read, take_part)
