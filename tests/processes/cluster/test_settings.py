"""Settings that are changed at one broker take effect in the right places: settings of topics and of all brokers at
every broker, settings of one broker only at that broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.config_administration import BROKER, TOPIC
from jesenska.client.offsets import EARLIEST
from tests.cluster.cluster import BrokerCluster, until
from tests.cluster.members import Broker
from tests.cluster.one_request import alter, described, list_offset, produce

#: The source of a value, in DescribeConfigs.
_OF_TOPIC, _OF_BROKER, _OF_ALL_BROKERS, _DEFAULT = 1, 2, 3, 5
_DEFAULT_BYTES = "1048588"
_LARGE = b"x" * 5000


def _one_topic_each(cluster: BrokerCluster, name: str) -> dict[int, str]:
    """A topic for each broker that leads it, by broker."""
    topics = {broker_id: f"{name}-{broker_id}" for broker_id in cluster.brokers}
    for broker_id, topic in topics.items():
        if topic not in cluster.view().topics:
            cluster.create(topic, placed=[[broker_id, *(other for other in cluster.brokers if other != broker_id)]])
    return topics


def _takes(cluster: BrokerCluster, topic: str) -> ErrorCode:
    """The leader's answer to a large record."""
    return produce(cluster.brokers[cluster.view().of(topic).leader].address, topic, _LARGE)[0]


def _until_takes(cluster: BrokerCluster, topic: str, code: ErrorCode) -> None:
    until(lambda: _takes(cluster, topic) == code, f"{topic} does not answer {code.name} to a large record")


def _until_described(broker: Broker, kind: int, name: str, key: str, wanted: tuple[str, int]) -> None:
    until(
        lambda: described(broker.address, kind, name, key) == (ErrorCode.NONE, *wanted),
        f"broker {broker.broker_id} does not tell of {name or 'all brokers'} that {key} is {wanted}",
    )


@contextmanager
def _taken_back(cluster: BrokerCluster, *names: str) -> Iterator[None]:
    """Removes these settings of brokers at the end."""
    try:
        yield
    finally:
        for name in names:
            broker_id = int(name) if name else cluster.controller()
            assert (
                alter(cluster.brokers[broker_id].address, BROKER, name, {"message.max.bytes": None}) == ErrorCode.NONE
            )
        for broker_id, broker in cluster.brokers.items():
            _until_described(broker, BROKER, str(broker_id), "message.max.bytes", (_DEFAULT_BYTES, _DEFAULT))


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_topics_setting_changed_at_any_broker_takes_effect_on_every_leader(cluster: BrokerCluster, at: int) -> None:
    address = cluster.brokers[at].address
    for topic in _one_topic_each(cluster, "limited").values():
        assert _takes(cluster, topic) == ErrorCode.NONE
        assert alter(address, TOPIC, topic, {"max.message.bytes": "1000"}) == ErrorCode.NONE
        _until_takes(cluster, topic, ErrorCode.MESSAGE_TOO_LARGE)
        for broker in cluster.brokers.values():
            _until_described(broker, TOPIC, topic, "max.message.bytes", ("1000", _OF_TOPIC))
        assert alter(address, TOPIC, topic, {"max.message.bytes": None}) == ErrorCode.NONE
        _until_takes(cluster, topic, ErrorCode.NONE)


def test_retention_that_is_changed_deletes_old_segments_of_every_replica(cluster: BrokerCluster) -> None:
    cluster.create("retained", configs={"segment.bytes": "1000", "retention.ms": "-1"})
    hour_ago_ms = int(time.time() * 1000) - 3_600_000
    cluster.write("retained", [b"old" * 30] * 50, timestamp_ms=hour_ago_ms, batch_size=300)
    leader = cluster.view().of("retained").leader
    address = cluster.brokers[leader].address
    assert list_offset(address, "retained", EARLIEST) == (ErrorCode.NONE, 0)
    elsewhere = next(broker for broker_id, broker in cluster.brokers.items() if broker_id != leader)
    assert alter(elsewhere.address, TOPIC, "retained", {"retention.ms": "60000"}) == ErrorCode.NONE
    until(lambda: list_offset(address, "retained", EARLIEST)[1] == 50, "the leader keeps what is too old")

    def first_segments() -> dict[int, int]:
        return {
            broker_id: min(int(path.stem) for path in (broker.data / "retained-0").glob("*.log"))
            for broker_id, broker in cluster.brokers.items()
        }

    until(lambda: set(first_segments().values()) == {50}, f"segments begin at {first_segments()}")
    assert cluster.write("retained", [b"new"]) == [50]
    assert cluster.values("retained") == [b"new"]


def test_a_setting_of_all_brokers_reaches_every_broker(cluster: BrokerCluster) -> None:
    topics = _one_topic_each(cluster, "all")
    with _taken_back(cluster, ""):
        at = cluster.brokers[2]
        assert alter(at.address, BROKER, "", {"message.max.bytes": "1000"}) == ErrorCode.NONE
        for broker_id, broker in cluster.brokers.items():
            _until_takes(cluster, topics[broker_id], ErrorCode.MESSAGE_TOO_LARGE)
            _until_described(broker, BROKER, str(broker_id), "message.max.bytes", ("1000", _OF_ALL_BROKERS))
    for topic in topics.values():
        _until_takes(cluster, topic, ErrorCode.NONE)


def test_a_setting_of_one_broker_is_that_brokers_alone(cluster: BrokerCluster) -> None:
    topics = _one_topic_each(cluster, "alone")
    with _taken_back(cluster, "2"):
        assert alter(cluster.brokers[2].address, BROKER, "2", {"message.max.bytes": "1000"}) == ErrorCode.NONE
        _until_takes(cluster, topics[2], ErrorCode.MESSAGE_TOO_LARGE)
        assert described(cluster.brokers[2].address, BROKER, "2", "message.max.bytes") == (
            ErrorCode.NONE,
            "1000",
            _OF_BROKER,
        )
        for broker_id in (1, 3):
            assert _takes(cluster, topics[broker_id]) == ErrorCode.NONE
            assert (
                described(cluster.brokers[broker_id].address, BROKER, str(broker_id), "message.max.bytes")[2]
                == _DEFAULT
            )


@pytest.mark.parametrize("at", [1, 3])
def test_one_brokers_settings_are_refused_at_another(cluster: BrokerCluster, at: int) -> None:
    address = cluster.brokers[at].address
    assert alter(address, BROKER, "2", {"message.max.bytes": "1000"}) == ErrorCode.INVALID_REQUEST
    assert described(address, BROKER, "2", "message.max.bytes")[0] == ErrorCode.INVALID_REQUEST
    assert described(cluster.brokers[2].address, BROKER, "2", "message.max.bytes")[2] == _DEFAULT


def test_settings_that_are_changed_while_a_broker_is_away_hold_for_it_when_it_is_back(cluster: BrokerCluster) -> None:
    topics = _one_topic_each(cluster, "later")
    with _taken_back(cluster, ""):
        cluster.brokers[3].stop()
        cluster.until(lambda view: 3 not in view.brokers)
        address = cluster.brokers[cluster.controller()].address
        assert alter(address, BROKER, "", {"message.max.bytes": "1000"}) == ErrorCode.NONE
        assert alter(address, TOPIC, topics[3], {"max.message.bytes": "2000"}) == ErrorCode.NONE
        cluster.brokers[3].start()
        cluster.until_whole()
        _until_described(cluster.brokers[3], BROKER, "3", "message.max.bytes", ("1000", _OF_ALL_BROKERS))
        _until_described(cluster.brokers[3], TOPIC, topics[3], "max.message.bytes", ("2000", _OF_TOPIC))
        cluster.elect_preferred(topics[3])
        _until_takes(cluster, topics[3], ErrorCode.MESSAGE_TOO_LARGE)
