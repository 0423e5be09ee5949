"""What a cluster is made of: brokers, ours or Apache Kafka's, and the tree."""

from __future__ import annotations

from pathlib import Path

from jesenska.testing import BrokerProcess
from jesenska.testing.faults import FaultProxy, ServerFaults
from jesenska.testing.tree import TreeProcess
from tests.cluster.kafka_process import KafkaProcess


class OurProcess(BrokerProcess):
    stopped_code = 0


class Broker(ServerFaults):
    """One broker of a cluster. Where it is proxied, clients and other brokers reach it through `proxy`, and it reaches
    the tree through `tree_proxy`."""

    def __init__(
        self,
        broker_id: int,
        process: OurProcess | KafkaProcess,
        proxy: FaultProxy | None,
        tree_proxy: FaultProxy | None,
    ) -> None:
        super().__init__(process)
        self._is_running = False
        self.broker_id = broker_id
        self.process = process
        self.proxy = proxy
        self.tree_proxy = tree_proxy

    @property
    def address(self) -> str:
        """Its own."""
        return self.process.address

    @property
    def advertised(self) -> str:
        """What it tells its clients."""
        return self.process.address if self.proxy is None else self.proxy.address

    @property
    def data(self) -> Path:
        return self.process.data

    @property
    def log(self) -> str:
        return self.process.log

    @property
    def answers(self) -> bool:
        """Whether it can be expected to."""
        return self.is_running and not self.is_paused

    def stop(self) -> None:
        """In order; AssertionError where its exit code is another than that of an orderly stop."""
        if self._is_running:
            self.resume()
            self._is_running = False
            code = self.process.stop()
            assert code == self.process.stopped_code, f"broker {self.broker_id} stops with {code}: {self.log[-3000:]}"


class Tree(ServerFaults):
    """The tree of a cluster, which can be paused."""

    def __init__(self, process: TreeProcess) -> None:
        super().__init__(process)
        self._is_running = False
        self.process = process

    @property
    def address(self) -> str:
        return self.process.address
