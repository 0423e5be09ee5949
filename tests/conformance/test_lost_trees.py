"""A broker whose directories are of a cluster, on a tree that knows none: Apache Kafka refuses to start, and so do we.
It would begin a second cluster beside the data of the first."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess
from jesenska.testing.process import ServerFailedError
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.served_tree import ServedTree
from tests.several_brokers import SeveralBrokers

pytestmark = pytest.mark.conformance

_META = "#\nbroker.id=0\nversion=0\ncluster.id=BkqKvcOWQuuOhwNvbYx_og\n"


@pytest.mark.parametrize("whose", ["kafka", "ours"])
def test_directories_of_a_cluster_are_not_taken_to_a_tree_that_knows_none(tmp_path: Path, whose: str) -> None:
    directory = tmp_path / "broker"
    data = directory / "data-0"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text(_META)
    with ServedTree(tmp_path / "tree.db") as served:
        if whose == "kafka":
            need("java", "mvn")
            kafka = ApacheKafka("3.9.1", directory, heap="400m", zookeeper_connect=served.address)
            try:
                with pytest.raises(RuntimeError):
                    kafka.start()
                assert kafka.brokers[0].wait(60) == 1
            finally:
                kafka.stop()
            said = (directory / "broker-0.log").read_text()
            assert "Invalid cluster.id in: " in said  # InconsistentClusterIdException before 3.7
        else:
            with pytest.raises(ServerFailedError) as refused:
                BrokerProcess(data, settings={"broker.id": "0", "zookeeper.connect": served.address}).start()
            said = str(refused.value)
            assert "knows no cluster" in said
            # Kafka has given the tree a cluster's id by then.
            assert served.server.tree.tree.exists("/cluster/id") is None
        assert "BkqKvcOWQuuOhwNvbYx_og" in said
        assert served.server.tree.tree.exists("/brokers/ids/0") is None
    assert (data / "meta.properties").read_text() == _META


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_several_brokers_whose_tree_is_lost_end_with_one_sentence(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 3) as brokers:
        assert brokers.stop() == 0
        shutil.rmtree(tmp_path / "data" / "tree")
        with pytest.raises(ServerFailedError) as refused:
            brokers.start()
    (sentence,) = [line for line in str(refused.value).splitlines() if line.startswith("jesenska: ")]
    assert "did not start: The log directory" in sentence
    assert "knows no cluster: correct the tree's address, rebuild a lost tree (jesenska tree rebuild)" in sentence
