"""A broker of several loses one of its log directories under load. Other brokers lead the partitions of that
directory, all other partitions stay in place, and no acknowledged record is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from tests.cluster.cluster import SECONDS, BrokerCluster, until
from tests.cluster.loaded import loaded
from tests.cluster.one_request import fetch, produce

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

_PARTITIONS = 9


def _homes(cluster: BrokerCluster, broker_id: int, topic: str) -> dict[int, str]:
    """The log directory of each partition on a broker."""
    found: dict[int, str] = {}
    for path in cluster.brokers[broker_id].data.glob(f"*/{topic}-*"):
        found[int(path.name.rpartition("-")[2])] = path.parent.name
    return found


def test_a_broker_that_loses_a_directory_leaves_its_partitions_to_others(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", log_dirs=("one", "two", "three")) as cluster:
        cluster.create("t", _PARTITIONS)
        before = cluster.view().topics["t"]
        hurt = before[0].leader
        homes = _homes(cluster, hurt, "t")
        home = homes[0]
        lost = [number for number in range(_PARTITIONS) if homes[number] == home]
        assert len(set(homes.values())) == 3
        with loaded(cluster, "t", tmp_path, partitions=_PARTITIONS) as load:
            load.wait_for(100)
            directory = cluster.brokers[hurt].data / home
            directory.rename(tmp_path / "away")
            cluster.until_all(
                lambda views: all(
                    view.of("t", number).leader not in (-1, hurt) for view in views.values() for number in lost
                )
            )
            cluster.until_all(
                lambda views: all(hurt in view.of("t", number).offline for view in views.values() for number in lost)
            )
            load.wait_for(200)
            after = cluster.view().topics["t"]
            for number in range(_PARTITIONS):
                assert after[number].leader in before[number].isr
                assert (hurt in after[number].isr) == (number not in lost)
                if number not in lost:
                    assert (after[number].leader, after[number].leader_epoch) == (
                        before[number].leader,
                        before[number].leader_epoch,
                    )
            assert produce(cluster.brokers[hurt].address, "t", partition=lost[0])[0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert fetch(cluster.brokers[hurt].address, "t", partition=lost[0])[0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert not directory.exists()
            # A new controller has to find it out by itself.
            controller = cluster.controller()
            if controller != hurt:
                cluster.brokers[controller].stop()
                cluster.until(
                    lambda view: all(view.of("t", number).leader not in (-1, hurt) for number in lost), brokers=[hurt]
                )
                cluster.brokers[controller].start()
                until(
                    lambda: all(hurt in cluster.view().of("t", number).offline for number in lost),
                    "it is offline",
                    SECONDS,
                )
            load.wait_for(100)
            cluster.brokers[hurt].stop()
            (tmp_path / "away").rename(directory)
            cluster.brokers[hurt].start()
            cluster.until_whole()
            load.wait_for(100)
        cluster.until_whole()
        assert "every log directory" not in cluster.brokers[hurt].log
        assert all(not cluster.view().of("t", number).offline for number in range(_PARTITIONS))
