"""A process that is a member of a group with confluent-kafka, for the soak. It reads and commits, and prints JSON
lines on stdout with the partitions that it owns, the records that it has read and the commits that were acknowledged.
At SIGTERM it leaves the group. SIGKILL makes it die."""

from __future__ import annotations

import json
import signal
import sys
from collections import defaultdict
from typing import Any


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def main(bootstrap: str, name: str, group: str, topic: str, assignor: str, session_ms: str) -> None:
    from confluent_kafka import Consumer, KafkaException

    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: leaving.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": group,
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": int(session_ms),
            "heartbeat.interval.ms": 300,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    owned: list[int] | None = None
    owed = False
    while not leaving:
        messages: list[Any] = [message for message in consumer.consume(1000, 0.2) if message.error() is None]
        read: dict[int, list[int]] = defaultdict(list)
        for message in messages:
            read[message.partition()].append(message.offset())
        if read:
            _say(read=read)
        now = sorted(item.partition for item in consumer.assignment())
        if now != owned:
            owned = now
            _say(owned=owned)
        owed = owed or bool(read)
        if not owed:
            continue
        try:
            answer = consumer.commit(asynchronous=False)
        except KafkaException:
            continue  # the broker is gone, or there is a rebalance: nothing was acknowledged
        _say(committed={item.partition: item.offset for item in answer or [] if not item.error and item.offset >= 0})
        owed = False
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
