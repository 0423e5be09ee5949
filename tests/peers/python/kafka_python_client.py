"""kafka-python of any release from 1.4 on. The option `api_version` has it speak as it would to a broker of that
release."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from typing import Any

try:
    import kafka
except ModuleNotFoundError as error:
    if error.name != "kafka.vendor.six.moves":
        raise
    # Releases before 2.0.3 bring a `six` that Python 3.12 cannot import from: the package of that name takes its
    # place.
    for name in [name for name in sys.modules if name.split(".")[0] == "kafka"]:
        del sys.modules[name]
    import six  # type: ignore[import-untyped]

    sys.modules["kafka.vendor.six"] = six
    sys.modules["kafka.vendor.six.moves"] = six.moves
    import kafka

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.peers.python.conversation import READ_SECONDS, Asked, Plan, Row, converse


class _Warnings(logging.Handler):
    """An error code that it does not know is a line in its log; it asks again for ever."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "error fetching" in record.getMessage():
            self.said = [record.getMessage()]


_warnings = _Warnings()
logging.getLogger("kafka.consumer.fetcher").addHandler(_warnings)


def _settings(plan: Plan) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap_servers": plan.bootstrap}
    if "api_version" in plan.options:
        settings["api_version"] = tuple(plan.options["api_version"])
    return settings


def write(plan: Plan, topic: str, codec: str, rows: list[Row]) -> None:
    compression = None if codec == "none" else codec
    producer = KafkaProducer(
        **_settings(plan), compression_type=compression, acks="all", retries=0, linger_ms=20_000, batch_size=1 << 20
    )
    try:
        sent = [producer.send(topic, row.value, row.key, row.headers or None, 0, row.timestamp_ms) for row in rows]
        producer.flush(30)
        for future in sent:
            future.get(30)
    finally:
        producer.close()


def read(plan: Plan, topic: str, count: int) -> list[Row]:
    consumer = KafkaConsumer(
        **_settings(plan), auto_offset_reset="earliest", enable_auto_commit=False, fetch_max_wait_ms=10
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        rows: list[Row] = []
        deadline = time.monotonic() + READ_SECONDS
        while len(rows) < count and time.monotonic() < deadline and not _warnings.said:
            found = consumer.poll(1000).get(partition, ())
            rows += [
                Row(
                    record.key,
                    record.value,
                    record.timestamp,
                    [(name, bytes(value)) for name, value in record.headers or ()],
                )
                for record in found
            ]
        if _warnings.said:
            raise RuntimeError(_warnings.said.pop())
        return rows
    finally:
        consumer.close()


def take_part(plan: Plan, asked: Asked) -> Iterable[bytes]:
    # Releases from 3.0 on have a session time-out of 45 s in place of 10 s.
    consumer = KafkaConsumer(
        plan.topic,
        **_settings(plan),
        group_id=plan.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
        session_timeout_ms=10_000,
    )
    # A member that does not know the topic's partitions yet joins again once it does. 3.0.12 is lost if `poll` returns
    # in the middle of that: it sends no heartbeats, asks without a pause, and does not join again.
    consumer.topics()
    while not asked.to_leave():
        for records in consumer.poll(200).values():
            for record in records:
                yield record.value
        if asked.to_commit():
            consumer.commit()
    consumer.close()


if __name__ == "__main__":
    print(kafka.__version__, file=sys.stderr)
    converse(write, read, take_part)
