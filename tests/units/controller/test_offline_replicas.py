"""Brokers whose log directories fail: the controller asks them for the partitions that they cannot read, and other
brokers lead those."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import PreferredLeaderNotAvailableError
from jesenska.base.identifiers import TopicPartition
from jesenska.controller.effects import LeaderAndIsr
from jesenska.controller.events import ElectPreferred, ElectUncleanly, IsrProposed, Look, StopWanted
from jesenska.metadata import paths
from jesenska.metadata.nodes import PartitionStateNode, encode_log_dir_event, encode_partitions
from jesenska.metadata.tree_operations import Create
from tests.units.controller.test_leadership import answer, assigned, isr_is
from tests.units.controller.test_machine import state, up
from tests.units.controller.world import World

_T0 = TopicPartition("t", 0)


def directory_fails(world: World, broker_id: int, *lost: TopicPartition) -> None:
    """Has a broker report a failed directory in the tree."""
    world.brokers[broker_id].offline.update(lost)
    say(world, encode_log_dir_event(broker_id))


def say(world: World, data: bytes) -> None:
    world.write(Create(paths.LOG_DIR_EVENT_PREFIX, data, sequential=True))
    world.bring(Look(paths.LOG_DIR_EVENTS))
    world.settle()


def offline(world: World) -> dict[TopicPartition, set[int]]:
    return world.controller.context.offline


def events(world: World) -> list[str]:
    return world.tree.children(paths.LOG_DIR_EVENTS)[0]


def test_what_a_broker_cannot_read_any_more_is_led_by_others() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1, 2), 1: (0, 1), 2: (1, 0), 3: (0, 2)})
    directory_fails(world, 0, _T0, TopicPartition("t", 2))
    assert state(world, "t", 0) == PartitionStateNode(1, 1, (1, 2), 1)
    assert state(world, "t", 1) == PartitionStateNode(0, 0, (0, 1), 1), "it is in another directory"
    assert state(world, "t", 2) == PartitionStateNode(1, 1, (1,), 1), "a follower leaves the ISR"
    assert state(world, "t", 3) == PartitionStateNode(0, 0, (0, 2), 1)
    assert offline(world) == {_T0: {0}, TopicPartition("t", 2): {0}}
    assert events(world) == []
    assert any("broker 0 cannot read its replicas of topic t (0, 2)" in said for said in world.said)
    world.judge()


def test_nobody_leads_what_only_that_broker_has_and_its_isr_is_kept() -> None:
    world = up(2)
    assigned(world, "t", {0: (0,), 1: (0, 1)})
    isr_is(world, "t", 1, (0,))
    directory_fails(world, 0, _T0, TopicPartition("t", 1))
    assert state(world, "t", 0) == PartitionStateNode(-1, 1, (0,), 1)
    assert state(world, "t", 1) == PartitionStateNode(-1, 1, (0,), 1)
    world.judge()
    # Mended, and the broker is started again.
    world.brokers[0].offline.clear()
    world.go(0)
    world.come(0)
    world.settle()
    assert state(world, "t", 0).leader == 0
    assert offline(world) == {}
    world.judge()


def test_a_replica_whose_data_are_lost_is_not_led_and_comes_into_sync_under_another_leader() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    isr_is(world, "t", 0, (0,))
    world.go(0)
    world.settle()
    world.brokers[0].lost.add(_T0)
    world.come(0)
    world.settle()
    assert (state(world, "t").leader, state(world, "t").isr) == (-1, (0,))
    assert offline(world) == {_T0: {0}}
    # Not broker 0, though it is the first replica and up.
    assert answer(world, lambda token: ElectUncleanly(token, _T0)) is True
    assert (state(world, "t").leader, state(world, "t").isr) == (1, (1,))
    assert offline(world) == {}
    epoch = state(world, "t").leader_epoch
    isr_is(world, "t", 0, (1, 0))
    world.write(Create(paths.ISR_CHANGE_PREFIX, encode_partitions([_T0]), sequential=True))
    world.bring(Look(paths.ISR_CHANGES))
    world.settle()
    assert (state(world, "t").leader_epoch, state(world, "t").isr) == (epoch, (1, 0)), (
        "it stays in the ISR that its leader has taken it into"
    )
    world.judge()


def test_a_broker_that_starts_without_a_directory_leads_what_it_can_read() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1), 1: (0, 1)})
    world.go(0)
    world.settle()
    world.brokers[0].offline.add(_T0)
    world.come(0)
    world.settle()
    assert offline(world) == {_T0: {0}}
    assert isinstance(answer(world, lambda token: ElectPreferred(token, None)), dict)
    assert state(world, "t", 0).leader == 1
    world.judge()


def test_the_first_replica_is_not_preferred_while_it_cannot_be_read() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    directory_fails(world, 0, _T0)
    assert answer(world, lambda token: ElectPreferred(token, (_T0,))) == {_T0: PreferredLeaderNotAvailableError}


def test_a_broker_that_stops_leaves_nothing_to_one_that_cannot_read_it() -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1, 2)})
    directory_fails(world, 1, _T0)
    assert answer(world, lambda token: StopWanted(token, 0)) == ()
    assert state(world, "t", 0).leader == 2


def test_replicas_that_can_be_read_again_lead_without_a_start() -> None:
    """A log could not be made at the start, since the disk was full: the broker reports the change."""
    world = up(1)
    assigned(world, "t", {0: (0,)})
    directory_fails(world, 0, _T0)
    assert state(world, "t", 0).leader == -1
    world.brokers[0].offline.clear()
    directory_fails(world, 0)
    assert state(world, "t", 0) == PartitionStateNode(0, 2, (0,), 1)
    assert offline(world) == {}
    world.judge()


def test_a_replica_that_the_leader_takes_into_the_isr_can_be_read() -> None:
    world = up(2)
    assigned(world, "t", {0: (0, 1)})
    directory_fails(world, 1, _T0)
    found = state(world, "t", 0)
    assert found.isr == (0,)
    version = world.controller.context.topics["t"].partitions[0].version
    world.brokers[1].offline.clear()
    answer(world, lambda token: IsrProposed(token, 0, _T0, found.leader_epoch, version, (0, 1)))
    assert state(world, "t", 0).isr == (0, 1)
    assert offline(world) == {}


@pytest.mark.parametrize("data", [b"", b"{}", b"nonsense", b'{"version":1,"broker":"x","event":1}'])
def test_an_event_that_makes_no_sense_is_named_and_taken_away(data: bytes) -> None:
    world = up(1)
    say(world, data)
    assert events(world) == []
    assert any("is removed" in said for said in world.said)


def test_an_event_of_a_broker_that_is_gone_or_without_replicas_asks_nobody() -> None:
    world = up(2)
    assigned(world, "t", {0: (0,)})
    world.told.clear()
    say(world, encode_log_dir_event(7))
    say(world, encode_log_dir_event(1))
    assert not [effect for effect in world.told if isinstance(effect, LeaderAndIsr)]
    assert events(world) == []


@given(data=st.data())
def test_whatever_fails_and_comes_back_in_whatever_order_who_can_lead_leads(data: st.DataObject) -> None:
    world = up(3)
    assigned(world, "t", {0: (0, 1, 2), 1: (1, 2, 0), 2: (2, 0), 3: (1,)})
    for _ in range(data.draw(st.integers(1, 12))):
        broker_id = data.draw(st.integers(0, 2))
        if broker_id not in world.up:
            world.brokers[broker_id].offline.clear()
            world.come(broker_id)
        elif data.draw(st.booleans()) and broker_id != 0:
            world.go(broker_id)
        else:
            lost = [TopicPartition("t", number) for number in data.draw(st.sets(st.integers(0, 3)))]
            directory_fails(world, broker_id, *(key for key in lost if key in world.brokers[broker_id].replicas))
        if data.draw(st.booleans()):
            world.settle()
    world.settle()
    world.judge()
    for key, brokers in offline(world).items():
        assert brokers <= {broker_id for broker_id in world.up if key in world.brokers[broker_id].offline}
