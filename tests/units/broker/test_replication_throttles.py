"""The limits of replication traffic, from the settings of a broker and of its topics."""

from __future__ import annotations

from jesenska.base.identifiers import NO_UUID
from jesenska.broker.metadata_cache import MetadataCache, Topic
from jesenska.broker.settings.derived_settings import check_rules_of, log_config_of
from jesenska.broker.settings.replication_throttles import ReplicationThrottles
from jesenska.config.layers import BrokerConfig, TopicConfig

_BROKER = 3


def _show(view: MetadataCache, config: BrokerConfig, overrides: dict[str, str]) -> None:
    """Puts topic `orders` with these settings into the view."""
    topic = TopicConfig(overrides, config)
    log_config = log_config_of(topic)
    view.add(Topic("orders", NO_UUID, [], topic, log_config, check_rules_of(topic, log_config), False))


def test_limits_and_samples_come_from_the_settings_of_the_broker() -> None:
    config = BrokerConfig(
        {
            "leader.replication.throttled.rate": "1000",
            "replication.quota.window.num": "3",
            "replication.quota.window.size.seconds": "2",
        }
    )
    throttles = ReplicationThrottles(_BROKER, config, MetadataCache("", -1))
    assert (throttles.leader.is_active, throttles.follower.is_active) == (True, False)
    throttles.leader.record(2000, 0)
    assert not throttles.leader.is_exceeded(0)
    throttles.leader.record(10_000, 0)
    # Three samples of two seconds.
    assert throttles.leader.is_exceeded(5_999)
    assert not throttles.leader.is_exceeded(6_000)
    throttles.reconfigure(BrokerConfig({"follower.replication.throttled.rate": "1"}))
    assert (throttles.leader.is_active, throttles.follower.is_active) == (False, True)


def test_throttled_replicas_come_from_the_settings_of_the_topic() -> None:
    config = BrokerConfig({"leader.replication.throttled.rate": "1", "follower.replication.throttled.rate": "1"})
    view = MetadataCache("", -1)
    throttles = ReplicationThrottles(_BROKER, config, view)

    def throttled() -> tuple[list[int], ...]:
        return tuple(
            [number for number in range(4) if throttle.applies_to("orders", number)]
            for throttle in (throttles.leader, throttles.follower)
        )

    assert throttled() == ([], [])
    _show(view, config, {"leader.replication.throttled.replicas": f"1:{_BROKER},2:4"})
    assert throttled() == ([1], [])
    _show(view, config, {"follower.replication.throttled.replicas": "*"})
    assert throttled() == ([], [0, 1, 2, 3])
