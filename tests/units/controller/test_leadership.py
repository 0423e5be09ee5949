"""Leadership on a cluster of several brokers: brokers that stop, that crashed, first replicas, ISRs that leaders write
into the tree themselves, and Kafka's own topics when more brokers join."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import (
    BrokerNotAvailableError,
    ElectionNotNeededError,
    IneligibleReplicaError,
    KafkaStorageError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.controller.effects import LeaderAndIsr, UpdateMetadata
from jesenska.controller.events import (
    TOPIC,
    AlterReassignments,
    BalanceLeaders,
    CreateTopic,
    ElectPreferred,
    IsrProposed,
    Look,
    StopWanted,
)
from jesenska.controller.plans.internal_topics import CONSUMER_OFFSETS, automatic_topic
from jesenska.controller.plans.partition_states import NO_LEADER, elect_after_crash, elect_before_stop, elect_preferred
from jesenska.metadata import nodes, paths
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.metadata.tree_operations import Create, SetData
from tests.units.controller.test_machine import create, state, up, watching
from tests.units.controller.world import World


def assigned(world: World, name: str, assignment: Mapping[int, tuple[int, ...]]) -> None:
    """A topic with these replicas, which may be more for one partition than for another."""
    world.write(Create(paths.topic(name), nodes.TopicNode(assignment, uuid.UUID(int=7)).encode()))
    world.bring(Look(TOPIC + name))
    world.settle()
    assert set(world.controller.context.topics[name].partitions) == set(assignment)


def isr_is(world: World, name: str, number: int, isr: tuple[int, ...]) -> None:
    """The leader writes this ISR in the tree, and no controller learns of it."""
    found = state(world, name, number)
    world.write(
        SetData(
            paths.partition_state(name, number), PartitionStateNode(found.leader, found.leader_epoch, isr, 1).encode()
        )
    )


def answer(world: World, make: object) -> object:
    assert callable(make)
    token = world.ask(make)
    world.settle()
    return world.answers[token]


# A broker that is about to stop


def test_what_a_broker_leads_that_is_about_to_stop_is_led_by_others_and_it_follows_nothing() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1, 2), 1: (1, 0), 2: (0,), 3: (1, 2)})
    for broker in world.brokers.values():
        assert not broker.orders
    assert answer(world, lambda token: StopWanted(token, 0)) == ()
    assert state(world, "t", 0) == PartitionStateNode(1, 1, (1, 2), 1)
    assert state(world, "t", 1) == PartitionStateNode(1, 1, (1,), 1)
    assert state(world, "t", 2) == PartitionStateNode(0, 0, (0,), 1)
    assert state(world, "t", 3) == PartitionStateNode(1, 0, (1, 2), 1)
    assert world.brokers[0].given_up == {TopicPartition("t", 0), TopicPartition("t", 1)}
    world.judge()


def test_what_nobody_else_can_lead_stays_with_it_and_is_named() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1), 1: (0, 1)})
    isr_is(world, "t", 1, (0,))
    assert answer(world, lambda token: StopWanted(token, 0)) == (TopicPartition("t", 1),)
    assert state(world, "t", 0).leader == 1
    assert state(world, "t", 1) == PartitionStateNode(0, 0, (0,), 1)
    assert world.brokers[0].given_up == {TopicPartition("t", 0)}


def test_a_broker_that_is_not_up_cannot_be_about_to_stop() -> None:
    assert isinstance(answer(up(1), lambda token: StopWanted(token, 5)), BrokerNotAvailableError)


def test_a_broker_that_is_about_to_stop_comes_into_no_isr_and_is_elected_last() -> None:
    world = up(3)
    assigned(world, "t", {0: (1, 0), 1: (1, 0, 2), 2: (1, 0)})
    assert answer(world, lambda token: StopWanted(token, 0)) == ()
    view = world.controller.context.topics["t"].partitions[0]
    refused = answer(
        world,
        lambda token: IsrProposed(token, 1, TopicPartition("t", 0), view.state.leader_epoch, view.version, (1, 0)),
    )
    assert isinstance(refused, IneligibleReplicaError)
    # As a leader would that has not heard of it.
    isr_is(world, "t", 0, (1, 0))
    isr_is(world, "t", 1, (1, 0, 2))
    world.go(1)
    world.settle()
    assert state(world, "t", 0).leader == 0
    assert (state(world, "t", 1).leader, state(world, "t", 1).isr) == (2, (2,))
    assert (state(world, "t", 2).leader, state(world, "t", 2).isr) == (NO_LEADER, (1,))


def test_who_has_stopped_and_comes_back_is_like_any_other() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    answer(world, lambda token: StopWanted(token, 0))
    world.go(0)
    world.come(0)
    world.settle()
    assert not world.controller.context.stopping
    view = world.controller.context.topics["t"].partitions[0]
    taken = answer(
        world,
        lambda token: IsrProposed(token, 1, TopicPartition("t", 0), view.state.leader_epoch, view.version, (1, 0)),
    )
    assert not isinstance(taken, Exception)
    world.judge()


def test_without_the_tree_it_is_refused_and_can_be_asked_for_again() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    world.unreachable = True
    assert isinstance(answer(world, lambda token: StopWanted(token, 0)), KafkaStorageError)
    world.unreachable = False
    assert answer(world, lambda token: StopWanted(token, 0)) == ()
    assert state(world, "t").leader == 1


# First replicas


def moved(world: World) -> None:
    """Broker 0 has stopped and come back, and is in sync again with the partitions that broker 1 has led since."""
    world.go(0)
    world.settle()
    world.come(0)
    world.settle()
    for name, topic in world.controller.context.topics.items():
        for number in topic.partitions:
            if state(world, name, number).leader == 1:
                isr_is(world, name, number, (1, 0))


def test_first_replicas_lead_when_that_is_asked_for() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1), 1: (1, 0), 2: (0, 1)})
    assigned(world, "u", {0: (0, 1)})
    moved(world)
    isr_is(world, "t", 2, (1,))
    wanted = tuple(TopicPartition("t", number) for number in (0, 1, 2, 7))
    assert answer(world, lambda token: ElectPreferred(token, wanted)) == {
        TopicPartition("t", 0): None,
        TopicPartition("t", 1): ElectionNotNeededError,
        TopicPartition("t", 2): PreferredLeaderNotAvailableError,
        TopicPartition("t", 7): UnknownTopicOrPartitionError,
    }
    assert [state(world, "t", number).leader for number in range(3)] == [0, 1, 1]
    assert state(world, "t", 0).leader_epoch == 2
    found = answer(world, lambda token: ElectPreferred(token, None))
    assert found == {TopicPartition("t", 2): PreferredLeaderNotAvailableError, TopicPartition("u", 0): None}
    assert state(world, "u").leader == 0


def test_a_broker_that_is_about_to_stop_is_no_first_replica_to_lead() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    answer(world, lambda token: StopWanted(token, 0))
    isr_is(world, "t", 0, (1, 0))
    wanted = (TopicPartition("t", 0),)
    assert answer(world, lambda token: ElectPreferred(token, wanted)) == {wanted[0]: PreferredLeaderNotAvailableError}
    assert state(world, "t").leader == 1


@pytest.mark.parametrize(("percentage", "leader"), [("10", 0), ("60", 1)])
def test_leaders_are_balanced_where_a_broker_leads_too_little(percentage: str, leader: int) -> None:
    """Broker 0 leads one of the two partitions whose first replica it has."""
    world = up(2, leader_imbalance_per_broker_percentage=percentage)
    assigned(world, "t", {0: (0, 1), 1: (1, 0)})
    moved(world)
    assigned(world, "u", {0: (0, 1)})
    world.bring(BalanceLeaders())
    world.settle()
    assert state(world, "t").leader == leader
    world.bring(BalanceLeaders())
    world.settle()
    assert state(world, "t").leader == leader


# Brokers that crashed


def test_who_crashed_leaves_every_isr_that_has_another_member() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1), 1: (1, 0), 2: (0,), 3: (0, 2), 4: (1, 2)})
    world.go(2)
    world.settle()
    isr_is(world, "t", 3, (0, 2))
    world.come(0, crashed=True)  # before the controller has seen it go
    world.settle()
    assert (state(world, "t", 0).leader, state(world, "t", 0).isr) == (1, (1,))
    assert (state(world, "t", 1).leader, state(world, "t", 1).isr) == (1, (1,))
    assert (state(world, "t", 2).leader, state(world, "t", 2).isr, state(world, "t", 2).leader_epoch) == (0, (0,), 1)
    assert (state(world, "t", 3).leader, state(world, "t", 3).isr) == (NO_LEADER, (2,))
    world.come(2)
    world.settle()
    assert (state(world, "t", 3).leader, state(world, "t", 3).isr) == (2, (2,))


def test_who_crashed_before_anybody_heard_that_it_is_in_sync_leaves_the_isr() -> None:
    """The leader has written that it is in sync, and sends that a second later."""
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    isr_is(world, "t", 0, (0,))
    world.go(1)
    world.settle()
    world.come(1)
    world.settle()
    isr_is(world, "t", 0, (0, 1))
    world.come(1, crashed=True)
    world.settle()
    assert (state(world, "t").leader, state(world, "t").isr) == (0, (0,))
    world.judge()


_BROKERS = st.lists(st.integers(0, 4), unique=True, max_size=4).map(tuple)


@given(
    _BROKERS,
    st.integers(-1, 3),
    _BROKERS.filter(bool),
    st.sets(st.integers(0, 4)),
    st.sets(st.integers(0, 4)),
    st.booleans(),
)
def test_nobody_leads_after_a_crash_who_may_lack_what_another_has(
    replicas: tuple[int, ...], place: int, isr: tuple[int, ...], live: set[int], crashed: set[int], unclean: bool
) -> None:
    """A partition is led by a replica in sync, or has no leader."""
    leader = isr[place % len(isr)] if place >= 0 else NO_LEADER
    before = PartitionStateNode(leader, 3, isr, 1)
    crashed &= live
    after = elect_after_crash(replicas, before, live, crashed, 7, unclean=unclean) or before
    assert after.leader_epoch == before.leader_epoch + (after is not before)
    if set(isr) - crashed:
        assert not set(after.isr) & crashed or (unclean and after.isr == (after.leader,))
        assert (
            after.leader not in crashed
            or (unclean and not (set(isr) - crashed) & live & set(replicas))
            or leader not in isr
        )
    else:
        assert after.isr == isr or set(after.isr) <= set(isr) | {leader}
    assert after.isr
    assert (
        after is before or after.leader == NO_LEADER or (after.leader in live | {leader} and after.leader in after.isr)
    )


@given(_BROKERS, st.integers(-1, 4), _BROKERS, st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4), min_size=1))
def test_before_a_stop_and_for_a_first_replica_only_who_is_in_sync_is_elected(
    replicas: tuple[int, ...], leader: int, isr: tuple[int, ...], live: set[int], stopping: set[int]
) -> None:
    before = PartitionStateNode(leader, 3, isr, 1)
    for after in (elect_before_stop(replicas, before, live, stopping, 7), elect_preferred(replicas, before, live, 7)):
        if after is not None:
            assert after.leader in isr
            assert after.leader in live
            assert after.leader in after.isr
            assert set(after.isr) <= set(isr) & live
            assert after.leader_epoch == 4
    stopped = elect_before_stop(replicas, before, live, stopping, 7)
    assert stopped is None or not set(stopped.isr) & stopping


# ISRs that leaders write into the tree


def test_an_election_counts_with_the_isr_that_a_leader_has_written_meanwhile() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1, 2), 1: (0, 1)})
    isr_is(world, "t", 0, (0, 2))
    world.go(0)
    world.settle()
    assert (state(world, "t", 0).leader, state(world, "t", 0).isr) == (2, (2,))
    assert (state(world, "t", 1).leader, state(world, "t", 1).isr) == (1, (1,))
    world.judge()


def test_every_broker_is_told_of_an_isr_that_a_leader_has_written() -> None:
    world = watching(2)
    assigned(world, "t", {0: (0, 1), 1: (0, 1)})
    isr_is(world, "t", 1, (0,))
    world.write(
        Create(
            paths.ISR_CHANGE_PREFIX,
            nodes.encode_partitions([TopicPartition("t", 1), TopicPartition("gone", 0)]),
            sequential=True,
        )
    )
    world.write(Create(paths.ISR_CHANGE_PREFIX, b"nonsense", sequential=True))
    world.settle()
    assert [broker.shown["t"][1].isr for broker in world.brokers.values()] == [(0,), (0,)]
    assert world.tree.children(paths.ISR_CHANGES)[0] == []
    world.judge()


def test_who_has_gone_before_anybody_heard_that_it_is_in_sync_leaves_the_isr() -> None:
    world = watching(2)
    assigned(world, "t", {0: (0, 1)})
    world.go(1)
    world.settle()
    assert state(world, "t").isr == (0,)
    # As a leader would that has not heard of it.
    isr_is(world, "t", 0, (0, 1))
    world.write(Create(paths.ISR_CHANGE_PREFIX, nodes.encode_partitions([TopicPartition("t", 0)]), sequential=True))
    world.settle()
    assert (state(world, "t").leader, state(world, "t").isr) == (0, (0,))
    world.judge()


# Brokers that join


def test_others_are_told_that_a_broker_has_come_or_gone_and_it_is_told_everything() -> None:
    world = up(3)
    create(world, "t", 2, 2)
    world.settle()
    world.go(2)
    while world.steps:
        world.under_way()[0]()
    assert UpdateMetadata(0) in world.brokers[0].orders
    assert UpdateMetadata(1) in world.brokers[1].orders
    world.settle()
    world.come(2)
    while world.steps:
        world.under_way()[0]()
    assert UpdateMetadata(0) in world.brokers[0].orders
    world.brokers[0].orders.clear()
    world.brokers[1].orders.clear()
    # First the brokers that are up: a broker of Apache Kafka does not follow a leader that it does not know to be up.
    first, topics, order = world.brokers[2].orders
    assert first == UpdateMetadata(2)
    assert isinstance(topics, UpdateMetadata)
    assert topics.is_first
    assert {part.topic.name for part in topics.topics} == {"t"}
    assert isinstance(order, LeaderAndIsr)
    for _ in range(3):
        world.under_way()[0]()
    assert not world.brokers[0].orders
    assert list(world.brokers[2].orders) == [UpdateMetadata(2)], "nothing has changed since, and it is ready"


def test_kafkas_own_topics_get_the_replicas_that_they_lack_when_more_brokers_come() -> None:
    world = World(4, {"offsets.topic.num.partitions": "5"})
    world.settle()
    world.up = {0}
    world.come(0)
    world.settle()
    for broker_id in (1, 2, 3):
        world.controller.context.brokers.pop(broker_id, None)
    world.ask(lambda token: CreateTopic(token, automatic_topic(CONSUMER_OFFSETS, world.controller.config, 1)))
    world.settle()
    assert set(world.controller.context.topics[CONSUMER_OFFSETS].node.replicas.values()) == {(0,)}
    for broker_id, factor in ((1, 2), (2, 3), (3, 3)):
        world.come(broker_id)
        world.settle()
        topic = world.controller.context.topics[CONSUMER_OFFSETS]
        assert {len(replicas) for replicas in topic.node.replicas.values()} == {factor}
        assert {replicas[0] for replicas in topic.node.replicas.values()} == {0}
        assert all(
            TopicPartition(CONSUMER_OFFSETS, number) in world.brokers[broker_id].replicas for number in range(5)
        ) == (broker_id < 3)
        world.judge()
    assert state(world, CONSUMER_OFFSETS).leader_epoch == 2
    assert state(world, CONSUMER_OFFSETS).isr == (0,)


def test_kafkas_own_topics_get_no_replicas_where_partitions_are_moved() -> None:
    """Also after the moves, where an administrator has chosen fewer replicas."""
    world = up(3)
    assigned(world, CONSUMER_OFFSETS, {0: (0, 1, 2), 1: (1, 2)})
    token = world.ask(lambda token: AlterReassignments(token, [(TopicPartition(CONSUMER_OFFSETS, 0), (0, 1))], True))
    world.settle()
    assert world.answers[token] == [None]

    def replicas() -> dict[int, tuple[int, ...]]:
        return dict(world.controller.context.topics[CONSUMER_OFFSETS].node.replicas)

    assert replicas() == {0: (0, 1), 1: (1, 2)}
    world.go(2)
    world.settle()
    world.come(2)
    world.settle()
    assert replicas() == {0: (0, 1), 1: (1, 2)}


def test_kafkas_own_topics_get_no_replicas_while_they_are_moved() -> None:
    world = up(3)
    world.go(2)
    world.settle()
    assigned(world, CONSUMER_OFFSETS, {0: (0,), 1: (0,)})
    keys = [TopicPartition(CONSUMER_OFFSETS, number) for number in range(2)]
    world.ask(lambda token: AlterReassignments(token, [(key, (1,)) for key in keys], True))
    world.settle()
    world.come(2)
    world.settle()
    node = world.controller.context.topics[CONSUMER_OFFSETS].node
    assert node.replicas == {0: (1, 0), 1: (1, 0)}
    assert node.adding == {0: (1,), 1: (1,)}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_kafkas_own_topics_stay_as_they_are_where_another_broker_is_the_controller_by_now(name: str) -> None:
    for epoch in (None, 9):
        world = up(2)
        world.go(1)
        world.settle()
        assigned(world, name, {0: (0,)})
        if epoch is not None:
            world.write(SetData(paths.CONTROLLER_EPOCH, nodes.encode_controller_epoch(epoch)))
        world.come(1)
        world.settle()
        assert nodes.TopicNode.decode(world.tree.get(paths.topic(name))[0] or b"").replicas == {
            0: (0, 1) if epoch is None else (0,)
        }


# Brokers from the tree


def test_brokers_come_and_go_as_their_nodes_do() -> None:
    world = World(3, several=True)
    world.settle()
    assert set(world.controller.context.brokers) == {0, 1, 2}
    assigned(world, "t", {0: (0, 1), 1: (2, 1)})
    world.go(0)
    world.settle()
    assert (state(world, "t", 0).leader, state(world, "t", 1).leader) == (1, 2)
    world.come(0)
    world.settle()
    assert set(world.controller.context.brokers) == {0, 1, 2}
    world.judge()


def test_a_broker_whose_registration_is_as_it_was_has_not_come() -> None:
    world = World(2, several=True)
    world.settle()
    assigned(world, "t", {0: (0, 1)})
    before = state(world, "t")
    world.bring(Look(paths.BROKER_IDS))
    while world.steps:
        world.under_way()[0]()
    assert [list(broker.orders) for broker in world.brokers.values()] == [[], []]
    assert state(world, "t") == before


def test_a_broker_that_crashed_and_is_registered_anew_before_anybody_looks_has_gone_and_come() -> None:
    world = World(2, several=True)
    world.settle()
    assigned(world, "t", {0: (0, 1)})
    before = world.controller.context.broker_epochs[0]
    world.go(0)
    world.come(0, crashed=True)
    world.settle()
    assert world.controller.context.broker_epochs[0] > before
    assert (state(world, "t").leader, state(world, "t").isr) == (1, (1,))
    world.judge()


def test_the_next_controller_elects_nobody_while_it_gets_to_know_the_brokers() -> None:
    world = World(3, several=True)
    world.settle()
    assigned(world, "t", {0: (0, 1), 1: (1, 2), 2: (2, 0)})
    world.take_over()
    world.settle()
    assert [state(world, "t", number) for number in range(3)] == [
        PartitionStateNode(number, 0, (number, (number + 1) % 3), 1) for number in range(3)
    ]
    world.judge()


def test_a_node_that_is_no_brokers_is_said_and_left_alone() -> None:
    world = World(1, several=True)
    world.settle()
    world.write(Create(paths.broker(7), b"nonsense"))
    world.settle()
    assert set(world.controller.context.brokers) == {0}
    assert any("/brokers/ids/7 is ignored" in text for text in world.said)


def test_who_has_gone_is_not_waited_for() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1, 2), 1: (0, 2)})
    world.go(1)
    world.settle()
    assert state(world, "t", 0) == PartitionStateNode(0, 1, (0, 2), 1)
    assert state(world, "t", 1) == PartitionStateNode(0, 0, (0, 2), 1)
    world.judge()
