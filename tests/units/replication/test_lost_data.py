"""Which replicas have lost data that they are known to have had."""

from __future__ import annotations

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.replication.lost_data import Written, lost_replicas

KEY = TopicPartition("t", 0)


def _is_lost(
    isr: tuple[int, ...] = (1,),
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    epoch: int = 4,
    has_log: bool = False,
    is_cut: bool = False,
    has_other_directory: bool = False,
    is_checkpointed: bool = True,
) -> bool:
    written = {KEY: Written(replicas, PartitionStateNode(leader, epoch, isr, 1))}
    logs, cut = ({KEY} if has_log else set()), ({KEY} if is_cut else set())
    checkpointed = {KEY} if is_checkpointed else set()
    return list(lost_replicas(1, written, logs, cut, checkpointed, has_other_directory=has_other_directory)) == [KEY]


@pytest.mark.parametrize("leader", [1, 2, -1])
@pytest.mark.parametrize("isr", [(1,), (1, 2)])
def test_a_replica_in_sync_that_has_no_log_is_lost_whoever_leads(isr: tuple[int, ...], leader: int) -> None:
    assert _is_lost(isr, leader=leader)
    assert not _is_lost(isr, leader=leader, has_log=True)


def test_a_log_that_ends_before_its_checkpoint_is_lost() -> None:
    assert _is_lost(has_log=True, is_cut=True)


def test_who_is_not_in_sync_has_nothing_to_lose() -> None:
    assert not _is_lost((2, 3))
    assert not _is_lost((2, 3), has_log=True, is_cut=True)


def test_the_only_replica_leads_with_what_it_has() -> None:
    assert not _is_lost(replicas=(1,))
    assert not _is_lost(replicas=(1,), has_log=True, is_cut=True)


def test_where_nobody_has_led_yet_there_never_was_a_log() -> None:
    assert not _is_lost((1, 2, 3), leader=-1, epoch=0, has_other_directory=True)
    assert not _is_lost((1, 2, 3), leader=-1, epoch=0)
    assert _is_lost((1, 2, 3), leader=-1, epoch=1)


@pytest.mark.parametrize("epoch", [0, 6])
def test_a_leader_may_not_have_been_told_before_it_went_and_the_controller_may_have_held_elections_since(
    epoch: int,
) -> None:
    assert not _is_lost(epoch=epoch, is_checkpointed=False)
    assert _is_lost(epoch=epoch), "a checkpoint names the log"
    assert _is_lost(epoch=epoch, is_checkpointed=False, has_other_directory=True), "or the disk is another one"
    assert not _is_lost(epoch=epoch, is_checkpointed=False, has_log=True)
