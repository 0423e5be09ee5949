"""Changes of configuration. Codes and sentences are those of brokers of 3.9.1 and 4.3.1; if they differ, those of
4.3.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jesenska.base.errors import (
    InvalidConfigError,
    InvalidRequestError,
    InvalidTopicException,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from jesenska.config.layers import BrokerConfig
from jesenska.controller.context import ConfigView, ControllerContext, TopicView
from jesenska.controller.plans.config_changes import (
    CHANGE_EXPIRATION_MS,
    ChangeNodes,
    ConfigOp,
    ConfigPlan,
    OpType,
    plan_broker_config,
    plan_broker_config_replaced,
    plan_topic_config,
    plan_topic_config_replaced,
)
from jesenska.metadata import paths
from jesenska.metadata.nodes import TopicNode
from jesenska.metadata.tree import Multi, OpenSession, Tree
from jesenska.metadata.tree_operations import Create, Delete

CONFIG = BrokerConfig({"broker.id": "0"})
SET, DELETE, APPEND, SUBTRACT = OpType.SET, OpType.DELETE, OpType.APPEND, OpType.SUBTRACT


def view(**settings: dict[str, str]) -> ControllerContext:
    found = ControllerContext(topics={"t1": TopicView("t1", TopicNode({0: (0,)}, None))})
    names = {"topic": "topics/t1", "broker": "brokers/0", "default": "brokers/<default>"}
    for key, values in settings.items():
        found.configs[names[key]] = ConfigView(values, 3)
    return found


def topic(*ops: tuple[str, str | None, int], of: dict[str, str] | None = None, name: str = "t1") -> ConfigPlan:
    return plan_topic_config(view(topic=of or {}), name, [ConfigOp(key, op, value) for key, value, op in ops], CONFIG)


def broker(
    *ops: tuple[str, str | None, int],
    resource: str = "0",
    config: BrokerConfig = CONFIG,
    of: dict[str, str] | None = None,
) -> ConfigPlan:
    return plan_broker_config(
        view(broker=of or {}), resource, [ConfigOp(key, op, value) for key, value, op in ops], 0, config
    )


@pytest.mark.parametrize(
    ("before", "op", "after"),
    [
        ({}, ("cleanup.policy", "compact", APPEND), {"cleanup.policy": "delete,compact"}),
        (
            {"cleanup.policy": "delete,compact"},
            ("cleanup.policy", "compact", APPEND),
            {"cleanup.policy": "delete,compact"},
        ),
        ({"cleanup.policy": "delete,compact"}, ("cleanup.policy", "delete", SUBTRACT), {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", "compact", SUBTRACT), {"cleanup.policy": ""}),
        ({}, ("cleanup.policy", "compact, delete", SET), {"cleanup.policy": "compact, delete"}),
        ({}, ("cleanup.policy", " compact,compact,", APPEND), {"cleanup.policy": "delete, compact,compact"}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", ",", APPEND), {"cleanup.policy": "compact"}),
        ({"cleanup.policy": "compact"}, ("cleanup.policy", " compact", SUBTRACT), {"cleanup.policy": "compact"}),
        ({}, ("leader.replication.throttled.replicas", "\0", SET), {"leader.replication.throttled.replicas": "\0"}),
        ({"retention.ms": "5"}, ("retention.ms", None, DELETE), {}),
        ({"retention.ms": "5"}, ("segment.bytes", "1000", SET), {"retention.ms": "5", "segment.bytes": "1000"}),
        ({"retention.ms": "5"}, ("nonsense", "1", DELETE), {"retention.ms": "5"}),
    ],
)
def test_a_topics_settings_change_one_by_one(
    before: dict[str, str], op: tuple[str, str | None, int], after: dict[str, str]
) -> None:
    assert topic(op, of=before).settings == after


@pytest.mark.parametrize(
    ("ops", "kind", "sentence"),
    [
        (
            [("retention.ms", "abc", SET)],
            InvalidConfigError,
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ([("retention.ms", None, SET)], InvalidRequestError, "Null value not supported for : retention.ms"),
        ([("nonsense", "1", SET)], InvalidConfigError, "Unknown topic config name: nonsense"),
        (
            [("cleanup.policy", "", APPEND)],
            InvalidConfigError,
            "Invalid value  for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            [("retention.ms", "5", APPEND)],
            InvalidConfigError,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        ([("nonsense", "5", APPEND)], InvalidConfigError, "Can't APPEND to key nonsense because its type is not LIST."),
        (
            [("retention.ms", "5", SUBTRACT)],
            InvalidConfigError,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            [("retention.ms", "1", SET), ("retention.ms", "2", SET)],
            InvalidRequestError,
            "Error due to duplicate config keys",
        ),
        (
            [("min.compaction.lag.ms", "500", SET), ("max.compaction.lag.ms", "100", SET)],
            InvalidConfigError,
            "conflict topic config setting min.compaction.lag.ms (500) > max.compaction.lag.ms (100)",
        ),
        (
            [("remote.storage.enable", "true", SET)],
            InvalidConfigError,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage.",
        ),
        (
            [("retention.ms", "5", 9)],
            InvalidRequestError,
            "Unknown operation type 9 for config retention.ms; it is 0 to 3.",
        ),
    ],
)
def test_a_change_of_a_topic_is_refused_in_kafkas_words(
    ops: list[tuple[str, str | None, int]], kind: type[KafkaError], sentence: str
) -> None:
    with pytest.raises(kind) as caught:
        topic(*ops)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("name", "kind", "sentence"),
    [
        ("absent", UnknownTopicOrPartitionError, "The topic 'absent' does not exist."),
        ("", InvalidRequestError, "Default topic resources are not allowed."),
        (
            "bad/name",
            InvalidTopicException,
            "Topic name is invalid: 'bad/name' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'",
        ),
    ],
)
def test_a_topic_must_be_there_to_be_changed(name: str, kind: type[KafkaError], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        topic(("retention.ms", "1", SET), name=name)
    assert str(caught.value) == sentence


def test_a_replaced_configuration_forgets_what_is_not_named() -> None:
    plan = plan_topic_config_replaced(
        view(topic={"retention.ms": "5", "segment.bytes": "1000"}), "t1", {"retention.ms": "6"}, CONFIG
    )
    assert plan.settings == {"retention.ms": "6"}
    assert plan_topic_config_replaced(view(topic={"retention.ms": "5"}), "t1", {}, CONFIG).settings == {}
    with pytest.raises(InvalidConfigError, match="Unknown topic config name: nonsense"):
        plan_topic_config_replaced(view(), "t1", {"nonsense": "1"}, CONFIG)
    with pytest.raises(InvalidRequestError, match="Null value not supported for : retention"):
        plan_topic_config_replaced(view(), "t1", {"retention.ms": None}, CONFIG)
    kept = plan_broker_config_replaced(
        view(broker={"num.io.threads": "9"}), "0", {"log.retention.ms": "777777"}, 0, CONFIG
    )
    assert kept.settings == {"log.retention.ms": "777777"}


def test_a_plan_writes_the_settings_and_tells_every_broker() -> None:
    tree = Tree()
    tree.decide(OpenSession(1, 100), 0)
    tree.decide(
        Multi(1, (Create("/config"), Create("/config/topics"), Create("/config/brokers"), Create("/config/changes"))), 0
    )
    found = view()
    plans: list[Callable[[], ConfigPlan]] = [
        lambda: plan_topic_config(found, "t1", [ConfigOp("retention.ms", SET, "5")], CONFIG),
        lambda: plan_topic_config(found, "t1", [ConfigOp("retention.ms", SET, "6")], CONFIG),
        lambda: plan_broker_config(found, "", [ConfigOp("log.retention.ms", SET, "7")], 0, CONFIG),
        lambda: plan_broker_config(found, "0", [ConfigOp("log.retention.ms", SET, "8")], 0, CONFIG),
    ]
    for make in plans:
        plan = make()
        tree.decide(Multi(1, plan.operations), 0)
        plan.apply(found)
    assert tree.get(paths.topic_config("t1"))[0] == b'{"version":1,"config":{"retention.ms":"6"}}'
    assert tree.get("/config/brokers/<default>")[0] == b'{"version":1,"config":{"log.retention.ms":"7"}}'
    assert tree.get("/config/brokers/0")[0] == b'{"version":1,"config":{"log.retention.ms":"8"}}'
    changes = [tree.get(f"/config/changes/{name}")[0] for name in tree.children("/config/changes")[0]]
    assert changes == [
        b'{"version":2,"entity_path":"topics/t1"}',
        b'{"version":2,"entity_path":"topics/t1"}',
        b'{"version":2,"entity_path":"brokers/<default>"}',
        b'{"version":2,"entity_path":"brokers/0"}',
    ]
    assert tree.children("/config/changes")[0][0] == "config_change_0000000000"
    assert (found.topic_settings("t1"), found.broker_settings(None), found.broker_settings(0)) == (
        {"retention.ms": "6"}, {"log.retention.ms": "7"}, {"log.retention.ms": "8"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "ops", "sentence"),
    [
        ("0", [("log.retention.hours", "1", SET)], "Cannot update these configs dynamically: [log.retention.hours]"),
        ("0", [("broker.id", "7", SET)], "Cannot update these configs dynamically: [broker.id]"),
        ("", [("log.retention.hours", "1", SET)], "Cannot update these configs dynamically: [log.retention.hours]"),
        (
            "0",
            [("listener.name.plaintext.log.retention.ms", "1", SET)],
            "Cannot update these configs dynamically: [listener.name.plaintext.log.retention.ms]",
        ),
        (
            "0",
            [("num.io.threads", "0", SET)],
            "Invalid value 0 for configuration num.io.threads: Value must be at least 1",
        ),
        (
            "0",
            [("num.io.threads", "abc", SET)],
            "Invalid value abc for configuration num.io.threads: Not a number of type INT",
        ),
        (
            "",
            [("message.max.bytes", "-1", SET)],
            "Invalid value -1 for configuration message.max.bytes: Value must be at least 0",
        ),
        (
            "",
            [("log.retention.ms", "0", SET)],
            "requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
        ),
        (
            "0",
            [("ssl.keystore.location", "x", SET)],
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        ),
        (
            "",
            [("ssl.keystore.password", "x", SET)],
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.password]",
        ),
        (
            "",
            [("principal.builder.class", "x", SET)],
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[principal.builder.class]",
        ),
        (
            "0",
            [("principal.builder.class", "a.B", SET)],
            "Invalid value a.B for configuration principal.builder.class: Class a.B could not be found.",
        ),
        ("99", [("log.retention.ms", "1", SET)], "Unexpected broker id, expected 0, but received 99"),
        ("x", [("log.retention.ms", "1", SET)], "Broker id must be an integer, but it is: x"),
        ("0", [("log.retention.ms", None, SET)], "Null value not supported for : log.retention.ms"),
    ],
)
def test_a_change_of_a_broker_is_refused_in_kafkas_words(
    resource: str, ops: list[tuple[str, str | None, int]], sentence: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        broker(*ops, resource=resource)
    assert str(caught.value) == sentence


def test_what_a_broker_could_not_start_with_is_refused_in_place_of_what_it_has() -> None:
    config = BrokerConfig({"broker.id": "0", "log.dirs": "/a"}, dynamic_broker={"cordoned.log.dirs": "/a"})
    with pytest.raises(InvalidRequestError, match="/elsewhere"):
        broker(("cordoned.log.dirs", "/elsewhere", SET), config=config)
    assert broker(("cordoned.log.dirs", "*", SET), config=config).settings == {"cordoned.log.dirs": "*"}


def test_a_password_is_not_kept_in_the_tree() -> None:
    with pytest.raises(InvalidRequestError, match="Passwords cannot be kept") as caught:
        broker(("listener.name.plaintext.ssl.keystore.password", "hunter2", SET))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("resource", "op"),
    [
        ("0", ("num.io.threads", "9", SET)),
        ("0", ("nonsense", "7", SET)),
        ("", ("nonsense", "7", SET)),
        ("0", ("listener.name.plaintext.ssl.keystore.location", "/x", SET)),
        ("0", ("listener.name.plaintext.max.connections", "10", SET)),
        ("0", ("leader.replication.throttled.rate", "1000", SET)),
        ("", ("min.insync.replicas", "2", SET)),
        ("0", ("ssl.enabled.protocols", "TLSv1.3", SET)),
        ("0", ("sasl.enabled.mechanisms", "PLAIN", SET)),
        (
            "0",
            (
                "principal.builder.class",
                "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
                SET,
            ),
        ),
        ("", ("log.retention.ms", "-5", SET)),
        ("0", ("background.threads", None, DELETE)),
        ("", ("log.cleanup.policy", "compact", APPEND)),
    ],
)
def test_what_kafka_lets_a_broker_change_is_changed(resource: str, op: tuple[str, str | None, int]) -> None:
    plan = broker(op, resource=resource)
    assert plan.settings == ({} if op[2] == DELETE else {op[0]: "delete,compact" if op[2] == APPEND else op[1]})


def test_what_is_set_already_and_was_not_touched_does_not_stand_in_the_way() -> None:
    plan = broker(("log.retention.ms", "5", SET), of={"log.retention.hours": "1", "some.other": "x"})
    assert plan.settings["log.retention.ms"] == "5"


def test_what_told_of_a_change_goes_after_a_quarter_of_an_hour() -> None:
    told = ChangeNodes()
    told.add("/config/changes/config_change_0000000000", 1000)
    told.add("/config/changes/config_change_0000000001", 2000)
    assert told.due(1000 + CHANGE_EXPIRATION_MS - 1) == ()
    assert told.due(1000 + CHANGE_EXPIRATION_MS) == (Delete("/config/changes/config_change_0000000000"),)
    assert told.due(1000 + CHANGE_EXPIRATION_MS) == ()
    assert told.due(2**60) == (Delete("/config/changes/config_change_0000000001"),)
