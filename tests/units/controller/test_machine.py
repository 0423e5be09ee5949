"""The controller as a machine, with a real tree and brokers that carry out their orders, one at a time and in any
order."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.controller.context import PartitionView
from jesenska.controller.effects import (
    LeaderAndIsr,
    OffsetsForgotten,
    SettingsChanged,
    StopReplica,
    UpdateMetadata,
    Write,
)
from jesenska.controller.events import (
    EVERYTHING,
    AlterBrokerSettings,
    AlterClientSettings,
    AlterReassignments,
    AlterTopicSettings,
    BalanceLeaders,
    CreateTopic,
    DeleteTopic,
    Done,
    ElectPreferred,
    ElectUncleanly,
    ExpandTopic,
    IsrProposed,
    Look,
    StopWanted,
)
from jesenska.controller.plans.config_changes import ConfigOp, OpType
from jesenska.controller.plans.topics import TopicCreation, TopicPlan
from jesenska.metadata import nodes, paths
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.metadata.tree_operations import Create, Delete, SetData
from tests.profiles import examples
from tests.units.controller.world import World


def up(brokers: int = 1, **settings_of_brokers: str) -> World:
    """Returns a cluster whose brokers have joined."""
    world = World(brokers, {name.replace("_", "."): value for name, value in settings_of_brokers.items()})
    world.settle()
    for broker_id in range(brokers):
        world.come(broker_id)
    world.settle()
    return world


def create(world: World, name: str, partitions: int = 1, factor: int = 1) -> int:
    return world.ask(lambda token: CreateTopic(token, TopicCreation(name, partitions, factor)))


def delete(world: World, name: str) -> int:
    return world.ask(lambda token: DeleteTopic(token, name))


def state(world: World, name: str, number: int = 0) -> PartitionStateNode:
    return PartitionStateNode.decode(world.tree.get(paths.partition_state(name, number))[0] or b"")


def test_a_topic_is_answered_when_its_logs_are_there_and_clients_see_it() -> None:
    world = up()
    token = create(world, "t", 2)
    world.under_way()[0]()  # the tree has it
    (order,) = world.brokers[0].orders
    assert isinstance(order, LeaderAndIsr)
    assert token not in world.answers
    world.under_way()[0]()
    assert isinstance(world.answers[token], TopicPlan)
    (shown,) = world.brokers[0].orders
    assert isinstance(shown, UpdateMetadata)
    world.settle()
    world.judge()


def test_one_change_is_made_after_the_other() -> None:
    world = up()
    first, second = create(world, "t"), create(world, "t")
    assert len(world.steps) == 1
    world.settle()
    assert isinstance(world.answers[first], TopicPlan)
    assert isinstance(world.answers[second], TopicAlreadyExistsError)


def test_a_topic_whose_logs_no_disk_takes_goes_again_and_nobody_has_seen_it() -> None:
    world = up()
    world.brokers[0].full = True
    token = create(world, "t", 2)
    world.settle()
    assert isinstance(world.answers[token], KafkaStorageError)
    assert world.tree.exists(paths.topic("t")) is None
    assert not world.brokers[0].replicas
    world.judge()
    world.brokers[0].full = False
    again = create(world, "t")
    world.settle()
    assert isinstance(world.answers[again], TopicPlan)


def test_a_topic_that_one_disk_of_two_takes_stays() -> None:
    world = up(2)
    world.brokers[1].full = True
    token = create(world, "t", 1, 2)
    world.settle()
    assert isinstance(world.answers[token], TopicPlan)


def test_a_topic_whose_logs_no_disk_takes_or_gives_back_goes_when_that_is_mended() -> None:
    world = up()
    create(world, "t")
    world.settle()
    world.brokers[0].full = world.brokers[0].stuck = True
    token = create(world, "u", 2)
    world.settle()
    assert "was not created" in str(world.answers[token])
    assert world.controller.context.topics["u"].deleting
    assert "u" not in world.brokers[0].shown
    world.brokers[0].stuck = False
    world.wake()
    world.settle()
    assert world.controller.context.topics.keys() == {"t"}
    world.judge()


def test_a_topic_is_answered_when_a_broker_goes_that_was_to_make_logs() -> None:
    world = up(2)
    token = create(world, "t", 1, 2)
    world.under_way()[0]()
    world.go(1)
    world.settle()
    assert isinstance(world.answers[token], TopicPlan)
    world.judge()


def test_a_broker_that_comes_back_knows_all_topics_before_it_leads_any() -> None:
    """Otherwise a coordinator of transactions treats its marks as marks for deleted topics."""
    world = up(2)
    create(world, "t", 2, 2)
    world.settle()
    for broker_id in (1, 0):
        world.go(broker_id)
        world.settle()
    world.come(0)
    while world.steps:
        world.under_way()[0]()
    brokers, topics, leads = world.brokers[0].orders
    assert brokers == UpdateMetadata(0)
    assert isinstance(topics, UpdateMetadata)
    assert topics.is_first
    assert [(part.topic.name, part.numbers) for part in topics.topics] == [("t", (0, 1))]
    assert topics.topics[0].topic.partitions[0].state.leader == 0, "as it stands after the election"
    assert isinstance(leads, LeaderAndIsr)
    world.settle()
    world.judge()


def test_what_the_tree_does_not_take_is_refused_and_leaves_nothing() -> None:
    world = up()
    world.unreachable = True
    token = create(world, "t")
    world.settle()
    assert isinstance(world.answers[token], KafkaStorageError)
    assert not world.controller.context.topics
    world.unreachable = False
    again = create(world, "t")
    world.settle()
    assert isinstance(world.answers[again], TopicPlan)
    world.judge()


def test_a_deletion_ends_when_every_replica_is_gone() -> None:
    world = up(2)
    create(world, "t", 1, 2)
    world.settle()
    token = delete(world, "t")
    world.under_way()[0]()
    assert world.tree.exists(paths.delete_topic("t")) is not None
    while any(broker.orders for broker in world.brokers.values()):
        assert token not in world.answers
        assert world.tree.exists(paths.topic("t")) is not None
        world.under_way()[0]()
    world.settle()
    assert world.answers[token] is None
    assert OffsetsForgotten("t") in world.told
    assert world.tree.exists(paths.delete_topic("t")) is None
    world.judge()


def test_who_deletes_a_topic_that_is_being_deleted_finds_it_unknown_in_the_end() -> None:
    world = up()
    create(world, "t")
    world.settle()
    first = delete(world, "t")
    while "t" in world.brokers[0].shown:
        world.under_way()[0]()
    second, third = delete(world, "t"), world.ask(lambda token: ExpandTopic(token, "t", 5))
    fourth = world.ask_settings(lambda token: AlterTopicSettings(token, "t", {}))
    world.settle()
    assert world.answers[first] is None
    for token in (second, third, fourth):
        assert isinstance(world.answers[token], UnknownTopicOrPartitionError)


def test_a_deletion_that_a_disk_refuses_is_told_and_tried_again() -> None:
    world = up()
    create(world, "t")
    world.settle()
    world.brokers[0].stuck = True
    token = delete(world, "t")
    world.settle()
    assert isinstance(world.answers[token], KafkaStorageError)
    assert world.tree.exists(paths.delete_topic("t")) is not None
    world.brokers[0].stuck = False
    world.wake()
    world.settle()
    assert world.tree.exists(paths.topic("t")) is None
    world.judge()


def test_the_next_controller_ends_a_deletion_that_was_begun() -> None:
    world = up()
    create(world, "t")
    world.settle()
    delete(world, "t")
    world.under_way()[0]()
    world.brokers[0].orders.clear()
    world.take_over()
    world.come(0)
    world.settle()
    assert world.tree.exists(paths.topic("t")) is None
    assert not world.brokers[0].replicas
    world.judge()


@pytest.mark.parametrize("has_replica", [True, False])
def test_a_broker_that_missed_a_deletion_forgets_the_topic_when_it_is_back(has_replica: bool) -> None:
    world = World(3, several=True)
    world.settle()
    create(world, "t", 1, 3 if has_replica else 1)
    world.settle()
    (leader, *_) = world.controller.context.topics["t"].node.replicas[0]
    away = next(number for number in (2, 1) if number != leader)
    known = dict(world.brokers[away].shown)
    world.go(away)
    world.settle()
    delete(world, "t")
    world.settle()
    # It was suspended, and was not restarted.
    world.brokers[away].shown = known
    world.come(away)
    while world.steps or world.looks:
        (world._do_step if world.steps else world._look)()
    (first,) = [order for order in world.brokers[away].orders if isinstance(order, UpdateMetadata) and order.is_first]
    # Apache Kafka's brokers forget a topic that is reported as deleted, and no other.
    assert [part.topic.name for part in first.gone] == (["t"] if has_replica else [])
    world.settle()
    assert "t" not in world.brokers[away].shown
    assert world.tree.exists(paths.topic("t")) is None
    world.judge()


def test_replicas_of_a_broker_that_is_gone_are_deleted_when_it_is_back() -> None:
    world = up(2)
    create(world, "t", 1, 2)
    world.settle()
    world.go(1)
    token = delete(world, "t")
    world.settle()
    # Clients do not see it any more: the deleting client does not wait for a broker that may never come back.
    assert world.answers[token] is None
    assert world.tree.exists(paths.topic("t")) is not None
    world.come(1)
    world.settle()
    assert world.tree.exists(paths.topic("t")) is None
    assert not world.brokers[1].replicas
    world.judge()


def test_a_deletion_goes_on_without_a_broker_that_never_comes_again() -> None:
    world = watching(3)
    create(world, "t", 1, 3)
    world.settle()
    world.go(1)
    world.go(2)
    delete(world, "t")
    world.settle()
    for said, is_there in (
        (b'{"version":1,"brokers":[0,1]}', True),
        (b"nonsense", True),
        (b'{"version":1,"brokers":[2]}', False),
    ):
        world.write(Create(paths.LOST_BROKERS, said))
        world.settle()
        assert world.tree.exists(paths.LOST_BROKERS) is None
        assert (
            world.tree.exists(paths.topic("t")) is not None,
            world.tree.exists(paths.delete_topic("t")) is not None,
        ) == (is_there, is_there)
    assert [text for text in world.said if "were reported as lost" in text] == [
        f"the deletion of topic t continues without brokers [{broker_id}], because they were reported as lost"
        for broker_id in (1, 2)
    ]
    again = create(world, "t", 1, 1)
    world.settle()
    assert not isinstance(world.answers[again], Exception)


def test_a_deletion_waits_for_a_broker_that_is_up_whatever_is_said_of_it() -> None:
    world = watching(2)
    create(world, "t", 1, 2)
    world.settle()
    world.brokers[1].stuck = True
    delete(world, "t")
    world.settle()
    world.write(Create(paths.LOST_BROKERS, b'{"version":1,"brokers":[1]}'))
    world.settle()
    assert world.tree.exists(paths.topic("t")) is not None
    assert world.tree.exists(paths.LOST_BROKERS) is None


def test_a_leader_that_is_gone_is_followed_by_one_in_sync() -> None:
    world = up(2)
    create(world, "t", 1, 2)
    world.settle()
    leader = state(world, "t").leader
    world.go(leader)
    world.settle()
    assert state(world, "t") == PartitionStateNode(1 - leader, 1, (1 - leader,), 1)
    world.judge()
    world.go(1 - leader)
    world.settle()
    assert state(world, "t") == PartitionStateNode(-1, 2, (1 - leader,), 1)
    world.come(leader)
    world.settle()
    assert state(world, "t").leader == -1
    assert any("nobody leads (0)" in text for text in world.said)
    token = world.ask(lambda token: ElectUncleanly(token, TopicPartition("t", 0)))
    world.settle()
    assert world.answers[token] is True
    assert state(world, "t") == PartitionStateNode(leader, 3, (leader,), 1)
    world.judge()


def test_what_a_broker_leads_that_has_crashed_begins_a_new_epoch() -> None:
    world = up()
    create(world, "t", 2)
    world.settle()
    world.take_over()
    world.come(0, crashed=True)
    world.settle()
    assert [state(world, "t", number).leader_epoch for number in range(2)] == [1, 1]
    world.take_over()
    world.come(0)
    world.settle()
    assert [state(world, "t", number).leader_epoch for number in range(2)] == [1, 1]
    world.judge()


def test_settings_take_effect_and_let_a_leader_be_elected() -> None:
    world = up(2)
    create(world, "t", 1, 2)
    world.settle()
    leader = state(world, "t").leader
    world.go(1 - leader)
    world.settle()
    assert state(world, "t") == PartitionStateNode(leader, 1, (leader,), 1)
    token = world.ask(lambda token: IsrProposed(token, leader, TopicPartition("t", 0), 1, 1, (leader,)))
    world.settle()
    assert world.answers[token] == PartitionView(PartitionStateNode(leader, 1, (leader,), 1), 1)
    world.go(leader)
    world.come(1 - leader)
    world.settle()
    assert state(world, "t").leader == -1
    change = [ConfigOp("unclean.leader.election.enable", OpType.SET, "true")]
    token = world.ask_settings(lambda token: AlterTopicSettings(token, "t", change))
    world.settle()
    assert world.answers[token] is None
    assert SettingsChanged("topics/t") in world.told
    assert state(world, "t").leader == 1 - leader
    world.judge()


def test_settings_of_brokers_are_those_of_the_next_plan() -> None:
    world = up()
    world.ask_settings(lambda token: AlterBrokerSettings(token, "", {"log.retention.ms": "5000"}))
    world.settle()
    token = world.ask(lambda token: CreateTopic(token, TopicCreation("t")))
    world.settle()
    assert world.answers[token].config.integer("retention.ms") == 5000
    assert SettingsChanged("brokers/<default>") in world.told


@pytest.mark.parametrize(
    ("broker_id", "epoch", "version", "isr", "kind"),
    [
        (0, -1, 0, (0,), FencedLeaderEpochError),
        (0, 1, 0, (0,), KafkaError),
        (0, 0, 7, (0,), KafkaError),
        (0, 0, -1, (0,), InvalidUpdateVersionError),
        (1, 0, 0, (1,), InvalidRequestError),
        (0, 0, 0, (1,), InvalidRequestError),
        (0, 0, 0, (0, 7), InvalidRequestError),
    ],
)
def test_an_isr_is_taken_of_the_leader_alone_and_on_top_of_what_stands(
    broker_id: int, epoch: int, version: int, isr: tuple[int, ...], kind: type[KafkaError]
) -> None:
    world = up(2)
    world.ask(lambda token: CreateTopic(token, TopicCreation("t", assignment={0: (0, 1)})))
    world.settle()
    token = world.ask(lambda token: IsrProposed(token, broker_id, TopicPartition("t", 0), epoch, version, isr))
    world.settle()
    assert isinstance(world.answers[token], kind)
    assert state(world, "t").isr == (0, 1)


def test_an_isr_that_somebody_else_has_written_meanwhile_is_not_overwritten() -> None:
    world = up(2)
    world.ask(lambda token: CreateTopic(token, TopicCreation("t", assignment={0: (0, 1)})))
    world.settle()
    world.write(SetData(paths.partition_state("t", 0), PartitionStateNode(0, 0, (0,), 1).encode()))
    token = world.ask(lambda token: IsrProposed(token, 0, TopicPartition("t", 0), 0, 0, (0,)))
    world.settle()
    assert world.answers[token].code == ErrorCode.INVALID_UPDATE_VERSION


def unknown_partitions(brokers: int) -> World:
    """A cluster with a topic "t" of one partition, and a topic "going" that a disk does not let go."""
    world = up(brokers)
    for name in ("t", "going"):
        world.ask(
            lambda token, name=name: CreateTopic(  # type: ignore[misc]
                token, TopicCreation(name, assignment={0: tuple(range(brokers))})
            )
        )
    world.settle()
    for broker in world.brokers.values():
        broker.stuck = True
    delete(world, "going")
    world.settle()
    assert world.controller.context.topics["going"].deleting
    return world


@pytest.mark.parametrize(
    "topic_partition", [TopicPartition("nothing", 0), TopicPartition("t", 1), TopicPartition("going", 0)]
)
def test_who_asks_about_a_partition_that_is_not_there_or_is_being_deleted_is_told_that_it_is_unknown(
    topic_partition: TopicPartition,
) -> None:
    world = unknown_partitions(2)
    isr_token = world.ask(lambda token: IsrProposed(token, 0, topic_partition, 0, 0, (0,)))
    election_token = world.ask(lambda token: ElectUncleanly(token, topic_partition))
    world.settle()
    assert isinstance(world.answers[isr_token], UnknownTopicOrPartitionError)
    assert isinstance(world.answers[election_token], UnknownTopicOrPartitionError)
    assert state(world, "t") == PartitionStateNode(0, 0, (0, 1), 1)


def proposed(world: World, isr: tuple[int, ...]) -> object:
    """Returns the answer to broker 0 when it proposes this ISR for the partition 0 of "t"."""
    token = world.ask(lambda token: IsrProposed(token, 0, TopicPartition("t", 0), 0, 0, isr))
    world.settle()
    return world.answers[token]


def test_an_isr_is_not_written_by_who_is_the_controller_no_more() -> None:
    world = unknown_partitions(2)
    world.write(SetData(paths.CONTROLLER_EPOCH, nodes.encode_controller_epoch(9)))
    assert isinstance(proposed(world, (0,)), KafkaStorageError)
    assert state(world, "t").isr == (0, 1)


def test_an_isr_that_cannot_be_written_since_the_tree_is_out_of_reach_may_be_proposed_again() -> None:
    world = unknown_partitions(2)
    world.unreachable = True
    assert isinstance(proposed(world, (0,)), KafkaStorageError)
    world.unreachable = False
    assert proposed(world, (0,)) == PartitionView(PartitionStateNode(0, 0, (0,), 1), 1)


def test_an_outcome_that_nothing_waits_for_changes_nothing() -> None:
    world = up()
    world.bring(Done(1_000_000))
    token = create(world, "t")
    world.bring(Done(1_000_000))
    assert (token in world.answers, world.brokers[0].orders, len(world.steps)) == (False, deque(), 1)
    world.settle()
    assert isinstance(world.answers[token], TopicPlan)
    world.bring(Done(1_000_000))
    world.judge()


# Changes by others in the tree


def watching(brokers: int = 1, **settings_of_brokers: str) -> World:
    world = up(brokers, **settings_of_brokers)
    world.bring(Look(EVERYTHING))
    world.settle()
    return world


def test_a_topic_that_others_write_is_adopted_grows_and_is_deleted() -> None:
    world = watching()
    world.write(Create(paths.topic("t"), b'{"version":1,"partitions":{"1":[0],"0":[0]}}'))
    world.settle()
    world.judge()
    topic_id = world.controller.context.topics["t"].topic_id
    assert topic_id is not None
    world.write(SetData(paths.topic("t"), b'{"version":1,"partitions":{"0":[0],"1":[0],"2":[0]}}'))
    world.settle()
    world.judge()
    assert world.controller.context.topics["t"].topic_id == topic_id
    assert len(world.brokers[0].replicas) == 3
    world.write(Create(paths.delete_topic("t")))
    world.settle()
    world.judge()
    assert world.tree.exists(paths.topic("t")) is None


def test_a_topic_that_is_taken_away_is_hidden_and_its_data_stay() -> None:
    world = watching()
    create(world, "t")
    world.settle()
    for path in (paths.partition_state("t", 0), paths.partition("t", 0), paths.partitions("t"), paths.topic("t")):
        world.write(Delete(path))
    world.settle()
    assert not world.brokers[0].shown
    assert TopicPartition("t", 0) in world.brokers[0].replicas


def test_settings_that_others_write_take_effect_and_let_a_leader_be_elected() -> None:
    world = watching()
    create(world, "t")
    world.settle()
    world.write(SetData(paths.partition_state("t", 0), PartitionStateNode(5, 3, (5,), 1).encode()))
    world.take_over()
    world.come(0)
    world.bring(Look(EVERYTHING))
    world.settle()
    assert state(world, "t") == PartitionStateNode(-1, 4, (5,), 1)
    written = nodes.encode_config({"unclean.leader.election.enable": "true"})
    world.write(
        SetData(paths.topic_config("t"), written),
        Create(paths.CONFIG_CHANGE_PREFIX, nodes.encode_config_change("topics/t"), sequential=True),
    )
    world.settle()
    assert state(world, "t") == PartitionStateNode(0, 5, (0,), 1)
    world.judge()


def _told_of(entity: str) -> Create:
    return Create(paths.CONFIG_CHANGE_PREFIX, nodes.encode_config_change(entity), sequential=True)


@pytest.mark.parametrize("entity", ["users/anna", "clients/c", "ips/127.0.0.1"])
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "found after a lost session"])
def test_settings_whose_node_others_have_deleted_are_gone(entity: str, is_told: bool) -> None:
    """Apache Kafka deletes the node of a user whose last credential is removed."""
    world = watching()
    node = f"{paths.CONFIG}/{entity}"
    world.write(Create(node, nodes.encode_config({"SCRAM-SHA-256": "x"})), _told_of(entity))
    world.settle()
    assert world.broker_settings.client_settings() == {entity: {"SCRAM-SHA-256": "x"}}
    if is_told:
        world.write(Delete(node), _told_of(entity))
    else:
        world.write(Delete(node))
        world.bring_to(world.broker_settings, Look(EVERYTHING))
    world.settle()
    assert world.broker_settings.client_settings() == {}
    assert world.told.count(SettingsChanged(entity)) == 2
    token = world.ask_settings(lambda token: AlterClientSettings(token, entity, {"SCRAM-SHA-512": "y"}))
    world.settle()
    assert not isinstance(world.answers[token], KafkaError)
    assert nodes.decode_config(world.tree.get(node)[0] or b"") == {"SCRAM-SHA-512": "y"}


def test_settings_whose_node_is_deleted_while_they_are_changed_are_made_anew() -> None:
    """The deletion is not known yet when the change is written."""
    world = watching()
    node = f"{paths.CONFIG}/users/anna"
    world.write(Create(node, nodes.encode_config({"SCRAM-SHA-256": "x"})), _told_of("users/anna"))
    world.settle()
    world.write(Delete(node))
    token = world.ask_settings(lambda token: AlterClientSettings(token, "users/anna", {"SCRAM-SHA-512": "y"}))
    world.settle()
    assert not isinstance(world.answers[token], KafkaError)
    assert nodes.decode_config(world.tree.get(node)[0] or b"") == {"SCRAM-SHA-512": "y"}


def test_settings_that_are_told_again_and_have_not_changed_are_no_news() -> None:
    world = watching()
    create(world, "t")
    world.settle()
    written = nodes.encode_config({"retention.ms": "5000"})
    told = Create(paths.CONFIG_CHANGE_PREFIX, nodes.encode_config_change("topics/t"), sequential=True)
    world.write(SetData(paths.topic_config("t"), written), told)
    world.settle()
    assert world.told.count(SettingsChanged("topics/t")) == 1
    world.write(told)
    world.settle()
    assert world.told.count(SettingsChanged("topics/t")) == 1


def test_replicas_that_somebody_wants_elsewhere_stay_and_the_log_says_why() -> None:
    world = watching()
    create(world, "t")
    world.settle()
    wanted = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"u","partition":0,"replicas":[1]}]}'  # noqa: E501
    world.write(Create(paths.REASSIGN_PARTITIONS, wanted))
    world.settle()
    assert [text for text in world.said if "cannot" in text] == [
        "t-0 cannot get the replicas [1]: The manual partition assignment includes broker 1, but no such broker is "
        "registered.",
        "u-0 cannot get the replicas [1]: Unable to find a topic named u.",
    ]
    assert world.tree.exists(paths.REASSIGN_PARTITIONS) is None
    world.judge()


def test_a_topic_that_is_marked_before_anybody_has_looked_at_it_is_deleted() -> None:
    world = watching()
    world.write(Create(paths.delete_topic("t")), Create(paths.topic("t"), b'{"version":1,"partitions":{"0":[0]}}'))
    world.settle()
    assert world.tree.exists(paths.topic("t")) is None
    assert world.tree.exists(paths.delete_topic("t")) is None
    world.judge()


@pytest.mark.parametrize("has_gone", [True, False])
def test_work_that_cannot_be_taken_away_is_looked_at_again_but_not_what_has_gone_already(has_gone: bool) -> None:
    world = watching()
    world.write(Create(paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[]}'))
    while not (world.steps and isinstance(world.steps[0][1].what, Write)):
        world.under_way()[0]()
    world.write(Delete(paths.REASSIGN_PARTITIONS) if has_gone else Create(f"{paths.REASSIGN_PARTITIONS}/child"))
    world.settle()
    assert [timer.event for timer in world.timers] == ([] if has_gone else [Look(paths.REASSIGN_PARTITIONS)])


def test_a_look_that_fails_is_made_again_and_waits_longer_each_time() -> None:
    world = watching()
    world.write(Delete(paths.DELETE_TOPICS))
    world.settle()
    pauses = []
    for _ in range(9):
        (timer,) = world.timers
        pauses.append(timer.after_ms)
        world.wake()
        world.settle()
    assert pauses == [250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]
    world.write(Create(paths.DELETE_TOPICS))
    world.wake()
    world.settle()
    assert not world.timers


def test_while_the_tree_is_out_of_reach_no_look_is_made_again() -> None:
    world = watching()
    world.unreachable = True
    world.write(Create(paths.topic("t"), b'{"version":1,"partitions":{"0":[0]}}'))
    world.settle()
    assert not world.timers
    world.unreachable = False
    world.bring(Look(EVERYTHING))
    world.settle()
    world.judge()
    assert "t" in world.controller.context.topics


# Anything, in any order

_NAMES = st.sampled_from(["a", "b", "c"])
_BROKERS = st.integers(0, 2)
_ACTIONS = st.one_of(
    st.tuples(st.just("create"), _NAMES, st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("expand"), _NAMES, st.integers(1, 6)),
    st.tuples(st.just("delete"), _NAMES),
    st.tuples(st.just("mark"), _NAMES),
    st.tuples(st.just("write"), _NAMES, st.integers(1, 6)),
    st.tuples(st.just("settings"), _NAMES, st.sampled_from(["true", "false"])),
    st.tuples(st.just("unclean"), _NAMES),
    st.tuples(st.just("isr"), _NAMES, _BROKERS),
    st.tuples(st.just("move"), _NAMES, st.none() | st.permutations([0, 1, 2]).map(lambda ids: tuple(ids[:2]))),
    st.tuples(st.just("tool moves"), _NAMES, st.permutations([0, 1, 2]).map(lambda ids: tuple(ids[:2]))),
    st.tuples(st.just("leader writes"), _NAMES, _BROKERS),
    st.tuples(st.just("stop"), _BROKERS),
    st.tuples(st.just("preferred"), _NAMES),
    st.tuples(st.just("balance")),
    st.tuples(st.just("come or go"), _BROKERS),
    st.tuples(st.just("full"), _BROKERS),
    st.tuples(st.just("stuck"), _BROKERS),
    st.tuples(st.just("unreachable")),
    st.tuples(st.just("some"), st.integers(1, 20)),
)


def act(world: World, action: tuple[object, ...]) -> None:
    what, *arguments = action
    work: dict[str, Callable[..., object]] = {
        "create": lambda name, partitions, factor: create(world, name, partitions, factor),
        "expand": lambda name, count: world.ask(lambda token: ExpandTopic(token, name, count)),
        "delete": lambda name: delete(world, name),
        "mark": lambda name: (
            world.tree.exists(paths.delete_topic(name)) is None and world.write(Create(paths.delete_topic(name)))
        ),
        "write": lambda name, count: write(world, name, count),
        "settings": lambda name, value: world.ask_settings(
            lambda token: AlterTopicSettings(token, name, {"unclean.leader.election.enable": value})
        ),
        "unclean": lambda name: world.ask(lambda token: ElectUncleanly(token, TopicPartition(name, 0))),
        "isr": lambda name, broker_id: propose(world, name, broker_id),
        "move": lambda name, target: world.ask(
            lambda token: AlterReassignments(token, [(TopicPartition(name, 0), target)])
        ),
        "tool moves": lambda name, target: (
            world.tree.exists(paths.REASSIGN_PARTITIONS) is None
            and world.write(
                Create(paths.REASSIGN_PARTITIONS, nodes.encode_reassignment({TopicPartition(name, 0): target}))
            )
        ),
        "leader writes": lambda name, broker_id: leader_writes(world, name, broker_id),
        "stop": lambda broker_id: world.ask(lambda token: StopWanted(token, broker_id)),
        "preferred": lambda name: world.ask(
            lambda token: ElectPreferred(token, (TopicPartition(name, 0), TopicPartition(name, 1)))
        ),
        "balance": lambda: world.bring(BalanceLeaders()),
        "come or go": lambda broker_id: (
            world.go(broker_id)
            if broker_id in world.up
            else world.come(broker_id, crashed=bool(world.chance.getrandbits(1)))
        ),
        "full": lambda broker_id: setattr(world.brokers[broker_id], "full", not world.brokers[broker_id].full),
        "stuck": lambda broker_id: setattr(world.brokers[broker_id], "stuck", not world.brokers[broker_id].stuck),
        "unreachable": lambda: setattr(world, "unreachable", not world.unreachable),
        "some": lambda count: some(world, count),
    }
    assert isinstance(what, str)
    work[what](*arguments)


def write(world: World, name: str, count: int) -> None:
    """Writes a topic, or more partitions of one, as the tools of 0.8 do."""
    known: dict[int, tuple[int, ...]] = {}
    if world.tree.exists(paths.topic(name)) is not None:
        known = dict(nodes.TopicNode.decode(world.tree.get(paths.topic(name))[0] or b"").replicas)
    replicas = {number: known.get(number, (0, 1)) for number in range(max(count, len(known)))}
    data = json.dumps(
        {"version": 1, "partitions": {str(number): brokers for number, brokers in replicas.items()}}
    ).encode()
    if not known:
        world.write(Create(paths.topic(name), data))
    else:
        world.write(SetData(paths.topic(name), data))


def propose(world: World, name: str, broker_id: int) -> None:
    topic = world.controller.context.topics.get(name)
    if topic is not None and 0 in topic.partitions:
        known = topic.partitions[0]
        isr = tuple(dict.fromkeys((known.state.leader, broker_id)))
        world.ask(
            lambda token: IsrProposed(
                token, known.state.leader, TopicPartition(name, 0), known.state.leader_epoch, known.version, isr
            )
        )


def leader_writes(world: World, name: str, broker_id: int) -> None:
    """Writes an ISR into the tree as the leader of a partition, with the notification."""
    if world.tree.exists(paths.partition_state(name, 0)) is None:
        return
    found = state(world, name)
    if found.leader in world.up:
        isr = (found.leader,) if broker_id in found.isr else (*found.isr, broker_id)
        written = PartitionStateNode(found.leader, found.leader_epoch, isr, found.controller_epoch)
        world.write(
            SetData(paths.partition_state(name, 0), written.encode()),
            Create(paths.ISR_CHANGE_PREFIX, nodes.encode_partitions([TopicPartition(name, 0)]), sequential=True),
        )


def some(world: World, count: int) -> None:
    for _ in range(count):
        things = world.under_way()
        if things:
            world.chance.choice(things)()


@settings(max_examples=examples(3))
@given(st.lists(_ACTIONS, max_size=40), st.integers(0, 2**32), st.booleans())
def test_whatever_happens_everybody_agrees_in_the_end(
    actions: list[tuple[object, ...]], seed: int, several: bool
) -> None:
    """All agree in the end, whether the controller's own broker reports brokers or the tree does."""
    world = World(3, chance=random.Random(seed), several=several)
    world.settle()
    if not several:
        for broker_id in range(3):
            world.come(broker_id)
        world.bring(Look(EVERYTHING))
    world.settle()
    for action in actions:
        act(world, action)
        some(world, world.chance.randrange(4))
    # All faults end: brokers are up, disks accept writes, the tree is there.
    world.unreachable = False
    for broker in world.brokers.values():
        broker.full = broker.stuck = False
    world.settle()
    for broker_id in range(3):
        if broker_id not in world.up or (not several and world.answers[world.came[broker_id]] is not None):
            world.come(broker_id)
    world.bring(Look(EVERYTHING))
    for _ in range(4):
        world.settle()
        world.wake()
    world.settle()
    world.judge()
    assert world.controller.is_idle
    assert world.answers.keys() == set(range(1, world.last_token + 1))
    assert not any(topic.deleting for topic in world.controller.context.topics.values())


def test_orders_of_one_kind_name_brokers_that_have_replicas() -> None:
    world = up(3)
    world.ask(lambda token: CreateTopic(token, TopicCreation("t", assignment={0: (0,), 1: (2,)})))
    world.under_way()[0]()
    assert {
        broker_id
        for broker_id, broker in world.brokers.items()
        if any(isinstance(order, LeaderAndIsr) for order in broker.orders)
    } == {0, 2}
    world.settle()
    delete(world, "t")
    world.under_way()[0]()
    assert {
        broker_id
        for broker_id, broker in world.brokers.items()
        if any(isinstance(order, StopReplica) for order in broker.orders)
    } == {0, 2}
