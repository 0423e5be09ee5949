from __future__ import annotations

import pytest

from jesenska.base.errors import InvalidConfigError
from jesenska.config.layers import BrokerConfig, Described, Source, TopicConfig, check_topic_values

STATIC = {"log.retention.hours": "48", "log.retention.minutes": "100", "log.roll.hours": "24", "bogus.key": "1"}


def one(described: list[Described]) -> tuple[str | None, str, str]:
    (item,) = described
    synonyms = " ".join(f"{synonym.name}={synonym.value}:{synonym.source.name}" for synonym in item.synonyms)
    return item.value, item.source.name, synonyms


# The next tests contain the answers of a broker of 3.9.1 with these static settings, step by step.


def test_times_in_other_units_reach_the_topic_without_being_listed() -> None:
    broker = BrokerConfig(STATIC)
    topic = TopicConfig({}, broker)
    assert one(topic.describe(["retention.ms"])) == ("6000000", "DEFAULT", "")
    assert one(topic.describe(["segment.ms"])) == ("86400000", "DEFAULT", "")


def test_static_settings_list_themselves_their_synonyms_and_the_default() -> None:
    broker = BrokerConfig(STATIC)
    assert one(broker.describe(["log.retention.ms"])) == (None, "DEFAULT", "")
    assert one(broker.describe(["log.retention.hours"])) == (
        "48", "STATIC_BROKER", "log.retention.hours=48:STATIC_BROKER log.retention.hours=168:DEFAULT",
    )  # fmt: skip
    assert one(broker.describe(["log.retention.minutes"])) == (
        "100", "STATIC_BROKER", "log.retention.minutes=100:STATIC_BROKER log.retention.hours=48:STATIC_BROKER "
                                "log.retention.hours=168:DEFAULT",
    )  # fmt: skip


def test_an_unknown_static_setting_is_shown_without_its_value() -> None:
    (item,) = BrokerConfig(STATIC).describe(["bogus.key"])
    assert (item.value, item.source, item.sensitive, item.read_only, item.kind) == (
        None,
        Source.STATIC_BROKER,
        True,
        True,
        0,
    )
    assert item.synonyms[0].value is None


def test_layers_win_in_kafkas_order_and_are_listed_in_it() -> None:
    rest = (
        "log.retention.minutes=100:STATIC_BROKER log.retention.hours=48:STATIC_BROKER log.retention.hours=168:DEFAULT"
    )
    broker = BrokerConfig(STATIC).with_dynamic(dynamic_broker={"log.retention.ms": "5000000"})
    assert one(broker.describe(["log.retention.ms"])) == (
        "5000000",
        "DYNAMIC_BROKER",
        f"log.retention.ms=5000000:DYNAMIC_BROKER {rest}",
    )
    broker = broker.with_dynamic(dynamic_default={"log.retention.ms": "6000000"})
    dynamic = f"log.retention.ms=5000000:DYNAMIC_BROKER log.retention.ms=6000000:DYNAMIC_DEFAULT_BROKER {rest}"
    assert one(broker.describe(["log.retention.ms"])) == ("5000000", "DYNAMIC_BROKER", dynamic)
    topic = TopicConfig({}, broker)
    assert one(topic.describe(["retention.ms"])) == ("5000000", "DYNAMIC_BROKER", dynamic)
    topic = TopicConfig({"retention.ms": "7000000"}, broker)
    assert one(topic.describe(["retention.ms"])) == ("7000000", "TOPIC", f"retention.ms=7000000:TOPIC {dynamic}")
    assert topic.integer("retention.ms") == 7_000_000


def test_the_default_of_every_broker_lists_only_what_is_set_there() -> None:
    broker = BrokerConfig(STATIC).with_dynamic(dynamic_default={"log.retention.ms": "6000000"})
    assert one(broker.describe_default(["log.retention.ms", "log.segment.bytes"])) == (
        "6000000", "DYNAMIC_DEFAULT_BROKER", "log.retention.ms=6000000:DYNAMIC_DEFAULT_BROKER",
    )  # fmt: skip
    assert len(broker.describe_default()) == 1


def test_a_topic_lists_its_own_value_as_it_is_in_force() -> None:
    topic = TopicConfig(
        {"preallocate": "TRUE", "cleanup.policy": "compact, delete", "retention.ms": " 8000000 "}, BrokerConfig({})
    )
    assert one(topic.describe(["preallocate"])) == (
        "true",
        "TOPIC",
        "preallocate=true:TOPIC log.preallocate=false:DEFAULT",
    )
    assert one(topic.describe(["cleanup.policy"])) == (
        "compact,delete",
        "TOPIC",
        "cleanup.policy=compact,delete:TOPIC log.cleanup.policy=delete:DEFAULT",
    )
    assert one(topic.describe(["retention.ms"])) == ("8000000", "TOPIC", "retention.ms=8000000:TOPIC")


def test_a_listeners_own_setting_lists_the_plain_one_after_it() -> None:
    broker = BrokerConfig({}, dynamic_broker={"listener.name.plaintext.max.connections": "10"})
    assert one(broker.describe(["listener.name.plaintext.max.connections"])) == (
        "10",
        "DYNAMIC_BROKER",
        "listener.name.plaintext.max.connections=10:DYNAMIC_BROKER max.connections=2147483647:DEFAULT",
    )
    assert broker.integer("listener.name.plaintext.max.connections") == 10
    assert broker.integer("listener.name.other.max.connections") == 2147483647
    assert broker.integer("max.connections") == 2147483647


def test_broker_id_and_node_id_are_one_setting() -> None:
    broker = BrokerConfig({"broker.id": "7"})
    assert one(broker.describe(["node.id"])) == ("7", "STATIC_BROKER", "node.id=7:STATIC_BROKER node.id=-1:DEFAULT")
    assert BrokerConfig({"node.id": "8"}).integer("broker.id") == 8
    with pytest.raises(InvalidConfigError, match=r"broker\.id is 1 and node\.id is 2"):
        BrokerConfig({"broker.id": "1", "node.id": "2"})


def test_passwords_are_never_shown() -> None:
    broker = BrokerConfig(
        {"ssl.keystore.password": "hunter2"}, dynamic_default={"listener.name.a.ssl.key.password": "hunter2"}
    )
    shown = [*broker.describe(), *broker.describe_default()]
    assert not any("hunter2" in repr(item) for item in shown)


def test_all_of_a_brokers_settings_are_listed_once_and_internal_ones_only_where_they_are_set() -> None:
    names = [item.name for item in BrokerConfig({"log.dirs": "a"}).describe()]
    assert len(names) == len(set(names))
    assert {"log.dirs", "zookeeper.connect", "process.roles", "log.retention.ms"} <= set(names)
    assert "log.initial.task.delay.ms" not in names
    assert "log.initial.task.delay.ms" in [
        item.name for item in BrokerConfig({"log.initial.task.delay.ms": "1"}).describe()
    ]
    assert "internal.segment.bytes" not in [item.name for item in TopicConfig({}, BrokerConfig({})).describe()]


def test_a_static_value_that_is_not_valid_stops_and_a_dynamic_one_is_left_out_of_force() -> None:
    with pytest.raises(InvalidConfigError, match=r"Invalid value x for configuration num\.partitions"):
        BrokerConfig({"num.partitions": "x"})
    broker = BrokerConfig({}, dynamic_default={"log.segment.bytes": "nonsense"})
    assert broker.integer("log.segment.bytes") == 1_073_741_824
    assert [name for name, _ in broker.refused] == ["log.segment.bytes"]
    topic = TopicConfig({"retention.ms": "nonsense"}, broker)
    assert topic.integer("retention.ms") == 604_800_000
    assert [name for name, _ in topic.refused] == ["retention.ms"]


def test_a_dynamic_value_of_a_read_only_setting_has_no_force() -> None:
    assert (
        BrokerConfig({"listeners": "PLAINTEXT://:1"}, dynamic_broker={"listeners": "PLAINTEXT://:2"}).string(
            "listeners"
        )
        == "PLAINTEXT://:1"
    )


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited"),
        ({"log.retention.hours": "0"}, "log.retention.hours must be unlimited"),
        ({"log.roll.ms": "0"}, "log.roll.ms must be greater"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms must be greater"),
        ({"max.connections.per.ip.overrides": "foo"}, "max.connections.per.ip.overrides"),
    ],
)
def test_rules_between_settings_are_kafkas(settings: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidConfigError, match=match):
        BrokerConfig(settings)


def test_unlimited_retention_in_any_unit_is_unlimited() -> None:
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        assert TopicConfig({}, BrokerConfig({name: "-1"})).integer("retention.ms") == -1


def test_timestamp_limits_fall_back_to_the_older_setting() -> None:
    older = TopicConfig({"message.timestamp.difference.max.ms": "1000"}, BrokerConfig({}))
    assert (older.timestamp_before_max_ms, older.timestamp_after_max_ms) == (1000, 1000)
    both = TopicConfig(
        {"message.timestamp.difference.max.ms": "1000", "message.timestamp.after.max.ms": "5"}, BrokerConfig({})
    )
    assert (both.timestamp_before_max_ms, both.timestamp_after_max_ms) == (1000, 5)


@pytest.mark.parametrize(
    ("overrides", "match"),
    [
        (
            {"min.compaction.lag.ms": "500", "max.compaction.lag.ms": "100"},
            r"conflict topic config setting min\.compaction\.lag\.ms \(500\)",
        ),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
    ],
)
def test_rules_between_a_topics_settings_are_kafkas(overrides: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidConfigError, match=match):
        check_topic_values(TopicConfig(overrides, BrokerConfig({})))


def test_only_settings_that_ask_for_what_is_not_built_are_called_unused() -> None:
    broker = BrokerConfig({"log.dirs": "a", "offsets.load.buffer.size": "5", "num.io.threads": "9"})
    assert [setting.name for setting in broker.unused()] == ["offsets.load.buffer.size"]
    assert TopicConfig({"cleanup.policy": "delete", "retention.ms": "5"}, broker).unused() == []
    assert [setting.name for setting in TopicConfig({"remote.storage.enable": "true"}, broker).unused()] == [
        "remote.storage.enable"
    ]


def test_a_wrong_kind_of_read_is_an_error_of_the_caller() -> None:
    with pytest.raises(TypeError, match=r"log\.dirs"):
        BrokerConfig({"log.dirs": "a"}).integer("log.dirs")
    with pytest.raises(KeyError):
        BrokerConfig({}).value("no.such.setting")
