"""Branches as the controller plans and carries them out: the tree before and after the brokers have made their logs,
and a branch that cannot be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from jesenska.base.errors import (
    ErrorCode,
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
)
from jesenska.base.identifiers import TopicPartition, uuid_from_text
from jesenska.controller.context import ConfigView, PartitionView
from jesenska.controller.events import CreateTopic, LeaderAndIsrDone
from jesenska.controller.plans.branches import BRANCH_OF, BranchPoint, branch_point, once_made
from jesenska.controller.plans.config_changes import ConfigOp, OpType, plan_topic_config, plan_topic_config_replaced
from jesenska.controller.plans.topics import TopicCreation, TopicPlan
from jesenska.metadata import nodes, paths
from jesenska.metadata.tree_operations import SetData
from tests.units.controller.test_machine import create, delete, state, up
from tests.units.controller.test_offline_replicas import say
from tests.units.controller.world import World

TOPIC_ID = uuid_from_text("9tbXHgBvRzO0K-63RUy5HQ")


def branch(world: World, source: str, name: str, *, validate_only: bool = False, **configs: str) -> int:
    wanted = TopicCreation(
        name, configs={BRANCH_OF: source, **{key.replace("_", "."): value for key, value in configs.items()}}
    )
    return world.ask(lambda token: CreateTopic(token, wanted, validate_only))


def settings(world: World, name: str) -> Mapping[str, str]:
    return nodes.decode_config(world.tree.get(paths.topic_config(name))[0] or b"")


def filled(brokers: int = 3) -> World:
    world = up(brokers)
    create(world, "orders", 2, brokers)
    world.settle()
    return world


def test_the_point_of_a_branch_is_written_and_read() -> None:
    point = BranchPoint("orders", 6, TOPIC_ID)
    assert point.text() == "orders:6:9tbXHgBvRzO0K-63RUy5HQ"
    assert branch_point({BRANCH_OF: point.text()}) == point
    for text in (
        "",
        "orders",
        "orders:",
        "orders:6",
        "orders:6:x",
        "orders:-1:9tbXHgBvRzO0K-63RUy5HQ",
        "orders:9999999999:9tbXHgBvRzO0K-63RUy5HQ",
        "orders:x:y",
    ):
        assert branch_point({BRANCH_OF: text}) is None, text
    assert branch_point({}) is None
    assert once_made({BRANCH_OF: point.text(), "a": "b"}) == {BRANCH_OF: "orders", "a": "b"}
    assert once_made({BRANCH_OF: "orders"}) == {BRANCH_OF: "orders"}


def test_a_branch_has_replicas_leaders_and_settings_of_its_source_and_a_later_epoch() -> None:
    world = filled()
    world.write(
        SetData(paths.topic_config("orders"), nodes.encode_config({"retention.ms": "7", "segment.bytes": "100"}), -1)
    )
    led = {number: state(world, "orders", number).leader for number in (0, 1)}
    token = branch(world, "orders", "trial", segment_bytes="200")
    while "trial" not in world.controller.context.topics:
        world.under_way()[0]()
    # While it is made.
    assert branch_point(settings(world, "trial")) == BranchPoint(
        "orders", 1, world.controller.context.topics["orders"].topic_id or TOPIC_ID
    )
    world.settle()
    plan = world.answers[token]
    assert isinstance(plan, TopicPlan)
    assert plan.config.overrides == {"retention.ms": "7", "segment.bytes": "200", BRANCH_OF: "orders"}
    assert settings(world, "trial") == plan.config.overrides
    assert (
        world.controller.context.topics["trial"].node.replicas
        == world.controller.context.topics["orders"].node.replicas
    )
    for number in (0, 1):
        begun = state(world, "trial", number)
        assert (begun.leader, begun.leader_epoch, begun.isr) == (led[number], 1, (led[number],))


def test_a_branch_that_is_validated_only_is_not_there() -> None:
    world = filled(1)
    token = branch(world, "orders", "trial", validate_only=True)
    world.settle()
    assert world.answers[token].config.overrides == {BRANCH_OF: "orders"}
    assert world.tree.exists(paths.topic("trial")) is None


def test_a_branch_is_answered_when_every_broker_has_said_that_it_has_its_logs() -> None:
    world = filled(2)
    create(world, "single", 1, 2)
    world.settle()
    token = branch(world, "single", "trial")
    while not (world.brokers[0].orders and world.brokers[1].orders):
        world.under_way()[0]()
    world._do_order(world.brokers[state(world, "single").leader])
    while world.steps:
        world._do_step()
    assert token not in world.answers
    assert branch_point(settings(world, "trial")) is not None
    world.settle()
    assert isinstance(world.answers[token], TopicPlan)
    assert branch_point(settings(world, "trial")) is None


def test_a_branch_whose_leader_cannot_make_it_goes_again_though_another_broker_has_it() -> None:
    world = filled(2)
    create(world, "single", 1, 2)
    world.settle()
    leader = state(world, "single").leader
    world.brokers[leader].full = True
    token = branch(world, "single", "trial")
    world.settle()
    assert isinstance(world.answers[token], KafkaStorageError)
    assert world.tree.exists(paths.topic("trial")) is None
    world.brokers[leader].full = False
    world.brokers[1 - leader].full = True
    again = branch(world, "single", "trial")
    world.settle()
    assert isinstance(world.answers[again], TopicPlan), "a follower can fetch what it could not branch"


def test_the_next_controller_tells_that_a_branch_is_made() -> None:
    world = filled(2)
    branch(world, "orders", "trial")
    while not (world.brokers[0].orders and world.brokers[1].orders):
        world.under_way()[0]()
    world.take_over()
    for broker_id in (0, 1):
        world.come(broker_id)
    world.settle()
    assert settings(world, "trial") == {BRANCH_OF: "orders"}
    world.judge()


def test_a_leader_that_can_make_its_log_only_later_makes_the_branch_then() -> None:
    world = filled(2)
    led = state(world, "orders").leader
    branch(world, "orders", "trial")
    while not (world.brokers[0].orders and world.brokers[1].orders):
        world.under_way()[0]()
    world.take_over()
    world.brokers[led].offline.add(TopicPartition("trial", 0))
    for broker_id in (0, 1):
        world.come(broker_id)
    world.settle()
    assert state(world, "trial").leader == -1
    assert state(world, "trial").isr == (led,)
    assert branch_point(settings(world, "trial")) is not None
    world.brokers[led].offline.clear()
    say(world, nodes.encode_log_dir_event(led))
    assert state(world, "trial").leader == led
    assert settings(world, "trial") == {BRANCH_OF: "orders"}
    world.judge()


def test_a_source_is_not_deleted_while_it_is_branched() -> None:
    world = filled(1)
    branch(world, "orders", "trial")
    while not world.brokers[0].orders:
        world.under_way()[0]()
    early = delete(world, "orders")
    assert isinstance(world.answers[early], InvalidRequestError)
    world.settle()
    late = delete(world, "orders")
    world.settle()
    assert world.answers[late] is None
    assert settings(world, "trial") == {BRANCH_OF: "orders"}


def test_an_answer_of_a_broker_that_is_gone_does_not_make_a_branch() -> None:
    world = filled(2)
    leader = state(world, "orders").leader
    token = branch(world, "orders", "trial")
    while not (world.brokers[0].orders and world.brokers[1].orders):
        world.under_way()[0]()
    world.go(leader)
    world.settle()
    assert isinstance(world.answers[token], KafkaError)
    assert "trial" not in {name for name, topic in world.controller.context.topics.items() if not topic.deleting}


def test_a_partition_without_a_leader_cannot_be_branched() -> None:
    world = filled(1)
    topic = world.controller.context.topics["orders"]
    lost = nodes.PartitionStateNode(-1, 3, (0,), 1)
    world.write(SetData(paths.partition_state("orders", 1), lost.encode(), -1))
    world.controller.context.topics["orders"] = replace(
        topic, partitions={**topic.partitions, 1: PartitionView(lost, 1)}
    )
    token = branch(world, "orders", "trial")
    world.settle()
    assert isinstance(world.answers[token], LeaderNotAvailableError)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"partitions": 3}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"assignment": {0: (0,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (0,), 1: (0,)}, "assigned_twice": True}, ErrorCode.INVALID_REQUEST),
        ({"assignment": {0: (0,), 1: (0,)}}, None),
        ({"partitions": 2, "replication_factor": 1, "checked_as_in_zookeeper_mode": True}, None),
    ],
)
def test_numbers_are_those_of_the_source(wanted: dict[str, object], code: ErrorCode | None) -> None:
    world = filled(1)
    token = world.ask(lambda token: CreateTopic(token, TopicCreation("trial", configs={BRANCH_OF: "orders"}, **wanted)))  # type: ignore[arg-type]
    world.settle()
    answer = world.answers[token]
    assert (answer.code if isinstance(answer, KafkaError) else None) == code


def test_a_branch_in_the_making_cannot_be_branched() -> None:
    world = filled(1)
    context = world.controller.context
    context.configs["topics/orders"] = ConfigView({BRANCH_OF: BranchPoint("x", 1, TOPIC_ID).text()})
    token = branch(world, "orders", "trial")
    world.settle()
    assert isinstance(world.answers[token], InvalidRequestError)


def test_where_a_topic_comes_from_stays_whatever_is_changed() -> None:
    world = filled(1)
    branch(world, "orders", "trial")
    world.settle()
    view, config = world.controller.context, world.controller.config
    for op in (OpType.SET, OpType.DELETE):
        with pytest.raises(InvalidConfigError, match="not be changed"):
            plan_topic_config(view, "trial", [ConfigOp(BRANCH_OF, op, "other")], config)
    assert plan_topic_config_replaced(view, "trial", {"retention.ms": "1"}, config).settings == {
        "retention.ms": "1",
        BRANCH_OF: "orders",
    }
    assert plan_topic_config_replaced(view, "trial", {BRANCH_OF: "orders"}, config).settings == {BRANCH_OF: "orders"}
    assert plan_topic_config_replaced(view, "orders", {"retention.ms": "1"}, config).settings == {"retention.ms": "1"}
    with pytest.raises(InvalidConfigError, match="not be changed"):
        plan_topic_config_replaced(view, "orders", {BRANCH_OF: "trial"}, config)


def test_a_late_answer_counts_for_nothing() -> None:
    world = filled(1)
    world.bring(LeaderAndIsrDone(99_999, 0))
    world.settle()
    world.judge()
