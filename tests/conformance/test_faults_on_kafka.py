"""The harness on Apache Kafka 4.3.1: behind the proxy, under load, with cuts and other faults, its history is
clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from jesenska.testing.faults import (
    Fault,
    FaultProxy,
    RecordedLoad,
    Round,
    Schedule,
    ServerFaults,
    Target,
    apply,
    check,
    read_history,
)
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.processes.testing.test_faults_end_to_end import assert_all_took_part

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

_ROUNDS = (
    Round((Fault("cut", "kafka", 0.0),), 100),
    Round((Fault("hold", "kafka", 0.3, "to client"),), 100),
    Round((Fault("cut", "kafka", 0.0),), 100),
    Round((Fault("pause", "kafka", 0.3),), 100),
    Round((Fault("refuse", "kafka", 0.3),), 100),
    Round((Fault("delay", "kafka", 0.3, amount=30),), 100),
)


class Kafka:
    """One broker of Apache Kafka as a server that faults are done to."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka

    @property
    def pid(self) -> int:
        return self._kafka.pids[0]

    def start(self) -> None:
        self._kafka.start()

    def kill(self) -> None:
        self._kafka.kill()

    def stop(self) -> None:
        self._kafka.stop()


def test_apache_kafka_keeps_its_promises_under_faults(tmp_path: Path) -> None:
    need("java", "mvn")
    with FaultProxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "offsets.topic.num.partitions": "1"}
        with ApacheKafka("4.3.1", tmp_path / "kafka", heap="384m", settings=settings) as kafka:
            proxy.target = kafka.bootstrap
            load = RecordedLoad(proxy.address, "orders", tmp_path)
            apply(Schedule(1, _ROUNDS), {"kafka": Target(ServerFaults(Kafka(kafka)), proxy)}, load)
    history = read_history([load.path])
    assert_all_took_part(history)
    assert check(history) == []
