"""Reassignments: plans of one step, and whole moves with a controller, brokers and tools."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    KafkaError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.controller.events import AlterReassignments, ExpandTopic, IsrProposed
from jesenska.controller.plans.partition_states import NO_LEADER
from jesenska.controller.plans.reassignments import Reassignment, moving, reassignment_of
from jesenska.metadata import nodes, paths
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.metadata.tree_operations import Create, SetData
from tests.units.controller.test_leadership import assigned, isr_is
from tests.units.controller.test_machine import delete, state, up
from tests.units.controller.world import World

T0 = TopicPartition("t", 0)


def ask(
    world: World, wanted: Mapping[TopicPartition, Sequence[int] | None], *, may_change_factor: bool = True
) -> dict[TopicPartition, type[KafkaError]]:
    """The errors of the refused requests."""
    token = world.ask(lambda token: AlterReassignments(token, tuple(wanted.items()), may_change_factor))
    world.settle()
    answers = world.answers[token]
    assert isinstance(answers, list)
    return {key: type(error) for key, error in zip(wanted, answers, strict=True) if error is not None}


def replicas(world: World, name: str = "t", number: int = 0) -> Reassignment:
    """What the tree has."""
    return reassignment_of(nodes.TopicNode.decode(world.tree.get(paths.topic(name))[0] or b""), number)


def in_sync(world: World, isr: tuple[int, ...], name: str = "t", number: int = 0) -> None:
    """The leader asks for this ISR."""
    known = world.controller.context.topics[name].partitions[number]
    token = world.ask(
        lambda token: IsrProposed(
            token, known.state.leader, TopicPartition(name, number), known.state.leader_epoch, known.version, isr
        )
    )
    world.settle()
    assert not isinstance(world.answers[token], Exception), world.answers[token]


def has_data(world: World, broker_id: int, topic_partition: TopicPartition = T0) -> bool:
    return topic_partition in world.brokers[broker_id].replicas


# Whole moves


def test_a_partition_moves_when_its_new_replicas_are_in_sync() -> None:
    world = up(4)
    assigned(world, "t", {0: (0, 1)})
    assert ask(world, {T0: (2, 3)}) == {}
    assert replicas(world) == Reassignment((2, 3, 0, 1), (2, 3), (0, 1))
    assert state(world, "t") == PartitionStateNode(0, 1, (0, 1), 1)
    assert all(has_data(world, broker_id) for broker_id in range(4))
    in_sync(world, (0, 1, 2))
    assert replicas(world).is_moving
    in_sync(world, (0, 1, 2, 3))
    assert replicas(world) == Reassignment((2, 3))
    assert state(world, "t") == PartitionStateNode(2, 2, (2, 3), 1)
    assert [has_data(world, broker_id) for broker_id in range(4)] == [False, False, True, True]
    world.judge()


def test_a_leader_that_stays_leads_on_in_a_new_epoch() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 0)})
    in_sync(world, (0, 1, 2))
    assert replicas(world) == Reassignment((2, 0))
    assert state(world, "t") == PartitionStateNode(0, 2, (0, 2), 1)
    world.judge()


@pytest.mark.parametrize(("target", "isr_then"), [((0,), (0,)), ((1, 0), (0, 1)), ((1,), (1,)), ((0, 1), (0, 1))])
def test_a_move_that_waits_for_nothing_is_done_at_once(target: tuple[int, ...], isr_then: tuple[int, ...]) -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    assert ask(world, {T0: target}) == {}
    assert replicas(world) == Reassignment(target)
    assert state(world, "t").isr == isr_then
    assert [has_data(world, broker_id) for broker_id in range(2)] == [0 in target, 1 in target]
    world.judge()


def test_the_replication_factor_is_raised() -> None:
    world = up(3)
    assigned(world, "t", {0: (0,), 1: (1,)})
    ask(world, {T0: (0, 1, 2), TopicPartition("t", 1): (1, 2, 0)})
    for number, leader in ((0, 0), (1, 1)):
        in_sync(world, (leader, *({0, 1, 2} - {leader})), number=number)
    assert [replicas(world, number=number) for number in range(2)] == [
        Reassignment((0, 1, 2)),
        Reassignment((1, 2, 0)),
    ]
    world.judge()


def test_another_target_drops_the_new_replicas_that_it_does_not_need() -> None:
    world = up(4)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 1)})
    in_sync(world, (0, 1, 2))
    # Complete by now; so the next one is without waiting replicas in sync.
    assert replicas(world) == Reassignment((2, 1))
    ask(world, {T0: (3, 1)})
    ask(world, {T0: (0, 1)})
    assert replicas(world) == Reassignment((0, 1, 2), (0,), (2,))
    assert [has_data(world, broker_id) for broker_id in range(4)] == [True, True, True, False]
    world.judge()


def test_a_cancelled_move_leaves_the_old_replicas_and_no_new_data() -> None:
    world = up(4)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 3)})
    in_sync(world, (0, 1, 2))
    assert ask(world, {T0: None}) == {}
    assert replicas(world) == Reassignment((0, 1))
    assert state(world, "t").isr == (0, 1)
    assert [has_data(world, broker_id) for broker_id in range(4)] == [True, True, False, False]
    assert ask(world, {T0: None}) == {T0: NoReassignmentInProgressError}
    world.judge()


def test_a_move_whose_end_only_new_replicas_have_is_not_cancelled() -> None:
    world = up(4)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 3)})
    in_sync(world, (0, 2))
    world.go(0)
    world.settle()
    assert (state(world, "t").leader, state(world, "t").isr) == (2, (2,))
    assert ask(world, {T0: None}) == {T0: InvalidReplicaAssignmentError}
    assert replicas(world) == Reassignment((2, 3, 0, 1), (2, 3), (0, 1))


def test_requests_that_cannot_be_are_refused_one_by_one() -> None:
    world = up(2)
    assigned(world, "t", {0: (0,), 1: (1,)})
    ghost, third = TopicPartition("ghost", 0), TopicPartition("t", 2)
    asked = {T0: (), TopicPartition("t", 1): (1, 0), third: (0,), ghost: (0,)}
    assert ask(world, asked) == {
        T0: InvalidReplicaAssignmentError,
        third: UnknownTopicOrPartitionError,
        ghost: UnknownTopicOrPartitionError,
    }
    assert replicas(world, number=1).is_moving
    for target in ((0, 0), (0, 7), (-1,)):
        assert ask(world, {T0: target}) == {T0: InvalidReplicaAssignmentError}
    assert ask(world, {T0: (0, 1)}, may_change_factor=False) == {T0: InvalidReplicationFactorError}
    assert ask(world, {T0: (1,)}, may_change_factor=False) == {}


def test_a_partition_that_is_named_twice_has_two_answers_and_the_last_good_one_counts() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1)})
    wanted = [(T0, (2, 1)), (T0, (0, 2)), (T0, (9,)), (T0, None)]
    token = world.ask(lambda token: AlterReassignments(token, wanted))
    world.settle()
    assert [type(error) for error in world.answers[token]] == [
        type(None),
        type(None),
        InvalidReplicaAssignmentError,
        NoReassignmentInProgressError,
    ]
    assert replicas(world).target == (0, 2)


# Faults


def test_the_next_controller_goes_on() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 1)})
    # The leader writes the ISR itself, and the controller ends before it has seen that.
    isr_is(world, "t", 0, (0, 1, 2))
    world.take_over()
    world.bring_everything()
    world.settle()
    assert replicas(world) == Reassignment((2, 1))
    assert state(world, "t").leader == 2
    assert not has_data(world, 0)
    world.judge()


def test_a_broker_that_was_away_deletes_what_is_not_its_own_any_more() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1)})
    world.go(1)
    world.settle()
    ask(world, {T0: (0, 2)})
    in_sync(world, (0, 2))
    assert replicas(world) == Reassignment((0, 2))
    assert has_data(world, 1)
    world.come(1)
    world.settle()
    assert not has_data(world, 1)
    world.judge()


def test_a_new_replica_that_is_down_is_waited_for() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 1)})
    world.go(2)
    world.settle()
    assert replicas(world).is_moving
    world.come(2)
    world.settle()
    in_sync(world, (0, 1, 2))
    assert replicas(world) == Reassignment((2, 1))
    world.judge()


@pytest.mark.parametrize(("target", "left"), [(None, {0, 1}), ((0,), {0})], ids=["cancelled", "complete"])
def test_replicas_are_deleted_whose_removal_was_written_unheard(target: tuple[int, ...] | None, left: set[int]) -> None:
    """The connection to the tree is lost between the write that ends a move and its outcome."""
    world = watched(4)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 3)})
    assert all(has_data(world, broker_id) for broker_id in range(4))
    world.unheard = True
    token = world.ask(lambda token: AlterReassignments(token, [(T0, target)]))
    world.settle()
    assert isinstance(world.answers[token], KafkaError)
    world.unheard = False
    world.bring_everything()
    world.settle()
    assert replicas(world) == Reassignment(tuple(sorted(left)))
    assert {broker_id for broker_id in range(4) if has_data(world, broker_id)} == left
    world.judge()


def test_a_replica_that_another_program_takes_from_a_topic_keeps_its_data_while_it_is_in_sync() -> None:
    world = watched(3)
    assigned(world, "t", {0: (0, 1, 2)})
    world.write(SetData(paths.topic("t"), nodes.TopicNode({0: (1, 2)}, uuid.UUID(int=7)).encode()))
    world.settle()
    assert replicas(world) == Reassignment((1, 2))
    assert has_data(world, 0)


def test_a_target_whose_old_replica_is_down_is_reached_without_it() -> None:
    world = up(4)
    assigned(world, "t", {0: (0, 1, 2)})
    world.go(1)
    world.settle()
    ask_target = (0, 1, 3)
    world.controller.context.brokers[1] = world.controller.context.brokers[0]
    ask(world, {T0: ask_target})
    del world.controller.context.brokers[1]
    in_sync(world, (0, 2, 3))
    assert replicas(world) == Reassignment((0, 1, 3))
    assert state(world, "t").isr == (0, 3)


def test_a_topic_that_is_being_moved_can_be_deleted_and_not_expanded() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1)})
    ask(world, {T0: (2, 1)})
    token = world.ask(lambda token: ExpandTopic(token, "t", 3))
    world.settle()
    assert isinstance(world.answers[token], KafkaError)
    delete(world, "t")
    world.settle()
    assert world.controller.context.topics == {}
    assert not any(has_data(world, broker_id) for broker_id in range(3))
    world.judge()


def test_a_partition_without_a_leader_gets_replicas_and_waits() -> None:
    world = up(3)
    assigned(world, "t", {0: (0,)})
    world.go(0)
    world.settle()
    assert ask(world, {T0: (1,)}) == {}
    assert state(world, "t").leader == NO_LEADER
    assert replicas(world) == Reassignment((1, 0), (1,), (0,))
    world.come(0)
    world.settle()
    in_sync(world, (0, 1))
    assert replicas(world) == Reassignment((1,))
    world.judge()


# The node of the tools


def written(world: World, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> None:
    world.write(Create(paths.REASSIGN_PARTITIONS, nodes.encode_reassignment(wanted)))
    world.settle()


def in_node(world: World) -> dict[TopicPartition, tuple[int, ...]] | None:
    if world.tree.exists(paths.REASSIGN_PARTITIONS) is None:
        return None
    return nodes.decode_reassignment(world.tree.get(paths.REASSIGN_PARTITIONS)[0] or b"")


def watched(count: int) -> World:
    world = up(count)
    world.bring_everything()
    world.settle()
    return world


def test_a_tool_finds_in_the_node_what_is_not_done_yet() -> None:
    world = watched(3)
    assigned(world, "t", {0: (0, 1), 1: (0, 1), 2: (1, 0)})
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    written(
        world,
        {first: (2, 1), second: (0, 2), TopicPartition("t", 2): (1, 0), TopicPartition("ghost", 0): (1,)},
    )
    assert in_node(world) == {first: (2, 1), second: (0, 2)}
    assert any("ghost-0 cannot get the replicas [1]" in text for text in world.said)
    in_sync(world, (0, 1, 2))
    assert in_node(world) == {second: (0, 2)}
    in_sync(world, (0, 1, 2), number=1)
    assert in_node(world) is None
    assert replicas(world, number=1) == Reassignment((0, 2))
    world.judge()


def test_what_a_client_asks_replaces_what_a_tool_has_written() -> None:
    world = watched(3)
    assigned(world, "t", {0: (0, 1), 1: (0, 1)})
    other = TopicPartition("t", 1)
    written(world, {T0: (2, 1), other: (2, 1)})
    assert ask(world, {T0: None}) == {}
    assert in_node(world) == {other: (2, 1)}
    # As in Kafka, the order of the target stays.
    assert replicas(world) == Reassignment((1, 0))
    delete(world, "t")
    world.settle()
    world.bring_everything()
    world.settle()
    assert in_node(world) is None


@pytest.mark.parametrize("data", [b"", b"nonsense", b'{"version":1}', b'{"version":1,"partitions":[]}'])
def test_a_node_that_asks_for_nothing_is_taken_away(data: bytes) -> None:
    world = watched(2)
    world.write(Create(paths.REASSIGN_PARTITIONS, data))
    world.settle()
    assert in_node(world) is None


# Properties

_BROKERS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple)


@given(_BROKERS, st.lists(_BROKERS, max_size=4))
def test_targets_are_reached_from_the_same_origin(origin: tuple[int, ...], targets: list[tuple[int, ...]]) -> None:
    reassignment = Reassignment(origin)
    for target in targets:
        reassignment = reassignment.to(target)
        assert reassignment.target == target
        assert set(reassignment.origin) == set(origin)
        assert set(reassignment.adding) == set(target) - set(origin)
        assert set(reassignment.removing) == set(origin) - set(target)
        assert len(set(reassignment.replicas)) == len(reassignment.replicas)
    assert not reassignment.to(reassignment.origin).is_moving


def test_partitions_that_move_are_found_in_the_node() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1), 1: (0, 1)})
    ask(world, {TopicPartition("t", 1): (2, 1)})
    assert moving(world.controller.context.topics["t"]) == [1]
