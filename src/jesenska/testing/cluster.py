"""Runs a cluster of brokers for tests: a process for each broker, and a process for the ZooKeeper server of the
cluster.

with ClusterProcesses(tmp_path / "data") as cluster:
    ... cluster.bootstrap ...
    cluster.brokers[0].kill()       # SIGKILL, as a crash: other brokers lead its partitions
    cluster.brokers[0].start()      # the same port, the same data
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from jesenska.testing.broker import BrokerProcess
from jesenska.testing.tree import TreeProcess

#: The session timeout of brokers in ZooKeeper, in milliseconds. Kafka's default of 18 s is too long for a test that
#: kills a broker.
_SESSION_TIMEOUT_MS = "2000"


class ClusterProcesses:
    """A cluster of brokers, numbered from 0, and their ZooKeeper server. All data is below the directory `data`.
    `settings` are settings of server.properties for every broker. By default, new topics and Kafka's own topics have
    three replicas, each on another broker. The processes end with the `with` block."""

    def __init__(self, data: Path, brokers: int = 3, *, settings: Mapping[str, str] | None = None) -> None:
        if brokers < 1:
            raise ValueError("a cluster has one broker at least")
        self.data = Path(data)
        self.settings = dict(settings or {})
        self._count = brokers
        self.tree = TreeProcess(self.data / "tree")
        #: The broker processes, by number; empty before `start`.
        self.brokers: list[BrokerProcess] = []

    @property
    def bootstrap(self) -> str:
        """Returns host:port of every broker, separated by commas, for bootstrap.servers of clients."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def log(self) -> str:
        """Returns the output of all brokers, one after the other."""
        return "".join(broker.log for broker in self.brokers)

    def start(self) -> Self:
        """Starts the ZooKeeper server and the brokers. Returns when clients can connect to every broker. Raises
        ServerFailedError if a broker cannot start."""
        (self.data / "tree").mkdir(parents=True, exist_ok=True)
        self.tree.start()
        if not self.brokers:
            self.brokers = [
                BrokerProcess(self.data / f"broker-{number}", settings=self._settings(number), warm=True)
                for number in range(self._count)
            ]
        try:
            with ThreadPoolExecutor(self._count) as threads:
                list(threads.map(BrokerProcess.start, self.brokers))
        except BaseException:
            self.stop()
            raise
        return self

    def _settings(self, number: int) -> dict[str, str]:
        copies = str(min(3, self._count))
        return {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": str(min(2, self._count)),
            "group.initial.rebalance.delay.ms": "0",
            "zookeeper.session.timeout.ms": _SESSION_TIMEOUT_MS,
            **self.settings,
            "broker.id": str(number),
            "zookeeper.connect": self.tree.address,
        }

    def stop(self) -> None:
        """Stops all brokers at the same time, in an orderly way, and then the ZooKeeper server."""
        if self.brokers:
            with ThreadPoolExecutor(self._count) as threads:
                list(threads.map(BrokerProcess.stop, self.brokers))
        self.tree.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
