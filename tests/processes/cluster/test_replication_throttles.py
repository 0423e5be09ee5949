"""Limits of the traffic between brokers: a follower that is far behind catches up slowly, replicas in sync and other
topics are not slowed down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.config_administration import BROKER, TOPIC
from tests.cluster.cluster import BrokerCluster
from tests.cluster.one_request import alter

_SIDES = {
    "leader": ("leader.replication.throttled.replicas", "leader.replication.throttled.rate"),
    "follower": ("follower.replication.throttled.replicas", "follower.replication.throttled.rate"),
}
_VALUE, _COUNT = b"x" * 30_000, 40


@pytest.fixture(scope="module")
def _lagging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    settings = {
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.wait.max.ms": "300",
        # A catch-up takes many fetches.
        "replica.fetch.max.bytes": "32768",
        "replica.fetch.response.max.bytes": "65536",
    }
    with BrokerCluster(tmp_path_factory.mktemp("throttled"), session_ms=60_000, settings=settings) as running:
        yield running


@pytest.fixture
def cluster(_lagging: BrokerCluster) -> BrokerCluster:
    """Brokers that soon leave the ISR when they are paused."""
    _lagging.heal()
    return _lagging


def _alter(cluster: BrokerCluster, kind: int, name: str, settings: dict[str, str | None]) -> None:
    assert alter(cluster.brokers[cluster.controller()].address, kind, name, settings) == ErrorCode.NONE


@pytest.mark.parametrize("side", list(_SIDES))
def test_a_throttled_follower_catches_up_when_the_limit_is_removed(cluster: BrokerCluster, side: str) -> None:
    controller = cluster.controller()
    leader, follower = (broker_id for broker_id in cluster.brokers if broker_id != controller)
    placed = [[leader, follower]]
    slow, free = cluster.create(f"slow-{side}", placed=placed), cluster.create(f"free-{side}", placed=placed)
    replicas, rate = _SIDES[side]
    _alter(cluster, TOPIC, slow, {replicas: f"0:{leader if side == 'leader' else follower}"})
    _alter(cluster, BROKER, "", {rate: "1"})
    # A replica in sync is not slowed down, although it is above the limit.
    cluster.write(slow, [_VALUE] * _COUNT)
    assert set(cluster.state(slow).isr) == {leader, follower}
    cluster.brokers[follower].pause()
    for topic in (slow, free):
        cluster.write(topic, [_VALUE] * _COUNT)
    cluster.until(lambda view: view.of(slow).isr == (leader,) and view.of(free).isr == (leader,))
    for topic in (slow, free):
        cluster.write(topic, [_VALUE] * _COUNT)
    cluster.brokers[follower].resume()
    cluster.until(lambda view: view.of(free).is_whole)
    assert not cluster.view().of(slow).is_whole
    assert cluster.state(slow).isr == (leader,)
    _alter(cluster, BROKER, "", {rate: None})
    cluster.until(lambda view: view.of(slow).is_whole)
    cluster.until_logs_equal(slow)
    assert len(cluster.values(slow)) == 3 * _COUNT
