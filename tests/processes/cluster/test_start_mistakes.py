"""Brokers that cannot join a cluster print the reason in one sentence, end with 1, and disturb no other broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.metadata import paths
from jesenska.metadata.nodes import decode_cluster_id
from tests.cluster.cluster import BrokerCluster, ours_only
from tests.cluster.members import OurProcess
from tests.cluster.view import view_of

pytestmark = ours_only


def _command(cluster: BrokerCluster, data: Path, broker_id: int, chroot: str = "", **more: str) -> list[str]:
    settings = {
        "broker.id": str(broker_id),
        "zookeeper.connect": cluster.tree.address + chroot,
        "zookeeper.session.timeout.ms": "1500",
        **more,
    }
    command = [sys.executable, "-m", "jesenska", "up", "--port", "0", "--data", str(data)]
    for name, value in settings.items():
        command += ["--override", f"{name}={value}"]
    return command


def _refused(cluster: BrokerCluster, data: Path, broker_id: int, chroot: str = "", **more: str) -> str:
    """The one sentence of a broker that must not start."""
    done = subprocess.run(
        _command(cluster, data, broker_id, chroot, **more), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "lost data" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("jesenska: ")]
    assert "Traceback" not in done.stderr
    assert line.endswith(".")
    return line.removeprefix("jesenska: ")


@pytest.fixture
def undisturbed(cluster: BrokerCluster) -> BrokerCluster:
    """A cluster with a topic, `undisturbed`."""
    if "undisturbed" not in cluster.view().topics:
        cluster.create("undisturbed", 3)
    return cluster


def _still_works(cluster: BrokerCluster, before: object) -> None:
    view = cluster.view()
    assert (view.brokers, view.controller, view.topics["undisturbed"]) == before
    for number in range(3):
        cluster.write("undisturbed", [b"value"], partition=number)


def test_a_broker_whose_id_is_taken_is_refused_and_the_first_goes_on(
    undisturbed: BrokerCluster, tmp_path: Path
) -> None:
    view = undisturbed.view()
    before = view.brokers, view.controller, view.topics["undisturbed"]
    node = undisturbed.node(paths.broker(2))
    said = _refused(undisturbed, tmp_path / "data", 2)
    assert "A broker with id 2 is registered already" in said
    assert undisturbed.node(paths.broker(2)) == node
    # With its id corrected it can use the directory.
    assert not (tmp_path / "data" / "meta.properties").exists()
    _still_works(undisturbed, before)


def test_an_address_that_another_broker_tells_clients_is_refused(undisturbed: BrokerCluster, tmp_path: Path) -> None:
    """As in Apache Kafka: otherwise the controller would send one of the two the other's orders."""
    view = undisturbed.view()
    before = view.brokers, view.controller, view.topics["undisturbed"]
    address = undisturbed.brokers[1].address
    said = _refused(undisturbed, tmp_path / "data", 7, **{"advertised.listeners": f"PLAINTEXT://{address}"})
    assert f"Broker 1 is registered with {address} already" in said
    assert not (tmp_path / "data" / "meta.properties").exists()
    _still_works(undisturbed, before)


def test_a_broker_that_its_controller_cannot_reach_says_at_which_address(
    undisturbed: BrokerCluster, tmp_path: Path
) -> None:
    command = _command(undisturbed, tmp_path / "data", 7, **{"advertised.listeners": "PLAINTEXT://127.0.0.1:1"})
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("waiting for "))
        process.terminate()
        process.communicate(timeout=100)
    assert (
        f"broker {undisturbed.view().controller}, the controller, to reach this broker at 127.0.0.1:1 "
        f"(advertised.listeners)" in said
    )
    undisturbed.until_whole()


def test_data_of_another_cluster_are_refused(undisturbed: BrokerCluster, tmp_path: Path) -> None:
    view = undisturbed.view()
    before = view.brokers, view.controller, view.topics["undisturbed"]
    data = tmp_path / "data"
    data.mkdir()
    strange = "version=0\nbroker.id=7\ncluster.id=BkqKvcOWQuuOhwNvbYx_og\n"
    (data / "meta.properties").write_text(strange)
    said = _refused(undisturbed, data, 7)
    cluster_id = undisturbed.node(paths.CLUSTER_ID)
    assert cluster_id is not None
    assert "BkqKvcOWQuuOhwNvbYx_og" in said
    assert decode_cluster_id(cluster_id) in said
    assert (data / "meta.properties").read_text() == strange
    assert undisturbed.node(paths.broker(7)) is None
    _still_works(undisturbed, before)


def test_data_of_another_broker_of_the_cluster_are_refused(undisturbed: BrokerCluster, tmp_path: Path) -> None:
    view = undisturbed.view()
    before = view.brokers, view.controller, view.topics["undisturbed"]
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text((undisturbed.brokers[1].data / "meta.properties").read_text())
    said = _refused(undisturbed, data, 7)
    assert "belongs to broker 1, but this broker's id is 7" in said
    _still_works(undisturbed, before)


def test_a_tree_that_nobody_serves_is_named(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "jesenska",
        "up",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
        "--override",
        "broker.id=1",
    ]
    command += ["--override", "zookeeper.connect=127.0.0.1:1", "--override", "zookeeper.session.timeout.ms=500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("jesenska: ")]
    assert "127.0.0.1:1" in line


def test_brokers_without_an_id_get_one_each(undisturbed: BrokerCluster, tmp_path: Path) -> None:
    """Generated ids are above `reserved.broker.max.id`."""
    settings = {
        "broker.id": "-1",
        "zookeeper.connect": undisturbed.tree.address,
        "zookeeper.session.timeout.ms": "10000",
    }
    with (
        OurProcess(tmp_path / "one", settings=settings, warm=True) as one,
        OurProcess(tmp_path / "other", settings=settings, warm=True) as other,
    ):
        undisturbed.until(lambda view: {one.address, other.address} <= set(view.brokers.values()), brokers=[1, 2, 3])
        ids = {
            broker_id
            for broker_id, address in view_of(one.address).brokers.items()
            if address in (one.address, other.address)
        }
        assert len(ids) == 2
        assert min(ids) > 1000
        assert one.stop() == 0
        assert other.stop() == 0
    undisturbed.until_whole()


def test_a_mistyped_path_of_the_tree_is_refused_and_not_made(undisturbed: BrokerCluster, tmp_path: Path) -> None:
    """As in Apache Kafka, which creates the path anyway."""
    view = undisturbed.view()
    before = view.brokers, view.controller, view.topics["undisturbed"]
    data = tmp_path / "data"
    data.mkdir()
    cluster_id = decode_cluster_id(undisturbed.node(paths.CLUSTER_ID) or b"")
    (data / "meta.properties").write_text(f"version=0\nbroker.id=7\ncluster.id={cluster_id}\n")
    said = _refused(undisturbed, data, 7, "/wrong/path")
    assert (
        f"belongs to cluster {cluster_id}, but the tree at {undisturbed.tree.address}/wrong/path knows no cluster"
        in said
    )
    assert undisturbed.node("/wrong") is None
    _still_works(undisturbed, before)
