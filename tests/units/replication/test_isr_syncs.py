"""Logs with too few replicas in sync: the number of concurrent syncs, and the notified partitions."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.base.errors import KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.replication.leader.isr_syncs import IsrSyncs

_AT_ONCE = 10

Ended = Callable[[KafkaError | None], None]


class Disk:
    """The syncs under way; they end at once if it `is_fast`."""

    def __init__(self, *, is_fast: bool = False) -> None:
        self.under_way: list[Ended] = []
        self.is_fast = is_fast
        self.begun = 0


class Replica:
    def __init__(self, disk: Disk, number: int = 0) -> None:
        self.topic_partition = TopicPartition("t", number)
        self.is_to_be_synced = True
        self._disk = disk

    def sync(self, done: Ended) -> None:
        self._disk.begun += 1
        if self._disk.is_fast:
            self._ended(done, None)
        else:
            self._disk.under_way.append(lambda failure: self._ended(done, failure))

    def _ended(self, done: Ended, failure: KafkaError | None) -> None:
        self.is_to_be_synced = failure is not None
        done(failure)


def test_so_many_are_synced_at_a_time_and_all_in_the_end() -> None:
    disk, syncs, told = Disk(), IsrSyncs(), list[int]()
    for number in range(100):
        syncs.ask(Replica(disk, number), lambda number=number: told.append(number))  # type: ignore[misc]
    assert disk.begun == _AT_ONCE
    while disk.under_way:
        assert len(disk.under_way) <= _AT_ONCE
        disk.under_way.pop(0)(None)
    assert disk.begun == 100
    assert told == list(range(100))
    assert syncs.is_idle


def test_thousands_that_are_synced_already_are_no_deep_chain_of_calls() -> None:
    disk, syncs = Disk(), IsrSyncs()
    first = [Replica(disk, number) for number in range(_AT_ONCE)]
    for replica in (*first, *(Replica(disk, number) for number in range(_AT_ONCE, 5000))):
        syncs.ask(replica)
    disk.is_fast = True
    disk.under_way.pop()(None)
    assert disk.begun == 5000


def test_whoever_need_not_be_synced_is_told_at_once() -> None:
    disk, syncs, told = Disk(), IsrSyncs(), list[str]()
    replica = Replica(disk)
    replica.is_to_be_synced = False
    syncs.ask(replica, lambda: told.append("synced"))
    assert (told, disk.begun) == (["synced"], 0)


def test_what_the_disk_did_not_do_is_tried_again_when_it_is_time() -> None:
    disk, syncs, told = Disk(), IsrSyncs(), list[str]()
    replica = Replica(disk)
    syncs.ask(replica, lambda: told.append("synced"))
    disk.under_way.pop()(KafkaStorageError("broken"))
    assert (disk.begun, told) == (1, [])
    syncs.try_again()
    disk.under_way.pop()(None)
    assert (disk.begun, told) == (2, ["synced"])
    syncs.try_again()
    assert disk.begun == 2


def test_whoever_does_not_want_to_know_makes_nobody_be_forgotten_who_does() -> None:
    disk, syncs, told = Disk(), IsrSyncs(), list[str]()
    others = [Replica(disk, number) for number in range(1, _AT_ONCE + 1)]
    for other in others:
        syncs.ask(other)
    replica = Replica(disk)
    syncs.ask(replica, lambda: told.append("synced"))
    syncs.ask(replica)
    while disk.under_way:
        disk.under_way.pop(0)(None)
    assert told == ["synced"]
    assert disk.begun == _AT_ONCE + 1


def test_after_the_end_nothing_is_synced() -> None:
    disk, syncs = Disk(), IsrSyncs()
    syncs.close()
    syncs.ask(Replica(disk))
    assert disk.begun == 0


def test_a_sync_that_ends_after_the_end_tells_nobody_and_begins_no_other() -> None:
    disk, syncs, told = Disk(), IsrSyncs(), list[int]()
    for number in range(_AT_ONCE + 1):
        syncs.ask(Replica(disk, number), lambda number=number: told.append(number))  # type: ignore[misc]
    syncs.close()
    for failure in (KafkaStorageError("broken"), *[None] * (_AT_ONCE - 1)):
        disk.under_way.pop()(failure)
    syncs.try_again()
    assert (disk.begun, disk.under_way, told, syncs.is_idle) == (_AT_ONCE, [], [], True)
